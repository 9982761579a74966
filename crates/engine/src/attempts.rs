//! What became of the last write about each object, so that none is made twice: not while one is under way, not before
//! the watch has shown what it did, and not at once when it was refused.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::act::Refusal;
use crate::time::Time;

/// A write that has not come back by then is tried again, which changes nothing if it was done.
pub(crate) const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// First wait after a refusal, and the longest; doubled in between.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Attempts<K>(BTreeMap<K, Attempt>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    UnderWay { refused: u32 },
    Done { of_version: u64, again_at: Time },
    Refused { times: u32, again_at: Time },
}

/// Whether something may be written now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    Now,
    /// At the latest then; it may be earlier, when something happens.
    Later(Option<Time>),
}

impl<K: Ord + Clone> Attempts<K> {
    pub(crate) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// `version` is that of the object as it is shown.
    pub(crate) fn turn(&self, key: &K, version: u64, now: Time) -> Turn {
        match self.0.get(key) {
            None => Turn::Now,
            Some(Attempt::UnderWay { .. }) => Turn::Later(None),
            Some(Attempt::Done { of_version, again_at }) if *of_version == version && now < *again_at => {
                Turn::Later(Some(*again_at))
            }
            Some(Attempt::Refused { again_at, .. }) if now < *again_at => Turn::Later(Some(*again_at)),
            Some(Attempt::Done { .. } | Attempt::Refused { .. }) => Turn::Now,
        }
    }

    pub(crate) fn begin(&mut self, key: &K) {
        let refused = match self.0.get(key) {
            Some(Attempt::Refused { times, .. }) => *times,
            _ => 0,
        };
        self.0.insert(key.clone(), Attempt::UnderWay { refused });
    }

    /// Rule: a write is over when the watch shows it, or ten seconds later.
    pub(crate) fn end(&mut self, key: &K, of_version: u64, refusal: Option<&Refusal>, now: Time) {
        // Nobody waits for what has gone meanwhile.
        let Some(Attempt::UnderWay { refused }) = self.0.get(key).copied() else { return };
        let attempt = match refusal {
            None | Some(Refusal::NotFound) => Attempt::Done { of_version, again_at: now + SHOWN_WITHIN },
            Some(refusal) => {
                let again_at = now + retry_after(refused, refusal);
                Attempt::Refused { times: refused.saturating_add(1), again_at }
            }
        };
        self.0.insert(key.clone(), attempt);
    }

    /// Nothing is left to do about it, or it is gone.
    pub(crate) fn forget(&mut self, key: &K) {
        if !matches!(self.0.get(key), Some(Attempt::UnderWay { .. })) {
            self.0.remove(key);
        }
    }

    /// It is gone, whatever is under way about it.
    pub(crate) fn remove(&mut self, key: &K) {
        self.0.remove(key);
    }
}

/// Rule: what was refused is tried again after a wait that doubles each time.
pub(crate) fn retry_after(refused_before: u32, refusal: &Refusal) -> Duration {
    let wait = (RETRY_MIN * 2_u32.saturating_pow(refused_before.min(16))).min(RETRY_MAX);
    wait.max(refusal.asks_to_wait())
}
