//! Takes in what happened, each event by its kind, and what the user says.

use super::calls::Pending;
use super::{AgentRun, Event, Happened, Outcome};
use crate::agent::talk::{CallResult, Entry};

/// What a call is answered with that the user has cancelled before it began.
const CALLED_OFF: &str = "not run: cancelled by the user";

/// Said where a paused answer cannot be continued, because another model is asked from now on.
const GO_ON: &str = "Go on.";

impl AgentRun {
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
                self.not_compacted();
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
    pub(super) fn push(&mut self, new_results: Vec<CallResult>, new_texts: Vec<String>) {
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
}
