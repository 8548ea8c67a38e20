//! Caps: what a run or a key may use, with requests at once, retries, aborts and restarts.

use std::time::Duration;

use serde_json::{Value, json};

use super::{answer, answering, body, messages, send, send_with};
use crate::support::client::Reply;
use crate::support::upstream::{SSE_HEAD, chunk, event, json as http_json};
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, eventually};

/// A request without history, tools or anything else that would cost.
fn tiny(max_tokens: u64) -> Value {
    json!({"model": "test-sonnet", "max_tokens": max_tokens,
           "messages": [{"role": "user", "content": "hi"}]})
}

fn refused_by(reply: &Reply, cap: &str, setting: &str) -> String {
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    assert_eq!(reply.header("retry-after"), None);
    let error = reply.json();
    assert_eq!(error["type"], "error");
    assert_eq!(error["error"]["type"], "billing_error");
    let text = error["error"]["message"].as_str().unwrap().to_owned();
    assert!(text.contains(&format!("cap reached: {cap} of")), "{text}");
    assert!(text.contains(setting), "{text}");
    text
}

async fn at_once(gateway: &Gateway, run: &str, bodies: &[Value]) -> Vec<Reply> {
    let sent = bodies.iter().map(|body| send(gateway, run, body));
    futures(sent).await
}

/// All of them, in order.
async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = all.map(Box::pin).map(|f| (Some(f), None)).collect();
    std::future::poll_fn(|cx| {
        use std::task::Poll;
        for (future, done) in &mut pending {
            if let Some(running) = future
                && let Poll::Ready(value) = running.as_mut().poll(cx)
            {
                *done = Some(value);
                *future = None;
            }
        }
        match pending.iter().all(|(_, done)| done.is_some()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    pending.into_iter().map(|(_, done)| done.unwrap()).collect()
}

#[tokio::test]
async fn d08_requests_at_once_stay_below_the_cap() {
    let upstream = Upstream::start(|seen, _| {
        let body = seen.json();
        match body["system"].as_str() {
            Some("refuse") => vec![Step::write(http_json(
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#,
            ))],
            Some("hang") => vec![Step::AwaitClose],
            _ => vec![
                Step::Pause(Duration::from_millis(400)),
                answer(seen, 0, 6666),
            ],
        }
    })
    .await;
    let gateway = Gateway::with(
        &upstream.url(),
        PRICES,
        &["--max-usd", "1.00", "--cache", "off"],
    );
    let wave: Vec<Value> = (0..10)
        .map(|n| {
            let mut body = tiny(20_000);
            body["messages"][0]["content"] = json!(format!("task {n}"));
            body
        })
        .collect();
    let count =
        |replies: &[Reply], status: u16| replies.iter().filter(|r| r.status == status).count();

    let first = at_once(&gateway, "d08", &wave).await;
    assert_eq!((count(&first, 200), count(&first, 400)), (3, 7));
    let text = refused_by(
        first.iter().find(|r| r.status == 400).unwrap(),
        "usd",
        "caps.run.usd",
    );
    assert!(text.contains("run d08") && text.contains("of 1"), "{text}");
    let second = at_once(&gateway, "d08", &wave).await;
    assert_eq!((count(&second, 200), count(&second, 400)), (2, 8));

    // 0.49995 are spent. What is refused upstream or left by the client gives its hold back.
    let mut odd = tiny(20_000);
    odd["system"] = json!("refuse");
    assert_eq!(send(&gateway, "d08", &odd).await.status, 400);
    odd["system"] = json!("hang");
    let before = upstream.seen().len();
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.post(
        "/v1/messages",
        &["x-prefixgate-run: d08"],
        odd.to_string().as_bytes(),
    )
    .await;
    eventually("the request is upstream", async || {
        (upstream.seen().len() > before).then_some(())
    })
    .await;
    drop(wire);
    gateway.ended_as("turn", "client_abort", 1).await;
    let third = at_once(&gateway, "d08", &wave[..2]).await;
    // 0.49995 + 0.30 fits, and another 0.30 does not.
    assert_eq!((count(&third, 200), count(&third, 400)), (1, 1));
    let left = third.iter().find(|r| r.status == 200).unwrap();
    let left = left.header("x-prefixgate-left-usd").unwrap();
    assert!(left.starts_with("0.199"), "{left}");

    let turns = gateway.turns_of("d08", 24).await;
    let costs: Vec<&Value> = turns
        .iter()
        .map(|t| &t["cost_usd"])
        .filter(|cost| !cost.is_null())
        .collect();
    assert_eq!(costs, [&json!("0.09999"); 6]);
    assert_eq!(upstream.seen().len(), 3 + 2 + 1 + 1 + 1);
}

#[tokio::test]
async fn c13_a_hundred_exact_costs_reach_the_cap_and_no_more() {
    let upstream = answering(70, 10).await;
    let config = format!("{PRICES}[caps]\nreserve = \"nothing\"\n[caps.run]\nusd = 0.036\n");
    let gateway = Gateway::with(&upstream.url(), &config, &[]);
    for n in 0..100 {
        let reply = send(&gateway, "c13", &tiny(64)).await;
        assert_eq!(reply.status, 200, "{n}: {}", reply.text());
    }
    let text = refused_by(
        &send(&gateway, "c13", &tiny(64)).await,
        "usd",
        "caps.run.usd",
    );
    assert!(text.contains("0.036 of 0.036"), "{text}");
    assert_eq!(upstream.seen().len(), 100);
    let turns = gateway.turns_of("c13", 101).await;
    let costs: Vec<&Value> = turns
        .iter()
        .map(|t| &t["cost_usd"])
        .filter(|cost| !cost.is_null())
        .collect();
    assert_eq!(costs, [&json!("0.00036"); 100]);
    // A hundredth of a dollar for a million tokens is a price like any other.
    let cheap = "[[price]]\nmodel = \"test-sonnet\"\ninput = 0.01\noutput = 0.01\nread = 0.01\nwrite_5m = 0.01\nwrite_1h = 0.01\n";
    let gateway = Gateway::with(&upstream.url(), cheap, &["--max-usd", "0.000002"]);
    assert_eq!(send(&gateway, "cheap", &tiny(64)).await.status, 200);
    let turns = gateway.turns_of("cheap", 1).await;
    assert_eq!(turns[0]["cost_usd"], "0.0000008");
}

#[tokio::test]
async fn c08_a_cap_on_money_never_passes_silently_for_an_unknown_price() {
    let upstream = Upstream::start(|seen, _| {
        let model = seen.json()["model"].as_str().unwrap().to_owned();
        let usage = r#"{"input_tokens":1000000,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":50000}"#;
        vec![Step::write(http_json(200, &crate::support::upstream::message(&model, usage)))]
    })
    .await;
    let mut request = tiny(64);
    request["model"] = json!("test-unlisted-9");
    let gateway = Gateway::with(&upstream.url(), PRICES, &["--max-usd", "0.10"]);
    let reply = send(&gateway, "refused", &request).await;
    assert_eq!(reply.status, 400);
    let error = reply.json();
    assert_eq!(error["error"]["type"], "billing_error");
    let text = error["error"]["message"].as_str().unwrap();
    assert!(
        text.contains("test-unlisted-9") && text.contains("caps.unpriced"),
        "{text}"
    );
    assert!(upstream.seen().is_empty());
    let refusals = gateway
        .metric("prefixgate_cap_refusals_total", &["usd"])
        .await;
    assert_eq!(refusals, 1.0);
    eventually("the refusal is in the report", async || {
        let caps = gateway.report(&["caps", "--run", "refused"]);
        caps.iter().any(|cap| cap["refusals"] == 1).then_some(())
    })
    .await;

    let flag = format!("{PRICES}[caps]\nunpriced = \"flag\"\n[caps.run]\nusd = 0.10\n");
    let gateway = Gateway::with(&upstream.url(), &flag, &[]);
    for _ in 0..2 {
        assert_eq!(send(&gateway, "flagged", &request).await.status, 200);
    }
    let turns = gateway.turns_of("flagged", 2).await;
    for turn in &turns {
        assert!(turn["cost_usd"].is_null());
        let warnings = turn["warnings"].to_string();
        assert!(warnings.contains("cap_not_enforceable"), "{warnings}");
    }
    assert_eq!(
        gateway
            .metric("prefixgate_caps_unenforced_total", &[])
            .await,
        1.0
    );

    let fallback = format!(
        "{PRICES}[[price]]\nmodel = \"*\"\ninput = 3\noutput = 15\nread = 3\nwrite_5m = 3\nwrite_1h = 3\n[caps.run]\nusd = 0.10\n"
    );
    let gateway = Gateway::with(&upstream.url(), &fallback, &[]);
    assert_eq!(send(&gateway, "fallback", &request).await.status, 200);
    let turns = gateway.turns_of("fallback", 1).await;
    assert_eq!(turns[0]["cost_usd"], "3.75");
    assert!(turns[0]["warnings"].to_string().contains("fallback_price"));
    refused_by(
        &send(&gateway, "fallback", &request).await,
        "usd",
        "caps.run.usd",
    );
}

/// What stands in a cut stream: 25 uncached, 4,000 read, five deltas of about 40 tokens.
fn delivered() -> Vec<u8> {
    let mut events = event(
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"test-sonnet","content":[],"stop_reason":null,"usage":{"input_tokens":25,"cache_read_input_tokens":4000,"cache_creation_input_tokens":0,"output_tokens":1}}}"#,
    );
    events.push_str(&event(
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    ));
    let words = "some words of an answer ".repeat(7);
    for _ in 0..5 {
        let delta = json!({"type": "content_block_delta", "index": 0,
                           "delta": {"type": "text_delta", "text": words}});
        events.push_str(&event(&delta.to_string()));
    }
    events.into_bytes()
}

#[tokio::test]
async fn c06_an_aborted_answer_counts_and_an_unknown_one_gives_its_hold_back() {
    let upstream = Upstream::start(|seen, _| {
        let body = seen.json();
        let content = [Step::write(SSE_HEAD), Step::write(chunk(&delivered()))];
        match body["messages"][0]["content"].as_str().unwrap() {
            "leave" => [&content[..], &[Step::AwaitClose]].concat(),
            "silent" => vec![Step::AwaitClose],
            "cut" => [&content[..], &[Step::Reset]].concat(),
            _ => vec![answer(seen, 0, 0)],
        }
    })
    .await;
    // The most that one of these can use is 0.03 and a little.
    let gateway = Gateway::with(
        &upstream.url(),
        PRICES,
        &["--max-usd", "0.08", "--cache", "off"],
    );
    let post = async |what: &str| {
        let mut request = tiny(2_000);
        request["stream"] = json!(true);
        request["messages"][0]["content"] = json!(what);
        let mut wire = Wire::connect(gateway.proxy).await;
        wire.post(
            "/v1/messages",
            &["x-prefixgate-run: c06"],
            request.to_string().as_bytes(),
        )
        .await;
        wire
    };
    // What a request that uses nothing leaves, less what it holds itself.
    let spent = async || {
        let mut probe = tiny(1);
        probe["messages"][0]["content"] = json!("probe");
        let reply = send(&gateway, "c06", &probe).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let left: f64 = reply
            .header("x-prefixgate-left-usd")
            .unwrap()
            .parse()
            .unwrap();
        0.08 - left
    };
    let nothing = spent().await;

    let mut wire = post("leave").await;
    wire.head().await;
    wire.chunk().await.unwrap();
    drop(wire);
    gateway.ended_as("turn", "client_abort", 1).await;
    let first = spent().await - nothing;
    // 25 uncached, 4,000 read, and 100 to 400 tokens for the 840 bytes that were delivered.
    assert!(
        (0.001_275 + 0.0015..0.001_275 + 0.006).contains(&first),
        "{first}"
    );

    let before = upstream.seen().len();
    let wire = post("silent").await;
    eventually("it is upstream", async || {
        (upstream.seen().len() > before).then_some(())
    })
    .await;
    drop(wire);
    gateway.ended_as("turn", "client_abort", 2).await;
    let second = spent().await - nothing;
    assert!((second - first).abs() < 1e-9, "{second} {first}");

    let mut wire = post("cut").await;
    wire.head().await;
    while wire.chunk().await.is_some() {}
    gateway.ended_as("turn", "upstream_cut", 1).await;
    let third = spent().await - nothing;
    assert!((third - 2.0 * first).abs() < 1e-9, "{third} {first}");

    let turns = gateway.turns_of("c06", 7).await;
    for turn in &turns {
        let free = turn["cost_usd"] == "0" && turn["usage_complete"] == true;
        assert!(!free || turn["outcome"] == "ok", "{turn}");
    }
}

#[tokio::test]
async fn d10_all_agents_of_a_session_are_one_run() {
    let upstream = Upstream::start(|_, number| {
        // Each of them wants to go on.
        let message = json!({
            "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "test-sonnet",
            "content": [{"type": "tool_use", "id": format!("t{number}"), "name": "read", "input": {}}],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 5},
        });
        vec![Step::write(http_json(200, &message.to_string()))]
    })
    .await;
    let caps = "[caps.run]\nturns = 40\ndepth = 2\nagents = 10\n";
    let gateway = Gateway::with(&upstream.url(), &format!("{PRICES}{caps}"), &[]);
    let ask = async |agent: &str, parent: &str, text: &str| {
        let mut headers = vec!["x-claude-code-session-id: s1".to_owned()];
        if !agent.is_empty() {
            headers.push(format!("x-claude-code-agent-id: {agent}"));
        }
        if !parent.is_empty() {
            headers.push(format!("x-claude-code-parent-agent-id: {parent}"));
        }
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let mut request = body(messages(&[]));
        request["messages"][0]["content"] = json!(text);
        Wire::exchange(
            gateway.proxy,
            "/v1/messages",
            &headers,
            request.to_string().as_bytes(),
        )
        .await
    };
    assert_eq!(ask("", "", "root").await.status, 200);
    for n in 0..5 {
        assert_eq!(
            ask(&format!("c{n}"), "", &format!("child {n}"))
                .await
                .status,
            200
        );
    }
    assert_eq!(ask("g0", "c0", "grandchild").await.status, 200);
    let text = refused_by(
        &ask("gg0", "g0", "too deep").await,
        "depth",
        "caps.run.depth",
    );
    assert!(text.contains("run s1"), "{text}");
    assert!(text.contains("at depth 3, and 2 is allowed"), "{text}");
    assert!(
        text.contains("let the agent above do this itself"),
        "{text}"
    );
    // Who names a parent that nobody knows is the first agent's child.
    assert_eq!(ask("lost", "nobody", "whose am I").await.status, 200);
    for n in 1..3 {
        assert_eq!(
            ask(&format!("g{n}"), "c0", &format!("grandchild {n}"))
                .await
                .status,
            200
        );
    }
    let text = refused_by(
        &ask("g4", "c0", "one too many").await,
        "agents",
        "caps.run.agents",
    );
    assert!(text.contains("10 of 10 are at work"), "{text}");
    // Those that run already go on, until the run's turns are used up: 10 so far.
    for n in 10..40 {
        let reply = ask("c1", "", &format!("child 1, more {n}")).await;
        assert_eq!(reply.status, 200, "{n}: {}", reply.text());
    }
    refused_by(
        &ask("c2", "", "child 2 goes on").await,
        "turns",
        "caps.run.turns",
    );
    refused_by(
        &ask("", "", "root goes on").await,
        "turns",
        "caps.run.turns",
    );
    let turns = gateway.turns_of("s1", 40).await;
    let thread = |name: &str| turns.iter().find(|t| t["thread"] == name).unwrap();
    assert_eq!(thread("g0")["parent_thread"], "c0");
    assert_eq!(thread("c0")["parent_thread"], "main");
    assert_eq!(thread("lost")["parent_thread"], "main");
    let flags = thread("lost")["warnings"].to_string();
    assert!(flags.contains("unknown_parent"), "{flags}");
}

#[tokio::test]
async fn d15_the_gateway_adds_no_attempt_of_its_own() {
    let overloaded =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let upstream = Upstream::answering(http_json(529, overloaded)).await;
    let gateway = Gateway::with(
        &upstream.url(),
        PRICES,
        &["--max-turns", "1", "--max-usd", "0.5"],
    );
    for retry in 0..3 {
        let count = format!("x-stainless-retry-count: {retry}");
        let headers = [count.as_str(), "x-client-request-id: one"];
        let reply = send_with(&gateway, "d15", &headers, &tiny(64)).await;
        assert_eq!((reply.status, reply.text().as_str()), (529, overloaded));
    }
    assert_eq!(upstream.seen().len(), 3);
    let turns = gateway.turns_of("d15", 3).await;
    let attempts: Vec<&Value> = turns.iter().map(|t| &t["attempt"]).collect();
    assert_eq!(attempts, [&json!(1), &json!(2), &json!(3)]);
    assert!(turns.iter().all(|t| t["turn"] == 1));
}

#[tokio::test]
async fn what_a_run_has_used_survives_a_restart() {
    let upstream = answering(10, 5).await;
    let args = ["--max-turns", "3"];
    let gateway = Gateway::with(&upstream.url(), PRICES, &args);
    for _ in 0..2 {
        assert_eq!(send(&gateway, "r", &tiny(64)).await.status, 200);
    }
    gateway.turns_of("r", 2).await;
    let gateway = gateway.restart(&upstream.url(), PRICES, &args);
    let reply = send(&gateway, "r", &tiny(64)).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("x-prefixgate-left-turns"), Some("0"));
    refused_by(
        &send(&gateway, "r", &tiny(64)).await,
        "turns",
        "caps.run.turns",
    );
    assert_eq!(send(&gateway, "another", &tiny(64)).await.status, 200);
}

#[tokio::test]
async fn a_request_may_lower_a_cap_and_never_raise_it() {
    let upstream = answering(10, 5).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &["--max-turns", "2"]);
    let low = ["x-prefixgate-max-turns: 1"];
    assert_eq!(send_with(&gateway, "a", &low, &tiny(64)).await.status, 200);
    let text = refused_by(
        &send_with(&gateway, "a", &low, &tiny(64)).await,
        "turns",
        "x-prefixgate-max-turns",
    );
    assert!(text.contains("1 of 1"), "{text}");
    let high = ["x-prefixgate-max-turns: 50"];
    assert_eq!(send_with(&gateway, "a", &high, &tiny(64)).await.status, 200);
    refused_by(
        &send_with(&gateway, "a", &high, &tiny(64)).await,
        "turns",
        "caps.run.turns",
    );
    // For clients that can only set a base URL.
    let path = "/-/run=b,max-turns=1/v1/messages";
    let ask =
        async || Wire::exchange(gateway.proxy, path, &[], tiny(64).to_string().as_bytes()).await;
    assert_eq!(ask().await.status, 200);
    refused_by(&ask().await, "turns", "x-prefixgate-max-turns");
    // Nothing of it reaches the upstream.
    assert!(
        upstream
            .seen()
            .iter()
            .all(|seen| !seen.head.contains("prefixgate"))
    );
    let wrong = send_with(&gateway, "a", &["x-prefixgate-max-usd: lots"], &tiny(64)).await;
    assert_eq!(wrong.status, 400);
    let error = wrong.json();
    assert_eq!(error["error"]["type"], "invalid_request_error");
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("x-prefixgate-max-usd")
    );
}

#[tokio::test]
async fn requests_without_a_run_share_one_budget_of_their_key() {
    let upstream = answering(10, 5).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &["--max-turns", "2"]);
    let ask = async |text: &str, key: &str| {
        let mut request = tiny(64);
        request["messages"][0]["content"] = json!(text);
        let bytes = request.to_string();
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: g\r\nx-api-key: {key}\r\ncontent-length: {}\r\n\r\n{bytes}",
            bytes.len()
        );
        let mut wire = Wire::connect(gateway.proxy).await;
        wire.send(head.as_bytes()).await;
        wire.response().await
    };
    assert_eq!(ask("one", "k1").await.status, 200);
    assert_eq!(ask("two", "k1").await.status, 200);
    let text = refused_by(&ask("three", "k1").await, "turns", "caps.unnamed.turns");
    assert!(text.contains("x-prefixgate-run"), "{text}");
    assert_eq!(ask("four", "k2").await.status, 200);
    // A run of the same key has its own.
    assert_eq!(send(&gateway, "named", &tiny(64)).await.status, 200);
}

#[tokio::test]
async fn a_key_has_limits_of_its_own() {
    let upstream = Upstream::start(|seen, number| match number {
        0 => vec![Step::Pause(Duration::from_millis(300)), answer(seen, 10, 5)],
        _ => vec![answer(seen, 10, 5)],
    })
    .await;
    let caps = "[caps.key]\nrequests_per_minute = 3\nconcurrency = 1\ntokens_per_day = 400\n";
    let gateway = Gateway::with(
        &upstream.url(),
        &format!("{PRICES}{caps}"),
        &["--cache", "off"],
    );
    let replies = at_once(&gateway, "a", &[tiny(1), tiny(1)]).await;
    let busy = replies.iter().find(|r| r.status != 200).unwrap();
    assert_eq!(busy.status, 429);
    assert_eq!(busy.json()["error"]["type"], "rate_limit_error");
    assert_eq!(busy.header("retry-after"), Some("1"));
    assert_eq!(busy.header("x-should-retry"), Some("true"));
    let told = "prefixgate: cap reached: concurrency of this key: 1 of 1 requests at a time are under way. \
                There is room as soon as one of them ends (setting caps.key.concurrency)";
    assert_eq!(busy.json()["error"]["message"], told);
    // What was refused did not count: two more are let in by then, of any run.
    for run in ["b", "c"] {
        assert_eq!(send(&gateway, run, &tiny(1)).await.status, 200);
    }
    let many = send(&gateway, "d", &tiny(1)).await;
    assert_eq!(many.status, 429, "{}", many.text());
    let wait: u64 = many.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let told = format!(
        "prefixgate: cap reached: requests_per_minute of this key: 3 of 3 within the last minute. There is \
         room again in {wait} s (setting caps.key.requests_per_minute)"
    );
    assert_eq!(many.json()["error"]["message"], told);
    let long = send(&gateway, "e", &tiny(400)).await;
    refused_by(&long, "tokens", "caps.key.tokens_per_day");
}

#[tokio::test]
async fn a_cap_may_answer_in_the_models_place_or_only_warn() {
    let upstream = answering(10, 5).await;
    let config = |action: &str| {
        format!("{PRICES}[caps]\naction = \"{action}\"\n[caps.run]\nturns = 1\ntokens = 100\n")
    };
    let gateway = Gateway::with(&upstream.url(), &config("answer"), &[]);
    assert_eq!(send(&gateway, "a", &tiny(1)).await.status, 200);
    let reply = send(&gateway, "a", &tiny(1)).await;
    assert_eq!(reply.status, 200);
    let message = reply.json();
    assert_eq!(message["stop_reason"], "end_turn");
    let text = message["content"][0]["text"].as_str().unwrap();
    let whose = "[prefixgate] This turn was ended by the gateway, and the model was not asked: cap \
                 reached: turns of run a: 1 of 1 (setting caps.run.turns).";
    assert_eq!(text, whose);
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(gateway.turns_of("a", 2).await[1]["outcome"], "refused");

    let gateway = Gateway::with(&upstream.url(), &config("warn"), &[]);
    for turn in 0..3 {
        let reply = send(&gateway, "w", &tiny(1)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let over = reply.header("x-prefixgate-over-cap");
        let expected = format!("turns of run: {turn} of 1");
        assert_eq!(over, (turn > 0).then_some(expected.as_str()));
        // What goes beyond one cap is booked in the others all the same.
        let left: u64 = reply
            .header("x-prefixgate-left-tokens")
            .unwrap()
            .parse()
            .unwrap();
        assert!(left < 100 - 15 * turn, "{left}");
    }
    let turns = gateway.turns_of("w", 3).await;
    assert_eq!(turns[2]["outcome"], "ok");
    assert_eq!(turns[2]["guard"]["cap"], "turns");
    // What passed was not refused.
    let refusals = gateway.metric("prefixgate_cap_refusals_total", &[]).await;
    assert_eq!(refusals, 0.0);
    let caps = gateway.report(&["caps", "--run", "w"]);
    assert!(caps.iter().all(|cap| cap["refusals"] == 0), "{caps:?}");
}

#[tokio::test]
async fn a_base_url_with_a_slash_at_its_end_is_no_way_around() {
    let upstream = answering(10, 5).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &["--max-turns", "1"]);
    let body = tiny(1).to_string();
    for (path, status) in [
        ("/-/run=s//v1/messages", 200),
        ("/-/run=s///v1/messages", 400),
    ] {
        let reply = Wire::exchange(gateway.proxy, path, &[], body.as_bytes()).await;
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    // It goes on as it came.
    assert_eq!(upstream.last().line(), "POST //v1/messages");
    assert_eq!(gateway.turns_of("s", 2).await.len(), 2);
}

#[tokio::test]
async fn an_unreadable_body_under_a_cap_on_money_is_called_that() {
    let upstream = answering(10, 5).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &["--max-usd", "1"]);
    let reply = Wire::exchange(
        gateway.proxy,
        "/v1/messages",
        &["x-prefixgate-run: u"],
        b"not json",
    )
    .await;
    assert_eq!(reply.status, 400);
    assert!(
        reply.text().contains("body could not be read"),
        "{}",
        reply.text()
    );
    let mut endless = tiny(1);
    endless["max_tokens"] = json!(10_u64.pow(18));
    let reply = send(&gateway, "u", &endless).await;
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("max_tokens"), "{}", reply.text());
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn without_caps_nothing_is_added_to_an_answer() {
    let upstream = answering(10, 5).await;
    let gateway = Gateway::start(&upstream.url());
    let reply = send(&gateway, "r", &tiny(64)).await;
    assert!(!reply.head.contains("x-prefixgate"), "{}", reply.head);
    let quiet = Gateway::with(
        &upstream.url(),
        "[caps]\nheaders = false\n",
        &["--max-turns", "5"],
    );
    let reply = send(&quiet, "r", &tiny(64)).await;
    assert!(!reply.head.contains("x-prefixgate"), "{}", reply.head);
}
