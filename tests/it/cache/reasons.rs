//! Each reason that is no change of a block, as a client or a provider would cause it.

use std::time::Duration;

use prefixgate::prompt_cache::verdict::{Reason, Status, Whose};
use prefixgate::sim::Options;
use prefixgate::trace::TurnRecord;
use serde_json::{Value, json};

use super::{Talk, told, user, verdict};
use crate::support::world::{MINUTE, World};

/// Two turns that grow, then one that `change` makes another one.
async fn after(world: &World, run: &str, mut talk: Talk, change: impl Fn(&mut Talk)) -> TurnRecord {
    world.turn(run, &talk.body()).await;
    talk.grow("second");
    let second = world.turn(run, &talk.body()).await;
    assert_eq!(told(&second), (Status::Extended, None), "{run}");
    talk.grow("third");
    change(&mut talk);
    world.turn(run, &talk.body()).await
}

fn on_test_model(seed: &str) -> Talk {
    let mut talk = Talk::new(seed);
    talk.model = "test-sonnet";
    talk
}

#[tokio::test]
async fn another_model_has_another_cache() {
    let world = World::watching().await;
    let record = after(&world, "r", Talk::new("s"), |t| t.model = "test-sonnet").await;
    assert_eq!(told(&record), (Status::Miss, Some(Reason::Model)));
    let verdict = verdict(&record);
    assert_eq!(verdict.whose, Some(Whose::Client));
    assert!(verdict.detail.contains("test-sonnet"), "{}", verdict.detail);
    assert!(verdict.detail.contains("claude-sonnet-4-6"));
    assert_eq!(verdict.first_changed, None);
    assert_eq!(record.cache.native_agrees, Some(true));
}

/// Settings beside the blocks: each is named, with the level that it costs.
#[tokio::test]
async fn settings_are_named() {
    type Change = fn(&mut Talk);
    let image: Change = |t| {
        let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}});
        let last = t.messages.len() - 1;
        t.content(last).insert(0, image);
    };
    let citations: Change = |t| {
        let document = json!({"type": "document", "citations": {"enabled": true},
            "source": {"type": "text", "media_type": "text/plain", "data": "a document"}});
        let last = t.messages.len() - 1;
        t.content(last).insert(0, document);
    };
    let changes: [(&str, Reason, Change); 9] = [
        ("tool_choice", Reason::Parameter, |t| {
            t.extra.push(("tool_choice", json!({"type": "any"})))
        }),
        ("tool_choice", Reason::Parameter, |t| {
            t.extra.push((
                "tool_choice",
                json!({"type": "auto", "disable_parallel_tool_use": true}),
            ));
        }),
        ("tool_choice", Reason::Parameter, |t| {
            t.extra.push(("tool_choice", json!({"type": "none"})))
        }),
        ("thinking", Reason::Parameter, |t| {
            t.extra.push((
                "thinking",
                json!({"type": "enabled", "budget_tokens": 1024}),
            ));
            t.extra.push(("max_tokens", json!(2000)));
        }),
        ("thinking", Reason::Parameter, |t| {
            t.extra.push(("thinking", json!({"type": "adaptive"})))
        }),
        ("output_config.effort", Reason::Parameter, |t| {
            t.extra.push(("output_config", json!({"effort": "low"})))
        }),
        ("images", Reason::Parameter, image),
        ("citations", Reason::Parameter, citations),
        ("speed", Reason::Speed, |t| {
            t.extra.push(("speed", json!("fast")))
        }),
    ];
    let world = World::watching().await;
    for (number, (name, reason, change)) in changes.into_iter().enumerate() {
        let run = format!("r{number}");
        let record = after(&world, &run, on_test_model(&run), change).await;
        let verdict = verdict(&record);
        assert_eq!(verdict.reason, Some(reason), "{name}: {record:#?}");
        assert_eq!(verdict.first_changed.as_deref(), Some(name));
        assert_eq!(verdict.whose, Some(Whose::Client));
        assert!(verdict.lost_tokens.unwrap() > 0, "{name}");
        assert_eq!((verdict.what, verdict.offset), (None, None));
        // What stands before the level is still read; there is no marker before the system prompt.
        let system_kept = !matches!(name, "speed" | "citations");
        let expected = if system_kept {
            Status::Partial
        } else {
            Status::Miss
        };
        assert_eq!(verdict.status, expected, "{name}: {record:#?}");
        assert_eq!(
            record.cache.native_agrees,
            Some(true),
            "{name}: {record:#?}"
        );
    }
}

#[tokio::test]
async fn the_header_of_the_fast_mode_is_part_of_the_key() {
    let world = World::watching().await;
    let mut talk = on_test_model("s");
    world.turn("r", &talk.body()).await;
    talk.grow("next");
    let fast = ["anthropic-beta: fast-mode-2026-02-01"];
    let record = world.turn_with("r", &fast, &talk.body()).await;
    assert_eq!(
        told(&record),
        (Status::Miss, Some(Reason::Beta)),
        "{record:#?}"
    );
    assert_eq!(verdict(&record).whose, Some(Whose::Client));
    assert_eq!(record.cache.native_agrees, Some(true));
    // Other beta features that come and go cost nothing here, and nothing is said.
    talk.grow("again");
    let other = ["anthropic-beta: fast-mode-2026-02-01,token-efficient-tools-2026-01-01"];
    let record = world.turn_with("r", &other, &talk.body()).await;
    assert_eq!(told(&record), (Status::Extended, None), "{record:#?}");
}

#[tokio::test]
async fn lifetimes_end_after_five_minutes_and_after_an_hour() {
    let world = World::watching().await;
    for (hour, gap, reason) in [
        (false, 4, None),
        (false, 5, Some(Reason::Expired)),
        (false, 61, Some(Reason::Expired)),
        (true, 59, None),
        (true, 60, Some(Reason::Expired)),
    ] {
        let run = format!("r-{hour}-{gap}");
        let mut talk = Talk::new(&run);
        let body = |talk: &Talk| {
            let text = talk.body().to_string();
            let hourly = r#""cache_control":{"ttl":"1h","type":"ephemeral"}"#;
            let text = match hour {
                true => text.replace(r#""cache_control":{"type":"ephemeral"}"#, hourly),
                false => text,
            };
            serde_json::from_str::<Value>(&text).unwrap()
        };
        world.turn(&run, &body(&talk)).await;
        talk.grow("later");
        world.clock.advance(gap * MINUTE);
        let record = world.turn(&run, &body(&talk)).await;
        let status = match reason {
            Some(_) => Status::Miss,
            None => Status::Extended,
        };
        assert_eq!(told(&record), (status, reason), "{run}: {record:#?}");
        if reason.is_some() {
            let verdict = verdict(&record);
            assert_eq!(verdict.whose, Some(Whose::Time));
            let limit = if hour { "live 1h" } else { "live 5m" };
            assert!(verdict.detail.contains(limit), "{}", verdict.detail);
            assert!(
                verdict.detail.contains(&format!("{gap} min")),
                "{}",
                verdict.detail
            );
        }
    }
}

/// Reading renews: a talk with pauses of four minutes never expires.
#[tokio::test]
async fn reading_renews_the_lifetime() {
    let world = World::watching().await;
    let mut talk = Talk::new("s");
    world.turn("r", &talk.body()).await;
    for turn in 0..4 {
        talk.grow(&format!("turn {turn}"));
        world.clock.advance(4 * MINUTE);
        let record = world.turn("r", &talk.body()).await;
        assert_eq!(told(&record), (Status::Extended, None), "{record:#?}");
    }
}

/// Time and a change: what had expired cannot be blamed on the change.
#[tokio::test]
async fn time_comes_before_a_change() {
    let world = World::watching().await;
    let mut talk = Talk::new("s");
    world.turn("r", &talk.body()).await;
    talk.system[0]["text"] = json!(super::text(3000, "other"));
    world.clock.advance(7 * MINUTE);
    let record = world.turn("r", &talk.body()).await;
    assert_eq!(
        told(&record),
        (Status::Miss, Some(Reason::Expired)),
        "{record:#?}"
    );
}

#[tokio::test]
async fn parallel_first_requests_each_pay() {
    let options = Options {
        head_delay: Duration::from_millis(400),
        ..Options::default()
    };
    let world = World::watching_with(options).await;
    let shared = Talk::new("shared");
    let mut other = Talk::new("shared");
    other.messages = vec![user(&format!("another task {}", super::text(300, "task")))];
    let opening = shared.body();
    let second = async {
        // The first has arrived, and its answer has not begun.
        world.sim.wait_for(|seen| !seen.is_empty()).await;
        world.turn("b", &other.body()).await
    };
    let (first, second) = tokio::join!(world.turn("a", &opening), second);
    assert_eq!(told(&first), (Status::Cold, None), "{first:#?}");
    assert_eq!(
        told(&second),
        (Status::Cold, Some(Reason::Concurrent)),
        "{second:#?}"
    );
    assert_eq!(verdict(&second).whose, Some(Whose::Time));
    assert_eq!(second.cache.duplicate_of, Some(first.id));
    // One that comes after the answer has begun reads.
    let mut third = Talk::new("shared");
    third.messages = vec![user("a third task")];
    let third = world.turn("c", &third.body()).await;
    assert_eq!(told(&third), (Status::Extended, None), "{third:#?}");
    // Both have written the same.
    let read_of = third.cache.read_of.unwrap();
    assert!([first.id, second.id].contains(&read_of), "{third:#?}");
}

/// The client marks only the tail, and more blocks come at once than the provider looks back over.
#[tokio::test]
async fn too_many_new_blocks_are_beyond_the_lookback() {
    for results in [false, true] {
        let world = World::watching().await;
        let mut talk = Talk::new("s");
        talk.system[0]
            .as_object_mut()
            .unwrap()
            .remove("cache_control");
        world.turn("r", &talk.body()).await;
        let ids: Vec<String> = (0..30).map(|n| format!("toolu_{n}")).collect();
        let (calls, blocks): (Vec<Value>, Vec<Value>) = ids
            .iter()
            .map(|id| match results {
                true => (
                    json!({"type": "tool_use", "id": id, "name": "read", "input": {}}),
                    json!({"type": "tool_result", "tool_use_id": id, "content": "fine"}),
                ),
                false => (
                    json!({"type": "text", "text": format!("call {id}")}),
                    json!({"type": "text", "text": format!("found {id}")}),
                ),
            })
            .unzip();
        let said = if results {
            calls
        } else {
            vec![json!({"type": "text", "text": "well"})]
        };
        talk.messages
            .push(json!({"role": "assistant", "content": said}));
        talk.messages
            .push(json!({"role": "user", "content": blocks}));
        let record = world.turn("r", &talk.body()).await;
        assert_eq!(
            told(&record),
            (Status::Miss, Some(Reason::Lookback)),
            "{record:#?}"
        );
        assert_eq!(verdict(&record).whose, Some(Whose::Client));
        assert!(verdict(&record).lost_tokens.unwrap() > 1000);
    }
}

#[tokio::test]
async fn nothing_is_written_below_the_minimum_without_a_marker_or_for_no_reason() {
    let world = World::watching().await;
    // Below the minimum that is known.
    let mut talk = on_test_model("s");
    talk.tools.clear();
    talk.system = vec![json!({"type": "text", "text": "Be brief."})];
    for run in ["a", "a"] {
        let record = world.turn(run, &talk.body()).await;
        assert_eq!(
            told(&record),
            (Status::NotCacheable, Some(Reason::BelowMinimum)),
            "{record:#?}"
        );
        assert!(
            verdict(&record).detail.contains("below minimum of 1024"),
            "{record:#?}"
        );
        assert_eq!(verdict(&record).lost_tokens, Some(0));
    }
    // No breakpoint at all.
    let mut talk = on_test_model("n");
    talk.system[0]
        .as_object_mut()
        .unwrap()
        .remove("cache_control");
    let record = world.turn("b", &talk.with(talk.messages.clone())).await;
    assert_eq!(
        told(&record),
        (Status::NotCacheable, Some(Reason::NoMarker)),
        "{record:#?}"
    );
    assert_eq!(verdict(&record).whose, Some(Whose::Client));
    // A model of which no minimum is known.
    let mut talk = Talk::new("u");
    talk.model = "test-small";
    talk.tools.clear();
    let record = world.turn("c", &talk.body()).await;
    assert_eq!(
        told(&record),
        (Status::NotCacheable, Some(Reason::NotWritten)),
        "{record:#?}"
    );
    assert_eq!(verdict(&record).whose, Some(Whose::Provider));
    // A breakpoint that was there and is left out: what had been written is lost.
    let mut talk = Talk::new("m");
    world.turn("d", &talk.body()).await;
    talk.grow("next");
    let mut bare = talk.with(talk.messages.clone());
    bare["system"][0]
        .as_object_mut()
        .unwrap()
        .remove("cache_control");
    let record = world.turn("d", &bare).await;
    assert_eq!(
        told(&record),
        (Status::Miss, Some(Reason::NoMarker)),
        "{record:#?}"
    );
    assert!(verdict(&record).lost_pico.unwrap() > 0);
}

#[tokio::test]
async fn what_the_provider_gave_up_is_its_doing() {
    let world = World::watching().await;
    let mut talk = Talk::new("s");
    world.turn("r", &talk.body()).await;
    talk.grow("next");
    world.sim.evict_cache();
    let record = world.turn("r", &talk.body()).await;
    assert_eq!(
        told(&record),
        (Status::Miss, Some(Reason::Evicted)),
        "{record:#?}"
    );
    assert_eq!(verdict(&record).whose, Some(Whose::Provider));
    assert_eq!(record.cache.native_agrees, Some(true));
    talk.grow("last");
    let record = world.turn("r", &talk.body()).await;
    assert_eq!(told(&record), (Status::Extended, None), "{record:#?}");
}
