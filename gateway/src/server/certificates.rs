//! Inbound TLS: the certificate that clients are shown, which can be renewed while connections are open.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::TlsFiles;

/// The certificate in force.
pub struct Certificates(RwLock<Arc<ServerConfig>>);

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// If one of them can't be read, or the two don't belong together.
    pub fn read(files: &TlsFiles) -> anyhow::Result<Self> {
        Ok(Self(RwLock::new(server_config(files)?)))
    }

    /// Reads these files. New connections get what is in them; if that can't be used, they get what they got.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn renew(&self, files: &TlsFiles) -> anyhow::Result<()> {
        let config = server_config(files)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Agrees with a client on TLS.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = {
            let config = self.0.read().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(&config)
        };
        TlsAcceptor::from(config).accept(stream).await
    }
}

fn server_config(files: &TlsFiles) -> anyhow::Result<Arc<ServerConfig>> {
    let named = |setting: &str, path: &Path| format!("server.tls.{setting} {}", path.display());
    let certificate = || named("certificate", &files.certificate);
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .with_context(certificate)?
        .collect::<Result<Vec<_>, _>>()
        .with_context(certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).with_context(|| named("key", &files.key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .with_context(certificate)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
