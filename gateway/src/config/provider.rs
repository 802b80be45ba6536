//! `providers.*`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};

use super::nearest::nearest;
use super::reader::Field;
use super::section::Section;
use super::show::MASK;
use super::{Kind, Provider, Rest, Retries, Timeouts, keys, known, scalar, secret};

/// What a provider may be called: it stands in front of models, in variables' names and in labels.
pub(super) fn is_name(name: &str) -> bool {
    let is_fit = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
    };
    (1..=32).contains(&name.len()) && name.bytes().all(is_fit)
}

/// Headers that are the connection's, or that the gateway itself sets.
const HEADERS_REFUSED: [&str; 12] = [
    "authorization",
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// All providers, by name.
pub(super) fn read_all(root: &mut Section) -> Option<BTreeMap<String, Provider>> {
    let Some(field) = root.take("providers") else {
        return Some(BTreeMap::new());
    };
    Section::read(field, |section| {
        let names = section.names();
        let mut read = Vec::new();
        for name in &names {
            let Some(field) = section.take(name) else {
                continue;
            };
            if is_name(name) {
                read.push(Section::read(field, |provider| {
                    Some((name.clone(), one(provider, name, &names)?))
                }));
            } else {
                field.problem(
                    "a provider's name has at most 32 characters, of a-z, 0-9, `-` and `_`",
                );
                read.push(None);
            }
        }
        read.into_iter().collect()
    })
}

fn one(section: &mut Section, name: &str, names: &[String]) -> Option<Provider> {
    let kind = section.choice("kind", &[("openai", Kind::OpenAi)]);
    let base_url = base_url(section, name);
    let keyless = section.toggle("keyless");
    let keys = keys::read(section);
    if let (Some(url), Some(keyless), Some(keys)) = (&base_url, keyless, &keys) {
        check_keys(section, name, url, keyless, keys.len());
    }
    let concurrency = section.count("concurrency", 1..=1_000_000);
    let stream_usage = section.toggle("stream_usage");
    let retries = section.section("retries", retries);
    let timeouts = section.section("timeouts", timeouts);
    let models = section.list("models", "a list of model names", |_| Ok(()));
    let fallbacks = section.list("fallbacks", "a list of `provider/model`", |text| {
        is_fallback(text, names)
    });
    let headers = headers(section);
    let ca_file = ca_file(section);
    let proxy = proxy(section);
    let connects_max = section.count("connects_max", 1..=10_000);
    let http2 = section.section("http2", |http2| http2.count("connections", 0..=1_000));
    let rest = section.section("rest", rest);
    Some(Provider {
        kind: kind?,
        base_url: base_url?.as_str().trim_end_matches('/').to_owned(),
        keys: keys?,
        concurrency: concurrency?,
        stream_usage: stream_usage?,
        retries: retries?,
        timeouts: timeouts?,
        models: models?,
        fallbacks: fallbacks?,
        headers: headers?,
        ca_file,
        proxy,
        connects_max: connects_max?,
        http2: NonZeroUsize::new(http2?),
        rest: rest?,
    })
}

fn base_url(section: &mut Section, name: &str) -> Option<reqwest::Url> {
    const EXPECTED: &str = "an address such as https://api.example.com/v1";
    if !section.has("base_url") {
        let near = nearest(name, known::names())
            .map(|near| format!("; did you mean the provider {near}?"));
        section.problem(format!(
            "base_url is not set: expected {EXPECTED}{}",
            near.unwrap_or_default()
        ));
    }
    section.parse("base_url", EXPECTED, scalar::base_url)
}

/// A provider without keys must be one that takes none, so that a forgotten key is not found out by its 401.
fn check_keys(section: &Section, name: &str, url: &reqwest::Url, keyless: bool, count: usize) {
    if keyless && count > 0 {
        section.problem("has keys, and keyless = true: leave one of them out");
    }
    if !keyless && count == 0 && name != known::OLLAMA && !is_loopback(url) {
        let variable = known::variable_of(name)
            .map(|variable| format!("{variable} or "))
            .unwrap_or_default();
        let setting =
            super::environment::variable(&[&section.field.path[..], &["keys".to_owned()]].concat());
        section.problem(format!(
            "no key: set {variable}{setting}, or keyless = true if it takes none"
        ));
    }
}

/// Whether an address is on this machine: such a provider may take no key, and is never reached by a proxy.
pub(crate) fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn is_fallback(text: &str, names: &[String]) -> scalar::Parsed<()> {
    let Some((provider, model)) = text.split_once('/') else {
        return Err(None);
    };
    if names.iter().any(|name| name == provider) {
        return if model.is_empty() { Err(None) } else { Ok(()) };
    }
    let near = nearest(provider, names.iter().map(String::as_str));
    let near = near
        .map(|near| format!("; did you mean {near}?"))
        .unwrap_or_default();
    Err(Some(format!("no such provider is configured{near}")))
}

fn retries(section: &mut Section) -> Option<Retries> {
    let typed = ["backoff_initial", "backoff_max"]
        .into_iter()
        .filter_map(|name| section.peek(name));
    let typed = typed.into_iter().find(|field| !field.is_default());
    let max = section.count("max", 0..=100);
    let backoff_initial = section.duration("backoff_initial");
    let backoff_max = section.duration("backoff_max");
    let retries = Retries {
        max: max?,
        backoff_initial: backoff_initial?,
        backoff_max: backoff_max?,
    };
    if retries.backoff_initial > retries.backoff_max {
        let [initial, max] =
            [retries.backoff_initial, retries.backoff_max].map(humantime::format_duration);
        typed?.problem(format!(
            "backoff_initial ({initial}) is longer than backoff_max ({max})"
        ));
    }
    Some(retries)
}

fn timeouts(section: &mut Section) -> Option<Timeouts> {
    let connect = section.duration_above_zero("connect");
    let first_byte = section.duration_above_zero("first_byte");
    let idle = section.duration_above_zero("idle");
    let total = section.duration_above_zero("total");
    let queue = section.duration_above_zero("queue");
    Some(Timeouts {
        connect: connect?,
        first_byte: first_byte?,
        idle: idle?,
        total: total?,
        queue: queue?,
    })
}

fn rest(section: &mut Section) -> Option<Rest> {
    let rate_limited = section.duration("rate_limited");
    let max = section.duration("max");
    let forbidden = section.duration("forbidden");
    let probe = section.duration_above_zero("probe");
    let ramp = section.duration("ramp");
    Some(Rest {
        rate_limited: rate_limited?,
        max: max?,
        forbidden: forbidden?,
        probe: probe?,
        ramp: ramp?,
    })
}

/// `organization`, `project` and `headers`, as headers. Each is marked sensitive: its `Debug` shows nothing.
fn headers(section: &mut Section) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let mut headers = Vec::new();
    for (setting, name) in [
        ("organization", "openai-organization"),
        ("project", "openai-project"),
    ] {
        if let Some(field) = section.take(setting) {
            let text = field.word("a text");
            field.record(format!("{:?}", text.as_deref().unwrap_or_default()));
            headers.push(text.and_then(|text| {
                Some((HeaderName::from_static(name), header_value(&field, &text)?))
            }));
        }
    }
    if let Some(field) = section.take("headers").and_then(Field::opened) {
        let map = Section::read(field, |section| {
            for name in section.names() {
                headers.extend(section.take(&name).map(|field| header(&field, &name)));
            }
            Some(())
        });
        map?;
    }
    let headers = headers.into_iter().collect::<Option<Vec<_>>>()?;
    for (index, (name, _)) in headers.iter().enumerate() {
        if headers[..index].iter().any(|(other, _)| other == name) {
            section.problem(format!("the header {name} is set twice"));
            return None;
        }
    }
    Some(headers)
}

fn header(field: &Field, name: &str) -> Option<(HeaderName, HeaderValue)> {
    let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
        field.problem("is not the name of a header");
        return None;
    };
    if HEADERS_REFUSED.contains(&header.as_str()) {
        field.problem("this header is the gateway's own to set; keys belong into `keys`");
        return None;
    }
    let text = secret::text(field, MASK)?;
    Some((header, header_value(field, &text)?))
}

fn header_value(field: &Field, text: &str) -> Option<HeaderValue> {
    let Ok(mut value) = HeaderValue::from_str(text) else {
        field.problem("holds a character that no header can carry");
        return None;
    };
    value.set_sensitive(true);
    Some(value)
}

fn ca_file(section: &mut Section) -> Option<PathBuf> {
    let field = section.take("ca_file")?;
    let path = secret::path(&field)?;
    match secret::read(&path) {
        Ok(text) if text.contains("-----BEGIN CERTIFICATE-----") => return Some(path),
        Ok(_) => field.problem("the file that it names holds no certificate in PEM form"),
        Err(why) => field.problem(format!("the file that it names {why}")),
    }
    None
}

fn proxy(section: &mut Section) -> Option<String> {
    let field = section.take("proxy")?;
    let text = secret::text(&field, MASK)?;
    field.parse("an address such as http://proxy:3128", |_| {
        scalar::url(&text)
    })?;
    Some(text)
}
