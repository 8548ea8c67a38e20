//! Reasoning in the prompt: dropped by clients, and by older models themselves.

use prefixgate::prompt_cache::verdict::{Reason, Status, What, Whose};
use serde_json::{Value, json};

use super::{Talk, told, verdict};
use crate::support::world::World;

fn thinker(model: &'static str) -> Talk {
    let mut talk = Talk::new("s");
    talk.model = model;
    talk.messages = vec![super::user(&format!(
        "do it [[plan:shell_ok,end]] {}",
        super::text(300, "task")
    ))];
    let bash = json!({"name": "Bash", "input_schema": {"type": "object",
        "properties": {"command": {"type": "string"}}, "required": ["command"]}});
    talk.tools.push(bash);
    talk.extra = vec![
        ("max_tokens", json!(4000)),
        (
            "thinking",
            json!({"type": "enabled", "budget_tokens": 2000}),
        ),
    ];
    talk
}

/// The answer goes into the conversation, with the results of its calls.
fn take(talk: &mut Talk, answer: &Value) {
    let content = answer["content"].as_array().unwrap().clone();
    let results: Vec<Value> = content
        .iter()
        .filter(|block| block["type"] == "tool_use")
        .map(|block| json!({"type": "tool_result", "tool_use_id": block["id"], "content": super::text(200, "out")}))
        .collect();
    assert_eq!(content[0]["type"], "thinking");
    talk.messages
        .push(json!({"role": "assistant", "content": content}));
    if !results.is_empty() {
        talk.messages
            .push(json!({"role": "user", "content": results}));
    }
}

/// Up to the end of the first task: user, call, result, answer.
async fn first_task(world: &World, run: &str, talk: &mut Talk) {
    for turn in 0..2 {
        let reply = world.ask(run, &talk.body()).await;
        take(talk, &reply.json());
        let records = world.recorded(run, turn + 1).await;
        let expected = if turn == 0 {
            Status::Cold
        } else {
            Status::Extended
        };
        assert_eq!(told(&records[turn]), (expected, None), "{records:#?}");
        assert_ne!(records[turn].cache.native_agrees, Some(false));
    }
    assert_eq!(talk.messages.len(), 4);
    talk.messages.push(super::user(&format!(
        "and now {}",
        super::text(200, "then")
    )));
}

#[tokio::test]
async fn older_models_drop_earlier_thinking_themselves() {
    for (model, drops) in [
        ("claude-sonnet-4-5", true),
        ("claude-haiku-4-5", true),
        ("claude-sonnet-4-6", false),
        ("claude-opus-4-5", false),
    ] {
        let world = World::watching().await;
        let mut talk = thinker(model);
        talk.system[0]["text"] = json!(super::text(6000, "s"));
        first_task(&world, "r", &mut talk).await;
        let record = world.turn("r", &talk.body()).await;
        if !drops {
            assert_eq!(
                told(&record),
                (Status::Extended, None),
                "{model}: {record:#?}"
            );
            continue;
        }
        let verdict = verdict(&record);
        assert_eq!(
            told(&record),
            (Status::Partial, Some(Reason::Messages)),
            "{record:#?}"
        );
        assert_eq!(verdict.what, Some(What::ThinkingDropped));
        assert_eq!(verdict.whose, Some(Whose::Provider));
        assert_eq!(
            verdict.first_changed.as_deref(),
            Some("messages[1].content[0]")
        );
        assert_eq!(
            verdict.detail,
            "this model drops earlier thinking when a new user text comes"
        );
        assert!(verdict.lost_tokens.unwrap() > 0);
        assert_eq!(record.cache.native_agrees, Some(true));
        // Entries behind the dropped block are not expected, so what is read was foreseen.
        assert_eq!(record.cache.expected_read, record.usage.read, "{record:#?}");
        // Once it is out it stays out.
        talk.grow("more");
        let record = world.turn("r", &talk.body()).await;
        assert_eq!(told(&record), (Status::Extended, None), "{record:#?}");
        assert_eq!(record.cache.expected_read, record.usage.read, "{record:#?}");
    }
}

#[tokio::test]
async fn a11_a_client_that_drops_thinking() {
    let world = World::watching().await;
    let mut talk = thinker("claude-sonnet-4-6");
    first_task(&world, "r", &mut talk).await;
    talk.content(1).remove(0);
    let record = world.turn("r", &talk.body()).await;
    let verdict = verdict(&record);
    assert_eq!(
        told(&record),
        (Status::Partial, Some(Reason::Messages)),
        "{record:#?}"
    );
    assert_eq!(verdict.what, Some(What::ThinkingDropped));
    assert_eq!(verdict.whose, Some(Whose::Client));
    assert_eq!(
        verdict.first_changed.as_deref(),
        Some("messages[1].content[0]")
    );
    assert!(
        verdict.detail.starts_with("thinking block dropped"),
        "{}",
        verdict.detail
    );
    assert_eq!(record.cache.native_agrees, Some(true));
}
