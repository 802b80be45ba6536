//! What `load` prints of one target.

use std::fmt::Write as _;

use super::figure::{NONE, Unit, count, duration, row, rule};
use super::tally::LoadReport;
use crate::machine;

/// The report in Markdown.
pub(super) fn markdown(load: &LoadReport) -> String {
    let measured = &load.measured;
    let mut text = format!("## {}\n\n{}\n\n", load.url, load.what);
    let success = measured
        .success()
        .map_or(NONE.to_owned(), |it| Unit::Share.text(it));
    let failures = measured.failures();
    let _ = writeln!(
        text,
        "{} of {} answered ({success}), {} a second{}{failures}\n",
        count(measured.ok as f64),
        count(measured.sent as f64),
        count(load.rate),
        if failures.is_empty() { "" } else { "; " },
    );
    let early = load.all.sent - measured.sent;
    if load.all.ok - measured.ok < early {
        let _ = writeln!(
            text,
            "Of {} in the warm-up, {} were answered.\n",
            count(early as f64),
            count((load.all.ok - measured.ok) as f64)
        );
    }
    let head = ["", "mean", "p50", "p90", "p99", "p99.9", "max"].map(str::to_owned);
    text += &row(&head);
    text += &rule(head.len());
    let spreads = [
        ("Latency, from when it was due", &load.latency),
        ("Less the provider's own time", &load.hop),
        ("First content of a stream", &load.first_event),
        ("Sent late by the load", &load.late),
    ];
    for (label, spread) in spreads.into_iter().filter(|(_, it)| !it.is_empty()) {
        let values = [
            spread.mean,
            spread.p50,
            spread.p90,
            spread.p99,
            spread.p999,
            spread.max,
        ];
        let cells = std::iter::once(label.to_owned()).chain(values.map(duration));
        text += &row(&cells.collect::<Vec<_>>());
    }
    if measured.connect_failed > 0 {
        let limit = machine::descriptor_limit().map_or("none".to_owned(), |it| count(it as f64));
        let _ = writeln!(
            text,
            "\nConnections failed: nobody listens there, or descriptors are too few. Each request in flight needs one here and two in a gateway, and the limit here is {limit} (`ulimit -n`)."
        );
    }
    let _ = writeln!(
        text,
        "\nThe load itself took {:.1} µs of processor time a request.\n",
        load.own_cpu_us
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn what_failed_in_the_warm_up_is_told_beside_what_was_measured() {
        let mut load = fixture::load(100.0);
        assert!(!markdown(&load).contains("warm-up"));
        load.all.sent += 3;
        load.all.ok += 1;
        load.all.broken += 2;
        let text = markdown(&load);
        assert!(
            text.contains("100,000 of 100,000 answered (100.00 %)"),
            "{text}"
        );
        assert!(
            text.contains("Of 3 in the warm-up, 1 were answered."),
            "{text}"
        );
    }
}
