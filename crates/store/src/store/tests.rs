use std::fmt::Write as _;

use expect_test::{Expect as Golden, expect};
use proptest::prelude::*;

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::PublishedStore;

/// An object named `name`.
fn object(name: &str) -> ObjectDraft {
    ObjectDraft {
        head: format!(r#"{{"name":"{name}","metadata":{{"resourceVersion":""#).into_bytes(),
        tail: br#""}}"#.to_vec(),
    }
}

/// The name and version of an object.
fn text(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let parts: Vec<_> = text.split('"').collect();
    match parts[..] {
        [_, "name", _, name, _, "metadata", _, "resourceVersion", _, version, _] => {
            format!("{name}@{version}")
        }
        _ => panic!("{text}"),
    }
}

/// Revision, state and history of a store as text.
fn show(store: &Store) -> String {
    let mut out = format!("at {}, history after {}\n", store.revision(), store.compacted_revision);
    for it in store.list("") {
        writeln!(out, "  {} = {} ({}..{})", it.key, text(&it.value), it.created, it.modified).unwrap();
    }
    for event in store.commits_since("", store.compacted_revision).unwrap() {
        out.push_str(&show_event(event));
    }
    out
}

fn show_event(event: &CommitEvent) -> String {
    match &event.change {
        KeyChange::Put { now, before: None } => {
            format!("  {} put {} = {}\n", event.revision, event.key, text(&now.value))
        }
        KeyChange::Put { now, before: Some(before) } => format!(
            "  {} put {} = {}, was {}\n",
            event.revision,
            event.key,
            text(&now.value),
            text(&before.value)
        ),
        KeyChange::Delete { before, last } => {
            format!(
                "  {} delete {} = {}, was {}\n",
                event.revision,
                event.key,
                text(last),
                text(&before.value)
            )
        }
    }
}

fn check(store: &Store, golden: &Golden) {
    golden.assert_eq(&show(store));
}

#[test]
fn each_commit_takes_the_next_revision() {
    let mut store = Store::new(100);
    store.put("pods/a/x", Precondition::Absent, &object("x")).unwrap();
    store.put("nodes//n1", Precondition::Any, &object("n1")).unwrap();
    store.put("pods/a/x", Precondition::At(2), &object("x")).unwrap();
    let event = store.delete("nodes//n1", Precondition::At(3)).unwrap();
    store.put("pods/b/y", Precondition::Any, &object("y")).unwrap();
    assert_eq!(show_event(&event), "  5 delete nodes//n1 = n1@5, was n1@3\n");
    check(
        &store,
        &expect![[r#"
            at 6, history after 1
              pods/a/x = x@4 (2..4)
              pods/b/y = y@6 (6..6)
              2 put pods/a/x = x@2
              3 put nodes//n1 = n1@3
              4 put pods/a/x = x@4, was x@2
              5 delete nodes//n1 = n1@5, was n1@3
              6 put pods/b/y = y@6
        "#]],
    );
}

#[test]
fn a_failed_precondition_changes_nothing() {
    let mut store = Store::new(100);
    store.put("a", Precondition::Absent, &object("a")).unwrap();
    store.put("a", Precondition::Any, &object("a")).unwrap();
    let before = show(&store);

    let never = &object("never");
    let refused = [
        store.put("a", Precondition::Absent, never).unwrap_err(),
        store.put("a", Precondition::At(2), never).unwrap_err(),
        store.put("b", Precondition::At(2), never).unwrap_err(),
        store.delete("a", Precondition::At(2)).unwrap_err(),
        store.delete("a", Precondition::Absent).unwrap_err(),
        store.delete("b", Precondition::Any).unwrap_err(),
    ];
    let said: Vec<_> = refused.iter().map(ToString::to_string).collect();
    expect![[r#"
        the key exists, at revision 3
        the key was modified at revision 3: read it again and retry
        the key does not exist
        the key was modified at revision 3: read it again and retry
        the key exists, at revision 3
        the key does not exist"#]]
    .assert_eq(&said.join("\n"));
    assert_eq!(show(&store), before);
}

#[test]
fn a_list_is_ordered_and_keeps_to_its_prefix() {
    let mut store = Store::new(100);
    for key in ["pods/b/1", "pods/a/2", "pods/ab/3", "podsx/a/4", "nodes//n1", "pods/a/1"] {
        store.put(key, Precondition::Absent, &object("v")).unwrap();
    }
    let keys = |prefix| store.list(prefix).map(|it| &*it.key).collect::<Vec<_>>();
    assert_eq!(keys("pods/a/"), ["pods/a/1", "pods/a/2"]);
    assert_eq!(keys("pods/"), ["pods/a/1", "pods/a/2", "pods/ab/3", "pods/b/1"]);
    assert_eq!(keys("secrets/"), [""; 0]);
}

#[test]
fn commits_outside_the_window_are_compacted() {
    let mut store = Store::new(3);
    for key in ["a", "b", "c", "d", "e"] {
        store.put(key, Precondition::Absent, &object(key)).unwrap();
    }
    check(
        &store,
        &expect![[r#"
            at 6, history after 3
              a = a@2 (2..2)
              b = b@3 (3..3)
              c = c@4 (4..4)
              d = d@5 (5..5)
              e = e@6 (6..6)
              4 put c = c@4
              5 put d = d@5
              6 put e = e@6
        "#]],
    );
    assert_eq!(store.commits_since("", 2).err(), Some(CompactedError { compacted_revision: 3 }));

    store.compact(5);
    store.compact(4);
    assert_eq!(store.commits_since("", 4).err(), Some(CompactedError { compacted_revision: 5 }));
    assert_eq!(store.commits_since("", 5).unwrap().count(), 1);

    // A compaction to a future revision must not hide the commits still to come.
    store.compact(100);
    store.put("f", Precondition::Absent, &object("f")).unwrap();
    check(
        &store,
        &expect![[r#"
            at 7, history after 6
              a = a@2 (2..2)
              b = b@3 (3..3)
              c = c@4 (4..4)
              d = d@5 (5..5)
              e = e@6 (6..6)
              f = f@7 (7..7)
              7 put f = f@7
        "#]],
    );
    assert_eq!(store.commits_since("", 100).unwrap().count(), 0);
}

#[test]
fn revisions_may_have_gaps() {
    let mut store = Store::new(100);
    for (key, at) in [("a", 10), ("b", 20), ("a", 30), ("c", 128)] {
        store.skip_to_revision(at - 1);
        store.put(key, Precondition::Any, &object(key)).unwrap();
    }
    store.skip_to_revision(200);
    let since = |store: &Store, after| {
        store
            .commits_since("", after)
            .map(|it| it.map(|it| it.revision).collect::<Vec<_>>())
            .map_err(|it| it.compacted_revision)
    };
    assert_eq!(since(&store, 15), Ok(vec![20, 30, 128]));
    assert_eq!(since(&store, 128), Ok(vec![]));
    assert_eq!([0, 1, 3, 4, 9].map(|it| store.max_compaction_revision(it)), [128, 30, 10, 1, 1]);
    // Between two commits: the one after it stays, and a watch may start where the last compacted commit was.
    store.compact(25);
    assert_eq!(store.compacted_revision(), 20);
    assert_eq!([19, 20, 25].map(|it| since(&store, it)), [Err(20), Ok(vec![30, 128]), Ok(vec![30, 128])]);
    check(
        &store,
        &expect![[r#"
            at 200, history after 20
              a = a@30 (10..30)
              b = b@20 (20..20)
              c = c@128 (128..128)
              30 put a = a@30, was a@10
              128 put c = c@128
        "#]],
    );
}

/// The commits between two states are not known, so the differences are one change at the later revision.
#[test]
fn a_replaced_store_has_no_history_of_what_led_to_it() {
    let window = HistoryWindow { events_max: 100, bytes_max: usize::MAX };
    let batches: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = batches.clone();
    let on_commit = move |events: &[Arc<CommitEvent>]| {
        seen.lock().unwrap().push(events.iter().map(|it| show_event(it)).collect());
    };
    let published = PublishedStore::new(Store::empty_after(100, window), Box::new(on_commit));
    let restored = |key: &str, created: Revision, modified: Revision| StoredObject {
        key: format!("{key}//x").into(),
        value: object(key).with_revision(modified),
        index: SelectorIndex::default(),
        created,
        modified,
        expires_s: Some(modified),
    };
    let loaded = |revision, objects: Vec<StoredObject>| {
        let mut store = Store::empty_after(revision, window);
        objects.into_iter().for_each(|it| store.restore_object(it));
        store
    };
    let first = vec![restored("a", 110, 110), restored("b", 111, 111), restored("c", 112, 112)];
    assert_eq!(published.replace(loaded(127, first)), 3);
    let event =
        CommitEvent::put(130, "d//x", None, object("d").with_revision(130), SelectorIndex::default(), None);
    published.publish(&[event], |_| ());
    batches.lock().unwrap().clear();

    let second = vec![restored("a", 110, 110), restored("c", 112, 140), restored("e", 135, 135)];
    assert_eq!(published.replace(loaded(255, second)), 4);
    expect![[r#"
        255 delete b//x = b@255, was b@111
        255 put c//x = c@140, was c@112
        255 delete d//x = d@255, was d@130
        255 put e//x = e@135
    "#]]
    .assert_eq(&batches.lock().unwrap().join("--\n").replace("  ", ""));
    check(
        &published.read(),
        &expect![[r#"
            at 255, history after 255
              a//x = a@110 (110..110)
              c//x = c@140 (112..140)
              e//x = e@135 (135..135)
        "#]],
    );
    let store = published.read();
    assert_eq!(store.initial_compacted_revision(), 255);
    let expiring: Vec<_> = store.expired_objects(1000).map(|it| &*it.key).collect();
    assert_eq!(expiring, ["a//x", "e//x", "c//x"]);
    assert_eq!(store.usage().total_bytes(), store.list("").map(|it| it.key.len() + it.value.len()).sum());
    // Also for a kind that has no event in between.
    for prefix in ["", "a/", "d/", "other/"] {
        let expired = Some(CompactedError { compacted_revision: 255 });
        assert_eq!(store.commits_since(prefix, 254).err(), expired, "{prefix}");
        assert_eq!(store.commits_since(prefix, 255).unwrap().count(), 0, "{prefix}");
    }
    drop(store);
    // Nothing has changed: nobody is notified.
    batches.lock().unwrap().clear();
    let same = vec![restored("a", 110, 110), restored("c", 112, 140), restored("e", 135, 135)];
    assert_eq!(published.replace(loaded(383, same)), 0);
    assert_eq!(*batches.lock().unwrap(), [""; 0]);
    assert_eq!(published.read().revision(), 383);
}

#[test]
#[should_panic(expected = "revisions do not decrease")]
fn a_store_is_not_replaced_by_an_older_one() {
    let window = HistoryWindow { events_max: 100, bytes_max: usize::MAX };
    let published = PublishedStore::new(Store::empty_after(100, window), Box::new(|_| ()));
    published.replace(Store::empty_after(99, window));
}

proptest! {
    /// A list at any revision and the watch from it give the current state; the watch has each commit once and in order, whatever
    /// the gaps between revisions.
    #[test]
    fn a_list_and_the_watch_from_it_give_the_state(
        steps in prop::collection::vec((0..5_u8, any::<bool>(), 0..4_u64), 0..60),
        history_max in 0..70_usize,
    ) {
        let mut store = Store::new(history_max);
        let state = |store: &Store| store.list("").map(|it| (it.key.clone(), it.clone())).collect::<BTreeMap<_, _>>();
        let mut commits = Vec::new();
        let mut lists = vec![(store.revision(), state(&store))];
        for (key, put, gap) in steps {
            let key = format!("k/{key}");
            store.skip_to_revision(store.revision() + gap);
            let before = store.revision();
            let committed = if put {
                store.put(&key, Precondition::Any, &object(&key)).is_ok()
            } else {
                store.delete(&key, Precondition::Any).is_ok()
            };
            prop_assert_eq!(store.revision(), before + u64::from(committed));
            commits.extend(committed.then_some(store.revision()));
            lists.push((store.revision(), state(&store)));
        }
        for (listed_at, mut replica) in lists {
            let Ok(events) = store.commits_since("k/", listed_at) else {
                prop_assert!(history_max < commits.iter().filter(|it| listed_at < **it).count());
                continue;
            };
            let mut seen = Vec::new();
            for event in events {
                seen.push(event.revision);
                match &event.change {
                    KeyChange::Put { now, before } => {
                        prop_assert_eq!(&replica.insert(event.key.clone(), now.clone()), before);
                    }
                    KeyChange::Delete { before, .. } => {
                        prop_assert_eq!(replica.remove(&event.key), Some(before.clone()));
                    }
                }
            }
            let later = commits.iter().copied().filter(|it| listed_at < *it);
            prop_assert_eq!(seen, later.collect::<Vec<_>>());
            prop_assert_eq!(replica, state(&store));
        }
    }
}
