//! Connections to a provider that are used again, or must not be: the provider is played by hand, so that what it does
//! is done before the next request comes. Nothing is tried a second time unless said: an error would reach the client.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::client::{Answer, ask, chat};
use crate::gateway::Gateway;
use crate::provider::{COMPLETION, Step, json, json_with};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

struct Stage {
    provider: TcpListener,
    gateway: Gateway,
}

impl Stage {
    async fn new() -> Self {
        Self::with_retries("0").await
    }

    async fn with_retries(retries_max: &str) -> Self {
        let provider = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", provider.local_addr().unwrap());
        let gateway = Gateway::with(&[
            ("SERVER__WORKERS", "1"),
            ("PROVIDERS__OPENAI__BASE_URL", &base_url),
            ("PROVIDERS__OPENAI__KEYS", r#"[{value="sk-test-a"}]"#),
            ("PROVIDERS__OPENAI__RETRIES__MAX", retries_max),
            ("PROVIDERS__OPENAI__RETRIES__BACKOFF_INITIAL", "1ms"),
        ]);
        Self { provider, gateway }
    }

    async fn accepted(&self) -> TcpStream {
        let accepted = timeout(PATIENCE, self.provider.accept()).await;
        accepted.expect("the gateway connects").unwrap().0
    }

    /// Has a client ask while `play` is the provider.
    async fn ask<T>(&self, play: impl Future<Output = T>) -> (Answer, T) {
        let body = chat("openai/m");
        tokio::join!(ask(self.gateway.address, &body), play)
    }

    /// A client's good answer over a new connection, which the provider keeps.
    async fn ask_anew(&self, script: Vec<Step>) -> TcpStream {
        let play = async { answered(self.accepted().await, script).await };
        let (answer, stream) = self.ask(play).await;
        is_whole(&answer);
        stream
    }
}

/// Takes a request from `stream` and answers it.
async fn answered(mut stream: TcpStream, script: Vec<Step>) -> TcpStream {
    request(&mut stream).await;
    for step in script {
        let Step::Send(bytes) = step else {
            unreachable!("these scripts only send")
        };
        stream.write_all(&bytes).await.unwrap();
    }
    stream
}

/// The bytes of a request, up to the end of its body.
async fn request(stream: &mut TcpStream) -> String {
    let mut read = vec![0; 64 << 10];
    let mut len = 0;
    while !read[..len].ends_with(b"}") {
        let more = timeout(PATIENCE, stream.read(&mut read[len..])).await;
        let more = more.expect("the request comes").unwrap();
        assert_ne!(more, 0, "the request is whole");
        len += more;
    }
    String::from_utf8_lossy(&read[..len]).into_owned()
}

fn is_whole(answer: &Answer) {
    assert_eq!((answer.status, answer.body.as_str()), (200, COMPLETION));
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let stage = Stage::new().await;
    let first = stage.ask_anew(json(200, COMPLETION)).await;
    let (answer, _open) = stage.ask(answered(first, json(200, COMPLETION))).await;
    is_whole(&answer);
}

#[tokio::test]
async fn no_request_is_lost_to_a_connection_that_was_closed_while_idle() {
    let stage = Stage::new().await;
    for _ in 0..50 {
        drop(stage.ask_anew(json(200, COMPLETION)).await);
    }
}

#[tokio::test]
async fn no_request_is_lost_to_many_connections_that_were_closed_while_idle() {
    let stage = Stage::new().await;
    let mut open = vec![];
    // Each is in use until the last has come.
    let (body, address) = (chat("openai/m"), stage.gateway.address);
    let asking: Vec<_> = (0..20)
        .map(|_| {
            let body = body.clone();
            tokio::spawn(async move { ask(address, &body).await })
        })
        .collect();
    for _ in 0..20 {
        open.push(stage.accepted().await);
    }
    for stream in &mut open {
        request(stream).await;
    }
    let Some(Step::Send(bytes)) = json(200, COMPLETION).pop() else {
        unreachable!("an answer is sent")
    };
    for stream in &mut open {
        stream.write_all(&bytes).await.unwrap();
    }
    for answer in asking {
        is_whole(&answer.await.unwrap());
    }
    drop(open);
    stage.ask_anew(json(200, COMPLETION)).await;
}

#[tokio::test]
async fn what_nobody_asked_for_is_no_answer_to_the_next_request() {
    // Some servers say so when they close a connection that was idle.
    let timed_out =
        "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    // And some have wrong lengths.
    let another = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    for behind in [timed_out, another, "\r\n", "x"] {
        let stage = Stage::new().await;
        let mut stream = stage.ask_anew(json(200, COMPLETION)).await;
        stream.write_all(behind.as_bytes()).await.unwrap();
        let _next = stage.ask_anew(json(200, COMPLETION)).await;
        // The connection is given up, not kept.
        let mut rest = [0];
        let ended = timeout(PATIENCE, stream.read(&mut rest)).await;
        assert!(
            matches!(ended.expect("it is given up"), Ok(0) | Err(_)),
            "{behind:?}"
        );
    }
}

#[tokio::test]
async fn bytes_behind_an_answer_that_came_with_it_spoil_its_connection() {
    let stage = Stage::new().await;
    let script = [json(200, COMPLETION), vec![Step::Send(b"{}".to_vec())]].concat();
    let joined = script.into_iter().map(|step| match step {
        Step::Send(bytes) => bytes,
        _ => unreachable!("these scripts only send"),
    });
    let joined = vec![Step::Send(joined.collect::<Vec<_>>().concat())];
    let _first = stage.ask_anew(joined).await;
    let _second = stage.ask_anew(json(200, COMPLETION)).await;
}

#[tokio::test]
async fn an_answer_that_says_close_is_its_connections_last() {
    let stage = Stage::new().await;
    let last = json_with(200, "connection: close\r\n", COMPLETION);
    let _first = stage.ask_anew(last).await;
    let _second = stage.ask_anew(json(200, COMPLETION)).await;
}

#[tokio::test]
async fn an_answer_of_the_old_protocol_ends_with_its_connection() {
    let stage = Stage::new().await;
    let play = async {
        let mut stream = stage.accepted().await;
        request(&mut stream).await;
        let head = "HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n";
        let whole = format!("{head}{COMPLETION}");
        stream.write_all(whole.as_bytes()).await.unwrap();
    };
    is_whole(&stage.ask(play).await.0);
    let _second = stage.ask_anew(json(200, COMPLETION)).await;
}

#[tokio::test]
async fn what_is_said_before_an_answer_is_no_answer() {
    let stage = Stage::new().await;
    let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let early = Step::Send(early.as_bytes().to_vec());
    let script = [vec![early], json(200, COMPLETION)].concat();
    let first = stage.ask_anew(script.clone()).await;
    is_whole(&stage.ask(answered(first, script)).await.0);
}

#[tokio::test]
async fn a_head_of_many_and_long_lines_is_read() {
    let stage = Stage::new().await;
    let long = format!("x-long: {}\r\n", "y".repeat(3_000)).repeat(90);
    let first = stage.ask_anew(json_with(200, &long, COMPLETION)).await;
    is_whole(&stage.ask(answered(first, json(200, COMPLETION))).await.0);
}

#[tokio::test]
async fn a_refusal_leaves_its_connection_open_and_one_without_a_body_too() {
    let stage = Stage::new().await;
    let mut stream = stage.ask_anew(json(200, COMPLETION)).await;
    for (script, status) in [
        (json(400, r#"{"error":{"message":"no","type":"t"}}"#), 400),
        (json(400, ""), 400),
        (
            vec![Step::Send(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())],
            502,
        ),
        (json(200, COMPLETION), 200),
    ] {
        let (answer, again) = stage.ask(answered(stream, script)).await;
        assert_eq!(answer.status, status);
        stream = again;
    }
}

#[tokio::test]
async fn a_request_says_where_it_goes_and_nothing_of_who_asks() {
    let stage = Stage::new().await;
    let host = stage.provider.local_addr().unwrap();
    let play = async {
        let mut stream = stage.accepted().await;
        let text = request(&mut stream).await;
        let Some(Step::Send(bytes)) = json(200, COMPLETION).pop() else {
            unreachable!("an answer is sent")
        };
        stream.write_all(&bytes).await.unwrap();
        text
    };
    let (answer, text) = stage.ask(play).await;
    is_whole(&answer);
    let (head, _) = text.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.lines().collect();
    lines[1..].sort_unstable();
    let agent = concat!("user-agent: bifrost/", env!("CARGO_PKG_VERSION"));
    let (host, length) = (format!("host: {host}"), lines[3].to_owned());
    assert!(length.starts_with("content-length: "), "{head}");
    let expected = [
        "POST /v1/chat/completions HTTP/1.1",
        "accept: */*",
        "authorization: Bearer sk-test-a",
        &length,
        "content-type: application/json",
        &host,
        agent,
    ];
    let mut expected = expected.to_vec();
    expected[1..].sort_unstable();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn what_broke_on_a_used_connection_is_tried_again_on_a_new_one() {
    let stage = Stage::with_retries("1").await;
    let (body, address) = (chat("openai/m"), stage.gateway.address);
    let (one, two) = tokio::join!(
        async {
            let (first, second) = (stage.accepted().await, stage.accepted().await);
            tokio::join!(
                answered(first, json(200, COMPLETION)),
                answered(second, json(200, COMPLETION))
            )
        },
        async { tokio::join!(ask(address, &body), ask(address, &body)) }
    )
    .0;
    // Both are idle now. Whichever is taken breaks, and the other would, too.
    let play = async {
        let (mut one, mut two) = (one, two);
        tokio::select! {
            _ = request(&mut one) => drop(one),
            _ = request(&mut two) => drop(two),
        }
        answered(stage.accepted().await, json(200, COMPLETION)).await
    };
    let (answer, _open) = stage.ask(play).await;
    is_whole(&answer);
}
