use super::*;
use crate::guard::loops::Memo;
use crate::provider::anthropic::request::view;
use crate::provider::wire::Wire;

fn newest(messages: &str) -> Newest {
    let body = format!(r#"{{"messages":[{{"role":"user","content":"go"}},{messages}]}}"#);
    results(
        body.as_bytes(),
        &view(body.as_bytes()).unwrap(),
        &Memo::default(),
        None,
    )
}

fn asks(calls: &[(&str, &str, &str)]) -> String {
    let calls: Vec<String> = calls
        .iter()
        .map(|(id, name, input)| {
            format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{input}}}"#)
        })
        .collect();
    format!(r#"{{"role":"assistant","content":[{}]}}"#, calls.join(","))
}

fn gets(results: &[(&str, &str)]) -> String {
    let results: Vec<String> = results
        .iter()
        .map(|(id, text)| {
            format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"{text}"}}"#)
        })
        .collect();
    format!(r#"{{"role":"user","content":[{}]}}"#, results.join(","))
}

#[test]
fn results_of_the_newest_turn_know_how_often_the_call_had_failed_right_before() {
    let step =
        |id: &str, input: &str, text: &str| asks(&[(id, "r", input)]) + "," + &gets(&[(id, text)]);
    let retries = |texts: &[&str]| {
        let steps: Vec<String> = texts
            .iter()
            .enumerate()
            // White space is no other call.
            .map(|(at, text)| {
                step(
                    &format!("c{at}"),
                    if at % 2 == 0 {
                        r#"{"p":1}"#
                    } else {
                        r#"{ "p": 1 }"#
                    },
                    text,
                )
            })
            .collect();
        let found = newest(&steps.join(","));
        let last = found.results.last().unwrap().clone();
        assert_eq!(found.results.len(), 1);
        (last.failed, last.retries)
    };
    assert_eq!(retries(&["Error: x"]), (true, 0));
    assert_eq!(retries(&["Error: x", "Error: y"]), (true, 1));
    assert_eq!(retries(&["Error: x", "Error: y", "fine"]), (false, 2));
    assert_eq!(retries(&["Error: x", "fine", "Error: y"]), (true, 0));
    let other = [
        step("a", r#"{"p":1}"#, "Error: x"),
        step("b", r#"{"p":2}"#, "Error: x"),
    ];
    assert_eq!(newest(&other.join(",")).results[0].retries, 0);
}

#[test]
fn ids_are_unescaped_and_every_result_is_told_in_its_order() {
    let found = newest(&format!(
        "{},{}",
        asks(&[(r"a\u002f1", "r", "{}"), ("b", "s", "{}")]),
        gets(&[("b", "fine"), ("a/1", "ENOENT: x"), ("unknown", "Error: x")]),
    ));
    let told: Vec<_> = found
        .results
        .iter()
        .map(|r| (r.call_id.as_str(), r.failed))
        .collect();
    assert_eq!(told, [("b", false), ("a/1", true), ("unknown", true)]);
    assert!(found.unanswered.is_empty());
}

#[test]
fn f01_calls_without_a_result_are_told_once_the_conversation_went_on() {
    let two = asks(&[("a", "r", "{}"), (r"b\n", "s", "{}")]);
    assert_eq!(
        newest(&format!("{two},{}", gets(&[("a", "x")]))).unanswered,
        ["b\n"]
    );
    assert_eq!(
        newest(&format!(r#"{two},{{"role":"user","content":"hm"}}"#)).unanswered,
        ["a", "b\n"]
    );
    // Results may come in several messages.
    let apart = format!("{two},{},{}", gets(&[("a", "x")]), gets(&[(r"b\n", "y")]));
    assert_eq!(
        (
            newest(&apart).unanswered.len(),
            newest(&apart).results.len()
        ),
        (0, 2)
    );
    // Nothing has gone on yet; and older ones do not matter any more.
    assert!(newest(&two).unanswered.is_empty());
    let later = format!(
        "{two},{},{},{}",
        gets(&[("a", "x")]),
        asks(&[("c", "r", "{}")]),
        gets(&[("c", "x")])
    );
    assert!(newest(&later).unanswered.is_empty());
}

#[test]
fn inputs_are_equal_but_for_white_space_between_tokens() {
    let hash = |raw: &str| hash_of_json(raw.as_bytes(), false);
    assert_eq!(
        hash("{ \"a\" :\n [1, 2] }"),
        hash_of_json(br#"{"a":[1,2]}"#, true)
    );
    assert_ne!(hash(r#"{"a":"x y"}"#), hash(r#"{"a":"xy"}"#));
    assert_eq!(hash(r#"{"a":"\" x" }"#), hash(r#"{"a":"\" x"}"#));
    // Cut short in any place.
    let whole = r#"{"a":"\" x" , "b":"\\"}"#;
    for end in 0..whole.len() {
        hash(&whole[..end]);
    }
}

#[test]
fn what_a_call_acts_on_is_read_from_its_input() {
    let same = |one: &str, other: &str| {
        target::of(one.as_bytes()).is_some()
            && target::of(one.as_bytes()) == target::of(other.as_bytes())
    };
    assert!(same(
        r#"{"old":"x","file_path":"a.rs"}"#,
        r#"{"file_path":"a.rs","old":"y"}"#
    ));
    assert!(!same(r#"{"path":"a.rs"}"#, r#"{"path":"b.rs"}"#));
    assert!(same(
        r#"{"command":"cargo test -p a"}"#,
        r#"{"command":"cd /x && RUST_LOG=1 cargo build"}"#
    ));
    assert!(same(
        r#"{"cmd":["bash","-lc","cargo test"]}"#,
        r#"{"command":["cargo","build"]}"#
    ));
    assert!(!same(r#"{"command":"ls"}"#, r#"{"command":"rm x"}"#));
    assert!(same(
        r#"{"commands":["cargo test","ls"]}"#,
        r#"{"command":["cargo","build"]}"#
    ));
    // A patch acts on its first file, however it is handed over.
    let patch = "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-x\n+y\n*** End Patch";
    assert!(same(patch, r#"{"path":"src/a.rs"}"#));
    assert!(same(
        patch,
        &serde_json::json!({"input": patch}).to_string()
    ));
    assert!(same(patch, &patch.replace("+y", "+z")));
    assert!(!same(patch, &patch.replace("a.rs", "b.rs")));
    assert!(!same(r#"{"command":"cargo"}"#, r#"{"path":"cargo"}"#));
    for none in [
        "{}",
        "[]",
        "",
        "{",
        r#"{"path":1}"#,
        r#"{"q":"path"}"#,
        r#"{"command":7}"#,
        r#"{"command":""}"#,
        r#"{"commands":[]}"#,
        r#"{"commands":"ls"}"#,
        r#"{"input":"x"}"#,
        "*** Begin Patch\n*** End Patch",
        "free text",
    ] {
        assert_eq!(target::of(none.as_bytes()), None, "{none}");
    }
}

/// The same turn in the other formats: calls side by side whose results come in another order.
#[test]
fn results_of_chat_and_responses_are_paired_with_their_calls() {
    let calls = [
        ("a", "x", r#"{"p":1}"#),
        (r"b\u002f1", "y", r#"{ "p" : 2 }"#),
    ];
    let texts = [("b/1", "Process exited with code 2"), ("a", "fine")];
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    let chat = |late: bool| {
        let asks = calls.map(|(id, name, input)| {
            let input = quoted(input);
            format!(r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":{input}}}}}"#)
        });
        let gets = texts.map(|(id, text)| {
            format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"{text}"}}"#)
        });
        let gets = if late { &gets[..1] } else { &gets[..] };
        let step = format!(
            r#"{{"role":"assistant","tool_calls":[{}]}},{}"#,
            asks.join(","),
            gets.join(",")
        );
        format!(r#"{{"messages":[{{"role":"user","content":"go"}},{step},{step}]}}"#)
    };
    let responses = |late: bool| {
        let asks = calls.map(|(id, name, input)| {
            let input = quoted(input);
            format!(
                r#"{{"type":"function_call","call_id":"{id}","name":"{name}","arguments":{input}}}"#
            )
        });
        let gets = texts.map(|(id, text)| {
            format!(r#"{{"type":"function_call_output","call_id":"{id}","output":[{{"type":"input_text","text":"{text}"}}]}}"#)
        });
        let gets = if late { &gets[..1] } else { &gets[..] };
        let step = format!("{},{}", asks.join(","), gets.join(","));
        format!(r#"{{"store":false,"input":[{{"role":"user","content":"go"}},{step},{step}]}}"#)
    };
    for late in [false, true] {
        for (wire, body) in [(Wire::Chat, chat(late)), (Wire::Responses, responses(late))] {
            let view = wire.view(body.as_bytes()).unwrap();
            let found = results(body.as_bytes(), &view, &Memo::default(), None);
            let told: Vec<_> = found
                .results
                .iter()
                .map(|r| (r.call_id.as_str(), r.failed, r.retries))
                .collect();
            let expected = [("b/1", true, 1), ("a", false, 0)];
            assert_eq!(told, expected[..if late { 1 } else { 2 }], "{wire:?}");
            let unanswered: &[&str] = if late { &["a"] } else { &[] };
            assert_eq!(found.unanswered, unanswered, "{wire:?}");
        }
    }
}

/// A call in a history and the same call in the answer that made it are one call.
#[test]
fn an_answered_call_is_the_one_that_comes_back() {
    for (member, input) in [
        ("arguments", r#"{ "path" : "a b" }"#),
        ("arguments", ""),
        ("input", "*** Begin Patch\n  x\n"),
    ] {
        let body = serde_json::json!({"input": [
            {"type": "message", "role": "user", "content": "go"},
            {"type": "function_call", "call_id": "c", "name": "t", member: input},
        ]})
        .to_string();
        let view = Wire::Responses.view(body.as_bytes()).unwrap();
        let call = Call::of(body.as_bytes(), &view.blocks[1]).unwrap();
        let answered = AnsweredCall {
            id: "c".into(),
            name: "t".into(),
            input: input.into(),
            input_bytes: input.len() as u64,
            complete: true,
        };
        assert_eq!(Call::answered(&answered).unwrap().key, call.key, "{input}");
    }
    let hash = |text: &str| hash_of_input(text.as_bytes(), false);
    assert_ne!(hash("*** Begin Patch\n  x"), hash("*** Begin Patch\nx"));
    assert_eq!(hash(r#" {"a": 1}"#), hash(r#"{"a":1}"#));
}
