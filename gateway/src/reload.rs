//! Other settings for a gateway that serves: all of them or none, on SIGHUP and when the file has changed.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio::signal::unix::Signal;

use crate::access::Access;
use crate::app::App;
use crate::config::{self, Config, Problems, Sources};
use crate::fit::fit_to_descriptors;
use crate::notify::{State, Supervisor};
use crate::pipeline::Worker;
use crate::routes::Desk;
use crate::server::Certificates;
use crate::telemetry::Telemetry;
use crate::upstream::Common;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Gives a gateway other settings.
pub struct Reload {
    in_force: Mutex<Config>,
    app: Arc<ArcSwap<App>>,
    desks: Vec<Arc<Desk>>,
    access: Arc<ArcSwap<Access>>,
    certificates: Option<Arc<Certificates>>,
    telemetry: Arc<Telemetry>,
    common: Common,
}

impl Reload {
    /// For the gateway that was made of these.
    #[must_use]
    pub fn new(
        in_force: Config,
        (app, desks): (Arc<ArcSwap<App>>, Vec<Arc<Desk>>),
        (access, certificates): (Arc<ArcSwap<Access>>, Option<Arc<Certificates>>),
        telemetry: Arc<Telemetry>,
        common: Common,
    ) -> Self {
        Self {
            in_force: Mutex::new(in_force),
            app,
            desks,
            access,
            certificates,
            telemetry,
            common,
        }
    }

    /// Puts `config` in force for every request that begins from now on. Gives back the sections that changed but take
    /// a restart.
    ///
    /// # Errors
    ///
    /// If something that the settings name can't be used; then nothing changes.
    ///
    /// # Panics
    ///
    /// If a thread panicked while it changed settings.
    pub fn apply(&self, mut config: Config) -> anyhow::Result<Vec<&'static str>> {
        fit_to_descriptors(&mut config);
        let mut in_force = self
            .in_force
            .lock()
            .expect("nobody panics with the settings in hand");
        config.server.body_budget_bytes = config
            .server
            .body_budget_bytes
            .or(in_force.server.body_budget_bytes);
        // Where it listens takes a restart: the settings are checked against the address that it has.
        let address = in_force.server.listen.ip();
        anyhow::ensure!(
            !config.is_open_beyond(address),
            "without client keys, whoever reaches {address} spends your keys"
        );
        let access = Access::front(&config, address)?;
        let app = Arc::new(self.app.load().renewed(&config)?);
        let workers = self
            .desks
            .iter()
            .map(|desk| desk.worker.load().renewed(Arc::clone(&app), &self.common))
            .collect::<anyhow::Result<Vec<Worker>>>()?;
        if let (Some(certificates), Some(files)) = (&self.certificates, &config.server.tls) {
            certificates.renew(files)?;
        }
        // Nothing below can fail.
        self.access.store(Arc::new(access));
        for (desk, worker) in self.desks.iter().zip(workers) {
            desk.worker.store(Arc::new(worker));
        }
        let names = app.names();
        self.app.store(app);
        // Who has a new name is looked at once it is told.
        self.telemetry.rename(names);
        let fixed = [
            ("server", same_but_for_what_is_applied(&config, &in_force)),
            ("admin", config.admin == in_force.admin),
            ("client", same_but_for_buffer(&config, &in_force)),
            ("telemetry", config.telemetry == in_force.telemetry),
            ("log", config.log == in_force.log),
            (
                "drain_timeout",
                config.drain_timeout == in_force.drain_timeout,
            ),
        ];
        *in_force = config;
        Ok(fixed
            .into_iter()
            .filter(|(_, same)| !same)
            .map(|(name, _)| name)
            .collect())
    }
}

fn same_but_for_what_is_applied(one: &Config, other: &Config) -> bool {
    let mut server = one.server.clone();
    server.server_timing = other.server.server_timing;
    server.allow_unauthenticated = other.server.allow_unauthenticated;
    server.hosts.clone_from(&other.server.hosts);
    if server.tls.is_some() && other.server.tls.is_some() {
        server.tls.clone_from(&other.server.tls);
    }
    server == other.server
}

fn same_but_for_buffer(one: &Config, other: &Config) -> bool {
    let mut client = one.client.clone();
    client.buffer_size = other.client.buffer_size;
    client == other.client
}

/// Reads the settings again and puts them in force, at each SIGHUP and whenever the file has changed. Settings that are
/// wrong change nothing, and it is said why. `supervisor` is told of each time. Never ends.
pub async fn watch(
    reload: Arc<Reload>,
    mut hangup: Signal,
    sources: Sources,
    supervisor: Arc<Supervisor>,
) {
    let file = sources.file.clone();
    let mut seen = file.as_deref().map(Fingerprint::of);
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        let cause = tokio::select! {
            _ = hangup.recv() => "SIGHUP",
            _ = look.tick() => {
                if file.as_deref().map(Fingerprint::of) == seen {
                    continue;
                }
                "the file changed"
            }
        };
        seen = file.as_deref().map(Fingerprint::of);
        supervisor.tell(State::Reloading);
        match config::load(&sources) {
            Ok(loaded) if loaded.config.providers.is_empty() => {
                tracing::error!(
                    cause,
                    "the new settings name no provider: the old ones stay in force"
                );
            }
            Ok(loaded) => match reload.apply(loaded.config) {
                Ok(fixed) if fixed.is_empty() => {
                    tracing::info!(cause, "the settings were read again");
                }
                Ok(fixed) => tracing::warn!(
                    cause,
                    restart = fixed.join(", "),
                    "the settings were read again; what changed in these sections takes a restart"
                ),
                Err(error) => tracing::error!(cause, "{error:#}: the old settings stay in force"),
            },
            Err(Problems(problems)) => {
                for problem in problems {
                    tracing::error!(cause, "{problem}");
                }
                tracing::error!(cause, "the old settings stay in force");
            }
        }
        supervisor.tell(State::Ready);
    }
}

/// What tells one content of a file from the next without reading it.
#[derive(Debug, PartialEq, Eq)]
struct Fingerprint(Option<(SystemTime, u64, u64)>);

impl Fingerprint {
    fn of(file: &Path) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        let found = fs::metadata(file).ok();
        Self(found.and_then(|found| Some((found.modified().ok()?, found.len(), found.ino()))))
    }
}
