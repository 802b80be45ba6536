//! What is logged, and how: to standard error, as text or as JSON lines.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::config;

/// Starts the log. A second call changes nothing.
pub fn start(settings: &config::Log) {
    // What our dependencies log is theirs: only their complaints, since they may log addresses and headers.
    let filter = Targets::new()
        .with_default(tracing::Level::WARN)
        .with_target("bifrost_gateway", settings.level);
    let layer = if settings.json {
        fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(std::io::stderr)
            .with_filter(filter)
            .boxed()
    } else {
        let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        fmt::layer()
            .with_ansi(colour)
            .with_target(false)
            .with_writer(std::io::stderr)
            .with_filter(filter)
            .boxed()
    };
    let _ = tracing_subscriber::registry().with(layer).try_init();
}
