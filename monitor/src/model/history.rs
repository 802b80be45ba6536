//! The last minutes of every distribution, so that a window is what was counted in it and nothing else.
//!
//! Kept are differences of the segment's cumulative histograms, one a second at most: some 2 KB a busy second, where 300
//! whole snapshots would be 70 MB. For the time before the monitor came there are only the closed seconds' own figures; a
//! distribution is made of them that has their exact sums and counts, and quantiles that are right where the seconds were
//! alike.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use bifrost_shared::histogram::{Histogram, bucket_of};
use bifrost_shared::layout::SERIES_ROOM;
use bifrost_shared::snapshot::{Figures, Row, Summary};

use super::slice::Slice;
use crate::format::SECOND;

/// The longest window, seconds.
const WINDOW_MAX: usize = 300;
/// Differences kept: one more than the seconds of the longest window, which may end within one.
const SLICES_MAX: usize = WINDOW_MAX + 1;

/// Values that a stretch between two quantiles of a closed second is told by.
const STEPS: u64 = 16;

/// The shares of a second's values that do not exceed its p50, p95, p99 and maximum, in percent.
const SHARES: [u64; 4] = [50, 95, 99, 100];

/// Distributions of the recent past.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// The seconds that were closed before the first figures came, oldest first; as long as a window reaches back to them.
    before: Vec<Row>,
    slices: VecDeque<Slice>,
    /// The cumulative figures that the next slice is the difference to, and when they were.
    base: Option<(u64, Rc<Figures>)>,
    latest: Option<(u64, Rc<Figures>)>,
    /// When the first figures came.
    since: u64,
    /// What was asked for last: a screen asks for every series at each look, and this part changes once a second.
    closed: RefCell<Option<Closed>>,
}

/// What each series counted in a window up to the base.
#[derive(Debug, Clone)]
struct Closed {
    window: u64,
    until: u64,
    series: Vec<Histogram>,
}

impl History {
    /// A history of a gateway whose closed seconds are `rows`, before its first figures.
    pub(crate) fn after(rows: &[Row]) -> Self {
        Self {
            before: rows[rows.len().saturating_sub(WINDOW_MAX)..].to_vec(),
            ..Self::default()
        }
    }

    /// Takes the figures of a moment, on the clock of the exporter's heartbeat. Figures no newer than the last are
    /// those of a gateway that has stopped writing.
    pub(crate) fn absorb(&mut self, at: u64, figures: &Rc<Figures>) {
        if self.latest.as_ref().is_some_and(|(last, _)| at <= *last) {
            return;
        }
        match &self.base {
            None => {
                self.since = at;
                self.base = Some((at, Rc::clone(figures)));
            }
            Some((since, base)) if at - since >= SECOND => {
                let slice = Slice::between(at, &base.histograms, &figures.histograms);
                self.slices.push_back(slice);
                self.base = Some((at, Rc::clone(figures)));
            }
            Some(_) => {}
        }
        if self.slices.len() > SLICES_MAX {
            self.slices.pop_front();
        }
        self.latest = Some((at, Rc::clone(figures)));
        if self.covers(WINDOW_MAX as u64 * SECOND) {
            self.before = vec![];
        }
    }

    /// What the series at `place` counted in the last `window` nanoseconds before the last whole second, and since: up to
    /// two seconds more than `window`, since the first of its seconds may begin before it does.
    pub(crate) fn window(&self, place: usize, window: u64) -> Histogram {
        let mut whole = self.closed(place, window);
        if let (Some((_, base)), Some((_, latest))) = (&self.base, &self.latest) {
            let recent = latest.histograms[place].since(&base.histograms[place]);
            for (sum, count) in whole.buckets.iter_mut().zip(&recent.buckets) {
                *sum = sum.saturating_add(*count);
            }
            whole.count = whole.count.saturating_add(recent.count);
            whole.sum = whole.sum.saturating_add(recent.sum);
            whole.max = whole.max.max(recent.max);
        }
        whole
    }

    fn closed(&self, place: usize, window: u64) -> Histogram {
        let until = self.base.as_ref().map_or(0, |(at, _)| *at);
        let mut closed = self.closed.borrow_mut();
        let is_known = |it: &Closed| (it.window, it.until) == (window, until);
        if !closed.as_ref().is_some_and(is_known) {
            *closed = Some(Closed {
                window,
                until,
                series: self.sums(window, until),
            });
        }
        let series = closed.as_ref().map(|it| it.series[place].clone());
        series.unwrap_or_default()
    }

    /// What each series counted in the `window` before `until`, the base's moment.
    fn sums(&self, window: u64, until: u64) -> Vec<Histogram> {
        let mut sums = vec![Histogram::default(); SERIES_ROOM];
        let from = until.saturating_sub(window);
        let recent = self.slices.iter().rev();
        for slice in recent.take_while(|slice| slice.ended_at > from) {
            slice.add_to(&mut sums);
        }
        let before = window.saturating_sub(until - self.since);
        add_rows(&mut sums, before, &self.before);
        sums
    }

    /// Whether the kept differences cover the last `window` nanoseconds.
    pub(crate) fn covers(&self, window: u64) -> bool {
        self.latest
            .as_ref()
            .is_some_and(|(now, _)| now - self.since >= window)
    }
}

/// Adds what the closed seconds say of each series, those of the last `window` nanoseconds before the last of them.
fn add_rows(sums: &mut [Histogram], window: u64, rows: &[Row]) {
    let Some(last) = rows.last() else { return };
    let from = last.ended_at.saturating_sub(window);
    for row in rows.iter().rev().take_while(|row| row.ended_at > from) {
        for (sum, summary) in sums.iter_mut().zip(&row.series) {
            add_row(sum, summary);
        }
    }
}

/// Adds values of which no more is told than what they come to.
pub(crate) fn add_row(whole: &mut Histogram, summary: &Summary) {
    let &Summary {
        count,
        sum,
        p50,
        p95,
        p99,
        max,
    } = summary;
    // How low the lower half goes is not told. As far as p95 is above the middle is a fair guess.
    let mut low = p50.saturating_sub(p95.saturating_sub(p50));
    let mut below = 0;
    for (high, share) in [p50, p95, p99, max].into_iter().zip(SHARES) {
        // The same rank that a histogram reads this quantile at.
        let rank = count - part(count, 100 - share, 100);
        spread(whole, low, high.max(low), rank - below);
        low = high.max(low);
        below = rank;
    }
    whole.count = whole.count.saturating_add(count);
    whole.sum = whole.sum.saturating_add(sum);
    whole.max = whole.max.max(max);
}

/// Adds `count` values, evenly from `low`, left out, to `high`.
fn spread(whole: &mut Histogram, low: u64, high: u64, count: u64) {
    let mut added = 0;
    for step in 1..=STEPS {
        let rank = part(count, step, STEPS);
        let value = low + part(high - low, step, STEPS);
        add(whole, bucket_of(value), rank - added);
        added = rank;
    }
}

/// `share / of` of `whole`, rounded down.
fn part(whole: u64, share: u64, of: u64) -> u64 {
    let part = u128::from(whole) * u128::from(share) / u128::from(of);
    u64::try_from(part).unwrap_or(u64::MAX)
}

fn add(whole: &mut Histogram, bucket: usize, count: u64) {
    whole.buckets[bucket] = whole.buckets[bucket].saturating_add(count);
}

#[cfg(test)]
mod tests {
    use bifrost_shared::stage::Stage;

    use super::*;
    use crate::model::fixture;

    const QUEUE: usize = Stage::QueueWait.index();

    fn figures(values: &[u64]) -> Rc<Figures> {
        let mut figures = fixture::figures();
        for value in values {
            figures.histograms[QUEUE].record(*value);
        }
        Rc::new(figures)
    }

    #[test]
    fn a_window_holds_what_came_in_it_and_nothing_else() {
        let mut history = History::default();
        let mut values = vec![];
        for second in 0..=20 {
            values.push(1_000 * second);
            history.absorb(second * SECOND, &figures(&values));
        }
        let window = history.window(QUEUE, 10 * SECOND);
        assert_eq!(window.count, 10);
        assert_eq!(window.mean(), Some(15_500)); // 11,000 to 20,000
        assert!(history.covers(20 * SECOND) && !history.covers(21 * SECOND));
    }

    #[test]
    fn what_came_since_the_last_whole_second_counts_too() {
        let mut history = History::default();
        history.absorb(1, &figures(&[5]));
        history.absorb(SECOND / 2, &figures(&[5, 7, 9]));
        let window = history.window(QUEUE, 10 * SECOND);
        assert_eq!((window.count, window.sum, window.max), (2, 16, 9));
    }

    #[test]
    fn figures_of_a_dead_gateway_leave_the_window_as_it_was() {
        let mut history = History::default();
        history.absorb(SECOND, &figures(&[5]));
        history.absorb(3 * SECOND, &figures(&[5, 7]));
        for _ in 0..50 {
            history.absorb(3 * SECOND, &figures(&[5, 7]));
        }
        assert_eq!(history.window(QUEUE, 10 * SECOND).sum, 7);
    }

    #[test]
    fn before_the_monitor_came_the_closed_seconds_speak() {
        let rows: Vec<_> = (0..100).map(|_| fixture::row(200, 40_000)).collect();
        let rows: Vec<_> = (1..)
            .zip(rows)
            .map(|(second, row)| Row {
                ended_at: second * SECOND,
                ..row
            })
            .collect();
        let mut history = History::after(&rows);
        history.absorb(7_000 * SECOND, &figures(&[]));
        let window = history.window(QUEUE, 10 * SECOND);
        assert_eq!((window.count, window.mean()), (2_000, Some(40_000)));
        let row = &rows[0].series[QUEUE];
        for (share, expected) in [(0.5, row.p50), (0.95, row.p95), (0.99, row.p99)] {
            assert_eq!(
                bucket_of(window.quantile(share).unwrap()),
                bucket_of(expected)
            );
        }
        // Four seconds on, six of the window's ten are still from before.
        history.absorb(7_004 * SECOND, &figures(&[1]));
        assert_eq!(history.window(QUEUE, 10 * SECOND).count, 1_201);
    }

    #[test]
    fn unlike_seconds_make_a_distribution_between_theirs() {
        let row = |ended_at, queue_wait| Row {
            ended_at,
            ..fixture::row(1_000, queue_wait)
        };
        let rows = [row(1, 80_000), row(2, 100_000)];
        let window = History::after(&rows).window(QUEUE, 60 * SECOND);
        let p50 = window.quantile(0.5).unwrap();
        assert!((82_000..=98_000).contains(&p50), "{p50}");
        assert_eq!(window.mean(), Some(90_000));
    }

    #[test]
    fn without_figures_the_closed_seconds_are_all_there_is() {
        let row = Row {
            ended_at: SECOND,
            ..fixture::row(100, 10)
        };
        let window = History::after(&[row]).window(QUEUE, 60 * SECOND);
        assert_eq!((window.count, window.mean()), (100, Some(10)));
    }

    #[test]
    fn no_value_is_too_large_to_add() {
        let row = Row {
            ended_at: u64::MAX,
            series: [fixture::LARGEST; SERIES_ROOM],
            ..fixture::row(1, 1)
        };
        let window = History::after(&[row.clone(), row]).window(QUEUE, u64::MAX);
        assert_eq!((window.count, window.sum), (u64::MAX, u64::MAX));
    }
}
