//! A gateway on another machine, asked once a second by its admin listener.
//!
//! A thread does the asking, so that the screen heeds its keys however long an answer takes. Between two answers the
//! last one grows older: a tunnel that hangs looks like a gateway that does. Only when nothing has come for
//! [`PATIENCE`] is it let go, and all is asked for anew.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use bifrost_shared::layout::VERSION_MAJOR;
use bifrost_shared::record::Record;
use bifrost_shared::segment::monotonic_ns;
use bifrost_shared::snapshot::{Row, View};
use bifrost_shared::wire::{FORMAT, Form, Snapshot};

use super::http::{self, Answer, Key, Limits, Url};
use super::{Source, unix_ns};
use crate::model::observation::{Observation, Reading, Sight, Trouble};
use crate::model::samples::SampleFigures;

/// Between two questions; a gateway closes a second a second.
const EVERY: Duration = Duration::from_secs(1);
/// An answer takes some milliseconds and what the way takes.
const TIME_MAX: Duration = Duration::from_secs(3);
/// The first answer has 15 minutes, at most some 2 MB.
const BYTES_MAX: usize = 16 << 20;
/// How long what was told last is shown while nobody answers: over a tunnel a failed question is nothing out of the way.
const PATIENCE: Duration = Duration::from_secs(10);
/// Answers that wait to be looked at; then the next question does.
const WAITING_MAX: usize = 4;

/// A gateway's admin listener.
#[derive(Debug)]
pub(crate) struct RemoteSource {
    url: Url,
    answers: Receiver<Told>,
    /// Raised when the next question is to be for everything.
    anew: Arc<AtomicBool>,
    shown: Option<Shown>,
    attachments: u64,
    /// Requests of the shown gateway that were left out of its answers.
    left_out: u64,
    /// What happened last.
    trouble: Option<Trouble>,
}

/// An answer, or why there is none.
#[derive(Debug)]
struct Told {
    answer: Result<Box<Snapshot>, Trouble>,
    /// Whether it was asked for everything.
    is_whole: bool,
}

#[derive(Debug)]
struct Shown {
    snapshot: Box<Snapshot>,
    view: Rc<View>,
    came_at: Instant,
}

impl RemoteSource {
    /// Begins to ask.
    pub(crate) fn new(url: Url, key: Option<Key>) -> Self {
        let limits = Limits {
            time: TIME_MAX,
            bytes: BYTES_MAX,
        };
        let (sender, answers) = mpsc::sync_channel(WAITING_MAX);
        let asked = url.clone();
        let anew = Arc::new(AtomicBool::new(false));
        let is_asked_anew = Arc::clone(&anew);
        // It ends with whoever it answers to.
        thread::spawn(move || {
            ask_on(
                &Questions {
                    url: asked,
                    key,
                    limits,
                },
                &is_asked_anew,
                &sender,
            );
        });
        Self {
            url,
            answers,
            anew,
            shown: None,
            attachments: 0,
            left_out: 0,
            trouble: None,
        }
    }

    fn take(&mut self, told: Told, news: &mut News) {
        match told.answer {
            // The whole one is on its way.
            Ok(_) if self.shown.is_none() && !told.is_whole => {}
            Ok(mut snapshot) => {
                let is_same = self
                    .shown
                    .as_ref()
                    .is_some_and(|shown| who(&shown.snapshot) == who(&snapshot));
                if !is_same {
                    self.attachments += 1;
                    self.left_out = 0;
                    *news = News::default();
                }
                news.rows.append(&mut snapshot.rows);
                news.records.append(&mut snapshot.requests.told);
                // What ended before we came is not missed.
                if is_same {
                    let left_out = snapshot.requests.left_out;
                    self.left_out = self.left_out.saturating_add(left_out);
                }
                let (header, names) = (snapshot.header.clone(), snapshot.names.clone());
                self.trouble = None;
                self.shown = Some(Shown {
                    snapshot,
                    view: Rc::new(View::told(header, names)),
                    came_at: Instant::now(),
                });
            }
            Err(trouble) => {
                let is_soon = |it: &Shown| it.came_at.elapsed() < PATIENCE;
                let may_pass = matches!(trouble, Trouble::Unanswered { .. });
                if !(may_pass && self.shown.as_ref().is_some_and(is_soon)) {
                    *news = News::default();
                    self.shown = None;
                    self.anew.store(true, Ordering::Relaxed);
                }
                self.trouble = Some(trouble);
            }
        }
    }

    fn observation(&self, news: News) -> Observation {
        let Some(Shown {
            snapshot,
            view,
            came_at,
        }) = &self.shown
        else {
            let silent = || unanswered(&self.url, "it did not answer in time");
            return Observation {
                at: monotonic_ns(),
                unix_ns: unix_ns(),
                sight: Sight::Nothing(self.trouble.clone().unwrap_or_else(silent)),
            };
        };
        let since = u64::try_from(came_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Observation {
            at: snapshot.at.saturating_add(since),
            unix_ns: snapshot.unix_ns.saturating_add(since),
            sight: Sight::Gateway(Box::new(Reading {
                attachment: self.attachments,
                path: PathBuf::from(self.url.to_string()),
                view: Rc::clone(view),
                alive: true,
                is_replayed: false,
                freshness: snapshot.freshness,
                rows: news.rows,
                records: news.records,
                records_missed: self.left_out,
                figures: snapshot.figures.clone(),
            })),
        }
    }
}

impl Source for RemoteSource {
    fn poll(&mut self) -> Observation {
        let mut news = News::default();
        // The first look is worth waiting for: `--json` has no other.
        if self.shown.is_none()
            && self.trouble.is_none()
            && let Ok(answer) = self.answers.recv_timeout(TIME_MAX + EVERY)
        {
            self.take(answer, &mut news);
        }
        while let Ok(answer) = self.answers.try_recv() {
            self.take(answer, &mut news);
        }
        self.observation(news)
    }

    /// Not all records are told.
    fn samples(&mut self) -> Option<SampleFigures> {
        None
    }
}

/// What came since the last look.
#[derive(Default)]
struct News {
    rows: Vec<Row>,
    records: Vec<Record>,
}

/// What is asked, and how.
struct Questions {
    url: Url,
    key: Option<Key>,
    limits: Limits,
}

fn ask_on(questions: &Questions, anew: &AtomicBool, answers: &SyncSender<Told>) {
    let mut last = None;
    loop {
        let begun = Instant::now();
        if anew.swap(false, Ordering::Relaxed) {
            last = None;
        }
        let told = questions.ask_after(last);
        if let Ok(it) = &told.answer {
            let row = it.rows.last().map(|row| row.ended_at);
            last = Some(Last {
                who: who(it),
                row: row.or(last.and_then(|it| it.row)),
                request: it.requests.next,
            });
        }
        if answers.send(told).is_err() {
            return;
        }
        thread::sleep(EVERY.saturating_sub(begun.elapsed()));
    }
}

/// What the last answer was of.
#[derive(Debug, Clone, Copy)]
struct Last {
    who: Who,
    row: Option<u64>,
    /// The number of the request that comes next.
    request: u64,
}

type Who = (u64, u64, [u64; 2], u64);

fn who(snapshot: &Snapshot) -> Who {
    let header = &snapshot.header;
    (
        header.pid,
        header.start_ticks,
        header.boot_id,
        header.started_at,
    )
}

impl Questions {
    /// The next answer, with what the last one lacked. Another gateway tells all of its own.
    fn ask_after(&self, last: Option<Last>) -> Told {
        let answer = self.ask(last);
        match (last, &answer) {
            (Some(last), Ok(snapshot)) if last.who != who(snapshot) => self.ask_after(None),
            _ => Told {
                answer,
                is_whole: last.is_none(),
            },
        }
    }

    fn ask(&self, last: Option<Last>) -> Result<Box<Snapshot>, Trouble> {
        let target = last.map_or("/snapshot".to_owned(), |last| {
            let (since, from) = (last.row.unwrap_or(0), last.request);
            format!("/snapshot?since={since}&from={from}")
        });
        let answer = http::get(&self.url, &target, self.key.as_ref(), self.limits);
        match answer {
            Ok(Answer { status: 200, body }) => self.understood(&body),
            Ok(Answer {
                status: 401 | 403, ..
            }) => Err(Trouble::Locked {
                url: self.url.to_string(),
            }),
            Ok(Answer { status: 404, .. }) => Err(self.strange("it has no /snapshot".to_owned())),
            Ok(Answer { status, .. }) => Err(self.strange(format!("it answers {status}"))),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                Err(self.strange(error.to_string()))
            }
            Err(error) => Err(unanswered(&self.url, &error.to_string())),
        }
    }

    fn understood(&self, body: &[u8]) -> Result<Box<Snapshot>, Trouble> {
        let no_snapshot = |error| self.strange(format!("what it answers is no snapshot: {error}"));
        let form: Form = serde_json::from_slice(body).map_err(no_snapshot)?;
        let found = form.layout().0;
        if found != VERSION_MAJOR {
            return Err(Trouble::Incompatible {
                path: self.url.to_string().into(),
                found,
            });
        }
        if form.format != FORMAT {
            let reason = format!(
                "its format is {}, and this monitor reads {FORMAT}",
                form.format
            );
            return Err(self.strange(reason));
        }
        serde_json::from_slice(body).map_err(no_snapshot)
    }

    fn strange(&self, reason: String) -> Trouble {
        Trouble::Strange {
            url: self.url.to_string(),
            reason,
        }
    }
}

fn unanswered(url: &Url, reason: &str) -> Trouble {
    Trouble::Unanswered {
        url: url.to_string(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use bifrost_shared::wire::Requests;

    use super::*;
    use crate::scenario::{Looks, Scenario};

    /// Ten seconds of a gateway.
    fn snapshot() -> Snapshot {
        let (mut rows, mut records) = (vec![], vec![]);
        let mut last = None;
        for look in Looks::of(Scenario::Calm).take(10) {
            let Sight::Gateway(reading) = look.sight else {
                panic!("{:?}", look.sight);
            };
            rows.extend(reading.rows.clone());
            records.extend(reading.records.clone());
            last = Some(Snapshot {
                format: FORMAT,
                at: look.at,
                unix_ns: look.unix_ns,
                header: reading.view.header.clone(),
                names: reading.view.names.clone(),
                freshness: reading.freshness,
                figures: reading.figures.clone(),
                rows: rows.clone(),
                requests: Requests::of(&records, records.len() as u64, 0),
            });
        }
        last.unwrap()
    }

    /// A server that gives each of `answers` in turn, and what it was asked for.
    fn serve(answers: Vec<(u16, Vec<u8>)>) -> (Questions, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = thread::spawn(move || {
            let answer = |(status, body): (u16, Vec<u8>)| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = vec![];
                let mut byte = [0];
                while !asked.ends_with(b"\r\n\r\n") {
                    stream.read_exact(&mut byte).unwrap();
                    asked.push(byte[0]);
                }
                let length = body.len();
                let head = format!("HTTP/1.1 {status} \r\ncontent-length: {length}\r\n\r\n");
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&body).unwrap();
                let asked = String::from_utf8(asked).unwrap();
                asked.split(' ').nth(1).unwrap().to_owned()
            };
            answers.into_iter().map(answer).collect()
        });
        let questions = Questions {
            url: Url::parse(&url).unwrap(),
            key: None,
            limits: Limits {
                time: Duration::from_secs(20),
                bytes: BYTES_MAX,
            },
        };
        (questions, serving)
    }

    fn body(snapshot: &Snapshot) -> (u16, Vec<u8>) {
        (200, serde_json::to_vec(snapshot).unwrap())
    }

    #[test]
    fn each_second_is_asked_for_once_and_another_gateways_all() {
        let (first, mut second) = (snapshot(), snapshot());
        second.header.pid += 1;
        let same = body(&first);
        let other = body(&second);
        let (questions, serving) = serve(vec![same.clone(), same, other.clone(), other]);
        let told = questions.ask_after(None).answer.unwrap();
        assert_eq!(*told, first);
        let last = Last {
            who: who(&told),
            row: Some(told.rows[9].ended_at),
            request: told.requests.next,
        };
        assert!(!questions.ask_after(Some(last)).is_whole);
        let told = questions.ask_after(Some(last));
        assert!(told.is_whole);
        assert_eq!(told.answer.unwrap().header.pid, second.header.pid);
        let row = last.row.unwrap();
        let more = format!("/snapshot?since={row}&from={}", 10 * 200);
        let asked = ["/snapshot", &more, &more, "/snapshot"];
        assert_eq!(serving.join().unwrap(), asked);
    }

    #[test]
    fn what_goes_wrong_has_its_name() {
        let text = String::from_utf8(body(&snapshot()).1).unwrap();
        let with = |from: &str, to: &str| text.replacen(from, to, 1).into_bytes();
        for (status, body, key, reason) in [
            (401, vec![], "denied", "does not let us in"),
            (403, vec![], "denied", "does not let us in"),
            (404, vec![], "unreadable", "no /snapshot"),
            (503, vec![], "unreadable", "it answers 503"),
            (200, b"<html>".to_vec(), "unreadable", "no snapshot"),
            (200, b"{}".to_vec(), "unreadable", "no snapshot"),
            (
                200,
                with("\"format\":1", "\"format\":2"),
                "unreadable",
                "its format is 2",
            ),
            (
                200,
                with("\"version\":[2,", "\"version\":[9,"),
                "incompatible",
                "layout 9",
            ),
            (
                200,
                with("\"at\":", "\"then\":"),
                "unreadable",
                "no snapshot",
            ),
        ] {
            let (questions, serving) = serve(vec![(status, body)]);
            let trouble = questions.ask(None).unwrap_err();
            let what = trouble.what();
            assert_eq!(trouble.key(), key, "{what}");
            assert!(
                what.contains(reason) && what.contains("http://127.0.0.1:"),
                "{what}"
            );
            assert!(!trouble.remedy().contains(".seg"), "{}", trouble.remedy());
            serving.join().unwrap();
        }
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let url = Url::parse(&format!("http://{}", gone.unwrap())).unwrap();
        let trouble = match RemoteSource::new(url, None).poll().sight {
            Sight::Nothing(trouble) => trouble,
            Sight::Gateway(reading) => panic!("{reading:?}"),
        };
        assert_eq!(trouble.key(), "no_gateway");
        assert!(trouble.remedy().contains("ssh"), "{}", trouble.remedy());
    }

    #[test]
    fn a_look_has_rows_and_requests_once_and_grows_older() {
        let (questions, serving) = serve(vec![body(&snapshot())]);
        let mut source = RemoteSource::new(questions.url, None);
        let first = source.poll();
        let second = source.poll();
        serving.join().unwrap();
        let news = |observation: &Observation| match &observation.sight {
            Sight::Gateway(reading) => (
                reading.rows.len(),
                (reading.records.len(), reading.records_missed),
            ),
            Sight::Nothing(trouble) => panic!("{trouble:?}"),
        };
        let told = snapshot().requests.told.len();
        assert!((80..=128).contains(&told));
        assert_eq!(news(&first), (10, (told, 0)));
        assert_eq!(news(&second), (0, (0, 0)));
        assert!(first.at >= snapshot().at && second.at > first.at);
    }

    #[test]
    fn a_question_that_fails_is_forgiven_and_a_gateway_that_counts_nonsense_too() {
        let mut source = RemoteSource::new(Url::parse("http://127.0.0.1:1").unwrap(), None);
        let mut news = News::default();
        let told = |answer| Told {
            answer,
            is_whole: false,
        };
        let failed = || {
            Err(unanswered(
                &Url::parse("http://127.0.0.1:1").unwrap(),
                "late",
            ))
        };
        source.take(told(Ok(Box::new(snapshot()))), &mut news);
        assert!(source.shown.is_none(), "a part of what was before us");
        source.take(
            Told {
                answer: Ok(Box::new(snapshot())),
                is_whole: true,
            },
            &mut news,
        );
        source.take(told(failed()), &mut news);
        assert_eq!(news.rows.len(), 10, "it is still shown");
        let mut odd = snapshot();
        odd.requests.left_out = u64::MAX;
        source.take(told(Ok(Box::new(odd.clone()))), &mut news);
        source.take(told(Ok(Box::new(odd))), &mut news);
        assert_eq!(source.left_out, u64::MAX);
        let shown = source.shown.as_mut().unwrap();
        shown.came_at = Instant::now().checked_sub(PATIENCE).unwrap();
        source.take(told(failed()), &mut news);
        assert!(source.shown.is_none() && source.anew.load(Ordering::Relaxed));
    }
}
