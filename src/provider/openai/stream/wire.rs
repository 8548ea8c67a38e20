//! The JSON of Responses, as far as it is looked at. Source: provider docs and SDK types, Nov 2026.
//!
//! Everything is optional and forgiving; what is not named here is skipped without being built.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::items::Item;
use crate::provider::lenient::{Count, Maybe, Text, Word};
use crate::provider::openai::usage::WireUsage;

/// A response, whole or as it opens a stream.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireResponse<'a> {
    #[serde(borrow)]
    pub(super) id: Maybe<Text<'a>>,
    #[serde(borrow)]
    pub(super) model: Maybe<Text<'a>>,
    #[serde(borrow)]
    pub(super) service_tier: Maybe<Text<'a>>,
    pub(super) status: Word,
    pub(super) usage: Maybe<WireUsage>,
    pub(super) incomplete_details: Maybe<WireIncomplete>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    pub(super) prompt_cache_diagnostics: Maybe<WireDiagnostics>,
    pub(super) tool_usage: Maybe<WireToolUsage>,
    #[serde(borrow)]
    pub(super) output: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireIncomplete {
    pub(super) reason: Word,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireDiagnostics {
    #[serde(rename = "type")]
    pub(super) kind: Word,
    pub(super) reason: Word,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireToolUsage {
    pub(super) web_search: Maybe<WireSearches>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireSearches {
    pub(super) num_requests: Count,
}

#[derive(Deserialize)]
pub(super) struct ResponseEvent<'a> {
    #[serde(borrow)]
    pub(super) response: WireResponse<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ItemEvent<'a> {
    pub(super) output_index: Count,
    #[serde(borrow)]
    pub(super) item: Option<Item<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    pub(super) output_index: Count,
    pub(super) item_id: Word,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Done<'a> {
    pub(super) output_index: Count,
    pub(super) item_id: Word,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
}

/// An error event. Its members stand in it or in `error`; its `type` says only that it is one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ErrorEvent<'a> {
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) code: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
}

/// The events that mean something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The response as far as it has come.
    Begun,
    /// The response as it ended, in the words of its status.
    Ended(&'static str),
    ItemAdded,
    ItemDone,
    /// Text, reasoning or the like.
    Delta,
    /// A piece of the input of a call.
    InputDelta,
    /// The whole input of a call.
    InputDone,
    Error,
}

impl Kind {
    /// By the type in the data, else by the name of the event.
    pub(super) fn of(name: Option<&[u8]>, data: &[u8]) -> Option<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Peek {
            #[serde(rename = "type")]
            kind: Word,
            error: Option<IgnoredAny>,
        }
        // The usual spelling; a backslash would end up in no known type.
        if let Some(rest) = data.strip_prefix(br#"{"type":""#)
            && let Some(end) = memchr::memchr(b'"', rest)
        {
            return Self::of_type(&rest[..end]);
        }
        if let Some(kind) = name.and_then(Self::of_type) {
            return Some(kind);
        }
        let peek: Peek = serde_json::from_slice(data).ok()?;
        match peek.kind.as_deref() {
            Some(kind) => Self::of_type(kind.as_bytes()),
            None => peek.error.map(|_| Self::Error),
        }
    }

    fn of_type(kind: &[u8]) -> Option<Self> {
        Some(match kind {
            b"response.function_call_arguments.delta"
            | b"response.custom_tool_call_input.delta" => Self::InputDelta,
            b"response.function_call_arguments.done" | b"response.custom_tool_call_input.done" => {
                Self::InputDone
            }
            b"response.output_item.added" => Self::ItemAdded,
            b"response.output_item.done" => Self::ItemDone,
            b"response.created" | b"response.queued" | b"response.in_progress" => Self::Begun,
            b"response.completed" | b"response.done" => Self::Ended("completed"),
            b"response.incomplete" => Self::Ended("incomplete"),
            b"response.cancelled" => Self::Ended("cancelled"),
            b"response.failed" => Self::Ended("failed"),
            b"error" => Self::Error,
            // Sound, and what a tool of the provider printed.
            b"response.audio.delta" | b"response.shell_call_output_content.delta" => return None,
            _ if kind.starts_with(b"response.") && kind.ends_with(b".delta") => Self::Delta,
            _ => return None,
        })
    }
}
