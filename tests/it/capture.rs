//! Captured content: nothing by default, no secrets in `redacted`, and never a byte changed on its way.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use prefixgate::config::{CaptureMode, Config};
use prefixgate::sim::Options;
use serde_json::{Value, json};

use crate::support::client::Reply;
use crate::support::upstream::{LAST_CHUNK, SSE_HEAD, Seen, chunk, event, json as http_json};
use crate::support::world::{MINUTE, World};
use crate::support::{Gateway, PRICES, Step, Upstream, Wire, eventually};

const PEM: &str =
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAsecretpem\n-----END RSA PRIVATE KEY-----";
const KEY: &str = "sk-ant-api03-0123456789abcdefghijklmnop";
/// A word that is no secret.
const MARK: &str = "cobaltheron";
/// What must not be kept where it is redacted.
const SECRETS: [&str; 8] = [
    "jo@example.org",
    "AKIAABCDEFGHIJKLMNOP",
    "MIIEpAIBAAKCAQEAsecretpem",
    "hunter2",
    "0123456789abcdefghijklmnop",
    "4111 1111 1111 1111",
    "4111111111111111",
    "TICKET-77",
];

/// A request with secrets in each of its places; `\u0073` and the like as a client may write them.
fn request(stream: bool, text: &str) -> String {
    let body = json!({
        "model": "test-sonnet", "max_tokens": 64, "stream": stream,
        "system": format!("password=hunter2 {}", "x ".repeat(4000)),
        "tools": [{"name": "Bash", "description": "mail jo@example.org", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": format!("my mail is jo@example.org and {text}")},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "Bash",
                "input": {"cmd": "export K=AKIAABCDEFGHIJKLMNOP", "password": "hunter2", "card": 4_111_111_111_111_111_u64}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1",
                "content": format!("{PEM} 4111 1111 1111 1111 TICKET-77")}]},
        ],
    });
    let body = body.to_string();
    body.replace("AKIAABCD", "\\u0041KIA\\u0041BCD")
        .replace("jo@", "jo\\u0040")
}

/// An answer that repeats them, in the form that was asked for; a stream cuts the key in two.
fn answer(seen: &Seen) -> Vec<Step> {
    let said = format!("{MARK} password=hunter2 ");
    if seen.json()["stream"] == true {
        let mut steps = vec![Step::write(SSE_HEAD)];
        let events = events(&said);
        steps.extend(
            events
                .iter()
                .map(|event| Step::Write(chunk(event.as_bytes()))),
        );
        steps.push(Step::write(LAST_CHUNK));
        return steps;
    }
    let (first, last) = KEY.split_at(16);
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "test-sonnet",
        "content": [{"type": "text", "text": format!("{said}{first}{last}")},
                    {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {"cmd": "mail jo@example.org"}}],
        "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 9}});
    vec![Step::write(http_json(200, &body.to_string()))]
}

fn events(said: &str) -> Vec<String> {
    let (first, last) = KEY.split_at(16);
    let delta = |index: u32, delta: Value| {
        event(&json!({"type": "content_block_delta", "index": index, "delta": delta}).to_string())
    };
    vec![
        event(
            r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"test-sonnet","content":[],"stop_reason":null,"usage":{"input_tokens":9,"output_tokens":1}}}"#,
        ),
        event(
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        ),
        delta(0, json!({"type": "text_delta", "text": said})),
        delta(0, json!({"type": "text_delta", "text": first})),
        delta(0, json!({"type": "text_delta", "text": last})),
        event(
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_2","name":"Bash","input":{}}}"#,
        ),
        delta(
            1,
            json!({"type": "input_json_delta", "partial_json": "{\"cmd\":\"mail jo@exa"}),
        ),
        delta(
            1,
            json!({"type": "input_json_delta", "partial_json": "mple.org\"}"}),
        ),
        event(
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}}"#,
        ),
        event(r#"{"type":"message_stop"}"#),
    ]
}

async fn post(gateway: &Gateway, run: &str, headers: &[&str], body: &str) -> Reply {
    let run = format!("x-prefixgate-run: {run}");
    let headers: Vec<&str> = headers.iter().copied().chain([run.as_str()]).collect();
    Wire::exchange(gateway.proxy, "/v1/messages", &headers, body.as_bytes()).await
}

/// What `prefixgate report content` says: what is printed, and what is complained about.
fn content(data: &Path, run: &str, more: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_prefixgate"))
        .args(["report", "content", "--run", run, "--data-dir"])
        .arg(data)
        .args(more)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// The captured turns of a run, once there are so many.
async fn captured(data: &Path, run: &str, count: usize) -> Vec<Value> {
    eventually("captured turns", async || {
        let found = serde_json::from_str::<Vec<Value>>(&content(data, run, &["--json"]).0).ok()?;
        (found.len() >= count).then_some(found)
    })
    .await
}

/// All files below a directory, packed ones unpacked.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        if path.extension().is_some_and(|end| end == "gz") {
            let packed = std::mem::take(&mut bytes);
            flate2::read::GzDecoder::new(&packed[..])
                .read_to_end(&mut bytes)
                .unwrap();
        }
        found.push((path.display().to_string(), bytes));
    }
    found
}

/// Everything that a gateway has written or would tell.
async fn places(gateway: &Gateway) -> Vec<(String, Vec<u8>)> {
    let mut all = files(&gateway.data());
    all.push(("log".into(), gateway.log().into_bytes()));
    all.push(("metrics".into(), gateway.metrics().await.into_bytes()));
    all
}

fn holding<'p>(places: &'p [(String, Vec<u8>)], needle: &str) -> Vec<&'p str> {
    let found = places
        .iter()
        .filter(|(_, bytes)| memchr::memmem::find(bytes, needle.as_bytes()).is_some());
    found.map(|(place, _)| place.as_str()).collect()
}

async fn gateway(config: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::start(|seen, _| answer(seen)).await;
    let gateway = Gateway::with(&upstream.url(), &format!("{PRICES}\n{config}"), &[]);
    (upstream, gateway)
}

#[tokio::test]
async fn e15_by_default_nothing_of_a_prompt_or_an_answer_is_anywhere() {
    let (_upstream, gateway) = gateway("[cache]\nexcerpts = false\n").await;
    for stream in [true, false] {
        let reply = post(&gateway, "r", &[], &request(stream, MARK)).await;
        assert_eq!(reply.status, 200);
    }
    gateway.turns(2).await;
    let places = places(&gateway).await;
    assert!(places.len() > 3, "{places:?}");
    for needle in SECRETS.iter().chain([&MARK, &"my mail is"]) {
        assert_eq!(holding(&places, needle), Vec::<&str>::new(), "{needle}");
    }
    assert!(!gateway.data().join("bodies").exists());
    let (out, complaint) = content(&gateway.data(), "r", &[]);
    assert_eq!(out, "");
    assert!(
        complaint.contains("nothing is captured") && complaint.contains("[capture]"),
        "{complaint}"
    );
}

#[tokio::test]
async fn e15_redacted_content_has_the_text_and_not_the_secrets() {
    let config = "[capture]\nmode = \"redacted\"\nrules = { ticket = \"TICKET-[0-9]+\" }\n[cache]\nexcerpts = true\n";
    let (upstream, gateway) = gateway(config).await;
    for stream in [true, false] {
        let body = request(stream, MARK);
        let reply = post(&gateway, "r", &[], &body).await;
        assert_eq!(reply.status, 200);
        // Nobody else sees any difference.
        let forwarded = upstream.last().json().to_string();
        for secret in &SECRETS[..5] {
            assert!(reply.text().contains(KEY) || stream);
            assert!(
                forwarded.contains(secret) || *secret == SECRETS[4],
                "{secret}"
            );
        }
        assert!(reply.text().contains("password=hunter2"));
    }
    let turns = captured(&gateway.data(), "r", 2).await;
    for turn in &turns {
        let messages = &turn["request"]["json"]["messages"];
        assert_eq!(
            messages[0]["content"],
            format!("my mail is [redacted:mail] and {MARK}")
        );
        let input = &messages[1]["content"][0]["input"];
        assert_eq!(
            input,
            &json!({"cmd": "export K=[redacted:aws_key]", "password": "[redacted:assignment]", "card": "[redacted:card]"})
        );
        assert_eq!(
            messages[2]["content"][0]["content"],
            "[redacted:private_key] [redacted:card] [redacted:ticket]"
        );
        let response = &turn["response"];
        assert_eq!(
            (&response["status"], &response["complete"]),
            (&json!(200), &json!(true))
        );
        let message = &response["body"]["json"];
        let said = format!("{MARK} password=[redacted:assignment] [redacted:anthropic_key]");
        assert_eq!(message["content"][0]["text"], said);
        assert_eq!(
            message["content"][1]["input"]["cmd"],
            "mail [redacted:mail]"
        );
        assert_eq!(message["usage"]["output_tokens"], 9);
        assert_eq!(
            (&turn["mode"], &turn["run"]),
            (&json!("redacted"), &json!("r"))
        );
        assert!(
            turn["replaced"]["ticket"] == 1 && turn["replaced"]["anthropic_key"] == 1,
            "{turn}"
        );
    }
    let places = places(&gateway).await;
    for secret in SECRETS {
        assert_eq!(holding(&places, secret), Vec::<&str>::new(), "{secret}");
    }
    let with_mark = holding(&places, MARK);
    assert_eq!(with_mark.len(), 2, "{with_mark:?}");
    assert!(with_mark.iter().all(|place| place.ends_with(".json.gz")));
    // For people, and one turn of them.
    let (text, _) = content(&gateway.data(), "r", &["--turn", "1"]);
    assert!(
        text.contains("request, ") && text.contains("response 200") && text.contains(MARK),
        "{text}"
    );
    assert!(
        content(&gateway.data(), "r", &["--turn", "9"])
            .1
            .contains("turn 9")
    );
}

#[tokio::test]
async fn applications_are_captured_as_is_said_for_each_of_them() {
    let config = "[capture]\nmode = \"redacted\"\n[app.ci]\ncapture = \"full\"\n[app.hr]\ncapture = \"none\"\n";
    let (_upstream, gateway) = gateway(config).await;
    for app in ["ci", "hr", "other"] {
        let label = format!("x-prefixgate-app: {app}");
        post(&gateway, app, &[&label], &request(false, MARK)).await;
    }
    gateway.turns(3).await;
    let full = &captured(&gateway.data(), "ci", 1).await[0];
    assert_eq!(
        (&full["mode"], &full["app"]),
        (&json!("full"), &json!("ci"))
    );
    let text = full.to_string();
    for secret in &SECRETS[..5] {
        assert!(text.contains(secret), "{secret}");
    }
    assert_eq!(full["replaced"], json!({}));
    let redacted = captured(&gateway.data(), "other", 1).await[0].to_string();
    assert!(redacted.contains(MARK) && !redacted.contains("hunter2"));
    let none = content(&gateway.data(), "hr", &[]).1;
    assert!(none.contains("nothing is captured"), "{none}");
    let kept = gateway.metric("prefixgate_captured_turns_total", &[]).await;
    let lost = gateway.metric("prefixgate_capture_lost_total", &[]).await;
    assert_eq!((kept, lost), (2.0, 0.0));
}

#[tokio::test]
async fn content_that_the_disk_does_not_take_is_counted_and_costs_no_request() {
    let (_upstream, gateway) = gateway("[capture]\nmode = \"redacted\"\n").await;
    // What stands where the directory belongs.
    std::fs::write(gateway.data().join("bodies"), "").unwrap();
    let reply = post(&gateway, "lost", &[], &request(false, MARK)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let failed = [r#"reason="store_failed""#];
    eventually("it is counted", async || {
        let lost = gateway
            .metric("prefixgate_capture_lost_total", &failed)
            .await;
        (lost == 1.0).then_some(())
    })
    .await;
    assert_eq!(
        gateway.metric("prefixgate_captured_turns_total", &[]).await,
        0.0
    );
}

#[tokio::test]
async fn e08_a_long_body_is_cut_between_characters_and_keeps_its_length() {
    let config = "[capture]\nmode = \"redacted\"\nmax_body = \"1KiB\"\n";
    let (upstream, gateway) = gateway(config).await;
    let mut lengths = Vec::new();
    for shift in 0..4 {
        let text = format!("{}{}", "a".repeat(shift), "🙂".repeat(600));
        let body = json!({"model": "test-sonnet", "max_tokens": 9, "messages": [{"role": "user", "content": text}]});
        let body = body.to_string();
        let reply = post(&gateway, "r", &[], &body).await;
        assert_eq!(reply.status, 200);
        assert!(
            upstream.last().json()["messages"]
                .to_string()
                .contains(&text)
        );
        lengths.push(body);
    }
    let turns = captured(&gateway.data(), "r", 4).await;
    for (turn, body) in turns.iter().zip(&lengths) {
        let kept = &turn["request"];
        assert_eq!(
            (&kept["bytes"], &kept["cut"]),
            (&json!(body.len()), &json!(true))
        );
        let text = kept["text"].as_str().unwrap();
        assert!(
            text.len() <= 1024 && text.len() > 1020 && body.starts_with(text),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_stream_that_the_upstream_cuts_gives_what_came_without_secrets() {
    let upstream = Upstream::start(|_, _| {
        let all = events(&format!("{MARK} jo@example.org "));
        let mut steps = vec![Step::write(SSE_HEAD)];
        steps.extend(
            all[..7]
                .iter()
                .map(|event| Step::Write(chunk(event.as_bytes()))),
        );
        // The client must have all of it before the end comes.
        steps.extend([
            Step::Pause(std::time::Duration::from_millis(50)),
            Step::Reset,
        ]);
        steps
    })
    .await;
    let config = format!("{PRICES}\n[capture]\nmode = \"redacted\"\n");
    let gateway = Gateway::with(&upstream.url(), &config, &[]);
    let reply = post(&gateway, "r", &[], &request(true, MARK)).await;
    assert!(!reply.complete);
    let turn = &captured(&gateway.data(), "r", 1).await[0];
    let response = &turn["response"];
    assert_eq!(response["complete"], false);
    let content = &response["body"]["json"]["content"];
    assert_eq!(
        content[0]["text"],
        format!("{MARK} [redacted:mail] [redacted:anthropic_key]")
    );
    assert_eq!(content[1]["input"], "{\"cmd\":\"mail jo@exa");
}

#[tokio::test]
async fn an_encoded_answer_is_kept_decoded_and_passed_on_as_it_is() {
    let text =
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "test-sonnet",
        "content": [{"type": "text", "text": format!("{MARK} jo@example.org {KEY}")}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}})
        .to_string();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let mut whole = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        packed.len()
    )
    .into_bytes();
    whole.extend(&packed);
    let upstream = Upstream::answering(whole).await;
    let config = format!("{PRICES}\n[capture]\nmode = \"redacted\"\n");
    let gateway = Gateway::with(&upstream.url(), &config, &[]);
    let reply = post(
        &gateway,
        "r",
        &["accept-encoding: gzip"],
        &request(false, MARK),
    )
    .await;
    assert_eq!(reply.body, packed);
    let turn = &captured(&gateway.data(), "r", 1).await[0];
    let body = &turn["response"]["body"];
    assert_eq!(body["bytes"], text.len());
    let said = format!("{MARK} [redacted:mail] [redacted:anthropic_key]");
    assert_eq!(body["json"]["content"][0]["text"], said);
}

#[tokio::test]
async fn e15_errors_that_quote_content_and_answers_of_nobody_are_redacted_too() {
    let upstream = Upstream::start(|_, n| {
        let error = json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": format!("the key {KEY} of jo@example.org is TICKET-77")}});
        match n {
            0 | 1 => vec![Step::write(http_json(400, &error.to_string()))],
            _ => vec![Step::Reset],
        }
    })
    .await;
    let config = format!(
        "{PRICES}\n[capture]\nmode = \"redacted\"\nrules = {{ ticket = \"TICKET-[0-9]+\" }}\n[cache]\npolicy = \"off\"\n"
    );
    let gateway = Gateway::with(&upstream.url(), &config, &[]);
    let reply = post(&gateway, "r", &[], &request(false, MARK)).await;
    assert!(reply.text().contains(KEY), "the client is told all of it");
    let turn = &gateway.turns_of("r", 1).await[0];
    assert_eq!(
        turn["error_message"],
        "the key [redacted:anthropic_key] of [redacted:mail] is [redacted:ticket]"
    );
    let kept = &captured(&gateway.data(), "r", 1).await[0];
    assert_eq!(
        (&kept["response"]["status"], &kept["response"]["complete"]),
        (&json!(400), &json!(true))
    );
    post(&gateway, "s", &[], &request(false, MARK)).await;
    let reply = post(&gateway, "t", &[], &request(false, MARK)).await;
    assert_eq!(reply.status, 502);
    let kept = &captured(&gateway.data(), "t", 1).await[0];
    assert_eq!(kept["response"], Value::Null);
    assert!(kept["request"]["json"]["messages"].is_array());
    let places = places(&gateway).await;
    for secret in SECRETS {
        assert_eq!(holding(&places, secret), Vec::<&str>::new(), "{secret}");
    }
}

fn capturing(config: &mut Config) {
    config.capture.mode = CaptureMode::Redacted;
    config.capture.retention_days = 3;
}

#[tokio::test]
async fn old_content_goes_by_the_clock_of_the_records() {
    let world = World::with(Options::default(), capturing).await;
    let body = json!({"model": "test-sonnet", "max_tokens": 64, "messages": [{"role": "user", "content": MARK}]});
    let bodies = world.data().join("bodies");
    let days = || {
        let found = std::fs::read_dir(&bodies).ok()?;
        let mut days: Vec<String> = found
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        days.sort();
        Some(days)
    };
    world.ask("one", &body).await;
    captured(&world.data(), "one", 1).await;
    assert_eq!(days().unwrap(), ["2026-12-01"]);
    world.pass(4 * 24 * 60 * MINUTE);
    world.ask("two", &body).await;
    eventually("the old day goes", async || {
        days().filter(|days| days == &["2026-12-05"])
    })
    .await;
    assert!(
        content(&world.data(), "one", &[])
            .1
            .contains("nothing is captured")
    );
    captured(&world.data(), "two", 1).await;
}
