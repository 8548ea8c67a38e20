//! What SQLite has is moved to the server.

use prefixgate::store::Sqlite;
use prefixgate::store::clickhouse::{Imported, Moved, import};
use prefixgate::trace::Sink;

use super::*;

fn moved(sent: u64, present: u64) -> Moved {
    Moved {
        sent,
        present,
        ..Moved::default()
    }
}

#[tokio::test]
async fn only_what_is_missing_is_moved_and_twice_adds_nothing() {
    let clickhouse = ClickHouse::start();
    let mut sink = clickhouse.sink("moved");
    let dir = tempfile::tempdir().unwrap();
    let mut sqlite = Sqlite::open(dir.path()).unwrap();
    let mut dice = Dice::new(9);
    let mut all = dice.entries("run", 300);
    // Some calls are final by now, of which the server has seen the beginning.
    let mut live = all[..200].to_vec();
    let mut finished = 0;
    for entry in &mut live {
        if let Entry::Call(call) = entry {
            if matches!(call.status, CallStatus::Ok | CallStatus::Failed) {
                finished += 1;
            }
            call.status = CallStatus::Pending;
        }
    }
    let unfinished = live
        .iter()
        .zip(&all)
        .filter(|(live, all)| live != all)
        .count();
    assert!(finished > 10 && unfinished >= finished);
    sink.insert("live", &live).await.unwrap();
    sqlite.write(&all).unwrap();
    // Another gateway's records of the same time.
    let others = dice.entries("another", 100);
    sink.insert("another", &others).await.unwrap();

    let of = |entries: &[Entry], kind: fn(&Entry) -> bool| how_many(entries, kind) as u64;
    let is_turn = |e: &Entry| matches!(e, Entry::Turn(_));
    let is_call = |e: &Entry| matches!(e, Entry::Call(_));
    let is_event = |e: &Entry| matches!(e, Entry::Event(_));
    let (kept, lacking) = all.split_at(200);
    let unfinished = unfinished as u64;
    let until = now_ms() + 1_000;
    let told = import(&mut sink, &mut sqlite, until, now_ms())
        .await
        .unwrap();
    let expected = Imported {
        turns: moved(of(lacking, is_turn), of(kept, is_turn)),
        calls: moved(
            of(lacking, is_call) + unfinished,
            of(kept, is_call) - unfinished,
        ),
        events: moved(of(lacking, is_event), of(kept, is_event)),
    };
    assert_eq!(told, expected);
    let told = import(&mut sink, &mut sqlite, until, now_ms())
        .await
        .unwrap();
    assert_eq!(told.turns, moved(0, of(&all, is_turn)));
    assert_eq!(told.calls, moved(0, of(&all, is_call)));
    assert_eq!(told.events, moved(0, of(&all, is_event)));
    let filter = prefixgate::store::Filter::all(1_000);
    let sqlite_turns = prefixgate::store::Questions::turns(&sqlite, "run", &filter, true).unwrap();
    assert_eq!(sink.turns("run", 1_000).await.unwrap(), sqlite_turns);
    all.extend(others);
    assert_once(&clickhouse, "moved", &all);

    // What is too old to be kept, or not before the end, stays.
    let mut settings = clickhouse.settings("recent");
    settings.retention_days = 1;
    let mut sink = ClickHouseSink::new(&settings);
    let now = now_ms();
    let (day, hour) = (86_400_000, 3_600_000);
    let inside = |e: &&Entry| {
        let at = e.at_ms().unwrap();
        at >= now - day && at < now - hour
    };
    let recent: Vec<_> = all
        .iter()
        .filter(|e| e_of_run(e))
        .filter(inside)
        .cloned()
        .collect();
    let told = import(&mut sink, &mut sqlite, now - hour, now)
        .await
        .unwrap();
    assert_eq!(told.turns.sent, of(&recent, is_turn));
    assert_eq!(told.turns.sent + told.turns.outside, 300);
    assert_once(&clickhouse, "recent", &recent);
}

fn e_of_run(entry: &Entry) -> bool {
    match entry {
        Entry::Turn(turn) => turn.run_id == "run",
        Entry::Call(call) => call.run_id == "run",
        Entry::Event(event) => event.run_id == "run",
        Entry::Result(_) => false,
    }
}

#[tokio::test]
async fn the_server_tells_which_of_some_ids_it_has() {
    let clickhouse = ClickHouse::start();
    let mut sink = clickhouse.sink("ids");
    let entries = Dice::new(4).entries("run", 50);
    sink.insert("t", &entries[..entries.len() / 2])
        .await
        .unwrap();
    let ids: Vec<_> = turns(&entries).iter().map(|turn| turn.id).collect();
    let written: Vec<_> = turns(&entries[..entries.len() / 2]);
    let all = Range {
        from_ms: 0,
        to_ms: now_ms(),
    };
    // More of them than one statement can name.
    let mut asked = ids.clone();
    asked.extend((0..9_000).map(|_| uuid::Uuid::now_v7()));
    let found = sink.turns_present(all, &asked).await.unwrap();
    assert_eq!(found, written.iter().map(|turn| turn.id).collect());
    let one = Range {
        from_ms: written[0].started_ms,
        to_ms: written[0].started_ms,
    };
    let found = sink.turns_present(one, &asked).await.unwrap();
    assert_eq!(found, [written[0].id].into());
    assert!(sink.events_present(all, &ids).await.unwrap().is_empty());
    let calls = sink.calls_present(all, &ids).await.unwrap();
    let expected: BTreeMap<_, _> = entries[..entries.len() / 2]
        .iter()
        .filter_map(|entry| match entry {
            Entry::Call(call) => {
                let version = match call.status {
                    CallStatus::Pending => 0,
                    CallStatus::Incomplete => 1,
                    _ => 2,
                };
                Some(((call.turn_id, call.call_id.clone()), version))
            }
            _ => None,
        })
        .collect();
    assert_eq!(calls.into_iter().collect::<BTreeMap<_, _>>(), expected);
}
