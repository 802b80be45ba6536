//! What a run found, whole, as `--json` keeps it; and the tables that are made of it and of nothing else.

use std::fmt::Write as _;

use bifrost_shared::stage::Series;
use bifrost_shared::thresholds::{T3_MEDIUM, T3_XLARGE};
use serde::{Deserialize, Serialize};

use super::about::About;
use super::figure::{Figure, NONE, Table, Unit, bytes, count, duration, median, row, rule};
use super::growth::Cell;
use super::hold::Hold;
use super::measure::{Measured, Round, Through};
use super::scenario::{Pace, Setup};
use super::tally::{LoadReport, Spread};
use super::watch::{Inside, SeriesRow};
use crate::machine;

/// The form of this file. Another number is another form.
pub(super) const FORMAT: u32 = 1;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) format: u32,
    pub(super) about: About,
    pub(super) page: Option<Measured>,
    pub(super) shapes: Vec<Measured>,
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
    /// Whether every request of everything that was measured was answered well.
    pub(super) fn is_whole(&self) -> bool {
        let pages = self.page.iter().chain(&self.shapes);
        let rounds = pages.flat_map(|it| &it.rounds);
        let cells = self.growth.iter().map(|cell| &cell.through.load);
        let loads = rounds
            .flat_map(|it| [&it.direct, &it.gateway.load])
            .chain(cells);
        loads
            .map(|it| it.all.success())
            .all(|share| share == Some(1.0))
    }

    /// All of its tables, in order.
    pub(super) fn tables(&self) -> Vec<Table> {
        let mut tables = vec![];
        if let Some(page) = &self.page {
            tables.extend([
                overall(page),
                stages(page),
                overhead(page),
                utilisation(page, &self.about),
                hidden(page, self.hold.as_ref()),
                terms(page),
                sustained(page),
            ]);
        }
        tables.extend(self.shapes.iter().map(shape));
        tables.push(start(self));
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
                "{} ({}), out-of-the-box settings; bifrost-bench {}",
                about.gateway,
                bytes(about.gateway_bytes as f64),
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

/// A value of each round.
fn each<'a>(
    measured: &'a Measured,
    of: impl Fn(&'a Round) -> Option<f64> + 'a,
) -> impl Iterator<Item = f64> + 'a {
    measured.rounds.iter().filter_map(of)
}

/// The median over rounds.
fn middle<'a>(measured: &'a Measured, of: impl Fn(&'a Round) -> Option<f64> + 'a) -> Option<f64> {
    median(&each(measured, of).collect::<Vec<_>>())
}

const PAGE: [&str; 2] = ["t3.medium", "t3.xlarge"];

/// The page's answer on its t3.medium, and its requests.
const PAGE_ANSWER_BYTES: f64 = 1_407.0;
const PAGE_REQUEST_BYTES: f64 = 133.0;

fn overall(page: &Measured) -> Table {
    let figure = |label: &str, unit, of: fn(&Round) -> f64, references: [Option<f64>; 2]| {
        Figure::new(label, unit, each(page, move |it| Some(of(it)))).against(references)
    };
    let (medium, xlarge) = (
        Some(T3_MEDIUM.load_rps as f64),
        Some(T3_XLARGE.load_rps as f64),
    );
    Table {
        title: "Overall".to_owned(),
        note: String::new(),
        beside: vec![],
        references: PAGE.into(),
        figures: vec![
            figure(
                "Load",
                Unit::PerSecond,
                |it| it.gateway.load.rate,
                [medium, xlarge],
            ),
            figure(
                "Success",
                Unit::Share,
                |it| success(&it.gateway.load),
                [Some(1.0), None],
            ),
            figure(
                "Request size",
                Unit::Bytes,
                |it| it.gateway.load.request_bytes,
                [Some(PAGE_REQUEST_BYTES), None],
            ),
            figure(
                "Response size",
                Unit::Bytes,
                |it| it.gateway.load.answer_bytes,
                [Some(PAGE_ANSWER_BYTES), None],
            ),
            figure(
                "Average latency",
                Unit::Ns,
                |it| it.gateway.load.latency.mean,
                reference(Series::Total),
            ),
        ],
    }
}

fn success(load: &LoadReport) -> f64 {
    load.all.success().unwrap_or(0.0)
}

fn reference(series: Series) -> [Option<f64>; 2] {
    let (medium, xlarge) = series.reference_ns();
    [medium, xlarge].map(|it| it.map(|ns| ns as f64))
}

/// The series of each round that `is_wanted`, as figures: means, with p50 and p99 beside them.
fn series(page: &Measured, is_wanted: impl Fn(&SeriesRow) -> bool) -> Vec<Figure> {
    let insides: Vec<&Inside> = page
        .rounds
        .iter()
        .filter_map(|it| it.gateway.inside.as_ref())
        .collect();
    let Some(last) = insides.last() else {
        return vec![];
    };
    let wanted = last
        .series
        .iter()
        .enumerate()
        .filter(|(_, row)| is_wanted(row));
    wanted
        .map(|(place, row)| {
            let of = |value: fn(&SeriesRow) -> u64| -> Vec<f64> {
                let rows = insides.iter().filter_map(|it| it.series.get(place));
                rows.filter(|it| it.count > 0)
                    .map(|it| value(it) as f64)
                    .collect()
            };
            let mark = if row.in_overhead { " \\*" } else { "" };
            let references = [row.medium, row.xlarge].map(|it| it.map(|ns| ns as f64));
            Figure::new(format!("{}{mark}", row.label), Unit::Ns, of(|it| it.mean))
                .beside([median(&of(|it| it.p50)), median(&of(|it| it.p99))])
                .against(references)
        })
        .collect()
}

fn stages(page: &Measured) -> Table {
    Table {
        title: "Stages".to_owned(),
        note: "*Here* is the mean, as on the page; – is where nobody came by. \\* counts in the overhead.".to_owned(),
        beside: vec!["p50", "p99"],
        references: PAGE.into(),
        figures: series(page, |row| row.is_stage),
    }
}

fn overhead(page: &Measured) -> Table {
    Table {
        title: "Overhead".to_owned(),
        note: "*Overhead* is the page's formula: the stages marked with \\*. *Unattributed* is the whole time less all stages.".to_owned(),
        beside: vec!["p50", "p99"],
        references: PAGE.into(),
        figures: series(page, |row| ["overhead", "added", "unattributed"].contains(&row.key.as_str())),
    }
}

fn utilisation(page: &Measured, about: &About) -> Table {
    let inside = |of: fn(&Inside) -> u64| {
        each(page, move |it| {
            it.gateway.inside.as_ref().map(|it| of(it) as f64)
        })
    };
    let memory = about.memory.max(1) as f64;
    let pair = |of: fn(&bifrost_shared::thresholds::Reference) -> u64| {
        [Some(of(&T3_MEDIUM) as f64), Some(of(&T3_XLARGE) as f64)]
    };
    // The page's instances have 4 and 16 GB.
    let shares = [(T3_MEDIUM, 4e9), (T3_XLARGE, 16e9)]
        .map(|(it, all)| Some(it.peak_memory_bytes as f64 / all));
    Table {
        title: "Utilisation".to_owned(),
        note: "The page's programs kept their garbage; ours is peak resident memory, as the kernel counts it.".to_owned(),
        beside: vec![],
        references: PAGE.into(),
        figures: vec![
            Figure::new("Peak memory", Unit::Bytes, each(page, |it| Some(it.gateway.usage.rss_peak as f64))).against(pair(|it| it.peak_memory_bytes)),
            Figure::new("Share of the machine's memory", Unit::Share, each(page, |it| Some(it.gateway.usage.rss_peak as f64 / memory))).against(shares),
            Figure::new("Processors in use", Unit::Share, each(page, |it| Some(it.gateway.usage.cores / about.vcpus.max(1) as f64))),
            Figure::new("`buffer_size`", Unit::Count, inside(|it| it.buffer_size)).against(pair(|it| it.buffer_size)),
            Figure::new("`initial_pool_size`", Unit::Count, inside(|it| it.pool_size)).against(pair(|it| it.pool_size)),
        ],
    }
}

/// The distribution that tells what a path adds: the hop where both sides know the service time, else the latency.
fn hops<'a>(direct: &'a LoadReport, through: &'a LoadReport) -> (&'a Spread, &'a Spread) {
    if direct.hop.is_empty() || through.hop.is_empty() {
        (&direct.latency, &through.latency)
    } else {
        (&direct.hop, &through.hop)
    }
}

/// What a path adds to the direct one: the difference of a quantile of both.
pub(super) fn added(
    direct: &LoadReport,
    through: &LoadReport,
    of: fn(&Spread) -> f64,
) -> Option<f64> {
    let (direct, through) = hops(direct, through);
    (!direct.is_empty() && !through.is_empty()).then(|| of(through) - of(direct))
}

/// Processor time for each request, µs.
pub(super) fn cpu_us(through: &Through) -> Option<f64> {
    let sent = through.load.all.sent;
    (sent > 0).then(|| through.usage.cpu_seconds * 1e6 / sent as f64)
}

/// Memory that a request in flight takes, bytes.
pub(super) fn rss_each(through: &Through) -> Option<f64> {
    let in_flight = through.inside.as_ref()?.in_flight_max;
    let grown = through
        .usage
        .rss_peak
        .saturating_sub(through.usage.rss_before);
    (in_flight > 0).then(|| grown as f64 / in_flight as f64)
}

/// A figure of the gateway's with nginx's beside it.
fn with_nginx(
    measured: &Measured,
    label: &str,
    unit: Unit,
    of: impl Fn(&LoadReport, &Through) -> Option<f64> + Copy,
) -> Figure {
    let ours = each(measured, move |it| of(&it.direct, &it.gateway));
    let nginx = middle(measured, move |it| of(&it.direct, it.nginx.as_ref()?));
    Figure::new(label, unit, ours).against([nginx])
}

fn hidden(page: &Measured, hold: Option<&Hold>) -> Table {
    let both = |label: &str, unit, of: fn(&LoadReport, &Through) -> Option<f64>| {
        with_nginx(page, label, unit, of)
    };
    let inside = |label: &str, unit, of: fn(&Inside) -> u64| {
        let values = each(page, move |it| {
            it.gateway.inside.as_ref().map(|it| of(it) as f64)
        });
        Figure::new(label, unit, values)
    };
    let mut figures = vec![
        both("Added latency, p50", Unit::Ns, |direct, it| {
            added(direct, &it.load, |it| it.p50)
        }),
        both("Added latency, p99", Unit::Ns, |direct, it| {
            added(direct, &it.load, |it| it.p99)
        }),
        both("Added latency, mean", Unit::Ns, |direct, it| {
            added(direct, &it.load, |it| it.mean)
        }),
        both("Success", Unit::Share, |_, it| Some(success(&it.load))),
        both("CPU a request", Unit::CpuUs, |_, it| cpu_us(it)),
        both("Peak RSS", Unit::Bytes, |_, it| {
            Some(it.usage.rss_peak as f64)
        }),
        inside("In flight at once", Unit::Count, |it| it.in_flight_max),
        both("RSS a request in flight", Unit::Bytes, |_, it| rss_each(it)),
        both("RSS after the last answer", Unit::Bytes, |_, it| {
            Some(it.usage.rss_after as f64)
        }),
        both("RSS after the idle time", Unit::Bytes, |_, it| {
            it.rss_idle.map(|rss| rss as f64)
        }),
        both("Descriptors", Unit::Count, |_, it| {
            Some(it.usage.descriptors_max as f64)
        }),
        inside("Scheduler delay, mean", Unit::Ns, |it| {
            it.scheduler_delay_mean
        }),
        inside("Scheduler delay, worst second", Unit::Ns, |it| {
            it.scheduler_delay_max
        }),
        Figure::new(
            "Sent late by the load, p99",
            Unit::Ns,
            each(page, |it| Some(it.gateway.load.late.p99)),
        ),
        Figure::new(
            "CPU a request of the load itself",
            Unit::CpuUs,
            each(page, |it| Some(it.gateway.load.own_cpu_us)),
        ),
    ];
    let mut note = "Added latency is seen from outside: a quantile of the gateway's requests less the same of the direct path's, each request less the time that the provider says it took.".to_owned();
    if let Some(hold) = hold {
        figures.push(Figure::new(
            "Highest rate held",
            Unit::PerSecond,
            [f64::from(hold.rate)],
        ));
        let _ = write!(note, " {}", hold.words());
    }
    Table {
        title: "What the page hides".to_owned(),
        note,
        beside: vec![],
        references: vec!["nginx"],
        figures,
    }
}

/// A part of a round's added latency, by a mean or a quantile.
type Term = fn(&Round, fn(&Spread) -> f64) -> Option<f64>;

/// Where the added latency goes. Means add up exactly, but for rounding; medians nearly.
fn terms(page: &Measured) -> Table {
    let term = |label: &str, of: Term| {
        let of_mean = move |it| of(it, |it: &Spread| it.mean);
        Figure::new(label, Unit::Ns, each(page, of_mean)).beside([
            middle(page, move |it| of(it, |it| it.p50)),
            middle(page, move |it| of(it, |it| it.p99)),
        ])
    };
    let is_told = page.rounds.iter().all(|it| !it.gateway.load.hop.is_empty());
    let figures = if is_told {
        vec![
            term("Added latency", total),
            term("= in process", |it, of| {
                Some(of(&it.gateway.inside.as_ref()?.in_process))
            }),
            term("+ HTTP request − the provider's own time", wire),
            term("+ residual", |it, of| {
                Some(total(it, of)? - of(&it.gateway.inside.as_ref()?.in_process) - wire(it, of)?)
            }),
            term("The direct way beyond the provider's own time", |it, of| {
                Some(of(&it.direct.hop))
            }),
        ]
    } else {
        vec![]
    };
    Table {
        title: "Where the added latency goes".to_owned(),
        note: "*Here* is the mean, whose terms add up. The second term is what sockets and wake-ups between gateway and provider take; the residual is the same between client and gateway, less the same on the direct way, which is told beside it.".to_owned(),
        beside: vec!["p50", "p99"],
        references: vec![],
        figures,
    }
}

/// Whether a long load is held as it was begun: its first minute beside its last.
fn sustained(page: &Measured) -> Table {
    const MINUTE: f64 = 60.0;
    let is_long = page.setup.time.as_secs_f64() >= 3.0 * MINUTE;
    let rss = |of: fn(f64, f64) -> bool| {
        each(page, move |it| {
            let looks = &it.gateway.usage.looks;
            let end = looks.last()?.seconds;
            let within = looks.iter().filter(|look| of(look.seconds, end));
            within.map(|look| look.rss as f64).max_by(f64::total_cmp)
        })
    };
    let p99 = |of: fn(f64, f64) -> bool| {
        each(page, move |it| {
            let load = &it.gateway.load;
            let rows = (0_u32..).zip(&load.timeline);
            let end = load.timeline.len() as f64;
            let within = rows.filter(|(second, _)| of(f64::from(*second), end));
            median(&within.map(|(_, row)| row.hop_p99).collect::<Vec<_>>())
        })
    };
    let first: fn(f64, f64) -> bool = |at, _| at < MINUTE;
    let last: fn(f64, f64) -> bool = |at, end| at >= end - MINUTE;
    let beside = |label: &str, unit, last: Vec<f64>, first: Vec<f64>| {
        Figure::new(label, unit, last).against([median(&first)])
    };
    let figures = if is_long {
        vec![
            beside(
                "Peak RSS of the last minute",
                Unit::Bytes,
                rss(last).collect(),
                rss(first).collect(),
            ),
            beside(
                "p99 of a second, less the provider's own time",
                Unit::Ns,
                p99(last).collect(),
                p99(first).collect(),
            ),
        ]
    } else {
        vec![]
    };
    Table {
        title: "Sustained".to_owned(),
        note: "*Here* is the last minute of the load.".to_owned(),
        beside: vec![],
        references: vec!["the first minute"],
        figures,
    }
}

fn total(round: &Round, of: fn(&Spread) -> f64) -> Option<f64> {
    added(&round.direct, &round.gateway.load, of)
}

fn wire(round: &Round, of: fn(&Spread) -> f64) -> Option<f64> {
    let spread = &round.gateway.inside.as_ref()?.http_less_service;
    (!spread.is_empty()).then(|| of(spread))
}

fn shape(measured: &Measured) -> Table {
    let both = |label: &str, unit, of: fn(&LoadReport, &Through) -> Option<f64>| {
        with_nginx(measured, label, unit, of)
    };
    let is_stream = matches!(measured.setup.pace, Pace::Streams { .. });
    let mut figures = vec![both("Success", Unit::Share, |_, it| {
        Some(success(&it.load))
    })];
    if is_stream {
        figures.extend([
            both("Added first event, p50", Unit::Ns, |direct, it| {
                first(direct, &it.load, |it| it.p50)
            }),
            both("Added first event, p99", Unit::Ns, |direct, it| {
                first(direct, &it.load, |it| it.p99)
            }),
            both("CPU an event", Unit::CpuUs, |_, it| {
                (it.load.events > 0).then(|| it.usage.cpu_seconds * 1e6 / it.load.events as f64)
            }),
        ]);
    } else {
        figures.extend([
            both("Answers a second", Unit::PerSecond, |_, it| {
                Some(it.load.rate)
            }),
            both("Added latency, p50", Unit::Ns, |direct, it| {
                added(direct, &it.load, |it| it.p50)
            }),
            both("Added latency, p99", Unit::Ns, |direct, it| {
                added(direct, &it.load, |it| it.p99)
            }),
            both("CPU a request", Unit::CpuUs, |_, it| cpu_us(it)),
        ]);
    }
    figures.push(both("Peak RSS", Unit::Bytes, |_, it| {
        Some(it.usage.rss_peak as f64)
    }));
    Table {
        title: format!("Beside the page: {}", measured.setup.name),
        note: format!("{}.", measured.setup.words()),
        beside: vec![],
        references: vec!["nginx"],
        figures,
    }
}

fn first(direct: &LoadReport, through: &LoadReport, of: fn(&Spread) -> f64) -> Option<f64> {
    let (direct, through) = (&direct.first_event, &through.first_event);
    (!direct.is_empty() && !through.is_empty()).then(|| of(through) - of(direct))
}

fn start(report: &Report) -> Table {
    let figures = report.start.as_ref().map_or(vec![], |start| {
        vec![
            Figure::new(
                "Start to the first answer",
                Unit::Ns,
                start.cold.iter().copied(),
            ),
            Figure::new("RSS after it", Unit::Bytes, start.rss.iter().copied()),
            Figure::new("Binary", Unit::Bytes, [report.about.gateway_bytes as f64]),
        ]
    });
    Table {
        title: "Start, memory, size".to_owned(),
        note: String::new(),
        beside: vec![],
        references: vec![],
        figures,
    }
}

/// What `load` prints of one target.
pub(super) fn load_markdown(load: &LoadReport) -> String {
    let measured = &load.measured;
    let mut text = format!("## {}\n\n{}\n\n", load.url, load.what);
    let success = measured
        .success()
        .map_or(NONE.to_owned(), |it| Unit::Share.text(it));
    let failures = measured.failures();
    let _ = writeln!(
        text,
        "{} of {} answered ({success}), {} a second{}{failures}\n",
        count(measured.ok as f64),
        count(measured.sent as f64),
        count(load.rate),
        if failures.is_empty() { "" } else { "; " },
    );
    let head = ["", "mean", "p50", "p90", "p99", "p99.9", "max"].map(str::to_owned);
    text += &row(&head);
    text += &rule(head.len());
    let spreads = [
        ("Latency, from when it was due", &load.latency),
        ("Less the provider's own time", &load.hop),
        ("First content of a stream", &load.first_event),
        ("Sent late by the load", &load.late),
    ];
    for (label, spread) in spreads.into_iter().filter(|(_, it)| !it.is_empty()) {
        let values = [
            spread.mean,
            spread.p50,
            spread.p90,
            spread.p99,
            spread.p999,
            spread.max,
        ];
        let cells = std::iter::once(label.to_owned()).chain(values.map(duration));
        text += &row(&cells.collect::<Vec<_>>());
    }
    if measured.connect_failed > 0 {
        let limit = machine::descriptor_limit().map_or("none".to_owned(), |it| count(it as f64));
        let _ = writeln!(
            text,
            "\nConnections failed. Each request in flight needs a descriptor here and two in a gateway; the limit here is {limit} (`ulimit -n`)."
        );
    }
    let _ = writeln!(
        text,
        "\nThe load itself took {:.1} µs of processor time a request.\n",
        load.own_cpu_us
    );
    text
}

/// How two setups differ, in words; none if they don't.
pub(super) fn difference(before: &Setup, after: &Setup) -> Option<String> {
    (before != after).then(|| format!("{} before, {} after", before.words(), after.words()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn the_terms_of_the_added_latency_add_up() {
        let report = fixture::report();
        let table = terms(report.page.as_ref().unwrap());
        let means: Vec<f64> = table.figures.iter().map(|it| it.value().unwrap()).collect();
        let [added, in_process, wire, residual, direct] = means[..] else {
            panic!("{means:?}");
        };
        assert!(
            (added - (in_process + wire + residual)).abs() < 1e-6,
            "{means:?}"
        );
        assert!((in_process - 20e3).abs() < 1e-6 && (wire - 150e3).abs() < 1e-6);
        assert!((direct - 100e3).abs() < 1e-6, "{direct}");
    }

    #[test]
    fn a_long_load_s_last_minute_stands_beside_its_first() {
        let report = fixture::report();
        let mut page = report.page.unwrap();
        assert_eq!(sustained(&page).figures, []);
        page.setup.time = Duration::from_mins(10);
        page.rounds.truncate(1);
        let gateway = &mut page.rounds[0].gateway;
        let mut row = gateway.load.timeline[0];
        let mut look = gateway.usage.looks[0];
        gateway.load.timeline = vec![row; 600];
        row.hop_p99 *= 3.0;
        gateway.load.timeline[541..].fill(row);
        gateway.usage.looks = vec![look; 2];
        look.seconds = 600.0;
        look.rss *= 2;
        gateway.usage.looks.push(look);
        let text = sustained(&page).markdown();
        assert!(
            text.contains("| Peak RSS of the last minute | 400 MB | 200 MB | 2.00× |"),
            "{text}"
        );
        assert!(text.contains("| 2.25 ms | 750 µs | 3.00× |"), "{text}");
    }

    #[test]
    fn without_the_provider_s_own_time_whole_latencies_are_compared() {
        let [mut direct, mut through] = [100.0, 250.0].map(fixture::load);
        direct.hop = Spread::default();
        through.latency.mean = direct.latency.mean + 150e3;
        let found = added(&direct, &through, |it| it.mean).unwrap();
        assert!((found - 150e3).abs() < 1e-3, "{found}");
    }

    #[test]
    fn one_request_that_failed_anywhere_is_told() {
        let mut report = fixture::report();
        assert!(report.is_whole());
        let load = &mut report.growth[1].through.load;
        load.all.ok -= 1;
        load.all.broken += 1;
        load.measured = load.all.clone();
        let shown = load_markdown(load);
        assert!(!report.is_whole());
        assert!(
            shown.contains("99,999 of 100,000 answered (99.99 %), 5,000 a second; broken: 1"),
            "{shown}"
        );
    }
}
