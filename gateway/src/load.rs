//! An open-loop load on the gateway's front door: requests leave when they are due, whether or not earlier ones came
//! back, as they would from many clients that don't know each other.

mod door;
pub(crate) mod pool;
mod tally;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use self::door::Door;
use self::tally::Tally;
use crate::child;

/// How long one request may take: LLM calls pass minutes.
const REQUEST_MAX: Duration = Duration::from_mins(5);

/// Every so many requests ask for a stream.
const STREAM_EVERY: u64 = 10;

/// The command line of a load process. Without `--requests` it ends when its input does.
#[derive(Debug, Clone, clap::Args)]
pub struct LoadArgs {
    /// The gateway's address.
    #[arg(long, value_name = "ADDRESS")]
    pub target: SocketAddr,
    /// Requests a second.
    #[arg(long, default_value = "100")]
    pub rate: NonZeroU32,
    /// The model to ask for.
    #[arg(long, default_value = "gpt-4o-mini")]
    pub model: String,
    /// Send so many, and print what became of them as a line of JSON.
    #[arg(long, value_name = "COUNT")]
    pub requests: Option<u64>,
    /// Requests in flight at once; one that is due beyond them fails unsent.
    #[arg(long, value_name = "COUNT", default_value = "10000")]
    pub in_flight_max: usize,
}

/// Why a request got no whole answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0} can't be reached")]
    Unreachable(SocketAddr, #[source] io::Error),
    #[error("{0} could not be reached a moment ago")]
    Resting(SocketAddr),
    #[error("the connection broke")]
    Broken(#[from] hyper::Error),
    #[error("it was answered with {0}")]
    Status(http::StatusCode),
    #[error("a stream ended without its end mark")]
    CutShort,
    #[error("no answer within {} s", REQUEST_MAX.as_secs())]
    Late,
    #[error("{0} requests are already in flight")]
    TooMany(usize),
    #[error("sending it panicked")]
    Panicked,
}

/// Loads as a process of its own: until the parent is gone, or until all of `--requests` are answered.
///
/// # Errors
///
/// When the runtime can't be built or the summary can't be written.
pub fn run(args: &LoadArgs) -> anyhow::Result<()> {
    child::runtime()?.block_on(async {
        if args.requests.is_none() {
            drive(args, child::parent_gone()).await;
            return Ok(());
        }
        let Tally {
            sent, ok, failed, ..
        } = drive(args, std::future::pending()).await;
        let mut out = io::stdout();
        writeln!(out, "{}", json!({"sent": sent, "ok": ok, "failed": failed}))?;
        out.flush()?;
        Ok(())
    })
}

/// Sends what is due and counts what comes back, until `end` or until all that were asked for came back.
async fn drive(args: &LoadArgs, end: impl Future<Output = ()>) -> Tally {
    let door = Arc::new(Door::new(args.target));
    let interval = Duration::from_secs(1) / args.rate.get();
    let mut due = Instant::now();
    let mut in_flight = JoinSet::new();
    let mut tally = Tally::default();
    let mut end = pin!(end);
    loop {
        let more = args.requests.is_none_or(|requests| tally.sent < requests);
        if !more && in_flight.is_empty() {
            return tally;
        }
        let outcome = tokio::select! {
            () = &mut end => return tally,
            Some(joined) = in_flight.join_next() => joined.unwrap_or(Err(Failure::Panicked)),
            () = sleep_until(due), if more => {
                due += interval;
                let number = tally.sent;
                tally.sent += 1;
                if in_flight.len() < args.in_flight_max {
                    in_flight.spawn(ask(Arc::clone(&door), number, body(&args.model, number)));
                    continue;
                }
                Err(Failure::TooMany(args.in_flight_max))
            }
        };
        if let Some(news) = tally.count(outcome, Instant::now()) {
            eprintln!("load: {news}");
        }
    }
}

async fn ask(door: Arc<Door>, number: u64, body: Bytes) -> Result<(), Failure> {
    let answer = timeout(REQUEST_MAX, door.ask(body))
        .await
        .map_err(|_| Failure::Late)??;
    if is_stream(number) && !answer.ends_with(b"data: [DONE]\n\n") {
        return Err(Failure::CutShort);
    }
    Ok(())
}

fn is_stream(number: u64) -> bool {
    number % STREAM_EVERY == STREAM_EVERY - 1
}

/// About 130 bytes, the size that the benchmark page's requests have.
fn body(model: &str, number: u64) -> Bytes {
    let mut body = json!({
        "model": model,
        "messages": [{"role": "user", "content": format!("Request {number:09}: what does a gateway do? Answer in a sentence.")}],
    });
    if is_stream(number) {
        body["stream"] = true.into();
    }
    Bytes::from(body.to_string())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::mock;

    fn args(target: SocketAddr, requests: Option<u64>) -> LoadArgs {
        LoadArgs {
            target,
            rate: NonZeroU32::new(2_000).unwrap(),
            model: "gpt-4o-mini".to_owned(),
            requests,
            in_flight_max: 1_000,
        }
    }

    /// A mock provider stands in for the gateway; aborting it is killing it.
    fn mock(listener: TcpListener, failure_rate: f64) -> JoinHandle<()> {
        let settings = mock::Settings {
            delay: Duration::from_millis(3),
            pace: Duration::ZERO,
            failure_rate,
            ..mock::Settings::default()
        };
        tokio::spawn(mock::serve(listener, settings, pending()))
    }

    async fn listen(address: &str) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test]
    async fn every_request_is_sent_answered_and_counted_on_both_sides() {
        let (listener, target) = listen("127.0.0.1:0").await;
        mock(listener, 0.0);

        let tally = drive(&args(target, Some(200)), pending()).await;

        assert_eq!((tally.sent, tally.ok, tally.failed), (200, 200, 0));
        let count = mock::test::get(target, "/count").await.json();
        let all_ended = json!({"requests": 200, "completed": 200, "cancelled": 0, "streams": 20});
        assert_eq!(count, all_ended);
    }

    #[tokio::test]
    async fn an_error_is_a_failure() {
        let (listener, target) = listen("127.0.0.1:0").await;
        mock(listener, 1.0);
        let tally = drive(&args(target, Some(20)), pending()).await;
        assert_eq!((tally.sent, tally.ok, tally.failed), (20, 0, 20));
    }

    #[tokio::test]
    async fn what_is_due_beyond_the_bound_fails_unsent() {
        let (listener, target) = listen("127.0.0.1:0").await;
        mock(listener, 0.0);
        let mut args = args(target, Some(3));
        args.in_flight_max = 0;
        let tally = drive(&args, pending()).await;
        assert_eq!((tally.sent, tally.ok, tally.failed), (3, 0, 3));
        let count = mock::test::get(target, "/count").await.json();
        assert_eq!(count["requests"], 0);
    }

    #[tokio::test]
    async fn the_load_ends_when_it_is_told_to() {
        let (_listener, target) = listen("127.0.0.1:0").await;
        // Nobody accepts, so that nothing is ever answered.
        drive(&args(target, None), async {}).await;
    }

    #[tokio::test]
    async fn the_load_goes_on_after_the_gateway_was_killed_and_started_again() {
        let (listener, target) = listen("127.0.0.1:0").await;
        let first = mock(listener, 0.0);
        let load = tokio::spawn(async move { drive(&args(target, None), pending()).await });
        mock::test::get(target, "/count?completed=5").await;

        first.abort();
        first.await.unwrap_err();
        let (listener, _) = listen(&target.to_string()).await;
        mock(listener, 0.0);

        mock::test::get(target, "/count?completed=5").await;
        load.abort();
    }

    #[test]
    fn a_request_has_the_size_that_the_benchmark_page_names() {
        let body = body("gpt-4o-mini", 0);
        assert!((125..=135).contains(&body.len()), "{} bytes", body.len());
    }
}
