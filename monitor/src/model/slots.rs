//! Providers and keys over a window: what each gained in it, its share of its provider's attempts, and how long its
//! answers took.
//!
//! A slot's latency is 2 KB, so that 300 snapshots of all would be 50 MB. Kept are seven for each window, a sixth of it
//! apart: a window is then up to a sixth longer than its name says, and rates are over the time that it really was.

use std::collections::VecDeque;
use std::rc::Rc;

use bifrost_shared::slot::{Latency, Slot, SlotCount};

use super::Window;

/// Snapshots a window is made of.
const STEPS: u64 = 6;
const WINDOWS: [Window; 3] = [Window::Short, Window::Minute, Window::Long];

/// Slots of some moments of the recent past.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotHistory([VecDeque<(u64, Rc<[Slot]>)>; WINDOWS.len()]);

impl SlotHistory {
    /// Takes the slots of a moment, on the clock of the exporter's heartbeat.
    pub(crate) fn absorb(&mut self, at: u64, slots: &[Slot]) {
        let mut shared = None;
        for (kept, window) in self.0.iter_mut().zip(WINDOWS) {
            let is_due = kept
                .back()
                .is_none_or(|(last, _)| at.saturating_sub(*last) >= window.ns() / STEPS);
            if !is_due {
                continue;
            }
            let slots = shared.get_or_insert_with(|| Rc::from(slots));
            kept.push_back((at, Rc::clone(slots)));
            // The second is still old enough to begin the window with.
            while kept
                .get(1)
                .is_some_and(|(second, _)| at - *second >= window.ns())
            {
                kept.pop_front();
            }
        }
    }

    /// How the slots were when `window` began, or when we came, and when that was.
    fn beginning(&self, window: Window) -> Option<(u64, &[Slot])> {
        let place = WINDOWS.iter().position(|it| *it == window)?;
        let (at, slots) = self.0[place].front()?;
        Some((*at, slots))
    }

    /// What `slots`, those of `at`, gained since the window began. With `uptime`, nanoseconds that the gateway has
    /// lived, a window that reaches beyond its start begins there.
    pub(crate) fn gains(&self, at: u64, slots: &[Slot], window: Window, uptime: u64) -> Vec<Gain> {
        let is_young = uptime <= window.ns();
        let (span, before) = match self.beginning(window) {
            _ if is_young => (uptime, &[][..]),
            Some((since, before)) => (at.saturating_sub(since), before),
            None => (0, &[][..]),
        };
        let mut gains: Vec<_> = slots
            .iter()
            .map(|slot| {
                let same = |it: &&Slot| (it.provider, it.key) == (slot.provider, slot.key);
                Gain::between(span, before.iter().find(same), slot)
            })
            .collect();
        for place in 0..slots.len() {
            gains[place].share = share(slots, &gains, place);
        }
        gains
    }
}

/// What a key gained of its provider's attempts, thousandths. None for a provider, and without attempts.
fn share(slots: &[Slot], gains: &[Gain], place: usize) -> Option<u64> {
    slots[place].key?;
    let of_provider = slots
        .iter()
        .zip(gains)
        .filter(|(slot, _)| slot.provider == slots[place].provider && slot.key.is_some());
    let all = of_provider.fold(0_u128, |sum, (_, gain)| {
        sum + u128::from(gain.count(SlotCount::Attempts))
    });
    let own = u128::from(gains[place].count(SlotCount::Attempts)) * 1_000;
    u64::try_from(own.checked_div(all)?).ok()
}

/// What one slot gained in a window.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gain {
    /// How long the window was, nanoseconds.
    pub(crate) span: u64,
    /// A key's part of its provider's attempts, thousandths.
    pub(crate) share: Option<u64>,
    /// Latencies that were counted in it.
    pub(crate) latency: Latency,
    counts: [u64; SlotCount::COUNT],
}

impl Gain {
    fn between(span: u64, before: Option<&Slot>, now: &Slot) -> Self {
        // A count that fell is another key in the same place: all that it has it gained.
        let only_grew = |before: &&Slot| before.counts.iter().zip(&now.counts).all(|(a, b)| a <= b);
        let before = before.filter(only_grew);
        let counts = std::array::from_fn(|at| {
            let then = before.map_or(0, |before| before.counts[at]);
            now.counts[at] - then
        });
        Self {
            span,
            share: None,
            latency: before.map_or_else(
                || now.latency.clone(),
                |before| now.latency.since(&before.latency),
            ),
            counts,
        }
    }

    /// What one of the counts gained.
    pub(crate) const fn count(&self, count: SlotCount) -> u64 {
        self.counts[count.index()]
    }

    /// The same for each second, in tenths. None where no time has passed.
    pub(crate) fn tenths_per_second(&self, count: SlotCount) -> Option<u64> {
        let gained = u128::from(self.count(count)) * 10_000_000_000;
        u64::try_from(gained.checked_div(u128::from(self.span))?).ok()
    }
}

#[cfg(test)]
mod tests {
    use bifrost_shared::slot::SlotState;

    use super::*;
    use crate::format::SECOND;

    fn slot(key: Option<u16>, attempts: u64) -> Slot {
        let mut counts = [0; SlotCount::COUNT];
        counts[SlotCount::Attempts.index()] = attempts;
        Slot {
            provider: 0,
            key,
            state: SlotState::Ready,
            until: 0,
            weight_millionths: 0,
            places: 0,
            taken: 0,
            waiting: 0,
            counts,
            latency: Latency::default(),
        }
    }

    fn slots(attempts: [u64; 2]) -> [Slot; 3] {
        let [a, b] = attempts;
        [slot(None, a + b), slot(Some(0), a), slot(Some(1), b)]
    }

    /// Attempts gained, their rate in tenths, and shares, after a look each second with `attempts` of each key so far.
    fn after(seconds: u64, window: Window, uptime: u64) -> (Vec<u64>, Vec<Option<u64>>, u64) {
        let mut history = SlotHistory::default();
        let at = |second| slots([second * 30, second * 10]);
        for second in 0..=seconds {
            history.absorb(1_000 * SECOND + second * SECOND, &at(second));
        }
        let now = (1_000 + seconds) * SECOND;
        let gains = history.gains(now, &at(seconds), window, uptime * SECOND);
        let attempts = gains.iter().map(|it| it.count(SlotCount::Attempts));
        let shares = gains.iter().map(|it| it.share);
        let rate = gains[0].tenths_per_second(SlotCount::Attempts);
        (attempts.collect(), shares.collect(), rate.unwrap_or(0))
    }

    #[test]
    fn a_window_has_what_was_gained_in_it_and_shares_of_attempts() {
        let shares = vec![None, Some(750), Some(250)];
        assert_eq!(
            after(100, Window::Short, 9_999),
            (vec![400, 300, 100], shares.clone(), 400)
        );
        let (attempts, _, rate) = after(100, Window::Minute, 9_999);
        assert!((2_400..=2_800).contains(&attempts[0]), "{attempts:?}");
        assert_eq!(rate, 400, "over the time that it really was");
        let (attempts, _, rate) = after(100, Window::Long, 9_999);
        assert_eq!((attempts[0], rate), (4_000, 400), "as far as we have seen");
        assert_eq!(after(100, Window::Long, 100).0, [4_000, 3_000, 1_000]);
    }

    #[test]
    fn no_more_is_kept_than_a_window_needs() {
        let mut history = SlotHistory::default();
        for tick in 0..10_000 {
            history.absorb(tick * SECOND / 4, &slots([tick, tick]));
        }
        assert!(history.0.iter().all(|kept| kept.len() <= 8));
    }

    #[test]
    fn another_key_in_the_same_place_begins_anew() {
        let mut history = SlotHistory::default();
        history.absorb(0, &slots([500, 500]));
        let gains = history.gains(10 * SECOND, &slots([20, 600]), Window::Minute, u64::MAX);
        let attempts: Vec<_> = gains
            .iter()
            .map(|it| it.count(SlotCount::Attempts))
            .collect();
        assert_eq!(attempts, [620, 20, 100]);
        let first = history.gains(0, &slots([500, 500]), Window::Minute, u64::MAX);
        assert_eq!(first[0].tenths_per_second(SlotCount::Attempts), None);
    }
}
