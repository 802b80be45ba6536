//! The stage table: where requests spend their time, against what the benchmark page measured on a t3.medium.

use bifrost_shared::stage::{Series, Stage};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget as _;

use super::{row, style};
use crate::format;
use crate::model::{Gateway, Model, Stats};

/// Lines of the table with every row.
#[expect(clippy::cast_possible_truncation, reason = "there are some twenty")]
pub(super) const ROWS_MAX: u16 = 1 + Series::COUNT as u16;
/// Columns of the table with every column.
pub(super) const WIDTH_MAX: u16 = 100;

const NAME: usize = 22;
const VALUE: usize = 10;
const RATIO: usize = 8;

/// What a column says of a row. None leaves a dash.
type Column = (&'static str, fn(&Entry) -> Option<u64>);

/// A row's figures.
struct Entry {
    series: Series,
    stats: Stats,
}

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model, gateway: &Gateway) {
    let columns = columns(area.width);
    Line::styled(head(model, gateway, &columns), style::HEAD).render(row(area, 0), buffer);
    let places = usize::from(area.height).saturating_sub(1);
    for (place, series) in shown(places).into_iter().enumerate() {
        let entry = Entry {
            series,
            stats: model.in_window(gateway, series),
        };
        let style = if is_of_page(series) {
            style::PLAIN
        } else {
            style::DIM
        };
        Line::styled(text(&entry, &columns), style).render(row(area, place + 1), buffer);
    }
}

/// The columns that there is room for, in order.
fn columns(width: u16) -> Vec<Column> {
    let all: [(u16, Column); 7] = [
        (0, ("mean", |entry| entry.stats.mean)),
        (80, ("p50", |entry| entry.stats.p50)),
        (0, ("p95", |entry| entry.stats.p95)),
        (80, ("p99", |entry| entry.stats.p99)),
        (100, ("max", |entry| entry.stats.max)),
        (0, ("medium", |entry| entry.series.reference_ns().0)),
        (100, ("xlarge", |entry| entry.series.reference_ns().1)),
    ];
    let fits = all.into_iter().filter(|(needed, _)| width >= *needed);
    fits.map(|(_, column)| column).collect()
}

/// As many rows as there are places, in the order of a request's life. The page's own come first where not all fit.
fn shown(places: usize) -> Vec<Series> {
    let mut by_worth: Vec<_> = Series::all().collect();
    by_worth.sort_by_key(|series| match series {
        Series::Overhead => 0,
        Series::Stage(Stage::QueueWait) => 1,
        Series::Unattributed => 2,
        series if is_of_page(*series) => 3,
        _ => 4,
    });
    by_worth.truncate(places);
    by_worth.sort_by_key(|series| order(*series));
    by_worth
}

/// Stages, their sum, what no stage has, the whole; then what the page doesn't tell.
fn order(series: Series) -> usize {
    match series {
        Series::Stage(stage) => stage.index(),
        Series::Overhead => Stage::COUNT,
        Series::Unattributed => Stage::COUNT + 1,
        Series::Total => Stage::COUNT + 2,
        Series::Added => Stage::COUNT + 3,
        Series::FirstByte => Stage::COUNT + 4,
        Series::FirstToken => Stage::COUNT + 5,
        Series::TimePerToken => Stage::COUNT + 6,
    }
}

const fn is_of_page(series: Series) -> bool {
    series.reference_ns().0.is_some()
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
    let is_marked = matches!(entry.series, Series::Stage(stage) if stage.in_overhead());
    let mark = if is_marked { "*" } else { " " };
    let name = format!("{mark} {}", entry.series.label());
    let text = |value: Option<u64>| value.map_or(format::NONE.to_owned(), format::duration);
    let values = columns.iter().map(|(_, value)| text(value(entry)));
    let ratio = match (entry.stats.mean, entry.series.reference_ns().0) {
        (Some(mean), Some(medium)) => format::ratio(mean, medium),
        _ => format::NONE.to_owned(),
    };
    aligned(&name, values, &ratio)
}

fn aligned(name: &str, values: impl Iterator<Item = String>, ratio: &str) -> String {
    let values: Vec<_> = values.map(|value| format!("{value:>VALUE$}")).collect();
    format!("{name:<NAME$}{}{ratio:>RATIO$}", values.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_stages_come_first_where_not_all_fit() {
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
        assert!(page.iter().all(|series| is_of_page(*series)));
        assert_eq!(page.last(), Some(&Series::Total));
        assert_eq!(shown(99).len(), Series::COUNT);
    }
}
