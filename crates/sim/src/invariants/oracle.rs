//! The oracle: a second, simple implementation of the DaemonSet rules on the authoritative state. It calls no rule of
//! the engine, so that the engine is not compared with itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::labels::{LabelOperator, LabelRequirement, Labels};
use muster_api::object_key::ObjectKey;
use muster_api::taints::{Taint, TaintEffect, Toleration, TolerationOperator};
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{
    LABEL_POD_TEMPLATE_GENERATION, TAINT_NODE_DISK_PRESSURE, TAINT_NODE_MEMORY_PRESSURE,
    TAINT_NODE_NETWORK_UNAVAILABLE, TAINT_NODE_NOT_READY, TAINT_NODE_PID_PRESSURE, TAINT_NODE_UNREACHABLE,
    TAINT_NODE_UNSCHEDULABLE,
};
use muster_engine::daemonset::facts::{
    self, ConditionStatus, Kind, NodeRequirement, RequiredNodeAffinity, Revision, Selector, Set,
    StatusCounts, Template, Term, UpdateStrategy, WatchedObject,
};
use muster_engine::daemonset::progressive::policy::Policy;
use muster_engine::daemonset::progressive::record::RolloutRecord;

use super::rollout_oracle;
use crate::server::SimServer;

/// The objects of the cluster, each kind at its own revision. A view shows the server's current state, or the state
/// that a controller had in its cache.
#[derive(Debug, Default)]
pub struct ClusterView {
    pub sets: BTreeMap<ObjectKey, Arc<Set>>,
    pub nodes: BTreeMap<Text, Arc<facts::Node>>,
    pub pods: BTreeMap<ObjectKey, Arc<facts::Pod>>,
    pub revisions: BTreeMap<ObjectKey, Arc<Revision>>,
    pub policies: Vec<Arc<Policy>>,
    pub rollouts: BTreeMap<ObjectKey, Arc<RolloutRecord>>,
    /// Whether any ControllerRevision has a verdict: the annotation with the result of its rollout.
    pub has_verdicts: bool,
    /// The templates of [`SimServer::templates`], by `data` of their ControllerRevision. Empty if the view has no
    /// policy, no DaemonRollout and no verdict.
    pub templates: Arc<BTreeMap<Text, Template>>,
}

impl ClusterView {
    /// Returns the view of the server's current state.
    pub fn current(server: &SimServer) -> Self {
        let mut view = Self {
            sets: server.sets.clone(),
            nodes: server.nodes.clone(),
            pods: server.pods.clone(),
            revisions: server.revisions.clone(),
            policies: server.policies.values().cloned().collect(),
            rollouts: server.rollouts.clone(),
            ..Self::default()
        };
        view.add_rollout_state(server);
        view
    }

    /// Returns the view of the cluster at the revisions in `snapshot`. Kinds that are not in `snapshot` have no objects
    /// in the view.
    pub fn at_revisions(server: &SimServer, snapshot: &BTreeMap<Kind, u64>) -> Self {
        let mut view = Self::default();
        for (kind, revision) in snapshot {
            for fact in server.list_at_revision(*kind, *revision) {
                match fact {
                    WatchedObject::Set(it) => drop(view.sets.insert(it.key.clone(), it)),
                    WatchedObject::Node(it) => drop(view.nodes.insert(it.name.clone(), it)),
                    WatchedObject::Pod(it) => drop(view.pods.insert(it.key.clone(), it)),
                    WatchedObject::Revision(it) => drop(view.revisions.insert(it.key.clone(), it)),
                    WatchedObject::Policy(it) => view.policies.push(it),
                    WatchedObject::Rollout(it) => drop(view.rollouts.insert(it.key.clone(), it)),
                    _ => {}
                }
            }
        }
        view.add_rollout_state(server);
        view
    }

    /// Completes the view for the checks of progressive rollouts. Sets `has_verdicts`. If the view has a policy, a
    /// DaemonRollout or a verdict, also adds the templates of older revisions, and replaces update strategies that
    /// policies override.
    fn add_rollout_state(&mut self, server: &SimServer) {
        self.has_verdicts = self.revisions.values().any(|it| it.verdict.is_some());
        if self.policies.is_empty() && self.rollouts.is_empty() && !self.has_verdicts {
            return;
        }
        self.templates = server.templates.clone();
        let governed = |set: &Arc<Set>| {
            let policy = self.governing_policy(set);
            (set.key.clone(), rollout_oracle::with_policy_strategy(set, policy.as_deref()))
        };
        self.sets = self.sets.values().map(governed).collect();
    }

    /// Returns all pods that the set controls.
    pub fn pods_of<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = &'a Arc<facts::Pod>> {
        self.pods
            .values()
            .filter(|it| it.owner.as_ref() == Some(&set.uid) && it.key.namespace == set.key.namespace)
    }

    /// Returns the pods of the set on a node, including unbound pods whose node affinity names the node.
    pub fn pods_on<'a>(&'a self, set: &'a Set, node: &'a str) -> impl Iterator<Item = &'a Arc<facts::Pod>> {
        self.pods_of(set).filter(move |it| it.target.as_deref() == Some(node))
    }

    /// Returns the ControllerRevisions that the set controls.
    pub fn revisions_of<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = &'a Arc<Revision>> {
        self.revisions
            .values()
            .filter(|it| it.owner.as_ref() == Some(&set.uid) && it.key.namespace == set.key.namespace)
    }

    /// Returns the nodes on which the set should run a pod.
    pub fn eligible_nodes<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = &'a Arc<facts::Node>> {
        let assignment = self.assignment(set);
        self.nodes.values().filter(move |it| is_node_eligible(assignment.set_for(Some(it.as_ref())), it))
    }

    /// Returns the hashes of the set's ControllerRevisions whose template is equivalent to the set's current template.
    pub fn current_hashes(&self, set: &Set) -> BTreeSet<Text> {
        let same = self.revisions_of(set).filter(|it| is_equivalent_revision(set, it));
        same.filter_map(|it| it.hash_label().cloned()).collect()
    }

    /// Whether the labels of the pod show that it has the set's current template.
    pub fn has_current_template(&self, set: &Set, pod: &facts::Pod) -> bool {
        self.has_template_label(set, pod, &self.current_hashes(set))
    }

    /// Returns the creation time of the current revision, or `None` if the set has no revision with its current
    /// template.
    pub fn current_revision_creation_time(&self, set: &Set) -> Option<Time> {
        let same = self.revisions_of(set).filter(|it| is_equivalent_revision(set, it));
        same.max_by_key(|it| (!it.deleting, it.data == set.template.data, it.number, it.key.name.clone()))
            .map(|it| it.created)
    }

    /// Returns the number of nodes that count against the rollout budget, see [`ClusterView::charged_nodes`].
    pub fn count_charged_nodes(&self, set: &Set, now: Time) -> usize {
        self.charged_nodes(set, now).len()
    }

    /// Returns the names of the nodes that count against the rollout budget. In general, a node counts if its pod of
    /// the assigned revision is not available, or, without surge, if it has no available pod. docs/differences.md lists
    /// the exceptions.
    pub fn charged_nodes<'a>(&'a self, set: &'a Set, now: Time) -> Vec<&'a str> {
        let assignment = self.assignment(set);
        let names: BTreeSet<&str> = self
            .nodes
            .keys()
            .map(|it| it.as_ref())
            .chain(self.pods_of(set).filter_map(|it| it.target.as_deref()))
            .collect();
        let is_charged = |name: &&str| {
            let set = assignment.set_for(self.nodes.get(*name).map(|it| it.as_ref()));
            let hashes = self.current_hashes(set);
            let new = |it: &facts::Pod| self.has_template_label(set, it, &hashes);
            self.counts_against_budget(set, name, &new, self.current_revision_creation_time(set), now)
        };
        names.into_iter().filter(is_charged).collect()
    }

    /// Whether the pod's revision hash label is one of `hashes`, or its template generation label is the set's template
    /// generation. The template generation label is ignored if the pod is older than the set.
    fn has_template_label(&self, set: &Set, pod: &facts::Pod, hashes: &BTreeSet<Text>) -> bool {
        // A pod that is older than the set got its label from another set.
        let generation = set.template_generation.filter(|_| set.created <= pod.created);
        let generation = generation.map(|it| it.to_string());
        pod.hash_label().is_some_and(|it| hashes.contains(it))
            || generation.is_some_and(|it| {
                pod.labels.get(LABEL_POD_TEMPLATE_GENERATION).map(|it| it.as_ref()) == Some(it.as_str())
            })
    }

    /// Whether the node `name` counts against the rollout budget. `new` returns whether a pod has the current template,
    /// and `since` is the creation time of the current revision.
    fn counts_against_budget(
        &self,
        set: &Set,
        name: &str,
        new: &dyn Fn(&facts::Pod) -> bool,
        since: Option<Time>,
        now: Time,
    ) -> bool {
        let pods: Vec<&Arc<facts::Pod>> =
            self.pods_on(set, name).filter(|it| !is_deleted_and_finished(it)).collect();
        let has_new = pods.iter().any(|it| new(it));
        let new_available = pods.iter().any(|it| new(it) && is_pod_available(set, it, now));
        if self.nodes.get(name).is_some_and(|it| is_node_lost(it, since)) {
            return false;
        }
        if has_new && !new_available {
            return true;
        }
        if matches!(set.rollout, UpdateStrategy::Surge(_)) {
            return false;
        }
        let Some(node) = self.nodes.get(name) else { return false };
        let up = pods.iter().any(|it| {
            is_active_pod(it) && if new(it) { is_pod_available(set, it, now) } else { is_pod_ready(it) }
        });
        if !may_keep_pod(set, node) {
            return false;
        }
        let real: Vec<&Taint> = untolerated_no_schedule_taints(set, node)
            .into_iter()
            .filter(|it| !is_not_ready_taint(it))
            .collect();
        if real.is_empty() {
            let before = node.ready.since.is_some_and(|it| since.is_some_and(|since| it < since));
            let is_not_ready = node.ready.status != ConditionStatus::True && !is_node_eligible(set, node);
            return !(up || is_not_ready && before && pods.is_empty());
        }
        pods.iter()
            .any(|it| it.deleting && real.iter().all(|taint| is_taint_tolerated(&it.tolerations, taint)))
    }

    /// Returns the counts that the status of the set should have.
    pub fn expected_counts(&self, set: &Set, now: Time) -> StatusCounts {
        let current_hashes = self.current_hashes(set);
        let (assignment, of_set) = (self.assignment(set), set);
        let mut counts = StatusCounts::default();
        for node in self.nodes.values() {
            let set = assignment.set_for(Some(node.as_ref()));
            let hashes = self.current_hashes(set);
            let pods: Vec<&Arc<facts::Pod>> =
                self.pods_on(set, &node.name).filter(|it| !is_deleted_and_finished(it)).collect();
            if !is_node_eligible(set, node) {
                counts.misscheduled += i64::from(!pods.is_empty());
                continue;
            }
            counts.desired += 1;
            let rank = |it: &facts::Pod| {
                let (is_available, new) =
                    (is_pod_available(set, it, now), self.has_template_label(set, it, &hashes));
                match (is_available, new) {
                    (true, true) => 4,
                    (true, false) => 3,
                    _ if is_active_pod(it) && is_pod_ready(it) => 2,
                    _ => i32::from(!it.deleting),
                }
            };
            let counted = pods
                .iter()
                .max_by(|a, b| (rank(a), a.created, &b.key.name).cmp(&(rank(b), b.created, &a.key.name)));
            let Some(pod) = counted else { continue };
            counts.current += 1;
            counts.ready += i64::from(is_active_pod(pod) && is_pod_ready(pod));
            counts.available += i64::from(is_pod_available(set, pod, now));
            counts.updated += i64::from(self.has_template_label(of_set, pod, &current_hashes));
        }
        counts.unavailable = counts.desired - counts.available;
        counts
    }
}

/// Returns the rollout budget. For a rolling update without surge, it is the number of nodes that may be without an
/// available pod. For a rolling update with surge, it is the number of nodes that may have two pods. For `OnDelete`, it
/// is zero. A percentage is relative to `desired`, the number of eligible nodes, and is rounded up.
pub fn rollout_budget(set: &Set, desired: usize) -> usize {
    match set.rollout {
        UpdateStrategy::OnDelete => 0,
        UpdateStrategy::Drain(share) | UpdateStrategy::Surge(share) => match share {
            muster_engine::daemonset::facts::IntOrPercent::Count(count) => count as usize,
            muster_engine::daemonset::facts::IntOrPercent::Percent(percent) => {
                (desired * percent as usize).div_ceil(100).max(usize::from(0 < percent))
            }
        },
    }
}

/// Whether a revision has the set's template, or a template that creates the same pods.
pub fn is_equivalent_revision(set: &Set, revision: &Revision) -> bool {
    revision.data == set.template.data || revision.identity == Some(set.template.identity)
}

/// Whether the pod is neither terminating nor finished. Upstream: `IsPodActive`.
pub fn is_active_pod(pod: &facts::Pod) -> bool {
    !pod.deleting && !has_pod_finished(pod)
}

/// Whether the pod has the phase Succeeded or Failed.
pub fn has_pod_finished(pod: &facts::Pod) -> bool {
    matches!(
        pod.phase,
        muster_engine::daemonset::facts::Phase::Failed | muster_engine::daemonset::facts::Phase::Succeeded
    )
}

/// Whether the pod has a deletion timestamp and has finished.
pub fn is_deleted_and_finished(pod: &facts::Pod) -> bool {
    pod.deleting && has_pod_finished(pod)
}

pub fn is_pod_ready(pod: &facts::Pod) -> bool {
    pod.ready_since.is_some()
}

/// Whether the pod is active and has been ready for `minReadySeconds`.
pub fn is_pod_available(set: &Set, pod: &facts::Pod, now: Time) -> bool {
    is_active_pod(pod)
        && pod.ready_since.is_some_and(|since| set.min_ready.is_zero() || since + set.min_ready <= now)
}

/// Whether the node has been Ready=Unknown since before `current_since`, the creation time of the current revision.
pub fn is_node_lost(node: &facts::Node, current_since: Option<Time>) -> bool {
    node.ready.status == ConditionStatus::Unknown
        && node.ready.since.is_some_and(|since| current_since.is_some_and(|current| since < current))
}

/// Whether one of the tolerations matches the taint.
pub fn is_taint_tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    for toleration in tolerations {
        let effect = toleration.effect.is_none() || toleration.effect == Some(taint.effect);
        let key = toleration.key.is_empty() || toleration.key == taint.key;
        let value = match &toleration.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal(value) => *value == taint.value,
            TolerationOperator::Unknown => false,
        };
        if effect && key && value {
            return true;
        }
    }
    false
}

/// Whether the taint is `not-ready` or `unreachable`, which the node lifecycle controller adds to nodes that are not
/// Ready.
fn is_not_ready_taint(taint: &Taint) -> bool {
    taint.key.as_ref() == TAINT_NODE_NOT_READY || taint.key.as_ref() == TAINT_NODE_UNREACHABLE
}

/// Whether pods of the set tolerate a taint, by the template's tolerations or by automatic tolerations.
fn pods_tolerate(set: &Set, taint: &Taint) -> bool {
    let raw: serde_json::Value = serde_json::from_str(&set.template.raw).unwrap_or_default();
    let on_host = raw["spec"]["hostNetwork"] == true;
    let automatic = match (taint.key.as_ref(), taint.effect) {
        (TAINT_NODE_NOT_READY | TAINT_NODE_UNREACHABLE, TaintEffect::NoExecute) => true,
        (
            TAINT_NODE_DISK_PRESSURE
            | TAINT_NODE_MEMORY_PRESSURE
            | TAINT_NODE_PID_PRESSURE
            | TAINT_NODE_UNSCHEDULABLE,
            TaintEffect::NoSchedule,
        ) => true,
        (TAINT_NODE_NETWORK_UNAVAILABLE, TaintEffect::NoSchedule) => on_host,
        _ => false,
    };
    automatic || is_taint_tolerated(&set.template.tolerations, taint)
}

/// Returns the `NoSchedule` taints of the node that pods of the set do not tolerate.
fn untolerated_no_schedule_taints<'a>(set: &Set, node: &'a facts::Node) -> Vec<&'a Taint> {
    node.taints.iter().filter(|it| it.effect == TaintEffect::NoSchedule && !pods_tolerate(set, it)).collect()
}

/// Whether the node matches the node name, the node selector and the node affinity of the set's template.
pub fn matches_node(set: &Set, node: &facts::Node) -> bool {
    let template = &set.template;
    let named = template.node_name.as_ref().is_none_or(|it| *it == node.name);
    let selected = template
        .node_selector
        .iter()
        .all(|(key, value)| node.labels.get(key).map(|it| it.as_ref()) == Some(value));
    let matches_affinity = match &template.affinity {
        RequiredNodeAffinity::Anywhere => true,
        RequiredNodeAffinity::AnyOf(terms) => terms.iter().any(|term| match term {
            Term::Unreadable(_) => false,
            Term::AllOf(all) => !all.is_empty() && all.iter().all(|it| meets_requirement(it, node)),
        }),
    };
    named && selected && matches_affinity
}

/// Whether the node meets a requirement of the node affinity.
fn meets_requirement(requirement: &NodeRequirement, node: &facts::Node) -> bool {
    match requirement {
        NodeRequirement::Label(it) => satisfies_requirement(it, &node.labels),
        NodeRequirement::NameIs(name) => *name == node.name,
        NodeRequirement::NameIsNot(name) => *name != node.name,
    }
}

/// Whether a pod of the set may stay on a node where it already runs. The node must match the template (see
/// [`matches_node`]), and pods of the set must tolerate all `NoExecute` taints of the node.
pub fn may_keep_pod(set: &Set, node: &facts::Node) -> bool {
    matches_node(set, node)
        && !node.taints.iter().any(|it| it.effect == TaintEffect::NoExecute && !pods_tolerate(set, it))
}

/// Whether the set should run a pod on the node. [`may_keep_pod`] must be true, and pods of the set must tolerate all
/// `NoSchedule` taints of the node.
pub fn is_node_eligible(set: &Set, node: &facts::Node) -> bool {
    may_keep_pod(set, node) && untolerated_no_schedule_taints(set, node).is_empty()
}

/// Whether the set's selector matches the labels. An empty or unreadable selector matches nothing.
pub fn selector_matches(set: &Set, labels: &Labels) -> bool {
    match &set.selector {
        Selector::Requirements(selector) => rollout_oracle::matches_labels(selector, labels),
        Selector::Everything | Selector::Unreadable(_) => false,
    }
}

/// Whether the labels satisfy one requirement of a label selector or of a node affinity.
pub(super) fn satisfies_requirement(requirement: &LabelRequirement, labels: &Labels) -> bool {
    let value = labels.get(&requirement.key);
    let number = || value.and_then(|it| it.parse::<i64>().ok());
    match &requirement.operator {
        LabelOperator::In(values) => value.is_some_and(|it| values.contains(it)),
        LabelOperator::NotIn(values) => !value.is_some_and(|it| values.contains(it)),
        LabelOperator::Exists => value.is_some(),
        LabelOperator::DoesNotExist => value.is_none(),
        LabelOperator::GreaterThan(bound) => number().is_some_and(|it| *bound < it),
        LabelOperator::LessThan(bound) => number().is_some_and(|it| it < *bound),
    }
}
