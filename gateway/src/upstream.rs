//! The HTTP client: pool, deadlines, one attempt. The only file that knows `reqwest`, but for the error that names it.
//!
//! One client a provider and runtime, so that a connection never leaves its thread. It follows no redirect, repeats
//! nothing, keeps no cookie and unpacks no compression: what was asked once is sent once.

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

/// Idle connections are kept less long than providers keep theirs, or a request would meet a closed one.
const IDLE_CONNECTION: Duration = Duration::from_secs(30);

/// A way to one provider.
pub struct Upstream {
    client: reqwest::Client,
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
    /// Its body, still to come.
    pub body: Incoming,
}

/// The body of an answer, which may not be silent for too long.
pub struct Incoming {
    body: reqwest::Body,
    idle: Duration,
    silence: Pin<Box<Sleep>>,
    /// Whether `silence` was set since the last bytes came.
    waiting: bool,
}

/// TLS as every client uses it: one set of roots, one session store.
#[derive(Clone)]
pub struct Tls(Arc<rustls::ClientConfig>);

impl Tls {
    /// Trusts the bundled roots (Mozilla's). Loading the system's costs some milliseconds at every start.
    ///
    /// # Errors
    ///
    /// If the cryptography does not offer the protocol versions.
    pub fn bundled() -> anyhow::Result<Self> {
        let roots = rustls::RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        Self::trusting(roots)
    }

    /// Trusts the certificates of a PEM file, and no others.
    fn from_file(path: &std::path::Path) -> anyhow::Result<Self> {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject as _;
        let mut roots = rustls::RootCertStore::empty();
        let named = || format!("ca_file {}", path.display());
        for certificate in CertificateDer::pem_file_iter(path).with_context(named)? {
            roots
                .add(certificate.with_context(named)?)
                .with_context(named)?;
        }
        anyhow::ensure!(!roots.is_empty(), "{}: holds no certificate", named());
        Self::trusting(roots)
    }

    fn trusting(roots: rustls::RootCertStore) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

impl Upstream {
    /// A client for `provider`, whose chats go to `path` below its base URL.
    ///
    /// # Errors
    ///
    /// If a certificate file or a proxy can't be used.
    pub fn new(provider: &config::Provider, path: &str, tls: &Tls) -> anyhow::Result<Self> {
        let tls = match &provider.ca_file {
            Some(file) => Tls::from_file(file)?,
            None => tls.clone(),
        };
        let url =
            reqwest::Url::parse(&format!("{}{path}", provider.base_url)).context("base_url")?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured((*tls.0).clone())
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(provider.timeouts.connect)
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(usize::MAX)
            .tcp_nodelay(true)
            .referer(false);
        if let Some(proxy) = &provider.proxy {
            // The error would print the URL, which may hold a password.
            builder = builder.proxy(
                reqwest::Proxy::all(proxy)
                    .map_err(|_| anyhow::anyhow!("proxy: not a URL that can be used"))?,
            );
        } else if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        let mut headers: HeaderMap = provider.headers.iter().cloned().collect();
        headers
            .entry(header::USER_AGENT)
            .or_insert(HeaderValue::from_static(concat!(
                "bifrost/",
                env!("CARGO_PKG_VERSION")
            )));
        Ok(Self {
            client: builder.build().context("HTTP client")?,
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
        let response = match timeout_at(until, self.client.execute(request)).await {
            Ok(Ok(response)) => http::Response::from(response),
            Ok(Err(error)) => return Err(classify(error)),
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
            body: Incoming::new(body, self.idle),
        })
    }
}

impl Incoming {
    fn new(body: reqwest::Body, idle: Duration) -> Self {
        Self {
            body,
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

    /// Waits for the whole body.
    ///
    /// # Errors
    ///
    /// As [`chunk`](Self::chunk), and [`Error::BadAnswer`] when it exceeds `bytes_max`.
    pub async fn whole(&mut self, bytes_max: usize, deadline: Instant) -> Result<Bytes, Error> {
        let Some(first) = self.chunk(deadline).await? else {
            return Ok(Bytes::new());
        };
        // Most answers come in one piece, and are then not copied.
        let Some(second) = self.chunk(deadline).await? else {
            return Ok(first);
        };
        let mut whole = BytesMut::with_capacity((first.len() + second.len()).max(self.expected()));
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        while let Some(next) = self.chunk(deadline).await? {
            if whole.len() + next.len() > bytes_max {
                return Err(Error::BadAnswer("larger than the gateway holds"));
            }
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

fn is_loopback(url: &reqwest::Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_matches(['[', ']'])
            .parse()
            .is_ok_and(|address: std::net::IpAddr| address.is_loopback()),
        None => false,
    }
}

fn classify(error: reqwest::Error) -> Error {
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
    Error::Unreachable {
        kind,
        source: error,
    }
}

fn unreachable_by(cause: &(dyn std::error::Error + 'static)) -> Option<Unreachable> {
    if cause.is::<rustls::Error>() {
        return Some(Unreachable::Tls);
    }
    let io = cause.downcast_ref::<io::Error>()?;
    if io
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        .is_some()
    {
        return Some(Unreachable::Tls);
    }
    (io.kind() == io::ErrorKind::ConnectionRefused).then_some(Unreachable::Refused)
}

fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}
