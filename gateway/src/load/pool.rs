//! Keep-alive connections to one address, as a client keeps them.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A connection that can take a request.
pub(crate) type Connection = SendRequest<Full<Bytes>>;

/// Connections that wait for their next request. The one used last is used next, so that those not needed any more grow
/// old and are closed by the other side.
#[derive(Debug)]
pub(crate) struct Pool {
    target: SocketAddr,
    /// Not locked across an await.
    idle: Mutex<Vec<Connection>>,
}

/// What became of a request that was given to a connection that waited for one.
pub(crate) enum Given {
    /// Its answer has begun.
    Answered(Connection, Response<Incoming>),
    /// It is still here: no connection was left, or none that took it.
    Unsent(Request<Full<Bytes>>),
    /// The connection broke with it.
    Broken(hyper::Error),
}

impl Pool {
    pub(crate) fn new(target: SocketAddr) -> Self {
        Self {
            target,
            idle: Mutex::default(),
        }
    }

    /// Sends `request` on a connection that waits. One may turn out to be closed before anything was sent on it: then the
    /// next one is tried.
    pub(crate) async fn give(&self, mut request: Request<Full<Bytes>>) -> Given {
        while let Some(mut connection) = self.kept() {
            match connection.try_send_request(request).await {
                Ok(response) => return Given::Answered(connection, response),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Given::Broken(error.into_error()),
                },
            }
        }
        Given::Unsent(request)
    }

    fn kept(&self) -> Option<Connection> {
        let mut idle = self.idle();
        while let Some(connection) = idle.pop() {
            if !connection.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps it once it can take another request, unless the other side has announced to close it.
    pub(crate) async fn keep(&self, mut connection: Connection) {
        if connection.ready().await.is_ok() {
            self.idle().push(connection);
        }
    }

    /// Opens another.
    pub(crate) async fn open(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(self.target).await?;
        // Only latency is at stake.
        let _ = stream.set_nodelay(true);
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (connection, driver) = handshake.map_err(io::Error::other)?;
        // It ends when its connection is dropped, and what breaks it is told to the request that it carries.
        tokio::spawn(async {
            let _ = driver.await;
        });
        Ok(connection)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
