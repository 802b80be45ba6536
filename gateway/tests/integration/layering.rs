//! Who may import whom: siblings under the pipeline do not know each other, adapters do no I/O.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the gateway that a source file names.
fn imports(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    let mut found: Vec<String> = code
        .match_indices("crate::")
        .flat_map(|(at, _)| {
            let rest = &code[at + "crate::".len()..];
            match rest.strip_prefix('{') {
                // use crate::{a, b::c};
                Some(list) => list
                    .split('}')
                    .next()
                    .unwrap()
                    .split(',')
                    .map(first_name)
                    .collect(),
                None => vec![first_name(rest)],
            }
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

fn first_name(path: &str) -> String {
    path.trim()
        .chars()
        .take_while(|character| character.is_alphanumeric() || *character == '_')
        .collect()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name)
}

#[test]
fn modules_import_only_what_lies_below_them() {
    let check = |module: &str, allowed: &[&str]| {
        for import in imports(&source(&format!("{module}.rs"))) {
            assert!(
                allowed.contains(&import.as_str()),
                "{module} must not know {import}"
            );
        }
    };
    check("error", &[]);
    check("clock", &[]);
    check("machine", &[]);
    check("notify", &[]);
    check("shutdown", &[]);
    check("access", &["config", "error", "provider"]);
    check("sse", &[]);
    check("call", &["error"]);
    check("budget", &["error"]);
    check("queue", &["error"]);
    check("keys", &["error", "config"]);
    check("provider", &["call", "config", "error"]);
    check("provider/openai", &["call", "error"]);
    check("provider/retry_after", &[]);
    check("upstream", &["error", "config"]);
    check("upstream/connect", &[]);
    check("upstream/direct", &["error"]);
    check("upstream/direct/dial", &["error", "upstream"]);
    check("upstream/direct/link", &[]);
    check("upstream/direct/pool", &["upstream"]);
    check("upstream/lanes", &["config"]);
    check("upstream/names", &[]);
    check("upstream/trust", &[]);
    check("stopwatch", &["clock", "error"]);
    check(
        "relay",
        &["error", "provider", "sse", "stopwatch", "upstream"],
    );
    // A page is a function of the segment's figures: it asks nobody.
    check("metrics", &[]);
    check("metrics/text", &[]);
    check("telemetry", &["clock", "config", "machine", "stopwatch"]);
    check(
        "app",
        &[
            "budget", "clock", "config", "error", "keys", "provider", "queue", "upstream",
        ],
    );
    check(
        "pipeline",
        &[
            "app",
            "budget",
            "call",
            "config",
            "error",
            "keys",
            "provider",
            "queue",
            "relay",
            "stopwatch",
            "upstream",
        ],
    );
}

#[test]
fn only_the_doors_know_who_may_ask() {
    let doors = ["access", "admin", "reload", "routes", "server"];
    for entry in fs::read_dir(source("")).unwrap() {
        let path = entry.unwrap().path();
        let Some(module) = path.file_stem().and_then(|stem| stem.to_str()) else {
            continue;
        };
        if path.is_file() && !doors.contains(&module) {
            let found = imports(&path);
            assert!(!found.iter().any(|import| import == "access"), "{module}");
        }
    }
}

#[test]
fn nothing_that_serves_knows_the_benchmark() {
    let mut folders = vec![source("")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_its_own = path.starts_with(source("bench")) || path == source("bench.rs");
            if path.is_dir() {
                folders.push(path);
            } else if !is_its_own {
                seen += 1;
                let found = imports(&path);
                assert!(
                    !found.iter().any(|import| import == "bench"),
                    "{}",
                    path.display()
                );
                // So that nothing of it is in the gateway's program.
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                assert!(!code.contains("rcgen::"), "{}", path.display());
            }
        }
    }
    assert!(seen > 20, "{seen} files");
}

#[test]
fn adapters_do_no_input_or_output() {
    let mut files: Vec<PathBuf> = fs::read_dir(source("provider"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.push(source("provider.rs"));
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for word in ["tokio", "reqwest", "std::net", "std::fs", "hyper"] {
            assert!(!text.contains(word), "{} names {word}", file.display());
        }
    }
}

#[test]
fn only_upstream_knows_the_http_client() {
    let mut folders = vec![source("")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let below = path.strip_prefix(source("")).unwrap().to_owned();
            // Settings parse URLs.
            let may = ["upstream", "upstream.rs", "config", "config.rs"]
                .iter()
                .any(|top| below.starts_with(top));
            if path.is_dir() {
                folders.push(path);
            } else if !may {
                let text = fs::read_to_string(&path).unwrap();
                assert!(!text.contains("reqwest"), "{}", below.display());
            }
        }
    }
}

#[test]
fn every_source_file_opens_with_what_it_is() {
    let mut folders = vec![
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap()
            .to_owned(),
    ];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                seen += 1;
                let text = fs::read_to_string(&path).unwrap();
                assert!(
                    text.starts_with("//! "),
                    "{} does not say what lives there",
                    path.display()
                );
                let is_segment = path.ends_with("shared/src/segment.rs");
                let uses_it = text.lines().any(|line| {
                    line.contains(concat!("un", "safe {"))
                        || line.contains(concat!("un", "safe fn"))
                });
                assert!(
                    is_segment || !uses_it,
                    "{} is not the place for it",
                    path.display()
                );
            }
        }
    }
    assert!(seen > 20, "{seen} files");
}
