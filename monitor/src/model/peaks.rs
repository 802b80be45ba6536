//! The highest figures since the monitor came, or since the user cleared them. The gateway knows nothing of it.

use bifrost_shared::layout::Gauge;
use bifrost_shared::snapshot::Row;
use bifrost_shared::stage::{Series, Stage};

use crate::verdict;

/// What there is a highest of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peak {
    /// Mean queue wait of a second, ns.
    QueueWait,
    /// Mean overhead of a second, ns.
    Overhead,
    /// Completed requests of a second.
    Load,
    /// A gauge at a second's end.
    Gauge(Gauge),
}

impl Peak {
    /// Every peak, in the order of the screen.
    pub(crate) const ALL: [Self; 11] = [
        Self::QueueWait,
        Self::Overhead,
        Self::Load,
        Self::Gauge(Gauge::InFlight),
        Self::Gauge(Gauge::Waiting),
        Self::Gauge(Gauge::Rss),
        Self::Gauge(Gauge::HeldBytes),
        Self::Gauge(Gauge::Descriptors),
        Self::Gauge(Gauge::Cpu),
        Self::Gauge(Gauge::Steal),
        Self::Gauge(Gauge::SchedulerDelay),
    ];

    /// The name that people read.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::QueueWait => "Queue wait, mean",
            Self::Overhead => "Overhead, mean",
            Self::Load => "Load",
            Self::Gauge(gauge) => gauge.label(),
        }
    }

    fn of(self, row: &Row) -> Option<u64> {
        match self {
            Self::QueueWait => row.mean(Series::Stage(Stage::QueueWait)),
            Self::Overhead => row.mean(Series::Overhead),
            Self::Load => Some(verdict::load(row)),
            Self::Gauge(gauge) => Some(row.gauge(gauge)),
        }
    }
}

/// The highest figures, each with when it was, nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peaks([Option<(u64, u64)>; Peak::ALL.len()]);

impl Peaks {
    /// Takes the next second.
    pub(crate) fn absorb(&mut self, row: &Row) {
        for (kept, peak) in self.0.iter_mut().zip(Peak::ALL) {
            let Some(value) = peak.of(row) else { continue };
            if kept.is_none_or(|(highest, _)| value > highest) {
                *kept = Some((value, row.ended_at));
            }
        }
    }

    /// Every peak with its value and time, where there is one yet.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Peak, Option<(u64, u64)>)> {
        Peak::ALL.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture;

    #[test]
    fn the_first_of_equal_seconds_is_the_peak() {
        let mut peaks = Peaks::default();
        for (at, load, queue_wait) in [(1, 10, 5), (2, 30, 5), (3, 30, 4)] {
            let mut row = fixture::row(load, queue_wait);
            row.ended_at = at;
            peaks.absorb(&row);
        }
        let of = |peak| peaks.all().find(|(it, _)| *it == peak).unwrap().1;
        assert_eq!(of(Peak::Load), Some((30, 2)));
        assert_eq!(of(Peak::QueueWait), Some((5, 1)));
    }
}
