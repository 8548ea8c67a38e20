//! When the conversation is compacted, over which part of it the summary is asked for, and what
//! takes the place of what was summed up.

use super::{AgentRun, Outcome, cut};
use crate::agent::talk::{Entry, Kind};

/// Turns after a compaction that failed, or helped nothing, before the next is tried.
const COMPACTION_PAUSE: u32 = 5;

/// What stands before a summary.
const SUMMED_UP: &str = "The conversation so far was summed up to make room.";

impl AgentRun {
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

    /// Where to cut, if the conversation is to be compacted now.
    pub(super) fn compaction(&self) -> Option<usize> {
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

    /// The conversation does not fit: it has to be compacted, or the run ends where it just was.
    pub(super) fn need_room(&mut self) {
        if self.made_room {
            self.outcome = Some(Outcome::ContextWindow);
        }
        self.too_long = true;
    }

    /// A summary takes the place of what stands before `from`.
    pub(super) fn compacted(&mut self, summary: &str, from: usize) {
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

    /// A compaction has failed.
    pub(super) fn not_compacted(&mut self) {
        self.compact_from = self.turns + COMPACTION_PAUSE;
        if self.too_long {
            self.outcome = Some(Outcome::ContextWindow);
        }
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
