//! The benchmark page's tables, with what was found here and ratios.

pub(super) mod hidden;
pub(super) mod inside;

use bifrost_shared::stage::Series;
use bifrost_shared::thresholds::{T3_MEDIUM, T3_XLARGE};

use super::about::About;
use super::figure::{Figure, Table, Unit, median};
use super::measure::{Measured, Round, Through};
use super::tally::{LoadReport, Spread};
use super::watch::{Inside, SeriesRow};

/// A value of each round.
fn each<'a>(
    measured: &'a Measured,
    of: impl Fn(&'a Round) -> Option<f64> + 'a,
) -> impl Iterator<Item = f64> + 'a {
    measured.rounds.iter().filter_map(of)
}

/// A quantity of a distribution, if there is one: where nobody was answered, nothing was fast.
fn of_some(spread: &Spread, of: fn(&Spread) -> f64) -> Option<f64> {
    (!spread.is_empty()).then(|| of(spread))
}

/// The median over rounds.
fn middle<'a>(measured: &'a Measured, of: impl Fn(&'a Round) -> Option<f64> + 'a) -> Option<f64> {
    median(&each(measured, of).collect::<Vec<_>>())
}

const PAGE: [&str; 2] = ["t3.medium", "t3.xlarge"];

/// The page's answer on its t3.medium, and its requests.
const PAGE_ANSWER_BYTES: f64 = 1_407.0;
const PAGE_REQUEST_BYTES: f64 = 133.0;

pub(super) fn overall(page: &Measured) -> Table {
    let figure =
        |label: &str, unit, of: fn(&Round) -> Option<f64>, references: [Option<f64>; 2]| {
            Figure::new(label, unit, each(page, of)).against(references)
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
                |it| Some(it.gateway.load.rate),
                [medium, xlarge],
            ),
            figure(
                "Success",
                Unit::Share,
                |it| Some(success(&it.gateway.load)),
                [Some(1.0), None],
            ),
            figure(
                "Request size",
                Unit::Bytes,
                |it| Some(it.gateway.load.request_bytes),
                [Some(PAGE_REQUEST_BYTES), None],
            ),
            figure(
                "Response size",
                Unit::Bytes,
                |it| (it.gateway.load.measured.ok > 0).then_some(it.gateway.load.answer_bytes),
                [Some(PAGE_ANSWER_BYTES), None],
            ),
            figure(
                "Average latency",
                Unit::Ns,
                |it| of_some(&it.gateway.load.latency, |it| it.mean),
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

pub(super) fn stages(page: &Measured) -> Table {
    Table {
        title: "Stages".to_owned(),
        note: "*Here* is the mean, as on the page; – is where nobody came by. \\* counts in the overhead.".to_owned(),
        beside: vec!["p50", "p99"],
        references: PAGE.into(),
        figures: series(page, |row| row.is_stage),
    }
}

pub(super) fn overhead(page: &Measured) -> Table {
    Table {
        title: "Overhead".to_owned(),
        note: "*Overhead* is the page's formula: the stages marked with \\*. *Unattributed* is the whole time less all stages; of the page, which doesn't tell it, the average latency that its client saw less its stages.".to_owned(),
        beside: vec!["p50", "p99"],
        references: PAGE.into(),
        figures: series(page, |row| ["overhead", "added", "unattributed"].contains(&row.key.as_str())),
    }
}

pub(super) fn utilisation(page: &Measured, about: &About) -> Table {
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

/// What a path adds to the direct one: the difference of a quantile of both, each request less the time that the provider
/// says it took. None where it doesn't say: a service time varies by more than any path adds.
pub(super) fn added(
    direct: &LoadReport,
    through: &LoadReport,
    of: fn(&Spread) -> f64,
) -> Option<f64> {
    Some(of_some(&through.hop, of)? - of_some(&direct.hop, of)?)
}

/// Processor time for each request that was answered well, µs: one that fails cheaply makes none of the others cheaper.
pub(super) fn cpu_us(through: &Through) -> Option<f64> {
    let answered = through.load.all.ok;
    (answered > 0).then(|| through.usage.cpu_seconds * 1e6 / answered as f64)
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

/// What a setup is compared with: nginx, where that was measured.
fn beside_nginx(measured: &Measured) -> Vec<&'static str> {
    let is_measured = measured.rounds.iter().any(|it| it.nginx.is_some());
    if is_measured { vec!["nginx"] } else { vec![] }
}

/// A figure of the gateway's with nginx's beside it.
fn with_nginx(
    measured: &Measured,
    label: &str,
    unit: Unit,
    of: impl Fn(&LoadReport, &Through) -> Option<f64> + Copy,
) -> Figure {
    let ours = each(measured, move |it| of(&it.direct, &it.gateway));
    let nginx = each(measured, move |it| of(&it.direct, it.nginx.as_ref()?));
    Figure::new(label, unit, ours).against_measured(nginx.collect())
}

/// How the memory of nginx was counted, if it was.
fn nginx_memory(measured: &Measured) -> &'static str {
    let is_measured = measured.rounds.iter().any(|it| it.nginx.is_some());
    if is_measured {
        " nginx's memory is what its processes share, counted once (PSS); the gateway is one process, whose RSS has all of it."
    } else {
        ""
    }
}
