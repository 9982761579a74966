//! The server's metrics at `/metrics`. Names are upstream's where upstream has the same metric.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use muster_store::SyncStatistics;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry as MetricsRegistry;

use crate::kinds::Kind;

/// Histogram buckets in seconds for the request latency and for the time that a request waits for a seat. They range
/// from half a millisecond (a read) to half a minute (a timeout).
const REQUEST_LATENCY_BUCKETS_S: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// Histogram buckets in seconds for the commit latency. They range from a tenth of a millisecond (memory) to one second
/// (a failing disk).
const COMMIT_LATENCY_BUCKETS_S: [f64; 10] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];

/// All metrics of the server.
pub(crate) struct ServerMetrics {
    /// The registry that encodes all metrics.
    registry: MetricsRegistry,
    /// `apiserver_request_total`: completed requests by status code.
    requests: Family<RequestCodeLabels, Counter>,
    /// `apiserver_request_duration_seconds`: request latency; for a watch, until its first byte.
    latency: Family<RequestLabels, Histogram>,
    /// `apiserver_current_inflight_requests`: read-only and mutating requests that execute, not counting watches and
    /// agent streams.
    in_flight: Family<InFlightLabels, Gauge>,
    /// `apiserver_flowcontrol_current_executing_seats`: seats in use by priority level. A request occupies a seat while
    /// it executes.
    seats: Family<FlowLevelLabels, Gauge>,
    /// `apiserver_flowcontrol_current_inqueue_requests`: requests that wait for a seat, by priority level.
    queued: Family<FlowLevelLabels, Gauge>,
    /// `muster_flowcontrol_flow_seats`: seats in use by user.
    flow_seats: Family<FlowLabels, Gauge>,
    /// `muster_flowcontrol_flow_inqueue_requests`: requests that wait for a seat now, by user.
    flow_queued: Family<FlowLabels, Gauge>,
    /// `muster_flowcontrol_flow_queued_requests_total`: requests that have waited for a seat, by user.
    flow_queued_total: Family<FlowLabels, Counter>,
    /// `muster_flowcontrol_flow_rejected_requests_total`: requests that flow control rejected, by user.
    flow_rejected_total: Family<FlowLabels, Counter>,
    /// `apiserver_flowcontrol_rejected_requests_total`: requests that flow control rejected, by priority level.
    flow_rejections: Family<RejectionLabels, Counter>,
    /// `apiserver_flowcontrol_request_wait_duration_seconds`: time that queued requests waited until they got a seat.
    flow_waits: Family<PriorityLevelLabels, Histogram>,
    /// `muster_requests_refused_total`: requests that were refused because the user, or all users together, exceeded a
    /// limit.
    refusals: Family<LimitLabels, Counter>,
    /// `apiserver_longrunning_requests`: watches, and streams that agents serve.
    pub(crate) long_running_requests: Gauge,
    /// `muster_connections`: client connections that have completed the TLS handshake.
    pub(crate) connections: Gauge,
    /// `muster_tls_handshakes_failed_total`: connections whose TLS handshake failed.
    pub(crate) handshakes_failed: Counter,
    /// `muster_audit_dropped_total`: audit events that were dropped because the log was too slow.
    pub(crate) audit_dropped: Counter,
    /// `muster_commit_duration_seconds`: time until a write is durable.
    commit_latency: Histogram,
    /// `muster_store_revision`: revision of the last commit.
    revision: Gauge,
    /// `apiserver_storage_objects`: stored objects by kind.
    objects: Family<StoredObjectLabels, Gauge>,
    /// `pod_security_evaluations_total`: evaluations of pods and pod templates by Pod Security.
    pod_security_evaluations: Family<PodSecurityEvaluationLabels, Counter>,
    /// `pod_security_exemptions_total`: requests that are exempt from Pod Security.
    pod_security_exemptions: Family<PodSecurityExemptionLabels, Counter>,
    /// `muster_store_bytes`: total size of all stored objects.
    store_bytes: Gauge,
    /// `muster_store_bytes_max`: maximum total size of all stored objects.
    store_bytes_max: Gauge,
    /// `muster_store_full`: 1 if the last write failed because the disk or etcd was full, else 0.
    store_full: Gauge,
    /// `muster_cluster_keys_unreadable`: 1 if this server cannot decrypt the keys of the cluster in etcd, else 0.
    cluster_keys_unreadable: Gauge,
    /// `muster_store_namespace_bytes`: size of the stored objects of each of the largest namespaces.
    namespace_bytes: Family<NamespaceLabels, Gauge>,
    /// `muster_store_reloads_total`: reloads of all objects from etcd. Without etcd it has no series.
    reloads: Family<ReloadLabels, Counter>,
    /// `muster_store_consistency_checks_total`: comparisons of all objects with etcd. Without etcd it has no series.
    /// Upstream: `apiserver_storage_consistency_checks_total`, which has a series for each resource.
    consistency_checks: Family<ConsistencyCheckLabels, Counter>,
}

impl fmt::Debug for ServerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerMetrics").finish_non_exhaustive()
    }
}

/// Labels of `apiserver_request_total`: verb, API group, resource and status code of a request. All values are from
/// fixed sets, so that clients cannot create new series.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestCodeLabels {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    code: u16,
}

/// Labels of `apiserver_request_duration_seconds`: verb, API group and resource of a request, but not its status code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
}

/// Labels of `apiserver_current_inflight_requests`: whether the requests are read-only or mutating.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InFlightLabels {
    /// Kind of the requests: `readOnly` or `mutating`.
    request_kind: &'static str,
}

/// Labels of `muster_store_namespace_bytes`: the namespace. Only the largest namespaces have series, so that the number
/// of series is bounded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NamespaceLabels {
    namespace: String,
}

/// Labels of `muster_store_reloads_total`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    /// `compaction` if etcd had dropped changes that the server had not seen, or `loss` if changes did not arrive.
    reason: &'static str,
}

/// Labels of `muster_store_consistency_checks_total`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConsistencyCheckLabels {
    /// `success`, `failure` (a difference was found) or `error` (the check could not be completed), as in upstream.
    status: &'static str,
}

/// Labels of `apiserver_flowcontrol_request_wait_duration_seconds`: the priority level.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PriorityLevelLabels {
    priority_level: &'static str,
}

/// Labels of `apiserver_flowcontrol_current_executing_seats` and `apiserver_flowcontrol_current_inqueue_requests`: the
/// priority level, and whether the requests are read-only or mutating.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FlowLevelLabels {
    priority_level: &'static str,
    request_kind: &'static str,
}

/// Labels of the `muster_flowcontrol_flow_…` metrics. They identify a flow: the read-only or mutating requests of one
/// user in one priority level. Only the flows with the highest usage have series, so that the number of series is
/// bounded although user names are not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FlowLabels {
    priority_level: &'static str,
    request_kind: &'static str,
    flow: String,
}

/// Labels of `apiserver_flowcontrol_rejected_requests_total`: the priority level, and the reason for the rejection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectionLabels {
    priority_level: &'static str,
    reason: &'static str,
}

/// Labels of `muster_requests_refused_total`: the name of the exceeded limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

/// Labels of `apiserver_storage_objects`: API group and resource of the objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoredObjectLabels {
    group: &'static str,
    resource: &'static str,
}

/// Labels of `pod_security_evaluations_total`: the result of an evaluation, the policy, and the request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PodSecurityEvaluationLabels {
    /// Result of the evaluation: `allow` or `deny`.
    pub(crate) decision: &'static str,
    pub(crate) policy_level: &'static str,
    /// Policy version of the evaluation. It is `future` for a version that is newer than the served API, so that users
    /// cannot create new series.
    pub(crate) policy_version: Cow<'static, str>,
    pub(crate) mode: &'static str,
    pub(crate) request_operation: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
}

/// Labels of `pod_security_exemptions_total`: operation, resource and subresource of an exempt request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PodSecurityExemptionLabels {
    pub(crate) request_operation: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let new_latency: fn() -> Histogram = || Histogram::new(REQUEST_LATENCY_BUCKETS_S);
        let new_wait: fn() -> Histogram = || Histogram::new(REQUEST_LATENCY_BUCKETS_S);
        let mut metrics = Self {
            registry: MetricsRegistry::default(),
            requests: Family::default(),
            latency: Family::new_with_constructor(new_latency),
            in_flight: Family::default(),
            seats: Family::default(),
            queued: Family::default(),
            flow_seats: Family::default(),
            flow_queued: Family::default(),
            flow_queued_total: Family::default(),
            flow_rejected_total: Family::default(),
            flow_rejections: Family::default(),
            flow_waits: Family::new_with_constructor(new_wait),
            refusals: Family::default(),
            long_running_requests: Gauge::default(),
            connections: Gauge::default(),
            handshakes_failed: Counter::default(),
            audit_dropped: Counter::default(),
            commit_latency: Histogram::new(COMMIT_LATENCY_BUCKETS_S),
            revision: Gauge::default(),
            objects: Family::default(),
            pod_security_evaluations: Family::default(),
            pod_security_exemptions: Family::default(),
            store_bytes: Gauge::default(),
            store_bytes_max: Gauge::default(),
            store_full: Gauge::default(),
            cluster_keys_unreadable: Gauge::default(),
            namespace_bytes: Family::default(),
            reloads: Family::default(),
            consistency_checks: Family::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("apiserver_request", "Completed requests", metrics.requests.clone());
        registry.register(
            "apiserver_request_duration_seconds",
            "Request latency; for a watch, until its first byte",
            metrics.latency.clone(),
        );
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests in flight",
            metrics.in_flight.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_current_executing_seats",
            "Seats in use",
            metrics.seats.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_current_inqueue_requests",
            "Requests waiting for a seat",
            metrics.queued.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_rejected_requests",
            "Requests rejected because no seat became free in time or the queue was full",
            metrics.flow_rejections.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_request_wait_duration_seconds",
            "Time that queued requests waited for a seat",
            metrics.flow_waits.clone(),
        );
        registry.register(
            "muster_flowcontrol_flow_seats",
            "Seats in use, by user, for the users with the highest usage",
            metrics.flow_seats.clone(),
        );
        registry.register(
            "muster_flowcontrol_flow_inqueue_requests",
            "Requests waiting for a seat, by user, for the users with the highest usage",
            metrics.flow_queued.clone(),
        );
        registry.register(
            "muster_flowcontrol_flow_queued_requests",
            "Requests that were queued for a seat, by user",
            metrics.flow_queued_total.clone(),
        );
        registry.register(
            "muster_flowcontrol_flow_rejected_requests",
            "Requests rejected because no seat became free in time or the queue was full, by user",
            metrics.flow_rejected_total.clone(),
        );
        registry.register(
            "muster_requests_refused",
            "Requests refused because the user or all users exceed a limit: seats, request bodies, responses, watches, agent streams",
            metrics.refusals.clone(),
        );
        registry.register(
            "apiserver_longrunning_requests",
            "Watches, and streams served by agents",
            metrics.long_running_requests.clone(),
        );
        registry.register("muster_connections", "Connections", metrics.connections.clone());
        registry.register(
            "muster_tls_handshakes_failed",
            "Connections whose TLS handshake failed",
            metrics.handshakes_failed.clone(),
        );
        registry.register(
            "muster_audit_dropped",
            "Audit events dropped because the log was too slow",
            metrics.audit_dropped.clone(),
        );
        registry.register(
            "muster_commit_duration_seconds",
            "Time until a write is durable",
            metrics.commit_latency.clone(),
        );
        registry.register("muster_store_revision", "Revision of the last commit", metrics.revision.clone());
        registry.register(
            "muster_store_bytes",
            "Total size of all objects in bytes",
            metrics.store_bytes.clone(),
        );
        registry.register(
            "muster_store_bytes_max",
            "Maximum total size of all objects in bytes (--store-bytes-max)",
            metrics.store_bytes_max.clone(),
        );
        registry.register(
            "muster_store_full",
            "1 if the last write that needs space failed because the disk or the database of etcd is full, else 0",
            metrics.store_full.clone(),
        );
        registry.register(
            "muster_cluster_keys_unreadable",
            "1 if this server cannot decrypt the keys of the cluster in etcd with its server token, else 0",
            metrics.cluster_keys_unreadable.clone(),
        );
        registry.register(
            "muster_store_namespace_bytes",
            "Size of the objects in the largest namespaces in bytes",
            metrics.namespace_bytes.clone(),
        );
        registry.register(
            "muster_store_reloads",
            "Reloads of all objects from etcd",
            metrics.reloads.clone(),
        );
        registry.register(
            "muster_store_consistency_checks",
            "Comparisons of all objects with etcd",
            metrics.consistency_checks.clone(),
        );
        registry.register("apiserver_storage_objects", "Stored objects", metrics.objects.clone());
        registry.register(
            "pod_security_evaluations",
            "Pod Security evaluations, without exempt requests",
            metrics.pod_security_evaluations.clone(),
        );
        registry.register(
            "pod_security_exemptions",
            "Requests exempt from Pod Security",
            metrics.pod_security_exemptions.clone(),
        );
        metrics
    }
}

impl RequestLabels {
    /// Returns the labels of a request. The label of a verb that is not in a fixed list is `other`.
    pub(crate) fn new(verb: &str, kind: Option<&'static Kind>) -> Self {
        /// Verbs that are used as label values. All other verbs get the value `other`.
        const KNOWN_VERBS: [&str; 9] =
            ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post"];
        Self {
            verb: KNOWN_VERBS.into_iter().find(|it| *it == verb).unwrap_or("other"),
            group: kind.map_or("", |it| it.group),
            resource: kind.map_or("", |it| it.plural),
        }
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.verb == "watch"
    }

    /// Whether the request counts as read-only in flow control and metrics. This includes requests whose verb has the
    /// label `other`.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch" | "other")
    }
}

impl ServerMetrics {
    /// Counts a completed request and records its latency.
    pub(crate) fn record_request(&self, labels: &RequestLabels, code: u16, latency: Duration) {
        let RequestLabels { verb, group, resource } = *labels;
        self.requests.get_or_create(&RequestCodeLabels { verb, group, resource, code }).inc();
        self.latency.get_or_create(labels).observe(latency.as_secs_f64());
    }

    /// Counts a request that was refused because a limit is exceeded. `limit` is the value of the label `limit`, such
    /// as `watch`.
    pub(crate) fn count_refused_request(&self, limit: &'static str) {
        self.refusals.get_or_create(&LimitLabels { limit }).inc();
    }

    /// Counts a request that flow control rejected: in the rejections of its priority level, and in the requests that
    /// were refused because of the limit `seats`. `reason` is upstream's: `queue-full` or `time-out`.
    pub(crate) fn count_flow_rejection(&self, priority_level: &'static str, reason: &'static str) {
        self.count_refused_request("seats");
        self.flow_rejections.get_or_create(&RejectionLabels { priority_level, reason }).inc();
    }

    /// Records how long a request waited for a seat.
    pub(crate) fn record_flow_wait(&self, priority_level: &'static str, waited: Duration) {
        self.flow_waits.get_or_create(&PriorityLevelLabels { priority_level }).observe(waited.as_secs_f64());
    }

    /// Sets the number of seats in use and the number of requests that wait for a seat, for the read-only or the
    /// mutating requests of one priority level.
    pub(crate) fn set_flow_level_usage(
        &self,
        priority_level: &'static str,
        is_read: bool,
        seats: usize,
        waiting: usize,
    ) {
        let labels = FlowLevelLabels { priority_level, request_kind: request_kind(is_read) };
        self.seats.get_or_create(&labels).set(gauge_value(seats));
        self.queued.get_or_create(&labels).set(gauge_value(waiting));
    }

    /// Sets the number of read-only or mutating requests in flight.
    pub(crate) fn set_requests_in_flight(&self, is_read: bool, requests: usize) {
        self.in_flight
            .get_or_create(&InFlightLabels { request_kind: request_kind(is_read) })
            .set(gauge_value(requests));
    }

    /// Removes the series of all flows. The caller then sets the series of the flows with the highest usage.
    pub(crate) fn clear_flow_metrics(&self) {
        self.flow_seats.clear();
        self.flow_queued.clear();
        self.flow_queued_total.clear();
        self.flow_rejected_total.clear();
    }

    /// Sets the number of seats in use and the number of requests that wait for a seat, for one flow.
    pub(crate) fn set_flow_usage(
        &self,
        priority_level: &'static str,
        is_read: bool,
        flow: &str,
        seats: usize,
        waiting: usize,
    ) {
        let labels =
            FlowLabels { priority_level, request_kind: request_kind(is_read), flow: flow.to_owned() };
        self.flow_seats.get_or_create(&labels).set(gauge_value(seats));
        self.flow_queued.get_or_create(&labels).set(gauge_value(waiting));
    }

    /// Sets how many requests of one flow have been queued and how many have been rejected. The numbers are added to
    /// the counters of the flow, so the caller must first clear the counters with
    /// [`ServerMetrics::clear_flow_metrics`].
    pub(crate) fn set_flow_counts(
        &self,
        priority_level: &'static str,
        is_read: bool,
        flow: &str,
        queued: u64,
        rejected: u64,
    ) {
        let labels =
            FlowLabels { priority_level, request_kind: request_kind(is_read), flow: flow.to_owned() };
        self.flow_queued_total.get_or_create(&labels).inc_by(queued);
        self.flow_rejected_total.get_or_create(&labels).inc_by(rejected);
    }

    /// Sets the revision of the store, its size and maximum size in bytes, and the sizes of the largest namespaces.
    /// `largest` are the names of these namespaces with their sizes in bytes.
    pub(crate) fn set_store_metrics(
        &self,
        revision: u64,
        (bytes, bytes_max): (usize, usize),
        largest: Vec<(String, usize)>,
    ) {
        self.revision.set(i64::try_from(revision).unwrap_or(i64::MAX));
        self.store_bytes.set(gauge_value(bytes));
        self.store_bytes_max.set(gauge_value(bytes_max));
        self.namespace_bytes.clear();
        for (namespace, bytes) in largest {
            self.namespace_bytes.get_or_create(&NamespaceLabels { namespace }).set(gauge_value(bytes));
        }
    }

    /// Sets whether the disk or the storage is full.
    /// Sets whether this server cannot decrypt the keys of the cluster in etcd.
    pub(crate) fn set_cluster_keys_unreadable(&self, is_unreadable: bool) {
        self.cluster_keys_unreadable.set(i64::from(is_unreadable));
    }

    pub(crate) fn set_store_full(&self, is_full: bool) {
        self.store_full.set(i64::from(is_full));
    }

    /// Sets the counters of reloads and consistency checks, which only a store on etcd has.
    pub(crate) fn set_sync_metrics(&self, statistics: SyncStatistics) {
        let SyncStatistics {
            reloads_after_compaction,
            reloads_after_loss,
            checks_passed,
            checks_failed,
            checks_with_error,
        } = statistics;
        let set = |counter: &Counter, value: u64| counter.inner().store(value, Ordering::Relaxed);
        for (reason, count) in [("compaction", reloads_after_compaction), ("loss", reloads_after_loss)] {
            set(&self.reloads.get_or_create(&ReloadLabels { reason }), count);
        }
        for (status, count) in
            [("success", checks_passed), ("failure", checks_failed), ("error", checks_with_error)]
        {
            set(&self.consistency_checks.get_or_create(&ConsistencyCheckLabels { status }), count);
        }
    }

    /// Sets the numbers of stored objects of the kinds that are served now.
    pub(crate) fn set_object_counts(&self, counts: impl Iterator<Item = (&'static Kind, usize)>) {
        self.objects.clear();
        for (kind, count) in counts {
            let stored = StoredObjectLabels { group: kind.group, resource: kind.plural };
            self.objects.get_or_create(&stored).set(gauge_value(count));
        }
    }

    pub(crate) fn record_commit(&self, latency: Duration) {
        self.commit_latency.observe(latency.as_secs_f64());
    }

    /// Counts an evaluation of a pod or template by Pod Security.
    pub(crate) fn count_pod_security_evaluation(&self, evaluation: &PodSecurityEvaluationLabels) {
        self.pod_security_evaluations.get_or_create(evaluation).inc();
    }

    /// Counts a request that is exempt from Pod Security.
    pub(crate) fn count_pod_security_exemption(&self, exemption: &PodSecurityExemptionLabels) {
        self.pod_security_exemptions.get_or_create(exemption).inc();
    }

    /// Encodes all metrics in the OpenMetrics text format.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("writing to a String does not fail");
        text
    }
}

/// Converts a count to the value of a gauge. A count that is too large becomes `i64::MAX`.
fn gauge_value(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Returns the value of the label `request_kind`: `readOnly` or `mutating`.
fn request_kind(is_read: bool) -> &'static str {
    if is_read { "readOnly" } else { "mutating" }
}

/// Guard that increments a gauge when it is created, and decrements the gauge when it is dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
