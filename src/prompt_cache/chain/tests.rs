mod openai;

use super::*;
use crate::provider::anthropic::request::view;
use proptest::prelude::*;

fn hasher() -> Hasher {
    Hasher::new([7; 32])
}

/// The chain by a hasher that has seen nothing else.
fn chain(body: &str) -> Chain {
    hasher().chain(body.as_bytes(), &view(body.as_bytes()).unwrap(), b"scope")
}

fn last(body: &str) -> Hash {
    *chain(body).at.last().unwrap()
}

fn user(content: &str) -> String {
    format!(r#"{{"system":"s","messages":[{{"role":"user","content":{content}}}]}}"#)
}

fn all_alike(bodies: &[String]) {
    for body in bodies {
        assert_eq!(last(body), last(&bodies[0]), "{body}");
    }
}

fn all_differ(bodies: &[String]) {
    for (i, one) in bodies.iter().enumerate() {
        for other in &bodies[..i] {
            assert_ne!(last(one), last(other), "{one} {other}");
        }
    }
}

#[test]
fn spellings_with_the_same_meaning_hash_alike() {
    all_alike(&[
        user(r#""x\n""#),
        user(r#"[{"type":"text","text":"x\n"}]"#),
        user(r#"[{"type":"text","text":"x\n","cache_control":{"type":"ephemeral"}}]"#),
        user(r#"[ { "cache_control" : {"ttl":"1h"} , "type" : "text" ,"text": "x\n" } ]"#),
        user(r#"[{"type":"text","cache_control":null,"text":"x\n"}]"#),
        r#"{"messages":[{"content":"x\n","role":"user"}],"model":"m","system":[{"type":"text","text":"s"}]}"#.into(),
    ]);
    let result = |rest: &str| {
        user(&format!(
            r#"[{{"type":"tool_result","tool_use_id":"t",{rest}}}]"#
        ))
    };
    all_alike(&[
        result(r#""content":"ok","is_error":false"#),
        result(r#""content":[{"type":"text","text":"ok"}],"is_error":false"#),
        result(r#""content" : [ {"type": "text", "text":"ok"} ] , "is_error" :false "#),
        result(r#""cache_control":{"type":"ephemeral"},"content":"ok","is_error":false"#),
        result(
            r#""content":[{"type":"text","text":"ok"}], "cache_control":{"type":"ephemeral"} ,"is_error":false"#,
        ),
        result(r#""content":"ok","is_error":false,"cache_control":{"type":"ephemeral"}"#),
        result(
            r#""content":[{"type":"text","text":"ok"}],"is_error":false , "cache_control":{"type":"ephemeral"}"#,
        ),
    ]);
    let tool = |tool: &str| {
        format!(r#"{{"messages":[{{"role":"user","content":"q"}}],"tools":[{tool}]}}"#)
    };
    all_alike(&[
        tool(r#"{"name":"a","input_schema":{"type":"object","x":[1,"  "]}}"#),
        tool(r#"{"name": "a", "input_schema": {"type": "object", "x": [1, "  "]}}"#),
        tool(
            "{\n\"name\":\t\"a\",\"input_schema\":{\"type\":\"object\",\"x\":[1,\"  \"]},\r\n\"cache_control\":{\"type\":\"ephemeral\"} }",
        ),
        tool(
            r#"{"cache_control":{"type":"ephemeral"},"name":"a","input_schema":{"type":"object","x":[1,"  "]}}"#,
        ),
        tool(
            r#"{"name":"a","input_schema":{"type":"object","x":[1,"  "]}},{"name":"later","defer_loading":true}"#,
        ),
    ]);
}

#[test]
fn changes_that_the_provider_sees_differ() {
    all_differ(&[
        user(r#""x""#),
        user(r#""x ""#),
        user(r#""\u0078""#),
        user(r#"[{"type":"text","text":"x","citations":null}]"#),
        user(r#"[{"text":"x","type":"text"}]"#),
        user(r#"[{"type":"text","text":"x"},{"type":"text","text":"x"}]"#),
        r#"{"system":"s","messages":[{"role":"assistant","content":"x"}]}"#.into(),
        r#"{"system":"s","messages":[{"role":"system","content":"x"}]}"#.into(),
        r#"{"messages":[{"role":"user","content":"s"},{"role":"user","content":"x"}]}"#.into(),
    ]);
    let call = |input: &str| {
        user(&format!(
            r#"[{{"type":"tool_use","id":"t","name":"n","input":{input}}}]"#
        ))
    };
    all_differ(&[
        call(r#"{"a":1,"b":2}"#),
        call(r#"{"b":2,"a":1}"#),
        call(r#"{"a":1.0,"b":2}"#),
        call(r#"{"a":1,"b":2,"cache_control":{}}"#),
        call(r#"{"a":1,"b":"2"}"#),
    ]);
    let result = |content: &str| {
        user(&format!(
            r#"[{{"type":"tool_result","tool_use_id":"t","content":{content}}}]"#
        ))
    };
    all_differ(&[
        result(r#""ok""#),
        result(r#"[{"type":"text","text":"ok"},{"type":"text","text":"ok"}]"#),
        result(r#"["ok"]"#),
        result(r#"[]"#),
        user(r#"[{"type":"tool_result","tool_use_id":"t"}]"#),
        user(r#"[{"type":"tool_result","tool_use_id":"u","content":"ok"}]"#),
    ]);
}

#[test]
fn the_chain_is_of_the_prefix() {
    let body = r#"{"tools":[{"name":"a"},{"name":"late","defer_loading":true}],
      "system":[{"type":"text","text":"x-anthropic-billing-header: v=1;"},{"type":"text","text":"s"}],
      "messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}"#;
    let one = chain(body);
    assert_eq!(one.at[1], one.at[0], "a deferred tool moves nothing");
    assert_eq!(one.at[2], one.at[1], "nor does the attribution");
    assert_eq!(one.root, one.at[3]);
    let other = chain(&body.replace("v=1", "v=2").replace("late", "later"));
    assert_eq!(other.at, one.at);
    assert_ne!(other.blocks[1..3], one.blocks[1..3]);
    let changed = chain(&body.replace(r#""q""#, r#""Q""#));
    assert_eq!((changed.root, &changed.at[..4]), (one.root, &one.at[..4]));
    assert_ne!(changed.at[4], one.at[4]);
    assert_ne!(
        changed.at[5], one.at[5],
        "what follows a change has changed"
    );
    assert_eq!(changed.blocks[5], one.blocks[5]);

    let hasher = hasher();
    let request = view(body.as_bytes()).unwrap();
    assert_eq!(hasher.extend(one.at[4], &one.blocks[5]), one.at[5]);
    assert_ne!(
        hasher.chain(body.as_bytes(), &request, b"other").root,
        one.root
    );
    let stranger = Hasher::new([8; 32]).chain(body.as_bytes(), &request, b"scope");
    assert!(stranger.blocks.iter().zip(&one.blocks).all(|(a, b)| a != b));
    let empty = chain("{}");
    assert_eq!(empty.root, hasher.keyed("scope", b"scope"));
}

/// The provider renders its searches behind the tools, into the system prompt.
#[test]
fn a_search_moves_the_chain_where_the_system_prompt_begins() {
    let search = r#"{"type":"web_search_20260101","name":"web_search"}"#;
    let body = |tools: &str, system: &str| {
        format!(r#"{{"tools":[{tools}],{system}"messages":[{{"role":"user","content":"q"}}]}}"#)
    };
    let system = r#""system":"s","#;
    let with = chain(&body(&format!(r#"{search},{{"name":"a"}}"#), system));
    let without = chain(&body(r#"{"name":"a"}"#, system));
    assert_eq!(with.at[1], without.at[0], "the tools are still the same");
    assert_ne!(with.at[2], without.at[1]);
    assert_ne!(with.root, without.root);
    let bare = chain(&body(search, ""));
    assert_ne!(
        bare.root,
        chain(&body("", "")).root,
        "also without a system prompt"
    );
}

#[test]
fn labels_separate() {
    let hasher = hasher();
    assert_ne!(hasher.keyed("a", b"bc"), hasher.keyed("ab", b"c"));
    assert_ne!(hasher.keyed("a", b"b"), hasher.extend([0; 16], b"b"));
}

proptest! {
    /// White space between tokens never matters, and a hasher that has seen other requests gives
    /// the same hashes as a fresh one.
    #[test]
    fn white_space_and_memory_change_nothing(texts in prop::collection::vec(".*", 1..5), shown in any::<bool>()) {
        let blocks: Vec<_> = texts.iter().map(|text| serde_json::json!({
            "type": "tool_result", "tool_use_id": text, "content": [{"type": "text", "text": text}, {"type": "image"}],
            "cache_control": {"type": "ephemeral"},
        })).collect();
        let request = serde_json::json!({"messages": [{"role": "user", "content": blocks}], "tools": [{"name": texts[0]}]});
        let (tight, loose) = (request.to_string(), serde_json::to_string_pretty(&request).unwrap());
        prop_assert_eq!(chain(&tight), chain(&loose));
        let used = hasher();
        let bodies = if shown { [&tight, &loose] } else { [&loose, &tight] };
        for body in bodies {
            let seen = used.chain(body.as_bytes(), &view(body.as_bytes()).unwrap(), b"scope");
            prop_assert_eq!(seen, chain(body));
        }
    }
}

#[test]
fn a_short_step_is_the_hash_it_stands_for() {
    let hasher = Hasher::new([9; 32]);
    let bytes: Vec<u8> = (0..100).collect();
    for len in 0..bytes.len() {
        let plain = hasher.step.clone().chain_update([7; 16]);
        let plain = cut(plain.chain_update(&bytes[..len]));
        assert_eq!(hasher.extend([7; 16], &bytes[..len]), plain, "{len}");
    }
}
