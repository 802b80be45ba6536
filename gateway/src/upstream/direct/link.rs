//! One connection, driven by whoever uses it.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Wake, Waker, ready};

use atomic_waker::AtomicWaker;
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tokio_rustls::client::TlsStream;

use super::Request;

/// How often a connection is driven in one go. It comes to two; more is the task's budget being used up, and goes on
/// when the task is polled next.
const ROUNDS_MAX: usize = 3;
/// How many requests go through hyper's part of a connection, which is then made anew. They reach it by a channel of
/// blocks that have room for 32, 9 KB: a block is touched request by request, and from the 33rd on there are two for
/// good. Measured at 5,000/s for 1.5 s each: RSS was 331 MB after 20 s and 412 MB after 80 s, and is 302 and 306;
/// processor time a request, alternated, was 39.8, 40.5 and later 49.9 µs, and is 41.1 and 48.4.
const ASKED_MAX: u32 = 4;

/// A connection, and the end of it that takes requests.
///
/// hyper has the two talk by channels, and each channel wakes whoever waits at its other end. Here both ends are one
/// task, so the connection has a waker of its own: what it is woken for while it is attended to is done there and then,
/// and anything else wakes the task. What nothing has woken has nothing new, and is not asked.
pub(super) struct Link {
    requests: SendRequest<Full<Bytes>>,
    /// None once it has ended.
    connection: Option<Connection<Io, Full<Bytes>>>,
    alarm: Arc<Alarm>,
    /// The alarm's.
    waker: Waker,
    /// What is waited for had not come when the connection was last driven.
    is_waiting: bool,
    /// Requests that went through hyper's part of it, [`ASKED_MAX`] at most.
    asked: u32,
}

/// What a connection goes over.
pub(super) enum Io {
    Tcp(TokioIo<TcpStream>),
    /// In a box, or every connection would have room for a TLS session.
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

/// Remembers that a connection has something to do, and wakes the task that uses it unless that is at it already.
struct Alarm {
    is_due: AtomicBool,
    is_attended: AtomicBool,
    task: AtomicWaker,
}

impl Link {
    /// HTTP/1.1 over `io`. Nothing is sent yet.
    pub(super) async fn new(io: Io) -> hyper::Result<Self> {
        let (requests, connection) = ends(io).await?;
        let alarm = Arc::new(Alarm {
            is_due: AtomicBool::new(true),
            is_attended: AtomicBool::new(false),
            task: AtomicWaker::new(),
        });
        Ok(Self {
            requests,
            connection: Some(connection),
            waker: Waker::from(Arc::clone(&alarm)),
            alarm,
            is_waiting: false,
            asked: 0,
        })
    }

    /// Sends `request` and waits for the answer's head.
    ///
    /// # Errors
    ///
    /// With the request in it, if nothing of it was written.
    pub(super) async fn ask(
        &mut self,
        request: Request,
    ) -> Result<http::Response<Incoming>, TrySendError<Request>> {
        if self.asked >= ASKED_MAX {
            // In a box, or each request in flight would have room for it.
            Box::pin(self.renew()).await;
        }
        self.asked += 1;
        let mut answer = pin!(unconstrained(self.requests.try_send_request(request)));
        self.is_waiting = false;
        // Even if tokio's budget has kept the connection from listening.
        self.alarm.is_due.store(true, SeqCst);
        poll_fn(|context| self.attend(context, || answer.as_mut().poll(&mut asking()))).await
    }

    /// The next bytes of an answer; none at its proper end.
    pub(super) fn poll_data(
        &mut self,
        incoming: &mut Incoming,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Bytes>>> {
        loop {
            match ready!(self.attend(context, || poll_frame(incoming))) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                // Trailers say nothing that we pass on.
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
            }
        }
    }

    /// Whether it can take another request. Nobody is woken by it until then. Its last one was written to the end, too: a
    /// provider may answer before it has read that, and would take what is sent behind for a part of it.
    pub(super) fn is_free(&mut self) -> bool {
        drop(self.alarm.task.take());
        !self.has_ended() && self.requests.is_ready()
    }

    /// Whether the other end has closed it, or sent what nobody asked for.
    pub(super) fn has_ended(&mut self) -> bool {
        if self.alarm.is_due.swap(false, SeqCst) {
            self.drive();
        }
        self.connection.is_none()
    }

    /// Makes hyper's part of a free connection anew. Nothing that is to be written is lost with the old one: hyper is not
    /// free before a body's last byte went to the socket, as long as [`Io`] takes several slices at once.
    async fn renew(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        let parts = connection.into_parts();
        // hyper ends one that was sent what nobody asked for, and the new part looks before it writes.
        if parts.read_buf.is_empty()
            && let Ok((requests, connection)) = ends(parts.io).await
        {
            self.requests = requests;
            self.connection = Some(connection);
            self.asked = 0;
        }
    }

    /// Does what there is to do, and asks for what is waited for.
    fn attend<T>(
        &mut self,
        context: &mut Context<'_>,
        mut answer: impl FnMut() -> Poll<T>,
    ) -> Poll<T> {
        self.alarm.task.register(context.waker());
        if self.is_waiting && !self.alarm.is_due.load(SeqCst) {
            return Poll::Pending;
        }
        self.alarm.is_attended.store(true, SeqCst);
        let answer = self.work(&mut answer);
        self.alarm.is_attended.store(false, SeqCst);
        self.is_waiting = answer.is_pending();
        if self.is_waiting && self.alarm.is_due.load(SeqCst) {
            context.waker().wake_by_ref();
        }
        answer
    }

    fn work<T>(&mut self, answer: &mut impl FnMut() -> Poll<T>) -> Poll<T> {
        for _ in 0..ROUNDS_MAX {
            if self.alarm.is_due.swap(false, SeqCst) {
                self.drive();
            }
            let answer = answer();
            if answer.is_ready() || !self.alarm.is_due.load(SeqCst) {
                return answer;
            }
        }
        Poll::Pending
    }

    /// Polls a connection that has not ended.
    fn drive(&mut self) {
        if let Some(open) = &mut self.connection
            && Pin::new(open)
                .poll(&mut Context::from_waker(&self.waker))
                .is_ready()
        {
            // Whoever waits for something of it learns by its drop that there will be nothing.
            self.connection = None;
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_due.swap(true, SeqCst) && !self.is_attended.load(SeqCst) {
            self.task.wake();
        }
    }
}

/// hyper's two ends of HTTP/1.1 over `io`. hyper has it async, and never waits.
async fn ends(io: Io) -> hyper::Result<(SendRequest<Full<Bytes>>, Connection<Io, Full<Bytes>>)> {
    Builder::new().handshake(io).await
}

fn poll_frame(incoming: &mut Incoming) -> Poll<Option<hyper::Result<hyper::body::Frame<Bytes>>>> {
    let frame = poll_fn(|context| Pin::new(&mut *incoming).poll_frame(context));
    pin!(unconstrained(frame)).poll(&mut asking())
}

/// To ask what is there already, without tokio's budget, which counts on somebody being woken.
fn asking() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(io) => Pin::new(io).poll_read(context, buffer),
            Self::Tls(io) => Pin::new(io).poll_read(context, buffer),
        }
    }
}

impl Write for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(io) => Pin::new(io).poll_write(context, bytes),
            Self::Tls(io) => Pin::new(io).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(io) => Pin::new(io).poll_write_vectored(context, slices),
            Self::Tls(io) => Pin::new(io).poll_write_vectored(context, slices),
        }
    }

    /// Both are. It has to be so: only then hyper keeps a body apart, and is not free before it is written.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(io) => Pin::new(io).poll_flush(context),
            Self::Tls(io) => Pin::new(io).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(io) => Pin::new(io).poll_shutdown(context),
            Self::Tls(io) => Pin::new(io).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na";
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

    fn request() -> Request {
        http::Request::new(Full::new(Bytes::new()))
    }

    /// A connection on which an answer's head has come, and the other end of it.
    async fn answered() -> (Link, Incoming, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut other_end, _) = listener.accept().await.unwrap();
        let mut link = Link::new(Io::Tcp(TokioIo::new(stream))).await.unwrap();
        let answering = async {
            assert!(other_end.read(&mut [0; 100]).await.unwrap() > 0);
            other_end.write_all(HEAD).await.unwrap();
        };
        let (answer, ()) = tokio::join!(link.ask(request()), answering);
        let Ok(answer) = answer else {
            panic!("it has answered");
        };
        (link, answer.into_body(), other_end)
    }

    async fn data(link: &mut Link, incoming: &mut Incoming) -> Option<Bytes> {
        let data = poll_fn(|context| link.poll_data(incoming, context));
        let data = tokio::time::timeout(Duration::from_mins(1), data).await;
        data.expect("it came").transpose().unwrap()
    }

    #[tokio::test]
    async fn a_task_is_woken_for_what_comes_and_for_nothing_else() {
        let (mut link, mut incoming, mut other_end) = answered().await;
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut poll = || link.poll_data(&mut incoming, &mut Context::from_waker(&waker));
        for byte in *b"abc" {
            assert!(poll().is_pending());
            assert!(!woken.0.load(SeqCst), "there is nothing");
            let chunk = [b'1', b'\r', b'\n', byte, b'\r', b'\n'];
            other_end.write_all(&chunk).await.unwrap();
            while !woken.0.swap(false, SeqCst) {
                tokio::task::yield_now().await;
            }
            let Poll::Ready(Some(Ok(data))) = poll() else {
                panic!("a byte has come");
            };
            assert_eq!(data[..], [byte]);
            assert!(!woken.0.load(SeqCst), "it has taken what woke it");
        }
    }

    /// An open connection that has brought so many answers, and the other end of it.
    async fn used(count: u32) -> (Link, TcpStream) {
        let (mut link, mut incoming, mut other_end) = answered().await;
        other_end.write_all(b"0\r\n\r\n").await.unwrap();
        assert_eq!(data(&mut link, &mut incoming).await, None);
        for _ in 1..count {
            use_again(&mut link, &mut other_end).await;
        }
        (link, other_end)
    }

    async fn use_again(link: &mut Link, other_end: &mut TcpStream) {
        let asked = exchange(link, other_end, request()).await;
        assert_eq!(asked, b"GET / HTTP/1.1\r\n\r\n");
        assert!(link.is_free());
    }

    /// Has `request` answered as soon as some of it has come, and gives back what has.
    async fn exchange(link: &mut Link, other_end: &mut TcpStream, request: Request) -> Vec<u8> {
        let answering = async {
            let mut asked = [0; 100];
            let count = other_end.read(&mut asked).await.unwrap();
            other_end.write_all(ANSWER).await.unwrap();
            asked[..count].to_vec()
        };
        let (answer, asked) = tokio::join!(link.ask(request), answering);
        let mut incoming = answer.expect("it has answered").into_body();
        assert_eq!(data(link, &mut incoming).await.unwrap(), "a");
        assert_eq!(data(link, &mut incoming).await, None);
        asked
    }

    #[tokio::test]
    async fn a_connection_is_used_on_when_it_is_made_anew() {
        let (mut link, mut other_end) = used(1).await;
        for _ in 0..3 * ASKED_MAX {
            use_again(&mut link, &mut other_end).await;
            assert!((1..=ASKED_MAX).contains(&link.asked), "{}", link.asked);
        }
    }

    #[tokio::test]
    async fn an_answer_that_nobody_asked_for_is_nobodys() {
        for count in 1..=2 * ASKED_MAX {
            for is_looked_at in [false, true] {
                let (mut link, mut other_end) = used(count).await;
                other_end.write_all(ANSWER).await.unwrap();
                while !link.alarm.is_due.load(SeqCst) {
                    tokio::task::yield_now().await;
                }
                assert!(!is_looked_at || link.has_ended());
                let mut refused = link.ask(request()).await.expect_err("it is of no use");
                assert!(refused.take_message().is_some(), "it was sent: {count}");
            }
        }
    }

    #[tokio::test]
    async fn it_is_not_free_while_its_last_request_is_on_its_way() {
        const BYTES: usize = 16 << 20;
        for count in 1..=ASKED_MAX {
            let (mut link, mut other_end) = used(count).await;
            let big = http::Request::new(Full::new(Bytes::from(vec![b'x'; BYTES])));
            let asked = exchange(&mut link, &mut other_end, big).await;
            assert!(!asked.is_empty());
            assert!(!link.is_free());
            assert!(!link.has_ended(), "it goes on writing");
        }
    }

    #[tokio::test]
    async fn what_the_other_end_closes_after_an_answer_has_ended() {
        let (mut link, mut incoming, mut other_end) = answered().await;
        other_end.write_all(b"1\r\na\r\n0\r\n\r\n").await.unwrap();
        assert_eq!(data(&mut link, &mut incoming).await.unwrap(), "a");
        assert_eq!(data(&mut link, &mut incoming).await, None);
        assert!(link.is_free());
        assert!(!link.has_ended());
        drop(other_end);
        let ended = async {
            while !link.has_ended() {
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_mins(1), ended).await;
        ended.expect("it is told so");
    }

    #[tokio::test]
    async fn a_task_without_budget_goes_on_later() {
        let (mut link, mut incoming, mut other_end) = answered().await;
        other_end.write_all(b"1\r\na\r\n").await.unwrap();
        let mut is_used_up = false;
        let read = poll_fn(|context| {
            if !is_used_up {
                is_used_up = true;
                while pin!(tokio::task::consume_budget()).poll(context).is_ready() {}
                assert!(link.poll_data(&mut incoming, context).is_pending());
                return Poll::Pending;
            }
            link.poll_data(&mut incoming, context)
        });
        let read = tokio::time::timeout(Duration::from_mins(1), read).await;
        assert_eq!(read.expect("it was woken").unwrap().unwrap(), "a");
    }
}
