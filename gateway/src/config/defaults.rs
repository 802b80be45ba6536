//! What holds where nothing is set. Everything is written as the user would write it.

use figment::value::Value;

use super::layer::{DEFAULT, Layer};

/// A named pair of sizes from the benchmark page.
pub(super) struct Profile {
    pub(super) name: &'static str,
    initial_pool_size: &'static str,
    buffer_size: &'static str,
}

#[rustfmt::skip] // a table, and to be read as one
pub(super) const PROFILES: [Profile; 4] = [
    Profile { name: "t3.medium",   initial_pool_size: "10000", buffer_size: "15000" },
    Profile { name: "low-memory",  initial_pool_size: "7500",  buffer_size: "12000" },
    Profile { name: "performance", initial_pool_size: "12500", buffer_size: "17500" },
    Profile { name: "t3.xlarge",   initial_pool_size: "15000", buffer_size: "20000" },
];

#[rustfmt::skip]
const SETTINGS: [(&str, &str); 25] = [
    ("profile",                              "t3.medium"),
    ("server.listen",                        "127.0.0.1:8080"),
    ("server.header_timeout",                "10s"),
    ("server.body_timeout",                  "30s"),
    ("server.keep_alive_timeout",            "75s"), // longer than the 60 s of an AWS load balancer
    ("server.connections_max",               "0"), // what the descriptor limit allows
    ("server.allow_unauthenticated",         "false"),
    ("server.server_timing",                 "false"),
    ("server.body_budget_mb",                "0"), // a quarter of the memory limit
    ("client.max_request_body_size_mb",      "32"),
    ("admin.enabled",                        "true"),
    ("admin.listen",                         "127.0.0.1:8081"),
    ("telemetry.enabled",                    "true"),
    ("telemetry.readers",                    "owner"),
    ("telemetry.instance_metadata",          "auto"),
    ("telemetry.thresholds.queue_wait",      "75us"), // these four: the page's t3.medium, `Thresholds::T3_MEDIUM`
    ("telemetry.thresholds.load",            "4000"),
    ("telemetry.thresholds.memory_percent",  "75"),
    ("telemetry.thresholds.overhead",        "87us"),
    ("telemetry.thresholds.scheduler_delay", "1ms"),  // ours, like the next one
    ("telemetry.thresholds.credit_runway",   "4h"),
    ("drain_timeout",                        "120s"),
    ("log.level",                            "info"),
    ("log.format",                           "text"),
    ("log.access",                           "false"),
];

/// For each provider.
#[rustfmt::skip]
const PROVIDER_SETTINGS: [(&str, &str); 19] = [
    ("kind",                     "openai"),
    ("keyless",                  "false"),
    ("concurrency",              "15000"),
    ("stream_usage",             "true"),
    ("retries.max",              "2"),
    ("retries.backoff_initial",  "500ms"),
    ("retries.backoff_max",      "5s"),
    ("timeouts.connect",         "5s"),
    ("timeouts.first_byte",      "300s"), // a long answer that is no stream has its first byte late
    ("timeouts.idle",            "120s"),
    ("timeouts.total",           "600s"), // what the SDKs wait by default
    ("timeouts.queue",           "30s"),
    ("connects_max",             "64"),   // the rest of a burst takes over what these have opened
    ("http2.connections",        "0"),    // HTTP/1.1
    ("rest.rate_limited",        "5s"),
    ("rest.max",                 "10m"),
    ("rest.forbidden",           "60s"),
    ("rest.probe",               "5s"),
    ("rest.ramp",                "10s"),
];

/// The lowest layer, for the profile of that name (an unknown one is refused elsewhere) and these providers.
pub(super) fn layer<'a>(
    profile: Option<&Value>,
    providers: impl Iterator<Item = &'a String>,
) -> Layer {
    let mut layer = Layer::new(DEFAULT);
    for (path, text) in SETTINGS {
        layer.put(path, text, DEFAULT);
    }
    let workers =
        std::thread::available_parallelism().map_or(1, |count| count.get().min(WORKERS_MAX));
    layer.put("server.workers", &workers.to_string(), DEFAULT);

    let named = profile.and_then(Value::as_str);
    let profile = PROFILES.iter().find(|profile| named == Some(profile.name));
    let origin = profile.map_or(DEFAULT.to_owned(), |profile| {
        format!("profile {}", profile.name)
    });
    let profile = profile.unwrap_or(&PROFILES[0]);
    layer.put(
        "client.initial_pool_size",
        profile.initial_pool_size,
        &origin,
    );
    layer.put("client.buffer_size", profile.buffer_size, &origin);

    for provider in providers {
        for (path, text) in PROVIDER_SETTINGS {
            layer.put(&format!("providers.{provider}.{path}"), text, DEFAULT);
        }
    }
    layer
}

/// More runtimes than any machine that this is for has processors.
pub(super) const WORKERS_MAX: usize = 1024;
