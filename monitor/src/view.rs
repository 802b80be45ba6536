//! The screen: what the model knows, laid out for the size there is.
//!
//! One panel a file, each a `render` that fills its area and never reads a clock. Words carry the meaning and colour
//! repeats it; colours are named ones, so that they fit light and dark terminals alike.

mod absent;
mod counts;
mod credits;
mod header;
mod help;
mod small;
mod stages;
mod style;
mod trends;
mod triggers;
mod verdict;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Color;
use ratatui::text::Line;
use ratatui::widgets::Widget as _;

use crate::format;
use crate::model::{Gateway, Model};

/// The smallest screen with panels on it; below, three lines tell the gist.
const SIZE_MIN: (u16, u16) = (60, 12);
/// From this width on, lines over time stand beside the tables rather than below.
const WIDE: u16 = 140;
/// From this height on, the verdict may take more than one line, and panels stand apart.
const TALL: u16 = 30;
const KEYS: &str = " q quit  ? help  p pause  w window 10/60/300 s";

/// How to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// With ASCII only.
    pub(crate) ascii: bool,
    /// With colours.
    pub(crate) colour: bool,
}

/// Draws the whole screen.
pub(crate) fn render(frame: &mut Frame, model: &Model, look: Look) {
    paint(frame.area(), frame.buffer_mut(), model, look);
}

/// The screen as lines of text, without blank ones at its end and without the keys.
pub(crate) fn text(width: u16, height: u16, model: &Model, look: Look) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height + 1));
    let area = buffer.area;
    paint(area, &mut buffer, model, look);
    Line::from(" ".repeat(width.into())).render(bottom(area), &mut buffer);
    let rows = buffer.content().chunks(usize::from(width).max(1));
    let lines: Vec<_> = rows
        .map(|cells| {
            cells
                .iter()
                .map(ratatui::buffer::Cell::symbol)
                .collect::<String>()
        })
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n").trim_end().to_owned()
}

/// The whole screen, keys included, apart from any terminal.
pub(crate) fn buffer(width: u16, height: u16, model: &Model, look: Look) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    paint(buffer.area, &mut buffer, model, look);
    buffer
}

fn paint(area: Rect, buffer: &mut Buffer, model: &Model, look: Look) {
    let is_small = area.width < SIZE_MIN.0 || area.height < SIZE_MIN.1;
    match model.gateway() {
        _ if is_small => small::render(area, buffer, model),
        None => absent::render(area, buffer, model),
        Some(gateway) => panels(area, buffer, model, gateway),
    }
    if model.shows_help {
        help::render(area, buffer);
    }
    restrain(buffer, look);
}

fn panels(area: Rect, buffer: &mut Buffer, model: &Model, gateway: &Gateway) {
    let is_tall = area.height >= TALL;
    let gap = u16::from(is_tall);
    let verdict_rows = if is_tall {
        verdict::rows(gateway, area.width).min(3)
    } else {
        1
    };
    let [top, judgement, _, body, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(verdict_rows),
        Constraint::Length(gap),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    header::render(top, buffer, model, gateway);
    verdict::render(judgement, buffer, gateway);
    Line::from(KEYS).style(style::DIM).render(keys, buffer);

    let (body, beside) = if area.width >= WIDE {
        let [body, _, beside] = Layout::horizontal([
            Constraint::Length(stages::WIDTH_MAX),
            Constraint::Length(2),
            Constraint::Fill(1),
        ])
        .areas(body);
        (body, Some(beside))
    } else {
        (body, None)
    };
    let [judged, _, table, below] = Layout::vertical([
        Constraint::Length(triggers::ROWS),
        Constraint::Length(gap),
        Constraint::Length(stages::rows_max(gateway)),
        Constraint::Fill(1),
    ])
    .areas(body);
    triggers::render(judged, buffer, gateway);
    stages::render(table, buffer, model, gateway);
    let below = without_first_row(below);
    match beside {
        Some(beside) => {
            trends::render(beside, buffer, gateway);
            counts::render(below, buffer, gateway);
        }
        None => trends::render(below, buffer, gateway),
    }
}

/// Keeps to what the terminal can show.
fn restrain(buffer: &mut Buffer, look: Look) {
    for cell in &mut buffer.content {
        if look.ascii && !cell.symbol().is_ascii() {
            let sign = cell.symbol().chars().next().map_or(' ', format::ascii_of);
            cell.set_char(sign);
        }
        if !look.colour {
            cell.set_fg(Color::Reset).set_bg(Color::Reset);
        }
    }
}

fn bottom(area: Rect) -> Rect {
    Rect {
        y: area.bottom().saturating_sub(1),
        height: area.height.min(1),
        ..area
    }
}

fn without_first_row(area: Rect) -> Rect {
    Rect {
        y: area.y.saturating_add(area.height.min(1)),
        height: area.height.saturating_sub(1),
        ..area
    }
}

/// One line of `parts`, as many as fit whole.
fn fitting(parts: Vec<ratatui::text::Span<'static>>, width: u16) -> Line<'static> {
    let mut line = Line::default();
    for part in parts {
        let gap = if line.spans.is_empty() { 1 } else { 2 };
        if line.width() + gap + part.width() > usize::from(width) {
            break;
        }
        line.push_span(" ".repeat(gap));
        line.push_span(part);
    }
    line
}

/// The row of `area` that is `place` rows down; without height beyond its end.
fn row(area: Rect, place: usize) -> Rect {
    let place = u16::try_from(place).unwrap_or(u16::MAX).min(area.height);
    Rect {
        y: area.y.saturating_add(place),
        height: (area.height - place).min(1),
        ..area
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{self, absent, odd};

    const PLAIN: Look = Look {
        ascii: true,
        colour: false,
    };
    const RICH: Look = Look {
        ascii: false,
        colour: true,
    };

    use super::buffer as screen;

    fn lines(buffer: &Buffer) -> String {
        let width = usize::from(buffer.area.width).max(1);
        let rows = buffer.content().chunks(width);
        let line = |cells: &[ratatui::buffer::Cell]| {
            let text: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
            text.trim_end().to_owned()
        };
        rows.map(line).collect::<Vec<_>>().join("\n")
    }

    fn slow() -> Model {
        fixture::seen(fixture::page(3_790, 91_800))
    }

    #[test]
    fn the_screen_at_its_smallest() {
        insta::assert_snapshot!(lines(&screen(60, 12, &slow(), PLAIN)));
    }

    #[test]
    fn the_screen_at_80x24() {
        insta::assert_snapshot!(lines(&screen(80, 24, &slow(), PLAIN)));
    }

    #[test]
    fn the_screen_at_80x24_in_unicode() {
        insta::assert_snapshot!(lines(&screen(80, 24, &slow(), RICH)));
    }

    #[test]
    fn the_screen_at_160x48() {
        insta::assert_snapshot!(lines(&screen(160, 48, &slow(), PLAIN)));
    }

    #[test]
    fn the_screen_without_a_gateway() {
        insta::assert_snapshot!(lines(&screen(80, 24, &absent(), PLAIN)));
    }

    #[test]
    fn the_help_over_the_screen() {
        let mut model = slow();
        model.shows_help = true;
        insta::assert_snapshot!(lines(&screen(80, 24, &model, PLAIN)));
    }

    #[test]
    fn the_gist_where_there_is_no_room() {
        insta::assert_snapshot!(lines(&screen(40, 5, &slow(), PLAIN)));
    }

    #[test]
    fn a_paused_picture_says_how_far_it_is_behind() {
        let mut model = slow();
        model.toggle_pause();
        let mut later = fixture::observation(fixture::page(3_790, 91_800));
        later.at += 12 * format::SECOND;
        model.absorb(later);
        let text = lines(&screen(80, 24, &model, PLAIN));
        assert!(text.contains("PAUSED 12.0 s behind"), "{text}");
    }

    #[test]
    fn without_colours_there_are_none() {
        let has_colour = |buffer: &Buffer| buffer.content().iter().any(|it| it.fg != Color::Reset);
        assert!(has_colour(&screen(80, 24, &slow(), RICH)));
        assert!(!has_colour(&screen(80, 24, &slow(), PLAIN)));
    }

    #[test]
    fn no_size_and_no_data_is_too_odd_to_draw() {
        let sizes = [
            0, 1, 2, 5, 11, 12, 13, 20, 24, 29, 30, 31, 48, 59, 60, 61, 79, 80, 99, 100,
        ];
        let wider = [139, 140, 160, 300];
        for mut model in odd() {
            for shows_help in [false, true] {
                model.shows_help = shows_help;
                for width in sizes.into_iter().chain(wider) {
                    for height in sizes {
                        screen(width, height, &model, PLAIN);
                        screen(width, height, &model, RICH);
                    }
                }
            }
            let _ = text(100, 44, &model, PLAIN);
        }
    }

    #[test]
    fn ascii_alone_reaches_a_terminal_that_speaks_no_more() {
        for model in odd() {
            for (width, height) in [(40, 5), (60, 12), (80, 24), (160, 48)] {
                let text = lines(&screen(width, height, &model, PLAIN));
                assert!(text.is_ascii(), "{text}");
            }
        }
    }

    #[test]
    fn no_row_is_cut_at_the_smallest_screens() {
        for (width, height) in [(60, 12), (60, 24), (80, 12), (80, 24), (100, 30), (140, 48)] {
            let text = lines(&screen(width, height, &slow(), PLAIN));
            let rows = text
                .lines()
                .filter(|line| line.starts_with(['*', ' ']) && line.contains(" us "));
            for row in rows.filter(|row| row.starts_with('*')) {
                assert!(row.trim_end().contains('x'), "{width}x{height}: {row}");
            }
        }
    }
}
