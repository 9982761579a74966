//! The oracle of progressive rollouts: a second implementation that calls no rule of the engine. It decides which
//! policy governs a DaemonSet, which revision is stable, and which revision each node is assigned.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use muster_api::labels::{Labels, Selector};
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::daemonset::facts::{self, IntOrPercent, Revision, Set, UpdateStrategy};
use muster_engine::daemonset::progressive::membership::AdmittedMembers;
use muster_engine::daemonset::progressive::policy::{NewNodeRevision, Policy, SetSelection, Step};
use muster_engine::daemonset::progressive::record::{ALL_STEPS, Phase, RolloutRecord, RolloutStatus};
use muster_engine::daemonset::progressive::verdict::RevisionVerdict;

use super::oracle::{self, ClusterView};

/// The progressive rollout of one set: its policy, its DaemonRollout and its revisions.
#[derive(Debug)]
pub struct SetRollout {
    /// The policy that governs the set. `None` if no policy matches.
    pub policy: Option<Arc<Policy>>,
    /// The DaemonRollout of the set. `None` if it does not exist.
    pub record: Option<Arc<RolloutRecord>>,
    /// The revision of the set's current template.
    pub current: Arc<Revision>,
    /// The revision with the latest verdict `Good`, to which a rollback returns. `None` if no revision is good.
    pub stable: Option<Arc<Revision>>,
    /// A copy of the set with the template of the stable revision. `None` if there is no stable revision.
    stable_set: Option<Set>,
}

/// Which nodes are assigned the current revision. All other nodes are assigned the stable revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RevisionScope {
    AllNodes,
    AdmittedNodes,
    NoNodes,
}

impl ClusterView {
    /// Returns the progressive rollout of a set. A set has one if it has a policy or a DaemonRollout, or if its current
    /// revision has the verdict `Bad`. Returns `None` for any other set, and for a set whose current template has no
    /// revision yet.
    pub fn rollout_of(&self, set: &Set) -> Option<SetRollout> {
        let policy = self.governing_policy(set);
        let record = self.rollouts.get(&set.key).cloned();
        if policy.is_none() && record.is_none() && !self.has_verdicts {
            return None;
        }
        let current = self.current_revision(set)?.clone();
        let is_bad = verdict(&current) == Some(RevisionVerdict::Bad);
        if policy.is_none() && record.is_none() && !is_bad {
            return None;
        }
        let good = self
            .revisions_of(set)
            .filter(|it| !it.deleting && verdict(it) == Some(RevisionVerdict::Good))
            .filter(|it| self.templates.contains_key(&it.data));
        let stable = good.max_by_key(|it| (it.verdict.as_ref().map(|it| it.at), it.number)).cloned();
        let stable_set = stable.as_ref().and_then(|stable| {
            let template = self.templates.get(&stable.data)?.clone();
            let generation = stable.template_generation.filter(|it| Some(*it) != set.template_generation);
            Some(Set { template, template_generation: generation, ..set.clone() })
        });
        Some(SetRollout { policy, record, current, stable, stable_set })
    }

    /// Returns the assignment of a set: for each node, whether its pods get the current or the stable revision.
    pub fn assignment<'a>(&self, set: &'a Set) -> Assignment<'a> {
        Assignment { set, rollout: self.rollout_of(set) }
    }

    /// Returns the ControllerRevision of the set's current template, or `None` if it does not exist yet.
    fn current_revision<'a>(&'a self, set: &'a Set) -> Option<&'a Arc<Revision>> {
        let same = self.revisions_of(set).filter(|it| oracle::is_equivalent_revision(set, it));
        same.max_by_key(|it| (!it.deleting, it.data == set.template.data, it.number, it.key.name.clone()))
    }

    /// Returns the policy that governs a set, or `None` if no policy matches. A policy that names the set precedes one
    /// whose selector matches, and both precede a ClusterRolloutPolicy. Of several policies with the same precedence,
    /// the oldest one governs. Of several equally old ones, the first by name governs.
    pub fn governing_policy(&self, set: &Set) -> Option<Arc<Policy>> {
        let rank = |it: &Arc<Policy>| {
            let here = it.key.namespace == set.key.namespace;
            match &it.selection {
                SetSelection::Names(names) => (here && names.contains(&set.key.name)).then_some(0),
                SetSelection::Selector(selector) => {
                    (here && matches_labels(selector, &set.labels)).then_some(1)
                }
                // The namespaces of the simulation have no labels.
                SetSelection::Cluster { sets, .. } => matches_labels(sets, &set.labels).then_some(2),
            }
        };
        let ranked = self.policies.iter().filter_map(|it| Some((rank(it)?, it)));
        ranked.min_by_key(|(rank, it)| (*rank, it.created, it.key.clone())).map(|(_, it)| it.clone())
    }

    /// Returns the names of the nodes of a step that are exposed to an unproven revision. These are the nodes in
    /// `admitted`, and the nodes with a pod whose revision does not have the verdict `Good`.
    pub fn exposed_nodes(&self, set: &Set, step: Option<&Step>, admitted: &BTreeSet<Text>) -> BTreeSet<Text> {
        let unproven = |node: &facts::Node| {
            self.pods_on(set, &node.name).filter(|it| !oracle::is_deleted_and_finished(it)).any(|it| {
                let good = self.revisions_of(set).any(|revision| {
                    revision.hash_label() == it.hash_label()
                        && verdict(revision) == Some(RevisionVerdict::Good)
                });
                it.hash_label().is_some() && !good
            })
        };
        self.nodes_of_step(set, step)
            .filter(|it| admitted.contains(&it.name) || unproven(it))
            .map(|it| it.name.clone())
            .collect()
    }

    /// Returns the eligible nodes of the set that match the selector of the step. If `step` is `None`, returns all
    /// eligible nodes.
    pub fn nodes_of_step<'a>(
        &'a self,
        set: &'a Set,
        step: Option<&'a Step>,
    ) -> impl Iterator<Item = &'a Arc<facts::Node>> {
        self.nodes.values().filter(move |it| {
            oracle::is_node_eligible(set, it)
                && step.is_none_or(|step| matches_labels(&step.selector, &it.labels))
        })
    }
}

/// Decides which revision each node of a set is assigned: the current or the stable one. Contains the set and its
/// progressive rollout, if it has one.
#[derive(Debug)]
pub struct Assignment<'a> {
    set: &'a Set,
    pub rollout: Option<SetRollout>,
}

impl Assignment<'_> {
    /// Returns the set with the template of the revision that the node is assigned: the current or the stable revision.
    /// A deleted node (`None`) is assigned the current revision.
    pub fn set_for(&self, node: Option<&facts::Node>) -> &Set {
        match (&self.rollout, node) {
            (Some(rollout), Some(node)) if !rollout.is_assigned_current(node) => {
                rollout.stable_set.as_ref().unwrap_or(self.set)
            }
            _ => self.set,
        }
    }

    /// Returns a copy of the set with the template of the stable revision, or `None` if there is no stable revision.
    pub fn stable_set(&self) -> Option<&Set> {
        self.rollout.as_ref()?.stable_set.as_ref()
    }

    /// Whether the rolling update may replace outdated pods on the node. Always true for a set without a progressive
    /// rollout.
    pub fn may_update(&self, node: &facts::Node) -> bool {
        self.rollout.as_ref().is_none_or(|it| it.may_replace() && !it.is_held(node))
    }
}

impl SetRollout {
    /// Returns the stored status of the DaemonRollout. `None` if there is no DaemonRollout, or if its status is not
    /// about the current revision.
    pub fn status(&self) -> Option<&RolloutStatus> {
        let status = &self.record.as_ref()?.status;
        let is_current =
            status.current.as_ref().is_some_and(|it| Some(&it.hash) == self.current.hash_label());
        is_current.then_some(status)
    }

    /// Whether the current revision has the verdict `Bad`: its rollout failed or was aborted.
    pub fn is_bad(&self) -> bool {
        verdict(&self.current) == Some(RevisionVerdict::Bad)
    }

    /// Whether the current revision is the stable revision, or has an equivalent template.
    pub fn has_stable_template(&self) -> bool {
        self.stable.as_ref().is_some_and(|it| {
            it.data == self.current.data || (it.identity.is_some() && it.identity == self.current.identity)
        })
    }

    /// Returns which nodes are assigned the current revision: all, the admitted ones, or none.
    pub fn scope(&self) -> RevisionScope {
        if self.stable_set.is_none() || self.has_stable_template() {
            return RevisionScope::AllNodes;
        }
        match self.status().and_then(|it| it.phase) {
            Some(Phase::Complete) => RevisionScope::AllNodes,
            Some(Phase::RollingBack | Phase::RolledBack) => RevisionScope::NoNodes,
            _ => RevisionScope::AdmittedNodes,
        }
    }

    /// Whether the node is assigned the current revision. Otherwise it is assigned the stable revision.
    pub fn is_assigned_current(&self, node: &facts::Node) -> bool {
        match self.scope() {
            RevisionScope::AllNodes => true,
            RevisionScope::NoNodes => false,
            RevisionScope::AdmittedNodes => {
                let Some(status) = self.status() else { return false };
                let latest =
                    self.policy.as_ref().is_some_and(|it| it.spec.new_nodes == NewNodeRevision::Latest);
                let is_failed = status.phase.is_some_and(Phase::is_failed);
                let is_new =
                    !is_failed && status.attempt_started.is_some_and(|started| started < node.created);
                admitted_names(status).contains(&node.name) || (latest && is_new)
            }
        }
    }

    /// Whether the rollout must not replace the node's pod, whatever the pod's revision. The node keeps the pod until
    /// the pod ends.
    pub fn is_held(&self, node: &facts::Node) -> bool {
        self.is_frozen() || (self.scope() == RevisionScope::AdmittedNodes && !self.is_assigned_current(node))
    }

    /// Whether the rollout is frozen, so that no pod of the set may be replaced. A rollout is frozen if there is
    /// neither a policy nor a DaemonRollout. Such a set has a progressive rollout only because its current revision has
    /// the verdict `Bad`.
    pub fn is_frozen(&self) -> bool {
        self.policy.is_none() && self.record.is_none()
    }

    /// Whether outdated pods may be replaced, according to the stored DaemonRollout and the policy:
    /// - Without a DaemonRollout, or while an operator pauses the rollout: no.
    /// - During and after a rollback: yes, even if the policy is paused or invalid.
    /// - In the phases `Rolling` and `Complete`: yes, unless the policy is paused or invalid.
    /// - In any other phase: no.
    /// - If the DaemonRollout has no phase for the current revision: yes, if all nodes are assigned the current
    ///   revision.
    pub fn may_replace(&self) -> bool {
        let Some(record) = &self.record else { return false };
        if record.requests.paused {
            return false;
        }
        let is_policy_paused =
            self.policy.as_ref().is_some_and(|it| it.spec.paused || !it.invalid.is_empty());
        match self.status().and_then(|it| it.phase) {
            Some(Phase::RollingBack | Phase::RolledBack) => true,
            Some(Phase::Rolling | Phase::Complete) => !is_policy_paused,
            Some(_) => false,
            // The status of another revision allows nothing, except the return to the stable revision.
            None => self.scope() == RevisionScope::AllNodes,
        }
    }

    /// Returns the step of the policy that a status names. Returns `None` if the status names no step, if it names `*`
    /// (all steps), or if the policy has no step with the name.
    pub fn step(&self, status: &RolloutStatus) -> Option<Step> {
        let name = &status.step.as_ref().filter(|it| *it.name != *ALL_STEPS)?.name;
        self.policy.as_ref()?.spec.steps.iter().find(|it| it.name == *name).cloned()
    }
}

/// Returns the verdict about a revision, or `None` if the revision has no verdict.
pub fn verdict(revision: &Revision) -> Option<RevisionVerdict> {
    revision.verdict.as_ref().map(|it| it.verdict)
}

/// Returns the names of the nodes that a status admits to the current revision. Ignores admissions that are not lists
/// of names, because such admissions occur only in clusters larger than the simulated ones.
pub fn admitted_names(status: &RolloutStatus) -> BTreeSet<Text> {
    let names = status.admitted.iter().filter_map(|it| match &it.members {
        AdmittedMembers::Names(names) => Some(names.iter().cloned()),
        AdmittedMembers::UpTo { .. } => None,
    });
    names.flatten().collect()
}

/// Whether a pod is available, and has been Ready without a restart of a container for the soak time and for
/// `minReadySeconds`.
pub fn has_soaked(set: &Set, pod: &facts::Pod, soak: Duration, now: Time) -> bool {
    let healthy_since = pod.ready_since.max(pod.last_started);
    oracle::is_pod_available(set, pod, now)
        && healthy_since.is_some_and(|it| it + soak.max(set.min_ready) <= now)
}

/// Returns how many nodes a step may update in total. `nodes` is the number of eligible nodes that match the selector
/// of the step. A percentage is rounded up.
pub fn step_target(step: &Step, nodes: usize) -> usize {
    match step.nodes {
        IntOrPercent::Count(count) => (count as usize).min(nodes),
        IntOrPercent::Percent(percent) => (nodes * percent as usize).div_ceil(100).min(nodes),
    }
}

/// Returns the set with the update strategy that applies under its policy. A policy replaces the strategy `OnDelete`
/// with a rolling update that has the `maxUnavailable` of the policy. A set without a policy, with a strategy other
/// than `OnDelete`, or with invalid fields is returned unchanged.
pub fn with_policy_strategy(set: &Arc<Set>, policy: Option<&Policy>) -> Arc<Set> {
    match policy {
        Some(policy) if set.rollout == UpdateStrategy::OnDelete && set.faults.is_empty() => {
            let rollout = UpdateStrategy::Drain(policy.spec.max_unavailable);
            Arc::new(Set { rollout, ..(**set).clone() })
        }
        _ => set.clone(),
    }
}

/// Whether a label selector of a policy matches the labels of a node or DaemonSet.
pub fn matches_labels(selector: &Selector, labels: &Labels) -> bool {
    match selector {
        Selector::Nothing => false,
        Selector::AllOf(all) => all.iter().all(|it| oracle::satisfies_requirement(it, labels)),
    }
}
