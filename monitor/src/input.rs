//! What keys mean.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Leave.
    Quit,
    /// Open or close the help.
    ToggleHelp,
    /// Close what is open.
    Back,
    /// Hold the picture, or let it go on.
    TogglePause,
    /// The next window of the stage table.
    NextWindow,
}

/// The keys and what they do, as the help tells it.
pub(crate) const KEYS: [(&str, &str); 5] = [
    ("q, Ctrl-C", "quit"),
    ("?", "open or close this help"),
    ("Esc", "close it"),
    ("p, space", "pause and go on"),
    ("w", "window of the stages: 10, 60, 300 s"),
];

/// What `key` asks for, if anything.
pub(crate) fn action(key: KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
        (KeyCode::Char('c'), true) | (KeyCode::Char('q'), false) => Some(Action::Quit),
        (KeyCode::Char('?'), false) => Some(Action::ToggleHelp),
        (KeyCode::Esc, _) => Some(Action::Back),
        (KeyCode::Char('p' | ' '), false) => Some(Action::TogglePause),
        (KeyCode::Char('w'), false) => Some(Action::NextWindow),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_means_one_thing() {
        let plain = KeyModifiers::NONE;
        for (code, modifiers, expected) in [
            (KeyCode::Char('q'), plain, Some(Action::Quit)),
            (
                KeyCode::Char('c'),
                KeyModifiers::CONTROL,
                Some(Action::Quit),
            ),
            (KeyCode::Char('c'), plain, None),
            (KeyCode::Char('q'), KeyModifiers::CONTROL, None),
            (
                KeyCode::Char('?'),
                KeyModifiers::SHIFT,
                Some(Action::ToggleHelp),
            ),
            (KeyCode::Esc, plain, Some(Action::Back)),
            (KeyCode::Char('p'), plain, Some(Action::TogglePause)),
            (KeyCode::Char(' '), plain, Some(Action::TogglePause)),
            (KeyCode::Char('w'), plain, Some(Action::NextWindow)),
            (KeyCode::Enter, plain, None),
        ] {
            assert_eq!(action(KeyEvent::new(code, modifiers)), expected, "{code:?}");
        }
    }

    #[test]
    fn letting_a_key_go_does_nothing() {
        let mut key = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        key.kind = KeyEventKind::Release;
        assert_eq!(action(key), None);
    }
}
