//! The writing half of a segment. One thread owns it; what it does per record is a dozen additions and one copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::histogram::{Histogram, bucket_of};
use crate::layout::{
    self, COUNTERS_ROOM, Counter, GAUGES_ROOM, Gauge, NameKind, SERIES_ROOM, Section, State,
    VERSION_MAJOR, VERSION_MINOR, gauges, header, histogram, name, row_flags,
};
use crate::record::{Fault, Outcome, RECORD_WORDS, Record};
use crate::ring;
use crate::segment::{Segment, monotonic_ns};
use crate::slot::{self, Standing};
use crate::snapshot::{Header, Name, Row, Runtime, Summary};
use crate::stage::{Series, Stage};

/// Steal above this many thousandths flags a row as throttled.
const THROTTLED_PERMILLE: u64 = 100;

/// A segment and the sums that its next row needs.
#[derive(Debug)]
pub struct Writer {
    segment: Arc<Segment>,
    epoch: u64,
    seconds: ring::Writer,
    samples: ring::Writer,
    slots: slot::Writer,
    queue_limit: u64,
    overhead_limit: u64,
    second: Second,
}

/// Counters and gauges of a moment.
#[derive(Debug, Clone, Copy)]
pub struct Now<'a> {
    /// By [`Counter`].
    pub counters: &'a [u64; Counter::COUNT],
    /// By [`Gauge`].
    pub gauges: &'a [u64; Gauge::COUNT],
    /// By [`Fault`].
    pub faults: &'a [u64; Fault::COUNT],
    /// Each runtime; those beyond [`gauges::RUNTIMES_MAX`] are left out.
    pub runtimes: &'a [Runtime],
}

/// What this second has seen so far.
#[derive(Debug)]
struct Second {
    series: Vec<Histogram>,
    over_queue_limit: u64,
    over_overhead_limit: u64,
    /// The counters at its beginning.
    counters: [u64; Counter::COUNT],
}

impl Writer {
    /// Fills in all that does not change. The state is *starting*; readers see nothing before
    /// [`publish`](Self::publish).
    ///
    /// # Panics
    ///
    /// If the segment is shorter than [`layout::segment_bytes`].
    #[must_use]
    pub fn new(segment: Segment, head: &Header, names: &[Name]) -> Self {
        assert!(
            segment.words().len() * 8 >= layout::segment_bytes(),
            "the segment has this version's length"
        );
        describe(segment.words(), head, names);
        let words = segment.words();
        Self {
            epoch: 0,
            seconds: ring::Writer::new(section(words, Section::Seconds), layout::row::WORDS),
            samples: ring::Writer::new(section(words, Section::Samples), RECORD_WORDS),
            slots: slot::Writer::default(),
            queue_limit: head.thresholds.queue_wait_ns,
            overhead_limit: head.thresholds.overhead_ns,
            second: Second {
                series: vec![Histogram::default(); Series::COUNT],
                over_queue_limit: 0,
                over_overhead_limit: 0,
                counters: [0; Counter::COUNT],
            },
            segment: Arc::new(segment),
        }
    }

    /// Lets readers see it.
    ///
    /// # Errors
    ///
    /// What the system says of naming the file.
    pub fn publish(&self) -> std::io::Result<()> {
        self.segment.publish()
    }

    /// The segment itself, which its own process may read, too.
    #[must_use]
    pub const fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Changes the labels of providers and keys.
    pub fn rename(&self, names: &[Name]) {
        name_all(self.segment.words(), names);
    }

    /// Adds records to the histograms, the current second and the sample ring.
    pub fn absorb(&mut self, records: &[Record]) {
        if records.is_empty() {
            return;
        }
        let words = self.segment.words();
        let epoch = &section(words, Section::Gauges)[gauges::EPOCH];
        let histograms = section(words, Section::Histograms);
        let samples = section(words, Section::Samples);
        let slots = section(words, Section::Slots);
        ring::begin(epoch, self.epoch);
        for record in records {
            for series in Series::all() {
                if let Some(value) = record.value(series) {
                    let at = series.index() * histogram::WORDS;
                    add(&histograms[at..at + histogram::WORDS], value);
                    self.second.series[series.index()].record(value);
                }
            }
            self.second.over_queue_limit +=
                u64::from(record.stage(Stage::QueueWait) > self.queue_limit);
            self.second.over_overhead_limit += u64::from(record.overhead() > self.overhead_limit);
            let is_whole = record.outcome == Outcome::Completed;
            self.slots.add(
                slots,
                (record.provider, record.key),
                (record.prompt_tokens.into(), record.completion_tokens.into()),
                is_whole.then_some(record.stage(Stage::HttpRequest)),
            );
        }
        ring::end(epoch, self.epoch);
        self.epoch += 1;
        for record in records {
            self.samples.push(samples, &record.to_words());
        }
    }

    /// Shows how things are now, and that the exporter lives.
    pub fn show(&mut self, now: Now<'_>) {
        let words = section(self.segment.words(), Section::Gauges);
        ring::begin(&words[gauges::EPOCH], self.epoch);
        store(&words[gauges::COUNTERS..], now.counters);
        store(&words[gauges::GAUGES..], now.gauges);
        store(&words[gauges::FAULTS..], now.faults);
        for (at, runtime) in now.runtimes.iter().take(gauges::RUNTIMES_MAX).enumerate() {
            words[gauges::RUNTIME_HEARTBEATS + at].store(runtime.ran_at, Ordering::Relaxed);
            words[gauges::LOST + at].store(runtime.lost, Ordering::Relaxed);
            words[gauges::DELAYS + at].store(runtime.delay, Ordering::Relaxed);
        }
        ring::end(&words[gauges::EPOCH], self.epoch);
        self.epoch += 1;
        words[gauges::HEARTBEAT].store(monotonic_ns(), Ordering::Release);
    }

    /// Shows how providers and keys stand; as many as there is room for.
    pub fn stand(&mut self, standings: &[Standing]) {
        let words = self.segment.words();
        let epoch = &section(words, Section::Gauges)[gauges::EPOCH];
        ring::begin(epoch, self.epoch);
        self.slots.stand(section(words, Section::Slots), standings);
        ring::end(epoch, self.epoch);
        self.epoch += 1;
    }

    /// Closes the current second as a row and begins the next.
    pub fn close_second(
        &mut self,
        ended_at: u64,
        duration: u64,
        late: bool,
        counters: &[u64; Counter::COUNT],
        values: &[u64; Gauge::COUNT],
    ) -> Row {
        let gained: [u64; Counter::COUNT] =
            std::array::from_fn(|at| counters[at].saturating_sub(self.second.counters[at]));
        let mut flags = 0;
        if late {
            flags |= row_flags::LATE;
        }
        if values[Gauge::Steal.index()] > THROTTLED_PERMILLE {
            flags |= row_flags::THROTTLED;
        }
        if gained[Counter::Lost.index()] > 0 {
            flags |= row_flags::LOSSES;
        }
        let row = Row {
            ended_at,
            duration,
            flags,
            over_queue_limit: self.second.over_queue_limit,
            over_overhead_limit: self.second.over_overhead_limit,
            counters: widened::<COUNTERS_ROOM>(&gained),
            gauges: widened::<GAUGES_ROOM>(values),
            series: std::array::from_fn(|at| {
                let series = self.second.series.get(at);
                series.map_or_else(Summary::default, Summary::of)
            }),
        };
        const { assert!(Series::COUNT <= SERIES_ROOM) };
        self.seconds.push(
            section(self.segment.words(), Section::Seconds),
            &row.to_words(),
        );
        self.second.series.iter_mut().for_each(Histogram::clear);
        self.second.over_queue_limit = 0;
        self.second.over_overhead_limit = 0;
        self.second.counters = *counters;
        row
    }
}

/// The values, and zeroes for the room behind them.
fn widened<const ROOM: usize>(values: &[u64]) -> [u64; ROOM] {
    std::array::from_fn(|at| values.get(at).copied().unwrap_or(0))
}

/// The words of a section of this version.
fn section(words: &[AtomicU64], kind: Section) -> &[AtomicU64] {
    let place = layout::sections()[kind as usize - 1];
    let at = usize::try_from(place.offset / 8).expect("within some megabytes");
    let end = at + usize::try_from(place.length / 8).expect("within some megabytes");
    &words[at..end]
}

/// The one writer may load and store where several would need an exchange.
fn add(words: &[AtomicU64], value: u64) {
    // Sums wrap after weeks at full load, as counters do; readers take differences.
    let bump = |at: usize, by: u64| {
        let sum = words[at].load(Ordering::Relaxed).wrapping_add(by);
        words[at].store(sum, Ordering::Relaxed);
    };
    bump(histogram::COUNT, 1);
    bump(histogram::SUM, value);
    bump(histogram::BUCKETS + bucket_of(value), 1);
    if value > words[histogram::MAX].load(Ordering::Relaxed) {
        words[histogram::MAX].store(value, Ordering::Relaxed);
    }
}

fn store(to: &[AtomicU64], from: &[u64]) {
    for (to, from) in to.iter().zip(from) {
        to.store(*from, Ordering::Relaxed);
    }
}

fn describe(words: &[AtomicU64], head: &Header, names: &[Name]) {
    let put = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
    put(
        header::VERSION,
        u64::from(VERSION_MAJOR) << 32 | u64::from(VERSION_MINOR),
    );
    put(header::HEADER_BYTES, layout::HEADER_BYTES as u64);
    put(header::SEGMENT_BYTES, layout::segment_bytes() as u64);
    put(header::STATE, State::Starting as u64);
    put(header::SECTION_COUNT, layout::sections().len() as u64);
    for (number, place) in layout::sections().iter().enumerate() {
        let at = header::SECTIONS + number * header::SECTION_WORDS;
        store(
            &words[at..],
            &[
                place.kind,
                place.offset,
                place.length,
                place.entry,
                place.count,
            ],
        );
    }
    put(header::PID, head.pid);
    put(header::START_TICKS, head.start_ticks);
    store(&words[header::BOOT_ID..], &head.boot_id);
    put(header::STARTED_AT, head.started_at);
    put(header::CLOCK_KIND, head.clock as u64);
    put(header::STAMP_COST_PS, head.stamp_cost_ps);
    put(header::VCPUS, head.vcpus);
    put(header::MEMORY_TOTAL, head.memory_total);
    put(header::MEMORY_LIMIT, head.memory_limit);
    put(header::CREDIT_MODE, head.credit_mode as u64);
    put(header::BUFFER_SIZE, head.buffer_size);
    put(header::POOL_SIZE, head.pool_size);
    put(header::WORKERS, head.workers);
    let limits = head.thresholds;
    let limits = [
        limits.queue_wait_ns,
        limits.load_rps,
        limits.memory_permille,
        limits.overhead_ns,
        limits.scheduler_delay_ns,
        limits.credit_runway_ns,
    ];
    store(&words[header::THRESHOLDS..], &limits);
    store(
        &words[header::BUILD..],
        &layout::text_words::<{ header::TEXT_WORDS }>(&head.build),
    );
    store(
        &words[header::INSTANCE..],
        &layout::text_words::<{ header::TEXT_WORDS }>(&head.instance),
    );
    name_all(words, names);
}

/// Writes the labels that every segment has, then `names`, as far as there is room, and leaves the rest empty. A reader
/// that looks while labels change may see one of each; it shows a label only.
fn name_all(words: &[AtomicU64], names: &[Name]) {
    let own = own_names();
    let mut named = own.iter().chain(names);
    for place in section(words, Section::Names).chunks_exact(name::WORDS) {
        let words = named.next().map_or([0; name::WORDS], name_words);
        store(place, &words);
    }
}

fn name_words(name: &Name) -> [u64; name::WORDS] {
    let mut words = [0; name::WORDS];
    words[name::KIND] = name.kind;
    words[name::INDEX] = name.index;
    words[name::FLAGS] = u64::from(name.in_overhead) | u64::from(name.is_stage) << 1;
    words[name::REFERENCE_MEDIUM] = name.reference_ns.0.unwrap_or(0);
    words[name::REFERENCE_XLARGE] = name.reference_ns.1.unwrap_or(0);
    words[name::KEY..][..name::KEY_WORDS]
        .copy_from_slice(&layout::text_words::<{ name::KEY_WORDS }>(&name.key));
    words[name::LABEL..][..name::LABEL_WORDS]
        .copy_from_slice(&layout::text_words::<{ name::LABEL_WORDS }>(&name.label));
    words
}

/// The labels that every segment of this version has.
fn own_names() -> Vec<Name> {
    let plain = |kind: NameKind, index: usize, key: &str, label: &str| Name {
        kind: kind as u64,
        index: index as u64,
        is_stage: false,
        in_overhead: false,
        reference_ns: (None, None),
        key: key.to_owned(),
        label: label.to_owned(),
    };
    let series = Series::all().map(|series| Name {
        is_stage: matches!(series, Series::Stage(_)),
        in_overhead: matches!(series, Series::Stage(stage) if stage.in_overhead()),
        reference_ns: series.reference_ns(),
        ..plain(
            NameKind::Series,
            series.index(),
            series.key(),
            series.label(),
        )
    });
    let counters = Counter::ALL
        .iter()
        .map(|it| plain(NameKind::Counter, it.index(), it.key(), it.label()));
    let gauges = Gauge::ALL
        .iter()
        .map(|it| plain(NameKind::Gauge, it.index(), it.key(), it.label()));
    let faults = Fault::ALL
        .iter()
        .map(|it| plain(NameKind::Fault, it.index(), it.key(), it.label()));
    series.chain(counters).chain(gauges).chain(faults).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::ClockKind;
    use crate::snapshot::{Unreadable, View};
    use crate::thresholds::Thresholds;

    fn head() -> Header {
        Header {
            version: (VERSION_MAJOR, VERSION_MINOR),
            pid: 4_711,
            start_ticks: 12,
            boot_id: [1, 2],
            started_at: 3,
            clock: ClockKind::Tsc,
            stamp_cost_ps: 9_500,
            vcpus: 2,
            memory_total: 4_000,
            memory_limit: 3_000,
            buffer_size: 15_000,
            pool_size: 10_000,
            workers: 2,
            thresholds: Thresholds::default(),
            build: "0.1.0".into(),
            instance: "t3.medium".into(),
            credit_mode: layout::CreditMode::Unlimited,
        }
    }

    fn record(queue_wait: u64) -> Record {
        let mut record = Record {
            total: queue_wait + 500,
            first_byte: 5,
            ..Record::default()
        };
        record.stages[Stage::QueueWait.index()] = queue_wait;
        record
    }

    #[test]
    fn a_reader_finds_what_the_writer_described() {
        let key = Name {
            kind: NameKind::Key as u64,
            index: 1,
            is_stage: false,
            in_overhead: false,
            reference_ns: (None, None),
            key: "main".into(),
            label: "openai/main".into(),
        };
        let writer = Writer::new(
            Segment::on_heap(layout::segment_bytes()),
            &head(),
            std::slice::from_ref(&key),
        );
        let view = View::of(writer.segment().words()).unwrap();
        assert_eq!(view.header, head());
        assert_eq!(view.names_of(NameKind::Key).collect::<Vec<_>>(), [&key]);
        let queue = view
            .names_of(NameKind::Series)
            .nth(Stage::QueueWait.index())
            .unwrap();
        assert_eq!(
            (queue.label.as_str(), queue.in_overhead),
            ("Queue wait", true)
        );
        assert_eq!(queue.reference_ns, (Some(47_130), Some(1_670)));
    }

    #[test]
    fn histograms_rows_and_samples_tell_the_same_requests() {
        let mut writer = Writer::new(Segment::on_heap(layout::segment_bytes()), &head(), &[]);
        let view = View::of(writer.segment().words()).unwrap();
        let mut samples = view.samples_from_now(writer.segment().words()).unwrap();
        writer.absorb(&[record(100), record(75_000), record(75_001)]);
        let mut counters = [0; Counter::COUNT];
        counters[Counter::Records.index()] = 3;
        let gauges = [7; Gauge::COUNT];
        let faults = std::array::from_fn(|fault| fault as u64);
        let runtimes = [(1, 2, 3), (4, 5, 6)].map(|(ran_at, delay, lost)| Runtime {
            ran_at,
            delay,
            lost,
        });
        writer.show(Now {
            counters: &counters,
            gauges: &gauges,
            faults: &faults,
            runtimes: &runtimes,
        });
        let closed = writer.close_second(1_000, 1_000_000_000, true, &counters, &gauges);

        let words = writer.segment().words();
        let figures = view.figures(words).unwrap();
        let queue = &figures.histograms[Stage::QueueWait.index()];
        assert_eq!((queue.count, queue.sum, queue.max), (3, 150_101, 75_001));
        assert_eq!(figures.histograms[Series::Unattributed.index()].sum, 1_500);
        assert_eq!(figures.gauges[..Gauge::COUNT], gauges);
        assert_eq!(figures.faults(Fault::Internal), Fault::Internal as u64);
        assert_eq!(figures.runtimes, runtimes);
        assert_eq!(view.freshness(words).slowest_runtime_at, 1);

        let mut rows = view.rows_from_oldest(words).unwrap();
        let row = rows.next(words).unwrap();
        assert_eq!(row, closed);
        assert!(rows.next(words).is_none());
        assert_eq!(
            row.over_queue_limit, 1,
            "exactly at the limit is not over it"
        );
        assert_eq!(row.over_overhead_limit, 0);
        let first = row.summary(Series::FirstByte);
        assert_eq!((first.count, first.sum), (3, 15));
        assert_eq!(row.summary(Series::FirstToken).count, 0, "none streamed");
        assert_eq!(row.mean(Series::Stage(Stage::QueueWait)), Some(50_033));
        assert_eq!(row.flags, row_flags::LATE);

        assert_eq!(samples.next(words), Some(record(100)));
        assert_eq!(samples.next(words), Some(record(75_000)));
    }

    #[test]
    fn a_row_counts_only_its_own_second() {
        let mut writer = Writer::new(Segment::on_heap(layout::segment_bytes()), &head(), &[]);
        let gauges = [0; Gauge::COUNT];
        let counters = [10; Counter::COUNT];
        writer.absorb(&[record(1)]);
        writer.close_second(1, 1, false, &counters, &gauges);
        let second = writer.close_second(2, 1, false, &[12; Counter::COUNT], &gauges);
        assert_eq!(second.counter(Counter::Started), 2);
        assert_eq!(
            second.summary(Series::Stage(Stage::QueueWait)),
            &Summary::default()
        );
        assert_eq!(
            (second.over_queue_limit, second.over_overhead_limit),
            (0, 0)
        );
    }

    #[test]
    fn what_a_later_minor_version_adds_is_named_and_read() {
        let writer = Writer::new(Segment::on_heap(layout::segment_bytes()), &head(), &[]);
        let words = writer.segment().words();
        let later = Name {
            kind: NameKind::Series as u64,
            index: SERIES_ROOM as u64 - 1,
            is_stage: true,
            in_overhead: true,
            reference_ns: (None, None),
            key: "moderation".into(),
            label: "Moderation".into(),
        };
        writer.rename(std::slice::from_ref(&later));
        let histogram = (SERIES_ROOM - 1) * histogram::WORDS;
        add(
            &section(words, Section::Histograms)[histogram..histogram + histogram::WORDS],
            77,
        );
        let view = View::of(words).unwrap();
        assert_eq!(view.names_of(NameKind::Series).last(), Some(&later));
        assert_eq!(
            view.figures(words).unwrap().histograms[SERIES_ROOM - 1].sum,
            77
        );
    }

    #[test]
    fn a_key_that_answers_is_told_of_in_its_slot() {
        let mut writer = Writer::new(Segment::on_heap(layout::segment_bytes()), &head(), &[]);
        let standing = Standing {
            provider: 2,
            key: 1,
            incarnation: 1,
            state: slot::SlotState::Resting,
            until: 9,
            weight_millionths: 300_000,
            places: 0,
            taken: 0,
            waiting: 0,
            counts: [4, 3, 1, 0, 0],
        };
        writer.stand(std::slice::from_ref(&standing));
        let mut whole = Record {
            outcome: Outcome::Completed,
            provider: 2,
            key: 1,
            ..record(1)
        };
        whole.stages[Stage::HttpRequest.index()] = 1_500_000_000;
        let broken = Record {
            outcome: Outcome::Truncated,
            ..whole
        };
        writer.absorb(&[whole, broken]);
        let words = writer.segment().words();
        let slots = View::of(words).unwrap().figures(words).unwrap().slots;
        assert_eq!(slots.len(), 1);
        assert_eq!(
            (slots[0].state, slots[0].until),
            (slot::SlotState::Resting, 9)
        );
        assert_eq!(slots[0].counts[..6], [4, 3, 1, 0, 0, 2]);
        assert_eq!(
            (slots[0].latency.count, slots[0].latency.sum),
            (1, 1_500_000_000)
        );
    }

    #[test]
    fn another_major_version_is_refused_by_name_and_a_damaged_table_too() {
        let writer = Writer::new(Segment::on_heap(layout::segment_bytes()), &head(), &[]);
        let words = writer.segment().words();
        words[header::VERSION].store(9 << 32, Ordering::Relaxed);
        assert_eq!(
            View::of(words).unwrap_err(),
            Unreadable::Version { found: 9 }
        );
        words[header::VERSION].store(u64::from(VERSION_MAJOR) << 32 | 0x4d, Ordering::Relaxed);
        assert!(View::of(words).is_ok(), "a later minor version is read");
        words[header::SECTIONS + 1].store(u64::MAX - 7, Ordering::Relaxed);
        assert_eq!(
            View::of(words).unwrap_err(),
            Unreadable::Damaged("list of names")
        );
        assert_eq!(View::of(&words[..10]).unwrap_err(), Unreadable::Truncated);
    }

    #[test]
    fn a_writer_that_died_between_its_marks_leaves_no_figures_rather_than_torn_ones() {
        let writer = Writer::new(Segment::on_heap(layout::segment_bytes()), &head(), &[]);
        let words = writer.segment().words();
        let view = View::of(words).unwrap();
        ring::begin(&section(words, Section::Gauges)[gauges::EPOCH], 5);
        assert!(view.figures(words).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_damage_to_a_segment_harms_its_reader(
            damage in prop::collection::vec((any::<prop::sample::Index>(), damaged_word()), 1..20),
        ) {
            let mut writer = Writer::new(Segment::on_heap(layout::segment_bytes()), &head(), &[]);
            writer.absorb(&[record(1), record(2)]);
            writer.close_second(1, 1, false, &[1; Counter::COUNT], &[1; Gauge::COUNT]);
            let words = writer.segment().words();
            let intact = View::of(words).unwrap();
            // Where readers look for what to do: the header, the epoch, and both rings' heads and first slots.
            let places: Vec<usize> = (1..header::SECTIONS + 5 * header::SECTION_WORDS)
                .chain(layout::sections()[1..].iter().flat_map(|it| {
                    let first = usize::try_from(it.offset / 8).unwrap();
                    first..first + 12
                }))
                .collect();
            for (place, word) in damage {
                words[*place.get(&places)].store(word, Ordering::Relaxed);
            }
            for view in [Ok(intact), View::of(words)].into_iter().flatten() {
                let _ = view.freshness(words);
                let _ = view.figures(words);
                let mut rows = view.rows_from_oldest(words).unwrap();
                let mut samples = view.samples_from_oldest(words).unwrap();
                while rows.next(words).is_some() {}
                while samples.next(words).is_some() {}
            }
        }
    }

    /// What a word may become: anything, and above all what is just beyond a bound.
    fn damaged_word() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            0..=u64::from(u16::MAX),
            (u64::MAX - 64)..=u64::MAX,
            (0..64_u32).prop_map(|bit| 1 << bit),
        ]
    }
}
