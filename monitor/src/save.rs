//! Files whose names say when: texts of the screen, and recordings.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::format;

/// Files of the same second.
const TRIES: u32 = 100;

/// Writes `text`, which was seen at `unix_ns`, into a new file in `directory`, and says which. Nothing is overwritten.
pub(crate) fn to_file(directory: &Path, unix_ns: u64, text: &str) -> io::Result<PathBuf> {
    in_new_file(directory, unix_ns, "txt", |path| {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        writeln!(file, "{text}")
    })
}

/// Lets `make` make a file that is not there yet, and says which. It is asked again, with another name, where there is
/// one.
pub(crate) fn in_new_file(
    directory: &Path,
    unix_ns: u64,
    extension: &str,
    mut make: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let stem = format!("bifrost-monitor-{}", format::stamp(unix_ns));
    for number in 1..=TRIES {
        let suffix = match number {
            1 => String::new(),
            number => format!("-{number}"),
        };
        let path = directory.join(format!("{stem}{suffix}.{extension}"));
        match make(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!(
        "{TRIES} files of this second are there"
    )))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_text_has_a_file_of_its_own() {
        let scratch = tempfile::tempdir().unwrap();
        let at = 1_796_040_000 * format::SECOND;
        let mut names = vec![];
        for text in ["first", "second"] {
            let path = to_file(scratch.path(), at, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{text}\n"));
            names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
        assert_eq!(
            names,
            [
                "bifrost-monitor-20261130T120000Z.txt",
                "bifrost-monitor-20261130T120000Z-2.txt"
            ]
        );
        assert!(to_file(&scratch.path().join("not there"), at, "").is_err());
    }
}
