//! When requests are due: the times of an open loop's arrivals, from its start. Pure over a given source of chance.

use std::fmt::Write as _;
use std::time::Duration;

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pattern {
    /// Requests a second at the start.
    pub(super) rate: f64,
    /// Requests a second at the end: another figure is a ramp.
    pub(super) rate_at_end: f64,
    /// For how long they come.
    pub(super) time: Duration,
    /// How long, of that, their rate takes to rise evenly from nothing.
    pub(super) rise: Duration,
    /// Independent of each other, as from many clients (Poisson), or one after the other at even distances.
    pub(super) even: bool,
    /// That many more all at once, each time the second has passed.
    pub(super) burst: Option<(u32, Duration)>,
    /// They are sent only when so much time has passed again.
    pub(super) tick: Option<Duration>,
}

impl Pattern {
    /// As many a second from start to end, evenly.
    #[cfg(test)]
    fn steady(rate: f64, time: Duration) -> Self {
        Self {
            rate,
            rate_at_end: rate,
            time,
            rise: Duration::ZERO,
            even: true,
            burst: None,
            tick: None,
        }
    }

    /// What it is, in words.
    pub(super) fn words(&self) -> String {
        let mut words = self.rate.to_string();
        if (self.rate_at_end - self.rate).abs() > 1e-9 {
            let _ = write!(words, " to {}", self.rate_at_end);
        }
        words += " a second, ";
        if !self.rise.is_zero() {
            let rise = humantime::format_duration(self.rise);
            let _ = write!(words, "risen from nothing within {rise}, ");
        }
        words += if self.even {
            "evenly"
        } else {
            "independently of each other"
        };
        if let Some((size, every)) = self.burst {
            let every = humantime::format_duration(every);
            let _ = write!(words, ", and {size} at once every {every}");
        }
        if let Some(tick) = self.tick {
            let tick = humantime::format_duration(tick);
            let _ = write!(words, ", sent every {tick}");
        }
        words
    }

    /// When what is due at `at` is sent.
    pub(super) fn sent_at(&self, at: Duration) -> Duration {
        let Some(tick) = self.tick.map(|tick| tick.as_nanos()) else {
            return at;
        };
        let ticks = at.as_nanos().div_ceil(tick.max(1));
        Duration::from_nanos(u64::try_from(ticks * tick).unwrap_or(u64::MAX))
    }

    /// The times, in order. `chance` gives numbers from 0 to 1, 1 excluded.
    pub(super) fn arrivals<C: FnMut() -> f64>(self, chance: C) -> Arrivals<C> {
        Arrivals {
            pattern: self,
            chance,
            due_count: 0.0,
            next_single: None,
            burst_number: 1,
            burst_left: self.burst.map_or(0, |(size, _)| size),
        }
    }

    /// When `count` requests will have been due: the inverse of the integral of the rate. None if that is never.
    fn time_of(&self, count: f64) -> Option<f64> {
        let (whole, rise) = (self.time.as_secs_f64(), self.rise.as_secs_f64());
        let risen = self.rate * rise / 2.0;
        let at = if count < risen {
            (2.0 * count * rise / self.rate).sqrt()
        } else {
            rise + self.after_rise(count - risen, whole - rise)
        };
        // No number where a ramp down has ended before.
        (at < whole).then_some(at)
    }

    /// The same from the end of the rise, after which requests come for another `whole` seconds.
    fn after_rise(&self, count: f64, whole: f64) -> f64 {
        let slope = (self.rate_at_end - self.rate) / whole;
        if slope.abs() < 1e-9 {
            return count / self.rate;
        }
        let root = self.rate.mul_add(self.rate, 2.0 * slope * count);
        (root.sqrt() - self.rate) / slope
    }
}

/// See [`Pattern::arrivals`].
pub(super) struct Arrivals<C> {
    pattern: Pattern,
    chance: C,
    /// How many were due until the last one, not whole where chance has its part.
    due_count: f64,
    next_single: Option<f64>,
    burst_number: u32,
    burst_left: u32,
}

impl<C: FnMut() -> f64> Arrivals<C> {
    fn single(&mut self) -> Option<f64> {
        if self.next_single.is_none() {
            let gap = if self.pattern.even {
                1.0
            } else {
                // Exponential distances make a Poisson process.
                -(1.0 - (self.chance)()).ln()
            };
            self.due_count += gap;
            self.next_single = self.pattern.time_of(self.due_count);
        }
        self.next_single
    }

    fn burst(&self) -> Option<f64> {
        let (_, every) = self.pattern.burst?;
        let at = every.as_secs_f64() * f64::from(self.burst_number);
        (at < self.pattern.time.as_secs_f64()).then_some(at)
    }

    fn take_burst(&mut self) {
        self.burst_left -= 1;
        if self.burst_left == 0 {
            self.burst_number += 1;
            self.burst_left = self.pattern.burst.map_or(0, |(size, _)| size);
        }
    }
}

impl<C: FnMut() -> f64> Iterator for Arrivals<C> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let at = match (self.single(), self.burst()) {
            (None, None) => return None,
            (Some(single), burst) if burst.is_none_or(|burst| single <= burst) => {
                self.next_single = None;
                single
            }
            (_, burst) => {
                self.take_burst();
                burst?
            }
        };
        Some(Duration::from_secs_f64(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn times(pattern: Pattern) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(7);
        let arrivals = pattern.arrivals(move || random.f64());
        arrivals.map(|at| at.as_secs_f64()).collect()
    }

    /// How many come in each of the seconds.
    fn by_second(pattern: Pattern) -> Vec<usize> {
        let times = times(pattern);
        let seconds = 0..pattern.time.as_secs();
        let within = |second: u64, at: f64| at >= second as f64 && at < (second + 1) as f64;
        let count = |second| times.iter().filter(|at| within(second, **at)).count();
        seconds.map(count).collect()
    }

    #[test]
    fn even_arrivals_keep_their_distance() {
        let times = times(Pattern::steady(4.0, SECOND));
        for (found, expected) in times.iter().zip([0.25, 0.5, 0.75]) {
            assert!((found - expected).abs() < 1e-9, "{found}");
        }
        assert_eq!(times.len(), 3, "the last would be due at the end");
    }

    #[test]
    fn independent_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() {
        let pattern = Pattern {
            even: false,
            ..Pattern::steady(1_000.0, 100 * SECOND)
        };
        let counts = by_second(pattern);
        let mean = counts.iter().sum::<usize>() as f64 / 100.0;
        let squares = counts.iter().map(|count| (*count as f64 - mean).powi(2));
        let variance = squares.sum::<f64>() / 99.0;
        // Its variance is its mean. Five standard errors: ±16 of the mean, ±71 % of the variance.
        assert!((mean - 1_000.0).abs() < 16.0, "{mean}");
        assert!((300.0..1_710.0).contains(&variance), "{variance}");
    }

    #[test]
    fn a_ramp_rises_or_falls_evenly_from_one_rate_to_the_other() {
        let ramp = |from, to| {
            by_second(Pattern {
                rate_at_end: to,
                ..Pattern::steady(from, 4 * SECOND)
            })
        };
        let near = |found: Vec<usize>, expected: [usize; 4]| {
            let off = found.iter().zip(expected).map(|(a, b)| a.abs_diff(b));
            assert!(off.max() <= Some(1), "{found:?}");
        };
        near(ramp(0.0, 800.0), [100, 300, 500, 700]);
        near(ramp(800.0, 0.0), [700, 500, 300, 100]);
    }

    #[test]
    fn a_rate_that_rises_from_nothing_is_held_afterwards() {
        let risen = Pattern {
            rise: 2 * SECOND,
            ..Pattern::steady(400.0, 4 * SECOND)
        };
        assert_eq!(by_second(risen), [99, 300, 400, 400]);
        // A rise that the time has no room for ends with it.
        let cut = Pattern {
            rise: 4 * SECOND,
            ..Pattern::steady(400.0, 2 * SECOND)
        };
        assert_eq!(by_second(cut), [49, 150]);
    }

    #[test]
    fn a_pattern_is_told_whole() {
        let plain = Pattern::steady(200.0, SECOND);
        assert_eq!(plain.words(), "200 a second, evenly");
        let all = Pattern {
            rate_at_end: 600.0,
            rise: SECOND,
            even: false,
            burst: Some((100, SECOND)),
            tick: Some(SECOND / 1_000),
            ..plain
        };
        let words = "200 to 600 a second, risen from nothing within 1s, independently of each other, and 100 at once every 1s, sent every 1ms";
        assert_eq!(all.words(), words);
    }

    #[test]
    fn with_a_tick_what_is_due_is_sent_at_the_next_one() {
        let check = |tick: Option<u64>, at, expected| {
            let pattern = Pattern {
                tick: tick.map(Duration::from_micros),
                ..Pattern::steady(1.0, SECOND)
            };
            let sent = pattern.sent_at(Duration::from_micros(at));
            assert_eq!(sent, Duration::from_micros(expected));
        };
        check(None, 1_234, 1_234);
        check(Some(1_000), 1_234, 2_000);
        check(Some(1_000), 2_000, 2_000);
        check(Some(1_000), 0, 0);
    }

    #[test]
    fn a_burst_comes_all_at_once_and_again() {
        let times = times(Pattern {
            burst: Some((3, 2 * SECOND)),
            ..Pattern::steady(1.0, 5 * SECOND)
        });
        assert_eq!(
            times,
            [1.0, 2.0, 2.0, 2.0, 2.0, 3.0, 4.0, 4.0, 4.0, 4.0],
            "one a second, and three more after two and four"
        );
    }
}
