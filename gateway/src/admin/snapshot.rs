//! `/snapshot`: the segment as JSON, for a monitor on another machine, at the other end of a tunnel.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bifrost_shared::segment::monotonic_ns;
use bifrost_shared::snapshot::Row;
use bifrost_shared::wire::{FORMAT, Snapshot};
use http::{Request, Uri};

use super::{Desk, aside};
use crate::clock::unix_ns;
use crate::error::Error;
use crate::routes::{answer_error, answer_json};
use crate::telemetry::Telemetry;

/// Whoever asks says up to when it has the rows, as in `?since=1796040000000000000`; else it gets all there are.
pub(super) async fn snapshot(State(desk): State<Arc<Desk>>, request: Request<Body>) -> Response {
    if let Err(error) = desk.access.admit(&request) {
        return answer_error(&error);
    }
    let since = since(request.uri());
    aside(move || answer_json(&of(&desk.telemetry, since)))
        .await
        .unwrap_or_else(|| answer_error(&Error::Internal))
}

fn since(uri: &Uri) -> u64 {
    let query = uri.query().unwrap_or_default();
    let told = query.split('&').find_map(|it| it.strip_prefix("since="));
    told.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn of(telemetry: &Telemetry, since: u64) -> Snapshot {
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
    }
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
    fn without_a_time_that_is_one_all_rows_are_told() {
        for (uri, expected) in [
            (
                "/snapshot?since=1796040000000000001",
                1_796_040_000_000_000_001,
            ),
            ("/snapshot?a=b&since=7", 7),
            ("/snapshot?since=", 0),
            ("/snapshot?since=-1", 0),
            ("/snapshot", 0),
        ] {
            assert_eq!(since(&uri.parse().unwrap()), expected, "{uri}");
        }
    }
}
