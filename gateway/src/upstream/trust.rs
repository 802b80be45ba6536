//! Whose certificates are trusted: one TLS configuration for each set of roots, so that all clients with the same trust
//! share their sessions, and a handshake with a provider that any of them knows is a short one.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CipherSuite, ClientConfig, RootCertStore};

mod sessions;

use sessions::Sessions;

/// TLS configurations, by what they trust.
pub(super) struct Trust {
    bundled: Arc<ClientConfig>,
    /// By the file's text, so that a file which has changed is read anew.
    of_files: Mutex<HashMap<Vec<u8>, Arc<ClientConfig>>>,
}

impl Trust {
    /// Trusts the bundled roots (Mozilla's) where no file is named. Loading the system's costs some milliseconds at
    /// every start; who needs them names their file.
    pub(super) fn new() -> anyhow::Result<Self> {
        let roots = webpki_roots::TLS_SERVER_ROOTS.to_vec();
        Ok(Self {
            bundled: trusting(RootCertStore { roots })?,
            of_files: Mutex::default(),
        })
    }

    /// The configuration that trusts the certificates in `file` and no others, or the bundled ones without a file.
    pub(super) fn of(&self, file: Option<&Path>) -> anyhow::Result<Arc<ClientConfig>> {
        let Some(file) = file else {
            return Ok(Arc::clone(&self.bundled));
        };
        let named = || format!("ca_file {}", file.display());
        let pem = fs::read(file).with_context(named)?;
        let mut known = self
            .of_files
            .lock()
            .expect("nobody panics while holding it");
        if let Some(config) = known.get(&pem) {
            return Ok(Arc::clone(config));
        }
        let config = trusting(roots(&pem).with_context(named)?)?;
        known.insert(pem, Arc::clone(&config));
        Ok(config)
    }
}

fn roots(pem: &[u8]) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    anyhow::ensure!(!roots.is_empty(), "holds no certificate");
    Ok(roots)
}

fn trusting(roots: RootCertStore) -> anyhow::Result<Arc<ClientConfig>> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(cryptography()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::store(Arc::new(Sessions::new()));
    Ok(Arc::new(config))
}

/// The AES-128 suite goes first, as in browsers: its hash is done by the processor, and SHA-384 of the other took 6 % of
/// the time while connections were opened.
fn cryptography() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}
