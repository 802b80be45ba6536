//! Keys, however they are written, and the well-known variables.

use super::{World, env, toml};

/// Names, values and weights of the provider's keys.
fn keys(world: &World, provider: &str) -> String {
    let config = world.loaded().config;
    let shown = config.providers[provider]
        .keys
        .iter()
        .map(|key| format!("{}={}*{}", key.name, key.value.expose(), key.weight));
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn keys_may_be_written_in_many_ways() {
    let base = ("BIFROST_PROVIDERS__A__BASE_URL", "https://a/v1");
    let of = |variables: &[(&str, &str)]| keys(&env(&[&[base], variables].concat()), "a");
    for (text, expected) in [
        ("sk-1", "key-1=sk-1*1"),
        (" sk-1 , sk-2\n", "key-1=sk-1*1 key-2=sk-2*1"),
        (
            "[{value=\"sk-1\",weight=2.0},{value=\"sk-2\"}]",
            "key-1=sk-1*2 key-2=sk-2*1",
        ),
        ("[{\"name\":\"x\",\"value\":\"sk-1\"}]", "x=sk-1*1"),
        ("[\"sk-1\", \"sk-2\"]", "key-1=sk-1*1 key-2=sk-2*1"),
        ("{value = \"sk-1\", weight = 0.5}", "key-1=sk-1*0.5"),
        ("0123", "key-1=0123*1"), // figment's own environment would say 123
        ("true", "key-1=true*1"),
        ("12e5", "key-1=12e5*1"),
    ] {
        assert_eq!(
            of(&[("BIFROST_PROVIDERS__A__KEYS", text)]),
            expected,
            "{text}"
        );
    }
    let by_position = [
        ("BIFROST_PROVIDERS__A__KEYS__0__VALUE", "sk-0"),
        ("BIFROST_PROVIDERS__A__KEYS__0__WEIGHT", "3"),
    ];
    assert_eq!(of(&by_position), "key-1=sk-0*3");
    let by_name = [
        ("BIFROST_PROVIDERS__A__KEYS__MAIN__VALUE", "sk-0"),
        ("BIFROST_PROVIDERS__A__KEYS__SPARE", "sk-1"),
    ];
    assert_eq!(of(&by_name), "main=sk-0*1 spare=sk-1*1");
    let ten = [
        ("BIFROST_PROVIDERS__A__KEYS__10", "sk-10"),
        ("BIFROST_PROVIDERS__A__KEYS__9", "sk-9"),
    ];
    assert_eq!(of(&ten), "key-1=sk-9*1 key-2=sk-10*1");
}

#[test]
fn keys_may_be_written_in_a_file_in_many_ways() {
    for (text, expected) in [
        (
            "keys = ['sk-1', {value = 'sk-2', weight = 0}]",
            "key-1=sk-1*1 key-2=sk-2*0",
        ),
        ("keys = 'sk-1'", "key-1=sk-1*1"),
        ("keys = {value = 'sk-1'}", "key-1=sk-1*1"),
        (
            "[[providers.a.keys]]\nname = 'x'\nvalue = ' sk-1 '\n[[providers.a.keys]]\nvalue = 'sk-2'",
            "x=sk-1*1 key-2=sk-2*1",
        ),
        (
            "[providers.a.keys.main]\nvalue = 'env.K'\nweight = 2",
            "main=sk-of-k*2",
        ),
        ("keys = [{value = 'env:K'}]", "key-1=sk-of-k*1"),
        ("keys = [{value_file = 'a.key'}]", "key-1=sk-in-file*1"),
    ] {
        let world = toml(&format!("[providers.a]\nbase_url = 'https://a/v1'\n{text}"))
            .with("a.key", "sk-in-file\r\n");
        assert_eq!(
            keys(&world.set(&[("K", "sk-of-k\n")]), "a"),
            expected,
            "{text}"
        );
    }
}

#[test]
fn a_variable_may_add_the_secret_to_a_key_that_the_file_describes() {
    let text = "[providers.a]\nbase_url = 'https://a/v1'\n[[providers.a.keys]]\nname = 'main'\nweight = 2\n[[providers.a.keys]]\nvalue = 'sk-2'";
    let by_name = toml(text).set(&[("BIFROST_PROVIDERS__A__KEYS__MAIN__VALUE", "sk-1")]);
    assert_eq!(keys(&by_name, "a"), "key-1=sk-2*1 main=sk-1*2");
    let by_position = toml(text).set(&[("BIFROST_PROVIDERS__A__KEYS__0__VALUE", "sk-1")]);
    assert_eq!(keys(&by_position, "a"), "main=sk-1*2 key-2=sk-2*1");
    let instead = toml(text).set(&[("BIFROST_PROVIDERS__A__KEYS", "sk-3")]);
    assert_eq!(keys(&instead, "a"), "key-1=sk-3*1");
}

#[test]
fn the_well_known_variables_are_enough() {
    let world = env(&[
        ("OPENAI_API_KEY_2", "sk-3"),
        ("OPENAI_API_KEY_10", "sk-4"),
        ("OPENAI_API_KEY_1", "sk-2"),
        ("OPENAI_API_KEY", "sk-1"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
        ("GEMINI_API_KEY", "AIza"),
        ("OLLAMA_HOST", "0.0.0.0"),
    ]);
    let config = world.loaded().config;
    let urls: Vec<_> = config
        .providers
        .iter()
        .map(|(name, provider)| format!("{name} {}", provider.base_url))
        .collect();
    let expected = [
        "gemini https://generativelanguage.googleapis.com/v1beta/openai",
        "ollama http://127.0.0.1:11434/v1",
        "openai https://api.openai.com/v1",
    ];
    assert_eq!(urls, expected);
    assert_eq!(
        keys(&world, "openai"),
        "key-1=sk-1*1 key-2=sk-2*1 key-3=sk-3*1 key-4=sk-4*1"
    );
    assert!(config.providers["ollama"].keys.is_empty());
    assert_eq!(config.providers["openai"].concurrency, 15_000);
}

#[test]
fn a_section_and_the_well_known_variables_complete_each_other() {
    let url = |world: &World| world.loaded().config.providers["openai"].base_url.clone();
    let key = ("OPENAI_API_KEY", "sk-known");
    let moved = env(&[
        key,
        (
            "BIFROST_PROVIDERS__OPENAI__BASE_URL",
            "http://127.0.0.1:9901/v1",
        ),
    ]);
    assert_eq!(
        (url(&moved), keys(&moved, "openai")),
        (
            "http://127.0.0.1:9901/v1".to_owned(),
            "key-1=sk-known*1".to_owned()
        )
    );
    let own_keys = toml("providers.openai.keys = ['sk-own']").set(&[key]);
    assert_eq!(
        (url(&own_keys), keys(&own_keys, "openai")),
        (
            "https://api.openai.com/v1".to_owned(),
            "key-1=sk-own*1".to_owned()
        )
    );
    let only_concurrency = toml("providers.openai.concurrency = 3").set(&[key]);
    assert_eq!(keys(&only_concurrency, "openai"), "key-1=sk-known*1");
    let keyless =
        toml("[providers.openai]\nbase_url = 'https://mine/v1'\nkeyless = true").set(&[key]);
    assert_eq!(keys(&keyless, "openai"), "");
    let keyed =
        toml("[providers.openai]\nbase_url = 'https://mine/v1'\nkeyless = false").set(&[key]);
    assert_eq!(keys(&keyed, "openai"), "key-1=sk-known*1");
}
