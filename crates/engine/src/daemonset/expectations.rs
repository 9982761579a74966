//! Expectations: no new plan is made for a DaemonSet until the watches have delivered the writes that the controller
//! made for the DaemonSet.

use alloc::collections::BTreeMap;
use core::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use crate::daemonset::facts::{Kind, Pod, Revision};

/// The controller's own writes for one DaemonSet that the watches have not delivered yet. Upstream:
/// `ControllerExpectations`.
///
/// Creates, patches and status writes are expected by resource version, deletes by UID. A failed write is not expected,
/// unless it may have been applied although its response was lost or was a server error. While expectations are unmet,
/// the pods are listed every [`CONFIRM_AFTER`]. When expectations have been unmet for [`RELIST_AFTER`], all kinds are
/// listed again as well.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Expectations {
    /// For each kind, the resource version that the watch of the kind must deliver, because the controller has written
    /// it or a list of pods has shown it.
    wrote: BTreeMap<Kind, u64>,
    /// Expected deletes, by UID of the pod or revision. [`Expectations::check`] removes the deletes that the cache
    /// shows.
    deletes: BTreeMap<Text, (Kind, ObjectKey)>,
    /// Whether a create, delete or eviction of a pod got no response or a server error. Only a list shows whether the
    /// write was applied.
    uncertain: bool,
    /// Time since which at least one expectation has been unmet. `None` if all were met at the last check.
    unmet_since: Option<Time>,
    /// Time of the last list of the pods from the API server. `None` if they were not listed since all expectations
    /// were last met.
    confirmed_at: Option<Time>,
}

/// Time that expectations may be unmet before the pods are listed from the API server, and time between two such lists.
/// After an uncertain write the pods are listed at once.
const CONFIRM_AFTER: Duration = Duration::from_secs(10);
/// Time that expectations may be unmet before every kind is listed again.
pub(crate) const RELIST_AFTER: Duration = Duration::from_secs(30);

/// How the next plan of a DaemonSet handles its unmet expectations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnmetExpectations {
    /// The plan makes no call. The expectations are checked again at `recheck_at`. `writes` is the number of kinds with
    /// a resource version that the watch has not delivered yet, plus the number of deletes that the cache does not show
    /// yet.
    Wait { writes: usize, recheck_at: Time },
    /// The plan lists the pods of the DaemonSet and, if `relist` is true, requests a new list of every kind. The
    /// expectations are checked again at `recheck_at`.
    Confirm { relist: bool, recheck_at: Time },
}

impl Expectations {
    /// Expects the watch of a kind to deliver this resource version.
    pub(crate) fn expect_version(&mut self, kind: Kind, resource_version: u64) {
        let highest = self.wrote.entry(kind).or_default();
        *highest = (*highest).max(resource_version);
    }

    /// Expects the watch to show that the pod is terminating or no longer exists.
    pub(crate) fn expect_pod_delete(&mut self, pod: &Pod) {
        self.deletes.insert(pod.uid.clone(), (Kind::Pods, pod.key.clone()));
    }

    /// Expects the watch to show that the revision is terminating or no longer exists.
    pub(crate) fn expect_revision_delete(&mut self, revision: &Revision) {
        self.deletes.insert(revision.uid.clone(), (Kind::Revisions, revision.key.clone()));
    }

    /// Records that a pod create may have been applied although its response was lost or was a server error.
    pub(crate) fn expect_uncertain_create(&mut self) {
        self.uncertain = true;
    }

    /// Records that the delete or eviction of this pod may have been applied although its response was lost or was a
    /// server error.
    pub(crate) fn expect_uncertain_delete(&mut self, pod: &Pod) {
        self.expect_pod_delete(pod);
        self.uncertain = true;
    }

    /// Applies a list of the DaemonSet's pods that was read from the API server. The list shows whether uncertain
    /// writes were applied. Expects the watch to deliver the listed versions, and no longer expects the delete of a pod
    /// that the list shows as not being deleted. The elements of `pods` are UID, resource version, and whether the pod
    /// is being deleted.
    pub(crate) fn apply_pod_list(&mut self, pods: &[(Text, u64, bool)], now: Time) {
        for (_, resource_version, _) in pods {
            self.expect_version(Kind::Pods, *resource_version);
        }
        // The list was read after the delete had returned: a pod that it shows alive was not deleted.
        for (uid, _, deleting) in pods {
            if !deleting {
                self.deletes.remove(uid);
            }
        }
        self.uncertain = false;
        self.confirmed_at = Some(now);
    }

    /// Drops the expectations that are met, and returns how the next plan handles the unmet ones. `None` if all are
    /// met.
    ///
    /// `seen` returns the newest resource version that the watch of a kind has delivered. `is_alive` takes the kind,
    /// UID and key of an object. It returns whether the cache contains that object and the object is not terminating.
    ///
    /// Rule: a plan is made only from a cache that contains all of the controller's own writes for the DaemonSet.
    pub(crate) fn check(
        &mut self,
        seen: impl Fn(Kind) -> u64,
        is_alive: impl Fn(Kind, &Text, &ObjectKey) -> bool,
        now: Time,
    ) -> Option<UnmetExpectations> {
        self.wrote.retain(|kind, wrote| seen(*kind) < *wrote);
        self.deletes.retain(|uid, (kind, key)| is_alive(*kind, uid, key));
        let writes = self.wrote.len() + self.deletes.len();
        if writes == 0 && !self.uncertain {
            (self.unmet_since, self.confirmed_at) = (None, None);
            return None;
        }
        // A clock that was set back must not make a wait longer.
        let since = self.unmet_since.filter(|it| *it <= now).unwrap_or(now);
        self.unmet_since = Some(since);
        let asked = self.confirmed_at.filter(|it| *it <= now).unwrap_or(since);
        if self.uncertain || asked + CONFIRM_AFTER <= now {
            return Some(UnmetExpectations::Confirm {
                relist: since + RELIST_AFTER <= now,
                recheck_at: now + CONFIRM_AFTER,
            });
        }
        Some(UnmetExpectations::Wait { writes, recheck_at: asked + CONFIRM_AFTER })
    }

    /// Whether all expectations are met. Unlike [`Expectations::check`], this function changes nothing.
    pub(crate) fn are_met(
        &self,
        seen: impl Fn(Kind) -> u64,
        is_alive: impl Fn(Kind, &Text, &ObjectKey) -> bool,
    ) -> bool {
        !self.uncertain
            && self.wrote.iter().all(|(kind, wrote)| *wrote <= seen(*kind))
            && self.deletes.iter().all(|(uid, (kind, key))| !is_alive(*kind, uid, key))
    }

    /// Returns the number of expected writes: one for each kind with an expected resource version, and one for each
    /// delete. At least one if it is uncertain whether a pod write was applied.
    pub(crate) fn pending_count(&self) -> usize {
        (self.wrote.len() + self.deletes.len()).max(usize::from(self.uncertain))
    }

    /// Whether any write is expected, or it is uncertain whether a pod write was applied.
    pub(crate) fn is_pending(&self) -> bool {
        !self.wrote.is_empty() || !self.deletes.is_empty() || self.uncertain
    }
}
