//! The termination of a pod: stops its containers, then its sandboxes, then removes its files. Upstream:
//! `SyncTerminatingPod`, `SyncTerminatedPod`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::core_v1::PodPhase;
use muster_api::text::Text;
use muster_api::time::Time;

use super::running_container::{HookState, RunningContainer};
use super::{Action, CleanupState, Container, PodStateMachine};

/// Grace period for stopping the containers of a pod that no longer exists on the API server. Upstream:
/// `minimumGracePeriodInSeconds`.
pub(super) const REMOVED_POD_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Minimum difference between two stop deadlines. While a container is being stopped, [`Action::Stop`] is issued again
/// only if the new deadline is earlier by more than this difference. A smaller difference can be due to rounding,
/// because grace periods are in whole seconds.
const GRACE_CHANGE_MIN: Duration = Duration::from_secs(1);

impl PodStateMachine {
    /// Whether the pod is terminating or has terminated, so that no container is started any more.
    pub(super) fn is_terminating(&self) -> bool {
        self.is_removed_from_api
            || self.object.deletion_grace.is_some()
            || self.termination.is_some()
            || self.final_phase.is_some()
    }

    /// Whether the pod is being deleted or no longer exists on the API server.
    pub(super) fn is_deleting(&self) -> bool {
        self.is_removed_from_api || self.object.deletion_grace.is_some()
    }

    /// Sets the deadline of the termination to `now` plus `grace`, unless an earlier deadline is already set. By this
    /// deadline, all containers must have terminated.
    pub(super) fn tighten_deadline(&mut self, grace: Duration, now: Time) {
        let by = now + grace;
        self.terminate_by = Some(self.terminate_by.map_or(by, |it| it.min(by)));
    }

    /// Sets the deadline of the termination to `now` plus the deletion grace period, if the pod is being deleted and no
    /// earlier deadline is set.
    pub(super) fn tighten_deadline_by_deletion(&mut self, now: Time) {
        if let Some(grace) = self.object.deletion_grace {
            self.tighten_deadline(grace, now);
        }
    }

    /// Issues the next actions of a terminating pod: stops its containers, then its sandboxes, then cleans up. If the
    /// pod is being deleted, also removes its containers, sandboxes and logs as soon as its status is written, and then
    /// deletes the pod from the API server, unless the pod is static or no longer exists there.
    pub(super) fn sync_terminating(&mut self, now: Time) {
        let by = self.terminate_by.unwrap_or(now + self.object.spec.grace);
        let last = self.containers_to_stop();
        last.iter().for_each(|it| self.stop(it, by, None, now));
        let is_starting = |it: &Action| matches!(it, Action::Start { .. } | Action::RunSandbox { .. });
        if !last.is_empty() || self.is_in_flight(is_starting) {
            return;
        }
        if self.final_phase.is_none() {
            self.final_phase = Some(self.phase_after_termination());
        }
        let sandboxes: Vec<Text> =
            self.runtime_state.iter().flat_map(|it| &it.sandboxes).map(|it| it.id.clone()).collect();
        let (done, rest): (Vec<_>, Vec<_>) =
            sandboxes.into_iter().partition(|it| self.stopped_sandboxes.contains(it));
        let is_stopped = rest.is_empty();
        rest.into_iter().for_each(|id| _ = self.issue(Action::StopSandbox { id }, now));
        if !is_stopped || self.is_in_flight(|it| matches!(it, Action::Prepare)) {
            return;
        }
        if !self.is_deleting() {
            self.is_prepared = false;
            if self.cleanup == CleanupState::NotStarted {
                self.issue(Action::CleanUp { with_logs: false }, now);
            }
            return;
        }
        // The exit codes are lost once the containers are removed.
        if !self.is_reported(now) {
            return;
        }
        let without_sandbox =
            self.runtime_state.iter().flat_map(|it| &it.containers).filter(|it| !done.contains(&it.sandbox));
        let without_sandbox: Vec<Text> = without_sandbox.map(|it| it.id.clone()).collect();
        if !done.is_empty() || !without_sandbox.is_empty() {
            done.into_iter().for_each(|id| _ = self.issue(Action::RemoveSandbox { id }, now));
            without_sandbox.into_iter().for_each(|id| _ = self.issue(Action::RemoveContainer { id }, now));
        } else if self.cleanup != CleanupState::Done {
            self.issue(Action::CleanUp { with_logs: true }, now);
        } else if !self.is_removed_from_api && !self.object.is_static {
            self.issue(Action::Delete, now);
        }
    }

    /// Returns the containers to stop now.
    ///
    /// Rule: all containers that are not sidecars are stopped concurrently. Then sidecars are stopped one by one, in
    /// reverse order of the spec.
    fn containers_to_stop(&self) -> Vec<Container> {
        let running = self.runtime_state.iter().flat_map(|it| &it.containers).filter(|it| it.state.may_run());
        let sidecar_index =
            |it: &Container| self.object.spec.sidecars().position(|sidecar| sidecar.name == it.name);
        let first: Option<Option<usize>> =
            running.clone().map(sidecar_index).max_by_key(|it| it.map_or(usize::MAX, |it| it));
        running.filter(|it| first == Some(sidecar_index(it))).cloned().collect()
    }

    /// Issues [`Action::Stop`] for a container. `by` is the deadline of the stop. A further call with an earlier
    /// deadline shortens the grace period. `why` is the message of the event `Killing`, which the first call records.
    /// `None` means the default message.
    pub(super) fn stop(&mut self, container: &Container, by: Time, why: Option<String>, now: Time) {
        let (id, name) = (container.id.clone(), container.name.clone());
        let has_hook = self.object.spec.find_container(&name).is_some_and(|it| it.has_pre_stop);
        let is_stopping =
            self.is_in_flight(|it| matches!(it, Action::Stop { id, .. } if *id == container.id));
        let before = self.running_containers.get(&id).and_then(|it| it.stop_by);
        if is_stopping && before.is_none_or(|before| before <= by + GRACE_CHANGE_MIN) {
            return;
        }
        let by = before.map_or(by, |it| it.min(by));
        let grace = by.since(now);
        let pre_stop = before.is_none() && has_hook && !grace.is_zero();
        if !self.issue(Action::Stop { container: name.clone(), id: id.clone(), grace, pre_stop }, now) {
            return;
        }
        let running = self
            .running_containers
            .entry(id)
            .or_insert_with(|| RunningContainer::new(&name, now, HookState::Done));
        running.stop_by = Some(by);
        if before.is_none() {
            self.record_event("Killing", why.unwrap_or_else(|| format!("Stopping container {name}")));
        }
    }

    /// Whether any container of the pod runs, may run because its state is unknown, or is being started.
    pub(super) fn is_any_running(&self) -> bool {
        self.is_in_flight(|it| matches!(it, Action::Start { .. }))
            || self.runtime_state.iter().flat_map(|it| &it.containers).any(|it| it.state.may_run())
    }

    /// Returns the terminal phase of the pod, when all its containers have stopped.
    ///
    /// Rule: a pod that the node has terminated on its own (see [`PodTermination`](super::PodTermination)) is Failed. A
    /// pod that was deleted is Succeeded if it has main containers and all of them exited with code 0. Otherwise it is
    /// Failed.
    fn phase_after_termination(&self) -> PodPhase {
        let main = &self.object.spec.main;
        let all_succeeded = !main.is_empty() && main.iter().all(|it| self.exit_code(it) == Some(0));
        if self.termination.is_none() && all_succeeded { PodPhase::Succeeded } else { PodPhase::Failed }
    }
}
