//! The answer on its way back. It holds what must be held until the last byte, and the stopwatch with it: dropped, it
//! gives back the permit and publishes the record, whether the client has its answer or went away.
//!
//! Beware: the server polls a body to its end only when its length is not known. With a `Content-Length` it stops
//! behind the last promised byte and drops the body. So an answer is complete when its last byte was handed over, not
//! when the end was asked for.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bifrost_shared::stage::Stage;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::error::Error;
use crate::provider::{Holds, Provider, Usage};
use crate::sse::{self, Splitter, TooLong};
use crate::stopwatch::Stopwatch;
use crate::upstream::Incoming;

/// A gap between two events in which the client's connection took nothing for this long, nanoseconds, was spent waiting
/// for the client.
const BACK_PRESSURE_NS: u64 = 1_000_000;
/// A whole answer is handed over in slices, so that what the client's connection has not taken is still held here, and
/// counted.
const SLICE_BYTES: usize = 64 << 10;
/// What may come before the first event that the client waits for; then it is sent on all the same, and no other
/// attempt can take its place. Comments keep a connection alive while a provider queues.
const PREAMBLE_BYTES_MAX: usize = 64 << 10;
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// Once the terminator has come, the provider's connection is worth this long a wait: ended properly, it can be reused.
const LINGER: Duration = Duration::from_millis(500);

/// An answer, and all that lives as long as it: `H` is only kept.
pub struct Relay<H> {
    source: Source,
    watch: Stopwatch,
    /// A stream's end is to tell how long each stage took.
    tells_timing: bool,
    _held: H,
}

enum Source {
    Whole(Bytes),
    Stream(Box<Stream>),
}

/// An event stream whose beginning is there.
pub struct Stream {
    body: Incoming,
    splitter: Splitter,
    dialect: &'static dyn Provider,
    /// Whole events that wait to be handed over.
    ready: Bytes,
    seen: Seen,
    /// Nothing comes behind `ready`.
    ended: bool,
    /// With `ready`, the client has a whole answer.
    complete: bool,
    /// Runs once the terminator has come.
    linger: Option<Pin<Box<Sleep>>>,
}

/// What the events so far have shown.
#[derive(Debug, Default)]
struct Seen {
    progress: Progress,
    failure: Option<Box<Error>>,
    usage: Usage,
    /// Choices that have begun and not finished, a bit each.
    open: u64,
    events: u32,
    before: Before,
    /// Bytes of the terminator's event, once it has come: the last that the client gets.
    terminator_bytes: usize,
    /// The usage is for us: the client did not ask for it, and indexes `choices[0]`.
    hide_usage: bool,
}

/// How the run before ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// There was none: a byte order mark may come.
    #[default]
    Nothing,
    LineEnd,
    /// In a CR, to which an LF at the head of the next run belongs.
    HalfLineEnd,
    /// In the CR of an event that was left out.
    HalfLineEndHidden,
}

/// How far a stream has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// Nothing that the client waits for has come.
    #[default]
    Preamble,
    Content,
    /// The model stopped, and said why.
    Finish,
    Terminator,
    /// The terminator came, and nothing that the client waits for before it.
    Empty,
}

impl Stream {
    /// Reads the beginning of a stream, up to the first event that the client waits for: until then another attempt
    /// can still take its place. `hide_usage` keeps the usage from a client that did not ask for it.
    ///
    /// # Errors
    ///
    /// When it ends, breaks or fails before that.
    pub async fn open(
        mut body: Incoming,
        dialect: &'static dyn Provider,
        hide_usage: bool,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let mut splitter = Splitter::default();
        let mut seen = Seen {
            hide_usage,
            ..Seen::default()
        };
        let mut ready = BytesMut::new();
        while seen.progress == Progress::Preamble && ready.len() < PREAMBLE_BYTES_MAX {
            let Some(packet) = body.chunk(deadline).await? else {
                return Err(empty());
            };
            let run = splitter.push(&packet).map_err(|TooLong| too_long())?;
            ready.extend_from_slice(&seen.look(dialect, &run));
            if let Some(failure) = seen
                .failure
                .take_if(|_| seen.progress == Progress::Preamble)
            {
                return Err(*failure);
            }
            if seen.progress == Progress::Empty {
                return Err(empty());
            }
        }
        let (ended, complete) = (
            seen.failure.is_some(),
            seen.progress == Progress::Terminator,
        );
        Ok(Self {
            body,
            splitter,
            dialect,
            ready: ready.freeze(),
            seen,
            ended,
            complete,
            linger: None,
        })
    }

    /// The next run of events, and whether more may follow. None when all is handed over.
    fn poll_run(
        &mut self,
        context: &mut Context<'_>,
        watch: &mut Stopwatch,
    ) -> Poll<Option<Bytes>> {
        loop {
            if !self.ready.is_empty() {
                return Poll::Ready(Some(std::mem::take(&mut self.ready)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            let packet = match self.body.poll_chunk(context) {
                Poll::Ready(packet) => packet,
                Poll::Pending => {
                    ready!(self.poll_linger(context));
                    self.ended = true;
                    continue;
                }
            };
            watch.enter(Stage::ResponseParsing);
            match packet {
                _ if self.complete => {
                    // Whatever comes behind the terminator is nobody's, and may come for ever.
                    let is_over = self.linger().deadline() <= Instant::now();
                    self.ended = is_over || packet.is_none_or(|packet| packet.is_err());
                }
                Some(Ok(packet)) => self.take(&packet, watch),
                Some(Err(error)) => self.break_off(&error, watch),
                None => self.end(watch),
            }
        }
    }

    fn take(&mut self, packet: &Bytes, watch: &mut Stopwatch) {
        let run = match self.splitter.push(packet) {
            Ok(run) => run,
            Err(TooLong) => return self.break_off(&too_long(), watch),
        };
        self.ready = self.seen.look(self.dialect, &run);
        if let Some(failure) = self.seen.failure.take() {
            watch.failed(&failure);
            watch.truncated();
            self.ended = true;
        } else if self.seen.progress == Progress::Empty {
            self.ready.clear();
            self.break_off(&empty(), watch);
        }
        self.complete = self.seen.progress == Progress::Terminator;
    }

    /// The provider ended the stream properly, but without its terminator.
    fn end(&mut self, watch: &mut Stopwatch) {
        let Some(missing) = missing_end(self.splitter.rest(), self.dialect) else {
            return self.break_off(&broken_off(), watch);
        };
        self.take(&Bytes::from_static(missing), watch);
        if self.ended || self.complete {
            self.ended = true;
            return;
        }
        if self.seen.progress < Progress::Finish || self.seen.open != 0 {
            return self.break_off(&broken_off(), watch);
        }
        // A whole answer: many compatible servers stop behind the reason to finish.
        if let Some(terminator) = self.dialect.terminator() {
            let terminator = format!("data: {terminator}\n\n");
            self.seen.terminator_bytes = terminator.len();
            self.ready = [&self.ready[..], terminator.as_bytes()].concat().into();
        }
        self.ended = true;
        self.complete = true;
    }

    /// Half an answer must not look like a whole one: an error event ends it.
    fn break_off(&mut self, error: &Error, watch: &mut Stopwatch) {
        watch.failed(error);
        watch.truncated();
        self.ready = [&self.ready[..], &error_event(error)].concat().into();
        self.ended = true;
    }

    /// The time of a drain is over: what is ready still goes out, and an error behind it. Answers whether anything was
    /// missing.
    fn cut_off(&mut self, watch: &mut Stopwatch) -> bool {
        if self.ended {
            return false;
        }
        if self.complete {
            self.ended = true;
            return false;
        }
        let ready = std::mem::take(&mut self.ready);
        self.break_off(&Error::Draining, watch);
        if !ready.is_empty() {
            self.ready = [ready, std::mem::take(&mut self.ready)].concat().into();
        }
        true
    }

    fn linger(&mut self) -> Pin<&mut Sleep> {
        self.linger
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)))
            .as_mut()
    }

    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.complete {
            return Poll::Pending;
        }
        self.linger().poll(context)
    }
}

impl Seen {
    /// Looks at a run of events, and gives back what the client gets of it: nothing behind an error or a terminator, and
    /// no usage that it didn't ask for.
    fn look(&mut self, dialect: &dyn Provider, run: &Bytes) -> Bytes {
        let Some(last) = run.last() else {
            return Bytes::new();
        };
        let mut shown = Shown {
            run,
            from: 0,
            before: BytesMut::new(),
        };
        // Half a line end goes where its other half went.
        let is_half = matches!(self.before, Before::HalfLineEnd | Before::HalfLineEndHidden);
        let mut start = usize::from(is_half && run[0] == b'\n');
        if self.before == Before::HalfLineEndHidden {
            shown.without(0, start);
        }
        let has_mark = self.before == Before::Nothing && run.starts_with(BYTE_ORDER_MARK);
        let mark = if has_mark { BYTE_ORDER_MARK.len() } else { 0 };
        for sse::Event { name, data, end } in sse::events(&run[mark..]) {
            let end = mark + end;
            let event = dialect.event(name, &data);
            self.events = self.events.saturating_add(1);
            self.usage = event.usage.unwrap_or(self.usage);
            self.open = (self.open | event.choices) & !event.finished;
            match event.holds {
                Holds::UsageOnly if self.hide_usage => shown.without(start, end),
                Holds::Preamble | Holds::UsageOnly => {}
                Holds::Content => self.progress = self.progress.max(Progress::Content),
                Holds::Finish => self.progress = self.progress.max(Progress::Finish),
                Holds::Terminator => {
                    let is_empty = self.progress == Progress::Preamble;
                    self.progress = if is_empty {
                        Progress::Empty
                    } else {
                        Progress::Terminator
                    };
                    let plain = shown.up_to(end);
                    let plain_bytes = plain.len();
                    let last = ended_whole(plain);
                    self.terminator_bytes = end - start + last.len() - plain_bytes;
                    return last;
                }
                Holds::Failure(failure) => {
                    // The provider's own words go out as they came, if they are in a form that the clients know.
                    let is_known = failure.body.is_some();
                    let error = Error::Answered(failure);
                    let last = if is_known {
                        ended_whole(shown.up_to(end))
                    } else {
                        [&shown.up_to(start)[..], &error_event(&error)]
                            .concat()
                            .into()
                    };
                    self.failure = Some(Box::new(error));
                    return last;
                }
            }
            start = end;
        }
        self.before = match (*last, shown.from == run.len()) {
            (b'\r', true) => Before::HalfLineEndHidden,
            (b'\r', false) => Before::HalfLineEnd,
            _ => Before::LineEnd,
        };
        shown.up_to(run.len())
    }
}

/// The part of a run that the client gets. Without an event to leave out, it is the run itself and not copied.
struct Shown<'r> {
    run: &'r Bytes,
    from: usize,
    before: BytesMut,
}

impl Shown<'_> {
    fn without(&mut self, start: usize, end: usize) {
        self.before.extend_from_slice(&self.run[self.from..start]);
        self.from = end;
    }

    fn up_to(mut self, end: usize) -> Bytes {
        if self.from == 0 {
            return self.run.slice(..end);
        }
        self.before.extend_from_slice(&self.run[self.from..end]);
        self.before.freeze()
    }
}

/// An event that ends in CR, LF, CR was cut before its last LF.
fn ended_whole(run: Bytes) -> Bytes {
    if run.ends_with(b"\r\n\r") {
        [&run[..], b"\n"].concat().into()
    } else {
        run
    }
}

/// What the last event lacks of its end, if its words are whole: many servers leave out the blank line behind the
/// terminator. None if half an event is left.
fn missing_end(rest: &[u8], dialect: &dyn Provider) -> Option<&'static [u8]> {
    let missing: &[u8] = match rest.last() {
        None => return Some(b""),
        Some(b'\n') => b"\n",
        Some(b'\r') => b"\r",
        Some(_) => b"\n\n",
    };
    let is_whole = |event: sse::Event<'_>| {
        let terminator = dialect.terminator().map(str::as_bytes);
        terminator == Some(&event.data)
            || serde_json::from_slice::<serde::de::IgnoredAny>(&event.data).is_ok()
    };
    let is_comment = rest.starts_with(b":");
    sse::events(rest)
        .next()
        .map_or(is_comment, is_whole)
        .then_some(missing)
}

fn error_event(error: &Error) -> Bytes {
    [&b"data: "[..], &error.openai_body(), b"\n\n"]
        .concat()
        .into()
}

/// The last run of a stream with a comment before its terminator.
fn timed(run: &Bytes, terminator_bytes: usize, watch: &Stopwatch) -> Bytes {
    let (events, terminator) = run.split_at(run.len() - terminator_bytes);
    let comment = format!(": server-timing {}\n\n", watch.timing());
    [events, comment.as_bytes(), terminator].concat().into()
}

fn broken_off() -> Error {
    Error::BadAnswer("an event stream that broke off")
}

fn empty() -> Error {
    Error::BadAnswer("an event stream without content")
}

fn too_long() -> Error {
    Error::BadAnswer("an event larger than the gateway holds")
}

impl<H> Relay<H> {
    /// An answer that is all there.
    pub fn whole(body: Bytes, held: H, mut watch: Stopwatch) -> Self {
        watch.enter(Stage::ResponseWriting);
        if body.is_empty() {
            // The server does not ask for a byte of it.
            watch.completed();
        }
        Self {
            source: Source::Whole(body),
            watch,
            tells_timing: false,
            _held: held,
        }
    }

    /// An answer that comes event by event.
    pub fn stream(mut stream: Box<Stream>, held: H, mut watch: Stopwatch) -> Self {
        watch.streams();
        stream.seen.note(&mut watch);
        if let Some(error) = stream.seen.failure.take() {
            watch.failed(&error);
            watch.truncated();
        }
        watch.enter(Stage::ResponseWriting);
        watch.first_byte();
        Self {
            source: Source::Stream(stream),
            watch,
            tells_timing: false,
            _held: held,
        }
    }

    /// Lets a stream tell at its end how long each stage took, in a comment before the terminator: many clients read
    /// nothing behind that.
    #[must_use]
    pub fn telling_timing(mut self, tells_timing: bool) -> Self {
        self.tells_timing = tells_timing;
        self
    }

    /// Whether it comes event by event.
    #[must_use]
    pub const fn is_stream(&self) -> bool {
        matches!(self.source, Source::Stream(_))
    }

    /// Ends it now, with what is left to say: an error, if the client does not have its whole answer. Says whether that
    /// was so.
    pub fn cut_off(&mut self) -> bool {
        match &mut self.source {
            Source::Whole(_) => false,
            Source::Stream(stream) => stream.cut_off(&mut self.watch),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match &mut self.source {
            Source::Whole(body) if body.is_empty() => Poll::Ready(None),
            Source::Whole(body) => {
                self.watch.first_byte();
                let slice = body.split_to(body.len().min(SLICE_BYTES));
                if body.is_empty() {
                    self.watch.completed();
                }
                Poll::Ready(Some(slice))
            }
            Source::Stream(stream) => {
                if self.watch.stage() == Stage::ResponseWriting {
                    let written = self.watch.enter(Stage::HttpRequest);
                    if written > BACK_PRESSURE_NS {
                        self.watch.record.back_pressure += written;
                    }
                }
                let run = match stream.poll_run(context, &mut self.watch) {
                    Poll::Ready(run) => run,
                    Poll::Pending => {
                        if self.watch.stage() != Stage::HttpRequest {
                            self.watch.record.held += self.watch.enter(Stage::HttpRequest);
                        }
                        return Poll::Pending;
                    }
                };
                let held = self.watch.enter(Stage::ResponseWriting);
                self.watch.record.held += held;
                stream.seen.note(&mut self.watch);
                if stream.complete {
                    self.watch.completed();
                }
                if stream.complete && self.tells_timing {
                    self.tells_timing = false;
                    let terminator_bytes = stream.seen.terminator_bytes;
                    return Poll::Ready(run.map(|run| timed(&run, terminator_bytes, &self.watch)));
                }
                Poll::Ready(run)
            }
        }
    }
}

impl Seen {
    fn note(&self, watch: &mut Stopwatch) {
        watch.record.events = self.events;
        watch.record.prompt_tokens = self.usage.prompt_tokens;
        watch.record.completion_tokens = self.usage.completion_tokens;
    }
}

impl<H: Unpin> Body for Relay<H> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = ready!(self.poll(context));
        let Some(bytes) = bytes else {
            return Poll::Ready(None);
        };
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let sent = &mut self.watch.record.response_bytes;
        *sent = sent.saturating_add(length);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(body) => body.is_empty(),
            Source::Stream(stream) => stream.ended && stream.ready.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(body) => SizeHint::with_exact(body.len() as u64),
            Source::Stream(_) => SizeHint::default(),
        }
    }
}
