//! Fair queuing: chooses the waiting request that gets the next free seat. The code is pure: it uses no clock, no task
//! and no lock.
//!
//! The priority levels share the seats. Each level has a reserve and a maximum. Within a level a free seat goes to the
//! flow with the fewest seats in use, and among those flows to the request that has waited longest.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A group of flows that share a reserve of seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PriorityLevel {
    /// Node heartbeats, leases for leader election, and Muster's own controllers.
    System,
    /// Authenticated users.
    Workload,
    Anonymous,
}

impl PriorityLevel {
    pub(crate) const ALL: [Self; 3] = [Self::System, Self::Workload, Self::Anonymous];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Workload => "workload",
            Self::Anonymous => "anonymous",
        }
    }
}

/// Limits of one priority level: its seats, and the queue of each of its flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PriorityLevelLimits {
    /// Number of seats that the other levels leave free for this level.
    pub(crate) reserved: usize,
    /// Maximum number of seats that the level may use.
    pub(crate) max: usize,
    /// Maximum number of requests that wait in one flow of the level.
    pub(crate) flow_queue_max: usize,
}

/// Index of a flow. It is valid while the flow has a seat or a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowId(usize);

/// Sequence number of a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuedRequestId(u64);

/// Reason why a request got no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RejectReason {
    /// Too many requests of the flow, or of all flows, are waiting.
    QueueFull,
    /// No seat became free in time.
    TimeOut,
}

impl RejectReason {
    /// Returns the value of the metric label `reason`.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// A request that [`FairQueue::enqueue`] has queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EnqueuedRequest<T> {
    pub(crate) flow: FlowId,
    pub(crate) request_id: QueuedRequestId,
    /// The request that was evicted because the queues were full: the last one of the longest queue.
    pub(crate) evicted: Option<T>,
}

/// The queues of all flows, and the seats in use.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    seats: usize,
    seats_in_use: usize,
    levels: [LevelState; 3],
    flows: Vec<FlowState<T>>,
    /// Indices in `flows` that can be reused.
    free_slots: Vec<usize>,
    /// Number of flows that have neither a seat nor a waiting request. They are kept for the next request of the same
    /// user.
    idle_flows: usize,
    waiting: usize,
    waiting_max: usize,
    next_request_id: u64,
}

/// Seats, waiting requests and flows of one priority level.
#[derive(Debug)]
struct LevelState {
    limits: PriorityLevelLimits,
    seats_in_use: usize,
    waiting: usize,
    /// Indices of the level's flows in `FairQueue::flows`, by the name of the flow.
    by_name: HashMap<Box<str>, usize>,
    /// Flows that have a waiting request and may take a seat: seats in use, ID of the first waiting request, flow.
    ready: BTreeSet<(usize, QueuedRequestId, FlowId)>,
}

/// Seats and waiting requests of one flow.
#[derive(Debug)]
struct FlowState<T> {
    level: PriorityLevel,
    name: Box<str>,
    seats: usize,
    seats_max: usize,
    waiting: BTreeMap<QueuedRequestId, T>,
    /// Number of requests that were queued since the flow was created.
    queued: u64,
    /// Number of requests that got no seat since the flow was created.
    rejected: u64,
}

/// Metrics of one flow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FlowMetrics<'a> {
    pub(crate) level: PriorityLevel,
    pub(crate) name: &'a str,
    pub(crate) seats: usize,
    pub(crate) waiting: usize,
    pub(crate) queued: u64,
    pub(crate) rejected: u64,
}

/// Maximum number of idle flows that are kept. It is enough for the users of a large cluster, at some 150 bytes each.
const IDLE_FLOWS_MAX: usize = 8_192;

impl<T> FairQueue<T> {
    /// Creates the queue. The sum of the reserves must not exceed the number of seats.
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

    /// Rule: a request gets a seat immediately if its flow and its level are below their maximum and the remaining
    /// seats cover the reserves of the other levels. It never gets a seat before a waiting request of the same flow.
    pub(crate) fn try_acquire(
        &mut self,
        level: PriorityLevel,
        name: &str,
        seats_max: usize,
    ) -> Option<FlowId> {
        let id = self.find_or_add_flow(level, name, seats_max);
        let flow = &self.flows[id.0];
        if !flow.waiting.is_empty() || flow.seats_max <= flow.seats || !self.has_free_seat(level) {
            return None;
        }
        self.occupy_seat(id);
        Some(id)
    }

    /// Rule: a request waits in the bounded queue of its flow. When all queues together are full, the last
    /// request of the longest queue is evicted, so that one flow cannot keep others out.
    pub(crate) fn enqueue(
        &mut self,
        level: PriorityLevel,
        name: &str,
        seats_max: usize,
        request: T,
    ) -> Result<EnqueuedRequest<T>, (RejectReason, T)> {
        let id = self.find_or_add_flow(level, name, seats_max);
        let length = self.flows[id.0].waiting.len();
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
        self.remove_ready_flow(id);
        if self.is_idle(id) {
            self.idle_flows -= 1;
        }
        self.flows[id.0].waiting.insert(request_id, request);
        self.flows[id.0].queued += 1;
        self.waiting += 1;
        self.levels[level as usize].waiting += 1;
        self.insert_ready_flow(id);
        Ok(EnqueuedRequest { flow: id, request_id, evicted })
    }

    /// Removes a request from its queue. Returns `None` if the request has a seat already.
    pub(crate) fn cancel_request(&mut self, id: FlowId, request_id: QueuedRequestId) -> Option<T> {
        self.remove_ready_flow(id);
        let request = self.flows[id.0].waiting.remove(&request_id);
        if request.is_some() {
            self.waiting -= 1;
            let level = self.flows[id.0].level;
            self.levels[level as usize].waiting -= 1;
            if self.is_idle(id) {
                self.idle_flows += 1;
            }
        }
        self.insert_ready_flow(id);
        request
    }

    /// Releases a seat. The caller then calls [`FairQueue::dispatch_next`] until it returns `None`.
    pub(crate) fn release_seat(&mut self, id: FlowId) {
        self.remove_ready_flow(id);
        let flow = &mut self.flows[id.0];
        flow.seats -= 1;
        self.levels[flow.level as usize].seats_in_use -= 1;
        self.seats_in_use -= 1;
        if self.is_idle(id) {
            self.idle_flows += 1;
        }
        self.insert_ready_flow(id);
    }

    /// Rule: a free seat goes to the first level that may take it, in the order system, workload, anonymous. Within
    /// that level, it goes to the flow with the fewest seats in use, and among those flows to the request that has
    /// waited longest.
    pub(crate) fn dispatch_next(&mut self) -> Option<(FlowId, T)> {
        if self.waiting == 0 {
            return None;
        }
        for level in PriorityLevel::ALL {
            if !self.has_free_seat(level) {
                continue;
            }
            let Some(&(_, request_id, id)) = self.levels[level as usize].ready.first() else { continue };
            let request = self.cancel_request(id, request_id)?;
            self.occupy_seat(id);
            return Some((id, request));
        }
        None
    }

    /// Counts a request of this flow that got no seat, for the metrics.
    pub(crate) fn count_rejection(&mut self, level: PriorityLevel, name: &str, seats_max: usize) {
        let id = self.find_or_add_flow(level, name, seats_max);
        self.flows[id.0].rejected += 1;
    }

    pub(crate) fn seats_in_use(&self, level: PriorityLevel) -> usize {
        self.levels[level as usize].seats_in_use
    }

    pub(crate) fn waiting_requests(&self, level: PriorityLevel) -> usize {
        self.levels[level as usize].waiting
    }

    /// Returns the metrics of the flows that have a seat or had to wait for one.
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

    fn occupy_seat(&mut self, id: FlowId) {
        self.remove_ready_flow(id);
        if self.is_idle(id) {
            self.idle_flows -= 1;
        }
        let flow = &mut self.flows[id.0];
        flow.seats += 1;
        self.levels[flow.level as usize].seats_in_use += 1;
        self.seats_in_use += 1;
        self.insert_ready_flow(id);
    }

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

    fn is_idle(&self, id: FlowId) -> bool {
        let flow = &self.flows[id.0];
        flow.seats == 0 && flow.waiting.is_empty()
    }

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

    /// Returns the flow's key in `ready`. `None` if the flow has no waiting request or may not take a seat.
    fn ready_key(&self, id: FlowId) -> Option<(PriorityLevel, (usize, QueuedRequestId, FlowId))> {
        let flow = &self.flows[id.0];
        let (first, _) = flow.waiting.first_key_value()?;
        (flow.seats < flow.seats_max).then_some((flow.level, (flow.seats, *first, id)))
    }

    fn remove_ready_flow(&mut self, id: FlowId) {
        if let Some((level, key)) = self.ready_key(id) {
            self.levels[level as usize].ready.remove(&key);
        }
    }

    fn insert_ready_flow(&mut self, id: FlowId) {
        if let Some((level, key)) = self.ready_key(id) {
            self.levels[level as usize].ready.insert(key);
        }
    }
}

#[cfg(test)]
mod tests;
