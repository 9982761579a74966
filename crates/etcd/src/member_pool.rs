//! The members of an etcd cluster, and the choice of the member that gets a call.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::{Instant, timeout};

use crate::api::{EtcdApi, EtcdError, WatchStream};
use crate::etcd_version::EtcdVersion;
use crate::proto::{
    CompactionRequest, CompactionResponse, RangeRequest, RangeResponse, ResponseHeader, StatusResponse,
    TxnRequest, TxnResponse, WatchCreateRequest,
};

/// Time for which a member is not used after it could not serve a request. After that the member is tried again, for
/// example because a learner may have been promoted.
const UNUSABLE_TIME: Duration = Duration::from_secs(30);

/// Timeout of the request for the version of a member before a call. It is so short that another member can
/// still execute the call in time.
const VERSION_TIMEOUT: Duration = Duration::from_secs(1);

/// One member of an etcd cluster. Every call is sent only to this member, and only once.
pub(crate) trait EtcdMember: Send + Sync + 'static {
    fn url(&self) -> &str;

    /// Returns how many connections to the member were lost so far. The member may have been restarted, with another
    /// version, since the count was lower.
    fn lost_connections(&self) -> u64;

    fn status(&self) -> impl Future<Output = Result<StatusResponse, EtcdError>> + Send;

    fn range(&self, request: RangeRequest) -> impl Future<Output = Result<RangeResponse, EtcdError>> + Send;

    fn txn(&self, request: TxnRequest) -> impl Future<Output = Result<TxnResponse, EtcdError>> + Send;

    fn compact(
        &self,
        request: CompactionRequest,
    ) -> impl Future<Output = Result<CompactionResponse, EtcdError>> + Send;

    fn watch(
        &self,
        request: WatchCreateRequest,
    ) -> impl Future<Output = Result<WatchStream, EtcdError>> + Send;
}

/// The members of an etcd cluster. All calls go to the same member until that member does not respond or cannot serve
/// requests. Later calls go to the next member. Each new watch is opened at another member than the previous watch, if
/// another member is usable. Clones share their state.
///
/// Rule: all responses are from one etcd cluster. A response from another cluster, for example from a member that was
/// set up again as a new cluster, is not used.
///
/// Rule: only members of supported versions are used. The version of a member is read before its first call, and before
/// the next call after a connection to the member was lost.
pub(crate) struct MemberPool<M> {
    state: Arc<PoolState<M>>,
    accepts_any_version: bool,
}

struct PoolState<M> {
    members: Vec<PoolMember<M>>,
    /// Index of the member that gets the next call.
    current: AtomicUsize,
    /// Index of the member that gets the next watch.
    next_watch: AtomicUsize,
    /// The ID of the etcd cluster, from the first response. 0 before the first response.
    cluster_id: AtomicU64,
}

struct PoolMember<M> {
    member: Arc<M>,
    /// The time until which the member is not used, unless no other member is usable. `None` if the member was always
    /// usable.
    unusable_until: Mutex<Option<Instant>>,
    /// Whether the last response of the member came from another etcd cluster.
    is_foreign: AtomicBool,
    /// The number of lost connections to the member before its version was read, if the pool accepts this version. The
    /// acceptance is valid while no more connections are lost. [`NOT_ACCEPTED`] if the pool has accepted no version.
    accepted_at: AtomicU64,
}

/// Value of [`PoolMember::accepted_at`] of a member without an accepted version.
const NOT_ACCEPTED: u64 = u64::MAX;

impl<M: EtcdMember> MemberPool<M> {
    pub(crate) fn new(members: impl IntoIterator<Item = M>) -> Self {
        let new = |it| PoolMember {
            member: Arc::new(it),
            unusable_until: Mutex::new(None),
            is_foreign: AtomicBool::new(false),
            accepted_at: AtomicU64::new(NOT_ACCEPTED),
        };
        let state = PoolState {
            members: members.into_iter().map(new).collect(),
            current: AtomicUsize::new(0),
            next_watch: AtomicUsize::new(0),
            cluster_id: AtomicU64::new(0),
        };
        Self { state: Arc::new(state), accepts_any_version: false }
    }

    /// Returns a pool that also accepts members of unsupported versions.
    pub(crate) fn accept_any_version(self) -> Self {
        Self { accepts_any_version: true, ..self }
    }

    /// Makes a call to the current member. What happens next depends on the result:
    /// - The member cannot serve requests, belongs to another etcd cluster, or has an unsupported version: makes the call
    ///   to the next member, until all members had it. The members before have not executed the call.
    /// - The version of the member must be read first, and cannot be: makes the call to the next member, too. Unlike the
    ///   members above, this one stays usable, because a member that is restarted responds within seconds.
    /// - The member does not respond: fails. Later calls go to the next member.
    /// - Any other result is returned.
    async fn call<T, F: Future<Output = Result<T, EtcdError>> + Send>(
        &self,
        call: impl Fn(Arc<M>) -> F,
        header: impl Fn(&T) -> Option<ResponseHeader>,
    ) -> Result<T, EtcdError> {
        let mut last = EtcdError::NotServed { why: "there is no member".to_owned() };
        for _ in &self.state.members {
            let at = self.usable_member(&self.state.current);
            if let Err(error) = self.ensure_accepted_version(at).await {
                self.advance(&self.state.current, at);
                last = error;
                continue;
            }
            let result = call(self.state.members[at].member.clone()).await;
            match result.and_then(|it| self.check_cluster(at, header(&it)).map(|()| it)) {
                Err(error @ EtcdError::NotServed { .. }) => {
                    self.state.members[at].set_unusable();
                    last = error;
                }
                Err(error @ EtcdError::NoResponse { .. }) => {
                    self.advance(&self.state.current, at);
                    return Err(error);
                }
                result => return result,
            }
        }
        Err(last)
    }

    /// Returns the index of a member, which `index` stores. If this member is unusable at the moment, first advances
    /// `index` to the next usable member.
    fn usable_member(&self, index: &AtomicUsize) -> usize {
        let at = index.load(Ordering::Relaxed);
        if self.state.members[at].is_unusable() {
            self.advance(index, at);
        }
        index.load(Ordering::Relaxed)
    }

    /// Advances `index` from the member `from` to the next usable member, unless another call has already advanced it.
    /// If no member is usable at the moment, advances it to the member after `from`.
    fn advance(&self, index: &AtomicUsize, from: usize) {
        let members = &self.state.members;
        let following = |it| (from + it) % members.len();
        let usable = (1..=members.len()).map(following).find(|it| !members[*it].is_unusable());
        let next = usable.unwrap_or_else(|| following(1));
        let _ = index.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Reads the version of the member with the index `at`, unless the pool has accepted the version and no connection
    /// to the member was lost since. Fails with [`EtcdError::NotServed`] if the version cannot be read or is not
    /// supported. Takes a member of an unsupported version out of use.
    async fn ensure_accepted_version(&self, at: usize) -> Result<(), EtcdError> {
        let PoolMember { member, accepted_at, .. } = &self.state.members[at];
        let lost_connections = member.lost_connections();
        if accepted_at.load(Ordering::Acquire) == lost_connections {
            return Ok(());
        }
        let url = member.url();
        let unread = |why: &dyn fmt::Display| EtcdError::NotServed {
            why: format!("cannot read the version of {url}: {why}"),
        };
        let status = match timeout(VERSION_TIMEOUT, member.status()).await {
            Ok(status) => status.map_err(|it| unread(&it))?,
            Err(elapsed) => return Err(unread(&elapsed)),
        };
        self.check_version(at, &status.version, lost_connections).map_err(|error| {
            tracing::error!(url, %error, "not using this member of etcd");
            self.state.members[at].set_unusable();
            EtcdError::NotServed { why: error.to_string() }
        })
    }

    /// Fails if the pool does not accept `version`, which is the version of the member with the index `at`.
    /// `lost_connections` is the number of lost connections to the member before the version was read.
    fn check_version(&self, at: usize, version: &str, lost_connections: u64) -> Result<(), EtcdError> {
        let PoolMember { member, accepted_at, .. } = &self.state.members[at];
        let is_supported = EtcdVersion::parse(version).is_some_and(EtcdVersion::is_supported);
        if !is_supported && !self.accepts_any_version {
            let url = member.url();
            return Err(EtcdError::Version {
                why: format!(
                    "{url} runs etcd {version}, which can lose watch events: upgrade it to 3.5.28, 3.6.9 or later, or \
                     accept it for tests with --etcd-any-version"
                ),
            });
        }
        accepted_at.store(lost_connections, Ordering::Release);
        Ok(())
    }

    /// Records the etcd cluster of the first response. Marks the member with the index `at`, which sent this header, as
    /// foreign and fails if the header is from another cluster than the first response.
    fn check_cluster(&self, at: usize, header: Option<ResponseHeader>) -> Result<(), EtcdError> {
        let Some(id) = header.map(|it| it.cluster_id).filter(|it| *it != 0) else { return Ok(()) };
        let state = &self.state;
        let followed = match state.cluster_id.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => id,
            Err(followed) => followed,
        };
        let member = &state.members[at];
        let was_foreign = member.is_foreign.swap(id != followed, Ordering::AcqRel);
        if id == followed {
            return Ok(());
        }
        let url = member.member.url();
        if !was_foreign {
            tracing::error!(
                url,
                "this member belongs to another etcd cluster: not using it. Add it to the right cluster with \
                 `etcdctl member add`, or remove its URL from --etcd"
            );
        }
        if state.members.iter().all(|it| it.is_foreign.load(Ordering::Acquire)) {
            let why = format!(
                "{url} has another etcd cluster ID than before: etcd was replaced or restored. Restart the servers"
            );
            return Err(EtcdError::Foreign { why });
        }
        Err(EtcdError::NotServed { why: format!("{url} is a member of another etcd cluster") })
    }
}

impl<M: EtcdMember> EtcdApi for MemberPool<M> {
    /// Fails if no member responds, if a member that responds has an unsupported version, or if two members belong to
    /// different etcd clusters. `accepts_any_version` allows unsupported versions. Takes learners out of use.
    async fn check(&self) -> Result<(), EtcdError> {
        let members = &self.state.members;
        let lost_connections: Vec<u64> = members.iter().map(|it| it.member.lost_connections()).collect();
        let statuses = futures::future::join_all(members.iter().map(|it| it.member.status())).await;
        let urls = || members.iter().map(|it| it.member.url());
        if let Some(Err(error)) = statuses.first()
            && statuses.iter().all(Result::is_err)
        {
            let url = urls().next().unwrap_or_default();
            let why = format!("no member responds, so check that etcd runs; {url}: {error}");
            return Err(EtcdError::NoResponse { why });
        }
        let mut first: Option<(&str, u64)> = None;
        for ((at, url), status) in urls().enumerate().zip(statuses) {
            let status = match status {
                Ok(status) => status,
                Err(error) => {
                    tracing::warn!(url, %error, "a member of etcd does not respond");
                    continue;
                }
            };
            let version = &status.version;
            self.check_version(at, version, lost_connections[at])?;
            let cluster_id = status.header.map_or(0, |it| it.cluster_id);
            let (first_url, first_id) = *first.get_or_insert((url, cluster_id));
            if first_id != cluster_id {
                let why = format!(
                    "{first_url} and {url} are members of different etcd clusters: name the members of one cluster with \
                     --etcd"
                );
                return Err(EtcdError::Foreign { why });
            }
            self.check_cluster(at, status.header)?;
            if status.is_learner {
                tracing::warn!(url, "this member of etcd is a learner: not using it until it is promoted");
                members[at].set_unusable();
            } else {
                tracing::info!(url, version, "connected to etcd");
            }
        }
        Ok(())
    }

    /// If a member does not respond, sends the request to the next member. Fails after as many attempts without a
    /// response as there are members.
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        let mut tries = self.state.members.len();
        loop {
            let send = |member: Arc<M>| {
                let request = request.clone();
                async move { member.range(request).await }
            };
            tries = tries.saturating_sub(1);
            match self.call(send, |it: &RangeResponse| it.header).await {
                Err(EtcdError::NoResponse { .. }) if 0 < tries => {}
                result => return result,
            }
        }
    }

    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        let send = |member: Arc<M>| {
            let request = request.clone();
            async move { member.txn(request).await }
        };
        self.call(send, |it: &TxnResponse| it.header).await
    }

    async fn compact(&self, request: CompactionRequest) -> Result<(), EtcdError> {
        let send = |member: Arc<M>| async move { member.compact(request).await };
        self.call(send, |it: &CompactionResponse| it.header).await.map(drop)
    }

    async fn watch(&self, request: WatchCreateRequest) -> Result<WatchStream, EtcdError> {
        let at = self.usable_member(&self.state.next_watch);
        // The next watch is opened at another member: this one has ended by then.
        self.advance(&self.state.next_watch, at);
        self.ensure_accepted_version(at).await?;
        let responses = self.state.members[at].member.watch(request).await.inspect_err(|error| {
            if matches!(error, EtcdError::NotServed { .. }) {
                self.state.members[at].set_unusable();
            }
        })?;
        let pool = self.clone();
        Ok(Box::pin(responses.map(move |it| {
            let response = it?;
            pool.check_cluster(at, response.header)
                .inspect_err(|_| pool.state.members[at].set_unusable())
                .map(|()| response)
        })))
    }
}

impl<M> PoolMember<M> {
    /// Marks the member as unusable for [`UNUSABLE_TIME`].
    fn set_unusable(&self) {
        let until = Instant::now() + UNUSABLE_TIME;
        *self.unusable_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    fn is_unusable(&self) -> bool {
        let until = *self.unusable_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|it| Instant::now() < it)
    }
}

impl<M> Clone for MemberPool<M> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), accepts_any_version: self.accepts_any_version }
    }
}

impl<M: EtcdMember> fmt::Debug for MemberPool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.state.members.iter().map(|it| it.member.url())).finish()
    }
}
