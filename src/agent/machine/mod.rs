//! The loop itself, without I/O: what comes next, and what follows from what happened.
//!
//! A driver asks [`AgentRun::next`], does that, and tells it as an [`Event`]. The state is the fold
//! of its events and nothing else, so a journal of them brings a run back wherever it was killed,
//! and a serialised [`AgentRun`] stands for all events up to it.
//!
//! | the model stops with | what follows |
//! |---|---|
//! | end of turn, stop sequence | the run ends, unless it made calls all the same: those are answered |
//! | tool use | its calls are made; without any, the run ends |
//! | output limit, in the middle of a call or before any text | the answer is dropped, and asked for again with twice the limit, once; then the run ends as truncated |
//! | output limit, else | the run ends as truncated; the text is kept, no call is made |
//! | pause, compaction by the provider | the answer goes back as it is, and the model goes on |
//! | refusal | the run ends; the answer is dropped, no call is made |
//! | context window | the answer is dropped, the conversation compacted, once; then the run ends |
//! | a word unknown here | as tool use if it made calls; else the run ends as `unknown_stop` |
//!
//! An answer without any block is left out of the conversation, and ends the run unless it only
//! paused; what the user says next joins the turn before it, so that speakers alternate.
//!
//! A conversation is compacted when it has grown to a size, or does not fit: a summary takes the
//! place of what is older than a cut ([`cut`]). The summary is asked for by the run's own next
//! request with a text behind it, so that it reads the cache; only where nothing would fit behind
//! the conversation, what is kept is left out of that request ([`AgentRun::to_sum_up`]). What the
//! user said last stays as it was said. A failed compaction changes nothing but the books.
//!
//! Here is the state, and what can be read of it. What is to be done is told by `next` within the
//! `limits`; what has happened is taken in by `apply`, with `answer`, `calls` (which `repetition`
//! watches) and `compaction` (to a `size`).

mod answer;
mod apply;
mod calls;
mod compaction;
mod event;
mod limits;
mod next;
mod outcome;
mod repetition;
mod size;

use serde::{Deserialize, Serialize};

use calls::Pending;
pub use event::{Bill, Event, Happened, Setup, ToolSpec};
pub use limits::{DEFAULT_TURNS, Limits, Spent};
pub use next::{Situation, Step, ToDo};
pub use outcome::{Outcome, Stop};
use repetition::Repetition;
pub use size::{cut, estimate};

use super::talk::Entry;

/// The state of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentRun {
    setup: Setup,
    entries: Vec<Entry>,
    /// Calls of the newest answer, until all have their results.
    pending: Vec<Pending>,
    /// Calls that began before their answer was whole, and results of such.
    early: Vec<Pending>,
    /// What the user said while calls were without a result.
    queued: Vec<String>,
    turns: u32,
    spent: Spent,
    /// The newest answer wants to be continued as it is.
    paused: bool,
    /// The output limit has been raised since the last whole answer.
    raised: bool,
    /// The conversation has to be compacted before the model is asked again.
    too_long: bool,
    /// It was compacted for that reason, and no answer has come since.
    made_room: bool,
    /// No compaction before this turn.
    compact_from: u32,
    /// The first text of the conversation is a summary.
    summed_up: bool,
    /// The newest answer to what was asked beside the conversation.
    #[serde(default)]
    aside: Option<String>,
    /// Tokens of the conversation up to `sized`, as the provider counted them.
    size: Option<u64>,
    sized: usize,
    outcome: Option<Outcome>,
    /// Time at work before `since_ms`.
    worked_ms: u64,
    since_ms: i64,
    repetition: Repetition,
}

impl AgentRun {
    /// A run that begins with this.
    #[must_use]
    pub fn new(setup: Setup, at_ms: i64) -> Self {
        Self {
            setup,
            entries: Vec::new(),
            pending: Vec::new(),
            early: Vec::new(),
            queued: Vec::new(),
            turns: 0,
            spent: Spent::default(),
            paused: false,
            raised: false,
            too_long: false,
            made_room: false,
            compact_from: 0,
            summed_up: false,
            aside: None,
            size: None,
            sized: 0,
            outcome: None,
            worked_ms: 0,
            since_ms: at_ms,
            repetition: Repetition::default(),
        }
    }

    /// The run that these events make; `None` where the first is no beginning.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Happened>) -> Option<Self> {
        let mut events = events.into_iter();
        let first = events.next()?;
        let Event::Began(setup) = &first.event else {
            return None;
        };
        let mut run = Self::new(setup.as_ref().clone(), first.at_ms);
        for happened in events {
            run.apply(happened);
        }
        Some(run)
    }

    /// What it began with, with what was changed since.
    #[must_use]
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The conversation. It ends with a turn of the user when the model is to be asked.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What it has used, with its sub-agents.
    #[must_use]
    pub const fn spent(&self) -> &Spent {
        &self.spent
    }

    /// Answers of the model so far, those to compactions not counted.
    #[must_use]
    pub const fn turns(&self) -> u32 {
        self.turns
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Every call that has begun or is to be made has its result.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.open_calls().next().is_none() && self.early.is_empty()
    }

    /// The text of the newest answer.
    #[must_use]
    pub fn answer(&self) -> Option<String> {
        self.entries.iter().rev().find_map(|entry| match entry {
            Entry::Assistant(answer) => Some(answer.text()),
            Entry::User { .. } => None,
        })
    }

    /// The newest answer to what was asked beside the conversation ([`Event::Aside`]).
    #[must_use]
    pub fn aside(&self) -> Option<&str> {
        self.aside.as_deref()
    }

    /// Time at work up to now, in milliseconds.
    #[must_use]
    pub fn worked_ms(&self, now_ms: i64) -> u64 {
        if self.outcome.is_some() {
            return self.worked_ms;
        }
        let since = u64::try_from(now_ms.saturating_sub(self.since_ms)).unwrap_or(0);
        self.worked_ms.saturating_add(since)
    }
}
