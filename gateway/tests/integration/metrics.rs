//! What Prometheus reads, against what was asked.

use std::collections::HashMap;

use bifrost_shared::layout::Gauge;

use crate::admin::send;
use crate::client::{ask, chat, stream};
use crate::gateway::Gateway;
use crate::provider::{COMPLETION, DONE, FINISH, Provider, delta, json, json_with, streamed};

/// The samples of the page: a series and its value.
async fn samples(gateway: &Gateway) -> HashMap<String, f64> {
    let answer = send(gateway.admin, "GET", "/metrics", "").await;
    assert_eq!(answer.status, 200);
    let kind = answer.header("content-type").unwrap();
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    let lines = answer.body.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap())
    });
    samples.collect()
}

#[track_caller]
fn check(samples: &HashMap<String, f64>, expected: &[(&str, f64)]) {
    for (series, value) in expected {
        assert_eq!(samples.get(*series), Some(value), "{series}");
    }
}

#[tokio::test]
async fn each_request_counts_once_by_how_it_ended_and_whom_it_asked() {
    let whole = [&delta("a"), FINISH, DONE].concat();
    let provider = Provider::start(vec![
        json_with(429, "retry-after-ms: 60000\r\n", "{}"),
        json(200, COMPLETION),
        streamed([whole.as_bytes()]),
        json(400, "{}"),
        json(200, COMPLETION),
    ])
    .await;
    let keys = r#"[{name="main",value="sk-a"},{name="spare",value="sk-b",models=["m","rare"]}]"#;
    let models = r#"["m","n\"x"]"#;
    let settings = [
        ("PROVIDERS__OPENAI__KEYS", keys),
        ("PROVIDERS__OPENAI__MODELS", models),
    ];
    let mut gateway = Gateway::start(&provider, &settings);
    // Limited, and answered with the other key; a stream; a provider's refusal; and what is none of the models.
    for body in [
        chat("m"),
        stream("openai/n\\\"x"),
        chat("m"),
        chat("openai/invented"),
        "no JSON".to_owned(),
    ] {
        ask(gateway.address, &body).await;
        gateway.record().await;
    }
    // How keys stand is looked at five times a second.
    gateway.gauge(Gauge::InFlight, 0).await;
    let told = until_told(
        &gateway,
        "bifrost_provider_attempts_total{provider=\"openai\"}",
        4.0,
    )
    .await;
    check(
        &told,
        &[
            ("bifrost_requests_started_total", 5.0),
            ("bifrost_requests_total{outcome=\"completed\"}", 2.0),
            ("bifrost_requests_total{outcome=\"rejected\"}", 3.0),
            ("bifrost_requests_total{outcome=\"failed\"}", 0.0),
            ("bifrost_request_faults_total{fault=\"request\"}", 2.0),
            ("bifrost_request_faults_total{fault=\"status\"}", 1.0),
            ("bifrost_streams_total", 1.0),
            ("bifrost_retries_total", 1.0),
            ("bifrost_upstream_rate_limited_total", 1.0),
            ("bifrost_request_seconds_count", 5.0),
            ("bifrost_request_seconds_bucket{le=\"+Inf\"}", 5.0),
            ("bifrost_stage_seconds_count{stage=\"http_request\"}", 3.0),
            ("bifrost_first_byte_seconds_count", 2.0),
            ("bifrost_time_to_first_token_seconds_count", 1.0),
            ("bifrost_model_requests_total{model=\"openai/m\"}", 2.0),
            ("bifrost_model_requests_total{model=\"openai/n\\\"x\"}", 1.0),
            ("bifrost_model_requests_total{model=\"openai/rare\"}", 0.0),
            ("bifrost_model_requests_total{model=\"other\"}", 2.0),
            ("bifrost_model_prompt_tokens_total{model=\"openai/m\"}", 7.0),
            (
                "bifrost_provider_attempts_ended_total{provider=\"openai\",result=\"answered\"}",
                2.0,
            ),
            (
                "bifrost_provider_attempts_ended_total{provider=\"openai\",result=\"rate_limited\"}",
                1.0,
            ),
            ("bifrost_provider_requests_total{provider=\"openai\"}", 3.0),
        ],
    );
    let is_resting = |key: &str| {
        let series =
            format!("bifrost_key_state{{provider=\"openai\",key=\"{key}\",state=\"resting\"}}");
        told[&series] > 0.0
    };
    assert!(is_resting("main") != is_resting("spare"));
    assert!(told["process_resident_memory_bytes"] > 1e6);
}

/// The samples, once one of them has that value: the exporter can be looked for, but not awaited.
async fn until_told(gateway: &Gateway, series: &str, value: f64) -> HashMap<String, f64> {
    let mut look = tokio::time::interval(std::time::Duration::from_millis(5));
    let found = tokio::time::timeout(std::time::Duration::from_secs(10), async {
        loop {
            look.tick().await;
            let told = samples(gateway).await;
            if told.get(series) == Some(&value) {
                return told;
            }
        }
    });
    found
        .await
        .unwrap_or_else(|_| panic!("no {series} {value}"))
}

#[tokio::test]
async fn a_model_goes_on_counting_over_a_reload_and_one_that_is_gone_stays_as_it_was() {
    let provider = Provider::always(json(200, COMPLETION)).await;
    let url = format!("http://{}/v1", provider.address);
    let settings = |models| {
        [
            ("PROVIDERS__OPENAI__BASE_URL", url.as_str()),
            ("PROVIDERS__OPENAI__KEYS", r#"[{value="sk-test-a"}]"#),
            ("PROVIDERS__OPENAI__MODELS", models),
            ("SERVER__LISTEN", "127.0.0.1:0"),
        ]
    };
    let mut gateway = Gateway::with(&settings("old,kept"));
    for model in ["old", "kept"] {
        ask(gateway.address, &chat(model)).await;
        gateway.record().await;
    }
    gateway.reload(&settings("kept,new")).unwrap();
    for model in ["old", "kept", "new"] {
        ask(gateway.address, &chat(model)).await;
        gateway.record().await;
    }
    let told = samples(&gateway).await;
    check(
        &told,
        &[
            ("bifrost_model_requests_total{model=\"openai/old\"}", 1.0),
            ("bifrost_model_requests_total{model=\"openai/kept\"}", 2.0),
            ("bifrost_model_requests_total{model=\"openai/new\"}", 1.0),
            ("bifrost_model_requests_total{model=\"other\"}", 1.0),
        ],
    );
}
