//! What the user looks at and how: changed by keys alone, and never by what a gateway does.

use clap::ValueEnum;

/// What the screen is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Topic {
    /// Verdict, triggers, stages, and the rest in brief.
    #[default]
    Overview,
    /// Where requests spend their time.
    Stages,
    /// Providers and their keys.
    Keys,
    /// Single requests, recent and slow.
    Requests,
    /// Memory, processors and runtimes.
    Runtime,
    /// What happened, and when.
    Events,
}

impl Topic {
    /// Every topic, in the order of their keys.
    pub(crate) const ALL: [Self; 6] = [
        Self::Overview,
        Self::Stages,
        Self::Keys,
        Self::Requests,
        Self::Runtime,
        Self::Events,
    ];

    /// Its place in [`ALL`](Self::ALL).
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The name that people read.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Stages => "stages",
            Self::Keys => "keys",
            Self::Requests => "requests",
            Self::Runtime => "runtime",
            Self::Events => "events",
        }
    }

    /// What it is made of, in the order of Tab.
    pub(crate) const fn panes(self) -> &'static [Pane] {
        match self {
            Self::Overview => &[
                Pane::Triggers,
                Pane::Stages,
                Pane::QueueWait,
                Pane::Overhead,
                Pane::Load,
                Pane::Memory,
                Pane::Keys,
                Pane::Events,
            ],
            Self::Stages => &[Pane::Stages, Pane::Histogram],
            Self::Keys => &[Pane::Keys],
            Self::Requests => &[Pane::Requests, Pane::Request],
            Self::Runtime => &[
                Pane::Memory,
                Pane::Processors,
                Pane::Delay,
                Pane::Runtimes,
                Pane::Peaks,
                Pane::Counts,
            ],
            Self::Events => &[Pane::Events],
        }
    }
}

/// A part of the screen that can have it all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pane {
    /// What asks for a larger instance.
    Triggers,
    /// The stage table.
    Stages,
    /// Queue wait over time.
    QueueWait,
    /// Overhead over time.
    Overhead,
    /// Load over time.
    Load,
    /// Memory over time.
    Memory,
    /// Providers and keys.
    Keys,
    /// What happened.
    Events,
    /// How the selected stage's times are distributed.
    Histogram,
    /// The list of requests.
    Requests,
    /// The selected request.
    Request,
    /// Processor time over time.
    Processors,
    /// Scheduler delay over time.
    Delay,
    /// How each runtime is.
    Runtimes,
    /// The highest figures.
    Peaks,
    /// Every counter and gauge.
    Counts,
}

impl Pane {
    /// The name that people read.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Triggers => "triggers",
            Self::Stages => "stages",
            Self::QueueWait => "queue wait",
            Self::Overhead => "overhead",
            Self::Load => "load",
            Self::Memory => "memory",
            Self::Keys => "keys",
            Self::Events => "events",
            Self::Histogram => "histogram",
            Self::Requests => "requests",
            Self::Request => "one request",
            Self::Processors => "processors",
            Self::Delay => "scheduler delay",
            Self::Runtimes => "runtimes",
            Self::Peaks => "peaks",
            Self::Counts => "counts",
        }
    }
}

/// What requests are sorted by, largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Order {
    /// When they ended.
    #[default]
    Time,
    /// From the request's head to its end.
    Total,
    /// The page's overhead.
    Overhead,
    /// Waiting for a place.
    QueueWait,
}

impl Order {
    /// The next one; after the last, the first.
    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Time => Self::Total,
            Self::Total => Self::Overhead,
            Self::Overhead => Self::QueueWait,
            Self::QueueWait => Self::Time,
        }
    }

    /// The name that people read.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Total => "total",
            Self::Overhead => "overhead",
            Self::QueueWait => "queue wait",
        }
    }
}

/// Which named colours carry a meaning: what can be read on black may not be on white.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Theme {
    /// The terminal's eight.
    #[default]
    Terminal,
    /// For a dark background.
    Dark,
    /// For a light background.
    Light,
    /// None.
    Mono,
}

impl Theme {
    /// The theme that a user names.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let all = [Self::Terminal, Self::Dark, Self::Light, Self::Mono];
        let found = all.into_iter().find(|theme| theme.label() == text);
        found.ok_or_else(|| "a theme is terminal, dark, light or mono".to_owned())
    }

    /// The next one; after the last, the first.
    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Terminal => Self::Dark,
            Self::Dark => Self::Light,
            Self::Light => Self::Mono,
            Self::Mono => Self::Terminal,
        }
    }

    /// The name that people read.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Dark => "dark",
            Self::Light => "light",
            Self::Mono => "mono",
        }
    }
}

/// A movement in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many places up.
    Up(usize),
    /// So many places down.
    Down(usize),
    /// To the first place.
    First,
    /// To the last place.
    Last,
}

impl Step {
    /// The place that it leads to from `place`, of `length` places.
    pub(crate) fn from(self, place: usize, length: usize) -> usize {
        let last = length.saturating_sub(1);
        match self {
            Self::Up(by) => place.min(last).saturating_sub(by),
            Self::Down(by) => place.saturating_add(by).min(last),
            Self::First => 0,
            Self::Last => last,
        }
    }
}

/// What the user looks at.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is something that a key opens and closes"
)]
pub(crate) struct Focus {
    /// What the screen is about.
    pub(crate) topic: Topic,
    /// Whether the help is open.
    pub(crate) shows_help: bool,
    /// Whether one pane has the whole screen.
    pub(crate) is_zoomed: bool,
    /// What requests have to match.
    pub(crate) filter: String,
    /// Whether keys are taken for the filter's letters.
    pub(crate) is_typing: bool,
    /// What requests are sorted by.
    pub(crate) order: Order,
    /// Which colours carry a meaning.
    pub(crate) theme: Theme,
    /// Whether what is seen is being recorded.
    pub(crate) is_recording: bool,
    /// Something to tell the user once, until the next key.
    pub(crate) notice: Option<String>,
    /// The pane that was chosen with Tab, by its place within its topic.
    pane: Option<usize>,
    /// The first line of the help, where it has more than fit.
    pub(crate) help_place: usize,
    /// The selected place of each topic's list. Requests come and go, and have their own below.
    pub(super) places: [usize; Topic::ALL.len()],
    /// The selected request, by when it ended and its id. None follows the first of the list.
    pub(super) request: Option<(u64, u64)>,
}

impl Focus {
    /// Turns to `topic`.
    pub(crate) fn turn_to(&mut self, topic: Topic) {
        self.topic = topic;
        self.pane = None;
        self.is_zoomed = false;
    }

    /// The pane that was chosen, if any was.
    pub(crate) fn pane(&self) -> Option<Pane> {
        self.topic.panes().get(self.pane?).copied()
    }

    /// The pane that has, or would have, the whole screen.
    pub(crate) fn main_pane(&self) -> Pane {
        self.pane().unwrap_or(self.topic.panes()[0])
    }

    /// Chooses the next pane, or the one before.
    pub(crate) fn cycle(&mut self, is_back: bool) {
        let count = self.topic.panes().len();
        self.pane = Some(match (self.pane, is_back) {
            (None, false) => 0,
            (None, true) => count - 1,
            (Some(place), false) => (place + 1) % count,
            (Some(place), true) => (place + count - 1) % count,
        });
    }

    /// Chooses `pane`, if its topic has it.
    pub(crate) fn choose(&mut self, pane: Pane) {
        self.pane = self.topic.panes().iter().position(|it| *it == pane);
    }

    /// The selected place of the topic's list.
    pub(crate) const fn place(&self) -> usize {
        self.places[self.topic.index()]
    }

    /// Undoes the last thing that was opened: the help, letters, the zoom, the filter, the pane, the topic.
    pub(crate) fn back(&mut self) {
        if self.shows_help {
            self.shows_help = false;
        } else if self.is_typing {
            self.is_typing = false;
            self.filter.clear();
        } else if self.is_zoomed {
            self.is_zoomed = false;
        } else if self.topic == Topic::Requests && !self.filter.is_empty() {
            self.filter.clear();
        } else if self.pane.is_some() {
            self.pane = None;
        } else if self.request.is_some() {
            self.request = None;
        } else {
            self.turn_to(Topic::Overview);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tab_comes_round_and_a_topic_begins_anew() {
        let mut focus = Focus::default();
        focus.turn_to(Topic::Requests);
        assert_eq!(focus.main_pane(), Pane::Requests);
        focus.cycle(true);
        assert_eq!(focus.pane(), Some(Pane::Request));
        focus.cycle(false);
        assert_eq!(focus.pane(), Some(Pane::Requests));
        focus.is_zoomed = true;
        focus.turn_to(Topic::Events);
        assert_eq!((focus.pane(), focus.is_zoomed), (None, false));
    }

    #[test]
    fn back_closes_one_thing_at_a_time() {
        let mut focus = Focus {
            topic: Topic::Requests,
            shows_help: true,
            is_zoomed: true,
            filter: "429".to_owned(),
            pane: Some(1),
            ..Focus::default()
        };
        let mut seen = vec![];
        for _ in 0..5 {
            focus.back();
            let Focus {
                shows_help,
                is_zoomed,
                pane,
                topic,
                ..
            } = focus;
            let is_filtered = !focus.filter.is_empty();
            seen.push((
                shows_help,
                is_zoomed,
                is_filtered,
                pane.is_some(),
                topic == Topic::Requests,
            ));
        }
        assert_eq!(
            seen,
            [
                (false, true, true, true, true),
                (false, false, true, true, true),
                (false, false, false, true, true),
                (false, false, false, false, true),
                (false, false, false, false, false),
            ]
        );
    }

    #[test]
    fn a_step_never_leaves_its_list() {
        for (step, place, length, expected) in [
            (Step::Up(1), 0, 3, 0),
            (Step::Down(1), 2, 3, 2),
            (Step::Down(10), 0, 3, 2),
            (Step::Up(1), 9, 3, 1),
            (Step::Last, 0, 0, 0),
            (Step::Last, 0, 3, 2),
            (Step::First, 2, 3, 0),
        ] {
            assert_eq!(step.from(place, length), expected, "{step:?}");
        }
    }
}
