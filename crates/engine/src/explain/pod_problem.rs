//! Reads from a pod's status why the pod is not ready, as the kubelet or the scheduler reports it.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use muster_api::core_v1::{ContainerStatus, Pod};
use muster_api::json;
use muster_api::well_known::POD_SCHEDULED;
use serde::de::IgnoredAny;

/// Returns a message that says why a pod is not ready. `json` is the pod object. `None` if the status shows no problem,
/// or if the object cannot be parsed.
///
/// Rule: the problem of a pod is the first of these that exists: the reason why a container waits (other than
/// `ContainerCreating` and `PodInitializing`), with its last termination; the scheduler's message; the failure of the
/// pod; a container that runs and is not ready.
pub(super) fn pod_problem(json: &[u8]) -> Option<String> {
    let pod: Pod<'_, IgnoredAny> = json::from_slice(json).ok()?;
    let status = pod.status?;
    let containers = || status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let mut waiting = containers().filter_map(|it| Some((it, it.state.as_ref()?.waiting.as_ref()?)));
    let stuck = waiting.find(|(_, it)| {
        !matches!(it.reason.as_deref(), None | Some("ContainerCreating" | "PodInitializing"))
    });
    if let Some((container, waiting)) = stuck {
        let name = container.name.as_deref().unwrap_or_default();
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let what = format!("container {name}: {reason}{}", restart_count_text(container));
        let mut all = with_message(&what, waiting.message.as_deref());
        if let Some(end) = last_termination(container) {
            all = format!("{all}; {end}");
        }
        return Some(all);
    }
    if let Some(it) = status.condition(POD_SCHEDULED).filter(|it| it.is_false()) {
        return Some(with_message("the scheduler", it.message.as_deref().or(it.reason.as_deref())));
    }
    if status.phase.as_deref() == Some("Failed") {
        return Some(with_message(status.reason.as_deref().unwrap_or("failed"), status.message.as_deref()));
    }
    let not_ready = |it: &&ContainerStatus<'_>| {
        it.ready == Some(false) && it.state.as_ref().is_some_and(|it| it.running.is_some())
    };
    let container = status.container_statuses.iter().flatten().find(not_ready)?;
    let name = container.name.as_deref().unwrap_or_default();
    let probe = if container.started == Some(false) { "startup" } else { "readiness" };
    let end = last_termination(container).map(|it| format!("; {it}")).unwrap_or_default();
    Some(format!(
        "container {name} runs{}, and its {probe} probe has not succeeded{end}",
        restart_count_text(container)
    ))
}

/// Returns the number of restarts of a container as `, 2 restarts`. Empty if the container was never restarted.
fn restart_count_text(container: &ContainerStatus<'_>) -> String {
    match container.restart_count.unwrap_or(0) {
        0 => String::new(),
        1 => ", 1 restart".to_string(),
        times => format!(", {times} restarts"),
    }
}

/// Returns a message about the `lastState.terminated` of a container: reason, exit code and message. `None` if the
/// container has none.
fn last_termination(container: &ContainerStatus<'_>) -> Option<String> {
    let end = container.last_state.as_ref()?.terminated.as_ref()?;
    let reason = end.reason.as_deref().filter(|it| !it.is_empty()).unwrap_or("Error");
    let code = end.exit_code.unwrap_or(0);
    Some(with_message(&format!("it last ended with {reason}, exit code {code}"), end.message.as_deref()))
}

/// Returns `what`, followed by a colon and the shortened message. Returns only `what` if there is no message.
fn with_message(what: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|it| !it.is_empty()) {
        Some(message) => format!("{what}: {}", shorten_message(message)),
        None => what.to_string(),
    }
}

/// Returns a message on one line. Leaves out the middle of a long message, because its beginning names the operation
/// and its end names the cause.
fn shorten_message(message: &str) -> String {
    /// Number of characters that are kept at the beginning of a long message.
    const HEAD_CHARS: usize = 120;
    /// Number of characters that are kept at the end of a long message.
    const TAIL_CHARS: usize = 180;
    let line: Vec<char> = message.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    match (line.get(..HEAD_CHARS), line.len().checked_sub(TAIL_CHARS).and_then(|it| line.get(it..))) {
        (Some(head), Some(tail)) if HEAD_CHARS + TAIL_CHARS < line.len() => {
            head.iter().chain(&['…']).chain(tail).collect()
        }
        _ => line.into_iter().collect(),
    }
}
