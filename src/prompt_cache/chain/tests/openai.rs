//! Chains of Chat and Responses requests.

use proptest::prelude::*;

use super::hasher;
use crate::prompt_cache::chain::{Chain, Hash};
use crate::provider::openai::request::tests::properties::{WIRES, any_json, body, conversation};
use crate::provider::wire::Wire;

/// The chain by a hasher that has seen nothing else.
fn chain(wire: Wire, body: &str) -> Chain {
    let view = wire.view(body.as_bytes()).unwrap();
    hasher().chain(body.as_bytes(), &view, b"scope")
}

fn last(wire: Wire, body: &str) -> Hash {
    *chain(wire, body).at.last().unwrap()
}

fn all_alike(wire: Wire, bodies: &[String]) {
    for body in bodies {
        assert_eq!(last(wire, body), last(wire, &bodies[0]), "{body}");
    }
}

fn all_differ(wire: Wire, bodies: &[String]) {
    for (i, one) in bodies.iter().enumerate() {
        for other in &bodies[..i] {
            assert_ne!(last(wire, one), last(wire, other), "{one} {other}");
        }
    }
}

#[test]
fn chat_spellings_with_the_same_meaning_hash_alike() {
    let user = |content: &str| {
        format!(
            r#"{{"messages":[{{"role":"system","content":"s"}},{{"role":"user","content":{content}}}]}}"#
        )
    };
    all_alike(
        Wire::Chat,
        &[
            user(r#""x\n""#),
            user(r#"[{"type":"text","text":"x\n"}]"#),
            user(r#"[ {"text" : "x\n", "type": "text" , "annotations": [ ], "logprobs":null } ]"#),
            user(r#"[{"type":"text","prompt_cache_breakpoint":{"mode":"explicit"},"text":"x\n"}]"#),
            r#"{"messages":[{"content":[{"type":"text","text":"s"}],"role":"developer"},{"content":"x\n","role":"user"}]}"#.into(),
        ],
    );
    all_differ(
        Wire::Chat,
        &[
            user(r#""x""#),
            user(r#""x ""#),
            user(r#"[{"type":"text","text":"x","annotations":[{}]}]"#),
            user(r#"[{"type":"text","text":"x"},{"type":"text","text":"x"}]"#),
            user(r#"[{"type":"image_url","text":"x"}]"#),
            r#"{"messages":[{"role":"user","content":"s"},{"role":"user","content":"x"}]}"#.into(),
        ],
    );
    let result = |content: &str| {
        user(r#""q""#).replace(
            "]}",
            &format!(r#",{{"role":"tool","tool_call_id":"c","content":{content}}}]}}"#),
        )
    };
    all_alike(
        Wire::Chat,
        &[
            result(r#""ok""#),
            result(r#"[{"type":"text","text":"ok"}]"#),
            result(r#"[ {"type":"text","text":"ok" , "cache_control":{"type":"ephemeral"}} ]"#),
        ],
    );
    all_alike(
        Wire::Chat,
        &[
            result(r#"[{"type":"text","text":"ok"},{"type":"text","text":"more"}]"#),
            result(
                r#"[{"type":"text","text":"ok"},{"type":"text","text":"more","prompt_cache_breakpoint":{"mode":"explicit"}}]"#,
            ),
            result(
                r#"[{"type":"text","text":"ok"},{"prompt_cache_breakpoint":{"mode":"explicit"},"type":"text","text":"more"}]"#,
            ),
        ],
    );
    let said = |members: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"q"}},{{"role":"assistant",{members}}}]}}"#
        )
    };
    // The order of a message's members is none of the model's business.
    all_alike(
        Wire::Chat,
        &[
            said(r#""content":"a","tool_calls":[{"id":"c"}],"refusal":null"#),
            said(r#""tool_calls":[{"id":"c"}],"content":"a""#),
            said(
                r#""annotations":[],"tool_calls": [ { "id" : "c"} ],"content": [{"type":"text","text":"a"}],"audio":null"#,
            ),
        ],
    );
}

#[test]
fn a_bare_input_is_what_the_user_says() {
    let body = r#"{"input":"hi","model":"m"}"#;
    all_alike(
        Wire::Responses,
        &[
            body.into(),
            r#"{"input":[{"role":"user","content":"hi"}]}"#.into(),
            r#"{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]}"#.into(),
            r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"hi","prompt_cache_breakpoint":{"mode":"explicit","ttl":"12h"}}]}]}"#.into(),
        ],
    );
    all_differ(
        Wire::Responses,
        &[
            body.into(),
            r#"{"input":[{"role":"developer","content":"hi"}]}"#.into(),
            r#"{"instructions":"hi"}"#.replace('}', r#","input":""}"#),
            r#"{"input":[{"role":"assistant","content":[{"type":"output_text","text":"hi"}]}]}"#
                .into(),
            r#"{"input":[{"type":"function_call_output","call_id":"c","output":"hi"}]}"#.into(),
            r#"{"input":[{"type":"function_call_output","call_id":"d","output":"hi"}]}"#.into(),
        ],
    );
}

#[test]
fn a_message_that_the_client_got_and_sends_back_is_the_same() {
    let said = |content: &str| {
        format!(
            r#"{{"input":[{{"role":"user","content":"q"}},{{"type":"message","role":"assistant","content":{content}}}]}}"#
        )
    };
    all_alike(
        Wire::Responses,
        &[
            said(r#""a""#),
            said(r#"[{"type":"output_text","text":"a"}]"#),
            said(r#"[{"annotations":[],"text":"a","type":"output_text","logprobs":[]}]"#),
        ],
    );
    all_differ(
        Wire::Responses,
        &[
            said(r#""a""#),
            said(r#"[{"type":"output_text","text":"a","annotations":[{"type":"url_citation"}]}]"#),
            said(r#"[{"type":"refusal","refusal":"a"}]"#),
        ],
    );
}

/// What stands before a change keeps its chain; tools stand before instructions.
#[test]
fn c01_the_chain_is_of_the_prefix() {
    let body = r#"{"input":[{"role":"developer","content":"rules"},{"role":"user","content":"q"},
      {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"1"}],
      "instructions":"s","tools":[{"type":"function","name":"f"},{"type":"web_search"}]}"#;
    let before = chain(Wire::Responses, body);
    let differs_from = |old: &str, new: &str| {
        let after = chain(Wire::Responses, &body.replace(old, new));
        let at = before.at.iter().zip(&after.at).position(|(a, b)| a != b);
        (at, before.root == after.root)
    };
    assert_eq!(before.at.len(), 7);
    assert_eq!(differs_from("web_search", "file_search"), (Some(1), false));
    assert_eq!(differs_from(r#""s""#, r#""t""#), (Some(2), false));
    assert_eq!(differs_from("rules", "no rules"), (Some(3), false));
    assert_eq!(differs_from(r#""1""#, r#""2""#), (Some(6), true));
    assert_eq!(differs_from(r#""model":"m","#, ""), (None, true));
}

proptest! {
    #[test]
    fn a_conversation_that_grows_keeps_the_chain_of_its_prefix((all, earlier) in conversation()) {
        for wire in WIRES {
            let (old, new) = (body(wire, &all[..earlier]).to_string(), body(wire, &all).to_string());
            let (before, after) = (chain(wire, &old), chain(wire, &new));
            prop_assert_eq!(&after.at[..before.at.len()], &before.at[..]);
        }
    }

    #[test]
    fn white_space_between_tokens_never_matters(value in any_json(), (all, _) in conversation()) {
        for wire in WIRES {
            let one = serde_json::json!({"messages": [value.clone()], "input": [value.clone()], "tools": [value.clone()]});
            for value in [body(wire, &all), one] {
                let (tight, loose) = (value.to_string(), serde_json::to_string_pretty(&value).unwrap());
                if wire.view(tight.as_bytes()).is_ok() {
                    prop_assert_eq!(chain(wire, &tight), chain(wire, &loose));
                }
            }
        }
    }
}
