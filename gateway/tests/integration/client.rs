//! A client that sends what it is told and keeps what it gets, byte for byte.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One connection.
pub struct Client {
    stream: TcpStream,
    /// What has come so far.
    pub received: Vec<u8>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The head, in lower case.
    pub head: String,
    /// The body, with chunk sizes taken out.
    pub body: String,
    /// Whether it ended as its framing promised.
    pub whole: bool,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A chat's body.
pub fn chat(model: &str) -> String {
    format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#)
}

/// A chat's body that asks for a stream.
pub fn stream(model: &str) -> String {
    format!(r#"{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"hi"}}]}}"#)
}

/// Sends a chat and waits for its whole answer.
pub async fn ask(address: SocketAddr, body: &str) -> Answer {
    Client::post(address, body).await.answer().await
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(address).await.unwrap(),
            received: vec![],
        }
    }

    /// Sends a chat.
    pub async fn post(address: SocketAddr, body: &str) -> Self {
        let mut client = Self::connect(address).await;
        client.send_chat("", body).await;
        client
    }

    /// Sends a chat with further header lines, each with its line end.
    pub async fn send_chat(&mut self, headers: &str, body: &str) {
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body.as_bytes()].concat())
            .await;
    }

    /// Sends a chat on a connection that may be kept.
    pub async fn send_kept(&mut self, body: &str) {
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body.as_bytes()].concat())
            .await;
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Whether the connection still takes `bytes`.
    pub async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Waits until `text` has come.
    pub async fn until(&mut self, text: &str) {
        tokio::time::timeout(PATIENCE, async {
            while !String::from_utf8_lossy(&self.received).contains(text) {
                let mut buffer = [0; 4 * 1024];
                let count = self.stream.read(&mut buffer).await.unwrap();
                assert!(
                    count > 0,
                    "ended before {text:?}: {:?}",
                    String::from_utf8_lossy(&self.received)
                );
                self.received.extend_from_slice(&buffer[..count]);
            }
        })
        .await
        .unwrap_or_else(|_| {
            panic!(
                "no {text:?} within {PATIENCE:?}: {:?}",
                String::from_utf8_lossy(&self.received)
            )
        });
    }

    /// Waits for the end of the connection.
    pub async fn answer(mut self) -> Answer {
        // A reset is an end, too.
        let end = tokio::time::timeout(PATIENCE, self.stream.read_to_end(&mut self.received)).await;
        end.unwrap_or_else(|_| panic!("no end within {PATIENCE:?}"))
            .ok();
        parse(&self.received)
    }
}

fn parse(received: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(received).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let head = head.to_lowercase();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    let (body, whole) = match length {
        Some(length) => (body.to_owned(), body.len() == length),
        None if head.contains("transfer-encoding: chunked") => dechunk(body),
        None => (body.to_owned(), true),
    };
    Answer {
        status,
        head,
        body,
        whole,
    }
}

fn dechunk(mut text: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size, 16) else {
            break;
        };
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = rest.get(..size) else { break };
        body.push_str(chunk);
        text = rest.get(size + 2..).unwrap_or_default();
    }
    (body, false)
}
