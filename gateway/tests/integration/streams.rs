//! Event streams: framing, cuts, ends good and bad, the preamble, usage, back pressure.

use std::sync::Arc;
use std::time::Duration;

use bifrost_shared::layout::Gauge;
use bifrost_shared::record::{Outcome, Record};
use tokio::sync::Notify;

use crate::client::{Answer, Client, ask, chat, stream};
use crate::gateway::Gateway;
use crate::outcomes::until;
use crate::provider::{
    COMPLETION, DONE, FINISH, Provider, Step, chunk, delta, json, last_chunk, stream_head, streamed,
};

/// The event with the tokens, as OpenAI sends it behind the last text.
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n";
/// The event that opens a message: nothing that a client waits for.
const ROLE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";

/// One gateway before one provider, to try one stream after another.
struct Bench {
    provider: Provider,
    gateway: Gateway,
}

impl Bench {
    async fn new(more: &[(&str, &str)]) -> Self {
        let provider = Provider::start(vec![]).await;
        let gateway = Gateway::start(&provider, more);
        Self { provider, gateway }
    }

    /// What a client gets of a provider that does `script`, and how that was recorded.
    async fn relays(&mut self, script: Vec<Step>) -> (Answer, Outcome) {
        self.relays_to(&stream("openai/m"), script).await
    }

    async fn relays_to(&mut self, body: &str, script: Vec<Step>) -> (Answer, Outcome) {
        self.provider.then(script);
        let answer = ask(self.gateway.address, body).await;
        (answer, self.gateway.record().await.outcome)
    }
}

/// The error that ends a stream; there must be one, and nothing behind it.
fn last_error(answer: &Answer) -> serde_json::Value {
    assert!(
        answer.whole && !answer.body.contains("[DONE]"),
        "{answer:?}"
    );
    let last = answer.body.trim_end().rsplit("data:").next().unwrap();
    let event: serde_json::Value = serde_json::from_str(last).unwrap_or_default();
    assert!(event["error"].is_object(), "{answer:?}");
    event["error"].clone()
}

#[tokio::test]
async fn whatever_the_provider_frames_it_by_the_client_gets_its_bytes() {
    let mut bench = Bench::new(&[]).await;
    let plain = [ROLE, &delta("a"), &delta("你好 🌍"), FINISH, DONE].concat();
    let rows = [
        plain.clone(),
        plain.replace('\n', "\r\n"),
        plain.replace('\n', "\r"),
        plain.replace("\n\n", "\r\n\n"),
        plain
            .replacen("\n\n", "\r\r", 2)
            .replacen("\n\n", "\n\r\n", 1),
        plain.replace("data: ", "data:"),
        plain.replace("data: ", "id: 7\nevent: chunk\nretry: 10\ndata: "),
        plain.replace("data: ", ": keep-alive\n\n: and\ndata: "),
        plain.replace("\n\n", "\n: behind\n\n"),
        plain.replace("\n\n", "\n\n\n\n"),
        format!("\u{feff}{plain}"),
        plain.replace("data: {\"choices\"", "data: {\ndata: \"choices\""),
    ];
    for row in rows {
        let (answer, outcome) = bench.relays(streamed([row.as_bytes()])).await;
        // Blank lines behind the terminator are nobody's.
        assert_eq!(answer.body.trim_end(), row.trim_end(), "{row:?}");
        assert_eq!(
            (answer.whole, outcome),
            (true, Outcome::Completed),
            "{row:?}"
        );
    }
}

#[tokio::test]
async fn events_keep_every_byte_whatever_is_in_them() {
    let mut bench = Bench::new(&[]).await;
    let events = [
        r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#,
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"refusal":null},"logprobs":null,"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}],"x_vendor":{"n":1.50,"big":123456789012345678901234567890}}"#,
        r#"{"choices":[{"index":1,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"a"}},{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]}}]}"#,
        r#"{"choices":[{"delta":{"content":"\ud83d"},"index":0}], "usage":null}"#,
        r#"{ "choices" : [ {"index":0,"delta":{"content":"a","content":"b"}} ] }"#,
        r#"{"choices":[{"index":0,"delta":null,"finish_reason":"stop"}]}"#,
        "not JSON at all",
        "[1,2]",
        "[DONE]",
    ]
    .map(|data| format!("data: {data}\n\n"));
    let mut sent = events.concat().into_bytes();
    // An invalid byte in a string is the provider's; the gateway neither repairs it nor stops.
    let at = sent.windows(2).position(|two| two == b"hm").unwrap();
    sent[at] = 0xff;
    let (answer, outcome) = bench.relays(streamed([&sent[..]])).await;
    assert_eq!(answer.bytes, sent);
    assert_eq!(outcome, Outcome::Completed);
}

#[tokio::test]
async fn any_cut_gives_the_client_the_same_bytes_and_never_the_usage_it_did_not_ask_for() {
    let lines = [
        ROLE,
        &delta("é😀"),
        USAGE,
        ": c\n\n",
        &delta("b"),
        FINISH,
        USAGE,
        DONE,
    ]
    .concat();
    for sent in [
        lines.clone(),
        lines.replace('\n', "\r\n"),
        lines.replace('\n', "\r"),
    ] {
        let mut bench = Bench::new(&[("SERVER__WORKERS", "1")]).await;
        let sent = sent.as_bytes();
        let (whole, _) = bench.relays(streamed([sent])).await;
        assert!(
            !whole.body.contains("usage") && whole.body.contains("[DONE]"),
            "{}",
            whole.body
        );
        let mut random = fastrand::Rng::with_seed(7);
        let mut cuts: Vec<Vec<usize>> = (1..sent.len()).map(|at| vec![at]).collect();
        cuts.push((1..sent.len()).collect());
        cuts.extend((0..40).map(|_| {
            let mut cut: Vec<usize> = (0..8).map(|_| random.usize(..sent.len())).collect();
            cut.sort_unstable();
            cut
        }));
        for cut in cuts {
            let ends = cut.iter().copied().chain([sent.len()]);
            let pieces = [0].into_iter().chain(cut.iter().copied()).zip(ends);
            let script = streamed(pieces.map(|(from, to)| &sent[from..to]));
            bench.provider.then(script);
            let answer = ask(bench.gateway.address, &stream("openai/m")).await;
            assert!(answer.whole);
            assert_eq!(answer.body, whole.body, "cut at {cut:?}");
        }
        let (_, records) = bench.gateway.stop().await;
        let completed = |record: &Record| record.outcome == Outcome::Completed;
        assert!(records.iter().all(completed), "{records:?}");
    }
}

#[tokio::test]
async fn usage_is_told_to_us_and_shown_to_whoever_asked() {
    let mut bench = Bench::new(&[]).await;
    let asked = stream("openai/m").replace(
        "\"stream\":true",
        "\"stream\":true,\"stream_options\":{\"include_usage\":true}",
    );
    let refused = asked.replace("include_usage\":true", "include_usage\":false");
    let hidden = [&delta("a"), FINISH, DONE].concat();
    let odd = USAGE.replace(":3", ":3.0").replace(":4", ":null");
    let rows: [(&str, &[&str], String); 8] = [
        (
            &asked,
            &[&delta("a"), FINISH, USAGE, DONE],
            [&delta("a"), FINISH, USAGE, DONE].concat(),
        ),
        (
            &refused,
            &[&delta("a"), FINISH, USAGE, DONE],
            [&delta("a"), FINISH, USAGE, DONE].concat(),
        ),
        (
            &stream("openai/m"),
            &[&delta("a"), FINISH, USAGE, DONE],
            hidden.clone(),
        ),
        (
            &stream("openai/m"),
            &[&[&delta("a"), FINISH, USAGE, DONE].concat()],
            hidden.clone(),
        ),
        (
            &stream("openai/m"),
            &[&[USAGE, &delta("a")].concat(), USAGE, FINISH, DONE],
            hidden.clone(),
        ),
        (
            &stream("openai/m"),
            &[&[&delta("a"), FINISH].concat(), &[USAGE, DONE].concat()],
            hidden.clone(),
        ),
        (
            &stream("openai/m"),
            &[&delta("a"), FINISH, USAGE],
            hidden.clone(),
        ),
        (
            &stream("openai/m"),
            &[&delta("a"), FINISH, &odd, DONE],
            hidden.clone(),
        ),
    ];
    for (body, pieces, expected) in rows {
        bench
            .provider
            .then(streamed(pieces.iter().map(|piece| piece.as_bytes())));
        let answer = ask(bench.gateway.address, body).await;
        assert_eq!(answer.body, expected, "{body} {pieces:?}");
        let record = bench.gateway.record().await;
        assert_eq!(record.outcome, Outcome::Completed, "{pieces:?}");
        if !pieces.concat().contains("3.0") {
            assert_eq!(
                (record.prompt_tokens, record.completion_tokens),
                (3, 4),
                "{pieces:?}"
            );
        }
        let wanted = bench
            .provider
            .seen()
            .last()
            .unwrap()
            .body
            .contains("\"include_usage\":true");
        assert_eq!(wanted, body != refused);
    }
}

#[tokio::test]
async fn usage_is_not_asked_for_where_the_settings_forbid_it() {
    let mut bench = Bench::new(&[("PROVIDERS__OPENAI__STREAM_USAGE", "false")]).await;
    let sent = [&delta("a"), FINISH, USAGE, DONE].concat();
    let (answer, _) = bench.relays(streamed([sent.as_bytes()])).await;
    assert!(!bench.provider.seen()[0].body.contains("stream_options"));
    // What the gateway did not ask for is the provider's own way, and passes.
    assert_eq!(answer.body, sent);
}

#[tokio::test]
async fn a_line_of_megabytes_passes() {
    let mut bench = Bench::new(&[]).await;
    let sent = [
        delta(&"x".repeat(5 << 20)),
        FINISH.to_owned(),
        DONE.to_owned(),
    ]
    .concat();
    let (answer, outcome) = bench.relays(streamed(sent.as_bytes().chunks(60_001))).await;
    assert!(
        answer.body == sent,
        "{} of {} bytes",
        answer.body.len(),
        sent.len()
    );
    assert_eq!(outcome, Outcome::Completed);
}

#[tokio::test]
async fn an_event_beyond_the_limit_ends_in_an_error_event() {
    let mut bench = Bench::new(&[]).await;
    let mut script = vec![stream_head(), chunk(delta("a")), chunk("data: ")];
    script.extend((0..33).map(|_| chunk("x".repeat(1 << 20))));
    let (answer, outcome) = bench.relays(script).await;
    assert!(answer.body.starts_with(&delta("a")) && answer.body.len() < 1_000);
    assert_eq!(last_error(&answer)["code"], "bad_provider_answer");
    assert_eq!(outcome, Outcome::Truncated);
}

#[tokio::test]
async fn each_event_reaches_the_client_before_the_next_is_sent() {
    let gate = Arc::new(Notify::new());
    let mut bench = Bench::new(&[]).await;
    let mut script = vec![stream_head()];
    for text in ["one", "two", "three"] {
        // Behind the blank line, the next event has begun already.
        script.extend([
            chunk(delta(text) + ": next"),
            Step::Wait(gate.clone()),
            chunk("\n"),
        ]);
    }
    script.extend([chunk(FINISH), chunk(DONE), last_chunk()]);
    bench.provider.then(script);
    let mut client = Client::post(bench.gateway.address, &stream("openai/m")).await;
    for text in ["one", "two", "three"] {
        client.until(text).await;
        gate.notify_one();
    }
    assert!(client.answer().await.whole);
    assert_eq!(bench.gateway.record().await.outcome, Outcome::Completed);
}

#[tokio::test]
async fn a_terminator_is_supplied_only_where_nothing_else_is_missing() {
    const ROWS: usize = 16;
    let mut bench = Bench::new(&[]).await;
    let done = [&delta("a"), FINISH, DONE].concat();
    let length = |body: &str| {
        vec![
            Step::Send(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()),
        ]
    };
    let until_close = |body: &str| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream\r\n\r\n";
        vec![
            Step::Send(format!("{head}{body}").into_bytes()),
            Step::Close,
        ]
    };
    let chunked = |body: &str| streamed([body.as_bytes()]);
    let unfinished = [delta("a"), FINISH.to_owned()].concat();
    let rows = [
        (chunked(&unfinished), true),
        (length(&unfinished), true),
        (until_close(&unfinished), true),
        (length(&done), true),
        (until_close(&done), true),
        // The blank line behind the last event is missing, but for that it is whole.
        (chunked(done.strip_suffix('\n').unwrap()), true),
        (chunked(done.strip_suffix("\n\n").unwrap()), true),
        (chunked(unfinished.strip_suffix("\n\n").unwrap()), true),
        // The reason to finish is missing, or half an event is left.
        (chunked(&delta("a")), false),
        (length(&delta("a")), false),
        (until_close(&delta("a")), false),
        (
            chunked(&[&delta("a"), "data: {\"choices\":[{\"del"].concat()),
            false,
        ),
        (
            chunked(&[&unfinished, "data: {\"choices\":[{\"del"].concat()),
            false,
        ),
        (vec![stream_head(), chunk(&unfinished), Step::Reset], false),
        (vec![stream_head(), chunk(&unfinished), Step::Close], false),
        (vec![stream_head(), chunk(delta("a")), Step::Close], false),
    ];
    assert_eq!(rows.len(), ROWS);
    for (number, (script, is_whole)) in rows.into_iter().enumerate() {
        let (answer, outcome) = bench.relays(script).await;
        if is_whole {
            assert_eq!(answer.body, done, "row {number}");
            assert_eq!(
                (answer.whole, outcome),
                (true, Outcome::Completed),
                "row {number}"
            );
        } else {
            assert!(
                answer.body.starts_with(&delta("a")),
                "row {number}: {answer:?}"
            );
            assert_eq!(
                last_error(&answer)["type"],
                "provider_error",
                "row {number}"
            );
            assert_eq!(outcome, Outcome::Truncated, "row {number}");
        }
    }
    assert_eq!(
        bench.provider.seen().len(),
        ROWS,
        "nothing is tried again once content went out"
    );
}

#[tokio::test]
async fn a_stream_that_falls_silent_ends_in_an_error_event() {
    let mut bench = Bench::new(&[("PROVIDERS__OPENAI__TIMEOUTS__IDLE", "200ms")]).await;
    let (answer, outcome) = bench
        .relays(vec![stream_head(), chunk(delta("a")), Step::Stall])
        .await;
    assert_eq!(last_error(&answer)["code"], "provider_timeout");
    assert_eq!(
        (outcome, bench.provider.left().await),
        (Outcome::Truncated, 0)
    );
}

#[tokio::test]
async fn a_stream_may_be_longer_than_any_deadline_if_it_is_never_silent() {
    let timeouts = [
        ("PROVIDERS__OPENAI__TIMEOUTS__IDLE", "400ms"),
        ("PROVIDERS__OPENAI__TIMEOUTS__TOTAL", "300ms"),
        ("PROVIDERS__OPENAI__TIMEOUTS__FIRST_BYTE", "300ms"),
    ];
    let mut bench = Bench::new(&timeouts).await;
    let mut script = vec![stream_head()];
    for _ in 0..6 {
        script.extend([chunk(delta("a")), Step::Work(Duration::from_millis(100))]);
    }
    script.extend([chunk(FINISH), chunk(DONE), last_chunk()]);
    let (answer, outcome) = bench.relays(script).await;
    assert!(answer.body.ends_with(DONE), "{}", answer.body);
    assert_eq!(outcome, Outcome::Completed);
}

#[tokio::test]
async fn an_error_event_ends_the_stream_whatever_follows_it() {
    let mut bench = Bench::new(&[]).await;
    let rows = [
        (
            "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\",\"code\":null}}\n\n",
            "overloaded",
        ),
        (
            "data: {\"error\":{\"message\":\"odd\",\"code\":502,\"metadata\":{\"a\":1}},\"choices\":[]}\n\n",
            "odd",
        ),
        ("data: {\"error\":\"as text\"}\n\n", "as text"),
        (
            "data: {\"object\":\"error\",\"message\":\"flat\",\"code\":500}\n\n",
            "flat",
        ),
        ("event: error\ndata: {\"message\":\"named\"}\n\n", "named"),
        ("event: error\r\ndata: out of words\r\n\r\n", ""),
    ];
    for (event, message) in rows {
        for glued in [true, false] {
            let behind = [&delta("z"), FINISH, DONE].concat();
            let parts = [delta("a"), event.to_owned(), behind];
            let script = if glued {
                streamed([parts.concat().as_bytes()])
            } else {
                streamed(parts.iter().map(String::as_bytes))
            };
            let (answer, outcome) = bench.relays(script).await;
            let error = last_error(&answer);
            assert!(!answer.body.contains("\"z\""), "{}", answer.body);
            let told = error["message"].as_str().unwrap_or_default();
            assert!(
                !told.is_empty() && told.contains(message),
                "{event}: {error}"
            );
            assert_eq!(outcome, Outcome::Truncated, "{event}");
        }
    }
}

#[tokio::test]
async fn until_content_has_come_another_attempt_can_take_its_place() {
    let mut bench = Bench::new(&[]).await;
    let good = [&delta("good"), FINISH, DONE].concat();
    let preamble = [": wait\n\n", ROLE, ": wait\n\n"].concat();
    let error = "data: {\"error\":{\"message\":\"no\"}}\n\n";
    let bad = [
        vec![Step::Reset],
        vec![stream_head(), Step::Reset],
        vec![stream_head(), Step::Close],
        vec![stream_head(), last_chunk()],
        vec![stream_head(), chunk(&preamble), Step::Reset],
        vec![stream_head(), chunk(&preamble), last_chunk()],
        vec![
            stream_head(),
            chunk(&preamble),
            chunk("data: {\"cho"),
            Step::Close,
        ],
        vec![stream_head(), chunk(&preamble), chunk(DONE), last_chunk()],
        vec![stream_head(), chunk(DONE), last_chunk()],
        vec![
            stream_head(),
            chunk([&preamble, error].concat()),
            last_chunk(),
        ],
        vec![stream_head(), chunk(USAGE), Step::Reset],
    ];
    for (number, script) in bad.into_iter().enumerate() {
        bench.provider.then(script);
        bench.provider.then(streamed([good.as_bytes()]));
        let answer = ask(bench.gateway.address, &stream("openai/m")).await;
        assert_eq!(answer.body, good, "row {number}");
        let record = bench.gateway.record().await;
        assert_eq!(
            (record.outcome, record.attempts),
            (Outcome::Completed, 2),
            "row {number}"
        );
    }
}

#[tokio::test]
async fn a_preamble_without_end_is_sent_on_in_the_end() {
    let mut bench = Bench::new(&[]).await;
    let comments = ": wait a little longer\n\n".repeat(4_000);
    bench
        .provider
        .then(vec![stream_head(), chunk(&comments), Step::Stall]);
    let mut client = Client::post(bench.gateway.address, &stream("openai/m")).await;
    client.until(": wait").await;
    drop(client);
    assert_eq!(bench.gateway.record().await.outcome, Outcome::Cancelled);
}

#[tokio::test]
async fn what_is_not_the_stream_that_was_asked_for_is_an_error_with_a_status() {
    let mut bench = Bench::new(&[("PROVIDERS__OPENAI__RETRIES__MAX", "0")]).await;
    let refusal = r#"{"error":{"message":"too long","type":"t","param":"p","code":"c"}}"#;
    let plain = [delta("a"), FINISH.to_owned(), DONE.to_owned()].concat();
    let rows = [
        (stream("openai/m"), json(400, refusal), 400, "c"),
        (
            stream("openai/m"),
            json(200, COMPLETION),
            502,
            "bad_provider_answer",
        ),
        (
            stream("openai/m"),
            json(200, "null"),
            502,
            "bad_provider_answer",
        ),
        (
            stream("openai/m"),
            streamed([COMPLETION.as_bytes()]),
            502,
            "bad_provider_answer",
        ),
        (
            chat("openai/m"),
            streamed([plain.as_bytes()]),
            502,
            "bad_provider_answer",
        ),
    ];
    for (body, script, status, code) in rows {
        let (answer, outcome) = bench.relays_to(&body, script).await;
        assert_eq!((answer.status, answer.whole), (status, true), "{answer:?}");
        assert!(
            answer
                .header("content-type")
                .unwrap()
                .starts_with("application/json")
        );
        assert_eq!(answer.json()["error"]["code"], code);
        assert!([Outcome::Failed, Outcome::Rejected].contains(&outcome));
    }
}

#[tokio::test]
async fn what_comes_behind_the_terminator_is_nobodys() {
    let mut bench = Bench::new(&[]).await;
    let whole = [delta("a"), FINISH.to_owned(), DONE.to_owned()].concat();
    let more = delta("z");
    let rows = [
        streamed([format!("{whole}{more}").as_bytes()]),
        streamed([whole.as_bytes(), more.as_bytes(), DONE.as_bytes()]),
        vec![stream_head(), chunk(&whole), chunk(&more), Step::Reset],
        vec![stream_head(), chunk(&whole), Step::Close],
        vec![stream_head(), chunk(&whole), Step::Stall],
        vec![stream_head(), chunk(&whole), Step::Flood(usize::MAX)],
    ];
    for (number, script) in rows.into_iter().enumerate() {
        let (answer, outcome) = bench.relays(script).await;
        assert_eq!(
            (answer.body.as_str(), answer.whole),
            (&whole[..], true),
            "row {number}"
        );
        assert_eq!(outcome, Outcome::Completed, "row {number}");
    }
    bench.gateway.gauge(Gauge::Upstream, 0).await;
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_stream_that_ended_properly() {
    let mut bench = Bench::new(&[("SERVER__WORKERS", "1")]).await;
    let whole = [delta("a"), FINISH.to_owned(), DONE.to_owned()].concat();
    for _ in 0..5 {
        let (answer, _) = bench.relays(streamed([whole.as_bytes()])).await;
        assert_eq!(answer.body, whole);
    }
    assert_eq!(bench.provider.connections(), 1);
}

#[tokio::test]
async fn a_fallback_takes_over_before_the_first_content_and_never_after_it() {
    let good = [&delta("good"), FINISH, DONE].concat();
    let check = async |first: Vec<Step>, second: Vec<Step>, expected: Result<&str, u16>| {
        let (one, two) = (
            Provider::start(vec![first]).await,
            Provider::start(vec![second]).await,
        );
        let mut gateway = Gateway::start_pair(&one, &two, &[]);
        let answer = ask(gateway.address, &stream("openai/m")).await;
        let record = gateway.record().await;
        match expected {
            Ok(body) => {
                assert_eq!((answer.status, answer.body.as_str()), (200, body));
                assert_eq!((record.outcome, record.fallbacks), (Outcome::Completed, 1));
                assert_eq!(answer.header("x-bifrost-provider"), Some("second"));
                assert!(two.seen()[0].body.contains("\"model\":\"spare\""));
            }
            Err(200) => {
                assert_eq!(last_error(&answer)["code"], "provider_broken");
                assert_eq!((record.outcome, record.fallbacks), (Outcome::Truncated, 0));
                assert!(two.seen().is_empty());
            }
            Err(status) => {
                assert_eq!((answer.status, answer.whole), (status, true), "{answer:?}");
                assert!(answer.json()["error"]["message"].is_string());
                assert_eq!((record.outcome, record.fallbacks), (Outcome::Failed, 1));
            }
        }
    };
    let second = || streamed([good.as_bytes()]);
    check(json(503, "{}"), second(), Ok(&good)).await;
    check(
        vec![stream_head(), chunk(ROLE), Step::Reset],
        second(),
        Ok(&good),
    )
    .await;
    check(vec![stream_head(), last_chunk()], second(), Ok(&good)).await;
    check(
        vec![stream_head(), chunk(delta("a")), Step::Reset],
        second(),
        Err(200),
    )
    .await;
    check(json(429, "{}"), json(500, "{}"), Err(429)).await;
    check(vec![stream_head(), Step::Close], json(404, "{}"), Err(502)).await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_stops_the_provider_and_gets_everything_later() {
    const SENT: usize = 64 << 20;
    let mut bench = Bench::new(&[]).await;
    bench.provider.then(vec![
        stream_head(),
        Step::Flood(SENT),
        chunk(FINISH),
        chunk(DONE),
        last_chunk(),
    ]);
    let mut client = Client::post(bench.gateway.address, &stream("openai/m")).await;
    client.until("xxx").await;
    let taken = async || {
        let mut look = tokio::time::interval(Duration::from_millis(20));
        let (mut before, mut same) = (0, 0);
        while same < 10 {
            look.tick().await;
            let now = bench.provider.flooded();
            same = if now == before { same + 1 } else { 0 };
            before = now;
        }
        before
    };
    // What the sockets on both sides hold: up to 20 megabytes on loopback.
    let taken = taken().await;
    assert!(taken < SENT / 2, "{taken} bytes");
    let answer = client.answer().await;
    assert!(
        answer.whole && answer.body.ends_with(DONE),
        "{:?}",
        answer.body.get(answer.body.len() - 400..)
    );
    let record = bench.gateway.record().await;
    assert_eq!(record.outcome, Outcome::Completed);
    assert!(record.back_pressure > 100_000_000, "{record:?}");
}

#[tokio::test]
async fn a_client_that_reads_nothing_and_leaves_lets_the_provider_go() {
    let mut bench = Bench::new(&[]).await;
    bench
        .provider
        .then(vec![stream_head(), Step::Flood(usize::MAX)]);
    let mut client = Client::post(bench.gateway.address, &stream("openai/m")).await;
    client.until("xxx").await;
    until(|| bench.provider.flooded() > 1 << 20).await;
    drop(client);
    assert_eq!(bench.provider.left().await, 0);
    assert_eq!(bench.gateway.record().await.outcome, Outcome::Cancelled);
    bench.gateway.gauge(Gauge::Upstream, 0).await;
}

#[tokio::test]
async fn a_stream_of_several_choices_is_whole_once_each_has_finished() {
    let choice = |index: u32, fields: &str| {
        format!("data: {{\"choices\":[{{\"index\":{index},{fields}}}]}}\n\n")
    };
    let text = |index| choice(index, r#""delta":{"content":"a"},"finish_reason":null"#);
    let finish = |index| choice(index, r#""delta":{},"finish_reason":"stop""#);
    let whole = [text(0), text(1), finish(0), finish(1)].concat();
    let half = [text(0), text(1), finish(0)].concat();
    for (events, is_whole) in [(whole, true), (half, false)] {
        let script = vec![stream_head(), chunk(&events), last_chunk()];
        let provider = Provider::start(vec![script]).await;
        let gateway = Gateway::start(&provider, &[]);
        let answer = ask(gateway.address, &stream("openai/m")).await;
        assert!(answer.body.starts_with(&events), "{}", answer.body);
        assert_eq!(answer.body.ends_with(DONE), is_whole, "{}", answer.body);
        assert_eq!(
            answer.body.contains("\"error\""),
            !is_whole,
            "{}",
            answer.body
        );
    }
}
