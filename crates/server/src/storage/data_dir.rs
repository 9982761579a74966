//! The database and the cluster marker in the data directory: opening, backup, restore, encryption of Secrets, and
//! recovery advice for errors.

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_store::{
    DataDirectory, DataFileGuard, EncryptionKeys, LogError, OpenedLog, Revision, Sqlite, StoreLimits,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::etcd::EtcdOptions;

/// Interval at which the server checks that the database file and the cluster marker were not removed or replaced.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Names of the files with the certificates and keys of a cluster. They are created after the database.
const KEY_FILES: [&str; 5] = ["ca.crt", "ca.key", "nodes-ca.crt", "nodes-ca.key", "sa.key"];

/// Name of the file with the administrator's kubeconfig. It is also created after the database.
const KUBECONFIG_FILE: &str = "kubeconfig";

/// Returns the path of the database in a data directory.
pub(crate) fn database_path(data_dir: &Path) -> PathBuf {
    data_dir.join("muster.db")
}

/// Returns the path of the cluster marker, which contains the UID of the cluster.
pub(crate) fn cluster_marker_path(data_dir: &Path) -> PathBuf {
    data_dir.join("cluster")
}

/// Options with which the store is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Whether to start a new cluster if the database of the existing cluster is lost or damaged.
    pub new_cluster: bool,
    /// Maximum total size of all objects in bytes.
    pub bytes_max: usize,
    /// Encryption keys for Secrets. The first key encrypts, and all keys can decrypt. `None` if Secrets are not
    /// encrypted.
    pub keys: Option<EncryptionKeys>,
    /// The etcd cluster in which objects are stored. `None` stores them in the data directory. With etcd, `keys` is not
    /// used: the servers use encryption keys that they share.
    pub etcd: Option<EtcdOptions>,
}

/// Default for the maximum total size of all objects in bytes. The size is limited because all objects are in memory.
/// Upstream: etcd's `--quota-backend-bytes`.
pub const DEFAULT_STORE_BYTES_MAX: usize = 2 << 30;

impl Default for StoreOptions {
    fn default() -> Self {
        Self { new_cluster: false, bytes_max: DEFAULT_STORE_BYTES_MAX, keys: None, etcd: None }
    }
}

impl StoreOptions {
    /// Returns the size limits of the store and of each namespace.
    pub(crate) fn store_limits(&self) -> StoreLimits {
        StoreLimits::with_total(self.bytes_max)
    }
}

/// An error of the store. For most errors, the message ends with advice for the administrator.
#[derive(Debug, thiserror::Error)]
#[error("{error}{}", self.recovery_advice())]
pub struct DataError {
    error: LogError,
}

impl From<LogError> for DataError {
    fn from(error: LogError) -> Self {
        Self { error }
    }
}

impl DataError {
    /// Returns the end of the error message, which tells the administrator what to do. It is empty for some errors.
    fn recovery_advice(&self) -> &'static str {
        match self.error {
            LogError::DiskFull => ": make room, and try again",
            LogError::Damaged { .. } => {
                ". Restore a backup with `muster restore --replace`. Without one, --new-cluster begins an empty cluster: its nodes \
                 then end all pods"
            }
            LogError::Newer { .. } => ". Use the version of muster that wrote it, or a later one",
            LogError::Foreign { .. } => ". Choose another --data-dir",
            LogError::Exists { .. } => ". Choose another name, or move it away",
            LogError::Lost { .. } => {
                ". Restore a backup with `muster restore --replace`, or put the file back. Without one, --new-cluster begins an empty \
                 cluster: its nodes then end all pods"
            }
            LogError::MovedToEtcd { .. } => {
                ": start the server with --etcd. `muster migrate --to-sqlite` moves the cluster back"
            }
            LogError::Behind { .. } => {
                ". Put the missing file back, or restore a backup with `muster restore --replace`. To go on without the writes that \
                 are missing, run `muster backup` and restore that"
            }
            LogError::OtherCluster { .. } => {
                ". Put the right file back, or use `muster restore --replace`, which takes a backup of any cluster"
            }
            LogError::Marker { .. } => {
                ". If the data file beside it is the right one, remove this file: it is made again"
            }
            LogError::HasCluster { .. } => {
                ": --new-cluster is only for a data directory whose database is lost. Choose another --data-dir"
            }
            LogError::NoKey { .. } => {
                ". Name the file that has it with --encryption-key-file, or put it back in the data directory as encryption.key"
            }
            LogError::Remote { .. } => ". Start the server again: it lists all objects",
            LogError::Replaced { .. } => {
                ". Put it back, or restore a backup with `muster restore --replace`, and start again"
            }
            LogError::Busy { .. } | LogError::Writer { .. } | LogError::Failed { .. } => "",
        }
    }
}

/// Describes a data directory for the store, which opens the database in it. Checks whether the directory had a
/// cluster. `new_cluster` is [`StoreOptions::new_cluster`].
fn inspect_data_directory(data_dir: &Path, new_cluster: bool) -> DataDirectory {
    DataDirectory { marker: cluster_marker_path(data_dir), had_cluster: had_cluster(data_dir), new_cluster }
}

/// Whether a data directory had a cluster.
///
/// Rule: key files and the kubeconfig are created after the database. If one of them exists, the data directory had a
/// cluster. If such a directory has no database, the database is lost, and no new cluster is started. The node
/// directories of `muster up` do not count. They are mounted, so they can remain, empty, when a data directory is
/// removed while its containers run.
fn had_cluster(data_dir: &Path) -> bool {
    has_key_files(data_dir) || data_dir.join(KUBECONFIG_FILE).exists()
}

/// Whether a data directory has certificates or keys of a cluster.
pub(crate) fn has_key_files(data_dir: &Path) -> bool {
    KEY_FILES.iter().any(|it| data_dir.join(it).exists())
}

/// Checks that `keys` contain the key that encrypts the Secrets of a data directory. The recorded key is not changed.
pub fn check_encryption_keys(data_dir: &Path, keys: Option<&EncryptionKeys>) -> Result<(), DataError> {
    let directory = inspect_data_directory(data_dir, false);
    Ok(muster_store::check_encryption_keys(&database_path(data_dir), &directory, keys)?)
}

/// Encrypts the Secrets of a data directory with the first key of `write`, or decrypts them if `write` is `None`.
/// `read` contains the keys with which the Secrets are encrypted now, or is `None` if they are not encrypted. Returns
/// how many stored versions of Secrets were rewritten.
///
/// No server may use the directory during the call.
pub fn reencrypt_secrets(
    data_dir: &Path,
    read: Option<&EncryptionKeys>,
    write: Option<&EncryptionKeys>,
) -> Result<usize, DataError> {
    Ok(muster_store::reencrypt_secrets(
        &database_path(data_dir),
        &inspect_data_directory(data_dir, false),
        read,
        write,
    )?)
}

/// Opens the database of a data directory. The caller must not create a file of `KEY_FILES` or `KUBECONFIG_FILE` in
/// a new data directory before this call. If the directory contained one but no database, this function would assume
/// that the database of a cluster is lost.
pub(crate) fn open_database(data_dir: &Path, options: &StoreOptions) -> Result<Sqlite, DataError> {
    let directory = inspect_data_directory(data_dir, options.new_cluster);
    let keys = options.keys.as_ref();
    let OpenedLog { log, is_adopted, clear_secrets } =
        Sqlite::open_in_directory(&database_path(data_dir), &directory, keys)?;
    if 0 < clear_secrets {
        tracing::warn!(
            clear_secrets,
            "Secrets that were written before there were keys are still in clear: stop the server and run `muster encrypt`"
        );
    }
    if is_adopted {
        tracing::warn!(
            dir = %data_dir.display(),
            "adopted a muster.db without the file `cluster` beside it. If muster.db was copied from another directory, its last \
             commits may be missing: copy muster.db-wal and cluster too, or use `muster backup`"
        );
    }
    Ok(log)
}

/// Checks periodically whether the database file or the cluster marker was removed or replaced. If so, sends an error
/// to `gone` and stops checking. Returns when `stop` is cancelled. Without a guard, checks nothing.
pub(crate) async fn watch_data_files(
    guard: Option<DataFileGuard>,
    gone: oneshot::Sender<DataError>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(FILE_CHECK_INTERVAL) => {}
        }
        if let Some(Err(error)) = guard.as_ref().map(DataFileGuard::check_files) {
            drop(gone.send(error.into()));
            return stop.cancelled().await;
        }
    }
}

/// Copies the database of a data directory to the file `to`. A server may use the directory during the call. Returns
/// the revision of the copy.
pub fn backup(data_dir: &Path, to: &Path) -> Result<Revision, DataError> {
    Ok(muster_store::backup(&database_path(data_dir), to)?)
}

/// Replaces the database of a data directory with the backup `from`. `keys` decrypt the Secrets of an encrypted backup.
/// Returns the revision at which the restored store starts.
///
/// No server may use the directory during the call.
pub fn restore(data_dir: &Path, from: &Path, keys: Option<&EncryptionKeys>) -> Result<Revision, DataError> {
    Ok(muster_store::restore(from, &database_path(data_dir), &cluster_marker_path(data_dir), keys)?)
}

/// Whether the data directory has a database or a write-ahead log.
pub fn has_store(data_dir: &Path) -> bool {
    database_path(data_dir).exists() || database_path(data_dir).with_extension("db-wal").exists()
}
