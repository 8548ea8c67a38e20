//! The prompt cache itself: what was written, until when, and what a request reads and writes.
//!
//! Written from the provider's documentation alone. It shares no code with the engine in
//! `prompt_cache`, so that the two can disagree.

use std::collections::HashMap;

use super::models::Model;
use super::prompt::{Life, Position, Run};

/// Positions a marker looks back over, itself included. Source: provider docs, Aug 2026.
pub const LOOKBACK: usize = 20;

/// Entries kept; the ones that expire first go first.
const MAX_ENTRIES: usize = 200_000;

/// How positions are counted in the lookback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Counting {
    /// Every block is a position (docs of Aug 2026; the pessimistic rule).
    #[default]
    PerBlock,
    /// A run of calls, or of results, is one position (wording of autumn 2026).
    Grouped,
}

/// Input tokens of one request in the four kinds that are billed apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Read from the cache.
    pub read: u64,
    /// Written for five minutes.
    pub write_5m: u64,
    /// Written for one hour.
    pub write_1h: u64,
    /// Neither.
    pub uncached: u64,
}

impl Tokens {
    /// The whole prompt.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.read + self.write_5m + self.write_1h + self.uncached
    }

    /// All writes.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.write_5m + self.write_1h
    }
}

/// What a request will write once its answer begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pending {
    entries: Vec<([u8; 32], Life)>,
    start_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    life: Life,
    expires_ms: u64,
}

/// All entries. Keys contain the credential scope and the model, so nothing is shared by accident.
#[derive(Debug, Default)]
pub struct Cache {
    entries: HashMap<[u8; 32], Entry>,
}

impl Cache {
    /// What a request that starts at `now_ms` reads and writes. Reading refreshes at once; writing
    /// waits for [`Cache::commit`], because an entry can be read only when the answer to its writer
    /// has begun.
    pub fn look(
        &mut self,
        positions: &[Position],
        model: &Model,
        counting: Counting,
        now_ms: u64,
    ) -> (Tokens, Pending) {
        let total = positions.last().map_or(0, |last| last.tokens);
        let mut tokens = Tokens {
            uncached: total,
            ..Tokens::default()
        };
        let mut pending = Pending {
            entries: Vec::new(),
            start_ms: now_ms,
        };
        let markers: Vec<(usize, Life)> = positions
            .iter()
            .enumerate()
            .filter_map(|(at, position)| Some((at, position.marker?)))
            .filter(|(at, _)| positions[*at].tokens >= model.min_cache_tokens)
            .collect();
        let Some(&(last, _)) = markers.last() else {
            return (tokens, pending);
        };
        let hit = markers
            .iter()
            .rev()
            .find_map(|(at, _)| self.look_back(positions, *at, counting, now_ms));
        if let Some(hit) = hit {
            // A read of the longer prefix also refreshes the shorter entries on its path.
            for position in &positions[..=hit] {
                self.refresh(&position.chain, now_ms);
            }
        }
        let at = |index: Option<usize>| index.map_or(0, |index| positions[index].tokens);
        let read = at(hit);
        let beyond_hit = |index: &usize| hit.is_none_or(|hit| *index > hit);
        let last_hour = markers
            .iter()
            .filter(|(index, life)| *life == Life::OneHour && beyond_hit(index))
            .map(|(index, _)| *index)
            .next_back();
        let hour_end = last_hour.map_or(read, |index| positions[index].tokens);
        let end = at(Some(last)).max(hour_end);
        tokens.read = read;
        tokens.write_1h = hour_end - read;
        tokens.write_5m = end - hour_end;
        tokens.uncached = total - end;
        pending.entries = markers
            .iter()
            .filter(|(index, _)| beyond_hit(index))
            .map(|(index, life)| (positions[*index].chain, *life))
            .collect();
        (tokens, pending)
    }

    /// The answer has begun: what the request wrote can be read from now on, and lives from the
    /// start of the request.
    pub fn commit(&mut self, pending: &Pending) {
        for (chain, life) in &pending.entries {
            let expires_ms = pending.start_ms + life.ms();
            let entry = self.entries.entry(*chain).or_insert(Entry {
                life: *life,
                expires_ms,
            });
            if expires_ms > entry.expires_ms {
                *entry = Entry {
                    life: *life,
                    expires_ms,
                };
            }
        }
        if self.entries.len() > MAX_ENTRIES {
            let mut ends: Vec<u64> = self
                .entries
                .values()
                .map(|entry| entry.expires_ms)
                .collect();
            let middle = ends.len() / 2;
            let (_, cut, _) = ends.select_nth_unstable(middle);
            let cut = *cut;
            self.entries.retain(|_, entry| entry.expires_ms > cut);
        }
    }

    /// Forgets everything, as a provider may at any time.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    fn look_back(
        &self,
        positions: &[Position],
        from: usize,
        counting: Counting,
        now_ms: u64,
    ) -> Option<usize> {
        let mut counted = 0;
        let mut previous = None;
        for at in (0..=from).rev() {
            let run = positions[at].run;
            let same_run =
                counting == Counting::Grouped && run != Run::Single && previous == Some(run);
            if !same_run {
                counted += 1;
            }
            if counted > LOOKBACK {
                return None;
            }
            previous = Some(run);
            let entry = self.entries.get(&positions[at].chain);
            if entry.is_some_and(|entry| entry.expires_ms > now_ms) {
                return Some(at);
            }
        }
        None
    }

    fn refresh(&mut self, chain: &[u8; 32], now_ms: u64) {
        if let Some(entry) = self.entries.get_mut(chain)
            && entry.expires_ms > now_ms
        {
            entry.expires_ms = entry.expires_ms.max(now_ms + entry.life.ms());
        }
    }
}
