//! The screen: what the model knows, laid out for the size there is.
//!
//! One panel a file, each a `render` that fills its area and never reads a clock. Words carry the meaning and colour
//! repeats it; colours are named ones, so that they fit light and dark terminals alike. The panels know neither theme
//! nor what a terminal can show: the finished picture is translated, once.

mod absent;
mod chart;
mod charts;
mod counts;
mod credits;
mod events;
mod footer;
mod header;
mod help;
mod histogram;
mod keys;
mod peaks;
mod request;
mod requests;
mod runtimes;
#[cfg(test)]
mod screens;
mod small;
mod stages;
mod style;
mod table;
mod topics;
mod trends;
mod triggers;
mod verdict;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use crate::format;
use crate::model::focus::{Theme, Topic};
use crate::model::{Gateway, Model};

/// The smallest screen with panels on it; below, three lines tell the gist.
const SIZE_MIN: (u16, u16) = (60, 12);
/// From this height on, the verdict may take more than one line, and panels stand apart.
const TALL: u16 = 30;

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
        // What happened is known without a gateway, too.
        None if model.focus.topic != Topic::Events => absent::render(area, buffer, model),
        gateway => panels(area, buffer, model, gateway),
    }
    if model.focus.shows_help {
        help::render(area, buffer, model);
    }
    restrain(buffer, look, model.focus.theme);
}

fn panels(area: Rect, buffer: &mut Buffer, model: &Model, gateway: Option<&Gateway>) {
    let is_tall = area.height >= TALL;
    let gap = u16::from(is_tall);
    let verdict_rows = match gateway {
        Some(gateway) if is_tall => verdict::rows(gateway, area.width),
        _ => 1,
    };
    let [top, judgement, _, body, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(verdict_rows),
        Constraint::Length(gap),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    footer::render(keys, buffer, model);
    let Some(gateway) = gateway else {
        absent::render(top, buffer, model);
        events::render(body, buffer, model, Some(model.focus.place()));
        return;
    };
    header::render(top, buffer, model, gateway);
    verdict::render(judgement, buffer, gateway);
    topics::render(body, buffer, model, gateway);
}

/// Keeps to what the terminal can show.
fn restrain(buffer: &mut Buffer, look: Look, theme: Theme) {
    for cell in &mut buffer.content {
        if look.ascii && !cell.symbol().is_ascii() {
            let sign = cell.symbol().chars().next().map_or(' ', format::ascii_of);
            cell.set_char(sign);
        }
        let theme = if look.colour { theme } else { Theme::Mono };
        cell.set_fg(style::themed(cell.fg, theme));
    }
}

fn bottom(area: Rect) -> Rect {
    Rect {
        y: area.bottom().saturating_sub(1),
        height: area.height.min(1),
        ..area
    }
}

/// `area` without its first so many rows.
fn below(area: Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    Rect {
        y: area.y.saturating_add(rows),
        height: area.height - rows,
        ..area
    }
}

/// `text` broken between words.
fn wrapped(text: &str, width: u16) -> Vec<String> {
    let room = usize::from(width).saturating_sub(1);
    let mut lines: Vec<String> = vec![];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if Span::from(&*line).width() + 1 + Span::from(word).width() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Draws `line` into the first row of `area`. Most lines are made of signs of one cell each: those are put there as they
/// are, where to look for graphemes first is a sixth of all that a look costs.
fn put(line: &Line, area: Rect, buffer: &mut Buffer) {
    let area = area.intersection(buffer.area);
    let is_plain = |span: &Span| span.content.chars().all(is_one_cell);
    if area.is_empty() || !line.spans.iter().all(is_plain) {
        line.render(area, buffer);
        return;
    }
    buffer.set_style(Rect { height: 1, ..area }, line.style);
    let signs = line.spans.iter().flat_map(|span| {
        let style = line.style.patch(span.style);
        span.content.chars().map(move |sign| (sign, style))
    });
    for (x, (sign, style)) in (area.x..area.right()).zip(signs) {
        buffer[(x, area.y)].set_char(sign).set_style(style);
    }
}

/// Whether `sign` is known to fill one cell by itself: ASCII, and the signs of units, bars, boxes and curves.
const fn is_one_cell(sign: char) -> bool {
    matches!(sign, ' '..='~' | 'µ' | '·' | '…' | '─'..='▟' | '\u{2800}'..='\u{28ff}')
}

/// `text` as far as there is room; what is cut off is seen to be.
fn cut(text: &str, width: usize) -> String {
    if Span::from(text).width() <= width {
        return text.to_owned();
    }
    let Some(mut left) = width.checked_sub(1) else {
        return String::new();
    };
    let mut cut = String::new();
    let mut letter = [0; 4];
    for sign in text.chars() {
        let sign = &*sign.encode_utf8(&mut letter);
        let Some(rest) = left.checked_sub(Span::from(sign).width()) else {
            break;
        };
        left = rest;
        cut.push_str(sign);
    }
    cut.push('…');
    cut
}

/// One line of `parts`, as many as fit whole.
fn fitting(parts: Vec<Span<'static>>, width: u16) -> Line<'static> {
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
    use ratatui::style::{Color, Modifier, Style};

    use super::*;
    use crate::model::fixture::{self, absent, odd};
    use crate::model::focus::Step;

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
    fn every_pane_alone() {
        let mut model = fixture::busy();
        let mut seen = vec![];
        let mut screens = vec![];
        for topic in Topic::ALL {
            for pane in topic.panes() {
                if seen.contains(pane) {
                    continue;
                }
                seen.push(*pane);
                model.focus.turn_to(topic);
                model.focus.choose(*pane);
                model.focus.is_zoomed = true;
                let text = lines(&screen(80, 24, &model, PLAIN));
                let body: Vec<_> = text.lines().skip(3).collect();
                screens.push(format!("{}\n{}\n", pane.label(), body.join("\n")));
            }
        }
        insta::assert_snapshot!(screens.join("\n"));
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
    fn charts_in_unicode() {
        insta::assert_snapshot!(lines(&screen(120, 36, &fixture::busy(), RICH)));
    }

    #[test]
    fn the_screen_without_a_gateway() {
        insta::assert_snapshot!(lines(&screen(80, 24, &absent(), PLAIN)));
    }

    #[test]
    fn the_help_over_the_screen() {
        let mut model = slow();
        model.focus.shows_help = true;
        insta::assert_snapshot!(lines(&screen(80, 24, &model, PLAIN)));
    }

    #[test]
    fn the_gist_where_there_is_no_room() {
        insta::assert_snapshot!(lines(&screen(40, 5, &slow(), PLAIN)));
    }

    #[test]
    fn a_line_is_put_as_it_would_be_rendered() {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        for text in [
            "queue 43.4 µs ██░│",
            "a\u{301}é世界 x",
            "",
            "a\tb\u{1b}[31mc",
        ] {
            let line = Line::from(vec![Span::styled("head ", bold), Span::from(text)]);
            let line = line.style(Color::Red);
            for (x, y, width, height) in [(0, 0, 12, 3), (3, 1, 40, 2), (5, 0, 0, 1), (39, 2, 9, 9)]
            {
                let area = Rect {
                    x,
                    y,
                    width,
                    height,
                };
                let mut put_there = Buffer::empty(Rect::new(0, 0, 40, 3));
                let mut rendered = put_there.clone();
                put(&line, area, &mut put_there);
                (&line).render(area, &mut rendered);
                assert_eq!(put_there, rendered, "{text:?} in {area}");
            }
        }
        // What is taken for one cell has to be one.
        let all = '\0'..='\u{ffff}';
        let odd = all.filter(|it| is_one_cell(*it) && Span::from(it.to_string()).width() != 1);
        assert_eq!(odd.collect::<String>(), "");
    }

    #[test]
    fn what_is_cut_off_is_seen_to_be() {
        for (text, width, expected) in [
            ("queue wait", 10, "queue wait"),
            ("queue wait", 9, "queue wa…"),
            ("世世世", 6, "世世世"),
            ("世世世", 5, "世世…"),
            ("a", 0, ""),
        ] {
            assert_eq!(cut(text, width), expected, "{text} in {width}");
        }
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

    /// The foreground colours of what stands where `word` begins.
    fn colour_of(buffer: &Buffer, word: &str) -> Color {
        let text = lines(buffer);
        let (y, line) = text
            .lines()
            .enumerate()
            .find(|(_, it)| it.contains(word))
            .unwrap();
        let before = &line[..line.find(word).unwrap()];
        let place = y * usize::from(buffer.area.width) + before.chars().count();
        buffer.content()[place].fg
    }

    #[test]
    fn colours_say_what_words_say_and_a_theme_chooses_them() {
        let mut model = slow();
        for (theme, breach, watch, ok) in [
            (Theme::Terminal, Color::Red, Color::Yellow, Color::Green),
            (
                Theme::Dark,
                Color::LightRed,
                Color::LightYellow,
                Color::LightGreen,
            ),
            (Theme::Light, Color::Red, Color::Magenta, Color::Green),
            (Theme::Mono, Color::Reset, Color::Reset, Color::Reset),
        ] {
            model.focus.theme = theme;
            let buffer = screen(80, 24, &model, RICH);
            let found = ["BREACH", "WATCH ", "OK  "].map(|word| colour_of(&buffer, word));
            assert_eq!(found, [breach, watch, ok], "{theme:?}");
        }
    }

    #[test]
    fn without_colours_there_are_none() {
        let mut model = fixture::busy();
        let has_colour = |buffer: &Buffer| {
            let mut cells = buffer.content().iter();
            cells.any(|it| it.fg != Color::Reset || it.bg != Color::Reset)
        };
        for topic in Topic::ALL {
            model.focus.turn_to(topic);
            assert!(has_colour(&screen(160, 48, &model, RICH)), "{topic:?}");
            assert!(!has_colour(&screen(160, 48, &model, PLAIN)), "{topic:?}");
        }
    }

    #[test]
    fn the_chosen_pane_and_the_selected_row_stand_out_without_colours() {
        let mut model = fixture::busy();
        model.focus.turn_to(Topic::Keys);
        model.select(Step::Down(1));
        let reversed = |model: &Model| {
            let buffer = screen(80, 24, model, PLAIN);
            let rows = buffer.content().chunks(80).take(23);
            let is_reversed =
                |cells: &[ratatui::buffer::Cell]| cells[0].modifier.contains(Modifier::REVERSED);
            let rows = rows.enumerate().filter(|(_, cells)| is_reversed(cells));
            rows.map(|(y, _)| y).collect::<Vec<_>>()
        };
        assert_eq!(reversed(&model), [6], "the second of the list");
        model.focus.cycle(false);
        assert_eq!(reversed(&model), [3, 6], "and the list's title");
    }

    #[test]
    fn every_key_can_be_found_in_the_help() {
        let mut model = slow();
        model.focus.shows_help = true;
        let text = lines(&screen(80, 24, &model, PLAIN));
        for binding in &crate::input::BINDINGS {
            assert!(text.contains(binding.what), "{} in\n{text}", binding.names);
        }
        // Where not all fits, the rest can be reached.
        let small = |model: &Model| lines(&screen(60, 12, model, PLAIN));
        assert!(!small(&model).contains("REF: no limit"));
        model.select(Step::Last);
        assert!(small(&model).contains("REF: no limit"), "{}", small(&model));
    }

    #[test]
    fn no_size_and_no_data_is_too_odd_to_draw() {
        let sizes = [0, 1, 2, 5, 11, 12, 13, 20, 24, 31, 48, 60, 80, 100];
        for mut model in odd() {
            for shows_help in [false, true] {
                model.focus.shows_help = shows_help;
                for width in sizes.into_iter().chain([139, 140, 300]) {
                    for height in sizes {
                        screen(width, height, &model, PLAIN);
                    }
                }
            }
            let _ = text(100, 44, &model, PLAIN);
        }
    }

    #[test]
    fn no_pane_is_too_odd_to_draw() {
        let sizes = [
            (0, 0),
            (1, 1),
            (20, 5),
            (60, 12),
            (80, 24),
            (140, 30),
            (300, 100),
        ];
        for mut model in odd() {
            for topic in Topic::ALL {
                model.focus.turn_to(topic);
                for step in [Step::Down(1), Step::Last] {
                    model.select(step);
                    for (width, height) in sizes {
                        screen(width, height, &model, RICH);
                    }
                }
                model.focus.is_zoomed = true;
                for pane in topic.panes() {
                    model.focus.choose(*pane);
                    for (width, height) in sizes {
                        screen(width, height, &model, PLAIN);
                    }
                }
            }
        }
    }

    #[test]
    fn ascii_alone_reaches_a_terminal_that_speaks_no_more() {
        for mut model in odd() {
            for topic in Topic::ALL {
                model.focus.turn_to(topic);
                for (width, height) in [(40, 5), (60, 12), (80, 24), (160, 48)] {
                    let text = lines(&screen(width, height, &model, PLAIN));
                    assert!(text.is_ascii(), "{text}");
                }
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
