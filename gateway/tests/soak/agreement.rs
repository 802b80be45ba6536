//! That clients, records, the segment and /metrics tell the same, to the request, the byte and the nanosecond.

use std::collections::HashMap;

use bifrost_shared::histogram::Histogram;
use bifrost_shared::layout::Counter;
use bifrost_shared::record::{Fault, NONE, Outcome, Record, flags};
use bifrost_shared::slot::{Slot, SlotCount};
use bifrost_shared::snapshot::Figures;
use bifrost_shared::stage::{Series, Stage};

use crate::Verdict;
use crate::client;
use crate::load::Joined;
use crate::process::{Gateway, wait_for};

/// Between the last stage's end and the request's lie two clock reads. A build without optimization is given more.
const UNATTRIBUTED_P99_NS: u64 = if cfg!(debug_assertions) {
    20_000
} else {
    2_000
};
/// Providers, as the settings sort them, and so their places.
const PROVIDERS: [&str; 3] = ["narrow", "openai", "second"];

/// The page, by series.
struct Page(HashMap<String, String>);

impl Page {
    async fn of(gateway: &Gateway) -> Self {
        let page = client::get(gateway.admin, "/metrics").await;
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| line.rsplit_once(' ').unwrap());
        Self(
            samples
                .map(|(series, value)| (series.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    fn count(&self, series: &str) -> u64 {
        let value = self
            .0
            .get(series)
            .unwrap_or_else(|| panic!("no {series} on the page"));
        value.parse().unwrap()
    }

    /// Seconds, as nanoseconds: each digit counts.
    fn nanoseconds(&self, series: &str) -> u64 {
        let value = &self.0[series];
        let (whole, part) = value.split_once('.').unwrap_or((value, ""));
        format!("{whole}{part:0<9}").parse().unwrap()
    }
}

/// A figure, as each side has it.
struct Sides<'a> {
    wrong: Vec<String>,
    verdict: &'a mut Verdict,
    compared: usize,
}

impl Sides<'_> {
    /// All sides have to say the same.
    fn same(&mut self, what: &str, sides: &[u64]) {
        self.compared += 1;
        if sides.iter().any(|side| *side != sides[0]) {
            self.wrong.push(format!("{what} {sides:?}"));
        }
    }

    /// Closes a group of figures.
    fn close(&mut self, what: &str) {
        let wrong = std::mem::take(&mut self.wrong);
        let figure = format!("{} of {} {}", wrong.len(), self.compared, wrong.join("; "));
        self.verdict.check(what, figure, wrong.is_empty());
        self.compared = 0;
    }
}

/// Checks all figures, once nothing is under way any more.
pub async fn check(
    gateway: &Gateway,
    joined: &[Joined],
    records: &[Record],
    verdict: &mut Verdict,
) {
    // How keys stand is looked at five times a second.
    let attempts: u64 = records
        .iter()
        .map(|record| u64::from(record.attempts))
        .sum();
    let figures = wait_for("last look at the keys", || {
        let figures = gateway.figures();
        (of_providers(&figures, SlotCount::Attempts) == attempts).then_some(figures)
    })
    .await;
    let page = Page::of(gateway).await;
    let mut sides = Sides {
        wrong: vec![],
        verdict,
        compared: 0,
    };
    ends(&mut sides, joined, &figures, &page);
    counts(&mut sides, records, &figures, &page);
    providers_and_models(&mut sides, joined, records, &figures, &page);
    distributions(&mut sides, records, &figures, &page);
    unattributed(records, verdict);
    mixture(records, verdict);
}

fn sum(records: &[Record], of: impl Fn(&Record) -> u64) -> u64 {
    records.iter().map(of).sum()
}

fn number(those: usize) -> u64 {
    those as u64
}

/// How requests ended: as their clients saw it, or, of those that left, as the record of that id says.
fn ends(sides: &mut Sides<'_>, joined: &[Joined], figures: &Figures, page: &Page) {
    let means = |joined: &Joined| {
        let recorded = joined
            .record
            .map(|(record, _)| (record.outcome, record.fault));
        joined.seen.saw.means().or(recorded)
    };
    let ended: Vec<(Outcome, Fault)> = joined.iter().filter_map(means).collect();
    let counters = [
        (Outcome::Completed, Counter::Completed),
        (Outcome::Cancelled, Counter::Cancelled),
        (Outcome::Rejected, Counter::Rejected),
        (Outcome::Refused, Counter::Refused),
        (Outcome::Failed, Counter::Failed),
        (Outcome::Truncated, Counter::Truncated),
    ];
    let mut all = 0;
    for (outcome, counter) in counters {
        let by_clients = ended.iter().filter(|(ended, _)| *ended == outcome).count();
        let series = format!("bifrost_requests_total{{outcome=\"{}\"}}", outcome.label());
        let three = [
            number(by_clients),
            figures.counter(counter),
            page.count(&series),
        ];
        println!("      {}: {three:?}", outcome.label());
        sides.same(outcome.label(), &three);
        all += figures.counter(counter);
    }
    for fault in Fault::ALL.iter().filter(|fault| **fault != Fault::None) {
        let by_clients = ended.iter().filter(|(_, ended)| ended == fault).count();
        let series = format!("bifrost_request_faults_total{{fault=\"{}\"}}", fault.key());
        let three = [
            number(by_clients),
            figures.faults(*fault),
            page.count(&series),
        ];
        if by_clients > 0 {
            println!("      {}: {three:?}", fault.key());
        }
        sides.same(fault.key(), &three);
    }
    let (records, lost) = (
        figures.counter(Counter::Records),
        figures.counter(Counter::Lost),
    );
    sides.same("ended", &[number(ended.len()), all, records + lost]);
    sides.same(
        "started",
        &[
            all,
            figures.counter(Counter::Started),
            page.count("bifrost_requests_started_total"),
        ],
    );
    sides.close("outcomes and faults on which clients, segment and page differ");
}

/// What is counted on the way, against the sum over the records.
fn counts(sides: &mut Sides<'_>, records: &[Record], figures: &Figures, page: &Page) {
    type Of = fn(&Record) -> u64;
    let has = |flag: u8| move |record: &Record| u64::from(record.flags & flag != 0);
    let by_record: [(Counter, &str, Of); 7] = [
        (Counter::Records, "bifrost_records_total", |_| 1),
        // Each provider that was fallen back on was asked once at least.
        (Counter::Retries, "bifrost_retries_total", |record| {
            let first = 1 + u64::from(record.fallbacks);
            u64::from(record.attempts).saturating_sub(first)
        }),
        (Counter::Fallbacks, "bifrost_fallbacks_total", |record| {
            record.fallbacks.into()
        }),
        (
            Counter::RequestBytes,
            "bifrost_request_bytes_total",
            |record| record.request_bytes.into(),
        ),
        (
            Counter::ResponseBytes,
            "bifrost_response_bytes_total",
            |record| record.response_bytes.into(),
        ),
        (
            Counter::PromptTokens,
            "bifrost_prompt_tokens_total",
            |record| record.prompt_tokens.into(),
        ),
        (
            Counter::CompletionTokens,
            "bifrost_completion_tokens_total",
            |record| record.completion_tokens.into(),
        ),
    ];
    for (counter, series, of) in by_record {
        let three = [
            sum(records, of),
            figures.counter(counter),
            page.count(series),
        ];
        println!("      {}: {three:?}", counter.key());
        sides.same(counter.key(), &three);
    }
    let by_flag = [
        (Counter::Streams, "bifrost_streams_total", flags::STREAM),
        (
            Counter::Dials,
            "bifrost_upstream_dials_total",
            flags::CONNECTED,
        ),
        (
            Counter::Timeouts,
            "bifrost_request_timeouts_total",
            flags::TIMED_OUT,
        ),
    ];
    for (counter, series, flag) in by_flag {
        let three = [
            sum(records, has(flag)),
            figures.counter(counter),
            page.count(series),
        ];
        sides.same(counter.key(), &three);
    }
    sides.close("counters on which records, segment and page differ");
}

fn of_providers(figures: &Figures, count: SlotCount) -> u64 {
    let providers = figures.slots.iter().filter(|slot| slot.key.is_none());
    providers.map(|slot| slot.count(count)).sum()
}

fn providers_and_models(
    sides: &mut Sides<'_>,
    joined: &[Joined],
    records: &[Record],
    figures: &Figures,
    page: &Page,
) {
    let keys = |provider: u16| {
        let is_its = move |slot: &&Slot| slot.provider == provider && slot.key.is_some();
        figures.slots.iter().filter(is_its)
    };
    for slot in figures.slots.iter().filter(|slot| slot.key.is_none()) {
        let name = PROVIDERS[usize::from(slot.provider)];
        let its = |record: &&Record| record.provider == slot.provider && record.provider != NONE;
        let requests = format!("bifrost_provider_requests_total{{provider=\"{name}\"}}");
        let attempts = format!("bifrost_provider_attempts_total{{provider=\"{name}\"}}");
        sides.same(
            &requests,
            &[
                number(records.iter().filter(its).count()),
                slot.count(SlotCount::Requests),
                page.count(&requests),
                keys(slot.provider)
                    .map(|key| key.count(SlotCount::Requests))
                    .sum(),
            ],
        );
        sides.same(
            &attempts,
            &[
                slot.count(SlotCount::Attempts),
                page.count(&attempts),
                keys(slot.provider)
                    .map(|key| key.count(SlotCount::Attempts))
                    .sum(),
            ],
        );
    }
    for model in [
        "openai/m",
        "openai/down",
        "narrow/n",
        "second/spare",
        "other",
    ] {
        let its: Vec<Record> = joined
            .iter()
            .filter_map(|joined| Some((joined.kind, joined.record?.0)))
            .filter(|(kind, record)| kind.model(record) == model)
            .map(|(_, record)| record)
            .collect();
        let told =
            |what: &str| page.count(&format!("bifrost_model_{what}_total{{model=\"{model}\"}}"));
        sides.same(model, &[number(its.len()), told("requests")]);
        let tokens = |record: &Record| u64::from(record.completion_tokens);
        sides.same(model, &[sum(&its, tokens), told("completion_tokens")]);
    }
    sides.close("figures of providers, keys and models on which the sides differ");
}

/// Every distribution, made again from the records.
fn distributions(sides: &mut Sides<'_>, records: &[Record], figures: &Figures, page: &Page) {
    for series in Series::all() {
        let mut ours = Histogram::default();
        let values: Vec<u64> = records
            .iter()
            .filter_map(|record| record.value(series))
            .collect();
        for value in &values {
            ours.record(*value);
        }
        let theirs = figures.histogram(series);
        let (name, labels) = on_page(series);
        let told = |suffix: &str| format!("{name}_{suffix}{labels}");
        let what = series.key();
        sides.same(
            what,
            &[ours.count, theirs.count, page.count(&told("count"))],
        );
        sides.same(
            what,
            &[ours.sum, theirs.sum, page.nanoseconds(&told("sum"))],
        );
        sides.same(what, &[u64::from(ours.buckets == theirs.buckets), 1]);
        for (edge, series) in edges(page, name, &labels) {
            let within = values.iter().filter(|value| **value <= edge).count();
            sides.same(&series, &[number(within), page.count(&series)]);
        }
        if series == Series::Total {
            sides.same(what, &[ours.count, figures.counter(Counter::Records)]);
        }
    }
    sides.close(
        "counts, sums and buckets of distributions on which records, segment and page differ",
    );
}

/// What a series is called on the page.
fn on_page(series: Series) -> (&'static str, String) {
    let name = match series {
        Series::Stage(stage) => {
            return (
                "bifrost_stage_seconds",
                format!("{{stage=\"{}\"}}", stage.key()),
            );
        }
        Series::Overhead => "bifrost_overhead_seconds",
        Series::Total => "bifrost_request_seconds",
        Series::Added => "bifrost_added_seconds",
        Series::Unattributed => "bifrost_unattributed_seconds",
        Series::FirstByte => "bifrost_first_byte_seconds",
        Series::FirstToken => "bifrost_time_to_first_token_seconds",
        Series::TimePerToken => "bifrost_time_per_output_token_seconds",
    };
    (name, String::new())
}

/// The buckets of a series on the page: the edge in nanoseconds, and the bucket's own name.
fn edges(page: &Page, name: &str, labels: &str) -> Vec<(u64, String)> {
    let begins = match labels.strip_suffix('}') {
        Some(labels) => format!("{name}_bucket{labels},le=\""),
        None => format!("{name}_bucket{{le=\""),
    };
    let edge = |series: &String| {
        let edge = series.strip_prefix(&begins)?.strip_suffix("\"}")?;
        if edge == "+Inf" {
            return Some((u64::MAX, series.clone()));
        }
        let (whole, part) = edge.split_once('.').unwrap_or((edge, ""));
        Some((
            format!("{whole}{part:0<9}").parse().unwrap(),
            series.clone(),
        ))
    };
    let found: Vec<_> = page.0.keys().filter_map(edge).collect();
    assert!(found.len() > 30, "{begins}: {}", found.len());
    found
}

fn unattributed(records: &[Record], verdict: &mut Verdict) {
    let mut times: Vec<u64> = records.iter().map(Record::unattributed).collect();
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100];
    let figure = format!("{p99} ns, at most {} ns", times[times.len() - 1]);
    verdict.check("unattributed time, p99", figure, p99 < UNATTRIBUTED_P99_NS);
}

/// Agreement about what did not occur is worth nothing.
fn mixture(records: &[Record], verdict: &mut Verdict) {
    let mut missing = vec![];
    let mut occurs = |what: String, is_meant: &dyn Fn(&Record) -> bool| {
        let count = records.iter().filter(|record| is_meant(record)).count();
        println!("      {what}: {count}");
        if count == 0 {
            missing.push(what);
        }
    };
    let is_stream = |record: &Record| record.flags & flags::STREAM != 0;
    let left = |record: &Record| record.outcome == Outcome::Cancelled;
    for stage in [Stage::RequestParsing, Stage::QueueWait, Stage::HttpRequest] {
        let is_meant =
            |record: &Record| left(record) && !is_stream(record) && record.ended_in == stage;
        occurs(format!("left in {}", stage.key()), &is_meant);
    }
    occurs("left within a stream".to_owned(), &|record| {
        left(record) && is_stream(record)
    });
    for fault in [
        Fault::Request,
        Fault::QueueFull,
        Fault::QueueTimeout,
        Fault::Broken,
        Fault::Silent,
        Fault::Answer,
    ] {
        occurs(format!("ended with {}", fault.key()), &|record| {
            record.fault == fault
        });
    }
    occurs("cut within a stream".to_owned(), &|record| {
        record.outcome == Outcome::Truncated
    });
    occurs("whole after another attempt".to_owned(), &|record| {
        (record.outcome, record.fallbacks) == (Outcome::Completed, 0) && record.attempts > 1
    });
    occurs("whole after a fallback".to_owned(), &|record| {
        record.outcome == Outcome::Completed && record.fallbacks > 0
    });
    let figure = format!("{} {missing:?}", missing.len());
    verdict.check(
        "kinds of ends that did not occur",
        figure,
        missing.is_empty(),
    );
}
