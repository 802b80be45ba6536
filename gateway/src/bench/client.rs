//! One target, and the connections to it: asks, and says how it ended and how long each part took.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::target::{Dialect, Target};
use crate::load::pool::{Connection, Given, Pool};
use crate::sse::Splitter;

/// Where an answer says how long its provider really took, as our mock and OpenAI do.
const SERVICE: &str = "openai-processing-ms";

/// How a request ended: in one of these, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A whole answer with a status of 200, and content in it.
    Ok,
    /// The same without: nothing, or something else, or an error.
    NoAnswer,
    /// A whole answer with another one.
    Status(u16),
    /// The connection broke, or the answer ended before its end.
    Broken,
    /// Not within the time allowed.
    TimedOut,
    /// No connection was to be had.
    ConnectFailed,
}

/// What one request came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) outcome: Outcome,
    pub(super) ended: Instant,
    /// How long the provider says that it took.
    pub(super) service: Option<Duration>,
    /// When the first content of a stream came.
    pub(super) first_event: Option<Instant>,
    pub(super) bytes: u64,
    /// Events of a stream that carry content.
    pub(super) events: u32,
}

/// The client of one target.
pub(super) struct Client {
    dialect: Dialect,
    uri: Uri,
    headers: HeaderMap,
    time_max: Duration,
    pool: Pool,
}

impl Client {
    pub(super) fn new(target: &Target, time_max: Duration) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::try_from(&target.host)?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match target.dialect {
            Dialect::Openai => {
                let bearer = format!("Bearer {}", target.key);
                headers.insert(AUTHORIZATION, HeaderValue::try_from(bearer)?);
            }
            Dialect::Anthropic => {
                headers.insert("x-api-key", HeaderValue::try_from(&target.key)?);
                headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
            }
        }
        for (name, value) in &target.headers {
            let name = HeaderName::try_from(name)?;
            headers.insert(name, HeaderValue::try_from(value)?);
        }
        Ok(Self {
            uri: Uri::try_from(&target.path)?,
            dialect: target.dialect,
            headers,
            time_max,
            pool: Pool::new(target.address),
        })
    }

    /// Sends `body` and reads the answer to its end.
    pub(super) async fn ask(&self, body: Bytes, is_stream: bool) -> Seen {
        let mut reading = Reading::new(is_stream, self.dialect);
        let asked = timeout(self.time_max, self.exchange(body, &mut reading)).await;
        let outcome = asked.unwrap_or(Outcome::TimedOut);
        Seen {
            outcome,
            ended: Instant::now(),
            service: reading.service,
            first_event: reading.first_event,
            bytes: reading.bytes,
            events: reading.events,
        }
    }

    async fn exchange(&self, body: Bytes, reading: &mut Reading) -> Outcome {
        let (connection, response) = match self.send(body).await {
            Ok(answered) => answered,
            Err(outcome) => return outcome,
        };
        let status = response.status();
        reading.service = told_service(response.headers());
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Outcome::Broken;
            };
            if let Some(data) = frame.data_ref() {
                reading.take(data);
            }
        }
        self.pool.keep(connection).await;
        match status.as_u16() {
            200 => reading.outcome(),
            other => Outcome::Status(other),
        }
    }

    async fn send(&self, body: Bytes) -> Result<(Connection, Response<Incoming>), Outcome> {
        let request = match self.pool.give(self.request(body)).await {
            Given::Answered(connection, response) => return Ok((connection, response)),
            Given::Broken(_) => return Err(Outcome::Broken),
            Given::Unsent(request) => request,
        };
        let opened = self.pool.open().await;
        let mut connection = opened.map_err(|_| Outcome::ConnectFailed)?;
        match connection.send_request(request).await {
            Ok(response) => Ok((connection, response)),
            Err(_) => Err(Outcome::Broken),
        }
    }

    fn request(&self, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// What has been read of an answer.
struct Reading {
    dialect: Dialect,
    stream: Option<Stream>,
    /// Of a plain answer.
    body: Vec<Bytes>,
    service: Option<Duration>,
    first_event: Option<Instant>,
    bytes: u64,
    events: u32,
}

/// A stream being read.
struct Stream {
    splitter: Splitter,
    has_ended: bool,
}

impl Reading {
    fn new(is_stream: bool, dialect: Dialect) -> Self {
        Self {
            dialect,
            stream: is_stream.then(|| Stream {
                splitter: Splitter::default(),
                has_ended: false,
            }),
            body: vec![],
            service: None,
            first_event: None,
            bytes: 0,
            events: 0,
        }
    }

    fn take(&mut self, data: &Bytes) {
        self.bytes += data.len() as u64;
        let Some(stream) = &mut self.stream else {
            self.body.push(data.clone());
            return;
        };
        let Ok(events) = stream.splitter.push(data) else {
            return;
        };
        let found = self.dialect.contents(&events);
        self.events += u32::try_from(found).unwrap_or(u32::MAX);
        if found > 0 && self.first_event.is_none() {
            self.first_event = Some(Instant::now());
        }
        stream.has_ended |= self.dialect.is_end(&events);
    }

    /// What it is, being whole by HTTP. A stream without its end mark was cut short even so.
    fn outcome(&self) -> Outcome {
        let has_content = match (&self.stream, &self.body[..]) {
            (Some(stream), _) if !stream.has_ended => return Outcome::Broken,
            (Some(_), _) => self.events > 0,
            (None, [one]) => self.dialect.is_answer(one),
            (None, several) => self.dialect.is_answer(&several.concat()),
        };
        if has_content {
            Outcome::Ok
        } else {
            Outcome::NoAnswer
        }
    }
}

/// Milliseconds, with decimals allowed.
fn told_service(headers: &HeaderMap) -> Option<Duration> {
    let told: f64 = headers.get(SERVICE)?.to_str().ok()?.parse().ok()?;
    Duration::try_from_secs_f64(told / 1e3).ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn read(packets: &[&'static str], dialect: Dialect) -> Reading {
        let mut reading = Reading::new(true, dialect);
        for packet in packets {
            reading.take(&Bytes::from_static(packet.as_bytes()));
        }
        reading
    }

    #[test]
    fn a_stream_s_content_is_counted_wherever_its_packets_are_cut() {
        let check = |packets: &[&'static str], dialect, events, outcome| {
            let reading = read(packets, dialect);
            assert_eq!(
                (reading.events, reading.outcome()),
                (events, outcome),
                "{packets:?}"
            );
            assert_eq!(reading.first_event.is_some(), events > 0);
        };
        let openai = Dialect::Openai;
        check(
            &[
                "data: {\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}\n\ndata: {\"delta\":{\"con",
                "tent\":\"a\"}}\n\ndata: {\"delta\":{\"content\":\"b\"}}\n\n",
                "data: [DO",
                "NE]\n\n",
            ],
            openai,
            2,
            Outcome::Ok,
        );
        // As others write the same.
        check(
            &[
                "data:{\"delta\": {\"content\": \"a\"}}\n\ndata:{\"delta\": {\"content\": \"\"}}\n\ndata:[DONE]\n\n",
            ],
            openai,
            1,
            Outcome::Ok,
        );
        check(
            &["data: {\"error\":{}}\n\ndata: [DONE]\n\n"],
            openai,
            0,
            Outcome::NoAnswer,
        );
        check(
            &["data: {\"delta\":{\"content\":\"a\"}}\n\n"],
            openai,
            1,
            Outcome::Broken,
        );
        check(&[], openai, 0, Outcome::Broken);
        check(
            &[
                "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n",
                "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            ],
            Dialect::Anthropic,
            1,
            Outcome::Ok,
        );
    }

    /// What a load makes of such an answer to a plain request.
    async fn outcome_of(answer: &'static str) -> Outcome {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4_096];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream
        };
        let target = Target::new(&url, Dialect::Openai).unwrap();
        let client = Client::new(&target, Duration::from_secs(20)).unwrap();
        let ask = client.ask(Bytes::from_static(b"{}"), false);
        tokio::join!(serve, ask).1.outcome
    }

    #[tokio::test]
    async fn a_status_of_success_alone_is_no_answer() {
        let check = async |answer, expected| {
            assert_eq!(outcome_of(answer).await, expected, "{answer}");
        };
        let good = "HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"choices\":[]}";
        check(good, Outcome::Ok).await;
        let nothing = "HTTP/1.1 204 No Content\r\n\r\n";
        check(nothing, Outcome::Status(204)).await;
        let empty = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        check(empty, Outcome::NoAnswer).await;
        let error = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"error\":{}}";
        check(error, Outcome::NoAnswer).await;
    }

    #[test]
    fn the_service_time_is_told_in_milliseconds() {
        let check = |text: &'static str, expected| {
            let mut headers = HeaderMap::new();
            headers.insert(SERVICE, HeaderValue::from_static(text));
            assert_eq!(told_service(&headers), expected, "{text}");
        };
        check("1500.250", Some(Duration::from_micros(1_500_250)));
        check("12", Some(Duration::from_millis(12)));
        check("-1", None);
        check("soon", None);
    }
}
