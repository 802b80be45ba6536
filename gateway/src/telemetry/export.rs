//! The exporter: a plain thread that is the segment's only writer. It comes by every 50 ms, so that neither a slow
//! monitor nor the machine's clock of a second is anything to a request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use bifrost_shared::layout::{Counter, Gauge};
use bifrost_shared::record::Record;
use bifrost_shared::snapshot::Runtime;
use bifrost_shared::writer::{Now, Writer};
use ringbuf::traits::{Consumer as _, Observer as _};

use super::access_log::AccessLog;
use super::probe::Probe;
use super::{Ended, Lane, Message, Observed, Telemetry, describe};
use crate::clock::{Clock, unix_ns};
use crate::machine::Machine;

/// How often the exporter comes by. Waking up is most of what it costs while little happens, and a lane holds thirty
/// times as much as comes in between.
const EVERY: Duration = Duration::from_millis(50);
/// Of its visits, each so many wakes the probes: ten times a second. To wake a thread costs more than all else that a
/// visit does, and an idle machine should sleep.
const VISITS_A_PROBE: u64 = 2;
/// Of its visits, each so many looks at how providers and keys stand: five times a second.
const VISITS_A_STANDING: u64 = 4;
/// Records moved at a time, so that readers of the histograms are kept out for some microseconds only.
const BATCH_RECORDS: usize = 256;
/// An exporter that comes this much too late was short of processor time, and says so in the row.
const LATE: Duration = Duration::from_millis(100);

/// The exporter thread's own.
pub(super) struct Export {
    telemetry: Arc<Telemetry>,
    writer: Writer,
    machine: Machine,
    clock: Clock,
    observed: Box<dyn Observed>,
    log: Option<AccessLog>,
    lanes: Vec<Lane>,
    gauges: [u64; Gauge::COUNT],
    /// How long each runtime made a task wait in the second that was closed last.
    delays: Box<[u64]>,
    batch: Box<[Ended]>,
    records: Vec<Record>,
    visits: u64,
}

impl Export {
    pub(super) fn new(
        telemetry: Arc<Telemetry>,
        writer: Writer,
        (machine, clock): (Machine, Clock),
        (observed, log): (Box<dyn Observed>, Option<AccessLog>),
    ) -> Self {
        Self {
            delays: telemetry.probes.iter().map(|_| 0).collect(),
            telemetry,
            writer,
            machine,
            observed,
            log,
            lanes: vec![],
            gauges: [0; Gauge::COUNT],
            batch: vec![(Record::default(), clock.stamp()); BATCH_RECORDS].into_boxed_slice(),
            records: Vec::with_capacity(BATCH_RECORDS),
            clock,
            visits: 0,
        }
    }

    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        let mut second = Instant::now();
        let mut due = second + EVERY;
        self.machine.look(0, &mut self.gauges);
        loop {
            match messages.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Message::Lane(lane)) => self.lanes.push(lane),
                Ok(Message::State(state)) => self.writer.segment().set_state(state),
                Ok(Message::Names(names)) => {
                    // What has ended so far ended under the old ones.
                    self.drain_lanes();
                    self.writer.rename(&describe::names(&names));
                    self.writer.stand(&self.observed.standings());
                    if let Some(log) = &mut self.log {
                        log.rename(names);
                    }
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let now = Instant::now();
                    self.visit();
                    let length = now.duration_since(second);
                    if length >= Duration::from_secs(1) {
                        self.close_second(length);
                        second = now;
                    }
                    due = now + EVERY;
                }
            }
        }
        self.visits = 0;
        self.visit();
        self.writer.segment().remove();
    }

    fn visit(&mut self) {
        // A record counts for those who have a slot when it comes.
        if self.visits.is_multiple_of(VISITS_A_STANDING) {
            self.writer.stand(&self.observed.standings());
        }
        self.visits += 1;
        self.drain_lanes();
        self.observed.gauges(&mut self.gauges);
        self.gauges[Gauge::InFlight.index()] = self.telemetry.in_flight();
        for (shown, value) in self.telemetry.gauges.iter().zip(self.gauges) {
            shown.store(value, Ordering::Relaxed);
        }
        let probes = &self.telemetry.probes;
        let lost = self.telemetry.lost_by_runtime();
        let runtimes: Vec<_> = probes
            .iter()
            .zip(lost.iter().zip(&self.delays))
            .map(|(probe, (lost, delay))| Runtime {
                ran_at: probe.ran_at(),
                delay: *delay,
                lost: *lost,
            })
            .collect();
        if self.visits.is_multiple_of(VISITS_A_PROBE) {
            probes.iter().for_each(Probe::send);
        }
        self.writer.show(Now {
            counters: &self.telemetry.counters(),
            gauges: &self.gauges,
            faults: &self.telemetry.faults(),
            runtimes: &runtimes,
        });
    }

    fn drain_lanes(&mut self) {
        let mut moved = 0;
        let (now, at) = (unix_ns(), self.clock.stamp());
        let in_flight = u32::try_from(self.telemetry.in_flight()).unwrap_or(u32::MAX);
        for lane in &mut self.lanes {
            // What was there when we came is the bound: a lane that fills as fast as it drains must not hold us.
            let mut left = lane.ended.occupied_len();
            while left > 0 {
                let count = lane.ended.pop_slice(&mut self.batch);
                let ended = self.batch[..count].iter();
                self.records.clear();
                self.records.extend(ended.map(|(record, ended)| Record {
                    ended_at: now.saturating_sub(self.clock.between(*ended, at)),
                    in_flight,
                    worker: lane.runtime,
                    ..*record
                }));
                self.writer.absorb(&self.records);
                if let Some(log) = self.log.as_mut().filter(|_| count > 0) {
                    log.log(&self.records);
                }
                moved += count as u64;
                left = left.saturating_sub(count.max(1));
            }
        }
        self.lanes
            .retain(|lane| lane.ended.write_is_held() || !lane.ended.is_empty());
        self.telemetry.count(Counter::Records, moved);
    }

    fn close_second(&mut self, length: Duration) {
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.machine.look(millis, &mut self.gauges);
        for (delay, probe) in self.delays.iter_mut().zip(&self.telemetry.probes) {
            *delay = probe.mean();
        }
        let slowest = self.delays.iter().max().copied();
        self.gauges[Gauge::SchedulerDelay.index()] = slowest.unwrap_or(0);
        let late = length >= Duration::from_secs(1) + LATE;
        let counters = self.telemetry.counters();
        self.writer
            .close_second(unix_ns(), nanos, late, &counters, &self.gauges);
    }
}
