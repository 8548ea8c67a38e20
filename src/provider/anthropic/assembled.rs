//! A stream put together to the message that it tells: what a client has at the end.
//!
//! Content can only be judged whole, since what a stream says may be cut anywhere. So all pieces of
//! text are joined before anybody looks at them, also those of kinds that are not known yet: the
//! strings of a delta belong to the block's members of the same name. Source of the events:
//! provider docs and SDK types, Nov 2026.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::wire::Kind;
use crate::provider::assembled::Assembled;
use crate::sse;

/// Most blocks of one message; of more, the first ones are taken.
const MAX_BLOCKS: usize = 4_096;

/// Puts a message together, bounded by what it is given: nothing is kept twice.
#[derive(Debug)]
pub struct Assembler {
    decoder: sse::Decoder,
    parts: Parts,
}

#[derive(Debug, Default)]
struct Parts {
    message: Map<String, Value>,
    blocks: BTreeMap<u64, Block>,
    /// An event of a message has come.
    known: bool,
    finished: bool,
    gaps: bool,
}

#[derive(Debug, Default)]
struct Block {
    members: Map<String, Value>,
    /// Pieces of the input of a tool.
    input: String,
}

impl Assembler {
    /// An assembler that takes events of up to `max_event_bytes`.
    #[must_use]
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            decoder: sse::Decoder::new(max_event_bytes),
            parts: Parts::default(),
        }
    }

    /// Takes the next decoded bytes, cut anywhere.
    pub fn feed(&mut self, bytes: &[u8]) {
        let parts = &mut self.parts;
        self.decoder.feed(bytes, |event| {
            parts.gaps |= event.after_gap;
            parts.event(event.name, event.data);
        });
    }

    /// Nothing more comes. `None` if not one event of a message has come: this is another format.
    #[must_use]
    pub fn end(self) -> Option<Assembled> {
        let lost = self.decoder.oversized() > 0;
        let mut parts = self.parts;
        if !parts.known {
            return None;
        }
        let content = parts.blocks.into_values().map(Block::whole);
        let content: Vec<Value> = content.collect();
        if !content.is_empty() {
            parts.message.insert("content".into(), content.into());
        }
        Some(Assembled {
            message: Value::Object(parts.message),
            finished: parts.finished,
            gaps: parts.gaps || lost,
        })
    }
}

impl Parts {
    fn event(&mut self, name: Option<&[u8]>, data: &[u8]) {
        let Some(kind) = name.and_then(Kind::of).or_else(|| Kind::of_data(data)) else {
            return;
        };
        let Ok(Value::Object(mut event)) = serde_json::from_slice(data) else {
            // Whether it is a message cannot be told from a name alone.
            self.gaps = true;
            return;
        };
        self.known |= !matches!(kind, Kind::Ping | Kind::Error);
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(0);
        match kind {
            Kind::MessageStart => {
                if let Some(Value::Object(message)) = event.remove("message") {
                    merge(&mut self.message, message);
                }
            }
            Kind::BlockStart => {
                if let Some(Value::Object(members)) = event.remove("content_block")
                    && let Some(block) = self.block(index)
                {
                    merge(&mut block.members, members);
                }
            }
            Kind::BlockDelta => {
                if let Some(Value::Object(delta)) = event.remove("delta")
                    && let Some(block) = self.block(index)
                {
                    block.add(delta);
                }
            }
            Kind::MessageDelta => {
                if let Some(Value::Object(delta)) = event.remove("delta") {
                    merge(&mut self.message, delta);
                }
                if let Some(Value::Object(usage)) = event.remove("usage") {
                    match self.message.get_mut("usage") {
                        Some(Value::Object(before)) => merge(before, usage),
                        _ => {
                            self.message.insert("usage".into(), Value::Object(usage));
                        }
                    }
                }
            }
            Kind::MessageStop => self.finished = true,
            Kind::Error => {
                self.finished = true;
                let error = event.remove("error").unwrap_or(Value::Null);
                self.message.insert("error".into(), error);
            }
            Kind::BlockStop | Kind::Ping => {}
        }
    }

    fn block(&mut self, index: u64) -> Option<&mut Block> {
        if self.blocks.len() >= MAX_BLOCKS && !self.blocks.contains_key(&index) {
            self.gaps = true;
            return None;
        }
        Some(self.blocks.entry(index).or_default())
    }
}

impl Block {
    fn add(&mut self, delta: Map<String, Value>) {
        for (name, value) in delta {
            match (name.as_str(), value) {
                ("type", _) => {}
                ("partial_json", Value::String(piece)) => self.input.push_str(&piece),
                ("citation", citation) => match self.members.get_mut("citations") {
                    Some(Value::Array(citations)) => citations.push(citation),
                    _ => {
                        self.members.insert("citations".into(), json!([citation]));
                    }
                },
                (_, Value::String(piece)) => match self.members.get_mut(&name) {
                    Some(Value::String(text)) => text.push_str(&piece),
                    _ => {
                        self.members.insert(name, Value::String(piece));
                    }
                },
                (_, other) => {
                    self.members.insert(name, other);
                }
            }
        }
    }

    /// The block as a message has it. Input that is no JSON (yet) is given as its text.
    fn whole(self) -> Value {
        let mut members = self.members;
        if !self.input.is_empty() {
            let input = serde_json::from_str(&self.input).unwrap_or(Value::String(self.input));
            members.insert("input".into(), input);
        }
        Value::Object(members)
    }
}

/// Takes over what is said, and leaves what is only passed over with `null`.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        if !value.is_null() || !into.contains_key(&name) {
            into.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: &str = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":9,\"cache_read_input_tokens\":4,\"output_tokens\":1}}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"let me \"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"see \u{1f642}\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"c2ln\"}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"sk-ant-api03-\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"citations_delta\",\"citation\":{\"cited_text\":\"a\"}}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"0123456789\"}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"Bash\",\"input\":{}}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"cmd\\\":\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"ls\\\"}\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"input_tokens\":null,\"output_tokens\":7}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );

    fn assembled<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<Assembled> {
        let mut assembler = Assembler::new(1 << 20);
        for piece in pieces {
            assembler.feed(piece);
        }
        assembler.end()
    }

    #[test]
    fn a_stream_becomes_the_message_that_it_tells() {
        let whole = assembled([STREAM.as_bytes()]).unwrap();
        assert!(whole.finished && !whole.gaps);
        let expected = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 7},
            "content": [
                {"type": "thinking", "thinking": "let me see \u{1f642}", "signature": "c2ln"},
                {"type": "text", "text": "sk-ant-api03-0123456789", "citations": [{"cited_text": "a"}]},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"cmd": "ls"}},
            ],
        });
        assert_eq!(whole.message, expected);
    }

    #[test]
    fn a_broken_stream_gives_what_came() {
        let end = STREAM.find("\"ls").unwrap();
        let broken = assembled([&STREAM.as_bytes()[..end]]).unwrap();
        assert!(!broken.finished);
        let content = &broken.message["content"];
        assert_eq!(content[1]["text"], "sk-ant-api03-0123456789");
        assert_eq!(content[2]["input"], "{\"cmd\":");
        assert_eq!(broken.message["usage"]["output_tokens"], 1);
    }

    #[test]
    fn an_error_ends_a_stream_and_is_told() {
        let start = STREAM.find("event: content_block_start").unwrap();
        let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
        let ended = assembled([&STREAM.as_bytes()[..start], error.as_bytes()]).unwrap();
        assert!(ended.finished);
        assert_eq!(ended.message["error"]["message"], "busy");
        assert_eq!(ended.message["content"], json!([]));
    }

    #[test]
    fn other_formats_and_lost_events_are_told_apart() {
        let other = "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";
        assert_eq!(assembled([other.as_bytes()]), None);
        assert_eq!(assembled([]), None);
        let mut small = Assembler::new(128);
        small.feed(STREAM.as_bytes());
        let lossy = small.end().unwrap();
        assert!(lossy.gaps && lossy.finished);
        let unnamed = STREAM.lines().filter(|line| !line.starts_with("event:"));
        let unnamed: Vec<String> = unnamed.map(|line| format!("{line}\n")).collect();
        let whole = assembled([STREAM.as_bytes()]);
        assert_eq!(assembled([unnamed.concat().as_bytes()]), whole);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_a_stream_is_cut(cuts in prop::collection::vec(0..STREAM.len(), 0..12)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&STREAM.as_bytes()[from..cut]);
                from = cut;
            }
            pieces.push(&STREAM.as_bytes()[from..]);
            prop_assert_eq!(assembled(pieces), assembled([STREAM.as_bytes()]));
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0..STREAM.len()) {
            let _ = assembled([&STREAM.as_bytes()[..at], &bytes, &STREAM.as_bytes()[at..]]);
        }
    }
}
