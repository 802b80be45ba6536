//! The terminal, taken over and given back: on the normal way out, on an error, and on a panic.

use std::io;

use ratatui::DefaultTerminal;

use crate::model::Model;
use crate::view::{self, Look};

/// A terminal in raw mode on its alternate screen. Dropping it puts everything back; so does the hook that it sets,
/// before a panic is reported.
#[derive(Debug)]
pub(crate) struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// Takes the terminal over. Only for a standard output that is one.
    pub(crate) fn enter() -> io::Result<Self> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                let _ = ratatui::try_restore();
                Err(error)
            }
        }
    }

    /// Shows `model`; only what changed is written.
    pub(crate) fn draw(&mut self, model: &Model, look: Look) -> io::Result<()> {
        self.terminal
            .draw(|frame| view::render(frame, model, look))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone, as after a hang-up. The cursor comes back when `terminal` is dropped.
        let _ = ratatui::try_restore();
    }
}
