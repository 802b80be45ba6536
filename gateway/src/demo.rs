//! `--demo`: the mock provider and a load, as child processes, so that the gateway's processor time and memory stay
//! its own.
//!
//! A child lives no longer than its parent: it ends when its standard input does, and the parent holds the other end
//! of that pipe. The kernel closes it for a parent that is killed, too. Ctrl-C reaches the gateway alone, since each
//! child is a process group of its own: the mock has to answer what the gateway drains.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::{child, mock};

/// How long a child may take to end once it was told to, before it is killed. The mock takes about a millisecond.
const END_WAIT_MAX: Duration = Duration::from_millis(500);

/// How often to look whether it has ended.
const END_POLL: Duration = Duration::from_millis(2);

/// A process of our own program, ended on drop.
#[derive(Debug)]
pub struct Child(process::Child);

impl Child {
    /// Starts a mock provider on a free port, and says where it listens.
    ///
    /// # Errors
    ///
    /// When the process can't be started, or ends before it listens.
    pub fn mock(settings: &mock::Settings) -> anyhow::Result<(Self, SocketAddr)> {
        let mut command = ourselves("mock")?;
        command.args(settings.to_args()).stdout(Stdio::piped());
        let mut child = Self::spawn(command)?;
        let address = child.address()?;
        Ok((child, address))
    }

    /// Starts a load of `rate` requests a second for `model` on the gateway at `target`.
    ///
    /// # Errors
    ///
    /// When the process can't be started.
    pub fn load(target: SocketAddr, rate: NonZeroU32, model: &str) -> anyhow::Result<Self> {
        let mut command = ourselves("load")?;
        command
            .arg(format!("--target={target}"))
            .arg(format!("--rate={rate}"))
            .arg(format!("--model={model}"))
            .stdout(Stdio::null());
        Self::spawn(command)
    }

    /// The environment holds the provider keys, and a child has no use for them.
    fn spawn(mut command: Command) -> anyhow::Result<Self> {
        command
            .env_clear()
            .envs(env::var_os("PATH").map(|path| ("PATH", path)))
            .stdin(Stdio::piped())
            .process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("{} can't be started", command.get_program().display()))?;
        Ok(Self(child))
    }

    /// Waits for the line in which the child says where it listens.
    fn address(&mut self) -> anyhow::Result<SocketAddr> {
        let out = self.0.stdout.take().context("its output is read once")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let Some(address) = line.trim_end().strip_prefix(child::LISTENING_ON) else {
            bail!("the mock provider ended before it listened: {line:?}");
        };
        address
            .parse()
            .with_context(|| format!("{address:?} is no address"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let given_up = Instant::now() + END_WAIT_MAX;
        while Instant::now() < given_up {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(END_POLL);
        }
        // Neither can fail for a child that has not been waited for yet.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ourselves(subcommand: impl AsRef<OsStr>) -> anyhow::Result<Command> {
    let program = env::current_exe().context("the path of our own program is unknown")?;
    let mut command = Command::new(program);
    command.arg(subcommand);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        Child::spawn(command).unwrap()
    }

    #[test]
    fn a_child_says_where_it_listens() {
        let mut child = shell("echo listening on 127.0.0.1:4711; cat");
        assert_eq!(child.address().unwrap(), "127.0.0.1:4711".parse().unwrap());
    }

    #[test]
    fn a_child_that_ends_at_once_is_an_error_and_not_a_wait() {
        let error = shell("exit 1").address().unwrap_err();
        assert!(error.to_string().contains("before it listened"), "{error}");
    }

    #[test]
    fn a_dropped_child_ends_with_its_input() {
        let begun = Instant::now();
        drop(shell("cat"));
        assert!(begun.elapsed() < END_WAIT_MAX, "it was killed");
    }

    #[test]
    fn a_child_that_will_not_end_is_killed() {
        let begun = Instant::now();
        drop(shell("exec sleep 600"));
        assert!(begun.elapsed() >= END_WAIT_MAX);
    }

    #[test]
    fn a_child_gets_no_environment_but_the_path() {
        let mut child =
            shell("env | grep -v -e ^PATH= -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD=; echo end");
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        // The shell makes those others itself. Cargo sets dozens for a test.
        assert_eq!(line, "end\n");
    }

    #[test]
    fn a_child_leads_a_process_group_of_its_own() {
        let mut child = shell("ps -o pgid= -p $$");
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line.trim(), child.0.id().to_string());
    }
}
