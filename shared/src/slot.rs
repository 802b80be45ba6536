//! Providers and keys in the segment: a bounded number of slots, each with how one of them is, what it was asked, and
//! how long it took. They carry places and configured names, and never a secret.

use serde::{Deserialize, Serialize};

use crate::histogram::{BUCKETS, bounds, bucket_of, place_of};
use crate::numbered::numbered;
use crate::record::NONE;
use crate::ring;
use crate::sync::{AtomicU64, Ordering};

/// Slots that there is room for. Providers come first; keys beyond it have none.
pub const CAPACITY: usize = 64;
/// Buckets of a [`Histogram`](crate::histogram::Histogram) that a slot's latency puts together: a value is then known
/// within 12.5 % of itself.
const GROUP: usize = 4;
pub(crate) const GROUPS: usize = BUCKETS / GROUP;

/// Words of a slot.
const WHO: usize = 0;
const UNTIL: usize = 1;
const WEIGHT: usize = 2;
const PLACES: usize = 3;
const TAKEN: usize = 4;
const WAITING: usize = 5;
const COUNTS: usize = 6;
const LATENCY: usize = 16;
const LATENCY_COUNT: usize = LATENCY;
const LATENCY_SUM: usize = LATENCY + 1;
const LATENCY_MAX: usize = LATENCY + 2;
const LATENCY_GROUPS: usize = LATENCY + 8;
/// Words of a slot in all.
pub const WORDS: usize = LATENCY_GROUPS + GROUPS;

const _: () = assert!(COUNTS + SlotCount::COUNT <= LATENCY);

numbered! {
    /// How a provider or key is.
    SlotState {
        /// There is none in this slot.
        Empty = "empty", "empty";
        /// It is asked.
        Ready = "ready", "ready";
        /// It came back a moment ago, and is asked less than its share.
        Warming = "warming", "warming";
        /// It is at its limit, for one model at least; of a provider, each of its keys is.
        Resting = "resting", "resting";
        /// The provider refuses it; of a provider, each of its keys.
        Benched = "benched", "benched";
        /// Its weight is zero: it is never asked.
        Off = "off", "off";
    }
}

numbered! {
    /// What only grows, for each slot. Exact but for the last three, which come from records, of which some may be lost.
    SlotCount {
        /// Attempts that were made with it.
        Attempts = "attempts", "Attempts";
        /// Attempts that brought an answer, or the beginning of a stream.
        Answered = "answered", "Answered";
        /// Attempts that the provider turned away for its limit (429, 403).
        RateLimited = "rate_limited", "Rate limited";
        /// Attempts that the provider refused the key for (401, 402, a spent quota).
        Refused = "refused", "Refused";
        /// Attempts that failed in another way.
        Failed = "failed", "Failed";
        /// Requests that ended with it.
        Requests = "requests", "Requests";
        /// Tokens in of these.
        PromptTokens = "prompt_tokens", "Prompt tokens";
        /// Tokens out of these.
        CompletionTokens = "completion_tokens", "Completion tokens";
    }
}

/// Counts of a slot that the gateway keeps itself; the others come from records.
pub const COUNTED: usize = SlotCount::Requests.index();

/// How one provider or key stands, as the gateway tells its segment's writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Place of the provider, as records name it.
    pub provider: u16,
    /// Place of the key within it, or [`NONE`] for the provider itself.
    pub key: u16,
    /// Another number is another provider or key in the same place: what was before is forgotten.
    pub incarnation: u64,
    /// How it is.
    pub state: SlotState,
    /// Until when it rests, nanoseconds since the Unix epoch; zero when it doesn't.
    pub until: u64,
    /// A key's weight, in millionths.
    pub weight_millionths: u64,
    /// A provider's places.
    pub places: u64,
    /// Those that are taken.
    pub taken: u64,
    /// Requests that wait for one.
    pub waiting: u64,
    /// The first [`COUNTED`] of [`SlotCount`].
    pub counts: [u64; COUNTED],
}

/// A provider or key, as a reader finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Place of the provider.
    pub provider: u16,
    /// Place of the key within it; none for the provider itself.
    pub key: Option<u16>,
    /// How it is.
    #[serde(with = "crate::forms::slot_state")]
    pub state: SlotState,
    /// Until when it rests, nanoseconds since the Unix epoch; zero when it doesn't.
    pub until: u64,
    /// A key's weight, in millionths.
    pub weight_millionths: u64,
    /// A provider's places.
    pub places: u64,
    /// Those that are taken.
    pub taken: u64,
    /// Requests that wait for one.
    pub waiting: u64,
    /// What only grows.
    #[serde(with = "crate::forms::counts")]
    pub counts: [u64; SlotCount::COUNT],
    /// How long answers took, from the request handed over to the last byte.
    pub latency: Latency,
}

impl Slot {
    /// One of the counts.
    #[must_use]
    pub const fn count(&self, count: SlotCount) -> u64 {
        self.counts[count.index()]
    }

    /// The index that its entry in the list of names has.
    #[must_use]
    pub const fn name_index(&self) -> u64 {
        let provider = self.provider as u64;
        match self.key {
            None => provider,
            Some(key) => provider << 32 | key as u64,
        }
    }
}

/// A coarse histogram of nanoseconds: values are known within 12.5 % of themselves.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    #[serde(with = "crate::forms::groups")]
    groups: Box<[u64]>,
    /// How many values there were.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The largest.
    pub max: u64,
}

impl std::fmt::Debug for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latency")
            .field("count", &self.count)
            .field("sum", &self.sum)
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            groups: vec![0; GROUPS].into_boxed_slice(),
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

impl Latency {
    /// The mean, or none when nothing was counted.
    #[must_use]
    pub const fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }

    /// The value that a share of `quantile` (0 to 1) of all values does not exceed. None when nothing was counted.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let group = place_of(&self.groups, quantile)?;
        let (low, high) = (bounds(group * GROUP).0, bounds(group * GROUP + GROUP - 1).1);
        Some((low + (high - 1 - low) / 2).min(self.max))
    }

    /// What was counted since `earlier`, an older state of the same latency.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.groups.iter().zip(&earlier.groups);
        Self {
            groups: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
            count: self.count.saturating_sub(earlier.count),
            sum: self.sum.wrapping_sub(earlier.sum),
            max: self.max,
        }
    }
}

/// Who holds a slot: provider, key, incarnation.
type Holder = (u16, u16, u64);

/// The writing half: which slot is whose. Whoever has one keeps it as long as it stands at all.
#[derive(Debug)]
pub(crate) struct Writer {
    holders: [Option<Holder>; CAPACITY],
    /// For each provider, its own slot, then those of its keys.
    by_provider: Vec<Vec<Option<usize>>>,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            holders: [None; CAPACITY],
            by_provider: vec![],
        }
    }
}

impl Writer {
    /// Writes how everybody stands. Whoever comes anew gets a slot that is free, if there is one, and begins with
    /// nothing; the slot of whoever is gone is free.
    pub(crate) fn stand(&mut self, section: &[AtomicU64], standings: &[Standing]) {
        let slot = |at: usize| &section[at * WORDS..(at + 1) * WORDS];
        let before = self.holders;
        for (at, holder) in self.holders.iter_mut().enumerate() {
            let stands = |held: &Holder| {
                standings
                    .iter()
                    .any(|standing| holder_of(standing) == *held)
            };
            if holder.as_ref().is_some_and(|held| !stands(held)) {
                *holder = None;
                clear(slot(at));
            }
        }
        for standing in standings {
            let holder = Some(holder_of(standing));
            let place = |wanted: Option<Holder>, holders: &[Option<Holder>]| {
                holders.iter().position(|held| *held == wanted)
            };
            let known = place(holder, &self.holders);
            let Some(at) = known.or_else(|| place(None, &self.holders)) else {
                continue;
            };
            self.holders[at] = holder;
            write(slot(at), standing);
        }
        if self.holders != before {
            self.index();
        }
    }

    fn index(&mut self) {
        self.by_provider.clear();
        for (slot, holder) in self.holders.iter().enumerate() {
            let Some((provider, key, _)) = holder else {
                continue;
            };
            let provider = usize::from(*provider);
            if self.by_provider.len() <= provider {
                self.by_provider.resize_with(provider + 1, Vec::new);
            }
            let places = &mut self.by_provider[provider];
            let place = if *key == NONE {
                0
            } else {
                usize::from(*key) + 1
            };
            if places.len() <= place {
                places.resize(place + 1, None);
            }
            places[place] = Some(slot);
        }
    }

    /// Adds a request that ended with a provider and a key, to both. `latency` is how long its answer took, if it is
    /// whole.
    pub(crate) fn add(
        &self,
        section: &[AtomicU64],
        (provider, key): (u16, u16),
        tokens: (u64, u64),
        latency: Option<u64>,
    ) {
        let Some(places) = self.by_provider.get(usize::from(provider)) else {
            return;
        };
        let of_key = if key == NONE {
            None
        } else {
            places.get(usize::from(key) + 1)
        };
        for slot in [places.first(), of_key].into_iter().flatten().flatten() {
            let words = &section[slot * WORDS..(slot + 1) * WORDS];
            bump(&words[COUNTS + SlotCount::Requests.index()], 1);
            bump(&words[COUNTS + SlotCount::PromptTokens.index()], tokens.0);
            bump(
                &words[COUNTS + SlotCount::CompletionTokens.index()],
                tokens.1,
            );
            if let Some(latency) = latency {
                bump(&words[LATENCY_COUNT], 1);
                bump(&words[LATENCY_SUM], latency);
                bump(&words[LATENCY_GROUPS + bucket_of(latency) / GROUP], 1);
                if latency > words[LATENCY_MAX].load(Ordering::Relaxed) {
                    words[LATENCY_MAX].store(latency, Ordering::Relaxed);
                }
            }
        }
    }
}

const fn holder_of(standing: &Standing) -> Holder {
    (standing.provider, standing.key, standing.incarnation)
}

/// The one writer may load and store where several would need an exchange.
fn bump(word: &AtomicU64, by: u64) {
    word.store(
        word.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}

fn clear(words: &[AtomicU64]) {
    for word in words {
        word.store(0, Ordering::Relaxed);
    }
}

fn write(words: &[AtomicU64], standing: &Standing) {
    let put = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
    put(
        WHO,
        u64::from(standing.provider)
            | u64::from(standing.key) << 16
            | (standing.state as u64) << 32,
    );
    put(UNTIL, standing.until);
    put(WEIGHT, standing.weight_millionths);
    put(PLACES, standing.places);
    put(TAKEN, standing.taken);
    put(WAITING, standing.waiting);
    for (count, value) in standing.counts.iter().enumerate() {
        put(COUNTS + count, *value);
    }
}

/// The slots that somebody holds, in order. Any words are slots: a state that this version does not know reads as
/// *ready*.
pub(crate) fn read(section: &[AtomicU64], entry: usize, count: usize) -> Vec<Slot> {
    section
        .chunks_exact(entry.max(WORDS))
        .take(count.min(CAPACITY))
        .filter_map(read_one)
        .collect()
}

fn read_one(words: &[AtomicU64]) -> Option<Slot> {
    let word = |at: usize| words[at].load(Ordering::Relaxed);
    let [provider_low, provider_high, key_low, key_high, state, ..] = word(WHO).to_le_bytes();
    let key = u16::from_le_bytes([key_low, key_high]);
    let state = SlotState::ALL.get(usize::from(state)).copied();
    let state = state.unwrap_or(SlotState::Ready);
    if state == SlotState::Empty {
        return None;
    }
    let mut counts = [0; SlotCount::COUNT];
    ring::copy(&words[COUNTS..], &mut counts);
    let mut groups = vec![0; GROUPS].into_boxed_slice();
    ring::copy(&words[LATENCY_GROUPS..], &mut groups);
    Some(Slot {
        provider: u16::from_le_bytes([provider_low, provider_high]),
        key: (key != NONE).then_some(key),
        state,
        until: word(UNTIL),
        weight_millionths: word(WEIGHT),
        places: word(PLACES),
        taken: word(TAKEN),
        waiting: word(WAITING),
        counts,
        latency: Latency {
            groups,
            count: word(LATENCY_COUNT),
            sum: word(LATENCY_SUM),
            max: word(LATENCY_MAX),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Vec<AtomicU64> {
        (0..WORDS * CAPACITY).map(|_| AtomicU64::new(0)).collect()
    }

    fn standing(provider: u16, key: u16, incarnation: u64) -> Standing {
        Standing {
            provider,
            key,
            incarnation,
            state: SlotState::Ready,
            until: 0,
            weight_millionths: 500_000,
            places: 0,
            taken: 0,
            waiting: 0,
            counts: [1, 2, 3, 4, 5],
        }
    }

    fn slots(section: &[AtomicU64]) -> Vec<Slot> {
        read(section, WORDS, CAPACITY)
    }

    #[test]
    fn a_request_counts_for_its_provider_and_its_key_and_nobody_else() {
        let (section, mut writer) = (section(), Writer::default());
        writer.stand(
            &section,
            &[
                standing(0, NONE, 1),
                standing(3, NONE, 1),
                standing(3, 0, 1),
                standing(3, 1, 1),
            ],
        );
        writer.add(&section, (3, 1), (7, 11), Some(1_000));
        writer.add(&section, (3, 1), (1, 1), None);
        writer.add(&section, (9, 1), (1, 1), Some(5));
        writer.add(&section, (NONE, NONE), (1, 1), Some(5));
        let slots = slots(&section);
        let told: Vec<_> = slots
            .iter()
            .map(|slot| {
                (
                    slot.provider,
                    slot.key,
                    slot.count(SlotCount::Requests),
                    slot.count(SlotCount::CompletionTokens),
                    slot.latency.sum,
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                (0, None, 0, 0, 0),
                (3, None, 2, 12, 1_000),
                (3, Some(0), 0, 0, 0),
                (3, Some(1), 2, 12, 1_000)
            ]
        );
        assert_eq!(slots[3].counts[..COUNTED], [1, 2, 3, 4, 5]);
        assert_eq!(slots[3].name_index(), 3 << 32 | 1);
    }

    #[test]
    fn another_key_in_the_same_place_begins_with_nothing_and_the_rest_goes_on() {
        let (section, mut writer) = (section(), Writer::default());
        writer.stand(
            &section,
            &[standing(0, NONE, 1), standing(0, 0, 1), standing(0, 1, 1)],
        );
        for key in [0, 1] {
            writer.add(&section, (0, key), (0, 1), Some(9));
        }
        writer.stand(&section, &[standing(0, NONE, 1), standing(0, 0, 2)]);
        let slots = slots(&section);
        assert_eq!(slots.len(), 2, "the third slot is free");
        assert_eq!(slots[0].latency.count, 2);
        assert_eq!(
            (slots[1].latency.count, slots[1].count(SlotCount::Requests)),
            (0, 0)
        );
    }

    #[test]
    fn whoever_comes_before_the_others_takes_nothing_from_them() {
        let (section, mut writer) = (section(), Writer::default());
        writer.stand(&section, &[standing(4, NONE, 1), standing(4, 0, 7)]);
        writer.add(&section, (4, 0), (0, 3), Some(9));
        writer.stand(
            &section,
            &[
                standing(5, NONE, 1),
                standing(4, NONE, 1),
                standing(5, 0, 8),
                standing(4, 0, 7),
            ],
        );
        writer.add(&section, (4, 0), (0, 4), Some(9));
        let tokens: Vec<_> = slots(&section)
            .iter()
            .map(|slot| {
                (
                    slot.provider,
                    slot.key,
                    slot.count(SlotCount::CompletionTokens),
                )
            })
            .collect();
        assert_eq!(
            tokens,
            [(4, None, 7), (4, Some(0), 7), (5, None, 0), (5, Some(0), 0)]
        );
        writer.stand(&section, &[standing(5, NONE, 1)]);
        assert_eq!(slots(&section).len(), 1, "what is gone has no slot");
    }

    #[test]
    fn more_than_there_is_room_for_stay_out() {
        let (section, mut writer) = (section(), Writer::default());
        let all: Vec<_> = (0..100).map(|key| standing(0, key, 1)).collect();
        writer.stand(&section, &all);
        writer.add(&section, (0, 99), (1, 1), Some(1));
        assert_eq!(slots(&section).len(), CAPACITY);
    }

    #[test]
    fn a_latency_is_known_within_an_eighth_of_itself() {
        let (section, mut writer) = (section(), Writer::default());
        writer.stand(&section, &[standing(0, NONE, 1)]);
        let before = slots(&section)[0].latency.clone();
        for micros in 1..=1_000_u64 {
            writer.add(&section, (0, NONE), (0, 0), Some(micros * micros * 1_000));
        }
        let latency = slots(&section)[0].latency.since(&before);
        assert_eq!(latency.max, 1_000_000_000);
        for (share, exact) in [
            (0.5, 250_000_000_u64),
            (0.95, 902_500_000),
            (0.99, 980_100_000),
        ] {
            let told = latency.quantile(share).unwrap();
            assert!(told.abs_diff(exact) <= exact / 8, "{told} for {exact}");
        }
        assert_eq!(Latency::default().quantile(0.5), None);
    }

    #[test]
    fn any_words_are_slots() {
        let section: Vec<_> = (0..WORDS * 2).map(|_| AtomicU64::new(u64::MAX)).collect();
        let slots = read(&section, WORDS, 2);
        assert_eq!(slots.len(), 2);
        assert_eq!(slots[0].state, SlotState::Ready);
        assert_eq!(
            slots[0].latency.quantile(0.5),
            slots[0].latency.quantile(0.0)
        );
    }
}
