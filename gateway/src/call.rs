//! What the client asks: the few fields that we read, the rest untouched bytes.
//!
//! The body is never turned into a tree and back. Unknown fields, the spelling of numbers, the order of keys and
//! integers of any size reach the provider as the client wrote them; what must change is spliced (see
//! [`Splice`]).

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::Error;

/// Fallbacks that a request may name.
const FALLBACKS_MAX: usize = 16;
/// Characters that a model's name may have. It becomes part of messages and of the keys' memory.
const MODEL_BYTES_MAX: usize = 256;

/// A chat completion request.
#[derive(Debug)]
pub struct Call<'a> {
    body: &'a [u8],
    /// The model, as the client wrote it: `provider/model` or a bare name.
    pub model: Cow<'a, str>,
    model_at: Range<usize>,
    /// Whether the client asked for a stream.
    pub stream: bool,
    stream_options: StreamOptions<'a>,
    /// `provider/model` to try when the first has failed.
    pub fallbacks: Vec<Cow<'a, str>>,
    fallbacks_at: Option<Range<usize>>,
}

/// The fields that we read. A field that stands twice is refused: two readers might choose different ones.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    stream_options: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    fallbacks: Option<&'a RawValue>,
}

/// A field that is null is there, too: what is for us alone must go in any case.
fn even_null<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// How the client's `stream_options` stand.
#[derive(Debug)]
enum StreamOptions<'a> {
    Absent,
    /// They are there, and say nothing of usage.
    Silent(&'a RawValue),
    /// They say whether usage is wanted; or are of a form that the provider may judge.
    Decided,
}

impl<'a> Call<'a> {
    /// Reads `body`.
    ///
    /// # Errors
    ///
    /// [`Error::BadRequest`] for what is no JSON object, [`Error::BadField`] for a field that is missing or wrong.
    pub fn parse(body: &'a [u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(body).map_err(|error| {
            Error::BadRequest(format!(
                "the request body is not UTF-8 from byte {}",
                error.valid_up_to()
            ))
        })?;
        // serde would take an array for the fields in order.
        if !text
            .trim_start_matches([' ', '\t', '\n', '\r'])
            .starts_with('{')
        {
            return Err(Error::BadRequest(
                "the request body is not a JSON object".to_owned(),
            ));
        }
        let fields: Fields<'a> = serde_json::from_str(text).map_err(|error| malformed(&error))?;

        let raw_model = present(fields.model).ok_or_else(|| bad("model", "`model` is missing"))?;
        let model: Cow<'a, str> =
            text_of(raw_model).ok_or_else(|| bad("model", "`model` has to be a string"))?;
        if model.is_empty() || model.len() > MODEL_BYTES_MAX {
            return Err(bad("model", "`model` has to have from 1 to 256 bytes"));
        }
        match fields.messages.map(RawValue::get) {
            None => return Err(bad("messages", "`messages` is missing")),
            Some(messages) if !messages.starts_with('[') => {
                return Err(bad("messages", "`messages` has to be an array"));
            }
            Some(_) => {}
        }
        let stream = match present(fields.stream).map(RawValue::get) {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(bad("stream", "`stream` has to be true or false")),
        };
        Ok(Self {
            body,
            model,
            model_at: place(body, raw_model),
            stream,
            stream_options: StreamOptions::of(fields.stream_options),
            fallbacks: fallbacks(fields.fallbacks)?,
            fallbacks_at: fields.fallbacks.map(|raw| member(body, place(body, raw))),
        })
    }

    /// The body with `model` in place of the client's, and without what is for us alone.
    #[must_use]
    pub fn edits(&self, model: &str) -> Vec<Edit<'a>> {
        let mut edits = vec![Edit {
            at: self.model_at.clone(),
            with: Cow::Owned(quoted(model)),
        }];
        if *self.model == *model {
            edits.clear();
        }
        if let Some(at) = &self.fallbacks_at {
            edits.push(Edit {
                at: at.clone(),
                with: Cow::Borrowed(""),
            });
        }
        edits
    }

    /// What makes the provider tell the usage at a stream's end; none if there is no stream, or the client has decided
    /// that itself.
    #[must_use]
    pub fn usage_edit(&self) -> Option<Edit<'a>> {
        if !self.stream {
            return None;
        }
        let (at, with) = match self.stream_options {
            StreamOptions::Decided => return None,
            StreamOptions::Absent => {
                let end = self.body.iter().rposition(|byte| *byte == b'}')?;
                (end..end, r#","stream_options":{"include_usage":true}"#)
            }
            StreamOptions::Silent(raw) => {
                let at = place(self.body, raw);
                match raw.get().strip_prefix('{') {
                    None => (at, r#"{"include_usage":true}"#),
                    Some(rest) if rest.trim_ascii_start() == "}" => {
                        (at.start + 1..at.start + 1, r#""include_usage":true"#)
                    }
                    Some(_) => (at.start + 1..at.start + 1, r#""include_usage":true,"#),
                }
            }
        };
        Some(Edit {
            at,
            with: Cow::Borrowed(with),
        })
    }

    /// Whether the usage at a stream's end is there because of us alone.
    #[must_use]
    pub const fn hides_usage(&self) -> bool {
        self.stream && !matches!(self.stream_options, StreamOptions::Decided)
    }

    /// The body as pieces, with `edits` made.
    #[must_use]
    pub fn splice<'e>(&self, edits: &'e mut [Edit<'a>]) -> Splice<'e>
    where
        'a: 'e,
    {
        edits.sort_by_key(|edit| edit.at.start);
        let mut pieces = Vec::with_capacity(edits.len() * 2 + 1);
        let mut from = 0;
        for edit in edits.iter() {
            pieces.push(&self.body[from..edit.at.start]);
            pieces.push(edit.with.as_bytes());
            from = edit.at.end;
        }
        pieces.push(&self.body[from..]);
        Splice(pieces)
    }
}

/// A change to a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Edit<'a> {
    /// The bytes that go.
    pub at: Range<usize>,
    /// What comes in their place.
    pub with: Cow<'a, str>,
}

/// A body in pieces, most of them the client's own bytes.
#[derive(Debug)]
pub struct Splice<'a>(Vec<&'a [u8]>);

impl Splice<'_> {
    /// The body in one piece.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.0.iter().map(|piece| piece.len()).sum());
        for piece in &self.0 {
            bytes.put_slice(piece);
        }
        bytes.freeze()
    }
}

impl<'a> StreamOptions<'a> {
    fn of(raw: Option<&'a RawValue>) -> Self {
        #[derive(Deserialize)]
        struct Known {
            include_usage: Option<serde::de::IgnoredAny>,
        }
        let Some(raw) = raw else {
            return Self::Absent;
        };
        match serde_json::from_str::<Option<Known>>(raw.get()) {
            Ok(
                None
                | Some(Known {
                    include_usage: None,
                }),
            ) if !raw.get().starts_with('[') => Self::Silent(raw),
            _ => Self::Decided,
        }
    }
}

fn bad(param: &'static str, message: &str) -> Error {
    Error::BadField {
        param,
        message: message.to_owned(),
    }
}

/// What serde says of the body, without a word of the body.
fn malformed(error: &serde_json::Error) -> Error {
    let twice = error.to_string();
    if let Some(field) = twice
        .strip_prefix("duplicate field `")
        .and_then(|rest| rest.split('`').next())
    {
        return Error::BadRequest(format!("`{field}` stands twice in the request body"));
    }
    let (line, column) = (error.line(), error.column());
    let what = if error.is_eof() {
        "ends too early"
    } else {
        "is not valid JSON"
    };
    Error::BadRequest(format!(
        "the request body {what} (line {line}, column {column})"
    ))
}

/// A field that is there and not null.
pub(crate) fn present(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
}

fn text_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str(raw.get()).ok().map(|Text(text)| text)
}

fn fallbacks(raw: Option<&RawValue>) -> Result<Vec<Cow<'_, str>>, Error> {
    let Some(raw) = present(raw) else {
        return Ok(vec![]);
    };
    let names: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(|_| {
        bad(
            "fallbacks",
            "`fallbacks` has to be an array of `provider/model`",
        )
    })?;
    if names.len() > FALLBACKS_MAX {
        return Err(bad("fallbacks", "`fallbacks` may have 16 entries"));
    }
    names
        .into_iter()
        .map(|name| {
            text_of(name).ok_or_else(|| {
                bad(
                    "fallbacks",
                    "`fallbacks` has to be an array of `provider/model`",
                )
            })
        })
        .collect()
}

/// Where a value that was borrowed from `body` lies in it.
fn place(body: &[u8], raw: &RawValue) -> Range<usize> {
    let start = raw.get().as_ptr() as usize - body.as_ptr() as usize;
    start..start + raw.get().len()
}

/// The member whose value lies at `value`, with the comma that joins it to its neighbour.
fn member(body: &[u8], value: Range<usize>) -> Range<usize> {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace();
    let skip_back = |mut at: usize| {
        while at > 0 && is_blank(&body[at - 1]) {
            at -= 1;
        }
        at
    };
    // Before the value: blanks, a colon, blanks, and the key, which ends in a quote and holds none.
    let colon = skip_back(value.start).saturating_sub(1);
    let key_end = skip_back(colon).saturating_sub(1);
    let key = body[..key_end]
        .iter()
        .rposition(|byte| *byte == b'"')
        .unwrap_or(0);
    let before = skip_back(key);
    if before > 0 && body[before - 1] == b',' {
        return before - 1..value.end;
    }
    let after = value.end
        + body[value.end..]
            .iter()
            .take_while(|byte| is_blank(byte))
            .count();
    if body.get(after) == Some(&b',') {
        key..after + 1
    } else {
        key..value.end
    }
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("any text is a JSON string")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn spliced(body: &str, model: &str) -> String {
        let call = Call::parse(body.as_bytes()).unwrap();
        let mut edits = call.edits(model);
        String::from_utf8(call.splice(&mut edits).to_bytes().to_vec()).unwrap()
    }

    #[test]
    fn only_the_model_changes() {
        let body = "{ \"seed\":12345678901234567890123, \"model\" : \"openai/gpt\\u002d4o\",\"x\":1.10,\n\"messages\":[ null,{\"a\":\"\\ud800\"}]}";
        assert_eq!(
            spliced(body, "gpt-4o"),
            body.replace("\"openai/gpt\\u002d4o\"", "\"gpt-4o\"")
        );
    }

    #[test]
    fn a_model_that_stays_is_not_touched() {
        let body = r#"{"model":"m","messages":[]}"#;
        assert_eq!(spliced(body, "m"), body);
    }

    #[test]
    fn fallbacks_go_with_their_comma_wherever_they_stand() {
        let check = |body: &str, expected: &str| assert_eq!(spliced(body, "m"), expected);
        check(
            r#"{"fallbacks":["a/b"],"model":"m","messages":[]}"#,
            r#"{"model":"m","messages":[]}"#,
        );
        check(
            r#"{"model":"m","fallbacks" : [] ,"messages":[]}"#,
            r#"{"model":"m" ,"messages":[]}"#,
        );
        check(
            r#"{"model":"m","messages":[] , "fallbacks":null}"#,
            r#"{"model":"m","messages":[] }"#,
        );
        check(
            r#"{"f\u0061llbacks":[],"model":"m","messages":[]}"#,
            r#"{"model":"m","messages":[]}"#,
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_without_the_body() {
        let check = |body: &str, message: &str| {
            assert_eq!(
                Call::parse(body.as_bytes()).unwrap_err().to_string(),
                message,
                "{body}"
            );
        };
        check("[1]", "the request body is not a JSON object");
        check("", "the request body is not a JSON object");
        check(
            "{\"model\":\"m\",\n\"messages\":[",
            "the request body ends too early (line 2, column 12)",
        );
        check(
            "{\"model\":\"m\",\"messages\":[],}",
            "the request body is not valid JSON (line 1, column 28)",
        );
        check(r#"{"messages":[]}"#, "`model` is missing");
        check(r#"{"model":null,"messages":[]}"#, "`model` is missing");
        check(r#"{"model":7,"messages":[]}"#, "`model` has to be a string");
        check(
            r#"{"model":"","messages":[]}"#,
            "`model` has to have from 1 to 256 bytes",
        );
        check(r#"{"model":"m"}"#, "`messages` is missing");
        check(
            r#"{"model":"m","messages":"hi"}"#,
            "`messages` has to be an array",
        );
        check(
            r#"{"model":"m","messages":[],"stream":1}"#,
            "`stream` has to be true or false",
        );
        check(
            r#"{"model":"m","model":"n","messages":[]}"#,
            "`model` stands twice in the request body",
        );
        check(
            r#"{"model":"m","messages":[],"fallbacks":"a"}"#,
            "`fallbacks` has to be an array of `provider/model`",
        );
        assert_eq!(
            Call::parse(b"{\"model\":\"\xff\"}")
                .unwrap_err()
                .to_string(),
            "the request body is not UTF-8 from byte 10"
        );
    }

    #[test]
    fn the_fields_that_we_read_are_read() {
        let body = json!({
            "model": "openai/m", "messages": [{"role": "user", "content": "hi"}], "stream": true,
            "stream_options": {"include_usage": true}, "fallbacks": ["a/b", "c"],
        })
        .to_string();
        let call = Call::parse(body.as_bytes()).unwrap();
        assert_eq!((call.model.as_ref(), call.stream), ("openai/m", true));
        assert_eq!(call.fallbacks, ["a/b", "c"]);
    }

    #[test]
    fn usage_is_asked_for_where_the_client_has_not_decided() {
        let check = |options: &str, expected: Option<&str>| {
            let body = format!(r#"{{"model":"m","stream":true,"messages":[]{options} }}"#);
            let call = Call::parse(body.as_bytes()).unwrap();
            let edited = call.usage_edit().map(|edit| {
                let mut edits = [edit];
                String::from_utf8(call.splice(&mut edits).to_bytes().to_vec()).unwrap()
            });
            let expected = expected
                .map(|options| format!(r#"{{"model":"m","stream":true,"messages":[]{options}}}"#));
            assert_eq!(edited, expected, "{options}");
        };
        check("", Some(r#" ,"stream_options":{"include_usage":true}"#));
        check(
            r#","stream_options":null"#,
            Some(r#","stream_options":{"include_usage":true} "#),
        );
        check(
            r#","stream_options":{ }"#,
            Some(r#","stream_options":{"include_usage":true } "#),
        );
        check(
            r#","stream_options":{"x":1}"#,
            Some(r#","stream_options":{"include_usage":true,"x":1} "#),
        );
        check(r#","stream_options":{"include_usage":false}"#, None);
        check(r#","stream_options":{"include_usage":true}"#, None);
        check(r#","stream_options":[]"#, None);
        check(r#","stream_options":7"#, None);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z\"\\\\]{0,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn splicing_changes_the_model_takes_the_fallbacks_and_nothing_else(
            before in any_json(), after in any_json(), model in "[a-z/\"\\\\é]{1,9}", place in 0_usize..4, pretty: bool,
        ) {
            let mut members = vec![
                ("zeta", before.clone()), ("model", json!("openai/x")), ("messages", json!([after.clone()])),
            ];
            members.insert(place.min(members.len()), ("fallbacks", json!(["a/b"])));
            let separator = if pretty { " ,\n\t" } else { "," };
            let body = format!("{{{}}}", members.iter()
                .map(|(key, value)| format!("\"{key}\":{}{value}", if pretty { "  " } else { "" }))
                .collect::<Vec<_>>().join(separator));
            let expected = json!({ "zeta": before, "model": model, "messages": [after] });
            prop_assert_eq!(serde_json::from_str::<Value>(&spliced(&body, &model)).unwrap(), expected);
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Call::parse(&bytes);
        }
    }
}
