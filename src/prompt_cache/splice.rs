//! Edits of a body as insertions into the original bytes.
//!
//! Nothing is ever re-serialised: what is sent is slices of what came, with a few static bytes
//! between them, so taking the insertions out again gives the original back.

use bytes::Bytes;

use crate::provider::view::{Block, Form, MarkerSpelling, Ttl};

/// Bytes to insert into a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// Offset in the original body before which they go.
    pub at: u32,
    /// What is inserted.
    pub insert: Bytes,
}

/// The splices that put a marker on a block that may carry one, in the order of the body.
#[must_use]
pub fn mark(block: &Block, ttl: Ttl, spelling: &MarkerSpelling) -> Vec<Splice> {
    let pieces = spelling.of(ttl);
    let splice = |at, insert| Splice {
        at,
        insert: Bytes::from_static(insert),
    };
    match block.form {
        Form::Object => vec![splice(block.span.end.saturating_sub(1), pieces.member)],
        Form::BareString => vec![
            splice(block.span.start, pieces.wrap_open),
            splice(block.span.end, pieces.wrap_close),
        ],
    }
}

/// Whether the splices can be applied to a body of this length: each inside it, in strictly
/// ascending order.
#[must_use]
pub fn fits(body_len: usize, splices: &[Splice]) -> bool {
    let inside = |splice: &Splice| splice.at as usize <= body_len;
    splices.iter().all(inside) && splices.is_sorted_by(|a, b| a.at < b.at)
}

/// The body with the insertions, as slices of the original (nothing is copied) and of the inserted
/// bytes. Splices that do not fit the body (see [`fits`]) leave it as it is.
#[must_use]
pub fn apply(body: &Bytes, splices: &[Splice]) -> Vec<Bytes> {
    if splices.is_empty() || !fits(body.len(), splices) {
        return vec![body.clone()];
    }
    let mut parts = Vec::with_capacity(splices.len() * 2 + 1);
    let mut done = 0;
    for splice in splices {
        let at = splice.at as usize;
        parts.push(body.slice(done..at));
        parts.push(splice.insert.clone());
        done = at;
    }
    parts.push(body.slice(done..));
    parts.retain(|part| !part.is_empty());
    parts
}

/// Length of what [`apply`] gives.
#[must_use]
pub fn sent_len(body_len: usize, splices: &[Splice]) -> usize {
    if !fits(body_len, splices) {
        return body_len;
    }
    body_len + splices.iter().map(|s| s.insert.len()).sum::<usize>()
}

/// Takes the insertions out of what was sent; `None` if they do not stand where they were put.
/// For tests and for checking a record against a body.
#[must_use]
pub fn undo(sent: &[u8], splices: &[Splice]) -> Option<Vec<u8>> {
    let mut original = Vec::with_capacity(sent.len());
    let mut rest = sent;
    for splice in splices {
        let keep = (splice.at as usize).checked_sub(original.len())?;
        original.extend_from_slice(rest.get(..keep)?);
        rest = rest.get(keep..)?.strip_prefix(&splice.insert[..])?;
    }
    original.extend_from_slice(rest);
    Some(original)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::anthropic::request::{MARKERS, view};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn sent(body: &str, splices: &[Splice]) -> String {
        let parts = apply(&Bytes::copy_from_slice(body.as_bytes()), splices);
        let sent = parts.concat();
        assert_eq!(sent.len(), sent_len(body.len(), splices));
        assert_eq!(undo(&sent, splices).unwrap(), body.as_bytes());
        String::from_utf8(sent).unwrap()
    }

    #[test]
    fn marks_an_object_and_wraps_a_string() {
        let body = r#"{"system":"s\"","messages":[{"role":"user","content":[{"type":"text","text":"x" } ]}]}"#;
        let blocks = view(body.as_bytes()).unwrap().blocks;
        let mut splices = mark(&blocks[0], Ttl::H1, &MARKERS);
        splices.extend(mark(&blocks[1], Ttl::M5, &MARKERS));
        assert_eq!(
            sent(body, &splices),
            r#"{"system":[{"type":"text","text":"s\"","cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[{"role":"user","content":[{"type":"text","text":"x" ,"cache_control":{"type":"ephemeral"}} ]}]}"#
        );
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let body = Bytes::from_static(b"{}");
        let splice = |at| Splice {
            at,
            insert: Bytes::from_static(b"x"),
        };
        for splices in [
            vec![splice(3)],
            vec![splice(1), splice(1)],
            vec![splice(2), splice(0)],
            vec![],
        ] {
            assert_eq!(apply(&body, &splices).concat(), body);
            assert_eq!(sent_len(body.len(), &splices), 2);
        }
        let parts = apply(&body, &[splice(0), splice(2)]);
        assert_eq!(parts.concat(), b"x{}x");
        assert_eq!(
            parts[1].as_ptr(),
            body.as_ptr(),
            "the original is not copied"
        );
    }

    /// A request made of arbitrary JSON in every place, with the text of our own markers in it.
    fn request() -> impl Strategy<Value = (Value, bool)> {
        let text = prop_oneof![
            Just(r#"","cache_control":{"type":"ephemeral"}}]"#.to_owned()),
            Just(r#"[{"type":"text","text":"#.to_owned()),
            Just("\\\"{}[]\u{0}\u{ffff}🙂".to_owned()),
            Just(" \n".to_owned()),
            any::<String>(),
        ];
        let block = (text.clone(), 0..6_u8, any::<bool>()).prop_map(|(text, kind, marked)| {
            let mut block = match kind {
                0 => json!({"type": "tool_use", "id": text, "name": "n", "input": {"cache_control": text}}),
                1 => json!({"type": "tool_result", "tool_use_id": "t", "content": text}),
                2 => json!({"type": "thinking", "thinking": text, "signature": ""}),
                3 => json!({ text: 1 }),
                _ => json!({"type": "text", "text": text}),
            };
            if marked {
                block["cache_control"] = json!({"type": "ephemeral"});
            }
            block
        });
        let content = prop_oneof![
            text.clone().prop_map(Value::from),
            prop::collection::vec(block, 0..4).prop_map(Value::from)
        ];
        let messages = prop::collection::vec(content.clone(), 0..5);
        (content, messages, text, any::<bool>()).prop_map(|(system, messages, name, pretty)| {
            let messages: Vec<_> = messages
                .into_iter()
                .map(|content| json!({"role": "user", "content": content}))
                .collect();
            let tools = json!([{"name": name, "input_schema": {}}, {}]);
            (
                json!({"messages": messages, "tools": tools, "system": system}),
                pretty,
            )
        })
    }

    /// The original with a marker on every block that may carry one, built by value.
    fn expected(mut request: Value, chosen: &[(String, bool)]) -> Value {
        for (pointer, bare) in chosen {
            let block = request.pointer_mut(pointer).unwrap();
            if *bare {
                *block = json!([{"type": "text", "text": block.take()}]);
            }
            let block = if *bare { &mut block[0] } else { block };
            block["cache_control"] = json!({"type": "ephemeral"});
        }
        request
    }

    proptest! {
        /// Marking everything that may be marked: the result parses, is the original plus the
        /// markers by value (so nothing went into a string), and undoing gives back the bytes.
        #[test]
        fn only_markers_are_added((request, pretty) in request()) {
            let body = if pretty { serde_json::to_string_pretty(&request) } else { serde_json::to_string(&request) }.unwrap();
            let view = view(body.as_bytes()).unwrap();
            prop_assert!(view.uneditable.is_none());
            let mut splices = Vec::new();
            let mut chosen = Vec::new();
            for block in view.blocks.iter().filter(|b| b.marker.is_none() && b.unmarkable.is_none()) {
                splices.extend(mark(block, Ttl::M5, &MARKERS));
                let pointer = format!("/{}", view.path(block).replace(['[', '.'], "/").replace(']', ""));
                chosen.push((pointer, block.form == Form::BareString));
            }
            splices.sort_by_key(|s| s.at);
            prop_assert!(fits(body.len(), &splices));
            let sent: Value = serde_json::from_str(&sent(&body, &splices)).unwrap();
            prop_assert_eq!(sent, expected(request, &chosen));
        }

        /// On any bytes at all: what can be viewed can be edited and restored.
        #[test]
        fn any_bytes_come_back(mut body in request().prop_map(|(r, _)| serde_json::to_vec(&r).unwrap()),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
            for (at, byte) in damage {
                let at = at.index(body.len());
                body[at] = byte;
            }
            let Ok(view) = view(&body) else { return Ok(()) };
            let mut splices: Vec<_> = view.blocks.iter().filter(|b| b.marker.is_none() && b.unmarkable.is_none())
                .flat_map(|b| mark(b, Ttl::H1, &MARKERS)).collect();
            splices.sort_by_key(|s| s.at);
            let body = Bytes::from(body);
            let sent = apply(&body, &splices).concat();
            prop_assert_eq!(undo(&sent, &splices).unwrap(), &body[..]);
            let before: Result<Value, _> = serde_json::from_slice(&body);
            if before.is_ok() && view.uneditable.is_none() {
                prop_assert!(serde_json::from_slice::<Value>(&sent).is_ok());
            }
        }
    }
}
