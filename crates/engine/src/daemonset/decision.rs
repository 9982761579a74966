//! Makes the plan of one DaemonSet from its cells. A cell is the state of the DaemonSet on one node. The plan contains
//! the adoptions and releases, the writes of revisions, DaemonRollout, pods and status, and the events.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use super::cell::{Cell, Totals};
use super::node_rollout::{RolloutAction, rollout_budget};
use super::revision::{RevisionHistory, TargetRevision};
use super::status::{self, ConditionInput};
use crate::controller::KubeEvent;
use crate::daemonset::execution::CreateResult;
use crate::daemonset::facts::{Node, Phase, Pod, Revision, Selector, Set, UpdateStrategy};
use crate::daemonset::plan::{Claim, Plan, Settings};
use crate::daemonset::progressive::check::CheckMeasurements;
use crate::daemonset::progressive::counts::RolloutCounts;
use crate::daemonset::progressive::membership::AssignedRevision;
use crate::daemonset::progressive::rollout::ProgressiveRollout;
use crate::daemonset::refused_evictions::RefusedEvictions;
use crate::daemonset::why::Why;
use crate::daemonset::{assist_plan, progressive_plan};
use crate::hash_ordered_map::HashOrderedMap;

/// The state of one DaemonSet that plans are made from: its revisions, its progressive rollout, its state on each node
/// (its cells), and the totals and indexes of the cells. When a cell changes, the totals and indexes are updated
/// without a pass over all cells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SetState {
    /// The current revision of the DaemonSet, and the writes that its revisions need.
    pub(crate) history: RevisionHistory,
    /// The state of the DaemonSet on each node, by name of the node.
    pub(crate) cells: HashOrderedMap<Text, Cell>,
    /// Sums of the counts of all cells of the DaemonSet.
    pub(crate) totals: Totals,
    /// Nodes whose cell has a [`Cell::create`] or [`Cell::delete`], in update order: pairs of
    /// [`TargetRevision::update_order`] and node name.
    writes: BTreeSet<(u64, Text)>,
    /// Nodes whose cell has a rollout action that uses rollout budget, in update order.
    budgeted: BTreeSet<(u64, Text)>,
    /// Nodes whose cell has a [`RolloutAction::Remove`], in update order.
    removals: BTreeSet<(u64, Text)>,
    /// Nodes whose cell has a [`RolloutAction::ReplaceNotReady`] or [`RolloutAction::SurgeBesideNotReady`], in update
    /// order.
    not_ready: BTreeSet<(u64, Text)>,
    /// Nodes whose cell must be computed again at a certain time even without an event, earliest time first.
    pub(crate) timers: BTreeSet<(Time, Text)>,
    /// The progressive rollout of the DaemonSet. `None` if it has none.
    pub(crate) progressive: Option<ProgressiveRollout>,
    /// Numbers and names of the nodes in each state of the progressive rollout.
    pub(crate) rollout_counts: RolloutCounts,
}

impl SetState {
    /// Creates a state with this revision history and without cells.
    pub(crate) fn new(history: RevisionHistory) -> Self {
        Self { history, ..Self::default() }
    }

    /// Sets the cells of a state that has no cells yet, and computes the totals and indexes from them.
    pub(crate) fn init_cells(&mut self, current: &TargetRevision, cells: HashOrderedMap<Text, Cell>) {
        let (mut writes, mut budgeted, mut removals) = (Vec::new(), Vec::new(), Vec::new());
        let (mut not_ready, mut timers) = (Vec::new(), Vec::new());
        for (node, cell) in cells.iter() {
            let flags = CellFlags::from_cell(cell);
            self.totals.add(cell);
            if let Some(progress) = &cell.progress {
                self.rollout_counts.add(progress);
            }
            if flags.writes || flags.budgeted || flags.removals || flags.not_ready {
                let place = (current.update_order(node), node.clone());
                writes.extend(flags.writes.then(|| place.clone()));
                budgeted.extend(flags.budgeted.then(|| place.clone()));
                not_ready.extend(flags.not_ready.then(|| place.clone()));
                removals.extend(flags.removals.then_some(place));
            }
            timers.extend(flags.recheck_at.map(|at| (at, node.clone())));
        }
        self.cells = cells;
        (self.writes, self.budgeted) = (writes.into_iter().collect(), budgeted.into_iter().collect());
        (self.removals, self.timers) = (removals.into_iter().collect(), timers.into_iter().collect());
        self.not_ready = not_ready.into_iter().collect();
    }

    /// Adds or replaces the cell of a node, and updates the totals and indexes.
    pub(crate) fn put_cell(&mut self, current: &TargetRevision, node: &Text, cell: Cell) {
        let flags = CellFlags::from_cell(&cell);
        self.totals.add(&cell);
        let progress = cell.progress.clone();
        let before = self.cells.insert(node, cell);
        if let Some(before) = before.as_ref().and_then(|it| it.progress.as_ref()) {
            self.rollout_counts.subtract(before);
        }
        if let Some(progress) = &progress {
            self.rollout_counts.add(progress);
        }
        self.reindex_cell(current, node, before.as_ref(), flags);
    }

    /// Returns the rollout actions that need rollout budget before they may be executed, each with its node, in update
    /// order.
    pub(crate) fn budgeted_actions(&self) -> impl Iterator<Item = (&Text, &RolloutAction)> {
        self.node_actions(&self.budgeted)
    }

    /// Returns the actions of a progressive rollout that replace a pod which is not Ready, each with its node, in
    /// update order.
    pub(crate) fn not_ready_actions(&self) -> impl Iterator<Item = (&Text, &RolloutAction)> {
        self.node_actions(&self.not_ready)
    }

    /// Returns the nodes in `index` that have a rollout action, each with its action, in update order. `index` is
    /// `budgeted` or `not_ready`: pairs of position in the update order and node name.
    fn node_actions<'a>(
        &'a self,
        index: &'a BTreeSet<(u64, Text)>,
    ) -> impl Iterator<Item = (&'a Text, &'a RolloutAction)> {
        index.iter().filter_map(|(_, node)| Some((node, self.cells.get(node)?.action.as_ref()?)))
    }

    /// Returns the nodes with a rollout action that uses rollout budget, in update order.
    pub(crate) fn nodes_with_budgeted_action(&self) -> impl Iterator<Item = &Text> {
        self.budgeted.iter().map(|(_, node)| node)
    }

    /// Removes the cell of a node, and updates the totals and indexes.
    pub(crate) fn remove_cell(&mut self, current: &TargetRevision, node: &Text) {
        let before = self.cells.remove(node);
        if let Some(before) = before.as_ref().and_then(|it| it.progress.as_ref()) {
            self.rollout_counts.subtract(before);
        }
        self.reindex_cell(current, node, before.as_ref(), CellFlags::default());
    }

    /// Updates the totals and indexes after the cell of a node was replaced or removed: subtracts the previous cell
    /// (`before`) from the totals, adds the node to the indexes whose flag is set in `now`, removes the node from the
    /// other indexes, and replaces its timer. `now` are the flags of the new cell, whose counts the caller has already
    /// added to the totals.
    fn reindex_cell(&mut self, current: &TargetRevision, node: &Text, before: Option<&Cell>, now: CellFlags) {
        if let Some(cell) = before {
            self.totals.subtract(cell);
        }
        let was = before.map(CellFlags::from_cell).unwrap_or_default();
        if was == now {
            return;
        }
        let place = (current.update_order(node), node.clone());
        let moves = [
            (was.writes, now.writes, &mut self.writes),
            (was.budgeted, now.budgeted, &mut self.budgeted),
            (was.removals, now.removals, &mut self.removals),
            (was.not_ready, now.not_ready, &mut self.not_ready),
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

/// Which indexes of [`SetState`] must contain the node of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct CellFlags {
    /// Whether [`SetState::writes`] contains the node.
    writes: bool,
    /// Whether [`SetState::budgeted`] contains the node.
    budgeted: bool,
    /// Whether [`SetState::removals`] contains the node.
    removals: bool,
    /// Whether [`SetState::not_ready`] contains the node.
    not_ready: bool,
    /// Time of the node in [`SetState::timers`]. `None` if `timers` does not contain the node.
    recheck_at: Option<Time>,
}

impl CellFlags {
    /// Returns the flags of a cell, which say which indexes must contain the node of the cell.
    fn from_cell(cell: &Cell) -> Self {
        Self {
            writes: cell.create.is_some() || !cell.delete.is_empty(),
            budgeted: matches!(cell.action, Some(RolloutAction::Replace(..) | RolloutAction::Surge)),
            removals: matches!(cell.action, Some(RolloutAction::Remove(..))),
            not_ready: matches!(
                cell.action,
                Some(RolloutAction::ReplaceNotReady(..) | RolloutAction::SurgeBesideNotReady(..))
            ),
            recheck_at: cell.recheck_at,
        }
    }
}

/// The highest counts that a rollout has reached so far, and the time of its last progress. The counts start again when
/// the revision, the generation or `complete` changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RolloutProgress {
    /// The revision hash label of the revision that is rolled out.
    pub(crate) hash: Text,
    /// The generation of the DaemonSet that the counts belong to.
    pub(crate) generation: i64,
    /// The highest number of nodes with an up-to-date pod so far.
    pub(crate) updated: i64,
    /// The highest number of nodes with an available pod so far.
    pub(crate) available: i64,
    /// Whether the rollout is complete, as [`Totals::is_rollout_complete`] decides.
    pub(crate) complete: bool,
    /// The time of the last progress that this process has seen. A process that starts while the stored status shows a
    /// stalled rollout sets a time that is [`ROLLOUT_STALLED_AFTER`] in the past, so that the rollout stays stalled.
    pub(crate) at: Time,
}

/// Time without progress after which an incomplete rollout is stalled.
///
/// Rule: an incomplete rollout that makes no progress for ten minutes is stalled.
pub(crate) const ROLLOUT_STALLED_AFTER: Duration = Duration::from_secs(10 * 60);

/// Input of [`make_plan`]: facts about one DaemonSet, its state, and the results of earlier plans.
pub(crate) struct DecisionInput<'a> {
    pub(crate) set: &'a Arc<Set>,
    /// Pods and ControllerRevisions to adopt or to release.
    pub(crate) claims: Vec<Claim>,
    pub(crate) set_state: &'a SetState,
    /// Number of the DaemonSet's pods by revision hash label, including pods that have failed or succeeded.
    pub(crate) pods_by_hash: &'a BTreeMap<Text, usize>,
    /// Returns the pods of the DaemonSet whose revision hash label has this value, sorted by key.
    pub(crate) pods_with_hash: &'a dyn Fn(&Text) -> Vec<Arc<Pod>>,
    /// Progress of the DaemonSet's rollout. `None` before the first plan with a current revision.
    pub(crate) rollout_progress: Option<&'a RolloutProgress>,
    /// Results of the rollout checks that the controller has measured for the DaemonSet.
    pub(crate) checks: &'a CheckMeasurements,
    /// Whether the most recent pod creates succeeded and, if not, why.
    pub(crate) creates: &'a CreateResult,
    /// Evictions of the DaemonSet's pods that the API server refused.
    pub(crate) evictions: &'a RefusedEvictions,
    /// Whether the events about an invalid spec or selector were already recorded for this generation.
    pub(crate) events_recorded: bool,
    /// Returns the node with this name. `None` if there is no such node.
    pub(crate) node: &'a dyn Fn(&Text) -> Option<&'a Node>,
    /// Returns the available pods of the DaemonSet whose node exists.
    pub(crate) available_pods: &'a dyn Fn() -> Vec<Arc<Pod>>,
}

impl DecisionInput<'_> {
    /// Returns the time of the rollout's last progress if that is at least [`ROLLOUT_STALLED_AFTER`] ago, otherwise
    /// `None`. Whether the rollout is complete is not checked.
    pub(crate) fn stalled_since(&self, now: Time) -> Option<Time> {
        self.rollout_progress.map(|it| it.at).filter(|at| *at + ROLLOUT_STALLED_AFTER <= now)
    }
}

/// Makes the plan of one DaemonSet. The first case that applies determines the writes of the plan:
///
/// 1. The DaemonSet is being deleted, or its selector is invalid: none. An event reports an invalid selector.
/// 2. The controller runs in assist mode: [`assist_plan::make_assist_plan`] makes the plan.
/// 3. Objects are to be adopted or released: only the adoptions and releases.
/// 4. The DaemonSet has no current revision yet: only writes of revisions, and the initial conditions.
/// 5. Otherwise: writes of revisions, pod creates and deletes, the writes of the rollout within its budget, deletes of
///    revisions, and the status.
pub(crate) fn make_plan(input: &DecisionInput<'_>, settings: &Settings, now: Time) -> Plan {
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
    if settings.assist {
        return assist_plan::make_assist_plan(input, settings, now);
    }
    if !input.claims.is_empty() {
        plan.claims.clone_from(&input.claims);
        return plan;
    }
    let history = &input.set_state.history;
    plan.steps.clone_from(&history.writes);
    let Some(current) = &history.current else {
        plan.status = status::initial_status(set, settings.conditions, now);
        return plan;
    };
    plan.hash = current.hash.clone();
    add_unbudgeted_writes(&mut plan, input, settings);
    let progressive = input.set_state.progressive.as_ref();
    let budget = match progressive {
        Some(active) => {
            progressive_plan::add_progressive_rollout_writes(&mut plan, input, active, settings, now)
        }
        None => add_rollout_writes(&mut plan, input, settings),
    };
    dedup_and_prune_revisions(&mut plan, input);
    add_events(&mut plan, input);
    let stalled_since = input.stalled_since(now);
    let unavailable_max = if matches!(set.rollout, UpdateStrategy::Drain(_)) { budget } else { 0 };
    let creates = !plan.create.is_empty() || !plan.create_stable.is_empty();
    let refused = status::create_refusal(set, input.creates).filter(|_| creates);
    let rollout = progressive.and_then(|active| progressive_plan::rollout_report(&plan, active));
    let hold = progressive.and_then(|it| progressive_plan::hold_message_for_conditions(&plan, input, it));
    let progress = ConditionInput { budget, unavailable_max, stalled_since, refused, hold, rollout };
    plan.status = status::status_to_write(set, &input.set_state.totals, &progress, settings.conditions, now);
    plan.wake_at = earliest(plan.wake_at, next_wake_up(input, settings, now));
    plan
}

/// Checks that the selector of a DaemonSet is valid. If the selector is invalid, the error is the event that reports
/// the problem, never `None`.
///
/// Rule: nothing is written for a DaemonSet whose selector is empty, cannot be parsed or does not match the labels of
/// the DaemonSet's own template. An event reports the problem once per generation.
fn check_selector(set: &Set) -> Result<(), Option<KubeEvent>> {
    let unlike = || {
        KubeEvent::warning(
            "InvalidSelector",
            "The selector does not match the labels of the template.".into(),
        )
    };
    match &set.selector {
        // Every created pod would be released again.
        Selector::Requirements(it) if !it.matches(&set.template.labels) => Err(Some(unlike())),
        Selector::Requirements(_) => Ok(()),
        Selector::Everything => Err(Some(KubeEvent::warning(
            "SelectingAll",
            "This daemon set is selecting all pods. A non-empty selector is required.".into(),
        ))),
        Selector::Unreadable(problem) => {
            Err(Some(KubeEvent::warning("InvalidSelector", format!("The selector is invalid: {problem}"))))
        }
    }
}

/// Adds the pod creates and deletes of all cells that need no rollout budget ([`Cell::create`] and [`Cell::delete`]) to
/// the plan: at most [`Settings::burst`] creates and at most [`Settings::burst`] deletes.
fn add_unbudgeted_writes(plan: &mut Plan, input: &DecisionInput<'_>, settings: &Settings) {
    for (_, node) in &input.set_state.writes {
        let Some(cell) = input.set_state.cells.get(node) else { continue };
        let may_create = plan.create.len() + plan.create_stable.len() < settings.burst;
        if let Some(why) = cell.create.as_ref().filter(|_| may_create) {
            add_create(plan, cell.assigned, node.clone(), why.clone());
        }
        for (pod, why) in &cell.delete {
            if plan.delete.len() < settings.burst {
                plan.delete.push((pod.clone(), why.clone()));
            }
        }
        let full = settings.burst <= plan.create.len() + plan.create_stable.len()
            && settings.burst <= plan.delete.len();
        if full {
            break;
        }
    }
}

/// Adds the create of a pod on a node to the plan, for the reason `why`. `assigned` is the revision of the pod: the
/// current or the stable one.
pub(crate) fn add_create(plan: &mut Plan, assigned: AssignedRevision, node: Text, why: Why) {
    match assigned {
        AssignedRevision::Current => plan.create.push((node, why)),
        AssignedRevision::Stable => plan.create_stable.push((node, why)),
    }
}

/// Adds the pod writes of the rollout to the plan, and returns the rollout budget as a number of nodes.
///
/// Rule: an outdated pod that is Ready is replaced only within the rollout budget. The number of nodes that already
/// count against the budget is subtracted from it. With surge, a pod on a node that is no longer eligible is deleted
/// only while more nodes have an available pod than are eligible.
fn add_rollout_writes(plan: &mut Plan, input: &DecisionInput<'_>, settings: &Settings) -> usize {
    let (set, set_state) = (input.set, input.set_state);
    let desired = set_state.totals.status_counts().desired;
    let allowed = rollout_budget(set, desired);
    let charged = usize::try_from(set_state.totals.charged).unwrap_or(0);
    let mut left = allowed.saturating_sub(charged);
    for (node, action) in set_state.budgeted_actions().take(settings.burst) {
        if left == 0 {
            break;
        }
        left -= 1;
        match action {
            RolloutAction::Replace(pod, why) if plan.delete.len() < settings.burst => {
                plan.delete.push((pod.clone(), why.clone()))
            }
            RolloutAction::Surge if plan.create.len() < settings.burst => {
                plan.create.push((node.clone(), Why::Outdated))
            }
            _ => break,
        }
    }
    let removals: Vec<(Arc<Pod>, Why)> = pods_to_remove(input, settings).collect();
    plan.delete.extend(removals.into_iter().take(settings.burst.saturating_sub(plan.delete.len())));
    allowed
}

/// Returns the old pods to delete on nodes that are no longer eligible, with the reasons. Their number is limited to
/// [`Settings::burst`], and to the surplus, that is, the number of nodes with an available pod minus the number of
/// eligible nodes. Empty without `maxSurge`: with `maxUnavailable`, [`RolloutAction::Replace`] deletes these pods
/// within the rollout budget.
pub(crate) fn pods_to_remove<'a>(
    input: &DecisionInput<'a>,
    settings: &Settings,
) -> impl Iterator<Item = (Arc<Pod>, Why)> + use<'a> {
    let set_state = input.set_state;
    let desired = set_state.totals.status_counts().desired;
    let surplus = usize::try_from(set_state.totals.available_or_leaving - desired).unwrap_or(0);
    let places = set_state.removals.iter().take(surplus.min(settings.burst));
    places.filter_map(|(_, node)| match set_state.cells.get(node)?.action.as_ref()? {
        RolloutAction::Remove(pod, why) => Some((pod.clone(), why.clone())),
        _ => None,
    })
}

/// Adds writes to the plan that relabel the pods of duplicate revisions, and that delete revisions.
///
/// Rule: the pods of a byte-equal duplicate of the current revision get the hash label of the current revision. The
/// duplicate is deleted as soon as no pod has its hash label, or at once if it has the same hash label as the current
/// revision.
///
/// Revisions beyond `revisionHistoryLimit` are deleted, lowest number first. A revision is kept while any pod has its
/// hash label, even a finished pod that only a finalizer holds. Exception: an older revision with the hash label of the
/// current revision and an equivalent template may be deleted, because the pods belong to the current revision.
fn dedup_and_prune_revisions(plan: &mut Plan, input: &DecisionInput<'_>) {
    let history = &input.set_state.history;
    let is_carried = |hash: Option<&Text>| hash.is_some_and(|it| input.pods_by_hash.contains_key(it));
    // Rule: the stable revision is never deleted, whatever `revisionHistoryLimit` is. If it is a duplicate of the
    // current revision, it is deleted after the current one has become the stable revision.
    let stable = input.set_state.progressive.as_ref().and_then(|it| it.stable.as_ref());
    let is_stable = |it: &Revision| stable.is_some_and(|stable| stable.target.revision.uid == it.uid);
    for duplicate in history.duplicates.iter().filter(|it| !is_stable(it)) {
        match duplicate.hash_label().filter(|it| is_carried(Some(it)) && **it != plan.hash) {
            Some(hash) => {
                let pods = (input.pods_with_hash)(hash).into_iter();
                plan.relabel.extend(pods.map(|pod| (pod, plan.hash.clone())));
            }
            None => plan.prune.push(duplicate.clone()),
        }
    }
    let identity = input.set.template.identity;
    let is_superseded = |it: &Revision| it.hash_label() == Some(&plan.hash) && it.identity == Some(identity);
    let is_free = |it: &Revision| !is_carried(it.hash_label()) || is_superseded(it);
    let free = history.prunable.iter().filter(|it| is_free(it) && !is_stable(it));
    plan.prune.extend(free.take(history.excess).cloned());
}

/// Adds the events about deleted pods and invalid fields to the plan.
///
/// Rule: each pod that is deleted because it failed or succeeded is reported by an event with the same reason as
/// upstream's event. Each invalid field of the spec is reported by one event per generation.
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
/// Rule: the wake-up time is the earlier of these two times:
///
/// - The earliest time at which a cell or the revision history changes without an event, but at most 30 seconds from
///   now, or `minReadySeconds` plus one second if that is longer. With this limit, the controller notices when the
///   clock is set forward.
/// - If the controller writes conditions ([`Settings::conditions`]), the time at which an incomplete rollout counts as
///   stalled, if that time is in the future.
pub(crate) fn next_wake_up(input: &DecisionInput<'_>, settings: &Settings, now: Time) -> Option<Time> {
    let min_ready = input.set.min_ready + Duration::from_secs(1);
    let cells = input.set_state.timers.first().map(|(at, _)| *at);
    let by_facts = earliest(cells, input.set_state.history.recheck_at);
    let by_facts = by_facts.map(|at| at.min(now + min_ready.max(Duration::from_secs(30))));
    let stall = input.rollout_progress.map(|it| it.at + ROLLOUT_STALLED_AFTER).filter(|at| now < *at);
    let stall = stall.filter(|_| settings.conditions && !input.set_state.totals.is_rollout_complete());
    earliest(by_facts, stall)
}
