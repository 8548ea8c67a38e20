//! What is to be done next: nothing, calls, a compaction, or the next answer, as the caps allow.

use super::{AgentRun, Outcome, Spent};
use crate::agent::talk::{Entry, ToolCall};

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask the model to go on.
    CallModel {
        /// The output limit of this answer, in tokens.
        max_tokens: u32,
    },
    /// Ask the model to sum up the conversation, to put that in the place of all before `from`.
    Compact {
        /// The first entry that is kept.
        from: usize,
    },
    /// Make these calls, and tell the end of each.
    CallTools(Vec<ToDo>),
    /// Nothing is left to do. If the run does not know it yet, tell it as
    /// [`Event::Ended`](super::Event::Ended).
    Done(Outcome),
}

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToDo {
    /// The call.
    pub call: ToolCall,
    /// Its idempotency key: run, agent, turn, id of the call.
    pub key: String,
    /// It has begun before, and nobody knows how far it came.
    pub begun: bool,
}

/// What the world looks like to a run.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// Now, in milliseconds UTC.
    pub now_ms: i64,
    /// What the whole run has used, where it has several agents.
    pub whole_run: Option<&'a Spent>,
}

impl AgentRun {
    /// Whether a call of the answer that is still coming in may begin. Under a cap on calls none
    /// may: a batch is made whole or not at all, and its size is not known yet.
    #[must_use]
    pub fn may_begin(&self, call: &ToolCall, situation: Situation<'_>) -> bool {
        let spent = situation.whole_run.unwrap_or(&self.spent);
        let worked = self.worked_ms(situation.now_ms);
        let limits = &self.setup.limits;
        self.repetition.refusal(call).is_none()
            && limits.calls.is_none()
            && limits.before_tools(1, spent, worked).is_none()
    }

    /// What is to be done next. Asking changes nothing.
    #[must_use]
    pub fn next(&self, situation: Situation<'_>) -> Step {
        if let Some(outcome) = &self.outcome {
            return Step::Done(outcome.clone());
        }
        let spent = situation.whole_run.unwrap_or(&self.spent);
        let worked = self.worked_ms(situation.now_ms);
        let limits = &self.setup.limits;
        let todo: Vec<ToDo> = self
            .pending
            .iter()
            .filter(|pending| pending.result.is_none())
            .map(|pending| ToDo {
                call: pending.call.clone(),
                key: self.key(&pending.call.id),
                begun: pending.begun,
            })
            .collect();
        if !todo.is_empty() {
            let new = todo.iter().filter(|todo| !todo.begun).count();
            return match limits.before_tools(new, spent, worked) {
                Some(outcome) => Step::Done(outcome),
                None => Step::CallTools(todo),
            };
        }
        if !self.can_go_on() {
            return Step::Done(Outcome::EndTurn);
        }
        if let Some(outcome) = limits.before_model(self.turns, spent, worked) {
            return Step::Done(outcome);
        }
        if let Some(from) = self.compaction() {
            return Step::Compact { from };
        }
        if self.too_long {
            return Step::Done(Outcome::ContextWindow);
        }
        let raise = 1 + u32::from(self.raised);
        Step::CallModel {
            max_tokens: self.setup.max_tokens.saturating_mul(raise),
        }
    }

    /// Whether anything is left to do without a new word of the user.
    pub(super) fn can_go_on(&self) -> bool {
        let asked = matches!(self.entries.last(), Some(Entry::User { .. }));
        asked || self.paused || !self.pending.is_empty()
    }
}
