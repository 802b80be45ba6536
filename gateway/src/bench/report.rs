//! What a run found, whole, as `--json` keeps it; and the tables that are made of it and of nothing else.

use std::fmt::Write as _;

use humantime::format_duration;
use serde::{Deserialize, Serialize};

use super::about::About;
use super::figure::{Table, bytes, count};
use super::growth::Cell;
use super::hold::Hold;
use super::measure::{Measured, Through};
use super::picks::Pick;
use super::queued::Queued;
use super::scenario::Setup;
use super::tables;
use super::tables::{hidden, inside};
use super::tally::LoadReport;

/// The form of this file. Another number is another form.
pub(super) const FORMAT: u32 = 1;

/// Ways that loads take.
const GATEWAY: &str = "the gateway";
const NGINX: &str = "nginx";

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) format: u32,
    pub(super) about: About,
    pub(super) page: Option<Measured>,
    pub(super) shapes: Vec<Measured>,
    #[serde(default)]
    pub(super) queued: Option<Queued>,
    #[serde(default)]
    pub(super) picks: Vec<Pick>,
    pub(super) start: Option<StartUp>,
    pub(super) hold: Option<Hold>,
    pub(super) growth: Vec<Cell>,
    /// What was not done, and why.
    pub(super) notes: Vec<String>,
}

/// What a gateway's start takes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct StartUp {
    /// From its start to its first good answer, ns.
    pub(super) cold: Vec<f64>,
    /// Resident memory after that answer, bytes.
    pub(super) rss: Vec<f64>,
}

/// Thousandths of a second that a hypervisor may steal before it is told: less than what other noise comes to.
const STEAL_UNTOLD_MAX: u64 = 20;

impl Report {
    /// Every gateway under every load, by the load's name and the round.
    fn gateways(&self) -> impl Iterator<Item = (String, &Through)> {
        let pages = self.page.iter().chain(&self.shapes);
        let rounds = pages.flat_map(|it| {
            let numbered = (1..).zip(&it.rounds);
            let name = |number: u32| format!("{}, round {number}", it.setup.name);
            numbered.map(move |(number, round)| (name(number), &round.gateway))
        });
        let pairs = self.queued.iter().flat_map(|it| {
            let numbered = (1..).zip(&it.rounds);
            let name = |number: u32| format!("{}, round {number}", it.setup.name);
            numbered.flat_map(move |(number, pair)| {
                [&pair.limited, &pair.free].map(|it| (name(number), it))
            })
        });
        let cells = self.growth.iter();
        let cells = cells.map(|it| (it.setup.name.clone(), &it.through));
        rounds.chain(pairs).chain(cells)
    }

    /// What speaks against the figures, in words.
    fn doubts(&self) -> Vec<String> {
        let of = |(name, through): (String, &Through)| {
            let all = miscounts(through).into_iter().chain(blemishes(through));
            let all: Vec<_> = all.map(|doubt| format!("**{name}:** {doubt}")).collect();
            all
        };
        self.gateways().flat_map(of).collect()
    }

    /// Whether every request of everything that was measured was answered well, and counted alike on all sides. What
    /// becomes of nginx's is its own affair.
    pub(super) fn is_whole(&self) -> bool {
        let mut ours = self.loads().into_iter().filter(|(_, way, _)| *way != NGINX);
        ours.all(|(_, _, load)| load.all.success() == Some(1.0))
            && self.gateways().all(|(_, it)| miscounts(it).is_empty())
    }

    /// Every load: of which setup, by which way, and what it came to.
    fn loads(&self) -> Vec<(&str, &'static str, &LoadReport)> {
        let mut loads = vec![];
        for measured in self.page.iter().chain(&self.shapes) {
            let name = measured.setup.name.as_str();
            for round in &measured.rounds {
                loads.extend([
                    (name, "the direct way", &round.direct),
                    (name, GATEWAY, &round.gateway.load),
                ]);
                loads.extend(round.nginx.iter().map(|it| (name, NGINX, &it.load)));
            }
        }
        if let Some(queued) = &self.queued {
            let name = queued.setup.name.as_str();
            for pair in &queued.rounds {
                loads.extend([
                    (name, GATEWAY, &pair.limited.load),
                    (name, "the gateway with permits to spare", &pair.free.load),
                ]);
            }
        }
        let cells = self.growth.iter();
        loads.extend(cells.map(|it| (it.setup.name.as_str(), GATEWAY, &it.through.load)));
        loads
    }

    /// How requests failed, wherever some did.
    fn failures(&self) -> String {
        let mut text = String::new();
        for (name, way, load) in self.loads() {
            let failures = load.all.failures();
            if !failures.is_empty() {
                let sent = count(load.all.sent as f64);
                let _ = writeln!(text, "- {name}, {way}: of {sent} requests, {failures}");
            }
        }
        if text.is_empty() {
            return text;
        }
        format!("## Requests that failed\n\n{text}\n")
    }

    /// All of its tables, in order.
    pub(super) fn tables(&self) -> Vec<Table> {
        let mut tables = vec![];
        if let Some(page) = &self.page {
            tables.extend([
                tables::overall(page),
                tables::stages(page),
                tables::overhead(page),
                tables::utilisation(page, &self.about),
                hidden::hidden(page, self.hold.as_ref()),
                hidden::terms(page),
                hidden::sustained(page),
            ]);
        }
        tables.extend(self.shapes.iter().map(hidden::shape));
        tables.extend(self.queued.iter().map(inside::queued));
        tables.push(inside::picks(&self.picks));
        tables.push(hidden::start(self.start.as_ref(), self.about.gateway_bytes));
        tables
    }

    /// The whole report in Markdown.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("# bifrost-bench {}\n\n", self.about.command);
        if let Some(page) = &self.page {
            let _ = writeln!(text, "{}.\n", page.setup.words());
        }
        for table in self.tables() {
            text += &table.markdown();
        }
        text += &super::growth::markdown(&self.growth);
        text += &self.failures();
        if let Some(verdict) = self.verdict() {
            let _ = writeln!(text, "## Verdict\n\n{verdict}\n");
        }
        text += &self.setting();
        text
    }

    /// The monitor's, of the last round.
    pub(super) fn verdict(&self) -> Option<&str> {
        self.page
            .as_ref()?
            .rounds
            .last()?
            .gateway
            .verdict
            .as_deref()
    }

    /// The settings' profile, and the runtimes that it came to.
    fn profile(&self) -> String {
        let of = |page: &Measured| {
            let inside = page.rounds.last()?.gateway.inside.as_ref()?;
            let profile = &page.setup.profile;
            Some(format!(", profile {profile}, {} runtimes", inside.workers))
        };
        self.page.as_ref().and_then(of).unwrap_or_default()
    }

    fn setting(&self) -> String {
        let about = &self.about;
        let mut text = "## Measured on\n\n".to_owned();
        let memory = bytes(about.memory as f64);
        let limit = about
            .descriptors
            .map_or("no".to_owned(), |it| count(it as f64));
        let lines = [
            format!(
                "{} × {}, {memory} of memory, kernel {}, {limit} descriptors a process, load average {} at {}",
                about.vcpus, about.cpu, about.kernel, about.load_average, about.begun
            ),
            match &about.provider {
                Some(url) => format!("provider at {url}; gateway and load shared this machine"),
                None => "provider, gateway and load shared this machine".to_owned(),
            },
            format!(
                "{} ({}), out-of-the-box settings{}; bifrost-bench {}",
                about.gateway,
                bytes(about.gateway_bytes as f64),
                self.profile(),
                about.bench
            ),
            format!(
                "nginx: {}",
                about.nginx.as_deref().unwrap_or("not measured")
            ),
        ];
        for line in lines.iter().chain(&self.notes).chain(&self.doubts()) {
            let _ = writeln!(text, "- {line}");
        }
        text
    }
}

/// Where load, gateway and provider counted the same requests differently.
fn miscounts(through: &Through) -> Vec<String> {
    let all = &through.load.all;
    let inside = through.inside.as_ref();
    let sides = [
        (
            "the provider counted",
            through.provider_counted,
            "sent",
            all.sent,
        ),
        (
            "the gateway began",
            inside.map(|it| it.started),
            "sent",
            all.sent,
        ),
        (
            "the gateway completed",
            inside.map(|it| it.completed),
            "had good answers to",
            all.ok,
        ),
    ];
    let differing = sides
        .into_iter()
        .filter_map(|(side, found, verb, expected)| {
            let found = found.filter(|found| *found != expected)?;
            let [found, expected] = [found, expected].map(|it| count(it as f64));
            Some(format!(
                "{side} {found} requests, and the load {verb} {expected}"
            ))
        });
    differing.collect()
}

/// What else makes a load's figures other than they should be.
fn blemishes(through: &Through) -> Vec<String> {
    let Some(inside) = &through.inside else {
        return vec![];
    };
    let counts = [
        (inside.retries, "attempts were repeated"),
        (
            inside.not_completed,
            "requests did not complete in the gateway",
        ),
        (
            inside.records_missed,
            "records were overwritten before they were read: *in process* is without them",
        ),
    ];
    let told = counts.into_iter().filter(|(found, _)| *found > 0);
    let told = told.map(|(found, what)| format!("{} {what}", count(found as f64)));
    let stolen = (inside.steal_max > STEAL_UNTOLD_MAX).then(|| {
        let percent = inside.steal_max as f64 / 10.0;
        format!("the hypervisor stole {percent:.1} % of a second")
    });
    told.chain(stolen).collect()
}

/// How two setups differ, in words; none if they don't.
pub(super) fn difference(before: &Setup, after: &Setup) -> Option<String> {
    type Fact = fn(&Setup) -> String;
    let facts: [(&str, Fact); 8] = [
        ("name", |it| it.name.clone()),
        ("load", Setup::words),
        ("requests", |it| bytes(it.prompt_bytes.into())),
        ("answers", |it| bytes(it.answer_bytes.into())),
        ("warm-up", |it| format_duration(it.warm_up).to_string()),
        ("time", |it| format_duration(it.time).to_string()),
        ("rounds", |it| it.rounds.to_string()),
        ("profile", |it| it.profile.clone()),
    ];
    let differing = facts.iter().filter_map(|(name, fact)| {
        let (old, new) = (fact(before), fact(after));
        (old != new).then(|| format!("{name}: {old} before, {new} after"))
    });
    let differing: Vec<_> = differing.collect();
    (!differing.is_empty()).then(|| format!("{}: {}", before.name, differing.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn line<'m>(markdown: &'m str, label: &str) -> &'m str {
        let begins = format!("| {label} |");
        let line = markdown.lines().find(|line| line.starts_with(&begins));
        line.unwrap_or_else(|| panic!("no row {begins} in\n{markdown}"))
    }

    #[test]
    fn a_report_survives_the_way_through_json() {
        let report = fixture::report();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn the_tables_have_here_the_page_and_ratios() {
        let markdown = fixture::report().markdown();
        let check = |label, cells: &str| {
            assert_eq!(line(&markdown, label), format!("| {label} | {cells} |"));
        };
        check("Load", "5,000/s | 5,000/s | 5,000/s | 1.00× | 1.00×");
        check(
            "queue wait \\*",
            "100 ns | 100 ns | 300 ns | 47.1 µs | 1.67 µs | 0.0021× | 0.0599×",
        );
        check(
            "json marshaling",
            "550 ns | 550 ns | 1.65 µs | 63.5 µs | 26.8 µs | 0.0087× | 0.0205×",
        );
        check(
            "overhead",
            "3 µs | 3 µs | 9 µs | 59.2 µs | 11 µs | 0.0507× | 0.27×",
        );
        check(
            "Peak memory",
            "235 MB | 1.31 GB | 3.34 GB | 0.18× | 0.0704×",
        );
        check(
            "Share of the machine's memory",
            "5.87 % | 32.81 % | 20.87 % | 0.18× | 0.28×",
        );
        assert!(markdown.contains("STAY - all is well"));
        assert!(markdown.contains("- something was left out"));
    }

    #[test]
    fn what_is_added_is_the_difference_to_the_direct_path_beside_nginx() {
        let markdown = fixture::report().markdown();
        let check = |label, cells: &str| {
            assert_eq!(line(&markdown, label), format!("| {label} | {cells} |"));
        };
        // Of 250 − 100 and 270 − 100 µs the middle, and of nginx 200 − 100; p50 is 0.9, p99 three times that.
        check(
            "Added latency, mean",
            "160 µs (150 µs–170 µs) | 100 µs | 1.60×",
        );
        check(
            "Added latency, p50",
            "144 µs (135 µs–153 µs) | 90 µs | 1.60×",
        );
        check(
            "Added latency, p99",
            "480 µs (450 µs–510 µs) | 300 µs | 1.60×",
        );
        check("CPU a request", "65 µs | 50 µs | 1.30×");
        check("RSS a request in flight", "30 KB | – | –");
        check("RSS after the idle time", "16 MB | 16 MB | 1.00×");
        check("Highest rate held", "6,000/s | – | –");
    }

    #[test]
    fn sides_that_count_differently_are_told_and_make_a_run_fail() {
        let report = fixture::report();
        assert_eq!(report.doubts(), [""; 0]);
        let check = |spoil: fn(&mut Through), is_whole, told: &str| {
            let mut report = fixture::report();
            spoil(&mut report.shapes[1].rounds[1].gateway);
            assert_eq!(report.is_whole(), is_whole, "{told}");
            let line = format!("\n- **64 connections, round 2:** {told}\n");
            let markdown = report.markdown();
            assert!(markdown.contains(&line), "{line} in {markdown}");
        };
        check(
            |it| it.provider_counted = Some(100_132),
            false,
            "the provider counted 100,132 requests, and the load sent 100,000",
        );
        check(
            |it| it.inside.as_mut().unwrap().completed -= 1,
            false,
            "the gateway completed 99,999 requests, and the load had good answers to 100,000",
        );
        check(
            |it| it.inside.as_mut().unwrap().started += 1,
            false,
            "the gateway began 100,001 requests, and the load sent 100,000",
        );
        check(
            |it| it.inside.as_mut().unwrap().records_missed = 1_204,
            true,
            "1,204 records were overwritten before they were read: *in process* is without them",
        );
        check(
            |it| it.inside.as_mut().unwrap().retries = 61,
            true,
            "61 attempts were repeated",
        );
        check(
            |it| it.inside.as_mut().unwrap().steal_max = 120,
            true,
            "the hypervisor stole 12.0 % of a second",
        );
    }

    #[test]
    fn nginx_has_no_column_where_it_was_not_measured() {
        let mut report = fixture::report();
        for round in &mut report.page.as_mut().unwrap().rounds {
            round.nginx = None;
        }
        report.shapes.clear();
        let markdown = report.markdown();
        assert_eq!(
            line(&markdown, "CPU a request"),
            "| CPU a request | 65 µs |"
        );
        assert!(!markdown.contains("here ÷ nginx"), "{markdown}");
    }

    #[test]
    fn the_gateway_s_own_parts_have_their_tables() {
        let markdown = fixture::report().markdown();
        let check = |label, cells: &str| {
            assert_eq!(line(&markdown, label), format!("| {label} | {cells} |"));
        };
        check("Permits taken, on average", "95.00 % | – | –");
        check("Queue wait, mean", "9.90 ms | 10 ms | 0.99×");
        check("Queue wait, p99", "29.7 ms | 30.5 ms | 0.97×");
        check("Of 100 keys", "12.5 ns");
    }

    #[test]
    fn one_request_that_failed_anywhere_is_told() {
        let mut report = fixture::report();
        assert!(report.is_whole());
        let load = &mut report.growth[1].through.load;
        load.all.ok -= 1;
        load.all.broken += 1;
        load.measured = load.all.clone();
        let shown = super::super::told::markdown(load);
        let failed = format!(
            "\n## Requests that failed\n\n- {}, the gateway: of 100,000 requests, broken: 1\n\n",
            report.growth[1].setup.name
        );
        assert!(!report.is_whole());
        assert!(report.markdown().contains(&failed), "{}", report.markdown());
        assert!(
            shown.contains("99,999 of 100,000 answered (99.99 %), 5,000 a second; broken: 1"),
            "{shown}"
        );
    }
}
