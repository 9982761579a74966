//! Formats why a pod is not ready, as the kubelet or the scheduler reports it in the pod's status.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use muster_api::core_v1::{ContainerStatus, Pod};
use muster_api::json;
use serde::de::IgnoredAny;

use crate::daemonset::facts::PodProblem;

/// Returns a message that says why a pod is not ready. `json` is the pod object. `None` if the status shows no problem,
/// or if the object cannot be parsed.
pub(super) fn pod_problem_message(json: &[u8]) -> Option<String> {
    let pod: Pod<'_, IgnoredAny> = json::from_slice(json).ok()?;
    let status = pod.status?;
    Some(match PodProblem::from_status(&status)? {
        PodProblem::Waiting { container, reason, message } => {
            let name = container.name.as_deref().unwrap_or_default();
            let what = format!("container {name}: {reason}{}", restart_count_text(container));
            format!("{}{}", with_message(&what, message), last_termination(container))
        }
        PodProblem::Failed { reason, message } => with_message(reason.unwrap_or("failed"), message),
        PodProblem::Unschedulable { reason, message } => with_message("the scheduler", message.or(reason)),
        PodProblem::NotReady { container } => {
            let name = container.name.as_deref().unwrap_or_default();
            let probe = if container.started == Some(false) { "startup" } else { "readiness" };
            let restarts = restart_count_text(container);
            let end = last_termination(container);
            format!("container {name} runs{restarts}, and its {probe} probe has not succeeded{end}")
        }
    })
}

/// Returns the number of restarts of a container as `, 2 restarts`. Empty if the container was never restarted.
fn restart_count_text(container: &ContainerStatus<'_>) -> String {
    match container.restart_count.unwrap_or(0) {
        0 => String::new(),
        1 => ", 1 restart".to_string(),
        times => format!(", {times} restarts"),
    }
}

/// Returns how a container last ended, as `; last terminated with Error, exit code 1: message`, from its
/// `lastState.terminated`. Empty if the container has no such state.
fn last_termination(container: &ContainerStatus<'_>) -> String {
    let Some(end) = container.last_state.as_ref().and_then(|it| it.terminated.as_ref()) else {
        return String::new();
    };
    let reason = end.reason.as_deref().filter(|it| !it.is_empty()).unwrap_or("Error");
    let code = end.exit_code.unwrap_or(0);
    with_message(&format!("; last terminated with {reason}, exit code {code}"), end.message.as_deref())
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
