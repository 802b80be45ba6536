//! A writer that is killed wherever it is, two hundred times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bifrost_shared::layout::{self, RING_HEADER_WORDS, SAMPLES_CAPACITY, Section, gauges};
use bifrost_shared::segment::is_alive;

use crate::reader::{Reader, scratch};
use crate::told;
use crate::writer::Writing;

const KILLS: u64 = 200;
/// Every so many writers one lives for a lap of the sample ring, and at most for another.
const LAPS_EVERY: u64 = 8;
/// The others live for at most so many records.
const RECORDS_MAX: u64 = 2_000;
/// A reader gives a dead writer's figures up after 13 ms of waiting; the rest is for a busy machine.
const GIVES_UP_WITHIN: Duration = Duration::from_millis(500);
/// Within this a reader has read all that there is.
const READS_WITHIN: Duration = Duration::from_secs(2);

/// What the writers were in when they were killed, and what became of the readers.
#[derive(Debug, Default)]
struct Deaths {
    odd_epochs: u64,
    odd_samples: u64,
    odd_rows: u64,
    odd_samples_of_a_lap: u64,
    slowest_look: Duration,
    slowest_reading: Duration,
}

#[test]
fn a_writer_killed_anywhere_leaves_whole_entries_and_a_reader_that_ends() {
    let (_scratch, path) = scratch();
    let mut deaths = Deaths::default();
    for kill in 0..KILLS {
        // Each takes over the name of the one before, as a restarted gateway does.
        let mut writing = Writing::start(&path);
        let mut before = Reader::attach(&path);
        writing.go();
        let life = if kill.is_multiple_of(LAPS_EVERY) {
            SAMPLES_CAPACITY as u64 + told::mix(kill) % SAMPLES_CAPACITY as u64
        } else {
            1 + told::mix(kill) % RECORDS_MAX
        };
        while head(&before) < life {
            before.read_rings(100);
        }
        writing.kill();

        assert!(!is_alive(&path));
        deaths.read(&mut before);
        let mut late = Reader::attach(&path);
        deaths.read(&mut late);
        deaths.count(&late);
    }
    println!("{KILLS} kills, two readers each: {deaths:?}");
    // How often is chance, some dozens of the first and a dozen of the other; never would mean that nothing was tested.
    assert!(deaths.odd_epochs > 0, "{deaths:?}");
    assert!(deaths.odd_samples > 0, "{deaths:?}");
}

impl Deaths {
    /// Reads to the end, which has to come, and has to have counted everything.
    fn read(&mut self, reader: &mut Reader) {
        let since = Instant::now();
        let figures = reader.read_figures();
        let took = since.elapsed();
        assert!(took < GIVES_UP_WITHIN, "{took:?} for a look at the figures");
        self.slowest_look = self.slowest_look.max(took);
        assert_eq!(figures.is_none(), is_odd(epoch(reader)));

        let since = Instant::now();
        while reader.read_rings(usize::MAX) > 0 {}
        let took = since.elapsed();
        assert!(took < READS_WITHIN, "{took:?} for what is left");
        self.slowest_reading = self.slowest_reading.max(took);
        assert_eq!(
            reader.records + reader.records_missed() + reader.skipped,
            head(reader)
        );
    }

    /// Counts what the writer was in.
    fn count(&mut self, reader: &Reader) {
        self.odd_epochs += u64::from(is_odd(epoch(reader)));
        self.odd_rows += u64::from(has_odd_slot(reader, Section::Seconds));
        if has_odd_slot(reader, Section::Samples) {
            self.odd_samples += 1;
            // The oldest record lay there, and can't be read any more. Before the first lap nothing did.
            if head(reader) >= SAMPLES_CAPACITY as u64 {
                self.odd_samples_of_a_lap += 1;
                assert!(reader.records_missed() > 0);
            }
        }
    }
}

fn epoch(reader: &Reader) -> &AtomicU64 {
    &reader.section(Section::Gauges)[gauges::EPOCH]
}

fn head(reader: &Reader) -> u64 {
    reader.section(Section::Samples)[0].load(Ordering::Acquire)
}

fn has_odd_slot(reader: &Reader, kind: Section) -> bool {
    let place = layout::sections()[kind as usize - 1];
    let entry_words = usize::try_from(place.entry / 8).unwrap();
    let mut slots = reader.section(kind)[RING_HEADER_WORDS..].chunks_exact(entry_words);
    slots.any(|slot| is_odd(&slot[0]))
}

fn is_odd(sequence: &AtomicU64) -> bool {
    !sequence.load(Ordering::Acquire).is_multiple_of(2)
}
