//! Computes the status of a pod, with the kubelet's reasons and messages.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use muster_api::core_v1::PodPhase;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{DISRUPTION_TARGET, POD_SCHEDULED};
use serde_json::{Map, Value, json};

use super::pod_object::{ContainerRole, ContainerSpec, VolumeMount};
use super::running_container::HookState;
use super::{Action, Container, ContainerState, PodStateMachine};

/// Exit code that is reported for a container that was running and no longer exists in the runtime.
pub(super) const LOST_EXIT_CODE: i32 = 137;

/// The fields of a pod's status that list the container statuses.
const CONTAINER_STATUS_FIELDS: [&str; 3] =
    ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];

impl PodStateMachine {
    /// Issues [`Action::Report`] if the pod's status must be written to the API server.
    ///
    /// Rule: the status is written when it has changed, or when the status on the API server differs from the status
    /// that was last written. After the final status, and for a pod that no longer exists on the API server, nothing is
    /// written.
    pub(super) fn report(&mut self, now: Time) {
        let is_reporting = self.is_in_flight(|it| matches!(it, Action::Report(_)));
        if self.is_removed_from_api || self.is_deleted || is_reporting || self.is_final_status_reported() {
            return;
        }
        let status = self.status(now);
        if !self.must_report && contains_fields(&status, &self.reported) {
            return;
        }
        let mut patch =
            json!({"status": with_address_deletions(status, [&self.reported, &self.object.status])});
        if !self.object.is_static {
            patch["metadata"] = json!({"uid": self.object.uid});
        }
        if self.issue(Action::Report(patch), now) {
            self.must_report = false;
        }
    }

    /// Whether the pod's status is reported, so that its containers may be removed: the API server has the pod's
    /// current or final status. Also true for a static pod, and for a pod that no longer exists on the API server.
    pub(super) fn is_reported(&self, now: Time) -> bool {
        let is_reporting = self.is_in_flight(|it| matches!(it, Action::Report(_)));
        self.is_removed_from_api
            || self.object.is_static
            || self.is_final_status_reported()
            || (!self.must_report && !is_reporting && contains_fields(&self.status(now), &self.reported))
    }

    /// Whether the final status of the pod was written: the written status has a terminal phase and no running
    /// container, and no container runs now.
    ///
    /// Rule: after the final status of a pod was written, no other status is written.
    fn is_final_status_reported(&self) -> bool {
        let containers =
            CONTAINER_STATUS_FIELDS.iter().filter_map(|it| self.reported[it].as_array()).flatten();
        let is_running = containers.into_iter().any(|it| it["state"]["running"].is_object());
        terminal_phase(&self.reported).is_some() && !is_running && !self.is_any_running()
    }

    /// Returns the container status with this name in the pod status that was last reported. JSON `null` if there is
    /// none.
    pub(super) fn reported_container(&self, name: &str) -> &Value {
        let all = CONTAINER_STATUS_FIELDS.iter().filter_map(|it| self.reported[it].as_array()).flatten();
        all.into_iter().find(|it| it["name"] == name).unwrap_or(&Value::Null)
    }

    /// Returns the `containerID` in the pod's status for the container with this ID in the runtime, such as
    /// `containerd://ID`.
    pub(super) fn status_container_id(&self, id: &str) -> String {
        format!("{}://{id}", self.host.runtime)
    }

    /// Formats a node time for the pod's status, as wall-clock time.
    fn status_time(&self, at: Time) -> String {
        self.host.wall_clock.wall_time(at).to_rfc3339()
    }

    /// Returns the pod's current status.
    fn status(&self, now: Time) -> Value {
        let mut status = Map::new();
        let mut set = |key: &str, value: Value| _ = status.insert(key.to_string(), value);
        if self.object.generation != 0 {
            set("observedGeneration", self.object.generation.into());
        }
        if let Some(termination) = self.termination.as_ref().filter(|it| it.is_rejection) {
            set("phase", PodPhase::Failed.as_str().into());
            set("reason", json!(termination.reason));
            set("message", json!(termination.message));
            set("startTime", self.start_time.to_rfc3339().into());
            return Value::Object(status);
        }
        let is_final = self.final_phase.is_some() && !self.is_any_running();
        let spec = &self.object.spec;
        let list = |all: &[ContainerSpec]| -> Vec<Value> {
            all.iter().map(|it| self.container_status(it, is_final)).collect()
        };
        let (init, mut main, ephemeral) = (list(&spec.init), list(&spec.main), list(&spec.ephemeral));
        // A terminal phase is final, even if a container still runs that a former agent started.
        let is_reported_terminal =
            terminal_phase(&self.reported).or_else(|| terminal_phase(&self.object.status)).is_some();
        let phase = match self.final_phase.filter(|_| is_final || is_reported_terminal) {
            Some(phase) => phase,
            None => self.phase(&init, &main),
        };
        set("phase", phase.as_str().into());
        if let Some(termination) = self.termination.as_ref().filter(|_| is_final) {
            set("reason", json!(termination.reason));
            set("message", json!(termination.message));
        }
        set("conditions", self.conditions(phase, &init, &main, now).into());
        if let Some(first) = self.host.addresses.first() {
            set("hostIP", json!(first));
            set("hostIPs", addresses_json(&self.host.addresses));
        }
        let own: &[Text] = if spec.on_host_network { &self.host.addresses } else { self.sandbox_addresses() };
        if let Some(first) = own.first() {
            set("podIP", json!(first));
            set("podIPs", addresses_json(own));
        }
        set("startTime", self.start_time.to_rfc3339().into());
        if !init.is_empty() {
            set(CONTAINER_STATUS_FIELDS[0], init.into());
        }
        main.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
        set(CONTAINER_STATUS_FIELDS[1], main.into());
        if !ephemeral.is_empty() {
            set(CONTAINER_STATUS_FIELDS[2], ephemeral.into());
        }
        Value::Object(status)
    }

    /// Returns the addresses of the newest sandbox. Empty if there is no sandbox, or if the newest one is not usable.
    fn sandbox_addresses(&self) -> &[Text] {
        let sound = self.newest_sandbox().filter(|it| self.is_sandbox_usable(it));
        sound.map_or(&[], |it| &it.addresses)
    }

    /// Returns the phase of a pod that has not terminated: Pending or Running. `init` and `main` are the statuses of
    /// its init containers and main containers. Upstream: `getPhase`.
    fn phase(&self, init: &[Value], main: &[Value]) -> PodPhase {
        let has_ended_well = |it: &Value| it["state"]["terminated"]["exitCode"] == 0;
        let has_run = |it: &Value| !it["lastState"]["terminated"].is_null();
        let backoffs = |it: &Value| !it["state"]["waiting"].is_null() && !has_run(it);
        let has_begun = main.iter().any(|it| !backoffs(it));
        let roles = self.object.spec.init.iter().map(|it| it.role);
        let is_initializing = roles.zip(init).any(|(role, it)| match role {
            ContainerRole::Sidecar => !has_begun && it["started"] != true,
            _ => !has_ended_well(it) && !has_begun,
        });
        // Terminated containers will be restarted, or the pod would be complete.
        if is_initializing || main.iter().any(backoffs) { PodPhase::Pending } else { PodPhase::Running }
    }

    /// Returns the status of a container of the spec. `is_final` is whether the pod has terminated.
    fn container_status(&self, container: &ContainerSpec, is_final: bool) -> Value {
        let name = &container.name;
        let reported = self.reported_container(name);
        let all = self.runtime_state.iter().flat_map(|it| &it.containers);
        let mut all: Vec<&Container> = all.filter(|it| it.name == *name).collect();
        all.sort_by_key(|it| core::cmp::Reverse(it.attempt));
        let has_init = !self.object.spec.init.is_empty();
        let initial_reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
        let mut status = json!({
            "name": name,
            "image": container.image,
            "imageID": "",
            "ready": false,
            "restartCount": reported["restartCount"].as_u64().unwrap_or(0),
            "state": {"waiting": {"reason": initial_reason}},
            "lastState": reported["lastState"].as_object().cloned().unwrap_or_default(),
        });
        if let Some(last) = all.first() {
            status["image"] = json!(if last.image.is_empty() { &container.image } else { &last.image });
            status["imageID"] = json!(last.image_id);
            status["containerID"] = self.status_container_id(&last.id).into();
            status["restartCount"] = last.attempt.into();
            status["state"] = self.container_state(last, initial_reason);
            status["ready"] = self.is_container_ready(container, last).into();
            if let Some(before) = all.get(1).filter(|it| matches!(it.state, ContainerState::Exited { .. })) {
                status["lastState"] = self.container_state(before, initial_reason);
            } else if reported["containerID"] != status["containerID"]
                && reported["state"]["terminated"].is_object()
            {
                status["lastState"] = json!({"terminated": reported["state"]["terminated"]});
            }
            if container.resources.is_object() {
                status["resources"] = container.resources.clone();
                if container.resources["requests"].is_object() {
                    status["allocatedResources"] = container.resources["requests"].clone();
                }
            }
        } else if reported["state"]["terminated"].is_object() {
            status = reported.clone();
            status["ready"] = (container.role == ContainerRole::Init
                && reported["state"]["terminated"]["exitCode"] == 0)
                .into();
        } else if reported["state"]["running"].is_object()
            && !self.is_terminating()
            && container.restart.restarts_after(LOST_EXIT_CODE)
        {
            let message = "The container could not be located when the pod was deleted.  The container used to \
                           be Running";
            status["lastState"] = lost_state(message);
            status["restartCount"] = (reported["restartCount"].as_u64().unwrap_or(0) + 1).into();
        }
        if !container.mounts.is_empty() {
            status["volumeMounts"] = container.mounts.iter().map(volume_mount_status).collect();
        }
        if container.role != ContainerRole::Ephemeral {
            let started = all.first().is_some_and(|it| it.state.is_running() && self.is_started(&it.id));
            status["started"] = started.into();
        }
        let is_running = status["state"]["running"].is_object();
        let waiting = self.start_histories.get(name).and_then(|it| it.waiting.as_ref());
        if let Some((reason, message)) =
            waiting.filter(|_| !is_running && !is_final && !self.is_terminating())
        {
            if status["state"]["terminated"].is_object() {
                status["lastState"] = status["state"].clone();
            }
            status["state"] = json!({"waiting": {"reason": reason, "message": message}});
        }
        if is_final && container.role != ContainerRole::Ephemeral && status["state"]["terminated"].is_null() {
            self.mark_lost(container, &mut status);
        }
        status
    }

    /// Sets the state in the status of a container to terminated with the reason `ContainerStatusUnknown`, if the
    /// container has run or should have run. Called when the pod has terminated and the exit code of the container is
    /// not known. Upstream: `TerminatePod`.
    fn mark_lost(&self, container: &ContainerSpec, status: &mut Value) {
        let has_run = |it: &ContainerSpec| {
            self.newest_container(&it.name).is_some()
                || self.reported_container(&it.name)["containerID"].is_string()
        };
        let is_initialized = self.object.spec.init.is_empty() || self.object.spec.main.iter().any(has_run);
        let counts = match container.role {
            ContainerRole::Main => is_initialized,
            _ => has_run(container),
        };
        if counts {
            status["state"] = lost_state("The container could not be located when the pod was terminated");
        }
    }

    /// Whether a container is ready: the value of `ready` in its status. `last` is the newest instance of the
    /// container.
    fn is_container_ready(&self, container: &ContainerSpec, last: &Container) -> bool {
        match (&last.state, container.role) {
            (ContainerState::Exited { code, .. }, ContainerRole::Init) => *code == 0,
            (ContainerState::Running { .. }, ContainerRole::Main | ContainerRole::Sidecar) => {
                self.is_ready(&last.id)
            }
            _ => false,
        }
    }

    /// Returns the `state` of a container instance. `initial_reason` is the reason of the state `waiting` of a
    /// container that has not started, or whose postStart hook has not completed.
    fn container_state(&self, container: &Container, initial_reason: &str) -> Value {
        match &container.state {
            ContainerState::Running { since } => {
                if self.running_containers.get(&container.id).is_some_and(|it| it.hook == HookState::Pending)
                {
                    return json!({"waiting": {"reason": initial_reason}});
                }
                json!({"running": {"startedAt": self.status_time(*since)}})
            }
            ContainerState::Exited { code, reason, message, started, finished } => {
                let mut terminated = json!({
                    "exitCode": code,
                    "reason": reason,
                    "startedAt": self.status_time(*started),
                    "finishedAt": self.status_time(*finished),
                    "containerID": self.status_container_id(&container.id),
                });
                if !message.is_empty() {
                    terminated["message"] = json!(message);
                }
                json!({"terminated": terminated})
            }
            ContainerState::Unknown
                if self.reported_container(&container.name)["state"]["running"].is_object() =>
            {
                lost_state("The container could not be located when the pod was terminated")
            }
            ContainerState::Created | ContainerState::Unknown => {
                json!({"waiting": {"reason": initial_reason}})
            }
        }
    }

    /// Returns the conditions of the pod. `init` and `main` are the statuses of its init containers and main
    /// containers.
    fn conditions(&self, phase: PodPhase, init: &[Value], main: &[Value], now: Time) -> Vec<Value> {
        let has_ended = matches!(phase, PodPhase::Succeeded | PodPhase::Failed);
        let has_sandbox = !has_ended && self.newest_sandbox().is_some_and(|it| self.is_sandbox_usable(it));
        let initialized = self.check_initialized(phase, init, main);
        let containers = self.check_containers_ready(phase, init, main);
        let ready = containers.clone().and_then(|()| self.check_readiness_gates());
        let ready_to_start = if has_sandbox { Ok(()) } else { Err(("", String::new())) };
        let mut conditions: Vec<Value> = [
            ("PodReadyToStartContainers", ready_to_start),
            ("Initialized", initialized),
            ("Ready", ready),
            ("ContainersReady", containers),
            (POD_SCHEDULED, Ok(())),
        ]
        .into_iter()
        .map(|(kind, holds)| {
            let reason = match (&holds, kind, phase) {
                (Ok(()), "Initialized", PodPhase::Succeeded) => ("PodCompleted", ""),
                (Ok(()), ..) => ("", ""),
                (Err((reason, message)), ..) => (*reason, message.as_str()),
            };
            self.condition(kind, holds.is_ok(), reason, now)
        })
        .collect();
        if let Some(termination) = self.termination.as_ref().filter(|it| it.is_disruption) {
            conditions.push(self.condition(
                DISRUPTION_TARGET,
                true,
                ("TerminationByKubelet", &termination.message),
                now,
            ));
        }
        conditions
    }

    /// Returns the JSON of a condition of the type `kind`. `holds` is whether its status is True. An empty reason or
    /// message becomes `null`. `lastTransitionTime` is kept if the condition's status has not changed.
    fn condition(&self, kind: &str, holds: bool, (reason, message): (&str, &str), now: Time) -> Value {
        let status = if holds { "True" } else { "False" };
        let all =
            [&self.reported, &self.object.status].into_iter().filter_map(|it| it["conditions"].as_array());
        let before = all.flatten().find(|it| it["type"] == kind && it["status"] == status);
        let since = before.map_or(&Value::Null, |it| &it["lastTransitionTime"]);
        let since = if since.is_string() { since.clone() } else { self.status_time(now).into() };
        let text = |it: &str| if it.is_empty() { Value::Null } else { it.into() };
        let mut condition = json!({
            "type": kind,
            "status": status,
            "lastTransitionTime": since,
            "reason": text(reason),
            "message": text(message),
        });
        if self.object.generation != 0 {
            condition["observedGeneration"] = self.object.generation.into();
        }
        condition
    }

    /// Checks whether the condition `Initialized` is True. The error is the reason why it is False.
    fn check_initialized(
        &self,
        phase: PodPhase,
        init: &[Value],
        main: &[Value],
    ) -> Result<(), FalseCondition> {
        let has_started = |it: &Value| {
            let state = &it["state"];
            it["started"] == true
                || !state["terminated"].is_null()
                || !it["lastState"]["terminated"].is_null()
        };
        if phase == PodPhase::Succeeded || main.iter().any(has_started) {
            return Ok(());
        }
        let roles = self.object.spec.init.iter().map(|it| it.role);
        let incomplete = roles.zip(init).filter(|(role, it)| match role {
            ContainerRole::Sidecar => it["started"] != true,
            _ => it["ready"] != true,
        });
        match container_names(incomplete.map(|(_, it)| it)) {
            None => Ok(()),
            Some(names) => {
                Err(("ContainersNotInitialized", format!("containers with incomplete status: [{names}]")))
            }
        }
    }

    /// Checks whether the condition `ContainersReady` is True. The error is the reason why it is False.
    fn check_containers_ready(
        &self,
        phase: PodPhase,
        init: &[Value],
        main: &[Value],
    ) -> Result<(), FalseCondition> {
        let fails = self.termination.is_some() || self.final_phase == Some(PodPhase::Failed);
        match phase {
            PodPhase::Succeeded => return Err(("PodCompleted", String::new())),
            PodPhase::Failed => return Err(("PodFailed", String::new())),
            PodPhase::Pending | PodPhase::Running if fails => return Err(("PodFailed", String::new())),
            PodPhase::Pending | PodPhase::Running => {}
        }
        let sidecars =
            self.object.spec.init.iter().zip(init).filter(|(it, _)| it.role == ContainerRole::Sidecar);
        let all = sidecars.map(|(_, it)| it).chain(main);
        match container_names(all.filter(|it| it["ready"] != true)) {
            None => Ok(()),
            Some(names) => Err(("ContainersNotReady", format!("containers with unready status: [{names}]"))),
        }
    }

    /// Checks whether the readiness gates allow the condition `Ready` to be True. The error is the reason why it is
    /// False.
    ///
    /// Rule: a pod with readiness gates is ready only when the conditions of all its readiness gates are True.
    fn check_readiness_gates(&self) -> Result<(), FalseCondition> {
        let conditions = self.object.status["conditions"].as_array();
        let condition = |gate: &Text| conditions.into_iter().flatten().find(|it| it["type"] == **gate);
        let missing = self.object.spec.gates.iter().filter_map(|gate| match condition(gate) {
            None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
            Some(it) if it["status"] == "True" => None,
            Some(it) => {
                let status = it["status"].as_str().unwrap_or_default();
                Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {status}"))
            }
        });
        let missing: Vec<String> = missing.collect();
        if missing.is_empty() { Ok(()) } else { Err(("ReadinessGatesNotReady", missing.join(", "))) }
    }
}

/// Reason and message of a condition that is False.
type FalseCondition = (&'static str, String);

impl ContainerState {
    /// Whether the container certainly runs. Unlike [`Self::may_run`], this is false if its state is unknown.
    fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }
}

/// Returns the phase in a pod's status if it is Succeeded or Failed. `None` for any other phase.
pub(super) fn terminal_phase(status: &Value) -> Option<PodPhase> {
    status["phase"].as_str().map(PodPhase::parse).filter(|it| it.is_terminal())
}

/// Returns the status that a patch of [`Action::Report`] results in: the fields that the patch sets, without the
/// addresses in `podIPs` that it deletes.
pub(super) fn patched_status(patch: &Value) -> Value {
    let mut status = patch["status"].clone();
    if let Some(addresses) = status["podIPs"].as_array_mut() {
        addresses.retain(|it| it["$patch"].is_null());
    }
    status
}

/// Whether `whole` contains every field of `part` with an equal value. `null` equals an absent field. The elements of a
/// list are matched by their key, such as `type` or `name`. A list of conditions in `whole` may have more elements.
pub(super) fn contains_fields(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), _) => {
            part.iter().all(|(key, value)| contains_fields(value, whole.get(key).unwrap_or(&Value::Null)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            // One volume may be mounted several times, so mounts are matched by path first.
            let keys = ["type", "mountPath", "name", "ip"];
            let key = |it: &Value| keys.into_iter().find(|key| it[*key].is_string());
            let counterpart = |place: usize, it: &Value| match key(it) {
                Some(key) => whole.iter().find(|other| other[key] == it[key]).cloned(),
                None => whole.get(place).cloned(),
            };
            let is_merged = part.iter().any(|it| it["type"].is_string());
            (is_merged || part.len() == whole.len())
                && part
                    .iter()
                    .enumerate()
                    .all(|(place, it)| contains_fields(it, &counterpart(place, it).unwrap_or(Value::Null)))
        }
        (Value::Array(part), Value::Null) => part.is_empty(),
        (part, whole) => part == whole,
    }
}

/// Returns `status` as a patch that also deletes old addresses from `podIPs`. An address is old if a status in `before`
/// has it and `status` does not. Without the deletions, old addresses would stay, because the API server merges the
/// list by address.
fn with_address_deletions(mut status: Value, before: [&Value; 2]) -> Value {
    if let Some(own) = status["podIPs"].as_array_mut() {
        for old in before.into_iter().filter_map(|it| it["podIPs"].as_array()).flatten() {
            if !own.iter().any(|own| own["ip"] == old["ip"]) {
                own.push(json!({"$patch": "delete", "ip": old["ip"]}));
            }
        }
    }
    status
}

/// Joins the names of containers with spaces, for a message. `None` if there are no containers.
fn container_names<'a>(statuses: impl Iterator<Item = &'a Value>) -> Option<String> {
    let names: Vec<&str> = statuses.filter_map(|it| it["name"].as_str()).collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// Returns the JSON of `podIPs` or `hostIPs`.
fn addresses_json(all: &[Text]) -> Value {
    all.iter().map(|it| json!({"ip": it})).collect()
}

/// Returns the `state` of a container that no longer exists in the runtime: terminated with the reason
/// `ContainerStatusUnknown`.
fn lost_state(message: &str) -> Value {
    json!({"terminated": {"reason": "ContainerStatusUnknown", "message": message, "exitCode": LOST_EXIT_CODE}})
}

/// Returns the JSON of a volume mount of the spec, as it appears in the container status.
fn volume_mount_status(mount: &VolumeMount) -> Value {
    let mut mounted = json!({"name": mount.name, "mountPath": mount.path});
    if mount.is_read_only {
        mounted["readOnly"] = true.into();
        mounted["recursiveReadOnly"] = "Disabled".into();
    }
    mounted
}
