//! A stream of Chat Completions or Responses put together to what a client has at the end.
//!
//! Content can only be judged whole, since what a stream says may be cut anywhere: pieces of text
//! are joined, also those of members that are not known yet. `logprobs` are left out: they say the
//! text once more in pieces. Source of the events: provider docs and SDK types, Nov 2026.

mod chat;
mod responses;

use serde_json::{Map, Value};

use crate::provider::assembled::Assembled;
use crate::sse;

/// Most choices, items, parts or calls of one list; of more, the first ones are taken.
const MAX_PARTS: usize = 1_024;

/// What the text is told once more in, token by token.
const LOGPROBS: &str = "logprobs";

/// What the decoded bytes of a stream tell. `None` if not one event of these formats has come.
#[must_use]
pub fn assembled(stream: &[u8]) -> Option<Assembled> {
    let mut parts = Parts::default();
    let mut decoder = sse::Decoder::new(stream.len());
    decoder.feed(stream, |event| {
        parts.gaps |= event.after_gap;
        parts.event(event.data);
    });
    let lost = decoder.oversized() > 0;
    parts.whole().map(|whole| Assembled {
        gaps: whole.gaps || lost,
        ..whole
    })
}

#[derive(Debug, Default)]
struct Parts {
    chat: chat::Parts,
    responses: responses::Parts,
    error: Option<Value>,
    gaps: bool,
}

impl Parts {
    fn event(&mut self, data: &[u8]) {
        if data == b"[DONE]" {
            self.chat.done();
            return;
        }
        let Ok(Value::Object(mut event)) = serde_json::from_slice(data) else {
            self.gaps = true;
            return;
        };
        let kind = match event.get("type") {
            Some(Value::String(kind)) => kind.clone(),
            _ => String::new(),
        };
        if kind.starts_with("response.") {
            self.gaps |= !self.responses.event(&kind, event);
        } else if event.get("choices").is_some_and(Value::is_array) {
            self.gaps |= !self.chat.chunk(event);
        } else if let Some(error) = event.remove("error").filter(|error| !error.is_null()) {
            self.error = Some(error);
        } else if kind == "error" {
            self.error = Some(Value::Object(event));
        }
    }

    fn whole(self) -> Option<Assembled> {
        let (told, finished) = match (self.responses.whole(), self.chat.whole()) {
            (Some(whole), _) | (None, Some(whole)) => whole,
            (None, None) => (Map::new(), false),
        };
        let mut message = told;
        let failed = self.error.is_some();
        if let Some(error) = self.error {
            message.insert("error".into(), error);
        }
        if message.is_empty() {
            return None;
        }
        Some(Assembled {
            message: Value::Object(message),
            finished: finished || failed,
            gaps: self.gaps,
        })
    }
}

/// Takes the logprobs out of a value, wherever they stand.
fn without_logprobs(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove(LOGPROBS);
            members.values_mut().for_each(without_logprobs);
        }
        Value::Array(values) => values.iter_mut().for_each(without_logprobs),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
