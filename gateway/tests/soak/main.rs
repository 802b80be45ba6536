//! The gateway as a process, under load from clients that leave and before a provider that fails, for as long as one
//! likes: `cargo test --test soak -- --seconds 60 --rps 1000 [--reload]`; and what it adds, with `--added`. Without either
//! it does nothing, so that `cargo test` passes by it. It prints figures; its exit status says whether all held.
#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]
#![expect(
    unreachable_pub,
    reason = "one test crate, whose modules are for one another"
)]

mod abandoned;
mod added;
mod agreement;
mod bodies;
mod client;
mod load;
mod mix;
mod process;
mod provider;

use std::process::ExitCode;
use std::time::Duration;

/// How much of what must hold did.
#[derive(Default)]
pub struct Verdict {
    passed: u32,
    failed: u32,
}

impl Verdict {
    /// Prints a figure, and counts whether it is as it must be.
    pub fn check(&mut self, what: &str, found: impl std::fmt::Display, holds: bool) {
        let (mark, count) = if holds {
            ("  ok", &mut self.passed)
        } else {
            ("FAIL", &mut self.failed)
        };
        *count += 1;
        println!("{mark}  {what}: {found}");
    }
}

fn argument(name: &str) -> Option<u32> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)?.parse().ok()
}

fn main() -> ExitCode {
    let asks_for = |flag: &str| std::env::args().any(|argument| argument == flag);
    let load = argument("--seconds").map(|seconds| load::Load {
        time: Duration::from_secs(seconds.into()),
        rps: argument("--rps").unwrap_or(1_000),
        reload: asks_for("--reload"),
    });
    if load.is_none() && !asks_for("--added") {
        println!(
            "say for how long: cargo test --test soak -- --seconds 60 [--rps 1000] [--reload]; or --added"
        );
        return ExitCode::SUCCESS;
    }
    process::raise_descriptor_limit();
    let mut verdict = Verdict::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        if asks_for("--added") {
            added::run(&mut verdict).await;
        }
        if let Some(load) = load {
            abandoned::run(&mut verdict).await;
            bodies::run(&mut verdict).await;
            load::run(&load, &mut verdict).await;
        }
    });
    println!("{} passed, {} failed", verdict.passed, verdict.failed);
    if verdict.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
