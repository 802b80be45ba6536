//! Who may reach the gateway: client keys, addresses beyond this machine, the admin listener, TLS.

use super::problems::check;
use super::{World, env, json, toml};

/// Names, values and models of the client keys.
fn client_keys(world: &World) -> String {
    let keys = world.loaded().config.client_keys;
    let shown = keys
        .iter()
        .map(|key| format!("{}={}{:?}", key.name, key.value.expose(), key.models));
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn client_keys_may_be_written_as_other_keys_are() {
    for (text, expected) in [
        ("ck-1", "key-1=ck-1[]"),
        (" ck-1 , ck-2\n", "key-1=ck-1[] key-2=ck-2[]"),
        ("0123", "key-1=0123[]"),
        (
            "[{name=\"team-a\",value=\"ck-1\",models=[\"openai/*\"]},\"ck-2\"]",
            "team-a=ck-1[\"openai/*\"] key-2=ck-2[]",
        ),
    ] {
        let world = env(&[("BIFROST_CLIENT_KEYS", text), ("OPENAI_API_KEY", "sk-1")]);
        assert_eq!(client_keys(&world), expected, "{text}");
    }
    let file = toml("[[client_keys]]\nname = 'a'\nvalue_file = 'a.key'\n[[client_keys]]\nvalue = 'env.K'\nmodels = '*/gpt, *'")
        .with("a.key", "ck-1\n")
        .set(&[("K", "ck-2")]);
    assert_eq!(client_keys(&file), "a=ck-1[] key-2=ck-2[\"*/gpt\", \"*\"]");
    let named = json("{\"client_keys\": {\"team-a\": \"ck-1\"}}");
    assert_eq!(client_keys(&named), "team-a=ck-1[]");
}

#[test]
fn a_client_key_that_is_none_is_told() {
    let openai = ("OPENAI_API_KEY", "sk-1");
    for (text, expected) in [
        (
            "client_keys = ['a', 'a']",
            "gateway.toml:1: client_keys: the key of key-2 is there twice",
        ),
        (
            "client_keys = ['']",
            "gateway.toml:1: client_keys.0.value: is empty",
        ),
        (
            "client_keys = [{name = 'a'}]",
            "gateway.toml:1: client_keys.0: no key in it: set `value` (the key, or env.NAME for a variable) or `value_file`",
        ),
        (
            "client_keys = [{value = 'a', models = ['gpt']}]",
            "gateway.toml:1: client_keys.0.models.0: expected a list of `provider/model`",
        ),
        (
            "client_keys = [{value = 'a', models = ['opnai/gpt']}]",
            "gateway.toml:1: client_keys.0.models.0: expected a list of `provider/model`: no such provider is configured; did you mean openai?",
        ),
        (
            "client.keys = ['a']",
            "gateway.toml:1: client.keys: unknown setting; did you mean `client_keys`?",
        ),
    ] {
        check(&toml(text).set(&[openai]), expected);
    }
}

#[test]
fn beyond_this_machine_it_takes_client_keys_or_a_clear_word() {
    let message = "without client keys, whoever reaches this address spends your keys: set BIFROST_CLIENT_KEYS, or \
                   server.allow_unauthenticated = true if something else keeps strangers out";
    let everywhere = ("BIFROST_SERVER__LISTEN", "0.0.0.0:8080");
    check(
        &env(&[everywhere]),
        &format!("BIFROST_SERVER__LISTEN: {message}"),
    );
    check(
        &World::new().flag("--listen", "server.listen", "10.0.0.1:0"),
        &format!("--listen: {message}"),
    );
    check(
        &toml("\nserver.listen = '[::]:80'"),
        &format!("gateway.toml:2: server.listen: {message}"),
    );
    // A key that is empty is none, and no open door.
    for empty in ["", " ", ","] {
        check(
            &env(&[everywhere, ("BIFROST_CLIENT_KEYS", empty)]),
            &format!("BIFROST_SERVER__LISTEN: {message}"),
        );
    }
    check(
        &toml("client_keys = []").set(&[everywhere]),
        &format!("BIFROST_SERVER__LISTEN: {message}"),
    );
    for enough in [
        ("BIFROST_CLIENT_KEYS", "ck-1"),
        ("BIFROST_SERVER__ALLOW_UNAUTHENTICATED", "true"),
        ("BIFROST_SERVER__LISTEN", "[::ffff:127.0.0.1]:0"),
        ("BIFROST_SERVER__LISTEN", "127.1.2.3:0"),
    ] {
        env(&[everywhere, enough]).loaded();
    }
}

#[test]
fn the_admin_listener_is_for_this_machine_or_behind_a_key() {
    let admin = |variables: &[(&str, &str)]| env(variables).loaded().config.admin;
    let usual = admin(&[]);
    assert_eq!(
        (
            usual.listen.to_string().as_str(),
            usual.is_default,
            usual.enabled,
            usual.keys.len()
        ),
        ("127.0.0.1:8081", true, true, 0)
    );
    assert!(!admin(&[("BIFROST_ADMIN__LISTEN", "127.0.0.1:8081")]).is_default);
    let everywhere = ("BIFROST_ADMIN__LISTEN", "0.0.0.0:8081");
    let message = "without a key, the admin listener is for this machine alone: set BIFROST_ADMIN_KEY, or listen on 127.0.0.1";
    for empty in ["", " "] {
        check(
            &env(&[everywhere, ("BIFROST_ADMIN_KEY", empty)]),
            &format!("BIFROST_ADMIN__LISTEN: {message}"),
        );
    }
    assert_eq!(
        admin(&[everywhere, ("BIFROST_ADMIN_KEY", "ak-1")]).keys[0]
            .value
            .expose(),
        "ak-1"
    );
    assert_eq!(
        admin(&[everywhere, ("BIFROST_ADMIN__KEYS", "ak-1,ak-2")])
            .keys
            .len(),
        2
    );
    assert!(!admin(&[everywhere, ("BIFROST_ADMIN__ENABLED", "false")]).enabled);
}

#[test]
fn tls_takes_a_certificate_and_its_key() {
    let files = |text: &str| {
        toml(text)
            .with("cert.pem", "-----BEGIN CERTIFICATE-----\n")
            .with("key.pem", "-----BEGIN PRIVATE KEY-----\n")
            .with("ec.pem", "-----BEGIN EC PRIVATE KEY-----\n")
    };
    let world = files("[server.tls]\ncertificate = 'cert.pem'\nkey = 'ec.pem'");
    let tls = world.loaded().config.server.tls.unwrap();
    assert_eq!(tls.certificate, world.directory.path().join("cert.pem"));
    for (text, expected) in [
        (
            "[server.tls]\ncertificate = 'cert.pem'",
            "server.tls: `key` is not set: expected the path of a file",
        ),
        (
            "[server.tls]\ncertificate = 'key.pem'\nkey = 'key.pem'",
            "gateway.toml:2: server.tls.certificate: the file that it names holds no certificate in PEM form",
        ),
        (
            "[server.tls]\ncertificate = 'cert.pem'\nkey = 'cert.pem'",
            "gateway.toml:3: server.tls.key: the file that it names holds no private key in PEM form",
        ),
        (
            "[server.tls]\ncertificate = 'cert.pem'\nkey = 'none.pem'",
            "gateway.toml:3: server.tls.key: the file that it names cannot be read: entity not found",
        ),
    ] {
        check(&files(text), expected);
    }
}

#[test]
fn a_host_is_named_without_its_port() {
    let hosts = |text| env(&[("BIFROST_SERVER__HOSTS", text)]);
    assert_eq!(
        hosts("gateway.lan, b").loaded().config.server.hosts,
        ["gateway.lan", "b"]
    );
    check(
        &hosts("gateway.lan:80"),
        "BIFROST_SERVER__HOSTS: expected a list of host names, not `gateway.lan:80`: without a port",
    );
}
