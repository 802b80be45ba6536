//! The access log: each record as one line of JSON. It is written by a thread of its own, from what the exporter hands
//! over, so that a reader that does not read holds neither a request nor the exporter.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use bifrost_shared::record::{Fault, Record, flags};
use bifrost_shared::stage::Stage;
use serde::Serialize;

/// Batches of records that may wait for the thread.
const WAITING_MAX: usize = 64;

/// Providers and their keys, by configured name and in their places.
pub type Names = Vec<(String, Vec<String>)>;

/// How long an end of the log waits for a reader that does not read.
const PATIENCE: Duration = Duration::from_secs(1);

enum Message {
    Names(Names),
    Records(Box<[Record]>),
}

/// The exporter's end. Dropped, it waits until what was handed over is written, but not for ever.
pub struct AccessLog {
    messages: Option<SyncSender<Message>>,
    /// Says that the thread has ended, by being closed.
    ended: Receiver<()>,
    /// Names that found no room yet.
    names: Option<Names>,
    /// Records that found no room, until the thread tells of them.
    lost: Arc<AtomicU64>,
}

impl AccessLog {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub fn start(names: Names, out: impl Write + Send + 'static) -> io::Result<Self> {
        let (messages, received) = mpsc::sync_channel(WAITING_MAX);
        let (alive, ended) = mpsc::channel();
        let lost = Arc::new(AtomicU64::new(0));
        let lines = Lines {
            names,
            lost: Arc::clone(&lost),
            out: io::BufWriter::new(out),
        };
        thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                let _alive: Sender<()> = alive;
                if let Err(error) = lines.write_all(&received) {
                    tracing::warn!(%error, "the access log can't be written: it ends here");
                }
            })?;
        Ok(Self {
            messages: Some(messages),
            ended,
            names: None,
            lost,
        })
    }

    /// Lines from now on name these.
    pub(super) fn rename(&mut self, names: Names) {
        self.names = Some(names);
        self.hand_names_over();
    }

    /// Hands records over, or counts them as lost where too much waits already.
    pub(super) fn log(&mut self, records: &[Record]) {
        self.hand_names_over();
        let Some(messages) = &self.messages else {
            return;
        };
        // Before the names that belong to them, they would be told under wrong ones.
        let handed = self
            .names
            .is_none()
            .then(|| messages.try_send(Message::Records(records.into())));
        match handed {
            Some(Ok(())) => {}
            None | Some(Err(TrySendError::Full(_))) => {
                self.lost.fetch_add(records.len() as u64, Ordering::Relaxed);
            }
            // Nobody reads any more, and it was said.
            Some(Err(TrySendError::Disconnected(_))) => self.messages = None,
        }
    }

    fn hand_names_over(&mut self) {
        let (Some(names), Some(messages)) = (self.names.take(), &self.messages) else {
            return;
        };
        if let Err(TrySendError::Full(Message::Names(names))) =
            messages.try_send(Message::Names(names))
        {
            self.names = Some(names);
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.messages = None;
        // A reader that holds the thread in a write must not hold the gateway's end, too.
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}

/// The thread's own.
struct Lines<W: Write> {
    names: Names,
    lost: Arc<AtomicU64>,
    out: io::BufWriter<W>,
}

impl<W: Write> Lines<W> {
    fn write_all(mut self, messages: &Receiver<Message>) -> io::Result<()> {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Names(names) => self.names = names,
                Message::Records(records) => {
                    self.tell_of_lost()?;
                    for record in &records {
                        write(&mut self.out, &Line::of(record, &self.names))?;
                    }
                    self.out.flush()?;
                }
            }
        }
        self.tell_of_lost()?;
        self.out.flush()
    }

    fn tell_of_lost(&mut self) -> io::Result<()> {
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            lost => write(&mut self.out, &Gap { lost }),
        }
    }
}

fn write(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Records that are missing about here.
#[derive(Serialize)]
struct Gap {
    lost: u64,
}

/// A record, as a line has it. Times are nanoseconds.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    id: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<&'static str>,
    status: u16,
    ended_in: &'static str,
    provider: Option<&'a str>,
    key: Option<&'a str>,
    attempts: u8,
    fallbacks: u8,
    stream: bool,
    events: u32,
    worker: u8,
    total_ns: u64,
    added_ns: u64,
    first_byte_ns: u64,
    connect_ns: u64,
    back_pressure_ns: u64,
    provider_time_ns: u64,
    held_ns: u64,
    stages_ns: BTreeMap<&'static str, u64>,
    request_bytes: u32,
    response_bytes: u32,
    prompt_tokens: u32,
    completion_tokens: u32,
    waiting: u32,
    in_flight: u32,
}

impl<'a> Line<'a> {
    fn of(record: &Record, names: &'a Names) -> Self {
        let provider = names.get(usize::from(record.provider));
        let key = provider.and_then(|(_, keys)| keys.get(usize::from(record.key)));
        let ended_at = UNIX_EPOCH + Duration::from_nanos(record.ended_at);
        Self {
            time: humantime::format_rfc3339_micros(ended_at).to_string(),
            id: format!("{:016x}", record.id),
            outcome: record.outcome.label(),
            fault: (record.fault != Fault::None).then(|| record.fault.key()),
            status: record.status,
            ended_in: record.ended_in.key(),
            provider: provider.map(|(name, _)| name.as_str()),
            key: key.filter(|name| !name.is_empty()).map(String::as_str),
            attempts: record.attempts,
            fallbacks: record.fallbacks,
            stream: record.flags & flags::STREAM != 0,
            events: record.events,
            worker: record.worker,
            total_ns: record.total,
            added_ns: record.added(),
            first_byte_ns: record.first_byte,
            connect_ns: record.connect,
            back_pressure_ns: record.back_pressure,
            provider_time_ns: record.provider_time,
            held_ns: record.held,
            stages_ns: Stage::ALL
                .into_iter()
                .map(|stage| (stage.key(), record.stage(stage)))
                .collect(),
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
            prompt_tokens: record.prompt_tokens,
            completion_tokens: record.completion_tokens,
            waiting: record.waiting,
            in_flight: record.in_flight,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Condvar, Mutex};

    use bifrost_shared::record::Outcome;
    use serde_json::Value;

    use super::*;

    /// What was written, by a writer that waits for its gate.
    #[derive(Clone, Default)]
    struct Pipe {
        text: Arc<Mutex<Vec<u8>>>,
        gate: Arc<(Mutex<bool>, Condvar)>,
    }

    impl Pipe {
        fn open(self) -> Self {
            *self.gate.0.lock().unwrap() = true;
            self.gate.1.notify_all();
            self
        }

        fn lines(&self) -> Vec<Value> {
            let text = self.text.lock().unwrap();
            let lines = text.split(|byte| *byte == b'\n');
            lines
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_slice(line).unwrap())
                .collect()
        }
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let open = self.gate.0.lock().unwrap();
            drop(self.gate.1.wait_while(open, |open| !*open).unwrap());
            self.text.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn names() -> Names {
        vec![(
            "openai".to_owned(),
            vec!["main".to_owned(), "spare".to_owned()],
        )]
    }

    #[test]
    fn a_record_is_a_line_with_names_for_numbers() {
        let pipe = Pipe::default().open();
        let mut log = AccessLog::start(names(), pipe.clone()).unwrap();
        let mut record = Record {
            ended_at: 1_796_040_000_123_456_789,
            id: 0xfeed,
            provider: 0,
            key: 1,
            outcome: Outcome::Failed,
            fault: Fault::Silent,
            status: 504,
            flags: flags::STREAM,
            total: 1_500,
            ..Record::default()
        };
        record.stages[Stage::HttpRequest.index()] = 1_000;
        log.log(&[record, Record::default()]);
        drop(log);
        let lines = pipe.lines();
        assert_eq!(lines.len(), 2);
        for (field, expected) in [
            ("/time", Value::from("2026-11-30T12:00:00.123456Z")),
            ("/id", "000000000000feed".into()),
            ("/provider", "openai".into()),
            ("/key", "spare".into()),
            ("/outcome", "failed".into()),
            ("/fault", "silent".into()),
            ("/status", 504.into()),
            ("/stream", true.into()),
            ("/stages_ns/http_request", 1_000.into()),
            ("/added_ns", 500.into()),
        ] {
            assert_eq!(lines[0].pointer(field), Some(&expected), "{field}");
        }
        assert_eq!(
            (&lines[1]["provider"], &lines[1]["key"]),
            (&Value::Null, &Value::Null)
        );
        assert!(lines[1].get("fault").is_none());
    }

    #[test]
    fn a_reader_that_does_not_read_holds_nobody_and_is_told_what_it_missed() {
        let pipe = Pipe::default();
        let mut log = AccessLog::start(names(), pipe.clone()).unwrap();
        let handed = 200;
        for _ in 0..handed {
            log.log(&[Record::default()]);
        }
        assert!(
            log.lost.load(Ordering::Relaxed) > 0,
            "the line in front of the writer is bounded"
        );
        pipe.clone().open();
        drop(log);
        let lines = pipe.lines();
        let lost: u64 = lines.iter().filter_map(|line| line["lost"].as_u64()).sum();
        let told = lines.iter().filter(|line| line["id"].is_string()).count() as u64;
        assert_eq!(lost + told, handed, "{told} told, {lost} lost");
        assert!(lost > 0 && told > 0, "{told} told, {lost} lost");
    }

    #[test]
    fn a_reader_that_never_reads_does_not_hold_the_end() {
        let mut log = AccessLog::start(names(), Pipe::default()).unwrap();
        for _ in 0..WAITING_MAX * 2 {
            log.log(&[Record::default()]);
        }
        log.rename(names());
        assert!(log.names.is_some(), "there is no room for them");
        let begun = std::time::Instant::now();
        drop(log);
        assert!(begun.elapsed() < PATIENCE * 5);
    }

    #[test]
    fn lines_from_a_reload_on_have_its_names() {
        let pipe = Pipe::default().open();
        let mut log = AccessLog::start(names(), pipe.clone()).unwrap();
        let record = Record {
            provider: 0,
            key: 0,
            ..Record::default()
        };
        log.log(&[record]);
        log.rename(vec![("groq".to_owned(), vec!["free".to_owned()])]);
        log.log(&[record]);
        drop(log);
        let named: Vec<_> = pipe
            .lines()
            .iter()
            .map(|line| (line["provider"].clone(), line["key"].clone()))
            .collect();
        assert_eq!(
            named,
            [
                ("openai".into(), "main".into()),
                ("groq".into(), "free".into())
            ]
        );
    }
}
