//! An answer as OpenAI's chat API has it.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::answer::{Form, Tokens};

/// A completion but for its text.
#[derive(Debug)]
pub(super) struct Chat {
    /// Fields that every object of the answer opens with, but for `object`.
    opening: String,
    usage: String,
    wants_usage: bool,
}

impl Chat {
    /// A new one by `model`, a name as JSON. A stream of it tells its usage if that is wanted.
    pub(super) fn new(model: &str, tokens: Tokens, wants_usage: bool) -> Self {
        let number = fastrand::u64(..);
        let created = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let Tokens { prompt, completion } = tokens;
        let total = prompt + completion;
        Self {
            opening: format!(
                r#""id":"chatcmpl-{number:016x}","created":{created},"model":{model}"#
            ),
            usage: format!(
                r#"{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total}}}"#
            ),
            wants_usage,
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

    fn choice(&self, delta: &str, finish_reason: &str) -> Bytes {
        let choice = format!(
            r#"{{"index":0,"delta":{{{delta}}},"logprobs":null,"finish_reason":{finish_reason}}}"#
        );
        self.event(&choice, "null")
    }
}

impl Form for Chat {
    fn plain(&self, content: &str) -> Bytes {
        let Self { opening, usage, .. } = self;
        Bytes::from(format!(
            "{{{opening},\"object\":\"chat.completion\",\"choices\":[{{\"index\":0,\
             \"message\":{{\"role\":\"assistant\",\"content\":\"{content}\",\"refusal\":null}},\
             \"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":{usage}}}"
        ))
    }

    /// The role.
    fn lead(&self) -> usize {
        1
    }

    /// What finished it, the usage if wanted, and the end mark.
    fn trail(&self) -> usize {
        2 + usize::from(self.wants_usage)
    }

    fn before(&self, _: usize) -> Bytes {
        self.choice(r#""role":"assistant","content":"","refusal":null"#, "null")
    }

    fn piece(&self, text: &str) -> Bytes {
        self.choice(&format!(r#""content":"{text}""#), "null")
    }

    fn after(&self, place: usize) -> Bytes {
        match place {
            0 => self.choice("", r#""stop""#),
            1 if self.wants_usage => self.event("", &self.usage),
            _ => Bytes::from_static(b"data: [DONE]\n\n"),
        }
    }
}
