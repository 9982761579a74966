//! What must hold of all that one agent does for one pod, in other words than the engine's: what is checked does not check
//! itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::kubelet::pod::{Action, Outcome, ProbeKind, RuntimeState, State};
use serde_json::Value;

#[derive(Debug, Default)]
pub struct Judge {
    /// Startup probes that have passed, by container ID: that outlives an agent.
    passed: BTreeSet<Text>,
    /// All else is of one agent.
    under_way: Vec<Action>,
    restarts: BTreeMap<Text, Restarts>,
    hooks: BTreeSet<Text>,
    end_by: Option<Time>,
    phase: u8,
}

/// How often a container came again.
#[derive(Debug)]
struct Restarts {
    /// The one that ended before.
    after: Text,
    at: Time,
    count: u32,
}

/// Grace is counted in whole seconds.
const SECOND: Duration = Duration::from_secs(1);

impl Judge {
    pub fn begins(&mut self, status: &Value) {
        let passed = std::mem::take(&mut self.passed);
        *self = Self { passed, phase: place(status), ..Self::default() };
    }

    /// The agent knows that all must have ended by then.
    pub fn ends_by(&mut self, at: Time) {
        self.end_by = Some(self.end_by.map_or(at, |it| it.min(at)));
    }

    /// The agent wants this done.
    pub fn given(
        &mut self,
        action: &Action,
        spec: &Value,
        seen: &RuntimeState,
        now: Time,
    ) -> Result<(), String> {
        if self.under_way.contains(action) {
            return Err(format!("{action}: again, while it is under way"));
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

    /// What ended comes again at once, then after 10 s, 20 s and so on up to 5 min.
    fn comes_again(&mut self, name: &Text, seen: &RuntimeState, now: Time) -> Result<(), String> {
        let all = seen.containers.iter().filter(|it| it.name == *name);
        let Some(last) = all.max_by_key(|it| it.attempt) else { return Ok(()) };
        let State::Exited { finished, .. } = last.state else { return Ok(()) };
        let before = self.restarts.remove(name);
        if let Some(before) = before.as_ref().filter(|it| it.after == last.id) {
            // It could not be made, and is tried once more.
            let Restarts { after, at, count } = before;
            self.restarts.insert(name.clone(), Restarts { after: after.clone(), at: *at, count: *count });
            return Ok(());
        }
        let went_well = |it: &Restarts| Duration::from_secs(600) < finished.since(it.at);
        let count = before.filter(|it| !went_well(it)).map_or(0, |it| it.count);
        let waits = [0, 10, 20, 40, 80, 160, 300];
        let wait = waits[usize::try_from(count).unwrap_or(0).min(waits.len() - 1)];
        if now < finished + Duration::from_secs(wait) {
            return Err(format!("{name} comes again before {wait} s have passed, for the {count}. time"));
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
                Err(format!("{name} is probed, and has not started"))
            }
            _ => Ok(()),
        }
    }

    fn may_be_stopped(&mut self, id: &Text, grace: Duration, hook: bool, now: Time) -> Result<(), String> {
        if hook && !self.hooks.insert(id.clone()) {
            return Err(format!("the hook of {id} runs twice"));
        }
        match self.end_by {
            Some(by) if by.max(now) + SECOND < now + grace => Err(format!(
                "{id} is given {grace:?}, and is to end {:?} before that",
                (now + grace).since(by)
            )),
            _ => Ok(()),
        }
    }

    /// A pod waits, runs, and ends, in this order.
    fn may_be_said(&mut self, status: &Value) -> Result<(), String> {
        let before = std::mem::replace(&mut self.phase, place(status));
        let has_ended = 2 <= before;
        if self.phase < before || (has_ended && self.phase != before) {
            return Err(format!("from phase {before} to {}", status["phase"]));
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
