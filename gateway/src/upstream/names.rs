//! Hosts' addresses, asked for once and kept for a while, for all runtimes together.
//!
//! The system's resolver blocks and remembers nothing, and a burst of connections would ask it once each. An answer is
//! good for [`FRESH`]; an old one still serves, up to [`STALE`], while the resolver fails or takes long.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use hyper_util::client::legacy::connect::dns;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tower_service::Service;

/// How long an answer is used without asking again. Providers' records live 30 s and more.
const FRESH: Duration = Duration::from_secs(30);
/// How old an answer may be that is used because there is no newer one.
const STALE: Duration = Duration::from_mins(5);
/// How long a request that could use an old answer waits for a new one.
const PATIENCE: Duration = Duration::from_secs(1);
/// Names that are kept. They come from the settings; this only bounds what a mistake could do.
const NAMES_MAX: usize = 256;

/// The names known so far.
#[derive(Clone)]
pub(super) struct Names(Arc<Shared>);

struct Shared {
    known: Mutex<HashMap<String, Known>>,
    look_up: Box<LookUp>,
}

/// Asks the system; blocks.
type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;
type Addresses = Arc<[SocketAddr]>;
/// Many wait for one look-up, and an I/O error can't be cloned.
type Found = Result<Addresses, Arc<io::Error>>;

#[derive(Default)]
struct Known {
    answer: Option<Answer>,
    /// The look-up in flight. There is at most one.
    asked: Option<watch::Receiver<Option<Found>>>,
}

#[derive(Clone)]
struct Answer {
    addresses: Addresses,
    came: Instant,
    /// A connection to it failed: the host may have moved.
    doubted: bool,
}

/// Why there is no address. Many share one cause.
#[derive(Debug, thiserror::Error)]
#[error("the look-up failed")]
pub(super) struct NoAddress(#[source] Arc<io::Error>);

impl Names {
    /// Nothing known yet; the system is asked.
    pub(super) fn new() -> Self {
        Self::by(|name| Ok((name, 0).to_socket_addrs()?.collect()))
    }

    fn by(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            known: Mutex::default(),
            look_up: Box::new(look_up),
        }))
    }

    /// The next connection to `name` asks again: one could not be opened.
    pub(super) fn doubt(&self, name: &str) {
        if let Some(answer) = self
            .0
            .known()
            .get_mut(name)
            .and_then(|known| known.answer.as_mut())
        {
            answer.doubted = true;
        }
    }

    async fn resolved(&self, name: &str) -> Result<vec::IntoIter<SocketAddr>, NoAddress> {
        let addresses = self.addresses(name).await.map_err(NoAddress)?;
        Ok(Vec::from(&*addresses).into_iter())
    }

    async fn addresses(&self, name: &str) -> Found {
        let (old, asked) = {
            let mut all = self.0.known();
            if all.len() >= NAMES_MAX && !all.contains_key(name) {
                all.retain(|_, known| known.asked.is_some());
            }
            let known = all.entry(name.to_owned()).or_default();
            let age = known.answer.as_ref().map(|answer| answer.came.elapsed());
            let old = known.answer.clone().filter(|_| age < Some(STALE));
            match old {
                Some(answer) if age < Some(FRESH) && !answer.doubted => return Ok(answer.addresses),
                old => {
                    // One whose teller is gone was given up: its runtime has ended.
                    let asked = known
                        .asked
                        .clone()
                        .filter(|asked| asked.has_changed().is_ok());
                    (old, asked.unwrap_or_else(|| self.ask(name, known)))
                }
            }
        };
        let Some(old) = old else {
            return outcome(asked).await;
        };
        match timeout(PATIENCE, outcome(asked)).await {
            Ok(Ok(addresses)) => Ok(addresses),
            _ => Ok(old.addresses),
        }
    }

    /// Begins a look-up, which goes on whoever leaves.
    fn ask(&self, name: &str, known: &mut Known) -> watch::Receiver<Option<Found>> {
        let (tell, asked) = watch::channel(None);
        known.asked = Some(asked.clone());
        let (shared, name) = (Arc::clone(&self.0), name.to_owned());
        tokio::task::spawn_blocking(move || {
            let found = match (shared.look_up)(&name) {
                Ok(addresses) if addresses.is_empty() => Err(no_address("the name has no address")),
                Ok(addresses) => Ok(Addresses::from(addresses)),
                Err(error) => Err(Arc::new(error)),
            };
            shared.settle(&name, &found);
            let _ = tell.send(Some(found));
        });
        asked
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known
            .lock()
            .expect("nobody panics while holding names")
    }

    fn settle(&self, name: &str, found: &Found) {
        let mut all = self.known();
        let known = all.entry(name.to_owned()).or_default();
        known.asked = None;
        if let Ok(addresses) = found {
            known.answer = Some(Answer {
                addresses: Arc::clone(addresses),
                came: Instant::now(),
                doubted: false,
            });
        }
    }
}

/// For reqwest.
impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let names = self.clone();
        Box::pin(async move {
            let addresses = names.resolved(name.as_str()).await?;
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

/// For hyper's connector.
impl Service<dns::Name> for Names {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = NoAddress;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NoAddress>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoAddress>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: dns::Name) -> Self::Future {
        let names = self.clone();
        Box::pin(async move { names.resolved(name.as_str()).await })
    }
}

async fn outcome(mut asked: watch::Receiver<Option<Found>>) -> Found {
    match asked.wait_for(Option::is_some).await.as_deref() {
        Ok(Some(found)) => found.clone(),
        // The runtime that ran it has ended.
        _ => Err(no_address("the look-up was given up")),
    }
}

fn no_address(why: &str) -> Arc<io::Error> {
    Arc::new(io::Error::new(io::ErrorKind::NotFound, why))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::time::advance;

    use super::*;

    /// A system that answers what it is told, when it is told, and counts.
    struct System {
        names: Names,
        tell: mpsc::Sender<Result<u8, ()>>,
        count: Arc<Mutex<usize>>,
    }

    impl System {
        fn new() -> Self {
            let (tell, told) = mpsc::channel::<Result<u8, ()>>();
            let (told, count) = (Mutex::new(told), Arc::new(Mutex::new(0)));
            let counted = Arc::clone(&count);
            let names = Names::by(move |_| {
                *counted.lock().unwrap() += 1;
                let told: Result<u8, ()> = told.lock().unwrap().recv().unwrap();
                told.map(|last| vec![SocketAddr::from(([10, 0, 0, last], 0))])
                    .map_err(|()| io::Error::other("no server"))
            });
            Self { names, tell, count }
        }

        fn says(&self, answer: Result<u8, ()>) {
            self.tell.send(answer).unwrap();
        }

        fn asked(&self) -> usize {
            *self.count.lock().unwrap()
        }

        /// The last part of the address that is found.
        async fn ask(&self) -> Option<u8> {
            let found = self.names.addresses("host").await.ok()?;
            match found[0] {
                SocketAddr::V4(address) => Some(address.ip().octets()[3]),
                SocketAddr::V6(_) => None,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_serves_for_half_a_minute() {
        let system = System::new();
        system.says(Ok(1));
        assert_eq!(system.ask().await, Some(1));
        advance(FRESH * 9 / 10).await;
        assert_eq!((system.ask().await, system.asked()), (Some(1), 1));
        advance(FRESH / 10).await;
        system.says(Ok(2));
        assert_eq!((system.ask().await, system.asked()), (Some(2), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn many_wait_for_one_look_up() {
        let system = System::new();
        let both = async { tokio::join!(system.ask(), system.ask(), system.ask()) };
        let tell = async { system.says(Ok(1)) };
        let (found, ()) = tokio::join!(both, tell);
        assert_eq!((found, system.asked()), ((Some(1), Some(1), Some(1)), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_goes_on_when_who_asked_has_left() {
        let system = System::new();
        let left = tokio::select! {
            biased;
            _ = system.ask() => false,
            () = std::future::ready(()) => true,
        };
        assert!(left);
        system.says(Ok(1));
        assert_eq!((system.ask().await, system.asked()), (Some(1), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_answer_serves_while_there_is_no_newer_one() {
        let system = System::new();
        system.says(Ok(1));
        system.ask().await;
        advance(STALE * 9 / 10).await;
        system.says(Err(()));
        assert_eq!((system.ask().await, system.asked()), (Some(1), 2));
        advance(STALE / 10).await;
        system.says(Err(()));
        assert_eq!((system.ask().await, system.asked()), (None, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_not_kept() {
        let system = System::new();
        system.says(Err(()));
        assert_eq!(system.ask().await, None);
        system.says(Ok(1));
        assert_eq!(system.ask().await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubted_answer_is_asked_for_again() {
        let system = System::new();
        system.says(Ok(1));
        system.ask().await;
        system.names.doubt("host");
        system.says(Ok(2));
        assert_eq!((system.ask().await, system.asked()), (Some(2), 2));
        assert_eq!((system.ask().await, system.asked()), (Some(2), 2));
    }

    // In real time: a paused clock stands still as long as a thread looks up.
    #[tokio::test]
    async fn a_slow_look_up_is_not_waited_for_when_there_is_an_old_answer() {
        let system = System::new();
        system.says(Ok(1));
        system.ask().await;
        system.names.doubt("host");
        let since = std::time::Instant::now();
        assert_eq!(system.ask().await, Some(1));
        assert!(since.elapsed() >= PATIENCE && since.elapsed() < 3 * PATIENCE);
        // The thread goes home.
        system.says(Ok(2));
    }

    #[tokio::test]
    async fn names_are_bounded() {
        let names = Names::by(|_| Ok(vec![SocketAddr::from(([10, 0, 0, 1], 0))]));
        for number in 0..2 * NAMES_MAX {
            names.addresses(&number.to_string()).await.unwrap();
        }
        assert!(names.0.known().len() <= NAMES_MAX);
    }
}
