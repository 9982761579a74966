//! Opens the database of a data directory, and checks that the database is complete and belongs to the directory's
//! cluster.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{OptionalExtension as _, Transaction};
use uuid::Uuid;

use super::disk_reserve::DiskReserve;
use super::{MOVED_SUFFIX, Sqlite, log_error_from_io, move_aside, wal, with_suffix};
use crate::cluster_marker::{ClusterMarker, ClusterMarkerFile, FileId};
use crate::encryption::{self, EncryptionKeys};
use crate::local_backend;
use crate::{LogError, Revision, Store};

/// A data directory whose database is to be opened: its cluster marker, whether it had a cluster before, and whether to
/// start a new cluster.
#[derive(Debug, Clone)]
pub struct DataDirectory {
    /// Path of the cluster marker file.
    pub marker: PathBuf,
    /// Whether other files in the directory show that it belonged to a cluster before.
    pub had_cluster: bool,
    /// Whether to start a new cluster if the existing database is unusable. The files of that database are renamed and
    /// kept. If the database is usable and has commits, opening it fails.
    pub new_cluster: bool,
}

/// The result of [`Sqlite::open_in_directory`].
#[derive(Debug)]
pub struct OpenedLog {
    pub log: Sqlite,
    /// Whether the database existed without a cluster marker, so that a marker was created for it.
    pub is_adopted: bool,
    /// Number of rows with a Secret in clear text, which were written before encryption was configured. Zero if no
    /// encryption keys are configured.
    pub clear_secrets: usize,
}

/// Detects that the database file or the cluster marker was removed or replaced while the server runs. Clones share the
/// open cluster marker.
#[derive(Debug, Clone)]
pub struct DataFileGuard(Arc<GuardedFiles>);

/// The database file and cluster marker that a [`DataFileGuard`] checks.
#[derive(Debug)]
struct GuardedFiles {
    /// Path of the database file.
    path: PathBuf,
    /// Identity of the database file. SQLite keeps the file open, so that no other file gets its inode. The guard does
    /// not open the file a second time, because closing a second descriptor would release SQLite's locks.
    file: FileId,
    marker: ClusterMarkerFile,
}

impl DataFileGuard {
    /// Records the identity of the database file and opens the cluster marker.
    fn open(path: &Path, marker: &Path) -> io::Result<Self> {
        let file = FileId::from_metadata(&fs::metadata(path)?);
        Ok(Self(Arc::new(GuardedFiles {
            path: path.to_owned(),
            file,
            marker: ClusterMarkerFile::open(marker)?,
        })))
    }

    /// Writes a revision that is durable in the database into the cluster marker.
    pub(super) fn advance_marker(&self, revision: Revision) {
        self.0.marker.advance_revision(revision);
    }

    /// Fails if the database file or the cluster marker was removed or replaced.
    ///
    /// Rule: a server exits if its database file or cluster marker was removed or replaced, because a later start would
    /// not find its writes.
    pub fn check_files(&self) -> Result<(), LogError> {
        self.check_data_file()?;
        self.0.marker.check_not_replaced()
    }

    /// Fails if the database file was removed or replaced.
    pub(super) fn check_data_file(&self) -> Result<(), LogError> {
        self.0.file.check_not_replaced(&self.0.path)
    }
}

impl Sqlite {
    /// Opens the database at `path` in a data directory. `keys` encrypt and decrypt its Secrets.
    ///
    /// Rule: a data directory that had a cluster is never treated as new, unless [`DataDirectory::new_cluster`] is set.
    /// In a directory that had a cluster, a database that is missing, empty, of another cluster or behind its marker is
    /// rejected and not changed. A database without a marker is adopted.
    pub fn open_in_directory(
        path: &Path,
        directory: &DataDirectory,
        keys: Option<&EncryptionKeys>,
    ) -> Result<OpenedLog, LogError> {
        let path = std::path::absolute(path).map_err(|it| log_error_from_io(path, &it))?;
        let open = || {
            if directory.new_cluster {
                move_unusable_database_aside(&path, directory)?;
            }
            let (mut log, is_adopted) = Self::open_checked(&path, directory)?;
            log.apply_encryption_keys(keys)?;
            let clear_secrets = if keys.is_some() { log.count_unencrypted_secrets()? } else { 0 };
            Ok(OpenedLog { log, is_adopted, clear_secrets })
        };
        open().map_err(|error| match error {
            // SQLite reports `disk I/O error` if a `-wal` or `-shm` file does not fit on the disk.
            LogError::Failed { .. } if is_disk_full(&path) => LogError::DiskFull,
            other => other,
        })
    }

    /// Returns the number of rows with a Secret that is not encrypted.
    fn count_unencrypted_secrets(&self) -> Result<usize, LogError> {
        let count = "SELECT count(*) FROM version WHERE key >= 'secrets/' AND key < 'secrets0' AND substr(value, 1, length(?1)) <> ?1";
        let count =
            self.connection.query_row(count, [encryption::ENCRYPTED_VALUE_PREFIX], |it| it.get::<_, i64>(0));
        Ok(usize::try_from(count.map_err(|it| self.to_log_error(&it))?).unwrap_or(0))
    }

    /// Opens the database and checks it against its cluster marker. The returned flag is [`OpenedLog::is_adopted`]:
    /// whether the database existed without a marker.
    pub(super) fn open_checked(path: &Path, directory: &DataDirectory) -> Result<(Self, bool), LogError> {
        let marker = ClusterMarker::read(&directory.marker).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => LogError::Marker { path: directory.marker.clone() },
            _ => log_error_from_io(&directory.marker, &error),
        })?;
        let len = |path: &Path| match fs::metadata(path) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(log_error_from_io(path, &error)),
        };
        let found = len(path)?;
        if found.unwrap_or(0) == 0 {
            let has_log = 0 < len(&with_suffix(path, "-wal"))?.unwrap_or(0);
            let had_cluster = directory.had_cluster && !directory.new_cluster;
            if !has_log && with_suffix(path, MOVED_SUFFIX).exists() {
                return Err(LogError::MovedToEtcd { path: path.to_owned() });
            }
            if marker.is_some() || had_cluster || has_log {
                let what = if found.is_none() { "missing" } else { "empty" };
                return Err(LogError::Lost { path: path.to_owned(), what });
            }
        }
        // Remove what a re-encryption, restore or migration that was killed has left.
        super::remove_partial_database(path).map_err(|it| log_error_from_io(path, &it))?;
        let mut log = Self::open_file(path)?;
        if let Some(marker) = &marker {
            // The write-ahead log is kept until the database is known to be complete.
            log.keep_wal_on_close()?;
            log.check_against_marker(marker)?;
        }
        log.create_tables_and_set_pragmas().map_err(|it| log.to_log_error(&it))?;
        let uid = match log.cluster_uid()? {
            Some(uid) => uid,
            None => log.generate_cluster_uid()?,
        };
        if marker.is_none() {
            let revision = log.last_revision().unwrap_or(0);
            let write = ClusterMarker { uid, revision }.write(&directory.marker);
            write.map_err(|it| log_error_from_io(&directory.marker, &it))?;
        } else {
            log.remove_wal_on_close()?;
        }
        log.guard =
            Some(DataFileGuard::open(path, &directory.marker).map_err(|it| log_error_from_io(path, &it))?);
        log.reserve = DiskReserve::open(path).ok();
        let is_adopted = marker.is_none() && 0 < found.unwrap_or(0);
        Ok((log, is_adopted))
    }

    /// Fails if the database and the marker have different cluster UIDs, or if the database ends before the revision of
    /// the marker.
    fn check_against_marker(&self, marker: &ClusterMarker) -> Result<(), LogError> {
        let found = self.cluster_uid()?;
        if found.as_ref() != Some(&marker.uid) {
            let expected = marker.uid.clone();
            return Err(LogError::OtherCluster { path: self.path.clone(), found, expected });
        }
        match self.last_revision() {
            Some(found) if found < marker.revision => {
                Err(LogError::Behind { path: self.path.clone(), found, expected: marker.revision })
            }
            // A database whose last revision cannot be read is reported as damaged later.
            _ => Ok(()),
        }
    }

    /// Returns the UID of the cluster, or `None` if the database has none yet. A database gets a UID when it is created
    /// or adopted. Backups and restored databases keep the UID.
    pub(super) fn cluster_uid(&self) -> Result<Option<String>, LogError> {
        let has_table = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'cluster'";
        let has_table = self.connection.query_row(has_table, [], |it| it.get::<_, i64>(0));
        if has_table.map_err(|it| self.to_log_error(&it))? == 0 {
            return Ok(None);
        }
        let uid = self.connection.query_row("SELECT uid FROM cluster", [], |it| it.get(0));
        uid.optional().map_err(|it| self.to_log_error(&it))
    }

    /// Generates a random cluster UID, stores it in the database and returns it.
    pub(super) fn generate_cluster_uid(&mut self) -> Result<String, LogError> {
        let uid = Uuid::new_v4().to_string();
        let set = |log: &mut Self| -> rusqlite::Result<()> {
            let transaction = log.connection.transaction()?;
            insert_cluster_uid(&transaction, &uid)?;
            transaction.commit()
        };
        set(self).map_err(|it| self.to_log_error(&it))?;
        // Checkpointed, so that the UID is not lost together with the write-ahead log.
        self.checkpoint_wal()?;
        Ok(uid)
    }

    /// Configures the connection to keep the write-ahead log when the database is closed.
    fn keep_wal_on_close(&self) -> Result<(), LogError> {
        self.set_keep_wal_on_close(true)
    }

    /// Configures the connection to checkpoint and remove the write-ahead log when the database is closed, which is the
    /// default of SQLite.
    fn remove_wal_on_close(&self) -> Result<(), LogError> {
        self.set_keep_wal_on_close(false)
    }

    /// Sets what closing the database does with the write-ahead log: keeps it if `is_kept` is true, otherwise
    /// checkpoints and removes it.
    pub(super) fn set_keep_wal_on_close(&self, is_kept: bool) -> Result<(), LogError> {
        let set = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, is_kept);
        set.map(drop).map_err(|it| self.to_log_error(&it))
    }

    /// Opens the database file. Creates an empty file if it does not exist. Fails if the write-ahead log is damaged.
    fn open_file(path: &Path) -> Result<Self, LogError> {
        super::ensure_private_file(path).map_err(|it| log_error_from_io(path, &it))?;
        if wal::is_damaged(&with_suffix(path, "-wal")).map_err(|it| log_error_from_io(path, &it))? {
            let why = "its write-ahead log has commits that can no longer be read";
            return Err(super::damaged_error(path, why));
        }
        Self::open_existing(path.to_owned())
    }

    /// Returns the guard of the database file and cluster marker, or `None` if the database was opened outside a data
    /// directory.
    pub fn file_guard(&self) -> Option<DataFileGuard> {
        self.guard.clone()
    }

    /// Opens a database outside a data directory: without cluster marker, guard and disk reserve.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let path = std::path::absolute(path).map_err(|it| log_error_from_io(path, &it))?;
        let mut log = Self::open_file(&path)?;
        log.create_tables_and_set_pragmas().map_err(|it| log.to_log_error(&it))?;
        Ok(log)
    }
}

/// Stores the cluster UID in the database.
pub(super) fn insert_cluster_uid(transaction: &Transaction<'_>, uid: &str) -> rusqlite::Result<()> {
    transaction.execute_batch("CREATE TABLE IF NOT EXISTS cluster (uid TEXT NOT NULL) STRICT")?;
    transaction.execute("INSERT INTO cluster VALUES (?1)", [uid]).map(drop)
}

/// Whether the file system of `path` is full: it has less than 64 KiB of free space.
fn is_disk_full(path: &Path) -> bool {
    let free = |it: rustix::fs::StatVfs| it.f_bavail.saturating_mul(it.f_frsize) < 64 << 10;
    path.parent().is_some_and(|it| rustix::fs::statvfs(it).is_ok_and(free))
}

/// Prepares the data directory for a new cluster: renames the files of an unusable database and removes its cluster
/// marker. Leaves a usable database without commits in place. Fails with [`LogError::HasCluster`] if the database is
/// usable and has commits, and with the error of opening it if it may be usable later, for example because it is
/// locked.
fn move_unusable_database_aside(path: &Path, directory: &DataDirectory) -> Result<(), LogError> {
    let existing = DataDirectory { new_cluster: false, ..directory.clone() };
    let opened = Sqlite::open_checked(path, &existing).and_then(|(mut log, _)| {
        log.keep_wal_on_close()?;
        let revision = local_backend::verify_log(&mut log)?;
        log.remove_wal_on_close()?;
        Ok(revision)
    });
    match opened {
        Ok(Store::FIRST_REVISION) => return Ok(()),
        Ok(_) => return Err(LogError::HasCluster { path: path.to_owned() }),
        Err(
            LogError::Lost { .. }
            | LogError::Behind { .. }
            | LogError::OtherCluster { .. }
            | LogError::Marker { .. }
            | LogError::Damaged { .. },
        ) => {}
        Err(other) => return Err(other),
    }
    let make = || {
        move_aside(path)?;
        super::remove_if_exists(&directory.marker)
    };
    make().map_err(|it| log_error_from_io(path, &it))
}
