//! The highest figures that the monitor has seen, or that came since they were cleared.

use bifrost_shared::layout::Gauge;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget as _;

use super::{counts, put, row, style};
use crate::format;
use crate::model::Gateway;
use crate::model::peaks::Peak;

pub(super) fn render(area: Rect, buffer: &mut Buffer, gateway: &Gateway) {
    Line::styled("Peaks (c forgets them)", style::HEAD).render(row(area, 0), buffer);
    for (place, (peak, highest)) in gateway.peaks().all().enumerate() {
        let value = format::or_none(highest.map(|(value, _)| value), text_of(peak));
        let at = highest.map_or_else(String::new, |(_, at)| format::clock(at));
        let line = format!(" {:<17}{value:>12}  {at}", peak.label());
        put(&Line::from(line), row(area, place + 1), buffer);
    }
}

fn text_of(peak: Peak) -> fn(u64) -> String {
    match peak {
        Peak::QueueWait | Peak::Overhead => format::brief,
        Peak::Load => format::rate,
        Peak::Gauge(gauge) => counts::gauge_text(Some::<Gauge>(gauge)),
    }
}
