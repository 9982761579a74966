use super::*;

const OUTAGES: FaultRates = FaultRates { outage: 12, ..FAULTS };

/// Watches are silent for seconds, and etcd compacts its whole history in the meantime.
#[tokio::test(start_paused = true)]
async fn after_an_outage_every_server_has_the_objects_of_etcd() {
    let (mut acknowledged, mut before_reload, mut expired) = (0, 0, 0);
    for seed in 0..60 {
        let record = run_model(seed, OUTAGES, 3, 9, 25).await;
        acknowledged += record.acknowledged.len();
        before_reload += record.written_before_reload;
        expired += record.expired;
    }
    let counts = format!("{acknowledged} acknowledged, {before_reload} before a reload, {expired} expired");
    assert!(1000 < acknowledged && 10 < before_reload && 100 < expired, "{counts}");
}

/// Events after a revision as text, or the revision from which they are known.
fn events_since(server: &Server, after: Revision) -> Result<Vec<String>, Revision> {
    let store = server.published.read();
    let events = store.commits_since("", after).map_err(|it| it.compacted_revision)?;
    Ok(events.map(|it| format!("{} {}", it.revision, it.key)).collect())
}

async fn put_now(server: &Server, key: &str, value: &str) -> Revision {
    server.commit(put(key, Precondition::Any, value)).await.unwrap().revision
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_cut_off_for_too_long_loads_all_objects_again() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
    for key in ["pods/a/changed", "pods/a/deleted", "pods/a/same", "pods/a/recreated"] {
        put_now(&two, key, "1").await;
    }
    assert!(one.read_barrier().await);
    let (before, known) = (one.published.read().revision(), one.events.lock().unwrap().len());
    let same = one.get("pods/a/same").unwrap();
    etcd.stop_watch(0);
    put_now(&two, "pods/a/changed", "2").await;
    put_now(&two, "pods/a/new", "1").await;
    two.commit(delete("pods/a/recreated", Precondition::Any)).await.unwrap();
    put_now(&two, "pods/a/recreated", "2").await;
    put_now(&two, "pods/a/short-lived", "1").await;
    two.commit(delete("pods/a/short-lived", Precondition::Any)).await.unwrap();
    two.commit(delete("pods/a/deleted", Precondition::Any)).await.unwrap();
    etcd.compact_to_current();
    etcd.resume_watches();
    tokio::time::sleep(Duration::from_secs(1)).await;

    // Objects keep their resourceVersions, and those of all servers are the same.
    assert_eq!(objects(&one), objects(&two));
    expect_test::expect![[r#"
        pods/a/changed 2 384..896
        pods/a/new 1 1024..1024
        pods/a/recreated 2 1280..1280
        pods/a/same 1 640..640"#]]
    .assert_eq(&objects(&one).join("\n"));
    assert!(Arc::ptr_eq(&same, &one.get("pods/a/same").unwrap()), "equal objects share their memory");
    // The history begins with the reload. Watches are woken by the differences.
    let reloaded = one.published.read().revision();
    assert_eq!(reloaded, Keyspace::new("/m", 0).last_resource_version(13));
    assert_eq!(events_since(&one, before), Err(reloaded));
    assert_eq!(events_since(&one, reloaded), Ok(Vec::new()));
    let differences: Vec<_> = one.events.lock().unwrap()[known..].iter().map(|it| line(it)).collect();
    let difference =
        |name: &str, value: Option<&str>| (reloaded, format!("pods/a/{name}"), value.map(str::to_owned));
    assert_eq!(
        differences,
        [
            difference("changed", Some("2")),
            difference("deleted", None),
            difference("new", Some("1")),
            difference("recreated", Some("2")),
        ]
    );
    // The server goes on, with revisions above all that it has shown.
    let next = put_now(&two, "pods/a/same", "2").await;
    assert!(one.read_barrier().await);
    assert_eq!(events_since(&one, reloaded), Ok(vec![format!("{next} pods/a/same")]));
    let last = put_now(&one, "pods/a/changed", "3").await;
    assert!(reloaded < next && next < last);
    assert_eq!(*one.failure.lock().unwrap(), None);
}

/// After a reload, a server shows a revision between those of two commits. Other servers can reach it.
#[tokio::test(start_paused = true)]
async fn other_servers_reach_the_revision_of_a_reload() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
    put_now(&two, "pods/a/a", "1").await;
    assert!(one.read_barrier().await);
    etcd.stop_watch(0);
    put_now(&two, "pods/a/b", "1").await;
    let last = put_now(&two, "pods/a/b", "2").await;
    etcd.compact_to_current();
    etcd.resume_watches();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reloaded = one.published.read().revision();
    assert!(last < reloaded && two.published.read().revision() == last);
    assert!(two.read_barrier_at(reloaded).await);
    assert_eq!(two.published.read().revision(), reloaded);
    // A revision of the future is not reached.
    assert!(two.read_barrier_at(reloaded + 1).await);
    assert_eq!(two.published.read().revision(), reloaded);
    // Both servers go on, and no event is taken for a lost one.
    let next = put_now(&one, "pods/a/a", "2").await;
    assert!(two.read_barrier_at(next).await);
    assert_eq!(two.published.read().revision(), next);
    assert_eq!(events_since(&two, reloaded), Ok(vec![format!("{next} pods/a/a")]));
    assert_eq!(two.statistics(), SyncStatistics::default());
    assert_eq!(objects(&one), objects(&two));
}

/// The events of a server's own transactions are compacted before its watch delivers them.
#[tokio::test(start_paused = true)]
async fn commits_whose_events_were_compacted_have_an_unknown_outcome() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    put_now(&server, "pods/a/before", "1").await;
    // The first commit has its response before the reload, and the second one after it.
    etcd.stop_watch(0);
    let first = tokio::spawn({
        let server = server.clone();
        async move { server.commit(put("pods/a/first", Precondition::Absent, "1")).await }
    });
    let barrier = tokio::spawn({
        let server = server.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            server.read_barrier().await
        }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    etcd.delay_next_response(Duration::from_secs(2));
    let second = tokio::spawn({
        let server = server.clone();
        async move { server.commit(put("pods/a/second", Precondition::Absent, "1")).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!first.is_finished() && !barrier.is_finished());
    etcd.compact_to_current();
    etcd.resume_watches();
    for outcome in [first.await.unwrap(), second.await.unwrap()] {
        let why = "it was made, but all objects are loaded again".to_owned();
        assert_eq!(outcome.map(|it| line(&it)), Err(CommitError::OutcomeUnknown { why }));
    }
    // The state of the barrier's revision was loaded.
    assert!(barrier.await.unwrap());
    assert!(server.get("pods/a/first").is_some() && server.get("pods/a/second").is_some());
    put_now(&server, "pods/a/first", "2").await;
    assert_eq!(server.queued.load(Ordering::Relaxed), 0);
}

/// Values that this server allocated are known from its state again, and others' allocations refuse older choices.
#[tokio::test(start_paused = true)]
async fn allocations_go_on_after_a_reload() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
    let allocate = async |server: &Server, name: &str, known: Revision| {
        let allocation = Some(muster_store::Allocation { pool: "services", known });
        let commit = Commit { allocation, ..put(&format!("services/a/{name}"), Precondition::Absent, name) };
        server.commit(commit).await.map(|it| it.revision)
    };
    let begin = one.published.read().revision();
    allocate(&one, "a", begin).await.unwrap();
    let known = one.published.read().revision();
    assert!(two.read_barrier().await);
    etcd.stop_watch(0);
    allocate(&two, "b", known).await.unwrap();
    let stale = allocate(&one, "c", known);
    let reload = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        etcd.compact_to_current();
        etcd.resume_watches();
    };
    let (stale, ()) = tokio::join!(stale, reload);
    assert_eq!(stale, Err(CommitError::Conflict(CommitConflict::Allocated)));
    assert!(
        one.get("services/a/b").is_some(),
        "the caller chooses again from the state that refused its commit"
    );
    let known = one.published.read().revision();
    assert_eq!(allocate(&one, "c", begin).await, Err(CommitError::Conflict(CommitConflict::Allocated)));
    allocate(&one, "c", known).await.unwrap();
    allocate(&one, "d", known).await.unwrap();
}

/// A faulty etcd may lose an event. The deletion of an object that the server does not have shows it.
#[tokio::test(start_paused = true)]
async fn a_deletion_of_an_unknown_object_loads_all_objects_again() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
    let before = put_now(&two, "pods/a/a", "1").await;
    etcd.lose_next_event(0);
    put_now(&two, "pods/a/lost", "1").await;
    put_now(&two, "pods/a/b", "1").await;
    assert!(one.read_barrier().await);
    assert_eq!(one.get("pods/a/lost"), None);
    two.commit(delete("pods/a/lost", Precondition::Any)).await.unwrap();
    assert!(one.read_barrier().await);
    assert_eq!(objects(&one), objects(&two));
    assert!(events_since(&one, before).is_err());
    assert_eq!(*one.failure.lock().unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_own_events_are_lost_loads_all_objects_again() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
    let before = put_now(&one, "pods/a/a", "1").await;
    etcd.lose_next_event(0);
    let lost = one.commit(put("pods/a/lost", Precondition::Absent, "1"));
    let next = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        put_now(&two, "pods/a/b", "1").await;
    };
    let (lost, ()) = tokio::join!(lost, next);
    assert!(matches!(lost, Err(CommitError::OutcomeUnknown { .. })), "{lost:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(objects(&one), objects(&two));
    assert_eq!(objects(&one).len(), 3);
    assert!(events_since(&one, before).is_err());
    assert_eq!(*one.failure.lock().unwrap(), None);
}

/// An administrator deletes more objects in one transaction than any server does.
#[tokio::test(start_paused = true)]
async fn servers_follow_a_deletion_of_all_objects_of_a_kind() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
    for at in 0..300 {
        put_now(&one, &format!("events/a/{at}"), "1").await;
    }
    let last = put_now(&one, "pods/a/a", "1").await;
    assert!(two.read_barrier().await);
    etcd.delete_prefix("/m/o/events/");
    tokio::time::sleep(Duration::from_secs(1)).await;
    for server in [&one, &two] {
        assert_eq!(objects(server).len(), 1);
        assert!(events_since(server, last).is_err());
    }
    for server in [&one, &two] {
        put_now(server, "pods/a/b", "1").await;
        assert_eq!(*server.failure.lock().unwrap(), None);
    }
}

/// A reload shows that etcd went back: the server ends.
#[tokio::test(start_paused = true)]
async fn a_server_that_loads_all_objects_from_an_older_etcd_ends() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
    put_now(&two, "pods/a/a", "1").await;
    put_now(&two, "pods/a/b", "1").await;
    assert!(one.read_barrier().await);
    etcd.stop_watch(0);
    put_now(&two, "pods/a/a", "2").await;
    put_now(&two, "pods/a/b", "2").await;
    etcd.compact_to_current();
    etcd.resume_watches();
    // The watch has reported the compaction.
    etcd.restore(2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    expect_test::expect![
        "etcd is at revision 2, and this server has seen revision 4: etcd was restored from a snapshot. Restart the servers"
    ]
    .assert_eq(one.failure.lock().unwrap().as_deref().unwrap_or_default());
}

/// A server is cut off, etcd is restored from a snapshot, and other servers write until etcd has reached the revision of
/// the first server again. The objects of the two histories have the same keys and revisions, so that only the lane of
/// the server shows that etcd was restored.
#[tokio::test(start_paused = true)]
async fn a_server_that_has_not_seen_a_restore_from_a_snapshot_finds_it_with_its_next_write() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
    put_now(&two, "pods/a/a", "1").await;
    put_now(&one, "nodes//one", "1").await;
    let snapshot = etcd.history().last().unwrap().0;
    put_now(&one, "nodes//one", "lost").await;
    put_now(&two, "pods/a/a", "lost").await;
    assert!(one.read_barrier().await && two.read_barrier().await);
    drop(two);
    etcd.stop_watch(0);
    etcd.restore(snapshot);
    let three = Server::start(&etcd, "three").await;
    put_now(&three, "pods/a/a", "2").await;
    etcd.resume_watches();
    let seen = one.published.read().revision();
    assert_eq!(objects(&one).len(), 2);
    assert_ne!(objects(&one), objects(&three));
    // The outcome of the write is not known, because the objects are loaded again before its event arrives.
    let outcome = one.commit(put("nodes//other", Precondition::Absent, "1")).await;
    assert!(matches!(outcome, Err(CommitError::OutcomeUnknown { .. })), "{outcome:?}");
    assert!(three.read_barrier().await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(objects(&one), objects(&three));
    assert!(events_since(&one, seen).is_err(), "clients list again");
    let expected = SyncStatistics { reloads_after_loss: 1, ..Default::default() };
    assert_eq!(one.statistics(), expected);
    assert_eq!(*one.failure.lock().unwrap(), None);
}

/// etcd is restored from a snapshot as docs/high-availability.md says, with `--bump-revision 1000000000 --mark-compacted`.
#[tokio::test(start_paused = true)]
async fn servers_load_all_objects_again_after_a_restore_with_a_bumped_revision() {
    const BUMP: i64 = 1_000_000_000;
    // Another server may have compacted the history before the snapshot.
    for is_compacted in [false, true] {
        let etcd = FakeEtcd::new(1, FaultRates::default());
        let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
        for key in ["pods/a/changed", "pods/a/deleted", "pods/a/recreated", "pods/a/same"] {
            put_now(&one, key, "1").await;
        }
        let kept = put_now(&two, "nodes//two", "1").await;
        if is_compacted {
            one.commands.send(Command::Compact(kept, None)).map_err(drop).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(one.read_barrier().await);
        let (snapshot, objects_before) = (etcd.history().last().unwrap().0, objects(&one));
        put_now(&one, "pods/a/changed", "lost").await;
        put_now(&two, "pods/a/lost", "1").await;
        one.commit(delete("pods/a/deleted", Precondition::Any)).await.unwrap();
        one.commit(delete("pods/a/recreated", Precondition::Any)).await.unwrap();
        put_now(&one, "pods/a/recreated", "lost").await;
        let lost = put_now(&two, "nodes//two", "lost").await;
        assert!(one.read_barrier().await && two.read_barrier().await);
        // The server may repeat this commit after the restore. The first request arrives after that.
        etcd.delay_next_transaction(Duration::from_secs(100));
        let late = tokio::spawn({
            let one = one.clone();
            async move { one.commit(put("pods/a/late", Precondition::Absent, "1")).await.map(|it| line(&it)) }
        });
        etcd.wait_for_delayed_transaction().await;
        etcd.restore_and_bump(snapshot, BUMP);
        let late = late.await.unwrap();
        assert!(matches!(late, Err(CommitError::OutcomeUnknown { .. })), "{late:?}");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let three = Server::start(&etcd, "three").await;
        for server in [&one, &two, &three] {
            assert!(server.read_barrier().await);
            let found: Vec<_> = objects(server).into_iter().filter(|it| !it.contains("late")).collect();
            assert_eq!(found, objects_before, "{}", server.name);
            assert!(server.get("pods/a/late").is_none_or(|it| lost < it.modified));
        }
        let reloads = || {
            let reloads = |it: SyncStatistics| it.reloads_after_compaction + it.reloads_after_loss;
            [&one, &two, &three].map(|it| reloads(it.statistics()))
        };
        assert_eq!(reloads(), [1, 1, 0]);
        for (server, seen) in [(&one, lost), (&two, lost), (&two, kept), (&three, lost), (&three, kept)] {
            assert!(events_since(server, seen).is_err(), "clients of {} list again", server.name);
            assert!(lost < server.published.read().revision(), "{}", server.name);
        }
        // All servers go on, and clients of each see the writes of all after their lists.
        let listed = [&one, &two, &three].map(|it| it.published.read().revision());
        let mut last = *listed.iter().max().unwrap();
        let mut written = Vec::new();
        for (server, key) in
            [(&one, "pods/a/changed"), (&two, "nodes//two"), (&three, "pods/a/new"), (&one, "pods/a/same")]
        {
            let revision = put_now(server, key, "2").await;
            assert!(last < revision, "{revision} after {last}");
            written.push(format!("{revision} {key}"));
            last = revision;
        }
        let stale = one.commit(put("nodes//two", Precondition::At(kept), "3")).await.unwrap_err();
        assert!(matches!(stale, CommitError::Conflict(CommitConflict::Modified { .. })), "{stale}");
        // The late request is refused.
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(reloads(), [1, 1, 0]);
        for (server, listed) in [&one, &two, &three].into_iter().zip(listed) {
            assert!(server.read_barrier().await);
            assert_eq!(objects(server), objects(&one));
            assert_eq!(events_since(server, listed), Ok(written.clone()), "{}", server.name);
            assert_eq!(*server.failure.lock().unwrap(), None);
        }
    }
}
