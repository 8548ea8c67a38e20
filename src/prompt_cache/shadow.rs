//! What the provider's prompt cache holds, by its documented rules and what it reported.
//!
//! An entry is a prefix that some turn wrote. What a request can read follows from the entries on
//! its path and from where its breakpoints stand ([`Shadow::look`]). A turn announces what it will
//! write ([`Shadow::pending`]), its entries become readable when its answer begins
//! ([`Shadow::began`]), and its usage says what was true ([`Shadow::settled`]).
//!
//! Rules of the provider (its documentation, August to October 2026): at each breakpoint it looks
//! back over at most [`LOOKBACK`] positions, the breakpoint included, then goes on with the next
//! earlier breakpoint; lifetimes count from the start of the request that wrote or read; reading a
//! prefix refreshes the shorter ones on its path; nothing shorter than the model's minimum is
//! written. Whether the lifetime is part of the key is disputed; here it is not.
//!
//! OpenAI from gpt-5.6 on finds entries at breakpoints only, without looking back from them. Its
//! lifetime is a minimum from when an entry was written; that a read renews it is written nowhere,
//! and so is not counted on.

mod file;
mod flight;
mod life;
mod table;

use uuid::Uuid;

pub use file::Corrupt;
pub use life::Outcome;
pub use table::Key;

use super::chain::{Hash, Hasher};
use super::trail::{Mark, Step, Trail};
use crate::provider::view::{Automatic, BlockKind, Role, Section, Ttl};
use flight::Flights;
use table::{Entry, Table};

/// Positions that a breakpoint looks back over, itself included.
pub const LOOKBACK: usize = 20;

/// Breakpoints of a request that OpenAI looks for entries at, the latest first (SDK documentation,
/// November 2026).
const MATCHED: usize = 80;

/// For how long an entry is remembered after its lifetime, so that a miss can be told from a change.
pub const KEEP_EXPIRED_MS: i64 = 24 * 3_600_000;

/// What a request can find, before it is sent. Indices are blocks of the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// The entry that the provider will find by its rules from the request's breakpoints.
    pub read: Option<Known>,
    /// The longest living entry on the request's path, whether or not a breakpoint finds it.
    pub alive: Option<Known>,
    /// The longest entry on the path whose lifetime is over, when it is longer than `alive`.
    pub expired: Option<Known>,
    /// The longest prefix on the path that a request under way is just writing, when it is longer
    /// than `alive`.
    pub pending: Option<Known>,
}

/// One entry, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Index of the block at which the prefix ends.
    pub at: u32,
    /// Its tokens, where usage has told them exactly.
    pub tokens: Option<u64>,
    /// The turn that wrote it.
    pub turn: Uuid,
    /// When its lifetime ends, UTC milliseconds.
    pub expires_ms: i64,
}

/// How positions are counted in the lookback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Counting {
    /// Every block is a position (documentation of August 2026).
    PerBlock,
    /// A run of tool calls, or of tool results, is one position (wording of autumn 2026).
    #[default]
    Grouped,
}

/// What separates entries of the same blocks, by level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// The model and the beta feature that is part of every key.
    pub tools: Hash,
    /// These and the settings that count from the system prompt on.
    pub system: Hash,
    /// These and the settings that count from the first message on.
    pub messages: Hash,
}

impl Levels {
    /// The levels of a request.
    #[must_use]
    pub fn of(hasher: &Hasher, trail: &Trail) -> Self {
        let mut bytes = Vec::with_capacity(trail.model.len() + 1);
        bytes.push(u8::from(trail.fast_beta));
        bytes.extend_from_slice(trail.model.as_bytes());
        let with = |from: Hash, section| {
            let settings = trail.settings.iter().filter(|s| s.from == section);
            settings.fold(from, |level, setting| {
                // The name ends with a byte that no name has: no two pairs spell alike.
                let mut bytes = setting.name.as_bytes().to_vec();
                bytes.push(0);
                bytes.extend_from_slice(&setting.value.to_le_bytes());
                hasher.extend(level, &bytes)
            })
        };
        let tools = with(hasher.keyed("shadow level", &bytes), Section::Tools);
        let system = with(tools, Section::System);
        Self {
            tools,
            system,
            messages: with(system, Section::Messages),
        }
    }

    /// The key of the prefix that ends at a block of `section` with the chain `at`.
    #[must_use]
    pub fn key(&self, section: Section, at: &Hash) -> Key {
        let level = match section {
            Section::Tools => &self.tools,
            Section::System => &self.system,
            Section::Messages => &self.messages,
        };
        // Both are keyed hashes, unrelated to one another: nothing stronger is needed to join them.
        let mut key = *at;
        for (byte, other) in key.iter_mut().zip(level) {
            *byte ^= other;
        }
        Key(key)
    }
}

/// A request as the shadow cache looks at it.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Its blocks.
    pub trail: &'a Trail,
    /// The chain after each block, by the same index.
    pub at: &'a [Hash],
    /// What separates its entries from others.
    pub levels: &'a Levels,
    /// The smallest prefix that its model caches, in tokens; `None` where that is not known.
    pub min_tokens: Option<u32>,
    /// Bytes per token, in thousandths, for estimates; 0 where nothing is known.
    pub bytes_per_token_milli: u32,
    /// The start of the request, UTC milliseconds.
    pub now_ms: i64,
    /// Its breakpoints in provider order, as they are (or would be) sent.
    pub marks: &'a [Mark],
    /// The rules of a cache that needs no breakpoints: whatever stands on the request's path is
    /// found, or what stands at those that the provider sets itself.
    pub automatic: Option<Automatic>,
}

impl Look<'_> {
    /// Blocks that have a step and a chain.
    fn len(&self) -> usize {
        self.trail.steps.len().min(self.at.len())
    }

    /// The key of the prefix that ends at a block; `None` for blocks outside of the prefix.
    fn key(&self, index: usize) -> Option<Key> {
        let step = self.trail.steps.get(index).filter(|step| step.counts)?;
        Some(self.levels.key(step.section, self.at.get(index)?))
    }

    /// Where a provider that sets breakpoints itself looks for entries: at those of the request, and
    /// wherever the model spoke next or speaks now; the latest ones, last one first. `None` where
    /// it has other rules.
    fn places(&self) -> Option<Vec<usize>> {
        self.automatic.filter(|rules| rules.at_breakpoints)?;
        let answers = |at: usize| self.trail.steps[at].role == Some(Role::Assistant);
        let mut next = None;
        let counting = (0..self.len())
            .rev()
            .filter(|at| self.trail.steps[*at].counts);
        let places = counting.filter(|at| {
            let turn_end = next
                .replace(*at)
                .is_none_or(|next| answers(next) && !answers(*at));
            turn_end || self.marks.iter().any(|mark| mark.at as usize == *at)
        });
        Some(places.take(MATCHED).collect())
    }

    /// The breakpoints that stand on a position, last one first.
    fn marks_back(&self) -> impl Iterator<Item = (usize, Mark, Key)> {
        self.marks.iter().rev().filter_map(|mark| {
            let at = mark.at as usize;
            Some((at, *mark, self.key(at)?))
        })
    }
}

/// The entries of all credentials (the chain's scope keeps them apart) and the turns under way.
#[derive(Debug)]
pub struct Shadow {
    table: Table,
    flights: Flights,
    counting: Counting,
}

impl Shadow {
    /// An empty cache that takes at most `limit_bytes` of memory: three quarters of it for entries,
    /// one for turns under way.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        let flights = limit_bytes / 4;
        Self {
            table: Table::new(limit_bytes - flights),
            flights: Flights::new(flights),
            counting: Counting::default(),
        }
    }

    /// The same with another way of counting positions.
    #[must_use]
    pub fn counting(mut self, counting: Counting) -> Self {
        self.counting = counting;
        self
    }

    /// The lifetime of the living entry that ends at a block of the request.
    #[must_use]
    pub fn lifetime_at(&self, look: &Look, index: usize) -> Option<Ttl> {
        let entry = self.table.get(&look.key(index)?)?;
        (entry.expires_ms > look.now_ms).then_some(entry.ttl)
    }

    /// What a request can find.
    #[must_use]
    pub fn look(&self, look: &Look) -> Expected {
        let mut expected = Expected::default();
        for at in (0..look.len()).rev() {
            let Some(key) = look.key(at) else { continue };
            if expected.pending.is_none()
                && let Some(writer) = self.flights.writer(&key)
            {
                expected.pending = Some(Known {
                    at: index(at),
                    tokens: self.tokens_at(&key),
                    turn: writer.turn,
                    expires_ms: writer.expires_ms,
                });
            }
            let Some(entry) = self.table.get(&key) else {
                continue;
            };
            if entry.expires_ms > look.now_ms {
                expected.alive = Some(entry.known(at));
                break;
            }
            if expected.expired.is_none() && entry.remembered(look.now_ms) {
                expected.expired = Some(entry.known(at));
            }
        }
        let longer = |known: &Known| expected.alive.is_none_or(|alive| known.at > alive.at);
        expected.pending = expected.pending.filter(longer);
        if let Some(places) = expected.alive.and_then(|_| look.places()) {
            expected.read = places.into_iter().find_map(|at| self.living(look, at));
        } else if look.automatic.is_some() {
            expected.read = expected.alive;
        } else if let Some(alive) = expected.alive {
            expected.read = look
                .marks_back()
                .find_map(|(from, ..)| self.look_back(look, from, alive.at as usize));
        }
        expected
    }

    /// The exact tokens of a prefix, where usage has told them.
    #[must_use]
    pub fn tokens_at(&self, key: &Key) -> Option<u64> {
        self.table.get(key)?.tokens()
    }

    /// Entries held, those included whose lifetime is over.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether it holds no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Turns under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Memory it takes, from above.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.flights.bytes()
    }

    /// The living entry that a breakpoint at `from` finds; there is none beyond `deepest`.
    fn look_back(&self, look: &Look, from: usize, deepest: usize) -> Option<Known> {
        let low = window(&look.trail.steps, from, self.counting);
        (low..=from.min(deepest))
            .rev()
            .find_map(|at| self.living(look, at))
    }

    /// The living entry that ends at a block.
    fn living(&self, look: &Look, at: usize) -> Option<Known> {
        let entry = self.table.get(&look.key(at)?)?;
        (entry.expires_ms > look.now_ms).then(|| entry.known(at))
    }
}

/// The first block of the last [`LOOKBACK`] positions up to `from`, itself included.
fn window(steps: &[Step], from: usize, counting: Counting) -> usize {
    let mut counted = 0;
    let mut run = None;
    let mut low = from;
    for (at, step) in steps.iter().enumerate().take(from + 1).rev() {
        if !step.counts {
            continue;
        }
        let kind = match step.kind {
            BlockKind::ToolUse | BlockKind::ToolResult if counting == Counting::Grouped => {
                Some(step.kind)
            }
            _ => None,
        };
        if kind.is_none() || run != kind {
            counted += 1;
            if counted > LOOKBACK {
                break;
            }
        }
        run = kind;
        low = at;
    }
    low
}

fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl Entry {
    fn known(&self, at: usize) -> Known {
        Known {
            at: index(at),
            tokens: self.tokens(),
            turn: self.turn,
            expires_ms: self.expires_ms,
        }
    }

    fn remembered(&self, now_ms: i64) -> bool {
        self.expires_ms.saturating_add(KEEP_EXPIRED_MS) > now_ms
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_against_sim;
