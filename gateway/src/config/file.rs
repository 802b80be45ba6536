//! The settings file: TOML or JSON, by its name.

use std::io::{self, Read};
use std::path::Path;

use figment::providers::{Format, Json, Toml};
use figment::value::{Dict, Value};

use super::layer::Layer;
use super::lines;
use super::problem::Problem;

/// A file that is longer is none of ours.
const BYTES_MAX: u64 = 4 << 20;

/// Reads the file at `path`, or says why it cannot be used. No message quotes the file: a line that does not parse may
/// hold a key, and figment, toml and `serde_json` print it.
pub(super) fn read(path: &Path) -> Result<(Layer, Vec<Problem>), Problem> {
    let shown = path.display().to_string();
    let is_json = match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => false,
        Some("json") => true,
        _ => {
            return Err(Problem::new(
                shown,
                "expected a file whose name ends in .toml or .json",
            ));
        }
    };
    let text = text_of(path).map_err(|why| Problem::new(&shown, why))?;
    let text = text.trim_start_matches('\u{feff}');
    let (dict, lines, twice) = if is_json {
        let dict =
            json(text).map_err(|(place, why)| Problem::new(format!("{shown}:{place}"), why))?;
        let (lines, twice) = lines::of_json(text);
        (dict, lines, twice)
    } else {
        let dict =
            toml(text).map_err(|(place, why)| Problem::new(format!("{shown}:{place}"), why))?;
        (dict, lines::of_toml(text), [].into())
    };
    let problems = twice.iter().map(|path| {
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        let line = lines.get(&path.join(".")).copied().unwrap_or_default();
        let place = format!("{shown}:{line}: {}", super::problem::dotted(&path));
        Problem::new(place, "set twice")
    });
    let problems = problems.collect();
    Ok((
        Layer::of_file(path.to_owned(), normal(dict, &[]), lines),
        problems,
    ))
}

/// The text of a file of at most a few MiB.
fn text_of(path: &Path) -> Result<String, String> {
    let why = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        kind => format!("cannot be read: {kind}"),
    };
    if std::fs::metadata(path).map_err(why)?.is_dir() {
        return Err("is a directory: expected a file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(why)?;
    file.take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(why)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err("is longer than 4 MiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

/// Where a text does not parse (line and column, from 1), and why, without a word of the text itself.
pub(super) type Broken = (String, String);

/// A TOML document.
pub(super) fn toml(text: &str) -> Result<Dict, Broken> {
    Toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |span| span.start);
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .map_or(0, |start| start.chars().count())
            + 1;
        // These two name what was typed; the others are the parser's own words.
        let why = match error.message() {
            message if message.contains("duplicate key") => "a name is set twice".to_owned(),
            message if message.contains("dotted key") => {
                "a dotted name leads into what is no table".to_owned()
            }
            message => message.trim().replace('\n', ", "),
        };
        (format!("{line}:{column}"), format!("not valid TOML: {why}"))
    })
}

/// A JSON document that is an object.
pub(super) fn json(text: &str) -> Result<Dict, Broken> {
    Json::from_str(text).map_err(|error: serde_json::Error| {
        let place = format!("{}:{}", error.line(), error.column());
        if error.is_data() {
            return (place, "expected a JSON object".to_owned()); // serde's own message quotes what it found
        }
        let message = error.to_string();
        let why = message.split(" at line ").next().unwrap_or_default();
        (place, format!("not valid JSON: {why}"))
    })
}

/// Leaves out nulls, which set nothing, and writes header names as variables have to: in lower case.
fn normal(dict: Dict, path: &[&str]) -> Dict {
    let are_headers = matches!(path, ["providers", _, "headers"]);
    let kept = dict
        .into_iter()
        .filter(|(_, value)| !matches!(value, Value::Empty(..)));
    let inner = kept.map(|(name, value)| {
        let value = match value {
            Value::Dict(tag, dict) => Value::Dict(tag, normal(dict, &[path, &[&name]].concat())),
            value => value,
        };
        let name = if are_headers {
            name.to_ascii_lowercase()
        } else {
            name
        };
        (name, value)
    });
    inner.collect()
}
