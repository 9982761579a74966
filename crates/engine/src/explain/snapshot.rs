//! [`Snapshot`]: the objects of a cluster that concern one DaemonSet, read once. The rules of the controller evaluate
//! the snapshot.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::interner::Interner;
use muster_api::labels::Labels;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::{
    ControllerAnswer, Explanation, NodeReport, format_time, pod_problem, reason_details, reason_message,
};
use crate::controller::Event;
use crate::controller::Malformed;
use crate::daemonset::facts::{
    self, ConditionStatus, Kind, RequiredNodeAffinity, Revision, Set, UpdateStrategy, WatchedObject,
};
use crate::daemonset::manifest::{self, Binding, Owner};
use crate::daemonset::placement::{self, Verdict};
use crate::daemonset::plan::Settings;
use crate::daemonset::planner::Planner;
use crate::daemonset::progressive::policy::{Policy, SelectableSet, governing_policy};
use crate::daemonset::why::Why;
use crate::daemonset::{
    ControllerMode, NOT_ON_DELETE_MESSAGE, NodeExplanation, NodeSummary, ProgressiveRolloutSummary,
    RolloutSummary, is_budget_always_zero,
};
use crate::scheduler::{self, FitExplainer, Scheduler};

/// The input of `muster explain` and `muster plan`: the decoded objects of a cluster that concern one DaemonSet. Pods
/// and revisions that another object controls are left out, except in `capacity`.
#[derive(Debug)]
pub struct Snapshot {
    /// Namespace and name of the DaemonSet.
    pub(crate) key: ObjectKey,
    /// Interned strings, which several decoded objects have in common.
    shared: Interner,
    /// The versions of the DaemonSet in the order in which they were added: the live object, then the changed object
    /// (if any).
    pub(crate) sets: Vec<Arc<Set>>,
    /// The decoded objects, by kind. The DaemonSets are those of `sets`.
    pub(crate) facts: BTreeMap<Kind, Vec<WatchedObject>>,
    /// Why a pod of the DaemonSet is not Ready, by pod name. Pods that are Ready, or whose status shows no problem,
    /// have no entry.
    pub(crate) pod_problems: BTreeMap<Text, String>,
    /// The ControllerRevisions of the DaemonSet, and those without a controller.
    pub(crate) revisions: Vec<Arc<Revision>>,
    /// Messages for the user that are not about a single node.
    pub(crate) notes: Vec<String>,
    /// The nodes that [`Self::add_node_capacity`] added, and the pods that [`Self::add_scheduled_pod`] added, with
    /// which the scheduler's rules check whether a pod fits on a node.
    pub(crate) capacity: Scheduler,
}

/// Note about a DaemonSet with a progressive rollout whose managed fields do not show in which mode this controller
/// runs.
const UNKNOWN_MODE_NOTE: &str = "Cannot tell whether the controller runs in assist mode: it has not written the status of \
                                 the DaemonSet. In assist mode, a node that is not admitted gets the newest revision \
                                 when its pod is deleted, and there is no rollback.";

/// The pods of a DaemonSet, by the name of their node.
pub(crate) type PodsByNode = BTreeMap<Text, Vec<Arc<facts::Pod>>>;

/// Why the state of a DaemonSet cannot be computed from a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotError {
    /// No DaemonSet was added to the snapshot.
    NoSuchSet,
}

impl Snapshot {
    /// Creates an empty snapshot for the DaemonSet with this key.
    pub fn new(key: ObjectKey) -> Self {
        Self {
            key,
            shared: Interner::default(),
            sets: Vec::new(),
            facts: BTreeMap::new(),
            pod_problems: BTreeMap::new(),
            revisions: Vec::new(),
            notes: Vec::new(),
            capacity: Scheduler::default(),
        }
    }

    /// Adds one object of this kind. `object` is its JSON. Skips other DaemonSets, and pods and revisions that another
    /// object controls. So the DaemonSet must be added before its pods and revisions.
    pub fn add_object(&mut self, kind: Kind, object: &[u8]) -> Result<(), Malformed> {
        let fact = facts::decode_object(kind, object, &mut self.shared)?;
        let set = self.sets.last();
        let is_ours = |owner: &Option<Text>| set.is_some_and(|set| owner.as_ref() == Some(&set.uid));
        match &fact {
            WatchedObject::Set(set) if set.key == self.key => self.sets.push(set.clone()),
            WatchedObject::Set(_) => return Ok(()),
            WatchedObject::Pod(pod) => {
                if !is_ours(&pod.owner) && pod.owner.is_some() {
                    return Ok(());
                }
                if is_ours(&pod.owner) && !pod.is_ready() {
                    let problem = pod_problem::pod_problem_message(object);
                    problem.map(|it| self.pod_problems.insert(pod.key.name.clone(), it));
                }
            }
            WatchedObject::Revision(revision) => {
                if !is_ours(&revision.owner) && revision.owner.is_some() {
                    return Ok(());
                }
                self.revisions.push(revision.clone());
            }
            _ => {}
        }
        self.facts.entry(kind).or_default().push(fact);
        Ok(())
    }

    /// Returns the DaemonSet version that was added last. `None` if no DaemonSet was added.
    pub fn set(&self) -> Option<&Arc<Set>> {
        self.sets.last()
    }

    /// Adds a node, given as JSON, to the nodes on which the scheduler's rules check whether a pod fits.
    pub fn add_node_capacity(&mut self, node: &[u8]) -> Result<(), serde_json::Error> {
        let node = scheduler::decode_node(node, &mut self.shared)?;
        self.capacity.put_object(scheduler::SchedulerObject::Node(Arc::new(node)));
        Ok(())
    }

    /// Adds a pod, given as JSON, to the pods that use the resources of their node. The pod may have any owner. Skips a
    /// pod that is not bound.
    pub fn add_scheduled_pod(&mut self, pod: &[u8]) -> Result<(), serde_json::Error> {
        let pod = scheduler::decode_pod(pod, &mut self.shared)?;
        if pod.node.is_some() {
            self.capacity.put_object(scheduler::SchedulerObject::Pod(Arc::new(pod)));
        }
        Ok(())
    }

    /// Returns whether this controller replaces upstream's controller for the live DaemonSet, or runs beside it (assist
    /// mode). `Unknown` if the metadata of the DaemonSet does not show that, or if no DaemonSet was added.
    pub fn controller_mode(&self) -> ControllerMode {
        self.sets.first().map_or(ControllerMode::Unknown, |it| ControllerMode::from_metadata(&it.metadata))
    }

    /// Whether the controller runs in assist mode and refuses the DaemonSet, because its strategy is not `OnDelete`.
    /// Then upstream's controller replaces its pods.
    pub fn is_refused_in_assist_mode(&self) -> bool {
        let is_on_delete = |it: &Arc<Set>| it.rollout == UpdateStrategy::OnDelete;
        self.controller_mode() == ControllerMode::Assist && !self.sets.last().is_some_and(is_on_delete)
    }

    /// Whether the controller runs in assist mode and does not refuse the DaemonSet.
    pub(crate) fn is_assisted(&self) -> bool {
        self.controller_mode() == ControllerMode::Assist && !self.is_refused_in_assist_mode()
    }

    /// Returns the policy that governs the DaemonSet. `None` if no policy selects it.
    fn governing_policy(&self, set: &Set) -> Option<&Arc<Policy>> {
        let facts = |kind| self.facts.get(&kind).into_iter().flatten();
        let policies = facts(Kind::Policies).chain(facts(Kind::ClusterPolicies)).filter_map(|it| match it {
            WatchedObject::Policy(policy) => Some(policy),
            _ => None,
        });
        let namespace_labels = facts(Kind::Namespaces).find_map(|it| match it {
            WatchedObject::Namespace(it) if it.name == set.key.namespace => Some(&it.labels),
            _ => None,
        });
        governing_policy(policies, SelectableSet { key: &set.key, labels: &set.labels, namespace_labels }).0
    }

    /// Returns the notes about assist mode. There is a note if assist mode refuses the DaemonSet and a policy selects
    /// it, and a note if the mode is not known and the DaemonSet has a progressive rollout. Otherwise empty.
    pub(crate) fn mode_notes(
        &self,
        set: &Set,
        progressive: Option<&ProgressiveRolloutSummary>,
    ) -> Vec<String> {
        match self.controller_mode() {
            ControllerMode::Assist if self.is_refused_in_assist_mode() => {
                let policy = self.governing_policy(set).into_iter();
                let note = |it: &Arc<Policy>| {
                    let (kind, name) = (it.kind.as_str(), &it.key.name);
                    format!("{kind} {name} is refused (NotOnDelete): {NOT_ON_DELETE_MESSAGE}")
                };
                policy.map(note).collect()
            }
            ControllerMode::Unknown if progressive.is_some() => Vec::from([UNKNOWN_MODE_NOTE.to_string()]),
            _ => Vec::new(),
        }
    }

    /// Adds a message for the user that is not about a single node.
    pub fn add_note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Explains the state of the DaemonSet on every node. `controller` is the response of the running controller, whose
    /// in-memory state is taken into account. Returns an error if no DaemonSet was added.
    pub fn explain(&self, controller: ControllerAnswer, now: Time) -> Result<Explanation, SnapshotError> {
        let set = self.sets.last().ok_or(SnapshotError::NoSuchSet)?;
        let mut planner = self.new_planner(set, Settings::default());
        if let ControllerAnswer::Responded(it) = &controller {
            planner.import_in_memory_state(&self.key, &it.memory);
        }
        let plan = planner.reconcile(&self.key, now);
        let mut notes = self.all_notes(set);
        // An invalid selector is reported by an event only.
        let events = plan.iter().flat_map(|it| &it.events);
        let events = events.filter(|it| matches!(it.reason, "SelectingAll" | "InvalidSelector"));
        notes.extend(events.map(|it| it.message.clone()));
        let mut explained =
            self.explanation(&planner, controller, notes, now).ok_or(SnapshotError::NoSuchSet)?;
        explained.notes.extend(self.mode_notes(set, explained.rollout.progressive.as_ref()));
        Ok(explained)
    }

    /// Creates a planner that contains all objects of the snapshot, with `set` as the DaemonSet.
    ///
    /// Rule: the controller's mode decides by which rules a DaemonSet is explained and previewed. A DaemonSet that
    /// assist mode refuses is rolled out by upstream's controller, which reads neither policies nor verdicts. So the
    /// planner gets neither.
    pub(crate) fn new_planner(&self, set: &Arc<Set>, settings: Settings) -> Planner {
        let mut planner = Planner::new(Settings { assist: self.is_assisted(), ..settings });
        let is_refused = self.is_refused_in_assist_mode();
        for kind in Kind::ALL {
            let items = match kind {
                Kind::Sets => Vec::from([WatchedObject::Set(set.clone())]),
                kind if is_refused && Kind::OPTIONAL.contains(&kind) => Vec::new(),
                Kind::Revisions if is_refused => self.revisions.iter().map(without_verdict).collect(),
                kind => self.facts.get(&kind).cloned().unwrap_or_default(),
            };
            planner.apply(Event::Listed { kind: kind.index(), facts: items, resource_version: 1 });
        }
        planner
    }

    /// Explains the state of the DaemonSet after the last reconcile of `planner`. `None` if the DaemonSet is not in the
    /// planner.
    pub(crate) fn explanation(
        &self,
        planner: &Planner,
        controller: ControllerAnswer,
        notes: Vec<String>,
        now: Time,
    ) -> Option<Explanation> {
        let set = planner.daemon_set_by_key(&self.key)?.clone();
        let rollout = planner.rollout_summary(&self.key)?;
        let mut explained = planner.explain(&self.key);
        if rollout.hash.is_none() {
            // There are no cells before a revision records the template, but the verdicts are known.
            explained = self.explain_verdicts(&set);
        }
        explained.sort_by_key(|it| it.state == NodeSummary::Gone);
        let pod = self.template_pod(&set);
        let fit_explainer = pod.as_ref().map(|it| self.capacity.fit_explainer(it));
        let own = self.pods_by_node(&set);
        let fit_explainer = fit_explainer.as_ref().map(|it| (it, &own));
        let nodes = explained.into_iter();
        let nodes =
            nodes.map(|it| self.node_report(planner, (&set, &rollout), it, fit_explainer, now)).collect();
        let current =
            |it: &&Arc<Revision>| it.hash_label().is_some() && it.hash_label() == rollout.hash.as_ref();
        let revision = self.revisions.iter().filter(current).map(|it| it.number).max();
        let (key, mode) = (self.key.clone(), self.controller_mode());
        Some(Explanation { key, now, set, revision, nodes, rollout, mode, controller, notes })
    }

    /// Returns for each node whether the DaemonSet should run on it, without regard to existing pods. The nodes are
    /// sorted by name.
    fn explain_verdicts(&self, set: &Set) -> Vec<NodeExplanation> {
        let nodes = self.facts.get(&Kind::Nodes).into_iter().flatten().filter_map(|it| match it {
            WatchedObject::Node(node) => Some(node),
            _ => None,
        });
        let explained = nodes.map(|node| {
            let verdict = placement::verdict(&set.template, node);
            let (state, why) = match &verdict {
                Verdict::Run => (NodeSummary::Missing, Why::NoPodOnNode),
                Verdict::Keep(why) | Verdict::Leave(why) => (NodeSummary::Excluded, why.clone()),
            };
            let node = node.name.clone();
            NodeExplanation {
                node,
                verdict: Some(verdict),
                state,
                pod: None,
                why,
                assigned: None,
                admitted: None,
                revision: None,
                charged: false,
                wakes_at: None,
            }
        });
        let mut explained: Vec<NodeExplanation> = explained.collect();
        explained.sort_by(|a, b| a.node.cmp(&b.node));
        explained
    }

    /// Returns the DaemonSet's pods in the snapshot, by the name of the node that they are bound to, or that their node
    /// affinity names. Other pods are left out.
    pub(crate) fn pods_by_node(&self, set: &Set) -> PodsByNode {
        let mut own: PodsByNode = BTreeMap::new();
        for item in self.facts.get(&Kind::Pods).into_iter().flatten() {
            if let WatchedObject::Pod(pod) = item
                && let Some(node) = pod.target.as_ref().filter(|_| pod.owner.as_ref() == Some(&set.uid))
            {
                own.entry(node.clone()).or_default().push(pod.clone());
            }
        }
        own
    }

    /// Returns the pod that the DaemonSet would create, as the scheduler decodes it, without a node name, node selector
    /// or node affinity. `None` if the template is invalid.
    pub(crate) fn template_pod(&self, set: &Set) -> Option<scheduler::Pod> {
        let owner = Owner { namespace: &set.key.namespace, name: &set.key.name, uid: &set.uid };
        let template = serde_json::from_str(&set.template.raw).ok()?;
        let pod = manifest::daemon_pod(owner, &template, "", "", None, Binding::Scheduler);
        let mut pod = scheduler::decode_pod(pod.to_string().as_bytes(), &mut Interner::default()).ok()?;
        // The fit check gets the node as an argument, and placement has checked node selector and node affinity.
        let mut requirements = (*pod.requirements).clone();
        (requirements.node_selector, requirements.node_affinity) =
            (Labels::default(), RequiredNodeAffinity::Anywhere);
        pod.requirements = Arc::new(requirements);
        Some(pod)
    }

    /// Returns the report about one node: its state, and the reason and details as messages.
    fn node_report(
        &self,
        planner: &Planner,
        (set, rollout): (&Set, &RolloutSummary),
        explained: NodeExplanation,
        fit_explainer: Option<(&FitExplainer<'_>, &PodsByNode)>,
        now: Time,
    ) -> NodeReport {
        let node = planner.node_by_name(&explained.node);
        let mut message = reason_message(&explained.why);
        let mut details: Vec<String> = reason_details(&explained.why, now).into_iter().collect();
        // A node that should not run the DaemonSet gets all unmet requirements.
        let objections =
            node.filter(|_| !explained.state.should_run()).map(|it| placement::objections(&set.template, it));
        let mut objections = objections.unwrap_or_default().into_iter();
        if let Some(first) = objections.next() {
            match explained.state {
                NodeSummary::Kept | NodeSummary::Removing
                    if !matches!(explained.verdict, Some(Verdict::Leave(_))) =>
                {
                    let first = first.to_string();
                    if first != message {
                        details.push(first);
                    } else if explained.state == NodeSummary::Kept {
                        details.push("the existing pod is kept; no new pod is created after it".to_string());
                    }
                }
                _ => {
                    message = first.requirement;
                    details.extend(first.node_value);
                }
            }
        }
        details.extend(objections.map(|it| it.to_string()));
        if explained.why == Why::Outdated && explained.state == NodeSummary::Outdated {
            message = if is_budget_always_zero(rollout.strategy) {
                "outdated, and maxUnavailable is 0".to_string()
            } else if rollout.charged < rollout.budget {
                "outdated, replaced next".to_string()
            } else {
                format!(
                    "outdated, waits for the rollout budget ({} of {} used)",
                    rollout.charged, rollout.budget
                )
            };
        }
        match &explained.why {
            Why::NoPodOnNode if explained.state == NodeSummary::Missing => {
                message = planner.create_refusal(&set.key).unwrap_or(message);
            }
            Why::NotReady { reason: None } if explained.state == NodeSummary::Pending => {
                message = "waits for the scheduler".to_string();
            }
            Why::NotReady { reason: Some(reason) } if reason.as_ref() == "Unschedulable" => {
                message = "the pod is unschedulable".to_string();
            }
            _ => {}
        }
        let waits_for_scheduler = matches!(&explained.why, Why::NotReady { reason: Some(reason) } if reason.as_ref() == "Unschedulable");
        let is_unplaced = explained.state == NodeSummary::Pending
            || explained.why == Why::NoPodOnNode
            || waits_for_scheduler;
        if let Some((fit_explainer, own)) = fit_explainer.filter(|_| is_unplaced) {
            let here = planner.pods_on(&self.key, &explained.node);
            let left = |it: &&Arc<facts::Pod>| here.iter().all(|here| here.uid != it.uid);
            let left = own.get(&explained.node).into_iter().flatten().filter(left).map(|it| it.key.clone());
            if let Some(it) = fit_explainer.unfit_detail(&explained.node, &left.collect()) {
                message = it.reason;
                details.extend(it.detail);
            }
        }
        for pod in planner.pods_on(&self.key, &explained.node) {
            if let Some(problem) = self.pod_problems.get(&pod.key.name) {
                details.push(format!("pod {}: {problem}", pod.key.name));
            }
        }
        if let Some(node) = node.filter(|it| it.ready.status != ConditionStatus::True) {
            let since =
                node.ready.since.map_or(String::new(), |it| format!(" since {}", format_time(it, now)));
            if explained.why == (Why::NotReady { reason: None }) {
                message = "its node is not ready".to_string();
            }
            details.push(format!("the node is not ready{since}"));
        }
        NodeReport { explained, message, details }
    }

    /// Returns the notes of the snapshot, and notes about the DaemonSet object itself and the pods that it will adopt.
    fn all_notes(&self, set: &Set) -> Vec<String> {
        let mut notes = self.notes.clone();
        if set.deleting {
            notes.push(
                "The DaemonSet is being deleted: the controller no longer changes its pods.".to_string(),
            );
        }
        if set.status.observed_generation < set.generation {
            notes.push(format!(
                "No controller has observed generation {} yet (last observed: {}): is one running?",
                set.generation, set.status.observed_generation
            ));
        }
        notes.extend(set.faults.iter().map(|it| format!("{it}.")));
        let adoptable: BTreeSet<&str> = self.adoptable_pods(set).collect();
        if !adoptable.is_empty() {
            let count = super::pluralize(adoptable.len(), "pod");
            notes.push(format!(
                "{count} without an owner will be adopted: {}.",
                super::format_names(adoptable, 3)
            ));
        }
        notes
    }

    /// Returns the names of the pods without an owner that the DaemonSet will adopt.
    fn adoptable_pods<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = &'a str> {
        self.facts.get(&Kind::Pods).into_iter().flatten().filter_map(|it| match it {
            WatchedObject::Pod(pod)
                if pod.owner.is_none() && !pod.deleting && set.selector.matches(&pod.labels) =>
            {
                Some(pod.key.name.as_ref())
            }
            _ => None,
        })
    }
}

/// Returns a copy of a revision without its verdict.
fn without_verdict(revision: &Arc<Revision>) -> WatchedObject {
    WatchedObject::Revision(Arc::new(Revision { verdict: None, ..Revision::clone(revision) }))
}
