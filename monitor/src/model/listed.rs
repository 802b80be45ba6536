//! What a segment has by its own list of names, so that a gateway of another minor version is read right: what only it
//! knows is shown by the name that it gives, and what only we know is absent rather than zero.

use bifrost_shared::layout::{NameKind, SERIES_ROOM};
use bifrost_shared::snapshot::{Name, View};
use bifrost_shared::stage::{Series, Stage};

/// A counter or a gauge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed<T> {
    /// What it is, where this version knows it.
    pub(crate) known: Option<T>,
    /// The name that programs read.
    pub(crate) key: String,
    /// The name that people read.
    pub(crate) label: String,
    /// Its value; none where the segment has no such thing, or can't be read.
    pub(crate) value: Option<u64>,
}

/// A distribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedSeries {
    /// What it is, where this version knows it.
    pub(crate) known: Option<Series>,
    /// Its place in the segment, below [`SERIES_ROOM`]; none where the segment has no such thing.
    pub(super) place: Option<usize>,
    /// The name that programs read.
    pub(crate) key: String,
    /// The name that people read.
    pub(crate) label: String,
    /// Whether it is a stage.
    pub(crate) is_stage: bool,
    /// Whether it is a stage that counts in the overhead.
    pub(crate) in_overhead: bool,
    /// The page's means, ns: t3.medium, t3.xlarge.
    pub(crate) reference_ns: (Option<u64>, Option<u64>),
}

impl ListedSeries {
    fn of(name: &Name) -> Option<Self> {
        let place = usize::try_from(name.index).ok()?;
        (place < SERIES_ROOM).then(|| Self {
            known: Series::all().find(|series| series.key() == name.key),
            place: Some(place),
            key: name.key.clone(),
            label: name.label.clone(),
            is_stage: name.is_stage,
            in_overhead: name.in_overhead,
            reference_ns: name.reference_ns,
        })
    }

    fn absent(series: Series) -> Self {
        Self {
            known: Some(series),
            place: None,
            key: series.key().to_owned(),
            label: series.label().to_owned(),
            is_stage: matches!(series, Series::Stage(_)),
            in_overhead: matches!(series, Series::Stage(stage) if stage.in_overhead()),
            reference_ns: series.reference_ns(),
        }
    }

    /// Where it stands in a table: stages, their sum, what no stage has, the whole; then what the page doesn't tell.
    pub(crate) fn order(&self) -> (usize, usize) {
        let part = match self.known {
            Some(Series::Stage(stage)) => return (0, stage.index()),
            None if self.is_stage => return (0, self.place.unwrap_or(0).max(Stage::COUNT)),
            Some(Series::Overhead) => 1,
            Some(Series::Unattributed) => 2,
            Some(Series::Total) => 3,
            Some(Series::Added) => 4,
            Some(Series::FirstByte) => 5,
            Some(Series::FirstToken) => 6,
            Some(Series::TimePerToken) => 7,
            None => 8,
        };
        (part, self.place.unwrap_or(0))
    }
}

/// The distributions that `view` names, in its order, then those that only we know.
pub(super) fn series(view: &View) -> Vec<ListedSeries> {
    let mut listed: Vec<_> = view
        .names_of(NameKind::Series)
        .filter_map(ListedSeries::of)
        .collect();
    for series in Series::all() {
        if !listed.iter().any(|it| it.known == Some(series)) {
            listed.push(ListedSeries::absent(series));
        }
    }
    listed
}

/// One of ours, wherever `view` has it.
pub(super) fn one(view: &View, series: Series) -> ListedSeries {
    let mut names = view.names_of(NameKind::Series);
    let name = names.find(|name| name.key == series.key());
    name.and_then(ListedSeries::of)
        .unwrap_or_else(|| ListedSeries::absent(series))
}

/// What `view` names of `kind`, in its order, then those of `ours` that only we know. `names` are the two names of one
/// of ours, and `value` says what there is at a place.
pub(super) fn counts<T: Copy>(
    view: &View,
    kind: NameKind,
    ours: &[T],
    names: impl Fn(T) -> (&'static str, &'static str),
    value: impl Fn(usize) -> Option<u64>,
) -> Vec<Listed<T>> {
    let mut listed: Vec<_> = view
        .names_of(kind)
        .map(|name| Listed {
            known: ours.iter().copied().find(|it| names(*it).0 == name.key),
            key: name.key.clone(),
            label: name.label.clone(),
            value: usize::try_from(name.index).ok().and_then(&value),
        })
        .collect();
    for it in ours.iter().copied() {
        let (key, label) = names(it);
        if !listed.iter().any(|listed| listed.key == key) {
            listed.push(Listed {
                known: Some(it),
                key: key.to_owned(),
                label: label.to_owned(),
                value: None,
            });
        }
    }
    listed
}

/// The place of what `view` calls `key`.
pub(super) fn place(view: &View, kind: NameKind, key: &str) -> Option<usize> {
    let name = view.names_of(kind).find(|name| name.key == key)?;
    usize::try_from(name.index).ok()
}
