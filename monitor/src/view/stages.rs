//! The stage table: where requests spend their time, against what the benchmark page measured on a t3.medium.

use bifrost_shared::stage::{Series, Stage};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget as _;

use super::{put, row, style, table};
use crate::format;
use crate::model::listed::ListedSeries;
use crate::model::{Gateway, Model, Stats};

/// Columns of the table with every column.
pub(super) const WIDTH_MAX: u16 = 100;

const NAME: usize = 22;
/// A longer name is cut, so that a blank follows.
const NAME_MAX: usize = NAME - 1;
const VALUE: usize = 10;
const RATIO: usize = 8;

/// A column's name, and what it says of a row.
type Column = (&'static str, fn(&Entry) -> String);

/// A row's figures.
struct Entry {
    series: ListedSeries,
    stats: Stats,
    /// What readings of the clock take of each value, nanoseconds.
    floor: u64,
}

impl Entry {
    fn measured(&self, value: Option<u64>) -> String {
        format::or_none(value, |ns| format::measured(ns, self.floor))
    }

    /// The mean in proportion to the page's.
    fn ratio(&self) -> String {
        match (self.stats.mean, self.series.reference_ns.0) {
            (Some(mean), Some(medium)) => format::measured_ratio(mean, self.floor, medium),
            _ => format::NONE.to_owned(),
        }
    }
}

/// The rows that matter most, as many as there is room for.
pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model, gateway: &Gateway) {
    let places = usize::from(area.height).saturating_sub(1);
    let entries = shown(entries(model, gateway), places);
    table(area, buffer, model, gateway, &entries);
}

/// Every row, as many as there is room for around the selected one, which stands out.
pub(super) fn render_all(area: Rect, buffer: &mut Buffer, model: &Model, gateway: &Gateway) {
    let places = usize::from(area.height).saturating_sub(1);
    let entries = shown(entries(model, gateway), usize::MAX);
    let selected = model.focus.place().min(entries.len().saturating_sub(1));
    let first = table::first_shown(selected, entries.len(), places);
    table(area, buffer, model, gateway, &entries[first..]);
    if places > 0 {
        buffer.set_style(row(area, selected - first + 1), style::SELECTED);
    }
}

/// The distribution that the user has selected.
pub(super) fn selected(model: &Model, gateway: &Gateway) -> Option<ListedSeries> {
    let mut series = gateway.series();
    series.sort_by_key(ListedSeries::order);
    let place = model.focus.place().min(series.len().checked_sub(1)?);
    Some(series.swap_remove(place))
}

fn table(area: Rect, buffer: &mut Buffer, model: &Model, gateway: &Gateway, entries: &[Entry]) {
    let columns = columns(area.width);
    Line::styled(head(model, gateway, &columns), style::HEAD).render(row(area, 0), buffer);
    let places = usize::from(area.height).saturating_sub(1);
    for (place, entry) in entries.iter().take(places).enumerate() {
        let style = if is_of_page(&entry.series) {
            style::PLAIN
        } else {
            style::DIM
        };
        let line = Line::styled(text(entry, &columns), style);
        put(&line, row(area, place + 1), buffer);
    }
}

/// Lines of the table with every row.
pub(super) fn rows_max(gateway: &Gateway) -> u16 {
    u16::try_from(1 + gateway.series().len()).unwrap_or(u16::MAX)
}

/// Every row there could be.
fn entries(model: &Model, gateway: &Gateway) -> Vec<Entry> {
    let entry = |series: ListedSeries| Entry {
        // A series that the segment has not is a row of dashes, as is one without a value.
        stats: model.in_window(gateway, &series).unwrap_or_default(),
        floor: 0,
        series,
    };
    let mut entries: Vec<_> = gateway.series().into_iter().map(entry).collect();
    // A stage lasts from one stamp to the next and so holds one reading of the clock, and the overhead as many as stages
    // that it sums. The others are told as they were measured: what is long, or none of a request's work, has no use for
    // such a deduction.
    let is_summed = |it: &&Entry| it.series.in_overhead && it.stats.mean > Some(0);
    let summed = entries.iter().filter(is_summed).count() as u64;
    for entry in &mut entries {
        entry.floor = match entry.series.known {
            _ if entry.series.is_stage => gateway.floor(),
            Some(Series::Overhead) => gateway.floor().saturating_mul(summed),
            _ => 0,
        };
    }
    entries
}

/// The columns that there is room for, in order.
fn columns(width: u16) -> Vec<Column> {
    let all: [(u16, Column); 7] = [
        (0, ("mean", |entry| entry.measured(entry.stats.mean))),
        (80, ("p50", |entry| entry.measured(entry.stats.p50))),
        (0, ("p95", |entry| entry.measured(entry.stats.p95))),
        (80, ("p99", |entry| entry.measured(entry.stats.p99))),
        (100, ("max", |entry| entry.measured(entry.stats.max))),
        (0, ("medium", |entry| time(entry.series.reference_ns.0))),
        (100, ("xlarge", |entry| time(entry.series.reference_ns.1))),
    ];
    let fits = all.into_iter().filter(|(needed, _)| width >= *needed);
    fits.map(|(_, column)| column).collect()
}

fn time(ns: Option<u64>) -> String {
    format::or_none(ns, format::duration)
}

/// As many rows as there are places, in the order of a request's life. The page's own come first where not all fit.
fn shown(mut entries: Vec<Entry>, places: usize) -> Vec<Entry> {
    entries.sort_by_key(|entry| entry.series.order());
    entries.sort_by_key(|entry| match entry.series.known {
        Some(Series::Overhead) => 0,
        Some(Series::Stage(Stage::QueueWait)) => 1,
        Some(Series::Unattributed) => 2,
        _ if is_of_page(&entry.series) => 3,
        _ => 4,
    });
    entries.truncate(places);
    entries.sort_by_key(|entry| entry.series.order());
    entries
}

const fn is_of_page(series: &ListedSeries) -> bool {
    series.reference_ns.0.is_some()
}

fn head(model: &Model, gateway: &Gateway, columns: &[Column]) -> String {
    let about = if gateway.is_estimated(model.window) {
        "~"
    } else {
        ""
    };
    let name = format!("  Stage, last {about}{} s", model.window.seconds());
    let values = columns.iter().map(|(name, _)| (*name).to_owned());
    aligned(&name, values, "ratio")
}

fn text(entry: &Entry, columns: &[Column]) -> String {
    let mark = if entry.series.in_overhead { "*" } else { " " };
    let name = format!("{mark} {}", entry.series.label);
    let values = columns.iter().map(|(_, text)| text(entry));
    aligned(&name, values, &entry.ratio())
}

fn aligned(name: &str, values: impl Iterator<Item = String>, ratio: &str) -> String {
    let values: Vec<_> = values.map(|value| format!("{value:>VALUE$}")).collect();
    format!("{name:<NAME$.NAME_MAX$}{}{ratio:>RATIO$}", values.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture;

    fn listed(series: Series) -> ListedSeries {
        let model = fixture::seen(fixture::reading(&[]));
        model.gateway().unwrap().one_series(series)
    }

    #[test]
    fn a_stage_at_the_clocks_floor_is_told_as_that_and_not_as_a_figure() {
        let line = |mean, p50, max| {
            let entry = Entry {
                series: listed(Series::Stage(Stage::KeySelection)),
                stats: Stats {
                    count: 2,
                    mean: Some(mean),
                    p50: Some(p50),
                    max: Some(max),
                    ..Stats::default()
                },
                floor: 10,
            };
            let line = text(&entry, &columns(100));
            let words: Vec<_> = line.split_whitespace().skip(3).collect();
            words.join(" ")
        };
        assert_eq!(line(26, 10, 60), "16 ns <= 10 ns - - 50 ns 16 ns - 1.00x");
        assert_eq!(
            line(15, 8, 24),
            "<= 10 ns <= 10 ns - - 14 ns 16 ns - <=0.63x"
        );
        assert_eq!(line(0, 0, 0), "0 ns 0 ns - - 0 ns 16 ns - 0.00x");
    }

    #[test]
    fn the_overhead_is_told_less_a_reading_for_each_stage_that_it_sums() {
        let model = fixture::seen(fixture::page(2_950, 47_130));
        let entries = entries(&model, model.gateway().unwrap());
        let of = |series| {
            let entry = entries.iter().find(|it| it.series.known == Some(series));
            entry.unwrap().floor
        };
        assert_eq!(of(Series::Stage(Stage::BackOff)), 10);
        assert_eq!(of(Series::Overhead), 70);
        assert_eq!(of(Series::Total), 0);
    }

    #[test]
    fn the_pages_stages_come_first_where_not_all_fit() {
        let model = fixture::seen(fixture::reading(&[]));
        let shown = |places| {
            let entries = entries(&model, model.gateway().unwrap());
            let shown = shown(entries, places).into_iter();
            shown.map(|it| it.series.known.unwrap()).collect::<Vec<_>>()
        };
        assert!(shown(0).is_empty());
        assert_eq!(shown(1), [Series::Overhead]);
        assert_eq!(
            shown(3),
            [
                Series::Stage(Stage::QueueWait),
                Series::Overhead,
                Series::Unattributed
            ]
        );
        let page = shown(13);
        assert!(page.iter().all(|series| series.reference_ns().0.is_some()));
        assert_eq!(page.last(), Some(&Series::Total));
        assert_eq!(shown(99).len(), Series::COUNT);
    }

    #[test]
    fn another_versions_stages_have_their_rows_and_missing_ones_have_dashes() {
        let lines = |reading| {
            let model = fixture::seen(reading);
            let entries = shown(entries(&model, model.gateway().unwrap()), 99);
            let lines = entries.iter().map(|entry| text(entry, &columns(60)));
            lines.collect::<Vec<_>>()
        };
        let later = lines(fixture::later());
        assert_eq!(later.len(), Series::COUNT + 2);
        assert_eq!(
            later[Stage::COUNT - 1..=Stage::COUNT + 1],
            [
                "  Response writing             -         -         -       -",
                "* A check of what com    2.99 µs   2.97 µs   1.50 µs   1.99x",
                "  Overhead (sum of *)          -         -  59.20 µs       -",
            ]
        );
        assert!(later.last().unwrap().starts_with("  Cached"));
        let earlier = lines(fixture::earlier());
        assert_eq!(earlier.len(), Series::COUNT);
        let first_byte = earlier.iter().find(|line| line.contains("First byte"));
        assert_eq!(
            first_byte.unwrap(),
            "  First byte                   -         -         -       -"
        );
    }
}
