//! W: invariants of new plans, checked on the state at the revisions from which the plan was made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::time::Time;
use muster_engine::daemonset::facts::{Kind, Pod, Rollout, Set};
use muster_engine::daemonset::plan::{Claim, Plan, Step};
use muster_engine::daemonset::why::Why;

use super::oracle::{self, View};
use super::{Checks, describe};
use crate::server::Server;

impl Checks {
    /// S8: a plan is made only from caches that include all acknowledged writes of this replica.
    /// S7: the replica does not wait for its own writes if its caches are up to date.
    pub(super) fn check_gate(
        &mut self,
        server: &Server,
        replica: usize,
        plan: &Plan,
        snapshot: &BTreeMap<Kind, u64>,
    ) {
        let waits = matches!(plan.waiting, Some(Why::WaitingForOwnWrites { .. }));
        if waits && plan.wake_at.is_none() {
            self.fail("L5", || format!("{} waits for its own writes without a timer", plan.set.key));
        }
        let caught_up = Kind::ALL.iter().all(|kind| {
            let seen = snapshot.get(kind).copied().unwrap_or(0);
            server.store.since(crate::server::prefix(*kind), seen).is_ok_and(|mut it| it.next().is_none())
        });
        if waits && caught_up {
            self.fail("S7", || {
                format!("{} waits for its own writes although its caches are up to date", plan.set.key)
            });
        }
        if plan.is_idle() || plan.confirm {
            return;
        }
        let Some(writes) = self.acknowledged.get_mut(&(replica, plan.set.uid.clone())) else { return };
        let seen = |kind: &Kind| snapshot.get(kind).copied().unwrap_or(0);
        let unseen =
            writes.wrote.iter().find(|(kind, wrote)| seen(kind) < **wrote).map(|(kind, at)| (*kind, *at));
        let pods_at = seen(&Kind::Pods);
        let undeleted =
            writes.deleted.iter().find_map(|(uid, key)| match server.at(Kind::Pods, key, pods_at) {
                Some(muster_engine::daemonset::facts::Watched::Pod(pod))
                    if pod.uid == *uid && !pod.deleting =>
                {
                    Some(key.clone())
                }
                _ => None,
            });
        let undeleted = undeleted.filter(|_| unseen.is_none());
        if let Some((kind, at)) = unseen {
            self.fail("S8", || {
                format!("{} was planned before the watch showed its write r{at} to {kind:?}", plan.set.key)
            });
        }
        if let Some(key) = undeleted {
            self.fail("S8", || {
                format!("{} was planned before the watch showed its delete of {key}", plan.set.key)
            });
        }
    }

    /// W13: cached objects equal the server's objects at the same revision: no rule modifies the cache.
    pub(super) fn check_cache<'a>(
        &mut self,
        server: &Server,
        cached: impl Iterator<Item = &'a Arc<Set>>,
        snapshot: &BTreeMap<Kind, u64>,
    ) {
        for set in cached {
            let at = snapshot.get(&Kind::Sets).copied().unwrap_or(0);
            let true_one = match server.at(Kind::Sets, &set.key, at) {
                Some(muster_engine::daemonset::facts::Watched::Set(it)) => Some(it),
                _ => None,
            };
            if true_one.is_some_and(|it| it.resource_version == set.resource_version && **it != **set) {
                self.fail("W13", || {
                    format!("the cached {} differs from the server's at that revision", set.key)
                });
            }
        }
    }

    pub(super) fn check_plan(
        &mut self,
        server: &Server,
        plan: &Plan,
        snapshot: &BTreeMap<Kind, u64>,
        clock: Time,
    ) {
        let view = View::at(server, snapshot);
        let name = describe(&plan.set);
        let Some(set) = view.sets.get(&plan.set.key).filter(|it| it.uid == plan.set.uid).cloned() else {
            return self.fail("W1", || format!("a plan for {name}, which does not exist"));
        };
        if set.deleting {
            return self.fail("W8", || format!("a plan for {name}, which is being deleted"));
        }
        self.check_claims(&view, &set, plan);
        self.check_history(&view, &set, plan);
        self.check_creates(&view, &set, plan, clock);
        self.check_deletes(&view, &set, plan, clock);
        if self.burst < plan.create.len().max(plan.delete.len()) {
            self.fail("W14", || {
                format!("{} creates and {} deletes in one plan", plan.create.len(), plan.delete.len())
            });
        }
        let again: BTreeSet<_> = plan.delete.iter().map(|(pod, _)| pod.uid.clone()).collect();
        if again.len() != plan.delete.len() {
            self.fail("W4", || format!("{name}: a pod is deleted twice in one plan"));
        }
        if let Some(status) = plan.status.as_ref().filter(|_| !plan.hash.is_empty()) {
            let right = view.counts(&set, clock);
            if status.counts != right {
                self.fail("L2", || format!("{name}: status {:?}, expected {right:?}", status.counts));
            }
            if status.counts == set.status.counts
                && status.observed_generation == set.status.observed_generation
                && status.conditions == set.status.conditions
            {
                self.fail("W14", || format!("{name}: an unchanged status is written"));
            }
        }
    }

    /// Checks W1 and W6 on the creates of a plan.
    fn check_creates(&mut self, view: &View, set: &Set, plan: &Plan, clock: Time) {
        let mut surged = 0;
        for (node, _) in &plan.create {
            let Some(node) = view.nodes.get(node) else {
                self.fail("W1", || format!("create on {node}, which does not exist"));
                continue;
            };
            if !oracle::eligible(set, node) {
                self.fail("W1", || format!("create on {}, which is not eligible", node.name));
            }
            let finished = |it: &&Arc<Pod>| oracle::term(it) && !it.deleting;
            if let Some(pod) = view.pods_on(set, &node.name).find(finished) {
                self.fail("W14", || format!("create on {}, where {} is not deleted yet", node.name, pod.key));
            }
            let old_is_up = view
                .pods_on(set, &node.name)
                .any(|it| oracle::live(it) && oracle::ready(it) && !view.is_new(set, it));
            surged += usize::from(old_is_up);
        }
        let desired = view.eligible_nodes(set).count();
        let charged = view.charged(set, clock);
        let allowed = oracle::budget(set, desired).saturating_sub(charged);
        if matches!(set.rollout, Rollout::Surge(_)) && allowed < surged {
            self.fail("W6", || {
                format!(
                    "{surged} nodes surge, {charged} already count against the budget, {allowed} are allowed"
                )
            });
        }
    }

    /// Checks W4, W5 and W7 on the deletes of a plan.
    fn check_deletes(&mut self, view: &View, set: &Set, plan: &Plan, clock: Time) {
        let desired = view.eligible_nodes(set).count();
        let charged = view.charged(set, clock);
        let mut replaced = 0;
        let mut left = 0;
        for (pod, why) in &plan.delete {
            let current = view.pods.get(&pod.key).filter(|it| it.uid == pod.uid);
            let Some(pod) = current else {
                self.fail("W4", || format!("{} is deleted, but does not exist", pod.key));
                continue;
            };
            if pod.deleting || pod.owner.as_ref() != Some(&set.uid) {
                self.fail("W4", || {
                    format!("{} is deleted, but is already terminating or not owned by the set", pod.key)
                });
            }
            match reason(view, set, pod, clock) {
                None => self.fail("W4", || {
                    format!("{} on {:?} is deleted without a reason ({why})", pod.key, pod.target)
                }),
                Some(Reason::Replace) => replaced += 1,
                Some(Reason::Moved) => left += 1,
                Some(Reason::Free | Reason::SupersededAvailable) => {}
                Some(Reason::SupersededTooEarly) => {
                    self.fail("W7", || format!("{} is deleted before its replacement is available", pod.key));
                }
            }
        }
        let allowed = oracle::budget(set, desired).saturating_sub(charged);
        if matches!(set.rollout, Rollout::Drain(_)) && allowed < replaced {
            self.fail("W5", || {
                format!(
                    "{replaced} available pods are deleted, {charged} nodes already count against the budget, \
                     {allowed} are allowed"
                )
            });
        }
        let up_anywhere = view
            .nodes
            .keys()
            .filter(|node| view.pods_on(set, node).any(|it| oracle::available(set, it, clock)));
        let spare = up_anywhere.count().saturating_sub(desired);
        if matches!(set.rollout, Rollout::Surge(_)) && spare < left {
            self.fail("W7", || {
                format!("{left} pods on nodes that are no longer eligible are deleted, {spare} are allowed")
            });
        }
    }

    /// Checks W9 and W10 on the adoptions and releases of a plan.
    fn check_claims(&mut self, view: &View, set: &Set, plan: &Plan) {
        for claim in &plan.claims {
            let right = match claim {
                Claim::AdoptPod(it) => it.owner.is_none() && !it.deleting && oracle::selects(set, &it.labels),
                Claim::AdoptRevision(it) => {
                    it.owner.is_none() && !it.deleting && oracle::selects(set, &it.labels)
                }
                Claim::ReleasePod(it) => {
                    it.owner.as_ref() == Some(&set.uid) && !oracle::selects(set, &it.labels)
                }
                Claim::ReleaseRevision(it) => {
                    it.owner.as_ref() == Some(&set.uid) && !oracle::selects(set, &it.labels)
                }
            };
            let namespace = match claim {
                Claim::AdoptPod(it) | Claim::ReleasePod(it) => &it.key.namespace,
                Claim::AdoptRevision(it) | Claim::ReleaseRevision(it) => &it.key.namespace,
            };
            let id = if claim.adopts() { "W9" } else { "W10" };
            if !right || *namespace != set.key.namespace {
                self.fail(id, || format!("{claim:?} is not allowed for {}", set.key));
            }
        }
        let _ = view;
    }

    /// Checks W15 and W16 on the changes of the revision history.
    fn check_history(&mut self, view: &View, set: &Set, plan: &Plan) {
        for step in &plan.steps {
            match step {
                Step::Create { number, .. } => {
                    if view.revisions_of(set).any(|it| !it.deleting && oracle::means(set, it)) {
                        self.fail("W15", || {
                            format!("{}: a revision is created although an equivalent one exists", set.key)
                        });
                    }
                    if view.revisions_of(set).any(|it| *number <= it.number) {
                        self.fail("W16", || format!("{}: number {number} is not the highest", set.key));
                    }
                }
                Step::Renumber { revision, number } => {
                    if !oracle::means(set, revision)
                        || view.revisions_of(set).any(|it| {
                            *number <= it.number && it.uid != revision.uid && it.data != revision.data
                        })
                    {
                        self.fail("W16", || format!("{} is renumbered to {number} wrongly", revision.key));
                    }
                }
                Step::Label { .. } => {}
            }
        }
        let carried: BTreeSet<_> = view.pods_of(set).filter_map(|it| it.hash().cloned()).collect();
        let old = view.revisions_of(set).filter(|it| !it.deleting && !oracle::means(set, it)).count();
        let same_meaning = view.revisions_of(set).filter(|it| !it.deleting && oracle::means(set, it)).count();
        let mut pruned = 0;
        for revision in &plan.prune {
            let duplicate = view
                .revisions_of(set)
                .any(|it| it.uid != revision.uid && it.data == revision.data && !it.deleting);
            let named_alike =
                view.revisions_of(set).any(|it| it.uid != revision.uid && it.hash() == revision.hash());
            if revision.hash().is_some_and(|it| carried.contains(it)) && !named_alike {
                self.fail("W15", || format!("{} is pruned although a pod uses it", revision.key));
            }
            if oracle::means(set, revision) && !duplicate && same_meaning < 2 {
                self.fail("W15", || format!("{} is pruned although it is current", revision.key));
            }
            pruned += usize::from(!duplicate);
        }
        if 0 < pruned && (old + same_meaning.saturating_sub(1)).saturating_sub(pruned) < set.history_max {
            self.fail("W15", || {
                format!("{}: {pruned} revisions are pruned, although there are only {old} old ones", set.key)
            });
        }
        for (pod, _) in &plan.relabel {
            let of_a_duplicate =
                view.revisions_of(set).any(|it| it.hash() == pod.hash() && oracle::means(set, it));
            if !of_a_duplicate {
                self.fail("W15", || format!("{} is relabelled although its template differs", pod.key));
            }
        }
    }
}

/// An allowed reason to delete a pod, and its effect on the budget.
enum Reason {
    /// The pod is not available: the delete does not count against the budget.
    Free,
    /// The pod is available, and its node is without a pod afterwards.
    Replace,
    SupersededAvailable,
    SupersededTooEarly,
    /// The pod's node is no longer eligible.
    Moved,
}

/// The reason for which a pod may be deleted; `None` if it must stay.
fn reason(view: &View, set: &Set, pod: &Pod, clock: Time) -> Option<Reason> {
    let target = pod.target.as_deref()?;
    if oracle::term(pod) {
        return Some(Reason::Free);
    }
    let Some(node) = view.nodes.get(target) else { return (!pod.bound).then_some(Reason::Free) };
    if !oracle::keeps(set, node) || (!pod.bound && !oracle::eligible(set, node)) {
        return Some(Reason::Free);
    }
    let is_new = view.is_new(set, pod);
    let others: Vec<_> =
        view.pods_on(set, target).filter(|it| it.uid != pod.uid && oracle::live(it)).collect();
    let senior = |a: &Pod, b: &Pod| (!a.bound, a.created, &a.key.name) < (!b.bound, b.created, &b.key.name);
    match set.rollout {
        Rollout::Surge(_) => {
            if others.iter().any(|it| view.is_new(set, it) == is_new && senior(it, pod)) {
                return Some(Reason::Free);
            }
            if is_new {
                return None;
            }
            let new: Vec<_> = others.iter().filter(|it| view.is_new(set, it)).collect();
            if new.iter().any(|it| oracle::available(set, it, clock)) {
                return Some(Reason::SupersededAvailable);
            }
            if !new.is_empty() {
                return Some(if oracle::ready(pod) { Reason::SupersededTooEarly } else { Reason::Free });
            }
            let kept = kept_by_taint(view, set, pod, clock);
            (!oracle::eligible(set, node) && !kept)
                .then(|| if oracle::ready(pod) { Reason::Moved } else { Reason::Free })
        }
        Rollout::Drain(_) | Rollout::OnDelete => {
            if others.iter().any(|it| senior(it, pod)) {
                return Some(Reason::Free);
            }
            if is_new || set.rollout == Rollout::OnDelete || kept_by_taint(view, set, pod, clock) {
                return None;
            }
            if oracle::lost(node, view.current_since(set)) {
                return None;
            }
            Some(if oracle::ready(pod) { Reason::Replace } else { Reason::Free })
        }
    }
}

/// Whether an old pod stays because neither it nor the template tolerates a taint of its node.
fn kept_by_taint(view: &View, set: &Set, pod: &Pod, _clock: Time) -> bool {
    let Some(node) = pod.target.as_ref().and_then(|it| view.nodes.get(it)) else { return false };
    if oracle::eligible(set, node) {
        return false;
    }
    node.taints.iter().any(|it| {
        it.effect == muster_api::taints::TaintEffect::NoSchedule
            && !matches!(it.key.as_ref(), "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable")
            && !oracle::tolerated(&pod.tolerations, it)
            && !oracle::tolerated(&set.template.tolerations, it)
    })
}
