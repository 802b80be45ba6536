//! One client's connection: TLS, the protocol, the requests on it, and its end.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

use super::certificates::Certificates;
use super::socket::{HeadTimer, Protocol, Socket};
use crate::routes::Routes;
use crate::shutdown::{Cut, Phase};

/// How long a request that is cut off has for saying so.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// A longer head is answered by 431. Nobody's request lines and headers come near it.
const HEAD_BYTES_MAX: u16 = u16::MAX;
/// Streams that may be open on one connection of HTTP/2. The queue bounds what goes upstream.
const STREAMS_MAX: u32 = 1_000;
/// What a client may send ahead on a stream, and on all of them: a stream that is not read leaves room for the others.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// What may wait to be sent on a stream; the provider's answer is not read any faster than that.
const SEND_BYTES_MAX: usize = 64 << 10;
/// A client of HTTP/2 that has vanished is found out by a ping, and its streams with it.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// What the connections of one runtime have in common.
#[derive(Clone)]
pub(super) struct Front {
    pub(super) routes: Routes,
    pub(super) header_timeout: Duration,
    pub(super) keep_alive_timeout: Duration,
    pub(super) certificates: Option<Arc<Certificates>>,
    pub(super) guest: watch::Receiver<Phase>,
    pub(super) cut: Cut,
    /// For connections that are open at once.
    pub(super) places: Arc<Semaphore>,
}

impl Front {
    /// Serves a connection to its end, or to the end of the drain. `held` is kept that long.
    pub(super) async fn serve<H>(self, stream: TcpStream, held: H) {
        let _held = held;
        // Only latency is at stake.
        let _ = stream.set_nodelay(true);
        let Some(certificates) = &self.certificates else {
            return self.open(stream).await;
        };
        match self.in_time(certificates.accept(stream)).await {
            // In boxes, as HTTP/2 is, so that a connection without them need not make room for them.
            Some(Ok(stream)) => Box::pin(self.open(stream)).await,
            Some(Err(error)) => tracing::debug!(%error, "no TLS with a client"),
            None => {}
        }
    }

    async fn open(self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let mut socket = Socket::new(stream);
        match self.in_time(socket.protocol()).await {
            Some(Ok(Protocol::Http1)) => self.http1(socket).await,
            Some(Ok(Protocol::Http2)) => Box::pin(self.http2(socket)).await,
            // A client that leaves, or says nothing, is its own affair.
            Some(Err(_)) | None => {}
        }
    }

    /// What comes before a request may take no longer than its head; and once the gateway stops, only a moment.
    async fn in_time<T>(&self, beginning: impl Future<Output = T>) -> Option<T> {
        let mut guest = self.guest.clone();
        let stopping = async {
            // An error says that the gateway is gone.
            let _ = guest.wait_for(|phase| *phase != Phase::Serve).await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        tokio::select! {
            done = tokio::time::timeout(self.header_timeout, beginning) => done.ok(),
            () = stopping => None,
        }
    }

    async fn http1(self, socket: Socket<impl AsyncRead + AsyncWrite + Unpin + 'static>) {
        let timer = HeadTimer {
            heard: socket.heard(),
            head: self.header_timeout,
            places: self.places,
        };
        let mut builder = http1::Builder::new();
        builder
            .timer(timer)
            .header_read_timeout(self.keep_alive_timeout.max(self.header_timeout))
            .max_header_size(HEAD_BYTES_MAX.into());
        let served = builder.serve_connection(TokioIo::new(socket), self.routes);
        drive(served, std::future::pending(), self.guest, &self.cut).await;
    }

    async fn http2(self, socket: Socket<impl AsyncRead + AsyncWrite + Send + Unpin + 'static>) {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(SEND_BYTES_MAX)
            .max_header_list_size(HEAD_BYTES_MAX.into())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT);
        let routes = self.routes;
        let streams = Streams::default();
        let counted = streams.clone();
        let service = service_fn(move |request| {
            let (answered, open) = (routes.call(request), counted.open());
            async move { Ok::<_, Infallible>(answered.await?.map(|body| Counted { body, _open: open })) }
        });
        let served = builder.serve_connection(TokioIo::new(socket), service);
        let idle = streams.idle_for(self.keep_alive_timeout);
        drive(served, idle, self.guest, &self.cut).await;
    }
}

/// Polls a connection to its end. Idle, or told to stop, it takes nothing new; cut off, it has a moment to say so.
async fn drive<C: GracefulConnection>(
    served: C,
    idle: impl Future<Output = ()>,
    mut guest: watch::Receiver<Phase>,
    cut: &Cut,
) {
    let (mut served, mut idle) = (pin!(served), pin!(idle));
    let mut is_idle = false;
    loop {
        let phase = *guest.borrow_and_update();
        if phase != Phase::Serve {
            served.as_mut().graceful_shutdown();
        }
        if phase == Phase::Cut {
            cut.now();
            let _ = tokio::time::timeout(LAST_WORDS, served).await;
            return;
        }
        tokio::select! {
            // How a connection ends is told by its requests' records.
            _ = served.as_mut() => return,
            () = idle.as_mut(), if !is_idle => {
                is_idle = true;
                served.as_mut().graceful_shutdown();
            }
            changed = guest.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// The streams of a connection of HTTP/2: how many are open, and how many ever were.
#[derive(Debug, Clone, Default)]
struct Streams(Arc<(AtomicUsize, AtomicUsize)>);

/// A stream that is open.
struct Open(Streams);

impl Streams {
    fn open(&self) -> Open {
        let (open, begun) = &*self.0;
        open.fetch_add(1, Ordering::Relaxed);
        begun.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }

    /// Waits until there was no stream for `time` at least, and twice that at most.
    async fn idle_for(self, time: Duration) {
        let (open, begun) = &*self.0;
        loop {
            let before = begun.load(Ordering::Relaxed);
            tokio::time::sleep(time).await;
            if open.load(Ordering::Relaxed) == 0 && begun.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Streams(counts) = &self.0;
        counts.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer whose stream is open as long as it lives.
struct Counted {
    body: Body,
    _open: Open,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<F: Future>(_: impl FnOnce(Front, TcpStream) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_has_no_more_room_than_http1_takes() {
        let bytes = size(|front, stream| front.serve(stream, ()));
        assert!(bytes < 5 << 10, "{bytes}");
    }
}
