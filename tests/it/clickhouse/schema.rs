//! The tables: made once by many, brought up to date, refused when newer.

use prefixgate::store::clickhouse::statements;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_gateways_may_start_at_once() {
    let clickhouse = ClickHouse::start();
    let mut starting = Vec::new();
    for n in 0..8 {
        let mut sink = clickhouse.sink("shared");
        starting.push(tokio::spawn(async move {
            let entries = Dice::new(n).entries("run", 20);
            let mut tries = 0;
            while let Err(failure) = sink.insert(&format!("gateway {n}"), &entries).await {
                tries += 1;
                assert!(tries < 3, "{failure}");
            }
            entries
        }));
    }
    let mut all = Vec::new();
    for started in starting {
        all.extend(started.await.unwrap());
    }
    assert_once(&clickhouse, "shared", &all);
    let noted =
        clickhouse.query("SELECT arraySort(groupUniqArray(version)) FROM shared.schema_migrations");
    assert_eq!(noted, "[1,2,3]");
}

#[tokio::test]
async fn a_newer_schema_is_left_alone_and_told() {
    let clickhouse = ClickHouse::start();
    clickhouse.sink("newer").prepare().await.unwrap();
    clickhouse
        .query("INSERT INTO newer.schema_migrations (version, name, by) VALUES (99, 'x', '9.9')");
    let mut sink = clickhouse.sink("newer");
    let entries = Dice::new(1).entries("run", 3);
    let why = later(sink.insert("t", &entries).await);
    assert!(
        why.contains("schema 99") && why.contains("newer prefixgate"),
        "{why}"
    );
    assert_eq!(clickhouse.query("SELECT count() FROM newer.turns_raw"), "0");

    // Of tables that were dropped, or a database, the next delivery makes new ones.
    let mut sink = clickhouse.sink("dropped");
    sink.insert("a", &entries).await.unwrap();
    clickhouse.query("DROP TABLE dropped.turns_raw");
    later(sink.insert("b", &entries).await);
    sink.insert("b", &entries).await.unwrap();
    assert_eq!(clickhouse.query("SELECT count() FROM dropped.turns"), "3");
    clickhouse.query("DROP DATABASE dropped");
    later(sink.insert("c", &entries).await);
    sink.insert("c", &entries).await.unwrap();
    assert_once(&clickhouse, "dropped", &entries);

    // Retention is applied to what is there, within what the server's dates can hold.
    let ttl = || {
        clickhouse.query(
            "SELECT arraySort(groupUniqArray(extract(create_table_query, 'toIntervalDay\\\\((\\\\d+)\\\\)'))) \
            FROM system.tables WHERE database = 'kept' AND create_table_query LIKE '%TTL%'",
        )
    };
    let mut settings = clickhouse.settings("kept");
    for (days, kept) in [(365, 365), (30, 30), (u32::MAX, 18_250)] {
        settings.retention_days = days;
        let mut sink = ClickHouseSink::new(&settings);
        sink.insert("t", &entries).await.unwrap();
        // The sums of an hour stay a day longer.
        assert_eq!(ttl(), format!("['{kept}','{}']", kept + 1));
        clickhouse.query("OPTIMIZE TABLE kept.turns_raw FINAL");
        assert_once(&clickhouse, "kept", &entries);
    }
}

#[tokio::test]
async fn a_wrong_password_says_what_to_do_and_is_not_told() {
    let clickhouse = ClickHouse::with_login("gate", "open sesame");
    let mut settings = clickhouse.settings("locked");
    let entries = Dice::new(1).entries("run", 3);
    for (user, password) in [(None, None), (Some("gate"), Some("SECRET"))] {
        settings.user = user.map(Into::into);
        settings.password = password.map(Into::into);
        let why = later(ClickHouseSink::new(&settings).insert("t", &entries).await);
        assert!(why.contains("[clickhouse] user and password"), "{why}");
        assert!(!why.contains("SECRET"), "{why}");
    }
    settings.user = Some("gate".into());
    settings.password = Some("open sesame".into());
    let mut sink = ClickHouseSink::new(&settings);
    sink.insert("t", &entries).await.unwrap();
    assert_once(&clickhouse, "locked", &entries);
}

/// The engine of the tests has no Keeper: it can read the text for a cluster, not run it.
#[tokio::test]
async fn the_schema_of_a_cluster_is_sound_sql_and_as_it_was_released() {
    let clickhouse = ClickHouse::start();
    let mut settings = clickhouse.settings("prefixgate");
    settings.cluster = Some("main".into());
    let cluster = statements(&settings);
    assert!(cluster.len() > 15, "{}", cluster.len());
    for statement in &cluster {
        if statement.starts_with("INSERT") {
            continue;
        }
        let text = statement.replace('\\', "\\\\").replace('\'', "\\'");
        clickhouse.query(&format!("SELECT formatQuery('{text}')"));
        let tree = clickhouse.query(&format!("EXPLAIN AST {statement}"));
        let changes = ["Create", "AlterQuery"];
        assert!(changes.iter().any(|word| tree.starts_with(word)), "{tree}");
    }
    // Everything but where it lies is the same on a single node.
    let text = cluster
        .join(";\n\n")
        .replace(env!("CARGO_PKG_VERSION"), "VERSION")
        + ";\n";
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/clickhouse/cluster.sql"
    );
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    if kept != text {
        let new = std::env::temp_dir().join("prefixgate-cluster.sql");
        std::fs::write(&new, &text).unwrap();
        panic!(
            "the schema differs from {path}: look at {} and take it over",
            new.display()
        );
    }
}
