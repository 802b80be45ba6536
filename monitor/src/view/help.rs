//! The help: what the keys do, and how to read the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Widget as _, Wrap};

use crate::input::KEYS;

const WIDTH: u16 = 64;
const LEGEND: [&str; 7] = [
    "*  a stage that counts in the overhead, the page's formula",
    "medium, xlarge  the page's means on these instances",
    "ratio  mean here to mean on the page's t3.medium",
    "<=  no longer than reading the clock takes, which is deducted",
    "~  quantiles partly from closed seconds, before we came",
    "state  BREACH asks for an upgrade, WATCH comes before it,",
    "       REF has no limit known for this host",
];

pub(super) fn render(area: Rect, buffer: &mut Buffer) {
    let keys = KEYS
        .iter()
        .map(|(keys, what)| Line::from(format!("{keys:<10} {what}")));
    let lines: Vec<_> = keys
        .chain([Line::default()])
        .chain(LEGEND.map(Line::from))
        .collect();
    let height = u16::try_from(lines.len())
        .unwrap_or(u16::MAX)
        .saturating_add(2);
    let place = area.centered(
        Constraint::Length(WIDTH.min(area.width)),
        Constraint::Length(height.min(area.height)),
    );
    Clear.render(place, buffer);
    Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .block(Block::bordered().title(" Help "))
        .render(place, buffer);
}
