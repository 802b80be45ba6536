//! From seconds to a verdict: how each trigger came to stand, and what follows from all of them.

use bifrost_shared::credits::{self, Credits};
use bifrost_shared::snapshot::{Header, Row};
use bifrost_shared::thresholds::{T3_MEDIUM, T3_XLARGE};

use super::limits::Limits;
use super::remedy;
use super::rules::{self, BUSY_ROWS_MIN, Finding};
use super::seconds::{BUSY_REQUESTS, Second, Seconds, mean};
use super::{Advice, Judged, Level, Trigger, Verdict};
use crate::format;

/// Rows that a clear rule must hold for.
const CLEAR_ROWS: usize = 60;
/// How long a level that fell is shown at least, nanoseconds: it does not rise again at once.
const DWELL_NS: u64 = 30 * format::SECOND;
/// Steal above which a slow machine may be short of credits rather than of size, permille.
const STEAL_PERMILLE: u64 = 100;

/// Judges a gateway's seconds, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Judge {
    limits: Limits,
    seconds: Seconds,
    standings: [Option<Standing>; Trigger::ALL.len()],
    /// What the seconds so far say of each trigger. A screen asks far more often than there are new ones.
    findings: [Finding; Trigger::ALL.len()],
    /// None where the instance has no CPU credits, or is not known.
    credits: Option<credits::Estimator>,
}

impl Judge {
    /// A judge of the gateway that `header` is of.
    pub(crate) fn new(header: &Header) -> Self {
        let (limits, seconds) = (Limits::of(header), Seconds::default());
        Self {
            findings: Trigger::ALL.map(|it| finding(it, &limits, &seconds, None)),
            limits,
            seconds,
            standings: [None; Trigger::ALL.len()],
            credits: credits::Estimator::new(&header.instance, header.credit_mode),
        }
    }

    /// Takes the next second.
    pub(crate) fn absorb(&mut self, row: &Row) {
        if let Some(credits) = &mut self.credits {
            credits.absorb(row);
        }
        self.seconds.push(Second::of(row));
        let (limits, seconds, credits) = (&self.limits, &self.seconds, self.credits());
        self.findings = Trigger::ALL.map(|it| finding(it, limits, seconds, credits));
        for (standing, finding) in self.standings.iter_mut().zip(&self.findings) {
            *standing = Some(match standing {
                Some(before) => before.after(finding, row.ended_at),
                None => Standing::new(finding.level, row.ended_at),
            });
        }
    }

    /// How long CPU credits last, estimated. None where there are none, or it is not known.
    pub(crate) fn credits(&self) -> Option<Credits> {
        self.credits.as_ref()?.credits()
    }

    /// What the seconds so far say. `staleness` is why they can't be judged by, where they can't.
    pub(crate) fn verdict(&self, staleness: Option<String>) -> Verdict {
        let triggers: Vec<_> = (0..Trigger::ALL.len())
            .filter(|at| Trigger::ALL[*at] != Trigger::CreditRunway || self.credits.is_some())
            .map(|at| self.judged(at))
            .collect();
        let (advice, headline, mut reasons) = self.advice(&triggers, staleness);
        reasons.extend(self.qualifiers(advice, &triggers));
        let remedies = if matches!(advice, Advice::Watch | Advice::Upgrade) {
            remedy::all(&triggers, &self.seconds, self.credits().map(|it| it.mode))
        } else {
            vec![]
        };
        Verdict {
            advice,
            headline,
            reasons,
            remedies,
            triggers,
        }
    }

    fn advice(
        &self,
        triggers: &[Judged],
        staleness: Option<String>,
    ) -> (Advice, String, Vec<String>) {
        let instance = self.limits.instance;
        let on = instance.map_or_else(String::new, |name| format!(" on {name}"));
        if let Some(reason) = staleness {
            return (Advice::Unknown, "UNKNOWN".to_owned(), vec![reason]);
        }
        if self.seconds.last().is_none() {
            let reason = "no second of the gateway is over yet".to_owned();
            return (Advice::Unknown, "UNKNOWN".to_owned(), vec![reason]);
        }
        if !self.limits.hold {
            return (Advice::NoLimits, self.host_without_limits(), vec![]);
        }
        let at = |level: Level| {
            let found = worst_first(triggers, level);
            found.into_iter().map(Judged::reason).collect::<Vec<_>>()
        };
        let breached = at(Level::Breach);
        let watched = at(Level::Watch);
        if !breached.is_empty() {
            let to = instance.map_or_else(String::new, |_| format!(" to {}", T3_XLARGE.instance));
            let reasons = breached.into_iter().chain(watched).collect();
            (Advice::Upgrade, format!("UPGRADE{to}"), reasons)
        } else if !watched.is_empty() {
            (Advice::Watch, format!("WATCH{on}"), watched)
        } else {
            let reasons = at_ease(triggers, self.limits.memory_limit);
            (Advice::Stay, format!("STAY{on}"), reasons)
        }
    }

    fn host_without_limits(&self) -> String {
        let cpus = format::count(self.limits.vcpus);
        let memory = format::bytes(self.limits.memory_total);
        format!(
            "NO LIMITS known for this host ({cpus} vCPU, {memory}): a {}'s are shown as references",
            T3_MEDIUM.instance
        )
    }

    /// What else to bear in mind, whatever the advice.
    fn qualifiers(&self, advice: Advice, triggers: &[Judged]) -> Vec<String> {
        if advice == Advice::Unknown {
            return vec![];
        }
        let mut qualifiers = vec![];
        let queue = &triggers[0];
        if queue.level == Level::Unknown {
            qualifiers.push(format!(
                "too few requests to judge queue wait ({} of {BUSY_ROWS_MIN} seconds had {BUSY_REQUESTS})",
                queue.busy
            ));
        }
        if is_throttled(&self.seconds) {
            let steal = format::percent(steal(&self.seconds), 1_000);
            qualifiers.push(format!(
                "CPU throttled, steal {steal}: look at CPU credits first"
            ));
        }
        let lost = self
            .seconds
            .minute()
            .fold(0_u64, |sum, second| sum.saturating_add(second.lost));
        if lost > 0 {
            let lost = format::count(lost);
            qualifiers.push(format!("{lost} samples of the last minute were lost"));
        }
        qualifiers
    }

    fn judged(&self, place: usize) -> Judged {
        let trigger = Trigger::ALL[place];
        let finding = &self.findings[place];
        let last = self.seconds.last().map_or(0, |second| second.ended_at);
        let standing = self.standings[place].unwrap_or(Standing::new(finding.level, last));
        Judged {
            trigger,
            now: finding.now,
            minute: finding.minute,
            limit: self.limits.of_trigger(trigger),
            over: finding.over,
            rows: self.seconds.minute().count() as u64,
            busy: self.seconds.busy_minute().count() as u64,
            level: standing.level,
            held: last.saturating_sub(standing.since),
            reached_in: finding.reached_in,
        }
    }
}

/// Whether others take so much that the hypervisor may be holding the machine back.
fn is_throttled(seconds: &Seconds) -> bool {
    steal(seconds) > STEAL_PERMILLE
}

/// The last minute's mean, permille.
fn steal(seconds: &Seconds) -> u64 {
    mean(seconds.minute().map(|second| second.steal)).unwrap_or(0)
}

fn finding(
    trigger: Trigger,
    limits: &Limits,
    seconds: &Seconds,
    credits: Option<Credits>,
) -> Finding {
    let limit = limits.of_trigger(trigger);
    let mut finding = match trigger {
        Trigger::CreditRunway => rules::credit_runway(credits, limit, is_throttled(seconds)),
        _ => rules::finding(trigger, seconds, limit),
    };
    if !limits.hold || limit == 0 {
        finding.level = Level::Reference;
    }
    finding
}

/// How a trigger stands, and how it came to.
#[derive(Debug, Clone, Copy)]
struct Standing {
    level: Level,
    /// When it came to stand so: a row's end.
    since: u64,
    /// For how many rows it could have fallen.
    clear_rows: usize,
    /// Whether it came from a worse one.
    fell: bool,
}

impl Standing {
    const fn new(level: Level, since: u64) -> Self {
        Self {
            level,
            since,
            clear_rows: 0,
            fell: false,
        }
    }

    /// How it stands after a row that ended at `now` and said `finding`.
    fn after(self, finding: &Finding, now: u64) -> Self {
        if finding.level == self.level {
            return Self {
                clear_rows: 0,
                ..self
            };
        }
        // What is no longer known is said at once; only a fall to a known, calmer level has to prove itself.
        let falls = finding.level >= Level::Ok && finding.level < self.level;
        if !falls {
            if self.fell && now.saturating_sub(self.since) < DWELL_NS {
                return self;
            }
            return Self::new(finding.level, now);
        }
        let clear_rows = if finding.is_clear {
            self.clear_rows + 1
        } else {
            0
        };
        if clear_rows >= CLEAR_ROWS {
            return Self {
                fell: true,
                ..Self::new(finding.level, now)
            };
        }
        Self { clear_rows, ..self }
    }
}

/// The triggers that stand so, worst first.
pub(super) fn worst_first(triggers: &[Judged], level: Level) -> Vec<&Judged> {
    let mut found: Vec<_> = triggers.iter().filter(|it| it.level == level).collect();
    found.sort_by_key(|it| std::cmp::Reverse(it.share_of_limit()));
    found
}

/// What a calm gateway's triggers say.
fn at_ease(triggers: &[Judged], memory_limit: u64) -> Vec<String> {
    let calm = |trigger: Trigger| {
        triggers
            .iter()
            .find(|it| it.trigger == trigger && it.level == Level::Ok)
    };
    let value = |judged: &Judged| judged.minute.unwrap_or(0);
    let mut reasons = vec![];
    if let Some(queue) = calm(Trigger::QueueWait) {
        let (value, limit) = (
            format::brief(value(queue)),
            format::plain(&format::brief(queue.limit)),
        );
        reasons.push(format!("queue wait {value} of {limit}"));
    }
    if let Some(load) = calm(Trigger::Load) {
        let (value, limit) = (format::count(value(load)), format::rate(load.limit));
        reasons.push(format!("load {value} of {limit}"));
    }
    if let Some(memory) = calm(Trigger::Memory) {
        let share = |bytes| format::percent(bytes, memory_limit);
        let (value, limit) = (share(value(memory)), share(memory.limit));
        reasons.push(format!("memory {value} of {limit}"));
    }
    reasons
}

#[cfg(test)]
mod tests;
