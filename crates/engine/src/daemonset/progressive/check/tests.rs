use core::time::Duration;

use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use serde_json::Value;

use super::super::policy::{PolicySpec, SetSelection};
use super::super::record::RevisionReference;
use super::*;
use crate::daemonset::facts::{decode_pod, decode_set};

/// A rollout with one check, its results in memory, and the clock.
struct Rollout {
    set: Set,
    policy: Policy,
    stored: RolloutStatus,
    revision: Text,
    nodes_with_revision: usize,
    memory: CheckMeasurements,
    now: Time,
}

fn check(name: &str, query: &str) -> Check {
    let prometheus = PrometheusCheck { query: query.into(), ..PrometheusCheck::default() };
    Check {
        name: name.into(),
        source: CheckSource::Prometheus(prometheus),
        interval: Duration::from_secs(60),
        failure_threshold: 3,
    }
}

fn pod(name: &str, node: &str) -> Arc<Pod> {
    let pod = json!({"metadata": {"name": name, "namespace": "logging"}, "spec": {"nodeName": node}});
    Arc::new(decode_pod(pod.to_string().as_bytes(), &mut Interner::default()).unwrap().unwrap())
}

impl Rollout {
    fn new(checks: Vec<Check>) -> Self {
        let set = json!({
            "metadata": {"name": "agent", "namespace": "logging", "uid": "u"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {}},
        });
        let current = RevisionReference { hash: "r2".into(), number: 2 };
        Self {
            set: decode_set(set.to_string().as_bytes(), &mut Interner::default()).unwrap(),
            policy: Policy {
                kind: PolicyKind::RolloutPolicy,
                key: ObjectKey::new("logging", "careful"),
                resource_version: 1,
                generation: 1,
                created: Time::default(),
                selection: SetSelection::Names(BTreeSet::new()),
                spec: PolicySpec { checks, ..PolicySpec::default() },
                invalid: Vec::new(),
            },
            stored: RolloutStatus {
                phase: Some(Phase::Rolling),
                current: Some(current),
                attempt: 1,
                ..RolloutStatus::default()
            },
            revision: "r2".into(),
            nodes_with_revision: 1,
            memory: CheckMeasurements::default(),
            now: Time::from_secs(1000),
        }
    }

    fn due(&self) -> (Vec<Arc<Measurement>>, Option<Time>) {
        due_measurements(&MeasurementInput {
            set: &self.set,
            policy: &self.policy,
            stored: &self.stored,
            revision: &self.revision,
            pods: &|| [pod("agent-1", "n1.example"), pod("agent-2", "n2")].into(),
            nodes_with_revision: self.nodes_with_revision,
            memory: &self.memory,
            now: self.now,
        })
    }

    /// Starts the measurements that are due.
    fn start(&mut self) -> Vec<Arc<Measurement>> {
        let due = self.due().0;
        self.memory.record_started(&due, &self.policy.spec.checks);
        due
    }

    /// Starts the only measurement that is due, and records its result.
    fn measure(&mut self, measured: &MeasurementResult) {
        let due = self.start();
        assert_eq!(due.len(), 1);
        self.memory.record_result(&due[0], measured, self.now);
    }

    fn wait(&mut self, seconds: u64) -> &mut Self {
        self.now = self.now + Duration::from_secs(seconds);
        self
    }

    fn failures(&self) -> u32 {
        let (_, failures) =
            self.memory.results(&self.policy.spec.checks, &self.revision, self.stored.attempt);
        failures.values().sum()
    }

    fn results(&self) -> Vec<CheckStatus> {
        self.memory.results(&self.policy.spec.checks, &self.revision, self.stored.attempt).0
    }
}

fn fail() -> MeasurementResult {
    MeasurementResult::fail("slow")
}

#[test]
fn a_check_is_measured_at_once_and_then_every_interval_after_its_start() {
    let mut rollout = Rollout::new([check("errors", "up == 0")].into());
    let first = rollout.start();
    assert_eq!(first.len(), 1);
    // While the measurement is in flight nothing is due, however long it takes.
    assert_eq!(rollout.wait(600).due(), (Vec::new(), None));
    rollout.memory.record_result(&first[0], &MeasurementResult::Pass, rollout.now);
    let second = rollout.start();
    assert_eq!(second.len(), 1);
    rollout.wait(10);
    rollout.memory.record_result(&second[0], &MeasurementResult::Pass, rollout.now);
    // 60 s after the start of the second one, not after its result.
    assert_eq!(rollout.due(), (Vec::new(), Some(rollout.now + Duration::from_secs(50))));
    assert_eq!(rollout.wait(49).due().0.len(), 0);
    assert_eq!(rollout.wait(1).due().0.len(), 1);
}

#[test]
fn checks_are_measured_only_in_a_running_rollout_with_a_pod() {
    let mut rollout = Rollout::new([check("errors", "up == 0")].into());
    for phase in Phase::ALL {
        rollout.stored.phase = Some(phase);
        let is_running = matches!(phase, Phase::Rolling | Phase::Soaking | Phase::Waiting);
        assert_eq!(rollout.due().0.len(), usize::from(is_running), "{}", phase.as_str());
    }
    rollout.stored.phase = Some(Phase::Soaking);
    rollout.stored.paused = true;
    assert_eq!(rollout.due().0.len(), 1, "failures of a paused rollout are counted");
    rollout.nodes_with_revision = 0;
    assert_eq!(rollout.due(), (Vec::new(), None));
    rollout.nodes_with_revision = 1;
    rollout.revision = "r3".into();
    assert_eq!(rollout.due(), (Vec::new(), None), "the status is about another revision");
    rollout.revision = "r2".into();
    rollout.policy.invalid.push("spec.steps: invalid".into());
    assert_eq!(rollout.due(), (Vec::new(), None));
}

#[test]
fn an_external_check_is_not_measured() {
    let external = Check { source: CheckSource::External, ..check("smoke", "") };
    assert_eq!(Rollout::new([external].into()).due(), (Vec::new(), None));
}

#[test]
fn a_pass_resets_the_consecutive_failures_and_an_inconclusive_result_leaves_them() {
    let mut rollout = Rollout::new([check("errors", "up == 0")].into());
    let inconclusive = MeasurementResult::inconclusive("no data");
    let mut counts = Vec::new();
    for measured in [&fail(), &fail(), &inconclusive, &fail(), &MeasurementResult::Pass, &fail()] {
        rollout.measure(measured);
        counts.push(rollout.failures());
        rollout.wait(60);
    }
    assert_eq!(counts, [1, 2, 2, 3, 0, 1]);
    let last = &rollout.results()[0];
    assert_eq!((last.result, &*last.message), (CheckResult::Fail, "slow"));
}

#[test]
fn results_are_about_one_revision_one_attempt_and_one_version_of_the_check() {
    let mut rollout = Rollout::new([check("errors", "up == 0")].into());
    rollout.measure(&fail());
    rollout.stored.attempt = 2;
    assert_eq!((rollout.failures(), rollout.results()), (0, Vec::new()));
    rollout.measure(&fail());
    assert_eq!(rollout.failures(), 1);
    rollout.policy.spec.checks = [check("errors", "up == 1")].into();
    assert_eq!((rollout.failures(), rollout.results()), (0, Vec::new()));
    rollout.measure(&fail());
    assert_eq!(rollout.failures(), 1);
    rollout.revision = "r3".into();
    rollout.stored.current = Some(RevisionReference { hash: "r3".into(), number: 3 });
    rollout.stored.attempt = 1;
    assert_eq!((rollout.failures(), rollout.results()), (0, Vec::new()));
}

#[test]
fn a_late_result_about_an_older_revision_is_dropped_and_its_successor_waits_for_it() {
    let mut rollout = Rollout::new([check("errors", "up == 0")].into());
    let old = rollout.start();
    rollout.revision = "r3".into();
    rollout.stored.current = Some(RevisionReference { hash: "r3".into(), number: 3 });
    assert_eq!(rollout.due(), (Vec::new(), None), "one measurement of a check at a time");
    rollout.memory.record_result(&old[0], &fail(), rollout.now);
    assert_eq!((rollout.failures(), rollout.results()), (0, Vec::new()));
    rollout.measure(&MeasurementResult::Pass);
    // A result that arrives twice is dropped, too.
    rollout.memory.record_result(&old[0], &fail(), rollout.now);
    assert_eq!((rollout.failures(), rollout.results()[0].result), (0, CheckResult::Pass));
}

#[test]
fn a_measurement_that_a_panic_lost_is_started_again() {
    let mut rollout = Rollout::new([check("errors", "up == 0")].into());
    let lost = rollout.start();
    rollout.memory.forget_in_flight();
    rollout.memory.record_result(&lost[0], &fail(), rollout.now);
    assert_eq!(rollout.results(), Vec::new());
    assert_eq!(rollout.due().1, Some(rollout.now + Duration::from_secs(60)));
    assert_eq!(rollout.wait(60).due().0.len(), 1);
}

#[test]
fn a_clock_that_was_set_back_delays_no_measurement() {
    let mut rollout = Rollout::new([check("errors", "up == 0")].into());
    rollout.measure(&MeasurementResult::Pass);
    rollout.now = Time::from_secs(100);
    rollout.memory.adjust_to_clock(rollout.now);
    assert_eq!(rollout.due().1, Some(Time::from_secs(160)));
    assert_eq!(rollout.results()[0].at, rollout.now);
}

#[test]
fn the_status_has_the_time_since_which_a_check_has_its_result() {
    let check = check("errors", "up == 0");
    let status = |result, at, message: &str| CheckStatus {
        name: "errors".into(),
        result,
        at: Time::from_secs(at),
        message: message.into(),
    };
    let next = |stored: Option<&CheckStatus>, measured: Option<&CheckStatus>, is_last_step_passed| {
        let now = Time::from_secs(1000);
        let input =
            CheckStatusInput { check: &check, stored, measured, report: None, is_last_step_passed, now };
        let CheckStatus { result, at, message, .. } = check_status(&input);
        (result, at.since(Time::default()).as_secs(), message.to_string())
    };
    let (pass, fail, inconclusive) = (CheckResult::Pass, CheckResult::Fail, CheckResult::Inconclusive);
    let known = |result, at, message: &str| (result, at, message.to_string());
    let passed = status(pass, 500, "");

    assert_eq!(next(None, None, false), known(inconclusive, 1000, "not measured yet"));
    assert_eq!(next(None, Some(&status(pass, 990, "")), false), known(pass, 990, ""));
    // The next measurement has the same result: the status stays as it is.
    assert_eq!(next(Some(&passed), Some(&status(pass, 990, "")), false), known(pass, 500, ""));
    assert_eq!(next(Some(&passed), Some(&status(fail, 990, "5")), false), known(fail, 990, "5"));
    let failed = status(fail, 500, "5");
    assert_eq!(next(Some(&failed), Some(&status(fail, 990, "7")), false), known(fail, 500, "7"));

    // A pass holds for two intervals of 60 s. It does not hold after a restart, however recent the stored status is.
    assert_eq!(next(Some(&passed), Some(&status(pass, 880, "")), false), known(pass, 500, ""));
    let stale = known(inconclusive, 1000, "the last measurement is older than two intervals");
    assert_eq!(next(Some(&passed), Some(&status(pass, 879, "")), false), stale);
    let recent = status(pass, 999, "");
    assert_eq!(next(Some(&recent), None, false), known(inconclusive, 1000, "not measured yet"));
    assert_eq!(next(Some(&failed), None, false), known(fail, 500, "5"));

    // The checks of a step that has passed are not measured, and keep their results.
    assert_eq!(next(Some(&passed), None, true), known(pass, 500, ""));
    assert_eq!(next(Some(&passed), Some(&status(pass, 600, "")), true), known(pass, 500, ""));
}

#[test]
fn placeholders_are_replaced_and_cannot_end_the_string_of_a_query() {
    let query = r#"e{ns="{{namespace}}",ds="{{daemonset}}",r="{{revision}}",p=~"{{pods}}",n=~"{{nodes}}"}"#;
    let rollout = Rollout::new([check("errors", query)].into());
    let MeasurementRequest::Prometheus(request) = &rollout.due().0[0].request else { panic!() };
    let expected = r#"e{ns="logging",ds="agent",r="r2",p=~"agent-1|agent-2",n=~"n1[.]example|n2"}"#;
    assert_eq!(request.query, expected);
    let hostile = [Text::from("a"), Text::from(r#"b"} or vector(1) #"#)];
    assert_eq!(names_regex(hostile.iter().collect()), "a");
    let many: Vec<Text> = (0..2000).map(|it| Text::from(it.to_string())).collect();
    assert_eq!(names_regex(many.iter().collect()).split('|').count(), NAMES_PER_PLACEHOLDER_MAX);
}

#[test]
fn a_webhook_gets_the_daemonset_the_revision_and_the_status() {
    let webhook = WebhookCheck { url: "https://hook.example/check".into(), ..WebhookCheck::default() };
    let webhook = Check { source: CheckSource::Webhook(webhook), ..check("smoke", "") };
    let mut rollout = Rollout::new([webhook].into());
    let request = |rollout: &Rollout| {
        let due = rollout.due().0;
        let MeasurementRequest::Webhook { body, .. } = &due[0].request else { panic!() };
        (due[0].references_in.clone(), serde_json::from_str::<Value>(body).unwrap())
    };
    let (namespace, body) = request(&rollout);
    assert_eq!(namespace.as_deref(), Some("logging"));
    assert_eq!((&body["kind"], &body["check"]), (&json!("CheckRequest"), &json!("smoke")));
    assert_eq!(body["daemonSet"], json!({"namespace": "logging", "name": "agent", "uid": "u"}));
    assert_eq!((&body["revision"], &body["attempt"]), (&json!("r2"), &json!(1)));
    assert_eq!((&body["status"]["phase"], &body["status"]["attempt"]), (&json!("Rolling"), &json!(1)));
    rollout.policy.kind = PolicyKind::ClusterRolloutPolicy;
    assert_eq!(request(&rollout).0, None);
}
