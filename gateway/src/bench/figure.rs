//! Figures and tables of them, as a report prints and compares them: medians over rounds with their range, and ratios.

use std::fmt::Write as _;

/// What a figure's value is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Nanoseconds.
    Ns,
    Bytes,
    /// A share of 1, told in percent.
    Share,
    PerSecond,
    Count,
    /// Microseconds of processor time, told as such whatever their size.
    CpuUs,
}

impl Unit {
    /// A value as people read it.
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Self::Ns => duration(value),
            Self::Bytes => bytes(value),
            Self::Share => format!("{:.2} %", floored(value * 100.0)),
            Self::PerSecond => format!("{}/s", count(value)),
            Self::Count => count(value),
            Self::CpuUs => format!("{} µs", significant(value)),
        }
    }
}

/// 99.996 % is not 100 %.
fn floored(percent: f64) -> f64 {
    (percent * 100.0 + 1e-6).floor() / 100.0
}

/// A figure: a value of each round, and what it is compared with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    pub(super) label: String,
    pub(super) unit: Unit,
    /// By round; empty where there is none.
    pub(super) values: Vec<f64>,
    /// Beside it: what the table's further columns are.
    pub(super) beside: Vec<Option<f64>>,
    /// What it is compared with: one for each of the table's references.
    pub(super) references: Vec<Option<f64>>,
    /// The values that the first reference is the median of, where it was measured, too.
    pub(super) reference_values: Vec<f64>,
}

impl Figure {
    pub(super) fn new(
        label: impl Into<String>,
        unit: Unit,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        Self {
            label: label.into(),
            unit,
            values: values.into_iter().collect(),
            beside: vec![],
            references: vec![],
            reference_values: vec![],
        }
    }

    pub(super) fn against(mut self, references: impl IntoIterator<Item = Option<f64>>) -> Self {
        self.references = references.into_iter().collect();
        self
    }

    /// Beside another that was measured as often.
    pub(super) fn against_measured(mut self, values: Vec<f64>) -> Self {
        self.references = vec![median(&values)];
        self.reference_values = values;
        self
    }

    pub(super) fn beside(mut self, values: impl IntoIterator<Item = Option<f64>>) -> Self {
        self.beside = values.into_iter().collect();
        self
    }

    /// The median of the rounds.
    pub(super) fn value(&self) -> Option<f64> {
        median(&self.values)
    }

    /// How many times the reference at `place` fits into it. What is zero or less in some round is not told apart from
    /// nothing, and has no ratio.
    fn ratio(&self, place: usize) -> String {
        let reference = self.references.get(place).copied().flatten();
        let measured = if place == 0 {
            &self.reference_values[..]
        } else {
            &[]
        };
        match self.value().zip(reference) {
            Some((value, reference)) if is_told(&self.values) && is_told(measured) => {
                ratio_text(value, reference)
            }
            _ => NONE.to_owned(),
        }
    }

    /// The reference at `place`, with its range where it has one.
    fn reference(&self, place: usize) -> String {
        match self.references.get(place).copied().flatten() {
            None => NONE.to_owned(),
            Some(_) if place == 0 && !self.reference_values.is_empty() => {
                with_range(self.unit, &self.reference_values)
            }
            Some(value) => self.unit.text(value),
        }
    }
}

/// Whether every one of the values is more than nothing.
pub(super) fn is_told(values: &[f64]) -> bool {
    values.iter().all(|value| *value > 0.0)
}

/// The median, and the range if there is one.
fn with_range(unit: Unit, values: &[f64]) -> String {
    let Some(value) = median(values) else {
        return NONE.to_owned();
    };
    let text = unit.text(value);
    let (low, high) = range(values);
    let (low, high) = (unit.text(low), unit.text(high));
    if low == high {
        text
    } else {
        format!("{text} ({low}–{high})")
    }
}

/// What a value that is not there reads.
pub(super) const NONE: &str = "–";

/// Figures that belong together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Table {
    pub(super) title: String,
    /// Beneath it, for whoever wonders.
    pub(super) note: String,
    pub(super) beside: Vec<&'static str>,
    pub(super) references: Vec<&'static str>,
    pub(super) figures: Vec<Figure>,
}

impl Table {
    /// The table in Markdown; empty if it has no figure.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::new();
        if self.figures.is_empty() {
            return text;
        }
        let mut head = vec![String::new(), "here".to_owned()];
        head.extend(self.beside.iter().map(|name| (*name).to_owned()));
        head.extend(self.references.iter().map(|name| (*name).to_owned()));
        head.extend(self.references.iter().map(|name| format!("here ÷ {name}")));
        let _ = writeln!(text, "## {}\n", self.title);
        text += &row(&head);
        text += &rule(head.len());
        for figure in &self.figures {
            text += &row(&self.cells(figure));
        }
        if !self.note.is_empty() {
            let _ = writeln!(text, "\n{}", self.note);
        }
        text.push('\n');
        text
    }

    fn cells(&self, figure: &Figure) -> Vec<String> {
        let told = |value: Option<f64>| value.map_or(NONE.to_owned(), |it| figure.unit.text(it));
        let at = |values: &[Option<f64>], place: usize| values.get(place).copied().flatten();
        let mut cells = vec![
            figure.label.clone(),
            with_range(figure.unit, &figure.values),
        ];
        cells.extend((0..self.beside.len()).map(|place| told(at(&figure.beside, place))));
        cells.extend((0..self.references.len()).map(|place| figure.reference(place)));
        cells.extend((0..self.references.len()).map(|place| figure.ratio(place)));
        cells
    }
}

/// A row of a Markdown table.
pub(super) fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// The line beneath a head of so many columns: the first for words, the others for numbers.
pub(super) fn rule(columns: usize) -> String {
    format!("|---|{}\n", "---:|".repeat(columns - 1))
}

/// How many times `reference` fits into `value`, with two significant digits at least.
pub(super) fn ratio_text(value: f64, reference: f64) -> String {
    if reference <= 0.0 || value < 0.0 {
        return NONE.to_owned();
    }
    let ratio = value / reference;
    match ratio {
        _ if ratio >= 100.0 => format!("{ratio:.0}×"),
        _ if ratio >= 10.0 => format!("{ratio:.1}×"),
        _ if ratio >= 0.1 || ratio == 0.0 => format!("{ratio:.2}×"),
        _ if ratio >= 0.001 => format!("{ratio:.4}×"),
        _ => format!("{ratio:.1e}×"),
    }
}

pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}

/// A time of `ns` nanoseconds with three significant digits.
pub(super) fn duration(ns: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let fitting = units
        .into_iter()
        .find(|(unit, _)| ns.abs() >= unit * 0.9995);
    let (unit, name) = fitting.unwrap_or((1.0, "ns"));
    format!("{} {name}", significant(ns / unit))
}

/// An amount of memory with three significant digits, in powers of ten as on the benchmark page.
pub(super) fn bytes(value: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "KB")];
    let fitting = units.into_iter().find(|(unit, _)| value >= unit * 0.9995);
    let (unit, name) = fitting.unwrap_or((1.0, "B"));
    format!("{} {name}", significant(value / unit))
}

fn significant(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A number with its thousands separated.
pub(super) fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits.as_str()),
    };
    let mut text = sign.to_owned();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_people_write_them() {
        let check = |unit: Unit, value, text| assert_eq!(unit.text(value), text);
        check(Unit::Ns, 16.0, "16 ns");
        check(Unit::Ns, 47_130.0, "47.1 µs");
        check(Unit::Ns, 999_990.0, "1.00 ms");
        check(Unit::Ns, 2.12e9, "2.12 s");
        check(Unit::Ns, -1_500.0, "-1.50 µs");
        check(Unit::Bytes, 1_312_790_000.0, "1.31 GB");
        check(Unit::Bytes, 133.0, "133 B");
        check(Unit::Bytes, 1_407.0, "1.41 KB");
        check(Unit::Share, 1.0, "100.00 %");
        check(Unit::Share, 0.999_96, "99.99 %");
        check(Unit::PerSecond, 4_999.6, "5,000/s");
        check(Unit::Count, 1_234_567.0, "1,234,567");
        check(Unit::CpuUs, 143.4, "143 µs");
    }

    #[test]
    fn ratios_keep_two_digits_however_small() {
        let check = |value, reference, text| assert_eq!(ratio_text(value, reference), text);
        check(59.2, 11.0, "5.38×");
        check(3.0, 59.2, "0.0507×");
        check(11.0, 59.0, "0.19×");
        check(120.0, 1.0, "120×");
        check(0.5, 1e6, "5.0e-7×");
        check(1.0, 0.0, NONE);
    }

    #[test]
    fn a_table_has_medians_ranges_references_and_ratios() {
        let table = Table {
            title: "Stages".to_owned(),
            note: "Means.".to_owned(),
            beside: vec!["p99"],
            references: vec!["t3.medium", "t3.xlarge"],
            figures: vec![
                Figure::new("Queue wait", Unit::Ns, [120.0, 100.0, 90.0])
                    .beside([Some(300.0)])
                    .against([Some(47_130.0), Some(1_670.0)]),
                Figure::new("Back-off", Unit::Ns, []),
            ],
        };
        assert_eq!(
            table.markdown(),
            "## Stages\n\n\
             |  | here | p99 | t3.medium | t3.xlarge | here ÷ t3.medium | here ÷ t3.xlarge |\n\
             |---|---:|---:|---:|---:|---:|---:|\n\
             | Queue wait | 100 ns (90 ns–120 ns) | 300 ns | 47.1 µs | 1.67 µs | 0.0021× | 0.0599× |\n\
             | Back-off | – | – | – | – | – | – |\n\
             \nMeans.\n\n"
        );
    }

    #[test]
    fn what_may_be_nothing_has_no_ratio_on_either_side() {
        let check = |values: &[f64], measured: &[f64], cells: [&str; 3]| {
            let figure = Figure::new("Added", Unit::Ns, values.iter().copied());
            let table = Table {
                title: String::new(),
                note: String::new(),
                beside: vec![],
                references: vec!["nginx"],
                figures: vec![],
            };
            let found = table.cells(&figure.against_measured(measured.to_vec()));
            assert_eq!(found[1..], cells);
        };
        check(
            &[40.0, 60.0],
            &[10.0, 30.0],
            ["50 ns (40 ns–60 ns)", "20 ns (10 ns–30 ns)", "2.50×"],
        );
        check(
            &[-10.0, 60.0],
            &[20.0],
            ["25 ns (-10 ns–60 ns)", "20 ns", NONE],
        );
        check(
            &[50.0],
            &[-10.0, 60.0],
            ["50 ns", "25 ns (-10 ns–60 ns)", NONE],
        );
        check(&[0.0], &[20.0], ["0 ns", "20 ns", NONE]);
        check(&[], &[20.0], [NONE, "20 ns", NONE]);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
