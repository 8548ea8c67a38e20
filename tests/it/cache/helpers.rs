//! The opt-in helpers, and the share of runs that is left alone to be compared with.

use prefixgate::config::{CachePolicy, Reserve};
use prefixgate::prompt_cache::verdict::{Reason, Status, What};
use prefixgate::sim::Options;
use prefixgate::store::{Filter, Questions as _, Sqlite};
use prefixgate::trace::{Outcome, RequestKind};
use prefixgate::usage::usd;
use serde_json::json;
use std::time::Duration;

use super::{Talk, text, user};
use crate::support::eventually;
use crate::support::world::World;

#[tokio::test]
async fn a03_with_a_stable_order_reconnected_tools_keep_their_cache() {
    for stable in [false, true] {
        let world = World::with(Options::default(), |config| {
            config.cache = CachePolicy::Off;
            config.stable_tool_order = stable;
        })
        .await;
        let mut talk = Talk::new("s1");
        world.turn("r", &talk.body()).await;
        talk.tools.rotate_left(1);
        talk.grow("next");
        let turn = world.turn("r", &talk.body()).await;
        let verdict = turn.cache.verdict.clone().unwrap();
        if stable {
            assert_eq!(verdict.status, Status::Extended, "{turn:#?}");
            assert_eq!(turn.cache.helper, Some("tool_order"));
            assert_eq!(turn.cache.helper_tokens, turn.usage.read);
            assert!(turn.cache.helper_pico.unwrap() > 0);
        } else {
            assert_eq!(verdict.status, Status::Miss);
            assert_eq!(verdict.reason, Some(Reason::Tools));
            assert_eq!(verdict.what, Some(What::ToolsReordered));
            assert_eq!(verdict.first_changed.as_deref(), Some("tools[0]"));
            assert_eq!(turn.cache.helper, None);
        }
    }
}

/// Eight agents begin at once with the same tools and system prompt.
async fn fan_out(wait: Duration) -> World {
    let options = Options {
        head_delay: Duration::from_millis(200),
        ..Options::default()
    };
    let world = World::with(options, |config| {
        config.cache = CachePolicy::Off;
        config.warm_first = wait;
    })
    .await;
    let ask = |number: usize| {
        let mut talk = Talk::new("root");
        talk.messages = vec![user(&text(200, &format!("task {number}")))];
        let (world, body) = (&world, talk.body());
        async move { world.ask(&format!("r{number}"), &body).await }
    };
    let others = async {
        // The first is under way, and its answer has not begun.
        world.sim.wait_for(|seen| !seen.is_empty()).await;
        tokio::join!(ask(1), ask(2), ask(3), ask(4), ask(5), ask(6), ask(7))
    };
    tokio::join!(ask(0), others);
    world
}

#[tokio::test]
async fn siblings_that_wait_for_the_first_read_what_it_wrote() {
    let world = fan_out(Duration::from_secs(20)).await;
    for number in 1..8 {
        let turn = world.recorded(&format!("r{number}"), 1).await.remove(0);
        assert!(turn.usage.read.unwrap() > 3000, "{turn:#?}");
        assert_eq!(turn.cache.helper, Some("warm_first"));
        assert_eq!(turn.cache.helper_tokens, turn.usage.read);
        assert!(turn.cache.helper_pico.unwrap() > 0);
        assert_eq!(turn.cache.duplicate_of, None);
    }
}

#[tokio::test]
async fn siblings_that_do_not_wait_pay_for_the_same_prefix_again() {
    let world = fan_out(Duration::ZERO).await;
    let first = world.recorded("r0", 1).await.remove(0);
    let mut twice = 0;
    for number in 1..8 {
        let turn = world.recorded(&format!("r{number}"), 1).await.remove(0);
        assert_eq!(turn.usage.read, Some(0));
        let verdict = turn.cache.verdict.unwrap();
        assert_eq!(verdict.status, Status::Cold);
        assert_eq!(verdict.reason, Some(Reason::Concurrent));
        twice += usize::from(turn.cache.duplicate_of.is_some());
    }
    assert_eq!(twice, 7, "{first:#?}");
}

#[tokio::test]
async fn a_prefix_is_kept_warm_across_a_pause_and_paid_for_in_the_books() {
    let world = World::with(Options::default(), |config| {
        config.keep_warm_max_micro_usd = 1_000_000;
    })
    .await;
    let mut talk = Talk::new("s1");
    // An agent that has been answered before, so that somebody may come back.
    talk.grow("second");
    world.turn("r", &talk.body()).await;
    world.sim.forget_requests();
    world.pass(285_000);
    let pings = world.sim.wait_for(|seen| !seen.is_empty()).await;
    let ping: serde_json::Value = serde_json::from_slice(&pings[0].body).unwrap();
    assert_eq!(ping["max_tokens"], 0);
    let record = eventually("the ping's record", async || {
        let store = Sqlite::open_read(&world.data()).unwrap();
        let all = store.turns("r", &Filter::all(10), true).unwrap();
        all.into_iter().find(|r| r.kind == RequestKind::KeepWarm)
    })
    .await;
    assert!(record.cost_pico.unwrap() > 0);
    assert_eq!(
        record.cache.helper_pico,
        Some(-i64::try_from(record.cost_pico.unwrap()).unwrap())
    );
    world.pass(200_000);
    talk.grow("after the pause");
    let resumed = world.turn("r", &talk.body()).await;
    assert_eq!(
        resumed.cache.verdict.as_ref().unwrap().status,
        Status::Extended,
        "{resumed:#?}"
    );
    assert_eq!(resumed.cache.helper, Some("keep_warm"));
    assert!(resumed.cache.helper_pico.unwrap() > 0);
}

#[tokio::test]
async fn keeping_warm_is_booked_in_the_caps_and_ends_at_them() {
    for (cap, pings) in [(2_000_000_000_000_u64, true), (1, false)] {
        let world = World::with(Options::default(), |config| {
            config.keep_warm_max_micro_usd = 1_000_000;
            config.caps.run.usd_pico = Some(cap);
            config.caps.reserve = Reserve::Nothing;
        })
        .await;
        let mut talk = Talk::new("s1");
        talk.grow("second");
        world.turn("r", &talk.body()).await;
        world.pass(285_000);
        let record = eventually("the ping's record", async || {
            let store = Sqlite::open_read(&world.data()).unwrap();
            let all = store.turns("r", &Filter::all(10), true).unwrap();
            all.into_iter().find(|r| r.kind == RequestKind::KeepWarm)
        })
        .await;
        assert_eq!(record.outcome == Outcome::Ok, pings, "{record:#?}");
        if !pings {
            // Neither the provider's money nor the record's.
            assert_eq!((record.cost_pico, world.sim.requests().len()), (None, 1));
            continue;
        }
        talk.grow("after the pause");
        let reply = world.ask("r", &talk.body()).await;
        let first = world.turns("r")[0].cost_pico.unwrap();
        let left = usd(cap - first - record.cost_pico.unwrap());
        assert_eq!(reply.header("x-prefixgate-left-usd"), Some(left.as_str()));
    }
}

#[tokio::test]
async fn a_held_out_run_is_left_alone_as_a_whole() {
    let world = World::with(Options::default(), |config| config.holdout_percent = 50).await;
    let (mut out, mut filled) = (0, 0);
    for number in 0..24 {
        let run = format!("run-{number}");
        let mut talk = Talk::new(&run);
        talk.system[0] = json!({"type": "text", "text": text(3000, &run)});
        let plain = |talk: &Talk| talk.with(talk.messages.clone());
        let first = world.turn(&run, &plain(&talk)).await;
        talk.grow("more");
        let second = world.turn(&run, &plain(&talk)).await;
        assert_eq!(first.cache.policy, second.cache.policy);
        match first.cache.policy {
            Some("holdout") => {
                out += 1;
                assert!(first.markers_added.is_empty() && second.markers_added.is_empty());
                assert_eq!(second.usage.written(), Some(0));
            }
            Some("fill") => {
                filled += 1;
                assert!(second.usage.read.unwrap() > 0, "{second:#?}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(out >= 4 && filled >= 4, "{out} {filled}");
}
