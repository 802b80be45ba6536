//! What is in flight when the gateway is told to stop: finished in time, or ended in its own way and counted.

use bifrost_gateway::shutdown::Drained;
use bifrost_shared::layout::Gauge;
use bifrost_shared::record::{Outcome, flags};

use crate::client::{Client, chat, stream};
use crate::gateway::Gateway;
use crate::provider::{COMPLETION, Provider, Step, chunk, delta, json, stream_head};

fn half_a_stream() -> Vec<Step> {
    vec![stream_head(), chunk(delta("a")), Step::Stall]
}

#[tokio::test]
async fn what_does_not_finish_in_time_ends_properly_and_is_counted() {
    const EACH: usize = 20;
    let scripts = [vec![half_a_stream(); EACH], vec![vec![Step::Stall]; EACH]].concat();
    let provider = Provider::start(scripts).await;
    let gateway = Gateway::start(&provider, &[("DRAIN_TIMEOUT", "200ms")]);
    let (mut streams, mut plain) = (vec![], vec![]);
    for _ in 0..EACH {
        let mut client = Client::post(gateway.address, &stream("openai/m")).await;
        client.until("\"a\"").await;
        streams.push(client);
    }
    for _ in 0..EACH {
        plain.push(Client::post(gateway.address, &chat("openai/m")).await);
    }
    provider.until_seen(2 * EACH).await;

    let (drained, records) = gateway.stop().await;

    assert_eq!(drained, Drained::Cut(2 * EACH));
    for client in streams {
        let answer = client.answer().await;
        assert!(answer.whole, "the framing is ended, too");
        assert!(!answer.body.contains("[DONE]"), "{}", answer.body);
        let last = answer.body.trim_end().rsplit("data: ").next().unwrap();
        let event: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(event["error"]["code"], "draining");
        assert!(answer.body.starts_with(&delta("a")), "{}", answer.body);
    }
    for client in plain {
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.whole), (503, true));
        assert_eq!(answer.json()["error"]["code"], "draining");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("connection"), Some("close"));
    }
    let ended = |outcome| {
        let those = records.iter().filter(|record| record.outcome == outcome);
        those
            .filter(|record| record.flags & flags::DRAINED != 0)
            .count()
    };
    assert_eq!(
        (ended(Outcome::Truncated), ended(Outcome::Refused)),
        (EACH, EACH)
    );
    assert_eq!(records.len(), 2 * EACH);
}

#[tokio::test]
async fn a_body_that_is_still_coming_is_cut_off_as_well() {
    let provider = Provider::start(vec![]).await;
    let gateway = Gateway::start(&provider, &[("DRAIN_TIMEOUT", "100ms")]);
    let mut client = Client::connect(gateway.address).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    client.send(head.as_bytes()).await;
    gateway.gauge(Gauge::InFlight, 1).await;
    let (drained, records) = gateway.stop().await;
    assert_eq!(drained, Drained::Cut(1));
    assert_eq!(client.answer().await.status, 503);
    assert_eq!(
        (records[0].outcome, records[0].flags),
        (Outcome::Refused, flags::DRAINED)
    );
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_left_behind_and_counted() {
    // More than all buffers between provider and client hold.
    let much = chunk(delta(&"x".repeat(60_000)));
    let script = [vec![stream_head()], vec![much; 400], vec![Step::Stall]].concat();
    let provider = Provider::start(vec![script]).await;
    let gateway = Gateway::start(&provider, &[("DRAIN_TIMEOUT", "100ms")]);
    let mut client = Client::post(gateway.address, &stream("openai/m")).await;
    client.until("data: ").await;
    let (drained, records) = gateway.stop().await;
    assert_eq!(drained, Drained::Cut(1));
    assert_eq!(records[0].outcome, Outcome::Truncated);
    let told = flags::STREAM | flags::DRAINED;
    assert_eq!(records[0].flags & told, told);
}

#[tokio::test]
async fn an_idle_connection_is_closed_by_the_drain_and_an_answer_says_close() {
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let mut script = json(200, COMPLETION);
    script.insert(0, Step::Wait(gate.clone()));
    let provider = Provider::start(vec![script]).await;
    // One runtime, so that whoever sees one connection told of the drain knows that the other was.
    let gateway = Gateway::start(&provider, &[("SERVER__WORKERS", "1")]);
    let mut idle = Client::connect(gateway.address).await;
    idle.send(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    idle.until("ok\n").await;
    let mut busy = Client::connect(gateway.address).await;
    busy.send_kept(&chat("openai/m")).await;
    provider.until_seen(1).await;

    let stopping = tokio::spawn(gateway.stop());

    let told = idle.answer().await;
    assert_eq!(told.status, 200, "and then the end of the connection");
    gate.notify_one();
    let answer = busy.answer().await;
    assert_eq!(
        (answer.status, answer.header("connection")),
        (200, Some("close"))
    );
    assert_eq!(stopping.await.unwrap().0, Drained::Whole);
}
