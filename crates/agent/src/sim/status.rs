//! What the API server is told of a pod, word for word as a kubelet says it.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::container::{Container, Ended, Role, State, backoff};
use super::pod::{CONDITIONS, Host, Phase, Pod};

/// The whole status: what is left away stays as it is.
pub(super) fn of(pod: &Pod, host: Host) -> Value {
    let phase = pod.phase();
    let mut conditions: Vec<Value> = CONDITIONS
        .iter()
        .zip(&pod.conditions)
        .filter_map(|(kind, condition)| {
            let condition = (*condition)?;
            let mut said = json!({
                "type": kind,
                "status": if condition.holds { "True" } else { "False" },
                "lastTransitionTime": seconds(condition.since),
                "reason": null,
                "message": null,
            });
            if pod.generation != 0 {
                said["observedGeneration"] = pod.generation.into();
            }
            if let Some((reason, message)) = why(pod, phase, kind, condition.holds) {
                said["reason"] = reason.into();
                if !message.is_empty() {
                    said["message"] = message.into();
                }
            }
            Some(said)
        })
        .collect();
    if !pod.says_scheduled {
        // Nobody scheduled it: whoever made it named its node.
        let since = pod.start_time.map(seconds);
        conditions.push(json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": since}));
    }
    let statuses = |init: bool| -> Vec<Value> {
        let all = pod.containers.iter().filter(|it| (it.role != Role::Main) == init);
        all.map(|it| container(pod, it)).collect()
    };
    let mut status = Map::new();
    let mut set = |key: &str, value: Value| status.insert(key.to_owned(), value);
    set("phase", name(phase).into());
    set("conditions", conditions.into());
    set("hostIP", host.address.to_string().into());
    set("hostIPs", json!([{"ip": host.address.to_string()}]));
    set("startTime", pod.start_time.map(seconds).into());
    let address = if pod.on_host { Some(host.address) } else { pod.address };
    if let Some(address) = address.filter(|_| pod.on_host || pod.containers.iter().any(Container::has_begun))
    {
        set("podIP", address.to_string().into());
        set("podIPs", json!([{"ip": address.to_string()}]));
    }
    if pod.generation != 0 {
        set("observedGeneration", pod.generation.into());
    }
    set("containerStatuses", statuses(false).into());
    if pod.containers.iter().any(|it| it.role != Role::Main) {
        set("initContainerStatuses", statuses(true).into());
    }
    Value::Object(status)
}

pub(super) fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    }
}

/// Reason and message of a condition.
fn why(pod: &Pod, phase: Phase, kind: &str, holds: bool) -> Option<(&'static str, String)> {
    let list = |names: Vec<&str>| format!("[{}]", names.join(" "));
    match (kind, phase, holds) {
        ("Initialized", Phase::Succeeded, true) => Some(("PodCompleted", String::new())),
        ("Initialized", _, false) => {
            let incomplete = pod.containers.iter().filter(|it| !it.is_done_initializing());
            let names = list(incomplete.map(|it| &*it.name).collect());
            Some(("ContainersNotInitialized", format!("containers with incomplete status: {names}")))
        }
        ("Ready" | "ContainersReady", Phase::Succeeded, false) => Some(("PodCompleted", String::new())),
        ("Ready" | "ContainersReady", Phase::Failed, false) => Some(("PodFailed", String::new())),
        ("Ready" | "ContainersReady", _, false) => {
            let names: Vec<&str> = pod.unready().map(|it| &*it.name).collect();
            if names.is_empty() {
                return Some(("ReadinessGatesNotReady", gates(pod)));
            }
            Some(("ContainersNotReady", format!("containers with unready status: {}", list(names))))
        }
        _ => None,
    }
}

fn gates(pod: &Pod) -> String {
    let said = pod.gates.iter().filter_map(|(gate, said)| match said.as_deref() {
        Some("True") => None,
        Some(said) => Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {said}")),
        None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
    });
    said.collect::<Vec<_>>().join(", ")
}

fn container(pod: &Pod, container: &Container) -> Value {
    let ran = container.has_run();
    let id = format!("sim://{}/{}/{}", pod.uid, container.name, container.restarts);
    let mut said = json!({
        "name": container.name,
        "image": container.image,
        "imageID": if ran { format!("sim://{}", container.image) } else { String::new() },
        "ready": container.ready,
        "started": container.started,
        "restartCount": container.restarts,
        "state": state(pod, container, &id),
        "lastState": {},
    });
    if ran {
        said["containerID"] = id.into();
    }
    if let Some(last) = &container.last {
        // One that waits to come again has its own end there already.
        let own = matches!(container.state, State::CrashLoop { .. });
        let restarts = container.restarts.saturating_sub(u32::from(!own));
        let id = format!("sim://{}/{}/{restarts}", pod.uid, container.name);
        said["lastState"] = json!({"terminated": terminated(last, &id)});
    }
    said
}

fn state(pod: &Pod, container: &Container, id: &str) -> Value {
    let (name, image) = (&container.name, &container.image);
    match &container.state {
        State::Waiting { .. } => {
            let initializes = pod.containers.iter().any(|it| it.role != Role::Main);
            let reason = if initializes { "PodInitializing" } else { "ContainerCreating" };
            json!({"waiting": {"reason": reason}})
        }
        State::NoImage { backs_off: false, .. } => {
            let message = format!("failed to pull and unpack image {image:?}: {image}: not found");
            json!({"waiting": {"reason": "ErrImagePull", "message": message}})
        }
        State::NoImage { backs_off: true, .. } => {
            let message = format!("Back-off pulling image {image:?}: ErrImagePull: {image}: not found");
            json!({"waiting": {"reason": "ImagePullBackOff", "message": message}})
        }
        State::Running { since } => json!({"running": {"startedAt": seconds(*since)}}),
        State::Ended(ended) => json!({"terminated": terminated(ended, id)}),
        State::CrashLoop { .. } => {
            let wait = go_duration(backoff(container.crashes()).as_secs());
            let (pod_name, namespace, uid) = (&pod.name, &pod.namespace, &pod.uid);
            let message = format!(
                "back-off {wait} restarting failed container={name} pod={pod_name}_{namespace}({uid})"
            );
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        }
    }
}

fn terminated(ended: &Ended, id: &str) -> Value {
    json!({
        "exitCode": ended.code,
        "reason": ended.reason,
        "startedAt": seconds(ended.started),
        "finishedAt": seconds(ended.finished),
        "containerID": id,
    })
}

/// As Go writes it: `10s`, `2m40s`.
fn go_duration(seconds: u64) -> String {
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

pub(super) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The `number`-th address of a node's range.
pub(super) fn pod_address(node: u16, number: u8) -> Ipv4Addr {
    let [high, low] = node.to_be_bytes();
    // Services have 10.96.0.0/16.
    let high = if high < 96 { high } else { high + 1 };
    Ipv4Addr::new(10, high, low, number)
}
