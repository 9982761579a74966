//! Decides when the checks of a policy are measured, builds the measurement requests, and keeps the results. Computes
//! the result of each check for the status of the rollout.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::muster_v1alpha1::API_VERSION;
use muster_api::muster_v1alpha1::checks::{PrometheusCheck, WebhookCheck};
use muster_api::text::Text;
use muster_api::time::{Time, earliest};
use serde_json::json;

use super::decode::encode_status;
use super::policy::{Check, Policy, PolicyKind};
use super::record::{CheckReport, CheckResult, CheckStatus, Phase, RolloutStatus};
use crate::controller::{Measurement, MeasurementRequest, MeasurementResult};
use crate::daemonset::facts::{Pod, Set};

/// Where the result of a check comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckSource {
    /// Another component reports the result in the spec of the DaemonRollout.
    External,
    /// The controller queries Prometheus. Holds the settings of the check.
    Prometheus(PrometheusCheck),
    /// The controller calls a webhook. Holds the settings of the check.
    Webhook(WebhookCheck),
}

/// Maximum number of names that replace `{{pods}}` or `{{nodes}}` in a Prometheus query. 500 names of 63 characters
/// each are about 31 KiB.
const NAMES_PER_PLACEHOLDER_MAX: usize = 500;

/// In-memory results of the measured checks of one attempt to roll out a revision. A restart of the controller loses
/// these results: checks are measured again, and their consecutive failures are counted from zero.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CheckMeasurements {
    /// Hash of the revision that was checked.
    revision: Text,
    /// Number of the rollout attempt that was checked.
    attempt: u32,
    /// The last measurement of each check, by name of the check.
    records: BTreeMap<Text, CheckRecord>,
    /// Start times of the measurements in flight, by name of the check. A measurement in flight may be about an earlier
    /// revision or attempt.
    in_flight: BTreeMap<Text, Time>,
}

/// The last measurement of one check: what was measured, when it started, its result, and the number of consecutive
/// failures.
#[derive(Clone, PartialEq, Eq, Debug)]
struct CheckRecord {
    /// The query or webhook that was measured. If the policy has changed the query or webhook since, the check is
    /// measured again.
    source: CheckSource,
    /// Time at which the last measurement was started.
    started: Time,
    /// The last result. `None` until the first measurement has ended.
    last: Option<CheckStatus>,
    /// Number of consecutive failures. An inconclusive result does not change it.
    failures: u32,
}

impl CheckMeasurements {
    /// Returns the records by name of the check. Empty unless the records belong to this revision and attempt.
    fn records(&self, revision: &Text, attempt: u32) -> impl Iterator<Item = (&Text, &CheckRecord)> {
        let is_same = self.revision == *revision && self.attempt == attempt;
        self.records.iter().filter(move |_| is_same)
    }

    /// Returns the record of a check. `None` if no measurement of the check was started in this attempt, or if the
    /// policy has changed the source of the check since.
    fn record(&self, check: &Check, revision: &Text, attempt: u32) -> Option<&CheckRecord> {
        let (_, record) = self.records(revision, attempt).find(|(name, _)| **name == check.name)?;
        (record.source == check.source).then_some(record)
    }

    /// Returns the results of an attempt to roll out a revision: the last result of each check that was measured, and
    /// the number of consecutive failures by name of the check.
    pub(crate) fn results(
        &self,
        checks: &[Check],
        revision: &Text,
        attempt: u32,
    ) -> (Vec<CheckStatus>, BTreeMap<Text, u32>) {
        let known = checks.iter().filter_map(|it| Some((it, self.record(it, revision, attempt)?)));
        let results = known.clone().filter_map(|(_, it)| it.last.clone()).collect();
        (results, known.map(|(check, it)| (check.name.clone(), it.failures)).collect())
    }

    /// Records that these measurements were started. Drops all results of an earlier revision or attempt, and the
    /// result of a started check whose source has changed. `checks` are the checks of the policy.
    pub(crate) fn record_started(&mut self, measurements: &[Arc<Measurement>], checks: &[Check]) {
        for it in measurements {
            let Some(check) = checks.iter().find(|check| check.name == it.check) else { continue };
            if (&self.revision, self.attempt) != (&it.revision, it.attempt) {
                (self.revision, self.attempt) = (it.revision.clone(), it.attempt);
                self.records.clear();
            }
            let source = check.source.clone();
            let kept = self.records.remove(&it.check).filter(|record| record.source == source);
            let (last, failures) = kept.map_or((None, 0), |record| (record.last, record.failures));
            let record = CheckRecord { source, started: it.started, last, failures };
            self.records.insert(it.check.clone(), record);
            self.in_flight.insert(it.check.clone(), it.started);
        }
    }

    /// Records the result of a measurement, which is then no longer in flight. A result for another revision or attempt
    /// is dropped, and so is the result of a measurement that is not recorded as in flight.
    ///
    /// Rule: a failure increments the consecutive failures of a check, a pass resets them, and an inconclusive result
    /// does not change them.
    pub(crate) fn record_result(
        &mut self,
        measurement: &Measurement,
        measured: &MeasurementResult,
        now: Time,
    ) {
        if self.in_flight.get(&measurement.check) != Some(&measurement.started) {
            return;
        }
        self.in_flight.remove(&measurement.check);
        if (&self.revision, self.attempt) != (&measurement.revision, measurement.attempt) {
            return;
        }
        let Some(record) = self.records.get_mut(&measurement.check) else { return };
        let result = match measured {
            MeasurementResult::Pass => CheckResult::Pass,
            MeasurementResult::Fail(_) => CheckResult::Fail,
            MeasurementResult::Inconclusive(_) => CheckResult::Inconclusive,
        };
        record.failures = match result {
            CheckResult::Pass => 0,
            CheckResult::Fail => record.failures.saturating_add(1),
            CheckResult::Inconclusive => record.failures,
        };
        let (name, message) = (measurement.check.clone(), Text::from(measured.message()));
        record.last = Some(CheckStatus { name, result, at: now, message });
    }

    /// Forgets the measurements in flight, after a panic that may have lost them. A result that still arrives is
    /// dropped.
    pub(crate) fn forget_in_flight(&mut self) {
        self.in_flight.clear();
    }

    /// Moves recorded times that are in the future to the present, after the clock was set back.
    pub(crate) fn adjust_to_clock(&mut self, now: Time) {
        for record in self.records.values_mut() {
            record.started = record.started.min(now);
            if let Some(last) = &mut record.last {
                last.at = last.at.min(now);
            }
        }
    }
}

/// Input of [`check_status`]: a check of the policy, and its stored, measured and reported results.
pub(crate) struct CheckStatusInput<'a> {
    pub(crate) check: &'a Check,
    /// The result in the stored status of the rollout. `None` if there is none yet.
    pub(crate) stored: Option<&'a CheckStatus>,
    /// The last measured result. `None` for an external check, and until the controller has measured the check.
    pub(crate) measured: Option<&'a CheckStatus>,
    /// The report of an external component about the check and the current revision. `None` if there is none. A report
    /// has an effect only for an external check.
    pub(crate) report: Option<&'a CheckReport>,
    /// Whether the last step has passed, so that checks are no longer measured and measured checks keep their results.
    pub(crate) is_last_step_passed: bool,
    pub(crate) now: Time,
}

/// Returns the result of a check for the status of the rollout. Its time (`at`) is the time since which the check has
/// had this result. So a measurement that repeats the stored result and message does not change the status.
///
/// Rule: a step passes only with a `Pass` of every check. An external check has the reported result. A measured `Pass`
/// holds for two intervals. Then, and after a restart of the controller, a check that passed is inconclusive until it
/// is measured again. Exception: after the last step has passed, measured checks keep their results.
pub(crate) fn check_status(input: &CheckStatusInput<'_>) -> CheckStatus {
    let CheckStatusInput { check, stored, measured, report, is_last_step_passed, now } = *input;
    let is_recent = |it: &CheckStatus| now.since(it.at) <= check.interval.saturating_mul(2);
    let inconclusive = |message: &str| (CheckResult::Inconclusive, Text::from(message), now);
    let known = |it: &CheckStatus| (it.result, it.message.clone(), it.at);
    let (result, message, at) = match (&check.source, measured, stored) {
        (CheckSource::External, _, _) => match report {
            Some(report) => (report.result, report.message.clone(), now),
            None => inconclusive("not reported yet"),
        },
        (_, _, Some(stored)) if is_last_step_passed => known(stored),
        (_, Some(measured), _) if measured.result != CheckResult::Pass || is_recent(measured) => {
            known(measured)
        }
        (_, Some(_), _) => inconclusive("the last measurement is older than two intervals"),
        (_, None, Some(stored)) if stored.result != CheckResult::Pass => known(stored),
        (_, None, _) => inconclusive("not measured yet"),
    };
    let at = stored.filter(|it| it.result == result).map_or(at, |it| it.at);
    CheckStatus { name: check.name.clone(), result, at, message }
}

/// Input of [`due_measurements`]: the DaemonSet, its policy, the stored status of the rollout, and the results so far.
pub(crate) struct MeasurementInput<'a> {
    pub(crate) set: &'a Set,
    pub(crate) policy: &'a Policy,
    /// The status of the DaemonRollout as stored in the API server.
    pub(crate) stored: &'a RolloutStatus,
    /// Hash of the DaemonSet's current revision.
    pub(crate) revision: &'a Text,
    /// Function that returns the pods of the current revision. It is called only if a measurement is due.
    pub(crate) pods: &'a dyn Fn() -> Vec<Arc<Pod>>,
    /// Number of nodes with a pod of the current revision.
    pub(crate) nodes_with_revision: usize,
    pub(crate) memory: &'a CheckMeasurements,
    pub(crate) now: Time,
}

/// Returns the measurements to start now, and the time at which the next measurement is due. The time is `None` if no
/// check waits for its next measurement.
///
/// Rule: checks are measured while the rollout is Rolling, Soaking or Waiting, even if it is paused, but not before the
/// current revision has a pod. A check is measured at once, and then `interval` after the start of its last
/// measurement. For each DaemonSet, at most one measurement of a check is in flight. External checks, and the checks of
/// an invalid policy, are not measured.
pub(crate) fn due_measurements(input: &MeasurementInput<'_>) -> (Vec<Arc<Measurement>>, Option<Time>) {
    let MeasurementInput { policy, stored, revision, memory, now, .. } = *input;
    let is_measured = matches!(stored.phase, Some(Phase::Rolling | Phase::Soaking | Phase::Waiting))
        && stored.current.as_ref().is_some_and(|it| it.hash == *revision)
        && policy.invalid.is_empty()
        && 0 < input.nodes_with_revision;
    let (mut due, mut wake_at) = (Vec::new(), None);
    if !is_measured {
        return (due, wake_at);
    }
    let mut placeholders = None;
    for check in &policy.spec.checks {
        if check.source == CheckSource::External || memory.in_flight.contains_key(&check.name) {
            continue;
        }
        let record = memory.record(check, revision, stored.attempt);
        if let Some(at) = record.map(|it| it.started + check.interval).filter(|at| now < *at) {
            wake_at = earliest(wake_at, Some(at));
            continue;
        }
        let placeholders = placeholders.get_or_insert_with(|| Placeholders::new(input));
        let Some(request) = measurement_request(input, check, placeholders) else { continue };
        due.push(Arc::new(Measurement {
            set: input.set.key.clone(),
            uid: input.set.uid.clone(),
            revision: revision.clone(),
            attempt: stored.attempt,
            check: check.name.clone(),
            started: now,
            references_in: (policy.kind == PolicyKind::RolloutPolicy).then(|| policy.key.namespace.clone()),
            request,
        }));
    }
    (due, wake_at)
}

/// Returns the request that measures a check. `None` for an external check.
fn measurement_request(
    input: &MeasurementInput<'_>,
    check: &Check,
    placeholders: &Placeholders,
) -> Option<MeasurementRequest> {
    match &check.source {
        CheckSource::External => None,
        CheckSource::Prometheus(prometheus) => Some(MeasurementRequest::Prometheus(PrometheusCheck {
            query: placeholders.replace_in(&prometheus.query),
            presence_query: prometheus.presence_query.as_ref().map(|it| placeholders.replace_in(it)),
            ..prometheus.clone()
        })),
        CheckSource::Webhook(webhook) => {
            let set = input.set;
            let body = json!({
                "apiVersion": API_VERSION,
                "kind": "CheckRequest",
                "check": &*check.name,
                "daemonSet": {"namespace": &*set.key.namespace, "name": &*set.key.name, "uid": &*set.uid},
                "revision": &**input.revision,
                "attempt": input.stored.attempt,
                "status": encode_status(input.stored, Vec::new()),
            });
            Some(MeasurementRequest::Webhook { webhook: webhook.clone(), body: body.to_string() })
        }
    }
}

/// The placeholders of Prometheus queries, such as `{{namespace}}`, with the values that replace them.
struct Placeholders {
    values: [(&'static str, String); 5],
}

impl Placeholders {
    /// Determines the values of the placeholders from the DaemonSet, its revision and its pods.
    fn new(input: &MeasurementInput<'_>) -> Self {
        let pods = (input.pods)();
        let nodes: BTreeSet<&Text> = pods.iter().filter_map(|it| it.target.as_ref()).collect();
        let pods: BTreeSet<&Text> = pods.iter().map(|it| &it.key.name).collect();
        let values = [
            ("{{namespace}}", input.set.key.namespace.to_string()),
            ("{{daemonset}}", input.set.key.name.to_string()),
            ("{{revision}}", input.revision.to_string()),
            ("{{pods}}", names_regex(pods)),
            ("{{nodes}}", names_regex(nodes)),
        ];
        Self { values }
    }

    /// Returns a query with all placeholders replaced by their values.
    fn replace_in(&self, query: &str) -> String {
        self.values.iter().fold(query.to_string(), |query, (name, value)| query.replace(name, value))
    }
}

/// Returns a regular expression that matches the first [`NAMES_PER_PLACEHOLDER_MAX`] of these names in alphabetical
/// order. A name with characters that no pod or node name can have is left out, so that it cannot end the string literal
/// in the query.
fn names_regex(names: BTreeSet<&Text>) -> String {
    let is_name = |it: &&&Text| {
        it.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, b'-' | b'.'))
    };
    let names = names.iter().filter(is_name).take(NAMES_PER_PLACEHOLDER_MAX);
    names.map(|it| it.replace('.', "[.]")).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests;
