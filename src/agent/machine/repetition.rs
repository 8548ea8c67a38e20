//! Calls that repeat without getting anywhere: the gateway's own detectors, and what the loop does
//! about them, each step at the next multiple of the threshold: tell the model in the result,
//! refuse the calls, end the run.

use serde::{Deserialize, Serialize};

use crate::agent::talk::{CallResult, Entry, ToolCall};
use crate::guard::loops::{self, Action, Detector, History, Memo, Policy, Rule};
use crate::provider::view::{AnsweredCall, History as Held};
use crate::provider::wire::Wire;

/// Turns in which a refused call is tried again before the run ends.
const MAX_REFUSED_TURNS: u32 = 3;

/// What the newest results have shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing new.
    Fine,
    /// The model is to be told this in a result.
    Tell {
        /// Index of the call.
        call: usize,
        /// What.
        text: String,
    },
    /// The run is to end; the tools in the loop.
    End(Vec<String>),
}

/// The memory of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Repetition {
    history: History,
    /// It saves work and decides nothing, so that a checkpoint goes without it.
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

    /// Takes a round of calls with their results, in the order of the calls. `past` is the
    /// conversation up to and with the answer that made them.
    pub fn round(
        &mut self,
        threshold: u32,
        past: &[Entry],
        calls: &[ToolCall],
        results: &[CallResult],
    ) -> Verdict {
        if threshold == 0 || calls.is_empty() {
            return Verdict::Fine;
        }
        // A refusal is the loop's own word, not an outcome: only calls that were made are looked at.
        let all = calls.iter().cloned().zip(results.iter().cloned());
        let (made, came): (Vec<_>, Vec<_>) =
            all.filter(|(call, _)| self.refusal(call).is_none()).unzip();
        let seen = match made.is_empty() {
            true => loops::Seen::default(),
            false => self.look(threshold, &made, &came),
        };
        if made.len() < calls.len() {
            self.tries += 1;
            if self.tries >= MAX_REFUSED_TURNS {
                return Verdict::End(names(&self.refused));
            }
            return Verdict::Fine;
        }
        self.tries = 0;
        let Some(worst) = seen.findings.first() else {
            // What was refused may be tried again once something else has moved on.
            let mut ends = made.iter().zip(&came);
            if !self.refused.is_empty() && ends.any(|(call, end)| is_new(past, call, end)) {
                self.refused.clear();
            }
            return Verdict::Fine;
        };
        let tools = worst.tools.join(", ");
        let count = worst.count;
        let text = match Action::from_word(&worst.action) {
            Some(Action::Answer) => return Verdict::End(worst.tools.clone()),
            Some(Action::Block) if worst.fresh => {
                self.refused = members(past, &worst.tools, worst.period);
                format!(
                    "{tools} repeated {count} times with the same outcome. The same call will not \
                     be run again."
                )
            }
            Some(Action::Hint) if worst.fresh => format!(
                "This is repetition {count} of {tools} with the same outcome. Repeating it will \
                 not help: change the input, use another tool, or say what is missing."
            ),
            _ => return Verdict::Fine,
        };
        let looping = |call: &ToolCall| worst.tools.contains(&call.name);
        let call = calls.iter().rposition(looping).unwrap_or(calls.len() - 1);
        Verdict::Tell { call, text }
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
        let Ok(mut view) = Wire::Messages.view(body.as_bytes()) else {
            return loops::Seen::default();
        };
        // What came before is held here, as it may be by a provider.
        view.history = Held::Continues(String::new());
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

/// The newest calls of these tools, as many as take turns. All of a cycle are refused: an agent
/// would only go on with the partner of one.
fn members(past: &[Entry], tools: &[String], period: u32) -> Vec<ToolCall> {
    let mut members: Vec<ToolCall> = Vec::new();
    let answers = past.iter().rev().filter_map(|entry| match entry {
        Entry::Assistant(answer) => Some(answer),
        Entry::User { .. } => None,
    });
    for answer in answers {
        for call in answer.calls().filter(|call| tools.contains(&call.name)) {
            let known = |member: &ToolCall| member.name == call.name && member.input == call.input;
            if !members.iter().any(known) {
                members.push(call.clone());
            }
        }
        // An answer's calls belong together, however many.
        if members.len() >= period.max(1) as usize {
            break;
        }
    }
    members
}

/// A success that the conversation has not seen.
fn is_new(past: &[Entry], call: &ToolCall, end: &CallResult) -> bool {
    let seen = past.windows(2).any(|pair| match pair {
        [Entry::Assistant(answer), Entry::User { results, .. }] => answer
            .calls()
            .filter(|known| known.name == call.name && known.input == call.input)
            .any(|known| {
                results
                    .iter()
                    .any(|r| r.call == known.id && r.text == end.text)
            }),
        _ => false,
    });
    !end.is_error && !seen
}
