//! What became of a load's requests: exact counts, and every time that was measured, by the second it was due in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bifrost_shared::histogram::{self, Histogram};
use serde::{Deserialize, Serialize};

use super::client::{Outcome, Seen};

/// How requests ended. Each is in `sent` and in one of the others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) ok: u64,
    /// Whole answers that were no success, by status.
    pub(super) status: BTreeMap<u16, u64>,
    /// Whole answers with a status of 200 and no content.
    #[serde(default)]
    pub(super) no_answer: u64,
    /// Connections that broke, and answers that ended before their end.
    pub(super) broken: u64,
    pub(super) timed_out: u64,
    pub(super) connect_failed: u64,
}

impl Counts {
    fn count(&mut self, outcome: Outcome) {
        self.sent += 1;
        match outcome {
            Outcome::Ok => self.ok += 1,
            Outcome::Status(status) => *self.status.entry(status).or_default() += 1,
            Outcome::NoAnswer => self.no_answer += 1,
            Outcome::Broken => self.broken += 1,
            Outcome::TimedOut => self.timed_out += 1,
            Outcome::ConnectFailed => self.connect_failed += 1,
        }
    }

    /// The share of requests that were answered well; none without any.
    pub(super) fn success(&self) -> Option<f64> {
        (self.sent > 0).then(|| self.ok as f64 / self.sent as f64)
    }

    /// How requests failed, in words; empty if none did.
    pub(super) fn failures(&self) -> String {
        let statuses = self
            .status
            .iter()
            .map(|(status, count)| (format!("status {status}"), *count));
        let others = [
            ("no answer in it", self.no_answer),
            ("broken", self.broken),
            ("timed out", self.timed_out),
            ("connect failed", self.connect_failed),
        ];
        let others = others.map(|(name, count)| (name.to_owned(), count));
        let all = statuses.chain(others).filter(|(_, count)| *count > 0);
        let all: Vec<_> = all
            .map(|(name, count)| format!("{name}: {count}"))
            .collect();
        all.join(", ")
    }
}

/// What a distribution comes to, nanoseconds; all zero for none.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) count: u64,
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of exact values, which are sorted for it. A quantile is the smallest value that its share does not exceed.
    pub(super) fn of(values: &mut [f64]) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let Some(max) = values.last().copied() else {
            return Self::default();
        };
        let count = values.len();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank of a value that is in memory"
        )]
        let at = |share: f64| values[((count as f64 * share).ceil() as usize).clamp(1, count) - 1];
        Self {
            count: count as u64,
            mean: values.iter().sum::<f64>() / count as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A time in tenths of a microsecond: a value is exact to 0.1 µs and takes four bytes, so that an hour of 5,000
/// requests a second takes 144 MB. Seven minutes are the most.
type Tenths = u32;
const TENTH_NS: f64 = 100.0;

fn tenths(time: Duration) -> Tenths {
    Tenths::try_from(time.as_nanos() / 100).unwrap_or(Tenths::MAX)
}

fn ns(value: Tenths) -> f64 {
    f64::from(value) * TENTH_NS
}

/// The requests that were due in one second.
#[derive(Debug, Clone, Default)]
struct Second {
    failed: u64,
    latency: Vec<Tenths>,
    hop: Vec<Tenths>,
}

/// One second as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct SecondRow {
    pub(super) ok: u64,
    pub(super) failed: u64,
    /// Latency, ns; none where nobody was answered.
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    /// Latency less the service time, ns; none where that isn't told, either.
    pub(super) hop_p50: Option<f64>,
    pub(super) hop_p99: Option<f64>,
}

/// What a load came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct LoadReport {
    /// What was sent, in words.
    pub(super) what: String,
    pub(super) url: String,
    /// Every request, the warm-up's included: what the other sides count.
    pub(super) all: Counts,
    /// Those due after the warm-up.
    pub(super) measured: Counts,
    /// From the end of the warm-up to the last request's end, seconds.
    pub(super) seconds: f64,
    /// Good answers a second, over the time in which requests were due.
    pub(super) rate: f64,
    /// From the time a request was due to its last byte, however late it was sent: a server that stalls can't hide it.
    pub(super) latency: Spread,
    /// The same less the time that the provider says it took. Empty where answers don't tell it.
    pub(super) hop: Spread,
    /// From the time a request was due to a stream's first content.
    pub(super) first_event: Spread,
    /// How late requests were sent: the load's own part.
    pub(super) late: Spread,
    /// Bytes of an answer's body, on average.
    pub(super) answer_bytes: f64,
    /// Bytes of a request's body, on average.
    pub(super) request_bytes: f64,
    /// Events of streams that carried content.
    pub(super) events: u64,
    /// Processor time of the load itself for each request, µs.
    pub(super) own_cpu_us: f64,
    pub(super) timeline: Vec<SecondRow>,
    /// How many hops (or latencies, where the service time isn't told) there were up to each bound, ns.
    pub(super) distribution: Vec<(u64, u64)>,
}

/// What is gathered while a load runs.
#[derive(Debug)]
pub(super) struct Tally {
    /// The end of the warm-up.
    from: Instant,
    all: Counts,
    measured: Counts,
    seconds: Vec<Second>,
    first_event: Vec<Tenths>,
    late: Vec<Tenths>,
    answer_bytes: u64,
    request_bytes: u64,
    events: u64,
    last_end: Instant,
}

impl Tally {
    pub(super) fn new(from: Instant) -> Self {
        Self {
            from,
            all: Counts::default(),
            measured: Counts::default(),
            seconds: vec![],
            first_event: vec![],
            late: vec![],
            answer_bytes: 0,
            request_bytes: 0,
            events: 0,
            last_end: from,
        }
    }

    /// Counts a request that was due, was sent, and has ended.
    pub(super) fn count(&mut self, due: Instant, sent: Instant, request_bytes: usize, seen: &Seen) {
        self.all.count(seen.outcome);
        let Some(since) = due.checked_duration_since(self.from) else {
            return;
        };
        self.measured.count(seen.outcome);
        self.request_bytes += request_bytes as u64;
        self.late.push(tenths(sent.saturating_duration_since(due)));
        self.last_end = self.last_end.max(seen.ended);
        let at = usize::try_from(since.as_secs()).unwrap_or(usize::MAX);
        if self.seconds.len() <= at {
            self.seconds.resize_with(at + 1, Second::default);
        }
        let second = &mut self.seconds[at];
        if seen.outcome != Outcome::Ok {
            second.failed += 1;
            return;
        }
        let latency = seen.ended.saturating_duration_since(due);
        second.latency.push(tenths(latency));
        if let Some(service) = seen.service {
            second.hop.push(tenths(latency.saturating_sub(service)));
        }
        if let Some(first) = seen.first_event {
            self.first_event
                .push(tenths(first.saturating_duration_since(due)));
        }
        self.answer_bytes += seen.bytes;
        self.events += u64::from(seen.events);
    }

    /// How many have ended.
    pub(super) const fn ended(&self) -> &Counts {
        &self.all
    }

    /// What it came to. Requests were due for `time` after the warm-up.
    pub(super) fn report(
        &self,
        what: String,
        url: String,
        time: Duration,
        own_cpu: Duration,
    ) -> LoadReport {
        let all = |of: fn(&Second) -> &Vec<Tenths>| -> Vec<f64> {
            self.seconds.iter().flat_map(of).copied().map(ns).collect()
        };
        let (mut latency, mut hop) = (all(|it| &it.latency), all(|it| &it.hop));
        let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
        let seconds = self.last_end.duration_since(self.from);
        LoadReport {
            what,
            url,
            all: self.all.clone(),
            measured: self.measured.clone(),
            seconds: seconds.as_secs_f64(),
            rate: self.measured.ok as f64 / time.as_secs_f64().max(1e-9),
            latency: Spread::of(&mut latency),
            hop: Spread::of(&mut hop),
            first_event: spread(&self.first_event),
            late: spread(&self.late),
            answer_bytes: mean(self.answer_bytes, self.measured.ok),
            request_bytes: mean(self.request_bytes, self.measured.sent),
            events: self.events,
            own_cpu_us: own_cpu.as_secs_f64() * 1e6 / self.all.sent.max(1) as f64,
            timeline: self.seconds.iter().map(Second::row).collect(),
            distribution: distribution(if hop.is_empty() { &latency } else { &hop }),
        }
    }
}

impl Second {
    fn row(&self) -> SecondRow {
        let (latency, hop) = (spread(&self.latency), spread(&self.hop));
        let quantiles = |it: &Spread| (!it.is_empty()).then_some((it.p50, it.p99)).unzip();
        let ((p50, p99), (hop_p50, hop_p99)) = (quantiles(&latency), quantiles(&hop));
        SecondRow {
            ok: latency.count,
            failed: self.failed,
            p50,
            p99,
            hop_p50,
            hop_p99,
        }
    }
}

fn spread(values: &[Tenths]) -> Spread {
    Spread::of(&mut values.iter().copied().map(ns).collect::<Vec<_>>())
}

/// Counts in the telemetry's own buckets, within 3.2 %: enough for a picture.
fn distribution(values: &[f64]) -> Vec<(u64, u64)> {
    let mut histogram = Histogram::default();
    for value in values {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "made of a u32"
        )]
        histogram.record(*value as u64);
    }
    let buckets = histogram.buckets.iter().enumerate();
    let filled = buckets.filter(|(_, count)| **count > 0);
    filled
        .map(|(at, count)| (histogram::bounds(at).1, *count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn seen(outcome: Outcome, ended: Instant) -> Seen {
        Seen {
            outcome,
            ended,
            service: Some(7 * MS),
            first_event: None,
            bytes: 1_407,
            events: 2,
        }
    }

    #[test]
    fn every_request_is_in_one_count_and_the_warm_up_s_only_in_the_first() {
        let start = Instant::now();
        let mut tally = Tally::new(start + 1_000 * MS);
        let outcomes = [
            Outcome::Ok,
            Outcome::Status(429),
            Outcome::Status(500),
            Outcome::NoAnswer,
            Outcome::Broken,
            Outcome::TimedOut,
            Outcome::ConnectFailed,
        ];
        for outcome in outcomes {
            for due in [start, start + 1_500 * MS] {
                tally.count(due, due, 133, &seen(outcome, due + 10 * MS));
            }
        }
        let report = tally.report(String::new(), String::new(), 1_000 * MS, MS);
        for (counts, each) in [(&report.all, 2), (&report.measured, 1)] {
            assert_eq!(counts.sent, 7 * each);
            assert_eq!(counts.ok, each);
            assert_eq!(counts.status, BTreeMap::from([(429, each), (500, each)]));
            let others = [
                counts.no_answer,
                counts.broken,
                counts.timed_out,
                counts.connect_failed,
            ];
            assert_eq!(others, [each; 4]);
        }
        assert_eq!(
            report.measured.failures(),
            "status 429: 1, status 500: 1, no answer in it: 1, broken: 1, timed out: 1, connect failed: 1"
        );
        assert_eq!((report.rate, report.answer_bytes), (1.0, 1_407.0));
        assert_eq!((report.timeline[0].ok, report.timeline[0].failed), (1, 6));
    }

    #[test]
    fn latency_is_counted_from_the_time_due_and_the_hop_without_the_service_time() {
        let from = Instant::now();
        let mut tally = Tally::new(from);
        // Due at 100 ms, sent at 300, answered at 310.
        tally.count(
            from + 100 * MS,
            from + 300 * MS,
            133,
            &seen(Outcome::Ok, from + 310 * MS),
        );
        let report = tally.report(String::new(), String::new(), 1_000 * MS, MS);
        let ms = [&report.latency, &report.late, &report.hop].map(|it| (it.p50 / 1e6).to_string());
        assert_eq!(ms, ["210", "200", "203"]);
    }

    #[test]
    fn a_second_without_an_answer_has_no_latency() {
        let from = Instant::now();
        let mut tally = Tally::new(from);
        let due = from + 1_500 * MS;
        tally.count(due, due, 133, &seen(Outcome::Broken, due + 10 * MS));
        let report = tally.report(String::new(), String::new(), 2_000 * MS, MS);
        let nobody = SecondRow::default();
        let failed = SecondRow {
            failed: 1,
            ..nobody
        };
        assert_eq!(report.timeline, [nobody, failed]);
        assert_eq!((nobody.p99, nobody.hop_p99), (None, None));
    }

    #[test]
    fn a_quantile_is_the_smallest_value_that_its_share_does_not_exceed() {
        let check = |count: u32, p50, p99| {
            let mut values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            let spread = Spread::of(&mut values);
            assert_eq!((spread.p50, spread.p99), (p50, p99), "{count}");
            assert!((spread.mean - f64::midpoint(1.0, count.into())).abs() < 1e-9);
        };
        check(1, 1.0, 1.0);
        check(2, 1.0, 2.0);
        check(100, 50.0, 99.0);
        check(1_000, 500.0, 990.0);
        assert!(Spread::of(&mut []).is_empty());
    }

    #[test]
    fn the_distribution_has_every_value_within_the_telemetry_s_error() {
        let found = distribution(&[90_000.0, 91_000.0, 5e6]);
        assert_eq!(found.iter().map(|(_, count)| count).sum::<u64>(), 3);
        let (last, _) = found[found.len() - 1];
        assert!((5_000_000..5_170_000).contains(&last), "{last}");
    }
}
