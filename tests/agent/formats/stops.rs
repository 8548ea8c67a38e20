//! Why a model stops, and what the loop does about it.

use std::sync::Arc;

use prefixgate::agent::machine::{Event, Outcome, Stop};
use prefixgate::provider::wire::Wire;

use super::support::{
    Step, Upstream, accepted, agent, assemble, assemble_body, events, messages, stopping, streamed,
};

const TEXT: &str = r#"{"type":"text","text":"so"}"#;
const CALL: &str = r#"{"type":"tool_use","id":"t1","name":"search","input":{"q":"x"}}"#;

/// An origin that gives these answers in turn, the last one again and again.
async fn origin(answers: Vec<String>) -> Upstream {
    Upstream::start(move |_, number| streamed(&answers[number.min(answers.len() - 1)])).await
}

#[tokio::test]
async fn f15_every_stop_reason_has_a_defined_end() {
    let check = async |first: String, outcome: Outcome, requests: usize, calls: usize| {
        let upstream = origin(vec![first.clone(), stopping(&[TEXT], "end_turn")]).await;
        let mut world = agent(Wire::Messages, "m", &upstream.url(), "go", |_, _| {});
        let ended = world.agent.go().await.unwrap();
        let called = world.search.called.lock().unwrap().len();
        let seen = upstream.seen().len();
        assert_eq!(
            (&ended, seen, called),
            (&outcome, requests, calls),
            "{first}"
        );
        for seen in upstream.seen() {
            let body = String::from_utf8(seen.body).unwrap();
            let body = body.replace("\"model\":\"m\"", "\"model\":\"claude-sonnet-5\"");
            accepted(Wire::Messages, body.as_bytes()).await.unwrap();
        }
    };
    let end = Outcome::EndTurn;
    check(stopping(&[TEXT], "end_turn"), end.clone(), 1, 0).await;
    check(stopping(&[TEXT], "stop_sequence"), end.clone(), 1, 0).await;
    check(stopping(&[TEXT, CALL], "tool_use"), end.clone(), 2, 1).await;
    // Calls are answered whatever the reason says.
    check(stopping(&[TEXT, CALL], "end_turn"), end.clone(), 2, 1).await;
    check(stopping(&[TEXT, CALL], "new_reason"), end.clone(), 2, 1).await;
    let unknown = Outcome::UnknownStop("new_reason".to_owned());
    check(stopping(&[TEXT], "new_reason"), unknown, 1, 0).await;
    check(stopping(&[TEXT], "max_tokens"), Outcome::Truncated, 1, 0).await;
    // Cut before any text: once more, with twice the room.
    check(stopping(&[], "max_tokens"), end.clone(), 2, 0).await;
    let refusal = r#"{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":"no"}}"#;
    let refused = Outcome::Refusal(Some("cyber".to_owned()));
    check(messages(&[TEXT, CALL], refusal), refused, 1, 0).await;
    let refusal = r#"{"stop_reason":"refusal","stop_details":null}"#;
    check(messages(&[], refusal), Outcome::Refusal(None), 1, 0).await;
    let asks = r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}"#;
    check(stopping(&[TEXT, asks], "pause_turn"), end.clone(), 2, 0).await;
    check(stopping(&[TEXT, asks], "compaction"), end, 2, 0).await;
}

#[tokio::test]
async fn f15_a_full_window_is_compacted_once_or_ends_the_run() {
    let upstream = origin(vec![stopping(&[TEXT], "model_context_window_exceeded")]).await;
    let mut world = agent(Wire::Messages, "m", &upstream.url(), "go", |_, _| {});
    assert_eq!(world.agent.go().await.unwrap(), Outcome::ContextWindow);
    assert!(upstream.seen().len() <= 4);
}

#[tokio::test]
async fn f15_calls_with_one_id_are_refused_cleanly() {
    let upstream = origin(vec![stopping(&[CALL, CALL], "tool_use")]).await;
    let mut world = agent(Wire::Messages, "m", &upstream.url(), "go", |_, options| {
        options.attempts = 2;
    });
    let ended = world.agent.go().await.unwrap();
    assert!(
        matches!(&ended, Outcome::ProviderError(why) if why.contains("one id")),
        "{ended:?}"
    );
    assert_eq!(upstream.seen().len(), 2);
    assert!(world.search.called.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_open_call_at_the_limit_is_dropped_and_asked_for_with_twice_the_room() {
    let half = events([
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"search","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"q\":"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    let (whole, _) = assemble(Wire::Messages, [half.as_bytes()]);
    let whole = whole.unwrap();
    assert!(whole.open_call && whole.answer.blocks.is_empty());
    let upstream = origin(vec![half]).await;
    let mut world = agent(Wire::Messages, "m", &upstream.url(), "go", |_, _| {});
    assert_eq!(world.agent.go().await.unwrap(), Outcome::Truncated);
    let limits: Vec<_> = upstream
        .seen()
        .iter()
        .map(|s| s.json()["max_tokens"].clone())
        .collect();
    assert_eq!(limits, [1000, 2000]);
    assert!(world.search.called.lock().unwrap().is_empty());
}

#[tokio::test]
async fn f10_a_paused_turn_goes_back_as_it_is() {
    let said = r#"{"type":"text","text":"I look. "}"#;
    let asks =
        r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"x"}}"#;
    let finds = r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}"#;
    let upstream = origin(vec![
        stopping(&[said, asks], "pause_turn"),
        stopping(&[finds, TEXT], "end_turn"),
    ])
    .await;
    let mut world = agent(Wire::Messages, "m", &upstream.url(), "go", |_, _| {});
    assert_eq!(world.agent.go().await.unwrap(), Outcome::EndTurn);
    let seen: Vec<String> = upstream
        .seen()
        .into_iter()
        .map(|seen| String::from_utf8(seen.body).unwrap())
        .collect();
    let before = seen[0].strip_suffix("]}").unwrap();
    let expected = format!(r#"{before},{{"role":"assistant","content":[{said},{asks}]}}]}}"#);
    assert_eq!(seen[1], expected);
    assert_eq!(world.agent.run().answer().unwrap(), "I look. so");
    // A continuation counts as a turn and costs.
    assert_eq!(world.agent.run().turns(), 2);
    assert_eq!(world.agent.run().spent().uncached, 20);

    let forever = origin(vec![stopping(&[said], "pause_turn")]).await;
    let mut world = agent(Wire::Messages, "m", &forever.url(), "go", |setup, _| {
        setup.limits.turns = 4;
    });
    assert_eq!(world.agent.go().await.unwrap(), Outcome::MaxTurns);
    assert_eq!(forever.seen().len(), 4);
}

#[tokio::test]
async fn f05_empty_answers_leave_no_trace_that_is_refused() {
    let thinking = r#"{"type":"thinking","thinking":"hm","signature":"c2ln"}"#;
    let empty = r#"{"type":"text","text":""}"#;
    let check = async |first: String, says: &str, assistant: &[&str]| {
        let upstream = origin(vec![first.clone(), stopping(&[TEXT], "end_turn")]).await;
        let mut world = agent(
            Wire::Messages,
            "claude-sonnet-5",
            &upstream.url(),
            "go",
            |_, _| {},
        );
        says.clone_into(&mut world.search.says.lock().unwrap());
        world.agent.go().await.unwrap();
        if upstream.seen().len() == 1 {
            world.agent.say("go on").unwrap();
            world.agent.go().await.unwrap();
        }
        let body = upstream.last().body;
        accepted(Wire::Messages, &body).await.unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(
            !body.contains(r#""text":"""#) && !body.contains(r#""content":[]"#),
            "{body}"
        );
        let expected = format!(
            r#"{{"role":"assistant","content":[{}]}}"#,
            assistant.join(",")
        );
        let found = body.contains(&expected);
        assert_eq!(found, !assistant.is_empty(), "{first}\n{body}");
        assert_eq!(
            body.contains(r#""role":"assistant""#),
            !assistant.is_empty()
        );
        body
    };
    check(stopping(&[], "end_turn"), "x", &[]).await;
    check(stopping(&[thinking], "end_turn"), "x", &[thinking]).await;
    check(stopping(&[empty, CALL], "tool_use"), "x", &[CALL]).await;
    let body = check(stopping(&[TEXT, CALL], "tool_use"), "", &[TEXT, CALL]).await;
    assert!(body.contains(r#""content":"(no output)""#));
}

#[test]
fn the_finish_reasons_of_chat() {
    let check = |reason: &str, stop: Option<Stop>| {
        let body =
            format!(r#"{{"choices":[{{"message":{{"content":"x"}},"finish_reason":{reason}}}]}}"#);
        let (whole, _) = assemble_body(Wire::Chat, &body);
        assert_eq!(whole.map(|whole| whole.stop), stop, "{reason}");
    };
    check(r#""stop""#, Some(Stop::EndTurn));
    check(r#""tool_calls""#, Some(Stop::ToolUse));
    check(r#""function_call""#, Some(Stop::ToolUse));
    check(r#""length""#, Some(Stop::MaxTokens));
    check(r#""model_length""#, Some(Stop::ContextWindow));
    check(
        r#""content_filter""#,
        Some(Stop::Refusal(Some("content_filter".to_owned()))),
    );
    check(
        r#""new_reason""#,
        Some(Stop::Unknown("new_reason".to_owned())),
    );
    check(r#""error""#, None);
    check("null", None);
    let refused =
        r#"{"choices":[{"message":{"content":null,"refusal":"no"},"finish_reason":"stop"}]}"#;
    let (whole, _) = assemble_body(Wire::Chat, refused);
    assert_eq!(whole.unwrap().stop, Stop::Refusal(None));
    // At the limit a call is whole if its arguments are.
    let calls = |second: &str| {
        format!(
            r#"{{"choices":[{{"message":{{"tool_calls":[{{"id":"a","function":{{"name":"f","arguments":"{{}}"}}}},{{"id":"b","function":{{"name":"f","arguments":"{second}"}}}}]}},"finish_reason":"length"}}]}}"#
        )
    };
    let at_limit = |second| assemble_body(Wire::Chat, &calls(second)).0.unwrap();
    assert_eq!(
        (at_limit("{}").open_call, at_limit("{}").answer.blocks.len()),
        (false, 2)
    );
    assert_eq!(
        (at_limit("{").open_call, at_limit("{").answer.blocks.len()),
        (true, 1)
    );
}

#[test]
fn the_ends_of_responses() {
    let text =
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}"#;
    let call = r#"{"type":"function_call","id":"fc","call_id":"t","name":"f","arguments":"{}","status":"completed"}"#;
    let half = r#"{"type":"function_call","id":"fc","call_id":"t","name":"f","arguments":"{","status":"incomplete"}"#;
    let thinking = r#"{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"x"}"#;
    let refusal =
        r#"{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}"#;
    let empty = r#"{"type":"message","role":"assistant","content":[]}"#;
    let ended = |status: &str, reason: &str, items: &[&str]| {
        let items = items.join(",");
        let body = format!(
            r#"{{"status":"{status}","incomplete_details":{{"reason":"{reason}"}},"output":[{items}]}}"#
        );
        let whole = assemble_body(Wire::Responses, &body).0?;
        let blocks: Vec<_> = whole
            .answer
            .blocks
            .into_iter()
            .map(|block| block.raw)
            .collect();
        Some((whole.stop, whole.open_call, blocks))
    };
    let is = |stop: Stop, open: bool, blocks: &[&str]| {
        Some((
            stop,
            open,
            blocks.iter().map(|raw| (*raw).to_owned()).collect(),
        ))
    };
    let limit = "max_output_tokens";
    assert_eq!(
        ended("completed", "", &[text]),
        is(Stop::EndTurn, false, &[text])
    );
    assert_eq!(
        ended("completed", "", &[text, call]),
        is(Stop::ToolUse, false, &[text, call])
    );
    assert_eq!(ended("completed", "", &[half]), None);
    assert_eq!(
        ended("incomplete", limit, &[text]),
        is(Stop::MaxTokens, false, &[text])
    );
    assert_eq!(
        ended("incomplete", limit, &[text, thinking, half]),
        is(Stop::MaxTokens, true, &[text]),
        "reasoning that nothing follows is refused, so it goes with its call"
    );
    assert_eq!(
        ended("completed", "", &[thinking, empty]),
        is(Stop::EndTurn, false, &[thinking, empty]),
        "reasoning must not lose what follows it"
    );
    assert_eq!(
        ended("completed", "", &[empty]),
        is(Stop::EndTurn, false, &[])
    );
    assert_eq!(
        ended("completed", "", &[thinking]),
        is(Stop::EndTurn, false, &[])
    );
    let filtered = Stop::Refusal(Some("content_filter".to_owned()));
    assert_eq!(
        ended("incomplete", "content_filter", &[]),
        is(filtered, false, &[])
    );
    assert_eq!(
        ended("incomplete", "steered", &[text]),
        is(Stop::Pause, false, &[text])
    );
    let unknown = Stop::Unknown("new_reason".to_owned());
    assert_eq!(
        ended("incomplete", "new_reason", &[]),
        is(unknown, false, &[])
    );
    assert_eq!(
        ended("completed", "", &[refusal]),
        is(Stop::Refusal(None), false, &[refusal])
    );
    assert_eq!(ended("failed", "", &[text]), None);
    assert_eq!(ended("cancelled", "", &[text]), None);
}

#[tokio::test]
async fn f06_nothing_of_a_broken_attempt_is_left() {
    let broken = events([
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":10,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Here is the plan"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"search","input":{}}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"q\":"}}"#,
    ]);
    let call = r#"{"type":"tool_use","id":"t2","name":"search","input":{"q":"x"}}"#;
    let plan = r#"{"type":"text","text":"Here is the plan: x"}"#;
    let whole = stopping(&[plan, call], "tool_use");
    let last = stopping(&[TEXT], "end_turn");
    let upstream = Upstream::start(move |_, number| match number {
        0 => super::broken::resetting(&broken),
        1 => streamed(&whole),
        _ => streamed(&last),
    })
    .await;
    let mut world = agent(Wire::Messages, "m", &upstream.url(), "go", |_, options| {
        options.attempts = 3;
    });
    assert_eq!(world.agent.go().await.unwrap(), Outcome::EndTurn);
    let seen = upstream.seen();
    assert_eq!(seen[0].body, seen[1].body, "the same is asked again");
    let body = String::from_utf8(seen[2].body.clone()).unwrap();
    let expected = format!(r#"{{"role":"assistant","content":[{plan},{call}]}}"#);
    assert!(body.contains(&expected) && !body.contains("t1"), "{body}");
    assert_eq!(*world.search.called.lock().unwrap(), ["t2"]);
    let abandoned = world.events().into_iter().find_map(|event| match event {
        Event::Abandoned { bill, .. } => Some(bill),
        _ => None,
    });
    assert_eq!(
        abandoned.unwrap().usage.uncached,
        Some(10),
        "what it is known to have cost"
    );
    assert_eq!(world.agent.run().spent().answers, 3);
    assert_eq!(world.agent.run().spent().uncached, 30);
    let told = world.told.all();
    let at = |word: &str| told.iter().position(|told| told == word);
    assert!(at("text Here is the plan") < at("reset true"));
    assert!(at("reset true") < at("asked 2") && at("asked 2") < at("text Here is the plan: x"));
}

#[tokio::test]
async fn f06_an_answer_is_not_asked_for_again_once_a_tool_of_it_has_begun() {
    let begun = stopping(&[CALL], "tool_use");
    let begun = begun
        .split("event: message_delta")
        .next()
        .unwrap()
        .to_owned();
    let upstream = Upstream::start(move |_, _| super::broken::resetting(&begun)).await;
    let mut world = agent(Wire::Messages, "m", &upstream.url(), "go", |_, options| {
        options.attempts = 3;
        options.eager = true;
    });
    let ended = world.agent.go().await.unwrap();
    assert!(matches!(ended, Outcome::ProviderError(_)), "{ended:?}");
    assert_eq!(upstream.seen().len(), 1);
    assert!(world.told.all().contains(&"reset false".to_owned()));
}

#[tokio::test]
async fn a_cancelled_answer_keeps_what_it_has_cost() {
    let begun = stopping(&[TEXT], "end_turn");
    let begun = begun
        .split("event: message_delta")
        .next()
        .unwrap()
        .to_owned();
    let upstream = Upstream::start(move |_, _| {
        let mut steps = super::broken::resetting(&begun);
        steps.truncate(1);
        steps.push(Step::AwaitClose);
        steps
    })
    .await;
    let mut world = agent(Wire::Messages, "m", &upstream.url(), "go", |_, _| {});
    let (told, cancelled) = (Arc::clone(&world.told), world.cancelled.clone());
    let cancel = async {
        while !told.all().contains(&"text so".to_owned()) {
            tokio::task::yield_now().await;
        }
        cancelled.cancel();
    };
    let (ended, ()) = tokio::join!(world.agent.go(), cancel);
    assert_eq!(ended.unwrap(), Outcome::Cancelled);
    assert_eq!(world.agent.run().spent().uncached, 10);
    assert!(world.agent.run().answer().is_none());
}
