//! What the model is asked beside the conversation: questions, and the summary of a compaction.

use std::time::Duration;

use super::Agent;
use super::ask::Aside;
use super::retry::{backoff, pause};
use crate::agent::journal::JournalError;
use crate::agent::machine::{Event, Stop};
use crate::agent::model::{Failure, Reply};
use crate::agent::notice::Notice;
use crate::agent::talk::CallResult;

/// What a call is answered with that is not made any more.
const NOT_MADE: &str = "not run: the run had come to an end before";

/// What a conversation is summed up with.
pub const SUM_UP: &str = "Write a summary of the conversation so far, to go on from in its place. Keep: \
the task as it was given, what was decided and why, what was done (files, commands, their \
outcomes), what is known and where it stands, what is left to do. Leave out what no longer \
matters. Call no tool. Answer with the summary only.";

impl Agent {
    /// Asks the model something beside the conversation, by its next request with a text behind it:
    /// all before that is read from the cache. The answer is kept ([`AgentRun::aside`]), and no part
    /// of the conversation. `None` where the model gave no text. No cap but cancelling is looked at.
    ///
    /// [`AgentRun::aside`]: crate::agent::machine::AgentRun::aside
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn aside(&mut self, text: &str) -> Result<Option<String>, JournalError> {
        let open: Vec<String> = self.run.open_calls().map(|call| call.id.clone()).collect();
        for id in open {
            // Every call needs its result before anything else is said.
            self.answer(CallResult::failed(&id, NOT_MADE), Duration::ZERO)?;
        }
        let upto = self.run.entries().len();
        let max_tokens = self.run.setup().max_tokens;
        let options = self.parts.options.attempts;
        for attempt in 1..=options {
            if self.parts.cancelled.is_cancelled() {
                break;
            }
            let aside = Aside { text, upto };
            let failed = match self.ask(Some(aside), max_tokens, false).await? {
                Ok(Reply { whole, bill }) => {
                    let answer = whole.answer.text();
                    self.record(Event::Aside {
                        answer: answer.clone(),
                        bill,
                    })?;
                    self.parts.journal.settle()?;
                    return Ok(Some(answer).filter(|answer| !answer.trim().is_empty()));
                }
                Err(failed) => failed,
            };
            let wait = match failed.failure {
                Failure::Again(after) if attempt < options => {
                    Some(after.unwrap_or_else(|| backoff(attempt)))
                }
                _ => None,
            };
            self.abandoned(&failed, wait)?;
            let Some(wait) = wait else { break };
            pause(&self.parts.cancelled, wait).await;
        }
        Ok(None)
    }

    /// An attempt at the summary that takes the place of what stands before `from`.
    pub(super) async fn compact(&mut self, from: usize) -> Result<(), JournalError> {
        self.attempts += 1;
        self.tell(Notice::Compacting {
            tokens: self.run.size(),
        });
        let max_tokens = self.run.setup().max_tokens;
        let aside = Aside {
            text: SUM_UP,
            upto: self.run.to_sum_up(from).len(),
        };
        let answer = self.ask(Some(aside), max_tokens, false).await?;
        let (reason, bill) = match answer {
            Ok(Reply { whole, bill }) => {
                let summary = whole.answer.text();
                let said = !summary.trim().is_empty() && whole.answer.calls().next().is_none();
                if said && whole.stop == Stop::EndTurn {
                    self.attempts = 0;
                    self.tell(Notice::Compacted(Ok(&bill)));
                    return self.record(Event::Compacted {
                        summary,
                        from,
                        bill,
                    });
                }
                ("the model gave no whole summary".to_owned(), bill)
            }
            // Not the compaction has failed: the next one starts anew.
            Err(attempt) if self.parts.cancelled.is_cancelled() => {
                self.attempts = 0;
                return self.abandoned(&attempt, None);
            }
            Err(attempt) => {
                let again = matches!(attempt.failure, Failure::Again(_));
                if again && self.attempts < self.parts.options.attempts {
                    return self.failed(attempt, max_tokens).await;
                }
                (attempt.reason, *attempt.bill)
            }
        };
        self.attempts = 0;
        self.tell(Notice::Compacted(Err(&reason)));
        self.record(Event::CompactionFailed { reason, bill })
    }
}
