//! A scripted model on a real socket: each agent's requests are answered by a function, every
//! request is kept, and looked at when all is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::legal::assert_legal_body;
use crate::it_support::upstream::{LAST_CHUNK, SSE_HEAD, Seen, Step, Upstream, chunk, event};

/// What the model is asked.
pub struct Asked<'a> {
    /// The agent, by its header.
    pub agent: &'a str,
    /// Requests of this agent before this one that were answered.
    pub turn: usize,
    /// The body.
    pub body: &'a Value,
}

impl Asked<'_> {
    /// All text of the user's newest turn.
    pub fn last(&self) -> String {
        let messages = self.body["messages"].as_array().unwrap();
        text_of(messages.last().unwrap())
    }

    /// All text of the user's first turn.
    pub fn first(&self) -> String {
        text_of(&self.body["messages"][0])
    }
}

/// All text of a message, results included.
pub fn text_of(message: &Value) -> String {
    let blocks = message["content"].as_array().unwrap().iter();
    let texts = blocks.filter_map(|block| block["text"].as_str().or(block["content"].as_str()));
    texts.collect::<Vec<_>>().join("\n")
}

/// What it says.
pub enum Says {
    Text(String),
    Calls(Vec<(&'static str, Value)>),
    /// Nothing until the other side goes.
    Nothing,
}

impl Says {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub fn call(name: &'static str, input: Value) -> Self {
        Self::Calls(vec![(name, input)])
    }
}

type Counts = Mutex<HashMap<String, usize>>;

pub struct Model {
    pub upstream: Upstream,
}

impl Model {
    pub async fn start(says: impl Fn(&Asked<'_>) -> Says + Send + Sync + 'static) -> Self {
        let counts = Arc::new(Counts::default());
        let upstream = Upstream::start(move |seen: &Seen, number| {
            let body = seen.json();
            let agent = seen.header("x-prefixgate-agent").unwrap_or("?").to_owned();
            let turn = counts
                .lock()
                .unwrap()
                .get(&agent)
                .copied()
                .unwrap_or_default();
            let asked = Asked {
                agent: &agent,
                turn,
                body: &body,
            };
            let says = says(&asked);
            match says {
                Says::Nothing => vec![Step::AwaitClose],
                says => {
                    *counts.lock().unwrap().entry(agent).or_default() += 1;
                    vec![Step::Write(stream(number, &body, &says))]
                }
            }
        })
        .await;
        Self { upstream }
    }

    /// The bodies of one agent's requests, in order.
    pub fn bodies(&self, agent: &str) -> Vec<Value> {
        let seen = self.upstream.seen();
        let own = seen
            .iter()
            .filter(|seen| seen.header("x-prefixgate-agent") == Some(agent));
        own.map(Seen::json).collect()
    }

    /// The agents that have asked, in the order of their first requests.
    pub fn agents(&self) -> Vec<String> {
        let mut agents: Vec<String> = Vec::new();
        for seen in self.upstream.seen() {
            let agent = seen.header("x-prefixgate-agent").unwrap_or("?").to_owned();
            if !agents.contains(&agent) {
                agents.push(agent);
            }
        }
        agents
    }

    /// Every request was legal; all agents sent the same system prompt where `one_prefix`, and each
    /// agent's requests extend each other.
    pub fn check(&self, one_prefix: bool) {
        let seen = self.upstream.seen();
        for request in &seen {
            assert_legal_body(&request.json());
        }
        for agent in self.agents() {
            let bodies = self.bodies(&agent);
            for pair in bodies.windows(2) {
                assert_extends(&pair[0], &pair[1]);
            }
        }
        if one_prefix {
            let first = seen[0].json();
            for request in &seen {
                let body = request.json();
                assert_eq!(body["system"], first["system"]);
                assert_eq!(body["tools"], first["tools"]);
            }
        }
    }
}

/// A request goes on from another one: the same model, tools and system prompt, and all of its
/// messages, but for cache breakpoints and a text that was said for that request only.
pub fn assert_extends(earlier: &Value, later: &Value) {
    for part in ["model", "system", "tools", "output_config", "thinking"] {
        assert_eq!(earlier[part], later[part], "{part} changed");
    }
    let blocks = |body: &Value| -> Vec<(Value, Value)> {
        let messages = body["messages"].as_array().unwrap().clone();
        let mut all = Vec::new();
        for message in messages {
            for block in message["content"].as_array().unwrap() {
                let mut block = block.clone();
                block.as_object_mut().unwrap().remove("cache_control");
                all.push((message["role"].clone(), block));
            }
        }
        all
    };
    let (earlier, later) = (blocks(earlier), blocks(later));
    let same = earlier
        .iter()
        .zip(&later)
        .take_while(|(one, other)| one == other)
        .count();
    assert!(same + 1 >= earlier.len(), "{:#?} is gone", &earlier[same..]);
}

fn stream(number: usize, body: &Value, says: &Says) -> Vec<u8> {
    let blocks: Vec<Value> = match says {
        Says::Text(text) => vec![json!({"type": "text", "text": text})],
        Says::Calls(calls) => (calls.iter().enumerate())
            .map(|(at, (name, input))| {
                json!({"type": "tool_use", "id": format!("toolu_{number}_{at}"), "name": name, "input": input})
            })
            .collect(),
        Says::Nothing => Vec::new(),
    };
    let stop = if matches!(says, Says::Calls(_)) {
        "tool_use"
    } else {
        "end_turn"
    };
    let usage = json!({"input_tokens": 50, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0});
    let mut events = vec![json!({"type": "message_start", "message": {
        "id": format!("msg_{number}"), "type": "message", "role": "assistant",
        "model": body["model"], "content": [], "stop_reason": null, "usage": usage}})];
    for (index, block) in blocks.iter().enumerate() {
        let (start, delta) = match block["type"].as_str() {
            Some("text") => (
                json!({"type": "text", "text": ""}),
                json!({"type": "text_delta", "text": block["text"]}),
            ),
            _ => {
                let mut start = block.clone();
                start["input"] = json!({});
                let written = block["input"].to_string();
                (
                    start,
                    json!({"type": "input_json_delta", "partial_json": written}),
                )
            }
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(
        json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
        "usage": {"output_tokens": 20}}),
    );
    events.push(json!({"type": "message_stop"}));
    let events: String = events.iter().map(|data| event(&data.to_string())).collect();
    [SSE_HEAD, &chunk(events.as_bytes()), LAST_CHUNK].concat()
}
