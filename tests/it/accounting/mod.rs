//! Accounting, identity, markers and privacy, end to end: the real program in front of a scripted
//! upstream (exact bytes) or of the simulated provider (which refuses what the API refuses).

mod identity;
mod markers;
mod money;
mod openai;
mod privacy;
mod records;
mod simulated;
mod threads;
mod tools;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::client::Reply;
use crate::support::upstream::{SSE_HEAD, Seen, Step, chunk, json as http_json, message};
use crate::support::{Gateway, Upstream, Wire};

/// About one token each, as long as no word is shared with a needle of a test.
fn filler(tokens: usize) -> String {
    "abc ".repeat(tokens)
}

/// A POST to `/v1/messages`.
async fn post(gateway: &Gateway, headers: &[&str], body: &str) -> Reply {
    Wire::exchange(gateway.proxy, "/v1/messages", headers, body.as_bytes()).await
}

/// An upstream that answers each request with a whole JSON message of this usage.
async fn always(model: &'static str, usage: &'static str) -> Upstream {
    Upstream::answering(http_json(200, &message(model, usage))).await
}

/// Usage of a prompt without any cache.
fn plain(input: u64, output: u64) -> String {
    format!(
        r#"{{"input_tokens":{input},"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":{output}}}"#
    )
}

/// A stream as one write, its connection closed afterwards by `steps`.
fn streamed(events: &str, steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let mut all = vec![Step::write(SSE_HEAD), Step::Write(chunk(events.as_bytes()))];
    all.extend(steps);
    all
}

/// The database of a gateway, for looking into it while the gateway writes.
fn database(gateway: &Gateway) -> Connection {
    Connection::open(database_path(gateway)).unwrap()
}

fn database_path(gateway: &Gateway) -> std::path::PathBuf {
    let mut files = std::fs::read_dir(gateway.data()).unwrap();
    files
        .find_map(|file| {
            let path = file.unwrap().path();
            let database = path.extension().is_some_and(|e| e == "db" || e == "sqlite");
            database.then_some(path)
        })
        .expect("no database in the data directory")
}

/// One number from the database.
fn number(gateway: &Gateway, sql: &str) -> i64 {
    let found = database(gateway).query_row(sql, [], |row| row.get(0));
    found.unwrap()
}

/// A request with a long system prompt and one tool, so that there is something to cache.
fn agent_body(model: &str, question: &str) -> Value {
    json!({
        "model": model,
        "max_tokens": 64,
        "system": [{"type": "text", "text": filler(3000)}],
        "tools": [{"name": "Bash", "description": "runs", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": question}]}],
    })
}

/// The markers that the gateway writes, and the wrapping around a bare string.
const OURS: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// The forwarded bytes without the gateway's markers on objects. Clients of these tests write
/// their own markers in another spelling.
fn without_ours(seen: &Seen) -> String {
    String::from_utf8(seen.body.clone())
        .unwrap()
        .replace(OURS, "")
}

/// Markers in a body, wherever they stand, ours and the client's.
fn count_markers(body: &[u8]) -> usize {
    std::str::from_utf8(body)
        .unwrap()
        .matches("\"cache_control\"")
        .count()
}

/// The single turn of a gateway that has served one.
async fn only_turn(gateway: &Gateway) -> Value {
    let mut turns = gateway.turns(1).await;
    assert_eq!(turns.len(), 1);
    turns.remove(0)
}

fn warnings(turn: &Value) -> Vec<&str> {
    let all = turn["warnings"].as_array().unwrap();
    all.iter().map(|w| w.as_str().unwrap()).collect()
}
