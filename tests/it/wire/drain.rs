//! The end of the gateway: running turns may finish, and every record is stored.

use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::{Hand, Held, RUN, events};
use crate::support::gateway::turns_of;
use crate::support::upstream::{LAST_CHUNK, SSE_HEAD, chunk};
use crate::support::{Gateway, Wire, ask, eventually};

/// A stream that has begun.
async fn begun(gateway: &Gateway, upstream: &Hand) -> (Wire, Held) {
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.post("/v1/messages", &[RUN], ask("m", true).as_bytes())
        .await;
    let mut held = upstream.accept().await;
    held.send(SSE_HEAD).await;
    wire.head().await;
    (wire, held)
}

async fn refuses(gateway: &Gateway) {
    eventually("new connections are refused", async || {
        TcpStream::connect(gateway.proxy)
            .await
            .is_err()
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_running_turn_ends_whole_and_is_stored() {
    for signal in ["TERM", "INT"] {
        let upstream = Hand::new().await;
        let mut gateway = Gateway::start(&upstream.url());
        let mut idle = Wire::connect(gateway.proxy).await;
        let (mut wire, mut held) = begun(&gateway, &upstream).await;
        gateway.signal(signal);
        refuses(&gateway).await;
        assert_eq!(idle.read_more().await, 0, "an idle connection is let go");
        let all = events("to the end");
        held.send(&chunk(&all)).await;
        assert_eq!(wire.chunk().await.unwrap(), all);
        held.send(LAST_CHUNK).await;
        assert_eq!(wire.chunk().await, Some(Vec::new()));
        let status = gateway.ended().await;
        assert_eq!(status.code(), Some(0), "{}", gateway.log());
        let turns = turns_of(&gateway.data(), "r");
        assert_eq!(turns.len(), 1);
        assert_eq!(
            (&turns[0]["outcome"], &turns[0]["usage_complete"]),
            (&"ok".into(), &true.into())
        );
    }
}

#[tokio::test]
async fn what_outlasts_the_drain_is_cut_and_stored() {
    let upstream = Hand::new().await;
    let mut gateway = Gateway::with(&upstream.url(), "[timeouts]\ndrain = \"300ms\"\n", &[]);
    let (mut wire, mut held) = begun(&gateway, &upstream).await;
    held.send(&chunk(&events("x")[..200])).await;
    wire.chunk().await.unwrap();
    // A second one waits for its head.
    let mut second = Wire::connect(gateway.proxy).await;
    second
        .post("/v1/messages", &[RUN], ask("m", false).as_bytes())
        .await;
    let _waiting = upstream.accept().await;
    let asked = Instant::now();
    gateway.signal("TERM");
    assert_eq!(gateway.ended().await.code(), Some(0), "{}", gateway.log());
    assert!(asked.elapsed() >= Duration::from_millis(300));
    assert_eq!(wire.chunk().await, None, "it never ends cleanly");
    let turns = turns_of(&gateway.data(), "r");
    assert_eq!(turns.len(), 2, "{turns:?}");
    for turn in &turns {
        assert_ne!(turn["outcome"], "ok");
        assert!(
            turn["warnings"].to_string().contains("cut_by_shutdown"),
            "{turn}"
        );
    }
}

#[tokio::test]
async fn a_second_signal_ends_the_drain_and_loses_no_record() {
    let upstream = Hand::new().await;
    let mut gateway = Gateway::start(&upstream.url());
    let (mut wire, _held) = begun(&gateway, &upstream).await;
    gateway.signal("TERM");
    refuses(&gateway).await;
    let asked = Instant::now();
    gateway.signal("TERM");
    assert_eq!(gateway.ended().await.code(), Some(0), "{}", gateway.log());
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(wire.chunk().await, None);
    assert_eq!(turns_of(&gateway.data(), "r").len(), 1);
}

#[tokio::test]
async fn a_tunnel_has_its_time_too_and_is_recorded() {
    let upstream = Hand::new().await;
    let mut gateway = Gateway::with(&upstream.url(), "[timeouts]\ndrain = \"20s\"\n", &[]);
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(super::upgrades::ASK).await;
    let mut held = upstream.accept().await;
    held.send(super::upgrades::AGREE).await;
    wire.head().await;
    gateway.signal("TERM");
    refuses(&gateway).await;
    wire.send(b"ping").await;
    let mut got = [0; 4];
    tokio::io::AsyncReadExt::read_exact(&mut held.stream, &mut got)
        .await
        .unwrap();
    held.send(b"pong").await;
    while wire.buffer.len() < 4 {
        assert!(wire.read_more().await > 0, "the tunnel was cut at once");
    }
    drop((wire, held));
    assert_eq!(gateway.ended().await.code(), Some(0));
}
