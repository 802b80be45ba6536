//! Who may name whom, and how each file begins: held here, so that a desk and CI can't differ.
#![expect(
    clippy::unwrap_used,
    reason = "a test may unwrap, and so may its helpers"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// Every source file, by its path below `src`.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = vec![];
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// Whether `file` is the module, or belongs to it.
fn is_of(file: &str, module: &str) -> bool {
    file == format!("{module}.rs") || file.starts_with(&format!("{module}/"))
}

#[test]
fn only_the_view_and_the_terminal_know_how_to_draw() {
    for (file, text) in sources() {
        let may_draw = ["view", "terminal", "picture", "main"];
        if !may_draw.iter().any(|module| is_of(&file, module)) {
            assert!(!text.contains("ratatui"), "{file} names ratatui");
        }
    }
}

#[test]
fn each_part_names_only_those_before_it() {
    for (module, foreign) in [
        ("format", "crate::"),
        ("view", "crate::source"),
        ("model", "crate::source"),
        ("model", "crate::view"),
        ("verdict", "crate::view"),
        ("verdict", "crate::source"),
        ("source", "crate::view"),
        ("source", "crate::verdict"),
        ("input", "crate::"),
        ("report", "crate::source"),
        ("model", "crate::recording"),
        ("recording", "crate::view"),
        ("recording", "crate::verdict"),
        ("scenario", "crate::view"),
        ("origin", "crate::view"),
        ("picture", "crate::source"),
    ] {
        for (file, text) in sources() {
            if is_of(&file, module) {
                assert!(!text.contains(foreign), "{file} names {foreign}");
            }
        }
    }
}

#[test]
fn every_file_says_first_what_it_is() {
    for (file, text) in sources() {
        assert!(text.starts_with("//! "), "{file}");
    }
}
