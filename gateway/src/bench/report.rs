//! What a run found, whole, as `--json` keeps it; and the tables that are made of it and of nothing else.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::about::About;
use super::figure::{Table, bytes, count};
use super::growth::Cell;
use super::hold::Hold;
use super::measure::Measured;
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

impl Report {
    /// Whether every request of everything that was measured was answered well. What becomes of nginx's is its own
    /// affair.
    pub(super) fn is_whole(&self) -> bool {
        let mut ours = self.loads().into_iter().filter(|(_, way, _)| *way != NGINX);
        ours.all(|(_, _, load)| load.all.success() == Some(1.0))
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
        for line in lines.iter().chain(&self.notes) {
            let _ = writeln!(text, "- {line}");
        }
        text
    }
}

/// How two setups differ, in words; none if they don't.
pub(super) fn difference(before: &Setup, after: &Setup) -> Option<String> {
    (before != after).then(|| format!("{} before, {} after", before.words(), after.words()))
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
