//! Makes the calls of an answer, and books what they came to.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::Agent;
use crate::agent::journal::JournalError;
use crate::agent::machine::{Event, Outcome, Situation, Spent, ToDo};
use crate::agent::notice::Notice;
use crate::agent::talk::{CallResult, ToolCall};
use crate::agent::tools::{Batch, CANCEL_GRACE};

/// How long the results of cancelled calls are waited for.
const PATIENCE: Duration = CANCEL_GRACE.saturating_add(Duration::from_millis(50));

/// What a call is answered with of which nobody knows how far it came.
pub const INTERRUPTED: &str = "interrupted, outcome unknown: the program was stopped while this \
                               ran. Look at what it has done before doing it again.";
/// ... and one that was under way when the run was cancelled.
const CANCELLED: &str = "cancelled by the user while it ran, outcome unknown";

impl Agent {
    /// Whether a call of the answer that is still coming in may begin.
    pub(super) fn may_begin(&self, call: &ToolCall) -> bool {
        let whole = self.parts.budget.spent();
        let situation = Situation {
            now_ms: self.parts.clock.utc_ms(),
            whole_run: Some(&whole),
        };
        self.run.may_begin(call, situation)
    }

    /// Books the beginning of a call. Once the journal is settled it may [`Self::start`].
    pub(super) fn book_call(&mut self, call: &ToolCall, key: &str) -> Result<(), JournalError> {
        self.tell(Notice::CallBegan { call, key });
        self.record(Event::CallBegan {
            call: call.clone(),
            key: key.to_owned(),
        })?;
        self.live.insert(call.id.clone());
        Ok(())
    }

    /// Makes a call that has begun.
    pub(super) fn start(&mut self, call: ToolCall, key: String) {
        let parts = &self.parts;
        let batch = self.batch.get_or_insert_with(|| {
            Batch::new(Arc::clone(&parts.toolbox), parts.cancelled.child_token())
        });
        batch.start(call, key);
    }

    /// Makes these calls, and waits for the end of each.
    pub(super) async fn call(&mut self, todo: Vec<ToDo>) -> Result<(), JournalError> {
        let mut open = HashSet::new();
        let mut new = Vec::new();
        for ToDo { call, key, begun } in todo {
            let id = call.id.clone();
            if begun && !self.live.contains(&id) {
                let again = self.parts.toolbox.get(&call.name);
                if !again.is_some_and(|tool| tool.manners().idempotent) {
                    self.answer(CallResult::failed(&id, INTERRUPTED), Duration::ZERO)?;
                    continue;
                }
            }
            if !self.live.contains(&id) {
                self.book_call(&call, &key)?;
                new.push((call, key));
            }
            open.insert(id);
        }
        self.parts.journal.settle()?;
        for (call, key) in new {
            self.start(call, key);
        }
        let mut exception = None;
        let cancelled = self.parts.cancelled.clone();
        // Cancelled calls get a moment to end in order, and sub-agents to tell what they have used.
        let patience = async move {
            cancelled.cancelled().await;
            tokio::time::sleep(PATIENCE).await;
        };
        tokio::pin!(patience);
        while let Some(batch) = self.batch.as_mut().filter(|_| !open.is_empty()) {
            let end = tokio::select! {
                biased;
                end = batch.next() => end,
                () = &mut patience => None,
            };
            let Some(end) = end else { break };
            open.remove(&end.result.call);
            self.book_delegated()?;
            self.answer(end.result, end.took)?;
            exception = exception.or(end.exception);
        }
        self.batch = None;
        self.live.clear();
        self.book_delegated()?;
        let mut left: Vec<String> = open.into_iter().collect();
        left.sort_unstable();
        for id in left {
            self.answer(CallResult::failed(&id, CANCELLED), Duration::ZERO)?;
        }
        match exception {
            Some(words) => self.record(Event::Ended(Outcome::ToolException(words))),
            None => Ok(()),
        }
    }

    /// A call has its result.
    pub(super) fn answer(
        &mut self,
        result: CallResult,
        took: Duration,
    ) -> Result<(), JournalError> {
        self.tell(Notice::CallEnded {
            result: &result,
            took,
        });
        self.record(Event::CallEnded { result })
    }

    /// Books what sub-agents have used since it was last looked at.
    fn book_delegated(&mut self) -> Result<(), JournalError> {
        let new: Vec<_> = {
            let mut delegated = self
                .parts
                .delegated
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            delegated.drain(..).collect()
        };
        for (call, spent) in new
            .into_iter()
            .filter(|(_, spent)| *spent != Spent::default())
        {
            self.record(Event::Delegated { call, spent })?;
        }
        Ok(())
    }
}
