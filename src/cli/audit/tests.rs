use clap::Parser;
use serde_json::{Value, json};

use super::*;
use crate::cli::{Cli, Command};
use crate::prompt_cache::verdict::{Reason, Status, Verdict, What};
use crate::store::{NOON, test_store, test_turn, test_verdict};
use crate::trace::{Entry, Sink, TurnRecord};

fn args(line: &str) -> Args {
    let words = ["prefixgate", "audit"]
        .into_iter()
        .chain(line.split_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        Command::Audit(args) => args,
        other => panic!("{other:?}"),
    }
}

/// The audit of these records, an hour after noon.
fn text(turns: &[TurnRecord], line: &str) -> String {
    let (_dir, mut store) = test_store();
    let batch: Vec<Entry> = turns
        .iter()
        .map(|t| Entry::Turn(Box::new(t.clone())))
        .collect();
    store.write(&batch).unwrap();
    answer(&store, &args(line), NOON + 3_600_000).unwrap()
}

fn object(turns: &[TurnRecord], line: &str) -> Value {
    serde_json::from_str(&text(turns, &format!("{line} --json"))).unwrap()
}

/// Something for each section.
fn turns() -> Vec<TurnRecord> {
    let clock = |run, n| {
        let mut one = test_turn(run, n);
        let path = Some("messages[2].content[0]");
        one.cache.verdict = Some(test_verdict(Status::Partial, Reason::Messages, path));
        one
    };
    let mut pruned = clock("b", 3);
    if let Some(verdict) = &mut pruned.cache.verdict {
        verdict.first_changed = Some("messages[40].content[1]".into());
    }
    let mut expired = test_turn("b", 4);
    expired.cache.verdict = Some(Verdict {
        lost_tokens: None,
        lost_pico: None,
        ..test_verdict(Status::Miss, Reason::Expired, None)
    });
    expired.native_diagnosis = Some("system_changed".into());
    expired.cache.native_agrees = Some(false);
    let mut wasted = test_turn("c", 1);
    wasted.usage.write_5m = Some(20_000);
    wasted.cache.policy = Some("fill");
    wasted.cache.premium_pico = Some(15_000_000_000);
    wasted.cache.unjudged = Some("not_json");
    let mut twice = test_turn("d", 1);
    twice.cache.duplicate_of = Some(wasted.id);
    vec![clock("a", 1), clock("b", 2), pruned, expired, wasted, twice]
}

#[test]
fn every_section_as_json() {
    let turns = turns();
    let found = object(&turns, "");
    assert_eq!(
        found["range"],
        json!({"since": null, "until": null, "app": null, "run": null, "zone": "UTC",
            "now": "2026-03-01T13:00:00.000Z"})
    );
    assert_eq!(
        found["verdicts"],
        json!({"judged": {"partial": 3, "miss": 1}, "unjudged": {"not_json": 1, "not_recorded": 1}})
    );
    assert_eq!(
        (&found["by"], &found["culprits_in_all"]),
        (&"culprit".into(), &2.into())
    );
    let mut first = found["culprits"][0].clone();
    let advice = first["advice"].take();
    assert!(
        advice.as_str().unwrap().contains("messages[*].content[*]"),
        "{advice}"
    );
    let expected = json!({
        "group": null, "reason": "messages", "what": "clock", "path": "messages[*].content[*]",
        "whose": "client", "turns": 3, "runs": 2, "lost_tokens": 3_000, "lost_tokens_unknown": 0,
        "lost_usd": "0.01035", "lost_usd_unknown": 0, "last_seen": "2026-03-01T12:00:03.000Z",
        "example": {
            "id": turns[2].id.to_string(), "run": "b", "thread": "main", "turn": 3,
            "started": "2026-03-01T12:00:03.000Z", "app": "review", "client": "agent/1.0",
            "status": "partial", "first_changed": "messages[40].content[1]", "offset": 142,
            "detail": "a time moved on",
        },
        "advice": null,
    });
    assert_eq!(first, expected);
    let expired = json!({"reason": "expired", "whose": "client", "turns": 1, "lost_tokens": null,
        "lost_tokens_unknown": 1, "lost_usd": null, "lost_usd_unknown": 1});
    assert_eq!(found["losses"][1], expired);
    let unread = &found["written_never_read"];
    assert_eq!(
        (&unread["turns"], &unread["wasted_usd"]),
        (&1.into(), &"0.015".into())
    );
    assert_eq!(unread["rows"][0]["lifetime_seconds"], 300);
    assert_eq!(unread["rows"][0]["wasted_usd"], "0.015");
    let twice = &found["duplicates"];
    assert_eq!(twice["rows"][0]["duplicate_of"], turns[4].id.to_string());
    assert_eq!(
        (&twice["turns"], &twice["lost_usd"]),
        (&1.into(), &Value::Null)
    );
    let agreement = &found["agreement"];
    assert_eq!(
        (&agreement["disagree"], &agreement["agree"]),
        (&1.into(), &0.into())
    );
    assert_eq!(agreement["rows"][0]["native_diagnosis"], "system_changed");
    assert_eq!(agreement["rows"][0]["reason"], "expired");
    let totals = &found["totals"];
    assert_eq!(
        (&totals["breaks"], &totals["lost_usd"]),
        (&4.into(), &"0.01035".into())
    );
    assert_eq!(totals["lost_complete"], false);
}

#[test]
fn filters_and_groups_reach_the_store() {
    let mut turns = turns();
    turns[0].client = Some("agent/2.0".into());
    let culprits = |line: &str| -> Vec<String> {
        let found = object(&turns, line);
        let rows = found["culprits"].as_array().unwrap().clone();
        rows.iter()
            .map(|c| format!("{} {} {}", c["group"], c["reason"], c["turns"]).replace('"', ""))
            .collect()
    };
    assert_eq!(culprits("--run a"), ["null messages 1"]);
    assert_eq!(culprits("--app other"), [""; 0]);
    assert_eq!(culprits("--since 2026-03-01T12:00:04Z"), ["null expired 1"]);
    assert_eq!(
        culprits("--by client"),
        [
            "agent/1.0 messages 2",
            "agent/2.0 messages 1",
            "agent/1.0 expired 1"
        ]
    );
    assert_eq!(
        culprits("--by day --tz Pacific/Kiritimati --limit 1"),
        ["2026-03-02 messages 3"]
    );
}

#[test]
fn every_section_for_people() {
    let found = text(&turns(), "");
    for part in [
        "4 of 6 requests judged",
        "verdicts: 1 miss, 3 partial",
        "not judged: 1 not recorded, 1 not_json",
        "what broke the cache: 4 turns, lost \u{2265}$0.0103",
        "1.  $0.0104    3.0k      3     2  messages  clock  messages[*].content[*]",
        "1. a time moved on: ",
        "losses by reason",
        "written, never read: 1 turn, 20.0k tokens, wasted $0.0150",
        "written twice by parallel requests: 1 turn, ? tokens, ? more than reading them",
        "0 agree, 1 disagree, 0 not comparable",
        "miss: expired  system_changed",
        "times and days in UTC",
    ] {
        assert!(found.contains(part), "`{part}` is not in\n{found}");
    }
    let one = text(&turns(), "--limit 1 --by run");
    assert!(one.contains("what broke the cache by run"), "{one}");
    assert!(one.contains("only 1 of 3; --limit shows more"), "{one}");
    assert_eq!(text(&[], ""), "no turns in this range\n");
}

#[test]
fn a_range_without_verdicts_does_not_claim_that_nothing_broke() {
    let found = text(&[test_turn("r", 1)], "");
    assert!(!found.contains("nothing broke"), "{found}");
    assert!(found.contains("not judged: 1 not recorded"), "{found}");
    let mut hit = test_turn("r", 1);
    hit.cache.verdict = Some(Verdict {
        reason: None,
        lost_tokens: Some(0),
        ..test_verdict(Status::Hit, Reason::Tools, None)
    });
    assert!(text(&[hit], "").contains("nothing broke the cache"));
}

#[test]
fn what_comes_from_the_wire_cannot_steer_the_terminal() {
    let mut evil = test_turn("r\u{1b}]0;x\u{7}", 1);
    evil.cache.verdict = Some(Verdict {
        what: Some(What::ToolChanged),
        detail: "tool \u{1b}[2J changed".into(),
        ..test_verdict(Status::Miss, Reason::Tools, Some("tools[0].\u{202e}"))
    });
    evil.native_diagnosis = Some("\u{1b}[31m".into());
    evil.cache.native_agrees = Some(false);
    evil.cache.duplicate_of = Some(evil.id);
    for line in ["", "--by run"] {
        let found = text(&[evil.clone()], line);
        assert!(!found.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{found}");
    }
}

#[test]
fn flags_are_checked_and_files_are_taken() {
    assert_eq!(args("a.jsonl b.jsonl").files.len(), 2);
    assert_eq!(args("--run x --json").run.as_deref(), Some("x"));
    for line in [
        "--by hour",
        "--limit 0",
        "--tz Mars/Olympus",
        "--since soon",
    ] {
        let words = ["prefixgate", "audit"]
            .into_iter()
            .chain(line.split_whitespace());
        let error = Cli::try_parse_from(words).unwrap_err();
        assert_eq!(
            error.exit_code(),
            i32::from(crate::cli::EXIT_USAGE),
            "{line}: {error}"
        );
    }
}
