//! The OpenAI API, as most providers speak it: client and provider share the form, so bytes pass.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Event, Holds, Provider, Usage, retry_after};
use crate::call::{Call, Edit, present};
use crate::error::{Answered, Error};

/// Characters of a provider's message that are passed on when it is not in the OpenAI form.
const MESSAGE_CHARS_MAX: usize = 500;

/// The dialect; it keeps nothing.
#[derive(Debug)]
pub struct OpenAi;

/// What is read of an answer, and of an event; of their choices, what `C` keeps.
#[derive(Deserialize)]
struct Body<'a, C> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    choices: Option<C>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    /// `"error"` in the flat form of some servers.
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

/// An event's choices, of which nothing else is kept: there are hundreds of events to an answer.
#[derive(Default)]
struct Choices {
    count: usize,
    /// A bit for each of them, and for each that finishes; those beyond the 64th share the last.
    begun: u64,
    finished: u64,
    /// One holds more than the role that opens a message.
    has_content: bool,
}

#[derive(Deserialize)]
struct Choice {
    index: Option<u64>,
    finish_reason: Option<IgnoredAny>,
    delta: Option<Delta>,
}

/// A choice's part of a message.
struct Delta {
    has_content: bool,
}

#[derive(Deserialize)]
struct Tokens {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
}

impl Provider for OpenAi {
    fn messages<'c>(&self, _call: &Call<'c>) -> Vec<Edit<'c>> {
        vec![]
    }

    fn params<'c>(&self, call: &Call<'c>, model: &str) -> Vec<Edit<'c>> {
        call.edits(model)
    }

    fn usage<'c>(&self, call: &Call<'c>) -> Option<Edit<'c>> {
        call.usage_edit()
    }

    fn path(&self) -> &'static str {
        "/chat/completions"
    }

    fn answer(&self, body: &[u8]) -> Result<Usage, Error> {
        let body = object(body).ok_or(Error::BadAnswer("no JSON object"))?;
        let parsed: Body<'_, &RawValue> =
            read(body).map_err(|_| Error::BadAnswer("no valid JSON"))?;
        if parsed.is_error() {
            return Err(Error::Answered(Box::new(within_success(body))));
        }
        if parsed.choices.is_none() {
            return Err(Error::WrongAnswer("no chat completion"));
        }
        Ok(present(parsed.usage).and_then(usage).unwrap_or_default())
    }

    fn refusal(&self, status: StatusCode, headers: &HeaderMap, body: Bytes) -> Answered {
        let encoding = headers
            .get(header::CONTENT_ENCODING)
            .filter(|encoding| *encoding != "identity")
            .cloned();
        let parsed = first(serde_json::from_slice::<Value>(&body).unwrap_or_default());
        let reason = || {
            let reason = status.canonical_reason();
            reason.unwrap_or("the provider failed").to_owned()
        };
        Answered {
            status,
            message: message_of(&parsed).unwrap_or_else(reason),
            code: code_of(&parsed),
            retry_after: retry_after::of_headers(headers, std::time::SystemTime::now())
                .or_else(|| retry_after::of_body(&body)),
            // A compressed body can't be looked into; with its encoding beside it, the client can read it.
            body: (is_in_our_form(&parsed) || encoding.is_some()).then_some(body),
            encoding,
        }
    }

    fn event(&self, name: &[u8], data: &[u8]) -> Event {
        if data.trim_ascii() == b"[DONE]" {
            return Holds::Terminator.into();
        }
        let parsed = object(data).and_then(event);
        if name == b"error" || parsed.as_ref().is_some_and(Body::is_error) {
            return Holds::Failure(Box::new(within_success(data))).into();
        }
        let Some(parsed) = parsed else {
            // Whatever it is, the client was sent it, so it is not ours to hold back.
            return Holds::Content.into();
        };
        let told = present(parsed.usage);
        let choices = parsed.choices.unwrap_or_default();
        let holds = match &choices {
            Choices { count: 0, .. } if told.is_some() => Holds::UsageOnly,
            Choices { finished: 1.., .. } => Holds::Finish,
            Choices { has_content, .. } if *has_content => Holds::Content,
            _ => Holds::Preamble,
        };
        Event {
            holds,
            usage: told.and_then(usage),
            choices: choices.begun,
            finished: choices.finished,
        }
    }

    fn terminator(&self) -> Option<&'static str> {
        Some("[DONE]")
    }
}

impl<C> Body<'_, C> {
    fn is_error(&self) -> bool {
        let is_flat = || {
            self.object
                .is_some_and(|object| object.get() == "\"error\"")
        };
        present(self.error).is_some() || is_flat()
    }
}

/// An event's data, in one pass. Choices in a form that nobody knows are content.
fn event(data: &[u8]) -> Option<Body<'_, Choices>> {
    read(data).ok().or_else(|| {
        let odd: Body<'_, IgnoredAny> = read(data).ok()?;
        let content = |_| Choices {
            count: 1,
            has_content: true,
            ..Choices::default()
        };
        Some(Body {
            error: odd.error,
            choices: odd.choices.map(content),
            usage: odd.usage,
            object: odd.object,
        })
    })
}

/// JSON, whose bytes are checked to be text once and not part by part.
fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> serde_json::Result<T> {
    match str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(bytes),
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Choices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;

        impl<'de> Visitor<'de> for Items {
            type Value = Choices;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Choices, A::Error> {
                let mut choices = Choices::default();
                while let Some(choice) = items.next_element::<Choice>()? {
                    let bit = 1 << choice.index.unwrap_or(0).min(63);
                    choices.count += 1;
                    choices.begun |= bit;
                    choices.finished |= choice.finish_reason.map_or(0, |_| bit);
                    choices.has_content |= choice.delta.is_some_and(|delta| delta.has_content);
                }
                Ok(choices)
            }
        }

        deserializer.deserialize_seq(Items)
    }
}

impl<'de> Deserialize<'de> for Delta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Delta;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Delta, A::Error> {
                let mut has_content = false;
                while let Some((Name(name), value)) = fields.next_entry::<Name<'_>, &RawValue>()? {
                    has_content |= name != "role" && !is_empty(value.get());
                }
                Ok(Delta { has_content })
            }

            // Some languages write an empty object as an empty list.
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Delta, A::Error> {
                let mut has_content = false;
                while items.next_element::<IgnoredAny>()?.is_some() {
                    has_content = true;
                }
                Ok(Delta { has_content })
            }

            // What is neither may be anything.
            fn visit_str<E>(self, _: &str) -> Result<Delta, E> {
                Ok(Delta { has_content: true })
            }

            fn visit_bool<E>(self, _: bool) -> Result<Delta, E> {
                Ok(Delta { has_content: true })
            }

            fn visit_f64<E>(self, _: f64) -> Result<Delta, E> {
                Ok(Delta { has_content: true })
            }

            fn visit_i64<E>(self, _: i64) -> Result<Delta, E> {
                Ok(Delta { has_content: true })
            }

            fn visit_u64<E>(self, _: u64) -> Result<Delta, E> {
                Ok(Delta { has_content: true })
            }
        }

        deserializer.deserialize_any(Fields)
    }
}

/// Whether a value is null, or an empty text, list or object.
fn is_empty(value: &str) -> bool {
    let inner = match value.as_bytes() {
        b"null" | b"\"\"" => return true,
        [b'[', inner @ .., b']'] | [b'{', inner @ .., b'}'] => inner,
        _ => return false,
    };
    inner.trim_ascii().is_empty()
}

/// `bytes` from their first brace on. Some providers keep a waiting client alive by blanks in front.
fn object(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = bytes.trim_ascii_start();
    bytes.starts_with(b"{").then_some(bytes)
}

fn usage(raw: &RawValue) -> Option<Usage> {
    let tokens: Tokens = serde_json::from_str(raw.get()).ok()?;
    Some(Usage {
        prompt_tokens: tokens.prompt_tokens.unwrap_or(0),
        completion_tokens: tokens.completion_tokens.unwrap_or(0),
    })
}

/// An error that came with a success's status. Its own code is the status, if it is one.
fn within_success(body: &[u8]) -> Answered {
    let parsed = first(serde_json::from_slice::<Value>(body.trim_ascii()).unwrap_or_default());
    let number = |value: &Value| {
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
        StatusCode::from_u16(u16::try_from(number).ok()?)
            .ok()
            .filter(|status| status.is_client_error() || status.is_server_error())
    };
    let error = &parsed["error"];
    let told = [
        &error["code"],
        &error["status"],
        &parsed["code"],
        &parsed["status"],
    ];
    Answered {
        status: told
            .into_iter()
            .find_map(number)
            .unwrap_or(StatusCode::BAD_GATEWAY),
        message: message_of(&parsed).unwrap_or_else(|| "the provider failed".to_owned()),
        code: code_of(&parsed),
        retry_after: retry_after::of_body(body),
        body: is_in_our_form(&parsed)
            .then(|| Bytes::from(serde_json::json!({ "error": error }).to_string())),
        encoding: None,
    }
}

/// Some wrap an error in a list.
fn first(body: Value) -> Value {
    match body {
        Value::Array(items) => items.into_iter().next().unwrap_or_default(),
        other => other,
    }
}

/// `{"error": {"message": "…", "type": "…"}}`: the clients read the one and branch on the other.
fn is_in_our_form(body: &Value) -> bool {
    let error = &body["error"];
    let is_told = |name: &str| error[name].as_str().is_some_and(|text| !text.is_empty());
    is_told("message") && is_told("type")
}

/// The message, in the forms that providers use: `error.message`, `error` as text, `message`, `detail`.
fn message_of(body: &Value) -> Option<String> {
    let error = &body["error"];
    let text = error["message"]
        .as_str()
        .or(error.as_str())
        .or(body["message"].as_str())
        .or(body["detail"].as_str())?;
    let text: String = text.chars().take(MESSAGE_CHARS_MAX).collect();
    (!text.trim().is_empty()).then_some(text)
}

fn code_of(body: &Value) -> Option<String> {
    let error = &body["error"];
    let code = [
        &error["code"],
        &body["code"],
        &error["type"],
        &error["status"],
    ];
    code.into_iter().find_map(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_completion_or_says_what_it_is_instead() {
        let check = |body: &str, expected: &str| {
            let found = match OpenAi.answer(body.as_bytes()) {
                Ok(usage) => format!("{}+{}", usage.prompt_tokens, usage.completion_tokens),
                Err(error) => format!("{} {error}", error.facts().status.as_u16()),
            };
            assert_eq!(found, expected, "{body}");
        };
        check(
            r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9}}"#,
            "7+9",
        );
        check("\n\n  {\"choices\":[]}", "0+0");
        check(r#"{"choices":[],"usage":{"prompt_tokens":"many"}}"#, "0+0");
        check(r#"{"choices":[],"error":null}"#, "0+0");
        check("null", "502 the provider's answer is no JSON object");
        check("<html>", "502 the provider's answer is no JSON object");
        check(
            r#"{"choices":[]"#,
            "502 the provider's answer is no valid JSON",
        );
        check(
            r#"{"id":1}"#,
            "502 the provider's answer is no chat completion",
        );
        check(
            r#"{"error":{"message":"no","code":429}}"#,
            "429 the provider answered 429 Too Many Requests",
        );
        check(
            r#"{"error":{"message":"no","code":"x"}}"#,
            "502 the provider answered 502 Bad Gateway",
        );
        check(
            r#"{"error":"no"}"#,
            "502 the provider answered 502 Bad Gateway",
        );
    }

    #[test]
    fn an_answer_that_is_no_text_is_none() {
        let answer = b"{\"choices\":[{\"message\":{\"content\":\"\xe4\"}}]}";
        assert!(matches!(OpenAi.answer(answer), Err(Error::BadAnswer(_))));
    }

    #[test]
    fn a_refusal_in_the_openai_form_is_passed_on_byte_for_byte() {
        let body = Bytes::from_static(
            br#"{"error":{"message":"bad","type":"t","param":null,"code":"c"}, "x":1.0}"#,
        );
        let answered = OpenAi.refusal(StatusCode::BAD_REQUEST, &HeaderMap::new(), body.clone());
        assert_eq!(
            (answered.body, answered.code.as_deref()),
            (Some(body), Some("c"))
        );
    }

    #[test]
    fn a_refusal_in_another_form_keeps_its_message_and_an_empty_one_gets_the_reason() {
        let check = |body: &'static str, message: &str| {
            let answered = OpenAi.refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                &HeaderMap::new(),
                Bytes::from_static(body.as_bytes()),
            );
            assert_eq!(
                (answered.body, answered.message.as_str()),
                (None, message),
                "{body}"
            );
        };
        check(r#"{"object":"error","message":"flat"}"#, "flat");
        check(r#"{"error":"text"}"#, "text");
        check(r#"{"error":{"message":""}}"#, "Service Unavailable");
        check("<html>busy</html>", "Service Unavailable");
        check("", "Service Unavailable");
    }

    #[test]
    fn an_event_says_whether_the_client_waits_for_it() {
        let check = |data: &str, expected: &str| {
            let event = OpenAi.event(b"", data.as_bytes());
            let name = format!("{:?}", event.holds);
            assert_eq!(name.split('(').next(), Some(expected), "{data}");
        };
        check(
            r#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
            "Preamble",
        );
        check(r#"{"choices":[],"prompt_filter_results":[]}"#, "Preamble");
        check(r#"{"choices":[{"delta":{"content":"a"}}]}"#, "Content");
        check(
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
            "Content",
        );
        check(
            r#"{"choices":[{"delta":{"reasoning_content":"a"}}]}"#,
            "Content",
        );
        for nothing in ["null", r#""""#, "[]", "[ ]", "{}", "{\n}"] {
            check(
                &format!(r#"{{"choices":[{{"delta":{{"role":"a","content":{nothing} }}}}]}}"#),
                "Preamble",
            );
        }
        for something in ["0", "false", r#"" ""#, "[null]", r#"{"a":null}"#] {
            check(
                &format!(r#"{{"choices":[{{"delta":{{"c\u006fntent":{something},"role":""}}}}]}}"#),
                "Content",
            );
        }
        check(r#"{"choices":[{"delta":"text"}]}"#, "Content");
        check(
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}"#,
            "Finish",
        );
        check(r#"{"choices":[{"delta":[]}]}"#, "Preamble");
        for odd in ["[1]", r#""a""#, "true", "1", "-1", "1.5"] {
            check(&format!(r#"{{"choices":[{{"delta":{odd}}}]}}"#), "Content");
            check(
                &format!(r#"{{"choices":[{{"delta":{odd},"finish_reason":"stop"}}]}}"#),
                "Finish",
            );
        }
        for unknown in [r#"[{"index":"a"}]"#, "[0]", "{}"] {
            check(&format!(r#"{{"choices":{unknown}}}"#), "Content");
        }
        check("not json", "Content");
        check("[DONE]", "Terminator");
        check(r#"{"error":{"message":"overloaded"}}"#, "Failure");
        let last = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        check(last, "UsageOnly");
        assert_eq!(
            OpenAi.event(b"", last.as_bytes()).usage,
            Some(Usage {
                prompt_tokens: 3,
                completion_tokens: 4
            })
        );
    }
}
