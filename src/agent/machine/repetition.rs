//! Calls that repeat without getting anywhere: the gateway's own detectors, and what the loop does
//! about them, each step at the next multiple of the threshold: tell the model in the result,
//! refuse the calls, end the run.

use serde::{Deserialize, Serialize};

use crate::agent::talk::{CallResult, ToolCall};
use crate::guard::loops::{self, Action, Detector, History, Memo, Policy, Rule};
use crate::provider::view::AnsweredCall;
use crate::provider::wire::Wire;

/// Turns in which a refused call is tried again before the run ends.
const MAX_REFUSED_TURNS: u32 = 3;

/// What the newest results have shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing new.
    Fine,
    /// The model is to be told this.
    Tell(String),
    /// The run is to end; the tools in the loop.
    End(Vec<String>),
}

/// The memory of a run. What it knows follows from the conversation, so that only the refusals are
/// kept in a checkpoint.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Repetition {
    #[serde(skip)]
    history: History,
    #[serde(skip)]
    memo: Memo,
    /// Calls that are refused until another call brings something new.
    refused: Vec<ToolCall>,
    /// Answers in a row that tried them all the same.
    tries: u32,
}

impl Clone for Repetition {
    fn clone(&self) -> Self {
        Self {
            history: self.history.clone(),
            // A memo saves work and decides nothing.
            memo: Memo::default(),
            refused: self.refused.clone(),
            tries: self.tries,
        }
    }
}

fn policy(threshold: u32) -> Policy {
    let mut policy = Policy::of(Action::Hint);
    for detector in Detector::ALL {
        let own = policy.rule(detector).threshold;
        // Results that stay the same are what waiting looks like: told apart by a higher count.
        let threshold = match detector {
            Detector::SameCall | Detector::Cycle => threshold.max(2),
            Detector::SameError | Detector::NoProgress => own.max(threshold),
        };
        *policy.rule_mut(detector) = Rule {
            threshold,
            ladder: vec![Action::Hint, Action::Block, Action::Answer],
        };
    }
    policy
}

impl Repetition {
    /// The text with which a call of the newest answer is refused, if it is.
    #[must_use]
    pub fn refusal(&self, call: &ToolCall) -> Option<String> {
        let same = |known: &ToolCall| known.name == call.name && known.input == call.input;
        self.refused.iter().any(same).then(|| {
            format!(
                "not run: this call of {} has been made again and again with the same outcome. \
                 Do something else, or say what is missing.",
                call.name
            )
        })
    }

    /// The user has spoken: counting starts again.
    pub fn heard(&mut self) {
        *self = Self::default();
    }

    /// Takes a round of calls with their results, in the order of the calls.
    pub fn round(&mut self, threshold: u32, calls: &[ToolCall], results: &[CallResult]) -> Verdict {
        if threshold == 0 || calls.is_empty() {
            return Verdict::Fine;
        }
        let refused = calls.iter().any(|call| self.refusal(call).is_some());
        let seen = self.look(threshold, calls, results);
        if refused {
            self.tries += 1;
            if self.tries >= MAX_REFUSED_TURNS {
                return Verdict::End(names(&self.refused));
            }
            return Verdict::Fine;
        }
        self.tries = 0;
        let Some(worst) = seen.findings.first() else {
            // What was refused may be tried again once something else has moved on.
            if results.iter().any(|result| !result.is_error) {
                self.refused.clear();
            }
            return Verdict::Fine;
        };
        match Action::from_word(&worst.action) {
            Some(Action::Answer) => Verdict::End(worst.tools.clone()),
            Some(Action::Block) if worst.fresh => {
                for call in calls.iter().filter(|call| worst.tools.contains(&call.name)) {
                    self.refused.push(call.clone());
                }
                Verdict::Tell(format!(
                    "[{} has now been repeated {} times with the same outcome. The same call will \
                     not be run again.]",
                    worst.tools.join(", "),
                    worst.count
                ))
            }
            Some(Action::Hint) if worst.fresh => Verdict::Tell(format!(
                "[This is repetition {} of {} with the same outcome. Repeating it will not help: \
                 change the input, use another tool, or say what is missing.]",
                worst.count,
                worst.tools.join(", ")
            )),
            _ => Verdict::Fine,
        }
    }

    fn look(&mut self, threshold: u32, calls: &[ToolCall], results: &[CallResult]) -> loops::Seen {
        let answered: Vec<AnsweredCall> = calls
            .iter()
            .map(|call| AnsweredCall {
                id: call.id.clone(),
                name: call.name.clone(),
                input: call.input.clone().into_bytes(),
                input_bytes: call.input.len() as u64,
                complete: true,
            })
            .collect();
        self.history.answered(&answered);
        let blocks: Vec<_> = results
            .iter()
            .map(|result| {
                serde_json::json!({
                    "type": "tool_result",
                    "tool_use_id": result.call,
                    "content": result.text,
                    "is_error": result.is_error,
                })
            })
            .collect();
        // The detectors read a request; this is the part of one that is new.
        let body = serde_json::json!({"messages": [{"role": "user", "content": blocks}]});
        let body = body.to_string();
        let Ok(view) = Wire::Messages.view(body.as_bytes()) else {
            return loops::Seen::default();
        };
        let policy = policy(threshold);
        let seen = loops::look(
            body.as_bytes(),
            &view,
            &policy,
            &self.memo,
            Some(&self.history),
        );
        self.history = seen.history.clone();
        seen
    }
}

fn names(calls: &[ToolCall]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for call in calls {
        if !names.contains(&call.name) {
            names.push(call.name.clone());
        }
    }
    names
}
