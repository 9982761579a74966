//! Read barriers. A caller of a read barrier is answered when this server has published all writes that were
//! acknowledged before the call. A barrier begins with a linearizable read of the keys of all [lanes](crate::lane).
//! Every transaction that writes an object also writes such a key, so the highest etcd revision of these keys is at
//! least that of the last write. The callers then wait until the events up to this revision are published.

use std::time::Duration;

use muster_store::{LogError, OnReadBarrier, ReadBarrierError, Revision};
use tokio::time::Instant;

use super::waiting_callers::WaitingCallers;
use super::{Completion, Driver, RESPONSE_TIMEOUT};
use crate::api::{EtcdApi, EtcdError};
use crate::cluster_state::ObservedRevisions;
use crate::proto::RangeRequest;

/// Time without a read barrier after which the driver starts one itself, to check that the watch delivers events.
const WATCH_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// A caller of the read barrier.
pub(super) struct BarrierCaller {
    /// The time at which the caller gets an error if it still waits.
    pub(super) deadline: Instant,
    /// The published revision is raised to this revision before the caller is answered, if etcd has reached it. 0 if
    /// the caller needs no revision.
    pub(super) revision: Revision,
    pub(super) done: OnReadBarrier,
}

/// The result of the linearizable read with which a read barrier begins.
pub(super) struct BarrierRead {
    /// The highest etcd revision of all lanes, which is at least the revision of the last write of an object. 0 if
    /// there is no lane.
    pub(super) last_write: i64,
    /// The etcd revision at the time of the read.
    pub(super) current: i64,
    /// The etcd revision up to which this server had published all events when the read began.
    pub(super) applied_before: i64,
}

impl<A: EtcdApi> Driver<A> {
    /// Adds a read barrier without a caller if no barrier was started for [`WATCH_CHECK_INTERVAL`]. If the watch is
    /// silent although another server writes, this barrier becomes overdue, and the watch is replaced.
    pub(super) fn probe_watch(&mut self) {
        if WATCH_CHECK_INTERVAL <= self.last_barrier.elapsed() {
            self.barriers.push(BarrierCaller::new(0, Box::new(|_| ())));
        }
    }

    /// Starts a read barrier if callers wait for one and no barrier is in progress. Callers that come while a barrier
    /// is in progress share the next barrier, because the read in progress may be older than their calls.
    pub(super) fn start_barrier(&mut self) {
        if self.barriers.is_empty() || self.barriers_in_progress.is_some() {
            return;
        }
        self.barriers_in_progress = Some(std::mem::take(&mut self.barriers));
        self.last_barrier = Instant::now();
        let (api, lanes, applied) = (self.api.clone(), self.keys.lanes(), self.applied);
        self.operations.push(Box::pin(async move {
            // The read is linearizable, because the request does not set `serializable`.
            let request = RangeRequest {
                key: lanes.start,
                range_end: lanes.end,
                keys_only: true,
                ..RangeRequest::default()
            };
            let read = tokio::time::timeout(RESPONSE_TIMEOUT, api.range(request)).await;
            let read =
                read.unwrap_or_else(|_| Err(EtcdError::NoResponse { why: "the read timed out".to_owned() }));
            Completion::Barrier(read.map(|it| BarrierRead {
                last_write: it.kvs.iter().map(|kv| kv.mod_revision).max().unwrap_or(0),
                current: it.header.map_or(0, |it| it.revision),
                applied_before: applied,
            }))
        }));
    }

    /// Makes the callers of a barrier wait for the events up to the last write, or answers them with the error of the
    /// read. Fails if etcd no longer has revisions that this server has seen, or if the members belong to another etcd
    /// cluster.
    pub(super) fn handle_barrier(&mut self, result: Result<BarrierRead, EtcdError>) -> Result<(), LogError> {
        if let Ok(read) = &result {
            ObservedRevisions { revision: read.applied_before, ..self.observed_revisions() }
                .check_revision(read.current)?;
        }
        let callers = self.barriers_in_progress.take().unwrap_or_default();
        match result {
            Ok(read) => {
                for mut caller in callers {
                    // etcd has not given this revision to a write yet.
                    if read.current < self.keys.etcd_revision(caller.revision) {
                        caller.revision = 0;
                    }
                    self.wait_until_applied(read.last_write, WaitingCallers::Barrier(caller));
                }
            }
            Err(EtcdError::Foreign { why }) => {
                self.barriers.extend(callers);
                return Err(LogError::Remote { why });
            }
            Err(error) => {
                let why = format!("{error}: check etcd");
                for it in callers {
                    (it.done)(Err(ReadBarrierError { why: why.clone() }));
                }
            }
        }
        Ok(())
    }
}

impl BarrierCaller {
    pub(super) fn new(revision: Revision, done: OnReadBarrier) -> Self {
        Self { deadline: Instant::now() + RESPONSE_TIMEOUT, revision, done }
    }
}
