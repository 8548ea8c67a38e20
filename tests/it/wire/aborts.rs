//! B16: a client that has gone takes its upstream request with it.

use std::time::{Duration, Instant};

use super::events;
use crate::support::upstream::{LAST_CHUNK, SSE_HEAD, chunk};
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, ask, eventually};

const AT_ONCE: Duration = Duration::from_secs(1);

fn first_events() -> Vec<u8> {
    let all = String::from_utf8(events("some words")).unwrap();
    all.split_once("event: content_block_stop")
        .unwrap()
        .0
        .as_bytes()
        .to_vec()
}

async fn upstream() -> Upstream {
    Upstream::start(|seen, _| match seen.header("x-case").unwrap() {
        "a" => vec![
            Step::write(SSE_HEAD),
            Step::Write(chunk(&first_events())),
            Step::AwaitClose,
        ],
        "b" => vec![Step::write(SSE_HEAD), Step::AwaitClose],
        "c" | "d" => vec![Step::AwaitClose],
        "e" => vec![
            Step::write(SSE_HEAD),
            Step::Write(chunk(&events("all"))),
            Step::Pause(Duration::from_millis(30)),
            Step::write(LAST_CHUNK),
        ],
        other => panic!("{other}"),
    })
    .await
}

/// Sends the request of a case and leaves at its moment.
async fn leave(gateway: &Gateway, upstream: &Upstream, case: &str) -> Instant {
    let before = upstream.seen().len();
    let mut wire = Wire::connect(gateway.proxy).await;
    let headers = [
        format!("x-case: {case}"),
        format!("x-prefixgate-run: {case}"),
    ];
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    wire.post(
        "/v1/messages",
        &headers,
        ask("test-sonnet", case != "d").as_bytes(),
    )
    .await;
    match case {
        "a" => {
            wire.head().await;
            wire.chunk().await.unwrap();
        }
        "b" => drop(wire.head().await),
        "e" => {
            wire.until(b"message_stop\"}\n\n").await.unwrap();
        }
        _ => {
            eventually("the request is there", async || {
                (upstream.seen().len() > before).then_some(())
            })
            .await
        }
    }
    Instant::now()
}

#[tokio::test]
async fn b16_the_upstream_is_let_go_and_the_record_says_so() {
    let upstream = upstream().await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    for (n, case) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let left = leave(&gateway, &upstream, case).await;
        let closed = eventually("the upstream sees it", async || {
            upstream.closed().get(n).copied()
        })
        .await;
        assert!(closed - left < AT_ONCE, "{case}: after {:?}", closed - left);
        let turn = &gateway.turns_of(case, 1).await[0];
        assert_eq!(turn["outcome"], "client_abort", "{case}");
        assert_eq!(turn["usage_complete"], false);
        if case == "a" {
            // What is known of it is known: the prompt was paid for.
            assert_eq!(turn["tokens"]["uncached"], 100);
            assert_eq!(turn["usage_estimated"], true);
            assert!(turn["tokens"]["output"].as_u64().unwrap() >= 1);
            assert!(turn["cost_usd"].is_string());
        }
    }
    leave(&gateway, &upstream, "e").await;
    let turn = &gateway.turns_of("e", 1).await[0];
    assert_eq!(
        (&turn["outcome"], &turn["usage_complete"]),
        (&"ok".into(), &true.into())
    );
}

#[tokio::test]
async fn b16_nothing_is_left_of_a_hundred_aborts() {
    let upstream = upstream().await;
    let gateway = Gateway::start(&upstream.url());
    // Everything that is opened once is open after these.
    leave(&gateway, &upstream, "a").await;
    gateway.turns_of("a", 1).await;
    let files = eventually("quiet", async || {
        let quiet = upstream.open() == 0
            && gateway.metric("prefixgate_client_connections", &[]).await == 0.0;
        quiet.then(|| gateway.open_files())
    })
    .await;
    for i in 0..100 {
        leave(&gateway, &upstream, ["a", "b", "c", "d"][i % 4]).await;
    }
    eventually("all upstream connections closed", async || {
        (upstream.open() == 0).then_some(())
    })
    .await;
    eventually("files as before", async || {
        (gateway.open_files() <= files).then_some(())
    })
    .await;
    assert_eq!(
        gateway.metric("prefixgate_requests_in_flight", &[]).await,
        0.0
    );
    gateway.ended_as("turn", "client_abort", 101).await;
}
