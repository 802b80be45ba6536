//! What is wrong with the settings: all of it at once, each with the place that the user typed, and no secret in any.

use std::fmt;

/// One thing that keeps the settings from being used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The variable, the flag, or the file, line and setting. Empty where nothing was typed.
    pub place: String,
    /// What was expected there.
    pub message: String,
}

impl Problem {
    pub(super) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Every problem with the settings; shown one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// `text` in backquotes, or its length where it could be a key that was pasted into the wrong place, or could move the
/// reader's cursor. Keys are longer than 24 characters, and what a plain setting takes is shorter.
pub(super) fn quoted(text: &str) -> String {
    if is_plain(text, 24) {
        format!("`{text}`")
    } else {
        match text.chars().count() {
            0 => "an empty text".to_owned(),
            1 => "a text of one character".to_owned(),
            count => format!("a text of {count} characters"),
        }
    }
}

/// The dotted path of a setting, with whatever might be a secret in it left out.
pub(super) fn dotted(path: &[String]) -> String {
    let plain = |name: &String| {
        if is_plain(name, 32) {
            name.clone()
        } else {
            "…".to_owned()
        }
    };
    path.iter().map(plain).collect::<Vec<_>>().join(".")
}

/// Whether `text` may be printed: short, without control characters, and unlike a key.
pub(super) fn is_plain(text: &str, length_max: usize) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" _-.:/%,+@".contains(&byte);
    !text.is_empty()
        && text.len() <= length_max
        && !text.starts_with("sk-")
        && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_only_if_it_cannot_be_a_key() {
        assert_eq!(quoted("many"), "`many`");
        assert_eq!(quoted(""), "an empty text");
        assert_eq!(quoted("sk-canary"), "a text of 9 characters");
        assert_eq!(
            quoted("AIzaSyD-0123456789abcdefghijklmnopqrstu"),
            "a text of 39 characters"
        );
        assert_eq!(quoted("\u{1b}[2J"), "a text of 4 characters");
    }

    #[test]
    fn a_path_leaves_out_what_might_be_a_secret() {
        let path = ["providers", "openai", "keys", "sk-canary"].map(str::to_owned);
        assert_eq!(dotted(&path), "providers.openai.keys.…");
    }
}
