//! What clients ask for: all that can become of a request, by shares.

use std::time::Duration;

use bifrost_shared::record::{Outcome, Record};
use bifrost_shared::stage::Stage;

use crate::client;

/// A request of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// For the provider that has places for all, and its faults.
    Plain,
    /// The same, as a stream.
    Stream,
    /// For the provider that has one place, and a short line before it.
    Narrow,
    /// For a model that always fails, with another to fall back on.
    Fallback,
    /// No JSON.
    BadJson,
    /// For a model that nobody serves.
    Unknown,
    /// Its client leaves in the middle of its body.
    Half,
}

/// The settings that the kinds need, for a provider at `address`.
pub fn settings(address: std::net::SocketAddr, buffer_size: u32) -> String {
    let base_url = format!("base_url = 'http://{address}/v1'");
    format!(
        "[client]\nbuffer_size = {buffer_size}\n\
         [providers.narrow]\n{base_url}\nkeys = ['sk-d']\nmodels = ['n']\nconcurrency = 1\ntimeouts = {{ queue = '200ms' }}\n\
         [providers.second]\n{base_url}\nkeys = ['sk-e', 'sk-f']\nmodels = ['spare']\n"
    )
}

/// A request that is ready to be sent.
pub struct Request {
    pub kind: Kind,
    pub bytes: Vec<u8>,
    pub body_bytes: u32,
    /// When its client leaves, if the answer has not come by then.
    pub patience: Option<Duration>,
}

impl Kind {
    fn any() -> Self {
        match fastrand::u32(..100) {
            0..8 => Self::Narrow,
            8..12 => Self::Fallback,
            12..15 => Self::BadJson,
            15..18 => Self::Unknown,
            18..20 => Self::Half,
            20..60 => Self::Plain,
            _ => Self::Stream,
        }
    }

    /// The model that its record counts for.
    pub fn model(self, record: &Record) -> &'static str {
        let (outcome, ended_in) = (record.outcome, record.ended_in);
        if (outcome, ended_in) == (Outcome::Cancelled, Stage::RequestParsing) {
            return "other";
        }
        match self {
            Self::Plain | Self::Stream => "openai/m",
            Self::Narrow => "narrow/n",
            Self::Fallback if record.fallbacks > 0 => "second/spare",
            Self::Fallback => "openai/down",
            Self::BadJson | Self::Unknown | Self::Half => "other",
        }
    }
}

impl Request {
    pub fn any(id: u64) -> Self {
        let kind = Kind::any();
        let prompt = format!("id={id:016x} {}", "x".repeat(100));
        let (model, more) = match kind {
            Kind::Plain | Kind::BadJson | Kind::Half => ("openai/m", ""),
            Kind::Stream => ("openai/m", r#""stream":true,"#),
            Kind::Narrow => ("narrow/n", ""),
            Kind::Fallback => ("openai/down", r#""fallbacks":["second/spare"],"#),
            Kind::Unknown => ("openai/nobody's", ""),
        };
        let end = if kind == Kind::BadJson { "" } else { "]}" };
        let body = format!(
            r#"{{"model":"{model}",{more}"messages":[{{"role":"user","content":"{prompt}"}}{end}"#
        );
        let mut bytes = client::post(id, &body);
        let leaves = |one_in: u32, within: std::ops::Range<u64>| {
            (fastrand::u32(..one_in) == 0).then(|| Duration::from_millis(fastrand::u64(within)))
        };
        let patience = match kind {
            Kind::Plain | Kind::Stream => leaves(10, 5..80),
            Kind::Narrow => leaves(3, 5..150),
            Kind::Half => {
                bytes.truncate(bytes.len() - body.len() / 2);
                leaves(1, 20..60)
            }
            Kind::Fallback | Kind::BadJson | Kind::Unknown => None,
        };
        Self {
            kind,
            bytes,
            body_bytes: u32::try_from(body.len()).unwrap(),
            patience,
        }
    }
}
