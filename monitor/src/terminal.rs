//! The terminal, taken over and given back: on the normal way out, on an error, and on a panic.

use std::io;

use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::DefaultTerminal;
use ratatui::layout::Rect;
use signal_hook::consts::SIGSTOP;
use signal_hook::low_level;

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

    /// Its width and height.
    pub(crate) fn size(&self) -> (u16, u16) {
        let size = self.terminal.size().unwrap_or_default();
        (size.width, size.height)
    }

    /// Gives the terminal back, stops the process, and takes the terminal over again once somebody lets it go on.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.terminal.show_cursor()?;
        ratatui::try_restore()?;
        low_level::raise(SIGSTOP)?;
        self.resume()
    }

    /// Takes the terminal over again, in whatever state it is, to draw everything anew.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        // What crossterm remembers of the terminal's settings may be older than what the shell made of them.
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        self.forget()
    }

    /// Makes the next picture a whole one, since nobody knows what is on the screen. A terminal that was made smaller
    /// and large again before we looked has lost what lay outside, and says the size that we know.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        let (width, height) = self.size();
        // Not `clear`: it asks where the cursor is, and not every terminal answers.
        self.terminal.resize(Rect::new(0, 0, width, height))
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
