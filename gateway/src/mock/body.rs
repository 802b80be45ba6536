//! An answer on its way out: at once, or event by event at a pace. It holds the request's ticket to the last byte.

use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Interval, interval_at};

use super::answer::Events;
use super::count::Ticket;

/// Where it breaks off, hyper closes the connection: a cut as a client sees it. Dropped before its end, it leaves its ticket uncompleted. The end is noticed when the last bytes are handed over,
/// not by a further poll: hyper makes none after the last byte of a known length.
#[derive(Debug)]
pub(super) struct Body {
    content: Content,
    /// None for what isn't counted.
    ticket: Option<Ticket>,
    cut: Option<Cut>,
}

/// Where a body breaks off.
#[derive(Debug)]
struct Cut {
    /// How much is still handed over before: bytes of what is whole, events of a stream.
    left: usize,
    /// It has been idle once, so that the connection has sent what it has.
    has_paused: bool,
}

#[derive(Debug)]
enum Content {
    Whole(Bytes),
    Stream {
        events: Box<Events>,
        /// None for as fast as the connection takes it.
        pace: Option<Interval>,
    },
}

impl Body {
    pub(super) fn whole(bytes: impl Into<Bytes>, ticket: Option<Ticket>) -> Self {
        Self {
            content: Content::Whole(bytes.into()),
            ticket,
            cut: None,
        }
    }

    /// A stream whose pace begins now. A client that was too slow for it gets what it missed at once.
    pub(super) fn stream(events: Events, pace: Duration, ticket: Ticket) -> Self {
        Self {
            content: Content::Stream {
                events: Box::new(events),
                pace: (!pace.is_zero()).then(|| interval_at(Instant::now() + pace, pace)),
            },
            ticket: Some(ticket),
            cut: None,
        }
    }

    /// The same, but that it breaks off in the middle.
    pub(super) fn cut(mut self) -> Self {
        let left = match &self.content {
            Content::Whole(bytes) => bytes.len() / 2,
            Content::Stream { events, .. } => events.len() / 2,
        };
        self.cut = Some(Cut {
            left,
            has_paused: false,
        });
        self
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match &mut self.content {
            Content::Whole(bytes) if let Some(cut) = &mut self.cut => {
                Poll::Ready(Some(bytes.split_to(mem::take(&mut cut.left))))
            }
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(mem::take(bytes))),
            Content::Stream { events, pace } => {
                if let Some(pace) = pace.as_mut().filter(|_| events.is_paced()) {
                    ready!(pace.poll_tick(context));
                }
                Poll::Ready(events.next())
            }
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if let Some(cut) = this.cut.as_mut().filter(|cut| cut.left == 0) {
            if !mem::replace(&mut cut.has_paused, true) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
        }
        let bytes = ready!(this.poll_bytes(context));
        if let (Content::Stream { .. }, Some(cut)) = (&this.content, &mut this.cut) {
            cut.left -= 1;
        }
        if this.is_end_stream()
            && let Some(mut ticket) = this.ticket.take()
        {
            ticket.completed();
        }
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Stream { events, .. } => events.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream { .. } => SizeHint::default(),
        }
    }
}
