//! Histories that the provider holds.

use super::script::{Spelling, body, messages};
use crate::guard::calls::{Outcome, results};
use crate::guard::loops::{Action, History, Memo, Policy, look};
use crate::provider::anthropic::request::view;
use crate::provider::view::{self, AnsweredCall};

fn call(id: &str, name: &str, input: &str) -> AnsweredCall {
    AnsweredCall {
        id: id.into(),
        name: name.into(),
        input: input.into(),
        input_bytes: input.len() as u64,
        complete: true,
    }
}

fn continued(results: &[(&str, bool, &str)]) -> Vec<u8> {
    let blocks: Vec<String> = results
        .iter()
        .map(|(id, failed, text)| {
            format!(r#"{{"type":"tool_result","tool_use_id":"{id}","is_error":{failed},"content":"{text}"}}"#)
        })
        .collect();
    format!(
        r#"{{"thread":{{"type":"continue","previous_message_id":"msg_1"}},"messages":[{{"role":"user","content":[{}]}}]}}"#,
        blocks.join(",")
    )
    .into_bytes()
}

#[test]
fn a_held_history_is_carried_from_answer_to_answer() {
    let memo = Memo::default();
    let opened = br#"{"thread":{"type":"create"},"messages":[{"role":"user","content":"go"}]}"#;
    let policy = Policy::of(Action::Hint);
    let seen = look(opened, &view(opened).unwrap(), &policy, &memo, None);
    let mut history = seen.history;
    for turn in 1..=5 {
        let id = format!("toolu_{turn}");
        history.answered(&[call(&id, "read_file", r#"{ "path": "/nope" }"#)]);
        let body = continued(&[(&id, true, "ENOENT: /nope")]);
        let view = view(&body).unwrap();
        assert!(matches!(view.history, view::History::Continues(_)));
        assert_eq!(
            results(&body, &view, &memo, Some(&history)).results,
            [Outcome {
                call_id: id,
                failed: true,
                retries: turn - 1,
                bytes: 15,
            }]
        );
        let seen = look(&body, &view, &policy, &memo, Some(&history));
        assert_eq!(seen, look(&body, &view, &policy, &memo, Some(&history)));
        let counts: Vec<_> = seen
            .findings
            .iter()
            .map(|found| (found.count, found.turns, found.fresh))
            .collect();
        let hinted: Vec<u32> = seen.hints.iter().map(|hint| hint.message).collect();
        if turn < 3 {
            assert!(counts.is_empty() && hinted.is_empty());
        } else {
            assert_eq!(counts[0], (turn, turn, turn == 3));
            assert_eq!(hinted, [0]);
        }
        history = seen.history;
    }
    // What the user says starts again.
    history.answered(&[]);
    let said = br#"{"thread":{"type":"continue","previous_message_id":"m"},"messages":[{"role":"user","content":"well?"}]}"#;
    history = look(said, &view(said).unwrap(), &policy, &memo, Some(&history)).history;
    history.answered(&[call("z", "read_file", r#"{"path":"/nope"}"#)]);
    let body = continued(&[("z", true, "ENOENT: /nope")]);
    assert_eq!(
        look(&body, &view(&body).unwrap(), &policy, &memo, Some(&history)).findings,
        []
    );
}

#[test]
fn the_same_is_found_when_the_provider_holds_the_history() {
    // The second half of a history whose first half was opened with the provider.
    let script =
        "user: go\nrepeat 3\n> search {\"q\":\"k\"}\n= 0 hits\n> get {\"id\":7}\n= gone\nend";
    let whole = messages(script);
    let memo = Memo::default();
    let policy = Policy::default();
    let body_of = |messages: &[serde_json::Value]| {
        let body = body(messages, Spelling::default());
        String::from_utf8(body)
            .unwrap()
            .replacen('{', r#"{"thread":{"type":"create"},"#, 1)
            .into_bytes()
    };
    let all = body_of(&whole);
    let expected = look(&all, &view(&all).unwrap(), &policy, &memo, None).findings;
    assert_eq!(expected[0].detector, "cycle");
    for cut in (1..whole.len()).step_by(2) {
        let first = body_of(&whole[..cut]);
        let mut history = look(&first, &view(&first).unwrap(), &policy, &memo, None).history;
        let mut found = Vec::new();
        for pair in whole[cut..].chunks(2) {
            let asked = &pair[0]["content"][0];
            let id = asked["id"].as_str().unwrap();
            history.answered(&[call(
                id,
                asked["name"].as_str().unwrap(),
                &asked["input"].to_string(),
            )]);
            let result = &pair[1]["content"][0];
            let body = format!(
                r#"{{"thread":{{"type":"continue","previous_message_id":"m"}},"messages":[{{"role":"user","content":[{result}]}}]}}"#
            );
            let seen = look(
                body.as_bytes(),
                &view(body.as_bytes()).unwrap(),
                &policy,
                &memo,
                Some(&history),
            );
            (found, history) = (seen.findings, seen.history);
        }
        assert_eq!(found, expected, "from {cut} on");
    }
}

#[test]
fn a_carried_history_stays_small() {
    let (memo, policy) = (Memo::default(), Policy::default());
    let mut history = History::default();
    for turn in 0..500 {
        let calls: Vec<AnsweredCall> = (0..40)
            .map(|at| {
                call(
                    &format!("{turn}-{at}-{}", "x".repeat(500)),
                    &format!("tool{}", at * turn),
                    &format!(r#"{{"path":"{turn}{at}"}}"#),
                )
            })
            .collect();
        history.answered(&calls);
        let ids: Vec<&str> = calls.iter().map(|call| &call.id[..256]).collect();
        let body = continued(
            &ids.iter()
                .map(|id| (*id, turn % 2 == 0, "text"))
                .collect::<Vec<_>>(),
        );
        history = look(&body, &view(&body).unwrap(), &policy, &memo, Some(&history)).history;
    }
    history.answered(&vec![call(&"y".repeat(1000), "t", "{}"); 1000]);
    let size = format!("{history:?}").len();
    assert!(size < 60_000, "{size} bytes when printed");
}
