use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc;

use proptest::prelude::*;

use super::*;
use crate::{
    Commit, CommitError, CommitWrite, Db, DbOptions, HistoryWindow, ObjectDraft, Precondition, StoreLimits,
    StoredObject, WriteClass,
};

/// A directory for one test.
struct TestDir(tempfile::TempDir);

impl TestDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Removes the directory from an error message.
    fn without(&self, text: impl ToString) -> String {
        text.to_string().replace(&format!("{}/", self.path().display()), "")
    }
}

fn open(path: &Path, events_max: usize) -> Result<Db, LogError> {
    let window = HistoryWindow { events_max, bytes_max: usize::MAX };
    let (on_commit, on_failure) = (Box::new(|_: &[_]| ()), Box::new(|_: &_| ()));
    Db::open(
        Sqlite::open(path)?,
        DbOptions { window, limits: StoreLimits::UNLIMITED, queue_max: 1000, on_commit, on_failure },
    )
}

fn put(key: &str, value: String) -> Commit {
    let index = SelectorIndex::new([("key", key), ("app", "web")], [("spec.nodeName", "n1")]);
    let tail = format!(r#""}},"value":{value:?}}}"#).into_bytes();
    let draft = ObjectDraft { head: br#"{"metadata":{"resourceVersion":""#.to_vec(), tail };
    let write = CommitWrite::Put { index, expires_s: Some(value_len(key)), draft };
    Commit {
        key: key.into(),
        expect: Precondition::Any,
        within: None,
        allocation: None,
        linked: Vec::new(),
        fence: None,
        begins_term: false,
        class: WriteClass::default(),
        write,
    }
}

fn value_len(key: &str) -> u64 {
    key.len() as u64
}

fn delete(key: &str) -> Commit {
    Commit {
        key: key.into(),
        expect: Precondition::Any,
        within: None,
        allocation: None,
        linked: Vec::new(),
        fence: None,
        begins_term: false,
        class: WriteClass::default(),
        write: CommitWrite::Delete,
    }
}

fn commit(db: &Db, commits: Vec<Commit>) -> Vec<Result<Arc<CommitEvent>, CommitError>> {
    let (said, outcomes) = mpsc::channel();
    for commit in commits {
        let said = said.clone();
        db.commit(commit, move |it| said.send(it).unwrap());
    }
    drop(said);
    outcomes.iter().collect()
}

type Everything = (Revision, Vec<StoredObject>, Vec<String>);

fn everything(db: &Db, from: Revision) -> Everything {
    let store = db.read();
    let records = store.list("").map(|it| StoredObject::clone(it)).collect();
    let history = store
        .commits_since("", from.max(store.compacted_revision()))
        .unwrap()
        .map(|it| format!("{it:?}"))
        .collect();
    (store.revision(), records, history)
}

/// Copies the files while the writer has them open, as a crash leaves them.
fn crash(path: &Path, to: &Path) {
    for end in ["", "-wal"] {
        fs::copy(with_suffix(path, end), with_suffix(to, end)).unwrap();
    }
}

#[test]
fn acknowledged_commits_survive_a_crash_and_a_close() {
    let dir = TestDir::new();
    let db = open(&dir.file("a"), 1000).unwrap();
    commit(&db, vec![put("pods/a/1", "1".into()), put("nodes//n1", "x".repeat(10_000)), delete("pods/a/1")]);
    commit(&db, vec![put("pods/a/2", String::new())]);
    let told = everything(&db, 1);
    crash(&dir.file("a"), &dir.file("b"));
    db.close();
    assert!(!dir.file("a-wal").exists(), "a clean end leaves one file");
    assert_eq!(everything(&open(&dir.file("a"), 1000).unwrap(), 1), told);
    assert_eq!(everything(&open(&dir.file("b"), 1000).unwrap(), 1), told);
    let mode = fs::metadata(dir.file("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A log that lost its end is the state at an earlier revision.
    #[test]
    fn a_truncated_log_is_an_earlier_state(
        steps in prop::collection::vec((0..5_u8, prop::bool::weighted(0.7)), 1..30),
        events_max in 0..20_usize,
        cut in 0.0..1.0_f64,
    ) {
        let dir = TestDir::new();
        let db = open(&dir.file("a"), events_max).unwrap();
        let moment = |db: &Db| { let it = everything(db, u64::MAX >> 1); (it.0, it.1) };
        let mut moments = vec![moment(&db)];
        for (key, is_put) in steps {
            let key = format!("k/{key}");
            commit(&db, vec![if is_put { put(&key, key.clone()) } else { delete(&key) }]);
            moments.push(moment(&db));
        }
        crash(&dir.file("a"), &dir.file("b"));
        prop_assert_eq!(&moment(&open(&dir.file("b"), 1000).unwrap()), moments.last().unwrap());

        crash(&dir.file("a"), &dir.file("c"));
        let wal = fs::OpenOptions::new().write(true).open(dir.file("c-wal")).unwrap();
        let len = wal.metadata().unwrap().len();
        wal.set_len((len as f64 * cut) as u64).unwrap();
        let torn = open(&dir.file("c"), 1000).unwrap();
        prop_assert!(moments.contains(&moment(&torn)), "{:?}", torn);
    }

    /// A change to any byte of the write-ahead log is detected, except in the last two commits, where it looks like a crash before they
    /// were synced.
    #[test]
    fn damage_to_the_write_ahead_log_is_detected(at in 0.0..1.0_f64, flip in 1..=255_u8) {
        let dir = TestDir::new();
        let db = open(&dir.file("a"), 1000).unwrap();
        let mut moments = Vec::new();
        for it in 0..20 {
            commit(&db, vec![put(&format!("k/{}", it % 7), "value ".repeat(it * 20))]);
            moments.push(everything(&db, 1));
        }
        crash(&dir.file("a"), &dir.file("b"));
        let mut wal = fs::read(dir.file("b-wal")).unwrap();
        let at = (wal.len() as f64 * at) as usize;
        wal[at] ^= flip;
        fs::write(dir.file("b-wal"), wal).unwrap();
        match open(&dir.file("b"), 1000) {
            Ok(db) => prop_assert!(moments[17..].contains(&everything(&db, 1)), "byte {at}: {db:?}"),
            Err(error) => prop_assert!(matches!(error, LogError::Damaged { .. }), "byte {at}: {error}"),
        }
    }

    /// A change to any used byte of the file is detected.
    #[test]
    fn damage_to_the_file_is_detected(at in 0.0..1.0_f64, flip in 1..=255_u8) {
        let dir = TestDir::new();
        let db = open(&dir.file("a"), 1000).unwrap();
        for it in 0..40 {
            commit(&db, vec![put(&format!("k/{}", it % 7), "value ".repeat(it * 20))]);
        }
        db.close();
        let sound = everything(&open(&dir.file("a"), 1000).unwrap(), 1);
        let mut bytes = fs::read(dir.file("a")).unwrap();
        let at = (bytes.len() as f64 * at) as usize;
        bytes[at] ^= flip;
        fs::write(dir.file("b"), bytes).unwrap();
        match open(&dir.file("b"), 1000) {
            Ok(db) => prop_assert!(everything(&db, 1) == sound, "byte {} of {}", at, flip),
            Err(LogError::Damaged { .. } | LogError::Newer { .. } | LogError::Foreign { .. }) => {}
            Err(other) => prop_assert!(false, "byte {}: {}", at, other),
        }
    }
}

#[test]
fn the_file_is_compacted_with_the_history() {
    let dir = TestDir::new();
    let rows = |path: &Path| -> i64 {
        let log = Sqlite::open_existing(path.into()).unwrap();
        log.connection.query_row("SELECT count(*) FROM version", [], |it| it.get(0)).unwrap()
    };
    let db = open(&dir.file("a"), 10).unwrap();
    for it in 0..300 {
        commit(&db, vec![put(&format!("leases/{}", it % 3), String::new())]);
    }
    // Three leases, ten commits of history, and a few rows that are not compacted yet.
    let left = rows(&dir.file("a"));
    assert!(left <= 3 + 10 + 16, "{left} rows are left");
    let before = everything(&db, 0);
    db.close();
    let db = open(&dir.file("a"), 1000).unwrap();
    let after = everything(&db, before.0 - 10);
    assert_eq!(after, before);
    // A watch cannot start before the compacted revision, and resumes from the last revision.
    assert!(db.read().commits_since("leases/", 5).is_err());
    assert_eq!(db.read().commits_since("leases/", 301).unwrap().count(), 0);
}

#[test]
fn the_write_ahead_log_is_checkpointed_and_reused() {
    let dir = TestDir::new();
    let db = open(&dir.file("a"), 10).unwrap();
    for _ in 0..80 {
        commit(&db, (0..8).map(|it| put(&format!("k/{it}"), "x".repeat(60_000))).collect());
    }
    // Some 38 MB were written.
    let len = fs::metadata(dir.file("a-wal")).unwrap().len();
    assert!(len < 2 * CHECKPOINT_WAL_BYTES as u64, "it holds {len} bytes");
}

/// A database of at most so many pages.
fn open_small(path: &Path, pages: i64) -> Db {
    let log = Sqlite::open(path).unwrap();
    log.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
    let window = HistoryWindow { events_max: 1000, bytes_max: usize::MAX };
    let (on_commit, on_failure) = (Box::new(|_: &[_]| ()), Box::new(|_: &_| ()));
    Db::open(
        log,
        DbOptions { window, limits: StoreLimits::UNLIMITED, queue_max: 1000, on_commit, on_failure },
    )
    .unwrap()
}

#[test]
fn a_full_database_is_emptied_by_deletes_and_takes_writes_again() {
    let dir = TestDir::new();
    let path = dir.file("a");
    // The last value of a deleted object, and an object that is marked for deletion, are as large as the object was.
    let large = |key: &str, class| Commit { class, ..put(key, "x".repeat(100_000)) };
    let fill = |db: &Db| {
        let mut keys = Vec::new();
        loop {
            let key = format!("k/{}-{}", db.read().revision(), keys.len());
            match commit(db, vec![large(&key, WriteClass::default())]).remove(0) {
                Ok(_) => keys.push(key),
                Err(error) => break assert_eq!(error, CommitError::DiskFull),
            }
        }
        keys
    };
    let mut db = open_small(&path, 1000);
    let keys = fill(&db);
    assert!(30 < keys.len(), "{} of 1000 pages", keys.len());
    let watched = db.read().revision();
    for (at, key) in keys.iter().enumerate() {
        if at == keys.len() / 2 {
            let told = everything(&db, u64::MAX >> 1);
            crash(&path, &dir.file("crashed"));
            assert_eq!(everything(&open_small(&dir.file("crashed"), 1000), u64::MAX >> 1), told);
            // Watches continue until the restart.
            assert_eq!(db.read().commits_since("k/", watched).unwrap().count(), 2 * at);
            db.close();
            db = open_small(&path, 1000);
            assert_eq!(everything(&db, u64::MAX >> 1), told);
            assert!(db.read().commits_since("k/", watched).is_err(), "a watch from before must list again");
        }
        let before = db.read().revision();
        let marked = commit(&db, vec![large(key, WriteClass::Deletion)]).remove(0).unwrap();
        let deleted = commit(&db, vec![delete(key)]).remove(0).unwrap();
        assert_eq!((marked.revision, deleted.revision), (before + 1, before + 2));
        assert!(100_000 < deleted.latest_value().len(), "watches get the last value");
    }
    assert_eq!(db.read().list("").count(), 0);
    // One batch in which a key is marked and deleted, on a full database.
    let keys = fill(&db);
    assert!(30 < keys.len(), "{} again", keys.len());
    let batch = vec![
        large(&keys[0], WriteClass::Deletion),
        delete(&keys[0]),
        delete(&keys[1]),
        large(&keys[2], WriteClass::Deletion),
    ];
    for outcome in commit(&db, batch) {
        outcome.unwrap();
    }
    let told = everything(&db, u64::MAX >> 1);
    db.close();
    let db = open_small(&path, 1000);
    assert_eq!(everything(&db, u64::MAX >> 1), told);
    for outcome in commit(&db, keys[2..].iter().map(|it| delete(it)).collect()) {
        outcome.unwrap();
    }
    assert!(30 < fill(&db).len());
}

#[test]
fn a_file_that_cannot_be_opened_is_refused_with_its_reason() {
    let dir = TestDir::new();
    let error = |path: &Path| dir.without(open(path, 10).expect_err("it is refused"));
    fs::write(dir.file("text"), "no database at all ".repeat(100)).unwrap();
    assert_eq!(error(&dir.file("text")), "the data file text is damaged: it is not an SQLite database");

    Connection::open(dir.file("other")).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert_eq!(error(&dir.file("other")), "other is not a data file of this program");

    open(&dir.file("newer"), 10).unwrap().close();
    Connection::open(dir.file("newer")).unwrap().pragma_update(None, "user_version", 3).unwrap();
    assert_eq!(
        error(&dir.file("newer")),
        "the data file newer has format 3, and this version reads formats up to 2"
    );

    let db = open(&dir.file("gap"), 10).unwrap();
    commit(&db, vec![put("a", String::new()), put("b", String::new()), put("c", String::new())]);
    db.close();
    Connection::open(dir.file("gap")).unwrap().execute("DELETE FROM version WHERE revision = 3", []).unwrap();
    assert_eq!(
        error(&dir.file("gap")),
        "the data file gap is damaged: the commit before this one is missing, at revision 4"
    );
}

/// Earlier versions stored a deletion timestamp in the row of a deletion that was never part of the object.
#[test]
fn the_row_of_a_deletion_by_an_earlier_version_is_read_as_it_is() {
    let dir = TestDir::new();
    let db = open(&dir.file("a"), 10).unwrap();
    commit(&db, vec![put("pods/a/1", "1".into()), delete("pods/a/1")]);
    db.close();
    let last =
        br#"{"metadata":{"resourceVersion":"3","deletionTimestamp":"2026-01-01T00:00:00Z"},"value":"1"}"#;
    {
        let file = Connection::open(dir.file("a")).unwrap();
        let sum = {
            let mut select = file
                .prepare("SELECT revision, key, is_gone, created, expires_s, sum, selectable, value FROM version WHERE revision = 3")
                .unwrap();
            let mut rows = select.query([]).unwrap();
            let mut stored = StoredRow::from_sql_row(rows.next().unwrap().unwrap()).unwrap();
            assert_eq!(stored.value, br#"{"metadata":{"resourceVersion":"3"},"value":"1"}"#);
            stored.value = last;
            stored.checksum()
        };
        file.execute("UPDATE version SET value = ?1, sum = ?2 WHERE revision = 3", params![&last[..], sum])
            .unwrap();
    }
    let db = open(&dir.file("a"), 10).unwrap();
    let store = db.read();
    let values: Vec<_> =
        store.commits_since("pods/", 1).unwrap().map(|it| it.latest_value().clone()).collect();
    assert_eq!(values, [&br#"{"metadata":{"resourceVersion":"2"},"value":"1"}"#[..], last]);
}

#[test]
fn a_backup_during_writes_is_the_state_at_one_revision() {
    let dir = TestDir::new();
    let db = open(&dir.file("a"), usize::MAX).unwrap();
    commit(&db, vec![put("k/0", String::new())]);
    let writing = db.clone();
    let (stop, stopped) = mpsc::channel::<()>();
    let writer = thread_of(move || {
        let mut number = 0;
        while stopped.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
            number += 1;
            commit(&writing, (0..8).map(|it| put(&format!("k/{it}"), format!("{number}"))).collect());
        }
    });
    let backups: Vec<_> = (0..3).map(|it| dir.file(&format!("backup{it}"))).collect();
    let revisions: Vec<_> = backups.iter().map(|it| backup(&dir.file("a"), it).unwrap()).collect();
    drop(stop);
    writer.join().unwrap();
    assert!(revisions.is_sorted(), "{revisions:?}");
    for (path, revision) in backups.iter().zip(revisions) {
        let copy = open(path, 1000).unwrap();
        assert_eq!(copy.read().revision(), revision);
        let at_that_time: Vec<_> = {
            let store = db.read();
            let mut state = std::collections::BTreeMap::new();
            for event in store.commits_since("", 1).unwrap().take_while(|it| it.revision <= revision) {
                if let KeyChange::Put { now, .. } = &event.change {
                    state.insert(now.key.clone(), StoredObject::clone(now));
                }
            }
            state.into_values().collect()
        };
        assert_eq!(everything(&copy, u64::MAX >> 1).1, at_that_time);
    }
    assert_eq!(dir.without(backup(&dir.file("a"), &backups[0]).unwrap_err()), "backup0 already exists");
}

fn thread_of(work: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(work)
}

#[test]
fn clients_of_a_restored_store_must_list_again() {
    let dir = TestDir::new();
    let db = open(&dir.file("a"), 1000).unwrap();
    commit(&db, vec![put("k/1", "1".into()), put("k/1", "2".into()), put("k/2", "1".into()), delete("k/2")]);
    let told = everything(&db, u64::MAX >> 1).1;
    backup(&dir.file("a"), &dir.file("backup")).unwrap();
    commit(&db, vec![put("k/3", "after the backup".into())]);
    let newest = db.read().revision();
    db.close();

    // Files that an earlier attempt left do not get into the new file.
    for left in ["a-journal", "a.partial-journal", "a.partial-wal"] {
        fs::write(dir.file(left), "left behind").unwrap();
    }
    restore(&dir.file("backup"), &dir.file("a"), &dir.file("cluster"), None).unwrap();
    assert!(!dir.file("a-journal").exists() && !dir.file("a.partial-journal").exists());
    let db = open(&dir.file("a"), 1000).unwrap();
    let (revision, records, _) = everything(&db, 0);
    assert_eq!((revision, &records), (newest + RESTORE_REVISION_GAP, &told));
    // A client that saw the lost commit would wait for ever if its watch were accepted.
    assert_eq!(db.read().commits_since("k/", newest).err().map(|it| it.compacted_revision), Some(revision));
    assert_eq!(commit(&db, vec![put("k/3", "new".into())])[0].as_ref().unwrap().revision, revision + 1);
    db.close();
    // The replaced database is kept.
    let replaced = open(&dir.file("a.replaced"), 1000).unwrap();
    assert_eq!(replaced.read().revision(), newest);

    // A second restore of the same backup does not reuse revisions given out after the first.
    let again = restore(&dir.file("backup"), &dir.file("a"), &dir.file("cluster"), None).unwrap();
    assert_eq!(again, revision + 1 + RESTORE_REVISION_GAP);

    fs::write(dir.file("cut"), &fs::read(dir.file("backup")).unwrap()[..5000]).unwrap();
    let refused = restore(&dir.file("cut"), &dir.file("a"), &dir.file("cluster"), None).unwrap_err();
    assert!(matches!(refused, LogError::Damaged { .. }), "{refused}");
    let refused = restore(&dir.file("nowhere"), &dir.file("a"), &dir.file("cluster"), None).unwrap_err();
    assert!(matches!(refused, LogError::Failed { .. }), "{refused}");
    assert_eq!(open(&dir.file("a"), 1000).unwrap().read().revision(), again);
}

fn directory(dir: &TestDir) -> DataDirectory {
    DataDirectory { marker: dir.file("cluster"), had_cluster: false, new_cluster: false }
}

fn open_in(dir: &TestDir, directory: &DataDirectory) -> Result<Db, LogError> {
    let window = HistoryWindow { events_max: 1000, bytes_max: usize::MAX };
    let (on_commit, on_failure) = (Box::new(|_: &[_]| ()), Box::new(|_: &_| ()));
    let OpenedLog { log, .. } = Sqlite::open_in_directory(&dir.file("a"), directory, None)?;
    Db::open(
        log,
        DbOptions { window, limits: StoreLimits::UNLIMITED, queue_max: 1000, on_commit, on_failure },
    )
}

/// A directory as `kill -9` leaves it: a database, its write-ahead log and its marker. Returns the content of the database too.
fn killed(commits: usize) -> (TestDir, Everything) {
    let (running, left) = (TestDir::new(), TestDir::new());
    let db = open_in(&running, &directory(&running)).unwrap();
    for it in 0..commits {
        commit(&db, vec![put(&format!("k/{it}"), "value ".repeat(100))]);
    }
    for name in ["a", "a-wal", "cluster"] {
        fs::copy(running.file(name), left.file(name)).unwrap();
    }
    (left, everything(&db, 1))
}

#[test]
fn a_killed_server_reopens_its_cluster() {
    let (dir, told) = killed(20);
    let OpenedLog { log, is_adopted, .. } =
        Sqlite::open_in_directory(&dir.file("a"), &directory(&dir), None).unwrap();
    let uid = log.cluster_uid().unwrap();
    assert!(uid.is_some() && !is_adopted);
    drop(log);
    assert_eq!(everything(&open_in(&dir, &directory(&dir)).unwrap(), 1), told);
    let other = killed(1).0;
    let other = Sqlite::open_in_directory(&other.file("a"), &directory(&other), None).unwrap().log;
    assert_ne!(other.cluster_uid().unwrap(), uid, "another cluster has another UID");
}

#[test]
fn a_lost_empty_or_foreign_database_is_refused_and_nothing_is_changed() {
    let check = |expected: &str, break_it: &dyn Fn(&TestDir)| {
        let (dir, _) = killed(20);
        break_it(&dir);
        let files = || {
            let mut files: Vec<_> = fs::read_dir(dir.path())
                .unwrap()
                .map(|it| it.unwrap().path())
                .filter(|it| {
                    it.extension().is_none_or(|it| it != "db-shm") && !it.to_str().unwrap().ends_with("-shm")
                })
                .map(|it| (it.clone(), fs::read(it).unwrap()))
                .filter(|it| !it.1.is_empty())
                .collect();
            files.sort();
            files
        };
        let before = files();
        let error = open_in(&dir, &directory(&dir)).expect_err(expected);
        assert!(dir.without(&error).contains(expected), "{error}");
        assert!(before == files(), "{expected}: a file has changed");

        // On request a new cluster is created, and the old files are kept.
        let asked = DataDirectory { new_cluster: true, ..directory(&dir) };
        let db = open_in(&dir, &asked).unwrap();
        assert_eq!(db.read().list("").count(), 0);
        commit(&db, vec![put("k/new", String::new())]);
        db.close();
        let again = open_in(&dir, &asked).expect_err("asked for once more");
        assert!(matches!(again, LogError::HasCluster { .. }), "{again}");
        assert_eq!(open_in(&dir, &directory(&dir)).unwrap().read().list("").count(), 1);
    };
    check("the data file a is missing", &|it| fs::remove_file(it.file("a")).unwrap());
    check("the data file a is empty", &|it| fs::write(it.file("a"), "").unwrap());
    check("its -wal file is missing or was truncated", &|it| fs::remove_file(it.file("a-wal")).unwrap());
    check("its -wal file is missing or was truncated", &|it| {
        let wal = fs::OpenOptions::new().write(true).open(it.file("a-wal")).unwrap();
        wal.set_len(wal.metadata().unwrap().len() / 2).unwrap();
    });
    check("its -wal file is missing or was truncated", &|it| fs::write(it.file("a-wal"), "").unwrap());
    check("the data file a belongs to another cluster", &|it| {
        let (other, _) = killed(40);
        for name in ["a", "a-wal"] {
            fs::copy(other.file(name), it.file(name)).unwrap();
        }
    });
    check("is not a valid cluster marker", &|it| fs::write(it.file("cluster"), "muster").unwrap());
}

#[test]
fn the_log_of_a_lost_database_survives_a_backup_and_a_restore() {
    let (sound, _) = killed(3);
    backup(&sound.file("a"), &sound.file("backup")).unwrap();
    for what in ["empty", "missing"] {
        let (dir, _) = killed(20);
        let wal = fs::read(dir.file("a-wal")).unwrap();
        fs::remove_file(dir.file("a")).unwrap();
        if what == "empty" {
            fs::write(dir.file("a"), "").unwrap();
        }
        let lost = LogError::Lost { path: dir.file("a"), what };
        assert_eq!(backup(&dir.file("a"), &dir.file("copy")), Err(lost.clone()));
        assert_eq!(open_in(&dir, &directory(&dir)).unwrap_err(), lost, "a start says the same");
        assert!(fs::read(dir.file("a-wal")).unwrap() == wal, "{what}");
        assert!(!dir.file("copy").exists() && !dir.file("copy.partial").exists());

        restore(&sound.file("backup"), &dir.file("a"), &dir.file("cluster"), None).unwrap();
        assert!(fs::read(dir.file("a.replaced-wal")).unwrap() == wal, "{what}");
        assert_eq!(dir.file("a.replaced").exists(), what == "empty");
        assert_eq!(open_in(&dir, &directory(&dir)).unwrap().read().list("").count(), 3);
    }
}

#[test]
fn loss_of_the_last_commit_is_detected() {
    let (dir, _) = killed(3);
    let wal = fs::OpenOptions::new().write(true).open(dir.file("a-wal")).unwrap();
    wal.set_len(wal.metadata().unwrap().len() - 1).unwrap();
    let error = open_in(&dir, &directory(&dir)).expect_err("a commit that was answered is gone");
    assert!(matches!(error, LogError::Behind { found: 3, expected: 4, .. }), "{error}");
    // The rest can be recovered by a backup and a restore.
    backup(&dir.file("a"), &dir.file("backup")).unwrap();
    restore(&dir.file("backup"), &dir.file("a"), &dir.file("cluster"), None).unwrap();
    let db = open_in(&dir, &directory(&dir)).unwrap();
    assert_eq!(db.read().list("").count(), 2);
    assert!(RESTORE_REVISION_GAP < db.read().revision());
}

#[test]
fn a_directory_without_a_marker_is_adopted_if_it_has_a_database() {
    let dir = TestDir::new();
    let had_cluster = DataDirectory { had_cluster: true, ..directory(&dir) };
    let error = open_in(&dir, &had_cluster).expect_err("it had a cluster");
    assert!(matches!(error, LogError::Lost { .. }), "{error}");
    // As an earlier version created it.
    let db = open(&dir.file("a"), 10).unwrap();
    commit(&db, vec![put("k/1", String::new())]);
    db.close();
    let OpenedLog { log, is_adopted, .. } =
        Sqlite::open_in_directory(&dir.file("a"), &had_cluster, None).unwrap();
    let uid = log.cluster_uid().unwrap();
    assert!(is_adopted && uid.is_some());
    drop(log);
    let OpenedLog { log, is_adopted, .. } =
        Sqlite::open_in_directory(&dir.file("a"), &had_cluster, None).unwrap();
    assert!(!is_adopted && log.cluster_uid().unwrap() == uid);
}

#[test]
fn only_a_restore_accepts_a_backup_of_another_cluster() {
    let (dir, _) = killed(3);
    let (other, _) = killed(5);
    backup(&other.file("a"), &dir.file("backup")).unwrap();
    restore(&dir.file("backup"), &dir.file("a"), &dir.file("cluster"), None).unwrap();
    let log = Sqlite::open_in_directory(&dir.file("a"), &directory(&dir), None).unwrap().log;
    let theirs = Sqlite::open_in_directory(&other.file("a"), &directory(&other), None).unwrap().log;
    assert_eq!(log.cluster_uid().unwrap(), theirs.cluster_uid().unwrap(), "the UID is in the backup");
    drop(log);
    assert_eq!(open_in(&dir, &directory(&dir)).unwrap().read().list("").count(), 5);
    // An older copy of the same cluster is detected too.
    fs::copy(dir.file("backup"), dir.file("a")).unwrap();
    let error = open_in(&dir, &directory(&dir)).expect_err("it is behind");
    assert!(matches!(error, LogError::Behind { .. }), "{error}");
}

#[test]
fn a_database_that_is_removed_or_replaced_under_a_running_server_takes_no_more_writes() {
    for is_replaced in [false, true] {
        let dir = TestDir::new();
        let log = Sqlite::open_in_directory(&dir.file("a"), &directory(&dir), None).unwrap().log;
        let guard = log.file_guard().unwrap();
        let window = HistoryWindow { events_max: 10, bytes_max: usize::MAX };
        let (said, failed) = mpsc::channel();
        let on_failure = Box::new(move |error: &LogError| said.send(error.clone()).unwrap());
        let db = Db::open(
            log,
            DbOptions {
                window,
                limits: StoreLimits::UNLIMITED,
                queue_max: 10,
                on_commit: Box::new(|_| ()),
                on_failure,
            },
        )
        .unwrap();
        commit(&db, vec![put("k/1", String::new())]);
        assert_eq!(guard.check_files(), Ok(()));
        fs::rename(dir.file("a"), dir.file("moved")).unwrap();
        if is_replaced {
            fs::copy(dir.file("moved"), dir.file("a")).unwrap();
        }
        let gone = LogError::Replaced { path: dir.file("a") };
        assert_eq!(guard.check_files(), Err(gone.clone()));
        let refused = commit(&db, vec![put("k/2", String::new())]).remove(0);
        assert!(matches!(refused, Err(CommitError::Failed { .. })), "{refused:?}");
        assert_eq!(failed.recv().unwrap(), gone);
    }
}

/// Creates a database with Secrets in various states, and returns its content.
fn with_secrets(dir: &TestDir, keys: Option<&EncryptionKeys>) -> Everything {
    let log = Sqlite::open_in_directory(&dir.file("a"), &directory(dir), keys).unwrap().log;
    let window = HistoryWindow { events_max: 1000, bytes_max: usize::MAX };
    let (on_commit, on_failure) = (Box::new(|_: &[_]| ()), Box::new(|_: &_| ()));
    let options =
        DbOptions { window, limits: StoreLimits::UNLIMITED, queue_max: 1000, on_commit, on_failure };
    let db = Db::open(log, options).unwrap();
    for it in 0..30 {
        let value = format!("{{\"password\":\"hunter-{it}-{}\"}}", "x".repeat(it * 300));
        commit(
            &db,
            vec![
                put(&format!("secrets/default/{}", it % 7), value),
                put("maps/default/plain", "in clear text".into()),
            ],
        );
    }
    commit(&db, vec![delete("secrets/default/0")]);
    let told = everything(&db, 1);
    db.close();
    told
}

/// Whether any file of the directory, except the one named `but`, contains the text.
fn is_found(dir: &TestDir, text: &str, but: &str) -> bool {
    fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().path()).any(|it| {
        it.file_name() != Some(but.as_ref())
            && fs::read(&it).unwrap().windows(text.len()).any(|it| it == text.as_bytes())
    })
}

fn read_all(dir: &TestDir, keys: Option<&EncryptionKeys>) -> Result<Everything, LogError> {
    let log = Sqlite::open_in_directory(&dir.file("a"), &directory(dir), keys)?.log;
    let window = HistoryWindow { events_max: 1000, bytes_max: usize::MAX };
    let (on_commit, on_failure) = (Box::new(|_: &[_]| ()), Box::new(|_: &_| ()));
    let db = Db::open(
        log,
        DbOptions { window, limits: StoreLimits::UNLIMITED, queue_max: 1000, on_commit, on_failure },
    )?;
    let told = everything(&db, 1);
    db.close();
    Ok(told)
}

#[test]
fn secrets_are_encrypted_in_the_file_and_in_backups_and_nothing_else_is() {
    let dir = TestDir::new();
    let keys = EncryptionKeys::write_file_with_new_key(None, &dir.file("keys")).unwrap();
    let told = with_secrets(&dir, Some(&keys));
    assert!(!is_found(&dir, "hunter", ""), "no Secret is in clear text");
    assert!(is_found(&dir, "in clear text", ""), "other objects are");
    assert_eq!(read_all(&dir, Some(&keys)).unwrap(), told);

    let refused = read_all(&dir, None).unwrap_err();
    assert_eq!(refused, LogError::NoKey { path: dir.file("a"), id: keys.active_key_id().to_owned() });
    let others = EncryptionKeys::write_file_with_new_key(None, &dir.file("others")).unwrap();
    assert_eq!(read_all(&dir, Some(&others)).unwrap_err(), refused);

    // A backup needs no key; a restore does.
    backup(&dir.file("a"), &dir.file("backup")).unwrap();
    assert!(!is_found(&dir, "hunter", ""));
    let elsewhere = TestDir::new();
    let restored =
        |keys| restore(&dir.file("backup"), &elsewhere.file("a"), &elsewhere.file("cluster"), keys);
    assert!(matches!(restored(None), Err(LogError::NoKey { .. })));
    assert!(matches!(restored(Some(&others)), Err(LogError::NoKey { .. })));
    restored(Some(&keys)).unwrap();
    assert_eq!(read_all(&elsewhere, Some(&keys)).unwrap().1, told.1);
}

#[test]
fn a_sealed_secret_cannot_replace_another() {
    let dir = TestDir::new();
    let keys = EncryptionKeys::write_file_with_new_key(None, &dir.file("keys")).unwrap();
    with_secrets(&dir, Some(&keys));
    let file = Connection::open(dir.file("a")).unwrap();
    let value = |at: i64| {
        file.query_row("SELECT value FROM version WHERE revision = ?1", [at], |it| it.get::<_, Vec<u8>>(0))
            .unwrap()
    };
    let theirs = value(2);
    let changed = {
        let log = Sqlite::open_existing(dir.file("a")).unwrap();
        let mut select = log.connection.prepare("SELECT revision, key, is_gone, created, expires_s, sum, selectable, value FROM version WHERE revision = 4").unwrap();
        let mut rows = select.query([]).unwrap();
        let row = rows.next().unwrap().unwrap();
        let mut stored = StoredRow::from_sql_row(row).unwrap();
        stored.value = &theirs;
        stored.checksum()
    };
    file.execute("UPDATE version SET value = ?1, sum = ?2 WHERE revision = 4", params![theirs, changed])
        .unwrap();
    drop(file);
    let error = read_all(&dir, Some(&keys)).unwrap_err();
    assert!(error.to_string().contains("the Secret at revision 4 is not the one"), "{error}");
}

#[test]
fn a_database_is_encrypted_rotated_and_decrypted_again() {
    let dir = TestDir::new();
    let told = with_secrets(&dir, None);
    assert!(is_found(&dir, "hunter", ""));
    let uid = |dir: &TestDir| Sqlite::open_existing(dir.file("a")).unwrap().cluster_uid().unwrap();
    let before = uid(&dir);
    let first = EncryptionKeys::write_file_with_new_key(None, &dir.file("keys")).unwrap();
    let change = |read: Option<&EncryptionKeys>, write: Option<&EncryptionKeys>| {
        reencrypt_secrets(&dir.file("a"), &directory(&dir), read, write).unwrap()
    };
    assert!(0 < change(None, Some(&first)));
    assert!(!is_found(&dir, "hunter", ""), "no row, page or log has clear text");
    assert_eq!(read_all(&dir, Some(&first)).unwrap(), told);

    let both = EncryptionKeys::write_file_with_new_key(Some(&first), &dir.file("keys")).unwrap();
    change(Some(&both), Some(&both));
    assert_eq!(read_all(&dir, Some(&both)).unwrap(), told);
    assert!(matches!(read_all(&dir, Some(&first)), Err(LogError::NoKey { .. })));
    assert!(!is_found(&dir, first.active_key_id(), "keys"), "nothing is left that the old key opens");

    change(Some(&both), None);
    assert_eq!(read_all(&dir, None).unwrap(), told);
    assert_eq!(uid(&dir), before);
    let log = Sqlite::open_existing(dir.file("a")).unwrap();
    assert_eq!(log.pragma_number("user_version").unwrap(), FORMAT_VERSION, "older versions read it again");
}

#[test]
fn with_keys_secrets_in_clear_text_are_read_and_counted() {
    let dir = TestDir::new();
    let told = with_secrets(&dir, None);
    let keys = EncryptionKeys::write_file_with_new_key(None, &dir.file("keys")).unwrap();
    let opened = Sqlite::open_in_directory(&dir.file("a"), &directory(&dir), Some(&keys)).unwrap();
    assert_eq!(opened.clear_secrets, 31, "30 writes, and the last value of a deleted Secret");
    assert_eq!(
        opened.log.pragma_number("user_version").unwrap(),
        FORMAT_VERSION_ENCRYPTED,
        "older versions refuse it from now on"
    );
    drop(opened);
    assert_eq!(read_all(&dir, Some(&keys)).unwrap(), told);
}

#[test]
fn a_secret_in_clear_text_is_counted_whatever_its_first_byte() {
    let dir = TestDir::new();
    let keys = EncryptionKeys::write_file_with_new_key(None, &dir.file("keys")).unwrap();
    with_secrets(&dir, Some(&keys));
    let count =
        || Sqlite::open_in_directory(&dir.file("a"), &directory(&dir), Some(&keys)).unwrap().clear_secrets;
    assert_eq!(count(), 0);
    let file = Connection::open(dir.file("a")).unwrap();
    for (at, value) in [(2, "{}"), (4, " {}"), (6, "\n{}")] {
        file.execute("UPDATE version SET value = ?1 WHERE revision = ?2", params![value.as_bytes(), at])
            .unwrap();
    }
    drop(file);
    assert_eq!(count(), 3);
}

#[test]
fn a_backup_uses_no_file_that_was_put_beside_it() {
    let (dir, _) = killed(3);
    let victim = dir.file("victim");
    fs::write(&victim, "").unwrap();
    let names = ["copy.partial", "copy.partial-wal", "copy.partial-journal"];
    for planted in names {
        std::os::unix::fs::symlink(&victim, dir.file(planted)).unwrap();
    }
    backup(&dir.file("a"), &dir.file("copy")).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"", "nothing is written to the file of somebody else");
    assert!(names.iter().all(|it| fs::symlink_metadata(dir.file(it)).is_err()), "no partial file stays");
    assert_eq!(fs::metadata(dir.file("copy")).unwrap().permissions().mode() & 0o777, 0o600);

    // What a killed backup left is removed.
    fs::create_dir(dir.file("second.partial")).unwrap();
    fs::write(dir.file("second.partial/second"), "left behind").unwrap();
    backup(&dir.file("a"), &dir.file("second")).unwrap();
    assert!(!dir.file("second.partial").exists());
    assert_eq!(fs::read(dir.file("copy")).unwrap(), fs::read(dir.file("second")).unwrap());
}
