//! One connection, driven by whoever uses it.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tokio_rustls::client::TlsStream;

use super::Request;

/// A connection, and the end of it that takes requests.
///
/// hyper has the two talk by channels, and each channel wakes whoever waits at its other end. Here both ends are one
/// task: what the connection does for the other end, that end sees when it is asked next, within the same poll. So it
/// is asked with a waker that wakes nobody, and without tokio's budget, which would count on being woken.
pub(super) struct Link {
    requests: SendRequest<Full<Bytes>>,
    /// None once it has ended.
    connection: Option<Connection<Io, Full<Bytes>>>,
}

/// What a connection goes over.
pub(super) enum Io {
    Tcp(TokioIo<TcpStream>),
    /// In a box, or every connection would have room for a TLS session.
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Link {
    /// HTTP/1.1 over `io`. Nothing is sent yet.
    pub(super) async fn new(io: Io) -> hyper::Result<Self> {
        let (requests, connection) = Builder::new().handshake(io).await?;
        Ok(Self {
            requests,
            connection: Some(connection),
        })
    }

    /// Sends `request` and waits for the answer's head.
    ///
    /// # Errors
    ///
    /// With the request in it, if nothing of it was written.
    pub(super) async fn ask(
        &mut self,
        request: Request,
    ) -> Result<http::Response<Incoming>, TrySendError<Request>> {
        let mut answer = pin!(unconstrained(self.requests.try_send_request(request)));
        let connection = &mut self.connection;
        poll_fn(|context| {
            drive(connection, context);
            answer.as_mut().poll(&mut asking())
        })
        .await
    }

    /// The next bytes of an answer; none at its proper end.
    pub(super) fn poll_data(
        &mut self,
        incoming: &mut Incoming,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Bytes>>> {
        loop {
            let mut frame = poll_frame(incoming);
            // First by a waker that wakes nobody: taking what the connection has read would wake its waker, and what
            // was taken is here already.
            for waker in [Waker::noop(), context.waker()] {
                if frame.is_pending() {
                    drive(&mut self.connection, &mut Context::from_waker(waker));
                    frame = poll_frame(incoming);
                }
            }
            match ready!(frame) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                // Trailers say nothing that we pass on.
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
            }
        }
    }

    /// Whether it can take another request.
    pub(super) fn is_free(&mut self, context: &mut Context<'_>) -> bool {
        if !self.requests.is_ready() {
            drive(&mut self.connection, context);
        }
        self.requests.is_ready() && self.connection.is_some()
    }

    /// Whether the other end has closed it, or sent what nobody asked for.
    pub(super) fn has_ended(&mut self) -> bool {
        let ended = pin!(unconstrained(poll_fn(|context| {
            drive(&mut self.connection, context);
            Poll::Ready(())
        })));
        let _ = ended.poll(&mut asking());
        self.connection.is_none()
    }
}

/// Polls a connection that has not ended.
fn drive(connection: &mut Option<Connection<Io, Full<Bytes>>>, context: &mut Context<'_>) {
    if let Some(open) = connection
        && Pin::new(open).poll(context).is_ready()
    {
        // Whoever waits for something of it learns by its drop that there will be nothing.
        *connection = None;
    }
}

fn poll_frame(incoming: &mut Incoming) -> Poll<Option<hyper::Result<hyper::body::Frame<Bytes>>>> {
    let frame = poll_fn(|context| Pin::new(&mut *incoming).poll_frame(context));
    pin!(unconstrained(frame)).poll(&mut asking())
}

/// To ask what is there already.
fn asking() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(io) => Pin::new(io).poll_read(context, buffer),
            Self::Tls(io) => Pin::new(io).poll_read(context, buffer),
        }
    }
}

impl Write for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(io) => Pin::new(io).poll_write(context, bytes),
            Self::Tls(io) => Pin::new(io).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(io) => Pin::new(io).poll_write_vectored(context, slices),
            Self::Tls(io) => Pin::new(io).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(io) => io.is_write_vectored(),
            Self::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(io) => Pin::new(io).poll_flush(context),
            Self::Tls(io) => Pin::new(io).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(io) => Pin::new(io).poll_shutdown(context),
            Self::Tls(io) => Pin::new(io).poll_shutdown(context),
        }
    }
}
