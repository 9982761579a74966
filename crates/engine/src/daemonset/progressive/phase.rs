//! The state machine of a rollout: computes the next status, the verdict of a revision and the events from the stored
//! status and the counts of nodes.
//!
//! The next status is written before any write that relies on it. The cells (the state of the DaemonSet on each node)
//! are computed from the stored status, and no plan is made until the watches have delivered the controller's own
//! writes.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use super::check::{CheckStatusInput, check_status};
use super::counts::{RolloutCounts, UnsoakedNode};
use super::groups::count_failed_nodes;
use super::membership::AdmittedMembers;
use super::policy::{
    Check, CheckSource, LISTED_NODES_MAX, NewNodeRevision, OnDeadline, OnFailure, Policy, PolicySpec,
};
use super::record::{
    ALL_STEPS, CheckResult, CheckStatus, FailureStatus, NodeFailure, OperatorRequests, Phase,
    PolicyReference, RolloutStatus, StepStatus,
};
use super::verdict::{
    REASON_ABORTED, REASON_ADOPTED, REASON_DEADLINE, REASON_FAILED, REASON_PASSED, REASON_RETRIED,
    REASON_SUPERSEDED, RevisionVerdict, RevisionVerdictWrite, RevisionWithVerdict,
};
use super::window::{WINDOW_RECHECK_INTERVAL_MAX, WindowState, window_state};
use crate::controller::KubeEvent;

/// Input of [`next_status`]: the stored status, the policy, the revisions, and what was observed on the nodes.
#[derive(Debug)]
pub struct PhaseInput<'a> {
    /// The status of the DaemonRollout as stored in the API server.
    pub stored: &'a RolloutStatus,
    /// The `metadata.generation` of the DaemonRollout.
    pub generation: i64,
    /// Requests in the spec of the DaemonRollout: pause, approve, abort, retry and check reports.
    pub requests: &'a OperatorRequests,
    /// The policy that governs the DaemonSet. `None` if no policy selects it.
    pub policy: Option<&'a Policy>,
    /// The revision of the DaemonSet's present template, which is being rolled out.
    pub current: &'a RevisionWithVerdict,
    /// The stable revision: of the revisions with the verdict `Good` that are not being deleted, that have a hash label
    /// and whose template can be decoded, the one with the latest verdict. `None` if there is no such revision.
    pub stable: Option<&'a RevisionWithVerdict>,
    /// The revision with the highest number, other than `current`, that has available pods. If it has no verdict, it
    /// gets the verdict `Good` and so becomes the stable revision. `None` if no other revision has available pods, if
    /// there is a stable revision already, if `current` has a verdict, or if `current` runs on all nodes.
    pub running: Option<&'a RevisionWithVerdict>,
    /// The revision that was current when `stored` was written. `None` if `stored` names no current revision, if that
    /// revision is still current, or if its ControllerRevision was deleted.
    pub superseded: Option<&'a RevisionWithVerdict>,
    /// Counts of nodes by their state in the rollout.
    pub counts: &'a RolloutCounts,
    /// Whether every eligible node has an available pod of the current revision, and no outdated pod is left.
    pub is_rolled_out: bool,
    /// Whether a rollback has ended: every eligible node has an available pod of the stable revision, and no other pod
    /// is left. Only meaningful during a rollback.
    pub is_rolled_back: bool,
    /// Latest results of the checks that the controller itself measures (not `external` ones).
    pub check_results: &'a [CheckStatus],
    /// Number of consecutive failures of each check, by name of the check.
    pub check_failures: &'a BTreeMap<Text, u32>,
    /// Names of nodes whose failures are not counted (excused), each with the reason. The status must store these names
    /// before the rollout replaces pods on the nodes.
    pub excuses: &'a [(Text, Text)],
    /// Whether another controller creates the pods, always of the current revision (assist mode).
    pub is_assisting: bool,
    /// Whether the rollout waits until users delete the outdated pods: the update strategy is `OnDelete`, and no policy
    /// replaces it by a rolling update. If the DaemonSet has invalid fields, no policy replaces the strategy.
    pub waits_for_deletes: bool,
    pub now: Time,
}

/// Output of [`next_status`]: what to write, and whether the rollout may replace pods now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PhaseOutcome {
    /// The status to store in the DaemonRollout.
    pub status: RolloutStatus,
    /// The verdict to write before `status`. `None` if no verdict is to be written.
    pub verdict: Option<RevisionVerdictWrite>,
    /// Kubernetes Events to record.
    pub events: Vec<KubeEvent>,
    /// Whether the rollout may replace outdated pods now.
    pub may_replace: bool,
    /// Time at which the status must be computed again even without an event. `None` if there is no such time.
    pub wake_at: Option<Time>,
}

/// Why the rollout is paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PauseReason {
    /// An operator paused the rollout in the spec of the DaemonRollout.
    Operator,
    /// The policy pauses the rollouts of its DaemonSets.
    Policy,
    /// No maintenance window of the policy is open.
    Window,
    /// The policy has invalid fields.
    InvalidPolicy,
}

impl PauseReason {
    /// Returns the message of the DaemonRollout's status while it is paused for this reason.
    fn message(self) -> &'static str {
        match self {
            Self::Operator => "paused by the DaemonRollout (spec.paused)",
            Self::Policy => "paused by the policy (spec.paused)",
            Self::Window => "outside the windows of the policy",
            Self::InvalidPolicy => "the policy is invalid: see its conditions",
        }
    }
}

/// Computes the next status of a rollout, the verdict to write, and the events.
///
/// Rule: the first of these transitions that applies decides:
///
/// 1. A new current revision starts a new rollout.
/// 2. A retry that an operator requested starts a new attempt.
/// 3. A complete rollout stays complete.
/// 4. A rollback continues until all nodes have returned to the stable revision. It stops in assist mode, or if there
///    is no stable revision.
/// 5. A stopped rollout stays stopped, unless an operator aborts it. If its revision does not have the verdict `Bad`,
///    it also continues after an operator approved all steps or, if it stopped because its policy was deleted, when a
///    policy selects the DaemonSet again.
/// 6. An abort, a failure or a deleted policy ends a rollout that goes forward.
/// 7. The current step makes progress, then the deadline is checked.
pub fn next_status(input: &PhaseInput<'_>) -> PhaseOutcome {
    let default_spec = PolicySpec::default();
    let spec = input.policy.map_or(&default_spec, |it| &it.spec);
    let windows = window_state(&spec.windows, input.now);
    let mut machine = PhaseMachine {
        input,
        spec,
        status: RolloutStatus {
            observed_generation: input.generation,
            policy: input.policy.map(|it| PolicyReference {
                kind: it.kind,
                name: it.key.name.clone(),
                generation: it.generation,
            }),
            nodes: input.counts.nodes,
            ..input.stored.clone()
        },
        verdict: None,
        events: Vec::new(),
        wake_at: None,
        pause_reason: pause_reason(input, spec, windows),
    };
    if !spec.windows.is_empty() {
        let recheck = input.now + WINDOW_RECHECK_INTERVAL_MAX;
        machine.wake_at = earliest(windows.changes_at, Some(recheck));
    }
    machine.run();
    machine.finish()
}

/// Returns why the rollout is paused. `None` if it is not paused.
///
/// Rule: a pause by the operator also stops a rollback. A pause by the policy, an invalid policy and a closed window
/// stop only a rollout that goes forward.
fn pause_reason(input: &PhaseInput<'_>, spec: &PolicySpec, windows: WindowState) -> Option<PauseReason> {
    if input.requests.paused {
        Some(PauseReason::Operator)
    } else if input.policy.is_some_and(|it| !it.invalid.is_empty()) {
        Some(PauseReason::InvalidPolicy)
    } else if spec.paused {
        Some(PauseReason::Policy)
    } else if !windows.is_open {
        Some(PauseReason::Window)
    } else {
        None
    }
}

/// The state machine while [`next_status`] runs: its input, and the output so far.
struct PhaseMachine<'a> {
    input: &'a PhaseInput<'a>,
    /// The settings of the policy, or the defaults without a policy.
    spec: &'a PolicySpec,
    /// The next status of the rollout, as far as it has been computed.
    status: RolloutStatus,
    /// The verdict to write. `None` if no transition has set one.
    verdict: Option<RevisionVerdictWrite>,
    events: Vec<KubeEvent>,
    wake_at: Option<Time>,
    /// Why the rollout is paused. `None` if it is not paused.
    pause_reason: Option<PauseReason>,
}

impl PhaseMachine<'_> {
    /// Applies the first transition that fits: a new current revision, a retry, or the transition of the stored phase.
    /// Unless the current revision is new, first adds new failures to the status.
    fn run(&mut self) {
        let current = &self.input.current.reference;
        if self.status.current.as_ref().is_none_or(|it| it.hash != current.hash) {
            return self.start();
        }
        self.status.current = Some(current.clone());
        self.status.stable = self.input.stable.map(|it| it.reference.clone());
        self.record_failures();
        let requests = self.input.requests;
        if let Some(retry) = requests.retry.as_ref().filter(|it| it.revision == current.hash)
            && self.status.attempt < retry.attempt
        {
            return self.retry(retry.attempt);
        }
        match self.status.phase {
            None => self.start(),
            Some(Phase::Complete) => self.stay_complete(),
            Some(Phase::RollingBack | Phase::RolledBack) => self.advance_rollback(),
            Some(Phase::Stopped) => self.try_leave_stopped(),
            Some(Phase::Rolling | Phase::Soaking | Phase::Waiting | Phase::PartiallyComplete) => {
                self.advance()
            }
        }
    }

    /// Starts the rollout of the current revision. If a verdict must be written first, only sets that verdict: the
    /// rollout then starts in a later plan.
    ///
    /// Rule: when another revision becomes current, the first of these cases that applies decides:
    ///
    /// 1. There is no stable revision, and the current revision has no verdict and runs on all nodes: it gets the
    ///    verdict `Good`.
    /// 2. There is no stable revision, and neither the current revision nor the newest other revision with available
    ///    pods has a verdict: that other revision gets the verdict `Good`.
    /// 3. The previous current revision has no verdict, and its rollout was not complete: it gets the verdict
    ///    `Superseded`.
    /// 4. The current revision has the verdict `Bad`: its rollout is stopped.
    /// 5. The current revision has the verdict `Good`: it goes to all nodes in one step. If it runs on all nodes already,
    ///    the rollout is complete at once.
    /// 6. There is no stable revision: this is the first installation. The rollout starts at the last step, and every
    ///    node gets the current revision.
    /// 7. Otherwise, the rollout starts at the first step.
    fn start(&mut self) {
        let input = self.input;
        let (current, now) = (input.current, input.now);
        if input.stable.is_none() && current.verdict.is_none() {
            if input.is_rolled_out && 0 < input.counts.nodes.eligible {
                return self.set_verdict(
                    &current.reference.hash.clone(),
                    Some(RevisionVerdict::Good),
                    REASON_ADOPTED,
                );
            }
            if let Some(running) = input.running.filter(|it| it.verdict.is_none()) {
                return self.set_verdict(
                    &running.reference.hash.clone(),
                    Some(RevisionVerdict::Good),
                    REASON_ADOPTED,
                );
            }
        }
        let was_complete = self.status.phase == Some(Phase::Complete);
        if let Some(old) = input.superseded.filter(|it| it.verdict.is_none() && !was_complete) {
            // The next plan goes on when the watch has delivered the verdict.
            return self.set_verdict(
                &old.reference.hash.clone(),
                Some(RevisionVerdict::Superseded),
                REASON_SUPERSEDED,
            );
        }
        self.status = RolloutStatus {
            current: Some(current.reference.clone()),
            stable: input.stable.map(|it| it.reference.clone()),
            attempt: 1,
            // The API server sets the creation time of nodes, and its clock may be ahead of this one.
            attempt_started: Some(now.max(current.created)),
            step: None,
            admitted: Vec::new(),
            failures: FailureStatus::default(),
            checks: Vec::new(),
            last_progress: Some(now),
            ..self.status.clone()
        };
        match current.verdict {
            Some(RevisionVerdict::Bad) => {
                let message = "the revision failed before: retry it, or change the template".into();
                self.stop("KnownBad", message);
            }
            Some(RevisionVerdict::Good) if input.is_rolled_out => {
                self.enter_phase(Phase::Complete, String::new())
            }
            Some(RevisionVerdict::Good) => {
                self.add_start_event();
                self.enter_all_steps();
                self.enter_phase(Phase::Rolling, String::new());
            }
            Some(RevisionVerdict::Superseded) | None => {
                self.add_start_event();
                let is_first_installation = input.stable.is_none();
                self.start_step(if is_first_installation { self.spec.steps.len() - 1 } else { 0 });
                self.enter_phase(Phase::Rolling, String::new());
            }
        }
    }

    /// Adds the event `RolloutStarted`.
    fn add_start_event(&mut self) {
        let number = self.input.current.reference.number;
        self.events.push(KubeEvent::normal("RolloutStarted", format!("Rolling out revision {number}")));
    }

    /// Sets the verdict to write for the revision with this hash. A `verdict` of `None` removes the stored verdict.
    fn set_verdict(&mut self, revision: &Text, verdict: Option<RevisionVerdict>, reason: &'static str) {
        self.verdict = Some(RevisionVerdictWrite { revision: revision.clone(), verdict, reason });
    }

    /// Returns the hash of the current revision.
    fn current_hash(&self) -> Text {
        self.input.current.reference.hash.clone()
    }

    /// Enters the step with this index in `PolicySpec::steps`, sets the time of the last progress to the present, and
    /// adds the event `StepStarted`.
    fn start_step(&mut self, index: usize) {
        let Some(step) = self.spec.steps.get(index) else { return };
        let started = self.input.now;
        self.status.step =
            Some(StepStatus { name: step.name.clone(), index, target: 0, started, passes_at: None });
        self.status.last_progress = Some(started);
        let text = format!("Step {:?} has started", &*step.name);
        self.events.push(KubeEvent::normal("StepStarted", text));
    }

    /// Sets the phase and its message, and clears `passes_at` of the step.
    fn enter_phase(&mut self, phase: Phase, message: String) {
        self.status.phase = Some(phase);
        self.status.message = message.into();
        if let Some(step) = self.status.step.as_mut() {
            step.passes_at = None;
        }
    }

    /// Enters the phase `Stopped`. Adds a warning event with this reason, unless the phase and message are unchanged.
    fn stop(&mut self, reason: &'static str, message: String) {
        if self.status.phase != Some(Phase::Stopped) || *self.status.message != *message {
            self.events.push(KubeEvent::warning(reason, format!("The rollout has stopped: {message}")));
        }
        self.enter_phase(Phase::Stopped, message);
    }

    /// Starts the attempt with this number to roll out the current revision. If the revision has a verdict, only
    /// removes the verdict: the attempt then starts in a later plan.
    ///
    /// Rule: a retry removes the verdict, and the failures, admitted nodes and check results of the last attempt. The
    /// new attempt starts at the first step.
    fn retry(&mut self, attempt: u32) {
        if self.input.current.verdict.is_some() {
            let hash = self.current_hash();
            return self.set_verdict(&hash, None, REASON_RETRIED);
        }
        self.status.attempt = attempt;
        self.status.attempt_started = self.status.attempt_started.max(Some(self.input.now));
        self.status.failures = FailureStatus::default();
        self.status.admitted.clear();
        self.status.checks.clear();
        let text = format!("Attempt {attempt} has started");
        self.events.push(KubeEvent::normal("RolloutStarted", text));
        self.start_step(0);
        self.enter_phase(Phase::Rolling, String::new());
    }

    /// Adds to the status the nodes that have failed, and those whose failures are excused (not counted). Sets the
    /// number of tolerated failures. A node is counted once in an attempt. At most [`LISTED_NODES_MAX`] nodes of each
    /// list are stored. Does nothing before the start, after the rollout is complete, and in a rollback.
    fn record_failures(&mut self) {
        let (input, now) = (self.input, self.input.now);
        let is_analysed = !matches!(
            self.status.phase,
            None | Some(Phase::Complete | Phase::RollingBack | Phase::RolledBack)
        );
        if !is_analysed {
            return;
        }
        let failures = &mut self.status.failures;
        for (node, reason) in &input.counts.failing {
            let is_known = failures.has_failed(node) || failures.is_excused(node);
            if !is_known && failures.nodes.len() < LISTED_NODES_MAX {
                failures.nodes.push(NodeFailure { node: node.clone(), reason: reason.clone(), at: now });
                let text = format!("Node {node} failed: {reason}");
                self.events.push(KubeEvent::warning("NodeFailed", text));
            }
        }
        for (node, reason) in input.excuses {
            if !failures.is_excused(node) && failures.excused.len() < LISTED_NODES_MAX {
                failures.excused.push(NodeFailure { node: node.clone(), reason: reason.clone(), at: now });
                failures.excused_count += 1;
            }
        }
        let gone = failures
            .nodes
            .iter()
            .filter(|it| !input.counts.nodes_with_current_pod.contains(&it.node))
            .count();
        failures.allowed = self.spec.failures.tolerated_failures(input.counts.with_current_pod + gone);
    }

    /// Keeps the phase `Complete`, and clears the message.
    fn stay_complete(&mut self) {
        self.enter_phase(Phase::Complete, String::new());
    }

    /// Keeps the phase `Stopped`, with two exceptions:
    ///
    /// - If an operator requested an abort, the revision gets the verdict `Bad`, and the rollout is rolled back if
    ///   possible.
    /// - If the revision does not have the verdict `Bad`, the rollout continues after an operator approved all steps. A
    ///   rollout that stopped because its policy was deleted also continues when a policy selects the DaemonSet again.
    fn try_leave_stopped(&mut self) {
        // Without a stable revision an abort changes nothing but the verdict.
        let is_bad = self.input.current.verdict == Some(RevisionVerdict::Bad);
        if self.is_abort_requested() && (!is_bad || self.input.stable.is_some()) {
            return self.fail(REASON_ABORTED, ABORTED_MESSAGE.into());
        }
        // A policy that was deleted and exists again, or an approval of all steps, lets the rollout go on.
        let goes_on = self.input.policy.is_some() && *self.status.message == *POLICY_DELETED_MESSAGE;
        if !is_bad && (goes_on || self.is_approved(ALL_STEPS)) {
            self.enter_phase(Phase::Rolling, String::new());
            self.advance();
        }
    }

    /// Whether an operator requested to abort the rollout of the current revision.
    fn is_abort_requested(&self) -> bool {
        self.input.requests.abort.as_ref() == Some(&self.input.current.reference.hash)
    }

    /// Whether an operator approved this step of the current revision, or all its steps.
    fn is_approved(&self, step: &str) -> bool {
        let approve = self.input.requests.approve.as_ref();
        approve.is_some_and(|it| {
            it.revision == self.input.current.reference.hash && (*it.step == *step || *it.step == *ALL_STEPS)
        })
    }

    /// Ends a rollback if all nodes have returned to the stable revision. Stops the rollback in assist mode, or if
    /// there is no stable revision. Otherwise the rollback continues.
    ///
    /// Rule: in a rollback all nodes are assigned the stable revision. The rollback ends when all of them have an
    /// available pod of that revision. Failures of pods of the stable revision are not counted.
    fn advance_rollback(&mut self) {
        if self.input.is_assisting {
            let why = String::from(&*self.status.message);
            return self.stop_without_rollback(&why);
        }
        if self.input.stable.is_none() {
            return self.stop("NoGoodRevision", "no good revision to roll back to".into());
        }
        if self.input.is_rolled_back {
            if self.status.phase != Some(Phase::RolledBack) {
                let text = String::from("All nodes have the stable revision again");
                self.events.push(KubeEvent::normal("RolledBack", text));
            }
            let message = String::from(strip_waits_for_deletes(&self.status.message));
            self.enter_phase(Phase::RolledBack, message);
        } else {
            let message = strip_waits_for_deletes(&self.status.message);
            let message = match self.input.waits_for_deletes {
                true => format!("{message}; {WAITS_FOR_DELETES_MESSAGE}"),
                false => String::from(message),
            };
            self.status.message = message.into();
        }
    }

    /// Sets the verdict `Bad` for the current revision, and starts a rollback or stops the rollout. `reason` is the
    /// reason of the verdict, and `why` the status message.
    ///
    /// Rule: a failed revision gets the verdict `Bad`. If an operator aborted the rollout, all nodes return to the
    /// stable revision. After a missed deadline, `onDeadline` decides whether the nodes return. After any other
    /// failure, `onFailure` decides: with `Auto`, the nodes return in every step but the last. Exception: without a
    /// stable revision, and in assist mode, the nodes never return.
    fn fail(&mut self, reason: &'static str, why: String) {
        if self.input.current.verdict != Some(RevisionVerdict::Bad) {
            let hash = self.current_hash();
            self.set_verdict(&hash, Some(RevisionVerdict::Bad), reason);
        }
        let is_last = self.status.step.as_ref().is_none_or(|it| self.spec.steps.len() <= it.index + 1);
        let rolls_back = match reason {
            REASON_ABORTED => true,
            REASON_DEADLINE => self.spec.on_deadline == OnDeadline::Rollback,
            _ => match self.spec.on_failure {
                OnFailure::Rollback => true,
                OnFailure::Stop => false,
                OnFailure::Auto => !is_last,
            },
        };
        let phase = if rolls_back { Phase::RollingBack } else { Phase::Stopped };
        match phase {
            Phase::RollingBack if self.input.is_assisting => self.stop_without_rollback(&why),
            Phase::RollingBack if self.input.stable.is_some() => {
                let text = format!("Rolling all nodes back to the stable revision: {why}");
                self.events.push(KubeEvent::warning("RollingBack", text));
                self.enter_phase(Phase::RollingBack, why);
            }
            Phase::RollingBack => {
                self.stop("NoGoodRevision", format!("{why}; no good revision to roll back to"));
            }
            _ => {
                self.unadmit_nodes_without_current_pod();
                self.stop("RolloutStopped", why);
            }
        }
    }

    /// Stops a rollout that would be rolled back if the controller did not run in assist mode. `why` is the start of
    /// the status message.
    ///
    /// Rule: in assist mode there is no rollback. Upstream's controller creates every pod from the current template, so
    /// a deleted pod would get the failed revision again. The rollout stops, and every node keeps its pod until the
    /// template is reverted.
    fn stop_without_rollback(&mut self, why: &str) {
        let message = format!("{why}; {CANNOT_ROLL_BACK_MESSAGE}");
        self.stop(REASON_CANNOT_ROLL_BACK, message);
    }

    /// Ends the admission of the nodes that have no pod of the current revision, so that these nodes are no longer
    /// assigned the current revision.
    ///
    /// Rule: when a rollout stops because its revision failed, a node that does not have the revision does not get it
    /// any more. Exception: nodes that are admitted by their position in the order, not by name, stay admitted.
    fn unadmit_nodes_without_current_pod(&mut self) {
        let with_revision = &self.input.counts.nodes_with_current_pod;
        for admission in &mut self.status.admitted {
            if let AdmittedMembers::Names(names) = &mut admission.members {
                names.retain(|it| with_revision.contains(it));
            }
        }
        self.status
            .admitted
            .retain(|it| !matches!(&it.members, AdmittedMembers::Names(names) if names.is_empty()));
    }

    /// Advances a rollout that goes forward: updates the check results, advances the current step and checks the
    /// deadline. An abort, a failure or a deleted policy ends the rollout instead.
    fn advance(&mut self) {
        if self.is_abort_requested() {
            return self.fail(REASON_ABORTED, ABORTED_MESSAGE.into());
        }
        // Before the failure, so that the status has the result that caused it.
        if self.input.policy.is_some() {
            self.update_checks();
        }
        if self.input.current.verdict == Some(RevisionVerdict::Bad) {
            // The verdict was written, but not the status: the controller restarted in between.
            let reason = match self.input.current.reason.as_deref() {
                Some(REASON_ABORTED) => REASON_ABORTED,
                Some(REASON_DEADLINE) => REASON_DEADLINE,
                _ => REASON_FAILED,
            };
            let message = self.failure_message().unwrap_or_else(|| "the revision failed".into());
            return self.fail(reason, message);
        }
        if let Some(message) = self.failure_message() {
            return self.fail(REASON_FAILED, message);
        }
        if self.input.policy.is_none() && self.input.stored.policy.is_some() {
            return self.stop("PolicyDeleted", POLICY_DELETED_MESSAGE.into());
        }
        self.advance_step();
        self.apply_deadline();
    }

    /// Returns the number of failed nodes for which a step does not wait: admitted nodes that have failed, whose pod
    /// has not been healthy for the soak time yet, and for which `is_counted` returns true.
    ///
    /// Rule: a step does not wait for nodes that failed, as long as their number is tolerated. A failed node that has
    /// recovered or left the cluster is not counted. If it were counted, the step would pass although another node has
    /// not been healthy for the soak time yet.
    fn count_failed_unsoaked_nodes(&self, is_counted: impl Fn(&UnsoakedNode) -> bool) -> usize {
        count_failed_nodes(&self.status.failures, &self.input.counts.unsoaked, is_counted)
    }

    /// Returns why the current revision has failed. `None` if it has not failed.
    ///
    /// Rule: the revision has failed when more nodes failed than `failures.maxNodes` tolerates, when the consecutive
    /// failures of a measured check reach its `failureThreshold`, or when a failure of an external check is reported.
    fn failure_message(&self) -> Option<String> {
        let failures = &self.status.failures;
        if failures.allowed < failures.failed_count() {
            let first = failures.nodes.last();
            let example = first.map_or(String::new(), |it| format!(" ({}: {})", it.reason, it.node));
            let number = self.input.current.reference.number;
            let exposed = self.input.counts.with_current_pod.max(failures.failed_count());
            return Some(format!(
                "revision {number} failed on {} of {exposed} nodes{example}",
                failures.failed_count()
            ));
        }
        let last = |check: &Check| self.status.checks.iter().find(|it| it.name == check.name);
        let failed = |check: &&Check| match check.source {
            CheckSource::External => last(check).is_some_and(|it| it.result == CheckResult::Fail),
            CheckSource::Prometheus(_) | CheckSource::Webhook(_) => {
                self.input.check_failures.get(&check.name).is_some_and(|it| check.failure_threshold <= *it)
            }
        };
        let check = self.spec.checks.iter().find(failed)?;
        let last = last(check).filter(|it| !it.message.is_empty());
        let why = last.map_or(String::new(), |it| format!(": {}", it.message));
        Some(format!("check {:?} failed{why}", &*check.name))
    }

    /// Sets the check results in the status: reported results for external checks, measured results for other checks. A
    /// check without a usable result is inconclusive. Adds an event for each check that begins to fail.
    fn update_checks(&mut self) {
        let (input, stored) = (self.input, &self.status.checks);
        let hash = &input.current.reference.hash;
        let statuses = self.spec.checks.iter().map(|check| {
            check_status(&CheckStatusInput {
                check,
                stored: stored.iter().find(|it| it.name == check.name),
                measured: input.check_results.iter().find(|it| it.name == check.name),
                report: input
                    .requests
                    .check_reports
                    .iter()
                    .find(|it| it.check == check.name && it.revision == *hash),
                is_last_step_passed: self.status.phase == Some(Phase::PartiallyComplete),
                now: input.now,
            })
        });
        self.status.checks = statuses.collect();
        for check in self.status.checks.iter().filter(|it| it.result == CheckResult::Fail) {
            let was_failing = |it: &CheckStatus| it.name == check.name && it.result == CheckResult::Fail;
            if !self.input.stored.checks.iter().any(was_failing) {
                let text = format!("Check {:?} failed: {}", &*check.name, check.message);
                self.events.push(KubeEvent::warning("CheckFailed", text));
            }
        }
    }

    /// Ends a successful rollout. If the current revision is not the stable one yet, only sets the verdict `Good`: a
    /// later plan, made after the verdict is stored, enters `Complete`.
    ///
    /// Rule: a revision gets the verdict `Good` when the last step, or the step `*`, has passed on all eligible nodes,
    /// and there is at least one eligible node.
    fn complete(&mut self) {
        // A good revision that was rolled out again gets a newer verdict, so that it becomes the stable one.
        let hash = self.current_hash();
        if self.input.stable.is_none_or(|it| it.reference.hash != hash) {
            // The next plan, which sees the verdict, enters the phase and records the events.
            self.events.clear();
            return self.set_verdict(&hash, Some(RevisionVerdict::Good), REASON_PASSED);
        }
        let text = format!("Revision {} is on all nodes", self.input.current.reference.number);
        self.events.push(KubeEvent::normal("RolloutComplete", text));
        self.enter_phase(Phase::Complete, String::new());
    }

    /// Updates the time of the last progress, and applies `onDeadline` if the rollout has missed `progressDeadline`.
    ///
    /// Rule: `onDeadline` decides whether a rollout that makes no progress within its deadline is reported, stopped or
    /// rolled back. A rollout makes progress when more nodes are updated or available than in the stored status. The
    /// deadline applies only in the phase `Rolling`, while the rollout is not paused. Exception: a rollout that waits
    /// until users delete pods (`OnDelete`) has no deadline.
    fn apply_deadline(&mut self) {
        let (stored, now) = (&self.input.stored.nodes, self.input.now);
        let nodes = &self.input.counts.nodes;
        let is_rolling = self.status.phase == Some(Phase::Rolling) && self.pause_reason.is_none();
        if !is_rolling {
            return;
        }
        if self.input.waits_for_deletes {
            let message = format!("{}; {WAITS_FOR_DELETES_MESSAGE}", self.status.message)
                .trim_start_matches("; ")
                .into();
            self.status.message = message;
            return;
        }
        // The time during which the rollout could not advance does not count.
        let was_rolling = self.input.stored.phase == Some(Phase::Rolling) && !self.input.stored.paused;
        if !was_rolling || stored.updated < nodes.updated || stored.available < nodes.available {
            self.status.last_progress = Some(now);
        }
        let deadline = self.status.last_progress.unwrap_or(now) + self.spec.progress_deadline;
        if now < deadline {
            self.wake_at = earliest(self.wake_at, Some(deadline));
            return;
        }
        let why = format!("no progress for {} s", self.spec.progress_deadline.as_secs());
        match self.spec.on_deadline {
            OnDeadline::Report => self.status.message = why.into(),
            OnDeadline::Stop | OnDeadline::Rollback => self.fail(REASON_DEADLINE, why),
        }
    }

    /// Sets in the status whether the rollout is paused, decides whether it may replace pods, and returns the output of
    /// [`next_status`].
    fn finish(mut self) -> PhaseOutcome {
        // A verdict is written before the status that follows from it, and seen before pods are replaced.
        let is_judged = self.verdict.is_some();
        let phase = self.status.phase;
        let holds_rollback = self.pause_reason == Some(PauseReason::Operator);
        let may_replace = match phase {
            Some(Phase::RollingBack | Phase::RolledBack) => !holds_rollback,
            Some(Phase::Rolling | Phase::Complete) => self.pause_reason.is_none(),
            _ => false,
        };
        // The stored status must allow it too: the status that ends a stop or a wait is stored before pods are
        // replaced.
        let stored = self.input.stored;
        let is_stored =
            stored.current.as_ref().is_some_and(|it| it.hash == self.input.current.reference.hash);
        let was_held = is_stored
            && matches!(
                stored.phase,
                Some(Phase::Soaking | Phase::Waiting | Phase::PartiallyComplete | Phase::Stopped)
            );
        // Actions are chosen from the stored status: a rollback that is not stored yet would create the failed
        // revision.
        let is_rollback = |it: Option<Phase>| matches!(it, Some(Phase::RollingBack | Phase::RolledBack));
        let is_reversed = is_stored && is_rollback(phase) != is_rollback(stored.phase);
        self.status.paused = match phase {
            Some(Phase::Complete) | None => false,
            Some(phase) if phase.is_failed() => holds_rollback,
            Some(_) => self.pause_reason.is_some(),
        };
        // A failed rollout keeps the message that tells why it failed.
        let is_failed = phase.is_some_and(Phase::is_failed);
        if let Some(by) = self.pause_reason.filter(|_| self.status.paused && !is_failed) {
            self.status.message = by.message().into();
        }
        PhaseOutcome {
            status: self.status,
            verdict: self.verdict,
            events: self.events,
            may_replace: may_replace && !is_judged && !was_held && !is_reversed,
            wake_at: self.wake_at,
        }
    }
}

/// Reason of events and conditions of a rollout that stopped because assist mode cannot roll back.
pub(crate) const REASON_CANNOT_ROLL_BACK: &str = "CannotRollBack";
/// End of the status message of a rollout that stopped because assist mode cannot roll back.
const CANNOT_ROLL_BACK_MESSAGE: &str = "assist mode cannot roll back: revert the template";
/// End of the status message of a rollout that waits until users delete the outdated pods.
const WAITS_FOR_DELETES_MESSAGE: &str =
    "with the update strategy OnDelete a node is updated when its pod is deleted";
/// Status message of a rollout that an operator aborted.
const ABORTED_MESSAGE: &str = "aborted by an operator";
/// Status message of a rollout that stopped because no policy governs the DaemonSet any more.
const POLICY_DELETED_MESSAGE: &str = "the policy was deleted or no longer selects the DaemonSet";

/// Returns a status message without [`WAITS_FOR_DELETES_MESSAGE`] at its end.
fn strip_waits_for_deletes(message: &str) -> &str {
    message.strip_suffix(WAITS_FOR_DELETES_MESSAGE).map_or(message, |it| it.trim_end_matches("; "))
}

/// Whether a rollout has stopped because assist mode cannot roll back.
pub(crate) fn is_stopped_without_rollback(status: &RolloutStatus) -> bool {
    status.phase == Some(Phase::Stopped) && status.message.ends_with(CANNOT_ROLL_BACK_MESSAGE)
}

/// Returns the time after which a node must have been created to get the current revision at once. `None` if no new
/// node gets the current revision at once: with `newNodes: Stable`, in a rollout that failed, and before the first
/// attempt.
///
/// Rule: a node is new if it was created after the attempt started. The creation time of the revision does not suffice:
/// if an earlier template is applied again, or a revision is retried, nodes that joined since the revision was created
/// are not new. New nodes do not get a revision that failed.
pub fn admitted_if_created_after(spec: &PolicySpec, status: &RolloutStatus) -> Option<Time> {
    let is_failed = status.phase.is_some_and(Phase::is_failed);
    status.attempt_started.filter(|_| spec.new_nodes == NewNodeRevision::Latest && !is_failed)
}

/// The steps of a rollout: which nodes they admit, and when they pass.
mod steps;

#[cfg(test)]
mod tests;
