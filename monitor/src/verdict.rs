//! Stay, watch or upgrade, because …: judged from a gateway's closed seconds alone, so that every monitor says the same.
//!
//! A trigger rises as soon as its rule holds, but not within 30 s of a fall, and falls only after its *clear* rule held for
//! a minute: a value at the border does not flicker. *Minute* is the last 60 rows; a row is *busy* with 100 requests or more: with fewer,
//! the mean is noise, and an idle machine's wake-ups look like queueing.
//!
//! | trigger | breach | watch | clear |
//! |---|---|---|---|
//! | queue wait, limit 75 µs | 48 of the minute's rows busy and over it, and the mean of 5 min over it | mean of the minute from 80 %, or 12 rows over | at most 12 rows over, and the mean below 90 % |
//! | load, limit 4,000/s | mean of the minute at it, and 48 rows from 95 % | mean from 90 % | mean below 90 % |
//! | memory, limit 75 % of RAM | 48 rows over it | from 90 % of it, or its slope of 5 min gets there within 10 min | below 93 % of it |
//! | overhead, 87 µs (ours) | never by itself | mean of the minute over it | mean below 92 % |
//! | scheduler delay, 1 ms (ours) | never by itself | mean of the minute over it | mean below 90 % |
//! | credit runway, 4 h (ours, an estimate) | never by itself | even a balance that was full at first lasts no longer | it lasts 25 % longer |
//!
//! 48 of 60: were half the seconds over by chance, it would be seen once in 600,000 looks; at 90 % it fires in 99 of 100.

mod judge;
mod limits;
mod remedy;
mod rules;
mod seconds;

use crate::format;

pub(crate) use judge::Judge;
pub(crate) use seconds::load;

/// What is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Mean time that requests waited for a place.
    QueueWait,
    /// Completed requests a second.
    Load,
    /// Resident memory.
    Memory,
    /// Mean of the seven stages that the page sums.
    Overhead,
    /// The longest that a runtime made a task wait.
    SchedulerDelay,
    /// How long CPU credits last at the present use, at most. Unlike the others, it is bad when it is low.
    CreditRunway,
}

impl Trigger {
    /// Every trigger, in the order of the screen.
    pub(crate) const ALL: [Self; 6] = [
        Self::QueueWait,
        Self::Load,
        Self::Memory,
        Self::Overhead,
        Self::SchedulerDelay,
        Self::CreditRunway,
    ];

    /// The name that people read.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::QueueWait => "Queue wait",
            Self::Load => "Load",
            Self::Memory => "Memory",
            Self::Overhead => "Overhead",
            Self::SchedulerDelay => "Sched delay",
            Self::CreditRunway => "CPU credits",
        }
    }

    /// The name that programs read.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::QueueWait => "queue_wait",
            Self::Load => "load",
            Self::Memory => "memory",
            Self::Overhead => "overhead",
            Self::SchedulerDelay => "scheduler_delay",
            Self::CreditRunway => "credit_runway",
        }
    }

    /// The unit of its values.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::QueueWait | Self::Overhead | Self::SchedulerDelay | Self::CreditRunway => "ns",
            Self::Load => "per_second",
            Self::Memory => "bytes",
        }
    }

    /// A value of it, as people read it.
    pub(crate) fn text(self, value: u64) -> String {
        match self {
            Self::QueueWait | Self::Overhead | Self::SchedulerDelay => format::brief(value),
            Self::Load => format::rate(value),
            Self::Memory => format::bytes(value),
            Self::CreditRunway => format::span(value),
        }
    }

    /// Its name within a sentence.
    const fn phrase(self) -> &'static str {
        match self {
            Self::QueueWait => "queue wait",
            Self::Load => "load",
            Self::Memory => "memory",
            Self::Overhead => "overhead",
            Self::SchedulerDelay => "scheduler delay",
            Self::CreditRunway => "CPU credits",
        }
    }
}

/// How a trigger stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Its limit is not known to hold for this host: a figure to compare with, and no more.
    Reference,
    /// Too little to judge by.
    Unknown,
    /// Well below its limit.
    Ok,
    /// Near it.
    Watch,
    /// Consistently over it.
    Breach,
}

impl Level {
    /// The name that people read.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Reference => "REF",
            Self::Unknown => "UNKNOWN",
            Self::Ok => "OK",
            Self::Watch => "WATCH",
            Self::Breach => "BREACH",
        }
    }

    /// The name that programs read.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::Watch => "watch",
            Self::Breach => "breach",
        }
    }
}

/// One trigger, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Which.
    pub(crate) trigger: Trigger,
    /// Its value in the last second. None where that had none.
    pub(crate) now: Option<u64>,
    /// Its mean over the last minute.
    pub(crate) minute: Option<u64>,
    /// What it is held against.
    pub(crate) limit: u64,
    /// Of the minute's rows, those over the limit (for the load, from 95 % of it).
    pub(crate) over: u64,
    /// How many rows the minute has.
    pub(crate) rows: u64,
    /// Of them, how many were busy.
    pub(crate) busy: u64,
    /// How it stands.
    pub(crate) level: Level,
    /// For how long, nanoseconds.
    pub(crate) held: u64,
    /// For memory that grows: seconds until it is at its limit.
    reached_in: Option<u64>,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// The instance is big enough.
    Stay,
    /// It soon may not be.
    Watch,
    /// It is not.
    Upgrade,
    /// Data is missing or stale.
    Unknown,
    /// No limits are known for this host.
    NoLimits,
}

impl Advice {
    /// The name that programs read.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Stay => "stay",
            Self::Watch => "watch",
            Self::Upgrade => "upgrade",
            Self::Unknown => "unknown",
            Self::NoLimits => "no_limits",
        }
    }
}

/// What to do, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// What to do.
    pub(crate) advice: Advice,
    /// The same in words, with the instance it is about.
    pub(crate) headline: String,
    /// Why, most pressing first; then what else to bear in mind.
    pub(crate) reasons: Vec<String>,
    /// What can be done, one thing for each trigger that is watched or breached, most pressing first.
    pub(crate) remedies: Vec<String>,
    /// Each trigger, in the order of [`Trigger::ALL`].
    pub(crate) triggers: Vec<Judged>,
}

impl Verdict {
    /// The whole verdict in one sentence.
    pub(crate) fn text(&self) -> String {
        let link = match self.advice {
            Advice::Upgrade => " because ",
            _ => ": ",
        };
        if self.reasons.is_empty() {
            return self.headline.clone();
        }
        format!("{}{link}{}", self.headline, self.reasons.join("; "))
    }
}

impl Judged {
    /// Its mean, or last value, in thousandths of its limit; where low is bad, its limit in thousandths of it.
    pub(crate) fn share_of_limit(&self) -> u64 {
        let value = self.minute.or(self.now);
        let (part, whole) = match (self.trigger, value) {
            (Trigger::CreditRunway, None) => (0, 1),
            (Trigger::CreditRunway, Some(value)) => (self.limit, value.max(1)),
            (_, value) => (value.unwrap_or(0), self.limit),
        };
        let share = (u128::from(part) * 1_000).checked_div(u128::from(whole));
        u64::try_from(share.unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// Why it is watched or breached.
    fn reason(&self) -> String {
        let name = self.trigger.phrase();
        let value = self.trigger.text(self.minute.unwrap_or(0));
        let limit = format::plain(&self.trigger.text(self.limit));
        if self.level == Level::Breach {
            let (over, rows, held) = (self.over, self.rows, format::span(self.held));
            return format!("{name} {value} (limit {limit}) in {over}/{rows} s, {held}");
        }
        if self.trigger == Trigger::CreditRunway && self.now == Some(0) {
            return format!("{name} are spent");
        }
        if self.trigger == Trigger::CreditRunway {
            return format!("{name} last {value} at most at this use (an estimate; limit {limit})");
        }
        if let Some(seconds) = self.reached_in {
            let reached = format::span(seconds * format::SECOND);
            return format!("{name} {value} grows to {limit} in {reached}");
        }
        let share = format::percent(self.share_of_limit(), 1_000);
        format!("{name} {value} is at {share} of {limit}")
    }
}
