//! One request, and what its client saw of it.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use bifrost_shared::record::{Fault, Outcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How a request ended, as its client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saw {
    /// A whole answer.
    Whole,
    /// A stream that ended in an error event, for this reason.
    Broken(Fault),
    /// An error with this status, for this reason.
    Error(u16, Fault),
    /// It left before the end.
    Left,
    /// None of these: what must not be.
    Nonsense,
}

/// An answer, as its client has it.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub saw: Saw,
    /// Bytes of its body.
    pub bytes: u32,
}

impl Saw {
    /// The outcome that the gateway has to have recorded, and its fault; none where only the gateway can know.
    pub fn means(self) -> Option<(Outcome, Fault)> {
        match self {
            Self::Whole => Some((Outcome::Completed, Fault::None)),
            Self::Broken(fault) => Some((Outcome::Truncated, fault)),
            Self::Error(_, fault) => {
                let outcome = match fault {
                    Fault::Request => Outcome::Rejected,
                    Fault::QueueFull | Fault::QueueTimeout | Fault::Memory | Fault::Draining => {
                        Outcome::Refused
                    }
                    _ => Outcome::Failed,
                };
                Some((outcome, fault))
            }
            Self::Left | Self::Nonsense => None,
        }
    }
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
    post(id, &body)
}

/// A chat of that body, with its id in the header.
pub fn post(id: u64, body: &str) -> Vec<u8> {
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-request-id: {id:016x}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Sends a request and reads its answer, unless the client's patience ends before.
pub async fn ask(
    address: SocketAddr,
    idle: &Idle,
    request: &[u8],
    patience: Option<Duration>,
) -> Seen {
    let patience = patience.unwrap_or(Duration::MAX);
    let answer = tokio::time::timeout(patience, answer(address, idle, request));
    let (saw, bytes) = match answer.await {
        Err(_) => (Saw::Left, 0),
        Ok(None) => (Saw::Nonsense, 0),
        Ok(Some(answer)) => (judge(&answer), body_bytes(&answer)),
    };
    Seen { saw, bytes }
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
        Some(200) if is_stream && has_error && !is_done => Saw::Broken(fault(&text, 502)),
        Some(200) if !is_stream && !has_error && text.ends_with('}') => Saw::Whole,
        Some(status @ 400..) if has_error => Saw::Error(status, fault(&text, status)),
        _ => Saw::Nonsense,
    }
}

/// The class of an error, by its code. Any code that is none of the gateway's is the provider's own.
fn fault(answer: &str, status: u16) -> Fault {
    let code = answer.rsplit_once("\"code\":\"").unwrap_or_default().1;
    match code.split('"').next().unwrap_or_default() {
        "invalid_request" | "model_not_found" => Fault::Request,
        "queue_full" => Fault::QueueFull,
        "queue_timeout" => Fault::QueueTimeout,
        "over_memory_budget" => Fault::Memory,
        "draining" => Fault::Draining,
        "keys_resting" => Fault::KeysResting,
        "credentials_exhausted" => Fault::Credentials,
        "provider_unreachable" => Fault::Connect,
        "provider_broken" => Fault::Broken,
        "provider_timeout" => Fault::Silent,
        "deadline_exceeded" => Fault::Deadline,
        "bad_provider_answer" => Fault::Answer,
        "internal_error" => Fault::Internal,
        _ if status == 429 => Fault::RateLimited,
        _ => Fault::Status,
    }
}

/// Bytes of a whole answer's body, chunk sizes taken out.
fn body_bytes(answer: &[u8]) -> u32 {
    let at = memchr::memmem::find(answer, b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..at]).to_lowercase();
    let mut body = &answer[at + 4..];
    if !head.contains("transfer-encoding: chunked") {
        return u32::try_from(body.len()).unwrap();
    }
    let mut sum = 0;
    while let Some(end) = memchr::memmem::find(body, b"\r\n") {
        let size = std::str::from_utf8(&body[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        sum += size;
        body = body.get(end + 2 + size + 2..).unwrap_or_default();
    }
    u32::try_from(sum).unwrap()
}

/// Asks for what is at `path`, and gives back the answer's body.
pub async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    body.to_owned()
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
