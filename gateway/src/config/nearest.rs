//! "Did you mean …": the known setting that is nearest to an unknown one.

use std::collections::BTreeSet;

/// What people call settings elsewhere, and what they are called here.
const SYNONYMS: [(&str, &str); 8] = [
    ("api_key", "keys"),
    ("api_keys", "keys"),
    ("url", "base_url"),
    ("endpoint", "base_url"),
    ("port", "listen"),
    ("host", "listen"),
    ("address", "listen"),
    ("org", "organization"),
];

/// The one of `names` that is nearest to `name`, if any is near enough to be what was meant.
pub(super) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    let near = (name.chars().count() / 3).clamp(1, 3);
    let measured = names
        .into_iter()
        .map(|known| (distance(&name, known), known));
    measured
        .filter(|&(distance, _)| distance <= near)
        .min()
        .map(|(_, known)| known)
}

/// The known path that was probably meant by `path`, whose name at `at` is none of `siblings`.
pub(super) fn nearest_path(
    path: &[String],
    at: usize,
    siblings: &[String],
    known: &BTreeSet<Vec<String>>,
) -> Option<Vec<String>> {
    // A single underscore where there should be two, or the other way round.
    let flat = path.join("_");
    if let Some(same) = known
        .iter()
        .find(|known| known.join("_") == flat && *known != path)
    {
        return Some(same.clone());
    }
    let name = SYNONYMS
        .iter()
        .find(|(other, _)| path[at].eq_ignore_ascii_case(other))
        .map_or(path[at].as_str(), |(_, ours)| ours);
    if let Some(sibling) = nearest(name, siblings.iter().map(String::as_str)) {
        let mut meant = path.to_vec();
        sibling.clone_into(&mut meant[at]);
        return Some(meant);
    }
    // The right name in the wrong section, if only one section has it, or the front door has.
    let namesakes: Vec<_> = known
        .iter()
        .filter(|known| known.last().is_some_and(|last| last == name) && *known != path)
        .collect();
    let meant = match namesakes[..] {
        [only] => only,
        _ => namesakes.into_iter().find(|path| path[0] == "server")?,
    };
    (at + 1 == path.len()).then(|| meant.clone())
}

/// How many letters must be put in, left out, exchanged, or swapped with their neighbour, to turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let exchanged = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = exchanged.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(dotted: &str) -> Vec<String> {
        dotted.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn distance_counts_letters() {
        for (a, b, expected) in [
            ("", "", 0),
            ("listen", "listen", 0),
            ("listn", "listen", 1),
            ("lisetn", "listen", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn what_was_meant_is_found() {
        let known: BTreeSet<_> = [
            "server.listen",
            "server.workers",
            "log.level",
            "providers.openai.keys",
        ]
        .into_iter()
        .map(path)
        .collect();
        let root: Vec<String> = ["server", "log", "providers"].map(str::to_owned).into();
        let server: Vec<String> = ["listen", "workers"].map(str::to_owned).into();
        let openai: Vec<String> = ["keys", "models"].map(str::to_owned).into();
        for (unknown, at, siblings, meant) in [
            ("server.listn", 1, &server, Some("server.listen")),
            ("server_listen", 0, &root, Some("server.listen")),
            ("log_level", 0, &root, Some("log.level")),
            ("listen", 0, &root, Some("server.listen")),
            ("port", 0, &root, Some("server.listen")),
            (
                "provider.openai.keys",
                0,
                &root,
                Some("providers.openai.keys"),
            ),
            (
                "providers.openai.api_key",
                2,
                &openai,
                Some("providers.openai.keys"),
            ),
            ("zebra", 0, &root, None),
        ] {
            assert_eq!(
                nearest_path(&path(unknown), at, siblings, &known),
                meant.map(path),
                "{unknown}"
            );
        }
    }
}
