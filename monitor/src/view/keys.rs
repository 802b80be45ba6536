//! Providers and keys: how each is, its share, and how its answers come.

use bifrost_shared::slot::{Slot, SlotCount, SlotState};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::table::{self, Column};
use super::{below, fitting, row, style};
use crate::format;
use crate::model::slots::Gain;
use crate::model::{Gateway, Model};

/// A provider or a key.
struct Entry<'a> {
    name: String,
    slot: &'a Slot,
    gain: Gain,
    /// Now, nanoseconds since the Unix epoch.
    now: u64,
}

const NAME: usize = 20;

fn columns<'a>() -> [Column<Entry<'a>>; 17] {
    let count = |name, width, rank, text: fn(&Entry<'a>) -> String| Column {
        name,
        width,
        is_text: false,
        rank,
        text,
    };
    [
        Column {
            name: " Provider, key",
            width: NAME,
            is_text: true,
            rank: 0,
            text: |it| it.name.clone(),
        },
        Column {
            name: "state",
            width: 9,
            is_text: true,
            rank: 0,
            text: |it| it.slot.state.label().to_owned(),
        },
        Column {
            name: "until",
            width: 10,
            is_text: true,
            rank: 6,
            text: |it| until(it).unwrap_or_default(),
        },
        count("weight", 8, 5, |it| of_key(it, weight)),
        count("share", 7, 2, |it| {
            format::or_none(it.gain.share, |share| format::percent(share, 1_000))
        }),
        count("req/s", 9, 1, rate),
        count("mean", 9, 4, |it| {
            format::or_none(it.gain.latency.mean(), format::brief)
        }),
        count("p95", 9, 3, |it| {
            format::or_none(it.gain.latency.quantile(0.95), format::brief)
        }),
        count("attempts", 12, 8, |it| total(it, SlotCount::Attempts)),
        count("answered", 12, 9, |it| total(it, SlotCount::Answered)),
        count("429", 8, 5, |it| total(it, SlotCount::RateLimited)),
        count("refused", 9, 11, |it| total(it, SlotCount::Refused)),
        count("failed", 9, 7, |it| total(it, SlotCount::Failed)),
        count("places", 14, 10, places),
        count("waiting", 9, 10, |it| {
            of_provider(it, |slot| format::count(slot.waiting))
        }),
        count("tokens in", 14, 12, |it| total(it, SlotCount::PromptTokens)),
        count("out", 14, 13, |it| total(it, SlotCount::CompletionTokens)),
    ]
}

/// The table; with `selected`, the row at that place stands out and is explained below.
pub(super) fn render(
    area: Rect,
    buffer: &mut Buffer,
    model: &Model,
    gateway: &Gateway,
    selected: Option<usize>,
) {
    let entries = entries(model, gateway);
    let span = entries.first().map_or(0, |it| it.gain.span);
    let title = format!(
        "Providers and keys: rates and times of the last {}, counts since start",
        format::span(span)
    );
    Line::styled(title, style::HEAD).render(row(area, 0), buffer);
    let rest = below(area, 1);
    if entries.is_empty() {
        Line::from(" none are told by this gateway").render(row(rest, 0), buffer);
        return;
    }
    let selected = selected.map(|place| place.min(entries.len() - 1));
    table::render(rest, buffer, &columns(), &entries, selected, |it| {
        style::of_slot(it.slot.state)
    });
    if let Some(selected) = selected {
        let foot = below(rest, u16::try_from(entries.len() + 2).unwrap_or(u16::MAX));
        in_full(&entries[selected], foot, buffer);
    }
}

/// The selected one: its state in words, then every figure, as many as there is room for.
fn in_full(it: &Entry, area: Rect, buffer: &mut Buffer) {
    Line::from(explanation(it)).render(row(area, 0), buffer);
    let figures = columns().into_iter().skip(3);
    let mut figures: Vec<_> = figures
        .map(|column| (column.name, (column.text)(it)))
        .filter(|(_, text)| !text.is_empty())
        .map(|(name, text)| Span::from(format!("{name} {text}")))
        .collect();
    for place in 1..usize::from(area.height) {
        if figures.is_empty() {
            break;
        }
        let line = fitting(figures.clone(), area.width);
        // Each figure is two spans of the line: a gap and itself.
        let used = (line.spans.len() / 2).max(1).min(figures.len());
        figures.drain(..used);
        line.render(row(area, place), buffer);
    }
}

fn entries<'a>(model: &Model, gateway: &'a Gateway) -> Vec<Entry<'a>> {
    let slots = gateway.slots_in(model.window).into_iter();
    slots
        .map(|(slot, gain)| {
            let indent = if slot.key.is_some() { "   " } else { " " };
            Entry {
                name: format!("{indent}{}", gateway.slot_name(slot)),
                slot,
                gain,
                now: gateway.seen_at(),
            }
        })
        .collect()
}

/// The time of day at which it is asked again, where that is told.
fn until(it: &Entry) -> Option<String> {
    let is_resting = it.slot.state == SlotState::Resting && it.slot.until > 0;
    is_resting.then(|| format::clock(it.slot.until))
}

fn explanation(it: &Entry) -> String {
    let what = if it.slot.key.is_some() {
        "key"
    } else {
        "provider"
    };
    let state = match it.slot.state {
        SlotState::Empty => "there is none".to_owned(),
        SlotState::Ready => format!("ready: this {what} is asked"),
        SlotState::Warming => "warming: it came back a moment ago, and is asked less".to_owned(),
        SlotState::Resting => {
            let left = format::span(it.slot.until.saturating_sub(it.now));
            match until(it) {
                Some(until) => format!("resting until {until}, {left} to go: it is at its limit"),
                None => "resting: it is at its limit".to_owned(),
            }
        }
        SlotState::Benched => "benched: the provider refuses it; look at the key".to_owned(),
        SlotState::Off => "off: its weight is zero, so it is never asked".to_owned(),
    };
    format!(" {}: {state}", it.name.trim())
}

fn of_key(it: &Entry, text: fn(&Slot) -> String) -> String {
    match it.slot.key {
        Some(_) => text(it.slot),
        None => String::new(),
    }
}

fn of_provider(it: &Entry, text: fn(&Slot) -> String) -> String {
    match it.slot.key {
        Some(_) => String::new(),
        None => text(it.slot),
    }
}

fn weight(slot: &Slot) -> String {
    let hundredths = slot.weight_millionths.saturating_add(5_000) / 10_000;
    match hundredths {
        100_000.. => ">999".to_owned(),
        _ => format!("{}.{:02}", hundredths / 100, hundredths % 100),
    }
}

fn places(it: &Entry) -> String {
    of_provider(it, |slot| {
        format!(
            "{}/{}",
            format::count(slot.taken),
            format::count(slot.places)
        )
    })
}

fn rate(it: &Entry) -> String {
    format::or_none(
        it.gain.tenths_per_second(SlotCount::Attempts),
        |tenths| match tenths {
            0..1_000 => format!("{}.{}", tenths / 10, tenths % 10),
            _ => format::count(tenths / 10),
        },
    )
}

fn total(it: &Entry, count: SlotCount) -> String {
    format::count(it.slot.count(count))
}
