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

mod event;
mod limits;
mod outcome;
mod repetition;
mod size;

use serde::{Deserialize, Serialize};

pub use event::{Bill, Event, Happened, Setup, ToolSpec};
pub use limits::{DEFAULT_TURNS, Limits, Spent};
pub use outcome::{Outcome, Stop};
use repetition::{Repetition, Verdict};
pub use size::{cut, estimate};

use super::talk::{Answer, CallResult, Entry, Kind, ToolCall};
use crate::guard::reminder::reminder;

/// Turns after a compaction that failed, or helped nothing, before the next is tried.
const COMPACTION_PAUSE: u32 = 5;

/// What stands before a summary.
const SUMMED_UP: &str = "The conversation so far was summed up to make room.";

/// What a call that was never made is answered with.
const NOT_RUN: &str = "not run: the answer that asked for it was cut off";
/// ... and what one is that the user has cancelled before it began.
const CALLED_OFF: &str = "not run: cancelled by the user";

/// Said where a paused answer cannot be continued, because another model is asked from now on.
const GO_ON: &str = "Go on.";

/// What the model is told of calls whose answer broke off after they had begun.
const BROKE_OFF: &str = "[An answer broke off while it was coming in. These calls of it had begun \
                         already; look at what they have done before doing it again.]";

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
    /// Nothing is left to do. If the run does not know it yet, tell it as [`Event::Ended`].
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

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pending {
    call: ToolCall,
    begun: bool,
    result: Option<CallResult>,
}

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

    /// Calls that have no result yet.
    pub fn open_calls(&self) -> impl Iterator<Item = &ToolCall> {
        let open = self
            .pending
            .iter()
            .filter(|pending| pending.result.is_none());
        open.map(|pending| &pending.call)
    }

    /// The part of the conversation over which the summary of a compaction is asked for: all of it,
    /// so that the request reads what the one before has cached; without what is kept where the
    /// conversation does not fit as it is.
    #[must_use]
    pub fn to_sum_up(&self, from: usize) -> &[Entry] {
        let end = if self.too_long {
            from
        } else {
            self.entries.len()
        };
        self.entries.get(..end).unwrap_or_default()
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

    /// Tokens of the conversation as it stands: what the provider counted last, and an estimate of
    /// what is new.
    #[must_use]
    pub fn size(&self) -> u64 {
        let new = self.entries.get(self.sized..).unwrap_or_default();
        let new: u64 = new.iter().map(estimate).sum();
        match self.size {
            Some(known) => known.saturating_add(new),
            None => {
                let tools = self.setup.tools.iter();
                let bytes: usize = tools.map(|t| t.description.len() + t.schema.len()).sum();
                (bytes + self.setup.system.len()) as u64 / 4 + new
            }
        }
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

    /// Where to cut, if the conversation is to be compacted now.
    fn compaction(&self) -> Option<usize> {
        let due = self.size() >= self.setup.compact_at && self.turns >= self.compact_from;
        if self.paused || !(due || self.too_long) {
            return None;
        }
        // The provider may have less room than was thought.
        let full = match self.too_long {
            true => self.size().min(self.setup.compact_at),
            false => self.setup.compact_at,
        };
        let mut from = cut(&self.entries, full);
        if self.too_long && from == self.entries.len() {
            // What is too large may be the newest turn: it has to stay out of the request.
            let answer = |entry: &Entry| matches!(entry, Entry::Assistant(_));
            from = self.entries.iter().rposition(answer)?;
        }
        // The summary of nothing but the first turn would be as long as that.
        (from > 1).then_some(from)
    }

    /// Takes what happened.
    pub fn apply(&mut self, happened: &Happened) {
        let at_ms = happened.at_ms;
        // A crash has no last event: time at work is known up to the newest one.
        if matches!(happened.event, Event::Resumed { .. } | Event::Forked { .. }) {
            self.since_ms = at_ms;
        } else {
            self.worked_ms = self.worked_ms(at_ms);
            self.since_ms = self.since_ms.max(at_ms);
        }
        match &happened.event {
            Event::Began(_) => {}
            Event::Said { text } => self.said(text),
            Event::Answered {
                answer,
                stop,
                open_call,
                bill,
            } => {
                self.turns += 1;
                self.spent.answer(&bill.usage, bill.pico);
                self.answered(answer, stop, *open_call, bill);
            }
            Event::Abandoned { bill, .. } => {
                self.spent.answer(&bill.usage, bill.pico);
                self.remember();
            }
            Event::TooLong => self.need_room(),
            Event::CallBegan { call, .. } => self.began(call),
            Event::CallEnded { result } => self.ended(result),
            Event::Delegated { spent, .. } => self.spent.add(spent),
            Event::Compacted {
                summary,
                from,
                bill,
            } => {
                self.spent.answer(&bill.usage, bill.pico);
                self.compacted(summary, *from);
            }
            Event::CompactionFailed { bill, .. } => {
                self.spent.answer(&bill.usage, bill.pico);
                self.compact_from = self.turns + COMPACTION_PAUSE;
                if self.too_long {
                    self.outcome = Some(Outcome::ContextWindow);
                }
            }
            Event::Aside { answer, bill } => {
                self.spent.answer(&bill.usage, bill.pico);
                self.aside = Some(answer.clone());
            }
            Event::Ended(outcome) => self.outcome = Some(outcome.clone()),
            Event::Forked { .. } => {}
            Event::Resumed { limits } => {
                self.remember();
                if self.can_go_on() {
                    self.outcome = None;
                }
                if let Some(limits) = limits {
                    self.setup.limits = limits.clone();
                }
            }
            Event::Switched { wire, model } => {
                self.setup.wire = *wire;
                self.setup.model.clone_from(model);
                self.size = None;
                self.sized = 0;
                if std::mem::take(&mut self.paused) {
                    self.push(Vec::new(), vec![GO_ON.to_owned()]);
                }
            }
        }
    }

    /// Whether anything is left to do without a new word of the user.
    fn can_go_on(&self) -> bool {
        let asked = matches!(self.entries.last(), Some(Entry::User { .. }));
        asked || self.paused || !self.pending.is_empty()
    }

    /// Calls began while their answer was still coming in, and it never became whole: they are no
    /// part of the conversation, but what they did is done. The model is told, so that it does not
    /// do it once more.
    fn remember(&mut self) {
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

    fn said(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let outcome = self.outcome.take();
        self.paused = false;
        self.repetition.heard();
        if outcome == Some(Outcome::Cancelled) {
            let not_begun = |p: &&mut Pending| !p.begun && p.result.is_none();
            for pending in self.pending.iter_mut().filter(not_begun) {
                pending.result = Some(CallResult::failed(&pending.call.id, CALLED_OFF));
            }
            self.close();
        }
        if self.pending.is_empty() {
            self.push(Vec::new(), vec![text.to_owned()]);
        } else {
            self.queued.push(text.to_owned());
        }
    }

    /// Adds to the user's turn that is open, or opens one.
    fn push(&mut self, new_results: Vec<CallResult>, new_texts: Vec<String>) {
        if let Some(Entry::User { results, texts }) = self.entries.last_mut() {
            results.extend(new_results);
            texts.extend(new_texts);
            // It has grown: what was counted of it does not hold any more.
            self.sized = self.sized.min(self.entries.len() - 1);
        } else {
            self.entries.push(Entry::User {
                results: new_results,
                texts: new_texts,
            });
        }
    }

    fn answered(&mut self, answer: &Answer, stop: &Stop, open_call: bool, bill: &Bill) {
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

    fn began(&mut self, call: &ToolCall) {
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

    fn ended(&mut self, result: &CallResult) {
        let mut all = self.pending.iter_mut().chain(&mut self.early);
        let open = all.find(|p| p.call.id == result.call && p.result.is_none());
        // A result that comes late, behind a time limit, has no place any more.
        if let Some(open) = open {
            open.result = Some(CallResult::new(
                &result.call,
                result.text.clone(),
                result.is_error,
            ));
            self.close();
        }
    }

    /// Turns results into the user's turn once all are there.
    fn close(&mut self) {
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

    fn need_room(&mut self) {
        if self.made_room {
            self.outcome = Some(Outcome::ContextWindow);
        }
        self.too_long = true;
    }

    fn compacted(&mut self, summary: &str, from: usize) {
        let kept = self.entries.split_off(from.min(self.entries.len()));
        let dropped = std::mem::take(&mut self.entries);
        // What the user said last is not left to a summary; an earlier summary is.
        let newest = dropped.iter().enumerate().rev().find_map(|(at, entry)| {
            let texts = match entry {
                Entry::User { texts, .. } => texts.as_slice(),
                Entry::Assistant(_) => &[],
            };
            let summary = usize::from(at == 0 && self.summed_up);
            texts.get(summary..).filter(|said| !said.is_empty())
        });
        let said = |entry: &Entry| matches!(entry, Entry::User { texts, .. } if !texts.is_empty());
        let mut texts = vec![format!("{SUMMED_UP}\n\n<summary>\n{summary}\n</summary>")];
        if !kept.iter().any(said) {
            texts.extend(newest.unwrap_or_default().iter().cloned());
        }
        self.push(Vec::new(), texts);
        self.entries.extend(kept.into_iter().map(without_thinking));
        self.summed_up = true;
        self.made_room = self.too_long;
        self.too_long = false;
        self.size = None;
        self.sized = 0;
        // A conversation that stays as large is not summed up again and again.
        let pause = match self.size() < self.setup.compact_at {
            true => 1,
            false => COMPACTION_PAUSE,
        };
        self.compact_from = self.turns + pause;
    }
}

/// An entry behind a summary. Providers bind reasoning to all that stood before it, and refuse it
/// when that has changed.
fn without_thinking(mut entry: Entry) -> Entry {
    if let Entry::Assistant(answer) = &mut entry {
        answer.blocks.retain(|block| block.kind != Kind::Thinking);
    }
    entry
}
