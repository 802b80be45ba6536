//! Nothing that the gateway writes down holds a key or a prompt: a real process, at its most talkative, on every route
//! and in every kind of failure.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::client::{Answer, Client, chat, get, stream};
use crate::outcomes::until;
use crate::provider::{
    COMPLETION, DONE, FINISH, Provider, Step, chunk, delta, json, json_with, stream_head, streamed,
};

/// In the provider's key, in the client's key, and in the prompt: none of it may be said again.
const KEY: &str = "sk-canary-4711-key";
const CLIENT_KEY: &str = "canary-4711-client";
const PROMPT: &str = "canary-4711-prompt";
const CANARY: &str = "canary-4711";

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A gateway at trace level, with its logs and its segment in `place`; its address and that of its admin listener.
async fn start(provider: SocketAddr, place: &Path) -> (Process, [SocketAddr; 2]) {
    let log = place.join("log");
    let keys = format!(r#"[{{name="first",value="{KEY}"}},{{name="second",value="{KEY}-2"}}]"#);
    let process = Command::new(env!("CARGO_BIN_EXE_bifrost-gateway"))
        .env_clear()
        .env("BIFROST_LOG__LEVEL", "trace")
        .env("BIFROST_LOG__FORMAT", "json")
        .env("BIFROST_LOG__ACCESS", "true")
        .env("BIFROST_SERVER__LISTEN", "127.0.0.1:0")
        .env("BIFROST_ADMIN__LISTEN", "127.0.0.1:0")
        .env("BIFROST_SERVER__BODY_TIMEOUT", "200ms")
        .env("BIFROST_CLIENT__MAX_REQUEST_BODY_SIZE_MB", "1")
        .env("BIFROST_TELEMETRY__SEGMENT", place.join("canary.seg"))
        .env(
            "BIFROST_PROVIDERS__OPENAI__BASE_URL",
            format!("http://{provider}/v1"),
        )
        .env("BIFROST_PROVIDERS__OPENAI__KEYS", keys)
        .env("BIFROST_PROVIDERS__OPENAI__RETRIES__BACKOFF_MAX", "2ms")
        .env("BIFROST_PROVIDERS__OPENAI__RETRIES__BACKOFF_INITIAL", "1ms")
        .env("BIFROST_PROVIDERS__OPENAI__TIMEOUTS__FIRST_BYTE", "300ms")
        .env("BIFROST_PROVIDERS__OPENAI__TIMEOUTS__IDLE", "300ms")
        .env("BIFROST_PROVIDERS__OPENAI__REST__PROBE", "1ms")
        .stdin(Stdio::null())
        .stdout(fs::File::create(place.join("out")).unwrap())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let process = Process(process);
    let serving = || {
        let log = fs::read_to_string(&log).unwrap();
        let line = log
            .lines()
            .find(|line| line.contains("\"serving\""))?
            .to_owned();
        let line: serde_json::Value = serde_json::from_str(&line).ok()?;
        let address = |name: &str| line[name].as_str()?.parse().ok();
        Some([address("address")?, address("admin")?])
    };
    until(|| serving().is_some()).await;
    (process, serving().unwrap())
}

async fn ask(address: SocketAddr, headers: &str, body: &str) -> Answer {
    let mut client = Client::connect(address).await;
    let headers =
        format!("authorization: Bearer {CLIENT_KEY}\r\nx-api-key: {CLIENT_KEY}\r\n{headers}");
    client.send_chat(&headers, body).await;
    client.answer().await
}

#[tokio::test]
async fn no_key_and_no_prompt_is_ever_written_down() {
    let provider = Provider::start(vec![]).await;
    let place = tempfile::tempdir().unwrap();
    let (process, [address, admin]) = start(provider.address, place.path()).await;
    let prompted = |body: String| body.replace("\"hi\"", &format!("\"{PROMPT}\""));
    let (plain, streaming) = (prompted(chat("openai/m")), prompted(stream("openai/m")));

    // Every kind of answer, most of which name the key as providers do.
    let named = format!(
        r#"{{"error":{{"message":"Incorrect API key provided: {KEY}","type":"t","code":"invalid_api_key"}}}}"#
    );
    let whole = [&delta("a"), FINISH, DONE].concat();
    let scripts = [
        json(200, COMPLETION),
        json(400, "{}"),
        json(401, &named),
        json_with(429, "retry-after-ms: 1\r\n", "{}"),
        json(500, "<html>"),
        json(200, "null"),
        json(200, r#"{"error":{"message":"no"}}"#),
        vec![Step::Close],
        vec![Step::Send(b"nothing of HTTP\r\n\r\n".to_vec()), Step::Close],
        vec![Step::Stall],
        streamed([whole.as_bytes()]),
        vec![stream_head(), chunk(delta("a")), Step::Close],
        vec![stream_head(), chunk(delta("a")), Step::Stall],
        vec![
            stream_head(),
            chunk("data: {\"error\":{\"message\":\"no\"}}\n\n"),
            Step::Close,
        ],
    ];
    let mut said = vec![];
    for (number, script) in scripts.into_iter().enumerate() {
        for body in [&plain, &streaming] {
            // A model each, so that no key rests.
            let body = body.replace("openai/m", &format!("openai/m{number}"));
            (0..3).for_each(|_| provider.then(script.clone()));
            said.push(ask(address, "", &body).await);
        }
    }
    // Every way in which a request can be wrong, with the prompt in it.
    let (first, _) = plain.split_once(PROMPT).unwrap();
    let wrong = [
        format!("{first}{PROMPT}"),
        plain.replace("\"model\"", "\"x\""),
        plain.replace("\"messages\"", "\"model\":\"n\",\"messages\""),
        plain.replace("openai/m", "openai/"),
        plain.replace(['[', ']'], "\""),
        format!("{PROMPT} and no JSON"),
        plain.replace(PROMPT, &PROMPT.repeat(100_000)),
    ];
    for body in wrong {
        let mut client = Client::connect(address).await;
        client.send_chat("", &body).await;
        said.push(client.answer().await);
    }
    said.push(ask(address, "content-encoding: gzip\r\n", &plain).await);
    let mut slow = Client::connect(address).await;
    slow.send(format!("POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 9999\r\n\r\n{plain}").as_bytes()).await;
    said.push(slow.answer().await);
    for path in [
        "/v1/models",
        "/v1/models/openai/m",
        "/livez",
        "/readyz",
        "/nowhere",
        "/v1/chat/completions",
    ] {
        said.push(get(address, path).await);
    }
    for path in ["/stats", "/metrics", "/livez", "/readyz", "/nowhere"] {
        said.push(get(admin, path).await);
    }
    assert!(said.iter().all(|answer| answer.status != 0), "{said:?}");
    // A drain writes a last word.
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&process.0),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    let log = || fs::read_to_string(place.path().join("log")).unwrap();
    let segment = fs::read(place.path().join("canary.seg")).unwrap();
    until(|| log().contains("\"stopped\"")).await;

    for answer in said {
        assert!(
            !answer.head.contains(CANARY) && !answer.body.contains(CANARY),
            "{answer:?}"
        );
    }
    for word in ["DEBUG", "WARN", "rejected", "failed"] {
        assert!(log().contains(word), "it was not talkative: no {word}");
    }
    let written = [log(), fs::read_to_string(place.path().join("out")).unwrap()].concat();
    let line = written.lines().find(|line| line.contains(CANARY));
    assert_eq!(line, None);
    assert!(
        !segment
            .windows(CANARY.len())
            .any(|bytes| bytes == CANARY.as_bytes())
    );
    // The names of keys are there, so the right bytes were looked at.
    assert!(segment.windows(6).any(|bytes| bytes == b"second"));
}
