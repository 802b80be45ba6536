//! The race: a writer at full speed against a reader at full speed.

use std::time::{Duration, Instant};

use bifrost_shared::layout::Counter;

use crate::reader::{Reader, scratch};
use crate::writer::Writing;

/// How long the race takes, in seconds; two by default. `.ci/full` takes a minute.
const SECONDS: &str = "BIFROST_RACE_SECONDS";
/// Records read before the next look at the figures.
const RECORDS_A_LOOK: usize = 2_000;

#[test]
fn nothing_is_torn_at_full_speed_and_what_was_not_read_is_counted() {
    let seconds = std::env::var(SECONDS).map_or(2, |seconds| seconds.parse().unwrap());
    let (_scratch, path) = scratch();
    let mut writing = Writing::start(&path);
    let mut reader = Reader::attach(&path);
    writing.go();

    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(seconds) {
        reader.read_rings(RECORDS_A_LOOK);
        reader.read_figures();
    }
    let tally = writing.stop();
    let took = since.elapsed().as_secs_f64();
    while reader.read_rings(RECORDS_A_LOOK) > 0 {}
    let figures = reader.read_figures().expect("the writer is at rest");

    println!(
        "{} records written in {took:.1} s ({:.2} million/s): {} read whole, {} missed; {} rows: {} read, {} missed; \
         figures read {} times, busy {} times; none torn",
        tally.records,
        tally.records as f64 / took / 1e6,
        reader.records,
        reader.records_missed(),
        tally.rows,
        reader.rows_read,
        reader.rows_missed(),
        reader.figures,
        reader.no_figures,
    );
    assert_eq!(reader.records + reader.records_missed(), tally.records);
    assert_eq!(reader.rows_read + reader.rows_missed(), tally.rows);
    assert_eq!(figures.counters[Counter::Records.index()], tally.records);
    assert_eq!(figures.histograms[0].count, tally.records);
    assert!(reader.records > 0 && reader.rows_read > 0 && reader.figures > 1);
}
