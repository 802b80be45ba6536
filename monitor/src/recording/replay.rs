//! A recording, read look by look. Whatever is in the file, it ends in a look that says what is wrong with it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bifrost_shared::layout::VERSION_MAJOR;
use bifrost_shared::snapshot::{Figures, Row, View};

use super::{FORMAT, Line, Look, Who};
use crate::model::history;
use crate::model::observation::{Observation, Reading, Sight, Trouble};

/// No line is longer: one with every bucket of every distribution has some 600 KB.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// The looks of a recording, at least one.
pub(crate) struct Looks {
    path: PathBuf,
    lines: Box<dyn BufRead>,
    /// How many lines were read.
    line: u64,
    gateway: Option<Told>,
    attachments: u64,
    /// When the last look was made.
    at: (u64, u64),
    has_shown: bool,
    /// Nothing after what could not be read is to be trusted.
    is_broken: bool,
}

/// What the recording has told of the present gateway.
struct Told {
    path: PathBuf,
    view: Rc<View>,
    figures: Option<Figures>,
    rows: Vec<Row>,
}

impl Looks {
    /// Those of the file at `path`.
    pub(crate) fn open(path: &Path) -> Self {
        let lines: io::Result<Box<dyn BufRead>> =
            File::open(path).map(|file| Box::new(BufReader::new(file)) as _);
        Self::of(path, lines.unwrap_or_else(|error| Box::new(Broken(error))))
    }

    fn of(path: &Path, lines: Box<dyn BufRead>) -> Self {
        Self {
            path: path.to_owned(),
            lines,
            line: 0,
            gateway: None,
            attachments: 0,
            at: (0, 0),
            has_shown: false,
            is_broken: false,
        }
    }

    fn unreadable(&self, reason: String) -> Trouble {
        Trouble::BadRecording {
            path: self.path.clone(),
            reason,
        }
    }

    fn begins(&mut self) -> Result<(), Trouble> {
        match self.next_line()? {
            Some(Line::Recording(form)) if form.format == FORMAT => Ok(()),
            Some(Line::Recording(form)) => Err(self.unreadable(format!(
                "the recording has format {}, and this monitor reads format {FORMAT}: use the monitor that made it ({})",
                form.format, form.monitor
            ))),
            Some(_) => Err(self.unreadable("it does not begin as a recording".to_owned())),
            None => Err(self.unreadable("the file is empty".to_owned())),
        }
    }

    fn read(&mut self) -> Result<Option<Observation>, Trouble> {
        if self.line == 0 {
            self.begins()?;
        }
        loop {
            let line = self.next_line()?;
            match self.take(line)? {
                Step::Look(observation) => return Ok(Some(*observation)),
                Step::Further => {}
                Step::End if !self.has_shown => {
                    return Err(self.unreadable("nothing was recorded".to_owned()));
                }
                Step::End => return Ok(None),
            }
        }
    }

    /// The last line may be half there: the recorder was killed, or its disk was full.
    fn next_line(&mut self) -> Result<Option<Line>, Trouble> {
        let mut text = vec![];
        let read = (&mut self.lines)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut text);
        if let Err(error) = read {
            return Err(self.unreadable(error.to_string()));
        }
        self.line += 1;
        let is_whole = text.ends_with(b"\n");
        match serde_json::from_slice(&text) {
            Ok(line) => Ok(Some(line)),
            Err(_) if text.is_empty() => Ok(None),
            Err(_) if !is_whole && self.line > 1 && text.len() < 1 << 20 => Ok(None),
            Err(error) => {
                let line = self.line;
                Err(self.unreadable(format!("line {line} is none of a recording: {error}")))
            }
        }
    }

    fn take(&mut self, line: Option<Line>) -> Result<Step, Trouble> {
        let Some(line) = line else {
            return Ok(Step::End);
        };
        match (line, &mut self.gateway) {
            (Line::Gateway(who), _) => self.take_gateway(*who)?,
            (Line::Past(row), Some(gateway)) => gateway.rows.push(*row),
            (Line::Figures(figures), Some(gateway)) => gateway.figures = Some(*figures),
            (Line::Names(names), Some(gateway)) => {
                Rc::make_mut(&mut gateway.view).names = names;
            }
            (Line::Standing(standing), Some(gateway)) => gateway.stand(*standing),
            (Line::Look(look), Some(gateway)) => {
                let observation = gateway.look(look, self.attachments);
                return Ok(Step::Look(Box::new(observation)));
            }
            (Line::Nothing(nothing), _) => {
                self.gateway = None;
                return Ok(Step::Look(Box::new(Observation {
                    at: nothing.at,
                    unix_ns: nothing.unix_ns,
                    sight: Sight::Nothing(nothing.trouble.trouble()),
                })));
            }
            (Line::Recording(_), _) | (_, None) => {
                let line = self.line;
                return Err(self.unreadable(format!("line {line} is in the wrong place")));
            }
        }
        Ok(Step::Further)
    }

    fn take_gateway(&mut self, who: Who) -> Result<(), Trouble> {
        let path = PathBuf::from(who.path);
        let found = who.header.version.0;
        if found != VERSION_MAJOR {
            return Err(Trouble::Incompatible {
                path: self.path.clone(),
                found,
            });
        }
        self.attachments += 1;
        self.gateway = Some(Told {
            path,
            view: Rc::new(View::told(who.header, who.names)),
            figures: None,
            rows: vec![],
        });
        Ok(())
    }
}

impl Iterator for Looks {
    type Item = Observation;

    /// A line that is none ends it, with a look that says so.
    fn next(&mut self) -> Option<Observation> {
        if self.is_broken {
            return None;
        }
        let look = self.read().unwrap_or_else(|trouble| {
            self.is_broken = true;
            Some(Observation {
                at: self.at.0,
                unix_ns: self.at.1,
                sight: Sight::Nothing(trouble),
            })
        })?;
        self.has_shown = true;
        self.at = (look.at, look.unix_ns);
        Some(look)
    }
}

/// A file that can't be read.
struct Broken(io::Error);

impl io::Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        let kind = self.0.kind();
        Err(std::mem::replace(&mut self.0, kind.into()))
    }
}

impl BufRead for Broken {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let kind = self.0.kind();
        Err(std::mem::replace(&mut self.0, kind.into()))
    }

    fn consume(&mut self, _: usize) {}
}

/// What a line was good for.
enum Step {
    Look(Box<Observation>),
    Further,
    End,
}

impl Told {
    fn stand(&mut self, standing: Figures) {
        let figures = self.figures.get_or_insert_default();
        figures.faults = standing.faults;
        figures.runtimes = standing.runtimes;
        figures.slots = standing.slots;
    }

    fn look(&mut self, look: Look, attachment: u64) -> Observation {
        if let Some(figures) = &mut self.figures {
            look.rows.iter().for_each(|row| add(figures, row));
        }
        let mut rows = std::mem::take(&mut self.rows);
        rows.extend(look.rows);
        Observation {
            at: look.at,
            unix_ns: look.unix_ns,
            sight: Sight::Gateway(Box::new(Reading {
                attachment,
                path: self.path.clone(),
                view: Rc::clone(&self.view),
                alive: look.alive,
                is_replayed: true,
                freshness: look.freshness,
                rows,
                records: look.requests,
                records_missed: 0,
                figures: self.figures.clone(),
            })),
        }
    }
}

/// Brings figures since start up to the end of `row`.
fn add(figures: &mut Figures, row: &Row) {
    for (counter, gained) in figures.counters.iter_mut().zip(row.counters) {
        *counter = counter.saturating_add(gained);
    }
    figures.gauges = row.gauges;
    for (histogram, summary) in figures.histograms.iter_mut().zip(&row.series) {
        history::add_row(histogram, summary);
    }
}
