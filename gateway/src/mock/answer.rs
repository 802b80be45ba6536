//! What the mock reads in a request and says in return, whichever API it is asked by. No I/O.

use std::borrow::Cow;
use std::fmt::Debug;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::chat::Chat;
use super::message::Message;

/// What content is made of, over and over: one byte a character, and nothing that JSON would escape.
const SENTENCE: &str = "Bifrost is the bridge that burns between the worlds. ";

/// How much text one token stands for in the mock's usage figures, about what English takes.
const TOKEN_BYTES: usize = 4;

/// The API that a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// OpenAI's chat completions.
    Chat,
    /// Anthropic's Messages.
    Messages,
}

impl Dialect {
    /// The one that is spoken at `path`, whatever stands before it.
    pub(super) fn at(path: &str) -> Option<Self> {
        if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else if path.ends_with("/messages") {
            Some(Self::Messages)
        } else {
            None
        }
    }
}

/// The fields of a request that decide its answer.
#[derive(Debug, Deserialize)]
pub(super) struct Ask<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    messages: Vec<IgnoredAny>,
    max_tokens: Option<IgnoredAny>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl<'a> Ask<'a> {
    /// Reads a request's body, or says what is wrong with it.
    pub(super) fn parse(body: &'a [u8], dialect: Dialect) -> Result<Self, String> {
        let ask: Self = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if ask.messages.is_empty() {
            return Err("`messages` has no message".to_owned());
        }
        if dialect == Dialect::Messages && ask.max_tokens.is_none() {
            return Err("missing field `max_tokens`".to_owned());
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

/// What an answer says that it used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens {
    pub(super) prompt: usize,
    pub(super) completion: usize,
}

/// How an API writes an answer: all but its text.
pub(super) trait Form: Debug + Send {
    /// The whole answer as one object.
    fn plain(&self, content: &str) -> Bytes;
    /// Events of a stream before the first piece of its content, and after the last.
    fn lead(&self) -> usize;
    fn trail(&self) -> usize;
    /// The event at `place` among those before.
    fn before(&self, place: usize) -> Bytes;
    /// The event with this piece.
    fn piece(&self, text: &str) -> Bytes;
    /// The event at `place` among those after.
    fn after(&self, place: usize) -> Bytes;
}

/// One answer, in the pieces that a plain one and a stream have in common.
#[derive(Debug)]
pub(super) struct Answer {
    form: Box<dyn Form>,
    content: String,
}

impl Answer {
    /// The answer to `ask`, whose body had `request_bytes`, with as much content as makes it `body_bytes` when plain.
    pub(super) fn new(
        ask: &Ask,
        dialect: Dialect,
        request_bytes: usize,
        body_bytes: usize,
    ) -> Self {
        let model = serde_json::to_string(&ask.model).expect("a string can be JSON");
        let tokens = Tokens {
            prompt: request_bytes.div_ceil(TOKEN_BYTES),
            completion: body_bytes.div_ceil(TOKEN_BYTES),
        };
        let form: Box<dyn Form> = match dialect {
            Dialect::Chat => Box::new(Chat::new(&model, tokens, ask.wants_usage())),
            Dialect::Messages => Box::new(Message::new(&model, tokens)),
        };
        let content = text(body_bytes.saturating_sub(form.plain("").len()));
        Self { form, content }
    }

    /// The whole answer as one object.
    pub(super) fn plain(&self) -> Bytes {
        self.form.plain(&self.content)
    }

    /// The answer as a stream's events, its content in `chunks` pieces.
    pub(super) fn events(self, chunks: usize) -> Events {
        Events {
            answer: self,
            chunks,
            next: 0,
        }
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
    /// The place of the next event among all.
    next: usize,
}

impl Events {
    /// Whether the next event is one that a model would still have to think of: any piece of content but the first.
    pub(super) fn is_paced(&self) -> bool {
        let first = self.answer.form.lead();
        (first + 1..first + self.chunks).contains(&self.next)
    }

    /// How many there are in all.
    pub(super) fn len(&self) -> usize {
        self.answer.form.lead() + self.chunks + self.answer.form.trail()
    }

    pub(super) fn is_over(&self) -> bool {
        self.next == self.len()
    }
}

impl Iterator for Events {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_over() {
            return None;
        }
        let place = self.next;
        self.next += 1;
        let form = &self.answer.form;
        let Some(place) = place.checked_sub(form.lead()) else {
            return Some(form.before(place));
        };
        let Some(place) = place.checked_sub(self.chunks) else {
            return Some(form.piece(self.answer.piece(place, self.chunks)));
        };
        Some(form.after(place))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const BODY: &[u8] = br#"{"model":"m\"1","messages":[{}],"stream":true}"#;

    fn answer(body: &[u8], body_bytes: usize) -> Answer {
        let ask = Ask::parse(body, Dialect::Chat).unwrap();
        Answer::new(&ask, Dialect::Chat, body.len(), body_bytes)
    }

    #[test]
    fn a_plain_answer_has_exactly_the_size_asked_for() {
        let body = br#"{"model":"m\"1","messages":[{}],"max_tokens":9}"#;
        for dialect in [Dialect::Chat, Dialect::Messages] {
            for size in [400, 999, 1_000, 1_407, 10_563] {
                let ask = Ask::parse(body, dialect).unwrap();
                let plain = Answer::new(&ask, dialect, body.len(), size).plain();
                assert_eq!(plain.len(), size, "{dialect:?}");
                let json: Value = serde_json::from_slice(&plain).unwrap();
                assert_eq!(json["model"], "m\"1");
            }
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
        let refused = |body: &str, dialect, reason: &str| {
            let error = Ask::parse(body.as_bytes(), dialect).unwrap_err();
            assert!(error.contains(reason), "{error}");
        };
        let check = |body, reason| refused(body, Dialect::Chat, reason);
        check("{", "EOF");
        check(r#"{"messages":[{}]}"#, "missing field `model`");
        check(r#"{"model":"m"}"#, "missing field `messages`");
        check(r#"{"model":"m","messages":[]}"#, "no message");
        check(r#"{"model":"m","messages":[{}],"stream":1}"#, "boolean");
        let unbounded = r#"{"model":"m","messages":[{}]}"#;
        refused(unbounded, Dialect::Messages, "`max_tokens`");
    }
}
