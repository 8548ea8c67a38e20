//! What a run may use, and what it has used.

use serde::{Deserialize, Serialize};

use super::outcome::Outcome;
use crate::usage::Usage;

/// Turns that a run may take when nothing else is said.
pub const DEFAULT_TURNS: u32 = 40;

/// What a run may use, sub-agents included, but for turns, which each agent counts for itself.
/// `None` is no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Answers of the model.
    pub turns: u32,
    /// Tokens of all kinds together.
    pub tokens: Option<u64>,
    /// Money, in pico-USD.
    pub pico: Option<u64>,
    /// Time in which the run was at work, in milliseconds. Time between a stop and a resume is none.
    pub wall_ms: Option<u64>,
    /// Calls of tools.
    pub calls: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns: DEFAULT_TURNS,
            tokens: None,
            pico: None,
            wall_ms: None,
            calls: None,
        }
    }
}

/// What a run has used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    /// Answers of the model, those of attempts that were given up included.
    pub answers: u32,
    /// Calls of tools that were begun.
    pub calls: u32,
    /// Tokens that were neither read from nor written to the cache.
    pub uncached: u64,
    /// Tokens read from the cache.
    pub read: u64,
    /// Tokens written to the cache.
    pub written: u64,
    /// Tokens of output.
    pub output: u64,
    /// Money, in pico-USD, of all that has a known price.
    pub pico: u64,
    /// Answers whose price is not known.
    pub unpriced: u32,
    /// Answers of which the provider did not tell all tokens.
    pub uncounted: u32,
}

impl Spent {
    /// Tokens of all kinds.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.uncached
            .saturating_add(self.read)
            .saturating_add(self.written)
            .saturating_add(self.output)
    }

    /// Share of the prompts that came from the cache; `None` before the first.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        let prompt = self.uncached + self.read + self.written;
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people, not money")]
        (prompt > 0).then(|| self.read as f64 / prompt as f64)
    }

    /// Books an answer.
    pub fn answer(&mut self, usage: &Usage, pico: Option<u64>) {
        let kinds = [usage.uncached, usage.read, usage.written(), usage.output];
        let [uncached, read, written, output] = kinds.map(Option::unwrap_or_default);
        *self = Self {
            answers: self.answers.saturating_add(1),
            uncached: self.uncached.saturating_add(uncached),
            read: self.read.saturating_add(read),
            written: self.written.saturating_add(written),
            output: self.output.saturating_add(output),
            pico: self.pico.saturating_add(pico.unwrap_or(0)),
            unpriced: self.unpriced.saturating_add(u32::from(pico.is_none())),
            // A provider that does not tell about its cache has told the prompt all the same.
            uncounted: self.uncounted.saturating_add(u32::from(
                usage.uncached.is_none() || usage.output.is_none(),
            )),
            calls: self.calls,
        };
    }

    /// Adds what another agent has used.
    pub fn add(&mut self, other: &Self) {
        *self = Self {
            answers: self.answers.saturating_add(other.answers),
            calls: self.calls.saturating_add(other.calls),
            uncached: self.uncached.saturating_add(other.uncached),
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
            output: self.output.saturating_add(other.output),
            pico: self.pico.saturating_add(other.pico),
            unpriced: self.unpriced.saturating_add(other.unpriced),
            uncounted: self.uncounted.saturating_add(other.uncounted),
        };
    }
}

impl Limits {
    /// The cap that leaves no room for another answer, the strictest first. `turns` are those of
    /// this agent, `spent` is what the whole run has used in `wall_ms`.
    #[must_use]
    pub fn before_model(&self, turns: u32, spent: &Spent, wall_ms: u64) -> Option<Outcome> {
        (turns >= self.turns)
            .then_some(Outcome::MaxTurns)
            .or_else(|| self.used_up(spent, wall_ms))
    }

    /// The cap that leaves no room for a batch of `calls`. A batch is made whole or not at all.
    #[must_use]
    pub fn before_tools(&self, calls: usize, spent: &Spent, wall_ms: u64) -> Option<Outcome> {
        let more = u32::try_from(calls).unwrap_or(u32::MAX);
        let over = |limit: u32| spent.calls.saturating_add(more) > limit;
        if self.calls.is_some_and(over) {
            return Some(Outcome::MaxToolCalls);
        }
        self.used_up(spent, wall_ms)
    }

    fn used_up(&self, spent: &Spent, wall_ms: u64) -> Option<Outcome> {
        let over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used >= limit);
        if over(self.pico, spent.pico) {
            Some(Outcome::MaxUsd)
        } else if over(self.tokens, spent.tokens()) {
            Some(Outcome::MaxTokensTotal)
        } else if over(self.wall_ms, wall_ms) {
            Some(Outcome::MaxWallTime)
        } else {
            None
        }
    }
}
