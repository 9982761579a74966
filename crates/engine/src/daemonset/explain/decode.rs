//! What a pod's own status says of its trouble, in the words of whoever wrote it.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use serde::Deserialize;

type Str<'a> = Option<Cow<'a, str>>;

/// Rule: what ails a pod is what the first container waits for that does not run, with how it last ended; else what the
/// scheduler said; else why it failed; else which container runs and is not ready. `None` where nothing does, or the object
/// cannot be read.
pub(super) fn ailment(json: &[u8]) -> Option<String> {
    let pod: RawPod<'_> = serde_json::from_slice(json).ok()?;
    let status = pod.status;
    let containers = || status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let mut waiting = containers().filter_map(|it| Some((it, it.state.as_ref()?.waiting.as_ref()?)));
    let stuck = waiting.find(|(_, it)| {
        !matches!(it.reason.as_deref(), None | Some("ContainerCreating" | "PodInitializing"))
    });
    if let Some((container, waiting)) = stuck {
        let name = container.name.as_deref().unwrap_or_default();
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let what = format!("container {name}: {reason}{}", container.restarts());
        let mut all = said(&what, waiting.message.as_deref());
        if let Some(end) = container.last_end() {
            all = format!("{all}; {end}");
        }
        return Some(all);
    }
    let scheduled = status.conditions.iter().flatten().find(|it| it.kind.as_deref() == Some("PodScheduled"));
    if let Some(it) = scheduled.filter(|it| it.status.as_deref() == Some("False")) {
        return Some(said("the scheduler", it.message.as_deref().or(it.reason.as_deref())));
    }
    if status.phase.as_deref() == Some("Failed") {
        return Some(said(status.reason.as_deref().unwrap_or("failed"), status.message.as_deref()));
    }
    let not_ready = |it: &&RawContainer<'_>| {
        it.ready == Some(false) && it.state.as_ref().is_some_and(|it| it.running.is_some())
    };
    let container = status.container_statuses.iter().flatten().find(not_ready)?;
    let name = container.name.as_deref().unwrap_or_default();
    let probe = if container.started == Some(false) { "startup" } else { "readiness" };
    let end = container.last_end().map(|it| format!("; {it}")).unwrap_or_default();
    Some(format!(
        "container {name} runs{}, and its {probe} probe has not succeeded{end}",
        container.restarts()
    ))
}

impl RawContainer<'_> {
    fn restarts(&self) -> String {
        match self.restart_count.unwrap_or(0) {
            0 => String::new(),
            1 => ", 1 restart".to_string(),
            times => format!(", {times} restarts"),
        }
    }

    /// How it ended before it was begun again.
    fn last_end(&self) -> Option<String> {
        let end = self.last_state.as_ref()?.terminated.as_ref()?;
        let reason = end.reason.as_deref().filter(|it| !it.is_empty()).unwrap_or("Error");
        let code = end.exit_code.unwrap_or(0);
        Some(said(&format!("it last ended with {reason}, exit code {code}"), end.message.as_deref()))
    }
}

fn said(what: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|it| !it.is_empty()) {
        Some(message) => format!("{what}: {}", shortened(message)),
        None => what.to_string(),
    }
}

/// A message may be as long as its writer likes. It begins with what was tried and ends with the cause: both stay.
fn shortened(message: &str) -> String {
    const HEAD: usize = 120;
    const TAIL: usize = 180;
    let line: Vec<char> = message.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    match (line.get(..HEAD), line.len().checked_sub(TAIL).and_then(|it| line.get(it..))) {
        (Some(head), Some(tail)) if HEAD + TAIL < line.len() => {
            head.iter().chain(&['…']).chain(tail).collect()
        }
        _ => line.into_iter().collect(),
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
    ready: Option<bool>,
    started: Option<bool>,
    #[serde(borrow)]
    state: Option<RawState<'a>>,
    #[serde(borrow)]
    last_state: Option<RawState<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawState<'a> {
    #[serde(borrow)]
    waiting: Option<RawWaiting<'a>>,
    running: Option<RawRunning>,
    #[serde(borrow)]
    terminated: Option<RawTerminated<'a>>,
}

/// Since when does not matter here.
#[derive(Deserialize)]
struct RawRunning {}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawTerminated<'a> {
    exit_code: Option<i64>,
    #[serde(borrow)]
    reason: Str<'a>,
    #[serde(borrow)]
    message: Str<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawWaiting<'a> {
    #[serde(borrow)]
    reason: Str<'a>,
    #[serde(borrow)]
    message: Str<'a>,
}
