//! Makes the plan of one DaemonSet from its cells. A cell is the state of the DaemonSet on one node. The plan contains
//! the claims, the writes of revisions, pods and status, and the events.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use super::cell::{Cell, Totals};
use super::revision::{CurrentRevision, RevisionHistory};
use super::rollout::{RolloutAction, rollout_budget};
use super::status::{self, ConditionInput};
use crate::controller::KubeEvent;
use crate::daemonset::execution::CreateResult;
use crate::daemonset::facts::{Phase, Pod, Revision, Selector, Set, UpdateStrategy};
use crate::daemonset::plan::{Claim, Plan, Settings};
use crate::daemonset::why::Why;
use crate::hash_ordered_map::HashOrderedMap;

/// The cells of one DaemonSet by node, their totals, and indexes of the cells that need a write. A changed cell updates
/// the totals and indexes without a pass over all cells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SetState {
    /// The revisions of the DaemonSet.
    pub(crate) history: RevisionHistory,
    /// The state of the DaemonSet on each node, by name of the node.
    pub(crate) cells: HashOrderedMap<Text, Cell>,
    /// Sums of the counts of all cells.
    pub(crate) totals: Totals,
    /// Nodes whose cell has a create or delete that uses no rollout budget, in update order.
    writes: BTreeSet<(u64, Text)>,
    /// Nodes whose cell has a rollout action that uses rollout budget, in update order.
    candidates: BTreeSet<(u64, Text)>,
    /// Nodes whose cell has a [`RolloutAction::Remove`], in update order.
    removals: BTreeSet<(u64, Text)>,
    /// Nodes whose cell must be computed again at a certain time even without an event, earliest time first.
    pub(crate) timers: BTreeSet<(Time, Text)>,
}

impl SetState {
    /// Creates a state with this revision history and without cells.
    pub(crate) fn new(history: RevisionHistory) -> Self {
        Self { history, ..Self::default() }
    }

    /// Replaces all cells.
    pub(crate) fn replace_cells(&mut self, current: &CurrentRevision, cells: HashOrderedMap<Text, Cell>) {
        let (mut writes, mut candidates, mut removals) = (Vec::new(), Vec::new(), Vec::new());
        let mut timers = Vec::new();
        for (node, cell) in cells.iter() {
            let flags = CellFlags::of(cell);
            self.totals.add(cell);
            if flags.writes || flags.candidates || flags.removals {
                let place = (current.update_order(node), node.clone());
                writes.extend(flags.writes.then(|| place.clone()));
                candidates.extend(flags.candidates.then(|| place.clone()));
                removals.extend(flags.removals.then_some(place));
            }
            timers.extend(flags.recheck_at.map(|at| (at, node.clone())));
        }
        self.cells = cells;
        (self.writes, self.candidates) = (writes.into_iter().collect(), candidates.into_iter().collect());
        (self.removals, self.timers) = (removals.into_iter().collect(), timers.into_iter().collect());
    }

    /// Adds or replaces the cell of a node.
    pub(crate) fn put_cell(&mut self, current: &CurrentRevision, node: &Text, cell: Cell) {
        let flags = CellFlags::of(&cell);
        self.totals.add(&cell);
        let before = self.cells.insert(node, cell);
        self.reindex_cell(current, node, before.as_ref(), flags);
    }

    /// Nodes that wait for the rollout budget, in update order.
    pub(crate) fn waiting_nodes(&self) -> impl Iterator<Item = &Text> {
        self.candidates.iter().map(|(_, node)| node)
    }

    /// Removes the cell of a node.
    pub(crate) fn remove_cell(&mut self, current: &CurrentRevision, node: &Text) {
        let before = self.cells.remove(node);
        self.reindex_cell(current, node, before.as_ref(), CellFlags::default());
    }

    /// Subtracts the previous cell of a node from the totals, and updates the indexes for its new flags.
    fn reindex_cell(
        &mut self,
        current: &CurrentRevision,
        node: &Text,
        before: Option<&Cell>,
        now: CellFlags,
    ) {
        if let Some(cell) = before {
            self.totals.subtract(cell);
        }
        let was = before.map(CellFlags::of).unwrap_or_default();
        if was == now {
            return;
        }
        let place = (current.update_order(node), node.clone());
        let moves = [
            (was.writes, now.writes, &mut self.writes),
            (was.candidates, now.candidates, &mut self.candidates),
            (was.removals, now.removals, &mut self.removals),
        ];
        for (was, is, places) in moves {
            match (was, is) {
                (false, true) => drop(places.insert(place.clone())),
                (true, false) => drop(places.remove(&place)),
                _ => {}
            }
        }
        was.recheck_at.map(|at| self.timers.remove(&(at, node.clone())));
        now.recheck_at.map(|at| self.timers.insert((at, node.clone())));
    }
}

/// Tells which indexes of [`SetState`] must contain the node of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct CellFlags {
    /// Whether [`SetState::writes`] contains the node.
    writes: bool,
    /// Whether [`SetState::candidates`] contains the node.
    candidates: bool,
    /// Whether [`SetState::removals`] contains the node.
    removals: bool,
    /// Time of the node in [`SetState::timers`]. `None` if `timers` does not contain the node.
    recheck_at: Option<Time>,
}

impl CellFlags {
    /// Returns the indexes that must contain this cell.
    fn of(cell: &Cell) -> Self {
        Self {
            writes: cell.create.is_some() || !cell.delete.is_empty(),
            candidates: matches!(cell.action, Some(RolloutAction::Replace(..) | RolloutAction::Surge)),
            removals: matches!(cell.action, Some(RolloutAction::Remove(..))),
            recheck_at: cell.recheck_at,
        }
    }
}

/// How far a rollout has come, and when it last made progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RolloutProgress {
    /// The revision hash label of the pods that the rollout creates.
    pub(crate) hash: Text,
    /// The generation of the DaemonSet.
    pub(crate) generation: i64,
    /// The highest number of nodes with an up-to-date pod so far.
    pub(crate) updated: i64,
    /// The highest number of nodes with an available pod so far.
    pub(crate) available: i64,
    /// Whether the rollout is complete.
    pub(crate) complete: bool,
    /// The time of the last progress.
    pub(crate) at: Time,
}

/// Time without progress after which a rollout is stalled.
///
/// Rule: a rollout that makes no progress for ten minutes is stalled.
pub(crate) const ROLLOUT_STALLED_AFTER: Duration = Duration::from_secs(10 * 60);

/// Input of [`decide`]: a DaemonSet, its cells and revisions, and what earlier plans have shown.
pub(crate) struct DecisionInput<'a> {
    pub(crate) set: &'a Arc<Set>,
    /// Objects to adopt or to release.
    pub(crate) claims: Vec<Claim>,
    pub(crate) set_state: &'a SetState,
    /// Number of pods by revision hash label, finished pods included.
    pub(crate) pods_by_hash: &'a BTreeMap<Text, usize>,
    /// Returns the pods with a revision hash label.
    pub(crate) pods_with_hash: &'a dyn Fn(&Text) -> Vec<Arc<Pod>>,
    /// Progress of the DaemonSet's rollout. `None` before the first plan.
    pub(crate) rollout_progress: Option<&'a RolloutProgress>,
    /// Result of the most recent pod creates.
    pub(crate) creates: &'a CreateResult,
    /// Whether the events about an invalid spec or selector were already recorded for this generation.
    pub(crate) events_recorded: bool,
}

/// Makes the plan of one DaemonSet in five steps: adopt and release objects, determine the current revision, create and
/// delete pods on every node, advance the rollout within its budget, update the status.
pub(crate) fn decide(input: &DecisionInput<'_>, settings: &Settings, now: Time) -> Plan {
    let set = input.set;
    let mut plan = Plan::idle(set.clone());
    let settings = &Settings { burst: settings.burst.max(1), ..*settings };
    // Rule: nothing is written for a DaemonSet that is being deleted: the garbage collector would have to delete what
    // is created now.
    if set.deleting {
        return plan;
    }
    if let Err(event) = check_selector(set) {
        plan.events.extend(event.filter(|_| !input.events_recorded));
        return plan;
    }
    if !input.claims.is_empty() {
        plan.claims.clone_from(&input.claims);
        return plan;
    }
    let history = &input.set_state.history;
    plan.steps.clone_from(&history.steps);
    let Some(current) = &history.current else {
        plan.status = status::initial_status(set, settings.conditions, now);
        return plan;
    };
    plan.hash = current.hash.clone();
    add_roster_writes(&mut plan, input, settings);
    let budget = advance_rollout(&mut plan, input, settings);
    dedup_and_prune_revisions(&mut plan, input);
    add_events(&mut plan, input);
    let stalled_since =
        input.rollout_progress.map(|it| it.at).filter(|at| *at + ROLLOUT_STALLED_AFTER <= now);
    let allowed = if matches!(set.rollout, UpdateStrategy::Drain(_)) { budget } else { 0 };
    let refused = status::refused_creates(set, input.creates).filter(|_| !plan.create.is_empty());
    let progress = ConditionInput { budget, allowed, stalled_since, refused };
    plan.status = status::updated_status(set, &input.set_state.totals, &progress, settings.conditions, now);
    plan.wake_at = next_wake_up(input, settings, now);
    plan
}

/// Checks that the selector is usable. The error is an event that reports the problem.
///
/// Rule: nothing is written for a DaemonSet whose selector is empty, cannot be parsed or does not match its own
/// template. An event reports the problem.
fn check_selector(set: &Set) -> Result<(), Option<KubeEvent>> {
    let unlike = || {
        KubeEvent::warning(
            "InvalidSelector",
            "The selector does not match the labels of the template.".into(),
        )
    };
    match &set.selector {
        // Every created pod would be released again.
        Selector::AllOf(_) if !set.selector.matches(&set.template.labels) => Err(Some(unlike())),
        Selector::AllOf(_) => Ok(()),
        Selector::Everything => Err(Some(KubeEvent::warning(
            "SelectingAll",
            "This daemon set is selecting all pods. A non-empty selector is required.".into(),
        ))),
        Selector::Unreadable(problem) => Err(Some(KubeEvent::warning(
            "InvalidSelector",
            format!("The selector cannot be read: {problem}"),
        ))),
    }
}

/// Adds the creates and deletes that use no rollout budget, at most `burst` of each.
fn add_roster_writes(plan: &mut Plan, input: &DecisionInput<'_>, settings: &Settings) {
    for (_, node) in &input.set_state.writes {
        let Some(cell) = input.set_state.cells.get(node) else { continue };
        let may_create = plan.create.len() < settings.burst;
        if let Some(why) = cell.create.as_ref().filter(|_| may_create) {
            plan.create.push((node.clone(), why.clone()));
        }
        for (pod, why) in &cell.delete {
            if plan.delete.len() < settings.burst {
                plan.delete.push((pod.clone(), why.clone()));
            }
        }
        let full = settings.burst <= plan.create.len() && settings.burst <= plan.delete.len();
        if full {
            break;
        }
    }
}

/// Adds the pod writes of the rollout to the plan, and returns the rollout budget as a number of nodes.
///
/// Rule: an outdated pod that is up (see [`is_pod_up`](super::status::is_pod_up)) is replaced only within the rollout
/// budget. Nodes that already count against the budget are subtracted from it first. With surge, a pod on a node that
/// is no longer eligible is deleted only while more pods are available than desired.
fn advance_rollout(plan: &mut Plan, input: &DecisionInput<'_>, settings: &Settings) -> usize {
    let (set, set_state) = (input.set, input.set_state);
    let desired = set_state.totals.counts().desired;
    let allowed = rollout_budget(set, desired);
    let charged = usize::try_from(set_state.totals.charged).unwrap_or(0);
    let mut left = allowed.saturating_sub(charged);
    let first_actions = |places: &BTreeSet<(u64, Text)>| -> Vec<(Text, RolloutAction)> {
        let cells = places
            .iter()
            .filter_map(|(_, node)| Some((node.clone(), set_state.cells.get(node)?.action.clone()?)));
        cells.take(settings.burst).collect()
    };
    if 0 < left {
        for (node, action) in first_actions(&set_state.candidates) {
            if left == 0 {
                break;
            }
            left -= 1;
            match action {
                RolloutAction::Replace(pod, why) if plan.delete.len() < settings.burst => {
                    plan.delete.push((pod, why))
                }
                RolloutAction::Surge if plan.create.len() < settings.burst => {
                    plan.create.push((node, Why::OutOfDate))
                }
                _ => break,
            }
        }
    }
    let surplus = usize::try_from(set_state.totals.available_or_leaving - desired).unwrap_or(0);
    if 0 < surplus && !set_state.removals.is_empty() {
        for (_, action) in first_actions(&set_state.removals).into_iter().take(surplus) {
            if let RolloutAction::Remove(pod, why) = action
                && plan.delete.len() < settings.burst
            {
                plan.delete.push((pod, why));
            }
        }
    }
    allowed
}

/// Adds to the plan the relabels of pods and the deletes of revisions.
///
/// Rule: pods of a revision that is a byte-equal duplicate of the current one get the hash label of the current
/// revision. A duplicate without pods is deleted.
///
/// Revisions beyond `revisionHistoryLimit` are deleted, lowest number first. A revision is kept while any pod has its
/// hash label, even a finished pod that only a finalizer holds. One exception: an older revision with the hash label of
/// the current revision and an equivalent template may be deleted, because the pods belong to the current revision.
fn dedup_and_prune_revisions(plan: &mut Plan, input: &DecisionInput<'_>) {
    let history = &input.set_state.history;
    let is_carried = |hash: Option<&Text>| hash.is_some_and(|it| input.pods_by_hash.contains_key(it));
    for duplicate in &history.duplicates {
        match duplicate.hash().filter(|it| is_carried(Some(it)) && **it != plan.hash) {
            Some(hash) => {
                let pods = (input.pods_with_hash)(hash).into_iter();
                plan.relabel.extend(pods.map(|pod| (pod, plan.hash.clone())));
            }
            None => plan.prune.push(duplicate.clone()),
        }
    }
    let identity = input.set.template.identity;
    let is_superseded = |it: &Revision| it.hash() == Some(&plan.hash) && it.identity == Some(identity);
    let is_free = |it: &Revision| !is_carried(it.hash()) || is_superseded(it);
    let free = history.prunable.iter().filter(|it| is_free(it));
    plan.prune.extend(free.take(history.excess).cloned());
}

/// Adds the events about deleted pods and invalid fields to the plan.
///
/// Rule: an event with upstream's reason reports each failed or succeeded pod that is deleted, and each invalid field
/// of the spec.
fn add_events(plan: &mut Plan, input: &DecisionInput<'_>) {
    for (pod, why) in &plan.delete {
        let (key, node) = (&pod.key, pod.target.as_deref().unwrap_or_default());
        let event = match (why, pod.phase) {
            (Why::Failed { .. }, Phase::Failed) => KubeEvent::warning(
                "FailedDaemonPod",
                format!("Found failed daemon pod {key} on node {node}, will try to kill it"),
            ),
            (Why::Succeeded, Phase::Succeeded) => KubeEvent::normal(
                "SucceededDaemonPod",
                format!("Found succeeded daemon pod {key} on node {node}, will try to delete it"),
            ),
            _ => continue,
        };
        plan.events.push(event);
    }
    if !input.events_recorded {
        let faults = input.set.faults.iter();
        plan.events.extend(faults.map(|it| KubeEvent::warning("InvalidSpec", format!("{it}"))));
    }
}

/// Returns the time at which the DaemonSet must be reconciled again even without an event. `None` if there is no such
/// time.
///
/// Rule: a plan has a wake-up time if its DaemonSet must be reconciled again even without an event. A cell that changes
/// with time is checked again after `minReadySeconds` or 30 seconds at the latest, whichever is longer, so that the
/// controller notices a clock that was set forward.
fn next_wake_up(input: &DecisionInput<'_>, settings: &Settings, now: Time) -> Option<Time> {
    let min_ready = input.set.min_ready + Duration::from_secs(1);
    let cells = input.set_state.timers.first().map(|(at, _)| *at);
    let by_facts = earliest(cells, input.set_state.history.recheck_at);
    let by_facts = by_facts.map(|at| at.min(now + min_ready.max(Duration::from_secs(30))));
    let stall = input.rollout_progress.map(|it| it.at + ROLLOUT_STALLED_AFTER).filter(|at| now < *at);
    let stall = stall.filter(|_| settings.conditions && !input.set_state.totals.is_rollout_complete());
    earliest(by_facts, stall)
}
