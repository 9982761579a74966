//! Executes a plan call by call. The plan and the responses so far determine the next call.
//!
//! This module decides about slow start, about the handling of each error, and about reads before writes, so that the
//! simulator tests them like every other rule. [`Execution::next`] returns the calls; [`Execution::apply_response`]
//! applies the responses.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::interner::Interner;
use muster_api::json;
use muster_api::meta_v1::PartialObjectMetadata;
use muster_api::object_key::ObjectKey;
use muster_api::text::{self, Text};
use muster_api::time::Time;
use serde::Deserialize;

use crate::controller::{CallError, KubeEvent, Outcome, WrittenObject};
use crate::daemonset::expectations::Expectations;
use crate::daemonset::facts::{self, Condition, Kind, Pod, Revision, Set, Status};
use crate::daemonset::plan::{Claim, Plan, PodSource, RevisionWrite, RolloutWrite};
use crate::daemonset::why::Why;

/// One call to the API server. The module `manifest` builds its request body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlannedCall {
    /// Reads the DaemonSet from the API server, not from the controller's cache.
    ReadSet,
    /// Lists the pods that match the DaemonSet's selector, from the API server, not from the controller's cache.
    ListPods,
    /// Reads a ControllerRevision by name from the API server, not from the controller's cache.
    ReadRevision { name: Text },
    /// Adopts or releases a pod or a ControllerRevision.
    Claim(Claim),
    /// Creates, renumbers or labels a ControllerRevision, or stores or removes the verdict of a progressive rollout
    /// about the ControllerRevision.
    WriteRevision(RevisionWrite),
    /// Sets the revision hash label of a pod.
    RelabelPod { pod: Arc<Pod>, hash: Text },
    /// Deletes a pod for the reason `why`.
    DeletePod { pod: Arc<Pod>, why: Why },
    /// Evicts a pod for the reason `why`. The API server deletes the pod if the PodDisruptionBudgets allow the
    /// eviction.
    EvictPod { pod: Arc<Pod>, why: Why },
    /// Creates a pod on a node, with the revision hash label `hash`, for the reason `why`. `source` is the older
    /// revision that the pod is created from, `None` if the pod is created from the template of the DaemonSet.
    CreatePod { node: Text, hash: Text, why: Why, source: Option<Arc<PodSource>> },
    /// Creates the DaemonRollout of the DaemonSet, or writes its status.
    WriteRollout(RolloutWrite),
    /// Deletes a ControllerRevision that is no longer needed.
    DeleteRevision { revision: Arc<Revision> },
    /// Writes the status of the DaemonSet. The write succeeds only if `of` is still the stored version of the
    /// DaemonSet.
    PutStatus { of: Arc<Set>, status: Status },
    /// Writes only the conditions of the DaemonSet, by server-side apply. Used in assist mode (`--assist`), where
    /// upstream's DaemonSet controller writes the rest of the status. Conditions that were applied before and are not
    /// listed are removed.
    ApplyConditions { conditions: Vec<Condition> },
}

/// The response of the API server to a call, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// A create, patch or status write succeeded. Holds the name of the object, and its resource version after the
    /// write.
    Wrote { name: Text, resource_version: u64 },
    /// The API server accepted the delete or the eviction.
    Deleted,
    /// The DaemonSet was read. Holds its newest version.
    Set(Arc<Set>),
    /// The ControllerRevision that was read. `None` if an object of a kind other than DaemonSet controls it.
    Revision(Option<Arc<Revision>>),
    /// The pods that were listed: UID, resource version, and whether the pod is being deleted.
    Pods(Vec<(Text, u64, bool)>),
    /// The call failed. Holds the error.
    Refused(CallError),
}

impl Response {
    /// Decodes the response to a call. A response that cannot be decoded becomes the error [`CallError::NoAnswer`],
    /// like a lost response.
    pub fn decode(call: &PlannedCall, outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done(body) => Self::parse(call, &body).unwrap_or(Self::Refused(CallError::NoAnswer)),
            Outcome::Refused(error) => Self::Refused(error),
        }
    }

    /// Decodes the body of a successful response. `None` if the body cannot be decoded.
    fn parse(call: &PlannedCall, body: &[u8]) -> Option<Self> {
        /// A list of API objects.
        #[derive(Deserialize)]
        struct List<'a> {
            #[serde(borrow)]
            items: Vec<PartialObjectMetadata<'a>>,
        }
        let shared = &mut Interner::default();
        Some(match call {
            PlannedCall::ReadSet => Self::Set(Arc::new(facts::decode_set(body, shared).ok()?)),
            PlannedCall::ReadRevision { .. } => {
                Self::Revision(facts::decode_revision(body, shared).ok()?.map(Arc::new))
            }
            PlannedCall::ListPods => {
                let list: List<'_> = json::from_slice(body).ok()?;
                let pods = list.items.iter().map(|it| &it.metadata);
                Self::Pods(pods.map(|it| (it.uid(), it.resource_version(), it.is_deleting())).collect())
            }
            PlannedCall::DeletePod { .. }
            | PlannedCall::EvictPod { .. }
            | PlannedCall::DeleteRevision { .. } => Self::Deleted,
            PlannedCall::Claim(_)
            | PlannedCall::WriteRevision(_)
            | PlannedCall::RelabelPod { .. }
            | PlannedCall::CreatePod { .. }
            | PlannedCall::WriteRollout(_)
            | PlannedCall::PutStatus { .. }
            | PlannedCall::ApplyConditions { .. } => {
                let WrittenObject { name, resource_version } = WrittenObject::decode(body)?;
                Self::Wrote { name, resource_version: resource_version.unwrap_or_default() }
            }
        })
    }
}

/// Whether the most recent pod creates succeeded and, if not, why. The DaemonSet's conditions report the reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum CreateResult {
    /// No create was attempted yet, or no response has shown whether the API server accepts the pods.
    #[default]
    Unknown,
    /// A pod was created, and no create was refused or failed with a server error.
    Succeeded,
    /// The API server refuses to create the pods of the DaemonSet. Holds the reason as a message.
    Refused(Text),
    /// The API server returned a server error (5xx) for a pod create, which may be temporary. Holds the error message.
    Failed(Text),
    /// The API server refuses the pods because the namespace is being deleted. No later create can succeed.
    NamespaceTerminating,
}

impl CreateResult {
    /// Returns the create result for an error. It is `Unknown` if the error does not show whether the API server
    /// accepts the pod.
    ///
    /// Rule: a create that admission refuses (for example because of a missing service account, a quota or Pod
    /// Security) stays refused until a user changes an object, so the reason is kept for the conditions. Some errors,
    /// such as a lost response or throttling, do not show whether the API server accepts the pod.
    fn from_error(error: &CallError) -> Self {
        match error {
            CallError::Forbidden(_) | CallError::Invalid(_) | CallError::NotFound => {
                Self::Refused(refusal_reason(error))
            }
            CallError::Server(_) => Self::Failed(refusal_reason(error)),
            CallError::NamespaceTerminating => Self::NamespaceTerminating,
            CallError::AlreadyExists
            | CallError::Conflict
            | CallError::TooManyRequests { .. }
            | CallError::DisruptionBudget { .. }
            | CallError::NoAnswer => Self::Unknown,
        }
    }
}

/// Maximum length in bytes of the reason why a create or an eviction was refused, so that condition messages stay
/// short.
const REFUSAL_REASON_BYTES_MAX: usize = 512;

/// Returns the shortened message of an error. The part up to `is forbidden:` or `is invalid:` is left out, because it
/// contains the name of the pod, which differs for each call.
fn refusal_reason(error: &CallError) -> Text {
    let message = format!("{error}");
    let from = ["\" is forbidden: ", "\" is invalid: "];
    let from = from.iter().filter_map(|it| Some(message.find(it)? + it.len())).min().unwrap_or(0);
    text::truncate(&message[from..], REFUSAL_REASON_BYTES_MAX, "").into()
}

/// The next step that the caller of [`Execution::next`] must take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextStep {
    /// Send this call. More calls may be sent before its response is received.
    Call(PlannedCall),
    /// Wait for the response to a call in flight.
    Wait,
    /// The execution has ended: no call is left to send, and no call is in flight.
    Done,
}

/// The execution of one plan: which calls were sent, and what their responses were.
#[derive(Debug)]
pub struct Execution {
    plan: Arc<Plan>,
    /// The stage whose calls are being sent.
    stage: ExecutionStage,
    /// Calls of the current stage that have not been sent yet.
    ready: VecDeque<PlannedCall>,
    /// Number of calls that were sent and have no response yet.
    in_flight: usize,
    /// Maximum number of pod creates in the next batch. Doubles after each batch without a failure.
    batch: usize,
    /// Number of pod creates of the plan that were enqueued so far.
    creates_enqueued: usize,
    /// Whether a pod create of the current batch failed.
    batch_failed: bool,
    /// Whether the later stages are skipped. They are skipped after the failure of a call on which the pod writes
    /// depend, and after a read that shows that the plan is outdated.
    stopped: bool,
    /// Number of failed attempts to write the status. Set to 2 before a write of `collisionCount`, which is not
    /// retried.
    status_tries: u8,
    /// The results of the calls so far.
    report: ExecutionReport,
}

/// The stages of an execution, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ExecutionStage {
    /// First stage: lists the pods, if the plan requests it ([`Plan::confirm`]).
    Confirm,
    /// Reads the DaemonSet, if the plan adopts an object.
    Recheck,
    /// Adopts and releases pods and ControllerRevisions.
    Claim,
    /// Creates, renumbers and labels ControllerRevisions, and stores or removes the verdicts of a progressive rollout
    /// about them.
    WriteRevisions,
    /// Creates the DaemonRollout, or writes its status.
    WriteRollout,
    /// Sets the revision hash labels of pods of duplicate revisions.
    Relabel,
    /// Deletes and evicts the pods that the plan removes.
    Delete,
    /// Creates the pods of the plan in batches.
    Create,
    /// Deletes the ControllerRevisions that are no longer needed.
    Prune,
    /// Writes the status of the DaemonSet, or in assist mode only its conditions.
    Status,
    /// The end of the execution: no calls are left.
    Done,
}

/// The result of an execution: what it wrote, which calls failed, when to retry, and the events to record. The
/// in-memory state of the DaemonSet is updated from it.
#[derive(Debug, Default)]
pub struct ExecutionReport {
    /// UID of the DaemonSet whose plan was executed.
    pub(crate) uid: Text,
    /// Kinds and resource versions that the watches must deliver before the next plan: those of objects that were
    /// written, and of objects whose read showed that the plan is outdated.
    wrote: Vec<(Kind, u64)>,
    /// Pods that were deleted or evicted, or that no longer existed.
    deleted: Vec<Arc<Pod>>,
    /// Revisions that were deleted, or that no longer existed.
    pruned: Vec<Arc<Revision>>,
    /// Whether a pod create may have been applied although its response was lost or was a server error.
    uncertain_create: bool,
    /// Pods whose delete or eviction may have been applied although its response was lost or was a server error.
    uncertain_deletes: Vec<Arc<Pod>>,
    /// The pods that were listed: UID, resource version, and whether the pod is being deleted. `None` if the pods were
    /// not listed.
    confirmed: Option<Vec<(Text, u64, bool)>>,
    /// Nodes on which a pod was deleted, or may have been deleted, because it had failed or succeeded. The failed-pod
    /// backoff of these nodes grows.
    pub(crate) finished_pod_delete_nodes: Vec<Text>,
    /// Evictions that the API server refused, by node.
    pub(crate) eviction_refusals: BTreeMap<Text, EvictionRefusal>,
    /// Number of pods whose eviction the API server accepted in this execution.
    pub(crate) evicted: usize,
    /// Minimum delay before the next plan of the DaemonSet. `None` if no retry is needed.
    pub(crate) retry: Option<Duration>,
    /// Whether the pod creates of this execution succeeded and, if not, why.
    pub(crate) creates: CreateResult,
    /// Kubernetes Events to record about the DaemonSet.
    pub events: Vec<KubeEvent>,
}

/// The API server's refusal of an eviction: the pod, the reason, and the delay that the API server requested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EvictionRefusal {
    /// UID of the pod whose eviction was refused.
    pub(crate) pod: Text,
    pub(crate) reason: RefusalReason,
    /// The delay that the API server requested before the next attempt. Zero if it requested none.
    pub(crate) retry_after: Duration,
}

/// Why the API server refused an eviction.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum RefusalReason {
    /// A PodDisruptionBudget does not allow the eviction.
    DisruptionBudget,
    /// The controller has no RBAC permission to `create` `pods/eviction`.
    MissingPermission,
    /// Another refusal or a server error, with its shortened message.
    Other(Text),
}

impl RefusalReason {
    /// Returns why the API server refused an eviction with this error. `None` if the error is not a refusal, for
    /// example because the pod has changed or the API server throttles the client. An error that is not a refusal is
    /// handled like the error of a delete.
    fn from_error(error: &CallError) -> Option<Self> {
        match error {
            CallError::DisruptionBudget { .. } => Some(Self::DisruptionBudget),
            // The API server also answers 403 if the status of a PodDisruptionBudget is unusable.
            CallError::Forbidden(message) if message.contains("pods/eviction") => {
                Some(Self::MissingPermission)
            }
            CallError::Forbidden(_) | CallError::Invalid(_) | CallError::Server(_) => {
                Some(Self::Other(refusal_reason(error)))
            }
            CallError::NotFound
            | CallError::AlreadyExists
            | CallError::Conflict
            | CallError::TooManyRequests { .. }
            | CallError::NoAnswer
            | CallError::NamespaceTerminating => None,
        }
    }
}

/// `reason` of the Event about a refused eviction.
const REASON_EVICTION_REFUSED: &str = "EvictionRefused";

impl ExecutionReport {
    /// Returns the report of an execution that panicked. Any of its calls may have been applied.
    pub fn after_panic(set: &Set) -> Self {
        Self { uid: set.uid.clone(), uncertain_create: true, retry: Some(Duration::ZERO), ..Self::default() }
    }

    /// Adds the writes of this execution to the expectations, so that the next plan is made after the watches have
    /// delivered them. A list of pods ([`PlannedCall::ListPods`]) is applied to the expectations first.
    pub(crate) fn update_expectations(&self, expectations: &mut Expectations, now: Time) {
        if let Some(pods) = &self.confirmed {
            expectations.apply_pod_list(pods, now);
        }
        for (kind, resource_version) in &self.wrote {
            expectations.expect_version(*kind, *resource_version);
        }
        self.deleted.iter().for_each(|pod| expectations.expect_pod_delete(pod));
        self.pruned.iter().for_each(|revision| expectations.expect_revision_delete(revision));
        self.uncertain_deletes.iter().for_each(|pod| expectations.expect_uncertain_delete(pod));
        if self.uncertain_create {
            expectations.expect_uncertain_create();
        }
    }

    /// Returns the nodes whose pod was deleted or evicted, or no longer existed.
    pub(crate) fn nodes_with_deleted_pods(&self) -> impl Iterator<Item = &Text> {
        self.deleted.iter().filter_map(|it| it.target.as_ref())
    }

    /// Whether the execution wrote an object of this kind, or read one that made the plan outdated. A write of a
    /// DaemonSet is a write of its status.
    pub(crate) fn wrote_kind(&self, kind: Kind) -> bool {
        self.wrote.iter().any(|(it, _)| *it == kind)
    }

    /// Whether the execution listed the pods of the DaemonSet from the API server.
    pub(crate) fn has_listed_pods(&self) -> bool {
        self.confirmed.is_some()
    }

    /// Requests a retry after at least this delay. The longest requested delay is used.
    fn request_retry(&mut self, after: Duration) {
        self.retry = Some(self.retry.unwrap_or_default().max(after));
    }
}

/// Delay before the next plan after a create failed because the namespace is terminating. The delay is long, because no
/// create can succeed any more: usually the DaemonSet is deleted together with the namespace.
const NAMESPACE_TERMINATING_RETRY_DELAY: Duration = Duration::from_secs(60);

impl Execution {
    /// Creates the execution of a plan. [`Execution::next`] returns its first call.
    pub fn new(plan: impl Into<Arc<Plan>>) -> Self {
        let plan = plan.into();
        let report = ExecutionReport {
            uid: plan.set.uid.clone(),
            events: plan.events.clone(),
            ..ExecutionReport::default()
        };
        Self {
            plan,
            stage: ExecutionStage::Confirm,
            ready: VecDeque::new(),
            in_flight: 0,
            batch: 1,
            creates_enqueued: 0,
            batch_failed: false,
            stopped: false,
            status_tries: 0,
            report,
        }
        .with_first_stage()
    }

    pub fn key(&self) -> &ObjectKey {
        &self.plan.set.key
    }

    /// Returns the version of the DaemonSet from which the plan was made.
    pub fn set(&self) -> &Arc<Set> {
        &self.plan.set
    }

    /// Returns what to do next: send a call, wait for the response to a call in flight, or stop because no calls are
    /// left.
    #[expect(clippy::should_implement_trait, reason = "`Wait` is no end: it comes before more calls")]
    pub fn next(&mut self) -> NextStep {
        loop {
            if let Some(call) = self.ready.pop_front() {
                self.in_flight += 1;
                return NextStep::Call(call);
            }
            if 0 < self.in_flight {
                return NextStep::Wait;
            }
            if self.stage == ExecutionStage::Done {
                return NextStep::Done;
            }
            self.advance_stage();
        }
    }

    /// Whether a call is ready to be sent.
    pub(super) fn has_ready_calls(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Enters the next stage that has calls if no call is ready or in flight. Returns whether the execution has ended,
    /// that is, whether no call is ready or in flight and no stage is left.
    pub(super) fn is_finished(&mut self) -> bool {
        while self.ready.is_empty() && self.in_flight == 0 && self.stage != ExecutionStage::Done {
            self.advance_stage();
        }
        self.ready.is_empty() && self.in_flight == 0
    }

    /// Returns the number of calls that were sent and have no response yet.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Ends the execution and returns its report.
    pub fn finish(self) -> ExecutionReport {
        self.report
    }

    /// Enqueues the calls of the first stage, and returns the execution.
    fn with_first_stage(mut self) -> Self {
        self.enqueue_stage();
        self
    }

    /// Enqueues the next batch of creates if the current stage is `Create`, creates are left, no create of the last
    /// batch failed and the execution was not stopped. Otherwise enters the next stage and enqueues its calls.
    fn advance_stage(&mut self) {
        let more = self.creates_enqueued < self.create_count() && !self.batch_failed && !self.stopped;
        if self.stage == ExecutionStage::Create && more {
            return self.enqueue_stage();
        }
        self.stage = match self.stage {
            ExecutionStage::Confirm => ExecutionStage::Recheck,
            ExecutionStage::Recheck => ExecutionStage::Claim,
            ExecutionStage::Claim => ExecutionStage::WriteRevisions,
            ExecutionStage::WriteRevisions => ExecutionStage::WriteRollout,
            ExecutionStage::WriteRollout => ExecutionStage::Relabel,
            ExecutionStage::Relabel => ExecutionStage::Delete,
            ExecutionStage::Delete => ExecutionStage::Create,
            ExecutionStage::Create => ExecutionStage::Prune,
            ExecutionStage::Prune => ExecutionStage::Status,
            ExecutionStage::Status | ExecutionStage::Done => ExecutionStage::Done,
        };
        self.enqueue_stage();
    }

    /// Enqueues the calls of the current stage. Does nothing if the later stages are skipped ([`Execution::stopped`]).
    ///
    /// Rule: a plan is executed in the stages of [`ExecutionStage`]. If a call before the pod deletes fails, the later
    /// stages are skipped, except after a failed write of the DaemonRollout. If a pod delete or create fails, the
    /// status is still written.
    fn enqueue_stage(&mut self) {
        let plan = &self.plan;
        if self.stopped {
            return;
        }
        match self.stage {
            ExecutionStage::Confirm if plan.confirm => self.ready.push_back(PlannedCall::ListPods),
            // Rule: before the first adoption the DaemonSet is read from the API server, not from a cache: it may have
            // been deleted with its pods orphaned on purpose. Upstream: `RecheckDeletionTimestamp`.
            ExecutionStage::Recheck if plan.claims.iter().any(Claim::is_adoption) => {
                self.ready.push_back(PlannedCall::ReadSet);
            }
            ExecutionStage::Claim => self.ready.extend(plan.claims.iter().cloned().map(PlannedCall::Claim)),
            ExecutionStage::WriteRevisions => {
                self.ready.extend(plan.steps.iter().cloned().map(PlannedCall::WriteRevision))
            }
            ExecutionStage::WriteRollout => {
                self.ready.extend(plan.rollout.iter().cloned().map(PlannedCall::WriteRollout))
            }
            ExecutionStage::Relabel => {
                let relabel = plan.relabel.iter().cloned();
                self.ready.extend(relabel.map(|(pod, hash)| PlannedCall::RelabelPod { pod, hash }));
            }
            ExecutionStage::Delete => {
                let delete = plan.delete.iter().cloned();
                self.ready.extend(delete.map(|(pod, why)| PlannedCall::DeletePod { pod, why }));
                let evict = plan.evict.iter().cloned();
                self.ready.extend(evict.map(|(pod, why)| PlannedCall::EvictPod { pod, why }));
            }
            ExecutionStage::Create => self.enqueue_batch(),
            ExecutionStage::Prune => {
                let prune = plan.prune.iter().cloned();
                self.ready.extend(prune.map(|revision| PlannedCall::DeleteRevision { revision }));
            }
            ExecutionStage::Status => {
                if let Some(status) = plan.status.clone() {
                    self.ready.push_back(PlannedCall::PutStatus { of: plan.set.clone(), status });
                }
                if let Some(conditions) = plan.conditions.clone() {
                    self.ready.push_back(PlannedCall::ApplyConditions { conditions });
                }
            }
            ExecutionStage::Confirm | ExecutionStage::Recheck | ExecutionStage::Done => {}
        }
    }

    /// Returns the number of pods that the plan creates.
    fn create_count(&self) -> usize {
        self.plan.create.len() + self.plan.create_stable.len()
    }

    /// Enqueues the next batch of pod creates.
    ///
    /// Rule: creates are sent in batches of 1, 2, 4 …, and stop after the first batch with a failure. So an invalid
    /// template costs one refused call, not one per node. Upstream: `slowStartBatch`.
    fn enqueue_batch(&mut self) {
        let plan = &self.plan;
        let left = self.create_count() - self.creates_enqueued;
        let batch = self.batch.min(left);
        let current = plan.create.iter().map(|it| (it, None));
        let stable = plan.create_stable.iter().map(|it| (it, plan.stable.clone()));
        for ((node, why), source) in current.chain(stable).skip(self.creates_enqueued).take(batch) {
            let hash = source.as_ref().map_or(&plan.hash, |it| &it.hash).clone();
            self.ready.push_back(PlannedCall::CreatePod {
                node: node.clone(),
                hash,
                why: why.clone(),
                source,
            });
        }
        self.creates_enqueued += batch;
        self.batch = batch.max(1) * 2;
        self.batch_failed = false;
    }

    /// Applies the API server's response to a call.
    pub fn apply_response(&mut self, call: &PlannedCall, response: Response) {
        self.in_flight -= 1;
        match response {
            Response::Refused(error) => self.on_error(call, &error),
            response => self.on_success(call, response),
        }
    }

    /// Handles a successful response: updates the report, and enqueues the calls that the response makes necessary.
    fn on_success(&mut self, call: &PlannedCall, response: Response) {
        match (call, response) {
            (PlannedCall::ListPods, Response::Pods(pods)) => self.report.confirmed = Some(pods),
            (PlannedCall::ReadSet, Response::Set(set)) => self.on_set_read(&set),
            (PlannedCall::ReadRevision { .. }, Response::Revision(revision)) => {
                self.on_revision_read(revision.as_deref())
            }
            (PlannedCall::Claim(claim), Response::Wrote { resource_version, .. }) => {
                self.report.wrote.push((claimed_kind(claim), resource_version));
            }
            (PlannedCall::WriteRevision(_), Response::Wrote { resource_version, .. }) => {
                self.report.wrote.push((Kind::Revisions, resource_version));
            }
            (PlannedCall::WriteRollout(_), Response::Wrote { resource_version, .. }) => {
                self.report.wrote.push((Kind::Rollouts, resource_version));
            }
            (PlannedCall::RelabelPod { .. }, Response::Wrote { resource_version, .. }) => {
                self.report.wrote.push((Kind::Pods, resource_version));
            }
            (PlannedCall::CreatePod { .. }, Response::Wrote { name, resource_version }) => {
                self.report.wrote.push((Kind::Pods, resource_version));
                if self.report.creates == CreateResult::Unknown {
                    self.report.creates = CreateResult::Succeeded;
                }
                self.report
                    .events
                    .push(KubeEvent::normal("SuccessfulCreate", format!("Created pod: {name}")));
            }
            (PlannedCall::DeletePod { pod, why }, Response::Deleted | Response::Wrote { .. }) => {
                self.report.deleted.push(pod.clone());
                self.record_finished_pod(pod, why);
                let message = format!("Deleted pod: {}", pod.key.name);
                self.report.events.push(KubeEvent::normal("SuccessfulDelete", message));
            }
            (PlannedCall::EvictPod { pod, .. }, Response::Deleted | Response::Wrote { .. }) => {
                self.report.deleted.push(pod.clone());
                self.report.evicted += 1;
                let message = format!("Evicted pod: {}", pod.key.name);
                self.report.events.push(KubeEvent::normal("SuccessfulDelete", message));
            }
            (
                PlannedCall::PutStatus { .. } | PlannedCall::ApplyConditions { .. },
                Response::Wrote { resource_version, .. },
            ) => {
                self.report.wrote.push((Kind::Sets, resource_version));
            }
            (PlannedCall::DeleteRevision { revision }, Response::Deleted | Response::Wrote { .. }) => {
                self.report.pruned.push(revision.clone());
            }
            _ => {}
        }
    }

    /// Handles a failed call: updates the report, and enqueues the calls that the error makes necessary.
    ///
    /// Rule: the error of a call has these consequences:
    ///
    /// - A failed status write is handled by [`Execution::on_status_error`].
    /// - A refused eviction is handled by [`Execution::on_eviction_refused`]. If the error is a server error, the last
    ///   item applies too.
    /// - After AlreadyExists on the create of a revision, the existing revision is read.
    /// - After NotFound on a delete or eviction, the object counts as deleted.
    /// - After any other error, the DaemonSet is reconciled again, with backoff. If a create, delete or eviction of a
    ///   pod got no response or a server error, the pods are listed before the next plan.
    fn on_error(&mut self, call: &PlannedCall, error: &CallError) {
        if let PlannedCall::PutStatus { .. } = call {
            return self.on_status_error(error);
        }
        if let PlannedCall::EvictPod { pod, .. } = call
            && self.on_eviction_refused(pod, error)
            && !matches!(error, CallError::Server(_))
        {
            return;
        }
        match (call, error) {
            (PlannedCall::WriteRevision(RevisionWrite::Create { name, .. }), CallError::AlreadyExists) => {
                self.ready.push_back(PlannedCall::ReadRevision { name: name.clone() });
                return;
            }
            (PlannedCall::DeletePod { pod, why }, CallError::NotFound) => {
                self.record_finished_pod(pod, why);
                return self.report.deleted.push(pod.clone());
            }
            (PlannedCall::EvictPod { pod, .. }, CallError::NotFound) => {
                return self.report.deleted.push(pod.clone());
            }
            // The object changed since the plan was made: the watch will deliver the change, and nothing was deleted.
            (
                PlannedCall::DeletePod { .. }
                | PlannedCall::EvictPod { .. }
                | PlannedCall::DeleteRevision { .. },
                CallError::Conflict,
            ) => {
                return self.report.request_retry(Duration::ZERO);
            }
            (PlannedCall::DeleteRevision { revision }, CallError::NotFound) => {
                return self.report.pruned.push(revision.clone());
            }
            // The store may have applied the write despite a 5xx, for example when only its response timed out.
            (PlannedCall::DeletePod { pod, why }, CallError::NoAnswer | CallError::Server(_)) => {
                self.record_finished_pod(pod, why);
                self.report.uncertain_deletes.push(pod.clone());
            }
            (PlannedCall::EvictPod { pod, .. }, CallError::NoAnswer | CallError::Server(_)) => {
                self.report.uncertain_deletes.push(pod.clone());
            }
            (PlannedCall::CreatePod { .. }, CallError::NoAnswer | CallError::Server(_)) => {
                self.report.uncertain_create = true
            }
            // Pods do not depend on the write: the next plan acts only on the status that the watch delivers.
            (PlannedCall::WriteRollout(_), _) => {
                return self.report.request_retry(error.retry_after());
            }
            (PlannedCall::CreatePod { .. }, CallError::NamespaceTerminating) => {
                self.batch_failed = true;
                self.report.creates = CreateResult::from_error(error);
                return self.report.request_retry(NAMESPACE_TERMINATING_RETRY_DELAY);
            }
            _ => {}
        }
        self.stop_before_delete_stage();
        if let PlannedCall::CreatePod { .. } = call {
            self.batch_failed = true;
            let creates = CreateResult::from_error(error);
            if creates != CreateResult::Unknown {
                self.report.creates = creates;
            }
        }
        self.report.request_retry(error.retry_after());
        self.add_failure_event(call, error);
    }

    /// Records that the API server refused to evict a pod. Adds an event about the first refusal of the execution.
    /// Returns `false`, and records nothing, if the error is not a refusal of this eviction, or if the pod has no node.
    ///
    /// Rule: an eviction that the API server refuses is tried again after a backoff. The refusal does not delay
    /// evictions on other nodes, unless all evictions are refused.
    fn on_eviction_refused(&mut self, pod: &Pod, error: &CallError) -> bool {
        let (Some(reason), Some(node)) = (RefusalReason::from_error(error), &pod.target) else {
            return false;
        };
        if !self.report.events.iter().any(|it| it.reason == REASON_EVICTION_REFUSED) {
            let message = format!("Error evicting: pod {} on node {node}: {error}", pod.key.name);
            self.report.events.push(KubeEvent::warning(REASON_EVICTION_REFUSED, message));
        }
        let retry_after = error.retry_after();
        let refusal = EvictionRefusal { pod: pod.uid.clone(), reason, retry_after };
        self.report.eviction_refusals.insert(node.clone(), refusal);
        true
    }

    /// Skips the later stages if the execution has not reached the stage `Delete` yet.
    fn stop_before_delete_stage(&mut self) {
        self.stopped |= self.stage < ExecutionStage::Delete;
    }

    /// Adds the node of a deleted pod to [`ExecutionReport::finished_pod_delete_nodes`] if the pod was deleted because
    /// it had failed or succeeded.
    fn record_finished_pod(&mut self, pod: &Pod, why: &Why) {
        if let (Why::Failed { .. } | Why::Succeeded, Some(node)) = (why, &pod.target) {
            self.report.finished_pod_delete_nodes.push(node.clone());
        }
    }

    /// Adds a warning event about a failed create, delete or eviction of a pod, or a failed create of a revision. Adds
    /// none for other calls, nor for a refused eviction, which has its own event.
    fn add_failure_event(&mut self, call: &PlannedCall, error: &CallError) {
        let event = match call {
            PlannedCall::CreatePod { node, .. } => {
                KubeEvent::warning("FailedCreate", format!("Error creating: pod for node {node}: {error}"))
            }
            PlannedCall::DeletePod { pod, .. } => {
                KubeEvent::warning("FailedDelete", format!("Error deleting: pod {}: {error}", pod.key.name))
            }
            PlannedCall::EvictPod { pod, .. } if RefusalReason::from_error(error).is_none() => {
                KubeEvent::warning("FailedDelete", format!("Error evicting: pod {}: {error}", pod.key.name))
            }
            PlannedCall::WriteRevision(RevisionWrite::Create { name, .. }) => {
                KubeEvent::warning("FailedCreate", format!("Error creating: revision {name}: {error}"))
            }
            _ => return,
        };
        self.report.events.push(event);
    }

    /// Continues after the DaemonSet was read. If the DaemonSet is being deleted, or was deleted and created again,
    /// requests a new plan and skips the later stages. Otherwise the stage decides:
    ///
    /// - `Recheck`: the execution continues with the adoptions.
    /// - `WriteRevisions`: the name of a new revision was taken, so `collisionCount` is incremented.
    /// - `Status`: the status write is retried.
    fn on_set_read(&mut self, fresh: &Arc<Set>) {
        let same = fresh.uid == self.plan.set.uid && !fresh.deleting;
        match self.stage {
            ExecutionStage::Recheck if same => {}
            ExecutionStage::WriteRevisions if same => self.increment_collision_count(fresh),
            ExecutionStage::Status if same => self.retry_status(fresh),
            // The DaemonSet was deleted, or deleted and created again: write nothing more for it until the watch shows
            // that, or pods would be created for an owner that no longer exists.
            _ => {
                self.report.wrote.push((Kind::Sets, fresh.resource_version));
                self.stop_before_delete_stage();
                self.report.request_retry(Duration::ZERO);
            }
        }
    }

    /// Continues after an existing revision was read because it has the name of the revision to create. `found` is the
    /// existing revision, or `None` if an object of a kind other than DaemonSet controls it.
    ///
    /// Rule: if a create of a revision fails because its name is taken, the existing revision is read. The existing
    /// revision is used if it has the same data, and this DaemonSet owns it or can adopt it. Otherwise the name
    /// collides, and the `collisionCount` of the DaemonSet is incremented, which changes the name of the new revision.
    /// In both cases the later stages are skipped, and the next plan is made when the watches have delivered the
    /// existing revision or the new `collisionCount`.
    fn on_revision_read(&mut self, found: Option<&Revision>) {
        let set = &self.plan.set;
        let ours = |it: &&Revision| {
            let owned = it.owner.as_ref().map(|uid| *uid == set.uid);
            owned.unwrap_or_else(|| set.selector.matches(&it.labels)) && it.data == set.template.data
        };
        match found.filter(ours) {
            Some(revision) => {
                self.report.wrote.push((Kind::Revisions, revision.resource_version));
                self.stop_before_delete_stage();
                self.report.request_retry(Duration::ZERO);
            }
            None => self.ready.push_back(PlannedCall::ReadSet),
        }
    }

    /// Skips the later stages and, unless `collisionCount` was already changed, enqueues the write that increments it.
    /// `fresh` is the newest version of the DaemonSet.
    ///
    /// Rule: `collisionCount` is incremented only if it is still the value from which the colliding name was computed.
    fn increment_collision_count(&mut self, fresh: &Arc<Set>) {
        self.stop_before_delete_stage();
        self.report.request_retry(Duration::ZERO);
        if fresh.status.collisions != self.plan.set.status.collisions {
            return;
        }
        let mut status = fresh.status.clone();
        status.collisions = Some(status.collisions.unwrap_or(0).saturating_add(1));
        self.status_tries = 2;
        self.ready.push_back(PlannedCall::PutStatus { of: fresh.clone(), status });
    }

    /// Handles a failed write of the status. Reads the DaemonSet if the write is to be retried, otherwise requests a
    /// new plan.
    ///
    /// Rule: a failed write of the status is retried once on the newest version of the DaemonSet. Exceptions: an
    /// immediate retry would fail again (for example because the DaemonSet was not found), the write incremented
    /// `collisionCount`, or the stored status has a newer `observedGeneration`. Upstream: `StatusUpdateRetries`.
    fn on_status_error(&mut self, error: &CallError) {
        self.status_tries += 1;
        let is_permanent = matches!(
            error,
            CallError::NotFound
                | CallError::Forbidden(_)
                | CallError::Invalid(_)
                | CallError::TooManyRequests { .. }
                | CallError::DisruptionBudget { .. }
        );
        if self.status_tries < 2 && !is_permanent {
            self.ready.push_back(PlannedCall::ReadSet);
            return;
        }
        self.stop_before_delete_stage();
        self.report.request_retry(error.retry_after());
    }

    /// Enqueues the write of the planned status on `fresh`, the newest version of the DaemonSet. If `fresh` has a newer
    /// `observedGeneration` than the planned status, requests a new plan instead.
    fn retry_status(&mut self, fresh: &Arc<Set>) {
        let Some(mut status) = self.plan.status.clone() else { return };
        if status.observed_generation < fresh.status.observed_generation {
            return self.report.request_retry(Duration::ZERO);
        }
        status.collisions = fresh.status.collisions;
        status.raw.clone_from(&fresh.status.raw);
        self.ready.push_back(PlannedCall::PutStatus { of: fresh.clone(), status });
    }
}

/// Returns the kind of the object that a claim adopts or releases.
fn claimed_kind(claim: &Claim) -> Kind {
    match claim {
        Claim::AdoptPod(_) | Claim::ReleasePod(_) => Kind::Pods,
        Claim::AdoptRevision(_) | Claim::ReleaseRevision(_) => Kind::Revisions,
    }
}
