//! The README's tables, held to the program: a setting, a default or an error that it tells wrong is a failure here.

use std::collections::BTreeSet;
use std::process::Command;

use crate::process::{Demo, Place, gateway};

const README: &str = include_str!("../../../README.md");
const ERRORS: &str = include_str!("../../src/error.rs");

/// The cells of the row that begins with `first`.
fn row(first: &str) -> Vec<&'static str> {
    let begins = format!("| {first} |");
    let line = README.lines().find(|line| line.starts_with(&begins));
    let line = line.unwrap_or_else(|| panic!("README.md has no row {begins}"));
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn every_setting_is_there_with_its_default_and_its_variable() {
    let shown = gateway()
        .args(["config", "show"])
        .env("OPENAI_API_KEY", "sk-any")
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let settings = shown.lines().filter_map(|line| {
        let (setting, origin) = line.split_once(" # ")?;
        let (path, value) = setting.split_once(" = ")?;
        Some((path, value.trim().trim_matches('"'), origin))
    });
    let mut count = 0;
    for (path, value, origin) in settings {
        if path.contains(".keys.") {
            continue;
        }
        let path = path.replace("providers.openai", "providers.<name>");
        let cells = row(&format!("`{path}`"));
        // What depends on the machine or the provider is told in words.
        let is_fixed = origin.starts_with("default") || origin.starts_with("profile");
        if is_fixed && path != "server.workers" {
            assert_eq!(cells[1], format!("`{value}`"), "{path}");
        }
        if let [_, _, variable, _] = cells[..] {
            let expected = path.to_uppercase().replace('.', "__");
            assert_eq!(variable, format!("`BIFROST_{expected}`"), "{path}");
        }
        count += 1;
    }
    assert!(count > 30, "only {count} settings in:\n{shown}");
}

#[test]
fn every_error_is_there_with_its_status_and_code() {
    let facts = ERRORS.lines().filter_map(|line| {
        let (_, status) = line.split_once("=> (")?.1.split_once("StatusCode::")?;
        let (name, rest) = status.split_once(',')?;
        let code = rest.split('"').nth(1)?;
        Some((status_of(name), code))
    });
    let mut count = 0;
    for (status, code) in facts {
        row(&format!("{status} | `{code}`"));
        count += 1;
    }
    assert!(count > 20, "only {count} errors were found in error.rs");
}

#[test]
fn every_metric_that_is_named_is_on_the_page() {
    let place = Place::new();
    let settings = "[admin]\nlisten = '127.0.0.1:0'\n[log]\nformat = 'json'\n";
    let file = place.settings("gateway.toml", settings);
    let demo = Demo::start(&place, &["--config", file.to_str().unwrap()]);
    let page = demo.get_admin("/metrics");
    let is_of_name = |character: char| character.is_ascii_lowercase() || character == '_';
    let words = README.split(|character| !is_of_name(character));
    let named: BTreeSet<_> = words
        .filter(|word| word.starts_with("bifrost_") || word.starts_with("process_"))
        .collect();
    for name in &named {
        assert!(page.contains(&format!("\n# TYPE {name} ")), "{name}");
    }
    assert!(named.len() > 20, "only {named:?}");
}

#[test]
fn every_flag_of_the_benchmark_that_is_named_is_one() {
    let help = ["run", "load", "mock"].map(|task| {
        let program = env!("CARGO_BIN_EXE_bifrost-bench");
        let output = Command::new(program).args([task, "--help"]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    });
    let (_, numbers) = README.split_once("\n## Numbers\n").unwrap();
    let (numbers, _) = numbers.split_once("\n## ").unwrap();
    let is_of_flag = |character: char| character.is_ascii_lowercase() || character == '-';
    let lines = numbers.lines().filter(|line| !line.starts_with("cargo "));
    let words = lines.flat_map(|line| line.split(|character| !is_of_flag(character)));
    // Dashes alone are a table's.
    let is_flag = |word: &&str| word.starts_with("--") && !word.starts_with("---");
    let flags: BTreeSet<_> = words.filter(is_flag).collect();
    for flag in &flags {
        let is_told = |text: &String| text.split_whitespace().any(|word| word == *flag);
        assert!(help.iter().any(is_told), "{flag}");
    }
    assert!(flags.len() > 12, "only {flags:?}");
}

/// The number of a status that the `http` crate calls by `name`.
fn status_of(name: &str) -> u16 {
    let mut statuses = (100..600).filter_map(|number| http::StatusCode::from_u16(number).ok());
    let is_meant = |status: &http::StatusCode| {
        let reason = status.canonical_reason().unwrap_or_default();
        reason.to_uppercase().replace([' ', '-'], "_") == name
    };
    let found = statuses.find(is_meant);
    found
        .unwrap_or_else(|| panic!("no status is called {name}"))
        .as_u16()
}
