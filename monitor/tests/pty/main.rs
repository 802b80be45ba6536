//! The monitor as its user meets it: the real program, in a terminal, on a real segment.
#![expect(
    clippy::unwrap_used,
    reason = "a test may unwrap, and so may its helpers"
)]

mod gateway;
mod terminal;

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use gateway::Gateway;
use terminal::Terminal;

const USUAL: (u16, u16) = (80, 24);

fn scratch() -> (TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("gateway-4711.seg");
    (scratch, path)
}

/// A monitor that shows a living gateway's figures.
fn watching(variables: &[(&str, &str)]) -> (TempDir, Gateway, Terminal) {
    let (scratch, path) = scratch();
    let mut gateway = Gateway::start(&path, 4_711);
    let terminal = Terminal::start(&path, USUAL, variables);
    terminal.shows(&["LIVE", "47.13 µs", "STAY on t3.medium"], || {
        gateway.beat();
    });
    (scratch, gateway, terminal)
}

#[test]
fn figures_stand_on_an_ordinary_terminal() {
    let (_scratch, _gateway, mut terminal) = watching(&[]);
    let text = terminal.text();
    for expected in [
        "pid 4711",
        "Queue wait",
        "2,950/s",
        "for 1m59s",
        "* Key selection         <= 10 ns",
        "Unattributed",
        "q quit",
    ] {
        assert!(text.contains(expected), "{expected} in:\n{text}");
    }
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn keys_open_the_help_pause_and_change_the_window() {
    let (_scratch, mut gateway, mut terminal) = watching(&[]);
    terminal.press("w");
    terminal.shows(&["last ~300 s"], || gateway.beat());
    terminal.press("?");
    terminal.shows(&["open or close this help"], || gateway.beat());
    terminal.press("\u{1b}");
    terminal.shows(&["* Request setup"], || gateway.beat());
    terminal.press("p");
    terminal.shows(&["PAUSED"], || gateway.beat());
    // Several keys at once are all heard.
    terminal.press(" w");
    terminal.shows(&["10 s  "], || gateway.beat());
    assert!(!terminal.text().contains("PAUSED"));
    terminal.press("\u{3}");
    assert!(terminal.ends().success());
}

#[test]
fn colours_and_signs_are_those_that_the_terminal_has() {
    for (variables, has_colours, is_ascii) in [
        (&[][..], true, false),
        (&[("NO_COLOR", "1")], false, false),
        (&[("LC_ALL", "C")], true, true),
    ] {
        let (_scratch, path) = scratch();
        let mut gateway = Gateway::start(&path, 4_711);
        let mut terminal = Terminal::start(&path, (160, 48), variables);
        terminal.shows(&["LIVE", "STAY on t3.medium", "r record"], || {
            gateway.beat();
        });
        assert_eq!(terminal.has_colours(), has_colours, "{variables:?}");
        assert_eq!(terminal.text().is_ascii(), is_ascii, "{variables:?}");
        terminal.press("q");
        assert!(terminal.ends().success());
    }
}

#[test]
fn every_view_has_a_key_and_escape_leads_back() {
    let (_scratch, mut gateway, mut terminal) = watching(&[]);
    for (key, expected) in [
        ("2", "values as measured"),
        ("3", "Providers and keys"),
        ("4", "Recent requests, newest first: 1,000"),
        ("5", "Memory 1.31 GB"),
        ("6", "pid 4711 found"),
        ("1", "Sched delay"),
        ("4", "Recent requests"),
    ] {
        terminal.press(key);
        terminal.shows(&[expected], || gateway.beat());
    }
    terminal.press("\u{1b}");
    terminal.shows(&["Sched delay"], || gateway.beat());
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn panes_are_chosen_and_zoomed_and_rows_selected() {
    let (_scratch, mut gateway, mut terminal) = watching(&[]);
    for (keys, expected) in [
        ("2", "Queue wait, last"),
        ("\u{1b}[B", "Key selection, last"),
        ("j", "Message formatting, last"),
        ("\u{1b}[A", "Key selection, last"),
        ("kk", "Request parsing, last"),
        ("G", "Time per token, last"),
        ("g", "Request parsing, last"),
        ("\t\t", "z zoom histogram"),
        ("z", "z back from histogram"),
        ("\u{1b}", "z zoom histogram"),
        ("\u{1b}[Z", "z zoom stages"),
        ("4\r", "z back from one request"),
    ] {
        terminal.press(keys);
        terminal.shows(&[expected], || gateway.beat());
    }
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn requests_are_filtered_and_ordered() {
    let (_scratch, mut gateway, mut terminal) = watching(&[]);
    for (keys, expected) in [
        ("/nothing q", "filter: nothing q_"),
        ("\u{7f}\u{7f}", "filter: nothing_"),
        ("\r", "with \"nothing\": 0"),
        ("\u{1b}", "newest first: 1,000"),
        ("/CANCELLED\r", "with \"CANCELLED\": 1,000"),
        ("o", "Slowest requests by total, with \"CANCELLED\": 100"),
        ("o", "Slowest requests by overhead"),
        ("c", "peaks and slow requests are forgotten"),
        ("o", "by queue wait, with \"CANCELLED\": 0"),
        ("o", "newest first"),
    ] {
        terminal.press(keys);
        terminal.shows(&[expected], || gateway.beat());
    }
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn themes_and_the_pace_are_changed_and_said() {
    let (_scratch, mut gateway, mut terminal) = watching(&[]);
    for (keys, expected) in [
        ("t", "theme dark"),
        ("ttt", "theme terminal"),
        ("+", "looks every 125ms"),
        ("+++", "looks every 100ms"),
        ("-------", "looks every 5s"),
        ("++++++", "looks every 100ms"),
    ] {
        terminal.press(keys);
        terminal.shows(&[expected], || gateway.beat());
    }
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn the_screen_is_written_to_a_file_that_is_named() {
    let (scratch, mut gateway, mut terminal) = watching(&[]);
    terminal.press("s");
    terminal.shows(&["written to "], || gateway.beat());
    let is_ours = |path: &PathBuf| path.extension().is_some_and(|it| it == "txt");
    let files = std::fs::read_dir(scratch.path()).unwrap();
    let written: Vec<_> = files.map(|it| it.unwrap().path()).filter(is_ours).collect();
    let [path] = &written[..] else {
        panic!("{written:?}")
    };
    let text = std::fs::read_to_string(path).unwrap();
    assert!(
        text.contains("STAY on t3.medium") && text.contains("47.13 µs"),
        "{text}"
    );
    assert!(
        !text.contains('\u{1b}') && !text.contains("q quit"),
        "{text:?}"
    );
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn a_recording_is_made_and_can_be_shown() {
    let (scratch, mut gateway, mut terminal) = watching(&[]);
    terminal.press("r");
    terminal.shows(&["recording to ", "REC"], || gateway.beat());
    terminal.press("r");
    terminal.shows(&["recorded to "], || gateway.beat());
    assert!(!terminal.text().contains("REC "));
    let is_ours = |path: &PathBuf| path.extension().is_some_and(|it| it == "jsonl");
    let files = std::fs::read_dir(scratch.path()).unwrap();
    let recorded: Vec<_> = files.map(|it| it.unwrap().path()).filter(is_ours).collect();
    let [path] = &recorded[..] else {
        panic!("{recorded:?}")
    };
    let recorded = std::fs::read_to_string(path).unwrap();
    assert!(recorded.starts_with("{\"recording\":"), "{recorded:.200}");
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn it_is_suspended_and_comes_back_whole() {
    let (_scratch, mut gateway, mut terminal) = watching(&[]);
    for by_key in [true, false] {
        if by_key {
            terminal.press("\u{1a}");
        } else {
            terminal.signal(Signal::TSTP);
        }
        terminal.is_given_back();
        terminal.signal(Signal::CONT);
        terminal.shows(&["LIVE", "STAY on t3.medium", "q quit"], || gateway.beat());
        assert!(terminal.is_taken());
        terminal.press("?");
        terminal.shows(&["open or close this help"], || gateway.beat());
        terminal.press("\u{1b}");
        terminal.shows(&["* Request setup"], || gateway.beat());
    }
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn a_storm_of_sizes_is_survived() {
    let (_scratch, mut gateway, mut terminal) = watching(&[]);
    for step in 0_u16..60 {
        terminal.resize((1 + step * 37 % 200, 1 + step * 23 % 60));
        terminal.press(["1", "2", "3", "4", "5", "6", "z", "\t"][usize::from(step) % 8]);
    }
    terminal.press("1");
    terminal.resize(USUAL);
    terminal.shows(&["LIVE", "Sched delay", "q quit"], || gateway.beat());
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn lines_end_when_nobody_reads_them() {
    let (_scratch, path) = scratch();
    let _gateway = Gateway::start(&path, 4_711);
    let mut monitor = Command::new(env!("CARGO_BIN_EXE_bifrost-monitor"))
        .args(["--watch", "--interval", "100ms", "--segment"])
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(monitor.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("queue wait"));
    drop(lines);
    assert!(monitor.wait().unwrap().success());
}

#[test]
fn signals_end_it_and_leave_the_terminal_as_it_was() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let (_scratch, _gateway, terminal) = watching(&[]);
        terminal.signal(signal);
        assert!(terminal.ends().success(), "{signal:?}");
    }
}

#[test]
fn a_panic_leaves_the_terminal_as_it_was() {
    let (_scratch, path) = scratch();
    let _gateway = Gateway::start(&path, 4_711);
    let terminal = Terminal::start(&path, USUAL, &[("BIFROST_MONITOR_TEST_PANIC", "1")]);
    terminal.shows(&["asks for a panic"], || {});
    assert_eq!(terminal.ends().exit_code(), 101);
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    let (_scratch, _gateway, terminal) = watching(&[]);
    terminal.unplug();
}

#[test]
fn every_size_is_drawn_and_keys_work_in_the_smallest() {
    let (_scratch, mut gateway, mut terminal) = watching(&[]);
    for (size, expected) in [
        ((160, 48), ["limit 75 µs", "xlarge"]),
        ((60, 12), ["Trigger", "Overhead (sum"]),
        ((30, 4), ["STAY on t3.medium", "needs 60x12, has 30x4"]),
    ] {
        terminal.resize(size);
        terminal.shows(&expected, || gateway.beat());
    }
    for size in [(1, 1), (300, 100), (2, 50)] {
        terminal.resize(size);
    }
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn death_shows_within_a_second_and_the_next_gateway_is_followed() {
    let (scratch, gateway, mut terminal) = watching(&[]);
    drop(gateway);
    let taken = terminal.shows(&["DEAD", "UNKNOWN: the gateway died", "47.13 µs"], || {});
    assert!(taken < Duration::from_secs(1), "{taken:?}");

    let path = scratch.path().join("gateway-4711.seg");
    let mut next = Gateway::start(&path, 4_712);
    terminal.shows(&["LIVE", "pid 4712", "STAY"], || next.beat());
    next.stop();
    terminal.shows(&["STOPPED", "in good order"], || {});
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn a_silent_gateway_has_stalled_until_it_speaks() {
    let (_scratch, mut gateway, mut terminal) = watching(&[]);
    terminal.shows(&["STALLED", "UNKNOWN: the gateway has been silent"], || {});
    terminal.shows(&["LIVE"], || gateway.beat());
    terminal.press("q");
    assert!(terminal.ends().success());
}

#[test]
fn in_a_directory_the_newest_living_gateway_is_followed() {
    let (scratch, path) = scratch();
    let mut terminal = Terminal::start(scratch.path(), USUAL, &[]);
    terminal.shows(&["NO GATEWAY", "--segment PATH"], || {});
    let mut old = Gateway::start(&path, 4_711);
    terminal.shows(&["pid 4711", "LIVE"], || old.beat());
    let mut new = Gateway::start(&scratch.path().join("gateway-4712.seg"), 4_712);
    terminal.shows(&["pid 4712", "LIVE"], || new.beat());
    drop(new);
    terminal.shows(&["pid 4711", "LIVE"], || old.beat());
    terminal.press("q");
    assert!(terminal.ends().success());
}

fn output(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bifrost-monitor"))
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap()
}

#[test]
fn one_json_object_tells_a_late_comer_everything() {
    let (_scratch, path) = scratch();
    let _gateway = Gateway::start(&path, 4_711);
    let told = output(&["--json", "--segment", path.to_str().unwrap()]);
    assert!(told.status.success());
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    for (pointer, expected) in [
        ("/state", Value::from("live")),
        ("/pid", 4_711.into()),
        ("/verdict/state", "stay".into()),
        ("/counters/completed", 354_000.into()),
        ("/stages/queue_wait/since_start/count", 12_000.into()),
        ("/stages/queue_wait/window/count", 6_000.into()),
        ("/stages/queue_wait/window/mean_ns", 47_130.into()),
        ("/samples/samples_read", 12_000.into()),
        ("/samples/unattributed_p99_ns", 70.into()),
    ] {
        assert_eq!(told.pointer(pointer), Some(&expected), "{pointer}");
    }
}

#[test]
fn the_readmes_picture_is_what_its_command_draws() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("screen.svg");
    let made = output(&["--scenario", "queue-wait", "--svg", path.to_str().unwrap()]);
    assert!(made.status.success(), "{made:?}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kept = fs::read_to_string(root.join("screen.svg")).unwrap();
    let is_same = fs::read_to_string(&path).unwrap() == kept;
    assert!(
        is_same,
        "bifrost-monitor --scenario queue-wait --svg monitor/screen.svg"
    );
}

#[test]
fn the_screen_once_is_plain_text() {
    let (_scratch, path) = scratch();
    let _gateway = Gateway::start(&path, 4_711);
    let told = output(&["--once", "--segment", path.to_str().unwrap()]);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(
        text.contains("STAY on t3.medium") && text.contains("47.13 µs"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn without_a_gateway_it_says_where_it_looked_and_what_to_do() {
    let (scratch, path) = scratch();
    for (mode, named) in [("--once", path.as_path()), ("--json", scratch.path())] {
        let named = named.to_str().unwrap();
        let told = output(&[mode, "--segment", named]);
        assert_eq!(told.status.code(), Some(3), "{mode}");
        let complaint = String::from_utf8(told.stderr).unwrap();
        assert!(
            complaint.contains(&format!("NO GATEWAY: no segment in {named}")),
            "{complaint}"
        );
        assert!(complaint.contains("start bifrost-gateway"), "{complaint}");
    }
}

/// Asks for the screen once, which there is not: with exit code 3, and a complaint that says all of `words`.
fn complains(path: &Path, words: &[&str]) {
    let told = output(&["--once", "--segment", path.to_str().unwrap()]);
    assert_eq!(told.status.code(), Some(3), "{told:?}");
    let complaint = String::from_utf8(told.stderr).unwrap();
    for word in words.iter().chain(&[path.to_str().unwrap()]) {
        assert!(complaint.contains(word), "{word} in {complaint}");
    }
}

#[test]
fn a_file_that_is_no_segment_is_named_as_such() {
    let (_scratch, path) = scratch();
    let magic = [b"BIFROST\x01".as_slice(), &[0xff; 8_184]].concat();
    for (bytes, reason) in [
        (vec![], "too short to be a segment"),
        (vec![0xa5; 4_095], "too short to be a segment"),
        (vec![0; 8_192], "not a segment of a gateway"),
        (vec![0xa5; 8_192], "not a segment of a gateway"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        complains(&path, &["UNREADABLE", reason]);
    }
    std::fs::write(&path, magic).unwrap();
    complains(&path, &["INCOMPATIBLE", "layout 4294967295"]);
}

#[test]
fn a_segment_that_was_cut_before_it_is_opened_is_named_as_such() {
    let (_scratch, path) = scratch();
    drop(Gateway::start(&path, 4_711));
    cut(&path, 8_192);
    complains(&path, &["UNREADABLE", "does not fit the file"]);
}

#[test]
fn another_layout_is_refused_and_both_versions_are_named() {
    let (_scratch, path) = scratch();
    drop(Gateway::start(&path, 4_711));
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    // Major version 9, minor version 3.
    file.write_all_at(&[3, 0, 0, 0, 9, 0, 0, 0], 8).unwrap();
    complains(&path, &["INCOMPATIBLE", "has layout 9", "reads layout 2"]);
}

#[test]
fn a_segment_that_is_cut_under_its_reader_is_let_go_and_the_next_is_followed() {
    let (scratch, gateway, mut terminal) = watching(&[]);
    let path = scratch.path().join("gateway-4711.seg");
    cut(&path, 10);
    terminal.shows(&["UNREADABLE", "gateway-4711.seg"], || {});
    drop(gateway);
    std::fs::remove_file(&path).unwrap();
    let mut next = Gateway::start(&path, 4_712);
    terminal.shows(&["LIVE", "pid 4712"], || next.beat());
    terminal.press("q");
    assert!(terminal.ends().success());
}

/// What the monitor says, and its exit status.
fn said(arguments: &[&str]) -> (String, Option<i32>) {
    let output = output(arguments);
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.code())
}

#[test]
fn a_check_ends_with_the_verdict_and_never_with_an_upgrade_by_mistake() {
    let (_scratch, path) = scratch();
    let segment = path.to_str().unwrap();
    let (said_none, status) = said(&["--check", "--segment", segment]);
    assert!(said_none.starts_with("UNKNOWN - NO GATEWAY"), "{said_none}");
    assert_eq!((said_none.lines().count(), status), (1, Some(3)));
    let gateway = Gateway::start(&path, 4_711);
    let (stay, status) = said(&["--check", "--segment", segment]);
    assert!(stay.starts_with("OK - STAY on t3.medium: "), "{stay}");
    assert_eq!((stay.lines().count(), status), (1, Some(0)));
    drop(gateway);
    let (dead, status) = said(&["--check", "--segment", segment]);
    assert!(dead.starts_with("UNKNOWN - the gateway died"), "{dead}");
    assert_eq!(status, Some(3));
    for (scenario, expected) in [("calm", 0), ("approaching", 1), ("queue-wait", 2)] {
        let (text, status) = said(&["--check", "--scenario", scenario]);
        assert_eq!(status, Some(expected), "{text}");
    }
    // A wrong command line is 2 elsewhere, and here that would be an upgrade.
    assert_eq!(said(&["--check", "--window", "7"]).1, Some(3));
    assert_eq!(said(&["--once", "--window", "7"]).1, Some(2));
}

#[test]
fn all_segments_are_listed_and_the_exit_status_says_whether_one_lives() {
    let (scratch, path) = scratch();
    let directory = scratch.path().to_str().unwrap();
    let list = || said(&["--list", "--segment", directory]);
    assert_eq!(list().1, Some(3));
    drop(Gateway::start(&path, 4_711));
    std::fs::write(scratch.path().join("other.seg"), "no segment").unwrap();
    let (text, status) = list();
    assert!(
        text.contains("DEAD") && text.contains("UNREADABLE"),
        "{text}"
    );
    assert_eq!(status, Some(3), "{text}");
    let _gateway = Gateway::start(&scratch.path().join("gateway-4712.seg"), 4_712);
    let (text, status) = list();
    assert_eq!(status, Some(0), "{text}");
    let rows: Vec<Vec<_>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!((rows.len(), rows[1][0], rows[1][1]), (4, "LIVE", "4712"));
    assert!(
        rows[1].last().unwrap().ends_with("gateway-4712.seg"),
        "{text}"
    );
}

#[test]
fn without_a_terminal_each_look_is_a_line_and_a_recording_ends() {
    let (scratch, _) = scratch();
    let path = scratch.path().join("calm.jsonl");
    let path = path.to_str().unwrap();
    let seen = output(&["--scenario", "calm", "--record", path, "--json"]);
    assert!(seen.status.success(), "{seen:?}");
    let (lines, status) = said(&["--replay", path, "--speed", "1000000"]);
    assert_eq!((lines.lines().count(), status), (180, Some(0)));
    let last = lines.lines().last().unwrap();
    assert!(
        last.contains("12:03:00  LIVE") && last.contains("STAY"),
        "{last}"
    );
    assert!(!lines.contains('\u{1b}'), "plain");
    let (again, status) = said(&["--scenario", "calm", "--record", path, "--json"]);
    assert!(
        again.contains("can't record to") && status == Some(1),
        "{again}"
    );
    let (full, status) = said(&["--scenario", "calm", "--record", "/dev/full", "--json"]);
    assert!(
        full.contains("can't record to /dev/full") && status == Some(1),
        "{full}"
    );
}

#[test]
fn a_recording_is_shown_on_a_screen_and_stays_there_at_its_end() {
    let (scratch, _) = scratch();
    let path = scratch.path().join("restart.jsonl");
    let path = path.to_str().unwrap();
    output(&["--scenario", "restart", "--record", path, "--json"]);
    let mut terminal = Terminal::start_with(&["--replay", path, "--speed", "1000"], USUAL, &[]);
    terminal.shows(&["pid 4846", "LIVE", "STAY on t3.medium"], || {});
    terminal.press("q");
    assert!(terminal.ends().success());
}

fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
}
