//! The wire formats of a turn, and the one place that picks a format's module.

use super::anthropic;
use super::json::Fault;
use super::openai;
use super::view::{Block, DeclaredTools, Diagnosis, RequestView};

/// The format of a turn.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// Anthropic Messages.
    #[default]
    Messages,
    /// OpenAI Chat Completions, and whatever speaks like it.
    Chat,
    /// OpenAI Responses.
    Responses,
}

impl Wire {
    /// Looks at a request body.
    ///
    /// # Errors
    /// The body is not one JSON object, or over 4 GiB; the word says what was found. Such a body is
    /// passed on without having been inspected.
    pub fn view(self, body: &[u8]) -> Result<RequestView, Fault> {
        let mut view = match self {
            Self::Messages => anthropic::request::view(body),
            Self::Chat => openai::request::chat::view(body),
            Self::Responses => openai::request::responses::view(body),
        }?;
        view.wire = self;
        Ok(view)
    }

    /// The tools that a request declares.
    #[must_use]
    pub fn declared(self, body: &[u8], view: &RequestView) -> DeclaredTools {
        match self {
            Self::Messages => anthropic::tools::declared(body, view),
            Self::Chat | Self::Responses => openai::tools::declared(body, view),
        }
    }

    /// The JSON path of a block, for people and records.
    #[must_use]
    pub fn path(self, block: &Block) -> String {
        match self {
            Self::Messages => anthropic::request::path(block),
            Self::Chat => openai::request::chat::path(block),
            Self::Responses => openai::request::responses::path(block),
        }
    }

    /// The JSON path of the message or item at `place`.
    #[must_use]
    pub fn message_path(self, place: u32) -> String {
        match self {
            Self::Messages | Self::Chat => format!("messages[{place}]"),
            Self::Responses => format!("input[{place}]"),
        }
    }

    /// What a word of the provider's own diagnosis means.
    #[must_use]
    pub fn meaning(self, word: &str) -> Diagnosis {
        match self {
            Self::Messages => anthropic::diagnosis::meaning(word),
            Self::Chat | Self::Responses => openai::diagnosis::meaning(word),
        }
    }

    /// The JSON body of an error that prefixgate answers itself. `code` is a stable word for
    /// programs, in formats that have a place for it.
    #[must_use]
    pub fn error_body(self, kind: &str, code: Option<&str>, message: &str) -> Vec<u8> {
        match self {
            Self::Messages => anthropic::error::error_body(kind, message, None),
            Self::Chat | Self::Responses => openai::error::error_body(kind, code, message),
        }
    }

    /// The stream event (or events) that end an answer with an error. To be written on an event border only.
    #[must_use]
    pub fn error_event(self, kind: &str, message: &str) -> Vec<u8> {
        match self {
            Self::Messages => anthropic::error::error_event(kind, message),
            Self::Chat => openai::error::chat_error_event(kind, None, message),
            Self::Responses => openai::error::responses_error_events(kind, message),
        }
    }

    /// A whole, valid answer of one text in the model's place. `id` is a plain word that names it.
    #[must_use]
    pub fn answer_body(self, id: &str, model: &str, text: &str, at_s: i64) -> Vec<u8> {
        match self {
            Self::Messages => anthropic::answer::message_body(&format!("msg_{id}"), model, text),
            Self::Chat => openai::answer::completion(id, model, text, at_s),
            Self::Responses => openai::answer::response(id, model, text, at_s),
        }
    }

    /// The same as a stream, of type [`anthropic::answer::STREAM_TYPE`].
    #[must_use]
    pub fn answer_stream(self, id: &str, model: &str, text: &str, at_s: i64) -> Vec<u8> {
        match self {
            Self::Messages => anthropic::answer::message_stream(&format!("msg_{id}"), model, text),
            Self::Chat => openai::answer::completion_stream(id, model, text, at_s),
            Self::Responses => openai::answer::response_stream(id, model, text, at_s),
        }
    }
}
