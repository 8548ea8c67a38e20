//! Bytes of both directions, with both sides played by hand.

use super::*;
use crate::support::client::header;
use crate::support::{Step, Upstream, Wire};
use crate::wire::upgrades::AGREE;
use crate::wire::{Hand, Held};

/// The request for an upgrade.
pub fn ask() -> String {
    let ask = std::str::from_utf8(crate::wire::upgrades::ASK).unwrap();
    ask.replace("/v1/realtime?model=x", "/v1/responses")
        .replace(
            "\r\n\r\n",
            "\r\nsec-websocket-extensions: permessage-deflate\r\nx-prefixgate-run: r\r\n\r\n",
        )
}

/// A frame; masked if there is a mask.
fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let bit = if mask.is_some() { 0x80 } else { 0 };
    let mut out = vec![first];
    match payload.len() {
        n @ 0..126 => out.push(bit | n as u8),
        n => {
            out.push(bit | 127);
            out.extend((n as u64).to_be_bytes());
        }
    }
    let key = mask.unwrap_or_default();
    out.extend(mask.into_iter().flatten());
    out.extend(payload.iter().zip(key.iter().cycle()).map(|(a, b)| a ^ b));
    out
}

fn said(event: Value) -> Vec<u8> {
    frame(0x81, event.to_string().as_bytes(), None)
}

fn asked(event: &Value) -> Vec<u8> {
    frame(0x81, event.to_string().as_bytes(), Some([1, 2, 3, 4]))
}

async fn joined(gateway: &Gateway, upstream: &Hand) -> (Wire, Held) {
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(ask().as_bytes()).await;
    let mut held = upstream.accept().await;
    held.send(AGREE).await;
    let head = wire.head().await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    (wire, held)
}

/// As many bytes as are expected must be these.
async fn arrive(wire: &mut Wire, expected: &[u8]) {
    while wire.buffer.len() < expected.len() {
        assert!(wire.read_more().await > 0, "the connection ended");
    }
    assert!(wire.buffer == expected);
    wire.buffer.clear();
}

async fn arrive_upstream(held: &mut Held, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    let read = tokio::io::AsyncReadExt::read_exact(&mut held.stream, &mut got);
    tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
    assert!(got == expected);
}

#[tokio::test]
async fn frames_are_the_same_bytes_on_both_sides() {
    // What it sends back is what it got, so both directions are compared.
    let upstream = Upstream::start(|_, _| vec![Step::write(AGREE), Step::Echo]).await;
    let gateway = gateway(&upstream.url(), "");
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(ask().as_bytes()).await;
    let head = wire.head().await;
    assert_eq!(header(&head, "upgrade"), Some("websocket"));
    assert_eq!(upstream.last().header("sec-websocket-extensions"), None);
    assert_eq!(upstream.last().header("sec-websocket-version"), Some("13"));

    let mask = |n: u8| Some([n, n.wrapping_mul(7), 0, n ^ 0x55]);
    let noise: Vec<u8> = (0..300_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut all = Vec::new();
    all.extend(frame(0x82, &noise, mask(1)));
    all.extend(frame(0x01, b"", mask(2)));
    all.extend(frame(0x00, b"{\"type\":", mask(3)));
    all.extend(frame(0x80, b"\"x\"}", None));
    all.extend(frame(0x89, b"ping", mask(4)));
    all.extend(frame(0x81, "GET / HTTP/1.1\r\n\r\n".as_bytes(), mask(5)));
    all.extend(frame(0x8A, b"", mask(6)));
    for size in [all.len(), 1_500, 61] {
        for piece in all.chunks(size) {
            wire.send(piece).await;
        }
        arrive(&mut wire, &all).await;
    }
}

#[tokio::test]
async fn a_control_frame_does_not_wait_for_the_message_it_stands_in() {
    let upstream = Hand::new().await;
    let gateway = gateway(&upstream.url(), "");
    let (mut wire, mut held) = joined(&gateway, &upstream).await;
    let (begin, end) = (
        frame(0x01, b"{\"type\"", Some([9; 4])),
        frame(0x80, b":1}", Some([8; 4])),
    );
    let pong = frame(0x8A, b"here", Some([7; 4]));
    wire.send(&[&begin[..], &pong].concat()).await;
    arrive_upstream(&mut held, &pong).await;
    wire.send(&end).await;
    arrive_upstream(&mut held, &[begin, end].concat()).await;
    // The other direction does not wait for anything, in the middle of a frame.
    let whole = said(json!({"type": "response.output_text.delta", "delta": "x"}));
    held.send(&whole[..10]).await;
    arrive(&mut wire, &whole[..10]).await;
    held.send(&whole[10..]).await;
    arrive(&mut wire, &whole[10..]).await;
}

#[tokio::test]
async fn what_we_say_stands_between_messages() {
    let upstream = Hand::new().await;
    let gateway = gateway(&upstream.url(), "[caps.run]\nturns = 1\n");
    let (mut wire, mut held) = joined(&gateway, &upstream).await;
    let first = asked(&with(create("x"), "stream_id", "a"));
    wire.send(&first).await;
    arrive_upstream(&mut held, &first).await;
    // A message in two fragments, with the refusal of another lane in between.
    let begin = frame(0x01, b"{\"type\":\"response.output_text.delta\",", None);
    held.send(&begin).await;
    arrive(&mut wire, &begin).await;
    wire.send(&asked(&with(create("y"), "stream_id", "b")))
        .await;
    let ping = frame(0x89, b"still here", None);
    held.send(&ping).await;
    arrive(&mut wire, &ping).await;
    gateway.ended_as("turn", "refused", 1).await;
    let end = frame(0x80, b"\"delta\":\"x\",\"stream_id\":\"a\"}", None);
    held.send(&end).await;
    while wire.buffer.len() <= end.len() + 4 {
        assert!(wire.read_more().await > 0);
    }
    let ours = wire
        .buffer
        .strip_prefix(&end[..])
        .expect("the message is whole");
    assert_eq!(ours[0], 0x81);
    assert!(ours[4..].starts_with(b"{"), "{ours:?}");
}

#[tokio::test]
async fn an_error_for_a_request_that_waits_does_not_end_the_one_before_it() {
    let upstream = Hand::new().await;
    let gateway = gateway(&upstream.url(), "");
    let (mut wire, mut held) = joined(&gateway, &upstream).await;
    let both = [asked(&create("one")), asked(&create("two"))].concat();
    wire.send(&both).await;
    arrive_upstream(&mut held, &both).await;
    let response = |status: &str| json!({"id": "resp_1", "model": "gpt-6-sol", "status": status});
    let mut whole = response("completed");
    whole["usage"] = json!({"input_tokens": 5, "output_tokens": 2, "total_tokens": 7});
    let events = [
        said(json!({"type": "response.created", "sequence_number": 0, "response": response("in_progress")})),
        said(json!({"type": "error", "status": 429, "error": {"type": "requests", "message": "too many"}})),
        said(json!({"type": "response.completed", "sequence_number": 1, "response": whole})),
    ]
    .concat();
    held.send(&events).await;
    arrive(&mut wire, &events).await;
    let turns = gateway.turns_of("r", 2).await;
    assert_eq!(
        (&turns[0]["outcome"], &turns[0]["tokens"]["output"]),
        (&json!("ok"), &json!(2))
    );
    assert_eq!(
        (&turns[1]["outcome"], &turns[1]["status"]),
        (&json!("upstream_error"), &json!(429))
    );
}

#[tokio::test]
async fn what_steering_makes_the_upstream_say_counts_as_a_turn() {
    let upstream = Hand::new().await;
    let gateway = gateway(&upstream.url(), "");
    let (mut wire, mut held) = joined(&gateway, &upstream).await;
    let request = asked(&create("one"));
    wire.send(&request).await;
    arrive_upstream(&mut held, &request).await;
    let response = |id: &str, previous: Value| json!({"id": id, "model": "gpt-6-sol", "previous_response_id": previous, "usage": {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 2, "total_tokens": 7}});
    let events = [
        said(json!({"type": "response.created", "response": response("resp_1", Value::Null)})),
        said(
            json!({"type": "response.steer.accepted", "sequence_number": 0, "steer": {"id": "s"}}),
        ),
        said(json!({"type": "response.incomplete", "response": response("resp_1", Value::Null)})),
        said(json!({"type": "response.created", "response": response("resp_2", json!("resp_1"))})),
        said(
            json!({"type": "response.completed", "response": response("resp_2", json!("resp_1"))}),
        ),
    ]
    .concat();
    held.send(&events).await;
    arrive(&mut wire, &events).await;
    let turns = gateway.turns_of("r", 2).await;
    assert_eq!(turns[0]["thread"], turns[1]["thread"]);
    assert_eq!(
        (&turns[1]["turn"], &turns[1]["response_id"]),
        (&json!(2), &json!("resp_2"))
    );
    assert_eq!(
        (&turns[1]["outcome"], &turns[1]["warnings"]),
        (&json!("ok"), &json!(["steered"]))
    );
    assert!(turns[1]["cost_usd"].is_string());
}

#[tokio::test]
async fn a_client_that_breaks_the_protocol_is_told_and_let_go() {
    let upstream = Hand::new().await;
    let gateway = gateway(&upstream.url(), "");
    let (mut wire, mut held) = joined(&gateway, &upstream).await;
    wire.send(&frame(0xC1, b"compressed", Some([1; 4]))).await;
    while wire.read_more().await > 0 {}
    assert_eq!(wire.buffer[0], 0x88);
    assert_eq!(wire.buffer[2..4], 1002_u16.to_be_bytes());
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut held.stream, &mut rest)
        .await
        .unwrap();
    assert_eq!(rest, b"");
    drop(wire);
    gateway.ended_as("other", "client_error", 1).await;
}

#[tokio::test]
async fn a_close_of_the_upstream_passes_with_its_code() {
    let upstream = Hand::new().await;
    let gateway = gateway(&upstream.url(), "");
    let (mut wire, mut held) = joined(&gateway, &upstream).await;
    let close = frame(
        0x88,
        &[&1013_u16.to_be_bytes()[..], b"later"].concat(),
        None,
    );
    held.send(&close).await;
    arrive(&mut wire, &close).await;
    let reply = frame(0x88, &1013_u16.to_be_bytes(), Some([5; 4]));
    wire.send(&reply).await;
    arrive_upstream(&mut held, &reply).await;
    drop(held);
    assert_eq!(wire.read_more().await, 0);
    gateway.ended_as("other", "ok", 1).await;
}

#[tokio::test]
async fn an_extension_that_nobody_asked_for_is_not_agreed_to() {
    let agree = String::from_utf8(AGREE.to_vec()).unwrap();
    let agree = agree.replace(
        "\r\n\r\n",
        "\r\nsec-websocket-extensions: permessage-deflate\r\n\r\n",
    );
    let upstream = Upstream::answering(agree).await;
    let gateway = gateway(&upstream.url(), "");
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(ask().as_bytes()).await;
    let reply = wire.response().await;
    assert_eq!(reply.status, 502);
    assert!(reply.text().contains("extension"), "{}", reply.text());
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_upstream() {
    let upstream = Hand::new().await;
    let gateway = gateway(&upstream.url(), "");
    let (mut wire, mut held) = joined(&gateway, &upstream).await;
    let message = said(json!({"type": "response.output_text.delta", "delta": "x".repeat(60_000)}));
    // More than any socket holds: at some point no more is taken.
    let mut sent = 0;
    while let Ok(written) = tokio::time::timeout(
        Duration::from_millis(500),
        tokio::io::AsyncWriteExt::write_all(&mut held.stream, &message),
    )
    .await
    {
        written.unwrap();
        sent += message.len();
        assert!(sent < 256 << 20, "nothing holds it back");
    }
    assert!(gateway.rss_kb() < 200 << 10, "{}", gateway.rss_kb());
    // The other direction flows all the same.
    let ping = frame(0x89, b"p", Some([3; 4]));
    wire.send(&ping).await;
    arrive_upstream(&mut held, &ping).await;
}
