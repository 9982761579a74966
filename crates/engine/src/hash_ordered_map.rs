//! A map by name for as many names as there are nodes.
//!
//! Names of a fleet are long and begin alike, and each is somewhere else in memory: finding one among a hundred thousand
//! by comparing names misses the processor's cache at every step. So entries are ordered by a sum of the name first, which
//! lies in the tree itself; the name settles equal sums. The order means nothing, but is the same every time.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map;
use alloc::vec::Vec;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HashOrderedMap<K, V>(BTreeMap<(u64, K), V>);

/// What can be found by its sum.
pub(crate) trait Name: Ord + Clone {
    fn sum(&self) -> u64;
}

impl Name for Text {
    fn sum(&self) -> u64 {
        mix(0, self)
    }
}

impl Name for ObjectKey {
    fn sum(&self) -> u64 {
        mix(mix(0, &self.namespace), &self.name)
    }
}

/// A number for two names together: an order without a meaning, the same every time.
pub(crate) fn order(a: &str, b: &str) -> u64 {
    let sum =
        a.bytes().chain([0]).chain(b.bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    // The last letters of a name do not reach the highest bits of that sum, by which the order goes: neighbours would
    // stay neighbours. This brings every bit to every other (the finish of MurmurHash3).
    let sum = (sum ^ (sum >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let sum = (sum ^ (sum >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    sum ^ (sum >> 33)
}

/// Eight letters at a time; the multiplication carries every one of them into the highest bits.
fn mix(sum: u64, text: &str) -> u64 {
    text.as_bytes().chunks(8).fold(sum, |sum, letters| {
        let mut word = [0; 8];
        word[..letters.len()].copy_from_slice(letters);
        (sum.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95)
    })
}

impl<K, V> Default for HashOrderedMap<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Name, V> HashOrderedMap<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(&place(key))
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(&place(key))
    }

    pub(crate) fn insert(&mut self, key: &K, value: V) -> Option<V> {
        self.0.insert(place(key), value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(&place(key))
    }

    pub(crate) fn entry(&mut self, key: &K) -> btree_map::Entry<'_, (u64, K), V> {
        self.0.entry(place(key))
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

    /// Makes a value of every name that is in one of two maps, from what each has of it: no entry is looked for, and the
    /// new ones are laid down at once.
    pub(crate) fn join<W, U>(
        &self,
        other: &HashOrderedMap<K, W>,
        make: impl Fn(&K, Option<&V>, Option<&W>) -> U,
    ) -> HashOrderedMap<K, U> {
        let mut made = Vec::with_capacity(self.len().max(other.len()));
        made.extend(
            self.both(other).map(|(place, ours, theirs)| (place.clone(), make(&place.1, ours, theirs))),
        );
        HashOrderedMap(made.into_iter().collect())
    }

    fn both<'a, W>(
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

impl<K: Name, V> FromIterator<(K, V)> for HashOrderedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(key, value)| ((key.sum(), key), value)).collect())
    }
}

fn place<K: Name>(key: &K) -> (u64, K) {
    (key.sum(), key.clone())
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn what_is_put_is_found_and_joined() {
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
    fn sums_of_a_fleet_differ_in_their_highest_bits() {
        let tops = (0..256).map(|it| Text::from(format!("node-{it:05}")).sum() >> 48);
        assert!(250 < tops.collect::<alloc::collections::BTreeSet<_>>().len());
    }
}
