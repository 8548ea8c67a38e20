//! Answers in the model's place, and ladders.

use serde_json::json;

use super::{answering, body, failed, messages, send};
use crate::support::{Gateway, PRICES};

fn rounds(n: usize) -> Vec<super::Round> {
    vec![failed("read_file", json!({"path": "/nope"}), "ENOENT: /nope"); n]
}

#[tokio::test]
async fn an_answer_of_our_own_is_whole_and_valid_in_both_forms() {
    let upstream = answering(10, 5).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &["--loops", "answer"]);
    let mut request = body(messages(&rounds(3)));
    let reply = send(&gateway, "whole", &request).await;
    assert_eq!(reply.status, 200);
    let message = reply.json();
    assert_eq!(message["type"], "message");
    assert_eq!(message["role"], "assistant");
    assert_eq!(message["stop_reason"], "end_turn");
    assert_eq!(message["model"], "test-sonnet");
    let text = message["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("`read_file`") && text.contains("3 times"),
        "{text}"
    );

    request["stream"] = json!(true);
    let reply = send(&gateway, "stream", &request).await;
    assert_eq!(reply.status, 200);
    assert!(
        reply
            .header("content-type")
            .unwrap()
            .starts_with("text/event-stream")
    );
    let names: Vec<String> = reply
        .text()
        .lines()
        .filter_map(|line| Some(line.strip_prefix("event: ")?.to_owned()))
        .collect();
    assert_eq!(
        names,
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    assert!(upstream.seen().is_empty());
    for run in ["whole", "stream"] {
        let turns = gateway.turns_of(run, 1).await;
        assert_eq!(turns[0]["outcome"], "refused");
        assert_eq!(turns[0]["guard"]["action"], "answer");
        assert!(turns[0]["cost_usd"].is_null());
    }
}

#[tokio::test]
async fn a_ladder_steers_before_it_stops() {
    let upstream = answering(10, 5).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &["--loops", "hint,answer"]);
    for n in 0..6 {
        let reply = send(&gateway, "l", &body(messages(&rounds(n)))).await;
        assert_eq!(reply.status, 200);
        let seen = upstream.last().json();
        let hints = seen["messages"].to_string().matches("[prefixgate]").count();
        assert_eq!(hints, n.saturating_sub(2), "{n}");
    }
    let before = upstream.seen().len();
    let reply = send(&gateway, "l", &body(messages(&rounds(6)))).await;
    assert_eq!(reply.status, 200);
    assert!(reply.text().contains("6 times"), "{}", reply.text());
    assert_eq!(upstream.seen().len(), before);
    let loops = |action: &'static str| {
        let gateway = &gateway;
        async move {
            let label = format!("action=\"{action}\"");
            gateway.metric("prefixgate_loops_total", &[&label]).await
        }
    };
    assert_eq!((loops("hint").await, loops("answer").await), (1.0, 1.0));
}
