//! An answer on its way out: at once, or event by event at a pace. It holds the request's ticket to the last byte.

use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Interval, interval_at};

use super::answer::Events;
use super::count::Ticket;

/// Dropped before its end, it leaves its ticket uncompleted. The end is noticed when the last bytes are handed over,
/// not by a further poll: hyper makes none after the last byte of a known length.
#[derive(Debug)]
pub(super) struct Body {
    content: Content,
    /// None for what isn't counted.
    ticket: Option<Ticket>,
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
        }
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match &mut self.content {
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
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = ready!(self.poll_bytes(context));
        if self.is_end_stream()
            && let Some(mut ticket) = self.ticket.take()
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
