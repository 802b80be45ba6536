//! What the last minutes say of each trigger, without regard to how it stood before.

use bifrost_shared::credits::Credits;
use bifrost_shared::layout::CreditMode;

use super::seconds::{MINUTE, Second, Seconds, mean};
use super::{Level, Trigger};

/// Rows of a minute that must be over a limit, so that it is exceeded *consistently*.
const CONSISTENTLY: u64 = 48;
/// Rows of a minute over a limit that are worth watching.
const NOTABLY: u64 = 12;
/// Busy rows of a minute without which queue wait and overhead are not judged.
pub(super) const BUSY_ROWS_MIN: u64 = 30;
/// How far ahead the slope looks, seconds.
const SLOPE_REACH: u64 = 600;

/// What the rows say of one trigger, without regard to how it stood before.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    /// How it would stand.
    pub(super) level: Level,
    /// Whether it is so far below its limit that it may fall.
    pub(super) is_clear: bool,
    /// See [`super::Judged`], as for the rest.
    pub(super) now: Option<u64>,
    pub(super) minute: Option<u64>,
    pub(super) over: u64,
    pub(super) reached_in: Option<u64>,
}

/// What `seconds` say of `trigger` under `limit`.
pub(super) fn finding(trigger: Trigger, seconds: &Seconds, limit: u64) -> Finding {
    match trigger {
        Trigger::QueueWait => queue_wait(seconds, limit),
        Trigger::Load => load(seconds, limit),
        Trigger::Memory => memory(seconds, limit),
        Trigger::Overhead => overhead(seconds, limit),
        Trigger::SchedulerDelay => scheduler_delay(seconds, limit),
        // Not of seconds alone: see `credit_runway`.
        Trigger::CreditRunway => credit_runway(None, limit, false),
    }
}

fn queue_wait(seconds: &Seconds, limit: u64) -> Finding {
    let minute = seconds.minute_mean(|second| second.queue_wait);
    let over = count(seconds.busy_minute(), |second| {
        second.mean(second.queue_wait) > Some(limit)
    });
    let is_long = seconds.long_mean(|second| second.queue_wait) > Some(limit);
    let level = if !is_busy_enough(seconds) {
        Level::Unknown
    } else if seconds.minute().count() == MINUTE && over >= CONSISTENTLY && is_long {
        Level::Breach
    } else if minute >= Some(share(limit, 800)) || over >= NOTABLY {
        Level::Watch
    } else {
        Level::Ok
    };
    Finding {
        level,
        is_clear: over <= NOTABLY && minute < Some(share(limit, 900)),
        now: seconds
            .last()
            .and_then(|second| second.mean(second.queue_wait)),
        minute,
        over,
        reached_in: None,
    }
}

fn load(seconds: &Seconds, limit: u64) -> Finding {
    let minute = mean(seconds.minute().map(|second| second.load));
    let over = count(seconds.minute(), |second| second.load >= share(limit, 950));
    let level = if over >= CONSISTENTLY && minute >= Some(limit) {
        Level::Breach
    } else if minute >= Some(share(limit, 900)) {
        Level::Watch
    } else {
        Level::Ok
    };
    Finding {
        level,
        is_clear: minute < Some(share(limit, 900)),
        now: seconds.last().map(|second| second.load),
        minute,
        over,
        reached_in: None,
    }
}

fn memory(seconds: &Seconds, limit: u64) -> Finding {
    let now = seconds.last().map(|second| second.rss);
    let over = count(seconds.minute(), |second| second.rss > limit);
    let reached_in = seconds
        .seconds_to(limit)
        .filter(|left| *left <= SLOPE_REACH);
    let level = if over >= CONSISTENTLY {
        Level::Breach
    } else if now >= Some(share(limit, 900)) || reached_in.is_some() {
        Level::Watch
    } else {
        Level::Ok
    };
    Finding {
        level,
        // 70 % of RAM where the limit is 75 %.
        is_clear: now < Some(share(limit, 933)),
        now,
        minute: mean(seconds.minute().map(|second| second.rss)),
        over,
        reached_in,
    }
}

fn overhead(seconds: &Seconds, limit: u64) -> Finding {
    let minute = seconds.minute_mean(|second| second.overhead);
    let level = if !is_busy_enough(seconds) {
        Level::Unknown
    } else if minute > Some(limit) {
        Level::Watch
    } else {
        Level::Ok
    };
    Finding {
        level,
        is_clear: minute < Some(share(limit, 920)),
        now: seconds
            .last()
            .and_then(|second| second.mean(second.overhead)),
        minute,
        over: count(seconds.busy_minute(), |second| {
            second.mean(second.overhead) > Some(limit)
        }),
        reached_in: None,
    }
}

fn scheduler_delay(seconds: &Seconds, limit: u64) -> Finding {
    let minute = mean(seconds.minute().map(|second| second.delay));
    Finding {
        level: if minute > Some(limit) {
            Level::Watch
        } else {
            Level::Ok
        },
        is_clear: minute < Some(share(limit, 900)),
        now: seconds.last().map(|second| second.delay),
        minute,
        over: count(seconds.minute(), |second| second.delay > limit),
        reached_in: None,
    }
}

/// What the estimate says: its better bound, so that a balance that is not known at first makes no alarm. Where a
/// standard instance `is_throttled`, there is nothing left to estimate.
pub(super) fn credit_runway(credits: Option<Credits>, limit: u64, is_throttled: bool) -> Finding {
    let is_spent = is_throttled && credits.is_some_and(|it| it.mode == CreditMode::Standard);
    let runway = credits.and_then(|credits| credits.runway_ns);
    let longest = if is_spent {
        Some(0)
    } else {
        runway.map(|runway| runway.high)
    };
    let is_below = |limit: u64| longest.is_some_and(|longest| longest < limit);
    Finding {
        level: if is_below(limit) {
            Level::Watch
        } else {
            Level::Ok
        },
        is_clear: !is_below(share(limit, 1_250)),
        now: longest,
        minute: longest,
        over: 0,
        reached_in: None,
    }
}

fn is_busy_enough(seconds: &Seconds) -> bool {
    seconds.busy_minute().count() as u64 >= BUSY_ROWS_MIN
}

/// So many thousandths of `whole`.
pub(super) fn share(whole: u64, permille: u64) -> u64 {
    let part = u128::from(whole) * u128::from(permille) / 1_000;
    u64::try_from(part).unwrap_or(u64::MAX)
}

fn count<'a>(seconds: impl Iterator<Item = &'a Second>, is_so: impl Fn(&Second) -> bool) -> u64 {
    seconds.filter(|second| is_so(second)).count() as u64
}
