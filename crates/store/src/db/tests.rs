use std::collections::BTreeMap;
use std::sync::mpsc;
use std::sync::mpsc::{Receiver, Sender};

use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::Volatile;
use crate::log::Each;

type Outcome = Result<Arc<Event>, CommitError>;

const WIDE: Window = Window { events_max: usize::MAX, bytes_max: usize::MAX };

fn options(window: Window) -> Options {
    Options {
        window,
        limits: Limits::NONE,
        queue_max: 100,
        on_commit: Box::new(|_| ()),
        on_failure: Box::new(|_| ()),
    }
}

fn put(key: &str, expect: Expect) -> Commit {
    let name = key.to_owned();
    let make = Make::new(move |revision| Bytes::from(format!("{name}@{revision}")));
    let index = Index::new([("key", key)], []);
    Commit {
        key: key.into(),
        expect,
        within: None,
        class: Class::default(),
        write: Write::Put { index, expires_s: None, make },
    }
}

fn delete(key: &str, expect: Expect) -> Commit {
    let make = Make::new(|revision| Bytes::from(format!("gone@{revision}")));
    Commit { key: key.into(), expect, within: None, class: Class::default(), write: Write::Delete { make } }
}

/// Hands the commits over at once, and gives their outcomes in the order in which they came.
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

/// State and history, so that two stores can be compared. `from` is where the history is looked at.
pub(crate) fn everything(store: &Store, from: Revision) -> (Revision, Vec<Record>, Vec<String>) {
    let records = store.list("").map(|it| Record::clone(it)).collect();
    let history = store.since("", from).expect("it reaches back").map(|it| format!("{it:?}")).collect();
    (store.revision(), records, history)
}

/// A disk that outlives the log on it, with a fault at one of its writes.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<OnDisk>>);

#[derive(Default)]
struct OnDisk {
    rows: BTreeMap<Revision, Row>,
    floor: Revision,
    appends: usize,
    fault: Option<(usize, Fault)>,
    /// The next append says that it has come, and waits until it is let go.
    gate: Option<(Sender<()>, Receiver<()>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The write failed, and nothing of it is there afterwards.
    Lost,
    /// The write failed, and yet it is there afterwards: so it is with a sync that fails.
    Kept,
    Full,
}

impl Disk {
    fn new(fault: Option<(usize, Fault)>) -> Self {
        let disk = Self::default();
        disk.0.lock().unwrap().floor = Store::FIRST;
        disk.0.lock().unwrap().fault = fault;
        disk
    }

    /// Comes back once the writer is in the middle of a write, where it stays until told.
    fn gate(&self) -> (Receiver<()>, Sender<()>) {
        let ((come, came), (go, going)) = (mpsc::channel(), mpsc::channel());
        self.0.lock().unwrap().gate = Some((come, going));
        (came, go)
    }
}

impl Log for Disk {
    fn floor(&mut self) -> Result<Revision, LogError> {
        Ok(self.0.lock().unwrap().floor)
    }

    fn load(&mut self, each: Each<'_>) -> Result<(), LogError> {
        let rows: Vec<Row> = self.0.lock().unwrap().rows.values().cloned().collect();
        let damaged = |why| LogError::Damaged { path: "disk".into(), why };
        rows.into_iter().try_for_each(|it| each(it).map_err(damaged))
    }

    fn append(&mut self, batch: &[Arc<Event>], forget: Option<&Forget>) -> Result<(), LogError> {
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
            Some(Fault::Full) => return Err(LogError::Full),
            Some(Fault::Lost) => return Err(broken),
            Some(Fault::Kept) | None => {}
        }
        disk.rows.extend(batch.iter().map(|event| (event.revision, row(event))));
        if let Some(forget) = forget {
            assert!(disk.floor <= forget.floor, "a floor never goes back");
            disk.floor = forget.floor;
            for row in &forget.rows {
                assert!(disk.rows.remove(row).is_some(), "{row} is forgotten twice");
            }
        }
        if fault == Some(Fault::Kept) { Err(broken) } else { Ok(()) }
    }
}

fn row(event: &Event) -> Row {
    let record = match &event.change {
        Change::Put { now, .. } => now,
        Change::Delete { before, .. } => before,
    };
    Row {
        revision: event.revision,
        key: event.key.clone(),
        is_gone: matches!(event.change, Change::Delete { .. }),
        created: record.created,
        expires_s: record.expires_s,
        index: record.index.clone(),
        value: event.value().clone(),
    }
}

#[test]
fn commits_of_one_batch_see_each_other() {
    let disk = Disk::new(None);
    let db = Db::open(disk.clone(), options(WIDE)).unwrap();
    let (came, go) = disk.gate();
    let first = commit_all(&db, vec![put("a", Expect::Absent)]);
    came.recv().unwrap();
    let outcomes = commit_all(
        &db,
        vec![
            put("a", Expect::At(2)),
            put("a", Expect::At(2)),
            delete("a", Expect::At(3)),
            put("a", Expect::At(3)),
            put("a", Expect::Absent),
            delete("b", Expect::Any),
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
                "the key has moved on to revision 3: read it again and retry",
            ),
            Ok(
                4,
            ),
            Err(
                "the key does not exist: create it, or forget it",
            ),
            Ok(
                5,
            ),
            Err(
                "the key does not exist: create it, or forget it",
            ),
        ]
    "#]]
    .assert_debug_eq(&said);
    // The second batch was one write.
    assert_eq!(disk.0.lock().unwrap().appends, 2);
}

#[test]
fn a_commit_within_another_record_needs_it_as_it_was() {
    let db = Db::open(Disk::new(None), options(WIDE)).unwrap();
    let within = |at| Commit { within: Some(("n".into(), at)), ..put("n/a", Expect::Absent) };
    assert_eq!(commit(&db, within(2)), Err(Conflict::Missing.into()));
    commit(&db, put("n", Expect::Absent)).unwrap();
    commit(&db, put("n", Expect::At(2))).unwrap();
    assert_eq!(commit(&db, within(2)), Err(Conflict::Moved { at: 3 }.into()));
    // The same in one batch: what goes first is gone for those behind it.
    let outcomes = commit_all(&db, vec![delete("n", Expect::Any), within(3)]);
    assert!(outcomes.recv().unwrap().is_ok());
    assert_eq!(outcomes.recv().unwrap().map(drop), Err(Conflict::Missing.into()));
    assert_eq!(db.read().get("n/a"), None);
}

#[test]
fn nothing_is_seen_before_it_is_durable() {
    let (told, events) = mpsc::channel();
    let disk = Disk::new(None);
    let on_commit = Box::new(move |batch: &[Arc<Event>]| told.send(batch.len()).unwrap());
    let db = Db::open(disk.clone(), Options { on_commit, ..options(WIDE) }).unwrap();
    let (came, go) = disk.gate();
    let outcome = commit_all(&db, vec![put("a", Expect::Any)]);
    came.recv().unwrap();
    assert_eq!(everything(&db.read(), 1), (1, vec![], vec![]));
    assert!(events.try_recv().is_err() && outcome.try_recv().is_err());
    go.send(()).unwrap();
    outcome.recv().unwrap().unwrap();
    // Whoever is told has it, and watchers were woken before.
    assert_eq!(events.try_recv(), Ok(1));
    assert_eq!(db.read().get("a").unwrap().modified, 2);
}

#[test]
fn a_full_queue_refuses_and_the_rest_is_written() {
    let disk = Disk::new(None);
    let db = Db::open(disk.clone(), Options { queue_max: 1, ..options(WIDE) }).unwrap();
    let (came, go) = disk.gate();
    let first = commit_all(&db, vec![put("a", Expect::Any)]);
    came.recv().unwrap();
    let second = commit_all(&db, vec![put("b", Expect::Any)]);
    assert_eq!(commit(&db, put("c", Expect::Any)), Err(CommitError::Crowded));
    go.send(()).unwrap();
    assert_eq!(first.recv().unwrap().unwrap().revision, 2);
    assert_eq!(second.recv().unwrap().unwrap().revision, 3);
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let db = Db::open(Disk::new(Some((2, Fault::Full))), options(WIDE)).unwrap();
    commit(&db, put("a", Expect::Absent)).unwrap();
    let before = everything(&db.read(), 1);
    assert_eq!(commit(&db, put("b", Expect::Absent)), Err(CommitError::Full));
    assert_eq!(everything(&db.read(), 1), before);
    // No revision is lost to what was refused.
    assert_eq!(commit(&db, put("b", Expect::Absent)).unwrap().revision, 3);
}

#[test]
fn a_failed_write_ends_the_store() {
    let (told, failure) = mpsc::channel();
    let on_failure = Box::new(move |error: &LogError| told.send(error.to_string()).unwrap());
    let db = Db::open(Disk::new(Some((1, Fault::Kept))), Options { on_failure, ..options(WIDE) }).unwrap();
    let refused = Err(CommitError::Failed { why: "disk: no sync".into() });
    assert_eq!(commit(&db, put("a", Expect::Absent)), refused);
    assert_eq!(failure.recv().unwrap(), "disk: no sync");
    assert_eq!(commit(&db, put("a", Expect::Absent)), refused);
    // It may be durable or not: so nobody sees it.
    assert_eq!(everything(&db.read(), 1), (1, vec![], vec![]));
    db.close();
}

#[test]
fn closing_writes_what_waits_and_refuses_what_comes() {
    let db = Db::open(Volatile, options(WIDE)).unwrap();
    let outcomes = commit_all(&db, (0..50).map(|it| put(&format!("k{it}"), Expect::Any)).collect());
    db.close();
    assert_eq!(outcomes.iter().filter(Result::is_ok).count(), 50);
    assert_eq!(commit(&db, put("a", Expect::Any)), Err(CommitError::Failed { why: "it was closed".into() }));
}

#[test]
fn a_panic_of_the_writer_leaves_nobody_waiting() {
    let db = Db::open(Volatile, options(WIDE)).unwrap();
    let make = Make::new(|_| panic!("on purpose"));
    let write = Write::Delete { make };
    commit(&db, put("a", Expect::Any)).unwrap();
    let outcome = commit_all(
        &db,
        vec![Commit { key: "a".into(), expect: Expect::Any, within: None, class: Class::default(), write }],
    );
    assert!(outcome.recv().is_err());
    db.close();
    let why = "the thread that writes: it panicked".into();
    assert_eq!(commit(&db, put("a", Expect::Any)), Err(CommitError::Failed { why }));
}

#[test]
fn records_expire_in_order_and_live_on_when_written_anew() {
    let db = Db::open(Volatile, options(WIDE)).unwrap();
    let with = |key: &str, expires_s| {
        let make = Make::new(|_| Bytes::new());
        let write = Write::Put { index: Index::default(), expires_s, make };
        commit(
            &db,
            Commit { key: key.into(), expect: Expect::Any, within: None, class: Class::default(), write },
        )
        .unwrap();
    };
    let expired = |now_s| db.read().expired(now_s).map(|it| it.key.to_string()).collect::<Vec<_>>().join(" ");
    with("late", Some(30));
    with("soon", Some(10));
    with("never", None);
    with("renewed", Some(10));
    with("renewed", Some(20));
    with("kept", Some(10));
    with("kept", None);
    assert_eq!([9, 10, 29, 30].map(expired), ["", "soon", "soon renewed", "soon renewed late"]);
    commit(&db, delete("soon", Expect::Any)).unwrap();
    assert_eq!(expired(30), "renewed late");
}

#[derive(Debug, Clone)]
struct Step {
    key: u8,
    is_put: bool,
    /// Handed over together with the next.
    with_next: bool,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<(u8, bool, bool)>> {
    prop::collection::vec((0..6_u8, prop::bool::weighted(0.7), any::<bool>()), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// What was told is there after a crash, with its revision; what was not is there whole or not at all.
    #[test]
    fn a_crash_at_any_write_loses_nothing_that_was_told(
        steps in steps(),
        fault in prop::option::of((1..30_usize, prop_oneof![Just(Fault::Lost), Just(Fault::Kept), Just(Fault::Full)])),
        events_max in 0..30_usize,
        bytes_max in prop_oneof![Just(usize::MAX), 400..4000_usize],
    ) {
        let window = Window { events_max, bytes_max };
        let disk = Disk::new(fault);
        let mut db = Db::open(disk.clone(), options(window)).unwrap();
        // The model knows every commit since the beginning.
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
                if it.is_put { put(&key, Expect::Any) } else { delete(&key, Expect::Any) }
            });
            let outcomes = commit_all(&db, commits.collect());
            let told: Vec<Outcome> = outcomes.iter().collect();
            prop_assert_eq!(told.len(), batch.len());
            // A crash may come in the middle of what was handed over together.
            for (step, told) in std::mem::take(&mut batch).iter().zip(told) {
                match told {
                    Ok(event) => replay(&mut model, &event),
                    Err(CommitError::Conflict(it)) => {
                        prop_assert_eq!(it, Conflict::Missing);
                        prop_assert!(!step.is_put);
                    }
                    Err(CommitError::Full) => prop_assert!(matches!(fault, Some((_, Fault::Full)))),
                    Err(other) => {
                        prop_assert!(matches!(other, CommitError::Failed { .. }), "{}", other);
                        crashes += 1;
                    }
                }
            }
            if 0 < crashes {
                db.close();
                let reopened = Db::open(disk.clone(), options(WIDE)).unwrap();
                // Nothing is missing, and what was not told came after all that was.
                for event in reopened.read().since("", model.revision()).unwrap() {
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
        prop_assert_eq!(everything(&reopened, reopened.floor()), everything(&model, reopened.floor()));
        prop_assert_eq!(reopened.since("k1/", reopened.floor()).unwrap().count(), model.since("k1/", reopened.floor()).unwrap().count());
    }
}

/// The same commit once more, in another store.
pub(crate) fn replay(model: &mut Store, event: &Arc<Event>) {
    assert_eq!(event.before(), model.get(&event.key), "each commit follows on the one before");
    model.apply(event.clone());
}

/// A disk with room for so many commits, and with room set aside for so many more.
#[derive(Clone)]
struct Small(Arc<Mutex<(usize, usize)>>);

impl Log for Small {
    fn floor(&mut self) -> Result<Revision, LogError> {
        Ok(Store::FIRST)
    }

    fn load(&mut self, _: Each<'_>) -> Result<(), LogError> {
        Ok(())
    }

    fn append(&mut self, batch: &[Arc<Event>], _: Option<&Forget>) -> Result<(), LogError> {
        let mut room = self.0.lock().unwrap();
        room.0 = room.0.checked_sub(batch.len()).ok_or(LogError::Full)?;
        Ok(())
    }

    fn has_reserve(&mut self) -> bool {
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
fn on_a_full_disk_deletes_go_on_and_nothing_else_uses_their_room() {
    let disk = Small(Arc::new(Mutex::new((3, 4))));
    let db = Db::open(disk.clone(), options(WIDE)).unwrap();
    for key in ["k/a", "k/b", "k/c"] {
        commit(&db, put(key, Expect::Absent)).unwrap();
    }
    assert_eq!(commit(&db, put("k/d", Expect::Absent)).unwrap_err(), CommitError::Full);
    let marked = Commit { class: Class::Removal, ..put("k/b", Expect::Any) };
    let outcomes = commit_all(&db, vec![put("k/d", Expect::Absent), delete("k/a", Expect::Any), marked]);
    let said: Vec<_> = outcomes.iter().take(3).map(|it| it.map(|it| it.revision)).collect();
    // They may have come in one batch or in several.
    assert_eq!(said, [Err(CommitError::Full), Ok(5), Ok(6)]);
    assert_eq!(db.read().get("k/b").unwrap().index.label("key"), Some("k/b"), "labels are kept on the way");
    assert_eq!(
        commit(&db, put("k/d", Expect::Absent)).unwrap_err(),
        CommitError::Full,
        "not in the room for deletes"
    );
    commit(&db, delete("k/b", Expect::Any)).unwrap();
    commit(&db, delete("k/c", Expect::Any)).unwrap();
    assert_eq!(*disk.0.lock().unwrap(), (0, 0));
    // When there is room again, everything goes on.
    *disk.0.lock().unwrap() = (10, 4);
    commit(&db, put("k/d", Expect::Absent)).unwrap();
}

#[test]
fn a_store_at_its_limit_takes_what_does_not_make_it_larger() {
    let of = |key: &str, bytes: usize, class: Class| {
        let make = Make::new(move |_| Bytes::from(vec![b'x'; bytes]));
        let write = Write::Put { index: Index::default(), expires_s: None, make };
        Commit { key: key.into(), expect: Expect::Any, within: None, class, write }
    };
    let limits = Limits::of(1000);
    let db = Db::open(Volatile, Options { limits, ..options(WIDE) }).unwrap();
    let over = |it: Outcome| match it {
        Err(CommitError::OverLimit(it)) => it.to_string(),
        other => panic!("{other:?}"),
    };
    commit(&db, of("maps/a/1", 400, Class::Ordinary)).unwrap();
    // One namespace has half at most, and all together have nine tenths.
    expect!["exceeded store limit of namespace a: 408 of 500 bytes are used: delete something first"]
        .assert_eq(&over(commit(&db, of("maps/a/2", 85, Class::Ordinary))));
    commit(&db, of("maps/b/1", 450, Class::Ordinary)).unwrap();
    expect!["exceeded store limit: 866 of 900 bytes are used: delete something first"]
        .assert_eq(&over(commit(&db, of("maps/c/1", 40, Class::Ordinary))));
    // The last tenth is for what keeps the cluster running.
    commit(&db, of("nodes//n", 100, Class::System)).unwrap();
    over(commit(&db, of("nodes//m", 100, Class::System)));
    // What stays as large, becomes smaller or goes is never refused, nor is a mark that something goes.
    commit(&db, of("maps/b/1", 450, Class::Ordinary)).unwrap();
    commit(&db, of("maps/b/1", 460, Class::Removal)).unwrap();
    over(commit(&db, of("maps/b/1", 461, Class::Ordinary)));
    commit(&db, of("maps/b/1", 10, Class::Ordinary)).unwrap();
    commit(&db, delete("maps/a/1", Expect::Any)).unwrap();
    // Two in one batch see each other.
    let both =
        commit_all(&db, vec![of("maps/d/1", 400, Class::Ordinary), of("maps/d/2", 100, Class::Ordinary)]);
    let both: Vec<bool> = both.iter().take(2).map(|it| it.is_ok()).collect();
    assert_eq!(both, [true, false]);
}

proptest! {
    #[test]
    fn what_is_used_is_what_a_recount_finds(
        steps in prop::collection::vec((0..4_u8, 0..3_u8, 0..50_usize, prop::bool::weighted(0.7)), 1..60),
    ) {
        let db = Db::open(Volatile, Options { limits: Limits::of(600), ..options(WIDE) }).unwrap();
        let mut commits = Vec::new();
        for (name, namespace, bytes, is_put) in steps {
            let key = if namespace == 0 { format!("nodes//{name}") } else { format!("maps/{namespace}/{name}") };
            commits.push(if is_put {
                let make = Make::new(move |_| Bytes::from(vec![b'x'; bytes]));
                let write = Write::Put { index: Index::default(), expires_s: None, make };
                Commit { key, expect: Expect::Any, within: None, class: Class::Ordinary, write }
            } else {
                delete(&key, Expect::Any)
            });
        }
        let count = commits.len();
        commit_all(&db, commits).iter().take(count).for_each(drop);
        let store = db.read();
        let mut recounted = crate::Usage::default();
        store.list("").for_each(|it| recounted.add(it));
        prop_assert_eq!(store.usage(), &recounted);
        prop_assert!(store.usage().bytes() <= 540);
    }
}
