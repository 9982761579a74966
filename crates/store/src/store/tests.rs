use std::fmt::Write as _;

use expect_test::{Expect as Golden, expect};
use proptest::prelude::*;

use std::collections::BTreeMap;

use super::*;

/// Every value carries the revision that wrote it, as an object carries its resourceVersion.
fn value(name: &str) -> impl FnOnce(Revision) -> Bytes {
    move |revision| Bytes::from(format!("{name}@{revision}"))
}

/// The whole store as text: where it is, its state, its history.
fn show(store: &Store) -> String {
    let mut out = format!("at {}, history after {}\n", store.revision(), store.floor);
    for it in store.list("") {
        writeln!(
            out,
            "  {} = {} ({}..{})",
            it.key,
            String::from_utf8_lossy(&it.value),
            it.created,
            it.modified
        )
        .unwrap();
    }
    for event in store.since("", store.floor).unwrap() {
        out.push_str(&show_event(event));
    }
    out
}

fn show_event(event: &Event) -> String {
    let text = |value: &Bytes| String::from_utf8_lossy(value).into_owned();
    match &event.change {
        Change::Put { now, before: None } => {
            format!("  {} put {} = {}\n", event.revision, event.key, text(&now.value))
        }
        Change::Put { now, before: Some(before) } => format!(
            "  {} put {} = {}, was {}\n",
            event.revision,
            event.key,
            text(&now.value),
            text(&before.value)
        ),
        Change::Delete { before, last } => {
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
    store.put("pods/a/x", Expect::Absent, value("x")).unwrap();
    store.put("nodes//n1", Expect::Any, value("n1")).unwrap();
    store.put("pods/a/x", Expect::At(2), value("x")).unwrap();
    let event = store.delete("nodes//n1", Expect::At(3), value("n1")).unwrap();
    store.put("pods/b/y", Expect::Any, value("y")).unwrap();
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
fn a_wrong_belief_changes_nothing() {
    let mut store = Store::new(100);
    store.put("a", Expect::Absent, value("a")).unwrap();
    store.put("a", Expect::Any, value("a")).unwrap();
    let before = show(&store);

    let never = |_| -> Bytes { panic!("no value is made for a commit that does not happen") };
    let refused = [
        store.put("a", Expect::Absent, never).unwrap_err(),
        store.put("a", Expect::At(2), never).unwrap_err(),
        store.put("b", Expect::At(2), never).unwrap_err(),
        store.delete("a", Expect::At(2), never).unwrap_err(),
        store.delete("a", Expect::Absent, never).unwrap_err(),
        store.delete("b", Expect::Any, never).unwrap_err(),
    ];
    let said: Vec<_> = refused.iter().map(ToString::to_string).collect();
    expect![[r#"
        the key exists since revision 3: read it, and write with that revision
        the key has moved on to revision 3: read it again and retry
        the key does not exist: create it, or forget it
        the key has moved on to revision 3: read it again and retry
        the key exists since revision 3: read it, and write with that revision
        the key does not exist: create it, or forget it"#]]
    .assert_eq(&said.join("\n"));
    assert_eq!(show(&store), before);
}

#[test]
fn a_list_is_ordered_and_keeps_to_its_prefix() {
    let mut store = Store::new(100);
    for key in ["pods/b/1", "pods/a/2", "pods/ab/3", "podsx/a/4", "nodes//n1", "pods/a/1"] {
        store.put(key, Expect::Absent, value("v")).unwrap();
    }
    let keys = |prefix| store.list(prefix).map(|it| &*it.key).collect::<Vec<_>>();
    assert_eq!(keys("pods/a/"), ["pods/a/1", "pods/a/2"]);
    assert_eq!(keys("pods/"), ["pods/a/1", "pods/a/2", "pods/ab/3", "pods/b/1"]);
    assert_eq!(keys("secrets/"), [""; 0]);
}

#[test]
fn what_is_out_of_the_window_is_compacted() {
    let mut store = Store::new(3);
    for key in ["a", "b", "c", "d", "e"] {
        store.put(key, Expect::Absent, value(key)).unwrap();
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
    assert_eq!(store.since("", 2).err(), Some(Compacted { floor: 3 }));

    store.compact(5);
    store.compact(4);
    assert_eq!(store.since("", 4).err(), Some(Compacted { floor: 5 }));
    assert_eq!(store.since("", 5).unwrap().count(), 1);

    // A floor in the future must not hide the commits still to come.
    store.compact(100);
    store.put("f", Expect::Absent, value("f")).unwrap();
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
    assert_eq!(store.since("", 100).unwrap().count(), 0);
}

proptest! {
    /// Whoever lists at any revision and then watches from it ends with the state itself, and sees
    /// every revision once and in order.
    #[test]
    fn a_list_and_the_watch_from_it_give_the_state(
        steps in prop::collection::vec((0..5_u8, any::<bool>()), 0..60),
        history_max in 0..70_usize,
    ) {
        let mut store = Store::new(history_max);
        let state = |store: &Store| store.list("").map(|it| (it.key.clone(), it.clone())).collect::<BTreeMap<_, _>>();
        let mut lists = vec![(store.revision(), state(&store))];
        for (key, put) in steps {
            let key = format!("k/{key}");
            let before = store.revision();
            let committed = if put {
                store.put(&key, Expect::Any, value(&key)).is_ok()
            } else {
                store.delete(&key, Expect::Any, value(&key)).is_ok()
            };
            prop_assert_eq!(store.revision(), before + u64::from(committed));
            lists.push((store.revision(), state(&store)));
        }
        for (listed_at, mut replica) in lists {
            let Ok(events) = store.since("k/", listed_at) else {
                prop_assert!(usize::try_from(store.revision() - listed_at).unwrap() > history_max);
                continue;
            };
            let mut seen = listed_at;
            for event in events {
                prop_assert_eq!(event.revision, seen + 1);
                seen = event.revision;
                match &event.change {
                    Change::Put { now, before } => {
                        prop_assert_eq!(&replica.insert(event.key.clone(), now.clone()), before);
                    }
                    Change::Delete { before, .. } => {
                        prop_assert_eq!(replica.remove(&event.key), Some(before.clone()));
                    }
                }
            }
            prop_assert_eq!(seen, store.revision());
            prop_assert_eq!(replica, state(&store));
        }
    }
}
