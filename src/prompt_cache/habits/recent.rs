//! A map that keeps what was used lately: two generations, the older of which is dropped when the
//! younger is full.

use std::hash::Hash;

use crate::bounded::Map;

#[derive(Debug)]
pub(super) struct Recent<K, V> {
    young: Map<K, V>,
    old: Map<K, V>,
    /// Entries of one generation.
    most: usize,
}

impl<K: Eq + Hash + Copy, V: Default> Recent<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            young: Map::default(),
            old: Map::default(),
            most,
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// The entry, which now counts as just used.
    pub(super) fn entry(&mut self, key: K) -> &mut V {
        if !self.young.contains_key(&key) {
            let known = self.old.remove(&key);
            if self.young.len() >= self.most {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(key, known.unwrap_or_default());
        }
        self.young.entry(key).or_default()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
