//! More bytes than the budget holds are refused, and the process lives.

use bifrost_shared::layout::Gauge;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Verdict;
use crate::client::{self, Idle, Saw};
use crate::process::{Gateway, wait_for};
use crate::provider::{Manner, Provider};

const CLIENTS: usize = 2_000;
const BODY_BYTES: usize = 4 << 20;
const BUDGET_MB: usize = 64;
/// A body is held twice: as it came, and as it goes.
const FIT: usize = (BUDGET_MB << 20) / (2 * BODY_BYTES + 1024);

pub async fn run(verdict: &mut Verdict) {
    println!("{CLIENTS} bodies of 4 MiB against a silent provider, with {BUDGET_MB} MB for them");
    let provider = Provider::start(Manner::SilentToLarge);
    let settings = format!("[server]\nbody_budget_mb = {BUDGET_MB}");
    let mut gateway = Gateway::start(provider.address, &settings).await;
    let body: &'static [u8] = body().leak();
    let (address, mut running) = (gateway.address, JoinSet::new());
    for _ in 0..CLIENTS {
        running.spawn(async move { status(TcpStream::connect(address).await.ok()?, body).await });
    }
    let (mut refused, mut silent, mut lost, mut rss) = (0, 0, 0, 0.0_f64);
    while let Some(status) = running.join_next().await {
        rss = rss.max(gateway.memory().all_mb);
        match status.unwrap() {
            Some(503) => refused += 1,
            Some(504) => silent += 1,
            _ => lost += 1,
        }
    }
    let alive = gateway.is_alive();
    verdict.check("the process lives", alive, alive);
    let all = refused + silent;
    verdict.check("refused with 503", refused, refused > CLIENTS / 2);
    verdict.check("went to the provider", silent, silent >= FIT);
    verdict.check("left without an answer", lost, all == CLIENTS);
    verdict.check(
        "most memory",
        format!("{rss:.1} MB"),
        rss < 2.0 * BUDGET_MB as f64 + 100.0,
    );
    let held = gateway.gauge_back_to(Gauge::HeldBytes, 0).await;
    verdict.check("bytes still held", held, held == 0);
    let seen = client::ask(address, &Idle::default(), &client::request(1, false), None).await;
    verdict.check(
        "a small one afterwards",
        format!("{seen:?}"),
        seen.saw == Saw::Whole,
    );
    wait_for("end of all", || {
        (gateway.gauge(Gauge::InFlight) == 0).then_some(())
    })
    .await;
}

fn body() -> Vec<u8> {
    let small = r#"{"model":"openai/m","messages":[{"role":"user","content":""#;
    let mut body = small.as_bytes().to_vec();
    body.resize(BODY_BYTES - 4, b'x');
    body.extend(b"\"}]}");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

/// Sends a request, reads while it sends, and says the answer's status.
async fn status(stream: TcpStream, request: &[u8]) -> Option<u16> {
    let (mut reads, mut writes) = stream.into_split();
    let sending = writes.write_all(request);
    let reading = async {
        let mut bytes = vec![];
        while bytes.len() < 12 {
            if reads.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        std::str::from_utf8(&bytes[9..12]).ok()?.parse().ok()
    };
    let (_, status) = tokio::join!(sending, reading);
    status
}
