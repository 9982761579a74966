//! Invariants of a kubelet's actions for one pod. The rules are written independently of the engine, so that the engine
//! does not check itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::kubelet::pod::{Action, Outcome, ProbeKind, RuntimeState, State};
use serde_json::Value;

/// Checks the actions of a kubelet for one pod.
#[derive(Debug, Default)]
pub struct Judge {
    /// IDs of containers whose startup probe has passed; kept when the kubelet restarts.
    passed: BTreeSet<Text>,
    /// Actions in progress. This and the following fields are reset when the kubelet restarts.
    under_way: Vec<Action>,
    restarts: BTreeMap<Text, Restarts>,
    hooks: BTreeSet<Text>,
    end_by: Option<Time>,
    phase: u8,
}

/// The restarts of one container of the spec.
#[derive(Debug)]
struct Restarts {
    /// ID of the exited container that was last replaced.
    after: Text,
    at: Time,
    count: u32,
}

/// Tolerance: grace periods are counted in whole seconds.
const SECOND: Duration = Duration::from_secs(1);

impl Judge {
    /// A new kubelet process starts, and finds this pod status.
    pub fn begins(&mut self, status: &Value) {
        let passed = std::mem::take(&mut self.passed);
        *self = Self { passed, phase: place(status), ..Self::default() };
    }

    /// The kubelet has learned that all containers must be stopped by this time.
    pub fn ends_by(&mut self, at: Time) {
        self.end_by = Some(self.end_by.map_or(at, |it| it.min(at)));
    }

    /// Checks an action that the kubelet starts.
    pub fn given(
        &mut self,
        action: &Action,
        spec: &Value,
        seen: &RuntimeState,
        now: Time,
    ) -> Result<(), String> {
        if self.under_way.contains(action) {
            return Err(format!("{action}: started again while it is in progress"));
        }
        self.under_way.push(action.clone());
        match action {
            Action::Start { container, .. } => self.comes_again(container, seen, now),
            Action::Probe { container, id, probe, .. } => self.may_be_probed(container, id, *probe, spec),
            Action::Stop { id, grace, pre_stop, .. } => self.may_be_stopped(id, *grace, *pre_stop, now),
            Action::Report(patch) => self.may_be_said(&patch["status"]),
            _ => Ok(()),
        }
    }

    pub fn answered(&mut self, action: &Action) {
        self.under_way.retain(|it| it != action);
    }

    /// Records the outcome of an action.
    pub fn done(&mut self, action: &Action, outcome: &Outcome) {
        if let (Action::Probe { id, probe: ProbeKind::Startup, .. }, Outcome::Probed { passed: true, .. }) =
            (action, outcome)
        {
            self.passed.insert(id.clone());
        }
    }

    /// Crash-loop backoff: an exited container restarts immediately, then after 10 s, 20 s and so on up to 5 min.
    fn comes_again(&mut self, name: &Text, seen: &RuntimeState, now: Time) -> Result<(), String> {
        let all = seen.containers.iter().filter(|it| it.name == *name);
        let Some(last) = all.max_by_key(|it| it.attempt) else { return Ok(()) };
        let State::Exited { finished, .. } = last.state else { return Ok(()) };
        let before = self.restarts.remove(name);
        if let Some(before) = before.as_ref().filter(|it| it.after == last.id) {
            // The previous attempt to start the container failed, and is repeated.
            let Restarts { after, at, count } = before;
            self.restarts.insert(name.clone(), Restarts { after: after.clone(), at: *at, count: *count });
            return Ok(());
        }
        let ran_long = |it: &Restarts| Duration::from_secs(600) < finished.since(it.at);
        let count = before.filter(|it| !ran_long(it)).map_or(0, |it| it.count);
        let waits = [0, 10, 20, 40, 80, 160, 300];
        let wait = waits[usize::try_from(count).unwrap_or(0).min(waits.len() - 1)];
        if now < finished + Duration::from_secs(wait) {
            return Err(format!(
                "{name} restarts before its backoff of {wait} s has passed (restart {count})"
            ));
        }
        self.restarts.insert(name.clone(), Restarts { after: last.id.clone(), at: now, count: count + 1 });
        Ok(())
    }

    fn may_be_probed(&self, name: &Text, id: &Text, probe: ProbeKind, spec: &Value) -> Result<(), String> {
        let lists = ["initContainers", "containers"].into_iter().filter_map(|it| spec[it].as_array());
        let container = lists.flatten().find(|it| it["name"] == **name);
        let starts_slowly = container.is_some_and(|it| it["startupProbe"].is_object());
        let has_started = !starts_slowly || self.passed.contains(id);
        match probe {
            ProbeKind::Liveness | ProbeKind::Readiness if !has_started => {
                Err(format!("{name} is probed before its startup probe has passed"))
            }
            _ => Ok(()),
        }
    }

    fn may_be_stopped(&mut self, id: &Text, grace: Duration, hook: bool, now: Time) -> Result<(), String> {
        if hook && !self.hooks.insert(id.clone()) {
            return Err(format!("the preStop hook of {id} runs twice"));
        }
        match self.end_by {
            Some(by) if by.max(now) + SECOND < now + grace => Err(format!(
                "{id} gets a grace period of {grace:?}, which ends {:?} after the pod's deadline",
                (now + grace).since(by)
            )),
            _ => Ok(()),
        }
    }

    /// The phase of a pod only advances: Pending, Running, then Succeeded or Failed.
    fn may_be_said(&mut self, status: &Value) -> Result<(), String> {
        let before = std::mem::replace(&mut self.phase, place(status));
        let has_ended = 2 <= before;
        if self.phase < before || (has_ended && self.phase != before) {
            return Err(format!("the phase goes back from rank {before} to {}", status["phase"]));
        }
        Ok(())
    }
}

fn place(status: &Value) -> u8 {
    match status["phase"].as_str() {
        Some("Running") => 1,
        Some("Succeeded") => 2,
        Some("Failed") => 3,
        _ => 0,
    }
}
