//! CASES E06: what is delivered more than once counts once, in every view and before any merge.

use super::*;

const SEED: u64 = 6;

#[tokio::test]
async fn e06_what_comes_again_counts_once_before_any_merge() {
    let clickhouse = ClickHouse::start();
    let mut sink = clickhouse.sink("once");
    sink.prepare().await.unwrap();
    for table in ["turns", "tool_calls", "events", "turns_by_hour"] {
        clickhouse.query(&format!("SYSTEM STOP MERGES once.{table}_raw"));
    }
    let raw = || clickhouse.query("SELECT count() FROM once.turns_raw");
    let mut entries = Dice::new(SEED).entries("run", 100);
    for _ in 0..3 {
        sink.insert("spool-0-100", &entries).await.unwrap();
    }
    assert_eq!(raw(), "100", "the server recognises the token");
    assert_once(&clickhouse, "once", &entries);

    // Later than the server remembers, and by another process.
    for table in ["turns", "tool_calls", "events", "turns_by_hour"] {
        clickhouse.query(&format!(
            "ALTER TABLE once.{table}_raw MODIFY SETTING non_replicated_deduplication_window = 0"
        ));
    }
    let mut another = clickhouse.sink("once");
    for _ in 0..2 {
        another.insert("spool-0-100", &entries).await.unwrap();
    }
    assert_eq!(raw(), "300", "the rows are there three times");
    assert_once(&clickhouse, "once", &entries);

    // And other batches beside.
    let more = Dice::new(SEED + 1).entries("run", 40);
    sink.insert("spool-100-40", &more).await.unwrap();
    entries.extend(more);
    assert_once(&clickhouse, "once", &entries);
    for table in ["turns", "tool_calls", "events", "turns_by_hour"] {
        clickhouse.query(&format!("SYSTEM START MERGES once.{table}_raw"));
        clickhouse.query(&format!("OPTIMIZE TABLE once.{table}_raw FINAL"));
    }
    assert_eq!(raw(), "140");
    assert_once(&clickhouse, "once", &entries);

    // The sums were lost between the table and the view that makes them: the retry makes them.
    let mut sink = clickhouse.sink("half");
    sink.prepare().await.unwrap();
    clickhouse.query("DETACH TABLE half.turns_into_hours");
    sink.insert("t", &entries).await.unwrap();
    clickhouse.query("ATTACH TABLE half.turns_into_hours");
    sink.insert("t", &entries).await.unwrap();
    assert_eq!(
        clickhouse.query("SELECT count() FROM half.turns_raw"),
        "140"
    );
    assert_once(&clickhouse, "half", &entries);
}

#[tokio::test]
async fn e06_an_insert_whose_answer_was_lost_counts_once() {
    let clickhouse = ClickHouse::start();
    let proxy = Proxy::before(clickhouse.address()).await;
    let mut sink = sink_by_way_of(&proxy, &clickhouse, "lost");
    sink.prepare().await.unwrap();
    let mut all = Vec::new();
    for (n, table) in ["events_raw", "tool_calls_raw", "turns_raw"]
        .into_iter()
        .enumerate()
    {
        let entries = Dice::new(n as u64).entries("run", 100);
        let token = format!("spool-{n}");
        proxy.arm(Fault::LoseAnswer(table));
        let why = later(sink.insert(&token, &entries).await);
        assert!(why.contains("cannot be reached"), "{why}");
        assert!(proxy.is_spent());
        let stored = clickhouse.query(&format!("SELECT count() > 0 FROM lost.{table}"));
        assert_eq!(stored, "1", "the server did it");
        sink.insert(&token, &entries).await.unwrap();
        all.extend(entries);
        assert_once(&clickhouse, "lost", &all);
    }
    assert_eq!(
        clickhouse.query("SELECT count() FROM lost.turns_raw"),
        "300"
    );
}

#[tokio::test]
async fn of_several_versions_of_a_call_the_final_one_counts_whatever_comes_last() {
    let clickhouse = ClickHouse::start();
    let mut sink = clickhouse.sink("calls");
    let mut dice = Dice::new(SEED);
    let turn = dice.turn("run");
    let mut versions = Vec::new();
    let call = dice.call(&turn);
    for status in [
        CallStatus::Pending,
        CallStatus::Incomplete,
        CallStatus::Failed,
    ] {
        let mut version = call.clone();
        version.status = status;
        version.latency_ms = (status == CallStatus::Failed).then_some(7);
        versions.push(version);
    }
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        clickhouse.query("DROP DATABASE IF EXISTS calls");
        for n in order {
            let entry = [Entry::Call(Box::new(versions[n].clone()))];
            // The database was dropped under it: it is made again.
            if let Err(failure) = sink.insert(&n.to_string(), &entry).await {
                assert!(matches!(failure, Failure::Later { .. }), "{failure}");
                sink.insert(&n.to_string(), &entry).await.unwrap();
            }
        }
        let raw = clickhouse.query("SELECT count() FROM calls.tool_calls_raw");
        assert_eq!(raw, "3");
        assert_eq!(sink.calls("run", 10).await.unwrap(), [versions[2].clone()]);
    }
    // All of them in one batch.
    let batch: Vec<_> = versions
        .iter()
        .cloned()
        .map(|c| Entry::Call(Box::new(c)))
        .collect();
    let mut sink = clickhouse.sink("together");
    sink.insert("t", &batch).await.unwrap();
    assert_eq!(sink.calls("run", 10).await.unwrap(), [versions[2].clone()]);
    // A condition on what differs between them is asked of the last one.
    let pending = "SELECT count() FROM together.tool_calls WHERE status = 'pending'";
    assert_eq!(clickhouse.query(pending), "0");
}
