//! Log-linear histograms: exact below 32 ns, then 32 buckets an octave up to 2^40 ns (18 minutes), so that a value is
//! known within 3.2 % of itself at any size.

use serde::{Deserialize, Serialize};

/// Sub-buckets in each octave. 1/32 is the largest relative error, 3.125 %.
const SUB_BUCKETS: usize = 32;
const SUB_BUCKET_BITS: u32 = SUB_BUCKETS.trailing_zeros();
/// The first octave that no bucket holds: values from 2^40 ns on count in the last bucket.
const TOP_BITS: u32 = 40;

/// Buckets in a histogram: 32 exact ones, then 35 octaves of 32.
pub const BUCKETS: usize = SUB_BUCKETS + (TOP_BITS - SUB_BUCKET_BITS) as usize * SUB_BUCKETS;

/// The bucket that counts `value`.
#[must_use]
pub const fn bucket_of(value: u64) -> usize {
    if value < SUB_BUCKETS as u64 {
        return narrow(value);
    }
    let octave = value.ilog2();
    if octave >= TOP_BITS {
        return BUCKETS - 1;
    }
    let shift = octave - SUB_BUCKET_BITS;
    let within = narrow((value >> shift) - SUB_BUCKETS as u64);
    SUB_BUCKETS + shift as usize * SUB_BUCKETS + within
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "callers pass bucket positions, far below 2^32"
)]
const fn narrow(value: u64) -> usize {
    value as usize
}

/// The lowest value that `bucket` counts, and the first that it doesn't.
#[must_use]
pub const fn bounds(bucket: usize) -> (u64, u64) {
    if bucket < SUB_BUCKETS {
        return (bucket as u64, bucket as u64 + 1);
    }
    let shift = (bucket - SUB_BUCKETS) / SUB_BUCKETS;
    let within = (bucket % SUB_BUCKETS + SUB_BUCKETS) as u64;
    (within << shift, (within + 1) << shift)
}

/// Where in `counts` the value lies that a share of `quantile` (0 to 1) of all does not exceed. None when nothing was
/// counted.
pub(crate) fn place_of(counts: &[u64], quantile: f64) -> Option<usize> {
    // A reader's counts come from a file, so any numbers may stand there.
    let total = counts
        .iter()
        .fold(0_u64, |sum, count| sum.saturating_add(*count));
    if total == 0 {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank within the count; counts stay far below 2^52"
    )]
    let rank = ((total as f64 * quantile.clamp(0.0, 1.0)).ceil() as u64).clamp(1, total);
    let mut seen: u64 = 0;
    counts.iter().position(|count| {
        seen = seen.saturating_add(*count);
        seen >= rank
    })
}

/// Counts by bucket, with the exact number, sum and maximum beside them. All in nanoseconds.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// How many values each bucket counted; [`BUCKETS`] of them.
    #[serde(with = "crate::forms::buckets")]
    pub buckets: Box<[u64]>,
    /// How many values there were.
    pub count: u64,
    /// Their sum, for an exact mean.
    pub sum: u64,
    /// The largest. In a difference of two snapshots, the upper end of the highest bucket that changed.
    pub max: u64,
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("sum", &self.sum)
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS].into_boxed_slice(),
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts `value`.
    pub fn record(&mut self, value: u64) {
        self.buckets[bucket_of(value)] += 1;
        self.count += 1;
        // Weeks of nanoseconds of thousands of requests pass 64 bits; differences are right all the same.
        self.sum = self.sum.wrapping_add(value);
        self.max = self.max.max(value);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        self.count = 0;
        self.sum = 0;
        self.max = 0;
    }

    /// The mean, or none when nothing was counted.
    #[must_use]
    pub fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }

    /// The value that a share of `quantile` (0 to 1) of all values does not exceed: the middle of its bucket, never
    /// above the maximum. None when nothing was counted.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let (low, high) = bounds(place_of(&self.buckets, quantile)?);
        Some((low + (high - 1 - low) / 2).min(self.max))
    }

    /// What was counted after `earlier`, a snapshot of the same histogram. Counts that would be negative, as after a
    /// restart of the writer, are zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let buckets: Box<[u64]> = self
            .buckets
            .iter()
            .zip(&earlier.buckets)
            .map(|(now, then)| now.saturating_sub(*then))
            .collect();
        let max = match buckets.iter().rposition(|count| *count > 0) {
            Some(_) if self.max > earlier.max => self.max,
            Some(bucket) => (bounds(bucket).1 - 1).min(self.max),
            None => 0,
        };
        Self {
            buckets,
            count: self.count.saturating_sub(earlier.count),
            sum: self.sum.wrapping_sub(earlier.sum),
            max,
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ranks of small samples, and times of some seconds"
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_buckets_meet_without_gap_or_overlap() {
        for bucket in 1..BUCKETS {
            assert_eq!(bounds(bucket - 1).1, bounds(bucket).0, "bucket {bucket}");
        }
        assert_eq!(bounds(BUCKETS - 1).1, 1 << TOP_BITS);
    }

    proptest! {
        #[test]
        fn a_value_lies_within_the_bounds_of_its_bucket(value in 0_u64..1 << TOP_BITS) {
            let (low, high) = bounds(bucket_of(value));
            prop_assert!(low <= value && value < high);
            prop_assert!((high - low) as f64 <= (value as f64 / 32.0).max(1.0));
        }

        #[test]
        fn quantiles_are_within_three_point_two_percent_of_exact_ones(
            mut values in prop::collection::vec(1_u64..1 << 39, 1..400),
            quantile in 0.0_f64..=1.0,
        ) {
            let mut histogram = Histogram::default();
            for value in &values {
                histogram.record(*value);
            }
            values.sort_unstable();
            let rank = ((values.len() as f64 * quantile).ceil() as usize).max(1);
            let exact = values[rank - 1] as f64;
            let ours = histogram.quantile(quantile).unwrap() as f64;
            prop_assert!((ours - exact).abs() <= exact * 0.032 + 1.0, "{ours} for {exact}");
        }
    }

    #[test]
    fn what_lies_beyond_the_top_counts_in_the_last_bucket() {
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_sum_that_has_wrapped_still_has_right_differences() {
        let mut histogram = Histogram::default();
        histogram.record(u64::MAX - 5);
        let earlier = histogram.clone();
        histogram.record(100);
        assert_eq!(histogram.sum, 94);
        let window = histogram.since(&earlier);
        assert_eq!((window.count, window.sum), (1, 100));
    }

    #[test]
    fn counts_as_no_writer_makes_them_still_have_quantiles() {
        let mut histogram = Histogram::default();
        histogram.buckets.fill(u64::MAX);
        histogram.max = u64::MAX;
        assert_eq!(histogram.quantile(0.0), Some(0));
        assert!(histogram.quantile(1.0).is_some());
    }

    #[test]
    fn a_window_is_the_difference_of_two_snapshots() {
        let mut histogram = Histogram::default();
        histogram.record(1_000);
        let earlier = histogram.clone();
        histogram.record(10);
        histogram.record(20);
        let window = histogram.since(&earlier);
        assert_eq!((window.count, window.sum, window.max), (2, 30, 20));
        assert_eq!(window.quantile(0.5), Some(10));
        assert_eq!(window.mean(), Some(15));
    }

    /// Uniform numbers in 0 to 1, the same in each run: an xorshift, whose upper 53 bits are a fraction.
    fn uniform() -> impl FnMut() -> f64 {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    #[test]
    fn percentiles_of_recorded_times_are_within_three_point_two_percent_of_exact_ones() {
        const VALUES: usize = 100_000;
        let mut next = uniform();
        // Box and Muller's normal numbers.
        let mut normal = {
            let mut next = uniform();
            move || (-2.0 * (1.0 - next()).ln()).sqrt() * (std::f64::consts::TAU * next()).cos()
        };
        let mut pick = uniform();
        let shapes: [(&str, Vec<u64>); 3] = [
            // A queue's waits: some 47 µs, and a long tail.
            ("log-normal", {
                let draw = |_| (47_130.0 * (1.2 * normal()).exp()) as u64;
                (0..VALUES).map(draw).collect()
            }),
            // The mock provider's delays: 1.5 s × U(0.6, 1.4).
            ("uniform", {
                let draw = |_| (1.5e9 * (0.6 + 0.8 * next())) as u64;
                (0..VALUES).map(draw).collect()
            }),
            // A cache that is hit four times in five: 200 ns, or 5 ms. p95 and beyond lie in the upper hump.
            ("bimodal", {
                let draw = |_| {
                    let centre = if pick() < 0.8 { 200.0 } else { 5e6 };
                    (centre * (0.9 + 0.2 * pick())) as u64
                };
                (0..VALUES).map(draw).collect()
            }),
        ];
        for (shape, mut values) in shapes {
            let mut histogram = Histogram::default();
            for value in &values {
                histogram.record(*value);
            }
            values.sort_unstable();
            for share in [0.5, 0.95, 0.99, 0.999] {
                let exact = values[(VALUES as f64 * share).ceil() as usize - 1];
                let ours = histogram.quantile(share).unwrap();
                let off = ours.abs_diff(exact) as f64 / exact as f64;
                assert!(off <= 0.032, "{shape}, {share}: {ours} for {exact}");
            }
            let mean = values.iter().sum::<u64>() / VALUES as u64;
            assert_eq!(histogram.mean(), Some(mean), "{shape}: means are exact");
        }
    }
}
