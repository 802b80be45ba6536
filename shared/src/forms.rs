//! How parts of a snapshot look as JSON, where they look otherwise than their types: see [`wire`](crate::wire).

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::histogram::{BUCKETS, Histogram};
use crate::layout::{SERIES_ROOM, State, gauges};
use crate::slot::{self, GROUPS, SlotState};

/// Characters of a text that are kept.
pub(crate) const TEXT_MAX: usize = 64;
/// Runtimes that are kept.
pub(crate) const RUNTIMES_MAX: usize = gauges::RUNTIMES_MAX;
/// Slots that are kept.
pub(crate) const SLOTS_MAX: usize = slot::CAPACITY;

/// A list, of which no more is kept than `MAX`.
pub(crate) fn at_most<'de, D, T, const MAX: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let mut list = Vec::deserialize(from)?;
    list.truncate(MAX);
    Ok(list)
}

/// A text that may end up in a terminal.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    let harmless = text.chars().filter(|sign| !sign.is_control());
    Ok(harmless.take(TEXT_MAX).collect())
}

/// Whether a figure may be left out.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks with a reference"
)]
pub(crate) const fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// An array by its places that are not zero.
pub(crate) mod sparse {
    use super::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(values: &[u64], into: S) -> Result<S::Ok, S::Error> {
        let places = (0_u64..).zip(values).filter(|(_, value)| **value > 0);
        into.collect_seq(places.flat_map(|(place, value)| [place, *value]))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        from: D,
    ) -> Result<[u64; N], D::Error> {
        let mut values = [0; N];
        fill(from, &mut values)?;
        Ok(values)
    }

    pub(super) fn fill<'de, D: Deserializer<'de>>(
        from: D,
        values: &mut [u64],
    ) -> Result<(), D::Error> {
        for [place, value] in Vec::<u64>::deserialize(from)?.as_chunks().0 {
            let place = usize::try_from(*place).ok();
            if let Some(at) = place.and_then(|place| values.get_mut(place)) {
                *at = *value;
            }
        }
        Ok(())
    }
}

/// The same for the buckets of a histogram.
pub(crate) mod buckets {
    use super::{BUCKETS, Deserializer};

    pub(crate) use super::sparse::serialize;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Box<[u64]>, D::Error> {
        let mut values = vec![0; BUCKETS].into_boxed_slice();
        super::sparse::fill(from, &mut values)?;
        Ok(values)
    }
}

/// The same for the coarser ones of a slot.
pub(crate) mod groups {
    use super::{Deserializer, GROUPS};

    pub(crate) use super::sparse::serialize;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Box<[u64]>, D::Error> {
        let mut values = vec![0; GROUPS].into_boxed_slice();
        super::sparse::fill(from, &mut values)?;
        Ok(values)
    }
}

/// Histograms by their places, without the empty ones.
pub(crate) mod histograms {
    use super::{Deserialize, Deserializer, Histogram, SERIES_ROOM, Serializer};

    pub(crate) fn serialize<S: Serializer>(all: &[Histogram], into: S) -> Result<S::Ok, S::Error> {
        into.collect_seq((0_u64..).zip(all).filter(|(_, it)| it.count > 0))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Histogram>, D::Error> {
        let mut all = vec![Histogram::default(); SERIES_ROOM];
        for (place, histogram) in Vec::<(usize, Histogram)>::deserialize(from)? {
            if let Some(at) = all.get_mut(place) {
                *at = histogram;
            }
        }
        Ok(all)
    }
}

/// A state by its name; one that this version does not know is none, as in a segment.
pub(crate) mod state {
    use super::{Deserialize as _, Deserializer, Serialize as _, Serializer, State};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        clippy::ref_option,
        reason = "serde asks with a reference"
    )]
    pub(crate) fn serialize<S: Serializer>(
        state: &Option<State>,
        into: S,
    ) -> Result<S::Ok, S::Error> {
        state.map(State::label).serialize(into)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<State>, D::Error> {
        let label = Option::<String>::deserialize(from)?;
        let known = (0..8).filter_map(State::from_number);
        Ok(label.and_then(|label| known.into_iter().find(|it| it.label() == label)))
    }
}

/// How a slot is, by its name; what this version does not know is ready, as in a segment.
pub(crate) mod slot_state {
    use super::{Deserialize, Deserializer, Serializer, SlotState};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde asks with a reference"
    )]
    pub(crate) fn serialize<S: Serializer>(state: &SlotState, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_str(state.key())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SlotState, D::Error> {
        let key = String::deserialize(from)?;
        let known = SlotState::ALL.iter().copied().find(|it| it.key() == key);
        Ok(known.unwrap_or(SlotState::Ready))
    }
}

/// Counts of a slot: as many as this version knows, whatever was written.
pub(crate) mod counts {
    use super::{Deserialize, Deserializer, Serialize as _, Serializer};

    pub(crate) fn serialize<S: Serializer>(counts: &[u64], into: S) -> Result<S::Ok, S::Error> {
        counts.serialize(into)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        from: D,
    ) -> Result<[u64; N], D::Error> {
        let told = Vec::<u64>::deserialize(from)?;
        Ok(std::array::from_fn(|at| told.get(at).copied().unwrap_or(0)))
    }
}
