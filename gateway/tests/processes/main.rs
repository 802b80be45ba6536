//! The programs as their user meets them: a real gateway, its children, real monitors, signals.
#![expect(
    clippy::unwrap_used,
    reason = "a test may unwrap, and so may its helpers"
)]

mod bench;
mod drain;
mod names;
mod past;
mod process;
mod readme;
mod remote;
mod segment;
mod settings;
mod supervisor;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use process::{Demo, Place, children, monitor, still_running, wait_for, within};

#[test]
fn the_monitor_counts_what_was_sent_and_no_stage_is_missed() {
    const REQUESTS: u32 = 3_000;
    let place = Place::new();
    let gateway = Demo::start(&place, &[]);

    gateway.load(REQUESTS, 1_000).all_answered();

    // The exporter comes by every 50 ms.
    let figures = wait_for("last record", || {
        let figures = place.figures();
        (figures["counters"]["records"] == REQUESTS).then_some(figures)
    });
    for counter in ["started", "completed"] {
        assert_eq!(figures["counters"][counter], REQUESTS, "{counter}");
    }
    for counter in [
        "lost",
        "failed",
        "cancelled",
        "refused",
        "rejected",
        "retries",
    ] {
        assert_eq!(figures["counters"][counter], 0, "{counter}");
    }
    for (stage, series) in figures["stages"].as_object().unwrap() {
        // Where nothing fails, nobody comes to these two.
        let is_passed_by = ["error_handling", "back_off"].contains(&stage.as_str());
        let expected = if is_passed_by { 0 } else { REQUESTS };
        assert_eq!(series["since_start"]["count"], expected, "{stage}");
    }
    let samples = &figures["samples"];
    assert_eq!(samples["samples_read"], REQUESTS);
    assert_eq!(samples["samples_missed"], 0, "a record was torn");
    assert_eq!(samples["http_request_below_provider_time"], 0);
    let unattributed_ns = samples["unattributed_p99_ns"].as_u64().unwrap();
    assert!(unattributed_ns < 2_000, "{unattributed_ns} ns");
    let provider_ns = figures["stages"]["http_request"]["since_start"]["p50_ns"].as_u64();
    assert!(provider_ns.unwrap() > 49_000_000, "the demo takes 50 ms");
}

#[test]
fn a_gateway_that_is_killed_is_dead_within_a_second_and_live_after_a_restart() {
    let place = Place::new();
    let mut first = Demo::start(&place, &["--demo-load", "200"]);
    wait_for("load", || {
        let completed = place.figures()["counters"]["completed"].as_u64();
        (completed > Some(20)).then_some(())
    });
    assert_eq!(place.figures()["state"], "live");
    let family = children(first.process.id());
    assert_eq!(family.len(), 2, "a mock provider and a load: {family:?}");

    first.process.kill().unwrap();

    within(Duration::from_secs(1), "DEAD", || {
        (place.figures()["state"] == "dead").then_some(())
    });
    first.ended();
    wait_for("end of its children", || {
        still_running(&family).is_empty().then_some(())
    });

    let second = Demo::start(&place, &[]);
    let figures = wait_for("LIVE", || {
        let figures = place.figures();
        (figures["state"] == "live").then_some(figures)
    });
    assert_eq!(figures["pid"], second.process.id());
    assert_eq!(figures["counters"]["started"], 0);
}

#[test]
fn a_monitor_that_watches_follows_a_restart() {
    let place = Place::new();
    let mut watching = monitor(&place.segments())
        .args(["--watch", "--interval", "100ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut shows = |what: &str| lines.by_ref().any(|line| line.unwrap().contains(what));

    let mut gateway = Demo::start(&place, &[]);
    assert!(shows("LIVE"));
    gateway.process.kill().unwrap();
    assert!(shows("DEAD"));
    gateway.ended();
    let again = Demo::start(&place, &[]);
    assert!(shows("LIVE"));

    drop(again);
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[test]
fn two_monitors_at_once_change_nothing_for_the_gateway() {
    const REQUESTS: u32 = 1_000;
    let place = Place::new();
    let gateway = Demo::start(&place, &[]);
    let load = gateway.load(REQUESTS, 400);
    let watching = [(); 2].map(|()| {
        monitor(&place.segments())
            .args(["--watch", "--interval", "100ms"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });

    load.all_answered();

    for mut watching in watching {
        watching.kill().unwrap();
        let output = watching.wait_with_output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        // 2.5 s of load, at ten a second.
        assert!(lines.lines().count() > 10, "{lines}");
        assert!(lines.contains("LIVE"), "{lines}");
    }
    let figures = wait_for("last record", || {
        let figures = place.figures();
        (figures["counters"]["records"] == REQUESTS).then_some(figures)
    });
    assert_eq!(figures["counters"]["completed"], REQUESTS);
    assert_eq!(figures["counters"]["lost"], 0);
    assert_eq!(figures["samples"]["samples_missed"], 0);
}

#[test]
fn sigterm_lets_answers_finish_and_leaves_nothing_behind() {
    const REQUESTS: u32 = 50;
    let place = Place::new();
    let mut gateway = Demo::start(&place, &["--demo-delay", "1s"]);
    let family = children(gateway.process.id());
    let load = gateway.load(REQUESTS, 10_000);
    wait_for("requests in flight", || {
        (place.figures()["gauges"]["upstream"] == REQUESTS).then_some(())
    });
    assert_eq!(place.left_over().len(), 2, "a segment and its lock");

    gateway.signal(Signal::TERM);

    assert_eq!(gateway.ended().code(), Some(0), "{}", gateway.logged());
    load.all_answered();
    assert!(gateway.logged().contains("drained=Whole"));
    assert_eq!(place.left_over(), [""; 0]);
    assert!(still_running(&family).is_empty());
}

#[test]
fn a_second_sigterm_ends_it_at_once() {
    let place = Place::new();
    let mut gateway = Demo::start(&place, &["--demo-delay", "10m"]);
    let mut load = gateway.load(5, 1_000);
    wait_for("requests in flight", || {
        (place.figures()["gauges"]["upstream"] == 5).then_some(())
    });

    gateway.signal(Signal::TERM);
    wait_for("drain", || {
        (place.figures()["state"] == "draining").then_some(())
    });
    gateway.signal(Signal::TERM);

    let status = within(Duration::from_secs(5), "end", || {
        gateway.process.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(0));
    assert!(gateway.logged().contains("drained=Cut"));
    assert_eq!(place.left_over(), [""; 0]);
    load.end();
}

#[test]
fn sighup_puts_other_settings_in_force_and_wrong_ones_change_nothing() {
    let place = Place::new();
    let settings = |keys: &str, models: &str| {
        let provider = format!("base_url = 'http://127.0.0.1:9'\nkeys = {keys}\nmodels = {models}");
        place.settings("gateway.toml", &format!("[providers.more]\n{provider}\n"))
    };
    let file = settings("'sk-canary'", "['a']");
    let gateway = Demo::start(&place, &["--config", file.to_str().unwrap()]);
    let models = || gateway.get("/v1/models");
    assert!(models().contains("more/a") && !models().contains("more/b"));

    settings("'sk-canary'", "['a', 'b']");
    gateway.signal(Signal::HUP);
    wait_for("new settings", || models().contains("more/b").then_some(()));

    settings("['sk-canary', 4711]", "['c']");
    gateway.signal(Signal::HUP);
    wait_for("complaint", || {
        let log = gateway.logged();
        log.contains("the old settings stay in force").then_some(())
    });
    assert!(gateway.logged().contains("put it in quotes"));
    assert!(!gateway.logged().contains("canary"));
    assert!(models().contains("more/b") && !models().contains("more/c"));
}

#[test]
fn the_address_of_a_taken_port_is_named() {
    let place = Place::new();
    let first = Demo::start(&place, &[]);
    let output = process::gateway()
        .args(["--demo", "--listen", &first.address, "--segment"])
        .arg(place.segments())
        .output()
        .unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    let message = format!("can't listen on {}", first.address);
    assert!(complained.contains(&message), "{complained}");
    assert_eq!(output.status.code(), Some(1));
    // The second has not taken the first one's segment along.
    assert_eq!(place.figures()["pid"], first.process.id());
    assert!(fs::read_dir(place.segments()).unwrap().count() == 2);
}
