//! How far a load is: a line on the terminal that is written over, and nothing where standard error is no terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::tally::Counts;

/// How often it is written.
const EVERY: Duration = Duration::from_millis(200);
/// Characters of the bar.
const WIDTH: usize = 30;

/// Whether, and under which name, progress is shown.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    name: String,
    shown: bool,
}

/// Progress that is being shown; its line is wiped on drop.
pub(super) struct Showing(Option<JoinHandle<()>>);

impl Progress {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            shown: io::stderr().is_terminal(),
        }
    }

    /// Shows, until what comes back is dropped, how much of `time` has passed since `start`, and what `counts` says.
    pub(super) fn show(
        &self,
        start: Instant,
        time: Duration,
        counts: impl Fn() -> Counts + Send + 'static,
    ) -> Showing {
        if !self.shown {
            return Showing(None);
        }
        let name = self.name.clone();
        Showing(Some(tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            loop {
                ticks.tick().await;
                let line = line(&name, start.elapsed(), time, &counts());
                // Nobody is helped by a load that ends because its terminal has gone.
                let _ = write!(io::stderr(), "\r{line}\x1b[K");
            }
        })))
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(name: &str, elapsed: Duration, time: Duration, counts: &Counts) -> String {
    let share = (elapsed.as_secs_f64() / time.as_secs_f64().max(1e-9)).min(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a small width"
    )]
    let filled = (share * WIDTH as f64) as usize;
    let bar = "#".repeat(filled) + &"-".repeat(WIDTH - filled);
    let failed = counts.sent - counts.ok;
    let seconds = elapsed.as_secs().min(time.as_secs());
    format!(
        "{name} [{bar}] {seconds} of {} s, {} answered, {failed} failed",
        time.as_secs(),
        counts.ok
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_with_time_and_no_further() {
        let counts = Counts {
            sent: 12,
            ok: 10,
            ..Counts::default()
        };
        let line = |seconds| {
            let elapsed = Duration::from_secs(seconds);
            line("direct", elapsed, Duration::from_secs(20), &counts)
        };
        let half = "#".repeat(15) + &"-".repeat(15);
        let text = "10 answered, 2 failed";
        assert_eq!(line(10), format!("direct [{half}] 10 of 20 s, {text}"));
        assert_eq!(
            line(99),
            format!("direct [{}] 20 of 20 s, {text}", "#".repeat(30))
        );
    }
}
