//! How long and how large what a client sends may be, and how many of them there are.

use std::time::{Duration, Instant};

use crate::client::{Client, ask, chat};
use crate::gateway::Gateway;
use crate::provider::{COMPLETION, Provider, json};

const PROBE: &[u8] = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test]
async fn a_head_that_takes_too_long_ends_the_connection_however_busy_it_looks() {
    let provider = Provider::start(vec![]).await;
    let gateway = Gateway::start(&provider, &[("SERVER__HEADER_TIMEOUT", "300ms")]);
    let mut client = Client::connect(gateway.address).await;
    let since = Instant::now();
    // The first request of a connection, and one that comes behind another.
    for before in [false, true] {
        let mut client = Client::connect(gateway.address).await;
        if before {
            client.send(PROBE).await;
            client.until("ok\n").await;
        }
        let begun = Instant::now();
        while client.try_send(b"G").await && begun.elapsed() < Duration::from_secs(5) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(begun.elapsed() >= Duration::from_millis(290));
        assert!(begun.elapsed() < Duration::from_secs(5), "before: {before}");
    }
    // One that says nothing at all is not kept either.
    client.send(b"").await;
    assert_eq!(client.answer().await.head, "");
    assert!(since.elapsed() < Duration::from_secs(8));
}

#[tokio::test]
async fn an_idle_connection_is_kept_longer_than_a_head_may_take() {
    let provider = Provider::start(vec![]).await;
    let settings = [
        ("SERVER__HEADER_TIMEOUT", "100ms"),
        ("SERVER__KEEP_ALIVE_TIMEOUT", "600ms"),
    ];
    let gateway = Gateway::start(&provider, &settings);
    let mut client = Client::connect(gateway.address).await;
    client.send(PROBE).await;
    client.until("ok\n").await;
    let idle = Instant::now();
    client.answer().await;
    let idle = idle.elapsed();
    assert!(idle >= Duration::from_millis(550), "{idle:?}");
    assert!(idle < Duration::from_secs(5), "{idle:?}");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let provider = Provider::start(vec![]).await;
    let gateway = Gateway::start(&provider, &[]);
    let many = (0..101)
        .flat_map(|number| ["x-".to_owned(), number.to_string(), ": y\r\n".to_owned()])
        .collect::<String>();
    let long = format!("x-long: {}\r\n", "y".repeat(70_000));
    for (headers, status) in [(many.as_str(), 431), (&long, 431), ("x y: z\r\n", 400)] {
        let mut client = Client::connect(gateway.address).await;
        let head = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        client.send(head.as_bytes()).await;
        assert_eq!(client.answer().await.status, status);
    }
    // And what SDKs and proxies send is not.
    let mut client = Client::connect(gateway.address).await;
    let usual = format!("x-long: {}\r\n", "y".repeat(30_000));
    let head =
        format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{usual}\r\n");
    client.send(head.as_bytes()).await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_is_told_to_go_on() {
    let provider = Provider::start(vec![json(200, COMPLETION)]).await;
    let gateway = Gateway::start(&provider, &[]);
    let mut client = Client::connect(gateway.address).await;
    let body = chat("openai/m");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.send(head.as_bytes()).await;
    client.until("HTTP/1.1 100 Continue\r\n\r\n").await;
    client.received.clear();
    client.send(body.as_bytes()).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (200, COMPLETION));
}

#[tokio::test]
async fn a_client_that_would_be_refused_is_not_told_to_go_on() {
    let provider = Provider::start(vec![]).await;
    let gateway = Gateway::start(&provider, &[("CLIENT_KEYS", "sk-client")]);
    let mut client = Client::connect(gateway.address).await;
    client
        .send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 9999\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status, 401);
}

#[tokio::test]
async fn one_connection_more_than_may_be_waits_for_its_place() {
    let provider = Provider::start(vec![json(200, COMPLETION)]).await;
    let gateway = Gateway::start(&provider, &[("SERVER__CONNECTIONS_MAX", "1")]);
    let mut first = Client::connect(gateway.address).await;
    first.send(PROBE).await;
    first.until("ok\n").await;
    let body = chat("openai/m");
    let mut second = std::pin::pin!(ask(gateway.address, &body));
    // The first is served all the while.
    for _ in 0..20 {
        first.received.clear();
        first.send(PROBE).await;
        tokio::select! {
            biased;
            answer = second.as_mut() => panic!("{answer:?}"),
            () = first.until("ok\n") => {}
        }
    }
    drop(first);
    assert_eq!(second.await.status, 200);
}
