//! A server that is busy, away, frozen, or refuses.

use std::time::Duration;

use super::*;

const SEED: u64 = 3;

#[tokio::test]
async fn e05_back_pressure_is_waited_for_and_then_taken() {
    let clickhouse = ClickHouse::start();
    let proxy = Proxy::before(clickhouse.address()).await;
    let mut sink = sink_by_way_of(&proxy, &clickhouse, "busy");
    let mut dice = Dice::new(SEED);
    let first = dice.entries("run", 10);
    sink.insert("first", &first).await.unwrap();
    clickhouse.query("SYSTEM STOP MERGES busy.turns_raw");
    // The engine's own refusal.
    clickhouse.query("ALTER TABLE busy.turns_raw MODIFY SETTING parts_to_throw_insert = 1");
    let second = dice.entries("run", 10);
    for _ in 0..10 {
        match sink.insert("second", &second).await {
            Err(Failure::Later { why, after }) => {
                assert!(why.contains("252, TOO_MANY_PARTS"), "{why}");
                assert!(after.is_some());
            }
            other => panic!("{other:?}"),
        }
    }
    clickhouse.query("ALTER TABLE busy.turns_raw MODIFY SETTING parts_to_throw_insert = 3000");
    sink.insert("second", &second).await.unwrap();
    // Codes that are hard to come by.
    let third = dice.entries("run", 10);
    for (status, text) in [
        (
            500,
            "Code: 241. DB::Exception: Memory limit exceeded. (MEMORY_LIMIT_EXCEEDED)",
        ),
        (
            503,
            "Code: 202. DB::Exception: Too many queries. (TOO_MANY_SIMULTANEOUS_QUERIES)",
        ),
        (
            408,
            "Code: 159. DB::Exception: Timeout exceeded. (TIMEOUT_EXCEEDED)",
        ),
        (
            500,
            "Code: 242. DB::Exception: Table is in readonly mode. (TABLE_IS_READ_ONLY)",
        ),
        (502, "<html>Bad Gateway</html>"),
        (503, ""),
    ] {
        proxy.arm(Fault::Answer("turns_raw", status, text.into()));
        later(sink.insert("third", &third).await);
        assert!(proxy.is_spent());
    }
    sink.insert("third", &third).await.unwrap();
    assert_once(&clickhouse, "busy", &[first, second, third].concat());
}

#[tokio::test]
async fn an_insert_that_breaks_off_leaves_nothing() {
    let clickhouse = ClickHouse::start();
    let proxy = Proxy::before(clickhouse.address()).await;
    let mut sink = sink_by_way_of(&proxy, &clickhouse, "cut");
    sink.prepare().await.unwrap();
    let entries = Dice::new(SEED).entries("run", 2_000);
    for at in [1, 2_000, 20_000, 60_000] {
        proxy.arm(Fault::CutBody("turns_raw", at));
        later(sink.insert("t", &entries).await);
        assert!(proxy.is_spent(), "cut at {at}");
        assert_eq!(clickhouse.query("SELECT count() FROM cut.turns_raw"), "0");
        assert_eq!(
            clickhouse.query("SELECT count() FROM cut.turns_by_hour_raw"),
            "0"
        );
    }
    sink.insert("t", &entries).await.unwrap();
    assert_once(&clickhouse, "cut", &entries);
}

#[tokio::test]
async fn a_row_that_is_refused_is_found_by_halves_and_the_others_count_once() {
    let clickhouse = ClickHouse::start();
    let mut sink = clickhouse.sink("poison");
    sink.prepare().await.unwrap();
    for table in ["turns_raw", "tool_calls_raw"] {
        clickhouse.query(&format!(
            "ALTER TABLE poison.{table} ADD CONSTRAINT sound CHECK run_id != 'SECRET'"
        ));
    }
    let mut dice = Dice::new(SEED);
    let mut entries = dice.entries("sound", 30);
    let bad = dice.turn("SECRET");
    let bad_call = dice.call(&bad);
    entries.insert(7, Entry::Turn(Box::new(bad)));
    entries.insert(40, Entry::Call(Box::new(bad_call)));
    // As the spool does it.
    let mut parts = vec![entries.as_slice()];
    let mut set_aside = Vec::new();
    while let Some(part) = parts.pop() {
        let token = format!("{:p}-{}", part.as_ptr(), part.len());
        match sink.insert(&token, part).await {
            Ok(()) => {}
            Err(Failure::Refused { why }) => {
                assert!(why.contains("469, VIOLATED_CONSTRAINT"), "{why}");
                assert!(!why.contains("SECRET"), "{why}");
                match part {
                    [one] => set_aside.push(one.clone()),
                    part => {
                        let (front, back) = part.split_at(part.len() / 2);
                        parts.extend([front, back]);
                    }
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(set_aside.len(), 2);
    entries.retain(|entry| !set_aside.contains(entry));
    assert_once(&clickhouse, "poison", &entries);
}

#[tokio::test]
async fn e03_a_server_that_is_away_killed_or_frozen_gets_everything_once_when_it_is_back() {
    let mut clickhouse = ClickHouse::start();
    clickhouse.kill();
    // A gateway starts all the same.
    let mut sink = clickhouse.sink("away");
    let mut dice = Dice::new(SEED);
    let batches: Vec<_> = (0..30).map(|_| dice.entries("run", 20)).collect();
    let why = later(sink.insert("0", &batches[0]).await);
    assert!(why.contains("cannot be reached"), "{why}");
    clickhouse.run();

    // Killed again and again between and within inserts; a batch is sent until it is taken.
    for (n, batch) in batches.iter().enumerate() {
        let token = n.to_string();
        if n % 10 == 5 {
            let mut going = std::pin::pin!(sink.insert(&token, batch));
            let pause = Duration::from_micros(u64::try_from(dice.below(20_000)).unwrap());
            let _ = tokio::time::timeout(pause, &mut going).await;
            clickhouse.kill();
            clickhouse.run();
        }
        let mut tries = 0;
        while let Err(failure) = sink.insert(&token, batch).await {
            assert!(matches!(failure, Failure::Later { .. }), "{failure}");
            tries += 1;
            assert!(tries < 5, "{failure}");
        }
    }
    assert_once(&clickhouse, "away", &batches.concat());

    // Frozen: connections are taken, and nothing is ever answered.
    let more = dice.entries("run", 20);
    clickhouse.freeze();
    tokio::time::pause();
    let why = later(sink.insert("frozen", &more).await);
    tokio::time::resume();
    assert!(why.contains("does not answer"), "{why}");
    clickhouse.thaw();
    sink.insert("frozen", &more).await.unwrap();
    assert_once(&clickhouse, "away", &[batches.concat(), more].concat());
}
