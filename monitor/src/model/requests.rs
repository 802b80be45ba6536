//! Single requests: the last ones, and the slowest by each of three measures. Both lists are bounded, whatever the load.

use std::cmp::Reverse;
use std::collections::VecDeque;

use bifrost_shared::record::{Outcome, Record};
use bifrost_shared::stage::Stage;

use super::focus::Order;
use crate::format::SECOND;

/// Requests kept for being recent: some 200 KB.
const RECENT_MAX: usize = 1_000;
/// Requests kept for having gone wrong.
const WRONG_MAX: usize = 100;
/// Requests kept for being slow, by each measure and in each of two periods.
const SLOW_MAX: usize = 100;
/// A period of the slow ones. The list tells of this one and the one before: the slowest of the last 5 to 10 minutes,
/// exactly, where forgetting single ones would leave gaps.
const PERIOD: u64 = 300 * SECOND;
/// What slow ones are slow by.
pub(crate) const MEASURES: [Order; 3] = [Order::Total, Order::Overhead, Order::QueueWait];

impl Order {
    /// What `record` is sorted by.
    pub(crate) fn value(self, record: &Record) -> u64 {
        match self {
            Self::Time => record.ended_at,
            Self::Total => record.total,
            Self::Overhead => record.overhead(),
            Self::QueueWait => record.stage(Stage::QueueWait),
        }
    }
}

/// Recent and slow requests of one gateway.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requests {
    /// Those that we were not told of.
    pub(crate) missed: u64,
    recent: VecDeque<Record>,
    /// The last that went wrong: at full load the recent ones reach back for a quarter of a second.
    /// Each with its number.
    wrong: VecDeque<(u64, Record)>,
    /// How many there were.
    count: u64,
    slow: [Slow; MEASURES.len()],
    /// When the present period of the slow ones began, nanoseconds since the Unix epoch.
    since: u64,
}

/// The slowest by one measure.
#[derive(Debug, Clone, Default)]
struct Slow {
    present: Vec<(u64, Record)>,
    past: Vec<(u64, Record)>,
}

impl Slow {
    fn absorb(&mut self, value: u64, record: &Record) {
        let least = self.present.last().map_or(0, |(value, _)| *value);
        if self.present.len() == SLOW_MAX && value <= least {
            return;
        }
        let place = self.present.partition_point(|(kept, _)| *kept >= value);
        self.present.insert(place, (value, *record));
        self.present.truncate(SLOW_MAX);
    }
}

impl Requests {
    /// Takes the next request.
    pub(crate) fn absorb(&mut self, record: &Record) {
        if record.ended_at.saturating_sub(self.since) >= PERIOD {
            for slow in &mut self.slow {
                slow.past = std::mem::take(&mut slow.present);
            }
            self.since = record.ended_at;
        }
        for (slow, order) in self.slow.iter_mut().zip(MEASURES) {
            slow.absorb(order.value(record), record);
        }
        push(&mut self.recent, *record, RECENT_MAX);
        if record.outcome != Outcome::Completed {
            push(&mut self.wrong, (self.count, *record), WRONG_MAX);
        }
        self.count += 1;
    }

    /// Newest first. They come runtime by runtime, some 50 ms of each.
    fn by_time(&self) -> Vec<&Record> {
        let forgotten = self.count - self.recent.len() as u64;
        let wrong = self.wrong.iter().filter(|(number, _)| *number < forgotten);
        let wrong = wrong.map(|(_, record)| record);
        let mut all: Vec<_> = self.recent.iter().chain(wrong).collect();
        all.sort_by_key(|record| Reverse(record.ended_at));
        all
    }

    /// Forgets the slow ones.
    pub(crate) fn clear_slow(&mut self) {
        self.slow = Default::default();
    }

    /// What there is, largest first: the recent ones and those that went wrong by time, the slow ones by their measure.
    pub(crate) fn sorted(&self, order: Order) -> Vec<&Record> {
        let Some(at) = MEASURES.iter().position(|measure| *measure == order) else {
            return self.by_time();
        };
        let Slow { present, past } = &self.slow[at];
        let mut all: Vec<_> = present.iter().chain(past).collect();
        all.sort_by_key(|(value, _)| Reverse(*value));
        all.into_iter().map(|(_, record)| record).collect()
    }
}

fn push<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}

/// Whether every word of `filter` stands in `text`, whichever way it is written.
pub(crate) fn matches(text: &str, filter: &str) -> bool {
    let text = text.to_lowercase();
    let filter = filter.to_lowercase();
    filter.split_whitespace().all(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u64, second: u64, total: u64) -> Record {
        Record {
            id,
            ended_at: second * SECOND,
            total,
            outcome: Outcome::Completed,
            ..Record::default()
        }
    }

    fn ids(requests: &Requests, order: Order) -> Vec<u64> {
        let sorted = requests.sorted(order).into_iter();
        sorted.map(|record| record.id).collect()
    }

    #[test]
    fn the_slowest_stay_long_after_they_are_no_longer_recent() {
        let mut requests = Requests::default();
        requests.absorb(&record(1, 1_000, 9_999));
        for id in 2..=3_000 {
            requests.absorb(&record(id, 1_000, id));
        }
        assert_eq!(ids(&requests, Order::Time).len(), RECENT_MAX);
        let slow = ids(&requests, Order::Total);
        assert_eq!(
            (slow.len(), slow[0], slow[1], slow[99]),
            (100, 1, 3_000, 2_902)
        );
    }

    #[test]
    fn recent_ones_stand_by_time_however_they_came() {
        let mut requests = Requests::default();
        for (id, second) in [(1, 1_000), (2, 1_002), (3, 1_001), (4, 1_003)] {
            requests.absorb(&record(id, second, 1));
        }
        assert_eq!(ids(&requests, Order::Time), [4, 2, 3, 1]);
    }

    #[test]
    fn what_went_wrong_is_still_there_when_others_are_no_longer_recent() {
        let mut requests = Requests::default();
        for id in 1..=3_000 {
            let mut record = record(id, id, 1);
            if [5, 2_990].contains(&id) {
                record.outcome = Outcome::Failed;
            }
            requests.absorb(&record);
        }
        let ids = ids(&requests, Order::Time);
        assert_eq!((ids.len(), ids[0], ids[10]), (RECENT_MAX + 1, 3_000, 2_990));
        assert_eq!(ids[RECENT_MAX], 5);
    }

    #[test]
    fn what_was_slow_is_forgotten_after_two_periods() {
        let mut requests = Requests::default();
        for (id, second, expected) in [
            (1, 1_000, vec![1]),
            (2, 1_299, vec![1, 2]),
            (3, 1_300, vec![1, 2, 3]),
            (4, 1_599, vec![1, 2, 3, 4]),
            (5, 1_600, vec![3, 4, 5]),
        ] {
            requests.absorb(&record(id, second, 1_000 - id));
            assert_eq!(ids(&requests, Order::Total), expected, "{second}");
        }
        requests.clear_slow();
        assert_eq!(ids(&requests, Order::Total), [0; 0]);
        assert_eq!(
            ids(&requests, Order::Time).len(),
            5,
            "recent ones are no maxima"
        );
    }

    #[test]
    fn each_measure_has_its_own_slowest() {
        let mut requests = Requests::default();
        for (id, total, queue_wait, parsing) in [(1, 30, 1, 2), (2, 20, 3, 1), (3, 10, 2, 3)] {
            let mut record = record(id, 1_000, total);
            record.stages[Stage::QueueWait.index()] = queue_wait;
            record.stages[Stage::ErrorHandling.index()] = parsing * 10;
            requests.absorb(&record);
        }
        assert_eq!(ids(&requests, Order::Total), [1, 2, 3]);
        assert_eq!(ids(&requests, Order::QueueWait), [2, 3, 1]);
        assert_eq!(ids(&requests, Order::Overhead), [3, 1, 2]);
    }

    #[test]
    fn a_filter_wants_all_of_its_words_in_any_case() {
        for (filter, expected) in [
            ("", true),
            ("OpenAI", true),
            ("429 openai", true),
            ("429 groq", false),
            ("  ", true),
        ] {
            assert_eq!(
                matches("failed openai/key-1 429", filter),
                expected,
                "{filter}"
            );
        }
    }
}
