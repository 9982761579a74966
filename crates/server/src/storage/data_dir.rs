//! The data file: where it is, and what to do when something is wrong with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_store::{Directory, Guard, Keys, Limits, LogError, Opened, Revision, Sqlite};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How often it is checked that the files of the data directory are still those that are open.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Files that only a data directory with a cluster has: the database is created before them.
const OF_A_CLUSTER: [&str; 4] = ["ca.crt", "ca.key", "nodes-ca.key", "sa.key"];

/// The store of a server whose data directory this is.
pub(crate) fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("muster.db")
}

/// Says which cluster the data directory is of.
fn marker(data_dir: &Path) -> PathBuf {
    data_dir.join("cluster")
}

/// What may be chosen of the store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Begin a new cluster where the database of the old one is lost or damaged.
    pub new_cluster: bool,
    /// How many bytes all objects may have together.
    pub bytes_max: usize,
    /// Secrets are encrypted with the first of these.
    pub keys: Option<Keys>,
}

/// Upstream: etcd's `--quota-backend-bytes`. All of it is in memory.
pub const STORE_BYTES_MAX: usize = 2 << 30;

impl Default for StoreOptions {
    fn default() -> Self {
        Self { new_cluster: false, bytes_max: STORE_BYTES_MAX, keys: None }
    }
}

impl StoreOptions {
    pub(crate) fn limits(&self) -> Limits {
        Limits::of(self.bytes_max)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{error}{}", self.advice())]
pub struct DataError {
    error: LogError,
}

impl From<LogError> for DataError {
    fn from(error: LogError) -> Self {
        Self { error }
    }
}

impl DataError {
    fn advice(&self) -> &'static str {
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
            LogError::Replaced { .. } => {
                ". Put it back, or restore a backup with `muster restore --replace`, and start again"
            }
            LogError::Busy { .. } | LogError::Writer { .. } | LogError::Failed { .. } => "",
        }
    }
}

fn directory(data_dir: &Path, new_cluster: bool) -> Directory {
    let had_cluster = OF_A_CLUSTER.iter().any(|it| data_dir.join(it).exists());
    Directory { marker: marker(data_dir), had_cluster, new_cluster }
}

/// Encrypts the Secrets of a data directory that no server uses with the first of `write`, or decrypts them without; `read` are the keys
/// that they are encrypted with. Gives their number.
pub fn convert_secrets(
    data_dir: &Path,
    read: Option<&Keys>,
    write: Option<&Keys>,
) -> Result<usize, DataError> {
    Ok(muster_store::convert(&file(data_dir), &directory(data_dir, false), read, write)?)
}

/// Opens the store of a data directory. It comes before the certificates: a directory that has those had a cluster.
pub(crate) fn open(data_dir: &Path, options: &StoreOptions) -> Result<Sqlite, DataError> {
    let directory = directory(data_dir, options.new_cluster);
    let keys = options.keys.as_ref();
    let Opened { log, is_adopted, clear_secrets } = Sqlite::open_in(&file(data_dir), &directory, keys)?;
    if 0 < clear_secrets {
        tracing::warn!(
            clear_secrets,
            "Secrets that were written before there were keys are still in clear: stop the server and run `muster encrypt`"
        );
    }
    if is_adopted {
        tracing::info!(
            dir = %data_dir.display(),
            "adopted a data directory without a cluster marker: from now on a lost or replaced database is noticed"
        );
    }
    Ok(log)
}

/// Until `stop`: ends the server when a file of its data directory was removed or replaced.
pub(crate) async fn keep_watch(
    guard: Option<Guard>,
    gone: oneshot::Sender<DataError>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
        if let Some(Err(error)) = guard.as_ref().map(Guard::check) {
            drop(gone.send(error.into()));
            return stop.cancelled().await;
        }
    }
}

/// Copies the store of a data directory to `to`, also while a server writes it. Says at which revision.
pub fn backup(data_dir: &Path, to: &Path) -> Result<Revision, DataError> {
    Ok(muster_store::backup(&file(data_dir), to)?)
}

/// Puts a backup in the place of the store of a data directory, which no server may be using. Says at which revision it
/// goes on.
pub fn restore(data_dir: &Path, from: &Path, keys: Option<&Keys>) -> Result<Revision, DataError> {
    Ok(muster_store::restore(from, &file(data_dir), &marker(data_dir), keys)?)
}

/// Whether the data directory has a store already, or the write-ahead log of one.
pub fn has_store(data_dir: &Path) -> bool {
    file(data_dir).exists() || file(data_dir).with_extension("db-wal").exists()
}
