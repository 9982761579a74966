//! What a pod's own status says of its trouble, in the words of whoever wrote it.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use serde::Deserialize;

type Str<'a> = Option<Cow<'a, str>>;

/// Rule: what ails a pod is what the first container waits for that does not run, else what the scheduler said, else why
/// it failed. `None` where nothing does, or the object cannot be read.
pub(super) fn ailment(json: &[u8]) -> Option<String> {
    let pod: RawPod<'_> = serde_json::from_slice(json).ok()?;
    let status = pod.status;
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let mut waiting = containers.filter_map(|it| Some((it, it.state.as_ref()?.waiting.as_ref()?)));
    let stuck = waiting.find(|(_, it)| {
        !matches!(it.reason.as_deref(), None | Some("ContainerCreating" | "PodInitializing"))
    });
    if let Some((container, waiting)) = stuck {
        let name = container.name.as_deref().unwrap_or_default();
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let times = match container.restart_count.unwrap_or(0) {
            0 => String::new(),
            times => format!(", {times} restarts"),
        };
        return Some(said(&format!("container {name}: {reason}{times}"), waiting.message.as_deref()));
    }
    let scheduled = status.conditions.iter().flatten().find(|it| it.kind.as_deref() == Some("PodScheduled"));
    if let Some(it) = scheduled.filter(|it| it.status.as_deref() == Some("False")) {
        return Some(said("the scheduler", it.message.as_deref().or(it.reason.as_deref())));
    }
    (status.phase.as_deref() == Some("Failed"))
        .then(|| said(status.reason.as_deref().unwrap_or("failed"), status.message.as_deref()))
}

fn said(what: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|it| !it.is_empty()) {
        Some(message) => format!("{what}: {}", shortened(message)),
        None => what.to_string(),
    }
}

/// A message may be as long as its writer likes.
fn shortened(message: &str) -> String {
    const CHARS_MAX: usize = 300;
    let line: String = message.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    match line.char_indices().nth(CHARS_MAX) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

#[derive(Deserialize)]
struct RawPod<'a> {
    #[serde(borrow, default)]
    status: RawStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus<'a> {
    #[serde(borrow)]
    phase: Str<'a>,
    #[serde(borrow)]
    reason: Str<'a>,
    #[serde(borrow)]
    message: Str<'a>,
    #[serde(borrow)]
    conditions: Option<Vec<RawCondition<'a>>>,
    #[serde(borrow)]
    init_container_statuses: Option<Vec<RawContainer<'a>>>,
    #[serde(borrow)]
    container_statuses: Option<Vec<RawContainer<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    status: Str<'a>,
    #[serde(borrow)]
    reason: Str<'a>,
    #[serde(borrow)]
    message: Str<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawContainer<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    restart_count: Option<i64>,
    #[serde(borrow)]
    state: Option<RawState<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawState<'a> {
    #[serde(borrow)]
    waiting: Option<RawWaiting<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawWaiting<'a> {
    #[serde(borrow)]
    reason: Str<'a>,
    #[serde(borrow)]
    message: Str<'a>,
}
