//! Texts that may be secret: read from the settings, a file or another variable, and never repeated in a message.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use figment::value::Value;

use super::reader::Field;

/// No key and no certificate bundle is longer.
const BYTES_MAX: u64 = 1 << 20;

/// The text of `field`, or of the variable that it names as `env.NAME` (or `env:NAME`), without the white space around
/// it. What is noted for `config show` is `mask`, or the variable's name.
pub(super) fn text(field: &Field, mask: &str) -> Option<String> {
    let written = match &field.value {
        Value::String(_, text) => text.trim(),
        Value::Num(..) | Value::Bool(..) => {
            field.problem(
                "put it in quotes: digits without them are a number, which loses leading zeros",
            );
            return None;
        }
        _ => {
            field.problem(format!("expected a text, not {}", field.kind()));
            return None;
        }
    };
    let Some(name) = ["env.", "env:"]
        .into_iter()
        .find_map(|prefix| written.strip_prefix(prefix))
    else {
        field.record(mask.to_owned());
        return kept(field, written);
    };
    let is_name = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if name.is_empty() || !is_name(name) {
        field.problem("expected the name of a variable behind `env.`");
        return None;
    }
    let Some(value) = field.reader.environment.get(name) else {
        field.problem(format!("the variable {name}, which it names, is not set"));
        return None;
    };
    field.record(format!("\"env.{name}\""));
    kept(field, value.trim())
}

/// The text of the file that `field` names.
pub(super) fn text_of_file(field: &Field) -> Option<String> {
    let path = path(field)?;
    match read(&path) {
        Ok(text) => kept(field, text.trim()),
        Err(why) => {
            field.problem(format!("the file that it names {why}"));
            None
        }
    }
}

/// The path in `field`: one that is relative and from a file is relative to that file.
pub(super) fn path(field: &Field) -> Option<PathBuf> {
    let text = field.word("the path of a file")?;
    field.record(format!("{text:?}"));
    let directory = field
        .file()
        .and_then(|file| Some(file.parent()?.to_owned()));
    Some(directory.unwrap_or_default().join(text))
}

/// The text of a file that is not too long for what it is, or what is wrong with it.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {}", error.kind()))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err("is longer than 1 MiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}

fn kept(field: &Field, text: &str) -> Option<String> {
    if text.is_empty() {
        field.problem("is empty");
        return None;
    }
    Some(text.to_owned())
}
