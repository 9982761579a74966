//! What the controller counts, as `/metrics` shows it, and whether it is well.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_api::meta::ObjectKey;
use muster_api::metrics_exposition::ExpositionFormat;
use muster_engine::daemonset::facts::{Counts, Kind};
use muster_engine::daemonset::plan::{Claim, Plan, Step};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

/// From a millisecond, which is an API server with nothing to do, to ten seconds, which is a timeout.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// A loop that sleeps wakes up every minute. One that has not for this long hangs.
const HUNG_AFTER: Duration = Duration::from_secs(300);

/// Where a replica is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Starting,
    /// Another replica leads.
    Following,
    /// This one leads, and everything is being listed.
    Listing,
    Working,
    Stopping,
}

/// What a loop has to do and to keep. There is one for each namespace that was named, and the sum of them is shown.
#[derive(Debug, Default)]
pub(crate) struct Load {
    pub(crate) queued: i64,
    pub(crate) busy: i64,
    /// In the order of `Kind::ALL`.
    pub(crate) objects: [i64; 4],
}

/// Health and metrics of the controller.
pub struct Monitor {
    registry: Registry,
    began: Instant,
    stage: Mutex<Stage>,
    /// Loops that do not know the cluster yet.
    listing: AtomicUsize,
    /// Milliseconds from `began` to the last turn of the loop.
    turned_at: AtomicU64,
    shown: Arc<Shown>,
    reconciles: Family<ReconcileLabels, Counter>,
    decisions: Family<DecisionLabels, Counter>,
    calls: Family<CallLabels, Counter>,
    latency: Family<CallKind, Histogram>,
    queued: Gauge,
    queue_wait: Histogram,
    busy: Gauge,
    objects: Family<OfKind, Gauge>,
    lists: Family<OfKind, Counter>,
    watch_lag: Histogram,
    leader: Gauge,
    pub(crate) events_dropped: Counter,
    pub(crate) panics: Counter,
    pub(crate) conflicting_writes: Counter,
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    what: &'static str,
    why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    verb: &'static str,
    resource: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallKind {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    resource: &'static str,
}

impl OfKind {
    fn of(kind: Kind) -> Self {
        Self { resource: resource(kind) }
    }
}

fn resource(kind: Kind) -> &'static str {
    match kind {
        Kind::Sets => "daemonsets",
        Kind::Nodes => "nodes",
        Kind::Pods => "pods",
        Kind::Revisions => "controllerrevisions",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfSet {
    namespace: String,
    daemonset: String,
}

impl Default for Monitor {
    fn default() -> Self {
        let new_histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        let mut monitor = Self {
            registry: Registry::default(),
            began: Instant::now(),
            stage: Mutex::new(Stage::Starting),
            listing: AtomicUsize::new(0),
            turned_at: AtomicU64::new(0),
            shown: Arc::default(),
            reconciles: Family::default(),
            decisions: Family::default(),
            calls: Family::default(),
            latency: Family::new_with_constructor(new_histogram),
            queued: Gauge::default(),
            queue_wait: new_histogram(),
            busy: Gauge::default(),
            objects: Family::default(),
            lists: Family::default(),
            watch_lag: new_histogram(),
            leader: Gauge::default(),
            events_dropped: Counter::default(),
            panics: Counter::default(),
            conflicting_writes: Counter::default(),
        };
        let mut registry = Registry::with_prefix("muster");
        let all = &mut registry;
        all.register("build", "What runs here", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        all.register("leader", "1 while this replica leads, or runs without a lease", monitor.leader.clone());
        all.register("queue_length", "DaemonSets that wait to be looked at", monitor.queued.clone());
        let help = "Time that a DaemonSet waited to be looked at";
        all.register("queue_wait_seconds", help, monitor.queue_wait.clone());
        all.register("busy_daemonsets", "DaemonSets whose plan is being carried out", monitor.busy.clone());
        all.register("looks", "Looks at a DaemonSet, by what came of them", monitor.reconciles.clone());
        let help = "What was decided, by reason; what became of it is in muster_calls";
        all.register("decisions", help, monitor.decisions.clone());
        all.register("calls", "Calls to the API server, by outcome", monitor.calls.clone());
        all.register("call_duration_seconds", "Time from a call to its answer", monitor.latency.clone());
        all.register("cache_objects", "Objects known", monitor.objects.clone());
        all.register(
            "lists",
            "Whole lists read: one for each kind, and more after a fault",
            monitor.lists.clone(),
        );
        let help = "Time from the end of a plan until the watches have shown all that it wrote";
        all.register("watch_lag_seconds", help, monitor.watch_lag.clone());
        all.register(
            "events_dropped",
            "Events not recorded: there were too many, or they were refused",
            monitor.events_dropped.clone(),
        );
        all.register("panics", "Looks and plans that ended in a panic", monitor.panics.clone());
        let help = "Writes of another controller to the status of a DaemonSet while this one leads";
        all.register("rival_writes", help, monitor.conflicting_writes.clone());
        all.register_collector(Box::new(monitor.shown.clone()));
        monitor.registry = registry;
        monitor
    }
}

impl Monitor {
    /// All that was counted, in the format that the `Accept` header of a scraper asks for, and its media type.
    pub fn metrics(&self, accept: &str) -> (&'static str, String) {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("a String takes everything");
        let format = ExpositionFormat::negotiate(accept);
        (format.media_type(), format.encode(text))
    }

    /// Rule: a replica is ready once it knows the cluster, or knows that another one leads; and no longer when it stops.
    pub fn is_ready(&self) -> bool {
        matches!(self.stage(), Stage::Following | Stage::Working)
    }

    /// Rule: a replica is well while its loop turns, or has no loop yet.
    pub fn is_alive(&self) -> bool {
        let turned_at = Duration::from_millis(self.turned_at.load(Ordering::Relaxed));
        !matches!(self.stage(), Stage::Listing | Stage::Working)
            || self.began.elapsed() < turned_at + HUNG_AFTER
    }

    pub(crate) fn enter(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
        self.leader.set(matches!(stage, Stage::Listing | Stage::Working | Stage::Stopping).into());
        self.turned();
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop has come round.
    pub(crate) fn turned(&self) {
        let at = self.began.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        self.turned_at.store(at, Ordering::Relaxed);
    }

    /// So many loops begin to list.
    pub(crate) fn begin(&self, loops: usize) {
        self.listing.store(loops, Ordering::Relaxed);
        self.enter(Stage::Listing);
    }

    /// One of them knows all that concerns it.
    pub(crate) fn synced(&self) {
        if self.listing.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.enter(Stage::Working);
        }
    }

    /// What a loop carries now, and what it carried when it last said so.
    pub(crate) fn carries(&self, before: &mut Load, now: Load) {
        self.queued.inc_by(now.queued - before.queued);
        self.busy.inc_by(now.busy - before.busy);
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            let more = now.objects[at] - before.objects[at];
            if more != 0 {
                self.objects.get_or_create(&OfKind::of(kind)).inc_by(more);
            }
        }
        *before = now;
    }

    pub(crate) fn listed(&self, kind: Kind) {
        self.lists.get_or_create(&OfKind::of(kind)).inc();
    }

    /// A watch has brought something, if only a bookmark.
    pub(crate) fn received(&self, kind: Kind) {
        self.shown.lock().received.insert(resource(kind), Instant::now());
    }

    pub(crate) fn caught_up(&self, after: Duration) {
        self.watch_lag.observe(after.as_secs_f64());
    }

    pub(crate) fn called(&self, kind: &CallKind, outcome: &'static str, took: Duration) {
        let CallKind { verb, resource } = *kind;
        self.calls.get_or_create(&CallLabels { verb, resource, outcome }).inc();
        self.latency.get_or_create(kind).observe(took.as_secs_f64());
    }

    pub(crate) fn reconciled(&self, waited: Duration, plan: &Plan) {
        self.queue_wait.observe(waited.as_secs_f64());
        let result = match (&plan.waiting, plan.is_idle()) {
            (Some(_), _) => "waits",
            (None, true) => "nothing to do",
            (None, false) => "plan",
        };
        self.reconciles.get_or_create(&ReconcileLabels { result }).inc();
        let decided = |what, why| {
            self.decisions.get_or_create(&DecisionLabels { what, why }).inc();
        };
        for claim in &plan.claims {
            decided(if claim.adopts() { "adopt" } else { "release" }, claimed(claim));
        }
        for step in &plan.steps {
            let why = match step {
                Step::Create { .. } => "new template",
                Step::Renumber { .. } => "old template again",
                Step::Label { .. } => "label missing",
            };
            decided("record revision", why);
        }
        plan.relabel.iter().for_each(|_| decided("relabel pod", "revision folded"));
        plan.delete.iter().for_each(|(_, why)| decided("delete pod", why.label()));
        plan.create.iter().for_each(|(_, why)| decided("create pod", why.label()));
        plan.prune.iter().for_each(|_| decided("delete revision", "beyond the limit"));
        let counts = plan.status.as_ref().unwrap_or(&plan.set.status).counts;
        self.shown.lock().sets.insert(plan.set.key.clone(), counts);
    }

    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.shown.lock().sets.remove(key);
    }
}

fn claimed(claim: &Claim) -> &'static str {
    match claim {
        Claim::AdoptPod(_) => "pod matches",
        Claim::ReleasePod(_) => "pod no longer matches",
        Claim::AdoptRevision(_) => "revision matches",
        Claim::ReleaseRevision(_) => "revision no longer matches",
    }
}

/// What is worked out when somebody asks.
#[derive(Debug, Default)]
struct Shown(Mutex<Values>);

#[derive(Debug, Default)]
struct Values {
    sets: BTreeMap<ObjectKey, Counts>,
    received: BTreeMap<&'static str, Instant>,
}

impl Shown {
    fn lock(&self) -> MutexGuard<'_, Values> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Name, help, and what it shows.
type Column = (&'static str, &'static str, fn(&Counts) -> i64);

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let values = self.lock();
        let columns: [Column; 7] = [
            ("desired", "Nodes that should run a pod of the DaemonSet", |it| it.desired),
            ("current", "Nodes that should and do", |it| it.current),
            ("ready", "Nodes with a pod that is ready", |it| it.ready),
            ("updated", "Nodes with a pod of the current revision", |it| it.updated),
            ("available", "Nodes with a pod that is available", |it| it.available),
            ("unavailable", "Nodes that should have an available pod and do not", |it| it.unavailable),
            ("misscheduled", "Nodes that run a pod and should not", |it| it.misscheduled),
        ];
        for (name, help, column) in columns {
            let name = format!("daemonset_{name}");
            let gauge = ConstGauge::new(0_i64);
            let mut family = encoder.encode_descriptor(&name, help, None, gauge.metric_type())?;
            for (key, counts) in &values.sets {
                ConstGauge::new(column(counts)).encode(family.encode_family(&of_set(key))?)?;
            }
        }
        let kind = ConstGauge::new(0.0).metric_type();
        let help = "Share of the nodes that the rollout has reached: 1 when there is nothing left to update";
        let mut family = encoder.encode_descriptor("daemonset_rollout_progress", help, None, kind)?;
        for (key, counts) in &values.sets {
            let share = if counts.desired == 0 { 1.0 } else { counts.updated as f64 / counts.desired as f64 };
            ConstGauge::new(share).encode(family.encode_family(&of_set(key))?)?;
        }
        let help = "Time since a watch brought anything, if only a bookmark";
        let kind = ConstGauge::new(0.0).metric_type();
        let mut family = encoder.encode_descriptor("watch_silence_seconds", help, None, kind)?;
        for (resource, at) in &values.received {
            ConstGauge::new(at.elapsed().as_secs_f64())
                .encode(family.encode_family(&OfKind { resource })?)?;
        }
        Ok(())
    }
}

fn of_set(key: &ObjectKey) -> OfSet {
    OfSet { namespace: key.namespace.to_string(), daemonset: key.name.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_once_the_cluster_is_known_or_another_leads() {
        let monitor = Monitor::default();
        let stages = [Stage::Starting, Stage::Following, Stage::Listing, Stage::Working, Stage::Stopping];
        let said = stages.map(|stage| {
            monitor.enter(stage);
            format!("{stage:?} ready={} alive={}", monitor.is_ready(), monitor.is_alive())
        });
        expect_test::expect![[r#"
            Starting ready=false alive=true
            Following ready=true alive=true
            Listing ready=false alive=true
            Working ready=true alive=true
            Stopping ready=false alive=true"#]]
        .assert_eq(&said.join("\n"));
    }

    #[test]
    fn a_set_has_its_counts_until_it_is_gone() {
        let monitor = Monitor::default();
        let key = ObjectKey::new("logging", "fluentd");
        let counts = Counts {
            desired: 4,
            current: 3,
            ready: 2,
            updated: 1,
            available: 2,
            unavailable: 2,
            misscheduled: 5,
        };
        monitor.shown.lock().sets.insert(key.clone(), counts);
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
        monitor.forget(&key);
        assert_eq!(of_sets(monitor.metrics("").1), "");
    }
}
