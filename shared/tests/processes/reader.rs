//! A reader that believes nothing: whatever it reads is held against what the writer must have told.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bifrost_shared::layout::{self, Gauge, SAMPLES_CAPACITY, Section};
use bifrost_shared::segment::Opened;
use bifrost_shared::snapshot::{Figures, Rows, Samples, View};
use tempfile::TempDir;

use crate::told;
use crate::writer::BATCH_MAX;

/// A place for a segment: shared memory, where a gateway puts its own, if there is any.
pub(crate) fn scratch() -> (TempDir, PathBuf) {
    let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let scratch = scratch.unwrap();
    let path = scratch.path().join("gateway-1.seg");
    (scratch, path)
}

/// A reader of everything, from its beginning.
pub(crate) struct Reader {
    opened: Opened,
    view: View,
    samples: Samples,
    rows: Rows,
    /// The first number that may come next.
    next_record: u64,
    next_row: u64,
    /// Records that had been overwritten before we came.
    pub(crate) skipped: u64,
    /// Records and rows that were read whole.
    pub(crate) records: u64,
    pub(crate) rows_read: u64,
    /// Looks at the figures that gave some, and that gave none.
    pub(crate) figures: u64,
    pub(crate) no_figures: u64,
}

impl Reader {
    /// Attaches to the segment at `path`, and begins with the oldest that there is.
    pub(crate) fn attach(path: &Path) -> Self {
        let opened = Opened::open(path).unwrap();
        let words = opened.words().unwrap();
        let view = View::of(words).unwrap();
        let head = section(words, Section::Samples)[0].load(Ordering::Acquire);
        Self {
            skipped: head.saturating_sub(SAMPLES_CAPACITY as u64),
            samples: view.samples_from_oldest(words).unwrap(),
            rows: view.rows_from_oldest(words).unwrap(),
            view,
            opened,
            next_record: 0,
            next_row: 0,
            records: 0,
            rows_read: 0,
            figures: 0,
            no_figures: 0,
        }
    }

    /// Reads at most `records_max` records, and all rows. Says how many of either there were.
    pub(crate) fn read_rings(&mut self, records_max: usize) -> usize {
        let words = self.opened.words().unwrap();
        let mut read = 0;
        while read < records_max {
            let Some(record) = self.samples.next(words) else {
                break;
            };
            assert_eq!(told::contradiction_in_record(&record), None);
            assert!(
                record.id >= self.next_record,
                "back to record {}",
                record.id
            );
            self.next_record = record.id + 1;
            self.records += 1;
            read += 1;
        }
        while let Some(row) = self.rows.next(words) {
            assert_eq!(told::contradiction_in_row(&row), None);
            assert!(
                row.ended_at >= self.next_row,
                "back to row {}",
                row.ended_at
            );
            self.next_row = row.ended_at + 1;
            self.rows_read += 1;
            read += 1;
        }
        read
    }

    /// Takes one look at the figures.
    pub(crate) fn read_figures(&mut self) -> Option<Figures> {
        let figures = self.view.figures(self.opened.words().unwrap());
        match &figures {
            Some(figures) => {
                // Before the first update all is zero, which the gauges of no record are not.
                if figures.gauges[Gauge::InFlight.index()] > 0 {
                    assert_eq!(told::contradiction_in_figures(figures, BATCH_MAX), None);
                }
                self.figures += 1;
            }
            None => self.no_figures += 1,
        }
        figures
    }

    /// Records that were overwritten before they were read.
    pub(crate) const fn records_missed(&self) -> u64 {
        self.samples.missed()
    }

    /// The same of rows.
    pub(crate) const fn rows_missed(&self) -> u64 {
        self.rows.missed()
    }

    /// The words of a section.
    pub(crate) fn section(&self, kind: Section) -> &[AtomicU64] {
        section(self.opened.words().unwrap(), kind)
    }
}

fn section(words: &[AtomicU64], kind: Section) -> &[AtomicU64] {
    let place = layout::sections()[kind as usize - 1];
    let [at, length] =
        [place.offset, place.length].map(|bytes| usize::try_from(bytes / 8).unwrap());
    &words[at..at + length]
}
