//! The cluster that the node has joined: its UID is recorded in the node's root directory and compared with what the API
//! server says. `engine::cluster_identity` decides; this reads, writes and reports.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use muster_engine::kubelet::cluster_identity::{self, NAMESPACE, Recorded};
use tokio::time::{Instant, sleep, timeout};

use crate::error_chain::chain;
use crate::join;

/// The record, in the node's root directory.
const FILE: &str = "cluster";
/// A record is a UID: a longer file is no record.
const RECORD_MAX: usize = 128;
/// How long the API server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A server that is not proven yet is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// A proven server is asked again, for it may be replaced while the watches go on.
const CONFIRM_EVERY: Duration = Duration::from_secs(60);
/// The same trouble is logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Membership {
    record: PathBuf,
    namespaces: Api<Namespace>,
    state: Mutex<cluster_identity::Membership>,
    /// One question at a time.
    asking: tokio::sync::Mutex<()>,
    logged: Mutex<Option<Instant>>,
}

impl Membership {
    pub fn new(client: Client, root: &Path) -> Self {
        let record = root.join(FILE);
        let recorded = read(&record);
        Self {
            record,
            namespaces: Api::all(client),
            state: Mutex::new(cluster_identity::Membership::new(recorded)),
            asking: tokio::sync::Mutex::new(()),
            logged: Mutex::new(None),
        }
    }

    /// Removes the record of a node that is to obey a new cluster: it then joins the one that it finds.
    pub fn forget(root: &Path) -> io::Result<()> {
        match std::fs::remove_file(root.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Asks the API server for the UID of the cluster. Whether it is the cluster that the node joined.
    pub async fn confirm(&self) -> bool {
        let _one = self.asking.lock().await;
        let asked = timeout(ANSWER_MAX, self.namespaces.get(NAMESPACE)).await;
        match asked {
            Ok(Ok(namespace)) => match namespace.uid().filter(|it| is_uid(it)) {
                Some(uid) => self.identified(&uid),
                None => self.state().unverified(Some(format!("namespace {NAMESPACE} has no UID").into())),
            },
            Ok(Err(kube::Error::Api(status))) => {
                let why = format!("cannot read namespace {NAMESPACE}: {}", status.message);
                self.state().unverified(Some(why.into()));
            }
            Ok(Err(error)) => {
                tracing::debug!(error = chain(&error), "the API server does not answer");
                self.state().unverified(None);
            }
            Err(_) => self.state().unverified(None),
        }
        self.log();
        self.may_obey()
    }

    /// Returns when the API server is proven to be the node's cluster.
    pub async fn confirmed(&self) {
        while !self.confirm().await {
            sleep(ASK_AGAIN).await;
        }
    }

    /// Asks again and again, for ever.
    pub(super) async fn run(&self) {
        loop {
            self.confirmed().await;
            sleep(CONFIRM_EVERY).await;
        }
    }

    pub fn may_obey(&self) -> bool {
        self.state().may_obey()
    }

    pub(super) fn may_remove_orphans(&self) -> bool {
        self.state().may_remove_orphans()
    }

    /// A complete list of pods has arrived. Whether it is obeyed.
    pub(super) async fn listed(&self) -> bool {
        self.confirm().await;
        self.state().listed()
    }

    /// Why the node is not ready, if it is because of its cluster.
    pub(super) fn trouble(&self) -> Option<String> {
        self.state().trouble(&self.record.display().to_string())
    }

    fn state(&self) -> MutexGuard<'_, cluster_identity::Membership> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn identified(&self, uid: &str) {
        let Some(uid) = self.state().identified(uid.into()) else { return };
        match join::write_private(&self.record, &format!("{uid}\n")) {
            Ok(()) => {
                tracing::info!(cluster = %uid, "this node belongs to this cluster from now on");
                self.state().recorded(uid);
            }
            Err(error) => {
                let why = format!("cannot record it in {}: {}", self.record.display(), chain(&error));
                self.state().unverified(Some(why.into()));
            }
        }
    }

    fn log(&self) {
        let Some(trouble) = self.trouble() else { return };
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|it| LOG_EVERY <= it.elapsed()) {
            *logged = Some(Instant::now());
            tracing::error!("{trouble}");
        }
    }
}

fn read(record: &Path) -> Recorded {
    match std::fs::read_to_string(record) {
        Ok(text) if is_uid(text.trim()) => Recorded::Cluster(text.trim().into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Recorded::Nothing,
        Ok(_) | Err(_) => Recorded::Unreadable,
    }
}

fn is_uid(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= RECORD_MAX
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
}
