//! The triggers: what each is, what it is held against, and how long it has stood so.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::{put, row, style};
use crate::format;
use crate::model::Gateway;
use crate::verdict::{Judged, Level};

/// Lines of the table: not every host has all of the triggers.
pub(super) fn rows(gateway: &Gateway) -> u16 {
    u16::try_from(1 + gateway.verdict.triggers.len()).unwrap_or(u16::MAX)
}

/// Columns that all but the bar take.
const COLUMNS: usize = 38 + 2 + 7;
/// Columns of the last one, left out where there is no room for it.
const HELD: usize = 18;
const BAR_MIN: usize = 12;
const BAR_MAX: usize = 32;

pub(super) fn render(area: Rect, buffer: &mut Buffer, gateway: &Gateway) {
    let room = usize::from(area.width).saturating_sub(COLUMNS);
    let has_held = room >= BAR_MIN + 2 + HELD;
    let bar = room
        .saturating_sub(if has_held { 2 + HELD } else { 0 })
        .clamp(BAR_MIN, BAR_MAX);
    let head = format!(
        "{:<11}{:>9}{:>9}{:>9} {:<bar$} {:<7}  {}",
        "Trigger",
        "now",
        "60 s",
        "limit",
        "to limit",
        "state",
        if has_held { "held" } else { "" }
    );
    Line::styled(head, style::HEAD).render(row(area, 0), buffer);
    for (place, judged) in gateway.verdict.triggers.iter().enumerate() {
        put(&line(judged, bar, has_held), row(area, place + 1), buffer);
    }
}

fn line(judged: &Judged, bar: usize, has_held: bool) -> Line<'static> {
    let style = style::of_level(judged.level);
    let value = |value: Option<u64>| {
        value.map_or(format::NONE.to_owned(), |value| judged.trigger.text(value))
    };
    let figures = format!(
        "{:<11}{:>9}{:>9}{:>9} ",
        judged.trigger.label(),
        value(judged.now),
        value(judged.minute),
        value(Some(judged.limit)),
    );
    let mut line = Line::from(vec![
        Span::from(figures),
        Span::styled(gauge(judged.share_of_limit(), bar), style),
        Span::styled(format!(" {:<7}", judged.level.label()), style),
    ]);
    if has_held {
        line.push_span(format!("  {}", held(judged)));
    }
    line
}

/// A bar to one and a half times the limit, with a mark where the limit is.
fn gauge(permille: u64, width: usize) -> String {
    let mark = width * 2 / 3;
    let filled = usize::try_from(permille).unwrap_or(usize::MAX);
    let filled = filled.saturating_mul(mark).div_ceil(1_000).min(width);
    let cell = |place: usize| match place {
        _ if place == mark => '│',
        _ if place < filled => '█',
        _ => '░',
    };
    (0..width).map(cell).collect()
}

fn held(judged: &Judged) -> String {
    let share = format::percent(judged.share_of_limit(), 1_000);
    match judged.level {
        Level::Breach => format!(
            "{}/{} s {}",
            judged.over,
            judged.rows,
            format::span(judged.held)
        ),
        Level::Watch => format!("{share} of limit"),
        Level::Ok => format!("for {}", format::span(judged.held)),
        Level::Unknown if judged.rows == 0 => "no data yet".to_owned(),
        Level::Unknown => "too few requests".to_owned(),
        Level::Reference => format!("{share} of it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_passes_its_mark_only_over_the_limit() {
        for (permille, bar) in [
            (0, "░░░░░░░░│░░░"),
            (1, "█░░░░░░░│░░░"),
            (500, "████░░░░│░░░"),
            (1_000, "████████│░░░"),
            (1_200, "████████│█░░"),
            (9_999, "████████│███"),
            (u64::MAX, "████████│███"),
        ] {
            assert_eq!(gauge(permille, 12), bar, "{permille}");
        }
    }
}
