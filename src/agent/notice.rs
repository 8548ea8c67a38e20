//! What a run tells while it is under way: for terminals, traces, tests.

use std::sync::Arc;
use std::time::Duration;

use super::machine::{AgentRun, Bill, Outcome, Stop};
use super::model::Headers;
use super::talk::{CallResult, ToolCall};

/// Something worth telling.
#[derive(Debug, Clone, Copy)]
pub enum Notice<'a> {
    /// The run begins, or goes on.
    Began(&'a AgentRun),
    /// The model is asked; attempts from 1.
    Asked {
        /// Number of the turn, from 1.
        turn: u32,
        /// Number of the attempt, from 1.
        attempt: u32,
    },
    /// Text of the answer, as it comes.
    Text(&'a str),
    /// The model thinks.
    Thinking,
    /// A call of this tool begins to come.
    CallOpened(&'a str),
    /// Forget what came of this answer: it broke off, and is asked for again.
    Reset {
        /// Why.
        reason: &'a str,
        /// What is known of its cost.
        bill: &'a Bill,
        /// How long until the next attempt; `None` when there is none.
        wait: Option<Duration>,
    },
    /// Another model goes on from here, which cannot read this many blocks of reasoning: they are not
    /// sent to it.
    ThinkingDropped(usize),
    /// The answer is whole.
    Answered {
        /// What it cost.
        bill: &'a Bill,
        /// Why it ended.
        stop: &'a Stop,
        /// How long it took.
        took: Duration,
    },
    /// A call begins.
    CallBegan {
        /// The call.
        call: &'a ToolCall,
        /// Its idempotency key.
        key: &'a str,
    },
    /// A call has ended.
    CallEnded {
        /// With this.
        result: &'a CallResult,
        /// How long it took; nothing for one that was never made.
        took: Duration,
    },
    /// The conversation is being summed up.
    Compacting {
        /// Its size, in tokens.
        tokens: u64,
    },
    /// It was, and what that cost; or why not.
    Compacted(Result<&'a Bill, &'a str>),
    /// A plan was made; one with a number above 1 takes the place of one that failed.
    Planned {
        /// Its number, from 1.
        number: u32,
        /// What is to be done, step by step.
        steps: &'a [String],
    },
    /// A step of a plan, or an attempt, was judged.
    Judged {
        /// It is done.
        passed: bool,
        /// What was found.
        why: &'a str,
    },
    /// What the model says went wrong in an attempt; the next one is told.
    Reflected(&'a str),
    /// The run has ended.
    Ended {
        /// How.
        outcome: &'a Outcome,
        /// Its last state.
        run: &'a AgentRun,
    },
}

/// Who is told. Called between the pieces of a stream: it must not block.
pub trait Listener: Send + Sync {
    /// Takes a notice of the agent of this name.
    fn notice(&self, agent: &str, notice: Notice<'_>);

    /// Headers of the request that this agent is about to send: what it has last been told is that
    /// the model is asked.
    fn headers(&self, _agent: &str) -> Headers {
        Headers::new()
    }
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Listener for Silent {
    fn notice(&self, _agent: &str, _notice: Notice<'_>) {}
}

/// Tells several, in their order.
#[derive(Clone, Default)]
pub struct Several(pub Vec<Arc<dyn Listener>>);

impl Listener for Several {
    fn notice(&self, agent: &str, notice: Notice<'_>) {
        for listener in &self.0 {
            listener.notice(agent, notice);
        }
    }

    fn headers(&self, agent: &str) -> Headers {
        let all = self.0.iter().flat_map(|listener| listener.headers(agent));
        all.collect()
    }
}
