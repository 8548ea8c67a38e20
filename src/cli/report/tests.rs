use clap::Parser;
use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::cli::{Cli, Command};
use crate::store::{NOON, test_store, test_turn};
use crate::trace::{Entry, Outcome, RequestKind, Sink, TurnRecord};
use crate::usage::Usage;

mod cache;
mod guard;

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
        "tokens": {"uncached": 210, "read": 90, "write_5m": 0, "write_1h": 0, "write_30m": null, "write_12h": null, "output": 30},
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
        "spend --by week",
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
        "loops --by app",
        "caps --all",
        "tools --all",
    ] {
        assert!(args(line).misuse().is_some(), "{line}");
    }
    for line in [
        "",
        "runs",
        "turns --run x --all",
        "spend --by day",
        "savings --app x",
        "loops --run x --app y",
        "caps --run x",
        "tools --run x --limit 3",
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
