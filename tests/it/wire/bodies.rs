//! B10: large bodies, and too large ones.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{RUN, response};
use crate::support::upstream::{chunk, json};
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, ask, eventually};

/// Bodies above this are refused in the tests of refusal.
const SMALL: &str = "[server]\nmax_body = \"1MiB\"\n";

/// A conversation with base64 images that has `size` bytes.
fn pictures(size: usize) -> Vec<u8> {
    let rules = "A long rule that is worth keeping. ".repeat(300);
    let head = r#"{"model":"test-sonnet","max_tokens":9,"system":[{"type":"text","text":""#;
    let middle = r#""}],"tools":[{"name":"a","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":""#;
    let open = [head, &rules, middle].concat();
    let close = r#""}},{"type":"text","text":"what is this?"}]}]}"#;
    let data = "iVBORw0KGgoAAAANSUhEUg+/".repeat(size / 24 + 1);
    let room = size - open.len() - close.len();
    [&open, &data[..room], close].concat().into_bytes()
}

#[tokio::test]
async fn b10_bodies_of_31_mb_pass_in_three_times_their_size() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    for megabytes in [1.9, 2.1, 16.0, 31.0] {
        let body = pictures((megabytes * 1e6) as usize);
        for (policy, chunked) in [("off", false), ("fill", false), ("off", true)] {
            let gateway = Gateway::with(&upstream.url(), PRICES, &["--cache", policy]);
            Wire::exchange(
                gateway.proxy,
                "/v1/messages",
                &[],
                ask("m", false).as_bytes(),
            )
            .await;
            let before = gateway.peak_kb();
            let reply = if chunked {
                let mut wire = Wire::connect(gateway.proxy).await;
                let head = format!(
                    "POST /v1/messages HTTP/1.1\r\nhost: x\r\n{RUN}\r\ntransfer-encoding: chunked\r\n\r\n"
                );
                wire.send(head.as_bytes()).await;
                for piece in body.chunks(100_000) {
                    wire.send(&chunk(piece)).await;
                }
                wire.send(b"0\r\n\r\n").await;
                wire.response().await
            } else {
                Wire::exchange(gateway.proxy, "/v1/messages", &[RUN], &body).await
            };
            assert_eq!(reply.status, 200);
            let seen = upstream.last();
            let added = crate::agents::splice::added_markers(&body, &seen.body);
            assert_eq!(added > 0, policy == "fill", "{megabytes} MB");
            let grown = gateway.peak_kb() - before;
            let most = 3 * body.len() as u64 / 1024 + 2048;
            assert!(
                grown <= most,
                "{megabytes} MB {policy} chunked {chunked}: {grown} kB"
            );
            let turn = &gateway.turns_of("r", 1).await[0];
            assert_eq!(turn["request_bytes"], body.len());
            // The record does not hold the images.
            assert!(turn.to_string().len() < 4096);
        }
    }
}

#[tokio::test]
async fn b10_a_body_above_the_limit_is_refused_and_the_client_can_read_why() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::with(&upstream.url(), SMALL, &[]);
    let check = |reply: &crate::support::client::Reply| {
        assert_eq!(reply.status, 413);
        assert!(reply.complete);
        let body = reply.json();
        assert_eq!(body["type"], "error");
        assert_eq!(body["error"]["type"], "request_too_large");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("1048576") && message.contains("server.max_body"),
            "{message}"
        );
        assert_eq!(reply.header("x-should-retry"), Some("false"));
    };
    let body = pictures(20 << 20);
    // A client that reads only when it has sent everything.
    check(&Wire::exchange(gateway.proxy, "/v1/messages", &[], &body).await);
    // The same without a known length.
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    for piece in body.chunks(100_000) {
        wire.send(&chunk(piece)).await;
    }
    wire.send(b"0\r\n\r\n").await;
    check(&wire.response().await);
    // A client that asks first is told before it sends, and no `100 Continue`.
    let mut wire = Wire::connect(gateway.proxy).await;
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    wire.send(head.as_bytes()).await;
    let begun = wire.until(b"\r\n").await.unwrap();
    assert!(
        begun.starts_with(b"HTTP/1.1 413"),
        "{}",
        String::from_utf8_lossy(&begun)
    );
    // A client that never stops sending is told while it sends.
    let stream = tokio::net::TcpStream::connect(gateway.proxy).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    write
        .write_all(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let endless = tokio::spawn(async move {
        let piece = chunk(&[b'x'; 4096]);
        while write.write_all(&piece).await.is_ok() {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    });
    let mut got = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), async {
        while !got.windows(8).any(|w| w == b"max_body") {
            assert!(
                read.read_buf(&mut got).await.unwrap() > 0,
                "closed without an answer"
            );
        }
    })
    .await
    .expect("no answer while sending");
    endless.abort();

    assert!(upstream.seen().is_empty());
    gateway.ended_as("turn", "client_error", 4).await;
    // It goes on serving.
    let reply = Wire::exchange(
        gateway.proxy,
        "/v1/messages",
        &[],
        ask("m", false).as_bytes(),
    )
    .await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    let nowhere = super::nobody().await;
    let gateway = Gateway::start(&format!("http://{nowhere}"));
    let body = vec![b'x'; 12 << 20];
    for (path, status) in [
        ("/u/unknown/v1/messages", 404),
        ("/v1/messages/count_tokens", 502),
        ("/v1/messages", 502),
    ] {
        let reply = Wire::exchange(gateway.proxy, path, &[], &body).await;
        assert_eq!((reply.status, reply.complete), (status, true), "{path}");
    }
}

#[tokio::test]
async fn an_early_answer_of_the_upstream_reaches_a_client_that_is_still_sending() {
    // The upstream judges by the head, answers and reads no further, as some do.
    let answer = response(
        "401 Unauthorized",
        &["content-type: application/json"],
        b"{\"early\":1}",
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 64];
            stream.read_exact(&mut buffer).await.unwrap();
            stream.write_all(&answer).await.unwrap();
            stream.shutdown().await.unwrap();
            kept.push(stream);
        }
    });
    let gateway = Gateway::start(&url);
    let body = vec![b'x'; 12 << 20];
    for path in ["/v1/files", "/v1/messages"] {
        let reply = Wire::exchange(gateway.proxy, path, &[], &body).await;
        assert_eq!(reply.status, 401, "{path}");
        assert_eq!(reply.body, b"{\"early\":1}");
    }
}

#[tokio::test]
async fn a_body_the_client_does_not_finish_is_never_finished_for_it() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::start(&upstream.url());
    for path in ["/v1/files", "/v1/messages"] {
        for framing in ["transfer-encoding: chunked", "content-length: 100"] {
            let mut wire = Wire::connect(gateway.proxy).await;
            let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\n{framing}\r\n\r\n");
            wire.send(head.as_bytes()).await;
            wire.send(if framing.contains("chunked") {
                b"5\r\nhello\r\n"
            } else {
                b"hello"
            })
            .await;
            if path == "/v1/files" {
                eventually("a connection", async || (upstream.open() > 0).then_some(())).await;
            }
            drop(wire);
            eventually("nothing open", async || {
                (upstream.open() == 0).then_some(())
            })
            .await;
        }
    }
    gateway.ended_as("other", "client_abort", 2).await;
    gateway.ended_as("turn", "client_abort", 2).await;
    assert!(
        upstream.seen().is_empty(),
        "half a request was taken for a whole one"
    );
}

#[tokio::test]
async fn a_client_that_stalls_inside_its_body_does_not_keep_others_waiting() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let config =
        "[server]\nmax_body = \"1MiB\"\nmax_buffered = \"1MiB\"\n[timeouts]\nidle = \"1s\"\n";
    let gateway = Gateway::with(&upstream.url(), config, &[]);
    // A body of unknown length takes the whole budget.
    let mut stalled = Wire::connect(gateway.proxy).await;
    stalled
        .send(b"POST /v1/messages HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"m\r\n")
        .await;
    let body = ask("test-sonnet", false);
    let reply = Wire::exchange(gateway.proxy, "/v1/messages", &[], body.as_bytes()).await;
    assert_eq!(reply.status, 200);
    let told = stalled.response().await;
    assert_eq!(told.status, 408, "{}", told.text());
    assert_eq!(told.json()["error"]["type"], "timeout_error");
    assert_eq!(upstream.seen().len(), 1, "half a body went nowhere");
}

#[tokio::test]
async fn expect_100_continue_gets_its_go_ahead() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::start(&upstream.url());
    let body = ask("m", false);
    for path in ["/v1/messages", "/v1/files"] {
        let mut wire = Wire::connect(gateway.proxy).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        wire.send(head.as_bytes()).await;
        let interim = wire.until(b"\r\n\r\n").await.unwrap();
        assert_eq!(interim, b"HTTP/1.1 100 Continue", "{path}");
        wire.send(body.as_bytes()).await;
        assert_eq!(wire.response().await.status, 200);
        let seen = upstream.last();
        assert_eq!(seen.header("expect"), None);
        assert_eq!(seen.body, body.as_bytes());
    }
}

#[tokio::test]
async fn the_upstreams_answers_pass_byte_for_byte_whatever_their_status() {
    let upstream = Upstream::start(|seen, _| {
        let status = seen.header("x-status").unwrap().to_owned();
        let body = format!("{{\"type\":\"error\", \"status\" :{status},\"é\":\"\\ud800\"}} \n");
        let reason = format!("{status} Because I Say So");
        vec![Step::Write(response(
            &reason,
            &[
                "Content-Type: application/json",
                "retry-after: 7",
                "anthropic-ratelimit-x: y",
            ],
            body.as_bytes(),
        ))]
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    let mut wire = Wire::connect(gateway.proxy).await;
    for status in [
        400, 401, 402, 403, 404, 405, 408, 409, 413, 422, 429, 451, 500, 501, 502, 503, 504, 529,
        599,
    ] {
        for path in ["/v1/messages", "/v1/models"] {
            let header = format!("x-status: {status}");
            wire.post(path, &[&header], ask("m", true).as_bytes()).await;
            let reply = wire.response().await;
            let lines: Vec<&str> = reply.head.lines().collect();
            assert_eq!(lines[0], format!("HTTP/1.1 {status} Because I Say So"));
            assert_eq!(
                lines[1..4],
                [
                    "Content-Type: application/json",
                    "retry-after: 7",
                    "anthropic-ratelimit-x: y"
                ]
            );
            assert_eq!(lines.len(), 5, "{lines:?}");
            assert_eq!(
                reply.text(),
                format!("{{\"type\":\"error\", \"status\" :{status},\"é\":\"\\ud800\"}} \n")
            );
        }
    }
    gateway.ended_as("turn", "upstream_error", 19).await;
}
