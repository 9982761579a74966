//! The log that lasts: one SQLite file.
//!
//! A commit is one row, and the table is append-only but for rows that are forgotten: see [`Log`]. There is no
//! index by key, for the state is served from memory; whoever looks into the file by hand has the view `object`.

mod wal;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, params};

use crate::db::Db;
use crate::log::Each;
use crate::{Change, Event, Forget, Index, Log, LogError, Revision, Row, Store};

/// Says whose file it is: "MSTR".
const APPLICATION: i64 = 0x4d53_5452;

/// Goes up when an older program could no longer read the file.
const FORMAT: i64 = 1;

/// How much may stand in the write-ahead log before it is copied into the file. Twice of it is read again after
/// a crash, which takes some 50 ms, and a copy is short enough to wait for.
const WAL_BYTES_MAX: usize = 8 << 20;

/// A copy that was kept from finishing, by a backup that reads, is tried again after so much more.
const WAL_BYTES_RETRY: usize = 1 << 20;

/// The only others who open the file are backups, which lock it for moments.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// How far a restored store jumps ahead of its backup: the revisions in between were given out after the backup,
/// and must not come back with another meaning.
const RESTORED_AHEAD: Revision = 1_000_000_000;

/// How the names of the files end that SQLite keeps beside one, and reads with it. A stranger's would spoil a file.
const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];

const SCHEMA: &str = "
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

#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
    /// About what the write-ahead log holds.
    wal_bytes: usize,
}

impl Sqlite {
    /// Makes the file if there is none; then only its owner may read it.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let path = std::path::absolute(path).map_err(|it| failed(path, &it))?;
        make_private(&path).map_err(|it| failed(&path, &it))?;
        if wal::is_damaged(&beside(&path, "-wal")).map_err(|it| failed(&path, &it))? {
            let why = "in its write-ahead log there are commits that can no longer be read";
            return Err(damaged(&path, why));
        }
        let mut log = Self::existing(path)?;
        log.prepare().map_err(|it| log.explain(&it))?;
        Ok(log)
    }

    /// Refuses what is not ours, without changing anything.
    fn existing(path: PathBuf) -> Result<Self, LogError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(|it| explain(&path, &it))?;
        let log = Self { connection, path, wal_bytes: 0 };
        let of_file = || -> rusqlite::Result<(i64, i64, i64)> {
            log.connection.busy_timeout(LOCK_TIMEOUT)?;
            Ok((log.number("application_id")?, log.number("user_version")?, log.number("page_count")?))
        };
        match of_file().map_err(|it| log.explain(&it))? {
            (0, 0, 0) | (APPLICATION, FORMAT, _) => Ok(log),
            (APPLICATION, found, _) => Err(LogError::Newer { path: log.path, found, known: FORMAT }),
            _ => Err(LogError::Foreign { path: log.path }),
        }
    }

    fn prepare(&mut self) -> rusqlite::Result<()> {
        let connection = &mut self.connection;
        // The tables come first: a crash leaves either no page at all, or a file that says whose it is.
        if connection.pragma_query_value(None, "user_version", |it| it.get::<_, i64>(0))? == 0 {
            let transaction = connection.transaction()?;
            transaction.execute_batch(SCHEMA)?;
            transaction.execute("INSERT INTO floor VALUES (?1)", [Store::FIRST as i64])?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", FORMAT)?;
            transaction.commit()?;
        }
        // Each commit is synced before it is told. The write-ahead log is copied by `rest`, when nobody waits.
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
        connection
            .pragma_update_and_check(None, "journal_size_limit", 4 * WAL_BYTES_MAX as i64, |_| Ok(()))?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        Ok(())
    }

    fn number(&self, pragma: &str) -> rusqlite::Result<i64> {
        self.connection.pragma_query_value(None, pragma, |it| it.get(0))
    }

    /// How far the store has come, as far as the file can still tell.
    fn last_revision(&self) -> Option<Revision> {
        let last = "SELECT max(coalesce((SELECT max(revision) FROM version), 0), revision) FROM floor";
        self.connection.query_row(last, [], |it| it.get::<_, i64>(0)).ok()?.try_into().ok()
    }

    /// Copies the write-ahead log into the file.
    fn checkpoint(&mut self) -> Result<(), LogError> {
        let copied = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        let (there, copied) = copied.map_err(|it| self.explain(&it))?;
        self.wal_bytes = if there == copied { 0 } else { WAL_BYTES_MAX - WAL_BYTES_RETRY };
        Ok(())
    }

    fn explain(&self, error: &rusqlite::Error) -> LogError {
        explain(&self.path, error)
    }

    fn insert(&mut self, batch: &[Arc<Event>], forget: Option<&Forget>) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert =
                transaction.prepare_cached("INSERT INTO version VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
            for event in batch {
                let stored = Stored::of(event);
                insert.execute(params![
                    stored.revision,
                    stored.key,
                    stored.is_gone,
                    stored.created,
                    stored.expires_s,
                    stored.sum(),
                    stored.index,
                    stored.value
                ])?;
            }
        }
        if let Some(forget) = forget {
            let mut delete = transaction.prepare_cached("DELETE FROM version WHERE revision = ?1")?;
            for row in &forget.rows {
                delete.execute([*row as i64])?;
            }
            transaction.prepare_cached("UPDATE floor SET revision = ?1")?.execute([forget.floor as i64])?;
        }
        transaction.commit()
    }
}

impl Log for Sqlite {
    fn floor(&mut self) -> Result<Revision, LogError> {
        let floor = self.connection.query_row("SELECT revision FROM floor", [], |it| it.get::<_, i64>(0));
        match floor.optional().map_err(|it| self.explain(&it))? {
            Some(floor) if 0 < floor => Ok(floor as Revision),
            _ => Err(damaged(&self.path, "it does not say where its history begins")),
        }
    }

    fn load(&mut self, each: Each<'_>) -> Result<(), LogError> {
        let found = self.connection.query_row("PRAGMA quick_check(1)", [], |it| it.get::<_, String>(0));
        match found.map_err(|it| self.explain(&it))? {
            fine if fine == "ok" => {}
            wrong => return Err(damaged(&self.path, &wrong)),
        }
        let mut select = self
            .connection
            .prepare("SELECT revision, key, is_gone, created, expires_s, sum, selectable, value FROM version ORDER BY revision")
            .map_err(|it| self.explain(&it))?;
        let mut rows = select.query([]).map_err(|it| self.explain(&it))?;
        while let Some(row) = rows.next().map_err(|it| self.explain(&it))? {
            let stored = Stored::read(row).map_err(|it| self.explain(&it))?;
            let sum: i64 = row.get(5).map_err(|it| self.explain(&it))?;
            if sum != stored.sum() {
                let why = format!("the commit at revision {} is not as it was written", stored.revision);
                return Err(damaged(&self.path, &why));
            }
            each(stored.row()).map_err(|why| damaged(&self.path, &why))?;
        }
        Ok(())
    }

    fn append(&mut self, batch: &[Arc<Event>], forget: Option<&Forget>) -> Result<(), LogError> {
        let mut inserted = self.insert(batch, forget);
        if inserted.as_ref().is_err_and(|it| it.sqlite_error_code() == Some(ErrorCode::DiskFull)) {
            // Once it is copied, the write-ahead log begins anew in the room it has: enough to delete something.
            self.checkpoint()?;
            inserted = self.insert(batch, forget);
        }
        inserted.map_err(|it| self.explain(&it))?;
        // What is written is whole pages: those of the values, and a few around them.
        let page = 4096;
        let around = 4 * page + forget.map_or(0, |it| it.rows.len() * page);
        self.wal_bytes += around + batch.iter().map(|it| it.value().len() + page / 2).sum::<usize>();
        Ok(())
    }

    fn rest(&mut self) -> Result<(), LogError> {
        if self.wal_bytes < WAL_BYTES_MAX {
            return Ok(());
        }
        self.checkpoint()
    }
}

/// A commit as the columns hold it.
struct Stored<'a> {
    revision: i64,
    key: &'a str,
    is_gone: bool,
    created: i64,
    expires_s: Option<i64>,
    index: &'a [u8],
    value: &'a [u8],
}

impl<'a> Stored<'a> {
    // SQLite counts up to 2^63, which at a million commits a second is reached in 292,000 years.
    fn of(event: &'a Event) -> Self {
        let (record, is_gone, value) = match &event.change {
            Change::Put { now, .. } => (now, false, &now.value),
            Change::Delete { before, last } => (before, true, last),
        };
        Self {
            revision: event.revision as i64,
            key: &event.key,
            is_gone,
            created: record.created as i64,
            expires_s: record.expires_s.map(|it| it as i64),
            index: record.index.bytes(),
            value,
        }
    }

    fn read(row: &'a rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            revision: row.get(0)?,
            key: row.get_ref(1)?.as_str()?,
            is_gone: row.get(2)?,
            created: row.get(3)?,
            expires_s: row.get(4)?,
            index: row.get_ref(6)?.as_blob()?,
            value: row.get_ref(7)?.as_blob()?,
        })
    }

    fn row(&self) -> Row {
        Row {
            revision: self.revision as Revision,
            key: self.key.into(),
            is_gone: self.is_gone,
            created: self.created as Revision,
            expires_s: self.expires_s.map(|it| it as u64),
            index: Index::of_bytes(self.index),
            value: Bytes::copy_from_slice(self.value),
        }
    }

    /// SQLite notices when its own structure is broken, and not when a value is. Any change within one word of
    /// eight bytes changes the sum for certain, because each step can be undone.
    fn sum(&self) -> i64 {
        let mut sum = Sum(0);
        for number in [self.revision, i64::from(self.is_gone), self.created, self.expires_s.unwrap_or(-1)] {
            sum.add(number as u64);
        }
        for bytes in [self.key.as_bytes(), self.index, self.value] {
            sum.add(bytes.len() as u64);
            let (words, rest) = bytes.as_chunks::<8>();
            words.iter().for_each(|it| sum.add(u64::from_le_bytes(*it)));
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            sum.add(u64::from_le_bytes(last));
        }
        sum.0 as i64
    }
}

struct Sum(u64);

impl Sum {
    fn add(&mut self, word: u64) {
        // An odd factor, its bits well mixed: 2^64 divided by the golden ratio.
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Rule: a backup is the store as it was at one revision, also while the server writes on; it appears under its
/// name only when it is whole, durable and checked.
pub fn backup(from: &Path, to: &Path) -> Result<Revision, LogError> {
    let to = std::path::absolute(to).map_err(|it| failed(to, &it))?;
    if to.exists() {
        return Err(LogError::Exists { path: to });
    }
    let from = std::path::absolute(from).map_err(|it| failed(from, &it))?;
    let log = Sqlite::existing(from)?;
    let partial = beside(&to, ".partial");
    begin_anew(&partial).map_err(|it| failed(&partial, &it))?;
    let name = partial.to_str().ok_or_else(|| failed(&partial, &io::ErrorKind::InvalidFilename.into()))?;
    log.connection.execute("VACUUM INTO ?1", [name]).map_err(|it| explain(&partial, &it))?;
    let revision = Db::check(&mut Sqlite::existing(partial.clone())?)?.revision();
    publish(&partial, &to).map_err(|it| failed(&to, &it))?;
    Ok(revision)
}

/// Rule: a restored store goes on far after its backup and after what it replaces, and its history begins there:
/// whoever has seen what came after the backup is told to list again, instead of waiting for revisions that mean something else now.
///
/// Whatever stands in the place of `to` is kept beside it.
pub fn restore(from: &Path, to: &Path) -> Result<Revision, LogError> {
    let from = std::path::absolute(from).map_err(|it| failed(from, &it))?;
    let to = std::path::absolute(to).map_err(|it| failed(to, &it))?;
    // The backup itself is only read: what has to change changes in the copy.
    let partial = beside(&to, ".partial");
    let copy = || {
        begin_anew(&partial)?;
        io::copy(&mut File::open(&from)?, &mut fs::OpenOptions::new().write(true).open(&partial)?)
    };
    if copy().map_err(|it| failed(&from, &it))? == 0 {
        return Err(LogError::Foreign { path: from });
    }
    let at_source = |error| match error {
        LogError::Damaged { why, .. } => LogError::Damaged { path: from.clone(), why },
        LogError::Newer { found, known, .. } => LogError::Newer { path: from.clone(), found, known },
        LogError::Foreign { .. } => LogError::Foreign { path: from.clone() },
        other => other,
    };
    let mut log = Sqlite::existing(partial.clone()).map_err(at_source)?;
    let backed_up = Db::check(&mut log).map_err(at_source)?.revision();
    // Closed cleanly, a file has no log beside it, and one rename is enough. One that cannot be opened cannot be
    // closed either: it is put aside with its log.
    let replaced = to.exists().then(|| Sqlite::open(&to).ok()?.last_revision()).flatten().unwrap_or(0);
    let revision = backed_up.max(replaced) + RESTORED_AHEAD;
    let mut jump = || {
        let transaction = log.connection.transaction()?;
        transaction.execute_batch(
            "DELETE FROM version
             WHERE is_gone OR revision NOT IN (SELECT max(revision) FROM version GROUP BY key)",
        )?;
        transaction.execute("UPDATE floor SET revision = ?1", [revision as i64])?;
        transaction.commit()
    };
    jump().map_err(|it| explain(&partial, &it))?;
    drop(log);
    let put_aside = || {
        let aside = beside(&to, ".replaced");
        for end in COMPANIONS.into_iter().chain([""]) {
            match fs::rename(beside(&to, end), beside(&aside, end)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => remove(&beside(&aside, end))?,
                other => other?,
            }
        }
        publish(&partial, &to)
    };
    put_aside().map_err(|it| failed(&to, &it))?;
    Ok(revision)
}

/// Gives a finished file its name. Afterwards it is there, whatever happens.
fn publish(partial: &Path, to: &Path) -> io::Result<()> {
    File::open(partial)?.sync_all()?;
    fs::rename(partial, to)?;
    sync_folder_of(to)
}

fn make_private(path: &Path) -> io::Result<()> {
    match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => sync_folder_of(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// An empty file, with nothing beside it that SQLite would take for its log.
fn begin_anew(path: &Path) -> io::Result<()> {
    COMPANIONS.into_iter().chain([""]).try_for_each(|end| remove(&beside(path, end)))?;
    make_private(path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn explain(path: &Path, error: &rusqlite::Error) -> LogError {
    let code = error.sqlite_error_code();
    match code {
        Some(ErrorCode::DiskFull) => LogError::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            LogError::Busy { why: error.to_string() }
        }
        Some(ErrorCode::NotADatabase) => damaged(path, "it does not begin as an SQLite file does"),
        Some(ErrorCode::DatabaseCorrupt) => damaged(path, &error.to_string()),
        Some(_) => LogError::Failed { path: path.into(), why: error.to_string() },
        // A column that is not of its type, or not there.
        None => damaged(path, &error.to_string()),
    }
}

fn damaged(path: &Path, why: &str) -> LogError {
    LogError::Damaged { path: path.into(), why: why.into() }
}

fn failed(path: &Path, error: &io::Error) -> LogError {
    if error.kind() == io::ErrorKind::StorageFull {
        return LogError::Full;
    }
    LogError::Failed { path: path.into(), why: error.to_string() }
}

#[cfg(test)]
mod tests;
