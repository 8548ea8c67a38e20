//! The JSON of answers, as far as it is looked at. Source: provider docs and SDK types, Nov 2026.
//!
//! Everything is optional and forgiving; what is not named here is skipped without being built.

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::value::RawValue;

use super::usage::WireUsage;
use crate::provider::api_error::WireError;
use crate::provider::lenient::{Count, Len, Maybe, Text, Word};

/// A `Message`, whole or as it opens a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireMessage<'a> {
    pub(super) id: Word,
    pub(super) model: Word,
    pub(super) stop_reason: Word,
    pub(super) stop_details: Maybe<WireStopDetails>,
    pub(super) usage: Maybe<WireUsage>,
    pub(super) diagnostics: Maybe<Nullable<WireDiagnostics>>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireStopDetails {
    pub(super) category: Word,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireDiagnostics {
    pub(super) cache_miss_reason: Maybe<Nullable<WireReason>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireReason {
    #[serde(rename = "type")]
    pub(super) kind: Word,
}

/// A member whose `null` says something else than its absence.
#[derive(Debug)]
pub(super) enum Nullable<T> {
    Null,
    Given(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Nullable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Option::<T>::deserialize(deserializer)?;
        Ok(value.map_or(Self::Null, Self::Given))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireBlock<'a> {
    #[serde(rename = "type")]
    pub(super) kind: Word,
    pub(super) id: Word,
    pub(super) name: Word,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    pub(super) text: Maybe<Len>,
    pub(super) thinking: Maybe<Len>,
    pub(super) to: Maybe<WireModel>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireModel {
    pub(super) model: Word,
}

#[derive(Deserialize)]
pub(super) struct MessageStart<'a> {
    #[serde(borrow)]
    pub(super) message: WireMessage<'a>,
}

#[derive(Deserialize)]
pub(super) struct BlockStart<'a> {
    #[serde(default)]
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) content_block: WireBlock<'a>,
}

#[derive(Deserialize)]
pub(super) struct BlockDelta<'a> {
    #[serde(default)]
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) delta: Delta<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    pub(super) text: Option<Len>,
    pub(super) thinking: Option<Len>,
    #[serde(borrow)]
    pub(super) partial_json: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct BlockStop {
    #[serde(default)]
    pub(super) index: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageDelta {
    pub(super) delta: Maybe<StopDelta>,
    pub(super) usage: Maybe<WireUsage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct StopDelta {
    pub(super) stop_reason: Word,
    pub(super) stop_details: Maybe<WireStopDetails>,
}

#[derive(Deserialize)]
pub(super) struct ErrorEvent<'a> {
    #[serde(borrow)]
    pub(super) error: WireError<'a>,
}

/// The events that mean something here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
    Ping,
    Error,
}

impl Kind {
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"content_block_delta" => Self::BlockDelta,
            b"message_start" => Self::MessageStart,
            b"content_block_start" => Self::BlockStart,
            b"content_block_stop" => Self::BlockStop,
            b"message_delta" => Self::MessageDelta,
            b"message_stop" => Self::MessageStop,
            b"ping" => Self::Ping,
            b"error" => Self::Error,
            _ => return None,
        })
    }

    /// The kind by the data alone, for upstreams that send no names.
    pub(super) fn of_data(data: &[u8]) -> Option<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Peek {
            #[serde(rename = "type")]
            kind: Word,
            error: Option<serde::de::IgnoredAny>,
        }
        // The usual spelling; a backslash would end up in no known name.
        if let Some(rest) = data.strip_prefix(br#"{"type":""#)
            && let Some(end) = memchr::memchr(b'"', rest)
            && let Some(kind) = Self::of(&rest[..end])
        {
            return Some(kind);
        }
        let peek: Peek = serde_json::from_slice(data).ok()?;
        match peek.kind.as_deref() {
            Some(kind) => Self::of(kind.as_bytes()),
            None => peek.error.map(|_| Self::Error),
        }
    }
}

/// A `T` from one event, if it is one.
pub(super) fn parse<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Option<T> {
    serde_json::from_slice(data).ok()
}
