//! A gateway's segment, written by the real writer in this process: what the monitor sees of one.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bifrost_shared::layout::{
    self, ClockKind, Counter, CreditMode, Gauge, State, VERSION_MAJOR, VERSION_MINOR,
};
use bifrost_shared::record::{Fault, Record};
use bifrost_shared::segment::{Segment, monotonic_ns};
use bifrost_shared::snapshot::{Header, Runtime};
use bifrost_shared::stage::{Series, Stage};
use bifrost_shared::thresholds::Thresholds;
use bifrost_shared::writer::{Now, Writer};

const SECOND: u64 = 1_000_000_000;

/// Two minutes of the benchmark page's load. Dropping it frees the lock and leaves the file, as `kill -9` does.
pub(crate) struct Gateway {
    writer: Writer,
    counters: [u64; Counter::COUNT],
    gauges: [u64; Gauge::COUNT],
}

impl Gateway {
    /// A gateway with that process id, at `path`.
    pub(crate) fn start(path: &Path, pid: u64) -> Self {
        let segment = Segment::create(path, layout::segment_bytes()).unwrap();
        let mut gauges = [0; Gauge::COUNT];
        gauges[Gauge::Rss.index()] = 1_312_790_000;
        let mut gateway = Self {
            writer: Writer::new(segment, &header(pid), &[]),
            counters: [0; Counter::COUNT],
            gauges,
        };
        let now = unix_ns();
        for second in (0..120).rev() {
            gateway.second(now - second * SECOND);
        }
        gateway.beat();
        gateway.writer.segment().set_state(State::Running);
        gateway.writer.publish().unwrap();
        gateway
    }

    /// Comes by, as an exporter does every 50 ms.
    pub(crate) fn beat(&mut self) {
        let runtime = Runtime {
            ran_at: monotonic_ns(),
            ..Runtime::default()
        };
        self.writer.show(Now {
            counters: &self.counters,
            gauges: &self.gauges,
            faults: &[0; Fault::COUNT],
            runtimes: &[runtime; 2],
        });
    }

    /// Goes in good order.
    pub(crate) fn stop(self) {
        self.writer.segment().remove();
    }

    fn second(&mut self, ended_at: u64) {
        self.writer.absorb(&vec![record(); 100]);
        for counter in [Counter::Started, Counter::Completed] {
            self.counters[counter.index()] += 2_950;
        }
        self.counters[Counter::Records.index()] += 100;
        self.writer
            .close_second(ended_at, SECOND, false, &self.counters, &self.gauges);
    }
}

fn record() -> Record {
    let mut record = Record::default();
    for stage in Stage::ALL {
        let mean = Series::Stage(stage).reference_ns().0;
        record.stages[stage.index()] = mean.unwrap_or(1_000);
    }
    record.total = record.stages.iter().sum::<u64>() + 70;
    record
}

fn header(pid: u64) -> Header {
    Header {
        version: (VERSION_MAJOR, VERSION_MINOR),
        pid,
        start_ticks: 12,
        boot_id: [1, 2],
        started_at: unix_ns() - 3_600 * SECOND,
        clock: ClockKind::Tsc,
        stamp_cost_ps: 9_500,
        vcpus: 2,
        memory_total: 4_000_000_000,
        memory_limit: 4_000_000_000,
        buffer_size: 15_000,
        pool_size: 10_000,
        workers: 2,
        thresholds: Thresholds::default(),
        build: "0.1.0".into(),
        instance: "t3.medium".into(),
        credit_mode: CreditMode::Unlimited,
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}
