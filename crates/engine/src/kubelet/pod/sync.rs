//! A pod that is to run: its sandbox, then its init containers one by one, then all others.

use alloc::format;
use alloc::vec::Vec;

use muster_api::text::Text;
use muster_api::time::Time;

use super::running_container::{Hook, Kill};
use super::spec::{ContainerSpec, Restart, Role};
use super::{Action, Container, Ending, Pod, State};
use crate::daemonset::facts::Phase;

impl Pod {
    pub(super) fn run(&mut self, now: Time) {
        if !self.is_prepared {
            self.give(Action::Prepare, now);
        }
        if let Some(phase) = self.finished() {
            self.ended = Some(phase);
            self.limit(self.object.spec.grace, now);
            return self.wind_down(now);
        }
        let Some(sandbox) = self.sandbox(now) else { return };
        self.prune(now);
        let object = self.object.clone();
        for container in &object.spec.ephemeral {
            // An ephemeral container starts once, whether or not the others run.
            if self.wants(container) && self.newest(&container.name).is_none() {
                self.start(container, &sandbox, now);
            }
        }
        if !self.initialize(&sandbox, now) {
            return;
        }
        for container in &object.spec.main {
            self.keep(container, &sandbox, now);
            if self.holds_up_the_next(container, &sandbox) {
                break;
            }
        }
    }

    /// Rule: a pod on its node longer than its deadline has failed.
    pub(super) fn expire(&mut self, now: Time) {
        let Some(deadline) = self.object.spec.deadline.filter(|_| !self.is_ending()) else { return };
        let at = self.begun + deadline;
        if now < at {
            return self.wake(at);
        }
        let message = "Pod was active on the node longer than the specified deadline";
        self.note("DeadlineExceeded", message.into());
        let ending = Ending {
            reason: "DeadlineExceeded".into(),
            message: message.into(),
            grace: None,
            is_rejection: false,
            is_disruption: false,
        };
        self.end(ending, now);
    }

    /// Rule: a pod has run to its end once none of its main containers runs or will run again, or an init container failed
    /// that is not begun again. A sandbox that broke under a pod that is never begun again ends it too.
    fn finished(&self) -> Option<Phase> {
        let spec = &self.object.spec;
        let current = self.newest_sandbox().map(|it| it.id.clone());
        let has_failed = |it: &&ContainerSpec| {
            let last = current.as_ref().and_then(|sandbox| self.newest_in(&it.name, sandbox));
            it.role == Role::Init
                && matches!(last, Some(Container { state: State::Exited { code, .. }, .. })
                    if *code != 0 && !it.restart.begins_again(*code))
        };
        if spec.init.iter().any(|it| has_failed(&it)) {
            return Some(Phase::Failed);
        }
        if !spec.main.is_empty() && !spec.main.iter().any(|it| self.wants(it)) {
            let all_well = spec.main.iter().all(|it| self.exit_code(it) == Some(0));
            return Some(if all_well { Phase::Succeeded } else { Phase::Failed });
        }
        let has_begun = self.seen.as_ref().is_some_and(|it| !it.containers.is_empty());
        let is_broken = self.newest_sandbox().is_some_and(|it| !it.is_ready);
        (spec.restart == Restart::Never && has_begun && is_broken && !self.is_any_running())
            .then_some(Phase::Failed)
    }

    /// Whether the container runs, or is to be begun.
    fn wants(&self, container: &ContainerSpec) -> bool {
        match self.newest(&container.name).map(|it| &it.state) {
            Some(State::Running { .. } | State::Created | State::Unknown) => true,
            _ => self.exit_code(container).is_none_or(|code| self.comes_again(container, code)),
        }
    }

    /// Rule: a container that was ended because its image changed comes again, whatever the policy.
    fn comes_again(&self, container: &ContainerSpec, code: i32) -> bool {
        let is_replaced = self.start_histories.get(&container.name).is_some_and(|it| it.is_replaced);
        is_replaced || container.restart.begins_again(code)
    }

    /// How it last ended, as far as anybody knows.
    pub(super) fn exit_code(&self, container: &ContainerSpec) -> Option<i32> {
        match self.newest(&container.name).map(|it| &it.state) {
            Some(State::Exited { code, .. }) => Some(*code),
            Some(_) => None,
            None => {
                let state = &self.known(&container.name)["state"];
                let code = state["terminated"]["exitCode"].as_i64();
                // It ran, and is gone without a trace.
                let lost = state["running"].is_object().then_some(super::status::LOST);
                code.and_then(|it| i32::try_from(it).ok()).or(lost)
            }
        }
    }

    /// The sandbox to start containers in, once there is one.
    fn sandbox(&mut self, now: Time) -> Option<Text> {
        if self.is_under_way(|it| matches!(it, Action::RunSandbox { .. })) {
            return None;
        }
        let newest = self.newest_sandbox().cloned();
        let sandboxes = self.seen.iter().flat_map(|it| &it.sandboxes);
        let current = newest.as_ref().filter(|it| self.is_sound(it)).map(|it| it.id.clone());
        let outdated: Vec<Text> =
            sandboxes.map(|it| it.id.clone()).filter(|it| Some(it) != current.as_ref()).collect();
        // Containers of a sandbox that broke are not left to themselves.
        let containers: Vec<Container> = self.seen.iter().flat_map(|it| it.containers.clone()).collect();
        let mut left = containers.iter().filter(|it| outdated.contains(&it.sandbox) && it.state.may_run());
        let by = now + self.object.spec.grace;
        left.clone().for_each(|it| self.stop(it, by, None, now));
        if left.next().is_some() {
            return None;
        }
        for id in outdated.iter().filter(|it| !self.stopped.contains(*it)).cloned().collect::<Vec<_>>() {
            self.give(Action::StopSandbox { id }, now);
        }
        if current.is_some() {
            return current;
        }
        if self.is_prepared && outdated.iter().all(|it| self.stopped.contains(it)) {
            let attempt = newest.map_or(0, |it| it.attempt + 1).max(self.sandbox_attempt_min);
            if self.give(Action::RunSandbox { attempt }, now) && !outdated.is_empty() {
                let message = "Pod sandbox changed, it will be killed and re-created.";
                self.note("SandboxChanged", message.into());
            }
        }
        None
    }

    /// Rule: a sandbox is sound while it is ready and has an address, unless the pod is on the node's own network.
    pub(super) fn is_sound(&self, sandbox: &super::Sandbox) -> bool {
        sandbox.is_ready
            && !self.stopped.contains(&sandbox.id)
            && (self.object.spec.on_host_network || !sandbox.addresses.is_empty())
    }

    pub(super) fn newest_sandbox(&self) -> Option<&super::Sandbox> {
        self.seen.iter().flat_map(|it| &it.sandboxes).max_by_key(|it| it.attempt)
    }

    fn newest_in(&self, name: &str, sandbox: &str) -> Option<&Container> {
        let all = self.seen.iter().flat_map(|it| &it.containers);
        all.filter(|it| *it.name == *name && *it.sandbox == *sandbox).max_by_key(|it| it.attempt)
    }

    /// Rule: init containers run one after the other, each to its end; a sidecar among them only has to have started, and is
    /// kept running from then on. Whether that is so is read from the last of them that has begun in this sandbox: earlier
    /// ones may have been cleared away. Answers whether all is ready for the main containers.
    fn initialize(&mut self, sandbox: &Text, now: Time) -> bool {
        let object = self.object.clone();
        let (spec, init) = (&object.spec, &object.spec.init);
        let has_begun = |it: &ContainerSpec| self.newest_in(&it.name, sandbox).is_some();
        let last = if spec.main.iter().any(has_begun) {
            init.len()
        } else {
            match init.iter().rposition(has_begun) {
                Some(last) if self.is_initialized(&init[last], sandbox) => last + 1,
                Some(last) => last,
                None => 0,
            }
        };
        for (place, container) in init.iter().enumerate() {
            if place == last || (place < last && container.role == Role::Sidecar) {
                self.keep(container, sandbox, now);
            }
        }
        last == init.len()
    }

    fn is_initialized(&self, container: &ContainerSpec, sandbox: &Text) -> bool {
        match self.newest_in(&container.name, sandbox) {
            Some(Container { state: State::Exited { code, .. }, .. }) => {
                container.role == Role::Init && *code == 0
            }
            Some(Container { state: State::Running { .. }, id, .. }) => {
                container.role == Role::Sidecar && self.is_started(id)
            }
            _ => false,
        }
    }

    /// Starts a container that is to run, ends one that is not to run as it is.
    fn keep(&mut self, container: &ContainerSpec, sandbox: &Text, now: Time) {
        let name = &container.name;
        let Some(last) = self.newest_in(name, sandbox).cloned() else {
            // Init containers run again in each sandbox; of the others only those that have not ended for good.
            if container.role == Role::Init || self.wants(container) {
                self.start(container, sandbox, now);
            }
            return;
        };
        match last.state {
            State::Exited { code, .. } if self.comes_again(container, code) => {
                self.start(container, sandbox, now)
            }
            State::Exited { .. } => {}
            State::Created => {
                // Whoever made it did not get to start it.
                if !self.is_under_way(|it| it.container() == Some(name)) {
                    self.give(Action::RemoveContainer { id: last.id }, now);
                }
            }
            State::Unknown => self.stop(&last, now + self.object.spec.grace, None, now),
            State::Running { .. } => {
                let Some(running) = self.running_containers.get_mut(&last.id) else { return };
                let is_other = !last.hash.is_empty() && last.hash != container.hash();
                if is_other && running.kill.is_none() {
                    let message = format!("Container {name} definition changed, will be restarted");
                    running.kill = Some(Kill { message, grace: None });
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

    /// A container with a hook keeps those after it waiting until the hook is through.
    fn holds_up_the_next(&self, container: &ContainerSpec, sandbox: &Text) -> bool {
        if !container.has_post_start {
            return false;
        }
        match self.newest_in(&container.name, sandbox) {
            Some(Container { state: State::Running { .. }, id, .. }) => {
                self.running_containers.get(id).is_some_and(|it| it.hook == Hook::Due)
            }
            Some(_) => false,
            None => {
                self.wants(container)
                    && self.start_histories.get(&container.name).is_none_or(|it| it.waiting.is_none())
            }
        }
    }

    /// Rule: of what has ended, the last one of each container is kept beside the present one, for its logs and its state.
    fn prune(&mut self, now: Time) {
        let Some(seen) = &self.seen else { return };
        let newer = |it: &Container| {
            seen.containers.iter().filter(|other| other.name == it.name && it.attempt < other.attempt).count()
        };
        let old =
            seen.containers.iter().filter(|it| matches!(it.state, State::Exited { .. }) && 2 <= newer(it));
        let old: Vec<Text> = old.map(|it| it.id.clone()).collect();
        let current = self.newest_sandbox().map(|it| it.id.clone());
        let is_empty = |id: &Text| !seen.containers.iter().any(|it| it.sandbox == *id);
        let ids = seen.sandboxes.iter().map(|it| it.id.clone());
        let empty: Vec<Text> = ids
            .filter(|it| Some(it) != current.as_ref() && self.stopped.contains(it) && is_empty(it))
            .collect();
        old.into_iter().for_each(|id| _ = self.give(Action::RemoveContainer { id }, now));
        empty.into_iter().for_each(|id| _ = self.give(Action::RemoveSandbox { id }, now));
    }
}

impl Restart {
    /// Rule: what ended is begun again always, never, or only if it failed.
    pub fn begins_again(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

impl State {
    pub(super) fn may_run(&self) -> bool {
        matches!(self, Self::Running { .. } | Self::Unknown)
    }
}
