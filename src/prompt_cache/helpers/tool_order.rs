//! Tools always in the same order.
//!
//! Clients that collect tools from several servers list them in the order of connection, and tools
//! are the head of the prompt: another order is another prompt. Here they are sorted by name. It
//! depends on the request alone, so turns, threads and restarted gateways agree without memory.
//!
//! Slices change places, nothing is written anew: each tool keeps its bytes, and what stands
//! between tools stays where it is. So offsets before and behind the list stay right.
//!
//! A request is left as it is where the order may mean something: a breakpoint of the client
//! stands on a tool that would have to move (it ends the prefix there; one on the last tool may
//! stay if that tool stays the last), or names stand twice beside a breakpoint; and where
//! something is not understood: a tool without a name, a body that must not be edited, a history
//! that the provider holds.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::Xxh3;

use super::Saving;
use crate::provider::json::unescape;
use crate::provider::view::{Block, History, RequestView, Section, Span, Ttl};
use crate::usage::Rates;

/// The body with its tools sorted by name, as slices of the original; equal names keep their order.
/// `None` where nothing is to be done or nothing may be (see the module).
#[must_use]
pub fn reordered(body: &Bytes, view: &RequestView) -> Option<Vec<Bytes>> {
    Some(pieces(body, tools(view), &order(body, view)?))
}

/// As [`reordered`], as one new body, and the view made to fit it without a second walk. What the
/// view says of anything but the tools stays true, byte for byte.
#[must_use]
pub fn rewritten(body: &Bytes, view: &mut RequestView) -> Option<Bytes> {
    let order = order(body, view)?;
    let mut sorted = BytesMut::with_capacity(body.len());
    for piece in pieces(body, tools(view), &order) {
        sorted.extend_from_slice(&piece);
    }
    let old: Vec<Block> = tools(view).to_vec();
    let mut moved = 0_i64;
    for (slot, from) in order.iter().enumerate() {
        let (here, tool) = (old.get(slot)?, old.get(*from)?);
        let start = i64::from(here.span.start) + moved;
        *view.blocks.get_mut(slot)? = shifted(tool, here.outer, start - i64::from(tool.span.start));
        moved += i64::from(tool.span.len()) - i64::from(here.span.len());
    }
    Some(sorted.freeze())
}

/// A hash of the names of the tools in the client's order, by which a change of the order is seen.
/// Not keyed: for memory, not for records.
#[must_use]
pub fn client_order(body: &[u8], view: &RequestView) -> u64 {
    let mut hash = Xxh3::new();
    for tool in tools(view) {
        let name = tool.name.map(|name| unescape(name.of(body)));
        let name = name.as_deref().unwrap_or_default();
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
    }
    hash.digest()
}

/// What the stable order saved in a turn that read `read` tokens: `before` and `now` are
/// [`client_order`] of the thread's previous turn and of this one. An order that the client had
/// used before, and that might still have been cached in that form, is counted all the same.
#[must_use]
pub fn saving(
    before: Option<u64>,
    now: u64,
    read: u64,
    rates: Option<&Rates>,
    ttl: Ttl,
) -> Option<Saving> {
    let changed = before.is_some_and(|before| before != now);
    (changed && read > 0).then(|| super::saving(read, rates, ttl, 0))
}

/// The tools of a request: its first blocks.
fn tools(view: &RequestView) -> &[Block] {
    let count = view
        .blocks
        .iter()
        .take_while(|block| block.section == Section::Tools)
        .count();
    view.blocks.get(..count).unwrap_or_default()
}

/// For each place the index of the tool that belongs there.
fn order(body: &[u8], view: &RequestView) -> Option<Vec<usize>> {
    let tools = tools(view);
    if tools.len() < 2 || view.uneditable.is_some() || view.history != History::Whole {
        return None;
    }
    let mut names: Vec<(Cow<'_, str>, usize)> = Vec::with_capacity(tools.len());
    for (index, tool) in tools.iter().enumerate() {
        names.push((unescape(tool.name?.of(body)), index));
    }
    if names.is_sorted_by(|a, b| a.0 <= b.0) {
        return None;
    }
    // By name, then by index: stable for equal names.
    names.sort_unstable();
    let marked = tools.iter().any(|tool| tool.marker.is_some());
    if marked && names.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return None;
    }
    let order: Vec<usize> = names.into_iter().map(|(_, index)| index).collect();
    let stays = |(slot, from): (usize, &usize)| slot == *from || tools[*from].marker.is_none();
    order.iter().enumerate().all(stays).then_some(order)
}

fn pieces(body: &Bytes, tools: &[Block], order: &[usize]) -> Vec<Bytes> {
    let slice = |from: u32, to: u32| body.slice(from as usize..to as usize);
    let mut pieces = Vec::with_capacity(tools.len() * 2 + 1);
    let mut done = 0;
    for (slot, from) in tools.iter().zip(order) {
        let tool = tools[*from].span;
        pieces.push(slice(done, slot.span.start));
        pieces.push(slice(tool.start, tool.end));
        done = slot.span.end;
    }
    pieces.push(body.slice(done as usize..));
    pieces
}

/// A tool at another place of the list, `by` bytes further on.
fn shifted(tool: &Block, outer: u32, by: i64) -> Block {
    let at = |offset: u32| u32::try_from(i64::from(offset) + by).unwrap_or(offset);
    let span = |span: Span| Span {
        start: at(span.start),
        end: at(span.end),
    };
    let mut tool = *tool;
    tool.outer = outer;
    tool.place = outer;
    tool.span = span(tool.span);
    if let Some(marker) = &mut tool.marker {
        marker.span = span(marker.span);
    }
    for part in [
        &mut tool.call_id,
        &mut tool.name,
        &mut tool.content,
        &mut tool.plain,
        &mut tool.marker_member,
    ] {
        *part = part.map(span);
    }
    tool
}

#[cfg(test)]
mod tests {
    use super::super::tests::RATES;
    use super::*;
    use crate::provider::anthropic::request::view;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn sorted(body: &str) -> Option<String> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let seen = view(&body).unwrap();
        let pieces = reordered(&body, &seen)?;
        Some(String::from_utf8(pieces.concat()).unwrap())
    }

    #[test]
    fn tools_change_places_and_keep_their_bytes() {
        let body = r#"{"model":"m", "tools" : [ {"name":"b1", "x":1.0} ,
            {"name":"a2"},{"name":"a\u0031","y":[ ]}  ],"system":"s"}"#;
        assert_eq!(
            sorted(body).unwrap(),
            r#"{"model":"m", "tools" : [ {"name":"a\u0031","y":[ ]} ,
            {"name":"a2"},{"name":"b1", "x":1.0}  ],"system":"s"}"#
        );
        assert_eq!(sorted(&sorted(body).unwrap()), None, "already in order");
        let body = Bytes::copy_from_slice(body.as_bytes());
        let pieces = reordered(&body, &view(&body).unwrap()).unwrap();
        let inside = body.as_ptr_range();
        assert!(
            pieces.iter().all(|p| inside.contains(&p.as_ptr())),
            "nothing is copied"
        );
    }

    #[test]
    fn what_may_mean_something_or_is_not_understood_stays() {
        for tools in [
            // In order, or nothing to order.
            r#"[{"name":"a"},{"name":"b"}]"#,
            r#"[{"name":"a"}]"#,
            "[]",
            "null",
            // The breakpoint would have to move.
            r#"[{"name":"a"},{"name":"c"},{"name":"b","cache_control":{"type":"ephemeral"}}]"#,
            r#"[{"name":"b","cache_control":{"type":"ephemeral"}},{"name":"a"}]"#,
            // Nobody knows which of two the breakpoint was meant for.
            r#"[{"name":"b"},{"name":"a"},{"name":"a"},{"name":"c","cache_control":{"type":"ephemeral"}}]"#,
            // No name, no object, a name twice.
            r#"[{"name":"b"},{"type":"mcp_toolset","mcp_server_name":"x"},{"name":"a"}]"#,
            r#"[{"name":"b"},7,{"name":"a"}]"#,
            r#"[{"name":"b"},{"name":7},{"name":"a"}]"#,
            r#"[{"name":"b"},{"name":"a","name":"z"}]"#,
        ] {
            assert_eq!(sorted(&format!(r#"{{"tools":{tools}}}"#)), None, "{tools}");
        }
        let held = r#"{"thread":{"type":"create"},"tools":[{"name":"b"},{"name":"a"}]}"#;
        assert_eq!(sorted(held), None);
    }

    #[test]
    fn a_breakpoint_on_the_last_tool_stays_the_last() {
        let marked = r#"{"name":"z","cache_control":{"type":"ephemeral"}}"#;
        let body = format!(r#"{{"tools":[{{"name":"b"}},{{"name":"a"}},{marked}]}}"#);
        assert_eq!(
            sorted(&body).unwrap(),
            format!(r#"{{"tools":[{{"name":"a"}},{{"name":"b"}},{marked}]}}"#)
        );
    }

    #[test]
    fn a_breakpoint_that_stays_in_its_place_may_shift() {
        let body = r#"{"tools":[{"name":"c","long":"0123456789"},{"name":"b","cache_control":{"type":"ephemeral"}},{"name":"a"}]}"#;
        let body = Bytes::from_static(body.as_bytes());
        let mut fitted = view(&body).unwrap();
        let new = rewritten(&body, &mut fitted).unwrap();
        assert_eq!(fitted, view(&new).unwrap());
        let marker = fitted.blocks[1].marker.unwrap();
        assert_eq!(
            marker.span.of(&new),
            br#""cache_control":{"type":"ephemeral"}"#
        );
    }

    #[test]
    fn equal_names_keep_their_order_and_deferred_tools_move_like_others() {
        let body = r#"{"tools":[{"name":"b","defer_loading":true},{"name":"a","n":1},{"name":"a","n":2}]}"#;
        assert_eq!(
            sorted(body).unwrap(),
            r#"{"tools":[{"name":"a","n":1},{"name":"a","n":2},{"name":"b","defer_loading":true}]}"#
        );
    }

    #[test]
    fn only_a_change_of_the_clients_order_is_a_saving() {
        let of = |names: &[&str]| {
            let tools: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            let body = json!({"tools": tools}).to_string();
            client_order(body.as_bytes(), &view(body.as_bytes()).unwrap())
        };
        let (one, other) = (of(&["a", "b"]), of(&["b", "a"]));
        assert_ne!(one, other);
        assert_ne!(of(&["ab"]), one);
        let saved = |before, now, read| {
            saving(before, now, read, Some(&RATES), Ttl::M5).map(|s| (s.tokens, s.pico))
        };
        assert_eq!(
            saved(Some(one), other, 9_000),
            Some((9_000, Some(21_600_000_000)))
        );
        assert_eq!(saved(Some(one), one, 9_000), None);
        assert_eq!(saved(None, one, 9_000), None);
        assert_eq!(saved(Some(one), other, 0), None);
    }

    /// Tools with distinct names, some of them spelled with escapes, in two orders; and what stands
    /// around and between them.
    fn lists() -> impl Strategy<Value = (Vec<String>, Vec<String>, Vec<String>, String)> {
        let tool = (
            any::<[u8; 2]>(),
            any::<bool>(),
            any::<String>(),
            any::<bool>(),
        );
        let tools =
            prop::collection::vec(tool, 2..9).prop_map(|tools| {
                let mut tools: Vec<_> = tools
                .into_iter()
                .map(|([a, b], escaped, text, deferred)| {
                    let name = format!("{}{}", char::from(b'a' + a % 26), b);
                    let spelled = if escaped {
                        name.chars().map(|c| format!("\\u{:04x}", c as u32)).collect()
                    } else {
                        name.clone()
                    };
                    let text = Value::from(text);
                    let tool = format!(
                        r#"{{ "description":{text},"name":"{spelled}","defer_loading":{deferred}}}"#
                    );
                    (name, tool)
                })
                .collect();
                tools.sort();
                tools.dedup_by(|a, b| a.0 == b.0);
                tools.into_iter().map(|(_, tool)| tool).collect::<Vec<_>>()
            });
        let gaps = prop::collection::vec(prop::sample::select(vec![",", " ,", ",\n  ", "\t, "]), 9);
        (tools, gaps, any::<String>()).prop_flat_map(|(tools, gaps, text)| {
            let gaps: Vec<String> = gaps.into_iter().map(str::to_owned).collect();
            let text = Value::from(text).to_string();
            let one = Just(tools.clone()).prop_shuffle();
            let other = Just(tools).prop_shuffle();
            (one, other, Just(gaps), Just(text))
        })
    }

    fn body(tools: &[String], gaps: &[String], text: &str) -> Bytes {
        let mut list = String::new();
        for (index, tool) in tools.iter().enumerate() {
            if index > 0 {
                list.push_str(&gaps[index]);
            }
            list.push_str(tool);
        }
        Bytes::from(format!(
            r#"{{"max_tokens": 9,"tools":[{list} ],"system":{text},"messages":[{{"role":"user","content":{text}}}]}}"#
        ))
    }

    proptest! {
        /// Whatever the order of the input: one order of the output, the same tools with the same
        /// bytes, and not a byte changed elsewhere.
        #[test]
        fn the_order_is_the_only_thing_that_changes((one, other, gaps, text) in lists()) {
            let sent: Vec<Bytes> = [&one, &other].into_iter().map(|tools| {
                let body = body(tools, &gaps, &text);
                let seen = view(&body).unwrap();
                reordered(&body, &seen).map_or(body, |pieces| pieces.concat().into())
            }).collect();
            prop_assert_eq!(&sent[0], &sent[1]);

            let original = body(&one, &gaps, &text);
            let (before, after) = (view(&original).unwrap(), view(&sent[0]).unwrap());
            let bytes_of = |body: &Bytes, seen: &RequestView| -> Vec<Bytes> {
                tools(seen).iter().map(|t| body.slice(t.span.start as usize..t.span.end as usize)).collect()
            };
            let (mut had, mut has) = (bytes_of(&original, &before), bytes_of(&sent[0], &after));
            had.sort();
            has.sort();
            prop_assert_eq!(had, has);

            let outside = |body: &Bytes, seen: &RequestView| {
                let (first, last) = (tools(seen).first().unwrap(), tools(seen).last().unwrap());
                (body.slice(..first.span.start as usize), body.slice(last.span.end as usize..))
            };
            prop_assert_eq!(outside(&original, &before), outside(&sent[0], &after));

            let value = |body: &Bytes| {
                let mut value: Value = serde_json::from_slice(body).unwrap();
                let tools = value["tools"].as_array_mut().unwrap();
                tools.sort_by_key(|tool| tool["name"].as_str().unwrap().to_owned());
                value
            };
            let by_name: Value = serde_json::from_slice(&sent[0]).unwrap();
            prop_assert_eq!(value(&original), by_name);
        }

        /// The view that was made to fit says what a new walk would.
        #[test]
        fn the_view_fits_the_new_body((one, _, gaps, text) in lists()) {
            let original = body(&one, &gaps, &text);
            let mut fitted = view(&original).unwrap();
            match rewritten(&original, &mut fitted) {
                Some(new) => prop_assert_eq!(fitted, view(&new).unwrap()),
                None => prop_assert_eq!(fitted, view(&original).unwrap()),
            }
        }
    }
}
