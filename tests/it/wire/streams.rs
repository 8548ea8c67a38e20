//! B01, B03, B13, B18: streams arrive as they were sent, when they were sent, and a broken one
//! never looks whole.

use std::io::Write as _;
use std::time::{Duration, Instant};

use super::{Hand, RUN, comparable, events, response, sse};
use crate::support::upstream::{LAST_CHUNK, SSE_HEAD, chunk, event, message};
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, ask};

/// Text, a tool call and its input, with characters of two to four bytes in each.
fn many_bytes() -> Vec<u8> {
    let all = events("渐 🙂 é “ ok");
    let all = String::from_utf8(all).unwrap();
    let (head, tail) = all.split_once("event: message_delta").unwrap();
    let tool: String = [
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_渐","name":"write","input":{}}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"text\":\"🙂 é"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":" “渐\"}"}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
    ]
    .map(event)
    .concat();
    format!("{head}{tool}event: message_delta{tail}").into_bytes()
}

#[tokio::test]
async fn b01_however_a_stream_is_cut_client_and_record_get_the_same() {
    let stream = many_bytes();
    let whole = stream.clone();
    let upstream = Upstream::start(move |seen, _| {
        let cut = seen.header("x-cut").unwrap();
        let pieces: Vec<&[u8]> = match cut.parse::<usize>() {
            Ok(k) => vec![&whole[..k], &whole[k..]],
            Err(_) => whole.chunks(1).collect(),
        };
        let mut steps = vec![Step::write(SSE_HEAD)];
        let written = pieces.into_iter().filter(|p| !p.is_empty()).map(chunk);
        // One write each: with TCP_NODELAY that is one segment, and a frame of its own.
        steps.extend(written.map(Step::Write));
        steps.push(Step::write(LAST_CHUNK));
        steps
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let body = ask("test-sonnet", true);
    let mut wire = Wire::connect(gateway.proxy).await;
    let mut cuts: Vec<String> = (0..=stream.len()).map(|k| k.to_string()).collect();
    cuts.push("every byte".into());
    for cut in &cuts {
        wire.post(
            "/v1/messages",
            &[RUN, &format!("x-cut: {cut}")],
            body.as_bytes(),
        )
        .await;
        let reply = wire.response().await;
        assert!(reply.complete, "cut {cut}");
        assert_eq!(reply.body, stream, "cut {cut}");
    }
    let turns = gateway.turns_of("r", cuts.len()).await;
    assert_eq!(turns.len(), cuts.len());
    let first = comparable(&turns[0]);
    assert_eq!(first["outcome"], "ok");
    assert_eq!(first["stop_reason"], "end_turn");
    assert_eq!(first["tokens"]["output"], 42);
    assert_eq!(first["tokens"]["read"], 20);
    assert!(first["cost_usd"].is_string());
    for (turn, cut) in turns.iter().zip(&cuts) {
        assert_eq!(comparable(turn), first, "cut {cut}");
    }
    // The tool calls are recorded with a hash of their input: one value for all cuts.
    let hashes = tool_inputs(&gateway);
    assert_eq!(hashes.len(), 1, "{hashes:?}");
    assert_eq!(hashes[0].1, cuts.len());
}

/// Distinct hashes of tool inputs in the database, with their number.
fn tool_inputs(gateway: &Gateway) -> Vec<(String, usize)> {
    let file = std::fs::read_dir(gateway.data())
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.extension().is_some_and(|e| e == "db" || e == "sqlite"))
        .expect("a database");
    let db =
        rusqlite::Connection::open_with_flags(file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
            .unwrap();
    let mut asked = db
        .prepare("SELECT CAST(input_hash AS TEXT), count(*) FROM tool_calls GROUP BY 1")
        .unwrap();
    asked
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as usize)))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

#[tokio::test]
async fn b03_events_without_names_pass_unchanged_and_are_understood() {
    let named = String::from_utf8(events("hi")).unwrap();
    let bare: String = named
        .lines()
        .filter(|l| !l.starts_with("event:"))
        .map(|l| format!("{l}\n"))
        .collect();
    let (with, without) = (named.clone(), bare.clone());
    let upstream = Upstream::start(move |seen, _| {
        let named = seen.header("x-named").is_some();
        vec![Step::Write(sse(
            if named { &with } else { &without }.as_bytes()
        ))]
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), PRICES, &[]);
    let body = ask("test-sonnet", true);
    let one = Wire::exchange(
        gateway.proxy,
        "/v1/messages",
        &[RUN, "x-named: 1"],
        body.as_bytes(),
    )
    .await;
    assert_eq!(one.text(), named);
    for part in one.text().split("\n\n").filter(|p| !p.is_empty()) {
        let (name, data) = part.split_once('\n').unwrap();
        let data: serde_json::Value = serde_json::from_str(&data[6..]).unwrap();
        assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
    }
    let two = Wire::exchange(gateway.proxy, "/v1/messages", &[RUN], body.as_bytes()).await;
    assert_eq!(two.text(), bare);
    let turns = gateway.turns_of("r", 2).await;
    assert_eq!(turns[1]["tokens"], turns[0]["tokens"]);
    assert_eq!(turns[1]["cost_usd"], turns[0]["cost_usd"]);
    assert!(turns[1]["usage_complete"].as_bool().unwrap());
    let warned = |i: usize| turns[i]["warnings"].to_string().contains("no_event_names");
    assert!(warned(1) && !warned(0));
}

/// `message_start` and two deltas.
fn beginning() -> String {
    let all = String::from_utf8(events("half of it")).unwrap();
    all.split_once("event: content_block_stop")
        .unwrap()
        .0
        .to_owned()
}

fn half_a_call() -> String {
    let all = String::from_utf8(many_bytes()).unwrap();
    let at = all.find(r#" “渐"#).unwrap();
    all[..at].to_owned()
}

#[tokio::test]
async fn b13_a_an_error_event_passes_and_nothing_is_added() {
    let error =
        event(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#);
    let stream = beginning() + &error;
    let upstream = Upstream::answering(sse(stream.as_bytes())).await;
    let gateway = Gateway::start(&upstream.url());
    let body = ask("test-sonnet", true);
    let reply = Wire::exchange(gateway.proxy, "/v1/messages", &[RUN], body.as_bytes()).await;
    assert!(reply.complete);
    assert_eq!(reply.text(), stream);
    let turn = &gateway.turns_of("r", 1).await[0];
    assert_eq!(turn["outcome"], "upstream_error");
    assert_eq!(turn["error_type"], "overloaded_error");
    assert_eq!(turn["usage_complete"], false);
}

#[tokio::test]
async fn b13_bc_a_stream_that_dies_never_ends_cleanly() {
    let half = half_a_call();
    let sent = half.clone();
    let upstream = Upstream::start(move |seen, _| {
        let mut steps = vec![Step::write(SSE_HEAD), Step::Write(chunk(sent.as_bytes()))];
        steps.extend(match seen.header("x-end").unwrap() {
            // The bytes must be read before the reset takes them away.
            "reset" => vec![Step::Pause(Duration::from_millis(100)), Step::Reset],
            "fin" => vec![Step::Close],
            _ => vec![Step::write(LAST_CHUNK)],
        });
        steps
    })
    .await;
    let gateway = Gateway::start(&upstream.url());
    let body = ask("test-sonnet", true);
    for end in ["reset", "fin", "clean"] {
        let run = format!("x-prefixgate-run: {end}");
        let head = format!("x-end: {end}");
        let reply = Wire::exchange(
            gateway.proxy,
            "/v1/messages",
            &[&run, &head],
            body.as_bytes(),
        )
        .await;
        assert!(!reply.complete, "{end}: the client takes it for whole");
        assert_eq!(reply.text(), half, "{end}");
        let turn = &gateway.turns_of(end, 1).await[0];
        assert_eq!(turn["outcome"], "upstream_cut", "{end}");
        assert_eq!(turn["usage_complete"], false);
    }
    let calls = gateway
        .metric("prefixgate_tool_calls_total", &["incomplete"])
        .await;
    assert_eq!(calls, 3.0);
}

#[tokio::test]
async fn b13_an_http10_client_is_told_by_an_error_event_on_a_border() {
    for cut in [beginning(), half_a_call()] {
        let answer = [SSE_HEAD, &chunk(cut.as_bytes()), LAST_CHUNK].concat();
        let upstream = Upstream::answering(answer).await;
        let gateway = Gateway::start(&upstream.url());
        let body = ask("test-sonnet", true);
        let mut wire = Wire::connect(gateway.proxy).await;
        let head = format!(
            "POST /v1/messages HTTP/1.0\r\n{RUN}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        wire.send(&[head.as_bytes(), body.as_bytes()].concat())
            .await;
        let reply = wire.response().await;
        assert_eq!(reply.header("transfer-encoding"), None);
        let text = reply.text();
        let added = text.strip_prefix(&cut).unwrap();
        let added = added.strip_prefix("\n\n").unwrap_or(added);
        let (name, data) = added.split_once('\n').unwrap();
        assert_eq!(name, "event: error");
        let data: serde_json::Value =
            serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["error"]["type"], "api_error");
        assert!(added.ends_with("\n\n"));
        assert!(!text.contains("message_stop"));
        let turn = &gateway.turns_of("r", 1).await[0];
        assert_eq!(turn["outcome"], "upstream_cut");
    }
}

#[tokio::test]
async fn b13_a_compressed_stream_that_is_cut_never_ends_cleanly() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(half_a_call().as_bytes()).unwrap();
    encoder.flush().unwrap();
    let part = encoder.get_ref().clone();
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n";
    let upstream = Upstream::answering([head, &chunk(&part)[..], LAST_CHUNK].concat()).await;
    let gateway = Gateway::start(&upstream.url());
    let body = ask("test-sonnet", true);
    let reply = Wire::exchange(gateway.proxy, "/v1/messages", &[RUN], body.as_bytes()).await;
    assert!(!reply.complete);
    assert_eq!(reply.body, part);
    assert_eq!(gateway.turns_of("r", 1).await[0]["outcome"], "upstream_cut");
}

#[tokio::test]
async fn b13_cut_json_is_told_where_it_can_be_and_recorded_always() {
    let whole = message("test-sonnet", r#"{"input_tokens":5,"output_tokens":6}"#);
    let half = &whole.as_bytes()[..whole.len() / 2];
    let json = "content-type: application/json";
    let chunked = format!("HTTP/1.1 200 OK\r\n{json}\r\ntransfer-encoding: chunked\r\n\r\n");
    let short = format!(
        "HTTP/1.1 200 OK\r\n{json}\r\ncontent-length: {}\r\n\r\n",
        whole.len()
    );
    let answers = [
        (
            "chunked",
            [chunked.as_bytes(), &chunk(half), LAST_CHUNK].concat(),
            false,
        ),
        ("short", [short.as_bytes(), half].concat(), false),
        // The announced length arrives: nothing is left by which the client could be told.
        ("exact", response("200 OK", &[json], half), true),
    ];
    for (name, answer, complete) in answers {
        let upstream =
            Upstream::start(move |_, _| vec![Step::Write(answer.clone()), Step::Close]).await;
        let gateway = Gateway::start(&upstream.url());
        let body = ask("test-sonnet", false);
        let reply = Wire::exchange(gateway.proxy, "/v1/messages", &[RUN], body.as_bytes()).await;
        assert_eq!(reply.complete, complete, "{name}");
        assert_eq!(reply.body, half, "{name}");
        let turn = &gateway.turns_of("r", 1).await[0];
        assert_eq!(turn["outcome"], "upstream_cut", "{name}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_understood_passes_whole() {
    let answers: [(&str, &[u8]); 3] = [
        ("content-type: text/html", b"<html>sign in</html>"),
        ("x-nothing: 1", b"hello"),
        ("content-type: application/json", b"not json at all"),
    ];
    for (header, text) in answers {
        let head = format!("HTTP/1.1 200 OK\r\n{header}\r\ntransfer-encoding: chunked\r\n\r\n");
        let upstream =
            Upstream::answering([head.as_bytes(), &chunk(text), LAST_CHUNK].concat()).await;
        let gateway = Gateway::start(&upstream.url());
        let body = ask("test-sonnet", false);
        let reply = Wire::exchange(gateway.proxy, "/v1/messages", &[RUN], body.as_bytes()).await;
        assert!(reply.complete, "{header}");
        assert_eq!(reply.body, text);
        let turn = &gateway.turns_of("r", 1).await[0];
        assert!(
            turn["warnings"].to_string().contains("answer_unreadable"),
            "{turn}"
        );
    }
}

#[tokio::test]
async fn b18_head_and_events_are_there_within_50_ms() {
    let limit = Duration::from_millis(50);
    let upstream = Hand::new().await;
    let gateway = Gateway::start(&upstream.url());
    let body = ask("test-sonnet", true);
    // On a busy machine a round may be late through no fault of the gateway; one that buffers or
    // waits is late in every round.
    let mut slowest = Vec::new();
    for _ in 0..8 {
        let mut wire = Wire::connect(gateway.proxy).await;
        wire.post("/v1/messages", &[], body.as_bytes()).await;
        let mut held = upstream.accept().await;
        let mut slow = Duration::ZERO;
        let begun = Instant::now();
        held.send(SSE_HEAD).await;
        let head = wire.head().await;
        slow = slow.max(begun.elapsed());
        assert!(head.starts_with("HTTP/1.1 200"));
        let all = String::from_utf8(events("hello")).unwrap();
        let mut got = String::new();
        for part in all.split_inclusive("\n\n") {
            let begun = Instant::now();
            held.send(&chunk(part.as_bytes())).await;
            let arrived = wire.chunk().await.unwrap();
            slow = slow.max(begun.elapsed());
            got.push_str(std::str::from_utf8(&arrived).unwrap());
        }
        assert_eq!(got, all, "nothing is added");
        held.send(LAST_CHUNK).await;
        assert_eq!(wire.chunk().await, Some(Vec::new()));
        if slow <= limit {
            return;
        }
        slowest.push(slow);
    }
    panic!("every round had a late event: {slowest:?}");
}

#[tokio::test]
async fn b18_silence_is_cut_only_after_the_configured_time() {
    let default = prefixgate::config::Config::embedded("x".into()).idle_timeout;
    assert!(default >= Duration::from_secs(600));

    let config = "[timeouts]\nidle = \"1s\"\n";
    let upstream = Upstream::start(|seen, _| match seen.header("x-case").unwrap() {
        "head" => vec![Step::AwaitClose],
        // Longer than the limit in all, with shorter pauses: not silent.
        "slow" => {
            let pause = || Step::Pause(Duration::from_millis(500));
            let mut steps = vec![Step::write(SSE_HEAD)];
            let all = String::from_utf8(events("hi")).unwrap();
            for part in all.split_inclusive("\n\n").take(4) {
                steps.extend([pause(), Step::Write(chunk(part.as_bytes()))]);
            }
            steps.push(Step::AwaitClose);
            steps
        }
        _ => unreachable!(),
    })
    .await;
    let gateway = Gateway::with(&upstream.url(), config, &[]);
    let body = ask("test-sonnet", true);
    let head = Wire::exchange(
        gateway.proxy,
        "/v1/messages",
        &["x-prefixgate-run: head", "x-case: head"],
        body.as_bytes(),
    );
    let slow = Wire::exchange(
        gateway.proxy,
        "/v1/messages",
        &["x-prefixgate-run: slow", "x-case: slow"],
        body.as_bytes(),
    );
    let (head, slow) = tokio::join!(head, slow);
    assert_eq!(head.status, 504);
    assert_eq!(head.json()["error"]["type"], "timeout_error");
    assert!(!slow.complete);
    assert_eq!(slow.text().matches("\n\n").count(), 4);
    assert_eq!(
        gateway.turns_of("slow", 1).await[0]["outcome"],
        "upstream_cut"
    );
    assert_eq!(gateway.turns_of("head", 1).await[0]["status"], 504);
    // The upstream is let go as well.
    crate::support::eventually("both closed", async || {
        (upstream.closed().len() == 2).then_some(())
    })
    .await;
}
