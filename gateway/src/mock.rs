//! The one mock provider, for demo, tests and benchmarks: OpenAI's chat API and Anthropic's Messages on a real socket, as
//! slow and as faulty as it is told to be.
//!
//! | route | answer |
//! |---|---|
//! | `POST …/chat/completions` | an answer for any model, plain or as a stream |
//! | `POST …/messages` | the same in Anthropic's form |
//! | `GET …/models`, `GET …/models/{id}` | a model; any id is one |
//! | `GET /count` | what became of the requests for answers; `?cancelled=1` waits until one was cancelled |
//!
//! Each answer says in `openai-processing-ms` how long it really took, from the request's last byte to the answer's
//! first; Anthropic's too, though they have no header for it. That is measured and not the delay of the settings, so that a pause on a busy machine is never taken for the
//! gateway's; and whoever waits for the answer can't have waited less.

mod answer;
mod body;
mod chat;
mod count;
mod delay;
mod manner;
mod message;
mod refusal;
mod settings;
#[cfg(test)]
pub(crate) mod test;
mod tls;

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::answer::{Answer, Ask, Dialect};
use self::body::Body;
use self::count::{Count, Counter, Ticket};
pub use self::delay::Percentiles;
pub use self::manner::KeyManner;
use self::manner::Manner;
use self::refusal::Refusal;
pub use self::settings::{MockArgs, Settings};
pub use self::tls::Tls;
use crate::{child, machine};

/// Connections that may wait to be accepted: a burst of new ones must not be lost to a full backlog. 4,096 is where
/// the kernel caps it by default (`net.core.somaxconn`).
const BACKLOG: u32 = 4_096;

/// How long to leave new connections alone when one can't be accepted, for want of descriptors most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Far above any prompt that a test sends.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The model in the list: the one that the benchmark page asks for.
const LISTED_MODEL: &str = "gpt-4o-mini";

/// Serves as a process of its own, until the parent is gone.
///
/// # Errors
///
/// When the address can't be listened on.
pub fn run(args: &MockArgs) -> anyhow::Result<()> {
    run_until(args, None, child::parent_gone())
}

/// Serves until the process is told to end, over TLS as well if there is one.
///
/// # Errors
///
/// When the address can't be listened on.
pub fn run_alone(args: &MockArgs, tls: Option<Tls>) -> anyhow::Result<()> {
    run_until(args, tls, pending())
}

fn run_until(
    args: &MockArgs,
    tls: Option<Tls>,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    child::runtime()?.block_on(async {
        let socket = if args.address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        let place = || format!("can't listen on {}", args.address);
        socket.bind(args.address).with_context(place)?;
        let listener = socket.listen(BACKLOG).with_context(place)?;
        child::announce(listener.local_addr()?)?;
        serve_with(listener, args.settings.clone(), tls, end).await;
        Ok(())
    })
}

/// Serves `listener`'s connections until `shutdown`, which ends them where they are.
pub async fn serve(listener: TcpListener, settings: Settings, shutdown: impl Future<Output = ()>) {
    serve_with(listener, settings, None, shutdown).await;
}

async fn serve_with(
    listener: TcpListener,
    settings: Settings,
    tls: Option<Tls>,
    shutdown: impl Future<Output = ()>,
) {
    let mock = Arc::new(Mock {
        settings,
        tls,
        counter: Counter::default(),
    });
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => return,
            Some(_) = connections.join_next() => {}
            stream = accept(&listener) => {
                connections.spawn(Arc::clone(&mock).connection(stream));
            }
        }
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tell_of_refusal(&error);
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Says once why clients wait for a connection: each takes a descriptor.
fn tell_of_refusal(error: &io::Error) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let limit =
            machine::descriptor_limit().map_or("none".to_owned(), |limit| limit.to_string());
        eprintln!("mock provider: no more connections can be accepted: {error}; the limit of descriptors is {limit} (`ulimit -n`)");
    });
}

/// What all connections share.
#[derive(Debug)]
struct Mock {
    settings: Settings,
    tls: Option<Tls>,
    counter: Counter,
}

impl Mock {
    /// Serves one connection to its end, with or without TLS, as its first byte tells.
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        // Without it the head of a stream and its first chunk may wait for each other's acknowledgement.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            Some(tls) if tls::is_hello(&stream).await => {
                // A client that doesn't trust us says so on its own side.
                if let Ok(stream) = tls.accept(stream).await {
                    self.counter.shook_hands(tls::is_resumed(&stream));
                    self.talk(stream).await;
                }
            }
            _ => self.talk(stream).await,
        }
    }

    /// Answers what comes. hyper drops what is in flight when the client hangs up.
    async fn talk(self: &Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(|request| {
            let mock = Arc::clone(self);
            async move { Ok::<_, Infallible>(mock.respond(request).await) }
        });
        // A connection that breaks is the client's affair, and counted where it hurt: in its requests.
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        match *request.method() {
            Method::POST if let Some(dialect) = Dialect::at(path) => {
                self.reply(request, dialect).await
            }
            Method::GET if path == "/count" => self.count(request.uri().query()).await,
            Method::GET if path.ends_with("/models") => json_response(
                json!({"object": "list", "data": [model(LISTED_MODEL)]}).to_string(),
                None,
            ),
            Method::GET if let Some((_, id)) = path.split_once("/models/") => {
                json_response(model(id).to_string(), None)
            }
            _ => refused(Refusal::NoSuchRoute(format!("{} {path}", request.method()))),
        }
    }

    async fn reply(&self, request: Request<Incoming>, dialect: Dialect) -> Response<Body> {
        let id = format!("req_{:016x}", fastrand::u64(..));
        let ticket = self.counter.begin();
        let manner = manner::of(&self.settings.keys, request.headers());
        let Ok(body) = Limited::new(request.into_body(), REQUEST_BYTES_MAX)
            .collect()
            .await
        else {
            let bytes_max = REQUEST_BYTES_MAX;
            return Refusal::BadBody { bytes_max }.into_response(dialect, &id, Some(ticket));
        };
        let begun = Instant::now();
        let mut response = match self.answer(&body.to_bytes(), dialect, manner).await {
            Ok(Reply::Plain(answer)) => json_response(answer.plain(), Some(ticket)),
            Ok(Reply::Stream(answer)) => self.stream(answer, ticket),
            Err(refusal) => refusal.into_response(dialect, &id, Some(ticket)),
        };
        if response.status().is_success() && self.is_cut(manner) {
            response = response.map(Body::cut);
        }
        let headers = response.headers_mut();
        let id_header = match dialect {
            Dialect::Chat => "x-request-id",
            Dialect::Messages => "request-id",
        };
        headers.insert(id_header, text(id));
        headers.insert("openai-processing-ms", milliseconds(begun.elapsed()));
        response
    }

    fn is_cut(&self, manner: Option<Manner>) -> bool {
        manner == Some(Manner::Cut) || fastrand::f64() < self.settings.cut_rate
    }

    async fn answer(
        &self,
        body: &[u8],
        dialect: Dialect,
        manner: Option<Manner>,
    ) -> Result<Reply, Refusal> {
        let ask = Ask::parse(body, dialect).map_err(Refusal::BadRequest)?;
        let settings = &self.settings;
        let retry_after = settings.retry_after;
        let delay = match manner {
            Some(Manner::Status(status)) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
                return Err(Refusal::Told(status));
            }
            Some(Manner::Limited) => return Err(Refusal::RateLimited { retry_after }),
            Some(Manner::Stall) => pending().await,
            Some(Manner::Delay(delay)) => delay,
            None if fastrand::f64() < settings.rate_limit_rate => {
                return Err(Refusal::RateLimited { retry_after });
            }
            None if fastrand::f64() < settings.stall_rate => pending().await,
            Some(Manner::Cut) | None => settings.delay_of_one(),
        };
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if manner.is_none() && fastrand::f64() < settings.failure_rate {
            return Err(Refusal::Failed);
        }
        let answer = Answer::new(&ask, dialect, body.len(), settings.body_bytes as usize);
        Ok(if ask.wants_stream() {
            Reply::Stream(answer)
        } else {
            Reply::Plain(answer)
        })
    }

    fn stream(&self, answer: Answer, ticket: Ticket) -> Response<Body> {
        ticket.streams();
        let events = answer.events(self.settings.chunks as usize);
        let body = Body::stream(events, self.settings.pace, ticket);
        respond("text/event-stream; charset=utf-8", body)
    }

    async fn count(&self, query: Option<&str>) -> Response<Body> {
        let Some(bounds) = Count::from_query(query.unwrap_or_default()) else {
            let wrong = "a count is asked for as `cancelled=1`".to_owned();
            return refused(Refusal::BadRequest(wrong));
        };
        let count = self.counter.reached(bounds).await;
        json_response(
            serde_json::to_string(&count).expect("numbers can be JSON"),
            None,
        )
    }
}

enum Reply {
    Plain(Answer),
    Stream(Answer),
}

/// The answer to what is no request for one, in OpenAI's form.
fn refused(refusal: Refusal) -> Response<Body> {
    refusal.into_response(Dialect::Chat, "", None)
}

fn json_response(body: impl Into<Bytes>, ticket: Option<Ticket>) -> Response<Body> {
    respond("application/json", Body::whole(body, ticket))
}

fn respond(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn model(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 1_721_172_741, "owned_by": "mock"})
}

/// Milliseconds to three decimals, rounded down: the true time is never less.
fn milliseconds(duration: Duration) -> HeaderValue {
    let micros = duration.as_micros();
    text(format!("{}.{:03}", micros / 1_000, micros % 1_000))
}

fn text(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("digits and letters can be a header")
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::test::{Reply, get, post};
    use super::*;

    const PLAIN: &str = r#"{"model":"gpt-4o-mini","messages":[{"role":"user","content":"Hello"}]}"#;
    const STREAM: &str =
        r#"{"model":"m","messages":[{"role":"user","content":"Hello"}],"stream":true}"#;
    const STREAM_WITH_USAGE: &str =
        r#"{"model":"m","messages":[{}],"stream":true,"stream_options":{"include_usage":true}}"#;

    const HOUR: Duration = Duration::from_hours(1);

    fn quick() -> Settings {
        Settings {
            delay: Duration::ZERO,
            pace: Duration::ZERO,
            ..Settings::default()
        }
    }

    async fn mock(settings: Settings) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, settings, pending()));
        address
    }

    async fn chat(address: SocketAddr, body: &str) -> Reply {
        post(address, "/v1/chat/completions", body).await
    }

    #[tokio::test]
    async fn a_plain_answer_is_a_chat_completion_of_1407_bytes() {
        let address = mock(quick()).await;
        let reply = chat(address, PLAIN).await;
        assert_eq!((reply.status, reply.body.len()), (200, 1_407));
        assert_eq!(reply.header("content-type"), "application/json");
        assert_eq!(reply.header("content-length"), "1407");
        assert!(reply.header("x-request-id").starts_with("req_"));

        let answer = reply.json();
        assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
        assert!(answer["created"].as_u64().unwrap() > 1_700_000_000);
        assert_eq!(answer["object"], "chat.completion");
        assert_eq!(answer["model"], "gpt-4o-mini");
        let choice = &answer["choices"][0];
        assert_eq!(choice["message"]["role"], "assistant");
        assert!(
            choice["message"]["content"]
                .as_str()
                .unwrap()
                .starts_with("Bifrost is")
        );
        assert_eq!(choice["finish_reason"], "stop");
        assert_usage_adds_up(&answer["usage"]);
    }

    fn assert_usage_adds_up(usage: &Value) {
        let tokens = |name: &str| usage[name].as_u64().unwrap();
        assert!(tokens("prompt_tokens") > 0);
        assert!(tokens("completion_tokens") > 0);
        assert_eq!(
            tokens("prompt_tokens") + tokens("completion_tokens"),
            tokens("total_tokens")
        );
    }

    #[tokio::test]
    async fn a_stream_is_role_then_content_then_finish_then_done() {
        let address = mock(quick()).await;
        let reply = chat(address, STREAM).await;
        assert_eq!(reply.status, 200);
        assert_eq!(
            reply.header("content-type"),
            "text/event-stream; charset=utf-8"
        );

        let events = reply.events();
        let (done, chunks) = events.split_last().unwrap();
        assert_eq!(done, "[DONE]");
        let chunks: Vec<Value> = chunks
            .iter()
            .map(|chunk| serde_json::from_str(chunk).unwrap())
            .collect();
        assert_eq!(chunks.len(), 1 + 16 + 1);
        for chunk in &chunks {
            assert_eq!(chunk["object"], "chat.completion.chunk");
            assert_eq!(
                (&chunk["id"], &chunk["model"]),
                (&chunks[0]["id"], &"m".into())
            );
            assert_eq!(chunk.get("usage"), None);
        }
        let choice = |n: usize| &chunks[n]["choices"][0];
        assert_eq!(choice(0)["delta"]["role"], "assistant");
        for n in 1..17 {
            assert!(!choice(n)["delta"]["content"].as_str().unwrap().is_empty());
            assert_eq!(choice(n)["finish_reason"], Value::Null);
        }
        assert_eq!(choice(17)["delta"], json!({}));
        assert_eq!(choice(17)["finish_reason"], "stop");
    }

    #[tokio::test]
    async fn a_stream_tells_its_usage_before_the_end_when_asked() {
        let address = mock(quick()).await;
        let events = chat(address, STREAM_WITH_USAGE).await.events();
        let last: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
        assert_eq!(last["choices"], json!([]));
        assert_usage_adds_up(&last["usage"]);
        let first: Value = serde_json::from_str(&events[0]).unwrap();
        assert_eq!(first["usage"], Value::Null);
        assert!(first.as_object().unwrap().contains_key("usage"));
    }

    const MESSAGE: &str =
        r#"{"model":"claude","max_tokens":64,"messages":[{"role":"user","content":"Hello"}]}"#;

    #[tokio::test]
    async fn a_plain_message_is_anthropic_s() {
        let address = mock(quick()).await;
        let reply = post(address, "/v1/messages", MESSAGE).await;
        assert_eq!((reply.status, reply.body.len()), (200, 1_407));
        assert!(reply.header("request-id").starts_with("req_"));
        let answer = reply.json();
        assert!(answer["id"].as_str().unwrap().starts_with("msg_"));
        assert_eq!(answer["type"], "message");
        assert_eq!(
            (&answer["role"], &answer["model"]),
            (&"assistant".into(), &"claude".into())
        );
        assert_eq!(answer["content"][0]["type"], "text");
        assert!(!answer["content"][0]["text"].as_str().unwrap().is_empty());
        assert_eq!(answer["stop_reason"], "end_turn");
        let usage = json!({"input_tokens": MESSAGE.len().div_ceil(4), "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": 352});
        assert_eq!(answer["usage"], usage);
    }

    #[tokio::test]
    async fn a_message_s_stream_names_its_events_and_tells_the_usage_in_two_of_them() {
        let address = mock(quick()).await;
        let body = MESSAGE.replacen('{', r#"{"stream":true,"#, 1);
        let reply = post(address, "/v1/messages", &body).await;
        let events = reply.body.strip_suffix("\n\n").unwrap().split("\n\n");
        let events: Vec<(&str, Value)> = events
            .map(|event| {
                let (name, data) = event.split_once("\ndata: ").unwrap();
                (
                    name.strip_prefix("event: ").unwrap(),
                    serde_json::from_str(data).unwrap(),
                )
            })
            .collect();
        let mut expected = vec!["message_start", "content_block_start", "ping"];
        expected.extend(["content_block_delta"; 16]);
        expected.extend(["content_block_stop", "message_delta", "message_stop"]);
        let names: Vec<_> = events.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, expected);
        for (name, data) in &events {
            assert_eq!(data["type"], *name);
        }
        let said = events
            .iter()
            .filter_map(|(_, data)| data["delta"]["text"].as_str());
        let said: String = said.collect();
        let plain = post(address, "/v1/messages", MESSAGE).await.json();
        assert_eq!(plain["content"][0]["text"], said);
        let input = body.len().div_ceil(4);
        assert_eq!(events[0].1["message"]["usage"]["input_tokens"], input);
        let last = &events[events.len() - 2].1;
        assert_eq!(
            last["usage"]["output_tokens"],
            plain["usage"]["output_tokens"]
        );
        assert_eq!(last["delta"]["stop_reason"], "end_turn");
    }

    #[tokio::test]
    async fn a_message_s_errors_are_in_anthropic_s_form() {
        let check = async |settings: Settings, body: &str, status, kind| {
            let reply = post(mock(settings).await, "/v1/messages", body).await;
            let error = reply.json();
            assert_eq!(
                (reply.status, &error["type"]),
                (status, &"error".into()),
                "{error}"
            );
            assert_eq!(error["error"]["type"], kind);
            assert_eq!(error["request_id"], reply.header("request-id"));
        };
        let failing = Settings {
            failure_rate: 1.0,
            ..quick()
        };
        let limited = Settings {
            rate_limit_rate: 1.0,
            ..quick()
        };
        check(quick(), PLAIN, 400, "invalid_request_error").await;
        check(failing, MESSAGE, 500, "api_error").await;
        check(limited, MESSAGE, 429, "rate_limit_error").await;
    }

    #[tokio::test]
    async fn a_stream_keeps_its_pace() {
        let pace = Duration::from_millis(5);
        let address = mock(Settings {
            chunks: 5,
            pace,
            ..quick()
        })
        .await;
        let begun = Instant::now();
        let reply = chat(address, STREAM).await;
        assert_eq!(reply.events().len(), 1 + 5 + 1 + 1);
        assert!(begun.elapsed() >= 4 * pace);
    }

    #[tokio::test]
    async fn the_service_time_told_is_at_least_the_delay_and_at_most_the_wait() {
        let delay = Duration::from_millis(30);
        let address = mock(Settings { delay, ..quick() }).await;
        for body in [PLAIN, STREAM] {
            let begun = Instant::now();
            let reply = chat(address, body).await;
            let waited = begun.elapsed();
            let told = reply.header("openai-processing-ms");
            assert_eq!(told.split_once('.').unwrap().1.len(), 3, "{told}");
            let told = Duration::from_secs_f64(told.parse::<f64>().unwrap() / 1_000.0);
            assert!(delay <= told && told <= waited, "{told:?} of {waited:?}");
        }
    }

    /// Sends a request and hangs up once the mock has it, and once `until` has come back.
    async fn hang_up(address: SocketAddr, body: &str, until: &str) {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = test::request("POST", "/v1/chat/completions", body);
        client.write_all(request.as_bytes()).await.unwrap();
        get(address, "/count?requests=1").await;
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(until) {
            assert!(
                client.read_buf(&mut seen).await.unwrap() > 0,
                "it ended before {until:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_while_it_waits_is_counted_as_cancelled() {
        let address = mock(Settings {
            delay: HOUR,
            ..quick()
        })
        .await;
        hang_up(address, PLAIN, "").await;
        let count = get(address, "/count?cancelled=1").await.json();
        assert_eq!(
            count,
            json!({"requests": 1, "completed": 0, "cancelled": 1, "streams": 0})
        );
    }

    #[tokio::test]
    async fn a_client_that_leaves_a_stream_is_counted_as_cancelled() {
        let address = mock(Settings {
            pace: HOUR,
            ..quick()
        })
        .await;
        hang_up(address, STREAM, "Bifrost").await;
        let count = get(address, "/count?cancelled=1").await.json();
        assert_eq!(
            count,
            json!({"requests": 1, "completed": 0, "cancelled": 1, "streams": 1})
        );
    }

    #[tokio::test]
    async fn a_cut_breaks_the_connection_in_the_middle_of_the_answer() {
        let address = mock(Settings {
            cut_rate: 1.0,
            ..quick()
        })
        .await;
        for (number, body) in [PLAIN, STREAM].into_iter().enumerate() {
            let mut client = TcpStream::connect(address).await.unwrap();
            let request = test::request("POST", "/v1/chat/completions", body);
            client.write_all(request.as_bytes()).await.unwrap();
            let mut seen = String::new();
            // It may be reset or closed.
            let _ = client.read_to_string(&mut seen).await;
            assert!(seen.contains("Bifrost is"), "{seen}");
            let is_whole = seen.ends_with('}') || seen.ends_with("0\r\n\r\n");
            assert!(!is_whole, "{seen}");
            let count = get(address, &format!("/count?cancelled={}", number + 1)).await;
            assert_eq!(count.json()["completed"], 0);
        }
    }

    #[tokio::test]
    async fn a_stall_is_never_answered() {
        let address = mock(Settings {
            stall_rate: 1.0,
            ..quick()
        })
        .await;
        hang_up(address, PLAIN, "").await;
        let count = get(address, "/count?cancelled=1").await.json();
        assert_eq!(
            (&count["requests"], &count["completed"]),
            (&1.into(), &0.into())
        );
    }

    #[tokio::test]
    async fn each_key_is_treated_in_its_manner() {
        let keys = ["bad=status:401", "busy=limited", "slow=delay:40ms"];
        let address = mock(Settings {
            keys: keys.map(|key| key.parse().unwrap()).into(),
            failure_rate: 1.0,
            ..quick()
        })
        .await;
        let check = async |key: &str, status| {
            let header = format!("authorization: Bearer {key}\r\n");
            let begun = Instant::now();
            let request = test::request("POST", "/v1/chat/completions", PLAIN);
            let request = request.replacen("host:", &(header + "host:"), 1);
            let reply = test::send(address, &request).await;
            assert_eq!(reply.status, status, "{key}");
            begun.elapsed()
        };
        check("bad", 401).await;
        check("busy", 429).await;
        assert!(check("slow", 200).await >= Duration::from_millis(40));
        check("any other", 500).await;
    }

    #[tokio::test]
    async fn answers_of_every_form_are_counted_as_completed() {
        let address = mock(quick()).await;
        for body in [PLAIN, STREAM, "{"] {
            chat(address, body).await;
        }
        let count = get(address, "/count?completed=3").await.json();
        assert_eq!(
            count,
            json!({"requests": 3, "completed": 3, "cancelled": 0, "streams": 1})
        );
    }

    #[tokio::test]
    async fn at_a_failure_rate_of_1_every_request_fails() {
        let address = mock(Settings {
            failure_rate: 1.0,
            ..quick()
        })
        .await;
        let reply = chat(address, STREAM).await;
        assert_eq!(reply.status, 500);
        assert_eq!(reply.json()["error"]["type"], "server_error");
    }

    #[tokio::test]
    async fn at_a_rate_limit_rate_of_1_every_request_is_turned_away_at_once() {
        let settings = Settings {
            rate_limit_rate: 1.0,
            retry_after: Duration::from_millis(1_500),
            delay: HOUR,
            ..quick()
        };
        let reply = chat(mock(settings).await, PLAIN).await;
        assert_eq!(reply.status, 429);
        assert_eq!(reply.header("retry-after"), "2");
        assert_eq!(reply.header("retry-after-ms"), "1500");
        assert_eq!(reply.json()["error"]["code"], "rate_limit_exceeded");
    }

    #[tokio::test]
    async fn bad_json_is_a_400_in_openai_s_form() {
        let reply = chat(mock(quick()).await, "{").await;
        assert_eq!(reply.status, 400);
        let error = &reply.json()["error"];
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["message"].as_str().unwrap().contains("EOF"));
        assert_eq!(error["param"], Value::Null);
    }

    #[tokio::test]
    async fn models_are_listed_and_found_under_any_prefix() {
        let address = mock(quick()).await;
        let list = get(address, "/v1/models").await.json();
        assert_eq!(list["data"][0]["id"], "gpt-4o-mini");
        let model = get(address, "/openai/v1/models/meta/llama-3").await.json();
        assert_eq!(
            (&model["id"], &model["object"]),
            (&"meta/llama-3".into(), &"model".into())
        );
    }

    #[tokio::test]
    async fn other_routes_and_counts_of_nothing_are_refused() {
        let address = mock(quick()).await;
        assert_eq!(get(address, "/v1/chat/completions").await.status, 404);
        assert_eq!(post(address, "/v1/embeddings", "{}").await.status, 404);
        assert_eq!(get(address, "/count?lost=1").await.status, 400);
    }

    #[tokio::test]
    async fn one_port_speaks_tls_and_plain_http() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.into());
        let tls = Tls::new(vec![certificate.clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_with(listener, quick(), Some(tls), pending()));

        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let trusting = rustls::ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(trusting));
        let stream = TcpStream::connect(address).await.unwrap();
        let name = "localhost".try_into().unwrap();
        let mut client = connector.connect(name, stream).await.unwrap();
        let request = test::request("POST", "/v1/chat/completions", PLAIN);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

        assert_eq!(chat(address, PLAIN).await.status, 200);
        let count = get(address, "/count?completed=2").await.json();
        assert_eq!(
            (&count["requests"], &count["handshakes"]),
            (&2.into(), &1.into())
        );
    }

    #[tokio::test]
    async fn shutdown_ends_what_is_in_flight() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = async move {
            get(address, "/count?requests=1").await;
        };
        let settings = Settings {
            delay: HOUR,
            ..quick()
        };
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = test::request("POST", "/v1/chat/completions", PLAIN);
        client.write_all(request.as_bytes()).await.unwrap();

        serve(listener, settings, shutdown).await;

        let mut rest = Vec::new();
        // Closed with unread input or not, the socket ends either way.
        let _ = client.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
    }
}
