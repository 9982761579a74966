//! Checks of each new plan of the DaemonSet controller, mostly of invariants with the prefix W. A plan is checked
//! against the state that the controller had in its cache when it made the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE};
use muster_engine::daemonset::facts::{self, Kind, Set, UpdateStrategy};
use muster_engine::daemonset::plan::{Claim, Plan, RevisionWrite};
use muster_engine::daemonset::why::Why;

use super::oracle::{self, ClusterView};
use super::{InvariantChecks, set_name_text};
use crate::server::SimServer;

impl InvariantChecks {
    /// Checks three invariants about the writes of a replica that its caches may not show yet:
    /// - L5: a set that waits for its own writes has a timer.
    /// - S7: a replica does not wait for its own writes if its caches are up to date.
    /// - S8: a plan with writes is made only if the caches show all acknowledged writes of this replica for the set.
    ///   Exception: a plan that lists the pods first (`Plan::confirm`).
    pub(super) fn check_expectations(
        &mut self,
        server: &SimServer,
        replica: usize,
        plan: &Plan,
        snapshot: &BTreeMap<Kind, u64>,
    ) {
        let waits = matches!(plan.waiting, Some(Why::WaitingForOwnWrites { .. }));
        if waits && plan.wake_at.is_none() {
            self.report_violation("L5", || {
                format!("{} waits for its own writes without a timer", plan.set.key)
            });
        }
        let caught_up = Kind::ALL.iter().all(|kind| {
            let seen = snapshot.get(kind).copied().unwrap_or(0);
            server
                .store
                .commits_since(crate::server::store_key_prefix(*kind), seen)
                .is_ok_and(|mut it| it.next().is_none())
        });
        if waits && caught_up {
            self.report_violation("S7", || {
                format!("{} waits for its own writes although its caches are up to date", plan.set.key)
            });
        }
        if plan.is_idle() || plan.confirm {
            return;
        }
        let Some(writes) = self.acknowledged.get_mut(&(replica, plan.set.uid.clone())) else { return };
        let seen = |kind: &Kind| snapshot.get(kind).copied().unwrap_or(0);
        let unseen =
            writes.wrote.iter().find(|(kind, wrote)| seen(kind) < **wrote).map(|(kind, at)| (*kind, *at));
        let pods_at = seen(&Kind::Pods);
        let undeleted = writes.deleted.iter().find_map(|(uid, key)| {
            match server.object_at_revision(Kind::Pods, key, pods_at) {
                Some(muster_engine::daemonset::facts::WatchedObject::Pod(pod))
                    if pod.uid == *uid && !pod.deleting =>
                {
                    Some(key.clone())
                }
                _ => None,
            }
        });
        let undeleted = undeleted.filter(|_| unseen.is_none());
        if let Some((kind, at)) = unseen {
            self.report_violation("S8", || {
                format!("{} was planned before the watch showed its write r{at} to {kind:?}", plan.set.key)
            });
        }
        if let Some(key) = undeleted {
            self.report_violation("S8", || {
                format!("{} was planned before the watch showed its delete of {key}", plan.set.key)
            });
        }
    }

    /// Checks W13: a cached set equals the server's set at the same revision. Otherwise the controller has modified its
    /// cache.
    pub(super) fn check_cache<'a>(
        &mut self,
        server: &SimServer,
        cached: impl Iterator<Item = &'a Arc<Set>>,
        snapshot: &BTreeMap<Kind, u64>,
    ) {
        for set in cached {
            let at = snapshot.get(&Kind::Sets).copied().unwrap_or(0);
            let stored = match server.object_at_revision(Kind::Sets, &set.key, at) {
                Some(muster_engine::daemonset::facts::WatchedObject::Set(it)) => Some(it),
                _ => None,
            };
            if stored.is_some_and(|it| it.resource_version == set.resource_version && **it != **set) {
                self.report_violation("W13", || {
                    format!("the cached {} differs from the server's at that revision", set.key)
                });
            }
        }
    }

    /// Checks a plan: that its set exists (W1) and is not being deleted (W8), and the writes of the plan: adoptions and
    /// releases, revisions and relabels, the progressive rollout, creates, deletes and evictions, and the status. Also
    /// checks the number of creates and of deletes against the burst limit (W14).
    pub(super) fn check_plan(
        &mut self,
        server: &SimServer,
        plan: &Plan,
        snapshot: &BTreeMap<Kind, u64>,
        clock: Time,
    ) {
        let view = ClusterView::at_revisions(server, snapshot);
        let name = set_name_text(&plan.set);
        let Some(set) = view.sets.get(&plan.set.key).filter(|it| it.uid == plan.set.uid).cloned() else {
            return self.report_violation("W1", || format!("a plan for {name}, which does not exist"));
        };
        if set.deleting {
            return self.report_violation("W8", || format!("a plan for {name}, which is being deleted"));
        }
        self.check_claims(&view, &set, plan);
        self.check_revision_history(&view, &set, plan);
        self.check_rollout_plan(&view, &set, plan, clock);
        self.check_creates(&view, &set, plan, clock);
        self.check_deletes(&view, &set, plan, clock);
        let creates = plan.create.len() + plan.create_stable.len();
        if self.burst < creates.max(plan.delete.len()) {
            self.report_violation("W14", || {
                format!("{creates} creates and {} deletes in one plan", plan.delete.len())
            });
        }
        let again: BTreeSet<_> = plan.delete.iter().map(|(pod, _)| pod.uid.clone()).collect();
        if again.len() != plan.delete.len() {
            self.report_violation("W4", || format!("{name}: a pod is deleted twice in one plan"));
        }
        if let Some(status) = plan.status.as_ref().filter(|_| !plan.hash.is_empty()) {
            let right = view.expected_counts(&set, clock);
            if status.counts != right {
                self.report_violation("L2", || {
                    format!("{name}: status {:?}, expected {right:?}", status.counts)
                });
            }
            if status.counts == set.status.counts
                && status.observed_generation == set.status.observed_generation
                && status.conditions == set.status.conditions
            {
                self.report_violation("W14", || format!("{name}: an unchanged status is written"));
            }
        }
    }

    /// Checks the creates of a plan:
    /// - W1: a pod is created only on a node that exists and is eligible.
    /// - W14: no pod is created on a node with a finished pod of the set that is not being deleted yet.
    /// - W6: no more nodes get a second pod than `maxSurge` allows.
    fn check_creates(&mut self, view: &ClusterView, set: &Set, plan: &Plan, clock: Time) {
        let assignment = view.assignment(set);
        let mut surged = 0;
        for (node, _) in plan.create.iter().chain(&plan.create_stable) {
            let Some(node) = view.nodes.get(node) else {
                self.report_violation("W1", || format!("create on {node}, which does not exist"));
                continue;
            };
            let set = assignment.set_for(Some(node.as_ref()));
            if !oracle::is_node_eligible(set, node) {
                self.report_violation("W1", || format!("create on {}, which is not eligible", node.name));
            }
            let finished = |it: &&Arc<facts::Pod>| oracle::has_pod_finished(it) && !it.deleting;
            if let Some(pod) = view.pods_on(set, &node.name).find(finished) {
                self.report_violation("W14", || {
                    format!("create on {}, where {} is not being deleted yet", node.name, pod.key)
                });
            }
            let old_is_up = view.pods_on(set, &node.name).any(|it| {
                oracle::is_active_pod(it) && oracle::is_pod_ready(it) && !view.has_current_template(set, it)
            });
            surged += usize::from(old_is_up);
        }
        let desired = view.eligible_nodes(set).count();
        let charged = view.count_charged_nodes(set, clock);
        let allowed = oracle::rollout_budget(set, desired).saturating_sub(charged);
        if matches!(set.rollout, UpdateStrategy::Surge(_)) && allowed < surged {
            self.report_violation("W6", || {
                format!(
                    "{surged} nodes surge, {charged} already count against the budget, {allowed} are allowed"
                )
            });
        }
    }

    /// Checks the deletes of a plan:
    /// - W4: each pod exists, belongs to the set, is not terminating yet, and is deleted for a valid reason.
    /// - W19: no pod is replaced on a node that the progressive rollout may not update.
    /// - W5: without surge, no more ready pods are replaced than `maxUnavailable` allows. For a set with a progressive
    ///   rollout, a violation of this limit is reported as W21.
    /// - W21: no more ready pods of a group of nodes are replaced than `maxUnavailable` of the group allows.
    /// - W7: with surge, an old pod is deleted only when its replacement is available. A ready old pod on a node that
    ///   is no longer eligible is deleted only if enough nodes have an available pod.
    fn check_deletes(&mut self, view: &ClusterView, set: &Set, plan: &Plan, clock: Time) {
        let desired = view.eligible_nodes(set).count();
        let charged = view.count_charged_nodes(set, clock);
        let assignment = view.assignment(set);
        let mut replaced: Vec<&Text> = Vec::new();
        let mut left = 0;
        for (pod, why) in plan.delete.iter().chain(&plan.evict) {
            let current = view.pods.get(&pod.key).filter(|it| it.uid == pod.uid);
            let Some(pod) = current else {
                self.report_violation("W4", || format!("{} is deleted, but does not exist", pod.key));
                continue;
            };
            if pod.deleting || pod.owner.as_ref() != Some(&set.uid) {
                self.report_violation("W4", || {
                    format!("{} is deleted, but is already terminating or not owned by the set", pod.key)
                });
            }
            let node = pod.target.as_ref().and_then(|it| view.nodes.get(it)).map(|it| it.as_ref());
            let reason = deletion_reason(view, assignment.set_for(node), pod, clock);
            if reason.as_ref().is_some_and(DeletionReason::is_update)
                && node.is_some_and(|it| !assignment.may_update(it))
            {
                self.report_violation("W19", || {
                    format!("{} on {:?} is replaced, but its rollout may not replace it", pod.key, pod.target)
                });
            }
            match reason {
                None => self.report_violation("W4", || {
                    format!("{} on {:?} is deleted without a reason ({why})", pod.key, pod.target)
                }),
                Some(DeletionReason::ReplacesReadyPod) => replaced.extend(&pod.target),
                Some(DeletionReason::NodeIneligible) => left += 1,
                Some(
                    DeletionReason::OutsideBudget
                    | DeletionReason::ReplacesNotReadyPod
                    | DeletionReason::ReplacementAvailable,
                ) => {}
                Some(DeletionReason::ReplacementNotAvailable) => {
                    self.report_violation("W7", || {
                        format!("{} is deleted before its replacement is available", pod.key)
                    });
                }
            }
        }
        let allowed = oracle::rollout_budget(set, desired).saturating_sub(charged);
        if matches!(set.rollout, UpdateStrategy::Drain(_)) && allowed < replaced.len() {
            let id = if assignment.rollout.is_some() { "W21" } else { "W5" };
            self.report_violation(id, || {
                format!(
                    "{} available pods are deleted, {charged} nodes already count against the budget, {allowed} \
                     are allowed",
                    replaced.len()
                )
            });
        }
        if let Some(rollout) = &assignment.rollout {
            self.check_group_budgets(view, set, rollout, &replaced, clock);
        }
        let nodes_with_available_pod = view
            .nodes
            .keys()
            .filter(|node| view.pods_on(set, node).any(|it| oracle::is_pod_available(set, it, clock)));
        let spare = nodes_with_available_pod.count().saturating_sub(desired);
        if matches!(set.rollout, UpdateStrategy::Surge(_)) && spare < left {
            self.report_violation("W7", || {
                format!("{left} pods on nodes that are no longer eligible are deleted, {spare} are allowed")
            });
        }
    }

    /// Checks the adoptions and releases of a plan. W9: only orphans that the set's selector matches are adopted. W10:
    /// only objects that the selector no longer matches are released.
    fn check_claims(&mut self, view: &ClusterView, set: &Set, plan: &Plan) {
        for claim in &plan.claims {
            let right = match claim {
                Claim::AdoptPod(it) => {
                    it.owner.is_none() && !it.deleting && oracle::selector_matches(set, &it.labels)
                }
                Claim::AdoptRevision(it) => {
                    it.owner.is_none() && !it.deleting && oracle::selector_matches(set, &it.labels)
                }
                Claim::ReleasePod(it) => {
                    it.owner.as_ref() == Some(&set.uid) && !oracle::selector_matches(set, &it.labels)
                }
                Claim::ReleaseRevision(it) => {
                    it.owner.as_ref() == Some(&set.uid) && !oracle::selector_matches(set, &it.labels)
                }
            };
            let namespace = match claim {
                Claim::AdoptPod(it) | Claim::ReleasePod(it) => &it.key.namespace,
                Claim::AdoptRevision(it) | Claim::ReleaseRevision(it) => &it.key.namespace,
            };
            let id = if claim.is_adoption() { "W9" } else { "W10" };
            if !right || *namespace != set.key.namespace {
                self.report_violation(id, || format!("{claim:?} is not allowed for {}", set.key));
            }
        }
        let _ = view;
    }

    /// Checks the changes that a plan makes to the revision history:
    /// - W15: a revision is created only if the set has no equivalent one. A revision is pruned only if it is a
    ///   duplicate or exceeds the history limit. The only revision of the current template is not pruned, nor is the
    ///   only revision with the hash of an existing pod. A pod is relabelled only if its revision is equivalent to the
    ///   current template.
    /// - W16: the current revision gets the highest number.
    fn check_revision_history(&mut self, view: &ClusterView, set: &Set, plan: &Plan) {
        for step in &plan.steps {
            match step {
                RevisionWrite::Create { number, .. } => {
                    if view
                        .revisions_of(set)
                        .any(|it| !it.deleting && oracle::is_equivalent_revision(set, it))
                    {
                        self.report_violation("W15", || {
                            format!("{}: a revision is created although an equivalent one exists", set.key)
                        });
                    }
                    if view.revisions_of(set).any(|it| *number <= it.number) {
                        self.report_violation("W16", || {
                            format!("{}: number {number} is not the highest", set.key)
                        });
                    }
                }
                RevisionWrite::Renumber { revision, number } => {
                    if !oracle::is_equivalent_revision(set, revision)
                        || view.revisions_of(set).any(|it| {
                            *number <= it.number && it.uid != revision.uid && it.data != revision.data
                        })
                    {
                        self.report_violation("W16", || {
                            format!("{} is renumbered to {number} wrongly", revision.key)
                        });
                    }
                }
                RevisionWrite::Label { .. } | RevisionWrite::StoreVerdict { .. } => {}
            }
        }
        let carried: BTreeSet<_> = view.pods_of(set).filter_map(|it| it.hash_label().cloned()).collect();
        let old = view
            .revisions_of(set)
            .filter(|it| !it.deleting && !oracle::is_equivalent_revision(set, it))
            .count();
        let same_meaning = view
            .revisions_of(set)
            .filter(|it| !it.deleting && oracle::is_equivalent_revision(set, it))
            .count();
        let mut pruned = 0;
        for revision in &plan.prune {
            let duplicate = view
                .revisions_of(set)
                .any(|it| it.uid != revision.uid && it.data == revision.data && !it.deleting);
            let named_alike = view
                .revisions_of(set)
                .any(|it| it.uid != revision.uid && it.hash_label() == revision.hash_label());
            if revision.hash_label().is_some_and(|it| carried.contains(it)) && !named_alike {
                self.report_violation("W15", || format!("{} is pruned although a pod uses it", revision.key));
            }
            if oracle::is_equivalent_revision(set, revision) && !duplicate && same_meaning < 2 {
                self.report_violation("W15", || format!("{} is pruned although it is current", revision.key));
            }
            pruned += usize::from(!duplicate);
        }
        if 0 < pruned && (old + same_meaning.saturating_sub(1)).saturating_sub(pruned) < set.history_max {
            self.report_violation("W15", || {
                format!("{}: {pruned} revisions are pruned, although there are only {old} old ones", set.key)
            });
        }
        for (pod, _) in &plan.relabel {
            let of_a_duplicate = view
                .revisions_of(set)
                .any(|it| it.hash_label() == pod.hash_label() && oracle::is_equivalent_revision(set, it));
            if !of_a_duplicate {
                self.report_violation("W15", || {
                    format!("{} is relabelled although its template differs", pod.key)
                });
            }
        }
    }
}

/// Why a plan deletes a pod. The rollout budget limits the deletes for some of the reasons only.
enum DeletionReason {
    /// The pod does not have to stay, for example because it has finished or because its node does not allow it. The
    /// delete does not count against the rollout budget.
    OutsideBudget,
    /// The pod is outdated and ready. The delete counts against the rollout budget.
    ReplacesReadyPod,
    /// The pod is outdated and not ready. The delete does not count against the rollout budget.
    ReplacesNotReadyPod,
    /// With surge: the pod has the old template, and the new pod on its node is available.
    ReplacementAvailable,
    /// With surge: the pod has the old template and is ready, and the new pod on its node is not available yet. The
    /// delete comes too early.
    ReplacementNotAvailable,
    /// With surge: the pod has the old template and is ready, its node is no longer eligible, and the node has no new
    /// pod.
    NodeIneligible,
}

/// Returns the reason that applies to a pod that a plan deletes. `None` if no reason applies. With
/// [`DeletionReason::ReplacementNotAvailable`], the delete is a violation.
fn deletion_reason(view: &ClusterView, set: &Set, pod: &facts::Pod, clock: Time) -> Option<DeletionReason> {
    let target = pod.target.as_deref()?;
    if oracle::has_pod_finished(pod) {
        return Some(DeletionReason::OutsideBudget);
    }
    let Some(node) = view.nodes.get(target) else {
        return (!pod.bound).then_some(DeletionReason::OutsideBudget);
    };
    if !oracle::may_keep_pod(set, node) || (!pod.bound && !oracle::is_node_eligible(set, node)) {
        return Some(DeletionReason::OutsideBudget);
    }
    let is_new = view.has_current_template(set, pod);
    let others: Vec<_> =
        view.pods_on(set, target).filter(|it| it.uid != pod.uid && oracle::is_active_pod(it)).collect();
    let is_kept_before = |a: &facts::Pod, b: &facts::Pod| {
        (!a.bound, a.created, &a.key.name) < (!b.bound, b.created, &b.key.name)
    };
    match set.rollout {
        UpdateStrategy::Surge(_) => {
            if others.iter().any(|it| view.has_current_template(set, it) == is_new && is_kept_before(it, pod))
            {
                return Some(DeletionReason::OutsideBudget);
            }
            if is_new {
                return None;
            }
            let new: Vec<_> = others.iter().filter(|it| view.has_current_template(set, it)).collect();
            if new.iter().any(|it| oracle::is_pod_available(set, it, clock)) {
                return Some(DeletionReason::ReplacementAvailable);
            }
            if !new.is_empty() {
                return Some(if oracle::is_pod_ready(pod) {
                    DeletionReason::ReplacementNotAvailable
                } else {
                    DeletionReason::OutsideBudget
                });
            }
            let kept = stays_despite_taint(view, set, pod, clock);
            (!oracle::is_node_eligible(set, node) && !kept).then(|| {
                if oracle::is_pod_ready(pod) {
                    DeletionReason::NodeIneligible
                } else {
                    DeletionReason::OutsideBudget
                }
            })
        }
        UpdateStrategy::Drain(_) | UpdateStrategy::OnDelete => {
            if others.iter().any(|it| is_kept_before(it, pod)) {
                return Some(DeletionReason::OutsideBudget);
            }
            if is_new || set.rollout == UpdateStrategy::OnDelete || stays_despite_taint(view, set, pod, clock)
            {
                return None;
            }
            if oracle::is_node_lost(node, view.current_revision_creation_time(set)) {
                return None;
            }
            Some(if oracle::is_pod_ready(pod) {
                DeletionReason::ReplacesReadyPod
            } else {
                DeletionReason::ReplacesNotReadyPod
            })
        }
    }
}

impl DeletionReason {
    /// Whether the delete begins an update of the node. The plan may begin an update only if the progressive rollout
    /// may update the node. The delete of an old pod beside its replacement does not begin one.
    fn is_update(&self) -> bool {
        matches!(self, Self::ReplacesReadyPod | Self::ReplacesNotReadyPod | Self::NodeIneligible)
    }
}

/// Whether a pod with the old template stays on its node although the node is not eligible. The pod stays if the node
/// has a `NoSchedule` taint that neither the pod nor the template tolerates. The taints `not-ready` and `unreachable`
/// are ignored.
fn stays_despite_taint(view: &ClusterView, set: &Set, pod: &facts::Pod, _clock: Time) -> bool {
    let Some(node) = pod.target.as_ref().and_then(|it| view.nodes.get(it)) else { return false };
    if oracle::is_node_eligible(set, node) {
        return false;
    }
    node.taints.iter().any(|it| {
        it.effect == muster_api::taints::TaintEffect::NoSchedule
            && !matches!(it.key.as_ref(), TAINT_NODE_NOT_READY | TAINT_NODE_UNREACHABLE)
            && !oracle::is_taint_tolerated(&pod.tolerations, it)
            && !oracle::is_taint_tolerated(&set.template.tolerations, it)
    })
}
