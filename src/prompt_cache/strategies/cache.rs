//! The provider's cache by its documented rules, as a table of prefixes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Position, Request, Tally};
use crate::provider::view::Ttl;

/// Positions over which a marker looks back, its own included.
pub(super) const LOOKBACK: usize = 20;

#[derive(Debug, Clone, Copy)]
struct Entry {
    ttl: Ttl,
    expires_ms: i64,
}

/// An entry whose writer has not begun to answer: when it does, the prefix, and the entry.
type Pending = Reverse<(i64, u32, Ttl, i64)>;

/// All entries, by prefix.
#[derive(Debug)]
pub(super) struct Cache {
    entries: Vec<Option<Entry>>,
    pending: BinaryHeap<Pending>,
}

impl Cache {
    /// An empty one for so many prefixes.
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            entries: vec![None; nodes],
            pending: BinaryHeap::new(),
        }
    }

    /// What a request with these markers (by position, in order) reads and writes.
    pub(super) fn send(&mut self, request: &Request, markers: &[(usize, Ttl)]) -> Tally {
        let now = request.recorded.at_ms;
        self.settle(now);
        let positions = &request.positions;
        let total = positions.last().map_or(0, |last| last.upto);
        // A prompt that was counted may be more than its blocks are.
        let total = total.max(request.tokens);
        let live: Vec<(usize, Ttl)> = markers
            .iter()
            .filter(|(at, _)| {
                positions
                    .get(*at)
                    .is_some_and(|p| p.upto >= request.min_tokens)
            })
            .copied()
            .collect();
        let Some(&(last, _)) = live.last() else {
            return Tally {
                uncached: total,
                ..Tally::default()
            };
        };
        let hit = live
            .iter()
            .rev()
            .find_map(|(at, _)| self.look_back(positions, *at, now));
        for position in hit.map_or(&[][..], |hit| &positions[..=hit]) {
            self.renew(position.node, now);
        }
        let beyond = |at: usize| hit.is_none_or(|hit| at > hit);
        let read = hit.map_or(0, |hit| positions[hit].upto);
        let hour = live
            .iter()
            .filter(|(at, ttl)| *ttl == Ttl::H1 && beyond(*at))
            .map(|(at, _)| positions[*at].upto)
            .next_back()
            .unwrap_or(read);
        let end = positions[last].upto.max(hour);
        for &(at, ttl) in live.iter().filter(|(at, _)| beyond(*at)) {
            let expires = now.saturating_add(ttl.ms());
            let entry = (request.begins_ms, positions[at].node, ttl, expires);
            self.pending.push(Reverse(entry));
        }
        Tally {
            read,
            write_1h: hour - read,
            write_5m: end - hour,
            uncached: total - end,
            cost_pico: 0,
        }
    }

    /// The longest living entry on a request's path, by position, and the lifetime of the
    /// longest of tools and system.
    pub(super) fn alive(&mut self, request: &Request) -> (Option<usize>, Option<Ttl>) {
        let now = request.recorded.at_ms;
        self.settle(now);
        let living = |at: &usize| {
            let node = request.positions.get(*at)?.node;
            self.entries[node as usize].filter(|entry| entry.expires_ms > now)
        };
        let longest = (0..request.positions.len()).rfind(|at| living(at).is_some());
        let head = (request.recorded.trail.head as usize).checked_sub(1);
        let head = head.and_then(|block| request.position_of(block));
        let head = head.and_then(|end| (0..=end).rev().find_map(|at| living(&at)));
        (longest, head.map(|entry| entry.ttl))
    }

    /// The longest prefix on a request's path, by position, that waits for the begin of an answer.
    pub(super) fn awaited(&self, request: &Request) -> Option<usize> {
        let waiting = self.pending.iter();
        let nodes: Vec<u32> = waiting.map(|Reverse((_, node, ..))| *node).collect();
        let positions = request.positions.iter();
        let mut positions = positions.map(|position| position.node);
        if nodes.is_empty() {
            return None;
        }
        positions.rposition(|node| nodes.contains(&node))
    }

    /// Takes up what has become readable.
    fn settle(&mut self, now: i64) {
        while let Some(Reverse((begins, node, ttl, expires_ms))) = self.pending.peek().copied() {
            if begins > now {
                break;
            }
            self.pending.pop();
            let slot = &mut self.entries[node as usize];
            if slot.is_none_or(|entry| entry.expires_ms < expires_ms) {
                *slot = Some(Entry { ttl, expires_ms });
            }
        }
    }

    fn look_back(&self, positions: &[Position], from: usize, now: i64) -> Option<usize> {
        let first = (from + 1).saturating_sub(LOOKBACK);
        (first..=from).rev().find(|at| {
            let entry = &self.entries[positions[*at].node as usize];
            entry.is_some_and(|entry| entry.expires_ms > now)
        })
    }

    fn renew(&mut self, node: u32, now: i64) {
        if let Some(entry) = &mut self.entries[node as usize]
            && entry.expires_ms > now
        {
            let renewed = now.saturating_add(entry.ttl.ms());
            entry.expires_ms = entry.expires_ms.max(renewed);
        }
    }
}
