//! The figures of the segment as a page for Prometheus.
//!
//! It is a function of what a reader of the segment sees, so that the page and the monitor can't disagree; the models
//! alone are beside it. No label has a value that a client can choose: stages, outcomes and faults are ours, providers,
//! keys and models are the settings'.

use bifrost_shared::layout::{Counter, Gauge, NameKind};
use bifrost_shared::record::Fault;
use bifrost_shared::slot::{Slot, SlotCount, SlotState};
use bifrost_shared::snapshot::{Figures, Header, Name, Runtime};
use bifrost_shared::stage::{Series, Stage};

mod text;

pub(crate) use text::CONTENT_TYPE;
use text::{Kind, Labels, Text, of_millionths, of_thousandths, seconds};

/// What the page tells.
#[derive(Clone, Copy)]
pub struct Told<'a> {
    /// Who it is.
    pub header: &'a Header,
    /// What providers and keys are called.
    pub names: &'a [Name],
    /// The segment's figures.
    pub figures: &'a Figures,
    /// What was asked of each model that has a name here.
    pub models: &'a [Model],
}

/// What was asked of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// As clients ask for it, with its provider.
    pub name: String,
    /// Requests that ended with it.
    pub requests: u64,
    /// Tokens in of these.
    pub prompt_tokens: u64,
    /// Tokens out of these.
    pub completion_tokens: u64,
}

/// Counters that are one family, told apart by a label, if there are several.
struct Counters {
    name: &'static str,
    help: &'static str,
    label: Option<&'static str>,
    of: &'static [Counter],
}

/// A counter that is a family by itself.
const fn alone(name: &'static str, of: &'static [Counter], help: &'static str) -> Counters {
    Counters {
        name,
        help,
        label: None,
        of,
    }
}

#[rustfmt::skip] // a table, and to be read as one
const COUNTERS: [Counters; 15] = [
    alone("bifrost_requests_started_total", &[Counter::Started], "Requests whose head was read."),
    Counters {
        name: "bifrost_requests_total",
        help: "Requests that ended, by how they did.",
        label: Some("outcome"),
        of: &[
            Counter::Completed, Counter::Cancelled, Counter::Rejected, Counter::Refused, Counter::Failed, Counter::Truncated,
        ],
    },
    alone("bifrost_streams_total", &[Counter::Streams], "Requests for a stream that ended, however they did."),
    alone("bifrost_request_timeouts_total", &[Counter::Timeouts], "Requests that a deadline ended: queue, connect, first byte, idle or total."),
    alone("bifrost_retries_total", &[Counter::Retries], "Attempts after the first at the same provider."),
    alone("bifrost_fallbacks_total", &[Counter::Fallbacks], "Times that the next provider of a list was tried."),
    alone("bifrost_upstream_rate_limited_total", &[Counter::RateLimited], "Answers of providers that they are at their limit (429)."),
    alone("bifrost_upstream_errors_total", &[Counter::ProviderErrors], "Answers of providers with 5xx, and broken connections."),
    alone("bifrost_upstream_dials_total", &[Counter::Dials], "Connections to providers that a request waited for."),
    alone("bifrost_request_bytes_total", &[Counter::RequestBytes], "Bytes of request bodies that were read to their end."),
    alone("bifrost_response_bytes_total", &[Counter::ResponseBytes], "Bytes of answers that were handed to clients."),
    alone("bifrost_prompt_tokens_total", &[Counter::PromptTokens], "Tokens in, as providers counted them."),
    alone("bifrost_completion_tokens_total", &[Counter::CompletionTokens], "Tokens out, as providers counted them."),
    alone("bifrost_records_total", &[Counter::Records], "Records that reached the histograms."),
    alone("bifrost_records_lost_total", &[Counter::Lost], "Records that found no room: counted, and in no histogram."),
];

/// What a gauge is told in.
enum Unit {
    One,
    Thousandths,
    Nanoseconds,
}

#[rustfmt::skip] // a table, and to be read as one
const GAUGES: [(&str, Gauge, Unit, &str); 14] = [
    ("bifrost_requests_in_flight", Gauge::InFlight, Unit::One, "Requests in the gateway."),
    ("bifrost_requests_waiting", Gauge::Waiting, Unit::One, "Requests that wait for a place at a provider."),
    ("bifrost_upstream_places_taken", Gauge::Upstream, Unit::One, "Places at providers that are taken."),
    ("bifrost_client_connections", Gauge::Connections, Unit::One, "Open client connections."),
    ("bifrost_held_body_bytes", Gauge::HeldBytes, Unit::One, "Bytes of bodies that are held."),
    ("process_resident_memory_bytes", Gauge::Rss, Unit::One, "Resident memory, the telemetry segment included."),
    ("bifrost_memory_peak_bytes", Gauge::RssPeak, Unit::One, "Peak of the resident memory since the start."),
    ("bifrost_memory_anonymous_bytes", Gauge::RssAnon, Unit::One, "Resident memory that no file backs."),
    ("bifrost_memory_limit_bytes", Gauge::MemoryLimit, Unit::One, "The lower of the host's memory and the control group's limit."),
    ("process_open_fds", Gauge::Descriptors, Unit::One, "Open file descriptors."),
    ("bifrost_cpu_ratio", Gauge::Cpu, Unit::Thousandths, "Processor time of the gateway in the last second, of all processors."),
    ("bifrost_host_cpu_ratio", Gauge::HostCpu, Unit::Thousandths, "Processor time of everything on the host in the last second, of all processors."),
    ("bifrost_host_steal_ratio", Gauge::Steal, Unit::Thousandths, "Processor time that the hypervisor gave to others in the last second, of all processors."),
    ("bifrost_scheduler_delay_seconds", Gauge::SchedulerDelay, Unit::Nanoseconds, "Mean time that the slowest runtime made a task wait in the last second."),
];

/// Series that are no stage, each a family of its own.
#[rustfmt::skip] // a table, and to be read as one
const SERIES: [(&str, Series, &str); 7] = [
    ("bifrost_overhead_seconds", Series::Overhead, "Sum of the stages that the benchmark page counts as overhead."),
    ("bifrost_request_seconds", Series::Total, "From a request's head to its last byte."),
    ("bifrost_added_seconds", Series::Added, "A request's whole time without that of the provider and of back-off."),
    ("bifrost_unattributed_seconds", Series::Unattributed, "A request's whole time without all of its stages: whether the figures can be trusted."),
    ("bifrost_first_byte_seconds", Series::FirstByte, "From a request's head to the first byte of its answer's body."),
    ("bifrost_time_to_first_token_seconds", Series::FirstToken, "From a stream's request to its first event with content."),
    ("bifrost_time_per_output_token_seconds", Series::TimePerToken, "From a stream's first token to its end, for each token after the first."),
];

/// The page.
#[must_use]
pub fn page(told: &Told<'_>) -> String {
    let Told {
        header, figures, ..
    } = *told;
    let mut text = Text::default();
    let mut build = text.family("bifrost_build_info", Kind::Gauge, "The gateway's version.");
    build.sample(&[("version", &header.build)], 1);
    let help = "When the gateway started, since the Unix epoch.";
    let mut start = text.family("process_start_time_seconds", Kind::Gauge, help);
    start.sample(&[], seconds(header.started_at));
    counters(&mut text, figures);
    gauges(&mut text, header, figures);
    runtimes(&mut text, &figures.runtimes);
    models(&mut text, told.models);
    slots(&mut text, told);
    histograms(&mut text, figures);
    text.into_page()
}

fn counters(text: &mut Text, figures: &Figures) {
    for Counters {
        name,
        help,
        label,
        of,
    } in COUNTERS
    {
        let mut family = text.family(name, Kind::Counter, help);
        for counter in of {
            let label = label.map(|label| (label, counter.key()));
            family.sample(label.as_slice(), figures.counter(*counter));
        }
    }
    let help = "Requests that did not get what they asked for, by the class of the reason.";
    let mut family = text.family("bifrost_request_faults_total", Kind::Counter, help);
    for fault in Fault::ALL.iter().filter(|fault| **fault != Fault::None) {
        family.sample(&[("fault", fault.key())], figures.faults(*fault));
    }
}

fn gauges(text: &mut Text, header: &Header, figures: &Figures) {
    for (name, gauge, unit, help) in GAUGES {
        let mut family = text.family(name, Kind::Gauge, help);
        let value = figures.gauge(gauge);
        match unit {
            Unit::One => family.sample(&[], value),
            Unit::Thousandths => family.sample(&[], of_thousandths(value)),
            Unit::Nanoseconds => family.sample(&[], seconds(value)),
        }
    }
    let help = "Requests that may wait for each provider.";
    let mut family = text.family("bifrost_requests_waiting_limit", Kind::Gauge, help);
    family.sample(&[], header.buffer_size);
}

fn runtimes(text: &mut Text, runtimes: &[Runtime]) {
    let help = "Mean time that each runtime made a task wait in the last second.";
    let name = "bifrost_runtime_scheduler_delay_seconds";
    let mut family = text.family(name, Kind::Gauge, help);
    for (number, runtime) in runtimes.iter().enumerate() {
        family.sample(&[("runtime", &number.to_string())], seconds(runtime.delay));
    }
    let help = "Records of each runtime that found no room.";
    let name = "bifrost_runtime_records_lost_total";
    let mut family = text.family(name, Kind::Counter, help);
    for (number, runtime) in runtimes.iter().enumerate() {
        family.sample(&[("runtime", &number.to_string())], runtime.lost);
    }
}

fn models(text: &mut Text, models: &[Model]) {
    type Of = fn(&Model) -> u64;
    let families: [(&str, &str, Of); 3] = [
        (
            "bifrost_model_requests_total",
            "Requests that ended, by the model they asked for last; other is each that the settings do not name.",
            |model| model.requests,
        ),
        (
            "bifrost_model_prompt_tokens_total",
            "Tokens in, by model.",
            |model| model.prompt_tokens,
        ),
        (
            "bifrost_model_completion_tokens_total",
            "Tokens out, by model.",
            |model| model.completion_tokens,
        ),
    ];
    for (name, help, of) in families {
        let mut family = text.family(name, Kind::Counter, help);
        for model in models {
            family.sample(&[("model", &model.name)], of(model));
        }
    }
}

/// A slot, and how it is told from others.
struct Named<'a> {
    slot: &'a Slot,
    provider: String,
    key: Option<String>,
}

impl Named<'_> {
    fn labels(&self) -> Vec<(&str, &str)> {
        let key = self.key.as_deref().map(|key| ("key", key));
        [("provider", self.provider.as_str())]
            .into_iter()
            .chain(key)
            .collect()
    }
}

fn slots(text: &mut Text, told: &Told<'_>) {
    let name_of = |kind: NameKind, index: u64| {
        let is_meant = |name: &&Name| name.kind == kind as u64 && name.index == index;
        let name = told
            .names
            .iter()
            .find(is_meant)
            .map(|name| name.key.clone());
        // There may be no room for a name. What has none still must not be taken for another.
        name.unwrap_or_else(|| format!("#{}", index & u64::from(u32::MAX)))
    };
    let named = told.figures.slots.iter().map(|slot| Named {
        slot,
        provider: name_of(NameKind::Provider, slot.provider.into()),
        key: slot.key.map(|_| name_of(NameKind::Key, slot.name_index())),
    });
    let (keys, providers): (Vec<_>, Vec<_>) = named.partition(|named| named.key.is_some());
    of_slots(text, ("provider", "the provider"), &providers);
    of_slots(text, ("key", "the key"), &keys);

    let mut value = |name: &str, help: &str, of: fn(&Slot) -> u64| {
        let mut family = text.family(name, Kind::Gauge, help);
        for named in &providers {
            family.sample(&named.labels(), of(named.slot));
        }
    };
    value(
        "bifrost_provider_places",
        "Requests that may be in flight at the provider.",
        |slot| slot.places,
    );
    value(
        "bifrost_provider_places_taken",
        "Requests in flight at the provider.",
        |slot| slot.taken,
    );
    value(
        "bifrost_provider_requests_waiting",
        "Requests that wait for a place at the provider.",
        |slot| slot.waiting,
    );
    let help = "The key's weight among those of its provider.";
    let mut family = text.family("bifrost_key_weight", Kind::Gauge, help);
    for named in &keys {
        family.sample(&named.labels(), of_millionths(named.slot.weight_millionths));
    }
}

/// What is told of providers and keys alike. `scope` is what they are in names, `it` in words.
fn of_slots(text: &mut Text, (scope, it): (&str, &str), all: &[Named<'_>]) {
    let name = format!("bifrost_{scope}_state");
    let help = format!("How {it} is: 1 for the state that it is in, 0 for the others.");
    let mut family = text.family(&name, Kind::Gauge, &help);
    for named in all {
        for state in SlotState::ALL
            .iter()
            .filter(|state| **state != SlotState::Empty)
        {
            let labels = [&named.labels()[..], &[("state", state.key())]].concat();
            family.sample(&labels, u8::from(named.slot.state == *state));
        }
    }
    let name = format!("bifrost_{scope}_rests_until_timestamp_seconds");
    let help = format!("Until when {it} rests, since the Unix epoch; 0 when it does not.");
    let mut family = text.family(&name, Kind::Gauge, &help);
    for named in all {
        family.sample(&named.labels(), seconds(named.slot.until));
    }
    let name = format!("bifrost_{scope}_attempts_ended_total");
    let help = format!("Attempts made with {it} that ended, by how they did.");
    let mut family = text.family(&name, Kind::Counter, &help);
    for named in all {
        for result in [
            SlotCount::Answered,
            SlotCount::RateLimited,
            SlotCount::Refused,
            SlotCount::Failed,
        ] {
            let labels = [&named.labels()[..], &[("result", result.key())]].concat();
            family.sample(&labels, named.slot.count(result));
        }
    }
    #[rustfmt::skip] // a table, and to be read as one
    let counts = [
        ("attempts", SlotCount::Attempts, "Attempts that were made with"),
        ("requests", SlotCount::Requests, "Requests that ended with"),
        ("prompt_tokens", SlotCount::PromptTokens, "Tokens in of requests that ended with"),
        ("completion_tokens", SlotCount::CompletionTokens, "Tokens out of requests that ended with"),
    ];
    for (what, count, help) in counts {
        let (name, help) = (
            format!("bifrost_{scope}_{what}_total"),
            format!("{help} {it}."),
        );
        let mut family = text.family(&name, Kind::Counter, &help);
        for named in all {
            family.sample(&named.labels(), named.slot.count(count));
        }
    }
    let name = format!("bifrost_{scope}_latency_seconds");
    let help = format!("Time that whole answers of {it} took.");
    let mut family = text.family(&name, Kind::Summary, &help);
    for named in all {
        let latency = &named.slot.latency;
        family.sum_and_count(&named.labels(), latency.sum, latency.count);
    }
}

fn histograms(text: &mut Text, figures: &Figures) {
    let help = "Time in each stage, of the requests that came to it.";
    let mut family = text.family("bifrost_stage_seconds", Kind::Histogram, help);
    for stage in Stage::ALL {
        let labels: Labels<'_> = &[("stage", stage.key())];
        family.histogram(labels, figures.histogram(Series::Stage(stage)));
    }
    for (name, series, help) in SERIES {
        let mut family = text.family(name, Kind::Histogram, help);
        family.histogram(&[], figures.histogram(series));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use bifrost_shared::layout::{ClockKind, CreditMode};
    use bifrost_shared::slot::Latency;
    use bifrost_shared::thresholds::Thresholds;

    use super::*;

    fn header() -> Header {
        Header {
            version: (2, 0),
            pid: 1,
            start_ticks: 1,
            boot_id: [1, 2],
            started_at: 1_796_040_000_500_000_000,
            clock: ClockKind::Tsc,
            stamp_cost_ps: 1,
            vcpus: 2,
            memory_total: 1,
            memory_limit: 1,
            buffer_size: 15_000,
            pool_size: 10_000,
            workers: 2,
            thresholds: Thresholds::default(),
            build: "1.2.3".to_owned(),
            instance: String::new(),
            credit_mode: CreditMode::Unknown,
        }
    }

    fn name(kind: NameKind, index: u64, key: &str) -> Name {
        Name {
            kind: kind as u64,
            index,
            is_stage: false,
            in_overhead: false,
            reference_ns: (None, None),
            key: key.to_owned(),
            label: String::new(),
        }
    }

    fn slot(provider: u16, key: Option<u16>, state: SlotState) -> Slot {
        let mut latency = Latency::default();
        (latency.count, latency.sum) = (2, 3_000_000_001);
        Slot {
            provider,
            key,
            state,
            until: 0,
            weight_millionths: 700_000,
            places: 30,
            taken: 20,
            waiting: 10,
            counts: [1, 2, 3, 4, 5, 6, 7, 8],
            latency,
        }
    }

    fn told(figures: &Figures, names: &[Name], models: &[Model]) -> String {
        page(&Told {
            header: &header(),
            names,
            figures,
            models,
        })
    }

    #[test]
    fn every_figure_of_the_segment_is_told_once() {
        let counters: Vec<_> = COUNTERS.iter().flat_map(|family| family.of).collect();
        assert_eq!(counters.len(), Counter::COUNT);
        assert_eq!(
            counters.into_iter().collect::<HashSet<_>>().len(),
            Counter::COUNT
        );
        let gauges: HashSet<_> = GAUGES.iter().map(|(_, gauge, ..)| gauge).collect();
        assert_eq!((gauges.len(), GAUGES.len()), (Gauge::COUNT, Gauge::COUNT));
        let stages = Stage::ALL.into_iter().map(Series::Stage);
        let series: HashSet<_> = stages.chain(SERIES.map(|(_, series, _)| series)).collect();
        assert_eq!(series, Series::all().collect());

        let page = told(&Figures::default(), &[], &[]);
        let types: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("# TYPE"))
            .collect();
        let helps = page
            .lines()
            .filter(|line| line.starts_with("# HELP"))
            .count();
        assert_eq!(helps, types.len());
        assert_eq!(
            types.iter().collect::<HashSet<_>>().len(),
            types.len(),
            "no family twice"
        );
    }

    #[test]
    fn figures_are_told_in_base_units_and_by_the_names_of_the_settings() {
        let mut figures = Figures::default();
        figures.counters[Counter::Refused.index()] = 5;
        figures.faults[Fault::None.index()] = 40;
        figures.faults[Fault::QueueFull.index()] = 4;
        figures.gauges[Gauge::Cpu.index()] = 125;
        figures.gauges[Gauge::SchedulerDelay.index()] = 31_000;
        figures.runtimes = vec![
            Runtime::default(),
            Runtime {
                ran_at: 1,
                delay: 30_000,
                lost: 3,
            },
        ];
        let mut resting = slot(1, Some(1), SlotState::Resting);
        resting.until = 1_796_040_001_000_000_000;
        figures.slots = vec![
            slot(0, None, SlotState::Ready),
            slot(1, None, SlotState::Warming),
            slot(1, Some(0), SlotState::Ready),
            resting,
        ];
        let names = [
            name(NameKind::Provider, 0, "openai"),
            name(NameKind::Provider, 1, "local"),
            name(NameKind::Key, 1 << 32, "main"),
        ];
        let models = [Model {
            name: "local/say \"hi\"".to_owned(),
            requests: 9,
            prompt_tokens: 63,
            completion_tokens: 18,
        }];
        let page = told(&figures, &names, &models);
        for line in [
            "bifrost_build_info{version=\"1.2.3\"} 1",
            "process_start_time_seconds 1796040000.5",
            "bifrost_requests_total{outcome=\"refused\"} 5",
            "bifrost_request_faults_total{fault=\"queue_full\"} 4",
            "bifrost_cpu_ratio 0.125",
            "bifrost_scheduler_delay_seconds 0.000031",
            "bifrost_requests_waiting_limit 15000",
            "bifrost_runtime_scheduler_delay_seconds{runtime=\"1\"} 0.00003",
            "bifrost_runtime_records_lost_total{runtime=\"1\"} 3",
            "bifrost_model_requests_total{model=\"local/say \\\"hi\\\"\"} 9",
            "bifrost_model_completion_tokens_total{model=\"local/say \\\"hi\\\"\"} 18",
            "bifrost_provider_state{provider=\"openai\",state=\"ready\"} 1",
            "bifrost_provider_state{provider=\"openai\",state=\"resting\"} 0",
            "bifrost_provider_places{provider=\"local\"} 30",
            "bifrost_provider_places_taken{provider=\"local\"} 20",
            "bifrost_provider_requests_waiting{provider=\"local\"} 10",
            "bifrost_provider_latency_seconds_sum{provider=\"local\"} 3.000000001",
            "bifrost_key_attempts_total{provider=\"local\",key=\"main\"} 1",
            "bifrost_key_attempts_ended_total{provider=\"local\",key=\"main\",result=\"answered\"} 2",
            "bifrost_key_attempts_ended_total{provider=\"local\",key=\"main\",result=\"failed\"} 5",
            "bifrost_key_requests_total{provider=\"local\",key=\"main\"} 6",
            "bifrost_key_weight{provider=\"local\",key=\"main\"} 0.7",
            // There is no room for the name of every key.
            "bifrost_key_state{provider=\"local\",key=\"#1\",state=\"resting\"} 1",
            "bifrost_key_rests_until_timestamp_seconds{provider=\"local\",key=\"#1\"} 1796040001",
        ] {
            assert!(page.lines().any(|told| told == line), "{line}\n{page}");
        }
        assert!(!page.contains("fault=\"none\""), "to have none is no fault");
        let samples: Vec<_> = page
            .lines()
            .filter_map(|line| line.rsplit_once(' '))
            .collect();
        let names: HashSet<_> = samples.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names.len(),
            samples.len(),
            "a series that is there twice spoils the page"
        );
    }
}
