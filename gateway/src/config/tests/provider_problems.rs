//! What is said of each kind of mistake in a provider's section, word for word.

use super::problems::check;
use super::{env, toml};

/// A provider's section of one line, and what is wrong with it, in a file whose third line it is.
#[track_caller]
fn check_provider(line: &str, expected: &str) {
    let world = toml(&format!(
        "[providers.a]\nbase_url = 'http://127.0.0.1:1'\n{line}"
    ));
    check(&world, &format!("gateway.toml:3: providers.a.{expected}"));
}

const SETTINGS: &[(&str, &str)] = &[
    (
        "kind = 'cohere'",
        "kind: expected one of openai, not `cohere`",
    ),
    (
        "concurrency = 0",
        "concurrency: expected a whole number from 1 to 1000000, not `0`",
    ),
    (
        "retries.backoff_initial = '10s'",
        "retries.backoff_initial: backoff_initial (10s) is longer than backoff_max (5s)",
    ),
    (
        "retries.backoff_max = '1ms'",
        "retries.backoff_max: backoff_initial (500ms) is longer than backoff_max (1ms)",
    ),
    (
        "timeouts.idle = 120",
        "timeouts.idle: expected a duration such as 250ms, 30s or 2m, not `120`: say in which unit, such as 120s or 120ms",
    ),
    (
        "rest.probe = '0s'",
        "rest.probe: expected a duration such as 250ms, 30s or 2m, not `0s`: it must be above zero",
    ),
    (
        "models = 1",
        "models: expected a list of model names, not a number without quotes",
    ),
    (
        "models = ['a', '']",
        "models.1: expected a list of model names, not an empty text",
    ),
    (
        "fallbacks = ['gpt']",
        "fallbacks.0: expected a list of `provider/model`, not `gpt`",
    ),
    (
        "fallbacks = ['b/gpt']",
        "fallbacks.0: expected a list of `provider/model`, not `b/gpt`: no such provider is configured; did you mean a?",
    ),
    (
        "headers.Authorization = 'x'",
        "headers.authorization: this header is the gateway's own to set; keys belong into `keys`",
    ),
    (
        "headers.'a b' = 'x'",
        "headers.a b: is not the name of a header",
    ),
    (
        "headers.a = \"x\\ny\"",
        "headers.a: holds a character that no header can carry",
    ),
    (
        "ca_file = 'none.pem'",
        "ca_file: the file that it names cannot be read: entity not found",
    ),
    (
        "ca_file = 'gateway.toml'",
        "ca_file: the file that it names holds no certificate in PEM form",
    ),
    (
        "proxy = 'socks5://h'",
        "proxy: expected an address such as http://proxy:3128: begin it with http:// or https://",
    ),
    (
        "organization = 1.10",
        "organization: expected a text: put it in quotes",
    ),
    (
        "consurrency = 1",
        "consurrency: unknown setting; did you mean `providers.a.concurrency`?",
    ),
];

#[test]
fn a_providers_settings_are_checked() {
    for (line, expected) in SETTINGS {
        check_provider(line, expected);
    }
    check(
        &toml("[providers.A]\nkeyless = true"),
        "gateway.toml:1: providers.A: a provider's name has at most 32 characters, of a-z, 0-9, `-` and `_`",
    );
    check(
        &toml("[providers.opena]\nkeyless = true"),
        "providers.opena: base_url is not set: expected an address such as https://api.example.com/v1; did you mean the provider openai?",
    );
    check(
        &toml("[providers.a]\nbase_url = 'https://me:canary@host/v1'"),
        "gateway.toml:2: providers.a.base_url: expected an address such as https://api.example.com/v1, not a text of 25 characters: leave user and password out: a key belongs into `keys`",
    );
    check(
        &toml("[providers.openai]\nkeyless = true\nkeys = ['sk-1']"),
        "providers.openai: has keys, and keyless = true: leave one of them out",
    );
    check(
        &toml(
            "[providers.openai]\nproject = 'a'\nkeys = ['k']\n[providers.openai.headers]\nOpenAI-Project = 'b'",
        ),
        "providers.openai: the header openai-project is set twice",
    );
    check(
        &env(&[("OLLAMA_HOST", "ftp://x")]),
        "OLLAMA_HOST: expected an address such as https://api.example.com/v1, not `ftp://x/v1`: begin it with http:// or https://",
    );
}

#[test]
fn a_provider_that_lacks_a_key_is_told_what_to_set() {
    check(
        &toml("providers.openai.concurrency = 1"),
        "providers.openai: no key: set OPENAI_API_KEY or BIFROST_PROVIDERS__OPENAI__KEYS, or keyless = true if it takes none",
    );
    check(
        &toml("providers.a.base_url = 'https://10.0.0.1/v1'"),
        "providers.a: no key: set BIFROST_PROVIDERS__A__KEYS, or keyless = true if it takes none",
    );
}

const KEYS: &[(&str, &str)] = &[
    (
        "keys = [{value = 123}]",
        "keys.0.value: put it in quotes: digits without them are a number, which loses leading zeros",
    ),
    (
        "keys = [123]",
        "keys.0.value: put it in quotes: digits without them are a number, which loses leading zeros",
    ),
    (
        "keys = 123",
        "keys.value: put it in quotes: digits without them are a number, which loses leading zeros",
    ),
    (
        "keys = [{value = true}]",
        "keys.0.value: put it in quotes: digits without them are a number, which loses leading zeros",
    ),
    (
        "keys = [['a']]",
        "keys.0: expected a key, as a text or as a table with `value`, not a list",
    ),
    (
        "keys = [{}]",
        "keys.0: no key in it: set `value` (the key, or env.NAME for a variable) or `value_file`",
    ),
    ("keys = [{value = ' '}]", "keys.0.value: is empty"),
    (
        "keys = [{value = 'a b'}]",
        "keys.0.value: not a key: it holds a space, a line break or another character that is not visible ASCII",
    ),
    (
        "keys = [{value = 'ä'}]",
        "keys.0.value: not a key: it holds a space, a line break or another character that is not visible ASCII",
    ),
    (
        "keys = [{value = '\"a\"'}]",
        "keys.0.value: leave out the quotes around the key: here they are part of it",
    ),
    (
        "keys = [{value = 'env.NONE'}]",
        "keys.0.value: the variable NONE, which it names, is not set",
    ),
    (
        "keys = [{value = 'env.'}]",
        "keys.0.value: expected the name of a variable behind `env.`",
    ),
    (
        "keys = [{value_file = 'none'}]",
        "keys.0.value_file: the file that it names cannot be read: entity not found",
    ),
    (
        "keys = [{value = 'a', value_file = 'b'}]",
        "keys.0.value: set either `value` or `value_file`",
    ),
    (
        "keys = [{value = 'a', weight = -1}]",
        "keys.0.weight: expected a number from 0 to 1000000",
    ),
    (
        "keys = [{value = 'a', weight = nan}]",
        "keys.0.weight: expected a number from 0 to 1000000",
    ),
    (
        "keys = [{value = 'a', weight = 0}]",
        "keys: every weight is 0, so that no key could ever be chosen",
    ),
    (
        "keys = [{value = 'a', name = 'x'}, {value = 'b', name = 'x'}]",
        "keys: two keys are called x: the second is at gateway.toml:3: providers.a.keys.1",
    ),
    (
        "keys = [{value = 'a', wieght = 1}]",
        "keys.0.wieght: unknown setting; did you mean `providers.a.keys.0.weight`?",
    ),
];

#[test]
fn a_key_that_cannot_be_one_is_told() {
    for (line, expected) in KEYS {
        let world = toml(&format!(
            "[providers.a]\nbase_url = 'http://127.0.0.1:1'\n{line}"
        ));
        let directory = format!("{}/", world.directory.path().display());
        let problems = world.problems().replace(&directory, "");
        assert_eq!(
            problems,
            format!("gateway.toml:3: providers.a.{expected}"),
            "{line}"
        );
    }
    check(&env(&[("OPENAI_API_KEY", " ")]), "OPENAI_API_KEY: is empty");
    check(
        &env(&[(
            "BIFROST_PROVIDERS__OPENAI__KEYS",
            "[{value=\"a\",weight=2.0}",
        )]),
        "BIFROST_PROVIDERS__OPENAI__KEYS: expected a list such as [{value = \"…\", weight = 2.0}], as TOML or JSON",
    );
    check(
        &env(&[(
            "BIFROST_PROVIDERS__OPENAI__KEYS",
            "[{value=\"a\",weight=\"x\"}]",
        )]),
        "BIFROST_PROVIDERS__OPENAI__KEYS: providers.openai.keys.0.weight: expected a number from 0 to 1000000",
    );
}
