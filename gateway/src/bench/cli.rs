//! The command line of `bifrost-bench`.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use super::certificate;
use super::scenario::Name;
use super::target::{Dialect, Mix};
use crate::mock::{MockArgs, Tls};

/// Benchmark an LLM gateway as the t3.medium page does, and show what that page hides.
#[derive(Debug, Parser)]
#[command(name = "bifrost-bench", version, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    pub(super) task: Task,
}

const AFTER_HELP: &str = "\
`run` starts a mock provider, a gateway and a load by itself, asks the provider directly in alternation, and prints
Markdown. `mock` and `load` are the same parts for measuring any other gateway by hand:

  bifrost-bench mock --address 127.0.0.1:9100 --delay 1500ms --spread 0.4 &
  bifrost-bench load --url http://127.0.0.1:8080 --rate 5000 --time 30s

A load that is interrupted sends no more, and reports what it found; a second time it ends at once.

Exit status: 0 when all that was measured succeeded and was counted alike on all sides, 1 when requests failed or nothing
could be measured, 2 for a wrong command line, 130 when it was interrupted.";

#[derive(Debug, Subcommand)]
pub(super) enum Task {
    /// Measure a gateway under a load of the benchmark page, and print its tables
    Run(RunArgs),
    /// Send a load to a gateway, or to several in turn
    Load(LoadArgs),
    /// Be a provider: as slow and as faulty as told
    Mock(ProviderArgs),
    /// Print two results of `run --json` side by side
    Compare {
        /// What to compare with
        before: PathBuf,
        /// What is compared
        after: PathBuf,
    },
    /// Become `program`, and end when our parent does
    #[command(hide = true)]
    Leash {
        /// Wait for a byte of input before
        #[arg(long)]
        held: bool,
        parent: u32,
        program: OsString,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// What `run` measures, and how.
#[derive(Debug, Clone, Args)]
pub(super) struct RunArgs {
    /// Which load
    #[arg(value_enum)]
    pub(super) scenario: Name,

    /// The gateway's program [default: bifrost-gateway beside this one]
    #[arg(long, value_name = "PATH")]
    pub(super) gateway: Option<PathBuf>,

    /// A provider elsewhere instead of a mock here: `bifrost-bench mock` on another machine
    #[arg(long, value_name = "URL")]
    pub(super) real_socket: Option<String>,

    /// Requests a second [default: the scenario's]
    #[arg(long, value_name = "N")]
    pub(super) rate: Option<NonZeroU32>,

    /// Send what is due at each tick only, as tools do whose timers tick in whole milliseconds
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    pub(super) tick: Option<Duration>,

    /// How long each measurement takes, after its warm-up [default: the scenario's]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    pub(super) time: Option<Duration>,

    /// How often everything is measured, in alternation with the direct path [default: the scenario's]
    #[arg(long, value_name = "N")]
    pub(super) rounds: Option<NonZeroU32>,

    /// Measure nginx as a plain proxy, too, in the same alternation
    #[arg(long)]
    pub(super) nginx: bool,

    /// Only the scenario's own load: none of the other shapes, no search for the highest rate, no idle time
    #[arg(long)]
    pub(super) page_only: bool,

    /// Measure how cost grows with load and with the size of prompts and answers, too
    #[arg(long)]
    pub(super) growth: bool,

    /// Write all that was measured to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,

    /// Write plots into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) svg: Option<PathBuf>,
}

impl RunArgs {
    /// What was asked for that `growth`, whose loads and provider are its own, has no use for.
    pub(super) fn unused(&self) -> Option<&'static str> {
        let given = [
            ("--real-socket", self.real_socket.is_some()),
            ("--rate", self.rate.is_some()),
            ("--tick", self.tick.is_some()),
            ("--time", self.time.is_some()),
            ("--rounds", self.rounds.is_some()),
            ("--nginx", self.nginx),
            ("--page-only", self.page_only),
            ("--svg", self.svg.is_some()),
        ];
        let mut given = given.into_iter().filter(|(_, is_given)| *is_given);
        let first = given.next().map(|(name, _)| name);
        first.filter(|_| self.scenario == Name::Growth)
    }
}

/// A load.
#[derive(Debug, Clone, Args)]
pub(super) struct LoadArgs {
    /// Whom to ask; more than one are asked one after the other. Without a path, the dialect's own
    #[arg(long = "url", value_name = "URL", required = true)]
    pub(super) urls: Vec<String>,

    /// The API that they speak
    #[arg(long, value_enum, default_value = "openai")]
    pub(super) dialect: Dialect,

    /// Open loop: requests a second, whether or not earlier ones came back; latency counts from the time each is due
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "connections",
        conflicts_with = "connections"
    )]
    pub(super) rate: Option<NonZeroU32>,

    /// With --rate: rise or fall evenly to this rate at the end (ramp)
    #[arg(
        long,
        value_name = "N",
        requires = "rate",
        conflicts_with = "connections"
    )]
    pub(super) rate_at_end: Option<u32>,

    /// With --rate: rise evenly from nothing to it within so much time at the start, as real load does
    #[arg(
        long,
        value_name = "TIME",
        default_value = "0s",
        requires = "rate",
        conflicts_with = "connections",
        value_parser = humantime::parse_duration
    )]
    pub(super) rise: Duration,

    /// With --rate: that many requests more, all at once, every --burst-every
    #[arg(
        long,
        value_name = "N",
        requires = "rate",
        conflicts_with = "connections"
    )]
    pub(super) burst: Option<NonZeroU32>,

    /// Time between two bursts
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "burst", value_parser = some_time)]
    pub(super) burst_every: Duration,

    /// With --rate: at even distances, instead of independently of each other (Poisson)
    #[arg(long, requires = "rate", conflicts_with = "connections")]
    pub(super) even: bool,

    /// With --rate: send what is due at each tick only, as tools do whose timers tick in whole milliseconds. It saves
    /// everybody wake-ups, and is in the latency
    #[arg(long, value_name = "TIME", requires = "rate", conflicts_with = "connections", value_parser = some_time)]
    pub(super) tick: Option<Duration>,

    /// Closed loop: so many connections, each asking again as soon as it was answered
    #[arg(long, value_name = "N")]
    pub(super) connections: Option<NonZeroU32>,

    /// With --connections: requests on each of them, and then no more; all are measured
    #[arg(long, value_name = "N", default_value = "0", requires = "connections")]
    pub(super) requests_each: u64,

    /// Kinds of requests in turn: plain, stream, big, each with a number, as in plain:7,stream:2,big:1
    #[arg(long, default_value = "plain")]
    pub(super) mix: Mix,

    /// How long requests are measured, after the warm-up; as long as you like for a soak
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = some_time)]
    pub(super) time: Duration,

    /// How long requests are sent before that
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    pub(super) warm_up: Duration,

    /// How long a request may take
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time)]
    pub(super) timeout: Duration,

    /// The model to ask for
    #[arg(long, value_name = "NAME", default_value = "gpt-4o-mini")]
    pub(super) model: String,

    /// Size of a request's body; a frame of some 80 bytes is the least. The page's had 0.13 KB
    #[arg(long, value_name = "BYTES", default_value = "133")]
    pub(super) prompt_bytes: u32,

    /// The same for the big ones of a mix
    #[arg(long, value_name = "BYTES", default_value = "102400")]
    pub(super) big_bytes: u32,

    /// The client key to send
    #[arg(long, value_name = "KEY", default_value = "bench")]
    pub(super) key: String,

    /// A header to send, as in "x-team: blue"; may be repeated
    #[arg(long = "header", value_name = "HEADER", value_parser = header)]
    pub(super) headers: Vec<(String, String)>,

    /// Print JSON instead of Markdown: a line for each target
    #[arg(long)]
    pub(super) json: bool,

    /// How the line of progress calls it
    #[arg(long, hide = true, default_value = "load")]
    pub(super) name: String,
}

/// A provider: what it answers, and whether it speaks TLS. Such a one answers plain HTTP as well on the same port.
#[derive(Debug, Clone, Args)]
pub(super) struct ProviderArgs {
    #[command(flatten)]
    pub(super) mock: MockArgs,

    /// Speak TLS, too, with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// Speak TLS, too, with a certificate made now, and write that to this file for whoever is to trust it: a gateway's
    /// `ca_file`
    #[arg(long, value_name = "FILE", conflicts_with = "tls_certificate")]
    tls_self_signed: Option<PathBuf>,
}

impl ProviderArgs {
    /// The certificate that it shows, if it shows one.
    pub(super) fn tls(&self) -> anyhow::Result<Option<Tls>> {
        let made = |file| certificate::self_signed(self.mock.address.ip(), file);
        match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => Tls::read(certificate, key).map(Some),
            _ => self.tls_self_signed.as_deref().map(made).transpose(),
        }
    }
}

fn some_time(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        Ok(_) => Err("it has to be more than nothing".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected `name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the command line is refused for.
    fn refusal(line: &str) -> Option<String> {
        let words = std::iter::once("bifrost-bench").chain(line.split(' '));
        match Cli::try_parse_from(words) {
            Err(error) => Some(error.to_string()),
            Ok(Cli {
                task: Task::Run(args),
            }) => args.unused().map(str::to_owned),
            Ok(_) => None,
        }
    }

    #[test]
    fn what_would_have_no_effect_is_refused() {
        let check = |line: &str, named: &str| {
            let said = refusal(line).unwrap_or_default();
            assert!(said.contains(named), "{line}: {said:?}");
        };
        let closed = "load --url http://127.0.0.1 --connections 2";
        assert_eq!(refusal(closed), None);
        for open in [
            "--burst 3",
            "--even",
            "--tick 1ms",
            "--rate-at-end 9",
            "--rise 5s",
            "--rate 1",
        ] {
            let (name, _) = open.split_once(' ').unwrap_or((open, ""));
            check(&format!("{closed} {open}"), name);
        }
        check(
            "load --url http://127.0.0.1 --rate 1 --burst-every 2s",
            "--burst",
        );
        assert_eq!(refusal("run growth --json a"), None);
        assert_eq!(refusal("run quick --rate 5 --nginx"), None);
        for unused in [
            "--rate 5",
            "--nginx",
            "--time 5s",
            "--real-socket http://127.0.0.1",
        ] {
            let (name, _) = unused.split_once(' ').unwrap_or((unused, ""));
            check(&format!("run growth {unused}"), name);
        }
        check("run quick --time 0s", "more than nothing");
    }
}
