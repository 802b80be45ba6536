//! From the end of a request to the shared segment: exact counters, a lane of records for each thread, and the exporter,
//! a plain thread that is the segment's only writer.
//!
//! A request costs the hot path one push into memory of its own thread. A lane that is full, because the exporter did
//! not run for a second or more, drops the newest record and counts the loss; the counters stay exact.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bifrost_shared::layout::{self, Counter, Gauge, NameKind, State};
use bifrost_shared::record::{Outcome, Record, flags};
use bifrost_shared::segment::{self, Segment};
use bifrost_shared::snapshot::{Header, Name};
use bifrost_shared::thresholds::Thresholds;
use bifrost_shared::writer::Writer;
use ringbuf::HeapRb;
use ringbuf::traits::{Consumer as _, Observer as _, Producer as _, Split as _};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::config;
use crate::machine::{self, Machine};
use crate::stopwatch::Sink;

/// Records that a lane holds: 1.6 s of an exporter that doesn't run, at 2,500 requests a second and thread.
const LANE_RECORDS: usize = 4_096;
/// How often the exporter comes by.
const EXPORT_EVERY: Duration = Duration::from_millis(20);
/// Records moved at a time, so that readers of the histograms are kept out for some microseconds only.
const BATCH_RECORDS: usize = 256;
/// An exporter that comes this much too late was short of processor time, and says so in the row.
const LATE: Duration = Duration::from_millis(100);
/// Lanes that may wait to be taken over by the exporter.
const NEW_LANES_MAX: usize = 64;

/// Counters and lanes: the half that requests see.
pub struct Telemetry {
    counters: [AtomicU64; Counter::COUNT],
    /// As of the exporter's last visit.
    gauges: [AtomicU64; Gauge::COUNT],
    /// One for each runtime.
    probes: Box<[Probe]>,
    /// Records that each lane lost, in the order in which the lanes were made.
    lost: Mutex<Vec<Arc<AtomicU64>>>,
    exporter: SyncSender<Message>,
    /// Tells this instance from others that the same thread may have served.
    identity: u64,
}

enum Message {
    Lane(Lane),
    State(State),
    Names(Vec<Name>),
    /// Everything is in; what is left of the lanes is written, then the segment is taken away.
    Stop,
}

type Producer = ringbuf::HeapProd<Record>;
type Lane = ringbuf::HeapCons<Record>;

struct OwnLane {
    identity: u64,
    /// Which of the lanes it is: the runtime, as records name it.
    number: u8,
    producer: Producer,
    lost: Arc<AtomicU64>,
}

thread_local! {
    /// This thread's end of its lane. A task may change threads between awaits, so it is looked up only within
    /// [`Telemetry::ended`], which awaits nothing.
    static LANE: RefCell<Option<OwnLane>> = const { RefCell::new(None) };
}

/// Finds out how long a runtime makes a task wait: the exporter stamps and wakes a task there, which tells how late it
/// ran. A timer of the runtime's own would show its own step of a millisecond instead.
#[derive(Debug, Default)]
struct Probe {
    wake: Notify,
    /// When the task was woken, on the system's monotonic clock; zero while nobody waits for it.
    sent_at: AtomicU64,
    /// When the task last ran.
    ran_at: AtomicU64,
    /// The delays of this second.
    delays: AtomicU64,
    runs: AtomicU64,
}

impl Probe {
    fn send(&self) {
        // One at a time: a runtime that is stuck is measured from the first call.
        if self.sent_at.load(Ordering::Relaxed) == 0 {
            self.sent_at
                .store(segment::monotonic_ns(), Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    fn ran(&self) {
        let now = segment::monotonic_ns();
        let sent_at = self.sent_at.swap(0, Ordering::Relaxed);
        if sent_at > 0 {
            self.delays
                .fetch_add(now.saturating_sub(sent_at), Ordering::Relaxed);
            self.runs.fetch_add(1, Ordering::Relaxed);
        }
        self.ran_at.store(now, Ordering::Relaxed);
    }

    /// The mean delay since the last call. A runtime that did not run at all has been late for as long as it was
    /// called.
    fn mean(&self) -> u64 {
        let (delays, runs) = (
            self.delays.swap(0, Ordering::Relaxed),
            self.runs.swap(0, Ordering::Relaxed),
        );
        delays
            .checked_div(runs)
            .unwrap_or_else(|| match self.sent_at.load(Ordering::Relaxed) {
                0 => 0,
                sent_at => segment::monotonic_ns().saturating_sub(sent_at),
            })
    }
}

/// Reads gauges that somebody else keeps.
pub type Gauges = Box<dyn Fn(&mut [u64; Gauge::COUNT]) + Send>;

/// What the segment says of its gateway, beside what the machine tells.
#[derive(Debug, Clone)]
pub struct Description {
    /// `client.buffer_size`.
    pub buffer_size: usize,
    /// `client.initial_pool_size`.
    pub pool_size: usize,
    /// Runtimes that serve requests.
    pub workers: usize,
    /// Providers and their keys, by configured name.
    pub providers: Vec<(String, Vec<String>)>,
}

/// The exporter thread. Dropping it stops the thread, after what is left was written.
pub struct Exporter {
    telemetry: Arc<Telemetry>,
    path: Option<PathBuf>,
    thread: Option<JoinHandle<()>>,
}

impl Telemetry {
    /// Makes the segment and starts the exporter. A segment that can't be made is a warning, never a reason not to
    /// serve.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub fn start(
        settings: &config::Telemetry,
        description: &Description,
        clock: &Clock,
        gauges: Gauges,
    ) -> io::Result<(Arc<Self>, Exporter)> {
        static INSTANCES: AtomicU64 = AtomicU64::new(1);
        let mut machine = Machine::new();
        let head = head(
            settings.thresholds,
            settings.instance.as_deref(),
            description,
            clock,
            &mut machine,
        );
        let names = names(&description.providers);
        let writer = make_segment(settings, |segment| Writer::new(segment, &head, &names));
        let path = writer.segment().path().map(Path::to_owned);
        let (exporter, messages) = mpsc::sync_channel(NEW_LANES_MAX);
        let telemetry = Arc::new(Self {
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
            gauges: std::array::from_fn(|_| AtomicU64::new(0)),
            probes: (0..description.workers).map(|_| Probe::default()).collect(),
            lost: Mutex::new(vec![]),
            exporter,
            identity: INSTANCES.fetch_add(1, Ordering::Relaxed),
        });
        let export = Export {
            telemetry: Arc::clone(&telemetry),
            writer,
            machine,
            gauges,
            lanes: vec![],
            values: [0; Gauge::COUNT],
            batch: vec![Record::default(); BATCH_RECORDS].into_boxed_slice(),
        };
        let thread = thread::Builder::new()
            .name("exporter".to_owned())
            .spawn(move || export.run(&messages))?;
        Ok((
            Arc::clone(&telemetry),
            Exporter {
                telemetry,
                path,
                thread: Some(thread),
            },
        ))
    }

    /// Adds to a counter.
    pub fn count(&self, counter: Counter, by: u64) {
        self.counters[counter.index()].fetch_add(by, Ordering::Relaxed);
    }

    /// A counter's value.
    #[must_use]
    pub fn counted(&self, counter: Counter) -> u64 {
        self.counters[counter.index()].load(Ordering::Relaxed)
    }

    /// A gauge's value, as of the exporter's last visit.
    #[must_use]
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge.index()].load(Ordering::Relaxed)
    }

    /// Requests that began and have not ended.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        // Ends are read first, so that a request which ends in between can't make the difference negative.
        let ended: u64 = Outcome::ALL
            .into_iter()
            .map(|outcome| self.counted(ended_as(outcome)))
            .sum();
        self.counted(Counter::Started).saturating_sub(ended)
    }

    /// The task that each runtime lends to its probe. It ends with the runtime.
    pub async fn be_probed(self: Arc<Self>, worker: usize) {
        let Some(probe) = self.probes.get(worker) else {
            return;
        };
        loop {
            probe.ran();
            probe.wake.notified().await;
        }
    }

    /// Tells readers what the gateway is doing.
    pub fn set_state(&self, state: State) {
        // The exporter may have gone in a shutdown: nobody is left to be told.
        let _ = self.exporter.send(Message::State(state));
    }

    /// Tells readers which providers and keys there are now.
    pub fn rename(&self, providers: &[(String, Vec<String>)]) {
        let _ = self.exporter.send(Message::Names(names(providers)));
    }

    fn values(&self) -> [u64; Counter::COUNT] {
        let mut values =
            std::array::from_fn(|counter| self.counters[counter].load(Ordering::Relaxed));
        values[Counter::Lost.index()] = self.losses().iter().sum();
        values
    }

    fn losses(&self) -> Vec<u64> {
        let lost = self
            .lost
            .lock()
            .expect("nobody panics with the list in hand");
        lost.iter()
            .map(|lane| lane.load(Ordering::Relaxed))
            .collect()
    }

    fn new_lane(&self) -> OwnLane {
        let (producer, consumer) = HeapRb::new(LANE_RECORDS).split();
        let lost = Arc::new(AtomicU64::new(0));
        let number = {
            let mut lanes = self
                .lost
                .lock()
                .expect("nobody panics with the list in hand");
            lanes.push(Arc::clone(&lost));
            u8::try_from(lanes.len() - 1).unwrap_or(u8::MAX)
        };
        // A full channel would mean dozens of new threads at once; their records then count as lost.
        let _ = self.exporter.try_send(Message::Lane(consumer));
        OwnLane {
            identity: self.identity,
            number,
            producer,
            lost,
        }
    }
}

impl Sink for Telemetry {
    fn began(&self) {
        self.count(Counter::Started, 1);
    }

    fn ended(&self, mut record: Record) {
        self.count(Counter::RequestBytes, record.request_bytes.into());
        self.count(Counter::ResponseBytes, record.response_bytes.into());
        record.in_flight = u32::try_from(self.in_flight()).unwrap_or(u32::MAX);
        record.ended_at = wall_ns();
        self.count(ended_as(record.outcome), 1);
        if record.flags & flags::TIMED_OUT != 0 {
            self.count(Counter::Timeouts, 1);
        }
        LANE.with_borrow_mut(|lane| {
            let lane = match lane {
                Some(lane) if lane.identity == self.identity => lane,
                other => other.insert(self.new_lane()),
            };
            record.worker = lane.number;
            if lane.producer.try_push(record).is_err() {
                lane.lost.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

impl Exporter {
    /// Where the segment is, if there is one that others can see.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
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

/// The exporter thread's own.
struct Export {
    telemetry: Arc<Telemetry>,
    writer: Writer,
    machine: Machine,
    gauges: Gauges,
    lanes: Vec<Lane>,
    values: [u64; Gauge::COUNT],
    batch: Box<[Record]>,
}

impl Export {
    fn run(mut self, messages: &Receiver<Message>) {
        let mut second = Instant::now();
        let mut due = second + EXPORT_EVERY;
        self.machine.look(0, &mut self.values);
        loop {
            match messages.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Message::Lane(lane)) => self.lanes.push(lane),
                Ok(Message::State(state)) => self.writer.segment().set_state(state),
                Ok(Message::Names(names)) => self.writer.rename(&names),
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let now = Instant::now();
                    self.export();
                    let length = now.duration_since(second);
                    if length >= Duration::from_secs(1) {
                        self.close_second(length);
                        second = now;
                    }
                    due = now + EXPORT_EVERY;
                }
            }
        }
        self.export();
        self.writer.segment().remove();
    }

    fn export(&mut self) {
        let mut moved = 0;
        for lane in &mut self.lanes {
            // What was there when we came is the bound: a lane that fills as fast as it drains must not hold us.
            let mut left = lane.occupied_len();
            while left > 0 {
                let count = lane.pop_slice(&mut self.batch);
                self.writer.absorb(&self.batch[..count]);
                moved += count as u64;
                left = left.saturating_sub(count.max(1));
            }
        }
        self.lanes
            .retain(|lane| lane.write_is_held() || !lane.is_empty());
        self.telemetry.count(Counter::Records, moved);
        (self.gauges)(&mut self.values);
        self.values[Gauge::InFlight.index()] = self.telemetry.in_flight();
        for (shown, value) in self.telemetry.gauges.iter().zip(self.values) {
            shown.store(value, Ordering::Relaxed);
        }
        let probes = &self.telemetry.probes;
        probes.iter().for_each(Probe::send);
        self.writer.beat(
            probes
                .iter()
                .map(|probe| probe.ran_at.load(Ordering::Relaxed)),
        );
        self.writer.show(
            &self.telemetry.values(),
            &self.values,
            &self.telemetry.losses(),
        );
    }

    fn close_second(&mut self, length: Duration) {
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.machine.look(millis, &mut self.values);
        let slowest = self.telemetry.probes.iter().map(Probe::mean).max();
        self.values[Gauge::SchedulerDelay.index()] = slowest.unwrap_or(0);
        let late = length >= Duration::from_secs(1) + LATE;
        self.writer.close_second(
            wall_ns(),
            nanos,
            late,
            &self.telemetry.values(),
            &self.values,
        );
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

/// Nanoseconds since the Unix epoch.
fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        })
}

/// A segment where the settings, or the usual places, allow one; else figures on the heap, and one warning.
fn make_segment(settings: &config::Telemetry, fill: impl Fn(Segment) -> Writer) -> Writer {
    let bytes = layout::segment_bytes();
    if settings.enabled {
        let mut complaints = vec![];
        for (path, is_named) in candidates(settings.segment.as_deref()) {
            match publish(&path, is_named, bytes, &fill) {
                Ok(writer) => {
                    if !path
                        .parent()
                        .is_some_and(|at| segment::is_in_memory(at).unwrap_or(true))
                    {
                        tracing::warn!(path = %path.display(), "the segment is on a disk: a write may wait for it; use a tmpfs");
                    }
                    return writer;
                }
                Err(error) => complaints.push(format!("{}: {error}", path.display())),
            }
        }
        tracing::warn!(
            tried = complaints.join("; "),
            "no place for the telemetry segment: serving without, no monitor can attach"
        );
    }
    let writer = fill(Segment::on_heap(bytes));
    writer.publish().expect("nothing is named on the heap");
    writer
}

/// Publishes at `path`. Where the program chose the file's name, its directory has to be ours alone: in one that others
/// can write in, anybody could put a segment of his own in our place.
fn publish(
    path: &Path,
    is_named: bool,
    bytes: usize,
    fill: &impl Fn(Segment) -> Writer,
) -> io::Result<Writer> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if !is_named {
        segment::own_directory(directory)?;
        segment::tidy(directory);
    }
    let writer = fill(Segment::create(path, bytes)?);
    writer.publish()?;
    Ok(writer)
}

/// The files to try, best first, and whether the user named the file itself.
fn candidates(told: Option<&Path>) -> Vec<(PathBuf, bool)> {
    let directories = match told {
        Some(file) if segment::names_a_file(file) => return vec![(file.to_owned(), true)],
        Some(directory) => vec![directory.to_owned()],
        None => segment::default_directories(),
    };
    let name = format!("gateway-{}.seg", std::process::id());
    directories
        .into_iter()
        .map(|directory| (directory.join(&name), false))
        .collect()
}

fn head(
    thresholds: Thresholds,
    instance: Option<&str>,
    description: &Description,
    clock: &Clock,
    machine: &mut Machine,
) -> Header {
    let memory = machine.memory();
    Header {
        version: (layout::VERSION_MAJOR, layout::VERSION_MINOR),
        pid: std::process::id().into(),
        start_ticks: machine::start_ticks(),
        boot_id: segment::boot_id(),
        started_at: wall_ns(),
        clock: clock.kind(),
        stamp_cost_ps: clock.cost_ps(),
        vcpus: machine.vcpus(),
        memory_total: memory.total,
        memory_limit: memory.limit,
        buffer_size: description.buffer_size as u64,
        pool_size: description.pool_size as u64,
        workers: description.workers as u64,
        thresholds,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        instance: instance.unwrap_or_default().to_owned(),
    }
}

fn names(providers: &[(String, Vec<String>)]) -> Vec<Name> {
    let name = |kind: NameKind, index: usize, key: &str, label: String| Name {
        kind: kind as u64,
        index: index as u64,
        in_overhead: false,
        reference_ns: (None, None),
        key: key.to_owned(),
        label,
    };
    let mut names = vec![];
    for (provider, (provider_name, keys)) in providers.iter().enumerate() {
        names.push(name(
            NameKind::Provider,
            provider,
            provider_name,
            provider_name.clone(),
        ));
        for (key, key_name) in keys.iter().enumerate() {
            names.push(name(
                NameKind::Key,
                provider << 32 | key,
                key_name,
                format!("{provider_name}/{key_name}"),
            ));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use bifrost_shared::snapshot::View;
    use bifrost_shared::stage::{Series, Stage};

    use super::*;

    fn start(segment: &Path) -> (Arc<Telemetry>, Exporter) {
        let settings = config::Telemetry {
            enabled: true,
            segment: Some(segment.to_owned()),
            thresholds: Thresholds::default(),
            instance: None,
        };
        let description = Description {
            buffer_size: 15_000,
            pool_size: 10_000,
            workers: 1,
            providers: vec![("openai".to_owned(), vec!["main".to_owned()])],
        };
        Telemetry::start(&settings, &description, &Clock::new(), Box::new(|_| {})).unwrap()
    }

    fn end(telemetry: &Telemetry, outcome: Outcome) {
        telemetry.began();
        let mut record = Record {
            outcome,
            total: 500,
            ..Record::default()
        };
        record.stages[Stage::HttpRequest.index()] = 400;
        telemetry.ended(record);
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
    fn a_lane_that_nobody_drains_loses_records_but_no_counts() {
        let scratch = tempfile::tempdir().unwrap();
        let (telemetry, exporter) = start(&scratch.path().join("one.seg"));
        let (blocked, unblock) = (Arc::clone(&telemetry), exporter);
        thread::spawn(move || {
            // Two visits of the exporter may fall in between, so several lanes' worth are sent.
            for _ in 0..LANE_RECORDS * 50 {
                end(&blocked, Outcome::Completed);
            }
        })
        .join()
        .unwrap();
        drop(unblock);
        let lost: u64 = telemetry.losses().iter().sum();
        assert_eq!(
            telemetry.counted(Counter::Completed),
            (LANE_RECORDS * 50) as u64
        );
        assert_eq!(
            telemetry.counted(Counter::Records) + lost,
            (LANE_RECORDS * 50) as u64
        );
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
