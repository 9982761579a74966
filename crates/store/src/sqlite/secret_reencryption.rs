//! Re-encryption of a database: encrypts its Secrets, decrypts them, or encrypts them with another key.

use std::path::Path;

use super::data_directory::DataDirectory;
use super::{
    INSERT_ROW_SQL, PARTIAL_SUFFIX, SecretEncryption, Sqlite, StoredRow, damaged_error, log_error_from_io,
    log_error_from_sqlite, remove_if_exists, rename_durably, replace_with_empty_database, with_suffix,
};
use crate::encryption::{self, EncryptionKeys};
use crate::local_backend;
use crate::{Log as _, LogError};

/// Checks that `keys` contain the key that encrypts the Secrets of a database. The recorded key is not changed. The check
/// succeeds for a database that stores Secrets in clear text.
pub fn check_encryption_keys(
    path: &Path,
    directory: &DataDirectory,
    keys: Option<&EncryptionKeys>,
) -> Result<(), LogError> {
    let path = &std::path::absolute(path).map_err(|it| log_error_from_io(path, &it))?;
    Sqlite::open_checked(path, directory)?.0.check_encryption_keys(keys).map(drop)
}

/// Replaces a database with a copy whose Secrets are encrypted with the active key of `write`. The keys `read` decrypt
/// the old Secrets. If `write` is `None`, the copy stores Secrets in clear text. Returns the number of rows with a
/// Secret.
///
/// Rule: the copy replaces the old database file only when it is complete, durable and verified. A crash at any moment
/// leaves either the old file or the new file. The new file shares no row, free page or write-ahead log with the old
/// file. The data in freed disk blocks of the old file remains until the file system reuses them.
pub fn reencrypt_secrets(
    path: &Path,
    directory: &DataDirectory,
    read: Option<&EncryptionKeys>,
    write: Option<&EncryptionKeys>,
) -> Result<usize, LogError> {
    let path = &std::path::absolute(path).map_err(|it| log_error_from_io(path, &it))?;
    let (mut from, _) = Sqlite::open_checked(path, directory)?;
    from.apply_encryption_keys(read)?;
    let revision = local_backend::verify_log(&mut from)?;
    let partial = with_suffix(path, PARTIAL_SUFFIX);
    replace_with_empty_database(&partial).map_err(|it| log_error_from_io(&partial, &it))?;
    let mut to = Sqlite::open_existing(partial.clone())?;
    to.create_tables().map_err(|it| to.to_log_error(&it))?;
    let uid = from.cluster_uid()?;
    let compacted_revision = from.compacted_revision()?;
    let mut secrets = 0;
    {
        let transaction = to.connection.transaction().map_err(|it| log_error_from_sqlite(&partial, &it))?;
        let mut copy = || -> Result<(), LogError> {
            let wrong = |error: rusqlite::Error| log_error_from_sqlite(&partial, &error);
            let mut insert = transaction.prepare(INSERT_ROW_SQL).map_err(wrong)?;
            let mut select = from
                .connection
                .prepare("SELECT revision, key, is_gone, created, expires_s, sum, selectable, value FROM version ORDER BY revision")
                .map_err(|it| from.to_log_error(&it))?;
            let mut rows = select.query([]).map_err(|it| from.to_log_error(&it))?;
            while let Some(row) = rows.next().map_err(|it| from.to_log_error(&it))? {
                let mut stored = StoredRow::from_sql_row(row).map_err(|it| from.to_log_error(&it))?;
                let opened = from.decrypt_row(&stored)?;
                let clear = opened.as_deref().unwrap_or(stored.value);
                let encrypted = match write {
                    Some(keys) => keys
                        .encrypt(stored.key, stored.revision.unsigned_abs(), clear)
                        .map_err(|why| LogError::Failed { path: path.clone(), why })?,
                    None => None,
                };
                secrets += usize::from(encryption::is_key_of_secret(stored.key));
                stored.value = encrypted.as_deref().unwrap_or(clear);
                stored.insert(&mut insert).map_err(wrong)?;
            }
            transaction
                .execute("UPDATE floor SET revision = ?1", [compacted_revision.cast_signed()])
                .map_err(wrong)?;
            if let Some(uid) = &uid {
                super::data_directory::insert_cluster_uid(&transaction, uid).map_err(wrong)?;
            }
            super::set_encryption_key_id(&transaction, write.map(EncryptionKeys::active_key_id))
                .map_err(wrong)
        };
        copy()?;
        transaction.commit().map_err(|it| log_error_from_sqlite(&partial, &it))?;
    }
    to.secret_encryption = write.cloned().map_or(SecretEncryption::Raw, SecretEncryption::Keys);
    if local_backend::verify_log(&mut to)? != revision {
        return Err(damaged_error(&partial, "it differs from the database that it was converted from"));
    }
    drop(to);
    // After a clean close the old file has no write-ahead log that SQLite could apply to the new one.
    from.set_keep_wal_on_close(false)?;
    drop(from);
    let replace = || {
        for end in super::JOURNAL_FILE_SUFFIXES {
            remove_if_exists(&with_suffix(path, end))?;
        }
        rename_durably(&partial, path)
    };
    replace().map_err(|it| log_error_from_io(path, &it))?;
    Ok(secrets)
}
