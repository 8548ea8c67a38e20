//! An answer that prefixgate gives in the model's place: whole and valid, so that an agent ends its
//! turn in order.
//!
//! Source: provider docs and SDK types, Nov 2026: the events of a stream in their order, the members
//! that SDKs require of a response.

use serde_json::{Value, json};

/// A chat completion of one text that ends the turn.
pub(in crate::provider) fn completion(id: &str, model: &str, text: &str, at_s: i64) -> Vec<u8> {
    let mut completion = chat_envelope("chat.completion", id, model, at_s);
    completion["choices"] = json!([{
        "index": 0,
        "message": {"role": "assistant", "content": text, "refusal": null, "annotations": []},
        "logprobs": null,
        "finish_reason": "stop",
    }]);
    completion["usage"] = chat_usage();
    completion.to_string().into_bytes()
}

/// The same as a stream.
pub(in crate::provider) fn completion_stream(
    id: &str,
    model: &str,
    text: &str,
    at_s: i64,
) -> Vec<u8> {
    let choice = |delta: Value, reason: Value| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]);
    let mut stream = Vec::new();
    let deltas = [
        (
            json!({"role": "assistant", "content": "", "refusal": null}),
            Value::Null,
        ),
        (json!({"content": text}), Value::Null),
        (json!({}), "stop".into()),
    ];
    for (delta, reason) in deltas {
        let mut chunk = chat_envelope("chat.completion.chunk", id, model, at_s);
        if reason.is_string() {
            // Not in a chunk of its own: that would have no choices, and clients that did not ask
            // for the usage fail on such a chunk.
            chunk["usage"] = chat_usage();
        }
        chunk["choices"] = choice(delta, reason);
        stream.extend_from_slice(format!("data: {chunk}\n\n").as_bytes());
    }
    stream.extend_from_slice(b"data: [DONE]\n\n");
    stream
}

/// A response of one text that ends the turn.
pub(in crate::provider) fn response(id: &str, model: &str, text: &str, at_s: i64) -> Vec<u8> {
    let mut response = envelope(id, model, at_s);
    completed(&mut response, id, text, at_s);
    response.to_string().into_bytes()
}

/// The same as a stream.
pub(in crate::provider) fn response_stream(
    id: &str,
    model: &str,
    text: &str,
    at_s: i64,
) -> Vec<u8> {
    let begun = envelope(id, model, at_s);
    let mut whole = begun.clone();
    completed(&mut whole, id, text, at_s);
    let mut item_begun = message(id, json!([]));
    item_begun["status"] = "in_progress".into();
    let item_id = &item_begun["id"];
    let events = [
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.in_progress", "response": begun}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": item_begun}),
        json!({
            "type": "response.content_part.added", "item_id": item_id, "output_index": 0,
            "content_index": 0, "part": part(""),
        }),
        json!({
            "type": "response.output_text.delta", "item_id": item_id, "output_index": 0,
            "content_index": 0, "delta": text, "logprobs": [],
        }),
        json!({
            "type": "response.output_text.done", "item_id": item_id, "output_index": 0,
            "content_index": 0, "text": text, "logprobs": [],
        }),
        json!({
            "type": "response.content_part.done", "item_id": item_id, "output_index": 0,
            "content_index": 0, "part": part(text),
        }),
        json!({
            "type": "response.output_item.done", "output_index": 0,
            "item": message(id, json!([part(text)])),
        }),
        json!({"type": "response.completed", "response": whole}),
    ];
    let mut stream = Vec::new();
    for (number, mut event) in events.into_iter().enumerate() {
        event["sequence_number"] = number.into();
        let name = event["type"].as_str().unwrap_or_default();
        stream.extend_from_slice(format!("event: {name}\ndata: {event}\n\n").as_bytes());
    }
    stream
}

/// A completion or a chunk of one as far as it is known before its choices.
fn chat_envelope(object: &str, id: &str, model: &str, at_s: i64) -> Value {
    json!({
        "id": format!("chatcmpl-{id}"),
        "object": object,
        "created": at_s,
        "model": model,
        "choices": [],
        "service_tier": "default",
        "system_fingerprint": null,
    })
}

/// No model has run.
fn chat_usage() -> Value {
    json!({
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "total_tokens": 0,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    })
}

/// A response as far as it is known before its output. What the request asked for is not repeated.
fn envelope(id: &str, model: &str, at_s: i64) -> Value {
    json!({
        "id": format!("resp_{id}"),
        "object": "response",
        "created_at": at_s,
        "status": "in_progress",
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "max_output_tokens": null,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "service_tier": "default",
        "temperature": null,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": null,
        "truncation": "disabled",
        "usage": null,
    })
}

/// Ends a response with this text.
fn completed(response: &mut Value, id: &str, text: &str, at_s: i64) {
    response["status"] = "completed".into();
    response["completed_at"] = at_s.into();
    response["output"] = json!([message(id, json!([part(text)]))]);
    // No model has run.
    response["usage"] = json!({
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    });
}

fn message(id: &str, content: Value) -> Value {
    json!({
        "id": format!("msg_{id}"),
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": content,
    })
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::reader::{Limits, Reader, Shape};
    use crate::provider::view::Answer;
    use crate::provider::wire::Wire;
    use crate::sse;

    const TEXT: &str = "stopped: \"read_file\"\n渐 🙂";
    const AT: i64 = 1_796_000_000;

    fn read(wire: Wire, stream: bool, bytes: &[u8]) -> Answer {
        let kind = if stream {
            "text/event-stream; charset=utf-8"
        } else {
            "application/json"
        };
        let mut reader = Reader::new(wire, Shape::of(200, Some(kind)), Limits::default());
        reader.feed(bytes);
        reader.end(None);
        reader.into_answer()
    }

    fn events(bytes: &[u8]) -> Vec<(Option<String>, String)> {
        let mut all = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut decoder = sse::Decoder::new(1 << 16);
        decoder.feed(bytes, |event| {
            all.push((event.name.map(text), text(event.data)));
        });
        assert!(decoder.on_border());
        all
    }

    #[test]
    fn our_own_reader_takes_all_of_them_for_whole_answers() {
        for (wire, id, stop) in [
            (Wire::Chat, "chatcmpl-1", "stop"),
            (Wire::Responses, "resp_1", "completed"),
        ] {
            for stream in [false, true] {
                let bytes = if stream {
                    wire.answer_stream("1", "m", TEXT, AT)
                } else {
                    wire.answer_body("1", "m", TEXT, AT)
                };
                let answer = read(wire, stream, &bytes);
                assert!(answer.finished && answer.usage_complete, "{answer:?}");
                assert_eq!(answer.stop_reason.as_deref(), Some(stop));
                assert_eq!(answer.id.as_deref(), Some(id));
                assert_eq!(answer.metered.model.as_deref(), Some("m"));
                assert_eq!(answer.metered.usage.prompt(), Some(0));
                assert_eq!(answer.metered.usage.output, Some(0));
                assert_eq!(answer.delivered_bytes, TEXT.len() as u64);
                assert!(answer.warnings.is_empty() && answer.error.is_none());
                let at = String::from_utf8(bytes).unwrap();
                assert!(at.contains(&Value::from(TEXT).to_string()));
            }
        }
    }

    /// B03 (i) and C10: chunks have no names, and each has a choice.
    #[test]
    fn b03_chunks_have_no_names_and_none_is_without_a_choice() {
        let events = events(&completion_stream("1", "m", TEXT, AT));
        let (last, chunks) = events.split_last().unwrap();
        assert_eq!(last, &(None, "[DONE]".into()));
        for (name, data) in chunks {
            let chunk: Value = serde_json::from_str(data).unwrap();
            assert_eq!(name, &None);
            assert_eq!(chunk["choices"].as_array().map(Vec::len), Some(1));
        }
    }

    /// B03 (i): the events of Responses are named by their type and counted from zero, and the item
    /// of the stream is the item of the whole response.
    #[test]
    fn b03_events_of_responses_are_named_and_counted() {
        let events = events(&response_stream("1", "m", TEXT, AT));
        let mut item = Value::Null;
        for (number, (name, data)) in events.iter().enumerate() {
            let event: Value = serde_json::from_str(data).unwrap();
            assert_eq!(event["type"].as_str(), name.as_deref());
            assert_eq!(event["sequence_number"], number);
            if event["type"] == "response.output_item.done" {
                item = event["item"].clone();
            } else if event["type"] == "response.completed" {
                assert_eq!(event["response"]["output"][0], item);
                let whole: Value = serde_json::from_slice(&response("1", "m", TEXT, AT)).unwrap();
                assert_eq!(event["response"], whole);
            }
        }
        assert_eq!(item["content"][0]["text"], TEXT);
    }
}
