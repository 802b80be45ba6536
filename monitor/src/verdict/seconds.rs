//! The seconds that triggers are judged by: five minutes of them, and sums over their last ones.

use std::collections::VecDeque;

use bifrost_shared::layout::{Counter, Gauge};
use bifrost_shared::snapshot::Row;
use bifrost_shared::stage::{Series, Stage};

/// Rows of the minute that triggers are judged by.
pub(super) const MINUTE: usize = 60;
/// Rows of the longer mean, and of the slope.
const FIVE_MINUTES: usize = 300;
/// Requests that make a row busy.
pub(super) const BUSY_REQUESTS: u64 = 100;
/// Rows between two points of the slope: 30 points in five minutes.
const SLOPE_STEP: usize = 10;

/// Completed requests a second in `row`, which may be longer than one.
pub(crate) fn load(row: &Row) -> u64 {
    let completed = u128::from(row.counter(Counter::Completed)) * 1_000_000_000;
    let load = completed.checked_div(row.duration.into()).unwrap_or(0);
    u64::try_from(load).unwrap_or(u64::MAX)
}

/// What a second must be remembered for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Second {
    /// Nanoseconds since the Unix epoch.
    pub(super) ended_at: u64,
    /// How many requests asked for a place: those that the sums are of.
    pub(super) requests: u64,
    /// Sums over its requests, nanoseconds.
    pub(super) queue_wait: u64,
    pub(super) overhead: u64,
    /// Completed requests a second.
    pub(super) load: u64,
    /// Resident memory at its end, bytes.
    pub(super) rss: u64,
    /// The longest that a runtime made a task wait, nanoseconds.
    pub(super) delay: u64,
    /// Processor time that others took, permille.
    pub(super) steal: u64,
    /// Records that are not in the sums.
    pub(super) lost: u64,
    /// Requests that waited for a place at its end.
    pub(super) waiting: u64,
}

impl Second {
    pub(super) fn of(row: &Row) -> Self {
        let sum = |series: Series| row.summary(series).sum;
        Self {
            ended_at: row.ended_at,
            requests: row.summary(Series::Stage(Stage::QueueWait)).count,
            queue_wait: sum(Series::Stage(Stage::QueueWait)),
            overhead: sum(Series::Overhead),
            load: load(row),
            rss: row.gauge(Gauge::Rss),
            delay: row.gauge(Gauge::SchedulerDelay),
            steal: row.gauge(Gauge::Steal),
            lost: row.counter(Counter::Lost),
            waiting: row.gauge(Gauge::Waiting),
        }
    }

    pub(super) const fn is_busy(&self) -> bool {
        self.requests >= BUSY_REQUESTS
    }

    /// Mean of a sum over the second's requests.
    pub(super) fn mean(&self, sum: u64) -> Option<u64> {
        sum.checked_div(self.requests)
    }
}

/// The last five minutes, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Seconds(VecDeque<Second>);

impl Seconds {
    /// Takes the next second.
    pub(super) fn push(&mut self, second: Second) {
        self.0.push_back(second);
        if self.0.len() > FIVE_MINUTES {
            self.0.pop_front();
        }
    }

    /// The last one.
    pub(super) fn last(&self) -> Option<&Second> {
        self.0.back()
    }

    /// The last minute, newest first.
    pub(super) fn minute(&self) -> impl Iterator<Item = &Second> {
        self.0.iter().rev().take(MINUTE)
    }

    /// The busy ones of the last minute.
    pub(super) fn busy_minute(&self) -> impl Iterator<Item = &Second> {
        self.busy(MINUTE)
    }

    fn busy(&self, rows: usize) -> impl Iterator<Item = &Second> {
        let last = self.0.iter().rev().take(rows);
        last.filter(|second| second.is_busy())
    }

    /// The mean over all requests of the busy ones of the last minute.
    pub(super) fn minute_mean(&self, sum: fn(&Second) -> u64) -> Option<u64> {
        self.pooled(MINUTE, sum)
    }

    /// The same of the last five minutes, or of all there is.
    pub(super) fn long_mean(&self, sum: fn(&Second) -> u64) -> Option<u64> {
        self.pooled(FIVE_MINUTES, sum)
    }

    fn pooled(&self, rows: usize, sum: fn(&Second) -> u64) -> Option<u64> {
        let (total, requests) = self
            .busy(rows)
            .fold((0_u128, 0_u128), |(total, requests), it| {
                (
                    total + u128::from(sum(it)),
                    requests + u128::from(it.requests),
                )
            });
        let mean = total.checked_div(requests)?;
        Some(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// Seconds until memory, growing as in the last five minutes, is at `limit`. The growth is the median of the slopes
    /// between all pairs of points, which a single jump does not move. None while it doesn't grow, or for less history:
    /// a gateway that warms up grows too.
    pub(super) fn seconds_to(&self, limit: u64) -> Option<u64> {
        if self.0.len() < FIVE_MINUTES {
            return None;
        }
        let points: Vec<_> = self.0.iter().step_by(SLOPE_STEP).collect();
        let mut slopes = vec![];
        for (place, earlier) in points.iter().enumerate() {
            for later in &points[place + 1..] {
                let grown = i128::from(later.rss) - i128::from(earlier.rss);
                let milliseconds =
                    i128::from(later.ended_at.saturating_sub(earlier.ended_at)) / 1_000_000;
                slopes.extend((grown * 1_000).checked_div(milliseconds));
            }
        }
        slopes.sort_unstable();
        let slope = *slopes.get(slopes.len() / 2)?;
        let missing = i128::from(limit) - i128::from(self.last()?.rss);
        if slope <= 0 || missing <= 0 {
            return None;
        }
        u64::try_from(missing / slope).ok()
    }
}

/// Their mean; none of none.
pub(super) fn mean(values: impl Iterator<Item = u64>) -> Option<u64> {
    let (sum, count) = values.fold((0_u128, 0_u128), |(sum, count), value| {
        (sum + u128::from(value), count + 1)
    });
    u64::try_from(sum.checked_div(count)?).ok()
}
