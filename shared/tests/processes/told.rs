//! What the writer tells: everything derives from the number of a record, so that a torn copy contradicts itself.

use bifrost_shared::layout::{Counter, Gauge};
use bifrost_shared::record::{Fault, Outcome, Record, flags};
use bifrost_shared::snapshot::{Figures, Row};
use bifrost_shared::stage::{Series, Stage};

/// A stage's times repeat after so many records.
const CYCLE: u64 = 997;
/// What a record has beyond its stages.
const UNATTRIBUTED: u64 = 70;

/// The `number`th record, no two of whose words go up together.
pub(crate) fn record(number: u64) -> Record {
    let stages = std::array::from_fn(|stage| (stage as u64 + 1) * step(number));
    let [a, b, c, d] = [1, 2, 3, 4].map(|salt| mix(number ^ salt << 56));
    Record {
        ended_at: a,
        id: number,
        stages,
        total: stages.iter().sum::<u64>() + UNATTRIBUTED,
        first_byte: step(number),
        connect: b,
        back_pressure: c,
        provider_time: d,
        held: a ^ b,
        request_bytes: half(a),
        response_bytes: half(b),
        prompt_tokens: half(c),
        completion_tokens: half(d),
        status: u16::from_le_bytes([byte(a, 1), byte(a, 2)]),
        outcome: Outcome::from_number(byte(b, 1) % 6),
        fault: Fault::ALL[usize::from(byte(a, 3)) % Fault::COUNT],
        ended_in: Stage::ALL[usize::from(byte(b, 2)) % Stage::COUNT],
        provider: u16::from(byte(c, 1)),
        key: u16::from(byte(c, 2)),
        attempts: byte(d, 1),
        fallbacks: byte(d, 2),
        worker: byte(d, 3),
        // No stream: that would be in series whose sums don't derive from the number.
        flags: byte(d, 4) & flags::CONNECTED,
        events: half(a ^ c) >> 8,
        waiting: half(a ^ d),
        in_flight: half(b ^ c),
    }
}

/// The counters after so many records.
pub(crate) fn counters(records: u64) -> [u64; Counter::COUNT] {
    let mut counters = std::array::from_fn(|counter| records * (counter as u64 + 1));
    counters[Counter::Records.index()] = records;
    counters
}

/// The gauges after so many records. The first is their number.
pub(crate) fn gauges(records: u64) -> [u64; Gauge::COUNT] {
    std::array::from_fn(|gauge| match gauge {
        0 => records,
        _ => mix(records ^ (gauge as u64) << 48),
    })
}

/// Says what is wrong with `record`.
pub(crate) fn contradiction_in_record(found: &Record) -> Option<String> {
    let expected = record(found.id);
    (*found != expected).then(|| format!("torn: {found:?}, of which the id asks for {expected:?}"))
}

/// Says what is wrong with `figures`: counters, gauges and histograms each tell how many records there were.
pub(crate) fn contradiction_in_figures(figures: &Figures, batch_max: u64) -> Option<String> {
    let told = figures.counters[Counter::Records.index()];
    let is_told = figures.counters[..Counter::COUNT] == counters(told)
        && figures.gauges[..Gauge::COUNT] == gauges(told);
    if !is_told {
        return Some(format!("torn: after {told} records {figures:?}"));
    }
    let counted = figures.histograms[0].count;
    // The counters follow the histograms in an update of their own.
    if !(told..=told + batch_max).contains(&counted) {
        return Some(format!("torn: {counted} are counted and {told} told"));
    }
    Series::all().find_map(|series| {
        let histogram = &figures.histograms[series.index()];
        let in_buckets: u64 = histogram.buckets.iter().sum();
        let seen = [histogram.count, in_buckets, histogram.sum];
        let count = count_of(series, counted);
        let expected = [count, count, sum_of(series, 0, counted)];
        (seen != expected).then(|| format!("torn: {series:?} is {seen:?}, not {expected:?}"))
    })
}

/// Says what is wrong with `row`: it covers the records from its gained counters up to its first gauge.
pub(crate) fn contradiction_in_row(found: &Row) -> Option<String> {
    let until = found.gauges[0];
    let gained = found.counter(Counter::Records);
    let from = until.wrapping_sub(gained);
    let expected_counters: [u64; Counter::COUNT] =
        std::array::from_fn(|at| counters(until)[at].wrapping_sub(counters(from)[at]));
    if found.counters[..Counter::COUNT] != expected_counters
        || found.gauges[..Gauge::COUNT] != gauges(until)
        || found.duration != mix(found.ended_at)
    {
        return Some(format!("torn: {found:?}"));
    }
    Series::all().find_map(|series| {
        let summary = found.summary(series);
        let expected = (count_of(series, gained), sum_of(series, from, until));
        ((summary.count, summary.sum) != expected)
            .then(|| format!("torn: {series:?} comes to {summary:?}, not {expected:?}"))
    })
}

/// Words that look random and are not: the finaliser of splitmix64.
pub(crate) const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

const fn step(number: u64) -> u64 {
    number % CYCLE + 1
}

/// The steps of the records from `from` up to `until`, summed.
const fn steps(from: u64, until: u64) -> u64 {
    const fn up_to(until: u64) -> u64 {
        let (cycles, rest) = (until / CYCLE, until % CYCLE);
        cycles * (CYCLE * (CYCLE + 1) / 2) + rest * (rest + 1) / 2
    }
    up_to(until) - up_to(from)
}

/// How many of so many records have a value in `series`.
const fn count_of(series: Series, records: u64) -> u64 {
    match series {
        Series::FirstToken | Series::TimePerToken => 0,
        _ => records,
    }
}

/// What `series` sums up to over these records.
fn sum_of(series: Series, from: u64, until: u64) -> u64 {
    let of = |stage: Stage| (stage.index() as u64 + 1) * steps(from, until);
    let of_all =
        |keep: fn(&Stage) -> bool| -> u64 { Stage::ALL.into_iter().filter(keep).map(of).sum() };
    let unattributed = (until - from) * UNATTRIBUTED;
    match series {
        Series::Stage(stage) => of(stage),
        Series::Overhead => of_all(|stage| stage.in_overhead()),
        Series::Total => of_all(|_| true) + unattributed,
        Series::Added => {
            of_all(|stage| !matches!(stage, Stage::HttpRequest | Stage::BackOff)) + unattributed
        }
        Series::Unattributed => unattributed,
        Series::FirstByte => steps(from, until),
        Series::FirstToken | Series::TimePerToken => 0,
    }
}

fn half(word: u64) -> u32 {
    u32::try_from(word >> 32).unwrap()
}

const fn byte(word: u64, at: usize) -> u8 {
    word.to_le_bytes()[at]
}

#[test]
fn what_is_told_agrees_with_itself_and_a_mixture_of_two_does_not() {
    let (one, other) = (record(1_000), record(1_001));
    assert_eq!(contradiction_in_record(&one), None);
    for word in 0..bifrost_shared::record::RECORD_WORDS {
        let mut words = one.to_words();
        words[word] = other.to_words()[word];
        let is_told = contradiction_in_record(&Record::from_words(&words)).is_some();
        assert!(is_told, "word {word} of another record");
    }
}
