//! What `prefixgate doctor` says of remote stores, of what waits for them, and of the caps' Redis: the
//! real program against ClickHouse's engine, a receiver of spans, a Redis, and ports where nobody is.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::upstream::json;
use crate::support::{ClickHouse, Gateway, Redis, Step, Upstream, Wire, ask};

/// Nobody listens there.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Exit code and report of `doctor` with this configuration.
async fn doctor(data: &Path, upstream: &Upstream, config: &str) -> (i32, Value) {
    let home = tempfile::tempdir().unwrap();
    // The second built-in upstream would be looked up in the network.
    let config = format!("[upstream.openai]\nurl = \"http://127.0.0.1:9\"\n{config}");
    std::fs::write(home.path().join("p.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_prefixgate"));
    command.env_clear().env("HOME", home.path());
    command.env("PATH", std::env::var_os("PATH").unwrap());
    command.current_dir(home.path());
    command.args(["doctor", "--json", "--config", "p.toml"]);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.arg("--upstream").arg(upstream.url());
    command.arg("--data-dir").arg(data);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = output.await.unwrap();
    // Held so long.
    drop(home);
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code().unwrap(), report)
}

/// Status, detail and advice of a check.
fn finding<'r>(report: &'r Value, check: &str) -> (&'r str, &'r str, &'r str) {
    let all = report["checks"].as_array().unwrap();
    let found = all.iter().find(|found| found["check"] == check);
    let found = found.unwrap_or_else(|| panic!("nothing of {check}: {report:#}"));
    let text = |key: &str| found[key].as_str().unwrap_or_default();
    (text("status"), text("detail"), text("advice"))
}

fn checks(report: &Value) -> Vec<&str> {
    let all = report["checks"].as_array().unwrap().iter();
    all.map(|found| found["check"].as_str().unwrap()).collect()
}

async fn provider() -> Upstream {
    Upstream::answering(json(404, "{}")).await
}

fn clickhouse(url: &str) -> String {
    format!("[clickhouse]\nurl = \"{url}\"\ndatabase = \"seen\"\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_configured_is_not_looked_at() {
    let (data, upstream) = (tempfile::tempdir().unwrap(), provider().await);
    let (code, report) = doctor(data.path(), &upstream, "").await;
    assert_eq!(code, 0, "{report:#}");
    let seen = checks(&report);
    for word in ["clickhouse", "otlp", "spool", "redis"] {
        assert!(!seen.iter().any(|check| check.contains(word)), "{seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clickhouse_is_told_by_its_schema_and_what_serve_will_do() {
    let (data, upstream) = (tempfile::tempdir().unwrap(), provider().await);
    let mut engine = ClickHouse::start();
    let config = clickhouse(&engine.url());
    let look = async || {
        let (code, report) = doctor(data.path(), &upstream, &config).await;
        let (status, detail, advice) = finding(&report, "clickhouse");
        (
            code,
            status.to_owned(),
            detail.to_owned(),
            advice.to_owned(),
        )
    };
    let (code, status, detail, _) = look().await;
    assert_eq!((code, status.as_str()), (0, "ok"), "{detail}");
    assert!(detail.contains("`serve` makes database seen"), "{detail}");
    // Looking has made nothing.
    let there = "SELECT count() FROM system.databases WHERE name = 'seen'";
    assert_eq!(engine.query(there), "0");

    engine.query("CREATE DATABASE seen");
    let (_, status, detail, _) = look().await;
    assert_eq!(status, "ok");
    assert!(detail.contains("makes its tables"), "{detail}");

    engine.sink("seen").prepare().await.unwrap();
    let (_, status, detail, _) = look().await;
    assert_eq!(status, "ok");
    let newest = engine.query("SELECT max(version) FROM seen.schema_migrations");
    assert!(
        detail.ends_with(&format!("database seen has schema {newest}")),
        "{detail}"
    );

    engine.query("DROP TABLE seen.events");
    let (_, status, detail, _) = look().await;
    assert_eq!(status, "ok");
    assert!(detail.contains("`serve` brings it to"), "{detail}");

    engine.query("INSERT INTO seen.schema_migrations (version, name, by) VALUES (99, 'later', '')");
    let (code, status, detail, advice) = look().await;
    assert_eq!((code, status.as_str()), (1, "fail"));
    assert!(detail.contains("has schema 99"), "{detail}");
    assert!(detail.contains("`serve` writes nothing to it"), "{detail}");
    assert!(advice.contains("use the newer prefixgate"), "{advice}");

    engine.freeze();
    let (code, status, detail, advice) = look().await;
    assert_eq!((code, status.as_str()), (1, "fail"));
    assert!(detail.contains("does not answer"), "{detail}");
    assert!(
        advice.contains("the server or what stands before it is at fault"),
        "{advice}"
    );
    engine.thaw();
    engine.kill();
    let (code, status, detail, advice) = look().await;
    assert_eq!((code, status.as_str()), (1, "fail"));
    assert!(detail.contains("refuses connections"), "{detail}");
    assert!(advice.contains("is it running there?"), "{advice}");
    assert!(advice.contains("records wait on disk"), "{advice}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_of_clickhouse_is_the_settings_fault_and_not_repeated() {
    let (data, upstream) = (tempfile::tempdir().unwrap(), provider().await);
    let engine = ClickHouse::with_login("gate", "right");
    let with = |password: &str| {
        let login = format!("user = \"gate\"\npassword = \"{password}\"\n");
        format!("{}{login}", clickhouse(&engine.url()))
    };
    let (code, report) = doctor(data.path(), &upstream, &with("wrong-one")).await;
    let (status, detail, advice) = finding(&report, "clickhouse");
    assert_eq!((code, status), (1, "fail"));
    assert!(detail.contains("user or password are wrong"), "{detail}");
    assert!(
        advice.contains("the settings or the user's rights are at fault"),
        "{advice}"
    );
    assert!(!report.to_string().contains("wrong-one"));
    let (code, report) = doctor(data.path(), &upstream, &with("right")).await;
    assert_eq!(
        (code, finding(&report, "clickhouse").0),
        (0, "ok"),
        "{report:#}"
    );
}

/// A receiver of spans that answers with this status.
async fn receiver(status: &'static str) -> Upstream {
    Upstream::start(move |_, _| {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nno");
        vec![Step::write(head)]
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_otlp_receiver_is_told_by_its_status_and_whose_fault_that_is() {
    let (data, upstream) = (tempfile::tempdir().unwrap(), provider().await);
    let with = |url: &str| format!("[otlp]\nendpoint = \"{url}\"\n");
    for (answer, code, status, said, fault) in [
        (
            "200 OK",
            0,
            "ok",
            "answered 200 to an empty export of traces",
            "",
        ),
        (
            "401 Unauthorized",
            1,
            "fail",
            "answered 401: no",
            "headers (the key)",
        ),
        ("404 Not Found", 1, "fail", "answered 404: no", "(its path)"),
        (
            "503 Service Unavailable",
            1,
            "fail",
            "answered 503: no",
            "the receiver is at fault",
        ),
        (
            "400 Bad Request",
            0,
            "warn",
            "answered 400: no",
            "does it speak OTLP over HTTP",
        ),
    ] {
        let receiver = receiver(answer).await;
        let (exit, report) = doctor(data.path(), &upstream, &with(&receiver.url())).await;
        let (found, detail, advice) = finding(&report, "otlp");
        assert_eq!((exit, found), (code, status), "{answer}");
        assert!(detail.contains(said), "{detail}");
        assert!(advice.contains(fault), "{advice}");
        let seen = receiver.seen();
        assert_eq!(
            (seen.len(), seen[0].line().as_str()),
            (1, "POST /v1/traces")
        );
        assert_eq!(
            seen[0].header("content-type"),
            Some("application/x-protobuf")
        );
        assert!(seen[0].body.is_empty());
    }
    let (code, report) = doctor(data.path(), &upstream, &with(&nobody())).await;
    let (status, detail, _) = finding(&report, "otlp");
    assert_eq!((code, status), (1, "fail"));
    assert!(detail.contains("refuses connections"), "{detail}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_a_spool_is_told_with_why_some_of_it_was_refused() {
    let upstream = provider().await;
    let away = clickhouse(&nobody());
    let mut gateway = Gateway::with(&upstream.url(), &away, &[]);
    for _ in 0..3 {
        let body = ask("claude-sonnet-5", false);
        let headers = ["x-api-key: k", "x-prefixgate-run: kept"];
        Wire::exchange(gateway.proxy, "/v1/messages", &headers, body.as_bytes()).await;
    }
    gateway.turns_of("kept", 3).await;
    gateway.signal("TERM");
    gateway.ended().await;
    let data = gateway.data();
    let (code, report) = doctor(&data, &upstream, &away).await;
    let (status, detail, _) = finding(&report, "spool clickhouse");
    // The store's own check has failed.
    assert_eq!((code, status), (1, "ok"), "{detail}");
    assert!(detail.starts_with("3 records wait since 2"), "{detail}");
    assert!(detail.contains("go out when the gateway runs"), "{detail}");
    assert!(
        detail.contains("of 1073741824 bytes used (0 %)"),
        "{detail}"
    );

    let dir = data.join("spool/clickhouse");
    let mut file = std::fs::File::create(dir.join("set_aside.jsonl")).unwrap();
    for (n, why) in ["a date is wrong", "a name is too long", "a date is wrong"]
        .iter()
        .enumerate()
    {
        let line = format!(r#"{{"time_ms":1,"sequence":{n},"error":"{why}","record":"{{}}"}}"#);
        writeln!(file, "{line}").unwrap();
    }
    let (_, report) = doctor(&data, &upstream, &away).await;
    let (status, detail, advice) = finding(&report, "spool clickhouse");
    assert_eq!(status, "warn");
    let reasons = "3 refused: 2 x a date is wrong; 1 x a name is too long";
    assert!(detail.contains(reasons), "{detail}");
    assert!(advice.contains("prefixgate spool replay"), "{advice}");

    // Of a store that nobody sends to any more.
    let (code, report) = doctor(&data, &upstream, "").await;
    let (status, detail, advice) = finding(&report, "spool clickhouse");
    assert_eq!((code, status), (0, "warn"));
    assert_eq!(
        detail,
        "3 records wait for a store that is not configured any more"
    );
    assert!(advice.contains("prefixgate spool drop"), "{advice}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_redis_of_the_caps_is_asked_and_what_happens_without_it_is_told() {
    let (data, upstream) = (tempfile::tempdir().unwrap(), provider().await);
    let mut redis = Redis::start();
    let with = |down: &str| {
        format!(
            "[caps]\nredis = \"{}\"\nredis_down = \"{down}\"\n",
            redis.url()
        )
    };
    let (refuse, local) = (with("refuse"), with("local"));
    let (code, report) = doctor(data.path(), &upstream, &refuse).await;
    let (status, detail, _) = finding(&report, "caps.redis");
    assert_eq!((code, status), (0, "ok"), "{detail}");
    assert!(detail.contains("answers (Redis "), "{detail}");

    redis.command::<()>(&["CONFIG", "SET", "maxmemory", "100mb"]);
    redis.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let (code, report) = doctor(data.path(), &upstream, &refuse).await;
    let (status, detail, advice) = finding(&report, "caps.redis");
    assert_eq!((code, status), (0, "warn"));
    assert!(detail.contains("(allkeys-lru)"), "{detail}");
    assert!(advice.contains("noeviction"), "{advice}");

    redis.command::<()>(&["CONFIG", "SET", "requirepass", "right"]);
    let (code, report) = doctor(data.path(), &upstream, &refuse).await;
    let (status, _, advice) = finding(&report, "caps.redis");
    assert_eq!((code, status), (1, "fail"));
    assert!(
        advice.contains("user or password in caps.redis are wrong"),
        "{advice}"
    );
    let login = refuse.replace("redis.sock", "redis.sock?pass=wrong-one");
    let (_, report) = doctor(data.path(), &upstream, &login).await;
    assert!(
        finding(&report, "caps.redis").2.contains("are wrong"),
        "{report:#}"
    );
    assert!(!report.to_string().contains("wrong-one"));

    redis.kill();
    for (config, meanwhile) in [
        (&refuse, "requests with caps are refused meanwhile"),
        (&local, "each gateway counts alone meanwhile"),
    ] {
        let (code, report) = doctor(data.path(), &upstream, config).await;
        let (status, _, advice) = finding(&report, "caps.redis");
        assert_eq!((code, status), (1, "fail"));
        assert!(advice.contains("is it running there?"), "{advice}");
        assert!(advice.contains(meanwhile), "{advice}");
    }
}
