//! A directory for what a benchmark's processes write, taken away at its end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bifrost_shared::segment::{self, Readers};

/// The directory. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Place(PathBuf);

impl Place {
    /// Makes one, in memory where there is room for that: segments belong there.
    pub(super) fn new() -> io::Result<Self> {
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() {
            shared.to_owned()
        } else {
            std::env::temp_dir()
        };
        let path = parent.join(format!("bifrost-bench-{}", std::process::id()));
        segment::own_directory(Readers::Owner, &path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What can't be removed is in memory, and small.
        let _ = fs::remove_dir_all(&self.0);
    }
}
