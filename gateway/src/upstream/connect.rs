//! Opening connections: how many at once, and how long each took.
//!
//! The connect timeout counts dialling only: a long line in front of a provider that answers is no failure, and the
//! request's own deadlines bound it. But a provider that does not answer would be dialled place after place, each for
//! the whole timeout, so that whoever waits while one dial times out gets that answer, too.

use std::cell::Cell;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};
use tower_layer::Layer;
use tower_service::Service;

tokio::task_local! {
    /// Set while a request waits for its answer.
    static REQUEST: Request;
}

struct Request {
    since: Instant,
    /// How long it took to open the connection for it.
    opened: Cell<Duration>,
}

/// Lets so many connections be opened at once. Opening 8,000 TLS connections at once stalled a run
/// (`performance.md` §2: "TLS storm").
#[derive(Clone)]
pub(super) struct Door {
    places: Arc<Semaphore>,
    /// How long dialling may take.
    patience: Duration,
    /// When it last took longer.
    last_timeout: Arc<Mutex<Option<Instant>>>,
}

/// A connector behind a [`Door`].
pub(super) struct Opening<S> {
    connector: S,
    door: Door,
    /// When a place was asked for.
    since: Option<Instant>,
    waiting: Option<Waiting>,
    place: Option<Place>,
}

/// Held while a connection is being opened.
pub(super) type Place = OwnedSemaphorePermit;

type Waiting = Pin<Box<dyn Future<Output = Result<Place, AcquireError>> + Send + Sync>>;
type BoxError = Box<dyn Error + Send + Sync>;

/// Awaits `request`, and tells how long opening its connection took, the wait for a place included; zero if it found
/// one open. A connection that was begun for it and came too late, when another was free already, is not its own.
pub(super) async fn timed<T>(request: impl Future<Output = T>) -> (T, Duration) {
    let both = async { (request.await, REQUEST.with(|request| request.opened.get())) };
    let scope = Request {
        since: Instant::now(),
        opened: Cell::default(),
    };
    REQUEST.scope(scope, both).await
}

impl Door {
    /// A door for `most` at once, each of which may take as long as `patience`.
    pub(super) fn new(most: usize, patience: Duration) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most)),
            patience,
            last_timeout: Arc::default(),
        }
    }

    /// A place for one that dials, when there is one.
    pub(super) async fn place(&self) -> Result<Place, BoxError> {
        let since = Instant::now();
        let place = Arc::clone(&self.places).acquire_owned().await?;
        if self.has_timed_out(since) {
            return Err(too_long());
        }
        Ok(place)
    }

    /// Dials, but not for longer than that may take.
    pub(super) async fn in_time<T>(&self, dial: impl Future<Output = T>) -> Result<T, Elapsed> {
        timeout(self.patience, dial).await
    }

    /// A dial that somebody waited for took longer: so it would for whoever waits for a place.
    pub(super) fn timed_out(&self) -> BoxError {
        *self.last_timeout() = Some(Instant::now());
        too_long()
    }

    /// Whether a dial has, that ended after `since`.
    fn has_timed_out(&self, since: Instant) -> bool {
        *self.last_timeout() > Some(since)
    }

    fn last_timeout(&self) -> MutexGuard<'_, Option<Instant>> {
        self.last_timeout
            .lock()
            .expect("nobody panics while holding it")
    }
}

impl<S> Layer<S> for Door {
    type Service = Opening<S>;

    fn layer(&self, connector: S) -> Opening<S> {
        Opening {
            connector,
            door: self.clone(),
            since: None,
            waiting: None,
            place: None,
        }
    }
}

impl<S: Clone> Clone for Opening<S> {
    /// Each clone opens a connection of its own, and waits for a place of its own.
    fn clone(&self) -> Self {
        Self {
            connector: self.connector.clone(),
            door: self.door.clone(),
            since: None,
            waiting: None,
            place: None,
        }
    }
}

impl<S, R> Service<R> for Opening<S>
where
    S: Service<R, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        ready!(self.connector.poll_ready(context))?;
        if self.place.is_some() {
            return Poll::Ready(Ok(()));
        }
        self.since.get_or_insert_with(Instant::now);
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(Arc::clone(&self.door.places).acquire_owned()));
        let place = ready!(waiting.as_mut().poll(context))?;
        self.waiting = None;
        // Once the request has found another connection, the client goes on with this one by itself, outside of the
        // request. After a burst that would be a connection for each that waited.
        let Ok(since) = REQUEST.try_with(|request| request.since) else {
            return Poll::Ready(Err("nobody waits for this connection any more".into()));
        };
        if self.door.has_timed_out(since) {
            return Poll::Ready(Err(too_long()));
        }
        self.place = Some(place);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: R) -> Self::Future {
        let since = self.since.take().unwrap_or_else(Instant::now);
        let place = self.place.take();
        let opening = self.connector.call(target);
        let door = self.door.clone();
        Box::pin(async move {
            let opened = door.in_time(opening).await;
            drop(place);
            let took = since.elapsed();
            let is_waited_for = REQUEST.try_with(|request| request.opened.set(took)).is_ok();
            match opened {
                Ok(opened) => opened,
                Err(_) if is_waited_for => Err(door.timed_out()),
                Err(_) => Err(too_long()),
            }
        })
    }
}

fn too_long() -> BoxError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;
    use tokio::task::{JoinSet, yield_now};
    use tokio::time::sleep;

    use super::*;

    /// Takes `took` for each connection, and knows how many it opens.
    #[derive(Clone)]
    struct Dial {
        took: Duration,
        fails: bool,
        now: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
        all: Arc<AtomicUsize>,
    }

    impl Service<()> for Dial {
        type Response = ();
        type Error = BoxError;
        type Future = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            let dial = self.clone();
            Box::pin(async move {
                let now = dial.now.fetch_add(1, Ordering::Relaxed) + 1;
                dial.most.fetch_max(now, Ordering::Relaxed);
                dial.all.fetch_add(1, Ordering::Relaxed);
                sleep(dial.took).await;
                dial.now.fetch_sub(1, Ordering::Relaxed);
                if dial.fails {
                    return Err("refused".into());
                }
                Ok(())
            })
        }
    }

    const PATIENCE: Duration = Duration::from_secs(5);

    fn dial(millis: u64) -> Dial {
        Dial {
            took: Duration::from_millis(millis),
            fails: false,
            now: Arc::default(),
            most: Arc::default(),
            all: Arc::default(),
        }
    }

    async fn open(mut opening: Opening<Dial>) -> Result<(), BoxError> {
        poll_fn(|context| opening.poll_ready(context)).await?;
        opening.call(()).await
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_opened_at_once_than_there_are_places() {
        let dial = dial(10);
        let door = Door::new(4, PATIENCE);
        let opening = door.layer(dial.clone());
        let mut all = JoinSet::new();
        for _ in 0..20 {
            all.spawn(timed(open(opening.clone())));
        }
        let mut took: Vec<_> = all
            .join_all()
            .await
            .into_iter()
            .map(|(_, took)| took.as_millis())
            .collect();
        took.sort_unstable();
        assert_eq!(dial.most.load(Ordering::Relaxed), 4);
        // The wait for a place is part of what the connection took: five rounds of four.
        let rounds: Vec<u128> = (1..=5).flat_map(|round| [round * 10; 4]).collect();
        assert_eq!(took, rounds);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_and_a_request_that_leaves_give_their_places_back() {
        let failing = Dial {
            fails: true,
            ..dial(10)
        };
        let door = Door::new(1, PATIENCE);
        assert!(timed(open(door.layer(failing))).await.0.is_err());
        let slow = door.layer(dial(1_000));
        let left = tokio::time::timeout(Duration::from_millis(5), timed(open(slow))).await;
        assert!(left.is_err());
        assert_eq!(door.places.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_place_is_not_dialling() {
        let slow = dial(4_000);
        let door = Door::new(1, PATIENCE);
        let mut all = JoinSet::new();
        for _ in 0..3 {
            all.spawn(timed(open(door.layer(slow.clone()))));
        }
        let mut took = vec![];
        for (opened, time) in all.join_all().await {
            assert!(opened.is_ok());
            took.push(time.as_secs());
        }
        assert_eq!(took, [4, 8, 12]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_while_dialling_times_out_has_waited_for_the_same() {
        let silent = dial(60_000);
        let opening = Door::new(2, PATIENCE).layer(silent.clone());
        let since = Instant::now();
        let mut all = JoinSet::new();
        for _ in 0..100 {
            all.spawn(timed(open(opening.clone())));
        }
        for (opened, _) in all.join_all().await {
            let error = opened.unwrap_err().downcast::<io::Error>().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(since.elapsed().as_secs(), PATIENCE.as_secs());
        assert_eq!(silent.all.load(Ordering::Relaxed), 2);
        // Who comes later dials again.
        assert!(timed(open(opening)).await.0.is_err());
        assert_eq!(silent.all.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_found_its_connection_open_is_told_so() {
        let ((), took) = timed(async {}).await;
        assert_eq!(took, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_request_waits_for_any_more_is_not_opened() {
        let dial = dial(10);
        let door = Door::new(1, PATIENCE);
        let (first, free) = (
            Arc::clone(&door.places).acquire_owned().await.unwrap(),
            Arc::new(Notify::new()),
        );
        // As the client does it: begun within a request, and gone on with outside of it.
        let mut begun = Box::pin(open(door.layer(dial.clone())));
        let found_another = timed(poll_fn(|context| {
            assert!(begun.as_mut().poll(context).is_pending());
            Poll::Ready(())
        }));
        found_another.await;
        let told = Arc::clone(&free);
        let background = tokio::spawn(async move {
            let ended = begun.await;
            told.notify_one();
            ended
        });
        yield_now().await;
        drop(first);
        free.notified().await;
        assert!(background.await.unwrap().is_err());
        assert_eq!(dial.all.load(Ordering::Relaxed), 0);
        assert_eq!(door.places.available_permits(), 1);
    }
}
