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

/// How far back single requests are looked at for who has been told of none.
const REQUESTS_AT_FIRST: u64 = 1_000;

/// Whoever asks says up to when it has the rows, and from which number on it wants single requests, as in
/// `?since=1796040000000000000&from=4711`; else it gets all rows, and the last requests.
pub(super) async fn snapshot(State(desk): State<Arc<Desk>>, request: Request<Body>) -> Response {
    if let Err(error) = desk.access.admit(&request) {
        return answer_error(&error);
    }
    let since = asked(request.uri(), "since=").unwrap_or(0);
    let from = asked(request.uri(), "from=");
    aside(move || answer_json(&of(&desk.telemetry, since, from)))
        .await
        .unwrap_or_else(|| answer_error(&Error::Internal))
}

fn asked(uri: &Uri, name: &str) -> Option<u64> {
    let query = uri.query().unwrap_or_default();
    let told = query.split('&').find_map(|it| it.strip_prefix(name));
    told?.parse().ok()
}

fn of(telemetry: &Telemetry, since: u64, from: Option<u64>) -> Snapshot {
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
        requests: requests(telemetry, from).unwrap_or_default(),
    }
}

/// None where the segment's records are of another form, which no gateway's own are.
fn requests(telemetry: &Telemetry, from: Option<u64>) -> Option<Requests> {
    let (view, words) = telemetry.view();
    let newest = view.samples_from_now(words).ok()?.number();
    let from = from.unwrap_or(newest.saturating_sub(REQUESTS_AT_FIRST));
    let mut samples = view.samples_from(words, from).ok()?;
    // One lap is the bound: a busy gateway writes on while we read.
    let records = std::iter::from_fn(|| samples.next(words));
    let records: Vec<_> = records.take(SAMPLES_CAPACITY).collect();
    Some(Requests::of(&records, samples.number(), samples.missed()))
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
    fn what_is_no_number_is_not_asked() {
        for (uri, since, from) in [
            (
                "/snapshot?since=1796040000000000001",
                Some(1_796_040_000_000_000_001),
                None,
            ),
            ("/snapshot?a=b&since=7", Some(7), None),
            ("/snapshot?from=9&since=8", Some(8), Some(9)),
            ("/snapshot?since=&from=x", None, None),
            ("/snapshot?since=-1", None, None),
            ("/snapshot", None, None),
        ] {
            let uri = uri.parse().unwrap();
            let both = (asked(&uri, "since="), asked(&uri, "from="));
            assert_eq!(both, (since, from), "{uri}");
        }
    }
}
