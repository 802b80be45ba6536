//! The command line.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::load::LoadArgs;
use crate::mock::MockArgs;

/// One OpenAI-compatible API in front of many LLM providers, with live stage timings.
#[derive(Debug, Parser)]
#[command(name = "bifrost-gateway", version, arg_required_else_help = false, after_help = AFTER_HELP)]
pub struct Cli {
    /// Read settings from this file (TOML or JSON)
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// Listen here [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", global = true)]
    pub listen: Option<String>,

    /// Make the telemetry segment here: a directory, or a file that ends in .seg
    #[arg(long, value_name = "PATH", global = true)]
    pub segment: Option<OsString>,

    /// Serve an embedded mock provider: no key and no account needed
    #[arg(long)]
    pub demo: bool,

    /// With --demo: send this many requests a second through the front door
    #[arg(long, value_name = "N", requires = "demo")]
    pub demo_load: Option<NonZeroU32>,

    /// With --demo: how long the mock provider takes to answer
    #[arg(long, value_name = "TIME", requires = "demo", default_value = "50ms", value_parser = humantime::parse_duration)]
    pub demo_delay: Duration,

    /// What to do instead of serving
    #[command(subcommand)]
    pub command: Option<Task>,
}

const AFTER_HELP: &str = "\
With no file, the well-known variables are enough: OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY, GROQ_API_KEY, …
Every setting is a variable, too: BIFROST_ and its path, with __ between the parts, as in
BIFROST_PROVIDERS__OPENAI__BASE_URL. Settings are taken from defaults, then the file, then variables, then flags.

Exit status: 0 after an orderly end, 1 if serving failed, 2 for a wrong command line, 78 for wrong settings.";

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Check the settings, and say what is wrong with them
    Check,
    /// Work with the settings
    #[command(subcommand)]
    Config(ConfigTask),
    /// Look after telemetry
    #[command(subcommand)]
    Telemetry(TelemetryTask),
    /// The demo's provider, as a process of its own
    #[command(hide = true)]
    Mock(MockArgs),
    /// The demo's load, as a process of its own
    #[command(hide = true)]
    Load(LoadArgs),
}

/// What to do with telemetry.
#[derive(Debug, Subcommand)]
pub enum TelemetryTask {
    /// Measure what it costs on this machine, and say where its segment goes. The exit status is 1 if the budget of
    /// 200 ns a request does not hold
    SelfTest,
}

/// What to do with the settings.
#[derive(Debug, Subcommand)]
pub enum ConfigTask {
    /// Print them as they are in force, with where each comes from; secrets are masked
    Show,
}
