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
/// Places whose time makes up the mean; older ones fade.
const REMEMBERED: u32 = 32;

/// A provider's places, and the line in front of them.
#[derive(Debug)]
pub struct Queue {
    places: Arc<Semaphore>,
    concurrency: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
    patience: Duration,
    pace: Arc<Pace>,
}

/// A place at the provider, given back on drop.
#[derive(Debug)]
pub struct Permit {
    _place: OwnedSemaphorePermit,
    since: Instant,
    pace: Arc<Pace>,
}

/// How long a place is held, in the mean: while all are taken, they come free at that time divided by their number. The
/// intervals at which they come free tell less: requests that began together end together.
#[derive(Debug, Default)]
struct Pace(Mutex<Mean>);

#[derive(Debug, Default)]
struct Mean {
    count: u32,
    held: Duration,
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
            waiting: AtomicUsize::new(0),
            waiting_max,
            patience,
            pace: Arc::default(),
        }
    }

    /// Whether it was made with these.
    #[must_use]
    pub fn is(&self, concurrency: usize, waiting_max: usize, patience: Duration) -> bool {
        (self.concurrency, self.waiting_max, self.patience) == (concurrency, waiting_max, patience)
    }

    /// How many requests may be with the provider at once.
    #[must_use]
    pub const fn places(&self) -> usize {
        self.concurrency
    }

    /// Requests that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
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
            since: Instant::now(),
            pace: Arc::clone(&self.pace),
        }
    }

    fn line_up(&self) -> Result<Place<'_>, Error> {
        let joined = self
            .waiting
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                (waiting < self.waiting_max).then_some(waiting + 1)
            });
        match joined {
            Ok(_) => Ok(Place(&self.waiting)),
            Err(waiting) => Err(Error::QueueFull {
                waiting,
                retry_after: self.retry_after(),
            }),
        }
    }

    /// When the line as it stands will have been served, at the pace of late.
    fn retry_after(&self) -> Duration {
        let held = self.pace.held().unwrap_or(RETRY_AFTER_MIN);
        let ahead = (self.waiting() + 1) as f64;
        let wait = held.as_secs_f64() * ahead / self.concurrency as f64;
        let wait = Duration::try_from_secs_f64(wait).unwrap_or(RETRY_AFTER_MAX);
        wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pace.freed(self.since.elapsed());
    }
}

impl Pace {
    fn freed(&self, held: Duration) {
        let mut mean = self.0.lock().expect("nobody panics with the pace in hand");
        mean.count = (mean.count + 1).min(REMEMBERED);
        let newest = 1.0 / f64::from(mean.count);
        mean.held = mean.held.mul_f64(1.0 - newest) + held.mul_f64(newest);
    }

    fn held(&self) -> Option<Duration> {
        let mean = self.0.lock().expect("nobody panics with the pace in hand");
        (mean.count > 0).then_some(mean.held)
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
    async fn places_that_come_free_together_are_no_faster_than_one_after_another() {
        let queue = Queue::new(4, 100, Duration::from_secs(500));
        let held = [(); 4].map(|()| queue.admit(later()));
        let mut permits = vec![];
        for admission in held {
            permits.push(admission.await.unwrap());
        }
        tokio::time::advance(Duration::from_secs(8)).await;
        permits.clear();
        // Idle time is nobody's.
        tokio::time::advance(Duration::from_hours(1)).await;
        for _ in 0..4 {
            permits.push(queue.admit(later()).await.unwrap());
        }
        let mut one = pin!(queue.admit(later()));
        queued!(one);
        assert_eq!(queue.retry_after(), Duration::from_secs(4));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_follows_the_pace_at_which_places_come_free() {
        let queue = Queue::new(1, 10, Duration::from_secs(500));
        for _ in 0..5 {
            let held = queue.admit(later()).await.unwrap();
            tokio::time::advance(Duration::from_secs(4)).await;
            drop(held);
        }
        let _held = queue.admit(later()).await.unwrap();
        let mut one = pin!(queue.admit(later()));
        queued!(one);
        // One waits, then whoever comes back: two intervals of four seconds.
        assert_eq!(queue.retry_after(), Duration::from_secs(8));
    }
}
