//! Each verdict, and each reason, as a client would cause it.

use prefixgate::prompt_cache::verdict::{Reason, Status, What};
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
