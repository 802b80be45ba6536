//! The screen as an SVG: a grid of characters in any monospaced font, in the terminal's named colours, on a dark or a
//! light ground. It needs nothing beside itself: no style sheet, no script, no font.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use clap::ValueEnum;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use ratatui::text::Span;

/// A character's place, in tenths of a pixel: a monospaced font is about 0.6 of its size wide, and its blocks 1.16 of it
/// high, so that those of two rows touch.
const CELL: (u64, u64) = (84, 163);
const FONT_SIZE: u64 = 14;
/// From a row's top to where its letters stand, tenths of a pixel.
const BASE_LINE: u64 = 127;
/// The signs that curves are drawn with.
const BRAILLE: RangeInclusive<char> = '\u{2800}'..='\u{28ff}';
/// Column and row of each bit's dot.
const BRAILLE_DOTS: [(u64, u64); 8] = [
    (0, 0),
    (0, 1),
    (0, 2),
    (1, 0),
    (1, 1),
    (1, 2),
    (0, 3),
    (1, 3),
];
/// Around the screen, tenths of a pixel.
const MARGIN: u64 = 100;

/// What a picture is drawn on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Ground {
    /// As most terminals are.
    #[default]
    Dark,
    /// As most paper is.
    Light,
}

impl Ground {
    const fn background(self) -> &'static str {
        match self {
            Self::Dark => "#161b22",
            Self::Light => "#ffffff",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Dark => "#e6edf3",
            Self::Light => "#1f2328",
        }
    }

    /// The sixteen colours that have names, chosen so that each can be read on it.
    const fn named(self) -> [&'static str; 16] {
        match self {
            Self::Dark => [
                "#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf",
                "#b1bac4", "#8b949e", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff",
                "#56d4dd", "#ffffff",
            ],
            Self::Light => [
                "#24292f", "#cf222e", "#116329", "#7d4e00", "#0969da", "#8250df", "#1b7c83",
                "#6e7781", "#57606a", "#a40e26", "#1a7f37", "#633c01", "#218bff", "#a475f9",
                "#3192aa", "#1f2328",
            ],
        }
    }

    /// None is the colour that the terminal has by itself.
    fn colour(self, colour: Color) -> Option<String> {
        let place = match colour {
            Color::Reset => return None,
            Color::Rgb(red, green, blue) => return Some(hex(red, green, blue)),
            Color::Indexed(place) => usize::from(place),
            Color::Black => 0,
            Color::Red => 1,
            Color::Green => 2,
            Color::Yellow => 3,
            Color::Blue => 4,
            Color::Magenta => 5,
            Color::Cyan => 6,
            Color::Gray => 7,
            Color::DarkGray => 8,
            Color::LightRed => 9,
            Color::LightGreen => 10,
            Color::LightYellow => 11,
            Color::LightBlue => 12,
            Color::LightMagenta => 13,
            Color::LightCyan => 14,
            Color::White => 15,
        };
        Some(match place {
            0..16 => self.named()[place].to_owned(),
            // Six shades of each of red, green and blue, then 24 of gray.
            16..232 => {
                let shades = [0, 95, 135, 175, 215, 255];
                let shade = |step: usize| shades[(place - 16) / step % 6];
                hex(shade(36), shade(6), shade(1))
            }
            _ => {
                let gray = u8::try_from(8 + (place - 232) * 10).unwrap_or(u8::MAX);
                hex(gray, gray, gray)
            }
        })
    }
}

fn hex(red: u8, green: u8, blue: u8) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// The picture of `buffer`; `title` is for those who can't see it.
pub(crate) fn svg(buffer: &Buffer, ground: Ground, title: &str) -> String {
    let (columns, rows) = (u64::from(buffer.area.width), u64::from(buffer.area.height));
    let width = tenths(columns * CELL.0 + 2 * MARGIN);
    let height = tenths(rows * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{}\"/>\n\
         <g font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\" font-size=\"{FONT_SIZE}\" \
         fill=\"{}\" xml:space=\"preserve\" style=\"white-space:pre\">\n",
        escaped(title),
        ground.background(),
        ground.text(),
    );
    let cells = buffer
        .content()
        .chunks(usize::from(buffer.area.width).max(1));
    for (row, cells) in (0..).zip(cells) {
        for run in runs(cells, ground) {
            run.draw(&mut svg, row, ground);
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Cells of a row that look alike.
struct Run {
    column: u64,
    cells: u64,
    text: String,
    look: Look,
}

#[derive(Debug, PartialEq, Eq)]
struct Look {
    ink: Option<String>,
    ground: Option<String>,
    modifier: Modifier,
    is_braille: bool,
}

impl Look {
    fn of(cell: &Cell, ground: Ground) -> Self {
        let (ink, back) = (ground.colour(cell.fg), ground.colour(cell.bg));
        let modifier = cell.modifier;
        let is_braille = cell.symbol().starts_with(|sign| BRAILLE.contains(&sign));
        if modifier.contains(Modifier::REVERSED) {
            return Self {
                ink: Some(back.unwrap_or_else(|| ground.background().to_owned())),
                ground: Some(ink.unwrap_or_else(|| ground.text().to_owned())),
                modifier,
                is_braille,
            };
        }
        Self {
            ink,
            ground: back,
            modifier,
            is_braille,
        }
    }
}

fn runs(cells: &[Cell], ground: Ground) -> Vec<Run> {
    let mut runs: Vec<Run> = vec![];
    let mut column = 0;
    while let Some(cell) = cells.get(column) {
        let look = Look::of(cell, ground);
        // A wide character has the cell behind it, too.
        let width = Span::raw(cell.symbol()).width().max(1);
        let (at, cells) = (column as u64, width as u64);
        match runs.last_mut() {
            Some(run) if run.look == look => {
                run.text.push_str(cell.symbol());
                run.cells += cells;
            }
            _ => runs.push(Run {
                column: at,
                cells,
                text: cell.symbol().to_owned(),
                look,
            }),
        }
        column += width;
    }
    runs
}

impl Run {
    fn draw(&self, svg: &mut String, row: u64, ground: Ground) {
        let (x, y) = (MARGIN + self.column * CELL.0, MARGIN + row * CELL.1);
        let width = tenths(self.cells * CELL.0);
        if let Some(colour) = &self.look.ground {
            let (x, y, height) = (tenths(x), tenths(y), tenths(CELL.1));
            let rect = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\"/>"
            );
            rect.expect("a text takes all that is written to it");
        }
        if self.look.is_braille {
            self.draw_dots(svg, (x, y), ground);
            return;
        }
        let text = self.text.trim_end_matches(' ');
        if text.is_empty() {
            return;
        }
        // Blanks at the beginning are a place further right: not every reader keeps them.
        let blanks = text.len() - text.trim_start_matches(' ').len();
        let x = tenths(x + blanks as u64 * CELL.0);
        let behind = (self.text.len() - text.len()) as u64;
        let width = tenths((self.cells - behind - blanks as u64) * CELL.0);
        let mut look = String::new();
        let ink = self.look.ink.as_deref();
        if let Some(ink) = ink.filter(|ink| *ink != ground.text()) {
            look.extend([" fill=\"", ink, "\""]);
        }
        for (modifier, attribute) in [
            (Modifier::BOLD, " font-weight=\"bold\""),
            (Modifier::ITALIC, " font-style=\"italic\""),
            (Modifier::UNDERLINED, " text-decoration=\"underline\""),
            (Modifier::DIM, " fill-opacity=\"0.65\""),
        ] {
            if self.look.modifier.contains(modifier) {
                look.push_str(attribute);
            }
        }
        let (y, text) = (tenths(y + BASE_LINE), escaped(text.trim_start_matches(' ')));
        // Its length keeps columns below one another whatever the font.
        let line = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" textLength=\"{width}\" lengthAdjust=\"spacingAndGlyphs\"{look}>{text}</text>"
        );
        line.expect("a text takes all that is written to it");
    }
}

impl Run {
    /// Draws Braille as what it stands for. Many fonts have none of it, and what comes from another one is too wide.
    fn draw_dots(&self, svg: &mut String, (x, y): (u64, u64), ground: Ground) {
        let ink = self.look.ink.as_deref().unwrap_or(ground.text());
        let mut path = String::new();
        for (cell, sign) in (0_u64..).zip(self.text.chars()) {
            let dots = u32::from(sign) & 0xff;
            for (bit, (column, row)) in BRAILLE_DOTS.into_iter().enumerate() {
                if dots >> bit & 1 == 1 {
                    // The middles of the halves and quarters of a cell.
                    let x = x + cell * CELL.0 + (2 * column + 1) * CELL.0 / 4;
                    let y = y + (2 * row + 1) * CELL.1 / 8;
                    path.extend(["M", &tenths(x), " ", &tenths(y), "h0"]);
                }
            }
        }
        if path.is_empty() {
            return;
        }
        let line = writeln!(
            svg,
            "<path d=\"{path}\" stroke=\"{ink}\" stroke-width=\"2.6\" stroke-linecap=\"round\"/>"
        );
        line.expect("a text takes all that is written to it");
    }
}

/// A length in pixels.
fn tenths(tenths: u64) -> String {
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        rest => format!("{}.{rest}", tenths / 10),
    }
}

/// `text` as XML, without the characters that XML has no way to write.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => {}
            _ if sign.is_control() => {}
            _ => escaped.push(sign),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;
    use crate::model::fixture;
    use crate::view;

    /// The names of all elements, where `xml` is well formed: each is closed in turn, attributes are quoted, and no
    /// text has a bare sign.
    fn elements(xml: &str) -> Result<Vec<String>, String> {
        let (mut open, mut found) = (vec![], vec![]);
        let mut rest = xml.trim_end();
        while let Some(begin) = rest.find('<') {
            is_text(&rest[..begin])?;
            let end = rest[begin..].find('>').ok_or("a tag without end")? + begin;
            let tag = &rest[begin + 1..end];
            rest = &rest[end + 1..];
            if let Some(name) = tag.strip_prefix('/') {
                if open.pop().as_deref() != Some(name) {
                    return Err(format!("</{name}> closes nothing"));
                }
                continue;
            }
            let is_whole = tag.ends_with('/');
            let tag = tag.trim_end_matches('/');
            let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            while !attributes.trim().is_empty() {
                let (_, value) = attributes
                    .split_once("=\"")
                    .ok_or_else(|| format!("{tag}: an attribute without value"))?;
                let (value, others) = value.split_once('"').ok_or("a value without end")?;
                is_text(value)?;
                attributes = others;
            }
            found.push(name.to_owned());
            if !is_whole {
                open.push(name.to_owned());
            }
        }
        if open.is_empty() && rest.is_empty() {
            Ok(found)
        } else {
            Err(format!("left open: {open:?}, {rest}"))
        }
    }

    fn is_text(text: &str) -> Result<(), String> {
        let known = ["&amp;", "&lt;", "&gt;", "&quot;"];
        let is_known = |at: usize| known.iter().any(|it| text[at..].starts_with(it));
        let bare = text.match_indices('&').find(|(at, _)| !is_known(*at));
        let odd = text.chars().any(|sign| sign.is_control() && sign != '\n');
        if bare.is_some() || odd {
            return Err(format!("a bare sign in {text:?}"));
        }
        Ok(())
    }

    #[test]
    fn a_curve_is_drawn_in_dots_that_need_no_font() {
        let text = picture(&["a⠁⢀b"]);
        let dots = text.lines().find(|line| line.starts_with("<path")).unwrap();
        // The first dot of the second cell, and the last of the third.
        assert!(dots.contains("d=\"M20.5 12h0M33.1 24.2h0\""), "{dots}");
        assert!(text.contains(">a</text>") && text.contains(">b</text>"));
    }

    fn picture(lines: &[&str]) -> String {
        let buffer = Buffer::with_lines(lines.iter().copied());
        svg(&buffer, Ground::Dark, "")
    }

    #[test]
    fn the_test_knows_what_is_not_well_formed() {
        for bad in [
            "<a>",
            "<a></b>",
            "<a b=c/>",
            "<a>&</a>",
            "<a b=\"&x\"/>",
            "x",
            "<a><b></a></b>",
        ] {
            assert!(elements(bad).is_err(), "{bad}");
        }
        assert_eq!(elements("<a b=\"c\">&lt;<d/></a>").unwrap(), ["a", "d"]);
    }

    #[test]
    fn every_screen_is_well_formed_on_either_ground() {
        let look = view::Look {
            ascii: false,
            colour: true,
        };
        for model in fixture::odd() {
            for (width, height) in [(0, 0), (40, 5), (80, 24), (160, 48)] {
                let buffer = view::buffer(width, height, &model, look);
                for ground in [Ground::Dark, Ground::Light] {
                    let svg = svg(&buffer, ground, "<&>");
                    let found = elements(&svg).unwrap();
                    assert_eq!(&found[..4], ["svg", "title", "rect", "g"], "{svg}");
                }
            }
        }
    }

    #[test]
    fn what_xml_reserves_is_escaped_and_what_it_forbids_is_left_out() {
        let svg = picture(&["a<b & \"c\" > d"]);
        assert!(
            svg.contains(">a&lt;b &amp; &quot;c&quot; &gt; d</text>"),
            "{svg}"
        );
        assert_eq!(escaped("a\u{1b}\u{0}b\u{ffff}c"), "abc");
    }

    #[test]
    fn each_text_stands_in_its_column_however_wide_its_signs_are() {
        let svg = picture(&["", "  世界x"]);
        // Two blanks, two wide characters and one more: from the third column on, five cells.
        let expected = "<text x=\"26.8\" y=\"39\" textLength=\"42\" lengthAdjust=\"spacingAndGlyphs\">世界x</text>";
        assert!(svg.contains(expected), "{svg}");
        // A blank as wide as two is a sign like any.
        assert!(picture(&["\u{3000}"]).contains(">\u{3000}</text>"));
        assert!(svg.contains("width=\"78.8\" height=\"52.6\""), "{svg}");
    }

    #[test]
    fn colours_are_those_of_the_ground_and_a_reversed_cell_changes_both() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 1));
        let red = Style::new().fg(Color::Red);
        buffer.set_string(0, 0, "a", red);
        buffer.set_string(1, 0, "b", Style::new().add_modifier(Modifier::REVERSED));
        buffer.set_string(2, 0, "c", Style::new().bg(Color::Indexed(196)));
        buffer.set_string(3, 0, "d", red.add_modifier(Modifier::BOLD | Modifier::DIM));
        let dark = svg(&buffer, Ground::Dark, "");
        for expected in [
            " fill=\"#ff7b72\">a<",
            "height=\"16.3\" fill=\"#e6edf3\"/>",
            " fill=\"#161b22\">b<",
            "height=\"16.3\" fill=\"#ff0000\"/>",
            " fill=\"#ff7b72\" font-weight=\"bold\" fill-opacity=\"0.65\">d<",
        ] {
            assert!(dark.contains(expected), "{expected} in {dark}");
        }
        let light = svg(&buffer, Ground::Light, "");
        assert!(light.contains(" fill=\"#cf222e\">a<"), "{light}");
        assert!(light.contains("rx=\"6\" fill=\"#ffffff\"/>"), "{light}");
    }
}
