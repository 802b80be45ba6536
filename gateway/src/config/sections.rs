//! Every section but the providers': which settings there are, and what each must be.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use bifrost_shared::thresholds::Thresholds;
use tracing::Level;

use super::defaults::{PROFILES, WORKERS_MAX};
use super::section::Section;
use super::{Client, Config, Log, Server, Telemetry, provider, scalar};

/// Everything.
pub(super) fn read(root: &mut Section) -> Option<Config> {
    root.take("$schema"); // an editor's business
    let profiles = PROFILES.each_ref().map(|profile| (profile.name, ()));
    root.choice("profile", &profiles);
    refuse_client_keys(root, "client_keys");
    let server = root.section("server", server);
    let client = root.section("client", client);
    let providers = provider::read_all(root);
    let telemetry = root.section("telemetry", telemetry);
    let drain_timeout = root.duration("drain_timeout");
    let log = root.section("log", log);
    Some(Config {
        server: server?,
        client: client?,
        providers: providers?,
        telemetry: telemetry?,
        drain_timeout: drain_timeout?,
        log: log?,
    })
}

/// Whoever sets client keys believes that the door is locked; until it can be, that must not pass unnoticed.
fn refuse_client_keys(section: &mut Section, name: &str) {
    if let Some(field) = section.take(name) {
        field.problem("client keys are not supported yet, and without them the gateway serves whoever reaches it");
    }
}

fn server(section: &mut Section) -> Option<Server> {
    let listen = section.parse(
        "listen",
        "an address and port such as 127.0.0.1:8080",
        scalar::address,
    );
    let workers = section.count("workers", 1..=WORKERS_MAX);
    let header_timeout = section.duration_above_zero("header_timeout");
    let body_timeout = section.duration_above_zero("body_timeout");
    let server_timing = section.toggle("server_timing");
    let budget_megabytes = section.count("body_budget_mb", 0_usize..=1 << 20);
    Some(Server {
        listen: listen?,
        workers: NonZeroUsize::new(workers?)?,
        header_timeout: header_timeout?,
        body_timeout: body_timeout?,
        server_timing: server_timing?,
        body_budget_bytes: Some(budget_megabytes? << 20).filter(|bytes| *bytes > 0),
    })
}

fn client(section: &mut Section) -> Option<Client> {
    refuse_client_keys(section, "keys");
    let initial_pool_size = section.count("initial_pool_size", 0..=10_000_000);
    let buffer_size = section.count("buffer_size", 0..=10_000_000);
    let megabytes = section.count("max_request_body_size_mb", 1_usize..=1024);
    Some(Client {
        initial_pool_size: initial_pool_size?,
        buffer_size: buffer_size?,
        request_body_bytes_max: megabytes? << 20,
    })
}

fn telemetry(section: &mut Section) -> Option<Telemetry> {
    let enabled = section.toggle("enabled");
    let segment = section.word(
        "segment",
        "the path of a directory, or of a file that ends in .seg",
    );
    let thresholds = section.section("thresholds", thresholds);
    let is_label =
        |text: &str| text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_graphic());
    let label = |text: &str| {
        if is_label(text) {
            Ok(text.to_owned())
        } else {
            Err(None)
        }
    };
    let instance = section.parse("instance", "an instance type such as t3.medium", label);
    Some(Telemetry {
        enabled: enabled?,
        segment: segment.map(PathBuf::from),
        thresholds: thresholds?,
        instance,
    })
}

fn thresholds(section: &mut Section) -> Option<Thresholds> {
    let queue_wait = section.duration_above_zero("queue_wait");
    let load_rps = section.count("load", 1..=10_000_000);
    let memory_percent = section.count("memory_percent", 1..=100_u64);
    let overhead = section.duration_above_zero("overhead");
    let nanoseconds = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).ok();
    Some(Thresholds {
        queue_wait_ns: nanoseconds(queue_wait?)?,
        load_rps: load_rps?,
        memory_permille: memory_percent? * 10,
        overhead_ns: nanoseconds(overhead?)?,
    })
}

fn log(section: &mut Section) -> Option<Log> {
    let levels = [
        ("error", Level::ERROR),
        ("warn", Level::WARN),
        ("info", Level::INFO),
        ("debug", Level::DEBUG),
        ("trace", Level::TRACE),
    ];
    let level = section.choice("level", &levels);
    let json = section.choice("format", &[("text", false), ("json", true)]);
    Some(Log {
        level: level?,
        json: json?,
    })
}
