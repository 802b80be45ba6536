//! Every section but the providers': which settings there are, and what each must be.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use bifrost_shared::layout::{CreditMode, is_instance_type};
use bifrost_shared::segment::Readers;
use bifrost_shared::thresholds::Thresholds;
use tracing::Level;

use super::defaults::{PROFILES, WORKERS_MAX};
use super::nearest::nearest;
use super::section::Section;
use super::{
    Admin, Client, ClientKey, Config, InstanceMetadata, Log, Server, Telemetry, TlsFiles, keys,
    provider, scalar, secret,
};

/// Everything.
pub(super) fn read(root: &mut Section) -> Option<Config> {
    root.take("$schema"); // an editor's business
    let profiles = PROFILES.each_ref().map(|profile| (profile.name, ()));
    root.choice("profile", &profiles);
    let listens_on = root.peek("server").and_then(|server| {
        let listen = server.value.find_ref("listen")?.clone();
        Some(server.within("listen", listen))
    });
    let server = root.section("server", server);
    let client = root.section("client", client);
    let providers = provider::read_all(root);
    let names: Vec<&String> = providers.iter().flatten().map(|(name, _)| name).collect();
    let client_keys = keys::read_clients(root, "client_keys", |text| is_pattern(text, &names));
    let admin_key = keys::read_clients(root, "admin_key", |_| Err(None));
    let admin = root.section("admin", |section| admin(section, admin_key?));
    let telemetry = root.section("telemetry", telemetry);
    let drain_timeout = root.duration("drain_timeout");
    let log = root.section("log", log);
    let config = Config {
        server: server?,
        client: client?,
        client_keys: client_keys?,
        providers: providers?,
        admin: admin?,
        telemetry: telemetry?,
        drain_timeout: drain_timeout?,
        log: log?,
    };
    if let Some(field) = listens_on
        && config.is_open_beyond(config.server.listen.ip())
    {
        // Whoever reaches a gateway without client keys spends its keys: beyond this machine, that has to be said.
        field.problem(
            "without client keys, whoever reaches this address spends your keys: set BIFROST_CLIENT_KEYS, or \
             server.allow_unauthenticated = true if something else keeps strangers out",
        );
    }
    Some(config)
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// `provider/model`, in which `*` stands for any run of characters.
fn is_pattern(text: &str, providers: &[&String]) -> scalar::Parsed<()> {
    let Some((provider, model)) = text.split_once('/') else {
        return if text == "*" { Ok(()) } else { Err(None) };
    };
    if provider.is_empty() || model.is_empty() {
        return Err(None);
    }
    if provider.contains('*') || providers.iter().any(|name| *name == provider) {
        return Ok(());
    }
    let near = nearest(provider, providers.iter().map(|name| name.as_str()));
    let near = near.map(|near| format!("; did you mean {near}?"));
    Err(Some(format!(
        "no such provider is configured{}",
        near.unwrap_or_default()
    )))
}

/// `keys` are those that a variable of its own gives.
fn admin(section: &mut Section, mut keys: Vec<ClientKey>) -> Option<Admin> {
    let enabled = section.toggle("enabled");
    let field = section.peek("listen");
    let listen = section.parse(
        "listen",
        "an address and port such as 127.0.0.1:8081",
        scalar::address,
    );
    let more = keys::read_clients(section, "keys", |_| Err(None));
    let (field, enabled, listen) = (field?, enabled?, listen?);
    keys.extend(more?);
    if enabled && keys.is_empty() && !is_loopback(listen.ip()) {
        field.problem(
            "without a key, the admin listener is for this machine alone: set BIFROST_ADMIN_KEY, or listen on 127.0.0.1",
        );
    }
    Some(Admin {
        enabled,
        listen,
        is_default: field.is_default(),
        keys,
    })
}

fn tls(section: &mut Section) -> Option<TlsFiles> {
    let certificate = pem(section, "certificate", "CERTIFICATE");
    let key = pem(section, "key", "PRIVATE KEY");
    Some(TlsFiles {
        certificate: certificate?,
        key: key?,
    })
}

/// The path of a file in PEM form that holds a `kind`.
fn pem(section: &mut Section, name: &str, kind: &str) -> Option<PathBuf> {
    let Some(field) = section.take(name) else {
        section.problem(format!("`{name}` is not set: expected the path of a file"));
        return None;
    };
    let path = secret::path(&field)?;
    let is_kind = |line: &str| line.starts_with("-----BEGIN ") && line.contains(kind);
    match secret::read(&path) {
        Ok(text) if text.lines().any(is_kind) => return Some(path),
        Ok(_) => field.problem(format!(
            "the file that it names holds no {} in PEM form",
            kind.to_ascii_lowercase()
        )),
        Err(why) => field.problem(format!("the file that it names {why}")),
    }
    None
}

/// A host's name as a client writes it: without a port.
fn is_host(text: &str) -> scalar::Parsed<()> {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text.bytes().all(is_fit) {
        Ok(())
    } else {
        Err(Some("without a port".to_owned()))
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
    let keep_alive_timeout = section.duration_above_zero("keep_alive_timeout");
    let connections_max = section.count("connections_max", 0..=10_000_000_usize);
    let allow_unauthenticated = section.toggle("allow_unauthenticated");
    let hosts = section.list("hosts", "a list of host names", is_host);
    let tls = section.section("tls", tls);
    let server_timing = section.toggle("server_timing");
    let budget_megabytes = section.count("body_budget_mb", 0_usize..=1 << 20);
    Some(Server {
        listen: listen?,
        workers: NonZeroUsize::new(workers?)?,
        header_timeout: header_timeout?,
        body_timeout: body_timeout?,
        keep_alive_timeout: keep_alive_timeout?,
        connections_max: Some(connections_max?).filter(|count| *count > 0),
        allow_unauthenticated: allow_unauthenticated?,
        hosts: hosts?,
        tls,
        server_timing: server_timing?,
        body_budget_bytes: Some(budget_megabytes? << 20).filter(|bytes| *bytes > 0),
    })
}

fn client(section: &mut Section) -> Option<Client> {
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
    let readers = section.choice(
        "readers",
        &[("owner", Readers::Owner), ("group", Readers::Group)],
    );
    let thresholds = section.section("thresholds", thresholds);
    let instance_type = |text: &str| {
        if is_instance_type(text) {
            Ok(text.to_owned())
        } else {
            Err(None)
        }
    };
    let instance = section.parse(
        "instance",
        "an instance type such as t3.medium",
        instance_type,
    );
    let modes = [CreditMode::Standard, CreditMode::Unlimited].map(|mode| (mode.label(), mode));
    let credit_mode = section.choice("credit_mode", &modes);
    let instance_metadata = section.choice(
        "instance_metadata",
        &[
            ("auto", InstanceMetadata::Auto),
            ("on", InstanceMetadata::On),
            ("off", InstanceMetadata::Off),
        ],
    );
    Some(Telemetry {
        enabled: enabled?,
        segment: segment.map(PathBuf::from),
        readers: readers?,
        thresholds: thresholds?,
        instance,
        credit_mode,
        instance_metadata: instance_metadata?,
    })
}

fn thresholds(section: &mut Section) -> Option<Thresholds> {
    let queue_wait = section.duration_above_zero("queue_wait");
    let load_rps = section.count("load", 1..=10_000_000);
    let memory_percent = section.count("memory_percent", 1..=100_u64);
    let overhead = section.duration_above_zero("overhead");
    let scheduler_delay = section.duration_above_zero("scheduler_delay");
    let credit_runway = section.duration_above_zero("credit_runway");
    let nanoseconds = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).ok();
    Some(Thresholds {
        queue_wait_ns: nanoseconds(queue_wait?)?,
        load_rps: load_rps?,
        memory_permille: memory_percent? * 10,
        overhead_ns: nanoseconds(overhead?)?,
        scheduler_delay_ns: nanoseconds(scheduler_delay?)?,
        credit_runway_ns: nanoseconds(credit_runway?)?,
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
    let access = section.toggle("access");
    Some(Log {
        level: level?,
        json: json?,
        access: access?,
    })
}
