//! The load: an open loop sends what is due, whether or not earlier requests came back; a closed one keeps its
//! connections busy.

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::alarm::Alarm;
use super::arrivals::Pattern;
use super::client::Client;
use super::progress::Progress;
use super::tally::{LoadReport, Tally};
use super::target::Bodies;

/// How requests follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Loop {
    /// When they are due.
    Open(Pattern),
    /// When the one before on the same connection was answered.
    Closed {
        connections: u32,
        /// Requests on each connection, and then no more; zero for as many as the time has room for.
        requests_each: u64,
    },
}

/// What a load is made of.
pub(super) struct Plan {
    pub(super) how: Loop,
    pub(super) what: String,
    pub(super) url: String,
    pub(super) bodies: Bodies,
    /// Part of the time, at its start, whose requests are sent but not measured.
    pub(super) warm_up: Duration,
    /// The whole time in which requests are sent.
    pub(super) time: Duration,
    /// Becomes true when no more are to be sent, before that time is over.
    pub(super) stop: watch::Receiver<bool>,
}

/// What the tasks of a load share.
struct Shared {
    client: Client,
    bodies: Bodies,
    /// Not locked across an await.
    tally: Mutex<Tally>,
}

impl Shared {
    async fn ask(&self, number: u64, due: Instant) {
        let (body, is_stream) = self.bodies.body(number);
        let bytes = body.len();
        let sent = Instant::now();
        let seen = self.client.ask(body, is_stream).await;
        self.tally().count(due, sent, bytes, &seen);
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends it all, waits for the last answer, and says what came of it.
pub(super) async fn drive(
    plan: Plan,
    client: Client,
    progress: &Progress,
) -> anyhow::Result<LoadReport> {
    let cpu_before = own_cpu();
    let start = Instant::now();
    let shared = Arc::new(Shared {
        client,
        bodies: plan.bodies,
        tally: Mutex::new(Tally::new(start + plan.warm_up)),
    });
    let showing = progress.show(start, plan.time, {
        let shared = Arc::clone(&shared);
        move || shared.tally().ended().clone()
    });
    let stop = plan.stop;
    match plan.how {
        Loop::Open(pattern) => open(&shared, pattern, start, stop.clone()).await?,
        Loop::Closed {
            connections,
            requests_each,
        } => {
            let end = start + plan.time;
            closed(&shared, connections, requests_each, end, &stop).await;
        }
    }
    drop(showing);
    let own_cpu = own_cpu().saturating_sub(cpu_before);
    let measured = match plan.how {
        // Not for a time, but until all is done.
        Loop::Closed {
            requests_each: 1.., ..
        } => start.elapsed(),
        _ => plan.time,
    };
    let is_stopped = *stop.borrow();
    let (measured, what) = if is_stopped {
        let elapsed = start.elapsed().min(plan.time);
        let seconds = elapsed.as_secs();
        (elapsed, plan.what + &format!("; stopped after {seconds} s"))
    } else {
        (measured, plan.what)
    };
    let time = measured.saturating_sub(plan.warm_up);
    Ok(shared.tally().report(what, plan.url, time, own_cpu))
}

async fn open(
    shared: &Arc<Shared>,
    pattern: Pattern,
    start: Instant,
    mut stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let alarm = Alarm::new()?;
    let mut in_flight = JoinSet::new();
    for (number, at) in (0..).zip(pattern.arrivals(fastrand::f64)) {
        let (due, send) = (start + at, start + pattern.sent_at(at));
        if send > Instant::now() {
            tokio::select! {
                biased;
                woken = alarm.until(send) => woken?,
                () = told(&mut stop) => break,
            }
        }
        if *stop.borrow() {
            break;
        }
        let shared = Arc::clone(shared);
        in_flight.spawn(async move { shared.ask(number, due).await });
        // Those that have ended take memory until they are asked for.
        while in_flight.try_join_next().is_some() {}
        if number % BATCH == 0 {
            tokio::task::yield_now().await;
        }
    }
    in_flight.join_all().await;
    Ok(())
}

/// Waits until it is told to stop, which may be never.
async fn told(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|is_told| *is_told).await.is_err() {
        pending::<()>().await;
    }
}

/// However far a load is behind, it looks at answers each time that it has sent so many.
const BATCH: u64 = 64;

async fn closed(
    shared: &Arc<Shared>,
    connections: u32,
    requests_each: u64,
    end: Instant,
    stop: &watch::Receiver<bool>,
) {
    let mut loops = JoinSet::new();
    for connection in 0..u64::from(connections) {
        let (shared, stop) = (Arc::clone(shared), stop.clone());
        loops.spawn(async move {
            let mut done = 0;
            let goes_on = |done| match requests_each {
                0 => Instant::now() < end,
                each => done < each,
            };
            while goes_on(done) && !*stop.borrow() {
                let number = done * u64::from(connections) + connection;
                shared.ask(number, Instant::now()).await;
                done += 1;
            }
        });
    }
    loops.join_all().await;
}

/// Processor time that this process has used.
fn own_cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(used.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use serde_json::json;
    use tokio::net::TcpListener;

    use super::super::tally::Counts;
    use super::super::target::{Dialect, Mix, Target};
    use super::*;
    use crate::mock;

    const MS: Duration = Duration::from_millis(1);

    async fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn quick() -> mock::Settings {
        mock::Settings {
            delay: Duration::ZERO,
            pace: Duration::ZERO,
            ..mock::Settings::default()
        }
    }

    async fn mock(settings: mock::Settings) -> SocketAddr {
        let (listener, address) = listen().await;
        tokio::spawn(mock::serve(listener, settings, pending()));
        address
    }

    fn evenly(rate: f64, time: Duration) -> Loop {
        Loop::Open(Pattern {
            rate,
            rate_at_end: rate,
            time,
            rise: Duration::ZERO,
            even: true,
            burst: None,
            tick: None,
        })
    }

    async fn ask(address: SocketAddr, how: Loop, mix: &str, key: &str) -> LoadReport {
        ask_in(Dialect::Openai, address, how, mix, key).await
    }

    async fn ask_in(
        dialect: Dialect,
        address: SocketAddr,
        how: Loop,
        mix: &str,
        key: &str,
    ) -> LoadReport {
        let url = format!("http://{address}");
        let mut target = Target::new(&url, dialect).unwrap();
        key.clone_into(&mut target.key);
        let mix: Mix = mix.parse().unwrap();
        let plan = Plan {
            how,
            what: String::new(),
            url,
            bodies: Bodies::new(mix, "m", dialect, (133, 5_000)),
            warm_up: Duration::ZERO,
            time: 500 * MS,
            stop: watch::channel(false).1,
        };
        let client = Client::new(&target, 200 * MS).unwrap();
        drive(plan, client, &Progress::new("test")).await.unwrap()
    }

    #[tokio::test]
    async fn both_sides_count_the_same_in_both_loops() {
        let each = Loop::Closed {
            connections: 7,
            requests_each: 9,
        };
        for (dialect, how, requests) in [
            (Dialect::Openai, evenly(400.0, 500 * MS), 199),
            (Dialect::Openai, each, 63),
            (Dialect::Anthropic, each, 63),
        ] {
            let address = mock(quick()).await;
            let report = ask_in(dialect, address, how, "plain,stream,big", "any").await;
            assert_eq!((report.all.sent, report.all.ok), (requests, requests));
            assert_eq!(report.hop.count, requests, "the mock tells its own time");
            let streams = requests / 3;
            assert_eq!(
                (report.first_event.count, report.events),
                (streams, streams * 16)
            );
            let count = mock::test::get(address, "/count").await.json();
            let expected = json!({"requests": requests, "completed": requests, "cancelled": 0, "streams": streams});
            assert_eq!(count, expected);
        }
    }

    #[tokio::test]
    async fn every_way_to_fail_has_a_count_of_its_own() {
        let keys = [
            "status=status:503",
            "limited=limited",
            "cut=cut",
            "stall=stall",
        ];
        let address = mock(mock::Settings {
            keys: keys.map(|key| key.parse().unwrap()).into(),
            ..quick()
        })
        .await;
        let (listener, nobody) = listen().await;
        drop(listener);
        let one = Loop::Closed {
            connections: 1,
            requests_each: 1,
        };
        let check = async |address, key, mix, expected: Counts| {
            let report = ask(address, one, mix, key).await;
            assert_eq!(
                report.all,
                Counts {
                    sent: 1,
                    ..expected
                },
                "{key}, {mix}"
            );
        };
        let none = Counts::default;
        let status = |status| Counts {
            status: [(status, 1)].into(),
            ..none()
        };
        check(address, "status", "plain", status(503)).await;
        check(address, "limited", "stream", status(429)).await;
        for mix in ["plain", "stream"] {
            check(
                address,
                "cut",
                mix,
                Counts {
                    broken: 1,
                    ..none()
                },
            )
            .await;
        }
        check(
            address,
            "stall",
            "plain",
            Counts {
                timed_out: 1,
                ..none()
            },
        )
        .await;
        check(
            nobody,
            "any",
            "plain",
            Counts {
                connect_failed: 1,
                ..none()
            },
        )
        .await;
    }

    #[tokio::test]
    async fn a_server_that_stalls_can_not_hide_it() {
        const STALL: Duration = Duration::from_millis(150);
        let (listener, address) = listen().await;
        // Connections come to be, but nobody answers.
        tokio::spawn(async {
            tokio::time::sleep(STALL).await;
            mock::serve(listener, quick(), pending()).await;
        });
        let report = ask(address, evenly(200.0, 500 * MS), "plain", "any").await;
        assert_eq!(report.all.success(), Some(1.0));
        let stalled = report.latency.max;
        assert!(
            stalled > 120e6,
            "the first was due after 5 ms: {stalled} ns"
        );
        // 30 of 99 were due meanwhile and waited 75 ms on average. A closed loop would have asked once.
        assert!(report.latency.mean > 15e6, "{} ns", report.latency.mean);
        // And none of them waited for another to be answered.
        assert!(report.late.p90 < 50e6, "{} ns", report.late.p90);
    }
}
