//! An answer of Anthropic Messages, from the events of a stream or from one body.
//!
//! A block is kept as the members that it began with, each with its last value: the pieces of text,
//! input, reasoning and signature are joined, and citations collected. What is unknown stays.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::members::{Members, quote};
use super::super::{Assemble, Broken, Piece, Whole, unmixed};
use super::object;
use crate::agent::machine::Stop;
use crate::agent::talk::{Answer, Block, Kind, ToolCall};
use crate::provider::wire::Wire;
use crate::sse::Event;

/// Most blocks of an answer.
const MAX_BLOCKS: usize = 4096;
/// Most bytes of an answer.
const MAX_BYTES: usize = 64 << 20;

#[derive(Debug, Default)]
struct Open {
    members: Members,
    kind: String,
    text: String,
    input: String,
    thinking: String,
    signature: String,
    citations: Vec<String>,
    closed: bool,
}

/// An answer in the making.
#[derive(Debug)]
pub struct Making {
    model: String,
    /// By the index of the provider.
    blocks: Vec<(u32, Open)>,
    bytes: usize,
    stop: Option<Stop>,
    whole: bool,
    broken: Option<Broken>,
}

#[derive(Deserialize)]
struct Any<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(default)]
    index: u32,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(default)]
    error: Option<Reported>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    text: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    partial_json: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    thinking: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    signature: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    citation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop_reason: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    stop_details: Option<StopDetails>,
}

#[derive(Deserialize)]
struct StopDetails {
    #[serde(default)]
    category: Option<String>,
}

#[derive(Deserialize, Default)]
struct Reported {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    content: Vec<&'a RawValue>,
    stop_reason: Option<String>,
    #[serde(default)]
    stop_details: Option<StopDetails>,
}

impl Making {
    pub fn new(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            blocks: Vec::new(),
            bytes: 0,
            stop: None,
            whole: false,
            broken: None,
        }
    }

    fn at(&mut self, index: u32) -> Option<&mut Open> {
        // The newest is nearly always meant.
        let mut blocks = self.blocks.iter_mut().rev();
        blocks.find(|(own, _)| *own == index).map(|(_, open)| open)
    }

    fn open(&mut self, index: u32, json: &str, pieces: &mut Vec<Piece>) {
        if self.blocks.len() >= MAX_BLOCKS || self.at(index).is_some() {
            self.broken
                .get_or_insert(Broken::Unusable("too many blocks, or one index twice"));
            return;
        }
        let Some(members) = Members::read(json) else {
            self.broken
                .get_or_insert(Broken::Unusable("a block that is no object"));
            return;
        };
        let text = |name: &str| members.text(name).unwrap_or_default();
        let open = Open {
            kind: text("type"),
            text: text("text"),
            thinking: text("thinking"),
            signature: text("signature"),
            members,
            ..Open::default()
        };
        match open.kind.as_str() {
            "tool_use" => pieces.push(Piece::CallOpened(
                open.members.text("name").unwrap_or_default(),
            )),
            "text" if !open.text.is_empty() => pieces.push(Piece::Text(open.text.clone())),
            "thinking" | "redacted_thinking" => pieces.push(Piece::Thinking),
            _ => {}
        }
        self.blocks.push((index, open));
    }

    fn delta(&mut self, index: u32, delta: &Delta<'_>, pieces: &mut Vec<Piece>) {
        let Some(open) = self.at(index) else { return };
        let mut grown = 0;
        let mut add = |to: &mut String, piece: &Option<std::borrow::Cow<'_, str>>| {
            if let Some(piece) = piece {
                to.push_str(piece);
                grown += piece.len();
            }
        };
        match &*delta.kind {
            "text_delta" => {
                add(&mut open.text, &delta.text);
                if let Some(text) = delta.text.as_ref().filter(|text| !text.is_empty()) {
                    pieces.push(Piece::Text(text.to_string()));
                }
            }
            "input_json_delta" => add(&mut open.input, &delta.partial_json),
            "thinking_delta" => {
                add(&mut open.thinking, &delta.thinking);
                pieces.push(Piece::Thinking);
            }
            "signature_delta" => add(&mut open.signature, &delta.signature),
            "citations_delta" => {
                if let Some(citation) = delta.citation {
                    grown += citation.get().len();
                    open.citations.push(citation.get().to_owned());
                }
            }
            _ => {}
        }
        self.bytes += grown;
        if self.bytes > MAX_BYTES {
            self.broken.get_or_insert(Broken::Unusable("too large"));
        }
    }

    fn close(&mut self, index: u32, pieces: &mut Vec<Piece>) {
        if let Some(open) = self.at(index) {
            open.closed = true;
            if let Kind::Call(call) = open.block().kind {
                pieces.push(Piece::Call(call));
            }
        }
    }
}

impl Open {
    fn block(&self) -> Block {
        let mut members = self.members.clone();
        if !self.citations.is_empty() {
            members.set("citations", format!("[{}]", self.citations.join(",")));
        }
        let mut joined = |name: &str, text: &str| {
            if !text.is_empty() {
                members.set(name, quote(text));
            }
        };
        joined("thinking", &self.thinking);
        joined("signature", &self.signature);
        joined("text", &self.text);
        let input = match (self.input.trim(), members.get("input")) {
            ("", Some(begun)) => begun.to_owned(),
            (streamed, _) => streamed.to_owned(),
        };
        let kind = match self.kind.as_str() {
            "text" => Kind::Text(self.text.clone()),
            "tool_use" => {
                members.set("input", object(&input));
                let text = |name: &str| members.text(name).unwrap_or_default();
                Kind::Call(ToolCall {
                    id: text("id"),
                    name: text("name"),
                    input: if input.is_empty() {
                        "{}".to_owned()
                    } else {
                        input
                    },
                })
            }
            "thinking" | "redacted_thinking" => Kind::Thinking,
            _ => {
                if !self.input.is_empty() {
                    members.set("input", object(&input));
                }
                Kind::Other
            }
        };
        Block {
            kind,
            raw: members.write(),
        }
    }
}

impl Assemble for Making {
    fn event(&mut self, event: Event<'_>, pieces: &mut Vec<Piece>) {
        if self.whole {
            return;
        }
        // An event of another shape is an unknown one; what it should have told will be missed.
        let Ok(any) = serde_json::from_slice::<Any<'_>>(event.data) else {
            return;
        };
        match &*any.kind {
            "content_block_start" => {
                if let Some(block) = any.content_block {
                    self.open(any.index, block.get(), pieces);
                }
            }
            "content_block_delta" => {
                if let Some(delta) = &any.delta {
                    self.delta(any.index, delta, pieces);
                }
            }
            "content_block_stop" => self.close(any.index, pieces),
            "message_delta" => {
                let delta = any.delta.as_ref();
                if let Some(reason) = delta.and_then(|delta| delta.stop_reason.as_deref()) {
                    let details = delta.and_then(|delta| delta.stop_details.as_ref());
                    self.stop = Some(stop_of(reason, details));
                }
            }
            "message_stop" => self.whole = true,
            "error" => {
                let error = any.error.unwrap_or_default();
                self.broken.get_or_insert(Broken::Reported {
                    kind: error.kind,
                    message: error.message,
                });
            }
            _ => {}
        }
    }

    fn body(&mut self, json: &[u8], pieces: &mut Vec<Piece>) {
        let Ok(body) = serde_json::from_slice::<Body<'_>>(json) else {
            self.broken.get_or_insert(Broken::Unusable("no message"));
            return;
        };
        for (index, block) in (0u32..).zip(&body.content) {
            self.open(index, block.get(), pieces);
            self.close(index, pieces);
        }
        if let Some(reason) = &body.stop_reason {
            self.stop = Some(stop_of(reason, body.stop_details.as_ref()));
        }
        self.whole = true;
    }

    fn is_whole(&self) -> bool {
        self.whole || self.broken.is_some()
    }

    fn finish(mut self: Box<Self>) -> Result<Whole, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let Some(stop) = self.stop.filter(|_| self.whole) else {
            return Err(Broken::CutOff);
        };
        self.blocks.sort_by_key(|(index, _)| *index);
        let mut open_call = false;
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for (_, open) in &self.blocks {
            let block = open.block();
            let cut = match &block.kind {
                // An output limit may leave a call whose block was closed all the same.
                Kind::Call(call) => {
                    !open.closed
                        || stop == Stop::MaxTokens
                            && serde_json::from_str::<&RawValue>(&call.input).is_err()
                }
                _ => false,
            };
            open_call |= cut;
            let empty = matches!(&block.kind, Kind::Text(text) if text.trim().is_empty());
            if !cut && !empty {
                blocks.push(block);
            }
        }
        unmixed(Whole {
            answer: Answer {
                wire: Wire::Messages,
                model: self.model,
                blocks,
            },
            stop,
            open_call,
        })
    }
}

fn stop_of(reason: &str, details: Option<&StopDetails>) -> Stop {
    match reason {
        "end_turn" | "stop_sequence" => Stop::EndTurn,
        "tool_use" => Stop::ToolUse,
        "max_tokens" => Stop::MaxTokens,
        "pause_turn" | "compaction" => Stop::Pause,
        "refusal" => Stop::Refusal(details.and_then(|details| details.category.clone())),
        "model_context_window_exceeded" => Stop::ContextWindow,
        other => Stop::Unknown(other.to_owned()),
    }
}
