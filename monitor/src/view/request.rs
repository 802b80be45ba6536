//! One request in full: where its time went, as a bar and in numbers, and what else its record says.

use bifrost_shared::record::{Fault, Record, flags};
use bifrost_shared::stage::Stage;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::{below, fitting, row, style};
use crate::format;
use crate::model::{Gateway, Model};

/// Columns of a stage with its numbers.
const CELL: usize = 40;
/// What no stage has, in a bar.
const REST: char = '-';
/// Neighbours differ, with or without colours: each stage has its letter, too.
const COLOURS: [Color; 4] = [Color::Cyan, Color::Magenta, Color::Blue, Color::Yellow];

/// A stage's time, and the letter that stands for it in a bar.
struct Part {
    letter: char,
    name: &'static str,
    ns: u64,
    colour: Color,
}

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model, gateway: &Gateway) {
    let requests = model.requests(gateway);
    let Some(record) = requests.get(model.selected_request(&requests)) else {
        Line::styled("Request: none selected", style::HEAD).render(row(area, 0), buffer);
        return;
    };
    Line::styled(title(record), style::HEAD).render(row(area, 0), buffer);
    let parts = parts(record);
    let width = usize::from(area.width).saturating_sub(10);
    let ours: Vec<_> = parts.iter().filter(|it| is_ours(it.name)).collect();
    bar(
        &format!("{:<10}", "all"),
        &parts.iter().collect::<Vec<_>>(),
        width,
    )
    .render(row(area, 1), buffer);
    bar(&format!("{:<10}", "gw only"), &ours, width).render(row(area, 2), buffer);
    let added = ours.iter().fold(0_u64, |sum, it| sum.saturating_add(it.ns));
    let rest = below(area, 3);
    let across = (usize::from(area.width) / CELL).max(1);
    let down = parts.len().div_ceil(across);
    for place in 0..down {
        // Down the first column, then down the next, as a request goes.
        let cells = parts.iter().skip(place).step_by(down);
        let cells = cells.flat_map(|part| cell(part, record.total, added));
        let line: Line = cells.collect();
        line.render(row(rest, place), buffer);
    }
    let rest = below(rest, u16::try_from(down).unwrap_or(u16::MAX));
    let mut facts = facts(record, gateway.chosen_by(record));
    for place in 0..usize::from(rest.height) {
        let line = fitting(facts.clone(), area.width);
        // Each fact is two spans of the line: a gap and itself.
        let used = (line.spans.len() / 2).max(1).min(facts.len());
        facts.drain(..used);
        line.render(row(rest, place), buffer);
    }
}

fn title(record: &Record) -> String {
    let status = match record.status {
        0 => "no answer".to_owned(),
        status => status.to_string(),
    };
    format!(
        "Request {:016x}  {}  {}  {status} {}",
        record.id,
        format::moment(record.ended_at),
        format::brief(record.total),
        record.outcome.label(),
    )
}

fn parts(record: &Record) -> Vec<Part> {
    let colours = COLOURS.into_iter().cycle();
    let stages = Stage::ALL.into_iter().zip('A'..).zip(colours);
    let stages = stages.map(|((stage, letter), colour)| Part {
        letter,
        name: stage.label(),
        ns: record.stage(stage),
        colour,
    });
    let rest = Part {
        letter: REST,
        name: "Unattributed",
        ns: record.unattributed(),
        colour: Color::Reset,
    };
    stages.chain([rest]).collect()
}

/// Whether the gateway itself is busy then: the provider isn't, and nobody waits on purpose.
fn is_ours(name: &str) -> bool {
    name != Stage::HttpRequest.label() && name != Stage::BackOff.label()
}

/// `parts` in proportion to their time, one after the other.
fn bar(name: &str, parts: &[&Part], width: usize) -> Line<'static> {
    let sum: u128 = parts.iter().map(|it| u128::from(it.ns)).sum();
    let mut line = Line::from(name.to_owned());
    let mut so_far = 0_u128;
    for part in parts {
        let column = |ns: u128| (ns * width as u128).checked_div(sum).unwrap_or(0);
        let from = column(so_far);
        so_far += u128::from(part.ns);
        let columns = usize::try_from(column(so_far) - from).unwrap_or(0);
        let text = part.letter.to_string().repeat(columns);
        line.push_span(Span::styled(text, part.colour));
    }
    line
}

fn cell(part: &Part, total: u64, added: u64) -> [Span<'static>; 2] {
    let whole = if is_ours(part.name) { added } else { total };
    let share = format::share(part.ns, whole);
    let of = if is_ours(part.name) { "gw" } else { "" };
    let letter = Span::styled(format!("{} ", part.letter), part.colour);
    let text = format!(
        "{:<18}{:>10} {share:>5} {of:<3}",
        part.name,
        format::duration(part.ns)
    );
    [letter, Span::from(text)]
}

/// What else there is to know, the most telling first; what is not there is left out.
fn facts(record: &Record, chosen: Option<String>) -> Vec<Span<'static>> {
    let time =
        |name: &'static str, ns: u64| (ns > 0).then(|| format!("{name} {}", format::brief(ns)));
    let number = |name: &'static str, value: u64| {
        (value > 0).then(|| format!("{name} {}", format::count(value)))
    };
    let is = |flag: u8, name: &str| (record.flags & flag != 0).then(|| name.to_owned());
    [
        chosen,
        Some(format!("overhead {}", format::brief(record.overhead()))),
        (record.fault != Fault::None).then(|| format!("fault {}", record.fault.key())),
        Some(format!("ended in {}", record.ended_in.label())),
        Some(format!("attempts {}", record.attempts)),
        number("fallbacks", record.fallbacks.into()),
        time("first byte", record.first_byte),
        time("connect", record.connect),
        time("provider worked", record.provider_time),
        time("client slow", record.back_pressure),
        time("events held", record.held),
        time("per token", record.time_per_token().unwrap_or(0)),
        Some(format!("in {}", format::bytes(record.request_bytes.into()))),
        Some(format!(
            "out {}",
            format::bytes(record.response_bytes.into())
        )),
        number("tokens in", record.prompt_tokens.into()),
        number("tokens out", record.completion_tokens.into()),
        number("events", record.events.into()),
        number("waiting before it", record.waiting.into()),
        number("in flight", record.in_flight.into()),
        Some(format!("runtime {}", record.worker)),
        is(flags::STREAM, "stream"),
        is(flags::CONNECTED, "new connection"),
        is(flags::DRAINED, "drained"),
        is(flags::TIMED_OUT, "timed out"),
    ]
    .into_iter()
    .flatten()
    .map(Span::from)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_wide_as_it_may_be_and_in_proportion() {
        let mut record = Record::default();
        record.stages[Stage::QueueWait.index()] = 30;
        record.stages[Stage::HttpRequest.index()] = 60;
        record.total = 100;
        let parts = parts(&record);
        let line = |parts: &[&Part], width| bar("", parts, width).to_string();
        let all: Vec<_> = parts.iter().collect();
        assert_eq!(line(&all, 10), "BBBIIIIII-");
        assert_eq!(line(&all, 0), "");
        let ours: Vec<_> = parts.iter().filter(|it| is_ours(it.name)).collect();
        assert_eq!(line(&ours, 8), "BBBBBB--");
        assert_eq!(line(&[], 8), "");
    }
}
