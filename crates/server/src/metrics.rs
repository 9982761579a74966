//! What the server counts, as `/metrics` shows it. Names are upstream's where upstream counts the same.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry as Collected;

use crate::kinds::Kind;

/// From half a millisecond, which is a read, to half a minute, which is a timeout.
const LATENCY_S: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// From a tenth of a millisecond, which is memory, to a second, which is a disk in trouble.
const COMMIT_S: [f64; 10] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];

pub(crate) struct Metrics {
    collected: Collected,
    requests: Family<AnsweredLabels, Counter>,
    latency: Family<RequestLabels, Histogram>,
    in_flight: Family<InFlightLabels, Gauge>,
    seats: Family<FlowLevelLabels, Gauge>,
    queued: Family<FlowLevelLabels, Gauge>,
    flow_seats: Family<FlowLabels, Gauge>,
    flow_queued: Family<FlowLabels, Gauge>,
    flow_queued_total: Family<FlowLabels, Counter>,
    flow_rejected_total: Family<FlowLabels, Counter>,
    flow_rejections: Family<RejectionLabels, Counter>,
    flow_waits: Family<LevelLabels, Histogram>,
    rejections: Family<RefusedLabels, Counter>,
    pub(crate) watches: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) handshakes_failed: Counter,
    pub(crate) audit_dropped: Counter,
    commits: Histogram,
    revision: Gauge,
    objects: Family<StoredLabels, Gauge>,
    pod_security_evaluations: Family<PodSecurityEvaluation, Counter>,
    pod_security_exemptions: Family<PodSecurityExemption, Counter>,
    store_bytes: Gauge,
    store_bytes_max: Gauge,
    namespace_bytes: Family<NamespaceLabels, Gauge>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Only what the server itself knows is a label: a stranger cannot make up new ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnsweredLabels {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InFlightLabels {
    request_kind: &'static str,
}

/// Of those that hold most, so that their number is bounded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NamespaceLabels {
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LevelLabels {
    priority_level: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FlowLevelLabels {
    priority_level: &'static str,
    request_kind: &'static str,
}

/// Only the flows that use most are shown, so that user names make a bounded number of series.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FlowLabels {
    priority_level: &'static str,
    request_kind: &'static str,
    flow: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectionLabels {
    priority_level: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    limit: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoredLabels {
    group: &'static str,
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PodSecurityEvaluation {
    pub(crate) decision: &'static str,
    pub(crate) policy_level: &'static str,
    /// `future` if it is newer than the API that is served: a user cannot make up new ones.
    pub(crate) policy_version: Cow<'static, str>,
    pub(crate) mode: &'static str,
    pub(crate) request_operation: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PodSecurityExemption {
    pub(crate) request_operation: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let new_latency: fn() -> Histogram = || Histogram::new(LATENCY_S);
        let new_wait: fn() -> Histogram = || Histogram::new(LATENCY_S);
        let mut metrics = Self {
            collected: Collected::default(),
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
            rejections: Family::default(),
            watches: Gauge::default(),
            connections: Gauge::default(),
            handshakes_failed: Counter::default(),
            audit_dropped: Counter::default(),
            commits: Histogram::new(COMMIT_S),
            revision: Gauge::default(),
            objects: Family::default(),
            pod_security_evaluations: Family::default(),
            pod_security_exemptions: Family::default(),
            store_bytes: Gauge::default(),
            store_bytes_max: Gauge::default(),
            namespace_bytes: Family::default(),
        };
        let all = &mut metrics.collected;
        all.register("apiserver_request", "Requests answered", metrics.requests.clone());
        all.register(
            "apiserver_request_duration_seconds",
            "Time to the answer, and to its first byte for a watch",
            metrics.latency.clone(),
        );
        all.register(
            "apiserver_current_inflight_requests",
            "Requests being worked on",
            metrics.in_flight.clone(),
        );
        all.register("apiserver_flowcontrol_current_executing_seats", "Seats in use", metrics.seats.clone());
        all.register(
            "apiserver_flowcontrol_current_inqueue_requests",
            "Requests that wait for a seat",
            metrics.queued.clone(),
        );
        all.register(
            "apiserver_flowcontrol_rejected_requests",
            "Requests rejected because no seat became free in time or the queue was full",
            metrics.flow_rejections.clone(),
        );
        all.register(
            "apiserver_flowcontrol_request_wait_duration_seconds",
            "Time that queued requests waited for their seat",
            metrics.flow_waits.clone(),
        );
        all.register(
            "muster_flowcontrol_flow_seats",
            "Seats in use, by the users that use or wait for most",
            metrics.flow_seats.clone(),
        );
        all.register(
            "muster_flowcontrol_flow_inqueue_requests",
            "Requests that wait for a seat, by the users that use or wait for most",
            metrics.flow_queued.clone(),
        );
        all.register(
            "muster_flowcontrol_flow_queued_requests",
            "Requests that had to wait for a seat, by user",
            metrics.flow_queued_total.clone(),
        );
        all.register(
            "muster_flowcontrol_flow_rejected_requests",
            "Requests rejected because no seat became free in time or the queue was full, by user",
            metrics.flow_rejected_total.clone(),
        );
        all.register(
            "muster_requests_refused",
            "Requests refused because their user or all users hold too many: seats, bodies, responses, watches, streams of agents",
            metrics.rejections.clone(),
        );
        all.register(
            "apiserver_longrunning_requests",
            "Watches, and what agents serve",
            metrics.watches.clone(),
        );
        all.register("muster_connections", "Connections", metrics.connections.clone());
        all.register(
            "muster_tls_handshakes_failed",
            "Connections that did not get through TLS",
            metrics.handshakes_failed.clone(),
        );
        all.register(
            "muster_audit_dropped",
            "Lines that the audit log lacks because it could not keep up",
            metrics.audit_dropped.clone(),
        );
        all.register(
            "muster_commit_duration_seconds",
            "Time from a write to its being durable",
            metrics.commits.clone(),
        );
        all.register("muster_store_revision", "Number of the last commit", metrics.revision.clone());
        all.register("muster_store_bytes", "Bytes of all objects", metrics.store_bytes.clone());
        all.register(
            "muster_store_bytes_max",
            "Bytes that all objects may have (--store-bytes-max)",
            metrics.store_bytes_max.clone(),
        );
        all.register(
            "muster_store_namespace_bytes",
            "Bytes of the objects of the largest namespaces",
            metrics.namespace_bytes.clone(),
        );
        all.register("apiserver_storage_objects", "Objects stored", metrics.objects.clone());
        all.register(
            "pod_security_evaluations",
            "Pod Security evaluations, without exempt requests",
            metrics.pod_security_evaluations.clone(),
        );
        all.register(
            "pod_security_exemptions",
            "Requests exempt from Pod Security",
            metrics.pod_security_exemptions.clone(),
        );
        metrics
    }
}

impl RequestLabels {
    /// `verb` is one that a request can have, or nothing.
    pub(crate) fn of(verb: &str, kind: Option<&'static Kind>) -> Self {
        const VERBS: [&str; 9] =
            ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post"];
        Self {
            verb: VERBS.into_iter().find(|it| *it == verb).unwrap_or("other"),
            group: kind.map_or("", |it| it.group),
            resource: kind.map_or("", |it| it.plural),
        }
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.verb == "watch"
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch" | "other")
    }
}

impl Metrics {
    pub(crate) fn answered(&self, labels: &RequestLabels, code: u16, took: Duration) {
        let RequestLabels { verb, group, resource } = *labels;
        self.requests.get_or_create(&AnsweredLabels { verb, group, resource, code }).inc();
        self.latency.get_or_create(labels).observe(took.as_secs_f64());
    }

    /// A request was refused because of this limit.
    pub(crate) fn rejected(&self, limit: &'static str) {
        self.rejections.get_or_create(&RefusedLabels { limit }).inc();
    }

    /// `reason` is one of upstream's: `queue-full` or `time-out`.
    pub(crate) fn flow_rejected(&self, priority_level: &'static str, reason: &'static str) {
        self.rejected("seats");
        self.flow_rejections.get_or_create(&RejectionLabels { priority_level, reason }).inc();
    }

    pub(crate) fn flow_waited(&self, priority_level: &'static str, waited: Duration) {
        self.flow_waits.get_or_create(&LevelLabels { priority_level }).observe(waited.as_secs_f64());
    }

    /// What the requests of one priority level use now.
    pub(crate) fn set_flow_level(
        &self,
        priority_level: &'static str,
        is_read: bool,
        seats: usize,
        waiting: usize,
    ) {
        let labels = FlowLevelLabels { priority_level, request_kind: request_kind(is_read) };
        self.seats.get_or_create(&labels).set(gauge(seats));
        self.queued.get_or_create(&labels).set(gauge(waiting));
    }

    pub(crate) fn set_in_flight(&self, is_read: bool, requests: usize) {
        self.in_flight
            .get_or_create(&InFlightLabels { request_kind: request_kind(is_read) })
            .set(gauge(requests));
    }

    /// Before the flows that are shown are set.
    pub(crate) fn clear_flows(&self) {
        self.flow_seats.clear();
        self.flow_queued.clear();
        self.flow_queued_total.clear();
        self.flow_rejected_total.clear();
    }

    /// What one flow uses now.
    pub(crate) fn set_flow_use(
        &self,
        priority_level: &'static str,
        is_read: bool,
        flow: &str,
        seats: usize,
        waiting: usize,
    ) {
        let labels =
            FlowLabels { priority_level, request_kind: request_kind(is_read), flow: flow.to_owned() };
        self.flow_seats.get_or_create(&labels).set(gauge(seats));
        self.flow_queued.get_or_create(&labels).set(gauge(waiting));
    }

    /// How often requests of one flow had to wait or were rejected.
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

    /// `largest` are the namespaces with most bytes.
    pub(crate) fn set_store(
        &self,
        revision: u64,
        (bytes, bytes_max): (usize, usize),
        largest: Vec<(String, usize)>,
    ) {
        self.revision.set(i64::try_from(revision).unwrap_or(i64::MAX));
        self.store_bytes.set(gauge(bytes));
        self.store_bytes_max.set(gauge(bytes_max));
        self.namespace_bytes.clear();
        for (namespace, bytes) in largest {
            self.namespace_bytes.get_or_create(&NamespaceLabels { namespace }).set(gauge(bytes));
        }
    }

    pub(crate) fn set_objects(&self, kind: &'static Kind, count: usize) {
        let stored = StoredLabels { group: kind.group, resource: kind.plural };
        self.objects.get_or_create(&stored).set(gauge(count));
    }

    pub(crate) fn committed(&self, took: Duration) {
        self.commits.observe(took.as_secs_f64());
    }

    pub(crate) fn pod_security_evaluated(&self, evaluation: &PodSecurityEvaluation) {
        self.pod_security_evaluations.get_or_create(evaluation).inc();
    }

    pub(crate) fn pod_security_exempted(&self, exemption: &PodSecurityExemption) {
        self.pod_security_exemptions.get_or_create(exemption).inc();
    }

    /// All metrics as text, with gauges as they were last set.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.collected).expect("a String takes everything");
        text
    }
}

fn gauge(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn request_kind(is_read: bool) -> &'static str {
    if is_read { "readOnly" } else { "mutating" }
}

/// Counts for as long as it is there.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
