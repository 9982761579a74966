//! The scheduler: binds pending pods to nodes. Upstream: kube-scheduler with its default plugins.
//!
//! The scheduler keeps the allocatable and requested resources of every node ([`node_info`]), and the pending pods by
//! priority and age ([`queue`]). Of the nodes on which a pod fits ([`filter`], [`topology_counts`]), it chooses the
//! node with the highest score ([`score`]). If the pod fits on no node, pods of lower priority may be preempted
//! ([`preemption`]), and the reasons are written to the pod's condition `PodScheduled`. The pod is then parked as
//! unschedulable until a change may help it, such as a changed node or a pod that leaves a node, but at most five
//! minutes.
//!
//! As soon as the scheduler decides to bind a pod, the pod counts as assigned to the node, unless the binding fails. So
//! the next decision does not wait for the watch. Upstream: the assume cache.

/// The calls of the scheduler and their API requests.
mod call;
/// Decodes the objects that the scheduler watches.
mod facts;
/// Checks whether a pod fits on a node, with reasons as upstream words them. Upstream: the filter plugins.
mod filter;
/// Explains why a pod does not fit on a node, for `muster explain` and `muster plan`.
mod fit_explanation;
/// Stores the nodes, the pods on each node, and the requests of these pods.
mod node_info;
/// Chooses the pods of lower priority to delete, so that a pod fits on a node.
mod preemption;
/// The scheduling queue, which orders the pending pods.
mod queue;
/// Scores the feasible nodes (the nodes on which a pod fits) and chooses the best one.
mod score;
/// Checks pod affinity, pod anti-affinity and topology spread, with counts for each topology domain.
mod topology_counts;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub use call::SchedulerCall;
pub(crate) use facts::extract_pod;
pub use facts::{
    Budget, HostPort, Namespace, Node, Pod, PodAffinityTerm, Requirements, SCHEDULER_NAME, SchedulerObject,
    TopologySpreadConstraint, decode_budget, decode_namespace, decode_node, decode_pod,
};
pub use filter::{Shortage, UnfitReason};
pub use fit_explanation::{FitExplainer, UnfitDetail};

use muster_api::interner::Interner;
use muster_api::labels::Labels;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use crate::controller::{
    self, CallError, Controller, DecodedObject as _, Event, EventRecord, FactStore, KubeEvent, Malformed,
    ObjectReference, Outcome, Reconcile, Request, Requeue, Watch,
};
use node_info::{NodeInfo, NodeInfos};
use preemption::Preemption;
use queue::{QueueingHint, SchedulingQueue};
use topology_counts::TopologyCounts;

/// No pod is scheduled while at least this many calls are in flight. The calls of the last scheduled pod may exceed the
/// number. The other pods stay in the queue until a call completes, so that each decision uses the latest state of the
/// cluster.
const CALLS_IN_FLIGHT_MAX: usize = 100;

/// Maximum number of pods that one reconcile schedules. Watch events are applied between two reconciles.
const DECISIONS_PER_RECONCILE_MAX: usize = 100;

/// Minimum number of feasible nodes (nodes on which a pod fits) to find and score. Upstream: `minFeasibleNodesToFind`.
const FEASIBLE_NODES_MIN: usize = 100;

/// The scheduler: the nodes with their pods, the pending pods, and the bindings, preemptions and status writes in
/// progress.
#[derive(Debug, Default)]
pub struct Scheduler {
    nodes: NodeInfos,
    /// The pending pods.
    queue: SchedulingQueue,
    /// Pods for which a binding was requested, until the watch delivers them as bound or the binding fails. The number
    /// is how many consecutive scheduling attempts of the pod failed before.
    binding: BTreeMap<ObjectKey, (Arc<Pod>, u32)>,
    /// Pods whose condition `PodScheduled` is being written, each with the content that is written.
    status_writes: BTreeMap<ObjectKey, UnschedulableStatus>,
    /// UIDs of the pods that are being preempted.
    victims: BTreeSet<Text>,
    /// Labels of the namespaces, by name.
    namespaces: BTreeMap<Text, Labels>,
    /// The PodDisruptionBudgets. Preemption prefers victims whose deletion violates none of them.
    budgets: BTreeMap<ObjectKey, Budget>,
    /// The last node that a pod was bound to. The next search for a node starts after this node, because in a large
    /// cluster not all nodes are checked. Only set in a cluster of more than [`FEASIBLE_NODES_MIN`] nodes.
    last_bound_node: Text,
    /// Calls that follow from the outcomes of earlier calls. The next reconcile returns them.
    ready: Vec<SchedulerCall>,
    /// Number of calls that a reconcile has returned and whose outcome is not known yet.
    in_flight: usize,
}

/// The content that is written to the status of an unschedulable pod: the message of the condition `PodScheduled`, and
/// the `nominatedNodeName`.
type UnschedulableStatus = (Text, Option<Text>);

/// The result of scheduling one pod.
enum Decision {
    /// The pod must be bound to the node with this name.
    Bind(Text),
    /// The pod fits on no node now. It is parked as unschedulable.
    Wait {
        /// Message of the condition `PodScheduled`, which says why the pod is unschedulable.
        message: String,
        /// The result of preemption for the pod. `None` if there are no nodes.
        preemption: Option<Preemption>,
        /// Whether a change of other pods, on any node, could make the pod schedulable.
        depends_on_other_pods: bool,
    },
}

/// Index of the kind Pod in [`Controller::watches`].
const POD_WATCH: usize = 0;
/// Index of the kind Node in [`Controller::watches`].
const NODE_WATCH: usize = 1;
/// Index of the kind Namespace in [`Controller::watches`].
const NAMESPACE_WATCH: usize = 2;

impl Controller for Scheduler {
    type DecodedObject = SchedulerObject;
    /// The single key of the scheduler. The scheduling queue decides which pod is next.
    type Key = ();
    type Call = SchedulerCall;

    fn watches(&self) -> Vec<Watch> {
        [
            call::pod_watch(),
            Watch::whole_objects("", "v1", "Node", "nodes", false),
            Watch::metadata("", "v1", "Namespace", "namespaces", false),
            Watch::whole_objects("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
        ]
        .into()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<SchedulerObject, Malformed> {
        let read = match &*watch.resource.kind {
            "Pod" => decode_pod(object, shared).map(|it| SchedulerObject::Pod(Arc::new(it))),
            "Node" => decode_node(object, shared).map(|it| SchedulerObject::Node(Arc::new(it))),
            "Namespace" => decode_namespace(object, shared).map(SchedulerObject::Namespace),
            _ => decode_budget(object, shared).map(SchedulerObject::Budget),
        };
        read.map_err(|source| Malformed::new(&watch.resource.plural, source))
    }

    fn apply(&mut self, event: Event<SchedulerObject>, now: Time) -> Vec<()> {
        controller::apply_event(self, event, now, &mut ());
        [()].into()
    }

    fn reconcile(&mut self, (): &(), now: Time) -> Reconcile<SchedulerCall> {
        let mut reconcile = Reconcile { calls: core::mem::take(&mut self.ready), ..Reconcile::default() };
        for _ in 0..DECISIONS_PER_RECONCILE_MAX {
            if CALLS_IN_FLIGHT_MAX <= self.in_flight + reconcile.calls.len() {
                break;
            }
            let Some(key) = self.queue.peek_next(now) else { break };
            self.schedule_pod(&key, now, &mut reconcile);
        }
        self.in_flight += reconcile.calls.len();
        reconcile.wake_at = match self.queue.has_next_pod() {
            // Each outcome leads to the next reconcile.
            true if CALLS_IN_FLIGHT_MAX <= self.in_flight => None,
            true => Some(now),
            false => self.queue.wake_at(),
        };
        reconcile
    }

    fn request(call: &SchedulerCall) -> Request {
        call::request(call)
    }

    fn apply_outcome(&mut self, call: &SchedulerCall, outcome: Outcome, now: Time) -> Requeue<()> {
        self.in_flight = self.in_flight.saturating_sub(1);
        let refusal = match outcome {
            Outcome::Done(_) => None,
            Outcome::Refused(it) => Some(it),
        };
        let events = match (call, refusal) {
            (SchedulerCall::Bind { pod, node }, None) => {
                let message = format!("Successfully assigned {} to {node}", pod.key);
                Some(pod_event(pod, KubeEvent::normal("Scheduled", message)))
            }
            (SchedulerCall::Bind { pod, .. }, Some(refusal)) => self.on_binding_failure(pod, &refusal, now),
            (SchedulerCall::MarkVictim { victim, node, by, .. }, None) => {
                self.ready.push(SchedulerCall::DeleteVictim {
                    victim: victim.clone(),
                    node: node.clone(),
                    by: by.clone(),
                });
                None
            }
            (SchedulerCall::DeleteVictim { victim, node, by }, None) => {
                let message = format!("Preempted by pod {} on node {node}", by.uid);
                Some(pod_event(victim, KubeEvent::normal("Preempted", message)))
            }
            (
                SchedulerCall::MarkVictim { victim, by, .. } | SchedulerCall::DeleteVictim { victim, by, .. },
                Some(refusal),
            ) => {
                self.victims.remove(&victim.uid);
                self.back_off_unless_obsolete(&by.key, &refusal, now);
                None
            }
            (SchedulerCall::WriteUnschedulable { pod, message, nominated_node, .. }, refusal) => {
                // A newer status may be in flight.
                if self
                    .status_writes
                    .get(&pod.key)
                    .is_some_and(|it| it.0 == *message && it.1 == *nominated_node)
                {
                    self.status_writes.remove(&pod.key);
                }
                if let Some(refusal) = refusal {
                    self.back_off_unless_obsolete(&pod.key, &refusal, now);
                }
                None
            }
            (SchedulerCall::ClearNomination { pod }, Some(refusal)) => {
                self.back_off_unless_obsolete(&pod.key, &refusal, now);
                None
            }
            (SchedulerCall::ClearNomination { .. }, None) => None,
        };
        Requeue { keys: [()].into(), events: events.into_iter().collect() }
    }
}

impl FactStore for Scheduler {
    type Id = ObjectKey;
    type Keys = ();

    fn id(fact: &SchedulerObject) -> ObjectKey {
        fact.key()
    }

    fn stored_ids(&self, kind: usize) -> Vec<ObjectKey> {
        let of_name = |it: &Text| ObjectKey::new("", it.clone());
        match kind {
            POD_WATCH => self.nodes.assigned_pods().chain(self.queue.keys()).cloned().collect(),
            NODE_WATCH => self.nodes.names().into_iter().map(|it| of_name(&it)).collect(),
            NAMESPACE_WATCH => self.namespaces.keys().map(of_name).collect(),
            _ => self.budgets.keys().cloned().collect(),
        }
    }

    fn put(&mut self, fact: SchedulerObject, _: Time, (): &mut ()) {
        self.put_object(fact);
    }

    /// Removes an object that was deleted, and activates the parked pods that the change may help.
    fn remove(&mut self, kind: usize, key: &ObjectKey, _: Time, (): &mut ()) {
        match kind {
            POD_WATCH => self.remove_pod(key),
            NODE_WATCH => self.remove_node(&key.name),
            NAMESPACE_WATCH => drop(self.namespaces.remove(&key.name)),
            _ => drop(self.budgets.remove(key)),
        }
    }
}

impl Scheduler {
    /// Returns the number of pending pods.
    pub fn pending_pod_count(&self) -> usize {
        self.queue.len()
    }

    /// Adds or updates an object, and activates the parked pods that the change may help.
    pub fn put_object(&mut self, fact: SchedulerObject) {
        match fact {
            SchedulerObject::Pod(pod) => self.put_pod(pod),
            SchedulerObject::Node(node) => {
                let name = node.fact.name.clone();
                if self.nodes.put_node(node) {
                    self.activate_for(QueueingHint::Node(&name));
                }
            }
            SchedulerObject::Namespace(it) => {
                if self.namespaces.insert(it.name, it.labels.clone()).is_none_or(|before| before != it.labels)
                {
                    self.activate_for(QueueingHint::PodsChanged);
                }
            }
            SchedulerObject::Budget(it) => drop(self.budgets.insert(it.key.clone(), it)),
        }
    }

    /// Adds or updates a pod: assigns a bound pod to its node, and queues an unbound pod. Removes a finished pod. Also
    /// removes an unbound pod from the queue if it is being deleted, or if it is not for this scheduler.
    fn put_pod(&mut self, pod: Arc<Pod>) {
        let key = pod.key.clone();
        let known = self.nodes.pod(&key).or_else(|| self.queue.pod(&key));
        if pod.finished || known.is_some_and(|it| it.uid != pod.uid) {
            self.remove_pod(&key);
        }
        match pod.node.clone() {
            _ if pod.finished => {}
            Some(node) => self.assign_pod(pod, &node),
            None => match self.binding.get_mut(&key) {
                // The event is older than our binding.
                Some((binding, _)) => *binding = pod,
                None if pod.is_for_this_scheduler && !pod.deleting => self.queue.put(pod),
                None => self.remove_from_queue(&key, None),
            },
        }
    }

    /// Assigns a pod to the node on which the watch shows it.
    fn assign_pod(&mut self, pod: Arc<Pod>, node: &Text) {
        let key = pod.key.clone();
        self.binding.remove(&key);
        self.remove_from_queue(&key, Some(node));
        let before = self.nodes.pod(&key).cloned();
        let left = self.nodes.node_of(&key).filter(|it| *it != node).cloned();
        self.nodes.assign(pod.clone(), node.clone());
        if let Some(left) = &left {
            self.activate_for(QueueingHint::Node(left));
        }
        match before {
            Some(it) if it.requirements != pod.requirements => self.activate_for(QueueingHint::Node(node)),
            Some(it) if left.is_none() && it.labels == pod.labels && it.deleting == pod.deleting => {}
            _ => self.activate_for(QueueingHint::PodsChanged),
        }
    }

    /// Removes a pod from its node or from the queue. Parked pods that may fit on the node now are tried again.
    fn remove_pod(&mut self, key: &ObjectKey) {
        self.binding.remove(key);
        if let Some(uid) = self.nodes.pod(key).map(|it| it.uid.clone()) {
            self.victims.remove(&uid);
        }
        self.remove_from_queue(key, None);
        if let Some(node) = self.nodes.unassign(key) {
            self.activate_for(QueueingHint::Node(&node));
        }
    }

    /// Removes a node. Its pods stay assigned to the name of the node. Parked pods that are unschedulable because of
    /// other pods (affinity, anti-affinity or topology spread) are tried again.
    fn remove_node(&mut self, name: &Text) {
        if self.nodes.remove_node(name) {
            self.activate_for(QueueingHint::PodsChanged);
        }
    }

    /// Removes a pod from the queue. `node` is the node that the pod is bound to, if any. If another node was nominated
    /// for the pod, parked pods that may fit on the nominated node are tried again.
    fn remove_from_queue(&mut self, key: &ObjectKey, node: Option<&Text>) {
        if let Some(kept) = self.queue.remove(key)
            && Some(&kept) != node
        {
            self.activate_for(QueueingHint::Node(&kept));
        }
    }

    /// Activates the parked (unschedulable) pods that the change `hint` may make schedulable. Activated pods are tried
    /// again (see [`SchedulingQueue::mark_retryable`]).
    ///
    /// Rule: when a node changes or loses a pod, an unschedulable pod is tried again if it could fit on that node
    /// without the pods of lower priority. A pod that is unschedulable because of other pods is tried again when any
    /// node changes, or any pod is added, removed or changed. Upstream: queueing hints.
    fn activate_for(&mut self, hint: QueueingHint<'_>) {
        for (pod, needs_fit_check) in self.queue.retry_candidates(hint) {
            let could_fit_after_preemption = |name: &Text| {
                self.nodes.get(name).is_some_and(|it| self.could_fit_after_preemption(&pod, it))
            };
            let helps = match hint {
                QueueingHint::Node(name) if needs_fit_check => could_fit_after_preemption(name),
                QueueingHint::Node(_) | QueueingHint::PodsChanged => true,
            };
            if helps {
                self.queue.mark_retryable(&pod.key);
            }
        }
    }

    /// Whether a pod could fit on a node if the pods that it may preempt were removed. Pod affinity and topology spread
    /// are not checked.
    fn could_fit_after_preemption(&self, pod: &Pod, info: &NodeInfo) -> bool {
        let preemptable = info.pods.values().filter(|it| pod.may_preempt && it.priority < pod.priority);
        let preemptable = preemptable.map(|it| it.key.clone()).collect();
        filter::check_node_fit(self, pod, info, &preemptable).is_ok()
    }

    /// Schedules a pod of the queue: binds it to a node, or parks it as unschedulable. A parked pod may preempt pods of
    /// lower priority, and is then nominated for their node. If preemption would not help, its nomination is cleared.
    /// Adds the calls and events to `reconcile`.
    fn schedule_pod(&mut self, key: &ObjectKey, now: Time, reconcile: &mut Reconcile<SchedulerCall>) {
        let Some(pod) = self.queue.pod(key).cloned() else { return };
        match self.decide_node(&pod) {
            Decision::Bind(node) => {
                if FEASIBLE_NODES_MIN < self.nodes.len() {
                    self.last_bound_node = node.clone();
                }
                self.binding.insert(key.clone(), (pod.clone(), self.queue.attempts(key)));
                self.remove_from_queue(key, Some(&node));
                self.nodes.assign(pod.clone(), node.clone());
                self.activate_for(QueueingHint::PodsChanged);
                reconcile.calls.push(SchedulerCall::Bind { pod, node });
            }
            Decision::Wait { message, preemption, depends_on_other_pods } => {
                self.queue.park(key, depends_on_other_pods, now);
                match preemption {
                    Some(Preemption::Remove { node, victims }) => {
                        self.preempt(&pod, &node, victims, now, reconcile);
                    }
                    Some(Preemption::NotHelpful(_)) => self.nominate(key, None),
                    Some(Preemption::NotEligible(_)) | None => {}
                }
                reconcile.events.push(pod_event(
                    &pod,
                    KubeEvent::warning("FailedScheduling", call::truncate_event_message(&message)),
                ));
                let wanted: UnschedulableStatus = (message.into(), self.queue.nominated_node(key).cloned());
                let condition =
                    pod.unschedulable_condition.as_ref().filter(|(reason, _)| **reason == *"Unschedulable");
                let condition = condition.map(|(_, message)| (message.clone(), pod.nominated.clone()));
                if self.status_writes.get(key).or(condition.as_ref()) != Some(&wanted) {
                    self.status_writes.insert(key.clone(), wanted.clone());
                    let (message, nominated_node) = wanted;
                    reconcile.calls.push(SchedulerCall::WriteUnschedulable {
                        pod,
                        message,
                        nominated_node,
                        at: now,
                    });
                }
            }
        }
    }

    /// Nominates a node for a pod, and adds to `reconcile` a [`SchedulerCall::MarkVictim`] for each victim on that node. A
    /// victim is deleted once that call has succeeded. Victims that are already being deleted or preempted get no call.
    /// Also clears the nominations of pods of lower priority for that node.
    fn preempt(
        &mut self,
        pod: &Arc<Pod>,
        node: &Text,
        victims: Vec<Arc<Pod>>,
        now: Time,
        reconcile: &mut Reconcile<SchedulerCall>,
    ) {
        // Pods of lower priority that are nominated for the node may not fit any more.
        let lower = self.queue.pods_nominated_for(node).filter(|it| it.priority < pod.priority);
        for other in lower.cloned().collect::<Vec<_>>() {
            self.queue.nominate(&other.key, None);
            self.queue.mark_retryable(&other.key);
            if other.nominated.is_some() {
                reconcile.calls.push(SchedulerCall::ClearNomination { pod: other });
            }
        }
        self.nominate(&pod.key, Some(node.clone()));
        for victim in victims {
            if !victim.deleting && self.victims.insert(victim.uid.clone()) {
                reconcile.calls.push(SchedulerCall::MarkVictim {
                    victim,
                    node: node.clone(),
                    by: pod.clone(),
                    at: now,
                });
            }
        }
    }

    /// Sets the nominated node of a pod, or clears it if `node` is `None`. Parked pods that may fit on the previously
    /// nominated node are tried again.
    fn nominate(&mut self, key: &ObjectKey, node: Option<Text>) {
        if let Some(before) = self.queue.nominate(key, node) {
            self.activate_for(QueueingHint::Node(&before));
        }
    }

    /// Decides on which node a pod is bound. If the pod fits on no node, decides which pods are preempted for it.
    fn decide_node(&self, pod: &Pod) -> Decision {
        if self.nodes.len() == 0 {
            let message = String::from("no nodes available to schedule pods");
            return Decision::Wait { message, preemption: None, depends_on_other_pods: false };
        }
        let topology_counts = TopologyCounts::for_pod(self, pod);
        let none = BTreeSet::new();
        let fits = |info: &NodeInfo| filter::check_fit(self, pod, &topology_counts, info, &none);
        // The nominated node comes first if the pod fits there.
        let nominated_node = self.queue.nominated_node(&pod.key).and_then(|it| self.nodes.get(it));
        if let Some(info) = nominated_node.filter(|it| fits(it).is_ok()) {
            return Decision::Bind(info.name().clone());
        }

        let names = pod.requirements.nodes_named_by_affinity();
        let named = names.iter().flatten().filter_map(|it| self.nodes.get(it));
        let any = self.nodes.iter_wrapping_after(&self.last_bound_node).filter(|_| names.is_none());
        let feasible_nodes_to_find = feasible_nodes_to_find(self.nodes.len());
        let (mut fitting, mut unfit) = (Vec::new(), Vec::new());
        for info in named.chain(any) {
            match fits(info) {
                Ok(()) => fitting.push(info),
                Err(why) => unfit.push((info, why)),
            }
            if feasible_nodes_to_find <= fitting.len() {
                break;
            }
        }
        if let Some(node) = score::best_node(self, pod, &fitting) {
            return Decision::Bind(node);
        }
        let preemption = preemption::choose_preemption(self, pod, &topology_counts, &unfit);
        let preemption_message = match &preemption {
            Preemption::Remove { .. } => None,
            Preemption::NotEligible(why) | Preemption::NotHelpful(why) => Some(why.as_str()),
        };
        Decision::Wait {
            message: self.unschedulable_message(&unfit, preemption_message),
            depends_on_other_pods: unfit.iter().any(|(_, why)| why.depends_on_pods_elsewhere()),
            preemption: Some(preemption),
        }
    }

    /// Returns the message of the condition `PodScheduled` of a pod that fits on no node. `unfit` are the nodes that
    /// were checked, each with the reason why the pod does not fit on it. `preemption` is the reason why no pod is
    /// preempted, or `None` if pods are being preempted.
    ///
    /// Rule: the message of an unschedulable pod counts the nodes for each reason. Upstream: `FitError`.
    fn unschedulable_message(&self, unfit: &[(&NodeInfo, UnfitReason)], preemption: Option<&str>) -> String {
        let mut alike: BTreeMap<&UnfitReason, usize> = BTreeMap::new();
        for (_, why) in unfit {
            *alike.entry(why).or_default() += 1;
        }
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for (why, count) in alike {
            for reason in why.messages() {
                *reasons.entry(reason).or_default() += count;
            }
        }
        // Nodes that were not checked, because the pod's node affinity names others.
        if unfit.len() < self.nodes.len() {
            let others = String::from("node(s) didn't satisfy plugin(s) [NodeAffinity]");
            *reasons.entry(others).or_default() += self.nodes.len() - unfit.len();
        }
        let message = format_reason_counts(self.nodes.len(), &reasons);
        preemption.map_or_else(|| message.clone(), |it| format!("{message} preemption: {it}"))
    }

    /// Applies the failure of a binding. Returns the event to record. `None` if the pod is no longer being bound, or if
    /// the API server responded that it does not exist.
    ///
    /// Rule: a pod whose binding failed, or whose binding got no response, is removed from its node. It is tried again
    /// after a backoff, unless it is being deleted or is no longer for this scheduler. If the pod was bound
    /// nevertheless, the watch will show that.
    fn on_binding_failure(&mut self, pod: &Arc<Pod>, refusal: &CallError, now: Time) -> Option<EventRecord> {
        let (latest, attempts) = self.binding.get(&pod.key).filter(|(it, _)| it.uid == pod.uid)?.clone();
        self.binding.remove(&pod.key);
        if let Some(node) = self.nodes.unassign(&pod.key) {
            self.activate_for(QueueingHint::Node(&node));
        }
        if latest.is_for_this_scheduler && !latest.deleting {
            self.queue.requeue(latest, attempts, now);
        }
        let message = call::truncate_event_message(&format!("binding rejected: {refusal}"));
        (*refusal != CallError::NotFound)
            .then(|| pod_event(pod, KubeEvent::warning("FailedScheduling", message)))
    }

    /// Parks a pod until its backoff ends, because a write to its status or to one of its victims failed. Does nothing
    /// if the failure shows that the written pod does not exist or has changed, because the watch will deliver that
    /// change.
    fn back_off_unless_obsolete(&mut self, key: &ObjectKey, refusal: &CallError, now: Time) {
        if !matches!(refusal, CallError::NotFound | CallError::Conflict) {
            self.queue.back_off(key, now);
        }
    }
}

/// Returns how many feasible nodes to find and score in a cluster with `nodes` nodes: a percentage that decreases with
/// the size of the cluster, but at least [`FEASIBLE_NODES_MIN`]. So all nodes of a small cluster are checked. Upstream:
/// `numFeasibleNodesToFind`.
fn feasible_nodes_to_find(nodes: usize) -> usize {
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(FEASIBLE_NODES_MIN)
}

/// Formats the number of nodes per reason as upstream does: `0/3 nodes are available: 1 Too many pods, …`.
fn format_reason_counts(nodes: usize, reasons: &BTreeMap<String, usize>) -> String {
    let mut reasons: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    reasons.sort();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}

/// Returns an event about a pod.
fn pod_event(pod: &Pod, event: KubeEvent) -> EventRecord {
    EventRecord { about: ObjectReference::to_pod(&pod.key, &pod.uid, pod.resource_version), event }
}

#[cfg(test)]
mod tests;
