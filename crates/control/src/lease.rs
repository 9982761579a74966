//! Leader election: reads and writes the Lease. `muster_engine::controller::lease` makes the decisions.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{AsyncBufReadExt as _, AsyncReadExt as _};
use http::HeaderValue;
use kube::Client;
use muster_api::text::Text;
use muster_api::well_known::JSON_MEDIA_TYPE;
use muster_api::well_known::is_fenced_lease;
use muster_engine::controller::Verb;
use muster_engine::controller::lease::{Election, LeaderElectionConfig, LeaseAction, LeaseRecord, LostLease};
use muster_events::clock::now;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::CONTROLLER_NAME;
use crate::request::request;

/// Configuration of leader election: the Lease object, the identity of this replica, and the durations.
#[derive(Debug, Clone)]
pub struct LeaseConfig {
    pub namespace: String,
    pub name: String,
    /// Identity of this replica. It must be unique for each process, because two replicas with the same identity would
    /// both be leader.
    pub identity: String,
    pub election: LeaderElectionConfig,
}

impl LeaseConfig {
    /// Returns an error message if the namespace or name is invalid, or the durations are inconsistent. `None` if all
    /// is valid.
    pub fn validation_error(&self) -> Option<String> {
        let is_name = |it: &str| {
            let is_plain = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || "-.".contains(it);
            !it.is_empty() && it.len() <= 253 && it.chars().all(is_plain)
        };
        for name in [&self.namespace, &self.name] {
            if !is_name(name) {
                return Some(format!("{name:?} is not a valid name of a Lease or namespace"));
            }
        }
        self.election.validation_error()
    }

    /// Returns the URL path of the Lease.
    fn path(&self) -> String {
        path(&self.namespace, &self.name)
    }

    /// Returns the URL path of the collection of Leases in the namespace.
    fn collection_path(&self) -> String {
        collection_path(&self.namespace)
    }
}

/// Returns the URL path of a Lease.
pub(crate) fn path(namespace: &str, name: &str) -> String {
    format!("{}/{name}", collection_path(namespace))
}

/// Returns the URL path of the collection of Leases in a namespace.
fn collection_path(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// Formats the Lease as `NAMESPACE/NAME`.
impl fmt::Display for LeaseConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Maximum size of an event of the Lease watch in bytes. A Lease has a few hundred bytes.
const WATCH_EVENT_BYTES_MAX: u64 = 1 << 20;

/// Timeout of the request that writes a Kubernetes Event about the leader election.
const ELECTION_EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which a leader that is no longer the preferred replica releases the lease.
const HANDOVER_DELAY: Duration = Duration::from_secs(30);
/// Interval at which a leader checks whether it is the preferred replica.
const PREFERENCE_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which a replica that is not preferred leaves a free lease to the preferred replica.
const NOT_PREFERRED_DELAY: Duration = Duration::from_secs(2);

/// `timeoutSeconds` of the request that watches the Lease.
const WATCH_TIMEOUT_S: u64 = 290;

/// The lease term of this replica: the period in which it may write, because no other replica can be the leader. Clones
/// share the end of the term.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    /// Time at which this term was created. `until` is counted from it.
    began: Instant,
    /// The end of the term, in microseconds since `began`. `u64::MAX` for a term without an end.
    until: Arc<AtomicU64>,
    /// Timeout of each write. It is so short that a write ends before another replica can acquire the lease.
    write_timeout: Duration,
    /// Value of the header [`LEASE_FENCE_HEADER`](muster_api::well_known::LEASE_FENCE_HEADER) of each write. `None`
    /// without leader election, before this replica has held the lease, and for a Lease that is not fenced.
    fence: Arc<Mutex<Option<HeaderValue>>>,
}

impl Term {
    /// Creates a term without an end, for a replica without leader election.
    pub(crate) fn unlimited(write_timeout: Duration) -> Self {
        let until = Arc::new(AtomicU64::new(u64::MAX));
        Self { began: Instant::now(), until, write_timeout, fence: Arc::default() }
    }

    /// Returns the timeout of a write that starts now. After the end of the term this function never returns, because
    /// the controller is about to be dropped.
    pub(crate) async fn begin_write(&self) -> Duration {
        if self.until.load(Ordering::Acquire) <= micros(self.began.elapsed()) {
            std::future::pending::<()>().await;
        }
        self.write_timeout
    }

    /// Returns the timeout of each write, whether the term has ended or not.
    pub(crate) fn write_timeout(&self) -> Duration {
        self.write_timeout
    }

    /// Returns the value of the fence header of a write, or `None` if writes have no such header.
    pub(crate) fn fence(&self) -> Option<HeaderValue> {
        self.fence.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the fence of later writes: this replica held the Lease at this resourceVersion. Does nothing for a Lease
    /// that Muster's API server does not fence, see [`is_fenced_lease`].
    fn set_fence(&self, lease: &LeaseConfig, resource_version: &str) {
        if !is_fenced_lease(&lease.namespace, &lease.name) {
            return;
        }
        let value = HeaderValue::try_from(format!("{lease}/{resource_version}")).ok();
        *self.fence.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// Sets the end of the term, counted from `began`.
    fn set_end(&self, until: Duration) {
        self.until.store(micros(until), Ordering::Release);
    }
}

/// Converts a duration to microseconds.
fn micros(elapsed: Duration) -> u64 {
    elapsed.as_micros().try_into().unwrap_or(u64::MAX)
}

/// Runs a controller while this replica is the leader, until `stop` is cancelled. `run` starts the controller, which
/// must end when its token is cancelled.
///
/// When the Lease is lost, the controller is dropped, and this replica waits until it is the leader again. When `stop`
/// is cancelled, the controller ends first, and then the Lease is released.
///
/// Rule: a leader that has not been the preferred replica for 30 seconds releases the Lease, and a replica that is not
/// preferred acquires a free Lease only after two seconds. So the Leases of many controllers are spread over the
/// replicas.
pub async fn run_while_leading<F: Future<Output = ()>>(
    client: Client,
    lease: LeaseConfig,
    stop: CancellationToken,
    callbacks: ElectionCallbacks,
    run: impl Fn(CancellationToken) -> F,
) {
    while !stop.is_cancelled() {
        // The controller does not use the timeout of the lease term.
        let mut elector = Elector::new(client.clone(), lease.clone(), Duration::MAX);
        elector.callbacks = callbacks.clone();
        let leading = elector.run_while_leading(
            &stop,
            || (),
            |_term| {
                tracing::info!(%lease, "became the leader");
                let stop_leading = stop.child_token();
                let running = run(stop_leading.clone());
                let (callbacks, lease) = (&callbacks, &lease);
                async move {
                    let mut running = pin!(running);
                    tokio::select! {
                        () = &mut running => return,
                        () = callbacks.wait_until_another_is_preferred() => {}
                    }
                    tracing::info!(%lease, "releasing the lease: another replica is preferred");
                    stop_leading.cancel();
                    running.await;
                }
            },
        );
        if let Some(Err(lost)) = leading.await {
            tracing::warn!(%lease, %lost, "lost the lease: the controller stops until it is the leader again");
        }
    }
}

/// Callbacks that leader election calls while it runs.
#[derive(Clone)]
pub struct ElectionCallbacks {
    on_held: Arc<dyn Fn(&str) + Send + Sync>,
    is_preferred: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl ElectionCallbacks {
    /// Creates the callbacks. `on_held` is called with the resourceVersion of the Lease whenever this replica has
    /// acquired or renewed it. `is_preferred` returns whether this replica should hold the Lease rather than the other
    /// replicas.
    pub fn new(
        on_held: impl Fn(&str) + Send + Sync + 'static,
        is_preferred: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { on_held: Arc::new(on_held), is_preferred: Arc::new(is_preferred) }
    }

    /// Waits until this replica has not been the preferred one for [`HANDOVER_DELAY`].
    async fn wait_until_another_is_preferred(&self) {
        let mut preferred_at = Instant::now();
        while preferred_at.elapsed() < HANDOVER_DELAY {
            tokio::time::sleep(PREFERENCE_CHECK_INTERVAL).await;
            if (self.is_preferred)() {
                preferred_at = Instant::now();
            }
        }
    }
}

impl Default for ElectionCallbacks {
    fn default() -> Self {
        Self::new(|_| (), || true)
    }
}

impl fmt::Debug for ElectionCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionCallbacks").finish_non_exhaustive()
    }
}

/// Takes part in leader election for one replica: acquires, renews and releases the Lease. Upstream:
/// `leaderelection.LeaderElector`.
pub(crate) struct Elector {
    client: Client,
    lease: LeaseConfig,
    /// Decides whether to acquire, renew or wait.
    election: Election,
    /// The lease term, which each successful write of the Lease extends. Before this replica becomes the leader, the
    /// term counts as ended, so that the controllers of the replica write nothing.
    term: Term,
    /// The Lease object that was last read or written. `None` if the Lease did not exist at the last read.
    object: Option<Value>,
    /// The lease holder that was last logged, so that each holder is logged once.
    logged_holder: Text,
    callbacks: ElectionCallbacks,
}

/// Why a request about the Lease failed.
#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error(transparent)]
    Call(#[from] kube::Error),
    #[error("timed out")]
    Timeout,
    #[error("the response cannot be parsed")]
    Unreadable(#[from] serde_json::Error),
    #[error("another replica wrote the lease first")]
    Conflict,
}

impl Elector {
    /// Creates the elector. `write_timeout_max` is the maximum timeout of a write, even if the lease allows more time.
    pub(crate) fn new(client: Client, lease: LeaseConfig, write_timeout_max: Duration) -> Self {
        let term = Term {
            began: Instant::now(),
            until: Arc::new(AtomicU64::new(0)),
            write_timeout: lease.election.write_timeout().min(write_timeout_max),
            fence: Arc::default(),
        };
        let election = Election::new(lease.identity.as_str(), lease.election);
        let callbacks = ElectionCallbacks::default();
        Self { client, lease, election, term, object: None, logged_holder: Text::default(), callbacks }
    }

    /// Waits until this replica is the leader, runs the future of `run` until it ends, and releases the lease. Calls
    /// `on_follow` whenever another replica is found to be the leader. Returns `None` if `stop` is cancelled before
    /// this replica becomes the leader. If the lease is lost, drops the future of `run` and returns an error.
    pub(crate) async fn run_while_leading<F: Future>(
        mut self,
        stop: &CancellationToken,
        on_follow: impl Fn(),
        run: impl FnOnce(Term) -> F,
    ) -> Option<Result<F::Output, LostLease>> {
        stop.run_until_cancelled(self.acquire(on_follow)).await?;
        let term = self.term.clone();
        // A separate task, so that the controller's work never delays a renewal.
        let (mut renewing, done) = (JoinSet::new(), CancellationToken::new());
        renewing.spawn(self.renew_until(done.clone()));
        tokio::select! {
            lost = renewing.join_next() => {
                Some(Err(lost.and_then(Result::ok).flatten().unwrap_or(LostLease::RenewDeadlineExceeded)))
            }
            output = run(term) => {
                done.cancel();
                renewing.join_next().await;
                Some(Ok(output))
            }
        }
    }

    /// Waits until this replica is the leader. While another replica holds the Lease, watches it, so that a released
    /// Lease is acquired at once and not at the next retry. Exception: a replica that is not preferred leaves a free
    /// Lease to the preferred replica for [`NOT_PREFERRED_DELAY`]. Calls `on_follow` whenever another replica is found
    /// to be the leader.
    async fn acquire(&mut self, on_follow: impl Fn()) {
        // When this replica, which is not preferred, first found the lease free.
        let mut free_since = None;
        loop {
            match self.read_and_decide().await {
                Ok(LeaseAction::Write(_)) if self.must_wait_for_preferred_replica(&mut free_since) => {
                    tokio::time::sleep(NOT_PREFERRED_DELAY).await;
                    continue;
                }
                Ok(LeaseAction::Write(record)) => match self.acquire_or_renew(&record).await {
                    Ok(()) => return drop(tokio::spawn(self.record_election_event("became leader"))),
                    Err(LeaseError::Conflict) => tracing::debug!("another replica acquired the lease first"),
                    Err(error) => {
                        tracing::warn!(lease = %self.lease, %error, "failed to acquire the lease")
                    }
                },
                Ok(LeaseAction::Wait { until }) => {
                    free_since = None;
                    on_follow();
                    self.watch_until_acquirable(until).await;
                    continue;
                }
                Ok(LeaseAction::Exit(lost)) => tracing::debug!(%lost),
                Err(error) => tracing::warn!(lease = %self.lease, %error, "failed to read the lease"),
            }
            tokio::time::sleep(self.lease.election.retry_period).await;
        }
    }

    /// Whether this replica must leave a free lease to the preferred replica for now: it is not preferred itself, and
    /// found the lease free less than [`NOT_PREFERRED_DELAY`] ago. `free_since` is the time at which this replica first
    /// found the lease free. The function sets it if it is `None`.
    fn must_wait_for_preferred_replica(&self, free_since: &mut Option<Instant>) -> bool {
        let since = *free_since.get_or_insert_with(Instant::now);
        !(self.callbacks.is_preferred)() && since.elapsed() < NOT_PREFERRED_DELAY
    }

    /// Renews the lease until `done` is cancelled, then releases the lease and returns `None`. If the lease is lost
    /// earlier, returns the reason.
    async fn renew_until(mut self, done: CancellationToken) -> Option<LostLease> {
        loop {
            let leads_until = self.election.leads_until().map_or(self.term.began, |it| self.term.began + it);
            let next = Instant::now() + self.lease.election.retry_period;
            // Only the wait is cancelled, never a renewal in flight: the API server may apply it after the release.
            tokio::select! {
                () = tokio::time::sleep_until(next.min(leads_until)) => {}
                () = done.cancelled() => {
                    self.release().await;
                    return None;
                }
            }
            match tokio::time::timeout_at(leads_until, self.renew()).await {
                Err(_) => return Some(LostLease::RenewDeadlineExceeded),
                Ok(Ok(None)) => {}
                Ok(Ok(Some(lost))) => return Some(lost),
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.lease, %error, "failed to renew the lease; retrying")
                }
            }
        }
    }

    /// Ends the lease term and releases the lease, so that another replica can acquire it before it expires. A failure
    /// is only logged.
    async fn release(&mut self) {
        // No write may start without the lease.
        self.term.set_end(Duration::ZERO);
        let released = match self.put_release_record().await {
            // A renewal without a response was applied after all: the Lease has a newer version.
            Err(LeaseError::Conflict) => match self.read_and_decide().await {
                Ok(_) if self.stored_record().is_some_and(|it| *it.holder == *self.lease.identity) => {
                    self.put_release_record().await
                }
                Ok(_) => return tracing::info!(lease = %self.lease, "the lease has another holder"),
                Err(error) => Err(error),
            },
            released => released,
        };
        match released {
            Ok(()) => tracing::info!(lease = %self.lease, "released the lease"),
            Err(error) => {
                tracing::warn!(lease = %self.lease, %error, "failed to release the lease; it will expire")
            }
        }
        self.record_election_event("stopped leading").await;
    }

    /// Writes the record that releases the lease. Does nothing if the Lease does not exist.
    async fn put_release_record(&self) -> Result<(), LeaseError> {
        let Some(found) = self.stored_record() else { return Ok(()) };
        self.put_record(&self.election.released_record(&found, now())).await.map(drop)
    }

    /// Renews the lease once. Returns `None` if the lease was renewed, and the reason if the lease is lost. Returns an
    /// error if the renewal failed but may be retried.
    async fn renew(&mut self) -> Result<Option<LostLease>, LeaseError> {
        let (Some(found), elapsed) = (self.stored_record(), self.term.began.elapsed()) else {
            return Ok(Some(LostLease::Deleted));
        };
        // The Lease is usually unchanged since the last write, so the renewal does not read it first.
        let next = match self.election.decide(Some(&found), elapsed, now()) {
            LeaseAction::Write(record) => match self.acquire_or_renew(&record).await {
                Err(LeaseError::Conflict) => self.read_and_decide().await?,
                done => return done.map(|()| None),
            },
            next => next,
        };
        match next {
            LeaseAction::Write(record) => self.acquire_or_renew(&record).await.map(|()| None),
            LeaseAction::Exit(lost) => Ok(Some(lost)),
            LeaseAction::Wait { .. } => unreachable!("a leader renews or stops"),
        }
    }

    /// Watches the Lease until this replica can acquire it, or until the watch ends. `until` is the time, counted from
    /// `Term::began`, at which the lease expires.
    async fn watch_until_acquirable(&mut self, mut until: Duration) {
        let holder = self.stored_record().map(|it| it.holder).unwrap_or_default();
        if self.logged_holder != holder {
            tracing::info!(lease = %self.lease, %holder, "another replica is the leader");
            self.logged_holder = holder;
        }
        let version = self.object.as_ref().and_then(|it| it["metadata"]["resourceVersion"].as_str());
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("watch", "true")
            .append_pair("fieldSelector", &format!("metadata.name={}", self.lease.name))
            .append_pair("resourceVersion", version.unwrap_or_default())
            .append_pair("timeoutSeconds", &WATCH_TIMEOUT_S.to_string())
            .finish();
        let request = request(
            Verb::List,
            format!("{}?{query}", self.lease.collection_path()),
            JSON_MEDIA_TYPE,
            String::new(),
        );
        let opening =
            tokio::time::timeout(self.lease.election.renew_deadline, self.client.request_stream(request));
        let stream = match opening.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot watch the lease; reading it again after the retry period");
                return tokio::time::sleep(self.lease.election.retry_period).await;
            }
            Err(_) => return,
        };
        let mut stream = pin!(stream);
        loop {
            let mut line = Vec::new();
            let mut limited = stream.as_mut().take(WATCH_EVENT_BYTES_MAX);
            let reading = limited.read_until(b'\n', &mut line);
            let object = match tokio::time::timeout_at(self.term.began + until, reading).await {
                // The holder did not renew: the lease can be acquired.
                Err(_) => return,
                Ok(Ok(_)) if line.ends_with(b"\n") => {
                    serde_json::from_slice::<Value>(&line).unwrap_or_default()
                }
                Ok(_) => return tokio::time::sleep(self.lease.election.retry_period).await,
            };
            if !matches!(object["type"].as_str(), Some("ADDED" | "MODIFIED")) {
                return;
            }
            self.object = Some(object["object"].clone());
            let found = self.stored_record();
            match self.election.decide(found.as_ref(), self.term.began.elapsed(), now()) {
                LeaseAction::Wait { until: later } => until = later,
                LeaseAction::Write(_) | LeaseAction::Exit(_) => return,
            }
        }
    }

    /// Reads the Lease and returns the next action of this replica: to write the Lease, to wait or to exit.
    async fn read_and_decide(&mut self) -> Result<LeaseAction, LeaseError> {
        self.object = match self.send_request(Verb::Get, self.lease.path(), None).await {
            Ok(object) => Some(object),
            Err(LeaseError::Call(kube::Error::Api(status))) if status.code == 404 => None,
            Err(error) => return Err(error),
        };
        let found = self.stored_record();
        Ok(self.election.decide(found.as_ref(), self.term.began.elapsed(), now()))
    }

    /// Acquires or renews the Lease with this record, and extends the lease term.
    async fn acquire_or_renew(&mut self, record: &LeaseRecord) -> Result<(), LeaseError> {
        let began = self.term.began.elapsed();
        let stored = self.put_record(record).await?;
        if let Some(version) = stored["metadata"]["resourceVersion"].as_str() {
            (self.callbacks.on_held)(version);
            self.term.set_fence(&self.lease, version);
        }
        self.object = Some(stored);
        self.election.record_write(began);
        if let Some(until) = self.election.leads_until() {
            self.term.set_end(until);
        }
        Ok(())
    }

    /// Writes this record into the Lease, and returns the stored object. Creates the Lease if it did not exist at the
    /// last read. Fails with [`LeaseError::Conflict`] if the Lease was changed or deleted since it was last read.
    async fn put_record(&self, record: &LeaseRecord) -> Result<Value, LeaseError> {
        let (verb, path, mut object) = match &self.object {
            Some(object) => (Verb::Update, self.lease.path(), object.clone()),
            None => {
                let metadata = json!({"name": self.lease.name, "namespace": self.lease.namespace});
                let object = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {},
                });
                (Verb::Create, self.lease.collection_path(), object)
            }
        };
        let mut spec = object["spec"].as_object().cloned().unwrap_or_else(Map::new);
        record.write(&mut spec);
        object["spec"] = spec.into();
        match self.send_request(verb, path, Some(&object)).await {
            Err(LeaseError::Call(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                Err(LeaseError::Conflict)
            }
            done => done,
        }
    }

    /// Sends a request about the Lease and returns the object in the response. The timeout is half of the renew
    /// deadline, so that a call that hangs leaves time for a retry.
    async fn send_request(
        &self,
        verb: Verb,
        path: String,
        body: Option<&Value>,
    ) -> Result<Value, LeaseError> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let calling = self.client.request_text(request(verb, path, JSON_MEDIA_TYPE, body));
        let text = tokio::time::timeout(self.lease.election.renew_deadline / 2, calling).await;
        Ok(serde_json::from_str(&text.map_err(|_| LeaseError::Timeout)??)?)
    }

    /// Returns the record in the Lease object that was last read or written. `None` if the Lease does not exist.
    fn stored_record(&self) -> Option<LeaseRecord> {
        self.object.as_ref().map(|it| LeaseRecord::read(&it["spec"]))
    }

    /// Logs a change of leadership. The returned future records it as an Event for `kubectl describe lease`. A failure
    /// is only logged.
    fn record_election_event(&self, change: &str) -> impl Future<Output = ()> + use<> {
        let LeaseConfig { namespace, name, identity, .. } = &self.lease;
        tracing::info!(lease = %self.lease, identity, "{change}");
        let uid = self.object.as_ref().map_or(Value::Null, |it| it["metadata"]["uid"].clone());
        let now = now().to_rfc3339();
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": format!("{name}-"), "namespace": namespace},
            "involvedObject": {
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "namespace": namespace, "name": name, "uid": uid,
            },
            "type": "Normal",
            "reason": "LeaderElection",
            "message": format!("{identity} {change}"),
            "source": {"component": CONTROLLER_NAME},
            "reportingComponent": CONTROLLER_NAME,
            "reportingInstance": identity,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        });
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let request = request(Verb::Create, path, JSON_MEDIA_TYPE, event.to_string());
        let client = self.client.clone();
        async move {
            match tokio::time::timeout(ELECTION_EVENT_TIMEOUT, client.request_text(request)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(%error, "failed to write the Event about the election"),
                Err(_) => tracing::debug!("writing the Event about the election timed out"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    fn lease() -> LeaseConfig {
        LeaseConfig {
            namespace: "kube-system".into(),
            name: "muster-controller".into(),
            identity: "a".into(),
            election: LeaderElectionConfig::default(),
        }
    }

    /// Serves one Lease as an API server does: an update of another version conflicts. `renewal_delay` delays the
    /// response of the second update, which is the first renewal. Returns the holder after each applied update.
    async fn serve_lease(
        listener: TcpListener,
        renewal_delay: Duration,
        applied: mpsc::UnboundedSender<String>,
    ) {
        let (mut stored, mut version) = (None::<Value>, 0);
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            let length = head.lines().find_map(|it| it.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |it| it.parse().unwrap())];
            stream.read_exact(&mut body).await.unwrap();
            let expected = stored.as_ref().map(|it| it["metadata"]["resourceVersion"].clone());
            let mut delay = Duration::ZERO;
            let (status, response) = match serde_json::from_slice::<Value>(&body) {
                _ if head.contains("/events") => (201, json!({})),
                Err(_) => stored.clone().map_or((404, json!({"code": 404})), |it| (200, it)),
                Ok(lease) if expected.is_some_and(|it| lease["metadata"]["resourceVersion"] != it) => {
                    (409, json!({"code": 409}))
                }
                Ok(mut lease) => {
                    version += 1;
                    delay = if version == 2 { renewal_delay } else { Duration::ZERO };
                    lease["metadata"]["resourceVersion"] = version.to_string().into();
                    let _ =
                        applied.send(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned());
                    stored = Some(lease.clone());
                    (200, lease)
                }
            };
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let response = response.to_string();
                let length = response.len();
                let text = format!(
                    "HTTP/1.1 {status} S\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{response}"
                );
                let _ = stream.write_all(text.as_bytes()).await;
            });
        }
    }

    /// The leader is stopped during a renewal that the API server has applied. The Lease is released, whether the
    /// response arrives later or never.
    #[tokio::test]
    async fn a_leader_that_stops_during_a_renewal_releases_the_lease() {
        for renewal_delay in [Duration::from_millis(200), Duration::from_secs(3600)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let (sender, mut applied) = mpsc::unbounded_channel();
            let serving = tokio::spawn(serve_lease(listener, renewal_delay, sender));
            let client = crate::client(kube::Config::new(url.parse().unwrap())).unwrap();
            let election = LeaderElectionConfig {
                duration: Duration::from_secs(4),
                renew_deadline: Duration::from_secs(3),
                retry_period: Duration::from_millis(50),
            };
            let mut elector =
                Elector::new(client, LeaseConfig { election, ..lease() }, Duration::from_secs(1));
            elector.acquire(|| ()).await;
            assert_eq!(applied.recv().await.as_deref(), Some("a"));
            let done = CancellationToken::new();
            let holding = tokio::spawn(elector.renew_until(done.clone()));
            assert_eq!(applied.recv().await.as_deref(), Some("a"));
            done.cancel();
            assert_eq!(holding.await.unwrap(), None);
            let released = tokio::time::timeout(Duration::from_secs(60), applied.recv()).await;
            assert_eq!(released.expect("the Lease is released").as_deref(), Some(""));
            serving.abort();
        }
    }

    #[tokio::test]
    async fn no_write_begins_after_the_term() {
        let lease = lease();
        assert_eq!(lease.validation_error(), None);
        let client = crate::client(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let elector = Elector::new(client, lease, Duration::from_secs(10));
        let term = elector.term.clone();
        let write = || term.begin_write().now_or_never();
        assert_eq!(write(), None);
        term.set_end(term.began.elapsed() + Duration::from_secs(3600));
        assert_eq!(write(), Some(Duration::from_secs(4)));
        term.set_end(term.began.elapsed());
        assert_eq!(write(), None);
        assert_eq!(Term::unlimited(Duration::from_secs(10)).begin_write().await, Duration::from_secs(10));
    }
}
