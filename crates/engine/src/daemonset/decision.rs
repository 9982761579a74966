//! Makes the plan of one DaemonSet from its cells: claims, revisions, pods, status, events.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use super::cell::{Cell, Totals};
use super::revision::{Current, History};
use super::rollout::Offer;
use super::rollout::budget;
use super::status::{self, Progress};
use crate::controller::KubeEvent;
use crate::daemonset::execution::Creates;
use crate::daemonset::facts::{Phase, Pod, Revision, Rollout, Selector, Set};
use crate::daemonset::plan::{Claim, Plan, Settings};
use crate::daemonset::why::Why;
use crate::hash_ordered_map::HashOrderedMap;

/// The cells of one DaemonSet, their totals, and indexes of the cells that need a write. Updated cell by cell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) history: History,
    pub(crate) cells: HashOrderedMap<Text, Cell>,
    pub(crate) totals: Totals,
    /// Cells with a create or delete that uses no budget.
    wanted: BTreeSet<(u64, Text)>,
    /// Cells with a rollout action that uses budget.
    offers: BTreeSet<(u64, Text)>,
    leavers: BTreeSet<(u64, Text)>,
    /// When cells change without an event.
    pub(crate) timers: BTreeSet<(Time, Text)>,
}

impl Ledger {
    pub(crate) fn new(history: History) -> Self {
        Self { history, ..Self::default() }
    }

    /// Replaces all cells.
    pub(crate) fn fill(&mut self, current: &Current, cells: HashOrderedMap<Text, Cell>) {
        let (mut wanted, mut offers, mut leavers) = (Vec::new(), Vec::new(), Vec::new());
        let mut timers = Vec::new();
        for (node, cell) in cells.iter() {
            let marks = Marks::of(cell);
            self.totals.add(cell);
            if marks.wanted || marks.offers || marks.leaves {
                let place = (current.order(node), node.clone());
                wanted.extend(marks.wanted.then(|| place.clone()));
                offers.extend(marks.offers.then(|| place.clone()));
                leavers.extend(marks.leaves.then_some(place));
            }
            timers.extend(marks.again_at.map(|at| (at, node.clone())));
        }
        self.cells = cells;
        (self.wanted, self.offers) = (wanted.into_iter().collect(), offers.into_iter().collect());
        (self.leavers, self.timers) = (leavers.into_iter().collect(), timers.into_iter().collect());
    }

    pub(crate) fn put(&mut self, current: &Current, node: &Text, cell: Cell) {
        let marks = Marks::of(&cell);
        self.totals.add(&cell);
        let before = self.cells.insert(node, cell);
        self.mark(current, node, before.as_ref(), marks);
    }

    /// Nodes that wait for the rollout budget, in update order.
    pub(crate) fn offered(&self) -> impl Iterator<Item = &Text> {
        self.offers.iter().map(|(_, node)| node)
    }

    pub(crate) fn remove(&mut self, current: &Current, node: &Text) {
        let before = self.cells.remove(node);
        self.mark(current, node, before.as_ref(), Marks::default());
    }

    /// Subtracts the previous cell from the totals and updates the indexes of cells that need a write.
    fn mark(&mut self, current: &Current, node: &Text, before: Option<&Cell>, now: Marks) {
        if let Some(cell) = before {
            self.totals.subtract(cell);
        }
        let was = before.map(Marks::of).unwrap_or_default();
        if was == now {
            return;
        }
        let place = (current.order(node), node.clone());
        let moves = [
            (was.wanted, now.wanted, &mut self.wanted),
            (was.offers, now.offers, &mut self.offers),
            (was.leaves, now.leaves, &mut self.leavers),
        ];
        for (was, is, places) in moves {
            match (was, is) {
                (false, true) => drop(places.insert(place.clone())),
                (true, false) => drop(places.remove(&place)),
                _ => {}
            }
        }
        was.again_at.map(|at| self.timers.remove(&(at, node.clone())));
        now.again_at.map(|at| self.timers.insert((at, node.clone())));
    }
}

/// Which indexes contain a cell.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Marks {
    wanted: bool,
    offers: bool,
    leaves: bool,
    again_at: Option<Time>,
}

impl Marks {
    fn of(cell: &Cell) -> Self {
        Self {
            wanted: cell.create.is_some() || !cell.delete.is_empty(),
            offers: matches!(cell.offer, Some(Offer::Replace(..) | Offer::Surge)),
            leaves: matches!(cell.offer, Some(Offer::Leave(..))),
            again_at: cell.again_at,
        }
    }
}

/// Progress of a rollout, and the time of its last advance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Advance {
    pub(crate) hash: Text,
    pub(crate) generation: i64,
    /// The highest numbers of updated and of available nodes so far.
    pub(crate) updated: i64,
    pub(crate) available: i64,
    pub(crate) complete: bool,
    pub(crate) at: Time,
}

/// Rule: a rollout without progress for this long is stalled.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(10 * 60);

/// Input of a decision.
pub(crate) struct Facts<'a> {
    pub(crate) set: &'a Arc<Set>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) ledger: &'a Ledger,
    /// Number of pods by revision hash label, finished pods included.
    pub(crate) carried: &'a BTreeMap<Text, usize>,
    pub(crate) pods_carrying: &'a dyn Fn(&Text) -> Vec<Arc<Pod>>,
    pub(crate) advance: Option<&'a Advance>,
    pub(crate) creates: &'a Creates,
    /// The events about an invalid spec or selector were already recorded for this generation.
    pub(crate) events_recorded: bool,
}

/// Makes the plan of one DaemonSet in five steps: adopt and release objects, determine the current revision, create and
/// delete pods on every node, advance the rollout within its budget, update the status.
pub(crate) fn decide(facts: &Facts<'_>, settings: &Settings, now: Time) -> Plan {
    let set = facts.set;
    let mut plan = Plan::idle(set.clone());
    let settings = &Settings { burst: settings.burst.max(1), ..*settings };
    // Rule: nothing is written for a DaemonSet that is being deleted: the garbage collector would have to delete what
    // is created now.
    if set.deleting {
        return plan;
    }
    if let Err(event) = readable(set) {
        plan.events.extend(event.filter(|_| !facts.events_recorded));
        return plan;
    }
    if !facts.claims.is_empty() {
        plan.claims.clone_from(&facts.claims);
        return plan;
    }
    let history = &facts.ledger.history;
    plan.steps.clone_from(&history.steps);
    let Some(current) = &history.current else {
        plan.status = status::not_yet(set, settings.conditions, now);
        return plan;
    };
    plan.hash = current.hash.clone();
    roster_of_all(&mut plan, facts, settings);
    let budget = advance_rollout(&mut plan, facts, settings);
    fold_and_prune(&mut plan, facts);
    add_events(&mut plan, facts);
    let stalled_since = facts.advance.map(|it| it.at).filter(|at| *at + STALLED_AFTER <= now);
    let allowed = if matches!(set.rollout, Rollout::Drain(_)) { budget } else { 0 };
    let refused = status::refused_creates(set, facts.creates).filter(|_| !plan.create.is_empty());
    let progress = Progress { budget, allowed, stalled_since, refused };
    plan.status = status::status(set, &facts.ledger.totals, &progress, settings.conditions, now);
    plan.wake_at = wake_at(facts, settings, now);
    plan
}

/// Rule: nothing is written for a DaemonSet whose selector is empty, cannot be parsed or does not match its own
/// template; an event reports the problem.
fn readable(set: &Set) -> Result<(), Option<KubeEvent>> {
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
fn roster_of_all(plan: &mut Plan, facts: &Facts<'_>, settings: &Settings) {
    for (_, node) in &facts.ledger.wanted {
        let Some(cell) = facts.ledger.cells.get(node) else { continue };
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

/// Rule: old pods that are up are replaced only within the budget; nodes that are already unavailable use it first.
/// With surge, pods on nodes that are no longer eligible are deleted only while more pods are available than desired.
/// Returns the budget.
fn advance_rollout(plan: &mut Plan, facts: &Facts<'_>, settings: &Settings) -> usize {
    let (set, ledger) = (facts.set, facts.ledger);
    let desired = ledger.totals.counts().desired;
    let allowed = budget(set, desired);
    let charged = usize::try_from(ledger.totals.charged).unwrap_or(0);
    let mut left = allowed.saturating_sub(charged);
    let offered = |places: &BTreeSet<(u64, Text)>| -> Vec<(Text, Offer)> {
        let cells = places
            .iter()
            .filter_map(|(_, node)| Some((node.clone(), ledger.cells.get(node)?.offer.clone()?)));
        cells.take(settings.burst).collect()
    };
    if 0 < left {
        for (node, offer) in offered(&ledger.offers) {
            if left == 0 {
                break;
            }
            left -= 1;
            match offer {
                Offer::Replace(pod, why) if plan.delete.len() < settings.burst => {
                    plan.delete.push((pod, why))
                }
                Offer::Surge if plan.create.len() < settings.burst => {
                    plan.create.push((node, Why::OutOfDate))
                }
                _ => break,
            }
        }
    }
    let surplus = usize::try_from(ledger.totals.available_or_leaving - desired).unwrap_or(0);
    if 0 < surplus && !ledger.leavers.is_empty() {
        for (_, offer) in offered(&ledger.leavers).into_iter().take(surplus) {
            if let Offer::Leave(pod, why) = offer
                && plan.delete.len() < settings.burst
            {
                plan.delete.push((pod, why));
            }
        }
    }
    allowed
}

/// Rule: pods with the hash label of a byte-equal duplicate revision are relabelled; a duplicate without pods is
/// deleted. Revisions beyond `revisionHistoryLimit` are deleted, lowest number first, but never one whose hash label a
/// pod still has, not even a finished pod that only a finalizer holds. Of several equivalent revisions with the same
/// hash label only the current one is protected by pods.
fn fold_and_prune(plan: &mut Plan, facts: &Facts<'_>) {
    let history = &facts.ledger.history;
    let is_carried = |hash: Option<&Text>| hash.is_some_and(|it| facts.carried.contains_key(it));
    for duplicate in &history.folded {
        match duplicate.hash().filter(|it| is_carried(Some(it)) && **it != plan.hash) {
            Some(hash) => {
                let pods = (facts.pods_carrying)(hash).into_iter();
                plan.relabel.extend(pods.map(|pod| (pod, plan.hash.clone())));
            }
            None => plan.prune.push(duplicate.clone()),
        }
    }
    let meaning = facts.set.template.meaning;
    let respelt = |it: &Revision| it.hash() == Some(&plan.hash) && it.meaning == Some(meaning);
    let is_free = |it: &Revision| !is_carried(it.hash()) || respelt(it);
    let free = history.prunable.iter().filter(|it| is_free(it));
    plan.prune.extend(free.take(history.too_many).cloned());
}

/// Rule: a failed or succeeded pod that is deleted, and an invalid field of the spec, are reported as events with upstream's reasons.
fn add_events(plan: &mut Plan, facts: &Facts<'_>) {
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
    if !facts.events_recorded {
        let faults = facts.set.faults.iter();
        plan.events.extend(faults.map(|it| KubeEvent::warning("InvalidSpec", format!("{it}"))));
    }
}

/// Rule: a plan has a wake-up time while the state can change without an event. It is at most one wait interval away,
/// so that a clock that was set forward is noticed.
fn wake_at(facts: &Facts<'_>, settings: &Settings, now: Time) -> Option<Time> {
    let min_ready = facts.set.min_ready + Duration::from_secs(1);
    let cells = facts.ledger.timers.first().map(|(at, _)| *at);
    let by_facts = earliest(cells, facts.ledger.history.again_at);
    let by_facts = by_facts.map(|at| at.min(now + min_ready.max(Duration::from_secs(30))));
    let stall = facts.advance.map(|it| it.at + STALLED_AFTER).filter(|at| now < *at);
    let stall = stall.filter(|_| settings.conditions && !facts.ledger.totals.complete());
    earliest(by_facts, stall)
}
