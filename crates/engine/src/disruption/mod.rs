//! The disruption controller: updates the status of PodDisruptionBudgets. The eviction subresource reads from the
//! status how many pods may be evicted now.
//!
//! The controller keeps running totals of the pods that each budget selects, so the cost of a pod event does not depend
//! on the number of pods. The eviction subresource decrements `disruptionsAllowed` itself, and records in
//! `disruptedPods` which pods it is about to delete. Until the watch shows the deletion of these pods, but at most for
//! two minutes, they count as unhealthy.
//! Upstream: `pkg/controller/disruption`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub use call::DisruptionCall;
pub use decode::{
    AvailabilityTarget, BudgetStatus, DisruptionObject, Pod, PodController, PodDisruptionBudget,
};

use muster_api::interner::Interner;
use muster_api::object_key::{ObjectKey, entries_in_namespace, entries_in_namespace_mut};
use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use crate::controller::retry::{Attempt, NextAttempt};
use crate::controller::{
    self, Controller, DecodedObject as _, Event, EventRecord, FactStore, KubeEvent, Malformed, Outcome,
    Reconcile, Request, Requeue, Watch,
};

/// The calls of the disruption controller and their API requests.
mod call;
/// Decodes the objects that the disruption controller watches.
mod decode;
/// Computes the status of a PodDisruptionBudget.
mod status;

/// Time for which a pod counts as unhealthy after its eviction. Also the time after which the condition
/// `DisruptionTarget` of a pod that is not being deleted is stale. Upstream: `DeletionTimeout`,
/// `stalePodDisruptionTimeout`.
const DISRUPTION_TIMEOUT: Duration = Duration::from_secs(120);

/// Minimum time between two writes of a budget's status. A status that allows fewer disruptions, or is the first for a
/// new generation, is written at once.
const STATUS_WRITE_INTERVAL_MIN: Duration = Duration::from_millis(250);

/// The disruption controller: all PodDisruptionBudgets and pods, and the writes in flight.
#[derive(Debug, Default)]
pub struct DisruptionController {
    budgets: BTreeMap<ObjectKey, BudgetState>,
    pods: BTreeMap<ObjectKey, Arc<Pod>>,
    /// The state of the last call about each budget or pod.
    attempts: BTreeMap<DisruptionKey, Attempt>,
}

/// The key of an entry in the work queue: a PodDisruptionBudget or a pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DisruptionKey {
    /// The PodDisruptionBudget with this namespace and name.
    Budget(ObjectKey),
    /// A pod that has or had the condition `DisruptionTarget`, or that more than one PodDisruptionBudget selects.
    Pod(ObjectKey),
}

/// A PodDisruptionBudget, the totals of the pods that it selects, and the time of the last write of its status.
#[derive(Debug)]
struct BudgetState {
    budget: Arc<PodDisruptionBudget>,
    /// The pods that the budget selects.
    selected: SelectedPods,
    /// Time at which the controller last wrote the status of the budget. `None` if it has not written the status since
    /// the budget was added or its selector last changed.
    written_at: Option<Time>,
}

/// Counts and names of the pods that a budget selects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SelectedPods {
    /// Number of all pods that the budget selects.
    pub(crate) pods: i64,
    /// Number of selected pods that are healthy: Ready and not being deleted.
    pub(crate) healthy: i64,
    /// Names of the selected pods that have a controller.
    pub(crate) controlled: BTreeSet<Text>,
    /// Names of the selected pods that have no controller.
    pub(crate) unmanaged: BTreeSet<Text>,
}

impl SelectedPods {
    /// Adds a pod to the counts and names.
    fn add(&mut self, pod: &Pod) {
        self.pods += 1;
        self.healthy += i64::from(pod.is_healthy());
        self.name_set_for(pod).insert(pod.key.name.clone());
    }

    /// Removes a pod from the counts and names.
    fn remove(&mut self, pod: &Pod) {
        self.pods -= 1;
        self.healthy -= i64::from(pod.is_healthy());
        self.name_set_for(pod).remove(&pod.key.name);
    }

    /// Returns the set that contains the name of the pod: [`Self::controlled`] if the pod has a controller, otherwise
    /// [`Self::unmanaged`].
    fn name_set_for(&mut self, pod: &Pod) -> &mut BTreeSet<Text> {
        if pod.controller.is_some() { &mut self.controlled } else { &mut self.unmanaged }
    }
}

/// Index of the kind PodDisruptionBudget in [`Controller::watches`].
const BUDGET_WATCH: usize = 0;

impl Controller for DisruptionController {
    type DecodedObject = DisruptionObject;
    type Key = DisruptionKey;
    type Call = DisruptionCall;

    fn watches(&self) -> Vec<Watch> {
        [
            Watch::whole_objects("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
            Watch::whole_objects("", "v1", "Pod", "pods", true),
        ]
        .into()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<DisruptionObject, Malformed> {
        decode::decode_fact(watch, object, shared)
    }

    fn apply(&mut self, event: Event<DisruptionObject>, now: Time) -> Vec<DisruptionKey> {
        let mut keys = BTreeSet::new();
        controller::apply_event(self, event, now, &mut keys);
        keys.into_iter().collect()
    }

    fn reconcile(&mut self, queue_key: &DisruptionKey, now: Time) -> Reconcile<DisruptionCall> {
        match queue_key {
            DisruptionKey::Budget(key) => self.reconcile_budget(queue_key, key, now),
            DisruptionKey::Pod(key) => self.reconcile_pod(queue_key, key, now),
        }
    }

    fn request(call: &DisruptionCall) -> Request {
        call::request(call)
    }

    fn apply_outcome(
        &mut self,
        call: &DisruptionCall,
        outcome: Outcome,
        now: Time,
    ) -> Requeue<DisruptionKey> {
        let queue_key = call.queue_key();
        // There is no attempt if the object was deleted meanwhile.
        if let Some(attempt) = self.attempts.get_mut(&queue_key) {
            attempt.apply_outcome(call.base_version(), &outcome, now);
        }
        Vec::from([queue_key]).into()
    }
}

impl FactStore for DisruptionController {
    type Id = ObjectKey;
    type Keys = BTreeSet<DisruptionKey>;

    fn id(fact: &DisruptionObject) -> ObjectKey {
        fact.key()
    }

    fn stored_ids(&self, kind: usize) -> Vec<ObjectKey> {
        match kind {
            BUDGET_WATCH => self.budgets.keys().cloned().collect(),
            _ => self.pods.keys().cloned().collect(),
        }
    }

    fn put(&mut self, fact: DisruptionObject, _: Time, keys: &mut BTreeSet<DisruptionKey>) {
        match fact {
            DisruptionObject::Pod(pod) => {
                let before = self.pods.insert(pod.key.clone(), pod.clone());
                self.update_budgets_of_pod(before.as_deref(), Some(&pod), keys);
            }
            DisruptionObject::Budget(budget) => {
                keys.insert(DisruptionKey::Budget(budget.key.clone()));
                if let Some(state) = self.budgets.get_mut(&budget.key)
                    && state.budget.selector == budget.selector
                {
                    state.budget = budget;
                    return;
                }
                let mut selected = SelectedPods::default();
                let pods = entries_in_namespace(&self.pods, &budget.key.namespace).map(|(_, pod)| pod);
                pods.filter(|it| budget.selects(it)).for_each(|it| selected.add(it));
                let state = BudgetState { budget: budget.clone(), selected, written_at: None };
                self.budgets.insert(budget.key.clone(), state);
            }
        }
    }

    fn remove(&mut self, kind: usize, key: &ObjectKey, _: Time, keys: &mut BTreeSet<DisruptionKey>) {
        match kind {
            BUDGET_WATCH => {
                self.budgets.remove(key);
                self.attempts.remove(&DisruptionKey::Budget(key.clone()));
            }
            _ => {
                let before = self.pods.remove(key);
                self.attempts.remove(&DisruptionKey::Pod(key.clone()));
                self.update_budgets_of_pod(before.as_deref(), None, keys);
            }
        }
    }
}

impl DisruptionController {
    /// Updates the totals of the budgets that select a pod, after the pod was added, changed or deleted. Adds to `keys`
    /// the keys to reconcile.
    fn update_budgets_of_pod(
        &mut self,
        before: Option<&Pod>,
        now: Option<&Pod>,
        keys: &mut BTreeSet<DisruptionKey>,
    ) {
        let Some(key) = now.or(before).map(|it| &it.key) else { return };
        let is_same = before.zip(now).is_some_and(|(before, now)| before.is_equivalent(now));
        let mut selecting = 0;
        for (name, state) in entries_in_namespace_mut(&mut self.budgets, &key.namespace) {
            let was = before.filter(|it| state.budget.selects(it));
            let is = now.filter(|it| state.budget.selects(it));
            was.into_iter().for_each(|it| state.selected.remove(it));
            is.into_iter().for_each(|it| state.selected.add(it));
            selecting += usize::from(is.is_some());
            if !is_same && (was.is_some() || is.is_some()) {
                keys.insert(DisruptionKey::Budget(name.clone()));
            }
        }
        let has_new_labels = now.is_some_and(|now| before.is_none_or(|it| it.labels != now.labels));
        let is_marked = now.is_some_and(|it| it.disrupted_since.is_some());
        let was_marked = before.is_some_and(|it| it.disrupted_since.is_some());
        if (1 < selecting && has_new_labels) || is_marked || was_marked {
            keys.insert(DisruptionKey::Pod(key.clone()));
        }
    }

    /// If the status of a budget has changed and may be written now, returns the call that writes it, and the events to
    /// record. Also returns the time of the next reconcile, if any.
    fn reconcile_budget(
        &mut self,
        queue_key: &DisruptionKey,
        key: &ObjectKey,
        now: Time,
    ) -> Reconcile<DisruptionCall> {
        let Some(state) = self.budgets.get_mut(key) else { return Reconcile::default() };
        let budget = state.budget.clone();
        let attempt = self.attempts.entry(queue_key.clone()).or_default();
        match attempt.next_attempt(budget.resource_version, now) {
            NextAttempt::Now => {}
            NextAttempt::AfterOutcome => return Reconcile::default(),
            NextAttempt::At(at) => return Reconcile { wake_at: Some(at), ..Reconcile::default() },
        }
        let evaluation = status::evaluate_budget(&budget, &state.selected, &self.pods, now);
        let status = evaluation.status(&budget, now);
        let wake_at = evaluation.next_change_at();
        if status == budget.status {
            self.attempts.remove(queue_key);
            return Reconcile { wake_at, ..Reconcile::default() };
        }
        // Fewer disruptions allowed protects pods, and a status of an older generation allows no eviction at all.
        let is_urgent = status.allowed < budget.status.allowed
            || budget.status.observed_generation != status.observed_generation;
        let throttled_until =
            state.written_at.map(|it| it + STATUS_WRITE_INTERVAL_MIN).filter(|it| now < *it && !is_urgent);
        if throttled_until.is_some_and(|it| it.since(now) <= STATUS_WRITE_INTERVAL_MIN) {
            return Reconcile { wake_at: earliest(throttled_until, wake_at), ..Reconcile::default() };
        }
        state.written_at = Some(now);
        attempt.begin();
        let events = evaluation.events(&budget, &state.selected);
        let calls = Vec::from([DisruptionCall::WriteStatus { budget, status }]);
        Reconcile { calls, events, wake_at, ..Reconcile::default() }
    }

    /// If the condition `DisruptionTarget` of a pod is stale, returns the call that clears it. If more than one budget
    /// selects the pod, returns an event.
    ///
    /// Rule: the condition `DisruptionTarget` of a pod that is not being deleted is reset to False after two minutes,
    /// unless the kubelet set the condition. Upstream: `syncStalePodDisruption`.
    fn reconcile_pod(
        &mut self,
        queue_key: &DisruptionKey,
        key: &ObjectKey,
        now: Time,
    ) -> Reconcile<DisruptionCall> {
        let Some(pod) = self.pods.get(key).cloned() else { return Reconcile::default() };
        let events: Vec<EventRecord> = self.multiple_budgets_event(&pod).into_iter().collect();
        let Some(since) = pod.disrupted_since else {
            self.attempts.remove(queue_key);
            return Reconcile { events, ..Reconcile::default() };
        };
        let stale_at = since + DISRUPTION_TIMEOUT;
        if now < stale_at {
            return Reconcile { events, wake_at: Some(stale_at), ..Reconcile::default() };
        }
        let attempt = self.attempts.entry(queue_key.clone()).or_default();
        match attempt.next_attempt(pod.resource_version, now) {
            NextAttempt::AfterOutcome => Reconcile { events, ..Reconcile::default() },
            NextAttempt::At(at) => Reconcile { events, wake_at: Some(at), ..Reconcile::default() },
            NextAttempt::Now => {
                attempt.begin();
                Reconcile {
                    calls: Vec::from([DisruptionCall::ClearDisruptionTarget { pod, at: now }]),
                    events,
                    ..Reconcile::default()
                }
            }
        }
    }

    /// Returns the event about a pod that more than one budget selects. The eviction subresource refuses to evict such
    /// a pod. `None` if at most one budget selects the pod.
    fn multiple_budgets_event(&self, pod: &Pod) -> Option<EventRecord> {
        let mut selecting = entries_in_namespace(&self.budgets, &pod.key.namespace)
            .filter(|(_, state)| state.budget.selects(pod));
        let (first, _) = selecting.next()?;
        selecting.next()?;
        let ObjectKey { namespace, name } = &pod.key;
        Some(EventRecord {
            about: pod.object_reference(),
            event: KubeEvent::warning(
                "MultiplePodDisruptionBudgets",
                format!(
                    "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
                    first.name
                ),
            ),
        })
    }
}

#[cfg(test)]
mod tests;
