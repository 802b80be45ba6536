//! One signal, one deadline, and who is still here.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};

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
    cut_off: Arc<AtomicUsize>,
}

/// Reaches the requests of one runtime when the time is over: each then ends in its own way, and is counted. A request
/// that never waits that long pays a flag that is looked at, and a place in a list of its own thread.
#[derive(Debug, Clone)]
pub struct Cut(Arc<Reached>);

#[derive(Debug)]
struct Reached {
    is_over: AtomicBool,
    wake: Notify,
    cut_off: Arc<AtomicUsize>,
}

impl Cut {
    /// The time is over. A second call changes nothing.
    pub fn now(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        self.0.wake.notify_waiters();
    }

    /// Whether the time is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }

    /// Waits until the time is over.
    pub async fn over(self) {
        // What was made before the call of `now` is woken by it.
        let woken = self.0.wake.notified();
        if !self.is_over() {
            woken.await;
        }
    }

    /// Counts a request that was cut off.
    pub fn count(&self) {
        self.0.cut_off.fetch_add(1, Ordering::Relaxed);
    }
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Everything in flight was finished.
    Whole,
    /// So many requests were left, and cut off.
    Cut(usize),
}

impl Shutdown {
    /// Serving.
    #[must_use]
    pub fn new() -> Self {
        Self {
            phase: watch::Sender::new(Phase::Serve),
            cut_off: Arc::default(),
        }
    }

    /// For the requests of one runtime.
    #[must_use]
    pub fn cut(&self) -> Cut {
        Cut(Arc::new(Reached {
            is_over: AtomicBool::new(false),
            wake: Notify::new(),
            cut_off: Arc::clone(&self.cut_off),
        }))
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
        tokio::select! {
            () = self.phase.closed() => return Drained::Whole,
            () = tokio::time::sleep(patience) => {}
            () = hurry => {}
        }
        self.phase.send_replace(Phase::Cut);
        self.phase.closed().await;
        Drained::Cut(self.cut_off.load(Ordering::Relaxed))
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
            let (mut guest, cut) = (shutdown.guest(), shutdown.cut());
            let requests = [(); 3].map(|()| tokio::spawn(cut.clone().over()));
            tokio::spawn(async move {
                guest.wait_for(|phase| *phase == Phase::Cut).await.unwrap();
                cut.now();
                for request in requests {
                    request.await.unwrap();
                    cut.count();
                }
                // One that comes late does not wait.
                cut.over().await;
            });
            let since = Instant::now();
            let hurry = tokio::time::sleep(Duration::from_secs(hurry));
            let drained = shutdown.drain(Duration::from_secs(10), hurry).await;
            assert_eq!(
                (drained, since.elapsed()),
                (Drained::Cut(3), Duration::from_secs(expected))
            );
        }
    }
}
