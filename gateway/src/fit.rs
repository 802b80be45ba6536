//! Settings fitted to the machine: what it allows bounds what is asked for, and that is said.

use crate::config::Config;
use crate::machine::{self, Machine};

/// Descriptors that are not for requests: the segment, listeners, logs, the runtimes' own.
const DESCRIPTORS_APART: u64 = 256;

/// Each request in flight takes two descriptors. Where the system allows too few, fewer requests go upstream at once,
/// and it is said; the soft limit is raised first. Half of what there is, is the clients'.
pub fn fit_to_descriptors(config: &mut Config) {
    // Where it can't be raised, what there is has to do.
    let _ = machine::raise_descriptor_limit();
    let Some(descriptors) = machine::descriptor_limit() else {
        return;
    };
    let most = usize::try_from(descriptors.saturating_sub(DESCRIPTORS_APART) / 2)
        .unwrap_or(usize::MAX)
        .max(1);
    let connections = config.server.connections_max.get_or_insert(most);
    if *connections > most {
        tracing::warn!(
            descriptors,
            wanted = *connections,
            connections_max = most,
            "the descriptor limit allows fewer connections: raise it (LimitNOFILE, ulimit -n)"
        );
        *connections = most;
    }
    for (name, provider) in &mut config.providers {
        if provider.concurrency > most {
            tracing::warn!(
                provider = name,
                descriptors,
                wanted = provider.concurrency,
                concurrency = most,
                "the descriptor limit allows fewer requests at once: raise it (LimitNOFILE, ulimit -n)"
            );
            provider.concurrency = most;
        }
    }
}

/// Bodies may take a quarter of the memory, unless the settings say how much.
pub fn fit_to_memory(config: &mut Config) {
    let limit = usize::try_from(Machine::new().memory().limit).unwrap_or(usize::MAX);
    if limit > 0 {
        config.server.body_budget_bytes.get_or_insert(limit / 4);
    }
}
