use clap::Parser;
use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::cli::{Cli, Command};
use crate::prompt_cache::verdict::{Excerpt, Reason, Status, Verdict};
use crate::store::{NOON, test_store, test_turn, test_verdict};
use crate::trace::{Entry, Outcome, RequestKind, Sink, TurnRecord};
use crate::usage::Usage;

fn args(line: &str) -> Args {
    let words = ["prefixgate", "report"]
        .into_iter()
        .chain(line.split_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        Command::Report(args) => args,
        other => panic!("{other:?}"),
    }
}

/// The report over these records, an hour after noon.
fn report(turns: &[TurnRecord], line: &str) -> anyhow::Result<String> {
    let (_dir, mut store) = test_store();
    let batch: Vec<Entry> = turns
        .iter()
        .map(|t| Entry::Turn(Box::new(t.clone())))
        .collect();
    store.write(&batch).unwrap();
    answer(&store, &args(line), NOON + 3_600_000)
}

fn json(turns: &[TurnRecord], line: &str) -> Value {
    serde_json::from_str(&report(turns, &format!("{line} --json")).unwrap()).unwrap()
}

/// A run with a retry, a refusal, an unpriced model and things that are no turns.
fn mixed() -> Vec<TurnRecord> {
    let mut failed = test_turn("mixed", 2);
    failed.outcome = Outcome::UpstreamError;
    failed.status = Some(529);
    failed.error_type = Some("overloaded_error".into());
    failed.usage = Usage::default();
    failed.usage_complete = false;
    (failed.cost_pico, failed.cost_no_cache_pico) = (None, None);
    let mut retry = test_turn("mixed", 2);
    retry.attempt = 2;
    retry.started_ms += 10;
    retry.warnings = vec!["breakpoint_rejected".into()];
    let mut unpriced = test_turn("mixed", 3);
    unpriced.model_served = Some("model-x".into());
    (unpriced.cost_pico, unpriced.cost_no_cache_pico) = (None, None);
    let mut counted = test_turn("mixed", 0);
    counted.kind = RequestKind::CountTokens;
    vec![test_turn("mixed", 1), failed, retry, unpriced, counted]
}

#[test]
fn runs_as_json() {
    let found = json(&mixed(), "");
    let expected = serde_json::json!([{
        "id": "mixed", "id_source": "header", "app": "review", "client": "agent/1.0",
        "models": ["model-1", "model-x"],
        "started": "2026-03-01T12:00:01.000Z", "ended": "2026-03-01T12:00:03.900Z", "threads": 1,
        "turns": 3, "requests": 4, "errors": 1,
        "tokens": {"uncached": 210, "read": 90, "write_5m": 0, "write_1h": 0, "output": 30},
        "hit_ratio": 0.3,
        "cost_usd": "0.00072", "cost_complete": false, "cost_is_lower_bound": true,
        "unpriced_turns": 1, "incomplete_turns": 0, "estimated_turns": 0,
        "cost_no_cache_usd": "0.0008", "saving_usd": "0.00008",
        "keep_warm_requests": 0, "judged_turns": 0, "breaks": 0,
        "lost_tokens": null, "lost_usd": null, "lost_complete": true,
    }]);
    assert_eq!(found, expected);
    assert_eq!(json(&[], ""), serde_json::json!([]));
}

#[test]
fn turns_as_json() {
    let turns = mixed();
    let found = json(&turns, "turns --run mixed");
    let rows = found.as_array().unwrap();
    assert_eq!(rows.len(), 4);
    let row = &rows[2];
    assert_eq!(row["id"], turns[2].id.to_string());
    assert_eq!((&row["turn"], &row["attempt"]), (&2.into(), &2.into()));
    assert_eq!(
        (&row["model_requested"], &row["model_served"]),
        (&"alias".into(), &"model-1".into())
    );
    assert_eq!(
        (&row["status"], &row["outcome"]),
        (&200.into(), &"ok".into())
    );
    assert_eq!(
        (&row["stop_reason"], &row["usage_complete"]),
        (&"tool_use".into(), &true.into())
    );
    assert_eq!(
        (&row["cost_usd"], &row["hit_ratio"]),
        (&"0.00036".into(), &0.3.into())
    );
    assert_eq!(row["warnings"], serde_json::json!(["breakpoint_rejected"]));
    let markers = serde_json::json!({"client": 1, "added": 2, "dry_run": false, "placed": [
        {"path": "system[1]", "ttl": "1h", "offset": 1_000},
        {"path": "messages[19].content[0]", "ttl": "5m", "offset": 9_900},
    ]});
    assert_eq!(row["markers"], markers);
    let failed = &rows[1];
    assert_eq!(
        (&failed["cost_usd"], &failed["tokens"]["read"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(
        json(&turns, "turns --run mixed --all")
            .as_array()
            .unwrap()
            .len(),
        5
    );
    let error = report(&turns, "turns --run other").unwrap_err();
    assert!(error.to_string().contains("`other`"), "{error}");
}

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

#[test]
fn c13_the_cost_of_a_hundred_and_one_turns_is_printed_exactly() {
    let turns: Vec<_> = (1..=101).map(|n| test_turn("r", n)).collect();
    assert_eq!(json(&turns, "")[0]["cost_usd"], "0.03636");
    assert_eq!(json(&turns, "")[0]["cost_complete"], true);
    let rows = json(&turns, "turns --run r");
    assert!(
        rows.as_array()
            .unwrap()
            .iter()
            .all(|row| row["cost_usd"] == "0.00036")
    );
}

#[test]
fn e13_spend_by_day_states_its_zone() {
    let at = |ms: i64, usd: u64| TurnRecord {
        id: Uuid::now_v7(),
        started_ms: NOON + ms,
        cost_pico: Some(usd * 1_000_000_000_000),
        ..test_turn("r", 1)
    };
    // 2026-03-01T23:30:00Z and 2026-03-02T00:30:00Z.
    let turns = [
        at(11 * 3_600_000 + 1_800_000, 1),
        at(12 * 3_600_000 + 1_800_000, 2),
    ];
    let days = |line: &str| -> Vec<String> {
        let rows = json(&turns, &format!("spend --by day {line}"));
        let rows = rows.as_array().unwrap().iter();
        rows.map(|r| format!("{} {} {}", r["day"], r["cost_usd"], r["zone"]).replace('"', ""))
            .collect()
    };
    assert_eq!(days(""), ["2026-03-01 1 UTC", "2026-03-02 2 UTC"]);
    assert_eq!(days("--tz Asia/Kolkata"), ["2026-03-02 3 Asia/Kolkata"]);
    assert_eq!(
        days("--tz America/Los_Angeles"),
        ["2026-03-01 3 America/Los_Angeles"]
    );
    // A day as a range is that of the zone, too.
    assert_eq!(days("--since 2026-03-02"), ["2026-03-02 2 UTC"]);
    assert_eq!(days("--until 2026-03-02"), ["2026-03-01 1 UTC"]);
    assert_eq!(days("--tz Asia/Kolkata --until 2026-03-02"), [""; 0]);
    let table = report(&turns, "spend --by day --tz Asia/Kolkata").unwrap();
    assert!(table.contains("times and days in Asia/Kolkata"), "{table}");
}

#[test]
fn spend_as_json_names_its_key_and_sums_up_to_the_run() {
    let turns = mixed();
    let rows = json(&turns, "spend");
    let models: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|r| &r["model"])
        .collect();
    assert_eq!(models, ["model-1", "model-x"]);
    assert_eq!(
        (&rows[0]["cost_usd"], &rows[1]["cost_usd"]),
        (&"0.00072".into(), &Value::Null)
    );
    assert!(rows[0].get("app").is_none());
    let mut nameless = test_turn("r", 1);
    nameless.app = None;
    let rows = json(&[nameless], "spend --by app");
    assert_eq!(rows[0].get("app"), Some(&Value::Null));
}

#[test]
fn filters_reach_the_store() {
    let mut other = test_turn("other", 1);
    other.app = Some("b".into());
    other.started_ms -= 86_400_000;
    let turns = [test_turn("r", 1), other];
    let ids = |line: &str| -> Vec<String> {
        let rows = json(&turns, line);
        rows.as_array()
            .unwrap()
            .iter()
            .map(|r| r["id"].as_str().unwrap().into())
            .collect()
    };
    assert_eq!(ids("runs"), ["r", "other"]);
    assert_eq!(ids("--app b"), ["other"]);
    assert_eq!(ids("--since 24h"), ["r"]);
    assert_eq!(ids("runs --until 24h"), ["other"]);
    assert_eq!(ids("--limit 1"), ["r"]);
}

#[test]
fn tables_for_people() {
    let table = report(&mixed(), "").unwrap();
    assert_eq!(
        table,
        "RUN    APP     MODEL       STARTED              TOOK  TURNS  PROMPT  READ  WRITTEN  OUT    HIT      COST          SAVED  ERRORS\n\
         mixed  review  model-1 +1  2026-03-01 12:00:01  2.9s      3     300    90        0   30  30.0%  \u{2265}$0.0007  $0.0001 (10%)       1\n\
         \n\
         times and days in UTC; 1 request without a known price or usage; \u{2265} means at least\n"
    );
    let table = report(&mixed(), "turns --run mixed --tz Asia/Kolkata").unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("run mixed: 3 turns in 1 thread, hit 30.0%, cost \u{2265}$0.0007"),
        "{table}"
    );
    assert!(lines[4].contains("529 overloaded_error"), "{table}");
    assert!(
        !lines[4].contains('?'),
        "a refusal has no unknown tokens or cost: {table}"
    );
    assert!(
        lines[5].contains("2 retry 1  2026-03-01 17:30:02"),
        "{table}"
    );
    assert!(lines[5].ends_with("1+2  breakpoint_rejected"), "{table}");
    let two = [test_turn("a", 1), test_turn("b", 1)];
    let table = report(&two, "--limit 1").unwrap();
    assert!(table.contains("only the latest 1"), "{table}");
    assert!(report(&two, "").unwrap().contains("2 runs"));
    let table = report(&mixed(), "spend --limit 1").unwrap();
    assert!(
        table.contains("total") && table.contains("only 1 of 2 rows"),
        "{table}"
    );
    assert!(!table.contains("model-x"), "{table}");
    assert_eq!(report(&[], "").unwrap(), "no runs recorded\n");
}

#[test]
fn a_name_from_the_wire_cannot_steer_the_terminal() {
    let mut evil = test_turn("r\u{1b}]0;x\u{7}", 1);
    evil.app = Some("\u{1b}[31m".into());
    evil.warnings = vec!["\u{1b}[2J".into()];
    evil.model_served = Some("\u{202e}".into());
    for line in ["", "spend --by app"] {
        assert!(
            !report(&[evil.clone()], line)
                .unwrap()
                .contains(['\u{1b}', '\u{7}', '\u{202e}'])
        );
    }
    let (_dir, mut store) = test_store();
    store.write(&[Entry::Turn(Box::new(evil.clone()))]).unwrap();
    let mut args = args("turns --run x");
    args.run = Some(evil.run_id);
    assert!(
        !answer(&store, &args, NOON)
            .unwrap()
            .contains(['\u{1b}', '\u{7}', '\u{202e}'])
    );
}

#[test]
fn wrong_usage_is_told_before_anything_is_opened() {
    for line in [
        "turns",
        "weeks",
        "--since yesterday",
        "--tz Mars/Olympus",
        "--limit 0",
        "spend --by hour",
    ] {
        let words = ["prefixgate", "report"]
            .into_iter()
            .chain(line.split_whitespace());
        let error = Cli::try_parse_from(words).unwrap_err();
        assert_eq!(error.exit_code(), i32::from(EXIT_USAGE), "{line}: {error}");
    }
    for line in [
        "runs --run x",
        "--by day",
        "turns --run x --by day",
        "savings --run x",
        "savings --by app",
        "savings --all",
        "spend --all",
    ] {
        assert!(args(line).misuse().is_some(), "{line}");
    }
    for line in [
        "",
        "runs",
        "turns --run x --all",
        "spend --by day",
        "savings --app x",
    ] {
        assert_eq!(args(line).misuse(), None, "{line}");
    }
}

#[test]
fn without_a_database_the_advice_is_clear() {
    let dir = tempfile::tempdir().unwrap();
    let error = print_runs(dir.path(), true).unwrap_err();
    assert!(error.to_string().contains("prefixgate serve"), "{error}");
}
