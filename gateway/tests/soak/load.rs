//! The soak: every request has exactly one outcome, and client, gateway and provider agree on it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bifrost_shared::layout::Gauge;
use bifrost_shared::record::{Fault, Outcome, Record};
use bifrost_shared::stage::Stage;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Verdict;
use crate::agreement;
use crate::client::{self, Idle, Saw, Seen};
use crate::mix::{self, Kind, Request};
use crate::process::{Gateway, Memory};
use crate::provider::{Manner, Provider};

/// How much, and for how long.
pub struct Load {
    pub time: Duration,
    pub rps: u32,
    pub reload: bool,
}

/// What one request came to, on all sides.
pub struct Joined {
    pub kind: Kind,
    body_bytes: u32,
    pub seen: Seen,
    /// The record of its id, and how many there are.
    pub record: Option<(Record, u32)>,
    asked: u32,
}

/// Requests that may wait for a provider.
const BUFFER_SIZE: u32 = 10;

pub async fn run(load: &Load, verdict: &mut Verdict) {
    let Load { time, rps, .. } = *load;
    println!(
        "{rps} requests a second for {time:?}: 5 % 500, 5 % 429, 2 % stalls, 2 % cut, 1 % no answer, 10 % leave; 8 % to \
         a narrow provider, 4 % to a fallback, 6 % wrong, 2 % half a body"
    );
    let provider = Provider::start(Manner::Faulty);
    let settings = mix::settings(provider.address, BUFFER_SIZE);
    let mut gateway = Gateway::start(provider.address, &settings).await;
    let descriptors = gateway.descriptors();
    let idle = Arc::new(Idle::default());
    let mut records = gateway.records();
    let mut memory: Vec<Memory> = vec![];
    let (mut saw, mut running) = (HashMap::new(), JoinSet::new());

    let (begun, mut sent, mut reloads) = (Instant::now(), 0_u32, 0_u32);
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    while begun.elapsed() < time {
        ticks.tick().await;
        let due = (begun.elapsed().as_secs_f64() * f64::from(rps)).floor();
        while f64::from(sent) < due {
            sent += 1;
            let (idle, address, id) = (Arc::clone(&idle), gateway.address, u64::from(sent));
            let Request {
                kind,
                bytes,
                body_bytes,
                patience,
            } = Request::any(id);
            running.spawn(async move {
                let seen = client::ask(address, &idle, &bytes, patience).await;
                (id, (kind, body_bytes, seen))
            });
        }
        while let Some(ended) = running.try_join_next() {
            let (id, ended) = ended.unwrap();
            saw.insert(id, ended);
        }
        gateway.read(&mut records);
        if begun.elapsed().as_secs_f64() >= memory.len() as f64 {
            memory.push(gateway.memory());
        }
        let due = begun.elapsed().as_secs_f64() / time.as_secs_f64().min(240.0) * 4.0;
        if load.reload && due > f64::from(reloads + 1) {
            reloads += 1;
            let other = mix::settings(provider.address, BUFFER_SIZE + reloads);
            gateway.reload(provider.address, &other);
        }
    }
    let rate = f64::from(sent) / begun.elapsed().as_secs_f64();
    saw.extend(running.join_all().await);
    gateway.gauge_back_to(Gauge::InFlight, 0).await;
    // The last record is there within the exporter's 50 ms.
    let all = Instant::now() + Duration::from_secs(5);
    while records.by_id.len() < saw.len() && Instant::now() < all {
        ticks.tick().await;
        gateway.read(&mut records);
    }

    verdict.check(
        "requests a second",
        format!("{rate:.0}"),
        rate > f64::from(rps) * 0.97,
    );
    verdict.check(
        "records that were overwritten unread",
        records.missed(),
        records.missed() == 0,
    );
    let asked = provider.asked();
    let joined: Vec<Joined> = saw
        .iter()
        .map(|(id, (kind, body_bytes, seen))| Joined {
            kind: *kind,
            body_bytes: *body_bytes,
            seen: *seen,
            record: records.by_id.get(id).copied(),
            asked: asked.get(id).copied().unwrap_or(0),
        })
        .collect();
    outcomes(&joined, verdict);
    let strangers = records
        .by_id
        .keys()
        .filter(|id| !saw.contains_key(id))
        .count();
    verdict.check("records of nobody's request", strangers, strangers == 0);
    let all: Vec<Record> = records.by_id.values().map(|(record, _)| *record).collect();
    agreement::check(&gateway, &joined, &all, verdict).await;
    log(&gateway.log(), &joined, verdict);
    if load.reload {
        println!("      reloads: {reloads}");
    }
    remains(&mut gateway, &memory, time, verdict);
    idle.clear();
    drop(provider);
    let left = gateway.descriptors_back_to(descriptors).await;
    verdict.check(
        "descriptors",
        format!("{left}, {descriptors} at the start"),
        left <= descriptors,
    );
}

impl Joined {
    /// Whether the client had what the gateway says.
    fn agrees_with(&self, record: &Record) -> bool {
        let Seen { saw, bytes } = self.seen;
        let is_whole_body = record.request_bytes == self.body_bytes;
        let meant = match self.kind {
            Kind::BadJson => Saw::Error(400, Fault::Request),
            Kind::Unknown => Saw::Error(404, Fault::Request),
            Kind::Half => Saw::Left,
            _ => saw,
        };
        let ended = (record.outcome, record.fault);
        meant == saw
            && match saw {
                Saw::Whole | Saw::Broken(_) => is_whole_body && record.response_bytes == bytes,
                Saw::Error(status, _) => is_whole_body && record.status == status,
                Saw::Left if self.kind == Kind::Half => {
                    let place = (record.outcome, record.ended_in);
                    place == (Outcome::Cancelled, Stage::RequestParsing)
                }
                // It may have ended just before the client left.
                Saw::Left => true,
                Saw::Nonsense => false,
            }
            && saw.means().is_none_or(|means| means == ended)
    }
}

/// Whether all sides agree on each request.
fn outcomes(joined: &[Joined], verdict: &mut Verdict) {
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    let mut wrong = vec![];
    for joined in joined {
        let (saw, record, asked) = (&joined.seen.saw, joined.record.as_ref(), joined.asked);
        // The request and its client's end came in one read, and the server never began on it.
        if (*saw, record.is_none(), asked) == (Saw::Left, true, 0) {
            *kinds
                .entry("Left before it was looked at".to_owned())
                .or_insert(0) += 1;
            continue;
        }
        *kinds
            .entry(format!("{:?}: {saw:?}", joined.kind))
            .or_insert(0) += 1;
        let Some((record, 1)) = record else {
            wrong.push(format!("{saw:?} with records {record:?}"));
            continue;
        };
        let attempts = u32::from(record.attempts);
        // Where the gateway gave up first, the provider may never have come to read the request.
        let may_be_less = matches!(saw, Saw::Left | Saw::Error(504, _));
        let is_asked = asked == attempts || (may_be_less && asked < attempts);
        if !joined.agrees_with(record) || !is_asked {
            wrong.push(format!(
                "{:?}: {saw:?}, asked {asked} times, {record:?}",
                joined.kind
            ));
        }
    }
    for (kind, count) in kinds {
        println!("      {kind}: {count}");
    }
    let examples = wrong
        .iter()
        .take(3)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n      ");
    let figure = format!("{} of {} {examples}", wrong.len(), joined.len());
    verdict.check(
        "requests without exactly one outcome that all agree on",
        figure,
        wrong.is_empty(),
    );
}

/// Each complaint in the log must be about a request that did not go well.
fn log(log: &[Value], joined: &[Joined], verdict: &mut Verdict) {
    let recorded = joined.iter().filter_map(|joined| {
        let (record, _) = joined.record?;
        Some((record.id, joined.seen.saw))
    });
    let saw: HashMap<u64, Saw> = recorded.collect();
    let is_explained = |line: &Value| match line["level"].as_str() {
        Some("INFO") => true,
        Some("WARN") => {
            let id = line["id"]
                .as_str()
                .and_then(|id| u64::from_str_radix(id, 16).ok());
            let about = id.and_then(|id| saw.get(&id));
            let is_about_limit = line["message"]
                .as_str()
                .unwrap_or_default()
                .contains("descriptor limit");
            is_about_limit || about.is_some_and(|saw| *saw != Saw::Whole)
        }
        _ => false,
    };
    let without_cause: Vec<_> = log.iter().filter(|line| !is_explained(line)).collect();
    let figure = format!(
        "{} of {} {:?}",
        without_cause.len(),
        log.len(),
        without_cause.first()
    );
    verdict.check(
        "lines of the log without a cause",
        figure,
        without_cause.is_empty(),
    );
}

/// Until then caches and rings of records fill up: measured, 12 s at 1,000 requests a second.
const WARM_UP: Duration = Duration::from_secs(15);

/// A part of the memory, in megabytes.
type Part = fn(&Memory) -> f64;

fn remains(gateway: &mut Gateway, memory: &[Memory], time: Duration, verdict: &mut Verdict) {
    let alive = gateway.is_alive();
    verdict.check("the process lives", alive, alive);
    let early = (time / 10).max(WARM_UP.min(time / 4));
    let early = early.min(Duration::from_mins(2)).as_secs();
    let early = usize::try_from(early).unwrap().clamp(1, memory.len());
    let last = (memory.len() / 6).clamp(1, 20);
    // The lowest of several looks: when the machine has stood still for a moment, requests pile up, and the allocator
    // keeps their memory for some five seconds more. What leaks is there at every look.
    let lowest = |part: &[Memory], of: Part| part.iter().map(of).fold(f64::INFINITY, f64::min);
    // The segment's rings are full, and belong to the memory that must not grow, once a run is long enough.
    let is_long = early >= 20;
    let measures: [(&str, Part, bool); 2] = [
        ("heap", |memory| memory.heap_mb, true),
        ("resident memory", |memory| memory.all_mb, is_long),
    ];
    for (name, of, counts) in measures {
        let before = lowest(&memory[early - 1..memory.len().min(early + 2)], of);
        let after = lowest(&memory[memory.len() - last..], of);
        let figure = format!("{after:.1} MB at the end, {before:.1} MB after {early} s");
        verdict.check(name, figure, after <= before * 1.2 || !counts);
    }
    let held = gateway.gauge(Gauge::HeldBytes);
    verdict.check("bytes still held", held, held == 0);
}
