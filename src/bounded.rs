//! Maps on the way of every request; and one that forgets: the least recently touched entries go when
//! it is full.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A map whose keys are hashed quickly, by a number of this process that nobody is shown. It keeps off
/// who sends keys that are known to collide, not who could measure hashes: its users are bounded.
pub(crate) type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// At most `limit` entries; inserting or touching renews an entry.
#[derive(Debug)]
pub(crate) struct Bounded<K, V> {
    limit: usize,
    entries: Map<K, (u64, V)>,
    /// Keys by renewal, oldest first. An entry may stand here several times; only its newest counts.
    order: VecDeque<(u64, K)>,
    clock: u64,
}

impl<K: Hash + Eq + Clone, V> Bounded<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            entries: Map::default(),
            order: VecDeque::new(),
            clock: 0,
        }
    }

    /// Inserts or replaces; returns the entry that had to go.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        self.clock += 1;
        self.order.push_back((self.clock, key.clone()));
        self.entries.insert(key, (self.clock, value));
        self.compact();
        if self.entries.len() <= self.limit {
            return None;
        }
        self.pop_oldest()
    }

    /// Takes out what was not touched longest.
    pub(crate) fn pop_oldest(&mut self) -> Option<(K, V)> {
        while let Some((stamp, key)) = self.order.pop_front() {
            if self.entries.get(&key).is_some_and(|(at, _)| *at == stamp) {
                return self.entries.remove(&key).map(|(_, value)| (key, value));
            }
        }
        None
    }

    /// All entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, (_, value))| (key, value))
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Looks up for change, and renews.
    pub(crate) fn touch(&mut self, key: &K) -> Option<&mut V> {
        self.compact();
        let (stamp, value) = self.entries.get_mut(key)?;
        self.clock += 1;
        *stamp = self.clock;
        self.order.push_back((self.clock, key.clone()));
        Some(value)
    }

    /// Looks up for change without renewing.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(_, value)| value)
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries.remove(key).map(|(_, value)| value)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keeps the order queue within twice the map, at amortised constant cost.
    fn compact(&mut self) {
        if self.order.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.order
                .retain(|(stamp, key)| entries.get(key).is_some_and(|(at, _)| at == stamp));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bounded;

    #[test]
    fn the_least_recently_touched_goes_first() {
        let mut map = Bounded::new(2);
        assert_eq!(map.insert("a", 1), None);
        assert_eq!(map.insert("b", 2), None);
        *map.touch(&"a").unwrap() = 10;
        assert_eq!(map.insert("c", 3), Some(("b", 2)));
        assert_eq!(map.get("a"), Some(&10));
        assert_eq!(map.remove("a"), Some(10));
        assert_eq!(map.insert("d", 4), None);
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn the_order_queue_stays_bounded_under_touching() {
        let mut map = Bounded::new(4);
        for i in 0..100_000_u32 {
            map.insert(i % 4, i);
        }
        assert!(map.order.len() < 200, "{}", map.order.len());
        for i in 0..100_000_u32 {
            map.touch(&(i % 4));
        }
        assert!(map.order.len() < 200, "{}", map.order.len());
    }
}
