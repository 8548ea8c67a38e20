//! What goes in comes out.

use super::*;
use crate::trace::{CallResult, CallStatus};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_field_of_a_turn_survives(turns in proptest::collection::vec(any_turn(), 1..6)) {
        let (_dir, mut store) = store();
        write(&mut store, turns.clone());
        for turn in turns {
            let found = store.turns(&turn.run_id, &ALL, true).unwrap();
            prop_assert!(found.contains(&turn), "{turn:?} is not in {found:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_field_of_an_event_survives(events in proptest::collection::vec(any_event(), 1..6)) {
        let (_dir, mut store) = store();
        let batch: Vec<_> = events.iter().cloned().map(|e| Entry::Event(Box::new(e))).collect();
        store.write(&batch).unwrap();
        // An event that is written again is not another row.
        store.write(&batch).unwrap();
        prop_assert_eq!(row::event::all(&store.connection).unwrap(), events);
    }
}

/// Names of the columns of `table` that are not of type `without`.
fn columns(store: &Sqlite, table: &str, without: &str) -> Vec<String> {
    let sql = "SELECT name FROM pragma_table_info(?1) WHERE type <> ?2";
    let mut statement = store.connection.prepare(sql).unwrap();
    let names = statement
        .query_map([table, without], |row| row.get(0))
        .unwrap();
    names.map(Result::unwrap).collect()
}

#[test]
fn the_table_has_exactly_the_columns_that_are_written() {
    let (_dir, store) = store();
    let columns = columns(&store, "turns", "");
    assert_eq!(columns[0], "seq");
    assert_eq!(columns[1..], *row::COLUMNS);
}

/// CASES E15: nothing of the content can be stored, because there is no place for it but the
/// excerpts that capture fills. Whoever adds a column of text has to say here that it holds none.
#[test]
fn e15_no_column_is_for_content() {
    let (_dir, store) = store();
    let ids = [
        "id",
        "run_id",
        "thread_id",
        "parent_thread",
        "agent",
        "parent_agent",
        "response_id",
        "request_id",
        "turn_id",
        "call_id",
        "read_of",
        "duplicate_of",
        "traceparent",
    ];
    let hashes = ["credential", "root", "chain", "input_hash", "trail"];
    let words = [
        "kind",
        "run_source",
        "upstream",
        "method",
        "path",
        "outcome",
        "stop_reason",
        "error_type",
        "inspection",
        "inspection_reason",
        "price_version",
        "native_diagnosis",
        "warnings",
        "markers_added",
        "status",
        "verdict",
        "verdict_reason",
        "what",
        "whose",
        "first_changed",
        "verdict_detail",
        "unjudged",
        "policy",
        "helper",
        "wrong",
        "scope",
        "action",
    ];
    // Words, numbers and names of tools as JSON.
    let guards = ["guard", "tools"];
    let captured = ["excerpt_before", "excerpt_after"];
    let names = ["app", "client", "model_requested", "model_served", "name"];
    // The provider's own text; the gateway cuts it.
    let errors = ["error_message"];
    let harmless = [
        &ids[..],
        &hashes,
        &words,
        &names,
        &errors,
        &captured,
        &guards,
    ]
    .concat();
    for table in ["turns", "tool_calls", "events"] {
        let found = columns(&store, table, "INTEGER");
        assert!(!found.is_empty());
        for column in found {
            assert!(harmless.contains(&column.as_str()), "{table}.{column}");
        }
    }
}

#[test]
fn a_healthy_turn_has_nothing_in_the_column_of_the_guards() {
    let (_dir, mut store) = store();
    let mut warned = turn("r", 2);
    warned.guard.hints = 1;
    write(&mut store, [turn("r", 1), warned]);
    let sql = "SELECT guard FROM turns ORDER BY seq";
    let mut statement = store.connection.prepare(sql).unwrap();
    let found: Vec<Option<String>> = statement
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(found, [None, Some(r#"{"hints":1}"#.into())]);
}

#[test]
fn numbers_that_no_integer_holds_are_unknown_and_not_something_else() {
    let (_dir, mut store) = store();
    let mut absurd = turn("r", 1);
    absurd.usage.read = Some(u64::MAX);
    absurd.response_bytes = u64::MAX;
    write(&mut store, [absurd]);
    let found = &store.turns("r", &ALL, false).unwrap()[0];
    assert_eq!(found.usage.read, None);
    assert_eq!(found.response_bytes, i64::MAX as u64);
}

#[test]
fn a_record_that_is_written_again_is_not_another_row() {
    let (_dir, mut store) = store();
    let one = turn("r", 1);
    write(&mut store, [one.clone(), one.clone()]);
    write(&mut store, [one]);
    assert_eq!(store.turns("r", &ALL, false).unwrap().len(), 1);
}

type CallRow = (String, String, Option<i64>, Option<i64>);

fn calls(store: &Sqlite) -> Vec<CallRow> {
    let mut statement = store
        .connection
        .prepare("SELECT call_id, status, latency_ms, result_bytes FROM tool_calls ORDER BY seq")
        .unwrap();
    let rows = statement
        .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))
        .unwrap();
    rows.map(Result::unwrap).collect()
}

fn result(call_id: &str, status: CallStatus, latency_ms: u64) -> Entry {
    Entry::Result(Box::new(CallResult {
        run_id: "r".into(),
        thread_id: "main".into(),
        call_id: call_id.into(),
        status,
        latency_ms: Some(latency_ms),
        result_bytes: Some(5),
        retries: 0,
    }))
}

fn row(call_id: &str, status: &str, latency_ms: Option<i64>) -> CallRow {
    let bytes = latency_ms.map(|_| 5);
    (call_id.into(), status.into(), latency_ms, bytes)
}

#[test]
fn the_first_result_of_a_call_counts() {
    let (_dir, mut store) = store();
    let asked = |id: &str| Entry::Call(Box::new(call(&turn("r", 1), id)));
    store.write(&[asked("a"), asked("b"), asked("c")]).unwrap();
    store
        .write(&[
            result("a", CallStatus::Ok, 7),
            result("b", CallStatus::Failed, 8),
        ])
        .unwrap();
    // The client sends its history again.
    store.write(&[result("a", CallStatus::Ok, 90_000)]).unwrap();
    let expected = [
        row("a", "ok", Some(7)),
        row("b", "failed", Some(8)),
        row("c", "pending", None),
    ];
    assert_eq!(calls(&store), expected);
}

#[test]
fn a_call_keeps_what_is_wrong_with_it_and_its_result_tells_the_retries() {
    let (_dir, mut store) = store();
    let of = turn("r", 1);
    let mut asked = call(&of, "a");
    asked.wrong = Some("invalid_input");
    asked.retries = 1;
    let told = |store: &Sqlite| -> (String, Option<String>, u32) {
        let sql = "SELECT status, wrong, retries FROM tool_calls";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        store.connection.query_row(sql, [], row).unwrap()
    };
    let wrong = || Some("invalid_input".to_owned());
    store.write(&[Entry::Call(Box::new(asked))]).unwrap();
    assert_eq!(told(&store), ("pending".into(), wrong(), 1));
    let failed = CallResult {
        run_id: "r".into(),
        thread_id: "main".into(),
        call_id: "a".into(),
        status: CallStatus::Failed,
        latency_ms: None,
        result_bytes: None,
        retries: 4,
    };
    store.write(&[Entry::Result(Box::new(failed))]).unwrap();
    assert_eq!(told(&store), ("failed".into(), wrong(), 4));
    let again = ToolCallRecord {
        status: CallStatus::Unanswered,
        ..call(&of, "a")
    };
    store.write(&[Entry::Call(Box::new(again))]).unwrap();
    assert_eq!(told(&store), ("unanswered".into(), wrong(), 0));
}

#[test]
fn of_calls_with_one_id_the_newest_is_meant() {
    let (_dir, mut store) = store();
    let asked = |n| Entry::Call(Box::new(call(&turn("r", n), "call_1")));
    store
        .write(&[asked(1), result("call_1", CallStatus::Ok, 1)])
        .unwrap();
    store
        .write(&[asked(2), result("call_1", CallStatus::Failed, 2)])
        .unwrap();
    assert_eq!(
        calls(&store),
        [
            row("call_1", "ok", Some(1)),
            row("call_1", "failed", Some(2))
        ]
    );
}

#[test]
fn a_result_that_overtakes_its_call_waits_for_it_but_not_for_ever() {
    let (_dir, mut store) = store();
    store.write(&[result("a", CallStatus::Ok, 3)]).unwrap();
    store.write(&[]).unwrap();
    store
        .write(&[Entry::Call(Box::new(call(&turn("r", 1), "a")))])
        .unwrap();
    assert_eq!(calls(&store), [row("a", "ok", Some(3))]);
    store.write(&[result("never", CallStatus::Ok, 3)]).unwrap();
    for _ in 0..4 {
        store.write(&[]).unwrap();
    }
    assert!(store.early.is_empty());
}

#[test]
fn a_result_of_a_call_that_this_process_has_not_seen_does_not_wait() {
    let (_dir, mut store) = store();
    let unknown = CallResult {
        run_id: "r".into(),
        thread_id: "main".into(),
        call_id: "a".into(),
        status: CallStatus::Ok,
        latency_ms: None,
        result_bytes: None,
        retries: 0,
    };
    let unanswered = CallResult {
        status: CallStatus::Unanswered,
        ..unknown.clone()
    };
    store
        .write(&[Entry::Result(Box::new(unknown.clone()))])
        .unwrap();
    assert!(store.early.is_empty());
    store.write(&[Entry::Result(Box::new(unanswered))]).unwrap();
    assert_eq!(store.early.len(), 1);
    // One that an earlier process has written is found at once.
    store
        .write(&[Entry::Call(Box::new(call(&turn("r", 1), "b")))])
        .unwrap();
    let known = CallResult {
        call_id: "b".into(),
        ..unknown
    };
    store.write(&[Entry::Result(Box::new(known))]).unwrap();
    assert_eq!(calls(&store), [row("b", "ok", None)]);
}

#[test]
fn calls_are_told_as_they_stand_after_the_results_of_the_batch() {
    let (_dir, mut store) = store();
    let mut told = Vec::new();
    let mut write = |store: &mut crate::store::Sqlite, batch: &[Entry]| {
        store
            .write_and_tell(batch, &mut |calls| told.push(calls.to_vec()))
            .unwrap();
    };
    let asked = call(&turn("r", 1), "a");
    // A result before its call, both in one batch, and one of a call that was answered before.
    write(&mut store, &[result("a", CallStatus::Failed, 7)]);
    write(&mut store, &[Entry::Call(Box::new(asked.clone()))]);
    write(&mut store, &[result("a", CallStatus::Ok, 9)]);
    let other = call(&turn("r", 2), "b");
    let both = [
        Entry::Call(Box::new(other.clone())),
        result("b", CallStatus::Ok, 5),
    ];
    write(&mut store, &both);
    let after = |call: ToolCallRecord, status, ms| ToolCallRecord {
        status,
        latency_ms: Some(ms),
        result_bytes: told_bytes(&both[1]),
        ..call
    };
    assert_eq!(
        told,
        [
            vec![],
            vec![after(asked, CallStatus::Failed, 7)],
            vec![],
            vec![after(other, CallStatus::Ok, 5)],
        ]
    );
}

fn told_bytes(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::Result(result) => result.result_bytes,
        _ => None,
    }
}
