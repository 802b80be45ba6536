//! What a result was measured on, and with what: figures without that say nothing.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::machine::{self, Machine};

/// The machine, and the versions of everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct About {
    /// The command line.
    pub(super) command: String,
    /// When it began, as RFC 3339 has it.
    pub(super) begun: String,
    pub(super) cpu: String,
    pub(super) vcpus: u64,
    pub(super) memory: u64,
    pub(super) kernel: String,
    pub(super) descriptors: Option<u64>,
    pub(super) bench: String,
    /// Whether the gateway is built without debug checks can't be seen from outside; its size tells much.
    pub(super) gateway: String,
    pub(super) gateway_bytes: u64,
    pub(super) nginx: Option<String>,
    /// Load of the machine when it began: what else ran there.
    pub(super) load_average: String,
    /// A provider elsewhere; else mock, gateway and load shared this machine.
    pub(super) provider: Option<String>,
}

impl About {
    /// This machine, now.
    pub(super) fn here() -> Self {
        let read = |path: &str| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let cpu = read("/proc/cpuinfo");
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
        let load: Vec<_> = read("/proc/loadavg")
            .split(' ')
            .take(3)
            .map(str::to_owned)
            .collect();
        let mut machine = Machine::new();
        Self {
            command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
            begun: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            cpu: model
                .unwrap_or("unknown")
                .trim_start_matches(['\t', ' ', ':'])
                .to_owned(),
            vcpus: machine.vcpus(),
            memory: machine.memory().total,
            kernel: read("/proc/sys/kernel/osrelease"),
            descriptors: machine::descriptor_limit(),
            bench: env!("CARGO_PKG_VERSION").to_owned(),
            load_average: load.join(" "),
            ..Self::default()
        }
    }
}
