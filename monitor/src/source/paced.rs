//! Looks that were made before, or were invented: each comes when it came, or as much sooner as one likes.

use std::time::{Duration, Instant};

use super::Source;
use crate::format::SECOND;
use crate::model::observation::{Observation, Reading, Sight};
use crate::model::samples::SampleFigures;

/// Looks, one after the other, at least one.
pub(crate) struct Paced<I> {
    looks: I,
    /// How many times faster than it happened; without one, all at once.
    speed: Option<f64>,
    /// When the first look was shown.
    begun: Option<Instant>,
    /// When it was made, nanoseconds since the Unix epoch: two gateways of a recording may be of two hosts, each with a
    /// monotonic clock of its own.
    first_at: u64,
    now: Observation,
    next: Option<Observation>,
}

impl<I: Iterator<Item = Observation>> Paced<I> {
    /// None where there is no look at all.
    pub(crate) fn new(mut looks: I, speed: Option<f64>) -> Option<Self> {
        let next = looks.next()?;
        Some(Self {
            looks,
            speed,
            begun: None,
            first_at: next.unix_ns,
            now: again(&next, false),
            next: Some(next),
        })
    }

    /// What there is to see when it has been shown for so long.
    fn look(&mut self, shown: Duration) -> Observation {
        let is_due = self.is_due(shown);
        match self.next.take_if(|_| is_due) {
            Some(next) => {
                self.now = next;
                self.next = self.looks.next();
                again(&self.now, true)
            }
            None => again(&self.now, false),
        }
    }

    fn is_due(&self, shown: Duration) -> bool {
        let (Some(next), Some(speed)) = (&self.next, self.speed) else {
            return self.next.is_some();
        };
        let after = next.unix_ns.saturating_sub(self.first_at) as f64 / SECOND as f64;
        after <= shown.as_secs_f64() * speed
    }
}

impl<I: Iterator<Item = Observation>> Source for Paced<I> {
    fn poll(&mut self) -> Observation {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        self.look(begun.elapsed())
    }

    /// No record is kept.
    fn samples(&mut self) -> Option<SampleFigures> {
        None
    }

    fn is_behind(&self) -> bool {
        let shown = self.begun.map(|begun| begun.elapsed());
        self.is_due(shown.unwrap_or_default())
    }

    fn is_over(&self) -> bool {
        self.next.is_none()
    }
}

/// The same look; what was new in it comes but once.
fn again(observation: &Observation, is_new: bool) -> Observation {
    let sight = match &observation.sight {
        Sight::Nothing(trouble) => Sight::Nothing(trouble.clone()),
        Sight::Gateway(reading) if is_new => Sight::Gateway(reading.clone()),
        Sight::Gateway(reading) => Sight::Gateway(Box::new(Reading {
            rows: vec![],
            records: vec![],
            ..(**reading).clone()
        })),
    };
    Observation {
        at: observation.at,
        unix_ns: observation.unix_ns,
        sight,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture;

    /// Looks at these seconds, with a row each.
    fn paced(at: &[u64], speed: Option<f64>) -> Paced<impl Iterator<Item = Observation> + use<>> {
        let looks: Vec<_> = at
            .iter()
            .map(|at| Observation {
                at: fixture::AT + at * SECOND,
                unix_ns: fixture::UNIX_NS + at * SECOND,
                ..fixture::observation(fixture::reading(&[fixture::row(1, *at)]))
            })
            .collect();
        Paced::new(looks.into_iter(), speed).unwrap()
    }

    /// The second of the look that is shown, and its rows.
    fn seen(paced: &mut Paced<impl Iterator<Item = Observation>>, shown: f64) -> (u64, usize) {
        let observation = paced.look(Duration::from_secs_f64(shown));
        let Sight::Gateway(reading) = observation.sight else {
            panic!("{:?}", observation.sight);
        };
        ((observation.at - fixture::AT) / SECOND, reading.rows.len())
    }

    #[test]
    fn each_look_comes_in_its_time_and_brings_its_rows_once() {
        let mut paced = paced(&[0, 1, 3], Some(2.0));
        for (shown, expected) in [
            (0.0, (0, 1)),
            (0.49, (0, 0)),
            (0.5, (1, 1)),
            (1.49, (1, 0)),
            (9.0, (3, 1)),
            (9.1, (3, 0)),
        ] {
            assert_eq!(seen(&mut paced, shown), expected, "{shown}");
        }
        assert!(paced.is_over() && !paced.is_behind());
    }

    #[test]
    fn who_is_behind_gets_every_look() {
        let mut paced = paced(&[0, 1, 2], None);
        let mut looks = 0;
        while paced.is_behind() {
            assert_eq!(seen(&mut paced, 0.0), (looks, 1));
            looks += 1;
        }
        assert_eq!(looks, 3);
    }

    #[test]
    fn a_clock_that_goes_back_or_far_ahead_stops_nothing() {
        let mut paced = paced(&[5, 0, 5, 1_000_000_000], Some(1.0));
        for expected in [(5, 1), (0, 1), (5, 1), (5, 0)] {
            assert_eq!(seen(&mut paced, 1.0), expected);
        }
        assert!(!paced.is_over(), "there is one, some day");
    }
}
