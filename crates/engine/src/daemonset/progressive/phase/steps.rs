//! The steps of a rollout: which nodes they admit (assign the current revision), and when they pass.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use super::PhaseMachine;
use crate::controller::KubeEvent;
use crate::daemonset::progressive::groups::candidates_of_open_groups;
use crate::daemonset::progressive::membership::{self, GroupCandidates};
use crate::daemonset::progressive::policy::{Approval, Step};
use crate::daemonset::progressive::record::{ALL_STEPS, CheckResult, Phase, StepStatus};
use crate::daemonset::progressive::verdict::RevisionVerdict;

impl PhaseMachine<'_> {
    /// Returns the index of the current step, and starts that step if the status is not in it yet. `None` if all nodes
    /// are admitted at once.
    ///
    /// Rule: if the policy no longer has a step of the stored name, the rollout continues with the first step whose
    /// target is at least the number of exposed nodes or, if no step has such a target, with the last step. A node is
    /// exposed if it is admitted or has a pod of a revision without the verdict `Good`. All nodes are admitted at once
    /// while an operator approves all steps, and in the step `*` while the revision has the verdict `Good`.
    fn find_or_start_step(&mut self) -> Option<usize> {
        let steps = &self.spec.steps;
        let is_for_all = self.status.step.as_ref().is_some_and(|it| *it.name == *ALL_STEPS);
        let is_good = self.input.current.verdict == Some(RevisionVerdict::Good);
        if (is_for_all && is_good) || self.is_approved(ALL_STEPS) {
            return None;
        }
        let name = self.status.step.as_ref().map(|it| it.name.clone());
        let index = name.and_then(|name| steps.iter().position(|it| it.name == name)).or_else(|| {
            let exposed = self.input.counts.step.exposed;
            let eligible = self.input.counts.nodes.eligible;
            steps.iter().position(|it| exposed <= step_target(it, eligible))
        });
        let index = index.unwrap_or(steps.len().saturating_sub(1));
        if self
            .status
            .step
            .as_ref()
            .is_none_or(|it| it.index != index || Some(&it.name) != steps.get(index).map(|it| &it.name))
        {
            self.start_step(index);
        }
        Some(index)
    }

    /// Admits nodes in the current step, that is, assigns them the current revision. Ends the step when its target is
    /// reached, its admitted nodes (except failed ones) have been healthy for the soak time, the checks have passed,
    /// the step is approved if necessary, and the rollout is not paused.
    ///
    /// Exceptions: if all nodes are admitted at once (see [`Self::find_or_start_step`]), admits all eligible nodes. If
    /// the counts are still those of another step, because the step has just started, admits no node yet.
    pub(super) fn advance_step(&mut self) {
        let Some(index) = self.find_or_start_step() else {
            return self.roll_to_all_nodes();
        };
        let Some(step) = self.spec.steps.get(index) else { return };
        let counts = &self.input.counts.step;
        // Cells are computed for the stored step: after a change of the step its counts come with the next plan.
        let is_counted = self.input.stored.step.as_ref().is_some_and(|it| it.name == step.name);
        let target = step_target(step, counts.eligible);
        if let Some(status) = self.status.step.as_mut() {
            status.target = target;
        }
        if !is_counted {
            return self.enter_phase(Phase::Rolling, String::new());
        }
        self.admit(step, target.saturating_sub(counts.exposed));
        let failed_unavailable = self.count_failed_unsoaked_nodes(|it| it.is_in_step && !it.is_available);
        let failed_unsoaked = self.count_failed_unsoaked_nodes(|it| it.is_in_step && !it.is_soaked);
        // Without an available node there is no evidence that the revision works, however many failures are tolerated.
        let is_updated =
            counts.admitted <= counts.available + failed_unavailable && (target == 0 || 0 < counts.available);
        if counts.admitted < target || !is_updated {
            let text =
                format!("{} of {target} nodes of step {:?} are updated", counts.available, &*step.name);
            return self.enter_phase(Phase::Rolling, text);
        }
        if counts.soaked + failed_unsoaked < target {
            let text = format!("{} of {target} nodes of step {:?} have soaked", counts.soaked, &*step.name);
            self.enter_phase(Phase::Soaking, text);
            let passes_at = self.soak_ends_at();
            if let Some(status) = self.status.step.as_mut() {
                status.passes_at = passes_at;
            }
            return;
        }
        // A step that has passed stays passed: its checks are no longer measured.
        let is_passed = self.status.phase == Some(Phase::PartiallyComplete);
        if let Some(text) = self.unpassed_check_message().filter(|_| !is_passed) {
            return self.enter_phase(Phase::Waiting, text);
        }
        if step.approval == Approval::Manual && !self.is_approved(&step.name) {
            let text = format!("step {:?} waits for approval", &*step.name);
            if self.status.phase != Some(Phase::Waiting) {
                self.events.push(KubeEvent::normal("WaitingForApproval", text.clone()));
            }
            return self.enter_phase(Phase::Waiting, text);
        }
        // A paused rollout does not start the next step. What it has passed already stays passed.
        if self.pause_reason.is_some() && self.status.phase != Some(Phase::PartiallyComplete) {
            return self.enter_phase(Phase::Soaking, String::new());
        }
        self.pass_step(index);
    }

    /// Returns the time at which all nodes of the step will have been healthy for the soak time, if their pods stay
    /// healthy. Failed nodes, for which the step does not wait, are left out. `None` if no node soaks.
    fn soak_ends_at(&self) -> Option<Time> {
        let counts = self.input.counts;
        let is_failed_until = |at: Time| {
            self.count_failed_unsoaked_nodes(|it| {
                it.is_in_step && !it.is_soaked && it.soak_ends_at == Some(at)
            })
        };
        counts.soak_ends.iter().rev().find(|(at, nodes)| is_failed_until(**at) < **nodes).map(|(at, _)| *at)
    }

    /// Returns the status message about the first check that has not passed. `None` if all checks have passed.
    fn unpassed_check_message(&self) -> Option<String> {
        let missing = self.status.checks.iter().find(|it| it.result != CheckResult::Pass)?;
        Some(format!("check {:?} has not passed: {}", &*missing.name, missing.message))
    }

    /// Admits every eligible node, that is, assigns it the current revision. Completes the rollout when all eligible
    /// nodes, except failed ones, have an available pod of the current revision, and every check has passed. Exception:
    /// a revision with the verdict `Good` does not wait for checks.
    ///
    /// Rule: `approve` with the step `*` admits every node, without soak time and approvals. Too many failed nodes or a
    /// failed check still stop the rollout, and the revision gets the verdict `Good` only after every check has passed.
    fn roll_to_all_nodes(&mut self) {
        let counts = &self.input.counts.nodes;
        self.enter_all_steps();
        self.admit_all();
        if counts.eligible == 0 {
            return self.enter_phase(Phase::PartiallyComplete, "no node is eligible".into());
        }
        // Nodes that only the stable revision selects keep its pods until the rollout is complete.
        let failed = self.count_failed_unsoaked_nodes(|it| !it.is_available);
        if counts.admitted == counts.eligible
            && 0 < counts.available
            && counts.eligible <= counts.available + failed
        {
            let is_good = self.input.current.verdict == Some(RevisionVerdict::Good);
            return match self.unpassed_check_message().filter(|_| !is_good) {
                Some(text) => self.enter_phase(Phase::Waiting, text),
                None => self.complete(),
            };
        }
        let text = format!("{} of {} nodes are updated", counts.available, counts.eligible);
        self.enter_phase(Phase::Rolling, text);
    }

    /// Makes `*` ([`ALL_STEPS`]) the current step in the status. The step `*` admits every node.
    pub(super) fn enter_all_steps(&mut self) {
        self.status.step = Some(StepStatus {
            name: ALL_STEPS.into(),
            index: self.spec.steps.len().saturating_sub(1),
            target: self.input.counts.nodes.eligible,
            started: self.status.step.as_ref().map_or(self.input.now, |it| it.started),
            passes_at: None,
        });
    }

    /// Admits all eligible nodes that are not admitted yet and are old enough, that is, assigns them the current
    /// revision. Does nothing while the rollout is paused.
    fn admit_all(&mut self) {
        let step = Step { name: ALL_STEPS.into(), ..Step::default() };
        let free = self.input.counts.nodes.held;
        self.admit(&step, free);
    }

    /// Admits nodes in this step: those that already have a pod of a revision without the verdict `Good`, and up to
    /// `free` others. If the step has groups, admits only nodes of open groups. In assist mode, admits nodes of the
    /// first kind only up to the target of the step. If all candidates are too young to be admitted, sets a wake-up
    /// time one second from now. Does nothing while the rollout is paused.
    fn admit(&mut self, step: &Step, free: usize) {
        if self.pause_reason.is_some() {
            return;
        }
        let (open, limited);
        let candidates = if self.input.is_assisting {
            let target = self.status.step.as_ref().map_or(0, |it| it.target);
            let limit = target.saturating_sub(self.input.counts.step.admitted);
            limited = limit_exposed_candidates(&self.input.counts.candidates, limit);
            &limited
        } else {
            &self.input.counts.candidates
        };
        let candidates = match &step.groups {
            Some(groups) => {
                open =
                    candidates_of_open_groups(groups, self.input.counts, candidates, &self.status.failures);
                &open
            }
            None => candidates,
        };
        let next = membership::admit(&self.status.admitted, &step.name, candidates, free, self.input.now);
        if let Some(next) = next {
            self.status.admitted = next;
        } else if 0 < free && candidates.values().any(|it| !it.held.is_empty()) {
            self.wake_at = earliest(self.wake_at, Some(self.input.now + Duration::from_secs(1)));
        }
    }

    /// Ends the step with this index, and starts the next step. After the last step, completes the rollout if all nodes
    /// are admitted and, except failed ones, updated. Otherwise the rollout stays in the last step: in the phase
    /// `Rolling` if all nodes are admitted, else in the phase `PartiallyComplete`.
    fn pass_step(&mut self, index: usize) {
        let Some(step) = self.spec.steps.get(index) else { return };
        let text = format!("Step {:?} has passed", &*step.name);
        let was_passed = self.status.phase == Some(Phase::PartiallyComplete);
        let events_before = self.events.len();
        if !was_passed {
            self.events.push(KubeEvent::normal("StepPassed", text));
        }
        if index + 1 < self.spec.steps.len() {
            self.start_step(index + 1);
            return self.enter_phase(Phase::Rolling, String::new());
        }
        let nodes = &self.input.counts.nodes;
        let is_for_all_nodes = 0 < nodes.eligible && nodes.admitted == nodes.eligible;
        if is_for_all_nodes
            && nodes.available + self.count_failed_unsoaked_nodes(|it| !it.is_available) < nodes.eligible
        {
            self.events.truncate(events_before);
            let text = format!("{} of {} nodes are updated", nodes.available, nodes.eligible);
            return self.enter_phase(Phase::Rolling, text);
        }
        if is_for_all_nodes {
            return self.complete();
        }
        let left = nodes.eligible - nodes.admitted;
        self.enter_phase(Phase::PartiallyComplete, format!("no step reaches the other {left} nodes"));
    }
}

/// Returns how many nodes may have the new revision in a step. `eligible` is the number of eligible nodes, of which the
/// step may state a percentage.
fn step_target(step: &Step, eligible: usize) -> usize {
    step.nodes.scaled_value(eligible).min(eligible)
}

/// Returns the candidates of a step in assist mode: all candidates that are not exposed, and at most `limit` exposed
/// ones. An exposed candidate already has a pod of a revision without the verdict `Good`.
///
/// Rule: in assist mode a node can get a pod of the current revision without being admitted. Such nodes are admitted
/// before others, but only until the step has reached its target. The remaining ones are admitted in later steps.
fn limit_exposed_candidates(
    candidates: &BTreeMap<Text, GroupCandidates>,
    mut limit: usize,
) -> BTreeMap<Text, GroupCandidates> {
    let mut limited = candidates.clone();
    for group in limited.values_mut() {
        group.exposed = group.exposed.iter().take(limit).cloned().collect();
        limit -= group.exposed.len();
    }
    limited
}
