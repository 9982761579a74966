//! Flow control: fairness between clients, modelled on Kubernetes' API Priority and Fairness.
//!
//! A seat is the permission to execute one request. A flow is the requests of one user in one priority level. A request
//! is classified by its user and its attributes ([`classify`]). Exempt requests are executed immediately. Watches and
//! requests that an agent serves need no seat. Every other request holds a seat of its priority level until its handler
//! returns the response. If no seat is free, the request waits in the queue of its flow (`queue`). `usage` limits the
//! other resources that a user holds: request bodies, unsent responses, watches and agent streams. `request_body` reads
//! the request body, and `response` sends the response.

/// Runs the handlers of requests with large bodies on threads of their own.
pub(crate) mod large_body;
/// Chooses the waiting request that gets the next free seat.
mod queue;
/// Reads request bodies within limits.
pub(crate) mod request_body;
/// Sends response bodies, and charges unsent bytes to the user.
pub(crate) mod response;
/// Limits the resources that each user may hold besides seats: request bodies, unsent responses, watches and agent
/// streams.
mod usage;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_api::well_known::{NAMESPACE_NODE_LEASE, USER_GROUP_MASTERS};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::queue::{FairQueue, FlowId, PriorityLevelLimits, QueuedRequestId};
pub(crate) use self::queue::{FlowMetrics, PriorityLevel, RejectReason};
pub(crate) use self::usage::{UsageKind, UsageLease, UsageLimit, UsageTracker};
use crate::connections::RequestClient;
use crate::metrics::ServerMetrics;
use crate::request::{AccessTarget, RequestAttributes, User};

/// Error that occurs while a request body is read or a response body is sent.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Maximum number of requests of all flows that wait for a seat. This and the following maximums apply to the pool for
/// reads and to the pool for writes separately.
const QUEUED_REQUESTS_MAX: usize = 4_000;

/// Maximum number of requests that wait in one flow of the priority level `workload`. Each user has one such flow in
/// each pool.
const WORKLOAD_FLOW_QUEUE_MAX: usize = 500;
/// Maximum number of requests that wait in one flow of the priority level `system`, in each pool.
const SYSTEM_FLOW_QUEUE_MAX: usize = 4_000;
/// Maximum number of requests that wait in the priority level `anonymous`, in each pool. All anonymous users share its
/// only flow there.
const ANONYMOUS_FLOW_QUEUE_MAX: usize = 50;

/// Maximum number of flows that one metric shows. Reads and writes are counted separately.
const FLOWS_IN_METRICS_MAX: usize = 20;

/// Maximum number of seats that a node may use for its heartbeats, or a leader for renewing its Lease. It is twice the
/// number that one request and its retry need.
const HEARTBEAT_SEATS_MAX: usize = 4;

/// How flow control treats a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowClass<'a> {
    /// The request is executed immediately.
    Exempt,
    /// The request needs a seat of the priority level `level`. If no seat is free, the request waits in the queue of
    /// its flow. `flow` is the name of this flow, which is the name of the user. `seat_limit` limits the seats of the
    /// flow.
    Queued { level: PriorityLevel, flow: &'a str, seat_limit: FlowSeatLimit },
}

impl FlowClass<'_> {
    /// Returns the name of the priority level for metrics. For an exempt request, returns `exempt`.
    pub(crate) fn level_name(self) -> &'static str {
        match self {
            Self::Exempt => "exempt",
            Self::Queued { level, .. } => level.name(),
        }
    }
}

/// Maximum number of seats that a flow may use at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowSeatLimit {
    /// No limit for the flow besides the limit of its priority level.
    Level,
    /// At most a quarter of all seats of the pool, but at least one seat.
    Quarter,
    /// At most [`HEARTBEAT_SEATS_MAX`] seats, for heartbeats of nodes and Leases of leaders.
    Heartbeat,
}

/// Returns how flow control treats a request of `user` with the attributes `action`. `is_health` is set for a health
/// check.
///
/// Rule: `system:masters` and health checks are exempt. The `system` priority level is for the components of Muster,
/// the heartbeats of nodes (their Lease and Node) and the Leases of leaders in `kube-system` and `muster-system`. The
/// `workload` level is for the other authenticated users, with one flow for each user. The `anonymous` level is for all
/// other requests.
/// Upstream: the suggested FlowSchemas `exempt`, `probes`, `system-node-high`, `system-leader-election`,
/// `global-default`, `catch-all`.
pub(crate) fn classify<'a>(user: &'a User, action: &RequestAttributes, is_health: bool) -> FlowClass<'a> {
    if is_health || user.is_in_group(USER_GROUP_MASTERS) {
        return FlowClass::Exempt;
    }
    let queued = |level, seat_limit| FlowClass::Queued { level, flow: &user.name, seat_limit };
    if user.is_anonymous() {
        return queued(PriorityLevel::Anonymous, FlowSeatLimit::Level);
    }
    if user.is_component() {
        return queued(PriorityLevel::System, FlowSeatLimit::Level);
    }
    if is_heartbeat(user, action) || is_leader_election_request(user, action) {
        return queued(PriorityLevel::System, FlowSeatLimit::Heartbeat);
    }
    queued(PriorityLevel::Workload, FlowSeatLimit::Quarter)
}

/// Whether the request is a heartbeat: a request by a node for its Lease or its Node object.
fn is_heartbeat(user: &User, action: &RequestAttributes) -> bool {
    let (Some(node), AccessTarget::Resource(on)) = (user.node_name(), &action.target) else { return false };
    if on.name != node && !on.name.is_empty() {
        return false;
    }
    match (on.group.as_str(), on.plural.as_str()) {
        // The name of an object to create is only in the body; admission checks there that it is the node's
        // own.
        ("coordination.k8s.io", "leases") => {
            on.namespace == NAMESPACE_NODE_LEASE && (on.name == node || action.verb == "create")
        }
        ("", "nodes") => {
            matches!(on.subresource.as_str(), "" | "status") && (on.name == node || action.verb == "create")
        }
        _ => false,
    }
}

/// Whether the request gets, creates, updates or patches the Lease of a leader election.
fn is_leader_election_request(user: &User, action: &RequestAttributes) -> bool {
    let AccessTarget::Resource(on) = &action.target else { return false };
    user.leader_election_namespace().is_some_and(|namespace| {
        (on.group.as_str(), on.plural.as_str(), on.namespace.as_str())
            == ("coordination.k8s.io", "leases", namespace)
    }) && matches!(action.verb.as_ref(), "get" | "create" | "update" | "patch")
}

/// Limits how many requests are executed at a time. Has one pool of seats for reads and one for writes.
#[derive(Debug)]
pub(crate) struct FlowControl {
    reads: SeatPool,
    writes: SeatPool,
    /// Maximum time that a request waits for a seat.
    queue_timeout: Duration,
}

/// The seats for reads or for writes, and the requests that wait for them.
#[derive(Debug)]
struct SeatPool {
    /// The waiting requests. A request that gets a seat receives it through its channel.
    queue: Mutex<FairQueue<oneshot::Sender<Seat>>>,
    /// A quarter of the seats of the pool, at least one, for [`FlowSeatLimit::Quarter`].
    quarter_of_seats: usize,
    /// Number of requests in progress that are exempt from flow control.
    exempt: AtomicUsize,
}

impl SeatPool {
    /// Creates a pool with this number of seats, and derives the reserve and maximum of each priority level from it.
    fn new(seats: usize) -> Self {
        let quarter = (seats / 4).max(1);
        let of_anonymous = seats / 40;
        let level_limits = [
            PriorityLevelLimits {
                reserved: seats / 4,
                max: (seats * 4 / 5).max(1),
                flow_queue_max: SYSTEM_FLOW_QUEUE_MAX,
            },
            PriorityLevelLimits {
                reserved: seats / 8,
                max: (seats - seats / 4).max(1),
                flow_queue_max: WORKLOAD_FLOW_QUEUE_MAX,
            },
            PriorityLevelLimits {
                reserved: of_anonymous,
                max: of_anonymous.max(1),
                flow_queue_max: ANONYMOUS_FLOW_QUEUE_MAX,
            },
        ];
        Self {
            queue: Mutex::new(FairQueue::new(seats, level_limits, QUEUED_REQUESTS_MAX)),
            quarter_of_seats: quarter,
            exempt: AtomicUsize::new(0),
        }
    }

    fn lock_queue(&self) -> MutexGuard<'_, FairQueue<oneshot::Sender<Seat>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the maximum number of seats that a flow with this limit may use.
    fn seats_max(&self, seat_limit: FlowSeatLimit) -> usize {
        match seat_limit {
            FlowSeatLimit::Level => usize::MAX,
            FlowSeatLimit::Quarter => self.quarter_of_seats,
            FlowSeatLimit::Heartbeat => HEARTBEAT_SEATS_MAX,
        }
    }
}

/// Permission to execute one request. Dropping the seat frees it for a waiting request.
#[derive(Debug)]
pub(crate) struct Seat {
    control: Arc<FlowControl>,
    /// Whether the seat is from the pool for reads. Otherwise it is from the pool for writes.
    is_read: bool,
    /// The flow that the seat belongs to. `None` for an exempt request.
    flow: Option<FlowId>,
}

/// Guard of a waiting request. It is dropped when the request gets a seat, when the wait times out, or when the client
/// disconnects. Dropping it removes the request from its queue if the request is still waiting.
struct WaitGuard<'a> {
    seats: &'a SeatPool,
    flow: FlowId,
    request_id: QueuedRequestId,
}

/// The values of one priority level that the metrics show, for reads or for writes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LevelMetrics {
    /// Name of the priority level. For the exempt requests, `exempt`.
    pub(crate) level: &'static str,
    /// `true` if the values are for reads, `false` if they are for writes.
    pub(crate) is_read: bool,
    /// Number of seats that the requests of the level use.
    pub(crate) seats: usize,
    /// Number of requests of the level that wait for a seat.
    pub(crate) waiting: usize,
}

impl FlowControl {
    /// Updates the metrics of the priority levels and of the busiest flows.
    pub(crate) fn update_metrics(&self, metrics: &ServerMetrics) {
        let mut in_flight = [0; 2];
        for level in self.level_metrics() {
            metrics.set_flow_level_usage(level.level, level.is_read, level.seats, level.waiting);
            in_flight[usize::from(level.is_read)] += level.seats;
        }
        metrics.clear_flow_metrics();
        for is_read in [false, true] {
            metrics.set_requests_in_flight(is_read, in_flight[usize::from(is_read)]);
            let show_use = |flow: &FlowMetrics<'_>| {
                metrics.set_flow_usage(flow.level.name(), is_read, flow.name, flow.seats, flow.waiting);
            };
            self.for_each_top_flow(is_read, FLOWS_IN_METRICS_MAX, |it| (it.waiting, it.seats), show_use);
            let show_counts = |flow: &FlowMetrics<'_>| {
                metrics.set_flow_counts(flow.level.name(), is_read, flow.name, flow.queued, flow.rejected);
            };
            self.for_each_top_flow(is_read, FLOWS_IN_METRICS_MAX, |it| (it.rejected, it.queued), show_counts);
        }
    }

    /// Creates one pool with `reads` seats for reads and one with `writes` seats for writes. `wait` is the maximum time
    /// that a request waits for a seat.
    pub(crate) fn new(reads: usize, writes: usize, wait: Duration) -> Self {
        Self { reads: SeatPool::new(reads), writes: SeatPool::new(writes), queue_timeout: wait }
    }

    fn seat_pool(&self, is_read: bool) -> &SeatPool {
        if is_read { &self.reads } else { &self.writes }
    }

    /// Waits for a seat for a request. Returns the seat, and how long the request waited if it was queued. If the
    /// request gets no seat, counts the rejection and returns its reason.
    pub(crate) async fn acquire_seat(
        self: &Arc<Self>,
        class: FlowClass<'_>,
        is_read: bool,
    ) -> Result<(Seat, Option<Duration>), RejectReason> {
        let seats = self.seat_pool(is_read);
        let FlowClass::Queued { level, flow, seat_limit } = class else {
            seats.exempt.fetch_add(1, Ordering::Relaxed);
            return Ok((Seat { control: self.clone(), is_read, flow: None }, None));
        };
        let seats_max = seats.seats_max(seat_limit);
        let granted = self.wait_for_seat(is_read, level, flow, seats_max).await;
        if granted.is_err() {
            seats.lock_queue().count_rejection(level, flow, seats_max);
        }
        granted
    }

    /// Waits for a seat for a request that is not exempt. Returns the seat, and how long the request waited if it was
    /// queued. Returns the reason if the request gets no seat.
    async fn wait_for_seat(
        self: &Arc<Self>,
        is_read: bool,
        level: PriorityLevel,
        flow: &str,
        seats_max: usize,
    ) -> Result<(Seat, Option<Duration>), RejectReason> {
        let seats = self.seat_pool(is_read);
        let (guard, seat) = {
            let mut queue = seats.lock_queue();
            if let Some(flow) = queue.try_acquire(level, flow, seats_max) {
                return Ok((Seat { control: self.clone(), is_read, flow: Some(flow) }, None));
            }
            let (sender, receiver) = oneshot::channel();
            let waiting = queue.enqueue(level, flow, seats_max, sender).map_err(|(why, _)| why)?;
            drop(queue);
            // The evicted request sees its channel closed, and is rejected.
            drop(waiting.evicted);
            (WaitGuard { seats, flow: waiting.flow, request_id: waiting.request_id }, receiver)
        };
        let began = Instant::now();
        let granted = tokio::time::timeout(self.queue_timeout, seat).await;
        drop(guard);
        match granted {
            Ok(Ok(seat)) => Ok((seat, Some(began.elapsed()))),
            Ok(Err(_)) => Err(RejectReason::QueueFull),
            Err(_) => Err(RejectReason::TimeOut),
        }
    }

    /// Returns the metrics of all priority levels. Exempt requests are reported as the level `exempt`.
    pub(crate) fn level_metrics(&self) -> Vec<LevelMetrics> {
        let mut all = Vec::new();
        for is_read in [true, false] {
            let seats = self.seat_pool(is_read);
            let exempt = seats.exempt.load(Ordering::Relaxed);
            all.push(LevelMetrics { level: "exempt", is_read, seats: exempt, waiting: 0 });
            let queue = seats.lock_queue();
            all.extend(PriorityLevel::ALL.map(|it| LevelMetrics {
                level: it.name(),
                is_read,
                seats: queue.seats_in_use(it),
                waiting: queue.waiting_requests(it),
            }));
        }
        all
    }

    /// Calls `show` with at most `max` flows of the pool for reads or for writes, the flow with the highest `rank`
    /// first. Skips flows with the rank zero.
    pub(crate) fn for_each_top_flow<R: Ord + Default>(
        &self,
        is_read: bool,
        max: usize,
        rank: impl Fn(&FlowMetrics<'_>) -> R,
        show: impl FnMut(&FlowMetrics<'_>),
    ) {
        let queue = self.seat_pool(is_read).lock_queue();
        let mut flows: Vec<FlowMetrics<'_>> =
            queue.flow_metrics().filter(|it| rank(it) != R::default()).collect();
        flows.sort_unstable_by_key(|it| std::cmp::Reverse(rank(it)));
        flows.iter().take(max).for_each(show);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let seats = self.control.seat_pool(self.is_read);
        let Some(flow) = self.flow else {
            seats.exempt.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let mut queue = seats.lock_queue();
        queue.release_seat(flow);
        while let Some((flow, request)) = queue.dispatch_next() {
            let seat = Self { control: self.control.clone(), is_read: self.is_read, flow: Some(flow) };
            // The receiver may be gone: it then drops the seat, which locks the queue again.
            drop(queue);
            let _ = request.send(seat);
            queue = seats.lock_queue();
        }
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        // Unlock the queue before dropping the sender, which wakes the receiver.
        let request = self.seats.lock_queue().cancel_request(self.flow, self.request_id);
        drop(request);
    }
}

#[cfg(test)]
mod tests;
