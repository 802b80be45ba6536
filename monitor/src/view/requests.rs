//! Single requests: the recent ones, or the slowest by what the user sorts by.

use bifrost_shared::record::{Fault, Outcome, Record};
use bifrost_shared::stage::Stage;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget as _;

use super::table::{self, Column};
use super::{below, row, style};
use crate::format;
use crate::model::focus::Order;
use crate::model::{Gateway, Model};

/// A request, and what its provider and key are called.
struct Entry<'a> {
    record: &'a Record,
    chosen: String,
}

fn columns<'a>() -> [Column<Entry<'a>>; 11] {
    let number = |name, width, rank, text: fn(&Entry<'a>) -> String| Column {
        name,
        width,
        is_text: false,
        rank,
        text,
    };
    let text = |name, width, rank, text: fn(&Entry<'a>) -> String| Column {
        is_text: true,
        ..number(name, width, rank, text)
    };
    [
        text(" ended", 14, 0, |it| {
            format!(" {}", format::moment(it.record.ended_at))
        }),
        number("total", 9, 0, |it| format::brief(it.record.total)),
        number("overhead", 10, 1, |it| format::brief(it.record.overhead())),
        number("queue", 9, 1, |it| {
            format::brief(it.record.stage(Stage::QueueWait))
        }),
        number("status", 7, 0, |it| match it.record.status {
            0 => format::NONE.to_owned(),
            status => status.to_string(),
        }),
        text(" outcome", 11, 0, |it| {
            format!(" {}", it.record.outcome.label())
        }),
        text(" provider, key", 18, 2, |it| format!(" {}", it.chosen)),
        text(" fault", 14, 3, |it| match it.record.fault {
            Fault::None => String::new(),
            fault => format!(" {}", fault.label()),
        }),
        number("tries", 6, 5, |it| it.record.attempts.to_string()),
        number("tokens out", 12, 6, |it| {
            format::count(it.record.completion_tokens.into())
        }),
        text(" id", 18, 4, |it| format!(" {:016x}", it.record.id)),
    ]
}

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model, gateway: &Gateway) {
    let requests = model.requests(gateway);
    // A recording has few of them.
    let recorded = if gateway.is_replayed() {
        "recorded "
    } else {
        ""
    };
    let kind = match model.focus.order {
        Order::Time => format!("Recent {recorded}requests, newest first"),
        order => format!("Slowest {recorded}requests by {}", order.label()),
    };
    let filter = match model.focus.filter.as_str() {
        "" => String::new(),
        filter => format!(", with {filter:?}"),
    };
    let missed = match gateway.requests_missed() {
        0 => String::new(),
        missed => format!(", {} more were not told", format::count(missed)),
    };
    let found = format::count(requests.len() as u64);
    let title = format!("{kind}{filter}: {found}{missed}");
    Line::styled(title, style::HEAD).render(row(area, 0), buffer);
    let rest = below(area, 1);
    if requests.is_empty() {
        let text = if model.focus.filter.is_empty() {
            " none yet"
        } else {
            " none"
        };
        Line::from(text).render(row(rest, 0), buffer);
        return;
    }
    let selected = model.selected_request(&requests);
    // Only those near the selected one are dressed: there may be a thousand.
    let places = usize::from(rest.height).saturating_sub(1);
    let first = table::first_shown(selected, requests.len(), places);
    let shown = requests.iter().skip(first).take(places);
    let entries: Vec<_> = shown
        .map(|record| Entry {
            record,
            chosen: gateway.chosen_by(record).unwrap_or_default(),
        })
        .collect();
    table::render(
        rest,
        buffer,
        &columns(),
        &entries,
        Some(selected - first),
        |it| style::of_outcome(it.record.outcome),
    );
}

/// Whether an outcome is the gateway's or a provider's fault.
pub(super) const fn is_bad(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Failed | Outcome::Refused | Outcome::Truncated
    )
}
