//! What the API server is told of a pod, word for word as a kubelet says it.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::{Map, Value, json};

use super::running_container::Hook;
use super::spec::{ContainerSpec, Role};
use super::{Action, Container, Pod, State};
use crate::daemonset::facts::Phase;

/// The exit code of a container that is gone without a trace.
pub(super) const LOST: i32 = 137;

const LISTS: [&str; 3] = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];

impl Pod {
    /// Rule: the status is told when something in it changed, or when the API server has another than it was told.
    pub(super) fn report(&mut self, now: Time) {
        let is_reporting = self.is_under_way(|it| matches!(it, Action::Report(_)));
        if self.is_gone || self.is_deleted || is_reporting || self.is_settled() {
            return;
        }
        let status = self.status(now);
        if !self.must_report && covers(&status, &self.reported) {
            return;
        }
        let mut patch =
            json!({"status": without_old_addresses(status, [&self.reported, &self.object.status])});
        if !self.object.is_static {
            patch["metadata"] = json!({"uid": self.object.uid});
        }
        if self.give(Action::Report(patch), now) {
            self.must_report = false;
        }
    }

    /// Whether nothing is left to tell: how it ended is known.
    pub(super) fn is_reported(&self, now: Time) -> bool {
        let is_reporting = self.is_under_way(|it| matches!(it, Action::Report(_)));
        self.is_gone
            || self.object.is_static
            || self.is_settled()
            || (!self.must_report && !is_reporting && covers(&self.status(now), &self.reported))
    }

    /// Rule: once it is told how a pod ended, nothing more is told of it.
    fn is_settled(&self) -> bool {
        let said = LISTS.iter().filter_map(|it| self.reported[it].as_array()).flatten();
        let says_running = said.into_iter().any(|it| it["state"]["running"].is_object());
        terminal(&self.reported).is_some() && !says_running && !self.is_any_running()
    }

    /// What was last said of a container.
    pub(super) fn known(&self, name: &str) -> &Value {
        let all = LISTS.iter().filter_map(|it| self.reported[it].as_array()).flatten();
        all.into_iter().find(|it| it["name"] == name).unwrap_or(&Value::Null)
    }

    pub(super) fn full_id(&self, id: &str) -> String {
        format!("{}://{id}", self.host.runtime)
    }

    fn status(&self, now: Time) -> Value {
        let mut status = Map::new();
        let mut set = |key: &str, value: Value| _ = status.insert(key.to_string(), value);
        if self.object.generation != 0 {
            set("observedGeneration", self.object.generation.into());
        }
        if let Some(ending) = self.ending.as_ref().filter(|it| it.is_rejection) {
            set("phase", name(Phase::Failed).into());
            set("reason", json!(ending.reason));
            set("message", json!(ending.message));
            set("startTime", self.begun.to_rfc3339().into());
            return Value::Object(status);
        }
        let is_final = self.ended.is_some() && !self.is_any_running();
        let spec = &self.object.spec;
        let list = |all: &[ContainerSpec]| -> Vec<Value> {
            all.iter().map(|it| self.container_status(it, is_final)).collect()
        };
        let (init, mut main, ephemeral) = (list(&spec.init), list(&spec.main), list(&spec.ephemeral));
        // Nobody takes back that a pod has ended, be it that something of it runs yet that its last agent began.
        let is_said = terminal(&self.reported).or_else(|| terminal(&self.object.status)).is_some();
        let phase = match self.ended.filter(|_| is_final || is_said) {
            Some(phase) => phase,
            None => self.phase(&init, &main),
        };
        set("phase", name(phase).into());
        if let Some(ending) = self.ending.as_ref().filter(|_| is_final) {
            set("reason", json!(ending.reason));
            set("message", json!(ending.message));
        }
        set("conditions", self.conditions(phase, &init, &main, now).into());
        if let Some(first) = self.host.addresses.first() {
            set("hostIP", json!(first));
            set("hostIPs", addresses(&self.host.addresses));
        }
        let own: &[Text] = if spec.on_host_network { &self.host.addresses } else { self.newest_addresses() };
        if let Some(first) = own.first() {
            set("podIP", json!(first));
            set("podIPs", addresses(own));
        }
        set("startTime", self.begun.to_rfc3339().into());
        if !init.is_empty() {
            set(LISTS[0], init.into());
        }
        main.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
        set(LISTS[1], main.into());
        if !ephemeral.is_empty() {
            set(LISTS[2], ephemeral.into());
        }
        Value::Object(status)
    }

    fn newest_addresses(&self) -> &[Text] {
        let sound = self.newest_sandbox().filter(|it| self.is_sound(it));
        sound.map_or(&[], |it| &it.addresses)
    }

    /// Upstream: `getPhase`.
    fn phase(&self, init: &[Value], main: &[Value]) -> Phase {
        let has_ended_well = |it: &Value| it["state"]["terminated"]["exitCode"] == 0;
        let has_run = |it: &Value| !it["lastState"]["terminated"].is_null();
        let waits = |it: &Value| !it["state"]["waiting"].is_null() && !has_run(it);
        let has_begun = main.iter().any(|it| !waits(it));
        let roles = self.object.spec.init.iter().map(|it| it.role);
        let is_initializing = roles.zip(init).any(|(role, it)| match role {
            Role::Sidecar => !has_begun && it["started"] != true,
            _ => !has_ended_well(it) && !has_begun,
        });
        // Those that ended will be begun again, or the pod would have.
        if is_initializing || main.iter().any(waits) { Phase::Pending } else { Phase::Running }
    }

    fn container_status(&self, container: &ContainerSpec, is_final: bool) -> Value {
        let name = &container.name;
        let known = self.known(name);
        let all = self.seen.iter().flat_map(|it| &it.containers);
        let mut all: Vec<&Container> = all.filter(|it| it.name == *name).collect();
        all.sort_by_key(|it| core::cmp::Reverse(it.attempt));
        let has_init = !self.object.spec.init.is_empty();
        let begins = if has_init { "PodInitializing" } else { "ContainerCreating" };
        let mut said = json!({
            "name": name,
            "image": container.image,
            "imageID": "",
            "ready": false,
            "restartCount": known["restartCount"].as_u64().unwrap_or(0),
            "state": {"waiting": {"reason": begins}},
            "lastState": known["lastState"].as_object().cloned().unwrap_or_default(),
        });
        if let Some(last) = all.first() {
            said["image"] = json!(if last.image.is_empty() { &container.image } else { &last.image });
            said["imageID"] = json!(last.image_id);
            said["containerID"] = self.full_id(&last.id).into();
            said["restartCount"] = last.attempt.into();
            said["state"] = self.state(last, begins);
            said["ready"] = self.is_said_ready(container, last).into();
            if let Some(before) = all.get(1).filter(|it| matches!(it.state, State::Exited { .. })) {
                said["lastState"] = self.state(before, begins);
            } else if known["containerID"] != said["containerID"] && known["state"]["terminated"].is_object()
            {
                said["lastState"] = json!({"terminated": known["state"]["terminated"]});
            }
            if container.resources.is_object() {
                said["resources"] = container.resources.clone();
                if container.resources["requests"].is_object() {
                    said["allocatedResources"] = container.resources["requests"].clone();
                }
            }
        } else if known["state"]["terminated"].is_object() {
            said = known.clone();
            said["ready"] =
                (container.role == Role::Init && known["state"]["terminated"]["exitCode"] == 0).into();
        } else if known["state"]["running"].is_object()
            && !self.is_ending()
            && container.restart.begins_again(LOST)
        {
            let message = "The container could not be located when the pod was deleted.  The container used to \
                           be Running";
            said["lastState"] = lost(message);
            said["restartCount"] = (known["restartCount"].as_u64().unwrap_or(0) + 1).into();
        }
        if !container.mounts.is_empty() {
            said["volumeMounts"] = container.mounts.iter().map(mount).collect();
        }
        if container.role != Role::Ephemeral {
            let started = all.first().is_some_and(|it| it.state.is_running() && self.is_started(&it.id));
            said["started"] = started.into();
        }
        let is_running = said["state"]["running"].is_object();
        let waiting = self.start_histories.get(name).and_then(|it| it.waiting.as_ref());
        if let Some((reason, message)) = waiting.filter(|_| !is_running && !is_final && !self.is_ending()) {
            if said["state"]["terminated"].is_object() {
                said["lastState"] = said["state"].clone();
            }
            said["state"] = json!({"waiting": {"reason": reason, "message": message}});
        }
        if is_final && container.role != Role::Ephemeral && said["state"]["terminated"].is_null() {
            self.say_lost(container, &mut said);
        }
        said
    }

    /// What was to run, and of which nothing is known at the end, counts as failed. Upstream: `TerminatePod`.
    fn say_lost(&self, container: &ContainerSpec, said: &mut Value) {
        let has_run = |it: &ContainerSpec| {
            self.newest(&it.name).is_some() || self.known(&it.name)["containerID"].is_string()
        };
        let is_initialized = self.object.spec.init.is_empty() || self.object.spec.main.iter().any(has_run);
        let counts = match container.role {
            Role::Main => is_initialized,
            _ => has_run(container),
        };
        if counts {
            said["state"] = lost("The container could not be located when the pod was terminated");
        }
    }

    fn is_said_ready(&self, container: &ContainerSpec, last: &Container) -> bool {
        match (&last.state, container.role) {
            (State::Exited { code, .. }, Role::Init) => *code == 0,
            (State::Running { .. }, Role::Main | Role::Sidecar) => self.is_ready(&last.id),
            _ => false,
        }
    }

    fn state(&self, container: &Container, begins: &str) -> Value {
        match &container.state {
            State::Running { since } => {
                if self.running_containers.get(&container.id).is_some_and(|it| it.hook == Hook::Due) {
                    return json!({"waiting": {"reason": begins}});
                }
                json!({"running": {"startedAt": since.to_rfc3339()}})
            }
            State::Exited { code, reason, message, started, finished } => {
                let mut said = json!({
                    "exitCode": code,
                    "reason": reason,
                    "startedAt": started.to_rfc3339(),
                    "finishedAt": finished.to_rfc3339(),
                    "containerID": self.full_id(&container.id),
                });
                if !message.is_empty() {
                    said["message"] = json!(message);
                }
                json!({"terminated": said})
            }
            State::Unknown if self.known(&container.name)["state"]["running"].is_object() => {
                lost("The container could not be located when the pod was terminated")
            }
            State::Created | State::Unknown => json!({"waiting": {"reason": begins}}),
        }
    }

    fn conditions(&self, phase: Phase, init: &[Value], main: &[Value], now: Time) -> Vec<Value> {
        let has_ended = matches!(phase, Phase::Succeeded | Phase::Failed);
        let has_sandbox = !has_ended && self.newest_sandbox().is_some_and(|it| self.is_sound(it));
        let initialized = self.initialized(phase, init, main);
        let containers = self.containers_ready(phase, init, main);
        let ready = containers.clone().and_then(|()| self.gates());
        let ready_to_start = if has_sandbox { Ok(()) } else { Err(("", String::new())) };
        let mut said: Vec<Value> = [
            ("PodReadyToStartContainers", ready_to_start),
            ("Initialized", initialized),
            ("Ready", ready),
            ("ContainersReady", containers),
            ("PodScheduled", Ok(())),
        ]
        .into_iter()
        .map(|(kind, holds)| {
            let reason = match (&holds, kind, phase) {
                (Ok(()), "Initialized", Phase::Succeeded) => ("PodCompleted", ""),
                (Ok(()), ..) => ("", ""),
                (Err((reason, message)), ..) => (*reason, message.as_str()),
            };
            self.condition(kind, holds.is_ok(), reason, now)
        })
        .collect();
        if let Some(ending) = self.ending.as_ref().filter(|it| it.is_disruption) {
            said.push(self.condition(
                "DisruptionTarget",
                true,
                ("TerminationByKubelet", &ending.message),
                now,
            ));
        }
        said
    }

    fn condition(&self, kind: &str, holds: bool, (reason, message): (&str, &str), now: Time) -> Value {
        let status = if holds { "True" } else { "False" };
        let all =
            [&self.reported, &self.object.status].into_iter().filter_map(|it| it["conditions"].as_array());
        let before = all.flatten().find(|it| it["type"] == kind && it["status"] == status);
        let since = before.map_or(&Value::Null, |it| &it["lastTransitionTime"]);
        let since = if since.is_string() { since.clone() } else { now.to_rfc3339().into() };
        let text = |it: &str| if it.is_empty() { Value::Null } else { it.into() };
        let mut said = json!({
            "type": kind,
            "status": status,
            "lastTransitionTime": since,
            "reason": text(reason),
            "message": text(message),
        });
        if self.object.generation != 0 {
            said["observedGeneration"] = self.object.generation.into();
        }
        said
    }

    fn initialized(&self, phase: Phase, init: &[Value], main: &[Value]) -> Result<(), Why> {
        let has_started = |it: &Value| {
            let state = &it["state"];
            it["started"] == true
                || !state["terminated"].is_null()
                || !it["lastState"]["terminated"].is_null()
        };
        if phase == Phase::Succeeded || main.iter().any(has_started) {
            return Ok(());
        }
        let roles = self.object.spec.init.iter().map(|it| it.role);
        let incomplete = roles.zip(init).filter(|(role, it)| match role {
            Role::Sidecar => it["started"] != true,
            _ => it["ready"] != true,
        });
        match names(incomplete.map(|(_, it)| it)) {
            None => Ok(()),
            Some(names) => {
                Err(("ContainersNotInitialized", format!("containers with incomplete status: [{names}]")))
            }
        }
    }

    fn containers_ready(&self, phase: Phase, init: &[Value], main: &[Value]) -> Result<(), Why> {
        let fails = self.ending.is_some() || self.ended == Some(Phase::Failed);
        match phase {
            Phase::Succeeded => return Err(("PodCompleted", String::new())),
            Phase::Failed => return Err(("PodFailed", String::new())),
            Phase::Pending | Phase::Running if fails => return Err(("PodFailed", String::new())),
            Phase::Pending | Phase::Running => {}
        }
        let sidecars = self.object.spec.init.iter().zip(init).filter(|(it, _)| it.role == Role::Sidecar);
        let all = sidecars.map(|(_, it)| it).chain(main);
        match names(all.filter(|it| it["ready"] != true)) {
            None => Ok(()),
            Some(names) => Err(("ContainersNotReady", format!("containers with unready status: [{names}]"))),
        }
    }

    /// Rule: a pod with readiness gates is ready only once others have set all those conditions.
    fn gates(&self) -> Result<(), Why> {
        let conditions = self.object.status["conditions"].as_array();
        let said = |gate: &Text| conditions.into_iter().flatten().find(|it| it["type"] == **gate);
        let missing = self.object.spec.gates.iter().filter_map(|gate| match said(gate) {
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

/// Reason and message of what does not hold.
type Why = (&'static str, String);

impl State {
    fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }
}

/// The phase of a status, if it is one that a pod does not leave again.
pub(super) fn terminal(status: &Value) -> Option<Phase> {
    match status["phase"].as_str() {
        Some("Succeeded") => Some(Phase::Succeeded),
        Some("Failed") => Some(Phase::Failed),
        _ => None,
    }
}

/// What a patch states, without what it takes away.
pub(super) fn stated(patch: &Value) -> Value {
    let mut status = patch["status"].clone();
    if let Some(addresses) = status["podIPs"].as_array_mut() {
        addresses.retain(|it| it["$patch"].is_null());
    }
    status
}

/// Whether all that `part` says is so in `whole`. `null` is what is not there.
pub(super) fn covers(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), _) => {
            part.iter().all(|(key, value)| covers(value, whole.get(key).unwrap_or(&Value::Null)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            // A volume is mounted as often as one likes, each time at another path.
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
                    .all(|(place, it)| covers(it, &counterpart(place, it).unwrap_or(Value::Null)))
        }
        (Value::Array(part), Value::Null) => part.is_empty(),
        (part, whole) => part == whole,
    }
}

/// Addresses are merged by address: the old ones have to be taken away, be it those that were told last or, where the pod had
/// none for a while, those that still stand.
fn without_old_addresses(mut status: Value, before: [&Value; 2]) -> Value {
    if let Some(own) = status["podIPs"].as_array_mut() {
        for old in before.into_iter().filter_map(|it| it["podIPs"].as_array()).flatten() {
            if !own.iter().any(|own| own["ip"] == old["ip"]) {
                own.push(json!({"$patch": "delete", "ip": old["ip"]}));
            }
        }
    }
    status
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    }
}

fn names<'a>(statuses: impl Iterator<Item = &'a Value>) -> Option<String> {
    let names: Vec<&str> = statuses.filter_map(|it| it["name"].as_str()).collect();
    (!names.is_empty()).then(|| names.join(" "))
}

fn addresses(all: &[Text]) -> Value {
    all.iter().map(|it| json!({"ip": it})).collect()
}

fn lost(message: &str) -> Value {
    json!({"terminated": {"reason": "ContainerStatusUnknown", "message": message, "exitCode": LOST}})
}

/// A mount, as the status repeats it.
fn mount(mount: &Value) -> Value {
    let mut said = json!({"name": mount["name"], "mountPath": mount["mountPath"]});
    if mount["readOnly"] == true {
        said["readOnly"] = true.into();
        said["recursiveReadOnly"] = "Disabled".into();
    }
    said
}
