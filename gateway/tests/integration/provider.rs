//! A provider that does exactly what its script says, byte for byte: stalls, cuts, resets included.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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
    /// The provider works for so long.
    Work(Duration),
    /// So many bytes, as events, as fast as they are taken.
    Flood(usize),
    /// Silence until the peer leaves.
    Stall,
    /// The connection is closed, whatever was promised.
    Close,
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
    /// The same, where it is no text.
    pub bytes: Vec<u8>,
    /// When its last byte came.
    pub at: Instant,
}

impl Seen {
    /// The key that it came with, in lower case.
    pub fn key(&self) -> &str {
        let (_, rest) = self.head.split_once("authorization: bearer ").unwrap();
        rest.lines().next().unwrap()
    }
}

type Answering = Box<dyn Fn(&Seen) -> Vec<Step> + Send>;

struct Scripts {
    next: VecDeque<Vec<Step>>,
    /// What requests behind the last script get.
    last: Answering,
}

/// A provider on a free port. The `n`th request gets the `n`th script; behind the last, a 500.
pub struct Provider {
    pub address: SocketAddr,
    scripts: Arc<Mutex<Scripts>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    flooded: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    left: mpsc::UnboundedReceiver<usize>,
}

impl Provider {
    pub async fn start(scripts: Vec<Vec<Step>>) -> Self {
        Self::scripted(Scripts {
            next: scripts.into(),
            last: Box::new(|_| json(500, r#"{"error":{"message":"the script is over"}}"#)),
        })
        .await
    }

    /// A provider that does the same for every request.
    pub async fn always(script: Vec<Step>) -> Self {
        Self::answering(move |_| script.clone()).await
    }

    /// A provider whose answer depends on what is asked.
    pub async fn answering(answer: impl Fn(&Seen) -> Vec<Step> + Send + 'static) -> Self {
        Self::scripted(Scripts {
            next: VecDeque::new(),
            last: Box::new(answer),
        })
        .await
    }

    async fn scripted(scripts: Scripts) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (leaves, left) = mpsc::unbounded_channel();
        let serving = Serving {
            scripts: Arc::new(Mutex::new(scripts)),
            seen: Arc::default(),
            flooded: Arc::default(),
            leaves,
        };
        let provider = Self {
            address,
            scripts: Arc::clone(&serving.scripts),
            seen: Arc::clone(&serving.seen),
            flooded: Arc::clone(&serving.flooded),
            connections: Arc::default(),
            left,
        };
        let connections = Arc::clone(&provider.connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // What was sent is on its way, and not waiting for an acknowledgement.
                stream.set_nodelay(true).unwrap();
                connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        provider
    }

    /// What the next request gets that has no script yet.
    pub fn then(&self, script: Vec<Step>) {
        self.scripts.lock().unwrap().next.push_back(script);
    }

    /// Connections that were opened.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Bytes of floods that were taken.
    pub fn flooded(&self) -> usize {
        self.flooded.load(Ordering::Relaxed)
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

/// A piece of a stream, as one HTTP chunk: the gateway gets it as a packet of its own, however the system joins what is
/// sent.
pub fn chunk(text: impl AsRef<[u8]>) -> Step {
    let text = text.as_ref();
    Step::Send([format!("{:x}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat())
}

/// A whole stream, in these pieces.
pub fn streamed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Step> {
    let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
    let mut script = vec![stream_head()];
    script.extend(pieces.map(chunk));
    script.push(last_chunk());
    script
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

#[derive(Clone)]
struct Serving {
    scripts: Arc<Mutex<Scripts>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    flooded: Arc<AtomicUsize>,
    leaves: mpsc::UnboundedSender<usize>,
}

impl Serving {
    async fn serve(self, mut stream: TcpStream) {
        while let Some(request) = read(&mut stream).await {
            let script = {
                let mut scripts = self.scripts.lock().unwrap();
                let next = scripts.next.pop_front();
                next.unwrap_or_else(|| (scripts.last)(&request))
            };
            let number = {
                let mut seen = self.seen.lock().unwrap();
                seen.push(request);
                seen.len() - 1
            };
            for step in script {
                let gone = match step {
                    Step::Send(bytes) => stream.write_all(&bytes).await.is_err(),
                    Step::Wait(gate) => tokio::select! {
                        () = gate.notified() => false,
                        () = peer_leaves(&mut stream) => true,
                    },
                    Step::Work(time) => tokio::time::timeout(time, peer_leaves(&mut stream))
                        .await
                        .is_ok(),
                    Step::Flood(bytes) => self.flood(&mut stream, bytes).await.is_err(),
                    Step::Stall => {
                        peer_leaves(&mut stream).await;
                        true
                    }
                    Step::Reset => {
                        // What the peer has not read yet goes with the connection.
                        tokio::time::sleep(Duration::from_millis(30)).await;
                        stream.set_zero_linger().unwrap();
                        return;
                    }
                    Step::Close => return,
                };
                if gone {
                    let _ = self.leaves.send(number);
                    return;
                }
            }
        }
    }

    async fn flood(&self, stream: &mut TcpStream, bytes: usize) -> std::io::Result<()> {
        let piece = delta(&"x".repeat(16 * 1024));
        let Step::Send(piece) = chunk(&piece) else {
            return Ok(());
        };
        let mut sent = 0;
        while sent < bytes {
            stream.write_all(&piece).await?;
            sent += piece.len();
            self.flooded.fetch_add(piece.len(), Ordering::Relaxed);
        }
        Ok(())
    }
}

async fn peer_leaves(stream: &mut TcpStream) {
    let mut byte = [0];
    while matches!(stream.read(&mut byte).await, Ok(1..)) {}
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = vec![];
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |text| text.parse().unwrap());
            if bytes.len() >= at + 4 + length {
                let bytes = bytes.split_off(at + 4);
                let body = String::from_utf8_lossy(&bytes).into_owned();
                let at = Instant::now();
                return Some(Seen {
                    head,
                    body,
                    bytes,
                    at,
                });
            }
        }
        match stream.read(&mut buffer).await {
            Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
    }
}
