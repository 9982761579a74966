//! Checks of each write of the DaemonSet controller, mostly of invariants with the prefix W. A write is checked against
//! the server's state when the write arrives.

use std::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{
    LABEL_CONTROLLER_REVISION_HASH, LABEL_POD_TEMPLATE_GENERATION, TAINT_NODE_DISK_PRESSURE,
    TAINT_NODE_MEMORY_PRESSURE, TAINT_NODE_NETWORK_UNAVAILABLE, TAINT_NODE_NOT_READY,
    TAINT_NODE_PID_PRESSURE, TAINT_NODE_UNREACHABLE, TAINT_NODE_UNSCHEDULABLE,
};
use muster_engine::controller::CallError;
use muster_engine::daemonset::execution::{PlannedCall, Response};
use muster_engine::daemonset::facts::{self, Kind, Set, UpdateStrategy, WatchedObject};
use muster_engine::daemonset::manifest;
use muster_engine::daemonset::plan::RevisionWrite;
use muster_engine::daemonset::why::Why;
use serde_json::{Value, json};

use super::oracle::{self, ClusterView};
use super::{DecidedPlan, InvariantChecks, has_failed, is_namespace_terminating};
use crate::server::{Actor, SimServer};

/// The permissions that the ClusterRole of the DaemonSet controller grants. Each entry has the verb, the kind and, if
/// there is one, the subresource.
const CONTROLLER_PERMISSIONS: &[(&str, Kind, Option<&str>)] = &[
    ("get", Kind::Sets, None),
    ("update", Kind::Sets, Some("status")),
    ("list", Kind::Pods, None),
    ("create", Kind::Pods, None),
    ("delete", Kind::Pods, None),
    ("patch", Kind::Pods, None),
    ("get", Kind::Revisions, None),
    ("create", Kind::Revisions, None),
    ("delete", Kind::Revisions, None),
    ("patch", Kind::Revisions, None),
    ("create", Kind::Rollouts, None),
    ("update", Kind::Rollouts, Some("status")),
];

impl InvariantChecks {
    /// Checks a request of the DaemonSet controller before the server applies it. `body` is the request body.
    pub fn check_request(
        &mut self,
        server: &SimServer,
        decided: &DecidedPlan,
        set: &Set,
        call: &PlannedCall,
        body: &Value,
        now: Time,
    ) {
        self.check_permission(set, call);
        let leads = self.holder == Some((decided.replica, decided.process_number));
        self.check_leader(decided.replica, leads, now);
        match call {
            PlannedCall::CreatePod { node, hash, .. } => {
                self.check_no_second_pod(server, decided, set, node, hash, now);
                self.check_slow_start(decided, set);
                if *hash == decided.plan.hash {
                    self.check_new_pod(set, node, body);
                    self.check_new_pod_hash(server, decided, set, body);
                } else {
                    self.check_new_stable_pod(server, decided, set, node, body);
                }
            }
            PlannedCall::DeletePod { pod, why } => {
                if let Why::Failed { .. } | Why::Succeeded = why {
                    self.check_backoff(server, decided, set, pod);
                }
                if body["preconditions"]["uid"] != *pod.uid {
                    self.report_violation("W4", || format!("{} is deleted without its UID", pod.key));
                }
            }
            PlannedCall::EvictPod { pod, .. }
                if body["deleteOptions"]["preconditions"]["uid"] != *pod.uid =>
            {
                self.report_violation("W4", || format!("{} is evicted without its UID", pod.key));
            }
            PlannedCall::Claim(claim) if !claim.is_adoption() => self.check_release(set, body),
            PlannedCall::Claim(claim) => {
                if body["metadata"]["uid"].is_null() || body["metadata"]["resourceVersion"].is_null() {
                    self.report_violation("W9", || format!("{claim:?} without uid and resourceVersion"));
                }
                let alive =
                    decided.rechecked.as_ref().is_some_and(|(uid, deleting)| *uid == set.uid && !deleting);
                if !alive {
                    self.report_violation("W9", || format!("{claim:?} without reading the set first"));
                }
            }
            PlannedCall::PutStatus { of, .. } => self.check_status_write(server, decided, of, body),
            _ => {}
        }
    }

    /// Checks a request of the DaemonSet controller after the server has applied or rejected it. `before` is the
    /// revision of the server before the request.
    #[allow(clippy::too_many_arguments)]
    pub fn check_request_outcome(
        &mut self,
        server: &SimServer,
        decided: &DecidedPlan,
        set: &Set,
        call: &PlannedCall,
        outcome: &Response,
        before: u64,
        now: Time,
    ) {
        let key = (decided.replica, decided.plan.set.key.clone());
        if let (PlannedCall::CreatePod { node, .. }, Some(progress)) = (call, self.progress.get_mut(&key)) {
            progress.in_flight = progress.in_flight.saturating_sub(1);
            progress.failed |= has_failed(outcome);
            if !has_failed(outcome) {
                *self.summary.entry((node.clone(), "create")).or_default() += 1;
            }
        }
        if let (PlannedCall::DeletePod { pod, .. } | PlannedCall::EvictPod { pod, .. }, false) =
            (call, has_failed(outcome))
        {
            let node = pod.target.clone().unwrap_or_default();
            *self.summary.entry((node, "delete")).or_default() += 1;
            self.check_budget(server, decided, set, pod, now);
        }
        if let (PlannedCall::PutStatus { .. }, Response::Refused(CallError::Conflict)) = (call, outcome)
            && let Some(progress) = self.progress.get_mut(&key)
        {
            progress.status_refused = true;
        }
        if let Response::Refused(refusal) = outcome
            && is_namespace_terminating(refusal)
        {
            return;
        }
        let changed = before < server.revision();
        if !changed
            && matches!(
                call,
                PlannedCall::Claim(_) | PlannedCall::RelabelPod { .. } | PlannedCall::WriteRevision(_)
            )
            && !has_failed(outcome)
        {
            self.report_violation("L9", || format!("{call:?} changed nothing"));
        }
        let collided = matches!(outcome, Response::Refused(CallError::AlreadyExists));
        if let (PlannedCall::WriteRevision(RevisionWrite::Create { name, .. }), false, false) =
            (call, has_failed(outcome), collided)
        {
            let expected = name.starts_with(&format!("{}-", set.key.name));
            let named = server.revisions.values().any(|it| {
                it.key.name == *name && it.hash_label().is_some_and(|hash| name.ends_with(hash.as_ref()))
            });
            if !expected || !named {
                self.report_violation("W15", || format!("revision {name} is not named after set and hash"));
            }
        }
    }

    /// Checks W10: the release of a pod or revision removes only the set's own owner reference.
    fn check_release(&mut self, set: &Set, body: &Value) {
        let meta = &body["metadata"];
        let only = json!([{"$patch": "delete", "uid": set.uid.as_ref()}]);
        let known = ["uid", "resourceVersion", "ownerReferences"];
        let more = meta.as_object().is_none_or(|it| it.keys().any(|key| !known.contains(&key.as_str())));
        let elsewhere = body.as_object().is_none_or(|it| it.keys().any(|key| key != "metadata"));
        if meta["ownerReferences"] != only || meta["uid"].is_null() || more || elsewhere {
            self.report_violation("W10", || {
                format!("a release that changes more than the owner reference: {body}")
            });
        }
    }

    /// Checks W17: the ClusterRole of the DaemonSet controller allows the request.
    fn check_permission(&mut self, set: &Set, call: &PlannedCall) {
        let (verb, target) = (manifest::call_verb(call), manifest::call_target(set, call));
        let asked = (verb.as_str(), target.kind, target.subresource);
        if !CONTROLLER_PERMISSIONS.contains(&asked) {
            self.report_violation("W17", || format!("{asked:?} is not in the role"));
        }
    }

    /// Checks W2: no pod is created on a node that already has a pod of the set, even after crashes and with stale
    /// caches. Exception: with surge, one old pod may remain. Pods that a user or the garbage collector changed after
    /// the plan was made are ignored.
    fn check_no_second_pod(
        &mut self,
        server: &SimServer,
        decided: &DecidedPlan,
        set: &Set,
        node: &str,
        hash: &Text,
        now: Time,
    ) {
        if self.is_non_leader_write_excused(now) {
            return;
        }
        let Some(current) = server.sets.get(&set.key).filter(|it| it.uid == set.uid) else { return };
        let view = ClusterView::current(server);
        let pods_at = decided.snapshot.get(&Kind::Pods).copied().unwrap_or(0);
        let theirs = |key: &muster_api::object_key::ObjectKey| {
            let mut later =
                server.log.iter().rev().take_while(|it| pods_at < it.revision).filter(|it| it.key == *key);
            later.any(|it| matches!(it.actor, Actor::User | Actor::GarbageCollector))
        };
        let here: Vec<_> = view
            .pods_on(current, node)
            .filter(|it| !oracle::is_deleted_and_finished(it) && !theirs(&it.key))
            .cloned()
            .collect();
        let both_surge = matches!(set.rollout, UpdateStrategy::Surge(_));
        let has_too_many_pods = if both_surge {
            let live: Vec<_> = here.iter().filter(|it| oracle::is_active_pod(it)).collect();
            1 < live.len() || live.iter().any(|it| it.hash_label() == Some(hash))
        } else {
            !here.is_empty()
        };
        if has_too_many_pods {
            let names: Vec<_> = here.iter().map(|it| it.key.name.to_string()).collect();
            self.report_violation("W2", || {
                format!("a pod of {} is created on {node}, which already has {names:?}", set.key)
            });
        }
    }

    /// Checks W5 against the server's state, after a pod was deleted: a rollout without surge may disrupt as many nodes
    /// as the rollout budget allows, and one node in any case. A node is disrupted when the rollout has deleted its
    /// outdated available pod and no other pod of the node is up.
    ///
    /// Rule: a node is no longer disrupted when it is no longer eligible, or when one of its pods is up. An up-to-date
    /// pod is up if it is available, an outdated pod if it is Ready. A pod that was up in the replica's cache also ends
    /// the disruption, because it may have failed since. W5 is not checked if the DaemonSet has changed since the plan,
    /// if the budget may have become smaller, or while writes of a replica that does not hold the Lease are excused.
    fn check_budget(
        &mut self,
        server: &SimServer,
        decided: &DecidedPlan,
        set: &Set,
        pod: &facts::Pod,
        now: Time,
    ) {
        let (clock, hash) = (decided.clock, &decided.plan.hash);
        let Some(current) = server.sets.get(&set.key).filter(|it| it.uid == set.uid).cloned() else { return };
        let view = ClusterView::current(server);
        let assignment = view.assignment(&current);
        let assigned = |node: Option<&Text>| {
            assignment.set_for(node.and_then(|it| view.nodes.get(it)).map(|it| it.as_ref()))
        };
        let seen = ClusterView::at_revisions(server, &decided.snapshot);
        let is_up = |pod: &facts::Pod| {
            let hashes = view.current_hashes(assigned(pod.target.as_ref()));
            let is_new = pod.hash_label().is_some_and(|it| hashes.contains(it));
            oracle::is_active_pod(pod)
                && if is_new {
                    oracle::is_pod_available(&current, pod, clock)
                } else {
                    oracle::is_pod_ready(pod)
                }
        };
        let eligible: std::collections::BTreeSet<_> =
            view.eligible_nodes(&current).map(|it| it.name.clone()).collect();
        self.disrupted_nodes.retain(|(uid, node), _| {
            *uid != current.uid
                || (eligible.contains(node)
                    && ![&view, &seen].into_iter().any(|it| it.pods_on(&current, node).any(|it| is_up(it))))
        });
        let Some(node) = pod.target.clone().filter(|it| eligible.contains(it)) else { return };
        let was_up = oracle::is_pod_available(&current, pod, clock)
            && !view.has_current_template(assigned(Some(&node)), pod);
        let drained = matches!(set.rollout, UpdateStrategy::Drain(_)) && set.generation == current.generation;
        let still_up = view.pods_on(&current, &node).any(|it| is_up(it));
        if was_up && drained && !still_up {
            self.disrupted_nodes.insert((current.uid.clone(), node), hash.clone());
        }
        if !drained {
            return;
        }
        let disrupted =
            self.disrupted_nodes.iter().filter(|((uid, _), of)| *uid == current.uid && *of == hash);
        let disrupted = disrupted.count();
        let desired = eligible.len();
        let allowed = oracle::rollout_budget(set, desired).max(1);
        if allowed < disrupted
            && !self.is_non_leader_write_excused(now)
            && !self.budget_may_have_shrunk(server, set)
        {
            self.report_violation("W5", || {
                format!(
                    "the rollout of {} has made {disrupted} nodes unavailable, {allowed} are allowed",
                    set.key
                )
            });
        }
    }

    /// Whether the rollout budget may have become smaller since the rollout deleted pods. There are three such cases:
    /// the budget is a percentage, the strategy was changed, or a user changed the policy from which a set with
    /// `OnDelete` gets its budget.
    fn budget_may_have_shrunk(&self, server: &SimServer, set: &Set) -> bool {
        let edited = server.log.iter().any(|it| {
            it.kind == Kind::Sets && it.key == set.key && it.actor == Actor::User && 1 < set.generation
        });
        let percent = matches!(
            set.rollout,
            UpdateStrategy::Drain(muster_engine::daemonset::facts::IntOrPercent::Percent(_))
        );
        let resized = edited && count_strategies(server, set) > 1;
        let is_on_delete = server.sets.get(&set.key).is_some_and(|it| it.rollout == UpdateStrategy::OnDelete);
        let policy_edits = server.log.iter().filter(|it| matches!(it.fact, Some(WatchedObject::Policy(_))));
        percent || resized || (is_on_delete && 1 < policy_edits.count())
    }

    /// Checks W3: the request body of a new pod has the labels, owner, affinity, tolerations and spec that follow from
    /// the template.
    fn check_new_pod(&mut self, set: &Set, node: &str, body: &Value) {
        let template: Value = serde_json::from_str(&set.template.raw).unwrap_or_default();
        let meta = &body["metadata"];
        let mut labels = template["metadata"]["labels"].clone();
        labels[LABEL_CONTROLLER_REVISION_HASH] = meta["labels"][LABEL_CONTROLLER_REVISION_HASH].clone();
        if let Some(generation) = set.template_generation {
            labels[LABEL_POD_TEMPLATE_GENERATION] = generation.to_string().into();
        }
        let owner = json!([{
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": set.key.name.as_ref(), "uid": set.uid.as_ref(),
            "controller": true, "blockOwnerDeletion": true,
        }]);
        let affinity =
            &body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let pinned = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
        let tolerations = body["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        let tolerates = |key: &str, effect: &str| {
            tolerations
                .iter()
                .any(|it| it["key"] == key && it["effect"] == effect && it["operator"] == "Exists")
        };
        let automatic = [
            (TAINT_NODE_NOT_READY, "NoExecute"),
            (TAINT_NODE_UNREACHABLE, "NoExecute"),
            (TAINT_NODE_DISK_PRESSURE, "NoSchedule"),
            (TAINT_NODE_MEMORY_PRESSURE, "NoSchedule"),
            (TAINT_NODE_PID_PRESSURE, "NoSchedule"),
            (TAINT_NODE_UNSCHEDULABLE, "NoSchedule"),
        ];
        let missing = automatic.iter().find(|(key, effect)| !tolerates(key, effect));
        let on_host = template["spec"]["hostNetwork"] == true;
        let network_is_right = !on_host || tolerates(TAINT_NODE_NETWORK_UNAVAILABLE, "NoSchedule");
        let preferred = |spec: &Value| {
            let mut affinity = spec["affinity"].clone();
            if let Some(it) = affinity["nodeAffinity"].as_object_mut() {
                it.remove("requiredDuringSchedulingIgnoredDuringExecution");
            }
            affinity["nodeAffinity"] =
                affinity["nodeAffinity"].as_object().cloned().unwrap_or_default().into();
            affinity
        };
        let rest = |spec: &Value| {
            let mut spec = spec.clone();
            if let Some(it) = spec.as_object_mut() {
                it.remove("tolerations");
                it.remove("affinity");
            }
            spec
        };
        let wrong = if meta["labels"] != labels {
            Some("labels")
        } else if meta["ownerReferences"] != owner {
            Some("owner")
        } else if *affinity != pinned {
            Some("affinity")
        } else if missing.is_some() || !network_is_right {
            Some("tolerations")
        } else if preferred(&body["spec"]) != preferred(&template["spec"]) {
            Some("preferred affinity of the template")
        } else if rest(&body["spec"]) != rest(&template["spec"]) {
            Some("other fields of the template")
        } else if meta["namespace"] != *set.key.namespace
            || meta["generateName"] != format!("{}-", set.key.name)
        {
            Some("name")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.report_violation("W3", || format!("a new pod for {node} has wrong {wrong}: {body}"));
        }
    }

    /// Checks a new pod that is not of the current revision. S5: the set has a stable revision, and the pod has the
    /// hash label of a revision whose template is equivalent to that of the stable revision. W3: the pod has the
    /// template of the stable revision.
    fn check_new_stable_pod(
        &mut self,
        server: &SimServer,
        decided: &DecidedPlan,
        set: &Set,
        node: &str,
        body: &Value,
    ) {
        let view = ClusterView::at_revisions(server, &decided.snapshot);
        let assignment = view.assignment(set);
        let Some(stable) = assignment.stable_set() else {
            return self.report_violation("S5", || {
                format!("a pod of neither the current nor the stable revision is created on {node}")
            });
        };
        self.check_new_pod(stable, node, body);
        self.check_new_pod_hash(server, decided, stable, body);
    }

    /// Checks S5: the revision hash label of a new pod is the hash of a revision that has the template of the pod.
    fn check_new_pod_hash(&mut self, server: &SimServer, decided: &DecidedPlan, set: &Set, body: &Value) {
        let hash = body["metadata"]["labels"][LABEL_CONTROLLER_REVISION_HASH].as_str().unwrap_or_default();
        let view = ClusterView::at_revisions(server, &decided.snapshot);
        let found = view.revisions_of(set).any(|it| {
            it.hash_label().map(|it| it.as_ref()) == Some(hash) && oracle::is_equivalent_revision(set, it)
        });
        if !found {
            self.report_violation("S5", || {
                format!(
                    "the hash {hash} of a new pod of {} is not that of a revision of its template",
                    set.key
                )
            });
        }
    }

    /// Checks a status write. `of` is the set from which the status was computed, and `body` is the request body.
    /// - W11: the write has the UID and resourceVersion of `of`, a valid `observedGeneration`, and the fields of other
    ///   clients.
    /// - W15: the collision count increases by at most one, and only after a collision.
    /// - S3: the counts are consistent.
    /// - W14: one reconcile writes the status at most twice.
    fn check_status_write(&mut self, server: &SimServer, decided: &DecidedPlan, of: &Set, body: &Value) {
        let guards = &body["metadata"];
        if guards["uid"] != *of.uid
            || guards["resourceVersion"].as_str() != Some(&of.resource_version.to_string())
        {
            self.report_violation("W11", || {
                format!("the status of {} is written without uid and resourceVersion", of.key)
            });
        }
        let status = &body["status"];
        let number = |name: &str| status[name].as_i64().unwrap_or(0);
        let observed = number("observedGeneration");
        if observed < of.status.observed_generation || of.generation < observed {
            self.report_violation("W11", || {
                format!(
                    "observedGeneration {observed}, was {}, generation {}",
                    of.status.observed_generation, of.generation
                )
            });
        }
        let raised = of.status.observed_generation < observed;
        if raised && (observed != decided.plan.set.generation || decided.plan.hash.is_empty()) {
            self.report_violation("W11", || {
                format!("observedGeneration {observed} was not fully reconciled")
            });
        }
        let collisions = status["collisionCount"].as_i64().unwrap_or(0);
        let before = i64::from(of.status.collisions.unwrap_or(0));
        if collisions < before || before + 1 < collisions {
            self.report_violation("W15", || format!("collisionCount goes from {before} to {collisions}"));
        }
        if before < collisions {
            self.check_collision(server, decided, of);
        }
        let there = server.object(Kind::Sets, &of.key).map(|it| it["status"].clone()).unwrap_or_default();
        let foreign =
            there["conditions"].as_array().into_iter().flatten().filter(|it| it["type"] == "StatusUpdate");
        let kept = |it: &Value| status["conditions"].as_array().into_iter().flatten().any(|ours| ours == it);
        let same_version = server.resource_version(Kind::Sets, &of.key) == of.resource_version;
        if same_version
            && (!foreign.clone().all(kept) || there["ofANewerCluster"] != status["ofANewerCluster"])
        {
            self.report_violation("W11", || format!("status fields of another client are lost: {status}"));
        }
        let (desired, current) = (number("desiredNumberScheduled"), number("currentNumberScheduled"));
        let (ready, available) = (number("numberReady"), number("numberAvailable"));
        let (updated, unavailable) = (number("updatedNumberScheduled"), number("numberUnavailable"));
        let ordered = 0 <= available && available <= ready && ready <= current && current <= desired;
        if !ordered
            || current < updated
            || unavailable != desired - available
            || number("numberMisscheduled") < 0
        {
            self.report_violation("S3", || format!("the counts are inconsistent: {status}"));
        }
        let key = (decided.replica, decided.plan.set.key.clone());
        if let Some(progress) = self.progress.get_mut(&key) {
            progress.status_puts += 1;
            if 2 < progress.status_puts {
                self.report_violation("W14", || {
                    format!("a third status write of {} in one reconcile", of.key)
                });
            }
        }
    }

    /// Checks W15: the collision count of a set increases at most once for a plan, and only if the plan creates a
    /// revision. If the set already has a revision with the name of the new one and the same template, there is no
    /// collision, and the count must not increase.
    fn check_collision(&mut self, server: &SimServer, decided: &DecidedPlan, of: &Set) {
        let name = decided.plan.steps.iter().find_map(|it| match it {
            RevisionWrite::Create { name, .. } => Some(name.clone()),
            _ => None,
        });
        let Some(name) = name else {
            return self
                .report_violation("W15", || format!("{}: a collision without a new revision", of.key));
        };
        if of.status.collisions != decided.plan.set.status.collisions {
            self.report_violation("W15", || format!("{}: the collision count was already increased", of.key));
        }
        let existing =
            server.revisions.values().find(|it| it.key.name == name && it.key.namespace == of.key.namespace);
        let ours = existing.is_some_and(|it| {
            it.owner.as_ref() == Some(&of.uid) && it.data == decided.plan.set.template.data
        });
        if ours {
            self.report_violation("W15", || {
                format!("{name} is no collision: it is the revision of the template")
            });
        }
    }

    /// Checks W14 (slow start) for a create that is sent, and counts the create. Creates are sent in batches of 1, 2, 4
    /// and so on, and no batch is sent after a batch with a failure.
    fn check_slow_start(&mut self, decided: &DecidedPlan, set: &Set) {
        let key = (decided.replica, set.key.clone());
        let Some(progress) = self.progress.get_mut(&key) else { return };
        if progress.in_flight == 0 && progress.sent_in_batch == progress.batch {
            // The previous batch is complete.
            let failed = progress.failed;
            progress.batch *= 2;
            progress.sent_in_batch = 0;
            if failed {
                return self.report_violation("W14", || {
                    format!("{}: creates continue after a failed batch", set.key)
                });
            }
        }
        progress.in_flight += 1;
        progress.sent_in_batch += 1;
        if progress.batch < progress.sent_in_batch {
            let batch = progress.batch;
            self.report_violation("W14", || format!("{}: more than {batch} creates in one batch", set.key));
        }
    }

    /// Checks W14 (failed-pod backoff) for a delete of a finished pod, and records the delete. One process deletes
    /// successive finished pods on a node at intervals of at least 1 s, 2 s, 4 s and so on up to 512 s. An interval of
    /// more than 30 min, or a change of the set, resets the backoff.
    fn check_backoff(&mut self, server: &SimServer, decided: &DecidedPlan, set: &Set, pod: &facts::Pod) {
        let Some(node) = pod.target.clone() else { return };
        if server
            .pods
            .get(&pod.key)
            .is_none_or(|it| it.uid != pod.uid || it.resource_version != pod.resource_version)
        {
            return;
        }
        let id = (decided.replica, decided.process_number, set.uid.clone(), set.generation, node.clone());
        let now = decided.clock;
        match self.finished_pod_deletes.get(&id).copied() {
            Some((last, doublings)) if now.since(last) <= Duration::from_secs(1800) && last <= now => {
                let wait = Duration::from_secs(1 << doublings.min(9)).min(Duration::from_secs(900));
                // The backoff starts with the response, slightly after the delete.
                if now.since(last) + Duration::from_millis(1) < wait {
                    self.report_violation("W14", || {
                        format!("a failed pod on {node} is deleted after {:?}, not {wait:?}", now.since(last))
                    });
                }
                self.finished_pod_deletes.insert(id, (now, doublings + 1));
            }
            _ => drop(self.finished_pod_deletes.insert(id, (now, 0))),
        }
    }
}

/// Returns the number of distinct update strategies that a set has had so far.
fn count_strategies(server: &SimServer, set: &Set) -> usize {
    let versions = server.versions_between(Kind::Sets, &set.key, 0, u64::MAX);
    let mut seen: Vec<UpdateStrategy> = Vec::new();
    for fact in versions.into_iter().flatten() {
        if let WatchedObject::Set(it) = fact
            && it.uid == set.uid
            && !seen.contains(&it.rollout)
        {
            seen.push(it.rollout);
        }
    }
    seen.len()
}
