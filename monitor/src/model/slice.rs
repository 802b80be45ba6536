//! What was counted between two looks at a segment, packed: five minutes of it are kept, and most buckets stay empty.
//!
//! ```text
//! a slice:  series, series, …
//! a series: count                                       where nothing was counted
//!           count sum max buckets (gap count)…          else: gap is what the bucket is further than the last one
//! ```
//!
//! All of them are packed numbers: most gaps and counts take one byte.

use bifrost_shared::histogram::Histogram;

use crate::packed::{Numbers, push};

/// The difference of two looks.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    /// When it ended, on the clock of the exporter's heartbeat.
    pub(super) ended_at: u64,
    packed: Box<[u8]>,
}

impl Slice {
    /// What was counted from `earlier` to `later`, two looks at the same series.
    pub(super) fn between(ended_at: u64, earlier: &[Histogram], later: &[Histogram]) -> Self {
        let mut packed = vec![];
        for (earlier, later) in earlier.iter().zip(later) {
            pack(&later.since(earlier), &mut packed);
        }
        Self {
            ended_at,
            packed: packed.into(),
        }
    }

    /// Adds each series to its own of `wholes`.
    pub(super) fn add_to(&self, wholes: &mut [Histogram]) {
        let mut packed = Numbers(&self.packed);
        for whole in wholes {
            if unpack(&mut packed, whole).is_none() {
                break;
            }
        }
    }

    /// Bytes that it takes up on the heap.
    #[cfg(test)]
    fn size(&self) -> usize {
        self.packed.len()
    }
}

fn pack(series: &Histogram, packed: &mut Vec<u8>) {
    push(packed, series.count);
    if series.count == 0 {
        return;
    }
    push(packed, series.sum);
    push(packed, series.max);
    let filled = series.buckets.iter().zip(0_u64..);
    let filled = filled.filter(|(count, _)| **count > 0);
    push(packed, filled.clone().count() as u64);
    let mut next = 0;
    for (count, bucket) in filled {
        push(packed, bucket - next);
        push(packed, *count);
        next = bucket + 1;
    }
}

/// Adds the next series to `whole`; none where there is none.
fn unpack(packed: &mut Numbers, whole: &mut Histogram) -> Option<()> {
    let count = packed.next()?;
    if count == 0 {
        return Some(());
    }
    whole.count = whole.count.saturating_add(count);
    whole.sum = whole.sum.saturating_add(packed.next()?);
    whole.max = whole.max.max(packed.next()?);
    let mut bucket = 0;
    for _ in 0..packed.next()? {
        bucket += usize::try_from(packed.next()?).ok()?;
        let sum = whole.buckets.get_mut(bucket)?;
        *sum = sum.saturating_add(packed.next()?);
        bucket += 1;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn series(values: &[u64]) -> Histogram {
        let mut series = Histogram::default();
        for value in values {
            series.record(*value);
        }
        series
    }

    #[test]
    fn a_busy_second_takes_less_than_three_kilobytes() {
        let later: Vec<_> = (0..24)
            .map(|at| {
                let values: Vec<_> = (0..5_000)
                    .map(|it| 1_000 * (at + 1) + it * it % 9_000)
                    .collect();
                series(&values)
            })
            .collect();
        let slice = Slice::between(1, &vec![Histogram::default(); 24], &later);
        assert!(slice.size() < 3 * 1_024, "{}", slice.size());
    }

    proptest! {
        #[test]
        fn slices_add_up_to_what_was_counted(
            looks in prop::collection::vec(prop::collection::vec(0_u64..1 << 42, 0..40), 1..6),
        ) {
            let (mut whole, mut last) = (series(&[]), series(&[]));
            let mut values = vec![];
            for look in looks {
                values.extend(look);
                let now = series(&values);
                let slice = Slice::between(1, &[series(&[]), last], &[series(&[]), now.clone()]);
                let mut wholes = [series(&[]), whole];
                slice.add_to(&mut wholes);
                let [nothing, sum] = wholes;
                prop_assert_eq!(nothing, series(&[]));
                (whole, last) = (sum, now);
            }
            prop_assert_eq!(whole, last);
        }
    }
}
