//! Why a call has no result.

use serde::Serialize;
use serde_json::{Map, Value};

/// What a call gives: the text that the model reads.
pub type ToolResult = Result<String, ToolError>;

/// A place of an input that its schema does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Where, as a JSON pointer; empty for the whole input.
    pub path: String,
    /// What belongs there.
    pub expected: String,
    /// What stands there, shortened.
    pub got: String,
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The call was not possible; the model reads why as one JSON object.
    #[error("{message}")]
    Failed {
        /// A stable word (`not_found`, `invalid_input`, `timeout` ...).
        kind: &'static str,
        /// What happened.
        message: String,
        /// Places of the input that its schema does not allow.
        violations: Vec<Violation>,
        /// What the model could do about it.
        hint: Option<String>,
        /// The same call may succeed later.
        retryable: bool,
    },
    /// What was called says itself that it failed, and the model reads its words as they are: the
    /// output of a command with its exit code, an error of a remote tool.
    #[error("{0}")]
    Said(String),
    /// The tool cannot work at all (an expired credential, a schema nobody can meet): the run ends.
    #[error("{0}")]
    Exception(String),
}

impl ToolError {
    /// A failure without advice.
    #[must_use]
    pub fn failed(kind: &'static str, message: impl Into<String>) -> Self {
        Self::Failed {
            kind,
            message: message.into(),
            violations: Vec::new(),
            hint: None,
            retryable: false,
        }
    }

    /// The same with advice.
    #[must_use]
    pub fn hint(mut self, advice: impl Into<String>) -> Self {
        if let Self::Failed { hint, .. } = &mut self {
            *hint = Some(advice.into());
        }
        self
    }

    /// The same with the places that are wrong.
    #[must_use]
    pub fn violations(mut self, found: Vec<Violation>) -> Self {
        if let Self::Failed { violations, .. } = &mut self {
            *violations = found;
        }
        self
    }

    /// The same, and trying again later may help.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        if let Self::Failed { retryable, .. } = &mut self {
            *retryable = true;
        }
        self
    }

    /// What the model reads, at most `max` bytes of it unless that is too small for an object.
    #[must_use]
    pub fn told(&self, max: usize) -> String {
        let (kind, message) = match self {
            Self::Said(words) => return super::cut(words.clone(), max),
            Self::Failed { kind, message, .. } => (*kind, message),
            Self::Exception(message) => ("exception", message),
        };
        // Escapes make text longer, by how much is only known afterwards.
        let mut share = max;
        loop {
            let told = self
                .object(kind, super::cut(message.clone(), share))
                .to_string();
            if told.len() <= max || share == 0 {
                return told;
            }
            share /= 2;
        }
    }

    fn object(&self, kind: &str, message: String) -> Value {
        let mut object = Map::new();
        object.insert("kind".to_owned(), kind.into());
        object.insert("message".to_owned(), message.into());
        if let Self::Failed {
            violations,
            hint,
            retryable,
            ..
        } = self
        {
            if !violations.is_empty() {
                // Strings serialise.
                let violations = serde_json::to_value(violations).unwrap_or_default();
                object.insert("violations".to_owned(), violations);
            }
            if let Some(hint) = hint {
                object.insert("hint".to_owned(), hint.as_str().into());
            }
            object.insert("retryable".to_owned(), (*retryable).into());
        }
        Value::Object(object)
    }
}
