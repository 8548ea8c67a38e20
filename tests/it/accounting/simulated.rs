//! Markers before a provider that refuses what the API refuses, and caches by its rules.

use prefixgate::sim::{Counting, Options, Sim};
use serde_json::{Value, json};

use super::{agent_body, count_markers, filler, post};
use crate::support::{Gateway, PRICES, Wire};

/// A client that answers each tool call and goes on until the model ends.
struct Agent {
    body: Value,
    headers: Vec<String>,
    /// Text blocks that go with the results of a turn.
    extra: usize,
}

impl Agent {
    fn new(session: &str, steps: usize) -> Self {
        let plan = "shell_ok,".repeat(steps);
        Self {
            body: agent_body("test-sonnet", &format!("do it [[plan:{plan}end]]")),
            headers: vec![format!("x-session-id: {session}")],
            extra: 0,
        }
    }

    /// One turn; `true` when the model wants to go on.
    async fn turn(&mut self, gateway: &Gateway) -> bool {
        let headers: Vec<&str> = self.headers.iter().map(String::as_str).collect();
        let reply = post(gateway, &headers, &self.body.to_string()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = reply.json();
        let calls: Vec<String> = answer["content"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|b| b["type"] == "tool_use")
            .map(|b| b["id"].as_str().unwrap().to_owned())
            .collect();
        let messages = self.body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": answer["content"]}));
        let mut content: Vec<Value> = calls
            .iter()
            .map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": filler(40)}))
            .collect();
        content
            .extend((0..self.extra).map(|n| json!({"type": "text", "text": format!("note {n}")})));
        if calls.is_empty() {
            return false;
        }
        messages.push(json!({"role": "user", "content": content}));
        true
    }

    async fn run(&mut self, gateway: &Gateway) -> usize {
        let mut turns = 1;
        while self.turn(gateway).await {
            turns += 1;
        }
        turns
    }
}

fn strict() -> Options {
    Options {
        counting: Counting::PerBlock,
        ..Options::default()
    }
}

/// Every turn from the second on reads what the turn before wrote, and only the new is written.
fn reads_from_turn_two(turns: &[Value]) {
    let count = |turn: &Value, kind: &str| turn["tokens"][kind].as_u64().unwrap();
    for pair in turns.windows(2) {
        let before =
            count(&pair[0], "read") + count(&pair[0], "write_5m") + count(&pair[0], "write_1h");
        assert_eq!(
            count(&pair[1], "read"),
            before,
            "all of the turn before is read: {}",
            pair[1]
        );
        assert!(count(&pair[1], "read") > 1024);
        assert!(pair[1]["markers"]["added"].as_u64().unwrap() > 0);
    }
}

#[tokio::test]
async fn a_tool_conversation_is_accepted_and_read_on_every_turn() {
    for (extra, steps) in [(0, 6), (24, 5), (60, 4), (3, 12)] {
        let sim = Sim::start(strict()).unwrap();
        let gateway = Gateway::with(&sim.base_url(), PRICES, &[]);
        let mut agent = Agent::new("session-sim", steps);
        agent.extra = extra;
        let turns = agent.run(&gateway).await;
        assert_eq!(turns, steps + 1);
        let records = gateway.turns(turns).await;
        assert!(
            records
                .iter()
                .all(|t| t["outcome"] == "ok" && t["markers"]["client"] == 0)
        );
        reads_from_turn_two(&records);
        // The provider's own count agrees with the records.
        for (seen, turn) in sim.requests().iter().zip(&records) {
            let tokens = seen.tokens.unwrap();
            assert_eq!(turn["tokens"]["read"], tokens.read);
            assert_eq!(turn["tokens"]["write_5m"], tokens.write_5m);
            assert_eq!(
                turn["markers"]["added"].as_u64().unwrap() as usize,
                count_markers(&seen.body)
            );
        }
        let run = &gateway.report(&["runs"])[0];
        assert!(
            run["saving_usd"].as_str().unwrap().parse::<f64>().unwrap() > 0.0,
            "{run}"
        );
        let ratio = run["hit_ratio"].as_f64().unwrap();
        assert!(ratio > 0.6, "{ratio}");
    }
}

/// Without the gateway's markers nothing is cached: what the test above sees is their doing.
#[tokio::test]
async fn with_the_policy_off_nothing_is_read() {
    let sim = Sim::start(strict()).unwrap();
    let gateway = Gateway::with(&sim.base_url(), PRICES, &["--cache", "off"]);
    let turns = Agent::new("session-off", 3).run(&gateway).await;
    let records = gateway.turns(turns).await;
    assert!(
        records
            .iter()
            .all(|t| t["tokens"]["read"] == 0 && t["tokens"]["write_5m"] == 0)
    );
    assert_eq!(gateway.report(&["runs"])[0]["saving_usd"], "0");
}

/// Marks as Claude Code does: the end of the system prompt and the newest block, which moves.
async fn run_with_own_markers(agent: &mut Agent, gateway: &Gateway) -> usize {
    let mut turns = 0;
    loop {
        let messages = agent.body["messages"].as_array_mut().unwrap();
        let blocks = messages
            .iter_mut()
            .filter_map(|m| m["content"].as_array_mut())
            .flatten();
        for block in blocks {
            block.as_object_mut().unwrap().remove("cache_control");
        }
        let newest = messages.last_mut().unwrap()["content"].as_array_mut();
        newest.unwrap().last_mut().unwrap()["cache_control"] = json!({"type": "ephemeral"});
        turns += 1;
        if !agent.turn(gateway).await {
            return turns;
        }
    }
}

/// The client's own moving markers are kept, and what they leave is used.
#[tokio::test]
async fn a06_a_client_with_its_own_markers_is_accepted_and_reads() {
    let sim = Sim::start(strict()).unwrap();
    let gateway = Gateway::with(&sim.base_url(), PRICES, &[]);
    let mut agent = Agent::new("session-own", 4);
    agent.extra = 25;
    agent.body["system"][0]["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
    let turns = run_with_own_markers(&mut agent, &gateway).await;
    let records = gateway.turns(turns).await;
    assert!(records.iter().all(|t| t["markers"]["client"] == 2));
    reads_from_turn_two(&records);
}

/// One slot is left: it goes where the turn before wrote, because the provider would not look back
/// so far from the newest block.
#[tokio::test]
async fn a06_the_one_free_slot_bridges_turns_longer_than_the_lookback() {
    for (policy, bridged) in [("fill", true), ("off", false)] {
        let sim = Sim::start(strict()).unwrap();
        let gateway = Gateway::with(&sim.base_url(), PRICES, &["--cache", policy]);
        let mut agent = Agent::new("session-three", 4);
        agent.extra = 30;
        agent.body["tools"][0]["description"] = filler(3000).into();
        let text = agent.body["system"][0]["text"].clone();
        let marked = json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
        agent.body["system"] = json!([marked, marked]);
        let turns = run_with_own_markers(&mut agent, &gateway).await;
        let records = gateway.turns(turns).await;
        assert!(records.iter().all(|t| t["markers"]["client"] == 3));
        if bridged {
            reads_from_turn_two(&records);
        } else {
            // Without the bridge each turn writes all messages again.
            let read = |n: usize| records[n]["tokens"]["read"].as_u64().unwrap();
            assert_eq!(read(2), read(1));
        }
    }
}

/// String contents are turned into blocks by splicing, and back: both spellings are one prefix.
#[tokio::test]
async fn strings_that_became_blocks_are_read_as_strings_later() {
    let sim = Sim::start(strict()).unwrap();
    let gateway = Gateway::with(&sim.base_url(), PRICES, &[]);
    let mut body = agent_body("test-sonnet", "");
    body["system"] = filler(3000).into();
    body["messages"] = json!([{"role": "user", "content": "the first question"}]);
    for n in 0..4 {
        let reply = post(&gateway, &[], &body.to_string()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": reply.json()["content"][0]["text"]}));
        messages.push(json!({"role": "user", "content": format!("question {n}")}));
    }
    let records = gateway.turns(4).await;
    assert!(
        records
            .iter()
            .all(|t| t["turn"].as_u64() > Some(0) && t["run"] == records[0]["run"])
    );
    reads_from_turn_two(&records);
}

/// A08 and A10 with the provider's own refusals: whatever ends the request, it is accepted.
#[tokio::test]
async fn a08_a10_what_the_provider_would_refuse_is_never_sent() {
    let sim = Sim::start(strict()).unwrap();
    let gateway = Gateway::with(&sim.base_url(), PRICES, &[]);
    let text = |text: &str| json!({"type": "text", "text": text});
    let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_9", "name": "Bash", "input": {"command": "x"}}]});
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_9", "content": "42"});
    let user = |content: Value| json!({"role": "user", "content": content});
    let deferred = json!({"name": "late", "description": "d", "defer_loading": true, "input_schema": {"type": "object"}});
    let cases = [
        vec![
            user(json!([text("task")])),
            call.clone(),
            user(json!([result])),
        ],
        vec![
            user(json!([text("task")])),
            json!({"role": "assistant", "content": [text("well")]}),
        ],
        vec![
            user(json!([text("task")])),
            json!({"role": "assistant", "content": [text("well"), {"type": "thinking", "thinking": "..", "signature": "sig"}]}),
        ],
        // What the provider refuses in the client's own bytes is not ours.
        vec![
            user(json!([text("task")])),
            call,
            user(json!([result, text(" \n")])),
        ],
    ];
    for (n, messages) in cases.iter().enumerate() {
        for tools in 0..2 {
            let mut body = agent_body("test-sonnet", "");
            body["messages"] = messages.clone().into();
            if tools == 1 {
                body["tools"].as_array_mut().unwrap().push(deferred.clone());
            }
            let body = body.to_string();
            let alone = Wire::exchange(sim.addr(), "/v1/messages", &[], body.as_bytes()).await;
            let before = sim.requests().len();
            let session = format!("x-session-id: case-{n}-{tools}");
            let reply = post(&gateway, &[&session], &body).await;
            assert_eq!(reply.status, alone.status, "case {n}: {}", reply.text());
            let seen = &sim.requests()[before..];
            assert!(count_markers(&seen[0].body) > 0, "case {n}");
            assert_eq!(seen.len(), if reply.status == 200 { 1 } else { 2 });
            assert_eq!(n < 2, reply.status == 200, "case {n}: {}", reply.text());
        }
    }
    assert_eq!(
        gateway
            .metric("prefixgate_cache_markers_total", &["by=\"refused\""])
            .await,
        0.0
    );
}

/// A15 with the provider's minimum: nothing is marked below it, so nothing is paid for nothing.
#[tokio::test]
async fn a15_minimum_of_the_model() {
    let sim = Sim::start(strict()).unwrap();
    let gateway = Gateway::with(&sim.base_url(), "", &[]);
    for (model, tokens, marked) in [
        ("claude-opus-4-6", 1500, false),
        ("claude-opus-4-6", 20_000, true),
        ("claude-sonnet-4-6", 500, false),
        ("claude-sonnet-4-6", 4_000, true),
    ] {
        let mut body = agent_body(model, "hello");
        body["system"][0]["text"] = filler(tokens).into();
        // Calls that nothing follows are no longer marked once their app is known for them.
        let app = format!("x-prefixgate-app: {model}-{tokens}");
        let reply = post(&gateway, &[&app], &body.to_string()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let seen = sim.requests().pop().unwrap();
        assert_eq!(count_markers(&seen.body) > 0, marked, "{model} {tokens}");
        assert_eq!(
            seen.tokens.unwrap().write_5m > 0,
            marked,
            "{model} {tokens}"
        );
    }
}
