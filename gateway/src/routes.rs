//! The routes of the front door, and how an error becomes an answer.

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::Service;
use serde_json::json;
use tokio::time::{Instant, timeout_at};
use tower_service::Service as _;

use crate::access::Access;
use crate::budget::Share;
use crate::config;
use crate::error::{Blame, Error, Next};
use crate::pipeline::{Head, Held, Worker};
use crate::relay::Relay;
use crate::shutdown::Cut;
use crate::stopwatch::{Stopwatch, Watches};

mod ending;

use ending::Ending;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// What Anthropic's clients read.
const REQUEST_ID_SHORT: HeaderName = HeaderName::from_static("request-id");
const PROVIDER: HeaderName = HeaderName::from_static("x-bifrost-provider");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// A body is held as the client sent it and in the provider's form.
const COPIES: usize = 2;
/// Of a body, room is taken for what has come and so much more.
const AHEAD_BYTES: usize = 256 << 10;
/// A body that is copied rather than held with what came before it: half of what is read at once.
const COPIED_BYTES_MAX: usize = 4 << 10;
/// A body may take as long as so many silences: one byte in each would hold its place for ever.
const BODY_SILENCES: u32 = 10;
/// How long a client's own request id may be.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// What the handlers of one runtime need.
pub struct Desk {
    /// The pipeline, as the settings in force have it.
    pub worker: ArcSwap<Worker>,
    /// Who may ask, as the settings in force have it.
    pub access: Arc<ArcSwap<Access>>,
    /// Limits of the front door.
    pub server: config::Server,
    /// The largest body that is read.
    pub request_body_bytes_max: usize,
    /// Whether the gateway is stopping.
    pub draining: Arc<AtomicBool>,
    /// Reaches what is left when its time is over.
    pub cut: Cut,
}

/// Where chats are asked. Clients disagree on whether `/v1` belongs to the base URL.
const PREFIXES: [&str; 3] = ["", "/v1", "/v1/v1"];
const CHATS: &str = "/chat/completions";

/// What answers the requests of one runtime. Chats are taken here and now; the router, which takes all else, would cost
/// each of them ten allocations.
#[derive(Clone)]
pub struct Routes {
    desk: Arc<Desk>,
    watches: Arc<Watches>,
    router: Router,
}

/// An answer on its way.
pub struct Answering(Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>);

impl Future for Answering {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl Routes {
    /// The routes.
    pub fn new(desk: Arc<Desk>, watches: Watches) -> Self {
        Self {
            router: router(Arc::clone(&desk)),
            desk,
            watches: Arc::new(watches),
        }
    }
}

impl Service<Request<Incoming>> for Routes {
    type Response = Response;
    type Error = Infallible;
    type Future = Answering;

    /// Answers a request whose head was read just now. A chat's stopwatch runs from here on, so that a request whose
    /// client leaves before anybody looked at it leaves a record, too.
    fn call(&self, request: Request<Incoming>) -> Answering {
        let path = request.uri().path();
        let prefix = match path.strip_suffix(CHATS) {
            Some(prefix) if request.method() == Method::POST => prefix,
            _ => return Answering(Box::pin(self.router.clone().call(request.map(Body::new)))),
        };
        let (name, id) = request_id(request.headers());
        let mut watch = self.watches.start(id);
        if PREFIXES.contains(&prefix) {
            let desk = Arc::clone(&self.desk);
            return Answering(Box::pin(chat(desk, request, watch, name)));
        }
        let error = Error::UnknownRoute {
            method: Method::POST,
            path: path.to_owned(),
        };
        watch.failed(&error);
        let mut response = answer_error(&error);
        name_by(&mut response, name);
        Answering(Box::pin(ready(Ok(response))))
    }
}

fn router(desk: Arc<Desk>) -> Router {
    let mut router = Router::new();
    for prefix in PREFIXES {
        router = router
            // For the other methods to be refused by: chats don't come here.
            .route(
                &format!("{prefix}{CHATS}"),
                post(async || answer_error(&Error::Internal)),
            )
            .route(&format!("{prefix}/models"), get(models))
            .route(&format!("{prefix}/models/{{*id}}"), get(model));
    }
    router
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readiness))
        .fallback(async |request: Request<Body>| {
            refuse(&request, |method, path| Error::UnknownRoute {
                method,
                path,
            })
        })
        .method_not_allowed_fallback(async |request: Request<Body>| {
            refuse(&request, |method, path| Error::WrongMethod { method, path })
        })
        .with_state(desk)
}

/// Answers what no route takes.
fn refuse(request: &Request<Body>, error: impl FnOnce(Method, String) -> Error) -> Response {
    let error = error(request.method().clone(), request.uri().path().to_owned());
    with_id(answer_error(&error), request.headers())
}

async fn readiness(State(desk): State<Arc<Desk>>) -> Response {
    if desk.draining.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    "ready\n".into_response()
}

async fn chat(
    desk: Arc<Desk>,
    request: Request<Incoming>,
    watch: Stopwatch,
    name: HeaderValue,
) -> Result<Response, Infallible> {
    let mut response = match ask(&desk, request, watch).await {
        Ok((head, relay)) => {
            let body = if relay.is_stream() {
                Body::new(Ending::new(relay, desk.cut.clone()))
            } else {
                Body::new(relay)
            };
            let mut response = Response::new(body);
            *response.status_mut() = head.status;
            *response.headers_mut() = head.headers;
            if let Some(timing) = head
                .timing
                .and_then(|timing| HeaderValue::try_from(timing).ok())
            {
                response.headers_mut().insert(SERVER_TIMING, timing);
            }
            if let Some(provider) = head.provider {
                response.headers_mut().insert(PROVIDER, provider);
            }
            response
        }
        Err(error) => {
            log(&error, &name);
            answer_error(&error)
        }
    };
    name_by(&mut response, name);
    Ok(response)
}

/// From a request's head to its answer's: who asks, the body, the pipeline. Whichever way it ends, the stopwatch is told.
async fn ask(
    desk: &Desk,
    request: Request<Incoming>,
    mut watch: Stopwatch,
) -> Result<(Head, Relay<Held>), Error> {
    let patience = patience(request.headers());
    let (worker, access) = (desk.worker.load_full(), desk.access.load_full());
    let read = async {
        if desk.draining.load(Ordering::Relaxed) {
            return Err(Error::Draining);
        }
        let reach = access.admit(&request)?;
        let (body, share) = tokio::select! {
            biased;
            read = read(request, &worker, desk) => read?,
            () = desk.cut.clone().over() => {
                desk.cut.count();
                return Err(Error::Draining);
            }
        };
        Ok((reach, body, share))
    };
    let (reach, body, share) = match read.await {
        Ok(read) => read,
        Err(error) => {
            watch.failed(&error);
            return Err(error);
        }
    };
    watch.record.request_bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let cut = async {
        desk.cut.clone().over().await;
        desk.cut.count();
    };
    worker
        .chat(body, share, (reach, patience), cut, watch)
        .await
}

/// Both names of the header: each family of clients reads its own.
fn name_by(response: &mut Response, id: HeaderValue) {
    response.headers_mut().insert(REQUEST_ID, id.clone());
    response.headers_mut().insert(REQUEST_ID_SHORT, id);
}

fn with_id(mut response: Response, asked: &HeaderMap) -> Response {
    name_by(&mut response, request_id(asked).0);
    response
}

async fn models(State(desk): State<Arc<Desk>>, head: Parts) -> Response {
    let request = Request::from_parts(head, ());
    let answer = match names(&desk, &request).await {
        Ok(names) => {
            let data: Vec<_> = names.iter().map(|id| model_object(id)).collect();
            axum_json(&json!({ "object": "list", "data": data }))
        }
        Err(error) => answer_error(&error),
    };
    with_id(answer, request.headers())
}

async fn model(State(desk): State<Arc<Desk>>, Path(id): Path<String>, head: Parts) -> Response {
    let request = Request::from_parts(head, ());
    // Slashes belong to the name, whether the client escaped them or not.
    let answer = match names(&desk, &request).await {
        Ok(names) if names.contains(&id) => axum_json(&model_object(&id)),
        Ok(_) => answer_error(&Error::UnknownModel(id)),
        Err(error) => answer_error(&error),
    };
    with_id(answer, request.headers())
}

/// The models that whoever sent `request` may ask for.
async fn names(desk: &Desk, request: &Request<()>) -> Result<Vec<String>, Error> {
    let access = desk.access.load_full();
    let reach = access.admit(request)?;
    let mut names = desk.worker.load_full().models().await;
    names.retain(|name| reach.allows(name));
    Ok(names)
}

fn model_object(id: &str) -> serde_json::Value {
    let owner = id.split('/').next().unwrap_or_default();
    json!({ "id": id, "object": "model", "created": 0, "owned_by": owner })
}

/// A successful answer.
#[must_use]
pub fn axum_json(value: &serde_json::Value) -> Response {
    json_response(StatusCode::OK, value.to_string().into())
}

/// The same of what becomes JSON without a detour over its tree.
pub fn answer_json(value: &impl serde::Serialize) -> Response {
    let text = serde_json::to_vec(value).expect("its maps have texts for keys");
    json_response(StatusCode::OK, text.into())
}

fn json_response(status: StatusCode, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// The turn of an error into HTTP, which happens here and nowhere else.
pub fn answer_error(error: &Error) -> Response {
    let facts = error.facts();
    let mut response = json_response(facts.status, error.openai_body());
    let headers = response.headers_mut();
    if let Some(wait) = error.retry_after() {
        // Whole seconds, rounded up: what the clients agree on.
        headers.insert(
            header::RETRY_AFTER,
            HeaderValue::from(
                wait.as_millis()
                    .div_ceil(1_000)
                    .try_into()
                    .unwrap_or(u64::MAX),
            ),
        );
        headers.insert(
            RETRY_AFTER_MS,
            HeaderValue::from(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        );
    }
    if facts.status == StatusCode::UNAUTHORIZED && facts.blame == Blame::Client {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let is_untried = matches!(error, Error::KeysResting { .. });
    if facts.blame == Blame::Provider && facts.next != Next::Nothing && !is_untried {
        // Our tries are spent. The client's, times ours, times the keys, would make a storm.
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if let Error::Answered(answered) = error
        && let Some(encoding) = &answered.encoding
    {
        headers.insert(header::CONTENT_ENCODING, encoding.clone());
    }
    response
}

/// What went wrong on our side or the provider's is for the log; what the client got wrong, for the client.
fn log(error: &Error, id: &HeaderValue) {
    let cause = std::error::Error::source(error).map(|cause| root(cause).to_string());
    let cause = cause.as_deref().unwrap_or_default();
    let id = id.to_str().unwrap_or_default();
    match error.facts().blame {
        Blame::Client => tracing::debug!(id, %error, cause, "rejected"),
        Blame::Gateway => tracing::warn!(id, %error, cause, "refused"),
        Blame::Provider => tracing::warn!(id, %error, cause, "failed"),
    }
}

fn root<'e>(error: &'e (dyn std::error::Error + 'static)) -> &'e (dyn std::error::Error + 'static) {
    error.source().map_or(error, root)
}

/// Reads the body, within the limit and without a long silence.
async fn read(
    request: Request<Incoming>,
    worker: &Worker,
    desk: &Desk,
) -> Result<(Bytes, Share), Error> {
    let limit_bytes = desk.request_body_bytes_max;
    if let Some(encoding) = request.headers().get(header::CONTENT_ENCODING)
        && encoding != "identity"
    {
        return Err(Error::UnsupportedEncoding(
            String::from_utf8_lossy(encoding.as_bytes())
                .chars()
                .take(32)
                .collect(),
        ));
    }
    let mut body = request.into_body();
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if expected > limit_bytes {
        return Err(Error::TooLarge { limit_bytes });
    }
    // What a client promises costs it nothing, so room is taken for little more than what has come.
    let mut share = worker.app.budget.share();
    let mut room = expected.min(AHEAD_BYTES);
    share.grow(room * COPIES)?;
    let mut whole = BytesMut::new();
    let until = Instant::now() + desk.server.body_timeout * BODY_SILENCES;
    loop {
        let silence = Instant::now() + desk.server.body_timeout;
        let frame = match timeout_at(silence.min(until), body.frame()).await {
            Ok(None) => return Ok((whole.freeze(), share)),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err(Error::BodyBroken),
            Err(_) => return Err(Error::BodyTimeout),
        };
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        let come = whole.len() + bytes.len();
        if come > limit_bytes {
            return Err(Error::TooLarge { limit_bytes });
        }
        if come > room {
            let wanted = (come + AHEAD_BYTES).min(expected.max(come));
            share.grow((wanted - room) * COPIES)?;
            room = wanted;
        }
        if whole.is_empty() && bytes.len() >= expected && body.is_end_stream() {
            // The usual case: all of it in one piece. A small one is a part of what was read with its head, and would
            // hold all of that while it is with the provider.
            let is_small = bytes.len() <= COPIED_BYTES_MAX;
            return Ok((
                if is_small {
                    Bytes::copy_from_slice(&bytes)
                } else {
                    bytes
                },
                share,
            ));
        }
        whole.reserve(room - whole.len());
        whole.extend_from_slice(&bytes);
    }
}

/// The id that the answer carries, and the record: the client's own if it is short and harmless, else a new one.
fn request_id(headers: &HeaderMap) -> (HeaderValue, u64) {
    let is_harmless = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        !bytes.is_empty()
            && bytes.len() <= REQUEST_ID_BYTES_MAX
            && bytes.iter().all(u8::is_ascii_graphic)
    };
    if let Some(told) = headers.get(REQUEST_ID).filter(is_harmless) {
        return (told.clone(), number_of(told.as_bytes()));
    }
    let number = fastrand::u64(..);
    (digits(number), number)
}

/// `number` in sixteen hexadecimal digits.
fn digits(number: u64) -> HeaderValue {
    let digit = |at: usize| {
        let nibble = (number >> (60 - 4 * at)) & 0xf;
        b"0123456789abcdef"[nibble as usize]
    };
    HeaderValue::from_bytes(&std::array::from_fn::<_, 16, _>(digit))
        .expect("hexadecimal digits are a header value")
}

/// Sixteen hexadecimal digits are the number itself; another id is hashed (64-bit FNV-1a), so that whoever has the id
/// can find the record.
fn number_of(id: &[u8]) -> u64 {
    let digits = std::str::from_utf8(id).ok().filter(|text| text.len() == 16);
    digits
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .unwrap_or_else(|| {
            id.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            })
        })
}

/// How long the client says that it waits: the official SDKs send their read timeout, in seconds. What is no such
/// number says nothing.
fn patience(headers: &HeaderMap) -> Option<Duration> {
    let told = headers
        .get("x-stainless-read-timeout")?
        .to_str()
        .ok()?
        .parse::<f64>()
        .ok()?;
    (told > 0.0).then(|| Duration::try_from_secs_f64(told).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        [(
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        )]
        .into_iter()
        .collect()
    }

    /// The largest part of what a request in flight takes, but for buffers. To carry an argument on to another `async fn`
    /// doubles its room, and to wrap a whole future in another doubles all of it.
    #[test]
    fn a_chat_in_flight_has_room_for_no_more_than_it_needs() {
        fn size<F: Future>(
            _: impl FnOnce(Arc<Desk>, Request<Incoming>, Stopwatch, HeaderValue) -> F,
        ) -> usize {
            size_of::<F>()
        }
        let bytes = size(chat);
        assert!(bytes < 6 << 10, "{bytes}");
    }

    #[test]
    fn a_clients_id_is_kept_if_it_is_harmless_and_sixteen_digits_are_the_records() {
        let (name, id) = request_id(&headers("x-request-id", "00000000feedbeef"));
        assert_eq!(
            (name.to_str().unwrap(), id),
            ("00000000feedbeef", 0xfeed_beef)
        );
        let (name, id) = request_id(&headers("x-request-id", "a"));
        assert_eq!(
            (name.to_str().unwrap(), id),
            ("a", 0xaf63_dc4c_8601_ec8c),
            "FNV-1a's published value"
        );
        let long = "x".repeat(129);
        for odd in ["with blank", "", long.as_str()] {
            let (name, id) = request_id(&headers("x-request-id", odd));
            assert_eq!(name.to_str().unwrap(), format!("{id:016x}"));
        }
    }

    #[test]
    fn a_clients_patience_is_seconds_or_nothing() {
        let check = |told: &str, expected: Option<u64>| {
            assert_eq!(
                patience(&headers("x-stainless-read-timeout", told)),
                expected.map(Duration::from_millis),
                "{told}"
            );
        };
        check("600", Some(600_000));
        check("0.5", Some(500));
        check("NOT_GIVEN", None);
        check("-1", None);
        check("nan", None);
        check("1e999", None);
    }
}
