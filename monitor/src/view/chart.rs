//! A figure over time, against lines that say what it is held to. The newest second stands at the right edge.
//!
//! The first curve is drawn in Braille dots, two seconds and four heights a cell; a second one in a dot a cell, so that
//! they differ without colours. What a terminal can't show is translated where everything is.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::{row, style};
use crate::format;

/// Columns of the labels at the left.
const GUTTER: u16 = 9;
/// Dots of a Braille cell.
const DOTS: (usize, usize) = (2, 4);
const BRAILLE: [[u32; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// One figure over time, oldest first.
pub(super) struct Curve {
    pub(super) name: &'static str,
    pub(super) values: Vec<Option<u64>>,
    pub(super) colour: Color,
}

/// What a figure is held to.
pub(super) struct Reference {
    pub(super) name: String,
    pub(super) value: u64,
    pub(super) colour: Color,
}

/// Curves and references on one scale, which begins at zero.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) curves: Vec<Curve>,
    pub(super) references: Vec<Reference>,
    /// How a value is told.
    pub(super) text: fn(u64) -> String,
    /// The highest value that there can be, if there is one.
    pub(super) most: Option<u64>,
    /// How many seconds there is room for from edge to edge.
    pub(super) seconds: usize,
}

impl Chart {
    pub(super) fn render(&self, area: Rect, buffer: &mut Buffer) {
        self.title(area.width).render(row(area, 0), buffer);
        let height = area.height.saturating_sub(2);
        if height == 0 || area.width <= GUTTER {
            return;
        }
        let plot = Rect {
            x: area.x + GUTTER,
            y: area.y + 1,
            width: area.width - GUTTER,
            height,
        };
        let top = self.top();
        self.axis(area, plot, top, buffer);
        for (place, curve) in self.curves.iter().enumerate().rev() {
            let columns = columns(curve, self.seconds, plot, top);
            if place == 0 {
                draw_line(&columns, plot, curve.colour, buffer);
            } else {
                draw_points(&columns, plot, curve.colour, buffer);
            }
        }
    }

    fn title(&self, width: u16) -> Line<'static> {
        let mut line = Line::styled(self.title.clone(), style::HEAD);
        let signs = ['⣿', '·', '·'];
        let curves = self.curves.iter().zip(signs);
        let curves = curves
            .filter(|_| self.curves.len() > 1)
            .map(|(curve, sign)| Span::styled(format!("  {sign} {}", curve.name), curve.colour));
        let references = self.references.iter().map(|it| {
            let value = format::plain(&(self.text)(it.value));
            Span::styled(format!("  ─ {} {value}", it.name), it.colour)
        });
        for span in curves.chain(references) {
            if line.width() + span.width() <= usize::from(width) {
                line.push_span(span);
            }
        }
        line
    }

    /// The value of the upper edge: a little above all that is shown.
    fn top(&self) -> u64 {
        let values = self.curves.iter().flat_map(|curve| {
            let skipped = curve.values.len().saturating_sub(self.seconds);
            curve.values.iter().skip(skipped).flatten().copied()
        });
        let references = self.references.iter().map(|it| it.value);
        let highest = values.chain(references).max().unwrap_or(0);
        let most = self.most.unwrap_or(u64::MAX).max(highest);
        highest.saturating_add(highest / 16).clamp(1, most.max(1))
    }

    /// Labels, references and the time below.
    fn axis(&self, area: Rect, plot: Rect, top: u64, buffer: &mut Buffer) {
        let last = plot.height - 1;
        let mut is_labelled = vec![false; usize::from(plot.height)];
        let mut label = |buffer: &mut Buffer, line: u16, text: &str, style: Style| {
            let taken = &mut is_labelled[usize::from(line)];
            if std::mem::replace(taken, true) {
                return;
            }
            let text = format!("{text:>width$}┤", width = usize::from(GUTTER) - 1);
            buffer.set_stringn(area.x, plot.y + line, text, GUTTER.into(), style);
        };
        for it in &self.references {
            let line = cell_of(it.value, top, plot.height);
            for x in plot.x..plot.right() {
                buffer[(x, plot.y + line)].set_char('─').set_fg(it.colour);
            }
            let text = format::plain(&(self.text)(it.value));
            label(buffer, line, &text, Style::new().fg(it.colour));
        }
        label(buffer, 0, &(self.text)(top), style::DIM);
        label(buffer, last, "0", style::DIM);
        for line in 0..plot.height {
            label(buffer, line, "", style::DIM);
        }
        let span = |seconds: usize| {
            let text = format::span(seconds as u64 * format::SECOND);
            text.strip_suffix("00s").map_or(text.clone(), str::to_owned)
        };
        let (begin, end) = (format!("-{}", span(self.seconds)), "now");
        let middle = format!("-{}", span(self.seconds / 2));
        let room = usize::from(plot.width).saturating_sub(begin.len() + end.len());
        let middle = if room > middle.len() + 6 {
            middle.as_str()
        } else {
            ""
        };
        let below = Rect {
            x: plot.x,
            y: plot.bottom(),
            height: 1,
            ..plot
        };
        Line::styled(format!("{begin}{middle:^room$}{end}"), style::DIM).render(below, buffer);
    }
}

/// The dots of a curve's values in each column of dots: from the lowest to the highest of its seconds.
fn columns(curve: &Curve, seconds: usize, plot: Rect, top: u64) -> Vec<Option<(usize, usize)>> {
    let width = usize::from(plot.width) * DOTS.0;
    let height = usize::from(plot.height) * DOTS.1;
    let dot = |value: u64| {
        let part = u128::from(value.min(top)) * (height as u128 - 1) / u128::from(top);
        height - 1 - usize::try_from(part).unwrap_or(0)
    };
    (0..width)
        .map(|column| {
            // Ages in seconds, counted from the newest.
            let newest = (width - 1 - column) * seconds / width;
            let oldest = ((width - column) * seconds).div_ceil(width).max(newest + 1);
            let end = curve.values.len().checked_sub(newest)?;
            let begin = curve.values.len().saturating_sub(oldest);
            let values = curve.values.get(begin..end)?.iter().flatten();
            let (lowest, highest) = (values.clone().min()?, values.max()?);
            Some((dot(*highest), dot(*lowest)))
        })
        .collect()
}

/// Draws what is connected.
fn draw_line(columns: &[Option<(usize, usize)>], plot: Rect, colour: Color, buffer: &mut Buffer) {
    let mut cells = vec![0; usize::from(plot.width) * usize::from(plot.height)];
    let mut before: Option<(usize, usize)> = None;
    for (x, column) in columns.iter().enumerate() {
        if let Some((high, low)) = *column {
            // Down or up to the column before, so that a steep rise is one line.
            let from = before.map_or(high, |(_, low_before)| high.min(low_before + 1));
            let to = before.map_or(low, |(high_before, _)| {
                low.max(high_before.saturating_sub(1))
            });
            for y in from..=to {
                let cell = y / DOTS.1 * usize::from(plot.width) + x / DOTS.0;
                cells[cell] |= BRAILLE[x % DOTS.0][y % DOTS.1];
            }
        }
        before = *column;
    }
    for (position, dots) in plot.positions().zip(cells) {
        if dots != 0 {
            let sign = char::from_u32(0x2800 + dots).unwrap_or(' ');
            buffer[position].set_char(sign).set_fg(colour);
        }
    }
}

/// Draws a point for each cell's highest value.
fn draw_points(columns: &[Option<(usize, usize)>], plot: Rect, colour: Color, buffer: &mut Buffer) {
    for (x, pair) in (plot.x..).zip(columns.chunks(DOTS.0)) {
        if let Some(high) = pair.iter().flatten().map(|(high, _)| *high).min() {
            let line = u16::try_from(high / DOTS.1).unwrap_or(0);
            buffer[(x, plot.y + line)].set_char('·').set_fg(colour);
        }
    }
}

/// The line of cells, counted from above, that a value stands in.
fn cell_of(value: u64, top: u64, height: u16) -> u16 {
    let dots = u128::from(height) * DOTS.1 as u128;
    let dot = u128::from(value.min(top)) * (dots - 1) / u128::from(top);
    let from_below = u16::try_from(dot / DOTS.1 as u128).unwrap_or(0);
    height - 1 - from_below.min(height - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(values: &[u64], reference: u64, seconds: usize, size: (u16, u16)) -> Vec<String> {
        let chart = Chart {
            title: "Title".to_owned(),
            curves: vec![Curve {
                name: "curve",
                values: values.iter().copied().map(Some).collect(),
                colour: Color::Cyan,
            }],
            references: vec![Reference {
                name: "limit".to_owned(),
                value: reference,
                colour: Color::Red,
            }],
            text: format::count,
            most: None,
            seconds,
        };
        let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
        chart.render(buffer.area, &mut buffer);
        let rows = buffer.content().chunks(size.0.into());
        let line = |cells: &[ratatui::buffer::Cell]| {
            let text: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
            text.trim_end().to_owned()
        };
        rows.map(line).collect()
    }

    #[test]
    fn the_newest_second_is_at_the_right_and_references_have_their_numbers() {
        assert_eq!(
            drawn(&[0, 0, 64], 32, 16, (17, 6)),
            [
                "Title  ─ limit 32",
                "      68┤       ⢰",
                "        ┤       ⢸",
                "      32┤───────⢸",
                "       0┤      ⢀⡸",
                "         -16s now",
            ]
        );
    }

    #[test]
    fn many_seconds_in_a_column_keep_their_highest_and_lowest() {
        let mut values = vec![10; 600];
        values[299] = 100;
        let lines = drawn(&values, 0, 600, (19, 7)).join("\n");
        let spike = lines.matches(['⡇', '⢸']).count();
        assert!(spike >= 3, "{lines}");
    }

    #[test]
    fn a_reference_far_above_the_values_is_still_shown() {
        let lines = drawn(&[1, 1, 1], 1_000, 3, (30, 8));
        assert!(lines[1].contains("1,000┤───"), "{lines:?}");
        assert!(lines[6].contains("⣀⣀"), "{lines:?}");
    }
}
