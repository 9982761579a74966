//! The durable log: an SQLite database in one file.
//!
//! A commit is one row. Rows are only appended, except that a compaction removes rows, see [`Log`]. There is no index
//! by key, because reads are served from memory. The view `object` shows the current state in an SQLite shell.

/// Opens the database of a data directory and checks its cluster marker.
mod data_directory;
/// A file that reserves disk space, so that objects can be deleted when the disk is full.
mod disk_reserve;
/// Changes the encryption of all Secrets of a closed database.
mod secret_reencryption;
/// Writes and reads all objects of a cluster as one database file.
mod snapshot;
/// Detects a damaged write-ahead log.
mod wal;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use muster_files::{create_new_private_dir, create_private_file, sync_parent_dir};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension as _, Statement, Transaction, ffi, params,
};

use crate::cluster_marker::ClusterMarker;
use crate::encryption::{DecryptError, EncryptionKeys};
use crate::local_backend;
use crate::log::OnRow;
use crate::{CommitEvent, Compaction, KeyChange, Log, LogError, LogRow, Revision, SelectorIndex, Store};

use self::disk_reserve::DiskReserve;

pub use self::data_directory::{DataDirectory, DataFileGuard, OpenedLog};
pub use self::secret_reencryption::{check_encryption_keys, reencrypt_secrets};
pub use self::snapshot::{BackupFile, ObjectListDigest, Snapshot, SnapshotWriter, rename_migrated_database};

/// SQLite application ID of Muster's database files: "MSTR".
const APPLICATION_ID: i64 = 0x4d53_5452;

/// File format version of a database without encrypted Secrets. It is increased when older versions of Muster can no
/// longer read the file.
const FORMAT_VERSION: i64 = 1;

/// File format version of a database with encrypted Secrets.
const FORMAT_VERSION_ENCRYPTED: i64 = 2;

/// Size in bytes at which the write-ahead log is checkpointed. A checkpoint of this size takes so little time that
/// writes can wait for it. After a crash, SQLite usually reads at most twice this size, which takes about 50 ms.
const CHECKPOINT_WAL_BYTES: usize = 8 << 20;

/// Suffix of a database that is not complete yet: a file beside the database of a data directory, and a private directory
/// beside a backup.
const PARTIAL_SUFFIX: &str = ".partial";

/// Page size of the database in bytes, which is SQLite's default.
const PAGE_BYTES: usize = 4096;

/// Number of bytes by which the write-ahead log grows between two attempts to checkpoint it, if a backup prevented the
/// first attempt from completing.
const CHECKPOINT_RETRY_BYTES: usize = 1 << 20;

/// Maximum time to wait for a lock on the database file. While a server runs, only backups open the file too, and they
/// hold locks briefly.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum difference between the revision of a restored store and that of its backup. Clients may have seen revisions
/// after the backup, so no new commit may have one of these revisions.
pub const RESTORE_REVISION_GAP: Revision = 1_000_000_000;

/// Suffixes of the journal, write-ahead log and shared-memory files that SQLite keeps beside a database. They must be
/// moved or removed together with the database file, because SQLite would apply them to a new database of the same
/// name.
const JOURNAL_FILE_SUFFIXES: [&str; 3] = ["-journal", "-wal", "-shm"];

/// Suffix of a database that a restore has replaced.
const REPLACED_SUFFIX: &str = ".replaced";

/// Suffix of a database whose objects were moved to etcd.
const MOVED_SUFFIX: &str = ".moved";

/// SQL statements that create the tables of a new database. `version` has a row for each commit, as in [`LogRow`].
/// `floor` has one row with the compacted revision, see [`Log::compacted_revision`].
const CREATE_TABLES_SQL: &str = "
    CREATE TABLE version (
        revision INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        is_gone INTEGER NOT NULL,
        created INTEGER NOT NULL,
        expires_s INTEGER,
        sum INTEGER NOT NULL,
        selectable BLOB NOT NULL,
        value BLOB NOT NULL
    ) STRICT;
    CREATE TABLE floor (revision INTEGER NOT NULL) STRICT;
    CREATE VIEW object AS
        SELECT key, max(revision) AS revision, created, expires_s, CAST(value AS TEXT) AS value
        FROM version GROUP BY key HAVING NOT is_gone;
";

/// SQL statement that inserts a row, see [`StoredRow::insert`].
const INSERT_ROW_SQL: &str = "INSERT INTO version VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// An open SQLite database as a durable [`Log`].
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    /// Absolute path of the database file.
    path: PathBuf,
    /// Estimated number of bytes written to the write-ahead log since its last complete checkpoint. After an incomplete
    /// checkpoint it is set so that the next attempt follows after `CHECKPOINT_RETRY_BYTES`.
    wal_bytes: usize,
    /// Detects that the database file or the cluster marker was removed or replaced. `None` for a database outside a
    /// data directory.
    guard: Option<DataFileGuard>,
    /// The disk reserve, which also holds the database file open. It is dropped after the connection, because closing
    /// any descriptor of the file releases SQLite's locks. `None` for a database outside a data directory, or if the
    /// reserve could not be opened.
    reserve: Option<DiskReserve>,
    /// How values of Secrets are encrypted and decrypted.
    secret_encryption: SecretEncryption,
}

/// How values of Secrets are encrypted and decrypted.
#[derive(Debug)]
enum SecretEncryption {
    /// Values are neither encrypted nor decrypted. Used for a database without encryption, and for one that is only
    /// copied.
    Raw,
    /// Values are encrypted with the first key, and decrypted with the key that encrypted them.
    Keys(EncryptionKeys),
}

impl Sqlite {
    /// Opens an existing database, which may still be an empty file without a write-ahead log. Fails, and does not
    /// change the file, if another program or a newer version of Muster wrote it.
    fn open_existing(path: PathBuf) -> Result<Self, LogError> {
        // SQLite removes the write-ahead log of an empty file when it opens it.
        if is_empty_or_missing(&path) && !is_empty_or_missing(&with_suffix(&path, "-wal")) {
            return Err(LogError::Lost { path, what: "empty" });
        }
        Self::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    /// Opens an existing database with these SQLite flags, and checks its application ID and format version.
    fn open_with_flags(path: PathBuf, flags: OpenFlags) -> Result<Self, LogError> {
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&path, flags).map_err(|it| log_error_from_sqlite(&path, &it))?;
        let log = Self {
            connection,
            path,
            wal_bytes: 0,
            guard: None,
            reserve: None,
            secret_encryption: SecretEncryption::Raw,
        };
        let of_file = || -> rusqlite::Result<(i64, i64, i64)> {
            log.connection.busy_timeout(LOCK_TIMEOUT)?;
            Ok((
                log.pragma_number("application_id")?,
                log.pragma_number("user_version")?,
                log.pragma_number("page_count")?,
            ))
        };
        match of_file().map_err(|it| log.to_log_error(&it))? {
            (0, 0, 0) | (APPLICATION_ID, FORMAT_VERSION | FORMAT_VERSION_ENCRYPTED, _) => Ok(log),
            (APPLICATION_ID, found, _) => {
                Err(LogError::Newer { path: log.path, found, known: FORMAT_VERSION_ENCRYPTED })
            }
            _ => Err(LogError::Foreign { path: log.path }),
        }
    }

    /// Creates the tables if the database is empty.
    fn create_tables(&mut self) -> rusqlite::Result<()> {
        let connection = &mut self.connection;
        // In one transaction: a crash leaves either no page or a file with our application ID.
        if connection.pragma_query_value(None, "user_version", |it| it.get::<_, i64>(0))? == 0 {
            let transaction = connection.transaction()?;
            transaction.execute_batch(CREATE_TABLES_SQL)?;
            transaction.execute("INSERT INTO floor VALUES (?1)", [Store::FIRST_REVISION as i64])?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", FORMAT_VERSION)?;
            transaction.commit()?;
        }
        Ok(())
    }

    /// Creates the tables of a new database, and sets the pragmas of the connection.
    fn create_tables_and_set_pragmas(&mut self) -> rusqlite::Result<()> {
        self.create_tables()?;
        let connection = &mut self.connection;
        // Each commit is synced before it is acknowledged. `run_maintenance` checkpoints the write-ahead log after a
        // batch.
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
        connection.pragma_update_and_check(
            None,
            "journal_size_limit",
            4 * CHECKPOINT_WAL_BYTES as i64,
            |_| Ok(()),
        )?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        Ok(())
    }

    /// Returns the value of an integer pragma.
    fn pragma_number(&self, pragma: &str) -> rusqlite::Result<i64> {
        self.connection.pragma_query_value(None, pragma, |it| it.get(0))
    }

    /// Returns the revision of the last commit in the database, or the compacted revision if that is higher. Returns
    /// `None` if neither can be read.
    fn last_revision(&self) -> Option<Revision> {
        let last = "SELECT max(coalesce((SELECT max(revision) FROM version), 0), revision) FROM floor";
        self.connection.query_row(last, [], |it| it.get::<_, i64>(0)).ok()?.try_into().ok()
    }

    /// Checkpoints the write-ahead log: copies it into the database file. While a backup reads the database, the copy
    /// may be incomplete.
    fn checkpoint_wal(&mut self) -> Result<(), LogError> {
        let copied = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        let (there, copied) = copied.map_err(|it| self.to_log_error(&it))?;
        self.wal_bytes = if there == copied { 0 } else { CHECKPOINT_WAL_BYTES - CHECKPOINT_RETRY_BYTES };
        if let Some(reserve) = &mut self.reserve {
            reserve.update_after_checkpoint();
        }
        Ok(())
    }

    /// Converts an SQLite error of this database to a [`LogError`].
    fn to_log_error(&self, error: &rusqlite::Error) -> LogError {
        log_error_from_sqlite(&self.path, error)
    }

    /// Returns the encrypted value for each commit of the batch, or `None` for a commit to an object that is not a
    /// Secret. The list is empty if Secrets are not encrypted.
    fn encrypt_batch(&self, batch: &[Arc<CommitEvent>]) -> Result<Vec<Option<Vec<u8>>>, LogError> {
        let SecretEncryption::Keys(keys) = &self.secret_encryption else { return Ok(Vec::new()) };
        let encrypt = |it: &Arc<CommitEvent>| keys.encrypt(&it.key, it.revision, it.latest_value());
        let encrypted: Result<_, String> = batch.iter().map(encrypt).collect();
        encrypted.map_err(|why| LogError::Failed { path: self.path.clone(), why })
    }

    /// Decrypts the value of a row. Returns `None` if the value is not encrypted or there are no keys.
    fn decrypt_row(&self, stored: &StoredRow<'_>) -> Result<Option<Vec<u8>>, LogError> {
        let SecretEncryption::Keys(keys) = &self.secret_encryption else { return Ok(None) };
        keys.decrypt(stored.key, stored.revision.unsigned_abs(), stored.value).map_err(|why| match why {
            DecryptError::NoKey(id) => LogError::NoKey { path: self.path.clone(), id },
            DecryptError::Changed => {
                let why = format!(
                    "the Secret at revision {} is not the one that was written there",
                    stored.revision
                );
                damaged_error(&self.path, &why)
            }
        })
    }

    /// Returns the ID of the key that encrypts new Secrets, as the database records it, or `None` if the database
    /// stores Secrets in clear text.
    fn encryption_key_id(&self) -> Result<Option<String>, LogError> {
        if self.pragma_number("user_version").map_err(|it| self.to_log_error(&it))?
            != FORMAT_VERSION_ENCRYPTED
        {
            return Ok(None);
        }
        let id = self.connection.query_row("SELECT key FROM encryption", [], |it| it.get(0));
        id.map(Some).map_err(|it| self.to_log_error(&it))
    }

    /// Checks that `keys` contain the key that encrypts new Secrets, as the database records it, and returns its ID.
    /// Returns `None` if the database stores Secrets in clear text.
    fn check_encryption_keys(&self, keys: Option<&EncryptionKeys>) -> Result<Option<String>, LogError> {
        match self.encryption_key_id()? {
            Some(id) if !keys.is_some_and(|it| it.has_key(&id)) => {
                Err(LogError::NoKey { path: self.path.clone(), id })
            }
            id => Ok(id),
        }
    }

    /// Sets the keys that encrypt and decrypt Secrets, and records the ID of the active key in the database. With
    /// `None`, only checks that the database has no encrypted Secrets.
    ///
    /// Rule: a database with encrypted Secrets can be opened only with the key that encrypted them. With keys, new
    /// Secrets are encrypted.
    fn apply_encryption_keys(&mut self, keys: Option<&EncryptionKeys>) -> Result<(), LogError> {
        let id = self.check_encryption_keys(keys)?;
        let Some(keys) = keys else { return Ok(()) };
        if id.as_deref() != Some(keys.active_key_id()) {
            let mut set = || -> rusqlite::Result<()> {
                let transaction = self.connection.transaction()?;
                set_encryption_key_id(&transaction, Some(keys.active_key_id()))?;
                transaction.commit()
            };
            set().map_err(|it| log_error_from_sqlite(&self.path, &it))?;
        }
        self.secret_encryption = SecretEncryption::Keys(keys.clone());
        Ok(())
    }

    /// Performs the compaction and inserts the batch in one transaction. Does not insert the rows of the batch that the
    /// compaction removes. With a disk reserve, allocates the blocks of the database file before the commit.
    /// `encrypted` is the result of [`Sqlite::encrypt_batch`].
    fn write_batch(
        &mut self,
        batch: &[Arc<CommitEvent>],
        encrypted: &[Option<Vec<u8>>],
        compaction: Option<&Compaction>,
    ) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        // Rows are removed first, so that new rows can reuse their pages.
        if let Some(compaction) = compaction {
            let mut delete = transaction.prepare_cached("DELETE FROM version WHERE revision = ?1")?;
            for row in &compaction.rows {
                delete.execute([*row as i64])?;
            }
            transaction
                .prepare_cached("UPDATE floor SET revision = ?1")?
                .execute([compaction.revision as i64])?;
        }
        {
            let mut insert = transaction.prepare_cached(INSERT_ROW_SQL)?;
            for (at, event) in batch.iter().enumerate() {
                if compaction.is_some_and(|it| it.rows.contains(&event.revision)) {
                    continue;
                }
                let mut stored = StoredRow::from_event(event);
                if let Some(Some(encrypted)) = encrypted.get(at) {
                    stored.value = encrypted;
                }
                stored.insert(&mut insert)?;
            }
        }
        if let Some(reserve) = &mut self.reserve {
            let pages = transaction.pragma_query_value(None, "page_count", |it| it.get::<_, i64>(0))?;
            let allocated = reserve.allocate_database(pages.unsigned_abs() * PAGE_BYTES as u64);
            allocated.map_err(|_| rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None))?;
        }
        transaction.commit()
    }
}

impl Log for Sqlite {
    fn compacted_revision(&mut self) -> Result<Revision, LogError> {
        let revision = self.connection.query_row("SELECT revision FROM floor", [], |it| it.get::<_, i64>(0));
        match revision.optional().map_err(|it| self.to_log_error(&it))? {
            Some(revision) if 0 < revision => Ok(revision as Revision),
            _ => Err(damaged_error(&self.path, "it has no compacted revision")),
        }
    }

    fn load(&mut self, on_row: OnRow<'_>) -> Result<(), LogError> {
        let found = self.connection.query_row("PRAGMA quick_check(1)", [], |it| it.get::<_, String>(0));
        match found.map_err(|it| self.to_log_error(&it))? {
            fine if fine == "ok" => {}
            wrong => return Err(damaged_error(&self.path, &wrong)),
        }
        let mut select = self
            .connection
            .prepare("SELECT revision, key, is_gone, created, expires_s, sum, selectable, value FROM version ORDER BY revision")
            .map_err(|it| self.to_log_error(&it))?;
        let mut rows = select.query([]).map_err(|it| self.to_log_error(&it))?;
        while let Some(row) = rows.next().map_err(|it| self.to_log_error(&it))? {
            let stored = StoredRow::from_sql_row(row).map_err(|it| self.to_log_error(&it))?;
            let sum: i64 = row.get(5).map_err(|it| self.to_log_error(&it))?;
            if sum != stored.checksum() {
                let why = format!("the checksum of the commit at revision {} is wrong", stored.revision);
                return Err(damaged_error(&self.path, &why));
            }
            let mut row = stored.to_log_row();
            if let Some(opened) = self.decrypt_row(&stored)? {
                row.value = opened.into();
            }
            on_row(row).map_err(|why| damaged_error(&self.path, &why))?;
        }
        Ok(())
    }

    fn append(
        &mut self,
        batch: &[Arc<CommitEvent>],
        compaction: Option<&Compaction>,
    ) -> Result<(), LogError> {
        if let Some(guard) = &self.guard
            && let Err(error) = guard.check_data_file()
        {
            // The write-ahead log beside a replaced data file may belong to another database: do not remove it on
            // close.
            self.set_keep_wal_on_close(true)?;
            return Err(error);
        }
        let encrypted = self.encrypt_batch(batch)?;
        let mut inserted = self.write_batch(batch, &encrypted, compaction);
        if inserted.as_ref().is_err_and(|it| it.sqlite_error_code() == Some(ErrorCode::DiskFull)) {
            // After a checkpoint SQLite reuses the space of the write-ahead log from its start.
            self.checkpoint_wal()?;
            inserted = self.write_batch(batch, &encrypted, compaction);
        }
        inserted.map_err(|it| self.to_log_error(&it))?;
        if let (Some(guard), Some(last)) = (&self.guard, batch.last()) {
            guard.advance_marker(last.revision);
        }
        // SQLite writes whole pages: those of the values, and a few for the tree.
        let page = PAGE_BYTES;
        let around = 4 * page + compaction.map_or(0, |it| it.rows.len() * page);
        self.wal_bytes += around + batch.iter().map(|it| it.latest_value().len() + page / 2).sum::<usize>();
        Ok(())
    }

    /// Returns whether there is disk space for writes other than deletes. First tries to refill a reserve that is too
    /// small. Returns `true` if there is no reserve, if the reserve has its target size, or if the free pages of the
    /// database file together have at least the target size.
    fn ensure_write_space(&mut self) -> bool {
        let Some(reserve) = &mut self.reserve else { return true };
        if reserve.ensure_full_size() {
            return true;
        }
        let bytes = reserve.target_bytes();
        let free =
            || Some(u64::try_from(self.pragma_number("freelist_count").ok()?).ok()? * PAGE_BYTES as u64);
        free().is_some_and(|it| bytes <= it)
    }

    fn release_reserve(&mut self) -> bool {
        let is_released = self.reserve.as_mut().is_some_and(DiskReserve::release_piece);
        if is_released {
            // If the disk is still full, the next append fails.
            let _ = self.checkpoint_wal();
        }
        is_released
    }

    fn run_maintenance(&mut self) -> Result<(), LogError> {
        if self.wal_bytes < CHECKPOINT_WAL_BYTES {
            return Ok(());
        }
        self.checkpoint_wal()
    }
}

/// The columns of one row of the table `version`, without the checksum.
struct StoredRow<'a> {
    /// Revision of the commit.
    revision: i64,
    /// Store key of the object.
    key: &'a str,
    /// Whether the commit deleted the object. The column is `is_gone`.
    is_delete: bool,
    /// Revision of the commit that created the object.
    created: i64,
    /// Expiry time of the object in seconds since the Unix epoch.
    expires_s: Option<i64>,
    /// The encoded [`SelectorIndex`] of the object. The column is `selectable`.
    index: &'a [u8],
    /// The JSON of the object, or its encrypted form.
    value: &'a [u8],
}

impl<'a> StoredRow<'a> {
    // SQLite integers are limited to 2^63: at a million commits per second they last 292,000 years.
    /// Returns the row of a commit, with the value in clear text.
    fn from_event(event: &'a CommitEvent) -> Self {
        let (record, is_delete, value) = match &event.change {
            KeyChange::Put { now, .. } => (now, false, &now.value),
            KeyChange::Delete { before, last } => (before, true, last),
        };
        Self {
            revision: event.revision as i64,
            key: &event.key,
            is_delete,
            created: record.created as i64,
            expires_s: record.expires_s.map(|it| it as i64),
            index: record.index.as_bytes(),
            value,
        }
    }

    /// Borrows the columns of a row in a query result. Does not verify the checksum of the row.
    fn from_sql_row(row: &'a rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            revision: row.get(0)?,
            key: row.get_ref(1)?.as_str()?,
            is_delete: row.get(2)?,
            created: row.get(3)?,
            expires_s: row.get(4)?,
            index: row.get_ref(6)?.as_blob()?,
            value: row.get_ref(7)?.as_blob()?,
        })
    }

    /// Inserts the row with its checksum. `statement` is [`INSERT_ROW_SQL`].
    fn insert(&self, statement: &mut Statement<'_>) -> rusqlite::Result<()> {
        let Self { revision, key, is_delete, created, expires_s, index, value } = self;
        let row = params![revision, key, is_delete, created, expires_s, self.checksum(), index, value];
        statement.execute(row).map(drop)
    }

    /// Returns the row as [`Log::load`] passes it to its callback. The value is the stored one, which may be encrypted.
    fn to_log_row(&self) -> LogRow {
        LogRow {
            revision: self.revision as Revision,
            key: self.key.into(),
            is_delete: self.is_delete,
            created: self.created as Revision,
            expires_s: self.expires_s.map(|it| it as u64),
            index: SelectorIndex::from_bytes(self.index),
            value: Bytes::copy_from_slice(self.value),
        }
    }

    /// Returns the checksum of the row. It is needed because SQLite detects damage to its own structures, but not to
    /// values. A change within one word of eight bytes always changes the checksum, because each step is invertible.
    fn checksum(&self) -> i64 {
        let mut sum = RowChecksum(0);
        for number in [self.revision, i64::from(self.is_delete), self.created, self.expires_s.unwrap_or(-1)] {
            sum.add_word(number as u64);
        }
        for bytes in [self.key.as_bytes(), self.index, self.value] {
            sum.add_word(bytes.len() as u64);
            let (words, rest) = bytes.as_chunks::<8>();
            words.iter().for_each(|it| sum.add_word(u64::from_le_bytes(*it)));
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            sum.add_word(u64::from_le_bytes(last));
        }
        sum.0 as i64
    }
}

/// Checksum of a row, computed word by word.
struct RowChecksum(u64);

impl RowChecksum {
    /// Adds a word of eight bytes to the checksum.
    fn add_word(&mut self, word: u64) {
        // An odd multiplier with well-mixed bits: 2^64 divided by the golden ratio.
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Writes a backup of the database `from` to the new file `to`. Returns the revision of the backup.
///
/// Rule: a backup is the state at one revision, even if the server is writing. The backup gets its final name only when
/// it is complete, durable and verified.
pub fn backup(from: &Path, to: &Path) -> Result<Revision, LogError> {
    let to = std::path::absolute(to).map_err(|it| log_error_from_io(to, &it))?;
    if to.exists() {
        return Err(LogError::Exists { path: to });
    }
    let from = std::path::absolute(from).map_err(|it| log_error_from_io(from, &it))?;
    if is_empty_or_missing(&from) {
        let what = if from.exists() { "empty" } else { "missing" };
        return Err(LogError::Lost { path: from, what });
    }
    let log = Sqlite::open_existing(from)?;
    let partial = create_partial_database(&to).map_err(|it| log_error_from_io(&to, &it))?;
    let name = partial
        .to_str()
        .ok_or_else(|| log_error_from_io(&partial, &io::ErrorKind::InvalidFilename.into()))?;
    log.connection.execute("VACUUM INTO ?1", [name]).map_err(|it| log_error_from_sqlite(&partial, &it))?;
    let revision = local_backend::verify_log(&mut Sqlite::open_existing(partial.clone())?)?;
    finish_partial_database(&partial, &to).map_err(|it| log_error_from_io(&to, &it))?;
    Ok(revision)
}

/// Restores the backup `from` as the database `to`, and returns the new revision. The old database at `to` is kept
/// beside the new one. `marker` is the path of the cluster marker, which gets the UID of the backup's cluster. `keys`
/// decrypt the Secrets of an encrypted backup.
///
/// Rule: the revision of a restored store is far above the revisions of its backup and of the store that it replaces.
/// The history of the restored store begins at this revision. A client that has seen commits after the backup must list
/// again. It cannot mistake a new commit for one that it has already seen.
pub fn restore(
    from: &Path,
    to: &Path,
    marker: &Path,
    keys: Option<&EncryptionKeys>,
) -> Result<Revision, LogError> {
    let from = std::path::absolute(from).map_err(|it| log_error_from_io(from, &it))?;
    let to = std::path::absolute(to).map_err(|it| log_error_from_io(to, &it))?;
    // The backup itself is only read; changes are made to the copy.
    let partial = with_suffix(&to, PARTIAL_SUFFIX);
    let copy = || {
        replace_with_empty_database(&partial)?;
        io::copy(&mut File::open(&from)?, &mut fs::OpenOptions::new().write(true).open(&partial)?)
    };
    if copy().map_err(|it| log_error_from_io(&from, &it))? == 0 {
        return Err(LogError::Foreign { path: from });
    }
    let at_source = |error| match error {
        LogError::Damaged { why, .. } => LogError::Damaged { path: from.clone(), why },
        LogError::Newer { found, known, .. } => LogError::Newer { path: from.clone(), found, known },
        LogError::Foreign { .. } => LogError::Foreign { path: from.clone() },
        LogError::NoKey { id, .. } => LogError::NoKey { path: from.clone(), id },
        other => other,
    };
    let mut log = Sqlite::open_existing(partial.clone()).map_err(at_source)?;
    if log.encryption_key_id()?.is_some() {
        log.apply_encryption_keys(keys).map_err(at_source)?;
    }
    let backed_up = local_backend::verify_log(&mut log).map_err(at_source)?;
    // A cleanly closed database has no write-ahead log, so that one rename is enough. A database that cannot be opened
    // is moved aside together with its log, and so is an empty file, whose log SQLite would remove.
    let replaced =
        (!is_empty_or_missing(&to)).then(|| Sqlite::open(&to).ok()?.last_revision()).flatten().unwrap_or(0);
    let marked = ClusterMarker::read(marker).ok().flatten().map_or(0, |it| it.revision);
    let revision = backed_up.max(replaced).max(marked) + RESTORE_REVISION_GAP;
    let mut jump = || {
        let transaction = log.connection.transaction()?;
        transaction.execute_batch(
            "DELETE FROM version
             WHERE is_gone OR revision NOT IN (SELECT max(revision) FROM version GROUP BY key);
             -- The keys of a backup of etcd. The data directory has its own.
             DROP TABLE IF EXISTS cluster_keys;",
        )?;
        transaction.execute("UPDATE floor SET revision = ?1", [revision as i64])?;
        transaction.commit()
    };
    jump().map_err(|it| log_error_from_sqlite(&partial, &it))?;
    let uid = match log.cluster_uid()? {
        Some(uid) => uid,
        None => log.generate_cluster_uid()?,
    };
    drop(log);
    // The old database keeps its name until the new one replaces it, so that a crash at any moment leaves one of the
    // two. The marker is written last: if it still names another cluster or a higher revision, the next start asks for
    // a restore.
    let replace = || {
        move_or_link_aside(&to, REPLACED_SUFFIX, true)?;
        rename_durably(&partial, &to)?;
        ClusterMarker { uid, revision }.write(marker)
    };
    replace().map_err(|it| log_error_from_io(&to, &it))?;
    Ok(revision)
}

/// Renames a database file `NAME` to `NAME.replaced`, and its files `NAME-journal`, `NAME-wal` and `NAME-shm` to
/// `NAME.replaced-journal` and so on. Earlier files with these new names are removed.
fn move_aside(path: &Path) -> io::Result<()> {
    move_or_link_aside(path, REPLACED_SUFFIX, false)
}

/// Renames the files of a database as [`move_aside`] does, with `suffix` instead of `.replaced`. With `keeps_name`, the
/// database file is hard-linked instead of renamed, so that it also keeps its old name.
fn move_or_link_aside(path: &Path, suffix: &str, keeps_name: bool) -> io::Result<()> {
    let aside = with_suffix(path, suffix);
    for end in JOURNAL_FILE_SUFFIXES.into_iter().chain([""]) {
        remove_if_exists(&with_suffix(&aside, end))?;
        let (from, to) = (with_suffix(path, end), with_suffix(&aside, end));
        let moved = if keeps_name && end.is_empty() { fs::hard_link(from, to) } else { fs::rename(from, to) };
        match moved {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    sync_parent_dir(path)
}

/// Records the ID of the key that encrypts Secrets. `None` records that Secrets are not encrypted. A database without
/// encryption gets the format version that older versions of Muster can read.
fn set_encryption_key_id(transaction: &Transaction<'_>, id: Option<&str>) -> rusqlite::Result<()> {
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS encryption (key TEXT NOT NULL) STRICT; DELETE FROM encryption;",
    )?;
    if let Some(id) = id {
        transaction.execute("INSERT INTO encryption VALUES (?1)", [id])?;
    }
    transaction.pragma_update(
        None,
        "user_version",
        if id.is_some() { FORMAT_VERSION_ENCRYPTED } else { FORMAT_VERSION },
    )
}

/// Renames a complete file to its final name, and returns when the file and its name are durable.
fn rename_durably(partial: &Path, to: &Path) -> io::Result<()> {
    File::open(partial)?.sync_all()?;
    fs::rename(partial, to)?;
    sync_parent_dir(to)
}

/// Creates an empty file with mode 0600, if the file does not exist.
fn ensure_private_file(path: &Path) -> io::Result<()> {
    match create_private_file(path) {
        Ok(_) => sync_parent_dir(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Creates an empty database file. Removes an old database of this name, and its `-journal`, `-wal` and `-shm` files.
fn replace_with_empty_database(path: &Path) -> io::Result<()> {
    JOURNAL_FILE_SUFFIXES
        .into_iter()
        .chain([""])
        .try_for_each(|end| remove_if_exists(&with_suffix(path, end)))?;
    create_private_file(path)?;
    sync_parent_dir(path)
}

/// Creates an empty database in the new private directory `TO.partial`, and returns its path. Removes what an earlier
/// attempt left there.
///
/// Rule: a backup may be written to a directory in which other users can create files. Until it is complete, it is in a
/// directory to which only its owner has access, so that no other user can provide the file or its journals.
fn create_partial_database(to: &Path) -> io::Result<PathBuf> {
    let dir = with_suffix(to, PARTIAL_SUFFIX);
    remove_partial_database(to)?;
    create_new_private_dir(&dir)?;
    let partial = dir.join(to.file_name().ok_or(io::ErrorKind::InvalidFilename)?);
    replace_with_empty_database(&partial)?;
    Ok(partial)
}

/// Gives the complete database `partial` of [`create_partial_database`] its final name, and returns when this is
/// durable. Removes the directory `TO.partial`.
fn finish_partial_database(partial: &Path, to: &Path) -> io::Result<()> {
    rename_durably(partial, to)?;
    remove_partial_database(to)
}

/// Removes the directory or the file `TO.partial` and its journal files, if they exist.
fn remove_partial_database(to: &Path) -> io::Result<()> {
    let partial = with_suffix(to, PARTIAL_SUFFIX);
    if fs::symlink_metadata(&partial).is_ok_and(|it| it.is_dir()) {
        return fs::remove_dir_all(&partial);
    }
    JOURNAL_FILE_SUFFIXES
        .into_iter()
        .chain([""])
        .try_for_each(|end| remove_if_exists(&with_suffix(&partial, end)))
}

/// Whether a file has no bytes or does not exist.
fn is_empty_or_missing(path: &Path) -> bool {
    fs::metadata(path).map_or_else(|it| it.kind() == io::ErrorKind::NotFound, |it| it.len() == 0)
}

/// Removes a file. Also succeeds if the file does not exist.
fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the path with `end` appended to the file name.
fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Converts an SQLite error of the database at `path` to a [`LogError`].
fn log_error_from_sqlite(path: &Path, error: &rusqlite::Error) -> LogError {
    let code = error.sqlite_error_code();
    match code {
        Some(ErrorCode::DiskFull) => LogError::DiskFull,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            LogError::Busy { why: error.to_string() }
        }
        Some(ErrorCode::NotADatabase) => damaged_error(path, "it is not an SQLite database"),
        Some(ErrorCode::DatabaseCorrupt) => damaged_error(path, &error.to_string()),
        Some(_) => LogError::Failed { path: path.into(), why: error.to_string() },
        // A column has the wrong type or is missing.
        None => damaged_error(path, &error.to_string()),
    }
}

/// Returns the error for a damaged database.
fn damaged_error(path: &Path, why: &str) -> LogError {
    LogError::Damaged { path: path.into(), why: why.into() }
}

/// Converts an IO error of the file at `path` to a [`LogError`].
fn log_error_from_io(path: &Path, error: &io::Error) -> LogError {
    if error.kind() == io::ErrorKind::StorageFull {
        return LogError::DiskFull;
    }
    LogError::Failed { path: path.into(), why: error.to_string() }
}

#[cfg(test)]
mod tests;
