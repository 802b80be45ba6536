//! Gateways that were invented, to see the dashboard and its verdict at work: what a t3.medium looks like when all is
//! well, and in each of the troubles it may have. Always the same, second for second, so that tests may rely on them.
//!
//! The figures go through the real writer into a segment on the heap, and are read from there as any are.

use std::rc::Rc;

use bifrost_shared::layout::{
    self, ClockKind, Counter, CreditMode, Gauge, NameKind, State, VERSION_MAJOR, VERSION_MINOR,
};
use bifrost_shared::record::{Fault, NONE, Outcome, Record};
use bifrost_shared::segment::Segment;
use bifrost_shared::slot::{SlotState, Standing};
use bifrost_shared::snapshot::{Freshness, Header, Name, Rows, Runtime, Samples, View};
use bifrost_shared::stage::{Series, Stage};
use bifrost_shared::thresholds::Thresholds;
use bifrost_shared::writer::{Now, Writer};
use clap::ValueEnum;

use crate::format::SECOND;
use crate::model::observation::{Observation, Reading, Sight};

/// When they begin: on the monotonic clock, and since the Unix epoch.
const BEGIN: (u64, u64) = (100_000 * SECOND, 1_796_040_000 * SECOND);
const MEMORY: u64 = 4_000_000_000;
/// Requests of a second whose records are made: enough to be judged by, and cheap.
const RECORDS_MAX: u64 = 200;
/// Seconds from one request that fails to the next.
const FAILS_EVERY: u64 = 10;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Half the load that a t3.medium is good for.
    Calm,
    /// The load grows until it is nearly too much.
    Approaching,
    /// Requests wait longer and longer for a place, and then too long.
    QueueWait,
    /// Memory grows without end.
    MemoryLeak,
    /// The CPU credits are spent, and the hypervisor takes most of the processor away.
    Credits,
    /// Too few requests to judge queue wait by.
    Thin,
    /// The gateway is killed, and another one started.
    Restart,
}

/// How a gateway is in one second.
#[derive(Debug, Clone, Copy)]
struct Second {
    load: u64,
    queue_wait: u64,
    rss: u64,
    host_cpu: u64,
    steal: u64,
    scheduler_delay: u64,
    key_rests: bool,
}

impl Scenario {
    /// How long it takes, seconds.
    const fn length(self) -> u64 {
        match self {
            Self::Calm | Self::Thin => 180,
            Self::Restart => 240,
            Self::Approaching | Self::Credits | Self::MemoryLeak => 420,
            Self::QueueWait => 480,
        }
    }

    /// When the gateway dies, and when the next one is there.
    const fn dead(self) -> (u64, u64) {
        match self {
            Self::Restart => (120, 135),
            _ => (u64::MAX, u64::MAX),
        }
    }

    /// How it is in its `second`th second.
    const fn at(self, second: u64) -> Second {
        let calm = Second {
            load: 2_000,
            queue_wait: 24_000,
            rss: 900_000_000,
            host_cpu: 180,
            steal: 0,
            scheduler_delay: 31_000,
            key_rests: false,
        };
        // What the last minutes have that the first ones lack.
        let late = second.saturating_sub(120);
        match self {
            Self::Calm | Self::Restart => calm,
            Self::Approaching => Second {
                load: 2_400 + 7 * second / 2,
                queue_wait: 30_000 + 50 * second,
                host_cpu: 400 + second,
                ..calm
            },
            Self::QueueWait => Second {
                load: 3_400,
                queue_wait: 47_130 + 300 * late,
                rss: 1_300_000_000,
                host_cpu: 760,
                scheduler_delay: 31_000 + 1_000 * late,
                key_rests: second > 300,
                ..calm
            },
            Self::MemoryLeak => Second {
                rss: 1_200_000_000 + 5_500_000 * second,
                ..calm
            },
            Self::Credits => {
                let is_throttled = second >= 180;
                Second {
                    load: if is_throttled { 900 } else { 2_800 },
                    queue_wait: if is_throttled { 210_000 } else { 41_000 },
                    host_cpu: if is_throttled { 1_000 } else { 720 },
                    steal: if is_throttled { 780 } else { 0 },
                    scheduler_delay: if is_throttled { 4_000_000 } else { 40_000 },
                    ..calm
                }
            }
            Self::Thin => Second {
                load: 20,
                queue_wait: 400,
                host_cpu: 20,
                ..calm
            },
        }
    }

    const fn credit_mode(self) -> CreditMode {
        match self {
            Self::Credits => CreditMode::Standard,
            _ => CreditMode::Unlimited,
        }
    }
}

/// The looks at it, one a second.
pub(crate) struct Looks {
    scenario: Scenario,
    second: u64,
    gateway: Gateway,
    attachment: u64,
}

/// One of its gateways.
struct Gateway {
    writer: Writer,
    view: Rc<View>,
    rows: Rows,
    samples: Samples,
    counters: [u64; Counter::COUNT],
    faults: [u64; Fault::COUNT],
    slots: [[u64; 5]; 3],
    noise: u64,
    /// When it was last heard of, on the monotonic clock.
    beat: u64,
}

impl Looks {
    /// Those of `scenario`.
    pub(crate) fn of(scenario: Scenario) -> Self {
        Self {
            scenario,
            second: 0,
            gateway: Gateway::start(scenario, 0),
            attachment: 1,
        }
    }
}

impl Iterator for Looks {
    type Item = Observation;

    fn next(&mut self) -> Option<Observation> {
        if self.second == self.scenario.length() {
            return None;
        }
        self.second += 1;
        let (dies, returns) = self.scenario.dead();
        if self.second == returns {
            self.gateway = Gateway::start(self.scenario, self.second);
            self.attachment += 1;
        }
        let alive = self.second < dies || self.second >= returns;
        let time = self.second * SECOND;
        let at = BEGIN.0 + time;
        if alive {
            let second = self.scenario.at(self.second);
            self.gateway.close(&second, self.second);
        }
        Some(Observation {
            at,
            unix_ns: BEGIN.1 + time,
            sight: Sight::Gateway(Box::new(self.gateway.read(self.attachment, alive))),
        })
    }
}

impl Gateway {
    fn start(scenario: Scenario, second: u64) -> Self {
        let header = header(scenario, second);
        let writer = Writer::new(Segment::on_heap(layout::segment_bytes()), &header, &names());
        writer.segment().set_state(State::Running);
        let words = writer.segment().words();
        let view = View::of(words).expect("a segment of this version is readable");
        let rows = view.rows_from_oldest(words);
        let samples = view.samples_from_oldest(words);
        Self {
            rows: rows.expect("a segment of this version has rows"),
            samples: samples.expect("a segment of this version has records"),
            view: Rc::new(view),
            counters: [0; Counter::COUNT],
            faults: [0; Fault::COUNT],
            slots: [[0; 5]; 3],
            noise: 0x9e37_79b9_7f4a_7c15 ^ second,
            beat: 0,
            writer,
        }
    }

    /// Lets a second pass.
    fn close(&mut self, now: &Second, second: u64) {
        let load = self.about(now.load);
        let failed = u64::from(second.is_multiple_of(FAILS_EVERY));
        for (counter, gained) in [
            (Counter::Started, load),
            (Counter::Completed, load - failed),
            (Counter::Failed, failed),
            (Counter::RequestBytes, load * 130),
            (Counter::ResponseBytes, load * 1_370),
            (Counter::PromptTokens, load * 20),
            (Counter::CompletionTokens, load * 200),
            (Counter::Records, load.min(RECORDS_MAX)),
            (Counter::RateLimited, u64::from(now.key_rests) * 40),
        ] {
            self.counters[counter.index()] += gained;
        }
        let ended_at = BEGIN.1 + second * SECOND;
        let count = load.min(RECORDS_MAX);
        let records: Vec<_> = (0..count)
            .map(|at| Record {
                ended_at: ended_at - (count - 1 - at) * (SECOND / count),
                id: second * RECORDS_MAX + at,
                provider: 0,
                key: u16::from(at % 10 >= 7),
                ..if at < failed {
                    refused(self.record(now.queue_wait))
                } else {
                    self.record(now.queue_wait)
                }
            })
            .collect();
        self.faults[Fault::Connect.index()] += failed;
        self.stand(load, now.key_rests, ended_at);
        self.writer.absorb(&records);
        let gauges = self.gauges(now, load);
        self.writer
            .close_second(ended_at, SECOND, false, &self.counters, &gauges);
        self.beat = BEGIN.0 + second * SECOND - SECOND / 50;
        let runtime = Runtime {
            ran_at: self.beat,
            delay: now.scheduler_delay,
            lost: 0,
        };
        self.writer.show(Now {
            counters: &self.counters,
            gauges: &gauges,
            faults: &self.faults,
            runtimes: &[runtime; 2],
        });
    }

    /// `value`, and a twentieth more or less of it: a xorshift.
    fn about(&mut self, value: u64) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        value * (950 + self.noise % 101) / 1_000
    }

    /// A request as the benchmark page's, quicker or slower as a whole.
    fn record(&mut self, queue_wait: u64) -> Record {
        let share = self.about(1_000);
        let mut record = Record {
            outcome: Outcome::Completed,
            ended_in: Stage::ResponseWriting,
            status: 200,
            attempts: 1,
            prompt_tokens: 20,
            completion_tokens: 200,
            ..Record::default()
        };
        for stage in Stage::ALL {
            let mean = match stage {
                Stage::QueueWait => queue_wait,
                Stage::BackOff => 0,
                _ => Series::Stage(stage).reference_ns().0.unwrap_or(5_000),
            };
            record.stages[stage.index()] = mean * share / 1_000;
        }
        record.total = record.stages.iter().sum::<u64>() + 70;
        record.first_byte = record.total / 2;
        record
    }

    fn gauges(&mut self, now: &Second, load: u64) -> [u64; Gauge::COUNT] {
        let mut gauges = [0; Gauge::COUNT];
        for (gauge, value) in [
            // Little's law, at 1.57 s a request.
            (Gauge::InFlight, load * 157 / 100),
            (Gauge::Upstream, load * 156 / 100),
            (Gauge::Connections, load * 160 / 100),
            (Gauge::Waiting, load * now.queue_wait / SECOND),
            (Gauge::Rss, now.rss),
            (Gauge::RssPeak, now.rss),
            (Gauge::RssAnon, now.rss - 30_000_000),
            (Gauge::MemoryLimit, MEMORY),
            (Gauge::Cpu, now.host_cpu.saturating_sub(now.steal) * 19 / 20),
            (Gauge::Steal, now.steal),
            (Gauge::HostCpu, now.host_cpu),
            (Gauge::Descriptors, 60 + load * 3),
            (Gauge::HeldBytes, load * 1_500),
            (Gauge::SchedulerDelay, self.about(now.scheduler_delay)),
        ] {
            gauges[gauge.index()] = value;
        }
        gauges
    }

    fn stand(&mut self, load: u64, key_rests: bool, ended_at: u64) {
        let asked = [load, load * 7 / 10, load - load * 7 / 10];
        for (slot, asked) in self.slots.iter_mut().zip(asked) {
            slot[0] += asked;
            slot[1] += asked;
        }
        if key_rests {
            self.slots[2][2] += 40;
        }
        let standing = |slot: usize, key, weight_millionths| Standing {
            provider: 0,
            key,
            incarnation: 1,
            state: if key_rests && slot == 2 {
                SlotState::Resting
            } else {
                SlotState::Ready
            },
            until: if key_rests && slot == 2 {
                ended_at + 5 * SECOND
            } else {
                0
            },
            weight_millionths,
            places: 15_000,
            taken: asked[slot] * 156 / 100,
            waiting: 0,
            counts: self.slots[slot],
        };
        let standings = [
            standing(0, NONE, 0),
            standing(1, 0, 700_000),
            standing(2, 1, 300_000),
        ];
        self.writer.stand(&standings);
    }

    fn read(&mut self, attachment: u64, alive: bool) -> Reading {
        let words = self.writer.segment().words();
        Reading {
            attachment,
            path: format!("/run/bifrost/gateway-{}.seg", self.view.header.pid).into(),
            view: Rc::clone(&self.view),
            alive,
            is_replayed: false,
            freshness: Freshness {
                exporter_at: self.beat,
                slowest_runtime_at: self.beat,
                ..self.view.freshness(words)
            },
            rows: std::iter::from_fn(|| self.rows.next(words)).collect(),
            records: std::iter::from_fn(|| self.samples.next(words)).collect(),
            records_missed: self.samples.missed(),
            figures: self.view.figures(words),
        }
    }
}

/// What becomes of `record` where its provider can't be reached.
fn refused(record: Record) -> Record {
    let mut stages = record.stages;
    for stage in [Stage::HttpRequest, Stage::ResponseParsing] {
        stages[stage.index()] = 0;
    }
    Record {
        outcome: Outcome::Failed,
        fault: Fault::Connect,
        status: 502,
        completion_tokens: 0,
        total: stages.iter().sum::<u64>() + 70,
        stages,
        ..record
    }
}

fn header(scenario: Scenario, second: u64) -> Header {
    Header {
        version: (VERSION_MAJOR, VERSION_MINOR),
        pid: 4_711 + second,
        start_ticks: 12 + second,
        boot_id: [1, 2],
        started_at: BEGIN.1 + second * SECOND,
        clock: ClockKind::Tsc,
        stamp_cost_ps: 9_500,
        vcpus: 2,
        memory_total: MEMORY,
        memory_limit: MEMORY,
        buffer_size: 15_000,
        pool_size: 10_000,
        workers: 2,
        thresholds: Thresholds::default(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
        instance: "t3.medium".to_owned(),
        credit_mode: scenario.credit_mode(),
    }
}

fn names() -> Vec<Name> {
    let name = |kind: NameKind, index: u64, key: &str, label: &str| Name {
        kind: kind as u64,
        index,
        is_stage: false,
        in_overhead: false,
        reference_ns: (None, None),
        key: key.to_owned(),
        label: label.to_owned(),
    };
    vec![
        name(NameKind::Provider, 0, "openai", "openai"),
        name(NameKind::Key, 0, "team", "openai/team"),
        name(NameKind::Key, 1, "spare", "openai/spare"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::report::json;

    /// States and verdicts, each once, in their order.
    fn history(scenario: Scenario) -> Vec<(String, String)> {
        let mut model = Model::default();
        let mut history = vec![];
        for look in Looks::of(scenario) {
            model.absorb(look);
            let told = json::text(&model, None).unwrap();
            let told: serde_json::Value = serde_json::from_str(&told).unwrap();
            let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            let now = (text(&told["state"]), text(&told["verdict"]["state"]));
            if history.last() != Some(&now) {
                history.push(now);
            }
        }
        history
    }

    #[track_caller]
    fn is(scenario: Scenario, expected: &[(&str, &str)]) {
        let found = history(scenario);
        let found: Vec<_> = found
            .iter()
            .map(|(state, verdict)| (state.as_str(), verdict.as_str()))
            .collect();
        assert_eq!(found, expected, "{scenario:?}");
    }

    #[test]
    fn calm_is_stay_throughout() {
        is(Scenario::Calm, &[("live", "stay")]);
        is(Scenario::Thin, &[("live", "stay")]);
    }

    #[test]
    fn what_gets_worse_is_to_be_watched_before_it_is_too_much() {
        is(
            Scenario::Approaching,
            &[("live", "stay"), ("live", "watch")],
        );
        let worse = [("live", "stay"), ("live", "watch"), ("live", "upgrade")];
        is(Scenario::QueueWait, &worse);
        is(Scenario::MemoryLeak, &worse);
    }

    #[test]
    fn a_gateway_that_died_has_no_verdict_and_the_next_one_begins_anew() {
        let expected = [("live", "stay"), ("dead", "unknown"), ("live", "stay")];
        is(Scenario::Restart, &expected);
    }

    #[test]
    fn throttling_is_named_as_such() {
        let mut model = Model::default();
        Looks::of(Scenario::Credits).for_each(|look| model.absorb(look));
        let verdict = &model.gateway().unwrap().verdict;
        let text = verdict.text();
        assert!(
            text.contains("steal 78%") && text.contains("CPU credits are spent"),
            "{text}"
        );
        // Nothing else helps as long as the processors are held back.
        assert!(
            verdict.remedies[0].starts_with("CPU credits: "),
            "{:?}",
            verdict.remedies
        );
    }
}
