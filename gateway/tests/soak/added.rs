//! What the gateway adds, seen from outside, and where it goes. Requests go to the provider directly and through the
//! gateway in turn; for each that went through, three clocks tell: the client's, the gateway's record, and the
//! provider's, joined by the request's id.
//!
//! ```text
//! client ──▶ gateway ──▶ provider        added = (through − service) − (direct − service)
//!        └──── direct ──────▶                  = in-process added
//!                                              + (HTTP request − service)
//!                                              + residual
//! ```
//!
//! The residual is what neither clock of ours sees: the client's hop to the gateway (a socket, a wake-up) less its hop
//! to the provider on the direct way, which is printed beside it.

use std::net::SocketAddr;
use std::time::Duration;

use bifrost_shared::stage::Stage;
use tokio::time::Instant;

use crate::Verdict;
use crate::client::{self, Idle, Saw};
use crate::process::{Gateway, Records};
use crate::provider::{Manner, Provider};

/// Requests each way in a run.
const REQUESTS: u64 = 500;
const RUNS: u64 = 3;

/// What one run came to, microseconds: means over its requests.
#[derive(Debug, Clone, Copy)]
struct Terms {
    added: f64,
    in_process: f64,
    hop: f64,
    residual: f64,
    /// Of the direct way: the client's whole hop.
    direct_hop: f64,
    connect: f64,
    connected: usize,
}

/// A request each way: its id, and how long it took its client, microseconds.
struct Pair {
    direct: (u64, f64),
    through: (u64, f64),
}

pub async fn run(verdict: &mut Verdict) {
    println!(
        "what the gateway adds, in µs: {REQUESTS} requests each way in turn, {RUNS} runs of each kind"
    );
    println!(
        "                added = in process + (HTTP request − service) + residual | direct hop, connect"
    );
    for (name, manner, is_stream) in [
        ("plain", Manner::Timed { closes: false }, false),
        ("stream", Manner::Timed { closes: false }, true),
        ("cold pool", Manner::Timed { closes: true }, false),
    ] {
        for number in 0..RUNS {
            let terms = measure(manner, is_stream).await;
            println!(
                "  {name:<9} {number}  {:7.1} = {:7.1} + {:7.1} + {:7.1} | {:7.1}, {:7.1}",
                terms.added,
                terms.in_process,
                terms.hop,
                terms.residual,
                terms.direct_hop,
                terms.connect,
            );
            let is_cold = manner == Manner::Timed { closes: true };
            let expected = if is_cold { REQUESTS } else { 0 };
            let least = usize::try_from(expected).unwrap();
            // A warm pool's first request opens its connection.
            let most = least.max(1);
            verdict.check(
                "records that tell of a connect",
                terms.connected,
                (least..=most).contains(&terms.connected),
            );
        }
    }
}

async fn measure(manner: Manner, is_stream: bool) -> Terms {
    let [provider, straight] = [manner, Manner::Timed { closes: false }].map(Provider::start);
    let gateway = Gateway::start(provider.address, "").await;
    let mut records = gateway.records();
    let (direct, through) = (Idle::default(), Idle::default());
    let mut totals = vec![];
    // The first of each opens the client's connection, and is not counted.
    for id in 0..=REQUESTS {
        let [direct_id, through_id] = [id * 2 + 1, id * 2 + 2];
        let by_direct = time(straight.address, &direct, direct_id, is_stream).await;
        let by_gateway = time(gateway.address, &through, through_id, is_stream).await;
        if id > 0 {
            totals.push(Pair {
                direct: (direct_id, by_direct),
                through: (through_id, by_gateway),
            });
        }
    }
    let last = totals.len() * 2 + 2;
    wait_for_record(&gateway, &mut records, last as u64).await;
    let mut served = provider.served();
    served.extend(straight.served());
    let mean = |of: &dyn Fn(&Pair) -> f64| totals.iter().map(of).sum::<f64>() / totals.len() as f64;
    let service = |id: u64| micros(served[&id]);
    let record = |id: u64| records.by_id[&id].0;
    let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let hop_of = |(id, total): (u64, f64)| total - service(id);
    let direct_hop = mean(&|pair| hop_of(pair.direct));
    let around = mean(&|pair| hop_of(pair.through));
    let in_process = mean(&|pair| us(record(pair.through.0).added()));
    let http = |id: u64| us(record(id).stage(Stage::HttpRequest));
    let hop = mean(&|pair| http(pair.through.0) - service(pair.through.0));
    let connects = totals
        .iter()
        .map(|pair| record(pair.through.0).connect)
        .filter(|connect| *connect > 0);
    let added = around - direct_hop;
    Terms {
        added,
        in_process,
        hop,
        residual: added - in_process - hop,
        direct_hop,
        connect: mean(&|pair| us(record(pair.through.0).connect)),
        connected: connects.count(),
    }
}

/// How long a request takes its client, microseconds.
async fn time(address: SocketAddr, idle: &Idle, id: u64, is_stream: bool) -> f64 {
    let request = client::request(id, is_stream);
    let begun = Instant::now();
    let seen = client::ask(address, idle, &request, None).await;
    let spent = begun.elapsed();
    assert_eq!(seen.saw, Saw::Whole, "request {id}");
    micros(spent)
}

async fn wait_for_record(gateway: &Gateway, records: &mut Records, id: u64) {
    crate::process::wait_for("the last record", || {
        gateway.read(records);
        records.by_id.contains_key(&id).then_some(())
    })
    .await;
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
