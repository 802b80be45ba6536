//! One record a request, whichever way it ends, naming the stage it ended in.

use bifrost_gateway::shutdown::Drained;
use bifrost_shared::record::{Outcome, Record, flags};
use bifrost_shared::stage::Stage;

use crate::client::{Client, ask, chat, stream};
use crate::gateway::Gateway;
use crate::provider::{
    COMPLETION, DONE, FINISH, Provider, Step, chunk, delta, json, json_with, last_chunk,
    stream_head,
};

/// The gateway has nothing more to say: exactly the records that were read are all there are.
async fn nothing_more(gateway: Gateway) {
    let (drained, rest) = gateway.stop().await;
    assert_eq!((drained, rest), (Drained::Whole, vec![]));
}

fn sums_up(record: &Record) {
    assert!(record.total > 0);
    assert!(
        record.unattributed() < record.total / 10 + 50_000,
        "{record:?}"
    );
}

#[tokio::test]
async fn a_plain_answer_with_a_length_is_completed_once_its_last_byte_was_taken() {
    let provider = Provider::start(vec![json_with(
        200,
        "openai-processing-ms: 0.5\r\n",
        COMPLETION,
    )])
    .await;
    let mut gateway = Gateway::start(&provider, &[]);
    let answer = ask(gateway.address, &chat("openai/m")).await;
    assert_eq!(
        (answer.status, answer.body.as_str(), answer.whole),
        (200, COMPLETION, true)
    );
    let record = gateway.record().await;
    assert_eq!(
        (record.outcome, record.status, record.attempts),
        (Outcome::Completed, 200, 1)
    );
    assert_eq!(record.ended_in, Stage::ResponseWriting);
    assert_eq!((record.prompt_tokens, record.completion_tokens), (7, 2));
    assert_eq!(
        (record.provider, record.key, record.provider_time),
        (0, 0, 500_000)
    );
    assert_eq!(record.response_bytes as usize, COMPLETION.len());
    assert_eq!(
        format!("{:016x}", record.id),
        answer.header("x-request-id").unwrap()
    );
    assert!(record.first_byte > 0 && record.stage(Stage::HttpRequest) > 0);
    sums_up(&record);
    nothing_more(gateway).await;
}

#[tokio::test]
async fn an_answer_tells_its_stages_only_where_that_is_set() {
    let provider = Provider::start(vec![json(200, COMPLETION), json(200, COMPLETION)]).await;
    let gateway = Gateway::start(&provider, &[]);
    let silent = ask(gateway.address, &chat("openai/m")).await;
    assert_eq!(silent.header("server-timing"), None);
    let mut gateway = Gateway::start(&provider, &[("SERVER__SERVER_TIMING", "true")]);
    let answer = ask(gateway.address, &chat("openai/m")).await;
    let told = answer.header("server-timing").unwrap();
    let record = gateway.record().await;
    for stage in [Stage::QueueWait, Stage::HttpRequest, Stage::ResponseParsing] {
        let millis = told
            .split(", ")
            .find_map(|entry| entry.strip_prefix(stage.key())?.strip_prefix(";dur="))
            .unwrap_or_else(|| panic!("no {stage:?} in {told}"));
        let told: f64 = millis.parse().unwrap();
        assert!(
            (told * 1e6 - record.stage(stage) as f64).abs() < 2.0,
            "{stage:?}: {told} of {record:?}"
        );
    }
}

#[tokio::test]
async fn a_stream_tells_its_stages_in_a_comment_before_its_terminator_where_that_is_set() {
    let a = delta("a");
    let cr = |text: &str| text.replace('\n', "\r");
    let check = async |pieces: &[&str], before: &str, after: &str| {
        let mut script = vec![stream_head()];
        script.extend(pieces.iter().map(chunk));
        script.push(last_chunk());
        let provider = Provider::start(vec![script]).await;
        let mut gateway = Gateway::start(&provider, &[("SERVER__SERVER_TIMING", "true")]);
        let answer = ask(gateway.address, &stream("openai/m")).await;
        let (events, rest) = answer.body.split_once(": server-timing ").unwrap();
        let (timing, terminator) = rest.split_once("\n\n").unwrap();
        assert_eq!((events, terminator), (before, after));
        assert!(timing.contains("http_request;dur="), "{timing}");
        assert!(timing.contains("response_writing;dur="), "{timing}");
        assert_eq!(gateway.record().await.outcome, Outcome::Completed);
    };
    let finished = [&a, FINISH].concat();
    check(&[&a, FINISH, DONE], &finished, DONE).await;
    check(&[&[&a, FINISH, DONE].concat()], &finished, DONE).await;
    check(&[&a, FINISH], &finished, DONE).await;
    check(&[&a, FINISH, "data: [DONE]\n"], &finished, DONE).await;
    check(&[&cr(&finished), &cr(DONE)], &cr(&finished), &cr(DONE)).await;
    check(
        &[&a, FINISH, "data: [DONE]\r\n\r"],
        &finished,
        "data: [DONE]\r\n\r\n",
    )
    .await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_tells_no_stages() {
    let script = vec![stream_head(), chunk(delta("a")), last_chunk()];
    let provider = Provider::start(vec![script]).await;
    let gateway = Gateway::start(&provider, &[("SERVER__SERVER_TIMING", "true")]);
    let answer = ask(gateway.address, &stream("openai/m")).await;
    assert!(answer.body.contains("\"error\""), "{}", answer.body);
    assert!(!answer.body.contains(": server-timing"), "{}", answer.body);
}

#[tokio::test]
async fn a_stream_is_completed_by_its_terminator() {
    let script = vec![
        stream_head(),
        chunk(delta("a")),
        chunk(delta("b")),
        chunk(FINISH),
        chunk(DONE),
        last_chunk(),
    ];
    let provider = Provider::start(vec![script]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let answer = ask(gateway.address, &stream("openai/m")).await;
    assert_eq!(
        answer.body,
        [&delta("a"), &delta("b"), FINISH, DONE].concat()
    );
    assert!(answer.whole);
    let record = gateway.record().await;
    assert_eq!((record.outcome, record.events), (Outcome::Completed, 4));
    assert_eq!(record.flags & flags::STREAM, flags::STREAM);
    sums_up(&record);
    nothing_more(gateway).await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_queue_is_recorded_there_and_asks_nobody() {
    let provider = Provider::start(vec![vec![Step::Stall]]).await;
    let mut gateway = Gateway::start(&provider, &[("PROVIDERS__OPENAI__CONCURRENCY", "1")]);
    let first = Client::post(gateway.address, &chat("openai/m")).await;
    until(|| provider.seen().len() == 1).await;
    let second = Client::post(gateway.address, &chat("openai/m")).await;
    gateway.waiting(1).await;
    drop(second);
    let record = gateway.record().await;
    assert_eq!(
        (record.outcome, record.ended_in),
        (Outcome::Cancelled, Stage::QueueWait)
    );
    assert_eq!((record.attempts, record.status), (0, 0));
    gateway.waiting(0).await;
    drop(first);
    let record = gateway.record().await;
    assert_eq!(
        (record.outcome, record.ended_in),
        (Outcome::Cancelled, Stage::HttpRequest)
    );
    assert_eq!(provider.seen().len(), 1);
    nothing_more(gateway).await;
}

#[tokio::test]
async fn a_client_that_leaves_in_a_stream_is_recorded_there_and_the_provider_is_let_go() {
    let mut provider =
        Provider::start(vec![vec![stream_head(), chunk(delta("a")), Step::Stall]]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let mut client = Client::post(gateway.address, &stream("openai/m")).await;
    client.until("\"a\"").await;
    drop(client);
    assert_eq!(provider.left().await, 0);
    let record = gateway.record().await;
    assert_eq!(
        (record.outcome, record.ended_in, record.events),
        (Outcome::Cancelled, Stage::HttpRequest, 1)
    );
    sums_up(&record);
    nothing_more(gateway).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_lets_the_provider_go() {
    let mut provider = Provider::start(vec![vec![Step::Stall]]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let client = Client::post(gateway.address, &chat("openai/m")).await;
    until(|| provider.seen().len() == 1).await;
    drop(client);
    assert_eq!(provider.left().await, 0);
    let record = gateway.record().await;
    assert_eq!(
        (record.outcome, record.ended_in),
        (Outcome::Cancelled, Stage::HttpRequest)
    );
    nothing_more(gateway).await;
}

#[tokio::test]
async fn clients_that_leave_before_anybody_looked_leave_a_record_each() {
    const CLIENTS: usize = 300;
    let provider = Provider::always(json(200, COMPLETION)).await;
    let mut gateway = Gateway::start(&provider, &[]);
    for _ in 0..CLIENTS {
        // Sent and closed in one breath: often the end is there before the request is looked at.
        drop(Client::post(gateway.address, &chat("openai/m")).await);
    }
    let mut cancelled = 0;
    for _ in 0..CLIENTS {
        let record = gateway.record().await;
        assert!(
            matches!(record.outcome, Outcome::Cancelled | Outcome::Completed),
            "{record:?}"
        );
        cancelled += u32::from(record.outcome == Outcome::Cancelled);
    }
    assert!(cancelled > 0);
    nothing_more(gateway).await;
}

#[tokio::test]
async fn a_bad_request_is_the_clients_and_leaves_a_record() {
    let provider = Provider::start(vec![]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    for (body, status) in [
        ("{", 400),
        (r#"{"messages":[]}"#, 400),
        (&chat("openai/"), 404),
    ] {
        let answer = ask(gateway.address, body).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.json()["error"]["message"].is_string());
        let record = gateway.record().await;
        assert_eq!((record.outcome, record.status), (Outcome::Rejected, status));
        assert_eq!(record.ended_in, Stage::RequestParsing);
    }
    assert!(provider.seen().is_empty());
    nothing_more(gateway).await;
}

#[tokio::test]
async fn a_failure_that_lasts_is_tried_three_times_in_one_record() {
    let provider = Provider::start(vec![]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let answer = ask(gateway.address, &chat("openai/m")).await;
    assert_eq!(
        (answer.status, answer.header("x-should-retry")),
        (500, Some("false"))
    );
    let record = gateway.record().await;
    assert_eq!(
        (record.outcome, record.attempts, provider.seen().len()),
        (Outcome::Failed, 3, 3)
    );
    sums_up(&record);
    nothing_more(gateway).await;
}

#[tokio::test]
async fn a_stream_that_breaks_ends_in_an_error_event_and_no_terminator() {
    let provider = Provider::start(vec![vec![stream_head(), chunk(delta("a")), Step::Reset]]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let answer = ask(gateway.address, &stream("openai/m")).await;
    assert!(
        answer.body.starts_with(&delta("a")) && !answer.body.contains("[DONE]"),
        "{}",
        answer.body
    );
    let last = answer.body.trim_end().rsplit("data: ").next().unwrap();
    let event: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(event["error"]["code"], "provider_broken");
    let record = gateway.record().await;
    assert_eq!((record.outcome, record.attempts), (Outcome::Truncated, 1));
    nothing_more(gateway).await;
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_with_a_time_to_come_back() {
    let provider = Provider::start(vec![vec![Step::Stall]]).await;
    let settings = [
        ("PROVIDERS__OPENAI__CONCURRENCY", "1"),
        ("CLIENT__BUFFER_SIZE", "1"),
    ];
    let mut gateway = Gateway::start(&provider, &settings);
    let _first = Client::post(gateway.address, &chat("openai/m")).await;
    until(|| provider.seen().len() == 1).await;
    let _second = Client::post(gateway.address, &chat("openai/m")).await;
    gateway.waiting(1).await;
    let answer = ask(gateway.address, &chat("openai/m")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["error"]["code"], "queue_full");
    assert!(
        answer
            .header("retry-after")
            .unwrap()
            .parse::<u64>()
            .unwrap()
            >= 1
    );
    let record = gateway.record().await;
    assert_eq!(
        (record.outcome, record.ended_in),
        (Outcome::Refused, Stage::QueueWait)
    );
}

#[tokio::test]
async fn a_drain_lets_a_stream_finish() {
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let script = vec![
        stream_head(),
        chunk(delta("a")),
        Step::Wait(gate.clone()),
        chunk(FINISH),
        chunk(DONE),
        last_chunk(),
    ];
    let provider = Provider::start(vec![script]).await;
    let gateway = Gateway::start(&provider, &[]);
    let mut client = Client::post(gateway.address, &stream("openai/m")).await;
    client.until("\"a\"").await;
    let address = gateway.address;
    let stopping = tokio::spawn(gateway.stop());
    until(|| std::net::TcpStream::connect(address).is_err()).await;
    gate.notify_one();
    let answer = client.answer().await;
    assert!(
        answer.whole && answer.body.ends_with(DONE),
        "{}",
        answer.body
    );
    let (drained, records) = stopping.await.unwrap();
    assert_eq!(drained, Drained::Whole);
    assert_eq!(
        records
            .iter()
            .map(|record| record.outcome)
            .collect::<Vec<_>>(),
        [Outcome::Completed]
    );
}

#[tokio::test]
async fn nothing_of_the_client_but_its_body_reaches_the_provider() {
    let provider = Provider::start(vec![json(200, COMPLETION)]).await;
    let gateway = Gateway::start(&provider, &[]);
    let mut client = Client::connect(gateway.address).await;
    client.send_chat("authorization: Bearer sk-client\r\ncookie: a=b\r\nx-stainless-lang: x\r\nx-custom: y\r\n", &chat("openai/m")).await;
    assert_eq!(client.answer().await.status, 200);
    let seen = &provider.seen()[0];
    assert!(
        seen.head.contains("authorization: bearer sk-test-a"),
        "{}",
        seen.head
    );
    for name in ["sk-client", "cookie", "x-stainless", "x-custom"] {
        assert!(!seen.head.contains(name), "{name}: {}", seen.head);
    }
    assert_eq!(seen.body, chat("m"));
    assert!(
        seen.head.starts_with("post /v1/chat/completions "),
        "{}",
        seen.head
    );
}

/// Looks until `holds`.
pub async fn until(holds: impl Fn() -> bool) {
    let mut look = tokio::time::interval(std::time::Duration::from_millis(2));
    let found = tokio::time::timeout(std::time::Duration::from_secs(10), async {
        while !holds() {
            look.tick().await;
        }
    });
    found.await.expect("it comes to hold");
}
