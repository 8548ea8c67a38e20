//! Remembers what results said by the hash of their content.
//!
//! Slots are overwritten, never chained: memory is bounded, a look-up is short, and forgetting only
//! costs that a text is read again.

use std::sync::{Mutex, PoisonError};

use super::{Error, Said};

/// Parts with a lock of their own.
const SHARDS: usize = 16;
/// Pairs of slots of a shard; with two slots of 32 bytes, all shards together take 2 MiB.
const PAIRS: usize = 2048;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    hash: u64,
    strict: u64,
    loose: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    used: bool,
    failed: bool,
    error: bool,
    bare: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::guard) struct Memory {
    /// Allocated when first used.
    shards: [Mutex<Vec<[Slot; 2]>>; SHARDS],
}

impl Memory {
    pub(super) fn get(&self, hash: u64) -> Option<Said> {
        let (shard, pair) = self.place(hash);
        let slots = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots
            .get(pair)?
            .iter()
            .find(|slot| slot.state.used && slot.hash == hash)?;
        let error = slot.state.error.then_some(Error {
            strict: slot.strict,
            loose: slot.loose,
            bare: slot.state.bare,
        });
        Some(Said {
            failed: slot.state.failed,
            error,
        })
    }

    pub(super) fn put(&self, hash: u64, said: Said) {
        let (shard, pair) = self.place(hash);
        let slot = Slot {
            hash,
            strict: said.error.map_or(0, |error| error.strict),
            loose: said.error.map_or(0, |error| error.loose),
            state: State {
                used: true,
                failed: said.failed,
                error: said.error.is_some(),
                bare: said.error.is_some_and(|error| error.bare),
            },
        };
        let mut slots = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.is_empty() {
            slots.resize(PAIRS, <[Slot; 2]>::default());
        }
        if let Some(pair) = slots.get_mut(pair) {
            if !(pair[0].state.used && pair[0].hash == hash) {
                pair[1] = pair[0];
            }
            pair[0] = slot;
        }
    }

    fn place(&self, hash: u64) -> (&Mutex<Vec<[Slot; 2]>>, usize) {
        let shard = (hash >> 60) as usize % SHARDS;
        (&self.shards[shard], hash as usize % PAIRS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_last_is_found_and_the_rest_may_be_forgotten() {
        let memory = Memory::default();
        assert_eq!(memory.get(7), None);
        let said = |strict| Said {
            failed: true,
            error: Some(Error {
                strict,
                loose: 2,
                bare: strict % 2 == 0,
            }),
        };
        for hash in 0..10 * (SHARDS * PAIRS) as u64 {
            let hash = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            memory.put(hash, said(hash));
            memory.put(hash, said(hash + 1));
            assert_eq!(memory.get(hash), Some(said(hash + 1)));
        }
        let slots = |shard: &Mutex<Vec<[Slot; 2]>>| shard.lock().unwrap().len();
        assert_eq!(
            memory.shards.iter().map(slots).sum::<usize>(),
            SHARDS * PAIRS
        );
    }

    #[test]
    fn two_that_share_a_place_are_both_remembered() {
        let memory = Memory::default();
        let fine = Said {
            failed: false,
            error: None,
        };
        let other = Said {
            failed: true,
            error: None,
        };
        memory.put(1, fine);
        memory.put(1 + PAIRS as u64, other);
        assert_eq!(memory.get(1), Some(fine));
        assert_eq!(memory.get(1 + PAIRS as u64), Some(other));
    }
}
