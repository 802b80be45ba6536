//! What a source saw, kept in a file: JSON, a thing a line, so that it can be read, compared, and shown again.
//!
//! ```text
//! {"recording":{"format":1,"monitor":"0.1.0"}}        the first line
//! {"gateway":{"path":…,"header":{…},"names":[…]}}     another gateway from here on
//! {"past":{"ended_at":…,"counters":[…],…}}            a second that was closed before; as many as there were
//! {"figures":{…}}                                     since its start, up to here
//! {"look":{"at":…,"alive":true,…,"rows":[…],"requests":[…]}}
//!                                                     a look, and what is new since the last: closed seconds; the
//!                                                     slowest request, by total, overhead and queue wait in turn, and
//!                                                     the last that went wrong
//! {"standing":{…}}                                    faults, runtimes, providers and keys, now and then
//! {"names":[…]}                                       labels have changed
//! {"nothing":{"at":…,"trouble":{…}}}                  there was no gateway to see
//! ```
//!
//! How a look and its parts are written is told in [`bifrost_shared::wire`]. Distributions are written once for each
//! gateway; from there on, whoever shows the recording makes them of the seconds, whose means are exact and whose
//! quantiles are estimates. That is what keeps an hour within 6 MB.

pub(crate) mod recorder;
pub(crate) mod replay;

use std::path::PathBuf;

use bifrost_shared::record::Record;
use bifrost_shared::snapshot::{Figures, Freshness, Header, Name, Row};
use bifrost_shared::wire;
use serde::{Deserialize, Deserializer, Serialize};

use crate::model::observation::Trouble;

/// The form that this version writes and reads.
const FORMAT: u32 = 1;

/// A line of a recording.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Recording(Form),
    Gateway(Box<Who>),
    Past(Box<Row>),
    Figures(Box<Figures>),
    Look(Look),
    Standing(Box<Figures>),
    #[serde(deserialize_with = "wire::names")]
    Names(Vec<Name>),
    Nothing(Nothing),
}

/// What a recording begins with.
#[derive(Debug, Serialize, Deserialize)]
struct Form {
    format: u32,
    #[serde(deserialize_with = "harmless")]
    monitor: String,
}

/// A gateway.
#[derive(Debug, Serialize, Deserialize)]
struct Who {
    #[serde(deserialize_with = "harmless")]
    path: String,
    header: Header,
    #[serde(deserialize_with = "wire::names")]
    names: Vec<Name>,
}

/// A look at it.
#[derive(Debug, Serialize, Deserialize)]
struct Look {
    at: u64,
    unix_ns: u64,
    alive: bool,
    #[serde(flatten)]
    freshness: Freshness,
    rows: Vec<Row>,
    #[serde(default, with = "wire::records", skip_serializing_if = "Vec::is_empty")]
    requests: Vec<Record>,
}

/// A look at none.
#[derive(Debug, Serialize, Deserialize)]
struct Nothing {
    at: u64,
    unix_ns: u64,
    trouble: Told,
}

/// A trouble, as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Told {
    #[serde(deserialize_with = "harmless")]
    kind: String,
    paths: Vec<Text>,
    found: u32,
    reason: Text,
}

/// A text of any length that has been made harmless.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Text(#[serde(deserialize_with = "harmless")] String);

/// A text without control characters: it may end up in a terminal.
fn harmless<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    Ok(text.chars().filter(|sign| !sign.is_control()).collect())
}

impl Told {
    fn of(trouble: &Trouble) -> Self {
        let url = |url: &String| vec![PathBuf::from(url)];
        let (kind, paths, found, reason) = match trouble {
            Trouble::NoGateway { tried } => ("no_gateway", tried.clone(), 0, ""),
            Trouble::Denied { path } => ("denied", vec![path.clone()], 0, ""),
            Trouble::Incompatible { path, found } => {
                ("incompatible", vec![path.clone()], *found, "")
            }
            Trouble::Unreadable { path, reason } => {
                let paths = path.iter().cloned().collect();
                ("unreadable", paths, 0, reason.as_str())
            }
            Trouble::BadRecording { path, reason } => {
                ("unreadable", vec![path.clone()], 0, reason.as_str())
            }
            Trouble::Unanswered { url: it, reason } => ("unanswered", url(it), 0, reason.as_str()),
            Trouble::Locked { url: it } => ("locked", url(it), 0, ""),
            Trouble::Strange { url: it, reason } => ("strange", url(it), 0, reason.as_str()),
        };
        let lossy = |path: &PathBuf| Text(path.display().to_string());
        Self {
            kind: kind.to_owned(),
            paths: paths.iter().map(lossy).collect(),
            found,
            reason: Text(reason.to_owned()),
        }
    }

    fn trouble(self) -> Trouble {
        let url = self.paths.first().cloned();
        let url = url.map_or_else(String::new, |url| url.0);
        let mut paths = self.paths.into_iter().map(|text| PathBuf::from(text.0));
        match self.kind.as_str() {
            "unanswered" => Trouble::Unanswered {
                url,
                reason: self.reason.0,
            },
            "locked" => Trouble::Locked { url },
            "strange" => Trouble::Strange {
                url,
                reason: self.reason.0,
            },
            "no_gateway" => Trouble::NoGateway {
                tried: paths.collect(),
            },
            "denied" => Trouble::Denied {
                path: paths.next().unwrap_or_default(),
            },
            "incompatible" => Trouble::Incompatible {
                path: paths.next().unwrap_or_default(),
                found: self.found,
            },
            _ => Trouble::Unreadable {
                path: paths.next(),
                reason: self.reason.0,
            },
        }
    }
}

/// What is to be seen at the end of a recording of `scenario`.
#[cfg(test)]
pub(crate) fn of(scenario: crate::scenario::Scenario) -> crate::model::Model {
    use crate::source::Source as _;

    let (_scratch, path) = tests::scratch();
    tests::record(scenario, &path);
    let mut model = crate::model::Model::default();
    let mut looks = tests::replayed(&path);
    while !looks.is_over() {
        model.absorb(looks.poll());
    }
    model
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use bifrost_shared::record::Outcome;
    use bifrost_shared::stage::Stage;
    use serde_json::Value;
    use tempfile::TempDir;

    use super::*;
    use crate::model::observation::{Observation, Sight};
    use crate::model::{Model, fixture};
    use crate::report::json;
    use crate::scenario::{self, Scenario};
    use crate::source::Source;
    use crate::source::paced::Paced;
    use recorder::Recorder;

    pub(super) fn scratch() -> (TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a.jsonl");
        (scratch, path)
    }

    /// What `--json` says but for distributions, of which a recording keeps less.
    fn told(model: &Model) -> String {
        let told: Value = serde_json::from_str(&json::text(model, None).unwrap()).unwrap();
        let Value::Object(mut told) = told else {
            panic!("{told}");
        };
        told.retain(|key, value| {
            !["window", "others"].contains(&key.as_str()) && value.get("window").is_none()
        });
        let stages = told.remove("stages");
        let stages = stages.as_ref().and_then(Value::as_object).cloned();
        for (key, stage) in stages.unwrap_or_default() {
            // Counts and means are exact.
            for pointer in ["/since_start/count", "/since_start/mean_ns"] {
                let value = stage.pointer(pointer).cloned().unwrap();
                told.insert(format!("{key}{pointer}"), value);
            }
        }
        serde_json::to_string_pretty(&told).unwrap()
    }

    fn history(source: &mut dyn Source) -> Vec<String> {
        let mut model = Model::default();
        let mut history = vec![];
        while !source.is_over() {
            model.absorb(source.poll());
            history.push(told(&model));
        }
        history
    }

    fn source(scenario: Scenario) -> Box<dyn Source> {
        Box::new(Paced::new(scenario::Looks::of(scenario), None).unwrap())
    }

    pub(super) fn replayed(path: &Path) -> Paced<replay::Looks> {
        Paced::new(replay::Looks::open(path), None).unwrap()
    }

    /// Records all of `scenario`, and says what was seen.
    pub(super) fn record(scenario: Scenario, path: &Path) -> Vec<String> {
        let mut recorder = Recorder::new(source(scenario));
        recorder.start(path).unwrap();
        let seen = history(&mut recorder);
        assert_eq!(recorder.complaint(), None);
        seen
    }

    #[test]
    fn what_is_shown_again_is_what_was_seen_byte_for_byte() {
        for scenario in [Scenario::QueueWait, Scenario::Restart, Scenario::Credits] {
            let (_scratch, path) = scratch();
            let seen = record(scenario, &path);
            assert!(seen.len() > 200 && seen[9] != seen[10]);
            let shown = history(&mut replayed(&path));
            assert_eq!(shown.len(), seen.len());
            for (second, (shown, seen)) in shown.iter().zip(&seen).enumerate() {
                assert_eq!(shown, seen, "{scenario:?}, second {second}");
            }
        }
    }

    /// A look at a gateway `quarter` quarters of a second after the first, with requests, and a row in whole seconds.
    fn look_with(attachment: u64, quarter: u64, records: &[Record]) -> Observation {
        let rows = [fixture::row(1, 1)];
        let is_whole = quarter.is_multiple_of(4);
        let mut reading = fixture::reading(&rows[usize::from(!is_whole)..]);
        reading.attachment = attachment;
        reading.records = records.to_vec();
        let mut look = fixture::observation(reading);
        look.at += quarter * 250_000_000;
        look
    }

    #[test]
    fn of_each_second_the_slowest_by_a_measure_in_turn_and_the_last_that_went_wrong_are_kept() {
        let record = |id: u64, total, queue_wait, outcome| {
            let mut record = Record {
                id,
                total,
                outcome,
                ..Record::default()
            };
            record.stages[Stage::QueueWait.index()] = queue_wait;
            record
        };
        let (whole, failed) = (Outcome::Completed, Outcome::Failed);
        let second = |from: u64| {
            [
                vec![record(from, 9, 1, whole), record(from + 1, 7, 1, failed)],
                vec![
                    record(from + 2, 1, 9, whole),
                    record(from + 3, 1, 2, failed),
                ],
                vec![record(from + 4, 8, 8, whole)],
                vec![],
            ]
        };
        // Another gateway comes after three seconds and a half: what was pending of the first one is not its own.
        let first = (0..3)
            .flat_map(|it| second(10 * it))
            .chain([vec![], vec![record(99, 99, 99, failed)]]);
        let first = first
            .enumerate()
            .map(|(at, records)| look_with(1, at as u64, &records));
        let other = (14..=20).map(|at| look_with(2, at, &[]));
        let (_scratch, path) = scratch();
        let looks: Vec<_> = first.chain(other).collect();
        let mut recorder = Recorder::new(Box::new(Paced::new(looks.into_iter(), None).unwrap()));
        recorder.start(&path).unwrap();
        while !recorder.is_over() {
            recorder.poll();
        }
        let mut kept: Vec<Vec<u64>> = vec![];
        let mut shown = replayed(&path);
        while !shown.is_over() {
            if let Sight::Gateway(reading) = shown.poll().sight {
                kept.push(reading.records.iter().map(|it| it.id).collect());
            }
        }
        kept.retain(|ids| !ids.is_empty());
        // Each look with a row is written, with what came since the last that was: by total, overhead, queue wait, total.
        assert_eq!(kept, [[0, 1], [2, 11], [12, 21], [23, 24]]);
    }

    #[test]
    fn a_recording_that_begins_late_has_what_was_before() {
        let (_scratch, path) = scratch();
        let mut recorder = Recorder::new(source(Scenario::QueueWait));
        for _ in 0..400 {
            recorder.poll();
        }
        recorder.start(&path).unwrap();
        let mut whole = history(source(Scenario::QueueWait).as_mut());
        history(&mut recorder);
        let shown = history(&mut replayed(&path));
        assert_eq!(shown, whole.split_off(400));
    }

    #[test]
    fn an_hour_takes_at_most_six_megabytes() {
        let (_scratch, path) = scratch();
        let seconds = record(Scenario::QueueWait, &path).len() as u64;
        let bytes = fs::metadata(&path).unwrap().len();
        let of_an_hour = bytes * 3_600 / seconds;
        assert!(of_an_hour < 6_000_000, "{of_an_hour}");
    }

    #[test]
    fn a_second_without_news_is_one_line_however_often_one_looks() {
        let (_scratch, path) = scratch();
        let looks: Vec<_> = scenario::Looks::of(Scenario::Calm).take(3).collect();
        // Four looks a second, of which the first brings the row.
        let looks = looks.into_iter().flat_map(|look| {
            let Sight::Gateway(reading) = look.sight else {
                panic!("{:?}", look.sight);
            };
            (0..4).map(move |quarter| {
                let mut reading = reading.clone();
                if quarter > 0 {
                    reading.rows.clear();
                }
                crate::model::observation::Observation {
                    at: look.at + quarter * 250_000_000,
                    unix_ns: look.unix_ns + quarter * 250_000_000,
                    sight: Sight::Gateway(reading),
                }
            })
        });
        let mut recorder = Recorder::new(Box::new(Paced::new(looks, None).unwrap()));
        recorder.start(&path).unwrap();
        history(&mut recorder);
        let text = fs::read_to_string(&path).unwrap();
        let kinds: Vec<_> = text
            .lines()
            .map(|line| line.split('"').nth(1).unwrap())
            .collect();
        let expected = "recording gateway past figures look look look";
        assert_eq!(kinds.join(" "), expected);
    }

    /// The last state and message that a file of `text` shows.
    fn trouble_with(text: &[u8]) -> (String, String) {
        let (_scratch, path) = scratch();
        fs::write(&path, text).unwrap();
        let last = history(&mut replayed(&path)).pop().unwrap();
        let last: Value = serde_json::from_str(&last).unwrap();
        let text = |key: &str| last[key].as_str().unwrap_or_default().to_owned();
        (text("state"), text("message"))
    }

    fn whole() -> String {
        let (_scratch, path) = scratch();
        record(Scenario::Calm, &path);
        fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn a_last_line_that_is_cut_off_ends_it_in_good_order() {
        let text = whole();
        for cut in [1, 2, 100, 700] {
            let text = &text.as_bytes()[..text.len() - cut];
            assert_eq!(trouble_with(text).0, "live", "{cut}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let text = whole();
        let with = |from: &str, to: &str| text.replacen(from, to, 1);
        let lines: Vec<_> = text.lines().collect();
        let garbage = [&lines[..20], &["garbage"], &lines[20..]]
            .concat()
            .join("\n");
        let rows_alone = [&lines[..1], &lines[2..]].concat().join("\n");
        let twice = [&lines[..9], &lines[..1], &lines[9..]].concat().join("\n");
        for (text, state, message) in [
            (String::new(), "unreadable", "the file is empty"),
            (
                "garbage\n".to_owned(),
                "unreadable",
                "line 1 is none of a recording",
            ),
            (
                "garbage".to_owned(),
                "unreadable",
                "line 1 is none of a recording",
            ),
            ("\u{1b}[31m\n".to_owned(), "unreadable", "line 1"),
            (
                format!("{}\n", lines[0]),
                "unreadable",
                "nothing was recorded",
            ),
            (
                format!("{}\n", lines[1]),
                "unreadable",
                "does not begin as a recording",
            ),
            (
                with("\"format\":1", "\"format\":2"),
                "unreadable",
                "format 2, and this monitor reads format 1",
            ),
            (
                with("\"version\":[2,", "\"version\":[9,"),
                "incompatible",
                "layout 9",
            ),
            (garbage, "unreadable", "line 21 is none of a recording"),
            (rows_alone, "unreadable", "line 2 is in the wrong place"),
            (twice, "unreadable", "line 10 is in the wrong place"),
        ] {
            let found = trouble_with(text.as_bytes());
            assert_eq!(found.0, state, "{found:?}");
            assert!(
                found.1.contains(message) && !found.1.contains('\u{1b}'),
                "{found:?}"
            );
        }
        let (scratch, path) = scratch();
        for path in [&path, scratch.path()] {
            let shown = history(&mut replayed(path));
            assert!(shown[0].contains("\"unreadable\""), "{shown:?}");
        }
    }

    #[test]
    fn a_trouble_is_shown_again_as_what_it_was() {
        let paths = || vec![PathBuf::from("a"), "b".into()];
        for trouble in [
            Trouble::NoGateway { tried: paths() },
            Trouble::Denied { path: "a".into() },
            Trouble::Incompatible {
                path: "a".into(),
                found: 9,
            },
            Trouble::Unreadable {
                path: None,
                reason: "too short".into(),
            },
            Trouble::Unanswered {
                url: "http://a:1".into(),
                reason: "refused".into(),
            },
            Trouble::Locked {
                url: "http://a:1".into(),
            },
            Trouble::Strange {
                url: "http://a:1".into(),
                reason: "it answers 503".into(),
            },
        ] {
            assert_eq!(Told::of(&trouble).trouble(), trouble);
        }
    }

    #[test]
    fn names_of_a_stranger_are_shown_without_harm() {
        let text = whole()
            .replace("openai/team", "世界\\u001b]0;you\\u0007are owned")
            .replace("/run/bifrost/", "\\u001b[2J");
        let (_scratch, path) = scratch();
        fs::write(&path, text).unwrap();
        let mut model = Model::default();
        let mut source = replayed(&path);
        while !source.is_over() {
            model.absorb(source.poll());
        }
        let gateway = model.gateway().unwrap();
        assert_eq!(gateway.path().to_str(), Some("[2Jgateway-4711.seg"));
        assert!(!json::text(&model, None).unwrap().contains("u001b"));
    }

    #[test]
    fn no_damage_is_too_odd_to_be_shown() {
        let text = whole();
        // The parts of a recording that differ, and a look or two.
        let short = text.lines().take(8).collect::<Vec<_>>().join("\n") + "\n";
        let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..150 {
            let mut bytes = short.clone().into_bytes();
            for _ in 0..3 {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                let at = usize::try_from(noise >> 40).unwrap() % bytes.len();
                bytes[at] = b"9-[]{}\",\n0e\\\xff"[usize::try_from(noise % 13).unwrap()];
            }
            trouble_with(&bytes);
        }
    }

    #[test]
    fn what_can_not_be_written_ends_the_recording_and_nothing_else() {
        let mut recorder = Recorder::new(source(Scenario::Calm));
        let refused = recorder.start(Path::new("/dev/full"));
        // The first line is written at once.
        assert!(refused.is_err_and(|error| error.kind() == std::io::ErrorKind::StorageFull));
        let (scratch, path) = scratch();
        fs::write(&path, "somebody's").unwrap();
        assert!(recorder.start(&path).is_err(), "a file that is there");
        let nowhere = scratch.path().join("none/a.jsonl");
        assert!(recorder.start(&nowhere).is_err());
        let (mut broken, seen) = (recorder, history(source(Scenario::Calm).as_mut()));
        broken.start_on(&path, Box::new(Full { room: 10_000 }));
        assert_eq!(history(&mut broken), seen);
        let complaint = broken.complaint().unwrap();
        assert!(
            complaint.contains("broke off: no storage space"),
            "{complaint}"
        );
        assert!(complaint.contains(path.to_str().unwrap()), "{complaint}");
    }

    /// A disk with so many bytes left.
    struct Full {
        room: usize,
    }

    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.room == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            let written = bytes.len().min(self.room);
            self.room -= written;
            Ok(written)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
