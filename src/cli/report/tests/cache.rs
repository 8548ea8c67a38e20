//! Verdicts, losses and savings.

use serde_json::Value;

use super::{json, mixed, report};
use crate::prompt_cache::verdict::{Excerpt, Reason, Status, Verdict};
use crate::store::{test_turn, test_verdict};
use crate::trace::{RequestKind, TurnRecord};

/// A run of which three turns broke the cache: twice at the same place of the system prompt.
fn judged() -> Vec<TurnRecord> {
    let clock = || test_verdict(Status::Partial, Reason::System, Some("system[0].text"));
    let verdicts = [
        Verdict {
            status: Status::Cold,
            reason: None,
            lost_tokens: Some(0),
            lost_pico: Some(0),
            ..test_verdict(Status::Cold, Reason::System, None)
        },
        clock(),
        Verdict {
            lost_pico: None,
            ..test_verdict(
                Status::Miss,
                Reason::Messages,
                Some("messages[3].content[0]"),
            )
        },
        Verdict {
            excerpt: Some(Excerpt {
                before: "12:00".into(),
                after: "12:01".into(),
            }),
            ..clock()
        },
    ];
    let turns = verdicts.into_iter().zip(1..).map(|(verdict, n)| {
        let mut one = test_turn("judged", n);
        one.cache.verdict = Some(verdict);
        one
    });
    let mut turns: Vec<_> = turns.collect();
    turns[3].cache.policy = Some("fill");
    turns[3].cache.expected_read = Some(1_030);
    turns[3].cache.read_of = Some(turns[2].id);
    turns[3].cache.duplicate_of = Some(turns[1].id);
    turns[3].cache.duplicate_pico = Some(1);
    turns[3].cache.native_agrees = Some(true);
    turns[3].cache.helper = Some("keep_warm");
    turns[3].cache.helper_pico = Some(-2_000_000_000);
    turns[3].cache.premium_pico = Some(750_000);
    let mut unjudged = test_turn("judged", 5);
    unjudged.cache.unjudged = Some("not_json");
    turns.push(unjudged);
    turns
}

#[test]
fn a_turn_has_its_verdict_its_strikes_and_what_to_do() {
    let turns = judged();
    let rows = json(&turns, "turns --run judged");
    let strikes: Vec<_> = (0..5).map(|n| &rows[n]["verdict"]["strikes"]).collect();
    let null = Value::Null;
    assert_eq!(strikes, [&null, &1.into(), &1.into(), &2.into(), &null]);
    let mut verdict = rows[3]["verdict"].clone();
    let advice = verdict["advice"].take();
    assert!(
        advice.as_str().unwrap().contains("system[0].text"),
        "{advice}"
    );
    let expected = serde_json::json!({
        "status": "partial", "reason": "system", "first_changed": "system[0].text",
        "offset": 142, "what": "clock", "detail": "a time moved on", "whose": "client",
        "lost_tokens": 1_000, "lost_usd": "0.00345", "strikes": 2, "advice": null,
        "excerpt": {"before": "12:00", "after": "12:01"},
    });
    assert_eq!(verdict, expected);
    let cache = serde_json::json!({
        "policy": "fill", "expected_read": 1_030, "read_of": turns[2].id.to_string(),
        "duplicate_of": turns[1].id.to_string(), "duplicate_tokens": null,
        "duplicate_usd": "0.000000000001", "native_agrees": true,
        "helper": "keep_warm", "helper_tokens": null, "helper_usd": "-0.002",
        "premium_usd": "0.00000075",
    });
    assert_eq!(rows[3]["cache"], cache);
    assert_eq!(rows[2]["verdict"]["lost_usd"], Value::Null);
    assert_eq!(
        (&rows[0]["verdict"]["reason"], &rows[0]["verdict"]["advice"]),
        (&null, &null)
    );
    assert_eq!(
        (&rows[4]["verdict"], &rows[4]["unjudged"]),
        (&null, &"not_json".into())
    );
    assert_eq!(rows[3]["unjudged"], null);
    // The whole run counts, whatever is shown of it.
    let since = "turns --run judged --since 2026-03-01T12:00:04Z";
    assert_eq!(json(&turns, since)[0]["verdict"]["strikes"], 2);
}

#[test]
fn a_verdict_is_about_turns_only() {
    let mut own = judged().remove(1);
    own.kind = RequestKind::KeepWarm;
    let rows = json(&[own, test_turn("judged", 9)], "turns --run judged --all");
    assert_eq!(
        (&rows[0]["kind"], &rows[0]["verdict"]),
        (&"keep_warm".into(), &Value::Null)
    );
}

#[test]
fn losses_stand_in_the_tables_and_in_the_sums() {
    let turns = judged();
    let run = &json(&turns, "")[0];
    assert_eq!(
        (&run["judged_turns"], &run["breaks"]),
        (&4.into(), &3.into())
    );
    assert_eq!(
        (&run["lost_tokens"], &run["lost_usd"]),
        (&3_000.into(), &"0.0069".into())
    );
    assert_eq!(run["lost_complete"], false);
    let table = report(&turns, "").unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].contains("SAVED  ") && lines[0].ends_with("LOST"),
        "{table}"
    );
    assert!(lines[1].ends_with("\u{2265}$0.0069"), "{table}");
    let table = report(&turns, "turns --run judged").unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[3].contains("  cold  "), "{table}");
    assert!(
        lines[4].contains("  partial: system     $0.0035  "),
        "{table}"
    );
    assert!(
        lines[5].contains("  miss: messages            ?  "),
        "{table}"
    );
    assert!(
        lines[6].contains("  partial: system x2  $0.0035  "),
        "{table}"
    );
    assert!(lines[7].contains("  (not_json)  "), "{table}");
    assert!(table.contains("prefixgate audit"), "{table}");
}

#[test]
fn what_prefixgate_sent_itself_is_in_the_cost_of_a_run_and_no_turn_of_it() {
    let mut own = test_turn("r", 0);
    own.kind = RequestKind::KeepWarm;
    own.cost_pico = Some(1_000_000_000_000);
    let turns = [test_turn("r", 1), own];
    let run = &json(&turns, "")[0];
    assert_eq!(
        (&run["turns"], &run["requests"], &run["keep_warm_requests"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(run["cost_usd"], "1.00036");
    let table = report(&turns, "turns --run r").unwrap();
    assert!(
        table.starts_with("run r: 1 turn in 1 thread, hit 30.0%, cost $1.0004"),
        "{table}"
    );
    assert!(table.contains("1 request of prefixgate's own"), "{table}");
    let table = report(&turns, "turns --run r --all").unwrap();
    assert!(table.contains("keep_warm  2026-03-01"), "{table}");
}

#[test]
fn savings_by_helper_and_against_runs_left_alone() {
    let mut turns = Vec::new();
    for n in 0..5 {
        for (policy, cost) in [("holdout", 400_000_000), ("fill", 100_000_000)] {
            let mut one = test_turn(&format!("{policy} {n}"), 1);
            one.cache.policy = Some(policy);
            one.cost_pico = Some(cost);
            turns.push(one);
        }
    }
    turns[1].cache.helper = Some("tool_order");
    turns[1].cache.helper_tokens = Some(9_000);
    turns[1].cache.helper_pico = Some(24_300_000_000);
    let mut planned = test_turn("dry", 1);
    planned.cache.policy = Some("dry-run");
    planned.dry_run = true;
    turns.push(planned);
    let found = json(&turns, "savings");
    let side = |runs: u64, turn: &str, thousand: &str| {
        serde_json::json!({
            "runs": runs, "turns": runs, "unpriced_requests": 0, "cost_per_turn_usd": turn,
            "cost_per_1000_prompt_tokens_usd": thousand, "hit_ratio": 0.3,
        })
    };
    let compared = serde_json::json!([{
        "app": "review", "model": "model-1", "holdout": side(5, "0.0004", "0.004"),
        "inserted": side(5, "0.0001", "0.001"), "enough_runs": true,
        "saving_per_1000_prompt_tokens_usd": "0.003", "saving_share": 0.75,
    }]);
    assert_eq!(found["comparison"], compared);
    let helpers = serde_json::json!([{
        "helper": "tool_order", "requests": 1, "own_requests": 0, "own_cost_usd": "0",
        "tokens": 9_000, "saved_usd": "0.0243", "unknown_requests": 0,
    }]);
    assert_eq!(found["helpers"], helpers);
    let dry = serde_json::json!({"turns": 1, "turns_with_markers": 1, "markers": 2});
    assert_eq!(found["dry_run"], dry);
    assert_eq!(found["totals"]["turns"], 11);
    let text = report(&turns, "savings").unwrap();
    for part in [
        "tool_order",
        "$0.0243",
        "75.0%",
        "$0.004",
        "2 breakpoints",
        "prefixgate replay",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // One side has too few.
    turns.remove(0);
    let found = json(&turns, "savings");
    assert_eq!(found["comparison"][0]["saving_share"], Value::Null);
    assert_eq!(found["comparison"][0]["enough_runs"], false);
    assert!(report(&turns, "savings").unwrap().contains("too few runs"));
    assert!(
        report(&mixed(), "savings")
            .unwrap()
            .contains("no run was left alone")
    );
    assert_eq!(
        report(&[], "savings").unwrap(),
        "no requests in this range\n"
    );
}
