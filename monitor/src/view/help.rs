//! The help: what the keys do, and how to read the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Widget as _};

use crate::input::BINDINGS;
use crate::model::Model;

const WIDTH: u16 = 64;
const LEGEND: [&str; 4] = [
    "*  counts in the overhead    ~  partly before we came",
    "<=  no longer than reading the clock takes, deducted",
    "medium, xlarge  the page's means; ratio  here to medium",
    "BREACH: upgrade  WATCH: soon  REF: no limit known here",
];

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model) {
    let keys = BINDINGS.iter();
    let keys = keys.map(|it| Line::from(format!("{:<12}{}", it.names, it.what)));
    let lines: Vec<_> = keys.chain(LEGEND.map(Line::from)).collect();
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let place = area.centered(
        Constraint::Length(WIDTH.min(area.width)),
        Constraint::Length(height.min(area.height)),
    );
    let hidden = height.saturating_sub(place.height);
    let offset = u16::try_from(model.focus.help_place).unwrap_or(u16::MAX);
    let title = if hidden > 0 {
        " Help, arrows for more "
    } else {
        " Help "
    };
    Clear.render(place, buffer);
    Paragraph::new(lines)
        .scroll((offset.min(hidden), 0))
        .block(Block::bordered().title(title))
        .render(place, buffer);
}
