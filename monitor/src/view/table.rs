//! Rows of columns: as many columns as there is room for, the telling ones first, and as many rows as fit around the
//! selected one.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::{put, row, style};

/// A column of a table of `T`.
pub(super) struct Column<T> {
    pub(super) name: &'static str,
    /// Its width with a blank; to the left of a text and to the right of a number.
    pub(super) width: usize,
    /// Whether it holds text rather than numbers.
    pub(super) is_text: bool,
    /// The lowest come first where not all have room.
    pub(super) rank: u8,
    pub(super) text: fn(&T) -> String,
}

/// Draws the head, and the rows around the one at `selected`.
pub(super) fn render<T>(
    area: Rect,
    buffer: &mut Buffer,
    columns: &[Column<T>],
    rows: &[T],
    selected: Option<usize>,
    style_of: impl Fn(&T) -> Style,
) {
    let columns = fitting(columns, area.width);
    let head = columns.iter().map(|it| cell(it.name, it.width, it.is_text));
    Line::styled(head.collect::<String>(), style::HEAD).render(row(area, 0), buffer);
    let places = usize::from(area.height).saturating_sub(1);
    let first = first_shown(selected.unwrap_or(0), rows.len(), places);
    for (place, it) in rows.iter().enumerate().skip(first).take(places) {
        let texts = columns.iter();
        let texts = texts.map(|column| cell(&(column.text)(it), column.width, column.is_text));
        let line = row(area, place - first + 1);
        let text = Line::styled(texts.collect::<String>(), style_of(it));
        put(&text, line, buffer);
        if Some(place) == selected {
            buffer.set_style(line, style::SELECTED);
        }
    }
}

/// The first row to show, so that the selected one is among those that there are places for.
pub(super) fn first_shown(selected: usize, length: usize, places: usize) -> usize {
    let last = length.saturating_sub(places);
    selected.saturating_sub(places / 2).min(last)
}

fn fitting<T>(columns: &[Column<T>], width: u16) -> Vec<&Column<T>> {
    let mut by_rank: Vec<_> = columns.iter().enumerate().collect();
    by_rank.sort_by_key(|(_, column)| column.rank);
    let mut left = usize::from(width);
    let mut kept = vec![];
    for (place, column) in by_rank {
        let Some(rest) = left.checked_sub(column.width) else {
            break;
        };
        left = rest;
        kept.push((place, column));
    }
    kept.sort_by_key(|(place, _)| *place);
    kept.into_iter().map(|(_, column)| column).collect()
}

/// `text` in so many columns, cut so that a blank is left.
fn cell(text: &str, width: usize, is_text: bool) -> String {
    let room = width.saturating_sub(1);
    let mut cut = String::new();
    for letter in text.chars() {
        cut.push(letter);
        if Span::from(cut.as_str()).width() > room {
            cut.pop();
            break;
        }
    }
    let blanks = " ".repeat(width.saturating_sub(Span::from(cut.as_str()).width()));
    if is_text {
        cut + &blanks
    } else {
        blanks + &cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_row_is_always_shown() {
        for (selected, length, places, first) in [
            (0, 100, 10, 0),
            (5, 100, 10, 0),
            (6, 100, 10, 1),
            (99, 100, 10, 90),
            (3, 4, 10, 0),
            (7, 8, 0, 7),
            (0, 0, 5, 0),
        ] {
            assert_eq!(first_shown(selected, length, places), first, "{selected}");
        }
    }

    #[test]
    fn telling_columns_come_first_and_stay_in_order() {
        let column = |name, rank| Column::<()> {
            name,
            width: 10,
            is_text: false,
            rank,
            text: |()| String::new(),
        };
        let columns = [column("a", 2), column("b", 0), column("c", 1)];
        for (width, expected) in [(9, ""), (10, "b"), (25, "bc"), (30, "abc")] {
            let names: String = fitting(&columns, width).iter().map(|it| it.name).collect();
            assert_eq!(names, expected, "{width}");
        }
    }

    #[test]
    fn a_cell_is_as_wide_as_its_column_whatever_its_letters() {
        assert_eq!(cell("abc", 5, true), "abc  ");
        assert_eq!(cell("abc", 5, false), "  abc");
        assert_eq!(cell("abcdef", 5, true), "abcd ");
        assert_eq!(cell("世界世界", 6, true), "世界  ");
    }
}
