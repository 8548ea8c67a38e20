//! D13: a run that nobody watches stops at its first cap, and says so on the way.

use prefixgate::config::{Form, Webhook};
use prefixgate::guard::caps::Limits;
use prefixgate::sim::Options;
use serde_json::{Value, json};

use crate::support::upstream::json as http_json;
use crate::support::world::{MINUTE, World};
use crate::support::{Upstream, eventually};

/// A request that costs about four cents: its text is so long.
fn request(text: &str) -> String {
    json!({"model": "test-sonnet", "max_tokens": 64,
           "messages": [{"role": "user", "content": format!("{text} {}", "word ".repeat(10_000))}]})
    .to_string()
}

async fn hook() -> Upstream {
    Upstream::answering(http_json(200, "{}")).await
}

/// The alerts of a kind so far, in the order in which they came.
fn alerts(hook: &Upstream, kind: &str) -> Vec<Value> {
    let all = hook.seen();
    let all = all.iter().map(|seen| seen.json());
    all.filter(|alert| alert["kind"] == kind).collect()
}

async fn world(hook: &Upstream, limits: Limits, unnamed: Limits) -> World {
    World::with(Options::default(), |config| {
        config.caps.run = limits;
        config.caps.unnamed = unnamed;
        config.webhooks = vec![Webhook {
            name: "ops".to_owned(),
            url: format!("{}/hook", hook.url()).parse().unwrap(),
            form: Form::Json,
        }];
    })
    .await
}

#[tokio::test]
async fn d13_the_first_cap_stops_and_each_level_is_told_once_in_order() {
    let hook = hook().await;
    let limits = Limits {
        wall_ms: Some(60 * MINUTE),
        turns: Some(200),
        usd_pico: Some(5_000_000_000_000),
        ..Limits::default()
    };
    let unnamed = Limits {
        turns: Some(2),
        ..Limits::default()
    };
    let mut world = world(&hook, limits, unnamed).await;
    for minute in 0..60 {
        let reply = world
            .send("night", &[], &request(&format!("item {minute}")))
            .await;
        assert_eq!(reply.status, 200, "{minute}: {}", reply.text());
        let told = [30, 48].iter().filter(|at| minute >= **at).count();
        eventually("the levels so far are told", async || {
            let levels = alerts(&hook, "cap_level").len();
            assert!(levels <= told, "{minute}");
            (levels == told).then_some(())
        })
        .await;
        world.pass(MINUTE);
    }
    let reply = world.send("night", &[], &request("item 60")).await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("wall_time"), "{}", reply.text());
    let told = eventually("the last level is told", async || {
        let told = alerts(&hook, "cap_level");
        (told.len() == 3).then_some(told)
    })
    .await;
    let levels: Vec<&Value> = told.iter().map(|alert| &alert["level"]).collect();
    assert_eq!(levels, [&json!(50), &json!(80), &json!(100)]);
    for alert in &told {
        assert_eq!(
            (&alert["run"], &alert["cap"]),
            (&json!("night"), &json!("wall_time"))
        );
        assert!(
            !alert["value"].is_null() && !alert["limit"].is_null(),
            "{alert}"
        );
    }

    // Another process of the same run has the same caps, also after a restart.
    let other = ["x-claude-code-session-id: another"];
    assert_eq!(
        world.send("night", &other, &request("again")).await.status,
        400
    );
    world.restart().await;
    let reply = world.send("night", &other, &request("again")).await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("wall_time"), "{}", reply.text());
    // No level is told twice.
    assert_eq!(alerts(&hook, "cap_level").len(), 3);
}

#[tokio::test]
async fn d13_levels_of_money_come_one_by_one() {
    let hook = hook().await;
    let limits = Limits {
        usd_pico: Some(400_000_000_000),
        ..Limits::default()
    };
    let world = world(&hook, limits, Limits::default()).await;
    let mut statuses = Vec::new();
    for item in 0..14 {
        let reply = world
            .send("money", &[], &request(&format!("item {item}")))
            .await;
        statuses.push(reply.status);
    }
    let passed = statuses.iter().filter(|status| **status == 200).count();
    let costs: Vec<u64> = world
        .recorded("money", statuses.len())
        .await
        .iter()
        .filter_map(|turn| turn.cost_pico)
        .collect();
    let spent: u64 = costs.iter().sum();
    assert_eq!(costs.len(), passed);
    assert!(spent <= 400_000_000_000 && spent + 2 * costs[0] > 400_000_000_000);
    assert!(
        statuses[passed..].iter().all(|status| *status == 400),
        "{statuses:?}"
    );
    // What could not be used any more is told as a refusal, once, and is no level.
    let refused = eventually("the refusal is told", async || {
        let told = alerts(&hook, "cap_refused");
        (!told.is_empty()).then_some(told)
    })
    .await;
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (&refused[0]["run"], &refused[0]["cap"]),
        (&json!("money"), &json!("usd"))
    );
    let told = alerts(&hook, "cap_level");
    let levels: Vec<&Value> = told.iter().map(|alert| &alert["level"]).collect();
    assert_eq!(levels, [&json!(50), &json!(80)]);
    assert_eq!(told[0]["limit"], "0.4");
}
