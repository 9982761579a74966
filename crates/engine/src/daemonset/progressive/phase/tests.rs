//! Each test drives one rollout from status to status, as the controller does: the next status becomes the stored one.

use alloc::collections::BTreeSet;
use core::time::Duration;

use expect_test::{Expect, expect};
use muster_api::labels::{Labels, Selector};
use muster_api::muster_v1alpha1::checks::WebhookCheck;
use muster_api::object_key::ObjectKey;

use super::super::counts::NodeProgress;
use super::super::membership::{
    AssignedRevision, Candidate, MembershipInput, MembershipScope, RolloutMembership,
};
use super::super::policy::{Approval, Check, FailureRules, NodeGroups, PolicyKind, SetSelection, Step};
use super::super::record::{ApproveRequest, CheckReport, RetryRequest, RevisionReference};
use super::*;
use crate::daemonset::facts::IntOrPercent;

/// Bugs of the state machine that the simulator found.
mod regressions;

/// A simulated fleet with one DaemonSet: the revision of each node's pod, and whether it is available.
struct Fleet {
    policy: Option<Policy>,
    requests: OperatorRequests,
    stored: RolloutStatus,
    current: RevisionWithVerdict,
    others: Vec<RevisionWithVerdict>,
    nodes: BTreeMap<Text, FleetNode>,
    check_results: Vec<CheckStatus>,
    check_failures: BTreeMap<Text, u32>,
    now: Time,
    events: Vec<String>,
    /// Whether the controller restarts between a verdict and the status that follows from it.
    crashes_after_verdict: bool,
    /// Whether the update strategy is `OnDelete` and no policy governs the DaemonSet, so that users delete the pods.
    waits_for_deletes: bool,
}

struct FleetNode {
    zone: Text,
    created: Time,
    revision: Text,
    available_since: Option<Time>,
    failure: Option<Text>,
}

fn revision(hash: &str, number: i64, verdict: Option<RevisionVerdict>) -> RevisionWithVerdict {
    let reference = RevisionReference { hash: hash.into(), number };
    RevisionWithVerdict { reference, verdict, reason: None, created: Time::from_secs(0) }
}

fn step(name: &str, nodes: IntOrPercent, soak_s: u64) -> Step {
    Step { name: name.into(), nodes, soak: Duration::from_secs(soak_s), ..Step::default() }
}

fn policy(steps: Vec<Step>) -> Policy {
    Policy {
        kind: PolicyKind::RolloutPolicy,
        key: ObjectKey::new("default", "careful"),
        resource_version: 1,
        generation: 1,
        created: Time::from_secs(0),
        selection: SetSelection::Selector(Selector::AllOf(Vec::new())),
        spec: PolicySpec { steps, ..PolicySpec::default() },
        invalid: Vec::new(),
    }
}

/// A policy with a canary of one node that soaks for ten minutes, then all nodes.
fn canary_policy() -> Policy {
    policy([step("canary", IntOrPercent::Count(1), 600), step("rest", IntOrPercent::Percent(100), 0)].into())
}

impl Fleet {
    /// Nodes `n0`, `n1`, … in zones `a` and `b`, all with the good revision `s`. Revision `r` is current.
    fn new(nodes: usize, policy: Policy) -> Self {
        let node = |it: usize| FleetNode {
            zone: if it.is_multiple_of(2) { "a".into() } else { "b".into() },
            created: Time::from_secs(0),
            revision: "s".into(),
            available_since: Some(Time::from_secs(0)),
            failure: None,
        };
        let mut policy = policy;
        policy.spec.order = super::super::order::NodeOrder::Name;
        Self {
            policy: Some(policy),
            requests: OperatorRequests::default(),
            stored: RolloutStatus::default(),
            current: revision("r", 2, None),
            others: [revision("s", 1, Some(RevisionVerdict::Good))].into(),
            nodes: (0..nodes).map(|it| (format!("n{it}").into(), node(it))).collect(),
            check_results: Vec::new(),
            check_failures: BTreeMap::new(),
            now: Time::from_secs(10_000),
            events: Vec::new(),
            crashes_after_verdict: false,
            waits_for_deletes: false,
        }
    }

    fn spec(&self) -> PolicySpec {
        self.policy.as_ref().map(|it| it.spec.clone()).unwrap_or_default()
    }

    fn stable(&self) -> Option<&RevisionWithVerdict> {
        let all = self.others.iter().chain([&self.current]);
        all.filter(|it| it.verdict == Some(RevisionVerdict::Good))
            .max_by_key(|it| (it.created, it.reference.number))
    }

    fn membership(&self) -> RolloutMembership {
        let spec = self.spec();
        let phase = self.stored.phase.unwrap_or(Phase::Stopped);
        RolloutMembership {
            scope: MembershipScope::for_phase(phase, self.stable().is_some()),
            order: spec.order.clone(),
            stable_hash: self.stable().map_or("".into(), |it| it.reference.hash.clone()),
            admitted: self.stored.admitted.clone(),
            admitted_if_created_after: admitted_if_created_after(&spec, &self.stored),
            steps: spec.steps,
        }
    }

    fn labels(node: &FleetNode) -> Labels {
        Labels::new([(Text::from("zone"), node.zone.clone())].into())
    }

    fn counts(&self) -> RolloutCounts {
        let (membership, spec) = (self.membership(), self.spec());
        let step =
            self.stored.step.as_ref().and_then(|it| spec.steps.iter().find(|step| step.name == it.name));
        let good: BTreeSet<&Text> = self
            .others
            .iter()
            .chain([&self.current])
            .filter(|it| it.verdict == Some(RevisionVerdict::Good))
            .map(|it| &it.reference.hash)
            .collect();
        let mut counts = RolloutCounts::default();
        for (name, node) in &self.nodes {
            let labels = Self::labels(node);
            let identity = MembershipInput { name, labels: &labels, created: node.created };
            let has_current_pod = node.revision == self.current.reference.hash;
            let soaked = |soak: Duration| {
                has_current_pod && node.available_since.is_some_and(|it| it + soak <= self.now)
            };
            let group = step.and_then(|it| labels.get(it.group_label()?)).cloned();
            counts.add(&NodeProgress {
                is_eligible: true,
                is_in_step: step.is_none_or(|it| it.selector.matches(&labels)),
                group: group.unwrap_or_default(),
                is_admitted: membership.is_admitted(identity),
                has_unproven_pod: !node.revision.is_empty() && !good.contains(&node.revision),
                has_current_pod,
                is_available: node.available_since.is_some(),
                is_soaked: soaked(step.map_or(Duration::ZERO, |it| it.soak)),
                is_group_soaked: soaked(
                    step.and_then(|it| it.groups.as_ref()).map_or(Duration::ZERO, |it| it.soak),
                ),
                soak_ends_at: has_current_pod
                    .then(|| Some(node.available_since? + step.map_or(Duration::ZERO, |it| it.soak)))
                    .flatten()
                    .filter(|at| self.now < *at),
                is_charged: node.available_since.is_none(),
                failure: node.failure.clone(),
                candidate: Candidate {
                    key: spec.order.key("s", name, &labels),
                    node: name.clone(),
                    created: node.created,
                },
            });
        }
        counts
    }

    fn all_have(&self, hash: Option<&Text>) -> bool {
        self.nodes.values().all(|it| Some(&it.revision) == hash && it.available_since.is_some())
    }

    /// Makes one plan and stores its result. Returns whether anything changed.
    fn plan(&mut self) -> (bool, PhaseOutcome) {
        let counts = self.counts();
        let stable = self.stable().cloned();
        let superseded = self
            .stored
            .current
            .as_ref()
            .and_then(|it| self.others.iter().find(|other| other.reference.hash == it.hash).cloned());
        let running = self.others.iter().find(|it| {
            self.nodes
                .values()
                .any(|node| node.revision == it.reference.hash && node.available_since.is_some())
        });
        let outcome = next_status(&PhaseInput {
            stored: &self.stored,
            generation: 1,
            requests: &self.requests,
            policy: self.policy.as_ref(),
            current: &self.current,
            stable: stable.as_ref(),
            running,
            superseded: superseded.as_ref(),
            counts: &counts,
            is_rolled_out: self.all_have(Some(&self.current.reference.hash)),
            is_rolled_back: self.all_have(stable.as_ref().map(|it| &it.reference.hash)),
            check_results: &self.check_results,
            check_failures: &self.check_failures,
            excuses: &[],
            is_assisting: false,
            waits_for_deletes: self.waits_for_deletes,
            now: self.now,
        });
        self.events.extend(outcome.events.iter().map(|it| format!("{}: {}", it.reason, it.message)));
        if let Some(write) = &outcome.verdict {
            let mut all = self.others.iter_mut().chain([&mut self.current]);
            if let Some(judged) = all.find(|it| it.reference.hash == write.revision) {
                judged.verdict = write.verdict;
                judged.reason = Some(write.reason.into());
                judged.created = self.now;
            }
        }
        if outcome.verdict.is_some() && self.crashes_after_verdict {
            return (true, outcome);
        }
        let changed = outcome.verdict.is_some() || self.stored != outcome.status;
        self.stored = outcome.status.clone();
        (changed, outcome)
    }

    /// Plans until nothing changes; pods of the assigned revision replace others where the outcome allows it.
    fn settle(&mut self) -> &mut Self {
        for _ in 0..200 {
            let (changed, outcome) = self.plan();
            let replaced = outcome.may_replace && self.replace_pods();
            if !changed && !replaced {
                return self;
            }
        }
        panic!("the rollout does not settle: {:?}", self.stored);
    }

    fn replace_pods(&mut self) -> bool {
        let membership = self.membership();
        let stable = self.stable().map(|it| it.reference.hash.clone());
        let (current, now) = (self.current.reference.hash.clone(), self.now);
        let is_rollback = self.stored.phase == Some(Phase::RollingBack);
        let mut replaced = false;
        for (name, node) in &mut self.nodes {
            let labels = Self::labels(node);
            let identity = MembershipInput { name, labels: &labels, created: node.created };
            let assigned = match membership.assigned_revision(identity) {
                AssignedRevision::Current => Some(current.clone()),
                // A held node keeps a pod that is well, whatever its revision, except in a rollback.
                AssignedRevision::Stable => {
                    stable.clone().filter(|_| is_rollback || node.available_since.is_none())
                }
            };
            if let Some(assigned) = assigned.filter(|it| *it != node.revision) {
                node.revision = assigned;
                node.available_since = Some(now);
                node.failure = None;
                replaced = true;
            }
        }
        replaced
    }

    fn fail(&mut self, node: &str, reason: &str) -> &mut Self {
        let node = self.nodes.get_mut(node).unwrap();
        (node.failure, node.available_since) = (Some(reason.into()), None);
        self
    }

    fn wait(&mut self, seconds: u64) -> &mut Self {
        self.now = self.now + Duration::from_secs(seconds);
        self
    }

    fn with(&self, revision: &str) -> Vec<&str> {
        self.nodes.iter().filter(|(_, it)| *it.revision == *revision).map(|(name, _)| &**name).collect()
    }

    #[track_caller]
    fn check(&self, expected: Expect) -> &Self {
        let status = &self.stored;
        let phase = status.phase.map_or("-", Phase::as_str);
        let step = status.step.as_ref().map_or("-", |it| &it.name);
        let verdict = self.current.verdict.map_or("-", RevisionVerdict::as_str);
        let paused = if status.paused { " paused" } else { "" };
        let line = format!(
            "{phase}{paused} step={step} attempt={} verdict={verdict} r={:?}\n{}\n",
            status.attempt,
            self.with("r"),
            status.message
        );
        expected.assert_eq(&line);
        self
    }
}

#[test]
fn a_canary_soaks_then_all_nodes_follow_and_the_revision_is_good() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.settle().check(expect![[r#"
        Soaking step=canary attempt=1 verdict=- r=["n0"]
        0 of 1 nodes of step "canary" have soaked
    "#]]);
    fleet.wait(599).settle().check(expect![[r#"
        Soaking step=canary attempt=1 verdict=- r=["n0"]
        0 of 1 nodes of step "canary" have soaked
    "#]]);
    fleet.wait(1).settle().check(expect![[r#"
        Complete step=rest attempt=1 verdict=Good r=["n0", "n1", "n2"]

    "#]]);
    expect![[r#"
        RolloutStarted: Rolling out revision 2
        StepStarted: Step "canary" has started
        StepPassed: Step "canary" has passed
        StepStarted: Step "rest" has started
        StepPassed: Step "rest" has passed
        RolloutComplete: Revision 2 is on all nodes"#]]
    .assert_eq(&fleet.events.join("\n"));
}

/// The status says when the step can pass: when the last of its nodes has soaked, except nodes that have failed.
#[test]
fn a_soaking_step_says_when_it_can_pass() {
    let mut policy = canary_policy();
    policy.spec.steps[0].nodes = IntOrPercent::Count(2);
    policy.spec.failures.max_nodes = IntOrPercent::Count(1);
    let mut fleet = Fleet::new(3, policy);
    fleet.settle();
    assert_eq!(fleet.stored.phase, Some(Phase::Soaking));
    let passes_at = |fleet: &Fleet| fleet.stored.step.as_ref().unwrap().passes_at;
    let available_since = |fleet: &Fleet, name: &str| fleet.nodes[name].available_since.unwrap();
    let soak = Duration::from_secs(600);
    assert_eq!(passes_at(&fleet), Some(available_since(&fleet, "n1") + soak));
    // A node whose pod became available later ends its soak time later.
    let later = available_since(&fleet, "n0") + Duration::from_secs(60);
    fleet.nodes.get_mut("n0").unwrap().available_since = Some(later);
    fleet.wait(60).settle();
    assert_eq!(passes_at(&fleet), Some(later + soak));
    // The step does not wait for a failed node.
    fleet.fail("n0", "CrashLoopBackOff").settle();
    assert_eq!(passes_at(&fleet), Some(available_since(&fleet, "n1") + soak));
    fleet.wait(600).settle();
    assert_eq!((fleet.stored.phase, passes_at(&fleet)), (Some(Phase::Complete), None));
}

#[test]
fn a_failed_canary_is_rolled_back_and_stays_bad() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.settle().fail("n0", "CrashLoopBackOff").settle().check(expect![[r#"
        RolledBack step=canary attempt=1 verdict=Bad r=[]
        revision 2 failed on 1 of 1 nodes (CrashLoopBackOff: n0)
    "#]]);
    fleet.wait(100_000).settle().check(expect![[r#"
        RolledBack step=canary attempt=1 verdict=Bad r=[]
        revision 2 failed on 1 of 1 nodes (CrashLoopBackOff: n0)
    "#]]);
    fleet.requests.retry = Some(RetryRequest { revision: "r".into(), attempt: 2 });
    fleet.settle().check(expect![[r#"
        Soaking step=canary attempt=2 verdict=- r=["n0"]
        0 of 1 nodes of step "canary" have soaked
    "#]]);
}

#[test]
fn a_failure_in_the_last_step_stops_and_does_not_roll_back() {
    let mut fleet = Fleet::new(100, canary_policy());
    fleet.policy.as_mut().unwrap().spec.steps[1].soak = Duration::from_secs(60);
    fleet.settle().wait(600).settle();
    assert_eq!(fleet.with("r").len(), 100);
    fleet.fail("n1", "Error").fail("n2", "Error").settle();
    assert_eq!(fleet.stored.phase, Some(Phase::Soaking), "two of 100 are tolerated");
    fleet.fail("n3", "OOMKilled").settle();
    assert_eq!((fleet.stored.phase, fleet.with("r").len()), (Some(Phase::Stopped), 100));
    expect!["revision 2 failed on 3 of 100 nodes (OOMKilled: n3)"].assert_eq(&fleet.stored.message);
}

#[test]
fn a_node_that_joins_is_held_and_a_canary_that_leaves_is_replaced() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.settle();
    let joined = FleetNode {
        zone: "a".into(),
        created: fleet.now,
        revision: "s".into(),
        available_since: Some(fleet.now),
        failure: None,
    };
    fleet.nodes.insert("a-first-in-order".into(), joined);
    fleet.settle();
    assert_eq!(fleet.with("r"), ["n0"]);
    fleet.nodes.remove("n0");
    fleet.settle();
    assert_eq!(fleet.with("r"), ["n1"], "the node that joined just now is too young");
}

#[test]
fn a_paused_rollout_admits_nothing_and_goes_on_when_it_is_resumed() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.requests.paused = true;
    fleet.settle().check(expect![[r#"
        Rolling paused step=canary attempt=1 verdict=- r=[]
        paused by the DaemonRollout (spec.paused)
    "#]]);
    fleet.wait(100_000).settle();
    assert_eq!(fleet.stored.phase, Some(Phase::Rolling), "the progress deadline does not count while paused");
    fleet.requests.paused = false;
    fleet.settle().check(expect![[r#"
        Soaking step=canary attempt=1 verdict=- r=["n0"]
        0 of 1 nodes of step "canary" have soaked
    "#]]);
}

#[test]
fn an_operators_pause_holds_a_rollback_and_a_policys_pause_does_not() {
    let failing = || {
        let mut fleet = Fleet::new(3, canary_policy());
        fleet.settle().fail("n0", "Error");
        fleet
    };
    let mut fleet = failing();
    fleet.requests.paused = true;
    fleet.settle();
    assert_eq!((fleet.stored.phase, fleet.stored.paused), (Some(Phase::RollingBack), true));
    assert_eq!(fleet.with("r"), ["n0"]);
    let mut fleet = failing();
    fleet.policy.as_mut().unwrap().spec.paused = true;
    fleet.settle();
    assert_eq!((fleet.stored.phase, fleet.stored.paused), (Some(Phase::RolledBack), false));
}

#[test]
fn a_manual_step_waits_for_its_approval() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.policy.as_mut().unwrap().spec.steps[0].approval = Approval::Manual;
    fleet.settle().wait(600).settle().check(expect![[r#"
        Waiting step=canary attempt=1 verdict=- r=["n0"]
        step "canary" waits for approval
    "#]]);
    fleet.requests.approve = Some(ApproveRequest { revision: "another".into(), step: "canary".into() });
    fleet.settle();
    assert_eq!(fleet.stored.phase, Some(Phase::Waiting), "an approval of another revision has no effect");
    fleet.requests.approve = Some(ApproveRequest { revision: "r".into(), step: "canary".into() });
    fleet.settle();
    assert_eq!(fleet.stored.phase, Some(Phase::Complete));
}

#[test]
fn an_approval_of_all_steps_skips_soak_and_approvals() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.settle();
    fleet.requests.approve = Some(ApproveRequest { revision: "r".into(), step: ALL_STEPS.into() });
    fleet.settle().check(expect![[r#"
        Complete step=* attempt=1 verdict=Good r=["n0", "n1", "n2"]

    "#]]);
}

/// A fleet whose policy has the external check `smoke`.
fn fleet_with_external_check() -> Fleet {
    let mut fleet = Fleet::new(3, canary_policy());
    let check = Check {
        name: "smoke".into(),
        source: CheckSource::External,
        interval: Duration::from_secs(60),
        failure_threshold: 3,
    };
    fleet.policy.as_mut().unwrap().spec.checks = [check].into();
    fleet
}

fn report(revision: &str, result: CheckResult, message: &str) -> CheckReport {
    CheckReport { check: "smoke".into(), revision: revision.into(), result, message: message.into() }
}

#[test]
fn a_check_that_did_not_pass_holds_the_step() {
    let mut fleet = fleet_with_external_check();
    fleet.settle().wait(600).settle().check(expect![[r#"
        Waiting step=canary attempt=1 verdict=- r=["n0"]
        check "smoke" has not passed: not reported yet
    "#]]);
    fleet.requests.check_reports = [report("r", CheckResult::Pass, "")].into();
    fleet.settle();
    assert_eq!(fleet.stored.phase, Some(Phase::Complete));
}

#[test]
fn an_approval_of_all_steps_reaches_all_nodes_and_is_good_after_the_checks() {
    let mut fleet = fleet_with_external_check();
    fleet.settle();
    fleet.requests.approve = Some(ApproveRequest { revision: "r".into(), step: ALL_STEPS.into() });
    fleet.settle().check(expect![[r#"
        Waiting step=* attempt=1 verdict=- r=["n0", "n1", "n2"]
        check "smoke" has not passed: not reported yet
    "#]]);
    fleet.requests.check_reports = [report("r", CheckResult::Pass, "")].into();
    fleet.settle();
    assert_eq!(
        (fleet.stored.phase, fleet.current.verdict),
        (Some(Phase::Complete), Some(RevisionVerdict::Good))
    );
}

#[test]
fn one_reported_failure_fails_the_revision() {
    for crashes_after_verdict in [false, true] {
        let mut fleet = fleet_with_external_check();
        fleet.crashes_after_verdict = crashes_after_verdict;
        fleet.requests.check_reports = [report("s", CheckResult::Fail, "another revision")].into();
        fleet.settle().check(expect![[r#"
            Soaking step=canary attempt=1 verdict=- r=["n0"]
            0 of 1 nodes of step "canary" have soaked
        "#]]);
        fleet.requests.check_reports = [report("r", CheckResult::Fail, "login fails")].into();
        fleet.settle().check(expect![[r#"
            RolledBack step=canary attempt=1 verdict=Bad r=[]
            check "smoke" failed: login fails
        "#]]);
        let checks: Vec<_> =
            fleet.stored.checks.iter().map(|it| (&*it.name, it.result, &*it.message)).collect();
        assert_eq!(checks, [("smoke", CheckResult::Fail, "login fails")]);
        // The report is about the revision, not about the attempt: a retry without it starts again.
        fleet.requests.check_reports.clear();
        fleet.requests.retry = Some(RetryRequest { revision: "r".into(), attempt: 2 });
        fleet.settle().check(expect![[r#"
            Soaking step=canary attempt=2 verdict=- r=["n0"]
            0 of 1 nodes of step "canary" have soaked
        "#]]);
    }
}

#[test]
fn a_reported_failure_stops_the_rollout_if_the_policy_says_so() {
    let mut fleet = fleet_with_external_check();
    fleet.policy.as_mut().unwrap().spec.on_failure = OnFailure::Stop;
    fleet.settle();
    fleet.requests.check_reports = [report("r", CheckResult::Fail, "")].into();
    fleet.settle().wait(100_000).settle().check(expect![[r#"
        Stopped step=canary attempt=1 verdict=Bad r=["n0"]
        check "smoke" failed
    "#]]);
}

#[test]
fn a_measured_check_fails_the_revision_at_its_threshold_and_an_old_pass_is_inconclusive() {
    let measured = |result, at| CheckStatus { name: "errors".into(), result, at, message: "".into() };
    let check = Check {
        name: "errors".into(),
        source: CheckSource::Webhook(WebhookCheck::default()),
        interval: Duration::from_secs(60),
        failure_threshold: 3,
    };
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.policy.as_mut().unwrap().spec.checks = [check].into();
    fleet.settle();
    fleet.check_results = [measured(CheckResult::Pass, fleet.now)].into();
    fleet.wait(600).settle();
    assert_eq!(fleet.stored.phase, Some(Phase::Waiting), "the check passed ten minutes ago, not since");
    let stale = r#"check "errors" has not passed: the last measurement is older than two intervals"#;
    assert_eq!(*fleet.stored.message, *stale);
    fleet.check_results = [measured(CheckResult::Fail, fleet.now)].into();
    fleet.check_failures = BTreeMap::from([("errors".into(), 2)]);
    fleet.settle();
    assert_eq!(fleet.stored.phase, Some(Phase::Waiting));
    fleet.check_failures = BTreeMap::from([("errors".into(), 3)]);
    fleet.settle();
    assert_eq!(fleet.stored.phase, Some(Phase::RolledBack));
    expect![[r#"check "errors" failed"#]].assert_eq(&fleet.stored.message);
}

#[test]
fn an_abort_rolls_back_in_every_step() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.policy.as_mut().unwrap().spec.steps[1].soak = Duration::from_secs(600);
    fleet.settle().wait(600).settle();
    assert_eq!(fleet.with("r").len(), 3);
    fleet.requests.abort = Some("r".into());
    fleet.settle().check(expect![[r#"
        RolledBack step=rest attempt=1 verdict=Bad r=[]
        aborted by an operator
    "#]]);
}

#[test]
fn a_second_template_in_mid_canary_reaches_the_same_node_first() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.settle();
    let old = core::mem::replace(&mut fleet.current, revision("r2", 3, None));
    fleet.others.push(old);
    fleet.settle();
    assert_eq!(fleet.with("r2"), ["n0"]);
    assert_eq!(fleet.others[1].verdict, Some(RevisionVerdict::Superseded));
    assert_eq!(fleet.stored.stable, Some(RevisionReference { hash: "s".into(), number: 1 }));
}

#[test]
fn a_template_that_returns_to_the_stable_revision_touches_only_the_nodes_that_left_it() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.settle().fail("n0", "Error");
    let old = core::mem::replace(&mut fleet.current, revision("s", 3, Some(RevisionVerdict::Good)));
    fleet.others = [old].into();
    fleet.settle();
    assert_eq!((fleet.stored.phase, fleet.with("s").len()), (Some(Phase::Complete), 3));
}

#[test]
fn a_bad_template_that_is_applied_again_is_stopped_at_once() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.current.verdict = Some(RevisionVerdict::Bad);
    fleet.settle().check(expect![[r#"
        Stopped step=- attempt=1 verdict=Bad r=[]
        the revision failed before: retry it, or change the template
    "#]]);
}

#[test]
fn a_rollout_whose_policy_is_deleted_is_held_until_a_policy_selects_it_again() {
    let mut fleet = Fleet::new(3, canary_policy());
    let policy = fleet.settle().policy.take();
    fleet.settle().check(expect![[r#"
        Stopped step=canary attempt=1 verdict=- r=["n0"]
        the policy was deleted or no longer selects the DaemonSet
    "#]]);
    fleet.policy = policy;
    fleet.settle().wait(600).settle();
    assert_eq!(fleet.stored.phase, Some(Phase::Complete));
}

#[test]
fn the_first_installation_goes_to_every_node() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.others.clear();
    for node in fleet.nodes.values_mut() {
        (node.revision, node.available_since) = ("".into(), None);
    }
    fleet.settle();
    assert_eq!(fleet.with("r").len(), 3);
    assert_eq!(
        (fleet.stored.phase, fleet.current.verdict),
        (Some(Phase::Complete), Some(RevisionVerdict::Good))
    );
}

#[test]
fn a_policy_adopts_the_revision_of_a_daemonset_that_is_rolled_out() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.others.clear();
    for node in fleet.nodes.values_mut() {
        node.revision = "r".into();
    }
    fleet.settle().check(expect![[r#"
        Complete step=- attempt=1 verdict=Good r=["n0", "n1", "n2"]

    "#]]);
}

#[test]
fn a_policy_in_the_middle_of_a_rollout_adopts_the_other_revision_and_takes_nothing_back() {
    let mut fleet = Fleet::new(4, canary_policy());
    fleet.others[0].verdict = None;
    for name in ["n2", "n3"] {
        let node = fleet.nodes.get_mut(name).unwrap();
        (node.revision, node.available_since) = ("r".into(), Some(fleet.now));
    }
    fleet.settle();
    assert_eq!(fleet.others[0].verdict, Some(RevisionVerdict::Good));
    assert_eq!(fleet.with("r"), ["n2", "n3"], "no further node is exposed: two are more than the canary");
    assert_eq!(fleet.stored.phase, Some(Phase::Soaking));
}

#[test]
fn groups_are_updated_one_after_the_other() {
    let mut zones = step("zones", IntOrPercent::Percent(100), 0);
    zones.groups = Some(NodeGroups {
        label: "zone".into(),
        sequence: ["b".into()].into(),
        max_concurrent: 1,
        max_unavailable: IntOrPercent::Percent(100),
        soak: Duration::from_secs(60),
    });
    let mut fleet = Fleet::new(4, policy([zones].into()));
    fleet.settle();
    assert_eq!(fleet.with("r"), ["n1", "n3"], "zone b is first in the sequence");
    fleet.wait(60).settle();
    assert_eq!(fleet.with("r").len(), 4);
}

#[test]
fn a_node_that_joins_a_finished_group_waits_for_the_group_that_is_being_updated() {
    let mut zones = step("zones", IntOrPercent::Percent(100), 60);
    zones.groups = Some(NodeGroups {
        label: "zone".into(),
        sequence: Vec::new(),
        max_concurrent: 1,
        max_unavailable: IntOrPercent::Percent(100),
        soak: Duration::from_secs(60),
    });
    let mut fleet = Fleet::new(4, policy([zones].into()));
    fleet.settle().wait(60).settle();
    assert_eq!(fleet.with("r").len(), 4, "zone b is soaking");
    let joined = FleetNode {
        zone: "a".into(),
        created: fleet.now,
        revision: "s".into(),
        available_since: Some(fleet.now),
        failure: None,
    };
    fleet.nodes.insert("n4".into(), joined);
    fleet.wait(20).settle();
    assert_eq!(fleet.with("s"), ["n4"], "zone a is not opened again while zone b soaks");
    fleet.wait(40).settle();
    assert_eq!(fleet.with("r").len(), 5);
}

#[test]
fn a_rollout_that_waits_for_users_to_delete_pods_says_so_and_has_no_deadline() {
    let mut fleet = Fleet::new(2, canary_policy());
    fleet.policy = None;
    fleet.waits_for_deletes = true;
    for _ in 0..4 {
        fleet.plan();
    }
    fleet.wait(100_000).plan();
    fleet.check(expect![[r#"
        Rolling step=all attempt=1 verdict=- r=[]
        0 of 2 nodes of step "all" are updated; with the update strategy OnDelete a node is updated when its pod is deleted
    "#]]);
}

#[test]
fn a_rollout_without_progress_is_reported_stopped_or_rolled_back() {
    for (on_deadline, phase, verdict) in [
        (OnDeadline::Report, Phase::Rolling, None),
        (OnDeadline::Stop, Phase::Stopped, Some(RevisionVerdict::Bad)),
        (OnDeadline::Rollback, Phase::RolledBack, Some(RevisionVerdict::Bad)),
    ] {
        let mut fleet = Fleet::new(3, canary_policy());
        let spec = &mut fleet.policy.as_mut().unwrap().spec;
        spec.on_deadline = on_deadline;
        spec.failures = FailureRules { max_nodes: IntOrPercent::Count(200), ..FailureRules::default() };
        fleet.settle();
        fleet.nodes.get_mut("n0").unwrap().available_since = None;
        fleet.settle();
        assert_eq!(fleet.stored.phase, Some(Phase::Rolling));
        fleet.wait(600).settle();
        assert_eq!((fleet.stored.phase, fleet.current.verdict), (Some(phase), verdict), "{on_deadline:?}");
    }
}

#[test]
fn a_partition_ends_partially_complete_and_is_never_good_by_time_alone() {
    let mut fleet = Fleet::new(4, policy([step("half", IntOrPercent::Percent(50), 60)].into()));
    fleet.settle().wait(60).settle().check(expect![[r#"
        PartiallyComplete step=half attempt=1 verdict=- r=["n0", "n1"]
        no step reaches the other 2 nodes
    "#]]);
    fleet.wait(1_000_000).settle();
    assert_eq!(fleet.stored.phase, Some(Phase::PartiallyComplete));
}

#[test]
fn an_invalid_policy_replaces_nothing() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.policy.as_mut().unwrap().invalid = ["spec.steps[0].nodes: Invalid value".into()].into();
    fleet.settle();
    assert_eq!((fleet.with("r").len(), fleet.stored.paused), (0, true));
}

#[test]
fn a_restart_between_the_verdict_and_the_status_ends_in_the_same_phase() {
    let outcome = |crashes| {
        let mut phases = Vec::new();
        for (on_deadline, on_failure) in
            [(OnDeadline::Stop, OnFailure::Rollback), (OnDeadline::Rollback, OnFailure::Stop)]
        {
            let mut fleet = Fleet::new(3, canary_policy());
            fleet.crashes_after_verdict = crashes;
            let spec = &mut fleet.policy.as_mut().unwrap().spec;
            (spec.on_deadline, spec.on_failure) = (on_deadline, on_failure);
            spec.failures.max_nodes = IntOrPercent::Count(200);
            fleet.settle();
            fleet.nodes.get_mut("n0").unwrap().available_since = None;
            fleet.settle().wait(600).settle();
            phases.push((fleet.stored.phase, fleet.current.verdict));
        }
        let mut aborted = Fleet::new(3, canary_policy());
        aborted.crashes_after_verdict = crashes;
        aborted.policy.as_mut().unwrap().spec.on_failure = OnFailure::Stop;
        aborted.settle().requests.abort = Some("r".into());
        aborted.settle();
        phases.push((aborted.stored.phase, aborted.current.verdict));
        phases
    };
    assert_eq!(outcome(true), outcome(false));
    let bad = Some(RevisionVerdict::Bad);
    let expected = [Phase::Stopped, Phase::RolledBack, Phase::RolledBack].map(|it| (Some(it), bad));
    assert_eq!(outcome(false), expected);
}

#[test]
fn a_tolerated_failure_of_the_only_canary_is_no_evidence_that_the_revision_works() {
    let mut policy = canary_policy();
    policy.spec.failures.max_nodes = IntOrPercent::Count(1);
    let mut fleet = Fleet::new(3, policy);
    fleet.settle().fail("n0", "CrashLoopBackOff").settle().wait(600).settle();
    assert_eq!((fleet.stored.phase, fleet.current.verdict), (Some(Phase::Rolling), None));
    assert_eq!(fleet.with("r"), ["n0"]);
}
