//! The limits that a load is judged by. They are those of a t3.medium, from the benchmark page's advice on when to move
//! to a t3.xlarge; the gateway writes the ones in force into its segment, so that every monitor judges alike.

use serde::{Deserialize, Serialize};

/// When a t3.medium is too small, and when it is about to be.
///
/// The page says: upgrade when sustained load approaches 4,000+ requests a second, when queue wait *consistently*
/// exceeds 75 µs, or when memory approaches 75 % of RAM. What is not from the page is marked *ours*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)] // a gateway of an earlier version has not all of them
pub struct Thresholds {
    /// Mean queue wait of a second, in nanoseconds, that must not be exceeded consistently.
    pub queue_wait_ns: u64,
    /// Completed requests a second, sustained.
    pub load_rps: u64,
    /// Resident memory in thousandths of the memory limit.
    pub memory_permille: u64,
    /// Mean overhead of a second, in nanoseconds, that is worth a look (ours: 59 + 75 − 47, what the overhead is when
    /// queue wait sits at its limit). It never asks for an upgrade by itself.
    pub overhead_ns: u64,
    /// Mean delay of a minute, in nanoseconds, that a runtime may make a task wait (ours: an idle machine wakes one
    /// within 31 µs). It never asks for an upgrade by itself.
    pub scheduler_delay_ns: u64,
    /// How long CPU credits have to last at the present use, in nanoseconds (ours: time enough to act, while a full
    /// balance of a t3.medium lasts 6 h at most). It never asks for an upgrade by itself.
    pub credit_runway_ns: u64,
}

impl Thresholds {
    /// The page's limits for a t3.medium (2 vCPU, 4 GB).
    pub const T3_MEDIUM: Self = Self {
        queue_wait_ns: 75_000,
        load_rps: 4_000,
        memory_permille: 750,
        overhead_ns: 87_000,
        scheduler_delay_ns: 1_000_000,
        credit_runway_ns: 4 * 3_600 * 1_000_000_000,
    };
}

impl Default for Thresholds {
    fn default() -> Self {
        Self::T3_MEDIUM
    }
}

/// What the page measured in all, beside the stages, on its t3.medium and its t3.xlarge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reference {
    /// The instance type.
    pub instance: &'static str,
    /// The load it was measured at, requests a second.
    pub load_rps: u64,
    /// Peak resident memory in bytes (the page's MB are taken as 10⁶).
    pub peak_memory_bytes: u64,
    /// `buffer_size` of the run.
    pub buffer_size: u64,
    /// `initial_pool_size` of the run.
    pub pool_size: u64,
}

/// The page's t3.medium.
pub const T3_MEDIUM: Reference = Reference {
    instance: "t3.medium",
    load_rps: 5_000,
    peak_memory_bytes: 1_312_790_000,
    buffer_size: 15_000,
    pool_size: 10_000,
};

/// The page's t3.xlarge.
pub const T3_XLARGE: Reference = Reference {
    instance: "t3.xlarge",
    load_rps: 5_000,
    peak_memory_bytes: 3_340_440_000,
    buffer_size: 20_000,
    pool_size: 15_000,
};

/// Whether a host has a t3.medium's shape, for which alone limits are known: 2 vCPU and 4 GB, of which the kernel
/// shows some 3.8 GiB.
#[must_use]
pub const fn is_like_t3_medium(vcpus: u64, memory_bytes: u64) -> bool {
    vcpus == 2 && memory_bytes >= 3_300_000_000 && memory_bytes <= 4_400_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_of_two_vcpus_and_four_gigabytes_is_like_a_t3_medium() {
        assert!(is_like_t3_medium(2, 3_950 << 20)); // what Linux shows on one
        assert!(!is_like_t3_medium(4, 15_900 << 20)); // t3.xlarge
        assert!(!is_like_t3_medium(2, 1_900 << 20)); // t3.small
    }
}
