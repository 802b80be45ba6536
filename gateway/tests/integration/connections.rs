//! The way to the provider: which connections are opened, whose certificates are trusted, what is tried again.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bifrost_shared::record::{Outcome, Record, flags};
use bifrost_shared::stage::Stage;
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::client::{Answer as Answered, Client, ask, chat, stream};
use crate::gateway::Gateway;
use crate::outcomes::until;
use crate::provider::{COMPLETION, Provider, Step, json, json_with};
use crate::tls::{Answer, FAR_HOST, TlsProvider};
use crate::tunnel::Tunnel;

const AT_ONCE: Answer = Answer::After(Duration::ZERO);

/// A gateway in front of a provider behind TLS; `more` are further variables, without the prefix.
fn in_front_of(provider: &TlsProvider, more: &[(&str, &str)]) -> Gateway {
    let base_url = format!("https://localhost:{}/v1", provider.address.port());
    let mut variables = vec![
        ("PROVIDERS__OPENAI__BASE_URL", base_url.as_str()),
        ("PROVIDERS__OPENAI__KEYS", r#"[{value="sk-test-a"}]"#),
        ("PROVIDERS__OPENAI__RETRIES__MAX", "0"),
        (
            "PROVIDERS__OPENAI__CA_FILE",
            provider.ca_file.to_str().unwrap(),
        ),
    ];
    variables.retain(|(name, _)| !more.iter().any(|(other, _)| name == other));
    variables.extend_from_slice(more);
    Gateway::with(&variables)
}

/// Asks so many times at once, and waits for all answers.
async fn ask_at_once(address: SocketAddr, count: usize) -> Vec<Answered> {
    let mut all = JoinSet::new();
    for _ in 0..count {
        all.spawn(async move { ask(address, &chat("openai/m")).await });
    }
    all.join_all().await
}

async fn records(gateway: &mut Gateway, count: usize) -> Vec<Record> {
    let mut records = vec![];
    while records.len() < count {
        records.push(gateway.record().await);
    }
    records
}

/// A thousand requests, all with a provider at the same time: it answers none of them until it has them all. Then
/// again, at 300 ms each: none takes twice as long. 100 streams on a single connection would take ten times as long.
async fn none_waits_unseen(settings: &[(&str, &str)], connections_max: usize) {
    const COUNT: usize = 1_000;
    const TIME: Duration = Duration::from_millis(300);
    let provider = TlsProvider::start(Answer::Together(Arc::new(Barrier::new(COUNT))));
    let mut gateway = in_front_of(&provider, settings);
    for answer in ask_at_once(gateway.address, COUNT).await {
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let opened = records(&mut gateway, COUNT).await;
    let opened = opened
        .iter()
        .filter(|record| record.flags & flags::CONNECTED != 0);
    assert_eq!(opened.count(), provider.connections());
    assert!(
        provider.connections() <= connections_max,
        "{}",
        provider.connections()
    );

    provider.answer(Answer::After(TIME));
    // A busy machine may slow a round; a stream limit would slow each of them, to several times the answer's time.
    let mut worst = Duration::MAX;
    for _ in 0..3 {
        for answer in ask_at_once(gateway.address, COUNT).await {
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
        let times = records(&mut gateway, COUNT).await;
        let times = times.iter().map(|record| record.stage(Stage::HttpRequest));
        worst = worst.min(Duration::from_nanos(times.max().unwrap()));
    }
    assert!(worst >= TIME && worst < 2 * TIME, "{worst:?}");
}

#[tokio::test]
async fn of_a_thousand_in_flight_over_http1_none_waits_unseen() {
    none_waits_unseen(&[], 1_000).await;
}

#[tokio::test]
async fn of_a_thousand_in_flight_over_http2_none_waits_unseen() {
    let settings = [
        ("SERVER__WORKERS", "2"),
        ("PROVIDERS__OPENAI__HTTP2__CONNECTIONS", "12"),
    ];
    none_waits_unseen(&settings, 24).await;
}

#[tokio::test]
async fn what_http2_connections_do_not_carry_waits_in_the_queue() {
    let barrier = Arc::new(Barrier::new(101));
    let provider = TlsProvider::start(Answer::Together(Arc::clone(&barrier)));
    let settings = [
        ("SERVER__WORKERS", "1"),
        ("PROVIDERS__OPENAI__HTTP2__CONNECTIONS", "1"),
    ];
    let mut gateway = in_front_of(&provider, &settings);
    let mut all = JoinSet::new();
    for _ in 0..101 {
        let address = gateway.address;
        all.spawn(async move { ask(address, &chat("openai/m")).await });
    }
    // A hundred are with the provider, which waits for one more: for the test, since the last one waits here.
    gateway.waiting(1).await;
    until(|| provider.asked() == 100).await;
    provider.answer(AT_ONCE);
    barrier.wait().await;
    for answer in all.join_all().await {
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

#[tokio::test]
async fn clients_that_do_not_read_keep_nobody_elses_answer_from_the_same_connection() {
    let gone = Arc::new(AtomicUsize::new(0));
    let provider = TlsProvider::start(Answer::Endless(Arc::clone(&gone)));
    let settings = [
        ("SERVER__WORKERS", "1"),
        ("PROVIDERS__OPENAI__HTTP2__CONNECTIONS", "1"),
    ];
    let gateway = in_front_of(&provider, &settings);
    let mut deaf = vec![];
    for _ in 0..8 {
        let mut client = Client::post(gateway.address, &stream("openai/m")).await;
        client.until("data: ").await;
        deaf.push(client);
    }
    // All buffers on the way are full once nothing has moved for a while.
    let (mut before, mut quiet) = (0, 0);
    let mut look = tokio::time::interval(Duration::from_millis(20));
    while quiet < 10 {
        look.tick().await;
        let now = gone.load(Ordering::Relaxed);
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
    }
    let answer = ask(gateway.address, &chat("openai/m")).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, COMPLETION));
    assert_eq!(provider.connections(), 1);
}

#[tokio::test]
async fn no_more_connections_are_opened_at_once_than_the_settings_say() {
    // Takes connections and never agrees on TLS; closes them two by two.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://{}/v1", listener.local_addr().unwrap());
    let most = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&most);
    tokio::spawn(async move {
        let (open, pair) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(2)));
        while let Ok((stream, _)) = listener.accept().await {
            let (open, pair) = (Arc::clone(&open), Arc::clone(&pair));
            counted.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::spawn(async move {
                pair.wait().await;
                open.fetch_sub(1, Ordering::Relaxed);
                drop(stream);
            });
        }
    });
    let gateway = Gateway::with(&[
        ("SERVER__WORKERS", "1"),
        ("PROVIDERS__OPENAI__BASE_URL", &base_url),
        ("PROVIDERS__OPENAI__KEYS", r#"[{value="sk-test-a"}]"#),
        ("PROVIDERS__OPENAI__RETRIES__MAX", "0"),
        ("PROVIDERS__OPENAI__CONNECTS_MAX", "2"),
    ]);
    for answer in ask_at_once(gateway.address, 20).await {
        assert_eq!(answer.json()["error"]["code"], "provider_unreachable");
    }
    assert_eq!(most.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_record_tells_whether_a_connection_was_opened() {
    let provider = TlsProvider::start(AT_ONCE);
    let mut gateway = in_front_of(&provider, &[("SERVER__WORKERS", "1")]);
    ask(gateway.address, &chat("openai/m")).await;
    let first = gateway.record().await;
    assert_ne!(first.flags & flags::CONNECTED, 0);
    assert!(
        first.connect > 0 && first.connect < first.stage(Stage::HttpRequest),
        "{first:?}"
    );
    ask(gateway.address, &chat("openai/m")).await;
    let second = gateway.record().await;
    assert_eq!((second.flags & flags::CONNECTED, second.connect), (0, 0));
    assert_eq!(provider.connections(), 1);
}

#[tokio::test]
async fn a_session_is_taken_up_again_on_another_runtime() {
    let provider = TlsProvider::start(AT_ONCE);
    let mut gateway = in_front_of(&provider, &[("SERVER__WORKERS", "2")]);
    // Held open, so that the acceptor gives the next one to the other runtime.
    let mut first = Client::connect(gateway.address).await;
    let body = chat("openai/m");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    first
        .send(&[head.as_bytes(), body.as_bytes()].concat())
        .await;
    first.until(COMPLETION).await;
    gateway.record().await;
    assert_eq!(ask(gateway.address, &body).await.status, 200);
    assert_eq!((provider.connections(), provider.resumed()), (2, 1));
}

#[tokio::test]
async fn each_connection_of_a_burst_takes_up_an_earlier_session() {
    const COUNT: usize = 40;
    let together = |count| Answer::Together(Arc::new(Barrier::new(count)));
    let provider = TlsProvider::start(together(COUNT));
    let gateway = in_front_of(&provider, &[("SERVER__WORKERS", "1")]);
    ask_at_once(gateway.address, COUNT).await;
    let before = provider.resumed();
    provider.answer(together(2 * COUNT));
    ask_at_once(gateway.address, 2 * COUNT).await;
    let connections = provider.connections();
    assert_eq!(
        (connections, provider.resumed() - before),
        (2 * COUNT, COUNT)
    );
}

/// The client's answer says that it is TLS that failed, and no host.
fn tells_tls_and_no_host(answer: &Answered) {
    assert_eq!(answer.status, 502);
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "provider_unreachable");
    assert_eq!(
        error["message"],
        "the provider can't be reached: TLS could not be agreed upon"
    );
}

#[tokio::test]
async fn only_the_named_certificates_are_trusted() {
    let (provider, other) = (TlsProvider::start(AT_ONCE), TlsProvider::start(AT_ONCE));
    let own = in_front_of(&provider, &[]);
    assert_eq!(ask(own.address, &chat("openai/m")).await.status, 200);

    let others_file = other.ca_file.to_str().unwrap();
    let wrong = in_front_of(&provider, &[("PROVIDERS__OPENAI__CA_FILE", others_file)]);
    tells_tls_and_no_host(&ask(wrong.address, &chat("openai/m")).await);

    let base_url = format!("https://localhost:{}/v1", provider.address.port());
    let bundled = Gateway::with(&[
        ("PROVIDERS__OPENAI__BASE_URL", &base_url),
        ("PROVIDERS__OPENAI__KEYS", r#"[{value="sk-test-a"}]"#),
        ("PROVIDERS__OPENAI__RETRIES__MAX", "0"),
    ]);
    tells_tls_and_no_host(&ask(bundled.address, &chat("openai/m")).await);
    assert_eq!((provider.connections(), other.connections()), (1, 0));
}

#[tokio::test]
async fn a_connection_that_the_provider_closed_meanwhile_costs_no_client_an_error() {
    const COUNT: usize = 200;
    let script = || [json(200, COMPLETION), vec![Step::Close]].concat();
    let provider = Provider::start((0..COUNT).map(|_| script()).collect()).await;
    let settings = [("SERVER__WORKERS", "1")];
    let mut gateway = Gateway::start(&provider, &settings);
    for _ in 0..COUNT {
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, COMPLETION));
    }
    // Each chat was taken once, whichever way the race between the close and the next request went.
    assert_eq!(provider.seen().len(), COUNT);
    for record in records(&mut gateway, COUNT).await {
        assert_eq!(record.outcome, Outcome::Completed);
        assert!((1..=2).contains(&record.attempts), "{record:?}");
    }
}

#[tokio::test]
async fn an_http2_connection_that_says_goodbye_costs_no_client_an_error() {
    const COUNT: usize = 100;
    let provider = TlsProvider::start(Answer::Last);
    let settings = [
        ("SERVER__WORKERS", "1"),
        ("PROVIDERS__OPENAI__HTTP2__CONNECTIONS", "1"),
        ("PROVIDERS__OPENAI__RETRIES__MAX", "2"),
    ];
    let mut gateway = in_front_of(&provider, &settings);
    for _ in 0..COUNT {
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, COMPLETION));
    }
    for record in records(&mut gateway, COUNT).await {
        assert_eq!(record.outcome, Outcome::Completed);
        assert!((1..=2).contains(&record.attempts), "{record:?}");
    }
    assert!(
        provider.connections() > COUNT / 2,
        "{}",
        provider.connections()
    );
}

/// Twenty requests at once, to a provider that takes connections and says nothing: how many it took until all had
/// failed.
async fn dials_until_twenty_have_failed(http2: &str) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://{}/v1", listener.local_addr().unwrap());
    let silent = tokio::spawn(async move {
        let mut held = vec![];
        while let Ok(Ok((stream, _))) =
            tokio::time::timeout(Duration::from_secs(2), listener.accept()).await
        {
            held.push(stream);
        }
        held.len()
    });
    let gateway = Gateway::with(&[
        ("SERVER__WORKERS", "1"),
        ("PROVIDERS__OPENAI__BASE_URL", &base_url),
        ("PROVIDERS__OPENAI__KEYS", r#"[{value="sk-test-a"}]"#),
        ("PROVIDERS__OPENAI__RETRIES__MAX", "0"),
        ("PROVIDERS__OPENAI__CONNECTS_MAX", "3"),
        ("PROVIDERS__OPENAI__TIMEOUTS__CONNECT", "1s"),
        ("PROVIDERS__OPENAI__HTTP2__CONNECTIONS", http2),
    ]);
    let mut told_why = 0;
    for answer in ask_at_once(gateway.address, 20).await {
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["code"]),
            (502, &"provider_unreachable".into())
        );
        let message = error["message"].as_str().unwrap();
        told_why += usize::from(message.ends_with("connecting took too long"));
    }
    // The client library keeps the reason from those that waited for another's HTTP/2 connection.
    assert_eq!(told_why, if http2 == "0" { 20 } else { 1 });
    silent.await.unwrap()
}

#[tokio::test]
async fn a_silent_provider_is_not_dialled_once_for_each_that_waits() {
    assert_eq!(dials_until_twenty_have_failed("0").await, 3);
    assert_eq!(dials_until_twenty_have_failed("1").await, 1);
}

#[tokio::test]
async fn a_request_that_was_taken_and_not_answered_is_another_attempt() {
    let script = vec![
        json(200, COMPLETION),
        vec![Step::Close],
        json(200, COMPLETION),
    ];
    let provider = Provider::start(script).await;
    let mut gateway = Gateway::start(&provider, &[("SERVER__WORKERS", "1")]);
    for attempts in [1, 2] {
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, COMPLETION));
        let record = gateway.record().await;
        assert_eq!(
            (record.outcome, record.attempts),
            (Outcome::Completed, attempts)
        );
    }
    assert_eq!(provider.seen().len(), 3);
}

#[tokio::test]
async fn without_retries_a_request_that_was_taken_is_not_sent_again() {
    let script = vec![
        json(200, COMPLETION),
        vec![Step::Close],
        json(200, COMPLETION),
    ];
    let provider = Provider::start(script).await;
    let settings = [
        ("SERVER__WORKERS", "1"),
        ("PROVIDERS__OPENAI__RETRIES__MAX", "0"),
    ];
    let gateway = Gateway::start(&provider, &settings);
    ask(gateway.address, &chat("openai/m")).await;
    let answer = ask(gateway.address, &chat("openai/m")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.json()["error"]["code"], "provider_broken");
    assert_eq!(provider.seen().len(), 2);
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_told_as_that() {
    let gateway = Gateway::with(&[
        (
            "PROVIDERS__OPENAI__BASE_URL",
            "http://no-such-host.invalid/v1",
        ),
        ("PROVIDERS__OPENAI__KEYS", r#"[{value="sk-test-a"}]"#),
        ("PROVIDERS__OPENAI__RETRIES__MAX", "0"),
    ]);
    let answer = ask(gateway.address, &chat("openai/m")).await;
    assert_eq!(answer.status, 502);
    let message = &answer.json()["error"]["message"];
    assert_eq!(
        message,
        "the provider can't be reached: its name does not resolve"
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_key_goes_nowhere_else() {
    let other = Provider::start(vec![json(200, COMPLETION)]).await;
    let location = format!("location: http://{}/v1/chat/completions\r\n", other.address);
    for status in [301, 302, 303, 307, 308] {
        let provider = Provider::start(vec![json_with(status, &location, "")]).await;
        let gateway = Gateway::start(&provider, &[("PROVIDERS__OPENAI__RETRIES__MAX", "0")]);
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!(answer.status, 502, "{status}");
        assert!(!answer.body.contains("127.0.0.1") && answer.header("location").is_none());
        assert_eq!(provider.seen().len(), 1);
    }
    assert_eq!(other.seen().len(), 0);
}

#[tokio::test]
async fn a_provider_is_reached_through_its_proxy() {
    let provider = TlsProvider::start(AT_ONCE);
    let tunnel = Tunnel::start(provider.address).await;
    let (base_url, proxy) = (
        format!("https://{FAR_HOST}/v1"),
        format!("http://{}", tunnel.address),
    );
    for http2 in ["0", "1"] {
        let settings = [
            ("PROVIDERS__OPENAI__BASE_URL", base_url.as_str()),
            ("PROVIDERS__OPENAI__PROXY", proxy.as_str()),
            ("PROVIDERS__OPENAI__HTTP2__CONNECTIONS", http2),
        ];
        let gateway = in_front_of(&provider, &settings);
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, COMPLETION),
            "{http2}"
        );
    }
    let expected = format!("CONNECT {FAR_HOST}:443 HTTP/1.1");
    assert_eq!(tunnel.seen(), [expected.clone(), expected]);
}

#[tokio::test]
async fn the_environments_proxy_is_used_but_never_for_loopback() {
    let (far, near) = (TlsProvider::start(AT_ONCE), TlsProvider::start(AT_ONCE));
    let tunnel = Tunnel::start(far.address).await;
    let proxy = format!("http://{}", tunnel.address);
    let far_url = format!("https://{FAR_HOST}/v1");
    let near_url = format!("https://localhost:{}/v1", near.address.port());
    let (_gateway, address) = Own::start(&[
        ("HTTPS_PROXY", &proxy),
        ("HTTP_PROXY", &proxy),
        ("BIFROST_PROVIDERS__FAR__BASE_URL", &far_url),
        (
            "BIFROST_PROVIDERS__FAR__CA_FILE",
            far.ca_file.to_str().unwrap(),
        ),
        ("BIFROST_PROVIDERS__FAR__KEYLESS", "true"),
        ("BIFROST_PROVIDERS__NEAR__BASE_URL", &near_url),
        (
            "BIFROST_PROVIDERS__NEAR__CA_FILE",
            near.ca_file.to_str().unwrap(),
        ),
    ])
    .await;
    for model in ["far/m", "near/m"] {
        let answer = ask(address, &chat(model)).await;
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, COMPLETION),
            "{model}"
        );
    }
    assert_eq!(tunnel.seen(), [format!("CONNECT {FAR_HOST}:443 HTTP/1.1")]);
    assert_eq!((far.connections(), near.connections()), (1, 1));
}

/// A gateway that is a process of its own, for it has an environment of its own.
struct Own(Child);

impl Own {
    async fn start(variables: &[(&str, &str)]) -> (Self, SocketAddr) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bifrost-gateway"))
            .env_clear()
            .envs([
                ("BIFROST_SERVER__LISTEN", "127.0.0.1:0"),
                ("BIFROST_TELEMETRY__ENABLED", "false"),
                ("BIFROST_LOG__FORMAT", "json"),
            ])
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let own = Self(child);
        let address = tokio::task::spawn_blocking(move || {
            let mut lines = log.lines().map(Result::unwrap);
            let line = lines.find(|line| line.contains("serving")).unwrap();
            // What it says later must find a reader.
            std::thread::spawn(move || lines.for_each(drop));
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            line["address"].as_str().unwrap().parse().unwrap()
        });
        (own, address.await.unwrap())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
