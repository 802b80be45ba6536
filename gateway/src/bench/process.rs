//! Processes that a benchmark starts: they end when it does, and what they use is read from `/proc`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use crate::child::LISTENING_ON;

/// How long a process may take to end once it was told to, before it is killed.
const END_WAIT_MAX: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(2);

/// A process of another program, ended on drop.
#[derive(Debug)]
pub(super) struct Process(Child);

/// What a process, with those that it started, has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Used {
    /// Processor time, in user and kernel.
    pub(super) cpu: Duration,
    /// Resident memory, bytes, and its peak.
    pub(super) rss: u64,
    pub(super) rss_peak: u64,
}

impl Process {
    /// Starts `program` so that it ends with us, however we end. It gets no environment of ours but the path, since that
    /// may hold provider keys.
    pub(super) fn start(
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        variables: &[(&str, String)],
        (out, log): (Stdio, Stdio),
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(ourselves()?);
        command
            .arg("leash")
            .arg(std::process::id().to_string())
            .arg(program)
            .args(arguments);
        Self::spawn(command, variables, (out, log))
    }

    /// Starts it without that: for a moment only.
    pub(super) fn start_bare(
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        variables: &[(&str, String)],
        log: Stdio,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments);
        Self::spawn(command, variables, (Stdio::null(), log))
    }

    fn spawn(
        mut command: Command,
        variables: &[(&str, String)],
        (out, log): (Stdio, Stdio),
    ) -> anyhow::Result<Self> {
        command
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(log);
        let child = command.spawn();
        let program = command.get_program().display().to_string();
        Ok(Self(
            child.with_context(|| format!("{program} can't be started"))?,
        ))
    }

    /// Waits for the line in which a mock says where it listens.
    pub(super) fn address(&mut self) -> anyhow::Result<SocketAddr> {
        let out = self.0.stdout.take().context("its output is read once")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let address = line.trim_end().strip_prefix(LISTENING_ON);
        let address =
            address.with_context(|| format!("the mock provider did not start: {line:?}"))?;
        address
            .parse()
            .with_context(|| format!("{address:?} is no address"))
    }

    /// Waits for its end, and gives back what it wrote.
    pub(super) fn output(mut self) -> anyhow::Result<Vec<u8>> {
        let mut out = self.0.stdout.take().context("its output is read once")?;
        let mut text = vec![];
        std::io::Read::read_to_end(&mut out, &mut text)?;
        let status = self.0.wait()?;
        if text.is_empty() && !status.success() {
            bail!("it ended with {status}");
        }
        Ok(text)
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // None of these can fail for a child that has not been waited for yet.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let given_up = Instant::now() + END_WAIT_MAX;
        while Instant::now() < given_up {
            if self.has_ended() {
                return;
            }
            thread::sleep(POLL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The path of our own program.
pub(super) fn ourselves() -> anyhow::Result<std::path::PathBuf> {
    std::env::current_exe().context("the path of our own program is unknown")
}

/// Becomes `program`, which is told to end as soon as `parent` has. The order to the kernel outlives the change of program,
/// and the process keeps its number.
pub(super) fn leash(parent: u32, program: &OsStr, arguments: &[OsString]) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have been over before that.
    if getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()) != Some(parent) {
        bail!("the benchmark has ended");
    }
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("{} can't be started", program.display()))
}

/// What process `pid` and those that it started have used so far.
pub(super) fn used(pid: u32) -> Used {
    let mut all = Used::default();
    for pid in family(pid) {
        let read =
            |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        all.cpu += cpu(&read("stat"));
        let status = read("status");
        all.rss += status_bytes(&status, "VmRSS:");
        all.rss_peak += status_bytes(&status, "VmHWM:");
    }
    all
}

/// Descriptors that process `pid` and those that it started have open. Counting thousands takes milliseconds.
pub(super) fn descriptors(pid: u32) -> u64 {
    let open =
        |pid| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64);
    family(pid).into_iter().map(open).sum()
}

/// The process and all that descend from it.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(pid) = family.get(next) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let children =
            tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
        let children: String = children.collect();
        family.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
        next += 1;
    }
    family
}

/// Fields 14 and 15 of `/proc/PID/stat`, in ticks of 10 ms as on every Linux of our days; the name before may hold
/// blanks.
fn cpu(stat: &str) -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks: u32 = fields.filter_map(|field| field.parse::<u32>().ok()).sum();
    TICK * ticks
}

/// A line of `/proc/PID/status` that is in kB.
fn status_bytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1_024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_user_and_kernel_whatever_the_program_is_called() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 120 30 9 9 20 0 3 0 5 6 7";
        assert_eq!(cpu(stat), Duration::from_millis(1_500));
        assert_eq!(cpu(""), Duration::ZERO);
    }

    #[test]
    fn a_process_that_works_uses_time_and_memory() {
        let begun = Instant::now();
        let before = used(std::process::id());
        while used(std::process::id()).cpu < before.cpu + Duration::from_millis(20) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it stands still");
        }
        assert!(before.rss > 1 << 20 && before.rss_peak >= before.rss);
        assert!(descriptors(std::process::id()) >= 3);
    }

    #[test]
    fn what_a_process_started_counts_as_its_own() {
        let shell = Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .spawn()
            .unwrap();
        let shell = Process(shell);
        let task = format!("/proc/{0}/task/{0}/children", shell.pid());
        while fs::read_to_string(&task).unwrap().is_empty() {
            thread::yield_now();
        }
        let both = used(shell.pid()).rss;
        let status = fs::read_to_string(format!("/proc/{}/status", shell.pid())).unwrap();
        assert!(both > status_bytes(&status, "VmRSS:"), "{both}");
        let child: i32 = fs::read_to_string(&task).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    }
}
