//! Named values that belong together, and the kinds of value that they may be, each with the words for what is
//! expected.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use figment::value::Dict;

use super::layer::DEFAULT;
use super::nearest::nearest;
use super::problem::{Problem, dotted};
use super::reader::Field;
use super::scalar::{self, Parsed};

/// What a duration looks like.
const DURATION: &str = "a duration such as 250ms, 30s or 2m";

/// Named values that belong together.
pub(super) struct Section<'a> {
    pub(super) field: Field<'a>,
    values: Dict,
    asked: Vec<String>,
}

impl<'a> Section<'a> {
    /// Reads `field` as a section by `read`; what is left of it then is unknown. `None` if it is no section.
    pub(super) fn read<T>(
        field: Field<'a>,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let Some(values) = field.value.as_dict() else {
            field.unknown(
                field.path.len().saturating_sub(1),
                &[],
                "is a section, not a value",
            );
            return None;
        };
        let mut section = Section {
            values: values.clone(),
            field,
            asked: Vec::new(),
        };
        let found = read(&mut section);
        let at = section.field.path.len();
        for (name, value) in section.values {
            section
                .field
                .within(&name, value)
                .unknown(at, &section.asked, "unknown setting");
        }
        found
    }

    /// Reads the section of that name by `read`. `None` if there is none.
    pub(super) fn section<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        Self::read(self.take(name)?, read)
    }

    /// Takes a value out, whatever it is. `None` if it is not set.
    pub(super) fn take(&mut self, name: &str) -> Option<Field<'a>> {
        let path = self.field.path_of(name);
        self.field.reader.asks(path);
        self.asked.push(name.to_owned());
        let value = self.values.remove(name)?;
        Some(self.field.within(name, value))
    }

    /// The names that nobody has taken yet.
    pub(super) fn names(&self) -> Vec<String> {
        self.values.keys().cloned().collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// A value that is left where it is.
    pub(super) fn peek(&self, name: &str) -> Option<Field<'a>> {
        let value = self.values.get(name)?;
        Some(self.field.within(name, value.clone()))
    }

    /// Notes a problem with the section as a whole, or with something that is missing in it.
    pub(super) fn problem(&self, message: impl Into<String>) {
        let place = dotted(&self.field.path);
        self.field.reader.note(Problem::new(place, message));
    }

    /// Notes what holds because nothing is set.
    pub(super) fn record_default(&self, name: &str, text: String) {
        let path = self.field.path_of(name);
        self.field.reader.record(&path, text, DEFAULT.to_owned());
    }

    /// A value that is shown as it was typed.
    pub(super) fn parse<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Parsed<T>,
    ) -> Option<T> {
        let field = self.take(name)?;
        let value = field.parse(expected, parse)?;
        field.record(format!("{:?}", field.as_text().unwrap_or_default().trim()));
        Some(value)
    }

    /// A text.
    pub(super) fn word(&mut self, name: &str, expected: &str) -> Option<String> {
        let field = self.take(name)?;
        let text = field.word(expected)?;
        field.record(format!("{text:?}"));
        Some(text)
    }

    /// A list of texts; empty if it is not set.
    pub(super) fn list(
        &mut self,
        name: &str,
        expected: &str,
        check: impl Fn(&str) -> Parsed<()>,
    ) -> Option<Vec<String>> {
        match self.take(name) {
            Some(field) => field.list(expected, check),
            None => Some(Vec::new()),
        }
    }
}

impl Section<'_> {
    /// A duration, zero included.
    pub(super) fn duration(&mut self, name: &str) -> Option<Duration> {
        self.parse(name, DURATION, scalar::duration)
    }

    /// A duration that is not zero.
    pub(super) fn duration_above_zero(&mut self, name: &str) -> Option<Duration> {
        self.parse(name, DURATION, scalar::duration_above_zero)
    }

    /// A whole number within `range`.
    pub(super) fn count<T>(&mut self, name: &str, range: RangeInclusive<T>) -> Option<T>
    where
        T: FromStr + Display + PartialOrd,
    {
        self.number(name, "a whole number", range)
    }

    /// A number within `range`, called `kind`.
    pub(super) fn number<T>(
        &mut self,
        name: &str,
        kind: &str,
        range: RangeInclusive<T>,
    ) -> Option<T>
    where
        T: FromStr + Display + PartialOrd,
    {
        let field = self.take(name)?;
        let expected = format!("{kind} from {} to {}", range.start(), range.end());
        let within = |text: &str| {
            scalar::number(text).and_then(|n| if range.contains(&n) { Ok(n) } else { Err(None) })
        };
        let number = field.parse(&expected, within)?;
        field.record(number.to_string());
        Some(number)
    }

    /// A number within `range`, or the one that holds if none is set.
    pub(super) fn number_or<T>(
        &mut self,
        name: &str,
        kind: &str,
        range: RangeInclusive<T>,
        default: T,
    ) -> Option<T>
    where
        T: FromStr + Display + PartialOrd,
    {
        let is_set = self.has(name);
        let number = self.number(name, kind, range);
        if is_set {
            return number;
        }
        self.record_default(name, default.to_string());
        Some(default)
    }

    /// Yes or no.
    pub(super) fn toggle(&mut self, name: &str) -> Option<bool> {
        let field = self.take(name)?;
        let value = field.parse("true or false", scalar::toggle)?;
        field.record(value.to_string());
        Some(value)
    }

    /// One of a few names.
    pub(super) fn choice<T: Clone>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let names = || choices.iter().map(|(name, _)| *name);
        let expected = format!("one of {}", names().collect::<Vec<_>>().join(", "));
        self.parse(name, &expected, |text| {
            let text = text.trim();
            let chosen = choices
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(text));
            let hint = || nearest(text, names()).map(|near| format!("did you mean {near}?"));
            chosen.map(|(_, choice)| choice.clone()).ok_or_else(hint)
        })
    }
}
