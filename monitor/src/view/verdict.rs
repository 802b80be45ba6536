//! The verdict: one line, or a few where there is room.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::{cut, row, style, wrapped};
use crate::model::Gateway;
use crate::verdict::Verdict;

/// Lines of the verdict itself, and of the first thing that can be done about it.
const VERDICT_ROWS: usize = 3;
const REMEDY_ROWS: usize = 2;
/// From this width on, the remedy gets both: narrower screens are lower, too, and need them for charts.
const WIDE: u16 = 100;

pub(super) fn render(area: Rect, buffer: &mut Buffer, gateway: &Gateway) {
    let verdict = &gateway.verdict;
    let style = style::of_advice(verdict.advice);
    if area.height <= 1 {
        let line = one_line(verdict, area.width);
        Line::styled(format!(" {line}"), style).render(area, buffer);
        return;
    }
    let lines = lines(verdict, area.width);
    for (place, (line, is_remedy)) in lines.into_iter().enumerate() {
        let style = if is_remedy { style::PLAIN } else { style };
        Line::styled(format!(" {line}"), style).render(row(area, place), buffer);
    }
}

/// Lines that there is something to say for.
pub(super) fn rows(gateway: &Gateway, width: u16) -> u16 {
    let lines = lines(&gateway.verdict, width).len();
    u16::try_from(lines).unwrap_or(u16::MAX)
}

/// The verdict, then the most pressing remedy; each with whether it is one.
fn lines(verdict: &Verdict, width: u16) -> Vec<(String, bool)> {
    let told = wrapped(&verdict.text(), width).into_iter();
    let told = told.take(VERDICT_ROWS).map(|line| (line, false));
    let remedy = verdict.remedies.first();
    let remedy = remedy.map_or(vec![], |it| wrapped(&format!("-> {it}"), width));
    let most = if width < WIDE { 1 } else { REMEDY_ROWS };
    let is_cut = remedy.len() > most;
    let remedy = remedy.into_iter().take(most).enumerate();
    let remedy = remedy.map(|(place, line)| {
        let mark = if is_cut && place + 1 == most {
            " …"
        } else {
            ""
        };
        let room = usize::from(width).saturating_sub(1 + mark.chars().count());
        (cut(&line, room) + mark, true)
    });
    told.chain(remedy).collect()
}

/// The whole verdict, and all that can be done about it.
pub(super) fn in_full(area: Rect, buffer: &mut Buffer, gateway: &Gateway) {
    let verdict = &gateway.verdict;
    let style = style::of_advice(verdict.advice);
    let mut lines: Vec<_> = wrapped(&verdict.text(), area.width)
        .into_iter()
        .map(|line| Line::styled(format!(" {line}"), style))
        .collect();
    for remedy in &verdict.remedies {
        lines.push(Line::default());
        let remedy = wrapped(&format!("-> {remedy}"), area.width).into_iter();
        lines.extend(remedy.map(|line| Line::from(format!(" {line}"))));
    }
    for (place, line) in lines.into_iter().enumerate() {
        line.render(row(area, place), buffer);
    }
}

/// As many reasons as fit whole, and how many more there are.
fn one_line(verdict: &Verdict, width: u16) -> String {
    let room = usize::from(width).saturating_sub(1);
    let line = |shown: usize| {
        let more = match verdict.reasons.len() - shown {
            0 => String::new(),
            left if shown == 0 => format!(" (for {left} reasons)"),
            left => format!(" (+{left})"),
        };
        let reasons = verdict.reasons[..shown].join("; ");
        let link = if shown == 0 { "" } else { ": " };
        format!("{}{link}{reasons}{more}", verdict.headline)
    };
    let all = (0..=verdict.reasons.len()).rev().map(line);
    let fits = |line: &String| Span::from(line).width() <= room;
    all.into_iter()
        .find(fits)
        .unwrap_or_else(|| cut(&verdict.headline, room))
}
