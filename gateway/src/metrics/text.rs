//! Prometheus' text format, version 0.0.4.
//!
//! Counts and times are integers here, and stay exact on the page: a time is written as a decimal fraction of a second,
//! never by way of a float.

use std::fmt::{self, Display, Write as _};

use bifrost_shared::histogram::{Histogram, bucket_of};

/// What `content-type` says of it.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The edges of a histogram are powers of two, from 32 ns to 9 minutes. Beyond them lie 18 minutes, from where on the
/// segment's histograms no longer tell one value from another.
const OCTAVES: std::ops::RangeInclusive<u32> = 5..=39;

/// What a family is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

/// Labels: name and value.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The page so far.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// The family that is being written.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl Text {
    /// Begins a family: its help and its type. All of its samples have to follow at once.
    pub(super) fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        };
        let text = &mut self.0;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text, name }
    }

    pub(super) fn into_page(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// One sample.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.line("", labels, value);
    }

    /// A histogram of nanoseconds, in seconds.
    ///
    /// Prometheus' buckets hold what is at most their edge, ours what is below it. Nanoseconds are whole, so the edge
    /// told is the last one below the power of two, and no count is off by those that meet it.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        let (mut below, mut sum) = (0, 0_u64);
        for octave in OCTAVES {
            let edge = 1 << octave;
            let counts = &histogram.buckets[below..bucket_of(edge)];
            sum = counts
                .iter()
                .fold(sum, |sum, count| sum.saturating_add(*count));
            below = bucket_of(edge);
            self.bucket(labels, &seconds(edge - 1).to_string(), sum);
        }
        self.bucket(labels, "+Inf", histogram.count);
        self.sum_and_count(labels, histogram.sum, histogram.count);
    }

    /// The sum of nanoseconds, in seconds, and their number.
    pub(super) fn sum_and_count(&mut self, labels: Labels<'_>, sum: u64, count: u64) {
        self.line("_sum", labels, seconds(sum));
        self.line("_count", labels, count);
    }

    fn bucket(&mut self, labels: Labels<'_>, edge: &str, count: u64) {
        let labels = [labels, &[("le", edge)]].concat();
        self.line("_bucket", &labels, count);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: impl Display) {
        let name = self.name;
        let _ = write!(self.text, "{name}{suffix}");
        for (at, (label, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"{}\"", Escaped(value));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

/// A label's value as the format has it.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            _ => f.write_char(character),
        })
    }
}

/// A whole number of parts, as so many digits behind the point.
struct Decimal {
    parts: u64,
    digits: usize,
}

impl Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parts, digits } = *self;
        let text = format!("{parts:0>width$}", width = digits + 1);
        let (whole, part) = text.split_at(text.len() - digits);
        match part.trim_end_matches('0') {
            "" => f.write_str(whole),
            part => write!(f, "{whole}.{part}"),
        }
    }
}

/// Nanoseconds, in seconds.
pub(super) fn seconds(nanoseconds: u64) -> impl Display {
    Decimal {
        parts: nanoseconds,
        digits: 9,
    }
}

/// Thousandths, as a ratio.
pub(super) fn of_thousandths(parts: u64) -> impl Display {
    Decimal { parts, digits: 3 }
}

/// Millionths, as a ratio.
pub(super) fn of_millionths(parts: u64) -> impl Display {
    Decimal { parts, digits: 6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_loses_no_nanosecond() {
        let check = |nanoseconds: u64, told: &str| {
            assert_eq!(seconds(nanoseconds).to_string(), told);
        };
        check(0, "0");
        check(1, "0.000000001");
        check(1_023, "0.000001023");
        check(1_500_000_000, "1.5");
        check(10_000_000_000, "10");
        // A float would say 9007199.254740992.
        check(9_007_199_254_740_993, "9007199.254740993");
        check(u64::MAX, "18446744073.709551615");
        assert_eq!(of_thousandths(33).to_string(), "0.033");
    }

    #[test]
    fn a_value_counts_at_its_edge_and_not_a_nanosecond_below_it() {
        let mut histogram = Histogram::default();
        for value in [31, 32, 1_023, 1_024, 1 << 39, 1 << 41] {
            histogram.record(value);
        }
        let mut text = Text::default();
        let mut family = text.family("t_seconds", Kind::Histogram, "T.");
        family.histogram(&[("stage", "s")], &histogram);
        let page = text.into_page();
        let check = |le: &str, count: u64| {
            let line = format!("t_seconds_bucket{{stage=\"s\",le=\"{le}\"}} {count}\n");
            assert!(page.contains(&line), "{line}{page}");
        };
        check("0.000000031", 1);
        check("0.000000063", 2);
        check("0.000000511", 2);
        check("0.000001023", 3);
        check("0.000002047", 4);
        check("549.755813887", 4);
        check("+Inf", 6);
        assert!(page.ends_with(
            "t_seconds_sum{stage=\"s\"} 2748.77907155\nt_seconds_count{stage=\"s\"} 6\n"
        ));
    }

    #[test]
    fn a_label_cannot_end_its_line() {
        let mut text = Text::default();
        let mut family = text.family("t", Kind::Gauge, "T.");
        family.sample(&[("model", "a\"} 1\nb\\n"), ("x", "é")], 7);
        assert_eq!(
            text.into_page(),
            "# HELP t T.\n# TYPE t gauge\nt{model=\"a\\\"} 1\\nb\\\\n\",x=\"é\"} 7\n"
        );
    }
}
