//! Which line of a file each setting stands on. figment forgets it, and "gateway.toml:12" is what people want to read.
//!
//! The text has been parsed without an error before it comes here, so that these scanners need only follow it, not
//! check it. Paths are dotted and in lower case, and what a scanner does not find is only left out of a message.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The lines of a TOML document's tables and settings. What is inside an inline table or a list is not looked at.
pub(super) fn of_toml(text: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    let mut tables = Tables::default();
    let mut open = Open::default();
    for (line, number) in text.lines().zip(1..) {
        let start = line.trim_start();
        let value = if open.is_open() {
            line
        } else if let Some(header) = start.strip_prefix("[[") {
            tables.enter(&dotted_key(header).0, true);
            lines.entry(tables.path()).or_insert(number);
            continue;
        } else if let Some(header) = start.strip_prefix('[') {
            tables.enter(&dotted_key(header).0, false);
            lines.entry(tables.path()).or_insert(number);
            continue;
        } else {
            let (names, value) = dotted_key(start);
            if !names.is_empty() {
                let path = tables
                    .current
                    .iter()
                    .chain(&names)
                    .cloned()
                    .collect::<Vec<_>>();
                lines.entry(path.join(".").to_lowercase()).or_insert(number);
            }
            value
        };
        open.follow(value);
    }
    lines
}

/// The table that a line belongs to.
#[derive(Default)]
struct Tables {
    current: Vec<String>,
    /// How many elements each array of tables has so far.
    counts: BTreeMap<Vec<String>, usize>,
}

impl Tables {
    fn enter(&mut self, names: &[String], is_element: bool) {
        let mut path: Vec<String> = Vec::new();
        for (index, name) in names.iter().enumerate() {
            path.push(name.clone());
            if is_element && index + 1 == names.len() {
                *self.counts.entry(path.clone()).or_default() += 1;
            }
            if let Some(count) = self.counts.get(&path) {
                path.push((count - 1).to_string());
            }
        }
        self.current = path;
    }

    fn path(&self) -> String {
        self.current.join(".").to_lowercase()
    }
}

/// What a line leaves open for the next: a text of several lines, or brackets.
#[derive(Default)]
struct Open {
    text: Option<&'static str>,
    brackets: usize,
}

impl Open {
    fn is_open(&self) -> bool {
        self.text.is_some() || self.brackets > 0
    }

    /// Follows one line, or the rest of one.
    fn follow(&mut self, mut rest: &str) {
        while !rest.is_empty() {
            if let Some(end) = self.text {
                let Some(at) = end_of_text(rest, end) else {
                    return;
                };
                rest = &rest[at..];
                self.text = None;
                continue;
            }
            let three = ["\"\"\"", "'''"]
                .into_iter()
                .find(|three| rest.starts_with(three));
            let one = ["\"", "'"].into_iter().find(|one| rest.starts_with(one));
            if let Some(quote) = three.or(one) {
                self.text = three;
                rest = &rest[quote.len()..];
                if three.is_none() {
                    rest = end_of_text(rest, quote).map_or("", |at| &rest[at..]);
                }
                continue;
            }
            match rest.as_bytes()[0] {
                b'#' => return,
                b'[' | b'{' => self.brackets += 1,
                b']' | b'}' => self.brackets = self.brackets.saturating_sub(1),
                _ => {}
            }
            rest = &rest[rest.chars().next().map_or(1, char::len_utf8)..];
        }
    }
}

/// Where the text ends that `end` closes: behind it.
fn end_of_text(text: &str, end: &str) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        if end.starts_with('"') && text[at..].starts_with('\\') {
            at += 1; // and the character behind it, below
        } else if text[at..].starts_with(end) {
            return Some(at + end.len());
        }
        at += text[at..].chars().next().map_or(1, char::len_utf8);
    }
    None
}

/// The names of a dotted key, quoted or bare, and what follows it. No names for a line that has none.
fn dotted_key(text: &str) -> (Vec<String>, &str) {
    let mut names = Vec::new();
    let mut rest = text.trim_start();
    loop {
        let quote = ["\"", "'"]
            .into_iter()
            .find(|quote| rest.starts_with(quote));
        let end = match quote {
            Some(quote) => end_of_text(&rest[1..], quote).map_or(rest.len(), |at| at + 1),
            None => rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))
                .unwrap_or(rest.len()),
        };
        if end == 0 {
            return (names, rest);
        }
        let name = &rest[..end];
        names.push(name.trim_matches(['"', '\'']).to_owned());
        rest = rest[end..].trim_start();
        match rest.strip_prefix('.') {
            Some(more) => rest = more.trim_start(),
            None => return (names, rest),
        }
    }
}

/// The lines of a JSON document's values, and the paths that are there twice: serde would take the last, silently.
pub(super) fn of_json(text: &str) -> (BTreeMap<String, usize>, BTreeSet<String>) {
    let mut walk = Walk {
        text,
        breaks: text.match_indices('\n').map(|(at, _)| at).collect(),
        lines: BTreeMap::new(),
        twice: BTreeSet::new(),
    };
    if let Ok(root) = serde_json::from_str(text) {
        walk.visit(root, "");
    }
    (walk.lines, walk.twice)
}

struct Walk<'a> {
    text: &'a str,
    breaks: Vec<usize>,
    lines: BTreeMap<String, usize>,
    twice: BTreeSet<String>,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, value: &'a RawValue, path: &str) {
        let within = |name: &str| match path {
            "" => name.to_lowercase(),
            path => format!("{path}.{}", name.to_lowercase()),
        };
        if let Ok(Members(members)) = serde_json::from_str(value.get()) {
            for (name, value) in members {
                let path = within(&name);
                self.note(value, &path);
                self.visit(value, &path);
            }
        } else if let Ok(elements) = serde_json::from_str::<Vec<&'a RawValue>>(value.get()) {
            for (index, value) in elements.into_iter().enumerate() {
                let path = within(&index.to_string());
                self.note(value, &path);
                self.visit(value, &path);
            }
        }
    }

    fn note(&mut self, value: &RawValue, path: &str) {
        // The raw value is a part of the text, so that its address tells where it stands.
        let at = value.get().as_ptr().addr() - self.text.as_ptr().addr();
        let line = self.breaks.partition_point(|&newline| newline < at) + 1;
        if self.lines.insert(path.to_owned(), line).is_some() {
            self.twice.insert(path.to_owned());
        }
    }
}

/// An object's members as they stand, those of one name each for itself.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_lines_are_found_past_everything_that_spans_lines() {
        let text = r#"
profile = "t3.medium" # [not.a.table]
log.level = "info"
text = """
server = "not a setting"
"""
list = [
  "[x]", # ]
  "workers = 1",
]

[server]
listen = "127.0.0.1:8080"

[providers."openai"]
base_url = 'http://x/#y'

[[providers.openai.keys]]
value = "a"
[[providers.openai.keys]]
value = "b\"["
Weight = 2
"#;
        let lines = of_toml(text);
        for (path, line) in [
            ("profile", Some(2)),
            ("log.level", Some(3)),
            ("server", Some(12)),
            ("workers", None),
            ("server.listen", Some(13)),
            ("providers.openai.base_url", Some(16)),
            ("providers.openai.keys.0.value", Some(19)),
            ("providers.openai.keys.1", Some(20)),
            ("providers.openai.keys.1.weight", Some(22)),
        ] {
            assert_eq!(lines.get(path).copied(), line, "{path}");
        }
    }

    #[test]
    fn json_lines_are_found_and_so_is_what_is_there_twice() {
        let text = "{\n \"a\": {\n  \"b\": [1,\n   {\"c\": 2}]\n },\n \"d\": 1,\n \"d\": 2\n}";
        let (lines, twice) = of_json(text);
        assert_eq!(lines["a"], 2);
        assert_eq!(lines["a.b.1.c"], 4);
        assert_eq!(lines["d"], 7);
        assert_eq!(twice, BTreeSet::from(["d".to_owned()]));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_scanner_panic(text in "[\\[\\]{}\"'#=.a\\\\\n €-]*") {
            of_toml(&text);
            of_json(&text);
        }
    }
}
