//! TLS on the mock's socket, beside plain HTTP: real providers speak nothing else.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The first byte of a TLS connection: a record of the handshake (RFC 8446, 5.1). No method of HTTP begins with it.
const HANDSHAKE: u8 = 22;

/// A certificate with its key.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Shows clients `chain`, whose first certificate is of `key`. They may resume their sessions with tickets, as with
    /// real providers.
    ///
    /// # Errors
    ///
    /// If the two don't belong together.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> anyhow::Result<Self> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.ticketer = ring::Ticketer::new()?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// The same from PEM files.
    ///
    /// # Errors
    ///
    /// If one of them can't be read, or the two don't belong together.
    pub fn read(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let named = || certificate.display().to_string();
        let chain = CertificateDer::pem_file_iter(certificate).with_context(named)?;
        let chain = chain.collect::<Result<_, _>>().with_context(named)?;
        let key = PrivateKeyDer::from_pem_file(key).with_context(|| key.display().to_string())?;
        Self::new(chain, key).with_context(named)
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

/// Whether the client came back with a ticket of ours.
pub(super) fn is_resumed(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
}

/// Whether a connection opens with TLS. Waits for its first byte, and leaves that where it is.
pub(super) async fn is_hello(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first[0] == HANDSHAKE
}
