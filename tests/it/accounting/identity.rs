//! Who is asking: E10, E11, retries.

use serde_json::{Value, json};

use super::{plain, post};
use crate::support::upstream::{json as http_json, message};
use crate::support::{Gateway, PRICES, Step, Upstream};

/// A conversation that grows.
struct Talk {
    system: String,
    model: &'static str,
    user: Option<String>,
    messages: Vec<Value>,
}

impl Talk {
    fn new(first: &str) -> Self {
        Self {
            system: "be brief".into(),
            model: "test-sonnet",
            user: None,
            messages: vec![json!({"role": "user", "content": first})],
        }
    }

    fn body(&self) -> String {
        let mut body = json!({"model": self.model, "max_tokens": 9, "system": self.system, "messages": self.messages});
        if let Some(user) = &self.user {
            body["metadata"] = json!({"user_id": user});
        }
        body.to_string()
    }

    fn grow(&mut self) {
        let n = self.messages.len();
        self.messages
            .push(json!({"role": "assistant", "content": format!("answer {n}")}));
        self.messages
            .push(json!({"role": "user", "content": format!("question {n}")}));
    }
}

async fn answering() -> Upstream {
    Upstream::answering(http_json(200, &message("test-sonnet", &plain(70, 10)))).await
}

fn runs_by_id(gateway: &Gateway) -> std::collections::BTreeMap<String, Value> {
    let runs = gateway.report(&["runs"]);
    runs.into_iter()
        .map(|run| (run["id"].as_str().unwrap().to_owned(), run))
        .collect()
}

/// Session totals are the sums of their requests.
fn totals_fit(gateway: &Gateway) {
    for (id, run) in runs_by_id(gateway) {
        let turns = gateway.report(&["turns", "--run", &id]);
        let sum: u64 = turns
            .iter()
            .filter_map(|t| t["tokens"]["uncached"].as_u64())
            .sum();
        assert_eq!(run["tokens"]["uncached"].as_u64().unwrap_or(0), sum, "{id}");
        assert_eq!(run["requests"], turns.len(), "{id}");
        let micros: f64 = turns
            .iter()
            .filter_map(|t| t["cost_usd"].as_str())
            .map(|c| c.parse::<f64>().unwrap())
            .sum();
        let total: f64 = run["cost_usd"].as_str().unwrap().parse().unwrap();
        assert!((micros - total).abs() < 1e-9, "{id}");
    }
}

#[tokio::test]
async fn e10_sessions_by_header_and_body() {
    let upstream = answering().await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    // (i) interleaved, by Claude Code's header, with the same first words.
    let (mut a, mut b) = (Talk::new("same words"), Talk::new("same words"));
    for _ in 0..3 {
        post(&gateway, &["x-claude-code-session-id: s1"], &a.body()).await;
        post(&gateway, &["x-claude-code-session-id: s2"], &b.body()).await;
        a.grow();
        b.grow();
    }
    // (ii) Codex.
    post(
        &gateway,
        &["session-id: c1", "user-agent: codex_cli_rs/1.2"],
        &Talk::new("x").body(),
    )
    .await;
    // (iii) in the body.
    let mut talk = Talk::new("y");
    talk.user = Some(r#"{"device_id":"d","session_id":"s9"}"#.into());
    post(&gateway, &[], &talk.body()).await;
    // (v) one session whose user and model change; an explicit id wins over the one in the body.
    let head = ["x-claude-code-session-id: s5"];
    let mut talk = Talk::new("z");
    for (user, model) in [
        (None, "test-sonnet"),
        (Some(r#"{"session_id":"other"}"#), "test-sonnet"),
        (Some("u2"), "test-small"),
    ] {
        talk.user = user.map(Into::into);
        talk.model = model;
        post(&gateway, &head, &talk.body()).await;
        talk.grow();
    }
    gateway.turns(11).await;
    let runs = runs_by_id(&gateway);
    assert_eq!(
        runs.keys().collect::<Vec<_>>(),
        ["c1", "s1", "s2", "s5", "s9"]
    );
    for (id, turns, source) in [
        ("s1", 3, "client"),
        ("s2", 3, "client"),
        ("c1", 1, "client"),
        ("s9", 1, "body"),
        ("s5", 3, "client"),
    ] {
        assert_eq!(
            (runs[id]["turns"].as_u64(), &runs[id]["id_source"]),
            (Some(turns), &json!(source)),
            "{id}"
        );
        assert_eq!(runs[id]["threads"], 1, "{id}");
    }
    let numbers: Vec<u64> = gateway
        .report(&["turns", "--run", "s1"])
        .iter()
        .map(|t| t["turn"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 2, 3]);
    totals_fit(&gateway);
}

#[tokio::test]
async fn e10_without_ids_the_words_tell_and_a_restart_changes_nothing() {
    let upstream = answering().await;
    let mut gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let (mut a, mut b) = (Talk::new("write a poem"), Talk::new("fix the bug"));
    for round in 0..4_u64 {
        for talk in [&mut a, &mut b] {
            post(&gateway, &[], &talk.body()).await;
            talk.grow();
        }
        let requests = usize::try_from(2 * (round + 1)).unwrap();
        let turns = gateway.turns(requests).await;
        assert_eq!(turns.len(), requests);
        if round == 1 {
            gateway = gateway.restart(&upstream.url(), PRICES, &[]);
        }
    }
    let runs = runs_by_id(&gateway);
    assert_eq!(runs.len(), 2, "{runs:?}");
    for (id, run) in &runs {
        assert_eq!(
            (&run["turns"], &run["threads"], &run["id_source"]),
            (&json!(4), &json!(1), &json!("content"))
        );
        let numbers: Vec<u64> = gateway
            .report(&["turns", "--run", id])
            .iter()
            .map(|t| t["turn"].as_u64().unwrap())
            .collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
    }
    totals_fit(&gateway);
    // The same words once more, after an answer, are another run.
    post(&gateway, &[], &Talk::new("write a poem").body()).await;
    gateway.turns(9).await;
    assert_eq!(runs_by_id(&gateway).len(), 3);
}

#[tokio::test]
async fn e10_unusable_ids_are_hashed_and_their_bytes_pass() {
    let upstream = answering().await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let long = format!("x-claude-code-session-id: {}", "s".repeat(10_000));
    let tab = "x-claude-code-session-id: a\tb";
    let high = "x-claude-code-session-id: \u{fc}ber";
    for header in [long.as_str(), tab, high] {
        for n in 0..2 {
            let reply = post(
                &gateway,
                &[header],
                &Talk::new(&format!("question {n}")).body(),
            )
            .await;
            assert_eq!(reply.status, 200);
            let (_, value) = header.split_once(": ").unwrap();
            // The raw head was read lossily; what is not UTF-8 is not in these.
            assert_eq!(
                upstream.last().header("x-claude-code-session-id"),
                Some(value)
            );
        }
    }
    gateway.turns(6).await;
    let runs = runs_by_id(&gateway);
    assert_eq!(runs.len(), 3, "{:?}", runs.keys());
    for (id, run) in runs {
        let kept = id == "\u{fc}ber";
        assert!(kept || id.starts_with("h-") && id.len() < 40, "{id}");
        assert_eq!(run["requests"], 2);
    }
}

#[tokio::test]
async fn e11_sub_agents_are_threads_of_their_own() {
    let upstream = answering().await;
    for named in [true, false] {
        let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
        let session = "x-claude-code-session-id: s1";
        let ids = [
            "x-claude-code-agent-id: a7",
            "x-claude-code-parent-agent-id: a0",
        ];
        let mut parent = Talk::new("the task");
        while parent.messages.len() < 39 {
            parent.grow();
        }
        post(&gateway, &[session], &parent.body()).await;
        let mut child = Talk::new("look at the files of the project");
        child.system = "you are a helper".into();
        let head: Vec<&str> = if named {
            [session].into_iter().chain(ids).collect()
        } else {
            vec![session]
        };
        post(&gateway, &head, &child.body()).await;
        if named {
            let seen = upstream.last();
            for (name, value) in [
                ("x-claude-code-session-id", "s1"),
                ("x-claude-code-agent-id", "a7"),
                ("x-claude-code-parent-agent-id", "a0"),
            ] {
                assert_eq!(seen.header(name), Some(value));
            }
        }
        parent.grow();
        post(&gateway, &[session], &parent.body()).await;
        child.grow();
        post(&gateway, &head, &child.body()).await;
        let turns = gateway.turns(4).await;
        let threads: Vec<&str> = turns
            .iter()
            .map(|t| t["thread"].as_str().unwrap())
            .collect();
        assert_eq!(threads[0], threads[2]);
        assert_eq!(threads[1], threads[3]);
        assert_ne!(threads[0], threads[1]);
        let numbers: Vec<u64> = turns.iter().map(|t| t["turn"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [1, 1, 2, 2]);
        assert_eq!(threads[0], "main");
        assert_eq!(turns[0]["agent"], Value::Null);
        if named {
            assert_eq!(
                (&turns[1]["agent"], &turns[1]["parent_agent"]),
                (&json!("a7"), &json!("a0"))
            );
            // The parent never gave its own name, so it can only be the run's first thread.
            assert_eq!(turns[1]["parent_thread"], "main");
        }
        let runs = runs_by_id(&gateway);
        assert_eq!(runs.len(), 1);
        assert_eq!(
            (&runs["s1"]["threads"], &runs["s1"]["turns"]),
            (&json!(2), &json!(4))
        );
    }
}

#[tokio::test]
async fn e11_a_child_without_headers_is_known_by_the_prompt_of_the_call() {
    let prompt = "Please count the files in the directory src";
    let call = format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","model":"test-sonnet","content":[{{"type":"tool_use","id":"toolu_a","name":"Task","input":{{"prompt":"{prompt}"}}}}],"stop_reason":"tool_use","usage":{}}}"#,
        plain(70, 10)
    );
    let upstream = Upstream::start(move |_, n| {
        let answer = if n == 0 {
            call.clone()
        } else {
            message("test-sonnet", &plain(70, 10))
        };
        vec![Step::Write(http_json(200, &answer))]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    post(&gateway, &[], &Talk::new("delegate").body()).await;
    gateway.turns(1).await;
    let mut child = Talk::new(prompt);
    child.system = "you are a helper".into();
    post(&gateway, &[], &child.body()).await;
    let turns = gateway.turns(2).await;
    assert_eq!(turns[0]["run"], turns[1]["run"]);
    assert_eq!(turns[1]["parent_thread"], turns[0]["thread"]);
    assert_ne!(turns[1]["thread"], turns[0]["thread"]);
}

#[tokio::test]
async fn a_retry_is_another_attempt_at_the_same_turn() {
    let upstream = Upstream::start(|_, n| {
        let overloaded =
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        vec![Step::Write(match n {
            0 | 1 | 4 => http_json(529, overloaded),
            _ => http_json(200, &message("test-sonnet", &plain(70, 10))),
        })]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let session = "x-session-id: session-retry";
    let mut talk = Talk::new("try");
    for count in 0..3 {
        let retries = format!("x-stainless-retry-count: {count}");
        post(&gateway, &[session, &retries], &talk.body()).await;
    }
    talk.grow();
    // Without the header: the same bytes after a failure are a retry as well.
    for _ in 0..3 {
        post(&gateway, &[session], &talk.body()).await;
        if upstream.seen().len() == 4 {
            talk.grow();
        }
    }
    let turns = gateway.turns(6).await;
    let places: Vec<(u64, u64)> = turns
        .iter()
        .map(|t| (t["turn"].as_u64().unwrap(), t["attempt"].as_u64().unwrap()))
        .collect();
    assert_eq!(places, [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2)]);
    let run = &runs_by_id(&gateway)["session-retry"];
    assert_eq!(
        (&run["turns"], &run["requests"], &run["errors"]),
        (&json!(3), &json!(6), &json!(3))
    );
    assert_eq!(run["cost_complete"], true, "errors cost nothing");
}

/// The first attempt went to another gateway, or to this one before it was restarted.
#[tokio::test]
async fn a_retry_whose_first_attempt_nobody_saw_is_a_turn() {
    let upstream = answering().await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let head = ["x-session-id: session-late", "x-stainless-retry-count: 2"];
    post(&gateway, &head, &Talk::new("try").body()).await;
    let turns = gateway.turns(1).await;
    assert_eq!(turns[0]["turn"], 1);
    assert_eq!(runs_by_id(&gateway)["session-late"]["turns"], 1);
}

#[tokio::test]
async fn labels_name_run_app_and_agent_and_do_not_reach_the_upstream() {
    let upstream = answering().await;
    let config = format!("{PRICES}\n[metrics]\napps = [\"docs\"]\n");
    let gateway = Gateway::with(&upstream.url(), &config, &[]);
    let path = "/-/run=nightly-7,app=docs,agent=w1/v1/messages";
    let body = Talk::new("x").body();
    crate::support::Wire::exchange(gateway.proxy, path, &[], body.as_bytes()).await;
    assert_eq!(upstream.last().line(), "POST /v1/messages");
    let head = [
        "x-prefixgate-run: nightly-7",
        "x-prefixgate-app: docs",
        "x-prefixgate-agent: w1",
    ];
    post(&gateway, &head, &Talk::new("x2").body()).await;
    assert!(
        upstream
            .last()
            .header_names()
            .iter()
            .all(|n| !n.starts_with("x-prefixgate"))
    );
    let turns = gateway.turns(2).await;
    for turn in &turns {
        assert_eq!(
            (&turn["run"], &turn["app"], &turn["agent"]),
            (&json!("nightly-7"), &json!("docs"), &json!("w1"))
        );
    }
    assert_eq!(
        gateway
            .metric("prefixgate_turns_total", &["app=\"docs\""])
            .await,
        2.0
    );
    let apps = gateway.report(&["spend", "--by", "app"]);
    assert_eq!(
        (&apps[0]["app"], &apps[0]["turns"]),
        (&json!("docs"), &json!(2))
    );
}
