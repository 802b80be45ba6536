//! The last minutes as lines over time, one bar a second, the newest at the right.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Sparkline, Widget as _};

use super::style;
use crate::format;
use crate::model::Gateway;
use crate::model::moments::Moment;

/// Rows of one line over time below which it says nothing: its title and a bar.
const ROWS_MIN: u16 = 2;
/// Rows past which bars only waste room.
const ROWS_MAX: u16 = 8;
/// Steps of the highest bar: more than the terminal can show, few enough to never overflow.
const STEPS: u64 = 10_000;

/// One figure over time.
struct Trend {
    name: &'static str,
    value: fn(&Moment) -> Option<u64>,
    text: fn(u64) -> String,
}

const TRENDS: [Trend; 6] = [
    Trend {
        name: "queue wait, mean",
        value: |it| it.queue_wait.mean,
        text: format::brief,
    },
    Trend {
        name: "load, completed",
        value: |it| Some(it.load),
        text: format::rate,
    },
    Trend {
        name: "in flight",
        value: |it| Some(it.in_flight),
        text: format::count,
    },
    Trend {
        name: "memory, RSS",
        value: |it| Some(it.rss),
        text: format::bytes,
    },
    Trend {
        name: "overhead, mean",
        value: |it| it.overhead.mean,
        text: format::brief,
    },
    Trend {
        name: "waiting",
        value: |it| Some(it.waiting),
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
    let moments = gateway.moments().last(area.width.into());
    let values: Vec<_> = moments.map(trend.value).collect();
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
