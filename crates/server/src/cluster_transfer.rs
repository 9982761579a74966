//! Backup and restore of a cluster in etcd, and migration of a cluster from a data directory to etcd or back. A backup
//! is a file in the format of the database in a data directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_etcd::{
    ClusterState, EtcdApi as _, EtcdClient, EtcdError, EtcdSnapshot, Keyspace, LoadError, RestoreError,
    RestoreInput, UnusableError,
};
use muster_store::{
    BackupFile, EncryptionKeys, LogError, RESTORE_REVISION_GAP, Revision, Snapshot, SnapshotWriter,
    StoredObject,
};

use crate::cluster_keys::{ClusterKeys, ClusterKeysError};
use crate::storage::data_dir::{self, DataError, StoreOptions, cluster_marker_path, database_path};
use crate::storage::etcd::{EtcdOptions, EtcdStoreError, QUIET_PERIOD};

/// Store key of the Namespace whose UID identifies a cluster.
const IDENTITY_KEY: &str = "namespaces//kube-system";

/// Options of a backup or restore of a cluster in etcd, or of a migration to or from etcd.
pub struct EtcdTransferOptions<'a> {
    pub etcd: &'a EtcdOptions,
    /// Data directory that contains the server token, unless `EtcdOptions::token_file` names another file. For a
    /// restore of a backup without keys, and for a migration to etcd, it also contains the certificates and keys of the
    /// cluster. A migration from etcd writes these certificates and keys to it.
    pub data_dir: &'a Path,
    /// Keys with which the Secrets in the database of a data directory, or in a backup of it, are encrypted. `None` if
    /// they are not encrypted.
    pub encryption: Option<EncryptionKeys>,
    /// Function that is called with the number of objects read or written so far.
    pub on_progress: &'a mut (dyn FnMut(usize) + Send),
    /// Function that is called before the transfer waits to see whether servers still write to etcd. The argument is
    /// the duration of the wait.
    pub on_wait: &'a (dyn Fn(Duration) + Sync),
}

impl std::fmt::Debug for EtcdTransferOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdTransferOptions").field("etcd", &self.etcd).finish_non_exhaustive()
    }
}

/// The result of a backup, a restore or a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferSummary {
    /// Number of objects. `None` if an earlier migration had already moved them.
    pub objects: Option<usize>,
    /// The revision of the backup, or the revision at which the restored or moved cluster starts.
    pub revision: Revision,
}

/// Why a backup, a restore or a migration failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    Store(#[from] EtcdStoreError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Keys(#[from] ClusterKeysError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("read the cluster in etcd")]
    Load(#[source] LoadError),
    #[error("etcd compacted its history while it was read: run the command again")]
    Compacted,
    #[error("etcd has no cluster below the prefix {prefix}: choose another --etcd or --etcd-prefix")]
    NoCluster { prefix: String },
    #[error("etcd already has a cluster below the prefix {prefix}: {advice}")]
    HasCluster { prefix: String, advice: &'static str },
    #[error(
        "servers are running on etcd: one of them wrote within the last {} s. Stop all servers with this --etcd and --etcd-prefix, and \
         run the command again",
        QUIET_PERIOD.as_secs()
    )]
    ServersRunning,
    #[error("{} already has a database: choose another --data-dir", path.display())]
    HasDatabase { path: PathBuf },
    #[error(
        "the cluster in etcd has no Namespace kube-system, so it has no UID: start a server once, which creates it"
    )]
    NoUid,
}

impl From<LogError> for TransferError {
    fn from(error: LogError) -> Self {
        Self::Data(error.into())
    }
}

impl From<LoadError> for TransferError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Etcd { source: EtcdError::Compacted } => Self::Compacted,
            other => Self::Load(other),
        }
    }
}

impl From<EtcdError> for TransferError {
    fn from(error: EtcdError) -> Self {
        Self::Store(error.into())
    }
}

impl From<UnusableError> for TransferError {
    fn from(error: UnusableError) -> Self {
        Self::Store(error.into())
    }
}

/// Writes all objects of the cluster in etcd, as of one revision, to the new file `to`. Servers may run during the
/// backup.
pub async fn backup_etcd(
    transfer: EtcdTransferOptions<'_>,
    to: &Path,
) -> Result<TransferSummary, TransferError> {
    if to.exists() {
        return Err(LogError::Exists { path: to.to_owned() }.into());
    }
    let (client, keyspace) = connect(transfer.etcd).await?;
    let snapshot = EtcdSnapshot::take(&client, keyspace, false).await?;
    let keys = transfer.cluster_keys(&snapshot)?;
    let mut writer = SnapshotWriter::create(to, Some(&keys.encryption))?;
    let uid = copy_objects(&client, &snapshot, &keys, &mut writer, transfer.on_progress).await?;
    let count = writer.finish(snapshot.revision(), &uid, Some(&keys.sealed))?;
    Ok(TransferSummary { objects: Some(count), revision: snapshot.revision() })
}

/// Writes the backup `from` to etcd. If etcd already has a cluster, replaces it if `replaces` is set, and fails
/// otherwise. A cluster whose restore was interrupted is always replaced. Fails if servers are running on etcd.
///
/// Rule: the resourceVersions of the restored cluster are far above those of the backup and of the replaced cluster, as
/// after a restore to a data directory.
pub async fn restore_etcd(
    transfer: EtcdTransferOptions<'_>,
    from: &Path,
    replaces: bool,
) -> Result<TransferSummary, TransferError> {
    let (client, keyspace) = connect(transfer.etcd).await?;
    let state = muster_etcd::read_cluster_state(&client, &keyspace).await?;
    state.check_prefix()?;
    if !state.is_empty && !state.is_restoring() && !replaces {
        return Err(TransferError::HasCluster {
            prefix: transfer.etcd.prefix.clone(),
            advice: "add --replace to replace it, which deletes it, or choose another --etcd-prefix",
        });
    }
    let file = BackupFile::open(from)?;
    let token_file = transfer.etcd.token_file.as_deref();
    let (keys, backup) = match file.cluster_keys()? {
        Some(sealed) => {
            let keys = ClusterKeys::open(sealed, token_file, transfer.data_dir)?;
            let backup = file.read(Some(&keys.encryption))?;
            (keys, backup)
        }
        None => {
            let backup = file.read(transfer.encryption.as_ref())?;
            let keys =
                ClusterKeys::from_directory(token_file, transfer.data_dir, transfer.encryption.as_ref())?;
            (keys, backup)
        }
    };
    transfer.ensure_servers_stopped(&client, &keyspace, &state).await?;
    write_cluster(&client, &keyspace, &state, &backup, &keys, RESTORE_REVISION_GAP, transfer.on_progress)
        .await
}

/// Writes the certificates and keys in the backup `from` to the data directory. Does nothing if the data directory
/// already has certificates or has no server token, or if the backup has no keys. Only a backup of a cluster on etcd
/// has keys.
pub fn install_backup_keys(data_dir: &Path, from: &Path) -> Result<(), TransferError> {
    if data_dir::has_key_files(data_dir) || !ClusterKeys::has_server_token(data_dir) {
        return Ok(());
    }
    if let Some(sealed) = BackupFile::open(from)?.cluster_keys()? {
        ClusterKeys::open(sealed, None, data_dir)?.install(data_dir)?;
    }
    Ok(())
}

/// Moves the cluster of the data directory to etcd. No server may use the data directory during the call. Fails if etcd
/// has another cluster.
///
/// Rule: the database is renamed only after etcd has all objects. If a migration was interrupted before that, the next
/// run copies all objects again. If it was interrupted later, the next run only renames the database.
pub async fn migrate_to_etcd(transfer: EtcdTransferOptions<'_>) -> Result<TransferSummary, TransferError> {
    let (client, keyspace) = connect(transfer.etcd).await?;
    let dir = transfer.data_dir;
    let options = StoreOptions { keys: transfer.encryption.clone(), ..StoreOptions::default() };
    let mut log = data_dir::open_database(dir, &options)?;
    let database = log.snapshot()?;
    drop(log);
    let state = muster_etcd::read_cluster_state(&client, &keyspace).await?;
    state.check_prefix()?;
    let is_same = |uid: &str| database.cluster_uid.as_deref() == Some(uid);
    let source = state.source.as_ref().filter(|it| is_same(&it.cluster_uid));
    let is_complete = !state.is_restoring() && !state.is_moved();
    let summary = match source.filter(|it| is_complete && it.revision == database.revision) {
        Some(_) => TransferSummary { objects: None, revision: database.revision },
        None if state.is_empty
            || state.is_restoring()
            || (state.is_moved() && transfer.is_cluster_of_data_dir(&client, &keyspace).await?) =>
        {
            let encryption = transfer.encryption.as_ref();
            let keys = ClusterKeys::from_directory(transfer.etcd.token_file.as_deref(), dir, encryption)?;
            write_cluster(&client, &keyspace, &state, &database, &keys, 0, transfer.on_progress).await?
        }
        None => {
            return Err(TransferError::HasCluster {
                prefix: transfer.etcd.prefix.clone(),
                advice: "choose another --etcd-prefix",
            });
        }
    };
    muster_store::rename_migrated_database(&database_path(dir))?;
    Ok(summary)
}

/// Moves the cluster from etcd to the data directory, which must not have a database, except one that an interrupted
/// run of this migration has written. Fails if servers are running on etcd.
///
/// Rule: before the objects are read, the cluster in etcd is marked as moved, so that no server starts on it. The
/// objects remain in etcd.
pub async fn migrate_to_sqlite(transfer: EtcdTransferOptions<'_>) -> Result<TransferSummary, TransferError> {
    let (client, keyspace) = connect(transfer.etcd).await?;
    let dir = transfer.data_dir;
    let state = muster_etcd::read_cluster_state(&client, &keyspace).await?;
    if state.is_restoring() {
        return Err(UnusableError::Restoring.into());
    }
    if data_dir::has_store(dir) && !state.is_moved() {
        return Err(TransferError::HasDatabase { path: dir.to_owned() });
    }
    // Before the cluster is marked as moved: the token may be missing, or the data directory may have another cluster.
    let snapshot = EtcdSnapshot::take(&client, keyspace.clone(), true).await?;
    let keys = transfer.cluster_keys(&snapshot)?;
    keys.install(dir)?;
    if !state.is_moved() {
        transfer.ensure_servers_stopped(&client, &keyspace, &state).await?;
        if !muster_etcd::mark_moved(&client, &keyspace, &state).await? {
            return Err(TransferError::ServersRunning);
        }
    }
    if data_dir::has_store(dir) {
        return check_interrupted_migration(dir, &snapshot, &keys);
    }
    let snapshot = EtcdSnapshot::take(&client, keyspace, true).await?;
    let mut writer = SnapshotWriter::create(&database_path(dir), Some(&keys.encryption))?;
    let uid = copy_objects(&client, &snapshot, &keys, &mut writer, transfer.on_progress).await?;
    let count = writer.finish_in_directory(snapshot.revision(), &uid, &cluster_marker_path(dir))?;
    Ok(TransferSummary { objects: Some(count), revision: snapshot.revision() })
}

impl EtcdTransferOptions<'_> {
    /// Decrypts the keys of the cluster in etcd with the server token. Fails if etcd has no cluster.
    fn cluster_keys(&self, snapshot: &EtcdSnapshot) -> Result<ClusterKeys, TransferError> {
        let Some(sealed) = &snapshot.cluster_keys else {
            return Err(TransferError::NoCluster { prefix: self.etcd.prefix.clone() });
        };
        let token_file = self.etcd.token_file.as_deref();
        Ok(ClusterKeys::open(sealed.clone(), token_file, self.data_dir)?)
    }

    /// Whether the cluster in etcd, which is marked as moved, has the same certificates as the data directory.
    async fn is_cluster_of_data_dir(
        &self,
        client: &EtcdClient,
        keyspace: &Keyspace,
    ) -> Result<bool, TransferError> {
        let snapshot = EtcdSnapshot::take(client, keyspace.clone(), true).await?;
        Ok(self.cluster_keys(&snapshot)?.matches_data_dir(self.data_dir)?)
    }

    /// Waits for [`QUIET_PERIOD`], and fails if a server writes to etcd during this time. Does not wait if no server
    /// has ever written.
    async fn ensure_servers_stopped(
        &self,
        client: &EtcdClient,
        keyspace: &Keyspace,
        state: &ClusterState,
    ) -> Result<(), TransferError> {
        if state.last_write == 0 {
            return Ok(());
        }
        (self.on_wait)(QUIET_PERIOD);
        tokio::time::sleep(QUIET_PERIOD).await;
        let now = muster_etcd::read_cluster_state(client, keyspace).await?;
        if now.last_write == state.last_write { Ok(()) } else { Err(TransferError::ServersRunning) }
    }
}

/// Connects to etcd and checks that its version is supported.
async fn connect(options: &EtcdOptions) -> Result<(EtcdClient, Keyspace), TransferError> {
    let client = options.client()?;
    client.check().await?;
    Ok((client, options.keyspace()))
}

/// Copies all objects from etcd to a file. Returns the UID of the cluster, and fails if the cluster has none.
async fn copy_objects(
    client: &EtcdClient,
    snapshot: &EtcdSnapshot,
    keys: &ClusterKeys,
    writer: &mut SnapshotWriter,
    on_progress: &mut (dyn FnMut(usize) + Send),
) -> Result<String, TransferError> {
    let mut uid = snapshot.source.as_ref().map(|it| it.cluster_uid.clone());
    let mut count = 0;
    let mut copy = |object: StoredObject| -> Result<(), TransferError> {
        if uid.is_none() && &*object.key == IDENTITY_KEY {
            uid = object_uid(&object);
        }
        writer.add(&object)?;
        count += 1;
        on_progress(count);
        Ok(())
    };
    snapshot.read_objects(client, &keys.encryption, &mut copy).await?;
    uid.ok_or(TransferError::NoUid)
}

/// Replaces the cluster in etcd with the objects in `content` and the keys `keys`.
async fn write_cluster(
    client: &EtcdClient,
    keyspace: &Keyspace,
    state: &ClusterState,
    content: &Snapshot,
    keys: &ClusterKeys,
    revision_gap: Revision,
    on_progress: &mut (dyn FnMut(usize) + Send),
) -> Result<TransferSummary, TransferError> {
    let own_uid = || {
        let identity = content.objects.iter().find(|it| &*it.key == IDENTITY_KEY);
        identity.and_then(|it| object_uid(it))
    };
    let input = RestoreInput {
        objects: &content.objects,
        cluster_keys: keys.sealed.clone(),
        encryption: &keys.encryption,
        cluster_uid: content.cluster_uid.clone().or_else(own_uid).ok_or(TransferError::NoUid)?,
        revision: content.revision,
        revision_gap,
    };
    let revision = muster_etcd::restore(client, keyspace, state, &input, on_progress).await?;
    Ok(TransferSummary { objects: Some(content.objects.len()), revision })
}

/// Checks that the database in the data directory was written by an earlier run of this migration that was interrupted
/// after the copy, and returns the summary, because nothing is left to copy.
///
/// A migration copies the objects after it has marked the cluster in etcd as moved. So a database with a lower revision
/// than this mark is another database and is refused, and so is any database if the cluster is not marked as moved.
fn check_interrupted_migration(
    dir: &Path,
    snapshot: &EtcdSnapshot,
    keys: &ClusterKeys,
) -> Result<TransferSummary, TransferError> {
    let database = BackupFile::open(&database_path(dir))?.read(Some(&keys.encryption))?;
    if snapshot.moved_revision().is_none_or(|it| database.revision < it) {
        return Err(TransferError::HasDatabase { path: dir.to_owned() });
    }
    Ok(TransferSummary { objects: None, revision: database.revision })
}

/// Returns the UID of an API object.
fn object_uid(object: &StoredObject) -> Option<String> {
    let object: serde_json::Value = serde_json::from_slice(&object.value).ok()?;
    object["metadata"]["uid"].as_str().map(ToOwned::to_owned)
}
