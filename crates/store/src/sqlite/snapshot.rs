//! Reads and writes all objects of a cluster at one revision as a database file. Such a file is a backup of a cluster
//! on etcd, or moves a cluster between a data directory and etcd.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ring::digest;
use rusqlite::{OpenFlags, OptionalExtension as _};

use super::{
    APPLICATION_ID, INSERT_ROW_SQL, MOVED_SUFFIX, SecretEncryption, Sqlite, StoredRow,
    create_partial_database, damaged_error, finish_partial_database, log_error_from_io,
    log_error_from_sqlite,
};
use crate::cluster_marker::ClusterMarker;
use crate::encryption::EncryptionKeys;
use crate::local_backend;
use crate::{LogError, ObjectDraft, Revision, StoredObject};

/// All objects of a cluster at one revision.
#[derive(Debug)]
pub struct Snapshot {
    /// The objects, ordered by key.
    pub objects: Vec<Arc<StoredObject>>,
    pub revision: Revision,
    /// The UID of the cluster in the database. `None` if the database was never opened in a data directory.
    pub cluster_uid: Option<String>,
}

/// Digest of a list of objects, in order. It covers the key, selector index, expiry time and JSON of each object, but
/// not the resourceVersion in the JSON.
#[derive(Clone)]
pub struct ObjectListDigest {
    context: digest::Context,
    count: usize,
}

impl Default for ObjectListDigest {
    fn default() -> Self {
        Self { context: digest::Context::new(&digest::SHA256), count: 0 }
    }
}

impl ObjectListDigest {
    /// Returns the digest of the objects.
    pub fn of<'a>(objects: impl IntoIterator<Item = &'a Arc<StoredObject>>) -> Self {
        let mut digest = Self::default();
        objects.into_iter().for_each(|it| digest.add(it));
        digest
    }

    /// Adds the next object to the digest.
    pub fn add(&mut self, object: &StoredObject) {
        let draft = ObjectDraft::split(&object.value);
        let (head, tail) = draft.as_ref().map_or((&*object.value, &[][..]), |it| (&*it.head, &*it.tail));
        let expires_s = object.expires_s.unwrap_or(0).to_le_bytes();
        for part in [object.key.as_bytes(), object.index.as_bytes(), &expires_s, head, tail] {
            self.context.update(&(part.len() as u64).to_le_bytes());
            self.context.update(part);
        }
        self.count += 1;
    }

    /// Returns the number of objects.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl PartialEq for ObjectListDigest {
    fn eq(&self, other: &Self) -> bool {
        let value = |it: &Self| it.context.clone().finish().as_ref().to_vec();
        self.count == other.count && value(self) == value(other)
    }
}

impl fmt::Debug for ObjectListDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects, {:?}", self.count, self.context.clone().finish())
    }
}

impl Sqlite {
    /// Reads and verifies all objects.
    pub fn snapshot(&mut self) -> Result<Snapshot, LogError> {
        let store = local_backend::load_objects(self)?;
        let objects = store.list("").cloned().collect();
        Ok(Snapshot { objects, revision: store.revision(), cluster_uid: self.cluster_uid()? })
    }
}

/// A backup file that is open for reading.
#[derive(Debug)]
pub struct BackupFile(Sqlite);

impl BackupFile {
    /// Opens a backup file. Fails if it is not a database of Muster.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let path = std::path::absolute(path).map_err(|it| log_error_from_io(path, &it))?;
        // A missing file has another message than a damaged one.
        std::fs::metadata(&path).map_err(|it| log_error_from_io(&path, &it))?;
        let log = Sqlite::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        // An empty file passes as a new database.
        match log.pragma_number("application_id").map_err(|it| log.to_log_error(&it))? {
            APPLICATION_ID => Ok(Self(log)),
            _ => Err(LogError::Foreign { path: log.path }),
        }
    }

    /// Returns the private keys of the cluster, encrypted with the server token. `None` if this is a backup of a data
    /// directory.
    pub fn cluster_keys(&self) -> Result<Option<Bytes>, LogError> {
        let has_table = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'cluster_keys'";
        let has_table = self.0.connection.query_row(has_table, [], |it| it.get::<_, i64>(0));
        if has_table.map_err(|it| self.0.to_log_error(&it))? == 0 {
            return Ok(None);
        }
        let select = "SELECT value FROM cluster_keys";
        let value = self.0.connection.query_row(select, [], |it| it.get::<_, Vec<u8>>(0)).optional();
        Ok(value.map_err(|it| self.0.to_log_error(&it))?.map(Bytes::from))
    }

    /// Reads and verifies all objects. `keys` decrypt the Secrets of an encrypted backup.
    pub fn read(mut self, keys: Option<&EncryptionKeys>) -> Result<Snapshot, LogError> {
        if let Some(id) = self.0.encryption_key_id()? {
            let keys = keys.filter(|it| it.has_key(&id));
            let keys = keys.ok_or_else(|| LogError::NoKey { path: self.0.path.clone(), id })?;
            self.0.secret_encryption = SecretEncryption::Keys(keys.clone());
        }
        self.0.snapshot()
    }
}

/// Writes the objects of a cluster to a new database file.
///
/// Rule: the file gets its final name only when it is complete, durable and verified.
#[derive(Debug)]
pub struct SnapshotWriter {
    log: Sqlite,
    partial: PathBuf,
    to: PathBuf,
    keys: Option<EncryptionKeys>,
    digest: ObjectListDigest,
}

impl SnapshotWriter {
    /// Begins the file `to`, which must not exist. `keys` encrypt its Secrets.
    pub fn create(to: &Path, keys: Option<&EncryptionKeys>) -> Result<Self, LogError> {
        let to = std::path::absolute(to).map_err(|it| log_error_from_io(to, &it))?;
        if to.exists() {
            return Err(LogError::Exists { path: to });
        }
        let partial = create_partial_database(&to).map_err(|it| log_error_from_io(&to, &it))?;
        let mut log = Sqlite::open_existing(partial.clone())?;
        log.create_tables().map_err(|it| log.to_log_error(&it))?;
        // One transaction for all objects, which `finish` commits.
        log.connection.execute_batch("BEGIN").map_err(|it| log.to_log_error(&it))?;
        Ok(Self { log, partial, to, keys: keys.cloned(), digest: ObjectListDigest::default() })
    }

    /// Adds an object. Objects must be added in the order of their keys.
    pub fn add(&mut self, object: &StoredObject) -> Result<(), LogError> {
        let encrypted = match &self.keys {
            Some(keys) => keys
                .encrypt(&object.key, object.modified, &object.value)
                .map_err(|why| LogError::Failed { path: self.partial.clone(), why })?,
            None => None,
        };
        let row = StoredRow {
            revision: object.modified.cast_signed(),
            key: &object.key,
            is_delete: false,
            created: object.created.cast_signed(),
            expires_s: object.expires_s.map(u64::cast_signed),
            index: object.index.as_bytes(),
            value: encrypted.as_deref().unwrap_or(&object.value),
        };
        let inserted =
            self.log.connection.prepare_cached(INSERT_ROW_SQL).and_then(|mut it| row.insert(&mut it));
        inserted.map_err(|it| self.log.to_log_error(&it))?;
        self.digest.add(object);
        Ok(())
    }

    /// Completes the file as the state at `revision`, verifies it and gives it its final name. `cluster_keys` are the
    /// private keys of the cluster, encrypted with the server token, or `None` if the file is not a backup. Returns the
    /// number of objects.
    pub fn finish(
        mut self,
        revision: Revision,
        cluster_uid: &str,
        cluster_keys: Option<&[u8]>,
    ) -> Result<usize, LogError> {
        let partial = &self.partial;
        let wrong = |error: &rusqlite::Error| log_error_from_sqlite(partial, error);
        let connection = &mut self.log.connection;
        connection.execute_batch("COMMIT").map_err(|it| wrong(&it))?;
        let mut complete = || -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            transaction.execute("UPDATE floor SET revision = ?1", [revision.cast_signed()])?;
            super::data_directory::insert_cluster_uid(&transaction, cluster_uid)?;
            super::set_encryption_key_id(
                &transaction,
                self.keys.as_ref().map(EncryptionKeys::active_key_id),
            )?;
            if let Some(cluster_keys) = cluster_keys {
                transaction.execute_batch("CREATE TABLE cluster_keys (value BLOB NOT NULL) STRICT")?;
                transaction.execute("INSERT INTO cluster_keys VALUES (?1)", [cluster_keys])?;
            }
            transaction.commit()
        };
        complete().map_err(|it| wrong(&it))?;
        drop(self.log);
        let written = BackupFile::open(partial)?.read(self.keys.as_ref())?;
        if written.revision != revision || ObjectListDigest::of(&written.objects) != self.digest {
            return Err(damaged_error(partial, "it differs from the objects that were written to it"));
        }
        finish_partial_database(partial, &self.to).map_err(|it| log_error_from_io(&self.to, &it))?;
        Ok(self.digest.count())
    }

    /// Completes the file as [`SnapshotWriter::finish`] does, as the database of a data directory. Then writes the
    /// cluster marker at the path `marker`.
    pub fn finish_in_directory(
        self,
        revision: Revision,
        cluster_uid: &str,
        marker: &Path,
    ) -> Result<usize, LogError> {
        let count = self.finish(revision, cluster_uid, None)?;
        let content = ClusterMarker { uid: cluster_uid.to_owned(), revision };
        content.write(marker).map_err(|it| log_error_from_io(marker, &it))?;
        Ok(count)
    }
}

/// Renames the closed database `NAME`, whose objects were moved to etcd, to `NAME.moved`, so that no server opens it.
pub fn rename_migrated_database(path: &Path) -> Result<(), LogError> {
    super::move_or_link_aside(path, MOVED_SUFFIX, false).map_err(|it| log_error_from_io(path, &it))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::DataDirectory;
    use super::*;
    use crate::{Log as _, SelectorIndex};

    const REVISION: Revision = 1_000;

    fn objects() -> Vec<Arc<StoredObject>> {
        let object = |at: u64, key: &str| {
            let json = format!(r#"{{"metadata":{{"resourceVersion":"{at}"}},"data":"hunter2"}}"#);
            Arc::new(StoredObject {
                key: key.into(),
                value: json.into(),
                index: SelectorIndex::new([("a", "b")], []),
                created: at - 1,
                modified: at,
                expires_s: (at == 9).then_some(77),
            })
        };
        vec![object(9, "events/default/a"), object(5, "namespaces//a"), object(7, "secrets/default/a")]
    }

    fn write(to: &Path, keys: Option<&EncryptionKeys>) -> Result<usize, LogError> {
        let mut writer = SnapshotWriter::create(to, keys)?;
        objects().iter().try_for_each(|it| writer.add(it))?;
        writer.finish(REVISION, "0b6c1a5e-9a53-4a0b-8d1e-2f6f6d3c1b9a", Some(b"sealed"))
    }

    #[test]
    fn a_snapshot_is_read_back_and_restored() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("backup");
        let keys = EncryptionKeys::write_file_with_new_key(None, &dir.path().join("keys")).unwrap();
        assert_eq!(write(&file, Some(&keys)), Ok(3));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let content = std::fs::read(&file).unwrap();
        assert_eq!(content.windows(7).filter(|it| it == b"hunter2").count(), 2, "the Secret is encrypted");
        assert_eq!(write(&file, None), Err(LogError::Exists { path: file.clone() }));
        let names = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
        assert_eq!(names(dir.path()), 2);

        let backup = BackupFile::open(&file).unwrap();
        assert_eq!(backup.cluster_keys().unwrap().unwrap(), "sealed");
        let refused = backup.read(None).unwrap_err();
        assert!(matches!(refused, LogError::NoKey { .. }), "{refused}");
        // A key that was added later writes, and the file is not changed.
        let rotated = EncryptionKeys::write_file_with_new_key(Some(&keys), &dir.path().join("keys")).unwrap();
        let read = BackupFile::open(&file).unwrap().read(Some(&rotated)).unwrap();
        assert_eq!((read.objects, read.revision), (objects(), REVISION));
        assert_eq!(std::fs::read(&file).unwrap(), content);

        // It is a backup like any other.
        let (to, marker) = (dir.path().join("muster.db"), dir.path().join("cluster"));
        let revision = super::super::restore(&file, &to, &marker, Some(&keys)).unwrap();
        assert!(REVISION < revision);
        let directory = DataDirectory { marker, had_cluster: true, new_cluster: false };
        let mut opened = Sqlite::open_in_directory(&to, &directory, Some(&keys)).unwrap().log;
        assert_eq!(opened.compacted_revision().unwrap(), revision);
        assert_eq!(opened.snapshot().unwrap().objects, objects());
        drop(opened);
        assert_eq!(BackupFile::open(&to).unwrap().cluster_keys(), Ok(None));

        // A database that was moved to etcd is neither opened nor taken for a lost one.
        rename_migrated_database(&to).unwrap();
        for new_cluster in [false, true] {
            let directory = DataDirectory { new_cluster, ..directory.clone() };
            let refused = Sqlite::open_in_directory(&to, &directory, Some(&keys)).unwrap_err();
            assert_eq!(refused, LogError::MovedToEtcd { path: to.clone() });
        }
        assert!(!to.exists() && dir.path().join("muster.db.moved").exists());
    }

    #[test]
    fn other_files_are_not_backups() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        assert!(matches!(BackupFile::open(&file), Err(LogError::Failed { .. })));
        std::fs::write(&file, "").unwrap();
        assert!(matches!(BackupFile::open(&file), Err(LogError::Foreign { .. })));
        std::fs::write(&file, "text ".repeat(999)).unwrap();
        assert!(matches!(BackupFile::open(&file), Err(LogError::Damaged { .. })));
    }

    #[test]
    fn a_digest_depends_on_all_but_the_resource_version() {
        let all = objects();
        let digest = ObjectListDigest::of(&all);
        let change = |change: &dyn Fn(&mut StoredObject)| {
            let mut changed = all.clone();
            change(Arc::make_mut(&mut changed[1]));
            ObjectListDigest::of(&changed) == digest
        };
        let json = |version: &str, data: &str| {
            format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"data":"{data}"}}"#)
        };
        assert!(change(&|it| it.value = json("123", "hunter2").into()));
        assert!(change(&|it| it.modified = 123));
        assert!(!change(&|it| it.value = json("5", "hunter3").into()));
        assert!(!change(&|it| it.key = "namespaces//b".into()));
        assert!(!change(&|it| it.index = SelectorIndex::default()));
        assert!(!change(&|it| it.expires_s = Some(1)));
        assert_ne!(ObjectListDigest::of(&all[..2]), digest);
    }
}
