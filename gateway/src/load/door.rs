//! The gateway's front door as a client sees it: keep-alive connections, and patience while it is shut.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::Failure;

type Connection = SendRequest<Full<Bytes>>;

/// How long to stay away after the first refusal, doubled with each further one, to at most the second.
const BACK_OFF: Duration = Duration::from_millis(50);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// One target, with the connections to it that wait for their next request.
#[derive(Debug)]
pub(super) struct Door {
    target: SocketAddr,
    host: HeaderValue,
    /// Not locked across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The one used last is used next, so that those not needed any more grow old and are closed by the gateway.
    idle: Vec<Connection>,
    back_off: BackOff,
}

impl Door {
    pub(super) fn new(target: SocketAddr) -> Self {
        Self {
            target,
            host: HeaderValue::try_from(target.to_string()).expect("an address can be a header"),
            state: Mutex::default(),
        }
    }

    /// Sends `body` and reads the answer to its last byte; anything but a 200 is a failure.
    pub(super) async fn ask(&self, body: Bytes) -> Result<Bytes, Failure> {
        let (connection, response) = self.send(body).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        self.keep(connection).await;
        if status != StatusCode::OK {
            return Err(Failure::Status(status));
        }
        Ok(answer)
    }

    /// A kept connection may turn out to be closed, before anything was sent on it: then the next one is tried.
    async fn send(&self, body: Bytes) -> Result<(Connection, Response<Incoming>), Failure> {
        let mut request = self.request(body);
        while let Some(mut connection) = self.kept() {
            match connection.try_send_request(request).await {
                Ok(response) => return Ok((connection, response)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut connection = self.connect().await?;
        let response = connection.send_request(request).await?;
        Ok((connection, response))
    }

    fn request(&self, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static("/v1/chat/completions");
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }

    fn kept(&self) -> Option<Connection> {
        let idle = &mut self.state().idle;
        while let Some(connection) = idle.pop() {
            if !connection.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps it once it can take another request, unless the gateway has announced to close it.
    async fn keep(&self, mut connection: Connection) {
        if connection.ready().await.is_ok() {
            self.state().idle.push(connection);
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let now = Instant::now();
        if self.state().back_off.is_resting(now) {
            return Err(Failure::Resting(self.target));
        }
        let stream = match TcpStream::connect(self.target).await {
            Ok(stream) => stream,
            Err(error) => {
                self.state().back_off.refused(Instant::now());
                return Err(Failure::Unreachable(self.target, error));
            }
        };
        self.state().back_off = BackOff::default();
        // Only latency is at stake.
        let _ = stream.set_nodelay(true);
        let (connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends when its connection is dropped, and what breaks it is told to the request that it carries.
        tokio::spawn(async {
            let _ = driver.await;
        });
        Ok(connection)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When to knock again at a door that was shut.
#[derive(Debug, Default)]
struct BackOff {
    refusals: u32,
    rests_until: Option<Instant>,
}

impl BackOff {
    fn is_resting(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// Attempts made at the same time are refused at the same time, and count as one.
    fn refused(&mut self, now: Instant) {
        if self.is_resting(now) {
            return;
        }
        let doubled = BACK_OFF.saturating_mul(2_u32.saturating_pow(self.refusals));
        self.rests_until = Some(now + doubled.min(BACK_OFF_MAX));
        self.refusals += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shut_door_is_left_alone_for_longer_each_time() {
        let mut now = Instant::now();
        let mut back_off = BackOff::default();
        for rest_ms in [50, 100, 200, 400, 800, 1_000, 1_000] {
            assert!(!back_off.is_resting(now));
            back_off.refused(now);
            back_off.refused(now);
            let rest = Duration::from_millis(rest_ms);
            assert!(
                back_off.is_resting(now + rest - Duration::from_nanos(1)),
                "{rest_ms} ms"
            );
            now += rest;
        }
    }
}
