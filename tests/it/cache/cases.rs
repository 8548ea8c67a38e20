//! The cases of the project by their ids: the real program in front of an upstream that reports
//! their literal numbers.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::upstream::{
    LAST_CHUNK, SSE_HEAD, Seen, Step, chunk, json as http_json, message, stream_events,
};
use crate::support::{Gateway, PRICES, Upstream, Wire};

/// Nothing is inserted.
const OFF: &[&str] = &["--cache", "off"];

/// Usage as the provider writes it.
fn usage(input: u64, read: u64, written: u64) -> String {
    format!(
        r#"{{"input_tokens":{input},"cache_read_input_tokens":{read},"cache_creation_input_tokens":{written},"output_tokens":5}}"#
    )
}

/// A whole answer, or the same as a stream where the request wants one.
fn answer(seen: &Seen, model: &str, usage: &str) -> Vec<Step> {
    if seen.json()["stream"] == json!(true) {
        let events = stream_events(model, usage, "hi", r#"{"output_tokens":5}"#);
        let mut bytes = SSE_HEAD.to_vec();
        bytes.extend(chunk(events.as_bytes()));
        bytes.extend(LAST_CHUNK);
        return vec![Step::Write(bytes)];
    }
    vec![Step::Write(http_json(200, &message(model, usage)))]
}

/// Answers the requests one after the other with these usages.
async fn upstream(model: &'static str, usages: Vec<String>) -> Upstream {
    Upstream::start(move |seen, number| answer(seen, model, &usages[number])).await
}

/// A stack of requests through a gateway that adds nothing: what it recorded, and its audit.
struct Told {
    turns: Vec<Value>,
    audit: Value,
    gateway: Gateway,
}

async fn tell(upstream: &Upstream, config: &str, requests: &[(&[&str], Value)]) -> Told {
    let gateway = Gateway::with(&upstream.url(), config, OFF);
    for (number, (headers, body)) in requests.iter().enumerate() {
        let body = body.to_string();
        let reply = Wire::exchange(gateway.proxy, "/v1/messages", headers, body.as_bytes()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(
            upstream.seen()[number].body,
            body.as_bytes(),
            "bytes were changed"
        );
        // One after the other, so that records stand in the order of the requests.
        gateway.turns(number + 1).await;
    }
    let turns = gateway.turns(requests.len()).await;
    Told {
        audit: audit(&gateway),
        turns,
        gateway,
    }
}

fn audit(gateway: &Gateway) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_prefixgate"))
        .args(["audit", "--json", "--data-dir"])
        .arg(gateway.data())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn filler(tokens: usize) -> String {
    "abc ".repeat(tokens)
}

fn tool(name: &str) -> Value {
    json!({"name": name, "description": format!("{name} {}", filler(100)), "input_schema": {"type": "object"}})
}

fn text(text: impl Into<String>) -> Value {
    json!({"type": "text", "text": text.into()})
}

fn marked(mut block: Value) -> Value {
    block["cache_control"] = json!({"type": "ephemeral"});
    block
}

/// Messages of alternating roles, the first the user's.
fn talk(count: usize) -> Vec<Value> {
    (0..count)
        .map(|n| {
            let role = if n % 2 == 0 { "user" } else { "assistant" };
            json!({"role": role, "content": [text(format!("message {n} {}", filler(60)))]})
        })
        .collect()
}

fn body(tools: &[Value], messages: &[Value]) -> Value {
    let mut messages = messages.to_vec();
    if let Some(last) = messages
        .last_mut()
        .and_then(|m| m["content"].as_array_mut()?.last_mut())
    {
        last["cache_control"] = json!({"type": "ephemeral"});
    }
    json!({"model": "test-sonnet", "max_tokens": 64, "tools": tools,
           "system": [marked(text(filler(3000)))], "messages": messages})
}

const SESSION: &[&str] = &["x-claude-code-session-id: s1"];

#[tokio::test]
async fn a01_clock_with_seconds_in_the_system_prompt() {
    for streamed in [false, true] {
        let upstream = upstream("test-sonnet", vec![usage(20, 0, 3100); 10]).await;
        let requests: Vec<_> = (0..10)
            .map(|n| {
                let mut body = body(&[tool("T1"), tool("T2")], &talk(2 * n + 1));
                let now = format!("Now: 2026-01-05 10:00:{:02}. {}", n * 6, filler(3000));
                body["system"] = json!([marked(text(now))]);
                body["stream"] = json!(streamed);
                (SESSION, body)
            })
            .collect();
        let told = tell(
            &upstream,
            &format!("{PRICES}\n[cache]\nexcerpts = true\n"),
            &requests,
        )
        .await;
        assert_eq!(told.turns[0]["verdict"]["status"], "cold");
        for (n, turn) in told.turns.iter().enumerate().skip(1) {
            let verdict = &turn["verdict"];
            assert_eq!(verdict["status"], "miss", "{turn}");
            assert_eq!(verdict["reason"], "system");
            assert_eq!(verdict["first_changed"], "system[0].text");
            // The first digit of the seconds where that changes, else the second.
            let first = n * 6 / 10 != (n - 1) * 6 / 10;
            assert_eq!(verdict["offset"], if first { 22 } else { 23 }, "{verdict}");
            assert_eq!(
                (&verdict["what"], &verdict["whose"]),
                (&json!("clock"), &json!("client"))
            );
            assert_eq!(verdict["lost_tokens"], 3100);
            assert_eq!(verdict["lost_usd"], "0.010695");
            assert_eq!(verdict["strikes"], n);
            for (side, second) in [("before", n * 6 - 6), ("after", n * 6)] {
                let shown = verdict["excerpt"][side].as_str().unwrap();
                assert!(shown.len() <= 40, "{shown}");
                assert!(shown.contains(&format!("10:00:{second:02}")), "{shown}");
            }
        }
        let culprits = told.audit["culprits"].as_array().unwrap();
        assert_eq!(culprits.len(), 1, "{}", told.audit);
        assert_eq!(culprits[0]["turns"], 9);
        assert_eq!(culprits[0]["path"], "system[0].text");
        assert_eq!(culprits[0]["lost_usd"], "0.096255");
        assert_eq!(culprits[0]["lost_tokens"], 27_900);
    }
}

#[tokio::test]
async fn a03_same_tools_in_another_order() {
    let [a1, a2, b1, new] = ["a1", "a2", "b1", "c9"].map(tool);
    let upstream = upstream(
        "test-sonnet",
        vec![usage(20, 0, 9000), usage(20, 0, 9000), usage(20, 0, 9100)],
    )
    .await;
    let requests = [
        (
            SESSION,
            body(&[a1.clone(), a2.clone(), b1.clone()], &talk(1)),
        ),
        (
            SESSION,
            body(&[b1.clone(), a1.clone(), a2.clone()], &talk(3)),
        ),
        (SESSION, body(&[b1, a1, new, a2], &talk(5))),
    ];
    let told = tell(&upstream, PRICES, &requests).await;
    let verdict = &told.turns[1]["verdict"];
    assert_eq!(
        (&verdict["status"], &verdict["reason"]),
        (&json!("miss"), &json!("tools")),
        "{verdict}"
    );
    assert_eq!(verdict["first_changed"], "tools[0]");
    let detail = verdict["detail"].as_str().unwrap();
    assert!(
        detail.contains("same set, order changed") && detail.contains("b1"),
        "{detail}"
    );
    assert!(
        !detail.contains("added") && !detail.contains("removed"),
        "{detail}"
    );
    assert_eq!(verdict["lost_tokens"], 9000);
    let verdict = &told.turns[2]["verdict"];
    assert_eq!(verdict["reason"], "tools", "{verdict}");
    assert_eq!(verdict["first_changed"], "tools[2]");
    let detail = verdict["detail"].as_str().unwrap();
    assert!(detail.contains("added: c9"), "{detail}");
    assert_eq!(verdict["what"], "tool_added");
}

#[tokio::test]
async fn a05_a_reminder_moves_to_the_newest_message() {
    let env = text(format!("<env>{}</env>", filler(500)));
    let skills = text(format!("<skills>{}</skills>", filler(1500)));
    let mut first = talk(9);
    first[0]["content"] = json!([env, skills, text("task")]);
    let mut second = first.clone();
    second[0]["content"] = json!([env, text("task")]);
    second.push(json!({"role": "user", "content": [skills, text("go on")]}));
    let upstream = upstream(
        "test-sonnet",
        vec![usage(50, 0, 44_000), usage(60, 14_000, 30_500)],
    )
    .await;
    let requests = [
        (SESSION, body(&[tool("T1")], &first)),
        (SESSION, body(&[tool("T1")], &second)),
    ];
    let told = tell(&upstream, PRICES, &requests).await;
    let verdict = &told.turns[1]["verdict"];
    assert_eq!(
        (&verdict["status"], &verdict["reason"]),
        (&json!("partial"), &json!("messages")),
        "{verdict}"
    );
    assert_eq!(verdict["first_changed"], "messages[0].content[1]");
    assert_eq!(verdict["what"], "moved");
    let detail = verdict["detail"].as_str().unwrap();
    assert!(
        detail.contains("found again at messages[9].content[0]"),
        "{detail}"
    );
    assert_eq!(verdict["lost_tokens"], 30_000);
}

/// The rewritten history, with the numbers of the case for each variant.
async fn a11(
    name: &str,
    before: Value,
    after: Option<Value>,
    what: &str,
    detail: &str,
    path: &str,
) {
    for streamed in [false, true] {
        let mut first = talk(12);
        let role = &mut first[2]["role"];
        if before["type"] == "thinking" {
            *role = json!("assistant");
        }
        first[2]["content"] = json!([text("look"), before, text(format!("that {}", filler(50)))]);
        let mut second = first.clone();
        let blocks = second[2]["content"].as_array_mut().unwrap();
        match &after {
            Some(after) => blocks[1] = after.clone(),
            None => drop(blocks.remove(1)),
        }
        second.extend(talk(14).split_off(12));
        let mut requests = [
            (SESSION, body(&[tool("T1")], &first)),
            (SESSION, body(&[tool("T1")], &second)),
        ];
        for request in &mut requests {
            request.1["stream"] = json!(streamed);
        }
        let usages = vec![usage(50, 120_000, 1000), usage(60, 18_000, 103_500)];
        let upstream = upstream("test-sonnet", usages).await;
        let told = tell(&upstream, PRICES, &requests).await;
        let verdict = &told.turns[1]["verdict"];
        assert_eq!(
            (&verdict["status"], &verdict["reason"]),
            (&json!("partial"), &json!("messages")),
            "{name}: {verdict}"
        );
        assert_eq!(verdict["what"], what, "{name}: {verdict}");
        assert_eq!(verdict["first_changed"], path, "{name}: {verdict}");
        let said = verdict["detail"].as_str().unwrap();
        assert!(said.contains(detail), "{name}: {said}");
        assert_eq!(verdict["lost_tokens"], 103_000);
        assert_eq!(verdict["lost_usd"], "0.35535");
        assert_eq!(verdict["whose"], "client");
    }
}

fn image(data: &str) -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}})
}

#[tokio::test]
async fn a11_an_image_is_evicted() {
    let stub = text("[image removed]");
    let path = "messages[2].content[1]";
    a11(
        "image",
        image("aGVsbG8="),
        Some(stub),
        "image_replaced",
        "image block replaced by text",
        path,
    )
    .await;
}

#[tokio::test]
async fn a11_thinking_is_dropped() {
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let path = "messages[2].content[1]";
    a11(
        "thinking",
        thinking,
        None,
        "thinking_dropped",
        "thinking block dropped",
        path,
    )
    .await;
}

#[tokio::test]
async fn a11_a_result_is_pruned() {
    let result = |content: &str| json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": content});
    let pruned = result("[old tool result removed]");
    let path = "messages[2].content[1].content";
    a11(
        "result",
        result(&filler(300)),
        Some(pruned),
        "result_pruned",
        "tool result cut",
        path,
    )
    .await;
}

#[tokio::test]
async fn a11_growth_alone_is_no_loss() {
    let upstream = upstream(
        "test-sonnet",
        vec![usage(50, 120_000, 1000), usage(60, 121_000, 500)],
    )
    .await;
    let requests = [
        (SESSION, body(&[tool("T1")], &talk(13))),
        (SESSION, body(&[tool("T1")], &talk(15))),
    ];
    let told = tell(&upstream, PRICES, &requests).await;
    let verdict = &told.turns[1]["verdict"];
    assert_eq!(
        (&verdict["status"], &verdict["reason"]),
        (&json!("extended"), &Value::Null)
    );
    assert_eq!(
        (&verdict["lost_tokens"], &verdict["lost_usd"]),
        (&json!(0), &json!("0"))
    );
    assert_eq!(told.audit["culprits"], json!([]));
}

/// What needs no waiting: nothing is called wasted while it can still be read.
#[tokio::test]
async fn a13_one_shot_calls_before_their_lifetime_is_over() {
    let mut usages = vec![usage(20, 0, 20_000); 4];
    usages.push(usage(20, 20_000, 0));
    let upstream = upstream("test-sonnet", usages).await;
    let sessions: Vec<String> = [1, 2, 3, 4, 4]
        .iter()
        .map(|n| format!("x-claude-code-session-id: s{n}"))
        .collect();
    let headers: Vec<[&str; 1]> = sessions.iter().map(|session| [session.as_str()]).collect();
    let requests: Vec<(&[&str], Value)> = headers
        .iter()
        .map(|header| {
            let mut body = body(&[], &talk(1));
            body["system"] = json!([marked(text(format!("{} {}", header[0], filler(3000))))]);
            (&header[..], body)
        })
        .collect();
    let told = tell(&upstream, PRICES, &requests).await;
    let unread = &told.audit["written_never_read"];
    assert_eq!(
        (&unread["turns"], &unread["rows"]),
        (&json!(0), &json!([])),
        "{unread}"
    );
    assert_eq!(
        (&unread["pending_turns"], &unread["unknown_turns"]),
        (&json!(3), &json!(0)),
        "{unread}"
    );
    for turn in &told.turns[..4] {
        assert_eq!(turn["cache"]["premium_usd"], "0.015");
    }
    assert_eq!(
        told.turns[4]["verdict"]["status"], "hit",
        "{}",
        told.turns[4]
    );
    assert_eq!(told.turns[4]["cache"]["read_of"], told.turns[3]["id"]);
}

#[tokio::test]
async fn a15_below_the_models_minimum() {
    let config = format!(
        "{PRICES}\n[[price]]\nmodel = \"test-small\"\ninput = \"1.00\"\noutput = \"5.00\"\nread = \"0.10\"\nwrite_5m = \"1.25\"\nwrite_1h = \"2.00\"\nmin_cache_tokens = 4096\n"
    );
    let upstream = Upstream::start(|seen, number| {
        let model = seen.json()["model"].as_str().unwrap().to_owned();
        let usage = match (model.as_str(), number) {
            ("test-sonnet", 4) => usage(10, 0, 3000),
            ("test-sonnet", _) => usage(10, 3000, 0),
            _ => usage(3010, 0, 0),
        };
        answer(seen, &model, &usage)
    })
    .await;
    let ask = |model: &str, session: &'static [&'static str]| {
        let body = json!({"model": model, "max_tokens": 64, "system": [marked(text(filler(3000)))],
                          "messages": [{"role": "user", "content": "hello"}]});
        (session, body)
    };
    let small: &[&str] = &["x-claude-code-session-id: small"];
    let none: &[&str] = &["x-claude-code-session-id: none"];
    let sonnet: &[&str] = &["x-claude-code-session-id: sonnet"];
    let requests = [
        ask("test-small", small),
        ask("test-small", small),
        ask("test-none", none),
        ask("test-none", none),
        ask("test-sonnet", sonnet),
        ask("test-sonnet", sonnet),
    ];
    let told = tell(&upstream, &config, &requests).await;
    let said = |n: usize| &told.turns[n]["verdict"];
    for n in 0..2 {
        assert_eq!(
            (&said(n)["status"], &said(n)["reason"]),
            (&json!("not_cacheable"), &json!("below_minimum")),
            "{}",
            said(n)
        );
        assert!(
            said(n)["detail"]
                .as_str()
                .unwrap()
                .contains("below minimum of 4096")
        );
        assert_eq!(said(n)["first_changed"], Value::Null);
    }
    for n in 2..4 {
        assert_eq!(
            (&said(n)["status"], &said(n)["reason"]),
            (&json!("not_cacheable"), &json!("not_written")),
            "{}",
            said(n)
        );
        assert_eq!(said(n)["detail"], "no entry was written");
    }
    assert_eq!(
        (&said(4)["status"], &said(5)["status"]),
        (&json!("cold"), &json!("hit"))
    );
    let ratio = told.audit["totals"]["hit_ratio"].as_f64().unwrap();
    assert!((ratio - 3000.0 / (6.0 * 3010.0)).abs() < 1e-9, "{ratio}");
}

#[tokio::test]
async fn a16_a_side_call_of_the_same_session() {
    let usages = vec![
        usage(20, 0, 90_000),
        usage(20, 90_000, 1000),
        usage(90_000, 0, 0),
        usage(20, 91_000, 600),
    ];
    let upstream = upstream("test-sonnet", usages).await;
    let side = json!({"model": "test-sonnet", "max_tokens": 64, "system": "Summarise",
                      "messages": [{"role": "user", "content": filler(2000)}]});
    let main = [tool("T1"), tool("T2")];
    let requests = [
        (SESSION, body(&main, &talk(5))),
        (SESSION, body(&main, &talk(7))),
        (SESSION, side),
        (SESSION, body(&main, &talk(9))),
    ];
    let told = tell(&upstream, PRICES, &requests).await;
    let statuses: Vec<_> = told
        .turns
        .iter()
        .map(|t| t["verdict"]["status"].as_str().unwrap())
        .collect();
    assert_eq!(
        statuses,
        ["cold", "extended", "cold", "extended"],
        "{:#?}",
        told.turns
    );
    let side = &told.turns[2];
    assert!(
        side["verdict"]["detail"]
            .as_str()
            .unwrap()
            .contains("shares no prefix"),
        "{side}"
    );
    assert_ne!(side["thread"], told.turns[0]["thread"]);
    assert_eq!(told.turns[3]["thread"], told.turns[0]["thread"]);
    assert_eq!(told.turns[3]["verdict"]["lost_tokens"], 0);
    assert_eq!(side["cost_usd"], "0.270075");
    let runs = told.gateway.report(&["runs"]);
    assert_eq!((runs.len(), &runs[0]["turns"]), (1, &json!(4)));
    let sum: f64 = told
        .turns
        .iter()
        .map(|t| t["cost_usd"].as_str().unwrap().parse::<f64>().unwrap())
        .sum();
    let run: f64 = runs[0]["cost_usd"].as_str().unwrap().parse().unwrap();
    assert!((sum - run).abs() < 1e-12);
    assert_eq!(told.audit["culprits"], json!([]), "nothing was broken");
}

#[tokio::test]
async fn c05_a_loss_of_one_hour_writes_costs_their_price() {
    let split = r#"{"input_tokens":10,"cache_creation_input_tokens":10000,"cache_creation":{"ephemeral_5m_input_tokens":4000,"ephemeral_1h_input_tokens":6000},"cache_read_input_tokens":0,"output_tokens":1}"#;
    let upstream = Upstream::start(move |_, _| {
        let events = stream_events(
            "test-sonnet",
            split,
            "hi",
            r#"{"cache_creation_input_tokens":10000,"output_tokens":100}"#,
        );
        let mut bytes = SSE_HEAD.to_vec();
        bytes.extend(chunk(events.as_bytes()));
        bytes.extend(LAST_CHUNK);
        vec![Step::Write(bytes)]
    })
    .await;
    let ask = |system: &str, messages| {
        let mut body = body(&[tool("T1")], &talk(messages));
        body["stream"] = json!(true);
        body["system"] = json!([{"type": "text", "text": format!("{system} {}", filler(3000)),
                                 "cache_control": {"type": "ephemeral", "ttl": "1h"}}]);
        (SESSION, body)
    };
    let told = tell(&upstream, PRICES, &[ask("one", 1), ask("two", 3)]).await;
    assert_eq!(told.turns[0]["verdict"]["status"], "cold");
    assert_eq!(told.turns[0]["cost_usd"], "0.05253");
    // 6000 x (6.00 - 3.00) and 4000 x (3.75 - 3.00) more than plain input.
    assert_eq!(told.turns[0]["cache"]["premium_usd"], "0.021");
    let verdict = &told.turns[1]["verdict"];
    assert_eq!(
        (&verdict["status"], &verdict["reason"]),
        (&json!("miss"), &json!("system"))
    );
    assert_eq!(verdict["lost_tokens"], 10_000);
    // 6000 x (6.00 - 0.30) and 4000 x (3.75 - 0.30).
    assert_eq!(verdict["lost_usd"], "0.048");
}

#[tokio::test]
async fn c15_another_model_serves_behind_an_alias() {
    let upstream = Upstream::start(|seen, number| {
        let (model, usage) = match number {
            0 => ("test-sonnet-20261101", usage(1000, 0, 0)),
            1 => ("test-sonnet-20261101", usage(20, 0, 6000)),
            2 => ("test-sonnet-20261101", usage(20, 6000, 100)),
            _ => ("test-small", usage(6150, 0, 0)),
        };
        let events = stream_events(model, &usage, "hi", r#"{"output_tokens":100}"#);
        let mut bytes = SSE_HEAD.to_vec();
        bytes.extend(chunk(events.as_bytes()));
        bytes.extend(LAST_CHUNK);
        assert_eq!(
            seen.json()["model"],
            "test-alias",
            "the model is not rewritten"
        );
        vec![Step::Write(bytes)]
    })
    .await;
    let ask = |messages| {
        let mut body = body(&[tool("T1")], &talk(messages));
        body["model"] = json!("test-alias");
        body["stream"] = json!(true);
        (SESSION, body)
    };
    let told = tell(&upstream, PRICES, &[ask(1), ask(3), ask(5), ask(7)]).await;
    let first = &told.turns[0];
    assert_eq!(
        (&first["model_requested"], &first["model_served"]),
        (&json!("test-alias"), &json!("test-sonnet-20261101"))
    );
    assert_eq!(first["cost_usd"], "0.0045");
    assert_eq!(told.turns[2]["verdict"]["status"], "extended");
    let verdict = &told.turns[3]["verdict"];
    assert_eq!(
        (&verdict["status"], &verdict["reason"]),
        (&json!("miss"), &json!("model")),
        "{verdict}"
    );
    assert_eq!(verdict["whose"], "provider");
    assert_eq!(verdict["first_changed"], Value::Null);
    assert!(
        verdict["detail"]
            .as_str()
            .unwrap()
            .contains("test-small answered after test-sonnet-20261101"),
        "{verdict}"
    );
    assert_eq!(verdict["lost_tokens"], 6100);
}
