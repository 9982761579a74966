//! Encrypts or decrypts the Secrets of a database, or re-encrypts them with another key.

use std::path::Path;

use rusqlite::params;

use super::cluster::Directory;
use super::seal::{self, Keys};
use super::{Sealing, Sqlite, Stored, create_empty, damaged, failed, log_error, publish, remove, sibling};
use crate::local;
use crate::{Log as _, LogError};

/// Rule: a database is converted into a new file, which replaces the old one when it is complete, durable and verified.
/// A crash at any moment leaves one of the two. The new file shares no row, free page or log with the old one; freed
/// disk blocks of the old one remain until the file system reuses them.
///
/// Decrypts with `read` and encrypts with `write`; without `write` all Secrets are stored in clear text. Returns the
/// number of rows of Secrets.
pub fn convert(
    path: &Path,
    directory: &Directory,
    read: Option<&Keys>,
    write: Option<&Keys>,
) -> Result<usize, LogError> {
    let path = &std::path::absolute(path).map_err(|it| failed(path, &it))?;
    let (mut from, _) = Sqlite::open_checked(path, directory)?;
    from.unlock(read)?;
    let revision = local::check(&mut from)?;
    let partial = sibling(path, ".partial");
    create_empty(&partial).map_err(|it| failed(&partial, &it))?;
    let mut to = Sqlite::open_existing(partial.clone())?;
    to.create().map_err(|it| to.log_error(&it))?;
    let uid = from.cluster_uid()?;
    let floor = from.floor()?;
    let mut secrets = 0;
    {
        let transaction = to.connection.transaction().map_err(|it| log_error(&partial, &it))?;
        let mut copy = || -> Result<(), LogError> {
            let wrong = |error: rusqlite::Error| log_error(&partial, &error);
            let mut insert = transaction
                .prepare("INSERT INTO version VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")
                .map_err(wrong)?;
            let mut select = from
                .connection
                .prepare("SELECT revision, key, is_gone, created, expires_s, sum, selectable, value FROM version ORDER BY revision")
                .map_err(|it| from.log_error(&it))?;
            let mut rows = select.query([]).map_err(|it| from.log_error(&it))?;
            while let Some(row) = rows.next().map_err(|it| from.log_error(&it))? {
                let mut stored = Stored::read(row).map_err(|it| from.log_error(&it))?;
                let opened = from.opened(&stored)?;
                let clear = opened.as_deref().unwrap_or(stored.value);
                let sealed = match write {
                    Some(keys) => keys
                        .seal(stored.key, stored.revision.unsigned_abs(), clear)
                        .map_err(|why| LogError::Failed { path: path.clone(), why })?,
                    None => None,
                };
                secrets += usize::from(seal::is_secret(stored.key));
                stored.value = sealed.as_deref().unwrap_or(clear);
                let sum = stored.sum();
                let Stored { revision, key, is_delete, created, expires_s, index, value } = stored;
                insert
                    .execute(params![revision, key, is_delete, created, expires_s, sum, index, value])
                    .map_err(wrong)?;
            }
            transaction.execute("UPDATE floor SET revision = ?1", [floor.cast_signed()]).map_err(wrong)?;
            if let Some(uid) = &uid {
                super::cluster::insert_uid(&transaction, uid).map_err(wrong)?;
            }
            super::set_writing_key(&transaction, write.map(Keys::id)).map_err(wrong)
        };
        copy()?;
        transaction.commit().map_err(|it| log_error(&partial, &it))?;
    }
    to.sealing = write.cloned().map_or(Sealing::Raw, Sealing::Keys);
    if local::check(&mut to)? != revision {
        return Err(damaged(&partial, "it differs from the database that it was converted from"));
    }
    drop(to);
    // After a clean close the old file has no write-ahead log that SQLite could apply to the new one.
    from.set_keep_wal(false)?;
    drop(from);
    let replace = || {
        for end in super::COMPANIONS {
            remove(&sibling(path, end))?;
        }
        publish(&partial, path)
    };
    replace().map_err(|it| failed(path, &it))?;
    Ok(secrets)
}
