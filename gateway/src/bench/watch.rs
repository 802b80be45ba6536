//! What a process does while it is under load: memory and processor time from `/proc`, and what a gateway's segment
//! tells, read as a monitor does.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use bifrost_shared::layout::{Counter, Gauge};
use bifrost_shared::segment::Opened;
use bifrost_shared::snapshot::{Figures, View};
use bifrost_shared::stage::{Series, Stage};
use serde::{Deserialize, Serialize};

use super::process;
use super::scenario::Setup;
use super::tally::Spread;

/// How often it looks. The segment's ring holds 16,384 records: three seconds of 5,000 a second.
const EVERY: Duration = Duration::from_millis(100);

/// How long the exporter may take to write what was in flight, at its 50 ms a round; and how often it gets so much where
/// the machine is busy.
const SETTLE: Duration = Duration::from_millis(200);
const SETTLES_MAX: u32 = 10;

/// One look at the memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Look {
    /// Since the load's start.
    pub(super) seconds: f64,
    pub(super) rss: u64,
}

/// What a process used under a load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Usage {
    /// Processor time in all, seconds, the warm-up's included.
    pub(super) cpu_seconds: f64,
    /// Processors kept busy while what was measured was sent.
    pub(super) cores: f64,
    /// Resident memory, bytes: before the load, at its peak, and when the last answer was in.
    pub(super) rss_before: u64,
    pub(super) rss_peak: u64,
    pub(super) rss_after: u64,
    pub(super) descriptors_max: u64,
    pub(super) looks: Vec<Look>,
}

/// One series of a gateway's, after the warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SeriesRow {
    pub(super) key: String,
    pub(super) label: String,
    pub(super) is_stage: bool,
    pub(super) in_overhead: bool,
    pub(super) count: u64,
    /// All in ns.
    pub(super) mean: u64,
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
    /// The page's means on its t3.medium and its t3.xlarge.
    pub(super) medium: Option<u64>,
    pub(super) xlarge: Option<u64>,
}

/// What a gateway's segment told of a load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Inside {
    pub(super) series: Vec<SeriesRow>,
    /// Of each request: what was added in process, and its *HTTP request* less the time that the provider told. Exact,
    /// from its records.
    pub(super) in_process: Spread,
    pub(super) http_less_service: Spread,
    /// Records that were overwritten before they were read.
    pub(super) records_missed: u64,
    /// Requests that it counted since its start, by how they ended.
    pub(super) started: u64,
    pub(super) completed: u64,
    pub(super) not_completed: u64,
    pub(super) retries: u64,
    pub(super) in_flight_max: u64,
    /// How long a runtime made a task wait, ns: a second's mean of the slowest one; the mean and the most of these.
    pub(super) scheduler_delay_mean: u64,
    pub(super) scheduler_delay_max: u64,
    /// Time stolen by the hypervisor, thousandths: the most in a second.
    pub(super) steal_max: u64,
    pub(super) workers: u64,
    pub(super) buffer_size: u64,
    pub(super) pool_size: u64,
    pub(super) memory_limit: u64,
    pub(super) vcpus: u64,
}

/// Looks at a process until it is told to stop.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<(Usage, Option<Inside>)>>,
}

impl Watch {
    /// Begins to look at `pid` under the load of `setup`, and at its segment if it has one.
    pub(super) fn start(pid: u32, opened: Option<Opened>, setup: &Setup) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let times = Times::of(setup);
        let thread = thread::spawn(move || watch(pid, opened.as_ref(), &times, &told));
        Self { stop, thread }
    }

    /// What it saw. A process that ended meanwhile is an error: what it no longer uses says nothing of it.
    pub(super) fn end(self) -> anyhow::Result<(Usage, Option<Inside>)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let seen = self.thread.join();
        seen.unwrap_or_else(|_| Err(anyhow!("it could not be watched")))
    }
}

/// What counts of what is seen, by the time since the load's start.
#[derive(Debug, Clone, PartialEq)]
struct Times {
    /// While the requests that are measured are sent.
    sent: Range<Duration>,
    /// From here on none ends that was sent in the warm-up.
    settled: Duration,
}

impl Times {
    fn of(setup: &Setup) -> Self {
        Self {
            sent: setup.warm_up..setup.warm_up + setup.time,
            settled: setup.warm_up + setup.delay_max(),
        }
    }
}

fn watch(
    pid: u32,
    opened: Option<&Opened>,
    times: &Times,
    stop: &AtomicBool,
) -> anyhow::Result<(Usage, Option<Inside>)> {
    let begun = Instant::now();
    let used = || process::used(pid).context("it ended under the load");
    let before = used()?;
    let mut usage = Usage {
        rss_before: before.rss,
        ..Usage::default()
    };
    let mut busy = Busy::default();
    let mut reader = opened.and_then(Reader::new);
    while !stop.load(Ordering::Relaxed) {
        thread::park_timeout(EVERY);
        let (now, at) = (used()?, begun.elapsed());
        usage.looks.push(Look {
            seconds: at.as_secs_f64(),
            rss: now.rss,
        });
        usage.rss_peak = usage.rss_peak.max(now.rss_peak);
        if times.sent.contains(&at) {
            busy.look(at, now.cpu);
        }
        // Counting thousands takes milliseconds.
        if usage.looks.len() % 20 == 1 {
            usage.descriptors_max = usage.descriptors_max.max(process::descriptors(pid));
        }
        if let Some(reader) = &mut reader {
            reader.look(at >= times.settled);
        }
    }
    let after = used()?;
    usage.cpu_seconds = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    usage.cores = busy.cores();
    usage.rss_peak = usage.rss_peak.max(after.rss_peak);
    usage.rss_after = after.rss;
    Ok((usage, reader.and_then(Reader::end)))
}

/// Processor time at the first and at the last of several looks, each with its time.
#[derive(Debug, Default)]
struct Busy(Option<[(Duration, Duration); 2]>);

impl Busy {
    fn look(&mut self, at: Duration, cpu: Duration) {
        let first = self.0.map_or((at, cpu), |[first, _]| first);
        self.0 = Some([first, (at, cpu)]);
    }

    /// Processors kept busy in between; none where there was but one look.
    fn cores(&self) -> f64 {
        let Some([(begun, before), (ended, after)]) = self.0.filter(|[first, last]| first < last)
        else {
            return 0.0;
        };
        let between = ended.saturating_sub(begun);
        after.saturating_sub(before).as_secs_f64() / between.as_secs_f64()
    }
}

/// A reader of one gateway's segment.
struct Reader<'a> {
    opened: &'a Opened,
    view: View,
    samples: bifrost_shared::snapshot::Samples,
    rows: bifrost_shared::snapshot::Rows,
    /// The figures at the end of the warm-up.
    before: Option<Figures>,
    in_process: Vec<f64>,
    http_less_service: Vec<f64>,
    delays: Vec<u64>,
    inside: Inside,
}

impl<'a> Reader<'a> {
    fn new(opened: &'a Opened) -> Option<Self> {
        let words = opened.words()?;
        let view = View::of(words).ok()?;
        Some(Self {
            samples: view.samples_from_now(words).ok()?,
            rows: view.rows_from_oldest(words).ok()?,
            opened,
            view,
            before: None,
            in_process: vec![],
            http_less_service: vec![],
            delays: vec![],
            inside: Inside::default(),
        })
    }

    /// Reads what is new; it counts if it `is_measured`.
    fn look(&mut self, is_measured: bool) {
        let Some(words) = self.opened.words() else {
            return;
        };
        if is_measured && self.before.is_none() {
            self.before = self.view.figures(words);
        }
        while let Some(record) = self.samples.next(words) {
            if !is_measured {
                continue;
            }
            self.in_process.push(record.added() as f64);
            let http = record.stage(Stage::HttpRequest);
            if record.provider_time > 0 {
                let rest = http.saturating_sub(record.provider_time);
                self.http_less_service.push(rest as f64);
            }
        }
        while let Some(row) = self.rows.next(words) {
            if is_measured {
                self.delays.push(row.gauge(Gauge::SchedulerDelay));
                self.inside.steal_max = self.inside.steal_max.max(row.gauge(Gauge::Steal));
            }
            let in_flight = row.gauge(Gauge::InFlight);
            self.inside.in_flight_max = self.inside.in_flight_max.max(in_flight);
        }
    }

    /// Reads until all requests that began have ended there, too.
    fn settle(&mut self) -> Option<Figures> {
        let mut last = None;
        for _ in 0..SETTLES_MAX {
            thread::sleep(SETTLE);
            self.look(true);
            let figures = self.view.figures(self.opened.words()?)?;
            let ended = figures.counter(Counter::Completed) + not_completed(&figures);
            let is_settled = ended == figures.counter(Counter::Started);
            last = Some(figures);
            if is_settled {
                break;
            }
        }
        last
    }

    fn end(mut self) -> Option<Inside> {
        let after = self.settle()?;
        let before = self.before.take().unwrap_or_default();
        let mut inside = std::mem::take(&mut self.inside);
        inside.series = Series::all()
            .map(|series| row(series, &after, &before))
            .collect();
        inside.in_process = Spread::of(&mut self.in_process);
        inside.http_less_service = Spread::of(&mut self.http_less_service);
        inside.records_missed = self.samples.missed();
        inside.started = after.counter(Counter::Started);
        inside.completed = after.counter(Counter::Completed);
        inside.not_completed = not_completed(&after);
        inside.retries = after.counter(Counter::Retries);
        let seconds = self.delays.len() as u64;
        inside.scheduler_delay_mean = self
            .delays
            .iter()
            .sum::<u64>()
            .checked_div(seconds)
            .unwrap_or(0);
        inside.scheduler_delay_max = self.delays.iter().copied().max().unwrap_or(0);
        let header = &self.view.header;
        inside.workers = header.workers;
        inside.buffer_size = header.buffer_size;
        inside.pool_size = header.pool_size;
        inside.memory_limit = header.memory_limit;
        inside.vcpus = header.vcpus;
        Some(inside)
    }
}

/// The ways for a request to end other than completed.
const NOT_COMPLETED: [Counter; 5] = [
    Counter::Cancelled,
    Counter::Rejected,
    Counter::Refused,
    Counter::Failed,
    Counter::Truncated,
];

fn not_completed(figures: &Figures) -> u64 {
    let counts = NOT_COMPLETED.map(|counter| figures.counter(counter));
    counts.iter().sum()
}

fn row(series: Series, after: &Figures, before: &Figures) -> SeriesRow {
    let histogram = after.histogram(series).since(before.histogram(series));
    let (medium, xlarge) = series.reference_ns();
    let quantile = |share| histogram.quantile(share).unwrap_or(0);
    SeriesRow {
        key: series.key().to_owned(),
        label: series.label().to_owned(),
        is_stage: matches!(series, Series::Stage(_)),
        in_overhead: matches!(series, Series::Stage(stage) if stage.in_overhead()),
        count: histogram.count,
        mean: histogram.mean().unwrap_or(0),
        p50: quantile(0.5),
        p99: quantile(0.99),
        max: histogram.max,
        medium,
        xlarge,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::super::scenario::Name;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_was_sent_in_the_warm_up_does_not_count_when_it_ends() {
        let times = Times::of(&Setup::page(Name::T3Medium));
        assert_eq!(times.sent, 4 * SECOND..24 * SECOND);
        // The slowest answer takes 1.4 × 1.5 s.
        assert_eq!(times.settled, Duration::from_millis(6_100));
    }

    #[test]
    fn processors_are_busy_by_what_came_between_the_looks() {
        let mut busy = Busy::default();
        assert_eq!(busy.cores().to_string(), "0");
        for (at, cpu) in [(4, 10), (5, 10), (8, 16)] {
            busy.look(at * SECOND, cpu * SECOND);
        }
        assert_eq!(busy.cores().to_string(), "1.5");
    }

    fn idle() -> (Child, Watch) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let watch = Watch::start(child.id(), None, &Setup::page(Name::Quick));
        (child, watch)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_lives_has_memory_and_one_that_ended_is_an_error() {
        let (child, watch) = idle();
        let (usage, inside) = watch.end().unwrap();
        assert!(usage.rss_before > 0 && usage.rss_peak >= usage.rss_after);
        assert!(usage.rss_after > 0 && inside.is_none());
        end(child);

        let (child, watch) = idle();
        end(child);
        let error = watch.end().unwrap_err();
        assert_eq!(error.to_string(), "it ended under the load");
    }
}
