//! What colours mean. Named ones only: their shades are the user's choice.

use ratatui::style::{Color, Modifier, Style};

use crate::model::liveness::Liveness;
use crate::verdict::{Advice, Level};

/// What matters less.
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
/// What is neither.
pub(super) const PLAIN: Style = Style::new();
/// What heads a table.
pub(super) const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);
/// What went well, is near a limit, is over it.
const GOOD: Style = Style::new().fg(Color::Green);
const NEAR: Style = Style::new().fg(Color::Yellow);
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
