//! Remembers the hashes of blocks by a fast hash of their raw bytes.
//!
//! A growing conversation sends every old block again; so it pays for hashing its new tail only.
//! Forgetting is safe at any time: the hash is computed again.

use std::hash::{Hash as HashTrait, Hasher as HasherTrait};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_128_with_secret;

use super::Hash;
use crate::prompt_cache::by_hash::ByHash;

/// Parts with a lock of their own, which is held for one look-up.
const SHARDS: usize = 16;

/// Entries of one generation of one shard: what a table of 8192 slots holds without growing. With
/// two generations of 16 shards, about 230,000 blocks (the histories of some hundred long
/// conversations) in at most 9 MB.
const GENERATION_ENTRIES: usize = 7168;

/// Length of the fast hash's own secret; it needs 136 bytes at least.
const SECRET_BYTES: usize = 192;

/// The fast hash of the raw bytes, together with what they were read as. 128 bits under a secret:
/// nobody without it can search for two blocks that share a key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key(u128);

impl Key {
    fn new(raw: u128, context: u64) -> Self {
        // Odd, so that no two contexts turn one hash into the same key.
        const SPREAD: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
        Self(raw ^ u128::from(context).wrapping_mul(SPREAD))
    }
}

impl HashTrait for Key {
    fn hash<H: HasherTrait>(&self, state: &mut H) {
        state.write_u64(self.0 as u64);
    }
}

type Generation = ByHash<Key, Hash>;

/// What was used since the last change of generations, and what was used before it.
#[derive(Default)]
struct Shard {
    young: Generation,
    old: Generation,
}

pub(super) struct Memo {
    secret: [u8; SECRET_BYTES],
    shards: [Mutex<Shard>; SHARDS],
}

impl Memo {
    pub(super) fn new(seed: &Sha256) -> Self {
        let mut secret = [0; SECRET_BYTES];
        for (index, part) in secret.chunks_mut(32).enumerate() {
            part.copy_from_slice(&seed.clone().chain_update([index as u8]).finalize());
        }
        Self {
            secret,
            shards: Default::default(),
        }
    }

    /// The remembered hash, or the computed one, which is then remembered. Nothing is computed
    /// under a lock.
    pub(super) fn get_or(&self, raw: &[u8], context: u64, compute: impl FnOnce() -> Hash) -> Hash {
        let key = Key::new(xxh3_128_with_secret(raw, &self.secret), context);
        let shard = &self.shards[(key.0 >> 96) as usize % SHARDS];
        let lock = || shard.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut shard = lock();
            if let Some(hash) = shard.young.get(&key) {
                return *hash;
            }
            if let Some(hash) = shard.old.get(&key).copied() {
                let retired = shard.remember(key, hash);
                drop(shard);
                drop(retired);
                return hash;
            }
        }
        let hash = compute();
        let retired = lock().remember(key, hash);
        // Freed here, after the lock.
        drop(retired);
        hash
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let of = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap();
            shard.young.len() + shard.old.len()
        };
        self.shards.iter().map(of).sum()
    }
}

impl Shard {
    /// Adds an entry; gives the generation that had to go for it, if one had to.
    fn remember(&mut self, key: Key, hash: Hash) -> Option<Generation> {
        let full = self.young.len() >= GENERATION_ENTRIES;
        let retired = full.then(|| {
            let next = std::mem::take(&mut self.young);
            std::mem::replace(&mut self.old, next)
        });
        self.young.insert(key, hash);
        retired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_bounded_and_keeps_what_is_used() {
        let memo = Memo::new(&Sha256::new());
        let most = 2 * SHARDS * GENERATION_ENTRIES;
        let mut computed = 0;
        for index in 0..2 * most as u64 {
            memo.get_or(b"always used", 1, || {
                computed += 1;
                [7; 16]
            });
            memo.get_or(&index.to_le_bytes(), 0, || [0; 16]);
        }
        assert!(memo.len() <= most);
        assert!(memo.len() > most / 4);
        assert_eq!(computed, 1);
        assert_eq!(
            memo.get_or(b"always used", 2, || [8; 16]),
            [8; 16],
            "the context is in the key"
        );
    }
}
