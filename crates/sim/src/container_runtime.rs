//! A simulated container runtime. Its sandboxes and containers survive a restart of the kubelet.

use std::collections::BTreeMap;

use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::kubelet::pod::{Action, ActionOutcome, Container, ContainerState, RuntimeState, Sandbox};

/// The simulated container runtime of one node.
#[derive(Clone, Debug, Default)]
pub struct SimRuntime {
    /// Sandboxes and containers of each pod, by pod UID.
    pods: BTreeMap<Text, RuntimeState>,
    /// Number of actions so far, from which the IDs of sandboxes and containers are made.
    ids: u64,
}

impl SimRuntime {
    /// Returns the sandboxes and containers of a pod. `change_count` is the kubelet's change count at the time of the
    /// query.
    pub fn runtime_state(&self, uid: &str, change_count: u64) -> RuntimeState {
        RuntimeState { change_count, ..self.pods.get(uid).cloned().unwrap_or_default() }
    }

    /// Returns the UIDs of pods with a sandbox or container.
    pub fn pod_uids(&self) -> impl Iterator<Item = &Text> {
        self.pods.keys()
    }

    /// Whether a container of the pod is running.
    pub fn is_running(&self, uid: &str) -> bool {
        self.running_containers(uid).next().is_some()
    }

    /// Whether the pod has a sandbox or container.
    pub fn has_pod(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// Returns the running containers of a pod.
    pub fn running_containers(&self, uid: &str) -> impl Iterator<Item = &Container> {
        self.pods.get(uid).into_iter().flat_map(|it| &it.containers).filter(|it| is_running_state(&it.state))
    }

    /// Executes a kubelet action on the runtime, and forgets pods without sandboxes and containers. Returns the outcome
    /// of the action, or `None` for an action that does not concern the runtime.
    pub fn execute_action(
        &mut self,
        uid: &Text,
        action: &Action,
        image: &Text,
        now: Time,
    ) -> Option<ActionOutcome> {
        let outcome = self.apply_action(uid, action, image, now);
        self.pods.retain(|_, it| !it.sandboxes.is_empty() || !it.containers.is_empty());
        outcome
    }

    /// Executes a kubelet action on the runtime. Returns the outcome of the action, or `None` for an action that does
    /// not concern the runtime.
    fn apply_action(
        &mut self,
        uid: &Text,
        action: &Action,
        image: &Text,
        now: Time,
    ) -> Option<ActionOutcome> {
        let refused = |message: &str| {
            Some(ActionOutcome::Failed { reason: "CreateContainerError".into(), message: message.into() })
        };
        self.ids += 1;
        let id = self.ids;
        let pod = self.pods.entry(uid.clone()).or_default();
        let done = match action {
            Action::RunSandbox { attempt } => {
                if pod.sandboxes.iter().any(|it| it.attempt == *attempt) {
                    return refused("the name is reserved");
                }
                pod.sandboxes.push(Sandbox {
                    id: format!("s{id}").into(),
                    attempt: *attempt,
                    is_ready: true,
                    created: now,
                    addresses: [format!("10.0.{}.{}", id / 256, id % 256).into()].into(),
                });
                ActionOutcome::Done
            }
            Action::Start { container, sandbox, attempt, hash, .. } => {
                if !pod.sandboxes.iter().any(|it| it.id == *sandbox && it.is_ready) {
                    return refused("there is no such sandbox");
                }
                if pod.containers.iter().any(|it| it.name == *container && it.attempt == *attempt) {
                    return refused("the name is reserved");
                }
                let id: Text = format!("c{id}").into();
                pod.containers.push(Container {
                    id: id.clone(),
                    sandbox: sandbox.clone(),
                    name: container.clone(),
                    attempt: *attempt,
                    hash: hash.clone(),
                    image: image.clone(),
                    image_id: image.clone(),
                    state: ContainerState::Running { since: now },
                });
                ActionOutcome::Started { id }
            }
            Action::Stop { id, .. } => {
                self.exit_container(uid, id, 143, now);
                ActionOutcome::Done
            }
            Action::RemoveContainer { id } => {
                pod.containers.retain(|it| it.id != *id);
                ActionOutcome::Done
            }
            Action::StopSandbox { id } => {
                let sandbox = id.clone();
                pod.sandboxes.iter_mut().filter(|it| it.id == *id).for_each(|it| it.is_ready = false);
                let inside = pod.containers.iter().filter(|it| it.sandbox == sandbox);
                let inside: Vec<Text> = inside.map(|it| it.id.clone()).collect();
                inside.iter().for_each(|it| self.exit_container(uid, it, 137, now));
                ActionOutcome::Done
            }
            Action::RemoveSandbox { id } => {
                pod.sandboxes.retain(|it| it.id != *id);
                pod.containers.retain(|it| it.sandbox != *id);
                ActionOutcome::Done
            }
            _ => return None,
        };
        Some(done)
    }

    /// Simulates the exit of the container with this ID, with this exit code. Has no effect if the container is not
    /// running.
    pub fn exit_container(&mut self, uid: &str, id: &str, code: i32, now: Time) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        for container in pod.containers.iter_mut().filter(|it| *it.id == *id) {
            if let ContainerState::Running { since } = container.state {
                let reason = if code == 0 { "Completed" } else { "Error" }.into();
                let (started, finished, message) = (since, now, "".into());
                container.state = ContainerState::Exited { code, reason, message, started, finished };
            }
        }
    }

    /// Simulates the crash of all sandboxes of a pod and of the containers in them.
    pub fn crash_sandboxes(&mut self, uid: &str, now: Time) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.sandboxes.iter_mut().for_each(|it| it.is_ready = false);
        let ids: Vec<Text> = pod.containers.iter().map(|it| it.id.clone()).collect();
        ids.iter().for_each(|it| self.exit_container(uid, it, 255, now));
    }

    /// Simulates a reboot of the machine. Sandboxes and containers still exist, but none of them is running.
    pub fn reboot(&mut self, now: Time) {
        let uids: Vec<Text> = self.pods.keys().cloned().collect();
        uids.iter().for_each(|it| self.crash_sandboxes(it, now));
    }
}

pub fn is_running_state(state: &ContainerState) -> bool {
    matches!(state, ContainerState::Running { .. })
}
