//! Loops: calls that repeat without getting anywhere, found in the history of a request.
//!
//! Nothing is counted from request to request. The history that a client sends with each request
//! is the evidence, so a restarted gateway or another replica finds the same; only where the
//! provider holds the history, what it showed is carried along as a [`History`].
//!
//! A history is read message by message, and what is found at one depends on those before it only:
//! a text that was put behind a message belongs there on every later turn. A step is the calls of
//! one answer with their results; equal calls of one answer count once. When the user speaks, all
//! counting starts again; what a harness puts in the user's mouth (see `user.rs`) and messages of
//! the system's role do not count as that. What makes two calls equal is told in
//! [`super::calls`], what makes a result a failure and two errors equal in `failure.rs`.
//!
//! - [`Detector::SameCall`]: the same call failed with the same error (numbers aside), and no
//!   other call succeeded with something new in between. New is a call with a result that has not
//!   been seen since the user spoke; so reading a file again changes nothing, an edit does. A
//!   success of the call, or another error, ends it.
//! - [`Detector::SameError`]: a tool failed with the same error, whatever its arguments, counted
//!   once an answer, since a model that asks for several things at once has not seen the first
//!   error. It is counted for what the calls act on (file, program), which only a success on the
//!   same ends; and for all of it together, which any success of the tool ends. An error that says
//!   nothing beyond having failed (`exit code 1`) is not counted: two of those need not be the same.
//! - [`Detector::Cycle`]: the newest calls are full rounds of a block of two to four, calls and
//!   results equal (errors without what is volatile), that is not a shorter block or one call.
//! - [`Detector::NoProgress`]: the same call succeeded with the same result, and no call gave
//!   anything new in between, be it a new error.
//!
//! Bounds: calls more than 4,096 back are forgotten, and a carried history keeps far fewer.

mod carried;
mod fold;
mod hint;
mod rounds;
mod stretch;
#[cfg(test)]
mod tests;
mod user;

use serde::{Deserialize, Serialize};

pub use carried::History;

use super::failure::Memory;
use crate::provider::view::{self, RequestView};

/// What kind of repetition was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Detector {
    /// The same call failed again and again with the same error.
    SameCall,
    /// A tool failed again and again with the same error, whatever its arguments.
    SameError,
    /// Two to four calls take turns, and their results stay the same.
    Cycle,
    /// The same call gave the same result again and again.
    NoProgress,
}

impl Detector {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::SameCall,
        Self::SameError,
        Self::Cycle,
        Self::NoProgress,
    ];

    /// The stable word, for settings, records and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SameCall => "same_call",
            Self::SameError => "same_error",
            Self::Cycle => "cycle",
            Self::NoProgress => "no_progress",
        }
    }

    /// The detector of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

/// What to do about a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It is not looked for.
    Off,
    /// It is recorded, counted, told in a header of the answer, and alerted.
    Warn,
    /// A fixed text is appended to the results, so that the model sees it.
    Hint,
    /// The request is refused.
    Block,
    /// The turn is ended with an answer of the gateway's own.
    Answer,
}

impl Action {
    /// All of them, from the mildest to the strictest.
    pub const ALL: [Self; 5] = [Self::Off, Self::Warn, Self::Hint, Self::Block, Self::Answer];

    /// The stable word, for settings, records and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Hint => "hint",
            Self::Block => "block",
            Self::Answer => "answer",
        }
    }

    /// The action of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

/// Most steps of a ladder.
pub const MAX_STEPS: usize = 3;

/// What is done from a threshold on: the first action when the count reaches it, the second when
/// it reaches twice the threshold, and so on; the last one holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The count from which on it is a loop; at least 2.
    pub threshold: u32,
    /// One to [`MAX_STEPS`] actions.
    pub ladder: Vec<Action>,
}

impl Rule {
    /// The action at a count; `None` below the threshold and where nothing is looked for.
    #[must_use]
    pub fn at(&self, count: u32) -> Option<Action> {
        let step = (count / self.threshold.max(1)).checked_sub(1)? as usize;
        let last = self.ladder.len().checked_sub(1)?;
        let action = self.ladder.get(step.min(last)).copied()?;
        (action != Action::Off).then_some(action)
    }
}

/// The rules of all detectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// See [`Detector::SameCall`].
    pub same_call: Rule,
    /// See [`Detector::SameError`].
    pub same_error: Rule,
    /// See [`Detector::Cycle`]; the threshold counts full rounds.
    pub cycle: Rule,
    /// See [`Detector::NoProgress`].
    pub no_progress: Rule,
}

impl Policy {
    /// Everything is looked for at the default thresholds, and met with one action.
    #[must_use]
    pub fn of(action: Action) -> Self {
        let rule = |threshold| Rule {
            threshold,
            ladder: vec![action],
        };
        Self {
            same_call: rule(3),
            same_error: rule(5),
            cycle: rule(3),
            no_progress: rule(5),
        }
    }

    /// The rule of a detector.
    #[must_use]
    pub fn rule(&self, detector: Detector) -> &Rule {
        match detector {
            Detector::SameCall => &self.same_call,
            Detector::SameError => &self.same_error,
            Detector::Cycle => &self.cycle,
            Detector::NoProgress => &self.no_progress,
        }
    }

    /// As [`Policy::rule`], to be changed.
    pub fn rule_mut(&mut self, detector: Detector) -> &mut Rule {
        match detector {
            Detector::SameCall => &mut self.same_call,
            Detector::SameError => &mut self.same_error,
            Detector::Cycle => &mut self.cycle,
            Detector::NoProgress => &mut self.no_progress,
        }
    }

    /// Whether nothing at all is looked for.
    #[must_use]
    pub fn is_off(&self) -> bool {
        Detector::ALL.iter().all(|detector| {
            let ladder = &self.rule(*detector).ladder;
            ladder.iter().all(|action| *action == Action::Off)
        })
    }

    /// Whether any of it may put a text into the history. Such a policy binds a thread: what its
    /// model has seen once has to stand there for ever.
    #[must_use]
    pub fn hints(&self) -> bool {
        Detector::ALL
            .iter()
            .any(|detector| self.rule(*detector).ladder.contains(&Action::Hint))
    }

    /// The same policy with a warning wherever there was a hint: for threads that were begun
    /// without hints.
    #[must_use]
    pub fn without_hints(&self) -> Self {
        let mut policy = self.clone();
        for detector in Detector::ALL {
            for action in &mut policy.rule_mut(detector).ladder {
                if *action == Action::Hint {
                    *action = Action::Warn;
                }
            }
        }
        policy
    }

    /// A short spelling that [`Policy::from_code`] reads, for records.
    #[must_use]
    pub fn code(&self) -> String {
        let rules: Vec<String> = Detector::ALL
            .iter()
            .map(|detector| {
                let rule = self.rule(*detector);
                let ladder: Vec<&str> = rule.ladder.iter().map(|a| a.as_str()).collect();
                format!("{}:{}", rule.threshold, ladder.join("+"))
            })
            .collect();
        rules.join(",")
    }

    /// Reads what [`Policy::code`] wrote; `None` for anything else.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        let mut policy = Self::of(Action::Off);
        let mut rules = code.split(',');
        for detector in Detector::ALL {
            let (threshold, ladder) = rules.next()?.split_once(':')?;
            let ladder: Option<Vec<Action>> = ladder.split('+').map(Action::from_word).collect();
            let ladder = ladder.filter(|ladder| (1..=MAX_STEPS).contains(&ladder.len()))?;
            let threshold = threshold.parse().ok().filter(|n| *n >= 2)?;
            *policy.rule_mut(detector) = Rule { threshold, ladder };
        }
        rules.next().is_none().then_some(policy)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::of(Action::Warn)
    }
}

/// A loop as the newest turn shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Word of the [`Detector`].
    pub detector: String,
    /// The tools in it: one, or the members of a cycle in their order.
    pub tools: Vec<String>,
    /// Failed calls, equal results, or full rounds of a cycle so far.
    pub count: u32,
    /// Calls of a round; 1 where it is no cycle.
    pub period: u32,
    /// Answers of the model since (and with) the one that made the first of these calls.
    pub turns: u32,
    /// Word of the [`Action`] that the policy asks for at this count.
    pub action: String,
    /// The newest results have brought it to its threshold, or to a next step of the ladder.
    pub fresh: bool,
}

/// A text that belongs into the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Index of the message at whose end it stands.
    pub message: u32,
    /// The text.
    pub text: String,
}

/// What a history shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// Loops that the newest results belong to, the strictest action first.
    pub findings: Vec<Finding>,
    /// Every text that belongs into it, oldest first: the same ones for the same history.
    pub hints: Vec<Hint>,
    /// What has to be carried along where the provider holds the history.
    pub history: History,
}

/// Remembers what results said, so that a growing conversation pays for its new end only. Of fixed
/// size (2 MiB); to be shared.
#[derive(Debug, Default)]
pub struct Memo {
    memory: Memory,
}

impl Memo {
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }
}

/// Looks at the history of a request. `from` is what the part that the provider holds has shown.
///
/// Where the provider holds the history, hints for the messages of this body only can be told.
#[must_use]
pub fn look(
    body: &[u8],
    view: &RequestView,
    policy: &Policy,
    memo: &Memo,
    from: Option<&History>,
) -> Seen {
    let whole = view.history == view::History::Whole;
    if whole && from.is_none() && policy.is_off() {
        return Seen::default();
    }
    fold::fold(body, view, policy, memo.memory(), from)
}
