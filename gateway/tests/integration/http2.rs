//! HTTP/2 from the client, with prior knowledge: plain and streaming, resets, stalls, and the drain.

use std::net::SocketAddr;
use std::time::Duration;

use bifrost_gateway::shutdown::Drained;
use bifrost_shared::record::{Outcome, flags};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::{chat, stream};
use crate::gateway::Gateway;
use crate::provider::{
    COMPLETION, DONE, FINISH, Provider, Step, chunk, delta, json, last_chunk, stream_head,
};

const PATIENCE: Duration = Duration::from_secs(10);

struct Client {
    requests: SendRequest<Full<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (requests, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        Self {
            requests,
            connection: tokio::spawn(connection),
        }
    }

    fn ask(&mut self, body: String) -> impl Future<Output = Response<Incoming>> + use<> {
        let request = Request::post("http://localhost/v1/chat/completions")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let answer = self.requests.send_request(request);
        async {
            tokio::time::timeout(PATIENCE, answer)
                .await
                .unwrap()
                .unwrap()
        }
    }

    /// Waits for the connection's end.
    async fn ended(self) {
        let ended = tokio::time::timeout(PATIENCE, self.connection).await;
        ended.expect("the connection ends").unwrap().unwrap();
    }
}

async fn text(answer: Response<Incoming>) -> String {
    let body = tokio::time::timeout(PATIENCE, answer.into_body().collect());
    String::from_utf8(body.await.unwrap().unwrap().to_bytes().to_vec()).unwrap()
}

async fn next(answer: &mut Response<Incoming>) -> Bytes {
    let frame = tokio::time::timeout(PATIENCE, answer.body_mut().frame());
    frame.await.unwrap().unwrap().unwrap().into_data().unwrap()
}

/// A chat whose body has `bytes` bytes.
fn padded(body: &str, bytes: usize) -> String {
    let missing = bytes - body.len();
    body.replacen("hi", &format!("hi{}", "x".repeat(missing)), 1)
}

fn whole_stream() -> Vec<Step> {
    vec![
        stream_head(),
        chunk(delta("a")),
        chunk(FINISH),
        chunk(DONE),
        last_chunk(),
    ]
}

#[tokio::test]
async fn bodies_of_any_length_are_answered_plain_and_as_streams() {
    let sizes = [1_023, 1_025, 100_000];
    let scripts = sizes
        .iter()
        .flat_map(|_| [json(200, COMPLETION), whole_stream()])
        .collect();
    let provider = Provider::start(scripts).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let mut client = Client::connect(gateway.address).await;
    for size in sizes {
        let answer = client.ask(padded(&chat("openai/m"), size)).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.version(), http::Version::HTTP_2);
        assert_eq!(text(answer).await, COMPLETION);
        let answer = client.ask(padded(&stream("openai/m"), size)).await;
        assert_eq!(text(answer).await, [&delta("a"), FINISH, DONE].concat());
        for _ in 0..2 {
            let record = gateway.record().await;
            assert_eq!(record.outcome, Outcome::Completed);
            assert_eq!(record.request_bytes as usize, size);
        }
    }
}

#[tokio::test]
async fn a_reset_before_the_answer_or_within_it_lets_the_provider_go() {
    let scripts = vec![
        vec![Step::Stall],
        vec![stream_head(), chunk(delta("a")), Step::Stall],
        json(200, COMPLETION),
    ];
    let mut provider = Provider::start(scripts).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let mut client = Client::connect(gateway.address).await;

    let answer = tokio::spawn(client.ask(chat("openai/m")));
    provider.until_seen(1).await;
    answer.abort();
    assert_eq!(provider.left().await, 0);
    assert_eq!(gateway.record().await.outcome, Outcome::Cancelled);

    let mut answer = client.ask(stream("openai/m")).await;
    assert_eq!(next(&mut answer).await, delta("a"));
    drop(answer);
    assert_eq!(provider.left().await, 1);
    let record = gateway.record().await;
    assert_eq!((record.outcome, record.events), (Outcome::Cancelled, 1));

    // The connection is none the worse for it.
    assert_eq!(text(client.ask(chat("openai/m")).await).await, COMPLETION);
}

#[tokio::test]
async fn a_stream_that_is_not_read_does_not_stop_the_others() {
    // More than the client's window for one stream, and less than for all of them.
    let much = chunk(delta(&"x".repeat(60_000)));
    let script = [vec![stream_head()], vec![much; 200], vec![Step::Stall]].concat();
    let provider = Provider::start(vec![script, json(200, COMPLETION), whole_stream()]).await;
    let gateway = Gateway::start(&provider, &[]);
    let mut client = Client::connect(gateway.address).await;
    let mut stalled = client.ask(stream("openai/m")).await;
    assert!(!next(&mut stalled).await.is_empty());
    assert_eq!(text(client.ask(chat("openai/m")).await).await, COMPLETION);
    let answer = text(client.ask(stream("openai/m")).await).await;
    assert!(answer.ends_with(DONE), "{answer}");
}

#[tokio::test]
async fn a_drain_says_goaway_and_lets_streams_finish() {
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let mut script = whole_stream();
    script.insert(2, Step::Wait(gate.clone()));
    let provider = Provider::start(vec![script]).await;
    let gateway = Gateway::start(&provider, &[]);
    let (mut client, idle) = (
        Client::connect(gateway.address).await,
        Client::connect(gateway.address).await,
    );
    let mut answer = client.ask(stream("openai/m")).await;
    assert_eq!(next(&mut answer).await, delta("a"));
    let stopping = tokio::spawn(gateway.stop());
    idle.ended().await;
    gate.notify_one();
    assert!(text(answer).await.ends_with(DONE));
    client.ended().await;
    assert_eq!(stopping.await.unwrap().0, Drained::Whole);
}

#[tokio::test]
async fn what_is_left_of_a_drain_ends_in_words() {
    let scripts = vec![
        vec![stream_head(), chunk(delta("a")), Step::Stall],
        vec![Step::Stall],
    ];
    let provider = Provider::start(scripts).await;
    let gateway = Gateway::start(&provider, &[("DRAIN_TIMEOUT", "100ms")]);
    let mut client = Client::connect(gateway.address).await;
    let mut streaming = client.ask(stream("openai/m")).await;
    assert_eq!(next(&mut streaming).await, delta("a"));
    let plain = tokio::spawn(client.ask(chat("openai/m")));
    provider.until_seen(2).await;
    let stopping = tokio::spawn(gateway.stop());
    let rest = text(streaming).await;
    assert!(
        rest.contains(r#""code":"draining""#) && !rest.contains("[DONE]"),
        "{rest}"
    );
    assert_eq!(plain.await.unwrap().status(), 503);
    let (drained, records) = stopping.await.unwrap();
    assert_eq!(drained, Drained::Cut(2));
    assert!(
        records
            .iter()
            .all(|record| record.flags & flags::DRAINED != 0)
    );
}

#[tokio::test]
async fn a_connection_without_streams_is_closed_in_time() {
    let provider = Provider::start(vec![json(200, COMPLETION)]).await;
    let gateway = Gateway::start(&provider, &[("SERVER__KEEP_ALIVE_TIMEOUT", "100ms")]);
    let mut client = Client::connect(gateway.address).await;
    assert_eq!(text(client.ask(chat("openai/m")).await).await, COMPLETION);
    client.ended().await;
}

#[tokio::test]
async fn a_web_page_is_refused_by_the_authority_as_well() {
    let provider = Provider::start(vec![]).await;
    let gateway = Gateway::start(&provider, &[]);
    let mut client = Client::connect(gateway.address).await;
    let request = Request::get("http://evil.example/v1/models")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let answer = client.requests.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 403);
}
