//! Where everything lies in a segment: sections, and the words within each. Offsets are in words of eight bytes unless
//! a name says bytes.

use serde::{Deserialize, Serialize};

use crate::histogram::BUCKETS;
use crate::numbered::numbered;
use crate::record::{Fault, RECORD_WORDS};
use crate::slot;
use crate::stage::Series;

/// "BIFROST" and the layout's family number, as one little-endian word. Written last: who sees it sees a whole segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BIFROST\x01");
/// Readers of another major version refuse.
pub const VERSION_MAJOR: u32 = 2;
/// Readers of another minor version go on with what both know.
pub const VERSION_MINOR: u32 = 0;
/// Room for counters, in the gauges section and in each row. Those that are not yet used are zero and have no name.
pub const COUNTERS_ROOM: usize = 32;
/// Room for gauges, likewise.
pub const GAUGES_ROOM: usize = 32;
/// Room for series, likewise.
pub const SERIES_ROOM: usize = 24;
/// Room for faults, in the gauges section.
pub const FAULTS_ROOM: usize = 32;

const _: () = assert!(Counter::COUNT <= COUNTERS_ROOM && Gauge::COUNT <= GAUGES_ROOM);
const _: () = assert!(Series::COUNT <= SERIES_ROOM && Fault::COUNT <= FAULTS_ROOM);
/// Sections begin on a page.
pub const PAGE_BYTES: usize = 4_096;
/// The header's length.
pub const HEADER_BYTES: usize = PAGE_BYTES;

/// Words of the header.
pub mod header {
    /// [`super::MAGIC`], once everything else is in place.
    pub const MAGIC: usize = 0;
    /// Major version in the upper half, minor in the lower.
    pub const VERSION: usize = 1;
    /// Bytes of the header.
    pub const HEADER_BYTES: usize = 2;
    /// Bytes of the whole segment.
    pub const SEGMENT_BYTES: usize = 3;
    /// Entries of the section table.
    pub const SECTION_COUNT: usize = 4;
    /// A [`super::State`]; the only word of the header that changes.
    pub const STATE: usize = 5;
    /// The section table: [`SECTION_WORDS`] a section.
    pub const SECTIONS: usize = 8;
    /// Kind, offset in bytes, length in bytes, bytes of an entry, number of entries.
    pub const SECTION_WORDS: usize = 5;
    /// As many sections as the table has room for.
    pub const SECTIONS_MAX: usize = 8;
    /// The gateway's process id.
    pub const PID: usize = 48;
    /// When the process started, in the kernel's ticks since boot: with pid and boot id, who it is.
    pub const START_TICKS: usize = 49;
    /// The kernel's boot id, two words.
    pub const BOOT_ID: usize = 50;
    /// When the gateway started, nanoseconds since the Unix epoch.
    pub const STARTED_AT: usize = 52;
    /// A [`super::ClockKind`].
    pub const CLOCK_KIND: usize = 53;
    /// What one stamp costs, in picoseconds, measured at start.
    pub const STAMP_COST_PS: usize = 54;
    /// Processors that the gateway may use.
    pub const VCPUS: usize = 55;
    /// Memory of the host, bytes.
    pub const MEMORY_TOTAL: usize = 56;
    /// The lower of that and the control group's limit, bytes.
    pub const MEMORY_LIMIT: usize = 57;
    /// A [`super::CreditMode`].
    pub const CREDIT_MODE: usize = 58;
    /// `client.buffer_size`.
    pub const BUFFER_SIZE: usize = 59;
    /// `client.initial_pool_size`.
    pub const POOL_SIZE: usize = 60;
    /// Runtimes that serve requests.
    pub const WORKERS: usize = 61;
    /// The limits in force: queue wait (ns), load (1/s), memory (permille), overhead (ns), scheduler delay (ns), credit
    /// runway (ns).
    pub const THRESHOLDS: usize = 64;
    /// The build's version, [`TEXT_WORDS`] words of text.
    pub const BUILD: usize = 80;
    /// The instance type where it is known, [`TEXT_WORDS`] words of text.
    pub const INSTANCE: usize = 88;
    /// Words of a text.
    pub const TEXT_WORDS: usize = 8;
}

/// Whether `text` has the form of an instance type, such as `t3.medium`, and is short enough for the header.
#[must_use]
pub fn is_instance_type(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What a section holds. Readers skip kinds that they do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Section {
    /// A label for each series, counter, gauge, provider and key.
    Names = 1,
    /// Epoch, heartbeats, counters, gauges.
    Gauges = 2,
    /// One cumulative histogram a series.
    Histograms = 3,
    /// One row a second.
    Seconds = 4,
    /// Raw records.
    Samples = 5,
    /// Providers and keys.
    Slots = 6,
}

/// What the gateway is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// Not yet listening.
    Starting = 1,
    /// Serving.
    Running = 2,
    /// Told to stop; finishing what is in flight.
    Draining = 3,
    /// Gone, in good order.
    Stopped = 4,
}

impl State {
    /// The state of that number, if this version knows it.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Starting),
            2 => Some(Self::Running),
            3 => Some(Self::Draining),
            4 => Some(Self::Stopped),
            _ => None,
        }
    }

    /// The name that people and programs read.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
        }
    }
}

/// What stamps are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
#[repr(u64)]
pub enum ClockKind {
    /// The system's monotonic clock: 22 ns a stamp where it is not a system call.
    Monotonic = 0,
    /// The processor's time-stamp counter: 10 ns a stamp.
    Tsc = 1,
}

impl From<u64> for ClockKind {
    /// The kind of that number; one that this version does not know is the slower one.
    fn from(number: u64) -> Self {
        if number == Self::Tsc as u64 {
            Self::Tsc
        } else {
            Self::Monotonic
        }
    }
}

impl From<ClockKind> for u64 {
    fn from(kind: ClockKind) -> Self {
        kind as Self
    }
}

/// What happens when a burstable instance has spent its CPU credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
#[repr(u64)]
pub enum CreditMode {
    /// It is not known, or the instance has none.
    #[default]
    Unknown = 0,
    /// It is held to its baseline.
    Standard = 1,
    /// It goes on, and the surplus is charged.
    Unlimited = 2,
}

impl From<u64> for CreditMode {
    fn from(number: u64) -> Self {
        Self::from_number(number)
    }
}

impl From<CreditMode> for u64 {
    fn from(mode: CreditMode) -> Self {
        mode as Self
    }
}

impl CreditMode {
    /// The mode of that number; one that this version does not know is unknown.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Standard,
            2 => Self::Unlimited,
            _ => Self::Unknown,
        }
    }

    /// The name that people and programs read.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Standard => "standard",
            Self::Unlimited => "unlimited",
        }
    }
}

/// Words of an entry of the names.
pub mod name {
    /// A [`super::NameKind`].
    pub const KIND: usize = 0;
    /// Place within its kind; for a key, the provider's in the upper half.
    pub const INDEX: usize = 1;
    /// Bit 0: a stage that counts in the overhead. Bit 1: a stage.
    pub const FLAGS: usize = 2;
    /// The page's mean on a t3.medium, ns; zero for none.
    pub const REFERENCE_MEDIUM: usize = 3;
    /// The page's mean on a t3.xlarge, ns; zero for none.
    pub const REFERENCE_XLARGE: usize = 4;
    /// The name that programs read.
    pub const KEY: usize = 5;
    /// Words of it.
    pub const KEY_WORDS: usize = 4;
    /// The name that people read.
    pub const LABEL: usize = 9;
    /// Words of it.
    pub const LABEL_WORDS: usize = 7;
    /// Words of an entry.
    pub const WORDS: usize = 16;
    /// Entries that there is room for.
    pub const CAPACITY: usize = 256;
}

/// What a name belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum NameKind {
    /// A histogram.
    Series = 1,
    /// A counter.
    Counter = 2,
    /// A gauge.
    Gauge = 3,
    /// A provider.
    Provider = 4,
    /// A provider's key, by its configured name.
    Key = 5,
    /// A class of failures.
    Fault = 6,
}

/// Words of the gauges section.
pub mod gauges {
    /// Odd while the writer is within the gauges or the histograms.
    pub const EPOCH: usize = 0;
    /// When the exporter last came by, nanoseconds of the system's monotonic clock.
    pub const HEARTBEAT: usize = 1;
    /// The same for each runtime, stamped by a task on it.
    pub const RUNTIME_HEARTBEATS: usize = 8;
    /// As many runtimes as have a heartbeat.
    pub const RUNTIMES_MAX: usize = 64;
    /// Counters, by [`super::Counter`].
    pub const COUNTERS: usize = 128;
    /// Gauges, by [`super::Gauge`].
    pub const GAUGES: usize = 192;
    /// Records lost by each runtime's lane.
    pub const LOST: usize = 256;
    /// How long each runtime made a task wait in the last second, on average, ns.
    pub const DELAYS: usize = 320;
    /// Requests that ended with each [`super::Fault`].
    pub const FAULTS: usize = 384;
    /// Words of the section.
    pub const WORDS: usize = 512;
}

/// Words of a histogram.
pub mod histogram {
    /// Number of values.
    pub const COUNT: usize = 0;
    /// Their sum.
    pub const SUM: usize = 1;
    /// Their maximum.
    pub const MAX: usize = 2;
    /// The first bucket.
    pub const BUCKETS: usize = 8;
    /// Words of a histogram.
    pub const WORDS: usize = BUCKETS + super::BUCKETS;
}

/// A ring begins with a header of its own: the number of entries ever written, then padding.
pub const RING_HEADER_WORDS: usize = 8;

/// Words of a row's payload, the sequence word not counted.
pub mod row {
    /// When the second ended, nanoseconds since the Unix epoch.
    pub const ENDED_AT: usize = 0;
    /// How long it was, nanoseconds.
    pub const DURATION: usize = 1;
    /// See [`super::row_flags`].
    pub const FLAGS: usize = 2;
    /// Requests that waited longer than the limit, counted exactly.
    pub const OVER_QUEUE_LIMIT: usize = 3;
    /// Requests whose overhead was above its limit, counted exactly.
    pub const OVER_OVERHEAD_LIMIT: usize = 4;
    /// What each counter gained.
    pub const COUNTERS: usize = 7;
    /// Each gauge at the second's end.
    pub const GAUGES: usize = COUNTERS + super::COUNTERS_ROOM;
    /// Count, sum, p50, p95, p99 and maximum of each series.
    pub const SERIES: usize = GAUGES + super::GAUGES_ROOM;
    /// Words a series.
    pub const SERIES_WORDS: usize = 6;
    /// Words of a row's payload.
    pub const WORDS: usize = SERIES + SERIES_WORDS * super::SERIES_ROOM;
}

/// Bits of [`row::FLAGS`].
pub mod row_flags {
    /// The exporter came more than 100 ms late: its machine was short of processor time.
    pub const LATE: u64 = 1;
    /// More than a tenth of the processor time was stolen.
    pub const THROTTLED: u64 = 1 << 1;
    /// Records were lost, so the distributions are of a part.
    pub const LOSSES: u64 = 1 << 2;
}

/// Rows in the seconds ring: 15 minutes.
pub const SECONDS_CAPACITY: usize = 900;
/// Records in the sample ring: 3.3 s at 5,000 requests a second.
pub const SAMPLES_CAPACITY: usize = 16_384;

numbered! {
    /// What only grows. Exact: counted where it happens, never from records, of which some may be lost.
    Counter {
        /// Requests whose head was read.
        Started = "started", "Started";
        /// Requests that got their whole answer.
        Completed = "completed", "Completed";
        /// Requests whose client went away first.
        Cancelled = "cancelled", "Cancelled";
        /// Requests that the client got wrong.
        Rejected = "rejected", "Rejected";
        /// Requests turned away by the gateway.
        Refused = "refused", "Refused";
        /// Requests that the provider failed.
        Failed = "failed", "Failed";
        /// Answers that broke off.
        Truncated = "truncated", "Truncated";
        /// Attempts after the first at the same provider.
        Retries = "retries", "Retries";
        /// Times that the next provider of a list was tried.
        Fallbacks = "fallbacks", "Fallbacks";
        /// 429 answers of providers.
        RateLimited = "rate_limited", "Rate limited";
        /// 5xx answers of providers, and broken connections.
        ProviderErrors = "provider_errors", "Provider errors";
        /// Requests that a deadline ended: queue, connect, first byte, idle or total.
        Timeouts = "timeouts", "Timeouts";
        /// Bytes of request bodies.
        RequestBytes = "request_bytes", "Request bytes";
        /// Bytes of answers.
        ResponseBytes = "response_bytes", "Response bytes";
        /// Records that reached the histograms.
        Records = "records", "Records";
        /// Records that found their lane full.
        Lost = "lost", "Lost";
        /// Tokens in, as providers counted them.
        PromptTokens = "prompt_tokens", "Prompt tokens";
        /// Tokens out, as providers counted them.
        CompletionTokens = "completion_tokens", "Completion tokens";
        /// Requests for a stream that ended, however they did.
        Streams = "streams", "Streams";
        /// Connections to providers that a request waited for; not those that another came free before.
        Dials = "dials", "Dials";
    }
}

numbered! {
    /// What rises and falls, as of the last visit of the exporter.
    Gauge {
        /// Requests in the gateway.
        InFlight = "in_flight", "In flight";
        /// Requests that wait for a place at a provider.
        Waiting = "waiting", "Waiting";
        /// Places at providers that are taken.
        Upstream = "upstream", "Upstream";
        /// Open client connections.
        Connections = "connections", "Connections";
        /// Resident memory, bytes, this segment included.
        Rss = "rss", "RSS";
        /// Its peak since start, bytes (`VmHWM`).
        RssPeak = "rss_peak", "RSS peak";
        /// Of it, memory that no file backs, bytes.
        RssAnon = "rss_anon", "RSS anonymous";
        /// Memory limit, bytes.
        MemoryLimit = "memory_limit", "Memory limit";
        /// The gateway's own processor time, thousandths of all processors.
        Cpu = "cpu_permille", "CPU";
        /// Time that the hypervisor gave to others, thousandths of all processors.
        Steal = "steal_permille", "Steal";
        /// Open file descriptors.
        Descriptors = "descriptors", "Descriptors";
        /// Processor time of everything on the machine, thousandths of all processors.
        HostCpu = "host_cpu_permille", "Host CPU";
        /// Bytes of bodies that are held.
        HeldBytes = "held_bytes", "Held bytes";
        /// How long the slowest runtime made a task wait in the last second, on average, ns.
        SchedulerDelay = "scheduler_delay", "Scheduler delay";
    }
}

/// One section's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionPlace {
    /// What it holds.
    pub kind: u64,
    /// Where it begins, bytes from the segment's start.
    pub offset: u64,
    /// How long it is, bytes.
    pub length: u64,
    /// How long an entry is, bytes.
    pub entry: u64,
    /// How many entries it has.
    pub count: u64,
}

/// The sections that this version writes, in order.
#[must_use]
pub fn sections() -> [SectionPlace; 6] {
    let mut at = HEADER_BYTES;
    let mut place = |kind: Section, head_words: usize, entry_words: usize, count: usize| {
        let length = (head_words + entry_words * count) * 8;
        let place = SectionPlace {
            kind: kind as u64,
            offset: at as u64,
            length: length as u64,
            entry: entry_words as u64 * 8,
            count: count as u64,
        };
        at += length.next_multiple_of(PAGE_BYTES);
        place
    };
    [
        place(Section::Names, 0, name::WORDS, name::CAPACITY),
        place(Section::Gauges, 0, gauges::WORDS, 1),
        place(Section::Histograms, 0, histogram::WORDS, SERIES_ROOM),
        place(
            Section::Seconds,
            RING_HEADER_WORDS,
            1 + row::WORDS,
            SECONDS_CAPACITY,
        ),
        place(
            Section::Samples,
            RING_HEADER_WORDS,
            1 + RECORD_WORDS,
            SAMPLES_CAPACITY,
        ),
        place(Section::Slots, 0, slot::WORDS, slot::CAPACITY),
    ]
}

/// Bytes of a segment of this version.
#[must_use]
pub fn segment_bytes() -> usize {
    let last = sections()[5];
    usize::try_from(last.offset + last.length)
        .expect("a segment is some megabytes")
        .next_multiple_of(PAGE_BYTES)
}

/// Writes `text` into words, cut at a character so that it fits, padded with zeroes.
#[must_use]
pub fn text_words<const N: usize>(text: &str) -> [u64; N] {
    let mut bytes = vec![0_u8; N * 8];
    let end = text.floor_char_boundary(bytes.len());
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
    }
    words
}

/// Reads a text from words: up to the first zero, without control characters, whatever the bytes are. It may end up in
/// a terminal.
#[must_use]
pub fn text_of(words: &[u64]) -> String {
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes)
        .chars()
        .filter(|character| !character.is_control())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_follow_one_another_on_pages() {
        let sections = sections();
        assert_eq!(sections[0].offset, 4_096);
        for pair in sections.windows(2) {
            assert!(pair[0].offset + pair[0].length <= pair[1].offset);
            assert_eq!(pair[1].offset % 4_096, 0);
        }
        assert!(segment_bytes() < 6 << 20, "{}", segment_bytes());
    }

    #[test]
    fn a_row_is_whole_cache_lines_and_the_parts_of_the_gauges_keep_apart() {
        assert_eq!((row::WORDS + 1) * 8 % 64, 0);
        const { assert!(COUNTERS_ROOM <= gauges::GAUGES - gauges::COUNTERS) };
        const { assert!(GAUGES_ROOM <= gauges::LOST - gauges::GAUGES) };
        const { assert!(gauges::FAULTS + FAULTS_ROOM <= gauges::WORDS) };
    }

    #[test]
    fn a_text_is_cut_at_a_character_and_stripped_of_control_characters() {
        assert_eq!(text_of(&text_words::<1>("größe10")), "größe1");
        assert_eq!(text_of(&text_words::<2>("a\u{1b}[31mb\n")), "a[31mb");
        assert_eq!(text_of(&[u64::MAX]), "\u{fffd}".repeat(8));
    }
}
