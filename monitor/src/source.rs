//! Where the figures come from: a segment in shared memory, found, read, and followed through restarts.

pub(crate) mod http;
pub(crate) mod paced;
pub(crate) mod remote;

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use bifrost_shared::layout::SAMPLES_CAPACITY;
use bifrost_shared::segment::{self, Opened, in_directory, is_alive, monotonic_ns, names_a_file};
use bifrost_shared::snapshot::{Rows, Samples, Unreadable, View};

use crate::model::observation::{Observation, Reading, Sight, Trouble};
use crate::model::samples::SampleFigures;

/// How often labels are read again, nanoseconds: a reload may have changed them, and 256 texts are not for each look.
const NAMES_EVERY: u64 = 1_000_000_000;

/// Records taken in one look: 16,000 requests a second at the usual pace. The rest waits in the ring for the next.
const RECORDS_MAX: usize = 4_096;

/// Something that can be asked, again and again, how a gateway is.
pub(crate) trait Source {
    /// What there is to see now, and what is new since the last time.
    fn poll(&mut self) -> Observation;

    /// Figures over the records that lie in the sample ring now. None without a gateway.
    fn samples(&mut self) -> Option<SampleFigures>;

    /// Whether there is more to see already, as where a recording is shown fast.
    fn is_behind(&self) -> bool {
        false
    }

    /// Whether nothing more will come.
    fn is_over(&self) -> bool {
        false
    }
}

/// Where to look for a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// This file and no other; another file of that name is the gateway restarted.
    File(PathBuf),
    /// The newest live segment of these directories, the first that has one.
    Directories(Vec<PathBuf>),
}

impl Target {
    /// The target that a user named, or the places where a gateway puts its segment by itself.
    pub(crate) fn of(named: Option<PathBuf>) -> Self {
        match named {
            Some(path) if names_a_file(&path) || path.is_file() => Self::File(path),
            Some(path) => Self::Directories(vec![path]),
            None => Self::Directories(segment::search_directories()),
        }
    }

    fn places(&self) -> Vec<PathBuf> {
        match self {
            Self::File(path) => vec![path.clone()],
            Self::Directories(directories) => directories.clone(),
        }
    }

    /// The segments to try, best first: those of living gateways, then what dead ones left.
    fn candidates(&self) -> Vec<PathBuf> {
        let mut found = match self {
            Self::File(path) => vec![path.clone()],
            Self::Directories(directories) => {
                directories.iter().flat_map(|it| in_directory(it)).collect()
            }
        };
        // The sort is stable, so an earlier directory and a newer file stay ahead.
        found.sort_by_key(|path| !is_alive(path));
        found
    }
}

/// A look at each of the segments there are, those of living gateways first.
pub(crate) fn look_at_all(target: &Target) -> Vec<(PathBuf, Observation)> {
    let found = target.candidates().into_iter();
    let look = |path: PathBuf| {
        let observation = SegmentSource::new(Target::File(path.clone())).poll();
        (path, observation)
    };
    found.map(look).collect()
}

/// A segment in shared memory.
#[derive(Debug)]
pub(crate) struct SegmentSource {
    target: Target,
    attached: Option<Attached>,
    /// Counts the segments that were attached, so that a reader notices a new one.
    attachments: u64,
}

/// The segment that is being read.
#[derive(Debug)]
struct Attached {
    opened: Opened,
    view: Rc<View>,
    /// When its labels were last read, nanoseconds of the monotonic clock.
    named_at: u64,
    rows: Rows,
    samples: Samples,
}

impl SegmentSource {
    /// A source that has not looked yet.
    pub(crate) const fn new(target: Target) -> Self {
        Self {
            target,
            attached: None,
            attachments: 0,
        }
    }

    /// Attaches to a better segment where there is one. What is wrong matters only to who has none.
    fn follow(&mut self, at: u64) -> Result<(), Trouble> {
        let mut trouble = None;
        for path in self.target.candidates() {
            if self.attached.as_ref().is_some_and(|it| it.is_at(&path)) {
                return Ok(());
            }
            if self.attached.as_ref().is_some_and(|it| it.outweighs(&path)) {
                continue;
            }
            match Attached::to(&path, at) {
                Ok(attached) => {
                    self.attached = Some(attached);
                    self.attachments += 1;
                    return Ok(());
                }
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        Err(self.explanation(trouble))
    }

    fn explanation(&self, trouble: Option<Trouble>) -> Trouble {
        let tried = self.target.places();
        match trouble {
            Some(Trouble::NoGateway { .. }) | None => {
                tried.iter().find(|place| is_closed_to_us(place)).map_or(
                    Trouble::NoGateway {
                        tried: tried.clone(),
                    },
                    |place| Trouble::Denied {
                        path: place.clone(),
                    },
                )
            }
            Some(trouble) => trouble,
        }
    }
}

impl Source for SegmentSource {
    fn poll(&mut self) -> Observation {
        self.look(monotonic_ns())
    }

    fn samples(&mut self) -> Option<SampleFigures> {
        let attached = self.attached.as_ref()?;
        let words = attached.opened.words()?;
        let mut samples = attached.view.samples_from_oldest(words).ok()?;
        let mut figures = SampleFigures::default();
        // One lap is the bound: a busy gateway writes on while we read.
        for _ in 0..SAMPLES_CAPACITY {
            match samples.next(words) {
                Some(record) => figures.absorb(&record),
                None => break,
            }
        }
        figures.missed = samples.missed();
        Some(figures)
    }
}

impl SegmentSource {
    /// What there is to see at `at`, nanoseconds of the monotonic clock.
    fn look(&mut self, at: u64) -> Observation {
        let followed = self.follow(at);
        let reading = self
            .attached
            .as_mut()
            .and_then(|it| it.read(self.attachments, at));
        let sight = match (reading, followed) {
            (Some(reading), _) => Sight::Gateway(Box::new(reading)),
            (None, Err(trouble)) => Sight::Nothing(trouble),
            (None, Ok(())) => {
                let damaged = Trouble::Unreadable {
                    path: self.attached.take().map(|it| it.opened.path().to_owned()),
                    reason: Unreadable::Truncated.to_string(),
                };
                Sight::Nothing(damaged)
            }
        };
        Observation {
            at,
            unix_ns: unix_ns(),
            sight,
        }
    }
}

impl Attached {
    fn to(path: &Path, at: u64) -> Result<Self, Trouble> {
        let opened = Opened::open(path).map_err(|error| trouble_of(path, &error))?;
        let unreadable = |error: Unreadable| trouble_with(path, &error);
        let words = opened
            .words()
            .ok_or_else(|| unreadable(Unreadable::Truncated))?;
        let view = View::of(words).map_err(unreadable)?;
        let rows = view.rows_from_oldest(words).map_err(unreadable)?;
        let samples = view.samples_from_oldest(words).map_err(unreadable)?;
        Ok(Self {
            view: Rc::new(view),
            named_at: at,
            rows,
            samples,
            opened,
        })
    }

    fn is_at(&self, path: &Path) -> bool {
        self.opened.path() == path && !self.opened.is_replaced()
    }

    /// Whether the segment at `path` has nothing more to say: another one, and its gateway is dead too.
    fn outweighs(&self, path: &Path) -> bool {
        self.opened.path() != path && !is_alive(path)
    }

    /// None once the file was truncated.
    fn read(&mut self, attachment: u64, at: u64) -> Option<Reading> {
        let words: &[AtomicU64] = self.opened.words()?;
        if at.saturating_sub(self.named_at) >= NAMES_EVERY {
            self.named_at = at;
            let names = self.view.names_now(words);
            if names != self.view.names {
                Rc::make_mut(&mut self.view).names = names;
            }
        }
        // The lock of a name that another file has taken over says nothing of this gateway.
        let alive = !self.opened.is_replaced() && is_alive(self.opened.path());
        // Rows first: a row that closes between the two must not be counted with figures that already hold it.
        // Exactly: with the first look it is 1.5 MB, and would be twice that on its way there.
        let mut rows = Vec::with_capacity(self.rows.left(words));
        while let Some(row) = self.rows.next(words) {
            rows.push(row);
        }
        let records = std::iter::from_fn(|| self.samples.next(words));
        let records = records.take(RECORDS_MAX).collect();
        let reading = Reading {
            attachment,
            path: self.opened.path().to_owned(),
            view: Rc::clone(&self.view),
            alive,
            is_replayed: false,
            freshness: self.view.freshness(words),
            rows,
            records,
            records_missed: self.samples.missed(),
            figures: self.view.figures(words),
        };
        self.opened.let_go();
        Some(reading)
    }
}

fn trouble_of(path: &Path, error: &io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::NotFound => Trouble::NoGateway {
            tried: vec![path.to_owned()],
        },
        io::ErrorKind::PermissionDenied => Trouble::Denied {
            path: path.to_owned(),
        },
        _ => Trouble::Unreadable {
            path: Some(path.to_owned()),
            reason: error.to_string(),
        },
    }
}

fn trouble_with(path: &Path, error: &Unreadable) -> Trouble {
    match error {
        Unreadable::Version { found } => Trouble::Incompatible {
            path: path.to_owned(),
            found: *found,
        },
        Unreadable::Damaged(_) | Unreadable::Truncated => Trouble::Unreadable {
            path: Some(path.to_owned()),
            reason: error.to_string(),
        },
    }
}

/// Whether a directory is there that we may not list: it may hold a gateway's segment.
fn is_closed_to_us(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn unix_ns() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use bifrost_shared::layout::{Counter, Gauge, NameKind, header, segment_bytes};
    use bifrost_shared::record::Record;
    use bifrost_shared::segment::Segment;
    use bifrost_shared::snapshot::{Header, Name};
    use bifrost_shared::writer::Writer;

    use super::*;
    use crate::model::fixture;

    fn gateway(path: &Path, pid: u64) -> Writer {
        let head = Header {
            pid,
            ..fixture::header()
        };
        let segment = Segment::create(path, segment_bytes()).unwrap();
        let writer = Writer::new(segment, &head, &[]);
        writer.publish().unwrap();
        writer
    }

    fn close(writer: &mut Writer, ended_at: u64) {
        let (counters, gauges) = ([0; Counter::COUNT], [0; Gauge::COUNT]);
        writer.close_second(ended_at, 1, false, &counters, &gauges);
    }

    /// The process id that is seen, and whether it lives; or the trouble's name.
    fn seen(source: &mut SegmentSource) -> Result<(u64, bool), &'static str> {
        match source.poll().sight {
            Sight::Gateway(reading) => Ok((reading.view.header.pid, reading.alive)),
            Sight::Nothing(trouble) => Err(trouble.key()),
        }
    }

    fn on_directory(scratch: &tempfile::TempDir) -> SegmentSource {
        SegmentSource::new(Target::of(Some(scratch.path().to_owned())))
    }

    #[test]
    fn a_file_is_followed_through_death_and_restart() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("gateway.seg");
        let mut source = SegmentSource::new(Target::of(Some(path.clone())));
        assert_eq!(seen(&mut source), Err("no_gateway"));
        let first = gateway(&path, 1);
        assert_eq!(seen(&mut source), Ok((1, true)));
        drop(first);
        assert_eq!(seen(&mut source), Ok((1, false)));
        let second = gateway(&path, 2);
        assert_eq!(seen(&mut source), Ok((2, true)));
        second.segment().remove();
        assert_eq!(seen(&mut source), Ok((2, false)), "its last figures stay");
    }

    #[test]
    fn in_a_directory_the_newest_living_one_is_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let [a, b] = ["a.seg", "b.seg"].map(|name| scratch.path().join(name));
        let mut source = on_directory(&scratch);
        let old = gateway(&a, 1);
        assert_eq!(seen(&mut source), Ok((1, true)));
        let new = gateway(&b, 2);
        assert_eq!(seen(&mut source), Ok((2, true)));
        drop(new);
        assert_eq!(seen(&mut source), Ok((1, true)));
        drop(old);
        assert_eq!(
            seen(&mut source),
            Ok((1, false)),
            "not from one dead to another"
        );
        assert_eq!(
            seen(&mut on_directory(&scratch)),
            Ok((2, false)),
            "a post-mortem"
        );
    }

    #[test]
    fn each_row_is_told_once_and_a_new_segment_begins_anew() {
        let scratch = tempfile::tempdir().unwrap();
        let mut source = on_directory(&scratch);
        let mut rows = || match source.poll().sight {
            Sight::Gateway(reading) => (reading.attachment, reading.rows.len()),
            Sight::Nothing(trouble) => panic!("{trouble:?}"),
        };
        let path = scratch.path().join("gateway.seg");
        let mut first = gateway(&path, 1);
        close(&mut first, 1);
        close(&mut first, 2);
        assert_eq!(rows(), (1, 2));
        assert_eq!(rows(), (1, 0));
        drop(first);
        let mut second = gateway(&path, 2);
        close(&mut second, 3);
        assert_eq!(rows(), (2, 1));
    }

    #[test]
    fn a_reload_changes_what_keys_are_called_within_a_second() {
        const SECOND: u64 = 1_000_000_000;
        let key = |name: &str| Name {
            kind: NameKind::Key as u64,
            index: 0,
            is_stage: false,
            in_overhead: false,
            reference_ns: (None, None),
            key: name.into(),
            label: format!("openai/{name}"),
        };
        let scratch = tempfile::tempdir().unwrap();
        let writer = gateway(&scratch.path().join("gateway.seg"), 1);
        writer.rename(&[key("old"), key("spare")]);
        let mut source = on_directory(&scratch);
        let mut keys = |at| match source.look(at).sight {
            Sight::Gateway(reading) => {
                let names = reading.view.names_of(NameKind::Key);
                names.map(|name| name.key.clone()).collect::<Vec<_>>()
            }
            Sight::Nothing(trouble) => panic!("{trouble:?}"),
        };
        assert_eq!(keys(5 * SECOND), ["old", "spare"]);
        writer.rename(&[key("new")]);
        assert_eq!(keys(6 * SECOND - 1), ["old", "spare"], "not at each look");
        assert_eq!(keys(6 * SECOND), ["new"]);
    }

    #[test]
    fn the_sample_ring_is_read_from_its_oldest_record() {
        let scratch = tempfile::tempdir().unwrap();
        let mut writer = gateway(&scratch.path().join("gateway.seg"), 1);
        writer.absorb(&vec![Record::default(); SAMPLES_CAPACITY + 10]);
        let mut source = on_directory(&scratch);
        assert_eq!(source.samples(), None, "nobody has looked yet");
        source.poll();
        assert_eq!(source.samples().unwrap().read(), SAMPLES_CAPACITY);
    }

    #[test]
    fn another_layout_and_another_kind_of_file_are_named_as_such() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("gateway.seg");
        std::fs::write(&path, [0; 8_192]).unwrap();
        assert_eq!(seen(&mut on_directory(&scratch)), Err("unreadable"));
        std::fs::remove_file(&path).unwrap();
        let writer = gateway(&path, 1);
        writer.segment().words()[header::VERSION].store(9 << 32, Ordering::Relaxed);
        assert_eq!(seen(&mut on_directory(&scratch)), Err("incompatible"));
    }

    #[test]
    fn a_truncated_segment_is_let_go() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("gateway.seg");
        let _writer = gateway(&path, 1);
        let mut source = on_directory(&scratch);
        assert_eq!(seen(&mut source), Ok((1, true)));
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(10).unwrap();
        assert_eq!(seen(&mut source), Err("unreadable"));
        assert_eq!(seen(&mut source), Err("unreadable"));
    }

    #[test]
    fn what_may_not_be_read_is_not_taken_for_absent() {
        let path = Path::new("gateway.seg");
        for (kind, key) in [
            (io::ErrorKind::NotFound, "no_gateway"),
            (io::ErrorKind::PermissionDenied, "denied"),
            (io::ErrorKind::InvalidData, "unreadable"),
        ] {
            assert_eq!(trouble_of(path, &io::Error::from(kind)).key(), key);
        }
    }
}
