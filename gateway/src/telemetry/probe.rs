//! How long a runtime makes a task wait.

use std::sync::atomic::{AtomicU64, Ordering};

use bifrost_shared::segment;
use tokio::sync::Notify;

/// Finds out how long a runtime makes a task wait: the exporter stamps and wakes a task there, which tells how late it
/// ran. A timer of the runtime's own would show its own step of a millisecond instead.
#[derive(Debug, Default)]
pub(super) struct Probe {
    wake: Notify,
    /// When the task was woken, on the system's monotonic clock; zero while nobody waits for it.
    sent_at: AtomicU64,
    /// When the task last ran.
    ran_at: AtomicU64,
    /// The delays of this second.
    delays: AtomicU64,
    runs: AtomicU64,
}

impl Probe {
    /// Stamps and wakes the task.
    pub(super) fn send(&self) {
        // One at a time: a runtime that is stuck is measured from the first call.
        if self.sent_at.load(Ordering::Relaxed) == 0 {
            self.sent_at
                .store(segment::monotonic_ns(), Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// The task's own: it runs, and waits for the next call. Never ends.
    pub(super) async fn be_probed(&self) {
        loop {
            self.ran();
            self.wake.notified().await;
        }
    }

    /// When the task last ran, on the system's monotonic clock.
    pub(super) fn ran_at(&self) -> u64 {
        self.ran_at.load(Ordering::Relaxed)
    }

    fn ran(&self) {
        let now = segment::monotonic_ns();
        let sent_at = self.sent_at.swap(0, Ordering::Relaxed);
        if sent_at > 0 {
            self.delays
                .fetch_add(now.saturating_sub(sent_at), Ordering::Relaxed);
            self.runs.fetch_add(1, Ordering::Relaxed);
        }
        self.ran_at.store(now, Ordering::Relaxed);
    }

    /// The mean delay since the last call. A runtime that did not run at all has been late for as long as it was
    /// called.
    pub(super) fn mean(&self) -> u64 {
        let (delays, runs) = (
            self.delays.swap(0, Ordering::Relaxed),
            self.runs.swap(0, Ordering::Relaxed),
        );
        delays
            .checked_div(runs)
            .unwrap_or_else(|| match self.sent_at.load(Ordering::Relaxed) {
                0 => 0,
                sent_at => segment::monotonic_ns().saturating_sub(sent_at),
            })
    }
}
