//! Keys, a provider's and the clients', however they are written: a list, a map by name, one text with commas, or one
//! key alone.

use figment::value::Value;

use super::layer::as_key;
use super::reader::Field;
use super::section::Section;
use super::show::MASK;
use super::{ClientKey, Key, Secret, scalar, secret};

/// The keys of a provider's section; empty if there are none.
pub(super) fn read(provider: &mut Section) -> Option<Vec<Key>> {
    let Some(field) = provider.take("keys") else {
        return Some(Vec::new());
    };
    let field = field.opened()?;
    let keys = each(&field, key, |key| &key.name)?;
    if !keys.is_empty() && keys.iter().all(|key| key.weight == 0.0) {
        field.problem("every weight is 0, so that no key could ever be chosen");
        return None;
    }
    Some(keys)
}

/// The keys that clients show, under `name`; empty if there are none. `check` accepts a pattern of models.
pub(super) fn read_clients(
    section: &mut Section,
    name: &str,
    check: impl Fn(&str) -> scalar::Parsed<()>,
) -> Option<Vec<ClientKey>> {
    let Some(field) = section.take(name) else {
        return Some(Vec::new());
    };
    let field = field.opened()?;
    let keys = each(
        &field,
        |item, name, number| client_key(item, name, number, &check),
        |key| &key.name,
    )?;
    for (index, key) in keys.iter().enumerate() {
        if keys[..index].iter().any(|other| other.value == key.value) {
            field.problem(format!("the key of {} is there twice", key.name));
            return None;
        }
    }
    Some(keys)
}

/// Every key in `field`, as `read` takes it, no two of one name.
fn each<K>(
    field: &Field,
    read: impl Fn(Field, Option<String>, usize) -> Option<K>,
    name_of: impl Fn(&K) -> &String,
) -> Option<Vec<K>> {
    let items = items(field);
    let places: Vec<String> = items.iter().map(|(_, item)| item.place()).collect();
    let read: Vec<Option<K>> = items
        .into_iter()
        .zip(1..)
        .map(|((name, item), number)| read(item, name, number))
        .collect();
    let keys = read.into_iter().collect::<Option<Vec<_>>>()?;
    for (index, key) in keys.iter().enumerate() {
        let name = name_of(key);
        if keys[..index].iter().any(|other| name_of(other) == name) {
            field.problem(format!(
                "two keys are called {name}: the second is at {}",
                places[index]
            ));
            return None;
        }
    }
    Some(keys)
}

/// Each key, with the name that a map gives it.
fn items<'a>(field: &Field<'a>) -> Vec<(Option<String>, Field<'a>)> {
    let at = |index: usize, value: Value| (None, field.within(&index.to_string(), value));
    match &field.value {
        Value::String(_, text) => scalar::parts(text)
            .into_iter()
            .map(Value::from)
            .enumerate()
            .map(|(i, v)| at(i, v))
            .collect(),
        Value::Array(_, values) => values
            .iter()
            .cloned()
            .enumerate()
            .map(|(i, v)| at(i, v))
            .collect(),
        Value::Dict(_, values) if !is_key(field) => {
            let mut items: Vec<_> = values.iter().collect();
            // Map-style variables count: `KEYS__10` comes behind `KEYS__9`.
            items.sort_by_key(|(name, _)| name.parse::<u32>().unwrap_or(u32::MAX));
            let named = |name: &String| (!is_number(name)).then(|| name.clone());
            let item =
                |(name, value): (&String, &Value)| (named(name), field.within(name, value.clone()));
            items.into_iter().map(item).collect()
        }
        _ => vec![(None, field.clone())],
    }
}

/// Whether this is one key rather than a map of them.
fn is_key(field: &Field) -> bool {
    let is_text = |name| {
        field
            .value
            .find_ref(name)
            .is_some_and(|value| value.as_dict().is_none())
    };
    is_text("value") || is_text("value_file")
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

fn key(item: Field, name: Option<String>, number: usize) -> Option<Key> {
    Section::read(as_table(item)?, |section| {
        let name = name_in(section, name, number);
        let value = value(section);
        let weight = section.number_or("weight", "a number", 0.0..=1_000_000.0, 1.0);
        let models = section.list("models", "a list of model names", |_| Ok(()));
        Some(Key {
            name: name?,
            value: value?,
            weight: weight?,
            models: models?,
        })
    })
}

fn client_key(
    item: Field,
    name: Option<String>,
    number: usize,
    check: impl Fn(&str) -> scalar::Parsed<()>,
) -> Option<ClientKey> {
    Section::read(as_table(item)?, |section| {
        let name = name_in(section, name, number);
        let value = value(section);
        let models = section.list("models", "a list of `provider/model`", check);
        Some(ClientKey {
            name: name?,
            value: value?,
            models: models?,
        })
    })
}

/// A key as a table, also where it was written as its value alone.
fn as_table(mut item: Field) -> Option<Field> {
    item.value = as_key(item.value);
    if item.value.as_dict().is_none() {
        item.problem(format!(
            "expected a key, as a text or as a table with `value`, not {}",
            item.kind()
        ));
        return None;
    }
    Some(item)
}

/// What a key is called: by itself, by the map that it is in, or by its place.
fn name_in(section: &mut Section, name: Option<String>, number: usize) -> Option<String> {
    if let Some(field) = section.take("name") {
        let name = field.as_text().unwrap_or_default();
        field.record(format!("{name:?}"));
        return named(&field, name);
    }
    let name = name.unwrap_or_else(|| format!("key-{number}"));
    section.record_default("name", format!("{name:?}"));
    named(&section.field, name)
}

/// The name, if it can be shown wherever a key is spoken of.
fn named(field: &Field, name: String) -> Option<String> {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name =
        (1..=32).contains(&name.len()) && name.bytes().all(is_fit) && !name.starts_with("sk-");
    if !is_name {
        field.problem(
            "expected a name of at most 32 letters, digits, `-`, `_` and `.`: it is shown in logs, so it must not be the key itself",
        );
        return None;
    }
    Some(name)
}

/// The secret, from where the section says.
fn value(section: &mut Section) -> Option<Secret> {
    let (field, text) = match (section.take("value"), section.take("value_file")) {
        (Some(field), None) => {
            let text = secret::text(&field, MASK)?;
            (field, text)
        }
        (None, Some(field)) => {
            let text = secret::text_of_file(&field)?;
            (field, text)
        }
        (Some(field), Some(_)) => {
            field.problem("set either `value` or `value_file`");
            return None;
        }
        (None, None) => {
            section.field.problem(
                "no key in it: set `value` (the key, or env.NAME for a variable) or `value_file`",
            );
            return None;
        }
    };
    if text.len() > 1 && text.starts_with(['"', '\'']) && text.ends_with(['"', '\'']) {
        field.problem("leave out the quotes around the key: here they are part of it");
        return None;
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        field.problem("not a key: it holds a space, a line break or another character that is not visible ASCII");
        return None;
    }
    Some(Secret::new(&text))
}
