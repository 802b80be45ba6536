//! What a host is held against, and whether that is known to hold for it.

use bifrost_shared::snapshot::Header;
use bifrost_shared::thresholds::{T3_MEDIUM, Thresholds, is_like_t3_medium};

use super::Trigger;
use super::rules::share;

/// What triggers are held against on this host.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) thresholds: Thresholds,
    pub(super) memory_limit: u64,
    pub(super) vcpus: u64,
    pub(super) memory_total: u64,
    /// The instance that the limits are of; none where somebody set limits of their own.
    pub(super) instance: Option<&'static str>,
    /// Whether they hold here at all.
    pub(super) hold: bool,
}

impl Limits {
    pub(super) fn of(header: &Header) -> Self {
        let is_named_so = header.instance.is_empty() || header.instance == T3_MEDIUM.instance;
        let is_medium = is_like_t3_medium(header.vcpus, header.memory_total) && is_named_so;
        let are_the_pages = header.thresholds == Thresholds::T3_MEDIUM;
        Self {
            thresholds: header.thresholds,
            memory_limit: header.memory_limit,
            vcpus: header.vcpus,
            memory_total: header.memory_total,
            instance: is_medium.then_some(T3_MEDIUM.instance),
            hold: is_medium || !are_the_pages,
        }
    }

    pub(super) fn of_trigger(&self, trigger: Trigger) -> u64 {
        match trigger {
            Trigger::QueueWait => self.thresholds.queue_wait_ns,
            Trigger::Load => self.thresholds.load_rps,
            Trigger::Memory => share(self.memory_limit, self.thresholds.memory_permille),
            Trigger::Overhead => self.thresholds.overhead_ns,
            Trigger::SchedulerDelay => self.thresholds.scheduler_delay_ns,
            Trigger::CreditRunway => self.thresholds.credit_runway_ns,
        }
    }
}
