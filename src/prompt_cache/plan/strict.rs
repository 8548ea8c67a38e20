//! Plans against the strict simulated provider, which shares no code with them.

use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Value, json};

use super::*;
use crate::prompt_cache::habits::{Stable, Within};
use crate::provider::anthropic::request::view;
use crate::sim::Counting;
use crate::sim::desk::Desk;

/// The request after a plan for it.
fn edited(situation: &Situation) -> (Bytes, Plan) {
    let plan = plan(situation);
    let body = Bytes::copy_from_slice(situation.body);
    (splice::apply(&body, &plan.splices).concat().into(), plan)
}

fn text(words: &str) -> Value {
    json!({"type": "text", "text": words})
}

/// A conversation of some length in which every rule about markers can be broken: up to five
/// markers of the client, anywhere, of any lifetime.
fn request() -> impl Strategy<Value = Value> {
    let block = (0..9_u8, prop::sample::select(vec!["", " \n", "a", "a longer text"])).prop_map(
        |(kind, words)| match kind {
            0 => json!({"type": "tool_use", "id": "1", "name": "n", "input": {"cache_control": 1}}),
            1 => json!({"type": "tool_result", "tool_use_id": "2", "content": [text("x")]}),
            2 => json!({"type": "thinking", "thinking": words, "signature": "s"}),
            3 => json!({"type": "tool_use", "id": "3", "name": "n", "caller": {"type": "code_execution_1"}, "input": {}}),
            4 => json!({"type": "tool_result", "tool_use_id": "3", "content": "y"}),
            5 => json!({"type": "novelty"}),
            _ => text(words),
        },
    );
    let content = prop_oneof![
        1 => prop::sample::select(vec![" ", "hello"]).prop_map(Value::from),
        4 => prop::collection::vec(block, 1..6).prop_map(Value::from),
    ];
    let message = (prop::sample::select(vec!["user", "assistant"]), content)
        .prop_map(|(role, content)| json!({"role": role, "content": content}));
    let system = prop_oneof![
        Just(json!("you are")),
        Just(json!([
            text("x-anthropic-billing-header: cc_version=1;"),
            text("you are")
        ])),
        Just(json!([text("you are"), text("careful")])),
    ];
    let tools = prop::collection::vec(any::<bool>(), 0..4);
    let markers = prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8), 0..6);
    let top = prop::option::weighted(0.2, 0..3_u8);
    (
        tools,
        system,
        prop::collection::vec(message, 1..8),
        markers,
        top,
        any::<bool>(),
    )
        .prop_map(|(tools, system, messages, markers, top, inner)| {
            let tools: Vec<Value> = tools
                .iter()
                .enumerate()
                .map(|(index, deferred)| {
                    let mut tool =
                        json!({"name": format!("t{index}"), "input_schema": {"type": "object"}});
                    if *deferred {
                        tool["defer_loading"] = json!(true);
                    }
                    tool
                })
                .collect();
            let mut request = json!({"model": "test-sonnet", "max_tokens": 10, "tools": tools,
                "system": system, "messages": messages});
            let mut places: Vec<String> = (0..tools.len()).map(|i| format!("/tools/{i}")).collect();
            let list = |value: &Value| value.as_array().map_or(0, Vec::len);
            places.extend((0..list(&request["system"])).map(|i| format!("/system/{i}")));
            for (m, message) in messages.iter().enumerate() {
                let content = &message["content"];
                places.extend((0..list(content)).map(|i| format!("/messages/{m}/content/{i}")));
            }
            let marker = |life| match life {
                0 => json!({"type": "ephemeral"}),
                1 => json!({"type": "ephemeral", "ttl": "5m"}),
                _ => json!({"type": "ephemeral", "ttl": "1h"}),
            };
            for (at, life) in markers {
                if places.is_empty() {
                    break;
                }
                let place = &places[at.index(places.len())];
                let block = request.pointer_mut(place).unwrap();
                if inner && !block["content"][0].is_null() {
                    block["content"][0]["cache_control"] = marker(life);
                } else {
                    block["cache_control"] = marker(life);
                }
            }
            if let Some(life) = top {
                request["cache_control"] = marker(life);
            }
            request
        })
}

/// Any expectations at all, also senseless ones.
fn outlook() -> impl Strategy<Value = Outlook> {
    let chance = || prop_oneof![Just(0.0), Just(1.0), 0.0..1.0];
    let within =
        || (chance(), chance()).prop_map(|(m5, h1): (f64, f64)| Within { m5, h1: h1.max(m5) });
    let stable = prop_oneof![
        (0..40_u32).prop_map(Stable::Blocks),
        (0..40_u32).prop_map(Stable::AllBut)
    ];
    let stable = prop::option::of((stable, chance()));
    let survival = (chance(), chance(), chance());
    (
        (within(), within(), within(), within()),
        survival,
        stable,
        0.0..3.0,
        any::<bool>(),
    )
        .prop_map(
            |((next, thread, root, app), (tools, head, all), stable, growth, root_seen)| Outlook {
                next,
                thread,
                root,
                app,
                tools,
                head,
                all,
                stable,
                growth,
                root_seen,
            },
        )
}

fn life() -> impl Strategy<Value = Option<Ttl>> {
    prop::sample::select(vec![None, Some(Ttl::M5), Some(Ttl::H1)])
}

/// Without any member of that name outside of the content of blocks.
fn without_markers(mut request: Value) -> Value {
    fn strip(block: &mut Value) {
        if let Some(members) = block.as_object_mut() {
            members.remove("cache_control");
        }
    }
    strip(&mut request);
    for key in ["tools", "system"] {
        for block in request[key].as_array_mut().into_iter().flatten() {
            strip(block);
        }
    }
    for message in request["messages"].as_array_mut().unwrap() {
        if let Some(words) = message["content"].as_str().map(str::to_owned) {
            message["content"] = json!([text(&words)]);
        }
        for block in message["content"].as_array_mut().into_iter().flatten() {
            strip(block);
        }
    }
    if let Some(words) = request["system"].as_str().map(str::to_owned) {
        request["system"] = json!([text(&words)]);
    }
    request
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    /// Never a refusal that the client's own bytes do not get, and never anything but markers.
    #[test]
    fn no_plan_is_refused(
        request in request(), outlook in outlook(), replace in any::<bool>(), pretty in any::<bool>(),
        previous_end in prop::option::of(0..40_usize), read_at in prop::option::of(0..40_u32),
        ttl in life(), head_ttl in life(), min in 0..60_u32,
    ) {
        let body = if pretty { serde_json::to_string_pretty(&request) } else { serde_json::to_string(&request) }.unwrap();
        let view = view(body.as_bytes()).unwrap();
        let situation = Situation {
            policy: if replace { Policy::Replace } else { Policy::Fill },
            outlook, previous_end, read_at, ttl, head_ttl,
            min_tokens: Some(min), bytes_per_token_milli: 4000,
            ..Situation::new(body.as_bytes(), &view)
        };
        let (sent, plan) = edited(&situation);
        prop_assert_eq!(&plan, &edited(&situation).1, "the same gives the same");
        prop_assert_eq!(plan.placed.is_empty(), plan.skipped.is_some());
        prop_assert_eq!(splice::undo(&sent, &plan.splices, body.as_bytes()).unwrap(), body.as_bytes());
        let desk = Desk::new(Counting::PerBlock, false);
        let own = desk.send(body.as_bytes());
        let ours = desk.send(&sent);
        if let Err(refusal) = &ours {
            prop_assert!(own.is_err(), "{refusal}");
        }
        let after: Value = serde_json::from_slice(&sent).unwrap();
        if !plan.splices.is_empty() {
            let markers = crate::provider::anthropic::request::view(&sent).unwrap().client_markers();
            prop_assert!(markers as usize <= MAX_MARKERS);
        }
        if !replace {
            prop_assert!(plan.removed.is_empty() && !plan.removed_top);
        }
        prop_assert_eq!(without_markers(after), without_markers(request));
    }
}

/// The property above says something: many of its requests are accepted as they come, and edited.
#[test]
fn requests_are_accepted_and_edited() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut filled, mut replaced) = (0, 0);
    for _ in 0..400 {
        let request = request().new_tree(&mut runner).unwrap().current();
        let body = request.to_string();
        if Desk::new(Counting::PerBlock, false)
            .send(body.as_bytes())
            .is_err()
        {
            continue;
        }
        let view = view(body.as_bytes()).unwrap();
        let with = |policy| {
            let situation = Situation {
                policy,
                outlook: Outlook::prior(Kind::Agent, true),
                min_tokens: Some(1),
                ..Situation::new(body.as_bytes(), &view)
            };
            edited(&situation).1
        };
        filled += usize::from(!with(Policy::Fill).placed.is_empty());
        replaced += usize::from(!with(Policy::Replace).removed.is_empty());
    }
    assert!(filled > 100 && replaced > 20, "{filled} {replaced}");
}

/// What a client of a growing conversation marks itself.
#[derive(Debug, Clone, Copy)]
enum Own {
    Nothing,
    Head,
    Newest,
    HeadAndNewest,
    Top,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// However much a turn appends, the next one reads all that was written: by itself, with the
    /// client's markers beside ours, with and without a shadow cache.
    #[test]
    fn what_was_written_is_read(
        turns in prop::collection::vec((1..200_usize, 1..200_usize), 2..7),
        own in prop::sample::select(vec![Own::Nothing, Own::Head, Own::Newest, Own::HeadAndNewest, Own::Top]),
        replace in any::<bool>(), known in any::<bool>(),
        counting in prop::sample::select(vec![Counting::PerBlock, Counting::Grouped]),
    ) {
        let desk = Desk::new(counting, false);
        let marker = json!({"type": "ephemeral"});
        let long = "word ".repeat(1200);
        let mut messages: Vec<Value> = Vec::new();
        let (mut readable, mut end, mut ttl) = (0, None, None);
        for (turn, (answered, asked)) in turns.into_iter().enumerate() {
            let blocks = |who: &str, number: usize| -> Vec<Value> {
                (0..number).map(|i| text(&format!("{who} {turn} {i}"))).collect()
            };
            if turn > 0 {
                messages.push(json!({"role": "assistant", "content": blocks("a", answered)}));
            }
            messages.push(json!({"role": "user", "content": blocks("u", asked)}));
            let mut request = json!({"model": "test-sonnet", "max_tokens": 10,
                "tools": [{"name": "t", "input_schema": {"type": "object"}}],
                "system": [text(&long)], "messages": messages});
            if matches!(own, Own::Head | Own::HeadAndNewest) {
                request["system"][0]["cache_control"] = marker.clone();
            }
            if matches!(own, Own::Newest | Own::HeadAndNewest) {
                let message = messages.len() - 1;
                request["messages"][message]["content"][asked - 1]["cache_control"] = marker.clone();
            }
            if matches!(own, Own::Top) {
                request["cache_control"] = marker.clone();
            }
            let body = request.to_string();
            let view = view(body.as_bytes()).unwrap();
            let situation = Situation {
                policy: if replace { Policy::Replace } else { Policy::Fill },
                min_tokens: Some(1024),
                previous_end: end.filter(|_| known),
                read_at: end.filter(|_| known).and_then(|at: usize| u32::try_from(at).ok()),
                ttl,
                ..Situation::new(body.as_bytes(), &view)
            };
            let (sent, plan) = edited(&situation);
            let tokens = desk.send(&sent).unwrap();
            prop_assert_eq!(tokens.read, readable, "turn {}: {:?}", turn, plan);
            prop_assert_eq!(tokens.uncached, 0, "all of it is written: {:?}", plan);
            readable = tokens.total();
            ttl = plan.ttl;
            end = Some(view.blocks.len() - 1);
            desk.wait(20_000);
        }
    }
}
