//! A provider whose permits are nearly all taken: whether the wait that the gateway records is the one that its clients
//! see.
//!
//! The same load is sent through a gateway with so few permits, and through one with permits to spare. A client's view of
//! the wait is what a request took beyond the provider's own time, less the same where nobody waits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::measure::{Bench, Through};
use super::scenario::{Pace, SHAPE_TIME_MAX, Setup};
use super::watch::SeriesRow;

/// The share of the permits that are taken, on average.
const BUSY: f64 = 0.95;

/// What a nearly full provider came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Queued {
    pub(super) setup: Setup,
    pub(super) rounds: Vec<Pair>,
}

/// One round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Pair {
    pub(super) limited: Through,
    /// With permits to spare.
    pub(super) free: Through,
}

/// A wait for a permit, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wait {
    pub(super) mean: f64,
    pub(super) p99: f64,
}

/// The load beside that of `page`. Waits of some ten milliseconds are far above what else is in a latency.
pub(super) fn setup(page: &Setup) -> Setup {
    let (permits, delay) = if page.is_quick() {
        (20, 50)
    } else {
        (100, 100)
    };
    let delay = Duration::from_millis(delay);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "some hundreds a second"
    )]
    let rate = (BUSY * f64::from(permits) / delay.as_secs_f64()).round() as u32;
    Setup {
        name: "at the queue's limit".to_owned(),
        pace: Pace::Rate(rate),
        permits: Some(permits),
        delay,
        warm_up: page.warm_up.min(Duration::from_secs(3)),
        time: page.time.min(SHAPE_TIME_MAX),
        ..page.clone()
    }
}

/// Measures it.
pub(super) fn measure(bench: &Bench<'_>, page: &Setup) -> anyhow::Result<Queued> {
    let setup = setup(page);
    let free = Setup {
        name: "with permits to spare".to_owned(),
        permits: None,
        ..setup.clone()
    };
    let round = |_| {
        Ok(Pair {
            limited: bench.through_gateway(&setup, false)?,
            free: bench.through_gateway(&free, false)?,
        })
    };
    Ok(Queued {
        rounds: (0..setup.rounds)
            .map(round)
            .collect::<anyhow::Result<_>>()?,
        setup,
    })
}

impl Pair {
    /// The wait as the gateway recorded it: the histogram that a monitor shows, in buckets of 3.2 %.
    pub(super) fn recorded(&self) -> Option<Wait> {
        let wait = self.series("queue_wait")?;
        Some(Wait {
            mean: wait.mean as f64,
            p99: wait.p99 as f64,
        })
    }

    /// The wait as clients saw it. Nearly every request through the free gateway takes the same time beyond the
    /// provider's own, whose median is therefore what is in every quantile of the others.
    pub(super) fn seen(&self) -> Option<Wait> {
        let (limited, free) = (&self.limited.load.hop, &self.free.load.hop);
        (!limited.is_empty() && !free.is_empty()).then_some(Wait {
            mean: limited.mean - free.mean,
            p99: limited.p99 - free.p50,
        })
    }

    /// The permits that were taken on average, by Little's law: how many requests a second had one, and for how long.
    pub(super) fn taken(&self) -> Option<f64> {
        let held = self
            .series("total")?
            .mean
            .saturating_sub(self.series("queue_wait")?.mean);
        Some(self.limited.load.rate * held as f64 / 1e9)
    }

    fn series(&self, key: &str) -> Option<&SeriesRow> {
        let inside = self.limited.inside.as_ref()?;
        inside.series.iter().find(|row| row.key == key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::super::scenario::Name;
    use super::*;

    #[test]
    fn the_load_takes_95_of_100_permits() {
        for name in [Name::T3Medium, Name::Quick] {
            let setup = setup(&Setup::page(name));
            let share = setup.in_flight() / f64::from(setup.permits.unwrap());
            assert!((share - 0.95).abs() < 1e-9, "{share}");
        }
    }

    #[test]
    fn what_clients_see_is_the_difference_to_a_gateway_with_permits_to_spare() {
        let queued = fixture::queued();
        let pair = &queued.rounds[0];
        // 10,250 µs with the limit and 250 without, on average; p99 is three times the mean, p50 0.9 of it.
        let seen = pair.seen().unwrap();
        assert!((seen.mean - 10e6).abs() < 1.0, "{seen:?}");
        assert!(
            (seen.p99 - (30_750.0 - 225.0) * 1e3).abs() < 1.0,
            "{seen:?}"
        );
        let recorded = Wait {
            mean: 9.9e6,
            p99: 29.7e6,
        };
        assert_eq!(pair.recorded(), Some(recorded));
        // 950 a second, for 109.9 ms less the 9.9 of the wait.
        let taken = pair.taken().unwrap();
        assert!((taken - 95.0).abs() < 1e-6, "{taken}");
    }
}
