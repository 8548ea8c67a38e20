//! E01, E08, E15: what a client sends bounds nothing and is kept nowhere.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{only_turn, plain, post, streamed};
use crate::support::upstream::{LAST_CHUNK, json as http_json, message, stream_events};
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, ask};

/// Requests of the load; the case has 20,000.
const REQUESTS: usize = 4_000;
/// New series that all of them together may make.
const SERIES: usize = 150;

fn series(metrics: &str) -> HashSet<&str> {
    metrics
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect()
}

/// Name, labels in quotes with escapes, one number.
fn parses(line: &str) -> bool {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let labels = series.find('{').map_or("", |at| &series[at..]);
    let mut quoted = false;
    let mut escaped = false;
    for c in labels.chars() {
        match c {
            '\\' if quoted && !escaped => escaped = true,
            '"' if !escaped => quoted = !quoted,
            _ => escaped = false,
        }
    }
    !quoted
        && !escaped
        && value.parse::<f64>().is_ok()
        && (labels.is_empty() || labels.ends_with('}'))
}

#[tokio::test]
async fn e01_client_strings_make_no_series() {
    let upstream = Upstream::start(|seen, n| {
        let model = seen.json()["model"].as_str().unwrap().to_owned();
        let quoted = serde_json::to_string(&model).unwrap();
        // Also answers that name such a model and such tools.
        let answer = if n % 4 == 0 {
            let body = format!(
                r#"{{"id":"msg_{n}","type":"message","role":"assistant","model":{quoted},"content":[{{"type":"tool_use","id":"toolu_{n}","name":"tool-{n}","input":{{}}}}],"stop_reason":"reason-{n}","usage":{}}}"#,
                plain(10, 10)
            );
            http_json(200, &body)
        } else {
            http_json(404, &format!(r#"{{"type":"error","error":{{"type":"kind-{n}","message":"model: x"}}}}"#))
        };
        vec![Step::Write(answer)]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    post(&gateway, &[], &ask("test-sonnet", false)).await;
    post(&gateway, &[], &ask("x-0", false)).await;
    let before = gateway.metrics().await;

    let mut workers = Vec::new();
    for worker in 0..8 {
        let proxy = gateway.proxy;
        workers.push(tokio::spawn(async move {
            let mut wire = Wire::connect(proxy).await;
            for n in (worker..REQUESTS).step_by(8) {
                let model = match n {
                    17 => "m".repeat(10_000),
                    18 => "a\nb\"c\\d".to_owned(),
                    n => format!("x-{n}"),
                };
                let body = json!({
                    "model": model, "max_tokens": 9,
                    "tools": [{"name": format!("mcp-{n}"), "input_schema": {"type": "object"}}],
                    "messages": [
                        {"role": "user", "content": "go"},
                        {"role": "assistant", "content": [{"type": "tool_use", "id": format!("t{n}"), "name": format!("tool-{n}"), "input": {}}]},
                        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": format!("t{n}"), "content": "x"}]},
                    ],
                })
                .to_string();
                let head = format!(
                    "POST /v1/messages HTTP/1.1\r\nhost: g\r\nx-api-key: key-{n}\r\nx-claude-code-session-id: session-{n}\r\nx-claude-code-agent-id: agent-{n}\r\nx-prefixgate-app: app-{n}\r\nuser-agent: client-{n}/1\r\nx-stainless-retry-count: {n}\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                wire.send(format!("{head}{body}").as_bytes()).await;
                let reply = wire.response().await;
                assert!(matches!(reply.status, 200 | 404));
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    // The best of some: other tests share the machine.
    let mut took = Duration::MAX;
    let mut after = String::new();
    for _ in 0..5 {
        let started = Instant::now();
        after = gateway.metrics().await;
        took = took.min(started.elapsed());
    }
    assert!(took < Duration::from_millis(100), "a scrape took {took:?}");
    assert!(after.len() < 1 << 20, "{} bytes", after.len());
    let new: Vec<&str> = series(&after)
        .difference(&series(&before))
        .copied()
        .collect();
    assert!(new.len() < SERIES, "{} new series: {new:?}", new.len());
    for line in after
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
    {
        assert!(parses(line), "{line}");
        for foreign in [
            "x-1", "session-", "agent-", "key-", "mcp-", "tool-", "app-", "client-", "kind-",
            "reason-", "mmm",
        ] {
            assert!(!line.contains(foreign), "{line}");
        }
    }
    let other = gateway
        .metric(
            "prefixgate_turns_total",
            &["model=\"other\"", "app=\"other\""],
        )
        .await;
    assert_eq!(other, REQUESTS as f64);
    // The log has one line a turn, whatever the names hold.
    let log = gateway.log();
    assert!(
        log.lines().all(|line| !line.starts_with("b\"c")),
        "a name broke a line of the log"
    );
    assert!(log.lines().all(|line| line.len() < 2_000));
    assert_eq!(
        gateway
            .metric("prefixgate_records_dropped_total", &[])
            .await,
        0.0
    );
}

#[tokio::test]
async fn e08_names_and_messages_are_cut_between_characters() {
    const NAME: usize = 128;
    const MESSAGE: usize = 512;
    let upstream = Upstream::start(|seen, _| {
        let body = seen.json();
        let model = body["model"].as_str().unwrap();
        let answer = match body["messages"][0]["content"].as_str().unwrap() {
            "error" => http_json(400, &json!({"type": "error", "error": {"type": model, "message": body["system"]}}).to_string()),
            _ => {
                let text = json!({"id": model, "type": "message", "role": "assistant", "model": model,
                    "content": [{"type": "tool_use", "id": model, "name": model, "input": {}}], "stop_reason": "tool_use",
                    "usage": {"input_tokens": 1, "output_tokens": 1}});
                http_json(200, &text.to_string())
            }
        };
        vec![Step::Write(answer)]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let mut sent = Vec::new();
    for sample in ["→", "🙂", "e\u{301}", "“", "x"] {
        for shift in 0..4 {
            let long = |n: usize| format!("{}{}", "a".repeat(n - 4 + shift), sample.repeat(4));
            for what in ["error", "answer"] {
                let body = json!({"model": long(NAME), "max_tokens": 9, "system": long(MESSAGE), "messages": [{"role": "user", "content": what}]}).to_string();
                let reply = post(&gateway, &["x-session-id: session-e08"], &body).await;
                assert_eq!(reply.status, if what == "error" { 400 } else { 200 });
                assert_eq!(upstream.last().body, body.as_bytes());
                sent.push((long(NAME), long(MESSAGE), what));
            }
        }
    }
    let turns = gateway.turns(sent.len()).await;
    let is_cut = |kept: &Value, whole: &str, limit: usize| {
        let kept = kept.as_str().unwrap();
        assert!(whole.starts_with(kept), "{kept:?} of {whole:?}");
        assert!(
            kept.len() <= limit && (kept.len() > limit - 4 || kept == whole),
            "{} bytes of {}",
            kept.len(),
            whole.len()
        );
    };
    for (turn, (name, message, what)) in turns.iter().zip(&sent) {
        is_cut(&turn["model_requested"], name, NAME);
        if *what == "error" {
            is_cut(&turn["error_message"], message, MESSAGE);
            is_cut(&turn["error_type"], name, NAME);
        } else {
            is_cut(&turn["model_served"], name, NAME);
            is_cut(&turn["response_id"], name, NAME);
        }
    }
}

const PEM: &str =
    "-----BEGIN RSA PRIVATE KEY-----\\nMIIEpAIBAAKCAQEAsecretpem\\n-----END RSA PRIVATE KEY-----";
const SECRETS: [&str; 8] = [
    "jo@example.org",
    "my mail is",
    "AKIAABCDEFGHIJKLMNOP",
    "export K=",
    "MIIEpAIBAAKCAQEAsecretpem",
    "BEGIN RSA PRIVATE KEY",
    "hunter2",
    "sk-ant-api03-the-key-of-this-client",
];

fn secret_body(stream: bool) -> String {
    let system = format!("password=hunter2 {}", "x ".repeat(4000));
    format!(
        r#"{{"model":"test-sonnet","max_tokens":9,"stream":{stream},"system":"{system}","tools":[{{"name":"Bash","input_schema":{{"type":"object"}}}}],"messages":[{{"role":"user","content":"my mail is jo@example.org"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"toolu_1","name":"Bash","input":{{"cmd":"export K=AKIAABCDEFGHIJKLMNOP"}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_1","content":"{PEM}"}}]}}]}}"#
    )
}

/// Every file of the gateway: database, write-ahead log, log, configuration, and whatever else.
fn files(gateway: &Gateway) -> Vec<(String, Vec<u8>)> {
    let mut found = vec![("log".to_owned(), gateway.log().into_bytes())];
    for entry in std::fs::read_dir(gateway.data()).unwrap() {
        let path = entry.unwrap().path();
        found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
    }
    found
}

fn nothing_kept(gateway: &Gateway, metrics: &str, reports: &[Value]) {
    let mut places = files(gateway);
    places.push(("metrics".into(), metrics.as_bytes().to_vec()));
    places.push(("reports".into(), serde_json::to_vec(reports).unwrap()));
    for (place, bytes) in places {
        for secret in SECRETS {
            let found = memchr::memmem::find(&bytes, secret.as_bytes());
            assert!(found.is_none(), "{secret:?} is in {place}");
        }
    }
}

#[tokio::test]
async fn e15_nothing_of_the_content_is_kept_by_default() {
    let said = "my mail is jo@example.org, password=hunter2, export K=AKIAABCDEFGHIJKLMNOP, MIIEpAIBAAKCAQEAsecretpem";
    let upstream = Upstream::start(move |seen, n| {
        if seen.json()["stream"] == true {
            let text = stream_events("test-sonnet", &plain(10, 1), said, r#"{"output_tokens":9}"#);
            return streamed(&text, [Step::write(LAST_CHUNK)]);
        }
        let body = match n {
            // A call that repeats it, then refusals that quote it as providers do.
            1 => format!(
                r#"{{"id":"msg_1","type":"message","role":"assistant","model":"test-sonnet","content":[{{"type":"text","text":"{said}"}},{{"type":"tool_use","id":"toolu_2","name":"Bash","input":{{"cmd":"export K=AKIAABCDEFGHIJKLMNOP"}}}}],"stop_reason":"tool_use","usage":{}}}"#,
                plain(10, 10)
            ),
            _ => message("test-sonnet", &plain(10, 10)),
        };
        vec![Step::Write(http_json(200, &body))]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let session = [
        "x-session-id: session-e15",
        "authorization: Bearer sk-ant-api03-the-key-of-this-client",
    ];
    for stream in [true, false, false] {
        let body = secret_body(stream);
        let reply = post(&gateway, &session, &body).await;
        assert_eq!(reply.status, 200);
        let seen = upstream.last();
        let text = String::from_utf8(seen.body).unwrap();
        for secret in &SECRETS[..7] {
            assert!(
                text.contains(secret),
                "{secret:?} must not be masked on its way"
            );
        }
        // Markers apart, nothing differs.
        let bare = text
            .replace(super::OURS, "")
            .replace(r#"[{"type":"text","text":"#, "");
        assert!(bare.len() <= body.len() + 4);
    }
    let turns = gateway.turns(3).await;
    let metrics = gateway.metrics().await;
    nothing_kept(&gateway, &metrics, &turns);
    // What is wanted is there.
    assert!(
        turns
            .iter()
            .all(|t| t["cost_usd"].is_string() && t["blocks"] == 5 && t["tools"] == 1)
    );
    let name: String = super::database(&gateway)
        .query_row("SELECT name FROM tool_calls", [], |r| r.get(0))
        .unwrap();
    assert_eq!(name, "Bash");
    let credential: String = super::database(&gateway)
        .query_row("SELECT credential FROM turns LIMIT 1", [], |r| r.get(0))
        .unwrap();
    assert!(credential.len() == 16 && credential.bytes().all(|b| b.is_ascii_hexdigit()));
}

/// The provider quotes what it did not like, and the client puts secrets where they do not belong.
#[tokio::test]
async fn e15_errors_and_odd_places_give_nothing_away() {
    let upstream = Upstream::start(|seen, _| {
        let answer = if seen.line().contains("count_tokens") {
            http_json(200, r#"{"input_tokens":3}"#)
        } else {
            http_json(
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content: 'my mail is jo@example.org' is not allowed; tools.0: \"export K=AKIAABCDEFGHIJKLMNOP\" does not match '^[a-z]+$'; `password=hunter2`"}}"#,
            )
        };
        vec![Step::Write(answer)]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let session = ["x-session-id: session-e15"];
    let reply = post(&gateway, &session, &secret_body(false)).await;
    assert!(
        reply.text().contains("jo@example.org"),
        "the client is told all of it"
    );
    // In a query, which is not recorded, and in a body that cannot be read.
    Wire::exchange(
        gateway.proxy,
        "/v1/messages/count_tokens?password=hunter2",
        &session,
        b"{}",
    )
    .await;
    post(&gateway, &session, "{\"model\": my mail is jo@example.org").await;
    let turns = gateway.turns(2).await;
    let metrics = gateway.metrics().await;
    nothing_kept(&gateway, &metrics, &turns);
    // What is not a quotation stays, because it says what to do.
    let message = turns[0]["error_message"].as_str().unwrap();
    assert!(message.starts_with("messages.0.content: "), "{message}");
    assert!(message.contains("does not match"), "{message}");
}

#[tokio::test]
async fn keys_are_only_known_as_a_hash_of_this_installation() {
    let upstream = Upstream::answering(http_json(200, &message("test-sonnet", &plain(1, 1)))).await;
    let mut hashes = Vec::new();
    for _ in 0..2 {
        let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
        post(&gateway, &[], &ask("test-sonnet", false)).await;
        only_turn(&gateway).await;
        let hash: String = super::database(&gateway)
            .query_row("SELECT credential FROM turns", [], |r| r.get(0))
            .unwrap();
        hashes.push(hash);
        use std::os::unix::fs::PermissionsExt as _;
        let secret = std::fs::metadata(gateway.data().join("secret")).unwrap();
        assert_eq!(secret.permissions().mode() & 0o777, 0o600);
    }
    assert_ne!(
        hashes[0], hashes[1],
        "nobody can confirm a guess without the installation's secret"
    );
}
