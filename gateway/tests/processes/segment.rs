//! What stands in the way of a segment: the gateway warns once and serves, whatever it is; and it starts in time.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::{Demo, Place, wait_for};

/// `nobody`, on every usual system.
const SOMEBODY_ELSE: u32 = 65_534;
/// A gateway that can't have its segment serves within this: it waits 200 ms for a lock, the rest is a busy machine.
const STARTS_WITHIN: Duration = Duration::from_secs(10);

/// Starts a gateway that can't have its segment at `path`, and says what the one warning about it is.
fn warns_once_and_serves(place: &Place, path: &Path) -> String {
    let since = Instant::now();
    let gateway = Demo::start_with_segment(place, path.to_str().unwrap(), &[]);
    assert!(since.elapsed() < STARTS_WITHIN, "{:?}", since.elapsed());
    gateway.load(50, 500).all_answered();

    let log = gateway.logged();
    let warnings = log.lines().filter(|line| line.contains("WARN"));
    let about_it: Vec<_> = warnings.filter(|line| line.contains("segment")).collect();
    assert_eq!(about_it.len(), 1, "{log}");
    assert!(about_it[0].contains(path.to_str().unwrap()), "{log}");
    assert!(gateway.said().contains("no monitor can attach"));
    about_it[0].to_owned()
}

/// Says, where nobody overlooks it, that a test can't be made here.
fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let text = format!("\nSKIPPED {name}: {why}\n");
    // Not `eprintln!`, which shows nothing of a test that passes.
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn without_a_place_for_it() {
    // Nobody can make a file there, not even root.
    warns_once_and_serves(&Place::new(), Path::new("/proc/nowhere"));
}

#[test]
fn a_file_system_without_room() {
    let place = Place::new();
    let Some(small) = Small::mount(&place) else {
        skipped("needs the right to mount a small tmpfs");
        return;
    };
    let warning = warns_once_and_serves(&place, &small.0);
    assert!(warning.contains("No space left on device"), "{warning}");
    assert_eq!(fs::read_dir(&small.0).unwrap().count(), 0, "it is tidy");
}

/// A file system too small for a segment.
struct Small(PathBuf);

impl Small {
    fn mount(place: &Place) -> Option<Self> {
        let path = place.segments();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k,mode=700", "small"]);
        let output = mount.arg(&path).output().ok()?;
        output.status.success().then_some(Self(path))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_file_that_is_no_segment() {
    let place = Place::new();
    let path = place.segments().join("notes.seg");
    fs::write(&path, "notes").unwrap();
    let warning = warns_once_and_serves(&place, &path);
    assert!(
        warning.contains("something else is in the way"),
        "{warning}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"notes");
}

#[test]
fn a_file_or_a_directory_of_another_user() {
    if !is_root() {
        skipped("needs root, to give a file away");
        return;
    }
    let place = Place::new();
    let path = place.segments().join("gateway.seg");
    fs::write(&path, "theirs").unwrap();
    chown(&path, Some(SOMEBODY_ELSE), None).unwrap();
    let warning = warns_once_and_serves(&place, &path);
    assert!(warning.contains("another user"), "{warning}");
    assert_eq!(fs::read(&path).unwrap(), b"theirs");

    chown(place.segments(), Some(SOMEBODY_ELSE), None).unwrap();
    let warning = warns_once_and_serves(&place, &place.segments());
    assert!(warning.contains("belongs to another user"), "{warning}");
}

#[test]
fn a_directory_that_others_may_write_in() {
    let place = Place::new();
    fs::set_permissions(place.segments(), fs::Permissions::from_mode(0o777)).unwrap();
    let warning = warns_once_and_serves(&place, &place.segments());
    assert!(warning.contains("can be written by others"), "{warning}");
}

#[test]
fn a_process_that_keeps_the_lock() {
    let place = Place::new();
    let path = place.segments().join("gateway.seg");
    let lock = File::create(place.segments().join("gateway.seg.lock")).unwrap();
    lock.try_lock_shared().unwrap();
    let warning = warns_once_and_serves(&place, &path);
    assert!(warning.contains("another live gateway"), "{warning}");
    lock.unlock().unwrap();
    lock.try_lock().unwrap();
    warns_once_and_serves(&place, &path);
    assert!(!path.exists());
}

#[test]
fn a_second_gateway_by_the_same_name() {
    let place = Place::new();
    let path = place.segments().join("gateway.seg");
    let first = Demo::start_with_segment(&place, path.to_str().unwrap(), &[]);
    warns_once_and_serves(&place, &path);
    assert_eq!(place.figures()["pid"], first.process.id());
}

#[test]
fn of_two_gateways_the_monitor_names_and_follows_the_newer_then_the_one_that_lives() {
    let place = Place::new();
    let old = Demo::start(&place, &[]);
    let mut new = Demo::start(&place, &[]);
    let follows = |gateway: &Demo, state: &str| {
        let id = gateway.process.id();
        wait_for("the right gateway", || {
            let figures = place.figures();
            (figures["pid"] == id && figures["state"] == state).then_some(())
        });
        let figures = place.figures();
        let path = place.segments().join(format!("gateway-{id}.seg"));
        assert_eq!(figures["segment"], Value::from(path.to_str().unwrap()));
    };
    assert_eq!(place.left_over().len(), 4, "a segment and a lock each");
    follows(&new, "live");
    new.process.kill().unwrap();
    new.ended();
    follows(&old, "live");
}

#[test]
fn no_umask_opens_or_closes_what_is_made() {
    for umask in ["000", "077"] {
        let place = Place::new();
        let directory = place.segments().join("own");
        let gateway = Demo::start_under_umask(&place, umask, directory.to_str().unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let entries: Vec<_> = fs::read_dir(&directory).unwrap().collect();
        assert_eq!(entries.len(), 2, "a segment and its lock");
        for entry in entries {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{} under {umask}", path.display());
        }
        assert_eq!(mode(&directory) & 0o077, 0, "under {umask}");
        drop(gateway);
    }
}
