//! Previews the rollout of a changed DaemonSet: `muster plan`.
//!
//! The rules of the controller make plans from a [`Snapshot`] that contains the changed DaemonSet, and each plan is
//! executed in memory: a deleted pod disappears at once, and a created pod becomes ready at once if its node is ready
//! and the pod fits on it. The same rules make the real plans, so the real rollout updates the nodes in the same order,
//! unless something else happens.

/// Formats a preview as JSON.
mod json;
/// Computes the object that `kubectl apply` would write.
mod kubectl_apply;
/// Formats a preview as text.
mod text;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub use kubectl_apply::{LAST_APPLIED_ANNOTATION, applied_object, merge_patch};

use muster_api::labels::Labels;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use crate::daemonset::facts::{
    self, ConditionStatus, Kind, Phase, REVISION_HASH_LABEL, Revision, Set, StoredVerdict, UpdateStrategy,
    WatchedObject,
};
use crate::daemonset::plan::{Claim, Plan, RevisionWrite, RolloutWrite, Settings};
use crate::daemonset::planner::Planner;
use crate::daemonset::progressive::policy::{Approval, Policy};
use crate::daemonset::progressive::record::{OperatorRequests, RolloutRecord, RolloutStatus};
use crate::daemonset::why::Why;
use crate::daemonset::{NodeSummary, ZERO_BUDGET_MESSAGE, is_budget_always_zero};
use crate::explain::{ControllerAnswer, Explanation, Snapshot, SnapshotError};
use crate::scheduler::FitExplainer;

/// The predicted rollout of a changed DaemonSet: which nodes get, lose, replace or keep their pod, and in which order.
#[derive(Clone, PartialEq, Debug)]
pub struct RolloutPreview {
    /// Namespace and name of the DaemonSet.
    pub key: ObjectKey,
    /// The DaemonSet as it is after the change.
    pub set: Arc<Set>,
    /// How the change affects the revisions of the DaemonSet.
    pub change: RevisionChange,
    /// Names of the nodes that have no pod before the rollout and have one after it.
    pub gains: Vec<Text>,
    /// Names of the nodes that have a pod before the rollout and have none after it.
    pub loses: Vec<Text>,
    /// The nodes whose pod is replaced, in the order in which the batches are updated. With surge, a node is also in
    /// `keeps` if its old pod is not deleted.
    pub batches: Vec<UpdateBatch>,
    /// Names of the nodes whose pod is not replaced.
    pub keeps: Vec<Text>,
    /// With the strategy `OnDelete` and no policy, names of the nodes whose outdated pod stays until a user deletes it.
    /// Otherwise empty.
    pub waits: Vec<Text>,
    /// Minimum duration of the rollout, computed from `minReadySeconds` and, with a policy, from the soak times.
    pub at_least: Duration,
    /// Name of the policy that governs the rollout. `None` if no policy does.
    pub policy: Option<Text>,
    /// Why the rollout does not complete, and on which nodes. `None` if it completes, if no node holds it up, or if it
    /// only waits for a user to delete pods (`OnDelete`).
    pub stops: Option<StalledRollout>,
    /// The explanation of the DaemonSet's state on all nodes after the rollout.
    pub after: Explanation,
}

/// How a change of a DaemonSet affects its revisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RevisionChange {
    /// The change creates the DaemonSet, which does not exist yet.
    Create,
    /// Neither the generation nor the template of the DaemonSet changes.
    Nothing,
    /// The object changes, but its template stays the same, or becomes one that needs no new revision number. So no pod
    /// is replaced because of the template.
    NoRestart,
    /// The template is new. It becomes the revision with this number.
    NewRevision { number: i64 },
    /// A rollback: revision number `old_number` has the new template. The revision is renumbered to `new_number`, which
    /// is then the highest number.
    Rollback { old_number: i64, new_number: i64 },
}

/// Nodes whose pods one plan of the rollout replaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpdateBatch {
    /// Minimum time from the start of the rollout to the start of this batch.
    pub after: Duration,
    pub nodes: Vec<Text>,
    /// Name of the rollout step in which these nodes are updated. `None` without a policy.
    pub step: Option<Text>,
}

/// Why a rollout does not complete, and on which nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StalledRollout {
    /// Names of the nodes whose pod is Ready and still outdated when the rollout stalls.
    pub left: Vec<Text>,
    /// The reasons why the rollout waits, each with the names of the nodes.
    pub wait_reasons: Vec<(String, Vec<Text>)>,
}

/// Note about the preview of a DaemonSet in assist mode.
const ASSIST_NOTE: &str = "The controller runs in assist mode: a new node, or one whose pod is deleted, gets the \
                           new revision before its step, and a failed revision is stopped, not rolled back.";

/// The simulation ends after this number of reconciles per node, plus 100. Fewer are needed, because on each node a pod
/// is deleted once, created once and becomes available once.
const RECONCILES_PER_NODE_MAX: usize = 8;

impl Snapshot {
    /// Previews the rollout of the DaemonSet version that was added to the snapshot last. The version that was added
    /// before it is the live object. If only one version was added, the DaemonSet is new. Returns an error if none was
    /// added.
    pub fn preview_rollout(&self, now: Time) -> Result<RolloutPreview, SnapshotError> {
        let set = self.set().ok_or(SnapshotError::NoSuchSet)?;
        let live = self.sets.iter().rev().nth(1);
        let pod = self.template_pod(set);
        let fit_explainer = pod.as_ref().map(|it| self.capacity.fit_explainer(it));
        let mut simulation = RolloutSimulation::new(self, set, fit_explainer.as_ref(), now);
        let steps = simulation.run();
        simulation.into_preview(live, &steps).ok_or(SnapshotError::NoSuchSet)
    }
}

impl RolloutPreview {
    /// Returns the names of the nodes for which the preview depends on whether a new pod fits. The caller reads the
    /// pods on these nodes into the snapshot, and previews the rollout again.
    ///
    /// Rule: the fit of a new pod is checked on nodes that have no pod and get one. On nodes whose pod is replaced, the
    /// fit is checked only if the scheduling requirements of the pod change, or if the old and the new pod run side by
    /// side (surge).
    pub fn nodes_to_check_fit(&self, snapshot: &Snapshot) -> BTreeSet<Text> {
        let mut nodes: BTreeSet<Text> = self.gains.iter().cloned().collect();
        let live = snapshot.sets.iter().rev().nth(1);
        let asks = |set: &Arc<Set>| {
            let requirements = snapshot.template_pod(set)?.requirements;
            Some((
                requirements.requests.clone(),
                requirements.ports.clone(),
                requirements.pod_affinity.clone(),
                requirements.pod_anti_affinity.clone(),
            ))
        };
        let asks_the_same = live.is_some_and(|it| asks(it) == asks(&self.set));
        if !asks_the_same || matches!(self.set.rollout, UpdateStrategy::Surge(_)) {
            nodes.extend(self.batches.iter().flat_map(|it| &it.nodes).cloned());
        }
        nodes
    }
}

/// Simulation of a rollout on a snapshot.
struct RolloutSimulation<'a> {
    snapshot: &'a Snapshot,
    /// The changed DaemonSet.
    set: &'a Arc<Set>,
    /// Checks whether a pod of the new template fits on a node. `None` if the template cannot be decoded.
    fit_explainer: Option<&'a FitExplainer<'a>>,
    /// The DaemonSet controller's rules, with the simulated state of the cluster.
    planner: Planner,
    /// The DaemonSet's pods by node at the start of the simulation, and the pods that it adopts during the simulation.
    initial_pods: BTreeMap<Text, Vec<Arc<facts::Pod>>>,
    /// Names of the pods that the simulation created.
    created_pods: BTreeSet<Text>,
    /// Time at which the simulated rollout starts.
    started_at: Time,
    /// The present time of the simulation.
    now: Time,
    /// The batches of the simulated rollout so far.
    batches: Vec<UpdateBatch>,
    /// The resource version of the last simulated write.
    resource_version: u64,
    /// Whether upstream's controller creates the pods (assist mode).
    is_assisted: bool,
}

impl<'a> RolloutSimulation<'a> {
    /// Creates a simulation that starts at `now`.
    fn new(
        snapshot: &'a Snapshot,
        set: &'a Arc<Set>,
        fit_explainer: Option<&'a FitExplainer<'a>>,
        now: Time,
    ) -> Self {
        let initial_pods = snapshot.pods_by_node(set);
        // The burst limit would split batches, and the timers of conditions have no effect here.
        let desired = snapshot.facts.get(&Kind::Nodes).map_or(0, Vec::len);
        let budget = crate::daemonset::rollout_budget(set, i64::try_from(desired).unwrap_or(i64::MAX));
        let settings = Settings { burst: budget.max(250), conditions: false, ..Settings::default() };
        let planner = snapshot.new_planner(set, settings);
        let mut simulation = Self {
            snapshot,
            set,
            fit_explainer,
            planner,
            initial_pods,
            created_pods: BTreeSet::new(),
            started_at: now,
            now,
            batches: Vec::new(),
            resource_version: 1,
            is_assisted: snapshot.is_assisted(),
        };
        simulation.remove_stale_rollouts();
        simulation.remove_approvals_and_checks();
        simulation
    }

    /// Removes the DaemonRollouts of deleted DaemonSets of the same name, as the garbage collector will.
    fn remove_stale_rollouts(&mut self) {
        for fact in self.snapshot.facts.get(&Kind::Rollouts).into_iter().flatten() {
            if let WatchedObject::Rollout(record) = fact
                && record.key == self.snapshot.key
                && !record.belongs_to(&self.set.uid)
            {
                self.remove_object(Kind::Rollouts, record.key.clone());
            }
        }
    }

    /// Removes the approvals and checks from the policies in the planner, so that the rollout waits for neither. Does
    /// nothing if assist mode refuses the DaemonSet, because then the planner contains no policies.
    ///
    /// Rule: approvals are assumed to be given at once, and checks to pass, so the duration of the preview is the least
    /// possible one.
    fn remove_approvals_and_checks(&mut self) {
        if self.snapshot.is_refused_in_assist_mode() {
            return;
        }
        for kind in [Kind::Policies, Kind::ClusterPolicies] {
            for fact in self.snapshot.facts.get(&kind).into_iter().flatten() {
                let WatchedObject::Policy(policy) = fact else { continue };
                let mut policy = Policy::clone(policy);
                policy.spec.checks.clear();
                policy.spec.steps.iter_mut().for_each(|it| it.approval = Approval::Automatic);
                self.apply_object(WatchedObject::Policy(Arc::new(policy)));
            }
        }
    }

    /// Makes and executes plans, one after the other. When a plan changes nothing for the first time, completes the
    /// pending changes. After any later plan that changes nothing, advances the time to the plan's wake-up time, or
    /// ends if the plan has no later wake-up time. Also ends after a number of plans that grows with the number of
    /// nodes. Returns the revision writes of the first plan and, in assist mode, those of upstream's controller.
    fn run(&mut self) -> Vec<RevisionWrite> {
        let nodes = self.snapshot.facts.get(&Kind::Nodes).map_or(0, Vec::len) + self.initial_pods.len();
        let mut first_steps = None;
        let mut settled = false;
        for _ in 0..nodes.saturating_mul(RECONCILES_PER_NODE_MAX).saturating_add(100) {
            let Some(plan) = self.planner.reconcile(&self.snapshot.key, self.now) else { break };
            let upstream_steps = if self.is_assisted { self.missing_revision_writes() } else { Vec::new() };
            first_steps.get_or_insert_with(|| [plan.steps.as_slice(), upstream_steps.as_slice()].concat());
            let is_changed = self.is_assisted && self.execute_upstream(&upstream_steps);
            if self.execute(&plan) || is_changed {
                continue;
            }
            if !settled {
                settled = true;
                self.complete_pending_changes();
            } else if let Some(at) = plan.wake_at.filter(|at| self.now < *at) {
                self.now = at;
            } else {
                break;
            }
        }
        first_steps.unwrap_or_default()
    }

    /// Returns the revision writes that are still needed to record the template as the newest revision.
    fn missing_revision_writes(&self) -> Vec<RevisionWrite> {
        self.planner.rollout_summary(&self.snapshot.key).map(|it| it.steps).unwrap_or_default()
    }

    /// Simulates upstream's controller in assist mode. If `steps` is not empty, it writes these revisions. Otherwise it
    /// creates a pod of the newest revision on every eligible node without one, and deletes pods, such as those that
    /// have ended or must not run on their node. Returns whether the state of the cluster changed.
    fn execute_upstream(&mut self, steps: &[RevisionWrite]) -> bool {
        for step in steps {
            self.apply_revision_write(step);
        }
        let hash = self.planner.rollout_summary(&self.snapshot.key).and_then(|it| it.hash);
        let Some(hash) = hash.filter(|_| steps.is_empty()) else { return !steps.is_empty() };
        let (create, delete) = self.planner.unbudgeted_creates_and_deletes(&self.snapshot.key);
        for pod in &delete {
            self.remove_pod(pod);
        }
        for node in &create {
            self.create_pod(node, &hash);
        }
        !create.is_empty() || !delete.is_empty()
    }

    /// Executes a plan in the simulation, and adds a batch for the pods that it replaces. If the plan also creates
    /// missing pods, the next plan makes the replacements. Returns whether the plan changed the state of the cluster.
    fn execute(&mut self, plan: &Plan) -> bool {
        let mut replaced: Vec<Text> = Vec::new();
        for claim in &plan.claims {
            self.apply_claim(claim);
        }
        for step in &plan.steps {
            self.apply_revision_write(step);
        }
        if let Some(write) = &plan.rollout {
            self.apply_rollout_write(write);
        }
        for (pod, hash) in &plan.relabel {
            let labels = with_label(&pod.labels, REVISION_HASH_LABEL, hash);
            self.apply_object(WatchedObject::Pod(Arc::new(facts::Pod { labels, ..facts::Pod::clone(pod) })));
        }
        // Creates missing pods before it deletes the next outdated ones, so that a batch is what the budget allows.
        let fills = plan.create.iter().any(|(_, why)| !is_replacement(why));
        for (pod, why) in plan.delete.iter().chain(&plan.evict) {
            let gives_way = matches!(
                why,
                Why::Outdated
                    | Why::OutdatedAndNotReady
                    | Why::TolerationDropped { .. }
                    | Why::NodeNotReadyOrUnreachable { .. }
            );
            if gives_way && fills {
                continue;
            }
            replaced.extend(pod.target.clone().filter(|_| gives_way));
            self.remove_pod(pod);
        }
        for (node, why) in &plan.create {
            if is_replacement(why) && fills {
                continue;
            }
            if is_replacement(why) {
                replaced.push(node.clone());
            }
            self.create_pod(node, &plan.hash);
        }
        for (node, _) in &plan.create_stable {
            if let Some(source) = &plan.stable {
                self.create_pod(node, &source.hash);
            }
        }
        if !replaced.is_empty() {
            let record = self.planner.rollout_record(&self.snapshot.key);
            let step = record.and_then(|it| it.status.step.as_ref()).map(|it| it.name.clone());
            let after = self.now.since(self.started_at);
            self.batches.push(UpdateBatch { after, nodes: replaced, step });
        }
        plan.rollout.is_some()
            || !plan.create_stable.is_empty()
            || !plan.claims.is_empty()
            || !plan.steps.is_empty()
            || !plan.relabel.is_empty()
            || !plan.delete.is_empty()
            || !plan.evict.is_empty()
            || !plan.create.is_empty()
    }

    /// Executes an adoption or release of an object in the simulation.
    fn apply_claim(&mut self, claim: &Claim) {
        let owner = Some(self.set.uid.clone());
        match claim {
            Claim::AdoptPod(it) => {
                // The node does not gain a pod: it already has this one, which had no owner.
                if let Some(node) = &it.target {
                    self.initial_pods.entry(node.clone()).or_default().push(it.clone());
                }
                self.apply_object(WatchedObject::Pod(Arc::new(facts::Pod {
                    owner,
                    ..facts::Pod::clone(it)
                })));
            }
            Claim::ReleasePod(it) => self.remove_pod(it),
            Claim::AdoptRevision(it) => {
                self.apply_object(WatchedObject::Revision(Arc::new(Revision {
                    owner,
                    ..Revision::clone(it)
                })));
            }
            Claim::ReleaseRevision(it) => self.remove_object(Kind::Revisions, it.key.clone()),
        }
    }

    /// Executes the creation or status write of a DaemonRollout in the simulation.
    fn apply_rollout_write(&mut self, write: &RolloutWrite) {
        let record = match write {
            RolloutWrite::Create => RolloutRecord {
                key: self.snapshot.key.clone(),
                uid: "preview".into(),
                owners: Vec::from([self.set.uid.clone()]),
                resource_version: 0,
                generation: 1,
                requests: OperatorRequests::default(),
                status: RolloutStatus::default(),
                conditions: Vec::new(),
                unreadable: None,
            },
            RolloutWrite::PutStatus { record, status, conditions } => RolloutRecord {
                status: RolloutStatus::clone(status),
                conditions: conditions.clone(),
                ..RolloutRecord::clone(record)
            },
        };
        self.apply_object(WatchedObject::Rollout(Arc::new(record)));
    }

    /// Executes a write of a ControllerRevision in the simulation.
    fn apply_revision_write(&mut self, step: &RevisionWrite) {
        let revision = match step {
            RevisionWrite::Create { name, hash, number } => Revision {
                key: ObjectKey::new(self.snapshot.key.namespace.clone(), name.clone()),
                uid: name.clone(),
                resource_version: 0,
                owner: Some(self.set.uid.clone()),
                labels: with_label(&self.set.template.labels, REVISION_HASH_LABEL, hash),
                number: *number,
                data: self.set.template.data.clone(),
                identity: Some(self.set.template.identity),
                template_generation: self.set.template_generation,
                created: self.now,
                deleting: false,
                verdict: None,
            },
            RevisionWrite::StoreVerdict { revision, verdict, reason, at } => Revision {
                verdict: verdict
                    .map(|verdict| Arc::new(StoredVerdict { verdict, at: *at, reason: (*reason).into() })),
                ..Revision::clone(revision)
            },
            RevisionWrite::Renumber { revision, number } => {
                Revision { number: *number, ..Revision::clone(revision) }
            }
            RevisionWrite::Label { revision } => {
                let labels = with_label(&revision.labels, REVISION_HASH_LABEL, &revision.key.name);
                Revision { labels, ..Revision::clone(revision) }
            }
        };
        self.apply_object(WatchedObject::Revision(Arc::new(revision)));
    }

    /// Simulates the creation of a pod on a node.
    ///
    /// Rule: a new pod is assumed to become ready at once if its node is ready and the scheduler's checks pass.
    /// Otherwise the pod stays pending, and the rollout waits for it.
    fn create_pod(&mut self, node: &Text, hash: &Text) {
        let here = self.planner.pods_on(&self.snapshot.key, node);
        let left = |it: &&Arc<facts::Pod>| here.iter().all(|here| here.uid != it.uid);
        let without: BTreeSet<ObjectKey> =
            self.initial_pods.get(node).into_iter().flatten().filter(left).map(|it| it.key.clone()).collect();
        let fits = self.fit_explainer.and_then(|it| it.unfit_detail(node, &without)).is_none();
        let is_ready =
            self.planner.node_by_name(node).is_some_and(|it| it.ready.status == ConditionStatus::True);
        self.resource_version += 1;
        let name: Text = format!("{} (new {})", self.snapshot.key.name, self.resource_version).into();
        self.created_pods.insert(name.clone());
        let pod = facts::Pod {
            key: ObjectKey::new(self.snapshot.key.namespace.clone(), name.clone()),
            uid: name,
            resource_version: 0,
            owner: Some(self.set.uid.clone()),
            labels: with_label(&self.set.template.labels, REVISION_HASH_LABEL, hash),
            target: Some(node.clone()),
            bound: fits,
            created: self.now,
            deleting: false,
            phase: if fits && is_ready { Phase::Running } else { Phase::Pending },
            ready_since: (fits && is_ready).then_some(self.now),
            not_ready_since: None,
            last_started: (fits && is_ready).then_some(self.now),
            restarts: 0,
            is_disrupted: false,
            problem: (!fits).then(|| "Unschedulable".into()),
            tolerations: self.set.template.tolerations.clone(),
        };
        self.apply_object(WatchedObject::Pod(Arc::new(pod)));
    }

    /// Completes the changes that were in progress when the snapshot was read.
    ///
    /// Rule: changes in progress are assumed to complete. Terminating pods are removed, and starting pods without a
    /// problem become ready if their node is ready.
    fn complete_pending_changes(&mut self) {
        let nodes: Vec<Text> = self.initial_pods.keys().cloned().collect();
        for node in nodes {
            let is_ready =
                self.planner.node_by_name(&node).is_some_and(|it| it.ready.status == ConditionStatus::True);
            for pod in self.planner.pods_on(&self.snapshot.key, &node).to_vec() {
                if pod.deleting {
                    self.remove_pod(&pod);
                } else if is_ready && pod.is_live() && pod.ready_since.is_none() && pod.problem.is_none() {
                    let ready_since = Some(self.now);
                    let (bound, phase) = (true, Phase::Running);
                    self.apply_object(WatchedObject::Pod(Arc::new(facts::Pod {
                        ready_since,
                        bound,
                        phase,
                        ..facts::Pod::clone(&pod)
                    })));
                }
            }
        }
    }

    /// Applies a simulated write of an object to the planner, with a new resource version.
    fn apply_object(&mut self, mut fact: WatchedObject) {
        self.resource_version += 1;
        match &mut fact {
            WatchedObject::Pod(it) => Arc::make_mut(it).resource_version = self.resource_version,
            WatchedObject::Revision(it) => Arc::make_mut(it).resource_version = self.resource_version,
            WatchedObject::Policy(it) => Arc::make_mut(it).resource_version = self.resource_version,
            WatchedObject::Rollout(it) => Arc::make_mut(it).resource_version = self.resource_version,
            _ => {}
        }
        self.planner.apply(fact.into_event());
    }

    /// Applies the simulated deletion of a pod to the planner.
    fn remove_pod(&mut self, pod: &facts::Pod) {
        self.remove_object(Kind::Pods, pod.key.clone());
    }

    /// Applies the simulated deletion of an object to the planner.
    fn remove_object(&mut self, kind: Kind, key: ObjectKey) {
        self.resource_version += 1;
        let resource_version = self.resource_version;
        self.planner.apply(WatchedObject::Gone { kind, key, resource_version }.into_event());
    }

    /// Returns the preview: the differences between the pods before and after the simulation. `live` is the DaemonSet
    /// before the change, `None` if it is new. `steps` are the revision writes that [`Self::run`] returned. Returns
    /// `None` if the DaemonSet is not in the planner.
    fn into_preview(self, live: Option<&Arc<Set>>, steps: &[RevisionWrite]) -> Option<RolloutPreview> {
        let answer = ControllerAnswer::Unavailable(String::new());
        let mut after =
            self.snapshot.explanation(&self.planner, answer, self.snapshot.notes.clone(), self.now)?;
        for node in &mut after.nodes {
            node.explained.pod = node.explained.pod.take().filter(|it| !self.created_pods.contains(it));
        }
        let is_there = |it: &&Arc<facts::Pod>| it.is_live();
        let (mut gains, mut loses, mut keeps) = (Vec::new(), Vec::new(), Vec::new());
        for node in after.nodes.iter().filter(|it| it.explained.state != NodeSummary::Gone) {
            let name = &node.explained.node;
            let before: Vec<&Arc<facts::Pod>> =
                self.initial_pods.get(name).into_iter().flatten().filter(is_there).collect();
            let now: Vec<&Arc<facts::Pod>> =
                self.planner.pods_on(&self.snapshot.key, name).iter().filter(is_there).collect();
            let stays = before.iter().any(|it| now.iter().any(|now| now.uid == it.uid));
            match (before.is_empty(), now.is_empty()) {
                (true, false) => gains.push(name.clone()),
                (false, true) => loses.push(name.clone()),
                (false, false) if stays => keeps.push(name.clone()),
                _ => {}
            }
        }
        let mut batches = self.batches;
        let others: BTreeSet<&Text> = gains.iter().chain(&loses).collect();
        for batch in &mut batches {
            batch.nodes.retain(|it| !others.contains(it));
        }
        batches.retain(|it| !it.nodes.is_empty());
        let is_old = |it: &&crate::explain::NodeReport| it.explained.state == NodeSummary::Outdated;
        let left: Vec<Text> = after.nodes.iter().filter(is_old).map(|it| it.explained.node.clone()).collect();
        let policy = after.rollout.progressive.as_ref().and_then(|it| it.policy.as_ref());
        let policy = policy.map(|(_, name)| name.clone());
        let on_delete = self.set.rollout == UpdateStrategy::OnDelete && policy.is_none();
        let lasts = match policy {
            Some(_) if !batches.is_empty() => self.now.since(self.started_at),
            _ => batches.last().map_or(Duration::ZERO, |it| it.after + self.set.min_ready),
        };
        if self.is_assisted && policy.is_some() {
            after.notes.push(ASSIST_NOTE.into());
        }
        after.notes.extend(self.snapshot.mode_notes(self.set, after.rollout.progressive.as_ref()));
        let is_budget_zero = is_budget_always_zero(after.rollout.strategy) && !left.is_empty();
        if is_budget_zero {
            after.notes.push(ZERO_BUDGET_MESSAGE.into());
        }
        let waits = is_budget_zero || !after.wait_reasons().is_empty();
        let stops = (!after.rollout.complete && !on_delete && waits).then(|| StalledRollout {
            left: left.clone(),
            wait_reasons: to_owned_reasons(after.wait_reasons()),
        });
        Some(RolloutPreview {
            key: self.snapshot.key.clone(),
            set: self.set.clone(),
            change: classify_change(live, self.set, steps),
            gains,
            loses,
            at_least: lasts,
            policy,
            batches,
            keeps,
            waits: if on_delete { left } else { Vec::new() },
            stops,
            after,
        })
    }
}

/// Whether a pod that is created for this reason replaces an outdated pod on its node.
fn is_replacement(why: &Why) -> bool {
    matches!(why, Why::Outdated | Why::OutdatedAndNotReady)
}

/// Copies the result of [`Explanation::wait_reasons`] into owned values, which outlive the explanation.
fn to_owned_reasons(wait_reasons: Vec<(&str, Vec<&Text>)>) -> Vec<(String, Vec<Text>)> {
    wait_reasons.into_iter().map(|(why, nodes)| (why.into(), nodes.into_iter().cloned().collect())).collect()
}

/// Returns how the change affects the revisions of the DaemonSet. `live` is the DaemonSet before the change (`None` if
/// it is new), and `set` the DaemonSet after it. `steps` are the first revision writes of the simulated rollout.
///
/// Rule: a change is a new revision if no revision has an equivalent template. It is a rollback if an earlier revision
/// has an equivalent template. Any other change replaces no pod.
fn classify_change(live: Option<&Arc<Set>>, set: &Set, steps: &[RevisionWrite]) -> RevisionChange {
    let Some(live) = live else { return RevisionChange::Create };
    if live.generation == set.generation && live.template == set.template {
        return RevisionChange::Nothing;
    }
    if live.template.identity == set.template.identity {
        return RevisionChange::NoRestart;
    }
    let step = steps.iter().find_map(|step| match step {
        RevisionWrite::Create { number, .. } => Some(RevisionChange::NewRevision { number: *number }),
        RevisionWrite::Renumber { revision, number } => {
            Some(RevisionChange::Rollback { old_number: revision.number, new_number: *number })
        }
        RevisionWrite::Label { .. } | RevisionWrite::StoreVerdict { .. } => None,
    });
    step.unwrap_or(RevisionChange::NoRestart)
}

/// Returns a copy of the labels with one label set to a value.
fn with_label(labels: &Labels, key: &str, value: &Text) -> Labels {
    let others = labels.iter().filter(|(it, _)| *it != key).map(|(key, value)| (key.into(), value.into()));
    Labels::new(others.chain([(key.into(), value.clone())]).collect())
}

#[cfg(test)]
mod tests;
