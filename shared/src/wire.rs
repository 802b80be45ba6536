//! A snapshot as JSON: what a gateway's admin listener serves at `/snapshot`, and what a recording is made of.
//!
//! ```text
//! format     1; another number is another form
//! at         the moment, on the monotonic clock of the gateway's host: the one that heartbeats are told in
//! unix_ns    the same since the Unix epoch
//! header     who the gateway is, and its limits
//! names      what is at which place of the arrays below
//! freshness  state, exporter_at, slowest_runtime_at
//! figures    since start; null while they can't be read
//! rows       closed seconds after `?since=`, oldest first: each with what counters gained, gauges, series
//! requests   single requests from number `?from=` on, or the last there are: next, the number to ask with then; left_out,
//!            how many were too many to tell; told, oldest first, each as the words of its record
//! ```
//!
//! Arrays are sparse, since most of them is zero: `[place, value, place, value, …]`; a series of a row is `[place,
//! count, sum, p50, p95, p99, max]`. Places beyond this version's are left out, as a segment's are. Whoever reads has
//! them from a stranger: texts lose their control characters, and lists have the lengths that a segment's may have.

use std::cmp::Reverse;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::forms::at_most;
use crate::layout::{SECONDS_CAPACITY, SERIES_ROOM, name};
use crate::record::{Outcome, RECORD_WORDS, Record};
use crate::snapshot::{Figures, Freshness, Header, Name, Row, Summary};
use crate::stage::Stage;

/// The form that this version writes and reads.
pub const FORMAT: u32 = 1;

const ROWS_MAX: usize = SECONDS_CAPACITY;
const NAMES_MAX: usize = name::CAPACITY;
/// Single requests of an answer: the last ones and, of those before them, so many by each of [`telling`]'s four.
const LAST_MAX: usize = 80;
const EACH_MAX: usize = 12;
const REQUESTS_MAX: usize = LAST_MAX + 4 * EACH_MAX;

/// A gateway at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`FORMAT`].
    pub format: u32,
    /// When, on the monotonic clock of the gateway's host, nanoseconds.
    pub at: u64,
    /// When, nanoseconds since the Unix epoch.
    pub unix_ns: u64,
    /// Who it is.
    pub header: Header,
    /// Its labels.
    #[serde(deserialize_with = "names")]
    pub names: Vec<Name>,
    /// When its parts last came by.
    pub freshness: Freshness,
    /// Its figures; none while they can't be read.
    pub figures: Option<Figures>,
    /// Closed seconds, oldest first.
    #[serde(deserialize_with = "at_most::<_, _, ROWS_MAX>")]
    pub rows: Vec<Row>,
    /// Single requests that ended since the last answer.
    #[serde(default)]
    pub requests: Requests,
}

/// Single requests, of which some are told: a second may have thousands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Requests {
    /// The number of the first that is still to come, counted from 0 since the gateway started.
    pub next: u64,
    /// How many were left out, or were gone before somebody asked.
    pub left_out: u64,
    /// The most [`telling`] of them, oldest first.
    #[serde(with = "records")]
    pub told: Vec<Record>,
}

impl Requests {
    /// Those worth telling of `all`, which are oldest first and end before number `next`; `missed` more were gone.
    #[must_use]
    pub fn of(all: &[Record], next: u64, missed: u64) -> Self {
        let told = telling(all, LAST_MAX, EACH_MAX);
        let left_out = (all.len() - told.len()) as u64;
        Self {
            next,
            left_out: missed.saturating_add(left_out),
            told,
        }
    }
}

/// Those of `all`, oldest first, that tell the most: the `last` ones and, of those before them, `each` that are the
/// slowest by total, by overhead and by queue wait, and the `each` last that went wrong. In the order that they had.
#[must_use]
pub fn telling(all: &[Record], last: usize, each: usize) -> Vec<Record> {
    let before = all.len().saturating_sub(last);
    let mut is_told = vec![false; all.len()];
    is_told[before..].fill(true);
    let measures: [fn(&Record) -> u64; 3] = [
        |record| record.total,
        Record::overhead,
        |record| record.stage(Stage::QueueWait),
    ];
    for measure in measures {
        let mut places: Vec<_> = (0..before).collect();
        places.sort_by_cached_key(|place| Reverse(measure(&all[*place])));
        for place in places.into_iter().take(each) {
            is_told[place] = true;
        }
    }
    let wrong = (0..before).rev();
    let wrong = wrong.filter(|place| all[*place].outcome != Outcome::Completed);
    for place in wrong.take(each) {
        is_told[place] = true;
    }
    let told = all.iter().zip(is_told).filter(|(_, is_told)| *is_told);
    told.map(|(record, _)| *record).collect()
}

/// Records by the words of their payload that are not zero, as in a segment.
pub mod records {
    use super::{Deserialize, Deserializer, RECORD_WORDS, REQUESTS_MAX, Record, Serializer};
    use crate::forms::{at_most, sparse};

    #[derive(Deserialize)]
    struct Words(#[serde(deserialize_with = "sparse::deserialize")] [u64; RECORD_WORDS]);

    /// Writes `records`.
    ///
    /// # Errors
    ///
    /// Where they can't be written to.
    pub fn serialize<S: Serializer>(records: &[Record], into: S) -> Result<S::Ok, S::Error> {
        into.collect_seq(records.iter().map(|record| {
            let words = (0_u64..).zip(record.to_words());
            let some = words.filter(|(_, word)| *word > 0);
            some.flat_map(|(place, word)| [place, word])
                .collect::<Vec<_>>()
        }))
    }

    /// Reads what [`serialize`] wrote, as far as an answer may be long.
    ///
    /// # Errors
    ///
    /// Where what is there are no records.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Record>, D::Error> {
        let words = at_most::<D, Words, REQUESTS_MAX>(from)?;
        Ok(words
            .iter()
            .map(|words| Record::from_words(&words.0))
            .collect())
    }
}

/// A list of names, as long as a segment's may be.
///
/// # Errors
///
/// Where what is there is no such list.
pub fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Name>, D::Error> {
    at_most::<D, Name, NAMES_MAX>(from)
}

/// What the series of a second came to, each as an array that begins with its place.
pub(crate) mod series {
    use super::{Deserialize, Deserializer, SERIES_ROOM, Serializer, Summary};

    pub(crate) fn serialize<S: Serializer>(
        all: &[Summary; SERIES_ROOM],
        into: S,
    ) -> Result<S::Ok, S::Error> {
        let some = (0_u64..)
            .zip(all)
            .filter(|(_, it)| **it != Summary::default());
        into.collect_seq(some.map(|(place, it)| {
            let [count, sum, p50, p95, p99, max] = it.words();
            [place, count, sum, p50, p95, p99, max]
        }))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<[Summary; SERIES_ROOM], D::Error> {
        let mut all = [Summary::default(); SERIES_ROOM];
        for [place, words @ ..] in Vec::<[u64; 7]>::deserialize(from)? {
            let place = usize::try_from(place).ok();
            if let Some(at) = place.and_then(|place| all.get_mut(place)) {
                *at = Summary::from_words(words);
            }
        }
        Ok(all)
    }
}

/// A snapshot's format and its gateway's layout: what has to be known before the rest is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Form {
    /// Its [`FORMAT`].
    pub format: u32,
    header: Layout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct Layout {
    version: (u32, u32),
}

impl Form {
    /// Major and minor version of the gateway's layout.
    #[must_use]
    pub const fn layout(&self) -> (u32, u32) {
        self.header.version
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::forms::TEXT_MAX;
    use crate::layout::{self, ClockKind, Counter, CreditMode, Gauge, State, VERSION_MAJOR};
    use crate::record::{Fault, NONE, Record};
    use crate::segment::Segment;
    use crate::slot::{SlotState, Standing};
    use crate::snapshot::{Runtime, View};
    use crate::thresholds::Thresholds;
    use crate::writer::{Now, Writer};

    fn header() -> Header {
        Header {
            version: (VERSION_MAJOR, 0),
            pid: 4_711,
            start_ticks: 12,
            boot_id: [u64::MAX, 2],
            started_at: 1_796_040_000_000_000_001,
            clock: ClockKind::Tsc,
            stamp_cost_ps: 9_500,
            vcpus: 2,
            memory_total: 4_000_000_000,
            memory_limit: 3_000_000_000,
            buffer_size: 15_000,
            pool_size: 10_000,
            workers: 2,
            thresholds: Thresholds::default(),
            build: "0.1.0".into(),
            instance: "t3.medium".into(),
            credit_mode: CreditMode::Unlimited,
        }
    }

    fn standing(key: u16) -> Standing {
        Standing {
            provider: 0,
            key,
            incarnation: 1,
            state: SlotState::Resting,
            until: 1_796_040_000_000_000_001,
            weight_millionths: 700_000,
            places: 15_000,
            taken: 3,
            waiting: 2,
            counts: [1, 2, 3, 4, 5],
        }
    }

    /// A gateway with something in each of its parts.
    fn snapshot() -> Snapshot {
        let mut writer = Writer::new(Segment::on_heap(layout::segment_bytes()), &header(), &[]);
        writer.stand(&[standing(NONE), standing(0)]);
        let mut record = Record {
            total: 2_000_000,
            provider: 0,
            key: 0,
            ..Record::default()
        };
        record.stages.fill(47_130);
        writer.absorb(&vec![record; 100]);
        let mut counters = [0; Counter::COUNT];
        counters[Counter::Completed.index()] = 100;
        let mut figures = [0; Gauge::COUNT];
        figures[Gauge::Rss.index()] = 1_312_790_000;
        writer.close_second(7, 1_000_000_000, true, &counters, &figures);
        let mut faults = [0; Fault::COUNT];
        faults[1] = 9;
        let runtime = Runtime {
            ran_at: 5,
            delay: 6,
            lost: 7,
        };
        writer.show(Now {
            counters: &counters,
            gauges: &figures,
            faults: &faults,
            runtimes: &[runtime; 2],
        });
        writer.segment().set_state(State::Running);
        let words = writer.segment().words();
        let view = View::of(words).unwrap();
        let mut rows = view.rows_from_oldest(words).unwrap();
        Snapshot {
            format: FORMAT,
            at: 8,
            unix_ns: 9,
            header: view.header.clone(),
            names: view.names.clone(),
            freshness: view.freshness(words),
            figures: view.figures(words),
            rows: std::iter::from_fn(|| rows.next(words)).collect(),
            requests: Requests::of(&[record; 3], 103, 0),
        }
    }

    #[test]
    fn whoever_reads_it_has_what_was_written() {
        let told = snapshot();
        let figures = told.figures.as_ref().unwrap();
        assert_eq!((figures.slots.len(), told.rows.len()), (2, 1));
        assert_eq!(told.requests.told.len(), 3);
        assert_eq!(told.freshness.state, Some(State::Running));
        let text = serde_json::to_string(&told).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), told);
        let form: Form = serde_json::from_str(&text).unwrap();
        assert_eq!((form.format, form.layout().0), (FORMAT, VERSION_MAJOR));
    }

    #[test]
    fn a_row_is_told_in_few_words() {
        let row = &snapshot().rows[0];
        let told = serde_json::to_value(row).unwrap();
        assert_eq!(told["counters"], Value::from(vec![1, 100]));
        assert_eq!(
            told["series"][1],
            Value::from(vec![1, 100, 4_713_000, 47_130, 47_130, 47_130, 47_130])
        );
        assert_eq!(told.get("over_queue_limit"), None, "nothing is not told");
    }

    #[test]
    fn of_too_many_requests_the_last_the_slowest_by_each_measure_and_failures_are_told() {
        let record = |id: u64| {
            let mut record = Record {
                id,
                total: if id.is_multiple_of(10) {
                    1_000_000 + id
                } else {
                    500
                },
                outcome: Outcome::Completed,
                ..Record::default()
            };
            // Short in total, and the longest in the queue.
            let stage = if id == 33 {
                Stage::QueueWait
            } else {
                Stage::JsonMarshaling
            };
            record.stages[stage.index()] = 400;
            if id == 44 {
                record.stages[Stage::RequestSetup.index()] = 410;
            }
            if id.is_multiple_of(7) {
                record.outcome = Outcome::Failed;
            }
            record
        };
        let all: Vec<_> = (0..1_000).map(record).collect();
        let told = telling(&all, 80, 2);
        let ids: Vec<_> = told.iter().map(|record| record.id).collect();
        // By queue wait the second is any of those without one: here the first.
        let before = [0, 33, 44, 900, 910, 917];
        assert_eq!(
            ids,
            before.into_iter().chain(920..1_000).collect::<Vec<_>>()
        );
    }

    #[test]
    fn few_requests_are_all_told_and_of_many_the_rest_is_counted() {
        let record = Record::default();
        let few = Requests::of(&vec![record; LAST_MAX], 5_007, 7);
        assert_eq!((few.told.len(), few.left_out, few.next), (80, 7, 5_007));
        let many = Requests::of(&vec![record; 1_000], 5_007, u64::MAX);
        assert!(many.told.len() <= REQUESTS_MAX && many.left_out == u64::MAX);
    }

    /// A snapshot with another value at `pointer`.
    fn with(pointer: &str, value: Value) -> serde_json::Result<Snapshot> {
        let mut told = serde_json::to_value(snapshot()).unwrap();
        *told.pointer_mut(pointer).unwrap() = value;
        serde_json::from_value(told)
    }

    #[test]
    fn what_a_later_version_adds_is_left_out() {
        let beyond = with(
            "/rows/0/counters",
            vec![1_u64, 5, 99, 6, u64::MAX, 7].into(),
        )
        .unwrap();
        assert_eq!(beyond.rows[0].counters.iter().sum::<u64>(), 5);
        let state = with("/freshness/state", "dreaming".into()).unwrap();
        assert_eq!(state.freshness.state, None);
        let slot = with("/figures/slots/0/state", "dreaming".into()).unwrap();
        assert_eq!(slot.figures.unwrap().slots[0].state, SlotState::Ready);
        let mode = with("/header/credit_mode", 77.into()).unwrap();
        assert_eq!(mode.header.credit_mode, CreditMode::Unknown);
        let counts = with("/figures/slots/0/counts", vec![1, 2].into()).unwrap();
        assert_eq!(counts.figures.unwrap().slots[0].counts[..3], [1, 2, 0]);
    }

    #[test]
    fn texts_of_a_stranger_are_harmless_and_short() {
        let evil = with("/header/build", "\u{1b}]0;you\u{7}\nare owned".into()).unwrap();
        assert_eq!(evil.header.build, "]0;youare owned");
        let long = with("/names/0/label", "世".repeat(1_000).into()).unwrap();
        assert_eq!(long.names[0].label.chars().count(), TEXT_MAX);
        let name = serde_json::to_value(&snapshot().names[0]).unwrap();
        let many = with("/names", vec![name; 10_000].into()).unwrap();
        assert_eq!(many.names.len(), NAMES_MAX);
        let request = serde_json::to_value(snapshot()).unwrap()["requests"]["told"][0].clone();
        let many = with("/requests/told", vec![request; 10_000].into()).unwrap();
        assert_eq!(many.requests.told.len(), REQUESTS_MAX);
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        for (pointer, value) in [
            ("/header", Value::Null),
            ("/header/pid", (-1).into()),
            ("/header/build", 7.into()),
            ("/rows/0/series/0", vec![1].into()),
            ("/requests/told/0", "slow".into()),
            ("/figures/counters", "many".into()),
            ("/at", 1.5.into()),
        ] {
            assert!(with(pointer, value).is_err(), "{pointer}");
        }
    }
}
