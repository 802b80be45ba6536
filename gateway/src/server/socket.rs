//! A client's socket: which protocol it opens with, and whether the next request has begun to come.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;

/// What every HTTP/2 connection begins with. No request of HTTP/1 does: the third byte tells at the latest.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// A stream whose first bytes may have been looked at: they are read again.
pub(super) struct Socket<I> {
    io: I,
    first: [u8; PREFACE.len()],
    looked_at: usize,
    given: usize,
    heard: Heard,
}

/// Whether anything was read since the last question.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard(Arc<AtomicBool>);

impl<I: AsyncRead + Unpin> Socket<I> {
    pub(super) fn new(io: I) -> Self {
        Self {
            io,
            first: [0; PREFACE.len()],
            looked_at: 0,
            given: 0,
            heard: Heard::default(),
        }
    }

    pub(super) fn heard(&self) -> Heard {
        self.heard.clone()
    }

    /// Looks at the first bytes until they tell: of HTTP/1, what comes with the first packet.
    pub(super) async fn protocol(&mut self) -> io::Result<Protocol> {
        while PREFACE.starts_with(&self.first[..self.looked_at]) {
            if self.looked_at == PREFACE.len() {
                return Ok(Protocol::Http2);
            }
            let mut buffer = ReadBuf::new(&mut self.first[self.looked_at..]);
            poll_fn(|context| Pin::new(&mut self.io).poll_read(context, &mut buffer)).await?;
            let count = buffer.filled().len();
            if count == 0 {
                break;
            }
            self.looked_at += count;
        }
        Ok(Protocol::Http1)
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Socket<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let again = &this.first[this.given..this.looked_at];
        if again.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
            if buffer.filled().len() > before {
                this.heard.0.store(true, Ordering::Relaxed);
            }
            return Poll::Ready(Ok(()));
        }
        let count = again.len().min(buffer.remaining());
        buffer.put_slice(&again[..count]);
        this.given += count;
        this.heard.0.store(true, Ordering::Relaxed);
        // What came behind is taken along, so that a request is parsed once.
        if buffer.remaining() > 0
            && let Poll::Ready(Err(error)) = Pin::new(&mut this.io).poll_read(context, buffer)
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Socket<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// How long a connection may be idle while others wait for its place.
const SCARCE_IDLE: Duration = Duration::from_secs(1);

/// hyper has one time limit for both, waiting for a request and reading its head. Its timer knows which of them it is:
/// the limit that hyper asks for holds while nothing comes, unless places for connections are scarce, and this shorter
/// one from the head's first byte on.
pub(super) struct HeadTimer {
    pub(super) heard: Heard,
    pub(super) head: Duration,
    pub(super) places: Arc<Semaphore>,
}

struct HeadSleep {
    heard: Heard,
    head: Duration,
    /// What hyper asks for.
    limit: tokio::time::Instant,
    has_begun: bool,
    sleep: Pin<Box<tokio::time::Sleep>>,
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.heard.0.store(false, Ordering::Relaxed);
        let limit = tokio::time::Instant::from(deadline);
        let idle = if self.places.available_permits() == 0 {
            limit.min(tokio::time::Instant::now() + SCARCE_IDLE)
        } else {
            limit
        };
        Box::pin(HeadSleep {
            heard: self.heard.clone(),
            head: self.head,
            limit,
            has_begun: false,
            sleep: Box::pin(tokio::time::sleep_until(idle)),
        })
    }
}

impl Future for HeadSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if !this.has_begun && this.heard.0.load(Ordering::Relaxed) {
            this.has_begun = true;
            let end = this.limit.min(tokio::time::Instant::now() + this.head);
            if end != this.sleep.deadline() {
                this.sleep.as_mut().reset(end);
            }
        }
        this.sleep.as_mut().poll(context)
    }
}

impl Sleep for HeadSleep {}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Sends `parts`, one after the other is read, and answers the protocol with all that is read behind it.
    async fn look(parts: &[&[u8]]) -> (Protocol, Vec<u8>) {
        let (mut client, server) = tokio::io::duplex(3);
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        let sending = tokio::spawn(async move {
            for part in parts {
                client.write_all(&part).await.unwrap();
            }
        });
        let mut socket = Socket::new(server);
        let protocol = socket.protocol().await.unwrap();
        let mut read = vec![];
        socket.read_to_end(&mut read).await.unwrap();
        sending.await.unwrap();
        (protocol, read)
    }

    #[tokio::test]
    async fn the_first_bytes_tell_the_protocol_and_are_read_again() {
        for (sent, protocol) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], Protocol::Http1),
            (b"POST / HTTP/1.1\r\n\r\n", Protocol::Http1),
            (b"PROPFIND / HTTP/1.1\r\n\r\n", Protocol::Http1),
            (b"PRI * HTTP/1.1\r\n\r\n", Protocol::Http1),
            (b"P", Protocol::Http1),
            (b"", Protocol::Http1),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0", Protocol::Http2),
        ] {
            let read = (protocol, sent.to_vec());
            assert_eq!(look(&[sent]).await, read);
            let bytes: Vec<&[u8]> = sent.chunks(1).collect();
            assert_eq!(look(&bytes).await, read);
        }
    }

    #[tokio::test]
    async fn one_byte_of_another_method_is_enough() {
        let (mut client, server) = tokio::io::duplex(8);
        client.write_all(b"G").await.unwrap();
        assert_eq!(
            Socket::new(server).protocol().await.unwrap(),
            Protocol::Http1
        );
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_less_time_than_an_idle_connection() {
        let timer = HeadTimer {
            heard: Heard::default(),
            head: Duration::from_secs(10),
            places: Arc::new(Semaphore::new(1)),
        };
        let since = tokio::time::Instant::now();
        let sleep = || timer.sleep_until((since + Duration::from_secs(75)).into());
        let mut sleep_idle = sleep();
        tokio::select! {
            () = sleep_idle.as_mut() => unreachable!("it has more time"),
            () = tokio::time::sleep(Duration::from_secs(30)) => {}
        }
        timer.heard.0.store(true, Ordering::Relaxed);
        sleep_idle.await;
        assert_eq!(since.elapsed(), Duration::from_secs(40));
        sleep().await;
        assert_eq!(since.elapsed(), Duration::from_secs(75));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_has_less_time_while_others_wait_for_its_place() {
        let timer = HeadTimer {
            heard: Heard::default(),
            head: Duration::from_secs(10),
            places: Arc::new(Semaphore::new(0)),
        };
        let since = tokio::time::Instant::now();
        let sleep = || timer.sleep_until((since + Duration::from_secs(75)).into());
        sleep().await;
        assert_eq!(since.elapsed(), SCARCE_IDLE);
        let mut head = sleep();
        timer.heard.0.store(true, Ordering::Relaxed);
        head.as_mut().await;
        assert_eq!(since.elapsed(), SCARCE_IDLE + timer.head);
    }
}
