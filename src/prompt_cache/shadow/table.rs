//! The entries, in a bounded number of bytes.

use std::hash::{BuildHasherDefault, Hash, Hasher};

use uuid::Uuid;

use crate::prompt_cache::by_hash::ByHash;
use crate::provider::view::Ttl;

/// Parts of the table. Each makes room for itself, so that no single insertion pays for all.
const SHARDS: usize = 64;

/// Below this, parts would be so small that one fills up long before the others.
const LEAST_SHARD_BYTES: usize = 64 << 10;

/// Makes room for this part of a shard at once; so an insertion costs a constant on average.
const ROOM_PART: usize = 8;

/// Identifies a prefix under everything that separates two caches. Made of keyed hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub [u8; 16]);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        state.write_u64(u64::from_le_bytes(first));
    }
}

/// A map by key.
pub(super) type ByKey<V> = ByHash<Key, V>;

/// A prefix that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// The turn that wrote it.
    pub turn: Uuid,
    /// When its lifetime ends, UTC milliseconds.
    pub expires_ms: i64,
    /// Its lifetime, for refreshing.
    pub ttl: Ttl,
    /// 0 while unknown: no prefix that is cached is empty.
    pub(super) exact: u32,
}

impl Entry {
    pub(super) fn new(turn: Uuid, start_ms: i64, ttl: Ttl) -> Self {
        Self {
            turn,
            expires_ms: start_ms.saturating_add(ttl.ms()),
            ttl,
            exact: 0,
        }
    }

    /// Its tokens, where they are known exactly.
    pub(super) fn tokens(&self) -> Option<u64> {
        (self.exact > 0).then_some(u64::from(self.exact))
    }

    pub(super) fn learn(&mut self, tokens: u64) {
        if let Ok(tokens) = u32::try_from(tokens)
            && tokens > 0
        {
            self.exact = tokens;
        }
    }
}

#[derive(Debug)]
pub(super) struct Table {
    shards: Vec<ByKey<Entry>>,
    /// Entries of one shard at most: what fits into the largest table within its bytes.
    most: usize,
}

/// A slot of the hash table and its control byte.
const SLOT_BYTES: usize = size_of::<(Key, Entry)>() + 1;

impl Table {
    pub(super) fn new(limit_bytes: usize) -> Self {
        let count = (limit_bytes / LEAST_SHARD_BYTES).clamp(1, SHARDS);
        let slots = limit_bytes / count / SLOT_BYTES;
        // Tables have powers of two of slots, of which seven eighths are used at most.
        let slots = slots.checked_ilog2().map_or(0, |log| 1_usize << log);
        Self {
            shards: (0..count).map(|_| ByKey::default()).collect(),
            most: (slots / 8 * 7).max(ROOM_PART),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Entry> {
        self.shards.get(self.shard(key))?.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        let shard = self.shard(key);
        self.shards.get_mut(shard)?.get_mut(key)
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Entry> {
        let shard = self.shard(key);
        self.shards.get_mut(shard)?.remove(key)
    }

    /// Adds or replaces an entry; where there is no room, those whose lifetimes end first go.
    pub(super) fn insert(&mut self, key: Key, entry: Entry) {
        let (at, most) = (self.shard(&key), self.most);
        let Some(shard) = self.shards.get_mut(at) else {
            return;
        };
        if let Some(old) = shard.get_mut(&key) {
            *old = entry;
            return;
        }
        // What removals leave behind fills a table too, and it must not grow for that.
        let full = shard.len() == shard.capacity() && shard.len() > most / 2;
        if shard.len() >= most || full {
            *shard = made_room(std::mem::take(shard), most);
        }
        shard.insert(key, entry);
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(ByKey::len).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.shards.iter().flatten()
    }

    /// From above: a table has at most eight sevenths and a doubling of its capacity.
    pub(super) fn bytes(&self) -> usize {
        let slots = |shard: &ByKey<Entry>| match shard.capacity() {
            0 => 0,
            capacity => (capacity * 8 / 7).next_power_of_two(),
        };
        self.shards.iter().map(|s| slots(s) * SLOT_BYTES).sum()
    }

    fn shard(&self, key: &Key) -> usize {
        // Not the bytes that the shard's own table goes by.
        usize::from(u16::from_le_bytes([key.0[14], key.0[15]])) % self.shards.len()
    }
}

/// A table of the same bound without the entries whose lifetimes end first.
fn made_room(shard: ByKey<Entry>, most: usize) -> ByKey<Entry> {
    let mut ends: Vec<i64> = shard.values().map(|entry| entry.expires_ms).collect();
    let room = (ends.len() / ROOM_PART).min(ends.len().saturating_sub(1));
    let border = match ends.is_empty() {
        true => i64::MIN,
        false => *ends.select_nth_unstable(room).1,
    };
    // Of those that end exactly there, only as many go as are still to go.
    let mut at_border = room - ends.iter().take(room).filter(|end| **end < border).count();
    let mut kept = ByKey::with_capacity_and_hasher(most, BuildHasherDefault::default());
    kept.extend(shard.into_iter().filter(|(_, entry)| {
        let goes = entry.expires_ms < border || (entry.expires_ms == border && at_border > 0);
        if goes && entry.expires_ms == border {
            at_border -= 1;
        }
        !goes
    }));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        // Spread like a hash.
        let a = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let b = (a ^ (a >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(b ^ (b >> 32)).to_le_bytes());
        bytes[8..].copy_from_slice(&(a ^ (b >> 7)).to_le_bytes());
        Key(bytes)
    }

    fn entry(start_ms: i64) -> Entry {
        Entry::new(Uuid::nil(), start_ms, Ttl::M5)
    }

    #[test]
    fn stays_within_its_bytes_and_gives_up_what_ends_first() {
        for limit in [0, 4 << 10, 300 << 10, 5 << 20] {
            let mut table = Table::new(limit);
            let most = table.most * table.shards.len();
            let count = 4 * most as u64 + 100;
            for number in 0..count {
                table.insert(key(number), entry(number as i64));
                if number % 7 == 0 {
                    // Removals in between leave graves behind.
                    table.remove(&key(number / 2));
                }
                if number % 97 == 0 && limit > 0 {
                    assert!(table.bytes() <= limit, "{} > {limit}", table.bytes());
                }
            }
            assert!(table.len() <= most);
            assert!(table.get(&key(count - 1)).is_some());
            assert!(table.get(&key(1)).is_none());
            let youngest = count - most as u64 / 4;
            let kept = (youngest..count).filter(|number| table.get(&key(*number)).is_some());
            let kept = kept.count() as u64;
            assert!(
                kept >= (count - youngest) / 2,
                "{kept} of {}",
                count - youngest
            );
        }
    }

    #[test]
    fn entries_with_one_and_the_same_end_do_not_all_go_at_once() {
        let mut table = Table::new(32 << 10);
        let most = table.most as u64;
        for number in 0..=most {
            table.insert(key(number), entry(5));
        }
        assert!(table.len() as u64 >= most * 3 / 4, "{}", table.len());
    }

    #[test]
    fn an_entry_is_as_small_as_it_is_counted() {
        const { assert!(SLOT_BYTES <= 49) };
    }
}
