//! `config show`: what holds, and where each value comes from.

use std::fmt::Write as _;

/// One setting as it was read, with secrets masked by what the setting is, never by what it looks like.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) path: String,
    /// As TOML writes it.
    pub(super) text: String,
    pub(super) origin: String,
}

/// How a secret is shown.
pub(super) const MASK: &str = "\"[secret]\"";

/// The column that origins begin in, where the setting leaves it free.
const ORIGIN_COLUMN: usize = 56;

/// One line a setting: `path = value  # origin`.
pub(super) fn show(settings: &[Setting]) -> String {
    let mut lines = String::new();
    for Setting { path, text, origin } in settings {
        let setting = format!("{path} = {text}");
        writeln!(lines, "{setting:ORIGIN_COLUMN$} # {origin}").expect("a string takes any text");
    }
    lines
}
