//! The benchmark from end to end, and whether all sides of it count the same.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::process::{Place, Process, children, still_running, wait_for, within};

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bifrost-bench"));
    command.env_clear().env("LANG", "C.UTF-8").args(arguments);
    command
}

fn place_of(pid: u32) -> String {
    format!("/dev/shm/bifrost-bench-{pid}")
}

#[test]
fn a_quick_run_counts_the_same_on_all_sides_and_leaves_nothing_behind() {
    let place = Place::new();
    let [json, plots] = ["result.json", "plots"].map(|name| place.segments().join(name));
    let child = bench(&["run", "quick", "--json"])
        .arg(&json)
        .arg("--svg")
        .arg(&plots)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    let [markdown, said] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(status.success(), "{said}{markdown}");
    assert!(!Path::new(&place_of(pid)).exists());

    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let shapes = report["shapes"].as_array().unwrap();
    assert_eq!(shapes.len(), 4);
    for measured in shapes.iter().chain([&report["page"]]) {
        let round = &measured["rounds"][0];
        let through = &round["gateway"];
        let sent = through["load"]["all"]["sent"].as_u64().unwrap();
        assert!(sent >= 10, "{}: {sent}", measured["setup"]["name"]);
        for (side, count) in [
            ("the load's answers", &through["load"]["all"]["ok"]),
            ("the provider", &through["provider_counted"]),
            ("the gateway's heads", &through["inside"]["started"]),
            ("the gateway's ends", &through["inside"]["completed"]),
        ] {
            assert_eq!(*count, sent, "{side} of {}", measured["setup"]["name"]);
        }
        assert_eq!(through["inside"]["not_completed"], 0);
        let handshakes = through["handshakes"].as_u64().unwrap();
        assert_eq!(handshakes > 0, measured["setup"]["tls"] == true);
        let direct = &round["direct"]["all"];
        assert_eq!(direct["sent"], direct["ok"]);
    }
    let pair = &report["queued"]["rounds"][0];
    let waits = |side: &str| {
        let series = pair[side]["inside"]["series"].as_array().unwrap();
        let wait = series
            .iter()
            .find(|row| row["key"] == "queue_wait")
            .unwrap();
        wait["p99"].as_u64().unwrap()
    };
    // With 19 of 20 permits taken, some wait for milliseconds. With permits to spare nobody does.
    let (limited, free) = (waits("limited"), waits("free"));
    assert!(
        limited > 1_000_000 && free < limited,
        "{limited} and {free} ns"
    );
    let picks = report["picks"].as_array().unwrap();
    assert!(
        picks.iter().all(|pick| pick["ns"].as_f64().unwrap() > 0.0),
        "{picks:?}"
    );
    let inside = &report["page"]["rounds"][0]["gateway"]["inside"];
    // 800 requests are measured, more or less: they come by chance, and those of the warm-up are not in it.
    let measured = inside["in_process"]["count"].as_u64().unwrap();
    assert!((600..1_000).contains(&measured), "{measured}");
    assert_eq!(inside["records_missed"], 0);
    assert_whole(&markdown);
    for plot in ["latency", "memory", "distribution"] {
        let svg = fs::read_to_string(plots.join(format!("quick-{plot}.svg"))).unwrap();
        assert!(
            svg.starts_with("<svg") && svg.contains("<polyline"),
            "{svg}"
        );
    }
}

/// Whether all of its tables are there, and a verdict.
fn assert_whole(markdown: &str) {
    for title in [
        "Overall",
        "Stages",
        "Overhead",
        "Utilisation",
        "What the page hides",
        "Where the added latency goes",
        "Beside the page: TLS to the provider",
        "Beside the page: streams",
        "Beside the page: at the queue's limit",
        "Key selection by itself",
        "Start, memory, size",
        "Verdict",
        "Measured on",
    ] {
        assert!(
            markdown.contains(&format!("\n## {title}\n")),
            "no {title} in\n{markdown}"
        );
    }
    let (_, verdict) = markdown.split_once("\n## Verdict\n\n").unwrap();
    assert!(
        [
            "OK - STAY",
            "WARNING - WATCH",
            "CRITICAL - UPGRADE",
            "UNKNOWN - NO LIMITS known"
        ]
        .iter()
        .any(|word| verdict.starts_with(word)),
        "{verdict}"
    );
}

/// A benchmark that would take ten minutes, and its processes.
fn in_the_midst() -> (Child, HashSet<Process>) {
    let child = bench(&["run", "quick", "--page-only", "--time", "10m"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let family = wait_for("mock and load", || {
        let family = children(child.id());
        (family.len() == 2).then_some(family)
    });
    (child, family)
}

#[test]
fn a_benchmark_that_is_told_to_stop_takes_everything_with_it() {
    let (mut child, family) = in_the_midst();

    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();

    wait_for("end of its children", || {
        still_running(&family).is_empty().then_some(())
    });
    wait_for("end of its files", || {
        (!Path::new(&place_of(child.id())).exists()).then_some(())
    });
}

#[test]
fn a_benchmark_that_is_killed_takes_its_processes_with_it() {
    let (mut child, family) = in_the_midst();

    child.kill().unwrap();
    child.wait().unwrap();

    wait_for("end of its children", || {
        still_running(&family).is_empty().then_some(())
    });
    // It had no chance to.
    let _ = fs::remove_dir_all(place_of(child.id()));
}

/// A program that is started in place of the gateway, told by `script` what to do; `GATEWAY` is the real one.
fn wrapper(place: &Place, script: &str) -> PathBuf {
    let program = place.segments().join("wrapper");
    let gateway = env!("CARGO_BIN_EXE_bifrost-gateway");
    let script = format!(
        "#!/bin/sh\nGATEWAY={gateway}\nHERE={}\n{script}\n",
        place.segments().display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    program
}

/// A child of `parent` that has become such a program.
fn child_named(parent: u32, name: &str) -> Option<Process> {
    children(parent).into_iter().find(|it| it.name() == name)
}

/// Ends a benchmark whose gateway has become `sleep`, and looks at what is left of it.
fn told_to_stop_with_a_gateway_that_hangs(script: &str) {
    let place = Place::new();
    let program = wrapper(&place, script);
    let mut child = bench(&["run", "quick", "--time", "100ms", "--gateway"])
        .arg(&program)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    within(Duration::from_mins(2), "gateway that hangs", || {
        assert!(child.try_wait().unwrap().is_none(), "it went by");
        child_named(child.id(), "sleep")
    });
    let family = children(child.id());

    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();

    wait_for("end of its children", || {
        still_running(&family).is_empty().then_some(())
    });
}

#[test]
fn a_gateway_that_is_started_to_see_how_long_that_takes_ends_with_the_benchmark() {
    // Only then two gateways after each other have the same provider.
    told_to_stop_with_a_gateway_that_hangs(
        "last=$(tail -n 1 $HERE/providers 2>&1)\n\
         echo \"$BIFROST_PROVIDERS__OPENAI__BASE_URL\" >> $HERE/providers\n\
         [ \"$last\" = \"$BIFROST_PROVIDERS__OPENAI__BASE_URL\" ] && [ -n \"$last\" ] && exec sleep 600\n\
         exec $GATEWAY \"$@\"",
    );
}

#[test]
fn a_gateway_that_does_not_tell_its_version_ends_with_the_benchmark() {
    told_to_stop_with_a_gateway_that_hangs("exec sleep 600");
}

#[test]
fn a_gateway_that_dies_under_the_load_is_no_cheap_one() {
    let child = bench(&["run", "quick", "--page-only", "--time", "3s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let gateway = wait_for("gateway under load", || {
        let is_loaded = children(child.id()).len() == 3;
        let gateway = child_named(child.id(), "bifrost-gateway");
        gateway.filter(|_| is_loaded)
    });
    gateway.kill();

    let output = child.wait_with_output().unwrap();
    let [out, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!((output.status.code(), out.as_str()), (Some(1), ""));
    assert!(said.contains("the gateway, whose log ends with "), "{said}");
    assert!(said.contains("it ended under the load"), "{said}");
}

/// A mock provider by itself, and its URL.
fn provider(mut mock: Command) -> (Child, String) {
    let mut child = mock.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim_end().strip_prefix("listening on ").unwrap();
    (child, address.to_owned())
}

#[test]
fn a_load_that_is_interrupted_says_what_it_found() {
    let (mut mock, address) = provider(bench(&["mock", "--delay=1ms"]));
    let url = format!("http://{address}");
    for how in ["--rate=200", "--connections=2"] {
        let load = bench(&["load", "--url", &url, how, "--time=1h", "--warm-up=0s"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        // It has to be sending: until then the signal would just end it.
        wait_for("its interruption to be taken over", || {
            let status = fs::read_to_string(format!("/proc/{}/status", load.id())).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught?.trim(), 16).unwrap();
            (caught & 0b10 != 0 && begun.elapsed() > Duration::from_millis(300)).then_some(())
        });
        kill_process(Pid::from_child(&load), Signal::INT).unwrap();
        let output = load.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert!(
            said.contains("answered (100.00 %)") && said.contains("; stopped after "),
            "{said}"
        );
    }
    mock.kill().unwrap();
    mock.wait().unwrap();
}

#[test]
fn a_mock_that_runs_out_of_descriptors_says_so_once() {
    let mut limited = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_bifrost-bench");
    limited
        .args(["-c", &format!("ulimit -n 40; exec {program} mock")])
        .stderr(Stdio::piped());
    let (mut mock, address) = provider(limited);
    let connections = (0..60).map(|_| TcpStream::connect(&address).unwrap());
    let connections: Vec<_> = connections.collect();
    let mut said = BufReader::new(mock.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("the limit of descriptors is 40"), "{line}");
    mock.kill().unwrap();
    mock.wait().unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    drop(connections);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = bench(&["mock", "--address", &address]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains(&format!("can't listen on {address}")),
        "{said}"
    );
}

/// A provider by itself; it ends on drop.
struct Mock(Child);

impl Mock {
    /// Starts one, and waits until it says where it listens.
    fn start(arguments: &[&str]) -> (Self, String) {
        let mut child = bench(&["mock", "--delay=5ms", "--pace=1ms"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ").unwrap();
        (Self(child), format!("http://{address}"))
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_load_in_anthropic_s_dialect_is_answered_in_it() {
    let (_mock, url) = Mock::start(&[]);
    let arguments = [
        "load",
        "--json",
        "--url",
        &url,
        "--dialect=anthropic",
        "--mix=plain,stream",
        "--connections=4",
        "--requests-each=6",
        "--warm-up=0s",
    ];
    let output = bench(&arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["all"]["sent"], &report["all"]["ok"]),
        (&24.into(), &24.into())
    );
    // Half of them are streams of 16 pieces each.
    assert_eq!(
        (&report["first_event"]["count"], &report["events"]),
        (&12.into(), &192.into())
    );
}

#[test]
fn a_result_that_can_not_be_written_is_refused_before_anything_is_measured() {
    for place in ["--json", "--svg"] {
        let output = bench(&["run", "t3.medium", place, "/proc/nowhere/result"])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains("/proc/nowhere/result"), "{said}");
    }
}

#[test]
fn nginx_that_is_not_there_is_told_before_anything_is_measured() {
    let nothing = Place::new();
    let output = bench(&["run", "quick", "--nginx"])
        .env("PATH", nothing.segments())
        .output()
        .unwrap();
    let [out, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!((output.status.code(), out.as_str()), (Some(1), ""));
    assert!(said.contains("nginx is not installed"), "{said}");
}

#[test]
fn a_provider_elsewhere_is_asked_before_anything_is_measured() {
    let run = |url: &str| {
        let arguments = [
            "run",
            "quick",
            "--page-only",
            "--time=300ms",
            "--real-socket",
            url,
        ];
        let output = bench(&arguments).output().unwrap();
        let [out, said] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        (output.status.code(), out, said)
    };
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nobody = format!("http://{nobody}");
    let (status, out, said) = run(&nobody);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(
        said.contains(&format!("{nobody} does not answer")),
        "{said}"
    );

    let (_failing, url) = Mock::start(&["--failure-rate=1"]);
    let (status, out, said) = run(&url);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(said.contains("status 500"), "{said}");

    let (_mock, url) = Mock::start(&[]);
    let (status, out, said) = run(&format!("{url}/v1/"));
    assert_eq!(status, Some(0), "{said}{out}");
    assert!(out.contains(&format!("- provider at {url};")), "{out}");
}

#[test]
fn a_load_says_what_became_of_it_and_fails_where_requests_did() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{nobody}");
    let arguments = [
        "load",
        "--url",
        &url,
        "--connections=2",
        "--requests-each=3",
    ];
    let output = bench(&arguments).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("0 of 6 answered (0.00 %)") && said.contains("connect failed: 6"),
        "{said}"
    );
}
