//! What happens to a run. Its state is the fold of these, so this is also what a journal holds.

use serde::{Deserialize, Serialize};

use super::limits::{Limits, Spent};
use super::outcome::{Outcome, Stop};
use crate::agent::talk::{Answer, CallResult, ToolCall};
use crate::provider::wire::Wire;
use crate::usage::Usage;

/// A tool as it is told to the model. It is part of the prompt's prefix and stays as it is for
/// the whole run, also when the run is resumed by another version of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name: letters, digits, `_`, `-`; at most 64.
    pub name: String,
    /// When to use it, when not, an example, what comes out.
    pub description: String,
    /// JSON Schema of its input, as JSON text.
    pub schema: String,
}

/// What a run begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Id of the run; sub-agents share it.
    pub run: String,
    /// Name of this agent inside the run; the outermost one is `main`.
    pub agent: String,
    /// The agent that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// How many agents stand above it.
    pub depth: u8,
    /// The format it speaks.
    pub wire: Wire,
    /// The model it asks.
    pub model: String,
    /// The system prompt. It never changes, and holds nothing that would (no time of day).
    pub system: String,
    /// The tools, in the order in which they are told.
    pub tools: Vec<ToolSpec>,
    /// Output limit of one answer, in tokens.
    pub max_tokens: u32,
    /// How hard the model is to think, in the provider's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The context window, in tokens.
    pub window: u64,
    /// From this size of the conversation on it is compacted, in tokens.
    pub compact_at: u64,
    /// What it may use.
    pub limits: Limits,
    /// Equal failing calls from which on they count as a loop; 0 looks for none.
    pub loop_threshold: u32,
}

impl Setup {
    /// The outermost agent of a new run with this model, and with the defaults for all else. Tools
    /// are filled in by the crew.
    #[must_use]
    pub fn new(wire: Wire, model: &str, system: &str) -> Self {
        Self {
            run: uuid::Uuid::now_v7().to_string(),
            agent: crate::agent::journal::MAIN.to_owned(),
            parent: None,
            depth: 0,
            wire,
            model: model.to_owned(),
            system: system.to_owned(),
            tools: Vec::new(),
            max_tokens: 8_192,
            effort: None,
            window: 200_000,
            compact_at: 160_000,
            limits: Limits::default(),
            loop_threshold: 3,
        }
    }
}

/// What an answer cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bill {
    /// Its tokens.
    pub usage: Usage,
    /// Its price in pico-USD; `None` where it is not known.
    pub pico: Option<u64>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// The run begins.
    Began(Box<Setup>),
    /// The user says something.
    Said {
        /// What.
        text: String,
    },
    /// The model has answered, whole.
    Answered {
        /// The answer. It may be without blocks.
        answer: Answer,
        /// Why it ended.
        stop: Stop,
        /// A call in it was cut in the middle; it is not among the blocks.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        open_call: bool,
        /// What it cost.
        bill: Bill,
    },
    /// An answer broke off or was unusable; nothing of it is kept but its cost.
    Abandoned {
        /// Why, for people.
        reason: String,
        /// What is known of its cost.
        bill: Bill,
    },
    /// The provider says that the conversation does not fit.
    TooLong,
    /// A call begins. What it does may happen from now on.
    CallBegan {
        /// The call.
        call: ToolCall,
        /// Its idempotency key.
        key: String,
    },
    /// A call has ended.
    CallEnded {
        /// With what.
        result: CallResult,
    },
    /// A sub-agent has used this much since it was last told.
    Delegated {
        /// The call that started it.
        call: String,
        /// How much.
        spent: Spent,
    },
    /// The conversation was compacted: a summary takes the place of the entries before `from`.
    Compacted {
        /// The summary.
        summary: String,
        /// The first entry that is kept.
        from: usize,
        /// What the summary cost.
        bill: Bill,
    },
    /// A compaction failed. The conversation stays as it was.
    CompactionFailed {
        /// Why, for people.
        reason: String,
        /// What it cost all the same.
        bill: Bill,
    },
    /// The model was asked something beside the conversation, which that is no part of.
    Aside {
        /// What it said.
        answer: String,
        /// What that cost.
        bill: Bill,
    },
    /// The run has ended, for now.
    Ended(Outcome),
    /// It goes on, after an end or a crash.
    Resumed {
        /// Other limits from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limits: Option<Limits>,
    },
    /// All before this was copied from another run.
    Forked {
        /// That run.
        run: String,
        /// The last turn that was copied.
        turn: u32,
    },
    /// From now on another model is asked.
    Switched {
        /// Its format.
        wire: Wire,
        /// The model.
        model: String,
    },
}

impl Event {
    /// What it adds to the books of the run. What a sub-agent used is in its own events.
    #[must_use]
    pub fn spent(&self) -> Spent {
        let mut spent = Spent::default();
        match self {
            Self::Answered { bill, .. }
            | Self::Abandoned { bill, .. }
            | Self::Compacted { bill, .. }
            | Self::CompactionFailed { bill, .. }
            | Self::Aside { bill, .. } => spent.answer(&bill.usage, bill.pico),
            Self::CallBegan { .. } => spent.calls = 1,
            _ => {}
        }
        spent
    }
}

/// An event with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Happened {
    /// When, in milliseconds UTC.
    pub at_ms: i64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}
