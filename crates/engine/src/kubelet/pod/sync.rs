//! The sync of a pod that is not terminating: starts its sandbox, then its init containers one by one, then its main
//! containers. Ephemeral containers start as soon as the sandbox runs. Upstream: `SyncPod`.

use alloc::format;
use alloc::vec::Vec;

use muster_api::core_v1::PodPhase;
use muster_api::text::Text;
use muster_api::time::Time;

use super::pod_object::{ContainerRole, ContainerSpec, RestartPolicy};
use super::running_container::{HookState, KillReason};
use super::{Action, Container, ContainerState, PodStateMachine, PodTermination};

impl PodStateMachine {
    /// Issues the next actions of a pod that is not terminating: prepares it, runs its sandbox, and syncs its
    /// containers. If the pod is complete, sets its terminal phase and starts its termination.
    pub(super) fn sync_running(&mut self, now: Time) {
        if !self.is_prepared {
            self.issue(Action::Prepare, now);
        }
        if let Some(phase) = self.completed_phase() {
            self.final_phase = Some(phase);
            self.tighten_deadline(self.object.spec.grace, now);
            return self.sync_terminating(now);
        }
        let Some(sandbox) = self.ensure_sandbox(now) else { return };
        self.prune_containers(now);
        let object = self.object.clone();
        for container in &object.spec.ephemeral {
            // An ephemeral container starts once, whether or not the others run.
            if self.should_run(container) && self.newest_container(&container.name).is_none() {
                self.start(container, &sandbox, now);
            }
        }
        if !self.sync_init_containers(&sandbox, now) {
            return;
        }
        for container in &object.spec.main {
            self.sync_container(container, &sandbox, now);
            if self.blocks_next(container, &sandbox) {
                break;
            }
        }
    }

    /// Terminates the pod if its active deadline has passed. If the deadline is in the future, requests a sync at that
    /// time. Does nothing for a pod that has no active deadline or is already terminating.
    ///
    /// Rule: a pod becomes Failed when `activeDeadlineSeconds` have passed since its `startTime`.
    pub(super) fn enforce_active_deadline(&mut self, now: Time) {
        let Some(deadline) = self.object.spec.deadline.filter(|_| !self.is_terminating()) else { return };
        let at = self.active_since + deadline;
        if now < at {
            return self.request_sync_at(at);
        }
        let message = "Pod was active on the node longer than the specified deadline";
        self.record_event("DeadlineExceeded", message.into());
        let termination = PodTermination {
            reason: "DeadlineExceeded".into(),
            message: message.into(),
            grace: None,
            is_rejection: false,
            is_disruption: false,
        };
        self.terminate(termination, now);
    }

    /// Returns the terminal phase of a pod that is complete. `None` if the pod is not complete.
    ///
    /// Rule: a pod is complete when none of its main containers runs or will run again, or when an init container
    /// failed and is not restarted. A pod with `restartPolicy: Never` that has had a container is also complete when
    /// its sandbox is no longer ready and no container runs.
    fn completed_phase(&self) -> Option<PodPhase> {
        let spec = &self.object.spec;
        let current = self.newest_sandbox().map(|it| it.id.clone());
        let has_failed = |it: &&ContainerSpec| {
            let last = current.as_ref().and_then(|sandbox| self.newest_in_sandbox(&it.name, sandbox));
            it.role == ContainerRole::Init
                && matches!(last, Some(Container { state: ContainerState::Exited { code, .. }, .. })
                    if *code != 0 && !it.restart.restarts_after(*code))
        };
        if spec.init.iter().any(|it| has_failed(&it)) {
            return Some(PodPhase::Failed);
        }
        if !spec.main.is_empty() && !spec.main.iter().any(|it| self.should_run(it)) {
            let all_succeeded = spec.main.iter().all(|it| self.exit_code(it) == Some(0));
            return Some(if all_succeeded { PodPhase::Succeeded } else { PodPhase::Failed });
        }
        let has_begun = self.runtime_state.as_ref().is_some_and(|it| !it.containers.is_empty());
        let is_broken = self.newest_sandbox().is_some_and(|it| !it.is_ready);
        (spec.restart == RestartPolicy::Never && has_begun && is_broken && !self.is_any_running())
            .then_some(PodPhase::Failed)
    }

    /// Whether the container runs, or is to be started or restarted.
    fn should_run(&self, container: &ContainerSpec) -> bool {
        match self.newest_container(&container.name).map(|it| &it.state) {
            Some(ContainerState::Running { .. } | ContainerState::Created | ContainerState::Unknown) => true,
            _ => self.exit_code(container).is_none_or(|code| self.should_restart(container, code)),
        }
    }

    /// Whether a container is started again after it exited with this code.
    ///
    /// Rule: a container that was stopped because its image changed is started again, whatever the restart policy.
    fn should_restart(&self, container: &ContainerSpec, code: i32) -> bool {
        let is_replaced = self.start_histories.get(&container.name).is_some_and(|it| it.is_replaced);
        is_replaced || container.restart.restarts_after(code)
    }

    /// Returns the exit code of the newest instance of a container. If the runtime has no instance of the container,
    /// the exit code is from the reported status, and it is [`LOST_EXIT_CODE`](super::status::LOST_EXIT_CODE) if that
    /// status is `running`. `None` if the container has not exited.
    pub(super) fn exit_code(&self, container: &ContainerSpec) -> Option<i32> {
        match self.newest_container(&container.name).map(|it| &it.state) {
            Some(ContainerState::Exited { code, .. }) => Some(*code),
            Some(_) => None,
            None => {
                let state = &self.reported_container(&container.name)["state"];
                let code = state["terminated"]["exitCode"].as_i64();
                // The container was reported as running, and the runtime does not have it any more.
                let lost = state["running"].is_object().then_some(super::status::LOST_EXIT_CODE);
                code.and_then(|it| i32::try_from(it).ok()).or(lost)
            }
        }
    }

    /// Returns the ID of the sandbox in which to start containers. Also issues the actions that stop all other
    /// sandboxes and their containers. `None` while no sandbox is usable or an old sandbox still has running
    /// containers. The action that runs the first or a new sandbox is issued when the pod is prepared and all old
    /// sandboxes are stopped.
    fn ensure_sandbox(&mut self, now: Time) -> Option<Text> {
        if self.is_in_flight(|it| matches!(it, Action::RunSandbox { .. })) {
            return None;
        }
        let newest = self.newest_sandbox().cloned();
        let sandboxes = self.runtime_state.iter().flat_map(|it| &it.sandboxes);
        let current = newest.as_ref().filter(|it| self.is_sandbox_usable(it)).map(|it| it.id.clone());
        let outdated: Vec<Text> =
            sandboxes.map(|it| it.id.clone()).filter(|it| Some(it) != current.as_ref()).collect();
        // Containers of a broken sandbox are stopped first.
        let containers: Vec<Container> =
            self.runtime_state.iter().flat_map(|it| it.containers.clone()).collect();
        let mut left = containers.iter().filter(|it| outdated.contains(&it.sandbox) && it.state.may_run());
        let by = now + self.object.spec.grace;
        left.clone().for_each(|it| self.stop(it, by, None, now));
        if left.next().is_some() {
            return None;
        }
        for id in
            outdated.iter().filter(|it| !self.stopped_sandboxes.contains(*it)).cloned().collect::<Vec<_>>()
        {
            self.issue(Action::StopSandbox { id }, now);
        }
        if current.is_some() {
            return current;
        }
        if self.is_prepared && outdated.iter().all(|it| self.stopped_sandboxes.contains(it)) {
            let attempt = newest.map_or(0, |it| it.attempt + 1).max(self.sandbox_attempt_min);
            if self.issue(Action::RunSandbox { attempt }, now) && !outdated.is_empty() {
                let message = "Pod sandbox changed, it will be killed and re-created.";
                self.record_event("SandboxChanged", message.into());
            }
        }
        None
    }

    /// Whether containers can run in this sandbox.
    ///
    /// Rule: a sandbox is usable while it is ready, was not stopped, and has an address. The sandbox of a host-network
    /// pod needs no address.
    pub(super) fn is_sandbox_usable(&self, sandbox: &super::Sandbox) -> bool {
        sandbox.is_ready
            && !self.stopped_sandboxes.contains(&sandbox.id)
            && (self.object.spec.on_host_network || !sandbox.addresses.is_empty())
    }

    /// Returns the sandbox with the highest attempt number. `None` if the runtime has no sandbox of the pod.
    pub(super) fn newest_sandbox(&self) -> Option<&super::Sandbox> {
        self.runtime_state.iter().flat_map(|it| &it.sandboxes).max_by_key(|it| it.attempt)
    }

    /// Returns the newest instance of the container with this name in the sandbox with this ID. `None` if there is
    /// none.
    fn newest_in_sandbox(&self, name: &str, sandbox: &str) -> Option<&Container> {
        self.newest_instance(|it| *it.name == *name && *it.sandbox == *sandbox)
    }

    /// Syncs the init container whose turn it is, and all sidecars before it. Returns whether the main containers may
    /// start.
    ///
    /// Rule: init containers run one after the other, each to completion. A sidecar keeps running, and the container
    /// after it starts as soon as the sidecar has started. The progress is read from the last init container that was
    /// started in this sandbox, because earlier init containers may have been removed.
    fn sync_init_containers(&mut self, sandbox: &Text, now: Time) -> bool {
        let object = self.object.clone();
        let (spec, init) = (&object.spec, &object.spec.init);
        let was_started = |it: &ContainerSpec| self.newest_in_sandbox(&it.name, sandbox).is_some();
        let last = if spec.main.iter().any(was_started) {
            init.len()
        } else {
            match init.iter().rposition(was_started) {
                Some(last) if self.is_initialized(&init[last], sandbox) => last + 1,
                Some(last) => last,
                None => 0,
            }
        };
        for (index, container) in init.iter().enumerate() {
            if index == last || (index < last && container.role == ContainerRole::Sidecar) {
                self.sync_container(container, sandbox, now);
            }
        }
        last == init.len()
    }

    /// Whether this init container or sidecar no longer blocks the next container: in this sandbox, the init container
    /// has succeeded, or the sidecar has started.
    fn is_initialized(&self, container: &ContainerSpec, sandbox: &Text) -> bool {
        match self.newest_in_sandbox(&container.name, sandbox) {
            Some(Container { state: ContainerState::Exited { code, .. }, .. }) => {
                container.role == ContainerRole::Init && *code == 0
            }
            Some(Container { state: ContainerState::Running { .. }, id, .. }) => {
                container.role == ContainerRole::Sidecar && self.is_started(id)
            }
            _ => false,
        }
    }

    /// Starts the container if it should run and does not. Stops it if it must be killed, if its image in the spec has
    /// changed, or if its state is unknown. Removes an instance that was created and never started.
    fn sync_container(&mut self, container: &ContainerSpec, sandbox: &Text, now: Time) {
        let name = &container.name;
        let Some(last) = self.newest_in_sandbox(name, sandbox).cloned() else {
            // Init containers run again in each new sandbox, others only if they are to be restarted.
            if container.role == ContainerRole::Init || self.should_run(container) {
                self.start(container, sandbox, now);
            }
            return;
        };
        match last.state {
            ContainerState::Exited { code, .. } if self.should_restart(container, code) => {
                self.start(container, sandbox, now)
            }
            ContainerState::Exited { .. } => {}
            ContainerState::Created => {
                // It was created, but the agent died before it could start it.
                if !self.is_in_flight(|it| it.container_name() == Some(name)) {
                    self.issue(Action::RemoveContainer { id: last.id }, now);
                }
            }
            ContainerState::Unknown => self.stop(&last, now + self.object.spec.grace, None, now),
            ContainerState::Running { .. } => {
                let Some(running) = self.running_containers.get_mut(&last.id) else { return };
                let is_outdated = !last.hash.is_empty() && last.hash != container.hash();
                if is_outdated && running.kill.is_none() {
                    let message = format!("Container {name} definition changed, will be restarted");
                    running.kill = Some(KillReason { message, grace: None });
                    self.start_histories.entry(name.clone()).or_default().is_replaced = true;
                }
                let Some(running) = self.running_containers.get(&last.id) else { return };
                if let Some(kill) = running.kill.clone() {
                    let grace = kill.grace.unwrap_or(self.object.spec.grace);
                    self.stop(&last, now + grace, Some(kill.message), now);
                }
            }
        }
    }

    /// Whether the next main container must wait, because this container has a postStart hook that has not completed. A
    /// container that cannot start now, for example during a backoff, does not block the next one.
    fn blocks_next(&self, container: &ContainerSpec, sandbox: &Text) -> bool {
        if !container.has_post_start {
            return false;
        }
        match self.newest_in_sandbox(&container.name, sandbox) {
            Some(Container { state: ContainerState::Running { .. }, id, .. }) => {
                self.running_containers.get(id).is_some_and(|it| it.hook == HookState::Pending)
            }
            Some(_) => false,
            None => {
                self.should_run(container)
                    && self.start_histories.get(&container.name).is_none_or(|it| it.waiting.is_none())
            }
        }
    }

    /// Removes old terminated containers, and stopped sandboxes without containers, except the newest sandbox.
    ///
    /// Rule: the newest instance of a container and the instance before it are kept, for their logs and state. Older
    /// instances are removed once they have terminated.
    fn prune_containers(&mut self, now: Time) {
        let Some(runtime_state) = &self.runtime_state else { return };
        let newer = |it: &Container| {
            runtime_state
                .containers
                .iter()
                .filter(|other| other.name == it.name && it.attempt < other.attempt)
                .count()
        };
        let old = runtime_state
            .containers
            .iter()
            .filter(|it| matches!(it.state, ContainerState::Exited { .. }) && 2 <= newer(it));
        let old: Vec<Text> = old.map(|it| it.id.clone()).collect();
        let current = self.newest_sandbox().map(|it| it.id.clone());
        let is_empty = |id: &Text| !runtime_state.containers.iter().any(|it| it.sandbox == *id);
        let ids = runtime_state.sandboxes.iter().map(|it| it.id.clone());
        let empty: Vec<Text> = ids
            .filter(|it| Some(it) != current.as_ref() && self.stopped_sandboxes.contains(it) && is_empty(it))
            .collect();
        old.into_iter().for_each(|id| _ = self.issue(Action::RemoveContainer { id }, now));
        empty.into_iter().for_each(|id| _ = self.issue(Action::RemoveSandbox { id }, now));
    }
}

impl RestartPolicy {
    /// Whether a container with this restart policy is restarted after it exited with this code.
    ///
    /// Rule: with the policy Always a terminated container is restarted, with Never it is not. With OnFailure it is
    /// restarted only if its exit code is not 0. Upstream: `ShouldContainerBeRestarted`.
    pub fn restarts_after(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

impl ContainerState {
    /// Whether the container runs, or may run because its state is unknown.
    pub(super) fn may_run(&self) -> bool {
        matches!(self, Self::Running { .. } | Self::Unknown)
    }
}
