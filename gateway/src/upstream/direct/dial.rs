//! Opening a connection: a place at the door, the name's addresses, TCP, TLS.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::error::Elapsed;
use tokio_rustls::TlsConnector;
use tower_service::Service as _;

use super::link::{Io, Link};
use crate::error::Cause;
use crate::upstream::connect::{Door, Place};
use crate::upstream::lanes::LATER;
use crate::upstream::names::Names;

/// After so long without a word, the system asks whether the provider is still there: a vanished one is found out while
/// a request waits for it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_TRIES: u32 = 3;

/// How to reach a host.
pub(in crate::upstream) struct Dial {
    to: Uri,
    http: HttpConnector<Names>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    door: Door,
}

impl Dial {
    /// The way to the host of `url`; none if its name is none that a certificate could be for, or if it carries a
    /// password.
    pub(in crate::upstream) fn new(
        url: &reqwest::Url,
        tls: &Arc<ClientConfig>,
        (names, door): &(Names, Door),
        patience: Duration,
    ) -> Option<Self> {
        if !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        let host = url.host_str()?;
        let tls = if url.scheme() == "https" {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let name = ServerName::try_from(bare.to_owned()).ok()?;
            let mut tls = ClientConfig::clone(tls);
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            Some((TlsConnector::from(Arc::new(tls)), name))
        } else {
            None
        };
        let mut http = HttpConnector::new_with_resolver(names.clone());
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_keepalive(Some(KEEP_ALIVE));
        http.set_keepalive_interval(Some(KEEP_ALIVE));
        http.set_keepalive_retries(Some(KEEP_ALIVE_TRIES));
        // To be divided among a name's addresses. That it comes later makes the door the one to tell.
        http.set_connect_timeout(Some(patience + LATER));
        Some(Self {
            to: url.as_str().parse().ok()?,
            http,
            tls,
            door: door.clone(),
        })
    }

    /// Waits for a place at the door.
    pub(super) async fn place(&self) -> Result<Place, Cause> {
        self.door.place().await
    }

    /// Opens a connection within its time, and holds the place until then. What it comes to is for who waits for it to tell:
    /// [`timed_out`](Self::timed_out) is about all that wait at the door, and nobody may wait for this one any more.
    pub(super) async fn open(
        self: Arc<Self>,
        place: Place,
    ) -> Result<Result<Box<Link>, Cause>, Elapsed> {
        let dialled = self.door.in_time(self.dialled()).await;
        drop(place);
        let io = match dialled? {
            Ok(io) => io,
            Err(cause) => return Ok(Err(cause)),
        };
        Ok(Link::new(io).await.map(Box::new).map_err(Into::into))
    }

    /// Opening one took too long.
    pub(super) fn timed_out(&self) -> Cause {
        self.door.timed_out()
    }

    async fn dialled(&self) -> Result<Io, Cause> {
        // A clone shares what was set.
        let stream = self.http.clone().call(self.to.clone()).await?;
        let Some((tls, name)) = &self.tls else {
            return Ok(Io::Tcp(stream));
        };
        let stream = tls.connect(name.clone(), stream.into_inner()).await?;
        Ok(Io::Tls(Box::new(hyper_util::rt::TokioIo::new(stream))))
    }
}
