//! The cluster that the node has joined. The cluster's UID is recorded in the node's root directory and compared with
//! the UID that the API server reports. `engine::kubelet::cluster_identity` has the rules, and this module does the IO.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use muster_engine::kubelet::cluster_identity::{self, CLUSTER_UID_NAMESPACE, ClusterRecord};
use muster_events::error_chain::format_error_chain;
use tokio::time::{Instant, sleep, timeout};

use crate::join;

/// File with the recorded cluster UID, in the node's root directory.
const RECORD_FILE: &str = "cluster";
/// Maximum length of a valid cluster UID.
const UID_BYTES_MAX: usize = 128;
/// Timeout for a response of the API server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to confirm the cluster while it is not confirmed.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which a confirmed cluster is confirmed again, because the API server behind the URL may be replaced
/// while the watches continue.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum interval between two log messages that the cluster is not confirmed.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Confirms that the API server belongs to the cluster that the node joined.
#[derive(Debug)]
pub struct ClusterMembership {
    /// Path of the file with the recorded cluster UID.
    record: PathBuf,
    /// API client for Namespaces. The UID of the Namespace `kube-system` is the cluster UID.
    namespaces: Api<Namespace>,
    /// The recorded cluster UID, and the decision of the engine's rules whether the API server belongs to that cluster.
    state: Mutex<cluster_identity::Membership>,
    /// Lock that is held during a confirmation, so that only one runs at a time.
    in_flight: tokio::sync::Mutex<()>,
    /// When it was last logged that the cluster is not confirmed. `None` if it was never logged.
    last_logged: Mutex<Option<Instant>>,
}

impl ClusterMembership {
    pub fn new(client: Client, root: &Path) -> Self {
        let record = root.join(RECORD_FILE);
        let recorded = read_record(&record);
        Self {
            record,
            namespaces: Api::all(client),
            state: Mutex::new(cluster_identity::Membership::new(recorded)),
            in_flight: tokio::sync::Mutex::new(()),
            last_logged: Mutex::new(None),
        }
    }

    /// Removes the recorded cluster UID, so that the node joins the cluster that it connects to next.
    pub fn remove_record(root: &Path) -> io::Result<()> {
        match std::fs::remove_file(root.join(RECORD_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads the cluster UID from the API server, and records it if no UID is recorded yet. Returns whether it is the
    /// UID of the cluster that the node joined. Returns false if the UID cannot be read or recorded.
    pub async fn confirm_cluster(&self) -> bool {
        let _one = self.in_flight.lock().await;
        let response = timeout(RESPONSE_TIMEOUT, self.namespaces.get(CLUSTER_UID_NAMESPACE)).await;
        match response {
            Ok(Ok(namespace)) => match namespace.uid().filter(|it| is_uid(it)) {
                Some(uid) => self.check_or_record_uid(&uid),
                None => self
                    .lock_state()
                    .mark_unverified(Some(format!("namespace {CLUSTER_UID_NAMESPACE} has no UID").into())),
            },
            Ok(Err(kube::Error::Api(status))) => {
                let why = format!("cannot read namespace {CLUSTER_UID_NAMESPACE}: {}", status.message);
                self.lock_state().mark_unverified(Some(why.into()));
            }
            Ok(Err(error)) => {
                tracing::debug!(error = format_error_chain(&error), "the API server does not respond");
                self.lock_state().mark_unverified(None);
            }
            Err(_) => self.lock_state().mark_unverified(None),
        }
        self.log_not_ready_reason();
        self.may_apply_events()
    }

    /// Waits until the API server is confirmed to belong to the node's cluster.
    pub async fn wait_until_confirmed(&self) {
        while !self.confirm_cluster().await {
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Confirms the cluster at intervals of [`CONFIRM_INTERVAL`]. Never returns.
    pub(super) async fn run(&self) {
        loop {
            self.wait_until_confirmed().await;
            sleep(CONFIRM_INTERVAL).await;
        }
    }

    /// Whether the API server is confirmed to belong to the node's cluster. If it is, its lists and events may be
    /// applied.
    pub fn may_apply_events(&self) -> bool {
        self.lock_state().is_verified()
    }

    /// Whether the agent has received a complete list of pods from a confirmed API server, and the API server is still
    /// confirmed. If so, pods on the node that are not in the list may be removed.
    pub(super) fn may_remove_orphans(&self) -> bool {
        self.lock_state().may_remove_orphans()
    }

    /// Called after a complete list of pods was received. Confirms the cluster, and if this succeeds, records that a
    /// list was received. Returns whether the list may be applied.
    pub(super) async fn confirm_list(&self) -> bool {
        self.confirm_cluster().await;
        self.lock_state().record_pod_list()
    }

    /// Returns why the cluster could not be confirmed, which makes the node NotReady. Returns `None` if the cluster is
    /// confirmed, or if the API server did not respond.
    pub(super) fn not_ready_reason(&self) -> Option<String> {
        self.lock_state().not_ready_reason(&self.record.display().to_string())
    }

    fn lock_state(&self) -> MutexGuard<'_, cluster_identity::Membership> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the API server's cluster UID with the recorded UID. Records the UID if none is recorded yet.
    fn check_or_record_uid(&self, uid: &str) {
        let Some(uid) = self.lock_state().check_cluster_uid(uid.into()) else { return };
        match join::write_private_file(&self.record, &format!("{uid}\n")) {
            Ok(()) => {
                tracing::info!(cluster = %uid, "recorded the cluster of this node");
                self.lock_state().record_joined_cluster(uid);
            }
            Err(error) => {
                let why = format!(
                    "cannot record the cluster UID in {}: {}",
                    self.record.display(),
                    format_error_chain(&error)
                );
                self.lock_state().mark_unverified(Some(why.into()));
            }
        }
    }

    /// Logs the reason of [`Self::not_ready_reason`], if there is one, at most once per [`LOG_INTERVAL`].
    fn log_not_ready_reason(&self) {
        let Some(trouble) = self.not_ready_reason() else { return };
        let mut logged = self.last_logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|it| LOG_INTERVAL <= it.elapsed()) {
            *logged = Some(Instant::now());
            tracing::error!("{trouble}");
        }
    }
}

/// Reads the cluster UID from the file `record`. Returns [`ClusterRecord::Nothing`] if the file does not exist, and
/// [`ClusterRecord::Unreadable`] if it cannot be read or has no valid UID.
fn read_record(record: &Path) -> ClusterRecord {
    match std::fs::read_to_string(record) {
        Ok(text) if is_uid(text.trim()) => ClusterRecord::Cluster(text.trim().into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => ClusterRecord::Nothing,
        Ok(_) | Err(_) => ClusterRecord::Unreadable,
    }
}

/// Whether the text has the syntax of a cluster UID: 1 to [`UID_BYTES_MAX`] ASCII letters, digits and hyphens.
fn is_uid(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= UID_BYTES_MAX
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
}
