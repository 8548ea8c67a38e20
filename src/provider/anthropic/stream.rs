//! What an answer says, put together event by event.
//!
//! The hot event is `content_block_delta`: one typed pass over it, nothing kept but lengths and the
//! bounded input of tool calls. Source of the events: provider docs and SDK types, Nov 2026.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::usage::{Meter, WireUsage};
use super::wire::{
    BlockDelta, BlockStart, BlockStop, ErrorEvent, Kind, MessageDelta, MessageStart, Nullable,
    WireBlock, WireDiagnostics, WireMessage, WireStopDetails, parse,
};
use crate::provider::api_error::MAX_MESSAGE_BYTES;
use crate::provider::lenient::{Maybe, Word, cut};
use crate::provider::reader::{self, Limits, Progress as _};
use crate::provider::view::{
    Answer, AnsweredCall, ApiError, DIAGNOSIS_NONE, DIAGNOSIS_PENDING, Ttl,
};
use crate::sse::Event;

/// Most tool calls of one answer that are kept.
pub(super) const MAX_CALLS: usize = 256;
/// Error type of an error event that does not name one.
const UNNAMED_ERROR: &str = "unknown_error";

/// A tool call whose block is not closed yet.
#[derive(Debug)]
struct OpenCall {
    index: Option<u64>,
    /// Its place in [`Answer::calls`].
    at: usize,
    /// The input that came with the start of the block: it counts where no piece follows.
    initial: Vec<u8>,
    initial_bytes: u64,
}

/// An answer in the making.
#[derive(Debug)]
pub(in crate::provider) struct Progress {
    pub(in crate::provider) answer: Answer,
    meter: Meter,
    opening_model: Option<String>,
    ttl: Option<Ttl>,
    open: Vec<OpenCall>,
    /// Bytes of tool input that may still be kept in this answer.
    inputs_left: usize,
    input_bytes_each: usize,
}

impl reader::Progress for Progress {
    fn event(&mut self, event: Event<'_>) {
        if event.after_gap {
            self.gap();
        }
        let kind = match event.name.and_then(Kind::of) {
            Some(kind) => kind,
            None => {
                let Some(kind) = Kind::of_data(event.data) else {
                    return;
                };
                if event.name.is_none() {
                    self.warn("no_event_names");
                }
                kind
            }
        };
        let read = match kind {
            Kind::BlockDelta => parse(event.data).map(|delta| self.block_delta(delta)),
            Kind::MessageStart => {
                parse::<MessageStart<'_>>(event.data).map(|start| self.message(start.message))
            }
            Kind::BlockStart => parse(event.data).map(|start| self.block_start(start)),
            Kind::BlockStop => {
                parse(event.data).map(|stop: BlockStop| self.block_stop(stop.index.0))
            }
            Kind::MessageDelta => parse(event.data).map(|delta| self.message_delta(delta)),
            Kind::MessageStop => {
                self.answer.finished = true;
                Some(())
            }
            Kind::Ping => Some(()),
            Kind::Error => {
                self.answer.error = Some(match parse::<ErrorEvent<'_>>(event.data) {
                    Some(event) => event.error.into_error(UNNAMED_ERROR),
                    None => ApiError {
                        kind: UNNAMED_ERROR.into(),
                        message: cut(event.data, MAX_MESSAGE_BYTES),
                    },
                });
                Some(())
            }
        };
        if read.is_none() {
            self.warn("event_unreadable");
        }
    }

    fn body(&mut self, json: &[u8]) -> bool {
        let Some(message) = parse::<WireMessage<'_>>(json) else {
            return false;
        };
        let content = message.content;
        self.message(message);
        self.usage_is_final();
        if content.is_some_and(|content| self.content(content).is_err()) {
            self.warn("content_unreadable");
        }
        true
    }

    fn settle(&mut self, ttl: Option<Ttl>) {
        self.ttl = ttl;
        if let Some(unclear) = self.read_meter() {
            self.warn(unclear);
        }
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
            opening_model: None,
            ttl: None,
            open: Vec::new(),
            inputs_left: limits.tool_inputs_bytes,
            input_bytes_each: limits.tool_input_bytes,
        }
    }

    /// Events were lost: calls that are open may lack a piece and are never complete.
    pub(super) fn gap(&mut self) {
        self.warn("event_too_large");
        self.open.clear();
    }

    /// Takes a `Message`, all but its content.
    pub(super) fn message(&mut self, message: WireMessage<'_>) {
        self.answer.id = message.id.0.or(self.answer.id.take());
        if let Some(model) = message.model.0 {
            self.opening_model = Some(model.clone());
            self.answer.metered.model = Some(model);
        }
        self.stopped(message.stop_reason, message.stop_details);
        if let Some(said) = diagnosis(message.diagnostics) {
            self.answer.native_diagnosis = Some(said);
        }
        self.usage(message.usage.0);
    }

    /// Takes the content of a whole `Message`; fails where it is not an array of objects.
    pub(super) fn content(&mut self, content: &RawValue) -> Result<(), serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(content.get());
        ContentSeed(self).deserialize(&mut deserializer)
    }

    /// Marks the usage read so far as the final one, if there is any.
    pub(super) fn usage_is_final(&mut self) {
        self.answer.usage_complete = self.answer.metered.usage.output.is_some();
    }

    fn usage(&mut self, usage: Option<WireUsage>) {
        if let Some(usage) = usage {
            self.meter.take(usage);
            let _unclear_until_the_end = self.read_meter();
        }
    }

    fn read_meter(&mut self) -> Option<&'static str> {
        let opening = self.opening_model.as_deref();
        self.meter
            .read_out(&mut self.answer.metered, opening, self.ttl)
    }

    fn stopped(&mut self, reason: Word, details: Maybe<WireStopDetails>) {
        self.answer.stop_reason = reason.0.or(self.answer.stop_reason.take());
        let category = details.0.and_then(|details| details.category.0);
        self.answer.refusal_category = category.or(self.answer.refusal_category.take());
    }

    fn block_start(&mut self, start: BlockStart<'_>) {
        let index = start.index.0;
        self.open.retain(|call| call.index != index);
        let Some(at) = self.block(&start.content_block) else {
            return;
        };
        let (initial, initial_bytes) = match start.content_block.input.map(RawValue::get) {
            // What a stream says before the pieces; the call itself may have no arguments.
            None | Some("{}" | "null") => (b"{}".to_vec(), 2),
            Some(input) => {
                self.answer.delivered_bytes += input.len() as u64;
                let kept = self.keep(0, input.len());
                (input.as_bytes()[..kept].to_vec(), input.len() as u64)
            }
        };
        self.open.push(OpenCall {
            index,
            at,
            initial,
            initial_bytes,
        });
    }

    /// What a block says at its start. Returns the place of the call when it is one.
    fn block(&mut self, block: &WireBlock<'_>) -> Option<usize> {
        self.answer.content_begun = true;
        for len in [block.text.0, block.thinking.0].into_iter().flatten() {
            self.answer.delivered_bytes += len.0;
        }
        match block.kind.as_deref()? {
            // From here on another model speaks. Source: provider SDK, Nov 2026.
            "fallback" => {
                let served = block.to.0.as_ref().and_then(|to| to.model.as_deref());
                if let Some(model) = served {
                    self.answer.metered.model = Some(model.to_owned());
                }
                None
            }
            // Only what the client has to run; `server_tool_use` and the like run at the provider.
            "tool_use" if self.answer.calls.len() >= MAX_CALLS => {
                self.warn("too_many_calls");
                None
            }
            "tool_use" => {
                self.answer.calls.push(AnsweredCall {
                    id: block.id.0.clone().unwrap_or_default(),
                    name: block.name.0.clone().unwrap_or_default(),
                    ..AnsweredCall::default()
                });
                Some(self.answer.calls.len() - 1)
            }
            _ => None,
        }
    }

    fn block_delta(&mut self, event: BlockDelta<'_>) {
        self.answer.content_begun = true;
        let delta = event.delta;
        for len in [delta.text, delta.thinking].into_iter().flatten() {
            self.answer.delivered_bytes += len.0;
        }
        let Some(piece) = delta.partial_json else {
            return;
        };
        self.answer.delivered_bytes += piece.0.len() as u64;
        let at = self
            .open
            .iter()
            .find(|call| call.index == event.index.0)
            .map(|call| call.at);
        let Some(at) = at else {
            return;
        };
        let kept = self.keep(self.answer.calls[at].input.len(), piece.0.len());
        let call = &mut self.answer.calls[at];
        call.input_bytes += piece.0.len() as u64;
        call.input.extend_from_slice(&piece.0[..kept]);
    }

    /// How many of `wanted` further bytes of a call's input may be kept. Once it is fewer it is none
    /// for good, so what is kept is a beginning.
    fn keep(&mut self, already: usize, wanted: usize) -> usize {
        let kept = self
            .input_bytes_each
            .saturating_sub(already)
            .min(self.inputs_left)
            .min(wanted);
        self.inputs_left -= kept;
        kept
    }

    fn block_stop(&mut self, index: Option<u64>) {
        let Some(at) = self.open.iter().position(|call| call.index == index) else {
            return;
        };
        let open = self.open.swap_remove(at);
        let call = &mut self.answer.calls[open.at];
        if call.input_bytes == 0 {
            call.input = open.initial;
            call.input_bytes = open.initial_bytes;
        }
        call.complete = true;
    }

    fn message_delta(&mut self, event: MessageDelta) {
        if let Some(delta) = event.delta.0 {
            self.stopped(delta.stop_reason, delta.stop_details);
        }
        if event
            .usage
            .0
            .as_ref()
            .is_some_and(|usage| usage.output_tokens.0.is_some())
        {
            self.answer.usage_complete = true;
        }
        self.usage(event.usage.0);
    }
}

/// What a `Message` says about its cache miss; `None` where it is silent or not understood.
fn diagnosis(said: Maybe<Nullable<WireDiagnostics>>) -> Option<String> {
    let Nullable::Given(said) = said.0? else {
        return Some(DIAGNOSIS_NONE.into());
    };
    match said.cache_miss_reason.0? {
        Nullable::Null => Some(DIAGNOSIS_PENDING.into()),
        Nullable::Given(reason) => reason.kind.0,
    }
}

/// Reads the blocks of a whole answer one by one, so that none but the calls is kept.
struct ContentSeed<'p>(&'p mut Progress);

impl<'de> DeserializeSeed<'de> for ContentSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ContentSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of blocks")
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.answer.content_begun |= !text.is_empty();
        self.0.answer.delivered_bytes += text.len() as u64;
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let progress = self.0;
        while let Some(block) = seq.next_element::<WireBlock<'de>>()? {
            let Some(at) = progress.block(&block) else {
                continue;
            };
            let input = block.input.map_or("{}", RawValue::get).as_bytes();
            progress.answer.delivered_bytes += input.len() as u64;
            let kept = progress.keep(0, input.len());
            let call = &mut progress.answer.calls[at];
            call.input_bytes = input.len() as u64;
            call.input.extend_from_slice(&input[..kept]);
            call.complete = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
