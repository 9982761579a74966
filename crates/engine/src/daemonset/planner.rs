//! [`Planner`]: makes the plan of a DaemonSet from the cached facts (the fields of API objects that rules read,
//! decoded) and from the in-memory state.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use crate::controller::{Event, Measurement, MeasurementResult};
use crate::daemonset::controller_cache::ControllerCache;
use crate::daemonset::execution::ExecutionReport;
use crate::daemonset::expectations::UnmetExpectations;
use crate::daemonset::facts::{Kind, Pod, Set, WatchedObject};
use crate::daemonset::object_cache::ObjectCache;
use crate::daemonset::plan::{Plan, Settings};
use crate::daemonset::progressive::membership::AssignedRevision;
use crate::daemonset::roster::FAILED_POD_BACKOFF;
use crate::daemonset::why::Why;
use crate::daemonset::{self, RolloutDeletion, check_availability};

/// Makes the plans of DaemonSets from its cache. Watch events and the reports of executed plans update the cache.
#[derive(Debug, Default)]
pub struct Planner {
    settings: Settings,
    /// The cache of facts, with the state of each DaemonSet.
    pub(super) cache: ControllerCache,
    /// Keys of the DaemonSets for which the controller made writes that the watches have not delivered yet.
    waiting: BTreeSet<ObjectKey>,
}

impl Planner {
    /// Creates a planner with an empty cache.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Whether plans can be made: every kind has been listed, except optional kinds that are forbidden. If the last list
    /// of a kind was older than the events that were already delivered, its watch must also have caught up with them.
    pub fn is_synced(&self) -> bool {
        self.cache.is_synced()
    }

    /// Returns the newest resource version that the last list of a kind, or the watch since then, has delivered. 0
    /// before the first list of that kind.
    pub fn observed_version(&self, kind: Kind) -> u64 {
        self.cache.seen.get(&kind).copied().unwrap_or(0)
    }

    /// Returns the settings of the DaemonSet controller.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Applies an event and returns the keys of the DaemonSets to reconcile: none while [`Planner::is_synced`] is
    /// false, and all if the event makes it true.
    pub fn apply(&mut self, event: Event<WatchedObject>) -> Vec<ObjectKey> {
        let was_synced = self.is_synced();
        let mut keys = self.cache.apply(event);
        self.waiting.retain(|key| self.cache.entries.contains_key(key));
        if !self.is_synced() {
            return Vec::new();
        }
        if !was_synced {
            return self.keys().cloned().collect();
        }
        keys.extend(self.unblocked_keys());
        keys.into_iter().collect()
    }

    /// Applies a bookmark of a watch and returns the keys of the DaemonSets to reconcile: all if the bookmark makes
    /// [`Planner::is_synced`] true.
    pub fn apply_bookmark(&mut self, kind: Kind, resource_version: u64) -> Vec<ObjectKey> {
        let was_synced = self.is_synced();
        self.cache.advance_watch(kind, resource_version);
        if !was_synced && self.is_synced() {
            return self.keys().cloned().collect();
        }
        self.unblocked_keys()
    }

    /// Records that the API server forbids the controller to read an optional kind. Returns the keys of the DaemonSets
    /// to reconcile, as [`Planner::apply`] does.
    pub fn on_forbidden(&mut self, kind: Kind) -> Vec<ObjectKey> {
        let was_synced = self.is_synced();
        let mut keys = BTreeSet::new();
        self.cache.set_forbidden(kind, true, &mut keys);
        match (was_synced, self.is_synced()) {
            (_, false) => Vec::new(),
            (false, true) => self.keys().cloned().collect(),
            (true, true) => keys.into_iter().collect(),
        }
    }

    /// Updates the state of a DaemonSet and makes its plan. `None` if the DaemonSet does not exist, or while
    /// [`Planner::is_synced`] is false. The plan of a DaemonSet that is being deleted is idle.
    ///
    /// Call this function for every key that [`Planner::apply`], [`Planner::apply_bookmark`] or
    /// [`Planner::on_forbidden`] returned, at the [`Plan::wake_at`] of the last plan, and after each
    /// [`Planner::apply_report`].
    pub fn reconcile(&mut self, key: &ObjectKey, now: Time) -> Option<Plan> {
        if !self.cache.is_synced() {
            return None;
        }
        let unmet = self.check_expectations(key, now);
        let entry = self.cache.entries.get_mut(key)?;
        entry.adjust_to_clock_and_generation(now);
        if entry.set.deleting {
            return Some(Plan::idle(entry.set.clone()));
        }
        // Checked before the expectations, which may need a list call: a failed list is not retried at once.
        if let Some(at) = entry.memory.retry_at.filter(|at| now < *at) {
            let mut plan = Plan::idle(entry.set.clone());
            plan.waiting = Some(Why::RetryLater { at });
            plan.wake_at = Some(at);
            return Some(plan);
        }
        if let Some(unmet) = unmet {
            return Some(waiting_plan(&entry.set, unmet));
        }
        entry.refresh_cells(&self.cache.objects, self.settings.assist, now);
        entry.record_progress(now);
        let pods = &entry.pods;
        let carrying = |hash: &Text| -> Vec<Arc<Pod>> {
            let mut pods: Vec<Arc<Pod>> =
                pods.values().flatten().filter(|it| it.hash_label() == Some(hash)).cloned().collect();
            pods.sort_by(|a, b| a.key.cmp(&b.key));
            pods
        };
        let available = || -> Vec<Arc<Pod>> {
            // A pod stays in the API server for some time after its node was deleted, but no longer runs.
            let has_node =
                |it: &Pod| it.target.as_ref().is_some_and(|node| self.cache.objects.node(node).is_some());
            let is_available =
                |it: &&Arc<Pod>| has_node(it) && check_availability(&entry.effective, it, now).is_ok();
            pods.values().flatten().filter(is_available).cloned().collect()
        };
        let facts = daemonset::DecisionInput {
            set: &entry.effective,
            claims: entry.claims.values().cloned().collect(),
            set_state: &entry.set_state,
            pods_by_hash: &entry.pods_by_hash,
            pods_with_hash: &carrying,
            rollout_progress: entry.memory.rollout_progress.as_ref(),
            checks: &entry.memory.checks,
            creates: &entry.memory.creates,
            evictions: &entry.memory.evictions,
            events_recorded: entry.memory.events_recorded_for == Some(entry.set.generation),
            node: &|name| self.cache.objects.node(name),
            available_pods: &available,
        };
        let mut plan = daemonset::make_plan(&facts, &self.settings, now);
        if let Some(policy) = entry.set_state.progressive.as_ref().and_then(|it| it.policy.as_ref()) {
            entry.memory.checks.record_started(&plan.measurements, &policy.spec.checks);
        }
        entry.throttle_status(&mut plan, now);
        entry.throttle_rollout_status(&mut plan, now);
        entry.throttle_conditions(&mut plan, now);
        // A plan that only adopts, releases or records revisions has not recorded the events about an invalid spec yet.
        if plan.claims.is_empty() && (!plan.hash.is_empty() || plan.steps.is_empty()) {
            entry.memory.events_recorded_for = Some(entry.set.generation);
        }
        Some(plan)
    }

    /// Applies the report of an execution. Afterwards the DaemonSet must be reconciled again. Does nothing if the
    /// DaemonSet of the report no longer exists, even if another one has its name.
    pub fn apply_report(&mut self, key: &ObjectKey, report: &ExecutionReport, now: Time) {
        let Some(entry) = self.cache.entries.get_mut(key).filter(|it| it.set.uid == report.uid) else {
            return;
        };
        entry.adjust_to_clock_and_generation(now);
        entry.memory.apply_report(report, now);
        for node in &report.finished_pod_delete_nodes {
            let before = entry.memory.backoffs.get(node).copied();
            entry.memory.backoffs.insert(node.clone(), FAILED_POD_BACKOFF.next(before, now, now));
            entry.dirty.add_node(node);
        }
        if let Some(current) = &entry.set_state.history.current {
            let stable = entry.set_state.progressive.as_ref().and_then(|it| it.stable.as_ref());
            for node in report.nodes_with_deleted_pods() {
                let assigned = entry.set_state.cells.get(node).map(|it| it.assigned).unwrap_or_default();
                let target = match (assigned, stable) {
                    (AssignedRevision::Stable, Some(stable)) => &stable.target,
                    _ => current,
                };
                let deletion = RolloutDeletion { hash: target.hash.clone(), at: now };
                entry.memory.rollout_deletions.insert(node.clone(), deletion);
                entry.dirty.add_node(node);
            }
        }
        if entry.memory.expectations.is_pending() {
            self.waiting.insert(key.clone());
        }
    }

    /// Records the result of a measurement for a check of a progressive rollout. Returns whether the DaemonSet must be
    /// reconciled again: `false` only if the measured DaemonSet no longer exists.
    pub fn record_measurement(
        &mut self,
        measurement: &Measurement,
        measured: &MeasurementResult,
        now: Time,
    ) -> bool {
        let entry = self.cache.entries.get_mut(&measurement.set);
        let Some(entry) = entry.filter(|it| it.set.uid == measurement.uid) else { return false };
        entry.memory.checks.record_result(measurement, measured, now);
        true
    }

    /// Forgets the measurements in flight for checks of a DaemonSet, so that the measurements are started again. Needed
    /// after a panic, which may have lost their results.
    pub(super) fn forget_measurements(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.cache.entries.get_mut(key) {
            entry.memory.checks.forget_in_flight();
        }
    }

    /// Returns the number of cached objects of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.cache.count(kind)
    }

    /// Returns the DaemonSet with this key. `None` if the cache does not contain it.
    pub fn daemon_set_by_key(&self, key: &ObjectKey) -> Option<&Arc<Set>> {
        self.cache.entries.get(key).map(|it| &it.set)
    }

    /// Returns all DaemonSets in the cache.
    pub fn sets(&self) -> impl Iterator<Item = &Arc<Set>> {
        self.cache.entries.values().map(|it| &it.set)
    }

    /// Returns the keys of all DaemonSets in the cache.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.cache.entries.keys()
    }

    /// Returns a copy of this planner that computes every cell (the state of one DaemonSet on one node) again at the
    /// next reconcile of the DaemonSet. Objects and in-memory state are the same. The copy is used after a panic, and
    /// by tests, which compare it with a planner that was updated event by event.
    pub fn with_all_cells_dirty(&self) -> Self {
        Self {
            settings: self.settings,
            cache: self.cache.with_all_cells_dirty(),
            waiting: self.waiting.clone(),
        }
    }

    /// Whether two planners have the same state (`SetState`), pods and claims for a DaemonSet. Also true if neither
    /// planner has the DaemonSet.
    pub fn agrees_with(&self, other: &Self, key: &ObjectKey) -> bool {
        match (self.cache.entries.get(key), other.cache.entries.get(key)) {
            (Some(a), Some(b)) => {
                a.set_state == b.set_state
                    && a.pods == b.pods
                    && a.pods_by_hash == b.pods_by_hash
                    && a.claims == b.claims
            }
            (a, b) => a.is_none() && b.is_none(),
        }
    }

    /// Drops the met expectations of a DaemonSet, and returns how its plan must handle the unmet ones. `None` if all
    /// are met, or if the DaemonSet does not exist. If all are met, also removes the DaemonSet from `waiting`.
    fn check_expectations(&mut self, key: &ObjectKey, now: Time) -> Option<UnmetExpectations> {
        let ControllerCache { seen, objects, entries, .. } = &mut self.cache;
        let entry = entries.get_mut(key)?;
        let seen = |kind: Kind| seen.get(&kind).copied().unwrap_or(0);
        let set = entry.set.clone();
        let is_alive = |kind, uid: &Text, key: &ObjectKey| is_alive_in_cache(objects, &set, kind, uid, key);
        let unmet = entry.memory.expectations.check(seen, is_alive, now);
        if unmet.is_none() {
            self.waiting.remove(key);
        }
        unmet
    }

    /// Returns the keys of the DaemonSets that waited for the watches to deliver the controller's own writes, and need
    /// not wait any longer.
    fn unblocked_keys(&self) -> Vec<ObjectKey> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let seen = |kind: Kind| self.observed_version(kind);
        let open = |key: &&ObjectKey| {
            let entry = self.cache.entries.get(*key);
            entry.is_none_or(|entry| {
                let objects = &self.cache.objects;
                let is_alive = |kind, uid: &Text, key: &ObjectKey| {
                    is_alive_in_cache(objects, &entry.set, kind, uid, key)
                };
                entry.memory.expectations.are_met(seen, is_alive)
            })
        };
        self.waiting.iter().filter(open).cloned().collect()
    }
}

/// Whether the cache still shows an object of the DaemonSet as existing and not terminating. A delete of that object
/// has then not been observed yet. `false` for kinds other than pods and revisions.
///
/// Rule: a delete is observed when the object with that UID is terminating or no longer exists, or when another object
/// has its name. The delete of a pod is also observed when the pod no longer belongs to the DaemonSet, because its
/// labels or its controller changed.
fn is_alive_in_cache(objects: &ObjectCache, set: &Set, kind: Kind, uid: &Text, key: &ObjectKey) -> bool {
    match kind {
        Kind::Pods => objects.pod(key).is_some_and(|it| {
            let counted = it.owner.as_ref() == Some(&set.uid) && set.selector.matches(&it.labels);
            it.uid == *uid && counted && !it.deleting
        }),
        Kind::Revisions => objects.revision(key).is_some_and(|it| it.uid == *uid && !it.deleting),
        Kind::Sets
        | Kind::Nodes
        | Kind::Policies
        | Kind::ClusterPolicies
        | Kind::Rollouts
        | Kind::Namespaces => false,
    }
}

/// Returns the plan of a DaemonSet whose expectations are unmet. With [`UnmetExpectations::Wait`] the plan only waits.
/// With [`UnmetExpectations::Confirm`] it lists the pods and, if `relist` is true, every kind again.
fn waiting_plan(set: &Arc<Set>, unmet: UnmetExpectations) -> Plan {
    let mut plan = Plan::idle(set.clone());
    match unmet {
        UnmetExpectations::Wait { writes, recheck_at } => {
            plan.waiting = Some(Why::WaitingForOwnWrites { writes });
            plan.wake_at = Some(recheck_at);
        }
        UnmetExpectations::Confirm { relist, recheck_at } => {
            (plan.confirm, plan.relist, plan.wake_at) = (true, relist, Some(recheck_at));
        }
    }
    plan
}
