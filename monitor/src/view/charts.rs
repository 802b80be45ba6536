//! The charts: which figures, and what each is held to.

use bifrost_shared::stage::Series;
use bifrost_shared::thresholds::{T3_MEDIUM, T3_XLARGE};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;

use super::chart::{Chart, Curve, Reference};
use crate::format;
use crate::model::Gateway;
use crate::model::focus::Pane;
use crate::model::moments::Moment;
use crate::verdict::{Level, Trigger};

/// Seconds that a chart tells of among others, and alone.
const SECONDS: usize = 300;
const SECONDS_ALONE: usize = 900;

const MAIN: Color = Color::Cyan;
const BESIDE: Color = Color::Blue;
const LIMIT: Color = Color::Red;
const COMPARED: Color = Color::Yellow;

/// Draws the chart of `pane`, if it has one.
pub(super) fn render(
    area: Rect,
    buffer: &mut Buffer,
    gateway: &Gateway,
    pane: Pane,
    is_alone: bool,
) {
    let seconds = if is_alone { SECONDS_ALONE } else { SECONDS };
    if let Some(chart) = chart(gateway, pane, seconds) {
        chart.render(area, buffer);
    }
}

fn chart(gateway: &Gateway, pane: Pane, seconds: usize) -> Option<Chart> {
    let curve = |name, colour, value: fn(&Moment) -> Option<u64>| Curve {
        name,
        values: gateway.moments().last(seconds).map(value).collect(),
        colour,
    };
    let (title, curves, references, text): (_, _, _, fn(u64) -> String) = match pane {
        Pane::QueueWait => (
            "Queue wait",
            vec![
                curve("mean", MAIN, |it| it.queue_wait.mean),
                curve("p95", BESIDE, |it| it.queue_wait.p95),
            ],
            limit(gateway, Trigger::QueueWait),
            format::brief,
        ),
        Pane::Overhead => (
            "Overhead",
            vec![
                curve("mean", MAIN, |it| it.overhead.mean),
                curve("p95", BESIDE, |it| it.overhead.p95),
            ],
            overhead_references(gateway),
            format::brief,
        ),
        Pane::Load => (
            "Load",
            vec![curve("completed", MAIN, |it| Some(it.load))],
            limit(gateway, Trigger::Load),
            format::rate,
        ),
        Pane::Memory => (
            "Memory",
            vec![
                curve("RSS", MAIN, |it| Some(it.rss)),
                curve("anonymous", BESIDE, |it| Some(it.rss_anon)),
            ],
            memory_references(gateway),
            format::bytes,
        ),
        Pane::Processors => (
            "Processors",
            vec![
                curve("gateway", MAIN, |it| Some(it.cpu)),
                curve("host", BESIDE, |it| Some(it.host_cpu)),
                curve("steal", LIMIT, |it| Some(it.steal)),
            ],
            baseline(gateway),
            |permille| format::percent(permille, 1_000),
        ),
        Pane::Delay => (
            "Scheduler delay",
            vec![curve("slowest", MAIN, |it| Some(it.delay))],
            limit(gateway, Trigger::SchedulerDelay),
            format::brief,
        ),
        _ => return None,
    };
    let now = curves[0].values.last().copied().flatten();
    Some(Chart {
        title: format!("{title} {}", format::or_none(now, text)),
        curves,
        references,
        text,
        most: (pane == Pane::Processors).then_some(1_000),
        seconds,
    })
}

/// The limit in force, or, where none is known to hold here, what it is on a t3.medium.
fn limit(gateway: &Gateway, trigger: Trigger) -> Vec<Reference> {
    let judged = gateway.verdict.triggers.iter();
    let judged = judged.filter(|it| it.trigger == trigger && it.limit > 0);
    let reference = judged.map(|it| {
        let is_known = it.level != Level::Reference;
        let (name, colour) = match trigger {
            _ if is_known => ("limit", LIMIT),
            // Ours, and of no instance.
            Trigger::Overhead | Trigger::SchedulerDelay => ("reference", COMPARED),
            _ => ("t3.medium's", COMPARED),
        };
        Reference {
            name: name.to_owned(),
            value: it.limit,
            colour,
        }
    });
    reference.collect()
}

fn memory_references(gateway: &Gateway) -> Vec<Reference> {
    let mut references = limit(gateway, Trigger::Memory);
    let share = format::percent(gateway.header().thresholds.memory_permille, 1_000);
    for reference in &mut references {
        // It is so much of this host, whatever this host is.
        reference.name = format!("{share} of RAM");
    }
    references
}

/// What it is judged by, and what the page measured.
fn overhead_references(gateway: &Gateway) -> Vec<Reference> {
    let (medium, xlarge) = Series::Overhead.reference_ns();
    let measured = [(T3_MEDIUM.instance, medium), (T3_XLARGE.instance, xlarge)]
        .into_iter()
        .filter_map(|(name, value)| {
            Some(Reference {
                name: name.to_owned(),
                value: value?,
                colour: COMPARED,
            })
        });
    limit(gateway, Trigger::Overhead)
        .into_iter()
        .chain(measured)
        .collect()
}

/// What a burstable instance may do for ever.
fn baseline(gateway: &Gateway) -> Vec<Reference> {
    let credits = gateway.credits();
    let reference = credits.map(|credits| Reference {
        name: "baseline".to_owned(),
        value: credits.instance.baseline_permille,
        colour: COMPARED,
    });
    reference.into_iter().collect()
}
