//! The environment: `BIFROST_*` as a layer of texts, exactly as they were typed.
//!
//! figment's own `Env` turns digits into numbers, so that a key `0123` would arrive as 123, and it names no variable
//! in its errors. Here every value stays the text that it is, and the reader makes of it what the setting is.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::known;
use super::layer::Layer;
use super::problem::Problem;

/// What a variable of ours begins with.
const PREFIX: &str = "BIFROST_";

/// A process's environment: what is text, and the names of those variables of ours that are not.
#[derive(Default)]
pub struct Environment {
    /// Each variable's name and value.
    pub variables: BTreeMap<String, String>,
    /// Names of variables that the settings would read if their values were UTF-8.
    pub garbled: Vec<String>,
}

impl Environment {
    /// Keeps what is text. Take `std::env::vars_os()`.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Self::default();
        for (name, value) in variables {
            let Ok(name) = name.into_string() else {
                continue;
            };
            match value.into_string() {
                Ok(value) => {
                    environment.variables.insert(name, value);
                }
                Err(_) if is_ours(&name) || known::reads(&name) => environment.garbled.push(name),
                Err(_) => {}
            }
        }
        environment
    }

    /// A variable's value. One that is empty counts as not set, as in a compose file that passes it through.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }
}

/// The layer that the `BIFROST_*` variables make, and those that cannot be a part of it.
pub(super) fn read(environment: &Environment) -> (Layer, Vec<Problem>) {
    let mut layer = Layer::new("environment");
    let garbled = environment.garbled.iter();
    let mut problems: Vec<_> = garbled
        .map(|name| Problem::new(name, "its value is not UTF-8"))
        .collect();
    for (name, value) in &environment.variables {
        if !is_ours(name) || value.is_empty() {
            continue;
        }
        let path = path_of(name);
        if path.iter().any(String::is_empty) {
            problems.push(Problem::new(
                name,
                "expected names with `__` between them, such as BIFROST_SERVER__LISTEN",
            ));
            continue;
        }
        if let Err(other) = layer.set(&path, value, name) {
            problems.push(Problem::new(
                name,
                format!("cannot be set together with {other}"),
            ));
        }
    }
    (layer, problems)
}

/// The variable that sets `path`.
pub(super) fn variable(path: &[String]) -> String {
    PREFIX.to_owned()
        + &super::problem::dotted(path)
            .to_uppercase()
            .replace('.', "__")
}

fn is_ours(name: &str) -> bool {
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// The path that a variable's name stands for. Names are in lower case; a header's has hyphens, which variables cannot.
fn path_of(name: &str) -> Vec<String> {
    let names = name[PREFIX.len()..].split("__");
    let mut path: Vec<String> = names.map(str::to_ascii_lowercase).collect();
    if let [providers, _, headers, header] = &mut path[..]
        && (providers == "providers" && headers == "headers")
    {
        *header = header.replace('_', "-");
    }
    path
}
