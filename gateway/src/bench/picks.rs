//! What choosing a key takes: the gateway's own code, in this process.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::config::{Key, Rest, Secret};
use crate::keys::{Keys, Tried};

/// Numbers of keys that are looked at.
const KEYS: [u32; 3] = [1, 10, 100];
/// The fastest of so many batches counts: whatever else the machine does only makes one slower.
const BATCHES: u32 = 31;
const PICKS: u32 = 20_000;

/// How long a pick takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Pick {
    /// Among so many keys, all of them healthy.
    pub(super) keys: u32,
    pub(super) ns: f64,
}

/// Measures a pick among a few keys and among many.
pub(super) fn measure() -> anyhow::Result<Vec<Pick>> {
    let pick = |count| {
        let keys = healthy(count)?;
        let batches = (0..BATCHES).map(|_| batch(&keys));
        let ns = batches.min().unwrap_or_default().as_nanos() as f64 / f64::from(PICKS);
        Ok(Pick { keys: count, ns })
    };
    KEYS.into_iter().map(pick).collect()
}

/// So many keys of different weights.
fn healthy(count: u32) -> anyhow::Result<Keys> {
    let key = |number: u32| Key {
        name: format!("key-{number}"),
        value: Secret::new(&format!("sk-bench-{number}")),
        weight: 1.0 + f64::from(number % 3),
        models: vec![],
    };
    // None of them comes to matter while all keys are well.
    let rest = Rest {
        rate_limited: Duration::ZERO,
        max: Duration::ZERO,
        forbidden: Duration::ZERO,
        probe: Duration::ZERO,
        ramp: Duration::ZERO,
    };
    Keys::new(&(0..count).map(key).collect::<Vec<_>>(), rest, None)
}

/// Picks as the pipeline does, with a random number for each, and gives the key back.
fn batch(keys: &Keys) -> Duration {
    let tried = Tried::default();
    let begun = Instant::now();
    for _ in 0..PICKS {
        let (now, random) = (tokio::time::Instant::now, fastrand::f64());
        let lease = keys.lease(black_box("gpt-4o-mini"), &tried, now, random);
        let _ = black_box(lease);
    }
    begun.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pick_is_one_that_the_keys_have_counted() {
        let keys = healthy(100).unwrap();
        assert!(batch(&keys) > Duration::ZERO);
        let [attempts, others @ ..] = keys.counts();
        assert_eq!((attempts, others), (u64::from(PICKS), [0; 4]));
        let seen = keys.seen(tokio::time::Instant::now());
        let chosen = seen.iter().filter(|key| key.counts[0] > 0).count();
        assert_eq!(chosen, 100, "20,000 picks come by each of 100 keys");
    }
}
