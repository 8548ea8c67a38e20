//! Many requests at once against one cap on money, with everything going wrong that can: together
//! they never go beyond it, and when they have ended nothing is held any more.

use std::collections::HashSet;

use prefixgate::store::{Filter, Questions as _, Sqlite};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{answer, send};
use crate::support::Redis;
use crate::support::upstream::{SSE_HEAD, chunk, event, json as http_json};
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, eventually};

/// Requests at once.
const WAVE: usize = 200;
/// Waves, each a run of its own.
const ROUNDS: usize = 100;
/// 0.30 USD; the most that one request can use is 0.03 and a little.
const CAP: u64 = 300_000_000_000;
/// Tokens of an answer.
const OUTPUT: u64 = 700;

fn request(round: usize, number: usize) -> Value {
    // Deterministic, and mixed anew in each round.
    let kind = match (number * 7 + round * 3) % 10 {
        0 => "refused",
        1 => "busy",
        2 => "left",
        3 => "cut",
        _ => "fine",
    };
    json!({"model": "test-sonnet", "max_tokens": 2_000, "stream": matches!(kind, "left" | "cut"),
           "messages": [{"role": "user", "content": format!("{kind} {number}")}]})
}

async fn upstream() -> Upstream {
    let begun = event(
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"test-sonnet","content":[],"stop_reason":null,"usage":{"input_tokens":25,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":1}}}"#,
    );
    Upstream::start(move |seen, _| {
        let body = seen.json();
        let text = body["messages"][0]["content"].as_str().unwrap();
        let error =
            |kind| format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"no"}}}}"#);
        match text.split(' ').next().unwrap() {
            "refused" => vec![Step::write(http_json(400, &error("invalid_request_error")))],
            "busy" => vec![Step::write(http_json(529, &error("overloaded_error")))],
            "left" => vec![
                Step::write(SSE_HEAD),
                Step::write(chunk(begun.as_bytes())),
                Step::AwaitClose,
            ],
            "cut" => vec![
                Step::write(SSE_HEAD),
                Step::write(chunk(begun.as_bytes())),
                Step::Reset,
            ],
            _ => vec![answer(seen, 10, OUTPUT)],
        }
    })
    .await
}

/// One request to its end; a client that leaves does so once the answer has begun.
async fn one(to: std::net::SocketAddr, run: String, body: Value) {
    let mut wire = Wire::connect(to).await;
    let text = body.to_string();
    wire.post(
        "/v1/messages",
        &[&format!("x-prefixgate-run: {run}")],
        text.as_bytes(),
    )
    .await;
    let head = wire.head().await;
    let leaves = text.contains("left ") && head.contains(" 200 ");
    if leaves {
        wire.chunk().await;
        return;
    }
    let reply = wire.body_of(head).await;
    if reply.status == 400 && !text.contains("refused ") {
        assert!(
            reply.text().contains("cap reached: usd"),
            "{}",
            reply.text()
        );
    }
}

/// Sum of what the requests of a run have cost, once the records of all of them are there.
async fn spent(gateways: &[Gateway], run: &str, requests: usize) -> (u64, usize) {
    eventually("all records of the round", async || {
        let turns: Vec<_> = gateways
            .iter()
            .flat_map(|gateway| {
                let store = Sqlite::open_read(&gateway.data()).unwrap();
                store.turns(run, &Filter::all(1_000), false).unwrap()
            })
            .collect();
        let cost = turns.iter().filter_map(|turn| turn.cost_pico).sum();
        let passed = turns.iter().filter(|turn| turn.guard.cap.is_none()).count();
        let ids: HashSet<_> = turns.iter().map(|turn| turn.id).collect();
        (ids.len() == requests).then_some((cost, passed))
    })
    .await
}

async fn storm(gateways: &[Gateway], rounds: usize) {
    let mut passed = 0;
    for round in 0..rounds {
        let run = format!("storm-{round}");
        let mut wave = JoinSet::new();
        for number in 0..WAVE {
            let to = gateways[number % gateways.len()].proxy;
            wave.spawn(one(to, run.clone(), request(round, number)));
        }
        while let Some(ended) = wave.join_next().await {
            ended.unwrap();
        }
        let (cost, went) = spent(gateways, &run, WAVE).await;
        assert!(cost <= CAP, "round {round}: {cost}");
        // Some got through although most could not hold enough at once.
        assert!(went > 3, "round {round}: {went}");
        passed += went;
        // Nothing is held: a last request finds all that was not spent. It holds its own most.
        let probe = json!({"model": "test-sonnet", "max_tokens": 1,
                           "messages": [{"role": "user", "content": "fine"}]});
        for gateway in gateways {
            let reply = send(gateway, &run, &probe).await;
            if reply.status == 400 {
                // The run is used up to the last request.
                assert!(
                    cost + 1_000_000_000 > CAP,
                    "round {round}: {}",
                    reply.text()
                );
                continue;
            }
            let left: f64 = reply
                .header("x-prefixgate-left-usd")
                .unwrap()
                .parse()
                .unwrap();
            let unspent = (CAP - cost) as f64 / 1e12;
            // A probe costs about a cent: 700 tokens, whatever it asked for.
            let probes = 0.011 * gateways.len() as f64;
            assert!(
                left <= unspent && left > unspent - 0.001 - probes,
                "round {round}: {left} {unspent}"
            );
        }
    }
    assert!(passed < rounds * WAVE, "the cap was never felt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_two_hundred_at_once_a_hundred_times() {
    let upstream = upstream().await;
    let gateway = Gateway::with(
        &upstream.url(),
        PRICES,
        &["--max-usd", "0.3", "--cache", "off"],
    );
    storm(&[gateway], ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_two_hundred_at_once_over_two_gateways_with_one_redis() {
    let upstream = upstream().await;
    let redis = Redis::start();
    let config = format!("{PRICES}[caps]\nredis = \"{}\"\n", redis.url());
    let start = || {
        Gateway::with(
            &upstream.url(),
            &config,
            &["--max-usd", "0.3", "--cache", "off"],
        )
    };
    storm(&[start(), start()], ROUNDS).await;
}
