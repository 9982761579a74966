//! Metrics of the node agent, served at `/metrics`. Names are upstream's where upstream has the same metric.
//! Per-pod metrics are in `/metrics/resource`.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use muster_api::core_v1::PodPhase;
use muster_engine::kubelet::pod::{Action, ActionOutcome};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::join;

/// Histogram buckets of CRI calls, in seconds. They range from 1 ms for a query to 10 min for the pull of a large
/// image.
const CALL_BUCKETS_S: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 600.0];

/// Histogram buckets of pod starts, in seconds. A pod whose image is present usually starts within a second.
const POD_START_BUCKETS_S: [f64; 11] = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0, 60.0, 300.0, 1200.0];

/// Histogram buckets of the part of a pod start that is spent in the agent and not in the runtime, in seconds.
const POD_START_IN_AGENT_BUCKETS_S: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Metrics of the node agent.
pub struct AgentMetrics {
    registry: Registry,
    pub runtime_calls: RuntimeCallMetrics,
    /// Number of executed pod actions.
    actions: Family<ActionLabels, Counter>,
    /// Number of executed probes.
    probes: Family<ProbeLabels, Counter>,
    /// Number of evictions.
    evictions: Family<EvictionLabels, Counter>,
    /// Number of pods by phase.
    pods: Family<PhaseLabels, Gauge>,
    /// Time from when the agent first sees a pod until the pod's first container runs, in seconds.
    start_duration: Histogram,
    /// The part of `start_duration` that is spent in the agent and not in the runtime.
    pod_start_in_agent: Histogram,
    /// Seconds until the client certificate expires, negative after its expiry. 0 without a certificate.
    client_ttl: Gauge,
    /// Seconds until the serving certificate expires, negative after its expiry. 0 without a certificate.
    server_ttl: Gauge,
    /// Resident memory of the agent process, in bytes.
    memory: Gauge,
    /// CPU time of the agent process, in seconds.
    cpu: Counter<f64, AtomicU64>,
    /// Number of open files of the agent process.
    open_files: Gauge,
}

impl fmt::Debug for AgentMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentMetrics").finish_non_exhaustive()
    }
}

/// Labels of the counter of executed pod actions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabels {
    action: &'static str,
    result: &'static str,
}

/// Labels of the counter of executed probes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProbeLabels {
    probe_type: &'static str,
    result: &'static str,
}

/// Labels of the counter of evictions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictionLabels {
    eviction_signal: &'static str,
}

/// Labels of the gauge of pods by phase.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

/// Labels of the metrics of CRI calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation_type: &'static str,
}

/// Metrics of CRI calls by operation: number of calls, number of failed calls, and durations.
#[derive(Debug, Clone)]
pub struct RuntimeCallMetrics {
    /// Number of calls.
    total: Family<OperationLabels, Counter>,
    /// Number of failed calls.
    errors: Family<OperationLabels, Counter>,
    /// Durations of calls.
    durations: Family<OperationLabels, Histogram>,
}

impl Default for RuntimeCallMetrics {
    fn default() -> Self {
        let new: fn() -> Histogram = || Histogram::new(CALL_BUCKETS_S);
        Self {
            total: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(new),
        }
    }
}

impl RuntimeCallMetrics {
    /// Records the result and the duration of one CRI call.
    pub(crate) fn record_call(&self, operation_type: &'static str, has_failed: bool, took: Duration) {
        let operation = OperationLabels { operation_type };
        self.total.get_or_create(&operation).inc();
        self.durations.get_or_create(&operation).observe(took.as_secs_f64());
        if has_failed {
            self.errors.get_or_create(&operation).inc();
        }
    }
}

impl Default for AgentMetrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Registry::default(),
            runtime_calls: RuntimeCallMetrics::default(),
            actions: Family::default(),
            probes: Family::default(),
            evictions: Family::default(),
            pods: Family::default(),
            start_duration: Histogram::new(POD_START_BUCKETS_S),
            pod_start_in_agent: Histogram::new(POD_START_IN_AGENT_BUCKETS_S),
            client_ttl: Gauge::default(),
            server_ttl: Gauge::default(),
            memory: Gauge::default(),
            cpu: Counter::default(),
            open_files: Gauge::default(),
        };
        metrics.register_all()
    }
}

impl AgentMetrics {
    /// Registers all metrics under their names.
    fn register_all(mut self) -> Self {
        let all = &mut self.registry;
        let calls = &self.runtime_calls;
        all.register("kubelet_runtime_operations", "CRI calls", calls.total.clone());
        all.register("kubelet_runtime_operations_errors", "CRI calls that failed", calls.errors.clone());
        all.register_with_unit(
            "kubelet_runtime_operations_duration",
            "Duration of CRI calls",
            Unit::Seconds,
            calls.durations.clone(),
        );
        all.register("muster_pods", "Pods of the node, by phase", self.pods.clone());
        all.register("muster_pod_actions", "Actions carried out for pods, by result", self.actions.clone());
        all.register("muster_probes", "Probe results", self.probes.clone());
        all.register("kubelet_evictions", "Pods that were evicted", self.evictions.clone());
        all.register_with_unit(
            "kubelet_pod_start_duration",
            "Time from when the agent first sees a pod until its first container runs",
            Unit::Seconds,
            self.start_duration.clone(),
        );
        all.register_with_unit(
            "muster_pod_start_own",
            "Part of the pod start duration that was not spent in the runtime",
            Unit::Seconds,
            self.pod_start_in_agent.clone(),
        );
        all.register_with_unit(
            "kubelet_certificate_manager_client_ttl",
            "Time until the client certificate expires",
            Unit::Seconds,
            self.client_ttl.clone(),
        );
        all.register_with_unit(
            "kubelet_certificate_manager_server_ttl",
            "Time until the serving certificate expires",
            Unit::Seconds,
            self.server_ttl.clone(),
        );
        all.register_with_unit(
            "process_resident_memory",
            "Resident memory of the agent",
            Unit::Bytes,
            self.memory.clone(),
        );
        all.register_with_unit("process_cpu", "CPU time of the agent", Unit::Seconds, self.cpu.clone());
        all.register("process_open_fds", "Open file descriptors of the agent", self.open_files.clone());
        self
    }

    /// Counts an executed action, by kind of action and by success. For a probe, also counts the result of the probe.
    pub(crate) fn count_action(&self, action: &Action, outcome: &ActionOutcome) {
        let result = if matches!(outcome, ActionOutcome::Failed { .. }) { "error" } else { "success" };
        self.actions.get_or_create(&ActionLabels { action: action_label(action), result }).inc();
        if let Action::Probe { probe, .. } = action {
            let result = match outcome {
                ActionOutcome::Probed { passed: true, .. } => "successful",
                ActionOutcome::Probed { passed: false, .. } => "failed",
                _ => "unknown",
            };
            self.probes.get_or_create(&ProbeLabels { probe_type: probe.as_str(), result }).inc();
        }
    }

    /// Counts an eviction by its eviction signal, or by the limit that the pod exceeded.
    pub(crate) fn count_eviction(&self, eviction_signal: &'static str) {
        self.evictions.get_or_create(&EvictionLabels { eviction_signal }).inc();
    }

    /// Records the start of a pod. `total` is the time from when the agent first saw the pod until its first container
    /// runs. `in_agent` is the part of this time that was spent in the agent.
    pub(crate) fn observe_pod_start(&self, total: Duration, in_agent: Duration) {
        self.start_duration.observe(total.as_secs_f64());
        self.pod_start_in_agent.observe(in_agent.as_secs_f64());
    }

    /// Updates the gauges and the CPU time, and encodes all metrics in the OpenMetrics text format. `phases` has the
    /// phase of each pod. `pki` is the directory of the node's certificates.
    pub(crate) fn encode(&self, phases: impl Iterator<Item = String>, pki: &Path, now: Timestamp) -> String {
        // The metric `muster_pods` has a value for each phase, even if no pod has this phase. A pod without a known phase
        // counts as Pending.
        let phases: Vec<PodPhase> = phases.map(|it| PodPhase::parse(&it)).collect();
        for phase in PodPhase::ALL {
            let count = phases.iter().filter(|it| **it == phase).count();
            let labels = PhaseLabels { phase: phase.as_str() };
            self.pods.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        for (gauge, until) in
            [&self.client_ttl, &self.server_ttl].into_iter().zip(join::certificate_expiries(pki))
        {
            gauge.set(until.map_or(0, |it| it.as_second() - now.as_second()));
        }
        let process = ProcessUsage::read();
        self.memory.set(process.resident_bytes);
        // The kernel maintains this counter, which only grows.
        self.cpu.inner().store(process.cpu_s.to_bits(), Ordering::Relaxed);
        self.open_files.set(process.files);
        let mut text = String::new();
        match text::encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(_) => String::new(),
        }
    }
}

/// Returns the value of the metric label `action` for this action.
fn action_label(action: &Action) -> &'static str {
    match action {
        Action::Prepare => "prepare",
        Action::RunSandbox { .. } => "run_sandbox",
        Action::FindImage { .. } => "find_image",
        Action::Pull { .. } => "pull",
        Action::Start { .. } => "start",
        Action::PostStart { .. } => "post_start",
        Action::Probe { .. } => "probe",
        Action::Stop { .. } => "stop",
        Action::RemoveContainer { .. } => "remove_container",
        Action::StopSandbox { .. } => "stop_sandbox",
        Action::RemoveSandbox { .. } => "remove_sandbox",
        Action::CleanUp { .. } => "clean_up",
        Action::Report(_) => "report",
        Action::Delete => "delete",
    }
}

/// CPU, memory and open files of the agent process.
#[derive(Debug, Default)]
struct ProcessUsage {
    resident_bytes: i64,
    cpu_s: f64,
    files: i64,
}

impl ProcessUsage {
    /// Reads the usage of this process from `/proc`. A value that cannot be read is 0.
    fn read() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Self {
            resident_bytes: parse_resident_bytes(&read("/proc/self/status")).unwrap_or(0),
            cpu_s: parse_cpu_seconds(&read("/proc/self/stat")).unwrap_or(0.0),
            files: i64::try_from(files).unwrap_or(i64::MAX),
        }
    }
}

/// Parses the resident memory from the content of `/proc/PID/status`. Returns `None` if it has no such field.
fn parse_resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
}

/// Parses user plus system time in seconds from the content of `/proc/PID/stat`, where they are fields 14 and 15. The
/// process name, field 2, may contain spaces. Returns `None` if the content is malformed.
fn parse_cpu_seconds(stat: &str) -> Option<f64> {
    let (_, words) = stat.rsplit_once(") ")?;
    let mut ticks = words.split_whitespace().skip(11).map_while(|it| it.parse::<u32>().ok());
    Some((f64::from(ticks.next()?) + f64::from(ticks.next()?)) / TICKS_PER_S)
}

/// Clock ticks per second in `/proc/PID/stat` (`USER_HZ`), which is 100 on all Linux architectures in use.
const TICKS_PER_S: f64 = 100.0;

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use muster_engine::kubelet::pod::ProbeKind;

    use super::*;

    #[test]
    fn counted_metrics_are_encoded() {
        let metrics = AgentMetrics::default();
        let failed = ActionOutcome::Failed { reason: "FailedMount".into(), message: "no such thing".into() };
        metrics.count_action(&Action::Prepare, &failed);
        metrics.count_action(&Action::Prepare, &ActionOutcome::Done);
        let probe = Action::Probe {
            container: "main".into(),
            position: 0,
            id: "c1".into(),
            probe: ProbeKind::Liveness,
        };
        metrics.count_action(&probe, &ActionOutcome::Probed { passed: false, message: "".into() });
        metrics.count_eviction("memory.available");
        metrics.observe_pod_start(Duration::from_millis(800), Duration::from_millis(30));
        metrics.runtime_calls.record_call("run_podsandbox", true, Duration::from_millis(300));
        let phases = ["Running", "Running", "Failed", ""].map(str::to_owned);
        let said = metrics.encode(phases.into_iter(), Path::new("/nowhere"), Timestamp::UNIX_EPOCH);
        // How much this process takes differs, and buckets are many.
        let is_told =
            |it: &&str| !it.starts_with('#') && !it.starts_with("process_") && !it.contains("_bucket");
        let mut told: Vec<&str> = said.lines().filter(is_told).collect();
        told.sort_unstable();
        expect![[r#"
            kubelet_certificate_manager_client_ttl_seconds 0
            kubelet_certificate_manager_server_ttl_seconds 0
            kubelet_evictions_total{eviction_signal="memory.available"} 1
            kubelet_pod_start_duration_seconds_count 1
            kubelet_pod_start_duration_seconds_sum 0.8
            kubelet_runtime_operations_duration_seconds_count{operation_type="run_podsandbox"} 1
            kubelet_runtime_operations_duration_seconds_sum{operation_type="run_podsandbox"} 0.3
            kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 1
            kubelet_runtime_operations_total{operation_type="run_podsandbox"} 1
            muster_pod_actions_total{action="prepare",result="error"} 1
            muster_pod_actions_total{action="prepare",result="success"} 1
            muster_pod_actions_total{action="probe",result="success"} 1
            muster_pod_start_own_seconds_count 1
            muster_pod_start_own_seconds_sum 0.03
            muster_pods{phase="Failed"} 1
            muster_pods{phase="Pending"} 1
            muster_pods{phase="Running"} 2
            muster_pods{phase="Succeeded"} 0
            muster_probes_total{probe_type="Liveness",result="failed"} 1"#]]
        .assert_eq(&told.join("\n"));
        for name in ["process_resident_memory_bytes ", "process_cpu_seconds_total ", "process_open_fds "] {
            assert!(said.lines().any(|it| it.starts_with(name)), "{name}: {said}");
        }
    }

    #[test]
    fn process_usage_is_parsed() {
        assert_eq!(parse_resident_bytes("VmPeak: 9 kB\nVmRSS:\t   12 kB\n"), Some(12288));
        assert_eq!(parse_cpu_seconds("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0"), Some(2.0));
        assert_eq!([parse_cpu_seconds(""), parse_cpu_seconds("7 (a) S 1")], [None, None]);
    }
}
