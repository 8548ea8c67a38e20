//! How large a conversation is, and where it may be cut.

use super::AgentRun;
use crate::agent::talk::{Answer, Entry};

/// Bytes of JSON a token, for what no usage has told yet. Low for prose, right for code and
/// JSON: compaction comes rather early than late.
const BYTES_A_TOKEN: u64 = 3;

/// Share of the size at which it is compacted that the kept end may have, in percent.
const KEPT_PERCENT: u64 = 25;

impl AgentRun {
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
}

/// Estimated tokens of an entry.
#[must_use]
pub fn estimate(entry: &Entry) -> u64 {
    let bytes = match entry {
        Entry::User { results, texts } => {
            let results: usize = results
                .iter()
                .map(|r| r.text.len() + r.call.len() + 64)
                .sum();
            let texts: usize = texts.iter().map(|text| text.len() + 24).sum();
            results + texts
        }
        Entry::Assistant(Answer { blocks, .. }) => blocks.iter().map(|block| block.raw.len()).sum(),
    };
    bytes as u64 / BYTES_A_TOKEN + 1
}

/// The first entry that a compaction keeps, if the conversation is to be compacted at this size.
///
/// It is an answer of the model, never a user's turn: so every kept result has its call before it
/// and every kept call its result behind it, and the summary can take the user's turn before it.
/// The newest entries are kept as far as they fit, and at least nothing: then `entries.len()`.
#[must_use]
pub fn cut(entries: &[Entry], compact_at: u64) -> usize {
    let room = compact_at.saturating_mul(KEPT_PERCENT) / 100;
    let mut used = 0u64;
    let mut from = entries.len();
    for (at, entry) in entries.iter().enumerate().rev() {
        used = used.saturating_add(estimate(entry));
        if used > room || at == 0 {
            break;
        }
        if matches!(entry, Entry::Assistant(_)) {
            from = at;
        }
    }
    from
}
