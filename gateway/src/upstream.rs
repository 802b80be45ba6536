//! The HTTP client: deadlines, one attempt. With its own modules the only one that knows `reqwest`, but for the error
//! that names it and the settings that parse a URL.
//!
//! ```text
//! Upstream ─▶ lanes ─▶ a client's pool ─▶ connect ─▶ names ─▶ TCP, proxy, TLS as trust says
//!             emptiest   an open connection,   so many      looked up once
//!                        or else               at once      for all runtimes
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
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body::Body as _;
use tokio::time::{Instant, Sleep, timeout_at};

use crate::config;
use crate::error::{Error, Unreachable};

mod connect;
mod lanes;
mod names;
mod trust;

pub use lanes::in_flight_max;
use lanes::{Lanes, Place};
use names::Names;
use trust::Trust;

/// A way to one provider.
pub struct Upstream {
    lanes: Lanes,
    names: Names,
    url: reqwest::Url,
    models: reqwest::Url,
    headers: HeaderMap,
    first_byte: Duration,
    idle: Duration,
}

/// A request that is ready to be sent.
pub struct Request(reqwest::Request);

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
    body: reqwest::Body,
    _place: Place,
    idle: Duration,
    silence: Pin<Box<Sleep>>,
    /// Whether `silence` was set since the last bytes came.
    waiting: bool,
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

impl Upstream {
    /// A client for `provider`, whose chats go to `path` below its base URL.
    ///
    /// # Errors
    ///
    /// If a certificate file or a proxy can't be used.
    pub fn new(provider: &config::Provider, path: &str, common: &Common) -> anyhow::Result<Self> {
        let url =
            reqwest::Url::parse(&format!("{}{path}", provider.base_url)).context("base_url")?;
        let mut headers: HeaderMap = provider.headers.iter().cloned().collect();
        headers
            .entry(header::USER_AGENT)
            .or_insert(HeaderValue::from_static(concat!(
                "bifrost/",
                env!("CARGO_PKG_VERSION")
            )));
        Ok(Self {
            lanes: Lanes::new(provider, &url, common)?,
            names: common.names.clone(),
            models: reqwest::Url::parse(&format!("{}/models", provider.base_url))
                .context("base_url")?,
            url,
            headers,
            first_byte: provider.timeouts.first_byte,
            idle: provider.timeouts.idle,
        })
    }

    /// The request for one attempt. Nothing of the client's but the body is in it.
    #[must_use]
    pub fn request(&self, credentials: Option<HeaderValue>, body: Bytes) -> Request {
        let mut request = reqwest::Request::new(Method::POST, self.url.clone());
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        if let Some(credentials) = credentials {
            request
                .headers_mut()
                .insert(header::AUTHORIZATION, credentials);
        }
        *request.body_mut() = Some(body.into());
        Request(request)
    }

    /// The request for the provider's list of models.
    #[must_use]
    pub fn models_request(&self, credentials: Option<HeaderValue>) -> Request {
        let mut request = reqwest::Request::new(Method::GET, self.models.clone());
        *request.headers_mut() = self.headers.clone();
        if let Some(credentials) = credentials {
            request
                .headers_mut()
                .insert(header::AUTHORIZATION, credentials);
        }
        Request(request)
    }

    /// Sends `request` and waits for the answer's head, as long as the settings allow and not after `deadline`.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::Broken`], [`Error::Silent`], [`Error::Deadline`].
    pub async fn send(
        &self,
        Request(request): Request,
        deadline: Instant,
    ) -> Result<Response, Error> {
        let since = Instant::now();
        let until = deadline.min(since + self.first_byte);
        let (client, place) = self.lanes.emptiest();
        let sent = connect::timed(client.execute(request));
        let (response, connect) = match timeout_at(until, sent).await {
            Ok((Ok(response), connect)) => (http::Response::from(response), connect),
            Ok((Err(error), _)) => return Err(self.classify(error)),
            Err(_) if until == deadline => return Err(Error::Deadline),
            Err(_) => {
                return Err(Error::Silent {
                    waited: since.elapsed(),
                });
            }
        };
        let (head, body) = response.into_parts();
        Ok(Response {
            status: head.status,
            headers: head.headers,
            connect,
            body: Incoming::new(body, self.idle, place),
        })
    }

    fn classify(&self, error: reqwest::Error) -> Error {
        let error = error.without_url();
        if !error.is_connect() {
            return Error::Broken(Some(error));
        }
        let kind = if error.is_dns() {
            Unreachable::Dns
        } else if error.is_timeout() {
            Unreachable::Timeout
        } else {
            causes(&error)
                .find_map(unreachable_by)
                .unwrap_or(Unreachable::Other)
        };
        if let Some(host) = self.url.host_str() {
            self.names.doubt(host);
        }
        Error::Unreachable {
            kind,
            source: error,
        }
    }
}

impl Incoming {
    fn new(body: reqwest::Body, idle: Duration, place: Place) -> Self {
        Self {
            body,
            _place: place,
            idle,
            silence: Box::pin(tokio::time::sleep(idle)),
            waiting: false,
        }
    }

    /// The next bytes; none at the body's proper end.
    ///
    /// # Errors
    ///
    /// [`Error::Broken`] when it ends otherwise, [`Error::Silent`] when nothing comes for too long.
    pub fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
                break;
            };
            self.waiting = false;
            match frame {
                None => return Poll::Ready(None),
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(Error::Broken(Some(error.without_url())))));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    // Trailers say nothing that we pass on.
                    Err(_) => {}
                },
            }
        }
        if !self.waiting {
            self.waiting = true;
            self.silence.as_mut().reset(Instant::now() + self.idle);
        }
        ready!(self.silence.as_mut().poll(context));
        Poll::Ready(Some(Err(Error::Silent { waited: self.idle })))
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
    let io = cause.downcast_ref::<io::Error>()?;
    match io.get_ref() {
        // What an I/O error wraps is not its source; TLS errors come wrapped twice.
        Some(inner) => unreachable_by(inner),
        None => (io.kind() == io::ErrorKind::ConnectionRefused).then_some(Unreachable::Refused),
    }
}

fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}
