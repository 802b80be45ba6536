//! Who goes upstream now, who waits, and who is turned away. One queue a provider, shared by all runtimes.
//!
//! A request takes a permit on its own task: 0.1 µs, where a channel to a worker costs 1 to 4 µs and a wake-up. Permits
//! are given in the order of asking. A request that leaves while it waits gives its place in the line back by being
//! dropped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::error::Error;

/// The least and the most that a refused client is told to wait: the official clients diverge beyond a minute.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);
/// Weight of the newest interval in the mean between two permits given back.
const NEWEST: f64 = 0.1;

/// A provider's places, and the line in front of them.
#[derive(Debug)]
pub struct Queue {
    places: Arc<Semaphore>,
    concurrency: usize,
    line: Arc<Line>,
    waiting_max: usize,
    patience: Duration,
}

/// A place at the provider, given back on drop.
#[derive(Debug)]
pub struct Permit {
    _place: OwnedSemaphorePermit,
    line: Arc<Line>,
}

/// Who waits, and how fast places come free for them.
#[derive(Debug, Default)]
struct Line {
    waiting: AtomicUsize,
    pace: Mutex<Pace>,
}

/// The mean interval between two places that came free while somebody waited. What passes while nobody does says
/// nothing of how long a line takes.
#[derive(Debug, Default)]
struct Pace {
    last: Option<Instant>,
    interval: Option<Duration>,
}

/// A place in the line, given back on drop: also when the client hangs up while waiting.
struct Place<'a>(&'a AtomicUsize);

impl Queue {
    /// A queue of `concurrency` places, before which `waiting_max` requests may wait, each for `patience` at most.
    #[must_use]
    pub fn new(concurrency: usize, waiting_max: usize, patience: Duration) -> Self {
        Self {
            places: Arc::new(Semaphore::new(concurrency)),
            concurrency,
            line: Arc::default(),
            waiting_max,
            patience,
        }
    }

    /// Whether it was made with these.
    #[must_use]
    pub fn is(&self, concurrency: usize, waiting_max: usize, patience: Duration) -> bool {
        (self.concurrency, self.waiting_max, self.patience) == (concurrency, waiting_max, patience)
    }

    /// Requests that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.line.waiting.load(Ordering::Relaxed)
    }

    /// Places that are taken now.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.concurrency
            .saturating_sub(self.places.available_permits())
    }

    /// A place at the provider, now or when it is this request's turn, but not after `deadline`.
    ///
    /// # Errors
    ///
    /// [`Error::QueueFull`] at once, [`Error::QueueTimeout`] after the queue's patience, [`Error::Deadline`] at the
    /// deadline.
    pub async fn admit(&self, deadline: Instant) -> Result<Permit, Error> {
        // The semaphore hands places to those who wait first, so whoever finds one free here overtakes nobody.
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(self.permit(place));
        }
        let _place = self.line_up()?;
        let since = Instant::now();
        let until = deadline.min(since + self.patience);
        match timeout_at(until, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(self.permit(place)),
            Ok(Err(_)) => Err(Error::Draining),
            Err(_) if until == deadline => Err(Error::Deadline),
            Err(_) => Err(Error::QueueTimeout {
                waited: since.elapsed(),
                retry_after: self.retry_after(),
            }),
        }
    }

    fn permit(&self, place: OwnedSemaphorePermit) -> Permit {
        Permit {
            _place: place,
            line: Arc::clone(&self.line),
        }
    }

    fn line_up(&self) -> Result<Place<'_>, Error> {
        let waiting = &self.line.waiting;
        let joined = waiting.try_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
            (waiting < self.waiting_max).then_some(waiting + 1)
        });
        match joined {
            Ok(_) => Ok(Place(waiting)),
            Err(waiting) => Err(Error::QueueFull {
                waiting,
                retry_after: self.retry_after(),
            }),
        }
    }

    /// When the line as it stands will have been served, at the pace of late.
    fn retry_after(&self) -> Duration {
        let pace = self
            .line
            .pace
            .lock()
            .expect("nobody panics with the pace in hand");
        let interval = pace.interval.unwrap_or(RETRY_AFTER_MIN);
        let ahead = u32::try_from(self.waiting() + 1).unwrap_or(u32::MAX);
        interval
            .saturating_mul(ahead)
            .clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let somebody_waits = self.line.waiting.load(Ordering::Relaxed) > 0;
        let mut pace = self
            .line
            .pace
            .lock()
            .expect("nobody panics with the pace in hand");
        pace.freed(somebody_waits.then(Instant::now));
    }
}

impl Pace {
    /// A place came free, at that time if somebody waited for it.
    fn freed(&mut self, now: Option<Instant>) {
        if let (Some(now), Some(last)) = (now, self.last) {
            let newest = now.duration_since(last);
            self.interval = Some(match self.interval {
                None => newest,
                Some(mean) => mean.mul_f64(1.0 - NEWEST) + newest.mul_f64(NEWEST),
            });
        }
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn later() -> Instant {
        Instant::now() + Duration::from_hours(1)
    }

    /// Polls once, so that the future is in the line.
    macro_rules! queued {
        ($admission:expr) => {
            let waits = tokio::select! { biased; _ = &mut $admission => false, () = std::future::ready(()) => true };
            assert!(waits, "it has to wait");
        };
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_given_in_the_order_of_asking() {
        let queue = Queue::new(1, 10, Duration::from_secs(5));
        let first = queue.admit(later()).await.unwrap();
        let mut second = pin!(queue.admit(later()));
        let mut third = pin!(queue.admit(later()));
        queued!(second);
        queued!(third);
        assert_eq!((queue.taken(), queue.waiting()), (1, 2));
        drop(first);
        let second = second.await.unwrap();
        queued!(third);
        drop(second);
        third.await.unwrap();
        assert_eq!((queue.taken(), queue.waiting()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_the_line_full_is_turned_away_at_once_and_told_when_to_come_back() {
        let queue = Queue::new(1, 1, Duration::from_secs(5));
        let _held = queue.admit(later()).await.unwrap();
        let mut waits = pin!(queue.admit(later()));
        queued!(waits);
        let refused = queue.admit(later()).await.unwrap_err();
        assert!(
            matches!(refused, Error::QueueFull { waiting: 1, .. }),
            "{refused:?}"
        );
        assert!(refused.retry_after().unwrap() >= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn patience_and_deadline_end_the_wait_each_with_its_own_error() {
        let queue = Queue::new(1, 10, Duration::from_secs(5));
        let _held = queue.admit(later()).await.unwrap();
        let since = Instant::now();
        let error = queue.admit(later()).await.unwrap_err();
        assert!(
            matches!(error, Error::QueueTimeout { waited, .. } if waited == Duration::from_secs(5)),
            "{error:?}"
        );
        let error = queue
            .admit(since + Duration::from_secs(7))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Deadline), "{error:?}");
        assert_eq!(since.elapsed(), Duration::from_secs(7));
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_while_it_waits_gives_its_place_back() {
        let queue = Queue::new(1, 1, Duration::from_secs(5));
        let held = queue.admit(later()).await.unwrap();
        {
            let mut leaves = pin!(queue.admit(later()));
            queued!(leaves);
        }
        assert_eq!(queue.waiting(), 0);
        drop(held);
        queue.admit(later()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_follows_the_pace_at_which_places_come_free_for_those_who_wait() {
        let queue = Queue::new(1, 10, Duration::from_secs(500));
        // An idle hour says nothing.
        drop(queue.admit(later()).await.unwrap());
        tokio::time::advance(Duration::from_hours(1)).await;
        let mut held = queue.admit(later()).await.unwrap();
        for _ in 0..5 {
            let mut next = pin!(queue.admit(later()));
            queued!(next);
            tokio::time::advance(Duration::from_secs(4)).await;
            drop(held);
            held = next.await.unwrap();
        }
        let mut one = pin!(queue.admit(later()));
        queued!(one);
        // One waits, then whoever comes back: two intervals of four seconds.
        assert_eq!(queue.retry_after(), Duration::from_secs(8));
    }
}
