//! Tool calls as the wire shows them.

use serde_json::{Value, json};

use super::{agent_body, plain, post, streamed};
use crate::support::upstream::{LAST_CHUNK, event, json as http_json, message};
use crate::support::{Gateway, PRICES, Step, Upstream, eventually};

/// A row of the table.
#[derive(Debug, PartialEq)]
struct Call {
    id: String,
    name: String,
    status: String,
    latency: Option<i64>,
    input_bytes: i64,
    result_bytes: Option<i64>,
    input_hash: String,
    run: String,
    thread: String,
}

fn rows(gateway: &Gateway) -> Vec<Call> {
    let database = super::database(gateway);
    let mut query = database
        .prepare("SELECT call_id, name, status, latency_ms, input_bytes, result_bytes, input_hash, run_id, thread_id FROM tool_calls ORDER BY seq")
        .unwrap();
    let rows = query.query_map([], |row| {
        Ok(Call {
            id: row.get(0)?,
            name: row.get(1)?,
            status: row.get(2)?,
            latency: row.get(3)?,
            input_bytes: row.get(4)?,
            result_bytes: row.get(5)?,
            input_hash: row.get(6)?,
            run: row.get(7)?,
            thread: row.get(8)?,
        })
    });
    rows.unwrap().map(Result::unwrap).collect()
}

async fn calls(gateway: &Gateway, settled: impl Fn(&[Call]) -> bool) -> Vec<Call> {
    eventually("the tool calls stand as expected", async || {
        let rows = rows(gateway);
        settled(&rows).then_some(rows)
    })
    .await
}

fn status(all: &[Call]) -> Vec<&str> {
    all.iter().map(|c| c.status.as_str()).collect()
}

/// Two calls side by side as a stream, each with its input in pieces.
fn parallel(ids: [&str; 2], cut: bool) -> String {
    let start = format!(
        r#"{{"type":"message_start","message":{{"id":"msg_{0}","type":"message","role":"assistant","model":"test-sonnet","content":[],"stop_reason":null,"usage":{1}}}}}"#,
        ids[0],
        plain(10, 1)
    );
    let open = |index: u32, id: &str, name: &str| {
        format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}}}"#
        )
    };
    let piece = |index: u32, text: &str| {
        json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": text}}).to_string()
    };
    let close = |index: u32| format!(r#"{{"type":"content_block_stop","index":{index}}}"#);
    let mut events = vec![
        start,
        open(0, ids[0], "Bash"),
        piece(0, r#"{"command":"ec"#),
        piece(0, r#"ho hidden-word"}"#),
        close(0),
        open(1, ids[1], "Read"),
        piece(1, r#"{"file":"#),
    ];
    if !cut {
        events.extend([
            piece(1, r#""a"}"#),
            close(1),
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":20}}"#.into(),
            r#"{"type":"message_stop"}"#.into(),
        ]);
    }
    events.iter().map(|data| event(data)).collect()
}

fn stream_body() -> Value {
    let mut body = agent_body("test-sonnet", "go");
    body["stream"] = true.into();
    body
}

fn answer_with(body: &mut Value, ids: [&str; 2], failed: bool) {
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": [
        {"type": "tool_use", "id": ids[0], "name": "Bash", "input": {"command": "echo hidden-word"}},
        {"type": "tool_use", "id": ids[1], "name": "Read", "input": {"file": "a"}},
    ]}));
    messages.push(json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": ids[0], "content": "twelve bytes", "is_error": false},
        {"type": "tool_result", "tool_use_id": ids[1], "content": [{"type": "text", "text": "no such file"}], "is_error": failed},
    ]}));
}

async fn upstream() -> Upstream {
    Upstream::start(|_, n| match n {
        0 => streamed(
            &parallel(["toolu_1", "toolu_2"], false),
            [Step::write(LAST_CHUNK)],
        ),
        _ => vec![Step::Write(http_json(
            200,
            &message("test-sonnet", &plain(10, 10)),
        ))],
    })
    .await
}

#[tokio::test]
async fn parallel_calls_are_asked_and_settled_one_by_one() {
    let upstream = upstream().await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let session = ["x-session-id: session-tools"];
    let mut body = stream_body();
    post(&gateway, &session, &body.to_string()).await;
    let asked = calls(&gateway, |all| all.len() == 2).await;
    assert_eq!(status(&asked), ["pending", "pending"]);
    assert_eq!(
        (asked[0].name.as_str(), asked[1].name.as_str()),
        ("Bash", "Read")
    );
    assert_eq!((asked[0].input_bytes, asked[1].input_bytes), (30, 12));
    assert!(
        asked
            .iter()
            .all(|c| c.latency.is_none() && c.result_bytes.is_none())
    );
    assert!(
        asked
            .iter()
            .all(|c| c.run == "session-tools" && c.thread == "main")
    );
    // A hash that only this installation can make.
    assert!(
        asked
            .iter()
            .all(|c| c.input_hash.len() >= 16 && !c.input_hash.contains("echo"))
    );
    assert_ne!(asked[0].input_hash, asked[1].input_hash);

    answer_with(&mut body, ["toolu_1", "toolu_2"], true);
    post(&gateway, &session, &body.to_string()).await;
    let settled = calls(&gateway, |all| all.iter().all(|c| c.status != "pending")).await;
    assert_eq!(status(&settled), ["ok", "failed"]);
    assert!(
        settled
            .iter()
            .all(|c| c.latency.is_some_and(|ms| (0..60_000).contains(&ms))),
        "{settled:?}"
    );
    assert!(settled[0].result_bytes.unwrap() >= 12);

    // The history comes again with every turn and changes nothing.
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": "well"}));
    messages.push(json!({"role": "user", "content": "more"}));
    post(&gateway, &session, &body.to_string()).await;
    gateway.turns(3).await;
    assert_eq!(rows(&gateway), settled);
    for (status, n) in [
        ("asked", 2.0),
        ("ok", 1.0),
        ("failed", 1.0),
        ("incomplete", 0.0),
    ] {
        let label = format!("status=\"{status}\"");
        assert_eq!(
            gateway
                .metric("prefixgate_tool_calls_total", &[&label])
                .await,
            n,
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_call_that_broke_off_is_incomplete() {
    let upstream =
        Upstream::start(|_, _| streamed(&parallel(["toolu_1", "toolu_2"], true), [Step::Close]))
            .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    post(&gateway, &[], &stream_body().to_string()).await;
    let all = calls(&gateway, |all| all.len() == 2).await;
    assert_eq!(status(&all), ["pending", "incomplete"]);
    assert_eq!(
        gateway
            .metric("prefixgate_tool_calls_total", &["incomplete"])
            .await,
        1.0
    );
}

/// Results that come after a restart belong to calls that were asked for before it.
#[tokio::test]
async fn a_result_after_a_restart_settles_its_call() {
    let upstream = upstream().await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let session = ["x-session-id: session-tools"];
    let mut body = stream_body();
    post(&gateway, &session, &body.to_string()).await;
    calls(&gateway, |all| all.len() == 2).await;
    gateway.turns(1).await;
    let gateway = gateway.restart(&upstream.url(), PRICES, &[]);
    answer_with(&mut body, ["toolu_1", "toolu_2"], false);
    post(&gateway, &session, &body.to_string()).await;
    let settled = calls(&gateway, |all| all.iter().all(|c| c.status != "pending")).await;
    assert_eq!(status(&settled), ["ok", "ok"]);
    assert!(settled.iter().all(|c| c.result_bytes.is_some()));
}

/// Small models and scripted ones number their calls anew in every conversation.
#[tokio::test]
async fn the_same_id_in_two_runs_is_two_calls() {
    let upstream = Upstream::start(|seen, _| {
        if seen.json()["messages"].as_array().unwrap().len() == 1 {
            streamed(
                &parallel(["call_1", "call_2"], false),
                [Step::write(LAST_CHUNK)],
            )
        } else {
            vec![Step::Write(http_json(
                200,
                &message("test-sonnet", &plain(10, 10)),
            ))]
        }
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let runs = [["x-session-id: session-a"], ["x-session-id: session-b"]];
    let mut bodies = [stream_body(), stream_body()];
    for (run, body) in runs.iter().zip(&bodies) {
        post(&gateway, run, &body.to_string()).await;
    }
    calls(&gateway, |all| all.len() == 4).await;
    // The first to ask brings its results first; the second one's fail.
    for (n, (run, body)) in runs.iter().zip(&mut bodies).enumerate() {
        answer_with(body, ["call_1", "call_2"], n == 1);
        post(&gateway, run, &body.to_string()).await;
    }
    let settled = calls(&gateway, |all| all.iter().all(|c| c.status != "pending")).await;
    let of = |run: &str| {
        settled
            .iter()
            .filter(|c| c.run == run)
            .map(|c| c.status.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("session-a"), ["ok", "ok"]);
    assert_eq!(of("session-b"), ["ok", "failed"]);
}
