//! What is asked, and of whom: an address, its dialect, and bodies of the kinds that a load is mixed of.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::Uri;
use memchr::memmem;
use serde_json::{Value, json};

/// The API that a target speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Dialect {
    /// Chat completions
    Openai,
    /// Messages
    Anthropic,
}

impl Dialect {
    const fn path(self) -> &'static str {
        match self {
            Self::Openai => "/v1/chat/completions",
            Self::Anthropic => "/v1/messages",
        }
    }

    /// How many of these events of a stream carry content. Their JSON may have blanks.
    pub(super) fn contents(self, events: &[u8]) -> usize {
        match self {
            Self::Openai => {
                let field = b"\"content\"";
                let found = memmem::find_iter(events, field);
                found
                    .filter(|at| is_some_text(&events[at + field.len()..]))
                    .count()
            }
            Self::Anthropic => memmem::find_iter(events, b"\"text_delta\"").count(),
        }
    }

    /// Whether the last of a stream's events is among these.
    pub(super) fn is_end(self, events: &[u8]) -> bool {
        match self {
            Self::Openai => memmem::find_iter(events, b"[DONE]")
                .any(|at| events[..at].trim_ascii_end().ends_with(b"data:")),
            Self::Anthropic => memmem::find(events, b"\"message_stop\"").is_some(),
        }
    }

    /// Whether a plain body is an answer: it has what answers have, and no error.
    pub(super) fn is_answer(self, body: &[u8]) -> bool {
        let field: &[u8] = match self {
            Self::Openai => b"\"choices\"",
            Self::Anthropic => b"\"content\"",
        };
        memmem::find(body, field).is_some() && !is_error(body)
    }
}

/// Whether what follows the name of a field is a text that isn't empty, as it is in the event that opens a stream.
fn is_some_text(rest: &[u8]) -> bool {
    let value = rest.trim_ascii_start().strip_prefix(b":");
    let value = value.map(<[u8]>::trim_ascii_start);
    matches!(value, Some([b'"', first, ..]) if *first != b'"')
}

/// Whether there is an error at the top. The word alone may be a name further down; only where it is there at all, the
/// body is parsed, which would take the load more time than all else.
fn is_error(body: &[u8]) -> bool {
    memmem::find(body, b"\"error\"").is_some()
        && serde_json::from_slice::<Value>(body).map_or(true, |body| !body["error"].is_null())
}

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) host: String,
    pub(super) path: String,
    pub(super) dialect: Dialect,
    pub(super) key: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Target {
    /// The target at `url`, whose path is the dialect's own where it names none.
    pub(super) fn new(url: &str, dialect: Dialect) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url:?} is no URL"))?;
        ensure!(
            uri.scheme_str() == Some("http"),
            "{url:?} has to begin with http://: a benchmark measures the gateway, not TLS to it"
        );
        let authority = uri.authority().context("a URL of http has a host")?;
        let host = authority.host().trim_matches(['[', ']']);
        let port = authority.port_u16().unwrap_or(80);
        let mut found = (host, port).to_socket_addrs();
        let found = found.as_mut().ok().and_then(Iterator::next);
        let path = match uri.path_and_query().map(http::uri::PathAndQuery::as_str) {
            None | Some("/" | "") => dialect.path(),
            Some(path) => path,
        };
        Ok(Self {
            address: found.with_context(|| format!("{host:?} can't be resolved"))?,
            host: authority.as_str().to_owned(),
            path: path.to_owned(),
            dialect,
            key: "bench".to_owned(),
            headers: vec![],
        })
    }
}

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Stream,
    Big,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Plain, Self::Stream, Self::Big];

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Stream => "stream",
            Self::Big => "big",
        }
    }
}

/// The kinds of requests in a load, and how many of each in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mix(Vec<(Kind, u64)>);

impl Mix {
    /// The kind of request `number`.
    fn kind(&self, number: u64) -> Kind {
        let all: u64 = self.0.iter().map(|(_, weight)| weight).sum();
        let mut place = number % all;
        for (kind, weight) in &self.0 {
            if place < *weight {
                return *kind;
            }
            place -= weight;
        }
        unreachable!("a place is below the sum of the weights")
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (kind, weight)) in self.0.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{}:{weight}", kind.name())?;
        }
        Ok(())
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = text.split(',').map(|part| {
            let (name, weight) = part.split_once(':').unwrap_or((part, "1"));
            let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
            let kind = kind.ok_or_else(|| format!("{name:?} is none of plain, stream, big"))?;
            match weight.parse() {
                Ok(weight @ 1..=1_000) => Ok((kind, weight)),
                _ => Err(format!("{weight:?} is no number from 1 to 1000")),
            }
        });
        Ok(Self(kinds.collect::<Result<_, _>>()?))
    }
}

/// The bodies of a load's requests.
#[derive(Debug, Clone)]
pub(super) struct Bodies {
    mix: Mix,
    /// The model's name as JSON.
    model: String,
    dialect: Dialect,
    small_bytes: usize,
    big_bytes: usize,
}

impl Bodies {
    pub(super) fn new(
        mix: Mix,
        model: &str,
        dialect: Dialect,
        (small_bytes, big_bytes): (usize, usize),
    ) -> Self {
        Self {
            mix,
            model: json!(model).to_string(),
            dialect,
            small_bytes,
            big_bytes,
        }
    }

    /// The body of request `number`, and whether it asks for a stream. No two are the same.
    pub(super) fn body(&self, number: u64) -> (Bytes, bool) {
        let kind = self.mix.kind(number);
        let bytes = match kind {
            Kind::Plain | Kind::Stream => self.small_bytes,
            Kind::Big => self.big_bytes,
        };
        let is_stream = kind == Kind::Stream;
        let least = self.text(number, "", is_stream);
        let filling = filling(bytes.saturating_sub(least.len()));
        (
            Bytes::from(self.text(number, &filling, is_stream)),
            is_stream,
        )
    }

    fn text(&self, number: u64, filling: &str, is_stream: bool) -> String {
        let model = &self.model;
        let max_tokens = match self.dialect {
            Dialect::Openai => "",
            Dialect::Anthropic => r#","max_tokens":1024"#,
        };
        let stream = if is_stream { r#","stream":true"# } else { "" };
        format!(
            r#"{{"model":{model},"messages":[{{"role":"user","content":"{number:09} {filling}"}}]{max_tokens}{stream}}}"#
        )
    }
}

/// Words that need no escape.
fn filling(bytes: usize) -> String {
    const WORDS: &str = "What does a gateway do between a client and a model? ";
    let mut text = WORDS.repeat(bytes.div_ceil(WORDS.len()));
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_host_port_and_path() {
        let check = |url, dialect, address: &str, path| {
            let target = Target::new(url, dialect).unwrap();
            assert_eq!(target.address, address.parse().unwrap(), "{url}");
            assert_eq!(target.path, path, "{url}");
        };
        let chat = "/v1/chat/completions";
        check(
            "http://127.0.0.1:8080",
            Dialect::Openai,
            "127.0.0.1:8080",
            chat,
        );
        check(
            "http://127.0.0.1/",
            Dialect::Anthropic,
            "127.0.0.1:80",
            "/v1/messages",
        );
        check(
            "http://[::1]:81/x?y=1",
            Dialect::Openai,
            "[::1]:81",
            "/x?y=1",
        );
        for url in [
            "127.0.0.1:8080",
            "https://127.0.0.1",
            "http://",
            "ftp://127.0.0.1",
        ] {
            assert!(Target::new(url, Dialect::Openai).is_err(), "{url}");
        }
    }

    #[test]
    fn an_answer_is_what_has_content_and_no_error() {
        let check = |dialect: Dialect, body: &str, expected| {
            assert_eq!(dialect.is_answer(body.as_bytes()), expected, "{body}");
        };
        let [openai, anthropic] = [Dialect::Openai, Dialect::Anthropic];
        check(openai, r#"{"choices": [{"message": {}}]}"#, true);
        check(anthropic, r#"{"content":[{"type":"text"}]}"#, true);
        check(openai, r#"{"content":[{"type":"text"}]}"#, false);
        check(openai, "", false);
        check(openai, "{}", false);
        check(openai, r#"{"error":{"message":"no \"choices\""}}"#, false);
        check(openai, r#"{"choices":[],"error":{"code":1}}"#, false);
        check(openai, r#"{"choices":[],"error":null}"#, true);
        let named = r#"{"choices":[{"message":{"content":"\"error\"","x":"error"}}]}"#;
        check(openai, named, true);
        check(openai, r#"{"choices":[],"error":{"#, false);
    }

    #[test]
    fn a_mix_has_its_kinds_in_turn() {
        let mix: Mix = "plain:2,stream,big".parse().unwrap();
        let kinds: Vec<_> = (0..5).map(|number| mix.kind(number)).collect();
        assert_eq!(mix.to_string(), "plain:2,stream:1,big:1");
        let [plain, stream, big] = [Kind::Plain, Kind::Stream, Kind::Big];
        assert_eq!(kinds, [plain, plain, stream, big, plain]);
        for wrong in ["", "plane", "plain:0", "plain:x", "plain,"] {
            assert!(wrong.parse::<Mix>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn bodies_are_json_of_the_size_asked_for_and_all_different() {
        for dialect in [Dialect::Openai, Dialect::Anthropic] {
            let mix = "plain,stream,big".parse().unwrap();
            let bodies = Bodies::new(mix, "a\"b", dialect, (133, 10_240));
            for (number, (bytes, stream)) in [(133, false), (133, true), (10_240, false)]
                .into_iter()
                .enumerate()
            {
                let (body, is_stream) = bodies.body(number as u64);
                let json: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!((body.len(), is_stream), (bytes, stream), "{dialect:?}");
                assert_eq!(json["model"], "a\"b");
                assert_eq!(json["stream"] == true, stream);
                assert_eq!(
                    json["max_tokens"].is_number(),
                    dialect == Dialect::Anthropic
                );
            }
            assert_ne!(bodies.body(0), bodies.body(3));
        }
    }
}
