//! A gateway, its children and its monitors as processes of this machine.

use std::collections::HashSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

/// For what has to happen, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

/// The model that the demo serves.
const MODEL: &str = "demo/gpt-4o-mini";

/// Asks `look` until it has an answer.
pub(crate) fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, look)
}

/// Asks `look` until it has an answer, which has to be within `time`.
pub(crate) fn within<T>(time: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < time, "no {what} within {time:?}");
        thread::sleep(POLL);
    }
}

/// The gateway, with nothing of whoever runs the tests in its environment.
pub(crate) fn gateway() -> Command {
    command(Path::new(env!("CARGO_BIN_EXE_bifrost-gateway")))
}

/// The monitor. Its binary lies beside the gateway's, since cargo builds the whole workspace for its tests.
pub(crate) fn monitor(segment: &Path) -> Command {
    let mut command = bare_monitor();
    command.arg("--segment").arg(segment);
    command
}

/// The same without a segment.
pub(crate) fn bare_monitor() -> Command {
    let program =
        Path::new(env!("CARGO_BIN_EXE_bifrost-gateway")).with_file_name("bifrost-monitor");
    assert!(
        program.exists(),
        "{} is missing: run `cargo build --workspace`, or test the whole workspace",
        program.display()
    );
    command(&program)
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::null());
    command
}

/// A place for segments, and for what processes say.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("segments")).unwrap();
        Self(place)
    }

    /// The directory that gateways put their segments into.
    pub(crate) fn segments(&self) -> PathBuf {
        self.0.path().join("segments")
    }

    /// Names of what lies there.
    pub(crate) fn left_over(&self) -> Vec<String> {
        let entries = fs::read_dir(self.segments()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Writes a settings file.
    pub(crate) fn settings(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// What `bifrost-monitor --json` says of the newest gateway there.
    pub(crate) fn figures(&self) -> Value {
        let output = monitor(&self.segments()).arg("--json").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!(
                "{error}: {}",
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
            )
        })
    }
}

/// A gateway that serves its own demo; killed on drop, and its children with it.
pub(crate) struct Demo {
    pub(crate) process: Child,
    /// Where it listens.
    pub(crate) address: String,
    out: PathBuf,
    log: PathBuf,
}

impl Demo {
    /// Starts one with its segment in `place`.
    pub(crate) fn start(place: &Place, flags: &[&str]) -> Self {
        let segment = place.segments();
        let segment = segment.to_str().unwrap();
        Self::start_with_segment(place, segment, flags)
    }

    /// Starts one with its segment wherever `segment` says.
    pub(crate) fn start_with_segment(place: &Place, segment: &str, flags: &[&str]) -> Self {
        Self::start_as(gateway(), place, segment, flags)
    }

    /// Starts one that masks modes so.
    pub(crate) fn start_under_umask(place: &Place, umask: &str, segment: &str) -> Self {
        let mut shell = command(Path::new("/bin/sh"));
        let program = env!("CARGO_BIN_EXE_bifrost-gateway");
        shell.args(["-c", r#"umask "$0" && exec "$@""#, umask, program]);
        Self::start_as(shell, place, segment, &[])
    }

    fn start_as(mut program: Command, place: &Place, segment: &str, flags: &[&str]) -> Self {
        let number = fastrand::u64(..);
        let [out, log] = ["out", "log"].map(|name| place.0.path().join(format!("{number}.{name}")));
        let process = program
            .args(["--demo", "--listen", "127.0.0.1:0", "--segment", segment])
            .env("BIFROST_TELEMETRY__INSTANCE_METADATA", "off")
            .args(flags)
            .stdout(fs::File::create(&out).unwrap())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut demo = Self {
            process,
            address: String::new(),
            out,
            log,
        };
        demo.address = wait_for("address", || {
            let said = demo.said();
            let (_, rest) = said.split_once("listens on http://")?;
            Some(rest.split_once("/v1, ")?.0.to_owned())
        });
        demo
    }

    /// What it printed for people.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    /// What it logged.
    pub(crate) fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Its answer to a GET, head and all.
    pub(crate) fn get(&self, path: &str) -> String {
        get(&self.address, path)
    }

    /// Its admin listener's answer to a GET, head and all. It must log in JSON.
    pub(crate) fn get_admin(&self, path: &str) -> String {
        get(&self.admin(), path)
    }

    /// Where its admin listener is. It must log in JSON.
    pub(crate) fn admin(&self) -> String {
        let log = self.logged();
        let serving = log.lines().find(|line| line.contains("\"serving\""));
        let serving: Value = serde_json::from_str(serving.unwrap()).unwrap();
        serving["admin"].as_str().unwrap().to_owned()
    }

    /// Sends `signal`.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        wait_for("end of the gateway", || self.process.try_wait().unwrap())
    }

    /// Starts a load of so many requests in all, so many a second.
    pub(crate) fn load(&self, requests: u32, rate: u32) -> Load {
        let child = gateway()
            .args(["load", "--target", &self.address, "--model", MODEL])
            .args([format!("--requests={requests}"), format!("--rate={rate}")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Load { child, requests }
    }
}

fn get(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(
        connection,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A load that is under way.
pub(crate) struct Load {
    child: Child,
    requests: u32,
}

impl Load {
    /// Waits for its end. Each request has to have had its whole answer.
    pub(crate) fn all_answered(self) {
        let Output { stdout, stderr, .. } = self.child.wait_with_output().unwrap();
        let count: Value = serde_json::from_slice(&stdout).unwrap();
        let expected = serde_json::json!({"sent": self.requests, "ok": self.requests, "failed": 0});
        assert_eq!(count, expected, "{}", String::from_utf8_lossy(&stderr));
    }

    /// Ends it, whatever became of its requests.
    pub(crate) fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A process by its number and the time of its start, so that a number that is given out again is no mistake.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pid: u32,
    started: String,
}

impl Process {
    /// What its program is called.
    pub(crate) fn name(&self) -> String {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid));
        name.unwrap_or_default().trim_end().to_owned()
    }

    pub(crate) fn kill(&self) {
        let pid = Pid::from_raw(self.pid.try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }
}

/// Those that `parent` started and that still run.
pub(crate) fn children(parent: u32) -> HashSet<Process> {
    let of_parent = running().into_iter().filter(|(_, of)| *of == parent);
    of_parent.map(|(process, _)| process).collect()
}

/// Which of `those` still run.
pub(crate) fn still_running(those: &HashSet<Process>) -> HashSet<Process> {
    let running: HashSet<_> = running().into_iter().map(|(process, _)| process).collect();
    those.intersection(&running).cloned().collect()
}

/// All processes that run, with their parents. One that has ended and that nobody asked about is not running.
fn running() -> Vec<(Process, u32)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // A program's name may hold blanks and brackets; the fields from the third on stand behind the last bracket.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let (state, parent, started) = (fields[0], fields[1], fields[19]);
        let process = Process {
            pid,
            started: started.to_owned(),
        };
        (state != "Z").then(|| Some((process, parent.parse().ok()?)))?
    });
    stats.collect()
}
