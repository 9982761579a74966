//! The controller's state about a DaemonSet that no API object stores. The controller stays correct if a restart loses
//! this state.
//!
//! This module also computes the cells of a DaemonSet from that state and from facts. A cell is the state of the
//! DaemonSet on one node. Facts are the decoded fields of API objects that the controller's rules read.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use crate::controller::{Backoff, BackoffPolicy};
use crate::daemonset::cell::{self, NodeInMemoryState};
use crate::daemonset::controller_cache::{DirtyCells, SetEntry};
use crate::daemonset::execution::{CreateResult, ExecutionReport};
use crate::daemonset::expectations::Expectations;
use crate::daemonset::facts::{Condition, ConditionType, Kind, Revision, Status, StatusCounts};
use crate::daemonset::object_cache::ObjectCache;
use crate::daemonset::plan::{Plan, RolloutWrite};
use crate::daemonset::progressive::check::CheckMeasurements;
use crate::daemonset::progressive::membership::AssignedRevision;
use crate::daemonset::progressive::record::{CheckResult, RolloutStatus};
use crate::daemonset::progressive::rollout::ProgressiveRollout;
use crate::daemonset::refused_evictions::RefusedEvictions;
use crate::daemonset::revision::{self, TargetRevision};
use crate::daemonset::status::REASON_STALLED;
use crate::daemonset::{ROLLOUT_STALLED_AFTER, RolloutDeletion, RolloutProgress, SetState};

/// The controller's state about one DaemonSet that no API object stores, such as expectations, backoffs, retries and
/// progress.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct InMemoryState {
    /// The controller's own writes that the watches must deliver before the next plan.
    pub(super) expectations: Expectations,
    /// Backoff after a failed or succeeded pod was deleted, by node, for the current generation.
    pub(super) backoffs: BTreeMap<Text, Backoff>,
    /// The controller's last deletion or eviction of a pod on each node, by name of the node.
    pub(super) rollout_deletions: BTreeMap<Text, RolloutDeletion>,
    /// Evictions that the API server refused, to be tried again after a delay.
    pub(super) evictions: RefusedEvictions,
    /// The generation of the DaemonSet that `backoffs`, `evictions`, `failures` and `retry_at` belong to.
    pub(super) generation: i64,
    /// Number of consecutive plans of the DaemonSet with a failed call.
    pub(super) failures: u32,
    /// Time before which no new plan is made after a failed call. `None` if there is no such time.
    pub(super) retry_at: Option<Time>,
    /// Result of the most recent pod creates, for the conditions. A server error is stored only after several failed
    /// plans. An error does not replace [`CreateResult::NamespaceTerminating`].
    pub(super) creates: CreateResult,
    /// Progress of the rollout. `None` before the first plan with a current revision.
    pub(super) rollout_progress: Option<RolloutProgress>,
    /// The last generation whose events about an invalid spec or selector were recorded. `None` before the first.
    pub(super) events_recorded_for: Option<i64>,
    /// Time of the last write of the DaemonSet's status or conditions. `None` before the first write.
    pub(super) status_at: Option<Time>,
    /// Results of the checks of the progressive rollout that the controller measures itself (Prometheus and webhooks).
    pub(super) checks: CheckMeasurements,
    /// Time at which the controller last created the DaemonRollout or wrote its status. `None` before the first write.
    pub(super) rollout_status_at: Option<Time>,
}

/// Minimum time between two status writes of a DaemonSet, and between two status writes of a DaemonRollout. Some
/// changes are written at once: see [`SetEntry::throttle_status`] and [`SetEntry::throttle_rollout_status`]. A status
/// write costs the API server as much as a pod write, and no client needs more than four status writes per object and
/// second.
const STATUS_WRITE_INTERVAL_MIN: Duration = Duration::from_millis(250);

/// Backoff after consecutive plans with a failed call. If the API server requests a longer delay, that delay is used.
const CALL_BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_millis(100), max: Duration::from_secs(30) };

/// Number of consecutive plans with a failed call after which the Degraded condition reports the next server error of a
/// pod create. The retry delays before that plan (0.1, 0.2, 0.4, 0.8 and 1.6 s) add up to about three seconds.
const FAILED_PLANS_BEFORE_DEGRADED: u32 = 5;

impl SetEntry {
    /// Adjusts the in-memory state after the clock was set back, and to a new generation of the DaemonSet. In both
    /// cases, marks all cells (the state of the DaemonSet on each node) as dirty. Always records `now` as the time of
    /// the last reconcile.
    ///
    /// If the clock was set back, recorded times that are now in the future are moved to the present, and retry times
    /// to at most their maximum delay from now. A new generation resets the backoffs after failed pods, failed calls
    /// and refused evictions.
    pub(super) fn adjust_to_clock_and_generation(&mut self, now: Time) {
        if self.reconciled_at.is_some_and(|it| now < it) {
            self.dirty = DirtyCells::All;
            for backoff in self.memory.backoffs.values_mut() {
                backoff.since = backoff.since.min(now);
            }
            for deletion in self.memory.rollout_deletions.values_mut() {
                deletion.at = deletion.at.min(now);
            }
            self.memory.evictions.adjust_to_clock(now);
            self.memory.retry_at = self.memory.retry_at.map(|at| at.min(now + CALL_BACKOFF.max));
            if let Some(rollout_progress) = &mut self.memory.rollout_progress {
                rollout_progress.at = rollout_progress.at.min(now);
            }
            self.memory.checks.adjust_to_clock(now);
            self.memory.status_at = self.memory.status_at.map(|at| at.min(now));
            self.memory.rollout_status_at = self.memory.rollout_status_at.map(|at| at.min(now));
        }
        self.reconciled_at = Some(now);
        if self.memory.generation != self.set.generation {
            // Rule: a new generation resets the backoff of failed pods and failed calls.
            self.memory.generation = self.set.generation;
            self.memory.backoffs.clear();
            self.memory.evictions = RefusedEvictions::default();
            (self.memory.failures, self.memory.retry_at) = (0, None);
            self.dirty = DirtyCells::All;
        }
    }

    /// Computes the dirty cells again, and the cells whose recheck time has come. A cell is the state of the DaemonSet
    /// on one node. If the recheck time of the revision history has come, computes the revision history and all cells
    /// again. `assist` is whether the controller runs in assist mode, beside upstream's controller.
    pub(super) fn refresh_cells(&mut self, objects: &ObjectCache, assist: bool, now: Time) {
        let due = |set_state: &SetState| -> Option<Text> {
            let first = set_state.timers.first().filter(|(at, _)| *at <= now);
            first.map(|(_, node)| node.clone())
        };
        if self.set_state.history.recheck_at.is_some_and(|at| at <= now) {
            self.dirty = DirtyCells::All;
        }
        let DirtyCells::Nodes(mut nodes) =
            core::mem::replace(&mut self.dirty, DirtyCells::Nodes(BTreeSet::new()))
        else {
            return self.refresh_all_cells(objects, assist, now);
        };
        let Some(current) = self.set_state.history.current.clone() else { return };
        loop {
            let node = match nodes.pop_first() {
                Some(node) => node,
                None => match due(&self.set_state) {
                    Some(node) => node,
                    None => break,
                },
            };
            self.refresh_cell(objects, &current, &node, now);
        }
    }

    /// Computes the revision history, the progressive rollout and all cells again. A cell is the state of the DaemonSet
    /// on one node. Without a current revision there are no cells.
    fn refresh_all_cells(&mut self, objects: &ObjectCache, assist: bool, now: Time) {
        let owned: Vec<Arc<Revision>> = objects
            .revisions_for(&self.set.uid, &self.set.key.namespace)
            .filter(|it| it.owner.as_ref() == Some(&self.set.uid) && self.set.selector.matches(&it.labels))
            .collect();
        self.set_state = SetState::new(revision::revision_history(&self.set, &owned, now));
        let Some(current) = self.set_state.history.current.clone() else { return };
        self.set_state.progressive = ProgressiveRollout::for_set(
            &self.effective,
            &owned,
            &current,
            self.policy.as_ref(),
            objects.rollout(&self.set.key),
            objects.is_rollout_kind_forbidden(),
            assist.then_some(self.set.rollout),
        );
        let pods = &self.pods;
        self.memory.evictions.drop_ended_refusals(|node| pods.get(node).map_or(&[][..], Vec::as_slice));
        let cells = objects.nodes().join(&self.pods, |name, node, pods| {
            let pods = pods.map_or(&[][..], Vec::as_slice);
            cell::compute_cell(
                &self.effective,
                &current,
                self.set_state.progressive.as_ref(),
                node.map(Arc::as_ref),
                pods,
                self.memory.in_memory_state_of_node(name),
                now,
            )
        });
        self.set_state.init_cells(&current, cells);
    }

    /// Computes the cell of one node again. A cell is the state of the DaemonSet on one node. Removes the cell if the
    /// node and its pods no longer exist. Also drops in-memory state that no longer applies to the node.
    fn refresh_cell(&mut self, objects: &ObjectCache, current: &TargetRevision, name: &Text, now: Time) {
        let node = objects.node(name);
        let pods = self.pods.get(name).map_or(&[][..], Vec::as_slice);
        self.memory.evictions.drop_ended_refusal(name, pods);
        if node.is_none() && pods.is_empty() {
            self.memory.backoffs.remove(name);
            self.memory.rollout_deletions.remove(name);
            return self.set_state.remove_cell(current, name);
        }
        let progressive = self.set_state.progressive.as_ref();
        let in_memory_state_of_node = self.memory.in_memory_state_of_node(name);
        let cell = cell::compute_cell(
            &self.effective,
            current,
            progressive,
            node,
            pods,
            in_memory_state_of_node,
            now,
        );
        let target = match (cell.assigned, progressive.and_then(|it| it.stable.as_ref())) {
            (AssignedRevision::Stable, Some(stable)) => &stable.target,
            _ => current,
        };
        if self
            .memory
            .rollout_deletions
            .get(name)
            .is_some_and(|it| it.charged_until(&self.effective, target, pods, now).is_none())
        {
            self.memory.rollout_deletions.remove(name);
        }
        self.set_state.put_cell(current, name, cell);
    }

    /// Delays the write of the DaemonSet's status if the last such write is too recent: removes the write from the
    /// plan, and sets the wake-up time of the plan.
    ///
    /// Rule: status writes that change only counts or condition messages are limited to four per second. A new
    /// generation, a changed status or reason of a condition, a changed `collisionCount` and every status of a complete
    /// rollout are written at once.
    pub(super) fn throttle_status(&self, plan: &mut Plan, now: Time) {
        let Some(until) =
            self.memory.status_at.map(|it| it + STATUS_WRITE_INTERVAL_MIN).filter(|it| now < *it)
        else {
            return;
        };
        let counts_alone = |it: &Status| {
            let before = &self.set.status;
            let turned =
                |a: &Condition, b: &Condition| (a.kind, a.status, &a.reason) != (b.kind, b.status, &b.reason);
            it.observed_generation == before.observed_generation
                && it.collisions == before.collisions
                && it.conditions.len() == before.conditions.len()
                && !it.conditions.iter().zip(&before.conditions).any(|(a, b)| turned(a, b))
        };
        if plan.status.as_ref().is_some_and(counts_alone) && !self.set_state.totals.is_rollout_complete() {
            plan.status = None;
            plan.wake_at = earliest(plan.wake_at, Some(until));
        }
    }

    /// Delays the write of conditions in assist mode if the last such write is too recent: removes the write from the
    /// plan, and sets the wake-up time of the plan.
    ///
    /// Rule: conditions are applied at most four times per second.
    pub(super) fn throttle_conditions(&self, plan: &mut Plan, now: Time) {
        let until = self.memory.status_at.map(|it| it + STATUS_WRITE_INTERVAL_MIN).filter(|it| now < *it);
        if let Some(until) = until.filter(|_| plan.conditions.is_some()) {
            plan.conditions = None;
            plan.wake_at = earliest(plan.wake_at, Some(until));
        }
    }

    /// Delays the status write of the DaemonRollout if the last such write is too recent: removes the write from the
    /// plan, and sets the wake-up time of the plan.
    ///
    /// Rule: status writes of a DaemonRollout that change only counts, messages and times are limited to four per
    /// second. Any other change of the status is written at once.
    pub(super) fn throttle_rollout_status(&self, plan: &mut Plan, now: Time) {
        let Some(until) =
            self.memory.rollout_status_at.map(|it| it + STATUS_WRITE_INTERVAL_MIN).filter(|it| now < *it)
        else {
            return;
        };
        let Some(RolloutWrite::PutStatus { record, status, .. }) = &plan.rollout else { return };
        let before = &record.status;
        let step = |it: &RolloutStatus| it.step.as_ref().map(|it| it.name.clone());
        let results = |it: &RolloutStatus| -> Vec<(Text, CheckResult)> {
            it.checks.iter().map(|it| (it.name.clone(), it.result)).collect()
        };
        let is_urgent = (status.observed_generation, status.phase, status.paused, status.attempt)
            != (before.observed_generation, before.phase, before.paused, before.attempt)
            || (&status.current, &status.stable, &status.policy, &status.admitted)
                != (&before.current, &before.stable, &before.policy, &before.admitted)
            || (&status.failures.nodes, &status.failures.excused)
                != (&before.failures.nodes, &before.failures.excused)
            || step(status) != step(before)
            || results(status) != results(before);
        if !is_urgent {
            plan.rollout = None;
            plan.wake_at = earliest(plan.wake_at, Some(until));
        }
    }

    /// Records the progress of the rollout: the highest numbers of updated and of available nodes so far, and the time
    /// at which one of these numbers last rose. The record starts again when the revision or the generation changes, and
    /// when the rollout becomes complete or incomplete. The first record after a restart of the controller keeps a
    /// rollout stalled that was stalled before. Does nothing without a current revision.
    pub(super) fn record_progress(&mut self, now: Time) {
        let Some(current) = &self.set_state.history.current else { return };
        let counts = self.set_state.totals.status_counts();
        let complete = self.set_state.totals.is_rollout_complete();
        let (hash, generation) = (current.hash.clone(), self.set.generation);
        let mut next = RolloutProgress {
            hash,
            generation,
            updated: counts.updated,
            available: counts.available,
            complete,
            at: now,
        };
        match &self.memory.rollout_progress {
            None if self.was_stalled_before_restart(&counts) => next.at = now - ROLLOUT_STALLED_AFTER,
            // The same rollout advances only when a count exceeds its previous maximum, not when a pod fails and
            // recovers.
            Some(it) if it.hash == next.hash && it.generation == generation && it.complete == complete => {
                if next.updated <= it.updated && next.available <= it.available {
                    return;
                }
                next.updated = next.updated.max(it.updated);
                next.available = next.available.max(it.available);
            }
            _ => {}
        }
        self.memory.rollout_progress = Some(next);
    }

    /// Whether the stored status shows that the rollout was stalled before the controller restarted.
    ///
    /// Rule: after a restart the controller keeps the reason `Stalled` of the stored `Progressing` condition as long as
    /// the generation and the counts are the same.
    fn was_stalled_before_restart(&self, counts: &StatusCounts) -> bool {
        let status = &self.set.status;
        let stalled =
            |it: &Condition| it.kind == ConditionType::Progressing && it.reason.as_ref() == REASON_STALLED;
        status.counts == *counts
            && status.observed_generation == self.set.generation
            && status.conditions.iter().any(stalled)
    }
}

impl InMemoryState {
    /// Returns the part of this in-memory state that is about one node.
    fn in_memory_state_of_node(&self, node: &Text) -> NodeInMemoryState<'_> {
        NodeInMemoryState {
            backoff: self.backoffs.get(node).copied(),
            rollout_deletion: self.rollout_deletions.get(node),
        }
    }

    /// Applies the report of an execution: updates the expectations, the refused evictions, the times of the last
    /// status writes, the result of the pod creates, the number of failed plans, and the time of the next retry.
    pub(super) fn apply_report(&mut self, report: &ExecutionReport, now: Time) {
        report.update_expectations(&mut self.expectations, now);
        self.evictions.apply_report(report, now);
        if report.wrote_kind(Kind::Sets) {
            self.status_at = Some(now);
        }
        if report.wrote_kind(Kind::Rollouts) {
            self.rollout_status_at = Some(now);
        }
        match &report.creates {
            CreateResult::Unknown => {}
            CreateResult::Failed(_) if self.failures < FAILED_PLANS_BEFORE_DEGRADED => {}
            CreateResult::Refused(_) | CreateResult::Failed(_)
                if self.creates == CreateResult::NamespaceTerminating => {}
            creates => self.creates = creates.clone(),
        }
        match report.retry {
            // A plan that only lists pods does not reset the failure count.
            None if report.has_listed_pods() => self.retry_at = None,
            None => (self.failures, self.retry_at) = (0, None),
            Some(asked) => {
                self.failures = self.failures.saturating_add(1);
                self.retry_at = Some(now + CALL_BACKOFF.delay(self.failures).max(asked));
            }
        }
    }
}
