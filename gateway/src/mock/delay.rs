//! How long a mock takes: drawn anew for each request. Pure over a given source of chance.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A distribution of delays as some of its percentiles, such as `50=1s,90=1.8s,99=4s`. Between two of them it is even;
/// what lies below the first, or above the last, takes as long as that one.
#[derive(Debug, Clone, PartialEq)]
pub struct Percentiles(Vec<(f64, Duration)>);

impl Percentiles {
    /// The delay that a share of `chance` (0 to 1) of all requests does not exceed.
    pub(super) fn at(&self, chance: f64) -> Duration {
        let percent = chance * 100.0;
        let above = self.0.iter().position(|(point, _)| *point >= percent);
        let Some(above) = above else {
            return self.0[self.0.len() - 1].1;
        };
        let (high, slow) = self.0[above];
        let Some((low, fast)) = above.checked_sub(1).map(|below| self.0[below]) else {
            return slow;
        };
        fast + slow
            .saturating_sub(fast)
            .mul_f64((percent - low) / (high - low))
    }
}

impl FromStr for Percentiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let points = text.split(',').map(|point| {
            let (percent, delay) = point.split_once('=').ok_or("expected `50=1s,90=2s,…`")?;
            let percent: f64 = percent
                .trim()
                .parse()
                .map_err(|_| "a percentile is a number")?;
            let delay = humantime::parse_duration(delay.trim()).map_err(|it| it.to_string())?;
            if (0.0..=100.0).contains(&percent) {
                Ok((percent, delay))
            } else {
                Err("a percentile is from 0 to 100".to_owned())
            }
        });
        let points = points.collect::<Result<Vec<_>, _>>()?;
        if points.is_sorted_by(|(low, fast), (high, slow)| low < high && fast <= slow) {
            Ok(Self(points))
        } else {
            Err("percentiles and their delays have to rise".to_owned())
        }
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (percent, delay)) in self.0.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{percent}={}", humantime::format_duration(*delay))?;
        }
        Ok(())
    }
}

/// Anything from `1 - spread` to `1 + spread` times the mean, evenly.
pub(super) fn even(mean: Duration, spread: f64, chance: f64) -> Duration {
    mean.mul_f64(1.0 + spread * (2.0 * chance - 1.0))
}

/// Log-normal: half of all take longer than the median, and few very much longer, as real providers' do. Takes two
/// numbers from 0 to 1, 1 excluded (Box and Muller's way to a normal number).
pub(super) fn log_normal(median: Duration, sigma: f64, chance: [f64; 2]) -> Duration {
    let radius = (-2.0 * (1.0 - chance[0]).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * chance[1]).cos();
    median.mul_f64((sigma * normal).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn percentiles_are_met_and_even_in_between() {
        let percentiles: Percentiles = "50=1s,90=2s,99=4s".parse().unwrap();
        let check = |chance, ms| {
            let off = percentiles.at(chance).abs_diff(ms * MS);
            assert!(
                off < Duration::from_micros(1),
                "{chance}: {:?}",
                percentiles.at(chance)
            );
        };
        check(0.0, 1_000);
        check(0.5, 1_000);
        check(0.7, 1_500);
        check(0.9, 2_000);
        check(0.99, 4_000);
        check(1.0, 4_000);
    }

    #[test]
    fn percentiles_are_read_as_they_are_written_or_refused() {
        for text in ["50=1s", "0=10ms,50=1s 500ms,99.9=30s"] {
            assert_eq!(text.parse::<Percentiles>().unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "50",
            "x=1s",
            "50=soon",
            "101=1s",
            "90=2s,50=1s",
            "50=2s,90=1s",
            "50=1s,50=1s",
        ] {
            assert!(wrong.parse::<Percentiles>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn log_normal_delays_have_their_median_and_their_spread() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut delays: Vec<_> = (0..10_000)
            .map(|_| log_normal(1_000 * MS, 0.5, [random.f64(), random.f64()]))
            .collect();
        delays.sort_unstable();
        // e^(0.5 × 1.2816) = 1.898; five standard errors are some 3 and 5 %.
        let near = |share: usize, ms: f64| {
            let found = delays[share * 100].as_secs_f64() * 1e3;
            assert!((found / ms - 1.0).abs() < 0.05, "p{share}: {found} ms");
        };
        near(50, 1_000.0);
        near(90, 1_898.0);
        near(10, 527.0);
    }
}
