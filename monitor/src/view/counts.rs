//! Every counter and gauge by its name, and how long CPU credits last, where there is room to spare.

use bifrost_shared::layout::{Counter, Gauge};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget as _;

use super::{credits, put, row, style};
use crate::format;
use crate::model::Gateway;

/// Columns of one name with its value.
const CELL: usize = 33;
const NAME: usize = 16;
/// A longer name is cut; ours take a column of the value at most.
const NAME_MAX: usize = NAME + 1;

pub(super) fn render(area: Rect, buffer: &mut Buffer, gateway: &Gateway) {
    let across = (usize::from(area.width) / CELL).max(1);
    let counters = gateway.counters().into_iter();
    let counters = counters.map(|it| cell(&it.label, it.value, counter_text(it.known)));
    let gauges = gateway.gauges().into_iter();
    let gauges = gauges.map(|it| cell(&it.label, it.value, gauge_text(it.known)));
    let cells: Vec<_> = counters.chain(gauges).collect();
    Line::styled("Since start, and now", style::HEAD).render(row(area, 0), buffer);
    let cells = cells.chunks(across).map(|cells| Line::from(cells.concat()));
    // Credits first: where not all fits, the last of the counts are the least loss.
    let credits = gateway.credits().map(|it| credits::line(&it, area.width));
    for (place, line) in credits.into_iter().chain(cells).enumerate() {
        put(&line, row(area, place + 1), buffer);
    }
}

fn cell(name: &str, value: Option<u64>, text: fn(u64) -> String) -> String {
    let value = format::or_none(value, text);
    format!("{name:<NAME$.NAME_MAX$}{value:>14}   ")
}

/// How the value of a counter is told; of one that this version does not know, as a number.
fn counter_text(counter: Option<Counter>) -> fn(u64) -> String {
    match counter {
        Some(Counter::RequestBytes | Counter::ResponseBytes) => format::bytes,
        _ => format::count,
    }
}

/// The same for a gauge.
pub(super) fn gauge_text(gauge: Option<Gauge>) -> fn(u64) -> String {
    match gauge {
        Some(
            Gauge::Rss | Gauge::RssPeak | Gauge::RssAnon | Gauge::MemoryLimit | Gauge::HeldBytes,
        ) => format::bytes,
        Some(Gauge::Cpu | Gauge::Steal | Gauge::HostCpu) => |value| format::percent(value, 1_000),
        Some(Gauge::SchedulerDelay) => format::brief,
        Some(
            Gauge::InFlight
            | Gauge::Waiting
            | Gauge::Upstream
            | Gauge::Connections
            | Gauge::Descriptors,
        )
        | None => format::count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture;
    use crate::model::observation::Reading;

    fn cells(reading: Reading) -> String {
        let model = fixture::seen(reading);
        let mut buffer = Buffer::empty(Rect::new(0, 0, 33, 60));
        render(buffer.area, &mut buffer, model.gateway().unwrap());
        let symbols = buffer.content().iter().map(ratatui::buffer::Cell::symbol);
        let words = symbols.collect::<String>();
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn another_versions_counts_are_told_by_their_names_and_missing_ones_are_absent() {
        let later = cells(fixture::later());
        assert!(
            later.contains("Dials 0 Checked 4,711 In flight 0"),
            "{later}"
        );
        assert!(
            later.ends_with("Scheduler delay 0 ns Checking 8"),
            "{later}"
        );
        let earlier = cells(fixture::earlier());
        assert!(earlier.contains("Streams 0 Dials - In flight"), "{earlier}");
        assert!(
            earlier.ends_with("Scheduler delay 31.0 µs Held bytes -"),
            "{earlier}"
        );
    }
}
