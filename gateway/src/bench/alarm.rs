//! An alarm that rings when it should: the runtime's own timers tick in whole milliseconds, which would be in every
//! latency that is counted from the time a request was due.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A timer of the kernel's that the runtime waits for as for a socket: it wakes within some 50 µs.
pub(super) struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "the way that replaces it is unsafe; what is unsound in this one takes a type that changes its \
                      descriptor, and an `OwnedFd` keeps its own"
        )]
        let timer = AsyncFd::new(timer)?;
        Ok(Self(timer))
    }

    /// Waits until then. What is due already lets the others have a turn.
    pub(super) async fn until(&self, due: Instant) -> io::Result<()> {
        let rest = due.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            tokio::task::yield_now().await;
            return Ok(());
        }
        self.set(rest)?;
        // What it rang for is not read, which would take a call: setting it anew forgets it.
        loop {
            self.0.readable().await?.clear_ready();
            if Instant::now() >= due {
                return Ok(());
            }
        }
    }

    fn set(&self, rest: Duration) -> io::Result<()> {
        let never = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let once = Itimerspec {
            it_interval: never,
            it_value: Timespec {
                tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: rest.subsec_nanos().into(),
            },
        };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_never_rings_early_and_nearly_always_within_its_millisecond() {
        let alarm = Alarm::new().unwrap();
        let mut late = vec![];
        for micros in (100..5_000).step_by(100) {
            let due = Instant::now() + Duration::from_micros(micros);
            alarm.until(due).await.unwrap();
            late.push(
                Instant::now()
                    .checked_duration_since(due)
                    .expect("not early"),
            );
        }
        late.sort_unstable();
        // The runtime's own timers are half a millisecond late on average, and up to two.
        assert!(
            late[late.len() / 2] < Duration::from_micros(500),
            "{late:?}"
        );
    }

    #[tokio::test]
    async fn what_is_due_already_is_not_waited_for() {
        let alarm = Alarm::new().unwrap();
        alarm.until(Instant::now()).await.unwrap();
    }
}
