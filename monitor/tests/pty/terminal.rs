//! The monitor in a terminal of its own, whose screen can be looked at.

use std::io::{Read as _, Write};
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use portable_pty::{
    Child, CommandBuilder, ExitStatus, MasterPty, PtySize, SlavePty, native_pty_system,
};
use rustix::process::{Pid, Signal, kill_process};

/// Nothing that a test waits for takes longer on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// The monitor and its terminal.
pub(crate) struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    screen: Arc<Mutex<vt100::Parser>>,
    settings_before: String,
    /// None once it was pulled.
    line: Option<Line>,
}

/// What connects them. Dropping it is closing the window.
struct Line {
    master: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    /// Kept, so that the terminal's settings can be asked for after the monitor's end.
    slave: Option<Box<dyn SlavePty + Send>>,
    reader: Option<JoinHandle<()>>,
    is_pulled: Arc<AtomicBool>,
}

impl Terminal {
    /// Starts the monitor on `segment` in a terminal of that size.
    pub(crate) fn start(segment: &Path, size: (u16, u16), variables: &[(&str, &str)]) -> Self {
        let arguments = ["--segment", segment.to_str().unwrap()];
        // What it writes ends with the test.
        Self::start_in(segment.parent(), &arguments, size, variables)
    }

    /// Starts it with any arguments.
    pub(crate) fn start_with(
        arguments: &[&str],
        size: (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        Self::start_in(None, arguments, size, variables)
    }

    fn start_in(
        directory: Option<&Path>,
        arguments: &[&str],
        size: (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        let screen = Arc::new(Mutex::new(parser(size)));
        let line = Line::to(Arc::clone(&screen), size);
        let settings_before = line.settings();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_bifrost-monitor"));
        command.args(arguments);
        if let Some(directory) = directory {
            command.cwd(directory);
        }
        let usual = [("TERM", "xterm-256color"), ("LC_ALL", "C.UTF-8")];
        for (name, value) in usual.iter().chain(variables) {
            command.env(name, value);
        }
        let slave = line.slave.as_ref().unwrap();
        Self {
            child: slave.spawn_command(command).unwrap(),
            screen,
            settings_before,
            line: Some(line),
        }
    }

    /// Types.
    pub(crate) fn press(&mut self, keys: &str) {
        let line = self.line.as_mut().unwrap();
        line.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Gives it another size.
    pub(crate) fn resize(&mut self, size: (u16, u16)) {
        *self.screen.lock().unwrap() = parser(size);
        let line = self.line.as_ref().unwrap();
        line.master.resize(pty_size(size)).unwrap();
    }

    /// Signals the monitor.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.process_id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// What stands on the screen.
    pub(crate) fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen holds all of `words`, doing `meanwhile` again and again. Says how long it took.
    pub(crate) fn shows(&self, words: &[&str], mut meanwhile: impl FnMut()) -> Duration {
        let holds = || {
            let text = self.text();
            words.iter().all(|word| text.contains(word))
        };
        let seen = || self.text();
        within(&format!("{words:?}"), seen, || {
            meanwhile();
            holds()
        })
    }

    /// Waits until the terminal is the shell's again, with the settings it had.
    pub(crate) fn is_given_back(&self) {
        within(
            "the terminal as it was",
            || self.text(),
            || {
                let screen = self.screen.lock().unwrap();
                let is_shells =
                    !screen.screen().alternate_screen() && !screen.screen().hide_cursor();
                let line = self.line.as_ref().unwrap();
                is_shells && line.settings() == self.settings_before
            },
        );
    }

    /// Whether anything on the screen has a colour.
    pub(crate) fn has_colours(&self) -> bool {
        let screen = self.screen.lock().unwrap();
        let (height, width) = screen.screen().size();
        let (height, width) = (height.get(), width.get());
        let mut places = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
        places.any(|(y, x)| {
            let cell = screen.screen().cell(y, x).unwrap();
            (cell.fgcolor(), cell.bgcolor()) != (vt100::Color::Default, vt100::Color::Default)
        })
    }

    /// Whether the monitor has the terminal.
    pub(crate) fn is_taken(&self) -> bool {
        self.screen.lock().unwrap().screen().alternate_screen()
    }

    /// Waits for the monitor's end, and that it has left the terminal as it was.
    pub(crate) fn ends(mut self) -> ExitStatus {
        let status = self.end();
        let is_restored = || {
            let screen = self.screen.lock().unwrap();
            !screen.screen().alternate_screen() && !screen.screen().hide_cursor()
        };
        within("the terminal as it was", || self.text(), is_restored);
        let settings = self.line.as_ref().unwrap().settings();
        assert_eq!(settings, self.settings_before);
        status
    }

    /// Closes the window, and waits for the monitor's end.
    pub(crate) fn unplug(mut self) {
        self.line = None;
        self.end();
    }

    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        let screen = Arc::clone(&self.screen);
        let seen = || screen.lock().unwrap().screen().contents();
        within("the end", seen, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A failed test leaves nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Line {
    /// A line whose far end is shown on `screen`.
    fn to(screen: Arc<Mutex<vt100::Parser>>, size: (u16, u16)) -> Self {
        let pty = native_pty_system().openpty(pty_size(size)).unwrap();
        let is_pulled = Arc::new(AtomicBool::new(false));
        let mut output = pty.master.try_clone_reader().unwrap();
        let reader = thread::spawn({
            let is_pulled = Arc::clone(&is_pulled);
            move || {
                let mut bytes = [0; 4_096];
                while let Ok(read @ 1..) = output.read(&mut bytes) {
                    if is_pulled.load(Ordering::Relaxed) {
                        break;
                    }
                    screen.lock().unwrap().process(&bytes[..read]);
                }
            }
        });
        Self {
            keyboard: pty.master.take_writer().unwrap(),
            master: pty.master,
            slave: Some(pty.slave),
            reader: Some(reader),
            is_pulled,
        }
    }

    fn settings(&self) -> String {
        format!("{:?}", self.master.get_termios().unwrap())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.is_pulled.store(true, Ordering::Relaxed);
        self.slave = None;
        // The reader holds the line, too. It ends with the monitor, or with the next thing that the monitor draws.
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

fn within(what: &str, seen: impl Fn() -> String, mut is_so: impl FnMut() -> bool) -> Duration {
    let since = Instant::now();
    while !is_so() {
        let waited = since.elapsed();
        assert!(waited < SOON, "waited for {what}, saw:\n{}", seen());
        thread::sleep(Duration::from_millis(10));
    }
    since.elapsed()
}

fn parser((width, height): (u16, u16)) -> vt100::Parser {
    let [width, height] = [width, height].map(|it| NonZeroU16::new(it).unwrap());
    vt100::Parser::new(height, width, 0)
}

fn pty_size((width, height): (u16, u16)) -> PtySize {
    PtySize {
        rows: height,
        cols: width,
        pixel_width: 0,
        pixel_height: 0,
    }
}
