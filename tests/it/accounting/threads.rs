//! Conversations that the provider holds: the SDK's tool runners send only what is new.

use prefixgate::sim::{Options, Sim};
use serde_json::{Value, json};

use super::{agent_body, post, warnings};
use crate::support::client::Reply;
use crate::support::{Gateway, PRICES};

const BETA: &str = "anthropic-beta: message-threads-2026-08-12";

/// A tool runner on threads.
struct Runner {
    body: Value,
    /// The whole conversation, for when the thread is lost.
    history: Vec<Value>,
}

impl Runner {
    fn new(steps: usize) -> Self {
        let plan = "shell_ok,".repeat(steps);
        let mut body = agent_body("test-sonnet", &format!("do it [[plan:{plan}end]]"));
        body["thread"] = json!({"type": "create"});
        let history = body["messages"].as_array().unwrap().clone();
        Self { body, history }
    }

    async fn send(&self, gateway: &Gateway) -> Reply {
        post(gateway, &[BETA], &self.body.to_string()).await
    }

    /// Takes an answer; the next request brings only the results. `false` at the end.
    fn take(&mut self, answer: &Value) -> bool {
        self.history
            .push(json!({"role": "assistant", "content": answer["content"]}));
        let results: Vec<Value> = answer["content"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|b| b["type"] == "tool_use")
            .map(|b| json!({"type": "tool_result", "tool_use_id": b["id"], "content": "fine"}))
            .collect();
        if results.is_empty() {
            return false;
        }
        let message = json!({"role": "user", "content": results});
        self.history.push(message.clone());
        self.body["messages"] = json!([message]);
        self.body["thread"] = json!({"type": "continue", "previous_message_id": answer["id"]});
        true
    }

    /// What the SDK does upon `thread_not_found`.
    fn replay(&mut self) {
        self.body["messages"] = self.history.clone().into();
        self.body["thread"] = json!({"type": "create"});
    }
}

#[tokio::test]
async fn threads_are_followed_by_answer_id_over_a_restart() {
    let sim = Sim::start(Options::default()).unwrap();
    let mut gateway = Gateway::with(&sim.base_url(), PRICES, &[]);
    let mut runner = Runner::new(5);
    let mut sent = 0;
    loop {
        let body = runner.body.to_string();
        let reply = runner.send(&gateway).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        sent += 1;
        assert_eq!(
            sim.requests().last().unwrap().body,
            body.as_bytes(),
            "nothing is added to a thread"
        );
        let more = runner.take(&reply.json());
        let turns = gateway.turns(sent).await;
        assert_eq!(turns.len(), sent);
        if !more {
            break;
        }
        if sent == 3 {
            gateway = gateway.restart(&sim.base_url(), PRICES, &[]);
        }
    }
    assert_eq!(sent, 6);
    let turns = gateway.turns(sent).await;
    let numbers: Vec<u64> = turns.iter().map(|t| t["turn"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    for turn in &turns {
        assert_eq!(
            (&turn["run"], &turn["thread"]),
            (&turns[0]["run"], &turns[0]["thread"])
        );
        assert!(turn["cost_usd"].is_string());
        assert!(warnings(turn).is_empty(), "{turn}");
    }
    // Each chain goes on from the one before, so no two are alike.
    let chains = super::number(&gateway, "SELECT COUNT(DISTINCT chain) FROM turns");
    assert_eq!(chains, 6);
    let runs = gateway.report(&["runs"]);
    assert_eq!((runs.len(), &runs[0]["turns"]), (1, &json!(6)));
    let pico = super::number(&gateway, "SELECT SUM(cost_pico) FROM turns");
    let cost: f64 = runs[0]["cost_usd"].as_str().unwrap().parse().unwrap();
    assert!((cost - pico as f64 / 1e12).abs() < 1e-12);
    // A tool call asked for before the restart is settled after it.
    let open = super::number(
        &gateway,
        "SELECT COUNT(*) FROM tool_calls WHERE status = 'pending'",
    );
    assert_eq!(open, 0);
}

#[tokio::test]
async fn a_thread_chains_like_the_whole_history() {
    let sim = Sim::start(Options::default()).unwrap();
    let gateway = Gateway::with(&sim.base_url(), PRICES, &[]);
    let mut runner = Runner::new(1);
    let reply = runner.send(&gateway).await;
    assert!(runner.take(&reply.json()));
    let reply = runner.send(&gateway).await;
    assert_eq!(reply.status, 200);
    // Thread ids are per answer, so the same turn with its whole history is found by content.
    runner.replay();
    assert_eq!(runner.send(&gateway).await.status, 200);
    let turns = gateway.turns(3).await;
    assert_eq!(turns[2]["run"], turns[0]["run"]);
    assert_eq!(turns[2]["thread"], turns[0]["thread"]);
}

#[tokio::test]
async fn replay_makes_the_client_send_everything_once() {
    let sim = Sim::start(Options::default()).unwrap();
    let config = format!("{PRICES}\n[anthropic]\nthreads = \"replay\"\n");
    let gateway = Gateway::with(&sim.base_url(), &config, &[]);
    let mut runner = Runner::new(2);
    let (mut refused, mut answered) = (0, 0);
    loop {
        let reply = runner.send(&gateway).await;
        if reply.status == 404 {
            let error = reply.json();
            assert_eq!(error["error"]["type"], "not_found_error");
            assert_eq!(error["error"]["details"]["error_code"], "thread_not_found");
            refused += 1;
            runner.replay();
            continue;
        }
        assert_eq!(reply.status, 200, "{}", reply.text());
        answered += 1;
        if !runner.take(&reply.json()) {
            break;
        }
    }
    assert_eq!((refused, answered), (2, 3));
    assert_eq!(
        sim.requests().len(),
        3,
        "a continuation never reaches the provider"
    );
    let turns = gateway.turns(5).await;
    let ok: Vec<&Value> = turns.iter().filter(|t| t["outcome"] == "ok").collect();
    let numbers: Vec<u64> = ok.iter().map(|t| t["turn"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let gone: Vec<&Value> = turns.iter().filter(|t| t["outcome"] == "refused").collect();
    assert!(
        gone.iter()
            .all(|t| t["status"] == 404 && t["error_type"] == "thread_not_found")
    );
    assert!(
        turns
            .iter()
            .all(|t| t["run"] == turns[0]["run"] && t["thread"] == turns[0]["thread"]),
        "{turns:?}"
    );
    let runs = gateway.report(&["runs"]);
    assert_eq!(
        (&runs[0]["turns"], &runs[0]["requests"]),
        (&json!(3), &json!(5))
    );
}

#[tokio::test]
async fn an_unknown_answer_id_is_passed_on_and_said() {
    let sim = Sim::start(Options::default()).unwrap();
    let gateway = Gateway::with(&sim.base_url(), PRICES, &[]);
    let mut runner = Runner::new(1);
    let reply = runner.send(&gateway).await;
    assert!(runner.take(&reply.json()));
    runner.body["thread"]["previous_message_id"] = "msg_never_seen".into();
    let reply = runner.send(&gateway).await;
    assert_eq!(reply.status, 404, "the provider's own answer");
    runner.replay();
    assert_eq!(runner.send(&gateway).await.status, 200);
    let turns = gateway.turns(3).await;
    assert_eq!(warnings(&turns[1]), ["history_not_seen"]);
    assert_eq!(turns[1]["outcome"], "upstream_error");
    assert_eq!(turns[2]["run"], turns[0]["run"]);
}
