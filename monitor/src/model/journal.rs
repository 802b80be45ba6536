//! What happened and when, told by comparing one look with the one before. A bounded list: the newest are kept.

use std::collections::VecDeque;

use bifrost_shared::layout::{Counter, row_flags};
use bifrost_shared::slot::{Slot, SlotState};
use bifrost_shared::snapshot::Row;

use super::liveness::Liveness;
use crate::format;
use crate::verdict::{Advice, Judged, Level, Verdict};

/// Events kept.
const EVENTS_MAX: usize = 500;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// What to do about the instance.
    Verdict,
    /// How a trigger stands.
    Trigger,
    /// Whether there is a gateway, and how it is.
    Gateway,
    /// How a provider or key is.
    Key,
    /// Records that are missing.
    Loss,
    /// Processor time that others had.
    Steal,
}

impl Subject {
    /// The name that people read.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Verdict => "verdict",
            Self::Trigger => "trigger",
            Self::Gateway => "gateway",
            Self::Key => "key",
            Self::Loss => "loss",
            Self::Steal => "steal",
        }
    }
}

/// How an event is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Things are better than before.
    Good,
    /// Neither.
    Plain,
    /// It deserves a look.
    Near,
    /// Something is wrong.
    Bad,
}

impl Weight {
    const fn of_advice(advice: Advice) -> Self {
        match advice {
            Advice::Stay => Self::Good,
            Advice::Watch | Advice::Unknown => Self::Near,
            Advice::Upgrade => Self::Bad,
            Advice::NoLimits => Self::Plain,
        }
    }

    const fn of_level(level: Level) -> Self {
        match level {
            Level::Ok => Self::Good,
            Level::Watch => Self::Near,
            Level::Breach => Self::Bad,
            Level::Unknown | Level::Reference => Self::Plain,
        }
    }

    const fn of_liveness(liveness: Liveness) -> Self {
        match liveness {
            Liveness::Live => Self::Good,
            Liveness::Starting | Liveness::Draining | Liveness::Stopped => Self::Near,
            Liveness::Stalled | Liveness::Stuck { .. } | Liveness::Dead => Self::Bad,
        }
    }

    const fn of_slot(state: SlotState) -> Self {
        match state {
            SlotState::Ready => Self::Good,
            SlotState::Warming | SlotState::Off | SlotState::Empty => Self::Plain,
            SlotState::Resting => Self::Near,
            SlotState::Benched => Self::Bad,
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// When, nanoseconds since the Unix epoch.
    pub(crate) unix_ns: u64,
    /// What it is about.
    pub(crate) subject: Subject,
    /// How it is to be taken.
    pub(crate) weight: Weight,
    /// What.
    pub(crate) text: String,
}

/// The events so far, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal(VecDeque<Event>);

impl Journal {
    /// The events, oldest first.
    pub(crate) const fn events(&self) -> &VecDeque<Event> {
        &self.0
    }

    pub(super) fn push(&mut self, unix_ns: u64, subject: Subject, weight: Weight, text: String) {
        let event = Event {
            unix_ns,
            subject,
            weight,
            text,
        };
        // What a late comer reads of the past lies before what it saw itself.
        let place = self.0.iter().rposition(|it| it.unix_ns <= unix_ns);
        self.0.insert(place.map_or(0, |place| place + 1), event);
        if self.0.len() > EVENTS_MAX {
            self.0.pop_front();
        }
    }

    /// A gateway of that process id came into sight. `before` is the one that was seen last.
    pub(super) fn gateway(&mut self, unix_ns: u64, pid: u64, before: Option<u64>) {
        let text = match before {
            None => format!("pid {pid} found"),
            Some(before) if before == pid => format!("pid {pid} found again"),
            Some(before) => format!("pid {pid} after {before}: restarted, or a newer one"),
        };
        self.push(unix_ns, Subject::Gateway, Weight::Plain, text);
    }

    /// How the gateway is has changed.
    pub(super) fn liveness(&mut self, unix_ns: u64, now: Liveness) {
        let text = now.label().to_owned();
        self.push(unix_ns, Subject::Gateway, Weight::of_liveness(now), text);
    }

    /// What changed from one verdict to the next: the advice, and how each trigger stands. Without one before, the
    /// advice alone.
    pub(super) fn verdict(&mut self, unix_ns: u64, before: Option<&Verdict>, now: &Verdict) {
        let pairs = before.map(|before| before.triggers.iter().zip(&now.triggers));
        for (before, now) in pairs.into_iter().flatten() {
            if before.level != now.level {
                let weight = Weight::of_level(now.level);
                self.push(unix_ns, Subject::Trigger, weight, trigger(before, now));
            }
        }
        if before.is_none_or(|before| before.advice != now.advice) {
            let text = match before {
                Some(before) => format!("{} -> {}", word(before.advice), now.text()),
                None => now.text(),
            };
            let weight = Weight::of_advice(now.advice);
            self.push(unix_ns, Subject::Verdict, weight, text);
        }
    }

    /// What changed between the slots of one look and the next. `name` is what one of them is called.
    pub(super) fn slots(
        &mut self,
        unix_ns: u64,
        before: &[Slot],
        now: &[Slot],
        name: impl Fn(&Slot) -> String,
    ) {
        for slot in now {
            let same = |it: &&Slot| (it.provider, it.key) == (slot.provider, slot.key);
            let Some(before) = before.iter().find(same) else {
                continue;
            };
            if before.state == slot.state {
                continue;
            }
            let until = match slot.state {
                SlotState::Resting if slot.until > 0 => {
                    format!(" until {}", format::clock(slot.until))
                }
                _ => String::new(),
            };
            let (from, to) = (before.state.label(), slot.state.label());
            let text = format!("{}: {from} -> {to}{until}", name(slot));
            self.push(unix_ns, Subject::Key, Weight::of_slot(slot.state), text);
        }
    }
}

fn trigger(before: &Judged, now: &Judged) -> String {
    let value = format::or_none(now.minute.or(now.now), |value| now.trigger.text(value));
    let limit = format::plain(&now.trigger.text(now.limit));
    format!(
        "{} {} -> {}: {value} of {limit}",
        now.trigger.label(),
        before.level.label(),
        now.level.label()
    )
}

fn word(advice: Advice) -> String {
    advice.key().replace('_', " ").to_uppercase()
}

/// Something that begins in one second and ends in another: told at both, however long it lasts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Episodes {
    /// When records began to be lost, and how many were since.
    losses: Option<(u64, u64)>,
    /// Since when more than a tenth of the processors is stolen.
    steal: Option<u64>,
}

impl Episodes {
    /// Takes the next second.
    pub(super) fn absorb(&mut self, row: &Row, journal: &mut Journal) {
        let at = row.ended_at;
        let lost = row.counter(Counter::Lost);
        match (self.losses, lost) {
            (None, 0) => {}
            (None, _) => {
                let text = format!("records are lost, {} in this second", format::count(lost));
                journal.push(at, Subject::Loss, Weight::Near, text);
                self.losses = Some((at, lost));
            }
            (Some((since, so_far)), 0) => {
                let (count, span) = (
                    format::count(so_far),
                    format::span(at.saturating_sub(since)),
                );
                let text = format!("no more records are lost: {count} in {span}");
                journal.push(at, Subject::Loss, Weight::Good, text);
                self.losses = None;
            }
            (Some((since, so_far)), _) => self.losses = Some((since, so_far.saturating_add(lost))),
        }
        match (self.steal, row.flags & row_flags::THROTTLED != 0) {
            (None, true) => {
                let text = "others have more than a tenth of the processors".to_owned();
                journal.push(at, Subject::Steal, Weight::Near, text);
                self.steal = Some(at);
            }
            (Some(since), false) => {
                let span = format::span(at.saturating_sub(since));
                let text = format!("the processors are ours again, after {span}");
                journal.push(at, Subject::Steal, Weight::Good, text);
                self.steal = None;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use bifrost_shared::slot::{Latency, SlotCount};

    use super::*;
    use crate::format::SECOND;

    fn texts(journal: &Journal) -> Vec<&str> {
        journal.events().iter().map(|it| it.text.as_str()).collect()
    }

    fn row(second: u64, lost: u64, flags: u64) -> Row {
        let mut row = Row {
            ended_at: second * SECOND,
            flags,
            ..Row::default()
        };
        row.counters[Counter::Lost.index()] = lost;
        row
    }

    #[test]
    fn what_lasts_is_told_when_it_begins_and_when_it_ends() {
        let (mut episodes, mut journal) = (Episodes::default(), Journal::default());
        for (second, lost, flags) in [
            (1, 0, 0),
            (2, 5, 0),
            (3, 7, row_flags::THROTTLED),
            (4, 0, row_flags::THROTTLED),
            (5, 0, row_flags::LATE),
            (6, 0, 0),
        ] {
            episodes.absorb(&row(second, lost, flags), &mut journal);
        }
        assert_eq!(
            texts(&journal),
            [
                "records are lost, 5 in this second",
                "others have more than a tenth of the processors",
                "no more records are lost: 12 in 2s",
                "the processors are ours again, after 2s",
            ]
        );
    }

    #[test]
    fn a_key_that_rests_is_told_with_its_name_and_until_when() {
        let slot = |key, state, until| Slot {
            provider: 0,
            key: Some(key),
            state,
            until,
            weight_millionths: 0,
            places: 0,
            taken: 0,
            waiting: 0,
            counts: [0; SlotCount::COUNT],
            latency: Latency::default(),
        };
        let (ready, resting) = (SlotState::Ready, SlotState::Resting);
        let mut journal = Journal::default();
        let before = [slot(0, ready, 0), slot(1, ready, 0)];
        let now = [
            slot(0, resting, 45_296 * SECOND),
            slot(1, ready, 0),
            slot(2, SlotState::Benched, 0),
        ];
        journal.slots(9, &before, &now, |slot| format!("a/{}", slot.key.unwrap()));
        assert_eq!(texts(&journal), ["a/0: ready -> resting until 12:34:56"]);
    }

    #[test]
    fn events_stand_in_the_order_in_which_they_were() {
        let mut journal = Journal::default();
        for (unix_ns, pid) in [(5, 1), (2, 2), (5, 3), (9, 4), (1, 5)] {
            journal.gateway(unix_ns, pid, None);
        }
        let times: Vec<_> = journal.events().iter().map(|it| it.unix_ns).collect();
        assert_eq!(times, [1, 2, 5, 5, 9]);
        assert_eq!(texts(&journal)[2], "pid 1 found", "equals stay in order");
    }

    #[test]
    fn only_the_newest_are_kept() {
        let mut journal = Journal::default();
        for pid in 0..600 {
            journal.gateway(pid, pid, Some(1));
        }
        assert_eq!(journal.events().len(), EVENTS_MAX);
        assert_eq!(journal.events()[0].unix_ns, 100);
    }
}
