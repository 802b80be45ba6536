//! Streams that their clients abandon leave nothing behind.

use bifrost_shared::layout::Gauge;
use tokio::task::JoinSet;

use crate::Verdict;
use crate::client;
use crate::process::{Gateway, wait_for};
use crate::provider::{Manner, Provider};

/// The allocator's caches fill up over some rounds, to 2 MB more; a stream that left its buffers behind would leave 20 KB.
const SLACK_MB: f64 = 4.0;
const ROUND: u64 = 2_000;
const AT_ONCE: usize = 100;

pub async fn run(verdict: &mut Verdict) {
    println!("{ROUND} streams abandoned after their third event, three times");
    let provider = Provider::start(Manner::Long);
    let gateway = Gateway::start(provider.address, "").await;
    let descriptors = gateway.descriptors();
    round(&gateway, ROUND).await;
    let warm = settled(&gateway, f64::INFINITY).await;
    for number in 1..=2 {
        let served = round(&gateway, ROUND).await;
        verdict.check(
            "streams that came to their third event",
            served,
            served == ROUND,
        );
        let rss = settled(&gateway, warm + SLACK_MB).await;
        let figure = format!("{rss:.1} MB, {warm:.1} MB when warm");
        verdict.check(
            &format!("heap after round {number}"),
            figure,
            rss <= warm + SLACK_MB,
        );
    }
    drop(provider);
    let left = gateway.descriptors_back_to(descriptors).await;
    verdict.check(
        "descriptors",
        format!("{left}, {descriptors} at the start"),
        left <= descriptors,
    );
}

async fn round(gateway: &Gateway, streams: u64) -> u64 {
    let (address, mut running, mut served) = (gateway.address, JoinSet::new(), 0);
    for id in 0..streams {
        if running.len() == AT_ONCE {
            served += u64::from(running.join_next().await.unwrap().unwrap());
        }
        running
            .spawn(async move { client::leave_early(address, &client::request(id, true)).await });
    }
    let rest = running.join_all().await;
    gateway.gauge_back_to(Gauge::Upstream, 0).await;
    served + rest.into_iter().map(u64::from).sum::<u64>()
}

/// The memory once it is at most `most`, or when it does not get there; the allocator gives it back within seconds.
async fn settled(gateway: &Gateway, most: f64) -> f64 {
    let mut looks = 0;
    wait_for("memory", || {
        looks += 1;
        let rss = gateway.memory().heap_mb;
        let is_settled = looks > 300 && rss <= most;
        (is_settled || looks > 3_000).then_some(rss)
    })
    .await
}
