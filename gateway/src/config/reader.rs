//! The merged settings, read field by field. A field that is wrong is noted and the reading goes on, so that all
//! problems are told at once; whatever nobody asked for is unknown.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;

use figment::value::{Tag, Value};
use figment::{Figment, Profile, Source};

use super::environment::{Environment, variable};
use super::layer::DEFAULT;
use super::nearest::nearest_path;
use super::problem::{Problem, dotted, quoted};
use super::scalar::{self, Parsed};
use super::show::Setting;

/// What was found so far, and where values come from.
pub(super) struct Reader<'a> {
    pub(super) environment: &'a Environment,
    figment: &'a Figment,
    problems: RefCell<Vec<Problem>>,
    settings: RefCell<Vec<Setting>>,
    unknown: RefCell<Vec<Unknown>>,
    /// Each path that was asked for.
    known: RefCell<BTreeSet<Vec<String>>>,
}

/// A value that nobody asked for.
struct Unknown {
    path: Vec<String>,
    /// Which of the path's names is the unknown one.
    at: usize,
    siblings: Vec<String>,
    place: String,
    is_variable: bool,
    message: &'static str,
}

impl<'a> Reader<'a> {
    pub(super) fn new(figment: &'a Figment, environment: &'a Environment) -> Self {
        Self {
            environment,
            figment,
            problems: RefCell::default(),
            settings: RefCell::default(),
            unknown: RefCell::default(),
            known: RefCell::default(),
        }
    }

    /// Everything that was merged.
    pub(super) fn root(&'a self, value: Value) -> Field<'a> {
        Field {
            reader: self,
            path: Vec::new(),
            tag: value.tag(),
            is_inline: false,
            value,
        }
    }

    /// Every problem, and every setting that was read, in the order of reading.
    pub(super) fn finish(self) -> (Vec<Problem>, Vec<Setting>) {
        let known = self.known.into_inner();
        let mut problems = self.problems.into_inner();
        for unknown in self.unknown.into_inner() {
            let meant = nearest_path(&unknown.path, unknown.at, &unknown.siblings, &known);
            let hint = match meant {
                Some(path) if unknown.is_variable => format!("; did you mean {}?", variable(&path)),
                Some(path) => format!("; did you mean `{}`?", dotted(&path)),
                None => String::new(),
            };
            problems.push(Problem::new(
                unknown.place,
                unknown.message.to_owned() + &hint,
            ));
        }
        (problems, self.settings.into_inner())
    }

    pub(super) fn note(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Makes `path` known.
    pub(super) fn asks(&self, path: Vec<String>) {
        self.known.borrow_mut().insert(path);
    }

    /// Notes a value as it is to be shown.
    pub(super) fn record(&self, path: &[String], text: String, origin: String) {
        let path = path.join(".");
        self.settings
            .borrow_mut()
            .push(Setting { path, text, origin });
    }
}

/// One value, and where it stands.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) path: Vec<String>,
    pub(super) value: Value,
    /// The layer it is from.
    tag: Tag,
    /// Whether it is a part of a list or a table that was written as one text.
    is_inline: bool,
}

impl<'a> Field<'a> {
    /// The variable, the flag, or the file and line.
    pub(super) fn origin(&self) -> String {
        let keys: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let metadata = self.reader.figment.get_metadata(self.tag);
        metadata.map_or_else(
            || DEFAULT.to_owned(),
            |metadata| metadata.interpolate(&Profile::Default, &keys),
        )
    }

    /// The file that it is from, if it is from one.
    pub(super) fn file(&self) -> Option<PathBuf> {
        match &self.reader.figment.get_metadata(self.tag)?.source {
            Some(Source::File(file)) => Some(file.clone()),
            _ => None,
        }
    }

    pub(super) fn is_default(&self) -> bool {
        let metadata = self.reader.figment.get_metadata(self.tag);
        metadata.is_none_or(|metadata| metadata.name == DEFAULT)
    }

    /// The origin, and the setting's name where that does not say it.
    pub(super) fn place(&self) -> String {
        if self.file().is_some() || self.is_inline {
            format!("{}: {}", self.origin(), dotted(&self.path))
        } else {
            self.origin()
        }
    }

    pub(super) fn problem(&self, message: impl Into<String>) {
        self.reader.note(Problem::new(self.place(), message));
    }

    /// Notes the value as it is to be shown.
    pub(super) fn record(&self, text: String) {
        self.reader.record(&self.path, text, self.origin());
    }

    /// The path of a value within this one.
    pub(super) fn path_of(&self, name: &str) -> Vec<String> {
        self.path.iter().cloned().chain([name.to_owned()]).collect()
    }

    /// A value within this one.
    pub(super) fn within(&self, name: &str, value: Value) -> Field<'a> {
        let tag = if value.tag().is_default() {
            self.tag
        } else {
            value.tag()
        };
        let path = self.path_of(name);
        Field {
            reader: self.reader,
            path,
            value,
            tag,
            is_inline: self.is_inline,
        }
    }

    /// The value, with a text that is a list or a table read as one.
    pub(super) fn opened(mut self) -> Option<Field<'a>> {
        let parsed = self.value.as_str().and_then(scalar::inline);
        match parsed {
            None => {}
            Some(Ok(value)) => (self.value, self.is_inline) = (value, true),
            Some(Err(expected)) => {
                self.problem(format!("expected {expected}"));
                return None;
            }
        }
        Some(self)
    }

    /// The value as the text that was typed, if it is one, or was one: digits and `true` of a file are what they say.
    pub(super) fn as_text(&self) -> Option<String> {
        match &self.value {
            Value::String(_, text) => Some(text.clone()),
            Value::Bool(_, value) => Some(value.to_string()),
            Value::Num(_, number) => {
                match (number.to_u128_lossy(), number.to_i128(), number.to_f64()) {
                    (Some(number), _, _) => Some(number.to_string()),
                    (_, Some(number), _) => Some(number.to_string()),
                    (_, _, number) => number.map(|number| number.to_string()),
                }
            }
            _ => None,
        }
    }

    /// Whether no value here is ever printed, not even one that is no secret: the next one may be in its place.
    fn is_hidden(&self) -> bool {
        match &self.path[..] {
            [first, ..] if first == "client_keys" || first == "admin_key" => true,
            [first, second, ..] if first == "admin" && second == "keys" => true,
            [_, _, name, ..] => ["keys", "headers", "proxy"].contains(&name.as_str()),
            _ => false,
        }
    }

    /// What the value is made of, for a message that must not show it.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::String(..) | Value::Char(..) => "a text",
            Value::Bool(..) => "true or false without quotes",
            Value::Num(..) => "a number without quotes",
            Value::Empty(..) => "null",
            Value::Dict(_, dict) if dict.contains_key("$__toml_private_datetime") => "a date",
            Value::Dict(..) => "a table",
            Value::Array(..) => "a list",
        }
    }

    /// The value that `parse` makes of the text, which is `expected`.
    pub(super) fn parse<T>(
        &self,
        expected: &str,
        parse: impl FnOnce(&str) -> Parsed<T>,
    ) -> Option<T> {
        let Some(text) = self.as_text() else {
            self.problem(format!("expected {expected}, not {}", self.kind()));
            return None;
        };
        match parse(&text) {
            Ok(value) => Some(value),
            Err(hint) => {
                let found = if self.is_hidden() {
                    String::new()
                } else {
                    format!(", not {}", quoted(&text))
                };
                let hint = hint.map(|hint| format!(": {hint}")).unwrap_or_default();
                self.problem(format!("expected {expected}{found}{hint}"));
                None
            }
        }
    }

    /// The value as a text in its own right. A number that a file had to round is refused.
    pub(super) fn word(&self, expected: &str) -> Option<String> {
        let is_rounded = matches!(&self.value, Value::Num(_, number) if number.to_f64().is_some());
        if is_rounded {
            self.problem(format!("expected {expected}: put it in quotes"));
            return None;
        }
        let is_written = |text: &str| {
            if text.trim().is_empty() {
                Err(None)
            } else {
                Ok(text.trim().to_owned())
            }
        };
        self.parse(expected, is_written)
    }

    /// A list of texts, each of which `check` accepts: a list, one in a text, or a text with commas.
    pub(super) fn list(
        self,
        expected: &str,
        check: impl Fn(&str) -> Parsed<()>,
    ) -> Option<Vec<String>> {
        let field = self.opened()?;
        let items = match &field.value {
            Value::Array(_, items) => items.clone(),
            Value::String(_, text) => scalar::parts(text).into_iter().map(Value::from).collect(),
            _ => {
                field.problem(format!("expected {expected}, not {}", field.kind()));
                return None;
            }
        };
        let each = items.into_iter().enumerate().map(|(index, item)| {
            let item = field.within(&index.to_string(), item);
            let text = item.word(expected)?;
            item.parse(expected, |_| check(&text))?;
            Some(text)
        });
        let read: Vec<Option<String>> = each.collect();
        let texts = read.into_iter().collect::<Option<Vec<_>>>()?;
        field.record(format!("{texts:?}"));
        Some(texts)
    }

    /// Notes a value that nobody asked for. Each variable is one; what a file has there is one in all.
    pub(super) fn unknown(&self, at: usize, siblings: &[String], message: &'static str) {
        match &self.value {
            Value::Dict(_, values) if !values.is_empty() && self.file().is_none() => {
                for (name, value) in values {
                    self.within(name, value.clone())
                        .unknown(at, siblings, message);
                }
            }
            _ => self.reader.unknown.borrow_mut().push(Unknown {
                path: self.path.clone(),
                at,
                siblings: siblings.to_owned(),
                place: self.place(),
                is_variable: self.file().is_none() && !self.is_inline,
                message,
            }),
        }
    }
}
