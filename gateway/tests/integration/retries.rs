//! Which failure is tried again, with which key, how often, and when not any more.

use std::time::{Duration, Instant};

use bifrost_shared::layout::Gauge;
use bifrost_shared::record::Outcome;

use crate::client::{Client, ask, chat, stream};
use crate::gateway::Gateway;
use crate::outcomes::until;
use crate::provider::{
    COMPLETION, DONE, FINISH, Provider, Seen, Step, delta, json, json_with, streamed,
};

const TWO_KEYS: (&str, &str) = (
    "PROVIDERS__OPENAI__KEYS",
    r#"[{value="sk-test-a"},{value="sk-test-b"}]"#,
);
const THREE_KEYS: (&str, &str) = (
    "PROVIDERS__OPENAI__KEYS",
    r#"[{value="sk-test-a"},{value="sk-test-b"},{value="sk-test-c"}]"#,
);
const QUOTA: &str = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#;

fn ok() -> Vec<Step> {
    json(200, COMPLETION)
}

/// The keys that were seen, each only once.
fn different_keys(provider: &Provider) -> usize {
    let seen = provider.seen();
    let mut keys: Vec<_> = seen.iter().map(Seen::key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), seen.len(), "a key was tried twice");
    keys.len()
}

#[tokio::test]
async fn a_key_that_is_limited_or_refused_gives_way_to_the_next_at_once() {
    for status in [429, 401, 402, 403] {
        let refusal = json_with(
            status,
            "retry-after: 30\r\n",
            r#"{"error":{"message":"no","type":"t"}}"#,
        );
        let provider = Provider::start(vec![refusal, ok()]).await;
        // A pause would be seen: it is longer than the client waits.
        let settings = [
            TWO_KEYS,
            ("PROVIDERS__OPENAI__RETRIES__BACKOFF_INITIAL", "60s"),
            ("PROVIDERS__OPENAI__RETRIES__BACKOFF_MAX", "60s"),
        ];
        let mut gateway = Gateway::start(&provider, &settings);
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!(answer.status, 200, "{status}");
        let record = gateway.record().await;
        assert_eq!((record.outcome, record.attempts), (Outcome::Completed, 2));
        assert_eq!(different_keys(&provider), 2);
        // The key stays away afterwards.
        let good = provider.seen()[1].key().to_owned();
        for _ in 0..8 {
            provider.then(ok());
            assert_eq!(ask(gateway.address, &chat("openai/m")).await.status, 200);
            assert_eq!(provider.seen().last().unwrap().key(), good, "{status}");
        }
        // A refused key is refused for every model; a limited one rests for its model alone.
        let is_for_all = [401, 402].contains(&status);
        let mut others = 0;
        for _ in 0..40 {
            provider.then(ok());
            assert_eq!(
                ask(gateway.address, &chat("openai/other")).await.status,
                200
            );
            others += usize::from(provider.seen().last().unwrap().key() != good);
        }
        assert_eq!(others == 0, is_for_all, "{status}: {others} of 40");
    }
}

#[tokio::test]
async fn each_key_is_tried_once_and_then_there_is_one_clear_error() {
    let check = async |script: Vec<Step>, status: u16, code: &str, later: u16| {
        let provider = Provider::always(script).await;
        let mut gateway = Gateway::start(&provider, &[TWO_KEYS]);
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (status, Some(code))
        );
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        assert_eq!(different_keys(&provider), 2, "{status}");
        let record = gateway.record().await;
        assert_eq!((record.outcome, record.attempts), (Outcome::Failed, 2));
        // The next request finds no key and asks nobody.
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!((answer.status, provider.seen().len()), (later, 2));
        assert_eq!(gateway.record().await.outcome, Outcome::Failed);
        answer
    };
    let refusal =
        |code: &str| format!(r#"{{"error":{{"message":"no","type":"t","code":"{code}"}}}}"#);
    check(
        json(401, &refusal("invalid_api_key")),
        502,
        "credentials_exhausted",
        502,
    )
    .await;
    check(
        json(402, &refusal("billing")),
        502,
        "credentials_exhausted",
        502,
    )
    .await;
    check(json(429, QUOTA), 502, "credentials_exhausted", 502).await;
    let limited = json_with(429, "retry-after: 20\r\n", &refusal("rate_limit_exceeded"));
    let answer = check(limited, 429, "rate_limit_exceeded", 429).await;
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((19..=20).contains(&wait), "{wait}");
    assert_eq!(answer.json()["error"]["code"], "keys_resting");
    check(json(403, &refusal("forbidden")), 403, "forbidden", 429).await;
}

#[tokio::test]
async fn the_client_is_told_when_the_first_key_is_back_whichever_failed_last() {
    for waits in [[5, 20], [20, 5]] {
        let limited = |seconds| json_with(429, &format!("retry-after: {seconds}\r\n"), "{}");
        let provider = Provider::start(waits.map(limited).to_vec()).await;
        let gateway = Gateway::start(&provider, &[TWO_KEYS]);
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!((answer.status, provider.seen().len()), (429, 2));
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((4..=5).contains(&wait), "{wait} of {waits:?}");
    }
}

#[tokio::test]
async fn attempts_are_counted_in_all_whatever_the_keys_and_the_kinds() {
    let limited = || json(429, "{}");
    let rows: [(Vec<Vec<Step>>, u16, usize); 5] = [
        (
            vec![json(500, "{}"), json(500, "{}"), json(500, "{}"), ok()],
            500,
            3,
        ),
        (vec![limited(), json(500, "{}"), limited(), ok()], 429, 3),
        (
            vec![json(500, "{}"), limited(), json(503, "{}"), ok()],
            503,
            3,
        ),
        (
            vec![json(401, "{}"), json(401, "{}"), json(401, "{}"), ok()],
            502,
            3,
        ),
        (vec![limited(), json(500, "{}"), ok()], 200, 3),
    ];
    for (number, (scripts, status, calls)) in rows.into_iter().enumerate() {
        let provider = Provider::start(scripts).await;
        let mut gateway = Gateway::start(&provider, &[THREE_KEYS]);
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!(
            (answer.status, provider.seen().len()),
            (status, calls),
            "row {number}"
        );
        assert_eq!(usize::from(gateway.record().await.attempts), calls);
    }
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_what_is_final_is_not() {
    let provider = Provider::start(vec![]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let lost = [
        json(408, "{}"),
        json(409, "{}"),
        json(424, "{}"),
        json(498, "{}"),
        json(500, "<html>"),
        json(502, ""),
        json(503, "{}"),
        json(504, "{}"),
        json(529, "{}"),
        vec![Step::Close],
        vec![Step::Reset],
        json(200, "null"),
        json(200, r#"{"error":{"message":"x","code":503}}"#),
    ];
    for (number, script) in lost.into_iter().enumerate() {
        provider.then(script);
        provider.then(ok());
        assert_eq!(
            ask(gateway.address, &chat("openai/m")).await.status,
            200,
            "row {number}"
        );
        let record = gateway.record().await;
        assert_eq!(
            (record.outcome, record.attempts),
            (Outcome::Completed, 2),
            "row {number}"
        );
    }
    for status in [400, 404, 405, 413, 415, 422] {
        provider.then(json(status, r#"{"error":{"message":"no","type":"t"}}"#));
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!(
            (answer.status, answer.header("x-should-retry")),
            (status, None)
        );
        assert_eq!(gateway.record().await.attempts, 1, "{status}");
    }
}

#[tokio::test]
async fn a_request_that_pauses_gives_its_place_to_another() {
    let provider = Provider::start(vec![json(500, "{}"), ok(), ok()]).await;
    let settings = [
        ("PROVIDERS__OPENAI__CONCURRENCY", "1"),
        ("PROVIDERS__OPENAI__RETRIES__BACKOFF_INITIAL", "2s"),
        ("PROVIDERS__OPENAI__RETRIES__BACKOFF_MAX", "2s"),
    ];
    // The pause is random, up to two seconds: tried until one is long enough to be overtaken.
    for _ in 0..8 {
        let gateway = Gateway::start(&provider, &settings);
        let pausing = Client::post(gateway.address, &chat("openai/pausing")).await;
        until(|| !provider.seen().is_empty()).await;
        gateway.gauge(Gauge::Upstream, 0).await;
        let other = ask(gateway.address, &chat("openai/other")).await;
        assert_eq!(other.status, 200);
        let overtook = provider.seen()[1].body.contains("other");
        assert_eq!(pausing.answer().await.status, 200);
        if overtook {
            return;
        }
    }
    panic!("no request overtook one that paused");
}

#[tokio::test]
async fn nobody_is_asked_for_a_client_that_has_left() {
    let provider = Provider::always(json(500, "{}")).await;
    let settings = [
        ("PROVIDERS__OPENAI__RETRIES__MAX", "100"),
        ("PROVIDERS__OPENAI__RETRIES__BACKOFF_INITIAL", "20ms"),
        ("PROVIDERS__OPENAI__RETRIES__BACKOFF_MAX", "20ms"),
    ];
    let mut gateway = Gateway::start(&provider, &settings);
    let client = Client::post(gateway.address, &chat("openai/m")).await;
    until(|| provider.seen().len() >= 3).await;
    drop(client);
    let record = gateway.record().await;
    assert_eq!((record.outcome, record.status), (Outcome::Cancelled, 0));
    assert_eq!(provider.seen().len(), usize::from(record.attempts));
    gateway.gauge(Gauge::Upstream, 0).await;
    gateway.gauge(Gauge::InFlight, 0).await;
    assert_eq!(provider.seen().len(), usize::from(record.attempts));
}

#[tokio::test]
async fn the_clients_own_deadline_is_kept() {
    let check = async |script: Vec<Step>, settings: &[(&str, &str)], status: u16| {
        let provider = Provider::always(script).await;
        let mut gateway = Gateway::start(&provider, settings);
        let begun = Instant::now();
        let mut client = Client::connect(gateway.address).await;
        client
            .send_chat("x-stainless-read-timeout: 0.4\r\n", chat("openai/m"))
            .await;
        let answer = client.answer().await;
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(gateway.record().await.outcome, Outcome::Failed);
        provider.seen().len()
    };
    assert_eq!(check(vec![Step::Stall], &[], 504).await, 1);
    // A pause that would outlast it is not begun: the failure is told at once.
    let slow = [
        ("PROVIDERS__OPENAI__RETRIES__BACKOFF_INITIAL", "10000s"),
        ("PROVIDERS__OPENAI__RETRIES__BACKOFF_MAX", "10000s"),
    ];
    assert_eq!(check(json(503, "{}"), &slow, 503).await, 1);
    let quick = [
        ("PROVIDERS__OPENAI__RETRIES__MAX", "100"),
        ("PROVIDERS__OPENAI__RETRIES__BACKOFF_INITIAL", "100ms"),
        ("PROVIDERS__OPENAI__RETRIES__BACKOFF_MAX", "100ms"),
    ];
    let calls = check(json(503, "{}"), &quick, 503).await;
    assert!((2..100).contains(&calls), "{calls}");
}

#[tokio::test]
async fn a_header_shortens_the_settings_deadline_and_never_lengthens_it() {
    let provider = Provider::always(vec![Step::Stall]).await;
    let gateway = Gateway::start(
        &provider,
        &[("PROVIDERS__OPENAI__TIMEOUTS__TOTAL", "200ms")],
    );
    let mut client = Client::connect(gateway.address).await;
    client
        .send_chat("x-stainless-read-timeout: 600\r\n", chat("openai/m"))
        .await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (504, Some("deadline_exceeded"))
    );
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "one scene a row, and to be read as a table"
)]
async fn fallbacks_are_asked_in_order_and_the_first_failure_is_the_one_that_is_told() {
    let streams = || streamed([[&delta("a"), FINISH, DONE].concat().as_bytes()]);
    let with = |fallbacks: &str| {
        chat("openai/m").replace(
            "\"messages\"",
            &format!("\"fallbacks\":{fallbacks},\"messages\""),
        )
    };
    let failure = |code: &str| {
        json(
            500,
            &format!(r#"{{"error":{{"message":"m","type":"t","code":"{code}"}}}}"#),
        )
    };
    let check = async |body: &str,
                       first: Vec<Step>,
                       second: Vec<Vec<Step>>,
                       status: u16,
                       asked: &[&str]| {
        let (one, two) = (Provider::always(first).await, Provider::start(second).await);
        let mut gateway = Gateway::start_pair(&one, &two, &[]);
        let answer = ask(gateway.address, body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        let models: Vec<String> = two
            .seen()
            .iter()
            .map(|seen| {
                assert!(!seen.body.contains("fallbacks"), "{}", seen.body);
                serde_json::from_str::<serde_json::Value>(&seen.body).unwrap()["model"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        assert_eq!(models, asked, "{body}");
        assert_eq!(usize::from(gateway.record().await.fallbacks), asked.len());
        answer
    };
    check(
        &chat("openai/m"),
        failure("one"),
        vec![ok()],
        200,
        &["spare"],
    )
    .await;
    check(
        &stream("openai/m"),
        failure("one"),
        vec![streams()],
        200,
        &["spare"],
    )
    .await;
    check(
        &with(r#"["second/a","second/b"]"#),
        failure("one"),
        vec![failure("a"), ok()],
        200,
        &["a", "b"],
    )
    .await;
    check(
        &with(r#"["nobody/x","openai/m","second/a/b:c"]"#),
        failure("one"),
        vec![ok()],
        200,
        ["nobody/x", "a/b:c"][1..].as_ref(),
    )
    .await;
    let answer = check(
        &with(r#"["second/a","second/b"]"#),
        failure("one"),
        vec![failure("a"), json(404, "{}")],
        500,
        &["a", "b"],
    )
    .await;
    assert_eq!(answer.json()["error"]["code"], "one");
    // What the client got wrong, another provider finds wrong as well.
    check(&chat("openai/m"), json(400, "{}"), vec![ok()], 400, &[]).await;
    check(&chat("openai/m"), json(404, "{}"), vec![ok()], 404, &[]).await;
    check(
        &chat("openai/m"),
        json(401, "{}"),
        vec![ok()],
        200,
        &["spare"],
    )
    .await;
    check(
        &chat("openai/m"),
        json(429, "{}"),
        vec![ok()],
        200,
        &["spare"],
    )
    .await;
    check(
        &chat("openai/m"),
        vec![Step::Close],
        vec![ok()],
        200,
        &["spare"],
    )
    .await;
}

#[tokio::test]
async fn a_provider_that_is_silent_or_full_is_fallen_back_from() {
    let (one, two) = (
        Provider::always(vec![Step::Stall]).await,
        Provider::always(ok()).await,
    );
    let settings = [
        ("PROVIDERS__OPENAI__TIMEOUTS__FIRST_BYTE", "10s"),
        ("PROVIDERS__OPENAI__CONCURRENCY", "1"),
        ("CLIENT__BUFFER_SIZE", "0"),
    ];
    let gateway = Gateway::start_pair(&one, &two, &settings);
    let held = Client::post(gateway.address, &chat("openai/m")).await;
    gateway.gauge(Gauge::Upstream, 1).await;
    let answer = ask(gateway.address, &chat("openai/m")).await;
    assert_eq!(
        (answer.status, answer.header("x-bifrost-provider")),
        (200, Some("second"))
    );
    drop(held);
    let mut gateway = Gateway::start_pair(
        &one,
        &two,
        &[("PROVIDERS__OPENAI__TIMEOUTS__FIRST_BYTE", "100ms")],
    );
    let answer = ask(gateway.address, &chat("openai/m")).await;
    assert_eq!(
        (answer.status, answer.header("x-bifrost-provider")),
        (200, Some("second"))
    );
    assert_eq!(gateway.record().await.fallbacks, 1);
}

#[tokio::test]
async fn a_benched_key_is_probed_and_comes_back() {
    let provider = Provider::start(vec![json(401, "{}")]).await;
    let settings = [
        ("PROVIDERS__OPENAI__REST__PROBE", "100ms"),
        ("PROVIDERS__OPENAI__RETRIES__MAX", "0"),
    ];
    let gateway = Gateway::start(&provider, &settings);
    assert_eq!(ask(gateway.address, &chat("openai/m")).await.status, 502);
    provider.then(ok());
    provider.then(ok());
    let begun = Instant::now();
    while ask(gateway.address, &chat("openai/m")).await.status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
    assert!(
        begun.elapsed() > Duration::from_millis(50),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(provider.seen().len(), 2, "only the probe went out");
    assert_eq!(ask(gateway.address, &chat("openai/m")).await.status, 200);
}
