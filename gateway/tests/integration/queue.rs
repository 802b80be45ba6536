//! At the limit: who goes first, who waits how long, who is turned away and when that one may come again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bifrost_shared::layout::Gauge;
use bifrost_shared::record::Outcome;
use bifrost_shared::stage::Stage;
use tokio::sync::Notify;

use crate::client::{Client, ask, chat, stream};
use crate::gateway::Gateway;
use crate::outcomes::until;
use crate::provider::{
    COMPLETION, DONE, FINISH, Provider, Step, chunk, delta, json, last_chunk, stream_head,
};

const ONE_PLACE: (&str, &str) = ("PROVIDERS__OPENAI__CONCURRENCY", "1");

fn after(gate: &Arc<Notify>) -> Vec<Step> {
    let mut script = json(200, COMPLETION);
    script.insert(0, Step::Wait(Arc::clone(gate)));
    script
}

fn working(time: Duration) -> Vec<Step> {
    let mut script = json(200, COMPLETION);
    script.insert(0, Step::Work(time));
    script
}

/// The number that a chat carries as its model.
fn number(body: &str) -> usize {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["model"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn who_comes_first_is_served_first() {
    let gate = Arc::new(Notify::new());
    let provider = Provider::always(after(&gate)).await;
    let mut gateway = Gateway::start(&provider, &[ONE_PLACE]);
    let mut clients = vec![];
    for number in 0..12 {
        clients.push(Client::post(gateway.address, &chat(&format!("openai/{number}"))).await);
        // The next one comes when this one stands in line.
        gateway.gauge(Gauge::Upstream, 1).await;
        gateway.waiting(number).await;
    }
    for client in clients {
        gate.notify_one();
        assert_eq!(client.answer().await.status, 200);
    }
    let order: Vec<usize> = provider
        .seen()
        .iter()
        .map(|seen| number(&seen.body))
        .collect();
    assert_eq!(order, (0..12).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_wait_ends_in_time_and_the_place_in_line_is_free_again() {
    let gate = Arc::new(Notify::new());
    let provider = Provider::always(after(&gate)).await;
    let settings = [
        ONE_PLACE,
        ("PROVIDERS__OPENAI__TIMEOUTS__QUEUE", "300ms"),
        ("CLIENT__BUFFER_SIZE", "1"),
    ];
    let mut gateway = Gateway::start(&provider, &settings);
    let first = Client::post(gateway.address, &chat("openai/0")).await;
    gateway.gauge(Gauge::Upstream, 1).await;
    for _ in 0..2 {
        let begun = Instant::now();
        let answer = ask(gateway.address, &chat("openai/1")).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (503, Some("queue_timeout"))
        );
        assert!(answer.header("retry-after").is_some());
        let waited = begun.elapsed();
        assert!((290..900).contains(&waited.as_millis()), "{waited:?}");
        let record = gateway.record().await;
        assert_eq!(
            (record.outcome, record.ended_in),
            (Outcome::Refused, Stage::QueueWait)
        );
        let queued = record.stage(Stage::QueueWait);
        assert!((290_000_000..900_000_000).contains(&queued), "{queued}");
    }
    // The client's own deadline comes first where it is the shorter.
    let mut client = Client::connect(gateway.address).await;
    client
        .send_chat("x-stainless-read-timeout: 0.1\r\n", chat("openai/1"))
        .await;
    assert_eq!(client.answer().await.status, 504);
    gate.notify_one();
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(provider.seen().len(), 1);
}

#[tokio::test]
async fn a_full_line_refuses_at_once_and_keeps_those_who_stand_in_it() {
    let gate = Arc::new(Notify::new());
    let provider = Provider::always(after(&gate)).await;
    let mut gateway = Gateway::start(&provider, &[ONE_PLACE, ("CLIENT__BUFFER_SIZE", "2")]);
    let mut clients = vec![];
    for number in 0..3 {
        clients.push(Client::post(gateway.address, &chat(&format!("openai/{number}"))).await);
        gateway.gauge(Gauge::Upstream, 1).await;
        gateway.waiting(number).await;
    }
    for body in [chat("openai/9"), stream("openai/9")] {
        let begun = Instant::now();
        let answer = ask(gateway.address, &body).await;
        assert!(begun.elapsed() < Duration::from_secs(1));
        let error = answer.json()["error"].clone();
        assert_eq!(
            (answer.status, error["code"].as_str()),
            (503, Some("queue_full"))
        );
        assert!(
            answer
                .header("retry-after")
                .unwrap()
                .parse::<u64>()
                .unwrap()
                >= 1
        );
    }
    // Whoever leaves makes room.
    drop(clients.pop());
    gateway.waiting(1).await;
    clients.push(Client::post(gateway.address, &chat("openai/3")).await);
    gateway.waiting(2).await;
    for client in clients {
        gate.notify_one();
        assert_eq!(client.answer().await.status, 200);
    }
    let order: Vec<usize> = provider
        .seen()
        .iter()
        .map(|seen| number(&seen.body))
        .collect();
    assert_eq!(order, [0, 1, 3]);
    gateway.gauge(Gauge::Upstream, 0).await;
}

#[tokio::test]
async fn a_stream_keeps_its_place_to_its_last_byte() {
    let gate = Arc::new(Notify::new());
    let slow = vec![
        stream_head(),
        chunk(delta("a")),
        Step::Wait(gate.clone()),
        chunk(FINISH),
        chunk(DONE),
        last_chunk(),
    ];
    let provider = Provider::start(vec![slow, json(200, COMPLETION)]).await;
    let mut gateway = Gateway::start(&provider, &[ONE_PLACE]);
    let mut first = Client::post(gateway.address, &stream("openai/0")).await;
    first.until("\"a\"").await;
    let second = Client::post(gateway.address, &chat("openai/1")).await;
    gateway.waiting(1).await;
    assert_eq!(provider.seen().len(), 1);
    gate.notify_one();
    assert!(first.answer().await.body.ends_with(DONE));
    assert_eq!(second.answer().await.status, 200);
}

#[tokio::test]
async fn a_client_that_reads_slowly_keeps_its_place_too_and_gives_it_back_when_it_leaves() {
    let provider = Provider::start(vec![
        vec![stream_head(), Step::Flood(usize::MAX)],
        json(200, COMPLETION),
    ])
    .await;
    let mut gateway = Gateway::start(&provider, &[ONE_PLACE]);
    let mut first = Client::post(gateway.address, &stream("openai/0")).await;
    first.until("xxx").await;
    let second = Client::post(gateway.address, &chat("openai/1")).await;
    gateway.waiting(1).await;
    drop(first);
    assert_eq!(second.answer().await.status, 200);
}

#[tokio::test]
async fn those_who_leave_the_line_in_its_midst_do_not_hold_it_up() {
    let gate = Arc::new(Notify::new());
    let provider = Provider::always(after(&gate)).await;
    let mut gateway = Gateway::start(&provider, &[ONE_PLACE]);
    let mut clients = vec![];
    for number in 0..20 {
        clients.push(Client::post(gateway.address, &chat(&format!("openai/{number}"))).await);
        gateway.gauge(Gauge::Upstream, 1).await;
        gateway.waiting(number).await;
    }
    let mut number = 0;
    clients.retain(|_| {
        number += 1;
        number % 3 == 1
    });
    gateway.waiting(6).await;
    for client in clients {
        gate.notify_one();
        assert_eq!(client.answer().await.status, 200);
    }
    let order: Vec<usize> = provider
        .seen()
        .iter()
        .map(|seen| self::number(&seen.body))
        .collect();
    assert_eq!(order, [0, 3, 6, 9, 12, 15, 18]);
    gateway.gauge(Gauge::Upstream, 0).await;
    gateway.gauge(Gauge::HeldBytes, 0).await;
}

#[tokio::test]
async fn the_body_budget_refuses_what_has_no_room_and_gets_back_what_it_lent() {
    let gate = Arc::new(Notify::new());
    let provider = Provider::always(after(&gate)).await;
    let mut gateway = Gateway::start(&provider, &[("SERVER__BODY_BUDGET_MB", "4")]);
    let large = chat("openai/0").replace("\"hi\"", &format!("\"{}\"", "x".repeat(1 << 20)));
    let first = Client::post(gateway.address, &large).await;
    gateway.gauge(Gauge::Upstream, 1).await;
    let chunked = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    for is_chunked in [false, true] {
        let mut client = Client::connect(gateway.address).await;
        if is_chunked {
            client.send_in_vain(chunked.as_bytes()).await;
        } else {
            client.send_chat("", &large).await;
        }
        client.until("over_memory_budget").await;
        assert!(client.received.starts_with(b"HTTP/1.1 503 "));
        assert!(String::from_utf8_lossy(&client.received).contains("retry-after: 1"));
        assert_eq!(gateway.record().await.outcome, Outcome::Refused);
    }
    // A small one finds room.
    gate.notify_one();
    gate.notify_one();
    assert_eq!(ask(gateway.address, &chat("openai/1")).await.status, 200);
    gate.notify_one();
    assert_eq!(first.answer().await.status, 200);
    gateway.gauge(Gauge::HeldBytes, 0).await;
    gate.notify_one();
    assert_eq!(ask(gateway.address, &large).await.status, 200);
}

#[tokio::test]
async fn who_promises_a_body_and_sends_nothing_keeps_nobody_else_out() {
    let provider = Provider::always(json(200, COMPLETION)).await;
    let settings = [
        ("SERVER__BODY_BUDGET_MB", "16"),
        ("SERVER__BODY_TIMEOUT", "300ms"),
    ];
    let mut gateway = Gateway::start(&provider, &settings);
    let promise = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{{",
        30 << 20
    );
    let mut silent = vec![];
    for _ in 0..10 {
        let mut client = Client::connect(gateway.address).await;
        client.send(promise.as_bytes()).await;
        silent.push(client);
    }
    let large = chat("openai/1").replace("\"hi\"", &format!("\"{}\"", "x".repeat(2 << 20)));
    assert_eq!(ask(gateway.address, &large).await.status, 200);
    assert_eq!(gateway.record().await.outcome, Outcome::Completed);
    for mut client in silent {
        client.until("HTTP/1.1 408 ").await;
    }
    gateway.gauge(Gauge::HeldBytes, 0).await;
}

#[tokio::test]
async fn an_answer_that_its_client_does_not_read_is_held_and_counted() {
    let mut long = COMPLETION.to_owned();
    long.insert_str(1, &format!("\"pad\":\"{}\",", "x".repeat(24 << 20)));
    let provider = Provider::start(vec![json(200, &long)]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let mut client = Client::post(gateway.address, &chat("openai/0")).await;
    client.until("\r\n\r\n").await;
    gateway.gauge(Gauge::HeldBytes, long.len() as u64).await;
    gateway.gauge(Gauge::Upstream, 1).await;
    drop(client);
    let record = gateway.record().await;
    assert_eq!(
        (record.outcome, record.ended_in),
        (Outcome::Cancelled, Stage::ResponseWriting)
    );
    assert!((record.response_bytes as usize) < long.len());
    gateway.gauge(Gauge::HeldBytes, 0).await;
}

#[tokio::test]
async fn an_answer_without_room_is_refused_and_its_place_given_back() {
    let mut long = COMPLETION.to_owned();
    long.insert_str(1, &format!("\"pad\":\"{}\",", "x".repeat(3 << 20)));
    let provider = Provider::start(vec![json(200, &long), json(200, COMPLETION)]).await;
    let gateway = Gateway::start(&provider, &[("SERVER__BODY_BUDGET_MB", "2"), ONE_PLACE]);
    let answer = ask(gateway.address, &chat("openai/0")).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (503, Some("over_memory_budget"))
    );
    assert_eq!(ask(gateway.address, &chat("openai/1")).await.status, 200);
    gateway.gauge(Gauge::HeldBytes, 0).await;
}

#[tokio::test]
async fn when_to_come_back_is_when_the_line_has_been_served() {
    const SERVICE: Duration = Duration::from_millis(400);
    let provider = Provider::always(working(SERVICE)).await;
    let settings = [
        ("PROVIDERS__OPENAI__CONCURRENCY", "4"),
        ("CLIENT__BUFFER_SIZE", "20"),
    ];
    let mut gateway = Gateway::start(&provider, &settings);
    // All begin together and end together.
    let mut clients = vec![];
    for _ in 0..24 {
        clients.push(Client::post(gateway.address, &chat("openai/m")).await);
    }
    gateway.waiting(16).await;
    for _ in 0..4 {
        clients.push(Client::post(gateway.address, &chat("openai/m")).await);
    }
    gateway.waiting(20).await;
    let refused = ask(gateway.address, &chat("openai/m")).await;
    let since = Instant::now();
    assert_eq!(refused.status, 503);
    let told: u64 = refused.header("retry-after-ms").unwrap().parse().unwrap();
    gateway.waiting(0).await;
    let true_ms = since.elapsed().as_millis();
    // 21 places at 100 ms each.
    assert!(
        u128::from(told).abs_diff(true_ms) < 500,
        "told {told} ms, true {true_ms} ms"
    );
    assert_eq!(ask(gateway.address, &chat("openai/m")).await.status, 200);
    drop(clients);
    until(|| provider.seen().len() == 29).await;
}
