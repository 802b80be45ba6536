//! Two lines at the top: which gateway this is, and how it is doing.

use bifrost_shared::layout::{ClockKind, Counter, Gauge};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::{fitting, put, row, style};
use crate::format;
use crate::model::{Gateway, Model};

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model, gateway: &Gateway) {
    put(
        &fitting(identity(gateway), area.width),
        row(area, 0),
        buffer,
    );
    put(
        &fitting(health(model, gateway), area.width),
        row(area, 1),
        buffer,
    );
}

/// Most telling first: what doesn't fit is left out.
fn identity(gateway: &Gateway) -> Vec<Span<'static>> {
    let header = gateway.header();
    let memory = format::bytes(header.memory_total);
    let host = format!("{} vCPU {memory}", format::count(header.vcpus));
    let instance = if header.instance.is_empty() {
        "host"
    } else {
        &header.instance
    };
    let clock = match header.clock {
        ClockKind::Tsc => "tsc",
        ClockKind::Monotonic => "monotonic",
    };
    let uptime = format::span(gateway.uptime());
    let buffer = format::count(header.buffer_size);
    let pool = format::count(header.pool_size);
    vec![
        format!("gateway pid {} up {uptime}", header.pid).into(),
        format!("{instance} {host}").into(),
        format!("buffer {buffer}").into(),
        format!("pool {pool}").into(),
        format!("version {}", header.build).into(),
        format!("workers {}", format::count(header.workers)).into(),
        format!("clock {clock}").into(),
        gateway.path().display().to_string().into(),
    ]
}

fn health(model: &Model, gateway: &Gateway) -> Vec<Span<'static>> {
    let gauge = |gauge| format::or_none(gateway.gauge(gauge), format::count);
    let counter = |counter| format::or_none(gateway.counter(counter), format::count);
    let share =
        |gauge| format::or_none(gateway.gauge(gauge), |value| format::percent(value, 1_000));
    let liveness = model.liveness().unwrap_or(gateway.liveness);
    let mut parts = vec![Span::styled(liveness.label(), style::of_liveness(liveness))];
    if let Some(behind) = model.behind() {
        let text = format!("PAUSED {} behind", format::age(behind));
        parts.push(Span::styled(text, style::HEAD));
    }
    if model.focus.is_recording {
        parts.push(Span::styled("REC", style::HEAD));
    }
    parts.extend([
        Span::from(format!("data {} old", format::age(gateway.age()))),
        format!("in flight {}", gauge(Gauge::InFlight)).into(),
        format!("waiting {}", gauge(Gauge::Waiting)).into(),
        format!("cpu {}", share(Gauge::Cpu)).into(),
        format!("steal {}", share(Gauge::Steal)).into(),
        format!("lost {}", counter(Counter::Lost)).into(),
        format!("completed {}", counter(Counter::Completed)).into(),
        format!("failed {}", counter(Counter::Failed)).into(),
        format!("refused {}", counter(Counter::Refused)).into(),
    ]);
    parts
}
