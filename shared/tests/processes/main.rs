//! A writer and a reader as two processes over one mapped file: at full speed, and through the writer's violent death.
#![cfg(not(loom))] // a model checker has no segment
#![expect(
    clippy::unwrap_used,
    reason = "a test may unwrap, and so may its helpers"
)]

mod killed;
mod race;
mod reader;
mod told;
mod writer;
