//! The gateway's process: its memory, its descriptors, its log, its records.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bifrost_shared::layout::Gauge;
use bifrost_shared::record::Record;
use bifrost_shared::segment::Opened;
use bifrost_shared::snapshot::{Figures, Samples, View};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::Value;

/// For what has to happen, however busy the machine is.
const PATIENCE: Duration = Duration::from_mins(1);

/// A gateway that is killed on drop.
pub struct Gateway {
    process: Child,
    pub address: SocketAddr,
    /// Where its figures are.
    pub admin: SocketAddr,
    place: tempfile::TempDir,
    opened: Opened,
}

/// Resident memory.
#[derive(Clone, Copy)]
pub struct Memory {
    pub all_mb: f64,
    /// Without the segment, whose rings fill up with the first 16,384 records, and without the program itself.
    pub heap_mb: f64,
}

/// The records that have come so far, by their ids.
pub struct Records {
    samples: Samples,
    pub by_id: HashMap<u64, (Record, u32)>,
}

pub fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

impl Gateway {
    /// Starts one in front of `provider`, with further lines for its settings file.
    pub async fn start(provider: SocketAddr, settings: &str) -> Self {
        // Where segments belong; on a disk, the gateway warns.
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let [segment, log, file] =
            ["soak.seg", "log", "gateway.toml"].map(|name| place.path().join(name));
        fs::write(&file, config(provider, settings)).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_bifrost-gateway"))
            .env_clear()
            .args(["--listen", "127.0.0.1:0", "--config"])
            .arg(&file)
            .arg("--segment")
            .arg(&segment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let address = wait_for("the gateway's address", || {
            let log = fs::read_to_string(&log).unwrap();
            let serving = log.lines().find(|line| line.contains("\"serving\""))?;
            let line: Value = serde_json::from_str(serving).ok()?;
            let told = ["address", "admin"].map(|name| line[name].as_str()?.parse().ok());
            Some((told[0]?, told[1]?))
        });
        let (address, admin) = address.await;
        Self {
            process,
            address,
            admin,
            place,
            opened: Opened::open(&segment).unwrap(),
        }
    }

    /// Writes other settings and has them read.
    pub fn reload(&self, provider: SocketAddr, settings: &str) {
        let file = self.place.path().join("gateway.toml");
        fs::write(file, config(provider, settings)).unwrap();
        kill_process(Pid::from_child(&self.process), Signal::HUP).unwrap();
    }

    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.process.id()))
    }

    /// Its resident memory, in megabytes. A process that has ended has none.
    pub fn memory(&self) -> Memory {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        assert!(status.contains("VmRSS:"), "{}", self.last_words());
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
            kilobytes.unwrap().parse::<f64>().unwrap() / 1024.0
        };
        Memory {
            all_mb: field("VmRSS:"),
            heap_mb: field("RssAnon:"),
        }
    }

    /// How it ended, as `waitpid` has it: a signal by its number, an exit status times 256; and the end of its log.
    fn last_words(&self) -> String {
        let stat = fs::read_to_string(self.proc("stat")).unwrap();
        let code = stat.split_whitespace().next_back().unwrap_or_default();
        let log = fs::read_to_string(self.place.path().join("log")).unwrap();
        let mut last: Vec<_> = log.lines().rev().take(10).collect();
        last.reverse();
        format!("the gateway has ended ({code}): {}", last.join("\n"))
    }

    /// Descriptors that it has open.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(self.proc("fd")).unwrap().count()
    }

    /// Waits until it has no more descriptors open than that, and says how many it has.
    pub async fn descriptors_back_to(&self, most: usize) -> usize {
        let look = || (self.descriptors() <= most).then_some(());
        let _ = tokio::time::timeout(PATIENCE, poll(look)).await;
        self.descriptors()
    }

    /// What the segment shows now.
    pub fn figures(&self) -> Figures {
        let words = self.opened.words().unwrap();
        View::of(words).unwrap().figures(words).unwrap()
    }

    /// A gauge, as the segment shows it now.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.figures().gauge(gauge)
    }

    /// Waits until a gauge shows that, or for long enough, and says what it shows.
    pub async fn gauge_back_to(&self, gauge: Gauge, wanted: u64) -> u64 {
        let look = || (self.gauge(gauge) == wanted).then_some(());
        let _ = tokio::time::timeout(PATIENCE, poll(look)).await;
        self.gauge(gauge)
    }

    /// The records from its start on.
    pub fn records(&self) -> Records {
        let words = self.opened.words().unwrap();
        let samples = View::of(words).unwrap().samples_from_oldest(words).unwrap();
        Records {
            samples,
            by_id: HashMap::new(),
        }
    }

    /// Takes over what has been recorded since.
    pub fn read(&self, records: &mut Records) {
        let words = self.opened.words().unwrap();
        while let Some(record) = records.samples.next(words) {
            records.by_id.entry(record.id).or_insert((record, 0)).1 += 1;
        }
    }

    /// Its log, line by line; what is no JSON, as text.
    pub fn log(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.place.path().join("log")).unwrap();
        let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line));
        log.lines().map(line).collect()
    }

    pub fn is_alive(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }
}

impl Records {
    /// Records that were overwritten before they were read.
    pub fn missed(&self) -> u64 {
        self.samples.missed()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn config(provider: SocketAddr, settings: &str) -> String {
    format!(
        "{settings}\n[log]\nformat = 'json'\n[admin]\nlisten = '127.0.0.1:0'\n[providers.openai]\nbase_url = 'http://{provider}/v1'\n\
         keys = ['sk-a', 'sk-b', 'sk-c']\nmodels = ['m', 'down']\nretries = {{ backoff_initial = '10ms', backoff_max = '50ms' }}\n\
         timeouts = {{ first_byte = '1s', idle = '1s' }}\n"
    )
}

/// Asks `look` until it has an answer.
pub async fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    let found = tokio::time::timeout(PATIENCE, poll(look)).await;
    found.unwrap_or_else(|_| panic!("no {what} within {PATIENCE:?}"))
}

async fn poll<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    loop {
        ticks.tick().await;
        if let Some(found) = look() {
            return found;
        }
    }
}
