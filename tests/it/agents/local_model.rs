//! A server that nobody here wrote: llama.cpp with a tiny model made at test time
//! (tests/setup/local_model.py), behind the gateway by the profile `llamacpp`.
//!
//! client -> gateway -> relay -> llama.cpp

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::Exchange;
use super::clients::installed;
use super::relay::Relay;
use crate::support::client::Reply;
use crate::support::server::Server;
use crate::support::{Gateway, Wire};

/// What goes behind the opening brace of a Chat stream whose client does not ask for the tokens.
const QUESTION: &str = r#""stream_options":{"include_usage":true},"#;

struct Local {
    _server: Server,
    relay: Relay,
    gateway: Gateway,
}

impl Local {
    /// With what else the profile is told, and what the server is started with.
    async fn start(settings: &str, args: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/setup/local_model.py");
        let mut child = Command::new(installed("py-local/bin/python"))
            .arg(script)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("llama.cpp is needed: run tests/setup/install");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let server = Server::new(child);
        let address: SocketAddr = line
            .trim()
            .strip_prefix("listening http://")
            .unwrap_or_else(|| panic!("it does not start: {line:?}"))
            .parse()
            .unwrap();
        let relay = Relay::start(address).await;
        let config = format!("[upstream.llamacpp]\nurl = \"{}\"\n{settings}", relay.url());
        let gateway = Gateway::with("http://127.0.0.1:9", &config, &["--cache", "fill"]);
        Self {
            _server: server,
            relay,
            gateway,
        }
    }

    async fn post(&self, run: &str, path: &str, body: &Value) -> Reply {
        let body = body.to_string();
        self.post_text(run, path, &body).await
    }

    async fn post_text(&self, run: &str, path: &str, body: &str) -> Reply {
        let path = format!("/-/run={run}/u/llamacpp{path}");
        Wire::exchange(self.gateway.proxy, &path, &[], body.as_bytes()).await
    }

    async fn get(&self, path: &str) -> Reply {
        let mut wire = Wire::connect(self.gateway.proxy).await;
        let head = format!("GET /u/llamacpp{path} HTTP/1.1\r\nhost: gateway\r\n\r\n");
        wire.send(head.as_bytes()).await;
        wire.response().await
    }

    /// What passed between the gateway and the server last.
    fn last(&self) -> Exchange {
        let mut all = self.relay.exchanges();
        all.pop().expect("nothing reached the server")
    }

    /// The answer is the server's, byte for byte.
    fn untouched(&self, reply: &Reply) {
        let sent = self.last().response.unwrap();
        assert_eq!(reply.status, sent.status());
        assert_eq!(reply.text(), String::from_utf8(sent.body).unwrap());
    }
}

/// The data of the events of a stream.
fn events(stream: &str) -> Vec<Value> {
    let data = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// What a turn holds against what the server said of it: prompt, of that from its cache, output.
fn counted(turn: &Value, prompt: &Value, cached: &Value, output: &Value) {
    let tokens = &turn["tokens"];
    assert_eq!(turn["outcome"], "ok", "{turn}");
    assert_eq!(
        (&tokens["read"], &tokens["output"]),
        (cached, output),
        "{turn}"
    );
    let whole = prompt.as_u64().unwrap() - cached.as_u64().unwrap();
    assert_eq!(tokens["uncached"], whole, "{turn}");
    assert!(output.as_u64().unwrap() > 0);
    // Nobody has said what this model costs.
    assert_eq!(turn["cost_usd"], Value::Null, "{turn}");
    assert_eq!(turn["model_served"], "tiny");
}

fn counted_chat(turn: &Value, usage: &Value) {
    let cached = &usage["prompt_tokens_details"]["cached_tokens"];
    counted(
        turn,
        &usage["prompt_tokens"],
        cached,
        &usage["completion_tokens"],
    );
}

fn counted_responses(turn: &Value, usage: &Value) {
    let cached = &usage["input_tokens_details"]["cached_tokens"];
    counted(
        turn,
        &usage["input_tokens"],
        cached,
        &usage["output_tokens"],
    );
}

fn tools() -> Value {
    json!([{"type": "function", "function": {
        "name": "shell",
        "description": "runs a command",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    }}])
}

#[tokio::test]
async fn llama_cpp_chats_through_its_profile_and_is_counted_as_it_says() {
    let local = Local::start("", &[]).await;
    let mut messages = json!([
        {"role": "system", "content": "You are a careful helper. ".repeat(8)},
        {"role": "user", "content": "List the files."},
    ]);
    let mut usages = Vec::new();
    for round in 0..3 {
        let mut body =
            json!({"model": "tiny", "max_tokens": 12, "tools": tools(), "messages": messages});
        let asked = round == 2;
        let text = match round {
            0 => {
                let reply = local.post("chat", "/v1/chat/completions", &body).await;
                assert_eq!(local.last().request.body, body.to_string().into_bytes());
                local.untouched(&reply);
                let answer = reply.json();
                usages.push(answer["usage"].clone());
                answer["choices"][0]["message"]["content"].clone()
            }
            _ => {
                body["stream"] = true.into();
                if asked {
                    body["stream_options"] = json!({"include_usage": true});
                }
                let reply = local.post("chat", "/v1/chat/completions", &body).await;
                let seen = local.last();
                let got = String::from_utf8(seen.response.unwrap().body).unwrap();
                let extra = |event: &&str| event.contains(r#""choices":[]"#);
                let usage = events(&got).into_iter().find(|e| e["usage"].is_object());
                usages.push(usage.unwrap()["usage"].clone());
                let mut expected = body.to_string();
                if asked {
                    assert_eq!(reply.text(), got);
                } else {
                    expected.insert_str(1, QUESTION);
                    let kept: Vec<&str> =
                        got.split_inclusive("\n\n").filter(|e| !extra(e)).collect();
                    assert_eq!(kept.len() + 1, got.split_inclusive("\n\n").count());
                    assert_eq!(reply.text(), kept.concat());
                }
                assert_eq!(String::from_utf8(seen.request.body).unwrap(), expected);
                let pieces = events(&got);
                let pieces = pieces
                    .iter()
                    .filter_map(|e| e["choices"][0]["delta"]["content"].as_str());
                pieces.collect::<String>().into()
            }
        };
        let all = messages.as_array_mut().unwrap();
        let call = format!("call_{round}");
        all.push(json!({"role": "assistant", "content": text, "tool_calls": [
            {"id": call, "type": "function", "function": {"name": "shell", "arguments": format!("{{\"command\":\"ls {round}\"}}")}},
        ]}));
        all.push(json!({"role": "tool", "tool_call_id": call, "content": format!("file-{round}")}));
    }
    let turns = local.gateway.turns_of("chat", 3).await;
    assert_eq!(turns.len(), 3);
    for (at, (turn, usage)) in turns.iter().zip(&usages).enumerate() {
        counted_chat(turn, usage);
        assert_eq!((&turn["turn"], &turn["tools"]), (&json!(at + 1), &json!(1)));
        assert_eq!(turn["stop_reason"], "length");
    }
    // The server keeps what it has read, so what it says of its cache is no constant.
    assert_eq!(turns[0]["tokens"]["read"], 0);
    assert!(turns[2]["tokens"]["read"].as_u64() > turns[1]["tokens"]["read"].as_u64());
    assert_eq!(local.gateway.report(&["runs"])[0]["threads"], 1);
}

/// Its events of Responses have neither numbers nor places.
#[tokio::test]
async fn llama_cpp_answers_responses_and_messages_and_is_counted_as_it_says() {
    let local = Local::start("", &[]).await;
    let mut body = json!({"model": "tiny", "max_output_tokens": 9, "instructions": "Be brief.", "input": "Say something."});
    let whole = local.post("resp", "/v1/responses", &body).await;
    local.untouched(&whole);
    body["stream"] = true.into();
    let stream = local.post("resp", "/v1/responses", &body).await;
    assert_eq!(local.last().request.body, body.to_string().into_bytes());
    local.untouched(&stream);
    let done = events(&stream.text());
    let done = done
        .iter()
        .find(|e| e["type"] == "response.completed")
        .unwrap();
    let turns = local.gateway.turns_of("resp", 2).await;
    counted_responses(&turns[0], &whole.json()["usage"]);
    counted_responses(&turns[1], &done["response"]["usage"]);
    assert!(turns[1]["tokens"]["read"].as_u64() > Some(0));

    let body = json!({"model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": "Say something."}]});
    let reply = local.post("msgs", "/v1/messages", &body).await;
    local.untouched(&reply);
    let turn = &local.gateway.turns_of("msgs", 1).await[0];
    let usage = &reply.json()["usage"];
    let tokens = &turn["tokens"];
    assert_eq!(tokens["uncached"], usage["input_tokens"], "{turn}");
    assert_eq!(tokens["read"], usage["cache_read_input_tokens"], "{turn}");
    assert_eq!(tokens["output"], usage["output_tokens"], "{turn}");
}

#[tokio::test]
async fn c10_llama_cpp_not_asked_leaves_the_tokens_unknown() {
    let local = Local::start("ask_usage = false\n", &[]).await;
    let body = json!({"model": "tiny", "max_tokens": 5, "stream": true, "messages": [{"role": "user", "content": "hello"}]});
    let reply = local.post("quiet", "/v1/chat/completions", &body).await;
    assert_eq!(local.last().request.body, body.to_string().into_bytes());
    local.untouched(&reply);
    let turn = &local.gateway.turns_of("quiet", 1).await[0];
    assert_eq!(turn["outcome"], "ok");
    for kind in ["uncached", "read", "output"] {
        assert_eq!(turn["tokens"][kind], Value::Null, "{turn}");
    }
}

#[tokio::test]
async fn what_else_llama_cpp_says_passes_untouched() {
    let local = Local::start("", &[]).await;
    for path in ["/health", "/v1/models"] {
        let reply = local.get(path).await;
        assert_eq!(reply.status, 200, "{path}");
        local.untouched(&reply);
    }
    let cases = [
        (
            "/v1/chat/completions",
            r#"{"model":"tiny","messages":7}"#,
            400,
        ),
        ("/v1/chat/completions", r#"{"model":"#, 400),
        ("/v1/responses", r#"{"model":"tiny"}"#, 400),
        ("/v1/embeddings", r#"{"model":"tiny","input":"x"}"#, 501),
        ("/v1/nothing", "{}", 404),
    ];
    for (path, body, status) in cases {
        let reply = local.post_text("errors", path, body).await;
        assert_eq!(reply.status, status, "{path} {body}: {}", reply.text());
        assert_eq!(local.last().request.body, body.as_bytes());
        local.untouched(&reply);
    }
    let turns = local.gateway.turns_of("errors", 3).await;
    for turn in turns.iter().filter(|turn| turn["kind"] == "turn") {
        assert_eq!(turn["outcome"], "upstream_error", "{turn}");
        assert_eq!(turn["error_type"], "invalid_request_error", "{turn}");
        assert_eq!(turn["tokens"]["output"], Value::Null, "{turn}");
    }
}
