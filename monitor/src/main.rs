//! A terminal dashboard for the Bifrost gateway, and a verdict on whether its instance is still big enough.
//!
//! # The loop
//!
//! ```text
//! [segment], [admin listener], [recording] ─▶ source ─▶ model ─▶ view ─▶ terminal
//!                                               │         │  │      └─▶ picture ─▶ file
//!                                               │         │  └─▶ report ─▶ standard output
//!                                               │         └─ verdict
//!                                               └─▶ recorder ─▶ file
//! ```
//!
//! One thread, and one more that asks a gateway elsewhere. At each tick the source is asked what there is to see, the model takes it, and the screen is drawn; in
//! between we wait for a key, which changes the model and draws again. Nothing else draws, so an idle monitor costs
//! nothing. Signals only set a flag: every end is the normal one, which gives the terminal back.
//!
//! # Invariants
//!
//! - The model has never heard of a terminal, nor the view of a source.
//! - Nobody but the source and this file reads a clock, so whatever is shown can be shown again in a test.
//! - The segment is read, never written.

mod cli;
mod format;
mod input;
mod model;
mod origin;
mod packed;
mod picture;
mod react;
mod recording;
mod report;
mod save;
mod scenario;
mod source;
mod terminal;
mod verdict;
mod view;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use crossterm::event::{self, Event};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};

use cli::{Arguments, INTERVALS, Mode, NO_VERDICT, Picture, Settings};
use model::Model;
use model::liveness::Liveness;
use origin::Origin;
use react::Reaction;
use recording::recorder::Recorder;
use source::Source;
use terminal::Screen;

/// Set by a test that wants to see a panic.
const PANIC_VARIABLE: &str = "BIFROST_MONITOR_TEST_PANIC";
/// The longest wait before the stop flag is looked at again.
const PATIENCE: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let typed = match Arguments::read() {
        Ok(typed) => typed,
        Err(status) => return ExitCode::from(status),
    };
    let is_terminal = io::stdout().is_terminal();
    let documentation = typed.documentation();
    let settings = Settings::of(typed, |name| std::env::var_os(name), is_terminal);
    let done = match documentation {
        Some(text) => print(&text),
        None => run(&settings),
    };
    match done {
        Ok(code) => code,
        // Whoever read our output has had enough. The status of a check is its answer.
        Err(error) if is_broken_pipe(&error) && settings.mode != Mode::Check => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be a terminal that is gone, which is no reason to panic.
            let _ = writeln!(io::stderr(), "bifrost-monitor: {error:#}");
            match settings.mode {
                Mode::Check => ExitCode::from(NO_VERDICT),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    io::stdout().lock().write_all(text)?;
    Ok(ExitCode::SUCCESS)
}

fn run(settings: &Settings) -> anyhow::Result<ExitCode> {
    let stop = stop_flag().context("can't listen for signals")?;
    let mut source = Recorder::new(settings.origin.source());
    if let Some(path) = &settings.record {
        let context = || format!("can't record to {}", path.display());
        source.start(path).with_context(context)?;
    }
    let mut model = Model::new(settings.window);
    model.focus.theme = settings.theme;
    model.focus.turn_to(settings.topic);
    match settings.mode {
        Mode::Screen => on_screen(settings, &mut source, &mut model, &stop)?,
        Mode::Watch => in_lines(settings, &mut source, &mut model, &stop)?,
        Mode::Once | Mode::Json => return once(settings, &mut source, &mut model),
        Mode::Check => {
            look(&mut source, &mut model);
            let (line, status) = report::check(&model);
            writeln!(io::stdout().lock(), "{line}")?;
            return Ok(ExitCode::from(status));
        }
        Mode::Picture => return draw(settings, &mut source, &mut model),
        Mode::List => return list(&settings.origin),
    }
    // On a screen there was no other place to say it.
    if let (Mode::Screen, Some(complaint)) = (settings.mode, source.complaint()) {
        anyhow::bail!("{complaint}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes all that there is to see.
fn look(source: &mut impl Source, model: &mut Model) {
    model.absorb(source.poll());
    while source.is_behind() {
        model.absorb(source.poll());
    }
}

/// Draws on ticks, keys and changes of size, until the user or a signal ends it.
fn on_screen(
    settings: &Settings,
    source: &mut Recorder,
    model: &mut Model,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let (suspend, goes_on) = job_flags().context("can't listen for signals")?;
    let mut screen = Screen::enter().context("can't take the terminal over")?;
    let mut interval = settings.interval;
    let mut next_tick = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if suspend.swap(false, Ordering::Relaxed) {
            screen.suspend()?;
            goes_on.store(false, Ordering::Relaxed);
            next_tick = Instant::now();
        }
        if goes_on.swap(false, Ordering::Relaxed) {
            // Stopped by a signal that can't be caught; who knows what the terminal is like now.
            screen.resume()?;
            next_tick = Instant::now();
        }
        let left = next_tick.saturating_duration_since(Instant::now());
        if left.is_zero() {
            look(source, model);
            if model.focus.is_recording && !source.is_recording() {
                model.focus.notice = source.complaint().map(ToOwned::to_owned);
            }
            model.focus.is_recording = source.is_recording();
            next_tick = Instant::now() + interval;
            screen.draw(model, settings.look)?;
            panic_if_tested();
            continue;
        }
        if !event::poll(wait_of(left.min(PATIENCE)))? {
            continue;
        }
        match reaction(&event::read()?, model) {
            None => continue,
            Some(Reaction::End) => break,
            Some(Reaction::Draw) => {}
            Some(Reaction::Redraw) => screen.forget()?,
            Some(Reaction::Suspend) => {
                suspend.store(true, Ordering::Relaxed);
                continue;
            }
            Some(Reaction::ToggleRecording) => {
                model.focus.notice = Some(recording_toggled(source, model));
                model.focus.is_recording = source.is_recording();
            }
            Some(Reaction::Save) => model.focus.notice = Some(saved(&screen, model, settings)),
            Some(change @ (Reaction::Faster | Reaction::Slower)) => {
                interval = match change {
                    Reaction::Faster => interval / 2,
                    _ => interval * 2,
                };
                interval = interval.clamp(*INTERVALS.start(), *INTERVALS.end());
                model.focus.notice = Some(format!("looks every {interval:?}"));
            }
        }
        screen.draw(model, settings.look)?;
    }
    Ok(())
}

/// How long to wait for a key, at least `left`. Crossterm waits for whole milliseconds and spins through the rest, at up
/// to 1 ms three times a tick: more than half of all that an idle monitor cost. The kernel wakes us some 60 µs late, so
/// that a little more than whole ones is over by then.
fn wait_of(left: Duration) -> Duration {
    let millisecond = Duration::from_millis(1);
    let milliseconds = u32::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u32::MAX);
    millisecond.saturating_mul(milliseconds) + Duration::from_micros(50)
}

/// What follows from an event, if anything.
fn reaction(event: &Event, model: &mut Model) -> Option<Reaction> {
    match event {
        Event::Resize(..) => Some(Reaction::Redraw),
        Event::Key(key) => {
            let action = if model.focus.is_typing {
                input::typed(*key)
            } else {
                input::action(*key)
            };
            Some(react::to(action?, model))
        }
        _ => None,
    }
}

/// Begins to record into a new file, or ends that, and says what came of it.
fn recording_toggled(source: &mut Recorder, model: &Model) -> String {
    if let Some(path) = source.stop() {
        return format!("recorded to {}", path.display());
    }
    let directory = std::env::current_dir().unwrap_or_default();
    let made = save::in_new_file(&directory, model.seen_at(), "jsonl", |path| {
        source.start(path)
    });
    match made {
        Ok(path) => format!("recording to {}", path.display()),
        Err(error) => format!("can't record to {}: {error}", directory.display()),
    }
}

/// Writes the screen to a file, and says what came of it.
fn saved(screen: &Screen, model: &Model, settings: &Settings) -> String {
    let (width, height) = screen.size();
    // One row of the screen is for keys, which a file has no use for.
    let text = view::text(width, height.saturating_sub(1), model, settings.look);
    let directory = std::env::current_dir().unwrap_or_default();
    match save::to_file(&directory, model.seen_at(), &text) {
        Ok(path) => format!("written to {}", path.display()),
        Err(error) => format!("can't write to {}: {error}", directory.display()),
    }
}

fn in_lines(
    settings: &Settings,
    source: &mut Recorder,
    model: &mut Model,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut next_tick = Instant::now();
    let mut has_complained = false;
    while !stop.load(Ordering::Relaxed) {
        let left = next_tick.saturating_duration_since(Instant::now());
        if left.is_zero() {
            model.absorb(source.poll());
            if !source.is_behind() {
                next_tick += settings.interval;
            }
            writeln!(
                io::stdout().lock(),
                "{}",
                report::line(model, settings.look)
            )?;
            if let (false, Some(complaint)) = (has_complained, source.complaint()) {
                has_complained = true;
                let _ = writeln!(io::stderr(), "bifrost-monitor: {complaint}");
            }
            if source.is_over() {
                break;
            }
        } else {
            thread::sleep(left.min(PATIENCE));
        }
    }
    Ok(())
}

fn list(origin: &Origin) -> anyhow::Result<ExitCode> {
    let found = origin.segments().into_iter().map(|(path, observation)| {
        let mut model = Model::default();
        model.absorb(observation);
        (path, model)
    });
    let found: Vec<_> = found.collect();
    writeln!(io::stdout().lock(), "{}", report::list(&found))?;
    if found.is_empty() {
        let mut model = Model::default();
        model.absorb(origin.source().poll());
        return Ok(complain(&model));
    }
    let lives = |model: &Model| model.liveness().is_some_and(Liveness::is_alive);
    if found.iter().any(|(_, model)| lives(model)) {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::from(NO_VERDICT))
}

/// Writes a picture of what there is to see, be it that there is nothing.
fn draw(
    settings: &Settings,
    source: &mut impl Source,
    model: &mut Model,
) -> anyhow::Result<ExitCode> {
    look(source, model);
    let Picture { path, size, ground } = &settings.picture;
    let screen = view::buffer(size.0, size.1, model, settings.look);
    let svg = picture::svg(&screen, *ground, &report::check(model).0);
    if path.as_deref() == Some(Path::new("-")) {
        io::stdout().lock().write_all(svg.as_bytes())?;
    } else if let Some(path) = path {
        let context = || format!("can't write {}", path.display());
        std::fs::write(path, svg).with_context(context)?;
    }
    Ok(complain(model))
}

fn once(
    settings: &Settings,
    source: &mut impl Source,
    model: &mut Model,
) -> anyhow::Result<ExitCode> {
    look(source, model);
    let text = match settings.mode {
        Mode::Json => Some(report::json::text(model, source.samples().as_ref())?),
        _ => model
            .gateway()
            .map(|_| report::screen(model, settings.look)),
    };
    if let Some(text) = text {
        writeln!(io::stdout().lock(), "{text}")?;
    }
    Ok(complain(model))
}

/// Says what is wrong where there is no gateway, also by the exit status.
fn complain(model: &Model) -> ExitCode {
    let Some(trouble) = model.trouble() else {
        return ExitCode::SUCCESS;
    };
    let (label, what, remedy) = (trouble.label(), trouble.what(), trouble.remedy());
    // Standard error may be gone, which is no reason to panic.
    let _ = writeln!(io::stderr(), "{label}: {what}\n{remedy}");
    ExitCode::from(NO_VERDICT)
}

/// A flag that is raised when somebody asks the process to end.
fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Flags that are raised when somebody asks the process to stop for a while, and when it goes on.
fn job_flags() -> io::Result<(Arc<AtomicBool>, Arc<AtomicBool>)> {
    let flags = [SIGTSTP, SIGCONT].map(|signal| {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, Arc::clone(&flag)).map(|_| flag)
    });
    let [suspend, goes_on] = flags;
    Ok((suspend?, goes_on?))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Lets a test see that a panic gives the terminal back. Not in a release build.
fn panic_if_tested() {
    let is_asked = cfg!(debug_assertions) && std::env::var_os(PANIC_VARIABLE).is_some();
    assert!(!is_asked, "{PANIC_VARIABLE} asks for a panic");
}
