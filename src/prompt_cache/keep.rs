//! Recent block texts, by the block's hash, so that a change can be said more exactly than "it
//! differs". In memory only, bounded in bytes; what was not used for longest goes first.
//!
//! Kept is a block in its canonical spelling (see [`super::chain`]): two spellings that hash alike
//! are kept alike, so a comparison never finds a marker or white space between tokens.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use super::by_hash::ByHash;
use super::chain::canonical;
use super::trail::Trail;
use crate::provider::json::{inside, unescape};
use crate::provider::view::{Block, RequestView, Section};
use crate::text;

/// Of a longer block this much is kept, from its start: changes that come back each turn stand
/// near the start of a block far more often than behind this.
pub const PART_BYTES: usize = 32 * 1024;

/// What an entry takes beside its bytes: its place in the map and in the queue, roughly.
const ENTRY_BYTES: usize = 96;

/// Names of tools that are remembered in one of two generations.
const GENERATION_NAMES: usize = 4096;

/// Longest name of a tool that is remembered, in bytes.
const NAME_BYTES: usize = 64;

/// The memory.
#[derive(Debug)]
pub struct Keep {
    limit: usize,
    used: usize,
    blocks: ByHash<u64, Entry>,
    /// Each block once, with the time at which it was queued. A block that was used since then is
    /// queued again when its turn to go comes.
    queue: VecDeque<(u64, u64)>,
    now: AtomicU64,
    names: ByHash<u64, Box<str>>,
    older_names: ByHash<u64, Box<str>>,
}

#[derive(Debug)]
struct Entry {
    bytes: Box<[u8]>,
    whole: bool,
    used_at: AtomicU64,
}

/// What is known of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept<'a> {
    /// Its canonical bytes, or the first [`PART_BYTES`] of them.
    pub bytes: &'a [u8],
    /// These are all of them.
    pub whole: bool,
}

impl Keep {
    /// A memory of at most `limit` bytes, names of tools aside. With 0 it keeps names only.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            used: 0,
            blocks: ByHash::default(),
            queue: VecDeque::new(),
            now: AtomicU64::new(0),
            names: ByHash::default(),
            older_names: ByHash::default(),
        }
    }

    /// Keeps what is new in a request as against the thread's previous one, and counts its head
    /// as used. `now` is the trail of `view`.
    #[cfg(test)]
    pub fn learn(&mut self, past: Option<&Trail>, now: &Trail, body: &[u8], view: &RequestView) {
        for (hash, block) in self.news(past, now, body, view) {
            self.put_block(hash, body, &block);
        }
    }

    /// What is new in a request as against the thread's previous one, and not kept yet: blocks by
    /// their hash, for [`Keep::put_block`] when there is time. Counts the head as used, and
    /// remembers the names of tools. `now` is the trail of `view`.
    pub fn news(
        &mut self,
        past: Option<&Trail>,
        now: &Trail,
        body: &[u8],
        view: &RequestView,
    ) -> Vec<(u64, Block)> {
        let known = past.map_or(0, |past| now.shared(past).mine);
        let mut news = Vec::new();
        for (index, (step, block)) in now.steps.iter().zip(&view.blocks).enumerate() {
            if block.section == Section::Tools
                && let Some(name) = block.name
            {
                self.put_name(step.hash, name.of(body));
            }
            let is_head = block.section != Section::Messages;
            if (index >= known || is_head) && self.limit > 0 && !self.has(step.hash) {
                news.push((step.hash, *block));
            }
        }
        news
    }

    /// Keeps a block; one that is there already counts as used.
    pub fn put_block(&mut self, hash: u64, body: &[u8], block: &Block) {
        if self.limit > 0 && !self.has(hash) {
            self.add(hash, head_of(body, block, PART_BYTES + 1));
        }
    }

    /// Keeps bytes, or their first part; those already there count as used.
    pub fn put(&mut self, hash: u64, bytes: &[u8]) {
        if !self.has(hash) {
            self.add(hash, bytes[..bytes.len().min(PART_BYTES + 1)].to_vec());
        }
    }

    /// Adds what is not there yet.
    fn add(&mut self, hash: u64, mut bytes: Vec<u8>) {
        let whole = bytes.len() <= PART_BYTES;
        bytes.truncate(PART_BYTES);
        let size = bytes.len() + ENTRY_BYTES;
        if size > self.limit {
            return;
        }
        while self.used + size > self.limit && self.evict() {}
        let stamp = self.tick();
        self.used += size;
        self.queue.push_back((stamp, hash));
        self.blocks.insert(
            hash,
            Entry {
                bytes: bytes.into_boxed_slice(),
                whole,
                used_at: AtomicU64::new(stamp),
            },
        );
    }

    /// What is known of a block; counts as a use.
    #[must_use]
    pub fn get(&self, hash: u64) -> Option<Kept<'_>> {
        let entry = self.blocks.get(&hash)?;
        entry.used_at.store(self.tick(), Ordering::Relaxed);
        Some(Kept {
            bytes: &entry.bytes,
            whole: entry.whole,
        })
    }

    /// Whether a block is there; counts as a use.
    #[must_use]
    pub fn has(&self, hash: u64) -> bool {
        self.get(hash).is_some()
    }

    /// Remembers the name of a tool by the hash of its definition. `raw` is a JSON string.
    pub fn put_name(&mut self, hash: u64, raw: &[u8]) {
        if self.names.contains_key(&hash) {
            return;
        }
        let name = match self.older_names.remove(&hash) {
            Some(name) => name,
            None => name_of(raw).into(),
        };
        if self.names.len() >= GENERATION_NAMES {
            self.older_names = std::mem::take(&mut self.names);
        }
        self.names.insert(hash, name);
    }

    /// The name of the tool with this definition.
    #[must_use]
    pub fn name(&self, hash: u64) -> Option<&str> {
        let name = self.names.get(&hash);
        name.or_else(|| self.older_names.get(&hash)).map(|n| &**n)
    }

    /// Bytes it holds, names of tools aside.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.used
    }

    fn tick(&self) -> u64 {
        self.now.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives up the block that was not used for longest, or for about as long; false if there is none.
    fn evict(&mut self) -> bool {
        while let Some((stamp, hash)) = self.queue.pop_front() {
            let Some(entry) = self.blocks.get(&hash) else {
                continue;
            };
            let used_at = entry.used_at.load(Ordering::Relaxed);
            if used_at > stamp {
                self.queue.push_back((used_at, hash));
                continue;
            }
            self.used -= entry.bytes.len() + ENTRY_BYTES;
            self.blocks.remove(&hash);
            return true;
        }
        false
    }
}

/// A tool's name, from the JSON string that says it, cut to [`NAME_BYTES`].
pub(super) fn name_of(raw: &[u8]) -> String {
    let raw = inside(raw);
    // Escapes only shrink when read, at most sixfold.
    let raw = &raw[..raw.len().min(NAME_BYTES * 6)];
    text::prefix(&unescape(raw), NAME_BYTES).to_owned()
}

/// The first `limit` bytes of a block in its canonical spelling.
pub(super) fn head_of(body: &[u8], block: &Block, limit: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((block.span.len() as usize).min(limit));
    canonical(body, block, |part| {
        let room = limit - bytes.len();
        bytes.extend_from_slice(&part[..part.len().min(room)]);
    });
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let size = 100 + ENTRY_BYTES;
        let mut keep = Keep::new(3 * size);
        for hash in 0..3 {
            keep.put(hash, &[hash as u8; 100]);
        }
        assert_eq!(keep.bytes(), 3 * size);
        assert!(keep.has(0), "a use");
        keep.put(1, b"other bytes are not looked at");
        keep.put(3, &[3; 100]);
        assert!(!keep.has(2));
        assert_eq!(keep.get(1).unwrap().bytes, [1; 100]);
        keep.put(4, &[4; 100]);
        assert!(!keep.has(0) && keep.has(1) && keep.has(3) && keep.has(4));
        assert_eq!(keep.bytes(), 3 * size);
    }

    #[test]
    fn stays_bounded_whatever_comes() {
        let limit = 1 << 20;
        let mut keep = Keep::new(limit);
        for hash in 0..5000_u64 {
            keep.put(hash, &vec![7; (hash as usize * 37) % (2 * PART_BYTES)]);
            assert!(keep.bytes() <= limit);
            assert_eq!(keep.queue.len(), keep.blocks.len());
            let _ = keep.get(hash / 2);
        }
        let held: usize = keep.blocks.values().map(|e| e.bytes.len()).sum();
        assert_eq!(keep.bytes(), held + keep.blocks.len() * ENTRY_BYTES);
        assert!(keep.bytes() > limit / 2);

        let mut none = Keep::new(0);
        none.put(1, b"x");
        none.put_name(1, b"\"read\"");
        assert!(!none.has(1));
        assert_eq!(none.name(1), Some("read"));
    }

    #[test]
    fn long_blocks_are_kept_by_their_first_part() {
        let mut keep = Keep::new(1 << 20);
        keep.put(1, &[b'a'; PART_BYTES]);
        keep.put(2, &[b'b'; PART_BYTES + 1]);
        assert!(keep.get(1).unwrap().whole);
        let part = keep.get(2).unwrap();
        assert_eq!((part.bytes.len(), part.whole), (PART_BYTES, false));
    }

    #[test]
    fn names_are_bounded_and_those_in_use_stay() {
        let mut keep = Keep::new(0);
        for hash in 0..5 * GENERATION_NAMES as u64 {
            keep.put_name(hash, format!("\"tool {hash}\"").as_bytes());
            keep.put_name(0, b"\"never read again\"");
            assert!(keep.names.len() + keep.older_names.len() <= 2 * GENERATION_NAMES);
        }
        assert_eq!(keep.name(0), Some("tool 0"));
        assert_eq!(keep.name(1), None);
        keep.put_name(u64::MAX, format!("\"{}\"", "é".repeat(500)).as_bytes());
        assert_eq!(keep.name(u64::MAX).unwrap().len(), NAME_BYTES);
    }
}
