//! Whether a gateway lives, and how well: told by its lock, its heartbeats and what it says of itself.

use bifrost_shared::layout::State;

use super::observation::Reading;
use crate::format::{self, SECOND};

/// An exporter that was silent for longer has stalled: it comes by every 50 ms.
const EXPORTER_SILENCE_MAX: u64 = 2 * SECOND;
/// A runtime that ran no task of ours for longer, while the exporter came by, is stuck.
const RUNTIME_SILENCE_MAX: u64 = SECOND;

/// How a gateway is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// It is about to listen.
    Starting,
    /// It serves.
    Live,
    /// It finishes what is in flight, then stops.
    Draining,
    /// It stopped in good order.
    Stopped,
    /// Its process lives, and its exporter says nothing: stopped by a signal, or starved.
    Stalled,
    /// Its exporter is well, and one of its runtimes is not.
    Stuck {
        /// For how long, nanoseconds.
        silent: u64,
    },
    /// Its process is gone without a word. What it last wrote is frozen.
    Dead,
}

impl Liveness {
    /// How the gateway that `reading` is of is at `at`, nanoseconds of the monotonic clock.
    pub(crate) fn of(reading: &Reading, at: u64) -> Self {
        let freshness = reading.freshness;
        let exporter_silent = at.saturating_sub(freshness.exporter_at);
        let runtime_silent = match freshness.slowest_runtime_at {
            0 => 0, // no heartbeat yet, so none that has stopped
            // Not until now: where the whole process was stopped, the runtime is none the worse.
            beat => freshness.exporter_at.saturating_sub(beat),
        };
        match freshness.state {
            Some(State::Stopped) => Self::Stopped,
            _ if !reading.alive => Self::Dead,
            Some(State::Starting) => Self::Starting,
            // It serves already, and in 20 ms there will be figures.
            _ if freshness.exporter_at == 0 => Self::Starting,
            _ if exporter_silent > EXPORTER_SILENCE_MAX => Self::Stalled,
            // Its runtimes end one by one: that is no fault.
            Some(State::Draining) => Self::Draining,
            _ if runtime_silent > RUNTIME_SILENCE_MAX => Self::Stuck {
                silent: runtime_silent.saturating_add(exporter_silent),
            },
            _ => Self::Live,
        }
    }

    /// Whether its process is there.
    pub(crate) const fn is_alive(self) -> bool {
        !matches!(self, Self::Stopped | Self::Dead)
    }

    /// The name that programs read.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Stalled => "stalled",
            Self::Stuck { .. } => "stuck",
            Self::Dead => "dead",
        }
    }

    /// The name that people read.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Starting => "STARTING",
            Self::Live => "LIVE",
            Self::Draining => "DRAINING",
            Self::Stopped => "STOPPED",
            Self::Stalled => "STALLED",
            Self::Stuck { .. } => "RUNTIME STUCK",
            Self::Dead => "DEAD",
        }
    }

    /// Why its figures can't be judged by, where they can't: its last word is `age` nanoseconds old.
    pub(crate) fn staleness(self, age: u64) -> Option<String> {
        let age = format::age(age);
        match self {
            Self::Starting | Self::Live | Self::Draining => None,
            Self::Stopped => Some(format!("the gateway stopped in good order {age} ago")),
            Self::Stalled => Some(format!("the gateway has been silent for {age}")),
            Self::Stuck { silent } => Some(format!(
                "a runtime of the gateway has been stuck for {}",
                format::age(silent)
            )),
            Self::Dead => Some(format!("the gateway died {age} ago")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture;

    /// Seconds since the exporter and the slowest runtime came by.
    fn judged(alive: bool, state: State, exporter: u64, runtime: u64) -> Liveness {
        let at = 1_000 * SECOND;
        let mut reading = fixture::reading(&[]);
        reading.alive = alive;
        reading.freshness.state = Some(state);
        reading.freshness.exporter_at = at - exporter * SECOND / 10;
        reading.freshness.slowest_runtime_at = at - runtime * SECOND / 10;
        Liveness::of(&reading, at)
    }

    #[test]
    fn lock_heartbeats_and_state_tell_how_a_gateway_is() {
        let stuck = |tenths| Liveness::Stuck {
            silent: tenths * SECOND / 10,
        };
        for (alive, state, exporter, runtime, expected) in [
            (true, State::Running, 0, 0, Liveness::Live),
            (true, State::Running, 20, 0, Liveness::Live),
            (true, State::Running, 21, 0, Liveness::Stalled),
            (true, State::Running, 21, 50, Liveness::Stalled),
            (true, State::Running, 0, 10, Liveness::Live),
            (true, State::Running, 0, 11, stuck(11)),
            (true, State::Running, 2, 13, stuck(13)),
            (true, State::Running, 15, 20, Liveness::Live),
            (true, State::Draining, 0, 50, Liveness::Draining),
            (true, State::Draining, 30, 30, Liveness::Stalled),
            (true, State::Starting, 9_000, 9_000, Liveness::Starting),
            (true, State::Stopped, 0, 0, Liveness::Stopped),
            (false, State::Stopped, 99, 99, Liveness::Stopped),
            (false, State::Running, 0, 0, Liveness::Dead),
            (false, State::Draining, 0, 0, Liveness::Dead),
        ] {
            assert_eq!(
                judged(alive, state, exporter, runtime),
                expected,
                "{state:?} {exporter} {runtime}"
            );
        }
    }

    #[test]
    fn an_exporter_without_any_heartbeat_yet_has_not_stalled() {
        let mut reading = fixture::reading(&[]);
        reading.freshness.exporter_at = 0;
        assert_eq!(Liveness::of(&reading, 5_000 * SECOND), Liveness::Starting);
        reading.alive = false;
        assert_eq!(Liveness::of(&reading, 5_000 * SECOND), Liveness::Dead);
    }

    #[test]
    fn a_runtime_without_any_heartbeat_yet_is_not_stuck() {
        let mut reading = fixture::reading(&[]);
        reading.freshness.exporter_at = 5_000 * SECOND;
        reading.freshness.slowest_runtime_at = 0;
        assert_eq!(Liveness::of(&reading, 5_000 * SECOND), Liveness::Live);
    }

    #[test]
    fn only_missing_or_old_data_is_stale() {
        assert_eq!(Liveness::Live.staleness(0), None);
        assert_eq!(Liveness::Draining.staleness(0), None);
        assert_eq!(
            Liveness::Dead.staleness(12 * SECOND).unwrap(),
            "the gateway died 12.0 s ago"
        );
    }
}
