//! A stream on its way to the client, which the end of a drain reaches.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::pipeline::Held;
use crate::relay::Relay;
use crate::shutdown::Cut;

/// A stream that a drain can end.
pub(super) struct Ending {
    relay: Relay<Held>,
    cut: Cut,
    /// Wakes the stream when its time is over. Made when it first waits.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Ending {
    pub(super) const fn new(relay: Relay<Held>, cut: Cut) -> Self {
        Self {
            relay,
            cut,
            over: None,
        }
    }

    fn cut_off(&mut self) {
        if self.relay.cut_off() {
            self.cut.count();
        }
    }
}

impl Body for Ending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.cut.is_over() {
            self.cut_off();
        }
        let polled = Pin::new(&mut self.relay).poll_frame(context);
        if polled.is_ready() {
            return polled;
        }
        let this = &mut *self;
        let over = this
            .over
            .get_or_insert_with(|| Box::pin(this.cut.clone().over()));
        ready!(over.as_mut().poll(context));
        this.over = None;
        this.cut_off();
        Pin::new(&mut this.relay).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.relay.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.relay.size_hint()
    }
}

impl Drop for Ending {
    /// A client that does not read leaves nobody to be told; the record is.
    fn drop(&mut self) {
        if self.cut.is_over() {
            self.cut_off();
        }
    }
}
