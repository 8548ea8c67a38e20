//! Events of Responses. The terminal event has the whole response; before it, the items are put
//! together from what was told of them. Some servers say no `output_index`: then the item's id
//! tells which one is meant.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{MAX_PARTS, without_logprobs};

/// Deltas of texts: the type, the list of the item that has the text, the member in its place.
const TEXTS: [(&str, &str, &str); 4] = [
    ("response.output_text.delta", "content", "text"),
    ("response.refusal.delta", "content", "refusal"),
    ("response.reasoning_text.delta", "content", "text"),
    ("response.reasoning_summary_text.delta", "summary", "text"),
];
/// Deltas of a member of the item itself.
const MEMBERS: [(&str, &str); 4] = [
    ("response.function_call_arguments.delta", "arguments"),
    ("response.custom_tool_call_input.delta", "input"),
    ("response.mcp_call_arguments.delta", "arguments"),
    ("response.code_interpreter_call_code.delta", "code"),
];

#[derive(Debug, Default)]
pub(super) struct Parts {
    response: Map<String, Value>,
    items: Vec<Item>,
    known: bool,
    finished: bool,
}

#[derive(Debug, Default)]
struct Item {
    index: Option<u64>,
    id: Option<String>,
    members: Map<String, Value>,
    /// Texts by the list and the place in it.
    texts: BTreeMap<(&'static str, u64), Map<String, Value>>,
}

impl Parts {
    /// Takes an event. Says whether all of it was taken; what only repeats others is not needed.
    pub(super) fn event(&mut self, kind: &str, mut event: Map<String, Value>) -> bool {
        self.known = true;
        match kind {
            "response.created"
            | "response.queued"
            | "response.in_progress"
            | "response.completed"
            | "response.done"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                let begins = ["created", "queued", "in_progress"];
                self.finished |= !begins.iter().any(|word| kind.ends_with(word));
                let Some(Value::Object(response)) = event.remove("response") else {
                    return false;
                };
                for (name, value) in response {
                    if !value.is_null() || !self.response.contains_key(&name) {
                        self.response.insert(name, value);
                    }
                }
                true
            }
            "response.output_item.added" | "response.output_item.done" => {
                let Some(Value::Object(members)) = event.remove("item") else {
                    return false;
                };
                let id = members.get("id").and_then(Value::as_str).map(str::to_owned);
                let Some(item) = self.item(&event, id) else {
                    return false;
                };
                if kind.ends_with("done") {
                    item.texts.clear();
                }
                item.members = members;
                true
            }
            _ => {
                let Some(Value::String(piece)) = event.remove("delta") else {
                    return true;
                };
                self.delta(kind, &event, &piece)
            }
        }
    }

    fn delta(&mut self, kind: &str, event: &Map<String, Value>, piece: &str) -> bool {
        let id = event.get("item_id").and_then(Value::as_str);
        let id = id.map(str::to_owned);
        if let Some((_, list, member)) = TEXTS.iter().find(|text| text.0 == kind) {
            let place = event.get("content_index").or(event.get("summary_index"));
            let place = (*list, place.and_then(Value::as_u64).unwrap_or(0));
            let Some(item) = self.item(event, id) else {
                return false;
            };
            if item.texts.len() >= MAX_PARTS && !item.texts.contains_key(&place) {
                return false;
            }
            add(item.texts.entry(place).or_default(), member, piece);
        } else if let Some((_, member)) = MEMBERS.iter().find(|known| known.0 == kind) {
            let Some(item) = self.item(event, id) else {
                return false;
            };
            add(&mut item.members, member, piece);
        }
        true
    }

    /// The item that an event is about.
    fn item(&mut self, event: &Map<String, Value>, id: Option<String>) -> Option<&mut Item> {
        let index = event.get("output_index").and_then(Value::as_u64);
        let same = |item: &Item| match index {
            Some(_) => item.index == index,
            None => item.id == id,
        };
        // The last one is the one that is told of.
        let at = match self.items.iter().rposition(same) {
            Some(at) => at,
            None if self.items.len() >= MAX_PARTS => return None,
            None => {
                self.items.push(Item {
                    index,
                    id,
                    ..Item::default()
                });
                self.items.len() - 1
            }
        };
        self.items.get_mut(at)
    }

    /// The response, and whether it has come to its end. `None` if there was no event of one.
    pub(super) fn whole(self) -> Option<(Map<String, Value>, bool)> {
        if !self.known {
            return None;
        }
        let mut response = self.response;
        let told = response.get("output").and_then(Value::as_array);
        if told.is_none_or(Vec::is_empty) && !self.items.is_empty() {
            let items = self.items.into_iter().map(Item::whole);
            response.insert("output".into(), items.collect());
        }
        let mut response = Value::Object(response);
        without_logprobs(&mut response);
        match response {
            Value::Object(response) => Some((response, self.finished)),
            _ => None,
        }
    }
}

impl Item {
    fn whole(self) -> Value {
        let mut members = self.members;
        let mut lists: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for ((list, _), part) in self.texts {
            lists.entry(list).or_default().push(Value::Object(part));
        }
        for (list, parts) in lists {
            members.insert(list.into(), parts.into());
        }
        Value::Object(members)
    }
}

fn add(members: &mut Map<String, Value>, member: &str, piece: &str) {
    match members.get_mut(member) {
        Some(Value::String(text)) => text.push_str(piece),
        _ => {
            members.insert(member.into(), piece.into());
        }
    }
}
