//! A monitor at the other end of the admin listener sees what one sees that has the segment.

use serde_json::Value;

use crate::process::{Demo, Place, bare_monitor, wait_for};

/// What `bifrost-monitor --json` says of the gateway whose admin listener is at `address`, and how it ended.
fn told(address: &str, key: Option<&str>) -> (Value, Option<i32>) {
    let mut monitor = bare_monitor();
    monitor.args(["--json", "--url", &format!("http://{address}")]);
    monitor.envs(key.map(|key| ("BIFROST_ADMIN_KEY", key)));
    let output = monitor.output().unwrap();
    let said = String::from_utf8([output.stdout.clone(), output.stderr].concat()).unwrap();
    assert!(!key.is_some_and(|key| said.contains(key)), "{said}");
    (
        serde_json::from_slice(&output.stdout).unwrap(),
        output.status.code(),
    )
}

#[test]
fn by_url_the_monitor_says_what_it_says_by_segment() {
    const REQUESTS: u32 = 1_000;
    let place = Place::new();
    let settings = place.settings(
        "bifrost.toml",
        "admin.listen = \"127.0.0.1:0\"\nlog.format = \"json\"\n",
    );
    let gateway = Demo::start(&place, &["--config", settings.to_str().unwrap()]);
    gateway.load(REQUESTS, 1_000).all_answered();
    wait_for("last record", || {
        (place.figures()["counters"]["records"] == REQUESTS).then_some(())
    });
    let (told, code) = told(&gateway.admin(), None);
    let here = place.figures();
    assert_eq!(code, Some(0));
    assert_eq!(told["counters"]["completed"], REQUESTS);
    for part in [
        "state",
        "pid",
        "version",
        "layout",
        "counters",
        "vcpus",
        "memory_limit",
    ] {
        assert_eq!(told[part], here[part], "{part}");
    }
    let stages = told["stages"].as_object().unwrap();
    assert_eq!(stages.len(), here["stages"].as_object().unwrap().len());
    for (key, stage) in stages {
        assert_eq!(
            stage["since_start"], here["stages"][key]["since_start"],
            "{key}"
        );
    }
    assert_eq!(told["samples"], Value::Null);
}

#[test]
fn a_monitor_elsewhere_needs_the_key_that_the_listener_has() {
    let place = Place::new();
    let settings = place.settings(
        "bifrost.toml",
        "admin_key = \"ak-1\"\nadmin.listen = \"127.0.0.1:0\"\nlog.format = \"json\"\n",
    );
    let gateway = Demo::start(&place, &["--config", settings.to_str().unwrap()]);
    let address = gateway.admin();
    for key in [None, Some("ak-wrong")] {
        let (told, ended) = told(&address, key);
        assert_eq!(told["state"], "denied", "{key:?}");
        assert_eq!(ended, Some(3), "{key:?}");
    }
    wait_for("figures", || {
        let (told, ended) = told(&address, Some("ak-1"));
        assert_eq!(ended, Some(0));
        (told["state"] == "live").then_some(())
    });
    drop(gateway);
    assert_eq!(told(&address, Some("ak-1")).0["state"], "no_gateway");
}
