//! What a source saw at one moment: a gateway's figures, or why there are none.

use std::path::PathBuf;
use std::rc::Rc;

use bifrost_shared::layout::VERSION_MAJOR;
use bifrost_shared::record::Record;
use bifrost_shared::snapshot::{Figures, Freshness, Row, View};

/// One look at a gateway.
#[derive(Debug)]
pub(crate) struct Observation {
    /// When, nanoseconds of the system's monotonic clock: the one that heartbeats are told in.
    pub(crate) at: u64,
    /// When, nanoseconds since the Unix epoch.
    pub(crate) unix_ns: u64,
    /// What.
    pub(crate) sight: Sight,
}

/// What there was to see.
#[derive(Debug)]
pub(crate) enum Sight {
    /// A gateway, living or dead.
    Gateway(Box<Reading>),
    /// None.
    Nothing(Trouble),
}

/// What a segment said.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    /// Another number is another segment: nothing of before belongs to it.
    pub(crate) attachment: u64,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Who writes it, and its labels.
    pub(crate) view: Rc<View>,
    /// Whether its writer holds the lock.
    pub(crate) alive: bool,
    /// Whether it is shown again, from a recording: distributions are then made of closed seconds.
    pub(crate) is_replayed: bool,
    /// When its writer last came by.
    pub(crate) freshness: Freshness,
    /// Seconds that were closed since the last look; with the first, all that the segment still has.
    pub(crate) rows: Vec<Row>,
    /// Requests that ended since the last look, as far as the segment still has them and we read them.
    pub(crate) records: Vec<Record>,
    /// Requests so far that were gone from the segment before we read them, or that a gateway elsewhere left out.
    pub(crate) records_missed: u64,
    /// The figures; none where the writer died while it changed them.
    pub(crate) figures: Option<Figures>,
}

/// Why there is no gateway to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No segment is there.
    NoGateway {
        /// Where we looked.
        tried: Vec<PathBuf>,
    },
    /// One may be there, but not for us.
    Denied {
        /// What we may not read.
        path: PathBuf,
    },
    /// Its layout has another major version.
    Incompatible {
        /// The segment.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// It is no segment, or a damaged one.
    Unreadable {
        /// The file.
        path: Option<PathBuf>,
        /// What is wrong with it.
        reason: String,
    },
    /// It is no recording, or a damaged one.
    BadRecording {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody answers at an address.
    Unanswered {
        /// The address.
        url: String,
        /// What came of asking.
        reason: String,
    },
    /// Whoever answers wants a key, or another one.
    Locked {
        /// The address.
        url: String,
    },
    /// Whoever answers is no gateway that we understand.
    Strange {
        /// The address.
        url: String,
        /// What is strange about it.
        reason: String,
    },
}

impl Trouble {
    /// The name that programs read.
    pub(crate) const fn key(&self) -> &'static str {
        match self {
            Self::NoGateway { .. } | Self::Unanswered { .. } => "no_gateway",
            Self::Denied { .. } | Self::Locked { .. } => "denied",
            Self::Incompatible { .. } => "incompatible",
            Self::Unreadable { .. } | Self::BadRecording { .. } | Self::Strange { .. } => {
                "unreadable"
            }
        }
    }

    /// The name that people read.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::NoGateway { .. } | Self::Unanswered { .. } => "NO GATEWAY",
            Self::Denied { .. } | Self::Locked { .. } => "DENIED",
            Self::Incompatible { .. } => "INCOMPATIBLE",
            Self::Unreadable { .. } | Self::BadRecording { .. } | Self::Strange { .. } => {
                "UNREADABLE"
            }
        }
    }

    /// What was tried, and what came of it.
    pub(crate) fn what(&self) -> String {
        match self {
            Self::NoGateway { tried } => {
                let tried: Vec<_> = tried
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                format!("no segment in {}", tried.join(", "))
            }
            Self::Denied { path } => format!("no permission to read {}", path.display()),
            Self::Incompatible { path, found } => format!(
                "{} has layout {found}, and this monitor ({}) reads layout {VERSION_MAJOR}",
                path.display(),
                env!("CARGO_PKG_VERSION"),
            ),
            Self::Unreadable { path, reason } => match path {
                Some(path) => format!("{}: {reason}", path.display()),
                None => reason.clone(),
            },
            Self::BadRecording { path, reason } => format!("{}: {reason}", path.display()),
            Self::Unanswered { url, reason } => format!("no answer from {url}: {reason}"),
            Self::Locked { url } => format!("{url} does not let us in"),
            Self::Strange { url, reason } => format!("{url}: {reason}"),
        }
    }

    /// What to do about it.
    pub(crate) const fn remedy(&self) -> &'static str {
        match self {
            Self::NoGateway { .. } => {
                "start bifrost-gateway, or name its segment or the directory of it with --segment PATH"
            }
            Self::Denied { .. } => "run the monitor as the gateway's user, or as root",
            Self::Incompatible { .. } => "use the monitor of the gateway's release",
            Self::Unreadable { .. } => "name a gateway's .seg file with --segment PATH",
            Self::BadRecording { .. } => {
                "name a file that a monitor of this release has recorded with --replay FILE"
            }
            Self::Unanswered { .. } => {
                "start bifrost-gateway there, or open the tunnel: ssh -N -L 8081:127.0.0.1:8081 HOST"
            }
            Self::Locked { .. } => "set BIFROST_ADMIN_KEY to one of the gateway's admin keys",
            Self::Strange { .. } => "name the admin.listen of a gateway of this release with --url",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_names_the_path_and_what_to_do() {
        let incompatible = Trouble::Incompatible {
            path: "a/gateway-1.seg".into(),
            found: 7,
        };
        assert_eq!(
            incompatible.what(),
            format!(
                "a/gateway-1.seg has layout 7, and this monitor ({}) reads layout 2",
                env!("CARGO_PKG_VERSION")
            )
        );
        let none = Trouble::NoGateway {
            tried: vec!["a".into(), "b".into()],
        };
        assert_eq!(none.what(), "no segment in a, b");
        assert!(none.remedy().contains("--segment"));
        let denied = Trouble::Denied { path: "a".into() };
        assert_eq!(denied.what(), "no permission to read a");
    }
}
