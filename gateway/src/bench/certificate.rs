//! The certificate that a mock shows: one from files, or one made for the occasion.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use anyhow::Context as _;
use rcgen::CertifiedKey;
use rustls::pki_types::PrivateKeyDer;

use crate::mock::Tls;

/// Makes a certificate for this machine's own names and `address`, and writes it to `file`, for whoever is to trust it.
/// The key is P-256, as most providers' are, and never leaves the process.
pub(super) fn self_signed(address: IpAddr, file: &Path) -> anyhow::Result<Tls> {
    let mut names = ["localhost", "127.0.0.1", "::1"]
        .map(str::to_owned)
        .to_vec();
    let address = address.to_string();
    if !names.contains(&address) {
        names.push(address);
    }
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names)?;
    fs::write(file, cert.pem()).with_context(|| file.display().to_string())?;
    let key = PrivateKeyDer::Pkcs8(signing_key.into());
    Tls::new(vec![cert.der().clone()], key)
}
