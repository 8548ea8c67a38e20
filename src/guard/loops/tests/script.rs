//! Conversations in a few lines of text, and the bodies that clients would send of them.
//!
//! ```text
//! user: what the user says
//! > Tool {"its":"input"}      a call; those that follow each other are one answer
//! = text                      its result without a flag
//! ! text                      flagged as failed
//! . text                      flagged as fine
//! + text                      a text beside the results
//! said: text                  an answer without calls
//! sys: text                   a message of the system's role
//! repeat 3                    the lines up to `end` three times; {k} is 1, 2, 3,
//! end                         and {a|b|c} is a, b, c
//! ```
//!
//! Results answer the calls in their order; `=2 text` answers the second one. Texts are written as
//! in JSON (`\n`).

use serde_json::{Value, json};

use crate::provider::wire::Wire;

/// A spelling of the same conversation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spelling {
    /// Results are lists of one text block instead of strings.
    pub lists: bool,
    /// White space between all tokens.
    pub pretty: bool,
    /// The messages stand before the other members.
    pub messages_first: bool,
    /// Results come in the reverse order of the calls.
    pub reversed: bool,
}

/// The messages of a script.
pub fn messages(script: &str) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    let (mut ids, mut open): (usize, Vec<String>) = (0, Vec::new());
    let mut push = |role: &str, block: Value| match messages.last_mut() {
        Some(last) if last["role"] == role && role != "system" => {
            last["content"].as_array_mut().unwrap().push(block);
        }
        _ => messages.push(json!({"role": role, "content": [block]})),
    };
    for line in unrolled(script) {
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let text = |rest: &str| -> String {
            serde_json::from_str(&format!("\"{}\"", rest.replace('"', "\\\""))).unwrap()
        };
        match (word, word.as_bytes()[0]) {
            ("user:", _) => push("user", json!({"type": "text", "text": text(rest)})),
            ("said:", _) => push("assistant", json!({"type": "text", "text": text(rest)})),
            ("sys:", _) => push("system", json!({"type": "text", "text": text(rest)})),
            ("+", _) => push("user", json!({"type": "text", "text": text(rest)})),
            (">", _) => {
                let (name, input) = rest.split_once(' ').unwrap_or((rest, "{}"));
                let input: Value =
                    serde_json::from_str(input).unwrap_or_else(|e| panic!("{line}: {e}"));
                ids += 1;
                let id = format!("toolu_{ids:04}");
                push(
                    "assistant",
                    json!({"type": "tool_use", "id": id, "name": name, "input": input}),
                );
                open.push(id);
            }
            (_, b'=' | b'!' | b'.') => {
                let at = word[1..].parse::<usize>().map_or(0, |nth| nth - 1);
                let mut block = json!({"type": "tool_result", "tool_use_id": open.remove(at), "content": text(rest)});
                match word.as_bytes()[0] {
                    b'!' => block["is_error"] = json!(true),
                    b'.' => block["is_error"] = json!(false),
                    _ => {}
                }
                push("user", block);
            }
            _ => panic!("what is {line}"),
        }
    }
    messages
}

/// The body that carries these messages.
pub fn body(messages: &[Value], spelling: Spelling) -> Vec<u8> {
    let mut messages = messages.to_vec();
    for message in &mut messages {
        let blocks = message["content"].as_array_mut().unwrap();
        if spelling.reversed {
            let results = blocks
                .iter()
                .filter(|block| block["type"] == "tool_result")
                .count();
            blocks[..results].reverse();
        }
        for block in blocks.iter_mut().filter(|_| spelling.lists) {
            if block["type"] == "tool_result" {
                let text = block["content"].take();
                block["content"] = json!([{"type": "text", "text": text}]);
            }
        }
    }
    let spell = |value: &Value| match spelling.pretty {
        true => serde_json::to_string_pretty(value).unwrap(),
        false => serde_json::to_string(value).unwrap(),
    };
    let messages = format!("\"messages\":{}", spell(&Value::from(messages)));
    let rest = r#""model":"m","max_tokens":100"#;
    let body = match spelling.messages_first {
        true => format!("{{{messages},{rest}}}"),
        false => format!("{{{rest},{messages}}}"),
    };
    body.into_bytes()
}

/// The body of the same conversation in another format. Flags are lost, since there are none.
pub fn body_of(wire: Wire, messages: &[Value], spelling: Spelling) -> Vec<u8> {
    let mut elements = Vec::new();
    for message in messages {
        let blocks = message["content"].as_array().unwrap();
        let results = blocks.iter().filter(|block| block["type"] == "tool_result");
        let mut results: Vec<Value> = results
            .map(|block| result_in(wire, block, spelling))
            .collect();
        if spelling.reversed {
            results.reverse();
        }
        elements.append(&mut results);
        let of = |kind| {
            blocks
                .iter()
                .filter(move |block: &&Value| block["type"] == kind)
        };
        let texts: Vec<&Value> = of("text").map(|block| &block["text"]).collect();
        let calls = of("tool_use").map(|block| call_in(wire, block, spelling));
        match (wire, message["role"].as_str().unwrap()) {
            (Wire::Chat, "assistant") => {
                let mut said = json!({"role": "assistant", "content": texts.first()});
                let calls: Vec<Value> = calls.collect();
                if !calls.is_empty() {
                    said["tool_calls"] = calls.into();
                }
                elements.push(said);
            }
            (_, role) => {
                let texts = texts
                    .into_iter()
                    .map(|text| json!({"role": role, "content": text}));
                elements.extend(texts);
                elements.extend(calls);
            }
        }
    }
    let mut body = match wire {
        Wire::Chat => json!({"model": "m", "messages": elements}),
        _ => json!({"model": "m", "store": false, "input": elements}),
    };
    body["stream"] = json!(true);
    match spelling.pretty {
        true => serde_json::to_vec_pretty(&body).unwrap(),
        false => serde_json::to_vec(&body).unwrap(),
    }
}

fn call_in(wire: Wire, call: &Value, spelling: Spelling) -> Value {
    let input = match spelling.pretty {
        true => serde_json::to_string_pretty(&call["input"]).unwrap(),
        false => call["input"].to_string(),
    };
    let (id, name) = (&call["id"], &call["name"]);
    match wire {
        Wire::Chat => {
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": input}})
        }
        _ => json!({"type": "function_call", "call_id": id, "name": name, "arguments": input}),
    }
}

fn result_in(wire: Wire, result: &Value, spelling: Spelling) -> Value {
    let (id, mut text) = (&result["tool_use_id"], result["content"].clone());
    let kind = if wire == Wire::Chat {
        "text"
    } else {
        "input_text"
    };
    if spelling.lists {
        text = json!([{"type": kind, "text": text}]);
    }
    match wire {
        Wire::Chat => json!({"role": "tool", "tool_call_id": id, "content": text}),
        _ => json!({"type": "function_call_output", "call_id": id, "output": text}),
    }
}

/// The messages without the flags of their results.
pub fn unflagged(mut messages: Vec<Value>) -> Vec<Value> {
    for message in &mut messages {
        for block in message["content"].as_array_mut().unwrap() {
            block.as_object_mut().unwrap().remove("is_error");
        }
    }
    messages
}

/// The lines with repetitions written out.
fn unrolled(script: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut block: Option<(usize, Vec<&str>)> = None;
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match (&mut block, line.split_once(' ')) {
            (None, Some(("repeat", times))) => block = Some((times.parse().unwrap(), Vec::new())),
            (Some((times, inner)), _) if line == "end" => {
                for k in 1..=*times {
                    lines.extend(inner.iter().map(|line| filled(line, k)));
                }
                block = None;
            }
            (Some((_, inner)), _) => inner.push(line),
            (None, _) => lines.push(line.to_owned()),
        }
    }
    assert!(block.is_none(), "a repetition has no end");
    lines
}

fn filled(line: &str, k: usize) -> String {
    let mut line = line.replace("{k}", &k.to_string());
    // The innermost braces with a bar between them.
    while let Some((open, close)) = choice(&line) {
        let chosen = line[open + 1..close]
            .split('|')
            .nth(k - 1)
            .unwrap_or_default()
            .to_owned();
        line.replace_range(open..=close, &chosen);
    }
    line
}

fn choice(line: &str) -> Option<(usize, usize)> {
    let mut open = None;
    let mut bar = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'{' => (open, bar) = (Some(at), false),
            b'|' => bar = true,
            b'}' if bar && open.is_some() => return Some((open?, at)),
            b'}' => open = None,
            _ => {}
        }
    }
    None
}
