use super::*;
use crate::prompt_cache::chain::Hasher;
use crate::prompt_cache::trail::Betas;
use crate::prompt_cache::verdict::What;
use crate::provider::anthropic::request::view;
use crate::provider::view::BlockKind;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A thread's memory.
struct Thread {
    hasher: Hasher,
    keep: Keep,
    excerpts: bool,
}

impl Thread {
    fn new() -> Self {
        Self {
            hasher: Hasher::new([7; 32]),
            keep: Keep::new(8 << 20),
            excerpts: true,
        }
    }

    fn trail(&self, body: &str, view: &RequestView) -> Trail {
        let chain = self.hasher.chain(body.as_bytes(), view, b"scope");
        let betas = Betas::default();
        Trail::new(
            &self.hasher,
            body.as_bytes(),
            view,
            &chain,
            betas,
            Vec::new(),
        )
    }

    /// Learns the first request and compares the second one with it.
    fn compare(&mut self, past: &str, now: &str) -> Option<Change> {
        let past_view = view(past.as_bytes()).unwrap();
        let past_trail = self.trail(past, &past_view);
        self.keep
            .learn(None, &past_trail, past.as_bytes(), &past_view);
        let now_view = view(now.as_bytes()).unwrap();
        let now_trail = self.trail(now, &now_view);
        let seen = Seen {
            body: now.as_bytes(),
            view: &now_view,
            keep: &self.keep,
            excerpts: self.excerpts,
        };
        let change = first_change(&past_trail, &now_trail, &seen);
        if let Some(change) = &change {
            assert!(change.index as usize <= now_trail.steps.len());
            // A tool more behind a list of tools that was all of the request.
            assert!(change.before as usize <= past_trail.steps.len());
            check_place(now, change);
        }
        change
    }
}

/// The path leads to a value of the request, or just behind its last one, and the offset into it.
fn check_place(now: &str, change: &Change) {
    let request: Value = serde_json::from_str(now).unwrap();
    let pointer = format!(
        "/{}",
        change
            .path
            .replace("].", "/")
            .replace([']'], "")
            .replace(['[', '.'], "/")
    );
    let Some(value) = request.pointer(&pointer) else {
        assert_eq!(change.offset, None, "{change:?} {now}");
        assert!(
            matches!(
                change.what,
                What::Removed
                    | What::Moved
                    | What::Rewound
                    | What::ThinkingDropped
                    | What::Reminder
                    | What::ToolRemoved
                    | What::ToolsReordered
            ),
            "{change:?} {now}"
        );
        return;
    };
    if let Some(offset) = change.offset {
        let spelled = written(value, "");
        let most = match value {
            // Other spellings are at most as long as the request.
            _ if now != written(&request, "") => now.len(),
            Value::String(_) => spelled.len() - 2,
            _ => spelled.len(),
        };
        assert!(offset as usize <= most, "{change:?} {now}");
    }
}

/// JSON as clients write it: the type first, a marker last.
fn written(value: &Value, gap: &str) -> String {
    let join = |parts: Vec<String>| parts.join(&format!(",{gap}"));
    match value {
        Value::Array(items) => {
            let items = items.iter().map(|item| written(item, gap)).collect();
            format!("[{gap}{}{gap}]", join(items))
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| (*key != "type", *key == "cache_control"));
            let members = members
                .iter()
                .map(|(key, value)| format!("{}{gap}:{gap}{}", json!(key), written(value, gap)));
            format!("{{{gap}{}{gap}}}", join(members.collect()))
        }
        scalar => scalar.to_string(),
    }
}

fn compare(past: &Value, now: &Value) -> Option<Change> {
    Thread::new().compare(&written(past, ""), &written(now, ""))
}

fn changed(past: &Value, now: &Value) -> Change {
    compare(past, now).expect("a change")
}

/// What, path and detail.
fn said(past: &Value, now: &Value) -> (What, String, String) {
    let change = changed(past, now);
    (change.what, change.path, change.detail)
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn user(content: Value) -> Value {
    json!({"role": "user", "content": content})
}

fn assistant(content: Value) -> Value {
    json!({"role": "assistant", "content": content})
}

fn talk(messages: Vec<Value>) -> Value {
    json!({"tools": [{"name": "read"}], "system": "You help.", "messages": messages})
}

/// Alternating messages of distinct texts.
fn turns(count: usize) -> Vec<Value> {
    let line = |at| json!(format!("line {at} of a conversation that goes on and on"));
    let message = |at| {
        if at % 2 == 0 {
            user(line(at))
        } else {
            assistant(line(at))
        }
    };
    (0..count).map(message).collect()
}

fn with(mut value: Value, pointer: &str, new: Value) -> Value {
    *value.pointer_mut(pointer).expect("a place") = new;
    value
}

#[test]
fn a01_a_clock_in_the_system_prompt_is_found_to_the_byte() {
    let request = |seconds: &str| {
        let system = format!("Now: 2026-01-05 10:00:{seconds}. {}", "S".repeat(3000));
        json!({
            "tools": [{"name": "T1"}, {"name": "T2"}],
            "system": [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}],
            "messages": [user(json!("q"))],
        })
    };
    let change = changed(&request("20"), &request("40"));
    assert_eq!(
        (change.section, change.index, change.before),
        (Section::System, 2, 2)
    );
    assert_eq!(
        (change.path.as_str(), change.offset),
        ("system[0].text", Some(22))
    );
    assert_eq!(change.what, What::Clock);
    assert!(change.volatile());
    assert!(!change.detail.contains("2026"), "{}", change.detail);
    let excerpt = change.excerpt.unwrap();
    assert!(excerpt.before.contains("10:00:20") && excerpt.after.contains("10:00:40"));
    assert!(excerpt.before.len() <= 40 && excerpt.after.len() <= 40);

    let mut silent = Thread::new();
    silent.excerpts = false;
    let change = silent
        .compare(&written(&request("20"), ""), &written(&request("21"), ""))
        .unwrap();
    assert_eq!((change.offset, change.excerpt), (Some(23), None));

    let mut forgetful = Thread::new();
    forgetful.keep = Keep::new(0);
    let change = forgetful
        .compare(&written(&request("20"), ""), &written(&request("21"), ""))
        .unwrap();
    assert_eq!((change.what, change.offset), (What::Unknown, None));
    assert_eq!(change.path, "system[0].text");
}

#[test]
fn a03_reordered_added_and_removed_tools_are_named() {
    let tools = |names: &[&str]| {
        let tools: Vec<_> = names
            .iter()
            .map(|name| json!({"name": name, "description": format!("does {name}")}))
            .collect();
        json!({"tools": tools, "system": "s", "messages": [user(json!("q"))]})
    };
    let change = changed(&tools(&["a1", "a2", "b1"]), &tools(&["b1", "a1", "a2"]));
    assert_eq!(change.what, What::ToolsReordered);
    assert_eq!(
        (change.section, change.path.as_str()),
        (Section::Tools, "tools[0]")
    );
    assert_eq!(change.detail, "same set, order changed; moved: b1");

    let of = |old: &[&str], new: &[&str]| said(&tools(old), &tools(new));
    let what = |what, path: &str, detail: &str| (what, path.to_owned(), detail.to_owned());
    assert_eq!(
        of(&["b1", "a1", "a2"], &["b1", "a1", "a2", "c"]),
        what(What::ToolAdded, "tools[3]", "added: c at tools[3]")
    );
    assert_eq!(
        of(&["a", "b", "c"], &["a", "c"]),
        what(What::ToolRemoved, "tools[1]", "removed: b from tools[1]")
    );
    assert_eq!(
        of(&["a", "b"], &["a"]),
        what(What::ToolRemoved, "tools[1]", "removed: b from tools[1]")
    );
    assert_eq!(
        of(&["a"], &[]),
        what(What::ToolRemoved, "tools[0]", "removed: a from tools[0]")
    );
    assert_eq!(
        of(&["a", "b", "c"], &["a", "x", "c", "b"]),
        what(
            What::ToolAdded,
            "tools[1]",
            "added: x at tools[1]; order changed; moved: c"
        )
    );
    assert_eq!(
        of(&["a", "b", "c"], &["a", "c", "x"]),
        what(
            What::ToolRemoved,
            "tools[1]",
            "removed: b from tools[1]; added: x at tools[2]"
        )
    );
    let many: Vec<String> = (0..40).map(|at| format!("tool{at}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (_, _, detail) = of(&["tool0"], &many);
    assert!(detail.starts_with("added: tool1 at tools[1]") && detail.ends_with("and 31 more"));
}

#[test]
fn a_changed_tool_is_named_with_its_member() {
    let request = |description: &str, schema: &str| {
        format!(
            r#"{{"tools":[{{"name":"a"}},{{"name":"b","description":"{description}","input_schema":{schema}}}],"messages":[{{"role":"user","content":"q"}}]}}"#
        )
    };
    let base = request("reads a file", r#"{"type":"object","max":1}"#);
    let of = |now: &str| Thread::new().compare(&base, now).unwrap();
    let change = of(&request("reads any file", r#"{"type":"object","max":1}"#));
    assert_eq!(
        (change.what, change.path.as_str()),
        (What::ToolChanged, "tools[1]")
    );
    assert_eq!(
        change.detail,
        "changed: b (description: it says something else)"
    );
    let tool = r#"{"name":"b","description":"reads a"#;
    assert_eq!(change.offset, Some(tool.len() as u32));
    let change = of(&request("reads a file", r#"{"type":"object","max":2}"#));
    assert_eq!(change.what, What::ToolChanged);
    assert!(
        change.detail.starts_with("changed: b (input_schema"),
        "{}",
        change.detail
    );
    let change = of(&request("reads a file", r#"{"max":1,"type":"object"}"#));
    assert_eq!(change.what, What::KeyOrder);
    let change = of(&request("reads a file", r#"{"type":"object","max":1.0}"#));
    assert_eq!(change.what, What::Escapes);
    let change = of(&request(
        "reads a\\u0020file",
        r#"{"type":"object","max":1}"#,
    ));
    assert_eq!(change.what, What::Escapes);

    let mut forgetful = Thread::new();
    forgetful.hasher = Hasher::new([8; 32]);
    let now = request("reads any file", "{}");
    let (old_view, now_view) = (
        view(base.as_bytes()).unwrap(),
        view(now.as_bytes()).unwrap(),
    );
    let (old, new) = (
        forgetful.trail(&base, &old_view),
        forgetful.trail(&now, &now_view),
    );
    let seen = Seen {
        body: now.as_bytes(),
        view: &now_view,
        keep: &Keep::new(0),
        excerpts: true,
    };
    let change = first_change(&old, &new, &seen).unwrap();
    assert_eq!(
        (change.what, change.detail.as_str()),
        (What::ToolChanged, "changed: b")
    );
}

#[test]
fn a05_a_block_that_moved_is_found_again() {
    let skills = "skill ".repeat(250);
    let env = "env ".repeat(125);
    let mut first = turns(9);
    first[0] = user(json!([text(&env), text(&skills), text("task")]));
    let mut second = first.clone();
    second[0] = user(json!([text(&env), text("task")]));
    second.push(user(json!([text(&skills), text("go on")])));
    let change = changed(&talk(first.clone()), &talk(second));
    assert_eq!(change.section, Section::Messages);
    assert_eq!(
        (change.what, change.path.as_str()),
        (What::Moved, "messages[0].content[1]")
    );
    assert_eq!(
        change.detail,
        "block removed here and found again at messages[9].content[0]"
    );

    // A reminder that always comes last.
    let mut old = turns(3);
    old[2] = user(json!([text("now"), text(&skills)]));
    let mut new = turns(5);
    new[2] = user(json!([text("now")]));
    new[4] = user(json!([text("next"), text(&skills)]));
    let (what, path, detail) = said(&talk(old), &talk(new));
    assert_eq!(
        (what, path.as_str()),
        (What::Moved, "messages[2].content[1]")
    );
    assert_eq!(
        detail,
        "block removed here and found again at messages[4].content[1]"
    );

    // The same text once more is growth where it stands, and no move from where it is missing.
    let mut old = turns(7);
    old[2] = user(json!([text("a"), text(&skills)]));
    old[4] = user(json!([text("b"), text(&skills)]));
    let mut new = old.clone();
    new[2] = user(json!([text("a")]));
    new.push(assistant(json!("more")));
    let (what, path, _) = said(&talk(old), &talk(new));
    assert_eq!(
        (what, path.as_str()),
        (What::Removed, "messages[2].content[1]")
    );
}

#[test]
fn a10_a_deferred_tool_and_the_attribution_do_not_count() {
    let request = |deferred: &str, version: &str| {
        json!({
            "tools": [
                {"name": "read"},
                {"name": "mcp__x__q", "defer_loading": true, "description": deferred},
                {"name": "edit"},
            ],
            "system": [text(&format!("x-anthropic-billing-header: {version}")), text("s")],
            "messages": [user(json!("q"))],
        })
    };
    assert_eq!(compare(&request("a", "1"), &request("b", "2")), None);
    let mut without = request("a", "1");
    without["tools"].as_array_mut().unwrap().remove(1);
    assert_eq!(compare(&request("a", "1"), &without), None);
    assert_eq!(compare(&without, &request("a", "1")), None);
}

#[test]
fn a11_what_was_rewritten_behind_the_cached_point() {
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}});
    let mut old = turns(12);
    old[2] = user(json!([text("see"), image]));
    let mut new = old.clone();
    new[2]["content"][1] = text("[image removed]");
    new.extend([assistant(json!("a")), user(json!("b"))]);
    let change = changed(&talk(old.clone()), &talk(new));
    assert_eq!(
        (change.what, change.path.as_str()),
        (What::ImageReplaced, "messages[2].content[1]")
    );
    assert_eq!(change.detail, "image block replaced by text");

    // 3: thinking of an earlier turn is not sent any more.
    let mut old = turns(5);
    old[1] =
        assistant(json!([{"type": "thinking", "thinking": "hm", "signature": "s"}, text("so")]));
    for content in [json!([text("so")]), json!("so")] {
        let mut new = old.clone();
        new[1]["content"] = content;
        new.extend([assistant(json!("a")), user(json!("b"))]);
        let (what, path, detail) = said(&talk(old.clone()), &talk(new));
        assert_eq!(what, What::ThinkingDropped);
        assert!(
            path == "messages[1].content[0]" || path == "messages[1].content",
            "{path}"
        );
        assert_eq!(detail, "thinking block dropped");
    }
    let mut thoughtful = old.clone();
    thoughtful[3] = assistant(json!([{"type": "redacted_thinking", "data": "x"}, text("then")]));
    let mut new = thoughtful.clone();
    for at in [1, 3] {
        new[at]["content"].as_array_mut().unwrap().remove(0);
    }
    let (what, _, detail) = said(&talk(thoughtful), &talk(new));
    assert_eq!(
        (what, detail.as_str()),
        (
            What::ThinkingDropped,
            "thinking block dropped; 1 more further on"
        )
    );

    // A whole turn that is gone is more than its thinking.
    let mut new = old.clone();
    new.drain(1..3);
    let (what, path, detail) = said(&talk(old.clone()), &talk(new));
    assert_eq!(
        (what, path.as_str()),
        (What::Removed, "messages[1].content[0]")
    );
    assert!(detail.starts_with("thinking block removed"), "{detail}");
    let new = vec![turns(1)[0].clone(), user(json!("Something else, please."))];
    assert_eq!(said(&talk(old), &talk(new)).0, What::Rewound);

    // 4: growth.
    let grown = [turns(12), vec![user(json!("b"))]].concat();
    assert_eq!(compare(&talk(turns(12)), &talk(grown)), None);
}

#[test]
fn markers_and_spellings_that_hash_alike_are_no_change() {
    let plain = talk(turns(4));
    let mut other = plain.clone();
    other["system"] =
        json!([{"type": "text", "text": "You help.", "cache_control": {"type": "ephemeral"}}]);
    let line = plain["messages"][3]["content"].clone();
    other["messages"][3]["content"] =
        json!([{"type": "text", "text": line, "cache_control": {"type": "ephemeral"}}]);
    assert_eq!(compare(&plain, &other), None);
    assert_eq!(compare(&other, &plain), None);
    let spaced = written(&plain, "\n\t ");
    assert_eq!(Thread::new().compare(&written(&plain, ""), &spaced), None);
}

#[test]
fn texts_that_say_the_same_are_told_from_others() {
    let of = |old: &str, new: &str| {
        let request = |text: &str| {
            format!(
                r#"{{"system":"{text}","messages":[{{"role":"user","content":[{{"type":"text","text":"{text}"}}]}},{{"role":"assistant","content":"and so on"}}]}}"#
            )
        };
        let (old, new) = (request(old), request(new));
        let change = Thread::new().compare(&old, &new).unwrap();
        assert_eq!(change.path, "system");
        // Without the system prompt the same is found in the message.
        let old = old.replacen("\"system\"", "\"other\"", 1);
        let new = new.replacen("\"system\"", "\"other\"", 1);
        let talk = Thread::new().compare(&old, &new).unwrap();
        assert_eq!((talk.what, talk.offset), (change.what, change.offset));
        assert_eq!(talk.path, "messages[0].content[0].text");
        (change.what, change.offset)
    };
    assert_eq!(of("a b", "a  b"), (What::Whitespace, Some(2)));
    assert_eq!(of("a\\nb", "a\\n\\tb"), (What::Whitespace, Some(3)));
    assert_eq!(of("a", "a\\n"), (What::Whitespace, Some(1)));
    assert_eq!(of("é", "\\u00e9"), (What::Escapes, Some(0)));
    assert_eq!(of("a/b", "a\\/b"), (What::Escapes, Some(1)));
    assert_eq!(
        of("turn 9 of ten", "turn 10 of ten"),
        (What::Counter, Some(5))
    );
    assert_eq!(
        of(
            "id 3f2504e0-4f89-41d3-9a0c-0305e82c3301",
            "id 9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
        ),
        (What::Id, Some(3))
    );
    assert_eq!(of("one thing", "one other"), (What::Text, Some(4)));
    assert_eq!(of("", "x"), (What::Text, Some(0)));
}

#[test]
fn order_and_spelling_inside_a_call() {
    let request = |input: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"q"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"n","input":{input}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":"ok"}}]}}]}}"#
        )
    };
    let of = |old: &str, new: &str| {
        let change = Thread::new().compare(&request(old), &request(new)).unwrap();
        assert_eq!(change.path, "messages[1].content[0].input");
        (change.what, change.offset)
    };
    assert_eq!(
        of(
            r#"{"a":1,"b":{"x":1,"y":2}}"#,
            r#"{"b":{"x":1,"y":2},"a":1}"#
        ),
        (What::KeyOrder, Some(2))
    );
    assert_eq!(
        of(
            r#"{"a":1,"b":{"x":1,"y":2}}"#,
            r#"{"a":1,"b":{"y":2,"x":1}}"#
        ),
        (What::KeyOrder, Some(13))
    );
    assert_eq!(of(r#"{"a":1}"#, r#"{"a":1.0}"#), (What::Escapes, Some(6)));
    assert_eq!(
        of(r#"{"a":"é"}"#, r#"{"a":"\u00e9"}"#),
        (What::Escapes, Some(6))
    );
    assert_eq!(
        of(r#"{"é":1}"#, r#"{"\u00e9":1}"#),
        (What::Escapes, Some(2))
    );
    assert_eq!(
        of(r#"{"a":"x y"}"#, r#"{"a":"x  y"}"#),
        (What::Whitespace, Some(8))
    );
    assert_eq!(of(r#"{"a":"x"}"#, r#"{"a":"y"}"#), (What::Text, Some(6)));
    // The place is that of the bytes as they are written.
    assert_eq!(
        of(r#"{"a":1,"b":[1,2]}"#, r#"{ "a" : 1, "b" : [1, "z"] }"#),
        (What::Text, Some(21))
    );
    assert_eq!(
        of(
            r#"{"a":12345678901234567890123}"#,
            r#"{"a":12345678901234567890124}"#
        )
        .0,
        What::Id
    );
}

#[test]
fn a_tool_result_that_was_pruned() {
    let request = |content: Value, id: &str| {
        talk(vec![
            user(json!("q")),
            assistant(json!([{"type": "tool_use", "id": id, "name": "read", "input": {}}])),
            user(json!([{"type": "tool_result", "tool_use_id": "t", "content": content}])),
            assistant(json!("that was the file")),
        ])
    };
    let long = json!("file ".repeat(400));
    let stub = json!("[old output removed]");
    let change = changed(&request(long.clone(), "t"), &request(stub.clone(), "t"));
    assert_eq!(
        (change.what, change.path.as_str()),
        (What::ResultPruned, "messages[2].content[0].content")
    );
    assert_eq!(change.offset, Some(0));
    assert!(
        change.detail.starts_with("tool result cut"),
        "{}",
        change.detail
    );
    let array = json!([{"type": "text", "text": "file [cut]"}]);
    let change = changed(&request(long.clone(), "t"), &request(array, "t"));
    assert_eq!((change.what, change.offset), (What::ResultPruned, Some(5)));
    assert_eq!(change.path, "messages[2].content[0].content[0].text");
    // Of an unknown previous text it is still said.
    let mut forgetful = Thread::new();
    forgetful.keep = Keep::new(0);
    let change = forgetful
        .compare(
            &written(&request(long.clone(), "t"), ""),
            &written(&request(stub, "t"), ""),
        )
        .unwrap();
    assert_eq!((change.what, change.offset), (What::ResultPruned, None));
    // A result that tells the time.
    let change = changed(
        &request(json!("at 10:00:20"), "t"),
        &request(json!("at 10:00:30"), "t"),
    );
    assert_eq!(change.what, What::Clock);
    // Another call is no pruning.
    let change = changed(
        &request(long.clone(), "t"),
        &with(
            request(long, "t"),
            "/messages/2/content/0/tool_use_id",
            json!("other"),
        ),
    );
    assert_eq!(
        (change.what, change.path.as_str()),
        (What::Text, "messages[2].content[0].tool_use_id")
    );
}

#[test]
fn blocks_that_came_went_or_were_replaced() {
    let base = turns(6);
    let of = |new: Vec<Value>| said(&talk(base.clone()), &talk(new));
    let mut put_in = base.clone();
    put_in[2]["content"] = json!([
        text("a new remark"),
        base[2]["content"].as_str().map(text).unwrap()
    ]);
    let (what, path, detail) = of(put_in);
    assert_eq!(
        (what, path.as_str()),
        (What::Inserted, "messages[2].content[0]")
    );
    assert!(detail.starts_with("text block put in"), "{detail}");

    let mut gone = base.clone();
    gone.drain(1..3);
    let (what, path, detail) = of(gone);
    assert_eq!(
        (what, path.as_str()),
        (What::Removed, "messages[1].content[0]")
    );
    assert!(detail.contains("and 1 more block behind it"), "{detail}");

    let mut other = base.clone();
    other[2]["content"] = json!([{"type": "document", "source": {"type": "text", "data": "d"}}]);
    other.extend([user(json!("next"))]);
    let (what, path, detail) = of(other);
    assert_eq!(
        (what, path.as_str()),
        (What::Replaced, "messages[2].content[0]")
    );
    assert_eq!(detail, "text block replaced by document");

    // The same text said by another.
    let mut role = base.clone();
    role[2]["role"] = json!("system");
    let (what, path, detail) = of(role);
    assert_eq!((what, path.as_str()), (What::Text, "messages[2].content"));
    assert!(detail.contains("under another role"), "{detail}");

    // In the system prompt.
    let system = |texts: &[&str]| {
        let texts: Vec<_> = texts.iter().map(|t| text(t)).collect();
        json!({"system": texts, "messages": turns(2)})
    };
    let of = |old: &[&str], new: &[&str]| {
        let (what, path, _) = said(&system(old), &system(new));
        (what, path)
    };
    assert_eq!(of(&["a", "b"], &["a"]), (What::Removed, "system[1]".into()));
    assert_eq!(
        of(&["a"], &["a", "b"]),
        (What::Inserted, "system[1]".into())
    );
    assert_eq!(
        of(&["a", "b", "c"], &["b", "c", "a"]),
        (What::Moved, "system[0]".into())
    );
    assert_eq!(of(&["a"], &[]), (What::Removed, "system[0]".into()));
}

#[test]
fn reminders() {
    let reminder = |todo: &str| text(&format!("<system-reminder>open: {todo}</system-reminder>"));
    let with = |extra: &[Value]| {
        let mut messages = turns(5);
        let line = messages[2]["content"].as_str().map(text).unwrap();
        messages[2]["content"] = Value::Array([&[line], extra].concat());
        talk(messages)
    };
    let of = |old: &[Value], new: &[Value]| {
        let (what, path, detail) = said(&with(old), &with(new));
        assert!(!detail.contains("wash"), "no content: {detail}");
        (what, path)
    };
    let place = "messages[2].content[1]".to_owned();
    assert_eq!(
        of(&[], &[reminder("wash")]),
        (What::Reminder, place.clone())
    );
    assert_eq!(
        of(&[reminder("wash")], &[]),
        (What::Reminder, place.clone())
    );
    assert_eq!(
        of(&[reminder("wash")], &[reminder("dry")]),
        (What::Reminder, format!("{place}.text"))
    );
    // As part of a text.
    let inside = |todo: &str| {
        text(&format!(
            "do <system-reminder>open: {todo}</system-reminder> it"
        ))
    };
    assert_eq!(of(&[inside("wash")], &[inside("dry")]).0, What::Reminder);
    assert_eq!(of(&[text("do  it")], &[inside("dry")]).0, What::Reminder);
    assert_eq!(of(&[text("do it")], &[text("do that")]).0, What::Text);
}

#[test]
fn a_compacted_conversation() {
    let mut new = vec![user(json!(
        "Summary of what was said so far: nothing of interest."
    ))];
    let (what, path, detail) = said(&talk(turns(20)), &talk(new.clone()));
    assert_eq!(
        (what, path.as_str()),
        (What::Compaction, "messages[0].content")
    );
    assert!(detail.contains("20 messages -> 1 message"), "{detail}");
    // With the newest turns kept.
    new.extend(turns(20)[17..].to_vec());
    assert_eq!(said(&talk(turns(20)), &talk(new)).0, What::Compaction);
    // The first message stays, the middle is replaced.
    let mut new = vec![
        turns(1)[0].clone(),
        assistant(json!("A summary of the middle.")),
    ];
    new.extend(turns(20)[16..].to_vec());
    let (what, path, _) = said(&talk(turns(20)), &talk(new));
    assert_eq!(
        (what, path.as_str()),
        (What::Compaction, "messages[1].content")
    );
    // A block of the provider.
    let mut new = turns(4);
    new[1] = assistant(json!([{"type": "compaction", "content": "so far"}]));
    let (what, path, _) = said(&talk(turns(6)), &talk(new));
    assert_eq!(
        (what, path.as_str()),
        (What::Compaction, "messages[1].content[0]")
    );
}

#[test]
fn a_conversation_taken_back() {
    // To an earlier point.
    let (what, path, _) = said(&talk(turns(9)), &talk(turns(5)));
    assert_eq!((what, path.as_str()), (What::Rewound, "messages[5]"));
    let mut shorter = turns(3);
    shorter[2] = user(json!([text("one"), text("two")]));
    let longer = shorter.clone();
    shorter[2]["content"].as_array_mut().unwrap().pop();
    let (what, path, _) = said(&talk(longer), &talk(shorter));
    assert_eq!(
        (what, path.as_str()),
        (What::Rewound, "messages[2].content[1]")
    );
    // With another question there.
    for length in [5, 9] {
        let mut new = turns(5);
        new[4] = user(json!("Quite another question, please."));
        let (what, path, detail) = said(&talk(turns(length)), &talk(new));
        assert_eq!(
            (what, path.as_str()),
            (What::Rewound, "messages[4].content")
        );
        assert!(
            detail.contains("goes on from here in another way"),
            "{detail}"
        );
    }
    // An edit further back that leaves the rest alone is none.
    let mut new = turns(9);
    new[4] = user(json!("Quite another question, please."));
    let (what, path, _) = said(&talk(turns(9)), &talk(new));
    assert_eq!((what, path.as_str()), (What::Text, "messages[4].content"));
    // Nor is a clock in the newest message.
    let of = |time: &str| talk([turns(2), vec![user(json!(format!("{time} go")))]].concat());
    assert_eq!(said(&of("10:00:01"), &of("10:00:02")).0, What::Clock);
}

#[test]
fn searches_of_the_provider_belong_to_the_system_prompt() {
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    let request = |tools: Value| json!({"tools": tools, "system": "s", "messages": turns(2)});
    let (a, b) = (json!({"name": "a"}), json!({"name": "b"}));
    let change = changed(&request(json!([a, search, b])), &request(json!([a, b])));
    assert_eq!(
        (change.section, change.what),
        (Section::System, What::ToolRemoved)
    );
    assert_eq!(change.path, "tools[1]");
    // It is rendered behind the tools wherever it stands.
    let moved = request(json!([a, b, search]));
    assert_eq!(compare(&request(json!([a, search, b])), &moved), None);
    let later = with(moved, "/system", json!("t"));
    let change = changed(&request(json!([a, search, b])), &later);
    assert_eq!((change.section, change.what), (Section::System, What::Text));
}

#[test]
fn long_blocks_are_compared_by_their_first_part() {
    let long = "x".repeat(100_000);
    let request = |text: &str| json!({"system": text, "messages": turns(2)});
    let change = changed(&request(&format!("a{long}")), &request(&format!("b{long}")));
    assert_eq!((change.what, change.offset), (What::Text, Some(0)));
    let change = changed(&request(&format!("{long}a")), &request(&format!("{long}b")));
    assert_eq!((change.what, change.offset), (What::Unknown, None));
}

#[test]
fn settings() {
    let of = |past: &str, now: &str| {
        let thread = Thread::new();
        let trail = |body: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"q"}}]{body}}}"#);
            thread.trail(&body, &view(body.as_bytes()).unwrap())
        };
        setting_changes(&trail(past), &trail(now))
    };
    assert_eq!(of(r#","model":"a""#, r#","model":"a""#), []);
    let changes = of(
        r#","model":"a","thinking":{"type":"enabled","budget_tokens":1},"speed":"fast""#,
        r#","model":"b","thinking":{"type":"enabled","budget_tokens":2},"tool_choice":{"type":"any"}"#,
    );
    assert_eq!(
        settings_in_words(&changes),
        "model changed, tool_choice added, thinking changed, speed removed"
    );
    let from: Vec<_> = changes.iter().map(|change| change.from).collect();
    let levels = [
        Section::Tools,
        Section::Messages,
        Section::Messages,
        Section::System,
    ];
    assert_eq!(from, levels);

    let body = r#"{"messages":[]}"#;
    let thread = Thread::new();
    let past = thread.trail(body, &view(body.as_bytes()).unwrap());
    let now = Trail {
        betas: 1,
        fast_beta: true,
        ..past.clone()
    };
    assert_eq!(
        settings_in_words(&setting_changes(&past, &now)),
        "fast mode added, beta features changed"
    );
    assert_eq!(setting_changes(&now, &past)[0].how, How::Removed);
}

/// A block of a message.
fn any_block() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        "[a-c]{0,2}",
        "[a-z 0-9:\n\"é]{0,40}",
        Just("<system-reminder>x</system-reminder>".to_owned())
    ];
    (0..7_u8, word).prop_map(|(kind, word)| match kind {
        0 | 1 => text(&word),
        2 => json!({"type": "tool_use", "id": "t", "name": "n", "input": {"a": word, "b": [1, {"c": word}]}}),
        3 => json!({"type": "tool_result", "tool_use_id": "t", "content": word}),
        4 => json!({"type": "tool_result", "content": [text(&word)], "tool_use_id": "t", "is_error": false}),
        5 => json!({"type": "thinking", "thinking": word, "signature": "s"}),
        _ => json!({"type": "image", "source": {"data": word}}),
    })
}

fn any_message() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        1 => "[a-d]{0,3}".prop_map(Value::String),
        3 => prop::collection::vec(any_block(), 0..4).prop_map(Value::Array)
    ];
    (0..3_u8, content).prop_map(|(role, content)| {
        let role = ["user", "assistant", "system"][role as usize];
        json!({"role": role, "content": content})
    })
}

fn any_request() -> impl Strategy<Value = Value> {
    let tool = ("[a-d]", "[ab1-3]{0,2}", 0..6_u8).prop_map(|(name, says, kind)| match kind {
        0 => json!({"name": name, "defer_loading": true, "description": says}),
        1 => json!({"name": name, "type": "web_search_1", "description": says}),
        _ => json!({"name": name, "description": says}),
    });
    let system = prop_oneof![
        "[a-c]{0,2}".prop_map(Value::String),
        prop::collection::vec("[a-c 0-9]{0,6}".prop_map(|t| text(&t)), 0..3).prop_map(Value::Array)
    ];
    (
        prop::collection::vec(tool, 0..5),
        system,
        prop::collection::vec(any_message(), 0..6),
    )
        .prop_map(|(tools, system, messages)| {
            json!({"tools": tools, "system": system, "messages": messages})
        })
}

/// A list after an edit.
fn edited(list: &mut Vec<Value>, edit: u8, from: usize, to: usize, new: Value) {
    if list.is_empty() {
        return list.push(new);
    }
    let (from, to) = (from % list.len(), to % list.len());
    match edit {
        0 => drop(list.remove(from)),
        1 => list.insert(from, new),
        2 => list.swap(from, to),
        3 => list[from] = new,
        4 => list.truncate(from),
        5 => list.push(new),
        _ => {
            let block = list.remove(from);
            list.insert(to.min(list.len()), block);
        }
    }
}

/// The hashes that count, in the order in which the provider reads them.
fn read_as(trail: &Trail) -> Vec<(Section, u64)> {
    let counted: Vec<_> = trail.steps.iter().filter(|step| step.counts).collect();
    let place = |step: &&&Step| match (step.section, step.kind) {
        (Section::Tools, BlockKind::ServerTool) => 1,
        (Section::Tools, _) => 0,
        _ => 2,
    };
    let mut read = Vec::new();
    for part in 0..3 {
        read.extend(
            counted
                .iter()
                .filter(|step| place(step) == part)
                .map(|s| (s.section, s.hash)),
        );
    }
    read
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// No change is found exactly where the old request, as the provider reads it, is the
    /// beginning of the new one. Every path leads somewhere.
    #[test]
    fn a_change_is_found_exactly_where_there_is_one(
        old in any_request(),
        edits in prop::collection::vec((0..3_u8, 0..7_u8, 0..6_usize, 0..6_usize, any_message(), any_block()), 0..4),
        pretty in any::<bool>(),
    ) {
        let mut new = old.clone();
        for (level, edit, from, to, message, block) in edits {
            let messages = new["messages"].as_array_mut().unwrap();
            match level {
                0 => edited(messages, edit, from, to, message),
                1 => {
                    let content = messages.get_mut(from).map(|m| &mut m["content"]);
                    if let Some(Value::Array(blocks)) = content {
                        edited(blocks, edit, to, from, block);
                    }
                }
                _ => {
                    let tools = new["tools"].as_array_mut().unwrap();
                    edited(tools, edit, from, to, json!({"name": "new"}));
                }
            }
        }
        let old = written(&old, "");
        let new = written(&new, if pretty { "\n " } else { "" });
        let mut thread = Thread::new();
        let change = thread.compare(&old, &new);
        let (before, after) = (
            thread.trail(&old, &view(old.as_bytes()).unwrap()),
            thread.trail(&new, &view(new.as_bytes()).unwrap()),
        );
        let (before_read, after_read) = (read_as(&before), read_as(&after));
        // A tool more is a change also where nothing stood behind the tools.
        prop_assert_eq!(change.is_none(), after_read.starts_with(&before_read), "{:?}", change);
        if let Some(change) = change {
            let parts = before_read.iter().zip(&after_read).take_while(|(a, b)| a == b).count();
            let level = |read: &[(Section, u64)]| read.get(parts).map_or(Section::Messages, |r| r.0);
            let first = level(&before_read).min(level(&after_read));
            prop_assert!(change.section == first || first == Section::Tools);
        }
    }

    /// Trails and bodies that do not fit each other do no harm.
    #[test]
    fn nothing_panics_on_what_does_not_fit(old in any_request(), new in any_request(), other in any_request(), cut in 0..200_usize) {
        let (old, new, other) = (written(&old, ""), written(&new, ""), other.to_string());
        let thread = Thread::new();
        let mut keep = Keep::new(4096);
        let (old_view, new_view) = (view(old.as_bytes()).unwrap(), view(new.as_bytes()).unwrap());
        let (past, now) = (thread.trail(&old, &old_view), thread.trail(&new, &new_view));
        keep.learn(Some(&now), &past, other.as_bytes(), &old_view);
        let body = &other.as_bytes()[..other.len().min(cut)];
        let other_view = view(other.as_bytes()).unwrap();
        for view in [&new_view, &other_view] {
            let seen = Seen { body, view, keep: &keep, excerpts: true };
            let _ = first_change(&past, &now, &seen);
            let _ = setting_changes(&past, &now);
        }
    }
}

/// The cost of a change at the very start of a long conversation.
#[test]
fn a_change_at_the_start_of_a_megabyte_is_found_at_once() {
    let request = |clock: &str| {
        let mut messages = turns(2000);
        for message in &mut messages {
            let long = message["content"].as_str().unwrap().repeat(10);
            message["content"] = json!(long);
        }
        json!({"system": format!("Now: 10:00:{clock} {}", "s".repeat(50_000)), "messages": messages}).to_string()
    };
    let mut thread = Thread::new();
    let (old, new) = (request("01"), request("02"));
    assert!(new.len() > 900_000);
    let (old_view, new_view) = (view(old.as_bytes()).unwrap(), view(new.as_bytes()).unwrap());
    let (past, now) = (thread.trail(&old, &old_view), thread.trail(&new, &new_view));
    thread.keep.learn(None, &past, old.as_bytes(), &old_view);
    let seen = Seen {
        body: new.as_bytes(),
        view: &new_view,
        keep: &thread.keep,
        excerpts: true,
    };
    let cost = (0..20).map(|_| {
        let started = std::time::Instant::now();
        assert_eq!(first_change(&past, &now, &seen).unwrap().what, What::Clock);
        started.elapsed()
    });
    let least = cost.min().unwrap();
    eprintln!("first_change: {least:?}");
    assert!(least.as_micros() < 2000, "{least:?}");
}

#[test]
fn a_text_block_of_another_form_is_told_as_such() {
    let request = |block: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":[{block}]}},{{"role":"assistant","content":"and so on"}}]}}"#
        )
    };
    let of = |block: &str| {
        let plain = request(r#"{"type":"text","text":"x"}"#);
        let change = Thread::new().compare(&plain, &request(block)).unwrap();
        let back = Thread::new().compare(&request(block), &plain).unwrap();
        assert_eq!(change.what, back.what);
        (change.what, change.detail)
    };
    assert_eq!(of(r#"{"text":"x","type":"text"}"#).0, What::KeyOrder);
    let (what, detail) = of(r#"{"type":"text","text":"x","citations":null}"#);
    assert_eq!(what, What::Text);
    assert!(
        detail.contains("the same text with other members"),
        "{detail}"
    );
    assert_eq!(of(r#"{"text":"y","type":"text"}"#).0, What::Text);
}
