//! The settings as their users meet them: files, variables and flags go in; settings or messages come out.

mod access;
mod keys;
mod problems;
mod provider_problems;
mod secrets;

use std::path::Path;
use std::time::Duration;

use bifrost_shared::layout::CreditMode;
use bifrost_shared::segment::Readers;
use tempfile::TempDir;

use super::{Environment, Flag, InstanceMetadata, Loaded, Problems, Sources, load};

/// A user's world: a directory, and what was typed.
struct World {
    directory: TempDir,
    sources: Sources,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            directory,
            sources: Sources::default(),
        }
    }

    /// A file in the directory.
    fn with(self, name: &str, text: &str) -> Self {
        std::fs::write(self.directory.path().join(name), text).unwrap();
        self
    }

    /// The settings file.
    fn config(self, name: &str, text: &str) -> Self {
        let mut world = self.with(name, text);
        world.sources.file = Some(world.directory.path().join(name));
        world
    }

    fn set(mut self, variables: &[(&str, &str)]) -> Self {
        let variables = variables
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()));
        self.sources.environment.variables.extend(variables);
        self
    }

    fn flag(mut self, name: &'static str, path: &'static str, value: &str) -> Self {
        self.sources.flags.push(Flag {
            name,
            path,
            value: value.to_owned(),
        });
        self
    }

    fn load(&self) -> Result<Loaded, Problems> {
        load(&self.sources)
    }

    fn loaded(&self) -> Loaded {
        self.load().unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// What is wrong, with the directory's name left out.
    fn problems(&self) -> String {
        let problems = self.load().expect_err("a problem").to_string();
        problems.replace(&format!("{}/", self.directory.path().display()), "")
    }
}

fn toml(text: &str) -> World {
    World::new().config("gateway.toml", text)
}

fn json(text: &str) -> World {
    World::new().config("gateway.json", text)
}

fn env(variables: &[(&str, &str)]) -> World {
    World::new().set(variables)
}

#[test]
fn nothing_at_all_is_the_t3_medium_without_a_provider() {
    let config = World::new().loaded().config;
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.header_timeout, Duration::from_secs(10));
    assert_eq!(config.client.initial_pool_size, 10_000);
    assert_eq!(config.client.buffer_size, 15_000);
    assert_eq!(config.client.request_body_bytes_max, 32 << 20);
    assert_eq!(
        config.telemetry.thresholds,
        bifrost_shared::thresholds::Thresholds::T3_MEDIUM
    );
    assert_eq!(config.drain_timeout, Duration::from_mins(2));
    assert_eq!(config.log.level, tracing::Level::INFO);
    assert!(!config.log.json && config.telemetry.enabled && config.telemetry.segment.is_none());
    assert!(config.providers.is_empty());
}

#[test]
fn the_seed_file_loads_as_it_stands() {
    let seed = r#"{"client":{"initial_pool_size":10000,"buffer_size":15000}}"#;
    let client = json(seed).loaded().config.client;
    assert_eq!(
        (client.initial_pool_size, client.buffer_size),
        (10_000, 15_000)
    );
}

#[test]
fn each_layer_covers_the_one_beneath() {
    let listen = |world: &World| world.loaded().config.server.listen.to_string();
    let world = World::new();
    assert_eq!(listen(&world), "127.0.0.1:8080");
    let world = world.set(&[("PORT", "7000")]);
    assert_eq!(listen(&world), "127.0.0.1:7000");
    let world = world.config("gateway.toml", "server.listen = '127.0.0.1:7001'");
    assert_eq!(listen(&world), "127.0.0.1:7001");
    let world = world.set(&[("bifrost_Server__Listen", "127.0.0.1:7002")]);
    assert_eq!(listen(&world), "127.0.0.1:7002");
    let world = world.flag("--listen", "server.listen", "127.0.0.1:7003");
    assert_eq!(listen(&world), "127.0.0.1:7003");
}

#[test]
fn a_layer_leaves_alone_what_it_does_not_name() {
    let world = toml("[server]\nbody_timeout = '7s'\n[providers.a]\nbase_url = 'http://127.0.0.1:1'\nretries.max = 7")
        .set(&[("BIFROST_SERVER__HEADER_TIMEOUT", "8s"), ("BIFROST_PROVIDERS__A__CONCURRENCY", "9")]);
    let config = world.loaded().config;
    assert_eq!(config.server.body_timeout, Duration::from_secs(7));
    assert_eq!(config.server.header_timeout, Duration::from_secs(8));
    let provider = &config.providers["a"];
    assert_eq!((provider.retries.max, provider.concurrency), (7, 9));
    assert_eq!(provider.retries.backoff_initial, Duration::from_millis(500));
}

#[test]
fn a_profile_is_a_default_from_wherever_it_is_named() {
    let sizes = |world: World| {
        let client = world.loaded().config.client;
        (client.initial_pool_size, client.buffer_size)
    };
    assert_eq!(sizes(toml("profile = 'low-memory'")), (7_500, 12_000));
    assert_eq!(
        sizes(env(&[("BIFROST_PROFILE", "performance")])),
        (12_500, 17_500)
    );
    assert_eq!(
        sizes(World::new().flag("--profile", "profile", "t3.xlarge")),
        (15_000, 20_000)
    );
    assert_eq!(
        sizes(toml("profile = 't3.xlarge'\nclient.buffer_size = 5")),
        (15_000, 5)
    );
    assert_eq!(
        sizes(toml("profile = 't3.xlarge'").set(&[("BIFROST_PROFILE", "t3.medium")])),
        (10_000, 15_000)
    );
}

#[test]
fn a_variable_that_is_empty_is_not_set() {
    let world = env(&[
        ("BIFROST_SERVER__LISTEN", ""),
        ("PORT", ""),
        ("OPENAI_API_KEY", ""),
        ("OLLAMA_HOST", ""),
    ]);
    let config = world.loaded().config;
    assert_eq!(config.server.listen.port(), 8080);
    assert!(config.providers.is_empty());
}

#[test]
fn a_local_provider_needs_no_key() {
    for url in [
        "http://localhost:1/v1",
        "http://127.0.0.7:1",
        "http://[::1]:1",
    ] {
        let world = World::new().flag("--demo", "providers.demo.base_url", url);
        assert!(
            world.loaded().config.providers["demo"].keys.is_empty(),
            "{url}"
        );
    }
}

#[test]
fn a_provider_is_all_that_its_section_says() {
    let world = toml(
        "[providers.my-own]
base_url = 'https://example.com/v1/'
keyless = true
models = ['a', 'b']
fallbacks = ['openai/gpt', 'my-own/b']
organization = 'org'
project = 5
ca_file = 'ca.pem'
proxy = 'http://me:pass@proxy:3128'
timeouts.first_byte = '1m 30s'
rest.max = '1h'
[providers.my-own.headers]
X-Title = 'title'
",
    )
    .with("ca.pem", "-----BEGIN CERTIFICATE-----")
    .set(&[
        ("OPENAI_API_KEY", "sk-1"),
        ("BIFROST_PROVIDERS__OPENAI__MODELS", "gpt, gpt-mini"),
        ("BIFROST_PROVIDERS__OPENAI__HEADERS", "{\"X-One\": \"1\"}"),
        ("BIFROST_PROVIDERS__MY-OWN__HEADERS__X_TITLE", "other"),
    ]);
    let providers = world.loaded().config.providers;
    let own = &providers["my-own"];
    assert_eq!(own.base_url, "https://example.com/v1");
    assert_eq!(own.models, ["a", "b"]);
    assert_eq!(own.fallbacks, ["openai/gpt", "my-own/b"]);
    let headers: Vec<_> = own
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    assert_eq!(
        headers,
        [
            ("openai-organization", "org"),
            ("openai-project", "5"),
            ("x-title", "other")
        ]
    );
    assert!(own.headers.iter().all(|(_, value)| value.is_sensitive()));
    assert_eq!(
        own.ca_file.as_deref(),
        Some(&*world.directory.path().join("ca.pem"))
    );
    assert_eq!(own.proxy.as_deref(), Some("http://me:pass@proxy:3128"));
    assert_eq!(own.timeouts.first_byte, Duration::from_secs(90));
    assert_eq!(own.rest.max, Duration::from_hours(1));
    assert_eq!(providers["openai"].models, ["gpt", "gpt-mini"]);
    assert_eq!(providers["openai"].headers[0].1, "1");
}

#[test]
fn a_segment_is_its_owners_unless_the_group_is_to_read_it() {
    let readers = |text: &str| toml(text).loaded().config.telemetry.readers;
    assert_eq!(readers(""), Readers::Owner);
    assert_eq!(readers("[telemetry]\nreaders = 'group'"), Readers::Group);
}

#[test]
fn a_file_may_write_numbers_and_truths_as_texts_and_the_other_way_round() {
    let config = toml("[server]\nworkers = '3'\nserver_timing = 'yes'\n[telemetry]\nsegment = 5\ninstance = 't3.medium'\ncredit_mode = 'Unlimited'").loaded().config;
    assert_eq!(config.server.workers.get(), 3);
    assert!(config.server.server_timing);
    assert_eq!(config.telemetry.segment.as_deref(), Some(Path::new("5")));
    assert_eq!(config.telemetry.instance.as_deref(), Some("t3.medium"));
    assert_eq!(config.telemetry.credit_mode, Some(CreditMode::Unlimited));
    assert_eq!(config.telemetry.instance_metadata, InstanceMetadata::Auto);
}

#[test]
fn show_tells_where_each_value_comes_from() {
    let world = json("{\n \"$schema\": \"x\",\n \"profile\": \"t3.xlarge\",\n \"log\": {\n  \"level\": \"debug\"\n }\n}")
        .set(&[("OPENAI_API_KEY_7", "sk-canary"), ("BIFROST_PROVIDERS__GROQ__KEYS", "env.GROQ"), ("GROQ", "sk-canary")])
        .flag("--listen", "server.listen", "127.0.0.1:0");
    let shown = world
        .loaded()
        .show()
        .replace(&format!("{}/", world.directory.path().display()), "");
    for expected in [
        "client.buffer_size = 20000 # profile t3.xlarge",
        "drain_timeout = \"120s\" # default",
        "log.level = \"debug\" # gateway.json:5",
        "providers.groq.base_url = \"https://api.groq.com/openai/v1\" # known provider groq",
        "providers.groq.keys.0.value = \"env.GROQ\" # BIFROST_PROVIDERS__GROQ__KEYS",
        "providers.openai.keys.key-1.name = \"key-1\" # default",
        "providers.openai.keys.key-1.value = \"[secret]\" # OPENAI_API_KEY_7",
        "server.listen = \"127.0.0.1:0\" # --listen",
    ] {
        let squeezed = shown
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert!(
            squeezed.into_iter().any(|line| line == expected),
            "{expected}\nis not in\n{shown}"
        );
    }
}

#[test]
fn variables_that_are_no_text_are_told_apart() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let garbled = || OsString::from_vec(vec![0xff]);
    let environment = Environment::new([
        ("BIFROST_LOG__LEVEL".into(), garbled()),
        ("OPENAI_API_KEY_1".into(), garbled()),
        ("LS_COLORS".into(), garbled()),
        (garbled(), "x".into()),
        ("PORT".into(), "1".into()),
    ]);
    assert_eq!(
        environment.garbled,
        ["BIFROST_LOG__LEVEL", "OPENAI_API_KEY_1"]
    );
    let problems = load(&Sources {
        environment,
        ..Sources::default()
    })
    .expect_err("a problem")
    .to_string();
    assert_eq!(
        problems,
        "BIFROST_LOG__LEVEL: its value is not UTF-8\nOPENAI_API_KEY_1: its value is not UTF-8"
    );
}
