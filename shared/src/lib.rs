//! What the gateway and its monitor both know: the stages of a request, the record that each leaves, the shared-memory
//! segment that carries them, the thresholds that they are judged by, and how long CPU credits last.
//!
//! # The segment
//!
//! One file a gateway process, on tmpfs. Everything in it is a 64-bit word in native (little-endian) order, reached
//! only through [`AtomicU64`](std::sync::atomic::AtomicU64); a section begins on a page.
//!
//! ```text
//!        0 ┌──────────────────────────────────────────────┐
//!          │ header   magic (written last), version,      │  who: pid, start, boot id, build
//!          │          section table, host, limits, state  │  constant, but for the state word
//!     4096 ├──────────────────────────────────────────────┤
//!          │ names    a label for each series, counter,   │  before the magic; those of providers and
//!          │          gauge, provider and key             │  keys again when settings are reloaded
//!          ├──────────────────────────────────────────────┤
//!          │ gauges   epoch │ heartbeats │ counters │     │  one epoch guards gauges, histograms
//!          │          gauges │ faults │ runtimes          │  and slots
//!          ├──────────────────────────────────────────────┤
//!          │ histograms   one per series, cumulative      │  windows are differences of two snapshots
//!          ├──────────────────────────────────────────────┤
//!          │ seconds  900 rows of one second              │  a sequence word a row
//!          ├──────────────────────────────────────────────┤
//!          │ samples  16,384 records, overwritten in turn │  a sequence word a slot
//!          ├──────────────────────────────────────────────┤
//!          │ slots    a provider or key each: state,      │  within the same epoch as the gauges
//!          │          counts, latency                     │
//!          └──────────────────────────────────────────────┘
//! ```
//!
//! **Who writes:** one thread of the gateway, the exporter. **Who reads:** any number of monitors, through a read-only
//! map: they can neither slow the gateway nor hurt it. **How a reader knows that it saw a whole entry:** the sequence
//! words, by the pattern in [`ring`].
//!
//! A change that only adds a section, a name or a word that was reserved raises the minor version. There is room for
//! that everywhere: what a reader of a lower version does not know, it finds named, and a reader of a higher one finds
//! no name for what is not there yet. A change of meaning raises the major version, and so does another stage, outcome
//! or fault of a record or another state of a slot; a reader of another major version refuses, naming both.
//!
//! # Invariants
//!
//! - The writer never waits for a reader.
//! - A reader never trusts the file: each offset is checked against its real length, each text is stripped of control
//!   characters, each loop has a bound.
//! - `unsafe` is in [`segment`] only, and only to map the file.
//! - Nothing here knows an async runtime or a terminal.

#[cfg(not(loom))]
pub mod credits;
#[cfg_attr(loom, expect(dead_code, reason = "most of it is for snapshots"))]
mod forms;
pub mod histogram;
pub mod layout;
mod numbered;
pub mod record;
pub mod ring;
#[cfg(not(loom))] // a model checker's words can't lie in a file
pub mod segment;
pub mod slot;
#[cfg(not(loom))]
pub mod snapshot;
pub mod stage;
pub mod sync;
pub mod thresholds;
#[cfg(not(loom))]
pub mod wire;
#[cfg(not(loom))]
pub mod writer;
