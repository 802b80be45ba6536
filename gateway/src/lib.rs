//! Bifrost: one OpenAI-compatible API in front of many LLM providers, that tells what it costs.
//!
//! # The life of a request
//!
//! ```text
//! client ─▶ server ─▶ routes ─▶ pipeline ─▶ upstream ─▶ provider
//!                                  │  call, queue, keys, provider: asked in turn, never asking each other
//! client ◀── relay ◀───────────────┘
//!               │ dropped: last byte taken, or client gone
//!               ▼
//!           telemetry ─▶ [segment] ─▶ monitor
//! ```
//!
//! A connection stays on one runtime. When a request's head is read, a [`stopwatch`] starts; [`pipeline`] says what
//! it is busy with by `watch.enter(Stage::…)` above the work; the [`relay`] takes the stopwatch along with the permit
//! and the key until the last byte. Dropped, it leaves one record, however the request ended.
//!
//! # Invariants
//!
//! - Every request leaves exactly one record, and every moment of it belongs to one stage.
//! - `queue`, `keys`, `provider` and `upstream` never import each other: only `pipeline` knows the order.
//! - Adapters ([`provider`]) do no I/O.
//! - A permit is held to the last byte and given up while a request pauses.
//! - Nothing that a client sent but its body goes to a provider, and that as the client's own bytes.
//! - Telemetry never keeps a request waiting, nor the gateway from starting.

pub mod bench;
pub mod child;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod load;
pub mod logging;
pub mod mock;
pub mod notify;
pub mod start;

pub mod admin;
pub mod fit;
pub mod server;

pub mod access;
pub mod routes;

pub mod app;
pub mod pipeline;
pub mod reload;

pub mod budget;
pub mod call;
pub mod keys;
pub mod provider;
pub mod queue;
pub mod sse;
pub mod upstream;

pub mod relay;

pub mod stopwatch;

pub mod machine;
pub mod metrics;
pub mod telemetry;

pub mod error;
pub mod shutdown;
