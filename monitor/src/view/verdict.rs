//! The verdict: one line, or a few where there is room.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::{row, style};
use crate::model::Gateway;
use crate::verdict::Verdict;

pub(super) fn render(area: Rect, buffer: &mut Buffer, gateway: &Gateway) {
    let verdict = &gateway.verdict;
    let style = style::of_advice(verdict.advice);
    let lines = if area.height > 1 {
        wrapped(&verdict.text(), area.width)
    } else {
        vec![one_line(verdict, area.width)]
    };
    for (place, line) in lines.into_iter().enumerate() {
        let line = Line::styled(format!(" {line}"), style);
        line.render(row(area, place), buffer);
    }
}

/// Lines that the whole verdict takes.
pub(super) fn rows(gateway: &Gateway, width: u16) -> u16 {
    let lines = wrapped(&gateway.verdict.text(), width).len();
    u16::try_from(lines).unwrap_or(u16::MAX)
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
        .unwrap_or_else(|| verdict.headline.clone())
}

/// `text` broken between words.
fn wrapped(text: &str, width: u16) -> Vec<String> {
    let room = usize::from(width).saturating_sub(1);
    let mut lines: Vec<String> = vec![];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if Span::from(&*line).width() + 1 + Span::from(word).width() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
