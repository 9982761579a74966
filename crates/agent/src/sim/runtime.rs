//! A fake container runtime. Its containers have no processes. They only change their state when the simulated pod
//! starts or stops them, or when their scheduled exit is due.

use std::net::Ipv4Addr;

use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::kubelet::pod::{Action, Container, ContainerState, PodObject, RuntimeState, Sandbox};
use serde_json::Value;

use super::behaviour::{EXIT_CODE_SIGKILL, ExitBehaviour, exit_reason};

/// The sandboxes and containers of one simulated pod.
#[derive(Debug, Default)]
pub(super) struct FakeRuntime {
    sandboxes: Vec<Sandbox>,
    containers: Vec<Container>,
    /// Scheduled exits of containers: the time, the container ID, and the code and reason of the exit.
    exits: Vec<(Time, Text, ExitBehaviour)>,
}

impl FakeRuntime {
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
        if has_address || !runtime.containers.is_empty() {
            let addresses = status["podIPs"].as_array().into_iter().flatten();
            let addresses = addresses.filter_map(|it| it["ip"].as_str()).map(Text::from).collect();
            let addresses = if object.spec.on_host_network { Vec::new() } else { addresses };
            let id = sandbox_id(0);
            runtime.sandboxes.push(Sandbox { id, attempt: 0, is_ready: true, created: now, addresses });
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
            self.containers.push(container(id, count - 1, exited(last)));
        }
        self.containers.push(container(current_id, count, current));
    }

    /// Returns the sandboxes and containers. `change_count` is the number of actions that have changed them.
    pub(super) fn runtime_state(&self, change_count: u64) -> RuntimeState {
        RuntimeState { change_count, sandboxes: self.sandboxes.clone(), containers: self.containers.clone() }
    }

    /// Executes an action that completes immediately. An action that changes no sandbox or container has no effect.
    /// `address` is the pod's own IP address, or `None` for a hostNetwork pod.
    pub(super) fn execute_instant_action(&mut self, action: &Action, address: Option<Ipv4Addr>, now: Time) {
        match action {
            Action::RunSandbox { attempt } => {
                let addresses = address.into_iter().map(|it| it.to_string().into()).collect();
                let id = sandbox_id(*attempt);
                self.sandboxes.push(Sandbox {
                    id,
                    attempt: *attempt,
                    is_ready: true,
                    created: now,
                    addresses,
                });
            }
            Action::RemoveContainer { id } => self.containers.retain(|it| it.id != *id),
            Action::StopSandbox { id } => {
                self.sandboxes.iter_mut().filter(|it| it.id == *id).for_each(|it| it.is_ready = false);
            }
            Action::RemoveSandbox { id } => {
                self.sandboxes.retain(|it| it.id != *id);
                self.containers.retain(|it| it.sandbox != *id);
            }
            _ => {}
        }
    }

    /// Starts the container of [`Action::Start`], and returns its ID.
    pub(super) fn start_container(
        &mut self,
        uid: &str,
        name: &Text,
        image: &Text,
        action: &Action,
        now: Time,
    ) -> Text {
        let Action::Start { sandbox, attempt, hash, .. } = action else { return "".into() };
        let id = container_id(uid, name, *attempt);
        self.containers.push(Container {
            id: id.clone(),
            sandbox: sandbox.clone(),
            name: name.clone(),
            attempt: *attempt,
            hash: hash.clone(),
            image: image.clone(),
            image_id: format!("sim://{image}").into(),
            state: ContainerState::Running { since: now },
        });
        id
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
        self.containers.iter().any(|it| it.id == *id && matches!(it.state, ContainerState::Running { .. }))
    }

    /// Returns the running containers, each with its start time.
    pub(super) fn running_containers(&self) -> impl Iterator<Item = (&Container, Time)> {
        self.containers.iter().filter_map(|it| match it.state {
            ContainerState::Running { since } => Some((it, since)),
            _ => None,
        })
    }

    /// Marks a running container as exited with this exit code and reason.
    fn exit_container(&mut self, id: &Text, code: i32, reason: &str, now: Time) {
        self.exits.retain(|(_, it, _)| it != id);
        for container in self.containers.iter_mut().filter(|it| it.id == *id) {
            if let ContainerState::Running { since } = container.state {
                let (reason, message) = (reason.into(), "".into());
                container.state =
                    ContainerState::Exited { code, reason, message, started: since, finished: now };
            }
        }
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
