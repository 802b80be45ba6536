//! The clients that requests to a provider are spread over: one for HTTP/1.1, whose pool opens a connection wherever none
//! is idle, or one for each HTTP/2 connection, since a pool keeps a single one of those.
//!
//! A provider allows some 100 streams a connection. What is sent beyond them waits in the client and can't be told from
//! a slow answer, so that each request goes where the fewest are in flight. That is counted to an answer's last byte.
//!
//! A client follows no redirect, repeats nothing, keeps no cookie and unpacks no compression: what was asked once is
//! sent once. Only a request that met a connection which the provider had closed, and of which nothing was sent, goes
//! on another.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use rustls::ClientConfig;

use super::connect::Door;
use super::names::Names;
use crate::config;

/// Idle connections are kept less long than providers keep theirs, or a request would meet a closed one.
pub(super) const IDLE_CONNECTION: Duration = Duration::from_secs(30);
/// The client's own connect timeout is there to be divided among a name's addresses. That it comes later makes the door
/// the one to tell.
pub(super) const LATER: Duration = Duration::from_secs(1);
/// What a provider may send ahead on one HTTP/2 stream: what a client that reads slowly can make the gateway hold.
const STREAM_WINDOW: u32 = 128 << 10;
/// What it may send ahead on all streams of a connection: room for 128 full ones, so that slow clients never keep the
/// others' answers from coming.
const CONNECTION_WINDOW: u32 = 128 * STREAM_WINDOW;
/// How often a busy HTTP/2 connection is asked whether it lives, and how long it may take over the answer: half a
/// minute after a provider has vanished, what is in flight there fails.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// What a provider allows at once on a connection, as far as anybody has told: 100 is the least that the standard
/// recommends, and what most allow.
const STREAMS: usize = 100;

/// How many requests so many runtimes may have in flight at `provider`: no more than fit on HTTP/2 connections, so that
/// the others wait in the queue, where they are seen and have a deadline.
#[must_use]
pub fn in_flight_max(provider: &config::Provider, workers: NonZeroUsize) -> usize {
    match provider.http2 {
        Some(connections) => provider
            .concurrency
            .min(connections.get() * workers.get() * STREAMS),
        None => provider.concurrency,
    }
}

/// A provider's clients.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Where the search for the emptiest begins.
    turn: AtomicUsize,
}

struct Lane {
    client: reqwest::Client,
    /// One reference here, and one with each request in flight.
    places: Place,
}

/// Held as long as a request is in flight.
pub(super) type Place = Arc<()>;

impl Lanes {
    pub(super) fn new(
        provider: &config::Provider,
        url: &reqwest::Url,
        tls: &ClientConfig,
        (names, door): &(Names, Door),
    ) -> anyhow::Result<Self> {
        let count = provider.http2.map_or(1, NonZeroUsize::get);
        let lane = |_| {
            let builder = client(provider, url, tls)?
                .connector_layer(door.clone())
                .dns_resolver(names.clone());
            Ok(Lane {
                client: builder.build().context("HTTP client")?,
                places: Place::default(),
            })
        };
        Ok(Self {
            lanes: (0..count).map(lane).collect::<anyhow::Result<_>>()?,
            turn: AtomicUsize::new(0),
        })
    }

    /// The client with the fewest requests in flight, and a place for another; those with equally many take turns.
    pub(super) fn emptiest(&self) -> (&reqwest::Client, Place) {
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
        let lane = self.lanes[first..]
            .iter()
            .chain(&self.lanes[..first])
            .min_by_key(|lane| Arc::strong_count(&lane.places))
            .expect("there is at least one lane");
        (&lane.client, Arc::clone(&lane.places))
    }
}

fn client(
    provider: &config::Provider,
    url: &reqwest::Url,
    tls: &ClientConfig,
) -> anyhow::Result<reqwest::ClientBuilder> {
    let is_http2 = provider.http2.is_some();
    // A clone shares the session store.
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![if is_http2 {
        b"h2".to_vec()
    } else {
        b"http/1.1".to_vec()
    }];
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(provider.timeouts.connect + LATER)
        .pool_idle_timeout(IDLE_CONNECTION)
        .pool_max_idle_per_host(usize::MAX)
        .tcp_nodelay(true)
        .referer(false);
    let builder = if is_http2 {
        // "Prior knowledge" over TLS, too: else a burst opens a connection for each request to find out.
        builder
            .http2_prior_knowledge()
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_keep_alive_while_idle(false)
    } else {
        builder.http1_only()
    };
    Ok(if let Some(proxy) = &provider.proxy {
        // The error would print the URL, which may hold a password.
        let proxy = reqwest::Proxy::all(proxy)
            .map_err(|_| anyhow::anyhow!("proxy: not a URL that can be used"))?;
        builder.proxy(proxy)
    } else if config::is_loopback(url) {
        builder.no_proxy()
    } else {
        builder
    })
}
