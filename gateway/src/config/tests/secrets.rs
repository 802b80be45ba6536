//! A secret in every place that a key can be, or can be put by mistake, is in nothing that is ever printed.

use super::{World, env, json, toml};

const CANARY: &str = "sk-canary-0123456789abcdef";
const BASE: &str = "[providers.a]\nbase_url = 'https://a/v1'\n";

/// Everything that the gateway could print about these settings.
fn printed(world: &World) -> String {
    match world.load() {
        Ok(loaded) => format!("{loaded:?} {loaded:#?} {}", loaded.show()),
        Err(problems) => format!("{problems} {problems:?} {problems:#?}"),
    }
}

#[track_caller]
fn check(world: &World, what: &str) {
    let printed = printed(world);
    for part in ["canary", "0123456789"] {
        assert!(!printed.contains(part), "{what} is printed:\n{printed}");
    }
}

#[test]
fn a_secret_in_a_toml_file_is_never_printed() {
    for line in [
        "keys = ['CANARY']",
        "keys = 'CANARY'",
        "keys = [{value = 'CANARY'}]",
        "keys = [{value = 'CANARY', weight = 'heavy'}]",
        "keys = [{value = 'CANARY', weight = 'CANARY'}]",
        "keys = [{name = 'CANARY', value = 'CANARY'}]",
        "keys = [{value = 'CANARY CANARY'}]",
        "keys = [{value = \"\\\"CANARY\\\"\"}]",
        "keys = [{value = ['CANARY']}]",
        "keys = [['CANARY']]",
        "keys = [{value_file = 'CANARY'}]",
        "keys = [{value = 'env.CANARY'}]",
        "keys = [{value = 'CANARY', value_file = 'CANARY'}]",
        "keys = [{vlaue = 'CANARY'}]",
        "keys = {'CANARY' = {weight = 1}}",
        "keys = {'CANARY' = 'CANARY'}",
        "keys = ['CANARY'",
        "keys = [{value = 'CANARY}]",
        "keys = CANARY",
        "keys = ['CANARY'] CANARY",
        "'CANARY' = 1\n'CANARY' = 2",
        "'CANARY' = 1\n'CANARY'.a = 2",
        "api_key = 'CANARY'",
        "'CANARY' = 1",
        "base_url2 = 'CANARY'",
        "kind = 'CANARY'",
        "concurrency = 'CANARY'",
        "timeouts.idle = 'CANARY'",
        "timeouts = 'CANARY'",
        "models = [['CANARY']]",
        "fallbacks = ['CANARY']",
        "keys = ['a']\nheaders = {X-Key = 'CANARY'}",
        "keys = ['a']\nheaders = {X-Key = \"CANARY\\u0001\"}",
        "keys = ['a']\nheaders = {Authorization = 'Bearer CANARY'}",
        "keys = ['a']\nheaders = 'CANARY'",
        "keys = ['a']\nheaders = {X-Key = ['CANARY']}",
        "keys = ['a']\nproxy = 'http://me:CANARY@proxy:1'",
        "keys = ['a']\nproxy = 'ftp://me:CANARY@proxy:1'",
        "keys = ['a']\nproxy = ['http://me:CANARY@proxy:1']",
        "ca_file = 'CANARY'",
    ] {
        let line = line.replace("CANARY", CANARY);
        check(&toml(&format!("{BASE}{line}\n")), &line);
    }
    check(
        &toml(&format!("{BASE}keys = [{{value = 0123456789}}]")),
        "a number with a leading zero",
    );
    check(
        &toml(&format!("{BASE}keys = [{{value = 10123456789}}]")),
        "a number",
    );
    check(
        &toml(&format!(
            "providers.a.base_url = 'https://me:{CANARY}@host'"
        )),
        "a password",
    );
    check(
        &toml(&format!(
            "providers.a.base_url = 'https://host?key={CANARY}'"
        )),
        "a query",
    );
    check(
        &toml(&format!("providers.{CANARY}.base_url = 'https://host'")),
        "a provider's name",
    );
    check(
        &toml(&format!("client_keys = ['{CANARY}']")),
        "a client key",
    );
    for line in [
        "client_keys = [{name = 'CANARY', value = 'CANARY'}]",
        "client_keys = [{value = 'CANARY', models = ['CANARY']}]",
        "client_keys = [{value = 'CANARY', weight = 1}]",
        "client_keys = {'CANARY' = {}}",
        "client_keys = ['CANARY', 'CANARY']",
        "client_keys = [{value = ['CANARY']}]",
        "admin.keys = ['CANARY', {value = 'CANARY CANARY'}]",
        "admin.keys = [{value = 'CANARY', models = ['CANARY']}]",
        "admin_key = 'CANARY'",
        "admin_key = ['CANARY']\nadmin.key = 'CANARY'",
        "server.tls.certificate = 'CANARY'",
    ] {
        let line = line.replace("CANARY", CANARY);
        check(&toml(&line), &line);
    }
    check(
        &toml(&format!("server.listen = '{CANARY}'")),
        "a wrong place",
    );
}

#[test]
fn a_secret_in_a_json_file_is_never_printed() {
    for text in [
        "\"CANARY\"",
        "[\"CANARY\"]",
        "{\"providers\": {\"a\": {\"base_url\": \"https://a\", \"keys\": [\"CANARY\"]}}}",
        "{\"providers\": {\"a\": {\"base_url\": \"https://a\", \"keys\": [\"CANARY\"}}}",
        "{\"providers\": {\"a\": {\"base_url\": \"https://a\", \"keys\": \"CANARY}}}",
        "{\"providers\": {\"a\": {\"base_url\": \"https://a\", \"keys\": [10123456789]}}}",
        "{\"providers\": {\"a\": {\"base_url\": \"https://a\", \"keys\": [CANARY]}}}",
        "{\"CANARY\": 1, \"CANARY\": 2}",
    ] {
        let text = text.replace("CANARY", CANARY);
        check(&json(&text), &text);
    }
}

#[test]
fn a_secret_in_the_environment_is_never_printed() {
    for (name, value) in [
        ("OPENAI_API_KEY", "CANARY"),
        ("OPENAI_API_KEY_1", "CANARY CANARY"),
        ("OPENAI_API_KEY_1", "'CANARY'"),
        ("OLLAMA_HOST", "http://me:CANARY@host"),
        ("PORT", "CANARY"),
        ("BIFROST_PROVIDERS__OPENAI__KEYS", "CANARY"),
        ("BIFROST_PROVIDERS__OPENAI__KEYS", "CANARY,CANARY 2"),
        (
            "BIFROST_PROVIDERS__OPENAI__KEYS",
            "[{value=\"CANARY\",weight=2.0}]",
        ),
        (
            "BIFROST_PROVIDERS__OPENAI__KEYS",
            "[{value=\"CANARY\",weight=\"CANARY\"}]",
        ),
        (
            "BIFROST_PROVIDERS__OPENAI__KEYS",
            "[{value=CANARY,weight=2.0}]",
        ),
        ("BIFROST_PROVIDERS__OPENAI__KEYS", "[{value=10123456789}]"),
        ("BIFROST_PROVIDERS__OPENAI__KEYS", "{\"CANARY\": {}}"),
        ("BIFROST_PROVIDERS__OPENAI__KEYS__MAIN__VALUE", "CANARY"),
        ("BIFROST_PROVIDERS__OPENAI__KEYS__MAIN", "CANARY"),
        ("BIFROST_PROVIDERS__OPENAI__KEYS__MAIN__VAULE", "CANARY"),
        ("BIFROST_PROVIDERS__OPENAI__KEYS__MAIN__MODELS", "CANARY"),
        ("BIFROST_PROVIDERS__OPENAI__KEY", "CANARY"),
        ("BIFROST_PROVIDERS__OPENAI__BASE_URL", "CANARY"),
        ("BIFROST_PROVIDERS__OPENAI", "CANARY"),
        ("BIFROST_CLIENT_KEYS", "CANARY"),
        ("BIFROST_CLIENT_KEYS", "CANARY,CANARY 2"),
        ("BIFROST_CLIENT_KEYS__MAIN", "CANARY"),
        ("BIFROST_CLIENT__KEYS", "CANARY"),
        ("BIFROST_ADMIN_KEY", "CANARY"),
        ("BIFROST_ADMIN__KEYS", "CANARY,CANARY"),
        ("BIFROST_OPENAI_API_KEY", "CANARY"),
    ] {
        let shows_models = name.ends_with("MODELS"); // what is a model's name there is shown as one
        if !shows_models {
            let value = value.replace("CANARY", CANARY);
            check(&env(&[(name, &value)]), &format!("{name}={value}"));
        }
    }
}

#[test]
fn a_secret_behind_a_file_or_a_variable_is_never_printed() {
    for content in [CANARY, "sk-canary\nsk-canary", "\"sk-canary\""] {
        let file = toml(&format!("{BASE}keys = [{{value_file = 'a.key'}}]")).with("a.key", content);
        check(&file, "a key in a file");
        let variable = toml(&format!("{BASE}keys = [{{value = 'env.K'}}]")).set(&[("K", content)]);
        check(&variable, "a key in a variable");
        let header =
            toml(&format!("{BASE}keys = ['a']\nheaders.x = 'env.K'")).set(&[("K", content)]);
        check(&header, "a header in a variable");
    }
}

#[test]
fn a_secret_is_there_all_the_same() {
    let world = env(&[("OPENAI_API_KEY", CANARY)]);
    assert_eq!(
        world.loaded().config.providers["openai"].keys[0]
            .value
            .expose(),
        CANARY
    );
}
