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
    /// The same, where it is no text.
    pub bytes: Vec<u8>,
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

/// Asks for what is at `path`.
pub async fn get(address: SocketAddr, path: &str) -> Answer {
    let mut client = Client::connect(address).await;
    client
        .send(
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                .as_bytes(),
        )
        .await;
    client.answer().await
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
    pub async fn send_chat(&mut self, headers: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        // Who refuses a large one need not read on: what it answers tells.
        self.send_in_vain(&[head.as_bytes(), body].concat()).await;
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

    /// Sends as much of `bytes` as is taken: a gateway that refuses need not read on.
    pub async fn send_in_vain(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
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
    let end = received.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = match end {
        Some(end) => (&received[..end], &received[end + 4..]),
        None => (received, &b""[..]),
    };
    let head = String::from_utf8_lossy(head).to_lowercase();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    let (bytes, whole) = match length {
        Some(length) => (body.to_vec(), body.len() == length),
        None if head.contains("transfer-encoding: chunked") => dechunk(body),
        None => (body.to_vec(), true),
    };
    Answer {
        status,
        head,
        body: String::from_utf8_lossy(&bytes).into_owned(),
        bytes,
        whole,
    }
}

fn dechunk(mut left: &[u8]) -> (Vec<u8>, bool) {
    let mut body = vec![];
    while let Some(at) = left.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&left[..at]).ok();
        let Some(size) = size.and_then(|size| usize::from_str_radix(size, 16).ok()) else {
            break;
        };
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = left.get(at + 2..at + 2 + size) else {
            break;
        };
        body.extend_from_slice(chunk);
        left = left.get(at + 4 + size..).unwrap_or_default();
    }
    (body, false)
}
