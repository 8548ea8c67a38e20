//! Maps whose keys are hashes of what clients send.
//!
//! The hash of the key is not hashed again in full, but it is spread by a number of this process:
//! whoever chooses the texts must not be able to choose which keys collide.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// A map by hash.
pub(super) type Map<V> = HashMap<u64, V, Spread>;

/// Builds the spreading hashers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread(u64);

impl Default for Spread {
    fn default() -> Self {
        static SEED: OnceLock<u64> = OnceLock::new();
        Self(*SEED.get_or_init(|| RandomState::new().hash_one(0_u64)))
    }
}

impl BuildHasher for Spread {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded(self.0)
    }
}

/// Multiplies and folds.
#[derive(Debug)]
pub(super) struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        const ODD: u128 = 0x9E37_79B9_7F4A_7C15;
        let wide = u128::from(self.0 ^ value) * ODD;
        self.0 = wide as u64 ^ (wide >> 64) as u64 ^ self.0.rotate_left(32);
    }
}
