//! Claude behind Chat Completions: a router that speaks OpenAI's format before a provider that speaks
//! Anthropic's, as strict as the real one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};

use prefixgate::config::{Config, Format};
use prefixgate::prompt_cache::verdict::{Reason, Status};
use prefixgate::provider::dialect::CacheControl;
use prefixgate::provider::view::Ttl;
use prefixgate::sim::Options;
use prefixgate::trace::TurnRecord;
use serde_json::{Value, json};

use super::{text, told};
use crate::support::client::Wire;
use crate::support::upstream::{LAST_CHUNK, SSE_HEAD, Seen, Step, Upstream, chunk, json as reply};
use crate::support::world::World;

const PATH: &str = "/v1/chat/completions";

/// A gateway before a router before the simulated provider.
struct Routed {
    world: World,
    router: Upstream,
}

impl Routed {
    async fn new(knows: CacheControl, change: impl FnOnce(&mut Config)) -> Self {
        let provider: Arc<OnceLock<String>> = Arc::default();
        let told = provider.clone();
        let router = Upstream::start(move |seen: &Seen, _| {
            // The provider is served by this runtime too.
            let answer = tokio::task::block_in_place(|| route(told.get().unwrap(), &seen.json()));
            vec![Step::Write(answer)]
        })
        .await;
        let url = router.url();
        let world = World::with(Options::default(), |config| {
            let upstream = &mut config.upstreams[0];
            upstream.name = "openrouter".to_owned();
            upstream.base = url.parse().unwrap();
            upstream.format = Format::OpenAi;
            upstream.price_provider = "openrouter".to_owned();
            upstream.dialect.cache_control = knows;
            change(config);
        })
        .await;
        let base = world.sim.base_url();
        provider
            .set(base.trim_start_matches("http://").to_owned())
            .unwrap();
        Self { world, router }
    }

    /// What has arrived at the router, the answer, and the record.
    async fn ask(&self, run: &str, body: &Value) -> (String, Value, TurnRecord) {
        let before = self.world.turns(run).len();
        let run_header = format!("x-prefixgate-run: {run}");
        let headers = ["authorization: Bearer k", &run_header];
        let body = body.to_string();
        let reply = Wire::exchange(self.world.proxy(), PATH, &headers, body.as_bytes()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let arrived = String::from_utf8(self.router.last().body.to_vec()).unwrap();
        let turn = self.world.recorded(run, before + 1).await.remove(before);
        // A stream is nobody's here.
        let answer: Value = serde_json::from_str(&reply.text()).unwrap_or_default();
        (arrived, answer["choices"][0]["message"].clone(), turn)
    }
}

/// Sends a Chat request on as Messages, and tells the answer in Chat's words.
fn route(provider: &str, chat: &Value) -> Vec<u8> {
    let body = messages(chat).to_string();
    let mut stream = TcpStream::connect(provider).unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {provider}\r\nx-api-key: k\r\n\
         anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    if !head.starts_with("HTTP/1.1 200") {
        return reply(400, body);
    }
    let answer = completion(&serde_json::from_str(body).unwrap());
    match chat["stream"] == true {
        true => streamed(&answer, chat["stream_options"]["include_usage"] == true),
        false => reply(200, &answer.to_string()),
    }
}

/// A completion as a stream of few chunks.
fn streamed(answer: &Value, with_usage: bool) -> Vec<u8> {
    let of = |choices: Value, usage: Value| {
        let chunk = json!({"id": answer["id"], "object": "chat.completion.chunk",
            "model": answer["model"], "choices": choices, "usage": usage});
        format!("data: {chunk}\n\n")
    };
    let choice = &answer["choices"][0];
    let mut delta = choice["message"].clone();
    for (at, call) in delta["tool_calls"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .enumerate()
    {
        call["index"] = at.into();
    }
    let delta = json!([{"index": 0, "delta": delta, "finish_reason": null}]);
    let end = json!([{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]);
    let mut stream = of(delta, Value::Null) + &of(end, Value::Null);
    if with_usage {
        stream += &of(json!([]), answer["usage"].clone());
    }
    stream += "data: [DONE]\n\n";
    [SSE_HEAD, &chunk(stream.as_bytes()), LAST_CHUNK].concat()
}

fn parts(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        parts => parts.as_array().cloned().unwrap_or_default(),
    }
}

fn messages(chat: &Value) -> Value {
    let mut system = Vec::new();
    let mut talk: Vec<Value> = Vec::new();
    for message in chat["messages"].as_array().unwrap() {
        let mut content = parts(&message["content"]);
        let role = match message["role"].as_str().unwrap() {
            "system" => {
                system.append(&mut content);
                continue;
            }
            "tool" => {
                let mut result = json!({
                    "type": "tool_result", "tool_use_id": message["tool_call_id"],
                    "content": [{"type": "text", "text": content[0]["text"]}],
                });
                // From the part to the result.
                if let Some(marker) = content[0].get("cache_control") {
                    result["cache_control"] = marker.clone();
                }
                content = vec![result];
                "user"
            }
            role => role,
        };
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let input = call["function"]["arguments"].as_str().unwrap();
            content.push(json!({
                "type": "tool_use", "id": call["id"], "name": call["function"]["name"],
                "input": serde_json::from_str::<Value>(input).unwrap(),
            }));
        }
        match talk.last_mut().filter(|last| last["role"] == role) {
            Some(last) => last["content"].as_array_mut().unwrap().append(&mut content),
            None => talk.push(json!({"role": role, "content": content})),
        }
    }
    let tools = chat["tools"].as_array().unwrap().iter().map(|tool| {
        let function = &tool["function"];
        json!({"name": function["name"], "description": function["description"], "input_schema": function["parameters"]})
    });
    let model = chat["model"].as_str().unwrap();
    json!({
        "model": model.trim_start_matches("anthropic/"), "max_tokens": 1000,
        "system": system, "tools": tools.collect::<Vec<_>>(), "messages": talk,
    })
}

fn completion(answer: &Value) -> Value {
    let blocks = answer["content"].as_array().unwrap();
    let text: String = blocks
        .iter()
        .filter_map(|block| block["text"].as_str())
        .collect();
    let calls: Vec<Value> = blocks
        .iter()
        .filter(|block| block["type"] == "tool_use")
        .map(|block| {
            json!({"id": block["id"], "type": "function", "function": {
                "name": block["name"], "arguments": block["input"].to_string()}})
        })
        .collect();
    let of = |kind: &str| answer["usage"][kind].as_u64().unwrap();
    let (read, written) = (
        of("cache_read_input_tokens"),
        of("cache_creation_input_tokens"),
    );
    let prompt = of("input_tokens") + read + written;
    let mut message = json!({"role": "assistant", "content": text});
    let mut reason = "stop";
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
        reason = "tool_calls";
    }
    json!({
        "id": answer["id"], "object": "chat.completion", "model": answer["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": of("output_tokens"),
            "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written}},
    })
}

/// A system prompt of some 2,500 tokens, a tool, and a task that is done in calls of it.
fn task(calls: usize) -> Value {
    let plan = ["tool=look"].repeat(calls).join(",");
    json!({"model": "anthropic/claude-sonnet-5", "tools": [{"type": "function", "function": {
        "name": "look", "description": "Looks. For tests.",
        "parameters": {"type": "object", "properties": {}}}}],
    "messages": [
        {"role": "system", "content": text(2_500, "rules")},
        {"role": "user", "content": format!("Look at it all. [[plan:{plan},end]]")},
    ]})
}

/// Works until the end; what arrived at the router and the record of each turn.
async fn work(routed: &Routed, run: &str, mut body: Value) -> Vec<(String, String, TurnRecord)> {
    let mut turns = Vec::new();
    loop {
        let (arrived, message, turn) = routed.ask(run, &body).await;
        turns.push((body.to_string(), arrived, turn));
        let talk = body["messages"].as_array_mut().unwrap();
        talk.push(message.clone());
        let calls = message["tool_calls"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        if calls.is_empty() {
            return turns;
        }
        for call in calls {
            let found = text(900, &format!("found{}", talk.len()));
            talk.push(json!({"role": "tool", "tool_call_id": call["id"], "content": found}));
        }
    }
}

/// A body without what was spliced in.
fn bare(arrived: &str) -> String {
    arrived
        .replace(r#"[{"type":"text","text":"#, "")
        .replace(r#","cache_control":{"type":"ephemeral"}}]"#, "")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_over_a_router_reads_what_it_wrote() {
    let routed = Routed::new(CacheControl::Results, |_| {}).await;
    let turns = work(&routed, "a", task(6)).await;
    assert_eq!(turns.len(), 7);
    let mut before = 0;
    for (number, (said, arrived, turn)) in turns.iter().enumerate() {
        assert_eq!(bare(arrived), *said, "only breakpoints are added");
        let paths: Vec<&str> = turn.markers_added.iter().map(|m| &*m.path).collect();
        assert!(paths.contains(&"messages[0].content"), "{paths:?}");
        assert!(
            turn.markers_added
                .iter()
                .all(|marker| marker.ttl == Ttl::M5)
        );
        let usage = &turn.usage;
        assert_eq!(
            usage.write_30m, None,
            "a lifetime of Anthropic's: {usage:?}"
        );
        assert!(usage.write_5m.unwrap() > 500, "{usage:?}");
        if number > 0 {
            assert_eq!(
                usage.read.unwrap(),
                before,
                "all that was written: {usage:?}"
            );
            assert_eq!(told(turn), (Status::Extended, None), "{turn:#?}");
            assert!(usage.uncached.unwrap() < 100, "{usage:?}");
        }
        before = usage.read.unwrap() + usage.write_5m.unwrap();
    }
    for request in routed.world.sim.requests() {
        assert_eq!(request.status, Some(200), "{:?}", request.error);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_breakpoints_nothing_is_cached_and_nobody_broke_it() {
    // Not known to take them; a proxy that copies parts takes them on texts only.
    let routed = Routed::new(CacheControl::None, |_| {}).await;
    let turns = work(&routed, "a", task(2)).await;
    for (said, arrived, turn) in &turns {
        assert_eq!(arrived, said);
        assert_eq!(turn.usage.read, Some(0));
        let (status, reason) = told(turn);
        assert!(
            !matches!(status, Status::Miss | Status::Partial),
            "{status:?}"
        );
        assert_eq!(reason, Some(Reason::NoMarker), "{turn:#?}");
    }
    let routed = Routed::new(CacheControl::Texts, |_| {}).await;
    let turns = work(&routed, "a", task(2)).await;
    for (said, arrived, turn) in &turns {
        assert_eq!(bare(arrived), *said);
        assert!(
            !arrived.contains(r#""content":[{"type":"text","text":"found"#),
            "{arrived}"
        );
        let read = turn.usage.read.unwrap();
        assert!(turn.turn == 1 || read > 2_000, "{:?}", turn.usage);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_asked_for_its_tokens_and_tells_what_was_read() {
    let routed = Routed::new(CacheControl::Results, |_| {}).await;
    let mut body = task(1);
    body["stream"] = true.into();
    let (arrived, _, first) = routed.ask("a", &body).await;
    assert!(arrived.contains(r#""include_usage":true"#), "{arrived}");
    assert!(first.usage.write_5m > Some(2_000), "{:?}", first.usage);
    let (_, _, again) = routed.ask("a", &body).await;
    assert_eq!(again.usage.read, first.usage.write_5m);
    assert_eq!(again.usage.write_30m, None);
}
