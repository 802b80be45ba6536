//! `/snapshot`: the segment as JSON, for a monitor on another machine, at the other end of a tunnel.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bifrost_shared::layout::SAMPLES_CAPACITY;
use bifrost_shared::segment::monotonic_ns;
use bifrost_shared::snapshot::Row;
use bifrost_shared::wire::{FORMAT, Requests, Snapshot};
use http::{Request, Uri};

use super::{Desk, aside};
use crate::clock::unix_ns;
use crate::error::Error;
use crate::routes::{answer_error, answer_json};
use crate::telemetry::Telemetry;

/// Whoever asks says up to when it has the rows, and from which number on it wants single requests, as in
/// `?since=1796040000000000000&after=4711`; else it gets all there are.
pub(super) async fn snapshot(State(desk): State<Arc<Desk>>, request: Request<Body>) -> Response {
    if let Err(error) = desk.access.admit(&request) {
        return answer_error(&error);
    }
    let [since, after] = ["since=", "after="].map(|it| asked(request.uri(), it));
    aside(move || answer_json(&of(&desk.telemetry, since, after)))
        .await
        .unwrap_or_else(|| answer_error(&Error::Internal))
}

fn asked(uri: &Uri, name: &str) -> u64 {
    let query = uri.query().unwrap_or_default();
    let told = query.split('&').find_map(|it| it.strip_prefix(name));
    told.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn of(telemetry: &Telemetry, since: u64, after: u64) -> Snapshot {
    let (view, words) = telemetry.view();
    // Rows first: a row that closes between the two must not be counted with figures that already hold it.
    let rows = rows(telemetry, since);
    Snapshot {
        format: FORMAT,
        at: monotonic_ns(),
        unix_ns: unix_ns(),
        header: view.header.clone(),
        names: view.names_now(words),
        freshness: view.freshness(words),
        figures: view.figures(words),
        rows,
        requests: requests(telemetry, after),
    }
}

fn requests(telemetry: &Telemetry, after: u64) -> Requests {
    let (view, words) = telemetry.view();
    let Ok(mut samples) = view.samples_from(words, after) else {
        return Requests::default();
    };
    // One lap is the bound: a busy gateway writes on while we read.
    let records = std::iter::from_fn(|| samples.next(words));
    let records = records.take(SAMPLES_CAPACITY).collect();
    Requests::of(records, samples.number(), samples.missed())
}

fn rows(telemetry: &Telemetry, since: u64) -> Vec<Row> {
    let (view, words) = telemetry.view();
    let Ok(mut rows) = view.rows_from_oldest(words) else {
        return vec![];
    };
    std::iter::from_fn(|| rows.next(words))
        .filter(|row| row.ended_at > since)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_number_that_is_one_all_there_is_is_told() {
        for (uri, expected) in [
            (
                "/snapshot?since=1796040000000000001",
                1_796_040_000_000_000_001,
            ),
            ("/snapshot?a=b&since=7", 7),
            ("/snapshot?after=9&since=8", 8),
            ("/snapshot?since=", 0),
            ("/snapshot?since=-1", 0),
            ("/snapshot", 0),
        ] {
            assert_eq!(asked(&uri.parse().unwrap(), "since="), expected, "{uri}");
        }
    }
}
