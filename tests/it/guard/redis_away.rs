//! What a user sees of it when the Redis of the caps is away.

use super::{answering, body, messages, send};
use crate::support::{Gateway, PRICES, Redis, Wire, eventually};

async fn gateway(redis: &Redis, down: &str, upstream: &str) -> Gateway {
    let config = format!(
        "{PRICES}[caps]\nredis = \"{}\"\nredis_down = \"{down}\"\n[caps.run]\nturns = 9\n",
        redis.url()
    );
    Gateway::with(upstream, &config, &[])
}

/// Status and text of `/readyz`.
async fn readyz(gateway: &Gateway) -> (u16, String) {
    let mut wire = Wire::connect(gateway.admin).await;
    wire.send(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await;
    let reply = wire.response().await;
    (reply.status, reply.text())
}

async fn up(gateway: &Gateway) -> bool {
    gateway.metric("prefixgate_ledger_up", &[]).await == 1.0
}

/// Sends a request until it is known that Redis is away.
async fn until_known(gateway: &Gateway) {
    eventually("it is known", async || {
        send(gateway, "r", &body(messages(&[]))).await;
        (!up(gateway).await).then_some(())
    })
    .await;
}

#[tokio::test]
async fn each_gateway_counts_alone_meanwhile_and_says_so() {
    let mut redis = Redis::start();
    let upstream = answering(10, 5).await;
    let gateway = gateway(&redis, "local", &upstream.url()).await;
    let ask = body(messages(&[]));
    assert_eq!(send(&gateway, "r", &ask).await.status, 200);
    assert!(up(&gateway).await);
    let told = "ready\ncaps.redis: answers\n".to_owned();
    assert_eq!(readyz(&gateway).await, (200, told.clone()));

    redis.kill();
    until_known(&gateway).await;
    let before = gateway
        .metric("prefixgate_ledger_fallback_total", &[])
        .await;
    assert_eq!(send(&gateway, "r", &ask).await.status, 200);
    let after = gateway
        .metric("prefixgate_ledger_fallback_total", &[])
        .await;
    assert_eq!(after, before + 1.0);
    let (status, text) = readyz(&gateway).await;
    assert_eq!(status, 200);
    assert!(text.contains("go by the books of this gateway"), "{text}");

    redis.run();
    eventually("it is back, though nobody asks", async || {
        up(&gateway).await.then_some(())
    })
    .await;
    assert_eq!(readyz(&gateway).await, (200, told));
    assert_eq!(
        gateway
            .metric("prefixgate_ledger_unavailable_total", &[])
            .await,
        0.0
    );
}

#[tokio::test]
async fn capped_requests_are_refused_meanwhile_where_that_is_wished() {
    let mut redis = Redis::start();
    let upstream = answering(10, 5).await;
    let gateway = gateway(&redis, "refuse", &upstream.url()).await;
    redis.kill();
    until_known(&gateway).await;
    let before = gateway
        .metric("prefixgate_ledger_unavailable_total", &[])
        .await;
    let reply = send(&gateway, "r", &body(messages(&[]))).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    let after = gateway
        .metric("prefixgate_ledger_unavailable_total", &[])
        .await;
    assert_eq!(after, before + 1.0);
    assert_eq!(
        gateway
            .metric("prefixgate_ledger_fallback_total", &[])
            .await,
        0.0
    );
    let (status, text) = readyz(&gateway).await;
    assert_eq!(status, 200);
    assert!(text.contains("requests with caps are refused"), "{text}");
}
