//! Bytes of bodies that may be held at once. A bound in requests is none in bytes: 15,000 prompts of a megabyte are
//! 15 GB on a 4 GB machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Error;

/// What all bodies may take together. Shared by all runtimes.
#[derive(Debug)]
pub struct Budget {
    held: AtomicUsize,
    bytes_max: usize,
}

/// Bytes taken from the budget, given back on drop.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// A budget of `bytes_max`.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            held: AtomicUsize::new(0),
            bytes_max,
        }
    }

    /// A share that is still empty.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> Share {
        Share {
            budget: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Bytes that are held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl Share {
    /// Takes `bytes` more.
    ///
    /// # Errors
    ///
    /// [`Error::OverBudget`] if the budget has no room for them; the share stays as it was.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        let budget = &self.budget;
        let taken = budget
            .held
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                held.checked_add(bytes)
                    .filter(|held| *held <= budget.bytes_max)
            });
        match taken {
            Ok(_) => {
                self.bytes += bytes;
                Ok(())
            }
            Err(held) => Err(Error::OverBudget { held_bytes: held }),
        }
    }

    /// Bytes that it takes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes it `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::OverBudget`] if that is more than it was, and there is no room.
    pub fn set(&mut self, bytes: usize) -> Result<(), Error> {
        self.shrink_to(bytes);
        self.grow(bytes - self.bytes)
    }

    fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        self.budget.held.fetch_sub(surplus, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_what_is_dropped_is_given_back() {
        let budget = Arc::new(Budget::new(100));
        let mut first = budget.share();
        first.grow(60).unwrap();
        let mut second = budget.share();
        assert!(matches!(
            second.grow(41),
            Err(Error::OverBudget { held_bytes: 60 })
        ));
        second.grow(40).unwrap();
        first.set(10).unwrap();
        assert_eq!(budget.held(), 50);
        drop((first, second));
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_length_beyond_all_bounds_is_no_overflow() {
        let budget = Arc::new(Budget::new(100));
        let mut share = budget.share();
        share.grow(1).unwrap();
        assert!(share.grow(usize::MAX).is_err());
    }
}
