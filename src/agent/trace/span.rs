//! A finished span, in nobody's protocol.

use crate::agent::machine::{Bill, Stop};
use crate::trace::ids::{SpanId, TraceId};
use crate::usage::Usage;

/// A finished span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The trace.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// What it hangs below.
    pub parent: Option<SpanId>,
    /// The parent is another process's.
    pub remote: bool,
    /// Start, in nanoseconds since 1970.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// What it tells.
    pub what: What,
}

/// What a span tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// An agent at work, from a begin or resume to an end.
    Agent {
        /// Who.
        facts: AgentFacts,
        /// How it ended.
        outcome: &'static str,
        /// Answers of the model so far.
        turns: u32,
    },
    /// A turn, or a compaction.
    Turn(Box<TurnFacts>),
    /// A call of a tool.
    Call {
        /// The run.
        run: String,
        /// The agent.
        agent: String,
        /// The tool.
        name: String,
        /// The provider's id of the call.
        call: String,
        /// Its result is an error.
        failed: bool,
        /// Size of the input.
        input_bytes: u64,
        /// Size of the result.
        result_bytes: u64,
    },
}

/// Who an agent is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentFacts {
    /// The run.
    pub run: String,
    /// Its name.
    pub agent: String,
    /// The model it asks.
    pub model: String,
    /// The application.
    pub app: Option<String>,
    /// How many agents stand above it.
    pub depth: u8,
    pub(super) parent: Option<SpanId>,
    pub(super) remote: bool,
}

/// What a turn was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnFacts {
    /// The run.
    pub run: String,
    /// The agent.
    pub agent: String,
    /// The application.
    pub app: Option<String>,
    /// The model asked for.
    pub model: String,
    /// Number of the turn, from 1; `None` for a compaction.
    pub number: Option<u32>,
    /// When attempts failed, in nanoseconds since 1970.
    pub failed_ns: Vec<u64>,
    /// Why it has no answer, in a stable word.
    pub error: Option<&'static str>,
    /// Why the answer ended, in a stable word.
    pub stop: Option<&'static str>,
    /// Its tokens, those of failed attempts included.
    pub usage: Usage,
    /// Its price in pico-USD; `None` where a part of it is not known.
    pub pico: Option<u64>,
    pub(super) billed: bool,
}

impl TurnFacts {
    /// Adds what an attempt cost. One that cost nothing known (it never began) changes nothing.
    pub(super) fn add(&mut self, bill: &Bill) {
        if *bill == Bill::default() {
            return;
        }
        if !self.billed {
            self.billed = true;
            self.usage = bill.usage;
            self.pico = bill.pico;
            return;
        }
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
        let (old, new) = (self.usage, bill.usage);
        self.usage = Usage {
            uncached: sum(old.uncached, new.uncached),
            read: sum(old.read, new.read),
            write_5m: sum(old.write_5m, new.write_5m),
            write_1h: sum(old.write_1h, new.write_1h),
            write_30m: sum(old.write_30m, new.write_30m),
            write_12h: sum(old.write_12h, new.write_12h),
            output: sum(old.output, new.output),
            reasoning: sum(old.reasoning, new.reasoning),
            web_searches: sum(old.web_searches, new.web_searches),
            split_inferred: old.split_inferred || new.split_inferred,
        };
        self.pico = self
            .pico
            .zip(bill.pico)
            .map(|(one, other)| one.saturating_add(other));
    }
}

/// A word for why an answer ended; what the provider says beside it is left out.
pub(super) const fn stop_word(stop: &Stop) -> &'static str {
    match stop {
        Stop::EndTurn => "end_turn",
        Stop::ToolUse => "tool_use",
        Stop::MaxTokens => "max_tokens",
        Stop::Pause => "pause_turn",
        Stop::Refusal(_) => "refusal",
        Stop::ContextWindow => "model_context_window_exceeded",
        Stop::Unknown(_) => "unknown",
    }
}
