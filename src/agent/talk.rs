//! The words of a conversation, in no provider's format.
//!
//! Of every block of an answer its own bytes are kept as well: providers bind reasoning to its
//! place and to every byte, so what came is what is sent back ([`Block::raw`]), as long as it goes
//! to the format it came from.

use serde::{Deserialize, Serialize};

use super::text::Text;
use crate::provider::wire::Wire;

/// Text of a result that has none: providers refuse empty blocks.
pub const NO_OUTPUT: &str = "(no output)";

/// A call of a tool, as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id; results name it.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The input as JSON text. It need not be valid: models write what they like.
    pub input: String,
}

/// What a block of an answer is to the loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Text for the reader.
    Text(String),
    /// A call that the client is to make.
    Call(ToolCall),
    /// Reasoning; only its own provider can read it.
    Thinking,
    /// Anything else: calls that the provider makes itself and their results, unknown types.
    Other,
}

impl Kind {
    /// It is a text that says nothing. Providers refuse such.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        matches!(self, Self::Text(text) if text.trim().is_empty())
    }
}

/// A block of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// What it is.
    pub kind: Kind,
    /// The block as JSON of the answer's format, with every member that came.
    pub raw: String,
}

/// An answer of the model, whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The format that `raw` of its blocks is in.
    pub wire: Wire,
    /// The model that was asked; reasoning is bound to it.
    pub model: String,
    /// Its blocks, in order. Never an empty text.
    pub blocks: Vec<Block>,
}

impl Answer {
    /// The calls in it, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.blocks.iter().filter_map(|block| match &block.kind {
            Kind::Call(call) => Some(call),
            _ => None,
        })
    }

    /// All text of it, joined.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match &block.kind {
            Kind::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallResult {
    /// Id of the call.
    pub call: String,
    /// What the model reads. Never empty.
    pub text: Text,
    /// The call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl CallResult {
    /// A result; an empty text becomes [`NO_OUTPUT`].
    #[must_use]
    pub fn new(call: &str, text: String, is_error: bool) -> Self {
        let blank = text.trim().is_empty();
        Self {
            call: call.to_owned(),
            text: Text::from(if blank { NO_OUTPUT.to_owned() } else { text }),
            is_error,
        }
    }

    /// A failure in these words.
    #[must_use]
    pub fn failed(call: &str, text: &str) -> Self {
        Self::new(call, text.to_owned(), true)
    }
}

/// A turn of one speaker. Speakers alternate, and the user begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// What the client says: results of the answer before it, in the order of its calls, then texts.
    User {
        /// Results.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        results: Vec<CallResult>,
        /// Texts, none of them empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        texts: Vec<String>,
    },
    /// What the model said. Never without blocks.
    Assistant(Answer),
}
