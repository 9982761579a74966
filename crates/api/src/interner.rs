//! String and list interning: equal strings and equal lists of many objects are stored once.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::labels::Labels;
use crate::taints::{Taint, Toleration};
use crate::text::Text;

/// Stores equal strings and equal lists of many objects only once. Adding a string first removes the entries that
/// nothing else references, if the number of entries has doubled since the last removal and is at least
/// `SWEEP_ENTRIES_MIN`.
#[derive(Debug, Default)]
pub struct Interner {
    texts: BTreeSet<Text>,
    labels: BTreeSet<Arc<[(Text, Text)]>>,
    tolerations: BTreeSet<Arc<[Toleration]>>,
    taints: BTreeSet<Arc<[Taint]>>,
    /// Number of entries at which unreferenced entries are removed next.
    sweep_threshold: usize,
}

/// Minimum number of entries at which unreferenced entries are removed. With fewer entries the removal is not worth its
/// cost.
const SWEEP_ENTRIES_MIN: usize = 4096;

impl Interner {
    /// Returns the stored string that equals `text`. Stores `text` if there is none.
    pub fn intern_text(&mut self, text: &str) -> Text {
        if let Some(interned) = self.texts.get(text) {
            return interned.clone();
        }
        self.sweep_if_due();
        let new: Text = text.into();
        self.texts.insert(new.clone());
        new
    }

    /// Returns the stored labels that equal `pairs`. Stores them if there are none. If a key occurs several times, its
    /// lowest value is used.
    pub fn intern_labels<'a>(&mut self, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Labels {
        let mut pairs: Vec<(Text, Text)> =
            pairs.map(|(key, value)| (self.intern_text(key), self.intern_text(value))).collect();
        pairs.sort();
        pairs.dedup_by(|later, first| later.0 == first.0);
        Labels::from_sorted(intern_list(&mut self.labels, pairs))
    }

    /// Returns the stored list of tolerations that equals `list`. Stores `list` if there is none.
    pub fn intern_tolerations(&mut self, list: Vec<Toleration>) -> Arc<[Toleration]> {
        intern_list(&mut self.tolerations, list)
    }

    /// Returns the stored list of taints that equals `list`. Stores `list` if there is none.
    pub fn intern_taints(&mut self, list: Vec<Taint>) -> Arc<[Taint]> {
        intern_list(&mut self.taints, list)
    }

    /// Removes unreferenced entries if the number of entries has reached `sweep_threshold`. Lists are removed before
    /// strings, because lists reference strings.
    fn sweep_if_due(&mut self) {
        let size = self.texts.len() + self.labels.len() + self.tolerations.len() + self.taints.len();
        if size < self.sweep_threshold.max(SWEEP_ENTRIES_MIN) {
            return;
        }
        self.labels.retain(|it| 1 < Arc::strong_count(it));
        self.tolerations.retain(|it| 1 < Arc::strong_count(it));
        self.taints.retain(|it| 1 < Arc::strong_count(it));
        self.texts.retain(|it| 1 < Arc::strong_count(it));
        let remaining = self.texts.len() + self.labels.len() + self.tolerations.len() + self.taints.len();
        self.sweep_threshold = remaining.saturating_mul(2);
    }
}

/// Returns the list in `interned` that equals `list`. Adds `list` if there is none.
fn intern_list<T: Ord>(interned: &mut BTreeSet<Arc<[T]>>, list: Vec<T>) -> Arc<[T]> {
    if let Some(same) = interned.get(list.as_slice()) {
        return same.clone();
    }
    let new: Arc<[T]> = list.into();
    interned.insert(new.clone());
    new
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn equal_strings_are_held_once_and_unused_ones_are_removed() {
        let mut interner = Interner::default();
        let a = interner.intern_text("zone");
        assert!(Arc::ptr_eq(&a, &interner.intern_text("zone")));
        for i in 0..SWEEP_ENTRIES_MIN * 2 {
            interner.intern_text(&format!("pod-{i}"));
        }
        assert!(interner.texts.len() <= SWEEP_ENTRIES_MIN + 1, "{} texts are kept", interner.texts.len());
        assert!(Arc::ptr_eq(&a, &interner.intern_text("zone")));
    }
}
