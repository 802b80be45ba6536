//! What each topic looks like, in every size and on every kind of terminal: pictures of recordings.

use std::fmt::Write as _;

use clap::ValueEnum as _;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::Color;

use super::{Look, buffer};
use crate::model::Model;
use crate::model::focus::Topic;
use crate::recording;
use crate::scenario::Scenario;

const SIZES: [(u16, u16); 5] = [(60, 12), (80, 24), (120, 36), (160, 48), (200, 60)];

const ASCII: Look = Look {
    ascii: true,
    colour: false,
};
const MONO: Look = Look {
    ascii: false,
    colour: false,
};
const COLOUR: Look = Look {
    ascii: false,
    colour: true,
};

/// `show` of the topic at every size, one below the other.
fn sizes(model: &mut Model, topic: Topic, look: Look, show: fn(&Buffer) -> String) -> String {
    model.focus.turn_to(topic);
    let screens = SIZES.map(|(width, height)| {
        let shown = show(&buffer(width, height, model, look));
        format!("{width}x{height}\n{shown}\n")
    });
    screens.join("\n")
}

fn rows(buffer: &Buffer) -> impl Iterator<Item = &[Cell]> {
    buffer.content().chunks(usize::from(buffer.area.width))
}

fn text(buffer: &Buffer) -> String {
    let line = |cells: &[Cell]| {
        let text: String = cells.iter().map(Cell::symbol).collect();
        text.trim_end().to_owned()
    };
    rows(buffer).map(line).collect::<Vec<_>>().join("\n")
}

/// Where letters are neither of the terminal's own colour nor plain: row, columns, how.
fn styles(buffer: &Buffer) -> String {
    let mut told = String::new();
    for (y, cells) in rows(buffer).enumerate() {
        let mut x = 0;
        for run in cells.chunk_by(|one, other| style(one) == style(other)) {
            let style = style(&run[0]);
            if !style.is_empty() {
                let end = x + run.len() - 1;
                writeln!(told, "{y} {x}-{end}{style}").unwrap();
            }
            x += run.len();
        }
    }
    told
}

fn style(cell: &Cell) -> String {
    // A blank has no colour to be seen by.
    let is_seen = cell.symbol() != " " && cell.fg != Color::Reset;
    let colour = if is_seen {
        format!(" {}", cell.fg)
    } else {
        String::new()
    };
    if cell.modifier.is_empty() {
        colour
    } else {
        format!("{colour} {:?}", cell.modifier)
    }
}

#[test]
fn every_topic_at_every_size_on_every_terminal() {
    let mut model = recording::of(Scenario::QueueWait);
    for topic in Topic::ALL {
        let name = |kind| format!("{}_{kind}", topic.label());
        let ascii = sizes(&mut model, topic, ASCII, text);
        assert!(ascii.is_ascii());
        insta::assert_snapshot!(name("ascii"), ascii);
        let mono = sizes(&mut model, topic, MONO, text);
        assert_eq!(sizes(&mut model, topic, COLOUR, text), mono);
        insta::assert_snapshot!(name("mono"), mono);
        insta::assert_snapshot!(name("colour"), sizes(&mut model, topic, COLOUR, styles));
    }
}

#[test]
fn every_recording_at_a_glance() {
    for scenario in Scenario::value_variants() {
        let model = recording::of(*scenario);
        let screen = buffer(80, 24, &model, ASCII);
        insta::assert_snapshot!(format!("{scenario:?}"), text(&screen));
    }
}
