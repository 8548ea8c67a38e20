//! Answers of Chat Completions, and of the many servers that speak like it.
//!
//! Chunks have no event names. A stream ends with `[DONE]`. Servers that leave it out end after a
//! finish reason for every choice; a stream that has neither was cut, however cleanly it ended.
//!
//! A tool call has no end of its own: it is whole when its choice has a finish reason other than one
//! that cuts it off. Where that is in doubt, it is whole if its input is.
//!
//! Source: provider docs and SDK types, Nov 2026.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::shared::{
    Inputs, MAX_CALLS, UNNAMED_ERROR, complete, parse, readable, said, tier, update, weight, word,
};
use crate::provider::api_error::{WireError, error_of};
use crate::provider::dialect::Counting;
use crate::provider::lenient::{Count, Few, MAX_WORD_BYTES, Maybe, Text, Word, cut};
use crate::provider::openai::usage::{Meter, WireUsage};
use crate::provider::reader::{self, Limits, Progress as _};
use crate::provider::view::{Answer, AnsweredCall, Ttl};
use crate::sse::Event;

/// Most choices of one answer that are told apart.
const MAX_CHOICES: usize = 128;

/// A chunk of a stream, or a whole completion.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Maybe<Text<'a>>,
    #[serde(borrow)]
    object: Maybe<Text<'a>>,
    #[serde(borrow)]
    model: Maybe<Text<'a>>,
    #[serde(borrow)]
    service_tier: Maybe<Text<'a>>,
    #[serde(borrow)]
    choices: Option<Few<Choice<'a>, MAX_CHOICES>>,
    usage: Maybe<WireUsage>,
    x_groq: Maybe<Groq>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Groq {
    usage: Maybe<WireUsage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    index: Count,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    message: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Maybe<Text<'a>>,
    /// Where Moonshot puts it.
    usage: Maybe<WireUsage>,
}

/// A piece of a message, or all of it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    audio: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Few<ToolCall<'a>, MAX_CALLS>>,
    #[serde(borrow)]
    function_call: Option<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall<'a> {
    index: Count,
    id: Word,
    #[serde(borrow)]
    function: Option<Function<'a>>,
    #[serde(borrow)]
    custom: Option<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function<'a> {
    name: Word,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// A choice that was seen.
#[derive(Debug)]
struct Seen {
    index: u64,
    reason: Option<String>,
}

/// How a call is told apart from the others of its choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// By its index, where it has one.
    Tool(Option<u64>),
    /// The one call of the old form.
    Function,
}

/// A call whose choice has no finish reason yet.
#[derive(Debug)]
struct OpenCall {
    choice: u64,
    key: Key,
    /// Its place in [`Answer::calls`].
    at: usize,
    /// Its input is no JSON.
    free_text: bool,
    /// A piece of it may be missing.
    lost: bool,
}

/// An answer in the making.
#[derive(Debug)]
pub(in crate::provider) struct Progress {
    pub(in crate::provider) answer: Answer,
    meter: Meter,
    counting: Counting,
    inputs: Inputs,
    choices: Vec<Seen>,
    open: Vec<OpenCall>,
    /// Nothing was delivered after the last usage.
    usage_fresh: bool,
    /// Events were lost.
    gapped: bool,
}

impl reader::Progress for Progress {
    fn event(&mut self, event: Event<'_>) {
        if event.after_gap {
            self.gap();
        }
        let data = event.data.trim_ascii();
        if data.starts_with(b"[DONE]") {
            self.done();
            return;
        }
        let json = readable(data);
        let chunk = parse::<Chunk<'_>>(&json);
        if let Some(error) = error(event.name, &json, chunk.as_ref()) {
            self.answer.error = Some(error);
        }
        match chunk {
            Some(chunk) => {
                self.chunk(chunk, false);
            }
            None if self.answer.error.is_none() => self.warn("event_unreadable"),
            None => {}
        }
    }

    fn body(&mut self, json: &[u8]) -> bool {
        let json = readable(json);
        let Some(chunk) = parse::<Chunk<'_>>(&json) else {
            return false;
        };
        let known = chunk.choices.is_some() || chunk.usage.0.is_some();
        self.chunk(chunk, true);
        self.end_calls();
        self.answer.usage_complete = self.meter.has_output();
        known
    }

    fn settle(&mut self, ttl: Option<Ttl>) {
        if !self.answer.finished && self.all_finished() {
            self.done();
        }
        let counting = self.counting;
        if let Some(unclear) = self.meter.read_out(&mut self.answer, counting, ttl) {
            self.warn(unclear);
        }
    }

    fn count_by(&mut self, counting: Counting) {
        self.counting = counting;
    }

    fn answer(&mut self) -> &mut Answer {
        &mut self.answer
    }
}

impl Progress {
    pub(in crate::provider) fn new(limits: &Limits) -> Self {
        Self {
            answer: Answer::default(),
            meter: Meter::default(),
            counting: Counting::default(),
            inputs: Inputs::new(limits),
            choices: Vec::new(),
            open: Vec::new(),
            usage_fresh: false,
            gapped: false,
        }
    }

    /// Events were lost: calls that are open may lack a piece and are never complete.
    fn gap(&mut self) {
        self.warn("event_too_large");
        self.gapped = true;
        for call in &mut self.open {
            call.lost = true;
        }
    }

    /// The terminal event.
    fn done(&mut self) {
        self.end_calls();
        self.answer.finished = true;
        self.answer.usage_complete = self.usage_fresh;
    }

    /// Every choice that was seen has its finish reason.
    fn all_finished(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|choice| choice.reason.is_some())
    }

    fn chunk(&mut self, chunk: Chunk<'_>, whole: bool) {
        if self.answer.id.is_none() {
            update(&mut self.answer.id, &chunk.id);
        }
        update(&mut self.answer.metered.model, &chunk.model);
        if let Some(word) = word(&chunk.service_tier) {
            self.answer.metered.tier = tier(word);
        }
        let before = self.answer.delivered_bytes;
        let mut usages = [
            chunk.x_groq.0.and_then(|groq| groq.usage.0),
            None,
            chunk.usage.0,
        ];
        let choices = chunk.choices.unwrap_or(Few {
            items: Vec::new(),
            more: false,
        });
        if choices.more {
            self.warn("too_many_choices");
        }
        for (place, mut choice) in choices.items.into_iter().enumerate() {
            usages[1] = choice.usage.0.take().or(usages[1].take());
            self.choice(place as u64, choice, whole);
        }
        if self.answer.delivered_bytes > before {
            self.usage_fresh = false;
        }
        let told = usages.into_iter().flatten();
        let fresh = told.fold(false, |fresh, usage| self.meter.take(usage) | fresh);
        if fresh {
            self.usage_fresh = true;
            let _unclear_until_the_end = self.meter.read_out(&mut self.answer, self.counting, None);
        }
        self.answer.usage_complete =
            self.usage_fresh && (self.answer.finished || self.all_finished());
    }

    fn choice(&mut self, place: u64, choice: Choice<'_>, whole: bool) {
        let index = choice.index.0.unwrap_or(place);
        let Some(seen) = self.seen(index) else {
            self.warn("too_many_choices");
            return;
        };
        if let Some(delta) = choice.delta.or(choice.message) {
            self.delta(index, delta, whole);
        }
        if let Some(reason) = word(&choice.finish_reason) {
            let reason = cut(reason, MAX_WORD_BYTES);
            self.finish(index, &reason);
            self.choices[seen].reason = Some(reason);
            let first = self.choices.iter().find(|choice| choice.index == 0);
            let reason = first.and_then(|choice| choice.reason.as_ref());
            let any = || {
                self.choices
                    .iter()
                    .find_map(|choice| choice.reason.as_ref())
            };
            self.answer.stop_reason = reason.or_else(any).cloned();
        }
    }

    /// The place of a choice among those seen.
    fn seen(&mut self, index: u64) -> Option<usize> {
        let known = self.choices.iter().position(|choice| choice.index == index);
        if known.is_none() && self.choices.len() < MAX_CHOICES {
            self.choices.push(Seen {
                index,
                reason: None,
            });
            return Some(self.choices.len() - 1);
        }
        known
    }

    fn delta(&mut self, choice: u64, delta: Delta<'_>, whole: bool) {
        // Some servers give the same reasoning under both names.
        let reasoning = weight(delta.reasoning_content).max(weight(delta.reasoning));
        let bytes = weight(delta.content) + weight(delta.refusal) + weight(delta.audio) + reasoning;
        self.answer.delivered_bytes += bytes;
        self.answer.content_begun |= bytes > 0 || delta.audio.is_some();
        if let Some(calls) = delta.tool_calls {
            if calls.more {
                self.warn("too_many_calls");
            }
            for call in calls.items {
                let free_text = call.custom.is_some();
                let Some(function) = call.function.or(call.custom) else {
                    continue;
                };
                let key = Key::Tool(call.index.0);
                self.piece(choice, key, call.id, function, free_text, whole);
            }
        }
        if let Some(function) = delta.function_call {
            self.piece(choice, Key::Function, Word(None), function, false, whole);
        }
    }

    /// A piece of a call, or with `whole` all of it.
    fn piece(
        &mut self,
        choice: u64,
        key: Key,
        id: Word,
        function: Function<'_>,
        free_text: bool,
        whole: bool,
    ) {
        self.answer.content_begun = true;
        let input = function.arguments.or(function.input).map(said);
        let bytes = input.as_ref().map_or(0, |input| input.len() as u64);
        self.answer.delivered_bytes += bytes;
        let open = if whole {
            None
        } else {
            self.find(choice, key, &id, &function.name)
        };
        let at = match open {
            Some(open) if self.open[open].lost => return,
            Some(open) => self.open[open].at,
            // A piece that belongs to nothing.
            None if id.0.is_none() && function.name.0.is_none() => return,
            None if self.answer.calls.len() >= MAX_CALLS => {
                self.warn("too_many_calls");
                return;
            }
            None => {
                let at = self.answer.calls.len();
                self.answer.calls.push(AnsweredCall::default());
                self.open.push(OpenCall {
                    choice,
                    key,
                    at,
                    free_text,
                    lost: false,
                });
                at
            }
        };
        let call = &mut self.answer.calls[at];
        if let (true, Some(id)) = (call.id.is_empty(), id.0) {
            call.id = id;
        }
        if let (true, Some(name)) = (call.name.is_empty(), function.name.0) {
            call.name = name;
        }
        if let Some(input) = input {
            self.inputs.add(call, &input);
        }
    }

    /// The open call that a piece belongs to.
    fn find(&self, choice: u64, key: Key, id: &Word, name: &Word) -> Option<usize> {
        let found = self.open.iter().rposition(|open| {
            let known = &self.answer.calls[open.at].id;
            open.choice == choice
                && match (key, open.key) {
                    (Key::Function, Key::Function) => true,
                    // Without an index, the id tells; without both, a name begins another call.
                    (Key::Tool(None), Key::Tool(_)) => match (&id.0, &name.0) {
                        (Some(id), _) => id == known,
                        (None, name) => name.is_none(),
                    },
                    (one, other) => one == other,
                }
        })?;
        // Some servers give all calls the same index.
        let known = &self.answer.calls[self.open[found].at].id;
        let another =
            name.0.is_some() && id.0.as_ref().is_some_and(|id| id != known) && !known.is_empty();
        (!another).then_some(found)
    }

    /// A choice ends for this reason, and with it its calls.
    fn finish(&mut self, choice: u64, reason: &str) {
        let cut_off = !matches!(reason, "stop" | "tool_calls" | "function_call");
        let last = self.open.iter().rposition(|open| open.choice == choice);
        let mut at = 0;
        let gapped = self.gapped;
        self.open.retain(|open| {
            let doubtful = gapped || (cut_off && Some(at) == last);
            at += 1;
            if open.choice == choice {
                end(&mut self.answer.calls[open.at], open, doubtful);
            }
            open.choice != choice
        });
    }

    /// Nothing more comes for the calls whose choice has no finish reason.
    fn end_calls(&mut self) {
        for open in self.open.drain(..) {
            end(&mut self.answer.calls[open.at], &open, true);
        }
    }
}

/// Ends a call.
fn end(call: &mut AnsweredCall, open: &OpenCall, doubtful: bool) {
    let kept_whole = call.input.len() as u64 == call.input_bytes;
    let sound = || kept_whole && serde_json::from_slice::<IgnoredAny>(&call.input).is_ok();
    if !open.lost && (!doubtful || sound()) {
        complete(call, open.free_text);
    }
}

/// The error that an event carries: as a member, by the event's name, or as the object itself.
fn error(
    name: Option<&[u8]>,
    json: &str,
    chunk: Option<&Chunk<'_>>,
) -> Option<crate::provider::view::ApiError> {
    if let Some(error) = chunk.and_then(|chunk| chunk.error) {
        return Some(error_of(error, UNNAMED_ERROR));
    }
    let object = chunk.and_then(|chunk| word(&chunk.object));
    if name != Some(b"error") && object != Some(b"error") {
        return None;
    }
    Some(match parse::<WireError<'_>>(json) {
        Some(error) => error.into_error(UNNAMED_ERROR),
        None => crate::provider::view::ApiError {
            kind: UNNAMED_ERROR.into(),
            message: cut(
                json.as_bytes(),
                crate::provider::api_error::MAX_MESSAGE_BYTES,
            ),
        },
    })
}

#[cfg(test)]
mod tests;
