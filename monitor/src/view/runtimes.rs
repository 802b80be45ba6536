//! How each runtime is: how long it made a task wait, when it last ran one, and what its lane lost.

use bifrost_shared::snapshot::Runtime;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget as _;

use super::table::{self, Column};
use super::{below, row, style};
use crate::format;
use crate::model::Gateway;

struct Entry {
    place: usize,
    runtime: Runtime,
    /// When the exporter last came by.
    exported_at: u64,
}

fn columns() -> [Column<Entry>; 4] {
    let column = |name, width, text: fn(&Entry) -> String| Column {
        name,
        width,
        is_text: false,
        rank: 0,
        text,
    };
    [
        Column {
            is_text: true,
            ..column(" runtime", 9, |it: &Entry| format!(" {}", it.place))
        },
        column("delay", 10, |it| format::brief(it.runtime.delay)),
        column("last ran", 10, |it| match it.runtime.ran_at {
            0 => format::NONE.to_owned(),
            at => format::age(it.exported_at.saturating_sub(at)),
        }),
        column("lost", 10, |it| format::count(it.runtime.lost)),
    ]
}

pub(super) fn render(area: Rect, buffer: &mut Buffer, gateway: &Gateway) {
    let title = "Runtimes, last second; lost since start";
    Line::styled(title, style::HEAD).render(row(area, 0), buffer);
    let runtimes = gateway.runtimes().iter().enumerate();
    let entries: Vec<_> = runtimes
        .map(|(place, runtime)| Entry {
            place,
            runtime: *runtime,
            exported_at: gateway.exported_at(),
        })
        .collect();
    let rest = below(area, 1);
    table::render(rest, buffer, &columns(), &entries, None, |it| {
        if it.runtime.lost > 0 {
            style::NEAR
        } else {
            style::PLAIN
        }
    });
}
