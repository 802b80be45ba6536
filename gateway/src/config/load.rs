//! Defaults, file, environment, flags: merged in that order, then read once.

use std::path::PathBuf;

use figment::Figment;
use figment::value::{Dict, Value};

use super::environment::{self, Environment};
use super::layer::Layer;
use super::problem::{Problem, Problems};
use super::reader::Reader;
use super::section::Section;
use super::show::{self, Setting};
use super::{Config, defaults, file, known, provider, scalar, sections};

/// Where settings come from. All of it is handed in, so that a test has a world of its own.
#[derive(Default)]
pub struct Sources {
    /// `--config`
    pub file: Option<PathBuf>,
    /// The process's variables.
    pub environment: Environment,
    /// What the command line sets.
    pub flags: Vec<Flag>,
}

/// One setting on the command line.
pub struct Flag {
    /// The flag, as it is typed: `--listen`.
    pub name: &'static str,
    /// The setting that it stands for: `server.listen`.
    pub path: &'static str,
    /// Its value.
    pub value: String,
}

/// Settings that hold, and what `config show` says of them.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    settings: Vec<Setting>,
}

impl Loaded {
    /// Every setting, with the place that it comes from: a line each, secrets masked.
    #[must_use]
    pub fn show(&self) -> String {
        show::show(&self.settings)
    }
}

/// Reads the settings, or says all that is wrong with them.
///
/// # Errors
///
/// When a setting is unknown, is not what it must be, or contradicts another.
pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
    let (environment, mut problems) = environment::read(&sources.environment);
    let mut file = match sources.file.as_deref().map(file::read) {
        None => Layer::new("file"),
        Some(Ok((file, more))) => {
            problems.extend(more);
            file
        }
        // What the file would have set is unknown, so that anything said about the rest could be wrong.
        Some(Err(problem)) => {
            problems.push(problem);
            return Err(Problems(problems));
        }
    };
    file.open_key_lists(&environment);

    let figment = Figment::new()
        .merge(file)
        .merge(environment)
        .merge(flags(&sources.flags));
    let figment = beneath(figment, &sources.environment, &mut problems);
    let reader = Reader::new(&figment, &sources.environment);
    let config = Section::read(reader.root(merged(&figment)), sections::read);
    let (more, settings) = reader.finish();
    problems.extend(more);
    match config {
        Some(config) if problems.is_empty() => Ok(Loaded { config, settings }),
        _ => Err(Problems(problems)),
    }
}

/// `typed`, with everything that it leaves open beneath it: the defaults, the well-known variables, `PORT`.
fn beneath(typed: Figment, environment: &Environment, problems: &mut Vec<Problem>) -> Figment {
    let value = merged(&typed);
    let providers = value.find_ref("providers").and_then(Value::as_dict);
    let nothing = Dict::new();
    let known = known::layer(environment, providers.unwrap_or(&nothing));

    let found = known
        .dict()
        .get("providers")
        .and_then(Value::as_dict)
        .unwrap_or(&nothing);
    let mut names: Vec<&String> = providers
        .into_iter()
        .flatten()
        .chain(found)
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    let names = names.into_iter().filter(|name| provider::is_name(name));
    let defaults = defaults::layer(value.find_ref("profile"), names);

    let mut port = Layer::new("PORT");
    if let (None, Some(text)) = (value.find_ref("server.listen"), environment.get("PORT")) {
        match scalar::port(text) {
            Ok(number) => port.put("server.listen", &format!("127.0.0.1:{number}"), "PORT"),
            Err(_) => problems.push(Problem::new("PORT", "expected a port from 0 to 65535")),
        }
    }
    Figment::from(defaults)
        .merge(known)
        .merge(port)
        .merge(typed)
}

fn flags(flags: &[Flag]) -> Layer {
    let mut layer = Layer::new("flags");
    for flag in flags {
        layer.put(flag.path, &flag.value, flag.name);
    }
    layer
}

fn merged(figment: &Figment) -> Value {
    figment
        .find_value("")
        .expect("our layers cannot fail, and an empty path finds the whole")
}
