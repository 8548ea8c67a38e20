//! What the answers of both formats have in common.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::lenient::{Len, MAX_WORD_BYTES, Maybe, Text, cut};
use crate::provider::reader::Limits;
use crate::provider::view::AnsweredCall;
use crate::usage::ServiceTier;

/// Most tool calls of one answer that are kept.
pub(super) const MAX_CALLS: usize = 256;
/// Error type of an error inside a stream that does not name one.
pub(super) const UNNAMED_ERROR: &str = "unknown_error";
/// How deep texts are looked for in content that is no string.
const MAX_DEPTH: u32 = 4;

/// The input of tool calls, of which a bounded part is kept.
#[derive(Debug)]
pub(super) struct Inputs {
    /// Bytes that may still be kept in this answer.
    left: usize,
    each: usize,
}

impl Inputs {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            left: limits.tool_inputs_bytes,
            each: limits.tool_input_bytes,
        }
    }

    /// Adds a piece to the input of a call. What is kept of it is a beginning.
    pub(super) fn add(&mut self, call: &mut AnsweredCall, piece: &[u8]) {
        let whole_so_far = call.input.len() as u64 == call.input_bytes;
        call.input_bytes = call.input_bytes.saturating_add(piece.len() as u64);
        if !whole_so_far {
            return;
        }
        let kept = self
            .each
            .saturating_sub(call.input.len())
            .min(self.left)
            .min(piece.len());
        self.left -= kept;
        call.input.extend_from_slice(&piece[..kept]);
    }

    /// Puts `input` in the place of what was known of it.
    pub(super) fn set(&mut self, call: &mut AnsweredCall, input: &[u8]) {
        self.left += call.input.len();
        call.input.clear();
        call.input_bytes = 0;
        self.add(call, input);
    }
}

/// Ends a call. Functions without arguments are called with an empty object or with nothing.
pub(super) fn complete(call: &mut AnsweredCall, free_text: bool) {
    if call.input_bytes == 0 && !free_text {
        call.input = b"{}".to_vec();
        call.input_bytes = 2;
    }
    call.complete = true;
}

/// An event as text; what is not UTF-8 is replaced, so that one broken character hides nothing else.
pub(super) fn readable(data: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(data)
}

/// A `T` from one event, if it is one.
pub(super) fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
    serde_json::from_str(json).ok()
}

/// What a JSON string says; of any other value its JSON.
pub(super) fn said(raw: &RawValue) -> Cow<'_, [u8]> {
    let text = raw.get().starts_with('"').then(|| parse(raw.get()));
    match text.flatten() {
        Some(Text(text)) => text,
        None => Cow::Borrowed(raw.get().as_bytes()),
    }
}

/// A word that is likely to be known already. Empty ones say nothing.
pub(super) fn update(slot: &mut Option<String>, said: &Maybe<Text<'_>>) {
    if let Some(word) = word(said)
        && slot.as_ref().is_none_or(|known| known.as_bytes() != word)
    {
        *slot = Some(cut(word, MAX_WORD_BYTES));
    }
}

/// The bytes of a word that says something.
pub(super) fn word<'a>(said: &'a Maybe<Text<'_>>) -> Option<&'a [u8]> {
    said.0
        .as_ref()
        .map(|text| &*text.0)
        .filter(|word| !word.is_empty())
}

/// The tier that an answer names. Source: provider SDK types, Nov 2026; `fast` is another name of
/// the priority tier.
pub(super) fn tier(word: &[u8]) -> ServiceTier {
    match word {
        b"priority" | b"fast" => ServiceTier::Priority,
        b"flex" => ServiceTier::Flex,
        b"ultrafast" => ServiceTier::Ultrafast,
        b"batch" => ServiceTier::Batch,
        // `auto`, `default`, `standard` and the like.
        _ => ServiceTier::Standard,
    }
}

/// Bytes of the text in a piece of content: a string, or a list of parts with text.
pub(super) fn weight(content: Option<&RawValue>) -> u64 {
    content.map_or(0, |content| weigh(content, 0))
}

fn weigh(content: &RawValue, depth: u32) -> u64 {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Part<'a> {
        #[serde(borrow)]
        text: Option<&'a RawValue>,
        #[serde(borrow)]
        thinking: Option<&'a RawValue>,
        #[serde(borrow)]
        refusal: Option<&'a RawValue>,
        #[serde(borrow)]
        transcript: Option<&'a RawValue>,
    }
    let json = content.get();
    match json.as_bytes().first() {
        Some(b'"') => parse::<Len>(json).map_or(0, |len| len.0),
        Some(b'[') if depth < MAX_DEPTH => parse::<Vec<&RawValue>>(json).map_or(0, |parts| {
            parts.iter().map(|part| weigh(part, depth + 1)).sum()
        }),
        Some(b'{') if depth < MAX_DEPTH => {
            let part = parse::<Part<'_>>(json).unwrap_or_default();
            [part.text, part.thinking, part.refusal, part.transcript]
                .into_iter()
                .flatten()
                .map(|text| weigh(text, depth + 1))
                .sum()
        }
        _ => 0,
    }
}
