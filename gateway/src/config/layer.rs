//! One layer of settings, as figment merges it: values, and where the user typed each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

/// The name of the layer that is below all others.
pub(super) const DEFAULT: &str = "default";

/// Values from one place, and the origin of each: a variable, a flag, a file's line.
pub(super) struct Layer {
    /// The origin of a value that has no other: the file, or `default`.
    name: String,
    /// The file, where it is one.
    file: Option<PathBuf>,
    dict: Dict,
    /// By dotted path in lower case.
    origins: BTreeMap<String, String>,
}

impl Layer {
    /// A layer without values.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            file: None,
            dict: Dict::new(),
            origins: BTreeMap::new(),
        }
    }

    /// A file's values, and the lines that are known.
    pub(super) fn of_file(file: PathBuf, dict: Dict, lines: BTreeMap<String, usize>) -> Self {
        let name = file.display().to_string();
        let origin = |line: usize| format!("{name}:{line}");
        Self {
            origins: lines
                .into_iter()
                .map(|(path, line)| (path, origin(line)))
                .collect(),
            file: Some(file),
            name,
            dict,
        }
    }

    /// The values.
    pub(super) fn dict(&self) -> &Dict {
        &self.dict
    }

    /// Puts `text` at `path`, as it was typed. Answers the origin of what is there already, if something is: a value
    /// cannot be a section too.
    pub(super) fn set(&mut self, path: &[String], text: &str, origin: &str) -> Result<(), String> {
        let dotted = path.join(".");
        if let Some((_, taken)) = self
            .origins
            .iter()
            .find(|(other, _)| is_within(&dotted, other) || is_within(other, &dotted))
        {
            return Err(taken.clone());
        }
        let (last, sections) = path.split_last().expect("a path has a name");
        let mut dict = &mut self.dict;
        for section in sections {
            let value = dict
                .entry(section.clone())
                .or_insert_with(|| Value::from(Dict::new()));
            let Value::Dict(_, inner) = value else {
                unreachable!("a value on the way would have been found above")
            };
            dict = inner;
        }
        dict.insert(last.clone(), Value::from(text));
        self.origins.insert(dotted, origin.to_owned());
        Ok(())
    }

    /// Puts `text` at a dotted path that nothing else in this layer touches.
    pub(super) fn put(&mut self, dotted: &str, text: &str, origin: &str) {
        let path: Vec<String> = dotted.split('.').map(str::to_owned).collect();
        let taken = self.set(&path, text, origin);
        debug_assert!(taken.is_ok(), "{dotted} is set once");
    }

    /// Turns a provider's list of keys into a map wherever `over` speaks of single keys, by name or by position, so
    /// that a variable can add a secret to a key that the file describes.
    pub(super) fn open_key_lists(&mut self, over: &Layer) {
        let Some(Value::Dict(_, addressed)) = over.dict.get("providers") else {
            return;
        };
        let Some(Value::Dict(_, providers)) = self.dict.get_mut("providers") else {
            return;
        };
        for (provider, value) in providers {
            let Value::Dict(_, settings) = value else {
                continue;
            };
            let Some(Value::Array(tag, keys)) = settings.get("keys") else {
                continue;
            };
            let Some(Value::Dict(_, addressed)) = addressed
                .get(provider)
                .and_then(|over| over.find_ref("keys"))
            else {
                continue;
            };
            let mut map = Dict::new();
            for (position, key) in keys.iter().enumerate() {
                let name = key.find_ref("name").and_then(Value::as_str);
                let name =
                    name.filter(|name| addressed.contains_key(*name) && !map.contains_key(*name));
                let (position, map_key) = (position.to_string(), name.map(str::to_owned));
                let map_key = map_key.unwrap_or_else(|| position.clone());
                let (old, new) = [&position, &map_key]
                    .map(|key| format!("providers.{provider}.keys.{key}"))
                    .into();
                alias(&mut self.origins, &old, &new);
                map.insert(map_key, as_key(key.clone()));
            }
            let map = Value::Dict(*tag, map);
            settings.insert("keys".to_owned(), map);
        }
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        let (name, origins) = (self.name.clone(), self.origins.clone());
        let metadata =
            Metadata::named(self.name.clone()).interpolater(move |_: &Profile, keys: &[&str]| {
                // What is within a value that was typed as one text has that text's origin.
                let within = (1..=keys.len())
                    .rev()
                    .map(|length| keys[..length].join(".").to_lowercase());
                let own = within.into_iter().find_map(|path| origins.get(&path));
                // A section that was never typed by itself is known by the first of its values.
                let section = keys.join(".").to_lowercase();
                let first = || origins.iter().find(|(path, _)| is_within(path, &section));
                own.or_else(|| Some(first()?.1)).unwrap_or(&name).clone()
            });
        match &self.file {
            Some(file) => metadata.source(file.as_path()),
            None => metadata,
        }
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.dict.clone())]))
    }
}

/// A key that is given as its value alone, as one with settings.
pub(super) fn as_key(value: Value) -> Value {
    match value {
        Value::Dict(..) | Value::Array(..) => value,
        alone => Value::Dict(alone.tag(), Dict::from([("value".to_owned(), alone)])),
    }
}

/// Whether `path` is `section` or lies in it.
fn is_within(path: &str, section: &str) -> bool {
    path.strip_prefix(section)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Makes what is known of `old` known of `new` too.
fn alias(origins: &mut BTreeMap<String, String>, old: &str, new: &str) {
    let found: Vec<_> = origins
        .iter()
        .filter(|(path, _)| is_within(path, old))
        .map(|(path, origin)| (path.replacen(old, new, 1), origin.clone()))
        .collect();
    origins.extend(found);
}
