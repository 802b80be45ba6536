//! The writing process: this test program once more, told by its environment where to write.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, thread};

use bifrost_shared::layout::{self, ClockKind, CreditMode, VERSION_MAJOR, VERSION_MINOR};
use bifrost_shared::record::{Fault, Record};
use bifrost_shared::segment::Segment;
use bifrost_shared::snapshot::{Header, Runtime};
use bifrost_shared::thresholds::Thresholds;
use bifrost_shared::writer::{Now, Writer};

use crate::told;

/// Where the segment is to be: set for the writing process only.
const SEGMENT: &str = "BIFROST_TEST_SEGMENT";
/// The most records that are absorbed at a time, as in the gateway.
pub(crate) const BATCH_MAX: u64 = 256;
/// A row is closed after so many batches, some milliseconds for the second that it stands for.
const BATCHES_A_ROW: u64 = 20;

/// A writing process. It publishes its segment, waits for a word, and writes until its standard input is closed.
pub(crate) struct Writing {
    child: Child,
    orders: Option<ChildStdin>,
    says: BufReader<ChildStdout>,
}

/// What a writer says that it wrote.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) records: u64,
    pub(crate) rows: u64,
}

impl Writing {
    /// Starts one, and waits until its segment is there.
    pub(crate) fn start(segment: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "writer::the_other_process",
                "--ignored",
                "--nocapture",
            ])
            .env(SEGMENT, segment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut writing = Self {
            orders: child.stdin.take(),
            says: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        writing.said("published");
        writing
    }

    /// Lets it write.
    pub(crate) fn go(&mut self) {
        self.orders.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// Lets it finish.
    pub(crate) fn stop(mut self) -> Tally {
        self.orders = None;
        let told = self.said("wrote");
        let mut numbers = told.split_whitespace().map(|word| word.parse().unwrap());
        let (records, rows) = (numbers.next().unwrap(), numbers.next().unwrap());
        assert!(self.child.wait().unwrap().success());
        Tally { records, rows }
    }

    /// Ends it wherever it is.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// What follows `word` on the line that begins with it.
    fn said(&mut self, word: &str) -> String {
        // The test runner's own words stand before the first of ours, on the same line.
        let mut lines = self.says.by_ref().lines().map(Result::unwrap);
        lines
            .find_map(|line| Some(line.split_once(word)?.1.to_owned()))
            .unwrap_or_else(|| panic!("the writer ended before it {word}"))
    }
}

#[test]
#[ignore = "started by the other tests, as a process of its own"]
fn the_other_process() {
    let Some(path) = std::env::var_os(SEGMENT).map(PathBuf::from) else {
        return;
    };
    let segment = Segment::create(&path, layout::segment_bytes()).unwrap();
    let mut writer = Writer::new(segment, &header(), &[]);
    writer.publish().unwrap();
    println!("published");
    let mut orders = io::stdin().lock();
    orders.read_line(&mut String::new()).unwrap();
    drop(orders);
    let is_over = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let _ = io::stdin().read(&mut [0]);
            is_over.store(true, Ordering::Relaxed);
        }
    });
    let tally = write(&mut writer, &is_over);
    println!("wrote {} {}", tally.records, tally.rows);
}

/// Writes as fast as it can.
fn write(writer: &mut Writer, is_over: &AtomicBool) -> Tally {
    let mut tally = Tally {
        records: 0,
        rows: 0,
    };
    let mut batches: u64 = 0;
    while !is_over.load(Ordering::Relaxed) {
        let size = 1 + told::mix(batches) % BATCH_MAX;
        let batch: Vec<Record> = (tally.records..tally.records + size)
            .map(told::record)
            .collect();
        writer.absorb(&batch);
        tally.records += size;
        batches += 1;
        let (counters, gauges) = (told::counters(tally.records), told::gauges(tally.records));
        let runtime = Runtime {
            lost: tally.records,
            ..Runtime::default()
        };
        writer.show(Now {
            counters: &counters,
            gauges: &gauges,
            faults: &[0; Fault::COUNT],
            runtimes: &[runtime],
        });
        if batches.is_multiple_of(BATCHES_A_ROW) {
            let duration = told::mix(tally.rows);
            writer.close_second(tally.rows, duration, false, &counters, &gauges);
            tally.rows += 1;
        }
    }
    tally
}

fn header() -> Header {
    Header {
        version: (VERSION_MAJOR, VERSION_MINOR),
        pid: std::process::id().into(),
        start_ticks: 0,
        credit_mode: CreditMode::Unknown,
        boot_id: [0; 2],
        started_at: 0,
        clock: ClockKind::Monotonic,
        stamp_cost_ps: 0,
        vcpus: 2,
        memory_total: 0,
        memory_limit: 0,
        buffer_size: 0,
        pool_size: 0,
        workers: 1,
        thresholds: Thresholds::default(),
        build: "test".into(),
        instance: String::new(),
    }
}
