//! Told seconds, and what is made of them.

use bifrost_shared::layout::{COUNTERS_ROOM, GAUGES_ROOM, Gauge, SERIES_ROOM};
use bifrost_shared::stage::Series;
use bifrost_shared::thresholds::Thresholds;

use super::*;
use crate::format::SECOND;
use crate::model::fixture;

const GB: u64 = 1_000_000_000;

/// A second as the tests tell it: the benchmark page's stages, at a comfortable load.
#[derive(Clone, Copy)]
struct Told {
    requests: u64,
    queue_wait: u64,
    overhead: u64,
    rss: u64,
    delay: u64,
    steal: u64,
}

const CALM: Told = Told {
    requests: 2_950,
    queue_wait: 47_130,
    overhead: 59_200,
    rss: 1_312_790_000,
    delay: 30_000,
    steal: 0,
};

fn told(judge: &mut Judge, seconds: u64, told: Told) {
    let from = judge.seconds.last().map_or(0, |it| it.ended_at / SECOND);
    for second in from + 1..=from + seconds {
        let mut row = fixture::row(told.requests, told.queue_wait);
        row.ended_at = second * SECOND;
        row.series[Series::Overhead.index()].sum = told.overhead * told.requests;
        row.gauges[Gauge::Rss.index()] = told.rss;
        row.gauges[Gauge::SchedulerDelay.index()] = told.delay;
        row.gauges[Gauge::Steal.index()] = told.steal;
        judge.absorb(&row);
    }
}

fn judge() -> Judge {
    Judge::new(&fixture::header())
}

fn level(judge: &Judge, trigger: Trigger) -> Level {
    let verdict = judge.verdict(None);
    let found = verdict.triggers.iter().find(|it| it.trigger == trigger);
    found.unwrap().level
}

#[test]
fn the_benchmark_pages_own_figures_breach_the_load_alone() {
    let mut judge = judge();
    told(
        &mut judge,
        300,
        Told {
            requests: 5_000,
            ..CALM
        },
    );
    let verdict = judge.verdict(None);
    let levels: Vec<_> = verdict.triggers.iter().map(|it| it.level).collect();
    let ok = Level::Ok;
    assert_eq!(levels, [ok, Level::Breach, ok, ok, ok, ok]);
    assert_eq!(verdict.triggers[0].minute, Some(47_130));
    let memory = &verdict.triggers[2];
    assert_eq!(format::percent(memory.minute.unwrap(), 4 * GB), "33%");
    assert_eq!(
        verdict.text(),
        "UPGRADE to t3.xlarge because load 5,000/s (limit 4,000/s) in 60/60 s, 4m12s"
    );
}

#[test]
fn a_calm_gateway_may_stay_and_the_verdict_says_how_calm_it_is() {
    let mut judge = judge();
    told(&mut judge, 60, CALM);
    let verdict = judge.verdict(None);
    assert_eq!(verdict.advice, Advice::Stay);
    assert_eq!(
        verdict.text(),
        "STAY on t3.medium: queue wait 47.1 µs of 75 µs; load 2,950 of 4,000/s; memory 33% of 75%"
    );
}

const fn slow(queue_wait: u64) -> Told {
    Told { queue_wait, ..CALM }
}

const fn busy(requests: u64) -> Told {
    Told { requests, ..CALM }
}

const fn big(rss: u64) -> Told {
    Told { rss, ..CALM }
}

const fn heavy(overhead: u64) -> Told {
    Told { overhead, ..CALM }
}

const fn late(delay: u64) -> Told {
    Told { delay, ..CALM }
}

/// Holds how a trigger stands after so many seconds of one thing, and then of another.
#[track_caller]
fn check(trigger: Trigger, before: (u64, Told), then: (u64, Told), expected: Level) {
    let mut judge = judge();
    for (seconds, what) in [before, then] {
        told(&mut judge, seconds, what);
    }
    let seconds = then.0;
    assert_eq!(
        level(&judge, trigger),
        expected,
        "{trigger:?} after {seconds} s"
    );
}

/// What each trigger says after a calm minute and then so many seconds of something else.
#[test]
fn each_trigger_rises_by_its_own_rule() {
    for (trigger, then, seconds, expected) in [
        (Trigger::QueueWait, slow(80_000), 11, Level::Ok),
        (Trigger::QueueWait, slow(80_000), 12, Level::Watch),
        (Trigger::QueueWait, slow(59_000), 60, Level::Ok),
        (Trigger::QueueWait, slow(60_000), 60, Level::Watch),
        (Trigger::QueueWait, slow(75_000), 60, Level::Watch),
        (Trigger::QueueWait, slow(120_000), 47, Level::Watch),
        (Trigger::QueueWait, slow(120_000), 48, Level::Breach),
        // Over the limit in 60 of 60 rows, but the mean of all 120 is not.
        (Trigger::QueueWait, slow(76_000), 60, Level::Watch),
        (Trigger::Load, busy(3_599), 60, Level::Ok),
        (Trigger::Load, busy(3_600), 60, Level::Watch),
        (Trigger::Load, busy(3_999), 60, Level::Watch),
        (Trigger::Load, busy(4_000), 60, Level::Breach),
        (Trigger::Load, busy(6_000), 47, Level::Watch),
        (Trigger::Load, busy(6_000), 48, Level::Breach),
        (Trigger::Memory, big(2_699_999_999), 60, Level::Ok),
        (Trigger::Memory, big(2_700_000_000), 1, Level::Watch),
        (Trigger::Memory, big(3_000_000_000), 60, Level::Watch),
        (Trigger::Memory, big(3_000_000_001), 47, Level::Watch),
        (Trigger::Memory, big(3_000_000_001), 48, Level::Breach),
        (Trigger::Overhead, heavy(87_000), 60, Level::Ok),
        (Trigger::Overhead, heavy(87_001), 60, Level::Watch),
        (Trigger::Overhead, heavy(GB), 60, Level::Watch),
        (Trigger::SchedulerDelay, late(1_000_000), 60, Level::Ok),
        (Trigger::SchedulerDelay, late(1_000_001), 60, Level::Watch),
        (Trigger::SchedulerDelay, late(GB), 60, Level::Watch),
    ] {
        check(trigger, (60, CALM), (seconds, then), expected);
    }
}

/// What a trigger that has been raised for ten minutes says after so many seconds of something else. It falls a
/// minute after its clear rule began to hold, and that speaks of the minute before.
#[test]
fn each_trigger_falls_only_after_a_clear_minute() {
    for (trigger, raised, then, seconds, expected) in [
        (Trigger::QueueWait, slow(120_000), CALM, 100, Level::Breach),
        (Trigger::QueueWait, slow(120_000), CALM, 130, Level::Ok),
        (
            Trigger::QueueWait,
            slow(120_000),
            slow(66_000),
            200,
            Level::Watch,
        ),
        (
            Trigger::QueueWait,
            slow(120_000),
            slow(68_000),
            600,
            Level::Breach,
        ),
        (Trigger::QueueWait, slow(70_000), CALM, 60, Level::Watch),
        (Trigger::QueueWait, slow(70_000), CALM, 130, Level::Ok),
        (Trigger::Load, busy(5_000), busy(3_600), 600, Level::Breach),
        (Trigger::Load, busy(5_000), busy(3_599), 118, Level::Breach),
        (Trigger::Load, busy(5_000), busy(3_599), 120, Level::Ok),
        (
            Trigger::Memory,
            big(3_100_000_000),
            big(2_800_000_000),
            600,
            Level::Breach,
        ),
        (
            Trigger::Memory,
            big(3_100_000_000),
            big(2_750_000_000),
            80,
            Level::Watch,
        ),
        (Trigger::Memory, big(3_100_000_000), CALM, 59, Level::Breach),
        (Trigger::Memory, big(3_100_000_000), CALM, 80, Level::Ok),
        (
            Trigger::Overhead,
            heavy(90_000),
            heavy(81_000),
            600,
            Level::Watch,
        ),
        (
            Trigger::Overhead,
            heavy(90_000),
            heavy(79_000),
            130,
            Level::Ok,
        ),
        (
            Trigger::SchedulerDelay,
            late(2_000_000),
            CALM,
            60,
            Level::Watch,
        ),
        (
            Trigger::SchedulerDelay,
            late(2_000_000),
            CALM,
            130,
            Level::Ok,
        ),
    ] {
        check(trigger, (600, raised), (seconds, then), expected);
    }
}

#[test]
fn too_few_requests_leave_queue_wait_unjudged_and_the_rest_not() {
    let quiet = Told {
        requests: 99,
        queue_wait: 500_000,
        ..CALM
    };
    let mut judge = judge();
    told(&mut judge, 120, quiet);
    let verdict = judge.verdict(None);
    assert_eq!(verdict.triggers[0].level, Level::Unknown);
    assert_eq!(
        verdict.text(),
        "STAY on t3.medium: load 99 of 4,000/s; memory 33% of 75%; \
         too few requests to judge queue wait (0 of 30 seconds had 100)"
    );
    told(
        &mut judge,
        60,
        Told {
            rss: 3_500_000_000,
            ..quiet
        },
    );
    let verdict = judge.verdict(None);
    assert_eq!(verdict.advice, Advice::Upgrade);
    assert_eq!(
        verdict.reasons,
        [
            "memory 3.50 GB (limit 3 GB) in 60/60 s, 12s",
            "too few requests to judge queue wait (0 of 30 seconds had 100)"
        ]
    );
}

#[test]
fn a_breach_of_queue_wait_ends_at_once_when_traffic_does() {
    let mut judge = judge();
    told(
        &mut judge,
        300,
        Told {
            queue_wait: 120_000,
            ..CALM
        },
    );
    assert_eq!(level(&judge, Trigger::QueueWait), Level::Breach);
    told(
        &mut judge,
        31,
        Told {
            requests: 0,
            ..CALM
        },
    );
    assert_eq!(level(&judge, Trigger::QueueWait), Level::Unknown);
}

#[test]
fn memory_that_will_be_at_its_limit_within_ten_minutes_is_watched() {
    for (growth, level_expected) in [(2_000_000, Level::Ok), (3_000_000, Level::Watch)] {
        let mut judge = judge();
        for second in 0..300 {
            let rss = 1_000_000_000 + second * growth;
            told(&mut judge, 1, Told { rss, ..CALM });
        }
        assert_eq!(
            level(&judge, Trigger::Memory),
            level_expected,
            "{growth} B/s"
        );
    }
    let mut judge = judge();
    for second in 0..300 {
        told(
            &mut judge,
            1,
            Told {
                rss: 1_000_000_000 + second * 4_000_000,
                ..CALM
            },
        );
    }
    let text = judge.verdict(None).text();
    assert_eq!(
        text,
        "WATCH on t3.medium: memory 2.08 GB grows to 3 GB in 3m21s"
    );
}

#[test]
fn stale_or_missing_data_gives_no_verdict() {
    let mut judge = judge();
    assert_eq!(
        judge.verdict(None).text(),
        "UNKNOWN: no second of the gateway is over yet"
    );
    told(
        &mut judge,
        300,
        Told {
            requests: 5_000,
            ..CALM
        },
    );
    let verdict = judge.verdict(Some("the gateway died 12.0 s ago".to_owned()));
    assert_eq!(verdict.advice, Advice::Unknown);
    assert_eq!(verdict.text(), "UNKNOWN: the gateway died 12.0 s ago");
    assert_eq!(
        verdict.triggers[1].level,
        Level::Breach,
        "its last rows still show"
    );
}

#[test]
fn on_another_host_the_limits_are_only_references() {
    let others = [
        Header {
            vcpus: 8,
            memory_total: 16 * GB,
            ..fixture::header()
        },
        Header {
            instance: "m5.large".into(),
            ..fixture::header()
        },
    ];
    for header in others {
        let mut judge = Judge::new(&header);
        told(
            &mut judge,
            300,
            Told {
                requests: 5_000,
                ..CALM
            },
        );
        let verdict = judge.verdict(None);
        assert_eq!(verdict.advice, Advice::NoLimits);
        assert!(
            verdict
                .triggers
                .iter()
                .all(|it| it.level == Level::Reference)
        );
        assert!(
            verdict
                .text()
                .starts_with("NO LIMITS known for this host (")
        );
    }
}

#[test]
fn limits_that_somebody_set_hold_on_any_host() {
    let mut judge = Judge::new(&Header {
        vcpus: 8,
        thresholds: Thresholds {
            load_rps: 20_000,
            ..Thresholds::T3_MEDIUM
        },
        ..fixture::header()
    });
    told(
        &mut judge,
        60,
        Told {
            requests: 19_000,
            ..CALM
        },
    );
    assert_eq!(
        judge.verdict(None).text(),
        "WATCH: load 19,000/s is at 95% of 20,000/s"
    );
}

#[test]
fn stolen_time_is_named_before_size_is_blamed() {
    let mut judge = judge();
    told(
        &mut judge,
        300,
        Told {
            queue_wait: 120_000,
            steal: 180,
            ..CALM
        },
    );
    assert_eq!(
        judge.verdict(None).reasons[1],
        "CPU throttled, steal 18%: look at CPU credits first"
    );
}

#[test]
fn a_limit_of_zero_is_no_limit() {
    let mut judge = Judge::new(&Header {
        thresholds: Thresholds {
            load_rps: 0,
            ..Thresholds::T3_MEDIUM
        },
        ..fixture::header()
    });
    told(&mut judge, 60, CALM);
    assert_eq!(level(&judge, Trigger::Load), Level::Reference);
    assert_eq!(judge.verdict(None).advice, Advice::Stay);
}

#[test]
fn no_figure_is_too_large_to_judge() {
    let mut judge = Judge::new(&Header {
        memory_limit: u64::MAX,
        ..fixture::header()
    });
    for _ in 0..301 {
        judge.absorb(&Row {
            ended_at: u64::MAX,
            duration: 1,
            counters: [u64::MAX; COUNTERS_ROOM],
            gauges: [u64::MAX; GAUGES_ROOM],
            series: [fixture::LARGEST; SERIES_ROOM],
            ..fixture::row(1, 1)
        });
    }
    assert_eq!(judge.verdict(None).advice, Advice::Upgrade);
}

/// Seconds of a t3.medium whose processors are used to so many thousandths, ten minutes each to save rows.
fn worked(judge: &mut Judge, rows: u64, permille: u64) {
    let from = judge.seconds.last().map_or(0, |it| it.ended_at / SECOND);
    for row in 1..=rows {
        let mut second = fixture::row(CALM.requests * 600, CALM.queue_wait);
        second.duration = 600 * SECOND;
        second.ended_at = (from + row * 600) * SECOND;
        second.gauges[Gauge::HostCpu.index()] = permille;
        judge.absorb(&second);
    }
}

#[test]
fn credits_that_run_out_within_hours_are_watched_and_nothing_more() {
    let mut judge = judge();
    // Both processors at work burn 96 credits an hour: 576 last 6 h, and after two hours and ten minutes 3 h 50 m.
    worked(&mut judge, 6, 1_000);
    assert_eq!(level(&judge, Trigger::CreditRunway), Level::Ok);
    worked(&mut judge, 7, 1_000);
    assert_eq!(level(&judge, Trigger::CreditRunway), Level::Watch);
    let verdict = judge.verdict(None);
    assert_eq!(verdict.advice, Advice::Watch);
    assert_eq!(
        verdict.reasons[0],
        "CPU credits last 3h50m at most at this use (an estimate; limit 4h00m)"
    );
    assert!(
        verdict.remedies[0].contains("$0.05 a vCPU-hour"),
        "unlimited, as the header says"
    );
    // At the baseline the balance grows again.
    worked(&mut judge, 59, 150);
    assert_eq!(level(&judge, Trigger::CreditRunway), Level::Watch);
    worked(&mut judge, 61, 150);
    assert_eq!(level(&judge, Trigger::CreditRunway), Level::Ok);
}

#[test]
fn an_instance_without_credits_is_not_judged_by_them() {
    let judge = Judge::new(&Header {
        instance: "c7i-flex.large".to_owned(),
        ..fixture::header()
    });
    let verdict = judge.verdict(None);
    assert!(
        verdict
            .triggers
            .iter()
            .all(|it| it.trigger != Trigger::CreditRunway)
    );
}

#[test]
fn what_can_be_done_depends_on_what_is_short() {
    let mut judge = judge();
    told(&mut judge, 60, slow(120_000));
    let remedy = |judge: &Judge| judge.verdict(None).remedies.join("\n");
    assert!(remedy(&judge).contains("processors"), "{}", remedy(&judge));
    assert!(
        remedy(&judge).contains("t3.xlarge ($0.1664/h"),
        "{}",
        remedy(&judge)
    );
    for second in 61..=120 {
        let mut row = fixture::row(CALM.requests, 120_000);
        row.ended_at = second * SECOND;
        row.gauges[Gauge::Waiting.index()] = 40;
        judge.absorb(&row);
    }
    assert!(
        remedy(&judge).contains("raise the provider's concurrency"),
        "{}",
        remedy(&judge)
    );
    let mut judge = self::judge();
    told(&mut judge, 60, big(2_800_000_000));
    assert!(
        remedy(&judge).contains("m7i-flex.large"),
        "{}",
        remedy(&judge)
    );
    told(&mut judge, 300, CALM);
    assert_eq!(remedy(&judge), "", "a calm gateway needs none");
}

/// An hour of seconds whose queue wait and load swing by a third about a level, whatever that is: where it is just at a
/// border, the advice may change now and then, but it never flickers.
#[test]
fn noise_about_any_level_does_not_make_the_advice_flicker() {
    for seed in 1..=40_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut noise = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // The mean of four: bell-shaped enough, from two thirds to four thirds.
            let sum: u64 = (0..4).map(|at| state >> (at * 16) & 0xffff).sum();
            667 + sum * 667 / (4 * 0xffff)
        };
        let (wait, load) = (30_000 + seed * 1_500, 2_500 + seed * 45);
        let mut judge = judge();
        let mut advice = vec![];
        for second in 1..=3_600 {
            let mut row = fixture::row(load * noise() / 1_000, wait * noise() / 1_000);
            row.ended_at = second * SECOND;
            judge.absorb(&row);
            advice.push(judge.verdict(None).advice);
        }
        let stays: Vec<_> = advice[60..]
            .chunk_by(|one, next| one == next)
            .map(<[_]>::len)
            .collect();
        let between = stays.get(1..stays.len() - 1).unwrap_or_default();
        let shortest = between.iter().min().copied().unwrap_or(usize::MAX);
        assert!(shortest >= 30, "{shortest} s with seed {seed}: {stays:?}");
        assert!(stays.len() <= 24, "{stays:?} with seed {seed}");
    }
}
