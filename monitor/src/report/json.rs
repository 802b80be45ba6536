//! The object that `--json` prints. Times are nanoseconds, memory is bytes; a figure that is not there is `null`, as are
//! all counters, and the stages since start, of a gateway that died while it changed them.
//!
//! ```text
//! state      live, starting, draining, stalled, stuck, dead, stopped;
//!            no_gateway, denied, incompatible, unreadable
//! message    what was tried and what to do, without a gateway
//! segment    the file; with --url the address
//! pid, version, layout, instance, credit_mode (standard, unlimited, unknown), vcpus, memory_limit,
//! started_at_unix_ns, uptime_ns, data_age_ns, workers, buffer_size, pool_size, stamp_cost_ps,
//! floor_ns   what reading the clock takes of a stage's time; it is in all figures here, and deducted on the screen
//! verdict    state: stay, watch, upgrade, unknown, no_limits; text; reasons [text];
//!            remedies [text]: what can be done, for each trigger that is watched or breached
//! triggers   by key: state (ok, watch, breach, unknown, reference), unit (ns, per_second, bytes),
//!            now, mean_60s, limit, seconds_over, seconds, held_ns
//! counters   by key, exact, since start; all that the segment names, and null for what it has not
//! gauges     by key, likewise
//! credits    an estimate, and null where the instance has no CPU credits or is not known: balance_low and balance_high
//!            (below 0: surplus credits), balance_max, earned_per_hour, baseline_permille, used_permille (mean of the last
//!            minute), runway_low_ns and runway_high_ns at that use (null: it lasts), observed_ns
//! window     seconds; estimated: whether quantiles are partly made of closed seconds
//! stages     by key: in_overhead, reference_medium_ns, reference_xlarge_ns,
//!            since_start and window: count, mean_ns, p50_ns, p95_ns, p99_ns, max_ns
//! overhead, total, added, unattributed, first_byte   like a stage
//! others     by key: series that are neither, first_token and time_per_token among them
//! samples    over the records that the segment's ring holds now: samples_read, samples_missed,
//!            unattributed_p99_ns (exact), http_request_below_provider_time (records, should be 0);
//!            null without records: with --url, and of a recording
//! ```

use std::collections::BTreeMap;

use bifrost_shared::credits::Credits;
use bifrost_shared::stage::Series;
use serde::Serialize;

use crate::model::listed::{Listed, ListedSeries};
use crate::model::observation::Trouble;
use crate::model::samples::SampleFigures;
use crate::model::{Gateway, Model, Stats};
use crate::verdict::{Judged, Verdict};

/// The text of the object for `model`, with what its sample ring says.
pub(crate) fn text(model: &Model, samples: Option<&SampleFigures>) -> serde_json::Result<String> {
    match (model.gateway(), model.trouble()) {
        (Some(gateway), _) => serde_json::to_string_pretty(&Report::of(model, gateway, samples)),
        (None, trouble) => serde_json::to_string_pretty(&Absence::of(trouble)),
    }
}

#[derive(Serialize)]
struct Report<'a> {
    state: &'static str,
    segment: String,
    pid: u64,
    version: &'a str,
    layout: String,
    instance: &'a str,
    credit_mode: &'static str,
    vcpus: u64,
    memory_limit: u64,
    started_at_unix_ns: u64,
    uptime_ns: u64,
    data_age_ns: u64,
    workers: u64,
    buffer_size: u64,
    pool_size: u64,
    stamp_cost_ps: u64,
    floor_ns: u64,
    verdict: Judgement<'a>,
    triggers: BTreeMap<&'static str, TriggerReport>,
    counters: BTreeMap<String, Option<u64>>,
    gauges: BTreeMap<String, Option<u64>>,
    credits: Option<CreditsReport>,
    window: WindowReport,
    stages: BTreeMap<String, SeriesReport>,
    overhead: SeriesReport,
    total: SeriesReport,
    added: SeriesReport,
    unattributed: SeriesReport,
    first_byte: SeriesReport,
    others: BTreeMap<String, SeriesReport>,
    samples: Option<SamplesReport>,
}

#[derive(Serialize)]
struct Absence {
    state: &'static str,
    message: String,
    pid: Option<u64>,
    version: Option<&'static str>,
    verdict: Judgement<'static>,
}

#[derive(Serialize)]
struct Judgement<'a> {
    state: &'static str,
    text: String,
    reasons: &'a [String],
    remedies: &'a [String],
}

#[derive(Serialize)]
struct TriggerReport {
    state: &'static str,
    unit: &'static str,
    now: Option<u64>,
    mean_60s: Option<u64>,
    limit: u64,
    seconds_over: u64,
    seconds: u64,
    held_ns: u64,
}

#[derive(Serialize)]
struct CreditsReport {
    balance_low: f64,
    balance_high: f64,
    balance_max: u64,
    earned_per_hour: u64,
    baseline_permille: u64,
    used_permille: f64,
    runway_low_ns: Option<u64>,
    runway_high_ns: Option<u64>,
    observed_ns: u64,
}

#[derive(Serialize)]
struct WindowReport {
    seconds: u64,
    estimated: bool,
}

#[derive(Serialize)]
struct SeriesReport {
    in_overhead: bool,
    reference_medium_ns: Option<u64>,
    reference_xlarge_ns: Option<u64>,
    since_start: StatsReport,
    window: StatsReport,
}

#[derive(Default, Serialize)]
struct StatsReport {
    count: Option<u64>,
    mean_ns: Option<u64>,
    p50_ns: Option<u64>,
    p95_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
}

#[derive(Serialize)]
struct SamplesReport {
    samples_read: usize,
    samples_missed: u64,
    unattributed_p99_ns: Option<u64>,
    http_request_below_provider_time: u64,
}

impl<'a> Report<'a> {
    fn of(model: &Model, gateway: &'a Gateway, samples: Option<&SampleFigures>) -> Self {
        let header = gateway.header();
        let report = |series: &ListedSeries| SeriesReport::of(model, gateway, series);
        let series = |series| report(&gateway.one_series(series));
        let (stages, others): (Vec<_>, Vec<_>) =
            gateway.series().into_iter().partition(|it| it.is_stage);
        let others = others.into_iter().filter(|it| !has_own_place(it));
        let by_key = |it: ListedSeries| (it.key.clone(), report(&it));
        Self {
            state: gateway.liveness.key(),
            segment: gateway.path().display().to_string(),
            pid: header.pid,
            version: &header.build,
            layout: format!("{}.{}", header.version.0, header.version.1),
            instance: &header.instance,
            credit_mode: header.credit_mode.label(),
            vcpus: header.vcpus,
            memory_limit: header.memory_limit,
            started_at_unix_ns: header.started_at,
            uptime_ns: gateway.uptime(),
            data_age_ns: gateway.age(),
            workers: header.workers,
            buffer_size: header.buffer_size,
            pool_size: header.pool_size,
            stamp_cost_ps: header.stamp_cost_ps,
            floor_ns: gateway.floor(),
            verdict: Judgement::of(&gateway.verdict),
            triggers: triggers(&gateway.verdict),
            counters: values(gateway.counters()),
            gauges: values(gateway.gauges()),
            credits: gateway.credits().map(|it| CreditsReport::of(&it)),
            window: WindowReport {
                seconds: model.window.seconds(),
                estimated: gateway.is_estimated(model.window),
            },
            stages: stages.into_iter().map(by_key).collect(),
            overhead: series(Series::Overhead),
            total: series(Series::Total),
            added: series(Series::Added),
            unattributed: series(Series::Unattributed),
            first_byte: series(Series::FirstByte),
            others: others.map(by_key).collect(),
            samples: samples.map(SamplesReport::of),
        }
    }
}

impl Absence {
    fn of(trouble: Option<&Trouble>) -> Self {
        let message = trouble.map(|it| format!("{}: {}", it.what(), it.remedy()));
        let message = message.unwrap_or_else(|| "nobody has looked yet".to_owned());
        Self {
            state: trouble.map_or("no_gateway", Trouble::key),
            verdict: Judgement {
                state: "unknown",
                text: format!("UNKNOWN: {message}"),
                reasons: &[],
                remedies: &[],
            },
            pid: None,
            version: None,
            message,
        }
    }
}

impl<'a> Judgement<'a> {
    fn of(verdict: &'a Verdict) -> Self {
        Self {
            state: verdict.advice.key(),
            text: verdict.text(),
            reasons: &verdict.reasons,
            remedies: &verdict.remedies,
        }
    }
}

fn triggers(verdict: &Verdict) -> BTreeMap<&'static str, TriggerReport> {
    let report = |judged: &Judged| TriggerReport {
        state: judged.level.key(),
        unit: judged.trigger.unit(),
        now: judged.now,
        mean_60s: judged.minute,
        limit: judged.limit,
        seconds_over: judged.over,
        seconds: judged.rows,
        held_ns: judged.held,
    };
    let judged = verdict.triggers.iter();
    judged.map(|it| (it.trigger.key(), report(it))).collect()
}

impl CreditsReport {
    fn of(credits: &Credits) -> Self {
        // An estimate's further digits say nothing.
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        Self {
            balance_low: rounded(credits.balance.low),
            balance_high: rounded(credits.balance.high),
            balance_max: credits.instance.balance_max,
            earned_per_hour: credits.instance.earned_per_hour,
            baseline_permille: credits.instance.baseline_permille,
            used_permille: rounded(credits.used_permille),
            runway_low_ns: credits.runway_ns.map(|runway| runway.low),
            runway_high_ns: credits.runway_ns.map(|runway| runway.high),
            observed_ns: credits.observed_ns,
        }
    }
}

/// Whether the object has a key for it.
const fn has_own_place(series: &ListedSeries) -> bool {
    use Series::{Added, FirstByte, Overhead, Total, Unattributed};
    matches!(
        series.known,
        Some(Overhead | Total | Added | Unattributed | FirstByte)
    )
}

fn values<T>(listed: Vec<Listed<T>>) -> BTreeMap<String, Option<u64>> {
    listed.into_iter().map(|it| (it.key, it.value)).collect()
}

impl SeriesReport {
    fn of(model: &Model, gateway: &Gateway, series: &ListedSeries) -> Self {
        let (medium, xlarge) = series.reference_ns;
        let report = |stats: Option<Stats>| {
            stats.map_or_else(StatsReport::default, |stats| StatsReport::of(&stats))
        };
        Self {
            in_overhead: series.in_overhead,
            reference_medium_ns: medium,
            reference_xlarge_ns: xlarge,
            since_start: report(gateway.since_start(series)),
            window: report(model.in_window(gateway, series)),
        }
    }
}

impl StatsReport {
    const fn of(stats: &Stats) -> Self {
        Self {
            count: Some(stats.count),
            mean_ns: stats.mean,
            p50_ns: stats.p50,
            p95_ns: stats.p95,
            p99_ns: stats.p99,
            max_ns: stats.max,
        }
    }
}

impl SamplesReport {
    fn of(samples: &SampleFigures) -> Self {
        Self {
            samples_read: samples.read(),
            samples_missed: samples.missed,
            unattributed_p99_ns: samples.unattributed_p99_ns(),
            http_request_below_provider_time: samples.http_request_below_provider_time,
        }
    }
}

#[cfg(test)]
mod tests {
    use bifrost_shared::layout::{Counter, Gauge};
    use bifrost_shared::stage::Stage;
    use serde_json::Value;

    use super::*;
    use crate::model::fixture;

    fn object(model: &Model, samples: Option<&SampleFigures>) -> Value {
        serde_json::from_str(&text(model, samples).unwrap()).unwrap()
    }

    #[test]
    fn it_tells_all_that_its_schema_names() {
        let model = fixture::seen(fixture::page(2_950, 47_130));
        let mut samples = SampleFigures::default();
        samples.absorb(&bifrost_shared::record::Record {
            total: 70,
            ..Default::default()
        });
        let object = object(&model, Some(&samples));
        for (path, expected) in [
            ("/state", Value::from("live")),
            ("/pid", 4_711.into()),
            ("/version", "0.1.0".into()),
            ("/layout", "2.0".into()),
            ("/floor_ns", 10.into()), // 9.5 ns
            ("/stages/key_selection/window/mean_ns", 15.into()),
            ("/verdict/state", "stay".into()),
            ("/triggers/load/state", "ok".into()),
            ("/triggers/load/mean_60s", 2_950.into()),
            ("/triggers/queue_wait/limit", 75_000.into()),
            ("/triggers/queue_wait/unit", "ns".into()),
            ("/counters/completed", 885_000.into()),
            ("/gauges/rss", 1_290_000_000_u64.into()),
            ("/credit_mode", "unlimited".into()),
            // Five minutes at 72 %: 7.2 spent and 2 earned. The use is 62.4 an hour above what is earned.
            ("/credits/balance_low", (-5.2).into()),
            ("/credits/balance_high", 570.8.into()),
            ("/credits/used_permille", 720.0.into()),
            ("/credits/runway_low_ns", 0.into()),
            ("/credits/observed_ns", 300_000_000_000_u64.into()),
            ("/window/seconds", 60.into()),
            ("/window/estimated", true.into()),
            ("/stages/queue_wait/in_overhead", true.into()),
            ("/stages/queue_wait/reference_medium_ns", 47_130.into()),
            ("/stages/queue_wait/since_start/count", 30_000.into()),
            ("/stages/queue_wait/window/count", 6_000.into()),
            ("/stages/back_off/reference_medium_ns", Value::Null),
            ("/unattributed/since_start/mean_ns", 549_000_000.into()),
            ("/samples/samples_read", 1.into()),
            ("/samples/samples_missed", 0.into()),
            ("/samples/unattributed_p99_ns", 70.into()),
            ("/samples/http_request_below_provider_time", 0.into()),
        ] {
            assert_eq!(object.pointer(path), Some(&expected), "{path}");
        }
        let counts =
            ["counters", "gauges", "stages"].map(|key| object[key].as_object().unwrap().len());
        assert_eq!(counts, [Counter::COUNT, Gauge::COUNT, Stage::COUNT]);
    }

    #[test]
    fn every_key_is_in_the_schema() {
        let schema: String = include_str!("json.rs")
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .collect();
        let is_told = |key: &str| {
            let is_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
            schema.split(|sign| !is_word(sign)).any(|word| word == key)
        };
        let model = fixture::seen(fixture::page(2_950, 47_130));
        let object = object(&model, Some(&SampleFigures::default()));
        for pointer in [
            "",
            "/verdict",
            "/triggers/load",
            "/credits",
            "/window",
            "/stages/queue_wait",
            "/stages/queue_wait/window",
            "/samples",
        ] {
            for key in object.pointer(pointer).unwrap().as_object().unwrap().keys() {
                assert!(is_told(key), "{pointer}/{key}");
            }
        }
    }

    #[test]
    fn what_only_the_gateway_knows_is_told_and_what_only_we_know_is_null() {
        let object = |reading| object(&fixture::seen(reading), None);
        let (later, earlier) = (object(fixture::later()), object(fixture::earlier()));
        for (object, path, expected) in [
            (&later, "/counters/checked", Value::from(4_711)),
            (&later, "/gauges/checking", 8.into()),
            (&later, "/stages/check/in_overhead", true.into()),
            (&later, "/stages/check/reference_medium_ns", 1_500.into()),
            (&later, "/stages/check/window/mean_ns", 3_000.into()),
            (&later, "/others/cached/window/count", 0.into()),
            (&later, "/others/first_token/window/count", 0.into()),
            (&earlier, "/counters/dials", Value::Null),
            (&earlier, "/counters/completed", 885_000.into()),
            (&earlier, "/gauges/held_bytes", Value::Null),
            (&earlier, "/first_byte/window/count", Value::Null),
            (&earlier, "/first_byte/since_start/mean_ns", Value::Null),
        ] {
            assert_eq!(object.pointer(path), Some(&expected), "{path}");
        }
        assert_eq!(later.pointer("/others/beyond"), None);
    }

    #[test]
    fn an_instance_without_credits_has_none_told() {
        for instance in ["", "c7i.large"] {
            let mut header = fixture::header();
            header.instance = instance.into();
            let model = fixture::seen(fixture::reading_of(&header, &[fixture::row(1, 1)]));
            assert_eq!(object(&model, None)["credits"], Value::Null, "{instance}");
        }
    }

    #[test]
    fn no_data_is_too_odd_to_tell() {
        for model in fixture::odd() {
            let object = object(&model, None);
            assert!(object["state"].is_string() && object["verdict"]["text"].is_string());
        }
    }

    #[test]
    fn what_a_gateway_was_changing_when_it_died_is_null_and_what_it_had_closed_is_told() {
        let mut reading = fixture::page(2_950, 47_130);
        reading.alive = false;
        reading.figures = None;
        let object = object(&fixture::seen(reading), None);
        let counters = object["counters"].as_object().unwrap();
        assert!(counters.values().all(Value::is_null), "{counters:?}");
        for (path, expected) in [
            ("/state", Value::from("dead")),
            ("/gauges/rss", 1_290_000_000_u64.into()),
            ("/stages/queue_wait/since_start/count", Value::Null),
            ("/stages/queue_wait/since_start/max_ns", Value::Null),
            ("/stages/queue_wait/window/count", 6_000.into()),
        ] {
            assert_eq!(object.pointer(path), Some(&expected), "{path}");
        }
    }

    #[test]
    fn a_gateway_that_died_before_its_first_second_has_no_gauges_either() {
        let mut reading = fixture::reading(&[]);
        reading.figures = None;
        let object = object(&fixture::seen(reading), None);
        assert_eq!(object["gauges"]["rss"], Value::Null);
    }

    #[test]
    fn without_a_gateway_it_tells_the_state_and_what_to_do() {
        let object = object(&Model::default(), None);
        assert_eq!(object["state"], "no_gateway");
        assert_eq!(object["verdict"]["state"], "unknown");
    }
}
