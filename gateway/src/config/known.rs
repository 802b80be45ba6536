//! The variables that people have set already: `OPENAI_API_KEY` and its kin are all that the gateway needs.
//!
//! They fill in what the settings leave open: a provider's section may name its address and leave the key to the
//! variable, or the other way round. `OPENAI_BASE_URL` is not read: it is what a client sets to find *us*, and a
//! gateway that believed it would call itself.

use figment::value::{Dict, Value};

use super::environment::Environment;
use super::layer::Layer;
use super::scalar;

/// A provider that needs no address.
struct Known {
    name: &'static str,
    base_url: &'static str,
    variable: &'static str,
}

// Anthropic and Gemini by their OpenAI-compatible endpoints, until there is an adapter for their own.
#[rustfmt::skip] // a table, and to be read as one
const KNOWN: [Known; 9] = [
    Known { name: "openai",     base_url: "https://api.openai.com/v1",      variable: "OPENAI_API_KEY" },
    Known { name: "anthropic",  base_url: "https://api.anthropic.com/v1",   variable: "ANTHROPIC_API_KEY" },
    Known { name: "gemini",     base_url: "https://generativelanguage.googleapis.com/v1beta/openai", variable: "GEMINI_API_KEY" },
    Known { name: "groq",       base_url: "https://api.groq.com/openai/v1", variable: "GROQ_API_KEY" },
    Known { name: "mistral",    base_url: "https://api.mistral.ai/v1",      variable: "MISTRAL_API_KEY" },
    Known { name: "openrouter", base_url: "https://openrouter.ai/api/v1",   variable: "OPENROUTER_API_KEY" },
    Known { name: "deepseek",   base_url: "https://api.deepseek.com/v1",    variable: "DEEPSEEK_API_KEY" },
    Known { name: "xai",        base_url: "https://api.x.ai/v1",            variable: "XAI_API_KEY" },
    Known { name: OLLAMA,       base_url: "http://127.0.0.1:11434/v1",      variable: "OLLAMA_HOST" },
];

/// The provider that takes no key, and whose variable is its address.
pub(super) const OLLAMA: &str = "ollama";

/// Names of the providers that need no address.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|known| known.name)
}

/// The variables that would be enough to start.
pub fn variables() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|known| known.variable)
}

/// The variable that a provider of that name takes its key from.
pub(super) fn variable_of(provider: &str) -> Option<&'static str> {
    let known = KNOWN.iter().find(|known| known.name == provider);
    known.map(|known| known.variable)
}

/// Whether the variable of that name is one that is read here.
pub(super) fn reads(variable: &str) -> bool {
    KNOWN
        .iter()
        .any(|known| position(known.variable, variable).is_some())
}

/// What the well-known variables add to the `providers` that are configured.
pub(super) fn layer(environment: &Environment, providers: &Dict) -> Layer {
    let mut layer = Layer::new("known provider");
    for known in &KNOWN {
        let configured = providers.get(known.name);
        if configured.is_some_and(|value| value.as_dict().is_none()) {
            continue; // refused by the reader
        }
        let has =
            |setting: &str| configured.is_some_and(|section| section.find_ref(setting).is_some());
        let (mut base_url, mut origin) = (
            known.base_url.to_owned(),
            format!("known provider {}", known.name),
        );
        let mut is_found = configured.is_some();
        if known.name == OLLAMA {
            if let Some(host) = environment.get(known.variable) {
                (base_url, origin) = (ollama_url(host), known.variable.to_owned());
                is_found = true;
            }
        } else if !has("keys") && !configured.is_some_and(is_keyless) {
            for (number, variable) in (1..).zip(variables_of(known, environment)) {
                let path = format!("providers.{}.keys.key-{number}.value", known.name);
                layer.put(
                    &path,
                    environment.get(variable).unwrap_or_default(),
                    variable,
                );
                is_found = true;
            }
        }
        if is_found && !has("base_url") {
            layer.put(
                &format!("providers.{}.base_url", known.name),
                &base_url,
                &origin,
            );
        }
    }
    layer
}

/// Whether a provider's section says that it takes no key.
fn is_keyless(section: &Value) -> bool {
    match section.find_ref("keyless") {
        Some(Value::Bool(_, keyless)) => *keyless,
        Some(Value::String(_, text)) => scalar::toggle(text) == Ok(true),
        _ => false,
    }
}

/// `X_API_KEY`, `X_API_KEY_1`, `X_API_KEY_2` … as far as they are set, in that order.
fn variables_of<'a>(known: &Known, environment: &'a Environment) -> impl Iterator<Item = &'a str> {
    let set = environment
        .variables
        .iter()
        .filter(|(_, value)| !value.is_empty());
    let mut found: Vec<_> = set
        .filter_map(|(name, _)| Some((position(known.variable, name)?, name.as_str())))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, name)| name)
}

/// Where `name` stands among the variables that begin with `variable`: itself first, then by number.
fn position(variable: &str, name: &str) -> Option<u32> {
    match name.strip_prefix(variable)? {
        "" => Some(0),
        rest => rest.strip_prefix('_')?.parse::<u32>().ok()?.checked_add(1),
    }
}

/// The address that `OLLAMA_HOST` means. It is also what tells the server where to listen, so that it may be a host
/// alone, a port alone, or the address of all interfaces.
fn ollama_url(host: &str) -> String {
    let host = host.trim().trim_end_matches('/');
    let url = match host {
        url if url.contains("://") => url.to_owned(),
        host => {
            let (name, port) = match host.rsplit_once(':') {
                Some((name, port)) if !port.ends_with(']') => (name, port),
                _ => (host, "11434"),
            };
            let name = if ["", "0.0.0.0", "[::]"].contains(&name) {
                "127.0.0.1"
            } else {
                name
            };
            format!("http://{name}:{port}")
        }
    };
    if url.ends_with("/v1") {
        url
    } else {
        url + "/v1"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_host_may_be_written_as_its_users_do() {
        for (host, url) in [
            ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
            ("http://gpu:9000/", "http://gpu:9000/v1"),
            ("https://gpu/v1", "https://gpu/v1"),
            ("gpu", "http://gpu:11434/v1"),
            ("0.0.0.0", "http://127.0.0.1:11434/v1"),
            (":9000", "http://127.0.0.1:9000/v1"),
            ("[::1]", "http://[::1]:11434/v1"),
            ("[::1]:9000", "http://[::1]:9000/v1"),
        ] {
            assert_eq!(ollama_url(host), url, "{host}");
        }
    }

    #[test]
    fn a_variable_is_read_with_and_without_a_number() {
        for (name, is_read) in [
            ("OPENAI_API_KEY", true),
            ("OPENAI_API_KEY_2", true),
            ("OPENAI_API_KEY_OLD", false),
            ("OPENAI_API_KEYS", false),
            ("OPENAI_BASE_URL", false),
            ("OLLAMA_HOST", true),
        ] {
            assert_eq!(reads(name), is_read, "{name}");
        }
    }
}
