//! Settings → parts → serve → drain. The wiring, nothing else.

use std::process::ExitCode;
use std::sync::Arc;

use bifrost_gateway::cli::{Cli, ConfigTask, Task, TelemetryTask};
use bifrost_gateway::clock::Clock;
use bifrost_gateway::notify::{State, Supervisor};
use bifrost_gateway::server::Server;
use bifrost_gateway::shutdown::Signals;
use bifrost_gateway::telemetry::self_test;
use bifrost_gateway::{config, load, logging, mock, reload, start};
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Wrong settings (`EX_CONFIG` of sysexits).
const WRONG_SETTINGS: u8 = 78;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(Task::Mock(args)) => mock::run(args),
        Some(Task::Load(args)) => load::run(args),
        Some(Task::Check) => check(&cli),
        Some(Task::Config(ConfigTask::Show)) => {
            settings(&cli).map(|loaded| print!("{}", loaded.show()))
        }
        Some(Task::Telemetry(TelemetryTask::SelfTest)) => test_telemetry(&cli),
        None => serve(&cli),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bifrost-gateway: {error:#}");
            if error.is::<config::Problems>() {
                WRONG_SETTINGS.into()
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn settings(cli: &Cli) -> anyhow::Result<config::Loaded> {
    Ok(config::load(&start::sources(cli, None)?)?)
}

fn check(cli: &Cli) -> anyhow::Result<()> {
    start::could_serve(cli, &settings(cli)?.config)?;
    println!("the settings are fine");
    Ok(())
}

fn test_telemetry(cli: &Cli) -> anyhow::Result<()> {
    let settings = settings(cli)?.config;
    logging::start(&settings.log);
    let findings = self_test::run(&settings.telemetry)?;
    println!("{findings}");
    anyhow::ensure!(findings.holds(), "telemetry is over its budget here");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn serve(cli: &Cli) -> anyhow::Result<()> {
    Clock::prepare();
    let demo = start::demo(cli)?;
    let sources = start::sources(cli, demo.as_ref())?;
    let loaded = config::load(&sources)?;
    start::has_a_provider(&loaded.config)?;
    logging::start(&loaded.config.log);
    let mut signals = Signals::new()?;
    let supervisor = Arc::new(Supervisor::find(|name| std::env::var_os(name))?);
    let server = Server::start(loaded.config)?;
    let hangup = signal(SignalKind::hangup())?;
    let told = Arc::clone(&supervisor);
    tokio::spawn(reload::watch(server.reload(), hangup, sources, told));
    let load = start::greet(cli, &server)?;
    supervisor.tell(State::Ready);
    let told = Arc::clone(&supervisor);
    tokio::spawn(async move { told.reassure().await });
    let stop = async {
        signals.next().await;
        supervisor.tell(State::Stopping);
        // What the demo's load still wanted must not look like failures.
        drop(load);
        signals
    };
    let hurry = async |mut signals: Signals| {
        signals.next().await;
    };
    tracing::info!(drained = ?server.serve(stop, hurry).await, "stopped");
    Ok(())
}
