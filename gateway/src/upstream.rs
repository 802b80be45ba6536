//! The HTTP client: deadlines, one attempt. With its own modules the only one that knows hyper's client and `reqwest`,
//! but for the settings, which parse a URL.
//!
//! ```text
//!            ┌▶ direct: our pool of hyper's connections ─┐
//! Upstream ──┤   the plain way: HTTP/1.1, no proxy       ├▶ connect ─▶ names ─▶ TCP, proxy, TLS as trust says
//!            └▶ lanes: reqwest's clients, the emptiest ──┘  so many      looked up once
//!                all else                                   at once      for all runtimes
//! ```
//!
//! Each runtime has an `Upstream` a provider, so that a connection never leaves its thread.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use http_body::{Body as _, SizeHint};
use http_body_util::Full;
use tokio::time::{Instant, Sleep, timeout_at};

use crate::config;
use crate::error::{Cause, Error, Unreachable};

mod connect;
mod direct;
mod lanes;
mod names;
mod trust;

use connect::Door;
use direct::{Dial, Direct};
pub use lanes::in_flight_max;
use lanes::{Lanes, Place};
use names::{Names, NoAddress};
use trust::Trust;

/// A way to one provider.
pub struct Upstream {
    way: Way,
    names: Names,
    chats: Target,
    models: Target,
    /// Those of a chat, and of any other request.
    chat_headers: HeaderMap,
    headers: HeaderMap,
    first_byte: Duration,
    idle: Duration,
}

/// By which client requests go.
enum Way {
    Direct(Direct),
    Lanes(Lanes),
}

/// Where requests of a kind go, for either client.
struct Target {
    method: Method,
    url: reqwest::Url,
    /// The URL's path and query.
    path: Uri,
}

/// A request that is ready to be sent.
pub struct Request {
    is_for_models: bool,
    by_a_new_connection: bool,
    headers: HeaderMap,
    body: Bytes,
}

impl Request {
    /// To be sent on a connection that no request was sent on before, where the client can choose. What broke under one
    /// may have been closed while it was idle, and others with it.
    #[must_use]
    pub fn by_a_new_connection(mut self, by_a_new_connection: bool) -> Self {
        self.by_a_new_connection = by_a_new_connection;
        self
    }
}

/// An answer whose head has come.
pub struct Response {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// How long opening a connection for it took; zero if it found one open.
    pub connect: Duration,
    /// Its body, still to come.
    pub body: Incoming,
}

/// The body of an answer, which may not be silent for too long.
pub struct Incoming {
    body: Body,
    idle: Duration,
    /// Made when the body is first waited for, which most are not. It is set anew when it goes off, not for each wait:
    /// a stream waits for every event.
    silence: Option<Pin<Box<Sleep>>>,
    /// Until when the next bytes are waited for, if they are.
    waiting: Option<Instant>,
}

enum Body {
    Direct(direct::Body),
    Lane { body: reqwest::Body, _place: Place },
}

/// An attempt that brought no answer.
enum Failed {
    /// No connection could be opened.
    ToConnect(Cause),
    /// It broke afterwards.
    Later(Cause),
}

/// What the clients of all runtimes have in common: trust in certificates with the TLS sessions, and hosts' addresses.
#[derive(Clone)]
pub struct Common {
    trust: Arc<Trust>,
    names: Names,
}

impl Common {
    /// Nothing opened and nothing looked up yet.
    ///
    /// # Errors
    ///
    /// If the cryptography does not offer the protocol versions.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            trust: Arc::new(Trust::new()?),
            names: Names::new(),
        })
    }
}

impl Way {
    fn new(
        provider: &config::Provider,
        url: &reqwest::Url,
        common: &Common,
    ) -> anyhow::Result<Self> {
        let tls = common.trust.of(provider.ca_file.as_deref())?;
        let door = Door::new(provider.connects_max, provider.timeouts.connect);
        let opening = (common.names.clone(), door);
        if is_plain(provider, url)
            && let Some(dial) = Dial::new(url, &tls, &opening, provider.timeouts.connect)
        {
            return Ok(Self::Direct(Direct::new(dial)));
        }
        Ok(Self::Lanes(Lanes::new(provider, url, &tls, &opening)?))
    }
}

/// Whether nothing but HTTP/1.1 and nobody but the provider is in it. That a proxy of the environment may not be meant
/// for this host is for the client to say that knows its rules.
fn is_plain(provider: &config::Provider, url: &reqwest::Url) -> bool {
    let is_plain = provider.http2.is_none() && provider.proxy.is_none();
    is_plain && (config::is_loopback(url) || !has_environment_proxy())
}

fn has_environment_proxy() -> bool {
    let names = ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"];
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    names
        .iter()
        .any(|name| is_set(name) || is_set(&name.to_ascii_lowercase()))
}

impl Target {
    fn new(method: Method, base_url: &str, path: &str) -> anyhow::Result<Self> {
        let url = reqwest::Url::parse(&format!("{base_url}{path}")).context("base_url")?;
        let whole: Uri = url.as_str().parse().context("base_url")?;
        let path = whole.path_and_query().context("base_url")?.clone();
        Ok(Self {
            method,
            url,
            path: path.into(),
        })
    }
}

impl Upstream {
    /// A client for `provider`, whose chats go to `path` below its base URL.
    ///
    /// # Errors
    ///
    /// If a certificate file or a proxy can't be used.
    pub fn new(provider: &config::Provider, path: &str, common: &Common) -> anyhow::Result<Self> {
        let chats = Target::new(Method::POST, &provider.base_url, path)?;
        let way = Way::new(provider, &chats.url, common)?;
        let mut headers: HeaderMap = provider.headers.iter().cloned().collect();
        let mut default = |name, value| {
            headers.entry(name).or_insert(value);
        };
        let agent = concat!("bifrost/", env!("CARGO_PKG_VERSION"));
        default(header::USER_AGENT, HeaderValue::from_static(agent));
        default(header::ACCEPT, HeaderValue::from_static("*/*"));
        if let Way::Direct(_) = way {
            default(header::HOST, host(&chats.url)?);
        }
        // The key's place. A clone has no room to spare, and would have to be copied to get some.
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static(""));
        let mut chat_headers = headers.clone();
        chat_headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        Ok(Self {
            way,
            names: common.names.clone(),
            models: Target::new(Method::GET, &provider.base_url, "/models")?,
            chats,
            chat_headers,
            headers,
            first_byte: provider.timeouts.first_byte,
            idle: provider.timeouts.idle,
        })
    }

    /// The request for one attempt. Nothing of the client's but the body is in it.
    #[must_use]
    pub fn request(&self, credentials: Option<HeaderValue>, body: Bytes) -> Request {
        Request {
            is_for_models: false,
            by_a_new_connection: false,
            headers: with_key(&self.chat_headers, credentials),
            body,
        }
    }

    /// The request for the provider's list of models.
    #[must_use]
    pub fn models_request(&self, credentials: Option<HeaderValue>) -> Request {
        Request {
            is_for_models: true,
            by_a_new_connection: false,
            headers: with_key(&self.headers, credentials),
            body: Bytes::new(),
        }
    }

    /// Sends `request` and waits for the answer's head, as long as the settings allow and not after `deadline`.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::Broken`], [`Error::Silent`], [`Error::Deadline`].
    pub async fn send(&self, request: Request, deadline: Instant) -> Result<Response, Error> {
        let since = Instant::now();
        let until = deadline.min(since + self.first_byte);
        let sent = match &self.way {
            Way::Direct(direct) => {
                let by_a_new_one = request.by_a_new_connection;
                let sent = direct.send(self.asked(request), by_a_new_one);
                timeout_at(until, sent).await.map(|sent| {
                    let (answer, connect) = sent?;
                    Ok(self.response(answer.map(Body::Direct), connect))
                })
            }
            Way::Lanes(lanes) => timeout_at(until, Box::pin(self.send_by(lanes, request))).await,
        };
        match sent {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(failed)) => Err(self.classify(failed)),
            Err(_) if until == deadline => Err(Error::Deadline),
            Err(_) => Err(Error::Silent {
                waited: since.elapsed(),
            }),
        }
    }

    fn asked(&self, request: Request) -> http::Request<Full<Bytes>> {
        let target = self.target(&request);
        let mut asked = http::Request::new(Full::new(request.body));
        asked.method_mut().clone_from(&target.method);
        asked.uri_mut().clone_from(&target.path);
        *asked.headers_mut() = request.headers;
        asked
    }

    async fn send_by(&self, lanes: &Lanes, request: Request) -> Result<Response, Failed> {
        let target = self.target(&request);
        let mut asked = reqwest::Request::new(target.method.clone(), target.url.clone());
        *asked.headers_mut() = request.headers;
        if !request.is_for_models {
            *asked.body_mut() = Some(request.body.into());
        }
        let (client, place) = lanes.emptiest();
        match connect::timed(client.execute(asked)).await {
            (Ok(answer), connect) => {
                let answer = http::Response::from(answer);
                let body = |body| Body::Lane {
                    body,
                    _place: place,
                };
                Ok(self.response(answer.map(body), connect))
            }
            (Err(error), _) if error.is_connect() => {
                Err(Failed::ToConnect(error.without_url().into()))
            }
            (Err(error), _) => Err(Failed::Later(error.without_url().into())),
        }
    }

    fn target(&self, request: &Request) -> &Target {
        if request.is_for_models {
            &self.models
        } else {
            &self.chats
        }
    }

    fn response(&self, answer: http::Response<Body>, connect: Duration) -> Response {
        let (head, body) = answer.into_parts();
        Response {
            status: head.status,
            headers: head.headers,
            connect,
            body: Incoming {
                body,
                idle: self.idle,
                silence: None,
                waiting: None,
            },
        }
    }

    fn classify(&self, failed: Failed) -> Error {
        let source = match failed {
            Failed::Later(cause) => return Error::Broken(Some(cause)),
            Failed::ToConnect(cause) => cause,
        };
        if let Some(host) = self.chats.url.host_str() {
            self.names.doubt(host);
        }
        let kind = causes(source.as_ref()).find_map(unreachable_by);
        Error::Unreachable {
            kind: kind.unwrap_or(Unreachable::Other),
            source,
        }
    }
}

/// A copy of `headers` in which the key has its place.
fn with_key(headers: &HeaderMap, credentials: Option<HeaderValue>) -> HeaderMap {
    let mut headers = headers.clone();
    match credentials {
        Some(credentials) => headers.insert(header::AUTHORIZATION, credentials),
        None => headers.remove(header::AUTHORIZATION),
    };
    headers
}

/// What the `Host` header says: with the port, unless it is the scheme's own.
fn host(url: &reqwest::Url) -> anyhow::Result<HeaderValue> {
    let host = url.host_str().context("base_url")?;
    let host = match url.port() {
        Some(port) => HeaderValue::try_from(format!("{host}:{port}")),
        None => HeaderValue::try_from(host),
    };
    host.context("base_url")
}

impl Body {
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cause>>> {
        match self {
            Self::Direct(body) => body.poll_data(context).map_err(Into::into),
            Self::Lane { body, .. } => loop {
                let frame = match ready!(Pin::new(&mut *body).poll_frame(context)) {
                    None => return Poll::Ready(None),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error.without_url().into()))),
                    Some(Ok(frame)) => frame,
                };
                // Trailers say nothing that we pass on.
                if let Ok(bytes) = frame.into_data() {
                    return Poll::Ready(Some(Ok(bytes)));
                }
            },
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Direct(body) => body.size_hint(),
            Self::Lane { body, .. } => body.size_hint(),
        }
    }
}

impl Incoming {
    /// The next bytes; none at the body's proper end.
    ///
    /// # Errors
    ///
    /// [`Error::Broken`] when it ends otherwise, [`Error::Silent`] when nothing comes for too long.
    pub fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        while let Poll::Ready(data) = self.body.poll_data(context) {
            self.waiting = None;
            match data {
                None => return Poll::Ready(None),
                Some(Err(cause)) => return Poll::Ready(Some(Err(Error::Broken(Some(cause))))),
                Some(Ok(bytes)) if bytes.is_empty() => {}
                Some(Ok(bytes)) => return Poll::Ready(Some(Ok(bytes))),
            }
        }
        let until = match self.waiting {
            Some(until) => until,
            None => *self.waiting.insert(Instant::now() + self.idle),
        };
        let silence = self
            .silence
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        loop {
            ready!(silence.as_mut().poll(context));
            if silence.deadline() >= until {
                return Poll::Ready(Some(Err(Error::Silent { waited: self.idle })));
            }
            // It was set for an earlier wait, which has ended since.
            silence.as_mut().reset(until);
        }
    }

    /// Waits for the next bytes, not beyond `deadline`.
    ///
    /// # Errors
    ///
    /// As [`poll_chunk`](Self::poll_chunk), and [`Error::Deadline`].
    pub async fn chunk(&mut self, deadline: Instant) -> Result<Option<Bytes>, Error> {
        match timeout_at(deadline, poll_fn(|context| self.poll_chunk(context))).await {
            Ok(chunk) => chunk.transpose(),
            Err(_) => Err(Error::Deadline),
        }
    }

    /// Waits for the whole body. `hold` is asked for room for each piece of it.
    ///
    /// # Errors
    ///
    /// As [`chunk`](Self::chunk), and what `hold` says.
    pub async fn whole(
        &mut self,
        deadline: Instant,
        mut hold: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<Bytes, Error> {
        let Some(first) = self.chunk(deadline).await? else {
            return Ok(Bytes::new());
        };
        hold(first.len())?;
        // Most answers come in one piece, and are then not copied.
        let Some(second) = self.chunk(deadline).await? else {
            return Ok(first);
        };
        hold(second.len())?;
        let mut whole = BytesMut::with_capacity((first.len() + second.len()).max(self.expected()));
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        while let Some(next) = self.chunk(deadline).await? {
            hold(next.len())?;
            whole.extend_from_slice(&next);
        }
        Ok(whole.freeze())
    }

    /// Bytes still to come, where the length was told; bounded, since it is the provider's word.
    fn expected(&self) -> usize {
        usize::try_from(self.body.size_hint().lower())
            .unwrap_or(0)
            .min(1 << 20)
    }
}

fn unreachable_by(cause: &(dyn std::error::Error + 'static)) -> Option<Unreachable> {
    if cause.is::<rustls::Error>() {
        return Some(Unreachable::Tls);
    }
    if cause.is::<NoAddress>() {
        return Some(Unreachable::Dns);
    }
    let io = cause.downcast_ref::<io::Error>()?;
    match (io.get_ref(), io.kind()) {
        // What an I/O error wraps is not its source; TLS errors come wrapped twice.
        (Some(inner), _) => unreachable_by(inner),
        (None, io::ErrorKind::ConnectionRefused) => Some(Unreachable::Refused),
        (None, io::ErrorKind::TimedOut) => Some(Unreachable::Timeout),
        (None, _) => None,
    }
}

fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}
