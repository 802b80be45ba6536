//! What the monitor knows of the gateway: one look after the other, turned into the figures that panels show.
//!
//! It reads no clock and does no I/O, and has never heard of a terminal.

#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod focus;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod listed;
pub(crate) mod liveness;
pub(crate) mod moments;
pub(crate) mod observation;
pub(crate) mod peaks;
pub(crate) mod requests;
pub(crate) mod samples;
mod slice;
pub(crate) mod slots;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use bifrost_shared::credits::Credits;
use bifrost_shared::histogram::Histogram;
use bifrost_shared::layout::{Counter, Gauge, NameKind};
use bifrost_shared::record::{NONE, Record};
use bifrost_shared::slot::{Slot, SlotState};
use bifrost_shared::snapshot::{Figures, Freshness, Header, Row, Runtime, View};
use bifrost_shared::stage::{Series, Stage};

use crate::format::SECOND;
use crate::verdict::{Judge, Verdict};
use focus::{Focus, Step, Topic};
use history::History;
use journal::{Episodes, Journal, Subject, Weight};
use listed::{Listed, ListedSeries};
use liveness::Liveness;
use moments::Moments;
use observation::{Observation, Reading, Sight, Trouble};
use peaks::Peaks;
use requests::Requests;
use slots::{Gain, SlotHistory};

/// The help has no more lines.
const HELP_LINES_MAX: usize = 60;

/// How much of the past the stage table tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Window {
    /// Ten seconds.
    Short,
    /// A minute.
    #[default]
    Minute,
    /// Five minutes.
    Long,
}

impl Window {
    /// The window of so many seconds, as a user writes it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "10" => Ok(Self::Short),
            "60" => Ok(Self::Minute),
            "300" => Ok(Self::Long),
            _ => Err("a window is 10, 60 or 300 seconds".to_owned()),
        }
    }

    /// Its length.
    pub(crate) const fn seconds(self) -> u64 {
        match self {
            Self::Short => 10,
            Self::Minute => 60,
            Self::Long => 300,
        }
    }

    /// The next longer one; after the longest, the shortest.
    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Short => Self::Minute,
            Self::Minute => Self::Long,
            Self::Long => Self::Short,
        }
    }

    const fn ns(self) -> u64 {
        self.seconds() * SECOND
    }
}

/// What a distribution comes to, nanoseconds. All but the count are missing without values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stats {
    /// How many values there were.
    pub(crate) count: u64,
    /// Their mean, exact.
    pub(crate) mean: Option<u64>,
    /// The value that half of them do not exceed.
    pub(crate) p50: Option<u64>,
    /// The same for 95 of 100.
    pub(crate) p95: Option<u64>,
    /// The same for 99 of 100.
    pub(crate) p99: Option<u64>,
    /// The largest.
    pub(crate) max: Option<u64>,
}

impl Stats {
    fn of(histogram: &Histogram) -> Self {
        Self {
            count: histogram.count,
            mean: histogram.mean(),
            p50: histogram.quantile(0.5),
            p95: histogram.quantile(0.95),
            p99: histogram.quantile(0.99),
            max: (histogram.count > 0).then_some(histogram.max),
        }
    }
}

/// A picture that is held.
#[derive(Debug)]
struct Frozen {
    /// Since when, nanoseconds of the system's monotonic clock.
    since: u64,
    gateway: Gateway,
    journal: Journal,
}

/// All that the monitor shows.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// How much of the past the stage table tells of.
    pub(crate) window: Window,
    /// What the user looks at.
    pub(crate) focus: Focus,
    at: u64,
    unix_ns: u64,
    gateway: Option<Gateway>,
    trouble: Option<Trouble>,
    journal: Journal,
    /// The process id of the gateway that was seen last.
    last_pid: Option<u64>,
    /// What there was to see when the user paused.
    frozen: Option<Frozen>,
}

impl Model {
    /// A model that has seen nothing yet.
    pub(crate) fn new(window: Window) -> Self {
        let mut model = Self {
            window,
            ..Self::default()
        };
        // The stage that the verdict is about.
        model.focus.places[Topic::Stages.index()] = Stage::QueueWait.index();
        model
    }

    /// Takes what a source saw.
    pub(crate) fn absorb(&mut self, observation: Observation) {
        self.at = observation.at;
        self.unix_ns = observation.unix_ns;
        let (at, unix_ns) = (observation.at, observation.unix_ns);
        match observation.sight {
            Sight::Gateway(reading) => {
                self.trouble = None;
                match &mut self.gateway {
                    Some(gateway) if gateway.attachment == reading.attachment => {
                        gateway.absorb(*reading, at, unix_ns, &mut self.journal);
                    }
                    _ => {
                        let pid = reading.view.header.pid;
                        self.journal.gateway(unix_ns, pid, self.last_pid);
                        self.last_pid = Some(pid);
                        let gateway = Gateway::new(*reading, at, unix_ns, &mut self.journal);
                        self.gateway = Some(gateway);
                    }
                }
            }
            Sight::Nothing(trouble) => {
                self.gateway = None;
                if self.trouble.as_ref() != Some(&trouble) {
                    let text = format!("{}: {}", trouble.label(), trouble.what());
                    self.journal
                        .push(unix_ns, Subject::Gateway, Weight::Bad, text);
                }
                self.trouble = Some(trouble);
            }
        }
    }

    /// When it last looked, nanoseconds since the Unix epoch.
    pub(crate) const fn seen_at(&self) -> u64 {
        self.unix_ns
    }

    /// What happened so far, or had when the user paused.
    pub(crate) fn journal(&self) -> &Journal {
        match &self.frozen {
            Some(frozen) => &frozen.journal,
            None => &self.journal,
        }
    }

    /// Forgets the highest figures and the slowest requests.
    pub(crate) fn clear_peaks(&mut self) {
        let frozen = self.frozen.as_mut().map(|frozen| &mut frozen.gateway);
        for gateway in self.gateway.iter_mut().chain(frozen) {
            gateway.peaks = Peaks::default();
            gateway.requests.clear_slow();
        }
    }

    /// The requests to show, in the user's order, that match the user's filter.
    pub(crate) fn requests<'a>(&self, gateway: &'a Gateway) -> Vec<&'a Record> {
        let mut sorted = gateway.requests.sorted(self.focus.order);
        if !self.focus.filter.is_empty() {
            sorted.retain(|record| {
                requests::matches(&gateway.description(record), &self.focus.filter)
            });
        }
        sorted
    }

    /// The place of the selected request in `requests`: the first, where it is gone or none was selected.
    pub(crate) fn selected_request(&self, requests: &[&Record]) -> usize {
        let selected = |record: &&Record| Some((record.ended_at, record.id)) == self.focus.request;
        requests.iter().position(selected).unwrap_or(0)
    }

    /// Moves the selection in the list of the topic.
    pub(crate) fn select(&mut self, step: Step) {
        let topic = self.focus.topic;
        if self.focus.shows_help {
            self.focus.help_place = step.from(self.focus.help_place, HELP_LINES_MAX);
            return;
        }
        if topic == Topic::Requests {
            self.focus.request = self.gateway().and_then(|gateway| {
                let requests = self.requests(gateway);
                let place = step.from(self.selected_request(&requests), requests.len());
                let record = requests.get(place)?;
                Some((record.ended_at, record.id))
            });
            return;
        }
        let length = match (topic, self.gateway()) {
            (Topic::Stages, Some(gateway)) => gateway.series().len(),
            (Topic::Keys, Some(gateway)) => gateway.slots().len(),
            (Topic::Events, _) => self.journal().events().len(),
            _ => 0,
        };
        let place = &mut self.focus.places[topic.index()];
        *place = step.from(*place, length);
    }

    /// Sorts requests by something else, from its first.
    pub(crate) fn next_order(&mut self) {
        self.focus.order = self.focus.order.next();
        self.focus.request = None;
    }

    /// Holds the picture, or lets it go on. What comes in meanwhile is not lost.
    pub(crate) fn toggle_pause(&mut self) {
        self.frozen = match self.frozen.take() {
            Some(_) => None,
            None => self.gateway.clone().map(|gateway| Frozen {
                since: self.at,
                gateway,
                journal: self.journal.clone(),
            }),
        };
    }

    /// How far a paused picture is behind, nanoseconds. None when it isn't paused.
    pub(crate) fn behind(&self) -> Option<u64> {
        let frozen = self.frozen.as_ref()?;
        Some(self.at.saturating_sub(frozen.since))
    }

    /// The gateway to show: as it is, or as it was when the user paused.
    pub(crate) fn gateway(&self) -> Option<&Gateway> {
        match &self.frozen {
            Some(frozen) => Some(&frozen.gateway),
            None => self.gateway.as_ref(),
        }
    }

    /// How the gateway is now, paused or not.
    pub(crate) fn liveness(&self) -> Option<Liveness> {
        self.gateway.as_ref().map(|gateway| gateway.liveness)
    }

    /// Why there is no gateway to see.
    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// What `series` of `gateway` came to in the window. None where its segment has no such series.
    pub(crate) fn in_window(&self, gateway: &Gateway, series: &ListedSeries) -> Option<Stats> {
        gateway.in_window(series, self.window)
    }
}

/// One gateway process, as its segment tells it.
#[derive(Debug, Clone)]
pub(crate) struct Gateway {
    /// How it is.
    pub(crate) liveness: Liveness,
    /// Whether its instance is still big enough.
    pub(crate) verdict: Verdict,
    attachment: u64,
    path: PathBuf,
    view: Rc<View>,
    freshness: Freshness,
    is_replayed: bool,
    at: u64,
    unix_ns: u64,
    figures: Option<Rc<Figures>>,
    last_row: Option<Box<Row>>,
    moments: Moments,
    history: History,
    judge: Judge,
    requests: Requests,
    peaks: Peaks,
    slot_history: SlotHistory,
    episodes: Episodes,
    /// Whether its first rows are still to come.
    is_new: bool,
    /// Whether `verdict` was told to the journal.
    is_judged: bool,
}

impl Gateway {
    fn new(reading: Reading, at: u64, unix_ns: u64, journal: &mut Journal) -> Self {
        let header = &reading.view.header;
        let judge = Judge::new(header);
        let mut gateway = Self {
            liveness: Liveness::of(&reading, at),
            verdict: judge.verdict(None),
            attachment: reading.attachment,
            path: reading.path.clone(),
            view: Rc::clone(&reading.view),
            freshness: reading.freshness,
            is_replayed: reading.is_replayed,
            at,
            unix_ns,
            figures: None,
            last_row: None,
            moments: Moments::default(),
            history: History::after(&reading.rows),
            judge,
            requests: Requests::default(),
            peaks: Peaks::default(),
            slot_history: SlotHistory::default(),
            episodes: Episodes::default(),
            is_new: true,
            is_judged: false,
        };
        journal.liveness(unix_ns, gateway.liveness);
        gateway.absorb(reading, at, unix_ns, journal);
        gateway
    }

    fn absorb(&mut self, reading: Reading, at: u64, unix_ns: u64, journal: &mut Journal) {
        let liveness = Liveness::of(&reading, at);
        if liveness.key() != self.liveness.key() {
            journal.liveness(unix_ns, liveness);
        }
        self.liveness = liveness;
        self.view = reading.view;
        self.freshness = reading.freshness;
        self.at = at;
        self.unix_ns = unix_ns;
        for row in reading.rows {
            self.absorb_row(row, journal);
        }
        self.is_new = false;
        for record in &reading.records {
            self.requests.absorb(record);
        }
        self.requests.missed = reading.records_missed;
        if let Some(figures) = reading.figures {
            let figures = Rc::new(figures);
            let exported_at = self.freshness.exporter_at;
            self.history.absorb(exported_at, &figures);
            self.slot_history.absorb(exported_at, &figures.slots);
            if let Some(before) = &self.figures {
                let name = |slot: &Slot| self.slot_name(slot);
                journal.slots(unix_ns, &before.slots, &figures.slots, name);
            }
            self.figures = Some(figures);
        }
        let verdict = self.judge.verdict(self.liveness.staleness(self.age()));
        self.judged(unix_ns, verdict, journal);
    }

    fn absorb_row(&mut self, row: Row, journal: &mut Journal) {
        self.judge.absorb(&row);
        if self.is_new {
            // Second by second, so that a late comer knows when each verdict began.
            let verdict = self.judge.verdict(None);
            self.judged(row.ended_at, verdict, journal);
        }
        self.episodes.absorb(&row, journal);
        self.peaks.absorb(&row);
        self.moments.absorb(&row);
        self.last_row = Some(Box::new(row));
    }

    fn judged(&mut self, unix_ns: u64, verdict: Verdict, journal: &mut Journal) {
        let before = self.is_judged.then_some(&self.verdict);
        journal.verdict(unix_ns, before, &verdict);
        self.is_judged = true;
        self.verdict = verdict;
    }

    /// Whether it is shown again, from a recording.
    pub(crate) const fn is_replayed(&self) -> bool {
        self.is_replayed
    }

    /// Requests that we were not told of: they were gone from the segment, or left out by a gateway elsewhere.
    pub(crate) const fn requests_missed(&self) -> u64 {
        self.requests.missed
    }

    /// The highest figures.
    pub(crate) const fn peaks(&self) -> &Peaks {
        &self.peaks
    }

    /// How each of its runtimes is.
    pub(crate) fn runtimes(&self) -> &[Runtime] {
        self.figures
            .as_ref()
            .map_or(&[], |figures| &figures.runtimes)
    }

    /// When its writer last came by, on the system's monotonic clock.
    pub(crate) const fn exported_at(&self) -> u64 {
        self.freshness.exporter_at
    }

    /// Its providers and keys, each provider before its keys.
    pub(crate) fn slots(&self) -> Vec<&Slot> {
        let all = self.figures.iter().flat_map(|figures| &figures.slots);
        let mut slots: Vec<_> = all.filter(|slot| slot.state != SlotState::Empty).collect();
        slots.sort_by_key(|slot| (slot.provider, slot.key));
        slots
    }

    /// The same, each with what it gained in `window`.
    pub(crate) fn slots_in(&self, window: Window) -> Vec<(&Slot, Gain)> {
        let Some(figures) = &self.figures else {
            return vec![];
        };
        let now = self.freshness.exporter_at;
        let gains = self
            .slot_history
            .gains(now, &figures.slots, window, self.uptime());
        let mut slots: Vec<_> = figures.slots.iter().zip(gains).collect();
        slots.retain(|(slot, _)| slot.state != SlotState::Empty);
        slots.sort_by_key(|(slot, _)| (slot.provider, slot.key));
        slots
    }

    /// What a provider or key is called.
    pub(crate) fn slot_name(&self, slot: &Slot) -> String {
        let kind = match slot.key {
            None => NameKind::Provider,
            Some(_) => NameKind::Key,
        };
        let mut names = self.view.names_of(kind);
        let name = names.find(|name| name.index == slot.name_index());
        match (name, slot.key) {
            (Some(name), _) => name.label.clone(),
            (None, None) => format!("provider {}", slot.provider),
            (None, Some(key)) => format!("provider {} key {key}", slot.provider),
        }
    }

    /// What the provider and key of a request are called. None where it got to none.
    pub(crate) fn chosen_by(&self, record: &Record) -> Option<String> {
        if record.provider == NONE {
            return None;
        }
        let (kind, index) = match record.key {
            NONE => (NameKind::Provider, u64::from(record.provider)),
            key => {
                let provider = u64::from(record.provider);
                (NameKind::Key, provider << 32 | u64::from(key))
            }
        };
        let mut names = self.view.names_of(kind);
        let name = names.find(|name| name.index == index);
        Some(name.map_or_else(
            || format!("provider {}", record.provider),
            |name| name.label.clone(),
        ))
    }

    /// All that a request can be found by.
    fn description(&self, record: &Record) -> String {
        let chosen = self.chosen_by(record).unwrap_or_default();
        let (outcome, fault) = (record.outcome.label(), record.fault);
        let (status, id) = (record.status, record.id);
        format!(
            "{outcome} {} {} {status} {id:016x} {chosen}",
            fault.key(),
            fault.label()
        )
    }

    /// How `series` was distributed in the last `window`. None where its segment has no such series.
    pub(crate) fn histogram(&self, series: &ListedSeries, window: Window) -> Option<Histogram> {
        let place = series.place?;
        if self.is_younger_than(window) {
            return self.figures.as_ref()?.histograms.get(place).cloned();
        }
        Some(self.history.window(place, window.ns()))
    }

    /// Who writes the segment.
    pub(crate) fn header(&self) -> &Header {
        &self.view.header
    }

    /// Where the segment is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How old the figures are, nanoseconds.
    pub(crate) const fn age(&self) -> u64 {
        self.at.saturating_sub(self.freshness.exporter_at)
    }

    /// How long the gateway has run, or had when it last wrote, nanoseconds.
    pub(crate) fn uptime(&self) -> u64 {
        let written_at = self.unix_ns.saturating_sub(self.age());
        written_at.saturating_sub(self.header().started_at)
    }

    /// When it was looked at, nanoseconds since the Unix epoch.
    pub(crate) const fn seen_at(&self) -> u64 {
        self.unix_ns
    }

    /// Its last closed second.
    pub(crate) fn last_row(&self) -> Option<&Row> {
        self.last_row.as_deref()
    }

    /// What charts tell of its closed seconds.
    pub(crate) const fn moments(&self) -> &Moments {
        &self.moments
    }

    /// What reading the clock takes of a stage's time, nanoseconds, rounded up: less than that is no figure.
    pub(crate) fn floor(&self) -> u64 {
        self.header().stamp_cost_ps.div_ceil(1_000)
    }

    /// How long its instance's CPU credits last, estimated. None where it has none, or it is not known.
    pub(crate) fn credits(&self) -> Option<Credits> {
        self.judge.credits()
    }

    /// Its distributions: all that its segment names, and all that we know.
    pub(crate) fn series(&self) -> Vec<ListedSeries> {
        listed::series(&self.view)
    }

    /// One of those that we know.
    pub(crate) fn one_series(&self, series: Series) -> ListedSeries {
        listed::one(&self.view, series)
    }

    /// Its counters, likewise.
    pub(crate) fn counters(&self) -> Vec<Listed<Counter>> {
        let names = |counter: Counter| (counter.key(), counter.label());
        let kind = NameKind::Counter;
        listed::counts(&self.view, kind, Counter::ALL, names, |at| {
            self.counter_at(at)
        })
    }

    /// Its gauges, likewise.
    pub(crate) fn gauges(&self) -> Vec<Listed<Gauge>> {
        let names = |gauge: Gauge| (gauge.key(), gauge.label());
        let kind = NameKind::Gauge;
        listed::counts(&self.view, kind, Gauge::ALL, names, |at| self.gauge_at(at))
    }

    /// What `counter` has come to since the gateway started. None where its segment has no such counter, or the figures
    /// can't be read: the gateway died while it changed them, before we came.
    pub(crate) fn counter(&self, counter: Counter) -> Option<u64> {
        self.counter_at(listed::place(&self.view, NameKind::Counter, counter.key())?)
    }

    /// `gauge`, now or when the gateway last wrote; as of the last closed second where the figures can't be read. None
    /// where its segment has no such gauge.
    pub(crate) fn gauge(&self, gauge: Gauge) -> Option<u64> {
        self.gauge_at(listed::place(&self.view, NameKind::Gauge, gauge.key())?)
    }

    fn counter_at(&self, place: usize) -> Option<u64> {
        self.figures.as_ref()?.counters.get(place).copied()
    }

    fn gauge_at(&self, place: usize) -> Option<u64> {
        let gauges = match (&self.figures, &self.last_row) {
            (Some(figures), _) => &figures.gauges,
            (None, row) => &row.as_ref()?.gauges,
        };
        gauges.get(place).copied()
    }

    /// What `series` came to since the gateway started. None where its segment has no such series, or the figures can't
    /// be read.
    pub(crate) fn since_start(&self, series: &ListedSeries) -> Option<Stats> {
        let figures = self.figures.as_ref()?;
        figures.histograms.get(series.place?).map(Stats::of)
    }

    /// What `series` came to in the last `window`, or in the last one that the gateway lived. None where its segment has
    /// no such series.
    pub(crate) fn in_window(&self, series: &ListedSeries, window: Window) -> Option<Stats> {
        self.histogram(series, window).as_ref().map(Stats::of)
    }

    /// Whether the quantiles of `window` are estimates, since part of it lies before we came, or all of it is shown again.
    pub(crate) fn is_estimated(&self, window: Window) -> bool {
        self.is_replayed || (!self.is_younger_than(window) && !self.history.covers(window.ns()))
    }

    /// A gateway that has not lived for a whole window: all it ever counted lies within.
    fn is_younger_than(&self, window: Window) -> bool {
        self.figures.is_some() && self.uptime() <= window.ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(model: &Model) -> Vec<&str> {
        let events = model.journal().events().iter();
        events.map(|event| event.text.as_str()).collect()
    }

    #[test]
    fn a_late_comer_learns_when_each_verdict_began() {
        let model = fixture::seen(fixture::page(3_790, 91_800));
        let events = model.journal().events().iter();
        let verdicts = events.filter(|it| it.subject == Subject::Verdict);
        let verdicts: Vec<_> = verdicts
            .map(|it| {
                let ago = (fixture::UNIX_NS - it.unix_ns) / SECOND;
                (ago, it.text.split(" t3").next().unwrap())
            })
            .collect();
        // The load is watched from the first second; queue wait is breached once a whole minute was over its limit.
        assert_eq!(verdicts, [(300, "WATCH on"), (241, "WATCH -> UPGRADE to")]);
    }

    #[test]
    fn death_restart_and_absence_are_told_once_each() {
        let mut model = Model::default();
        let mut look = |pid: u64, attachment, alive, seconds: u64| {
            let header = Header {
                pid,
                ..fixture::header()
            };
            let mut reading = fixture::reading_of(&header, &[]);
            (reading.attachment, reading.alive) = (attachment, alive);
            let mut observation = fixture::observation(reading);
            observation.unix_ns += seconds * SECOND;
            model.absorb(observation);
        };
        look(1, 1, true, 0);
        look(1, 1, true, 1);
        look(1, 1, false, 2);
        look(1, 1, false, 3);
        look(2, 2, true, 4);
        for second in 5..7 {
            model.absorb(Observation {
                at: fixture::AT,
                unix_ns: fixture::UNIX_NS + second * SECOND,
                sight: Sight::Nothing(Trouble::NoGateway {
                    tried: vec!["here".into()],
                }),
            });
        }
        let events = model.journal().events().iter();
        let events = events.filter(|it| it.subject == Subject::Gateway);
        let events: Vec<_> = events.map(|it| it.text.as_str()).collect();
        assert_eq!(
            events,
            [
                "pid 1 found",
                "LIVE",
                "DEAD",
                "pid 2 after 1: restarted, or a newer one",
                "LIVE",
                "NO GATEWAY: no segment in here",
            ]
        );
    }

    #[test]
    fn a_paused_picture_has_no_later_events_or_requests_and_loses_none() {
        let mut model = fixture::busy();
        let seen = |model: &Model| {
            let requests = model.requests(model.gateway().unwrap());
            (model.journal().events().len(), requests[0].ended_at)
        };
        let before = seen(&model);
        model.toggle_pause();
        let mut later = fixture::busy_later();
        let Sight::Gateway(reading) = &mut later.sight else {
            panic!("{later:?}")
        };
        reading.alive = false;
        model.absorb(later);
        assert_eq!(seen(&model), before);
        model.toggle_pause();
        let after = seen(&model);
        assert!(after.0 > before.0, "{:?}", texts(&model));
        assert_eq!(after.1, before.1 + SECOND);
    }

    #[test]
    fn cleared_peaks_come_from_what_is_seen_next() {
        let mut model = fixture::busy();
        model.toggle_pause();
        model.clear_peaks();
        let is_clear = |model: &Model| {
            let mut peaks = model.gateway().unwrap().peaks().all();
            peaks.all(|(_, peak)| peak.is_none())
        };
        assert!(is_clear(&model), "of the paused picture");
        model.toggle_pause();
        assert!(is_clear(&model), "and of what goes on behind it");
        model.absorb(fixture::busy_later());
        assert!(!is_clear(&model));
    }
}
