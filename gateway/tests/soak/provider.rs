//! A provider that fails in every way it can, by shares, and remembers who asked.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const COMPLETION: &str = r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#;
const DELTA: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},\"finish_reason\":null}]}\n\n";
const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

const SOON: &str = "retry-after-ms: 20\r\n";

/// How it behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// 5 % answers of 500, 5 % of 429, 2 % stalls, 2 % answers cut off, 1 % that are none; the others take some 50 ms.
    /// The model `down` always fails; `n` takes 30 ms, `spare` none, and neither of them fails.
    Faulty,
    /// Streams of 200 events, 10 ms apart.
    Long,
    /// No word to a large request; an answer to a small one.
    SilentToLarge,
    /// Whole answers after 5 ms, streams of 5 events 2 ms apart, and how long each took is remembered. It may close its
    /// connection behind each.
    Timed { closes: bool },
}

/// What is remembered of each request.
#[derive(Default)]
struct Log {
    asked: HashMap<u64, u32>,
    served: HashMap<u64, Duration>,
}

/// It lives on a thread of its own; all its connections are closed on drop.
pub struct Provider {
    pub address: SocketAddr,
    log: Arc<Mutex<Log>>,
    _stop: oneshot::Sender<()>,
}

impl Provider {
    pub fn start(manner: Manner) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Log::default()));
        let kept = Arc::clone(&log);
        let (stop, stopped) = oneshot::channel();
        let accept = async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve(stream, manner, Arc::clone(&log)));
            }
        };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                tokio::select! { () = accept => {}, _ = stopped => {} }
            });
        });
        Self {
            address,
            log: kept,
            _stop: stop,
        }
    }

    /// How often each request was asked here.
    pub fn asked(&self) -> HashMap<u64, u32> {
        self.log.lock().unwrap().asked.clone()
    }

    /// How long each request took here, from its last byte to its answer's.
    pub fn served(&self) -> HashMap<u64, Duration> {
        self.log.lock().unwrap().served.clone()
    }
}

async fn serve(mut stream: TcpStream, manner: Manner, log: Arc<Mutex<Log>>) {
    while let Some(body) = read(&mut stream).await {
        let (begun, id) = (Instant::now(), id_of(&body));
        if let Some(id) = id {
            *log.lock().unwrap().asked.entry(id).or_insert(0) += 1;
        }
        let is_stream = memchr::memmem::find(&body, b"\"stream\":true").is_some();
        let done = match manner {
            Manner::Faulty => match model_of(&body) {
                b"down" => stream.write_all(refusal(503, "").as_bytes()).await,
                b"spare" => send_whole(&mut stream).await,
                b"n" => {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    send_whole(&mut stream).await
                }
                _ => answer_or_fail(&mut stream, is_stream).await,
            },
            Manner::Long => send_stream(&mut stream, 200, Duration::from_millis(10)).await,
            Manner::SilentToLarge if body.len() > 1 << 20 => stall(&mut stream).await,
            Manner::SilentToLarge => send_whole(&mut stream).await,
            Manner::Timed { .. } if is_stream => {
                send_stream(&mut stream, 5, Duration::from_millis(2)).await
            }
            Manner::Timed { .. } => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                send_whole(&mut stream).await
            }
        };
        if let (Some(id), Manner::Timed { .. }) = (id, manner) {
            log.lock().unwrap().served.insert(id, begun.elapsed());
        }
        if manner == (Manner::Timed { closes: true }) {
            return;
        }
        if done.is_err() {
            return;
        }
    }
}

/// An error of the provider's own.
fn refusal(status: u16, headers: &str) -> String {
    let body = r#"{"error":{"message":"no","type":"t","code":"c"}}"#;
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn answer_or_fail(stream: &mut TcpStream, is_stream: bool) -> std::io::Result<()> {
    let fate = fastrand::u32(..100);
    tokio::time::sleep(Duration::from_millis(fastrand::u64(10..60))).await;
    match fate {
        0..5 => stream.write_all(refusal(500, SOON).as_bytes()).await,
        5..10 => stream.write_all(refusal(429, SOON).as_bytes()).await,
        11 if is_stream => {
            begin_stream(stream).await?;
            stall(stream).await
        }
        10 | 11 => stall(stream).await,
        12 => {
            stream.set_zero_linger()?;
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
        13 if is_stream => {
            begin_stream(stream).await?;
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
        13 => {
            let half = format!("HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{COMPLETION}");
            stream.write_all(half.as_bytes()).await?;
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
        // Ended as HTTP has it, and yet not whole.
        14 if is_stream => {
            begin_stream(stream).await?;
            stream.write_all(b"0\r\n\r\n").await
        }
        14 => send_json(stream, "null").await,
        _ if is_stream => send_stream(stream, 5, Duration::from_millis(10)).await,
        _ => send_whole(stream).await,
    }
}

async fn send_whole(stream: &mut TcpStream) -> std::io::Result<()> {
    send_json(stream, COMPLETION).await
}

async fn send_json(stream: &mut TcpStream, body: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).await
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

async fn begin_stream(stream: &mut TcpStream) -> std::io::Result<()> {
    let begin = format!("{STREAM_HEAD}{}", chunk(DELTA));
    stream.write_all(begin.as_bytes()).await
}

async fn send_stream(stream: &mut TcpStream, events: u32, gap: Duration) -> std::io::Result<()> {
    begin_stream(stream).await?;
    for _ in 1..events {
        tokio::time::sleep(gap).await;
        stream.write_all(chunk(DELTA).as_bytes()).await?;
    }
    stream
        .write_all(format!("{}0\r\n\r\n", chunk(END)).as_bytes())
        .await
}

/// Silence until the peer leaves.
async fn stall(stream: &mut TcpStream) -> std::io::Result<()> {
    while stream.read(&mut [0; 1024]).await? > 0 {}
    Err(std::io::ErrorKind::UnexpectedEof.into())
}

/// The body of the next request.
async fn read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = vec![];
    loop {
        if let Some(at) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            if bytes.len() >= at + 4 + length.unwrap_or(0) {
                return Some(bytes.split_off(at + 4));
            }
        }
        match stream.read_buf(&mut bytes).await {
            Ok(1..) => {}
            _ => return None,
        }
    }
}

/// The model that a body asks for; it is its first member.
fn model_of(body: &[u8]) -> &[u8] {
    let rest = body.strip_prefix(b"{\"model\":\"").unwrap_or_default();
    rest.split(|byte| *byte == b'"').next().unwrap_or_default()
}

/// The id that a client wrote into its prompt.
fn id_of(body: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(body, b"id=")?;
    let digits = std::str::from_utf8(body.get(at + 3..at + 19)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}
