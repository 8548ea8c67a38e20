//! What is kept, and what is not.

use super::*;
use crate::trace::Retention;

const DAY: i64 = 86_400_000;

fn retain(store: &mut Sqlite, now_ms: i64, keep: Retention) -> usize {
    let mut pieces = 1;
    while store.retain(now_ms, &keep).unwrap() {
        pieces += 1;
        assert!(pieces < 1_000, "retention never ends");
    }
    pieces
}

fn count(store: &Sqlite, table: &str) -> i64 {
    let sql = format!("SELECT COUNT(*) FROM {table}");
    store
        .connection
        .query_row(&sql, [], |row| row.get(0))
        .unwrap()
}

#[test]
fn records_go_when_they_are_older_than_the_days() {
    let (_dir, mut store) = store();
    for day in 0..10 {
        let mut one = turn("r", 1);
        one.started_ms = NOON - day * DAY;
        let asked = call(&one, "c");
        let mut happened = event(EventKind::Loop, "same_call", "r", 0);
        happened.at_ms -= day * DAY;
        store
            .write(&[
                Entry::Turn(Box::new(one)),
                Entry::Call(Box::new(asked)),
                Entry::Event(Box::new(happened)),
            ])
            .unwrap();
    }
    let keep = Retention {
        days: 3,
        bytes: u64::MAX,
    };
    retain(&mut store, NOON, keep);
    let left = store.turns("r", &ALL, false).unwrap();
    let oldest = left.iter().map(|t| t.started_ms).min();
    // Exactly three days old is not older.
    assert_eq!((left.len(), oldest), (4, Some(NOON - 3 * DAY)));
    assert_eq!(count(&store, "tool_calls"), 4);
    assert_eq!(count(&store, "events"), 4);
}

#[test]
fn many_old_records_go_in_pieces() {
    let (_dir, mut store) = store();
    write(&mut store, (1..=5_000).map(|n| turn("r", n)));
    let keep = Retention {
        days: 1,
        bytes: u64::MAX,
    };
    let pieces = retain(&mut store, NOON + 3 * DAY, keep);
    assert!(pieces >= 3, "{pieces}");
    assert_eq!(count(&store, "turns"), 0);
    // Events alone are no less.
    let events = (0..5_000).map(|n| {
        let one = event(EventKind::CapLevel, "usd", "r", n % 7);
        Entry::Event(Box::new(one))
    });
    store.write(&events.collect::<Vec<_>>()).unwrap();
    let pieces = retain(&mut store, NOON + 3 * DAY, keep);
    assert!(pieces >= 3, "{pieces}");
    assert_eq!(count(&store, "events"), 0);
}

#[test]
fn beyond_its_size_the_store_loses_the_oldest_and_the_file_shrinks() {
    let (dir, mut store) = store();
    for first in (1..=9_000).step_by(1_000) {
        let turns: Vec<_> = (first..first + 1_000).map(|n| turn("r", n)).collect();
        let asked = call(&turns[999], "c");
        write(&mut store, turns);
        let happened = event(EventKind::Loop, "cycle", "r", first.into());
        let batch = [
            Entry::Call(Box::new(asked)),
            Entry::Event(Box::new(happened)),
        ];
        store.write(&batch).unwrap();
    }
    let file = dir.path().join(FILE_NAME);
    let checkpoint = |store: &Sqlite| {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        store.connection.query_row(sql, [], |_| Ok(())).unwrap();
        std::fs::metadata(&file).unwrap().len()
    };
    let full = checkpoint(&store);
    let keep = Retention {
        days: 3_650,
        bytes: full / 2,
    };
    retain(&mut store, NOON, keep);
    let left = store.turns("r", &ALL, false).unwrap();
    assert!((1..9_000).contains(&left.len()), "{}", left.len());
    // The newest are there, without a gap.
    let turns: Vec<u32> = left.iter().map(|t| t.turn).collect();
    let expected: Vec<u32> = (9_001 - u32::try_from(left.len()).unwrap()..=9_000).collect();
    assert_eq!(turns, expected);
    assert!(count(&store, "tool_calls") < 9);
    assert!((1..9).contains(&count(&store, "events")));
    let oldest = row::event::all(&store.connection).unwrap()[0].at_ms;
    assert!(oldest >= left[0].started_ms, "{oldest}");
    let shrunk = checkpoint(&store);
    assert!(shrunk <= full * 5 / 8, "{full} -> {shrunk}");
}

#[test]
fn trails_count_into_the_size() {
    let (dir, mut store) = store();
    for first in (1..=3_000).step_by(500) {
        let turns = (first..first + 500).map(|n| {
            let mut one = turn("r", n);
            // Longer than a page, so that it lies in pages of its own.
            one.cache.trail = vec![7; 20_000];
            one
        });
        write(&mut store, turns);
    }
    let keep = Retention {
        days: 3_650,
        bytes: 40_000_000,
    };
    retain(&mut store, NOON, keep);
    let left = store.turns("r", &ALL, false).unwrap();
    // The newest, as many as fit: a row takes five pages of its own and a part of another.
    assert!((1_400..1_900).contains(&left.len()), "{}", left.len());
    assert_eq!(left.last().unwrap().turn, 3_000);
    assert!(left.iter().all(|t| t.cache.trail.len() == 20_000));
    let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
    store.connection.query_row(sql, [], |_| Ok(())).unwrap();
    let size = std::fs::metadata(dir.path().join(FILE_NAME)).unwrap().len();
    assert!(size <= 45_000_000, "{size}");
}
