//! Texts that go into the history, each behind the results it speaks of.
//!
//! They stand there for ever: what a model has seen is bound to what it said, and is in the
//! provider's cache. So they are worked out anew from the history with every request, and the rest
//! of the request's way sees the body with them in it.

use bytes::{Bytes, BytesMut};
use serde_json::Value;

use crate::guard::loops::Hint;
use crate::provider::view::RequestView;

/// Whether texts can be put into a body.
pub(in crate::proxy) fn possible(view: &RequestView) -> bool {
    view.uneditable.is_none() && view.text_block.is_some()
}

/// The body with the texts in it; `None` where there is none to be put, or no way to do so.
pub(in crate::proxy) fn written(body: &Bytes, view: &RequestView, hints: &[Hint]) -> Option<Bytes> {
    if hints.is_empty() {
        // As almost always: no buffer of the body's size is taken.
        return None;
    }
    let spelling = view.text_block.filter(|_| possible(view))?;
    let mut out = BytesMut::with_capacity(body.len() + 512 * hints.len());
    let mut done = 0;
    for hint in hints {
        let message = view.messages.get(hint.message as usize)?;
        let last = message.blocks.end.checked_sub(1)? as usize;
        let behind = match spelling.own_element {
            true => message.span,
            false => view.blocks.get(last)?.span,
        };
        let at = behind.end as usize;
        out.extend_from_slice(body.get(done..at)?);
        out.extend_from_slice(spelling.before);
        out.extend_from_slice(Value::from(hint.text.as_str()).to_string().as_bytes());
        out.extend_from_slice(spelling.after);
        done = at;
    }
    out.extend_from_slice(body.get(done..)?);
    Some(out.freeze())
}

/// A number of blocks of the client's request, as a number of blocks of what is sent.
pub(in crate::proxy) fn shifted(blocks: usize, view: &RequestView, hints: &[Hint]) -> usize {
    let before = hints.iter().filter(|hint| {
        let message = view.messages.get(hint.message as usize);
        message.is_some_and(|message| message.blocks.end as usize <= blocks)
    });
    blocks + before.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::anthropic::request::view;
    use serde_json::json;

    fn body() -> Bytes {
        let body = json!({
            "model": "m", "max_tokens": 5,
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "t", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": true},
                ]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "b", "name": "t", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "no"}],
                     "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "reminder"},
                ]},
            ],
        });
        body.to_string().into()
    }

    fn hint(message: u32) -> Hint {
        let text = "say \"stop\"\n渐".to_owned();
        Hint { message, text }
    }

    #[test]
    fn a_text_is_the_last_block_of_its_message_and_nothing_else_changes() {
        let body = body();
        let seen = view(&body).unwrap();
        let hints = [hint(2), hint(4)];
        let written = written(&body, &seen, &hints).unwrap();
        let mut parsed: Value = serde_json::from_slice(&written).unwrap();
        for at in [2, 4] {
            let content = parsed["messages"][at]["content"].as_array_mut().unwrap();
            let last = content.pop().unwrap();
            assert_eq!(last, json!({"type": "text", "text": hint(0).text}));
        }
        assert_eq!(parsed, serde_json::from_slice::<Value>(&body).unwrap());
        let after = view(&written).unwrap();
        assert_eq!(after.blocks.len(), seen.blocks.len() + 2);
        // go, call, result | call, result, reminder
        assert_eq!(shifted(3, &seen, &hints), 4);
        assert_eq!(shifted(6, &seen, &hints), 8);
        assert_eq!(shifted(1, &seen, &hints), 1);
    }

    #[test]
    fn nothing_is_put_where_nothing_may_be() {
        let body = body();
        let mut seen = view(&body).unwrap();
        assert_eq!(written(&body, &seen, &[]), None);
        assert_eq!(written(&body, &seen, &[hint(77)]), None);
        seen.uneditable = Some("duplicate_key");
        assert_eq!(written(&body, &seen, &[hint(2)]), None);
    }

    #[test]
    fn d_texts_are_messages_of_their_own_where_results_are_elements() {
        use crate::provider::wire::Wire;
        let hint = Hint {
            message: 2,
            text: "stop".into(),
        };
        let chat = json!({"model": "m", "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "t", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "no"},
            {"role": "tool", "tool_call_id": "b", "content": "no"},
        ], "n": 1});
        let responses = json!({"model": "m", "input": [
            {"role": "user", "content": "go"},
            {"type": "function_call", "call_id": "a", "name": "t", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "no"},
        ], "store": false});
        for (wire, body, list) in [
            (Wire::Chat, chat, "messages"),
            (Wire::Responses, responses, "input"),
        ] {
            let bytes = Bytes::from(body.to_string());
            let view = wire.view(&bytes).unwrap();
            let sent = written(&bytes, &view, std::slice::from_ref(&hint)).unwrap();
            let mut expected = body.clone();
            let message = json!({"role": "user", "content": "stop"});
            expected[list].as_array_mut().unwrap().push(message);
            let sent: serde_json::Value = serde_json::from_slice(&sent).unwrap();
            assert_eq!(sent, expected, "{wire:?}");
        }
        let bare = Bytes::from(r#"{"model":"m","input":"go"}"#);
        let view = Wire::Responses.view(&bare).unwrap();
        assert!(!possible(&view));
    }
}
