//! How one stage's times are distributed: a bar for each range of them, and where the quantiles lie.

use bifrost_shared::histogram::{Histogram, bounds};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::{below, row, stages, style};
use crate::format;
use crate::model::{Gateway, Model};

/// Columns before and after a bar.
const RANGE: usize = 24;
const SHARE: usize = 6;
const MARKS: usize = 16;
const QUANTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.95, "p95"), (0.99, "p99")];

/// Times from `low` to `high`, the latter left out.
#[derive(Debug, PartialEq, Eq)]
struct Bin {
    low: u64,
    high: u64,
    count: u64,
}

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model, gateway: &Gateway) {
    let Some(series) = stages::selected(model, gateway) else {
        return;
    };
    let histogram = gateway.histogram(&series, model.window);
    let histogram = histogram.unwrap_or_default();
    let title = format!(
        "{}, last {} s: {} values as measured",
        series.label,
        model.window.seconds(),
        format::count(histogram.count),
    );
    Line::styled(title, style::HEAD).render(row(area, 0), buffer);
    let rest = below(area, 1);
    let bins = bins(&histogram, rest.height.into());
    if bins.is_empty() {
        Line::from(" none in this window").render(row(rest, 0), buffer);
        return;
    }
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(0);
    let room = usize::from(rest.width).saturating_sub(RANGE + SHARE + MARKS);
    for (place, bin) in bins.iter().enumerate() {
        let length = u128::from(bin.count) * room as u128;
        let length = length.div_ceil(u128::from(most.max(1)));
        let length = usize::try_from(length).unwrap_or(0);
        let range = format!("{} to {}", format::brief(bin.low), format::brief(bin.high));
        let share = format::share(bin.count, histogram.count);
        let line = Line::from(vec![
            Span::from(format!("{range:>width$} ", width = RANGE - 1)),
            Span::styled("█".repeat(length), Color::Cyan),
            Span::from(format!(" {share:>4} {}", marks(bin, &histogram).join(" "))),
        ]);
        line.render(row(rest, place), buffer);
    }
}

/// The quantiles that lie in `bin`.
fn marks(bin: &Bin, histogram: &Histogram) -> Vec<&'static str> {
    let lies = |share: f64| {
        let value = histogram.quantile(share);
        value.is_some_and(|value| (bin.low..bin.high).contains(&value))
    };
    let marks = QUANTILES.into_iter().filter(|(share, _)| lies(*share));
    marks.map(|(_, name)| name).collect()
}

/// At most `places` ranges of equal numbers of buckets, from the first that counted something to the last: the scale is
/// that of the buckets, exact at first and logarithmic from 32 ns on.
fn bins(histogram: &Histogram, places: usize) -> Vec<Bin> {
    let has_some = |count: &u64| *count > 0;
    let buckets = &histogram.buckets;
    let (Some(first), Some(last)) = (
        buckets.iter().position(has_some),
        buckets.iter().rposition(has_some),
    ) else {
        return vec![];
    };
    let each = (last - first + 1).div_ceil(places.max(1));
    buckets[first..=last]
        .chunks(each)
        .zip((first..).step_by(each))
        .take(places)
        .map(|(counts, from)| Bin {
            low: bounds(from).0,
            high: bounds(from + counts.len() - 1).1,
            count: counts
                .iter()
                .fold(0, |sum, count| sum.saturating_add(*count)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_every_value_and_never_outnumber_their_places() {
        let mut histogram = Histogram::default();
        for value in [3, 3, 4, 8, 40, 1_000, 99_999] {
            histogram.record(value);
        }
        for places in 1..40 {
            let bins = bins(&histogram, places);
            assert!(bins.len() <= places);
            assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 7, "{places}");
            assert!(bins.windows(2).all(|pair| pair[0].high == pair[1].low));
        }
        let mut few = Histogram::default();
        for value in [3, 3, 4, 6] {
            few.record(value);
        }
        let small = super::bins(&few, 2);
        let bin = |low, high, count| Bin { low, high, count };
        assert_eq!(small, [bin(3, 5, 3), bin(5, 7, 1)]);
        assert_eq!(bins(&histogram, 0), []);
        assert_eq!(bins(&Histogram::default(), 9), []);
    }
}
