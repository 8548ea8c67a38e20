//! What the assemblers of all formats have in common: what an event says, and how an answer in the
//! making can go wrong.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Broken;
use super::members::{is_json, said};
use crate::agent::machine::Stop;
use crate::sse::Event;

/// Most blocks of an answer.
pub const MAX_BLOCKS: usize = 4096;
/// Most bytes of an answer.
const MAX_BYTES: usize = 64 << 20;

/// How far an answer has come, beside its blocks. The first thing that breaks it is kept.
#[derive(Debug, Default)]
pub struct Fate {
    bytes: usize,
    whole: bool,
    broken: Option<Broken>,
}

impl Fate {
    /// Nothing that comes now changes anything.
    pub const fn is_sealed(&self) -> bool {
        self.whole || self.broken.is_some()
    }

    /// The last event has come.
    pub const fn end(&mut self) {
        self.whole = true;
    }

    /// The answer cannot be used.
    pub fn unusable(&mut self, found: &'static str) {
        self.broken(Broken::Unusable(found));
    }

    /// The answer is broken.
    pub fn broken(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }

    /// So many bytes more are held.
    pub fn grow(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_BYTES {
            self.unusable("too large");
        }
    }

    /// An error has come, as JSON.
    pub fn reported(&mut self, json: &str) {
        self.broken(reported(json));
    }

    /// An event, with its JSON. `None` for one that says nothing, that cannot be read, or that comes
    /// when nothing changes anything any more.
    pub fn event<'a, T: Deserialize<'a>>(&mut self, event: &Event<'a>) -> Option<(&'a str, T)> {
        if self.is_sealed() {
            return None;
        }
        let json = self.json(event)?;
        Some((json, self.read(json)?))
    }

    /// The JSON of an event; nothing for the events of some servers that say nothing.
    fn json<'a>(&mut self, event: &Event<'a>) -> Option<&'a str> {
        if event.after_gap {
            self.unusable("an event was too large");
            return None;
        }
        let data = event.data.trim_ascii();
        if data.is_empty() || data == b"[DONE]" {
            return None;
        }
        let json = std::str::from_utf8(data).ok();
        if json.is_none() {
            self.unusable("an event is no text");
        }
        json
    }

    /// A value from JSON. What cannot be read may have been anything, so the answer is broken.
    pub fn read<'a, T: Deserialize<'a>>(&mut self, json: &'a str) -> Option<T> {
        let value = serde_json::from_str(json).ok();
        if value.is_none() {
            self.unusable("an event cannot be read");
        }
        value
    }

    /// The error, if there is one. Called when nothing more comes.
    ///
    /// # Errors
    /// What broke the answer.
    pub fn settle(&mut self) -> Result<(), Broken> {
        self.broken.take().map_or(Ok(()), Err)
    }

    /// The last event has come, and nothing has broken the answer.
    pub const fn is_whole(&self) -> bool {
        self.whole
    }
}

/// Whether the output limit has cut a call: it has, where its input is not whole.
pub fn is_cut(stop: &Stop, input: &str) -> bool {
    *stop == Stop::MaxTokens && !is_json(input)
}

/// An error as it stands in a body or an event. Its kind is its `type`, and its `code` where that
/// says more: both are words that a program goes by.
fn reported(json: &str) -> Broken {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Error<'a> {
        #[serde(borrow, rename = "type")]
        kind: Option<&'a RawValue>,
        #[serde(borrow)]
        code: Option<&'a RawValue>,
        #[serde(borrow)]
        message: Option<&'a RawValue>,
    }
    let text = |raw: &RawValue| match said(raw.get()) {
        Some(text) => text.into_owned(),
        None => raw.get().to_owned(),
    };
    let error: Error<'_> = serde_json::from_str(json).unwrap_or_default();
    let mut words: Vec<String> = [error.kind, error.code]
        .into_iter()
        .flatten()
        .map(text)
        .collect();
    words.retain(|word| !word.is_empty());
    words.dedup();
    Broken::Reported {
        kind: if words.is_empty() {
            "error".to_owned()
        } else {
            words.join("/")
        },
        message: match error.message {
            Some(message) => text(message),
            None => said(json).map_or_else(|| json.to_owned(), std::borrow::Cow::into_owned),
        },
    }
}
