//! What goes in comes out.

use prefixgate::store::{Filter, Questions, Sqlite};
use prefixgate::trace::{CallResult, EventRecord, Sink, ToolCallRecord};

use super::*;

const SEED: u64 = 20_261_130;

#[tokio::test]
async fn every_column_comes_back_as_sqlite_gives_it_back() {
    let clickhouse = ClickHouse::start();
    let mut sink = clickhouse.sink("rows");
    let dir = tempfile::tempdir().unwrap();
    let mut sqlite = Sqlite::open(dir.path()).unwrap();
    let mut dice = Dice::new(SEED);
    let runs = ["plain", "", "it's a `run`\\\n\0", "\u{1F642}"];
    let mut all = Vec::new();
    for (n, run) in runs.iter().enumerate() {
        let entries = dice.entries(run, 60);
        sqlite.write(&entries).unwrap();
        sink.insert(&n.to_string(), &entries).await.unwrap();
        all.extend(entries);
    }
    for run in runs {
        let told = sink.turns(run, 1_000).await.unwrap();
        let kept = sqlite.turns(run, &Filter::all(1_000), true).unwrap();
        assert_eq!(told, kept);
        assert_eq!(told.len(), 60);
        let mut calls = sink.calls(run, 1_000).await.unwrap();
        let mut expected: Vec<ToolCallRecord> = all
            .iter()
            .filter_map(|entry| match entry {
                Entry::Call(call) if call.run_id == run => Some((**call).clone()),
                _ => None,
            })
            .collect();
        let by_id = |a: &ToolCallRecord, b: &ToolCallRecord| a.call_id.cmp(&b.call_id);
        calls.sort_by(by_id);
        expected.sort_by(by_id);
        assert_eq!(calls, expected);
        let mut expected: Vec<EventRecord> = all
            .iter()
            .filter_map(|entry| match entry {
                Entry::Event(event) if event.run_id == run => Some((**event).clone()),
                _ => None,
            })
            .collect();
        expected.sort_by_key(|event| (event.at_ms, event.id));
        assert_eq!(sink.events(run, 1_000).await.unwrap(), expected);
    }
    assert_once(&clickhouse, "rows", &all);

    // Beyond what SQLite can hold.
    let mut turn = dice.turn("largest");
    turn.cost_pico = Some(u64::MAX);
    turn.usage.read = Some(u64::MAX);
    turn.duration_us = u64::MAX;
    let entry = [Entry::Turn(Box::new(turn.clone()))];
    sink.insert("largest", &entry).await.unwrap();
    assert_eq!(sink.turns("largest", 2).await.unwrap(), [turn]);

    // By the views' own names, for those who ask in SQL.
    let days = "SELECT count() FROM rows.turns WHERE started_ms >= {} AND started >= now() - INTERVAL 4 DAY";
    let since = (now_ms() - 4 * 86_400_000).to_string();
    let found = clickhouse.query(&days.replace("{}", &since));
    assert_eq!(found, (turns(&all).len() + 1).to_string());
    let quantiles = clickhouse.query(
        "SELECT arrayExists(x -> isNaN(x), quantilesTDigestMerge(0.5, 0.9, 0.95, 0.99)(duration_us)) \
        FROM rows.turns_by_hour",
    );
    assert_eq!(quantiles, "0");
    let uncommented = "SELECT count() FROM system.columns WHERE database = 'rows' \
        AND table LIKE '%_raw' AND comment = ''";
    assert_eq!(clickhouse.query(uncommented), "0");
}

#[tokio::test]
async fn e05_a_batch_is_one_insert_a_table_and_nothing_is_none() {
    let clickhouse = ClickHouse::start();
    let proxy = Proxy::before(clickhouse.address()).await;
    let mut sink = sink_by_way_of(&proxy, &clickhouse, "burst");
    let mut dice = Dice::new(SEED);
    let mut all = Vec::new();
    // Five seconds of 200 turns/s, a batch each second.
    for second in 0..5 {
        let entries = dice.entries("burst", 200);
        sink.insert(&format!("second {second}"), &entries)
            .await
            .unwrap();
        let inserts = ["events_raw", "tool_calls_raw", "turns_raw"];
        assert_eq!(proxy.take_inserts(), inserts);
        all.extend(entries);
    }
    assert_once(&clickhouse, "burst", &all);
    assert_eq!(
        clickhouse.query("SELECT count() FROM burst.turns_raw"),
        "1000"
    );

    sink.insert("nothing", &[]).await.unwrap();
    // A result whose call nobody knows says nothing.
    let result = CallResult {
        run_id: "burst".into(),
        thread_id: "main".into(),
        call_id: "gone".into(),
        status: CallStatus::Ok,
        latency_ms: None,
        result_bytes: None,
        retries: 0,
    };
    let result = [Entry::Result(Box::new(result))];
    sink.insert("a result", &result).await.unwrap();
    assert!(proxy.take_inserts().is_empty());
    let turn = [Entry::Turn(Box::new(dice.turn("burst")))];
    sink.insert("a turn", &turn).await.unwrap();
    assert_eq!(proxy.take_inserts(), ["turns_raw"]);

    // Gathered by the server, when that is asked for: there when it has answered.
    let mut settings = clickhouse.settings("gathered");
    settings.async_insert = true;
    let mut gathered = ClickHouseSink::new(&settings);
    let entries = dice.entries("gathered", 50);
    for _ in 0..3 {
        gathered.insert("same", &entries).await.unwrap();
    }
    assert_once(&clickhouse, "gathered", &entries);
}
