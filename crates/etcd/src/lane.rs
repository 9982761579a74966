//! Lanes: how a server learns the outcome of a transaction whose response was lost.
//!
//! A transaction without a response may have been applied, or may be applied later. It cannot simply be sent again,
//! even if it has compares. For example, if a create was applied and its object was deleted since, the second attempt
//! would create the object again.
//!
//! So every transaction also compares and writes the key of its lane, and a lane has one transaction at a time. Of all
//! requests that compare the lane's key with the same revision, at most one is applied. The value of the key says which
//! one: it is the number of a transaction, or empty if the request only moved the lane on. To move a lane on is to
//! write its key, so that the key has a new revision. After that, no earlier request in the lane can be applied any
//! more.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::api::{EtcdApi, EtcdError};
use crate::keyspace::KeyRange;
use crate::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse,
    request_op, response_op,
};

/// Delay before a transaction without a response is sent again for the first time. The delay doubles with each further
/// attempt, up to [`RESEND_DELAY_MAX`].
const RESEND_DELAY_MIN: Duration = Duration::from_millis(20);

/// Maximum delay before a transaction without a response is sent again.
const RESEND_DELAY_MAX: Duration = Duration::from_millis(500);

/// Maximum number of lanes that one call of [`delete_stale_lanes`] deletes. etcd allows 128 operations in a
/// transaction.
const DELETED_LANES_MAX: usize = 100;

/// A lane: a key of this server that every transaction in the lane compares and writes. At most one transaction is in
/// progress in a lane, so the key shows whether a transaction without a response was applied.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) key: Bytes,
    /// The etcd revision of the last write of the lane's key. 0 if the key is not created yet or was deleted.
    pub(crate) revision: i64,
    /// The number of the next transaction in this lane, counted from 0. The transaction writes it as the value of the
    /// lane's key.
    pub(crate) next_number: u64,
}

/// The outcome of a transaction.
#[derive(Debug)]
pub(crate) enum LaneOutcome {
    /// The transaction was applied at this etcd revision.
    Applied { revision: i64 },
    /// The transaction was not applied and will not be, because a compare failed. `response` has the results of the
    /// failure operations. `lane_revision` is the current etcd revision of the lane's key.
    Refused { response: TxnResponse, lane_revision: i64 },
    /// The transaction was not applied and will not be: etcd rejected it, or no member could execute it before the
    /// deadline.
    Rejected { error: EtcdError },
    /// The outcome was not known at the deadline. The transaction may have been applied or may be applied later.
    Unknown { error: EtcdError },
}

impl Lane {
    /// Executes a transaction in this lane, and repeats it until its outcome is known or the deadline is reached. If a
    /// compare fails, etcd executes the operations in `failure`. This function adds the compare and the operations for
    /// the lanes, so `compare` and `success` may have at most 127 elements each, and `failure` at most 126. Also
    /// returns the lane, with the revision that the transaction compared. Exception: after [`LaneOutcome::Rejected`],
    /// with the last known revision of the lane's key.
    ///
    /// `lanes` is the range of the lanes of all servers. If the transaction is refused, its last response operation
    /// lists the keys in this range, see [`last_write_revision`].
    pub(crate) async fn execute(
        mut self,
        api: &impl EtcdApi,
        lanes: &KeyRange,
        request: TxnRequest,
        deadline: Instant,
    ) -> (Self, LaneOutcome) {
        let mut attempts = Attempts { deadline, delay: RESEND_DELAY_MIN };
        if deadline <= Instant::now() {
            return (self, LaneOutcome::Rejected { error: timed_out() });
        }
        let outcome = match self.create(api, &mut attempts).await {
            Ok(()) => self.execute_in_existing_lane(api, lanes, request, &mut attempts).await,
            Err(error) => LaneOutcome::Rejected { error },
        };
        (self, outcome)
    }

    /// Creates the key of the lane if it does not exist, so that [`Self::revision`] is above zero.
    ///
    /// Rule: a transaction compares the revision of an existing lane key, never the absence of the key. In another etcd
    /// cluster this key does not have this revision. So a member of another cluster, which `--etcd` names by mistake,
    /// cannot apply the transaction. Nor can etcd apply a late attempt after the key was deleted.
    async fn create(&mut self, api: &impl EtcdApi, attempts: &mut Attempts) -> Result<(), EtcdError> {
        while self.revision == 0 {
            match attempts.call(self.advance_once(api)).await {
                Ok((revision, _)) => self.revision = revision,
                Err(error) if error.is_final() || !attempts.pause().await => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Executes a transaction in a lane whose key exists, see [`Self::execute`]. If etcd rejected the transaction
    /// because its quota is exceeded ([`EtcdError::NoSpace`]), sets [`Self::revision`] to the etcd revision of the last
    /// write of the lane's key.
    async fn execute_in_existing_lane(
        &mut self,
        api: &impl EtcdApi,
        lanes: &KeyRange,
        mut request: TxnRequest,
        attempts: &mut Attempts,
    ) -> LaneOutcome {
        request.compare.push(revision_is(self.key.clone(), self.revision));
        let number: Bytes = self.next_number.to_string().into();
        let is_put = |it: &RequestOp| matches!(it.request, Some(request_op::Request::RequestPut(_)));
        let needs_quota = request.success.iter().any(is_put);
        let write = put(self.key.clone(), number.clone());
        request.success.push(if needs_quota { write } else { without_quota(write) });
        request.failure.push(get(self.key.clone()));
        request.failure.push(keys_only_range_op(lanes.start.clone(), lanes.end.clone()));
        // Whether an attempt had no response, so that it may have been applied or may be applied later.
        let mut is_unanswered = false;
        loop {
            let error = match attempts.call(api.txn(request.clone())).await {
                Ok(response) if response.succeeded => {
                    return LaneOutcome::Applied { revision: header_revision(&response) };
                }
                Ok(response) => {
                    match found_lane(&response) {
                        // An earlier attempt was applied.
                        (revision, value) if revision != self.revision && value == number => {
                            return LaneOutcome::Applied { revision };
                        }
                        (0, _) if is_unanswered => return lane_deleted(),
                        // No earlier attempt was applied or can be: the lane has moved on, or there was none.
                        (revision, _) if revision != self.revision || !is_unanswered => {
                            return LaneOutcome::Refused { response, lane_revision: revision };
                        }
                        // An earlier attempt may still be applied. After the lane has moved on, it cannot.
                        _ => match attempts.call(self.advance_once(api)).await {
                            Ok((revision, value)) if value == number => {
                                return LaneOutcome::Applied { revision };
                            }
                            Ok((revision, _)) => {
                                return LaneOutcome::Refused { response, lane_revision: revision };
                            }
                            Err(error) => error,
                        },
                    }
                }
                // Rule: etcd applies the transaction that exceeds its quota, and answers it with the same error as the
                // later ones, which it does not apply. The lane shows which of the two this was. The attempt with this
                // answer has its outcome, so reading the lane is enough unless an earlier attempt had no response.
                // Upstream: `quotaApplierV3.Txn` and `applierV3Capped.Txn`.
                Err(EtcdError::NoSpace) => {
                    let found = match is_unanswered {
                        true => attempts.call(self.advance_once(api)).await,
                        false => attempts.call(self.read(api)).await,
                    };
                    match found {
                        Ok((revision, value)) if value == number => {
                            return LaneOutcome::Applied { revision };
                        }
                        Ok((0, _)) => return lane_deleted(),
                        Ok((revision, _)) => {
                            self.revision = revision;
                            return LaneOutcome::Rejected { error: EtcdError::NoSpace };
                        }
                        Err(error) => {
                            is_unanswered = true;
                            error
                        }
                    }
                }
                Err(error) => {
                    if error.is_final() && !is_unanswered {
                        return LaneOutcome::Rejected { error };
                    }
                    is_unanswered |= matches!(error, EtcdError::NoResponse { .. });
                    error
                }
            };
            if !attempts.pause().await {
                return match is_unanswered {
                    true => LaneOutcome::Unknown { error },
                    false => LaneOutcome::Rejected { error },
                };
            }
        }
    }

    /// Returns the lane for the next transaction. `revision` is the etcd revision of the lane's key after the last
    /// transaction.
    pub(crate) fn moved_to(self, revision: i64) -> Self {
        Self { key: self.key, revision, next_number: self.next_number + 1 }
    }

    /// Moves the lane on, so that no earlier transaction in it can be applied any more. Repeats the request until it
    /// succeeds. Returns the new revision of the lane.
    pub(crate) async fn advance(&self, api: &impl EtcdApi) -> i64 {
        let mut delay = RESEND_DELAY_MIN;
        loop {
            match self.advance_once(api).await {
                Ok((revision, _)) => return revision,
                Err(error) => tracing::debug!(%error, "cannot move a lane on yet"),
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(RESEND_DELAY_MAX);
        }
    }

    /// Moves the lane on, unless the revision of its key has already changed. Returns the etcd revision and the value
    /// that the key has then, or 0 and an empty value if the key was deleted.
    async fn advance_once(&self, api: &impl EtcdApi) -> Result<(i64, Bytes), EtcdError> {
        let request = TxnRequest {
            compare: vec![revision_is(self.key.clone(), self.revision)],
            success: vec![without_quota(put(self.key.clone(), Bytes::new()))],
            failure: vec![get(self.key.clone())],
        };
        let response = api.txn(request).await?;
        Ok(match response.succeeded {
            true => (header_revision(&response), Bytes::new()),
            false => revision_and_value(found_keys(&response, 0)),
        })
    }

    /// Reads the etcd revision and the value of the lane's key. Returns 0 and an empty value if the key does not exist.
    async fn read(&self, api: &impl EtcdApi) -> Result<(i64, Bytes), EtcdError> {
        let request = RangeRequest { key: self.key.clone(), ..RangeRequest::default() };
        Ok(revision_and_value(&api.range(request).await?.kvs))
    }
}

/// The attempts to execute a transaction, up to a deadline.
struct Attempts {
    deadline: Instant,
    /// The delay before the next attempt.
    delay: Duration,
}

impl Attempts {
    /// Waits for the result of a call, at most until the deadline.
    async fn call<T>(&self, call: impl Future<Output = Result<T, EtcdError>>) -> Result<T, EtcdError> {
        tokio::time::timeout_at(self.deadline, call).await.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Waits before the next attempt. Returns `false` if there is no time for another attempt.
    async fn pause(&mut self) -> bool {
        let next = Instant::now() + self.delay;
        if self.deadline <= next {
            return false;
        }
        tokio::time::sleep_until(next).await;
        self.delay = (self.delay * 2).min(RESEND_DELAY_MAX);
        // The process may have been stopped in the meantime.
        Instant::now() < self.deadline
    }
}

fn timed_out() -> EtcdError {
    EtcdError::NoResponse { why: "the time for the request is over".to_owned() }
}

/// Returns the outcome of a transaction whose lane key was deleted by [`delete_stale_lanes`]. It is unknown, because
/// only this key showed whether the transaction was applied.
fn lane_deleted() -> LaneOutcome {
    let why = "the server was stopped or cut off for too long".to_owned();
    LaneOutcome::Unknown { error: EtcdError::NoResponse { why } }
}

/// Deletes lanes that were last written before the etcd revision `before`, at most [`DELETED_LANES_MAX`] of them. Their
/// servers have ended, or have written nothing since. Deletes no lane if one of these lanes is written at the same
/// time. A server whose lane was deleted creates it again with its next transaction.
///
/// The transaction writes `marker`, a key among the lanes that this function never deletes, so that the highest
/// revision of all lanes does not decrease.
pub(crate) async fn delete_stale_lanes(
    api: &impl EtcdApi,
    lanes: &KeyRange,
    marker: Bytes,
    before: i64,
) -> Result<(), EtcdError> {
    let request = RangeRequest {
        key: lanes.start.clone(),
        range_end: lanes.end.clone(),
        keys_only: true,
        ..RangeRequest::default()
    };
    let found = api.range(request).await?.kvs;
    let stale = found.into_iter().filter(|it| it.mod_revision < before && it.key != marker);
    let stale: Vec<KeyValue> = stale.take(DELETED_LANES_MAX).collect();
    if stale.is_empty() {
        return Ok(());
    }
    let request = TxnRequest {
        compare: stale.iter().map(|it| revision_is(it.key.clone(), it.mod_revision)).collect(),
        success: stale
            .into_iter()
            .map(|it| delete(it.key))
            .chain([without_quota(put(marker, Bytes::new()))])
            .collect(),
        failure: Vec::new(),
    };
    // If a server has used its lane since, the next call deletes the others.
    api.txn(request).await.map(drop)
}

/// Returns the comparison "the key was last modified at this etcd revision". A key that does not exist has revision 0.
pub(crate) fn revision_is(key: Bytes, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key,
        target_union: Some(TargetUnion::ModRevision(revision)),
        range_end: Bytes::new(),
    }
}

/// Returns the comparison "the key has this value".
pub(crate) fn value_is(key: Bytes, value: Bytes) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Value.into(),
        key,
        target_union: Some(TargetUnion::Value(value)),
        range_end: Bytes::new(),
    }
}

/// Returns the comparison "the key was not modified after this etcd revision".
pub(crate) fn revision_is_at_most(key: Bytes, revision: i64) -> Compare {
    revisions_are_at_most(KeyRange { start: key, end: Bytes::new() }, revision)
}

/// Returns the comparison "no key in the range was modified after this etcd revision".
pub(crate) fn revisions_are_at_most(range: KeyRange, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Less.into(),
        target: CompareTarget::Mod.into(),
        key: range.start,
        target_union: Some(TargetUnion::ModRevision(revision + 1)),
        range_end: range.end,
    }
}

/// Returns the operation that writes a key.
pub(crate) fn put(key: Bytes, value: Bytes) -> RequestOp {
    RequestOp { request: Some(request_op::Request::RequestPut(PutRequest { key, value, lease: 0 })) }
}

/// Returns an operation that has the same effect as `operation`, and that etcd executes even if it has no space left.
///
/// Rule: without space, etcd rejects a transaction with a put, and executes a transaction that only deletes. A put in a
/// nested transaction does not count as a put. So objects can be deleted, although every transaction writes a lane, and
/// although most objects get a deletion timestamp first. These writes take little space, and the deletions free more.
/// Upstream: `applierV3Capped.Txn` and `costTxn`.
pub(crate) fn without_quota(operation: RequestOp) -> RequestOp {
    let nested = TxnRequest { success: vec![operation], ..TxnRequest::default() };
    RequestOp { request: Some(request_op::Request::RequestTxn(nested)) }
}

/// Returns the operation that deletes a key.
pub(crate) fn delete(key: Bytes) -> RequestOp {
    delete_range(KeyRange { start: key, end: Bytes::new() })
}

/// Returns the operation that deletes a range of keys.
pub(crate) fn delete_range(range: KeyRange) -> RequestOp {
    let request = DeleteRangeRequest { key: range.start, range_end: range.end };
    RequestOp { request: Some(request_op::Request::RequestDeleteRange(request)) }
}

/// Returns the operation that reads a key with its value.
pub(crate) fn get(key: Bytes) -> RequestOp {
    RequestOp {
        request: Some(request_op::Request::RequestRange(RangeRequest { key, ..RangeRequest::default() })),
    }
}

/// Returns the request that reads the first key of a range without its value.
pub(crate) fn first_key_request(range: KeyRange) -> RangeRequest {
    RangeRequest {
        key: range.start,
        range_end: range.end,
        limit: 1,
        keys_only: true,
        ..RangeRequest::default()
    }
}

/// Returns the operation that reads a range of keys without their values. If `end` is empty, reads only the key
/// `start`.
pub(crate) fn keys_only_range_op(start: Bytes, end: Bytes) -> RequestOp {
    let range = RangeRequest { key: start, range_end: end, keys_only: true, ..RangeRequest::default() };
    RequestOp { request: Some(request_op::Request::RequestRange(range)) }
}

/// Returns the keys and values that the operation with the index `operation` has read. Returns an empty slice if this
/// is not a range operation.
pub(crate) fn found_keys(response: &TxnResponse, operation: usize) -> &[KeyValue] {
    match response.responses.get(operation).and_then(|it| it.response.as_ref()) {
        Some(response_op::Response::ResponseRange(range)) => &range.kvs,
        _ => &[],
    }
}

/// Returns the etcd revision and the value of the lane's key from the response to a refused transaction, that is, a
/// transaction with a failed compare. Returns 0 and an empty value if the key does not exist.
fn found_lane(response: &TxnResponse) -> (i64, Bytes) {
    revision_and_value(found_keys(response, response.responses.len().saturating_sub(2)))
}

/// Returns the etcd revision and the value of the only key in `found`, or 0 and an empty value if `found` is empty.
fn revision_and_value(found: &[KeyValue]) -> (i64, Bytes) {
    found.first().map_or((0, Bytes::new()), |it| (it.mod_revision, it.value.clone()))
}

/// Returns the highest etcd revision of all lanes from the response to a refused transaction, that is, a transaction
/// with a failed compare. Every transaction that writes an object also writes a lane, so the returned revision is at
/// least the revision of the last write of an object.
pub(crate) fn last_write_revision(response: &TxnResponse) -> i64 {
    let operation = response.responses.len().saturating_sub(1);
    found_keys(response, operation).iter().map(|it| it.mod_revision).max().unwrap_or(0)
}

/// Returns the etcd revision in the header of a response. In the response to an applied transaction, it is the revision
/// at which the transaction was applied.
pub(crate) fn header_revision(response: &TxnResponse) -> i64 {
    response.header.as_ref().map_or(0, |it| it.revision)
}
