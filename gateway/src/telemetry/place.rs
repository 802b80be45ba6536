//! Where the segment goes.

use std::io;
use std::path::{Path, PathBuf};

use bifrost_shared::layout;
use bifrost_shared::segment::{self, Readers, Segment};
use bifrost_shared::writer::Writer;

use crate::config;

/// A segment where the settings, or the usual places, allow one; else figures on the heap, and one warning.
pub(super) fn make_segment(
    settings: &config::Telemetry,
    fill: impl Fn(Segment) -> Writer,
) -> Writer {
    let bytes = layout::segment_bytes();
    if settings.enabled {
        let mut complaints = vec![];
        for (path, is_named) in candidates(settings.segment.as_deref()) {
            match publish(settings.readers, &path, is_named, bytes, &fill) {
                Ok(writer) => {
                    if !path
                        .parent()
                        .is_some_and(|at| segment::is_in_memory(at).unwrap_or(true))
                    {
                        tracing::warn!(path = %path.display(), "the segment is on a disk: a write may wait for it; use a tmpfs");
                    }
                    return writer;
                }
                Err(error) => complaints.push(format!("{}: {error}", path.display())),
            }
        }
        tracing::warn!(
            tried = complaints.join("; "),
            "no place for the telemetry segment: serving without, no monitor can attach"
        );
    }
    let writer = fill(Segment::on_heap(bytes));
    writer.publish().expect("nothing is named on the heap");
    writer
}

/// Publishes at `path`. Where the program chose the file's name, its directory has to be ours alone: in one that others
/// can write in, anybody could put a segment of his own in our place.
fn publish(
    readers: Readers,
    path: &Path,
    is_named: bool,
    bytes: usize,
    fill: &impl Fn(Segment) -> Writer,
) -> io::Result<Writer> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if !is_named {
        segment::own_directory(readers, directory)?;
        segment::tidy(directory);
    }
    let writer = fill(Segment::create_for(readers, path, bytes)?);
    writer.publish()?;
    Ok(writer)
}

/// The files to try, best first, and whether the user named the file itself.
fn candidates(told: Option<&Path>) -> Vec<(PathBuf, bool)> {
    let directories = match told {
        Some(file) if segment::names_a_file(file) => return vec![(file.to_owned(), true)],
        Some(directory) => vec![directory.to_owned()],
        None => segment::default_directories(),
    };
    let name = format!("gateway-{}.seg", std::process::id());
    directories
        .into_iter()
        .map(|directory| (directory.join(&name), false))
        .collect()
}
