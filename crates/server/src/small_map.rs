//! Maps and sets for values from requests: nothing is allocated while they are small, and lookups take constant time
//! when they are large. Use them to find duplicates in a list whose length the client chooses.

use std::array;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Number of entries that are stored inline and searched one by one. Most lists in objects are shorter.
const INLINE_ENTRIES_MAX: usize = 8;

/// A map that keeps the first value of each key.
#[derive(Debug)]
pub(crate) struct SmallMap<K, V> {
    /// The first entries. The slots after the first `inline_count` are empty.
    inline: [Option<(K, V)>; INLINE_ENTRIES_MAX],
    inline_count: usize,
    /// The entries that do not fit into `inline`.
    hashed: Option<HashMap<K, V>>,
}

/// A set of keys.
pub(crate) type SmallSet<K> = SmallMap<K, ()>;

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self { inline: array::from_fn(|_| None), inline_count: 0, hashed: None }
    }
}

impl<K: Hash + Eq, V> SmallMap<K, V> {
    /// Returns the value of a key, or `None` if the map does not contain the key.
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut inline = self.inline[..self.inline_count].iter().flatten();
        if let Some((_, value)) = inline.find(|(other, _)| other.borrow() == key) {
            return Some(value);
        }
        self.hashed.as_ref()?.get(key)
    }

    /// Whether the map contains a key.
    pub(crate) fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Adds an entry. Returns `false`, and changes nothing, if the map contains the key already.
    pub(crate) fn insert_new(&mut self, key: K, value: V) -> bool {
        if self.contains(&key) {
            return false;
        }
        if let Some(slot) = self.inline.get_mut(self.inline_count) {
            *slot = Some((key, value));
            self.inline_count += 1;
        } else {
            self.hashed.get_or_insert_default().insert(key, value);
        }
        true
    }
}

impl<K: Hash + Eq> SmallSet<K> {
    /// Adds a key. Returns `false` if the set contains it already.
    pub(crate) fn insert(&mut self, key: K) -> bool {
        self.insert_new(key, ())
    }
}

impl<K: Hash + Eq, V> FromIterator<(K, V)> for SmallMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.insert_new(key, value);
        }
        map
    }
}

impl<K: Hash + Eq> FromIterator<K> for SmallSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        keys.into_iter().map(|it| (it, ())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_each_key_is_kept() {
        for count in [0, 1, INLINE_ENTRIES_MAX, INLINE_ENTRIES_MAX + 1, 1000] {
            let keys: Vec<_> = (0..count).map(|it| it.to_string()).collect();
            let mut map: SmallMap<&str, usize> =
                keys.iter().enumerate().map(|(at, it)| (&**it, at)).collect();
            for (at, key) in keys.iter().enumerate() {
                assert!(!map.insert_new(key, usize::MAX));
                assert_eq!(map.get(key.as_str()), Some(&at));
            }
            assert!(!map.contains("other"));
            assert!(map.insert_new("other", 0) && map.contains("other"));
        }
    }
}
