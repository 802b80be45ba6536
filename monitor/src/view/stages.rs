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

/// A column's name, and what it says of a row.
type Column = (&'static str, fn(&Entry) -> String);

/// A row's figures.
struct Entry {
    series: Series,
    stats: Stats,
    /// What readings of the clock take of each value, nanoseconds.
    floor: u64,
}

impl Entry {
    fn measured(&self, value: Option<u64>) -> String {
        value.map_or(format::NONE.to_owned(), |ns| {
            format::measured(ns, self.floor)
        })
    }

    /// The mean in proportion to the page's.
    fn ratio(&self) -> String {
        match (self.stats.mean, self.series.reference_ns().0) {
            (Some(mean), Some(medium)) => format::measured_ratio(mean, self.floor, medium),
            _ => format::NONE.to_owned(),
        }
    }
}

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model, gateway: &Gateway) {
    let columns = columns(area.width);
    Line::styled(head(model, gateway, &columns), style::HEAD).render(row(area, 0), buffer);
    let places = usize::from(area.height).saturating_sub(1);
    for (place, series) in shown(places).into_iter().enumerate() {
        let stats = model.in_window(gateway, series);
        let entry = Entry {
            series,
            stats,
            floor: floor(model, gateway, series),
        };
        let style = if is_of_page(series) {
            style::PLAIN
        } else {
            style::DIM
        };
        Line::styled(text(&entry, &columns), style).render(row(area, place + 1), buffer);
    }
}

/// A stage lasts from one stamp to the next and so holds one reading of the clock, and the overhead as many as stages
/// that it sums. The others are told as they were measured: what is long, or none of a request's work, has no use for
/// such a deduction.
fn floor(model: &Model, gateway: &Gateway, series: Series) -> u64 {
    let is_entered = |stage: &Stage| {
        let mean = model.in_window(gateway, Series::Stage(*stage)).mean;
        stage.in_overhead() && mean > Some(0)
    };
    match series {
        Series::Stage(_) => gateway.floor(),
        Series::Overhead => {
            let stages = Stage::ALL.iter().filter(|stage| is_entered(stage)).count();
            gateway.floor().saturating_mul(stages as u64)
        }
        _ => 0,
    }
}

/// The columns that there is room for, in order.
fn columns(width: u16) -> Vec<Column> {
    let all: [(u16, Column); 7] = [
        (0, ("mean", |entry| entry.measured(entry.stats.mean))),
        (80, ("p50", |entry| entry.measured(entry.stats.p50))),
        (0, ("p95", |entry| entry.measured(entry.stats.p95))),
        (80, ("p99", |entry| entry.measured(entry.stats.p99))),
        (100, ("max", |entry| entry.measured(entry.stats.max))),
        (0, ("medium", |entry| time(entry.series.reference_ns().0))),
        (100, ("xlarge", |entry| time(entry.series.reference_ns().1))),
    ];
    let fits = all.into_iter().filter(|(needed, _)| width >= *needed);
    fits.map(|(_, column)| column).collect()
}

fn time(ns: Option<u64>) -> String {
    ns.map_or(format::NONE.to_owned(), format::duration)
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
    let values = columns.iter().map(|(_, text)| text(entry));
    aligned(&name, values, &entry.ratio())
}

fn aligned(name: &str, values: impl Iterator<Item = String>, ratio: &str) -> String {
    let values: Vec<_> = values.map(|value| format!("{value:>VALUE$}")).collect();
    format!("{name:<NAME$}{}{ratio:>RATIO$}", values.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture;

    #[test]
    fn a_stage_at_the_clocks_floor_is_told_as_that_and_not_as_a_figure() {
        let line = |mean, p50, max| {
            let entry = Entry {
                series: Series::Stage(Stage::KeySelection),
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
        let gateway = model.gateway().unwrap();
        let of = |series| floor(&model, gateway, series);
        assert_eq!(of(Series::Stage(Stage::BackOff)), 10);
        assert_eq!(of(Series::Overhead), 70);
        assert_eq!(of(Series::Total), 0);
    }

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
