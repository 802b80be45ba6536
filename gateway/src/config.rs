//! Settings: what the user wrote, checked once, as values that need no second look.
//!
//! ```text
//! defaults < well-known variables < file < BIFROST_* < flags      load: one layer each, merged by figment
//!                       │ each value with its layer's tag
//!                       ▼
//!             reader ── sections, provider, keys                  what there is, and what it must be
//!                       │
//!              Config, or every problem at once
//! ```
//!
//! figment merges and remembers origins. Its own extraction is not used: it stops at the first error, prints values,
//! and turns the digits of a key into a number.
//!
//! # Invariants
//!
//! - No secret is in a problem, in a `Debug`, or in what `config show` prints.
//! - A setting that nothing reads is an error.
//! - The process environment is never looked at: it is handed in.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use bifrost_shared::layout::CreditMode;
use bifrost_shared::segment::Readers;
use bifrost_shared::thresholds::Thresholds;

mod defaults;
mod environment;
mod file;
mod keys;
mod known;
mod layer;
mod lines;
mod load;
mod nearest;
mod problem;
mod provider;
mod reader;
mod scalar;
mod secret;
mod section;
mod sections;
mod show;
#[cfg(test)]
mod tests;

pub use environment::Environment;
pub use known::variables as well_known_variables;
pub use load::{Flag, Loaded, Sources, load};
pub use problem::{Problem, Problems};
pub(crate) use provider::is_loopback;

/// Everything the gateway was told, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// `server.*`
    pub server: Server,
    /// `client.*`: the seed's own section.
    pub client: Client,
    /// `client_keys`: who may ask; empty for whoever reaches the gateway.
    pub client_keys: Vec<ClientKey>,
    /// `providers.<name>.*`, by name.
    pub providers: BTreeMap<String, Provider>,
    /// `admin.*`
    pub admin: Admin,
    /// `telemetry.*`
    pub telemetry: Telemetry,
    /// `drain_timeout`: how long requests in flight may still take after SIGTERM.
    pub drain_timeout: Duration,
    /// `log.*`
    pub log: Log,
}

impl Config {
    /// Whether, listening on `address`, it would serve strangers: without client keys, beyond this machine, and nobody
    /// said that it may.
    #[must_use]
    pub fn is_open_beyond(&self, address: IpAddr) -> bool {
        self.client_keys.is_empty()
            && !self.server.allow_unauthenticated
            && !address.to_canonical().is_loopback()
    }
}

/// The front door.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// `server.listen`
    pub listen: SocketAddr,
    /// `server.workers`: runtimes that serve requests; by default one per processor.
    pub workers: NonZeroUsize,
    /// `server.header_timeout`: how long a client may take over a request's head.
    pub header_timeout: Duration,
    /// `server.body_timeout`: how long a client may be silent within a request's body.
    pub body_timeout: Duration,
    /// `server.keep_alive_timeout`: how long a connection may stay open without a request.
    pub keep_alive_timeout: Duration,
    /// `server.connections_max`: connections of clients that are open at once; none for what the descriptor limit allows.
    pub connections_max: Option<usize>,
    /// `server.allow_unauthenticated`: whether an address beyond this machine is served without client keys.
    pub allow_unauthenticated: bool,
    /// `server.hosts`: names, beside its address, that the gateway is asked by while there are no client keys.
    pub hosts: Vec<String>,
    /// `server.tls.*`; none for plain text.
    pub tls: Option<TlsFiles>,
    /// `server.body_budget_mb`, in bytes: what all bodies that are held may take together; none for a quarter of the
    /// memory limit.
    pub body_budget_bytes: Option<usize>,
    /// `server.server_timing`: whether answers carry a `Server-Timing` header, and streams a comment with the same at their end.
    pub server_timing: bool,
}

/// The files of inbound TLS (PEM).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// `server.tls.certificate`: the certificate, and behind it those that vouch for it.
    pub certificate: PathBuf,
    /// `server.tls.key`: its private key.
    pub key: PathBuf,
}

/// Someone who may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientKey {
    /// `name`: what logs call it. Never the secret.
    pub name: String,
    /// `value`, `value_file` or `env.NAME`, without surrounding white space.
    pub value: Secret,
    /// `models`: patterns of `provider/model` that it may ask for, with `*` for any run of characters; empty for all.
    pub models: Vec<String>,
}

/// The listener for those who run the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// `admin.enabled`
    pub enabled: bool,
    /// `admin.listen`
    pub listen: SocketAddr,
    /// Whether nobody said where to listen: then another gateway may have the port already.
    pub is_default: bool,
    /// `admin.keys`, `admin_key`: who may look; empty for whoever is on this machine.
    pub keys: Vec<ClientKey>,
}

/// The seed's `client` section.
#[derive(Debug, Clone, PartialEq)]
pub struct Client {
    /// `client.initial_pool_size`: kept as the reference that requests in flight are shown against. Nothing is
    /// preallocated: an object pool buys at most 11 ns an object in Rust.
    pub initial_pool_size: usize,
    /// `client.buffer_size`: requests that may wait for a provider, each.
    pub buffer_size: usize,
    /// `client.max_request_body_size_mb`, in bytes.
    pub request_body_bytes_max: usize,
}

/// One provider, under the name that models carry in front.
#[derive(Clone, PartialEq)]
pub struct Provider {
    /// `kind`
    pub kind: Kind,
    /// `base_url`, without a slash at its end; `/chat/completions` is appended to it.
    pub base_url: String,
    /// `keys`: at least one of them with a weight above zero. Empty only for a provider that takes none.
    pub keys: Vec<Key>,
    /// `concurrency`: requests in flight at once.
    pub concurrency: usize,
    /// `stream_usage`: whether the provider is asked for the tokens of a stream whose client didn't ask; the client
    /// does not see them.
    pub stream_usage: bool,
    /// `retries.*`
    pub retries: Retries,
    /// `timeouts.*`
    pub timeouts: Timeouts,
    /// `models`: the models it serves; empty for any.
    pub models: Vec<String>,
    /// `fallbacks`: `provider/model` to try when this provider has failed, in order; empty for none.
    pub fallbacks: Vec<String>,
    /// `headers`: sent with each request, name and value checked.
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    /// `ca_file`: certificates (PEM) to trust instead of the bundled roots; the system's are a file, too.
    pub ca_file: Option<PathBuf>,
    /// `proxy`: an HTTP(S) proxy for requests to this provider; by default `HTTPS_PROXY` and its kin decide.
    pub proxy: Option<String>,
    /// `connects_max`: connections that each runtime opens to it at once. Whoever needs another waits its turn; that
    /// does not count as connecting.
    pub connects_max: usize,
    /// `http2.connections`: HTTP/2 connections that each runtime keeps to it; zero, and none here, for HTTP/1.1. The
    /// provider has to speak HTTP/2. 100 requests are in flight on each, so that this bounds `concurrency`, too.
    pub http2: Option<NonZeroUsize>,
    /// `rest.*`
    pub rest: Rest,
}

impl fmt::Debug for Provider {
    /// Everything but the proxy's address, which may hold a password; keys and headers hide their own values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("kind", &self.kind)
            .field("base_url", &self.base_url)
            .field("keys", &self.keys)
            .field("concurrency", &self.concurrency)
            .field("stream_usage", &self.stream_usage)
            .field("retries", &self.retries)
            .field("timeouts", &self.timeouts)
            .field("models", &self.models)
            .field("fallbacks", &self.fallbacks)
            .field("headers", &self.headers)
            .field("ca_file", &self.ca_file)
            .field("proxy", &self.proxy.as_ref().map(|_| "[secret]"))
            .field("connects_max", &self.connects_max)
            .field("http2", &self.http2)
            .field("rest", &self.rest)
            .finish()
    }
}

/// How a provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The OpenAI API, as most providers speak it.
    OpenAi,
}

/// One API key.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// `name`: what logs, telemetry and headers call it. Never the secret.
    pub name: String,
    /// `value`, `value_file` or `env.NAME`, without surrounding white space.
    pub value: Secret,
    /// `weight`: its share among the healthy keys; zero takes it out.
    pub weight: f64,
    /// `models`: those it may be used for; empty for any.
    pub models: Vec<String>,
}

/// How often, and after how long, a failed attempt is repeated.
#[derive(Debug, Clone, PartialEq)]
pub struct Retries {
    /// `retries.max`: attempts after the first, over all keys.
    pub max: u32,
    /// `retries.backoff_initial`
    pub backoff_initial: Duration,
    /// `retries.backoff_max`
    pub backoff_max: Duration,
}

/// Deadlines. Each has a default that suits language models.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeouts {
    /// `timeouts.connect`: opening a connection, TLS included.
    pub connect: Duration,
    /// `timeouts.first_byte`: from the request sent to the answer's head.
    pub first_byte: Duration,
    /// `timeouts.idle`: silence within an answer.
    pub idle: Duration,
    /// `timeouts.total`: from the request's head to the answer's first content, over all attempts, and to its last byte
    /// for an answer that is no stream.
    pub total: Duration,
    /// `timeouts.queue`: waiting for a place.
    pub queue: Duration,
}

/// How long a key that failed is left alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Rest {
    /// `rest.rate_limited`: after a 429 that names no time.
    pub rate_limited: Duration,
    /// `rest.max`: the longest that a provider's `Retry-After` is believed.
    pub max: Duration,
    /// `rest.forbidden`: after a 403, for that model.
    pub forbidden: Duration,
    /// `rest.probe`: how often a single request tries a provider all of whose keys are refused.
    pub probe: Duration,
    /// `rest.ramp`: how long a key that comes back takes to reach its whole share.
    pub ramp: Duration,
}

/// Where figures go.
#[derive(Debug, Clone, PartialEq)]
pub struct Telemetry {
    /// `telemetry.enabled`: whether a segment is made.
    pub enabled: bool,
    /// `telemetry.segment`: a directory, or a file that ends in `.seg`; by default the first usable one of
    /// [`bifrost_shared::segment::default_directories`].
    pub segment: Option<PathBuf>,
    /// `telemetry.readers`: who may read the segment.
    pub readers: Readers,
    /// `telemetry.thresholds.*`: the limits that the verdict is made by.
    pub thresholds: Thresholds,
    /// `telemetry.instance`: the instance type. It wins over what the metadata say.
    pub instance: Option<String>,
    /// `telemetry.credit_mode`: what happens when CPU credits are spent. It wins, too.
    pub credit_mode: Option<CreditMode>,
    /// `telemetry.instance_metadata`: whether an EC2 instance is asked what it is.
    pub instance_metadata: InstanceMetadata,
}

/// Whether an EC2 instance's metadata are asked for what the settings leave open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceMetadata {
    /// Where the machine's firmware says that it is one.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// `log.level`: error, warn, info, debug or trace.
    pub level: tracing::Level,
    /// `log.format`: JSON lines rather than text.
    pub json: bool,
    /// `log.access`: each request as a line of JSON on standard output.
    pub access: bool,
}

/// A text that is never shown, and is wiped from memory when it is dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(zeroize::Zeroizing<String>);

impl Secret {
    /// Keeps `text`, without the white space around it that files and copied variables bring along.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(zeroize::Zeroizing::new(text.trim().to_owned()))
    }

    /// The text, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
