//! The last minutes as lines over time, one bar a second, the newest at the right.

use bifrost_shared::layout::Gauge;
use bifrost_shared::snapshot::Row;
use bifrost_shared::stage::{Series, Stage};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Sparkline, Widget as _};

use super::style;
use crate::format;
use crate::model::Gateway;
use crate::verdict;

/// Rows of one line over time below which it says nothing: its title and a bar.
const ROWS_MIN: u16 = 2;
/// Rows past which bars only waste room.
const ROWS_MAX: u16 = 8;
/// Steps of the highest bar: more than the terminal can show, few enough to never overflow.
const STEPS: u64 = 10_000;

/// One figure over time.
struct Trend {
    name: &'static str,
    value: fn(&Row) -> Option<u64>,
    text: fn(u64) -> String,
}

const TRENDS: [Trend; 6] = [
    Trend {
        name: "queue wait, mean",
        value: |row| row.mean(Series::Stage(Stage::QueueWait)),
        text: format::brief,
    },
    Trend {
        name: "load, completed",
        value: |row| Some(verdict::load(row)),
        text: format::rate,
    },
    Trend {
        name: "in flight",
        value: |row| Some(row.gauge(Gauge::InFlight)),
        text: format::count,
    },
    Trend {
        name: "memory, RSS",
        value: |row| Some(row.gauge(Gauge::Rss)),
        text: format::bytes,
    },
    Trend {
        name: "overhead, mean",
        value: |row| row.mean(Series::Overhead),
        text: format::brief,
    },
    Trend {
        name: "waiting",
        value: |row| Some(row.gauge(Gauge::Waiting)),
        text: format::count,
    },
];

pub(super) fn render(area: Rect, buffer: &mut Buffer, gateway: &Gateway) {
    let shown = usize::from(area.height / ROWS_MIN).min(TRENDS.len());
    let places = Layout::vertical(vec![Constraint::Max(ROWS_MAX); shown]).split(area);
    for (place, trend) in places.iter().zip(&TRENDS) {
        one(*place, buffer, trend, gateway);
    }
}

fn one(area: Rect, buffer: &mut Buffer, trend: &Trend, gateway: &Gateway) {
    let rows = gateway.rows();
    let skipped = rows.len().saturating_sub(area.width.into());
    let values: Vec<_> = rows.iter().skip(skipped).map(trend.value).collect();
    let text = |value: Option<u64>| value.map_or(format::NONE.to_owned(), trend.text);
    let last = values.last().copied().flatten();
    let highest = values.iter().copied().flatten().max();
    let title = format!(
        "{} {}, highest {} of {} s",
        trend.name,
        text(last),
        text(highest),
        values.len()
    );
    let [head, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    Line::styled(title, style::HEAD).render(head, buffer);
    // The newest second stands at the right edge, however few there are.
    let missing = usize::from(area.width).saturating_sub(values.len());
    let scale = |value: u64| scaled(value, highest.unwrap_or(0));
    let data = values.into_iter().map(|value| value.map(scale));
    Sparkline::default()
        .data(std::iter::repeat_n(None, missing).chain(data))
        .max(STEPS)
        .render(bars, buffer);
}

/// `value` in steps of the highest.
fn scaled(value: u64, highest: u64) -> u64 {
    let steps = (u128::from(value) * u128::from(STEPS)).checked_div(u128::from(highest));
    u64::try_from(steps.unwrap_or(0)).unwrap_or(0)
}
