//! `bifrost-bench`: the benchmark page's load, measured honestly, and what that page hides.
//!
//! ```text
//! run ─▶ measure ─┬─ mock      the provider          each a process of its own, so that
//!                 ├─ gateway   as its user has it    each one's time and memory are its own
//!                 ├─ load      what a client sees
//!                 └─ watch     what /proc and the gateway's segment tell meanwhile
//!        report ─▶ tables, JSON, plots
//! ```
//!
//! Each round asks the provider directly, then through a fresh gateway, and through nginx where asked for: what the
//! gateway adds is a difference of two measurements and not a guess. The mock tells with each answer how long it really
//! took, so that a difference of microseconds can be seen behind a delay of a second and a half.
//!
//! # Invariants
//!
//! - Every request of a load ends in exactly one count.
//! - Latency is counted from the time a request was due, not from when it was sent.
//! - Every figure is made of the JSON that `--json` writes, and of nothing else.
//! - Every process that was started ends when the benchmark does, however it ends.

mod about;
mod alarm;
mod arrivals;
mod certificate;
mod cli;
mod client;
mod compare;
mod drive;
mod figure;
#[cfg(test)]
mod fixture;
mod gateway;
mod growth;
mod hold;
mod limits;
mod measure;
mod nginx;
mod picks;
mod place;
mod plot;
mod process;
mod progress;
mod queued;
mod report;
mod scenario;
mod tables;
mod tally;
mod target;
mod told;
mod watch;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::CommandFactory as _;
use tokio::signal::unix::{SignalKind, signal};

use self::about::About;
use self::arrivals::Pattern;
pub use self::cli::Cli;
use self::cli::{LoadArgs, RunArgs, Task};
use self::client::Client;
use self::drive::{Loop, Plan};
use self::gateway::Gateway;
use self::measure::Bench;
use self::place::Place;
use self::progress::Progress;
use self::report::{FORMAT, Report, StartUp};
use self::scenario::{Name, Setup};
use self::tally::LoadReport;
use self::target::{Bodies, Target};
use crate::shutdown::Signals;
use crate::{child, mock};

/// How long a gateway keeps idle connections to its provider, and five seconds more.
const IDLE: Duration = Duration::from_secs(35);

/// How often a gateway is started to see how long that takes.
const STARTS: u32 = 9;

/// Does what the command line says, and tells whether all requests were answered well.
///
/// # Errors
///
/// When something can't be measured at all.
pub fn run(cli: Cli) -> anyhow::Result<bool> {
    limits::raise()?;
    match cli.task {
        Task::Run(args) => match args.unused() {
            Some(argument) => {
                let words = format!("{argument} has no part in `run growth`");
                let kind = clap::error::ErrorKind::ArgumentConflict;
                Cli::command().error(kind, words).exit()
            }
            None => benchmark(&args),
        },
        Task::Load(args) => load(&args),
        Task::Mock(args) => mock::run_alone(&args.mock, args.tls()?).map(|()| true),
        Task::Compare { before, after } => {
            let (before, after) = (compare::read(&before)?, compare::read(&after)?);
            print(&compare::markdown(&before, &after))?;
            Ok(true)
        }
        Task::Leash {
            held,
            parent,
            program,
            arguments,
        } => process::leash(parent, held, &program, &arguments).map(|()| true),
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn load(args: &LoadArgs) -> anyhow::Result<bool> {
    let runtime = child::runtime()?;
    let stop = {
        let _within = runtime.enter();
        stop_when_interrupted()?
    };
    let mut all_well = true;
    for url in &args.urls {
        let report = runtime.block_on(load_on(args, url, stop.clone()))?;
        // A load of which nothing was measured says nothing.
        all_well &= report.all.success() == Some(1.0) && report.measured.sent > 0;
        if args.json {
            print(&(serde_json::to_string(&report)? + "\n"))?;
        } else {
            print(&told::markdown(&report))?;
        }
        if *stop.borrow() {
            std::process::exit(INTERRUPTED);
        }
    }
    Ok(all_well)
}

/// Becomes true when a load is to end before its time.
type Stop = tokio::sync::watch::Receiver<bool>;

/// Tells of the first interruption, so that what was found until then can be told; a second one ends the process. To be
/// told to terminate ends it at once.
fn stop_when_interrupted() -> io::Result<Stop> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let (tell, told) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        interrupts.recv().await;
        tell.send_replace(true);
        interrupts.recv().await;
        std::process::exit(INTERRUPTED);
    });
    Ok(told)
}

async fn load_on(args: &LoadArgs, url: &str, stop: Stop) -> anyhow::Result<LoadReport> {
    let mut target = Target::new(url, args.dialect)?;
    target.key.clone_from(&args.key);
    target.headers.clone_from(&args.headers);
    let sizes = (args.prompt_bytes as usize, args.big_bytes as usize);
    let plan = Plan {
        how: args.how(),
        what: args.words(),
        url: url.to_owned(),
        bodies: Bodies::new(args.mix.clone(), &args.model, args.dialect, sizes),
        warm_up: args.warm_up(),
        time: args.warm_up() + args.time,
        stop,
    };
    let client = Client::new(&target, args.timeout)?;
    drive::drive(plan, client, &Progress::new(&args.name)).await
}

impl LoadArgs {
    /// A number of requests has none: it would end in it.
    fn warm_up(&self) -> Duration {
        match self.requests_each {
            0 => self.warm_up,
            _ => Duration::ZERO,
        }
    }

    fn how(&self) -> Loop {
        match (self.rate, self.connections) {
            (Some(rate), _) => Loop::Open(Pattern {
                rate: rate.get().into(),
                rate_at_end: self.rate_at_end.unwrap_or(rate.get()).into(),
                time: self.warm_up + self.time,
                rise: self.rise,
                even: self.even,
                burst: self.burst.map(|size| (size.get(), self.burst_every)),
                tick: self.tick,
            }),
            (None, connections) => Loop::Closed {
                connections: connections.map_or(1, std::num::NonZero::get),
                requests_each: self.requests_each,
            },
        }
    }

    fn words(&self) -> String {
        let time = |time: Duration| humantime::format_duration(time).to_string();
        let how = match self.how() {
            Loop::Open(pattern) => pattern.words(),
            Loop::Closed {
                connections,
                requests_each,
            } => match requests_each {
                0 => format!("{connections} connections"),
                each => format!("{connections} connections, {each} requests on each"),
            },
        };
        if self.requests_each > 0 {
            return format!("{how}; {}", self.mix);
        }
        let (span, warm_up) = (time(self.time), time(self.warm_up));
        format!("{how}; {}; for {span} after {warm_up} of warm-up", self.mix)
    }
}

fn benchmark(args: &RunArgs) -> anyhow::Result<bool> {
    // Before it takes minutes to find something to write there.
    if let Some(file) = &args.json {
        let opened = OpenOptions::new().append(true).create(true).open(file);
        opened.with_context(|| file.display().to_string())?;
    }
    if let Some(directory) = &args.svg {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    let program = match &args.gateway {
        Some(program) => program.clone(),
        None => process::ourselves()?.with_file_name("bifrost-gateway"),
    };
    let (gateway, gateway_bytes) = gateway::about(&program)?;
    let provider = args.real_socket.as_deref().map(elsewhere).transpose()?;
    let about = About {
        gateway,
        gateway_bytes,
        provider: provider.clone(),
        nginx: args.nginx.then(nginx::is_installed).transpose()?,
        ..About::here()
    };
    let place = Place::new()?;
    leave_when_told(&place)?;
    let bench = Bench {
        program: &program,
        place: &place,
        provider: provider.as_deref(),
        nginx: args.nginx,
        idle: (!args.page_only && args.scenario != Name::Quick).then_some(IDLE),
    };
    let report = measure(&bench, args, about)?;
    // First, since a reader of what is printed may have left.
    let written = args.json.as_ref().map(|file| write_json(&report, file));
    print(&report.markdown())?;
    written.transpose()?;
    if let (Some(directory), Some(page)) = (&args.svg, &report.page) {
        let names = plot::write(page, directory)?;
        eprintln!("plots in {}: {}", directory.display(), names.join(", "));
    }
    Ok(report.is_whole())
}

/// The URL of a provider elsewhere as far as its port, once it has answered: without one nothing can be measured.
fn elsewhere(url: &str) -> anyhow::Result<String> {
    let url = url.trim_end_matches('/');
    let url = url.strip_suffix("/v1").unwrap_or(url);
    let target = Target::new(url, target::Dialect::Openai)?;
    let asked = gateway::ask(target.address, &first_body(0)?);
    let status = asked.with_context(|| format!("the provider at {url} does not answer"))?;
    anyhow::ensure!(
        status == 200,
        "the provider at {url} answers with status {status}: `bifrost-bench mock` or the like is expected there"
    );
    Ok(url.to_owned())
}

/// A request's body, of so many bytes at least.
fn first_body(bytes: usize) -> anyhow::Result<bytes::Bytes> {
    let mix = "plain".parse().map_err(anyhow::Error::msg)?;
    let bodies = Bodies::new(mix, "gpt-4o-mini", target::Dialect::Openai, (bytes, 0));
    Ok(bodies.body(0).0)
}

fn measure(bench: &Bench<'_>, args: &RunArgs, about: About) -> anyhow::Result<Report> {
    let setup = args.setup();
    if args.scenario != Name::Growth {
        limits::check(&setup)?;
    }
    let mut report = Report {
        format: FORMAT,
        about,
        page: None,
        shapes: vec![],
        queued: None,
        picks: vec![],
        start: None,
        hold: None,
        growth: vec![],
        notes: vec![],
    };
    if args.scenario != Name::Growth {
        report.page = Some(bench.measure(&setup)?);
    }
    if args.scenario != Name::Growth && !args.page_only {
        if bench.provider.is_none() {
            let alone = Bench {
                idle: None,
                ..*bench
            };
            let shapes = setup.shapes();
            let shapes = shapes.iter().map(|shape| alone.measure(shape));
            report.shapes = shapes.collect::<anyhow::Result<_>>()?;
            report.queued = Some(queued::measure(&alone, &setup)?);
        } else {
            report.notes.push("one connection, 64 connections, streams, TLS to the provider and the queue's limit were not measured: they need other providers".to_owned());
        }
        report.picks = picks::measure()?;
        report.start = Some(start_up(bench, &setup)?);
        if args.scenario != Name::Quick {
            let page = report.page.iter().flat_map(|it| &it.rounds);
            let is_told = page.map(|it| &it.gateway.load).all(|it| !it.hop.is_empty());
            if is_told {
                report.hold = hold::search(bench, &setup)?;
            } else {
                report.notes.push("the highest rate held was not searched for: the provider doesn't say how long it takes, so nobody knows who waited".to_owned());
            }
        }
    }
    if args.growth && bench.provider.is_some() {
        report.notes.push(
            "how cost grows was not measured: that needs providers of other answers".to_owned(),
        );
    } else if args.growth || args.scenario == Name::Growth {
        report.growth = growth::measure(bench, &mut report.notes)?;
    }
    Ok(report)
}

impl RunArgs {
    fn setup(&self) -> Setup {
        let mut setup = Setup::page(self.scenario);
        if let Some(rate) = self.rate {
            setup.pace = scenario::Pace::Rate(rate.get());
        }
        setup.tick = self.tick;
        setup.elsewhere = self.real_socket.is_some();
        setup.time = self.time.unwrap_or(setup.time);
        setup.rounds = self.rounds.map_or(setup.rounds, std::num::NonZero::get);
        setup
    }
}

/// Status of a program that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;

/// Ends the process when it is told to. Its children end with it; what they wrote is taken away here.
fn leave_when_told(place: &Place) -> anyhow::Result<()> {
    let runtime = child::runtime()?;
    let mut signals = {
        let _within = runtime.enter();
        Signals::new()?
    };
    let directory = place.path().to_owned();
    std::thread::spawn(move || {
        runtime.block_on(signals.next());
        // It is in memory, and small.
        let _ = fs::remove_dir_all(directory);
        std::process::exit(INTERRUPTED);
    });
    Ok(())
}

/// Starts gateways, one after the other.
fn start_up(bench: &Bench<'_>, setup: &Setup) -> anyhow::Result<StartUp> {
    let instant = Setup {
        delay: Duration::ZERO,
        ..setup.clone()
    };
    let provider = measure::mock(&instant, bench.place)?;
    let body = first_body(setup.prompt_bytes as usize)?;
    let mut found = StartUp::default();
    for _ in 0..STARTS {
        let (gateway, took) = Gateway::start_cold(bench.start(setup, &provider), &body)?;
        found.cold.push(took.as_secs_f64() * 1e9);
        let used = process::used(gateway.pid()).with_context(|| gateway.last_words())?;
        found.rss.push(used.rss as f64);
    }
    Ok(found)
}

fn write_json(report: &Report, file: &PathBuf) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(report)? + "\n";
    fs::write(file, text).with_context(|| file.display().to_string())
}
