//! Which key: weights, rest, health. Pure over a given `now` and a given random number.
//!
//! A key that a provider refuses (401, 402, a spent quota) is benched for everybody. A key at its limit (429), or not
//! allowed something (403), rests for that model only, or one request for a model that it lacks would take it from all.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;

use crate::config;
use crate::error::{Error, Next};

/// The part of its share that a key begins with when it comes back: one request in ten finds out how it is.
const FIRST_SHARE: f64 = 0.1;
/// Models that a key may rest for at once. What rests longest stays; model names come from clients.
const RESTS_MAX: usize = 64;

/// A provider's keys and how they are.
#[derive(Debug)]
pub struct Keys {
    list: Vec<Key>,
    /// Sums of the weights up to and with each key.
    cumulative: Vec<f64>,
    /// Where the search in `cumulative` begins, for each of so many equal parts of the random numbers (a guide table, Chen
    /// and Asau 1974): it takes a step or two however many keys there are.
    guide: Vec<usize>,
    /// Whether each key may be used for each model.
    any_model: bool,
    rest: config::Rest,
    /// Keys that are benched or resting. Zero, as nearly always, needs no look at any.
    troubled: AtomicUsize,
    health: Mutex<Vec<Health>>,
    /// What came of the attempts with all keys that the provider ever had.
    counts: Arc<Counts>,
    /// The first place that no key ever had.
    next_place: usize,
    /// Tells the keys of this provider from those of another that had its name before.
    lineage: u64,
}

/// What came of attempts. On cache lines of its own, since every runtime writes to it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counts {
    attempts: AtomicU64,
    answered: AtomicU64,
    rate_limited: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// How a key is, whatever the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// It gets its share.
    Ready,
    /// It came back a moment ago, and gets a part of its share.
    Warming,
    /// It rests for one model at least, for the longest of them until then.
    Resting(Instant),
    /// The provider refuses it.
    Benched,
    /// It has no share.
    Off,
}

/// A key, as others may see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Its place in records.
    pub place: usize,
    /// How it is.
    pub condition: Condition,
    /// Its weight, as configured.
    pub weight: f64,
    /// Attempts with it: made, answered, turned away for a limit, refused, failed otherwise.
    pub counts: [u64; 5],
}

#[derive(Debug)]
struct Key {
    name: String,
    /// Its place in records. It is never given to another key, since requests may still be under way with this one.
    place: usize,
    counts: Arc<Counts>,
    credentials: Option<HeaderValue>,
    weight: f64,
    models: Vec<String>,
}

#[derive(Debug, Default)]
struct Health {
    /// Refused by the provider; when it was last tried.
    benched: Option<Instant>,
    /// When a probe found it good again.
    good_since: Option<Instant>,
    /// Until when it rests, for each model; kept until its share is whole again.
    rests: Vec<(Box<str>, Instant)>,
}

/// A key, for one attempt.
#[derive(Debug, Clone)]
pub struct Lease {
    /// Its place in records.
    pub place: usize,
    /// Its index in the provider's list.
    index: usize,
}

/// Keys that a request has tried in vain.
#[derive(Debug, Default)]
pub struct Tried {
    refused: Vec<usize>,
    limited: Vec<usize>,
}

/// Why no key could be leased.
#[derive(Debug, PartialEq, Eq)]
pub enum NoKey {
    /// None may be used for the model.
    NotForModel,
    /// All that might be used rest, the first until then.
    Resting(Instant),
    /// All that might be used are refused by the provider.
    Refused,
    /// This request has tried all that might be used.
    AllTried,
}

impl Keys {
    /// A provider's keys as they were configured. Without any, the provider takes none, and every lease is empty. A key
    /// that was there `before` keeps its place and its counts.
    ///
    /// # Errors
    ///
    /// If a key can't be sent in a header. The settings have checked that.
    pub fn new(
        keys: &[config::Key],
        rest: config::Rest,
        before: Option<&Self>,
    ) -> anyhow::Result<Self> {
        static LINEAGES: AtomicU64 = AtomicU64::new(1);
        let mut next_place = before.map_or(0, |before| before.next_place);
        let mut key = |name: &str, credentials: Option<HeaderValue>, weight, models| {
            let same = before.and_then(|before| {
                before
                    .list
                    .iter()
                    .find(|it| it.is(name, credentials.as_ref()))
            });
            let (place, counts) = same.map_or_else(
                || {
                    next_place += 1;
                    (next_place - 1, Arc::default())
                },
                |same| (same.place, Arc::clone(&same.counts)),
            );
            Key {
                name: name.to_owned(),
                place,
                counts,
                credentials,
                weight,
                models,
            }
        };
        let mut checked = vec![];
        for configured in keys {
            let mut credentials =
                HeaderValue::try_from(format!("Bearer {}", configured.value.expose())).map_err(
                    |_| anyhow::anyhow!("key `{}` can't be sent in a header", configured.name),
                )?;
            credentials.set_sensitive(true);
            let models = configured.models.clone();
            checked.push(key(
                &configured.name,
                Some(credentials),
                configured.weight,
                models,
            ));
        }
        if checked.is_empty() {
            checked.push(key("none", None, 1.0, vec![]));
        }
        let cumulative: Vec<f64> = checked
            .iter()
            .scan(0.0, |sum, key| {
                *sum += key.weight;
                Some(*sum)
            })
            .collect();
        Ok(Self {
            counts: before.map_or_else(Arc::default, |before| Arc::clone(&before.counts)),
            next_place,
            lineage: before.map_or_else(
                || LINEAGES.fetch_add(1, Ordering::Relaxed),
                |before| before.lineage,
            ),
            guide: guide(&cumulative),
            cumulative,
            any_model: checked.iter().all(|key| key.models.is_empty()),
            health: Mutex::new(checked.iter().map(|_| Health::default()).collect()),
            list: checked,
            rest,
            troubled: AtomicUsize::new(0),
        })
    }

    /// The keys' configured names, by their places; empty where a key is no more.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let places = self.list.iter().map(|key| key.place + 1).max();
        let mut names = vec![String::new(); places.unwrap_or(0)];
        for key in &self.list {
            names[key.place].clone_from(&key.name);
        }
        names
    }

    /// Another number are the keys of another provider.
    #[must_use]
    pub const fn lineage(&self) -> u64 {
        self.lineage
    }

    /// What came of the attempts with all keys that the provider ever had, as [`Seen::counts`] has it.
    #[must_use]
    pub fn counts(&self) -> [u64; 5] {
        self.counts.values()
    }

    /// The keys as they are, in order.
    #[must_use]
    pub fn seen(&self, now: Instant) -> Vec<Seen> {
        let health = self
            .health
            .lock()
            .expect("nobody panics with the health in hand");
        let keys = self.list.iter().zip(health.iter());
        keys.map(|(key, health)| Seen {
            place: key.place,
            condition: if key.weight > 0.0 {
                health.condition(now, self.rest.ramp)
            } else {
                Condition::Off
            },
            weight: key.weight,
            counts: key.counts.values(),
        })
        .collect()
    }

    /// A key for `model`, by weight among the healthy ones that this request has not tried. `random` is from 0 up to,
    /// and without, 1. The clock is read only where a key is in trouble.
    ///
    /// # Errors
    ///
    /// [`NoKey`] says why there is none.
    pub fn lease(
        &self,
        model: &str,
        tried: &Tried,
        now: impl FnOnce() -> Instant,
        random: f64,
    ) -> Result<Lease, NoKey> {
        if self.troubled.load(Ordering::Relaxed) == 0 && self.any_model && tried.is_empty() {
            return Ok(self.leased(self.drawn(random)));
        }
        self.lease_with_care(model, tried, now(), random)
    }

    /// The first key up to and with which the weights make more than `random` of all.
    fn drawn(&self, random: f64) -> usize {
        let last = self.list.len() - 1;
        let share = random * self.cumulative[last];
        let mut index = self.guide[part(random, self.guide.len())];
        while index < last && self.cumulative[index] <= share {
            index += 1;
        }
        index
    }

    /// The `Authorization` header of a leased key, marked sensitive; none for a provider that takes no key.
    #[must_use]
    pub fn credentials(&self, lease: &Lease) -> Option<HeaderValue> {
        self.list[lease.index].credentials.clone()
    }

    fn lease_with_care(
        &self,
        model: &str,
        tried: &Tried,
        now: Instant,
        random: f64,
    ) -> Result<Lease, NoKey> {
        let mut health = self
            .health
            .lock()
            .expect("nobody panics with the health in hand");
        let allowed: Vec<usize> = (0..self.list.len())
            .filter(|index| self.list[*index].may_serve(model))
            .collect();
        if allowed.is_empty() {
            return Err(NoKey::NotForModel);
        }
        let untried: Vec<usize> = allowed
            .iter()
            .copied()
            .filter(|index| !tried.contains(*index))
            .collect();
        let ready: Vec<usize> = untried
            .iter()
            .copied()
            .filter(|index| {
                health[*index].benched.is_none() && health[*index].rests_until(model, now).is_none()
            })
            .collect();
        let shares: Vec<(usize, f64)> = ready
            .into_iter()
            .map(|index| {
                (
                    index,
                    self.list[index].weight * health[index].share(model, now, self.rest.ramp),
                )
            })
            .collect();
        if let Some(index) = by_weight(&shares, random) {
            return Ok(self.leased(index));
        }
        if untried.is_empty() {
            return Err(NoKey::AllTried);
        }
        let back = untried
            .iter()
            .filter(|index| health[**index].benched.is_none())
            .filter_map(|index| health[*index].rests_until(model, now))
            .min();
        if let Some(back) = back {
            return Err(NoKey::Resting(back));
        }
        // All are benched. Now and then one request finds out whether that is still so.
        let longest = untried
            .into_iter()
            .min_by_key(|index| health[*index].benched)
            .ok_or(NoKey::Refused)?;
        let since = health[longest]
            .benched
            .map_or(Duration::ZERO, |since| now.duration_since(since));
        if tried.is_empty() && since >= self.rest.probe {
            health[longest].benched = Some(now);
            return Ok(self.leased(longest));
        }
        Err(NoKey::Refused)
    }

    /// A key that is neither benched nor resting, for a question that is about no model. It never takes the place of a
    /// probe.
    #[must_use]
    pub fn any_healthy(&self, now: Instant) -> Option<Lease> {
        let health = self
            .health
            .lock()
            .expect("nobody panics with the health in hand");
        let is_healthy = |index: &usize| {
            let health = &health[*index];
            self.list[*index].weight > 0.0
                && health.benched.is_none()
                && health.rests.iter().all(|(_, until)| *until <= now)
        };
        (0..self.list.len())
            .find(is_healthy)
            .map(|index| self.uncounted(index))
    }

    /// When the first key that rests for `model` is back.
    #[must_use]
    pub fn soonest_back(&self, model: &str, now: Instant) -> Option<Instant> {
        let health = self
            .health
            .lock()
            .expect("nobody panics with the health in hand");
        let allowed = self
            .list
            .iter()
            .zip(health.iter())
            .filter(|(key, _)| key.may_serve(model));
        allowed
            .filter_map(|(_, health)| health.rests_until(model, now))
            .min()
    }

    fn leased(&self, index: usize) -> Lease {
        self.count(index, |counts| &counts.attempts);
        self.uncounted(index)
    }

    fn uncounted(&self, index: usize) -> Lease {
        Lease {
            place: self.list[index].place,
            index,
        }
    }

    /// Learns from an attempt that failed.
    pub fn failed(
        &self,
        lease: &Lease,
        model: &str,
        error: &Error,
        tried: &mut Tried,
        now: Instant,
    ) {
        let asked = error.retry_after().map(|wait| wait.min(self.rest.max));
        let forbidden = error.facts().status == http::StatusCode::FORBIDDEN;
        self.count(lease.index, |counts| match error.facts().next {
            Next::GoodKey => &counts.refused,
            Next::OtherKey => &counts.rate_limited,
            Next::Nothing | Next::Fallback | Next::Retry => &counts.failed,
        });
        match error.facts().next {
            Next::GoodKey => {
                tried.refused.push(lease.index);
                self.change(lease.index, |health| health.benched = Some(now));
            }
            Next::OtherKey => {
                tried.limited.push(lease.index);
                let wait = asked.unwrap_or(if forbidden {
                    self.rest.forbidden
                } else {
                    self.rest.rate_limited
                });
                self.change(lease.index, |health| health.rest(model, now + wait));
            }
            Next::Nothing | Next::Fallback | Next::Retry => {}
        }
    }

    /// Learns from an attempt that succeeded: a benched key that was probed is good again.
    pub fn succeeded(&self, lease: &Lease) {
        self.count(lease.index, |counts| &counts.answered);
        if self.troubled.load(Ordering::Relaxed) > 0 {
            self.change(lease.index, |health| {
                if health.benched.take().is_some() {
                    health.good_since = Some(Instant::now());
                }
            });
        }
    }

    /// Counts an attempt for its key and for the provider.
    fn count(&self, index: usize, of: impl Fn(&Counts) -> &AtomicU64) {
        for counts in [&self.list[index].counts, &self.counts] {
            of(counts).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Changes a key's health, and forgets what is over, so that the fast way is open again.
    fn change(&self, index: usize, change: impl FnOnce(&mut Health)) {
        let mut health = self
            .health
            .lock()
            .expect("nobody panics with the health in hand");
        change(&mut health[index]);
        let now = Instant::now();
        health
            .iter_mut()
            .for_each(|health| health.forget(now, self.rest.ramp));
        let troubled = health.iter().filter(|health| health.is_troubled()).count();
        self.troubled.store(troubled, Ordering::Relaxed);
    }
}

/// One of the keys by its share of all.
fn by_weight(shares: &[(usize, f64)], random: f64) -> Option<usize> {
    let total: f64 = shares.iter().map(|(_, share)| share).sum();
    let mut left = random * total;
    let mut chosen = None;
    for (index, share) in shares {
        chosen = Some(*index);
        left -= share;
        if left < 0.0 {
            break;
        }
    }
    chosen
}

impl Key {
    fn is(&self, name: &str, credentials: Option<&HeaderValue>) -> bool {
        self.name == *name && self.credentials.as_ref() == credentials
    }

    fn may_serve(&self, model: &str) -> bool {
        self.weight > 0.0
            && (self.models.is_empty() || self.models.iter().any(|allowed| allowed == model))
    }
}

impl Counts {
    fn values(&self) -> [u64; 5] {
        let counts = [
            &self.attempts,
            &self.answered,
            &self.rate_limited,
            &self.refused,
            &self.failed,
        ];
        counts.map(|count| count.load(Ordering::Relaxed))
    }
}

impl Health {
    fn condition(&self, now: Instant, ramp: Duration) -> Condition {
        let rests = self.rests.iter().map(|(_, until)| *until);
        if self.benched.is_some() {
            Condition::Benched
        } else if let Some(until) = rests.clone().filter(|until| *until > now).max() {
            Condition::Resting(until)
        } else if rests.chain(self.good_since).any(|back| back + ramp > now) {
            Condition::Warming
        } else {
            Condition::Ready
        }
    }

    fn rests_until(&self, model: &str, now: Instant) -> Option<Instant> {
        self.rests
            .iter()
            .find(|(rests, until)| **rests == *model && *until > now)
            .map(|(_, until)| *until)
    }

    /// Sends it to rest. Room is made at the cost of the rest that is over first.
    fn rest(&mut self, model: &str, until: Instant) {
        self.rests.retain(|(rests, _)| **rests != *model);
        if self.rests.len() >= RESTS_MAX {
            let soonest = self
                .rests
                .iter()
                .enumerate()
                .min_by_key(|(_, (_, over))| *over)
                .map(|(at, _)| at);
            soonest.map(|at| self.rests.swap_remove(at));
        }
        self.rests.push((model.into(), until));
    }

    /// The part of its share that it gets: it comes back slowly, so that a provider which is still at its limit is not
    /// met by all the traffic at once.
    fn share(&self, model: &str, now: Instant, ramp: Duration) -> f64 {
        let rested = self
            .rests
            .iter()
            .find(|(rests, _)| **rests == *model)
            .map(|(_, until)| *until);
        let back = rested.into_iter().chain(self.good_since).max();
        back.map_or(1.0, |back| {
            let risen = now
                .duration_since(back)
                .div_duration_f64(ramp.max(Duration::from_nanos(1)));
            FIRST_SHARE.max(risen).min(1.0)
        })
    }

    fn forget(&mut self, now: Instant, ramp: Duration) {
        self.rests.retain(|(_, until)| *until + ramp > now);
        self.good_since = self.good_since.filter(|since| *since + ramp > now);
    }

    fn is_troubled(&self) -> bool {
        self.benched.is_some() || self.good_since.is_some() || !self.rests.is_empty()
    }
}

impl Tried {
    fn is_empty(&self) -> bool {
        self.refused.is_empty() && self.limited.is_empty()
    }

    fn contains(&self, index: usize) -> bool {
        self.refused.contains(&index) || self.limited.contains(&index)
    }
}

/// For each of the equal parts of the random numbers, the first key that one of them can draw.
fn guide(cumulative: &[f64]) -> Vec<usize> {
    // A power of two: the part that a number falls into is then exact, and so is the part's beginning.
    let parts = cumulative.len().next_power_of_two();
    let total = cumulative.last().copied().unwrap_or_default();
    let first = |index: usize| {
        let share = index as f64 / parts as f64 * total;
        cumulative.partition_point(|sum| *sum <= share)
    };
    let last = cumulative.len().saturating_sub(1);
    (0..parts).map(|index| first(index).min(last)).collect()
}

/// Which of so many equal parts a number from 0 up to 1 falls into.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is from 0 up to the number of parts"
)]
fn part(random: f64, parts: usize) -> usize {
    ((random * parts as f64) as usize).min(parts - 1)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::config::{Rest, Secret};
    use crate::error::Answered;

    fn rest() -> Rest {
        Rest {
            rate_limited: Duration::from_secs(5),
            max: Duration::from_mins(10),
            forbidden: Duration::from_mins(1),
            probe: Duration::from_secs(5),
            ramp: Duration::from_secs(10),
        }
    }

    fn keys(weights: &[f64]) -> Keys {
        let keys: Vec<_> = weights
            .iter()
            .enumerate()
            .map(|(number, weight)| config::Key {
                name: format!("key-{number}"),
                value: Secret::new(&format!("sk-{number}")),
                weight: *weight,
                models: vec![],
            })
            .collect();
        Keys::new(&keys, rest(), None).unwrap()
    }

    proptest::proptest! {
        #[test]
        fn a_number_draws_the_key_that_it_falls_to_among_the_weights(
            weights in proptest::collection::vec(proptest::prop_oneof![0.0..0.0001_f64, 0.0..10.0], 1..130),
            random in 0.0..1.0_f64,
        ) {
            let keys = keys(&weights);
            let share = random * keys.cumulative[weights.len() - 1];
            let first = keys.cumulative.iter().position(|sum| *sum > share);
            proptest::prop_assert_eq!(keys.drawn(random), first.unwrap_or(weights.len() - 1));
        }
    }

    fn answered(status: u16, retry_after: Option<Duration>) -> Error {
        Error::Answered(Box::new(Answered {
            status: StatusCode::from_u16(status).unwrap(),
            body: None,
            encoding: None,
            message: String::new(),
            code: None,
            retry_after,
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn how_each_key_is_can_be_seen_and_what_came_of_it() {
        let keys = keys(&[1.0, 1.0, 0.0]);
        let conditions = |keys: &Keys| -> Vec<_> {
            let seen = keys.seen(Instant::now());
            seen.iter().map(|key| key.condition).collect()
        };
        fail(&keys, 401, None);
        fail(&keys, 429, Some(Duration::from_secs(7)));
        let back = Instant::now() + Duration::from_secs(7);
        assert_eq!(
            conditions(&keys),
            [Condition::Benched, Condition::Resting(back), Condition::Off]
        );
        tokio::time::advance(Duration::from_secs(8)).await;
        assert_eq!(conditions(&keys)[1], Condition::Warming);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(conditions(&keys)[1], Condition::Ready);
        let lease = keys
            .lease("m", &Tried::default(), Instant::now, 0.0)
            .unwrap();
        keys.succeeded(&lease);
        let counts: Vec<_> = keys
            .seen(Instant::now())
            .iter()
            .map(|key| key.counts)
            .collect();
        assert_eq!(counts[..2], [[1, 0, 0, 1, 0], [2, 1, 1, 0, 0]]);
    }

    #[test]
    fn a_key_that_stays_keeps_its_place_and_its_counts_and_a_new_one_takes_nobodys() {
        let configured = |names: &[&str]| -> Vec<_> {
            let key = |name: &&str| config::Key {
                name: (*name).to_owned(),
                value: Secret::new(&format!("sk-{name}")),
                weight: 1.0,
                models: vec![],
            };
            names.iter().map(key).collect()
        };
        let first = Keys::new(&configured(&["a", "b"]), rest(), None).unwrap();
        for random in [0.1, 0.9] {
            let lease = first.lease("m", &Tried::default(), Instant::now, random);
            first.succeeded(&lease.unwrap());
        }
        let second = Keys::new(&configured(&["c", "b"]), rest(), Some(&first)).unwrap();
        assert_eq!(second.names(), ["", "b", "c"]);
        let seen = second.seen(Instant::now());
        let told: Vec<_> = seen.iter().map(|key| (key.place, key.counts[1])).collect();
        assert_eq!(told, [(2, 0), (1, 1)]);
        assert_eq!(second.counts(), [2, 2, 0, 0, 0], "the provider's own go on");
        assert_eq!(second.lineage(), first.lineage());
        // Another value is another key, whatever its name.
        let mut other = configured(&["b"]);
        other[0].value = Secret::new("sk-else");
        let third = Keys::new(&other, rest(), Some(&second)).unwrap();
        assert_eq!(third.names(), ["", "", "", "b"]);
    }

    fn fail(keys: &Keys, status: u16, retry_after: Option<Duration>) -> Tried {
        let mut tried = Tried::default();
        let lease = keys.lease("m", &tried, Instant::now, 0.0).unwrap();
        keys.failed(
            &lease,
            "m",
            &answered(status, retry_after),
            &mut tried,
            Instant::now(),
        );
        tried
    }

    #[tokio::test(start_paused = true)]
    async fn shares_follow_the_weights_and_a_weight_of_zero_is_never_chosen() {
        let check = |weights: &[f64], random: f64, expected: usize| {
            let keys = keys(weights);
            let lease = keys
                .lease("m", &Tried::default(), Instant::now, random)
                .unwrap();
            assert_eq!(lease.index, expected, "{weights:?} at {random}");
        };
        check(&[0.7, 0.3], 0.0, 0);
        check(&[0.7, 0.3], 0.69, 0);
        check(&[0.7, 0.3], 0.71, 1);
        check(&[0.0, 0.004], 0.0, 1);
        check(&[0.0, 0.004], 0.999_999, 1);
        check(&[0.5, 0.5, 0.0], 0.999_999_999, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_at_its_limit_rests_as_long_as_the_provider_says_and_for_that_model_only() {
        let keys = keys(&[1.0, 1.0]);
        fail(&keys, 429, Some(Duration::from_secs(30)));
        let pick = |model: &str| {
            keys.lease(model, &Tried::default(), Instant::now, 0.0)
                .unwrap()
                .index
        };
        assert_eq!((pick("m"), pick("other")), (1, 0));
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(pick("m"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_rest_the_soonest_return_is_told() {
        let keys = keys(&[1.0, 1.0]);
        let now = Instant::now();
        fail(&keys, 429, Some(Duration::from_secs(30)));
        fail(&keys, 429, Some(Duration::from_secs(20)));
        let none = keys.lease("m", &Tried::default(), || now, 0.0).unwrap_err();
        assert_eq!(none, NoKey::Resting(now + Duration::from_secs(20)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_about_no_model_takes_no_probe() {
        let keys = keys(&[1.0]);
        fail(&keys, 401, None);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(keys.any_healthy(Instant::now()).is_none());
        assert!(
            keys.lease("m", &Tried::default(), Instant::now, 0.0)
                .is_ok(),
            "the probe is still there"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_retry_after_is_believed_up_to_the_limit() {
        let keys = keys(&[1.0]);
        let now = Instant::now();
        fail(&keys, 429, Some(Duration::MAX));
        let none = keys.lease("m", &Tried::default(), || now, 0.0).unwrap_err();
        assert_eq!(none, NoKey::Resting(now + Duration::from_mins(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_key_is_benched_for_every_model_and_probed_by_one_request_at_a_time() {
        let keys = keys(&[1.0]);
        fail(&keys, 401, None);
        let lease = |model: &str| keys.lease(model, &Tried::default(), Instant::now, 0.0);
        assert_eq!(lease("other").unwrap_err(), NoKey::Refused);
        tokio::time::advance(Duration::from_secs(5)).await;
        let probe = lease("m").unwrap();
        assert_eq!(
            lease("m").unwrap_err(),
            NoKey::Refused,
            "one probe is enough"
        );
        keys.succeeded(&probe);
        assert!(lease("m").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_comes_back_reaches_its_share_slowly_and_then_exactly() {
        let keys = keys(&[1.0, 1.0]);
        fail(&keys, 429, Some(Duration::from_secs(5)));
        let mut random = fastrand::Rng::with_seed(7);
        let mut share_after = |wait: u64, picks: u32| {
            let now = Instant::now() + Duration::from_secs(wait);
            let first = (0..picks)
                .filter(|_| {
                    keys.lease("m", &Tried::default(), || now, random.f64())
                        .unwrap()
                        .index
                        == 0
                })
                .count();
            first as f64 / f64::from(picks)
        };
        assert!(share_after(4, 1_000) < f64::EPSILON, "it rests");
        // 0.1 of its weight against the other's 1.0, then half of it.
        assert!((share_after(5, 20_000) - 0.1 / 1.1).abs() < 0.01);
        assert!((share_after(10, 20_000) - 0.5 / 1.5).abs() < 0.01);
        assert!((share_after(15, 20_000) - 0.5).abs() < 0.01);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_shares_go_back_to_the_weights() {
        // Three keys: one is refused and found good again, one was at its limit.
        let keys = keys(&[0.5, 0.3, 0.2]);
        let now = Instant::now();
        for (random, status) in [(0.0, 401), (0.6, 429)] {
            let mut tried = Tried::default();
            let lease = keys.lease("m", &tried, || now, random).unwrap();
            keys.failed(
                &lease,
                "m",
                &answered(status, Some(Duration::from_secs(5))),
                &mut tried,
                now,
            );
        }
        keys.succeeded(&keys.leased(0));
        tokio::time::advance(Duration::from_secs(16)).await;
        keys.succeeded(&keys.leased(2));
        let mut random = fastrand::Rng::with_seed(1);
        let picks = 100_000;
        let mut counts = [0_u32; 3];
        for _ in 0..picks {
            counts[keys
                .lease("m", &Tried::default(), Instant::now, random.f64())
                .unwrap()
                .index] += 1;
        }
        let expected = [0.5, 0.3, 0.2].map(|weight| weight * f64::from(picks));
        let chi_square: f64 = counts
            .iter()
            .zip(expected)
            .map(|(count, mean)| (f64::from(*count) - mean).powi(2) / mean)
            .sum();
        // Two degrees of freedom: 9.21 is exceeded by chance in one run of a hundred; the seed is fixed.
        assert!(chi_square < 9.21, "{counts:?}: {chi_square}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_tries_each_key_once() {
        let keys = keys(&[1.0, 1.0]);
        let mut tried = Tried::default();
        for expected in [0, 1] {
            let lease = keys.lease("m", &tried, Instant::now, 0.0).unwrap();
            assert_eq!(lease.index, expected);
            keys.failed(
                &lease,
                "m",
                &answered(401, None),
                &mut tried,
                Instant::now(),
            );
        }
        assert_eq!(
            keys.lease("m", &tried, Instant::now, 0.0).unwrap_err(),
            NoKey::AllTried
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_serves_only_the_models_on_its_list() {
        let listed = config::Key {
            name: "listed".to_owned(),
            value: Secret::new("sk"),
            weight: 1.0,
            models: vec!["m".to_owned()],
        };
        let keys = Keys::new(&[listed], rest(), None).unwrap();
        assert!(
            keys.lease("m", &Tried::default(), Instant::now, 0.0)
                .is_ok()
        );
        assert_eq!(
            keys.lease("n", &Tried::default(), Instant::now, 0.0)
                .unwrap_err(),
            NoKey::NotForModel
        );
    }

    #[test]
    fn what_prints_a_key_shows_its_name_and_not_its_value() {
        let keys = keys(&[1.0]);
        let lease = keys.leased(0);
        // HTTP/2 keeps such a header out of its tables, too.
        assert!(keys.credentials(&lease).unwrap().is_sensitive());
        let printed = format!("{keys:?} {lease:?}");
        assert!(printed.contains("key-0"), "{printed}");
        assert!(!printed.contains("sk-0"), "{printed}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_models_that_a_key_rests_for_are_bounded() {
        let keys = keys(&[1.0]);
        for number in 0..RESTS_MAX * 2 {
            let model = format!("m{number}");
            let mut tried = Tried::default();
            let lease = keys.lease(&model, &tried, Instant::now, 0.0).unwrap();
            keys.failed(
                &lease,
                &model,
                &answered(429, None),
                &mut tried,
                Instant::now(),
            );
        }
        assert_eq!(keys.health.lock().unwrap()[0].rests.len(), RESTS_MAX);
    }
}
