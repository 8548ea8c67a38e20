//! Chunks of Chat Completions.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{LOGPROBS, MAX_PARTS};

/// Members that are said whole each time, and not in pieces.
const WHOLE: [&str; 11] = [
    "call_id",
    "created",
    "finish_reason",
    "format",
    "id",
    "index",
    "model",
    "name",
    "native_finish_reason",
    "role",
    "type",
];

#[derive(Debug, Default)]
pub(super) struct Parts {
    members: Map<String, Value>,
    choices: BTreeMap<u64, Choice>,
    known: bool,
    done: bool,
}

#[derive(Debug, Default)]
struct Choice {
    members: Map<String, Value>,
    message: Map<String, Value>,
}

impl Parts {
    /// The mark at the end of a stream.
    pub(super) fn done(&mut self) {
        self.done = true;
    }

    /// Takes a chunk. Says whether all of it was taken.
    pub(super) fn chunk(&mut self, mut chunk: Map<String, Value>) -> bool {
        self.known = true;
        let choices = match chunk.remove("choices") {
            Some(Value::Array(choices)) => choices,
            _ => Vec::new(),
        };
        // Only there to make all chunks equally long.
        chunk.remove("obfuscation");
        for (name, value) in chunk {
            if !value.is_null() || !self.members.contains_key(&name) {
                self.members.insert(name, value);
            }
        }
        let mut taken = true;
        for choice in choices {
            let Value::Object(mut choice) = choice else {
                taken = false;
                continue;
            };
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
            if self.choices.len() >= MAX_PARTS && !self.choices.contains_key(&index) {
                taken = false;
                continue;
            }
            let into = self.choices.entry(index).or_default();
            choice.remove(LOGPROBS);
            if let Some(Value::Object(delta)) = choice.remove("delta") {
                taken &= join(&mut into.message, delta);
            }
            taken &= join(&mut into.members, choice);
        }
        taken
    }

    /// The completion, and whether it has come to its end. `None` if there was no chunk.
    pub(super) fn whole(self) -> Option<(Map<String, Value>, bool)> {
        if !self.known {
            return None;
        }
        let stopped = |choice: &Choice| {
            let reason = choice.members.get("finish_reason");
            reason.is_some_and(|reason| !reason.is_null())
        };
        let all = !self.choices.is_empty() && self.choices.values().all(stopped);
        let choices = self.choices.into_values().map(Choice::whole).collect();
        let mut members = self.members;
        members.insert("choices".into(), Value::Array(choices));
        Some((members, self.done || all))
    }
}

impl Choice {
    fn whole(self) -> Value {
        let (mut members, mut message) = (self.members, self.message);
        if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
            for call in calls {
                if let Value::Object(call) = call {
                    call.remove("index");
                }
            }
        }
        if !message.is_empty() {
            members.insert("message".into(), Value::Object(message));
        }
        Value::Object(members)
    }
}

/// Adds a delta to what is there: strings go on, lists go on by the `index` of their elements.
/// Says whether all of it was taken.
fn join(into: &mut Map<String, Value>, delta: Map<String, Value>) -> bool {
    let mut taken = true;
    for (name, value) in delta {
        if value.is_null() {
            into.entry(name).or_insert(value);
            continue;
        }
        match (into.get_mut(&name), value) {
            (Some(Value::String(there)), Value::String(piece)) => {
                if !WHOLE.contains(&name.as_str()) {
                    there.push_str(&piece);
                } else if !piece.is_empty() {
                    *there = piece;
                }
            }
            (Some(Value::Object(there)), Value::Object(delta)) => taken &= join(there, delta),
            (Some(Value::Array(there)), Value::Array(pieces)) => {
                taken &= join_list(there, pieces);
            }
            (_, Value::Array(pieces)) => {
                let mut list = Vec::new();
                taken &= join_list(&mut list, pieces);
                into.insert(name, list.into());
            }
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
    taken
}

fn join_list(there: &mut Vec<Value>, pieces: Vec<Value>) -> bool {
    let mut taken = true;
    for piece in pieces {
        let index = piece.get("index").and_then(Value::as_u64);
        let same = |known: &Value| known.get("index").and_then(Value::as_u64) == index;
        // The last one is the one that goes on.
        let at = index.and_then(|_| there.iter().rposition(same));
        match (at, piece) {
            (Some(at), Value::Object(piece)) => {
                if let Some(Value::Object(known)) = there.get_mut(at) {
                    taken &= join(known, piece);
                }
            }
            (_, piece) if there.len() < MAX_PARTS => there.push(piece),
            _ => taken = false,
        }
    }
    taken
}
