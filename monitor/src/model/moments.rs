//! What charts tell of each second: a few figures of it, since a quarter of an hour of whole rows would be 1.5 MB.

use std::collections::VecDeque;

use bifrost_shared::layout::{Gauge, SECONDS_CAPACITY};
use bifrost_shared::snapshot::Row;
use bifrost_shared::stage::{Series, Stage};

use crate::verdict;

/// The figures of one closed second; times are nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Of all that asked for a place.
    pub(crate) queue_wait: Times,
    /// Of the seven stages that the page sums.
    pub(crate) overhead: Times,
    /// Completed requests a second.
    pub(crate) load: u64,
    /// Requests being served at its end, and those that waited for a place.
    pub(crate) in_flight: u64,
    pub(crate) waiting: u64,
    /// Resident memory at its end, and the part of it that belongs to no file, bytes.
    pub(crate) rss: u64,
    pub(crate) rss_anon: u64,
    /// Processor time of the gateway, of all, and what others took away, permille.
    pub(crate) cpu: u64,
    pub(crate) host_cpu: u64,
    pub(crate) steal: u64,
    /// The longest that a runtime made a task wait.
    pub(crate) delay: u64,
}

/// A second's times of one kind; none in a second without any.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Their mean.
    pub(crate) mean: Option<u64>,
    /// What 95 of 100 do not exceed.
    pub(crate) p95: Option<u64>,
}

impl Times {
    fn of(row: &Row, series: Series) -> Self {
        let summary = row.summary(series);
        Self {
            mean: summary.mean(),
            p95: (summary.count > 0).then_some(summary.p95),
        }
    }
}

impl Moment {
    fn of(row: &Row) -> Self {
        Self {
            queue_wait: Times::of(row, Series::Stage(Stage::QueueWait)),
            overhead: Times::of(row, Series::Overhead),
            load: verdict::load(row),
            in_flight: row.gauge(Gauge::InFlight),
            waiting: row.gauge(Gauge::Waiting),
            rss: row.gauge(Gauge::Rss),
            rss_anon: row.gauge(Gauge::RssAnon),
            cpu: row.gauge(Gauge::Cpu),
            host_cpu: row.gauge(Gauge::HostCpu),
            steal: row.gauge(Gauge::Steal),
            delay: row.gauge(Gauge::SchedulerDelay),
        }
    }
}

/// As many closed seconds as a segment keeps, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moments(VecDeque<Moment>);

impl Moments {
    /// Takes the next second.
    pub(crate) fn absorb(&mut self, row: &Row) {
        if self.0.len() == SECONDS_CAPACITY {
            self.0.pop_front();
        }
        self.0.push_back(Moment::of(row));
    }

    /// The last `count` of them, oldest first.
    pub(crate) fn last(&self, count: usize) -> impl Iterator<Item = &Moment> {
        self.0.range(self.0.len().saturating_sub(count)..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture;

    #[test]
    fn as_many_seconds_as_a_segment_keeps_and_the_newest_of_them() {
        let mut moments = Moments::default();
        for load in 0..SECONDS_CAPACITY as u64 + 5 {
            moments.absorb(&fixture::row(load, 1));
        }
        let loads = |count| moments.last(count).map(|it| it.load).collect::<Vec<_>>();
        assert_eq!(loads(usize::MAX).len(), SECONDS_CAPACITY);
        assert_eq!(loads(usize::MAX)[0], 5);
        assert_eq!(loads(2), [903, 904]);
    }

    #[test]
    fn a_second_without_requests_has_no_times() {
        let mut moments = Moments::default();
        moments.absorb(&Row::default());
        let times = moments.last(1).next().unwrap().queue_wait;
        assert_eq!((times.mean, times.p95), (None, None));
    }
}
