//! A fake container runtime for simulations. Its containers have no processes. They only change their state when an
//! action or the simulation starts or stops them.

use alloc::vec::Vec;

use muster_api::text::Text;
use muster_api::time::Time;

use super::pod::{Action, ActionOutcome, Container, ContainerState, RuntimeState, Sandbox};

/// Exit code of a container that was killed with SIGKILL.
pub const EXIT_CODE_SIGKILL: i32 = 137;

/// Exit code of a container whose sandbox has crashed. Upstream: `unknownExitCode` of containerd.
const EXIT_CODE_UNKNOWN: i32 = 255;

/// The sandboxes and containers of one pod in a fake container runtime.
#[derive(Clone, Debug, Default)]
pub struct FakeRuntime {
    pub sandboxes: Vec<Sandbox>,
    pub containers: Vec<Container>,
}

/// The properties of a new sandbox or container that the simulation chooses.
#[derive(Clone, Debug, Default)]
pub struct NewInstance {
    /// ID of the sandbox or container.
    pub id: Text,
    /// IP addresses of the sandbox.
    pub addresses: Vec<Text>,
    /// Name of the container's image.
    pub image: Text,
    /// ID of the container's image.
    pub image_id: Text,
}

impl FakeRuntime {
    /// Returns the sandboxes and containers. `change_count` is the value of `Pod::change_count` when they are read.
    pub fn runtime_state(&self, change_count: u64) -> RuntimeState {
        RuntimeState { change_count, sandboxes: self.sandboxes.clone(), containers: self.containers.clone() }
    }

    /// Whether the pod has neither a sandbox nor a container.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// Returns the running containers, each with its start time.
    pub fn running_containers(&self) -> impl Iterator<Item = (&Container, Time)> {
        self.containers.iter().filter_map(|it| match it.state {
            ContainerState::Running { since } => Some((it, since)),
            _ => None,
        })
    }

    /// Executes an action of the pod and returns its outcome. `new` are the properties of the sandbox or container that
    /// the action creates. Returns `None` for an action that does not change the runtime, and for [`Action::Stop`],
    /// whose exit code and duration the simulation chooses: it calls [`Self::exit_container`].
    ///
    /// As in containerd, an attempt number is not used twice, a container is started only in a ready sandbox, and a
    /// sandbox that stops kills its containers.
    pub fn execute_action(&mut self, action: &Action, new: NewInstance, now: Time) -> Option<ActionOutcome> {
        let refused = |reason: &str, message: &str| {
            Some(ActionOutcome::Failed { reason: reason.into(), message: message.into() })
        };
        let NewInstance { id: new_id, addresses, image, image_id } = new;
        match action {
            Action::RunSandbox { attempt } => {
                let attempt = *attempt;
                if self.sandboxes.iter().any(|it| it.attempt == attempt) {
                    return refused("FailedCreatePodSandBox", "the name is reserved");
                }
                self.sandboxes.push(Sandbox { id: new_id, attempt, is_ready: true, created: now, addresses });
            }
            Action::Start { container, sandbox, attempt, hash, .. } => {
                if !self.sandboxes.iter().any(|it| it.id == *sandbox && it.is_ready) {
                    return refused("CreateContainerError", "there is no such sandbox");
                }
                if self.containers.iter().any(|it| it.name == *container && it.attempt == *attempt) {
                    return refused("CreateContainerError", "the name is reserved");
                }
                self.containers.push(Container {
                    id: new_id.clone(),
                    sandbox: sandbox.clone(),
                    name: container.clone(),
                    attempt: *attempt,
                    hash: hash.clone(),
                    image,
                    image_id,
                    state: ContainerState::Running { since: now },
                });
                return Some(ActionOutcome::Started { id: new_id });
            }
            Action::RemoveContainer { id } => self.containers.retain(|it| it.id != *id),
            Action::StopSandbox { id } => {
                self.sandboxes.iter_mut().filter(|it| it.id == *id).for_each(|it| it.is_ready = false);
                let inside = self.containers.iter_mut().filter(|it| it.sandbox == *id);
                inside.for_each(|it| exit(it, EXIT_CODE_SIGKILL, exit_reason(EXIT_CODE_SIGKILL), now));
            }
            Action::RemoveSandbox { id } => {
                self.sandboxes.retain(|it| it.id != *id);
                self.containers.retain(|it| it.sandbox != *id);
            }
            _ => return None,
        }
        Some(ActionOutcome::Done)
    }

    /// Marks the container with this ID as exited, with this exit code and reason. Has no effect if the container is
    /// not running.
    pub fn exit_container(&mut self, id: &str, code: i32, reason: &str, now: Time) {
        let containers = self.containers.iter_mut().filter(|it| *it.id == *id);
        containers.for_each(|it| exit(it, code, reason, now));
    }

    /// Marks all sandboxes as not ready, and all running containers as exited.
    pub fn crash_sandboxes(&mut self, now: Time) {
        self.sandboxes.iter_mut().for_each(|it| it.is_ready = false);
        let reason = exit_reason(EXIT_CODE_UNKNOWN);
        self.containers.iter_mut().for_each(|it| exit(it, EXIT_CODE_UNKNOWN, reason, now));
    }
}

/// Marks a running container as exited.
fn exit(container: &mut Container, code: i32, reason: &str, now: Time) {
    if let ContainerState::Running { since } = container.state {
        let (reason, message) = (reason.into(), "".into());
        container.state = ContainerState::Exited { code, reason, message, started: since, finished: now };
    }
}

/// Returns the reason that a runtime reports for a container that exits with this code. Other reasons, such as
/// `OOMKilled`, do not follow from the exit code.
pub fn exit_reason(code: i32) -> &'static str {
    if code == 0 { "Completed" } else { "Error" }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use core::fmt::Write as _;
    use core::time::Duration;

    use expect_test::expect;

    use super::*;

    /// Describes the sandboxes and containers of a pod.
    fn describe(runtime: &FakeRuntime) -> String {
        let mut text = String::new();
        for it in &runtime.sandboxes {
            write!(text, " {}{}", it.id, if it.is_ready { "" } else { " (not ready)" }).unwrap();
        }
        for it in &runtime.containers {
            match &it.state {
                ContainerState::Exited { code, reason, .. } => {
                    write!(text, " {} exited {code} {reason}", it.id)
                }
                _ => write!(text, " {} runs", it.id),
            }
            .unwrap();
        }
        text
    }

    #[test]
    fn attempts_are_not_reused_and_a_stopped_sandbox_kills_its_containers() {
        let mut runtime = FakeRuntime::default();
        let start = |sandbox: &str, attempt| Action::Start {
            container: "main".into(),
            position: 0,
            sandbox: sandbox.into(),
            attempt,
            hash: "".into(),
        };
        let actions = [
            ("c0", start("s0", 0)),
            ("s0", Action::RunSandbox { attempt: 0 }),
            ("s1", Action::RunSandbox { attempt: 0 }),
            ("c1", start("s0", 0)),
            ("c2", start("s0", 0)),
            (
                "",
                Action::Stop {
                    container: "main".into(),
                    id: "c1".into(),
                    grace: Duration::ZERO,
                    pre_stop: false,
                },
            ),
            ("", Action::StopSandbox { id: "s0".into() }),
            ("c3", start("s0", 1)),
            ("", Action::RemoveSandbox { id: "s0".into() }),
        ];
        let mut text = String::new();
        for (id, action) in actions {
            let new = NewInstance { id: id.into(), ..NewInstance::default() };
            let outcome = runtime.execute_action(&action, new, Time::default());
            writeln!(text, "{action:?}\n  {outcome:?}:{}", describe(&runtime)).unwrap();
        }
        expect![[r#"
            Start { container: "main", position: 0, sandbox: "s0", attempt: 0, hash: "" }
              Some(Failed { reason: "CreateContainerError", message: "there is no such sandbox" }):
            RunSandbox { attempt: 0 }
              Some(Done): s0
            RunSandbox { attempt: 0 }
              Some(Failed { reason: "FailedCreatePodSandBox", message: "the name is reserved" }): s0
            Start { container: "main", position: 0, sandbox: "s0", attempt: 0, hash: "" }
              Some(Started { id: "c1" }): s0 c1 runs
            Start { container: "main", position: 0, sandbox: "s0", attempt: 0, hash: "" }
              Some(Failed { reason: "CreateContainerError", message: "the name is reserved" }): s0 c1 runs
            Stop { container: "main", id: "c1", grace: 0ns, pre_stop: false }
              None: s0 c1 runs
            StopSandbox { id: "s0" }
              Some(Done): s0 (not ready) c1 exited 137 Error
            Start { container: "main", position: 0, sandbox: "s0", attempt: 1, hash: "" }
              Some(Failed { reason: "CreateContainerError", message: "there is no such sandbox" }): s0 (not ready) c1 exited 137 Error
            RemoveSandbox { id: "s0" }
              Some(Done):
        "#]].assert_eq(&text);
        assert!(runtime.is_empty());
    }
}
