//! A stream put together to what it tells: what a client has at the end, in whichever format.

use serde_json::Value;

use super::{anthropic, openai};

/// An answer as far as a stream has told it.
#[derive(Debug, Clone, PartialEq)]
pub struct Assembled {
    /// The message, completion or response; an error of the stream is its member `error`.
    pub message: Value,
    /// The stream has come to its terminal event, or to an error in the provider's own words.
    pub finished: bool,
    /// Something is missing in between: events that were too large or could not be read.
    pub gaps: bool,
}

/// What the decoded bytes of a stream tell. `None` where not one event is of a known format.
#[must_use]
pub fn assembled(stream: &[u8]) -> Option<Assembled> {
    let mut messages = anthropic::assembled::Assembler::new(stream.len());
    messages.feed(stream);
    messages
        .end()
        .or_else(|| openai::assembled::assembled(stream))
}
