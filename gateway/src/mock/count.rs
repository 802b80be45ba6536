//! What became of the requests: counted as they end, so that a test can wait for one to end.

use serde::Serialize;
use tokio::sync::watch;

/// Requests since the start. Those in flight are in `requests` only.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Count {
    /// Whose head was read.
    requests: u64,
    /// Whose answer, or error, was handed to the connection to its last byte.
    completed: u64,
    /// Whose answer ended before its end: their client went first, or the mock cut them off.
    cancelled: u64,
    /// Those of `requests` that were answered as a stream.
    streams: u64,
    /// Connections on which client and mock agreed on TLS. Left out where there was none.
    #[serde(skip_serializing_if = "is_zero")]
    handshakes: u64,
    /// Those of `handshakes` that resumed a session, which saves both sides half of the work.
    #[serde(skip_serializing_if = "is_zero")]
    resumed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Count {
    /// The lower bounds in a query such as `cancelled=1&completed=20`; nothing asked is nothing to wait for.
    pub(super) fn from_query(query: &str) -> Option<Self> {
        let mut count = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, bound) = pair.split_once('=')?;
            let field = match name {
                "requests" => &mut count.requests,
                "completed" => &mut count.completed,
                "cancelled" => &mut count.cancelled,
                "streams" => &mut count.streams,
                "handshakes" => &mut count.handshakes,
                "resumed" => &mut count.resumed,
                _ => return None,
            };
            *field = bound.parse().ok()?;
        }
        Some(count)
    }

    fn reaches(&self, bounds: &Self) -> bool {
        self.requests >= bounds.requests
            && self.completed >= bounds.completed
            && self.cancelled >= bounds.cancelled
            && self.streams >= bounds.streams
            && self.handshakes >= bounds.handshakes
            && self.resumed >= bounds.resumed
    }
}

/// The count that a mock's connections share.
#[derive(Debug, Default, Clone)]
pub(super) struct Counter(watch::Sender<Count>);

impl Counter {
    /// Counts a request, and will count its end.
    pub(super) fn begin(&self) -> Ticket {
        self.0.send_modify(|count| count.requests += 1);
        Ticket {
            counter: self.clone(),
            completed: false,
        }
    }

    /// Counts a connection with TLS, and whether it is a session's that was `resumed`.
    pub(super) fn shook_hands(&self, resumed: bool) {
        self.0.send_modify(|count| {
            count.handshakes += 1;
            count.resumed += u64::from(resumed);
        });
    }

    /// The count, as soon as it has reached all of `bounds`.
    pub(super) async fn reached(&self, bounds: Count) -> Count {
        let mut counts = self.0.subscribe();
        let count = counts.wait_for(|count| count.reaches(&bounds)).await;
        *count.expect("the counter outlives this borrow of it")
    }
}

/// A request being counted. Dropping it counts the end: cancelled, unless it was completed.
#[derive(Debug)]
pub(super) struct Ticket {
    counter: Counter,
    completed: bool,
}

impl Ticket {
    /// Says that the answer is a stream.
    pub(super) fn streams(&self) {
        self.counter.0.send_modify(|count| count.streams += 1);
    }

    /// Says that the last byte was handed over.
    pub(super) fn completed(&mut self) {
        self.completed = true;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.counter.0.send_modify(|count| {
            if self.completed {
                count.completed += 1;
            } else {
                count.cancelled += 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_ticket_counts_one_beginning_and_one_end() {
        let counter = Counter::default();
        let mut answered = counter.begin();
        answered.completed();
        drop(answered);
        drop(counter.begin());
        let streaming = counter.begin();
        streaming.streams();

        let count = counter.reached(Count::default()).await;
        assert_eq!(
            count,
            Count {
                requests: 3,
                completed: 1,
                cancelled: 1,
                streams: 1,
                handshakes: 0,
                resumed: 0
            }
        );
    }

    #[test]
    fn bounds_are_read_from_a_query_or_refused() {
        let check = |query: &str, bounds| assert_eq!(Count::from_query(query), bounds, "{query}");
        check("", Some(Count::default()));
        check(
            "completed=20&cancelled=1",
            Some(Count {
                completed: 20,
                cancelled: 1,
                ..Count::default()
            }),
        );
        check("completed", None);
        check("completed=many", None);
        check("complete=1", None);
    }
}
