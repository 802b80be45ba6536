//! What colours mean. Named ones only: their shades are the user's choice, and every terminal of 16 colours has them.

use bifrost_shared::record::Outcome;
use bifrost_shared::slot::SlotState;
use ratatui::style::{Color, Modifier, Style};

use super::requests;
use crate::model::focus::Theme;
use crate::model::journal::Weight;
use crate::model::liveness::Liveness;
use crate::verdict::{Advice, Level};

/// What matters less.
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
/// What is neither.
pub(super) const PLAIN: Style = Style::new();
/// What heads a table.
pub(super) const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);
/// What the user has selected.
pub(super) const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
/// What went well, is near a limit, is over it.
const GOOD: Style = Style::new().fg(Color::Green);
pub(super) const NEAR: Style = Style::new().fg(Color::Yellow);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// How a trigger of that level looks.
pub(super) const fn of_level(level: Level) -> Style {
    match level {
        Level::Ok => GOOD,
        Level::Watch => NEAR,
        Level::Breach => BAD,
        Level::Unknown | Level::Reference => DIM,
    }
}

/// How a verdict with that advice looks.
pub(super) const fn of_advice(advice: Advice) -> Style {
    match advice {
        Advice::Stay => GOOD.add_modifier(Modifier::BOLD),
        Advice::Watch | Advice::Unknown => NEAR.add_modifier(Modifier::BOLD),
        Advice::Upgrade => BAD,
        Advice::NoLimits => HEAD,
    }
}

/// How the word for a gateway's state looks.
pub(super) const fn of_liveness(liveness: Liveness) -> Style {
    match liveness {
        Liveness::Live => GOOD.add_modifier(Modifier::BOLD),
        Liveness::Starting | Liveness::Draining | Liveness::Stopped => {
            NEAR.add_modifier(Modifier::BOLD)
        }
        Liveness::Stalled | Liveness::Stuck { .. } | Liveness::Dead => BAD,
    }
}

/// How a provider or key in that state looks.
pub(super) const fn of_slot(state: SlotState) -> Style {
    match state {
        SlotState::Ready => PLAIN,
        SlotState::Warming | SlotState::Resting => NEAR,
        SlotState::Benched => BAD,
        SlotState::Off | SlotState::Empty => DIM,
    }
}

/// How a request that ended so looks.
pub(super) const fn of_outcome(outcome: Outcome) -> Style {
    match outcome {
        _ if requests::is_bad(outcome) => BAD,
        Outcome::Rejected | Outcome::Cancelled => NEAR,
        _ => PLAIN,
    }
}

/// How an event looks.
pub(super) const fn of_weight(weight: Weight) -> Style {
    match weight {
        Weight::Good => GOOD,
        Weight::Plain => PLAIN,
        Weight::Near => NEAR,
        Weight::Bad => BAD,
    }
}

/// What `colour` is in `theme`. On white, yellow and cyan can't be read; on black, plain blue and red hardly.
pub(super) const fn themed(colour: Color, theme: Theme) -> Color {
    match (theme, colour) {
        (Theme::Mono, _) => Color::Reset,
        (Theme::Dark, Color::Red) => Color::LightRed,
        (Theme::Dark, Color::Green) => Color::LightGreen,
        (Theme::Dark, Color::Yellow) => Color::LightYellow,
        (Theme::Dark, Color::Cyan) => Color::LightCyan,
        (Theme::Dark, Color::Blue) => Color::LightBlue,
        (Theme::Dark, Color::Magenta) => Color::LightMagenta,
        (Theme::Light, Color::Yellow) => Color::Magenta,
        (Theme::Light, Color::Cyan) => Color::Blue,
        (Theme::Light, Color::Blue) => Color::DarkGray,
        _ => colour,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_theme_makes_two_meanings_one() {
        let meanings = [GOOD, NEAR, BAD].map(|style| style.fg.unwrap());
        for theme in [Theme::Terminal, Theme::Dark, Theme::Light] {
            let [good, near, bad] = meanings.map(|colour| themed(colour, theme));
            assert!(good != near && near != bad && good != bad, "{theme:?}");
        }
        let on_white = [Color::Yellow, Color::Cyan].map(|it| themed(it, Theme::Light));
        assert_eq!(on_white, [Color::Magenta, Color::Blue]);
    }
}
