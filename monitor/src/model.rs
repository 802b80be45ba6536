//! What the monitor knows of the gateway: one look after the other, turned into the figures that panels show.
//!
//! It reads no clock and does no I/O, and has never heard of a terminal.

#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod history;
pub(crate) mod listed;
pub(crate) mod liveness;
pub(crate) mod observation;
pub(crate) mod samples;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bifrost_shared::credits::Credits;
use bifrost_shared::histogram::Histogram;
use bifrost_shared::layout::{Counter, Gauge, NameKind, SECONDS_CAPACITY};
use bifrost_shared::snapshot::{Figures, Freshness, Header, Row, View};
use bifrost_shared::stage::Series;

use crate::format::SECOND;
use crate::verdict::{Judge, Verdict};
use history::History;
use listed::{Listed, ListedSeries};
use liveness::Liveness;
use observation::{Observation, Reading, Sight, Trouble};

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

/// All that the monitor shows.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// How much of the past the stage table tells of.
    pub(crate) window: Window,
    /// Whether the help is open.
    pub(crate) shows_help: bool,
    at: u64,
    gateway: Option<Gateway>,
    trouble: Option<Trouble>,
    /// What the gateway was like when the user paused, and when that was.
    frozen: Option<(u64, Gateway)>,
}

impl Model {
    /// A model that has seen nothing yet.
    pub(crate) fn new(window: Window) -> Self {
        Self {
            window,
            ..Self::default()
        }
    }

    /// Takes what a source saw.
    pub(crate) fn absorb(&mut self, observation: Observation) {
        self.at = observation.at;
        match observation.sight {
            Sight::Gateway(reading) => {
                self.trouble = None;
                let (at, unix_ns) = (observation.at, observation.unix_ns);
                match &mut self.gateway {
                    Some(gateway) if gateway.attachment == reading.attachment => {
                        gateway.absorb(*reading, at, unix_ns);
                    }
                    _ => self.gateway = Some(Gateway::new(*reading, at, unix_ns)),
                }
            }
            Sight::Nothing(trouble) => {
                self.gateway = None;
                self.trouble = Some(trouble);
            }
        }
    }

    /// Holds the picture, or lets it go on. What comes in meanwhile is not lost.
    pub(crate) fn toggle_pause(&mut self) {
        self.frozen = match self.frozen.take() {
            Some(_) => None,
            None => self.gateway.clone().map(|gateway| (self.at, gateway)),
        };
    }

    /// How far a paused picture is behind, nanoseconds. None when it isn't paused.
    pub(crate) fn behind(&self) -> Option<u64> {
        let (since, _) = self.frozen.as_ref()?;
        Some(self.at.saturating_sub(*since))
    }

    /// The gateway to show: as it is, or as it was when the user paused.
    pub(crate) fn gateway(&self) -> Option<&Gateway> {
        match &self.frozen {
            Some((_, gateway)) => Some(gateway),
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
    figures: Option<Figures>,
    /// At most as many as the segment keeps, oldest first.
    rows: VecDeque<Row>,
    /// How many of `rows` were closed before we came.
    rows_before: usize,
    history: History,
    judge: Judge,
}

impl Gateway {
    fn new(reading: Reading, at: u64, unix_ns: u64) -> Self {
        let header = &reading.view.header;
        let judge = Judge::new(header);
        let rows_before = reading.rows.len().min(SECONDS_CAPACITY);
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
            rows: VecDeque::new(),
            rows_before: 0,
            history: History::default(),
            judge,
        };
        gateway.absorb(reading, at, unix_ns);
        gateway.rows_before = rows_before;
        gateway
    }

    fn absorb(&mut self, reading: Reading, at: u64, unix_ns: u64) {
        self.liveness = Liveness::of(&reading, at);
        self.view = reading.view;
        self.freshness = reading.freshness;
        self.at = at;
        self.unix_ns = unix_ns;
        for row in reading.rows {
            self.judge.absorb(&row);
            self.rows.push_back(row);
            if self.rows.len() > SECONDS_CAPACITY {
                self.rows.pop_front();
                self.rows_before = self.rows_before.saturating_sub(1);
            }
        }
        if let Some(figures) = reading.figures {
            self.history.absorb(self.freshness.exporter_at, &figures);
            self.figures = Some(figures);
        }
        self.verdict = self.judge.verdict(self.liveness.staleness(self.age()));
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

    /// Its closed seconds, oldest first.
    pub(crate) const fn rows(&self) -> &VecDeque<Row> {
        &self.rows
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
        let gauges = match (&self.figures, self.rows.back()) {
            (Some(figures), _) => &figures.gauges,
            (None, row) => &row?.gauges,
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
        if self.is_younger_than(window) {
            return self.since_start(series);
        }
        let before: Vec<_> = self.rows.iter().take(self.rows_before).collect();
        let histogram = self.history.window(series.place?, window.ns(), &before);
        Some(Stats::of(&histogram))
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
