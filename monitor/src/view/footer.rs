//! The last line: what keys there are, what is being typed, or what just came of a key.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::{fitting, style};
use crate::model::Model;
use crate::model::focus::Topic;

/// From this width on, every topic is named.
const WIDE: u16 = 120;

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model) {
    let focus = &model.focus;
    let line = if focus.is_typing {
        Line::styled(
            format!(" filter: {}_  Enter ends, Esc clears it", focus.filter),
            style::HEAD,
        )
    } else if let Some(notice) = &focus.notice {
        Line::styled(format!(" {notice}"), style::HEAD)
    } else {
        fitting(keys(model, area.width), area.width)
    };
    line.render(area, buffer);
}

fn keys(model: &Model, width: u16) -> Vec<Span<'static>> {
    let focus = &model.focus;
    let dim = |text: &str| Span::styled(text.to_owned(), style::DIM);
    let mut parts = vec![dim("q quit"), dim("? help")];
    if width >= WIDE {
        for (topic, key) in Topic::ALL.into_iter().zip(1..) {
            let text = format!("{key} {}", topic.label());
            let style = if topic == focus.topic {
                style::SELECTED
            } else {
                style::DIM
            };
            parts.push(Span::styled(text, style));
        }
    } else {
        parts.push(dim("1-6 view"));
        parts.push(Span::styled(focus.topic.label(), style::SELECTED));
    }
    if focus.is_zoomed {
        parts.push(Span::styled(
            format!("z back from {}", focus.main_pane().label()),
            style::HEAD,
        ));
    } else if let Some(pane) = focus.pane() {
        parts.push(Span::styled(
            format!("z zoom {}", pane.label()),
            style::HEAD,
        ));
    }
    if focus.topic == Topic::Requests {
        parts.extend([dim("/ filter"), dim("o order"), dim("Enter in full")]);
    }
    parts.push(dim(if model.behind().is_some() {
        "p go on"
    } else {
        "p pause"
    }));
    parts.push(dim("w window"));
    if !focus.is_zoomed && focus.pane().is_none() {
        parts.push(dim("Tab pane"));
    }
    parts.extend([
        dim("s save"),
        dim("r record"),
        dim("t theme"),
        dim("c clear peaks"),
    ]);
    parts
}
