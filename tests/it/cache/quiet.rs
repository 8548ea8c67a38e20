//! What is no break: the provider reads such requests alike, so nothing may be said of them.

use prefixgate::config::{CachePolicy, NativeDiagnostics};
use prefixgate::prompt_cache::verdict::Status;
use prefixgate::sim::Options;
use serde_json::{Value, json};

use super::{Talk, told, verdict};
use crate::support::world::World;

/// JSON as clients write it: the type of a block before its content. In another order a text block
/// counts as another one.
fn type_first(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let (mut first, rest): (Vec<_>, Vec<_>) =
                members.iter().partition(|(key, _)| *key == "type");
            first.extend(rest);
            let members = first
                .iter()
                .map(|(key, value)| format!("{}:{}", json!(key), type_first(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            let items = items.iter().map(type_first);
            format!("[{}]", items.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// Sends `talk`, then `respell(grown)`, and wants everything read.
async fn unbroken(name: &str, talk: Talk, respell: impl Fn(Value) -> String) {
    let world = World::watching().await;
    let mut talk = talk;
    world.turn_of("r", &[], &type_first(&talk.body())).await;
    talk.grow("next");
    let before = world.turn_of("r", &[], &type_first(&talk.body())).await;
    assert_eq!(told(&before), (Status::Extended, None), "{name}");
    talk.grow("last");
    let record = world.turn_of("r", &[], &respell(talk.body())).await;
    assert_eq!(
        told(&record),
        (Status::Extended, None),
        "{name}: {record:#?}"
    );
    assert_eq!(verdict(&record).lost_tokens, Some(0), "{name}");
    let there = before.usage.read.unwrap() + before.usage.written().unwrap();
    assert_eq!(record.usage.read, Some(there), "{name}");
    assert_eq!(record.cache.expected_read, Some(there), "{name}");
    assert_eq!(world.compared(), 2, "{name}");
}

#[tokio::test]
async fn markers_that_move_are_no_change() {
    unbroken("moved", Talk::rich("s"), |mut body| {
        body["system"][0]
            .as_object_mut()
            .unwrap()
            .remove("cache_control");
        body["tools"][2]["cache_control"] = json!({"type": "ephemeral"});
        body["messages"][4]["content"][1]["cache_control"] = json!({"type": "ephemeral"});
        type_first(&body)
    })
    .await;
    unbroken("automatic", Talk::rich("s"), |mut body| {
        let messages = body["messages"].as_array_mut().unwrap();
        let last = messages.last_mut().unwrap()["content"]
            .as_array_mut()
            .unwrap();
        last[0].as_object_mut().unwrap().remove("cache_control");
        body["cache_control"] = json!({"type": "ephemeral"});
        type_first(&body)
    })
    .await;
}

#[tokio::test]
async fn spellings_of_one_meaning_are_no_change() {
    unbroken(
        "a string for one text block",
        Talk::rich("s"),
        |mut body| {
            for at in [5, 7] {
                let text = body["messages"][at]["content"][0]["text"].take();
                body["messages"][at]["content"] = text;
            }
            let result = body["messages"][2]["content"][0]["content"].take();
            body["messages"][2]["content"][0]["content"] =
                json!([{"type": "text", "text": result}]);
            type_first(&body)
        },
    )
    .await;
    unbroken("white space outside of strings", Talk::rich("s"), |body| {
        let spaced = type_first(&body).replace("\",\"", "\" ,\n \t\"");
        spaced.replace("\":", "\" :  ")
    })
    .await;
    unbroken(
        "order of the top-level members",
        Talk::rich("s"),
        |mut body| {
            let object = body.as_object_mut().unwrap();
            let messages = object.remove("messages").unwrap();
            let rest = type_first(&body);
            format!(r#"{{"messages":{},{}"#, type_first(&messages), &rest[1..])
        },
    )
    .await;
    unbroken("explicit defaults", Talk::rich("s"), |mut body| {
        body["tool_choice"] = json!({"type": "auto"});
        body["output_config"] = json!({"effort": "high"});
        body["temperature"] = json!(1.0);
        body["max_tokens"] = json!(100);
        type_first(&body)
    })
    .await;
}

#[tokio::test]
async fn attribution_text_is_no_part_of_the_prompt() {
    let mut talk = Talk::rich("s");
    let attribution = "x-anthropic-billing-header: cc_version=2.1; cch=aaaaa;";
    talk.system
        .insert(0, json!({"type": "text", "text": attribution}));
    unbroken("attribution", talk, |mut body| {
        body["system"][0]["text"] = json!("x-anthropic-billing-header: cc_version=2.1; cch=bbbbb;");
        type_first(&body)
    })
    .await;
}

#[tokio::test]
async fn a10_deferred_tools_are_no_part_of_the_prompt() {
    let mut talk = Talk::rich("s");
    talk.tools.push(
        json!({"name": "mcp__x__q", "defer_loading": true, "description": "one",
                           "input_schema": {"type": "object"}}),
    );
    unbroken("deferred", talk, |mut body| {
        body["tools"][3]["description"] = json!("another");
        let more =
            json!({"name": "mcp__x__r", "defer_loading": true, "input_schema": {"type": "object"}});
        body["tools"].as_array_mut().unwrap().insert(0, more);
        type_first(&body)
    })
    .await;
}

/// A setting that changes where nothing was cached behind it, and the client's own question.
#[tokio::test]
async fn the_clients_own_question_is_enough() {
    let world = World::watching().await;
    let mut talk = Talk::rich("s");
    talk.extra
        .push(("diagnostics", json!({"previous_message_id": null})));
    let reply = world.ask("r", &talk.body()).await;
    world.recorded("r", 1).await;
    let id = reply.json()["id"].as_str().unwrap().to_owned();
    talk.system[0]["text"] = json!(super::text(3000, "other"));
    talk.grow("next");
    talk.extra = vec![("diagnostics", json!({"previous_message_id": id}))];
    let record = world.turn("r", &talk.body()).await;
    assert_eq!(record.native_diagnosis.as_deref(), Some("system_changed"));
    assert_eq!(record.cache.native_agrees, Some(true), "{record:#?}");
    // Nothing was asked twice.
    for seen in world.sim.requests() {
        let body = String::from_utf8(seen.body.to_vec()).unwrap();
        assert_eq!(body.matches("diagnostics").count(), 1);
    }
}

#[tokio::test]
async fn without_a_question_nothing_is_compared() {
    let world = World::untouched().await;
    let mut talk = Talk::rich("s");
    world.turn("r", &talk.body()).await;
    talk.system[0]["text"] = json!(super::text(3000, "other"));
    let record = world.turn("r", &talk.body()).await;
    assert_eq!(told(&record).0, Status::Miss);
    assert_eq!(
        (
            record.native_diagnosis.as_deref(),
            record.cache.native_agrees
        ),
        (None, None)
    );
}

#[tokio::test]
async fn a_diagnosis_that_is_pending_says_nothing() {
    let options = Options {
        diagnostics_pending: true,
        ..Options::default()
    };
    let world = World::watching_with(options).await;
    let mut talk = Talk::rich("s");
    world.turn("r", &talk.body()).await;
    talk.system[0]["text"] = json!(super::text(3000, "other"));
    let record = world.turn("r", &talk.body()).await;
    assert_eq!(told(&record).0, Status::Miss);
    assert_eq!(record.native_diagnosis.as_deref(), Some("pending"));
    assert_eq!(record.cache.native_agrees, None);
}

/// With the planner at work and the question asked, taking our bytes out gives the client's back
/// (see `World::send`), and verdicts stay right.
#[tokio::test]
async fn insertions_and_questions_leave_the_clients_bytes() {
    let world = World::with(Options::default(), |config| {
        config.cache = CachePolicy::Fill;
        config.native_diagnostics = NativeDiagnostics::Request;
    })
    .await;
    let mut talk = Talk::rich("s");
    talk.system[0]
        .as_object_mut()
        .unwrap()
        .remove("cache_control");
    let mut placed = 0;
    for turn in 0..4 {
        let body = talk.with(talk.messages.clone());
        let record = world.turn("r", &body).await;
        placed += record.markers_added.len();
        let expected = if turn == 0 {
            Status::Cold
        } else {
            Status::Extended
        };
        assert_eq!(told(&record), (expected, None), "{record:#?}");
        talk.grow(&format!("turn {turn}"));
    }
    assert!(placed >= 8, "{placed}");
    assert_eq!(world.compared(), 3);
    talk.system[0]["text"] = json!(super::text(3000, "other"));
    let record = world.turn("r", &talk.with(talk.messages.clone())).await;
    assert_eq!(
        verdict(&record).first_changed.as_deref(),
        Some("system[0].text")
    );
    assert_eq!(world.compared(), 4);
}
