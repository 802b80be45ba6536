//! Which provider serves a name, what the list says, and what is at no path.

use crate::client::{Client, ask, chat, get};
use crate::gateway::Gateway;
use crate::provider::{COMPLETION, Provider, json};

#[tokio::test]
async fn a_name_is_cut_behind_a_provider_and_nowhere_else() {
    let (one, two) = (
        Provider::always(json(200, COMPLETION)).await,
        Provider::always(json(200, COMPLETION)).await,
    );
    let listed = [("PROVIDERS__SECOND__MODELS", r#"["only-here","x/y:z"]"#)];
    let gateway = Gateway::start_pair(&one, &two, &listed);
    let check = async |asked: &str, expected: Result<(&Provider, &str), u16>| {
        let (status, body) = match expected {
            Ok((_, model)) => (200, chat(model)),
            Err(status) => (status, String::new()),
        };
        let answer = ask(gateway.address, &chat(asked)).await;
        assert_eq!(answer.status, status, "{asked}: {}", answer.body);
        match expected {
            Ok((provider, _)) => assert_eq!(provider.seen().last().unwrap().body, body),
            Err(_) => assert_eq!(answer.json()["error"]["param"], "model", "{asked}"),
        }
    };
    check("openai/gpt-4o", Ok((&one, "gpt-4o"))).await;
    check(
        "openai/meta-llama/llama-3:free",
        Ok((&one, "meta-llama/llama-3:free")),
    )
    .await;
    check("openai/openai/gpt-4o", Ok((&one, "openai/gpt-4o"))).await;
    check(
        "meta-llama/llama-3:free",
        Ok((&one, "meta-llama/llama-3:free")),
    )
    .await;
    check("gpt-4o", Ok((&one, "gpt-4o"))).await;
    check("OpenAI/gpt-4o", Ok((&one, "OpenAI/gpt-4o"))).await;
    check("ft:gpt-4o:org::id", Ok((&one, "ft:gpt-4o:org::id"))).await;
    check("only-here", Ok((&two, "only-here"))).await;
    check("second/only-here", Ok((&two, "only-here"))).await;
    check("x/y:z", Ok((&two, "x/y:z"))).await;
    check("second/x/y:z", Ok((&two, "x/y:z"))).await;
    check("second/elsewhere", Err(404)).await;
    check("second/", Err(404)).await;
    check("openai/", Err(404)).await;
    check(&"x".repeat(257), Err(400)).await;
}

#[tokio::test]
async fn a_model_that_nobody_serves_is_404_and_one_that_two_serve_is_named_in_full() {
    let (one, two) = (Provider::start(vec![]).await, Provider::start(vec![]).await);
    let both_listed = [
        ("PROVIDERS__SECOND__MODELS", r#"["a"]"#),
        ("PROVIDERS__OPENAI__MODELS", r#"["a","b"]"#),
    ];
    let gateway = Gateway::start_pair(&one, &two, &both_listed);
    let answer = ask(gateway.address, &chat("nobody's")).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (404, Some("model_not_found"))
    );
    let answer = ask(gateway.address, &chat("a")).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (400, Some("ambiguous_model"))
    );
    assert!(answer.body.contains("`openai/a` or `second/a`"));
    assert!(one.seen().is_empty() && two.seen().is_empty());
}

#[tokio::test]
async fn the_list_of_models_is_the_settings_or_else_the_providers() {
    let listing = r#"{"object":"list","data":[{"id":"m/1:free","x":1},{"id":"m2"}]}"#;
    let (one, two) = (
        Provider::always(json(200, listing)).await,
        Provider::start(vec![]).await,
    );
    let gateway = Gateway::start_pair(&one, &two, &[("PROVIDERS__SECOND__MODELS", r#"["spare"]"#)]);
    for path in ["/v1/models", "/models"] {
        let list = get(gateway.address, path).await.json();
        let ids: Vec<_> = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(ids, ["openai/m/1:free", "openai/m2", "second/spare"]);
        assert_eq!(list["object"], "list");
    }
    assert!(one.seen()[0].head.starts_with("get /v1/models "));
    assert!(
        one.seen()[0]
            .head
            .contains("authorization: bearer sk-test-a")
    );
    let model = get(gateway.address, "/v1/models/openai/m/1:free").await;
    assert_eq!(
        (model.status, model.json()["id"].as_str()),
        (200, Some("openai/m/1:free"))
    );
    let model = get(gateway.address, "/v1/models/openai%2Fm2").await;
    assert_eq!(
        (model.status, model.json()["id"].as_str()),
        (200, Some("openai/m2"))
    );
    let missing = get(gateway.address, "/v1/models/openai/m3").await;
    assert_eq!(
        (missing.status, missing.json()["error"]["code"].as_str()),
        (404, Some("model_not_found"))
    );
    assert!(two.seen().is_empty());
}

#[tokio::test]
async fn a_provider_that_cannot_list_its_models_is_left_out() {
    let (one, two) = (
        Provider::always(json(500, "<html>")).await,
        Provider::start(vec![]).await,
    );
    let gateway = Gateway::start_pair(&one, &two, &[("PROVIDERS__SECOND__MODELS", r#"["spare"]"#)]);
    let list = get(gateway.address, "/v1/models").await;
    assert_eq!(
        (list.status, list.json()["data"].as_array().unwrap().len()),
        (200, 1)
    );
}

#[tokio::test]
async fn a_base_url_may_end_in_a_slash_and_a_client_may_repeat_v1() {
    let provider = Provider::always(json(200, COMPLETION)).await;
    let base_url = format!("http://{}/deep/v1/", provider.address);
    let gateway = Gateway::start(&provider, &[("PROVIDERS__OPENAI__BASE_URL", &base_url)]);
    for path in [
        "/chat/completions",
        "/v1/chat/completions",
        "/v1/v1/chat/completions",
    ] {
        let mut client = Client::connect(gateway.address).await;
        let body = chat("openai/m");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        client.send(head.as_bytes()).await;
        assert_eq!(client.answer().await.status, 200, "{path}");
        let head = provider.seen().pop().unwrap().head;
        assert!(
            head.starts_with("post /deep/v1/chat/completions "),
            "{head}"
        );
    }
}

#[tokio::test]
async fn what_is_at_no_path_or_by_no_such_method_is_an_error_object_too() {
    let provider = Provider::start(vec![]).await;
    let gateway = Gateway::start(&provider, &[]);
    for (path, status) in [
        ("/v1/nothing", 404),
        ("/v1/chat/completions", 405),
        ("/v1/chat/completions/", 404),
        ("/", 404),
        ("/v1/../etc", 404),
    ] {
        let answer = get(gateway.address, path).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.json()["error"]["message"].is_string(), "{path}");
        assert!(answer.header("x-request-id").is_some(), "{path}");
        assert_eq!(
            answer.header("x-request-id"),
            answer.header("request-id"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn no_address_or_key_is_ever_taken_from_a_request() {
    let (provider, other) = (
        Provider::always(json(200, COMPLETION)).await,
        Provider::start(vec![]).await,
    );
    let gateway = Gateway::start(&provider, &[]);
    let address = format!("http://{}/v1", other.address);
    let fields = format!(
        r#""api_base":"{address}","base_url":"{address}","api_key":"sk-evil","custom_llm_provider":"x","messages""#
    );
    let body = chat("openai/m").replace("\"messages\"", &fields);
    let mut client = Client::connect(gateway.address).await;
    client.send_chat(&format!("x-api-key: sk-evil\r\nx-base-url: {address}\r\nx-portkey-custom-host: {address}\r\n"), &body).await;
    assert_eq!(client.answer().await.status, 200);
    assert!(other.seen().is_empty());
    assert!(!provider.seen()[0].head.contains("sk-evil"));
    assert!(
        provider.seen()[0]
            .head
            .contains("authorization: bearer sk-test-a")
    );
}
