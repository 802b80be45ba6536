//! What the ring stores its words with: the standard library's atomics, or a model checker's, in which each mistake of
//! ordering that `Mutant` names can be made on purpose.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub use checked::*;

/// Lets others run, the longer the more attempts there were.
#[cfg(not(loom))]
pub(crate) fn pause(attempt: usize) {
    std::thread::sleep(std::time::Duration::from_micros(50 << attempt));
}

/// loom's atomics, weakened as the test says that runs on this thread.
#[cfg(loom)]
mod checked {
    use std::cell::Cell;

    use loom::sync::atomic;
    pub use loom::sync::atomic::Ordering;

    /// A mistake that somebody could make in the ring. Each is found by a model, so each part of the pattern is needed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Mutant {
        /// The fence between the odd mark and the payload is missing.
        NoReleaseFence,
        /// The odd mark is a release store, and there is no fence: that orders only what came before it.
        ReleaseStoreForFence,
        /// The fence between the payload and the second look is missing.
        NoAcquireFence,
        /// What says that an entry is whole is stored relaxed: its sequence, and a ring's head, either of which would do
        /// where both are there. An epoch has no head.
        RelaxedEnd,
        /// The first look is relaxed.
        RelaxedLook,
    }

    thread_local! {
        /// loom runs all threads of a model on the thread that called it.
        static MUTANT: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Makes that mistake from now on, on this thread.
    pub fn mutate(mutant: Mutant) {
        MUTANT.set(Some(mutant));
    }

    fn is(mutant: Mutant) -> bool {
        MUTANT.get() == Some(mutant)
    }

    /// A word.
    #[derive(Debug)]
    pub struct AtomicU64(atomic::AtomicU64);

    impl AtomicU64 {
        /// A word of that value.
        #[must_use]
        pub fn new(value: u64) -> Self {
            Self(atomic::AtomicU64::new(value))
        }

        /// Its value.
        #[must_use]
        pub fn load(&self, order: Ordering) -> u64 {
            self.0.load(match order {
                Ordering::Acquire if is(Mutant::RelaxedLook) => Ordering::Relaxed,
                _ => order,
            })
        }

        /// Gives it another. An odd value that is stored relaxed is the odd mark, since the models' payloads are even.
        pub fn store(&self, value: u64, order: Ordering) {
            let is_odd_mark = order == Ordering::Relaxed && !value.is_multiple_of(2);
            let order = match order {
                Ordering::Release if is(Mutant::RelaxedEnd) => Ordering::Relaxed,
                Ordering::Relaxed if is(Mutant::ReleaseStoreForFence) && is_odd_mark => {
                    Ordering::Release
                }
                _ => order,
            };
            self.0.store(value, order);
        }
    }

    /// A fence.
    pub fn fence(order: Ordering) {
        let is_missing = match order {
            Ordering::Release => is(Mutant::NoReleaseFence) || is(Mutant::ReleaseStoreForFence),
            Ordering::Acquire => is(Mutant::NoAcquireFence),
            _ => false,
        };
        if !is_missing {
            atomic::fence(order);
        }
    }

    /// Lets others run.
    pub(crate) fn pause(_attempt: usize) {
        loom::thread::yield_now();
    }
}
