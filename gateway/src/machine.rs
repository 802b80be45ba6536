//! What the gateway uses of its machine: memory and processor time, once a second.

pub mod instance;

use std::fs;
use std::io;

use bifrost_shared::layout::Gauge;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sysinfo::{MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Looks at this process and its machine. `sysinfo` gives what it has; the peak, the anonymous part and the stolen
/// time, which it has not, come from `/proc`.
pub struct Machine {
    /// None where `sysinfo` does not know the system: those figures are then zero.
    system: Option<System>,
    pid: Pid,
    ticks: Ticks,
    /// The process's own processor time at the last look, milliseconds.
    own_cpu_ms: u64,
    vcpus: u64,
    looks: u64,
    descriptors: u64,
    memory_limit: u64,
}

/// Counting 16,000 descriptors takes milliseconds, and control groups are several files: at every tenth look only.
const LOOKS_A_COUNT: u64 = 10;

/// Memory of the machine, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What the machine has.
    pub total: u64,
    /// The lower of that and the control group's limit.
    pub limit: u64,
}

/// Processor time of the whole machine since boot, in ticks.
#[derive(Debug, Clone, Copy, Default)]
struct Ticks {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl Machine {
    /// Takes the first look.
    #[must_use]
    pub fn new() -> Self {
        let pid = Pid::from_u32(std::process::id());
        let mut machine = Self {
            system: System::new().ok(),
            pid,
            ticks: Ticks::now().unwrap_or_default(),
            own_cpu_ms: 0,
            vcpus: vcpus(),
            looks: 0,
            descriptors: 0,
            memory_limit: 0,
        };
        machine.refresh();
        machine.own_cpu_ms = machine.own_cpu_ms_now();
        machine
    }

    /// Processors that this process may use.
    #[must_use]
    pub const fn vcpus(&self) -> u64 {
        self.vcpus
    }

    /// The machine's memory, and how much of it this process may have.
    #[must_use]
    pub fn memory(&mut self) -> Memory {
        let Some(system) = &mut self.system else {
            return Memory { total: 0, limit: 0 };
        };
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let total = system.total_memory();
        // The process's own group, not the root's: a container's limit is there.
        let group = system
            .process(self.pid)
            .and_then(sysinfo::Process::cgroup_limits);
        let limit = group.map_or(total, |group| group.total_memory.min(total));
        Memory {
            total,
            limit: if limit == 0 { total } else { limit },
        }
    }

    /// Fills in the gauges that are about the machine. `elapsed_ms` is the time since the last look.
    pub fn look(&mut self, elapsed_ms: u64, gauges: &mut [u64; Gauge::COUNT]) {
        self.refresh();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        gauges[Gauge::Rss.index()] = self
            .system
            .as_ref()
            .and_then(|it| it.process(self.pid))
            .map_or(0, sysinfo::Process::memory);
        gauges[Gauge::RssPeak.index()] = status_bytes(&status, "VmHWM:");
        gauges[Gauge::RssAnon.index()] = status_bytes(&status, "RssAnon:");
        if self.looks.is_multiple_of(LOOKS_A_COUNT) {
            self.memory_limit = self.memory().limit;
            self.descriptors =
                fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        }
        self.looks += 1;
        gauges[Gauge::MemoryLimit.index()] = self.memory_limit;
        gauges[Gauge::Descriptors.index()] = self.descriptors;

        let own = self.own_cpu_ms_now();
        let spent = own.saturating_sub(self.own_cpu_ms);
        self.own_cpu_ms = own;
        gauges[Gauge::Cpu.index()] = permille(spent, elapsed_ms.saturating_mul(self.vcpus));

        if let Some(now) = Ticks::now() {
            let all = now.all.saturating_sub(self.ticks.all);
            let idle = now.idle.saturating_sub(self.ticks.idle);
            gauges[Gauge::HostCpu.index()] = permille(all.saturating_sub(idle), all);
            gauges[Gauge::Steal.index()] =
                permille(now.stolen.saturating_sub(self.ticks.stolen), all);
            self.ticks = now;
        }
    }

    fn refresh(&mut self) {
        if let Some(system) = &mut self.system {
            let kind = ProcessRefreshKind::nothing().with_memory().with_cpu();
            system.refresh_processes_specifics(ProcessesToUpdate::Some(&[self.pid]), false, kind);
        }
    }

    fn own_cpu_ms_now(&self) -> u64 {
        self.system
            .as_ref()
            .and_then(|it| it.process(self.pid))
            .map_or(0, sysinfo::Process::accumulated_cpu_time)
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

/// Raises the number of descriptors that this process may have as far as the system grants. Each request in flight
/// takes two.
///
/// # Errors
///
/// What the system says; the limit is then as it was.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    Ok(setrlimit(Resource::Nofile, raised)?)
}

/// Descriptors that this process may have; none where there is no limit.
#[must_use]
pub fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// When this process was started, in the kernel's ticks since boot; zero where that can't be read.
#[must_use]
pub fn start_ticks() -> u64 {
    // Field 22 of the line; the second is the program's name in parentheses, which may hold blanks.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name
        .split_whitespace()
        .nth(19)
        .and_then(|field| field.parse().ok())
        .unwrap_or(0)
}

fn vcpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

fn permille(part: u64, whole: u64) -> u64 {
    (part * 1_000).checked_div(whole).unwrap_or(0).min(1_000)
}

/// A line of `/proc/self/status` that is in kB.
fn status_bytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        * 1_024
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line: user, nice, system, idle, iowait, irq, softirq, steal, and two that are within user and nice.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<u64> = line
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .take(8)
            .collect();
        let [_, _, _, idle, waiting, _, _, stolen] = fields[..] else {
            return None;
        };
        Some(Self {
            all: fields.iter().sum(),
            idle: idle + waiting,
            stolen,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_field_and_guests_are_not_counted_twice() {
        let ticks =
            Ticks::parse("cpu  10 20 30 400 5 6 7 80 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n").unwrap();
        assert_eq!((ticks.all, ticks.idle, ticks.stolen), (558, 405, 80));
        assert!(Ticks::parse("cpu  1 2 3\n").is_none());
    }

    #[test]
    fn a_process_finds_itself() {
        let mut machine = Machine::new();
        let mut gauges = [0; Gauge::COUNT];
        machine.look(1_000, &mut gauges);
        let of = |gauge: Gauge| gauges[gauge.index()];
        assert!(of(Gauge::Rss) > 1 << 20);
        assert!(of(Gauge::RssPeak) >= of(Gauge::RssAnon) && of(Gauge::RssAnon) > 0);
        assert!(of(Gauge::MemoryLimit) > of(Gauge::Rss));
        assert!(of(Gauge::Descriptors) >= 3);
        assert!(start_ticks() > 0);
    }

    #[test]
    fn memory_lines_are_in_kilobytes() {
        assert_eq!(
            status_bytes("VmPeak:\t 9 kB\nVmHWM:\t   12345 kB\n", "VmHWM:"),
            12_345 * 1_024
        );
        assert_eq!(status_bytes("", "VmHWM:"), 0);
    }
}
