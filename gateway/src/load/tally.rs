//! What became of the requests, and when that is news. Pure over a given `now`.

use std::error::Error;
use std::time::Duration;

use tokio::time::Instant;

use super::Failure;

/// How long nothing may fail before failing has stopped: one line for an outage, not one for each lost request.
const QUIET: Duration = Duration::from_secs(1);

/// Requests since the start. Those in flight are in `sent` only.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) ok: u64,
    pub(super) failed: u64,
    outage: Option<Outage>,
}

#[derive(Debug)]
struct Outage {
    failed: u64,
    last: Instant,
}

impl Tally {
    /// Counts a request that has ended, and says so if failing starts or stops with it.
    pub(super) fn count(&mut self, outcome: Result<(), Failure>, now: Instant) -> Option<String> {
        match outcome {
            Ok(()) => {
                self.ok += 1;
                let over = self.outage.take_if(|outage| now - outage.last >= QUIET)?;
                Some(format!(
                    "requests succeed again; {} have failed",
                    over.failed
                ))
            }
            Err(failure) => {
                self.failed += 1;
                if let Some(outage) = &mut self.outage {
                    outage.failed += 1;
                    outage.last = now;
                    return None;
                }
                self.outage = Some(Outage {
                    failed: 1,
                    last: now,
                });
                let reason = failure.source().map(|source| format!(": {source}"));
                Some(format!(
                    "requests fail: {failure}{}",
                    reason.unwrap_or_default()
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_once_when_it_starts_and_once_when_it_has_stopped() {
        let start = Instant::now();
        let mut tally = Tally::default();
        let mut check = |second: f32, outcome, news: Option<&str>| {
            let now = start + Duration::from_secs_f32(second);
            assert_eq!(tally.count(outcome, now).as_deref(), news, "at {second} s");
        };
        check(0.0, Ok(()), None);
        check(
            1.0,
            Err(Failure::TooMany(3)),
            Some("requests fail: 3 requests are already in flight"),
        );
        check(1.5, Ok(()), None);
        check(2.0, Err(Failure::CutShort), None);
        check(2.9, Ok(()), None);
        check(3.0, Ok(()), Some("requests succeed again; 2 have failed"));
        check(9.0, Ok(()), None);
        check(
            9.1,
            Err(Failure::CutShort),
            Some("requests fail: a stream ended without its end mark"),
        );
        assert_eq!((tally.ok, tally.failed), (5, 3));
    }
}
