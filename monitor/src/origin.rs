//! Where figures come from, of all the places there are.

use std::path::PathBuf;

use crate::model::observation::Observation;
use crate::recording::replay;
use crate::scenario::{self, Scenario};
use crate::source::http::{Key, Url};
use crate::source::paced::Paced;
use crate::source::remote::RemoteSource;
use crate::source::{self, SegmentSource, Source, Target};

/// Where figures come from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Origin {
    /// A segment in this machine's memory.
    Segment(Target),
    /// The admin listener of a gateway on another machine.
    Remote {
        /// Where it is.
        url: Url,
        /// What opens it, if it takes a key.
        key: Option<Key>,
    },
    /// A recording.
    Recording {
        /// The file.
        path: PathBuf,
        /// How many times faster than it happened; without one, all at once.
        speed: Option<f64>,
    },
    /// Nowhere.
    Invented {
        /// What happens.
        scenario: Scenario,
        /// As above.
        speed: Option<f64>,
    },
}

impl Origin {
    /// What there is to see.
    pub(crate) fn source(&self) -> Box<dyn Source> {
        match self {
            Self::Segment(target) => Box::new(SegmentSource::new(target.clone())),
            Self::Remote { url, key } => Box::new(RemoteSource::new(url.clone(), key.clone())),
            Self::Recording { path, speed } => paced(replay::Looks::open(path), *speed),
            Self::Invented { scenario, speed } => paced(scenario::Looks::of(*scenario), *speed),
        }
    }
}

impl Origin {
    /// A look at each of the segments that may be meant.
    pub(crate) fn segments(&self) -> Vec<(PathBuf, Observation)> {
        match self {
            Self::Segment(target) => source::look_at_all(target),
            _ => vec![],
        }
    }
}

fn paced(
    looks: impl Iterator<Item = Observation> + 'static,
    speed: Option<f64>,
) -> Box<dyn Source> {
    Box::new(
        Paced::new(looks, speed).expect("a recording has a look, if only at what is wrong with it"),
    )
}
