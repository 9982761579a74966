//! Fair queuing: chooses the waiting request that gets the next free seat. The code is pure: it uses no clock, no task
//! and no lock.
//!
//! The priority levels share the seats. Each level has a reserve and a maximum. Within a level, a free seat goes to the
//! flow with the fewest seats in use. If several flows have equally few, it goes to the request that has waited
//! longest.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A priority level: a group of flows for which a number of seats is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PriorityLevel {
    /// Requests of the components of Muster, heartbeats of nodes, and Leases for leader election.
    System,
    /// All other requests of authenticated users.
    Workload,
    /// All requests without authentication.
    Anonymous,
}

impl PriorityLevel {
    /// All priority levels, in the order in which they are considered for a free seat.
    pub(crate) const ALL: [Self; 3] = [Self::System, Self::Workload, Self::Anonymous];

    /// Returns the name of the level in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Workload => "workload",
            Self::Anonymous => "anonymous",
        }
    }
}

/// Limits of one priority level: its seats, and the queue length of each of its flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PriorityLevelLimits {
    /// Number of seats that the other levels leave free for this level.
    pub(crate) reserved: usize,
    /// Maximum number of seats that the level may use.
    pub(crate) max: usize,
    /// Maximum number of requests that wait in the queue of one flow of the level.
    pub(crate) flow_queue_max: usize,
}

/// Index of a flow in `FairQueue::flows`. It is valid while the flow has a seat or a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowId(usize);

/// Sequence number of a waiting request. A request with a lower number has waited longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuedRequestId(u64);

/// Why a request got no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RejectReason {
    /// The queue of the flow was full, or the total number of waiting requests was at its maximum.
    QueueFull,
    /// No seat became free within the queue timeout.
    TimeOut,
}

impl RejectReason {
    /// Returns the value of the metric label `reason`.
    pub(crate) fn metric_label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// A request that [`FairQueue::enqueue`] has queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EnqueuedRequest<T> {
    /// The flow in whose queue the request waits.
    pub(crate) flow: FlowId,
    pub(crate) request_id: QueuedRequestId,
    /// The request that was evicted because the total number of waiting requests was at its maximum. It was the last
    /// one of the longest queue. `None` if no request was evicted.
    pub(crate) evicted: Option<T>,
}

/// The queues of all flows, and the seats in use.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    /// Total number of seats, of all priority levels.
    seats: usize,
    /// Number of seats in use by all levels.
    seats_in_use: usize,
    /// State of each level, indexed by [`PriorityLevel`].
    levels: [LevelState; 3],
    /// All flows. A [`FlowId`] is an index in this list.
    flows: Vec<FlowState<T>>,
    /// Indices in `flows` of removed flows. New flows reuse them.
    free_slots: Vec<usize>,
    /// Number of flows that have neither a seat nor a waiting request. An idle flow is kept for the next request of the
    /// same user.
    idle_flows: usize,
    /// Number of waiting requests of all flows.
    waiting: usize,
    /// Maximum number of waiting requests of all flows.
    waiting_max: usize,
    /// Sequence number of the next request to be queued.
    next_request_id: u64,
}

/// Seats, waiting requests and flows of one priority level.
#[derive(Debug)]
struct LevelState {
    limits: PriorityLevelLimits,
    /// Number of seats in use by the flows of the level.
    seats_in_use: usize,
    /// Number of waiting requests of the level.
    waiting: usize,
    /// Indices of the level's flows in `FairQueue::flows`, by the name of the flow.
    by_name: HashMap<Box<str>, usize>,
    /// The flows that have a waiting request and are below their seat limit. Each key consists of the flow's seats in
    /// use, the ID of its first waiting request, and the flow. The flow with the first key gets the next seat.
    ready: BTreeSet<(usize, QueuedRequestId, FlowId)>,
}

/// Seats and waiting requests of one flow.
#[derive(Debug)]
struct FlowState<T> {
    level: PriorityLevel,
    name: Box<str>,
    /// Number of seats that the flow has.
    seats: usize,
    /// Maximum number of seats that the flow may have at a time.
    seats_max: usize,
    /// The waiting requests, oldest first.
    waiting: BTreeMap<QueuedRequestId, T>,
    /// Number of requests of the flow that were queued since the flow was created.
    queued: u64,
    /// Number of requests of the flow that got no seat since the flow was created.
    rejected: u64,
}

/// The values of one flow that the metrics show.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FlowMetrics<'a> {
    pub(crate) level: PriorityLevel,
    /// Name of the flow, which is the name of its user.
    pub(crate) name: &'a str,
    /// Number of seats that the requests of the flow use.
    pub(crate) seats: usize,
    /// Number of requests of the flow that wait for a seat.
    pub(crate) waiting: usize,
    /// Number of requests of the flow that were queued since the flow was created.
    pub(crate) queued: u64,
    /// Number of requests of the flow that got no seat since the flow was created.
    pub(crate) rejected: u64,
}

/// Maximum number of idle flows that are kept. It is enough for the users of a large cluster. Each flow needs about 150
/// bytes.
const IDLE_FLOWS_MAX: usize = 8_192;

impl<T> FairQueue<T> {
    /// Creates the queue with limits in the order of [`PriorityLevel`]. The sum of the reserves must not exceed the
    /// number of seats.
    pub(crate) fn new(seats: usize, limits: [PriorityLevelLimits; 3], waiting_max: usize) -> Self {
        debug_assert!(limits.iter().map(|it| it.reserved).sum::<usize>() <= seats);
        let level = |limits| LevelState {
            limits,
            seats_in_use: 0,
            waiting: 0,
            by_name: HashMap::new(),
            ready: BTreeSet::new(),
        };
        Self {
            seats,
            seats_in_use: 0,
            levels: limits.map(level),
            flows: Vec::new(),
            free_slots: Vec::new(),
            idle_flows: 0,
            waiting: 0,
            waiting_max,
            next_request_id: 0,
        }
    }

    /// Gives the request of the flow `name` a seat if it need not wait. Returns `None` if it must wait.
    ///
    /// Rule: a request gets a seat immediately if three conditions hold. No other request of its flow waits. Its flow
    /// and its level are below their maximum. Its level is below its reserve, or more seats are free than the other
    /// levels have reserved and not used.
    pub(crate) fn try_acquire(
        &mut self,
        level: PriorityLevel,
        name: &str,
        seats_max: usize,
    ) -> Option<FlowId> {
        let flow_id = self.find_or_add_flow(level, name, seats_max);
        let flow = &self.flows[flow_id.0];
        if !flow.waiting.is_empty() || flow.seats_max <= flow.seats || !self.has_free_seat(level) {
            return None;
        }
        self.occupy_seat(flow_id);
        Some(flow_id)
    }

    /// Adds a request to the queue of the flow `name`. If the request cannot be queued, returns the reason and the
    /// request as an error.
    ///
    /// Rule: a request waits in the bounded queue of its flow. When the total number of waiting requests is at its
    /// maximum, the last request of the longest queue is evicted, so that one flow cannot keep others out. If the queue
    /// of the new request would become at least as long as the longest queue, the new request is rejected instead.
    pub(crate) fn enqueue(
        &mut self,
        level: PriorityLevel,
        name: &str,
        seats_max: usize,
        request: T,
    ) -> Result<EnqueuedRequest<T>, (RejectReason, T)> {
        let flow_id = self.find_or_add_flow(level, name, seats_max);
        let length = self.flows[flow_id.0].waiting.len();
        if self.levels[level as usize].limits.flow_queue_max <= length {
            return Err((RejectReason::QueueFull, request));
        }
        let mut evicted = None;
        if self.waiting_max <= self.waiting {
            let longest = self.flows.iter().enumerate().max_by_key(|(_, it)| it.waiting.len());
            match longest.map(|(at, it)| (FlowId(at), it.waiting.len())) {
                Some((longest, its_length)) if length + 1 < its_length => {
                    let last =
                        self.flows[longest.0].waiting.last_key_value().map(|(request_id, _)| *request_id);
                    evicted = last.and_then(|request_id| self.cancel_request(longest, request_id));
                }
                _ => return Err((RejectReason::QueueFull, request)),
            }
        }
        let request_id = QueuedRequestId(self.next_request_id);
        self.next_request_id += 1;
        self.remove_from_ready(flow_id);
        if self.is_idle(flow_id) {
            self.idle_flows -= 1;
        }
        self.flows[flow_id.0].waiting.insert(request_id, request);
        self.flows[flow_id.0].queued += 1;
        self.waiting += 1;
        self.levels[level as usize].waiting += 1;
        self.insert_flow_if_ready(flow_id);
        Ok(EnqueuedRequest { flow: flow_id, request_id, evicted })
    }

    /// Removes a request from its queue and returns it. Returns `None` if the request no longer waits there.
    pub(crate) fn cancel_request(&mut self, flow_id: FlowId, request_id: QueuedRequestId) -> Option<T> {
        self.remove_from_ready(flow_id);
        let request = self.flows[flow_id.0].waiting.remove(&request_id);
        if request.is_some() {
            self.waiting -= 1;
            let level = self.flows[flow_id.0].level;
            self.levels[level as usize].waiting -= 1;
            if self.is_idle(flow_id) {
                self.idle_flows += 1;
            }
        }
        self.insert_flow_if_ready(flow_id);
        request
    }

    /// Releases a seat of a flow. The caller then calls [`FairQueue::dispatch_next`] until it returns `None`.
    pub(crate) fn release_seat(&mut self, flow_id: FlowId) {
        self.remove_from_ready(flow_id);
        let flow = &mut self.flows[flow_id.0];
        flow.seats -= 1;
        self.levels[flow.level as usize].seats_in_use -= 1;
        self.seats_in_use -= 1;
        if self.is_idle(flow_id) {
            self.idle_flows += 1;
        }
        self.insert_flow_if_ready(flow_id);
    }

    /// Gives a free seat to a waiting request, and returns that request and its flow. Returns `None` if no seat is free
    /// or no request waits for it.
    ///
    /// Rule: a free seat goes to the first level that may take it, in the order system, workload, anonymous. Within
    /// that level, it goes to the flow with the fewest seats in use. If several flows have equally few, it goes to the
    /// request that has waited longest.
    pub(crate) fn dispatch_next(&mut self) -> Option<(FlowId, T)> {
        if self.waiting == 0 {
            return None;
        }
        for level in PriorityLevel::ALL {
            if !self.has_free_seat(level) {
                continue;
            }
            let Some(&(_, request_id, flow_id)) = self.levels[level as usize].ready.first() else { continue };
            let request = self.cancel_request(flow_id, request_id)?;
            self.occupy_seat(flow_id);
            return Some((flow_id, request));
        }
        None
    }

    /// Counts a request of the flow `name` that got no seat, for the metrics.
    pub(crate) fn count_rejection(&mut self, level: PriorityLevel, name: &str, seats_max: usize) {
        let flow_id = self.find_or_add_flow(level, name, seats_max);
        self.flows[flow_id.0].rejected += 1;
    }

    /// Returns the number of seats that the requests of the level use.
    pub(crate) fn seats_in_use(&self, level: PriorityLevel) -> usize {
        self.levels[level as usize].seats_in_use
    }

    /// Returns the number of requests of the level that wait for a seat.
    pub(crate) fn waiting_requests(&self, level: PriorityLevel) -> usize {
        self.levels[level as usize].waiting
    }

    /// Returns the metrics of the flows that have a seat, or that have had a request queued or rejected.
    pub(crate) fn flow_metrics(&self) -> impl Iterator<Item = FlowMetrics<'_>> {
        let is_shown = |it: &&FlowState<T>| 0 < it.seats || 0 < it.queued || 0 < it.rejected;
        self.flows.iter().filter(is_shown).map(|it| FlowMetrics {
            level: it.level,
            name: &it.name,
            seats: it.seats,
            waiting: it.waiting.len(),
            queued: it.queued,
            rejected: it.rejected,
        })
    }

    /// Whether a request of the level may get a seat now. A level below its reserve may. A level between its reserve
    /// and its maximum may if more seats are free than the other levels have reserved and not used.
    fn has_free_seat(&self, level: PriorityLevel) -> bool {
        let own = &self.levels[level as usize];
        if own.limits.max <= own.seats_in_use {
            return false;
        }
        if own.seats_in_use < own.limits.reserved {
            return true;
        }
        let of_others = PriorityLevel::ALL.into_iter().filter(|it| *it != level).map(|it| {
            let other = &self.levels[it as usize];
            other.limits.reserved.saturating_sub(other.seats_in_use)
        });
        of_others.sum::<usize>() < self.seats - self.seats_in_use
    }

    fn occupy_seat(&mut self, flow_id: FlowId) {
        self.remove_from_ready(flow_id);
        if self.is_idle(flow_id) {
            self.idle_flows -= 1;
        }
        let flow = &mut self.flows[flow_id.0];
        flow.seats += 1;
        self.levels[flow.level as usize].seats_in_use += 1;
        self.seats_in_use += 1;
        self.insert_flow_if_ready(flow_id);
    }

    /// Returns the flow of this level and name. Adds the flow with the seat limit `seats_max` if it does not exist.
    /// Before it adds a flow, it removes all idle flows if there are `IDLE_FLOWS_MAX` of them.
    fn find_or_add_flow(&mut self, level: PriorityLevel, name: &str, seats_max: usize) -> FlowId {
        if let Some(&at) = self.levels[level as usize].by_name.get(name) {
            return FlowId(at);
        }
        if IDLE_FLOWS_MAX <= self.idle_flows {
            self.remove_idle_flows();
        }
        let flow = FlowState {
            level,
            name: name.into(),
            seats: 0,
            seats_max,
            waiting: BTreeMap::new(),
            queued: 0,
            rejected: 0,
        };
        let at = match self.free_slots.pop() {
            Some(at) => {
                self.flows[at] = flow;
                at
            }
            None => {
                self.flows.push(flow);
                self.flows.len() - 1
            }
        };
        self.levels[level as usize].by_name.insert(name.into(), at);
        self.idle_flows += 1;
        FlowId(at)
    }

    /// Whether the flow has neither a seat nor a waiting request.
    fn is_idle(&self, flow_id: FlowId) -> bool {
        let flow = &self.flows[flow_id.0];
        flow.seats == 0 && flow.waiting.is_empty()
    }

    /// Removes all idle flows, so that their slots in `flows` can be reused.
    fn remove_idle_flows(&mut self) {
        let flows = &mut self.flows;
        for level in &mut self.levels {
            level.by_name.retain(|_, at| {
                let flow = &mut flows[*at];
                let is_kept = 0 < flow.seats || !flow.waiting.is_empty();
                if !is_kept {
                    flow.name = Box::default();
                    (flow.queued, flow.rejected) = (0, 0);
                    self.free_slots.push(*at);
                }
                is_kept
            });
        }
        self.idle_flows = 0;
    }

    /// Returns the flow's level and its key in `LevelState::ready`, or `None` if the flow has no waiting request or is
    /// at its seat limit.
    fn ready_key(&self, flow_id: FlowId) -> Option<(PriorityLevel, (usize, QueuedRequestId, FlowId))> {
        let flow = &self.flows[flow_id.0];
        let (first, _) = flow.waiting.first_key_value()?;
        (flow.seats < flow.seats_max).then_some((flow.level, (flow.seats, *first, flow_id)))
    }

    /// Removes the flow from `LevelState::ready` if it is there. Called before its seats or waiting requests change,
    /// because they are part of the key.
    fn remove_from_ready(&mut self, flow_id: FlowId) {
        if let Some((level, key)) = self.ready_key(flow_id) {
            self.levels[level as usize].ready.remove(&key);
        }
    }

    /// Inserts the flow into `LevelState::ready` if it has a waiting request and is below its seat limit. Called after
    /// its seats or waiting requests have changed.
    fn insert_flow_if_ready(&mut self, flow_id: FlowId) {
        if let Some((level, key)) = self.ready_key(flow_id) {
            self.levels[level as usize].ready.insert(key);
        }
    }
}

#[cfg(test)]
mod tests;
