//! Processes that a benchmark starts: they end when it does, and what they use is read from `/proc`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use crate::child::LISTENING_ON;

/// How long a process may take to end once it was told to, before it is killed.
const END_WAIT_MAX: Duration = Duration::from_secs(3);
/// How long it may take to say what it was asked for.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);

/// A process of another program, ended on drop.
#[derive(Debug)]
pub(super) struct Process(Child);

/// A leash that has yet to become its program. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Held(Process);

/// What a leash says when it waits for the word to become its program.
const HELD: &str = "held\n";

/// What a process, with those that it started, has used so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Used {
    /// Processor time, in user and kernel.
    pub(super) cpu: Duration,
    /// Resident memory, bytes, and the most of it until now. Of several processes it is the sum of their proportional
    /// shares (PSS), in which a page that they share counts once, and its peak is not known beyond what it is now.
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
        Self::spawn(command, variables, Stdio::null(), (out, log))
    }

    /// Starts only the leash, so that what `program` takes to start can be measured without it.
    pub(super) fn hold(
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        variables: &[(&str, String)],
        log: Stdio,
    ) -> anyhow::Result<Held> {
        let mut command = Command::new(ourselves()?);
        command
            .args(["leash", "--held"])
            .arg(std::process::id().to_string())
            .arg(program)
            .args(arguments);
        let out = (Stdio::piped(), log);
        let mut process = Self::spawn(command, variables, Stdio::piped(), out)?;
        let said = process.line()?;
        ensure!(said == HELD, "the leash did not start: {said:?}");
        Ok(Held(process))
    }

    fn spawn(
        mut command: Command,
        variables: &[(&str, String)],
        input: Stdio,
        (out, log): (Stdio, Stdio),
    ) -> anyhow::Result<Self> {
        command
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(input)
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
        let line = self.line()?;
        let address = line.trim_end().strip_prefix(LISTENING_ON);
        let address =
            address.with_context(|| format!("the mock provider did not start: {line:?}"))?;
        address
            .parse()
            .with_context(|| format!("{address:?} is no address"))
    }

    /// The first line that it says.
    fn line(&mut self) -> anyhow::Result<String> {
        let out = self.0.stdout.take().context("its output is read once")?;
        in_time(move || {
            let mut line = String::new();
            BufReader::new(out).read_line(&mut line)?;
            Ok(line)
        })
    }

    /// How it ended. It is about to: it has nothing more to say.
    fn status(&mut self) -> anyhow::Result<ExitStatus> {
        let given_up = Instant::now() + END_WAIT_MAX;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            ensure!(Instant::now() < given_up, "it does not end");
            thread::sleep(POLL);
        }
    }

    /// Waits for its end, and gives back what it wrote.
    pub(super) fn output(mut self) -> anyhow::Result<Vec<u8>> {
        let mut out = self.0.stdout.take().context("its output is read once")?;
        let mut text = vec![];
        out.read_to_end(&mut text)?;
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
        // Once it was waited for, its number may be another's.
        if self.has_ended() {
            return;
        }
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

impl Held {
    /// Lets it become its program.
    pub(super) fn go(mut self) -> anyhow::Result<Process> {
        let input = self.0.0.stdin.take();
        input.context("the word is given once")?.write_all(b"\n")?;
        Ok(self.0)
    }
}

/// What a program that ends by itself says on both of its outputs, and how it ended.
pub(super) fn said(
    program: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> anyhow::Result<(ExitStatus, String)> {
    let (mut out, into) = io::pipe()?;
    let into = (into.try_clone()?.into(), into.into());
    let language = [("LANG", "C.UTF-8".to_owned())];
    let mut process = Process::start(program, arguments, &language, into)?;
    let text = in_time(move || {
        let mut text = vec![];
        out.read_to_end(&mut text)?;
        Ok(text)
    });
    let text = text.with_context(|| program.display().to_string())?;
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    Ok((process.status()?, text))
}

/// The last lines of what it wrote into `log`.
pub(super) fn end_of(log: &Path) -> String {
    const LINES: usize = 3;
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.trim().lines().collect();
    format!(
        "{:?}",
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    )
}

/// What `read` gives, for which it has a limited time: a thread of its own waits for it, since a read of a pipe can't be
/// given up.
fn in_time<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(read()));
    let seconds = ANSWER_WAIT_MAX.as_secs();
    let read = told.recv_timeout(ANSWER_WAIT_MAX);
    Ok(read.with_context(|| format!("no answer within {seconds} s"))??)
}

/// The path of our own program.
pub(super) fn ourselves() -> anyhow::Result<std::path::PathBuf> {
    std::env::current_exe().context("the path of our own program is unknown")
}

/// Becomes `program`, which is told to end as soon as `parent` has. The order to the kernel outlives the change of program,
/// and the process keeps its number. Where it `is_held`, it waits for a word on its input before.
pub(super) fn leash(
    parent: u32,
    is_held: bool,
    program: &OsStr,
    arguments: &[OsString],
) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have been over before that.
    if getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()) != Some(parent) {
        bail!("the benchmark has ended");
    }
    let mut command = Command::new(program);
    command.args(arguments);
    if is_held {
        io::stdout().write_all(HELD.as_bytes())?;
        io::stdin().read_exact(&mut [0])?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
    }
    let error = command.exec();
    Err(error).with_context(|| format!("{} can't be started", program.display()))
}

/// What process `pid` and those that it started have used so far; none once it has ended.
pub(super) fn used(pid: u32) -> Option<Used> {
    let status = |pid, name| status_bytes(&read(pid, "status"), name);
    // Of a process that has ended and was not waited for yet, this is no longer told.
    let (rss, rss_peak) = (status(pid, "VmRSS:")?, status(pid, "VmHWM:")?);
    let family = family(pid);
    let cpu = family.iter().copied().map(cpu).sum();
    if let [_] = family[..] {
        return Some(Used { cpu, rss, rss_peak });
    }
    let share = |pid| status_bytes(&read(pid, "smaps_rollup"), "Pss:");
    let shares = family.iter().filter_map(|pid| share(*pid)).sum();
    Some(Used {
        cpu,
        rss: shares,
        rss_peak: shares,
    })
}

/// A file of a process in `/proc`; empty for one that has ended.
fn read(pid: u32, name: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default()
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

/// Processor time of a process. Its threads tell it to the nanosecond (the first field of their `schedstat`), but not
/// that of those which have ended; `stat` has these, too, and tells it too low by up to two ticks.
fn cpu(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let ran = tasks.filter_map(|task| {
        let told = fs::read_to_string(task.path().join("schedstat")).ok()?;
        told.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(ran.sum()).max(ticks(&read(pid, "stat")))
}

/// Fields 14 and 15 of `/proc/PID/stat`, in ticks of 10 ms as on every Linux of our days; the name before may hold
/// blanks.
fn ticks(stat: &str) -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks: u32 = fields.filter_map(|field| field.parse::<u32>().ok()).sum();
    TICK * ticks
}

/// A line of `/proc/PID/status` or `smaps_rollup`, which is in kB.
fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes = line.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(kilobytes * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_user_and_kernel_whatever_the_program_is_called() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 120 30 9 9 20 0 3 0 5 6 7";
        assert_eq!(ticks(stat), Duration::from_millis(1_500));
        assert_eq!(ticks(""), Duration::ZERO);
    }

    #[test]
    fn a_process_that_works_uses_time_and_memory() {
        let ours = || used(std::process::id()).unwrap();
        let begun = Instant::now();
        let before = ours();
        // Parts of a tick are seen, too.
        let is_seen = |now: Duration| {
            now > before.cpu + Duration::from_millis(20)
                && !now.subsec_nanos().is_multiple_of(10_000_000)
        };
        while !is_seen(ours().cpu) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it stands still");
        }
        assert!(before.rss > 1 << 20 && before.rss_peak >= before.rss);
        assert!(descriptors(std::process::id()) >= 3);
    }

    /// A shell with one child.
    fn family_of_two() -> (Process, u32) {
        let shell = Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .spawn()
            .unwrap();
        let shell = Process(shell);
        let task = format!("/proc/{0}/task/{0}/children", shell.pid());
        loop {
            let children = fs::read_to_string(&task).unwrap();
            if let Ok(child) = children.trim().parse() {
                return (shell, child);
            }
            thread::yield_now();
        }
    }

    fn kill(pid: u32) {
        let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }

    #[test]
    fn what_a_process_started_counts_as_its_own_and_what_they_share_once() {
        let (shell, child) = family_of_two();
        // The child shares its parent's pages until it has become its program.
        while !read(child, "comm").starts_with("sleep") {
            thread::yield_now();
        }
        let share = |pid| status_bytes(&read(pid, "smaps_rollup"), "Pss:").unwrap();
        let resident = |pid| status_bytes(&read(pid, "status"), "VmRSS:").unwrap();
        let both = used(shell.pid()).unwrap().rss;
        assert!(both > share(shell.pid()), "{both}");
        // Both have the C library.
        assert!(both < resident(shell.pid()) + resident(child), "{both}");
        kill(child);
    }

    #[test]
    fn a_process_that_has_ended_has_used_nothing_that_could_be_told() {
        let (mut shell, child) = family_of_two();
        kill(shell.pid());
        // Not yet waited for: its name is still there.
        while used(shell.pid()).is_some() {
            thread::yield_now();
        }
        shell.status().unwrap();
        assert_eq!(used(shell.pid()), None);
        kill(child);
    }
}
