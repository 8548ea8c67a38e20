//! What the model answers, before it is written in either format.

use super::cache::Tokens;
use super::tools::Form;

/// Tokens that the simulated thinking takes.
pub const THINKING_TOKENS: u64 = 64;

/// One item of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Thinking: the name its id and its sealed content are made of, the seal, the summary.
    Thinking {
        /// `01...`.
        name: String,
        /// `encrypted_content`.
        sealed: String,
        /// For the client, if it asked.
        summary: Option<String>,
    },
    /// Text.
    Text {
        /// `msg_...`.
        id: String,
        /// The text.
        text: String,
    },
    /// A refusal in words.
    Refusal {
        /// `msg_...`.
        id: String,
        /// The words.
        text: String,
    },
    /// A call.
    Call {
        /// Id of the item.
        id: String,
        /// Id of the call.
        call_id: String,
        /// The tool's own name.
        name: String,
        /// How it is called.
        form: Form,
        /// JSON arguments, or the text of a custom tool.
        input: String,
    },
}

impl Output {
    /// Bytes that count as output.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Thinking { .. } => 0,
            Self::Text { text, .. } | Self::Refusal { text, .. } => text.len(),
            Self::Call { name, input, .. } => name.len() + input.len(),
        }
    }
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// `resp_...` or `chatcmpl-...`.
    pub id: String,
    /// Unix seconds.
    pub created: u64,
    /// The model that answered.
    pub model: &'static str,
    /// The tier that served.
    pub tier: &'static str,
    /// Content.
    pub outputs: Vec<Output>,
    /// Input tokens.
    pub tokens: Tokens,
    /// Writes are billed, so usage splits them.
    pub bills_writes: bool,
    /// Output tokens that were thinking.
    pub thinking: u64,
    /// All output tokens.
    pub output: u64,
    /// The output limit ended it.
    pub cut: bool,
    /// `prompt_cache_diagnostics`, as JSON.
    pub diagnostics: Option<String>,
}

impl Answer {
    /// Whether it calls tools.
    #[must_use]
    pub fn calls(&self) -> bool {
        self.outputs
            .iter()
            .any(|output| matches!(output, Output::Call { .. }))
    }

    /// Padding for one delta: a length that depends on nothing a reader could use.
    #[must_use]
    pub fn padding(&self, number: usize) -> &str {
        let id = self.id.as_bytes();
        let length = 1 + number * 7 % 13;
        let start = id.len().saturating_sub(length);
        self.id.get(start..).unwrap_or_default()
    }
}
