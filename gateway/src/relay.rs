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

use crate::error::{Answered, Error};
use crate::provider::Provider;
use crate::sse::{self, Splitter, TooLong};
use crate::stopwatch::Stopwatch;
use crate::upstream::Incoming;

/// A gap between two events in which the client's connection took nothing for this long, nanoseconds, was spent waiting
/// for the client.
const BACK_PRESSURE_NS: u64 = 1_000_000;
/// Once the terminator has come, the provider's connection is worth this long a wait: ended properly, it can be reused.
const LINGER: Duration = Duration::from_millis(500);

/// An answer, and all that lives as long as it: `H` is only kept.
pub struct Relay<H> {
    source: Source,
    watch: Stopwatch,
    _held: H,
}

enum Source {
    Whole(Option<Bytes>),
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
    content: bool,
    finished: bool,
    terminator: bool,
    error: Option<Box<Answered>>,
    usage: crate::provider::Usage,
    events: u32,
}

impl Stream {
    /// Reads the beginning of a stream, up to the first event that the client waits for: until then another attempt
    /// can still take its place.
    ///
    /// # Errors
    ///
    /// When it ends, breaks or fails before that.
    pub async fn open(
        mut body: Incoming,
        dialect: &'static dyn Provider,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let (mut splitter, mut seen) = (Splitter::default(), Seen::default());
        let mut ready = BytesMut::new();
        while !seen.content && !seen.terminator {
            let Some(packet) = body.chunk(deadline).await? else {
                return Err(Error::BadAnswer("an event stream without an event"));
            };
            let run = splitter.push(&packet).map_err(|TooLong| too_long())?;
            let cut = seen.look(dialect, &run);
            if let Some(error) = seen.error.take().filter(|_| !seen.content) {
                return Err(Error::Answered(error));
            }
            ready.extend_from_slice(&run[..cut]);
        }
        if !seen.content {
            return Err(Error::BadAnswer("an event stream without content"));
        }
        let (ended, complete) = (seen.error.is_some(), seen.terminator);
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
                _ if self.seen.terminator => {
                    self.ended = packet.is_none_or(|packet| packet.is_err());
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
        let cut = self.seen.look(self.dialect, &run);
        self.ready = run.slice(..cut);
        self.settle(watch);
    }

    /// Draws the conclusions from what was seen.
    fn settle(&mut self, watch: &mut Stopwatch) {
        if let Some(error) = self.seen.error.take() {
            watch.failed(&Error::Answered(error));
            watch.truncated();
            self.ended = true;
        }
        self.complete = self.seen.terminator;
    }

    /// The provider ended the stream properly, but without its terminator.
    fn end(&mut self, watch: &mut Stopwatch) {
        if !self.seen.finished || !self.splitter.rest().is_empty() {
            return self.break_off(&Error::BadAnswer("an event stream that broke off"), watch);
        }
        // A whole answer: many compatible servers stop behind the reason to finish.
        if let Some(terminator) = self.dialect.terminator() {
            self.ready = Bytes::from(format!("data: {terminator}\n\n"));
        }
        self.ended = true;
        self.complete = true;
    }

    /// Half an answer must not look like a whole one: an error event ends it.
    fn break_off(&mut self, error: &Error, watch: &mut Stopwatch) {
        watch.failed(error);
        watch.truncated();
        let body = error.openai_body();
        self.ready = [&b"data: "[..], &body, b"\n\n"].concat().into();
        self.ended = true;
    }

    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.seen.terminator {
            return Poll::Pending;
        }
        self.linger
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)))
            .as_mut()
            .poll(context)
    }
}

impl Seen {
    /// Looks at a run of events. Gives back how much of it may be handed over: nothing behind an error or a terminator.
    fn look(&mut self, dialect: &dyn Provider, run: &[u8]) -> usize {
        for (data, end) in sse::events(run) {
            let event = dialect.event(&data);
            self.events = self.events.saturating_add(1);
            self.content |= event.content;
            self.finished |= event.finished;
            self.terminator |= event.terminator;
            if let Some(usage) = event.usage {
                self.usage = usage;
            }
            self.error = event.error;
            if self.terminator || self.error.is_some() {
                return end;
            }
        }
        run.len()
    }
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
            source: Source::Whole(Some(body)),
            watch,
            _held: held,
        }
    }

    /// An answer that comes event by event.
    pub fn stream(mut stream: Stream, held: H, mut watch: Stopwatch) -> Self {
        watch.streams();
        watch.first_byte();
        stream.seen.note(&mut watch);
        if let Some(error) = stream.seen.error.take() {
            watch.failed(&Error::Answered(error));
            watch.truncated();
        }
        watch.enter(Stage::ResponseWriting);
        Self {
            source: Source::Stream(Box::new(stream)),
            watch,
            _held: held,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match &mut self.source {
            Source::Whole(body) => {
                let body = body.take().filter(|body| !body.is_empty());
                if body.is_some() {
                    self.watch.first_byte();
                    self.watch.completed();
                }
                Poll::Ready(body)
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
            Source::Whole(body) => body.as_ref().is_none_or(Bytes::is_empty),
            Source::Stream(stream) => stream.ended && stream.ready.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(body) => {
                SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64))
            }
            Source::Stream(_) => SizeHint::default(),
        }
    }
}
