//! Every counter and gauge by its name, and how long CPU credits last, where there is room to spare.

use bifrost_shared::layout::{Counter, Gauge};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget as _;

use super::{credits, row, style};
use crate::format;
use crate::model::Gateway;

/// Columns of one name with its value.
const CELL: usize = 33;
const NAME: usize = 16;

pub(super) fn render(area: Rect, buffer: &mut Buffer, gateway: &Gateway) {
    let across = (usize::from(area.width) / CELL).max(1);
    let counters = Counter::ALL.iter().map(|counter| {
        let text = match counter {
            Counter::RequestBytes | Counter::ResponseBytes => format::bytes,
            _ => format::count,
        };
        let value = gateway.counter(*counter);
        (counter.label(), value.map_or(format::NONE.to_owned(), text))
    });
    let gauges = Gauge::ALL.iter().map(|gauge| {
        let value = gateway.gauge(*gauge);
        let text = value.map_or(format::NONE.to_owned(), |value| gauge_text(*gauge, value));
        (gauge.label(), text)
    });
    let cells: Vec<_> = counters
        .chain(gauges)
        .map(|(name, text)| format!("{name:<NAME$}{text:>14}   "))
        .collect();
    Line::styled("Since start, and now", style::HEAD).render(row(area, 0), buffer);
    let cells = cells.chunks(across).map(|cells| Line::from(cells.concat()));
    // Credits first: where not all fits, the last of the counts are the least loss.
    let credits = gateway.credits().map(|it| credits::line(&it));
    for (place, line) in credits.into_iter().chain(cells).enumerate() {
        line.render(row(area, place + 1), buffer);
    }
}

fn gauge_text(gauge: Gauge, value: u64) -> String {
    match gauge {
        Gauge::Rss | Gauge::RssPeak | Gauge::RssAnon | Gauge::MemoryLimit | Gauge::HeldBytes => {
            format::bytes(value)
        }
        Gauge::Cpu | Gauge::Steal | Gauge::HostCpu => format::percent(value, 1_000),
        Gauge::SchedulerDelay => format::brief(value),
        Gauge::InFlight
        | Gauge::Waiting
        | Gauge::Upstream
        | Gauge::Connections
        | Gauge::Descriptors => format::count(value),
    }
}
