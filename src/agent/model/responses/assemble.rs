//! An answer of Responses, from the events of a stream or from one body.
//!
//! An item is taken as it stands in the event that ends it (`response.output_item.done`), byte for
//! byte; the pieces before it are for the reader only. The terminal event carries all items once
//! more: those that no event has told are taken from there.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::fate::{Fate, MAX_BLOCKS, is_cut};
use super::super::members::{Members, said};
use super::super::openai::{arguments, input};
use super::super::{Assemble, Broken, Piece, Whole, unmixed};
use crate::agent::machine::Stop;
use crate::agent::talk::{Answer, Block, Kind, ToolCall};
use crate::agent::text::quote;
use crate::provider::wire::Wire;
use crate::sse::Event;

/// A whole item.
#[derive(Debug)]
struct Item {
    index: u32,
    block: Block,
    /// It was cut in the middle.
    cut: bool,
}

/// An answer in the making.
#[derive(Debug)]
pub struct Making {
    model: String,
    items: Vec<Item>,
    /// Calls that have begun, and are not at their end.
    open: HashSet<u32>,
    /// Items whose text has been shown.
    shown: HashSet<u32>,
    refused: bool,
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
    output_index: Option<&'a RawValue>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Response<'a> {
    status: Option<String>,
    #[serde(borrow)]
    output: Option<Vec<&'a RawValue>>,
    incomplete_details: Option<Incomplete>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Incomplete {
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
}

impl Making {
    pub fn new(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            items: Vec::new(),
            open: HashSet::new(),
            shown: HashSet::new(),
            refused: false,
            stop: None,
            fate: Fate::default(),
        }
    }

    fn added(&mut self, index: u32, json: &str, pieces: &mut Vec<Piece>) {
        let Some(item) = self.fate.read::<Members>(json) else {
            return;
        };
        match item.text("type").as_deref() {
            Some("function_call") => {
                if self.open.len() < MAX_BLOCKS {
                    self.open.insert(index);
                }
                pieces.push(Piece::CallOpened(item.text("name").unwrap_or_default()));
            }
            Some("reasoning") => pieces.push(Piece::Thinking),
            _ => {}
        }
    }

    /// Takes a whole item.
    fn done(&mut self, index: u32, json: &str, pieces: &mut Vec<Piece>) {
        if self.items.len() >= MAX_BLOCKS || self.items.iter().any(|item| item.index == index) {
            return self.fate.unusable("too many items, or one index twice");
        }
        self.fate.grow(json.len());
        let Some(mut item) = self.fate.read::<Members>(json) else {
            return;
        };
        let kind = item.text("type");
        let is_call = kind.as_deref() == Some("function_call");
        let cut = is_call && item.text("status").as_deref() == Some("incomplete");
        if cut {
            self.open.insert(index);
        } else {
            self.open.remove(&index);
        }
        let mut raw = json.to_owned();
        let kind = match kind.as_deref() {
            Some("message") => {
                let text = self.message(&item);
                if !text.is_empty() && !self.shown.contains(&index) {
                    pieces.push(Piece::Text(text.clone()));
                }
                Kind::Text(text)
            }
            Some("function_call") => {
                if item.get("call_id").is_none() {
                    // Some servers know but one id.
                    let id = item.text("id").unwrap_or_else(|| format!("call_{index}"));
                    item.set("call_id", quote(&id));
                    raw = item.write();
                }
                let call = call_of(&item);
                if !cut {
                    pieces.push(Piece::Call(call.clone()));
                }
                Kind::Call(call)
            }
            Some("reasoning") => Kind::Thinking,
            _ => Kind::Other,
        };
        self.items.push(Item {
            index,
            block: Block { kind, raw },
            cut,
        });
    }

    /// The text of a message.
    fn message(&mut self, item: &Members) -> String {
        let json = item.get("content").unwrap_or("[]");
        if let Some(text) = said(json) {
            return text.into_owned();
        }
        let parts = self.fate.read::<Vec<Part>>(json).unwrap_or_default();
        self.refused |= parts.iter().any(|part| part.kind == "refusal");
        let texts = parts
            .into_iter()
            .filter_map(|part| part.text.or(part.refusal));
        texts.collect()
    }

    /// The response as it ended; `end` is what the type of the event says.
    fn ended(&mut self, json: &str, end: Option<&str>, pieces: &mut Vec<Piece>) {
        let Some(response) = self.fate.read::<Response<'_>>(json) else {
            return;
        };
        let Some(status) = end.map(str::to_owned).or(response.status) else {
            return self.fate.unusable("the body is no response");
        };
        for (index, item) in (0u32..).zip(response.output.into_iter().flatten()) {
            if !self.items.iter().any(|known| known.index == index) {
                self.done(index, item.get(), pieces);
            }
        }
        let reason = response
            .incomplete_details
            .and_then(|details| details.reason);
        match status.as_str() {
            "completed" => {
                if !self.open.is_empty() {
                    return self.fate.unusable("a call without its end");
                }
                let called = |item: &Item| matches!(item.block.kind, Kind::Call(_));
                self.stop = Some(match self.items.iter().any(called) {
                    true => Stop::ToolUse,
                    false => Stop::EndTurn,
                });
            }
            "incomplete" => self.stop = Some(stop_of(reason.as_deref().unwrap_or("incomplete"))),
            other => {
                let error = response
                    .error
                    .map(RawValue::get)
                    .filter(|error| *error != "null");
                return match error {
                    Some(error) => self.fate.reported(error),
                    None => self.fate.broken(Broken::Reported {
                        kind: other.to_owned(),
                        message: "the provider gave the answer up".to_owned(),
                    }),
                };
            }
        }
        self.fate.end();
    }

    fn delta(&mut self, kind: &str, index: Option<u32>, delta: &str, pieces: &mut Vec<Piece>) {
        if kind.starts_with("response.reasoning") {
            pieces.push(Piece::Thinking);
        } else if matches!(
            kind,
            "response.output_text.delta" | "response.refusal.delta"
        ) && let Some(text) = said(delta).filter(|text| !text.is_empty())
        {
            if self.shown.len() < MAX_BLOCKS {
                self.shown.extend(index);
            }
            pieces.push(Piece::Text(text.into_owned()));
        }
    }
}

/// The call of an item.
fn call_of(item: &Members) -> ToolCall {
    let text = |name: &str| item.text(name).unwrap_or_default();
    ToolCall {
        id: text("call_id"),
        name: text("name"),
        input: input(&arguments(item.get("arguments").unwrap_or_default())),
    }
}

impl Assemble for Making {
    fn event(&mut self, event: Event<'_>, pieces: &mut Vec<Piece>) {
        let Some((json, any)) = self.fate.event::<Any<'_>>(&event) else {
            return;
        };
        let name = event.name.map(String::from_utf8_lossy);
        let kind = any.kind.and_then(|kind| said(kind.get()));
        let kind = kind.or(name).unwrap_or_default();
        let index = any.output_index.and_then(|index| index.get().parse().ok());
        let next = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        let response = any.response.map_or("{}", RawValue::get);
        match (&*kind, any.item, any.delta) {
            ("response.output_item.added", Some(item), _) => {
                self.added(index.unwrap_or(next), item.get(), pieces);
            }
            ("response.output_item.done", Some(item), _) => {
                self.done(index.unwrap_or(next), item.get(), pieces);
            }
            ("response.completed" | "response.done", ..) => {
                self.ended(response, Some("completed"), pieces);
            }
            ("response.incomplete", ..) => self.ended(response, Some("incomplete"), pieces),
            ("response.failed", ..) => self.ended(response, Some("failed"), pieces),
            ("response.cancelled", ..) => self.ended(response, Some("cancelled"), pieces),
            ("error", ..) => {
                self.fate.reported(any.error.map_or(json, RawValue::get));
            }
            ("", ..) => {
                if let Some(error) = any.error {
                    self.fate.reported(error.get());
                }
            }
            (kind, _, Some(delta)) => self.delta(kind, index, delta.get(), pieces),
            _ => {}
        }
    }

    fn body(&mut self, json: &[u8], pieces: &mut Vec<Piece>) {
        match std::str::from_utf8(json) {
            Ok(json) => self.ended(json, None, pieces),
            Err(_) => self.fate.unusable("the body is no text"),
        }
    }

    fn is_whole(&self) -> bool {
        self.fate.is_sealed()
    }

    fn finish(mut self: Box<Self>) -> Result<Whole, Broken> {
        self.fate.settle()?;
        let stop = self.stop.ok_or(Broken::CutOff)?;
        self.items.sort_by_key(|item| item.index);
        let mut open_call = !self.open.is_empty();
        let mut blocks: Vec<Block> = Vec::with_capacity(self.items.len());
        for Item { mut block, cut, .. } in self.items {
            match &block.kind {
                Kind::Call(call) if cut || is_cut(&stop, &call.input) => {
                    open_call = true;
                    continue;
                }
                kind if kind.is_blank() => {
                    // Reasoning must not lose the item that follows it.
                    let needed = blocks.last().is_some_and(|b| b.kind == Kind::Thinking);
                    if !needed {
                        continue;
                    }
                    block.kind = Kind::Other;
                }
                _ => {}
            }
            blocks.push(block);
        }
        // Reasoning that nothing follows is refused.
        while blocks
            .last()
            .is_some_and(|block| block.kind == Kind::Thinking)
        {
            blocks.pop();
        }
        unmixed(Whole {
            answer: Answer {
                wire: Wire::Responses,
                model: self.model,
                blocks,
            },
            stop: if self.refused {
                Stop::Refusal(None)
            } else {
                stop
            },
            open_call,
        })
    }
}

/// The reasons of an answer that is not complete. The last two end it where the model would have
/// gone on: it goes back as it is.
fn stop_of(reason: &str) -> Stop {
    match reason {
        "max_output_tokens" => Stop::MaxTokens,
        "content_filter" => Stop::Refusal(Some(reason.to_owned())),
        "max_messages" | "steered" => Stop::Pause,
        other => Stop::Unknown(other.to_owned()),
    }
}
