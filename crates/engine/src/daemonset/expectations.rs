//! Do not plan again before your own writes came back.

use alloc::collections::BTreeMap;
use core::time::Duration;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use crate::daemonset::facts::{Kind, Pod, Revision};

/// The writes of one set that its caches have not shown yet.
///
/// Creates, patches and status writes are waited for by resource version, deletes by pod UID. A write that cannot come
/// back (it failed, or changed nothing) is never waited for. Every wait has a timer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Gate {
    /// Highest resource version written, by kind.
    wrote: BTreeMap<Kind, u64>,
    /// Deletes that the cache has not shown yet, by the UID of the pod or revision.
    deletes: BTreeMap<Text, (Kind, ObjectKey)>,
    /// Creates or deletes of pods whose answer never came: a list must say whether they happened.
    doubt: bool,
    closed_since: Option<Time>,
    confirmed_at: Option<Time>,
}

/// After this long the API server is asked which pods there are.
const CONFIRM_AFTER: Duration = Duration::from_secs(10);
/// After this long the watches themselves are doubted.
pub(crate) const RELIST_AFTER: Duration = Duration::from_secs(30);

/// What a closed gate asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    Wait { writes: usize, again_at: Time },
    Confirm { relist: bool, again_at: Time },
}

impl Gate {
    pub(crate) fn wrote(&mut self, kind: Kind, resource_version: u64) {
        let highest = self.wrote.entry(kind).or_default();
        *highest = (*highest).max(resource_version);
    }

    /// The pod of this UID is deleted or gone for certain; the cache will show it.
    pub(crate) fn deleted(&mut self, pod: &Pod) {
        self.deletes.insert(pod.uid.clone(), (Kind::Pods, pod.key.clone()));
    }

    /// The same of a revision.
    pub(crate) fn pruned(&mut self, revision: &Revision) {
        self.deletes.insert(revision.uid.clone(), (Kind::Revisions, revision.key.clone()));
    }

    /// A create that may have happened.
    pub(crate) fn doubt(&mut self) {
        self.doubt = true;
    }

    /// A delete that may have happened.
    pub(crate) fn doubt_delete(&mut self, pod: &Pod) {
        self.deleted(pod);
        self.doubt = true;
    }

    /// The API server has said which pods of the set there are: `(uid, resource version, deleting)`.
    pub(crate) fn confirmed(&mut self, pods: &[(Text, u64, bool)], now: Time) {
        for (_, resource_version, _) in pods {
            self.wrote(Kind::Pods, *resource_version);
        }
        // What the list shows alive, which was made after the call had ended, was not deleted: not by one that had no
        // answer, nor by one that was refused.
        for (uid, _, deleting) in pods {
            if !deleting {
                self.deletes.remove(uid);
            }
        }
        self.doubt = false;
        self.confirmed_at = Some(now);
    }

    /// Rule: a plan is made only from caches that show all of the set's own writes. `seen` says how far each kind's watch
    /// has come, `is_alive` whether the cache still shows the object of that UID alive. `None`: open.
    pub(crate) fn closed(
        &mut self,
        seen: impl Fn(Kind) -> u64,
        is_alive: impl Fn(Kind, &Text, &ObjectKey) -> bool,
        now: Time,
    ) -> Option<Closed> {
        self.wrote.retain(|kind, wrote| seen(*kind) < *wrote);
        self.deletes.retain(|uid, (kind, key)| is_alive(*kind, uid, key));
        let writes = self.wrote.len() + self.deletes.len();
        if writes == 0 && !self.doubt {
            (self.closed_since, self.confirmed_at) = (None, None);
            return None;
        }
        // A clock that was set back must not make a wait longer.
        let since = self.closed_since.filter(|it| *it <= now).unwrap_or(now);
        self.closed_since = Some(since);
        let asked = self.confirmed_at.filter(|it| *it <= now).unwrap_or(since);
        if self.doubt || asked + CONFIRM_AFTER <= now {
            return Some(Closed::Confirm {
                relist: since + RELIST_AFTER <= now,
                again_at: now + CONFIRM_AFTER,
            });
        }
        Some(Closed::Wait { writes, again_at: asked + CONFIRM_AFTER })
    }

    /// The same question, asked of every event.
    pub(crate) fn is_open(
        &self,
        seen: impl Fn(Kind) -> u64,
        is_alive: impl Fn(Kind, &Text, &ObjectKey) -> bool,
    ) -> bool {
        !self.doubt
            && self.wrote.iter().all(|(kind, wrote)| *wrote <= seen(*kind))
            && self.deletes.iter().all(|(uid, (kind, key))| !is_alive(*kind, uid, key))
    }

    /// How many writes, or kinds of them, are waited for; one whose answer never came counts as one.
    pub(crate) fn unseen(&self) -> usize {
        (self.wrote.len() + self.deletes.len()).max(usize::from(self.doubt))
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.wrote.is_empty() || !self.deletes.is_empty() || self.doubt
    }
}
