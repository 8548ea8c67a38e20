//! Each verdict, and each reason, as a client would cause it.

use prefixgate::prompt_cache::verdict::{Reason, Status, What};
use prefixgate::store::Strikes;
use serde_json::json;

use super::{Talk, told};
use crate::support::world::{MINUTE, World};

#[tokio::test]
async fn a11_a_growing_conversation_is_extended() {
    let world = World::watching().await;
    let mut talk = Talk::new("s1");
    let first = world.turn("r", &talk.body()).await;
    assert_eq!(told(&first), (Status::Cold, None));
    for turn in 2..6 {
        talk.grow(&format!("question {turn}"));
        let record = world.turn("r", &talk.body()).await;
        assert_eq!(told(&record), (Status::Extended, None), "{record:#?}");
        let verdict = record.cache.verdict.unwrap();
        assert_eq!((verdict.lost_tokens, verdict.lost_pico), (Some(0), Some(0)));
        assert_eq!(record.cache.expected_read, record.usage.read);
    }
    let again = world.turn("r", &talk.body()).await;
    assert_eq!(told(&again), (Status::Hit, None));
}

#[tokio::test]
async fn a01_a_clock_in_the_system_prompt() {
    let world = World::watching().await;
    let mut talk = Talk::new("s1");
    for second in 0..10 {
        talk.system[0]["text"] = json!(format!(
            "Now: 2026-01-05 10:00:0{second}. {}",
            super::text(3000, "s")
        ));
        let record = world.turn("r", &talk.body()).await;
        if second > 0 {
            let verdict = record.cache.verdict.clone().unwrap();
            assert_eq!(
                told(&record),
                (Status::Miss, Some(Reason::System)),
                "{record:#?}"
            );
            assert_eq!(verdict.first_changed.as_deref(), Some("system[0].text"));
            assert_eq!(verdict.offset, Some(23));
            assert_eq!(verdict.what, Some(What::Clock));
            assert!(verdict.lost_tokens.unwrap() > 3000);
            assert!(verdict.lost_pico.unwrap() > 0);
        }
        talk.grow("next");
        world.clock.advance(20_000);
    }
}

#[tokio::test]
async fn time_is_to_blame_after_the_lifetime_and_no_path_is() {
    let world = World::watching().await;
    let mut talk = Talk::new("s1");
    world.turn("r", &talk.body()).await;
    talk.grow("later");
    world.clock.advance(6 * MINUTE);
    let record = world.turn("r", &talk.body()).await;
    assert_eq!(
        told(&record),
        (Status::Miss, Some(Reason::Expired)),
        "{record:#?}"
    );
    assert_eq!(record.cache.verdict.unwrap().first_changed, None);
}

#[tokio::test]
async fn the_memory_outlives_the_process() {
    let mut world = World::watching().await;
    let mut talk = Talk::new("s1");
    world.turn("r", &talk.body()).await;
    world.restart().await;
    talk.system[0]["text"] = json!(super::text(3000, "s2"));
    talk.grow("later");
    let record = world.turn("r", &talk.body()).await;
    let verdict = record.cache.verdict.clone().unwrap();
    assert_eq!(verdict.status, Status::Miss, "{record:#?}");
    assert_eq!(verdict.reason, Some(Reason::System));
    assert_eq!(verdict.first_changed.as_deref(), Some("system[0].text"));
    // Its text is not kept.
    assert_eq!((verdict.offset, verdict.what), (None, Some(What::Unknown)));
}

/// A13 with the clock: what nobody has read is wasted when its lifetime is over, and not before.
#[tokio::test]
async fn a13_one_shot_calls_after_their_lifetime() {
    for (hour, minutes) in [(false, 5), (true, 60)] {
        let world = World::watching().await;
        let (mut premium, mut now_ms) = (0, 0);
        for run in ["a", "b", "c", "d", "d"] {
            let mut talk = Talk::new(run);
            talk.model = "test-sonnet";
            let mut body = talk.body().to_string();
            if hour {
                let hourly = r#""cache_control":{"ttl":"1h","type":"ephemeral"}"#;
                body = body.replace(r#""cache_control":{"type":"ephemeral"}"#, hourly);
            }
            let record = world.turn_of(run, &[], &body).await;
            let written = record.usage.written().unwrap();
            now_ms = record.started_ms;
            if run != "d" {
                let rate = if hour { 3_000_000 } else { 750_000 };
                premium += i128::from(written * rate);
            }
            world.clock.advance(1_000);
        }
        let after = |minutes: i64| world.unread(now_ms + minutes * 60_000);
        let before = after(minutes - 1);
        assert_eq!(
            (before.turns, before.pending, before.unattributed),
            (0, 3, 0)
        );
        let over = after(minutes + 1);
        assert_eq!((over.turns, over.pending, over.unattributed), (3, 0, 0));
        assert_eq!(over.wasted.total(), Some(premium));
        let runs: Vec<_> = over.rows.iter().map(|row| &*row.place.run_id).collect();
        assert!(!runs.contains(&"d"), "{runs:?}");
    }
}

/// Strikes count one culprit of a run, wherever it stands in the talk.
#[tokio::test]
async fn strikes_are_of_one_culprit() {
    let world = World::watching().await;
    let mut talk = Talk::new("s");
    let mut strikes = Strikes::default();
    let mut counted = Vec::new();
    for turn in 0..6 {
        if turn % 2 == 1 {
            talk.system[0]["text"] = json!(super::text(
                3000,
                ["a", "beta", "c", "gamma", "d", "other"][turn]
            ));
        }
        if turn == 4 {
            world.sim.evict_cache();
        }
        let record = world.turn("r", &talk.body()).await;
        let verdict = record.cache.verdict.unwrap();
        if let Some(reason) = verdict.reason {
            counted.push((reason, strikes.count(&verdict)));
        }
        talk.grow("next");
    }
    let system = Reason::System;
    let expected = [
        (system, Some(1)),
        (system, Some(2)),
        (Reason::Evicted, Some(1)),
        (system, Some(3)),
    ];
    assert_eq!(counted, expected);
}
