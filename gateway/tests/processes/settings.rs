//! Wrong settings: one clear message each, exit status 78, and no secret on the screen.

use std::process::Command;

use crate::process::{Place, gateway};

/// In every secret that these tests write down: none of it may be said again. Digits, so that it can be a number too.
const CANARY: &str = "47110815";

/// The gateway must refuse to start, and say `message` and nothing else.
fn refuses(mut command: Command, message: &str) {
    let output = command.output().unwrap();
    let [said, complained] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(said, "");
    assert!(
        complained.ends_with(&format!("{message}\n")),
        "{complained}"
    );
    assert_eq!(complained.lines().count(), 1, "{complained}");
    assert!(!complained.contains(CANARY), "{complained}");
    assert_eq!(output.status.code(), Some(78), "{complained}");
}

fn with_variables(variables: &[(&str, &str)]) -> Command {
    let mut command = gateway();
    command.envs(variables.iter().copied());
    command
}

fn refuses_file(text: &str, message: &str) {
    let place = Place::new();
    let mut command = gateway();
    let path = place.settings("gateway.toml", &text.replace("CANARY", CANARY));
    refuses(
        {
            command.arg("--config").arg(path);
            command
        },
        message,
    );
}

#[test]
fn a_name_that_is_unknown_is_met_with_the_nearest_one() {
    refuses(
        with_variables(&[
            ("OPENAI_API_KEY", CANARY),
            ("BIFROST_SERVER__LISTNE", "127.0.0.1:0"),
        ]),
        "BIFROST_SERVER__LISTNE: unknown setting; did you mean BIFROST_SERVER__LISTEN?",
    );
}

#[test]
fn a_wrong_type_is_met_with_the_right_one() {
    refuses_file(
        "[providers.openai]\nkeys = ['CANARY']\n[client]\nbuffer_size = 'many'\n",
        "gateway.toml:4: client.buffer_size: expected a whole number from 0 to 10000000, not `many`",
    );
}

#[test]
fn digits_are_no_key() {
    refuses_file(
        "[providers.openai]\nkeys = [{ value = CANARY }]\n",
        "gateway.toml:2: providers.openai.keys.0.value: put it in quotes: digits without them are a number, which \
         loses leading zeros",
    );
}

#[test]
fn a_file_that_does_not_parse_is_not_quoted() {
    refuses_file(
        "[providers.openai]\nkeys = ['CANARY]\n",
        "not valid TOML: invalid literal string",
    );
}

#[test]
fn a_file_that_is_missing_is_named() {
    let mut command = with_variables(&[("OPENAI_API_KEY", CANARY)]);
    command.args(["--config", "/nowhere/gateway.toml"]);
    refuses(command, "/nowhere/gateway.toml: no such file");
}

#[test]
fn weights_that_are_all_zero_are_a_mistake() {
    refuses_file(
        "[providers.openai]\nkeys = [{ value = 'CANARY', weight = 0 }, { value = 'CANARY-2', weight = 0.0 }]\n",
        "gateway.toml:2: providers.openai.keys: every weight is 0, so that no key could ever be chosen",
    );
}

#[test]
fn without_a_provider_the_way_out_is_said() {
    refuses(
        gateway(),
        "or name a provider in a file (--config); or try --demo",
    );
}

#[test]
fn what_is_wrong_is_said_all_at_once() {
    let output = with_variables(&[
        ("OPENAI_API_KEY", CANARY),
        ("BIFROST_LOG__LEVEL", "loud"),
        ("BIFROST_DRAIN_TIMEOUT", "soon"),
    ])
    .arg("check")
    .output()
    .unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    assert_eq!(complained.lines().count(), 2, "{complained}");
    assert_eq!(output.status.code(), Some(78));
}

#[test]
fn a_check_refuses_what_a_start_would_refuse() {
    let mut without_provider = gateway();
    without_provider.arg("check");
    refuses(
        without_provider,
        "or name a provider in a file (--config); or try --demo",
    );

    // Each is well-formed, and the key is another certificate's.
    let place = Place::new();
    let [one, other] = [(), ()]
        .map(|()| rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap());
    let certificate = place.settings("chain.pem", &one.cert.pem());
    let key = place.settings("key.pem", &other.signing_key.serialize_pem());
    let output = with_variables(&[
        ("OPENAI_API_KEY", CANARY),
        (
            "BIFROST_SERVER__TLS__CERTIFICATE",
            certificate.to_str().unwrap(),
        ),
        ("BIFROST_SERVER__TLS__KEY", key.to_str().unwrap()),
    ])
    .arg("check")
    .output()
    .unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complained}");
    assert!(
        complained.contains("server.tls.certificate"),
        "{complained}"
    );
}
