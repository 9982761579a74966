//! Invariants of the simulation. They are checked against the authoritative state of the API server, never against a
//! controller's cache. The prefix of an invariant's ID names when the invariant is checked:
//!
//! - W: at every write of a controller, and when the controller makes the plan of its writes
//! - S: after every step of the simulation
//! - L: liveness, checked after faults have stopped
//!
//! Some checks also report an invariant with another prefix, if they are the first to notice its violation.
//! ARCHITECTURE.md lists all invariants by ID.

/// Checks of invariants with the prefix L.
pub mod liveness;
/// A second implementation of the DaemonSet rules, which the checks compare with the engine's.
pub mod oracle;
/// Checks of each new plan of the DaemonSet controller.
mod plan_checks;
/// Checks of the plans and writes of progressive rollouts.
mod rollout_checks;
/// A second implementation of the rules of progressive rollouts, which the checks compare with the engine's.
pub mod rollout_oracle;
/// Checks of reads, watches and writes in a cluster with two API servers.
mod server_checks;
/// Checks of commits, of delivered events and of the store.
mod state_checks;
/// Checks of each write of the DaemonSet controller.
mod write_checks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::controller::CallError;
use muster_engine::daemonset::execution::{PlannedCall, Response};
use muster_engine::daemonset::facts::{Kind, Set, WatchedObject};
use muster_engine::daemonset::plan::Plan;

use crate::faults::RequestFault;
use crate::server::{Actor, SimCommit, SimServer};

/// A violation of an invariant, with the details.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// ID of the invariant, such as `W5`.
    pub invariant: &'static str,
    pub detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}

/// A plan that a replica has decided on, and the state from which the replica made the plan.
#[derive(Clone, Debug)]
pub struct DecidedPlan {
    /// Index of the replica that made the plan.
    pub replica: usize,
    /// Process number of the replica when it made the plan.
    pub process_number: u64,
    /// The revision of each kind in the replica's cache when the plan was made.
    pub snapshot: BTreeMap<Kind, u64>,
    /// The time by the replica's clock when the plan was made.
    pub clock: Time,
    pub plan: Arc<Plan>,
    /// UID of the set, and whether the set is being deleted, as the controller last read them during the execution of
    /// the plan. `None` if the controller has not read the set.
    pub rechecked: Option<(Text, bool)>,
}

/// Maximum time from the expiry of the Lease until a replica acquires it. It is the retry period of two seconds plus
/// network latency.
const LEASE_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time within which the effects of a write by a replica that does not hold the Lease must be repaired.
const NON_LEADER_WRITE_REPAIR_TIMEOUT: Duration = Duration::from_secs(90);

/// Minimum delay between a reconcile of a set with a failed write and the next reconcile of this set.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);

/// The checks of all invariants, and the state that the checks need.
#[derive(Debug, Default)]
pub struct InvariantChecks {
    /// The first violation of the run.
    pub violation: Option<Violation>,
    /// Index and process number of the replica that last acquired or renewed the Lease.
    holder: Option<(usize, u64)>,
    /// Time until which the effects of a write by a replica without the Lease are excused. `None` if there was no such
    /// write.
    non_leader_write_excused_until: Option<Time>,
    /// Pairs of set UID and node for which two pods on the node are no violation. The reason is that a user or the
    /// garbage collector changed pods there, or that the set changed its strategy or adopted a pod.
    excused: BTreeSet<(Text, Text)>,
    /// Nodes whose available pod was deleted by a rollout, by set UID and node. An entry is removed when a pod is
    /// available on the node again, when the node is no longer eligible, or when a user or the garbage collector
    /// changes the pod. The value is the hash of the revision that was being rolled out.
    disrupted_nodes: BTreeMap<(Text, Text), Text>,
    /// The revisions of all pods that each node has ever had: UID of the set, name of the node, and revision hash.
    revisions_of_nodes: BTreeSet<(Text, Text, Text)>,
    /// The revisions of all pods that have ever been Ready: UID of the set and revision hash.
    ready_revisions: BTreeSet<(Text, Text)>,
    /// The highest revision whose commit a server has acknowledged.
    pub acknowledged_revision: u64,
    /// The highest revision that a watch has delivered since its last list, by client and kind.
    watch_positions: BTreeMap<(Actor, Kind), u64>,
    /// Writes that the server has acknowledged, by index of the replica and UID of the set.
    acknowledged: BTreeMap<(usize, Text), AcknowledgedWrites>,
    /// Deletes of finished pods, for the check of the backoff. The value is the time of the last delete, and the number
    /// of deletes before it.
    finished_pod_deletes: BTreeMap<FinishedPodBackoffKey, (Time, u32)>,
    /// Progress of plans in execution, by index of the replica and key of the set.
    progress: BTreeMap<(usize, ObjectKey), ExecutionProgress>,
    /// Time since which the Lease has been free although a replica could have acquired it. `None` if the Lease is held
    /// or no replica can acquire it.
    lease_free_since: Option<Time>,
    /// Whether a replica's clock was stepped. After a step, the Lease cannot prevent two leaders.
    clock_was_stepped: bool,
    /// Whether no faults are injected into this run.
    pub is_fault_free: bool,
    /// For each set whose last plan had a failed write: the time of this plan, and the generation of the set at that
    /// time. Conflicts, lost responses and status writes do not count as failed. The key has the index of the replica,
    /// its process number and the UID of the set.
    failed_at: BTreeMap<(usize, u64, Text), (Time, i64)>,
    /// Maximum number of creates in one plan, and of deletes in one plan.
    pub burst: usize,
    /// Number of committed writes of DaemonSet controllers.
    pub controller_writes: u64,
    /// Number of pods that controllers created and deleted, by node and by `create` or `delete`. A run with a fault is
    /// compared with the run without faults by these numbers.
    pub summary: BTreeMap<(Text, &'static str), u64>,
}

/// Key of the backoff with which one controller process deletes the finished pods of a set on a node: index and process
/// number of the controller replica, UID and generation of the set, name of the node.
type FinishedPodBackoffKey = (usize, u64, Text, i64, Text);

/// The writes of one replica for one set that the server has acknowledged.
#[derive(Debug, Default)]
struct AcknowledgedWrites {
    /// The highest revision that these writes committed, by kind.
    wrote: BTreeMap<Kind, u64>,
    /// The deleted pods, by UID.
    deleted: BTreeMap<Text, ObjectKey>,
}

/// The progress of one plan in execution. The checks of slow start and of status writes use it.
#[derive(Debug, Default)]
struct ExecutionProgress {
    /// Number of creates that were sent and have no response yet.
    in_flight: usize,
    /// Maximum number of creates in the current slow start batch.
    batch: usize,
    /// Number of creates of the current batch that were sent.
    sent_in_batch: usize,
    /// Whether a create of the plan has failed.
    failed: bool,
    /// Number of status writes that were sent.
    status_puts: usize,
    /// Whether a status write was rejected because of a conflict.
    status_refused: bool,
}

impl InvariantChecks {
    /// Records a violation, unless an earlier violation is recorded.
    pub fn report_violation(&mut self, invariant: &'static str, detail: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, detail: detail() });
        }
    }

    /// Whether the effects of a write by a replica that does not hold the Lease are excused now.
    fn is_non_leader_write_excused(&self, now: Time) -> bool {
        self.non_leader_write_excused_until.is_some_and(|until| now <= until)
    }

    /// Forgets the acknowledged writes and the plans of a replica whose process has crashed.
    pub fn drop_replica_records(&mut self, replica: usize) {
        self.acknowledged.retain(|(it, _), _| *it != replica);
        self.progress.retain(|(it, _), _| *it != replica);
    }

    /// Records that a replica's clock was stepped. After a step, the Lease cannot prevent two leaders, and the backoffs
    /// that started earlier cannot be checked.
    pub fn on_clock_step(&mut self, replica: usize) {
        self.clock_was_stepped = true;
        self.finished_pod_deletes.retain(|(it, ..), _| *it != replica);
    }

    /// Records that a replica holds the Lease. `by` is the index and the process number of the replica.
    pub fn on_lease_renewed(&mut self, by: (usize, u64)) {
        self.holder = Some(by);
    }

    /// Checks W12: a write reaches the server only while its sender holds the Lease, unless a clock was stepped.
    /// `leads` is whether the replica that sent the write holds the Lease. If it does not, the effects of the write are
    /// excused for [`NON_LEADER_WRITE_REPAIR_TIMEOUT`].
    pub fn check_leader(&mut self, replica: usize, leads: bool, now: Time) {
        if leads {
            return;
        }
        if !self.clock_was_stepped {
            let holder = self.holder;
            self.report_violation("W12", || {
                format!("replica {replica} writes while {holder:?} holds the Lease")
            });
        }
        self.non_leader_write_excused_until = Some(now + NON_LEADER_WRITE_REPAIR_TIMEOUT);
    }

    /// Whether a replica was the last one to acquire or renew the Lease, in any of its processes.
    pub fn holds_lease(&self, replica: usize) -> bool {
        self.holder.is_some_and(|(it, _)| it == replica)
    }

    /// Checks L10: an expired Lease is acquired within `LEASE_ACQUIRE_TIMEOUT`, if a replica is able to acquire it.
    pub fn check_lease(&mut self, is_free: bool, is_acquirable: bool, now: Time) {
        if !is_free || !is_acquirable {
            self.lease_free_since = None;
            return;
        }
        let since = *self.lease_free_since.get_or_insert(now);
        if since + LEASE_ACQUIRE_TIMEOUT < now {
            self.report_violation("L10", || {
                format!("the Lease has been free since {since:?}, and no replica acquires it")
            });
        }
    }

    /// Checks the invariants on a new commit. Records the nodes on which the commit allows a second pod, and the nodes
    /// that have recovered from the delete of their pod.
    pub fn on_commit(&mut self, server: &SimServer, commit: &SimCommit, now: Time) {
        self.clear_recovered_node(server, commit, now);
        self.excuse_foreign_changes(server, commit);
        self.check_base_of_write(server, commit);
        self.check_commit(server, commit, now);
        self.check_rollout_commit(server, commit);
    }

    /// Records that a replica starts to execute a plan. Checks W14: after a failed write, the set is not reconciled
    /// again immediately.
    pub fn on_execution_start(&mut self, decided: &DecidedPlan) {
        self.check_retry_delay(decided);
        let key = (decided.replica, decided.plan.set.key.clone());
        self.progress.insert(key, ExecutionProgress { batch: 1, ..ExecutionProgress::default() });
    }

    /// Records that a replica has executed a plan. Checks L2 in a run without faults: a status write that failed with a
    /// conflict was repeated.
    pub fn on_execution_end(&mut self, server: &SimServer, decided: &DecidedPlan) {
        let set = &decided.plan.set;
        let progress = self.progress.remove(&(decided.replica, set.key.clone()));
        // L2: a status write that failed with a conflict is repeated in the same reconcile.
        let lives = server.sets.get(&set.key).is_some_and(|it| it.uid == set.uid && !it.deleting);
        if self.is_fault_free && lives && progress.is_some_and(|it| it.status_refused && it.status_puts == 1)
        {
            self.report_violation("L2", || {
                format!("{}: a status write with a conflict was not repeated", set.key)
            });
        }
    }

    /// Checks a plan before its execution. `cached` are the sets in the replica's cache.
    pub fn check_new_plan<'a>(
        &mut self,
        server: &SimServer,
        cached: impl Iterator<Item = &'a Arc<Set>>,
        decided: &DecidedPlan,
    ) {
        self.check_expectations(server, decided.replica, &decided.plan, &decided.snapshot);
        self.check_cache(server, cached, &decided.snapshot);
        if !decided.plan.is_idle() {
            self.check_plan(server, &decided.plan, &decided.snapshot, decided.clock);
        }
    }

    /// Records the server's response to a request: acknowledged writes, and the time of a failed write.
    pub fn on_response(
        &mut self,
        decided: &DecidedPlan,
        call: &PlannedCall,
        outcome: &Response,
        fault: Option<RequestFault>,
    ) {
        let lost = matches!(
            fault,
            Some(RequestFault::LostApplied | RequestFault::CrashAfter | RequestFault::ServerApplied)
        );
        let failed = matches!(
            outcome,
            Response::Refused(
                CallError::Forbidden(_)
                    | CallError::Invalid(_)
                    | CallError::Server(_)
                    | CallError::TooManyRequests { .. }
            )
        );
        if failed && !matches!(call, PlannedCall::PutStatus { .. }) {
            let set = &decided.plan.set;
            let id = (decided.replica, decided.process_number, set.uid.clone());
            self.failed_at.insert(id, (decided.clock, set.generation));
        }
        if lost || matches!(outcome, Response::Refused(_)) {
            return;
        }
        let entry = self.acknowledged.entry((decided.replica, decided.plan.set.uid.clone())).or_default();
        match (call, outcome) {
            (PlannedCall::DeletePod { pod, .. } | PlannedCall::EvictPod { pod, .. }, Response::Deleted) => {
                entry.deleted.insert(pod.uid.clone(), pod.key.clone());
            }
            (_, Response::Wrote { resource_version, .. }) => {
                let kind = kind_of_call(call);
                let highest = entry.wrote.entry(kind).or_default();
                *highest = (*highest).max(*resource_version);
            }
            _ => {}
        }
    }

    /// Removes the node of a changed pod from [`InvariantChecks::disrupted_nodes`] in two cases. The first: the pod was
    /// available before this commit, so the node had recovered. The second: a user or the garbage collector made the
    /// commit. Commits of the DaemonSet controller are ignored.
    fn clear_recovered_node(&mut self, server: &SimServer, commit: &SimCommit, now: Time) {
        let Some(WatchedObject::Pod(before)) =
            server.object_at_revision(Kind::Pods, &commit.key, commit.revision - 1)
        else {
            return;
        };
        let (Some(owner), Some(node)) = (before.owner.clone(), before.target.clone()) else { return };
        if commit.kind != Kind::Pods || matches!(commit.actor, Actor::Controller(_)) {
            return;
        }
        let set = server.sets.values().find(|it| it.uid == owner);
        let was_up = set.is_some_and(|set| oracle::is_pod_available(set, before, now));
        if was_up || matches!(commit.actor, Actor::User | Actor::GarbageCollector) {
            self.disrupted_nodes.remove(&(owner, node));
        }
    }

    /// Checks W14: after a failed write, the next reconcile of the set is delayed by at least [`RETRY_DELAY_MIN`],
    /// unless the set's generation has changed or a clock was stepped.
    fn check_retry_delay(&mut self, decided: &DecidedPlan) {
        let set = &decided.plan.set;
        let id = (decided.replica, decided.process_number, set.uid.clone());
        let Some((at, generation)) = self.failed_at.remove(&id) else { return };
        let waited = decided.clock.since(at);
        if waited < RETRY_DELAY_MIN && generation == set.generation && !self.clock_was_stepped {
            self.report_violation("W14", || format!("{} is retried after {waited:?}", set.key));
        }
    }

    /// Allows two pods of a set on a node after the set has adopted a pod there.
    fn excuse_adoption(&mut self, server: &SimServer, commit: &SimCommit) {
        let before = server.object_at_revision(Kind::Pods, &commit.key, commit.revision.saturating_sub(1));
        let (Some(WatchedObject::Pod(before)), Some(WatchedObject::Pod(now))) = (before, &commit.fact) else {
            return;
        };
        if let (None, Some(owner), Some(node)) = (&before.owner, &now.owner, &now.target) {
            self.excused.insert((owner.clone(), node.clone()));
        }
    }

    /// Allows two pods of a set on a node after certain commits. If a user or the garbage collector changed a pod, all
    /// sets may have two pods on its node. If a user or the garbage collector changed the update strategy of a set,
    /// this set may have two pods on every node. A commit of the DaemonSet controller is counted, and excused as
    /// [`InvariantChecks::excuse_adoption`] describes.
    fn excuse_foreign_changes(&mut self, server: &SimServer, commit: &SimCommit) {
        if let Actor::Controller(_) = commit.actor {
            self.controller_writes += 1;
            self.excuse_adoption(server, commit);
            return;
        }
        if !matches!(commit.actor, Actor::User | Actor::GarbageCollector) {
            return;
        }
        match commit.kind {
            Kind::Pods => {
                let target = server.pods.get(&commit.key).and_then(|it| it.target.clone());
                let Some(node) = target else { return };
                for set in server.sets.values() {
                    self.excused.insert((set.uid.clone(), node.clone()));
                }
            }
            Kind::Sets => {
                let Some(set) = server.sets.get(&commit.key) else { return };
                let before =
                    server.object_at_revision(Kind::Sets, &commit.key, commit.revision.saturating_sub(1));
                let same = match before {
                    Some(WatchedObject::Set(it)) => it.uid != set.uid || it.rollout == set.rollout,
                    _ => true,
                };
                if same {
                    return;
                }
                for node in server.nodes.keys() {
                    self.excused.insert((set.uid.clone(), node.clone()));
                }
            }
            _ => {}
        }
    }
}

/// Returns the kind of the object that a call reads or writes.
fn kind_of_call(call: &PlannedCall) -> Kind {
    use muster_engine::daemonset::plan::Claim;
    match call {
        PlannedCall::WriteRevision(_)
        | PlannedCall::DeleteRevision { .. }
        | PlannedCall::ReadRevision { .. } => Kind::Revisions,
        PlannedCall::Claim(Claim::AdoptRevision(_) | Claim::ReleaseRevision(_)) => Kind::Revisions,
        PlannedCall::PutStatus { .. } | PlannedCall::ApplyConditions { .. } | PlannedCall::ReadSet => {
            Kind::Sets
        }
        PlannedCall::WriteRollout(_) => Kind::Rollouts,
        _ => Kind::Pods,
    }
}

/// Whether the request failed: it was rejected, or it has no response.
fn has_failed(outcome: &Response) -> bool {
    matches!(outcome, Response::Refused(_))
}

/// Whether the request was rejected because the namespace is terminating.
fn is_namespace_terminating(refusal: &CallError) -> bool {
    matches!(refusal, CallError::NamespaceTerminating)
}

/// Formats the namespace and name of a set for the text of a violation.
fn set_name_text(set: &Set) -> String {
    set.key.to_string()
}
