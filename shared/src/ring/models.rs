//! The ring and the epoch under loom: every order of events that the memory model allows, and every mistake of ordering.
//!
//! Payloads are even, as [`Mutant`] asks. Run by `.ci/run`, step `loom`.
#![expect(
    clippy::unwrap_used,
    reason = "a test may unwrap, and so may its helpers"
)]

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::sync::{Mutant, mutate};

const ENTRIES: u64 = 2;

type Words = Arc<Vec<AtomicU64>>;

fn words(count: usize) -> Words {
    Arc::new((0..count).map(|_| AtomicU64::new(0)).collect())
}

fn ring(payload_words: usize, capacity: usize) -> Words {
    words(RING_HEADER_WORDS + (payload_words + 1) * capacity)
}

/// What the writer puts into the `number`th entry.
const fn value(number: u64) -> u64 {
    2 * (number + 1)
}

/// A sample ring of one slot, so that each write laps, and a reader that looks so often while the writer writes.
fn samples(looks: usize, raise_head: fn(&[AtomicU64], u64)) {
    loom::model(move || {
        let words = ring(2, 1);
        let mut reader = Reader::oldest(&words, 2, 1).unwrap();
        let written = Arc::clone(&words);
        let writing = thread::spawn(move || {
            let mut writer = Writer::new(&written, 2);
            for number in 0..ENTRIES {
                raise_head(&written, number + 1);
                writer.push(&written, &[value(number); 2]);
            }
        });
        let mut read = 0;
        let mut look = |reader: &mut Reader| {
            let mut payload = [0; 2];
            if reader.read(&words, &mut payload) {
                assert_eq!(payload, [value(reader.next - 1); 2], "torn");
                read += 1;
            }
        };
        for _ in 0..looks {
            look(&mut reader);
        }
        writing.join().unwrap();
        look(&mut reader);
        assert_eq!(read + reader.missed, ENTRIES);
    });
}

fn samples_with(mutant: Mutant) {
    mutate(mutant);
    samples(2, |_, _| {});
}

/// Two words under an epoch, as gauges and histograms are, and a reader that looks meanwhile.
fn epoch() {
    loom::model(|| {
        let words = words(3);
        let written = Arc::clone(&words);
        let writing = thread::spawn(move || {
            for number in 0..ENTRIES {
                update(&written, number);
            }
        });
        if let Some([first, second]) = look(&words) {
            assert_eq!(first, second, "torn");
        }
        writing.join().unwrap();
        assert_eq!(look(&words), Some([value(ENTRIES - 1); 2]));
    });
}

fn epoch_with(mutant: Mutant) {
    mutate(mutant);
    epoch();
}

fn update(words: &[AtomicU64], number: u64) {
    begin(&words[0], number);
    words[1].store(value(number), Ordering::Relaxed);
    words[2].store(value(number), Ordering::Relaxed);
    end(&words[0], number);
}

fn look(words: &[AtomicU64]) -> Option<[u64; 2]> {
    consistently(&words[0], || {
        let mut copied = [0; 2];
        copy(&words[1..], &mut copied);
        copied
    })
}

/// A seconds ring of two rows of which the third takes the first's place, and a reader that comes late and begins with
/// the oldest. Nothing but the row's own sequence guards it.
fn seconds() {
    const ROWS: u64 = 3;
    loom::model(|| {
        let rows = ring(2, 2);
        let written = Arc::clone(&rows);
        let writing = thread::spawn(move || {
            let mut writer = Writer::new(&written, 2);
            for number in 0..ROWS {
                writer.push(&written, &[value(number); 2]);
            }
        });
        if let Some(mut reader) = Reader::oldest(&rows, 2, 2) {
            let mut row = [0; 2];
            if reader.read(&rows, &mut row) {
                assert_eq!(row, [value(reader.next - 1); 2], "a torn row");
            }
        }
        writing.join().unwrap();
    });
}

/// A row that is closed after the figures that it sums up; read as a monitor does, row first.
fn seconds_and_figures() {
    loom::model(|| {
        let (figures, rows) = (words(3), ring(1, 1));
        let mut reader = Reader::oldest(&rows, 1, 1).unwrap();
        let written = (Arc::clone(&figures), Arc::clone(&rows));
        let writing = thread::spawn(move || {
            let (figures, rows) = written;
            let mut writer = Writer::new(&rows, 1);
            for number in 0..ENTRIES {
                update(&figures, number);
                writer.push(&rows, &[value(number)]);
            }
        });
        let mut row = [0];
        if reader.read(&rows, &mut row) {
            assert_eq!(row, [value(reader.next - 1)]);
            if let Some(seen) = look(&figures) {
                assert!(seen[0] >= row[0], "a row ahead of its figures");
            }
        }
        writing.join().unwrap();
    });
}

fn seconds_with(mutant: Mutant) {
    mutate(mutant);
    seconds();
}

#[test]
fn a_sample_is_whole_or_missed() {
    samples(2, |_, _| {});
}

#[test]
fn a_head_that_is_raised_before_its_slot_shows_nothing_torn() {
    samples(1, |words, head| words[0].store(head, Ordering::Relaxed));
}

#[test]
#[should_panic(expected = "torn")]
fn a_sample_is_torn_without_the_release_fence() {
    samples_with(Mutant::NoReleaseFence);
}

#[test]
#[should_panic(expected = "torn")]
fn a_sample_is_torn_with_a_release_store_for_the_fence() {
    samples_with(Mutant::ReleaseStoreForFence);
}

#[test]
#[should_panic(expected = "torn")]
fn a_sample_is_torn_without_the_acquire_fence() {
    samples_with(Mutant::NoAcquireFence);
}

#[test]
#[should_panic(expected = "torn")]
fn a_sample_is_torn_with_a_relaxed_end() {
    samples_with(Mutant::RelaxedEnd);
}

#[test]
#[should_panic(expected = "torn")]
fn a_sample_is_torn_with_a_relaxed_look() {
    samples_with(Mutant::RelaxedLook);
}

#[test]
fn figures_are_of_one_moment() {
    epoch();
}

#[test]
#[should_panic(expected = "torn")]
fn figures_are_torn_without_the_release_fence() {
    epoch_with(Mutant::NoReleaseFence);
}

#[test]
#[should_panic(expected = "torn")]
fn figures_are_torn_with_a_release_store_for_the_fence() {
    epoch_with(Mutant::ReleaseStoreForFence);
}

#[test]
#[should_panic(expected = "torn")]
fn figures_are_torn_without_the_acquire_fence() {
    epoch_with(Mutant::NoAcquireFence);
}

#[test]
#[should_panic(expected = "torn")]
fn figures_are_torn_with_a_relaxed_end() {
    epoch_with(Mutant::RelaxedEnd);
}

#[test]
#[should_panic(expected = "torn")]
fn figures_are_torn_with_a_relaxed_look() {
    epoch_with(Mutant::RelaxedLook);
}

#[test]
fn a_row_is_whole_or_missed() {
    seconds();
}

#[test]
fn a_row_is_never_ahead_of_its_figures() {
    seconds_and_figures();
}

#[test]
#[should_panic(expected = "a torn row")]
fn a_row_is_torn_without_the_release_fence() {
    seconds_with(Mutant::NoReleaseFence);
}

#[test]
#[should_panic(expected = "a torn row")]
fn a_row_is_torn_with_a_release_store_for_the_fence() {
    seconds_with(Mutant::ReleaseStoreForFence);
}

#[test]
#[should_panic(expected = "a torn row")]
fn a_row_is_torn_without_the_acquire_fence() {
    seconds_with(Mutant::NoAcquireFence);
}

#[test]
#[should_panic(expected = "a torn row")]
fn a_row_is_torn_with_a_relaxed_end() {
    seconds_with(Mutant::RelaxedEnd);
}

#[test]
#[should_panic(expected = "a torn row")]
fn a_row_is_torn_with_a_relaxed_look() {
    seconds_with(Mutant::RelaxedLook);
}
