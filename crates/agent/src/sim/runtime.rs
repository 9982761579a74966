//! The fake container runtime of a simulated pod: restores sandboxes and containers from the pod's status, and lets
//! containers exit on their own.

use std::net::Ipv4Addr;

use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::kubelet::fake_runtime::{EXIT_CODE_SIGKILL, FakeRuntime, NewInstance, exit_reason};
use muster_engine::kubelet::pod::{
    Action, ActionOutcome, Container, ContainerState, PodObject, RuntimeState, Sandbox,
};
use serde_json::Value;

use super::behaviour::ExitBehaviour;

/// The sandboxes and containers of one simulated pod, and the exits of containers that are due later.
#[derive(Debug, Default)]
pub(super) struct SimulatedRuntime {
    state: FakeRuntime,
    /// Scheduled exits of containers: the time, the container ID, and the code and reason of the exit.
    exits: Vec<(Time, Text, ExitBehaviour)>,
}

impl SimulatedRuntime {
    /// Restores the runtime state from the pod's status, so that a restarted process finds the containers of the
    /// previous process.
    pub(super) fn restore(object: &PodObject, now: Time) -> Self {
        let status = &object.status;
        let mut runtime = Self::default();
        let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
        for it in lists.into_iter().filter_map(|it| status[it].as_array()).flatten() {
            runtime.restore_container(&object.uid, it, now);
        }
        let has_address = status["podIP"].is_string() && !object.spec.on_host_network;
        if has_address || !runtime.state.containers.is_empty() {
            let addresses = status["podIPs"].as_array().into_iter().flatten();
            let addresses = addresses.filter_map(|it| it["ip"].as_str()).map(Text::from).collect();
            let addresses = if object.spec.on_host_network { Vec::new() } else { addresses };
            let id = sandbox_id(0);
            runtime.state.sandboxes.push(Sandbox { id, attempt: 0, is_ready: true, created: now, addresses });
        }
        runtime
    }

    /// Restores one container from its container status, and its previous instance if the status has one. A container
    /// that has not been started is not restored.
    fn restore_container(&mut self, uid: &str, status: &Value, now: Time) {
        let count = status["restartCount"].as_u64().and_then(|it| u32::try_from(it).ok()).unwrap_or(0);
        let text = |it: &Value| Text::from(it.as_str().unwrap_or_default());
        let id = |it: &Value| it.as_str().and_then(|it| it.split_once("://")).map(|it| Text::from(it.1));
        let container = |id: Text, attempt: u32, state: ContainerState| Container {
            id,
            sandbox: sandbox_id(0),
            name: text(&status["name"]),
            attempt,
            hash: "".into(),
            image: text(&status["image"]),
            image_id: text(&status["imageID"]),
            state,
        };
        let before = |at: &Value| at.as_str().and_then(Time::parse).map_or(now, |it| it.min(now));
        let exited = |it: &Value| ContainerState::Exited {
            code: it["exitCode"].as_i64().and_then(|it| i32::try_from(it).ok()).unwrap_or(0),
            reason: text(&it["reason"]),
            message: text(&it["message"]),
            started: before(&it["startedAt"]),
            finished: before(&it["finishedAt"]),
        };
        let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
        let current = if state["running"].is_object() {
            ContainerState::Running { since: before(&state["running"]["startedAt"]) }
        } else if state["terminated"].is_object() {
            exited(&state["terminated"])
        } else if last.is_object() {
            // The container waits for its restart: its last state is the current one.
            exited(last)
        } else {
            return;
        };
        let current_id =
            id(&status["containerID"]).unwrap_or_else(|| container_id(uid, &text(&status["name"]), count));
        if let Some(id) = id(&last["containerID"]).filter(|it| *it != current_id && 0 < count) {
            self.state.containers.push(container(id, count - 1, exited(last)));
        }
        self.state.containers.push(container(current_id, count, current));
    }

    /// Returns the sandboxes and containers. `change_count` is the number of actions that have changed them.
    pub(super) fn runtime_state(&self, change_count: u64) -> RuntimeState {
        self.state.runtime_state(change_count)
    }

    /// Executes an action that completes immediately. `address` is the pod's own IP address, or `None` for a
    /// hostNetwork pod.
    pub(super) fn execute_instant_action(
        &mut self,
        action: &Action,
        address: Option<Ipv4Addr>,
        now: Time,
    ) -> ActionOutcome {
        let id = match action {
            Action::RunSandbox { attempt } => sandbox_id(*attempt),
            _ => Text::default(),
        };
        let addresses = address.into_iter().map(|it| it.to_string().into()).collect();
        let outcome =
            self.state.execute_action(action, NewInstance { id, addresses, ..NewInstance::default() }, now);
        self.drop_exits_of_stopped_containers();
        // The simulation has no volumes, hooks or logs: these actions succeed.
        outcome.unwrap_or(ActionOutcome::Done)
    }

    /// Executes [`Action::Start`].
    pub(super) fn start_container(
        &mut self,
        uid: &str,
        image: &Text,
        action: &Action,
        now: Time,
    ) -> ActionOutcome {
        let id = match action {
            Action::Start { container, attempt, .. } => container_id(uid, container, *attempt),
            _ => Text::default(),
        };
        let image_id = format!("sim://{image}").into();
        let new = NewInstance { id, image: image.clone(), image_id, ..NewInstance::default() };
        self.state.execute_action(action, new, now).unwrap_or(ActionOutcome::Done)
    }

    /// Schedules the exit of a container that exits on its own. Does nothing if `exit` is `None`. `since` is the start
    /// of the container.
    pub(super) fn schedule_exit(&mut self, id: &Text, exit: Option<ExitBehaviour>, since: Time) {
        if let Some(exit) = exit {
            self.exits.push((since + exit.after, id.clone(), exit));
        }
    }

    /// Returns the time of the next scheduled exit, or `None` if no exit is scheduled.
    pub(super) fn next_exit(&self) -> Option<Time> {
        self.exits.iter().map(|(at, ..)| *at).min()
    }

    /// Marks the containers whose scheduled exit is due as exited.
    pub(super) fn exit_due_containers(&mut self, now: Time) {
        let due: Vec<(Time, Text, ExitBehaviour)> =
            self.exits.extract_if(.., |(at, ..)| *at <= now).collect();
        due.into_iter().for_each(|(_, id, exit)| self.exit_container(&id, exit.code, &exit.reason, now));
    }

    /// Marks a running container as exited. The exit code is [`EXIT_CODE_SIGKILL`] if `is_killed` is true, and
    /// otherwise 0.
    pub(super) fn stop_container(&mut self, id: &Text, is_killed: bool, now: Time) {
        let code = if is_killed { EXIT_CODE_SIGKILL } else { 0 };
        self.exit_container(id, code, exit_reason(code), now);
    }

    pub(super) fn is_running(&self, id: &Text) -> bool {
        self.running_containers().any(|(it, _)| it.id == *id)
    }

    /// Returns the running containers, each with its start time.
    pub(super) fn running_containers(&self) -> impl Iterator<Item = (&Container, Time)> {
        self.state.running_containers()
    }

    /// Marks a running container as exited with this exit code and reason.
    fn exit_container(&mut self, id: &Text, code: i32, reason: &str, now: Time) {
        self.state.exit_container(id, code, reason, now);
        self.drop_exits_of_stopped_containers();
    }

    /// Drops the scheduled exits of containers that no longer run.
    fn drop_exits_of_stopped_containers(&mut self) {
        let Self { state, exits } = self;
        exits.retain(|(_, id, _)| state.running_containers().any(|(it, _)| it.id == *id));
    }
}

/// Returns the ID of a container. A restarted process derives the same ID from the pod's status.
fn container_id(uid: &str, name: &str, attempt: u32) -> Text {
    format!("{uid}/{name}/{attempt}").into()
}

/// Returns the ID of a sandbox. It is unique only within the pod, which is enough for the kubelet rules.
fn sandbox_id(attempt: u32) -> Text {
    format!("sandbox-{attempt}").into()
}
