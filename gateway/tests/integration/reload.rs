//! Other settings while requests are under way: what stays the same lives on, what is wrong changes nothing.

use bifrost_shared::record::Outcome;

use crate::client::{Client, ask, chat};
use crate::gateway::Gateway;
use crate::outcomes::until;
use crate::provider::{COMPLETION, Provider, Step, json};

fn settings<'a>(base_url: &'a str, keys: &'a str, concurrency: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("PROVIDERS__OPENAI__BASE_URL", base_url),
        ("PROVIDERS__OPENAI__KEYS", keys),
        ("PROVIDERS__OPENAI__CONCURRENCY", concurrency),
        ("SERVER__LISTEN", "127.0.0.1:0"),
    ]
}

fn base_url(provider: &Provider) -> String {
    format!("http://{}/v1", provider.address)
}

#[tokio::test]
async fn a_new_key_is_used_by_the_next_request_over_the_same_connection() {
    let provider = Provider::start(vec![json(200, COMPLETION), json(200, COMPLETION)]).await;
    let url = base_url(&provider);
    let gateway = Gateway::with(&settings(&url, r#"[{value="sk-old"}]"#, "5"));
    assert_eq!(ask(gateway.address, &chat("openai/m")).await.status, 200);
    gateway
        .reload(&settings(&url, r#"[{value="sk-new"}]"#, "5"))
        .unwrap();
    assert_eq!(ask(gateway.address, &chat("openai/m")).await.status, 200);
    let seen = provider.seen();
    assert!(
        seen[0].head.contains("sk-old") && seen[1].head.contains("sk-new"),
        "{seen:?}"
    );
}

#[tokio::test]
async fn who_waits_in_line_keeps_waiting_and_the_limit_still_holds() {
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let held = [vec![Step::Wait(gate.clone())], json(200, COMPLETION)].concat();
    let provider = Provider::start(vec![held, json(200, COMPLETION)]).await;
    let url = base_url(&provider);
    let mut gateway = Gateway::with(&settings(&url, r#"[{value="sk-old"}]"#, "1"));
    let first = Client::post(gateway.address, &chat("openai/m")).await;
    until(|| provider.seen().len() == 1).await;
    gateway
        .reload(&settings(&url, r#"[{value="sk-new"}]"#, "1"))
        .unwrap();
    let second = Client::post(gateway.address, &chat("openai/m")).await;
    gateway.waiting(1).await;
    assert_eq!(provider.seen().len(), 1, "one place, before and after");
    gate.notify_one();
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(second.answer().await.status, 200);
    assert!(provider.seen()[1].head.contains("sk-new"));
}

#[tokio::test]
async fn a_request_ends_with_the_provider_it_began_with() {
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let held = [vec![Step::Wait(gate.clone())], json(200, COMPLETION)].concat();
    let (old, new) = (
        Provider::start(vec![held]).await,
        Provider::start(vec![json(200, COMPLETION)]).await,
    );
    let mut gateway = Gateway::with(&settings(&base_url(&old), r#"[{value="sk"}]"#, "5"));
    let first = Client::post(gateway.address, &chat("openai/m")).await;
    until(|| old.seen().len() == 1).await;
    let other = base_url(&new);
    let renamed: Vec<(&str, &str)> = vec![
        ("PROVIDERS__OTHER__BASE_URL", &other),
        ("PROVIDERS__OTHER__KEYS", r#"[{value="sk"}]"#),
        ("SERVER__LISTEN", "127.0.0.1:0"),
    ];
    gateway.reload(&renamed).unwrap();
    assert_eq!(
        ask(gateway.address, &chat("openai/m")).await.status,
        200,
        "any model of the only provider"
    );
    assert_eq!(new.seen().len(), 1);
    // A place in telemetry is never given to another provider.
    assert_eq!(gateway.record().await.provider, 1);
    gate.notify_one();
    assert_eq!(first.answer().await.status, 200);
    let record = gateway.record().await;
    assert_eq!((record.outcome, record.provider), (Outcome::Completed, 0));
}

#[tokio::test]
async fn what_cannot_be_used_changes_nothing_and_what_takes_a_restart_is_said() {
    let provider = Provider::start(vec![json(200, COMPLETION)]).await;
    let url = base_url(&provider);
    let gateway = Gateway::with(&settings(&url, r#"[{value="sk-old"}]"#, "5"));
    let mut bad = settings(&url, r#"[{value="sk-new"}]"#, "5");
    let broken = tempfile::NamedTempFile::new().unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(broken.path(), pem).unwrap();
    bad.push((
        "PROVIDERS__OPENAI__CA_FILE",
        broken.path().to_str().unwrap(),
    ));
    let error = format!("{:#}", gateway.reload(&bad).unwrap_err());
    assert!(error.contains("provider `openai`: ca_file"), "{error}");
    assert_eq!(ask(gateway.address, &chat("openai/m")).await.status, 200);
    assert!(provider.seen()[0].head.contains("sk-old"));
    let mut fixed = settings(&url, r#"[{value="sk-old"}]"#, "5");
    fixed.push(("DRAIN_TIMEOUT", "1s"));
    let restart = gateway.reload(&fixed).unwrap();
    assert!(restart.contains(&"drain_timeout"), "{restart:?}");
}
