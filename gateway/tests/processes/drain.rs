//! SIGTERM with a hundred streams and a hundred plain requests in flight: all finish, or all are told.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::process::{Place, gateway, wait_for};

const EACH: usize = 100;

/// A process that is killed when the test is over.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A mock provider, and its address.
fn mock(settings: &[&str]) -> (Killed, String) {
    let mut child = gateway()
        .arg("mock")
        .args(settings)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let address = line
        .split_whitespace()
        .find_map(|word| word.rsplit_once("127.0.0.1:").map(|(_, port)| port))
        .unwrap_or_else(|| panic!("no address in {line:?}"));
    (Killed(child), format!("127.0.0.1:{address}"))
}

struct Gateway {
    process: Killed,
    address: String,
    admin: String,
    log: std::path::PathBuf,
}

impl Gateway {
    fn start(place: &Place, streams: &str, plain: &str, drain_timeout: &str) -> Self {
        let log = place.settings("log", "");
        let process = gateway()
            .args(["--listen", "127.0.0.1:0", "--segment"])
            .arg(place.segments())
            .env("BIFROST_LOG__FORMAT", "json")
            .env("BIFROST_ADMIN__LISTEN", "127.0.0.1:0")
            .env("BIFROST_DRAIN_TIMEOUT", drain_timeout)
            .env(
                "BIFROST_PROVIDERS__STREAMS__BASE_URL",
                format!("http://{streams}/v1"),
            )
            .env(
                "BIFROST_PROVIDERS__PLAIN__BASE_URL",
                format!("http://{plain}/v1"),
            )
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let gateway = Self {
            process: Killed(process),
            address: String::new(),
            admin: String::new(),
            log,
        };
        let serving = wait_for("address", || gateway.logged("serving"));
        let text = |name: &str| serving[name].as_str().unwrap().to_owned();
        Self {
            address: text("address"),
            admin: text("admin"),
            ..gateway
        }
    }

    /// The line of the log with that message.
    fn logged(&self, message: &str) -> Option<serde_json::Value> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let mut lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        lines.find(|line: &serde_json::Value| line["message"] == message)
    }

    /// Sends a chat from a thread of its own, and gives back the first bytes' signal and the whole answer.
    fn ask(
        &self,
        model: &str,
        stream: bool,
    ) -> (std::sync::mpsc::Receiver<()>, JoinHandle<String>) {
        let (address, model) = (self.address.clone(), model.to_owned());
        let (begun, begins) = std::sync::mpsc::channel();
        let asking = thread::spawn(move || {
            let body = format!(
                r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#
            );
            let mut connection = TcpStream::connect(address).unwrap();
            write!(
                connection,
                "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            let mut answer = vec![0; 64];
            let count = connection.read(&mut answer).unwrap();
            answer.truncate(count);
            let _ = begun.send(());
            connection.read_to_end(&mut answer).unwrap();
            String::from_utf8(answer).unwrap()
        });
        (begins, asking)
    }

    /// Streams that have begun, and plain requests that wait for the provider.
    fn busy(&self, place: &Place) -> (Vec<JoinHandle<String>>, Vec<JoinHandle<String>>) {
        let streams: Vec<_> = (0..EACH).map(|_| self.ask("streams/m", true)).collect();
        let streams = streams
            .into_iter()
            .map(|(begins, asking)| {
                begins.recv().unwrap();
                asking
            })
            .collect();
        let plain = (0..EACH).map(|_| self.ask("plain/m", false).1).collect();
        wait_for("requests in flight", || {
            (place.figures()["gauges"]["upstream"] == 2 * EACH).then_some(())
        });
        (streams, plain)
    }

    fn terminate(&self) {
        rustix::process::kill_process(Pid::from_child(&self.process.0), Signal::TERM).unwrap();
    }

    fn ended(&mut self) -> Option<i32> {
        wait_for("end", || self.process.0.try_wait().unwrap()).code()
    }
}

#[test]
fn sigterm_lets_streams_and_plain_requests_finish() {
    let place = Place::new();
    // Streams take 6 s and plain requests 3 s: time to get all of them under way on a busy machine.
    let (_one, streams) = mock(&["--delay=10ms", "--chunks=30", "--pace=200ms"]);
    let (_two, plain) = mock(&["--delay=3s"]);
    let mut gateway = Gateway::start(&place, &streams, &plain, "60s");
    let mut early = TcpStream::connect(&gateway.admin).unwrap();
    let (streams, plain) = gateway.busy(&place);

    gateway.terminate();

    wait_for("refused connection", || {
        TcpStream::connect(&gateway.address).is_err().then_some(())
    });
    write!(
        early,
        "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut ready = String::new();
    early.read_to_string(&mut ready).unwrap();
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    for answer in streams {
        let answer = answer.join().unwrap();
        assert!(answer.contains("data: [DONE]"), "{answer}");
    }
    for answer in plain {
        let answer = answer.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(gateway.ended(), Some(0));
    assert_eq!(gateway.logged("stopped").unwrap()["drained"], "Whole");
}

#[test]
fn what_is_left_after_the_drain_time_is_told_and_counted() {
    let place = Place::new();
    let (_one, streams) = mock(&["--delay=10ms", "--pace=10m"]);
    let (_two, plain) = mock(&["--delay=10m"]);
    let mut gateway = Gateway::start(&place, &streams, &plain, "500ms");
    let (streams, plain) = gateway.busy(&place);

    let since = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.ended(), Some(0));
    let took = since.elapsed();

    assert!(took >= Duration::from_millis(500), "{took:?}");
    assert!(took < Duration::from_millis(1_500), "{took:?}");
    for answer in streams {
        let answer = answer.join().unwrap();
        assert!(answer.contains(r#""code":"draining""#), "{answer}");
        assert!(!answer.contains("[DONE]"), "{answer}");
        assert!(answer.ends_with("\r\n0\r\n\r\n"), "{answer}");
    }
    for answer in plain {
        let answer = answer.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains(r#""code":"draining""#), "{answer}");
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    }
    let cut_off = format!("Cut({})", 2 * EACH);
    assert_eq!(gateway.logged("stopped").unwrap()["drained"], cut_off);
}
