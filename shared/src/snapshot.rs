//! A reader's view of a segment, as plain values: who writes it, and what its figures are now and second by second.
//! Nothing in the file is trusted.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::forms::{RUNTIMES_MAX, SLOTS_MAX};
use crate::histogram::{BUCKETS, Histogram};
use crate::layout::{
    self, COUNTERS_ROOM, ClockKind, Counter, CreditMode, FAULTS_ROOM, GAUGES_ROOM, Gauge, NameKind,
    SERIES_ROOM, Section, SectionPlace, State, VERSION_MAJOR, gauges, header, name, row,
};
use crate::record::{Fault, RECORD_WORDS, Record};
use crate::ring;
use crate::slot::{self, Slot};
use crate::stage::Series;
use crate::thresholds::Thresholds;

/// Why a file that begins like a segment is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Its major version is another.
    #[error(
        "the segment has layout {found}, and this program reads {VERSION_MAJOR}: use the monitor of the same release"
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// A part that every version has is missing or does not fit the file.
    #[error("the segment's {0} does not fit the file")]
    Damaged(&'static str),
    /// Somebody cut the file.
    #[error("the segment was truncated")]
    Truncated,
}

/// Who writes a segment, and under which limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Major and minor version of the layout.
    pub version: (u32, u32),
    /// The gateway's process id.
    pub pid: u64,
    /// When the process started, in the kernel's ticks since boot.
    pub start_ticks: u64,
    /// The kernel's boot id.
    pub boot_id: [u64; 2],
    /// When the gateway started, nanoseconds since the Unix epoch.
    pub started_at: u64,
    /// What its stamps are read from.
    pub clock: ClockKind,
    /// What one stamp costs, picoseconds.
    pub stamp_cost_ps: u64,
    /// Processors it may use.
    pub vcpus: u64,
    /// Memory of the host, bytes.
    pub memory_total: u64,
    /// The lower of that and the control group's limit, bytes.
    pub memory_limit: u64,
    /// `client.buffer_size`.
    pub buffer_size: u64,
    /// `client.initial_pool_size`.
    pub pool_size: u64,
    /// Runtimes that serve requests.
    pub workers: u64,
    /// The limits in force.
    pub thresholds: Thresholds,
    /// The gateway's version.
    #[serde(deserialize_with = "crate::forms::text")]
    pub build: String,
    /// The instance type, or empty where it is not known.
    #[serde(deserialize_with = "crate::forms::text")]
    pub instance: String,
    /// What happens when its CPU credits are spent.
    pub credit_mode: CreditMode,
}

/// A label of the segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The kind, by its number; [`NameKind`] names those that this version knows.
    pub kind: u64,
    /// Its place within the kind.
    pub index: u64,
    /// Whether it is a stage.
    pub is_stage: bool,
    /// Whether it is a stage that counts in the overhead.
    pub in_overhead: bool,
    /// The page's means, ns: t3.medium, t3.xlarge.
    pub reference_ns: (Option<u64>, Option<u64>),
    /// The name that programs read.
    #[serde(deserialize_with = "crate::forms::text")]
    pub key: String,
    /// The name that people read.
    #[serde(deserialize_with = "crate::forms::text")]
    pub label: String,
}

/// The figures of one moment. There is room in each part for what a later version adds: it has a name in the segment's
/// list, and no enum here that knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Counters, by [`Counter::index`].
    #[serde(with = "crate::forms::sparse")]
    pub counters: [u64; COUNTERS_ROOM],
    /// Gauges, by [`Gauge::index`].
    #[serde(with = "crate::forms::sparse")]
    pub gauges: [u64; GAUGES_ROOM],
    /// Requests that ended with each fault, by [`Fault::index`].
    #[serde(with = "crate::forms::sparse")]
    pub faults: [u64; FAULTS_ROOM],
    /// Cumulative histograms, by [`Series::index`]; [`SERIES_ROOM`] of them.
    #[serde(with = "crate::forms::histograms")]
    pub histograms: Vec<Histogram>,
    /// The runtimes that serve requests.
    #[serde(deserialize_with = "crate::forms::at_most::<_, _, RUNTIMES_MAX>")]
    pub runtimes: Vec<Runtime>,
    /// Providers and keys.
    #[serde(deserialize_with = "crate::forms::at_most::<_, _, SLOTS_MAX>")]
    pub slots: Vec<Slot>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            counters: [0; COUNTERS_ROOM],
            gauges: [0; GAUGES_ROOM],
            faults: [0; FAULTS_ROOM],
            histograms: vec![Histogram::default(); SERIES_ROOM],
            runtimes: vec![],
            slots: vec![],
        }
    }
}

impl Figures {
    /// A counter's value.
    #[must_use]
    pub const fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter.index()]
    }

    /// A gauge's value.
    #[must_use]
    pub const fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge.index()]
    }

    /// Requests that ended with `fault`.
    #[must_use]
    pub const fn faults(&self, fault: Fault) -> u64 {
        self.faults[fault.index()]
    }

    /// The cumulative histogram of `series`.
    #[must_use]
    pub fn histogram(&self, series: Series) -> &Histogram {
        &self.histograms[series.index()]
    }
}

/// How one runtime is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Runtime {
    /// When it last ran a task of ours, on the system's monotonic clock, ns.
    pub ran_at: u64,
    /// How long it made a task wait in the last second, on average, ns.
    pub delay: u64,
    /// Records that its lane had no room for.
    pub lost: u64,
}

/// What one second's values of a series come to; times are ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// How many there were.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The value that half of them do not exceed.
    pub p50: u64,
    /// The same for 95 of 100.
    pub p95: u64,
    /// The same for 99 of 100.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

impl Summary {
    /// What `histogram` comes to.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Self {
        let quantile = |share| histogram.quantile(share).unwrap_or(0);
        Self {
            count: histogram.count,
            sum: histogram.sum,
            p50: quantile(0.5),
            p95: quantile(0.95),
            p99: quantile(0.99),
            max: histogram.max,
        }
    }

    /// The mean; none without a value.
    #[must_use]
    pub const fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }

    pub(crate) const fn words(self) -> [u64; row::SERIES_WORDS] {
        [self.count, self.sum, self.p50, self.p95, self.p99, self.max]
    }

    pub(crate) const fn from_words(
        [count, sum, p50, p95, p99, max]: [u64; row::SERIES_WORDS],
    ) -> Self {
        Self {
            count,
            sum,
            p50,
            p95,
            p99,
            max,
        }
    }
}

/// One second, as the exporter closed it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Row {
    /// When it ended, nanoseconds since the Unix epoch.
    pub ended_at: u64,
    /// How long it was, nanoseconds.
    pub duration: u64,
    /// See [`layout::row_flags`].
    #[serde(default, skip_serializing_if = "crate::forms::is_zero")]
    pub flags: u64,
    /// Requests that waited longer than the limit.
    #[serde(default, skip_serializing_if = "crate::forms::is_zero")]
    pub over_queue_limit: u64,
    /// Requests whose overhead was above its limit.
    #[serde(default, skip_serializing_if = "crate::forms::is_zero")]
    pub over_overhead_limit: u64,
    /// What each counter gained.
    #[serde(with = "crate::forms::sparse")]
    pub counters: [u64; COUNTERS_ROOM],
    /// Each gauge at its end.
    #[serde(with = "crate::forms::sparse")]
    pub gauges: [u64; GAUGES_ROOM],
    /// What each series came to.
    #[serde(with = "crate::wire::series")]
    pub series: [Summary; SERIES_ROOM],
}

impl Row {
    /// What `counter` gained in this second.
    #[must_use]
    pub const fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter.index()]
    }

    /// `gauge` at its end.
    #[must_use]
    pub const fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge.index()]
    }

    /// What `series` came to.
    #[must_use]
    pub const fn summary(&self, series: Series) -> &Summary {
        &self.series[series.index()]
    }

    /// The mean of `series`, ns. None in a second without any.
    #[must_use]
    pub const fn mean(&self, series: Series) -> Option<u64> {
        self.summary(series).mean()
    }

    /// The row as the payload of a slot.
    #[must_use]
    pub fn to_words(&self) -> [u64; row::WORDS] {
        let mut words = [0; row::WORDS];
        words[row::ENDED_AT] = self.ended_at;
        words[row::DURATION] = self.duration;
        words[row::FLAGS] = self.flags;
        words[row::OVER_QUEUE_LIMIT] = self.over_queue_limit;
        words[row::OVER_OVERHEAD_LIMIT] = self.over_overhead_limit;
        words[row::COUNTERS..row::GAUGES].copy_from_slice(&self.counters);
        words[row::GAUGES..row::SERIES].copy_from_slice(&self.gauges);
        words[row::SERIES..].copy_from_slice(self.series.map(Summary::words).as_flattened());
        words
    }

    /// The row in the payload of a slot.
    #[must_use]
    pub fn from_words(words: &[u64; row::WORDS]) -> Self {
        Self {
            ended_at: words[row::ENDED_AT],
            duration: words[row::DURATION],
            flags: words[row::FLAGS],
            over_queue_limit: words[row::OVER_QUEUE_LIMIT],
            over_overhead_limit: words[row::OVER_OVERHEAD_LIMIT],
            counters: std::array::from_fn(|counter| words[row::COUNTERS + counter]),
            gauges: std::array::from_fn(|gauge| words[row::GAUGES + gauge]),
            series: std::array::from_fn(|series| {
                let at = row::SERIES + series * row::SERIES_WORDS;
                Summary::from_words(std::array::from_fn(|word| words[at + word]))
            }),
        }
    }
}

/// How fresh a segment is. Whether its writer lives is told by the lock, not by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freshness {
    /// What the gateway says it is doing.
    #[serde(with = "crate::forms::state")]
    pub state: Option<State>,
    /// When the exporter last came by, nanoseconds of the system's monotonic clock.
    pub exporter_at: u64,
    /// When the runtime that is latest came by.
    pub slowest_runtime_at: u64,
}

/// Where a reader finds each part, checked against the file once.
#[derive(Debug, Clone)]
pub struct View {
    /// Who writes it.
    pub header: Header,
    /// Its labels, as they were when somebody last looked.
    pub names: Vec<Name>,
    names_at: SectionPlace,
    gauges: SectionPlace,
    histograms: SectionPlace,
    seconds: SectionPlace,
    samples: SectionPlace,
    slots: SectionPlace,
}

impl View {
    /// Checks `words`, the whole segment.
    ///
    /// # Errors
    ///
    /// When the version is another, or a part does not fit.
    pub fn of(words: &[AtomicU64]) -> Result<Self, Unreadable> {
        let header = read_header(words)?;
        let place = |kind: Section, what| find(words, kind).ok_or(Unreadable::Damaged(what));
        let names_at = place(Section::Names, "list of names")?;
        let view = Self {
            names: read_names(words, names_at),
            names_at,
            gauges: place(Section::Gauges, "gauges section")?,
            histograms: place(Section::Histograms, "histograms section")?,
            seconds: place(Section::Seconds, "seconds section")?,
            samples: place(Section::Samples, "samples section")?,
            slots: place(Section::Slots, "slots section")?,
            header,
        };
        let long_enough = view.gauges.length >= gauges::WORDS as u64 * 8
            && view.histograms.entry >= layout::histogram::WORDS as u64 * 8
            && view.histograms.count >= SERIES_ROOM as u64
            && view.slots.entry >= slot::WORDS as u64 * 8
            && view.histograms.entry.saturating_mul(view.histograms.count)
                <= view.histograms.length;
        if !long_enough {
            return Err(Unreadable::Damaged("section table"));
        }
        view.rows_from_oldest(words)?;
        view.samples_from_now(words)?;
        Ok(view)
    }

    /// The view of a gateway whose segment lies elsewhere: there is its header and its names, and whoever has its words
    /// after all finds in them what a segment of this version has.
    #[must_use]
    pub fn told(header: Header, names: Vec<Name>) -> Self {
        let [names_at, gauges, histograms, seconds, samples, slots] = layout::sections();
        Self {
            header,
            names,
            names_at,
            gauges,
            histograms,
            seconds,
            samples,
            slots,
        }
    }

    /// The labels as they are now: a gateway that reloads its settings changes those of providers and keys. What is read
    /// while it does may be one of each, and is right the next time.
    #[must_use]
    pub fn names_now(&self, words: &[AtomicU64]) -> Vec<Name> {
        read_names(words, self.names_at)
    }

    /// The labels of one kind, in order.
    pub fn names_of(&self, kind: NameKind) -> impl Iterator<Item = &Name> {
        self.names
            .iter()
            .filter(move |name| name.kind == kind as u64)
    }

    /// How fresh it is.
    #[must_use]
    pub fn freshness(&self, words: &[AtomicU64]) -> Freshness {
        let section = section(words, self.gauges);
        let beats = self.runtimes(section).into_iter();
        Freshness {
            state: State::from_number(words[header::STATE].load(Ordering::Acquire)),
            exporter_at: section[gauges::HEARTBEAT].load(Ordering::Acquire),
            slowest_runtime_at: beats.map(|runtime| runtime.ran_at).min().unwrap_or(0),
        }
    }

    fn runtimes(&self, gauges_at: &[AtomicU64]) -> Vec<Runtime> {
        let count = usize::try_from(self.header.workers).unwrap_or(0);
        let word = |at: usize| gauges_at[at].load(Ordering::Relaxed);
        (0..count.min(gauges::RUNTIMES_MAX))
            .map(|at| Runtime {
                ran_at: word(gauges::RUNTIME_HEARTBEATS + at),
                delay: word(gauges::DELAYS + at),
                lost: word(gauges::LOST + at),
            })
            .collect()
    }

    /// The figures of this moment; none if the writer died while it was changing them.
    #[must_use]
    pub fn figures(&self, words: &[AtomicU64]) -> Option<Figures> {
        let gauges_at = section(words, self.gauges);
        let histograms_at = section(words, self.histograms);
        let entry = usize::try_from(self.histograms.entry / 8).ok()?;
        let slots_at = section(words, self.slots);
        let slot_entry = usize::try_from(self.slots.entry / 8).ok()?;
        let slot_count = usize::try_from(self.slots.count).ok()?;
        ring::consistently(&gauges_at[gauges::EPOCH], || {
            let mut figures = Figures {
                counters: [0; COUNTERS_ROOM],
                gauges: [0; GAUGES_ROOM],
                faults: [0; FAULTS_ROOM],
                histograms: Vec::with_capacity(SERIES_ROOM),
                runtimes: self.runtimes(gauges_at),
                slots: slot::read(slots_at, slot_entry, slot_count),
            };
            ring::copy(&gauges_at[gauges::FAULTS..], &mut figures.faults);
            ring::copy(&gauges_at[gauges::COUNTERS..], &mut figures.counters);
            ring::copy(&gauges_at[gauges::GAUGES..], &mut figures.gauges);
            for series in 0..SERIES_ROOM {
                let words =
                    &histograms_at[series * entry..series * entry + layout::histogram::WORDS];
                let mut histogram = Histogram {
                    count: words[layout::histogram::COUNT].load(Ordering::Relaxed),
                    sum: words[layout::histogram::SUM].load(Ordering::Relaxed),
                    max: words[layout::histogram::MAX].load(Ordering::Relaxed),
                    ..Histogram::default()
                };
                debug_assert_eq!(histogram.buckets.len(), BUCKETS);
                ring::copy(&words[layout::histogram::BUCKETS..], &mut histogram.buckets);
                figures.histograms.push(histogram);
            }
            figures
        })
    }

    /// A reader of the rows, beginning with the oldest there is.
    ///
    /// # Errors
    ///
    /// When the section's entries are shorter than this version's.
    pub fn rows_from_oldest(&self, words: &[AtomicU64]) -> Result<Rows, Unreadable> {
        let damaged = Unreadable::Damaged("seconds section");
        let (payload, count) = entries(self.seconds, row::WORDS).ok_or_else(|| damaged.clone())?;
        let ring =
            ring::Reader::oldest(section(words, self.seconds), payload, count).ok_or(damaged)?;
        Ok(Rows {
            ring,
            place: self.seconds,
            payload: vec![0; payload],
        })
    }

    /// A reader of the records, beginning with those still to come.
    ///
    /// # Errors
    ///
    /// When the section's entries are shorter than this version's.
    pub fn samples_from_now(&self, words: &[AtomicU64]) -> Result<Samples, Unreadable> {
        self.samples(words, ring::Reader::newest)
    }

    /// A reader of the records, beginning with the oldest there is.
    ///
    /// # Errors
    ///
    /// When the section's entries are shorter than this version's.
    pub fn samples_from_oldest(&self, words: &[AtomicU64]) -> Result<Samples, Unreadable> {
        self.samples(words, ring::Reader::oldest)
    }

    /// A reader of the records, beginning with that `number`: see [`Samples::number`].
    ///
    /// # Errors
    ///
    /// When the section's entries are shorter than this version's.
    pub fn samples_from(&self, words: &[AtomicU64], number: u64) -> Result<Samples, Unreadable> {
        self.samples(words, |words, payload, count| {
            ring::Reader::from(words, payload, count, number)
        })
    }

    fn samples(
        &self,
        words: &[AtomicU64],
        reader: impl Fn(&[AtomicU64], usize, usize) -> Option<ring::Reader>,
    ) -> Result<Samples, Unreadable> {
        let damaged = Unreadable::Damaged("samples section");
        let (payload, count) =
            entries(self.samples, RECORD_WORDS).ok_or_else(|| damaged.clone())?;
        let ring = reader(section(words, self.samples), payload, count).ok_or(damaged)?;
        Ok(Samples {
            ring,
            place: self.samples,
            payload: vec![0; payload],
        })
    }
}

/// A reader of the rows.
#[derive(Debug, Clone)]
pub struct Rows {
    ring: ring::Reader,
    place: SectionPlace,
    payload: Vec<u64>,
}

impl Rows {
    /// How many rows there are to read now.
    #[must_use]
    pub fn left(&self, words: &[AtomicU64]) -> usize {
        self.ring.left(section(words, self.place))
    }

    /// The next row, if it is there.
    pub fn next(&mut self, words: &[AtomicU64]) -> Option<Row> {
        let found = self
            .ring
            .read(section(words, self.place), &mut self.payload);
        found.then(|| {
            Row::from_words(
                self.payload
                    .first_chunk()
                    .expect("checked when the reader was made"),
            )
        })
    }

    /// Rows that were overwritten before they were read.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.ring.missed
    }
}

/// A reader of the records.
#[derive(Debug, Clone)]
pub struct Samples {
    ring: ring::Reader,
    place: SectionPlace,
    payload: Vec<u64>,
}

impl Samples {
    /// The number of the record that it reads next, counted from 0 since the gateway started.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.ring.next()
    }

    /// The next record, if it is there.
    pub fn next(&mut self, words: &[AtomicU64]) -> Option<Record> {
        let found = self
            .ring
            .read(section(words, self.place), &mut self.payload);
        found.then(|| {
            Record::from_words(
                self.payload
                    .first_chunk()
                    .expect("checked when the reader was made"),
            )
        })
    }

    /// Records that were overwritten before they were read.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.ring.missed
    }
}

/// Words of an entry's payload, and how many entries; none when they are shorter than `needed`.
fn entries(place: SectionPlace, needed: usize) -> Option<(usize, usize)> {
    let payload = usize::try_from(place.entry / 8).ok()?.checked_sub(1)?;
    (payload >= needed).then_some((payload, usize::try_from(place.count).ok()?))
}

fn read_header(words: &[AtomicU64]) -> Result<Header, Unreadable> {
    if words.len() * 8 < layout::HEADER_BYTES {
        return Err(Unreadable::Truncated);
    }
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    let text = |at: usize| {
        let mut text = [0; header::TEXT_WORDS];
        ring::copy(&words[at..], &mut text);
        layout::text_of(&text)
    };
    let version = (
        halves(word(header::VERSION)).1,
        halves(word(header::VERSION)).0,
    );
    if version.0 != VERSION_MAJOR {
        return Err(Unreadable::Version { found: version.0 });
    }
    Ok(Header {
        version,
        pid: word(header::PID),
        start_ticks: word(header::START_TICKS),
        boot_id: [word(header::BOOT_ID), word(header::BOOT_ID + 1)],
        started_at: word(header::STARTED_AT),
        clock: ClockKind::from(word(header::CLOCK_KIND)),
        stamp_cost_ps: word(header::STAMP_COST_PS),
        vcpus: word(header::VCPUS),
        memory_total: word(header::MEMORY_TOTAL),
        memory_limit: word(header::MEMORY_LIMIT),
        buffer_size: word(header::BUFFER_SIZE),
        pool_size: word(header::POOL_SIZE),
        workers: word(header::WORKERS),
        thresholds: Thresholds {
            queue_wait_ns: word(header::THRESHOLDS),
            load_rps: word(header::THRESHOLDS + 1),
            memory_permille: word(header::THRESHOLDS + 2),
            overhead_ns: word(header::THRESHOLDS + 3),
            scheduler_delay_ns: word(header::THRESHOLDS + 4),
            credit_runway_ns: word(header::THRESHOLDS + 5),
        },
        build: text(header::BUILD),
        instance: text(header::INSTANCE),
        credit_mode: CreditMode::from_number(word(header::CREDIT_MODE)),
    })
}

fn halves(word: u64) -> (u32, u32) {
    let bytes = word.to_le_bytes();
    let half =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    (half(0), half(4))
}

/// The section of that kind, if the table has one that lies within the file.
fn find(words: &[AtomicU64], kind: Section) -> Option<SectionPlace> {
    let count = words[header::SECTION_COUNT]
        .load(Ordering::Relaxed)
        .min(header::SECTIONS_MAX as u64);
    (0..usize::try_from(count).ok()?)
        .map(|section| {
            let mut entry = [0; header::SECTION_WORDS];
            ring::copy(
                &words[header::SECTIONS + section * header::SECTION_WORDS..],
                &mut entry,
            );
            let [kind, offset, length, entry, count] = entry;
            SectionPlace {
                kind,
                offset,
                length,
                entry,
                count,
            }
        })
        .find(|place| {
            place.kind == kind as u64
                && place.offset % 8 == 0
                && place.entry % 8 == 0
                && place.entry > 0
                && place
                    .offset
                    .checked_add(place.length)
                    .is_some_and(|end| end <= words.len() as u64 * 8)
        })
}

/// The words of a section that [`find`] has checked.
fn section(words: &[AtomicU64], place: SectionPlace) -> &[AtomicU64] {
    let at = usize::try_from(place.offset / 8).unwrap_or(usize::MAX);
    let end = at.saturating_add(usize::try_from(place.length / 8).unwrap_or(usize::MAX));
    words.get(at..end).unwrap_or_default()
}

fn read_names(words: &[AtomicU64], place: SectionPlace) -> Vec<Name> {
    let section = section(words, place);
    let entry = usize::try_from(place.entry / 8).unwrap_or(usize::MAX);
    if entry < name::WORDS {
        return vec![];
    }
    let count = usize::try_from(place.count).unwrap_or(usize::MAX);
    section
        .chunks_exact(entry)
        .take(count)
        .map(|words| {
            let mut copy = [0; name::WORDS];
            ring::copy(words, &mut copy);
            let some = |word: u64| (word > 0).then_some(word);
            Name {
                kind: copy[name::KIND],
                index: copy[name::INDEX],
                is_stage: copy[name::FLAGS] & 2 == 2,
                in_overhead: copy[name::FLAGS] & 1 == 1,
                reference_ns: (
                    some(copy[name::REFERENCE_MEDIUM]),
                    some(copy[name::REFERENCE_XLARGE]),
                ),
                key: layout::text_of(&copy[name::KEY..name::KEY + name::KEY_WORDS]),
                label: layout::text_of(&copy[name::LABEL..name::LABEL + name::LABEL_WORDS]),
            }
        })
        .filter(|name| name.kind != 0)
        .collect()
}
