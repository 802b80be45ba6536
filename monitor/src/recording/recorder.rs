//! A source that keeps what another one saw.
//!
//! One look a second is kept, and each that has something new: a closed second, another state, another gateway. Whatever
//! goes wrong with the file ends the recording, and nothing else.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bifrost_shared::layout::{SECONDS_CAPACITY, State};
use bifrost_shared::record::{Outcome, Record};
use bifrost_shared::snapshot::{Figures, View};

use super::{FORMAT, Form, Line, Look, Nothing, Told, Who};
use crate::format::SECOND;
use crate::model::observation::{Observation, Reading, Sight, Trouble};
use crate::model::requests::MEASURES;
use crate::model::samples::SampleFigures;
use crate::packed::PackedRow;
use crate::source::Source;

/// How often providers and keys are written, for each eight of them.
const STANDING_EVERY: u64 = 15 * SECOND;

/// A source, and what is kept of it.
pub(crate) struct Recorder {
    source: Box<dyn Source>,
    /// The closed seconds of the present gateway, so that a recording that begins late has them too.
    past: Past,
    tape: Option<Tape>,
    complaint: Option<String>,
}

#[derive(Debug, Default)]
struct Past {
    attachment: u64,
    rows: VecDeque<PackedRow>,
}

impl Recorder {
    /// A source of which nothing is kept yet.
    pub(crate) fn new(source: Box<dyn Source>) -> Self {
        Self {
            source,
            past: Past::default(),
            tape: None,
            complaint: None,
        }
    }

    /// Begins to keep what it sees in a file that is not there yet.
    ///
    /// # Errors
    ///
    /// If it is there, or can't be made.
    pub(crate) fn start(&mut self, path: &Path) -> io::Result<()> {
        self.complaint = None;
        self.tape = Some(Tape::begin(path)?);
        Ok(())
    }

    /// Ends the recording, and says where it is. None where there was none.
    pub(crate) fn stop(&mut self) -> Option<PathBuf> {
        self.tape.take().map(|tape| tape.path)
    }

    /// Whether what it sees is kept.
    pub(crate) const fn is_recording(&self) -> bool {
        self.tape.is_some()
    }

    /// Goes on into `file`, with whatever befalls it.
    #[cfg(test)]
    pub(super) fn start_on(&mut self, path: &Path, file: Box<dyn Write>) {
        self.tape = Some(Tape {
            path: path.to_owned(),
            file,
            last: None,
            pending: Pending::default(),
        });
    }

    /// Why there is no recording any more, if it broke off.
    pub(crate) fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }
}

impl Source for Recorder {
    fn poll(&mut self) -> Observation {
        let observation = self.source.poll();
        self.past.absorb(&observation);
        if let Some(tape) = &mut self.tape
            && let Err(error) = tape.take(&observation, &self.past)
        {
            let path = tape.path.display();
            self.complaint = Some(format!("recording to {path} broke off: {error}"));
            self.tape = None;
        }
        observation
    }

    fn samples(&mut self) -> Option<SampleFigures> {
        self.source.samples()
    }

    fn is_behind(&self) -> bool {
        self.source.is_behind()
    }

    fn is_over(&self) -> bool {
        self.source.is_over()
    }
}

impl Past {
    fn absorb(&mut self, observation: &Observation) {
        let Sight::Gateway(reading) = &observation.sight else {
            self.rows.clear();
            return;
        };
        if self.attachment != reading.attachment {
            self.attachment = reading.attachment;
            self.rows.clear();
        }
        self.rows.extend(reading.rows.iter().map(PackedRow::of));
        while self.rows.len() > SECONDS_CAPACITY {
            self.rows.pop_front();
        }
    }
}

/// A recording that is being made.
struct Tape {
    path: PathBuf,
    file: Box<dyn Write>,
    /// What it was that was last written.
    last: Option<Last>,
    pending: Pending,
}

/// The single requests since the last look that was written that are kept of it. More than two would be most of an
/// hour's file: the slowest by each measure in turn, and the last that went wrong.
#[derive(Debug, Default)]
struct Pending {
    records: Vec<Record>,
    turn: usize,
}

impl Pending {
    fn absorb(&mut self, records: &[Record]) {
        self.records.extend(records);
        self.records = self.worth_keeping();
    }

    /// Oldest first.
    fn take(&mut self) -> Vec<Record> {
        self.turn += 1;
        std::mem::take(&mut self.records)
    }

    fn worth_keeping(&self) -> Vec<Record> {
        let measure = MEASURES[self.turn % MEASURES.len()];
        let all = self.records.iter().enumerate();
        let slowest = all.clone().rev().max_by_key(|(_, it)| measure.value(it));
        let wrong = all.rev().find(|(_, it)| it.outcome != Outcome::Completed);
        let mut places: Vec<_> = [slowest, wrong]
            .into_iter()
            .flatten()
            .map(|(at, _)| at)
            .collect();
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|at| self.records[at]).collect()
    }
}

enum Last {
    Gateway {
        attachment: u64,
        at: u64,
        alive: bool,
        state: Option<State>,
        view: Rc<View>,
        standing_at: u64,
    },
    Nothing {
        at: u64,
        trouble: Trouble,
    },
}

impl Tape {
    fn begin(path: &Path) -> io::Result<Self> {
        // A pipe or a device may be there; a file may be somebody's.
        let is_there = fs::metadata(path).is_ok_and(|it| !it.is_file());
        let mut options = OpenOptions::new();
        options.write(true).create_new(!is_there);
        let mut tape = Self {
            path: path.to_owned(),
            file: Box::new(options.open(path)?),
            last: None,
            pending: Pending::default(),
        };
        let form = Form {
            format: FORMAT,
            monitor: env!("CARGO_PKG_VERSION").to_owned(),
        };
        tape.write(&[Line::Recording(form)])?;
        Ok(tape)
    }

    /// All of `lines` at once: whoever reads meanwhile finds whole ones.
    fn write(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut text = vec![];
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        self.file.write_all(&text)
    }

    fn take(&mut self, observation: &Observation, past: &Past) -> io::Result<()> {
        match &observation.sight {
            Sight::Nothing(trouble) => self.take_nothing(observation, trouble),
            Sight::Gateway(reading) => self.take_gateway(observation, reading, past),
        }
    }

    /// Whether the last look was at that gateway.
    fn is_of(&self, attachment: u64) -> bool {
        matches!(&self.last, Some(Last::Gateway { attachment: last, .. }) if *last == attachment)
    }

    fn take_nothing(&mut self, observation: &Observation, trouble: &Trouble) -> io::Result<()> {
        self.pending = Pending::default();
        let &Observation { at, unix_ns, .. } = observation;
        if let Some(Last::Nothing {
            at: then,
            trouble: last,
        }) = &self.last
            && last == trouble
            && at.saturating_sub(*then) < SECOND
        {
            return Ok(());
        }
        self.write(&[Line::Nothing(Nothing {
            at,
            unix_ns,
            trouble: Told::of(trouble),
        })])?;
        self.last = Some(Last::Nothing {
            at,
            trouble: trouble.clone(),
        });
        Ok(())
    }

    fn take_gateway(
        &mut self,
        observation: &Observation,
        reading: &Reading,
        past: &Past,
    ) -> io::Result<()> {
        let at = observation.at;
        if !self.is_of(reading.attachment) {
            self.pending = Pending::default();
        }
        self.pending.absorb(&reading.records);
        let mut lines = vec![];
        let mut stood_at = at;
        let mut rows = reading.rows.clone();
        match &self.last {
            Some(Last::Gateway {
                attachment,
                at: then,
                alive,
                state,
                view,
                standing_at,
            }) if *attachment == reading.attachment => {
                let is_news = !rows.is_empty()
                    || at.saturating_sub(*then) >= SECOND
                    || (*alive, *state) != (reading.alive, reading.freshness.state);
                if !is_news {
                    return Ok(());
                }
                if !Rc::ptr_eq(view, &reading.view) && view.names != reading.view.names {
                    lines.push(Line::Names(reading.view.names.clone()));
                }
                stood_at = *standing_at;
                if let Some(figures) = &reading.figures
                    && at.saturating_sub(stood_at) >= standing_every(figures)
                {
                    lines.push(Line::Standing(Box::new(standing(figures))));
                    stood_at = at;
                }
            }
            _ => {
                lines.push(Line::Gateway(Box::new(Who {
                    path: reading.path.display().to_string(),
                    header: reading.view.header.clone(),
                    names: reading.view.names.clone(),
                })));
                let past = past.rows.iter().map(PackedRow::row);
                lines.extend(past.map(|row| Line::Past(Box::new(row))));
                lines.extend(
                    reading
                        .figures
                        .clone()
                        .map(|it| Line::Figures(Box::new(it))),
                );
                // They are all in the past that is in the figures.
                rows.clear();
            }
        }
        lines.push(Line::Look(Look {
            at,
            unix_ns: observation.unix_ns,
            alive: reading.alive,
            freshness: reading.freshness,
            rows,
            requests: self.pending.take(),
        }));
        self.write(&lines)?;
        self.last = Some(Last::Gateway {
            attachment: reading.attachment,
            at,
            alive: reading.alive,
            state: reading.freshness.state,
            view: Rc::clone(&reading.view),
            standing_at: stood_at,
        });
        Ok(())
    }
}

/// Sixty-four of them would take more than everything else.
fn standing_every(figures: &Figures) -> u64 {
    STANDING_EVERY * (figures.slots.len() as u64).div_ceil(8).max(1)
}

/// What no row tells.
fn standing(figures: &Figures) -> Figures {
    Figures {
        faults: figures.faults,
        runtimes: figures.runtimes.clone(),
        slots: figures.slots.clone(),
        histograms: vec![],
        ..Figures::default()
    }
}
