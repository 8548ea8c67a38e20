//! An answer of Anthropic Messages, from the events of a stream or from one body.
//!
//! A block of which no piece came is kept as it began, byte for byte. Else it is kept as the members
//! that it began with, in their order: the pieces of text, input, reasoning and signature are
//! joined, and citations collected. Types that are unknown here go the same way.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::fate::{Fate, MAX_BLOCKS, is_cut};
use super::super::members::{Members, object, said};
use super::super::{Assemble, Broken, Piece, Whole, unmixed};
use crate::agent::machine::Stop;
use crate::agent::talk::{Answer, Block, Kind, ToolCall};
use crate::agent::text::quote;
use crate::provider::wire::Wire;
use crate::sse::Event;

/// Members that come in pieces, with the member of the delta that brings them.
const JOINED: &[(&str, &str, &str)] = &[
    ("text_delta", "text", "text"),
    ("input_json_delta", "partial_json", "input"),
    ("thinking_delta", "thinking", "thinking"),
    ("signature_delta", "signature", "signature"),
];

#[derive(Debug)]
struct Open {
    /// The index of the provider.
    index: u32,
    /// As it began.
    json: String,
    members: Members,
    kind: String,
    /// What was joined of each of [`JOINED`]; `None` where no piece came.
    joined: [Option<String>; 4],
    citations: Vec<String>,
    /// Members that came whole.
    later: Vec<(&'static str, String)>,
    closed: bool,
}

/// An answer in the making.
#[derive(Debug)]
pub struct Making {
    model: String,
    blocks: Vec<Open>,
    stop: Option<Stop>,
    fate: Fate,
}

/// An event. Nothing is read of what is not needed, so that unknown events may look as they like.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Any<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Stopped<'a> {
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    stop_details: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    content: Vec<&'a RawValue>,
}

impl Making {
    pub fn new(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            blocks: Vec::new(),
            stop: None,
            fate: Fate::default(),
        }
    }

    /// The block of an index; the newest is nearly always meant.
    fn at(&self, index: u32) -> Option<usize> {
        self.blocks.iter().rposition(|open| open.index == index)
    }

    /// The block that an event is about, which must be open.
    fn open(&mut self, index: Option<u32>) -> Option<usize> {
        let at = index.and_then(|index| self.at(index));
        let open = at.filter(|at| !self.blocks[*at].closed);
        if open.is_none() {
            self.fate.unusable("a piece of a block that is not open");
        }
        open
    }

    fn begin(&mut self, index: u32, json: &str, pieces: &mut Vec<Piece>) {
        if self.blocks.len() >= MAX_BLOCKS || self.at(index).is_some() {
            return self.fate.unusable("too many blocks, or one index twice");
        }
        let Some(members) = Members::read(json) else {
            return self.fate.unusable("a block is no object");
        };
        self.fate.grow(json.len());
        let text = |name: &str| members.text(name).unwrap_or_default();
        match text("type").as_str() {
            "tool_use" => pieces.push(Piece::CallOpened(text("name"))),
            "text" if !text("text").is_empty() => pieces.push(Piece::Text(text("text"))),
            "thinking" | "redacted_thinking" => pieces.push(Piece::Thinking),
            _ => {}
        }
        self.blocks.push(Open {
            index,
            json: json.to_owned(),
            kind: text("type"),
            members,
            joined: Default::default(),
            citations: Vec::new(),
            later: Vec::new(),
            closed: false,
        });
    }

    fn delta(&mut self, at: usize, json: &str, pieces: &mut Vec<Piece>) {
        let Some(delta) = self.fate.read::<Members>(json) else {
            return;
        };
        let kind = delta.text("type").unwrap_or_default();
        let open = &mut self.blocks[at];
        if let Some(place) = JOINED.iter().position(|(name, ..)| *name == kind) {
            let (_, from, to) = JOINED[place];
            let Some(piece) = delta.get(from).and_then(said) else {
                return self.fate.unusable("a piece without its text");
            };
            match to {
                "text" if !piece.is_empty() => pieces.push(Piece::Text(piece.to_string())),
                "thinking" => pieces.push(Piece::Thinking),
                _ => {}
            }
            open.joined[place]
                .get_or_insert_with(|| open.members.text(to).unwrap_or_default())
                .push_str(&piece);
            return self.fate.grow(piece.len());
        }
        match kind.as_str() {
            "citations_delta" => open
                .citations
                .extend(delta.get("citation").map(str::to_owned)),
            "compaction_delta" => {
                for name in ["content", "encrypted_content"] {
                    open.later
                        .extend(delta.get(name).map(|json| (name, json.to_owned())));
                }
            }
            // What an unknown delta says nobody can tell.
            _ => return,
        }
        self.fate.grow(json.len());
    }

    fn close(&mut self, at: usize, pieces: &mut Vec<Piece>) {
        self.blocks[at].closed = true;
        if let Kind::Call(call) = self.blocks[at].block().kind {
            pieces.push(Piece::Call(call));
        }
    }

    fn stopped(&mut self, stopped: &Stopped<'_>) {
        if let Some(reason) = stopped.stop_reason.and_then(|reason| said(reason.get())) {
            let details = stopped.stop_details.map(RawValue::get);
            self.stop = Some(stop_of(&reason, details));
        }
    }
}

impl Open {
    /// What was joined for a member, else what it began with.
    fn text(&self, name: &str) -> String {
        let place = JOINED.iter().position(|(.., to)| *to == name);
        let joined = place.and_then(|place| self.joined[place].clone());
        joined
            .or_else(|| self.members.text(name))
            .unwrap_or_default()
    }

    /// The input of a call as JSON text.
    fn input(&self) -> String {
        let streamed = self.joined[1].as_deref().unwrap_or_default().trim();
        let begun = self.members.get("input").unwrap_or("{}");
        if streamed.is_empty() { begun } else { streamed }.to_owned()
    }

    fn raw(&self) -> String {
        let grown = self.joined.iter().any(Option::is_some);
        if !grown && self.citations.is_empty() && self.later.is_empty() {
            return self.json.clone();
        }
        let mut members = self.members.clone();
        for ((.., to), text) in JOINED.iter().zip(&self.joined) {
            match text {
                Some(_) if *to == "input" => members.set(to, object(&self.input())),
                Some(text) => members.set(to, quote(text)),
                None => {}
            }
        }
        if !self.citations.is_empty() {
            members.set("citations", format!("[{}]", self.citations.join(",")));
        }
        for (name, json) in &self.later {
            members.set(name, json.clone());
        }
        members.write()
    }

    fn block(&self) -> Block {
        let kind = match self.kind.as_str() {
            "text" => Kind::Text(self.text("text")),
            "tool_use" => Kind::Call(ToolCall {
                id: self.text("id"),
                name: self.text("name"),
                input: self.input(),
            }),
            "thinking" | "redacted_thinking" => Kind::Thinking,
            _ => Kind::Other,
        };
        Block {
            kind,
            raw: self.raw(),
        }
    }
}

impl Assemble for Making {
    fn event(&mut self, event: Event<'_>, pieces: &mut Vec<Piece>) {
        let Some((_, any)) = self.fate.event::<Any<'_>>(&event) else {
            return;
        };
        let kind = any
            .kind
            .and_then(|kind| said(kind.get()))
            .unwrap_or_default();
        let index = any.index.and_then(|index| index.get().parse().ok());
        match (&*kind, any.content_block, any.delta) {
            ("content_block_start", Some(block), _) => match index {
                Some(index) => self.begin(index, block.get(), pieces),
                None => self.fate.unusable("a block without index"),
            },
            ("content_block_delta", _, Some(delta)) => {
                if let Some(at) = self.open(index) {
                    self.delta(at, delta.get(), pieces);
                }
            }
            ("content_block_stop", ..) => {
                if let Some(at) = self.open(index) {
                    self.close(at, pieces);
                }
            }
            ("message_delta", _, Some(delta)) => {
                if let Some(stopped) = self.fate.read(delta.get()) {
                    self.stopped(&stopped);
                }
            }
            ("message_stop", ..) => self.fate.end(),
            ("error" | "", ..) => {
                if let Some(error) = any.error {
                    self.fate.reported(error.get());
                }
            }
            _ => {}
        }
    }

    fn body(&mut self, json: &[u8], pieces: &mut Vec<Piece>) {
        let body = serde_json::from_slice::<Body<'_>>(json);
        let (Ok(body), Ok(stopped)) = (body, serde_json::from_slice(json)) else {
            return self.fate.unusable("the body is no message");
        };
        for (index, block) in (0u32..).zip(&body.content) {
            self.begin(index, block.get(), pieces);
            if let Some(at) = self.at(index) {
                self.close(at, pieces);
            }
        }
        self.stopped(&stopped);
        self.fate.end();
    }

    fn is_whole(&self) -> bool {
        self.fate.is_sealed()
    }

    fn finish(mut self: Box<Self>) -> Result<Whole, Broken> {
        self.fate.settle()?;
        if !self.fate.is_whole() {
            return Err(Broken::CutOff);
        }
        let stop = self
            .stop
            .ok_or(Broken::Unusable("it does not say why it ended"))?;
        self.blocks.sort_by_key(|open| open.index);
        let mut open_call = false;
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for open in &self.blocks {
            let block = open.block();
            if let Kind::Call(call) = &block.kind {
                // A limit may leave a call whose block was closed all the same.
                let cut = !open.closed || is_cut(&stop, &call.input);
                if cut && matches!(stop, Stop::EndTurn | Stop::ToolUse | Stop::Pause) {
                    return Err(Broken::Unusable("a call without its end"));
                }
                open_call |= cut;
                if cut {
                    continue;
                }
            }
            if !block.kind.is_blank() {
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

fn stop_of(reason: &str, details: Option<&str>) -> Stop {
    match reason {
        "end_turn" | "stop_sequence" => Stop::EndTurn,
        "tool_use" => Stop::ToolUse,
        "max_tokens" => Stop::MaxTokens,
        "pause_turn" | "compaction" => Stop::Pause,
        "refusal" => {
            Stop::Refusal(details.and_then(|details| Members::read(details)?.text("category")))
        }
        "model_context_window_exceeded" => Stop::ContextWindow,
        other => Stop::Unknown(other.to_owned()),
    }
}
