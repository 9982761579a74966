//! One pod on its node: what it needs next is read from the pod and from the little that is remembered of it. No clock is
//! read here, and no call is made.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde_json::Value;

use super::clock::shifted;
use super::container::{Container, RestartPolicy, Role, State};
use super::seen;
use super::status;
use super::told::{Pace, ToContainer};

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    pub(super) uid: Arc<str>,
    pub(super) node: Arc<str>,
    pub(super) generation: i64,
    pub(super) on_host: bool,
    /// Init containers first, each in the order of the pod.
    pub(super) containers: Vec<Container>,
    /// What else must hold before it is ready, and what is said of it.
    pub(super) gates: Vec<(Box<str>, Option<Box<str>>)>,
    pub(super) conditions: [Option<Condition>; KINDS],
    pub(super) start_time: Option<Timestamp>,
    pub(super) address: Option<Ipv4Addr>,
    pub(super) says_scheduled: bool,
    policy: RestartPolicy,
    told: ToContainer,
    stopping: Option<Stopping>,
    /// How it ended: nothing more comes of it.
    over: Option<Phase>,
    removed: bool,
    /// There is something that the API server was not told.
    news: bool,
    /// What the API server showed before this version is older than what it was told.
    version: u64,
}

#[derive(Debug, Clone, Copy)]
struct Stopping {
    asked: Timestamp,
    grace: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) holds: bool,
    pub(super) since: Timestamp,
}

/// The conditions that a node reports, in its order.
pub(super) const KINDS: usize = 4;
pub(super) const CONDITIONS: [&str; KINDS] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"];
const READY: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// What is to be done for a pod now, and when to look again.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) call: Option<Call>,
    pub(super) wake_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Call {
    /// The status, as a strategic merge patch: conditions of others stay.
    Report(Value),
    /// All has ended: the pod is taken off the API server.
    Remove,
}

/// What a node lends to its pods.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host {
    pub(super) address: Ipv4Addr,
    pub(super) pace: Pace,
}

impl Pod {
    /// Goes on where the pod's status ends: a node that comes again finds its containers running.
    pub(super) fn new(seen: seen::Pod, now: Timestamp, complain: &mut dyn FnMut(String)) -> Self {
        let told = ToContainer::read(seen.annotations(), complain);
        let seen::Pod { metadata, spec, status } = seen;
        let said = |statuses: &[seen::ContainerStatus], name: &str| {
            statuses.iter().find(|it| *it.name == *name).cloned()
        };
        let inits = spec.init_containers.into_iter().map(|it| {
            let status = said(&status.init_container_statuses, &it.name);
            Container::new(it, Role::Init, &told, status.as_ref(), now)
        });
        let mains = spec.containers.into_iter().map(|it| {
            let status = said(&status.container_statuses, &it.name);
            Container::new(it, Role::Main, &told, status.as_ref(), now)
        });
        let containers = inits.chain(mains).collect();
        let conditions = CONDITIONS.map(|kind| {
            let condition = status.conditions.iter().find(|it| *it.r#type == *kind)?;
            let since = condition.last_transition_time.unwrap_or(now);
            Some(Condition { holds: *condition.status == *"True", since })
        });
        let mut new = Self {
            namespace: metadata.namespace.clone().unwrap_or_default().into(),
            name: metadata.name.clone().unwrap_or_default().into(),
            uid: metadata.uid.clone().unwrap_or_default().into(),
            node: spec.node_name.unwrap_or_default().into(),
            generation: metadata.generation.unwrap_or_default(),
            on_host: spec.host_network,
            containers,
            gates: spec.readiness_gates.into_iter().map(|it| (it.condition_type, None)).collect(),
            conditions,
            start_time: status.start_time,
            address: status.pod_ip.as_deref().and_then(|it| it.parse().ok()),
            says_scheduled: false,
            policy: match spec.restart_policy.as_deref() {
                Some("Never") => RestartPolicy::Never,
                Some("OnFailure") => RestartPolicy::OnFailure,
                _ => RestartPolicy::Always,
            },
            told,
            stopping: None,
            over: None,
            removed: false,
            news: status.container_statuses.is_empty(),
            version: 0,
        };
        new.see_metadata(&metadata, now);
        new.see_status(&status, now);
        new
    }

    /// The watch shows it anew.
    pub(super) fn see(&mut self, seen: &seen::Pod, now: Timestamp) {
        if seen::version(&seen.metadata) < self.version {
            return;
        }
        self.see_metadata(&seen.metadata, now);
        self.see_status(&seen.status, now);
        for container in &mut self.containers {
            let mut all = seen.spec.init_containers.iter().chain(&seen.spec.containers);
            if let Some(seen) = all.find(|it| it.name == container.name) {
                self.news |= container.see(seen, &self.told, now);
            }
        }
        let ready = seen.status.conditions.iter().find(|it| *it.r#type == *CONDITIONS[READY]);
        let ready = ready.is_some_and(|it| *it.status == *"True");
        // Whoever else says that it is ready or not, such as when its node was thought lost, does not know better.
        self.news |= self.conditions[READY].is_some_and(|it| it.holds != ready) && self.over.is_none();
    }

    fn see_metadata(
        &mut self,
        meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
        now: Timestamp,
    ) {
        self.generation = meta.generation.unwrap_or_default();
        if meta.deletion_timestamp.is_some() {
            let grace_s = meta.deletion_grace_period_seconds.and_then(|it| u64::try_from(it).ok());
            let grace = Duration::from_secs(grace_s.unwrap_or_default());
            let asked = self.stopping.map_or(now, |it| it.asked);
            self.stopping = Some(Stopping { asked, grace });
        }
    }

    /// The clock was set by so much: no wait becomes longer or shorter.
    pub(super) fn shift(&mut self, by: SignedDuration) {
        self.containers.iter_mut().for_each(|it| it.shift(by));
        if let Some(stopping) = &mut self.stopping {
            stopping.asked = shifted(stopping.asked, by);
        }
    }

    fn see_status(&mut self, status: &seen::PodStatus, now: Timestamp) {
        let said = |kind: &str| status.conditions.iter().find(|it| *it.r#type == *kind).map(|it| &it.status);
        self.says_scheduled = said("PodScheduled").is_some_and(|it| **it == *"True");
        for (gate, known) in &mut self.gates {
            let said = said(gate).cloned();
            self.news |= said != *known && self.start_time.is_some();
            *known = said;
        }
        let over = match status.phase.as_deref() {
            Some("Succeeded") => Some(Phase::Succeeded),
            Some("Failed") => Some(Phase::Failed),
            _ => None,
        };
        if over.is_some() && self.over.is_none() {
            // Nobody but the node ends a pod, but if somebody says so, that holds, and there is nothing to add.
            self.over = over;
            self.judge_conditions(now);
        }
    }

    /// The API server was told, and shows it since this version.
    pub(super) fn told(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    /// The API server did not take what it was told.
    pub(super) fn was_not_told(&mut self) {
        self.news = true;
        self.removed = false;
    }

    pub(super) fn look(&mut self, host: Host, now: Timestamp) -> Look {
        if self.start_time.is_none() {
            self.start_time = Some(now);
            self.news = true;
        }
        let (changed, wake_at) = match self.stopping {
            Some(stopping) => self.stop(stopping, host.pace, now),
            None if self.over.is_some() => (false, None),
            None => self.go_on(host.pace, now),
        };
        self.news |= changed;
        self.news |= self.judge_conditions(now);
        let call = if self.news && !self.removed {
            self.news = false;
            Some(Call::Report(status::of(self, host)))
        } else if self.stopping.is_some() && !self.removed && !self.any_runs() {
            self.removed = true;
            Some(Call::Remove)
        } else {
            None
        };
        Look { call, wake_at }
    }

    /// Init containers one after another, then all the others at once; those that stay go on beside them.
    fn go_on(&mut self, pace: Pace, now: Timestamp) -> (bool, Option<Timestamp>) {
        let (mut changed, mut wake_at) = (false, None);
        let was_initialized = self.conditions[1].is_some_and(|it| it.holds);
        for at in 0..self.containers.len() {
            let container = &mut self.containers[at];
            let (stepped, next) = container.step(pace, self.policy, now);
            changed |= stepped;
            wake_at = earliest(wake_at, next);
            if !was_initialized && !self.containers[at].is_done_initializing() {
                break;
            }
        }
        if let phase @ (Phase::Succeeded | Phase::Failed) = self.phase() {
            self.over = Some(phase);
            for sidecar in self.containers.iter_mut().filter(|it| it.is_running()) {
                sidecar.stop(now, Duration::MAX, Pace { stop: Duration::ZERO, ..pace }, now);
            }
            return (true, None);
        }
        (changed, wake_at)
    }

    /// Those that serve the others are the last to go.
    fn stop(&mut self, stopping: Stopping, pace: Pace, now: Timestamp) -> (bool, Option<Timestamp>) {
        let (mut changed, mut wake_at) = (false, None);
        for sidecars in [false, true] {
            for container in self.containers.iter_mut().filter(|it| (it.role != Role::Main) == sidecars) {
                let (stopped, next) = container.stop(stopping.asked, stopping.grace, pace, now);
                changed |= stopped;
                wake_at = earliest(wake_at, next);
            }
            if self.any_runs() && !sidecars && self.mains().any(Container::is_running) {
                break;
            }
        }
        (changed, wake_at)
    }

    fn judge_conditions(&mut self, now: Timestamp) -> bool {
        let phase = self.phase();
        let ended = matches!(phase, Phase::Succeeded | Phase::Failed);
        let has_sandbox = !ended && self.containers.iter().any(Container::has_begun);
        let initialized = self.containers.iter().all(Container::is_done_initializing)
            || self.mains().any(Container::has_begun)
            || phase == Phase::Succeeded;
        let containers = !ended && self.unready().next().is_none();
        let gates = self.gates.iter().all(|(_, said)| said.as_deref() == Some("True"));
        let hold = [has_sandbox, initialized, containers && gates, containers];
        let mut changed = false;
        for (condition, holds) in self.conditions.iter_mut().zip(hold) {
            if condition.is_none_or(|it| it.holds != holds) {
                *condition = Some(Condition { holds, since: now });
                changed = true;
            }
        }
        changed && self.start_time.is_some()
    }

    /// Rule: a container that has ended and comes again counts as one that runs, as with the kubelet; a pod ends with the last
    /// of its containers that does not, or that is stopped because the pod is deleted.
    pub(super) fn phase(&self) -> Phase {
        if let Some(over) = self.over {
            return over;
        }
        let gone_for_good = |it: &Container| match &it.state {
            State::Ended(ended) if self.stopping.is_some() || !it.comes_again(ended.code, self.policy) => {
                Some(ended.code)
            }
            _ => None,
        };
        let failed_init =
            |it: &&Container| it.role == Role::Init && gone_for_good(it).is_some_and(|it| it != 0);
        if self.containers.iter().any(|it| failed_init(&it)) {
            return Phase::Failed;
        }
        if self.mains().any(|it| !it.has_run()) {
            return Phase::Pending;
        }
        let codes: Option<Vec<i32>> = self.mains().map(gone_for_good).collect();
        match codes {
            None => Phase::Running,
            Some(codes) if codes.iter().all(|it| *it == 0) => Phase::Succeeded,
            Some(_) => Phase::Failed,
        }
    }

    pub(super) fn mains(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|it| it.role == Role::Main)
    }

    /// Those that keep the pod from being ready.
    pub(super) fn unready(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|it| it.role != Role::Init && !it.ready)
    }

    fn any_runs(&self) -> bool {
        self.containers.iter().any(Container::is_running)
    }
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}
