//! A gateway in this process, on a free port, with a segment of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bifrost_gateway::config::{self, Environment, Sources};
use bifrost_gateway::reload::Reload;
use bifrost_gateway::server::Server;
use bifrost_gateway::shutdown::Drained;
use bifrost_shared::layout::Gauge;
use bifrost_shared::record::Record;
use bifrost_shared::segment::Opened;
use bifrost_shared::snapshot::{Samples, View};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::provider::Provider;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Gateway {
    pub address: SocketAddr,
    /// Where its admin listener is; of no use if it has none.
    pub admin: SocketAddr,
    opened: Opened,
    samples: Samples,
    reload: Arc<Reload>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Drained>,
    _scratch: tempfile::TempDir,
}

impl Gateway {
    /// A gateway in front of `provider`, called `openai`, with one key; `more` are further variables, without the prefix.
    pub fn start(provider: &Provider, more: &[(&str, &str)]) -> Self {
        Self::try_start(provider, more).unwrap()
    }

    /// The same, if it starts.
    pub fn try_start(provider: &Provider, more: &[(&str, &str)]) -> anyhow::Result<Self> {
        let base_url = format!("http://{}/v1", provider.address);
        let mut variables = vec![
            ("PROVIDERS__OPENAI__BASE_URL", base_url.as_str()),
            ("PROVIDERS__OPENAI__KEYS", r#"[{value="sk-test-a"}]"#),
            ("PROVIDERS__OPENAI__RETRIES__BACKOFF_INITIAL", "1ms"),
            ("PROVIDERS__OPENAI__RETRIES__BACKOFF_MAX", "2ms"),
        ];
        variables.retain(|(name, _)| !more.iter().any(|(other, _)| name == other));
        variables.extend_from_slice(more);
        Self::try_with(&variables)
    }

    /// A gateway in front of two providers, called `openai` and `second`, where the first falls back on the second.
    pub fn start_pair(first: &Provider, second: &Provider, more: &[(&str, &str)]) -> Self {
        let base_url = format!("http://{}/v1", second.address);
        let mut variables = vec![
            ("PROVIDERS__SECOND__BASE_URL", base_url.as_str()),
            ("PROVIDERS__SECOND__KEYS", r#"[{value="sk-test-second"}]"#),
            ("PROVIDERS__SECOND__RETRIES__MAX", "0"),
            ("PROVIDERS__OPENAI__RETRIES__MAX", "0"),
            ("PROVIDERS__OPENAI__FALLBACKS", r#"["second/spare"]"#),
        ];
        variables.retain(|(name, _)| !more.iter().any(|(other, _)| name == other));
        variables.extend_from_slice(more);
        Self::start(first, &variables)
    }

    /// A gateway with these variables, without the prefix.
    pub fn with(variables: &[(&str, &str)]) -> Self {
        Self::try_with(variables).unwrap()
    }

    fn try_with(variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        let scratch = tempfile::tempdir().unwrap();
        let segment: PathBuf = scratch.path().join("test.seg");
        let own = [
            ("SERVER__LISTEN", "127.0.0.1:0"),
            ("ADMIN__LISTEN", "127.0.0.1:0"),
            ("TELEMETRY__SEGMENT", segment.to_str().unwrap()),
            ("TELEMETRY__INSTANCE_METADATA", "off"),
        ];
        let loaded = loaded(&[&own[..], variables].concat());
        let server = Server::start(loaded.config)?;
        let (address, reload) = (server.address(), server.reload());
        let admin = server.admin_address().unwrap_or(address);
        let opened = Opened::open(&segment).unwrap();
        let words = opened.words().unwrap();
        let samples = View::of(words).unwrap().samples_from_oldest(words).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(server.serve(
            async {
                let _ = stopped.await;
            },
            |()| std::future::pending(),
        ));
        Ok(Self {
            address,
            admin,
            opened,
            samples,
            reload,
            stop: Some(stop),
            served,
            _scratch: scratch,
        })
    }

    /// Puts other settings in force.
    pub fn reload(&self, variables: &[(&str, &str)]) -> anyhow::Result<Vec<&'static str>> {
        self.reload.apply(loaded(variables).config)
    }

    /// Waits for the next record.
    pub async fn record(&mut self) -> Record {
        // The exporter, a thread, comes by every 50 ms; it can be looked for, but not awaited.
        let mut look = tokio::time::interval(Duration::from_millis(2));
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                look.tick().await;
                if let Some(record) = self.samples.next(self.opened.words().unwrap()) {
                    return record;
                }
            }
        });
        found.await.expect("a request leaves a record")
    }

    /// Waits until so many requests wait for the provider.
    pub async fn waiting(&mut self, wanted: u64) {
        self.gauge(Gauge::Waiting, wanted).await;
    }

    /// Waits until a gauge shows that.
    pub async fn gauge(&self, gauge: Gauge, wanted: u64) {
        let mut look = tokio::time::interval(Duration::from_millis(2));
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                look.tick().await;
                let words = self.opened.words().unwrap();
                let figures = View::of(words).unwrap().figures(words).unwrap();
                if figures.gauges[gauge.index()] == wanted {
                    return;
                }
            }
        });
        found
            .await
            .unwrap_or_else(|_| panic!("no {wanted} {gauge:?}"));
    }

    /// Stops it, and says how the drain ended. What is left of the records can still be read.
    pub async fn stop(mut self) -> (Drained, Vec<Record>) {
        let _ = self.stop.take().unwrap().send(());
        let drained = tokio::time::timeout(PATIENCE, self.served)
            .await
            .expect("it stops")
            .unwrap();
        let words = self.opened.words().unwrap();
        (
            drained,
            std::iter::from_fn(|| self.samples.next(words)).collect(),
        )
    }
}

fn loaded(variables: &[(&str, &str)]) -> config::Loaded {
    let mut environment = Environment::default();
    for (name, value) in variables {
        let name = format!("BIFROST_{name}");
        environment.variables.insert(name, (*value).to_owned());
    }
    let sources = Sources {
        environment,
        ..Sources::default()
    };
    config::load(&sources).unwrap_or_else(|problems| panic!("{problems}"))
}
