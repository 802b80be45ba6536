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
    /// The next window of the figures.
    NextWindow,
    /// Turn to the topic at that place.
    Turn(usize),
    /// Choose the next pane.
    NextPane,
    /// Choose the pane before.
    PreviousPane,
    /// Give the chosen pane the whole screen, or take it back.
    ToggleZoom,
    /// Select what is so many places higher.
    Up(usize),
    /// Select what is so many places lower.
    Down(usize),
    /// Select the first.
    First,
    /// Select the last.
    Last,
    /// Begin to type a filter.
    Filter,
    /// Sort requests by something else.
    NextOrder,
    /// Write the screen to a file.
    Save,
    /// Begin to record, or end it.
    ToggleRecording,
    /// Forget the highest figures.
    ClearPeaks,
    /// The next theme.
    NextTheme,
    /// Look more often.
    Faster,
    /// Look less often.
    Slower,
    /// Stop until the shell lets us go on.
    Suspend,
    /// A letter of the filter.
    Type(char),
    /// Take the last letter back.
    Erase,
    /// The filter is whole.
    Accept,
}

/// Keys that belong together, and what they are for.
pub(crate) struct Binding {
    /// Their names, as the help tells them.
    pub(crate) names: &'static str,
    /// What they do.
    pub(crate) what: &'static str,
    keys: &'static [(Key, Action)],
}

/// A key, and whether Control is held. Shift is part of the letter.
type Key = (KeyCode, bool);

const fn plain(letter: char) -> Key {
    (KeyCode::Char(letter), false)
}

const fn control(letter: char) -> Key {
    (KeyCode::Char(letter), true)
}

const fn named(code: KeyCode) -> Key {
    (code, false)
}

/// Places that a page moves by.
const PAGE: usize = 10;

/// Every key, in the order of the help.
pub(crate) const BINDINGS: [Binding; 18] = [
    Binding {
        names: "q, Ctrl-C",
        what: "quit",
        keys: &[(plain('q'), Action::Quit), (control('c'), Action::Quit)],
    },
    Binding {
        names: "?",
        what: "open or close this help",
        keys: &[(plain('?'), Action::ToggleHelp)],
    },
    Binding {
        names: "1-6",
        what: "overview stages keys requests runtime events",
        keys: &[
            (plain('1'), Action::Turn(0)),
            (plain('2'), Action::Turn(1)),
            (plain('3'), Action::Turn(2)),
            (plain('4'), Action::Turn(3)),
            (plain('5'), Action::Turn(4)),
            (plain('6'), Action::Turn(5)),
        ],
    },
    Binding {
        names: "Tab",
        what: "next pane; Shift-Tab the one before",
        keys: &[
            (named(KeyCode::Tab), Action::NextPane),
            (named(KeyCode::BackTab), Action::PreviousPane),
        ],
    },
    Binding {
        names: "z",
        what: "give the pane the whole screen",
        keys: &[(plain('z'), Action::ToggleZoom)],
    },
    Binding {
        names: "Esc",
        what: "back: help, zoom, filter, pane, view",
        keys: &[(named(KeyCode::Esc), Action::Back)],
    },
    Binding {
        names: "arrows, jk",
        what: "select; PgUp PgDn by ten, Home End, g G",
        keys: &[
            (named(KeyCode::Up), Action::Up(1)),
            (named(KeyCode::Down), Action::Down(1)),
            (plain('k'), Action::Up(1)),
            (plain('j'), Action::Down(1)),
            (named(KeyCode::PageUp), Action::Up(PAGE)),
            (named(KeyCode::PageDown), Action::Down(PAGE)),
            (named(KeyCode::Home), Action::First),
            (named(KeyCode::End), Action::Last),
            (plain('g'), Action::First),
            (plain('G'), Action::Last),
        ],
    },
    Binding {
        names: "p, space",
        what: "pause and go on",
        keys: &[
            (plain('p'), Action::TogglePause),
            (plain(' '), Action::TogglePause),
        ],
    },
    Binding {
        names: "w",
        what: "window of the figures: 10, 60, 300 s",
        keys: &[(plain('w'), Action::NextWindow)],
    },
    Binding {
        names: "/",
        what: "filter requests: outcome provider key fault id",
        keys: &[(plain('/'), Action::Filter)],
    },
    Binding {
        names: "o",
        what: "order requests: time total overhead queue wait",
        keys: &[(plain('o'), Action::NextOrder)],
    },
    Binding {
        names: "s",
        what: "write the screen to a file, as text",
        keys: &[(plain('s'), Action::Save)],
    },
    Binding {
        names: "r",
        what: "record to a file, and end it; --replay shows it",
        keys: &[(plain('r'), Action::ToggleRecording)],
    },
    Binding {
        names: "c",
        what: "forget peaks and slow requests (here only)",
        keys: &[(plain('c'), Action::ClearPeaks)],
    },
    Binding {
        names: "t",
        what: "theme: terminal, dark, light, mono",
        keys: &[(plain('t'), Action::NextTheme)],
    },
    Binding {
        names: "+, -",
        what: "look more or less often",
        keys: &[
            (plain('+'), Action::Faster),
            (plain('='), Action::Faster),
            (plain('-'), Action::Slower),
        ],
    },
    Binding {
        names: "Ctrl-Z",
        what: "suspend; fg goes on",
        keys: &[(control('z'), Action::Suspend)],
    },
    Binding {
        names: "Enter, Bksp",
        what: "one request in full; of a filter: end, erase",
        keys: &[
            (named(KeyCode::Enter), Action::Accept),
            (named(KeyCode::Backspace), Action::Erase),
        ],
    },
];

/// What `key` asks for, if anything.
pub(crate) fn action(key: KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let pressed = (key.code, key.modifiers.contains(KeyModifiers::CONTROL));
    let all = BINDINGS.iter().flat_map(|binding| binding.keys);
    let found = all.into_iter().find(|(bound, _)| *bound == pressed);
    found.map(|(_, action)| *action)
}

/// What `key` asks for while a filter is typed.
pub(crate) fn typed(key: KeyEvent) -> Option<Action> {
    match key.code {
        KeyCode::Char(letter) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
            (key.kind != KeyEventKind::Release).then_some(Action::Type(letter))
        }
        _ => action(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    #[test]
    fn each_key_means_one_thing() {
        let (none, ctrl, shift) = (
            KeyModifiers::NONE,
            KeyModifiers::CONTROL,
            KeyModifiers::SHIFT,
        );
        let letter = KeyCode::Char;
        for (code, modifiers, expected) in [
            (letter('q'), none, Some(Action::Quit)),
            (letter('c'), ctrl, Some(Action::Quit)),
            (letter('c'), none, Some(Action::ClearPeaks)),
            (letter('q'), ctrl, None),
            (letter('?'), shift, Some(Action::ToggleHelp)),
            (letter('G'), shift, Some(Action::Last)),
            (letter('g'), none, Some(Action::First)),
            (KeyCode::Esc, none, Some(Action::Back)),
            (letter('p'), none, Some(Action::TogglePause)),
            (letter(' '), none, Some(Action::TogglePause)),
            (letter('w'), none, Some(Action::NextWindow)),
            (letter('1'), none, Some(Action::Turn(0))),
            (letter('6'), none, Some(Action::Turn(5))),
            (letter('7'), none, None),
            (KeyCode::BackTab, shift, Some(Action::PreviousPane)),
            (letter('z'), none, Some(Action::ToggleZoom)),
            (letter('z'), ctrl, Some(Action::Suspend)),
            (letter('r'), none, Some(Action::ToggleRecording)),
            (letter('k'), none, Some(Action::Up(1))),
            (KeyCode::PageDown, none, Some(Action::Down(10))),
            (letter('+'), shift, Some(Action::Faster)),
            (KeyCode::F(1), none, None),
        ] {
            assert_eq!(action(press(code, modifiers)), expected, "{code:?}");
        }
    }

    #[test]
    fn no_key_is_bound_twice() {
        let keys = || BINDINGS.iter().flat_map(|binding| binding.keys);
        for (key, action) in keys() {
            let others = keys().filter(|(other, _)| other == key).count();
            assert_eq!(others, 1, "{key:?} {action:?}");
        }
    }

    #[test]
    fn letters_are_a_filters_while_one_is_typed() {
        let typed = |code, modifiers| typed(press(code, modifiers));
        for letter in ['q', '?', 'z', ' '] {
            let expected = Some(Action::Type(letter));
            assert_eq!(typed(KeyCode::Char(letter), KeyModifiers::NONE), expected);
        }
        let control = KeyModifiers::CONTROL;
        assert_eq!(typed(KeyCode::Char('c'), control), Some(Action::Quit));
        let none = KeyModifiers::NONE;
        assert_eq!(typed(KeyCode::Enter, none), Some(Action::Accept));
        assert_eq!(typed(KeyCode::Esc, none), Some(Action::Back));
    }

    #[test]
    fn letting_a_key_go_does_nothing() {
        let mut key = press(KeyCode::Char('q'), KeyModifiers::NONE);
        key.kind = KeyEventKind::Release;
        assert_eq!((action(key), typed(key)), (None, None));
    }
}
