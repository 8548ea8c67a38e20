//! Edits of a body as insertions into the original bytes and cuts out of them.
//!
//! Nothing is ever re-serialised: what is sent is slices of what came, with a few static bytes
//! between them, so undoing the edits gives the original back. Under the policy `fill` nothing is
//! ever cut.

use bytes::Bytes;

use super::chain::with_comma;
use crate::provider::view::{
    Block, BlockKind, Form, Marker, MarkerSpelling, RequestView, Span, Ttl,
};

/// An edit of a body at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// Offset in the original body.
    pub at: u32,
    /// Bytes of the original that are left out from there on.
    pub remove: u32,
    /// What goes in their place, or before `at` if nothing is left out.
    pub insert: Bytes,
}

/// The splices that put a marker on a block that may carry one and has none, in the order of the
/// body.
#[must_use]
pub fn mark(block: &Block, ttl: Ttl, spelling: &MarkerSpelling) -> Vec<Splice> {
    let pieces = spelling.of(ttl);
    let splice = |at, insert| Splice {
        at,
        remove: 0,
        insert: Bytes::from_static(insert),
    };
    let result = spelling.results_inside && block.kind == BlockKind::ToolResult;
    let (form, span) = match block.content.filter(|_| result) {
        Some(content) => (Form::BareString, content),
        None => (block.form, block.span),
    };
    match form {
        Form::Object => vec![splice(span.end.saturating_sub(1), pieces.member)],
        Form::BareString => vec![
            splice(span.start, pieces.wrap_open),
            splice(span.end, pieces.wrap_close),
        ],
    }
}

/// Takes the client's marker out of a block, with exactly one comma; `None` if it has none.
#[must_use]
pub fn unmark(body: &[u8], block: &Block) -> Option<Splice> {
    Some(cut(body, block.marker?, block.span))
}

/// Takes the client's automatic marker out of the request; `None` if there is none.
#[must_use]
pub fn unmark_top(body: &[u8], view: &RequestView) -> Option<Splice> {
    let object = Span {
        start: view.object_start.saturating_sub(1),
        end: u32::try_from(body.len()).unwrap_or(u32::MAX),
    };
    Some(cut(body, view.auto_marker?, object))
}

/// Puts another lifetime in the place of the client's marker on a block; `None` if it has none.
#[must_use]
pub fn remark(block: &Block, ttl: Ttl, spelling: &MarkerSpelling) -> Option<Splice> {
    let member = block.marker?.span;
    let spelt = spelling.of(ttl).member;
    Some(Splice {
        at: member.start,
        remove: member.len(),
        // The comma before the old member stays.
        insert: Bytes::from_static(spelt.strip_prefix(b",").unwrap_or(spelt)),
    })
}

fn cut(body: &[u8], marker: Marker, object: Span) -> Splice {
    let member = with_comma(body, marker.span, object);
    Splice {
        at: member.start,
        remove: member.len(),
        insert: Bytes::new(),
    }
}

/// Puts an edit among others that are in the order of the body. Two insertions at one place become
/// one, the later first.
pub fn put(splices: &mut Vec<Splice>, splice: Splice) {
    let at = splices.partition_point(|other| other.at < splice.at);
    let there = splices.get_mut(at);
    match there.filter(|there| there.at == splice.at && splice.remove == 0) {
        Some(there) => there.insert = [&splice.insert[..], &there.insert[..]].concat().into(),
        None => splices.insert(at, splice),
    }
}

/// Whether the splices can be applied to a body of this length: each inside it, in strictly
/// ascending order, none inside of what another one leaves out.
#[must_use]
pub fn fits(body_len: usize, splices: &[Splice]) -> bool {
    let end = |splice: &Splice| splice.at as usize + splice.remove as usize;
    splices.iter().all(|splice| end(splice) <= body_len)
        && splices.is_sorted_by(|a, b| a.at < b.at && end(a) <= b.at as usize)
}

/// The edited body, as slices of the original (nothing is copied) and of the inserted bytes.
/// Splices that do not fit the body (see [`fits`]) leave it as it is.
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
        done = at + splice.remove as usize;
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
    let inserted: usize = splices.iter().map(|s| s.insert.len()).sum();
    let removed: usize = splices.iter().map(|s| s.remove as usize).sum();
    body_len - removed + inserted
}

/// Takes the edits back out of what was sent; `None` if they do not stand where they were put.
/// `original` is asked for nothing but the bytes that were left out. For tests and for checking a
/// record against a body.
#[must_use]
pub fn undo(sent: &[u8], splices: &[Splice], original: &[u8]) -> Option<Vec<u8>> {
    let mut restored = Vec::with_capacity(sent.len());
    let mut rest = sent;
    for splice in splices {
        let at = splice.at as usize;
        let keep = at.checked_sub(restored.len())?;
        restored.extend_from_slice(rest.get(..keep)?);
        rest = rest.get(keep..)?.strip_prefix(&splice.insert[..])?;
        restored.extend_from_slice(original.get(at..at + splice.remove as usize)?);
    }
    restored.extend_from_slice(rest);
    Some(restored)
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
        assert_eq!(
            undo(&sent, splices, body.as_bytes()).unwrap(),
            body.as_bytes()
        );
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
            remove: 0,
            insert: Bytes::from_static(b"x"),
        };
        let cut = |at, remove| Splice {
            remove,
            ..splice(at)
        };
        for splices in [
            vec![splice(3)],
            vec![splice(1), splice(1)],
            vec![splice(2), splice(0)],
            vec![cut(1, 2)],
            vec![cut(0, 2), splice(1)],
            vec![],
        ] {
            assert_eq!(apply(&body, &splices).concat(), body);
            assert_eq!(sent_len(body.len(), &splices), 2);
        }
        let parts = apply(&body, &[splice(0), splice(2)]);
        assert_eq!(parts.concat(), b"x{}x");
        assert_eq!(apply(&body, &[cut(0, 1), splice(1)]).concat(), b"xx}");
        assert_eq!(sent_len(2, &[cut(0, 1), splice(1)]), 3);
        assert_eq!(
            parts[1].as_ptr(),
            body.as_ptr(),
            "the original is not copied"
        );
    }

    #[test]
    fn insertions_at_one_place_are_one_edit() {
        let insert = |at, text: &'static str| Splice {
            at,
            remove: 0,
            insert: Bytes::from_static(text.as_bytes()),
        };
        let mut splices = vec![insert(1, "b,"), insert(4, "x")];
        put(&mut splices, insert(1, "a,"));
        put(&mut splices, insert(5, "z"));
        put(&mut splices, insert(2, "y"));
        assert_eq!(sent("{c:1}", &splices), "{a,b,cy:1x}z");
    }

    /// What the policy `replace` takes out, wherever its comma stands.
    #[test]
    fn a_marker_goes_with_exactly_one_comma() {
        let marker = r#""cache_control" : {"type":"ephemeral","ttl":"5m"}"#;
        let text = r#""type":"text","text":"x""#;
        for (with, without) in [
            (format!("{text},{marker}"), text),
            (format!("{marker} , {text}"), &*format!(" {text}")),
            (
                format!(r#""type":"text" , {marker} ,"text":"x""#),
                r#""type":"text" , "text":"x""#,
            ),
            (format!(" {text} ,{marker} "), &*format!(" {text}  ")),
        ] {
            let request = |block: &str, top: &str| {
                format!(r#"{{{top}"messages":[{{"role":"user","content":[{{{block}}}]}}]}}"#)
            };
            let body = request(&with, &format!("{marker},"));
            let seen = view(body.as_bytes()).unwrap();
            let top = unmark_top(body.as_bytes(), &seen).unwrap();
            let block = unmark(body.as_bytes(), &seen.blocks[0]).unwrap();
            let back = request(&without.replace("  ", " "), "");
            assert_eq!(sent(&body, &[top, block]).replace("  ", " "), back);
            let lasting = remark(&seen.blocks[0], Ttl::H1, &MARKERS).unwrap();
            let lasting: Value = serde_json::from_str(&sent(&body, &[lasting])).unwrap();
            let block = &lasting["messages"][0]["content"][0];
            assert_eq!(
                block["cache_control"],
                json!({"type": "ephemeral", "ttl": "1h"})
            );
            assert_eq!(block["text"], json!("x"));
        }
        let body = r#"{"cache_control":{"type":"ephemeral"}}"#;
        let seen = view(body.as_bytes()).unwrap();
        assert_eq!(
            sent(body, &[unmark_top(body.as_bytes(), &seen).unwrap()]),
            "{}"
        );
    }

    /// A value without any member of that name that holds a marker; what the model sees stays.
    fn without_markers(value: &Value) -> Value {
        let strip = |block: &Value| {
            let mut block = block.clone();
            if let Some(members) = block.as_object_mut() {
                members.remove("cache_control");
            }
            block
        };
        let all = |list: &Value| match list {
            Value::Array(items) => items.iter().map(strip).collect(),
            other => other.clone(),
        };
        let mut request = strip(value);
        for key in ["tools", "system"] {
            request[key] = all(&request[key]);
        }
        for message in request["messages"].as_array_mut().unwrap() {
            message["content"] = all(&message["content"]);
        }
        request
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

        /// Taking out everything the client marked gives the request without markers, by value.
        #[test]
        fn nothing_but_markers_is_taken_out((request, pretty) in request(), auto in any::<bool>()) {
            let mut request = request;
            if auto {
                request["cache_control"] = json!({"type": "ephemeral"});
            }
            let body = if pretty { serde_json::to_string_pretty(&request) } else { serde_json::to_string(&request) }.unwrap();
            let view = view(body.as_bytes()).unwrap();
            let mut splices: Vec<_> = view.blocks.iter().filter_map(|b| unmark(body.as_bytes(), b)).collect();
            splices.extend(unmark_top(body.as_bytes(), &view));
            splices.sort_by_key(|s| s.at);
            let sent: Value = serde_json::from_str(&sent(&body, &splices)).unwrap();
            prop_assert_eq!(sent, without_markers(&request));
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
            prop_assert_eq!(undo(&sent, &splices, &body).unwrap(), &body[..]);
            let before: Result<Value, _> = serde_json::from_slice(&body);
            if before.is_ok() && view.uneditable.is_none() {
                prop_assert!(serde_json::from_slice::<Value>(&sent).is_ok());
            }
        }
    }
}
