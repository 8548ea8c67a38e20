use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::provider::json::string_end;
use crate::provider::view::Block;

pub(crate) const WIRES: [Wire; 2] = [Wire::Chat, Wire::Responses];

/// A value that has the members of both formats in all shapes.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "user",
        "assistant",
        "system",
        "developer",
        "tool",
        "function",
        "text",
        "input_text",
        "output_text",
        "image_url",
        "refusal",
        "custom",
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "shell_call",
        "shell_call_output",
        "apply_patch_call_output",
        "web_search_call",
        "compaction",
        "failed",
        "required",
        "ephemeral",
        "",
        "a\n\u{e9}\"",
        " ",
    ]);
    let leaf = prop_oneof![
        word.prop_map(Value::from),
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "messages",
        "input",
        "instructions",
        "tools",
        "functions",
        "role",
        "content",
        "type",
        "text",
        "tool_calls",
        "function_call",
        "function",
        "custom",
        "name",
        "arguments",
        "id",
        "call_id",
        "tool_call_id",
        "output",
        "refusal",
        "audio",
        "reasoning_content",
        "reasoning",
        "action",
        "status",
        "prompt_cache_breakpoint",
        "cache_control",
        "annotations",
        "format",
        "metadata",
        "tool_choice",
        "conversation",
        "x",
    ]);
    leaf.prop_recursive(6, 96, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|members| {
                Value::Object(
                    members
                        .into_iter()
                        .map(|(key, value)| (key.into(), value))
                        .collect(),
                )
            }),
        ]
    })
}

/// An element of a conversation of either format, well-formed as clients write it.
fn element() -> impl Strategy<Value = (Value, Value)> {
    let text = "[a-z\\n\"é\\\\ ]{0,12}";
    let part = |kind: &'static str, text: &str| json!([{"type": kind, "text": text}]);
    prop_oneof![
        (text, any::<bool>()).prop_map(move |(text, list)| match list {
            true => (json!({"role": "user", "content": part("text", &text)}),
                     json!({"type": "message", "role": "user", "content": part("input_text", &text)})),
            false => (json!({"role": "user", "content": text}), json!({"role": "user", "content": text})),
        }),
        text.prop_map(|text| (json!({"role": "developer", "content": text}), json!({"role": "developer", "content": text}))),
        text.prop_map(move |text| (
            json!({"role": "assistant", "content": text, "refusal": null}),
            json!({"type": "message", "role": "assistant", "id": "m", "content": part("output_text", &text)}),
        )),
        (text, "[a-c]").prop_map(|(text, id)| (
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "f", "arguments": text}}]}),
            json!({"type": "function_call", "call_id": id, "name": "f", "arguments": text}),
        )),
        (text, "[a-c]").prop_map(|(text, id)| (
            json!({"role": "tool", "tool_call_id": id, "content": text}),
            json!({"type": "function_call_output", "call_id": id, "output": text}),
        )),
    ]
}

/// Bodies of both formats, and how many of the elements belong to an earlier request.
pub(crate) fn conversation() -> impl Strategy<Value = (Vec<(Value, Value)>, usize)> {
    prop::collection::vec(element(), 1..14).prop_flat_map(|all| {
        let earlier = 1..=all.len();
        (Just(all), earlier)
    })
}

pub(crate) fn body(wire: Wire, elements: &[(Value, Value)]) -> Value {
    match wire {
        Wire::Chat => json!({
            "model": "m", "stream": true,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
            "messages": elements.iter().map(|(chat, _)| chat.clone()).collect::<Vec<_>>(),
        }),
        _ => json!({
            "model": "m", "instructions": "s", "store": false,
            "tools": [{"type": "function", "name": "f", "parameters": {}}],
            "input": elements.iter().map(|(_, item)| item.clone()).collect::<Vec<_>>(),
        }),
    }
}

/// What has to hold of any view: spans lie in the body, one in the other, and blocks stand apart.
fn check(body: &[u8], view: &RequestView) -> Result<(), TestCaseError> {
    for block in &view.blocks {
        let inside = |span: Span| {
            block.span.start <= span.start && span.start <= span.end && span.end <= block.span.end
        };
        prop_assert!(!block.span.is_empty() && block.span.end as usize <= body.len());
        let marker = block.marker.map(|marker| marker.span);
        let within = [
            marker,
            block.call_id,
            block.name,
            block.content,
            block.plain,
            block.marker_member,
        ];
        prop_assert!(within.into_iter().flatten().all(inside), "{:?}", block);
    }
    let mut spans: Vec<Span> = view.blocks.iter().map(|block| block.span).collect();
    spans.sort_by_key(|span| span.start);
    prop_assert!(spans.windows(2).all(|two| two[0].end <= two[1].start));
    let key = |block: &Block| (block.section, block.outer);
    prop_assert!(view.blocks.is_sorted_by_key(key));
    let mut next = view.head_len() as u32;
    let mut behind = 0;
    for message in &view.messages {
        prop_assert_eq!(message.blocks.start, next);
        next = message.blocks.end;
        prop_assert!(behind <= message.span.start && message.span.end as usize <= body.len());
        behind = message.span.end;
        for block in &view.blocks[message.blocks.start as usize..next as usize] {
            prop_assert!(
                message.span.start <= block.span.start && block.span.end <= message.span.end
            );
        }
    }
    prop_assert_eq!(next as usize, view.blocks.len());
    Ok(())
}

/// JSON without the white space between its tokens.
fn squeeze(json: &[u8]) -> String {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = json.get(at) {
        let end = match byte {
            b'"' => string_end(json, at + 1).unwrap(),
            _ => at + 1,
        };
        if !byte.is_ascii_whitespace() {
            out.extend_from_slice(&json[at..end]);
        }
        at = end;
    }
    String::from_utf8(out).unwrap()
}

/// The view without what moves when white space is put in.
fn shape(body: &[u8], view: &RequestView) -> Vec<String> {
    let squeezed = |span: Span| squeeze(span.of(body));
    let blocks = view.blocks.iter().map(|b| {
        let spans = [
            Some(b.span),
            b.call_id,
            b.name,
            b.content,
            b.plain,
            b.marker_member,
            b.marker.map(|m| m.span),
        ];
        format!(
            "{:?} {:?} {:?} {} {} {} {:?} {:?} {:?} {}",
            b.section,
            b.kind,
            b.form,
            b.outer,
            b.inner,
            b.place,
            b.unmarkable,
            b.is_error,
            spans.map(|span| span.map(squeezed)),
            view.path(b),
        )
    });
    let messages = view
        .messages
        .iter()
        .map(|m| format!("{:?} {:?} {}", m.role, m.blocks, squeezed(m.span)));
    let parameters = view
        .parameters
        .iter()
        .map(|p| format!("{} {:?}", p.name, p.value.map(squeezed)));
    let rest = format!(
        "{:?} {:?} {:?} {:?} {} {} {:?}",
        view.model,
        view.ids,
        view.history,
        view.uneditable,
        view.forced_call,
        view.misplaced_markers,
        view.max_tokens
    );
    blocks
        .chain(messages)
        .chain(parameters)
        .chain([rest])
        .collect()
}

proptest! {
    #[test]
    fn any_members_in_any_shape_are_read(value in any_json(), at in any::<prop::sample::Index>()) {
        let one = json!({"messages": [value.clone()], "input": [value.clone()], "tools": [value.clone()]});
        for body in [value, one].map(|value| value.to_string()) {
            for wire in WIRES {
                for body in [body.as_bytes(), &body.as_bytes()[..at.index(body.len())]] {
                    let Ok(view) = wire.view(body) else { continue };
                    check(body, &view)?;
                    let declared = wire.declared(body, &view);
                    prop_assert!(declared.tools.iter().all(|tool| tool.name.end as usize <= body.len()));
                }
            }
        }
    }

    #[test]
    fn a_byte_that_is_wrong_breaks_nothing(
        conversation in conversation(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        for wire in WIRES {
            let mut body = body(wire, &conversation.0).to_string().into_bytes();
            let at = at.index(body.len());
            body[at] = byte;
            if let Ok(view) = wire.view(&body) {
                check(&body, &view)?;
            }
        }
    }

    #[test]
    fn white_space_between_tokens_moves_spans_and_changes_nothing_else(value in any_json(), conversation in conversation()) {
        for wire in WIRES {
            let members = json!({"messages": [value.clone()], "input": [value.clone()], "tools": value.clone(), "reasoning": value.clone()});
            for value in [body(wire, &conversation.0), value.clone(), members] {
                let (tight, loose) = (value.to_string(), serde_json::to_string_pretty(&value).unwrap());
                let (Ok(one), Ok(other)) = (wire.view(tight.as_bytes()), wire.view(loose.as_bytes())) else {
                    prop_assert!(wire.view(tight.as_bytes()).is_err() && wire.view(loose.as_bytes()).is_err());
                    continue;
                };
                prop_assert_eq!(shape(tight.as_bytes(), &one), shape(loose.as_bytes(), &other));
            }
        }
    }

    /// The same conversation has the same runs and the same pairs in both formats.
    #[test]
    fn both_formats_show_the_same_conversation((all, _) in conversation()) {
        let [chat, responses] = WIRES.map(|wire| {
            let body = body(wire, &all).to_string();
            let view = seen(wire, &body);
            let head = view.head_len();
            let blocks: Vec<_> = view.blocks[head..]
                .iter()
                .map(|b| (b.kind, text(&body, b.call_id).to_owned(), text(&body, b.plain).to_owned(), b.place))
                .collect();
            let roles: Vec<_> = view.messages.iter().map(|m| (m.role, m.blocks.len())).collect();
            (blocks, roles)
        });
        prop_assert_eq!(chat, responses);
    }
}
