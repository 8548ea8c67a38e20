//! Maps whose keys are hashes already, so that nothing is hashed again for a look-up. The keys must
//! be keyed hashes, or nobody's choice.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by hash.
pub(super) type ByHash<K, V> = HashMap<K, V, BuildHasherDefault<AsIs>>;

/// Takes a number as its own hash.
#[derive(Debug, Default)]
pub(super) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
