//! B05, B06: what is compressed stays so, on every path, and is looked into where that is safe.

use std::io::Write as _;

use super::{RUN, nobody, response};
use crate::support::upstream::json;
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, ask};

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

#[tokio::test]
async fn b05_compressed_answers_arrive_as_they_were_sent() {
    let not_found =
        br#"{"type":"error","error":{"type":"not_found_error","message":"model: nope"}}"#;
    let limited = br#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
    let message = crate::support::upstream::message("m", r#"{"input_tokens":5,"output_tokens":6}"#);
    let cases: [(&str, &str, &str, Vec<u8>); 4] = [
        (
            "i",
            "200 OK",
            "content-type: application/json",
            gzip(message.as_bytes()),
        ),
        (
            "ii",
            "404 Not Found",
            "content-type: application/json",
            gzip(not_found),
        ),
        (
            "iii",
            "429 Too Many Requests",
            "content-type: application/json",
            gzip(limited),
        ),
        (
            "iv",
            "500 Oh",
            "content-type: text/html",
            gzip(b"<h1>no</h1>"),
        ),
    ];
    for (case, status, kind, sent) in cases {
        let answer = response(
            status,
            &[kind, "content-encoding: gzip", "x-kept: 1"],
            &sent,
        );
        let upstream = Upstream::answering(answer).await;
        let gateway = Gateway::start(&upstream.url());
        let body = ask("m", false);
        for path in ["/v1/messages", "/v1/models"] {
            let reply = Wire::exchange(gateway.proxy, path, &[RUN], body.as_bytes()).await;
            assert_eq!(
                reply.head.lines().next().unwrap(),
                format!("HTTP/1.1 {status}")
            );
            assert_eq!(
                reply.header("content-encoding"),
                Some("gzip"),
                "{case} {path}"
            );
            assert_eq!(
                reply.header("content-length"),
                Some(sent.len().to_string().as_str())
            );
            assert_eq!(reply.header("x-kept"), Some("1"));
            assert_eq!(reply.body, sent, "{case} {path}");
        }
        let turn = &gateway.turns_of("r", 1).await[0];
        match case {
            "i" => assert_eq!(turn["tokens"]["output"], 6),
            "ii" => {
                assert_eq!(turn["error_type"], "not_found_error");
                assert_eq!(turn["error_message"], "model: nope");
            }
            "iii" => assert_eq!(turn["error_message"], "slow down"),
            _ => assert_eq!(turn["error_message"], "<h1>no</h1>"),
        }
    }
}

#[tokio::test]
async fn b05_v_without_a_body_the_headers_still_pass() {
    let upstream = Upstream::start(|seen, _| {
        let head = if seen.line().starts_with("HEAD") {
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1234\r\n\r\n"
        } else {
            "HTTP/1.1 204 No Content\r\ncontent-encoding: gzip\r\n\r\n"
        };
        vec![Step::write(head)]
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    let mut wire = Wire::connect(gateway.proxy).await;
    // On one connection: a body where none may be would be taken for the next head.
    for _ in 0..2 {
        wire.send(b"HEAD /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
            .await;
        let head = wire.head().await;
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert_eq!(
            crate::support::client::header(&head, "content-length"),
            Some("1234")
        );
        assert_eq!(
            crate::support::client::header(&head, "content-encoding"),
            Some("gzip")
        );
        wire.post("/v1/messages", &[RUN], ask("m", false).as_bytes())
            .await;
        let head = wire.head().await;
        assert!(head.starts_with("HTTP/1.1 204"), "{head}");
        assert_eq!(
            crate::support::client::header(&head, "content-encoding"),
            Some("gzip")
        );
    }
    assert!(wire.buffer.is_empty());
    gateway.ended_as("turn", "ok", 2).await;
}

#[tokio::test]
async fn b05_vi_an_unreachable_upstream_is_said_in_the_shape_of_the_api() {
    let nowhere = nobody().await;
    let config = format!("[upstream.openai]\nurl = \"http://{nowhere}\"\nformat = \"openai\"\n");
    let gateway = Gateway::with(&format!("http://{nowhere}"), &config, &[]);
    let cases = [
        ("/v1/messages", true, "turn"),
        ("/v1/messages/count_tokens", true, "count_tokens"),
        ("/v1/chat/completions", false, "turn"),
        ("/v1/responses", false, "turn"),
    ];
    for (path, anthropic, _) in cases {
        let headers = [RUN, "accept-encoding: gzip"];
        let reply = Wire::exchange(gateway.proxy, path, &headers, ask("m", true).as_bytes()).await;
        assert_eq!(reply.status, 502, "{path}");
        assert!(reply.complete);
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("content-encoding"), None);
        let body = reply.json();
        let message = body["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("upstream") && message.contains("refused"),
            "{message}"
        );
        assert_eq!(
            body["type"].as_str(),
            anthropic.then_some("error"),
            "{path}: {body}"
        );
        assert!(body["error"]["type"].is_string());
    }
    let turn = &gateway.turns_of("r", 1).await[0];
    assert_eq!(turn["outcome"], "upstream_unreachable");
    for (kind, times) in [("turn", 3), ("count_tokens", 1)] {
        gateway.ended_as(kind, "upstream_unreachable", times).await;
    }
}

/// About `size` bytes of a conversation that is worth caching.
pub fn long_request(size: usize) -> String {
    let text = "All work and no play makes a dull test. ".repeat(size / 40);
    format!(
        r#"{{"model":"test-sonnet","max_tokens":9,"system":[{{"type":"text","text":"{text}"}}],"tools":[{{"name":"sh","description":"{}","input_schema":{{"type":"object"}}}}],"messages":[{{"role":"user","content":"go"}}]}}"#,
        "runs a command ".repeat(400)
    )
}

/// A zstd frame of a few kilobytes that stands for two gigabytes: blocks of one repeated byte.
fn bomb() -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x68];
    let blocks = (2_u64 << 30) / (128 << 10);
    for i in 0..blocks {
        let head = u32::from(i + 1 == blocks) | (1 << 1) | ((128 << 10) << 3);
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.push(b' ');
    }
    frame
}

fn openai(url: &str) -> String {
    format!("{PRICES}\n[upstream.openai]\nurl = \"{url}\"\nformat = \"openai\"\n")
}

#[tokio::test]
async fn b06_compressed_requests_are_read_and_edited_only_where_wanted() {
    let plain = long_request(2 << 20);
    let upstream = Upstream::answering(json(200, "{}")).await;
    for policy in ["off", "dry-run", "fill"] {
        let gateway = Gateway::with(
            &upstream.url(),
            &openai(&upstream.url()),
            &["--cache", policy],
        );
        for (encoding, packed) in [
            ("zstd", zstd(plain.as_bytes())),
            ("gzip", gzip(plain.as_bytes())),
            ("gzip, zstd", zstd(&gzip(plain.as_bytes()))),
        ] {
            let run = format!("x-prefixgate-run: {}", encoding.replace(", ", "-"));
            let header = format!("content-encoding: {encoding}");
            Wire::exchange(gateway.proxy, "/v1/messages", &[&run, &header], &packed).await;
            let seen = upstream.last();
            assert_eq!(
                seen.header("content-length"),
                Some(seen.body.len().to_string().as_str())
            );
            if policy == "fill" {
                assert_eq!(seen.header("content-encoding"), None);
                assert!(crate::agents::splice::added_markers(plain.as_bytes(), &seen.body) > 0);
            } else {
                assert_eq!(seen.header("content-encoding"), Some(encoding));
                assert!(seen.body == packed, "{policy} {encoding}: other bytes");
            }
            let turn = &gateway.turns_of(&run[18..], 1).await[0];
            assert_eq!(
                turn["model_requested"], "test-sonnet",
                "{policy} {encoding}"
            );
            assert_eq!((&turn["tools"], &turn["messages"]), (&1.into(), &1.into()));
            assert_eq!(turn["request_bytes"], packed.len());
            assert_eq!(turn["sent_bytes"], seen.body.len());

            // Elsewhere it is nobody's business.
            Wire::exchange(gateway.proxy, "/v1/responses", &[&header], &packed).await;
            let seen = upstream.last();
            assert_eq!(seen.header("content-encoding"), Some(encoding));
            assert!(seen.body == packed);
        }
    }
}

#[tokio::test]
async fn b06_what_cannot_be_read_is_passed_on_untouched() {
    let plain = long_request(200_000);
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::with(&upstream.url(), &openai(&upstream.url()), &[]);
    // Warm up: code pages and pools are not what is measured.
    // One connection, so one thread of the gateway, which has one bomb after the other.
    let mut wire = Wire::connect(gateway.proxy).await;
    wire.post("/v1/messages", &[], plain.as_bytes()).await;
    wire.response().await;
    let before = gateway.peak_kb();
    let mut cut = zstd(plain.as_bytes());
    cut.truncate(cut.len() / 2);
    let cases = [
        ("cut", "zstd", cut),
        ("bomb", "zstd", bomb()),
        ("layers", "gzip, zstd", zstd(&gzip(b"{"))),
        ("foo", "x-foo", plain.clone().into_bytes()),
        ("five", "gzip, gzip, gzip, gzip, gzip", gzip(b"x")),
        ("lie", "gzip", plain.clone().into_bytes()),
    ];
    for (name, encoding, body) in &cases {
        let run = format!("x-prefixgate-run: {name}");
        let header = format!("content-encoding: {encoding}");
        for path in ["/v1/messages", "/v1/responses"] {
            wire.post(path, &[&run, &header], body).await;
            let reply = wire.response().await;
            assert_eq!(reply.status, 200, "{name}");
            let seen = upstream.last();
            assert_eq!(seen.header("content-encoding"), Some(*encoding));
            assert!(seen.body == *body, "{name}: other bytes");
        }
        let turn = &gateway.turns_of(name, 1).await[0];
        assert_eq!(turn["inspection"], "not_inspected", "{name}");
        assert!(turn["inspection_reason"].is_string());
        assert_eq!(turn["markers"]["added"], 0);
    }
    let skipped = gateway
        .metric("prefixgate_cache_plan_skipped_total", &["not_inspected"])
        .await;
    assert_eq!(skipped, 2.0 * cases.len() as f64);
    // The default limit of inspection is 32 MiB, the window of a frame 8 MiB.
    let grown = (gateway.peak_kb() - before) / 1024;
    assert!(grown < 80, "the bomb took {grown} MiB");
}

/// The same in OpenAI's formats; the streamed chat does not ask for its tokens.
fn long_openai(path: &str, size: usize, stream: bool) -> String {
    let text = "All work and no play makes a dull test. ".repeat(size / 40);
    let tool = r#""name":"sh","description":"runs a command","parameters":{"type":"object"}"#;
    if path == "/v1/responses" {
        format!(
            r#"{{"model":"test-sonnet","stream":{stream},"instructions":"{text}","tools":[{{"type":"function",{tool}}}],"input":[{{"role":"user","content":"go"}}]}}"#
        )
    } else {
        format!(
            r#"{{"model":"test-sonnet","stream":{stream},"messages":[{{"role":"system","content":"{text}"}},{{"role":"user","content":"go"}}],"tools":[{{"type":"function","function":{{{tool}}}}}]}}"#
        )
    }
}

#[tokio::test]
async fn b06_compressed_requests_of_openais_formats_are_read_and_stay_as_they_are() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    for policy in ["off", "fill"] {
        let gateway = Gateway::with(
            &upstream.url(),
            &openai(&upstream.url()),
            &["--cache", policy],
        );
        for path in ["/v1/responses", "/v1/chat/completions"] {
            let plain = long_openai(path, 2 << 20, false);
            for (encoding, packed) in [
                ("zstd", zstd(plain.as_bytes())),
                ("gzip", gzip(plain.as_bytes())),
                ("gzip, zstd", zstd(&gzip(plain.as_bytes()))),
            ] {
                let run = format!("{}-{}", encoding.replace(", ", "-"), path.len());
                let label = format!("x-prefixgate-run: {run}");
                let header = format!("content-encoding: {encoding}");
                Wire::exchange(gateway.proxy, path, &[&label, &header], &packed).await;
                let seen = upstream.last();
                assert_eq!(seen.header("content-encoding"), Some(encoding));
                assert!(
                    seen.body == packed,
                    "{policy} {path} {encoding}: other bytes"
                );
                let turn = &gateway.turns_of(&run, 1).await[0];
                assert_eq!(turn["model_requested"], "test-sonnet", "{path} {encoding}");
                assert_eq!(
                    (&turn["tools"], &turn["messages"]),
                    (&1.into(), &1.into()),
                    "{path} {encoding}"
                );
                assert_eq!(turn["request_bytes"], packed.len());
            }
        }
    }
}

#[tokio::test]
async fn b06_a_compressed_stream_request_is_asked_for_its_tokens_unpacked() {
    let path = "/v1/chat/completions";
    let plain = long_openai(path, 100_000, true);
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::with(
        &upstream.url(),
        &openai(&upstream.url()),
        &["--cache", "fill"],
    );
    let header = ["content-encoding: zstd"];
    Wire::exchange(gateway.proxy, path, &header, &zstd(plain.as_bytes())).await;
    let seen = upstream.last();
    let length = seen.body.len().to_string();
    assert_eq!(seen.header("content-encoding"), None);
    assert_eq!(seen.header("content-length"), Some(length.as_str()));
    let mut expected = plain;
    expected.insert_str(1, r#""stream_options":{"include_usage":true},"#);
    assert!(seen.body == expected.as_bytes(), "other bytes");
}

#[tokio::test]
async fn b06_what_cannot_be_read_of_openais_formats_is_passed_on_untouched() {
    let upstream = Upstream::answering(json(200, "{}")).await;
    let gateway = Gateway::with(
        &upstream.url(),
        &openai(&upstream.url()),
        &["--cache", "fill"],
    );
    let mut grown = Vec::new();
    for path in ["/v1/responses", "/v1/chat/completions"] {
        let plain = long_openai(path, 200_000, true);
        Wire::exchange(gateway.proxy, path, &[], plain.as_bytes()).await;
        let before = gateway.peak_kb();
        let mut cut = zstd(plain.as_bytes());
        cut.truncate(cut.len() / 2);
        let cases = [
            ("cut", "zstd", cut),
            ("bomb", "zstd", bomb()),
            ("layers", "gzip, zstd", zstd(&gzip(b"{"))),
            ("foo", "x-foo", plain.clone().into_bytes()),
        ];
        for (name, encoding, body) in &cases {
            let run = format!("{name}{}", path.len());
            let label = format!("x-prefixgate-run: {run}");
            let header = format!("content-encoding: {encoding}");
            let reply = Wire::exchange(gateway.proxy, path, &[&label, &header], body).await;
            assert_eq!(reply.status, 200, "{path} {name}");
            let seen = upstream.last();
            assert_eq!(seen.header("content-encoding"), Some(*encoding));
            assert!(seen.body == *body, "{path} {name}: other bytes");
            let turn = &gateway.turns_of(&run, 1).await[0];
            assert_eq!(turn["inspection"], "not_inspected", "{path} {name}");
            assert!(turn["inspection_reason"].is_string());
        }
        grown.push((gateway.peak_kb() - before) / 1024);
    }
    assert!(
        grown.iter().all(|mib| *mib < 80),
        "the bomb took {grown:?} MiB"
    );
    let skipped = gateway
        .metric("prefixgate_cache_plan_skipped_total", &["not_inspected"])
        .await;
    assert_eq!(skipped, 8.0);
}
