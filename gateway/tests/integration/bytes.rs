//! Bodies: what passes as the client's own bytes, what is refused, and what is too much, too slow or half.

use bifrost_shared::layout::Gauge;
use bifrost_shared::record::Outcome;

use crate::client::{Client, ask, chat};
use crate::gateway::Gateway;
use crate::outcomes::until;
use crate::provider::{COMPLETION, Provider, Step, json, json_with};

/// `hello` with an OpenAI answer around it, as gzip makes it.
const GZIPPED: &[u8] = &[
    0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3, 0xab, 0xae, 5, 0, 0x43, 0xbf, 0xa6, 0xa3, 2, 0, 0, 0,
];

#[tokio::test]
async fn the_provider_gets_the_clients_bytes_but_for_the_model_and_what_is_ours() {
    let provider = Provider::always(json(200, COMPLETION)).await;
    let gateway = Gateway::start(&provider, &[]);
    let check = async |sent: &str, expected: &str| {
        let answer = ask(gateway.address, sent).await;
        assert_eq!(answer.status, 200, "{sent}: {}", answer.body);
        assert_eq!(provider.seen().last().unwrap().body, expected);
    };
    let same = async |rest: &str| {
        let body = |model: &str| format!("{{\"model\":\"{model}\",{rest}}}");
        check(&body("openai/m"), &body("m")).await;
    };
    same(
        r#""messages":[{"role":"user","content":"hi"}],"guided_json":{"a":[1]},"extra_body":null"#,
    )
    .await;
    same(r#""messages":[],"seed":9007199254740993,"big":123456789012345678901234567890,"n":1.0,"t":1e-7,"z":-0.0,"e":1E+2"#).await;
    same(r#""messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"arguments":"{\"a\": 1}"}}]}]"#).await;
    same(r#""messages":[{"content":"cut \ud83d here \uDE00","x":"\u0000\/\u00e9"}]"#).await;
    same(r#""messages":[{"a":1,"a":2}],"x":{"model":"inner","model":"again","fallbacks":[]},"y":1,"y":2"#).await;
    same("\"messages\" : [ ] ,\n\t\"x\":\r\n {}  ").await;
    same(r#""messages":["model","openai/m"],"user":"\"model\":\"openai/m\"","stop":["}","]"]"#)
        .await;
    same(r#""messages":[],"stream":null,"stream_options":null,"temperature":null"#).await;
    same(r#""messages":[],"stream":false,"stream_options":{"include_usage":true}"#).await;
    same(r#""messages":[],"日本":"語","😀":"🌍""#).await;
    check(
        r#" {"messages":[],"mod\u0065l":"open\u0061i/m\u002fn:free"} "#,
        r#" {"messages":[],"mod\u0065l":"m/n:free"} "#,
    )
    .await;
    check(
        r#"{"fallbacks" : ["openai/x"] , "messages":[],"model":"m"}"#,
        r#"{ "messages":[],"model":"m"}"#,
    )
    .await;
    check(
        r#"{"messages":[],"model":"m","f\u0061llbacks":null}"#,
        r#"{"messages":[],"model":"m"}"#,
    )
    .await;
    let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
    same(&format!("\"messages\":[{nested}]")).await;
}

#[tokio::test]
async fn a_body_that_two_readers_might_read_differently_is_refused_before_anyone_is_asked() {
    let provider = Provider::start(vec![]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let rows: [&[u8]; 18] = [
        br#"{"model":"openai/m","messages":[],"model":"openai/n"}"#,
        br#"{"model":"openai/m","messages":[],"mo\u0064el":"openai/n"}"#,
        br#"{"model":"openai/m","messages":[],"messages":[1]}"#,
        br#"{"model":"openai/m","messages":[],"stream":false,"stream":true}"#,
        br#"{"model":"openai/m","messages":[],"fallbacks":[],"fallbacks":["a/b"]}"#,
        br#"{"model":"openai/m","messages":[{"role":"user","content":"hi"#,
        br#"{"model":"openai/m","messages":[]} {}"#,
        br#"{"model":"openai/m","messages":[],}"#,
        br#"{"model":"openai/m","messages":[],"n":01}"#,
        br#"{"model":"openai/m","messages":[],"n":NaN}"#,
        br"{'model':'openai/m','messages':[]}",
        b"{\"model\":\"openai/m\",\"messages\":[\"\xff\xfe\"]}",
        b"{\"model\":\"openai/m\",\"messages\":[\"\xed\xa0\x80\"]}",
        b"{\"model\":\"openai/m\",\"messages\":[\"a\nb\"]}",
        br#"["openai/m",[]]"#,
        br#"{"model":["openai/m"],"messages":[]}"#,
        br#"{"model":"openai/m","messages":{}}"#,
        b"",
    ];
    for body in rows {
        let mut client = Client::connect(gateway.address).await;
        client.send_chat("", body).await;
        let answer = client.answer().await;
        let body = String::from_utf8_lossy(body);
        assert_eq!((answer.status, answer.whole), (400, true), "{body}");
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "invalid_request_error", "{body}");
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{body}"
        );
        assert_eq!(gateway.record().await.outcome, Outcome::Rejected, "{body}");
    }
    assert!(provider.seen().is_empty());
}

#[tokio::test]
async fn a_body_nested_beyond_reason_is_refused_and_not_a_crash() {
    let provider = Provider::always(json(200, COMPLETION)).await;
    let gateway = Gateway::start(&provider, &[]);
    let deep = format!(
        "{{\"model\":\"openai/m\",\"messages\":[{}",
        "[".repeat(1 << 20)
    );
    assert_eq!(ask(gateway.address, &deep).await.status, 400);
    assert_eq!(ask(gateway.address, &chat("openai/m")).await.status, 200);
}

#[tokio::test]
async fn the_client_gets_the_providers_bytes() {
    let provider = Provider::start(vec![]).await;
    let gateway = Gateway::start(&provider, &[]);
    let completion = COMPLETION.strip_suffix('}').unwrap();
    let rows = [
        COMPLETION.to_owned(),
        format!("\n\n \t{COMPLETION}\r\n"),
        format!(
            "{completion},\"x_vendor\":{{\"n\":1.10,\"big\":123456789012345678901234567890}}}}"
        ),
        format!("{completion},\"a\":1,\"a\":2,\"s\":\"\\ud83d\",\"error\":null}}"),
        COMPLETION.replace(
            "\"hi\"",
            "\"hi\",\"reasoning_content\":\"hm\",\"refusal\":null",
        ),
        COMPLETION.replace(":7", ":7.5").replace(":9", ":\"many\""),
        format!("{completion},\"pad\":\"{}\"}}", "x".repeat(3 << 20)),
    ];
    for row in rows {
        provider.then(json_with(
            200,
            "x-ratelimit-remaining-requests: 9\r\nset-cookie: a=b\r\n",
            &row,
        ));
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!((answer.status, answer.whole), (200, true));
        assert!(answer.body == row, "{:.200}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("x-ratelimit-remaining-requests"), Some("9"));
        assert_eq!(answer.header("set-cookie"), None);
    }
}

#[tokio::test]
async fn a_compressed_answer_keeps_its_encoding_and_is_not_looked_into() {
    let provider = Provider::start(vec![]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    for (status, outcome) in [(200, Outcome::Completed), (400, Outcome::Rejected)] {
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
            GZIPPED.len()
        );
        provider.then(vec![Step::Send([head.as_bytes(), GZIPPED].concat())]);
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!(
            (answer.status, answer.header("content-encoding")),
            (status, Some("gzip"))
        );
        assert_eq!(answer.bytes, GZIPPED);
        assert_eq!(gateway.record().await.outcome, outcome);
    }
    // "As it is" is no compression.
    provider.then(json_with(
        200,
        "content-encoding: identity\r\n",
        r#"{"error":{"message":"no","code":400}}"#,
    ));
    provider.then(json_with(
        400,
        "content-encoding: identity\r\n",
        "<html>no</html>",
    ));
    for status in [400, 400] {
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!(
            (answer.status, answer.header("content-encoding")),
            (status, None)
        );
        assert!(answer.json()["error"]["message"].is_string());
    }
}

#[tokio::test]
async fn a_compressed_request_is_refused_by_the_name_of_its_encoding() {
    let provider = Provider::always(json(200, COMPLETION)).await;
    let gateway = Gateway::start(&provider, &[]);
    for (encoding, status) in [
        ("gzip", 415),
        ("zstd", 415),
        ("br", 415),
        ("gzip, br", 415),
        ("identity", 200),
    ] {
        let mut client = Client::connect(gateway.address).await;
        client
            .send_chat(
                &format!("content-encoding: {encoding}\r\n"),
                chat("openai/m"),
            )
            .await;
        let answer = client.answer().await;
        assert_eq!(answer.status, status, "{encoding}");
        if status == 415 {
            assert!(
                answer.json()["error"]["message"]
                    .as_str()
                    .unwrap()
                    .contains(encoding)
            );
        }
    }
}

/// A chat with a prompt of so many bytes.
fn large(bytes: usize) -> String {
    chat("openai/m").replace("\"hi\"", &format!("\"{}\"", "x".repeat(bytes)))
}

/// A body as chunks of a megabyte, with its head.
fn chunked(body: &str) -> Vec<u8> {
    let mut sent = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for piece in body.as_bytes().chunks(1 << 20) {
        sent.extend([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    }
    sent.extend(b"0\r\n\r\n");
    sent
}

#[tokio::test]
async fn a_body_of_20_mib_passes_whatever_frames_it() {
    let provider = Provider::always(json(200, COMPLETION)).await;
    let gateway = Gateway::start(&provider, &[]);
    let body = large(20 << 20);
    assert_eq!(ask(gateway.address, &body).await.status, 200);
    let mut client = Client::connect(gateway.address).await;
    client.send(&chunked(&body)).await;
    assert_eq!(client.answer().await.status, 200);
    for seen in provider.seen() {
        assert!(seen.bytes == body.replace("openai/m", "m").as_bytes());
    }
    gateway.gauge(Gauge::HeldBytes, 0).await;
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_413_whatever_frames_it() {
    let provider = Provider::start(vec![]).await;
    let settings = [("CLIENT__MAX_REQUEST_BODY_SIZE_MB", "2")];
    let mut gateway = Gateway::start(&provider, &settings);
    // A client that sends all of it before it reads must still find out why it was refused.
    for megabytes in [3, 12] {
        let body = large(megabytes << 20);
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        for sent in [[head.as_bytes(), body.as_bytes()].concat(), chunked(&body)] {
            let mut client = Client::connect(gateway.address).await;
            client.send_in_vain(&sent).await;
            client.until("request_too_large").await;
            assert!(client.received.starts_with(b"HTTP/1.1 413 "));
            let record = gateway.record().await;
            assert_eq!((record.outcome, record.status), (Outcome::Rejected, 413));
        }
    }
    assert!(provider.seen().is_empty());
    gateway.gauge(Gauge::HeldBytes, 0).await;
}

#[tokio::test]
async fn a_body_that_breaks_off_or_stalls_asks_nobody_and_leaves_a_record() {
    let provider = Provider::start(vec![]).await;
    let mut gateway = Gateway::start(&provider, &[("SERVER__BODY_TIMEOUT", "150ms")]);
    let half = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{\"model\":";
    let mut client = Client::connect(gateway.address).await;
    client.send(half).await;
    client.until("request_timeout").await;
    assert!(client.received.starts_with(b"HTTP/1.1 408 "));
    let record = gateway.record().await;
    assert_eq!((record.outcome, record.status), (Outcome::Rejected, 408));

    let mut client = Client::connect(gateway.address).await;
    client.send(half).await;
    gateway.gauge(Gauge::HeldBytes, 2_000).await;
    drop(client);
    let outcome = gateway.record().await.outcome;
    assert!(
        [Outcome::Rejected, Outcome::Cancelled].contains(&outcome),
        "{outcome:?}"
    );
    assert!(provider.seen().is_empty());
    gateway.gauge(Gauge::HeldBytes, 0).await;
}

#[tokio::test]
async fn half_an_answer_is_a_failed_attempt() {
    let provider = Provider::start(vec![]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let rows = [
        format!("{head}content-length: 900\r\n\r\n{COMPLETION}"),
        format!("{head}transfer-encoding: chunked\r\n\r\n5\r\n{{\"cho"),
        format!("{head}\r\n{{\"choices\":["),
        "HTTP/1.1 200".to_owned(),
        "nothing of HTTP\r\n\r\n".to_owned(),
    ];
    for row in rows {
        provider.then(vec![Step::Send(row.clone().into_bytes()), Step::Close]);
        provider.then(json(200, COMPLETION));
        let answer = ask(gateway.address, &chat("openai/m")).await;
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, COMPLETION),
            "{row}"
        );
        assert_eq!(gateway.record().await.attempts, 2, "{row}");
    }
    until(|| provider.seen().len() == 10).await;
}
