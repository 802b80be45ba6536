//! Connections that nobody uses at the moment. The last one that came goes first, so that what a burst has opened is
//! left alone and can be closed.
//!
//! One is only opened for a request that finds none, so there are hardly more than requests were in flight at once, which
//! the queue in front of the provider bounds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::link::Link;
use crate::upstream::lanes::IDLE_CONNECTION;

/// How often the pool is swept.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Connections that a sweep closes in one go: a third of a millisecond's work.
const CLOSED_MAX: usize = 128;
/// Connections that it looks at in one go. A look is a flag in memory, some 0.1 µs; all of a burst's are looked at within
/// their idle time.
const LOOKED_AT_MAX: usize = 2_048;
/// Closed connections that a request passes over, each of which it closes. Behind so many a new one is opened sooner
/// than an open one is found.
const PASSED_MAX: usize = 32;

/// A provider's idle connections, of one runtime.
#[derive(Default)]
pub(super) struct Pool(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    /// The newest last.
    idle: VecDeque<Idle>,
    /// Requests that would take one.
    waiting: VecDeque<oneshot::Sender<Box<Link>>>,
    is_swept: bool,
    /// Where the next sweep goes on looking.
    next: usize,
}

/// A request's claim to the next connection that comes free.
pub(super) struct Claim {
    given: oneshot::Receiver<Box<Link>>,
    pool: Arc<Pool>,
}

struct Idle {
    link: Box<Link>,
    since: Instant,
}

impl Pool {
    /// A connection that was open a moment ago.
    pub(super) fn take(&self) -> Option<Box<Link>> {
        for _ in 0..PASSED_MAX {
            // If it was idle for too long, so were the others. They are left to the sweep.
            let newest = self.shelf().idle.pop_back_if(|newest| !newest.is_old());
            let mut link = newest?.link;
            if !link.has_ended() {
                return Some(link);
            }
        }
        None
    }

    /// The next connection that comes free.
    pub(super) fn claim(self: &Arc<Self>) -> Claim {
        let (give, given) = oneshot::channel();
        let mut shelf = self.shelf();
        while shelf
            .waiting
            .pop_front_if(|first| first.is_closed())
            .is_some()
        {}
        shelf.waiting.push_back(give);
        let pool = Arc::clone(self);
        Claim { given, pool }
    }

    /// Keeps a free connection for the next request, or gives it to one that waits.
    pub(super) fn put(self: &Arc<Self>, mut link: Box<Link>) {
        let mut shelf = self.shelf();
        while let Some(give) = shelf.waiting.pop_front() {
            match give.send(link) {
                Ok(()) => return,
                // It has left, or opened one itself.
                Err(back) => link = back,
            }
        }
        let since = Instant::now();
        shelf.idle.push_back(Idle { link, since });
        if !std::mem::replace(&mut shelf.is_swept, true) {
            drop(shelf);
            // It ends when the pool is empty or gone, and with the runtime at the latest.
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Takes out some of the connections that were idle for too long, to be closed without the lock.
    fn old(&self) -> Vec<Idle> {
        self.shelf().old()
    }

    /// The same for those that have ended.
    fn ended(&self) -> Vec<Idle> {
        self.shelf().ended()
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

impl Idle {
    fn is_old(&self) -> bool {
        self.since.elapsed() >= IDLE_CONNECTION
    }
}

impl Shelf {
    /// Takes out some of the connections that were idle for too long.
    fn old(&mut self) -> Vec<Idle> {
        let count = self.idle.partition_point(Idle::is_old);
        self.idle.drain(..count.min(CLOSED_MAX)).collect()
    }

    /// Takes out some of those that have ended.
    fn ended(&mut self) -> Vec<Idle> {
        let mut ended = vec![];
        for _ in 0..LOOKED_AT_MAX.min(self.idle.len()) {
            if self.next >= self.idle.len() {
                self.next = 0;
            }
            if !self.idle[self.next].link.has_ended() {
                self.next += 1;
                continue;
            }
            ended.extend(self.idle.remove(self.next));
            if ended.len() == CLOSED_MAX {
                break;
            }
        }
        ended
    }
}

impl Claim {
    /// Waits for it.
    pub(super) async fn given(&mut self) -> Option<Box<Link>> {
        (&mut self.given).await.ok()
    }
}

impl Drop for Claim {
    /// Who leaves gives back what it was given meanwhile.
    fn drop(&mut self) {
        self.given.close();
        if let Ok(link) = self.given.try_recv() {
            self.pool.put(link);
        }
    }
}

/// Sweeps until nothing is left.
async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        // A burst's connections grow old together, and a provider that restarts closes all of them. To close thousands at
        // once would keep requests waiting.
        while !pool.old().is_empty() {
            tokio::task::yield_now().await;
        }
        while !pool.ended().is_empty() {
            tokio::task::yield_now().await;
        }
        let mut shelf = pool.shelf();
        if shelf.idle.is_empty() {
            shelf.idle.shrink_to_fit();
            shelf.is_swept = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::super::link::Io;
    use super::*;

    /// A connection to somebody who says nothing, and the other end of it.
    async fn link() -> (Box<Link>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (other_end, _) = listener.accept().await.unwrap();
        let link = Link::new(Io::Tcp(TokioIo::new(stream))).await.unwrap();
        (Box::new(link), other_end)
    }

    fn len(pool: &Pool) -> usize {
        pool.shelf().idle.len()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_idle_for_too_long_is_closed() {
        let pool = Arc::new(Pool::default());
        let (link, mut other_end) = link().await;
        pool.put(link);
        tokio::time::sleep(IDLE_CONNECTION * 9 / 10).await;
        let kept = pool.take().expect("it is still young");
        pool.put(kept);
        tokio::time::sleep(IDLE_CONNECTION + SWEEP_EVERY).await;
        assert_eq!((pool.take().is_none(), len(&pool)), (true, 0));
        assert_eq!(other_end.read(&mut [0]).await.unwrap(), 0);
        assert!(!pool.shelf().is_swept, "nobody sweeps an empty pool");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_other_end_has_closed_is_found_out_without_a_request() {
        let pool = Arc::new(Pool::default());
        let ((one, one_end), (two, _two_end)) = (link().await, link().await);
        pool.put(one);
        pool.put(two);
        drop(one_end);
        while len(&pool) == 2 {
            tokio::time::sleep(SWEEP_EVERY).await;
        }
        assert!(pool.shelf().is_swept, "the other is still there");
        assert!(pool.take().is_some());
    }

    #[tokio::test]
    async fn a_sweep_leaves_nothing_of_what_a_provider_that_restarts_has_closed() {
        const COUNT: usize = 3 * CLOSED_MAX;
        let pool = Arc::new(Pool::default());
        for _ in 0..COUNT {
            let (link, other_end) = link().await;
            pool.put(link);
            drop(other_end);
        }
        // Until the system has told of the last one's end, too.
        let is_told = || {
            let mut shelf = pool.shelf();
            shelf
                .idle
                .back_mut()
                .is_some_and(|newest| newest.link.has_ended())
        };
        while !is_told() {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        let since = Instant::now();
        while len(&pool) > 0 {
            tokio::time::sleep(SWEEP_EVERY).await;
        }
        assert!(since.elapsed() <= 3 * SWEEP_EVERY);
    }

    #[tokio::test]
    async fn who_waits_is_served_first_and_who_has_left_is_passed_over() {
        let pool = Arc::new(Pool::default());
        let (left, mut waits) = (pool.claim(), pool.claim());
        drop(left);
        pool.put(link().await.0);
        assert!(waits.given().await.is_some());
        pool.put(link().await.0);
        assert_eq!(len(&pool), 1);
        for _ in 0..100 {
            drop(pool.claim());
        }
        assert_eq!(pool.shelf().waiting.len(), 1, "who has left is forgotten");
    }
}
