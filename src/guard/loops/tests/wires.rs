//! The same histories in the formats of OpenAI, which have no flag for a failure.

use proptest::prelude::*;
use serde_json::Value;

use super::corpus::cases;
use super::properties::{policies, script};
use super::script::{Spelling, body, body_of, messages, unflagged};
use crate::guard::calls::results;
use crate::guard::loops::{Finding, History, Memo, Policy, look};
use crate::provider::view::{self, AnsweredCall};
use crate::provider::wire::Wire;

const WIRES: [Wire; 2] = [Wire::Chat, Wire::Responses];

fn found(wire: Wire, body: &[u8], policy: &Policy, memo: &Memo) -> Vec<Finding> {
    let view = wire.view(body).unwrap();
    look(body, &view, policy, memo, None).findings
}

/// Detector, count and period of what is found in each format.
fn told(script: &str, spelling: Spelling) -> Vec<(String, u32, u32)> {
    let messages = messages(script);
    let [chat, responses] = WIRES.map(|wire| {
        let body = body_of(wire, &messages, spelling);
        found(wire, &body, &Policy::default(), &Memo::default())
    });
    assert_eq!(chat, responses, "{script}");
    let told = chat.into_iter();
    told.map(|found| (found.detector, found.count, found.period))
        .collect()
}

fn one(detector: &str, count: u32, period: u32) -> Vec<(String, u32, u32)> {
    vec![(detector.into(), count, period)]
}

const PRETTY: Spelling = Spelling {
    lists: true,
    pretty: true,
    messages_first: false,
    reversed: false,
};

#[test]
fn d01_the_third_identical_failure_is_a_loop_by_what_its_text_says() {
    let failing = "> shell {\"command\":[\"bash\",\"-lc\",\"make\"]}\n= Chunk ID: {a1b2c3|d4e5f6|aabb12}\\nWall time: 0.{k} seconds\\nProcess exited with code 2\\nOutput:\\nmake: *** no rule\n";
    let times = |times: u32| format!("user: go\nrepeat {times}\n{failing}end");
    for spelling in [Spelling::default(), PRETTY] {
        assert_eq!(told(&times(2), spelling), []);
        assert_eq!(told(&times(3), spelling), one("same_call", 3, 1));
    }
    let json = "> shell {\"command\":\"make\"}\n= {\\\"output\\\":\\\"no rule\\\",\\\"metadata\\\":{\\\"exit_code\\\":2,\\\"duration_seconds\\\":0.{k}}}\n";
    let json = |times: u32| format!("user: go\nrepeat {times}\n{json}end").replace("\\\"", "\"");
    assert_eq!(told(&json(2), PRETTY), []);
    assert_eq!(told(&json(3), PRETTY), one("same_call", 3, 1));
}

#[test]
fn d03_polling_whose_output_changes_is_silent() {
    let poll = "repeat 12\n> write_stdin {\"session_id\":7}\n= Chunk ID: a{k}\\nWall time: 5.0 seconds\\nProcess running with session ID 7\\nOutput:\\n{k}0%\nend\n";
    assert_eq!(told(&format!("user: go\n{poll}"), Spelling::default()), []);
    let slept =
        "repeat 12\n> read_output {\"handle\":\"h1\"}\n= {k}0%\n> sleep {\"seconds\":5}\n= \nend";
    assert_eq!(told(&format!("user: go\n{slept}"), PRETTY), []);
}

#[test]
fn d05_alternating_pairs_are_found_and_parallel_calls_paired_by_id() {
    let pair = "> search {\"q\":\"k\"}\n= 0 hits\n> get {\"id\":7}\n= not found\n";
    assert_eq!(told(&format!("user: go\n{}", pair.repeat(2)), PRETTY), []);
    assert_eq!(
        told(&format!("user: go\n{}", pair.repeat(3)), PRETTY),
        one("cycle", 3, 2)
    );
    // Two calls of one answer; the results come in the other order, with ids of their own.
    let both = "> search {\"q\":\"k\"}\n> get {\"id\":7}\n= 0 hits\n= not found\n";
    let turned = Spelling {
        reversed: true,
        ..Spelling::default()
    };
    for times in 2..5 {
        let script = format!("user: go\n{}", both.repeat(times));
        assert_eq!(told(&script, turned), told(&script, Spelling::default()));
    }
    // If they were paired by their order, each call would change its result every time.
    let script = format!("user: go\n{}", both.repeat(4));
    assert!(!told(&script, turned).is_empty());
}

/// Every labelled history, at every turn: what the formats of OpenAI show is what Messages shows
/// where nothing is flagged; and what needs no flag is found as its label says.
#[test]
fn labelled_histories_are_judged_alike_in_every_format() {
    let (policy, memo) = (Policy::default(), Memo::default());
    let mut by_label = 0;
    for case in cases() {
        let plain = unflagged(messages(&case.script));
        let needs_flags = messages(&case.script) != plain;
        let (mut count, mut first) = (0, None);
        for (at, message) in plain.iter().enumerate() {
            let blocks = message["content"].as_array().unwrap();
            let of_result = |block: &&Value| block["type"] == "tool_result";
            count += blocks.iter().filter(of_result).count();
            let spelling = [Spelling::default(), PRETTY][at % 2];
            let usual = body(&plain[..=at], Spelling::default());
            let expected = found(Wire::Messages, &usual, &policy, &memo);
            for wire in WIRES {
                let body = body_of(wire, &plain[..=at], spelling);
                let found = found(wire, &body, &policy, &memo);
                assert_eq!(found, expected, "{} in {wire:?} at {at}", case.name);
            }
            if let (None, Some(found)) = (&first, expected.first()) {
                first = Some((found.detector.clone(), count));
            }
        }
        if !needs_flags {
            by_label += usize::from(case.sick.is_some());
            let detector = first.as_ref().map(|(_, count)| count);
            assert_eq!(
                detector,
                case.sick.as_ref().map(|(_, count)| count),
                "{}",
                case.name
            );
        }
    }
    assert!(by_label >= 10, "only {by_label} need no flag");
}

#[test]
fn the_same_is_found_when_the_provider_holds_the_responses() {
    let script =
        "user: go\nrepeat 3\n> search {\"q\":\"k\"}\n= 0 hits\n> get {\"id\":7}\n= gone\nend";
    let whole = messages(script);
    let (memo, policy) = (Memo::default(), Policy::default());
    let expected = {
        let body = body_of(Wire::Responses, &whole, Spelling::default());
        found(Wire::Responses, &body, &policy, &memo)
    };
    assert_eq!(expected[0].detector, "cycle");
    let opened = br#"{"input":"go"}"#;
    let first = Wire::Responses.view(opened).unwrap();
    assert_eq!(first.history, view::History::Opened);
    let mut history: History = look(opened, &first, &policy, &memo, None).history;
    let mut found = Vec::new();
    for pair in whole[1..].chunks(2) {
        let asked = &pair[0]["content"][0];
        let input = asked["input"].to_string();
        history.answered(&[AnsweredCall {
            id: asked["id"].as_str().unwrap().into(),
            name: asked["name"].as_str().unwrap().into(),
            input_bytes: input.len() as u64,
            input: input.into(),
            complete: true,
        }]);
        let result = &pair[1]["content"][0];
        let body = serde_json::json!({"previous_response_id": "resp_1", "input": [
            {"type": "function_call_output", "call_id": result["tool_use_id"], "output": result["content"]}
        ]})
        .to_string();
        let view = Wire::Responses.view(body.as_bytes()).unwrap();
        assert!(matches!(view.history, view::History::Continues(_)));
        let newest = results(body.as_bytes(), &view, &memo, Some(&history));
        assert!(newest.results.len() == 1 && newest.unanswered.is_empty());
        let seen = look(body.as_bytes(), &view, &policy, &memo, Some(&history));
        (found, history) = (seen.findings, seen.history);
    }
    assert_eq!(found, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_history_shows_the_same_in_every_format(
        script in script(), (lists, pretty, reversed) in any::<(bool, bool, bool)>(),
    ) {
        let plain = unflagged(messages(&script));
        let spelling = Spelling { lists, pretty, messages_first: false, reversed };
        let usual = body(&plain, Spelling::default());
        let memo = Memo::default();
        for policy in policies().iter().chain([&Policy::default()]) {
            let expected = found(Wire::Messages, &usual, policy, &memo);
            for wire in WIRES {
                let body = body_of(wire, &plain, spelling);
                prop_assert_eq!(&found(wire, &body, policy, &memo), &expected);
            }
        }
        let newest = |wire: Wire, body: &[u8]| results(body, &wire.view(body).unwrap(), &memo, None).results;
        let told = |wire, body: &[u8]| -> Vec<_> {
            newest(wire, body).into_iter().map(|r| (r.call_id, r.failed, r.retries)).collect()
        };
        let unturned = Spelling { reversed: false, ..spelling };
        for wire in WIRES {
            prop_assert_eq!(told(wire, &body_of(wire, &plain, unturned)), told(Wire::Messages, &usual));
        }
    }
}
