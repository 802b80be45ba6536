//! From the end of a request to the shared segment: exact counters, a lane of records for each thread, and the exporter,
//! a plain thread that is the segment's only writer.
//!
//! A request costs the hot path some additions and one push, all into memory of its own thread. A lane that is full,
//! because the exporter did not run for a second or more, drops the newest record and counts the loss; the counters stay
//! exact.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use bifrost_shared::layout::{Counter, Gauge, State};
use bifrost_shared::record::{Fault, Outcome, Record, flags};
use bifrost_shared::segment::Segment;
use bifrost_shared::slot::Standing;
use bifrost_shared::snapshot::{Figures, View};
use bifrost_shared::writer::Writer;
use ringbuf::HeapRb;
use ringbuf::traits::{Producer as _, Split as _};

use crate::clock::{Clock, Stamp};
use crate::config;
use crate::machine::Machine;
use crate::stopwatch::Sink;

pub mod access_log;
mod describe;
mod export;
mod place;
mod probe;
pub mod self_test;

use access_log::{AccessLog, Names};
use export::Export;
use probe::Probe;

/// Records that a lane holds: 1.6 s of an exporter that doesn't run, at 2,500 requests a second and thread.
const LANE_RECORDS: usize = 4_096;
/// Lanes that may wait to be taken over by the exporter.
const NEW_LANES_MAX: usize = 64;

/// Counters and lanes: the half that requests see.
pub struct Telemetry {
    /// What each thread has counted, since the beginning; a thread that has ended is among them.
    counts: Mutex<Vec<Arc<Counts>>>,
    /// As of the exporter's last visit.
    gauges: [AtomicU64; Gauge::COUNT],
    /// One for each runtime.
    probes: Box<[Probe]>,
    /// Places for models.
    models: usize,
    exporter: SyncSender<Message>,
    segment: Arc<Segment>,
    view: View,
    /// Tells this instance from others that the same thread may have served.
    identity: u64,
}

/// What one thread has counted. Only that thread writes, so that it may load and store where several would need an
/// exchange, and no two of them write to one cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Counts {
    counters: [AtomicU64; Counter::COUNT],
    faults: [AtomicU64; Fault::COUNT],
    /// By place; the first is for each request whose model has none.
    models: Box<[OfModel]>,
    /// The runtime that the thread is, if it is one.
    runtime: AtomicUsize,
}

/// What one thread has counted of one model.
#[derive(Debug, Default)]
struct OfModel {
    requests: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

/// What was asked of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// Requests that ended with it.
    pub requests: u64,
    /// Tokens in of these.
    pub prompt_tokens: u64,
    /// Tokens out of these.
    pub completion_tokens: u64,
}

enum Message {
    Lane(Lane),
    State(State),
    Names(Names),
    /// Everything is in; what is left of the lanes is written, then the segment is taken away.
    Stop,
}

/// A record and when it ended, which the exporter turns into a time of day.
type Ended = (Record, Stamp);
type Producer = ringbuf::HeapProd<Ended>;

/// The exporter's end of a thread's records.
struct Lane {
    /// The runtime, as records name it.
    runtime: u8,
    ended: ringbuf::HeapCons<Ended>,
}

/// A thread's own part.
struct Own {
    identity: u64,
    counts: Arc<Counts>,
    /// Its end of its lane, from its first record on.
    producer: Option<Producer>,
}

thread_local! {
    /// A task may change threads between awaits, so it is looked up only within calls that await nothing.
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// What somebody else keeps, and the exporter shows.
pub trait Observed: Send {
    /// Fills in gauges.
    fn gauges(&self, gauges: &mut [u64; Gauge::COUNT]);
    /// How providers and keys stand; providers first.
    fn standings(&self) -> Vec<Standing>;
}

/// What the segment says of its gateway, beside what the machine tells.
#[derive(Debug, Clone)]
pub struct Description {
    /// `client.buffer_size`.
    pub buffer_size: usize,
    /// `client.initial_pool_size`.
    pub pool_size: usize,
    /// Runtimes that serve requests.
    pub workers: usize,
    /// Places for models, the one for all that have none included.
    pub models: usize,
    /// Providers and their keys, by configured name.
    pub providers: Names,
}

/// The exporter thread. Dropping it stops the thread, after what is left was written.
pub struct Exporter {
    telemetry: Arc<Telemetry>,
    thread: Option<JoinHandle<()>>,
}

impl Counts {
    fn new(models: usize) -> Self {
        Self {
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
            faults: std::array::from_fn(|_| AtomicU64::new(0)),
            models: (0..models.max(1)).map(|_| OfModel::default()).collect(),
            runtime: AtomicUsize::new(usize::MAX),
        }
    }

    fn count(&self, counter: Counter, by: u64) {
        add(&self.counters[counter.index()], by);
    }

    fn count_model(&self, place: usize, record: &Record) {
        let model = self.models.get(place).unwrap_or(&self.models[0]);
        add(&model.requests, 1);
        add(&model.prompt_tokens, record.prompt_tokens.into());
        add(&model.completion_tokens, record.completion_tokens.into());
    }
}

/// Adds to what only this thread writes.
fn add(word: &AtomicU64, by: u64) {
    let sum = word.load(Ordering::Relaxed).wrapping_add(by);
    // Who reads this one has the earlier ones, too.
    word.store(sum, Ordering::Release);
}

/// What all threads have counted of one thing.
fn sum(all: &[Arc<Counts>], of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
    all.iter()
        .map(|counts| of(counts).load(Ordering::Acquire))
        .sum()
}

impl Telemetry {
    /// Makes the segment and starts the exporter, which hands each record to `log`, if there is one. A segment that
    /// can't be made is a warning, never a reason not to serve.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    ///
    /// # Panics
    ///
    /// If a reader of this version can't read what its own writer wrote.
    pub fn start(
        settings: &config::Telemetry,
        description: &Description,
        clock: &Clock,
        observed: Box<dyn Observed>,
        log: Option<AccessLog>,
    ) -> io::Result<(Arc<Self>, Exporter)> {
        static INSTANCES: AtomicU64 = AtomicU64::new(1);
        let mut machine = Machine::new();
        let head = describe::head(settings, description, clock, &mut machine);
        let names = describe::names(&description.providers);
        let writer = place::make_segment(settings, |segment| Writer::new(segment, &head, &names));
        let segment = Arc::clone(writer.segment());
        let view = View::of(segment.words()).expect("a segment of this version is readable");
        let (exporter, messages) = mpsc::sync_channel(NEW_LANES_MAX);
        let telemetry = Arc::new(Self {
            counts: Mutex::new(vec![]),
            gauges: std::array::from_fn(|_| AtomicU64::new(0)),
            probes: (0..description.workers).map(|_| Probe::default()).collect(),
            models: description.models,
            exporter,
            segment,
            view,
            identity: INSTANCES.fetch_add(1, Ordering::Relaxed),
        });
        let export = Export::new(
            Arc::clone(&telemetry),
            writer,
            (machine, clock.clone()),
            (observed, log),
        );
        let thread = thread::Builder::new()
            .name("exporter".to_owned())
            .spawn(move || export.run(&messages))?;
        Ok((
            Arc::clone(&telemetry),
            Exporter {
                telemetry,
                thread: Some(thread),
            },
        ))
    }

    /// Adds to a counter.
    pub fn count(&self, counter: Counter, by: u64) {
        self.with_own(|own| own.counts.count(counter, by));
    }

    /// A counter's value.
    #[must_use]
    pub fn counted(&self, counter: Counter) -> u64 {
        self.sum(|counts| &counts.counters[counter.index()])
    }

    /// What was asked of the model in that place.
    #[must_use]
    pub fn asked(&self, model: usize) -> Asked {
        let of = |of: fn(&OfModel) -> &AtomicU64| self.sum(|counts| of(&counts.models[model]));
        Asked {
            requests: of(|model| &model.requests),
            prompt_tokens: of(|model| &model.prompt_tokens),
            completion_tokens: of(|model| &model.completion_tokens),
        }
    }

    /// A gauge's value, as of the exporter's last visit.
    #[must_use]
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge.index()].load(Ordering::Relaxed)
    }

    /// Requests that began and have not ended.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        // Ends are read first, and a thread that shows an end shows its beginning, so that a request which ends in
        // between can't make the difference negative.
        let counts = self.counts();
        let counted = |counter: Counter| sum(&counts, |counts| &counts.counters[counter.index()]);
        let ended: u64 = Outcome::ALL
            .into_iter()
            .map(|outcome| counted(ended_as(outcome)))
            .sum();
        counted(Counter::Started).saturating_sub(ended)
    }

    /// What the segment shows now: as of the exporter's last visit.
    #[must_use]
    pub fn figures(&self) -> Option<Figures> {
        self.view.figures(self.segment.words())
    }

    /// The segment's readers' view of it, and its words.
    #[must_use]
    pub fn view(&self) -> (&View, &[AtomicU64]) {
        (&self.view, self.segment.words())
    }

    /// The task that each runtime lends to its probe. It ends with the runtime.
    pub async fn be_probed(self: Arc<Self>, runtime: usize) {
        self.with_own(|own| own.counts.runtime.store(runtime, Ordering::Relaxed));
        if let Some(probe) = self.probes.get(runtime) {
            probe.be_probed().await;
        }
    }

    /// Tells readers what the gateway is doing.
    pub fn set_state(&self, state: State) {
        // The exporter may have gone in a shutdown: nobody is left to be told.
        let _ = self.exporter.send(Message::State(state));
    }

    /// Tells readers which providers and keys there are now.
    pub fn rename(&self, providers: Names) {
        let _ = self.exporter.send(Message::Names(providers));
    }

    fn sum(&self, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        sum(&self.counts(), of)
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Counts>>> {
        self.counts
            .lock()
            .expect("nobody panics with the list in hand")
    }

    fn counters(&self) -> [u64; Counter::COUNT] {
        let counts = self.counts();
        let mut values = [0; Counter::COUNT];
        // Backwards, since what began stands first: see `in_flight`.
        for at in (0..Counter::COUNT).rev() {
            values[at] = sum(&counts, |counts| &counts.counters[at]);
        }
        values
    }

    fn faults(&self) -> [u64; Fault::COUNT] {
        let counts = self.counts();
        std::array::from_fn(|at| sum(&counts, |counts| &counts.faults[at]))
    }

    fn lost_by_runtime(&self) -> Vec<u64> {
        let mut lost = vec![0; self.probes.len()];
        for counts in self.counts().iter() {
            if let Some(lost) = lost.get_mut(counts.runtime.load(Ordering::Relaxed)) {
                *lost += counts.counters[Counter::Lost.index()].load(Ordering::Relaxed);
            }
        }
        lost
    }

    fn with_own<T>(&self, work: impl FnOnce(&mut Own) -> T) -> T {
        OWN.with_borrow_mut(|own| {
            let own = match own {
                Some(own) if own.identity == self.identity => own,
                other => other.insert(self.new_own()),
            };
            work(own)
        })
    }

    #[cold]
    fn new_own(&self) -> Own {
        let counts = Arc::new(Counts::new(self.models));
        self.counts().push(Arc::clone(&counts));
        Own {
            identity: self.identity,
            counts,
            producer: None,
        }
    }

    #[cold]
    fn new_lane(&self, counts: &Counts) -> Option<Producer> {
        let (producer, ended) = HeapRb::new(LANE_RECORDS).split();
        let runtime = counts.runtime.load(Ordering::Relaxed);
        let lane = Lane {
            runtime: u8::try_from(runtime).unwrap_or(u8::MAX),
            ended,
        };
        // A full channel means dozens of new threads at once: the next record tries again.
        let sent = self.exporter.try_send(Message::Lane(lane));
        sent.is_ok().then_some(producer)
    }
}

impl Sink for Telemetry {
    fn began(&self) {
        self.count(Counter::Started, 1);
    }

    fn ended(&self, record: &Record, at: Stamp, model: usize) {
        self.with_own(|own| {
            let counts = &own.counts;
            counts.count(ended_as(record.outcome), 1);
            add(&counts.faults[record.fault.index()], 1);
            counts.count_model(model, record);
            counts.count(Counter::RequestBytes, record.request_bytes.into());
            counts.count(Counter::ResponseBytes, record.response_bytes.into());
            counts.count(Counter::PromptTokens, record.prompt_tokens.into());
            counts.count(Counter::CompletionTokens, record.completion_tokens.into());
            let has = |flag: u8| u64::from(record.flags & flag != 0);
            counts.count(Counter::Timeouts, has(flags::TIMED_OUT));
            counts.count(Counter::Streams, has(flags::STREAM));
            counts.count(Counter::Dials, has(flags::CONNECTED));
            if own.producer.is_none() {
                own.producer = self.new_lane(counts);
            }
            let pushed = own
                .producer
                .as_mut()
                .is_some_and(|lane| lane.try_push((*record, at)).is_ok());
            if !pushed {
                own.counts.count(Counter::Lost, 1);
            }
        });
    }
}

impl Exporter {
    /// Where the segment is, if there is one that others can see.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.telemetry.segment.path()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.telemetry.exporter.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The counter that an outcome adds to.
const fn ended_as(outcome: Outcome) -> Counter {
    match outcome {
        Outcome::Cancelled => Counter::Cancelled,
        Outcome::Completed => Counter::Completed,
        Outcome::Rejected => Counter::Rejected,
        Outcome::Refused => Counter::Refused,
        Outcome::Failed => Counter::Failed,
        Outcome::Truncated => Counter::Truncated,
    }
}

#[cfg(test)]
mod tests {
    use bifrost_shared::layout;
    use bifrost_shared::record::NONE;
    use bifrost_shared::segment;
    use bifrost_shared::slot::{COUNTED, SlotCount, SlotState};
    use bifrost_shared::snapshot::View;
    use bifrost_shared::stage::{Series, Stage};
    use bifrost_shared::thresholds::Thresholds;

    use super::*;

    /// One provider.
    struct One;

    impl Observed for One {
        fn gauges(&self, _: &mut [u64; Gauge::COUNT]) {}

        fn standings(&self) -> Vec<Standing> {
            vec![Standing {
                provider: 0,
                key: NONE,
                incarnation: 0,
                state: SlotState::Ready,
                until: 0,
                weight_millionths: 0,
                places: 1,
                taken: 0,
                waiting: 0,
                counts: [0; COUNTED],
            }]
        }
    }

    fn start(segment: &Path) -> (Arc<Telemetry>, Exporter) {
        start_with(segment, Box::new(One))
    }

    fn start_with(segment: &Path, observed: Box<dyn Observed>) -> (Arc<Telemetry>, Exporter) {
        let settings = config::Telemetry {
            enabled: true,
            segment: Some(segment.to_owned()),
            readers: segment::Readers::Owner,
            thresholds: Thresholds::default(),
            instance: None,
            credit_mode: None,
            instance_metadata: config::InstanceMetadata::Off,
        };
        let description = Description {
            buffer_size: 15_000,
            pool_size: 10_000,
            workers: 1,
            models: 2,
            providers: vec![("openai".to_owned(), vec!["main".to_owned()])],
        };
        Telemetry::start(&settings, &description, &Clock::new(), observed, None).unwrap()
    }

    fn end(telemetry: &Telemetry, outcome: Outcome) {
        telemetry.began();
        let mut record = Record {
            outcome,
            provider: 0,
            total: 500,
            ..Record::default()
        };
        record.stages[Stage::HttpRequest.index()] = 400;
        telemetry.ended(&record, Clock::new().stamp(), 0);
    }

    #[test]
    fn what_threads_leave_behind_reaches_the_segment_and_the_counts_agree() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("one.seg");
        let (telemetry, exporter) = start(&path);
        assert_eq!(exporter.path(), Some(path.as_path()));
        let opened = segment::Opened::open(&path).unwrap();
        thread::scope(|scope| {
            for outcome in [Outcome::Completed, Outcome::Cancelled] {
                let telemetry = &telemetry;
                scope.spawn(move || (0..1_000).for_each(|_| end(telemetry, outcome)));
            }
        });
        assert_eq!(telemetry.in_flight(), 0);
        // The exporter writes what is left before it goes.
        drop(exporter);
        let words = opened.words().unwrap();
        let figures = View::of(words).unwrap().figures(words).unwrap();
        let counter = |counter: Counter| figures.counters[counter.index()];
        assert_eq!(
            (counter(Counter::Completed), counter(Counter::Cancelled)),
            (1_000, 1_000)
        );
        assert_eq!(
            (counter(Counter::Records), counter(Counter::Lost)),
            (2_000, 0)
        );
        assert_eq!(figures.histograms[Series::Added.index()].sum, 2_000 * 100);
        assert!(!path.exists(), "an orderly end takes the file away");
    }

    #[test]
    fn a_request_that_ends_before_the_exporters_first_visit_counts_for_its_provider() {
        let scratch = tempfile::tempdir().unwrap();
        let (telemetry, exporter) = start(&scratch.path().join("one.seg"));
        end(&telemetry, Outcome::Completed);
        drop(exporter);
        let figures = telemetry.figures().unwrap();
        assert_eq!(figures.slots[0].count(SlotCount::Requests), 1);
        assert_eq!(figures.slots[0].latency.sum, 400);
    }

    /// Holds the exporter at each visit until it is let go.
    struct Held {
        here: mpsc::SyncSender<()>,
        go: mpsc::Receiver<()>,
    }

    impl Observed for Held {
        fn gauges(&self, _: &mut [u64; Gauge::COUNT]) {
            // Once the test has let go of its ends, nothing is waited for.
            if self.here.send(()).is_ok() {
                let _ = self.go.recv();
            }
        }

        fn standings(&self) -> Vec<Standing> {
            vec![]
        }
    }

    #[test]
    fn a_lane_that_nobody_drains_loses_records_but_no_counts() {
        const TOO_MANY: usize = 100;
        let scratch = tempfile::tempdir().unwrap();
        let (here, arrived) = mpsc::sync_channel(0);
        let (go, held) = mpsc::channel();
        let observed = Box::new(Held { here, go: held });
        let (telemetry, exporter) = start_with(&scratch.path().join("one.seg"), observed);
        arrived.recv().unwrap();
        for _ in 0..LANE_RECORDS + TOO_MANY {
            end(&telemetry, Outcome::Completed);
        }
        assert_eq!(telemetry.counted(Counter::Lost), TOO_MANY as u64);
        drop((arrived, go));
        drop(exporter);
        assert_eq!(telemetry.counted(Counter::Records), LANE_RECORDS as u64);
        assert_eq!(
            telemetry.counted(Counter::Completed),
            (LANE_RECORDS + TOO_MANY) as u64
        );
        let figures = telemetry.figures().unwrap();
        assert_eq!(figures.counter(Counter::Lost), TOO_MANY as u64);
        assert_eq!(figures.histogram(Series::Total).count, LANE_RECORDS as u64);
    }

    #[test]
    fn a_model_counts_what_it_was_asked_on_all_threads_and_one_without_a_place_with_the_others() {
        let scratch = tempfile::tempdir().unwrap();
        let (telemetry, _exporter) = start(&scratch.path().join("one.seg"));
        let record = Record {
            prompt_tokens: 7,
            completion_tokens: 2,
            ..Record::default()
        };
        let at = Clock::new().stamp();
        thread::scope(|scope| {
            for model in [0, 1, 1, 9] {
                let telemetry = &telemetry;
                scope.spawn(move || telemetry.ended(&record, at, model));
            }
        });
        let asked = Asked {
            requests: 2,
            prompt_tokens: 14,
            completion_tokens: 4,
        };
        assert_eq!([0, 1].map(|model| telemetry.asked(model)), [asked, asked]);
    }

    #[test]
    fn a_directory_that_others_can_write_in_gets_no_segment_and_keeps_its_files() {
        use std::os::unix::fs::PermissionsExt as _;
        let scratch = tempfile::tempdir().unwrap();
        let theirs = scratch.path().join("theirs.seg");
        std::fs::write(&theirs, "not ours").unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(scratch.path(), open).unwrap();
        let (_, exporter) = start(scratch.path());
        assert_eq!(exporter.path(), None);
        assert!(theirs.exists());
    }

    #[test]
    fn what_a_dead_gateway_left_is_tidied_and_nothing_else() {
        let scratch = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .tempdir()
            .unwrap();
        let (dead, precious) = (
            scratch.path().join("gateway-1.seg"),
            scratch.path().join("precious.seg"),
        );
        let left = Segment::create(&dead, layout::segment_bytes()).unwrap();
        left.publish().unwrap();
        drop(left);
        std::fs::write(&precious, "a text").unwrap();
        let (_, exporter) = start(scratch.path());
        assert!(exporter.path().is_some_and(Path::exists));
        assert!(!dead.exists() && precious.exists());
    }

    #[test]
    fn without_a_place_for_the_segment_the_figures_are_kept_all_the_same() {
        let (telemetry, exporter) = start(Path::new("/proc/no/such/place"));
        assert_eq!(exporter.path(), None);
        end(&telemetry, Outcome::Completed);
        drop(exporter);
        assert_eq!(telemetry.counted(Counter::Records), 1);
    }
}
