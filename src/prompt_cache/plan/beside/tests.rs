use super::*;
use crate::prompt_cache::habits::{Kind, Outlook, Stable};
use crate::prompt_cache::plan::{Policy, plan};
use crate::provider::openai::request::tests::properties::{WIRES, body, conversation};
use crate::provider::wire::Wire;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

const NEW: &str = "gpt-6-sol";
const MARKER: &str = r#","prompt_cache_breakpoint":{"mode":"explicit"}"#;

fn situation(view: &RequestView) -> Situation<'_> {
    Situation {
        min_tokens: Some(1),
        bytes_per_token_milli: 1000,
        ..Situation::new(&[], view)
    }
}

fn view(wire: Wire, request: &Value) -> RequestView {
    wire.view(request.to_string().as_bytes()).unwrap()
}

/// Paths of what is marked, or why nothing is.
fn planned(situation: &Situation) -> Result<Vec<String>, &'static str> {
    let plan = plan(situation);
    let view = situation.view;
    assert_eq!(plan.placed.is_empty(), plan.skipped.is_some());
    assert_eq!(plan.splices.is_empty(), plan.skipped.is_some());
    assert!(plan.removed.is_empty() && plan.warnings.is_empty());
    let path = |(at, _): &(usize, Ttl)| view.path(&view.blocks[*at]);
    match plan.skipped {
        Some(reason) => Err(reason),
        None => Ok(plan.placed.iter().map(path).collect()),
    }
}

fn of(wire: Wire, request: Value) -> Result<Vec<String>, &'static str> {
    planned(&situation(&view(wire, &request)))
}

fn sent(wire: Wire, request: &Value) -> String {
    let body = Bytes::from(request.to_string());
    let view = view(wire, request);
    let parts = splice::apply(&body, &plan(&situation(&view)).splices);
    String::from_utf8(parts.concat()).unwrap()
}

fn chat(messages: Value) -> Value {
    json!({"model": NEW, "messages": messages})
}

fn responses(input: Value) -> Value {
    json!({"model": NEW, "input": input})
}

#[test]
fn the_end_of_the_system_prompt_is_marked() {
    let user = json!({"role": "user", "content": "q"});
    let system = json!({"role": "system", "content": "be brief"});
    let rules = json!({"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
    let one = |path: &str| Ok(vec![path.to_owned()]);
    assert_eq!(
        of(Wire::Chat, chat(json!([system, user]))),
        one("messages[0].content")
    );
    assert_eq!(
        of(Wire::Chat, chat(json!([system, rules, user]))),
        one("messages[1].content[1]")
    );
    let item = json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"}]});
    let mut both = responses(json!([item, user]));
    both["instructions"] = json!("be brief");
    assert_eq!(of(Wire::Responses, both), one("input[0].content[0]"));
    assert_eq!(
        of(Wire::Responses, responses(json!([system, user]))),
        one("input[0].content")
    );
}

#[test]
fn a_string_becomes_the_part_that_its_format_knows() {
    let messages =
        json!([{"content": "be \"brief\"", "role": "system"}, {"role": "user", "content": "q"}]);
    for (wire, request, kind) in [
        (Wire::Chat, chat(messages.clone()), "text"),
        (Wire::Responses, responses(messages), "input_text"),
    ] {
        let text = sent(wire, &request);
        let part = format!(r#"[{{"type":"{kind}","text":"be \"brief\""{MARKER}}}]"#);
        assert!(text.contains(&format!(r#""content":{part}"#)), "{text}");
        let again = wire.view(text.as_bytes()).unwrap();
        assert_eq!(again.blocks[0].marker.unwrap().ttl, Some(Ttl::M30));
        assert_eq!(planned(&situation(&again)), Err("already_marked"));
    }
}

#[test]
fn whoever_says_anything_about_caching_gets_none() {
    let talk = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]);
    for (key, value) in [
        ("prompt_cache_options", json!({"mode": "explicit"})),
        ("prompt_cache_options", json!({"ttl": "12h"})),
        ("prompt_cache_options", json!({})),
        ("prompt_cache_retention", json!("24h")),
    ] {
        for wire in WIRES {
            let mut request = match wire {
                Wire::Chat => chat(talk.clone()),
                _ => responses(talk.clone()),
            };
            request[key] = value.clone();
            let view = view(wire, &request);
            assert_eq!(planned(&situation(&view)), Err("already_marked"), "{key}");
            assert!(view.lifetimes.is_empty() && view.retention.is_none());
        }
    }
    let marked = json!([{"role": "system", "content": "s"}, {"role": "user", "content": [
        {"type": "text", "text": "q", "prompt_cache_breakpoint": {"mode": "explicit"}}]}]);
    assert_eq!(of(Wire::Chat, chat(marked.clone())), Err("already_marked"));
    assert!(view(Wire::Chat, &chat(marked)).lifetimes.is_empty());
}

#[test]
fn what_cannot_be_marked_is_left_with_a_reason() {
    let user = json!([{"role": "user", "content": "q"}]);
    let mut instructed = responses(user.clone());
    instructed["instructions"] = json!("be brief");
    assert_eq!(
        of(Wire::Responses, instructed),
        Err("instructions_carry_none")
    );
    assert_eq!(
        of(Wire::Responses, responses(json!("q"))),
        Err("no_eligible_block")
    );
    assert_eq!(of(Wire::Chat, chat(user)), Err("no_eligible_block"));
    let talk = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]);
    let mut old = chat(talk.clone());
    old["model"] = json!("gpt-5.5");
    assert_eq!(of(Wire::Chat, old), Err("no_breakpoints_in_this_format"));
    let seen = view(Wire::Chat, &chat(talk));
    let short = Situation {
        min_tokens: Some(1024),
        ..situation(&seen)
    };
    assert_eq!(planned(&short), Err("below_minimum"));
    let off = Situation {
        insertion_off: true,
        ..situation(&seen)
    };
    assert_eq!(planned(&off), Err("insertion_off"));
    let twice =
        r#"{"model":"gpt-6-sol","model":"gpt-6-sol","messages":[{"role":"system","content":"s"}]}"#;
    let twice = Wire::Chat.view(twice.as_bytes()).unwrap();
    assert_eq!(planned(&situation(&twice)), Err("uneditable"));
}

#[test]
fn what_a_conversation_is_known_to_keep_is_marked_too() {
    let part = |text: &str| json!({"type": "text", "text": text});
    let talk = json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": [part("a"), part("b")]},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": [part("c"), part("clock")]},
    ]);
    let request = view(Wire::Chat, &chat(talk));
    let mut learnt = situation(&request);
    learnt.outlook = Outlook::prior(Kind::of(&request), false);
    let with = |stable: Option<Stable>| {
        let mut learnt = learnt.clone();
        learnt.outlook.stable = stable.map(|stable| (stable, 0.9));
        planned(&learnt).unwrap()
    };
    assert_eq!(with(None), ["messages[0].content"]);
    assert_eq!(
        with(Some(Stable::AllBut(1))),
        ["messages[0].content", "messages[3].content[0]"]
    );
    assert_eq!(
        with(Some(Stable::Blocks(2))),
        ["messages[0].content", "messages[1].content[0]"]
    );
    assert_eq!(
        with(Some(Stable::AllBut(0))),
        ["messages[0].content", "messages[3].content[0]"],
        "the end is the provider's own place"
    );
    assert_eq!(with(Some(Stable::Blocks(1))), ["messages[0].content"]);
}

#[test]
fn the_policy_replace_takes_nothing_out_either() {
    let talk = json!([{"role": "system", "content": [
        {"type": "text", "text": "q", "prompt_cache_breakpoint": {"mode": "explicit"}}]}]);
    let seen = view(Wire::Chat, &chat(talk));
    let replacing = Situation {
        policy: Policy::Replace,
        ..situation(&seen)
    };
    assert_eq!(planned(&replacing), Err("already_marked"));
}

fn without(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(without),
        Value::Object(members) => {
            members.remove("prompt_cache_breakpoint");
            members.values_mut().for_each(without);
        }
        _ => {}
    }
}

proptest! {
    /// The edited body is the client's by bytes once our insertions are out of it, and by value but
    /// for the breakpoint and the string that became a part.
    #[test]
    fn only_breakpoints_are_added((elements, _) in conversation(), system in "[a-z\"\\\\ ]{1,9}", pretty in any::<bool>(), cut in 0..4_u32) {
        for wire in WIRES {
            let mut request = body(wire, &elements);
            request["model"] = json!(NEW);
            let list = if wire == Wire::Chat { "messages" } else { "input" };
            let head = json!({"role": "developer", "content": system});
            request[list].as_array_mut().unwrap().insert(0, head);
            let text = if pretty { serde_json::to_string_pretty(&request) } else { serde_json::to_string(&request) }.unwrap();
            let view = wire.view(text.as_bytes()).unwrap();
            let mut learnt = situation(&view);
            learnt.outlook.stable = Some((Stable::AllBut(cut), 0.9));
            let plan = plan(&learnt);
            prop_assert!(splice::fits(text.len(), &plan.splices));
            let sent = splice::apply(&Bytes::from(text.clone()), &plan.splices).concat();
            prop_assert_eq!(splice::undo(&sent, &plan.splices, text.as_bytes()).unwrap(), text.as_bytes());
            prop_assert!(plan.placed.len() <= 3);
            let mut sent: Value = serde_json::from_slice(&sent).unwrap();
            let marks = sent.to_string().matches(r#"{"mode":"explicit"}"#).count();
            prop_assert_eq!(marks, plan.placed.len() + request.to_string().matches(r#"{"mode":"explicit"}"#).count());
            let mut expected = request.clone();
            without(&mut expected);
            without(&mut sent);
            let kind = if wire == Wire::Chat { "text" } else { "input_text" };
            for (at, _) in &plan.placed {
                let block = &view.blocks[*at];
                if block.form == Form::BareString {
                    prop_assert_eq!(block.section, Section::System);
                    let content = &mut expected[list][block.place as usize]["content"];
                    *content = json!([{"type": kind, "text": content.take()}]);
                }
            }
            prop_assert_eq!(sent, expected);
        }
    }
}
