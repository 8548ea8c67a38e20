//! One record a request, whatever its exit; what is no turn; days; retention; a gateway that is killed.

use std::time::Duration;

use serde_json::{Value, json};

use super::{database, plain, post, streamed};
use crate::support::upstream::{LAST_CHUNK, event, json as http_json, message, stream_events};
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, ask, eventually};

/// The rows of all requests, of whatever kind: kind, outcome, status.
fn rows(gateway: &Gateway) -> Vec<(String, String, Option<u16>)> {
    let database = database(gateway);
    let mut query = database
        .prepare("SELECT kind, outcome, status FROM turns ORDER BY id")
        .unwrap();
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

async fn recorded(gateway: &Gateway, n: usize) -> Vec<(String, String, Option<u16>)> {
    eventually(&format!("{n} rows"), async || {
        let rows = rows(gateway);
        (rows.len() >= n).then_some(rows)
    })
    .await
}

#[tokio::test]
async fn every_exit_leaves_one_record() {
    let error = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
    let upstream = Upstream::start(move |seen, _| {
        let whole = stream_events("test-sonnet", &plain(5, 1), "x", r#"{"output_tokens":3}"#);
        let head = &whole[..whole.find("event: content_block_stop").unwrap()];
        match seen.json()["messages"][0]["content"].as_str().unwrap() {
            "ok" => vec![Step::Write(http_json(200, &message("test-sonnet", &plain(5, 5))))],
            "stream" => streamed(&whole, [Step::write(LAST_CHUNK)]),
            "429" => vec![Step::Write(http_json(429, error))],
            "500" => vec![Step::write("HTTP/1.1 500 X\r\ncontent-length: 4\r\n\r\noops")],
            "event" => {
                let text = format!("{head}{}", event(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#));
                streamed(&text, [Step::write(LAST_CHUNK)])
            }
            "cut" => streamed(head, [Step::Reset]),
            "early" => streamed(head, [Step::write(LAST_CHUNK)]),
            "drop" => vec![Step::Close],
            "abort" => streamed(head, [Step::AwaitClose]),
            other => panic!("{other}"),
        }
    })
    .await;
    let config = format!("{PRICES}\n[server]\nmax_body = \"4KiB\"\n");
    let gateway = Gateway::with(&upstream.url(), &config, &[]);
    let body = |what: &str, stream: bool| {
        format!(
            r#"{{"model":"test-sonnet","max_tokens":9,"stream":{stream},"messages":[{{"role":"user","content":"{what}"}}]}}"#
        )
    };
    let mut expected: Vec<(&str, &str, Option<u16>)> = Vec::new();
    for (what, stream, outcome, status) in [
        ("ok", false, "ok", 200),
        ("stream", true, "ok", 200),
        ("429", false, "upstream_error", 429),
        ("500", false, "upstream_error", 500),
        ("event", true, "upstream_error", 200),
        ("cut", true, "upstream_cut", 200),
        ("early", true, "upstream_cut", 200),
        ("drop", false, "upstream_unreachable", 502),
    ] {
        let reply = post(&gateway, &[], &body(what, stream)).await;
        assert_eq!(reply.status, status, "{what}");
        expected.push(("turn", outcome, Some(status)));
        assert_eq!(
            recorded(&gateway, expected.len()).await.len(),
            expected.len(),
            "{what}"
        );
    }
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.post("/v1/messages", &[], body("abort", true).as_bytes())
        .await;
    wire.head().await;
    drop(wire);
    expected.push(("turn", "client_abort", Some(200)));
    recorded(&gateway, expected.len()).await;

    // A client that leaves inside its own request.
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(b"POST /v1/messages HTTP/1.1\r\nhost: g\r\ncontent-length: 900\r\n\r\n{\"model\":")
        .await;
    eventually("the gateway reads", async || {
        (gateway.metric("prefixgate_requests_in_flight", &[]).await > 0.0).then_some(())
    })
    .await;
    drop(wire);
    expected.push(("turn", "client_abort", None));
    recorded(&gateway, expected.len()).await;

    let reply = post(&gateway, &[], &body(&"x".repeat(5000), false)).await;
    assert_eq!(reply.status, 413);
    expected.push(("turn", "client_error", Some(413)));
    let reply = Wire::exchange(
        gateway.proxy,
        "/u/nowhere/v1/messages",
        &[],
        body("ok", false).as_bytes(),
    )
    .await;
    assert_eq!(reply.status, 404);
    expected.push(("other", "client_error", Some(404)));

    let rows = recorded(&gateway, expected.len()).await;
    for (n, (row, expected)) in rows.iter().zip(&expected).enumerate() {
        let row = (row.0.as_str(), row.1.as_str(), row.2);
        if expected.2.is_none() {
            assert_eq!((row.0, row.1), (expected.0, expected.1), "{n}");
        } else {
            assert_eq!(row, *expected, "{n}");
        }
    }
    assert_eq!(rows.len(), expected.len());
    assert_eq!(
        gateway.metric("prefixgate_requests_total", &[]).await,
        expected.len() as f64
    );
    assert_eq!(
        gateway.metric("prefixgate_requests_in_flight", &[]).await,
        0.0
    );
    let ids = super::number(&gateway, "SELECT COUNT(DISTINCT id) FROM turns");
    assert_eq!(ids, expected.len() as i64);
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_recorded_as_unreachable() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let gateway = Gateway::with(&format!("http://{free}"), PRICES, &[]);
    let reply = post(&gateway, &[], &ask("test-sonnet", false)).await;
    assert_eq!(reply.status, 502);
    let error = reply.json();
    assert_eq!(error["type"], "error");
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("could not be connected to")
    );
    let rows = recorded(&gateway, 1).await;
    assert_eq!(
        rows,
        [("turn".into(), "upstream_unreachable".into(), Some(502))]
    );
    let labels = ["model=\"test-sonnet\"", "outcome=\"upstream_unreachable\""];
    assert_eq!(gateway.metric("prefixgate_turns_total", &labels).await, 1.0);
}

#[tokio::test]
async fn c11_what_is_not_a_model_request_is_no_turn() {
    let results = "{\"custom_id\":\"a\",\"result\":{\"type\":\"succeeded\",\"message\":{\"model\":\"test-sonnet\",\"usage\":{\"input_tokens\":1000,\"output_tokens\":500}}}}\n";
    let upstream = Upstream::answering(http_json(200, results)).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let batch = r#"{"requests":[{"custom_id":"a","params":{"model":"test-sonnet","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}}]}"#;
    let question = ask("test-sonnet", false);
    let mut n = 0;
    for (method, path, body, kind) in [
        (
            "POST",
            "/v1/messages/count_tokens",
            question.as_str(),
            "count_tokens",
        ),
        (
            "POST",
            "/v1/messages/count_tokens?beta=true",
            question.as_str(),
            "count_tokens",
        ),
        ("GET", "/v1/models", "", "models"),
        ("GET", "/v1/models/test-sonnet", "", "models"),
        ("HEAD", "/", "", "probe"),
        ("POST", "/v1/messages/batches", batch, "batch"),
        ("GET", "/v1/messages/batches/b1", "", "batch"),
        ("GET", "/v1/messages/batches/b1/results", "", "batch"),
        ("GET", "/v1/messages/batches/b1/results", "", "batch"),
        ("GET", "/v1/messages/batches/b1/results", "", "batch"),
        ("POST", "/v1/messages/batches/b1/cancel", "", "batch"),
        ("GET", "/v1/files", "", "other"),
    ] {
        let mut wire = Wire::connect(gateway.proxy).await;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: g\r\nx-api-key: k\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        wire.send(request.as_bytes()).await;
        let head = wire.head().await;
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        if method != "HEAD" {
            let reply = wire.body_of(head).await;
            assert_eq!(reply.text(), results);
        }
        assert_eq!(upstream.last().line(), format!("{method} {path}"));
        assert_eq!(upstream.last().body, body.as_bytes());
        drop(wire);
        n += 1;
        let rows = recorded(&gateway, n).await;
        assert_eq!(rows[n - 1].0, kind, "{method} {path}");
        assert_eq!(rows[n - 1].1, "ok", "{method} {path}");
    }
    assert_eq!(gateway.report(&["runs"]), Vec::<Value>::new());
    assert_eq!(gateway.report(&["spend"]), Vec::<Value>::new());
    assert_eq!(gateway.metric("prefixgate_turns_total", &[]).await, 0.0);
    assert_eq!(gateway.metric("prefixgate_tokens_total", &[]).await, 0.0);
    assert_eq!(
        gateway
            .metric("prefixgate_requests_total", &["kind=\"batch\""])
            .await,
        6.0
    );
}

/// Milliseconds since 1970 of a UTC time.
fn at(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

#[tokio::test]
async fn e13_days_in_any_zone_add_up() {
    let upstream = Upstream::start(|_, n| {
        let usd = |input: u64| http_json(200, &message("test-sonnet", &plain(input, 0)));
        vec![Step::Write(match n {
            0 => usd(333_333),
            1 => usd(666_667),
            _ => http_json(
                500,
                r#"{"type":"error","error":{"type":"api_error","message":"x"}}"#,
            ),
        })]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    for n in 0..3 {
        post(
            &gateway,
            &[],
            &ask(
                ["test-sonnet", "vendor/test-sonnet", "test-sonnet"][n],
                false,
            ),
        )
        .await;
        recorded(&gateway, n + 1).await;
    }
    // The third ends after midnight.
    let times = [
        "2026-03-01T23:30:00Z",
        "2026-03-02T00:30:00Z",
        "2026-03-05T23:59:59.9Z",
    ];
    for (n, time) in times.iter().enumerate() {
        let changed = database(&gateway)
            .execute(
                "UPDATE turns SET started_ms = ?1, duration_us = 5000000 WHERE seq = (SELECT seq FROM turns ORDER BY seq LIMIT 1 OFFSET ?2)",
                (at(time), n as i64),
            )
            .unwrap();
        assert_eq!(changed, 1);
    }
    let days = |zone: &str, more: &[&str]| -> Vec<(String, Option<String>, u64)> {
        let mut args = vec!["spend", "--by", "day", "--tz", zone];
        args.extend(more);
        let rows = gateway.report(&args);
        let text = |v: &Value| v.as_str().map(ToOwned::to_owned);
        rows.iter()
            .map(|r| {
                (
                    text(&r["day"]).unwrap(),
                    text(&r["cost_usd"]),
                    r["requests"].as_u64().unwrap(),
                )
            })
            .collect()
    };
    let day = |d: &str, cost: &str, n: u64| (d.to_owned(), Some(cost.to_owned()), n);
    assert_eq!(
        days("UTC", &[]),
        [
            day("2026-03-01", "0.999999", 1),
            day("2026-03-02", "2.000001", 1),
            day("2026-03-05", "0", 1)
        ]
    );
    assert_eq!(
        days("Asia/Kolkata", &[]),
        [day("2026-03-02", "3", 2), day("2026-03-06", "0", 1)]
    );
    assert_eq!(
        days("America/Los_Angeles", &[]),
        [day("2026-03-01", "3", 2), day("2026-03-05", "0", 1)]
    );
    // One day asked for alone is the day in the list, and no request is in two days.
    for zone in ["UTC", "Asia/Kolkata", "America/Los_Angeles"] {
        let mut single = Vec::new();
        for (day, next) in [
            ("01", "02"),
            ("02", "03"),
            ("03", "04"),
            ("04", "05"),
            ("05", "06"),
            ("06", "07"),
        ] {
            let (since, until) = (format!("2026-03-{day}"), format!("2026-03-{next}"));
            single.extend(days(zone, &["--since", &since, "--until", &until]));
        }
        assert_eq!(single, days(zone, &[]), "{zone}");
    }
    assert_eq!(
        gateway.report(&["spend", "--since", "1h"]),
        Vec::<Value>::new(),
        "the last hour"
    );
}

#[tokio::test]
async fn old_records_are_removed() {
    let upstream = Upstream::answering(http_json(200, &message("test-sonnet", &plain(5, 5)))).await;
    let config = format!("{PRICES}\n[store]\nretention_days = 30\n");
    let gateway = Gateway::with(&upstream.url(), &config, &[]);
    for n in 0..4 {
        post(&gateway, &[], &format!(r#"{{"model":"test-sonnet","max_tokens":9,"messages":[{{"role":"user","content":"{n}"}}]}}"#)).await;
    }
    recorded(&gateway, 4).await;
    let now = jiff::Timestamp::now().as_millisecond();
    for (offset, days) in [(0, 31), (1, 29)] {
        database(&gateway)
            .execute(
                "UPDATE turns SET started_ms = ?1 WHERE seq = (SELECT seq FROM turns ORDER BY seq LIMIT 1 OFFSET ?2)",
                (now - days * 86_400_000, offset),
            )
            .unwrap();
    }
    let gateway = gateway.restart(&upstream.url(), &config, &[]);
    post(&gateway, &[], &ask("test-sonnet", false)).await;
    eventually("the one beyond 30 days is gone", async || {
        let oldest = super::number(&gateway, "SELECT MIN(started_ms) FROM turns");
        (oldest == now - 29 * 86_400_000).then_some(())
    })
    .await;
    assert_eq!(rows(&gateway).len(), 4, "the others are there");
}

#[tokio::test]
async fn what_is_recorded_survives_a_kill_and_reports_work_meanwhile() {
    let upstream =
        Upstream::answering(http_json(200, &message("test-sonnet", &plain(70, 10)))).await;
    let mut gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let session = ["x-session-id: session-kill"];
    for round in 0..3_usize {
        // Load that is still running when the gateway is killed.
        let proxy = gateway.proxy;
        let load: Vec<_> = (0..4)
            .map(|worker| {
                tokio::spawn(async move {
                    for n in 0.. {
                        let Ok(mut stream) = tokio::net::TcpStream::connect(proxy).await else { return n };
                        let body = format!(r#"{{"model":"test-sonnet","max_tokens":9,"messages":[{{"role":"user","content":"{round} {worker} {n}"}}]}}"#);
                        let head = format!("POST /v1/messages HTTP/1.1\r\nhost: g\r\nx-api-key: k\r\nx-session-id: session-load\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
                        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
                        let mut answer = Vec::new();
                        if stream.write_all(head.as_bytes()).await.is_err() || stream.read_to_end(&mut answer).await.is_err() || answer.is_empty() {
                            return n;
                        }
                    }
                    0
                })
            })
            .collect();
        post(
            &gateway,
            &session,
            &ask("test-sonnet", false).replace("hello", &format!("round {round}")),
        )
        .await;
        // Reports while the gateway writes.
        let seen = eventually("the turn and some of the load are recorded", async || {
            let runs = gateway.report(&["runs"]);
            let turns = |id: &str| {
                runs.iter()
                    .find(|r| r["id"] == id)
                    .and_then(|r| r["turns"].as_u64())
            };
            let seen = turns("session-load").unwrap_or(0);
            (turns("session-kill") == Some(round as u64 + 1) && seen > 20 * (round as u64 + 1))
                .then_some(seen)
        })
        .await;
        gateway = gateway.restart(&upstream.url(), PRICES, &[]);
        for task in load {
            task.await.unwrap();
        }
        let runs = gateway.report(&["runs"]);
        let kept = runs.iter().find(|r| r["id"] == "session-load").unwrap()["turns"]
            .as_u64()
            .unwrap();
        assert!(kept >= seen, "{kept} of {seen}");
        let fine: String = database(&gateway)
            .query_row("PRAGMA integrity_check", [], |r| r.get(0))
            .unwrap();
        assert_eq!(fine, "ok");
    }
    let kill = gateway.report(&["turns", "--run", "session-kill"]);
    let numbers: Vec<&Value> = kill.iter().map(|t| &t["turn"]).collect();
    assert_eq!(
        numbers,
        [&json!(1); 3],
        "three conversations of one session"
    );
}

/// SIGTERM ends a gateway in order: everything that was answered is in the database.
#[tokio::test]
async fn a_gateway_that_is_asked_to_stop_writes_everything() {
    let upstream =
        Upstream::answering(http_json(200, &message("test-sonnet", &plain(70, 10)))).await;
    let mut gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    for n in 0..50 {
        let body = ask("test-sonnet", false).replace("hello", &format!("question {n}"));
        post(&gateway, &["x-session-id: session-term"], &body).await;
    }
    gateway.signal("TERM");
    let status = tokio::time::timeout(Duration::from_secs(20), gateway.ended())
        .await
        .unwrap();
    assert!(status.success());
    assert_eq!(gateway.report(&["runs"])[0]["requests"], 50);
}
