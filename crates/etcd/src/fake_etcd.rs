//! An etcd in memory with injected faults, for tests of the driver under virtual time.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::api::{EtcdApi, EtcdError, WatchStream};
use crate::keyspace::KeyRange;
use crate::lane;
use crate::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::event::EventType;
use crate::proto::{
    CompactionRequest, Event, KeyValue, RangeRequest, RangeResponse, RequestOp, ResponseHeader, ResponseOp,
    TxnRequest, TxnResponse, WatchCreateRequest, WatchResponse, request_op, response_op,
};

/// Time for which the client of etcd waits for the response to a call.
const CALL_TIMEOUT: Duration = Duration::from_millis(1900);

/// Rates of injected faults, per thousand calls or watch responses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FaultRates {
    /// The request is lost.
    pub(crate) lost_request: u64,
    /// The request is applied, and its response is lost.
    pub(crate) lost_response: u64,
    /// The caller gets no response, and the request is applied after a delay.
    pub(crate) late: u64,
    /// A watch ends after a response.
    pub(crate) broken_watch: u64,
    /// The events of a revision come in fragments.
    pub(crate) fragment: u64,
    /// A watch is silent for a while and ends, and etcd compacts its history in the meantime.
    pub(crate) outage: u64,
    /// A transaction with a put exceeds the quota. Then the alarm NOSPACE is active for a while.
    pub(crate) no_space: u64,
}

/// An etcd cluster in memory. Clones share its state.
#[derive(Clone, Default)]
pub(crate) struct FakeEtcd(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    cluster_id: u64,
    revision: i64,
    keys: BTreeMap<Bytes, KeyValue>,
    /// The events of each revision, in the order of the operations.
    history: BTreeMap<i64, Vec<Event>>,
    compacted: i64,
    /// The open watches, in the order in which they were opened.
    watches: Vec<Watch>,
    faults: FaultRates,
    /// Delay after which the next transaction of commits is applied. Its response is lost. `None` if it is not delayed.
    next_delay: Option<Duration>,
    /// Delay of the response to the next transaction of commits. `None` if it is not delayed.
    next_response_delay: Option<Duration>,
    /// A key and a delay. The next transaction that compares this key is applied after the delay, and its response is
    /// lost.
    next_delay_of_key: Option<(&'static str, Duration)>,
    /// Whether the response to the next transaction of commits is lost.
    loses_next_response: bool,
    /// Number of transactions that were executed.
    transactions: usize,
    /// Maximum total size in bytes of the values that a range request returns. A request for larger values gets no
    /// response. `None` means no limit.
    range_bytes_max: Option<usize>,
    /// Number of range requests that were executed.
    ranges: usize,
    /// Whether watches are slow: each revision is sent in a response of its own, so that a long history takes a long
    /// time.
    is_slow: bool,
    /// Number of watches that were opened so far.
    watches_opened: usize,
    /// Transactions that put this key are rejected.
    rejected_key: Option<&'static str>,
    /// Whether range requests get no response.
    is_silent: bool,
    /// Whether all transactions are lost. Their callers wait for [`CALL_TIMEOUT`].
    is_cut_off: bool,
    /// Whether the alarm NOSPACE is active.
    is_full: bool,
    /// Whether the next transaction with a put exceeds the quota.
    is_almost_full: bool,
    random: u64,
}

struct Watch {
    /// The revision of the next event to send.
    next: i64,
    sender: mpsc::UnboundedSender<Result<WatchResponse, EtcdError>>,
    /// Whether events are held back until [`FakeEtcd::resume_watches`] is called.
    is_stopped: bool,
    /// Whether the events of the next revision are lost.
    loses_next: bool,
}

impl FakeEtcd {
    pub(crate) fn new(seed: u64, faults: FaultRates) -> Self {
        let state = State {
            cluster_id: 7,
            revision: 1,
            faults,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Gives the etcd cluster another ID, as if it was replaced by a new or a restored cluster.
    pub(crate) fn set_cluster_id(&self, cluster_id: u64) {
        self.0.lock().unwrap().cluster_id = cluster_id;
    }

    pub(crate) fn cluster_id(&self) -> u64 {
        self.0.lock().unwrap().cluster_id
    }

    /// Compacts all revisions before the current one, as another client of etcd may do.
    pub(crate) fn compact_to_current(&self) {
        let mut state = self.0.lock().unwrap();
        state.compacted = state.revision;
    }

    /// Resets etcd to its state at an earlier revision, as the restore of a snapshot does.
    pub(crate) fn restore(&self, revision: i64) {
        let mut state = self.0.lock().unwrap();
        state.keys = state.keys_at(revision);
        state.history.retain(|at, _| *at <= revision);
        state.compacted = state.compacted.min(revision);
        state.revision = revision;
    }

    /// Restores a snapshot that was made at an earlier revision, as `etcdutl snapshot restore` with `--bump-revision` and
    /// `--mark-compacted` does: `bump` is added to the revision, and all revisions before the result are compacted. The
    /// members are restarted, so open watches end. Upstream: `modifyLatestRevision`.
    pub(crate) fn restore_and_bump(&self, revision: i64, bump: i64) {
        self.restore(revision);
        let mut state = self.0.lock().unwrap();
        state.revision += bump;
        state.compacted = state.revision;
        for watch in std::mem::take(&mut state.watches) {
            let _ = watch.sender.send(Err(EtcdError::NoResponse { why: "restarted".to_owned() }));
        }
    }

    /// Applies the next transaction of commits after a delay, and loses its response.
    pub(crate) fn delay_next_transaction(&self, delay: Duration) {
        self.0.lock().unwrap().next_delay = Some(delay);
    }

    /// Applies the next transaction that compares `key` after a delay, and loses its response.
    pub(crate) fn delay_next_transaction_of(&self, key: &'static str, delay: Duration) {
        self.0.lock().unwrap().next_delay_of_key = Some((key, delay));
    }

    /// Waits until the transaction that [`Self::delay_next_transaction`] delays was sent.
    pub(crate) async fn wait_for_delayed_transaction(&self) {
        while self.0.lock().unwrap().next_delay.is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Loses the response to the next transaction of commits.
    pub(crate) fn lose_next_response(&self) {
        self.0.lock().unwrap().loses_next_response = true;
    }

    /// Waits until a response was lost because of [`Self::lose_next_response`].
    pub(crate) async fn wait_for_lost_response(&self) {
        while self.0.lock().unwrap().loses_next_response {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns how many transactions were executed so far.
    pub(crate) fn transactions(&self) -> usize {
        self.0.lock().unwrap().transactions
    }

    /// Loses all transactions from now on if `is_cut_off`, and stops losing them otherwise. Callers get no response, as
    /// from a member without a quorum.
    pub(crate) fn cut_off_transactions(&self, is_cut_off: bool) {
        self.0.lock().unwrap().is_cut_off = is_cut_off;
    }

    /// Delays the response to the next transaction of commits. The caller still gets the response.
    pub(crate) fn delay_next_response(&self, delay: Duration) {
        self.0.lock().unwrap().next_response_delay = Some(delay);
    }

    /// Makes every range request fail whose values have more than `bytes_max` bytes in total, as if the request took
    /// too long.
    pub(crate) fn limit_range_bytes(&self, bytes_max: usize) {
        self.0.lock().unwrap().range_bytes_max = Some(bytes_max);
    }

    /// Slows watches down: each revision is sent in a response of its own, so that a long history takes a long time.
    pub(crate) fn slow_down_watches(&self) {
        self.0.lock().unwrap().is_slow = true;
    }

    /// Returns how many watches were opened so far.
    pub(crate) fn watches_opened(&self) -> usize {
        self.0.lock().unwrap().watches_opened
    }

    /// Writes a key directly, without a Muster server.
    pub(crate) fn write(&self, key: Bytes, value: Bytes) {
        let success = vec![lane::put(key, value)];
        self.0.lock().unwrap().txn(&TxnRequest { success, ..TxnRequest::default() });
    }

    /// Rejects every transaction that puts this key.
    pub(crate) fn reject(&self, key: &'static str) {
        self.0.lock().unwrap().rejected_key = Some(key);
    }

    /// Returns how many range requests were executed so far.
    pub(crate) fn ranges(&self) -> usize {
        self.0.lock().unwrap().ranges
    }

    /// Stops sending events to the open watch with this index, as if the server of the watch was cut off.
    pub(crate) fn stop_watch(&self, index: usize) {
        self.0.lock().unwrap().watches[index].is_stopped = true;
    }

    pub(crate) fn resume_watches(&self) {
        let mut state = self.0.lock().unwrap();
        state.watches.iter_mut().for_each(|it| it.is_stopped = false);
        state.notify();
    }

    /// Simulates that the member of the open watch with this index loses its leader: the watch gets no more events and
    /// ends with an error.
    pub(crate) fn lose_leader(&self, index: usize) {
        let watch = self.0.lock().unwrap().watches.remove(index);
        let _ = watch.sender.send(Err(EtcdError::NoResponse { why: "no leader".to_owned() }));
    }

    /// Loses the events of the next revision in the open watch with this index.
    pub(crate) fn lose_next_event(&self, index: usize) {
        self.0.lock().unwrap().watches[index].loses_next = true;
    }

    /// Deletes all keys with this prefix in one transaction, as an administrator may do with etcdctl.
    pub(crate) fn delete_prefix(&self, prefix: &str) {
        let success = vec![lane::delete_range(KeyRange::with_prefix(prefix))];
        self.0.lock().unwrap().txn(&TxnRequest { success, ..TxnRequest::default() });
    }

    /// Leaves all range requests without a response from now on.
    pub(crate) fn silence_reads(&self) {
        self.0.lock().unwrap().is_silent = true;
    }

    /// Activates or deactivates the alarm NOSPACE.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.0.lock().unwrap().is_full = is_full;
    }

    /// Makes the next transaction with a put exceed the quota. That transaction is applied, but answered with
    /// [`EtcdError::NoSpace`]. From then on the alarm NOSPACE is active.
    pub(crate) fn fill_up(&self) {
        self.0.lock().unwrap().is_almost_full = true;
    }

    pub(crate) fn stop_faults(&self) {
        self.set_faults(FaultRates::default());
    }

    pub(crate) fn set_faults(&self, faults: FaultRates) {
        self.0.lock().unwrap().faults = faults;
    }

    pub(crate) fn random_below(&self, bound: u64) -> u64 {
        self.0.lock().unwrap().random_below(bound)
    }

    /// Returns all revisions with their events, in order.
    pub(crate) fn history(&self) -> Vec<(i64, Vec<Event>)> {
        self.0.lock().unwrap().history.iter().map(|(revision, events)| (*revision, events.clone())).collect()
    }

    pub(crate) fn keys(&self) -> Vec<KeyValue> {
        self.0.lock().unwrap().keys.values().cloned().collect()
    }

    /// Delays a call for a short random virtual time, so that calls of several servers interleave.
    async fn delay(&self) {
        let ms = self.random_below(20);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

impl State {
    fn random_below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn happens(&mut self, per_thousand: u64) -> bool {
        self.random_below(1000) < per_thousand
    }

    fn header(&self) -> Option<ResponseHeader> {
        let (cluster_id, revision) = (self.cluster_id, self.revision);
        Some(ResponseHeader { cluster_id, revision, ..ResponseHeader::default() })
    }

    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, EtcdError> {
        let at = if request.revision == 0 { self.revision } else { request.revision };
        if at < self.compacted {
            return Err(EtcdError::Compacted);
        }
        let end = range_end(&request.key, &request.range_end);
        let keys = if at == self.revision { Cow::Borrowed(&self.keys) } else { Cow::Owned(self.keys_at(at)) };
        let mut kvs: Vec<KeyValue> = keys.range(request.key.clone()..end).map(|(_, kv)| kv.clone()).collect();
        let count = kvs.len();
        let limit = usize::try_from(request.limit).unwrap();
        if limit != 0 {
            kvs.truncate(limit);
        }
        if request.keys_only {
            kvs.iter_mut().for_each(|it| it.value = Bytes::new());
        }
        let more = kvs.len() < count;
        Ok(RangeResponse { header: self.header(), kvs, more, count: i64::try_from(count).unwrap() })
    }

    fn keys_at(&self, revision: i64) -> BTreeMap<Bytes, KeyValue> {
        let mut keys = BTreeMap::new();
        for event in self.history.range(..=revision).flat_map(|(_, events)| events) {
            let kv = event.kv.clone().unwrap();
            match event.r#type() {
                EventType::Put => drop(keys.insert(kv.key.clone(), kv)),
                EventType::Delete => drop(keys.remove(&kv.key)),
            }
        }
        keys
    }

    fn txn(&mut self, request: &TxnRequest) -> TxnResponse {
        assert!(request.compare.len() <= 128 && request.success.len() <= 128 && request.failure.len() <= 128);
        let succeeded = request.compare.iter().all(|it| {
            if let Some(TargetUnion::Value(expected)) = &it.target_union {
                assert_eq!((it.target(), it.result()), (CompareTarget::Value, CompareResult::Equal));
                return self.keys.get(&it.key).is_some_and(|it| it.value == *expected);
            }
            assert_eq!(it.target(), CompareTarget::Mod);
            let range = it.key.clone()..range_end(&it.key, &it.range_end);
            let mut found: Vec<i64> = self.keys.range(range).map(|(_, kv)| kv.mod_revision).collect();
            if found.is_empty() {
                found.push(0);
            }
            let Some(TargetUnion::ModRevision(expected)) = it.target_union else { panic!("{it:?}") };
            match it.result() {
                CompareResult::Equal => found.iter().all(|it| *it == expected),
                CompareResult::Less => found.iter().all(|it| *it < expected),
                other => panic!("{other:?} is not used"),
            }
        });
        let operations = if succeeded { &request.success } else { &request.failure };
        let mut events = Vec::new();
        let revision = self.revision + 1;
        self.transactions += 1;
        let responses = operations.iter().map(|it| self.operation(it, revision, &mut events)).collect();
        if !events.is_empty() {
            self.revision = revision;
            let written: std::collections::BTreeSet<_> =
                events.iter().map(|it| it.kv.as_ref().unwrap().key.clone()).collect();
            assert_eq!(written.len(), events.len(), "a transaction writes a key once");
            self.history.insert(revision, events);
            self.notify();
        }
        TxnResponse { header: self.header(), succeeded, responses }
    }

    fn operation(&mut self, operation: &RequestOp, revision: i64, events: &mut Vec<Event>) -> ResponseOp {
        let response = match operation.request.as_ref().unwrap() {
            request_op::Request::RequestRange(range) => {
                response_op::Response::ResponseRange(self.range(range).unwrap())
            }
            request_op::Request::RequestPut(put) => {
                let before = self.keys.get(&put.key);
                let kv = KeyValue {
                    key: put.key.clone(),
                    create_revision: before.map_or(revision, |it| it.create_revision),
                    mod_revision: revision,
                    version: before.map_or(1, |it| it.version + 1),
                    value: put.value.clone(),
                    lease: 0,
                };
                self.keys.insert(put.key.clone(), kv.clone());
                events.push(Event { r#type: EventType::Put.into(), kv: Some(kv) });
                response_op::Response::ResponsePut(Default::default())
            }
            request_op::Request::RequestDeleteRange(delete) => {
                let range = delete.key.clone()..range_end(&delete.key, &delete.range_end);
                let keys: Vec<Bytes> = self.keys.range(range).map(|(key, _)| key.clone()).collect();
                for key in keys {
                    self.keys.remove(&key);
                    let kv = KeyValue { key, mod_revision: revision, ..KeyValue::default() };
                    events.push(Event { r#type: EventType::Delete.into(), kv: Some(kv) });
                }
                response_op::Response::ResponseDeleteRange(Default::default())
            }
            request_op::Request::RequestTxn(nested) => {
                assert_eq!(nested.compare, []);
                let responses =
                    nested.success.iter().map(|it| self.operation(it, revision, events)).collect();
                let response = TxnResponse { header: self.header(), succeeded: true, responses };
                response_op::Response::ResponseTxn(response)
            }
        };
        ResponseOp { response: Some(response) }
    }

    /// Sends to each open watch, except those that are stopped, the events that the watch has not received yet. Removes
    /// the watches that have ended.
    fn notify(&mut self) {
        let mut watches = std::mem::take(&mut self.watches);
        watches.retain_mut(|watch| {
            if watch.is_stopped {
                return true;
            }
            if watch.next < self.compacted {
                let _ = watch.sender.send(Ok(WatchResponse {
                    compact_revision: self.compacted,
                    canceled: true,
                    ..WatchResponse::default()
                }));
                return false;
            }
            if watch.loses_next && watch.next <= self.revision {
                (watch.loses_next, watch.next) = (false, watch.next + 1);
            }
            if self.is_slow && watch.next < self.revision {
                for (_, events) in self.history.range(watch.next..self.revision) {
                    let (header, events) = (self.header(), events.clone());
                    let response = WatchResponse { header, events, ..WatchResponse::default() };
                    let _ = watch.sender.send(Ok(response));
                }
                watch.next = self.revision;
            }
            let events: Vec<Event> =
                self.history.range(watch.next..).flat_map(|(_, it)| it.clone()).collect();
            watch.next = self.revision + 1;
            let faults = self.faults;
            let header = self.header();
            let send = |events, fragment| {
                let response = WatchResponse { header, events, fragment, ..WatchResponse::default() };
                watch.sender.send(Ok(response)).is_ok()
            };
            if 1 < events.len() && self.happens(faults.fragment) {
                let (first, rest) = events.split_at(events.len() / 2);
                send(first.to_vec(), true) && send(rest.to_vec(), false)
            } else {
                send(events, false) && !self.happens(faults.broken_watch)
            }
        });
        self.watches.append(&mut watches);
    }
}

impl EtcdApi for FakeEtcd {
    async fn check(&self) -> Result<(), EtcdError> {
        Ok(())
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.delay().await;
        let lost = {
            let mut state = self.0.lock().unwrap();
            let rate = state.faults.lost_request;
            state.happens(rate)
        };
        if lost {
            return Err(no_response());
        }
        if self.0.lock().unwrap().is_silent {
            std::future::pending().await
        }
        let response = {
            let mut state = self.0.lock().unwrap();
            state.ranges += 1;
            let response = state.range(&request);
            let bytes = response.iter().flat_map(|it| &it.kvs).map(|it| it.value.len()).sum();
            if state.range_bytes_max.is_some_and(|it| it < bytes) { Err(no_response()) } else { response }
        };
        self.delay().await;
        response
    }

    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        self.delay().await;
        if self.0.lock().unwrap().is_cut_off {
            tokio::time::sleep(CALL_TIMEOUT).await;
            return Err(no_response());
        }
        let (response, delay) = {
            let mut state = self.0.lock().unwrap();
            let faults = state.faults;
            if state.happens(faults.lost_request) {
                return Err(no_response());
            }
            let puts_rejected_key = |it: &RequestOp| match &it.request {
                Some(request_op::Request::RequestPut(put)) => {
                    state.rejected_key.is_some_and(|key| put.key == key)
                }
                _ => false,
            };
            if request.success.iter().any(puts_rejected_key) {
                return Err(EtcdError::Rejected { why: "injected".to_owned() });
            }
            // etcd does not look into nested transactions.
            let mut operations = request.success.iter().chain(&request.failure);
            let is_put = |it: &RequestOp| matches!(it.request, Some(request_op::Request::RequestPut(_)));
            if operations.any(is_put) {
                if state.is_full {
                    return Err(EtcdError::NoSpace);
                }
                let is_temporary = state.happens(faults.no_space);
                if is_temporary || std::mem::take(&mut state.is_almost_full) {
                    // As `quotaApplierV3.Txn` of etcd: the transaction is applied in spite of the answer.
                    state.txn(&request);
                    state.is_full = true;
                    if is_temporary {
                        let (etcd, full_ms) = (self.clone(), state.random_below(1_000));
                        tokio::spawn(async move {
                            tokio::time::sleep(Duration::from_millis(full_ms)).await;
                            etcd.set_full(false);
                        });
                    }
                    return Err(EtcdError::NoSpace);
                }
            }
            // A transaction that only moves a lane on, or creates it, has nested operations only.
            let is_nested = |it: &RequestOp| matches!(it.request, Some(request_op::Request::RequestTxn(_)));
            let has_commits = !request.success.iter().all(is_nested);
            let compares = |key: &str| request.compare.iter().any(|it| it.key == key);
            let delay_of_key = state.next_delay_of_key.take_if(|(key, _)| compares(key));
            let delay = state.next_delay.take_if(|_| has_commits).or(delay_of_key.map(|it| it.1));
            if delay.is_some() || state.happens(faults.late) {
                let delay = delay.unwrap_or_else(|| Duration::from_millis(state.random_below(3_000)));
                let etcd = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    etcd.0.lock().unwrap().txn(&request);
                });
                return Err(no_response());
            }
            let response = state.txn(&request);
            let is_lost = has_commits && std::mem::take(&mut state.loses_next_response);
            if is_lost || state.happens(faults.lost_response) {
                return Err(no_response());
            }
            (response, state.next_response_delay.take_if(|_| has_commits))
        };
        tokio::time::sleep(delay.unwrap_or_default()).await;
        self.delay().await;
        Ok(response)
    }

    async fn compact(&self, request: CompactionRequest) -> Result<(), EtcdError> {
        self.delay().await;
        let mut state = self.0.lock().unwrap();
        state.compacted = state.compacted.max(request.revision);
        Ok(())
    }

    async fn watch(&self, request: WatchCreateRequest) -> Result<WatchStream, EtcdError> {
        self.delay().await;
        let mut state = self.0.lock().unwrap();
        let (sender, receiver) = mpsc::unbounded_channel();
        let header = state.header();
        let _ = sender.send(Ok(WatchResponse { header, created: true, ..WatchResponse::default() }));
        let next = request.start_revision;
        state.watches_opened += 1;
        state.watches.push(Watch { next, sender, is_stopped: false, loses_next: false });
        state.notify();
        let responses = futures::stream::unfold((receiver, self.clone()), async |(mut receiver, etcd)| {
            let response = receiver.recv().await?;
            // A response takes a while, so that responses to transactions and events come in any order.
            etcd.delay().await;
            let rate = etcd.0.lock().unwrap().faults.outage;
            if etcd.0.lock().unwrap().happens(rate) {
                tokio::time::sleep(Duration::from_millis(etcd.random_below(6_000))).await;
                etcd.compact_to_current();
                return None;
            }
            Some((response, (receiver, etcd)))
        });
        Ok(Box::pin(responses))
    }
}

/// Returns the exclusive end of a range of keys: `end`, or the end of the range of only `key` if `end` is empty.
fn range_end(key: &Bytes, end: &Bytes) -> Bytes {
    if end.is_empty() { [&key[..], &[0]].concat().into() } else { end.clone() }
}

fn no_response() -> EtcdError {
    EtcdError::NoResponse { why: "injected".to_owned() }
}
