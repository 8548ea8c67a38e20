//! Calls of tools and their results, paired as a request shows them.
//!
//! Two calls are the same when they name the same tool and their inputs are equal but for white
//! space between tokens of JSON. Two results are the same when their contents are; a string and a list of
//! one text block with that string are one content, since clients go from one spelling to the other.
//! What a harness has put behind a text ([`super::reminder`]) is no part of it.
//!
//! A result belongs to the call with its id. Where an id stands for several calls (small models
//! number anew in each answer), it is the nearest answer's call before it that has no result yet,
//! and of several in that answer the first.

mod newest;
mod target;

use std::borrow::Cow;

pub use newest::{Newest, Outcome, results};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::failure::Content;
use super::reminder::own;
use crate::provider::json::{inside, string_end, unescape};
use crate::provider::view::{AnsweredCall, Block};

/// Longest input that is searched for what it acts on, in bytes.
const SEARCHED: usize = 65_536;

/// Where the input of a call is found when somebody asks what it acts on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum Target {
    /// In the body, from and to these bytes.
    In(u32, u32),
    /// It was looked up: the hash of it.
    Is(u64),
}

/// A call, without its texts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Call {
    /// Hash of the tool's name.
    pub tool: u64,
    /// Hash of name and input.
    pub key: u64,
    /// What it acts on.
    pub target: Target,
}

impl Call {
    /// Reads a block that is a call; `None` where it has no name.
    pub(super) fn of(body: &[u8], block: &Block) -> Option<Self> {
        let tool = xxh3_64(&said(block.name?.of(body)));
        let (input, target) = match block.content {
            Some(span) => (span.of(body), Target::In(span.start, span.end)),
            None => (&b"{}"[..], Target::Is(0)),
        };
        let written = written(input);
        let compact = block.compact && matches!(written, Cow::Borrowed(same) if same == input);
        Some(Self {
            tool,
            key: pair(tool, hash_of_input(&written, compact)),
            target,
        })
    }

    /// Takes over a call from an answer; `None` for one that was not delivered whole.
    pub(super) fn answered(call: &AnsweredCall) -> Option<Self> {
        if !call.complete {
            return None;
        }
        let tool = xxh3_64(call.name.as_bytes());
        let input = if call.input.is_empty() {
            b"{}"
        } else {
            &call.input[..]
        };
        let mut key = pair(tool, hash_of_input(input, false));
        // Of an input that was cut, the length is what is left of the rest.
        if call.input_bytes > call.input.len() as u64 {
            key = pair(key, call.input_bytes);
        }
        Some(Self {
            tool,
            key,
            target: Target::Is(target::of(&input[..input.len().min(SEARCHED)]).unwrap_or(key)),
        })
    }

    /// Hash of what the call acts on: the file, place or program that its input names first, else
    /// all of it.
    pub(super) fn acts_on(&self, body: &[u8]) -> u64 {
        match self.target {
            Target::Is(0) => self.key,
            Target::Is(hash) => hash,
            Target::In(start, end) => {
                let input = body.get(start as usize..end as usize).unwrap_or_default();
                let input = written(&input[..input.len().min(SEARCHED)]);
                target::of(&input).unwrap_or(self.key)
            }
        }
    }
}

/// Content of a block that is a result.
pub(super) fn content<'a>(body: &'a [u8], block: &Block) -> Content<'a> {
    let (raw, plain) = match (block.plain, block.content) {
        (Some(plain), _) => (plain.of(body), true),
        (None, Some(content)) => (content.of(body), false),
        // Saying nothing is an empty text.
        (None, None) => (&b"\"\""[..], true),
    };
    Content {
        raw,
        hash: hash_of_content(raw, plain || block.compact),
        flag: block.is_error,
    }
}

/// Hash of the id that a call has, or that a result answers.
pub(super) fn id(body: &[u8], block: &Block) -> Option<u64> {
    Some(xxh3_64(&said(block.call_id?.of(body))))
}

/// The input of a call as JSON text. Some formats write it into a JSON string; a call without input
/// has an empty one there.
fn written(input: &[u8]) -> Cow<'_, [u8]> {
    match input.first() {
        Some(b'"') => match said(input) {
            text if text.is_empty() => Cow::Borrowed(b"{}"),
            text => text,
        },
        _ => Cow::Borrowed(input),
    }
}

/// What a raw JSON string says.
pub(super) fn said(raw: &[u8]) -> Cow<'_, [u8]> {
    let inner = inside(raw);
    if memchr::memchr(b'\\', inner).is_none() {
        return Cow::Borrowed(inner);
    }
    Cow::Owned(unescape(raw).into_owned().into_bytes())
}

/// One hash of two.
pub(super) fn pair(one: u64, other: u64) -> u64 {
    let mut both = [0; 16];
    both[..8].copy_from_slice(&one.to_le_bytes());
    both[8..].copy_from_slice(&other.to_le_bytes());
    xxh3_64(&both)
}

/// Hash of an input. What is no JSON is a text of its own kind (a patch, a script), in which white
/// space may matter.
fn hash_of_input(input: &[u8], compact: bool) -> u64 {
    let begin = input.iter().find(|byte| !byte.is_ascii_whitespace());
    match begin {
        Some(b'{' | b'[') => hash_of_json(input, compact),
        _ => xxh3_64(input),
    }
}

/// Hash of the content of a result, as if it had come without a reminder at its end.
fn hash_of_content(raw: &[u8], compact: bool) -> u64 {
    let said = inside(raw);
    let own = own(said);
    if own.len() == said.len() {
        return hash_of_json(raw, compact);
    }
    let mut hash = Xxh3::new();
    for part in [&b"\""[..], own, b"\""] {
        hash.update(part);
    }
    hash.digest()
}

/// Hash of a JSON value without the white space between its tokens.
fn hash_of_json(raw: &[u8], compact: bool) -> u64 {
    if compact {
        return xxh3_64(raw);
    }
    let mut kept = Vec::with_capacity(raw.len());
    let mut at = 0;
    while let Some(byte) = raw.get(at) {
        let end = match byte {
            b'"' => string_end(raw, at + 1).unwrap_or(raw.len()),
            _ => at + 1,
        };
        if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
            kept.extend_from_slice(&raw[at..end]);
        }
        at = end;
    }
    xxh3_64(&kept)
}

#[cfg(test)]
mod tests;
