//! Takes in an answer of the model: what is kept of it, which calls it leaves to make, and what its
//! stop means. Of an answer that is not kept, the calls that had begun are remembered.

use super::calls::Pending;
use super::{AgentRun, Bill, Outcome, Stop};
use crate::agent::talk::{Answer, CallResult, Entry, ToolCall};

/// What a call that was never made is answered with.
const NOT_RUN: &str = "not run: the answer that asked for it was cut off";

/// What the model is told of calls whose answer broke off after they had begun.
const BROKE_OFF: &str = "[An answer broke off while it was coming in. These calls of it had begun \
                         already; look at what they have done before doing it again.]";

impl AgentRun {
    /// Takes in an answer that has come whole, or up to its limit.
    pub(super) fn answered(&mut self, answer: &Answer, stop: &Stop, open_call: bool, bill: &Bill) {
        self.paused = false;
        match stop {
            Stop::Refusal(category) => {
                self.outcome = Some(Outcome::Refusal(category.clone()));
                return self.remember();
            }
            Stop::ContextWindow => {
                self.remember();
                return self.need_room();
            }
            Stop::MaxTokens if open_call || answer.text().trim().is_empty() => {
                if self.raised {
                    self.outcome = Some(Outcome::Truncated);
                }
                self.raised = true;
                return self.remember();
            }
            _ => {}
        }
        let early = std::mem::take(&mut self.early);
        self.raised = false;
        self.made_room = false;
        let calls: Vec<ToolCall> = answer.calls().cloned().collect();
        let kept = self.keep(answer, bill);
        for call in calls {
            let known = early.iter().find(|early| early.call.id == call.id);
            let refusal = self.repetition.refusal(&call);
            let result = match (known, stop, refusal) {
                (Some(known), ..) => known.result.clone(),
                (None, Stop::MaxTokens, _) => Some(CallResult::failed(&call.id, NOT_RUN)),
                (None, _, Some(text)) => Some(CallResult::failed(&call.id, &text)),
                (None, _, None) => None,
            };
            self.pending.push(Pending {
                begun: known.is_some(),
                call,
                result,
            });
        }
        match stop {
            Stop::Pause => self.paused = self.pending.is_empty(),
            Stop::MaxTokens => self.outcome = Some(Outcome::Truncated),
            Stop::Unknown(word) if self.pending.is_empty() => {
                self.outcome = Some(Outcome::UnknownStop(word.clone()));
            }
            // The conversation does not show that the model has said its last.
            _ if !kept => self.outcome = Some(Outcome::EndTurn),
            _ => {}
        }
        self.close();
    }

    /// Puts an answer into the conversation. One that continues a paused one joins it. Whether there
    /// was anything to keep.
    fn keep(&mut self, answer: &Answer, bill: &Bill) -> bool {
        let mut answer = answer.clone();
        // No assembler leaves an empty text, but a journal may come from anywhere.
        answer.blocks.retain(|block| !block.kind.is_blank());
        if answer.blocks.is_empty() {
            return false;
        }
        if let Some(Entry::Assistant(before)) = self.entries.last_mut() {
            before.blocks.append(&mut answer.blocks);
        } else {
            self.entries.push(Entry::Assistant(answer));
        }
        let usage = &bill.usage;
        let prompt = usage.prompt().or(usage.uncached);
        if let (Some(prompt), Some(output)) = (prompt, usage.output) {
            self.size = Some(prompt.saturating_add(output));
            self.sized = self.entries.len();
        }
        true
    }

    /// Calls began while their answer was still coming in, and it never became whole: they are no
    /// part of the conversation, but what they did is done. The model is told, so that it does not
    /// do it once more.
    pub(super) fn remember(&mut self) {
        let early = std::mem::take(&mut self.early);
        if early.is_empty() {
            return;
        }
        let told = early.iter().map(|Pending { call, result, .. }| {
            let end = match result {
                Some(result) if result.is_error => format!("failed: {}", result.text),
                Some(result) => format!("result: {}", result.text),
                None => "outcome unknown".to_owned(),
            };
            format!("\n- {} {}: {end}", call.name, call.input)
        });
        let told: String = told.collect();
        self.push(Vec::new(), vec![format!("{BROKE_OFF}{told}")]);
    }
}
