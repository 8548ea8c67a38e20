//! Loops, caps and tools.

use serde_json::{Value, json};

use super::{NOON, answer, args, test_store, test_turn};
use crate::guard::loops::Finding;
use crate::store::{Sqlite, test_call, test_event};
use crate::trace::{CallStatus, Entry, EventKind, EventRecord, Outcome, Sink, TurnRecord};

fn ask(store: &Sqlite, line: &str) -> String {
    answer(store, &args(line), NOON + 3_600_000).unwrap()
}

fn ask_json(store: &Sqlite, line: &str) -> Value {
    serde_json::from_str(&ask(store, &format!("{line} --json"))).unwrap()
}

fn events(events: Vec<EventRecord>) -> (tempfile::TempDir, Sqlite) {
    let (dir, mut store) = test_store();
    let batch: Vec<_> = events
        .into_iter()
        .map(|e| Entry::Event(Box::new(e)))
        .collect();
    store.write(&batch).unwrap();
    (dir, store)
}

fn looped(run: &str, s: i64, count: u64, action: &str) -> EventRecord {
    EventRecord {
        action: action.into(),
        value: Some(count),
        limit: Some(3),
        pico: Some(36_400_000_000),
        tools: vec!["Bash".into(), "Read".into()],
        ..test_event(EventKind::Loop, "cycle", run, s)
    }
}

#[test]
fn loops_for_people_and_scripts() {
    let mut unpriced = looped("b", 0, 3, "");
    (unpriced.pico, unpriced.app) = (None, None);
    let (_dir, store) = events(vec![
        looped("a", 1, 3, "warn"),
        looped("a", 60, 6, "block"),
        unpriced,
    ]);
    assert_eq!(
        ask(&store, "loops"),
        "RUN  THREAD  APP     LOOP   TOOLS      COUNT  ACTION     COST  FIRST                LAST\n\
         a    main    review  cycle  Bash Read      6  block   $0.0364  2026-03-01 12:00:01  2026-03-01 12:01:00\n\
         b    main            cycle  Bash Read      3                ?  2026-03-01 12:00:00  2026-03-01 12:00:00\n\
         \n\
         times in UTC\n"
    );
    let found = ask_json(&store, "loops");
    assert_eq!(
        found[0],
        json!({
            "run": "a", "thread": "main", "app": "review", "detector": "cycle",
            "tools": ["Bash", "Read"], "count": 6, "threshold": 3, "steps": 2, "action": "block",
            "cost_usd": "0.0364",
            "first": "2026-03-01T12:00:01.000Z", "last": "2026-03-01T12:01:00.000Z",
        })
    );
    assert_eq!(
        (&found[1]["action"], &found[1]["cost_usd"]),
        (&Value::Null, &Value::Null)
    );
    let cut = ask(&store, "loops --limit 1");
    assert!(
        cut.contains("only the first 1; --limit shows more"),
        "{cut}"
    );
    assert!(!cut.contains("\nb "), "{cut}");
    let rows = |line: &str| ask_json(&store, line).as_array().unwrap().len();
    assert_eq!((rows("loops --limit 1"), rows("loops --run b")), (1, 1));
    assert_eq!(
        (rows("loops --app review"), rows("loops --since 1m")),
        (1, 0)
    );
    assert_eq!(ask(&store, "loops --since 1m"), "no loops in this range\n");
}

#[test]
fn caps_for_people_and_scripts() {
    let told = |kind, cap: &str, s, level, value, limit| EventRecord {
        scope: "run".into(),
        level,
        value: Some(value),
        limit: Some(limit),
        ..test_event(kind, cap, "a", s)
    };
    let usd = 1_000_000_000_000;
    let (_dir, store) = events(vec![
        told(
            EventKind::CapLevel,
            "tokens",
            1,
            Some(50),
            1_000_000,
            2_000_000,
        ),
        told(
            EventKind::CapLevel,
            "wall_time",
            2,
            Some(80),
            245_000,
            300_000,
        ),
        told(EventKind::CapLevel, "usd", 3, Some(80), 4 * usd, 5 * usd),
        told(
            EventKind::CapRefused,
            "usd",
            4,
            None,
            4_960_000_000_000,
            5 * usd,
        ),
    ]);
    assert_eq!(
        ask(&store, "caps"),
        "RUN  APP     SCOPE  CAP           USED    LIMIT  LEVEL  REFUSED  FIRST                LAST\n\
         a    review  run    usd        $4.9600  $5.0000    80%        1  2026-03-01 12:00:03  2026-03-01 12:00:04\n\
         a    review  run    wall_time    4m05s    5m00s    80%           2026-03-01 12:00:02  2026-03-01 12:00:02\n\
         a    review  run    tokens        1.0M     2.0M    50%           2026-03-01 12:00:01  2026-03-01 12:00:01\n\
         \n\
         times in UTC\n"
    );
    let found = ask_json(&store, "caps");
    assert_eq!(
        found[0],
        json!({
            "scope": "run", "run": "a", "app": "review", "cap": "usd", "level_percent": 80,
            "unit": "usd", "value": null, "limit": null, "value_usd": "4.96", "limit_usd": "5",
            "crossings": 1, "refusals": 1, "unenforced": 0,
            "first": "2026-03-01T12:00:03.000Z", "last": "2026-03-01T12:00:04.000Z",
        })
    );
    assert_eq!(
        (
            &found[1]["unit"],
            &found[1]["value"],
            &found[1]["value_usd"]
        ),
        (&"ms".into(), &245_000.into(), &Value::Null)
    );
    assert_eq!(found[2]["unit"], "count");
    let none = ask(&store, "caps --run b");
    assert!(none.starts_with("no cap was reached"), "{none}");
}

#[test]
fn tools_for_people_and_scripts() {
    let (_dir, mut store) = test_store();
    let turn = test_turn("a", 1);
    let call = |id: &str, name: &str, status, latency_ms| {
        let mut one = test_call(&turn, id);
        (one.name, one.status, one.latency_ms) = (name.into(), status, latency_ms);
        Entry::Call(Box::new(one))
    };
    store
        .write(&[
            call("1", "Read", CallStatus::Ok, Some(850)),
            call("2", "Bash\u{1b}[2J", CallStatus::Failed, Some(12_300)),
        ])
        .unwrap();
    assert_eq!(
        ask(&store, "tools"),
        "TOOL      CALLS  OK  FAILED    P50    P95\n\
         Bash\u{fffd}[2J      1   0       1  12.3s  12.3s\n\
         Read          1   1          850ms  850ms\n\
         \n\
         P50 and P95 are the time until the request with the result\n"
    );
    assert_eq!(
        ask_json(&store, "tools")[1],
        json!({
            "tool": "Read", "calls": 1, "ok": 1, "failed": 0, "incomplete": 0, "unanswered": 0,
            "pending": 0, "undeclared": 0, "invalid_input": 0, "retried": 0,
            "latency_p50_ms": 850, "latency_p95_ms": 850,
        })
    );
    assert_eq!(
        ask(&store, "tools --run b"),
        "no tool calls in this range\n"
    );
    assert_eq!(ask_json(&store, "tools --run b"), json!([]));
}

/// A run that went into a loop, was warned, then refused by it; and one refused by a cap.
fn guarded() -> Vec<TurnRecord> {
    let finding = |count| Finding {
        detector: "same_call".into(),
        tools: vec!["Bash".into()],
        count,
        period: 1,
        turns: count,
        action: "warn".into(),
        fresh: true,
    };
    let mut warned = test_turn("g", 2);
    warned.guard.findings = vec![finding(3)];
    warned.guard.action = Some("warn".into());
    warned.guard.loop_pico = Some(1_080_000_000);
    let refused = |n| {
        let mut one = test_turn("g", n);
        one.outcome = Outcome::Refused;
        one.status = Some(400);
        one.error_type = Some("billing_error".into());
        one
    };
    let (mut by_loop, mut by_cap) = (refused(3), refused(4));
    by_loop.guard.findings = vec![finding(6)];
    by_cap.guard.cap = Some("usd".into());
    by_cap.guard.cap_scope = Some("run".into());
    vec![test_turn("g", 1), warned, by_loop, by_cap, refused(5)]
}

#[test]
fn turns_tell_of_loops_and_refusals() {
    let turns = guarded();
    let table = super::report(&turns, "turns --run g").unwrap();
    let line = |n: usize| table.lines().nth(2 + n).unwrap();
    assert!(!line(1).contains("loop"), "{table}");
    assert!(line(2).contains(" tool_use "), "{table}");
    assert!(line(2).ends_with("loop:same_call:3"), "{table}");
    assert!(line(3).contains("400 refused (loop same_call)"), "{table}");
    assert!(line(4).contains("400 refused (cap usd)"), "{table}");
    assert!(line(5).contains("400 billing_error"), "{table}");

    let rows = super::json(&turns, "turns --run g");
    assert!(rows[0].get("guard").is_none());
    assert_eq!(
        rows[1]["guard"],
        json!({
            "findings": [{
                "detector": "same_call", "tools": ["Bash"], "count": 3, "period": 1, "turns": 3,
                "action": "warn", "fresh": true,
            }],
            "action": "warn", "loop_cost_usd": "0.00108", "cap": null, "cap_scope": null,
            "booked_usd": null, "policy": null, "hints": 0,
        })
    );
    let capped = &rows[3]["guard"];
    assert_eq!(
        (&capped["cap"], &capped["cap_scope"]),
        (&"usd".into(), &"run".into())
    );
}

#[test]
fn names_of_loops_and_caps_cannot_steer_the_terminal() {
    let evil = "\u{1b}]0;x\u{7}\u{202e}";
    let mut found = looped(evil, 1, 3, evil);
    found.tools = vec![evil.repeat(50)];
    let mut cap = test_event(EventKind::CapRefused, evil, evil, 2);
    (cap.scope, cap.app) = (evil.into(), Some(evil.into()));
    let (_dir, store) = events(vec![found, cap]);
    for line in ["loops", "caps"] {
        let text = ask(&store, line);
        assert!(text.contains('\u{fffd}'), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
        assert!(text.lines().all(|l| l.chars().count() < 200), "{text}");
    }
}
