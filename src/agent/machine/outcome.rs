//! How a run can end, and why a model stops.

use serde::{Deserialize, Serialize};

/// Why an answer ended, in no provider's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model has said all.
    EndTurn,
    /// It wants its calls answered.
    ToolUse,
    /// The output limit.
    MaxTokens,
    /// The provider paused a long turn of its own tools: the answer goes back as it is.
    Pause,
    /// The model, or a filter beside it, refuses. With the provider's category, where it has one.
    Refusal(Option<String>),
    /// The context window is full.
    ContextWindow,
    /// A word that this version does not know.
    Unknown(String),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "detail")]
pub enum Outcome {
    /// The model has said all.
    EndTurn,
    /// The cap on turns.
    MaxTurns,
    /// The cap on tokens of all kinds.
    MaxTokensTotal,
    /// The cap on money.
    MaxUsd,
    /// The cap on time.
    MaxWallTime,
    /// The cap on calls of tools.
    MaxToolCalls,
    /// The model refused; none of that answer's calls was made.
    Refusal(Option<String>),
    /// The output limit cut the answer, also after it had been raised once.
    Truncated,
    /// The conversation does not fit, also after it had been compacted.
    ContextWindow,
    /// The same calls again and again; the tools in the loop.
    LoopDetected(Vec<String>),
    /// The user cancelled.
    Cancelled,
    /// The provider failed, after retries or for good; its words.
    ProviderError(String),
    /// A tool cannot work at all (an expired credential ...); its words.
    ToolException(String),
    /// The model stopped for a reason that this version does not know, without a call to answer.
    UnknownStop(String),
}

impl Outcome {
    /// The stable word.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::EndTurn => "end_turn",
            Self::MaxTurns => "max_turns",
            Self::MaxTokensTotal => "max_tokens_total",
            Self::MaxUsd => "max_usd",
            Self::MaxWallTime => "max_wall_time",
            Self::MaxToolCalls => "max_tool_calls",
            Self::Refusal(_) => "refusal",
            Self::Truncated => "truncated",
            Self::ContextWindow => "context_window",
            Self::LoopDetected(_) => "loop_detected",
            Self::Cancelled => "cancelled",
            Self::ProviderError(_) => "provider_error",
            Self::ToolException(_) => "tool_exception",
            Self::UnknownStop(_) => "unknown_stop",
        }
    }

    /// The exit code of a process that ends with it. 1 and 2 are left to failures to start and to
    /// wrong usage.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::EndTurn => 0,
            Self::MaxTurns => 10,
            Self::MaxTokensTotal => 11,
            Self::MaxUsd => 12,
            Self::MaxWallTime => 13,
            Self::MaxToolCalls => 14,
            Self::Refusal(_) => 20,
            Self::Truncated => 21,
            Self::ContextWindow => 22,
            Self::LoopDetected(_) => 23,
            Self::UnknownStop(_) => 24,
            Self::ProviderError(_) => 30,
            Self::ToolException(_) => 31,
            Self::Cancelled => 130,
        }
    }

    /// A cap ended it: with a higher one it can go on where it stopped.
    #[must_use]
    pub const fn is_cap(&self) -> bool {
        matches!(
            self,
            Self::MaxTurns
                | Self::MaxTokensTotal
                | Self::MaxUsd
                | Self::MaxWallTime
                | Self::MaxToolCalls
        )
    }
}
