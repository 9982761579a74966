//! A simulated container runtime. Its sandboxes and containers survive a restart of the kubelet.

use std::collections::BTreeMap;

use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::kubelet::fake_runtime::{FakeRuntime, NewInstance, exit_reason};
use muster_engine::kubelet::pod::{Action, ActionOutcome, Container, ContainerState, RuntimeState};

/// Exit code of a container that is stopped within its grace period: SIGTERM has terminated it.
const EXIT_CODE_SIGTERM: i32 = 143;

/// The simulated container runtime of one node.
#[derive(Clone, Debug, Default)]
pub struct SimRuntime {
    /// Sandboxes and containers of each pod, by pod UID.
    pods: BTreeMap<Text, FakeRuntime>,
    /// Number of actions so far, from which the IDs of sandboxes and containers are made.
    ids: u64,
}

impl SimRuntime {
    /// Returns the sandboxes and containers of a pod. `change_count` is the kubelet's change count at the time of the
    /// query.
    pub fn runtime_state(&self, uid: &str, change_count: u64) -> RuntimeState {
        self.pods.get(uid).map_or_else(
            || RuntimeState { change_count, ..RuntimeState::default() },
            |it| it.runtime_state(change_count),
        )
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

    /// Returns the running containers of a pod, each with its start time.
    pub fn running_containers(&self, uid: &str) -> impl Iterator<Item = (&Container, Time)> {
        self.pods.get(uid).into_iter().flat_map(FakeRuntime::running_containers)
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
        self.pods.retain(|_, it| !it.is_empty());
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
        self.ids += 1;
        let id = self.ids;
        let pod = self.pods.entry(uid.clone()).or_default();
        if let Action::Stop { id, .. } = action {
            pod.exit_container(id, EXIT_CODE_SIGTERM, exit_reason(EXIT_CODE_SIGTERM), now);
            return Some(ActionOutcome::Done);
        }
        let prefix = if matches!(action, Action::RunSandbox { .. }) { 's' } else { 'c' };
        let new = NewInstance {
            id: format!("{prefix}{id}").into(),
            addresses: [format!("10.0.{}.{}", id / 256, id % 256).into()].into(),
            image: image.clone(),
            image_id: image.clone(),
        };
        pod.execute_action(action, new, now)
    }

    /// Simulates the exit of the container with this ID, with this exit code. Has no effect if the container is not
    /// running.
    pub fn exit_container(&mut self, uid: &str, id: &str, code: i32, now: Time) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.exit_container(id, code, exit_reason(code), now);
        }
    }

    /// Simulates the crash of all sandboxes of a pod and of the containers in them.
    pub fn crash_sandboxes(&mut self, uid: &str, now: Time) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.crash_sandboxes(now);
        }
    }

    /// Simulates a reboot of the machine. Sandboxes and containers still exist, but none of them is running.
    pub fn reboot(&mut self, now: Time) {
        self.pods.values_mut().for_each(|it| it.crash_sandboxes(now));
    }
}

pub fn is_running_state(state: &ContainerState) -> bool {
    matches!(state, ContainerState::Running { .. })
}
