//! A provider behind TLS, that speaks HTTP/2 with 100 streams a connection if it is asked to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, KeyPair};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Barrier, Notify};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{HandshakeKind, ServerConfig};

use crate::provider::{COMPLETION, delta};

/// A host name that leads nowhere: only a proxy can reach it.
pub const FAR_HOST: &str = "api.provider.test";

/// Streams that it allows on a connection, as providers do.
const STREAMS_MAX: u32 = 100;

/// When a chat is answered.
#[derive(Clone)]
pub enum Answer {
    After(Duration),
    /// Once so many are in flight, all of them.
    Together(Arc<Barrier>),
    /// At once if it is no stream; a stream never ends, and tells how much of it has gone.
    Endless(Arc<AtomicUsize>),
    /// At once, and as the connection's last.
    Last,
}

/// A provider for `localhost`, `127.0.0.1` and [`FAR_HOST`], with a certificate of its own making.
pub struct TlsProvider {
    pub address: SocketAddr,
    /// The certificate that has to be trusted.
    pub ca_file: PathBuf,
    state: Arc<State>,
    _scratch: tempfile::TempDir,
}

struct State {
    answer: Mutex<Answer>,
    asked: AtomicUsize,
    connections: AtomicUsize,
    resumed: AtomicUsize,
}

impl TlsProvider {
    pub fn start(answer: Answer) -> Self {
        let names = ["localhost", "127.0.0.1", FAR_HOST].map(str::to_owned);
        let certified = rcgen::generate_simple_self_signed(names).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let ca_file = scratch.path().join("ca.pem");
        std::fs::write(&ca_file, certified.cert.pem()).unwrap();
        let state = Arc::new(State {
            answer: Mutex::new(answer),
            asked: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            resumed: AtomicUsize::new(0),
        });
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let listener = socket.listen(4_096).unwrap();
        let address = listener.local_addr().unwrap();
        let (acceptor, shared) = (acceptor(&certified), Arc::clone(&state));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, acceptor.clone(), Arc::clone(&shared)));
            }
        });
        Self {
            address,
            ca_file,
            state,
            _scratch: scratch,
        }
    }

    /// How the next chats are answered.
    pub fn answer(&self, answer: Answer) {
        *self.state.answer.lock().unwrap() = answer;
    }

    /// Requests that have come.
    pub fn asked(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }

    /// Connections with a whole handshake, resumed ones included.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Connections that took up an earlier session.
    pub fn resumed(&self) -> usize {
        self.state.resumed.load(Ordering::Relaxed)
    }
}

fn acceptor(certified: &CertifiedKey<KeyPair>) -> TlsAcceptor {
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certified.cert.der().clone()],
            PrivateKeyDer::Pkcs8(key),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    stream.set_nodelay(true).unwrap();
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let session = stream.get_ref().1;
    state.connections.fetch_add(1, Ordering::Relaxed);
    if session.handshake_kind() == Some(HandshakeKind::Resumed) {
        state.resumed.fetch_add(1, Ordering::Relaxed);
    }
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let last = Arc::new(Notify::new());
    let service = service_fn(|request| answer(request, Arc::clone(&state), Arc::clone(&last)));
    let io = TokioIo::new(stream);
    if is_http2 {
        let mut server = http2::Builder::new(TokioExecutor::new());
        server.max_concurrent_streams(STREAMS_MAX);
        let mut served = pin!(server.serve_connection(io, service));
        tokio::select! {
            _ = served.as_mut() => return,
            () = last.notified() => served.as_mut().graceful_shutdown(),
        }
        let _ = served.await;
    } else {
        let _ = http1::Builder::new().serve_connection(io, service).await;
    }
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
    last: Arc<Notify>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let mut response = Response::new(Full::from(COMPLETION).boxed());
    let mut kind = "application/json";
    let Ok(asked) = request.into_body().collect().await else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    };
    let asked = String::from_utf8(asked.to_bytes().to_vec()).unwrap();
    let answer = state.answer.lock().unwrap().clone();
    state.asked.fetch_add(1, Ordering::Relaxed);
    match answer {
        Answer::After(delay) => tokio::time::sleep(delay).await,
        Answer::Together(barrier) => {
            barrier.wait().await;
        }
        Answer::Endless(gone) if asked.contains(r#""stream":true"#) => {
            kind = "text/event-stream";
            *response.body_mut() = Endless(gone).boxed();
        }
        Answer::Endless(_) => {}
        Answer::Last => last.notify_one(),
    }
    let kind = http::HeaderValue::from_static(kind);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Events without end.
struct Endless(Arc<AtomicUsize>);

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = delta(&"x".repeat(16 << 10));
        self.0.fetch_add(event.len(), Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(event.into()))))
    }
}
