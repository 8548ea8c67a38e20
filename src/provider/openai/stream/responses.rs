//! Answers of Responses.
//!
//! What an event is stands in its data (`type`), which is what clients go by; the name of the event
//! says the same. The terminal events carry the whole response once more, so what earlier events
//! did not tell, or what of them was lost, is taken from there.
//!
//! Only calls that the client has to run count as calls: those of hosted tools and of MCP servers
//! run at the provider. Source: provider docs and SDK types, Nov 2026.

use serde_json::value::RawValue;

use super::items::Items;
use super::shared::{
    Inputs, MAX_CALLS, UNNAMED_ERROR, complete, parse, readable, said, tier, update, weight, word,
};
use super::wire::{Delta, Done, ErrorEvent, ItemEvent, Kind, ResponseEvent, WireResponse};
use crate::provider::api_error::{MAX_MESSAGE_BYTES, WireError, error_of};
use crate::provider::dialect::Counting;
use crate::provider::lenient::{Word, cut};
use crate::provider::openai::usage::Meter;
use crate::provider::reader::{self, Limits, Progress as _};
use crate::provider::view::{Answer, AnsweredCall, ApiError, DIAGNOSIS_NONE, Ttl};
use crate::sse::Event;

/// A call whose item is not done yet.
#[derive(Debug)]
struct OpenCall {
    index: Option<u64>,
    item: Option<String>,
    /// Its place in [`Answer::calls`].
    at: usize,
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
    open: Vec<OpenCall>,
    /// Web searches among the items.
    searches: u64,
    /// The provider has counted them itself.
    searches_told: bool,
}

impl reader::Progress for Progress {
    fn event(&mut self, event: Event<'_>) {
        if event.after_gap {
            self.gap();
        }
        let Some(kind) = Kind::of(event.name, event.data) else {
            return;
        };
        let json = readable(event.data);
        let read = match kind {
            Kind::Delta => parse(&json).map(|delta: Delta<'_>| self.delivered(weight(delta.delta))),
            Kind::InputDelta => parse(&json).map(|delta| self.input_delta(&delta)),
            Kind::InputDone => parse(&json).map(|done| self.input_done(&done)),
            Kind::ItemAdded => parse(&json).map(|event| self.item_added(event)),
            Kind::ItemDone => parse(&json).map(|event| self.item_done(event)),
            Kind::Begun => parse::<ResponseEvent<'_>>(&json).map(|mut event| {
                self.response(&mut event.response);
            }),
            Kind::Ended(word) => parse::<ResponseEvent<'_>>(&json).map(|event| {
                self.ended(event.response, word);
            }),
            Kind::Error => {
                self.answer.error = Some(stream_error(&json));
                Some(())
            }
        };
        if read.is_none() {
            self.warn("event_unreadable");
            // It was the end all the same.
            self.answer.finished |= matches!(kind, Kind::Ended(_));
        }
    }

    fn body(&mut self, json: &[u8]) -> bool {
        let json = readable(json);
        let Some(mut response) = parse::<WireResponse<'_>>(&json) else {
            return false;
        };
        let known = response.output.is_some() || response.status.0.is_some();
        self.response(&mut response);
        self.items(response.output, true);
        self.stopped(&response, None);
        self.answer.usage_complete = self.meter.has_output();
        known
    }

    fn settle(&mut self, ttl: Option<Ttl>) {
        if self.searches > 0 && !self.searches_told {
            self.meter.searched(self.searches);
        }
        let counting = self.counting;
        if let Some(unclear) = self.meter.read_out(&mut self.answer, counting, ttl) {
            self.warn(unclear);
        }
    }

    fn lost_end(&mut self) {
        // The terminal event is the largest one.
        self.answer.finished = true;
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
            open: Vec::new(),
            searches: 0,
            searches_told: false,
        }
    }

    /// Events were lost: of calls that are open a piece may be missing, until they are told whole.
    fn gap(&mut self) {
        self.warn("event_too_large");
        for call in &mut self.open {
            call.lost = true;
        }
    }

    fn delivered(&mut self, bytes: u64) {
        self.answer.content_begun = true;
        self.answer.delivered_bytes += bytes;
    }

    /// Takes a response, all but its output.
    fn response(&mut self, response: &mut WireResponse<'_>) {
        if self.answer.id.is_none() {
            update(&mut self.answer.id, &response.id);
        }
        update(&mut self.answer.metered.model, &response.model);
        if let Some(word) = word(&response.service_tier) {
            self.answer.metered.tier = tier(word);
        }
        if let Some(said) = &response.prompt_cache_diagnostics.0 {
            self.answer.native_diagnosis = match said.kind.as_deref() {
                Some("cache_hit") => Some(DIAGNOSIS_NONE.into()),
                Some("cache_miss") => said.reason.0.clone().or_else(|| said.kind.0.clone()),
                _ => said.kind.0.clone(),
            };
        }
        if let Some(usage) = response.usage.0.take() {
            self.meter.take(usage);
        }
        let told = response.tool_usage.0.as_ref();
        let told = told.and_then(|tools| tools.web_search.0.as_ref()?.num_requests.0);
        if let Some(requests) = told {
            self.meter.searched(requests);
            self.searches_told = true;
        }
        let _unclear_until_the_end = self.meter.read_out(&mut self.answer, self.counting, None);
    }

    /// The terminal event. `end` is what it says by its type.
    fn ended(&mut self, mut response: WireResponse<'_>, end: &'static str) {
        self.response(&mut response);
        self.items(response.output, false);
        self.stopped(&response, Some(end));
        self.answer.usage_complete = self.meter.has_output();
        // One that failed is a whole answer if it says what it used.
        self.answer.finished = self.answer.error.is_none() || self.answer.usage_complete;
    }

    fn stopped(&mut self, response: &WireResponse<'_>, end: Option<&'static str>) {
        let status = response.status.as_deref().or(end);
        if status == Some("failed") || end == Some("failed") {
            let error = response.error.map(|error| error_of(error, UNNAMED_ERROR));
            let error = error.unwrap_or_else(|| ApiError {
                kind: UNNAMED_ERROR.into(),
                message: String::new(),
            });
            self.answer.error.get_or_insert(error);
            return;
        }
        let details = response.incomplete_details.0.as_ref();
        let reason = details.and_then(|details| details.reason.as_deref());
        let reason = reason.filter(|_| status == Some("incomplete"));
        self.answer.stop_reason = reason.or(status).map(Into::into);
    }

    /// Takes the output of a response, of a body as a `whole`, else what the stream did not tell.
    fn items(&mut self, output: Option<&RawValue>, whole: bool) {
        let Some(output) = output else { return };
        let mut searches = 0;
        let mut calls = 0;
        let read = Items::read(output, |item| {
            searches += u64::from(item.searched());
            if whole {
                self.delivered(weight(item.content) + weight(item.summary));
            }
            let Some(call) = item.call() else { return };
            calls += 1;
            if calls > MAX_CALLS {
                self.warn("too_many_calls");
                return;
            }
            let known = self
                .answer
                .calls
                .iter()
                .position(|known| known.id == call.id);
            match known.filter(|_| !whole) {
                Some(at) if self.answer.calls[at].complete => {}
                Some(at) => {
                    self.open.retain(|open| open.at != at);
                    self.tell(at, call.input, item.is_done(), call.free_text);
                }
                None => {
                    if let Some(at) = self.push(call.id, call.name) {
                        self.tell(at, call.input, item.is_done(), call.free_text);
                        self.delivered(self.answer.calls[at].input_bytes);
                    }
                }
            }
        });
        if read.is_err() {
            self.warn("content_unreadable");
        }
        self.searches = self.searches.max(searches);
    }

    /// A further call; `None` if there are too many.
    fn push(&mut self, id: String, name: String) -> Option<usize> {
        if self.answer.calls.len() >= MAX_CALLS {
            self.warn("too_many_calls");
            return None;
        }
        self.answer.calls.push(AnsweredCall {
            id,
            name,
            ..AnsweredCall::default()
        });
        Some(self.answer.calls.len() - 1)
    }

    /// Tells the whole input of a call.
    fn tell(&mut self, at: usize, input: Option<&RawValue>, done: bool, free_text: bool) {
        let call = &mut self.answer.calls[at];
        if let Some(input) = input {
            self.inputs.set(call, &said(input));
        }
        if done {
            complete(call, free_text);
        }
    }

    fn item_added(&mut self, event: ItemEvent<'_>) {
        self.answer.content_begun = true;
        let Some(item) = event.item else { return };
        let Some(call) = item.call() else { return };
        let index = event.output_index.0;
        self.open
            .retain(|open| index.is_none() || open.index != index);
        let (input, free_text) = (call.input, call.free_text);
        let Some(at) = self.push(call.id, call.name) else {
            return;
        };
        // The input of calls whose pieces follow is empty here.
        self.tell(at, input, false, free_text);
        let bytes = self.answer.calls[at].input_bytes;
        self.answer.delivered_bytes += bytes;
        self.open.push(OpenCall {
            index,
            item: item.id.0,
            at,
            lost: false,
        });
    }

    fn open(&self, index: Option<u64>, item: Option<&str>) -> Option<usize> {
        self.open.iter().position(|open| match index {
            Some(_) => open.index == index,
            None => open.item.is_some() && open.item.as_deref() == item,
        })
    }

    fn input_delta(&mut self, delta: &Delta<'_>) {
        let Some(piece) = delta.delta.map(said) else {
            return;
        };
        self.delivered(piece.len() as u64);
        let open = self.open(delta.output_index.0, delta.item_id.as_deref());
        if let Some(open) = open.map(|at| &self.open[at]).filter(|open| !open.lost) {
            self.inputs.add(&mut self.answer.calls[open.at], &piece);
        }
    }

    fn input_done(&mut self, done: &Done<'_>) {
        let open = self.open(done.output_index.0, done.item_id.as_deref());
        let (Some(open), Some(input)) = (open, done.arguments.or(done.input)) else {
            return;
        };
        let open = &mut self.open[open];
        open.lost = false;
        let call = &mut self.answer.calls[open.at];
        let before = call.input_bytes;
        self.inputs.set(call, &said(input));
        if before == 0 {
            self.answer.delivered_bytes += call.input_bytes;
        }
    }

    fn item_done(&mut self, event: ItemEvent<'_>) {
        self.answer.content_begun = true;
        let Some(item) = event.item else { return };
        self.searches += u64::from(item.searched());
        let Some(call) = item.call() else { return };
        let open = self.open(event.output_index.0, item.id.as_deref());
        let (at, lost, before) = match open {
            Some(open) => {
                let open = self.open.swap_remove(open);
                let known = &mut self.answer.calls[open.at];
                if known.id.is_empty() {
                    known.id = call.id;
                }
                if known.name.is_empty() {
                    known.name = call.name;
                }
                (open.at, open.lost, known.input_bytes)
            }
            None => match self.push(call.id, call.name) {
                Some(at) => (at, false, 0),
                None => return,
            },
        };
        let done = item.is_done() && (call.input.is_some() || !lost);
        self.tell(at, call.input, done, call.free_text);
        if before == 0 {
            let bytes = self.answer.calls[at].input_bytes;
            self.answer.delivered_bytes += bytes;
        }
    }
}

/// The error of an event of that type: as a member, or the event itself.
fn stream_error(json: &str) -> ApiError {
    let event = parse::<ErrorEvent<'_>>(json).unwrap_or_default();
    match (event.error, event.code, event.message) {
        (Some(error), ..) => error_of(error, UNNAMED_ERROR),
        (None, None, None) => ApiError {
            kind: UNNAMED_ERROR.into(),
            message: cut(json.as_bytes(), MAX_MESSAGE_BYTES),
        },
        (None, code, message) => WireError {
            kind: Word::default(),
            code,
            message,
        }
        .into_error(UNNAMED_ERROR),
    }
}

#[cfg(test)]
mod tests;
