//! The gateway under test, as its user starts it: out-of-the-box settings, one provider, one key.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bifrost_shared::segment::Opened;
use serde_json::Value;

use super::measure::Provider;
use super::place::Place;
use super::process::{self, Process};

/// How long a gateway may take to start, and to answer its first request.
const START_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_micros(200);

/// A gateway that serves; it ends on drop.
#[derive(Debug)]
pub(super) struct Gateway {
    process: Process,
    address: SocketAddr,
    segment: PathBuf,
    log: PathBuf,
}

/// How to start one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start<'a> {
    pub(super) program: &'a Path,
    pub(super) place: &'a Place,
    pub(super) provider: &'a Provider,
    pub(super) profile: &'a str,
    /// How many requests may be with the provider at once, if not as many as by default.
    pub(super) permits: Option<u32>,
}

impl Start<'_> {
    fn arguments(&self) -> Vec<String> {
        let directory = self.place.path().display().to_string();
        ["--listen", "127.0.0.1:0", "--segment", &directory]
            .map(str::to_owned)
            .into()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("OPENAI_API_KEY", "sk-bench".to_owned()),
            (
                "BIFROST_PROVIDERS__OPENAI__BASE_URL",
                format!("{}/v1", self.provider.url_to_trust()),
            ),
            ("BIFROST_ADMIN__LISTEN", "127.0.0.1:0".to_owned()),
            ("BIFROST_PROFILE", self.profile.to_owned()),
            // Its address is read from there.
            ("BIFROST_LOG__FORMAT", "json".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
        ];
        if let Some(file) = &self.provider.certificate {
            let file = file.display().to_string();
            variables.push(("BIFROST_PROVIDERS__OPENAI__CA_FILE", file));
        }
        if let Some(permits) = self.permits {
            let name = "BIFROST_PROVIDERS__OPENAI__CONCURRENCY";
            variables.push((name, permits.to_string()));
        }
        variables
    }
}

impl Gateway {
    /// Starts one, and waits until it serves.
    pub(super) fn start(start: Start<'_>) -> anyhow::Result<Self> {
        let log = start.place.file("gateway.log");
        let out = (Stdio::null(), File::create(&log)?.into());
        let process = Process::start(start.program, start.arguments(), &start.variables(), out)?;
        Self::wait(process, &log)
    }

    /// Starts one from a leash that waits for it, so that nothing but its own start takes time, and says how long it was
    /// from there to the first good answer.
    pub(super) fn start_cold(start: Start<'_>, body: &[u8]) -> anyhow::Result<(Self, Duration)> {
        let log = start.place.file("gateway.log");
        let file = File::create(&log)?.into();
        let held = Process::hold(start.program, start.arguments(), &start.variables(), file)?;
        let begun = Instant::now();
        let process = held.go()?;
        let gateway = Self::wait(process, &log)?;
        let status = ask(gateway.address, body)?;
        let took = begun.elapsed();
        ensure!(
            status == 200,
            "the gateway's first answer had status {status}"
        );
        Ok((gateway, took))
    }

    fn wait(mut process: Process, log: &Path) -> anyhow::Result<Self> {
        let begun = Instant::now();
        loop {
            let said = fs::read_to_string(log)?;
            if let Some((address, segment)) = said.lines().find_map(serving) {
                return Ok(Self {
                    process,
                    address,
                    segment,
                    log: log.to_owned(),
                });
            }
            if process.has_ended() || begun.elapsed() > START_MAX {
                bail!("the gateway did not start: {}", said.trim());
            }
            thread::sleep(POLL);
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Who it is, for an error: its log's end tells more.
    pub(super) fn last_words(&self) -> String {
        format!(
            "the gateway, whose log ends with {}",
            process::end_of(&self.log)
        )
    }

    /// Its segment, to be read while it writes.
    pub(super) fn opened(&self) -> anyhow::Result<Opened> {
        let path = &self.segment;
        Opened::open(path).with_context(|| format!("its segment {}", path.display()))
    }

    /// What the monitor says of it, in the words of `bifrost-monitor --check`: the one beside `program`, else the one
    /// beside us.
    pub(super) fn verdict(&self, program: &Path) -> String {
        let beside = program.with_file_name("bifrost-monitor");
        let monitor = match process::ourselves() {
            Ok(ours) if !beside.exists() => ours.with_file_name("bifrost-monitor"),
            _ => beside,
        };
        if !monitor.exists() {
            return format!("none: {} is not there", monitor.display());
        }
        let arguments: [&OsStr; 3] = [
            "--check".as_ref(),
            "--segment".as_ref(),
            self.segment.as_ref(),
        ];
        match process::said(&monitor, arguments) {
            Ok((_, verdict)) => verdict,
            Err(error) => format!("none: the monitor can't be asked: {error:#}"),
        }
    }
}

/// Where a line of its log says that it serves.
fn serving(line: &str) -> Option<(SocketAddr, PathBuf)> {
    let line: Value = serde_json::from_str(line).ok()?;
    if line["message"] != "serving" {
        return None;
    }
    let address = line["address"].as_str()?.parse().ok()?;
    Some((address, line["segment"].as_str()?.into()))
}

/// Asks once, on a connection of its own, and gives back the answer's status.
pub(super) fn ask(address: SocketAddr, body: &[u8]) -> anyhow::Result<u16> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(START_MAX))?;
    let length = body.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    connection.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    status.with_context(|| format!("{answer:?} is no answer"))
}

/// The body of the answer to a GET.
pub(super) fn get(address: &str, path: &str) -> anyhow::Result<String> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(START_MAX))?;
    write!(
        connection,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let (_, body) = answer
        .split_once("\r\n\r\n")
        .context("an answer has a head")?;
    Ok(body.to_owned())
}

/// What a program is: the version that it tells of itself, and its size in bytes.
pub(super) fn about(program: &Path) -> anyhow::Result<(String, u64)> {
    let size = fs::metadata(program);
    let size = size.with_context(|| format!("{} is no program", program.display()))?;
    let (status, version) = process::said(program, ["--version"])?;
    ensure!(status.success(), "its version is not to be had: {version}");
    Ok((version, size.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_that_says_serving_has_the_address() {
        let line = r#"{"level":"INFO","message":"serving","address":"127.0.0.1:4711","segment":"/dev/shm/a.seg"}"#;
        let expected = ("127.0.0.1:4711".parse().unwrap(), "/dev/shm/a.seg".into());
        assert_eq!(serving(line), Some(expected));
        assert_eq!(serving(&line.replace("serving", "stopped")), None);
        assert_eq!(serving("no JSON"), None);
    }
}
