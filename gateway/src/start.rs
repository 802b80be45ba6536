//! What a start says and needs beyond the settings: the demo's provider, a provider at all, and a word to the user.

use std::net::SocketAddr;

use anyhow::Context as _;

use crate::cli::Cli;
use crate::config::{Config, Environment, Flag, Problem, Problems, Sources, well_known_variables};
use crate::demo::Child;
use crate::mock;
use crate::server::{Certificates, Server};

/// The model that the demo's load and its `curl` line ask for.
const DEMO_MODEL: &str = "demo/gpt-4o-mini";

/// The demo's provider: a process that ends when this is dropped.
#[derive(Debug)]
pub struct Demo {
    address: SocketAddr,
    _provider: Child,
}

/// Starts the demo's provider, if the command line asks for it.
///
/// # Errors
///
/// If the process can't be started.
pub fn demo(cli: &Cli) -> anyhow::Result<Option<Demo>> {
    if !cli.demo {
        return Ok(None);
    }
    let settings = mock::Settings {
        delay: cli.demo_delay,
        ..mock::Settings::default()
    };
    let (provider, address) = Child::mock(&settings).context("the demo's provider")?;
    Ok(Some(Demo {
        address,
        _provider: provider,
    }))
}

/// Where the settings come from: the file, the process's variables, the flags, and the demo.
///
/// # Errors
///
/// If a path on the command line is no text.
pub fn sources(cli: &Cli, demo: Option<&Demo>) -> anyhow::Result<Sources> {
    let mut flags = vec![];
    if let Some(listen) = &cli.listen {
        flags.push(Flag {
            name: "--listen",
            path: "server.listen",
            value: listen.clone(),
        });
    }
    if let Some(segment) = &cli.segment {
        let segment = segment.to_str().context("--segment has to be UTF-8")?;
        flags.push(Flag {
            name: "--segment",
            path: "telemetry.segment",
            value: segment.to_owned(),
        });
    }
    if let Some(Demo { address, .. }) = demo {
        let base_url = format!("http://{address}/v1");
        flags.push(Flag {
            name: "--demo",
            path: "providers.demo.base_url",
            value: base_url,
        });
        // Two keys that open nothing, so that their shares can be seen.
        let keys = r#"[{name = "main", value = "demo", weight = 0.7}, {name = "spare", value = "demo", weight = 0.3}]"#;
        flags.push(Flag {
            name: "--demo",
            path: "providers.demo.keys",
            value: keys.to_owned(),
        });
    }
    Ok(Sources {
        file: cli.config.clone(),
        flags,
        environment: Environment::new(std::env::vars_os()),
    })
}

/// Without a provider there is nothing to serve, and the way out is said.
///
/// # Errors
///
/// If there is none.
pub fn has_a_provider(config: &Config) -> anyhow::Result<()> {
    if config.providers.is_empty() {
        let variables = well_known_variables().collect::<Vec<_>>().join(", ");
        let message = format!(
            "set one of {variables}; or name a provider in a file (--config); or try --demo"
        );
        return Err(Problems(vec![Problem {
            place: "no provider is configured".to_owned(),
            message,
        }])
        .into());
    }
    Ok(())
}

/// Whether a start with `config` would get as far as its listener: `check` says what [`Server::start`] would refuse.
///
/// # Errors
///
/// If there is no provider, or the certificate can't be shown to anybody.
pub fn could_serve(cli: &Cli, config: &Config) -> anyhow::Result<()> {
    if !cli.demo {
        has_a_provider(config)?;
    }
    if let Some(files) = &config.server.tls {
        Certificates::read(files)?;
    }
    Ok(())
}

/// Says where everything is, and starts the demo's load. Standard output is for people here; the log goes to standard
/// error.
///
/// # Errors
///
/// If the load can't be started.
pub fn greet(cli: &Cli, server: &Server) -> anyhow::Result<Option<Child>> {
    let address = server.address();
    let admin = server.admin_address().map(|address| address.to_string());
    tracing::info!(%address, admin, segment = server.segment().map(|path| path.display().to_string()), "serving");
    if !cli.demo {
        return Ok(None);
    }
    println!("Bifrost listens on http://{address}/v1, in front of a mock provider.");
    println!();
    println!("  curl http://{address}/v1/chat/completions -H 'content-type: application/json' \\");
    println!(
        "    -d '{{\"model\":\"{DEMO_MODEL}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
    );
    println!();
    match server.segment() {
        Some(path) => {
            println!("Telemetry: {}", path.display());
            println!("Watch it:  bifrost-monitor --segment {}", path.display());
        }
        None => println!(
            "Telemetry: no place for the segment, so no monitor can attach (see the warning above)."
        ),
    }
    let load = cli
        .demo_load
        .map(|rate| Child::load(address, rate, DEMO_MODEL))
        .transpose()?;
    if let Some(rate) = cli.demo_load {
        println!("Load:      {rate} requests a second.");
    }
    Ok(load)
}
