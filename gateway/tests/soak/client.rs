//! One request, and what its client saw of it.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How a request ended, as its client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saw {
    /// A whole answer.
    Whole,
    /// A stream that ended in an error event.
    Broken,
    /// An error with this status.
    Error(u16),
    /// It left before the end.
    Left,
    /// None of these: what must not be.
    Nonsense,
}

/// Connections that are open and have nothing to do.
#[derive(Default)]
pub struct Idle(Mutex<Vec<TcpStream>>);

impl Idle {
    fn take(&self) -> Option<TcpStream> {
        self.0.lock().unwrap().pop()
    }

    /// Closes them all.
    pub fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// A chat request, with its id in the header and in the prompt.
pub fn request(id: u64, is_stream: bool) -> Vec<u8> {
    let body = format!(
        r#"{{"model":"openai/m","stream":{is_stream},"messages":[{{"role":"user","content":"id={id:016x} {}"}}]}}"#,
        "x".repeat(100)
    );
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-request-id: {id:016x}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

/// Sends a request and reads its answer, unless the client's patience ends before.
pub async fn ask(
    address: SocketAddr,
    idle: &Idle,
    request: &[u8],
    patience: Option<Duration>,
) -> Saw {
    let patience = patience.unwrap_or(Duration::MAX);
    let answer = tokio::time::timeout(patience, answer(address, idle, request));
    match answer.await {
        Err(_) => Saw::Left,
        Ok(None) => Saw::Nonsense,
        Ok(Some(answer)) => judge(&answer),
    }
}

/// A connection that lay idle may have been closed by the gateway meanwhile. Where no byte came back on one, the request
/// is sent once more on a new one, as HTTP clients do; had it been served, it would have two records.
async fn answer(address: SocketAddr, idle: &Idle, request: &[u8]) -> Option<Vec<u8>> {
    if let Some(stream) = idle.take()
        && let Ok(answer) = exchange(stream, idle, request).await
    {
        return answer;
    }
    let stream = TcpStream::connect(address).await.ok()?;
    exchange(stream, idle, request).await.ok()?
}

/// Fails if the connection ended without a byte of an answer.
async fn exchange(
    mut stream: TcpStream,
    idle: &Idle,
    request: &[u8],
) -> std::io::Result<Option<Vec<u8>>> {
    stream.write_all(request).await?;
    let mut bytes = Vec::with_capacity(2048);
    if stream.read_buf(&mut bytes).await? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let answer = read(&mut stream, bytes).await;
    if answer.is_some() {
        idle.0.lock().unwrap().push(stream);
    }
    Ok(answer)
}

fn judge(answer: &[u8]) -> Saw {
    let text = String::from_utf8_lossy(answer);
    let status = text.get(9..12).and_then(|status| status.parse().ok());
    let is_stream = text.contains("text/event-stream");
    let (has_error, is_done) = (text.contains("\"error\""), text.contains("data: [DONE]"));
    match status {
        Some(200) if is_stream && is_done && !has_error => Saw::Whole,
        Some(200) if is_stream && has_error && !is_done => Saw::Broken,
        Some(200) if !is_stream && !has_error && text.ends_with('}') => Saw::Whole,
        Some(status @ 400..) if has_error => Saw::Error(status),
        _ => Saw::Nonsense,
    }
}

/// A whole answer, head and body, that begins with `bytes`; none if it broke off.
async fn read(stream: &mut TcpStream, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    loop {
        let Some(at) = memchr::memmem::find(&bytes, b"\r\n\r\n") else {
            more(stream, &mut bytes).await?;
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let is_whole = match length {
            Some(length) => bytes.len() >= at + 4 + length,
            None => bytes.ends_with(b"\r\n0\r\n\r\n"),
        };
        if is_whole {
            return Some(bytes);
        }
        more(stream, &mut bytes).await?;
    }
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let count = stream.read_buf(bytes).await.ok()?;
    (count > 0).then_some(())
}

/// Reads a stream up to its third event, and leaves.
pub async fn leave_early(address: SocketAddr, request: &[u8]) -> bool {
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return false;
    };
    if stream.write_all(request).await.is_err() {
        return false;
    }
    let mut bytes = vec![];
    while memchr::memmem::find_iter(&bytes, b"data: ").count() < 3 {
        if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            return false;
        }
    }
    true
}
