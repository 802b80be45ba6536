//! What the segment says of its gateway, beside figures: who it is, and what providers and keys are called.

use bifrost_shared::layout::{self, CreditMode, NameKind};
use bifrost_shared::segment;
use bifrost_shared::snapshot::{Header, Name};

use super::Description;
use crate::clock::{Clock, unix_ns};
use crate::config;
use crate::machine::{self, Machine};

/// The segment's header.
pub(super) fn head(
    settings: &config::Telemetry,
    description: &Description,
    clock: &Clock,
    machine: &mut Machine,
) -> Header {
    let memory = machine.memory();
    Header {
        version: (layout::VERSION_MAJOR, layout::VERSION_MINOR),
        pid: std::process::id().into(),
        start_ticks: machine::start_ticks(),
        boot_id: segment::boot_id(),
        started_at: unix_ns(),
        clock: clock.kind(),
        stamp_cost_ps: clock.cost_ps(),
        vcpus: machine.vcpus(),
        memory_total: memory.total,
        memory_limit: memory.limit,
        buffer_size: description.buffer_size as u64,
        pool_size: description.pool_size as u64,
        workers: description.workers as u64,
        thresholds: settings.thresholds,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        instance: settings.instance.clone().unwrap_or_default(),
        credit_mode: CreditMode::Unknown,
    }
}

/// The labels of providers and keys.
pub(super) fn names(providers: &[(String, Vec<String>)]) -> Vec<Name> {
    let name = |kind: NameKind, index: usize, key: &str, label: String| Name {
        kind: kind as u64,
        index: index as u64,
        is_stage: false,
        in_overhead: false,
        reference_ns: (None, None),
        key: key.to_owned(),
        label,
    };
    let mut names = vec![];
    for (provider, (provider_name, keys)) in providers.iter().enumerate() {
        names.push(name(
            NameKind::Provider,
            provider,
            provider_name,
            provider_name.clone(),
        ));
        for (key, key_name) in keys.iter().enumerate() {
            names.push(name(
                NameKind::Key,
                provider << 32 | key,
                key_name,
                format!("{provider_name}/{key_name}"),
            ));
        }
    }
    names
}
