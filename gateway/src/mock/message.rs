//! An answer as Anthropic's Messages API has it.

use bytes::Bytes;
use serde_json::json;

use super::answer::{Form, Tokens};

/// Events before the first piece: the message, its one block, and a ping, which may come anywhere.
const LEAD: usize = 3;
/// And after the last: the block's end, why it ended, and the message's end.
const TRAIL: usize = 3;

/// A message but for its text.
#[derive(Debug)]
pub(super) struct Message {
    /// Fields that the message opens with.
    opening: String,
    tokens: Tokens,
}

impl Message {
    /// A new one by `model`, a name as JSON.
    pub(super) fn new(model: &str, tokens: Tokens) -> Self {
        let number = fastrand::u64(..);
        Self {
            opening: format!(
                r#""id":"msg_{number:016x}","type":"message","role":"assistant","model":{model}"#
            ),
            tokens,
        }
    }

    fn usage(&self, output: usize) -> String {
        let input = self.tokens.prompt;
        format!(
            r#"{{"input_tokens":{input},"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":{output}}}"#
        )
    }
}

impl Form for Message {
    fn plain(&self, content: &str) -> Bytes {
        let (opening, usage) = (&self.opening, self.usage(self.tokens.completion));
        Bytes::from(format!(
            r#"{{{opening},"content":[{{"type":"text","text":"{content}"}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{usage}}}"#
        ))
    }

    fn lead(&self) -> usize {
        LEAD
    }

    fn trail(&self) -> usize {
        TRAIL
    }

    fn before(&self, place: usize) -> Bytes {
        match place {
            0 => {
                // What it has said until now is one token at most.
                let (opening, usage) = (&self.opening, self.usage(1));
                event(
                    "message_start",
                    &format!(
                        r#","message":{{{opening},"content":[],"stop_reason":null,"stop_sequence":null,"usage":{usage}}}"#
                    ),
                )
            }
            1 => event(
                "content_block_start",
                r#","index":0,"content_block":{"type":"text","text":""}"#,
            ),
            _ => event("ping", ""),
        }
    }

    fn piece(&self, text: &str) -> Bytes {
        event(
            "content_block_delta",
            &format!(r#","index":0,"delta":{{"type":"text_delta","text":"{text}"}}"#),
        )
    }

    fn after(&self, place: usize) -> Bytes {
        match place {
            0 => event("content_block_stop", r#","index":0"#),
            1 => {
                // The sum of all that was said, not what is new.
                let output = self.tokens.completion;
                event(
                    "message_delta",
                    &format!(
                        r#","delta":{{"stop_reason":"end_turn","stop_sequence":null}},"usage":{{"output_tokens":{output}}}"#
                    ),
                )
            }
            _ => event("message_stop", ""),
        }
    }
}

/// An event, named twice: the official clients pass over those without an `event:` line.
fn event(name: &str, fields: &str) -> Bytes {
    Bytes::from(format!(
        "event: {name}\ndata: {{\"type\":\"{name}\"{fields}}}\n\n"
    ))
}

/// An error's body, for the request with that number.
pub(super) fn error(status: u16, message: &str, request: &str) -> String {
    let kind = match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": request})
        .to_string()
}
