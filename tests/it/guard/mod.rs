//! Loops and caps, through the real program unless time has to be moved by hand.

mod caps;
mod hints;
mod loops;
mod redis_away;
mod stops;
mod storm;
mod tools;
mod unattended;

use serde_json::{Value, json};

use crate::support::client::Reply;
use crate::support::upstream::{SSE_HEAD, Seen, json as http_json, message, stream_events};
use crate::support::{Gateway, Step, Upstream, Wire};

/// One round of an agent: the calls of an answer with their results.
#[derive(Debug, Clone)]
pub struct Round(Vec<(String, Value, Told)>);

/// What a result says.
#[derive(Debug, Clone)]
pub enum Told {
    /// Flagged as failed.
    Failed(String),
    /// Flagged as nothing.
    Said(String),
}

/// A call that failed.
pub fn failed(tool: &str, input: Value, error: &str) -> Round {
    Round(vec![(tool.into(), input, Told::Failed(error.into()))])
}

/// A call that gave something.
pub fn said(tool: &str, input: Value, text: &str) -> Round {
    Round(vec![(tool.into(), input, Told::Said(text.into()))])
}

/// Messages of a conversation of these rounds; ids are numbered.
pub fn messages(rounds: &[Round]) -> Vec<Value> {
    let mut all = vec![json!({"role": "user", "content": "do it"})];
    for (number, Round(calls)) in rounds.iter().enumerate() {
        let id = |at: usize| format!("toolu_{number}_{at}");
        let uses = calls.iter().enumerate().map(|(at, (name, input, _))| {
            json!({"type": "tool_use", "id": id(at), "name": name, "input": input})
        });
        all.push(json!({"role": "assistant", "content": uses.collect::<Vec<_>>()}));
        let results = calls.iter().enumerate().map(|(at, (_, _, told))| match told {
            Told::Failed(text) => {
                json!({"type": "tool_result", "tool_use_id": id(at), "content": text, "is_error": true})
            }
            Told::Said(text) => {
                json!({"type": "tool_result", "tool_use_id": id(at), "content": text})
            }
        });
        all.push(json!({"role": "user", "content": results.collect::<Vec<_>>()}));
    }
    all
}

/// A request with these messages.
pub fn body(messages: Vec<Value>) -> Value {
    let tool = |name: &str| json!({"name": name, "description": "A tool.", "input_schema": {"type": "object"}});
    let tools: Vec<Value> = [
        "read_file",
        "edit",
        "read",
        "search",
        "get",
        "sleep",
        "read_output",
        "test",
    ]
    .into_iter()
    .map(tool)
    .collect();
    json!({
        "model": "test-sonnet",
        "max_tokens": 64,
        "tools": tools,
        "messages": messages,
    })
}

/// Sends a request of a run.
pub async fn send(gateway: &Gateway, run: &str, body: &Value) -> Reply {
    send_with(gateway, run, &[], body).await
}

/// ... with more headers.
pub async fn send_with(gateway: &Gateway, run: &str, headers: &[&str], body: &Value) -> Reply {
    let run = format!("x-prefixgate-run: {run}");
    let headers: Vec<&str> = headers.iter().copied().chain([run.as_str()]).collect();
    Wire::exchange(
        gateway.proxy,
        "/v1/messages",
        &headers,
        body.to_string().as_bytes(),
    )
    .await
}

/// An upstream whose answers use so many tokens.
pub async fn answering(input: u64, output: u64) -> Upstream {
    Upstream::start(move |seen, _| vec![answer(seen, input, output)]).await
}

/// An answer in the form that was asked for.
pub fn answer(seen: &Seen, input: u64, output: u64) -> Step {
    let usage = format!(
        r#"{{"input_tokens":{input},"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":{output}}}"#
    );
    if seen.json()["stream"] == json!(true) {
        let mut bytes = SSE_HEAD.to_vec();
        let events = stream_events("test-sonnet", &usage, "hi", &usage);
        bytes.extend(crate::support::upstream::chunk(events.as_bytes()));
        bytes.extend(crate::support::upstream::LAST_CHUNK);
        return Step::write(bytes);
    }
    Step::write(http_json(200, &message("test-sonnet", &usage)))
}
