//! An answer of Chat Completions, from the chunks of a stream or from one body.
//!
//! A stream ends with `[DONE]`. Servers that leave it out end after a finish reason; without one the
//! answer was cut, however cleanly the stream ended. A call has no end of its own: it is whole when
//! the message has a finish reason other than a limit. Under a limit a call is whole if its
//! arguments are.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::fate::{Fate, MAX_BLOCKS, is_cut};
use super::super::members::{Members, object, said};
use super::super::openai::{arguments, input};
use super::super::{Assemble, Broken, Piece, Whole, unmixed};
use super::grown::Grown;
use crate::agent::machine::Stop;
use crate::agent::talk::{Answer, Block, Kind, ToolCall};
use crate::agent::text::quote;
use crate::provider::wire::Wire;
use crate::sse::Event;

/// Members of a message that are not sent back: some servers refuse them.
const ONE_WAY: &[&str] = &["role", "annotations", "audio"];

/// A chunk of a stream, or a whole completion.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    choices: Option<Vec<Choice>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice {
    index: Option<u32>,
    delta: Option<Members>,
    message: Option<Members>,
    finish_reason: Option<String>,
}

#[derive(Debug)]
struct Open {
    index: Option<u32>,
    /// As it came, if it came whole.
    json: Option<String>,
    /// The element of `tool_calls`.
    members: Members,
    /// The member that holds name and input: `function`, or `custom` for free text.
    inner: &'static str,
    id: String,
    name: String,
    input: String,
}

/// An answer in the making.
#[derive(Debug)]
pub struct Making {
    model: String,
    /// Members of the message other than calls, in the order in which they came.
    members: Vec<(String, Grown)>,
    calls: Vec<Open>,
    finish: Option<String>,
    fate: Fate,
}

impl Making {
    pub fn new(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            members: Vec::new(),
            calls: Vec::new(),
            finish: None,
            fate: Fate::default(),
        }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, pieces: &mut Vec<Piece>) {
        let choices = chunk.choices.into_iter().flatten();
        // Nobody has asked for a second answer.
        for choice in choices.filter(|choice| choice.index.unwrap_or(0) == 0) {
            if let Some(message) = choice.message {
                self.message(&message, true, pieces);
            } else if let Some(delta) = choice.delta {
                self.message(&delta, false, pieces);
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finished(reason, pieces);
            }
        }
    }

    /// Takes a message, or a piece of it.
    fn message(&mut self, message: &Members, whole: bool, pieces: &mut Vec<Piece>) {
        for (name, json) in message.iter() {
            if json == "null" || ONE_WAY.contains(&name) {
                continue;
            }
            self.fate.grow(json.len());
            match name {
                "tool_calls" => {
                    let calls = self.fate.read::<Vec<Members>>(json).unwrap_or_default();
                    for call in calls {
                        self.call(call, whole, pieces);
                    }
                }
                "function_call" => self.function(json, pieces),
                name => self.member(name, json, whole, pieces),
            }
        }
    }

    fn member(&mut self, name: &str, json: &str, whole: bool, pieces: &mut Vec<Piece>) {
        if self.members.len() >= MAX_BLOCKS {
            return self.fate.unusable("too many members");
        }
        let shown = matches!(name, "content" | "refusal");
        let text = if shown {
            Grown::new(json, true).text()
        } else {
            String::new()
        };
        if !text.is_empty() {
            pieces.push(Piece::Text(text.clone()));
        } else if is_reasoning(name) {
            pieces.push(Piece::Thinking);
        }
        match self.members.iter_mut().find(|(known, _)| known == name) {
            Some((_, grown)) => grown.add(json),
            // Content in parts is one text to all that follows.
            None if shown && !whole => self.members.push((name.to_owned(), Grown::Text(text))),
            None => self
                .members
                .push((name.to_owned(), Grown::new(json, whole))),
        }
    }

    /// The one call of the old form, which is told in the new one.
    fn function(&mut self, json: &str, pieces: &mut Vec<Piece>) {
        let call = format!("{{\"index\":0,\"type\":\"function\",\"function\":{json}}}");
        if let Some(call) = self.fate.read(&call) {
            self.call(call, false, pieces);
        }
    }

    /// Takes a call, or a piece of one.
    fn call(&mut self, mut call: Members, whole: bool, pieces: &mut Vec<Piece>) {
        if self.finish.is_some() || self.calls.len() >= MAX_BLOCKS {
            return self.fate.unusable("too many calls, or one behind the end");
        }
        let index = call.get("index").and_then(|index| index.parse().ok());
        call.remove("index");
        let json = whole.then(|| call.write());
        let id = call.text("id").filter(|id| !id.is_empty());
        let inner = if call.get("custom").is_some() {
            "custom"
        } else {
            "function"
        };
        let function = call.get(inner).and_then(Members::read).unwrap_or_default();
        let name = function.text("name").filter(|name| !name.is_empty());
        let known = match whole {
            true => None,
            false => self.known(index, id.as_deref(), name.as_deref()),
        };
        let at = match known {
            Some(at) => {
                for (member, json) in call.iter().filter(|(member, _)| *member != inner) {
                    if json != "null" {
                        self.calls[at].members.set(member, json.to_owned());
                    }
                }
                at
            }
            None if id.is_none() && name.is_none() => {
                return self.fate.unusable("a piece of no call");
            }
            None => {
                self.calls.push(Open {
                    index,
                    json,
                    members: call,
                    inner,
                    id: String::new(),
                    name: String::new(),
                    input: String::new(),
                });
                self.calls.len() - 1
            }
        };
        let open = &mut self.calls[at];
        if let (true, Some(id)) = (open.id.is_empty(), id) {
            open.id = id;
        }
        if let (true, Some(name)) = (open.name.is_empty(), name) {
            pieces.push(Piece::CallOpened(name.clone()));
            open.name = name;
        }
        let input = function.get("arguments").or_else(|| function.get("input"));
        if let Some(input) = input.filter(|input| *input != "null") {
            open.input.push_str(&arguments(input));
        }
    }

    /// The call that a piece belongs to.
    fn known(&self, index: Option<u32>, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        let mut calls = self.calls.iter();
        let found = match (index, id) {
            (Some(_), _) => calls.rposition(|open| open.index == index),
            (None, Some(id)) => calls.rposition(|open| open.id == id),
            // Without both, a name begins another call.
            (None, None) if name.is_none() => self.calls.len().checked_sub(1),
            (None, None) => None,
        }?;
        // Some servers give all calls the same index.
        let open = &self.calls[found];
        let another = id.is_some_and(|id| !open.id.is_empty() && id != open.id) && name.is_some();
        (!another).then_some(found)
    }

    fn finished(&mut self, reason: String, pieces: &mut Vec<Piece>) {
        // Servers that repeat it mean the first.
        if self.finish.is_some() {
            return;
        }
        if matches!(reason.as_str(), "error" | "insufficient_system_resource") {
            return self.fate.broken(Broken::Reported {
                kind: reason,
                message: "the server gave the answer up".to_owned(),
            });
        }
        self.settle_calls();
        if matches!(reason.as_str(), "stop" | "tool_calls" | "function_call") {
            pieces.extend(self.calls.iter().map(|open| Piece::Call(open.call())));
        }
        self.finish = Some(reason);
    }

    /// Nothing more comes of the calls: puts them in order, and gives ids to those that have none.
    fn settle_calls(&mut self) {
        if self.calls.iter().all(|open| open.index.is_some()) {
            self.calls.sort_by_key(|open| open.index);
        }
        for (at, open) in self.calls.iter_mut().enumerate() {
            if open.id.is_empty() {
                open.id = format!("call_{at}");
                open.json = None;
            }
        }
    }

    fn error(&mut self, event: &Event<'_>, json: &str, chunk: &Chunk<'_>) {
        let named = event.name == Some(b"error".as_slice());
        let object = chunk.object.and_then(|object| said(object.get()));
        if let Some(error) = chunk.error {
            self.fate.reported(error.get());
        } else if named || object.as_deref() == Some("error") {
            self.fate.reported(json);
        }
    }
}

impl Open {
    fn call(&self) -> ToolCall {
        ToolCall {
            id: self.id.clone(),
            name: self.name.clone(),
            input: input(&self.input),
        }
    }

    /// The element of `tool_calls`. Arguments that are no object go back as one: servers that read
    /// them would refuse the conversation for good.
    fn raw(&self) -> String {
        let sound = object(&self.input) == self.input.trim();
        if let Some(json) = self.json.as_ref().filter(|_| sound) {
            return json.clone();
        }
        let mut members = self.members.clone();
        let mut inner = members
            .get(self.inner)
            .and_then(Members::read)
            .unwrap_or_default();
        members.set("id", quote(&self.id));
        if members.get("type").is_none() {
            members.set("type", quote(self.inner));
        }
        inner.set("name", quote(&self.name));
        if self.inner == "custom" {
            inner.set("input", quote(&self.input));
        } else {
            inner.set("arguments", quote(&object(&self.input)));
        }
        members.set(self.inner, inner.write());
        members.write()
    }
}

impl Assemble for Making {
    fn event(&mut self, event: Event<'_>, pieces: &mut Vec<Piece>) {
        if event.data.trim_ascii() == b"[DONE]" && !event.after_gap {
            return self.fate.end();
        }
        if let Some((json, chunk)) = self.fate.event::<Chunk<'_>>(&event) {
            self.error(&event, json, &chunk);
            self.chunk(chunk, pieces);
        }
    }

    fn body(&mut self, json: &[u8], pieces: &mut Vec<Piece>) {
        let chunk = serde_json::from_slice::<Chunk<'_>>(json);
        let Ok(chunk) = chunk else {
            return self.fate.unusable("the body is no completion");
        };
        if let Some(error) = chunk.error {
            self.fate.reported(error.get());
        }
        self.chunk(chunk, pieces);
        self.fate.end();
    }

    fn is_whole(&self) -> bool {
        self.fate.is_sealed()
    }

    fn finish(mut self: Box<Self>) -> Result<Whole, Broken> {
        self.fate.settle()?;
        let Some(reason) = &self.finish else {
            return Err(match self.fate.is_whole() {
                true => Broken::Unusable("it does not say why it ended"),
                false => Broken::CutOff,
            });
        };
        let refusal =
            |(name, grown): &(String, Grown)| name == "refusal" && !grown.text().trim().is_empty();
        let stop = match self.members.iter().any(refusal) {
            true => Stop::Refusal(None),
            false => stop_of(reason),
        };
        let mut blocks = Vec::new();
        for (name, grown) in &self.members {
            let kind = match name.as_str() {
                "content" => Kind::Text(grown.text()),
                name if is_reasoning(name) => Kind::Thinking,
                _ => Kind::Other,
            };
            if !kind.is_blank() {
                let raw = format!("{{{}:{}}}", quote(name), grown.write());
                blocks.push(Block { kind, raw });
            }
        }
        let mut open_call = false;
        for open in &self.calls {
            if is_cut(&stop, &open.input) {
                open_call = true;
                continue;
            }
            blocks.push(Block {
                kind: Kind::Call(open.call()),
                raw: open.raw(),
            });
        }
        unmixed(Whole {
            answer: Answer {
                wire: Wire::Chat,
                model: self.model,
                blocks,
            },
            stop,
            open_call,
        })
    }
}

fn is_reasoning(name: &str) -> bool {
    name.starts_with("reasoning") || name.starts_with("thinking")
}

/// The words of OpenAI, and those that other servers have for the same.
fn stop_of(reason: &str) -> Stop {
    match reason {
        "stop" => Stop::EndTurn,
        "tool_calls" | "function_call" => Stop::ToolUse,
        "length" => Stop::MaxTokens,
        "model_length" => Stop::ContextWindow,
        "content_filter" => Stop::Refusal(Some(reason.to_owned())),
        other => Stop::Unknown(other.to_owned()),
    }
}
