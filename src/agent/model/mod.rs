//! The model: what is sent to it, and how its answer is put together.
//!
//! [`Format`] is one wire format: a request from the conversation, an answer from the events of a
//! stream. [`Endpoint`] is where it is sent, with the connection, the key and the price. A broken
//! stream is never mended: the attempt is given up with what it is known to have cost, and the
//! driver asks again.
//!
//! What goes back of an answer:
//!
//! | it came from | what is told |
//! |---|---|
//! | this format and this model | all of it, byte for byte |
//! | another model of this format | Messages: all but the reasoning; Chat, Responses: texts and calls |
//! | another format | texts and calls |
//!
//! Reasoning is bound to the model that wrote it, so it is kept or dropped as a whole
//! ([`Format::drops`] counts what is dropped).

mod anthropic;
mod body;
mod chat;
mod endpoint;
mod fate;
mod foreign;
mod members;
mod openai;
mod responses;

pub use anthropic::Messages;
pub use chat::Chat;
pub use endpoint::{Attempt, Endpoint, Failure, Headers, Reply, address};
pub use responses::Responses;

use super::machine::{Setup, Stop};
use super::talk::{Answer, Entry, Kind, ToolCall};
use crate::provider::wire::Wire;
use crate::sse::Event;

/// Stands for a turn of which nothing can be told: providers refuse empty ones.
const NO_TEXT: &str = "(no text)";

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Model, system prompt, tools, effort.
    pub setup: &'a Setup,
    /// The conversation.
    pub entries: &'a [Entry],
    /// A text that is said for this request only, behind everything else: what a compaction or a
    /// reflection asks for. All before it is the prefix of the run, so it is read from the cache.
    pub aside: Option<&'a str>,
    /// The output limit.
    pub max_tokens: u32,
}

/// A piece of an answer that is coming in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text for the reader.
    Text(String),
    /// The model is thinking. What it thinks is nobody's.
    Thinking,
    /// A call of this tool has begun to come.
    CallOpened(String),
    /// A call is complete.
    Call(ToolCall),
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// Its blocks. Empty texts are left out.
    pub answer: Answer,
    /// Why it ended.
    pub stop: Stop,
    /// A call was cut in the middle, and left out.
    pub open_call: bool,
}

/// Why there is no whole answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The stream ended before its last event.
    #[error("the stream broke off")]
    CutOff,
    /// The provider reported an error in mid-stream; its type and its words.
    #[error("{kind}: {message}")]
    Reported {
        /// The provider's type of the error, and its code behind a slash where that says more.
        kind: String,
        /// Its message.
        message: String,
    },
    /// What came is no answer of this format; a word for what was found.
    #[error("the answer is unusable: {0}")]
    Unusable(&'static str),
}

/// An answer in the making. Blocks may come interleaved; events and members of unknown types are
/// ignored or kept, never refused. What cannot be read where it would matter breaks the answer:
/// there is no answer with a hole in it.
pub trait Assemble: Send {
    /// Takes the next event of the stream. What it completes is added to `pieces`.
    fn event(&mut self, event: Event<'_>, pieces: &mut Vec<Piece>);

    /// Takes the whole body of an answer that was not streamed.
    fn body(&mut self, json: &[u8], pieces: &mut Vec<Piece>);

    /// The last event has come, or nothing that comes can mend the answer.
    fn is_whole(&self) -> bool;

    /// The answer.
    ///
    /// # Errors
    /// It is not whole, or two of its calls have one id.
    fn finish(self: Box<Self>) -> Result<Whole, Broken>;
}

/// A wire format.
pub trait Format: Send + Sync {
    /// Which.
    fn wire(&self) -> Wire;

    /// The path behind the base URL; it begins with `/v1`.
    fn path(&self) -> &'static str;

    /// The body of a request. The same conversation gives the same bytes, and one that goes on
    /// gives bytes that go on, but for the cache breakpoints that move.
    fn request(&self, ask: &Ask<'_>) -> Vec<u8>;

    /// The headers of a request beside those that all formats have; `key` is the credential, empty
    /// for servers that want none.
    fn headers(&self, key: &str) -> Vec<(&'static str, String)> {
        bearer(key).into_iter().collect()
    }

    /// Puts an answer of this model together.
    fn assembler(&self, model: &str) -> Box<dyn Assemble>;

    /// How many blocks of reasoning are left out when the conversation is told to this model.
    fn drops(&self, entries: &[Entry], model: &str) -> usize {
        let told = |answer: &Answer| answer.wire == self.wire() && answer.model == model;
        let thinking = |answer: &Answer| {
            let kinds = answer.blocks.iter().map(|block| &block.kind);
            kinds.filter(|kind| matches!(kind, Kind::Thinking)).count()
        };
        let answers = entries.iter().filter_map(|entry| match entry {
            Entry::Assistant(answer) if !told(answer) => Some(thinking(answer)),
            _ => None,
        });
        answers.sum()
    }
}

/// The header of a credential.
fn bearer(key: &str) -> Option<(&'static str, String)> {
    (!key.is_empty()).then(|| ("authorization", format!("Bearer {key}")))
}

/// The format of a word.
#[must_use]
pub fn format_of(wire: Wire) -> Box<dyn Format> {
    match wire {
        Wire::Messages => Box::new(Messages),
        Wire::Chat => Box::new(Chat),
        Wire::Responses => Box::new(Responses),
    }
}

/// Refuses two calls with one id: their results could not be told apart.
fn unmixed(whole: Whole) -> Result<Whole, Broken> {
    let mut ids: Vec<&str> = whole.answer.calls().map(|call| call.id.as_str()).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Broken::Unusable("two calls with one id"));
    }
    Ok(whole)
}
