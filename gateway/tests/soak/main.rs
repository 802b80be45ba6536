//! The gateway as a process, under load from clients that leave and before a provider that fails, for as long as one
//! likes: `cargo test --test soak -- --seconds 60 --rps 1000 [--reload]`. Without `--seconds` it does nothing, so that
//! `cargo test` passes by it. It prints figures; its exit status says whether all held.
#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]
#![expect(
    unreachable_pub,
    reason = "one test crate, whose modules are for one another"
)]

mod abandoned;
mod bodies;
mod client;
mod load;
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
    let Some(seconds) = argument("--seconds") else {
        println!(
            "say for how long: cargo test --test soak -- --seconds 60 [--rps 1000] [--reload]"
        );
        return ExitCode::SUCCESS;
    };
    let load = load::Load {
        time: Duration::from_secs(seconds.into()),
        rps: argument("--rps").unwrap_or(1_000),
        reload: std::env::args().any(|argument| argument == "--reload"),
    };
    process::raise_descriptor_limit();
    let mut verdict = Verdict::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        abandoned::run(&mut verdict).await;
        bodies::run(&mut verdict).await;
        load::run(&load, &mut verdict).await;
    });
    println!("{} passed, {} failed", verdict.passed, verdict.failed);
    if verdict.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
