//! A client of few words for tests: one request a connection, everything read to its end.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer as it came, but for its chunks, which are joined.
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    /// The value of a header, whose name is written in lower case by both sides.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self
            .head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The data of a stream's events, each of which is one line and an empty one.
    pub(crate) fn events(&self) -> Vec<String> {
        let events = self.body.strip_suffix("\n\n").unwrap().split("\n\n");
        events
            .map(|event| event.strip_prefix("data: ").unwrap().to_owned())
            .collect()
    }
}

pub(crate) fn request(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: mock\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Reply {
    send(address, &request("GET", path, "")).await
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &str) -> Reply {
    send(address, &request("POST", path, body)).await
}

pub(crate) async fn send(address: SocketAddr, request: &str) -> Reply {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let chunked = head.contains("transfer-encoding: chunked");
    Reply {
        status: head[9..12].parse().unwrap(),
        head: head.to_owned(),
        body: if chunked {
            joined(body)
        } else {
            body.to_owned()
        },
    }
}

fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n").unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return body;
        }
        body.push_str(&rest[..length]);
        chunks = rest[length..].strip_prefix("\r\n").unwrap();
    }
}
