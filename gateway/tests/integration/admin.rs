//! The listener for those who run the gateway, and that it is no open door.

use bifrost_shared::layout::Counter;
use bifrost_shared::record::Outcome;
use bifrost_shared::stage::Series;
use bifrost_shared::wire::Snapshot;

use crate::client::{Answer, Client, ask, chat};
use crate::gateway::Gateway;
use crate::provider::{COMPLETION, Provider, json};

pub async fn send(
    address: std::net::SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
) -> Answer {
    let mut client = Client::connect(address).await;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n{headers}\r\n"
    );
    client.send(head.as_bytes()).await;
    client.answer().await
}

#[tokio::test]
async fn the_figures_are_those_of_the_gateway() {
    let provider = Provider::start(vec![json(200, COMPLETION)]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    assert_eq!(ask(gateway.address, &chat("openai/m")).await.status, 200);
    gateway.record().await;
    let answer = send(gateway.admin, "GET", "/stats", "").await;
    assert_eq!(answer.status, 200);
    let stats = answer.json();
    assert_eq!(stats["counters"]["started"], 1);
    assert_eq!(stats["counters"]["completed"], 1);
    assert_eq!(stats["counters"]["failed"], 0);
    assert_eq!(stats["gauges"]["in_flight"], 0);
    assert!(stats["gauges"]["rss"].as_u64().unwrap() > 1 << 20);
    assert_eq!(stats["ready"], true);
    for (path, body) in [("/livez", "ok\n"), ("/readyz", "ready\n")] {
        let answer = send(gateway.admin, "GET", path, "").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, body));
    }
    for path in ["/stats", "/metrics"] {
        let origin = "origin: https://evil.example\r\n";
        let page = send(gateway.admin, "GET", path, origin).await;
        assert_eq!(page.status, 403, "no web page reads them");
    }
}

#[tokio::test]
async fn a_monitor_elsewhere_gets_the_segment_and_each_second_and_request_once() {
    let provider = Provider::start(vec![json(200, COMPLETION)]).await;
    let mut gateway = Gateway::start(&provider, &[]);
    assert_eq!(ask(gateway.address, &chat("openai/m")).await.status, 200);
    gateway.record().await;
    let snapshot = async |asked: &str| {
        let path = format!("/snapshot?{asked}");
        let answer = send(gateway.admin, "GET", &path, "").await;
        assert_eq!(answer.status, 200);
        assert!(!answer.body.contains("sk-test-a"), "{}", answer.body);
        serde_json::from_str::<Snapshot>(&answer.body).unwrap()
    };
    let told = loop {
        let told = snapshot("").await;
        let counted = told.figures.as_ref().unwrap().counter(Counter::Records);
        if counted == 1 && !told.rows.is_empty() {
            break told;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(told.header.pid, u64::from(std::process::id()));
    let figures = told.figures.as_ref().unwrap();
    assert_eq!(figures.counter(Counter::Completed), 1);
    assert_eq!(figures.histogram(Series::Total).count, 1);
    assert_eq!(figures.slots[0].counts[0], 1, "the provider was asked once");
    let last = told.rows.last().unwrap().ended_at;
    let requests = &told.requests;
    assert_eq!(
        (requests.told.len(), requests.next, requests.left_out),
        (1, 1, 0)
    );
    assert_eq!(requests.told[0].outcome, Outcome::Completed);
    let later = snapshot(&format!("since={last}&from={}", requests.next)).await;
    assert!(later.rows.iter().all(|row| row.ended_at > last));
    assert_eq!((later.requests.told.len(), later.requests.next), (0, 1));
    let again = snapshot(&format!("since={last}&from=0")).await;
    assert_eq!(again.requests.told, requests.told);
}

#[tokio::test]
async fn no_admin_path_answers_without_the_right_token() {
    let provider = Provider::start(vec![]).await;
    let settings = [
        ("ADMIN__LISTEN", "0.0.0.0:0"),
        ("ADMIN_KEY", "ak-1"),
        ("CLIENT_KEYS", "ck-1"),
    ];
    let gateway = Gateway::start(&provider, &settings);
    let admin = std::net::SocketAddr::from(([127, 0, 0, 1], gateway.admin.port()));
    let paths = [
        "/",
        "/stats",
        "/metrics",
        "/config",
        "/debug",
        "/debug/pprof",
        "/admin",
        "/snapshot",
        "/reload",
    ];
    for path in paths {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            for token in [
                "",
                "authorization: Bearer \r\n",
                "authorization: Bearer wrong\r\n",
                "x-api-key: \r\n",
                "authorization: Bearer ck-1\r\n",
                "authorization: Bearer sk-test-a\r\n",
            ] {
                let answer = send(admin, method, path, token).await;
                assert_eq!(answer.status, 401, "{method} {path} {token}");
                for secret in ["ak-1", "ck-1", "sk-test-a"] {
                    assert!(!answer.body.contains(secret), "{}", answer.body);
                }
            }
        }
        // Nor does the clients' door lead there, with or without a client's key.
        for token in [
            "",
            "authorization: Bearer ck-1\r\n",
            "authorization: Bearer ak-1\r\n",
        ] {
            assert_eq!(
                send(gateway.address, "GET", path, token).await.status,
                404,
                "{path}"
            );
        }
    }
    let right = "authorization: Bearer ak-1\r\n";
    for path in ["/stats", "/metrics"] {
        let answer = send(admin, "GET", path, right).await;
        assert_eq!(answer.status, 200);
        assert!(!answer.body.contains("sk-test-a") && !answer.body.contains("ck-1"));
        assert_eq!(send(admin, "POST", path, right).await.status, 405);
    }
    assert_eq!(send(admin, "GET", "/nowhere", right).await.status, 404);
}

#[tokio::test]
async fn a_taken_port_is_no_reason_not_to_serve_unless_it_was_asked_for() {
    let provider = Provider::start(vec![]).await;
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = Gateway::try_start(&provider, &[("ADMIN__LISTEN", &address)])
        .err()
        .unwrap();
    let message = format!("can't listen on {address} (admin.listen)");
    assert!(format!("{error:#}").starts_with(&message), "{error:#}");
    // Somebody has the default one, be it this test.
    let _default = tokio::net::TcpListener::bind("127.0.0.1:8081").await;
    let gateway = Gateway::try_start(&provider, &[("ADMIN__LISTEN", "")]).unwrap();
    assert_eq!(send(gateway.address, "GET", "/livez", "").await.status, 200);
}
