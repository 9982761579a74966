//! Runs the cluster until it has converged, and checks that it stays converged.

use std::sync::Arc;
use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_engine::daemonset::facts::{self, Kind, Selector, Set};
use muster_engine::daemonset::why::Why;

use super::World;
use crate::invariants::Violation;
use crate::invariants::liveness::ConvergenceCheck;
use crate::invariants::oracle::{self, ClusterView};
use crate::kubelet::ImageBehaviour;
use crate::server::Actor;

/// Time within which the cluster must converge after faults have stopped. It is much longer than the longest backoff of
/// a failed pod, which is fifteen minutes.
pub(super) const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(2400);

impl World {
    /// Runs until the cluster has converged. Reports a violation if the cluster still differs from its desired state
    /// after [`World::convergence_timeout`].
    pub fn run_until_converged(&mut self) {
        self.run_until_converged_within(self.convergence_timeout);
    }

    /// Runs until the cluster has converged. Reports a violation if the cluster still differs from its desired state
    /// after `span`.
    pub fn run_until_converged_within(&mut self, span: Duration) {
        let end = self.now + span;
        let mut wait = Duration::from_secs(1);
        while self.now < end && self.violation().is_none() {
            self.run_for(wait);
            if self.has_converged() {
                // Give other components time to finish, such as a kubelet that restarts its pods.
                let before = self.checks.controller_writes;
                // The soak time of a rollout is up to 15 s, and its end changes the counts in the status.
                let wait = if self.has_policies { 30 } else { 15 };
                self.run_for(Duration::from_secs(wait));
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

    /// Checks L5: no wake-up was lost. It is called if the cluster has not converged before its timeout, with the
    /// `violation` that describes the remaining difference. Restarts all replicas of the DaemonSet controller. If the
    /// cluster then converges, the old processes have lost a wake-up, and L5 is reported. Otherwise `violation` is
    /// reported.
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

    /// Whether the cluster equals its desired state, all live kubelets are idle, no request or delivery is pending, and
    /// the leader has nothing to write.
    fn has_converged(&self) -> bool {
        let at_rest = self.kubelets.values().all(|it| !it.alive || it.is_idle());
        at_rest
            && self.has_no_pending_requests()
            && self.first_difference().is_none()
            && !self.has_pending_writes()
    }

    /// Whether the leader still has writes to make, or has a pending retry. Also true if no replica is the leader.
    fn has_pending_writes(&self) -> bool {
        let Some(leader) = self.replicas.iter().find(|it| it.is_leader) else { return true };
        let (mut planner, clock) =
            (leader.controller.planner().with_all_cells_dirty(), leader.local_time(self.now));
        let keys: Vec<ObjectKey> = planner.keys().cloned().collect();
        keys.iter().any(|key| {
            let plan = planner.reconcile(key, clock);
            plan.is_some_and(|it| {
                let waits =
                    matches!(it.waiting, Some(Why::RetryLater { .. } | Why::WaitingForOwnWrites { .. }));
                waits || !it.is_idle()
            })
        })
    }

    /// Returns the first difference between the cluster and its desired state, or `None` if there is none.
    pub fn first_difference(&self) -> Option<Violation> {
        let view = ClusterView::current(&self.server);
        let fail = |invariant, detail| Some(Violation { invariant, detail });
        let Some(leader) = self.replicas.iter().find(|it| it.is_leader) else {
            return fail("L10", "no replica leads".to_owned());
        };
        let clock = leader.local_time(self.now);
        for pod in view.pods.values().filter(|it| !it.bound && it.is_live()) {
            let node = pod.target.as_ref().and_then(|it| view.nodes.get(it));
            let fits = node.is_some_and(|node| {
                node.taints.iter().all(|it| {
                    !matches!(it.effect.as_str(), "NoSchedule" | "NoExecute")
                        || oracle::is_taint_tolerated(&pod.tolerations, it)
                })
            });
            if fits && self.scheduler_runs {
                return fail("L11", format!("{} fits its node and is not bound", pod.key));
            }
        }
        if self.garbage_collector_runs {
            let is_on_deleted_node =
                |it: &&Arc<facts::Pod>| it.target.as_ref().is_some_and(|it| !view.nodes.contains_key(it));
            if let Some(pod) = view.pods.values().filter(|it| it.bound).find(is_on_deleted_node) {
                return fail("L6", format!("{} is on a deleted node, and is not garbage collected", pod.key));
            }
        }
        let names = view.nodes.keys().chain(view.pods.values().filter_map(|it| it.target.as_ref()));
        let is_dead = |it: &&Text| self.kubelets.get(*it).is_none_or(|it| !it.alive);
        let check = ConvergenceCheck {
            view: &view,
            clock,
            dead_nodes: names.filter(is_dead).cloned().collect(),
            never_ready_pods: view
                .pods
                .values()
                .filter(|it| self.can_never_be_ready(it))
                .map(|it| it.key.clone())
                .collect(),
            rejects_new_pods: self.server.rejects_new_pods(),
        };
        for set in view.sets.values() {
            if set.deleting {
                if self.garbage_collector_runs && !self.is_blocked_by_finalizer(set) {
                    return fail("L6", format!("{} is being deleted, and is never removed", set.key));
                }
                continue;
            }
            if !matches!(set.selector, Selector::Requirements(_)) {
                continue;
            }
            if let Some(violation) = check.first_set_difference(set) {
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

    /// Whether a pod is not expected to become ready, because of its image or because its node shuts down.
    fn can_never_be_ready(&self, pod: &facts::Pod) -> bool {
        let image = self.pod_image(&pod.key);
        let node = pod.target.as_ref().and_then(|it| self.kubelets.get(it));
        self.image_behaviours.get(&image).copied().unwrap_or_default() != ImageBehaviour::BecomesReady
            || node.is_some_and(|it| it.shutting_down)
    }

    /// Checks L9: in a converged cluster, no replica of the DaemonSet controller writes anything, whether or not it is
    /// restarted. Also checks that the cluster is still converged afterwards.
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
                .filter(|it| matches!(it.actor, Actor::Controller(_)))
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
}
