//! B08: one framing, one hop; and attempts to smuggle.

use super::{RUN, response, sse};
use crate::support::client::header;
use crate::support::upstream::{LAST_CHUNK, chunk, json};
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, ask};

#[tokio::test]
async fn b08_i_an_edited_body_has_its_own_length() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let body = super::encodings::long_request(20_000);
    for chunked in [false, true] {
        let mut wire = Wire::connect(gateway.proxy).await;
        if chunked {
            wire.send(
                b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: Chunked\r\n\r\n",
            )
            .await;
            for piece in body.as_bytes().chunks(body.len() / 3 + 1) {
                wire.send(&chunk(piece)).await;
            }
            wire.send(LAST_CHUNK).await;
        } else {
            wire.post("/v1/messages", &[], body.as_bytes()).await;
        }
        assert_eq!(wire.response().await.status, 200);
        let seen = upstream.last();
        assert!(crate::agents::splice::added_markers(body.as_bytes(), &seen.body) > 0);
        let framing = seen.header_names();
        let framing: Vec<_> = framing
            .iter()
            .filter(|n| *n == "content-length" || *n == "transfer-encoding")
            .collect();
        assert_eq!(framing, ["content-length"]);
        assert_eq!(
            seen.header("content-length"),
            Some(seen.body.len().to_string().as_str())
        );
    }
}

#[tokio::test]
async fn b08_ii_chunks_are_passed_whole_with_one_framing() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::start(&upstream.url());
    for path in ["/v1/messages", "/v1/files"] {
        let mut wire = Wire::connect(gateway.proxy).await;
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
        wire.send(head.as_bytes()).await;
        for piece in ["{\"mo", "del\":\"m\"", "}"] {
            wire.send(&chunk(piece.as_bytes())).await;
        }
        wire.send(LAST_CHUNK).await;
        assert_eq!(wire.response().await.status, 200);
        let seen = upstream.last();
        assert_eq!(seen.body, b"{\"model\":\"m\"}");
        let framings = ["content-length", "transfer-encoding"]
            .iter()
            .filter(|n| seen.header(n).is_some())
            .count();
        assert_eq!(framings, 1, "{}", seen.head);
    }
}

#[tokio::test]
async fn b08_iii_what_is_for_one_hop_ends_here_and_all_else_keeps_its_spelling() {
    let upstream = Upstream::start(|_, _| {
        vec![Step::write(
            "HTTP/1.1 203 Quite Fine\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
             Proxy-Authenticate: Basic\r\nX-Camel-Case: a\r\nx-lower: b\r\nSet-Cookie: one\r\nset-cookie: two\r\n\
             X-Odd: \"q\" ,  z\r\nX-Empty:\r\nContent-Length: 2\r\n\r\n{}",
        )]
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(
        b"POST /v1/files HTTP/1.1\r\nHost: gateway:1\r\nConnection: close, x-private\r\nx-private: 1\r\n\
          Keep-Alive: x\r\nTE: trailers\r\nProxy-Authorization: secret\r\nProxy-Connection: close\r\n\
          X-PrefixGate-Run: r\r\nx-prefixgate-what: ever\r\nX-API-Key: k\r\nAnthropic-Beta: a, b\r\nanthropic-beta: c\r\n\
          X-Stainless-Lang:  js \r\nUser-Agent: u/1 (\xe9)\r\nX-Empty:\r\nContent-Length: 2\r\n\r\n{}",
    )
    .await;
    let reply = wire.response().await;
    let seen = upstream.last();
    let mut lines: Vec<&str> = seen.head.lines().skip(1).collect();
    lines.sort_unstable();
    let host = format!("Host: {}", upstream.addr);
    let mut expected = vec![
        "Anthropic-Beta: a, b",
        "anthropic-beta: c",
        "Content-Length: 2",
        host.as_str(),
        "User-Agent: u/1 (\u{fffd})",
        "X-API-Key: k",
        "X-Empty:",
        "X-Stainless-Lang: js",
    ];
    expected.sort_unstable();
    // How the name of our own `host` is spelled is nobody's business.
    let normal = |line: &str| {
        if line.to_lowercase().starts_with("host:") {
            host.clone()
        } else {
            line.trim_end().to_owned()
        }
    };
    assert_eq!(
        lines.iter().map(|l| normal(l)).collect::<Vec<_>>(),
        expected
    );

    let mut lines: Vec<&str> = reply.head.lines().map(str::trim_end).collect();
    assert_eq!(lines.remove(0), "HTTP/1.1 203 Quite Fine");
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "Connection: close",
            "Content-Length: 2",
            "Set-Cookie: one",
            "X-Camel-Case: a",
            "X-Empty:",
            "X-Odd: \"q\" ,  z",
            "set-cookie: two",
            "x-lower: b"
        ],
    );
    assert_eq!(wire.read_more().await, 0, "the client asked to close");
}

#[tokio::test]
async fn b08_iv_http10_clients_get_what_they_understand() {
    let stream = super::events("hi");
    let answer = sse(&stream);
    let upstream = Upstream::start(move |seen, _| {
        vec![Step::Write(if seen.line().starts_with("GET") {
            json(200, "{}")
        } else {
            answer.clone()
        })]
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    let body = ask("m", true);
    // A stream ends with the connection.
    let mut wire = Wire::connect(gateway.proxy).await;
    let head = format!(
        "POST /v1/messages HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    wire.send(head.as_bytes()).await;
    let reply = wire.response().await;
    assert!(reply.head.starts_with("HTTP/1.0 200") || reply.head.starts_with("HTTP/1.1 200"));
    assert_eq!(reply.header("transfer-encoding"), None);
    assert_eq!(reply.body, stream);
    let seen = upstream.last();
    assert!(seen.head.lines().next().unwrap().ends_with("HTTP/1.1"));
    // Without keep-alive the connection ends, with it it stays.
    for (keep, open) in [("", false), ("connection: keep-alive\r\n", true)] {
        let mut wire = Wire::connect(gateway.proxy).await;
        wire.send(format!("GET /v1/models HTTP/1.0\r\n{keep}\r\n").as_bytes())
            .await;
        let reply = wire.response().await;
        assert_eq!(reply.body, b"{}");
        let kept = reply
            .header("connection")
            .is_some_and(|v| v.eq_ignore_ascii_case("keep-alive"));
        assert_eq!(kept, open);
        if open {
            wire.send(format!("GET /v1/models HTTP/1.0\r\n{keep}\r\n").as_bytes())
                .await;
            assert_eq!(wire.response().await.body, b"{}");
        } else {
            assert_eq!(wire.read_more().await, 0);
        }
    }
}

/// Requests whose body could be framed in two ways, or whose head could be read in two ways.
const SMUGGLING: [(&str, &str); 21] = [
    (
        "both, length first",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "both, chunked first",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    ),
    (
        "both, bare newlines",
        "POST /v1/messages HTTP/1.1\nhost: x\ncontent-length: 4\ntransfer-encoding: chunked\n\n0\r\n\r\n",
    ),
    (
        "both, other path",
        "POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "both, empty line before",
        "\r\nPOST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "two lengths",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nabcde",
    ),
    (
        "a list of lengths",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 4, 5\r\n\r\nabcde",
    ),
    (
        "a signed length",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: +4\r\n\r\nabcd",
    ),
    (
        "a negative length",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    ),
    (
        "a hexadecimal length",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 0x4\r\n\r\nabcd",
    ),
    (
        "a huge length",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 18446744073709551616\r\n\r\nabcd",
    ),
    (
        "xchunked",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked and then not",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
    ),
    (
        "a coding besides chunked",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked twice",
        "POST /v1/files HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a folded line",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a space before the colon",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked in HTTP/1.0",
        "POST /v1/messages HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a control character in a name",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer\x0bencoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a null in a value",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n",
    ),
    (
        "a lone carriage return",
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nx: a\rcontent-length: 3\r\n\r\nabc",
    ),
];

#[tokio::test]
async fn b08_v_what_can_be_read_in_two_ways_is_refused() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::start(&upstream.url());
    for (name, request) in SMUGGLING {
        let mut wire = Wire::connect(gateway.proxy).await;
        // A second request hides behind the first: it must not be answered either.
        let hidden = "GET /hidden HTTP/1.1\r\nhost: x\r\n\r\n";
        wire.send(format!("{request}{hidden}").as_bytes()).await;
        let reply = wire.response().await;
        assert_eq!(reply.status, 400, "{name}");
        assert_eq!(wire.read_more().await, 0, "{name}: the connection goes on");
        let seen = upstream.seen();
        assert!(
            seen.is_empty(),
            "{name} reached the upstream: {}",
            seen[0].head
        );
    }
    assert_eq!(
        Wire::exchange(
            gateway.proxy,
            "/v1/messages",
            &[],
            ask("m", false).as_bytes()
        )
        .await
        .status,
        200
    );
}

#[tokio::test]
async fn b08_v_also_behind_other_requests_of_a_connection() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::start(&upstream.url());
    let good = [
        "GET /ok HTTP/1.1\r\nhost: x\r\n\r\n",
        "POST /ok HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello",
        "POST /ok HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n3\r\nyou\r\n0\r\ntrailer: 1\r\n\r\n",
    ];
    for first in good {
        for (name, bad) in &SMUGGLING[..5] {
            for together in [true, false] {
                let before = upstream.seen().len();
                let mut wire = Wire::connect(gateway.proxy).await;
                if together {
                    wire.send(format!("{first}{bad}").as_bytes()).await;
                    assert_eq!(wire.response().await.status, 200);
                } else {
                    wire.send(first.as_bytes()).await;
                    assert_eq!(wire.response().await.status, 200);
                    wire.send(bad.as_bytes()).await;
                }
                assert_eq!(
                    wire.response().await.status,
                    400,
                    "{name} behind {first:?}, together: {together}"
                );
                assert_eq!(upstream.seen().len(), before + 1, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn the_same_length_twice_is_one_length() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::start(&upstream.url());
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(
        b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ncontent-length: 4\r\n\r\nabcd",
    )
    .await;
    assert_eq!(wire.response().await.status, 200);
    let lengths = upstream
        .last()
        .header_names()
        .iter()
        .filter(|n| *n == "content-length")
        .count();
    assert_eq!(lengths, 1);
}

#[tokio::test]
async fn requests_sent_ahead_are_answered_in_their_order() {
    let upstream =
        Upstream::start(|seen, _| vec![Step::Write(json(200, &format!("{:?}", seen.line())))])
            .await;
    let gateway = Gateway::start(&upstream.url());
    let mut wire = Wire::connect(gateway.proxy).await;
    let body = ask("m", false);
    let mut all = String::new();
    for i in 0..20 {
        all.push_str(&match i % 3 {
            0 => format!("GET /{i} HTTP/1.1\r\nhost: x\r\n\r\n"),
            1 => format!("POST /v1/messages?{i} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
            _ => format!("POST /{i} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
        });
    }
    wire.send(all.as_bytes()).await;
    for i in 0..20 {
        let expected = match i % 3 {
            0 => format!("\"GET /{i}\""),
            1 => format!("\"POST /v1/messages?{i}\""),
            _ => format!("\"POST /{i}\""),
        };
        assert_eq!(wire.response().await.text(), expected);
    }
}

#[tokio::test]
async fn trailers_reach_a_client_that_wants_them() {
    let stream = super::events("hi");
    let mut answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    answer.extend(chunk(&stream));
    answer.extend_from_slice(b"0\r\nx-sum: 42\r\n\r\n");
    let upstream = Upstream::answering(answer).await;
    let gateway = Gateway::start(&upstream.url());
    for path in ["/v1/messages", "/v1/files"] {
        let reply = Wire::exchange(
            gateway.proxy,
            path,
            &[RUN, "te: trailers"],
            ask("m", true).as_bytes(),
        )
        .await;
        assert!(reply.complete);
        assert_eq!(reply.body, stream);
        assert_eq!(reply.trailers, "x-sum: 42\n", "{path}");
        let reply = Wire::exchange(gateway.proxy, path, &[RUN], ask("m", true).as_bytes()).await;
        assert!(reply.complete);
        assert_eq!(reply.trailers, "");
    }
}

#[tokio::test]
async fn a_head_answer_keeps_its_length_and_has_no_body() {
    let upstream = Upstream::start(|seen, _| {
        let whole = response("200 OK", &["x: y"], b"abc");
        let end = if seen.line().starts_with("HEAD") {
            whole.len() - 3
        } else {
            whole.len()
        };
        vec![Step::Write(whole[..end].to_vec())]
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.send(b"HEAD /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    assert_eq!(header(&wire.head().await, "content-length"), Some("3"));
    wire.send(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    assert_eq!(wire.response().await.body, b"abc");
}
