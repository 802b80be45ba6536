//! Two results side by side, with what makes them hard to compare.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::about::About;
use super::figure::{Figure, NONE, is_told, ratio_text, row, rule};
use super::report::{self, FORMAT, Report};

/// Reads a result that `run --json` wrote.
pub(super) fn read(path: &Path) -> anyhow::Result<Report> {
    let place = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(place)?;
    let value: serde_json::Value = serde_json::from_str(&text).with_context(place)?;
    ensure!(
        value["format"] == FORMAT,
        "{} is no result of this bifrost-bench: its format is {}, not {FORMAT}",
        path.display(),
        value["format"]
    );
    serde_json::from_value(value).with_context(place)
}

/// Both in Markdown.
pub(super) fn markdown(before: &Report, after: &Report) -> String {
    let mut text = "# Before and after\n\n".to_owned();
    for difference in differences(before, after) {
        let _ = writeln!(text, "- **differs:** {difference}");
    }
    text.push('\n');
    let olds = before.tables();
    for new in after.tables() {
        let Some(old) = olds.iter().find(|it| it.title == new.title) else {
            continue;
        };
        let rows: Vec<_> = new
            .figures
            .iter()
            .filter_map(|figure| {
                let old = old.figures.iter().find(|it| it.label == figure.label)?;
                cells(old, figure)
            })
            .collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "## {}\n", new.title);
        text += &row(&["", "before", "after", "after ÷ before"].map(str::to_owned));
        text += &rule(4);
        text.extend(rows.iter().map(|cells| row(cells)));
        text.push('\n');
    }
    text
}

/// A figure that at least one of them has.
fn cells(old: &Figure, new: &Figure) -> Option<[String; 4]> {
    let (before, after) = (old.value(), new.value());
    before.or(after)?;
    let told = |value: Option<f64>| value.map_or(NONE.to_owned(), |it| new.unit.text(it));
    let are_told = is_told(&old.values) && is_told(&new.values);
    let ratio = before
        .zip(after)
        .filter(|_| are_told)
        .map_or(NONE.to_owned(), |(before, after)| ratio_text(after, before));
    Some([new.label.clone(), told(before), told(after), ratio])
}

/// What is not the same on both sides, and should be.
fn differences(before: &Report, after: &Report) -> Vec<String> {
    type Fact = fn(&About) -> String;
    let facts: [(&str, Fact); 9] = [
        ("processor", |it| it.cpu.clone()),
        ("processors", |it| it.vcpus.to_string()),
        ("memory", |it| it.memory.to_string()),
        ("kernel", |it| it.kernel.clone()),
        ("descriptors a process", |it| {
            it.descriptors.map_or("any".to_owned(), |it| it.to_string())
        }),
        ("gateway", |it| it.gateway.clone()),
        ("bifrost-bench", |it| it.bench.clone()),
        ("provider", |it| {
            it.provider
                .clone()
                .unwrap_or("on the same machine".to_owned())
        }),
        ("nginx", |it| {
            it.nginx.clone().unwrap_or("not measured".to_owned())
        }),
    ];
    let mut found = vec![];
    for (name, fact) in facts {
        let (old, new) = (fact(&before.about), fact(&after.about));
        if old != new {
            found.push(format!("{name}: {old} before, {new} after"));
        }
    }
    let setups = |report: &Report| -> Vec<_> {
        let all = report.page.iter().chain(&report.shapes);
        all.map(|it| it.setup.clone()).collect()
    };
    let (olds, news) = (setups(before), setups(after));
    for (old, new) in olds.iter().zip(&news) {
        found.extend(report::difference(old, new));
    }
    if olds.len() != news.len() {
        found.push(format!("{} loads before, {} after", olds.len(), news.len()));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixture;
    use super::super::scenario::Setup;
    use super::*;

    #[test]
    fn the_same_run_twice_differs_in_nothing() {
        let report = fixture::report();
        assert_eq!(differences(&report, &report), [""; 0]);
        let text = markdown(&report, &report);
        assert!(
            text.contains("| CPU a request | 65 µs | 65 µs | 1.00× |"),
            "{text}"
        );
        assert!(!text.contains("differs"), "{text}");
    }

    #[test]
    fn other_machines_and_other_loads_are_told() {
        let before = fixture::report();
        let mut after = before.clone();
        after.about.vcpus = 4;
        after.shapes.pop();
        let page = after.page.as_mut().unwrap();
        page.setup.delay = Duration::from_secs(1);
        for round in &mut page.rounds {
            round.gateway.usage.cpu_seconds *= 2.0;
        }
        let text = markdown(&before, &after);
        for told in [
            "- **differs:** processors: 2 before, 4 after",
            "a delay of 1s 500ms × U(0.6, 1.4) before, 5000 requests a second; a delay of 1s × U(0.6, 1.4) after",
            "- **differs:** 5 loads before, 4 after",
            "| CPU a request | 65 µs | 130 µs | 2.00× |",
        ] {
            assert!(text.contains(told), "{told} in\n{text}");
        }
    }

    #[test]
    fn whatever_differs_of_a_load_is_named_with_both_values() {
        let before = fixture::report();
        let check = |change: fn(&mut Setup), told: &str| {
            let mut after = before.clone();
            change(&mut after.page.as_mut().unwrap().setup);
            let expected = format!("t3.medium: {told}");
            assert_eq!(differences(&before, &after), [expected]);
        };
        check(
            |it| it.answer_bytes = 10_563,
            "answers: 1.41 KB before, 10.6 KB after",
        );
        check(
            |it| it.prompt_bytes = 1_000,
            "requests: 133 B before, 1 KB after",
        );
        check(|it| it.time /= 2, "time: 20s before, 10s after");
        check(|it| it.warm_up /= 2, "warm-up: 4s before, 2s after");
        check(|it| it.rounds = 3, "rounds: 2 before, 3 after");
        check(
            |it| it.profile = "t3.xlarge".to_owned(),
            "profile: t3.medium before, t3.xlarge after",
        );
        check(
            |it| it.name = "quick".to_owned(),
            "name: t3.medium before, quick after",
        );
    }

    #[test]
    fn what_is_no_result_is_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("result.json");
        let check = |text: &str, complaint: &str| {
            fs::write(&file, text).unwrap();
            let error = format!("{:#}", read(&file).unwrap_err());
            assert!(
                error.contains("result.json") && error.contains(complaint),
                "{error}"
            );
        };
        check("{}", "its format is null");
        check(r#"{"format": 2}"#, "its format is 2, not 1");
        check("no", "expected");
        fs::write(&file, serde_json::to_string(&fixture::report()).unwrap()).unwrap();
        assert_eq!(read(&file).unwrap(), fixture::report());
    }
}
