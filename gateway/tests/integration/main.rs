//! The gateway over real sockets: a scripted provider behind it, raw clients in front of it, records read back from its
//! shared-memory segment.
#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]
#![expect(
    unreachable_pub,
    reason = "one test crate, whose modules are for one another"
)]

mod client;
mod gateway;
mod provider;
mod tls;
mod tunnel;

mod access;
mod admin;
mod at_the_limit;
mod bytes;
mod canary;
mod certificates;
mod clients;
mod connections;
mod drain;
mod errors;
mod failover;
mod http2;
mod layering;
mod metrics;
mod outcomes;
mod queue;
mod reload;
mod retries;
mod reuse;
mod routing;
mod streams;
