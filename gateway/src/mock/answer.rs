//! What the mock reads in a request and says in return, as OpenAI's chat API has it. No I/O.

use std::borrow::Cow;
use std::mem;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// What content is made of, over and over: one byte a character, and nothing that JSON would escape.
const SENTENCE: &str = "Bifrost is the bridge that burns between the worlds. ";

/// How much text one token stands for in the mock's usage figures, about what English takes.
const TOKEN_BYTES: usize = 4;

/// The fields of a request that decide its answer.
#[derive(Debug, Deserialize)]
pub(super) struct Ask<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    messages: Vec<IgnoredAny>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl<'a> Ask<'a> {
    /// Reads a request's body, or says what is wrong with it.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, String> {
        let ask: Self = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if ask.messages.is_empty() {
            return Err("`messages` has no message".to_owned());
        }
        Ok(ask)
    }

    pub(super) fn wants_stream(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    fn wants_usage(&self) -> bool {
        let options = self.stream_options.as_ref();
        options.and_then(|options| options.include_usage) == Some(true)
    }
}

/// One answer, in the pieces that a plain one and a stream have in common.
#[derive(Debug)]
pub(super) struct Answer {
    /// Fields that every object of the answer opens with, but for `object`.
    opening: String,
    content: String,
    usage: String,
    wants_usage: bool,
}

impl Answer {
    /// The answer to `ask`, whose body had `request_bytes`, with as much content as makes it `body_bytes` when plain.
    pub(super) fn new(ask: &Ask, request_bytes: usize, body_bytes: usize) -> Self {
        let number = fastrand::u64(..);
        let created = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let model = serde_json::to_string(&ask.model).expect("a string can be JSON");
        let prompt = request_bytes.div_ceil(TOKEN_BYTES);
        let completion = body_bytes.div_ceil(TOKEN_BYTES);
        let total = prompt + completion;

        let mut answer = Self {
            opening: format!(
                r#""id":"chatcmpl-{number:016x}","created":{created},"model":{model}"#
            ),
            content: String::new(),
            usage: format!(
                r#"{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total}}}"#
            ),
            wants_usage: ask.wants_usage(),
        };
        answer.content = text(body_bytes.saturating_sub(answer.plain().len()));
        answer
    }

    /// The whole answer as one object.
    pub(super) fn plain(&self) -> Bytes {
        let Self {
            opening,
            content,
            usage,
            ..
        } = self;
        Bytes::from(format!(
            "{{{opening},\"object\":\"chat.completion\",\"choices\":[{{\"index\":0,\
             \"message\":{{\"role\":\"assistant\",\"content\":\"{content}\",\"refusal\":null}},\
             \"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":{usage}}}"
        ))
    }

    /// The answer as a stream's events, its content in `chunks` pieces.
    pub(super) fn events(self, chunks: usize) -> Events {
        Events {
            answer: self,
            chunks,
            next: Event::Role,
        }
    }

    fn event(&self, choices: &str, usage: &str) -> Bytes {
        let Self {
            opening,
            wants_usage,
            ..
        } = self;
        let usage = if *wants_usage {
            format!(r#","usage":{usage}"#)
        } else {
            String::new()
        };
        Bytes::from(format!(
            "data: {{{opening},\"object\":\"chat.completion.chunk\",\"choices\":[{choices}]{usage}}}\n\n"
        ))
    }

    /// Piece `n` of `chunks`: as even as whole bytes allow, and all of them together the content.
    fn piece(&self, n: usize, chunks: usize) -> &str {
        let bound = |n| n * self.content.len() / chunks;
        &self.content[bound(n)..bound(n + 1)]
    }
}

fn text(bytes: usize) -> String {
    let mut text = SENTENCE.repeat(bytes.div_ceil(SENTENCE.len()));
    text.truncate(bytes);
    text
}

/// The events of one stream, each made when it is asked for: thousands of streams may be open.
#[derive(Debug)]
pub(super) struct Events {
    answer: Answer,
    chunks: usize,
    next: Event,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Role,
    Content(usize),
    Finish,
    Usage,
    Done,
    Over,
}

impl Events {
    /// Whether the next event is one that a model would still have to think of: any piece of content but the first.
    pub(super) fn is_paced(&self) -> bool {
        matches!(self.next, Event::Content(1..))
    }

    /// How many there are in all.
    pub(super) fn len(&self) -> usize {
        // The role, what finished it, and the end mark.
        self.chunks + 3 + usize::from(self.answer.wants_usage)
    }

    pub(super) fn is_over(&self) -> bool {
        self.next == Event::Over
    }

    fn after(&self, event: Event) -> Event {
        match event {
            Event::Role if self.chunks > 0 => Event::Content(0),
            Event::Content(n) if n + 1 < self.chunks => Event::Content(n + 1),
            Event::Role | Event::Content(_) => Event::Finish,
            Event::Finish if self.answer.wants_usage => Event::Usage,
            Event::Finish | Event::Usage => Event::Done,
            Event::Done | Event::Over => Event::Over,
        }
    }
}

impl Iterator for Events {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let after = self.after(self.next);
        let answer = &self.answer;
        let choice = |delta: &str, finish_reason: &str| {
            let choice = format!(
                r#"{{"index":0,"delta":{{{delta}}},"logprobs":null,"finish_reason":{finish_reason}}}"#
            );
            answer.event(&choice, "null")
        };
        match mem::replace(&mut self.next, after) {
            Event::Role => Some(choice(
                r#""role":"assistant","content":"","refusal":null"#,
                "null",
            )),
            Event::Content(n) => {
                let piece = answer.piece(n, self.chunks);
                Some(choice(&format!(r#""content":"{piece}""#), "null"))
            }
            Event::Finish => Some(choice("", r#""stop""#)),
            Event::Usage => Some(answer.event("", &answer.usage)),
            Event::Done => Some(Bytes::from_static(b"data: [DONE]\n\n")),
            Event::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const BODY: &[u8] = br#"{"model":"m\"1","messages":[{}],"stream":true}"#;

    fn answer(body: &[u8], body_bytes: usize) -> Answer {
        Answer::new(&Ask::parse(body).unwrap(), body.len(), body_bytes)
    }

    #[test]
    fn a_plain_answer_has_exactly_the_size_asked_for() {
        for size in [400, 999, 1_000, 1_407, 10_563] {
            let plain = answer(BODY, size).plain();
            assert_eq!(plain.len(), size);
            let json: Value = serde_json::from_slice(&plain).unwrap();
            assert_eq!(json["model"], "m\"1");
        }
    }

    #[test]
    fn an_answer_that_can_t_be_that_small_is_as_small_as_it_can() {
        let plain = answer(BODY, 0).plain();
        let json: Value = serde_json::from_slice(&plain).unwrap();
        assert_eq!(json["choices"][0]["message"]["content"], "");
    }

    #[test]
    fn a_stream_s_pieces_are_the_content_whatever_their_number() {
        for chunks in [1, 2, 16, 5_000] {
            let answer = answer(BODY, 1_407);
            let pieces: String = (0..chunks).map(|n| answer.piece(n, chunks)).collect();
            assert_eq!(pieces, answer.content);
        }
    }

    #[test]
    fn only_pieces_after_the_first_are_paced() {
        let mut events = answer(BODY, 1_407).events(3);
        let mut paced = Vec::new();
        while !events.is_over() {
            paced.push(events.is_paced());
            events.next();
        }
        assert_eq!(paced.len(), answer(BODY, 1_407).events(3).len());
        // Role, three pieces, finish, done.
        assert_eq!(paced, [false, false, true, true, false, false]);
        assert_eq!(events.next(), None);
    }

    #[test]
    fn what_is_no_request_is_refused_with_the_reason() {
        let check = |body: &str, reason: &str| {
            let error = Ask::parse(body.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        };
        check("{", "EOF");
        check(r#"{"messages":[{}]}"#, "missing field `model`");
        check(r#"{"model":"m"}"#, "missing field `messages`");
        check(r#"{"model":"m","messages":[]}"#, "no message");
        check(r#"{"model":"m","messages":[{}],"stream":1}"#, "boolean");
    }
}
