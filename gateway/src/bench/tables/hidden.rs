//! What the benchmark page hides: what a client sees added and where it goes, what it costs, and how other loads fare.

use std::fmt::Write as _;

use super::{
    added, beside_nginx, cpu_us, each, middle, nginx_memory, of_some, rss_each, success, with_nginx,
};
use crate::bench::figure::{Figure, Table, Unit, median};
use crate::bench::hold::Hold;
use crate::bench::measure::{Measured, Round, Through};
use crate::bench::report::StartUp;
use crate::bench::scenario::Pace;
use crate::bench::tally::{LoadReport, Spread};
use crate::bench::watch::Inside;

/// The page's own load, as the page doesn't tell it.
pub(in crate::bench) fn hidden(page: &Measured, hold: Option<&Hold>) -> Table {
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
            each(page, |it| of_some(&it.gateway.load.late, |it| it.p99)),
        ),
        Figure::new(
            "CPU a request of the load itself",
            Unit::CpuUs,
            each(page, |it| Some(it.gateway.load.own_cpu_us)),
        ),
    ];
    let mut note = "Added latency is seen from outside: a quantile of the gateway's requests less the same of the direct path's, each request less the time that the provider says it took, and – where it doesn't say. CPU a request is told for those that were answered well.".to_owned();
    note += nginx_memory(page);
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
        references: beside_nginx(page),
        figures,
    }
}

/// A part of a round's added latency, by a mean or a quantile.
type Term = fn(&Round, fn(&Spread) -> f64) -> Option<f64>;

/// Where the added latency goes. Means add up exactly, but for rounding. Quantiles of several distributions don't: the
/// residual has none, and the others' medians are only what they are themselves.
pub(in crate::bench) fn terms(page: &Measured) -> Table {
    let term = |label: &str, of: Term| {
        let of_mean = move |it| of(it, |it: &Spread| it.mean);
        Figure::new(label, Unit::Ns, each(page, of_mean))
            .beside([middle(page, move |it| of(it, |it| it.p50))])
    };
    let residual = |it: &Round| {
        let mean = |it: &Spread| it.mean;
        let in_process = it.gateway.inside.as_ref()?.in_process.mean;
        Some(total(it, mean)? - in_process - wire(it, mean)?)
    };
    let is_told = page.rounds.iter().all(|it| !it.gateway.load.hop.is_empty());
    let figures = if is_told {
        vec![
            term("Added latency", total),
            term("= in process", |it, of| {
                Some(of(&it.gateway.inside.as_ref()?.in_process))
            }),
            term("+ HTTP request − the provider's own time", wire),
            Figure::new("+ residual", Unit::Ns, each(page, residual)),
            term("The direct way beyond the provider's own time", |it, of| {
                Some(of(&it.direct.hop))
            }),
        ]
    } else {
        vec![]
    };
    Table {
        title: "Where the added latency goes".to_owned(),
        note: "*Here* is the mean, whose terms add up; medians don't, being each of its own distribution. The second term is what sockets and wake-ups between gateway and provider take; the residual is the same between client and gateway, less the same on the direct way, which is told beside it.".to_owned(),
        beside: vec!["p50"],
        references: vec![],
        figures,
    }
}

/// Whether a long load is held as it was begun: its first minute beside its last.
pub(in crate::bench) fn sustained(page: &Measured) -> Table {
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
            median(
                &within
                    .filter_map(|(_, row)| row.hop_p99)
                    .collect::<Vec<_>>(),
            )
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

pub(in crate::bench) fn shape(measured: &Measured) -> Table {
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
    if measured.setup.tls {
        figures.extend([
            both("Connections with TLS", Unit::Count, |_, it| {
                Some(it.handshakes as f64)
            }),
            both("Resumed sessions among them", Unit::Count, |_, it| {
                Some(it.resumed as f64)
            }),
        ]);
    }
    Table {
        title: format!("Beside the page: {}", measured.setup.name),
        note: format!("{}.{}", measured.setup.words(), nginx_memory(measured)),
        beside: vec![],
        references: beside_nginx(measured),
        figures,
    }
}

fn first(direct: &LoadReport, through: &LoadReport, of: fn(&Spread) -> f64) -> Option<f64> {
    Some(of_some(&through.first_event, of)? - of_some(&direct.first_event, of)?)
}

/// What a start takes.
pub(in crate::bench) fn start(start: Option<&StartUp>, binary_bytes: u64) -> Table {
    let figures = start.map_or(vec![], |start| {
        vec![
            Figure::new(
                "Start to the first answer",
                Unit::Ns,
                start.cold.iter().copied(),
            ),
            Figure::new("RSS after it", Unit::Bytes, start.rss.iter().copied()),
            Figure::new("Binary", Unit::Bytes, [binary_bytes as f64]),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::fixture;
    use crate::bench::tally::SecondRow;

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
        let text = table.markdown();
        assert!(
            text.contains("| + residual | -10 µs (-20 µs–0 ns) | – |"),
            "{text}"
        );
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
        row.hop_p99 = row.hop_p99.map(|ns| ns * 3.0);
        gateway.load.timeline[541..].fill(row);
        // Seconds in which nobody was answered are no fast ones.
        let outage = SecondRow {
            failed: 5_000,
            ..SecondRow::default()
        };
        gateway.load.timeline[560..].fill(outage);
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
    fn without_the_provider_s_own_time_what_is_added_is_not_known() {
        let [mut direct, through] = [100.0, 250.0].map(fixture::load);
        let found = added(&direct, &through, |it| it.mean).unwrap();
        assert!((found - 150e3).abs() < 1e-3, "{found}");
        direct.hop = Spread::default();
        assert_eq!(added(&direct, &through, |it| it.mean), None);
    }

    #[test]
    fn processor_time_is_told_for_what_was_answered() {
        let mut through = fixture::through(250.0, 65.0);
        assert_eq!(cpu_us(&through), Some(65.0));
        through.load.all.ok /= 2;
        assert_eq!(cpu_us(&through), Some(130.0));
        through.load.all.ok = 0;
        assert_eq!(cpu_us(&through), None);
    }
}
