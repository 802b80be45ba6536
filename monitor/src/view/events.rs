//! What happened, newest first.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::{below, cut, row, style, table, wrapped};
use crate::format;
use crate::model::Model;
use crate::model::journal::Event;

/// Columns of time and subject.
const MARGIN: usize = 19;

/// The events; with `selected`, the one at that place stands out, and is told in full below where it is too long.
pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model, selected: Option<usize>) {
    let events = model.journal().events();
    let title = format!(
        "Events, newest first: {}",
        format::count(events.len() as u64)
    );
    Line::styled(title, style::HEAD).render(row(area, 0), buffer);
    let rest = below(area, 1);
    let newest_first = || events.iter().rev();
    let selected = selected.map(|place| place.min(events.len().saturating_sub(1)));
    let in_full = selected.and_then(|place| newest_first().nth(place));
    let in_full = in_full.map_or(vec![], |event| too_long(event, area.width));
    let foot = u16::try_from(in_full.len()).unwrap_or(0);
    let places = rest.height.saturating_sub(foot);
    let list = Rect {
        height: places,
        ..rest
    };
    let first = table::first_shown(selected.unwrap_or(0), events.len(), places.into());
    for (place, event) in newest_first().enumerate().skip(first).take(places.into()) {
        let line = row(list, place - first);
        told(event, area.width).render(line, buffer);
        if Some(place) == selected {
            buffer.set_style(line, style::SELECTED);
        }
    }
    let foot = below(rest, places);
    for (place, line) in in_full.into_iter().enumerate() {
        Line::from(format!("  {line}")).render(row(foot, place), buffer);
    }
}

fn told(event: &Event, width: u16) -> Line<'static> {
    let margin = format!(
        " {}  {:<8}",
        format::clock(event.unix_ns),
        event.subject.label()
    );
    let style = style::of_weight(event.weight);
    let room = usize::from(width).saturating_sub(MARGIN);
    Line::from(vec![
        Span::styled(margin, style::DIM),
        Span::styled(cut(&event.text, room), style),
    ])
}

/// The lines of an event that one line can't hold.
fn too_long(event: &Event, width: u16) -> Vec<String> {
    if MARGIN + Span::from(event.text.as_str()).width() <= usize::from(width) {
        return vec![];
    }
    wrapped(&event.text, width.saturating_sub(2))
}
