//! One measurement: the direct path, the gateway and, where asked for, nginx in alternation, each round with fresh
//! processes.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::gateway::{Gateway, Start};
use super::nginx::Nginx;
use super::place::Place;
use super::process::{self, Process};
use super::scenario::{Pace, Setup};
use super::tally::LoadReport;
use super::watch::{Inside, Usage, Watch};

/// What a measurement is made with.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) program: &'a Path,
    pub(super) place: &'a Place,
    /// A provider elsewhere, instead of mocks here.
    pub(super) provider: Option<&'a str>,
    pub(super) nginx: bool,
    /// How long to wait after the last round's load, to see what memory goes back to.
    pub(super) idle: Option<Duration>,
}

/// A proxy under load, and what that took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Through {
    pub(super) load: LoadReport,
    pub(super) usage: Usage,
    /// What the gateway's segment told; nginx has none.
    pub(super) inside: Option<Inside>,
    /// What the monitor says of the gateway.
    pub(super) verdict: Option<String>,
    /// Resident memory after the idle time, bytes.
    pub(super) rss_idle: Option<u64>,
    /// Requests that the provider counted for this load; none where it is elsewhere.
    pub(super) provider_counted: Option<u64>,
    /// Connections with TLS that it counted, and those of them that resumed a session.
    #[serde(default)]
    pub(super) handshakes: u64,
    #[serde(default)]
    pub(super) resumed: u64,
}

/// One round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) direct: LoadReport,
    pub(super) gateway: Through,
    pub(super) nginx: Option<Through>,
}

/// What one setup came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) setup: Setup,
    pub(super) rounds: Vec<Round>,
}

/// What a mock says that it counted.
#[derive(Debug, Default, Deserialize)]
struct Count {
    requests: Option<u64>,
    #[serde(default)]
    handshakes: u64,
    #[serde(default)]
    resumed: u64,
}

/// A provider: a mock of ours, or one elsewhere.
#[derive(Debug)]
pub(super) struct Provider {
    /// The plain one, of `http://`.
    pub(super) url: String,
    /// Where its certificate is, if it speaks TLS, too.
    pub(super) certificate: Option<PathBuf>,
    mock: Option<Process>,
}

impl Bench<'_> {
    /// Measures `setup`.
    pub(super) fn measure(&self, setup: &Setup) -> anyhow::Result<Measured> {
        let rounds = (1..=setup.rounds).map(|number| self.round(setup, number));
        Ok(Measured {
            rounds: rounds.collect::<anyhow::Result<_>>()?,
            setup: setup.clone(),
        })
    }

    fn round(&self, setup: &Setup, number: u32) -> anyhow::Result<Round> {
        let is_last = number == setup.rounds;
        let direct = {
            let provider = self.provider(setup)?;
            load(setup, &provider.url, "direct")?
        };
        Ok(Round {
            direct,
            gateway: self.through_gateway(setup, is_last)?,
            nginx: self.nginx.then(|| self.through_nginx(setup)).transpose()?,
        })
    }

    /// A gateway that nobody has asked yet, before a provider that nobody has asked yet.
    pub(super) fn through_gateway(&self, setup: &Setup, is_last: bool) -> anyhow::Result<Through> {
        let provider = self.provider(setup)?;
        let gateway = Gateway::start(self.start(setup, &provider))?;
        let watch = Watch::start(gateway.pid(), Some(gateway.opened()?), setup);
        let load = load(setup, &gateway.url(), "gateway");
        let (usage, inside) = watch.end().with_context(|| gateway.last_words())?;
        let counted = provider.count();
        let verdict = gateway.verdict(self.program);
        let rss_idle = self.idle.filter(|_| is_last).map(|time| {
            std::thread::sleep(time);
            let used = process::used(gateway.pid()).context("it ended without a load")?;
            anyhow::Ok(used.rss)
        });
        let rss_idle = rss_idle.transpose();
        let rss_idle = rss_idle.with_context(|| gateway.last_words())?;
        Ok(Through {
            load: load?,
            usage,
            inside,
            verdict: Some(verdict),
            rss_idle,
            provider_counted: counted.requests,
            handshakes: counted.handshakes,
            resumed: counted.resumed,
        })
    }

    fn through_nginx(&self, setup: &Setup) -> anyhow::Result<Through> {
        let provider = self.provider(setup)?;
        let nginx = Nginx::start(self.place, &provider)?;
        let watch = Watch::start(nginx.pid(), None, setup);
        let load = load(setup, &nginx.url(), "nginx");
        let (usage, inside) = watch.end().with_context(|| nginx.last_words())?;
        let counted = provider.count();
        Ok(Through {
            load: load?,
            usage,
            inside,
            verdict: None,
            rss_idle: None,
            provider_counted: counted.requests,
            handshakes: counted.handshakes,
            resumed: counted.resumed,
        })
    }

    pub(super) fn start<'a>(&'a self, setup: &'a Setup, provider: &'a Provider) -> Start<'a> {
        Start {
            program: self.program,
            place: self.place,
            provider,
            profile: &setup.profile,
            permits: setup.permits,
        }
    }

    /// A provider that behaves as `setup` says: a new process, unless there is one elsewhere.
    fn provider(&self, setup: &Setup) -> anyhow::Result<Provider> {
        if let Some(url) = self.provider {
            return Ok(Provider {
                url: url.to_owned(),
                certificate: None,
                mock: None,
            });
        }
        mock(setup, self.place)
    }
}

/// The load as a process of its own, so that its processor time is nobody else's.
fn load(setup: &Setup, url: &str, name: &str) -> anyhow::Result<LoadReport> {
    let mut arguments = vec![
        "load".to_owned(),
        "--json".to_owned(),
        format!("--url={url}"),
        format!("--name={}, {name}", setup.name),
        format!("--time={}", humantime::format_duration(setup.time)),
        format!("--warm-up={}", humantime::format_duration(setup.warm_up)),
        format!("--prompt-bytes={}", setup.prompt_bytes),
    ];
    arguments.extend(match setup.pace {
        Pace::Rate(rate) => {
            let tick = setup
                .tick
                .map(|tick| format!("--tick={}", humantime::format_duration(tick)));
            let rise = format!("--rise={}", humantime::format_duration(setup.rise));
            [format!("--rate={rate}"), rise]
                .into_iter()
                .chain(tick)
                .collect()
        }
        Pace::Connections(connections) => vec![format!("--connections={connections}")],
        Pace::Streams { connections, each } => vec![
            format!("--connections={connections}"),
            format!("--requests-each={each}"),
            "--mix=stream".to_owned(),
        ],
    });
    let ourselves = process::ourselves()?;
    let out = (Stdio::piped(), Stdio::inherit());
    let load = Process::start(&ourselves, arguments, &[], out)?;
    let said = load
        .output()
        .with_context(|| format!("the load on the {name} path"))?;
    serde_json::from_slice(&said).with_context(|| format!("the load on the {name} path"))
}

/// Starts a mock that behaves as `setup` says.
pub(super) fn mock(setup: &Setup, place: &Place) -> anyhow::Result<Provider> {
    let mut arguments = vec![
        "mock".to_owned(),
        format!("--delay={}", humantime::format_duration(setup.delay)),
        format!("--spread={}", setup.spread),
        format!("--body-bytes={}", setup.answer_bytes),
    ];
    if matches!(setup.pace, Pace::Streams { .. }) {
        arguments.extend(["--chunks=50", "--pace=20ms"].map(str::to_owned));
    }
    let certificate = setup.tls.then(|| place.file("provider.pem"));
    if let Some(file) = &certificate {
        arguments.push(format!("--tls-self-signed={}", file.display()));
    }
    let out = (Stdio::piped(), Stdio::inherit());
    let mut mock = Process::start(&process::ourselves()?, arguments, &[], out)?;
    let address = mock.address()?;
    Ok(Provider {
        url: format!("http://{address}"),
        certificate,
        mock: Some(mock),
    })
}

impl Provider {
    /// The URL by which a gateway asks it: over TLS where it speaks that.
    pub(super) fn url_to_trust(&self) -> String {
        match &self.certificate {
            Some(_) => self.url.replacen("http:", "https:", 1),
            None => self.url.clone(),
        }
    }

    /// What it has counted; nothing where it is elsewhere.
    fn count(&self) -> Count {
        let count = || {
            self.mock.as_ref()?;
            let body = super::gateway::get(self.url.strip_prefix("http://")?, "/count").ok()?;
            serde_json::from_str(&body).ok()
        };
        count().unwrap_or_default()
    }
}
