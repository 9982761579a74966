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

use crate::flow_control::{Class, FlowControl, FlowUse, Rejected};
use crate::kinds::KINDS;
use crate::registry::Registry;
use crate::route::Route;

/// From half a millisecond, which is a read, to half a minute, which is a timeout.
const LATENCY_S: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// From a tenth of a millisecond, which is memory, to a second, which is a disk in trouble.
const COMMIT_S: [f64; 10] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];

/// Flows shown of reads, and of writes.
const FLOWS_MAX: usize = 20;

pub(crate) struct Metrics {
    collected: Collected,
    requests: Family<Request, Counter>,
    latency: Family<Kind, Histogram>,
    in_flight: Family<InFlight, Gauge>,
    seats: Family<FlowLevel, Gauge>,
    queued: Family<FlowLevel, Gauge>,
    flow_seats: Family<Flow, Gauge>,
    flow_queued: Family<Flow, Gauge>,
    flow_queued_total: Family<Flow, Counter>,
    flow_rejected_total: Family<Flow, Counter>,
    flow_rejections: Family<Rejection, Counter>,
    flow_waits: Family<LevelName, Histogram>,
    rejections: Family<Refused, Counter>,
    pub(crate) watches: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) handshakes_failed: Counter,
    pub(crate) audit_dropped: Counter,
    commits: Histogram,
    revision: Gauge,
    objects: Family<Stored, Gauge>,
    pod_security_evaluations: Family<PodSecurityEvaluation, Counter>,
    pod_security_exemptions: Family<PodSecurityExemption, Counter>,
    store_bytes: Gauge,
    store_bytes_max: Gauge,
    namespace_bytes: Family<Namespace, Gauge>,
}

/// Namespaces whose bytes are shown: the largest.
const NAMESPACES_SHOWN: usize = 10;

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Only what the server itself knows is a label: a stranger cannot make up new ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Kind {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InFlight {
    request_kind: &'static str,
}

/// Of those that hold most, so that their number is bounded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Namespace {
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LevelName {
    priority_level: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FlowLevel {
    priority_level: &'static str,
    request_kind: &'static str,
}

/// Only the flows that use most are shown, so that user names make a bounded number of series.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Flow {
    priority_level: &'static str,
    request_kind: &'static str,
    flow: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rejection {
    priority_level: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refused {
    limit: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stored {
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

impl Kind {
    /// `verb` is one that a request can have, or nothing.
    pub(crate) fn of(verb: &str, route: Option<&Route>) -> Self {
        const VERBS: [&str; 9] =
            ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post"];
        let kind = match route {
            Some(Route::Collection { kind, .. } | Route::Watch { kind, .. }) => Some(*kind),
            Some(Route::Object(target)) => Some(target.kind),
            _ => None,
        };
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
    pub(crate) fn answered(&self, kind: &Kind, code: u16, took: Duration) {
        let Kind { verb, group, resource } = *kind;
        self.requests.get_or_create(&Request { verb, group, resource, code }).inc();
        self.latency.get_or_create(kind).observe(took.as_secs_f64());
    }

    /// A request was refused because of this limit.
    pub(crate) fn rejected(&self, limit: &'static str) {
        self.rejections.get_or_create(&Refused { limit }).inc();
    }

    pub(crate) fn flow_rejected(&self, class: Class<'_>, why: Rejected) {
        let reason = match why {
            Rejected::QueueFull => "queue-full",
            Rejected::TimeOut => "time-out",
        };
        self.rejected("seats");
        self.flow_rejections.get_or_create(&Rejection { priority_level: class.level_name(), reason }).inc();
    }

    pub(crate) fn flow_waited(&self, class: Class<'_>, waited: Duration) {
        let level = LevelName { priority_level: class.level_name() };
        self.flow_waits.get_or_create(&level).observe(waited.as_secs_f64());
    }

    fn show_flow_control(&self, flow_control: &FlowControl) {
        let gauge = |it: usize| i64::try_from(it).unwrap_or(i64::MAX);
        let kind = |is_read| if is_read { "readOnly" } else { "mutating" };
        let mut in_flight = [0; 2];
        for level in flow_control.levels() {
            let labels = FlowLevel { priority_level: level.level, request_kind: kind(level.is_read) };
            self.seats.get_or_create(&labels).set(gauge(level.seats));
            self.queued.get_or_create(&labels).set(gauge(level.waiting));
            in_flight[usize::from(level.is_read)] += level.seats;
        }
        self.flow_seats.clear();
        self.flow_queued.clear();
        self.flow_queued_total.clear();
        self.flow_rejected_total.clear();
        for is_read in [false, true] {
            let request_kind = kind(is_read);
            let in_flight = gauge(in_flight[usize::from(is_read)]);
            self.in_flight.get_or_create(&InFlight { request_kind }).set(in_flight);
            let labels = |flow: &FlowUse<'_>| Flow {
                priority_level: flow.level.name(),
                request_kind,
                flow: flow.name.to_owned(),
            };
            let show_use = |flow: &FlowUse<'_>| {
                self.flow_seats.get_or_create(&labels(flow)).set(gauge(flow.seats));
                self.flow_queued.get_or_create(&labels(flow)).set(gauge(flow.waiting));
            };
            flow_control.show_top_flows(is_read, FLOWS_MAX, |it| (it.waiting, it.seats), show_use);
            let show_counts = |flow: &FlowUse<'_>| {
                self.flow_queued_total.get_or_create(&labels(flow)).inc_by(flow.queued);
                self.flow_rejected_total.get_or_create(&labels(flow)).inc_by(flow.rejected);
            };
            flow_control.show_top_flows(is_read, FLOWS_MAX, |it| (it.rejected, it.queued), show_counts);
        }
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

    /// All of it, as text.
    pub(crate) fn text(&self, registry: &Registry, flow_control: &FlowControl) -> String {
        self.show_flow_control(flow_control);
        self.revision.set(i64::try_from(registry.revision()).unwrap_or(i64::MAX));
        let (bytes, bytes_max) = registry.bytes();
        self.store_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.store_bytes_max.set(i64::try_from(bytes_max).unwrap_or(i64::MAX));
        self.namespace_bytes.clear();
        for (namespace, bytes) in registry.largest_namespaces(NAMESPACES_SHOWN) {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.namespace_bytes.get_or_create(&Namespace { namespace }).set(bytes);
        }
        for kind in KINDS {
            let stored = Stored { group: kind.group, resource: kind.plural };
            let count = i64::try_from(registry.count(kind)).unwrap_or(i64::MAX);
            self.objects.get_or_create(&stored).set(count);
        }
        let mut text = String::new();
        text::encode(&mut text, &self.collected).expect("a String takes everything");
        text
    }
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
