//! The listener, one runtime a processor, and the connections on each.
//!
//! One acceptor hands each new connection to the runtime that holds the fewest: the kernel, hashing over several
//! listeners, would let a few long-lived clients pile up on one core.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use bifrost_shared::layout::{Gauge, State};
use bifrost_shared::slot::Standing;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::access::Access;
use crate::admin::Admin;
use crate::app::{App, Count, MODELS_MAX};
use crate::clock::Clock;
use crate::config::Config;
use crate::fit::{fit_to_descriptors, fit_to_memory};
use crate::pipeline::Worker;
use crate::reload::Reload;
use crate::routes::{Desk, Routes};
use crate::shutdown::{Drained, Shutdown};
use crate::stopwatch::{Sink, Watches};
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::{Description, Exporter, Observed, Telemetry};
use crate::upstream::Common;

mod certificates;
mod connection;
mod socket;

pub use certificates::Certificates;

use connection::Front;

/// Connections that may wait in the kernel for the acceptor.
const BACKLOG: i32 = 4_096;
/// Connections that may wait for their runtime.
const HANDOVER: usize = 1_024;
/// How long the acceptor rests when the system has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection is silent before the system asks whether its other end is still there.
const KEEP_ALIVE: Duration = Duration::from_mins(1);
/// How often it is said that no more connections are taken.
const SAY_EVERY: Duration = Duration::from_mins(1);

/// A gateway that serves.
pub struct Server {
    address: SocketAddr,
    listener: TcpListener,
    seats: Vec<Seat>,
    /// Connections that may still be opened.
    places: Arc<Semaphore>,
    admin: Option<Admin>,
    shutdown: Shutdown,
    draining: Arc<AtomicBool>,
    telemetry: Arc<Telemetry>,
    exporter: Exporter,
    drain_timeout: Duration,
    reload: Arc<Reload>,
}

/// A runtime, as the acceptor sees it.
struct Seat {
    connections: Arc<AtomicUsize>,
    hand_over: mpsc::Sender<Arrival>,
    thread: JoinHandle<()>,
}

/// A connection on its way to a runtime.
struct Arrival {
    stream: std::net::TcpStream,
    place: OwnedSemaphorePermit,
}

/// Counts a connection while it is open, and keeps its place.
struct Seated {
    connections: Arc<AtomicUsize>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// Binds the listener, starts telemetry and the runtimes. The caller's runtime is the acceptor's.
    ///
    /// # Errors
    ///
    /// If the address is taken, a certificate file can't be read, or the system gives no thread.
    pub fn start(mut config: Config) -> anyhow::Result<Self> {
        fit_to_descriptors(&mut config);
        fit_to_memory(&mut config);
        let listener = listen(config.server.listen)
            .with_context(|| format!("can't listen on {}", config.server.listen))?;
        let address = listener.local_addr()?;
        let certificates = config.server.tls.as_ref().map(Certificates::read);
        let certificates = certificates.transpose()?.map(Arc::new);
        let clock = Clock::new();
        let common = Common::new()?;
        // The pipeline counts into the telemetry, whose gauges ask the pipeline: one of them is late.
        let counted = Arc::new(OnceLock::new());
        let app = Arc::new(App::new(&config, counting(&counted))?);
        let current = Arc::new(ArcSwap::new(Arc::clone(&app)));
        let open: Vec<Arc<AtomicUsize>> = (0..config.server.workers.get())
            .map(|_| Arc::default())
            .collect();
        let description = Description {
            buffer_size: config.client.buffer_size,
            pool_size: config.client.initial_pool_size,
            workers: config.server.workers.get(),
            models: MODELS_MAX,
            providers: app.names(),
        };
        let (telemetry, exporter) = Telemetry::start(
            &config.telemetry,
            &description,
            &clock,
            Box::new(Present {
                app: Arc::clone(&current),
                open: open.clone(),
            }),
            access_log(&config, &app)?,
        )
        .context("the exporter thread")?;
        let _ = counted.set(Arc::clone(&telemetry));

        let places = config.server.connections_max.unwrap_or(usize::MAX);
        let places = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        let (shutdown, draining) = (Shutdown::new(), Arc::new(AtomicBool::new(false)));
        let access = Arc::new(ArcSwap::from_pointee(Access::front(&config, address.ip())?));
        let admin = Admin::start(
            &config,
            listen,
            Arc::clone(&telemetry),
            Arc::clone(&current),
            Arc::clone(&draining),
        )?;
        let mut desks = vec![];
        let mut seats = vec![];
        for (number, connections) in open.into_iter().enumerate() {
            let desk = Arc::new(Desk {
                worker: ArcSwap::from_pointee(Worker::new(Arc::clone(&app), &common)?),
                access: Arc::clone(&access),
                server: config.server.clone(),
                request_body_bytes_max: config.client.request_body_bytes_max,
                draining: Arc::clone(&draining),
                cut: shutdown.cut(),
            });
            desks.push(Arc::clone(&desk));
            let watches = Watches {
                clock: clock.clone(),
                sink: Arc::clone(&telemetry) as Arc<dyn Sink>,
            };
            let front = front(desk, watches, certificates.clone(), &shutdown, &places);
            seats.push(seat(number, connections, front, Arc::clone(&telemetry))?);
        }
        telemetry.set_state(State::Running);
        let drain_timeout = config.drain_timeout;
        let door = (access, certificates);
        let reload = Arc::new(Reload::new(
            config,
            (current, desks),
            door,
            Arc::clone(&telemetry),
            common,
        ));
        Ok(Self {
            address,
            listener,
            seats,
            places,
            admin,
            shutdown,
            draining,
            telemetry,
            exporter,
            drain_timeout,
            reload,
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where those who run it find its figures, if anywhere.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Where its segment is, if others can see one.
    #[must_use]
    pub fn segment(&self) -> Option<&std::path::Path> {
        self.exporter.path()
    }

    /// The way to give it other settings while it serves.
    #[must_use]
    pub fn reload(&self) -> Arc<Reload> {
        Arc::clone(&self.reload)
    }

    /// Its counters.
    #[must_use]
    pub fn telemetry(&self) -> Arc<Telemetry> {
        Arc::clone(&self.telemetry)
    }

    /// Serves until `stop` is done, then drains: no new connection, what is in flight is finished within the drain
    /// time or until `hurry` is done, the rest is cut off.
    pub async fn serve<S, H>(self, stop: S, hurry: impl FnOnce(S::Output) -> H) -> Drained
    where
        S: Future,
        H: Future<Output = ()>,
    {
        let stopped = tokio::select! {
            stopped = stop => stopped,
            () = accept(&self.listener, &self.places, &self.seats) => unreachable!("the acceptor goes on for ever"),
        };
        self.draining.store(true, Ordering::Relaxed);
        self.telemetry.set_state(State::Draining);
        tracing::info!(in_flight = self.telemetry.in_flight(), timeout = ?self.drain_timeout, "draining");
        drop(self.listener);
        let threads: Vec<_> = self.seats.into_iter().map(|seat| seat.thread).collect();
        let drained = self
            .shutdown
            .drain(self.drain_timeout, hurry(stopped))
            .await;
        for thread in threads {
            let _ = thread.join();
        }
        drained
    }
}

/// Records as lines on standard output, if the settings ask for it; the log proper goes to standard error.
fn access_log(config: &Config, app: &App) -> io::Result<Option<AccessLog>> {
    let log = || AccessLog::start(app.names(), io::stdout());
    config.log.access.then(log).transpose()
}

/// Counts into telemetry, once that is there.
fn counting(telemetry: &Arc<OnceLock<Arc<Telemetry>>>) -> Count {
    let telemetry = Arc::clone(telemetry);
    Arc::new(move |counter| {
        if let Some(telemetry) = telemetry.get() {
            telemetry.count(counter, 1);
        }
    })
}

/// What there is at present: the pipeline of the settings in force, and the connections of each runtime.
struct Present {
    app: Arc<ArcSwap<App>>,
    open: Vec<Arc<AtomicUsize>>,
}

impl Observed for Present {
    fn gauges(&self, gauges: &mut [u64; Gauge::COUNT]) {
        let app = self.app.load();
        let (waiting, taken) = app.load();
        gauges[Gauge::Waiting.index()] = waiting as u64;
        gauges[Gauge::Upstream.index()] = taken as u64;
        gauges[Gauge::HeldBytes.index()] = app.budget.held() as u64;
        let open = self.open.iter().map(|seat| seat.load(Ordering::Relaxed));
        gauges[Gauge::Connections.index()] = open.map(|count| count as u64).sum();
    }

    fn standings(&self) -> Vec<Standing> {
        self.app.load().standings()
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// What the connections of a runtime have in common.
fn front(
    desk: Arc<Desk>,
    watches: Watches,
    certificates: Option<Arc<Certificates>>,
    shutdown: &Shutdown,
    places: &Arc<Semaphore>,
) -> Front {
    Front {
        header_timeout: desk.server.header_timeout,
        keep_alive_timeout: desk.server.keep_alive_timeout,
        cut: desk.cut.clone(),
        routes: Routes::new(desk, watches),
        certificates,
        guest: shutdown.guest(),
        places: Arc::clone(places),
    }
}

fn seat(
    number: usize,
    connections: Arc<AtomicUsize>,
    front: Front,
    telemetry: Arc<Telemetry>,
) -> anyhow::Result<Seat> {
    let (hand_over, arrivals) = mpsc::channel(HANDOVER);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let open = Arc::clone(&connections);
    let thread = thread::Builder::new()
        .name(format!("runtime-{number}"))
        .spawn(move || runtime.block_on(run(number, front, open, arrivals, telemetry)))?;
    Ok(Seat {
        connections,
        hand_over,
        thread,
    })
}

/// Gives each connection to the runtime that has the fewest. Never ends.
///
/// When as many as may be are open, the next one waits in the kernel until one of them ends, which the time limits for
/// heads and idle connections see to. To refuse it would cost as much as to serve it, TLS first of all, and bring it
/// back at once.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>, seats: &[Seat]) {
    let mut said: Option<Instant> = None;
    loop {
        if places.available_permits() == 0 && said.is_none_or(|said| said.elapsed() > SAY_EVERY) {
            said = Some(Instant::now());
            tracing::warn!(
                "as many connections as may be are open (server.connections_max): others wait"
            );
        }
        let Ok(place) = Arc::clone(places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // A client that left before it was let in is its own affair; a lack of descriptors passes.
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    tracing::warn!(%error, "can't accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        // A client that is gone without a word is found out at some time.
        let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keep_alive);
        let Ok(stream) = stream.into_std() else {
            continue;
        };
        let Some(seat) = seats
            .iter()
            .min_by_key(|seat| seat.connections.load(Ordering::Relaxed))
        else {
            continue;
        };
        seat.connections.fetch_add(1, Ordering::Relaxed);
        if seat
            .hand_over
            .send(Arrival { stream, place })
            .await
            .is_err()
        {
            seat.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// One runtime: its connections, until the acceptor is gone and the last of them has ended.
async fn run(
    number: usize,
    front: Front,
    open: Arc<AtomicUsize>,
    mut arrivals: mpsc::Receiver<Arrival>,
    telemetry: Arc<Telemetry>,
) {
    let mut connections = JoinSet::new();
    let probed = tokio::spawn(telemetry.be_probed(number));
    loop {
        tokio::select! {
            arrival = arrivals.recv() => {
                let Some(Arrival { stream, place }) = arrival else { break };
                let seated = Seated { connections: Arc::clone(&open), _place: place };
                let Ok(stream) = TcpStream::from_std(stream) else { continue };
                connections.spawn(front.clone().serve(stream, seated));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    // The drain waits for whoever may still hear of its phases.
    drop(front);
    while connections.join_next().await.is_some() {}
    probed.abort();
}
