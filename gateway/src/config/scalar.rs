//! Texts as values: each function takes what the user wrote and answers the value, or a hint where one helps.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use figment::value::{Dict, Value};

use super::file;

/// A value, or what could be said beyond "expected …, not …".
pub(super) type Parsed<T> = Result<T, Option<String>>;

/// Nothing here waits longer; and an instant that far ahead does not overflow.
const DURATION_MAX: Duration = Duration::from_hours(30 * 24);

/// A duration with its unit: a number alone is ambiguous, and seconds to one are milliseconds to another.
pub(super) fn duration(text: &str) -> Parsed<Duration> {
    let text = text.trim();
    if text.parse::<f64>().is_ok() && text != "0" {
        return Err(Some(format!(
            "say in which unit, such as {text}s or {text}ms"
        )));
    }
    match humantime::parse_duration(text) {
        Ok(duration) if duration > DURATION_MAX => Err(Some("at most 30 days".to_owned())),
        Ok(duration) => Ok(duration),
        Err(_) => Err(None),
    }
}

/// A duration that is not zero.
pub(super) fn duration_above_zero(text: &str) -> Parsed<Duration> {
    match duration(text)? {
        Duration::ZERO => Err(Some("it must be above zero".to_owned())),
        duration => Ok(duration),
    }
}

/// A number, also with underscores between its digits.
pub(super) fn number<T: FromStr>(text: &str) -> Parsed<T> {
    text.trim().replace('_', "").parse().map_err(|_| None)
}

/// Yes or no.
pub(super) fn toggle(text: &str) -> Parsed<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(None),
    }
}

/// Where to listen.
pub(super) fn address(text: &str) -> Parsed<SocketAddr> {
    let text = text.trim();
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| {
        let port = text.trim_start_matches(':');
        let is_port = port.parse::<u16>().is_ok();
        is_port.then(|| {
            format!(
                "write 127.0.0.1:{port} for this machine alone, 0.0.0.0:{port} for all interfaces"
            )
        })
    })
}

/// The port that `PORT` gives.
pub(super) fn port(text: &str) -> Parsed<u16> {
    text.trim().parse().map_err(|_| None)
}

/// An http or https address, for a provider or a proxy. The hint never repeats the text: it may hold a password.
pub(super) fn url(text: &str) -> Parsed<reqwest::Url> {
    let hint = |hint: &str| Some(hint.to_owned());
    let url = reqwest::Url::parse(text.trim()).map_err(|_| None)?;
    match (url.scheme(), url.host_str()) {
        ("http" | "https", Some(_)) if text.trim().contains("://") => Ok(url),
        ("http" | "https", _) => Err(hint("`://` and a host belong behind http or https")),
        _ => Err(hint("begin it with http:// or https://")),
    }
}

/// A provider's address, without a slash at its end.
pub(super) fn base_url(text: &str) -> Parsed<reqwest::Url> {
    let hint = |hint: &str| Err(Some(hint.to_owned()));
    let mut url = url(text)?;
    if !url.username().is_empty() || url.password().is_some() {
        return hint("leave user and password out: a key belongs into `keys`");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return hint("leave out what begins with ? or #");
    }
    let path = url.path().trim_end_matches('/').to_owned();
    if let Some(base) = path.strip_suffix("/chat/completions") {
        let base = format!("`/chat/completions` is appended to it: end it with `{base}`");
        return Err(Some(base));
    }
    url.set_path(&path);
    Ok(url)
}

/// A list or a table in one text: JSON, or as TOML writes them on one line. `None` for a text that begins like neither.
pub(super) fn inline(text: &str) -> Option<Result<Value, String>> {
    let text = text.trim();
    if !text.starts_with(['[', '{']) {
        return None;
    }
    let document = format!("{{\"v\":{text}}}");
    let parsed = file::json(&document).or_else(|_| file::toml(&format!("v = {text}")));
    Some(match parsed.map(only) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err("one list or table, and nothing behind it".to_owned()),
        // Line and column are those of our own document, and its words are the parser's: neither helps.
        Err(_) => Err("a list such as [{value = \"…\", weight = 2.0}], as TOML or JSON".to_owned()),
    })
}

fn only(mut dict: Dict) -> Option<Value> {
    let value = dict.remove("v");
    value.filter(|_| dict.is_empty())
}

/// The parts of a text with commas.
pub(super) fn parts(text: &str) -> Vec<String> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, expected) in [
            ("250ms", Ok(Duration::from_millis(250))),
            (" 30s ", Ok(Duration::from_secs(30))),
            ("2m", Ok(Duration::from_mins(2))),
            ("1m 30s", Ok(Duration::from_secs(90))),
            ("75us", Ok(Duration::from_micros(75))),
            ("75µs", Ok(Duration::from_micros(75))),
            ("0", Ok(Duration::ZERO)),
            ("30", Err(Some("say in which unit, such as 30s or 30ms"))),
            ("1.5", Err(Some("say in which unit, such as 1.5s or 1.5ms"))),
            ("2y", Err(Some("at most 30 days"))),
            ("soon", Err(None)),
            ("-1s", Err(None)),
            ("", Err(None)),
        ] {
            assert_eq!(
                duration(text),
                expected.map_err(|hint| hint.map(str::to_owned)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_base_url_is_an_address_and_nothing_else() {
        for (text, expected) in [
            ("https://api.openai.com/v1", Ok("https://api.openai.com/v1")),
            (
                " http://127.0.0.1:9901/v1// ",
                Ok("http://127.0.0.1:9901/v1"),
            ),
            ("http://localhost:1", Ok("http://localhost:1/")),
            (
                "https://api.openai.com/v1/chat/completions",
                Err(Some(
                    "`/chat/completions` is appended to it: end it with `/v1`",
                )),
            ),
            (
                "https://me:pass@host/v1",
                Err(Some(
                    "leave user and password out: a key belongs into `keys`",
                )),
            ),
            (
                "https://host/v1?key=1",
                Err(Some("leave out what begins with ? or #")),
            ),
            ("ftp://host", Err(Some("begin it with http:// or https://"))),
            (
                "localhost:8080",
                Err(Some("begin it with http:// or https://")),
            ),
            ("api.openai.com/v1", Err(None)),
            ("", Err(None)),
        ] {
            let found = base_url(text).map(String::from);
            assert_eq!(
                found,
                expected
                    .map(str::to_owned)
                    .map_err(|hint| hint.map(str::to_owned)),
                "{text}"
            );
        }
    }

    #[test]
    fn an_inline_list_is_toml_or_json() {
        for (text, is_value) in [
            ("[{value=\"a\",weight=2.0}]", Some(true)),
            ("[{\"value\":\"a\"}]", Some(true)),
            ("{main = \"a\"}", Some(true)),
            ("[\"a\"]\nw = 1", Some(false)),
            ("[abc", Some(false)),
            ("abc", None),
        ] {
            assert_eq!(
                inline(text).map(|parsed| parsed.is_ok()),
                is_value,
                "{text}"
            );
        }
    }
}
