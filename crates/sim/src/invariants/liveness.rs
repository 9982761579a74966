//! L: after faults have stopped, the cluster converges, reports so in the status, and stays converged.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::daemonset::facts::{Kind, Pod, Rollout, Selector, Set};
use muster_engine::daemonset::why::Why;

use super::oracle::{self, ClusterView};
use super::{Checks, Violation};
use crate::world::World;

/// Time within which the cluster must converge: well above the longest backoff of a failed pod, fifteen minutes.
pub const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(2400);

impl World {
    /// Runs until the cluster has converged; otherwise records a violation.
    pub fn run_until_converged(&mut self) {
        self.run_until_converged_within(self.convergence_timeout);
    }

    pub fn run_until_converged_within(&mut self, span: Duration) {
        let end = self.now + span;
        let mut wait = Duration::from_secs(1);
        while self.now < end && self.violation().is_none() {
            self.run_for(wait);
            if self.has_converged() {
                // Give other components time to finish, such as a kubelet that restarts its pods.
                let before = self.checks.controller_writes;
                self.run_for(Duration::from_secs(15));
                if before == self.checks.controller_writes && self.has_converged() {
                    return;
                }
            }
            wait = (wait * 2).min(Duration::from_secs(60));
        }
        if self.violation().is_none()
            && let Some(violation) = self.first_difference()
        {
            self.check_lost_wakeup(violation);
        }
    }

    /// L5: if restarted controllers converge where the old processes did not, a wake-up was lost.
    fn check_lost_wakeup(&mut self, violation: Violation) {
        for index in 0..self.replicas.len() {
            self.crash_replica(index);
        }
        self.run_for(Duration::from_secs(120));
        let detail = violation.detail.clone();
        if self.violation().is_none() && self.first_difference().is_none() {
            self.checks.report_violation("L5", || {
                format!("no reconcile was scheduled for {}: {detail}", violation.invariant)
            });
        } else {
            self.checks.violation = Some(violation);
        }
    }

    fn has_converged(&self) -> bool {
        let at_rest = self.kubelets.values().all(|it| !it.alive || it.is_idle());
        at_rest
            && self.has_no_pending_requests()
            && self.first_difference().is_none()
            && !self.has_pending_writes()
    }

    /// Whether the leader still has writes to make or a retry pending.
    fn has_pending_writes(&self) -> bool {
        let Some(leader) = self.replicas.iter().find(|it| it.is_leader) else { return true };
        let (mut cache, clock) = (leader.cache.from_scratch(), leader.local_time(self.now));
        let keys: Vec<ObjectKey> = cache.keys().cloned().collect();
        keys.iter().any(|key| {
            let plan = cache.look(key, clock);
            plan.is_some_and(|it| {
                let waits =
                    matches!(it.waiting, Some(Why::RetryLater { .. } | Why::WaitingForOwnWrites { .. }));
                waits || !it.is_idle()
            })
        })
    }

    /// The first difference between the cluster and its desired state; `None` if it has converged.
    pub fn first_difference(&self) -> Option<Violation> {
        let view = ClusterView::current(&self.server);
        let fail = |invariant, detail| Some(Violation { invariant, detail });
        let Some(leader) = self.replicas.iter().find(|it| it.is_leader) else {
            return fail("L10", "no replica leads".to_owned());
        };
        let clock = leader.local_time(self.now);
        for pod in view.pods.values().filter(|it| !it.bound && it.live()) {
            let node = pod.target.as_ref().and_then(|it| view.nodes.get(it));
            let fits = node.is_some_and(|node| {
                node.taints.iter().all(|it| {
                    !matches!(it.effect.as_str(), "NoSchedule" | "NoExecute")
                        || oracle::is_tolerated(&pod.tolerations, it)
                })
            });
            if fits && self.scheduler_runs {
                return fail("L11", format!("{} fits its node and is not bound", pod.key));
            }
        }
        if self.garbage_runs {
            let of_nowhere =
                |it: &&Arc<Pod>| it.target.as_ref().is_some_and(|it| !view.nodes.contains_key(it));
            if let Some(pod) = view.pods.values().filter(|it| it.bound).find(of_nowhere) {
                return fail("L6", format!("{} is on a deleted node, and is not garbage collected", pod.key));
            }
        }
        let names = view.nodes.keys().chain(view.pods.values().filter_map(|it| it.target.as_ref()));
        let is_dead = |it: &&Text| self.kubelets.get(*it).is_none_or(|it| !it.alive);
        let outlook = ConvergenceCheck {
            view: &view,
            clock,
            dead: names.filter(is_dead).cloned().collect(),
            hopeless: view
                .pods
                .values()
                .filter(|it| self.can_never_be_ready(it))
                .map(|it| it.key.clone())
                .collect(),
            refuses_pods: self.server.rejects_new_pods(),
        };
        for set in view.sets.values() {
            if set.deleting {
                if self.garbage_runs && !self.is_blocked_by_finalizer(set) {
                    return fail("L6", format!("{} is being deleted, and is never removed", set.key));
                }
                continue;
            }
            if !matches!(set.selector, Selector::AllOf(_)) {
                continue;
            }
            if let Some(violation) = outlook.first_set_difference(set) {
                return Some(violation);
            }
        }
        for kubelet in self.kubelets.values().filter(|it| it.alive) {
            for (uid, key) in kubelet.running_pods() {
                let is_there = self.server.uid(Kind::Pods, key) == Some(uid);
                if !is_there {
                    return fail(
                        "S6",
                        format!("containers of {key} are running, but the pod does not exist"),
                    );
                }
            }
        }
        None
    }

    /// Whether a pod or revision with a finalizer blocks the deletion of the set.
    fn is_blocked_by_finalizer(&self, set: &Set) -> bool {
        [Kind::Pods, Kind::Revisions].into_iter().any(|kind| {
            self.server.objects(kind).any(|(_, object)| {
                let owners = object["metadata"]["ownerReferences"].as_array();
                let ours = owners.into_iter().flatten().any(|it| it["uid"] == *set.uid);
                ours && !object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
            })
        })
    }

    /// Whether a pod can never become ready, because of its image or its node.
    fn can_never_be_ready(&self, pod: &Pod) -> bool {
        let image = self.pod_image(&pod.key);
        let node = pod.target.as_ref().and_then(|it| self.kubelets.get(it));
        self.image_behaviours.get(&image).copied().unwrap_or_default()
            != crate::actors::kubelet::ImageBehaviour::Good
            || node.is_some_and(|it| it.shutting_down)
    }

    /// L9: in a converged cluster the controllers write nothing, neither the running processes nor restarted ones.
    pub fn check_stays_converged(&mut self) {
        if self.violation().is_some() {
            return;
        }
        let before = self.checks.controller_writes;
        self.run_for(Duration::from_secs(60));
        for _ in 0..100 {
            self.enqueue_all_sets();
            self.run_for(Duration::from_millis(50));
        }
        self.run_for(Duration::from_secs(30));
        for index in 0..self.replicas.len() {
            self.crash_replica(index);
        }
        self.run_for(Duration::from_secs(120));
        let writes = self.checks.controller_writes - before;
        if 0 < writes {
            let last: Vec<String> = self
                .server
                .log
                .iter()
                .rev()
                .filter(|it| matches!(it.actor, crate::server::Actor::Controller(_)))
                .take(3)
                .map(|it| format!("{:?} {}", it.kind, it.key))
                .collect();
            self.checks.report_violation("L9", || {
                format!("{writes} writes in a converged cluster, the last ones to {last:?}")
            });
        }
        if self.violation().is_none()
            && let Some(violation) = self.first_difference()
        {
            self.checks.violation = Some(violation);
        }
    }

    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    pub fn existing_set_keys(&self) -> Vec<ObjectKey> {
        self.server.sets.keys().cloned().collect()
    }
}

/// The state of the cluster after faults have stopped, and the conditions that excuse a set from converging.
#[derive(Debug)]
pub struct ConvergenceCheck<'a> {
    pub view: &'a ClusterView,
    pub clock: Time,
    /// Nodes without a running kubelet.
    pub dead: BTreeSet<Text>,
    /// Pods that can never become ready.
    pub hopeless: BTreeSet<ObjectKey>,
    pub refuses_pods: bool,
}

impl ConvergenceCheck<'_> {
    /// The first difference between a set and its desired state; `None` if the set has converged.
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
        let settling = view.pods_of(set).find(|it| it.ready() && !oracle::is_available(set, it, clock));
        if let Some(pod) = settling {
            return fail("L2", format!("{} is ready and not yet available", pod.key));
        }
        if counts.ready != counts.available {
            return fail(
                "L2",
                format!("{}: {} ready, {} available", set.key, counts.ready, counts.available),
            );
        }
        self.first_history_difference(set)
    }

    /// Checks L1 on one node, and L3 if only the pod's revision is wrong.
    fn first_node_difference(&self, set: &Set, name: &Text) -> Option<Violation> {
        let view = self.view;
        let fail = |invariant, detail| Some(Violation { invariant, detail });
        let node = view.nodes.get(name)?;
        let dead = self.dead.contains(name);
        let here: Vec<&Pod> = view
            .pods_on(set, name)
            .map(|it| it.as_ref())
            .filter(|it| !oracle::is_deleted_and_finished(it))
            .collect();
        if !oracle::may_keep_pod(set, node) {
            let stays = here.iter().find(|it| !dead || !it.deleting);
            return stays.and_then(|it| fail("L1", format!("{} is still on {name}", it.key)));
        }
        if !oracle::is_eligible(set, node) {
            if let Some(it) = here.iter().find(|it| !it.bound && !it.deleting) {
                return fail("L1", format!("{} is pending for {name}, which is not eligible", it.key));
            }
            if let Some(it) = here.iter().find(|it| oracle::has_finished(it) && !it.deleting) {
                return fail("L1", format!("{} on {name} has finished and is not deleted", it.key));
            }
            let surplus = 1 < here.iter().filter(|it| oracle::is_live(it)).count();
            let moved = here.iter().find(|it| {
                let left_behind = !view.has_current_template(set, it) && oracle::is_live(it) && !dead;
                let tolerates = node.taints.iter().all(|taint| {
                    taint.effect.as_str() != "NoSchedule" || oracle::is_tolerated(&it.tolerations, taint)
                });
                left_behind && tolerates && set.rollout != Rollout::OnDelete
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
                if oracle::is_live(pod) && pod.ready_since.is_none() && self.hopeless.contains(&pod.key) =>
            {
                None
            }
            [pod] if !oracle::is_live(pod) && self.hopeless.contains(&pod.key) => None,
            [pod] if !oracle::is_live(pod) => {
                fail("L1", format!("{} on {name} is {:?} and not replaced", pod.key, pod.phase))
            }
            [pod] if pod.ready_since.is_none() => fail("L1", format!("{} on {name} is not ready", pod.key)),
            [pod]
                if !view.has_current_template(set, pod)
                    && set.rollout != Rollout::OnDelete
                    && !self.is_rollout_paused(set) =>
            {
                // L4: dead nodes must not block the rollout on the other nodes.
                fail(
                    if self.dead.is_empty() { "L3" } else { "L4" },
                    format!("{} on {name} is out of date", pod.key),
                )
            }
            [_] => None,
            [] if self.refuses_pods => None,
            [] => fail("L1", format!("no pod of {} on {name}", set.key)),
            several
                if self.is_rollout_paused(set)
                    && matches!(set.rollout, Rollout::Surge(_))
                    && several.len() == 2 =>
            {
                None
            }
            several => fail("L1", format!("{} pods of {} on {name}", several.len(), set.key)),
        }
    }

    /// Whether the rollout is rightly paused: nodes that never recover use up its budget.
    fn is_rollout_paused(&self, set: &Set) -> bool {
        let desired = self.view.eligible_nodes(set).count();
        let hopeless = |node: &&str| {
            let mut here = self.view.pods_on(set, node).filter(|it| !oracle::is_deleted_and_finished(it));
            self.dead.contains(*node) || here.any(|it| self.hopeless.contains(&it.key))
        };
        let charged = self.view.charged_nodes(set, self.clock);
        oracle::rollout_budget(set, desired) <= charged.iter().filter(|it| hopeless(it)).count()
    }

    /// Checks L7 (the history is within its limit) and W16 (the current revision has the highest number).
    fn first_history_difference(&self, set: &Set) -> Option<Violation> {
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
            view.pods_of(set).filter_map(|it| it.hash().cloned()).collect();
        let others: Vec<_> = view
            .revisions_of(set)
            .filter(|it| !it.deleting && it.uid != current.uid && it.data != current.data)
            .collect();
        let free = others.iter().filter(|it| !it.hash().is_some_and(|it| carried.contains(it))).count();
        if 0 < others.len().saturating_sub(set.history_max).min(free) {
            return fail(
                "L7",
                format!("{} has {} old revisions, {} are allowed", set.key, others.len(), set.history_max),
            );
        }
        if others.iter().any(|it| current.number <= it.number) {
            return fail("W16", format!("{} is current, but does not have the highest number", current.key));
        }
        let duplicate =
            view.revisions_of(set).any(|it| !it.deleting && it.uid != current.uid && it.data == current.data);
        if duplicate {
            return fail("L7", format!("{} has a duplicate", current.key));
        }
        None
    }
}
