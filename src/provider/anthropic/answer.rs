//! An answer that prefixgate gives in the model's place: whole and valid, so that an agent ends its
//! turn in order.
//!
//! Source: provider docs and SDK, Nov 2026: the events of a stream in their order, the members that
//! SDKs require of a message.

use serde_json::{Value, json};

/// Content type of a stream.
pub const STREAM_TYPE: &str = "text/event-stream; charset=utf-8";

/// A message of one text that ends the turn. `id` names it; the provider knows no such answer.
#[must_use]
pub fn message_body(id: &str, model: &str, text: &str) -> Vec<u8> {
    let mut message = envelope(id, model);
    message["content"] = json!([{"type": "text", "text": text}]);
    message["stop_reason"] = "end_turn".into();
    message.to_string().into_bytes()
}

/// The same as a stream.
#[must_use]
pub fn message_stream(id: &str, model: &str, text: &str) -> Vec<u8> {
    let events = [
        json!({"type": "message_start", "message": envelope(id, model)}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": usage(),
        }),
        json!({"type": "message_stop"}),
    ];
    let mut stream = Vec::new();
    for event in events {
        // SDKs skip events without a name.
        let name = event["type"].as_str().unwrap_or_default();
        stream.extend_from_slice(format!("event: {name}\ndata: {event}\n\n").as_bytes());
    }
    stream
}

/// A message as far as it is known before its content.
fn envelope(id: &str, model: &str) -> Value {
    json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage(),
    })
}

/// No model has run.
fn usage() -> Value {
    json!({
        "input_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::reader::{Limits, Reader, Shape};
    use crate::provider::wire::Wire;

    const TEXT: &str = "stopped: \"read_file\"\n渐 🙂";

    #[test]
    fn our_own_reader_takes_both_for_a_whole_answer() {
        for stream in [false, true] {
            let (bytes, shape) = if stream {
                let shape = Shape::of(200, Some(STREAM_TYPE));
                (message_stream("msg_1", "m", TEXT), shape)
            } else {
                let shape = Shape::of(200, Some("application/json"));
                (message_body("msg_1", "m", TEXT), shape)
            };
            let mut reader = Reader::new(Wire::Messages, shape, Limits::default());
            reader.feed(&bytes);
            reader.end(None);
            let answer = reader.into_answer();
            assert!(answer.finished && answer.usage_complete, "{answer:?}");
            assert_eq!(answer.stop_reason.as_deref(), Some("end_turn"));
            assert_eq!(answer.id.as_deref(), Some("msg_1"));
            assert_eq!(answer.metered.usage.output, Some(0));
            assert!(answer.warnings.is_empty() && answer.error.is_none());
            let at = String::from_utf8(bytes).unwrap();
            assert!(at.contains(&Value::from(TEXT).to_string()));
        }
    }
}
