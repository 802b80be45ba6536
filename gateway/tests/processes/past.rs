//! Monitors that come at different times see the same past: 15 minutes, written here by the gateway's own writer.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use bifrost_shared::layout::{
    ClockKind, Counter, CreditMode, Gauge, SECONDS_CAPACITY, VERSION_MAJOR, VERSION_MINOR,
    segment_bytes,
};
use bifrost_shared::record::{Fault, Record};
use bifrost_shared::segment::Segment;
use bifrost_shared::snapshot::{Header, Row};
use bifrost_shared::stage::{Series, Stage};
use bifrost_shared::thresholds::Thresholds;
use bifrost_shared::writer::{Now, Writer};
use serde_json::json;

use crate::process::{Place, monitor};

const SECOND: u64 = 1_000_000_000;
const ROWS: u64 = SECONDS_CAPACITY as u64;
const QUEUE_WAIT: Series = Series::Stage(Stage::QueueWait);

/// A gateway on a t3.medium that has written some of its seconds. It says that it is still starting: that is judged like
/// one that runs, and does not go stale while nobody writes on.
struct Written {
    writer: Writer,
    began_at: u64,
    counters: [u64; Counter::COUNT],
    rows: Vec<Row>,
}

impl Written {
    fn into(place: &Place) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let began_at = (since.as_secs() - ROWS) * SECOND;
        let header = Header {
            version: (VERSION_MAJOR, VERSION_MINOR),
            pid: std::process::id().into(),
            start_ticks: 1,
            boot_id: [1, 2],
            started_at: began_at,
            clock: ClockKind::Tsc,
            stamp_cost_ps: 0,
            vcpus: 2,
            memory_total: 4_000_000_000,
            memory_limit: 4_000_000_000,
            buffer_size: 15_000,
            pool_size: 10_000,
            workers: 0,
            thresholds: Thresholds::default(),
            build: "0.1.0".into(),
            instance: "t3.medium".into(),
            credit_mode: CreditMode::Standard,
        };
        let path = place.segments().join("gateway-1.seg");
        let segment = Segment::create(&path, segment_bytes()).unwrap();
        let writer = Writer::new(segment, &header, &[]);
        writer.publish().unwrap();
        Self {
            writer,
            began_at,
            counters: [0; Counter::COUNT],
            rows: vec![],
        }
    }

    /// Writes seconds until there are so many, no two alike.
    fn up_to(&mut self, rows: u64) {
        for second in self.rows.len() as u64..rows {
            let records: Vec<_> = (0..100).map(|at| record(second, at)).collect();
            self.writer.absorb(&records);
            self.counters[Counter::Completed.index()] += 2_000 + second;
            let mut gauges = [0; Gauge::COUNT];
            gauges[Gauge::Rss.index()] = 1_000_000_000;
            gauges[Gauge::InFlight.index()] = second;
            gauges[Gauge::HostCpu.index()] = 500;
            self.writer.show(Now {
                counters: &self.counters,
                gauges: &gauges,
                faults: &[0; Fault::COUNT],
                runtimes: &[],
            });
            let ended_at = self.began_at + (second + 1) * SECOND;
            let row = self
                .writer
                .close_second(ended_at, SECOND, false, &self.counters, &gauges);
            self.rows.push(row);
        }
    }

    /// Its last minute.
    fn minute(&self) -> &[Row] {
        &self.rows[self.rows.len() - 60..]
    }
}

/// A request of a second; every eighth second waits longer than is good.
fn record(second: u64, at: u64) -> Record {
    let mut record = Record::default();
    let wait = if second.is_multiple_of(8) {
        76_000
    } else {
        20_000
    };
    record.stages[Stage::QueueWait.index()] = wait + second + at;
    record.stages[Stage::RequestSetup.index()] = 6_000 + at;
    record.stages[Stage::HttpRequest.index()] = 900_000 + second * 1_000;
    record.total = record.stages.iter().sum::<u64>() + 50;
    record
}

fn pooled_mean(rows: &[Row], series: Series) -> u64 {
    let sum: u64 = rows.iter().map(|row| row.summary(series).sum).sum();
    let count: u64 = rows.iter().map(|row| row.summary(series).count).sum();
    sum / count
}

#[test]
fn a_monitor_that_comes_late_tells_of_the_last_15_minutes_at_once() {
    let place = Place::new();
    let mut written = Written::into(&place);
    written.up_to(ROWS);
    let (minute, last) = (written.minute(), written.rows.last().unwrap());

    let figures = place.figures();

    let over = minute
        .iter()
        .filter(|row| row.mean(QUEUE_WAIT).unwrap() > 75_000);
    let over = over.count();
    assert!((7..=8).contains(&over));
    let load = |row: &Row| row.counter(Counter::Completed);
    let load_mean = minute.iter().map(load).sum::<u64>() / 60;
    // As good as on its first second: nothing but the oldest row can tell that.
    let lived = (ROWS - 1) * SECOND;
    for (trigger, expected) in [
        (
            "queue_wait",
            json!({
                "state": "ok",
                "unit": "ns",
                "now": last.mean(QUEUE_WAIT),
                "mean_60s": pooled_mean(minute, QUEUE_WAIT),
                "limit": 75_000,
                "seconds_over": over,
                "seconds": 60,
            }),
        ),
        (
            "overhead",
            json!({
                "state": "ok",
                "now": last.mean(Series::Overhead),
                "mean_60s": pooled_mean(minute, Series::Overhead),
            }),
        ),
        (
            "load",
            json!({"state": "ok", "now": load(last), "mean_60s": load_mean, "held_ns": lived}),
        ),
        (
            "memory",
            json!({
                "state": "ok",
                "now": 1_000_000_000,
                "mean_60s": 1_000_000_000,
                "limit": 3_000_000_000_u64,
                "held_ns": lived,
            }),
        ),
    ] {
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(
                &figures["triggers"][trigger][name], value,
                "{trigger} {name}"
            );
        }
    }
    assert_eq!(figures["verdict"]["state"], "stay");
    assert_eq!(figures["window"]["estimated"], true);
    let series = |series: Series| match series {
        Series::Stage(stage) => &figures["stages"][stage.key()],
        series => &figures[series.key()],
    };
    for one in [
        QUEUE_WAIT,
        Series::Stage(Stage::HttpRequest),
        Series::Overhead,
        Series::Total,
        Series::Unattributed,
    ] {
        let window = &series(one)["window"];
        assert_eq!(window["count"], 6_000, "{}", one.key());
        assert_eq!(window["mean_ns"], pooled_mean(minute, one), "{}", one.key());
        let longest = minute.iter().map(|row| row.summary(one).max).max();
        assert_eq!(window["max_ns"], json!(longest), "{}", one.key());
    }
    // A quarter of an hour at 50 % is 15 credits, less the 6 that were earned in it; the rest lasts for 60 / 36 of it.
    let credits = &figures["credits"];
    assert_eq!(credits["observed_ns"], ROWS * SECOND);
    assert_eq!(
        (&credits["balance_low"], &credits["balance_high"]),
        (&json!(0.0), &json!(567.0))
    );
    let runway = credits["runway_high_ns"].as_u64().unwrap();
    assert_eq!(runway / SECOND, 567 * 3_600 / 36);

    let output = monitor(&place.segments()).arg("--once").output().unwrap();
    let screen = String::from_utf8(output.stdout).unwrap();
    let hundredths = (pooled_mean(minute, QUEUE_WAIT) + 5) / 10;
    let mean = format!(
        "* Queue wait {}.{:02} µs",
        hundredths / 100,
        hundredths % 100
    );
    let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&mean), "{mean} in {screen}");
    assert!(words.contains("Load 2,899/s"), "{screen}");
}

#[test]
fn two_monitors_tell_the_same_of_a_gateway_that_does_not_write() {
    let place = Place::new();
    let mut written = Written::into(&place);
    written.up_to(100);
    let figures = [(); 2].map(|()| {
        let mut figures = place.figures();
        let object = figures.as_object_mut().unwrap();
        for age in ["data_age_ns", "uptime_ns"] {
            assert!(object.remove(age).is_some_and(|it| it.is_u64()), "{age}");
        }
        figures
    });
    assert_eq!(figures[0], figures[1]);
    assert_eq!(
        figures[0]["stages"]["queue_wait"]["since_start"]["count"],
        10_000
    );
}

#[test]
fn a_monitor_from_the_beginning_and_one_that_comes_late_agree() {
    let place = Place::new();
    let mut written = Written::into(&place);
    written.up_to(1);
    let watch = || {
        monitor(&place.segments())
            .args(["--watch", "--interval", "100ms"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    // Gauges are looked at after the rows, so only what comes from a row tells that the last one is there.
    let last = "load 2,899/s";
    let mut told = vec![];
    let mut early = watch();
    let mut lines = BufReader::new(early.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("in flight 0"));
    written.up_to(ROWS);
    told.extend(
        lines
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains(last)),
    );
    let mut late = watch();
    let mut lines = BufReader::new(late.stdout.take().unwrap()).lines();
    told.push(lines.next().unwrap().unwrap());
    for mut watching in [early, late] {
        watching.kill().unwrap();
        watching.wait().unwrap();
    }

    let [early, late] = [0, 1].map(|line| {
        let parts = told[line].split("  ").map(str::to_owned);
        // Not the time of day, nor the p99, which is exact for who was there and an estimate for who was not.
        let is_same = |part: &String| !part.contains(':') || part.contains("STAY");
        parts
            .filter(|part| is_same(part) && !part.starts_with("p99 "))
            .collect::<Vec<_>>()
    });
    assert_eq!(early, late);
    let tenths = (written.rows.last().unwrap().mean(QUEUE_WAIT).unwrap() + 50) / 100;
    let queue_wait = format!("queue wait {}.{} µs", tenths / 10, tenths % 10);
    assert!(late.contains(&queue_wait), "{queue_wait} in {late:?}");
}
