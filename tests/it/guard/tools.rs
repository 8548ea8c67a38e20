//! Tool calls as records: what failed, was tried again, was never answered, or was wrong itself.

use serde_json::{Value, json};

use super::{failed, messages, said};
use crate::support::upstream::{Seen, json as http_json};
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, eventually};

/// An answer that makes these calls.
fn calling(calls: &[(&str, &str, Value)]) -> Step {
    let uses: Vec<Value> = calls
        .iter()
        .map(
            |(id, name, input)| json!({"type": "tool_use", "id": id, "name": name, "input": input}),
        )
        .collect();
    let message = json!({
        "id": format!("msg_{}", calls[0].0), "type": "message", "role": "assistant",
        "model": "test-sonnet", "content": uses, "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 0,
                  "cache_creation_input_tokens": 0, "output_tokens": 5},
    });
    Step::write(http_json(200, &message.to_string()))
}

fn body(messages: &[Value]) -> Value {
    let tools = json!([
        {"name": "read", "input_schema": {"type": "object", "properties": {"file": {"type": "string"}},
                                           "required": ["file"], "additionalProperties": false}},
        {"name": "build", "input_schema": {"type": "object"}},
    ]);
    json!({"model": "test-sonnet", "max_tokens": 64, "tools": tools, "messages": messages})
}

async fn tools(gateway: &Gateway, settled: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    eventually("the tools stand as expected", async || {
        let rows = gateway.report(&["tools"]);
        settled(&rows).then_some(rows)
    })
    .await
}

fn row<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter()
        .find(|row| row["tool"] == name)
        .unwrap_or(&Value::Null)
}

#[tokio::test]
async fn calls_are_paired_and_failures_without_a_flag_are_read() {
    let script = |_: &Seen, number: usize| {
        vec![match number {
            0 => calling(&[
                ("toolu_0_0", "build", json!({})),
                ("toolu_0_1", "read", json!({"file": "a"})),
            ]),
            n => calling(&[(&format!("toolu_{n}_0"), "build", json!({}))]),
        }]
    };
    let upstream = Upstream::start(script).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let mut rounds = vec![];
    let parallel = {
        let mut first = failed("build", json!({}), "ignored");
        first.0 = vec![
            (
                "build".into(),
                json!({}),
                super::Told::Said("make: no rule\nProcess exited with code 2".into()),
            ),
            (
                "read".into(),
                json!({"file": "a"}),
                super::Told::Said("an error: is what this file is about".into()),
            ),
        ];
        first
    };
    rounds.push(parallel);
    rounds.push(said("build", json!({}), "Process exited with code 2"));
    rounds.push(said("build", json!({}), "Process exited with code 0"));
    for n in 0..=3 {
        super::send(&gateway, "r", &body(&messages(&rounds[..n]))).await;
    }
    let rows = tools(&gateway, |rows| row(rows, "build")["ok"] == 1).await;
    let build = row(&rows, "build");
    assert_eq!(
        (&build["calls"], &build["failed"], &build["pending"]),
        (&json!(4), &json!(2), &json!(1)),
        "{build}"
    );
    // The second and the third repeat what had just failed.
    assert_eq!(build["retried"], 2, "{build}");
    let read = row(&rows, "read");
    assert_eq!(
        (&read["calls"], &read["ok"]),
        (&json!(1), &json!(1)),
        "{read}"
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_call_itself_is_said() {
    let script = |_: &Seen, _: usize| {
        vec![calling(&[
            ("c1", "read", json!({"file": "a"})),
            ("c2", "read", json!({"path": "a"})),
            ("c3", "delete_all", json!({})),
        ])]
    };
    let upstream = Upstream::start(script).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    super::send(&gateway, "r", &body(&messages(&[]))).await;
    let rows = tools(&gateway, |rows| rows.len() == 2).await;
    let read = row(&rows, "read");
    assert_eq!(
        (&read["calls"], &read["invalid_input"]),
        (&json!(2), &json!(1)),
        "{read}"
    );
    let unknown = row(&rows, "delete_all");
    assert_eq!(
        (&unknown["calls"], &unknown["undeclared"]),
        (&json!(1), &json!(1)),
        "{unknown}"
    );
    let metric = gateway
        .metric("prefixgate_tool_calls_total", &["undeclared"])
        .await;
    assert_eq!(metric, 1.0);
}

#[tokio::test]
async fn a_call_that_the_conversation_leaves_behind_is_unanswered() {
    let script = |_: &Seen, number: usize| {
        vec![calling(&[
            (&format!("a{number}"), "build", json!({})),
            (&format!("b{number}"), "read", json!({"file": "a"})),
        ])]
    };
    let upstream = Upstream::start(script).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let first = json!({"role": "user", "content": "do it"});
    super::send(&gateway, "r", &body(std::slice::from_ref(&first))).await;
    let talk = [
        first,
        json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": "a0", "name": "build", "input": {}},
            {"type": "tool_use", "id": "b0", "name": "read", "input": {"file": "a"}},
        ]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a0", "content": "built"},
            {"type": "text", "text": "never mind the other one"},
        ]}),
    ];
    let reply = Wire::exchange(
        gateway.proxy,
        "/v1/messages",
        &["x-prefixgate-run: r"],
        body(&talk).to_string().as_bytes(),
    )
    .await;
    assert_eq!(reply.status, 200);
    let rows = tools(&gateway, |rows| row(rows, "read")["unanswered"] == 1).await;
    assert_eq!(row(&rows, "build")["ok"], 1);
}
