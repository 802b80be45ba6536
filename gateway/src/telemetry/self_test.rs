//! What telemetry costs on this machine, and where it goes: `bifrost-gateway telemetry self-test`. The benchmark
//! measures by the same functions.

use std::fmt;
use std::hint::black_box;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bifrost_shared::layout::{self, ClockKind, Counter, Gauge};
use bifrost_shared::record::Record;
use bifrost_shared::segment::{self, Readers, Segment};
use bifrost_shared::slot::Standing;
use bifrost_shared::stage::Stage;
use bifrost_shared::writer::Writer;

use super::{Description, LANE_RECORDS, Observed, Telemetry, describe};
use crate::clock::Clock;
use crate::config;
use crate::machine::Machine;
use crate::stopwatch::{Sink, Watches};

/// What telemetry may cost a request, nanoseconds: the mean over warm ones (design §9).
pub const BUDGET_NS: u64 = 200;

/// Requests in a row that are timed together: what a lane holds with room to spare, so that none is lost.
pub const ROUND: usize = LANE_RECORDS / 2;
/// Rounds; the fastest counts, since others only add to it.
const ROUNDS: u32 = 40;
/// The exporter empties the lanes in between.
const PAUSE: Duration = Duration::from_millis(55);

/// What a request that goes well passes through, after the stage that it begins in.
const STAGES: [Stage; 10] = [
    Stage::QueueWait,
    Stage::KeySelection,
    Stage::MessageFormatting,
    Stage::ParamsPreparation,
    Stage::RequestBody,
    Stage::JsonMarshaling,
    Stage::RequestSetup,
    Stage::HttpRequest,
    Stage::ResponseParsing,
    Stage::ResponseWriting,
];

/// What was found.
#[derive(Debug)]
pub struct Findings {
    clock: ClockKind,
    /// One stamp, picoseconds.
    stamp_ps: u64,
    /// All of a request's telemetry: its stopwatch, a stamp a stage, its counters and the push.
    request_ns: u64,
    /// Of that, counting and pushing.
    push_ns: u64,
    /// What the exporter does with one record.
    publish_ns: u64,
    /// Records that were lost meanwhile.
    lost: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Off,
    Nowhere,
    File {
        path: String,
        bytes: u64,
        mode: u32,
        owner: u32,
        is_in_memory: bool,
    },
}

/// Knows of no provider.
struct Nobody;

impl Observed for Nobody {
    fn gauges(&self, _: &mut [u64; Gauge::COUNT]) {}

    fn standings(&self) -> Vec<Standing> {
        vec![]
    }
}

/// Measures with a telemetry of its own, made by the settings.
///
/// # Errors
///
/// If the system gives no thread.
pub fn run(settings: &config::Telemetry) -> anyhow::Result<Findings> {
    let (settings, clock) = (apart(settings), Clock::new());
    let (telemetry, exporter) = start(&settings, &clock)?;
    let watches = Arc::new(Watches {
        clock: clock.clone(),
        sink: Arc::clone(&telemetry) as Arc<dyn Sink>,
    });
    let directory = exporter.path().and_then(Path::parent).map(Path::to_owned);
    let place = match exporter.path() {
        Some(path) => Place::of(path)?,
        None if settings.enabled => Place::Nowhere,
        None => Place::Off,
    };
    let mut writer = writer(&settings, &clock);
    let findings = Findings {
        clock: clock.kind(),
        stamp_ps: clock.cost_ps(),
        request_ns: fastest(|| time_requests(&watches)),
        push_ns: fastest(|| time_pushes(&clock, telemetry.as_ref())),
        publish_ns: fastest(|| time_publishing(&clock, &mut writer)),
        lost: telemetry.counted(Counter::Lost),
        place,
    };
    drop(exporter);
    if let Some(directory) = directory {
        // Only if it is empty: nothing but the segment was ours.
        let _ = std::fs::remove_dir(directory);
    }
    Ok(findings)
}

/// The settings with the segment in a directory of its own, below the one that a gateway would take: a monitor that
/// looks for gateways must not find this one. Nor is an instance asked what it is: nobody is shown it.
fn apart(settings: &config::Telemetry) -> config::Telemetry {
    let told = settings.segment.as_deref();
    let directories = match told {
        Some(file) if segment::names_a_file(file) => {
            file.parent().into_iter().map(Path::to_owned).collect()
        }
        Some(directory) => vec![directory.to_owned()],
        None => segment::default_directories(),
    };
    let usable = directories
        .into_iter()
        .find(|directory| segment::own_directory(Readers::Owner, directory).is_ok());
    config::Telemetry {
        // Without one of ours alone, on the heap: by its own name, a gateway's last figures may be lying there.
        enabled: settings.enabled && usable.is_some(),
        segment: usable.map(|directory| directory.join("self-test")),
        readers: Readers::Owner,
        ..settings.clone()
    }
}

/// A telemetry that nobody else uses.
///
/// # Errors
///
/// If the system gives no thread.
pub fn start(
    settings: &config::Telemetry,
    clock: &Clock,
) -> anyhow::Result<(Arc<Telemetry>, super::Exporter)> {
    Ok(Telemetry::start(
        settings,
        &description(),
        clock,
        Box::new(Nobody),
        None,
    )?)
}

const fn description() -> Description {
    Description {
        buffer_size: 0,
        pool_size: 0,
        workers: 1,
        models: 1,
        providers: vec![],
    }
}

fn writer(settings: &config::Telemetry, clock: &Clock) -> Writer {
    let head = describe::head(settings, &description(), clock, &mut Machine::new());
    Writer::new(Segment::on_heap(layout::segment_bytes()), &head, &[])
}

/// The time that [`ROUND`] requests' telemetry takes: the code that serves requests, with nothing between the stages.
#[must_use]
pub fn time_requests(watches: &Arc<Watches>) -> Duration {
    let began = watches.clock.stamp();
    for id in 0..ROUND as u64 {
        let mut watch = watches.start(id);
        for stage in STAGES {
            watch.enter(stage);
        }
        watch.first_byte();
        watch.completed();
        drop(black_box(watch));
    }
    Duration::from_nanos(watches.clock.between(began, watches.clock.stamp()))
}

/// The time that counting and pushing [`ROUND`] records takes.
fn time_pushes(clock: &Clock, telemetry: &Telemetry) -> Duration {
    let began = clock.stamp();
    for id in 0..ROUND as u64 {
        telemetry.began();
        let record = Record {
            id,
            ..Record::default()
        };
        telemetry.ended(black_box(&record), began, 0);
    }
    Duration::from_nanos(clock.between(began, clock.stamp()))
}

fn time_publishing(clock: &Clock, writer: &mut Writer) -> Duration {
    let records = vec![
        Record {
            total: 2_000_000,
            stages: [150_000; Stage::COUNT],
            ..Record::default()
        };
        256
    ];
    let began = clock.stamp();
    for _ in 0..ROUND / records.len() {
        writer.absorb(black_box(&records));
    }
    Duration::from_nanos(clock.between(began, clock.stamp()))
}

/// Nanoseconds for one of the fastest round.
fn fastest(mut round: impl FnMut() -> Duration) -> u64 {
    let times = (0..ROUNDS).map(|_| {
        thread::sleep(PAUSE);
        round()
    });
    let best = times.min().unwrap_or_default().as_nanos() / ROUND as u128;
    u64::try_from(best).unwrap_or(u64::MAX)
}

impl Place {
    fn of(path: &Path) -> anyhow::Result<Self> {
        let meta = path.metadata()?;
        Ok(Self::File {
            path: path.display().to_string(),
            bytes: meta.len(),
            mode: meta.permissions().mode() & 0o7777,
            owner: meta.uid(),
            is_in_memory: path
                .parent()
                .is_some_and(|at| segment::is_in_memory(at).unwrap_or(false)),
        })
    }
}

impl Findings {
    /// Whether telemetry keeps to its budget here.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.request_ns <= BUDGET_NS
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = match self.clock {
            ClockKind::Tsc => "time-stamp counter",
            ClockKind::Monotonic => "system's monotonic clock (the kernel trusts no faster one)",
        };
        writeln!(f, "clock      {clock}")?;
        let stamp = self.stamp_ps as f64 / 1e3;
        writeln!(f, "stamp      {stamp:.1} ns: no stage can be told below it")?;
        writeln!(
            f,
            "request    {} ns for {} stages, counters and the push (warm, of {ROUNDS} rounds the fastest)",
            self.request_ns,
            STAGES.len() + 1
        )?;
        writeln!(f, "push       {} ns of it", self.push_ns)?;
        writeln!(
            f,
            "publish    {} ns a record, on the exporter's thread",
            self.publish_ns
        )?;
        if self.lost > 0 {
            writeln!(
                f,
                "lost       {} records: the exporter did not get to run",
                self.lost
            )?;
        }
        match &self.place {
            Place::Off => writeln!(f, "segment    none: telemetry.enabled is false")?,
            Place::Nowhere => {
                writeln!(f, "segment    none: no place for it, see the warning above")?;
            }
            Place::File {
                path,
                bytes,
                mode,
                owner,
                is_in_memory,
            } => {
                let medium = if *is_in_memory {
                    "in memory"
                } else {
                    "ON A DISK: a write may wait for it"
                };
                writeln!(
                    f,
                    "segment    {path}, {:.1} MB, mode {mode:04o}, of user {owner}, {medium}",
                    *bytes as f64 / 1e6
                )?;
            }
        }
        let verdict = if self.holds() {
            "holds"
        } else {
            "does NOT hold"
        };
        write!(f, "budget     {BUDGET_NS} ns a request {verdict}")
    }
}
