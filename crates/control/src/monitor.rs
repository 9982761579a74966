//! Metrics and health checks of the DaemonSet controller.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_api::metrics_exposition::ExpositionFormat;
use muster_api::object_key::ObjectKey;
use muster_engine::daemonset::facts::{Kind, StatusCounts};
use muster_engine::daemonset::plan::{Claim, Plan, RevisionWrite};
use muster_engine::daemonset::progressive::record::{Phase, RolloutStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

/// Upper bounds, in seconds, of the buckets of all duration histograms. They range from the latency of an idle API
/// server to the timeout of a call.
const DURATION_BUCKETS_S: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Maximum number of check names that the metric `muster_rollout_check_results_total` has as values of its label
/// `check`. It limits the metric to 303 series: three results for each name and for [`OTHER_CHECKS`].
const CHECK_NAMES_MAX: usize = 100;

/// Value of the label `check` for all check names beyond [`CHECK_NAMES_MAX`]. It cannot be the name of a check.
const OTHER_CHECKS: &str = "(other)";

/// Time without a call of [`Monitor::record_heartbeat`] after which the runners count as hung. An idle runner calls it
/// at least every minute.
const LIVENESS_TIMEOUT: Duration = Duration::from_secs(300);

/// Lifecycle stage of a replica of the DaemonSet controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The replica is neither leader nor on standby yet.
    Starting,
    /// Another replica is the leader, and this replica is on standby.
    Following,
    /// This replica is the leader, and not all of its caches are synced.
    Listing,
    /// This replica is the leader, and all of its caches are synced.
    Working,
    /// The replica finishes its plans and stops.
    Stopping,
}

/// Load of one runner, for the gauges: queue length, executing plans and cached objects. There is one runner for each
/// namespace of `Options::namespaces`, or a single one for all namespaces. The gauges are sums over all runners.
#[derive(Debug, Default)]
pub(crate) struct RunnerLoad {
    /// Number of keys in the work queue.
    pub(crate) queued: i64,
    /// Number of plans that are being executed.
    pub(crate) executing: i64,
    /// Number of cached objects of each kind, in the order of `Kind::ALL`.
    pub(crate) objects: [i64; Kind::ALL.len()],
}

/// Health and metrics of the DaemonSet controller.
pub struct Monitor {
    registry: Registry,
    /// Time at which the monitor was created.
    began: Instant,
    stage: Mutex<Stage>,
    /// Number of runners whose caches are not synced.
    unsynced: AtomicUsize,
    /// Milliseconds from `began` to the last heartbeat of any runner.
    last_heartbeat_ms: AtomicU64,
    /// Computes the metrics of each DaemonSet, and the time since each watch delivered data.
    collector: Arc<DaemonSetCollector>,
    /// Metric `muster_reconciles_total`: reconciles by result.
    reconciles: Family<ReconcileLabels, Counter>,
    /// Metric `muster_decisions_total`: decisions of plans, by kind and reason.
    decisions: Family<DecisionLabels, Counter>,
    /// Metric `muster_calls_total`: calls to the API server, by verb, resource and outcome.
    calls: Family<CallLabels, Counter>,
    /// Metric `muster_call_duration_seconds`: duration of calls, by verb and resource.
    latency: Family<CallKind, Histogram>,
    /// Metric `muster_queue_length`: DaemonSets that wait for a reconcile.
    queued: Gauge,
    /// Metric `muster_queue_wait_seconds`: time that a DaemonSet waited for a reconcile.
    queue_wait: Histogram,
    /// Metric `muster_busy_daemonsets`: DaemonSets whose plan is being executed.
    executing: Gauge,
    /// Metric `muster_cache_objects`: cached objects, by resource.
    objects: Family<ResourceLabels, Gauge>,
    /// Metric `muster_lists_total`: lists of all objects, by resource.
    lists: Family<ResourceLabels, Counter>,
    /// Metric `muster_watch_lag_seconds`: time from the end of a plan until the watches delivered its writes.
    watch_lag: Histogram,
    /// Metric `muster_leader`: 1 if this replica is the leader or runs without leader election, otherwise 0.
    leader: Gauge,
    /// Metric `muster_rollout_check_results_total`: measurements of the checks of rollouts, by name of the check and
    /// result.
    check_results: Family<CheckLabels, Counter>,
    /// Names of checks that are values of the label `check` in `muster_rollout_check_results_total`, at most
    /// [`CHECK_NAMES_MAX`].
    check_names: Mutex<BTreeSet<String>>,
    /// Metric `muster_events_dropped_total`: Kubernetes Events that were dropped, because the queue was full, because
    /// there were too many about one object, or because the write failed.
    pub(crate) events_dropped: Counter,
    /// Metric `muster_panics_total`: panics of the controller while it worked on a DaemonSet.
    pub(crate) panics: Counter,
    /// Metric `muster_conflicting_writes_total`: detected status writes of another controller while this replica is the
    /// leader.
    pub(crate) conflicting_writes: Counter,
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

/// Labels of the metric `muster_reconciles_total`, which counts reconciles.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    /// Result of the reconcile: `waits`, `nothing to do` or `plan`.
    result: &'static str,
}

/// Labels of the metric `muster_decisions_total`, which counts the decisions of plans.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    /// The decision, such as `create pod`.
    decision: &'static str,
    /// The reason of the decision.
    reason: &'static str,
}

/// Labels of the metric `muster_calls_total`, which counts calls to the API server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    verb: &'static str,
    resource: &'static str,
    /// `ok` or the kind of error.
    outcome: &'static str,
}

/// Verb and resource of a call. They are the labels of the metric `muster_call_duration_seconds`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallKind {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
}

/// Labels of the metric `muster_rollout_check_results_total`, which counts the measurements of checks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckLabels {
    /// Name of the check in its policy.
    check: String,
    /// `Pass`, `Fail` or `Inconclusive`.
    result: &'static str,
}

/// Labels of the metrics that have one value per resource: `muster_cache_objects`, `muster_lists_total` and
/// `muster_watch_silence_seconds`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: &'static str,
}

impl ResourceLabels {
    /// Returns the labels for a kind.
    fn of(kind: Kind) -> Self {
        Self { resource: resource_label(kind) }
    }
}

/// Returns the value of the label `resource` for a kind.
fn resource_label(kind: Kind) -> &'static str {
    kind.plural()
}

/// Labels of the `muster_daemonset_…` metrics: namespace and name of the DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DaemonSetLabels {
    namespace: String,
    daemonset: String,
}

impl Default for Monitor {
    fn default() -> Self {
        let new_histogram: fn() -> Histogram = || Histogram::new(DURATION_BUCKETS_S);
        let mut monitor = Self {
            registry: Registry::default(),
            began: Instant::now(),
            stage: Mutex::new(Stage::Starting),
            unsynced: AtomicUsize::new(0),
            last_heartbeat_ms: AtomicU64::new(0),
            collector: Arc::default(),
            reconciles: Family::default(),
            decisions: Family::default(),
            calls: Family::default(),
            latency: Family::new_with_constructor(new_histogram),
            queued: Gauge::default(),
            queue_wait: new_histogram(),
            executing: Gauge::default(),
            objects: Family::default(),
            lists: Family::default(),
            watch_lag: new_histogram(),
            leader: Gauge::default(),
            check_results: Family::default(),
            check_names: Mutex::default(),
            events_dropped: Counter::default(),
            panics: Counter::default(),
            conflicting_writes: Counter::default(),
        };
        let mut registry = Registry::with_prefix("muster");
        let all = &mut registry;
        all.register(
            "build",
            "The version of this binary",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        all.register("leader", "1 while this replica leads, or runs without a lease", monitor.leader.clone());
        all.register("queue_length", "DaemonSets that wait to be reconciled", monitor.queued.clone());
        let help = "Time that a DaemonSet waited to be reconciled";
        all.register("queue_wait_seconds", help, monitor.queue_wait.clone());
        all.register("busy_daemonsets", "DaemonSets whose plan is being executed", monitor.executing.clone());
        all.register("reconciles", "Reconciles of a DaemonSet, by result", monitor.reconciles.clone());
        let help = "Decisions by reason; muster_calls has the outcome of their API calls";
        all.register("decisions", help, monitor.decisions.clone());
        all.register("calls", "Calls to the API server, by outcome", monitor.calls.clone());
        all.register("call_duration_seconds", "Time from a call to its response", monitor.latency.clone());
        all.register("cache_objects", "Objects in the cache, by kind", monitor.objects.clone());
        all.register("lists", "Full lists: one for each kind, and more after a fault", monitor.lists.clone());
        let help = "Time from the end of a plan until the watches have delivered all its writes";
        all.register("watch_lag_seconds", help, monitor.watch_lag.clone());
        let help = "Measurements of the checks of progressive rollouts, by name of the check and result";
        all.register("rollout_check_results", help, monitor.check_results.clone());
        all.register(
            "events_dropped",
            "Events not recorded, because there were too many or the API server refused them",
            monitor.events_dropped.clone(),
        );
        all.register(
            "panics",
            "Reconciles and plan executions that ended in a panic",
            monitor.panics.clone(),
        );
        let help = "Writes of another controller to the status of a DaemonSet while this one leads";
        all.register("conflicting_writes", help, monitor.conflicting_writes.clone());
        all.register_collector(Box::new(monitor.collector.clone()));
        monitor.registry = registry;
        monitor
    }
}

impl Monitor {
    /// Returns the media type and the text of all metrics, in the format that the `Accept` header selects.
    pub fn metrics(&self, accept: &str) -> (&'static str, String) {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("writing to a String cannot fail");
        let format = ExpositionFormat::negotiate(accept);
        (format.media_type(), format.encode(text))
    }

    /// Whether the readiness check succeeds.
    ///
    /// Rule: a standby replica is ready. A leader is ready while its caches are synced and it is not stopping. A
    /// replica that is neither leader nor standby yet is not ready.
    pub fn is_ready(&self) -> bool {
        matches!(self.stage(), Stage::Following | Stage::Working)
    }

    /// Whether the liveness check succeeds.
    ///
    /// Rule: a leader that is not stopping is alive if one of its runners had a heartbeat in the last five minutes. Any
    /// other replica is always alive.
    pub fn is_alive(&self) -> bool {
        let last_heartbeat = Duration::from_millis(self.last_heartbeat_ms.load(Ordering::Relaxed));
        !matches!(self.stage(), Stage::Listing | Stage::Working)
            || self.began.elapsed() < last_heartbeat + LIVENESS_TIMEOUT
    }

    /// Sets the stage and the metric `muster_leader`. Counts as a heartbeat.
    pub(crate) fn enter_stage(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
        self.leader.set(matches!(stage, Stage::Listing | Stage::Working | Stage::Stopping).into());
        self.record_heartbeat();
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a runner has completed a pass of its loop, and so is not hung.
    pub(crate) fn record_heartbeat(&self) {
        let at = self.began.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        self.last_heartbeat_ms.store(at, Ordering::Relaxed);
    }

    /// Enters the stage [`Stage::Listing`]. `runners` is the number of runners; all of their caches are unsynced.
    pub(crate) fn begin_listing(&self, runners: usize) {
        self.unsynced.store(runners, Ordering::Relaxed);
        self.enter_stage(Stage::Listing);
    }

    /// Records that the caches of one runner are synced. When all are synced, the stage becomes [`Stage::Working`].
    pub(crate) fn record_cache_synced(&self) {
        if self.unsynced.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.enter_stage(Stage::Working);
        }
    }

    /// Updates the gauges to a new load of one runner. `before` is the load that this runner last reported. The
    /// function replaces it with `now`.
    pub(crate) fn report_load(&self, before: &mut RunnerLoad, now: RunnerLoad) {
        self.queued.inc_by(now.queued - before.queued);
        self.executing.inc_by(now.executing - before.executing);
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            let added = now.objects[at] - before.objects[at];
            if added != 0 {
                self.objects.get_or_create(&ResourceLabels::of(kind)).inc_by(added);
            }
        }
        *before = now;
    }

    /// Counts one list of all objects of a kind.
    pub(crate) fn count_completed_list(&self, kind: Kind) {
        self.lists.get_or_create(&ResourceLabels::of(kind)).inc();
    }

    /// Records that the watch of a kind has delivered data, even if only a bookmark.
    pub(crate) fn record_watch_data(&self, kind: Kind) {
        self.collector.lock().last_watch_data.insert(resource_label(kind), Instant::now());
    }

    /// Records in `muster_watch_lag_seconds` the time from the end of a plan until the watches delivered its writes.
    pub(crate) fn observe_watch_lag(&self, after: Duration) {
        self.watch_lag.observe(after.as_secs_f64());
    }

    /// Counts a call by outcome, and observes its duration.
    pub(crate) fn observe_call(&self, kind: &CallKind, outcome: &'static str, took: Duration) {
        let CallKind { verb, resource } = *kind;
        self.calls.get_or_create(&CallLabels { verb, resource, outcome }).inc();
        self.latency.get_or_create(kind).observe(took.as_secs_f64());
    }

    /// Counts a reconcile and the decisions of its plan, and sets the gauges of the DaemonSet from the status counts of
    /// the plan. `waited` is the time that the key was in the queue.
    pub(crate) fn observe_reconcile(&self, waited: Duration, plan: &Plan) {
        self.queue_wait.observe(waited.as_secs_f64());
        let result = match (&plan.waiting, plan.is_idle()) {
            (Some(_), _) => "waits",
            (None, true) => "nothing to do",
            (None, false) => "plan",
        };
        self.reconciles.get_or_create(&ReconcileLabels { result }).inc();
        let count_decision = |decision, reason| {
            self.decisions.get_or_create(&DecisionLabels { decision, reason }).inc();
        };
        for claim in &plan.claims {
            count_decision(if claim.is_adoption() { "adopt" } else { "release" }, claim_reason(claim));
        }
        for step in &plan.steps {
            let why = match step {
                RevisionWrite::Create { .. } => "new template",
                RevisionWrite::Renumber { .. } => "rollback",
                RevisionWrite::Label { .. } => "label missing",
                RevisionWrite::StoreVerdict { reason, .. } => reason,
            };
            let is_verdict = matches!(step, RevisionWrite::StoreVerdict { .. });
            count_decision(if is_verdict { "set revision verdict" } else { "record revision" }, why);
        }
        plan.relabel.iter().for_each(|_| count_decision("relabel pod", "duplicate revision"));
        plan.delete.iter().for_each(|(_, why)| count_decision("delete pod", why.label()));
        plan.evict.iter().for_each(|(_, why)| count_decision("evict pod", why.label()));
        let created = plan.create.iter().chain(&plan.create_stable);
        created.for_each(|(_, why)| count_decision("create pod", why.label()));
        plan.prune.iter().for_each(|_| count_decision("delete revision", "over revisionHistoryLimit"));
        let counts = plan.status.as_ref().unwrap_or(&plan.set.status).counts;
        self.collector.lock().sets.insert(plan.set.key.clone(), counts);
    }

    /// Counts a measurement of a check of a rollout by its result: `Pass`, `Fail` or `Inconclusive`. `check` is the name
    /// of the check. If the metric already has [`CHECK_NAMES_MAX`] other names, the result is counted under
    /// [`OTHER_CHECKS`].
    pub(crate) fn count_check_result(&self, check: &str, result: &'static str) {
        let mut names = self.check_names.lock().unwrap_or_else(PoisonError::into_inner);
        let is_counted = names.contains(check) || names.len() < CHECK_NAMES_MAX;
        let check = if is_counted { check } else { OTHER_CHECKS }.to_owned();
        if is_counted {
            names.insert(check.clone());
        }
        self.check_results.get_or_create(&CheckLabels { check, result }).inc();
    }

    /// Sets the gauges of a DaemonSet's progressive rollout from its stored status. Removes them if `status` is `None`
    /// or has no phase.
    pub(crate) fn record_rollout(&self, key: &ObjectKey, status: Option<&RolloutStatus>) {
        let rollouts = &mut self.collector.lock().rollouts;
        match status.and_then(|it| Some((it, it.phase?))) {
            Some((status, phase)) => {
                let (held, failed) = (status.nodes.held, status.failures.failed_count());
                let values = RolloutValues { phase, is_paused: status.paused, held, failed };
                rollouts.insert(key.clone(), values);
            }
            None => drop(rollouts.remove(key)),
        }
    }

    /// Removes the gauges of a deleted DaemonSet.
    pub(crate) fn remove_daemonset(&self, key: &ObjectKey) {
        let mut values = self.collector.lock();
        values.sets.remove(key);
        values.rollouts.remove(key);
    }
}

/// Returns the value of the label `reason` for an adoption or a release.
fn claim_reason(claim: &Claim) -> &'static str {
    match claim {
        Claim::AdoptPod(_) => "pod matches",
        Claim::ReleasePod(_) => "pod no longer matches",
        Claim::AdoptRevision(_) => "revision matches",
        Claim::ReleaseRevision(_) => "revision no longer matches",
    }
}

/// Computes metrics at each scrape: the status counts of each DaemonSet, the gauges of its progressive rollout, and the
/// time since each watch delivered data.
#[derive(Debug, Default)]
struct DaemonSetCollector(Mutex<CollectedValues>);

/// The values from which [`DaemonSetCollector`] computes its metrics.
#[derive(Debug, Default)]
struct CollectedValues {
    /// Status counts of each DaemonSet.
    sets: BTreeMap<ObjectKey, StatusCounts>,
    /// Values of the gauges of each progressive rollout, by DaemonSet.
    rollouts: BTreeMap<ObjectKey, RolloutValues>,
    /// The time at which the watch of each resource last delivered data.
    last_watch_data: BTreeMap<&'static str, Instant>,
}

impl DaemonSetCollector {
    /// Locks the values, even if a thread panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, CollectedValues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A gauge of a DaemonSet's status: its name, its help text, and the function that reads its value.
type CountMetric = (&'static str, &'static str, fn(&StatusCounts) -> i64);

impl Collector for DaemonSetCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let values = self.lock();
        let metrics: [CountMetric; 7] = [
            ("desired", "Nodes that should run a pod of the DaemonSet", |it| it.desired),
            ("current", "Nodes that should run a pod of the DaemonSet and do", |it| it.current),
            ("ready", "Nodes with a pod that is ready", |it| it.ready),
            ("updated", "Nodes with a pod of the current revision", |it| it.updated),
            ("available", "Nodes with a pod that is available", |it| it.available),
            ("unavailable", "Nodes that should have an available pod and do not", |it| it.unavailable),
            ("misscheduled", "Nodes that run a pod of the DaemonSet but should not", |it| it.misscheduled),
        ];
        for (name, help, count) in metrics {
            let name = format!("daemonset_{name}");
            let gauge = ConstGauge::new(0_i64);
            let mut family = encoder.encode_descriptor(&name, help, None, gauge.metric_type())?;
            for (key, counts) in &values.sets {
                ConstGauge::new(count(counts)).encode(family.encode_family(&daemonset_labels(key))?)?;
            }
        }
        let kind = ConstGauge::new(0.0).metric_type();
        let help = "Fraction of the nodes that the rollout has updated: 1 when complete";
        let mut family = encoder.encode_descriptor("daemonset_rollout_progress", help, None, kind)?;
        for (key, counts) in &values.sets {
            let share = if counts.desired == 0 { 1.0 } else { counts.updated as f64 / counts.desired as f64 };
            ConstGauge::new(share).encode(family.encode_family(&daemonset_labels(key))?)?;
        }
        let kind = ConstGauge::new(0_i64).metric_type();
        let help = "Phase of the progressive rollout: 1 for the phase in the label";
        let mut family = encoder.encode_descriptor("daemonset_rollout_phase", help, None, kind)?;
        for (key, rollout) in &values.rollouts {
            let DaemonSetLabels { namespace, daemonset } = daemonset_labels(key);
            let labels = PhaseLabels { namespace, daemonset, phase: rollout.phase.as_str() };
            ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
        }
        let gauges: [RolloutMetric; 3] = [
            ("paused", "Whether the progressive rollout is paused", |it| i64::from(it.is_paused)),
            ("held", "Nodes that the progressive rollout holds at the stable revision", |it| {
                gauge_value(it.held)
            }),
            ("failed", "Nodes that failed with the revision that is rolled out", |it| gauge_value(it.failed)),
        ];
        for (name, help, value) in gauges {
            let kind = ConstGauge::new(0_i64).metric_type();
            let name = format!("daemonset_rollout_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, kind)?;
            for (key, rollout) in &values.rollouts {
                ConstGauge::new(value(rollout)).encode(family.encode_family(&daemonset_labels(key))?)?;
            }
        }
        let help = "Time since the watch last received an event or bookmark";
        let kind = ConstGauge::new(0.0).metric_type();
        let mut family = encoder.encode_descriptor("watch_silence_seconds", help, None, kind)?;
        for (resource, at) in &values.last_watch_data {
            ConstGauge::new(at.elapsed().as_secs_f64())
                .encode(family.encode_family(&ResourceLabels { resource })?)?;
        }
        Ok(())
    }
}

/// A gauge of progressive rollouts: its name, its help text, and the function that reads its value.
type RolloutMetric = (&'static str, &'static str, fn(&RolloutValues) -> i64);

/// The values of the gauges of one progressive rollout.
#[derive(Debug, Clone, Copy)]
struct RolloutValues {
    phase: Phase,
    is_paused: bool,
    /// Number of nodes that keep or get the stable revision, because the rollout has not admitted them yet.
    held: usize,
    /// Number of nodes that count as failed in the rollout.
    failed: usize,
}

/// Labels of the metric `muster_daemonset_rollout_phase`.
#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseLabels {
    namespace: String,
    daemonset: String,
    phase: &'static str,
}

/// Converts a number of nodes to the value of a gauge. A number above `i64::MAX` becomes `i64::MAX`.
fn gauge_value(count: usize) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// Returns the labels for a DaemonSet.
fn daemonset_labels(key: &ObjectKey) -> DaemonSetLabels {
    DaemonSetLabels { namespace: key.namespace.to_string(), daemonset: key.name.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_once_caches_are_synced_or_another_replica_leads() {
        let monitor = Monitor::default();
        let stages = [Stage::Starting, Stage::Following, Stage::Listing, Stage::Working, Stage::Stopping];
        let states = stages.map(|stage| {
            monitor.enter_stage(stage);
            format!("{stage:?} ready={} alive={}", monitor.is_ready(), monitor.is_alive())
        });
        expect_test::expect![[r#"
            Starting ready=false alive=true
            Following ready=true alive=true
            Listing ready=false alive=true
            Working ready=true alive=true
            Stopping ready=false alive=true"#]]
        .assert_eq(&states.join("\n"));
    }

    #[test]
    fn a_daemonset_has_gauges_until_it_is_deleted() {
        let monitor = Monitor::default();
        let key = ObjectKey::new("logging", "fluentd");
        let counts = StatusCounts {
            desired: 4,
            current: 3,
            ready: 2,
            updated: 1,
            available: 2,
            unavailable: 2,
            misscheduled: 5,
        };
        monitor.collector.lock().sets.insert(key.clone(), counts);
        let of_sets = |text: String| {
            let lines = text.lines().filter(|it| it.contains("fluentd"));
            lines
                .map(|it| it.replace("{namespace=\"logging\",daemonset=\"fluentd\"}", ""))
                .collect::<Vec<_>>()
                .join("\n")
        };
        expect_test::expect![[r#"
            muster_daemonset_desired 4
            muster_daemonset_current 3
            muster_daemonset_ready 2
            muster_daemonset_updated 1
            muster_daemonset_available 2
            muster_daemonset_unavailable 2
            muster_daemonset_misscheduled 5
            muster_daemonset_rollout_progress 0.25"#]]
        .assert_eq(&of_sets(monitor.metrics("").1));
        monitor.remove_daemonset(&key);
        assert_eq!(of_sets(monitor.metrics("").1), "");
    }

    #[test]
    fn check_results_are_counted_for_a_bounded_number_of_names() {
        let monitor = Monitor::default();
        let results = |check: &str| {
            let start = format!("muster_rollout_check_results_total{{check=\"{check}\",");
            let text = monitor.metrics("").1;
            let mut lines: Vec<_> = text.lines().filter_map(|it| it.strip_prefix(&*start)).collect();
            lines.sort_unstable();
            lines.join("\n")
        };
        monitor.count_check_result("errors", "Pass");
        for number in 1..2 * CHECK_NAMES_MAX {
            monitor.count_check_result(&format!("check-{number}"), "Fail");
        }
        monitor.count_check_result("errors", "Pass");
        monitor.count_check_result("errors", "Inconclusive");
        assert_eq!(results("errors"), "result=\"Inconclusive\"} 1\nresult=\"Pass\"} 2");
        assert_eq!(results("check-99"), "result=\"Fail\"} 1");
        assert_eq!((&*results("check-100"), &*results(OTHER_CHECKS)), ("", "result=\"Fail\"} 100"));
    }
}
