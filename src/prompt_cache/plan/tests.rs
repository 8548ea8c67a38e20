use super::*;
use crate::provider::anthropic::request::view;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A situation in which nothing but the request decides.
fn open(view: &RequestView) -> Situation<'_> {
    Situation {
        min_tokens: Some(1),
        bytes_per_token_milli: 1000,
        ..Situation::new(&[], view)
    }
}

fn seen(request: &Value) -> RequestView {
    view(request.to_string().as_bytes()).unwrap()
}

fn planned(request: &Value) -> Plan {
    plan(&open(&seen(request)))
}

/// Paths and lifetimes of what the plan adds.
fn added(request: &Value) -> Vec<String> {
    let view = seen(request);
    names(&view, &plan(&open(&view)))
}

fn names(view: &RequestView, plan: &Plan) -> Vec<String> {
    assert_eq!(plan.placed.is_empty(), plan.skipped.is_some());
    let name = |(index, ttl): &(usize, Ttl)| match ttl {
        Ttl::M5 => view.path(&view.blocks[*index]),
        ttl => format!("{} {}", view.path(&view.blocks[*index]), ttl.word()),
    };
    plan.placed.iter().map(name).collect()
}

fn sent(request: &Value) -> Value {
    let body = Bytes::from(request.to_string());
    let parts = splice::apply(&body, &planned(request).splices);
    serde_json::from_slice(&parts.concat()).unwrap()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn marked(mut block: Value, ttl: &str) -> Value {
    block["cache_control"] = match ttl {
        "" => json!({"type": "ephemeral"}),
        ttl => json!({"type": "ephemeral", "ttl": ttl}),
    };
    block
}

/// An agent in its third turn, without any marker of its own.
fn agent() -> Value {
    json!({
        "tools": [{"name": "read"}, {"name": "edit"}],
        "system": [text("you are"), text("careful")],
        "messages": [
            {"role": "user", "content": "do it"},
            {"role": "assistant", "content": [text("ok"), {"type": "tool_use", "id": "1", "name": "read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "a"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "2", "name": "read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2", "content": "b"}, text("note")]},
        ],
    })
}

#[test]
fn an_agent_gets_head_newest_previous_turn_and_tools() {
    let all = [
        "tools[1]",
        "system[1]",
        "messages[2].content[0]",
        "messages[4].content[1]",
    ];
    assert_eq!(added(&agent()), all);
    let mut string = agent();
    string["system"] = json!("you are");
    string["messages"][4]["content"] = json!("go on");
    assert_eq!(
        added(&string),
        [
            "tools[1]",
            "system",
            "messages[2].content[0]",
            "messages[4].content"
        ]
    );
    assert_eq!(
        sent(&string)["messages"][4]["content"],
        json!([marked(text("go on"), "")])
    );
    let mut bare = agent();
    bare.as_object_mut().unwrap().remove("system");
    assert_eq!(
        added(&bare),
        [
            "tools[1]",
            "messages[2].content[0]",
            "messages[4].content[1]"
        ]
    );
}

#[test]
fn the_end_of_the_previous_turn_is_taken_from_the_registry_when_known() {
    let request = agent();
    let view = seen(&request);
    let at = |previous_end| {
        let situation = Situation {
            previous_end,
            ..open(&view)
        };
        names(&view, &plan(&situation))
    };
    // The block of index 4 is the first message.
    assert_eq!(
        at(Some(4)),
        [
            "tools[1]",
            "system[1]",
            "messages[0].content",
            "messages[4].content[1]"
        ]
    );
    assert_eq!(
        at(Some(0)),
        ["tools[1]", "system[1]", "messages[4].content[1]"]
    );
    assert_eq!(
        at(Some(usize::MAX - 1)),
        ["tools[1]", "system[1]", "messages[4].content[1]"]
    );
}

/// With one slot left, the previous turn's end is worth it only where the provider would not look
/// back far enough; else the end of the tools is.
#[test]
fn one_slot_goes_to_where_it_is_needed() {
    let mut request = agent();
    request["system"] = json!([marked(text("you are"), ""), marked(text("careful"), "")]);
    request["messages"][4]["content"][1] = marked(text("note"), "");
    assert_eq!(added(&request), ["tools[1]"]);
    let many: Vec<_> = (0..20).map(|i| text(&format!("block {i}"))).collect();
    request["messages"][3]["content"] = json!(many);
    assert_eq!(added(&request), ["messages[2].content[0]"]);
}

#[test]
fn a06_never_a_fifth_breakpoint() {
    // (i) four of the client's own.
    let mut four = agent();
    four["tools"][1] = marked(four["tools"][1].take(), "");
    four["system"] = json!([marked(text("you are"), ""), marked(text("careful"), "")]);
    four["messages"][4]["content"][1] = marked(text("note"), "");
    let plan = planned(&four);
    assert_eq!(
        (plan.skipped, plan.splices.len(), plan.warnings.len()),
        (Some("no_free_slot"), 0, 0)
    );
    // (ii) three and the automatic one.
    let mut auto = four.clone();
    auto["messages"][4]["content"][1] = text("note");
    auto["cache_control"] = json!({"type": "ephemeral"});
    assert_eq!(planned(&auto).skipped, Some("no_free_slot"));
    assert_eq!(sent(&auto), auto);
    // (iii) two: at most two are added.
    let mut two = four.clone();
    two["tools"][1] = json!({"name": "edit"});
    two["messages"][4]["content"][1] = text("note");
    assert_eq!(added(&two), ["tools[1]", "messages[4].content[1]"]);
    // (iv) five: the client's error stays the client's.
    let mut five = four;
    five["messages"][0]["content"] = json!([marked(text("do it"), "")]);
    let plan = planned(&five);
    assert_eq!(plan.warnings, ["more_than_4_breakpoints"]);
    assert_eq!(
        (plan.skipped, plan.splices.len()),
        (Some("no_free_slot"), 0)
    );
}

#[test]
fn a08_never_on_empty_text_or_thinking() {
    let with_last = |message: Value| {
        let mut request = agent();
        request["messages"][4] = message;
        added(&request).pop().unwrap()
    };
    let user = |content: Value| json!({"role": "user", "content": content});
    // (i) an empty text after a result.
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_9", "content": "42"});
    assert_eq!(
        with_last(user(json!([result, text("")]))),
        "messages[4].content[0]"
    );
    assert_eq!(
        with_last(user(json!([result, text(" \n\t\u{a0}")]))),
        "messages[4].content[0]"
    );
    // (ii), (iv) reasoning at the end.
    for thinking in [
        json!({"type": "thinking", "thinking": "..", "signature": "sig"}),
        json!({"type": "redacted_thinking", "data": ".."}),
    ] {
        let prefill = |content: Value| json!({"role": "assistant", "content": content});
        assert_eq!(
            with_last(prefill(json!([thinking]))),
            "messages[3].content[0]"
        );
        assert_eq!(
            with_last(prefill(json!([text("so"), thinking]))),
            "messages[4].content[0]"
        );
    }
    // (iii) nothing in that message may be marked.
    assert_eq!(with_last(user(json!([text("")]))), "messages[3].content[0]");
    assert_eq!(with_last(user(json!(" "))), "messages[3].content[0]");
    let mut request = agent();
    request["messages"][4]["content"] = json!([result, text("")]);
    assert_eq!(sent(&request)["messages"][4]["content"][1], text(""));
}

#[test]
fn a10_never_on_a_deferred_tool() {
    let deferred = json!({"name": "mcp__x__q", "defer_loading": true});
    let mut request = agent();
    request.as_object_mut().unwrap().remove("system");
    request["tools"] = json!([{"name": "read"}, {"name": "edit"}, deferred]);
    assert_eq!(added(&request)[0], "tools[1]");
    request["tools"] = json!([deferred, deferred]);
    assert_eq!(
        added(&request),
        ["messages[2].content[0]", "messages[4].content[1]"]
    );
}

#[test]
fn a15_nothing_below_the_minimum_of_the_model() {
    let mut request = agent();
    request["system"] = json!("x".repeat(12_000));
    let view = seen(&request);
    let at = |min_tokens, milli| {
        let situation = Situation {
            min_tokens,
            bytes_per_token_milli: milli,
            ..open(&view)
        };
        plan(&situation)
    };
    // About 3,000 tokens: too few for 4,096, enough for 1,024; the tools alone never are.
    assert_eq!(at(Some(4096), 4000).skipped, Some("below_minimum"));
    let names = names(&view, &at(Some(1024), 4000));
    assert_eq!(
        names,
        ["system", "messages[2].content[0]", "messages[4].content[1]"]
    );
    // What is not known is taken to be large.
    assert_eq!(at(None, 0).skipped, Some("below_minimum"));
    assert_eq!(at(None, 2000).placed.len(), 3);
    // A picture is no long text, and what the provider strips or does not load is none at all.
    let data = "A".repeat(100_000);
    let picture = json!({"type": "image", "source": {"type": "base64", "data": data}});
    let mut request = agent();
    request["messages"][0]["content"] = json!([picture]);
    request["tools"][0] = json!({"name": "late", "defer_loading": true, "description": data});
    let billing = format!("x-anthropic-billing-header: {data}");
    request["system"] = json!([text(&billing), text("you are")]);
    let view = seen(&request);
    let situation = Situation {
        min_tokens: Some(4096),
        ..open(&view)
    };
    assert_eq!(plan(&situation).skipped, Some("below_minimum"));
}

#[test]
fn a_lone_question_gets_nothing_before_its_root_was_seen() {
    let question = json!({"system": "you are", "messages": [{"role": "user", "content": "why?"}]});
    let prefilled = json!({"system": "you are", "messages": [
        {"role": "user", "content": "why?"}, {"role": "assistant", "content": "Because"}]});
    for request in [question, prefilled] {
        assert_eq!(planned(&request).skipped, Some("lone_question"));
        let view = seen(&request);
        let situation = Situation {
            outlook: Outlook::prior(Kind::of(&view), true),
            ..open(&view)
        };
        assert_eq!(names(&view, &plan(&situation)), ["system"]);
    }
    let chat = json!({"messages": [{"role": "user", "content": "why?"},
        {"role": "assistant", "content": "so"}, {"role": "user", "content": "and?"}]});
    assert_eq!(added(&chat), ["messages[0].content", "messages[2].content"]);
    let tools =
        json!({"tools": [{"name": "a"}], "messages": [{"role": "user", "content": "why?"}]});
    assert_eq!(added(&tools), ["tools[0]", "messages[0].content"]);
}

#[test]
fn the_automatic_marker_covers_the_newest_block() {
    let mut request = agent();
    request["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
    assert_eq!(
        added(&request),
        ["tools[1] 1h", "system[1] 1h", "messages[2].content[0] 1h"]
    );
}

#[test]
fn lifetimes_keep_their_order_and_the_clients_style() {
    let with = |system: &str, last: &str| {
        let mut request = agent();
        request["system"][1] = marked(text("careful"), system);
        request["messages"][4]["content"][1] = marked(text("note"), last);
        added(&request)
    };
    assert_eq!(
        with("1h", "1h"),
        ["tools[1] 1h", "messages[2].content[0] 1h"]
    );
    assert_eq!(with("1h", "5m"), ["tools[1] 1h", "messages[2].content[0]"]);
    assert_eq!(with("", "5m"), ["tools[1]", "messages[2].content[0]"]);
    // A lasting head says nothing about the conversation; a lasting conversation does.
    let mut head = agent();
    head["system"][1] = marked(text("careful"), "1h");
    assert_eq!(
        added(&head),
        [
            "tools[1] 1h",
            "messages[2].content[0]",
            "messages[4].content[1]"
        ]
    );
    let mut tail = agent();
    tail["messages"][4]["content"][0]["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
    let last = "messages[4].content[1] 1h".to_owned();
    assert_eq!(added(&tail).last(), Some(&last));
    let with = |system: &str, last: &str| {
        let mut request = agent();
        request["system"][1] = marked(text("careful"), system);
        request["messages"][4]["content"][1] = marked(text("note"), last);
        planned(&request)
    };
    let wrong = with("5m", "1h");
    assert_eq!(
        (wrong.skipped, wrong.warnings),
        (
            Some("client_breakpoints_invalid"),
            vec!["breakpoint_ttl_order"]
        )
    );
    assert_eq!(with("1h", "7d").skipped, Some("unknown_ttl"));
}

#[test]
fn what_must_not_be_edited_is_not() {
    let skipped = |change: &dyn Fn(&mut Value)| {
        let mut request = agent();
        change(&mut request);
        planned(&request)
    };
    assert_eq!(
        skipped(&|r| r["thread"] = json!({"type": "create"})).skipped,
        Some("thread")
    );
    let next = json!({"type": "continue", "previous_message_id": "msg_1"});
    assert_eq!(
        skipped(&|r| r["thread"] = next.clone()).skipped,
        Some("thread")
    );
    let nested =
        json!([{"type": "tool_result", "tool_use_id": "2", "content": [marked(text("b"), "")]}]);
    let plan = skipped(&|r| r["messages"][4]["content"] = nested.clone());
    assert_eq!(
        (plan.skipped, plan.warnings),
        (
            Some("client_breakpoints_invalid"),
            vec!["misplaced_breakpoint"]
        )
    );
    let twice = r#"{"tools":[{"name":"a"}],"system":"x","system":"x"}"#;
    let view = view(twice.as_bytes()).unwrap();
    assert_eq!(super::plan(&open(&view)).skipped, Some("uneditable"));
    let request = agent();
    let view = seen(&request);
    let off = Situation {
        insertion_off: true,
        ..open(&view)
    };
    assert_eq!(super::plan(&off).skipped, Some("insertion_off"));
    let foreign = RequestView {
        spelling: None,
        ..view
    };
    assert_eq!(
        super::plan(&open(&foreign)).skipped,
        Some("no_breakpoints_in_this_format")
    );
    assert_eq!(planned(&json!({})).skipped, Some("lone_question"));
    assert_eq!(
        planned(&json!({"tools": [{"name": "a", "defer_loading": true}]})).skipped,
        Some("no_eligible_block")
    );
}

/// The client's attribution text is first in `system`; it is neither marked nor moved.
#[test]
fn attribution_is_left_alone() {
    let mut request = agent();
    request["system"] = json!([text("x-anthropic-billing-header: cc_version=2;")]);
    assert_eq!(
        added(&request),
        [
            "tools[1]",
            "messages[2].content[0]",
            "messages[4].content[1]"
        ]
    );
}

/// What Claude Code leaves unmarked behind its own last marker.
#[test]
fn instructions_in_the_middle_of_the_conversation_are_covered() {
    let mut request = agent();
    request["messages"][4]["content"][1] = marked(text("note"), "");
    request["messages"]
        .as_array_mut()
        .unwrap()
        .push(json!({"role": "system", "content": "10 left"}));
    assert!(added(&request).contains(&"messages[5].content".to_owned()));
}

// The provider's rules once more, told of the JSON that is sent and not of the view.

/// Every marker of a request in provider order: its value, and what it stands on.
fn markers(request: &Value) -> Vec<(Value, Value)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut blocks = list(&request["tools"]);
    blocks.extend(list(&request["system"]));
    for message in list(&request["messages"]) {
        blocks.extend(list(&message["content"]));
    }
    let mut found: Vec<_> = blocks
        .into_iter()
        .filter(|block| !block["cache_control"].is_null())
        .map(|block| (block["cache_control"].clone(), block))
        .collect();
    if !request["cache_control"].is_null() {
        found.push((request["cache_control"].clone(), Value::Null));
    }
    found
}

fn may_carry(block: &Value) -> bool {
    match block["type"].as_str() {
        None => block["name"].is_string() && block["defer_loading"] != json!(true),
        Some("text") => {
            !block["text"].as_str().unwrap_or_default().trim().is_empty()
                && !block["text"]
                    .as_str()
                    .unwrap_or_default()
                    .starts_with("x-anthropic-billing")
        }
        Some(kind) => {
            matches!(kind, "tool_use" | "tool_result" | "image")
                && !block["caller"]["type"]
                    .as_str()
                    .unwrap_or_default()
                    .starts_with("code_execution")
        }
    }
}

fn some_request() -> impl Strategy<Value = Value> {
    let marker = prop_oneof![
        8 => Just(Value::Null),
        1 => Just(json!({"type": "ephemeral"})),
        1 => Just(json!({"type": "ephemeral", "ttl": "5m"})),
        1 => Just(json!({"type": "ephemeral", "ttl": "1h"})),
    ];
    let block = (0..9_u8, prop::sample::select(vec!["", " \n", "a", "a longer text"]), marker.clone()).prop_map(
        |(kind, words, marker)| {
            let mut block = match kind {
                0 => json!({"type": "tool_use", "id": "1", "name": "n", "input": {}}),
                1 => json!({"type": "tool_result", "tool_use_id": "2", "content": words}),
                2 => json!({"type": "thinking", "thinking": words, "signature": "s"}),
                3 => json!({"type": "tool_use", "id": "3", "caller": {"type": "code_execution_1"}, "input": {}}),
                4 => json!({"type": "image", "source": {}}),
                5 => json!({"type": "novelty"}),
                _ => text(words),
            };
            if !marker.is_null() {
                block["cache_control"] = marker;
            }
            block
        },
    );
    let content = prop_oneof![
        1 => prop::sample::select(vec!["", " ", "hello"]).prop_map(Value::from),
        3 => prop::collection::vec(block, 0..6).prop_map(Value::from),
    ];
    let role = prop::sample::select(vec!["user", "assistant", "system"]);
    let message = (role, content.clone())
        .prop_map(|(role, content)| json!({"role": role, "content": content}));
    let tool = (any::<bool>(), marker.clone()).prop_map(|(deferred, marker)| {
        let mut tool = json!({"name": "t", "defer_loading": deferred});
        if !marker.is_null() && !deferred {
            tool["cache_control"] = marker;
        }
        tool
    });
    let (tools, messages) = (
        prop::collection::vec(tool, 0..4),
        prop::collection::vec(message, 0..8),
    );
    (tools, content, messages, marker).prop_map(|(tools, system, messages, auto)| {
        let mut request = json!({"tools": tools, "system": system, "messages": messages});
        if !auto.is_null() {
            request["cache_control"] = auto;
        }
        request
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_plan_breaks_a_rule_of_the_provider(
        request in some_request(), previous_end in prop::option::of(0..40_usize),
        min_tokens in prop::option::of(0..200_u32), root_seen in any::<bool>(),
    ) {
        let body = Bytes::from(request.to_string());
        let view = view(&body).unwrap();
        let outlook = Outlook::prior(Kind::of(&view), root_seen);
        let situation = Situation { previous_end, min_tokens, outlook, ..open(&view) };
        let plan = plan(&situation);
        prop_assert_eq!(&plan, &super::plan(&situation), "the same request gives the same plan");
        let sent: Value = serde_json::from_slice(&splice::apply(&body, &plan.splices).concat()).unwrap();
        let (before, after) = (markers(&request), markers(&sent));
        prop_assert_eq!(after.len(), before.len() + plan.placed.len());
        if !plan.placed.is_empty() {
            prop_assert!(plan.skipped.is_none() && after.len() <= 4);
            let long = |(marker, _): &(Value, Value)| marker["ttl"] == json!("1h");
            prop_assert!(after.is_sorted_by(|a, b| long(a) >= long(b)), "{:?}", after);
            // The client's own may stand where they should not; ours never do.
            let ours = after.iter().filter(|(_, on)| !on.is_null() && !may_carry(on)).count();
            prop_assert_eq!(ours, before.iter().filter(|(_, on)| !on.is_null() && !may_carry(on)).count());
        }
        for (index, _) in &plan.placed {
            prop_assert!(view.blocks[*index].marker.is_none());
        }
    }
}
