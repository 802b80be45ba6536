//! The help: what the keys do, and how to read the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Widget as _};

use super::wrapped;
use crate::input::BINDINGS;
use crate::model::Model;

const WIDTH: u16 = 64;
/// Signs and words of the screen, and what they mean: with the keys, as many lines as the usual screen has.
const LEGEND: [&str; 4] = [
    "* in the overhead  ~ partly before we came  <= clock's cost",
    "medium, xlarge: the page's means  ratio: here to medium",
    "a bar is full at its limit; (+1): z on triggers tells all",
    "BREACH: upgrade  WATCH: soon  REF: no limit known here",
];
/// Columns of keys.
const MARGIN: usize = 12;

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model) {
    let room = WIDTH.min(area.width).saturating_sub(2);
    let lines: Vec<_> = BINDINGS
        .iter()
        .flat_map(|it| told(it.names, it.what, room))
        .chain(
            LEGEND
                .iter()
                .flat_map(|it| wrapped(it, room.saturating_add(1)))
                .map(Line::from),
        )
        .collect();
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

/// What a key does or a sign means, in as many lines as it takes.
fn told(name: &str, what: &str, width: u16) -> Vec<Line<'static>> {
    let room = usize::from(width).saturating_sub(MARGIN);
    let room = u16::try_from(room).unwrap_or(u16::MAX);
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    let lines = wrapped(what, room.saturating_add(1)).into_iter().zip(names);
    lines
        .map(|(line, name)| Line::from(format!("{name:<MARGIN$}{line}")))
        .collect()
}
