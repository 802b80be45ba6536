//! How cost grows: processor time and memory over load, and over the size of prompts and answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::figure::{NONE, Unit, row, rule};
use super::limits;
use super::measure::{Bench, Through};
use super::scenario::{Name, Pace, Setup};
use super::tables::{cpu_us, rss_each};

/// Requests a second.
const RATES: [u32; 5] = [500, 1_000, 2_500, 5_000, 7_500];
/// Prompt and answer, bytes; at this rate.
const SIZES: [u32; 3] = [1_000, 10_000, 100_000];
const SIZES_RATE: u32 = 1_000;

/// The provider takes a second, so that as many requests are in flight as come in one: 7,500 of the page's 1.5 s would
/// need more descriptors than many systems grant.
const DELAY: Duration = Duration::from_secs(1);

/// One load, and what it took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) setup: Setup,
    pub(super) through: Through,
}

/// The loads.
pub(super) fn setups() -> Vec<Setup> {
    let page = Setup {
        delay: DELAY,
        spread: 0.0,
        warm_up: Duration::from_secs(2),
        time: Duration::from_secs(10),
        rounds: 1,
        ..Setup::page(Name::Growth)
    };
    let by_rate = RATES.into_iter().map(|rate| Setup {
        name: format!("{rate}/s"),
        pace: Pace::Rate(rate),
        ..page.clone()
    });
    let sizes = SIZES
        .into_iter()
        .flat_map(|prompt| SIZES.map(|answer| (prompt, answer)));
    let by_size = sizes.map(|(prompt_bytes, answer_bytes)| Setup {
        name: format!("{} + {} KB", prompt_bytes / 1_000, answer_bytes / 1_000),
        pace: Pace::Rate(SIZES_RATE),
        prompt_bytes,
        answer_bytes,
        ..page.clone()
    });
    by_rate.chain(by_size).collect()
}

/// Measures each, with a fresh gateway. What there are too few descriptors for is left out, and told in `notes`.
pub(super) fn measure(bench: &Bench<'_>, notes: &mut Vec<String>) -> anyhow::Result<Vec<Cell>> {
    let mut fits = |setup: &Setup| match limits::check(setup) {
        Ok(()) => true,
        Err(error) => {
            notes.push(format!("left out: {error}"));
            false
        }
    };
    let fitting: Vec<_> = setups().into_iter().filter(|setup| fits(setup)).collect();
    let cells = fitting.into_iter().map(|setup| {
        Ok(Cell {
            through: bench.through_gateway(&setup, false)?,
            setup,
        })
    });
    cells.collect()
}

/// The table; empty without cells.
pub(super) fn markdown(cells: &[Cell]) -> String {
    if cells.is_empty() {
        return String::new();
    }
    let head = [
        "Load",
        "prompt",
        "answer",
        "success",
        "CPU a request",
        "peak RSS",
        "in flight",
        "RSS a request in flight",
    ];
    let mut text = "## How cost grows\n\n".to_owned();
    text += &row(&head.map(str::to_owned));
    text += &rule(head.len());
    for Cell { setup, through } in cells {
        let rate = match setup.pace {
            Pace::Rate(rate) => f64::from(rate),
            Pace::Connections(_) | Pace::Streams { .. } => 0.0,
        };
        let told =
            |unit: Unit, value: Option<f64>| value.map_or(NONE.to_owned(), |it| unit.text(it));
        let in_flight = through.inside.as_ref().map(|it| it.in_flight_max as f64);
        text += &row(&[
            Unit::PerSecond.text(rate),
            Unit::Bytes.text(f64::from(setup.prompt_bytes)),
            Unit::Bytes.text(f64::from(setup.answer_bytes)),
            told(Unit::Share, through.load.all.success()),
            told(Unit::CpuUs, cpu_us(through)),
            Unit::Bytes.text(through.usage.rss_peak as f64),
            told(Unit::Count, in_flight),
            told(Unit::Bytes, rss_each(through)),
        ]);
    }
    text + "\nThe provider takes 1 s each time, and each row has a gateway of its own.\n\n"
}
