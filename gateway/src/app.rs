//! What all runtimes share: which providers there are, their places, their keys, and how each of them stands.

use std::collections::BTreeSet;
use std::sync::Arc;

use bifrost_shared::layout::Counter;
use bifrost_shared::record::NONE;
use bifrost_shared::slot::{SlotState, Standing};
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use crate::budget::Budget;
use crate::clock::unix_ns;
use crate::config::{self, Config};
use crate::error::Error;
use crate::keys::{Condition, Keys, Seen};
use crate::provider::{Catalogue, Provider, dialect};
use crate::queue::Queue;
use crate::upstream::in_flight_max;

/// Models that have a place in telemetry, the one that stands for all others included. A list of models that long is a
/// catalogue, and what is asked of each is no figure to watch.
pub const MODELS_MAX: usize = 256;
/// What the models without a place are called.
const OTHER_MODELS: &str = "other";

/// What all runtimes share: which providers there are, their places and their keys.
///
/// It never changes: other settings make another, which takes over what they leave as it was (see
/// [`renewed`](Self::renewed)).
pub struct App {
    pub(crate) providers: Vec<Arc<Backend>>,
    pub(crate) catalogue: Catalogue,
    /// Bytes of bodies that may be held.
    pub budget: Arc<Budget>,
    count: Count,
    /// Whether answers tell how long each stage took.
    pub(crate) tells_timing: bool,
    /// Every provider there ever was, by its place in telemetry: a place is never given to another.
    slots: Vec<String>,
    /// Every model that the settings ever named, with its provider, by its place in telemetry, which is never given to
    /// another. The first stands for all that they don't: those come from clients, who may invent any.
    models: Vec<String>,
}

/// Counts what no record does.
pub type Count = Arc<dyn Fn(Counter) + Send + Sync>;

/// A provider: its settings, its places and its keys.
pub(crate) struct Backend {
    pub(crate) name: String,
    /// The same, as answers have it.
    pub(crate) told: Option<HeaderValue>,
    /// Its place in [`App::slots`].
    pub(crate) slot: usize,
    pub(crate) settings: config::Provider,
    pub(crate) dialect: &'static dyn Provider,
    pub(crate) queue: Arc<Queue>,
    pub(crate) keys: Arc<Keys>,
    /// The models that the settings name, sorted, and their places in [`App::models`].
    models: Vec<(String, usize)>,
}

impl App {
    /// The providers of `config`.
    ///
    /// # Errors
    ///
    /// If a key can't be sent.
    pub fn new(config: &Config, count: Count) -> anyhow::Result<Self> {
        let budget = Budget::new(config.server.body_budget_bytes.unwrap_or(usize::MAX));
        let nothing = Self {
            providers: vec![],
            catalogue: Catalogue::default(),
            budget: Arc::new(budget),
            count,
            tells_timing: false,
            slots: vec![],
            models: vec![OTHER_MODELS.to_owned()],
        };
        nothing.renewed(config)
    }

    /// The providers of `config`, which comes after the present one. The line in front of a provider and what is known
    /// of its keys live on where their settings stay the same. Requests that are under way end with what they began
    /// with.
    ///
    /// # Errors
    ///
    /// If a key can't be sent.
    pub fn renewed(&self, config: &Config) -> anyhow::Result<Self> {
        let (mut slots, mut models) = (self.slots.clone(), self.models.clone());
        let mut providers = vec![];
        for (name, settings) in &config.providers {
            let slot = slots
                .iter()
                .position(|slot| slot == name)
                .unwrap_or_else(|| {
                    slots.push(name.clone());
                    slots.len() - 1
                });
            let before = self.providers.iter().find(|backend| backend.name == *name);
            let places = in_flight_max(settings, config.server.workers);
            let waiting_max = config.client.buffer_size;
            let queue = before
                .filter(|backend| {
                    backend
                        .queue
                        .is(places, waiting_max, settings.timeouts.queue)
                })
                .map(|backend| Arc::clone(&backend.queue));
            let keys = before
                .filter(|backend| {
                    backend.settings.keys == settings.keys && backend.settings.rest == settings.rest
                })
                .map(|backend| Arc::clone(&backend.keys));
            let keys = if let Some(keys) = keys {
                keys
            } else {
                let before = before.map(|backend| backend.keys.as_ref());
                Arc::new(Keys::new(&settings.keys, settings.rest.clone(), before)?)
            };
            let queue = queue.unwrap_or_else(|| {
                Arc::new(Queue::new(places, waiting_max, settings.timeouts.queue))
            });
            let named = models_named(config, name).into_iter();
            let of_provider = named.filter_map(|model| {
                let full = format!("{name}/{model}");
                Some((model.to_owned(), place_of(&mut models, full)?))
            });
            let of_provider = of_provider.collect();
            let (name, settings, dialect) =
                (name.clone(), settings.clone(), dialect(settings.kind));
            providers.push(Arc::new(Backend {
                told: HeaderValue::try_from(&name).ok(),
                name,
                slot,
                settings,
                dialect,
                queue,
                keys,
                models: of_provider,
            }));
        }
        Ok(Self {
            providers,
            catalogue: Catalogue::new(&config.providers),
            budget: Arc::clone(&self.budget),
            count: Arc::clone(&self.count),
            tells_timing: config.server.server_timing,
            slots,
            models,
        })
    }

    /// Requests that wait for a provider, and places that are taken, over all providers.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let queues = self.providers.iter().map(|backend| &backend.queue);
        queues.fold((0, 0), |(waiting, taken), queue| {
            (waiting + queue.waiting(), taken + queue.taken())
        })
    }

    /// Providers and their keys, by configured name and in their places. One that is gone has no key any more.
    #[must_use]
    pub fn names(&self) -> Vec<(String, Vec<String>)> {
        let keys = |slot: usize| {
            let backend = self.providers.iter().find(|backend| backend.slot == slot);
            backend
                .map(|backend| backend.keys.names())
                .unwrap_or_default()
        };
        self.slots
            .iter()
            .enumerate()
            .map(|(slot, name)| (name.clone(), keys(slot)))
            .collect()
    }

    /// The models that telemetry tells apart, by their places.
    #[must_use]
    pub fn models(&self) -> &[String] {
        &self.models
    }

    /// Counts what no record does.
    pub(crate) fn count(&self, counter: Counter) {
        (self.count)(counter);
    }

    /// Counts what a failed attempt was.
    pub(crate) fn tally(&self, error: &Error) {
        let facts = error.facts();
        let kind = match error {
            Error::Answered(answered) if answered.status == StatusCode::TOO_MANY_REQUESTS => {
                Counter::RateLimited
            }
            _ if facts.status.is_server_error() => Counter::ProviderErrors,
            _ => return,
        };
        self.count(kind);
    }

    /// How providers and keys stand; all providers first, so that many keys take no provider's slot.
    #[must_use]
    pub fn standings(&self) -> Vec<Standing> {
        let (now, unix_ns) = (Instant::now(), unix_ns());
        let mut providers = vec![];
        let mut keys = vec![];
        for backend in &self.providers {
            let standings = backend.standings(now, unix_ns);
            providers.push(backend.standing(&standings));
            keys.extend(standings);
        }
        providers.extend(keys);
        providers
    }
}

/// The models of a provider that `config` names: as served, as what a key is for, as what another falls back on.
fn models_named<'a>(config: &'a Config, provider: &str) -> BTreeSet<&'a str> {
    let own = config.providers.get(provider).into_iter();
    let own = own.flat_map(|own| {
        let of_keys = own.keys.iter().flat_map(|key| &key.models);
        own.models.iter().chain(of_keys)
    });
    let fallbacks = config.providers.values().flat_map(|other| &other.fallbacks);
    let fallbacks = fallbacks.filter_map(|full| full.strip_prefix(provider)?.strip_prefix('/'));
    own.map(String::as_str).chain(fallbacks).collect()
}

/// The place of `model`, which is added if there is room.
fn place_of(models: &mut Vec<String>, model: String) -> Option<usize> {
    let known = models.iter().position(|known| *known == model);
    known.or_else(|| {
        (models.len() < MODELS_MAX).then(|| {
            models.push(model);
            models.len() - 1
        })
    })
}

impl Backend {
    /// The place of a model in [`App::models`].
    pub(crate) fn model_place(&self, model: &str) -> usize {
        let found = self
            .models
            .binary_search_by_key(&model, |(name, _)| name.as_str());
        found.map_or(0, |at| self.models[at].1)
    }

    fn place(&self) -> u16 {
        u16::try_from(self.slot).unwrap_or(NONE)
    }

    fn standings(&self, now: Instant, unix_ns: u64) -> Vec<Standing> {
        let standing = |key: Seen| {
            let (state, until) = match key.condition {
                Condition::Ready => (SlotState::Ready, 0),
                Condition::Warming => (SlotState::Warming, 0),
                Condition::Benched => (SlotState::Benched, 0),
                Condition::Off => (SlotState::Off, 0),
                Condition::Resting(until) => {
                    let left = until.saturating_duration_since(now).as_nanos();
                    let left = u64::try_from(left).unwrap_or(u64::MAX);
                    (SlotState::Resting, unix_ns.saturating_add(left))
                }
            };
            Standing {
                provider: self.place(),
                key: u16::try_from(key.place).unwrap_or(NONE),
                incarnation: self.keys.lineage(),
                state,
                until,
                weight_millionths: millionths(key.weight),
                places: 0,
                taken: 0,
                waiting: 0,
                counts: key.counts,
            }
        };
        let seen = self.keys.seen(now);
        seen.into_iter().map(standing).collect()
    }

    /// The provider is as its best key.
    fn standing(&self, keys: &[Standing]) -> Standing {
        const BEST_FIRST: [SlotState; 4] = [
            SlotState::Ready,
            SlotState::Warming,
            SlotState::Resting,
            SlotState::Benched,
        ];
        let state = BEST_FIRST
            .into_iter()
            .find(|state| keys.iter().any(|key| key.state == *state));
        let state = state.unwrap_or(SlotState::Off);
        let rests = keys.iter().filter(|key| key.state == SlotState::Resting);
        let until = rests.map(|key| key.until).min();
        Standing {
            provider: self.place(),
            key: NONE,
            // Its place is never given to another.
            incarnation: 0,
            state,
            until: until
                .filter(|_| state == SlotState::Resting)
                .unwrap_or_default(),
            weight_millionths: 0,
            places: self.queue.places() as u64,
            taken: self.queue.taken() as u64,
            waiting: self.queue.waiting() as u64,
            counts: self.keys.counts(),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a weight is not negative, and one beyond the range is shown as the largest"
)]
fn millionths(weight: f64) -> u64 {
    (weight * 1e6).round() as u64
}
