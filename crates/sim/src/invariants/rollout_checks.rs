//! Checks of the plans and writes of progressive rollouts. A plan is checked against the state that the controller had
//! in its cache when it made the plan.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::daemonset::facts::{self, IntOrPercent, Kind, Revision, Set, WatchedObject};
use muster_engine::daemonset::plan::{Plan, RevisionWrite, RolloutWrite};
use muster_engine::daemonset::progressive::policy::{Approval, Step};
use muster_engine::daemonset::progressive::record::{ALL_STEPS, OperatorRequests, Phase, RolloutStatus};
use muster_engine::daemonset::progressive::verdict::RevisionVerdict;

use super::InvariantChecks;
use super::oracle::{self, ClusterView};
use super::rollout_oracle::{self, RevisionScope, SetRollout};
use crate::server::{Actor, SimCommit, SimServer};

impl InvariantChecks {
    /// Checks what a plan writes for a progressive rollout: the status, the verdicts, and the revisions of new pods.
    /// Also checks two invariants:
    /// - W28: the plan of a set without a progressive rollout (see [`ClusterView::rollout_of`]) writes no DaemonRollout
    ///   and no verdict, and creates no pod of a stable revision.
    /// - W27: the stable revision is not deleted.
    pub(super) fn check_rollout_plan(&mut self, view: &ClusterView, set: &Set, plan: &Plan, clock: Time) {
        let judges = plan.steps.iter().any(|it| matches!(it, RevisionWrite::StoreVerdict { .. }));
        let Some(rollout) = view.rollout_of(set) else {
            if judges || plan.rollout.is_some() || !plan.create_stable.is_empty() {
                self.report_violation("W28", || {
                    format!("{} has no policy, DaemonRollout or verdict, but its plan has a rollout", set.key)
                });
            }
            return;
        };
        self.check_new_pod_revisions(view, set, plan, &rollout);
        let mut failed_nodes = BTreeSet::new();
        if let Some(RolloutWrite::PutStatus { record, status, .. }) = &plan.rollout {
            self.check_next_status(view, set, &rollout, &record.requests, status, clock);
            failed_nodes.extend(status.failures.nodes.iter().map(|it| it.node.clone()));
        } else if let Some(status) = rollout.status() {
            failed_nodes.extend(status.failures.nodes.iter().map(|it| it.node.clone()));
        }
        for step in &plan.steps {
            if let RevisionWrite::StoreVerdict { revision, verdict, reason, .. } = step {
                self.check_verdict(view, set, &rollout, &failed_nodes, (revision, *verdict, reason), clock);
            }
        }
        let stable = rollout.stable.as_ref();
        if let Some(pruned) = plan.prune.iter().find(|it| stable.is_some_and(|stable| stable.uid == it.uid)) {
            self.report_violation("W27", || format!("the stable revision {} is pruned", pruned.key));
        }
    }

    /// Checks the revision of each pod that a plan creates:
    /// - W20: the pod has the revision that its node is assigned.
    /// - W25: the admission of a node is stored before the node gets a pod of the current revision.
    /// - W22: if the current revision has the verdict `Bad`, only nodes that have already had a pod of this revision
    ///   get one. Exception: the current revision is assigned to all nodes.
    /// - W19: no pod is created beside a ready pod if the rollout may not update the node.
    fn check_new_pod_revisions(&mut self, view: &ClusterView, set: &Set, plan: &Plan, rollout: &SetRollout) {
        let next = match &plan.rollout {
            Some(RolloutWrite::PutStatus { status, .. }) => rollout_oracle::admitted_names(status),
            _ => BTreeSet::new(),
        };
        let creates = plan.create.iter().map(|(node, _)| (node, true));
        let creates = creates.chain(plan.create_stable.iter().map(|(node, _)| (node, false)));
        for (name, is_current) in creates {
            let Some(node) = view.nodes.get(name) else { continue };
            if rollout.is_assigned_current(node) != is_current {
                let id = if is_current && next.contains(name) { "W25" } else { "W20" };
                let which = if is_current { "current" } else { "stable" };
                self.report_violation(id, || {
                    format!("{name} gets a pod of the {which} revision, which it is not assigned")
                });
            }
            if is_current
                && rollout.is_bad()
                && rollout.scope() != RevisionScope::AllNodes
                && !self.has_had_current_revision(view, set, name)
            {
                self.report_violation("W22", || format!("{name} gets the bad revision {}", plan.hash));
            }
            let is_beside =
                view.pods_on(set, name).any(|it| oracle::is_active_pod(it) && oracle::is_pod_ready(it));
            if is_beside && (!rollout.may_replace() || rollout.is_held(node)) {
                self.report_violation("W19", || {
                    format!(
                        "a pod is created beside a ready one on {name}, but the rollout may not update it"
                    )
                });
            }
        }
    }

    /// Whether a pod of the set's current template has ever been Ready, on any node.
    fn was_ever_ready(&self, view: &ClusterView, set: &Set) -> bool {
        let equivalent = view.revisions_of(set).filter(|it| oracle::is_equivalent_revision(set, it));
        let mut hashes = equivalent.filter_map(|it| it.hash_label().cloned());
        hashes.any(|it| self.ready_revisions.contains(&(set.uid.clone(), it)))
    }

    /// Whether the node has ever had a pod of the set's current revision, or of a revision with an equivalent template.
    fn has_had_current_revision(&self, view: &ClusterView, set: &Set, node: &Text) -> bool {
        let mut hashes = view.current_hashes(set).into_iter();
        hashes.any(|it| self.revisions_of_nodes.contains(&(set.uid.clone(), node.clone(), it)))
    }

    /// Checks a verdict that a plan stores or removes. `failed` are the names of the failed nodes.
    /// - W23: the current revision becomes `Good` only if at least one eligible node, and every eligible node that has
    ///   not failed, has an available pod of this revision. The verdict has the reason `Adopted` only if there is no
    ///   stable revision. In that case, another revision can also become `Good`, if any node has an available pod of
    ///   it.
    /// - W26: only the current revision is aborted, and only if the abort request names it.
    /// - W22: only the verdict about the current revision is removed, and only if a retry request names this revision.
    fn check_verdict(
        &mut self,
        view: &ClusterView,
        set: &Set,
        rollout: &SetRollout,
        failed: &BTreeSet<Text>,
        (revision, verdict, reason): (&Revision, Option<RevisionVerdict>, &str),
        clock: Time,
    ) {
        let is_current = revision.uid == rollout.current.uid;
        let requests = rollout.record.as_ref().map(|it| it.requests.clone()).unwrap_or_default();
        match verdict {
            Some(RevisionVerdict::Good) => {
                let of_revision = |node: &facts::Node| {
                    view.pods_on(set, &node.name).any(|it| {
                        it.hash_label() == revision.hash_label() && oracle::is_pod_available(set, it, clock)
                    })
                };
                let eligible: Vec<&facts::Node> = view
                    .nodes
                    .values()
                    .map(|it| it.as_ref())
                    .filter(|it| oracle::is_node_eligible(set, it))
                    .collect();
                let is_on = |node: &&&facts::Node| {
                    view.pods_on(set, &node.name).any(|it| {
                        oracle::is_pod_available(set, it, clock) && view.has_current_template(set, it)
                    })
                };
                let on = eligible.iter().filter(is_on).count();
                let is_excused = |node: &&&facts::Node| failed.contains(&node.name);
                let missing = eligible.iter().filter(|it| !is_on(it) && !is_excused(it)).count();
                let right = match reason {
                    "Adopted" if is_current => rollout.stable.is_none() && 0 < on && missing == 0,
                    "Adopted" => rollout.stable.is_none() && view.nodes.values().any(|it| of_revision(it)),
                    _ => is_current && 0 < on && missing == 0,
                };
                if !right {
                    self.report_violation("W23", || {
                        format!(
                            "{} is judged Good ({reason}), but {missing} nodes do not have it",
                            revision.key
                        )
                    });
                }
            }
            Some(RevisionVerdict::Bad)
                if reason == "Aborted"
                    && (!is_current || requests.abort.as_ref() != revision.hash_label()) =>
            {
                self.report_violation("W26", || {
                    format!("{} is aborted, but the request names {:?}", revision.key, requests.abort)
                });
            }
            None => {
                let is_asked =
                    requests.retry.as_ref().is_some_and(|it| Some(&it.revision) == revision.hash_label());
                if !is_current || !is_asked {
                    self.report_violation("W22", || {
                        format!("the verdict of {} is removed without a retry of it", revision.key)
                    });
                }
            }
            _ => {}
        }
    }

    /// Checks the status that a plan writes to a DaemonRollout, if the status is about the current revision:
    /// - W26: a step with manual approval ends only if an operator has approved this step of this revision.
    /// - L15: the rollout goes on from the first step only after a pod of the revision has been Ready. Exception: the
    ///   first step has no nodes.
    /// - W19: no node is admitted (assigned the current revision) during a pause.
    /// - W18: a step admits only its own nodes, and only up to its target.
    /// - S15: at most `maxConcurrent` groups of nodes are updated at a time.
    fn check_next_status(
        &mut self,
        view: &ClusterView,
        set: &Set,
        rollout: &SetRollout,
        requests: &OperatorRequests,
        next: &RolloutStatus,
        clock: Time,
    ) {
        let is_approved = |step: &str| {
            let approve = requests.approve.as_ref();
            approve.is_some_and(|it| {
                Some(&it.revision) == rollout.current.hash_label()
                    && (*it.step == *step || *it.step == *ALL_STEPS)
            })
        };
        if next.current.as_ref().map(|it| &it.hash) != rollout.current.hash_label() {
            // A new revision is recorded after the verdict about the old one; until then the old status stays.
            return;
        }
        let stored = rollout.status();
        let before = stored.map(rollout_oracle::admitted_names).unwrap_or_default();
        let after = rollout_oracle::admitted_names(next);
        let is_new_attempt = stored.is_none_or(|it| it.attempt != next.attempt);
        if let Some(stored) = stored.filter(|_| !is_new_attempt)
            && let Some(step) = rollout.step(stored)
            && next.phase == Some(Phase::Rolling)
            && stored.step.as_ref().map(|it| it.index) < next.step.as_ref().map(|it| it.index)
            && step.approval == Approval::Manual
            && !is_approved(&step.name)
        {
            self.report_violation("W26", || format!("step {:?} of {} ends unapproved", &*step.name, set.key));
        }
        if let Some(stored) = stored.filter(|_| !is_new_attempt)
            && let (Some(from), Some(to)) = (&stored.step, &next.step)
            && rollout
                .policy
                .as_ref()
                .is_some_and(|it| it.spec.steps.first().map(|it| &it.name) == Some(&from.name))
            && from.name != to.name
            && *to.name != *ALL_STEPS
            && next.phase == Some(Phase::Rolling)
            && !self.was_ever_ready(view, set)
            && view.nodes_of_step(set, rollout.step(stored).as_ref()).next().is_some()
        {
            self.report_violation("L15", || {
                format!("{} goes on from step {:?}, but its revision was never Ready", set.key, &*from.name)
            });
        }
        let added: BTreeSet<Text> = after.difference(&before).cloned().collect();
        if added.is_empty() {
            return;
        }
        if rollout.policy.as_ref().is_some_and(|it| it.spec.paused) || requests.paused {
            self.report_violation("W19", || format!("{added:?} are admitted while {} is paused", set.key));
        }
        // Without a policy there is one step, for all nodes.
        if rollout.policy.is_none() {
            return;
        }
        let is_for_all = next.step.as_ref().is_some_and(|it| *it.name == *ALL_STEPS);
        let is_good = rollout_oracle::verdict(&rollout.current) == Some(RevisionVerdict::Good);
        let Some(step) = rollout.step(next) else {
            if !is_for_all || !(is_approved(ALL_STEPS) || is_good) {
                self.report_violation("W18", || format!("{added:?} are admitted without a step: {next}"));
            }
            return;
        };
        let nodes = view.nodes_of_step(set, Some(&step)).count();
        let target = rollout_oracle::step_target(&step, nodes);
        let exposed = view.exposed_nodes(set, Some(&step), &after);
        let exposed_before = view.exposed_nodes(set, Some(&step), &before).len();
        let outside = added.iter().find(|it| !exposed.contains(*it));
        if let Some(node) = outside {
            self.report_violation("W18", || format!("{node} is admitted, but is not a node of the step"));
        }
        if target.max(exposed_before) < exposed.len() && rollout.stable.is_some() {
            self.report_violation("W18", || {
                format!(
                    "{} nodes of {} are exposed, the target of {:?} is {target}",
                    exposed.len(),
                    set.key,
                    &*step.name
                )
            });
        }
        self.check_concurrent_groups(view, set, &step, next, &added, clock);
    }

    /// Checks W21 for the groups of a step: no more available pods of a group are deleted than `maxUnavailable` of the
    /// group allows. `replaced` are the names of the nodes whose available pod a plan deletes.
    pub(super) fn check_group_budgets(
        &mut self,
        view: &ClusterView,
        set: &Set,
        rollout: &SetRollout,
        replaced: &[&Text],
        clock: Time,
    ) {
        let Some(step) = rollout.status().and_then(|it| rollout.step(it)) else { return };
        let Some(groups) = &step.groups else { return };
        let group_of = |node: &facts::Node| node.labels.get(&groups.label).cloned().unwrap_or_default();
        let charged = view.charged_nodes(set, clock);
        let mut nodes_of_groups: BTreeMap<Text, Vec<&Text>> = BTreeMap::new();
        for node in view.nodes_of_step(set, Some(&step)) {
            nodes_of_groups.entry(group_of(node)).or_default().push(&node.name);
        }
        for (group, nodes) in nodes_of_groups {
            let allowed = match groups.max_unavailable {
                IntOrPercent::Count(count) => count as usize,
                IntOrPercent::Percent(percent) => (nodes.len() * percent as usize).div_ceil(100),
            };
            let deleted = nodes.iter().filter(|it| replaced.contains(it)).count();
            let down = nodes.iter().filter(|it| charged.contains(&&****it)).count();
            if 0 < deleted && allowed < down + deleted {
                self.report_violation("W21", || {
                    format!(
                        "{deleted} available pods of group {group:?} are deleted and {down} nodes already count \
                         against its budget of {allowed}"
                    )
                });
            }
        }
    }

    /// Checks S15: with the newly admitted nodes, at most `maxConcurrent` groups are updated at a time. A group
    /// consists of the nodes with the same value of a label. `added` are the names of the nodes that the next status
    /// newly admits.
    ///
    /// Exception: if all groups of the added nodes were already being updated, only these groups are counted. A group
    /// beyond the limit may then exist because a node that was admitted earlier has become eligible again.
    fn check_concurrent_groups(
        &mut self,
        view: &ClusterView,
        set: &Set,
        step: &Step,
        next: &RolloutStatus,
        added: &BTreeSet<Text>,
        clock: Time,
    ) {
        let Some(groups) = &step.groups else { return };
        let group_of = |node: &facts::Node| node.labels.get(&groups.label).cloned().unwrap_or_default();
        let of_names = |names: &BTreeSet<Text>| -> BTreeSet<Text> {
            names.iter().filter_map(|it| view.nodes.get(it)).map(|it| group_of(it)).collect()
        };
        let open = of_names(added);
        let admitted = rollout_oracle::admitted_names(next);
        let has_admitted_node = |group: &Text, is_unfinished: &dyn Fn(&facts::Pod) -> bool| {
            view.nodes_of_step(set, Some(step)).any(|node| {
                group_of(node) == *group
                    && admitted.contains(&node.name)
                    && !added.contains(&node.name)
                    && !next.failures.nodes.iter().any(|it| it.node == node.name)
                    && view.pods_on(set, &node.name).all(|it| is_unfinished(it))
            })
        };
        // A group is being updated while a node of it was admitted before and has no pod of the revision, or a pod that
        // has not soaked. A group whose pods only soak does not keep others from being updated.
        let has_no_pod = |it: &facts::Pod| !view.has_current_template(set, it);
        let has_not_soaked =
            |it: &facts::Pod| has_no_pod(it) || !rollout_oracle::has_soaked(set, it, groups.soak, clock);
        let all: BTreeSet<Text> = view.nodes_of_step(set, Some(step)).map(|it| group_of(it)).collect();
        let busy = all.iter().filter(|it| open.contains(*it) || has_admitted_node(it, &has_no_pod)).count();
        let opens_group = open.iter().any(|it| !has_admitted_node(it, &has_not_soaked));
        let busy = if opens_group { busy } else { open.len() };
        if groups.max_concurrent < busy {
            self.report_violation("S15", || {
                format!(
                    "{busy} groups of {} are updated at a time, {} are allowed",
                    set.key, groups.max_concurrent
                )
            });
        }
    }

    /// Checks a commit of the DaemonSet controller:
    /// - W24: a controller never deletes a DaemonSet, a RolloutPolicy or a DaemonRollout, and never writes the spec of
    ///   one.
    /// - S14: within an attempt, failures are never removed, and admissions are withdrawn only when the rollout stops.
    ///
    /// A commit of a pod, by any actor, is not checked. It updates the records of the revisions that each node has had,
    /// and of the revisions that have been Ready.
    pub(super) fn check_rollout_commit(&mut self, server: &SimServer, commit: &SimCommit) {
        if let Some(WatchedObject::Pod(pod)) = &commit.fact {
            if let (Some(owner), Some(node), Some(hash)) = (&pod.owner, &pod.target, pod.hash_label()) {
                self.revisions_of_nodes.insert((owner.clone(), node.clone(), hash.clone()));
                if oracle::is_pod_ready(pod) {
                    self.ready_revisions.insert((owner.clone(), hash.clone()));
                }
            }
            return;
        }
        if !matches!(commit.actor, Actor::Controller(_)) {
            return;
        }
        let before = server.object_at_revision(commit.kind, &commit.key, commit.revision - 1);
        let wrote_spec = match (before, &commit.fact) {
            (_, Some(WatchedObject::Policy(_))) => true,
            (Some(WatchedObject::Set(before)), Some(WatchedObject::Set(now))) => {
                before.template != now.template
                    || before.rollout != now.rollout
                    || before.generation != now.generation
            }
            (Some(WatchedObject::Rollout(before)), Some(WatchedObject::Rollout(now))) => {
                before.requests != now.requests
            }
            (None, Some(WatchedObject::Rollout(now))) => now.requests != OperatorRequests::default(),
            (_, None) => matches!(commit.kind, Kind::Sets | Kind::Rollouts | Kind::Policies),
            _ => false,
        };
        if wrote_spec {
            self.report_violation("W24", || format!("a controller changed the spec of {}", commit.key));
        }
        let (Some(WatchedObject::Rollout(before)), Some(WatchedObject::Rollout(now))) =
            (before, &commit.fact)
        else {
            return;
        };
        let (before, now) = (&before.status, &now.status);
        let hash = |it: &RolloutStatus| it.current.as_ref().map(|it| it.hash.clone());
        if hash(before) != hash(now) || before.attempt != now.attempt {
            return;
        }
        // A failure ends the admission of the nodes that did not get the revision yet. The rollout may have stopped
        // before, for another reason.
        let is_kept = now.phase == Some(Phase::Stopped)
            || rollout_oracle::admitted_names(before).is_subset(&rollout_oracle::admitted_names(now));
        if !is_kept || now.failures.nodes.len() < before.failures.nodes.len() {
            self.report_violation("S14", || {
                format!("{} goes back from {before} to {now} in one attempt", commit.key)
            });
        }
    }
}
