//! Checks of invariants with the prefix L (liveness): after faults have stopped, the cluster converges, the DaemonSet
//! statuses report this, and the cluster stays converged.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::daemonset::facts::{self, Revision, Set, UpdateStrategy};

use muster_engine::daemonset::progressive::record::Phase;

use super::Violation;
use super::oracle::{self, ClusterView};

/// Compares the cluster with its desired state after faults have stopped. The fields are the state of the cluster, and
/// the reasons for which a set need not converge.
#[derive(Debug)]
pub struct ConvergenceCheck<'a> {
    pub view: &'a ClusterView,
    /// The current time by the leader's clock.
    pub clock: Time,
    /// Nodes without a running kubelet.
    pub dead_nodes: BTreeSet<Text>,
    /// Pods that are not expected to become ready, because of their image or because their node shuts down.
    pub never_ready_pods: BTreeSet<ObjectKey>,
    /// Whether the API server rejects new pods.
    pub rejects_new_pods: bool,
}

impl ConvergenceCheck<'_> {
    /// Returns the first difference between a set and its desired state, or `None` if the set has converged.
    pub fn first_set_difference(&self, set: &Set) -> Option<Violation> {
        let (view, clock) = (self.view, self.clock);
        let fail = |invariant, detail| Some(Violation { invariant, detail });
        let stray = view.pods.values().find(|it| {
            it.key.namespace == set.key.namespace
                && it.owner.is_none()
                && !it.deleting
                && oracle::selector_matches(set, &it.labels)
        });
        if let Some(pod) = stray {
            return fail("L1", format!("{} matches {} and is not adopted", pod.key, set.key));
        }
        let released = view.pods_of(set).find(|it| !oracle::selector_matches(set, &it.labels));
        if let Some(pod) = released {
            return fail("L1", format!("{} no longer matches {} and is not released", pod.key, set.key));
        }
        for node in view.nodes.values() {
            if let Some(violation) = self.first_node_difference(set, &node.name) {
                return Some(violation);
            }
        }
        let pending = view.pods_of(set).find(|it| {
            let node = it.target.as_ref();
            !it.bound && !it.deleting && node.is_some_and(|node| !view.nodes.contains_key(node))
        });
        if let Some(pod) = pending {
            return fail("L1", format!("{} is pending for a deleted node", pod.key));
        }
        if let Some(violation) = self.first_rollout_violation(set) {
            return Some(violation);
        }
        let counts = view.expected_counts(set, clock);
        if set.status.counts != counts || set.status.observed_generation < set.generation {
            return fail(
                "L2",
                format!(
                    "{}: status {:?} observed {}, expected {counts:?} at generation {}",
                    set.key, set.status.counts, set.status.observed_generation, set.generation
                ),
            );
        }
        let settling =
            view.pods_of(set).find(|it| it.is_ready() && !oracle::is_pod_available(set, it, clock));
        if let Some(pod) = settling {
            return fail("L2", format!("{} is ready and not yet available", pod.key));
        }
        if counts.ready != counts.available {
            return fail(
                "L2",
                format!("{}: {} ready, {} available", set.key, counts.ready, counts.available),
            );
        }
        self.first_revision_difference(set)
    }

    /// Returns the first difference between a set's pods on one node and the desired state. `None` if there is none, or
    /// if the node does not exist. `name` is the name of the node.
    ///
    /// - L1: an eligible node has exactly one pod, and the pod is Ready. A node that may not keep a pod of the set has
    ///   none. With a progressive rollout, a missing pod violates S16 instead.
    /// - L3 and L4: the rollout replaces an outdated pod, even if other nodes are dead.
    ///
    /// Exceptions: an eligible node that is dead is not checked, and terminating pods may stay on a dead node. Pods
    /// that can never become Ready are excused, and so are missing pods while new pods are rejected. If the rollout
    /// budget is exhausted, an outdated pod and the second pod of a surge may stay.
    fn first_node_difference(&self, set: &Set, name: &Text) -> Option<Violation> {
        let view = self.view;
        let fail = |invariant, detail| Some(Violation { invariant, detail });
        let node = view.nodes.get(name)?;
        let assignment = view.assignment(set);
        let may_update = assignment.may_update(node);
        let of_set = set;
        let set = assignment.set_for(Some(node.as_ref()));
        let dead = self.dead_nodes.contains(name);
        let here: Vec<&facts::Pod> = view
            .pods_on(set, name)
            .map(|it| it.as_ref())
            .filter(|it| !oracle::is_deleted_and_finished(it))
            .collect();
        if !oracle::may_keep_pod(set, node) {
            let stays = here.iter().find(|it| !dead || !it.deleting);
            return stays.and_then(|it| fail("L1", format!("{} is still on {name}", it.key)));
        }
        if !oracle::is_node_eligible(set, node) {
            if let Some(it) = here.iter().find(|it| !it.bound && !it.deleting) {
                return fail("L1", format!("{} is pending for {name}, which is not eligible", it.key));
            }
            if let Some(it) = here.iter().find(|it| oracle::has_pod_finished(it) && !it.deleting) {
                return fail("L1", format!("{} on {name} has finished and is not deleted", it.key));
            }
            let surplus = 1 < here.iter().filter(|it| oracle::is_active_pod(it)).count();
            let moved = here.iter().find(|it| {
                let is_outdated = !view.has_current_template(set, it) && oracle::is_active_pod(it) && !dead;
                let tolerates = node.taints.iter().all(|taint| {
                    taint.effect.as_str() != "NoSchedule"
                        || oracle::is_taint_tolerated(&it.tolerations, taint)
                });
                is_outdated && tolerates && may_update && set.rollout != UpdateStrategy::OnDelete
            });
            return match moved {
                _ if surplus => fail("L1", format!("several pods on {name}")),
                Some(it) => {
                    fail("L3", format!("{} on {name}, which is not eligible, is not deleted", it.key))
                }
                None => None,
            };
        }
        if dead {
            return None;
        }
        match here.as_slice() {
            [pod]
                if oracle::is_active_pod(pod)
                    && pod.ready_since.is_none()
                    && self.never_ready_pods.contains(&pod.key) =>
            {
                None
            }
            [pod] if !oracle::is_active_pod(pod) && self.never_ready_pods.contains(&pod.key) => None,
            [pod] if !oracle::is_active_pod(pod) => {
                fail("L1", format!("{} on {name} is {:?} and not replaced", pod.key, pod.phase))
            }
            [pod] if pod.ready_since.is_none() => fail("L1", format!("{} on {name} is not ready", pod.key)),
            [pod]
                if !view.has_current_template(set, pod)
                    && set.rollout != UpdateStrategy::OnDelete
                    && may_update
                    && !self.is_budget_exhausted(of_set) =>
            {
                // L4: dead nodes must not block the rollout on the other nodes.
                fail(
                    if self.dead_nodes.is_empty() { "L3" } else { "L4" },
                    format!("{} on {name} is outdated", pod.key),
                )
            }
            [_] => None,
            [] if self.rejects_new_pods => None,
            [] => {
                // S16: no phase of a rollout leaves an eligible node without a pod.
                let invariant = if assignment.rollout.is_some() { "S16" } else { "L1" };
                fail(invariant, format!("no pod of {} on {name}", set.key))
            }
            several
                if self.is_budget_exhausted(of_set)
                    && matches!(set.rollout, UpdateStrategy::Surge(_))
                    && several.len() == 2 =>
            {
                None
            }
            several => fail("L1", format!("{} pods of {} on {name}", several.len(), set.key)),
        }
    }

    /// Returns the first violation of L12 or L13 in the progressive rollout of a set. `None` if there is none, if the
    /// set has no rollout, or if its rollout is frozen.
    ///
    /// - L12: a rollout ends, or its status names what it waits for.
    /// - L13: every eligible node has an available pod of the expected revision, unless the node is dead or the pod can
    ///   never become Ready. The expected revision is the stable revision in the phase `RolledBack`, and the current
    ///   revision in the phase `Complete`.
    ///
    /// L13 is not checked in other phases, while the rollout may not replace pods, while new pods are rejected, or for
    /// a set with `OnDelete` that no policy governs.
    fn first_rollout_violation(&self, set: &Set) -> Option<Violation> {
        let view = self.view;
        let fail = |invariant, detail| Some(Violation { invariant, detail });
        let assignment = view.assignment(set);
        let rollout = assignment.rollout.as_ref().filter(|it| !it.is_frozen())?;
        let Some(status) = rollout.status() else {
            return fail("L12", format!("the rollout of {} is not about its current revision", set.key));
        };
        // A user deletes the pods of a set with `OnDelete` that no policy governs.
        let waits_for_deletes = set.rollout == UpdateStrategy::OnDelete && rollout.policy.is_none();
        let is_ended = match status.phase {
            Some(Phase::Complete | Phase::PartiallyComplete | Phase::RolledBack | Phase::Stopped) => true,
            Some(Phase::Waiting) => !status.message.is_empty(),
            Some(Phase::Rolling | Phase::RollingBack) if waits_for_deletes => {
                status.paused || status.message.contains("OnDelete")
            }
            Some(_) => status.paused && !status.message.is_empty(),
            None => false,
        };
        if !is_ended {
            return fail("L12", format!("the rollout of {} does not end: {status}", set.key));
        }
        let expected = match status.phase {
            Some(Phase::RolledBack) => assignment.stable_set(),
            Some(Phase::Complete) => Some(set),
            _ => None,
        };
        // A node may become eligible again with a pod of another revision. A paused rollout does not replace that pod.
        let expected = expected.filter(|_| rollout.may_replace() && !waits_for_deletes)?;
        let is_missing = |node: &&Arc<facts::Node>| {
            oracle::is_node_eligible(expected, node)
                && !self.dead_nodes.contains(&node.name)
                && !view.pods_on(set, &node.name).any(|it| {
                    view.has_current_template(expected, it)
                        && (oracle::is_pod_available(set, it, self.clock)
                            || self.never_ready_pods.contains(&it.key))
                })
        };
        let missing = view.nodes.values().find(is_missing).filter(|_| !self.rejects_new_pods)?;
        fail("L13", format!("{status} of {}, but {} has no available pod of it", set.key, missing.name))
    }

    /// Whether the rolling update cannot continue, because the nodes that never recover exhaust the rollout budget.
    fn is_budget_exhausted(&self, set: &Set) -> bool {
        let desired = self.view.eligible_nodes(set).count();
        let is_never_ready = |node: &&str| {
            let mut here = self.view.pods_on(set, node).filter(|it| !oracle::is_deleted_and_finished(it));
            self.dead_nodes.contains(*node) || here.any(|it| self.never_ready_pods.contains(&it.key))
        };
        let charged = self.view.charged_nodes(set, self.clock);
        oracle::rollout_budget(set, desired) <= charged.iter().filter(|it| is_never_ready(it)).count()
    }

    /// Returns the first violation in a set's revision history, or `None` if there is none. Checks L7: the history is
    /// within its limit and has the current template. Also checks W16: the current revision has the highest number.
    fn first_revision_difference(&self, set: &Set) -> Option<Violation> {
        let view = self.view;
        let fail = |invariant, detail| Some(Violation { invariant, detail });
        let same =
            view.revisions_of(set).filter(|it| !it.deleting && oracle::is_equivalent_revision(set, it));
        let Some(current) =
            same.max_by_key(|it| (it.data == set.template.data, it.number, it.key.name.clone()))
        else {
            return fail("L7", format!("{} has no revision of its template", set.key));
        };
        let carried: std::collections::BTreeSet<_> =
            view.pods_of(set).filter_map(|it| it.hash_label().cloned()).collect();
        let others: Vec<_> = view
            .revisions_of(set)
            .filter(|it| !it.deleting && it.uid != current.uid && it.data != current.data)
            .collect();
        // The stable revision stays, whatever the limit is.
        let stable = view.rollout_of(set).and_then(|it| it.stable).map(|it| it.uid.clone());
        let is_free = |it: &&&Arc<Revision>| {
            !it.hash_label().is_some_and(|it| carried.contains(it)) && Some(&it.uid) != stable.as_ref()
        };
        let free = others.iter().filter(is_free).count();
        if 0 < others.len().saturating_sub(set.history_max).min(free) {
            return fail(
                "L7",
                format!("{} has {} old revisions, {} are allowed", set.key, others.len(), set.history_max),
            );
        }
        if others.iter().any(|it| current.number <= it.number) {
            return fail("W16", format!("{} is current, but does not have the highest number", current.key));
        }
        let is_duplicate = |it: &&Arc<Revision>| {
            !it.deleting
                && it.uid != current.uid
                && it.data == current.data
                && Some(&it.uid) != stable.as_ref()
        };
        let duplicate = view.revisions_of(set).any(|it| is_duplicate(&it));
        if duplicate {
            return fail("L7", format!("{} has a duplicate", current.key));
        }
        None
    }
}
