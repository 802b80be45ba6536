//! The gist, where there is no room for panels: the verdict, the worst trigger, and the size that is needed.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget as _;

use super::{SIZE_MIN, cut, row, style};
use crate::format;
use crate::model::liveness::Liveness;
use crate::model::{Gateway, Model};
use crate::verdict::Judged;

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model) {
    let mut lines = match model.gateway() {
        Some(gateway) => gist(model, gateway),
        None => vec![Line::from(
            model.trouble().map_or("NO GATEWAY", |it| it.label()),
        )],
    };
    let size = (area.width, area.height);
    lines.push(Line::styled(
        format!(
            "needs {}x{}, has {}x{}",
            SIZE_MIN.0, SIZE_MIN.1, size.0, size.1
        ),
        style::DIM,
    ));
    for (place, line) in lines.into_iter().enumerate() {
        let style = line.spans.first().map_or(style::PLAIN, |span| span.style);
        let text = cut(&line.to_string(), area.width.into());
        Line::styled(text, line.style.patch(style)).render(row(area, place), buffer);
    }
}

fn gist(model: &Model, gateway: &Gateway) -> Vec<Line<'static>> {
    let verdict = &gateway.verdict;
    let liveness = model.liveness().unwrap_or(gateway.liveness);
    let state = match liveness {
        Liveness::Live => String::new(),
        other => format!("{} ", other.label()),
    };
    let headline = format!("{state}{}", verdict.headline);
    let mut lines = vec![Line::styled(headline, style::of_advice(verdict.advice))];
    let worst = verdict
        .triggers
        .iter()
        .max_by_key(|it| (it.level, it.share_of_limit()));
    lines.extend(worst.map(line));
    lines
}

fn line(judged: &Judged) -> Line<'static> {
    let value = judged.minute.or(judged.now);
    let value = value.map_or(format::NONE.to_owned(), |value| judged.trigger.text(value));
    let (name, level) = (judged.trigger.label(), judged.level.label());
    Line::styled(
        format!("{name} {value} {level}"),
        style::of_level(judged.level),
    )
}
