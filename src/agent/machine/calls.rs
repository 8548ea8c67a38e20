//! The calls of an answer, from their beginning until all have their results, which become the next
//! turn of the user.

use serde::{Deserialize, Serialize};

use super::repetition::Verdict;
use super::{AgentRun, Outcome, Setup};
use crate::agent::talk::{CallResult, ToolCall};
use crate::guard::reminder::reminder;

/// A call, and how far it has come.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pending {
    pub call: ToolCall,
    pub begun: bool,
    pub result: Option<CallResult>,
}

impl AgentRun {
    /// Calls that have no result yet.
    pub fn open_calls(&self) -> impl Iterator<Item = &ToolCall> {
        let open = self
            .pending
            .iter()
            .filter(|pending| pending.result.is_none());
        open.map(|pending| &pending.call)
    }

    /// The idempotency key of a call of the newest answer.
    #[must_use]
    pub fn key(&self, call: &str) -> String {
        let Setup { run, agent, .. } = &self.setup;
        format!("{run}/{agent}/{}/{call}", self.turns)
    }

    /// The same for a call of the answer that is still coming in.
    #[must_use]
    pub fn coming_key(&self, call: &str) -> String {
        let Setup { run, agent, .. } = &self.setup;
        format!("{run}/{agent}/{}/{call}", self.turns + 1)
    }

    /// Takes in the beginning of a call; its answer may not be whole yet.
    pub(super) fn began(&mut self, call: &ToolCall) {
        self.spent.calls = self.spent.calls.saturating_add(1);
        let known = self.pending.iter_mut().find(|p| p.call.id == call.id);
        if let Some(known) = known {
            known.begun = true;
        } else {
            self.early.push(Pending {
                call: call.clone(),
                begun: true,
                result: None,
            });
        }
    }

    /// Takes in the result of a call.
    pub(super) fn ended(&mut self, result: &CallResult) {
        let mut all = self.pending.iter_mut().chain(&mut self.early);
        let open = all.find(|p| p.call.id == result.call && p.result.is_none());
        // A result that comes late, behind a time limit, has no place any more.
        if let Some(open) = open {
            open.result = Some(CallResult::new(
                &result.call,
                result.text.to_string(),
                result.is_error,
            ));
            self.close();
        }
    }

    /// Turns results into the user's turn once all are there.
    pub(super) fn close(&mut self) {
        if self.pending.is_empty() || self.pending.iter().any(|p| p.result.is_none()) {
            return;
        }
        let (calls, mut results): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending)
            .into_iter()
            .filter_map(|pending| Some((pending.call, pending.result?)))
            .unzip();
        let threshold = self.setup.loop_threshold;
        match self
            .repetition
            .round(threshold, &self.entries, &calls, &results)
        {
            Verdict::Fine => {}
            Verdict::Tell { call, text } => {
                if let Some(result) = results.get_mut(call) {
                    // As a reminder, so that a gateway still sees the same result.
                    result.text.push_str(&reminder(&text));
                }
            }
            Verdict::End(tools) => self.outcome = Some(Outcome::LoopDetected(tools)),
        }
        let texts = std::mem::take(&mut self.queued);
        self.push(results, texts);
    }
}
