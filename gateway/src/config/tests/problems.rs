//! What is said of each kind of mistake, word for word.

use super::{World, env, json, toml};

#[track_caller]
pub(super) fn check(world: &World, expected: &str) {
    assert_eq!(world.problems(), expected);
}

#[test]
fn a_value_of_the_wrong_kind_is_named_with_what_was_expected() {
    for (variable, text, expected) in [
        (
            "SERVER__WORKERS",
            "many",
            "expected a whole number from 1 to 1024, not `many`",
        ),
        (
            "SERVER__WORKERS",
            "0",
            "expected a whole number from 1 to 1024, not `0`",
        ),
        (
            "SERVER__WORKERS",
            "-1",
            "expected a whole number from 1 to 1024, not `-1`",
        ),
        (
            "SERVER__WORKERS",
            "1.5",
            "expected a whole number from 1 to 1024, not `1.5`",
        ),
        (
            "DRAIN_TIMEOUT",
            "30",
            "expected a duration such as 250ms, 30s or 2m, not `30`: say in which unit, such as 30s or 30ms",
        ),
        (
            "SERVER__BODY_TIMEOUT",
            "0s",
            "expected a duration such as 250ms, 30s or 2m, not `0s`: it must be above zero",
        ),
        (
            "TELEMETRY__ENABLED",
            "maybe",
            "expected true or false, not `maybe`",
        ),
        (
            "LOG__LEVEL",
            "inof",
            "expected one of error, warn, info, debug, trace, not `inof`: did you mean info?",
        ),
        (
            "PROFILE",
            "t3.medum",
            "expected one of t3.medium, low-memory, performance, t3.xlarge, not `t3.medum`: did you mean t3.medium?",
        ),
        (
            "SERVER__LISTEN",
            "8080",
            "expected an address and port such as 127.0.0.1:8080, not `8080`: write 127.0.0.1:8080 for this machine alone, 0.0.0.0:8080 for all interfaces",
        ),
        (
            "CLIENT__MAX_REQUEST_BODY_SIZE_MB",
            "1025",
            "expected a whole number from 1 to 1024, not `1025`",
        ),
        (
            "TELEMETRY__THRESHOLDS__MEMORY_PERCENT",
            "101",
            "expected a whole number from 1 to 100, not `101`",
        ),
    ] {
        let variable = format!("BIFROST_{variable}");
        check(
            &env(&[(&variable, text)]),
            &format!("{variable}: {expected}"),
        );
    }
}

#[test]
fn all_problems_are_told_at_once_each_where_it_was_typed() {
    let world = toml("[server]\nworkers = 'many'\n\n[client]\nbuffer_sise = 1\n")
        .set(&[
            ("BIFROST_LOG__FORMAT", "xml"),
            ("BIFROST_PROT", "1"),
            ("PORT", "http"),
        ])
        .flag("--listen", "server.listen", "nowhere");
    check(
        &world,
        "--listen: expected an address and port such as 127.0.0.1:8080, not `nowhere`
gateway.toml:2: server.workers: expected a whole number from 1 to 1024, not `many`
BIFROST_LOG__FORMAT: expected one of text, json, not `xml`
gateway.toml:5: client.buffer_sise: unknown setting; did you mean `client.buffer_size`?
BIFROST_PROT: unknown setting",
    );
}

#[test]
fn an_unknown_variable_is_an_error_that_says_what_may_have_been_meant() {
    for (name, meant) in [
        ("BIFROST_SERVER__LISTN", Some("BIFROST_SERVER__LISTEN")),
        ("BIFROST_SERVER_LISTEN", Some("BIFROST_SERVER__LISTEN")),
        ("BIFROST_LISTEN", Some("BIFROST_SERVER__LISTEN")),
        ("BIFROST_PORT", Some("BIFROST_SERVER__LISTEN")),
        ("BIFROST_LOG_LEVEL", Some("BIFROST_LOG__LEVEL")),
        ("BIFROST_DRAIN__TIMEOUT", Some("BIFROST_DRAIN_TIMEOUT")),
        ("BIFROST_BUFFER_SIZE", Some("BIFROST_CLIENT__BUFFER_SIZE")),
        (
            "BIFROST_PROVIDER__OPENAI__KEYS",
            Some("BIFROST_PROVIDERS__OPENAI__KEYS"),
        ),
        (
            "BIFROST_PROVIDERS__OPENAI__API_KEY",
            Some("BIFROST_PROVIDERS__OPENAI__KEYS"),
        ),
        ("BIFROST_PROVIDERS__OPENAI__RETRIES__MAXIMUM", None),
        ("BIFROST_ZEBRA", None),
    ] {
        let meant = meant
            .map(|meant| format!("; did you mean {meant}?"))
            .unwrap_or_default();
        let world = env(&[("OPENAI_API_KEY", "sk-1"), (name, "1")]);
        check(&world, &format!("{name}: unknown setting{meant}"));
    }
}

#[test]
fn a_value_where_a_section_belongs_is_told() {
    check(
        &env(&[("BIFROST_LOG", "debug")]),
        "BIFROST_LOG: is a section, not a value",
    );
    check(
        &toml("log = 'debug'"),
        "gateway.toml:1: log: is a section, not a value",
    );
    check(
        &env(&[("BIFROST_LOG", "debug"), ("BIFROST_LOG__LEVEL", "debug")]),
        "BIFROST_LOG__LEVEL: cannot be set together with BIFROST_LOG\nBIFROST_LOG: is a section, not a value",
    );
    check(
        &env(&[
            ("OPENAI_API_KEY", "sk-1"),
            ("BIFROST_PROVIDERS__OPENAI_BASE_URL", "http://127.0.0.1:1"),
        ]),
        "BIFROST_PROVIDERS__OPENAI_BASE_URL: is a section, not a value; did you mean BIFROST_PROVIDERS__OPENAI__BASE_URL?",
    );
    check(
        &toml("[server]\nlisten = {a = 1}"),
        "gateway.toml:2: server.listen: expected an address and port such as 127.0.0.1:8080, not a table",
    );
    check(
        &toml("drain_timeout = 2026-01-01"),
        "gateway.toml:1: drain_timeout: expected a duration such as 250ms, 30s or 2m, not a date",
    );
    check(
        &env(&[("BIFROST_SERVER____LISTEN", "1")]),
        "BIFROST_SERVER____LISTEN: expected names with `__` between them, such as BIFROST_SERVER__LISTEN",
    );
    check(
        &env(&[
            ("BIFROST_LOG__LEVEL", "info"),
            ("bifrost_log__level", "info"),
        ]),
        "bifrost_log__level: cannot be set together with BIFROST_LOG__LEVEL",
    );
}

#[test]
fn a_file_that_cannot_be_used_is_one_clear_problem() {
    let unused = |name: &str| {
        let mut world = World::new();
        world.sources.file = Some(world.directory.path().join(name));
        world
    };
    check(&unused("none.toml"), "none.toml: no such file");
    check(
        &unused("gateway.yaml"),
        "gateway.yaml: expected a file whose name ends in .toml or .json",
    );
    check(
        &unused("gateway"),
        "gateway: expected a file whose name ends in .toml or .json",
    );
    let directory = unused("dir.toml");
    std::fs::create_dir(directory.directory.path().join("dir.toml")).unwrap();
    check(&directory, "dir.toml: is a directory: expected a file");
    let bytes = unused("bytes.json");
    std::fs::write(bytes.directory.path().join("bytes.json"), [0xff]).unwrap();
    check(&bytes, "bytes.json: is not UTF-8 text");
}

#[test]
fn a_file_that_does_not_parse_is_told_by_line_and_column() {
    check(
        &toml("[server]\nlisten = 'x"),
        "gateway.toml:2:12: not valid TOML: invalid literal string",
    );
    check(
        &toml("a = 1\na = 2"),
        "gateway.toml:2:1: not valid TOML: a name is set twice",
    );
    check(
        &toml("a = 1\na.b = 2"),
        "gateway.toml:2:1: not valid TOML: a dotted name leads into what is no table",
    );
    check(
        &json("{\n\"a\": }"),
        "gateway.json:2:6: not valid JSON: expected value",
    );
    check(
        &json("{\"a\": 1"),
        "gateway.json:1:7: not valid JSON: EOF while parsing an object",
    );
    check(&json("[1]"), "gateway.json:1:0: expected a JSON object");
    check(
        &json("{\"log\": {\"level\": \"info\",\n\"level\": \"warn\"}}"),
        "gateway.json:2: log.level: set twice",
    );
}

#[test]
fn nulls_set_nothing() {
    let config = json("{\"server\": {\"listen\": null}, \"providers\": null}")
        .loaded()
        .config;
    assert_eq!(config.server.listen.port(), 8080);
}
