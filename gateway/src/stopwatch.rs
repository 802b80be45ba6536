//! Which stage a request is in, and how long it was in each.

use std::sync::Arc;

use bifrost_shared::record::{Outcome, Record, flags};
use bifrost_shared::stage::Stage;

use crate::clock::{Clock, Stamp};
use crate::error::Error;

/// Room for the times of all stages of a request that was tried once.
const TIMING_BYTES: usize = 512;

/// Takes what a request leaves behind.
pub trait Sink: Send + Sync {
    /// A request's head was read.
    fn began(&self);
    /// A request ended, at that moment. Called exactly once for each that began. Where and when it ended, and how many
    /// there were then, is for the sink to fill in, off the request's way. `model` is the place of the one that it asked
    /// for.
    fn ended(&self, record: &Record, at: Stamp, model: usize);
}

/// What stopwatches are started with. Each runtime has one of its own, or all of them would count their references on
/// one cache line.
pub struct Watches {
    /// What stamps are read from.
    pub clock: Clock,
    /// Where records go.
    pub sink: Arc<dyn Sink>,
}

impl Watches {
    /// A stopwatch for the request of that id, whose head was read just now.
    #[must_use]
    pub fn start(self: &Arc<Self>, id: u64) -> Stopwatch {
        let began = self.clock.stamp();
        self.sink.began();
        Stopwatch {
            record: Record {
                id,
                ..Record::default()
            },
            model: 0,
            stage: Stage::RequestParsing,
            began,
            entered: began,
            watches: Arc::clone(self),
        }
    }
}

/// Owned by whoever has the request. Dropping it publishes the record, so every request leaves exactly one, however it
/// ends.
///
/// The outcome starts as *cancelled*: only code that knows better changes it. A client that hangs up in the queue needs
/// no code at all.
pub struct Stopwatch {
    /// What is known so far. Times are filled in by [`enter`](Self::enter) and the drop.
    pub record: Record,
    /// Place of the model that it asks for, among those that the settings name. Zero stands for all others.
    pub model: usize,
    stage: Stage,
    began: Stamp,
    entered: Stamp,
    watches: Arc<Watches>,
}

impl Stopwatch {
    /// Closes the stage the request was in and opens `stage`. A stage entered twice, as on a retry, adds up. Gives back
    /// how long it was in the stage that is closed now, nanoseconds.
    pub fn enter(&mut self, stage: Stage) -> u64 {
        let now = self.watches.clock.stamp();
        let spent = self.watches.clock.between(self.entered, now);
        // A stage is counted where it took time, and some take less than the counter's tick.
        self.record.stages[self.stage.index()] += spent.max(1);
        self.stage = stage;
        self.entered = now;
        spent
    }

    /// The stages that are closed so far, as a `Server-Timing` header has them: milliseconds, those that took no time
    /// left out.
    #[must_use]
    pub fn timing(&self) -> String {
        use std::fmt::Write as _;
        let mut timing = String::with_capacity(TIMING_BYTES);
        for stage in Stage::ALL {
            let nanoseconds = self.record.stage(stage);
            if nanoseconds > 0 {
                let comma = if timing.is_empty() { "" } else { ", " };
                // Whole numbers: to print a float takes four times as long.
                let (millis, rest) = (nanoseconds / 1_000_000, nanoseconds % 1_000_000);
                let _ = write!(timing, "{comma}{};dur={millis}.{rest:06}", stage.key());
            }
        }
        timing
    }

    /// The stage it is in.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// The first byte of an answer's body was there when the present stage began. Later calls change nothing.
    pub fn first_byte(&mut self) {
        if self.record.first_byte == 0 {
            let since = self.watches.clock.between(self.began, self.entered);
            self.record.first_byte = since.max(1);
        }
    }

    /// A connection to the provider was opened for it and took `time`; none was, if that is zero. Those of several
    /// attempts add up.
    pub fn connected(&mut self, time: std::time::Duration) {
        if !time.is_zero() {
            let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            self.record.connect = self.record.connect.saturating_add(nanoseconds);
            self.record.flags |= flags::CONNECTED;
        }
    }

    /// The client has its whole answer.
    pub fn completed(&mut self) {
        self.record.outcome = Outcome::Completed;
    }

    /// The request ends with `error`.
    pub fn failed(&mut self, error: &Error) {
        self.record.outcome = error.outcome();
        self.record.fault = error.fault();
        self.record.status = error.facts().status.as_u16();
        match error {
            Error::Draining => self.record.flags |= flags::DRAINED,
            _ if error.is_timeout() => self.record.flags |= flags::TIMED_OUT,
            _ => {}
        }
    }

    /// The answer broke off after it had begun.
    pub fn truncated(&mut self) {
        self.record.outcome = Outcome::Truncated;
    }

    /// The client asked for a stream.
    pub fn streams(&mut self) {
        self.record.flags |= flags::STREAM;
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        if std::thread::panicking() && self.record.outcome == Outcome::Cancelled {
            // A bug of ours, and not the client's leave.
            self.failed(&Error::Internal);
        }
        self.enter(self.stage);
        // A stamp of its own, so that what no stage counts can be seen.
        let ended = self.watches.clock.stamp();
        self.record.total = self.watches.clock.between(self.began, ended);
        self.record.ended_in = self.stage;
        self.watches.sink.ended(&self.record, ended, self.model);
    }
}

/// Keeps records, for tests.
#[derive(Debug, Default)]
pub struct Kept(std::sync::Mutex<Vec<Record>>);

impl Kept {
    /// Those kept so far.
    ///
    /// # Panics
    ///
    /// If a thread panicked while it kept one.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.0
            .lock()
            .expect("nobody panics while keeping a record")
            .clone()
    }
}

impl Sink for Kept {
    fn began(&self) {}

    fn ended(&self, record: &Record, _: Stamp, _: usize) {
        self.0
            .lock()
            .expect("nobody panics while keeping a record")
            .push(*record);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use bifrost_shared::record::Fault;

    use super::*;

    struct Bench {
        time: Arc<AtomicU64>,
        kept: Arc<Kept>,
        watch: Option<Stopwatch>,
    }

    impl Bench {
        fn new() -> Self {
            let time = Arc::new(AtomicU64::new(1_000));
            let kept = Arc::new(Kept::default());
            let watches = Arc::new(Watches {
                clock: Clock::set_by(Arc::clone(&time)),
                sink: kept.clone(),
            });
            let watch = watches.start(7);
            Self {
                time,
                kept,
                watch: Some(watch),
            }
        }

        fn pass(&self, nanoseconds: u64) {
            self.time.fetch_add(nanoseconds, Ordering::Relaxed);
        }

        fn watch(&mut self) -> &mut Stopwatch {
            self.watch.as_mut().unwrap()
        }

        fn end(&mut self) -> Record {
            self.watch = None;
            let records = self.kept.records();
            assert_eq!(records.len(), 1, "exactly one record a request");
            records[0]
        }
    }

    #[test]
    fn every_moment_belongs_to_the_stage_it_was_spent_in() {
        let mut bench = Bench::new();
        bench.pass(5);
        bench.watch().enter(Stage::QueueWait);
        bench.pass(70);
        bench.watch().enter(Stage::HttpRequest);
        bench.pass(900);
        bench.watch().completed();
        let record = bench.end();
        assert_eq!(record.stage(Stage::RequestParsing), 5);
        assert_eq!(record.stage(Stage::QueueWait), 70);
        assert_eq!(record.stage(Stage::HttpRequest), 900);
        assert_eq!((record.total, record.unattributed()), (975, 0));
        assert_eq!(record.outcome, Outcome::Completed);
    }

    #[test]
    fn a_stage_entered_twice_adds_up() {
        let mut bench = Bench::new();
        for time in [10, 20] {
            bench.watch().enter(Stage::HttpRequest);
            bench.pass(time);
            bench.watch().enter(Stage::BackOff);
            bench.pass(1);
        }
        let record = bench.end();
        assert_eq!(
            (
                record.stage(Stage::HttpRequest),
                record.stage(Stage::BackOff)
            ),
            (30, 2)
        );
        assert_eq!(record.added(), 0);
    }

    #[test]
    fn a_stage_that_took_less_than_the_clock_can_tell_is_not_passed_by() {
        let mut bench = Bench::new();
        bench.pass(5);
        bench.watch().enter(Stage::KeySelection);
        bench.watch().enter(Stage::HttpRequest);
        bench.pass(900);
        let record = bench.end();
        assert_eq!(record.stage(Stage::KeySelection), 1);
        assert_eq!(record.stage(Stage::QueueWait), 0);
    }

    #[test]
    fn a_request_dropped_without_a_word_was_cancelled_where_it_stood() {
        let mut bench = Bench::new();
        bench.watch().enter(Stage::QueueWait);
        bench.pass(40_000_000);
        let record = bench.end();
        assert_eq!(
            (record.outcome, record.ended_in),
            (Outcome::Cancelled, Stage::QueueWait)
        );
        assert_eq!(record.stage(Stage::QueueWait), 40_000_000);
    }

    #[test]
    fn the_outcome_names_who_was_to_blame() {
        let check = |error: Error, outcome, status| {
            let mut bench = Bench::new();
            bench.watch().failed(&error);
            let record = bench.end();
            assert_eq!((record.outcome, record.status), (outcome, status));
            record.fault
        };
        let unknown = Error::UnknownModel("m".to_owned());
        assert_eq!(check(unknown, Outcome::Rejected, 404), Fault::Request);
        assert_eq!(
            check(Error::Draining, Outcome::Refused, 503),
            Fault::Draining
        );
        assert_eq!(
            check(Error::Broken(None), Outcome::Failed, 502),
            Fault::Broken
        );
    }
}
