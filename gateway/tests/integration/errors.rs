//! What a client is told when something goes wrong: status, shape, headers, and nothing that is none of its business.

use bifrost_shared::record::Outcome;

use crate::client::{Answer, Client, ask, chat, get, stream};
use crate::gateway::Gateway;
use crate::provider::{COMPLETION, Provider, Step, json, json_with};

/// One gateway that makes one attempt, to try one answer after another.
struct Bench {
    provider: Provider,
    gateway: Gateway,
}

impl Bench {
    async fn new() -> Self {
        let provider = Provider::start(vec![]).await;
        // A key that never rests, so that one row is not the next one's.
        let settings = [
            ("PROVIDERS__OPENAI__RETRIES__MAX", "0"),
            ("PROVIDERS__OPENAI__REST__RATE_LIMITED", "0ms"),
            ("PROVIDERS__OPENAI__REST__FORBIDDEN", "0ms"),
            ("PROVIDERS__OPENAI__REST__PROBE", "1ns"),
            ("PROVIDERS__OPENAI__REST__MAX", "0ms"),
        ];
        let gateway = Gateway::start(&provider, &settings);
        Self { provider, gateway }
    }

    async fn answers(&mut self, script: Vec<Step>) -> (Answer, Outcome) {
        self.provider.then(script);
        let answer = ask(self.gateway.address, &chat("openai/m")).await;
        (answer, self.gateway.record().await.outcome)
    }
}

/// The error object, which has to be one.
fn error_of(answer: &Answer) -> serde_json::Value {
    assert!(answer.whole, "{answer:?}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/json"),
        "{answer:?}"
    );
    let error = answer.json()["error"].clone();
    for field in ["message", "type"] {
        let text = error[field].as_str();
        assert!(
            text.is_some_and(|text| !text.is_empty()),
            "{field}: {answer:?}"
        );
    }
    let ids = ["x-request-id", "request-id"].map(|name| answer.header(name).unwrap().to_owned());
    assert_eq!(ids[0], ids[1]);
    error
}

#[tokio::test]
async fn each_status_of_the_provider_becomes_one_of_ours_in_the_clients_shape() {
    let mut bench = Bench::new().await;
    let (failed, rejected) = (Outcome::Failed, Outcome::Rejected);
    #[rustfmt::skip] // a table, and to be read as one
    let rows = [
        (400, 400, rejected, None),          (401, 502, failed, Some("false")),
        (402, 502, failed, Some("false")),   (403, 403, failed, Some("false")),
        (404, 404, rejected, None),          (405, 405, rejected, None),
        (408, 408, failed, Some("false")),   (409, 409, failed, Some("false")),
        (413, 413, rejected, None),          (422, 422, rejected, None),
        (424, 424, failed, Some("false")),   (429, 429, failed, Some("false")),
        (451, 451, rejected, None),          (498, 498, failed, Some("false")),
        (500, 500, failed, Some("false")),   (501, 501, failed, Some("false")),
        (502, 502, failed, Some("false")),   (503, 503, failed, Some("false")),
        (504, 504, failed, Some("false")),   (520, 520, failed, Some("false")),
        (529, 529, failed, Some("false")),   (301, 502, failed, Some("false")),
        (302, 502, failed, Some("false")),   (307, 502, failed, Some("false")),
        (308, 502, failed, Some("false")),   (999, 502, failed, Some("false")),
    ];
    for (theirs, ours, outcome, should_retry) in rows {
        for body in [
            r#"{"error":{"message":"so it is","type":"t"}}"#,
            "",
            "<html>secret-host</html>",
            "null",
            "[]",
        ] {
            let script = json_with(theirs, "location: http://elsewhere.invalid/\r\n", body);
            let (answer, found) = bench.answers(script).await;
            assert_eq!((answer.status, found), (ours, outcome), "{theirs} {body}");
            assert_eq!(answer.header("x-should-retry"), should_retry, "{theirs}");
            error_of(&answer);
            assert!(
                !answer.body.contains("html") && !answer.head.contains("elsewhere"),
                "{answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_providers_words_reach_the_client_whatever_form_they_have() {
    let mut bench = Bench::new().await;
    let own = r#"{ "error":{"message":"bad","type":"t","param":"p","code":"c","x":1.0},"y":12345678901234567890123}"#;
    let (answer, _) = bench.answers(json(400, own)).await;
    assert_eq!(answer.body, own, "in our form, byte for byte");
    let rows = [
        (r#"{"error":{"message":"no type","code":400}}"#, "no type"),
        (
            r#"{"error":{"message":"with null","type":null,"code":"c"}}"#,
            "with null",
        ),
        (r#"{"error":"as text"}"#, "as text"),
        (r#"{"message":"flat","request_id":"r"}"#, "flat"),
        (
            r#"{"object":"error","message":"of vLLM","type":"BadRequestError","code":400}"#,
            "of vLLM",
        ),
        (r#"{"detail":"of FastAPI"}"#, "of FastAPI"),
        (
            r#"[{"error":{"code":400,"message":"of Gemini","status":"INVALID_ARGUMENT"}}]"#,
            "of Gemini",
        ),
        (r#"{"error":{"message":"   "}}"#, "Bad Request"),
        (r#"{"error":{}}"#, "Bad Request"),
        ("plain text", "Bad Request"),
    ];
    for (body, message) in rows {
        let (answer, outcome) = bench.answers(json(400, body)).await;
        assert_eq!((answer.status, outcome), (400, Outcome::Rejected), "{body}");
        assert_eq!(error_of(&answer)["message"], message, "{body}");
    }
}

#[tokio::test]
async fn a_success_that_is_none_becomes_an_error() {
    let mut bench = Bench::new().await;
    let rows = [
        (
            r#"{"error":{"message":"busy","type":"t","code":"x"}}"#,
            502,
            "busy",
        ),
        (
            r#"{"error":{"message":"slow down","code":429}}"#,
            429,
            "slow down",
        ),
        (
            r#"{"error":{"message":"wrong","code":"400"}}"#,
            400,
            "wrong",
        ),
        (r#"{"error":{"message":"odd","code":200}}"#, 502, "odd"),
        (r#"{"error":"text"}"#, 502, "text"),
        (r#"{"error":{"message":"both"},"choices":[]}"#, 502, "both"),
        (
            r#"{"object":"error","message":"flat","code":503}"#,
            503,
            "flat",
        ),
        (r#"[{"error":{"message":"listed","code":503}}]"#, 502, ""),
        ("null", 502, ""),
        ("true", 502, ""),
        ("", 502, ""),
        ("   ", 502, ""),
        ("{}", 502, ""),
        (r#"{"choices":null}"#, 502, ""),
        (r#"{"choices":["#, 502, ""),
        ("<!doctype html><p>secret-host", 502, ""),
        ("data: {}\n\n", 502, ""),
    ];
    for (body, status, message) in rows {
        let (answer, outcome) = bench.answers(json(200, body)).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        let error = error_of(&answer);
        assert!(
            error["message"].as_str().unwrap().contains(message),
            "{body}: {error}"
        );
        assert!(!answer.body.contains("secret-host"));
        let expected = if status == 400 {
            Outcome::Rejected
        } else {
            Outcome::Failed
        };
        assert_eq!(outcome, expected, "{body}");
    }
    let (answer, _) = bench.answers(json(204, "")).await;
    assert_eq!(answer.status, 502);
}

#[tokio::test]
async fn when_to_come_back_is_passed_on_in_every_form() {
    let mut bench = Bench::new().await;
    let later =
        httpdate::fmt_http_date(std::time::SystemTime::now() + std::time::Duration::from_secs(90));
    let rows: [(u16, String, Option<(u64, u64)>); 12] = [
        (429, "retry-after: 7\r\n".to_owned(), Some((7, 7))),
        (429, "retry-after: 0.2\r\n".to_owned(), Some((1, 1))),
        (429, "retry-after-ms: 2500\r\n".to_owned(), Some((3, 3))),
        (
            429,
            "Retry-After: 60\r\nretry-after-ms: 1500\r\n".to_owned(),
            Some((2, 2)),
        ),
        (503, format!("retry-after: {later}\r\n"), Some((88, 90))),
        (529, "retry-after: 12\r\n".to_owned(), Some((12, 12))),
        (
            429,
            "retry-after: 86400\r\n".to_owned(),
            Some((86_400, 86_400)),
        ),
        (
            429,
            "retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned(),
            None,
        ),
        (429, "retry-after: -1\r\n".to_owned(), None),
        (429, "retry-after: 0\r\n".to_owned(), None),
        (429, "retry-after: later\r\n".to_owned(), None),
        (429, String::new(), None),
    ];
    for (status, headers, expected) in rows {
        let (answer, _) = bench.answers(json_with(status, &headers, "{}")).await;
        assert_eq!(answer.status, status);
        let told = answer
            .header("retry-after")
            .map(|text| text.parse::<u64>().unwrap());
        let fits = match (told, expected) {
            (Some(told), Some((least, most))) => (least..=most).contains(&told),
            (told, expected) => told.is_none() && expected.is_none(),
        };
        assert!(fits, "{headers:?}: {told:?}");
    }
    let hint = r#"{"error":{"message":"m","details":[{"retryDelay":"34s"}]}}"#;
    let (answer, _) = bench.answers(json(429, hint)).await;
    assert_eq!(answer.header("retry-after"), Some("34"));
}

#[tokio::test]
async fn an_error_whose_words_do_not_come_is_told_without_them_and_soon() {
    let mut bench = Bench::new().await;
    let head = "HTTP/1.1 429 X\r\nretry-after: 3\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"err";
    for end in [Step::Stall, Step::Reset, Step::Close] {
        let begun = std::time::Instant::now();
        let (answer, _) = bench.answers(vec![Step::Send(head.into()), end]).await;
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (429, Some("3"))
        );
        assert_eq!(error_of(&answer)["message"], "Too Many Requests");
        assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    }
}

#[tokio::test]
async fn how_a_provider_cannot_be_reached_is_said_without_saying_where() {
    let taken = Provider::start(vec![]).await;
    let speaks_no_tls = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = speaks_no_tls.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        while let Ok((mut stream, _)) = speaks_no_tls.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 400 No\r\n\r\n").await;
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let rows = [
        (
            format!("http://{closed}/secret-path/v1"),
            "provider_unreachable",
            "refused",
        ),
        (
            "http://secret-host.invalid/v1".to_owned(),
            "provider_unreachable",
            "does not resolve",
        ),
        (
            format!("https://{plain}/v1"),
            "provider_unreachable",
            "can't be reached",
        ),
        (
            format!("https://{}/v1", taken.address),
            "provider_unreachable",
            "can't be reached",
        ),
    ];
    for (base_url, code, words) in rows {
        let settings = [
            ("PROVIDERS__OPENAI__BASE_URL", base_url.as_str()),
            ("PROVIDERS__OPENAI__KEYS", r#"[{value="sk-secret-key"}]"#),
            ("PROVIDERS__OPENAI__RETRIES__MAX", "0"),
            ("PROVIDERS__OPENAI__TIMEOUTS__CONNECT", "300ms"),
        ];
        let mut gateway = Gateway::with(&settings);
        for body in [chat("openai/m"), stream("openai/m")] {
            let answer = ask(gateway.address, &body).await;
            let error = error_of(&answer);
            assert_eq!(
                (answer.status, error["code"].as_str()),
                (502, Some(code)),
                "{base_url}"
            );
            assert!(
                error["message"].as_str().unwrap().contains(words),
                "{error}"
            );
            let said = format!("{}{}", answer.head, answer.body);
            let ports = [closed.port(), taken.address.port()].map(|port| port.to_string());
            for secret in ["secret", "127.0.0.1", "invalid/", &ports[0], &ports[1]] {
                assert!(!said.contains(secret), "{secret}: {said}");
            }
            assert_eq!(gateway.record().await.outcome, Outcome::Failed);
        }
    }
}

#[tokio::test]
async fn silence_is_504_and_the_provider_is_let_go() {
    let mut provider = Provider::always(vec![Step::Stall]).await;
    let settings = [("PROVIDERS__OPENAI__TIMEOUTS__FIRST_BYTE", "150ms")];
    let mut gateway = Gateway::start(&provider, &settings);
    for body in [chat("openai/m"), stream("openai/m")] {
        let answer = ask(gateway.address, &body).await;
        assert_eq!(answer.status, 504);
        assert_eq!(error_of(&answer)["code"], "provider_timeout");
        let record = gateway.record().await;
        assert_eq!((record.outcome, record.attempts), (Outcome::Failed, 1));
        provider.left().await;
    }
}

#[tokio::test]
async fn a_request_has_one_id_for_client_and_record_and_may_bring_its_own() {
    let provider = Provider::always(json(200, COMPLETION)).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let check = async |gateway: &mut Gateway, header: &str, expected: Option<&str>| {
        let mut client = Client::connect(gateway.address).await;
        client.send_chat(header, chat("openai/m")).await;
        let answer = client.answer().await;
        let id = answer.header("x-request-id").unwrap();
        assert_eq!(Some(id), answer.header("request-id"));
        assert_eq!(id, expected.unwrap_or(id), "{header}");
        let record = gateway.record().await;
        if id.len() == 16 {
            assert_eq!(id, format!("{:016x}", record.id));
        }
        id.to_owned()
    };
    let first = check(&mut gateway, "", None).await;
    assert_ne!(first, check(&mut gateway, "", None).await);
    check(
        &mut gateway,
        "x-request-id: 00000000deadbeef\r\n",
        Some("00000000deadbeef"),
    )
    .await;
    check(
        &mut gateway,
        "x-request-id: my-own.id_7\r\n",
        Some("my-own.id_7"),
    )
    .await;
    let long = "x".repeat(200);
    for odd in ["two words", "", &long, "caf\u{e9}"] {
        assert_ne!(
            check(&mut gateway, &format!("x-request-id: {odd}\r\n"), None).await,
            odd
        );
    }
    for path in ["/v1/models", "/v1/models/none", "/nowhere"] {
        assert!(
            get(gateway.address, path)
                .await
                .header("x-request-id")
                .is_some(),
            "{path}"
        );
    }
}
