//! The gateway's front door as a client sees it: keep-alive connections, and patience while it is shut.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::Failure;
use super::pool::{Connection, Given, Pool};

/// How long to stay away after the first refusal, doubled with each further one, to at most the second.
const BACK_OFF: Duration = Duration::from_millis(50);
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// One target, with the connections to it that wait for their next request.
#[derive(Debug)]
pub(super) struct Door {
    target: SocketAddr,
    host: HeaderValue,
    pool: Pool,
    /// Not locked across an await.
    back_off: Mutex<BackOff>,
}

impl Door {
    pub(super) fn new(target: SocketAddr) -> Self {
        Self {
            target,
            host: HeaderValue::try_from(target.to_string()).expect("an address can be a header"),
            pool: Pool::new(target),
            back_off: Mutex::default(),
        }
    }

    /// Sends `body` and reads the answer to its last byte; anything but a 200 is a failure.
    pub(super) async fn ask(&self, body: Bytes) -> Result<Bytes, Failure> {
        let (connection, response) = self.send(body).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        self.pool.keep(connection).await;
        if status != StatusCode::OK {
            return Err(Failure::Status(status));
        }
        Ok(answer)
    }

    async fn send(&self, body: Bytes) -> Result<(Connection, Response<Incoming>), Failure> {
        let request = match self.pool.give(self.request(body)).await {
            Given::Answered(connection, response) => return Ok((connection, response)),
            Given::Broken(error) => return Err(error.into()),
            Given::Unsent(request) => request,
        };
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

    async fn connect(&self) -> Result<Connection, Failure> {
        if self.back_off().is_resting(Instant::now()) {
            return Err(Failure::Resting(self.target));
        }
        match self.pool.open().await {
            Ok(connection) => {
                *self.back_off() = BackOff::default();
                Ok(connection)
            }
            Err(error) => {
                self.back_off().refused(Instant::now());
                Err(Failure::Unreachable(self.target, error))
            }
        }
    }

    fn back_off(&self) -> MutexGuard<'_, BackOff> {
        self.back_off.lock().unwrap_or_else(PoisonError::into_inner)
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
