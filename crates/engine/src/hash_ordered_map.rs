//! [`HashOrderedMap`]: a map from names or object keys to values, with a deterministic order and fast lookups among
//! 100,000 keys, such as the names of all nodes.
//!
//! Node names are long, have common prefixes, and are scattered in memory. In a `BTreeMap` ordered by name, most
//! comparisons of a lookup would miss the processor's cache. So this map is a `BTreeMap` ordered by a hash of the name,
//! and stores each hash beside the pointer to its name. Names with equal hashes are ordered by name. The order has no
//! meaning, but is the same in every run.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map;
use alloc::vec::Vec;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;

/// A map that is ordered by a hash of the keys. The hash is stored with each key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HashOrderedMap<K, V>(BTreeMap<(u64, K), V>);

/// A type of keys that a [`HashOrderedMap`] can order by their hash.
pub(crate) trait HashKey: Ord + Clone {
    /// Returns a hash of the key that is the same in every run.
    fn stable_hash(&self) -> u64;
}

impl HashKey for Text {
    fn stable_hash(&self) -> u64 {
        fx_hash(0, self)
    }
}

impl HashKey for ObjectKey {
    fn stable_hash(&self) -> u64 {
        fx_hash(fx_hash(0, &self.namespace), &self.name)
    }
}

/// Returns a hash of two names that is the same in every run. Sorting by it gives a pseudo-random order.
pub(crate) fn hash_pair(a: &str, b: &str) -> u64 {
    let hash = a.bytes().chain([0]).chain(b.bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // FNV-1a hardly mixes the last bytes into the highest bits, which dominate the order: similar names would stay
    // neighbours. The finalizer of MurmurHash3 mixes all bits.
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Returns the FxHash `hash` continued with the bytes of a text, eight bytes at a time. The multiplication mixes each
/// byte into the highest bits.
fn fx_hash(hash: u64, text: &str) -> u64 {
    text.as_bytes().chunks(8).fold(hash, |hash, bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95)
    })
}

impl<K, V> Default for HashOrderedMap<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: HashKey, V> HashOrderedMap<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(&with_hash(key))
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(&with_hash(key))
    }

    /// Inserts a value. Returns the previous value of the key, or `None` if there was none.
    pub(crate) fn insert(&mut self, key: &K, value: V) -> Option<V> {
        self.0.insert(with_hash(key), value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(&with_hash(key))
    }

    /// Returns the entry of a key, to insert or change its value. `Entry::key` returns the pair of hash and key.
    pub(crate) fn entry(&mut self, key: &K) -> btree_map::Entry<'_, (u64, K), V> {
        self.0.entry(with_hash(key))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|((_, key), value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys().map(|(_, key)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Joins two maps (full outer join). `make` gets each key of either map with its values in `self` and in `other`.
    /// One of the two values may be `None`. `make` returns the value in the joined map. The join takes linear time,
    /// because it iterates over both maps in order and looks up no key.
    pub(crate) fn join<W, U>(
        &self,
        other: &HashOrderedMap<K, W>,
        make: impl Fn(&K, Option<&V>, Option<&W>) -> U,
    ) -> HashOrderedMap<K, U> {
        let mut made = Vec::with_capacity(self.len().max(other.len()));
        made.extend(
            self.merge_join(other).map(|(key, ours, theirs)| (key.clone(), make(&key.1, ours, theirs))),
        );
        HashOrderedMap(made.into_iter().collect())
    }

    /// Iterates over the keys of both maps in order, each with its values in `self` and `other`. A value is `None` if
    /// that map does not contain the key.
    fn merge_join<'a, W>(
        &'a self,
        other: &'a HashOrderedMap<K, W>,
    ) -> impl Iterator<Item = (&'a (u64, K), Option<&'a V>, Option<&'a W>)> {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        core::iter::from_fn(move || {
            let first = match (ours.peek(), theirs.peek()) {
                (Some((a, _)), Some((b, _))) => (*a).min(*b),
                (Some((a, _)), None) => *a,
                (None, Some((b, _))) => *b,
                (None, None) => return None,
            };
            let our = ours.next_if(|it| it.0 == first).map(|it| it.1);
            let their = theirs.next_if(|it| it.0 == first).map(|it| it.1);
            Some((first, our, their))
        })
    }
}

impl<K: HashKey, V> FromIterator<(K, V)> for HashOrderedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(key, value)| ((key.stable_hash(), key), value)).collect())
    }
}

/// Returns the key as it is stored in the map: its hash, and the key itself.
fn with_hash<K: HashKey>(key: &K) -> (u64, K) {
    (key.stable_hash(), key.clone())
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn lookup_and_join() {
        let name = |it: usize| Text::from(format!("ip-10-0-0-{it}.compute.internal"));
        let evens: HashOrderedMap<Text, usize> = (0..500).map(|it| (name(it * 2), it * 2)).collect();
        let thirds: HashOrderedMap<Text, usize> = (0..500).map(|it| (name(it * 3), it * 3)).collect();
        assert_eq!(evens.get(&name(42)), Some(&42));
        assert_eq!(evens.get(&name(43)), None);
        let joined = evens.join(&thirds, |_, even, third| (even.copied(), third.copied()));
        let all = (0..1_500).filter(|it| (*it < 1_000 && it % 2 == 0) || it % 3 == 0);
        assert_eq!(joined.len(), all.count());
        for (key, (even, third)) in joined.iter() {
            assert_eq!((even.as_ref(), third.as_ref()), (evens.get(key), thirds.get(key)));
        }
    }

    #[test]
    fn hashes_of_similar_names_differ_in_their_highest_bits() {
        let tops = (0..256).map(|it| Text::from(format!("node-{it:05}")).stable_hash() >> 48);
        assert!(250 < tops.collect::<alloc::collections::BTreeSet<_>>().len());
    }
}
