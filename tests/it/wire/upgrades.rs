//! Connections that leave HTTP.

use super::Hand;
use crate::support::client::header;
use crate::support::upstream::json;
use crate::support::{Gateway, Step, Upstream, Wire, ask};

pub const ASK: &[u8] = b"GET /v1/realtime?model=x HTTP/1.1\r\nhost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\nauthorization: Bearer k\r\n\r\n";
pub const AGREE: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

#[tokio::test]
async fn after_101_bytes_flow_both_ways() {
    let upstream = Upstream::start(|_, _| vec![Step::write(AGREE), Step::Echo]).await;
    let gateway = Gateway::start(&upstream.url());
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(ASK).await;
    let head = wire.head().await;
    assert!(
        head.starts_with("HTTP/1.1 101 Switching Protocols"),
        "{head}"
    );
    assert_eq!(header(&head, "upgrade"), Some("websocket"));
    assert!(
        header(&head, "connection")
            .unwrap()
            .eq_ignore_ascii_case("upgrade")
    );
    assert_eq!(
        header(&head, "sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    let seen = upstream.last();
    assert_eq!(seen.line(), "GET /v1/realtime?model=x");
    assert_eq!(seen.header("upgrade"), Some("websocket"));
    assert!(
        seen.header("connection")
            .unwrap()
            .eq_ignore_ascii_case("upgrade")
    );
    assert_eq!(seen.header("authorization"), Some("Bearer k"));
    // Bytes that look like HTTP, or like nothing.
    let mut sent: Vec<u8> = b"GET / HTTP/1.1\r\n\r\n\0\xff".to_vec();
    sent.extend((0..300_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8));
    wire.send(&sent).await;
    while wire.buffer.len() < sent.len() {
        assert!(wire.read_more().await > 0);
    }
    assert!(wire.buffer == sent);
    drop(wire);
    gateway.ended_as("other", "ok", 1).await;
    crate::support::eventually("closed", async || (upstream.open() == 0).then_some(())).await;
}

#[tokio::test]
async fn a_refused_upgrade_is_an_answer_like_any_other() {
    let answer = "HTTP/1.1 426 Upgrade Required\r\nUpgrade: h2\r\nConnection: upgrade\r\nx-why: z\r\ncontent-length: 2\r\n\r\nno";
    let upstream = Upstream::answering(answer).await;
    let gateway = Gateway::start(&upstream.url());
    let mut wire = Wire::connect(gateway.proxy).await;
    for _ in 0..2 {
        wire.send(ASK).await;
        let reply = wire.response().await;
        assert_eq!((reply.status, reply.text().as_str()), (426, "no"));
        assert_eq!(reply.header("x-why"), Some("z"));
    }
}

#[tokio::test]
async fn a_switch_nobody_asked_for_is_no_answer() {
    let upstream = Hand::new().await;
    let gateway = Gateway::start(&upstream.url());
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.post("/v1/messages", &[], ask("m", false).as_bytes())
        .await;
    let mut held = upstream.accept().await;
    held.send(AGREE).await;
    let reply = wire.response().await;
    assert_eq!(reply.status, 502);
}

#[tokio::test]
async fn an_offer_of_h2c_is_declined_and_the_turn_stays_a_turn() {
    // Java's client sends this with its first request to every plain address.
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::start(&upstream.url());
    let headers = [
        "connection: Upgrade, HTTP2-Settings",
        "upgrade: h2c",
        "http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
        super::RUN,
    ];
    let reply = Wire::exchange(
        gateway.proxy,
        "/v1/messages",
        &headers,
        ask("m", false).as_bytes(),
    )
    .await;
    assert_eq!(reply.status, 200);
    let seen = upstream.last();
    for name in ["connection", "upgrade", "http2-settings"] {
        assert_eq!(seen.header(name), None, "{}", seen.head);
    }
    assert_eq!(gateway.turns_of("r", 1).await[0]["model_requested"], "m");
}
