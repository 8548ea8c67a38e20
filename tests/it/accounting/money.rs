//! Group C: tokens in disjoint kinds, exact money, and unknown that is not zero.

use super::{always, only_turn, plain, post, streamed, warnings};
use crate::support::upstream::{LAST_CHUNK, event, json, message, stream_events};
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, ask, eventually};
use serde_json::{Value, json};

fn tokens(turn: &Value) -> [Option<u64>; 5] {
    ["uncached", "read", "write_5m", "write_1h", "output"].map(|kind| turn["tokens"][kind].as_u64())
}

fn run_total(gateway: &Gateway) -> Value {
    let runs = gateway.report(&["runs"]);
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0].clone()
}

async fn token_metric(gateway: &Gateway, kind: &str) -> f64 {
    let label = format!("kind=\"{kind}\"");
    gateway.metric("prefixgate_tokens_total", &[&label]).await
}

#[tokio::test]
async fn c01_cached_tokens_are_counted_once() {
    let usage = r#"{"input_tokens":12,"cache_read_input_tokens":50000,"cache_creation_input_tokens":1000,"cache_creation":{"ephemeral_5m_input_tokens":1000,"ephemeral_1h_input_tokens":0},"output_tokens":200}"#;
    let upstream = always("test-sonnet", usage).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let reply = post(&gateway, &[], &ask("test-sonnet", false)).await;
    assert_eq!(reply.status, 200);

    let turn = only_turn(&gateway).await;
    let all = [Some(12), Some(50_000), Some(1_000), Some(0), Some(200)];
    assert_eq!(tokens(&turn), all);
    assert_eq!(turn["cost_usd"], "0.021786");
    assert_eq!(turn["usage_complete"], true);
    let ratio = turn["hit_ratio"].as_f64().unwrap();
    assert!((ratio - 50_000.0 / 51_012.0).abs() < 1e-12, "{ratio}");
    // Without a cache: 51,012 input tokens at 3.00 and the output.
    assert_eq!(turn["cost_no_cache_usd"], "0.156036");
    assert_eq!(turn["saving_usd"], "0.13425");

    let run = run_total(&gateway);
    assert_eq!(tokens(&run), all);
    assert_eq!(run["cost_usd"], "0.021786");
    assert_eq!(run["cost_complete"], true);
    for (kind, n) in [
        ("uncached", 12.0),
        ("read", 50_000.0),
        ("write_5m", 1_000.0),
        ("output", 200.0),
    ] {
        assert_eq!(token_metric(&gateway, kind).await, n, "{kind}");
    }
    let labels = ["model=\"test-sonnet\""];
    let cost = gateway.metric("prefixgate_cost_usd_total", &labels).await;
    assert!((cost - 0.021_786).abs() < 1e-9, "{cost}");
}

#[tokio::test]
async fn c03_running_totals_are_not_added_up() {
    let start = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"test-sonnet","content":[],"stop_reason":null,"usage":{"input_tokens":25,"cache_read_input_tokens":100,"cache_creation_input_tokens":40,"output_tokens":1}}}"#;
    let events: String = [
        start,
        r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":10}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":25,"cache_read_input_tokens":100,"cache_creation_input_tokens":40,"output_tokens":15}}"#,
        r#"{"type":"message_stop"}"#,
    ]
    .iter()
    .map(|data| event(data))
    .collect();
    let upstream = Upstream::start(move |_, _| streamed(&events, [Step::write(LAST_CHUNK)])).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    post(&gateway, &[], &ask("test-sonnet", true)).await;
    let turn = only_turn(&gateway).await;
    assert_eq!(
        tokens(&turn),
        [Some(25), Some(100), Some(40), Some(0), Some(15)]
    );
    assert_eq!(turn["cost_usd"], "0.00048");
    assert_eq!(
        (&turn["usage_complete"], &turn["outcome"]),
        (&json!(true), &json!("ok"))
    );
    assert_eq!(token_metric(&gateway, "output").await, 15.0);
    assert_eq!(token_metric(&gateway, "read").await, 100.0);
    assert_eq!(token_metric(&gateway, "write_5m").await, 40.0);
}

#[tokio::test]
async fn c05_writes_are_priced_by_their_lifetime() {
    let split = r#"{"input_tokens":10,"cache_creation_input_tokens":10000,"cache_creation":{"ephemeral_5m_input_tokens":4000,"ephemeral_1h_input_tokens":6000},"cache_read_input_tokens":0,"output_tokens":1}"#;
    let events = stream_events(
        "test-sonnet",
        split,
        "x",
        r#"{"cache_creation_input_tokens":10000,"output_tokens":100}"#,
    );
    let sum = r#"{"input_tokens":10,"cache_creation_input_tokens":10000,"cache_read_input_tokens":0,"output_tokens":100}"#;
    let unsplit = json(200, &message("test-sonnet", sum));
    let upstream = Upstream::start(move |seen, _| {
        if seen.json()["stream"] == true {
            streamed(&events, [Step::write(LAST_CHUNK)])
        } else {
            vec![Step::Write(unsplit.clone())]
        }
    })
    .await;
    // Markers of ours would blur what is asked here.
    let gateway = Gateway::with(&upstream.url(), PRICES, &["--cache", "off"]);
    let marked = |marker: &str, stream: bool| {
        format!(
            r#"{{"model":"test-sonnet","max_tokens":9,"stream":{stream},"messages":[{{"role":"user","content":[{{"type":"text","text":"hello","cache_control":{marker}}}]}}]}}"#
        )
    };
    let head = ["x-session-id: session-c05"];
    post(&gateway, &head, &marked(r#"{"type":"ephemeral"}"#, true)).await;
    post(
        &gateway,
        &head,
        &marked(r#"{"type":"ephemeral","ttl":"1h"}"#, false),
    )
    .await;
    post(&gateway, &head, &marked(r#"{"type":"ephemeral"}"#, false)).await;
    let turns = gateway.turns(3).await;
    assert_eq!(
        tokens(&turns[0]),
        [Some(10), Some(0), Some(4000), Some(6000), Some(100)]
    );
    assert_eq!(turns[0]["cost_usd"], "0.05253");
    assert_eq!(turns[0]["split_inferred"], false);
    assert_eq!(
        tokens(&turns[1]),
        [Some(10), Some(0), Some(0), Some(10_000), Some(100)]
    );
    assert_eq!(turns[1]["cost_usd"], "0.06153");
    assert_eq!(turns[1]["split_inferred"], true);
    assert_eq!(
        tokens(&turns[2]),
        [Some(10), Some(0), Some(10_000), Some(0), Some(100)]
    );
    assert_eq!(turns[2]["cost_usd"], "0.03903");
    assert_eq!(turns[2]["split_inferred"], true);
    // 0.05253 + 0.06153 + 0.03903
    assert_eq!(run_total(&gateway)["cost_usd"], "0.15309");
}

/// `message_start` and five deltas of about 40 tokens.
fn begun(usage: &str) -> String {
    let delta = "word ".repeat(32);
    let mut events = vec![
        format!(
            r#"{{"type":"message_start","message":{{"id":"msg_1","type":"message","role":"assistant","model":"test-sonnet","content":[],"stop_reason":null,"usage":{usage}}}}}"#
        ),
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#
            .into(),
    ];
    for _ in 0..5 {
        events.push(format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{delta}"}}}}"#
        ));
    }
    events.iter().map(|data| event(data)).collect()
}

const C06_USAGE: &str = r#"{"input_tokens":25,"cache_read_input_tokens":4000,"output_tokens":1}"#;

fn usd(value: &Value) -> f64 {
    value.as_str().expect("a cost").parse().unwrap()
}

fn c06_check(gateway: &Gateway, turn: &Value, outcome: &str) {
    assert_eq!(turn["outcome"], outcome);
    assert_eq!(turn["usage_complete"], false);
    assert_eq!(
        (
            turn["tokens"]["uncached"].as_u64(),
            turn["tokens"]["read"].as_u64()
        ),
        (Some(25), Some(4000))
    );
    let output = turn["tokens"]["output"].as_u64().unwrap();
    assert!((100..=400).contains(&output), "{output}");
    assert_eq!(turn["usage_estimated"], true);
    assert!(usd(&turn["cost_usd"]) >= 0.001_29, "{turn}");
    let run = run_total(gateway);
    assert_eq!(run["cost_usd"], turn["cost_usd"], "the run includes it");
    assert_eq!(run["cost_is_lower_bound"], true);
    assert_eq!(
        (&run["incomplete_turns"], &run["estimated_turns"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test]
async fn c06_a_stream_the_client_stops_is_not_free() {
    let upstream = Upstream::start(|_, _| streamed(&begun(C06_USAGE), [Step::AwaitClose])).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.post("/v1/messages", &[], ask("test-sonnet", true).as_bytes())
        .await;
    wire.head().await;
    for _ in 0..5 {
        assert!(wire.until(b"content_block_delta\"").await.is_some());
    }
    drop(wire);
    let turn = only_turn(&gateway).await;
    c06_check(&gateway, &turn, "client_abort");
    assert_eq!(
        gateway
            .metric("prefixgate_usage_incomplete_total", &[])
            .await,
        1.0
    );
    let cost = gateway.metric("prefixgate_cost_usd_total", &[]).await;
    assert!((cost - usd(&turn["cost_usd"])).abs() < 1e-9);
    eventually("the upstream request is cancelled", async || {
        (upstream.closed().len() == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn c06_a_client_that_leaves_before_the_answer_leaves_an_unknown_not_a_zero() {
    let upstream = Upstream::start(|_, _| vec![Step::AwaitClose]).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.post("/v1/messages", &[], ask("test-sonnet", true).as_bytes())
        .await;
    eventually("the request is upstream", async || {
        (!upstream.seen().is_empty()).then_some(())
    })
    .await;
    drop(wire);
    let turn = only_turn(&gateway).await;
    assert_eq!(turn["outcome"], "client_abort");
    assert_eq!(tokens(&turn), [None; 5]);
    assert_eq!(
        (&turn["usage_complete"], &turn["cost_usd"]),
        (&json!(false), &Value::Null)
    );
    let run = run_total(&gateway);
    assert_eq!(
        (&run["cost_usd"], &run["cost_complete"]),
        (&Value::Null, &json!(false))
    );
    assert_eq!(run["unpriced_turns"], 1);
    assert_eq!(
        gateway.metric("prefixgate_requests_in_flight", &[]).await,
        0.0
    );
    let labels = ["model=\"test-sonnet\"", "outcome=\"client_abort\""];
    assert_eq!(gateway.metric("prefixgate_turns_total", &labels).await, 1.0);
}

#[tokio::test]
async fn c06_a_stream_the_upstream_cuts_is_not_free() {
    let upstream = Upstream::start(|_, _| streamed(&begun(C06_USAGE), [Step::Close])).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let reply = post(&gateway, &[], &ask("test-sonnet", true)).await;
    assert!(!reply.complete, "a cut must not look like an end");
    let turn = only_turn(&gateway).await;
    c06_check(&gateway, &turn, "upstream_cut");
}

/// As the runs of C06, with a write whose lifetime only the request's markers tell.
#[tokio::test]
async fn c06_a_broken_stream_still_prices_its_write() {
    let usage = r#"{"input_tokens":25,"cache_read_input_tokens":0,"cache_creation_input_tokens":10000,"output_tokens":1}"#;
    let upstream = Upstream::start(move |_, n| {
        let last = if n == 0 {
            Step::AwaitClose
        } else {
            Step::Close
        };
        streamed(&begun(usage), [last])
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &["--cache", "off"]);
    let body = r#"{"model":"test-sonnet","max_tokens":9,"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"hello","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}"#;
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.post("/v1/messages", &["x-session-id: s"], body.as_bytes())
        .await;
    for _ in 0..5 {
        assert!(wire.until(b"content_block_delta\"").await.is_some());
    }
    drop(wire);
    gateway.turns(1).await;
    post(&gateway, &["x-session-id: s"], body).await;
    let turns = gateway.turns(2).await;
    for turn in &turns {
        assert_eq!(turn["tokens"]["write_1h"], 10_000, "{turn}");
        // The write alone is 0.06.
        assert!(usd(&turn["cost_usd"]) > 0.06, "{turn}");
    }
}

#[tokio::test]
async fn c08_a_model_without_a_price_is_unknown_not_free() {
    let upstream = Upstream::start(|seen, _| {
        let model = seen.json()["model"].as_str().unwrap().to_owned();
        vec![Step::Write(json(
            200,
            &message(&model, &plain(1_000_000, 50_000)),
        ))]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let session = ["x-session-id: session-c08"];
    for _ in 0..3 {
        post(&gateway, &session, &ask("test-unlisted-9", false)).await;
    }
    for name in [
        "vendor/test-sonnet",
        "test-sonnet-20261101",
        "test-sonnet[1m]",
    ] {
        post(&gateway, &session, &ask(name, false)).await;
    }
    post(&gateway, &session, &ask("test-sonnet-mini", false)).await;
    post(&gateway, &session, &ask("test-sonnet", false)).await;
    let turns = gateway.turns(8).await;
    for turn in turns.iter().take(3).chain([&turns[6]]) {
        assert_eq!(turn["cost_usd"], Value::Null);
        assert_eq!(
            turn["tokens"]["uncached"], 1_000_000,
            "tokens are known all the same"
        );
        assert!(
            warnings(turn).iter().any(|w| w.starts_with("unpriced")),
            "{turn}"
        );
    }
    for turn in turns[3..6].iter().chain([&turns[7]]) {
        assert_eq!(turn["cost_usd"], "3.75", "{}", turn["model_requested"]);
    }
    let run = run_total(&gateway);
    assert_eq!(run["cost_usd"], "15");
    assert_eq!(
        (&run["unpriced_turns"], &run["cost_complete"]),
        (&json!(4), &json!(false))
    );

    let other = ["model=\"other\""];
    assert_eq!(
        gateway
            .metric("prefixgate_unpriced_turns_total", &other)
            .await,
        4.0
    );
    assert_eq!(
        gateway.metric("prefixgate_unpriced_turns_total", &[]).await,
        4.0
    );
    assert!(!gateway.metrics().await.contains("unlisted"));
    let log = gateway.log();
    let complaints = |model: &str| {
        log.lines()
            .filter(|l| l.contains("no price") && l.contains(&format!("{model}\"")))
            .count()
    };
    assert_eq!(complaints("test-unlisted-9"), 1, "{log}");
    assert_eq!(complaints("test-sonnet-mini"), 1, "{log}");
}

#[tokio::test]
async fn c13_money_adds_up_exactly() {
    let usage = plain(70, 10);
    let upstream = Upstream::answering(json(200, &message("test-sonnet", &usage))).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    for n in 0..101 {
        let body = format!(
            r#"{{"model":"test-sonnet","max_tokens":9,"messages":[{{"role":"user","content":"question {n}"}}]}}"#
        );
        post(&gateway, &["x-session-id: session-c13"], &body).await;
    }
    let turns = gateway.turns(101).await;
    assert_eq!(turns.len(), 101);
    assert!(turns.iter().all(|turn| turn["cost_usd"] == "0.00036"));
    let run = run_total(&gateway);
    assert_eq!(run["cost_usd"], "0.03636");
    assert_eq!(run["turns"], 101);
    for by in ["model", "app", "day"] {
        let groups = gateway.report(&["spend", "--by", by]);
        // A test that runs over midnight has two days.
        let costs: Vec<&str> = groups
            .iter()
            .map(|g| g["cost_usd"].as_str().unwrap())
            .collect();
        assert!(costs.len() == 2 || costs == ["0.03636"], "{by}: {costs:?}");
    }
    let sum = super::number(&gateway, "SELECT SUM(cost_pico) FROM turns");
    assert_eq!(sum, 36_360_000_000);
}

#[tokio::test]
async fn c15_the_serving_model_is_priced() {
    let events = stream_events(
        "test-sonnet-20261101",
        &plain(1000, 1),
        "x",
        r#"{"output_tokens":100}"#,
    );
    let first = events.clone();
    let upstream = Upstream::start(move |_, n| {
        if n == 0 {
            streamed(&first, [Step::write(LAST_CHUNK)])
        } else {
            vec![Step::Write(json(
                200,
                &message("test-small", &plain(1000, 100)),
            ))]
        }
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let body = ask("test-alias", true);
    let reply = post(&gateway, &["x-session-id: session-c15"], &body).await;
    assert_eq!(
        reply.text(),
        events,
        "the answer's model name is not rewritten"
    );
    assert_eq!(upstream.last().body, body.as_bytes(), "nor the request's");
    post(
        &gateway,
        &["x-session-id: session-c15"],
        &ask("test-alias", false),
    )
    .await;
    let turns = gateway.turns(2).await;
    assert_eq!(
        (&turns[0]["model_requested"], &turns[0]["model_served"]),
        (&json!("test-alias"), &json!("test-sonnet-20261101"))
    );
    assert_eq!(turns[0]["cost_usd"], "0.0045");
    assert_eq!(
        (&turns[1]["model_served"], &turns[1]["cost_usd"]),
        (&json!("test-small"), &Value::Null)
    );
    let run = run_total(&gateway);
    assert_eq!(
        run["models"],
        json!(["test-sonnet-20261101", "test-small"]),
        "the switch shows"
    );
}
