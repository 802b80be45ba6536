//! Who is let in: client keys, what they reach, and what stands in for them while there are none.

use bifrost_shared::record::Outcome;

use crate::client::{Answer, Client, chat};
use crate::gateway::Gateway;
use crate::provider::{COMPLETION, Provider, json};

/// Sends a chat with these header lines in place of the usual ones.
async fn ask(gateway: &Gateway, headers: &str, body: &str) -> Answer {
    let mut client = Client::connect(gateway.address).await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    client
        .send(&[head.as_bytes(), body.as_bytes()].concat())
        .await;
    client.answer().await
}

async fn get(gateway: &Gateway, path: &str, headers: &str) -> Answer {
    let mut client = Client::connect(gateway.address).await;
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    client.send(head.as_bytes()).await;
    client.answer().await
}

#[tokio::test]
async fn without_the_right_client_key_nobody_is_asked() {
    let provider = Provider::start(vec![json(200, COMPLETION)]).await;
    let settings = [("CLIENT_KEYS", "sk-client-1,sk-client-2")];
    let mut gateway = Gateway::start(&provider, &settings);
    for headers in [
        "",
        "authorization: Bearer \r\n",
        "authorization: Bearer sk-client-3\r\n",
        "x-api-key: sk-test-a\r\n",
    ] {
        let headers = format!("content-type: application/json\r\n{headers}");
        let answer = ask(&gateway, &headers, &chat("openai/m")).await;
        assert_eq!(answer.status, 401, "{headers}");
        assert_eq!(answer.header("www-authenticate"), Some("bearer"));
        assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
        let record = gateway.record().await;
        assert_eq!((record.outcome, record.status), (Outcome::Rejected, 401));
    }
    assert_eq!(get(&gateway, "/v1/models", "").await.status, 401);
    assert_eq!(get(&gateway, "/livez", "").await.status, 200);
    assert!(provider.seen().is_empty());

    // With one, not even a body's kind matters.
    let answer = ask(
        &gateway,
        "x-api-key: sk-client-2\r\norigin: https://app\r\n",
        &chat("openai/m"),
    )
    .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!provider.seen()[0].head.contains("sk-client"));
}

#[tokio::test]
async fn a_client_key_asks_for_its_models_only_and_so_do_its_fallbacks() {
    let provider = Provider::start(vec![
        json(500, "{}"),
        json(500, "{}"),
        json(200, COMPLETION),
        json(200, COMPLETION),
    ])
    .await;
    let base_url = format!("http://{}/v1", provider.address);
    let gateway = Gateway::start(
        &provider,
        &[
            ("PROVIDERS__OPENAI__RETRIES__MAX", "0"),
            ("PROVIDERS__OPENAI__MODELS", "gpt-a,gpt-b,other"),
            ("PROVIDERS__SPARE__BASE_URL", &base_url),
            ("PROVIDERS__SPARE__KEYLESS", "true"),
            ("PROVIDERS__SPARE__MODELS", "gpt-a"),
            (
                "CLIENT_KEYS",
                r#"[{name="narrow",value="sk-narrow",models=["openai/gpt-*"]},{name="wide",value="sk-wide"}]"#,
            ),
        ],
    );
    let narrow = "x-api-key: sk-narrow\r\n";
    let answer = ask(&gateway, narrow, &chat("openai/other")).await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.json()["error"]["code"], "model_not_allowed");
    assert!(provider.seen().is_empty());

    let listed = get(&gateway, "/v1/models", narrow).await.json();
    let ids: Vec<_> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["openai/gpt-a", "openai/gpt-b"]);
    assert_eq!(
        get(&gateway, "/v1/models/openai/other", narrow)
            .await
            .status,
        404
    );

    let body = r#"{"model":"openai/gpt-a","fallbacks":["spare/gpt-a"],"messages":[{"role":"user","content":"hi"}]}"#;
    assert_eq!(ask(&gateway, narrow, body).await.status, 500);
    assert_eq!(provider.seen().len(), 1, "the fallback is out of reach");
    let wide = ask(&gateway, "x-api-key: sk-wide\r\n", body).await;
    assert_eq!((wide.status, provider.seen().len()), (200, 3));
}

#[tokio::test]
async fn client_keys_come_and_go_while_it_serves() {
    let provider = Provider::start(vec![json(200, COMPLETION); 2]).await;
    let base_url = format!("http://{}/v1", provider.address);
    let settings = |key| {
        [
            ("PROVIDERS__OPENAI__BASE_URL", base_url.as_str()),
            ("PROVIDERS__OPENAI__KEYS", "sk-test-a"),
            ("SERVER__LISTEN", "0.0.0.0:0"),
            ("CLIENT_KEYS", key),
        ]
    };
    let mut gateway = Gateway::with(&settings("ck-old"));
    gateway.address.set_ip([127, 0, 0, 1].into());
    let (old, new) = ("x-api-key: ck-old\r\n", "x-api-key: ck-new\r\n");
    assert_eq!(ask(&gateway, new, &chat("openai/m")).await.status, 401);
    assert_eq!(ask(&gateway, old, &chat("openai/m")).await.status, 200);
    gateway.reload(&settings("ck-new")).unwrap();
    assert_eq!(ask(&gateway, old, &chat("openai/m")).await.status, 401);
    assert_eq!(ask(&gateway, new, &chat("openai/m")).await.status, 200);

    // An address for this machine alone takes a restart, and until then its settings would open the door to all.
    let mut open = settings("");
    open[2].1 = "127.0.0.1:0";
    let error = gateway.reload(&open).unwrap_err().to_string();
    assert!(error.starts_with("without client keys"), "{error}");
    assert_eq!(ask(&gateway, "", &chat("openai/m")).await.status, 401);
}

#[tokio::test]
async fn without_client_keys_a_web_page_is_refused_and_told_why() {
    let provider = Provider::start(vec![json(200, COMPLETION)]).await;
    let gateway = Gateway::start(&provider, &[]);
    let json_body = "content-type: application/json\r\n";
    for (headers, says) in [
        (
            format!("host: localhost\r\n{json_body}origin: https://evil.example\r\n"),
            "BIFROST_CLIENT_KEYS",
        ),
        (format!("host: evil.example\r\n{json_body}"), "server.hosts"),
        (
            "host: localhost\r\ncontent-type: application/x-www-form-urlencoded\r\n".to_owned(),
            "content-type: application/json",
        ),
        (
            "host: localhost\r\n".to_owned(),
            "content-type: application/json",
        ),
    ] {
        let answer = ask(&gateway, &headers, &chat("openai/m")).await;
        assert_eq!(answer.status, 403, "{headers}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "browser_refused");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    let models = get(&gateway, "/v1/models", "origin: https://evil.example\r\n").await;
    assert_eq!(models.status, 403);
    assert!(provider.seen().is_empty());
    let answer = ask(
        &gateway,
        &format!("host: {}\r\n{json_body}", gateway.address),
        &chat("openai/m"),
    )
    .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}
