//! Slots with a sequence word each: one writer that never waits, any number of readers that notice what they missed.
//!
//! The `n`th entry lies in slot `n % capacity`. The writer stores the sequence 2n + 1 (relaxed), a release fence, the
//! payload (relaxed), then 2n + 2 (release). A reader loads the sequence (acquire), wants exactly 2n + 2, copies the
//! payload (relaxed), an acquire fence, and loads the sequence again: only if it is the same was the copy whole. The
//! release fence keeps payload stores from passing the odd mark; a release *store* would not. The acquire fence keeps
//! payload loads from passing the second look.
//!
//! The same pattern with one epoch word guards the gauges and histograms, by [`begin`] and [`end`]. `ring/models.rs`
//! checks both under every order of events that the memory model allows.
//!
//! The head only tells how far to look: one that is too early shows nothing that its slot's sequence does not.

#[cfg(all(test, loom))]
mod models;

use crate::layout::RING_HEADER_WORDS;
use crate::sync::{AtomicU64, Ordering, fence, pause};

/// How often a reader tries for a whole copy before it gives up: a writer that died in the middle never ends it.
/// Under a model checker, two say all that more would.
pub const ATTEMPTS_MAX: usize = if cfg!(loom) { 2 } else { 8 };

/// The only writer of a ring.
#[derive(Debug)]
pub struct Writer {
    entry_words: usize,
    capacity: usize,
    next: u64,
}

impl Writer {
    /// A writer of entries of `payload_words` each into `words`, a whole ring section.
    ///
    /// # Panics
    ///
    /// If `words` has no room for a single entry.
    #[must_use]
    pub fn new(words: &[AtomicU64], payload_words: usize) -> Self {
        let entry_words = payload_words + 1;
        let capacity = words.len().saturating_sub(RING_HEADER_WORDS) / entry_words;
        assert!(capacity > 0, "a ring holds at least one entry");
        Self {
            entry_words,
            capacity,
            next: 0,
        }
    }

    /// Writes the next entry over the oldest.
    pub fn push(&mut self, words: &[AtomicU64], payload: &[u64]) {
        let slot = slot(words, self.entry_words, self.capacity, self.next);
        begin(&slot[0], self.next);
        for (word, value) in slot[1..].iter().zip(payload) {
            word.store(*value, Ordering::Relaxed);
        }
        end(&slot[0], self.next);
        self.next += 1;
        words[0].store(self.next, Ordering::Release);
    }
}

/// What a reader found in the place of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The entry, whole.
    Whole,
    /// It has not been written yet, or not to its end.
    NotYet,
    /// A later entry lies in its slot.
    Overwritten,
}

/// A reader of a ring, with a place of its own.
#[derive(Debug, Clone)]
pub struct Reader {
    entry_words: usize,
    capacity: usize,
    next: u64,
    /// Entries that were overwritten before they were read.
    pub missed: u64,
}

impl Reader {
    /// A reader of a ring section of `capacity` entries of `payload_words` each, that begins with the oldest entry
    /// there is. None if `words` is too short for that.
    #[must_use]
    pub fn oldest(words: &[AtomicU64], payload_words: usize, capacity: usize) -> Option<Self> {
        let entry_words = payload_words.checked_add(1)?;
        let needed = entry_words
            .checked_mul(capacity)?
            .checked_add(RING_HEADER_WORDS)?;
        if capacity == 0 || words.len() < needed {
            return None;
        }
        let head = words[0].load(Ordering::Acquire);
        Some(Self {
            entry_words,
            capacity,
            next: head.saturating_sub(capacity as u64),
            missed: 0,
        })
    }

    /// The same, but begins with what is written from now on.
    #[must_use]
    pub fn newest(words: &[AtomicU64], payload_words: usize, capacity: usize) -> Option<Self> {
        let mut reader = Self::oldest(words, payload_words, capacity)?;
        reader.next = words[0].load(Ordering::Acquire);
        Some(reader)
    }

    /// The same, but begins with entry `number`, counted from 0 since the ring was made. Entries before it are not missed.
    #[must_use]
    pub fn from(
        words: &[AtomicU64],
        payload_words: usize,
        capacity: usize,
        number: u64,
    ) -> Option<Self> {
        let mut reader = Self::newest(words, payload_words, capacity)?;
        reader.next = number.min(reader.next);
        Some(reader)
    }

    /// The number of the entry that it reads next.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// How many entries there are to read now, at most a lap.
    #[must_use]
    pub fn left(&self, words: &[AtomicU64]) -> usize {
        let left = words[0].load(Ordering::Acquire).saturating_sub(self.next);
        usize::try_from(left).map_or(self.capacity, |left| left.min(self.capacity))
    }

    /// Copies the next entry into `payload`. False when there is none yet; overwritten entries are skipped and counted.
    pub fn read(&mut self, words: &[AtomicU64], payload: &mut [u64]) -> bool {
        // One lap is the bound: a file whose head runs away must not hold the reader.
        for _ in 0..=self.capacity {
            let head = words[0].load(Ordering::Acquire);
            if self.next >= head {
                return false;
            }
            let oldest = head.saturating_sub(self.capacity as u64);
            if self.next < oldest {
                self.missed += oldest - self.next;
                self.next = oldest;
            }
            match self.read_at(words, self.next, payload) {
                Found::Whole => {
                    self.next += 1;
                    return true;
                }
                Found::NotYet => return false,
                Found::Overwritten => {
                    self.missed += 1;
                    self.next += 1;
                }
            }
        }
        false
    }

    fn read_at(&self, words: &[AtomicU64], number: u64, payload: &mut [u64]) -> Found {
        let slot = slot(words, self.entry_words, self.capacity, number);
        let whole = number.wrapping_mul(2).wrapping_add(2);
        let before = slot[0].load(Ordering::Acquire);
        if before != whole {
            return if before < whole {
                Found::NotYet
            } else {
                Found::Overwritten
            };
        }
        copy(&slot[1..], payload);
        fence(Ordering::Acquire);
        if slot[0].load(Ordering::Relaxed) == whole {
            Found::Whole
        } else {
            Found::Overwritten
        }
    }
}

/// Marks what `sequence` guards as being written for the `number`th time.
pub fn begin(sequence: &AtomicU64, number: u64) {
    sequence.store(number.wrapping_mul(2).wrapping_add(1), Ordering::Relaxed);
    fence(Ordering::Release);
}

/// Marks it as whole.
pub fn end(sequence: &AtomicU64, number: u64) {
    sequence.store(number.wrapping_mul(2).wrapping_add(2), Ordering::Release);
}

/// Runs `read` until `epoch` was even and unchanged around it, at most [`ATTEMPTS_MAX`] times. None if that never
/// happened.
pub fn consistently<T>(epoch: &AtomicU64, mut read: impl FnMut() -> T) -> Option<T> {
    for attempt in 0..ATTEMPTS_MAX {
        let before = epoch.load(Ordering::Acquire);
        if before.is_multiple_of(2) {
            let seen = read();
            fence(Ordering::Acquire);
            if epoch.load(Ordering::Relaxed) == before {
                return Some(seen);
            }
        }
        // A writer that the machine has put aside within its marks needs more than a moment; one that died, any time.
        pause(attempt);
    }
    None
}

/// Copies words one by one, each whole.
pub fn copy(from: &[AtomicU64], to: &mut [u64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.load(Ordering::Relaxed);
    }
}

fn slot(words: &[AtomicU64], entry_words: usize, capacity: usize, number: u64) -> &[AtomicU64] {
    let place = usize::try_from(number % capacity as u64).expect("below the capacity, a usize");
    let at = RING_HEADER_WORDS + place * entry_words;
    &words[at..at + entry_words]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    fn ring(payload_words: usize, capacity: usize) -> Vec<AtomicU64> {
        (0..RING_HEADER_WORDS + (payload_words + 1) * capacity)
            .map(|_| AtomicU64::new(0))
            .collect()
    }

    #[test]
    fn a_reader_gets_what_was_written_in_order() {
        let words = ring(2, 4);
        let mut reader = Reader::oldest(&words, 2, 4).unwrap();
        let mut payload = [0; 2];
        assert!(!reader.read(&words, &mut payload));
        let mut writer = Writer::new(&words, 2);
        writer.push(&words, &[1, 10]);
        writer.push(&words, &[2, 20]);
        assert!(reader.read(&words, &mut payload));
        assert_eq!(payload, [1, 10]);
        assert!(reader.read(&words, &mut payload));
        assert_eq!(payload, [2, 20]);
        assert!(!reader.read(&words, &mut payload));
        assert_eq!(reader.missed, 0);
    }

    #[test]
    fn a_lapped_reader_counts_what_it_missed_and_goes_on_with_the_oldest() {
        let words = ring(1, 4);
        let mut reader = Reader::oldest(&words, 1, 4).unwrap();
        let mut writer = Writer::new(&words, 1);
        for value in 0..10 {
            writer.push(&words, &[value]);
        }
        let mut payload = [0];
        let mut seen = vec![];
        while reader.read(&words, &mut payload) {
            seen.push(payload[0]);
        }
        assert_eq!((seen, reader.missed), (vec![6, 7, 8, 9], 6));
    }

    #[test]
    fn a_reader_goes_on_where_another_one_was_and_never_beyond_the_head() {
        let words = ring(1, 4);
        let mut writer = Writer::new(&words, 1);
        for value in 0..10 {
            writer.push(&words, &[value]);
        }
        let read = |number| {
            let mut reader = Reader::from(&words, 1, 4, number).unwrap();
            let (mut payload, mut seen) = ([0], vec![]);
            let left = reader.left(&words);
            while reader.read(&words, &mut payload) {
                seen.push(payload[0]);
            }
            assert_eq!((seen.len(), reader.left(&words)), (left, 0));
            (seen, reader.missed, reader.next())
        };
        assert_eq!(read(8), (vec![8, 9], 0, 10));
        assert_eq!(read(4), (vec![6, 7, 8, 9], 2, 10));
        assert_eq!(read(u64::MAX), (vec![], 0, 10));
    }

    #[test]
    fn an_entry_left_half_written_by_a_dead_writer_is_never_shown() {
        let words = ring(1, 4);
        let mut writer = Writer::new(&words, 1);
        writer.push(&words, &[7]);
        // The writer dies within the second entry, its head already raised by a confused restart.
        begin(&words[RING_HEADER_WORDS + 2], 1);
        words[0].store(2, Ordering::Release);
        let mut reader = Reader::oldest(&words, 1, 4).unwrap();
        let mut payload = [0];
        assert!(reader.read(&words, &mut payload));
        assert!(!reader.read(&words, &mut payload));
        assert!(consistently(&words[RING_HEADER_WORDS + 2], || ()).is_none());
    }

    #[test]
    fn a_slot_left_half_written_in_a_later_lap_costs_its_old_entry_and_no_other() {
        let words = ring(1, 4);
        let mut reader = Reader::oldest(&words, 1, 4).unwrap();
        let mut writer = Writer::new(&words, 1);
        for value in 0..5 {
            writer.push(&words, &[value]);
        }
        // The writer dies within the sixth entry, where the second lay.
        let sequence = &words[RING_HEADER_WORDS + 2];
        begin(sequence, 5);
        let mut payload = [0];
        let mut seen = vec![];
        while reader.read(&words, &mut payload) {
            seen.push(payload[0]);
        }
        assert_eq!((seen, reader.missed), (vec![2, 3, 4], 2));
        let mut late = Reader::oldest(&words, 1, 4).unwrap();
        assert!(late.read(&words, &mut payload));
        assert_eq!((payload, late.missed), ([2], 1));
    }

    #[test]
    fn an_epoch_left_odd_is_given_up_after_eight_looks_and_thirteen_milliseconds_of_waiting() {
        let epoch = AtomicU64::new(0);
        begin(&epoch, 3);
        let since = Instant::now();
        let mut looks = 0;
        assert_eq!(consistently(&epoch, || looks += 1), None);
        assert!(since.elapsed() >= Duration::from_micros(50 * 0xff));
        assert_eq!(looks, 0, "nothing is copied under an odd epoch");

        let changing = || {
            looks += 1;
            end(&epoch, looks);
        };
        assert_eq!(consistently(&epoch, changing), None);
    }

    #[test]
    fn a_ring_that_does_not_fit_its_section_is_refused() {
        let words = ring(2, 4);
        assert!(Reader::oldest(&words, 2, 5).is_none());
        assert!(Reader::oldest(&words, usize::MAX, 1).is_none());
        assert!(Reader::oldest(&words, 2, 0).is_none());
    }

    #[test]
    fn no_entry_is_torn_while_a_writer_laps_its_reader() {
        const ENTRIES: u64 = 200_000;
        let words: Arc<Vec<AtomicU64>> = Arc::new(ring(8, 4));
        let mut reader = Reader::oldest(&words, 8, 4).unwrap();
        let shared = Arc::clone(&words);
        let writing = thread::spawn(move || {
            let mut writer = Writer::new(&shared, 8);
            for number in 0..ENTRIES {
                writer.push(&shared, &[number; 8]);
            }
        });
        let mut payload = [0; 8];
        let (mut read, mut last) = (0, None);
        while read + reader.missed < ENTRIES {
            if reader.read(&words, &mut payload) {
                assert!(
                    payload.iter().all(|word| *word == payload[0]),
                    "torn: {payload:?}"
                );
                assert!(last < Some(payload[0]), "out of order");
                last = Some(payload[0]);
                read += 1;
            }
        }
        writing.join().unwrap();
        assert_eq!(read + reader.missed, ENTRIES);
    }
}
