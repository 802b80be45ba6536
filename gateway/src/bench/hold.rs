//! The highest rate that a gateway holds: every request answered, and none kept waiting.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits;
use super::measure::{Bench, Through};
use super::scenario::{Pace, Setup};

/// Tries at most: each takes some ten seconds.
const TRIES_MAX: u32 = 7;
/// Where to look next while nothing fails yet.
const STEP: f64 = 1.3;
/// Known well enough: the next rate up is this much higher.
const CLOSE: f64 = 1.05;
/// A gateway that is behind adds more than this to every hundredth request.
const ADDED_P99_MAX_NS: f64 = 100e6;
/// A load that is behind sends every hundredth request later than this; then it is the load that doesn't hold.
const LATE_P99_MAX_NS: f64 = 50e6;

/// What the search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Hold {
    /// Requests a second; zero if not even the first try held.
    pub(super) rate: u32,
    /// What set the bound above it.
    pub(super) bound: Bound,
    pub(super) tries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Bound {
    /// Requests failed, or waited, at this rate.
    Failed(u32),
    /// The load could not send that fast: the gateway may hold more.
    Load(u32),
    /// There are no descriptors for more: the gateway may hold more.
    Descriptors(u32),
    /// The number of tries: it may hold more.
    Tries,
}

/// How one try ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Try {
    Held,
    Failed,
    LoadFailed,
}

impl Hold {
    /// What bounds it, in words.
    pub(super) fn words(&self) -> String {
        let bound = match self.bound {
            Bound::Failed(rate) => format!("at {rate}/s requests failed or waited"),
            Bound::Load(rate) => format!("at {rate}/s the load itself was late, so it may be more"),
            Bound::Descriptors(rate) => {
                format!("the descriptor limit has no room for {rate}/s, so it may be more")
            }
            Bound::Tries => "the search ended there, so it may be more".to_owned(),
        };
        format!(
            "A rate is held when every request is answered and p99 of what is added stays under 100 ms; {bound}."
        )
    }
}

/// Searches from the setup's own rate. None for a setup without a rate.
pub(super) fn search(bench: &Bench<'_>, setup: &Setup) -> anyhow::Result<Option<Hold>> {
    let Pace::Rate(first) = setup.pace else {
        return Ok(None);
    };
    let at = |rate| Setup {
        name: format!("held at {rate}/s?"),
        pace: Pace::Rate(rate),
        warm_up: setup.warm_up.min(Duration::from_secs(3)),
        time: setup.time.min(Duration::from_secs(6)),
        ..setup.clone()
    };
    let allowed = |rate| limits::check(&at(rate)).is_ok();
    let attempt = |rate| Ok(judge(&bench.through_gateway(&at(rate), false)?));
    bisect(first, allowed, attempt).map(Some)
}

fn judge(through: &Through) -> Try {
    let load = &through.load;
    // Where it isn't told how long anybody waited, nothing is known to be held.
    let is_prompt = !load.hop.is_empty() && load.hop.p99 <= ADDED_P99_MAX_NS;
    if load.late.p99 > LATE_P99_MAX_NS {
        Try::LoadFailed
    } else if load.all.success() == Some(1.0) && is_prompt {
        Try::Held
    } else {
        Try::Failed
    }
}

/// Up by steps until a rate is not held, then halves what lies between.
fn bisect(
    first: u32,
    allowed: impl Fn(u32) -> bool,
    mut attempt: impl FnMut(u32) -> anyhow::Result<Try>,
) -> anyhow::Result<Hold> {
    let mut held = 0;
    let mut bound: Option<Bound> = None;
    let mut rate = first;
    for tries in 0..TRIES_MAX {
        let ended = if allowed(rate) {
            Some(attempt(rate)?)
        } else {
            None
        };
        match ended {
            Some(Try::Held) => held = held.max(rate),
            Some(Try::Failed) => bound = Some(Bound::Failed(rate)),
            Some(Try::LoadFailed) => bound = Some(Bound::Load(rate)),
            None => bound = Some(Bound::Descriptors(rate)),
        }
        let above = bound.and_then(Bound::rate);
        rate = match above {
            None => scaled(rate, STEP),
            Some(above) if f64::from(above) <= f64::from(held) * CLOSE => {
                return Ok(Hold {
                    rate: held,
                    bound: bound.unwrap_or(Bound::Tries),
                    tries: tries + 1,
                });
            }
            Some(above) => held.midpoint(above),
        };
    }
    Ok(Hold {
        rate: held,
        bound: bound.unwrap_or(Bound::Tries),
        tries: TRIES_MAX,
    })
}

impl Bound {
    const fn rate(self) -> Option<u32> {
        match self {
            Self::Failed(rate) | Self::Load(rate) | Self::Descriptors(rate) => Some(rate),
            Self::Tries => None,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive rate, some seven steps up"
)]
fn scaled(rate: u32, by: f64) -> u32 {
    (f64::from(rate) * by) as u32
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::super::tally::Spread;
    use super::*;

    #[test]
    fn a_rate_is_held_where_everything_is_answered_and_added_to_little() {
        let check = |spoil: fn(&mut Through), expected| {
            let mut through = fixture::through(250.0, 65.0);
            spoil(&mut through);
            assert_eq!(judge(&through), expected);
        };
        check(|_| (), Try::Held);
        check(|it| it.load.all.ok -= 1, Try::Failed);
        check(|it| it.load.hop.p99 = 101e6, Try::Failed);
        check(|it| it.load.hop = Spread::default(), Try::Failed);
        check(|it| it.load.late.p99 = 51e6, Try::LoadFailed);
    }

    #[test]
    fn the_search_closes_in_on_the_rate_that_is_held() {
        let check = |first, limit: u32, allowed_max: u32, expected: Bound| {
            let found = bisect(
                first,
                |rate| rate <= allowed_max,
                |rate| {
                    Ok(if rate <= limit {
                        Try::Held
                    } else {
                        Try::Failed
                    })
                },
            );
            let found = found.unwrap();
            assert!(
                found.rate <= limit && found.rate <= allowed_max,
                "{found:?}"
            );
            assert_eq!(
                std::mem::discriminant(&found.bound),
                std::mem::discriminant(&expected),
                "{found:?}"
            );
            let least = limit.min(allowed_max);
            assert!(
                f64::from(found.rate) >= f64::from(least) * 0.75 || expected == Bound::Tries,
                "{found:?} of {least}"
            );
            assert!(found.tries <= TRIES_MAX);
        };
        check(5_000, 8_000, u32::MAX, Bound::Failed(0));
        check(5_000, 3_000, u32::MAX, Bound::Failed(0));
        check(5_000, 9_000, 6_000, Bound::Descriptors(0));
        check(100, u32::MAX, u32::MAX, Bound::Tries);
    }
}
