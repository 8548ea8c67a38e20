//! B15: connections are reused while they live, and a request is sent once. And many at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{RUN, events, sse};
use crate::support::upstream::json;
use crate::support::{Gateway, Step, Upstream, Wire, ask};

#[tokio::test]
async fn b15_an_upstream_that_closes_idle_connections_costs_no_request() {
    assert!(prefixgate::config::Config::embedded("x".into()).pool_idle < Duration::from_secs(15));

    let upstream = Upstream::start(|_, _| {
        vec![
            Step::Write(json(200, "{}")),
            Step::CloseIdle(Duration::from_millis(150)),
        ]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), "[timeouts]\npool_idle = \"50ms\"\n", &[]);
    let body = ask("m", false);
    let mut wire = Wire::connect(gateway.proxy).await;
    // Pauses of 0 to 255 ms around the two limits, the same in each run.
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for i in 0..200 {
        wire.post("/v1/messages", &[], body.as_bytes()).await;
        assert_eq!(wire.response().await.status, 200, "request {i}");
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let pause = if random & 1 == 0 {
            random >> 60
        } else {
            random >> 56
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    assert_eq!(upstream.seen().len(), 200);
    let made = upstream.connections();
    assert!(
        (2..150).contains(&made),
        "{made} connections: reuse and renewal both happen"
    );
}

#[tokio::test]
async fn b15_an_idle_connection_is_given_up_after_the_configured_time() {
    // This upstream never closes by itself.
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::with(&upstream.url(), "[timeouts]\npool_idle = \"200ms\"\n", &[]);
    let ask = async || {
        Wire::exchange(gateway.proxy, "/v1/models", &[], b"{}").await;
    };
    // A slow machine may take longer than the limit between two requests, but not each time.
    for _ in 0..10 {
        ask().await;
    }
    let reused = upstream.connections();
    assert!(reused < 10, "no connection was used twice");
    tokio::time::sleep(Duration::from_millis(400)).await;
    ask().await;
    assert_eq!(upstream.connections(), reused + 1);
}

#[tokio::test]
async fn b15_a_request_that_was_read_is_never_sent_again() {
    let upstream = Upstream::start(|_, n| match n {
        0 | 3 => vec![Step::Write(json(200, "{}"))],
        // On a fresh connection and on a used one.
        1 | 2 | 4 => vec![Step::Reset],
        _ => vec![Step::Close],
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    let body = ask("m", false);
    for (n, status) in [(1, 200), (2, 502), (3, 502), (4, 200), (5, 502), (6, 502)] {
        let reply = Wire::exchange(gateway.proxy, "/v1/messages", &[RUN], body.as_bytes()).await;
        assert_eq!(reply.status, status, "request {n}");
        if status == 502 {
            assert_eq!(reply.json()["error"]["type"], "api_error");
        }
        assert_eq!(upstream.seen().len(), n, "sent more than once");
    }
    let turns = gateway.turns_of("r", 6).await;
    assert_eq!(turns[1]["outcome"], "upstream_unreachable");
    assert_eq!(turns[1]["status"], 502);
}

#[tokio::test]
async fn b15_a_reset_before_anything_was_read_is_processed_at_most_once() {
    let upstream = Upstream::start(|seen, _| {
        if seen.connection % 2 == 0 {
            vec![Step::Write(json(200, "{}")), Step::ResetUnread]
        } else {
            vec![Step::Write(json(200, "{}"))]
        }
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    for i in 0..20 {
        let before = upstream.seen().len();
        let body = format!(
            r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":"{i}"}}]}}"#
        );
        let reply = Wire::exchange(gateway.proxy, "/v1/messages", &[], body.as_bytes()).await;
        let processed = upstream.seen().len() - before;
        // Bytes may have been on their way: then it is an error, and not a second send.
        match reply.status {
            200 => assert_eq!(processed, 1),
            502 => assert_eq!(processed, 0),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn b15_a_connection_closed_after_its_answer_is_not_used_again() {
    // The FIN follows the answer at once, without a word in its head.
    let upstream = Upstream::start(|_, _| vec![Step::Write(json(200, "{}")), Step::Close]).await;
    let gateway = Gateway::start(&upstream.url());
    let mut wire = Wire::connect(gateway.proxy).await;
    for i in 0..50 {
        wire.post("/v1/messages", &[], ask("m", false).as_bytes())
            .await;
        assert_eq!(wire.response().await.status, 200, "request {i}");
        // What a client does between two turns takes longer than a FIN on this machine.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(upstream.seen().len(), 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_at_a_time_get_their_own_answers() {
    let upstream = Upstream::start(|seen, _| {
        let text = seen.header("x-who").unwrap().to_owned();
        if text.ends_with('0') {
            vec![Step::Write(json(
                200,
                &crate::support::upstream::message(
                    &text,
                    r#"{"input_tokens":1,"output_tokens":1}"#,
                ),
            ))]
        } else {
            vec![Step::Write(sse(&events(&text)))]
        }
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    let done = std::sync::Arc::new(AtomicUsize::new(0));
    let mut clients = tokio::task::JoinSet::new();
    for c in 0..64 {
        let (proxy, done) = (gateway.proxy, done.clone());
        clients.spawn(async move {
            let mut wire = Wire::connect(proxy).await;
            for i in 0..20 {
                let who = format!("client-{c}-request-{i}");
                let body = format!(r#"{{"model":"m","max_tokens":1,"stream":true,"messages":[{{"role":"user","content":"{who}"}}]}}"#);
                wire.post("/v1/messages", &[&format!("x-who: {who}"), RUN], body.as_bytes()).await;
                let reply = wire.response().await;
                assert!(reply.complete && reply.status == 200);
                assert!(reply.text().contains(&format!("\"{who}\"")), "another's answer");
                done.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert_eq!(done.load(Ordering::SeqCst), 64 * 20);
    assert_eq!(gateway.turns_of("r", 64 * 20).await.len(), 64 * 20);
    gateway.ended_as("turn", "ok", 64 * 20).await;
    assert_eq!(
        gateway
            .metric("prefixgate_records_dropped_total", &[])
            .await,
        0.0
    );
    assert_eq!(
        gateway.metric("prefixgate_requests_in_flight", &[]).await,
        0.0
    );
}
