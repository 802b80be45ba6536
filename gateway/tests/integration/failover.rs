//! Many clients before three keys, one of which is dead and one at its limit: nobody sees an error.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::client::{ask, chat};
use crate::gateway::Gateway;
use crate::provider::{COMPLETION, Provider, Seen, json, json_with};

const CLIENTS: usize = 20;
/// How long the second key is at its limit, as the provider has it and says it.
const LIMITED: Duration = Duration::from_secs(1);
/// How long it takes afterwards to its whole share.
const RAMP: Duration = Duration::from_millis(200);

/// Each of the clients asks so many times, one after the other, and has an answer each time.
async fn all_are_answered(address: SocketAddr, times: usize) {
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(async move {
            for _ in 0..times {
                let answer = ask(address, &chat("openai/m")).await;
                assert_eq!(answer.status, 200, "{}", answer.body);
            }
        });
    }
    clients.join_all().await;
}

fn count(seen: &[Seen], key: &str) -> usize {
    seen.iter().filter(|seen| seen.key() == key).count()
}

#[tokio::test]
async fn clients_see_nothing_of_a_dead_key_and_a_limited_one_and_shares_go_back_to_the_weights() {
    let begun = Instant::now();
    let provider = Provider::answering(move |seen| match seen.key() {
        "sk-dead" => json(401, r#"{"error":{"message":"no","type":"t"}}"#),
        "sk-limited" if begun.elapsed() < LIMITED => json_with(429, "retry-after: 1\r\n", "{}"),
        _ => json(200, COMPLETION),
    })
    .await;
    let keys = r#"[{value="sk-dead",weight=0.2},{value="sk-limited",weight=0.3},{value="sk-good",weight=0.5}]"#;
    let settings = [
        ("PROVIDERS__OPENAI__KEYS", keys),
        ("PROVIDERS__OPENAI__REST__RAMP", "200ms"),
    ];
    let gateway = Gateway::start(&provider, &settings);

    all_are_answered(gateway.address, 15).await;
    // The provider's second is kept to, and it is not the default of five.
    let is_back = |seen: &Seen| seen.key() == "sk-limited" && seen.at > begun + LIMITED;
    let back = loop {
        all_are_answered(gateway.address, 1).await;
        if let Some(seen) = provider.seen().into_iter().find(is_back) {
            break seen.at;
        }
        assert!(begun.elapsed() < LIMITED * 3, "it stays away");
    };
    let mut met = provider.seen();
    met.retain(|seen| seen.at < back);
    let first = met.iter().find(|seen| seen.key() == "sk-limited").unwrap();
    assert!(back - first.at > LIMITED, "it was asked too soon");
    // Only those who were on their way already have met either of them.
    for key in ["sk-dead", "sk-limited"] {
        let count = count(&met, key);
        assert!((1..=CLIENTS).contains(&count), "{key}: {count}");
    }

    while back.elapsed() < RAMP {
        all_are_answered(gateway.address, 1).await;
    }
    let before = provider.seen().len();
    all_are_answered(gateway.address, 100).await;
    let seen = &provider.seen()[before..];
    assert_eq!((seen.len(), count(seen, "sk-dead")), (2_000, 0));
    let limited = count(seen, "sk-limited");
    // 750 is three eighths of 2,000; five standard deviations of 22 are exceeded once in two million runs.
    assert!(limited.abs_diff(750) < 110, "{limited} of 2,000");
}
