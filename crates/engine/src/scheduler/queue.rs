//! The scheduling queue: active pods, pods in backoff, and unschedulable pods, which are parked until a change may help
//! them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::Pod;
use crate::controller::BackoffPolicy;

/// Backoff of a pod after consecutive failed scheduling attempts. Upstream: `podInitialBackoffSeconds`,
/// `podMaxBackoffSeconds`.
const BACKOFF: BackoffPolicy = BackoffPolicy { min: Duration::from_secs(1), max: Duration::from_secs(10) };

/// Maximum time that a pod stays parked before it is tried again. Upstream: `podMaxInUnschedulablePodsDuration`.
const PARKED_DURATION_MAX: Duration = Duration::from_secs(300);

/// The pending pods. Active pods wait for their turn to be scheduled. Parked pods were found unschedulable, or a call
/// about them failed. A parked pod becomes active after a time, or after a change that may help it.
#[derive(Debug, Default)]
pub(super) struct SchedulingQueue {
    /// All pods of the queue: active and parked.
    pending: BTreeMap<ObjectKey, PendingPod>,
    /// Pods to schedule now, by priority, then by age.
    active: BTreeSet<QueueOrder>,
    /// Parked pods, sorted by the latest time at which they become active.
    due: BTreeSet<(Time, ObjectKey)>,
    /// Parked pods that a change since the last call of [`Self::park`] may have made schedulable. They are tried as soon
    /// as no pod is active. When their backoff ends, they become active.
    retryable: BTreeSet<QueueOrder>,
    /// Unschedulable parked pods whose node affinity names nodes, by the names of these nodes.
    pinned: BTreeMap<Text, BTreeSet<ObjectKey>>,
    /// Unschedulable parked pods whose node affinity names no nodes.
    unpinned: BTreeSet<ObjectKey>,
    /// Parked pods that are unschedulable because of other pods (pod affinity, anti-affinity or topology spread). A
    /// change of any pod may help them.
    pod_dependent: BTreeSet<ObjectKey>,
    /// Keys of the pods for which a node is nominated, by name of the node.
    nominated: BTreeMap<Text, BTreeSet<ObjectKey>>,
}

/// The order in which pods are scheduled: by priority, then by creation time, then by namespace and name.
type QueueOrder = (Reverse<i32>, Time, ObjectKey);

/// A pending pod and its state in the queue.
#[derive(Debug)]
struct PendingPod {
    pod: Arc<Pod>,
    /// The node that is nominated for the pod after a preemption. `None` if no node is nominated.
    nominated_node: Option<Text>,
    /// Number of consecutive failed scheduling attempts of the pod.
    attempts: u32,
    state: QueueState,
}

/// Whether a pending pod is active (waits for its turn to be scheduled) or parked (in backoff or unschedulable, until a
/// time or a change that may help it).
#[derive(Clone, Debug)]
enum QueueState {
    /// The pod is tried as soon as it is first in the queue.
    Active,
    /// The pod has been parked since `since`, and becomes active at `until`. `may_be_schedulable` is whether a change
    /// since then may have made it schedulable. Such a pod may be tried earlier, see [`SchedulingQueue::retryable`].
    /// `names` are the nodes that the node affinity of the pod names. It is `None` if the node affinity names no nodes,
    /// or if the pod is in backoff.
    Parked { since: Time, until: Time, names: Option<BTreeSet<Text>>, may_be_schedulable: bool },
}

/// A change that may make parked pods schedulable. Upstream: `QueueingHint`.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueueingHint<'a> {
    /// The node with this name changed or has more free resources. This may help pods that fit on the node, and pods
    /// that are unschedulable because of other pods.
    Node(&'a Text),
    /// Pods were added, removed or changed. This may help pods that are unschedulable because of other pods.
    PodsChanged,
}

impl SchedulingQueue {
    /// Returns the number of pods in the queue, active and parked.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Returns the keys of all pods in the queue, active and parked.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.pending.keys()
    }

    /// Returns the pod with this key. `None` if it is not in the queue.
    pub(super) fn pod(&self, key: &ObjectKey) -> Option<&Arc<Pod>> {
        self.pending.get(key).map(|it| &it.pod)
    }

    /// Returns the name of the node that is nominated for the pod. `None` if no node is nominated.
    pub(super) fn nominated_node(&self, key: &ObjectKey) -> Option<&Text> {
        self.pending.get(key)?.nominated_node.as_ref()
    }

    /// Returns the pods for which this node is nominated.
    pub(super) fn pods_nominated_for(&self, node: &Text) -> impl Iterator<Item = &Arc<Pod>> {
        let keys = self.nominated.get(node).into_iter().flatten();
        keys.filter_map(|key| self.pending.get(key)).map(|it| &it.pod)
    }

    /// Adds or updates a pending pod. A parked pod stays parked unless its UID, requirements, labels, priority or
    /// creation time changes.
    pub(super) fn put(&mut self, pod: Arc<Pod>) {
        let key = pod.key.clone();
        let is_unchanged = |it: &Pod| {
            it.uid == pod.uid
                && it.requirements == pod.requirements
                && it.labels == pod.labels
                && it.priority == pod.priority
                && it.created == pod.created
        };
        match self.pending.get_mut(&key).filter(|it| is_unchanged(&it.pod)) {
            Some(pending) => {
                // Our nomination counts until the watch shows one; then the server's counts.
                let nomination_changed = pending.pod.nominated != pod.nominated;
                let nominated = pod.nominated.clone();
                pending.pod = pod;
                if nomination_changed {
                    self.nominate(&key, nominated);
                }
            }
            None => {
                self.remove(&key);
                self.active.insert(queue_order(&pod));
                let nominated = pod.nominated.clone();
                let pending =
                    PendingPod { pod, nominated_node: None, attempts: 0, state: QueueState::Active };
                self.pending.insert(key.clone(), pending);
                self.nominate(&key, nominated);
            }
        }
    }

    /// Removes a pod from the queue. Returns the node that was nominated for the pod, or `None` if there was none.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Text> {
        self.unpark(key);
        let pending = self.pending.remove(key)?;
        self.active.remove(&queue_order(&pending.pod));
        if let Some(node) = &pending.nominated_node {
            self.remove_nomination(node, key);
        }
        pending.nominated_node
    }

    /// Moves parked pods to the active pods if their time has come. Returns the key of the next pod to schedule, which
    /// stays active until it is parked or removed. `None` if no pod is to be tried now.
    ///
    /// Rule: pods are scheduled by priority, then by age. After a change that may help an unschedulable pod, the pod is
    /// tried again: at once if no pod is active, otherwise after a backoff of one to ten seconds. Without such a
    /// change, the pod is tried again after five minutes. No pod waits longer than five minutes, even if the clock is
    /// set back.
    pub(super) fn peek_next(&mut self, now: Time) -> Option<ObjectKey> {
        while let Some((at, key)) = self.due.last().cloned()
            && now + PARKED_DURATION_MAX < at
        {
            self.move_to_active(&key);
        }
        while let Some((at, key)) = self.due.first().cloned()
            && at <= now
        {
            self.move_to_active(&key);
        }
        if self.active.is_empty()
            && let Some((_, _, key)) = self.retryable.first().cloned()
        {
            self.move_to_active(&key);
        }
        let (_, _, key) = self.active.first()?.clone();
        Some(key)
    }

    /// Whether there is an active or a retryable pod, so that [`Self::peek_next`] returns a pod now.
    pub(super) fn has_next_pod(&self) -> bool {
        !self.active.is_empty() || !self.retryable.is_empty()
    }

    /// Returns the time at which the next parked pod becomes active even without a change. `None` if no pod is parked.
    pub(super) fn wake_at(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Parks an unschedulable pod until a change may help it, but at most for [`PARKED_DURATION_MAX`].
    /// `depends_on_other_pods` is whether the pod is unschedulable because of other pods.
    ///
    /// This call empties [`Self::retryable`]: parked pods that an earlier change may have helped are now tried only when
    /// their backoff ends, even if no pod is active. If they were tried at once, each deleted pod could cause thousands
    /// of scheduling attempts.
    pub(super) fn park(&mut self, key: &ObjectKey, depends_on_other_pods: bool, now: Time) {
        self.retryable.clear();
        let Some(pending) = self.pending.get(key) else { return };
        let names = pending.pod.requirements.nodes_named_by_affinity();
        for name in names.iter().flatten() {
            self.pinned.entry(name.clone()).or_default().insert(key.clone());
        }
        if names.is_none() {
            self.unpinned.insert(key.clone());
        }
        if depends_on_other_pods {
            self.pod_dependent.insert(key.clone());
        }
        self.park_until(key, now, now + PARKED_DURATION_MAX, names);
    }

    /// Returns the number of consecutive failed scheduling attempts of the pod; 0 if it is not in the queue.
    pub(super) fn attempts(&self, key: &ObjectKey) -> u32 {
        self.pending.get(key).map_or(0, |it| it.attempts)
    }

    /// Adds a pod whose binding failed, and parks it until its backoff ends. `attempts` is the number of its earlier
    /// consecutive failed attempts.
    pub(super) fn requeue(&mut self, pod: Arc<Pod>, attempts: u32, now: Time) {
        let key = pod.key.clone();
        self.put(pod);
        if let Some(pending) = self.pending.get_mut(&key) {
            pending.attempts = attempts;
        }
        self.back_off(&key, now);
    }

    /// Parks a pod until its backoff ends, because a call about the pod failed. Until then,
    /// [`Self::retry_candidates`] does not return the pod.
    pub(super) fn back_off(&mut self, key: &ObjectKey, now: Time) {
        self.unpark(key);
        let attempts = self.attempts(key);
        self.park_until(key, now, now + BACKOFF.delay(attempts + 1), None);
    }

    /// Parks a pod until the time `until`, and counts a failed attempt. `names` is stored in [`QueueState::Parked`].
    fn park_until(&mut self, key: &ObjectKey, now: Time, until: Time, names: Option<BTreeSet<Text>>) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        self.active.remove(&queue_order(&pending.pod));
        pending.attempts = pending.attempts.saturating_add(1);
        pending.state = QueueState::Parked { since: now, until, names, may_be_schedulable: false };
        self.due.insert((until, key.clone()));
    }

    /// Removes a parked pod from all indexes of parked pods, and sets its state to active. The caller adds the pod to
    /// `active` if it is to be scheduled now. Does nothing for a pod that is not parked.
    fn unpark(&mut self, key: &ObjectKey) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        let QueueState::Parked { until, names, .. } =
            core::mem::replace(&mut pending.state, QueueState::Active)
        else {
            return;
        };
        self.due.remove(&(until, key.clone()));
        self.retryable.remove(&queue_order(&pending.pod));
        self.unpinned.remove(key);
        self.pod_dependent.remove(key);
        for name in names.into_iter().flatten() {
            if let Some(keys) = self.pinned.get_mut(&name) {
                keys.remove(key);
                if keys.is_empty() {
                    self.pinned.remove(&name);
                }
            }
        }
    }

    /// Makes a parked pod active, so that it is tried as soon as it is first in the queue.
    fn move_to_active(&mut self, key: &ObjectKey) {
        self.unpark(key);
        if let Some(pending) = self.pending.get(key) {
            self.active.insert(queue_order(&pending.pod));
        }
    }

    /// Returns the parked pods that a change may help and that are not marked as retryable yet. The `bool` is whether to
    /// check first that the pod fits on the changed node.
    pub(super) fn retry_candidates(&self, hint: QueueingHint<'_>) -> Vec<(Arc<Pod>, bool)> {
        let by_node = match hint {
            QueueingHint::Node(node) => {
                Some(self.pinned.get(node).into_iter().flatten().chain(&self.unpinned))
            }
            QueueingHint::PodsChanged => None,
        };
        let by_node =
            by_node.into_iter().flatten().filter(|it| !self.pod_dependent.contains(*it)).map(|it| (it, true));
        let all = self.pod_dependent.iter().map(|it| (it, false)).chain(by_node);
        let waits = |key: &ObjectKey| {
            let pending = self.pending.get(key)?;
            match &pending.state {
                QueueState::Parked { may_be_schedulable: false, .. } => Some(pending.pod.clone()),
                _ => None,
            }
        };
        all.filter_map(|(key, needs_fit_check)| Some((waits(key)?, needs_fit_check))).collect()
    }

    /// Marks a parked pod as one that a change may have made schedulable. The pod stays parked: it becomes active when
    /// its backoff ends, and is tried even earlier if no pod is active.
    pub(super) fn mark_retryable(&mut self, key: &ObjectKey) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        let attempts = pending.attempts;
        let QueueState::Parked { since, until, may_be_schedulable, .. } = &mut pending.state else { return };
        if core::mem::replace(may_be_schedulable, true) {
            return;
        }
        self.due.remove(&(*until, key.clone()));
        *until = (*until).min(*since + BACKOFF.delay(attempts));
        self.due.insert((*until, key.clone()));
        self.retryable.insert(queue_order(&pending.pod));
    }

    /// Sets the nominated node of a pod, or clears it if `node` is `None`. Returns the previously nominated node, or
    /// `None` if there was none or it stays the same. Does nothing and returns `None` if the pod is not in the queue.
    pub(super) fn nominate(&mut self, key: &ObjectKey, node: Option<Text>) -> Option<Text> {
        let pending = self.pending.get_mut(key)?;
        let before = core::mem::replace(&mut pending.nominated_node, node.clone());
        if let Some(before) = &before {
            self.remove_nomination(before, key);
        }
        if let Some(node) = &node {
            self.nominated.entry(node.clone()).or_default().insert(key.clone());
        }
        before.filter(|it| Some(it) != node.as_ref())
    }

    /// Removes a pod from the index of nominated pods. `node` is the node that was nominated.
    fn remove_nomination(&mut self, node: &Text, key: &ObjectKey) {
        if let Some(keys) = self.nominated.get_mut(node) {
            keys.remove(key);
            if keys.is_empty() {
                self.nominated.remove(node);
            }
        }
    }
}

/// Returns the sort key of a pod in the order in which pods are scheduled.
fn queue_order(pod: &Pod) -> QueueOrder {
    (Reverse(pod.priority), pod.created, pod.key.clone())
}
