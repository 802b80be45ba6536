//! One signal, one deadline, and who is still here.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// How far the gateway is with stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It serves.
    Serve,
    /// It takes nothing new and finishes what it has.
    Drain,
    /// The time is over: what is left ends now.
    Cut,
}

/// Leads through the phases. Whoever is still busy holds a receiver.
#[derive(Debug)]
pub struct Shutdown {
    phase: watch::Sender<Phase>,
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Everything in flight was finished.
    Whole,
    /// What was left was cut off.
    Cut,
}

impl Shutdown {
    /// Serving.
    #[must_use]
    pub fn new() -> Self {
        Self {
            phase: watch::Sender::new(Phase::Serve),
        }
    }

    /// For somebody who has to know of the phases, and whom a drain waits for.
    #[must_use]
    pub fn guest(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Asks everybody to finish and waits for that, but not longer than `patience`, nor after `hurry` is done. Who is
    /// left then is cut off, and waited for.
    pub async fn drain(&self, patience: Duration, hurry: impl Future<Output = ()>) -> Drained {
        self.phase.send_replace(Phase::Drain);
        let drained = tokio::select! {
            () = self.phase.closed() => Drained::Whole,
            () = tokio::time::sleep(patience) => Drained::Cut,
            () = hurry => Drained::Cut,
        };
        if drained == Drained::Cut {
            self.phase.send_replace(Phase::Cut);
            self.phase.closed().await;
        }
        drained
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

/// The signals that end a service: SIGTERM, SIGINT.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one, and names it.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_with_the_last_guest() {
        let shutdown = Shutdown::new();
        let mut guest = shutdown.guest();
        tokio::spawn(async move {
            guest.changed().await.unwrap();
            assert_eq!(*guest.borrow(), Phase::Drain);
            tokio::time::sleep(Duration::from_secs(3)).await;
        });
        let since = Instant::now();
        let drained = shutdown
            .drain(Duration::from_secs(10), std::future::pending())
            .await;
        assert_eq!(
            (drained, since.elapsed()),
            (Drained::Whole, Duration::from_secs(3))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_finish_is_cut_off_at_the_deadline_or_by_a_second_signal() {
        for (hurry, expected) in [(100, 10), (2, 2)] {
            let shutdown = Shutdown::new();
            let mut guest = shutdown.guest();
            tokio::spawn(async move {
                guest.wait_for(|phase| *phase == Phase::Cut).await.unwrap();
            });
            let since = Instant::now();
            let hurry = tokio::time::sleep(Duration::from_secs(hurry));
            let drained = shutdown.drain(Duration::from_secs(10), hurry).await;
            assert_eq!(
                (drained, since.elapsed()),
                (Drained::Cut, Duration::from_secs(expected))
            );
        }
    }
}
