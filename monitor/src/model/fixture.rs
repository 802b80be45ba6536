//! Gateways invented for tests, written by the real writer into a segment on the heap.

mod busy;

use std::rc::Rc;

use bifrost_shared::layout::{
    self, COUNTERS_ROOM, ClockKind, Counter, CreditMode, GAUGES_ROOM, Gauge, NameKind, SERIES_ROOM,
    State, VERSION_MAJOR, VERSION_MINOR,
};
use bifrost_shared::record::{Fault, RECORD_WORDS, Record};
use bifrost_shared::segment::Segment;
use bifrost_shared::slot::{Latency, Slot, SlotCount, SlotState};
use bifrost_shared::snapshot::{Figures, Freshness, Header, Name, Row, Summary, View};
use bifrost_shared::stage::{Series, Stage};
use bifrost_shared::thresholds::Thresholds;
use bifrost_shared::writer::{Now, Writer};

use super::Model;
use super::observation::{Observation, Reading, Sight, Trouble};
use crate::format::SECOND;

pub(crate) use busy::{busy, busy_later};

/// When the invented gateway was last looked at, nanoseconds of the monotonic clock, and since the epoch.
pub(crate) const AT: u64 = 100_000 * SECOND;
/// The same since the Unix epoch.
pub(crate) const UNIX_NS: u64 = 1_796_040_000 * SECOND;

/// The header of a gateway on a t3.medium, two hours and 13 minutes old.
pub(crate) fn header() -> Header {
    Header {
        version: (VERSION_MAJOR, VERSION_MINOR),
        pid: 4_711,
        start_ticks: 12,
        boot_id: [1, 2],
        started_at: UNIX_NS - 7_980 * SECOND,
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

/// Figures of a gateway that has counted nothing.
pub(crate) fn figures() -> Figures {
    Figures::default()
}

/// A second of so many requests, each of which waited so long, on the page's memory.
pub(crate) fn row(requests: u64, queue_wait: u64) -> Row {
    let mut row = Row {
        duration: SECOND,
        ..Row::default()
    };
    row.counters[Counter::Completed.index()] = requests;
    row.counters[Counter::Records.index()] = requests;
    for series in &mut row.series[..Series::FirstByte.index()] {
        series.count = requests;
    }
    row.series[Stage::QueueWait.index()] = Summary {
        count: requests,
        sum: requests * queue_wait,
        p50: queue_wait,
        p95: queue_wait * 2,
        p99: queue_wait * 3,
        max: queue_wait * 10,
    };
    row
}

/// A reading of a living gateway that closed `rows`.
pub(crate) fn reading(rows: &[Row]) -> Reading {
    reading_of(&header(), rows)
}

/// The same of a gateway with that header.
pub(crate) fn reading_of(header: &Header, rows: &[Row]) -> Reading {
    let writer = Writer::new(Segment::on_heap(layout::segment_bytes()), header, &[]);
    Reading {
        attachment: 1,
        path: "/dev/shm/bifrost/gateway-4711.seg".into(),
        view: Rc::new(View::of(writer.segment().words()).unwrap()),
        alive: true,
        is_replayed: false,
        freshness: Freshness {
            state: Some(State::Running),
            exporter_at: AT - SECOND / 3,
            slowest_runtime_at: AT - SECOND / 3,
        },
        rows: rows.to_vec(),
        records: vec![],
        records_missed: 0,
        figures: Some(figures()),
    }
}

/// A gateway of a later minor version: a stage, a series, a counter and a gauge more, of which only they have values.
pub(crate) fn later() -> Reading {
    let name = |kind: NameKind, index: usize, key: &str, label: &str| Name {
        kind: kind as u64,
        index: index as u64,
        is_stage: false,
        in_overhead: false,
        reference_ns: (None, None),
        key: key.into(),
        label: label.into(),
    };
    let writer = Writer::new(Segment::on_heap(layout::segment_bytes()), &header(), &[]);
    writer.rename(&[
        name(NameKind::Series, SERIES_ROOM - 2, "cached", "Cached"),
        Name {
            is_stage: true,
            in_overhead: true,
            reference_ns: (Some(1_500), None),
            ..name(
                NameKind::Series,
                SERIES_ROOM - 1,
                "check",
                "A check of what comes in",
            )
        },
        // Of a version that has more room: there is no place for it here.
        name(NameKind::Series, SERIES_ROOM, "beyond", "Beyond"),
        name(NameKind::Counter, COUNTERS_ROOM - 1, "checked", "Checked"),
        name(NameKind::Gauge, GAUGES_ROOM - 1, "checking", "Checking"),
    ]);
    let mut figures = figures();
    figures.histograms[SERIES_ROOM - 1].record(3_000);
    figures.counters[COUNTERS_ROOM - 1] = 4_711;
    figures.gauges[GAUGES_ROOM - 1] = 8;
    let header = Header {
        started_at: UNIX_NS - SECOND,
        ..header()
    };
    let mut view = View::of(writer.segment().words()).unwrap();
    view.header = header;
    Reading {
        view: Rc::new(view),
        figures: Some(figures),
        ..reading(&[])
    }
}

/// A gateway of an earlier minor version, which lacks a series, a counter and a gauge, and has something else in their
/// places.
pub(crate) fn earlier() -> Reading {
    let mut reading = page(2_950, 47_130);
    let view = Rc::make_mut(&mut reading.view);
    view.names
        .retain(|name| !["first_byte", "dials", "held_bytes"].contains(&name.key.as_str()));
    reading
}

/// What a source says that has seen `reading`.
pub(crate) fn observation(reading: Reading) -> Observation {
    Observation {
        at: AT,
        unix_ns: UNIX_NS,
        sight: Sight::Gateway(Box::new(reading)),
    }
}

/// A model that has had one look.
pub(crate) fn seen(reading: Reading) -> Model {
    let mut model = Model::default();
    model.absorb(observation(reading));
    model
}

/// The page's t3.medium with its stages, five minutes of them, under a load and a queue wait of our choice.
pub(crate) fn page(load: u64, queue_wait: u64) -> Reading {
    let mut writer = Writer::new(Segment::on_heap(layout::segment_bytes()), &header(), &[]);
    let view = View::of(writer.segment().words()).unwrap();
    let mut counters = [0; Counter::COUNT];
    for second in 0..300 {
        // A wave, so that there is something to see in a line over time.
        let swing = 90 + (second % 40_u64).min(40 - second % 40);
        let records: Vec<_> = (0..100)
            .map(|at| record(queue_wait * swing / 100, at))
            .collect();
        writer.absorb(&records);
        counters[Counter::Started.index()] += load;
        counters[Counter::Completed.index()] += load;
        counters[Counter::Records.index()] += 100;
        let ended_at = UNIX_NS - (300 - second) * SECOND;
        writer.close_second(
            ended_at,
            SECOND,
            false,
            &counters,
            &gauges(load * swing / 100),
        );
        writer.show(Now {
            counters: &counters,
            gauges: &gauges(load * swing / 100),
            faults: &[0; Fault::COUNT],
            runtimes: &[],
        });
    }
    let words = writer.segment().words();
    let mut rows = view.rows_from_oldest(words).unwrap();
    Reading {
        rows: std::iter::from_fn(|| rows.next(words)).collect(),
        figures: view.figures(words),
        ..reading(&[])
    }
}

/// One of a hundred requests with the page's means, the later ones slower.
fn record(queue_wait: u64, at: u64) -> Record {
    let mut record = Record::default();
    for stage in Stage::ALL {
        let mean = match stage {
            Stage::QueueWait => queue_wait,
            _ => Series::Stage(stage).reference_ns().0.unwrap_or(5_000),
        };
        record.stages[stage.index()] = mean / 2 + mean * at / 99;
    }
    record.total = record.stages.iter().sum::<u64>() + 549_000_000;
    record.first_byte = record.total / 2;
    record
}

fn gauges(in_flight: u64) -> [u64; Gauge::COUNT] {
    let mut gauges = [0; Gauge::COUNT];
    for (gauge, value) in [
        (Gauge::InFlight, in_flight * 2),
        (Gauge::Waiting, 351),
        (Gauge::Rss, 1_290_000_000),
        (Gauge::RssPeak, 1_312_790_000),
        (Gauge::MemoryLimit, 4_000_000_000),
        (Gauge::Cpu, 710),
        (Gauge::HostCpu, 720),
        (Gauge::SchedulerDelay, 31_000),
    ] {
        gauges[gauge.index()] = value;
    }
    gauges
}

/// A model that has found no gateway.
pub(crate) fn absent() -> Model {
    let mut model = Model::default();
    model.absorb(Observation {
        at: 0,
        unix_ns: 0,
        sight: Sight::Nothing(Trouble::NoGateway {
            tried: vec!["/run/bifrost".into(), "/dev/shm/bifrost-0".into()],
        }),
    });
    model
}

/// A series of which nothing can be larger.
pub(crate) const LARGEST: Summary = Summary {
    count: u64::MAX,
    sum: u64::MAX,
    p50: u64::MAX,
    p95: u64::MAX,
    p99: u64::MAX,
    max: u64::MAX,
};

/// Data as no gateway should write it: nothing, zeroes, the largest numbers, wide characters.
pub(crate) fn odd() -> Vec<Model> {
    let wide = Header {
        build: "世界世界".into(),
        instance: "インスタンス型".into(),
        pid: u64::MAX,
        vcpus: u64::MAX,
        memory_total: u64::MAX,
        memory_limit: u64::MAX,
        started_at: 0,
        workers: u64::MAX,
        ..header()
    };
    let zero = Header {
        vcpus: 0,
        memory_total: 0,
        memory_limit: 0,
        started_at: u64::MAX,
        ..header()
    };
    let largest = Row {
        ended_at: u64::MAX,
        duration: u64::MAX,
        flags: u64::MAX,
        over_queue_limit: u64::MAX,
        over_overhead_limit: u64::MAX,
        counters: [u64::MAX; COUNTERS_ROOM],
        gauges: [u64::MAX; GAUGES_ROOM],
        series: [LARGEST; SERIES_ROOM],
    };
    let mut flooded = reading_of(&wide, &vec![largest; 1_000]);
    let figures = flooded.figures.as_mut().unwrap();
    figures.counters.fill(u64::MAX);
    figures.gauges.fill(u64::MAX);
    for histogram in &mut figures.histograms {
        histogram.buckets.fill(u64::MAX);
        histogram.count = u64::MAX;
        histogram.sum = u64::MAX;
        histogram.max = u64::MAX;
    }
    let figures = flooded.figures.as_mut().unwrap();
    figures.slots = odd_slots();
    flooded.records = vec![Record::from_words(&[u64::MAX; RECORD_WORDS]); 3];
    flooded.records.push(Record::default());
    let mut torn = reading(&[]);
    torn.figures = None;
    let mut fresh = reading(&[]);
    fresh.freshness.exporter_at = u64::MAX;
    vec![
        Model::default(),
        absent(),
        seen(page(3_790, 91_800)),
        seen(later()),
        seen(earlier()),
        seen(reading_of(&zero, &[row(0, 0)])),
        seen(flooded),
        seen(torn),
        seen(fresh),
        busy(),
    ]
}

/// Slots of which nothing can be larger, and empty ones.
fn odd_slots() -> Vec<Slot> {
    let slot = |key, state| Slot {
        provider: u16::MAX,
        key,
        state,
        until: u64::MAX,
        weight_millionths: u64::MAX,
        places: u64::MAX,
        taken: u64::MAX,
        waiting: u64::MAX,
        counts: [u64::MAX; SlotCount::COUNT],
        latency: Latency::default(),
    };
    let states = SlotState::ALL.iter().copied();
    let keys = states.zip(0..).map(|(state, key)| slot(Some(key), state));
    std::iter::once(slot(None, SlotState::Ready))
        .chain(keys)
        .collect()
}
