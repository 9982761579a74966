use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc;
use std::sync::mpsc::{Receiver, Sender};

use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::{
    CommitConflict, CommitWrite, Compaction, HistoryWindow, KeyChange, LinkedUpdate, LogRow, MemoryLog,
    ObjectDraft, OnRow, Precondition, SelectorIndex, StoreLimits, StoredObject, WriteClass,
};

type Outcome = Result<Arc<CommitEvent>, CommitError>;

const WIDE: HistoryWindow = HistoryWindow { events_max: usize::MAX, bytes_max: usize::MAX };

fn options(window: HistoryWindow) -> DbOptions {
    DbOptions {
        window,
        limits: StoreLimits::UNLIMITED,
        queue_max: 100,
        on_commit: Box::new(|_| ()),
        on_failure: Box::new(|_| ()),
    }
}

fn put(key: &str, expect: Precondition) -> Commit {
    let index = SelectorIndex::new([("key", key)], []);
    Commit {
        key: key.into(),
        expect,
        within: None,
        allocation: None,
        linked: Vec::new(),
        fence: None,
        begins_term: false,
        class: WriteClass::default(),
        write: CommitWrite::Put { index, expires_s: None, draft: object(key) },
    }
}

fn delete(key: &str, expect: Precondition) -> Commit {
    Commit {
        key: key.into(),
        expect,
        within: None,
        allocation: None,
        linked: Vec::new(),
        fence: None,
        begins_term: false,
        class: WriteClass::default(),
        write: CommitWrite::Delete,
    }
}

/// An object named `name`.
fn object(name: &str) -> ObjectDraft {
    let head = format!(r#"{{"name":"{name}","metadata":{{"resourceVersion":""#);
    ObjectDraft { head: head.into_bytes(), tail: br#""}}"#.to_vec() }
}

/// A value of so many bytes, at a revision of one digit.
fn bytes_of(bytes: usize) -> ObjectDraft {
    ObjectDraft { head: vec![b'x'; bytes.saturating_sub(1)], tail: Vec::new() }
}

/// Queues all commits at once. The outcomes arrive in the order of the commits.
fn commit_all(db: &Db, commits: Vec<Commit>) -> Receiver<Outcome> {
    let (said, outcomes) = mpsc::channel();
    for commit in commits {
        let said = said.clone();
        db.commit(commit, move |it| said.send(it).unwrap_or_default());
    }
    outcomes
}

fn commit(db: &Db, one: Commit) -> Outcome {
    commit_all(db, vec![one]).recv().expect("the writer answers")
}

/// Revision, state and the history after `from`, so that two stores can be compared.
pub(crate) fn everything(store: &Store, from: Revision) -> (Revision, Vec<StoredObject>, Vec<String>) {
    let records = store.list("").map(|it| StoredObject::clone(it)).collect();
    let history = store
        .commits_since("", from)
        .expect("the history reaches back")
        .map(|it| format!("{it:?}"))
        .collect();
    (store.revision(), records, history)
}

/// A disk that outlives its log, with a fault at one of its writes.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<OnDisk>>);

#[derive(Default)]
struct OnDisk {
    rows: BTreeMap<Revision, LogRow>,
    compacted_revision: Revision,
    appends: usize,
    fault: Option<(usize, Fault)>,
    /// The next append reports that it began, and waits for a signal.
    gate: Option<(Sender<()>, Receiver<()>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The write failed and stored nothing.
    Lost,
    /// The write failed but was stored, as a failed sync may leave it.
    Kept,
    Full,
}

impl Disk {
    fn new(fault: Option<(usize, Fault)>) -> Self {
        let disk = Self::default();
        disk.0.lock().unwrap().compacted_revision = Store::FIRST_REVISION;
        disk.0.lock().unwrap().fault = fault;
        disk
    }

    /// The first channel reports that the writer is inside a write, where it waits for the second.
    fn gate(&self) -> (Receiver<()>, Sender<()>) {
        let ((come, came), (go, going)) = (mpsc::channel(), mpsc::channel());
        self.0.lock().unwrap().gate = Some((come, going));
        (came, go)
    }
}

impl Log for Disk {
    fn compacted_revision(&mut self) -> Result<Revision, LogError> {
        Ok(self.0.lock().unwrap().compacted_revision)
    }

    fn load(&mut self, each: OnRow<'_>) -> Result<(), LogError> {
        let rows: Vec<LogRow> = self.0.lock().unwrap().rows.values().cloned().collect();
        let damaged = |why| LogError::Damaged { path: "disk".into(), why };
        rows.into_iter().try_for_each(|it| each(it).map_err(damaged))
    }

    fn append(
        &mut self,
        batch: &[Arc<CommitEvent>],
        compaction: Option<&Compaction>,
    ) -> Result<(), LogError> {
        let gate = self.0.lock().unwrap().gate.take();
        if let Some((come, going)) = gate {
            come.send(()).unwrap();
            going.recv().unwrap();
        }
        let mut disk = self.0.lock().unwrap();
        disk.appends += 1;
        let fault = disk.fault.filter(|(at, _)| *at == disk.appends).map(|(_, fault)| fault);
        let broken = LogError::Failed { path: "disk".into(), why: "no sync".into() };
        match fault {
            Some(Fault::Full) => return Err(LogError::DiskFull),
            Some(Fault::Lost) => return Err(broken),
            Some(Fault::Kept) | None => {}
        }
        disk.rows.extend(batch.iter().map(|event| (event.revision, row(event))));
        if let Some(compaction) = compaction {
            assert!(disk.compacted_revision <= compaction.revision, "a compacted revision never decreases");
            disk.compacted_revision = compaction.revision;
            for row in &compaction.rows {
                assert!(disk.rows.remove(row).is_some(), "{row} is forgotten twice");
            }
        }
        if fault == Some(Fault::Kept) { Err(broken) } else { Ok(()) }
    }
}

fn row(event: &CommitEvent) -> LogRow {
    let record = match &event.change {
        KeyChange::Put { now, .. } => now,
        KeyChange::Delete { before, .. } => before,
    };
    LogRow {
        revision: event.revision,
        key: event.key.clone(),
        is_delete: matches!(event.change, KeyChange::Delete { .. }),
        created: record.created,
        expires_s: record.expires_s,
        index: record.index.clone(),
        value: event.latest_value().clone(),
    }
}

#[test]
fn commits_of_one_batch_see_each_other() {
    let disk = Disk::new(None);
    let db = Db::open(disk.clone(), options(WIDE)).unwrap();
    let (came, go) = disk.gate();
    let first = commit_all(&db, vec![put("a", Precondition::Absent)]);
    came.recv().unwrap();
    let outcomes = commit_all(
        &db,
        vec![
            put("a", Precondition::At(2)),
            put("a", Precondition::At(2)),
            delete("a", Precondition::At(3)),
            put("a", Precondition::At(3)),
            put("a", Precondition::Absent),
            delete("b", Precondition::Any),
        ],
    );
    go.send(()).unwrap();
    first.recv().unwrap().unwrap();
    let said: Vec<_> =
        outcomes.iter().map(|it| it.map(|it| it.revision).map_err(|it| it.to_string())).collect();
    expect![[r#"
        [
            Ok(
                3,
            ),
            Err(
                "the key was modified at revision 3: read it again and retry",
            ),
            Ok(
                4,
            ),
            Err(
                "the key does not exist",
            ),
            Ok(
                5,
            ),
            Err(
                "the key does not exist",
            ),
        ]
    "#]]
    .assert_debug_eq(&said);
    // The second batch was one write.
    assert_eq!(disk.0.lock().unwrap().appends, 2);
}

#[test]
fn a_commit_within_another_key_needs_its_revision() {
    let db = Db::open(Disk::new(None), options(WIDE)).unwrap();
    let within = |at| Commit { within: Some(("n".into(), at)), ..put("n/a", Precondition::Absent) };
    assert_eq!(commit(&db, within(2)), Err(CommitConflict::Missing.into()));
    commit(&db, put("n", Precondition::Absent)).unwrap();
    commit(&db, put("n", Precondition::At(2))).unwrap();
    assert_eq!(commit(&db, within(2)), Err(CommitConflict::Modified { at: 3 }.into()));
    // The same in one batch: a deleted key is missing for later commits.
    let outcomes = commit_all(&db, vec![delete("n", Precondition::Any), within(3)]);
    assert!(outcomes.recv().unwrap().is_ok());
    assert_eq!(outcomes.recv().unwrap().map(drop), Err(CommitConflict::Missing.into()));
    assert_eq!(db.read().get("n/a"), None);
}

#[test]
fn no_commit_is_visible_before_it_is_durable() {
    let (told, events) = mpsc::channel();
    let disk = Disk::new(None);
    let on_commit = Box::new(move |batch: &[Arc<CommitEvent>]| told.send(batch.len()).unwrap());
    let db = Db::open(disk.clone(), DbOptions { on_commit, ..options(WIDE) }).unwrap();
    let (came, go) = disk.gate();
    let outcome = commit_all(&db, vec![put("a", Precondition::Any)]);
    came.recv().unwrap();
    assert_eq!(everything(&db.read(), 1), (1, vec![], vec![]));
    assert!(events.try_recv().is_err() && outcome.try_recv().is_err());
    go.send(()).unwrap();
    outcome.recv().unwrap().unwrap();
    // An acknowledged commit can be read, and watches were woken before.
    assert_eq!(events.try_recv(), Ok(1));
    assert_eq!(db.read().get("a").unwrap().modified, 2);
}

#[test]
fn the_state_of_a_single_server_is_always_fresh() {
    let disk = Disk::new(None);
    let db = Db::open(disk.clone(), options(WIDE)).unwrap();
    let (began, go) = disk.gate();
    let outcome = commit_all(&db, vec![put("a", Precondition::Any)]);
    began.recv().unwrap();
    // Even during a write: its commit is not acknowledged yet.
    let (told, read_barrier) = mpsc::channel();
    db.read_barrier(move |it| told.send(it).unwrap());
    assert_eq!(read_barrier.try_recv(), Ok(Ok(())));
    go.send(()).unwrap();
    outcome.recv().unwrap().unwrap();
}

#[test]
fn a_full_queue_refuses_and_queued_commits_are_written() {
    let disk = Disk::new(None);
    let db = Db::open(disk.clone(), DbOptions { queue_max: 1, ..options(WIDE) }).unwrap();
    let (came, go) = disk.gate();
    let first = commit_all(&db, vec![put("a", Precondition::Any)]);
    came.recv().unwrap();
    let second = commit_all(&db, vec![put("b", Precondition::Any)]);
    assert_eq!(commit(&db, put("c", Precondition::Any)), Err(CommitError::QueueFull));
    go.send(()).unwrap();
    assert_eq!(first.recv().unwrap().unwrap().revision, 2);
    assert_eq!(second.recv().unwrap().unwrap().revision, 3);
}

#[test]
fn a_full_disk_refuses_writes_until_space_is_free() {
    let db = Db::open(Disk::new(Some((2, Fault::Full))), options(WIDE)).unwrap();
    commit(&db, put("a", Precondition::Absent)).unwrap();
    let before = everything(&db.read(), 1);
    assert_eq!(commit(&db, put("b", Precondition::Absent)), Err(CommitError::DiskFull));
    assert_eq!(everything(&db.read(), 1), before);
    // A refused commit uses no revision.
    assert_eq!(commit(&db, put("b", Precondition::Absent)).unwrap().revision, 3);
}

#[test]
fn a_failed_write_stops_the_store() {
    let (told, failure) = mpsc::channel();
    let on_failure = Box::new(move |error: &LogError| told.send(error.to_string()).unwrap());
    let db = Db::open(Disk::new(Some((1, Fault::Kept))), DbOptions { on_failure, ..options(WIDE) }).unwrap();
    let refused = Err(CommitError::Failed { why: "disk: no sync".into() });
    assert_eq!(commit(&db, put("a", Precondition::Absent)), refused);
    assert_eq!(failure.recv().unwrap(), "disk: no sync");
    assert_eq!(commit(&db, put("a", Precondition::Absent)), refused);
    // Whether it is durable is unknown, so it is not published.
    assert_eq!(everything(&db.read(), 1), (1, vec![], vec![]));
    db.close();
}

#[test]
fn closing_writes_queued_commits_and_refuses_later_ones() {
    let db = Db::open(MemoryLog, options(WIDE)).unwrap();
    let outcomes = commit_all(&db, (0..50).map(|it| put(&format!("k{it}"), Precondition::Any)).collect());
    db.close();
    assert_eq!(outcomes.iter().filter(Result::is_ok).count(), 50);
    assert_eq!(
        commit(&db, put("a", Precondition::Any)),
        Err(CommitError::Failed { why: "it was closed".into() })
    );
}

#[test]
fn a_panic_of_the_writer_ends_every_wait() {
    let on_commit = Box::new(|_: &[_]| panic!("on purpose"));
    let db = Db::open(MemoryLog, DbOptions { on_commit, ..options(WIDE) }).unwrap();
    let outcome = commit_all(&db, vec![put("a", Precondition::Any)]);
    assert!(outcome.recv().is_err());
    db.close();
    let why = "the writer thread failed: it panicked".into();
    assert_eq!(commit(&db, put("a", Precondition::Any)), Err(CommitError::Failed { why }));
}

#[test]
fn records_expire_in_order_and_an_update_renews_them() {
    let db = Db::open(MemoryLog, options(WIDE)).unwrap();
    let with = |key: &str, expires_s| {
        let write = CommitWrite::Put { index: SelectorIndex::default(), expires_s, draft: object(key) };
        commit(
            &db,
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
            },
        )
        .unwrap();
    };
    let expired =
        |now_s| db.read().expired_objects(now_s).map(|it| it.key.to_string()).collect::<Vec<_>>().join(" ");
    with("late", Some(30));
    with("soon", Some(10));
    with("never", None);
    with("renewed", Some(10));
    with("renewed", Some(20));
    with("kept", Some(10));
    with("kept", None);
    assert_eq!([9, 10, 29, 30].map(expired), ["", "soon", "soon renewed", "soon renewed late"]);
    commit(&db, delete("soon", Precondition::Any)).unwrap();
    assert_eq!(expired(30), "renewed late");
}

#[derive(Debug, Clone)]
struct Step {
    key: u8,
    is_put: bool,
    /// Queued together with the next step.
    with_next: bool,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<(u8, bool, bool)>> {
    prop::collection::vec((0..6_u8, prop::bool::weighted(0.7), any::<bool>()), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// After a crash every acknowledged commit is there with its revision; any other commit is there completely or not at all.
    #[test]
    fn a_crash_at_any_write_loses_no_acknowledged_commit(
        steps in steps(),
        fault in prop::option::of((1..30_usize, prop_oneof![Just(Fault::Lost), Just(Fault::Kept), Just(Fault::Full)])),
        events_max in 0..30_usize,
        bytes_max in prop_oneof![Just(usize::MAX), 400..4000_usize],
    ) {
        let window = HistoryWindow { events_max, bytes_max };
        let disk = Disk::new(fault);
        let mut db = Db::open(disk.clone(), options(window)).unwrap();
        // The model has every commit.
        let mut model = Store::new(usize::MAX);
        let mut crashes = 0;
        let steps = steps.into_iter().map(|(key, is_put, with_next)| Step { key, is_put, with_next });
        let mut batch = Vec::new();
        for step in steps {
            batch.push(step.clone());
            if step.with_next {
                continue;
            }
            let commits = batch.iter().map(|it| {
                let key = format!("k{}/x", it.key);
                if it.is_put { put(&key, Precondition::Any) } else { delete(&key, Precondition::Any) }
            });
            let outcomes = commit_all(&db, commits.collect());
            let told: Vec<Outcome> = outcomes.iter().collect();
            prop_assert_eq!(told.len(), batch.len());
            // A crash may come between commits that were queued together.
            for (step, told) in std::mem::take(&mut batch).iter().zip(told) {
                match told {
                    Ok(event) => replay(&mut model, &event),
                    Err(CommitError::Conflict(it)) => {
                        prop_assert_eq!(it, CommitConflict::Missing);
                        prop_assert!(!step.is_put);
                    }
                    Err(CommitError::DiskFull) => prop_assert!(matches!(fault, Some((_, Fault::Full)))),
                    Err(other) => {
                        prop_assert!(matches!(other, CommitError::Failed { .. }), "{}", other);
                        crashes += 1;
                    }
                }
            }
            if 0 < crashes {
                db.close();
                let reopened = Db::open(disk.clone(), options(WIDE)).unwrap();
                // No acknowledged commit is missing, and unacknowledged ones come after all of them.
                for event in reopened.read().commits_since("", model.revision()).unwrap() {
                    prop_assert!(matches!(fault, Some((_, Fault::Kept))));
                    replay(&mut model, event);
                }
                reopened.close();
                db = Db::open(disk.clone(), options(window)).unwrap();
                crashes = 0;
            }
            prop_assert_eq!(everything(&db.read(), model.revision()), everything(&model, model.revision()));
        }
        db.close();
        drop(db);
        let reopened = Db::open(disk, options(WIDE)).unwrap();
        let reopened = reopened.read();
        prop_assert_eq!(everything(&reopened, reopened.compacted_revision()), everything(&model, reopened.compacted_revision()));
        prop_assert_eq!(reopened.commits_since("k1/", reopened.compacted_revision()).unwrap().count(), model.commits_since("k1/", reopened.compacted_revision()).unwrap().count());
    }
}

/// Applies the same commit to another store.
pub(crate) fn replay(model: &mut Store, event: &Arc<CommitEvent>) {
    assert_eq!(event.previous_object(), model.get(&event.key), "each commit follows the one before");
    model.apply_commit(event.clone());
}

/// A disk with room for so many commits, and a reserve for so many more.
#[derive(Clone)]
struct Small(Arc<Mutex<(usize, usize)>>);

impl Log for Small {
    fn compacted_revision(&mut self) -> Result<Revision, LogError> {
        Ok(Store::FIRST_REVISION)
    }

    fn load(&mut self, _: OnRow<'_>) -> Result<(), LogError> {
        Ok(())
    }

    fn append(&mut self, batch: &[Arc<CommitEvent>], _: Option<&Compaction>) -> Result<(), LogError> {
        let mut room = self.0.lock().unwrap();
        room.0 = room.0.checked_sub(batch.len()).ok_or(LogError::DiskFull)?;
        Ok(())
    }

    fn ensure_write_space(&mut self) -> bool {
        self.0.lock().unwrap().1 == 4
    }

    fn release_reserve(&mut self) -> bool {
        let mut room = self.0.lock().unwrap();
        let has_more = 0 < room.1;
        if has_more {
            *room = (room.0 + 1, room.1 - 1);
        }
        has_more
    }
}

#[test]
fn on_a_full_disk_deletes_work_and_only_they_use_the_reserve() {
    let disk = Small(Arc::new(Mutex::new((3, 4))));
    let db = Db::open(disk.clone(), options(WIDE)).unwrap();
    for key in ["k/a", "k/b", "k/c"] {
        commit(&db, put(key, Precondition::Absent)).unwrap();
    }
    assert_eq!(commit(&db, put("k/d", Precondition::Absent)).unwrap_err(), CommitError::DiskFull);
    let marked = Commit { class: WriteClass::Deletion, ..put("k/b", Precondition::Any) };
    let outcomes =
        commit_all(&db, vec![put("k/d", Precondition::Absent), delete("k/a", Precondition::Any), marked]);
    let said: Vec<_> = outcomes.iter().take(3).map(|it| it.map(|it| it.revision)).collect();
    // In one batch or in several.
    assert_eq!(said, [Err(CommitError::DiskFull), Ok(5), Ok(6)]);
    assert_eq!(db.read().get("k/b").unwrap().index.label("key"), Some("k/b"), "labels survive a retry");
    assert_eq!(
        commit(&db, put("k/d", Precondition::Absent)).unwrap_err(),
        CommitError::DiskFull,
        "not in the reserve"
    );
    commit(&db, delete("k/b", Precondition::Any)).unwrap();
    commit(&db, delete("k/c", Precondition::Any)).unwrap();
    assert_eq!(*disk.0.lock().unwrap(), (0, 0));
    // When there is room again, writes succeed.
    *disk.0.lock().unwrap() = (10, 4);
    commit(&db, put("k/d", Precondition::Absent)).unwrap();
}

#[test]
fn a_store_at_its_limit_accepts_writes_that_do_not_make_it_larger() {
    let of = |key: &str, bytes: usize, class: WriteClass| {
        let write =
            CommitWrite::Put { index: SelectorIndex::default(), expires_s: None, draft: bytes_of(bytes) };
        Commit {
            key: key.into(),
            expect: Precondition::Any,
            within: None,
            allocation: None,
            linked: Vec::new(),
            fence: None,
            begins_term: false,
            class,
            write,
        }
    };
    let limits = StoreLimits::with_total(1000);
    let db = Db::open(MemoryLog, DbOptions { limits, ..options(WIDE) }).unwrap();
    let over = |it: Outcome| match it {
        Err(CommitError::SizeLimitExceeded(it)) => it.to_string(),
        other => panic!("{other:?}"),
    };
    commit(&db, of("maps/a/1", 400, WriteClass::Ordinary)).unwrap();
    // One namespace may use a half, and all together nine tenths.
    expect!["exceeded store limit of namespace a: 408 of 500 bytes are used: delete objects first"]
        .assert_eq(&over(commit(&db, of("maps/a/2", 85, WriteClass::Ordinary))));
    commit(&db, of("maps/b/1", 450, WriteClass::Ordinary)).unwrap();
    expect!["exceeded store limit: 866 of 900 bytes are used: delete objects first"]
        .assert_eq(&over(commit(&db, of("maps/c/1", 40, WriteClass::Ordinary))));
    // The last tenth is for the cluster itself.
    commit(&db, of("nodes//n", 100, WriteClass::System)).unwrap();
    over(commit(&db, of("nodes//m", 100, WriteClass::System)));
    // Writes that do not grow a record, deletes and deletion marks are never refused.
    commit(&db, of("maps/b/1", 450, WriteClass::Ordinary)).unwrap();
    commit(&db, of("maps/b/1", 460, WriteClass::Deletion)).unwrap();
    over(commit(&db, of("maps/b/1", 461, WriteClass::Ordinary)));
    commit(&db, of("maps/b/1", 10, WriteClass::Ordinary)).unwrap();
    commit(&db, delete("maps/a/1", Precondition::Any)).unwrap();
    // Two commits of one batch count together.
    let both = commit_all(
        &db,
        vec![of("maps/d/1", 400, WriteClass::Ordinary), of("maps/d/2", 100, WriteClass::Ordinary)],
    );
    let both: Vec<bool> = both.iter().take(2).map(|it| it.is_ok()).collect();
    assert_eq!(both, [true, false]);
}

proptest! {
    #[test]
    fn usage_equals_a_recount(
        steps in prop::collection::vec((0..4_u8, 0..3_u8, 0..50_usize, prop::bool::weighted(0.7)), 1..60),
    ) {
        let db = Db::open(MemoryLog, DbOptions { limits: StoreLimits::with_total(600), ..options(WIDE) }).unwrap();
        let mut commits = Vec::new();
        for (name, namespace, bytes, is_put) in steps {
            let key = if namespace == 0 { format!("nodes//{name}") } else { format!("maps/{namespace}/{name}") };
            commits.push(if is_put {
                let write = CommitWrite::Put { index: SelectorIndex::default(), expires_s: None, draft: bytes_of(bytes) };
                Commit { key, expect: Precondition::Any, within: None, allocation: None, linked: Vec::new(), fence: None, begins_term: false, class: WriteClass::Ordinary, write }
            } else {
                delete(&key, Precondition::Any)
            });
        }
        let count = commits.len();
        commit_all(&db, commits).iter().take(count).for_each(drop);
        let store = db.read();
        let mut recounted = crate::StoreUsage::default();
        store.list("").for_each(|it| recounted.add_object(it));
        prop_assert_eq!(store.usage(), &recounted);
        prop_assert!(store.usage().total_bytes() <= 540);
    }
}

#[test]
fn linked_updates_are_made_with_their_commit_or_not_at_all() {
    let db = Db::open(MemoryLog, options(WIDE)).unwrap();
    let update = |key: &str, at: Revision, value: &str| LinkedUpdate {
        key: key.into(),
        at,
        index: SelectorIndex::new([("key", value)], []),
        draft: object(value),
    };
    let quotas: Vec<_> =
        ["q1", "q2"].iter().map(|it| commit(&db, put(it, Precondition::Absent)).unwrap().revision).collect();
    let both = |value: &str, at: [Revision; 2]| vec![update("q1", at[0], value), update("q2", at[1], value)];
    let create = |key: &str, linked: Vec<LinkedUpdate>| Commit { linked, ..put(key, Precondition::Absent) };
    let modified = || ["a", "b", "q1", "q2"].map(|it| db.read().get(it).map(|it| it.modified));

    let done = commit(&db, create("a", both("1", [quotas[0], quotas[1]]))).unwrap();
    assert_eq!(&*done.key, "a", "the caller gets the event of its own write");
    let at = done.revision;
    let expected = [Some(at), None, Some(at + 1), Some(at + 2)];
    assert_eq!(modified(), expected);
    assert_eq!(db.read().get("q2").unwrap().index.label("key"), Some("1"));
    // One of the quotas, the object itself, or an object of the same batch refuses all.
    let refused = [
        commit(&db, create("b", both("2", [at + 1, quotas[1]]))),
        commit(&db, create("a", both("2", [at + 1, at + 2]))),
    ];
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    assert_eq!(modified(), expected, "nothing is changed");
    let outcomes = commit_all(
        &db,
        vec![create("b", both("2", [at + 1, at + 2])), create("c", both("3", [at + 1, at + 2]))],
    );
    assert!(outcomes.recv().unwrap().is_ok() && outcomes.recv().unwrap().is_err());
    assert_eq!(modified(), [Some(at), Some(at + 3), Some(at + 4), Some(at + 5)]);
    assert_eq!(db.read().get("c"), None);
}
