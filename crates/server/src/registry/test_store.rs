//! The stores of in-process tests. MUSTER_TEST_STORE selects where their objects are:
//!
//! - not set: in memory;
//! - `etcd`: on the etcd whose URL is in MUSTER_TEST_ETCD_URL, with a prefix of its own for each store;
//! - `etcd-balanced`: there as well, with several registries. The test server sends every request to another one, and
//!   all but the first get the events of etcd late, so that a read without a read barrier is stale.
//!
//! Tests name resourceVersions by the number of the commit, as the store in memory does. On etcd the test server
//! translates these numbers in requests and responses.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use muster_etcd::proto::request_op::Request;
use muster_etcd::proto::{
    CompactionRequest, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
    WatchCreateRequest,
};
use muster_etcd::{EtcdApi, EtcdClient, EtcdError, Keyspace, WatchStream};
use muster_store::{Db, DbOptions, HistoryWindow, MemoryLog, Revision, Store, StoreLimits};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::auth::TokenSigner;
use crate::registry::Registry;
use crate::signing_keys::SigningKeys;

/// Number of registries of a store with `etcd-balanced`.
const BALANCED_REGISTRIES: usize = 3;

/// Time by which the registries that get events late are behind. It is longer than the time between two requests.
const WATCH_DELAY: Duration = Duration::from_millis(20);

/// Offset of resourceVersions on etcd. Other numbers in responses are lower, so that a resourceVersion is recognized by
/// its size.
const RESOURCE_VERSIONS_BEGIN: Revision = 7_000_000_000_000;
/// Numbers in a response from `RESOURCE_VERSIONS_BEGIN` up to this one, exclusive, are taken for resourceVersions.
const RESOURCE_VERSIONS_END: Revision = 8_000_000_000_000;

/// The store of a test, in memory or on etcd. It has no objects when it is created.
#[derive(Debug)]
pub(crate) struct TestStore(Location);

#[derive(Debug)]
enum Location {
    Memory,
    Etcd {
        url: String,
        prefix: String,
        registries: usize,
        /// The revisions of all commits that a registry has seen.
        commits: Arc<Mutex<BTreeSet<Revision>>>,
    },
}

impl TestStore {
    pub(crate) fn new() -> Self {
        let registries = match std::env::var("MUSTER_TEST_STORE").as_deref() {
            Err(_) => return Self::in_memory(),
            Ok("etcd") => 1,
            Ok("etcd-balanced") => BALANCED_REGISTRIES,
            Ok(other) => panic!("MUSTER_TEST_STORE is {other:?}, and not etcd or etcd-balanced"),
        };
        let url = std::env::var("MUSTER_TEST_ETCD_URL").expect("MUSTER_TEST_ETCD_URL has the URL of an etcd");
        let prefix = format!("/test/{}", uuid::Uuid::new_v4());
        create_cluster(&url, &prefix);
        Self(Location::Etcd { url, prefix, registries, commits: Arc::default() })
    }

    pub(crate) fn in_memory() -> Self {
        Self(Location::Memory)
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.0, Location::Memory)
    }

    /// Opens the registries of this store, with a generated key for tokens.
    pub(crate) fn open(&self, window: HistoryWindow, limits: StoreLimits) -> Vec<Registry> {
        let count = match &self.0 {
            Location::Memory => 1,
            Location::Etcd { registries, .. } => *registries,
        };
        let keys = Arc::new(SigningKeys::generate().expect("generating a key does not fail"));
        let open = |at: usize| {
            let open = |options| Ok::<_, std::convert::Infallible>(self.open_db(at, options));
            let tokens = TokenSigner::new(keys.clone());
            Registry::open(open, window, limits, Box::new(|_| ()), tokens).unwrap_or_else(|it| match it {})
        };
        (0..count).map(open).collect()
    }

    /// Opens the database of one registry.
    fn open_db(&self, at: usize, mut options: DbOptions) -> Db {
        let Location::Etcd { url, prefix, commits, .. } = &self.0 else {
            return Db::open(MemoryLog, options).expect("an empty log is opened");
        };
        let (commits, on_commit) = (commits.clone(), options.on_commit);
        options.on_commit = Box::new(move |batch| {
            commits.lock().unwrap().extend(batch.iter().map(|it| it.revision));
            on_commit(batch);
        });
        let delay = if at == 0 { Duration::ZERO } else { WATCH_DELAY };
        let etcd = LateEtcd { client: client(url), delay };
        let (published, backend) =
            muster_etcd::open(etcd, Keyspace::new(prefix, 0), None, options).expect("etcd is at the URL");
        Db::new(published, backend)
    }

    /// Returns the resourceVersion that a test calls `number`.
    pub(crate) fn resource_version(&self, number: Revision) -> Revision {
        let Location::Etcd { commits, .. } = &self.0 else { return number };
        let commits = commits.lock().unwrap();
        let last = commits.last().copied().unwrap_or(RESOURCE_VERSIONS_BEGIN);
        match number.checked_sub(Store::FIRST_REVISION) {
            None => number,
            Some(0) => RESOURCE_VERSIONS_BEGIN,
            Some(at) => match commits.iter().nth(at as usize - 1) {
                Some(commit) => *commit,
                // A commit of the future.
                None => last + (at - commits.len() as u64),
            },
        }
    }

    /// Replaces every resourceVersion in a text by the number by which tests call it.
    pub(crate) fn with_numbers(&self, text: &str) -> String {
        let Location::Etcd { commits, .. } = &self.0 else { return text.to_owned() };
        let commits = commits.lock().unwrap();
        let last = commits.last().copied().unwrap_or(RESOURCE_VERSIONS_BEGIN);
        let number = |version: Revision| {
            let before = commits.range(..=version).count() as Revision;
            Store::FIRST_REVISION
                + before
                + if commits.contains(&version) { 0 } else { version.saturating_sub(last) }
        };
        let mut translated = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(|it: char| it.is_ascii_digit()) {
            let digits = rest[start..].find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len() - start);
            let (before, found) = rest[..start + digits].split_at(start);
            translated += before;
            match found.parse() {
                Ok(version) if (RESOURCE_VERSIONS_BEGIN..RESOURCE_VERSIONS_END).contains(&version) => {
                    translated += &number(version).to_string();
                }
                _ => translated += found,
            }
            rest = &rest[start + digits..];
        }
        translated + rest
    }
}

fn client(url: &str) -> EtcdClient {
    EtcdClient::new(&[url.to_owned()], None).expect("MUSTER_TEST_ETCD_URL is a URL").accept_any_version()
}

/// Writes the offset of the resourceVersions of a cluster. Also writes the revision at which its history begins, so that
/// etcd does not search the history of other tests.
fn create_cluster(url: &str, prefix: &str) {
    let put = |key: &str, value: String| {
        let key = format!("{prefix}/m/{key}").into();
        let put = PutRequest { key, value: value.into(), ..PutRequest::default() };
        let success = vec![RequestOp { request: Some(Request::RequestPut(put)) }];
        TxnRequest { success, ..TxnRequest::default() }
    };
    let creating = async {
        let client = client(url);
        let written = client.txn(put("base", RESOURCE_VERSIONS_BEGIN.to_string())).await.unwrap();
        let revision = written.header.expect("a response has a header").revision;
        client.txn(put("compacted", revision.to_string())).await.unwrap();
    };
    // The test runs in a runtime of its own, which must not block.
    thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(creating);
        });
    });
}

/// An etcd that delivers the events of watches late.
struct LateEtcd {
    client: EtcdClient,
    delay: Duration,
}

impl EtcdApi for LateEtcd {
    async fn check(&self) -> Result<(), EtcdError> {
        self.client.check().await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.client.range(request).await
    }

    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        self.client.txn(request).await
    }

    async fn compact(&self, request: CompactionRequest) -> Result<(), EtcdError> {
        self.client.compact(request).await
    }

    async fn watch(&self, request: WatchCreateRequest) -> Result<WatchStream, EtcdError> {
        let mut watch = self.client.watch(request).await?;
        if self.delay.is_zero() {
            return Ok(watch);
        }
        let (delay, (sender, receiver)) = (self.delay, mpsc::unbounded_channel());
        tokio::spawn(async move {
            loop {
                let response = tokio::select! {
                    response = watch.next() => response,
                    () = sender.closed() => return,
                };
                let Some(response) = response else { return };
                let _ = sender.send((Instant::now() + delay, response));
            }
        });
        let late = stream::unfold(receiver, |mut receiver: mpsc::UnboundedReceiver<_>| async move {
            let (at, response) = receiver.recv().await?;
            tokio::time::sleep_until(at).await;
            Some((response, receiver))
        });
        Ok(Box::pin(late))
    }
}
