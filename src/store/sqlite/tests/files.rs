//! Opening, reopening, sharing.

use super::*;
use crate::trace::{Retention, start};

const KEEP: Retention = Retention {
    days: 3_650,
    bytes: 1 << 40,
};

#[test]
fn a_missing_database_is_named_and_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let error = Sqlite::open_read(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }));
    assert!(error.to_string().contains("--data-dir"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_newer_schema_is_refused_for_reading_and_writing_and_left_alone() {
    let (dir, store) = store();
    let newer = schema::VERSION + 1;
    store
        .connection
        .pragma_update(None, "user_version", newer)
        .unwrap();
    drop(store);
    for opened in [Sqlite::open(dir.path()), Sqlite::open_read(dir.path())] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::Newer { found, .. } if found == newer));
        assert!(error.to_string().contains("newer prefixgate"), "{error}");
    }
}

/// A database as an earlier version made it, with the records of one run.
fn old_version(version: i64, rows: &[TurnRecord]) -> TempDir {
    let (migrations, since) = match version {
        1 => (vec![schema::TURNS_AND_CALLS], "verdict"),
        _ => (vec![schema::TURNS_AND_CALLS, schema::CACHE], "guard"),
    };
    let dir = tempfile::tempdir().unwrap();
    let old = Connection::open(dir.path().join(FILE_NAME)).unwrap();
    old.execute_batch(&migrations.concat()).unwrap();
    old.pragma_update(None, "user_version", version).unwrap();
    let columns = row::COLUMNS.iter().position(|c| *c == since).unwrap();
    let columns = row::COLUMNS[..columns].join(",");
    // Filled by way of a current one.
    let (other, mut current) = store();
    write(&mut current, rows.to_vec());
    old.execute(
        "ATTACH ?1 AS current",
        [other.path().join(FILE_NAME).to_str().unwrap()],
    )
    .unwrap();
    old.execute_batch(&format!(
        "INSERT INTO turns ({columns}) SELECT {columns} FROM current.turns ORDER BY seq"
    ))
    .unwrap();
    dir
}

#[test]
fn a_database_of_version_1_is_brought_up_to_date_and_its_rows_were_not_judged() {
    let rows = [turn("r", 1), turn("r", 2)];
    let dir = old_version(1, &rows);
    let error = Sqlite::open_read(dir.path()).unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Older {
                found: 1,
                known: 5,
                ..
            }
        ),
        "{error}"
    );
    let mut store = Sqlite::open(dir.path()).unwrap();
    assert_eq!(store.turns("r", &ALL, false).unwrap(), rows);
    let mut judged = turn("r", 3);
    judged.cache.verdict = Some(verdict(Status::Miss, Reason::Tools, Some("tools[0]")));
    write(&mut store, [judged.clone()]);
    drop(store);
    // Opening it again does nothing more.
    let store = Sqlite::open(dir.path()).unwrap();
    assert_eq!(store.turns("r", &ALL, false).unwrap()[2], judged);
    let totals = store.runs(&ALL).unwrap()[0].totals;
    assert_eq!((totals.turns, totals.judged, totals.breaks), (3, 1, 1));
    let sqlite = &store.connection;
    let problems: String = sqlite
        .query_row("PRAGMA integrity_check", [], |r| r.get(0))
        .unwrap();
    assert_eq!(problems, "ok");
}

#[test]
fn a_database_of_version_2_gets_a_place_for_what_the_guards_say() {
    let mut judged = turn("r", 1);
    judged.cache.verdict = Some(verdict(Status::Miss, Reason::Tools, Some("tools[0]")));
    let dir = old_version(2, std::slice::from_ref(&judged));
    let sqlite = Connection::open(dir.path().join(FILE_NAME)).unwrap();
    let asked = "INSERT INTO tool_calls (turn_id, run_id, thread_id, call_id, name, input_hash, \
        input_bytes, asked_ms, status) VALUES (x'00', 'r', 'main', 'a', 'Bash', '', 0, 0, 'ok')";
    sqlite.execute(asked, []).unwrap();
    drop(sqlite);
    let mut store = Sqlite::open(dir.path()).unwrap();
    let mut refused = turn("r", 2);
    refused.guard.cap = Some("usd".into());
    let happened = event(EventKind::CapRefused, "usd", "r", 2);
    write(&mut store, [refused.clone()]);
    store.write(&[Entry::Event(Box::new(happened))]).unwrap();
    assert_eq!(store.turns("r", &ALL, false).unwrap(), [judged, refused]);
    assert_eq!(store.caps(&ALL).unwrap()[0].refusals, 1);
    let tools = store.tools(&ALL).unwrap();
    assert_eq!((tools[0].ok, tools[0].retried), (1, 0));
}

#[test]
fn several_processes_may_migrate_at_once() {
    let dir = old_version(1, &[turn("r", 1)]);
    let opened = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| Sqlite::open(dir.path()).map(drop)))
            .collect();
        opening
            .into_iter()
            .map(|o| o.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(opened.iter().all(Result::is_ok), "{opened:?}");
    let store = Sqlite::open_read(dir.path()).unwrap();
    assert_eq!(store.turns("r", &ALL, false).unwrap().len(), 1);
}

#[test]
fn a_file_that_is_no_database_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(FILE_NAME), "x".repeat(5_000)).unwrap();
    let error = Sqlite::open(dir.path()).unwrap_err();
    assert!(
        error.to_string().contains("not an SQLite database"),
        "{error}"
    );
    assert!(Sqlite::open_read(dir.path()).is_err());
}

#[test]
fn a_data_directory_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Sqlite::open(&file.join("data")).unwrap_err();
    assert!(matches!(error, StoreError::Directory { .. }));
}

#[cfg(unix)]
#[test]
fn the_data_directory_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("a/b");
    Sqlite::open(&data).unwrap();
    let mode = std::fs::metadata(&data).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn several_processes_may_open_a_new_directory_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let opening: Vec<_> = (0..4)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || Sqlite::open(&path).map(drop))
        })
        .collect();
    for opened in opening {
        opened.join().unwrap().unwrap();
    }
    Sqlite::open_read(&path).unwrap();
}

#[test]
fn what_was_committed_survives_a_process_that_just_stops() {
    let (dir, mut store) = store();
    write(&mut store, (1..=300).map(|n| turn("r", n)));
    // No end, no checkpoint: as after a kill.
    std::mem::forget(store);
    let again = Sqlite::open(dir.path()).unwrap();
    assert_eq!(again.turns("r", &ALL, false).unwrap().len(), 300);
}

#[test]
fn a_transaction_that_was_cut_leaves_nothing_and_hinders_nobody() {
    let (dir, mut store) = store();
    write(&mut store, [turn("r", 1)]);
    {
        let half = store.connection.transaction().unwrap();
        let mut statement = half.prepare(&row::insert()).unwrap();
        row::bind(&mut statement, &turn("r", 2)).unwrap();
        statement.raw_execute().unwrap();
        // Neither committed nor rolled back by hand.
    }
    let again = Sqlite::open_read(dir.path()).unwrap();
    assert_eq!(again.turns("r", &ALL, false).unwrap().len(), 1);
}

#[test]
fn a_recorder_that_is_dropped_without_close_still_writes() {
    let (dir, store) = store();
    let (recorder, handle) = start(store, vec![], 1_000, KEEP).unwrap();
    for n in 1..=100 {
        recorder.turn(turn("r", n));
    }
    handle.flush();
    drop((recorder, handle));
    let store = Sqlite::open_read(dir.path()).unwrap();
    assert_eq!(store.turns("r", &ALL, false).unwrap().len(), 100);
}

#[test]
fn reports_read_whole_batches_while_a_gateway_writes() {
    let (dir, store) = store();
    let (recorder, handle) = start(store, vec![], 100_000, KEEP).unwrap();
    let writing = {
        let recorder = recorder.clone();
        std::thread::spawn(move || {
            for n in 1..=4_000 {
                recorder.turn(turn(&format!("run {}", n % 7), n));
            }
            handle.close();
        })
    };
    let mut before = 0;
    while !writing.is_finished() {
        let reader = Sqlite::open_read(dir.path()).unwrap();
        let runs = reader.runs(&ALL).unwrap();
        let requests: u64 = runs.iter().map(|r| r.totals.requests).sum();
        let cost: i128 = runs.iter().filter_map(|r| r.totals.cost_pico).sum();
        assert!(requests >= before);
        assert_eq!(cost, i128::from(requests) * 360_000_000);
        before = requests;
    }
    writing.join().unwrap();
    assert_eq!((recorder.written(), recorder.dropped()), (4_000, 0));
    let reader = Sqlite::open_read(dir.path()).unwrap();
    assert_eq!(reader.runs(&ALL).unwrap().len(), 7);
}

#[test]
fn a_reader_cannot_write() {
    let (dir, _store) = store();
    let mut reader = Sqlite::open_read(dir.path()).unwrap();
    let refused = reader.write(&[Entry::Turn(Box::new(turn("r", 1)))]);
    assert!(refused.is_err());
}

#[test]
fn a_store_that_another_process_holds_is_reported_as_locked() {
    let (dir, mut store) = store();
    store.connection.busy_timeout(Duration::ZERO).unwrap();
    let mut other = Sqlite::open(dir.path()).unwrap();
    let held = other
        .connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .unwrap();
    let batch = [Entry::Turn(Box::new(turn("r", 1)))];
    let error = store.write(&batch).unwrap_err();
    assert_eq!(error.reason, crate::trace::DropReason::Locked);
    drop(held);
    store.write(&batch).unwrap();
    assert_eq!(store.turns("r", &ALL, false).unwrap().len(), 1);
}

#[test]
fn a_full_disk_is_reported_as_such_and_the_store_goes_on_afterwards() {
    let (_dir, mut store) = store();
    let pages: i64 = store
        .connection
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .unwrap();
    // SQLite's own limit gives the very error of a full file system.
    store
        .connection
        .pragma_update(None, "max_page_count", pages + 2)
        .unwrap();
    let batch: Vec<Entry> = (1..=500)
        .map(|n| Entry::Turn(Box::new(turn("r", n))))
        .collect();
    let error = store.write(&batch).unwrap_err();
    assert_eq!(error.reason, crate::trace::DropReason::DiskFull);
    assert_eq!(store.turns("r", &ALL, false).unwrap().len(), 0);
    store
        .connection
        .pragma_update(None, "max_page_count", 1_000_000)
        .unwrap();
    store.write(&batch).unwrap();
    assert_eq!(store.turns("r", &ALL, false).unwrap().len(), 500);
}
