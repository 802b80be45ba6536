//! TLS at the front door, by a certificate that is made here.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::{Client, chat};
use crate::gateway::Gateway;
use crate::provider::{COMPLETION, Provider, json};

/// Writes a fresh certificate for `localhost` and its key, and trusts it alone.
fn certify(directory: &Path) -> rustls::RootCertStore {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    roots
}

async fn connect(
    address: SocketAddr,
    roots: &rustls::RootCertStore,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let stream = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
}

fn request() -> Request<Full<Bytes>> {
    Request::post("https://localhost/v1/chat/completions")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(chat("openai/m"))))
        .unwrap()
}

fn settings(directory: &Path) -> [(&'static str, String); 3] {
    let path = |name| directory.join(name).to_str().unwrap().to_owned();
    [
        ("SERVER__TLS__CERTIFICATE", path("cert.pem")),
        ("SERVER__TLS__KEY", path("key.pem")),
        ("SERVER__HEADER_TIMEOUT", "500ms".to_owned()),
    ]
}

/// A gateway with the certificate in `directory`.
fn start(provider: &Provider, directory: &Path) -> Gateway {
    let settings = settings(directory);
    Gateway::start(
        provider,
        &settings
            .each_ref()
            .map(|(name, value)| (*name, value.as_str())),
    )
}

/// Has the files read again.
fn renew(gateway: &Gateway, directory: &Path) -> anyhow::Result<()> {
    let settings = settings(directory);
    gateway.reload(
        &settings
            .each_ref()
            .map(|(name, value)| (*name, value.as_str())),
    )?;
    Ok(())
}

#[tokio::test]
async fn clients_choose_the_protocol_within_tls() {
    let directory = tempfile::tempdir().unwrap();
    let roots = certify(directory.path());
    let provider = Provider::start(vec![json(200, COMPLETION); 3]).await;
    let gateway = start(&provider, directory.path());

    let stream = connect(gateway.address, &roots, &["h2", "http/1.1"])
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut requests, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let answer = requests.send_request(request()).await.unwrap();
    assert_eq!(
        answer.into_body().collect().await.unwrap().to_bytes(),
        COMPLETION
    );

    for protocols in [&["http/1.1"][..], &[]] {
        let stream = connect(gateway.address, &roots, protocols).await.unwrap();
        let (mut requests, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let mut request = request();
        *request.uri_mut() = "/v1/chat/completions".parse().unwrap();
        let answer = requests.send_request(request).await.unwrap();
        assert_eq!(
            answer.into_body().collect().await.unwrap().to_bytes(),
            COMPLETION
        );
    }
}

#[tokio::test]
async fn without_tls_nobody_is_served_nor_kept_waiting_for_it() {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let provider = Provider::start(vec![]).await;
    let gateway = start(&provider, directory.path());
    let mut plain = Client::connect(gateway.address).await;
    plain
        .send(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    assert_eq!(plain.answer().await.status, 0);
    // A handshake that does not go on ends with the time for a head.
    let silent = Client::connect(gateway.address).await;
    assert_eq!(silent.answer().await.status, 0);
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections_and_a_bad_one_to_none() {
    let directory = tempfile::tempdir().unwrap();
    let old = certify(directory.path());
    let provider = Provider::start(vec![]).await;
    let gateway = start(&provider, directory.path());
    connect(gateway.address, &old, &[]).await.unwrap();

    let new = certify(directory.path());
    connect(gateway.address, &old, &[]).await.unwrap();
    renew(&gateway, directory.path()).unwrap();
    connect(gateway.address, &new, &[]).await.unwrap();
    assert!(connect(gateway.address, &old, &[]).await.is_err());

    let broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    std::fs::write(directory.path().join("key.pem"), broken).unwrap();
    let error = renew(&gateway, directory.path()).unwrap_err().to_string();
    assert!(error.starts_with("server.tls."), "{error}");
    connect(gateway.address, &new, &[]).await.unwrap();
    // Nor is a key that belongs to another certificate.
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(
        directory.path().join("key.pem"),
        made.signing_key.serialize_pem(),
    )
    .unwrap();
    assert!(renew(&gateway, directory.path()).is_err());
    connect(gateway.address, &new, &[]).await.unwrap();
}
