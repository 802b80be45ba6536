//! A writer and a reader as two processes over one mapped file.
#![expect(
    clippy::unwrap_used,
    reason = "a test may unwrap, and so may its helpers"
)]

mod race;
mod reader;
mod told;
mod writer;
