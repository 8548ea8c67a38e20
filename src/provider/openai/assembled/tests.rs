use proptest::prelude::*;
use serde_json::json;

use super::*;

fn sse(events: &[Value]) -> String {
    let data = events.iter().map(|event| format!("data: {event}\n\n"));
    data.collect()
}

fn chunk(delta: Value, finish: Option<&str>) -> Value {
    json!({"id": "c1", "object": "chat.completion.chunk", "model": "m", "obfuscation": "xx",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": {"content": [{"token": "sk-"}]}}]})
}

fn chat() -> String {
    let call = |index: u32, more: Value| {
        let mut call = json!({"index": index});
        for (name, value) in more.as_object().unwrap() {
            call[name] = value.clone();
        }
        json!({"tool_calls": [call]})
    };
    let usage =
        json!({"id": "c1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}});
    let events = [
        chunk(json!({"role": "assistant", "content": ""}), None),
        chunk(json!({"content": "my key is sk-ant-"}), None),
        chunk(
            json!({"content": "api03-0123456789", "reasoning_content": "hm"}),
            None,
        ),
        chunk(json!({"reasoning_content": "m"}), None),
        chunk(
            call(
                0,
                json!({"id": "call_1", "type": "function", "function": {"name": "shell", "arguments": ""}}),
            ),
            None,
        ),
        chunk(
            call(0, json!({"function": {"arguments": "{\"cmd\":"}})),
            None,
        ),
        chunk(
            call(
                1,
                json!({"id": "call_2", "type": "function", "function": {"name": "read", "arguments": "{}"}}),
            ),
            None,
        ),
        chunk(
            call(0, json!({"id": "", "function": {"arguments": "\"ls\"}"}})),
            None,
        ),
        chunk(json!({}), Some("tool_calls")),
        usage,
    ];
    sse(&events) + "data: [DONE]\n\n"
}

#[test]
fn chunks_become_the_completion_that_they_tell() {
    let whole = assembled(chat().as_bytes()).unwrap();
    assert!(whole.finished && !whole.gaps);
    let expected = json!({
        "id": "c1", "object": "chat.completion.chunk", "model": "m",
        "usage": {"prompt_tokens": 9, "completion_tokens": 4},
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant",
            "content": "my key is sk-ant-api03-0123456789",
            "reasoning_content": "hmm",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "shell", "arguments": "{\"cmd\":\"ls\"}"}},
                {"id": "call_2", "type": "function", "function": {"name": "read", "arguments": "{}"}},
            ],
        }}],
    });
    assert_eq!(whole.message, expected);
}

#[test]
fn a_broken_stream_of_chunks_gives_what_came() {
    let stream = chat();
    let end = stream.find("reasoning_content").unwrap();
    let broken = assembled(&stream.as_bytes()[..end]).unwrap();
    assert!(!broken.finished);
    assert_eq!(
        broken.message["choices"][0]["message"]["content"],
        "my key is sk-ant-"
    );
    // Without the mark at the end, the reasons say that it is one.
    let unmarked = stream.replace("data: [DONE]\n\n", "");
    assert!(assembled(unmarked.as_bytes()).unwrap().finished);
    let error = sse(&[
        chunk(json!({"content": "a"}), None),
        json!({"error": {"message": "busy"}}),
    ]);
    let error = assembled(error.as_bytes()).unwrap();
    assert!(error.finished);
    assert_eq!(error.message["error"]["message"], "busy");
}

/// With the places that the provider says, or with ids only.
fn responses(places: bool, end: Option<Value>) -> String {
    let at = |mut event: Value, index: u32| {
        if places {
            event["output_index"] = index.into();
        }
        event
    };
    let text = |delta: &str| {
        at(
            json!({"type": "response.output_text.delta", "item_id": "msg_1", "content_index": 0, "delta": delta, "logprobs": [{"token": delta}]}),
            1,
        )
    };
    let begun = json!({"id": "resp_1", "object": "response", "status": "in_progress", "model": "m", "output": []});
    let mut events = vec![
        json!({"type": "response.created", "response": begun}),
        at(
            json!({"type": "response.output_item.added", "item": {"id": "rs_1", "type": "reasoning", "summary": []}}),
            0,
        ),
        at(
            json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "summary_index": 0, "delta": "think"}),
            0,
        ),
        at(
            json!({"type": "response.output_item.added", "item": {"id": "msg_1", "type": "message", "role": "assistant", "content": []}}),
            1,
        ),
        text("my key is sk-ant-"),
        text("api03-0123456789"),
        at(
            json!({"type": "response.output_item.added", "item": {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "shell", "arguments": ""}}),
            2,
        ),
        at(
            json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{\"cmd\":"}),
            2,
        ),
        at(
            json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "\"ls\"}"}),
            2,
        ),
    ];
    events.extend(end);
    sse(&events)
}

fn output() -> Value {
    json!([
        {"id": "rs_1", "type": "reasoning", "summary": [{"text": "think"}]},
        {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"text": "my key is sk-ant-api03-0123456789"}]},
        {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "shell", "arguments": "{\"cmd\":\"ls\"}"},
    ])
}

#[test]
fn events_become_the_response_that_they_tell_also_before_its_end() {
    for places in [true, false] {
        let cut = assembled(responses(places, None).as_bytes()).unwrap();
        assert!(!cut.finished && !cut.gaps);
        assert_eq!(cut.message["output"], output(), "{places}");
        assert_eq!(cut.message["id"], "resp_1");
        // Some servers leave the items out at the end.
        let end = json!({"type": "response.completed", "response": {"status": "completed", "output": [], "usage": {"input_tokens": 3}}});
        let whole = assembled(responses(places, Some(end)).as_bytes()).unwrap();
        assert!(whole.finished);
        assert_eq!(whole.message["output"], output());
        assert_eq!(
            (
                &whole.message["status"],
                &whole.message["usage"]["input_tokens"]
            ),
            (&json!("completed"), &json!(3))
        );
    }
    let said = json!([{"type": "message", "content": [{"type": "output_text", "text": "all", "logprobs": [{"token": "a"}]}]}]);
    let end = json!({"type": "response.incomplete", "response": {"status": "incomplete", "output": said}});
    let whole = assembled(responses(true, Some(end)).as_bytes()).unwrap();
    assert!(whole.finished);
    assert_eq!(
        whole.message["output"][0]["content"],
        json!([{"type": "output_text", "text": "all"}])
    );
}

#[test]
fn a_finished_item_is_what_it_says_at_its_end_and_an_error_ends_a_stream() {
    let item = json!({"id": "msg_1", "type": "message", "content": [{"type": "output_text", "text": "final"}]});
    let done = json!({"type": "response.output_item.done", "output_index": 1, "item": item});
    let whole = assembled(responses(true, Some(done)).as_bytes()).unwrap();
    assert_eq!(whole.message["output"][1], item);
    let error = json!({"type": "error", "code": "server_error", "message": "busy"});
    let whole = assembled(responses(true, Some(error)).as_bytes()).unwrap();
    assert!(whole.finished);
    assert_eq!(whole.message["error"]["message"], "busy");
}

#[test]
fn other_formats_are_told_apart_and_lists_are_bounded() {
    for other in [
        "",
        "data: {\"candidates\":[{\"content\":1}]}\n\n",
        "data: [DONE]\n\n",
        "data: {\n\n",
    ] {
        assert_eq!(assembled(other.as_bytes()), None, "{other}");
    }
    let piece = |index: usize| json!({"choices": [{"index": index, "delta": {"content": "x"}}]});
    let many: Vec<Value> = (0..=MAX_PARTS).map(piece).collect();
    let whole = assembled(sse(&many).as_bytes()).unwrap();
    assert!(whole.gaps);
    assert_eq!(
        whole.message["choices"].as_array().unwrap().len(),
        MAX_PARTS
    );
    let added = |index: usize| json!({"type": "response.output_item.added", "output_index": index, "item": {}});
    let many: Vec<Value> = (0..=MAX_PARTS).map(added).collect();
    let whole = assembled(sse(&many).as_bytes()).unwrap();
    assert!(whole.gaps);
    assert_eq!(whole.message["output"].as_array().unwrap().len(), MAX_PARTS);
}

proptest! {
    #[test]
    fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0usize..600, chat_first in any::<bool>()) {
        let stream = if chat_first { chat() } else { responses(true, None) };
        let at = at.min(stream.len());
        let _ = assembled(&[&stream.as_bytes()[..at], &bytes, &stream.as_bytes()[at..]].concat());
    }

    /// However the text is cut into deltas, it is whole afterwards.
    #[test]
    fn pieces_become_whole(pieces in prop::collection::vec("\\PC{0,6}", 1..8)) {
        let chunks: Vec<Value> = pieces.iter().map(|piece| chunk(json!({"content": piece}), None)).collect();
        let whole = assembled(sse(&chunks).as_bytes()).unwrap();
        prop_assert_eq!(&whole.message["choices"][0]["message"]["content"], &json!(pieces.concat()));
        let deltas: Vec<Value> = pieces.iter()
            .map(|piece| json!({"type": "response.output_text.delta", "item_id": "m", "delta": piece}))
            .collect();
        let whole = assembled(sse(&deltas).as_bytes()).unwrap();
        prop_assert_eq!(&whole.message["output"][0]["content"][0]["text"], &json!(pieces.concat()));
    }
}
