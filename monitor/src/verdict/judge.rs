//! From seconds to a verdict: how each trigger came to stand, and what follows from all of them.

use bifrost_shared::snapshot::{Header, Row};
use bifrost_shared::thresholds::{T3_MEDIUM, T3_XLARGE, Thresholds, is_like_t3_medium};

use super::rules::{self, BUSY_ROWS_MIN, Finding, share};
use super::seconds::{BUSY_REQUESTS, Second, Seconds, mean};
use super::{Advice, Judged, Level, Trigger, Verdict};
use crate::format;

/// Rows that a clear rule must hold for.
const CLEAR_ROWS: usize = 60;
/// Mean delay of a minute that is worth a look (ours): an idle machine wakes a task within 30 µs.
const SCHEDULER_DELAY_NS: u64 = 1_000_000;
/// Steal above which a slow machine may be short of credits rather than of size, permille.
const STEAL_PERMILLE: u64 = 100;

/// Judges a gateway's seconds, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Judge {
    limits: Limits,
    seconds: Seconds,
    standings: [Option<Standing>; Trigger::ALL.len()],
}

impl Judge {
    /// A judge of the gateway that `header` is of.
    pub(crate) fn new(header: &Header) -> Self {
        Self {
            limits: Limits::of(header),
            seconds: Seconds::default(),
            standings: [None; Trigger::ALL.len()],
        }
    }

    /// Takes the next second.
    pub(crate) fn absorb(&mut self, row: &Row) {
        self.seconds.push(Second::of(row));
        for (place, trigger) in Trigger::ALL.into_iter().enumerate() {
            let finding = self.finding(trigger);
            let standing = match self.standings[place] {
                Some(before) => before.after(&finding, row.ended_at),
                None => Standing::new(finding.level, row.ended_at),
            };
            self.standings[place] = Some(standing);
        }
    }

    /// What the seconds so far say. `staleness` is why they can't be judged by, where they can't.
    pub(crate) fn verdict(&self, staleness: Option<String>) -> Verdict {
        let triggers: Vec<_> = (0..Trigger::ALL.len()).map(|at| self.judged(at)).collect();
        let (advice, headline, mut reasons) = self.advice(&triggers, staleness);
        reasons.extend(self.qualifiers(advice, &triggers));
        Verdict {
            advice,
            headline,
            reasons,
            triggers,
        }
    }

    fn advice(
        &self,
        triggers: &[Judged],
        staleness: Option<String>,
    ) -> (Advice, String, Vec<String>) {
        let instance = self.limits.instance;
        let on = instance.map_or_else(String::new, |name| format!(" on {name}"));
        if let Some(reason) = staleness {
            return (Advice::Unknown, "UNKNOWN".to_owned(), vec![reason]);
        }
        if self.seconds.last().is_none() {
            let reason = "no second of the gateway is over yet".to_owned();
            return (Advice::Unknown, "UNKNOWN".to_owned(), vec![reason]);
        }
        if !self.limits.hold {
            return (Advice::NoLimits, self.host_without_limits(), vec![]);
        }
        let at = |level: Level| {
            let mut found: Vec<_> = triggers.iter().filter(|it| it.level == level).collect();
            found.sort_by_key(|it| std::cmp::Reverse(it.share_of_limit()));
            found.into_iter().map(Judged::reason).collect::<Vec<_>>()
        };
        let breached = at(Level::Breach);
        let watched = at(Level::Watch);
        if !breached.is_empty() {
            let to = instance.map_or_else(String::new, |_| format!(" to {}", T3_XLARGE.instance));
            let reasons = breached.into_iter().chain(watched).collect();
            (Advice::Upgrade, format!("UPGRADE{to}"), reasons)
        } else if !watched.is_empty() {
            (Advice::Watch, format!("WATCH{on}"), watched)
        } else {
            let reasons = at_ease(triggers, self.limits.memory_limit);
            (Advice::Stay, format!("STAY{on}"), reasons)
        }
    }

    fn host_without_limits(&self) -> String {
        let cpus = format::count(self.limits.vcpus);
        let memory = format::bytes(self.limits.memory_total);
        format!(
            "NO LIMITS known for this host ({cpus} vCPU, {memory}): a {}'s are shown as references",
            T3_MEDIUM.instance
        )
    }

    /// What else to bear in mind, whatever the advice.
    fn qualifiers(&self, advice: Advice, triggers: &[Judged]) -> Vec<String> {
        if advice == Advice::Unknown {
            return vec![];
        }
        let mut qualifiers = vec![];
        let queue = &triggers[0];
        if queue.level == Level::Unknown {
            qualifiers.push(format!(
                "too few requests to judge queue wait ({} of {BUSY_ROWS_MIN} seconds had {BUSY_REQUESTS})",
                queue.busy
            ));
        }
        let steal = mean(self.seconds.minute().map(|second| second.steal)).unwrap_or(0);
        if steal > STEAL_PERMILLE {
            let steal = format::percent(steal, 1_000);
            qualifiers.push(format!(
                "CPU throttled, steal {steal}: look at CPU credits first"
            ));
        }
        let lost = self
            .seconds
            .minute()
            .fold(0_u64, |sum, second| sum.saturating_add(second.lost));
        if lost > 0 {
            let lost = format::count(lost);
            qualifiers.push(format!("{lost} samples of the last minute were lost"));
        }
        qualifiers
    }

    fn judged(&self, place: usize) -> Judged {
        let trigger = Trigger::ALL[place];
        let finding = self.finding(trigger);
        let last = self.seconds.last().map_or(0, |second| second.ended_at);
        let standing = self.standings[place].unwrap_or(Standing::new(finding.level, last));
        Judged {
            trigger,
            now: finding.now,
            minute: finding.minute,
            limit: self.limits.of_trigger(trigger),
            over: finding.over,
            rows: self.seconds.minute().count() as u64,
            busy: self.seconds.busy_minute().count() as u64,
            level: standing.level,
            held: last.saturating_sub(standing.since),
            reached_in: finding.reached_in,
        }
    }

    fn finding(&self, trigger: Trigger) -> Finding {
        let limit = self.limits.of_trigger(trigger);
        let mut finding = rules::finding(trigger, &self.seconds, limit);
        if !self.limits.hold || limit == 0 {
            finding.level = Level::Reference;
        }
        finding
    }
}

/// What triggers are held against on this host.
#[derive(Debug, Clone)]
struct Limits {
    thresholds: Thresholds,
    memory_limit: u64,
    vcpus: u64,
    memory_total: u64,
    /// The instance that the limits are of; none where somebody set limits of their own.
    instance: Option<&'static str>,
    /// Whether they hold here at all.
    hold: bool,
}

impl Limits {
    fn of(header: &Header) -> Self {
        let is_named_so = header.instance.is_empty() || header.instance == T3_MEDIUM.instance;
        let is_medium = is_like_t3_medium(header.vcpus, header.memory_total) && is_named_so;
        let are_the_pages = header.thresholds == Thresholds::T3_MEDIUM;
        Self {
            thresholds: header.thresholds,
            memory_limit: header.memory_limit,
            vcpus: header.vcpus,
            memory_total: header.memory_total,
            instance: is_medium.then_some(T3_MEDIUM.instance),
            hold: is_medium || !are_the_pages,
        }
    }

    fn of_trigger(&self, trigger: Trigger) -> u64 {
        match trigger {
            Trigger::QueueWait => self.thresholds.queue_wait_ns,
            Trigger::Load => self.thresholds.load_rps,
            Trigger::Memory => share(self.memory_limit, self.thresholds.memory_permille),
            Trigger::Overhead => self.thresholds.overhead_ns,
            Trigger::SchedulerDelay => SCHEDULER_DELAY_NS,
        }
    }
}

/// How a trigger stands, and how it came to.
#[derive(Debug, Clone, Copy)]
struct Standing {
    level: Level,
    /// When it came to stand so: a row's end.
    since: u64,
    /// For how many rows it could have fallen.
    clear_rows: usize,
}

impl Standing {
    const fn new(level: Level, since: u64) -> Self {
        Self {
            level,
            since,
            clear_rows: 0,
        }
    }

    /// How it stands after a row that ended at `now` and said `finding`.
    fn after(self, finding: &Finding, now: u64) -> Self {
        if finding.level == self.level {
            return Self {
                clear_rows: 0,
                ..self
            };
        }
        // What is no longer known is said at once; only a fall to a known, calmer level has to prove itself.
        let falls = finding.level >= Level::Ok && finding.level < self.level;
        if !falls {
            return Self::new(finding.level, now);
        }
        let clear_rows = if finding.is_clear {
            self.clear_rows + 1
        } else {
            0
        };
        if clear_rows >= CLEAR_ROWS {
            return Self::new(finding.level, now);
        }
        Self { clear_rows, ..self }
    }
}

/// What a calm gateway's triggers say.
fn at_ease(triggers: &[Judged], memory_limit: u64) -> Vec<String> {
    let calm = |trigger: Trigger| {
        triggers
            .iter()
            .find(|it| it.trigger == trigger && it.level == Level::Ok)
    };
    let value = |judged: &Judged| judged.minute.unwrap_or(0);
    let mut reasons = vec![];
    if let Some(queue) = calm(Trigger::QueueWait) {
        let (value, limit) = (
            format::brief(value(queue)),
            format::plain(&format::brief(queue.limit)),
        );
        reasons.push(format!("queue wait {value} of {limit}"));
    }
    if let Some(load) = calm(Trigger::Load) {
        let (value, limit) = (format::count(value(load)), format::rate(load.limit));
        reasons.push(format!("load {value} of {limit}"));
    }
    if let Some(memory) = calm(Trigger::Memory) {
        let share = |bytes| format::percent(bytes, memory_limit);
        let (value, limit) = (share(value(memory)), share(memory.limit));
        reasons.push(format!("memory {value} of {limit}"));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use bifrost_shared::layout::{COUNTERS_ROOM, GAUGES_ROOM, Gauge, SERIES_ROOM};
    use bifrost_shared::stage::Series;

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
        assert_eq!(levels, [ok, Level::Breach, ok, ok, ok]);
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
            let mut judge = judge();
            told(&mut judge, 60, CALM);
            told(&mut judge, seconds, then);
            assert_eq!(
                level(&judge, trigger),
                expected,
                "{trigger:?} after {seconds} s"
            );
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
            let mut judge = judge();
            told(&mut judge, 600, raised);
            told(&mut judge, seconds, then);
            assert_eq!(
                level(&judge, trigger),
                expected,
                "{trigger:?} after {seconds} s"
            );
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
}
