//! What the guards have seen, and how tools did.

use super::*;
use crate::store::{CapSeen, LoopSeen, ToolSeen};
use crate::trace::CallStatus;

fn tell(store: &mut Sqlite, events: impl IntoIterator<Item = EventRecord>) {
    let events = events.into_iter().map(|e| Entry::Event(Box::new(e)));
    store.write(&events.collect::<Vec<_>>()).unwrap();
}

/// A step of a loop of `Bash`.
fn step(run: &str, s: i64, count: u64, action: &str) -> EventRecord {
    EventRecord {
        action: action.into(),
        value: Some(count),
        limit: Some(3),
        pico: Some(count * 1_000),
        tools: vec!["Bash".into()],
        ..event(EventKind::Loop, "same_call", run, s)
    }
}

#[test]
fn d01_a_loop_is_one_row_however_many_steps_it_took() {
    let (_dir, mut store) = store();
    let mut unpriced = step("r", 30, 9, "block");
    unpriced.pico = None;
    // Written late, and still not the last.
    let steps = [
        step("r", 10, 3, "warn"),
        unpriced,
        step("r", 20, 6, "hint"),
        event(EventKind::CapLevel, "same_call", "r", 40),
    ];
    tell(&mut store, steps);
    let expected = LoopSeen {
        run_id: "r".into(),
        thread_id: "main".into(),
        app: Some("review".into()),
        detector: "same_call".into(),
        tools: vec!["Bash".into()],
        count: Some(9),
        threshold: Some(3),
        steps: 3,
        first_ms: NOON + 10_000,
        last_ms: NOON + 30_000,
        action: "block".into(),
        pico: None,
    };
    assert_eq!(store.loops(&ALL).unwrap(), [expected]);
}

#[test]
fn loops_differ_by_run_thread_detector_and_tools_and_the_last_comes_first() {
    let (_dir, mut store) = store();
    let other = |s, change: fn(&mut EventRecord)| {
        let mut one = step("r", s, 3, "warn");
        change(&mut one);
        one
    };
    let events = [
        other(1, |_| ()),
        other(2, |one| one.thread_id = "sub".into()),
        other(3, |one| one.name = "cycle".into()),
        other(4, |one| one.tools.push("Read".into())),
        other(5, |one| one.run_id = "b".into()),
        other(6, |one| {
            one.run_id = "c".into();
            one.app = None;
        }),
    ];
    tell(&mut store, events);
    let seconds = |filter: &Filter| -> Vec<i64> {
        let found = store.loops(filter).unwrap();
        found.iter().map(|l| (l.last_ms - NOON) / 1_000).collect()
    };
    assert_eq!(seconds(&ALL), [6, 5, 4, 3, 2, 1]);
    assert_eq!(seconds(&Filter { limit: 2, ..ALL }), [6, 5]);
    let of_run = Filter {
        run: Some("b".into()),
        ..ALL
    };
    assert_eq!(seconds(&of_run), [5]);
    let of_app = Filter {
        app: Some("review".into()),
        ..ALL
    };
    assert_eq!(seconds(&of_app), [5, 4, 3, 2, 1]);
    let range = Filter {
        since_ms: Some(NOON + 2_000),
        until_ms: Some(NOON + 4_000),
        ..ALL
    };
    assert_eq!(seconds(&range), [3, 2]);
}

#[test]
fn d13_a_cap_has_its_highest_level_and_its_refusals() {
    let (_dir, mut store) = store();
    let told = |kind, s, level, value: u64, limit: u64| EventRecord {
        scope: "run".into(),
        level,
        value: Some(value),
        limit: Some(limit),
        ..event(kind, "usd", "r", s)
    };
    let mut nothing_known = event(EventKind::CapUnenforced, "usd", "r", 60);
    nothing_known.scope = "run".into();
    let mut of_key = told(EventKind::CapRefused, 5, None, 8, 8);
    of_key.scope = "key".into();
    let events = [
        told(EventKind::CapLevel, 10, Some(50), 5, 10),
        told(EventKind::CapLevel, 20, Some(80), 8, 10),
        told(EventKind::CapRefused, 30, None, 9, 10),
        // The limit was lowered meanwhile.
        told(EventKind::CapRefused, 40, None, 9, 7),
        nothing_known,
        of_key,
        step("r", 70, 3, "warn"),
    ];
    tell(&mut store, events);
    let expected = CapSeen {
        scope: "run".into(),
        run_id: "r".into(),
        app: Some("review".into()),
        cap: "usd".into(),
        level: Some(80),
        value: Some(9),
        limit: Some(7),
        crossings: 2,
        refusals: 2,
        unenforced: 1,
        first_ms: NOON + 10_000,
        last_ms: NOON + 60_000,
    };
    let found = store.caps(&ALL).unwrap();
    assert_eq!(found[0], expected);
    assert_eq!((found.len(), found[1].scope.as_str()), (2, "key"));
    assert_eq!((found[1].refusals, found[1].level), (1, None));
    assert_eq!(store.caps(&Filter { limit: 1, ..ALL }).unwrap().len(), 1);
    let before = Filter {
        until_ms: Some(NOON + 30_000),
        ..ALL
    };
    let found = store.caps(&before).unwrap();
    assert_eq!((found[0].level, found[0].refusals), (Some(80), 0));
    assert_eq!((found[0].value, found[0].limit), (Some(8), Some(10)));
}

#[test]
fn tools_are_summed_up_and_the_one_that_fails_most_comes_first() {
    let (_dir, mut store) = store();
    let of = turn("r", 1);
    let mut other = turn("b", 2);
    other.app = None;
    let mut batch = vec![
        Entry::Turn(Box::new(of.clone())),
        Entry::Turn(Box::new(other.clone())),
    ];
    let mut asked = |of: &TurnRecord, name: &str, status, latency_ms| {
        let id = format!("call {}", batch.len());
        let mut one = call(of, &id);
        (one.name, one.status, one.latency_ms) = (name.into(), status, latency_ms);
        one.retries = u32::from(status == CallStatus::Failed);
        one.wrong = match status {
            CallStatus::Incomplete => Some("undeclared"),
            CallStatus::Unanswered => Some("invalid_input"),
            _ => None,
        };
        batch.push(Entry::Call(Box::new(one)));
    };
    for latency in 1..=20 {
        asked(&of, "Read", CallStatus::Ok, Some(latency));
    }
    asked(&of, "Bash", CallStatus::Failed, Some(7));
    asked(&of, "Bash", CallStatus::Incomplete, None);
    asked(&of, "Bash", CallStatus::Pending, None);
    asked(&other, "Bash", CallStatus::Unanswered, None);
    asked(&other, "Edit", CallStatus::Pending, None);
    store.write(&batch).unwrap();
    let bash = ToolSeen {
        name: "Bash".into(),
        calls: 4,
        failed: 1,
        incomplete: 1,
        unanswered: 1,
        pending: 1,
        undeclared: 1,
        invalid_input: 1,
        retried: 1,
        p50_ms: Some(7),
        p95_ms: Some(7),
        ..ToolSeen::default()
    };
    let read = ToolSeen {
        name: "Read".into(),
        calls: 20,
        ok: 20,
        p50_ms: Some(10),
        p95_ms: Some(19),
        ..ToolSeen::default()
    };
    let edit = ToolSeen {
        name: "Edit".into(),
        calls: 1,
        pending: 1,
        ..ToolSeen::default()
    };
    assert_eq!(store.tools(&ALL).unwrap(), [bash.clone(), read, edit]);
    assert_eq!(store.tools(&Filter { limit: 1, ..ALL }).unwrap(), [bash]);
    let calls = |filter: &Filter| -> Vec<(String, u64)> {
        let found = store.tools(filter).unwrap();
        found.into_iter().map(|t| (t.name, t.calls)).collect()
    };
    let of_app = Filter {
        app: Some("review".into()),
        ..ALL
    };
    assert_eq!(calls(&of_app), [("Bash".into(), 3), ("Read".into(), 20)]);
    let of_run = Filter {
        run: Some("b".into()),
        ..ALL
    };
    assert_eq!(calls(&of_run), [("Bash".into(), 1), ("Edit".into(), 1)]);
    let later = Filter {
        since_ms: Some(NOON + 2_000),
        ..ALL
    };
    assert_eq!(calls(&later), calls(&of_run));
}

#[test]
fn questions_of_an_empty_store_have_no_rows() {
    let (_dir, store) = store();
    assert_eq!(store.loops(&ALL).unwrap(), []);
    assert_eq!(store.caps(&ALL).unwrap(), []);
    assert_eq!(store.tools(&ALL).unwrap(), []);
}
