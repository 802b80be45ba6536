//! A provider that does exactly what its script says, byte for byte: stalls, cuts, resets included.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

/// One step of an answer.
#[derive(Debug, Clone)]
pub enum Step {
    /// These bytes go out.
    Send(Vec<u8>),
    /// Nothing happens until the test says so.
    Wait(Arc<Notify>),
    /// Silence until the peer leaves.
    Stall,
    /// The connection is reset.
    Reset,
}

/// What the provider saw.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The request's head, in lower case.
    pub head: String,
    /// Its body.
    pub body: String,
}

/// A provider on a free port. The `n`th request gets the `n`th script; behind the last, a 500.
pub struct Provider {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    left: mpsc::UnboundedReceiver<usize>,
}

impl Provider {
    pub async fn start(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (scripts, seen) = (
            Arc::new(Mutex::new(VecDeque::from(scripts))),
            Arc::new(Mutex::new(vec![])),
        );
        let (leaves, left) = mpsc::unbounded_channel();
        let shared = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(
                    stream,
                    Arc::clone(&scripts),
                    Arc::clone(&shared),
                    leaves.clone(),
                ));
            }
        });
        Self {
            address,
            seen,
            left,
        }
    }

    /// The requests that have come, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until so many requests have come.
    pub async fn until_seen(&self, count: usize) {
        let mut look = tokio::time::interval(Duration::from_millis(2));
        let found = tokio::time::timeout(Duration::from_secs(10), async {
            while self.seen().len() < count {
                look.tick().await;
            }
        });
        found.await.expect("so many requests come");
    }

    /// Waits until a peer has left in the middle of an answer, and says which request's.
    pub async fn left(&mut self) -> usize {
        tokio::time::timeout(Duration::from_secs(10), self.left.recv())
            .await
            .expect("the gateway lets go")
            .unwrap()
    }
}

/// An answer with a length.
pub fn json(status: u16, body: &str) -> Vec<Step> {
    json_with(status, "", body)
}

/// An answer with a length and further header lines, each with its line end.
pub fn json_with(status: u16, headers: &str, body: &str) -> Vec<Step> {
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    vec![Step::Send([head.as_bytes(), body.as_bytes()].concat())]
}

/// The head of a stream.
pub fn stream_head() -> Step {
    Step::Send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec(),
    )
}

/// A piece of a stream, as one HTTP chunk.
pub fn chunk(text: &str) -> Step {
    Step::Send(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
}

/// The proper end of a stream.
pub fn last_chunk() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}

/// An event with a piece of text.
pub fn delta(text: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// The event that says why the model stopped.
pub const FINISH: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

/// The terminator.
pub const DONE: &str = "data: [DONE]\n\n";

/// A whole chat completion.
pub const COMPLETION: &str = r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}"#;

async fn serve(
    mut stream: TcpStream,
    scripts: Arc<Mutex<VecDeque<Vec<Step>>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    leaves: mpsc::UnboundedSender<usize>,
) {
    while let Some(request) = read(&mut stream).await {
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(request);
            seen.len() - 1
        };
        let script = scripts.lock().unwrap().pop_front();
        let script =
            script.unwrap_or_else(|| json(500, r#"{"error":{"message":"the script is over"}}"#));
        for step in script {
            let gone = match step {
                Step::Send(bytes) => stream.write_all(&bytes).await.is_err(),
                Step::Wait(gate) => tokio::select! {
                    () = gate.notified() => false,
                    () = peer_leaves(&mut stream) => true,
                },
                Step::Stall => {
                    peer_leaves(&mut stream).await;
                    true
                }
                Step::Reset => {
                    stream.set_zero_linger().unwrap();
                    return;
                }
            };
            if gone {
                let _ = leaves.send(number);
                return;
            }
        }
    }
}

async fn peer_leaves(stream: &mut TcpStream) {
    let mut byte = [0];
    while matches!(stream.read(&mut byte).await, Ok(1..)) {}
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = vec![];
    let mut buffer = [0; 4 * 1024];
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |text| text.parse().unwrap());
            if bytes.len() >= at + 4 + length {
                let body = String::from_utf8_lossy(&bytes[at + 4..]).into_owned();
                return Some(Seen { head, body });
            }
        }
        match stream.read(&mut buffer).await {
            Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
    }
}
