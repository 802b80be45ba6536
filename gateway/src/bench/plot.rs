//! Plots as plain SVG: named axes with units, and colours of the page's own text, so that they read on light and dark.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::figure::{bytes, duration};
use super::measure::{Measured, Through};
use super::tally::LoadReport;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
/// Room for axes and their names.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 32.0;
const TOP: f64 = 54.0;
const BOTTOM: f64 = 56.0;
/// Told apart by eyes that don't see red and green apart, on white and on black (after Okabe and Ito).
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/// An axis: what it shows, how its values read, and whether it grows by factors of ten.
#[derive(Clone, Copy)]
struct Axis {
    name: &'static str,
    text: fn(f64) -> String,
    is_log: bool,
}

/// A line of points: one colour a path, and broken where a path has a second line. A point without a height is a gap in
/// it, marked above.
struct Series {
    name: String,
    colour: usize,
    is_broken: bool,
    points: Vec<(f64, Option<f64>)>,
}

/// A plot.
struct Plot {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

const SECONDS: Axis = Axis {
    name: "time since the warm-up (s)",
    text: |seconds| format!("{}", (seconds * 10.0).round() / 10.0),
    is_log: false,
};

/// Writes the plots of the last round into `directory`, and gives back their names.
pub(super) fn write(measured: &Measured, directory: &Path) -> anyhow::Result<Vec<String>> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let mut names = vec![];
    for (name, plot) in plots(measured) {
        let path = directory.join(&name);
        fs::write(&path, plot.svg()).with_context(|| path.display().to_string())?;
        names.push(name);
    }
    Ok(names)
}

fn plots(measured: &Measured) -> Vec<(String, Plot)> {
    let Some(round) = measured.rounds.last() else {
        return vec![];
    };
    let mut paths = vec![
        ("direct", &round.direct, None),
        ("gateway", &round.gateway.load, Some(&round.gateway)),
    ];
    if let Some(nginx) = &round.nginx {
        paths.push(("nginx", &nginx.load, Some(nginx)));
    }
    let name = |plot: &str| format!("{}-{plot}.svg", measured.setup.name.replace(' ', "-"));
    let words = measured.setup.words();
    let numbered = || (0..).zip(&paths);
    let over_time = numbered().flat_map(|(number, (name, load, _))| over_time(name, number, load));
    let memory = numbered()
        .filter_map(|(number, (name, _, through))| Some(memory(name, number, (*through)?)));
    let distributions =
        numbered().map(|(number, (name, load, _))| distribution(name, number, load));
    let is_hop = paths.iter().all(|(_, load, _)| !load.hop.is_empty());
    let latency = if is_hop {
        "latency less the provider's own time"
    } else {
        "latency"
    };
    vec![
        (
            name("latency"),
            Plot {
                title: format!("Latency over time: {words}"),
                x: SECONDS,
                y: Axis {
                    name: latency,
                    text: duration,
                    is_log: true,
                },
                series: over_time.collect(),
            },
        ),
        (
            name("memory"),
            Plot {
                title: format!("Resident memory over time: {words}"),
                x: Axis {
                    name: "time since the start (s)",
                    ..SECONDS
                },
                y: Axis {
                    name: "resident memory",
                    text: bytes,
                    is_log: false,
                },
                series: memory.collect(),
            },
        ),
        (
            name("distribution"),
            Plot {
                title: format!("Distribution of latency: {words}"),
                x: Axis {
                    name: latency,
                    text: duration,
                    is_log: true,
                },
                y: Axis {
                    name: "requests that took no longer (%)",
                    text: |share| format!("{share:.0}"),
                    is_log: false,
                },
                series: distributions.collect(),
            },
        ),
    ]
}

fn over_time(name: &str, colour: usize, load: &LoadReport) -> [Series; 2] {
    let is_hop = !load.hop.is_empty();
    let line = |quantile: &str, of: fn(&super::tally::SecondRow, bool) -> Option<f64>| Series {
        name: format!("{name}, {quantile}"),
        colour,
        is_broken: quantile == "p99",
        points: (0_u32..)
            .zip(&load.timeline)
            .map(|(at, row)| (f64::from(at) + 0.5, of(row, is_hop)))
            .collect(),
    };
    [
        line(
            "p50",
            |row, is_hop| if is_hop { row.hop_p50 } else { row.p50 },
        ),
        line(
            "p99",
            |row, is_hop| if is_hop { row.hop_p99 } else { row.p99 },
        ),
    ]
}

fn memory(name: &str, colour: usize, through: &Through) -> Series {
    let looks = &through.usage.looks;
    Series {
        name: name.to_owned(),
        colour,
        is_broken: false,
        points: looks
            .iter()
            .map(|look| (look.seconds, Some(look.rss as f64)))
            .collect(),
    }
}

fn distribution(name: &str, colour: usize, load: &LoadReport) -> Series {
    let all: u64 = load.distribution.iter().map(|(_, count)| count).sum();
    let mut sum = 0;
    let points = load.distribution.iter().map(|(bound, count)| {
        sum += count;
        (*bound as f64, Some(sum as f64 * 100.0 / all.max(1) as f64))
    });
    Series {
        name: name.to_owned(),
        colour,
        is_broken: false,
        points: points.collect(),
    }
}

/// Part of an axis, from its lowest to its highest mark.
struct Scale {
    axis: Axis,
    marks: Vec<f64>,
}

impl Scale {
    fn of(axis: Axis, values: impl Iterator<Item = f64> + Clone) -> Self {
        let high = values.clone().fold(0.0, f64::max);
        if !axis.is_log {
            return Self {
                axis,
                marks: even_marks(high),
            };
        }
        let low = values
            .filter(|value| *value > 0.0)
            .fold(f64::INFINITY, f64::min);
        let (low, high) = if low.is_finite() {
            (low.log10().floor(), high.log10().ceil())
        } else {
            (0.0, 1.0)
        };
        let high = high.max(low + 1.0);
        let steps = std::iter::successors(Some(low), |at| Some(at + 1.0));
        Self {
            axis,
            marks: steps
                .take_while(|at| *at <= high)
                .map(|at| 10_f64.powf(at))
                .collect(),
        }
    }

    /// From 0 at its lowest mark to 1 at its highest.
    fn place(&self, value: f64) -> f64 {
        let (low, high) = (self.marks[0], self.marks[self.marks.len() - 1]);
        let share = if self.axis.is_log {
            (value.max(low).log10() - low.log10()) / (high.log10() - low.log10())
        } else {
            (value - low) / (high - low)
        };
        share.clamp(0.0, 1.0)
    }
}

/// Marks from zero on, 1, 2 or 5 times a power of ten apart, four to nine of them.
fn even_marks(high: f64) -> Vec<f64> {
    let high = if high > 0.0 { high } else { 1.0 };
    let power = 10_f64.powf((high / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|it| it * power)
        .find(|step| high / step <= 6.0);
    let step = step.unwrap_or(power * 10.0);
    let marks = std::iter::successors(Some(0.0), |at| Some(at + step));
    let below: Vec<f64> = marks.take_while(|at| *at < high + step * 0.999).collect();
    below
}

impl Plot {
    fn svg(&self) -> String {
        let points = self.series.iter().flat_map(|series| &series.points);
        let x = Scale::of(self.x, points.clone().map(|point| point.0));
        let y = Scale::of(self.y, points.filter_map(|point| point.1));
        let at_x = |value: f64| LEFT + x.place(value) * (WIDTH - LEFT - RIGHT);
        let at_y = |value: f64| HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <title>{}</title>\n\
             <style>.ink {{ fill: #24292f }} .line {{ stroke: #24292f }} .grid {{ stroke: #8b949e; stroke-opacity: .35 }}\n\
             @media (prefers-color-scheme: dark) {{ .ink {{ fill: #e6edf3 }} .line {{ stroke: #e6edf3 }} }}</style>\n",
            escaped(&self.title)
        );
        text += &words(LEFT, 18.0, "start", &self.title);
        for mark in &y.marks {
            let at = at_y(*mark);
            text += &rule(LEFT, at, WIDTH - RIGHT, at, "grid");
            text += &words(LEFT - 8.0, at + 4.0, "end", &(self.y.text)(*mark));
        }
        for mark in &x.marks {
            let at = at_x(*mark);
            text += &rule(at, TOP, at, HEIGHT - BOTTOM, "grid");
            text += &words(at, HEIGHT - BOTTOM + 18.0, "middle", &(self.x.text)(*mark));
        }
        text += &rule(
            LEFT,
            HEIGHT - BOTTOM,
            WIDTH - RIGHT,
            HEIGHT - BOTTOM,
            "line",
        );
        text += &rule(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "line");
        text += &words(
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 12.0,
            "middle",
            self.x.name,
        );
        let middle = f64::midpoint(TOP, HEIGHT - BOTTOM);
        let _ = writeln!(
            text,
            "<text class=\"ink\" text-anchor=\"middle\" transform=\"translate(14 {middle}) rotate(-90)\">{}</text>",
            escaped(self.y.name)
        );
        for (number, series) in self.series.iter().enumerate() {
            text += &curve(series, number, &at_x, &at_y);
        }
        text + "</svg>\n"
    }
}

/// A line, and its name above the plot.
fn curve(
    series: &Series,
    number: usize,
    at_x: &dyn Fn(f64) -> f64,
    at_y: &dyn Fn(f64) -> f64,
) -> String {
    let colour = COLOURS[series.colour % COLOURS.len()];
    let dash = if series.is_broken {
        " stroke-dasharray=\"5 3\""
    } else {
        ""
    };
    let mut text = String::new();
    for piece in series.points.split(|point| point.1.is_none()) {
        let heights = piece.iter().filter_map(|(x, y)| Some((x, (*y)?)));
        let places = heights.map(|(x, y)| format!("{:.1},{:.1}", at_x(*x), at_y(y)));
        let mut places: Vec<_> = places.collect();
        if let [alone] = &places[..] {
            // A line from there to there is a dot.
            places.push(alone.clone());
        }
        if !places.is_empty() {
            let _ = writeln!(
                text,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linecap=\"round\"{dash} points=\"{}\"/>",
                places.join(" ")
            );
        }
    }
    for (x, _) in series.points.iter().filter(|point| point.1.is_none()) {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{colour}\">×<title>no answer</title></text>",
            at_x(*x),
            TOP + 4.0
        );
    }
    let left = LEFT + number as f64 * 116.0;
    format!(
        "{text}<line x1=\"{left}\" y1=\"36\" x2=\"{}\" y2=\"36\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\n{}",
        left + 18.0,
        words(left + 23.0, 40.0, "start", &series.name)
    )
}

fn rule(x1: f64, y1: f64, x2: f64, y2: f64, class: &str) -> String {
    format!(
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
    )
}

fn words(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!(
        "<text class=\"ink\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
        escaped(text)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, Option<f64>)>) -> Plot {
        Plot {
            title: "a < b & \"c\"".to_owned(),
            x: SECONDS,
            y: Axis {
                name: "latency",
                text: duration,
                is_log: true,
            },
            series: vec![Series {
                name: "gateway".to_owned(),
                colour: 0,
                is_broken: false,
                points,
            }],
        }
    }

    /// Whether every tag is closed in order, every attribute quoted, and no text has a bare sign.
    fn assert_well_formed(svg: &str) {
        let mut open: Vec<String> = vec![];
        let mut rest = svg;
        while let Some((text, tag)) = rest.split_once('<') {
            assert!(!text.contains('>'), "{text}");
            for (at, _) in text.match_indices('&') {
                let is_entity = ["&amp;", "&lt;", "&gt;", "&quot;"]
                    .iter()
                    .any(|it| text[at..].starts_with(it));
                assert!(is_entity, "{text}");
            }
            let (tag, after) = tag.split_once('>').unwrap();
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            rest = after;
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap().to_owned());
            }
        }
        assert_eq!(open, [""; 0]);
    }

    #[test]
    fn a_plot_is_well_formed_and_names_its_axes() {
        let some = [(0.5, Some(1.2e5)), (1.5, Some(8e7)), (2.5, None)];
        for points in [vec![], some.into(), vec![(0.0, Some(0.0))]] {
            let svg = plot(points).svg();
            assert_well_formed(&svg);
            for part in [
                "time since the warm-up (s)",
                ">latency<",
                ">gateway<",
                "prefers-color-scheme: dark",
            ] {
                assert!(svg.contains(part), "{part} in {svg}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn a_line_goes_from_corner_to_corner_of_its_range() {
        let svg = plot(vec![(0.0, Some(1e3)), (10.0, Some(1e6))]).svg();
        let line = format!(
            "points=\"{LEFT:.1},{:.1} {:.1},{TOP:.1}\"",
            HEIGHT - BOTTOM,
            WIDTH - RIGHT
        );
        assert!(svg.contains(&line), "{svg}");
        for mark in ["1.00 µs", "10 µs", "100 µs", "1.00 ms"] {
            let mark = mark.replace(".00", "");
            assert!(svg.contains(&format!(">{mark}<")), "{mark}");
        }
    }

    #[test]
    fn a_second_without_an_answer_is_a_gap_with_a_mark_and_no_low_point() {
        let points = [(0.0, Some(1e3)), (5.0, None), (10.0, Some(1e6))];
        let svg = plot(points.into()).svg();
        let (low, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for dot in [
            format!("{LEFT:.1},{low:.1}"),
            format!("{right:.1},{TOP:.1}"),
        ] {
            assert!(svg.contains(&format!("points=\"{dot} {dot}\"")), "{svg}");
        }
        let mark = format!("<text x=\"{:.1}\" y=\"58.0\"", f64::midpoint(LEFT, right));
        assert_eq!(svg.matches('×').count(), 1);
        assert!(svg.contains(&mark), "{svg}");
    }

    #[test]
    fn marks_are_round_and_reach_the_highest_value() {
        let check = |high, expected: &[f64]| {
            let marks = even_marks(high);
            assert_eq!(marks.len(), expected.len(), "{marks:?}");
            let off = marks.iter().zip(expected).map(|(a, b)| (a - b).abs());
            assert!(off.fold(0.0, f64::max) < high.max(1.0) * 1e-9, "{marks:?}");
        };
        check(20.0, &[0.0, 5.0, 10.0, 15.0, 20.0]);
        check(262.8, &[0.0, 50.0, 100.0, 150.0, 200.0, 250.0, 300.0]);
        check(0.0, &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
    }
}
