use super::*;

/// The interval of the check, and some time for it and for a reload.
const CHECK: Duration = Duration::from_secs(5 * 60 + 20);

#[tokio::test(start_paused = true)]
async fn a_change_that_the_watch_has_lost_is_found_and_repaired() {
    for lost in [
        put("pods/a/a", Precondition::Any, "lost"),
        put("pods/a/new", Precondition::Absent, "lost"),
        delete("pods/a/z", Precondition::Any),
    ] {
        let what = format!("{lost:?}");
        let etcd = FakeEtcd::new(1, FaultRates::default());
        let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
        let commit = async |commit: Commit| two.commit(commit).await.unwrap().revision;
        for key in ["pods/a/a", "pods/a/m", "pods/a/z"] {
            commit(put(key, Precondition::Any, "1")).await;
        }
        etcd.lose_next_event(0);
        commit(lost).await;
        // The server does not notice: later events arrive.
        let seen = commit(put("pods/a/m", Precondition::Any, "seen")).await;
        assert!(one.read_barrier().await);
        assert_eq!(one.published.read().revision(), seen);
        assert_ne!(objects(&one), objects(&two), "{what}");
        tokio::time::sleep(CHECK).await;
        assert_eq!(objects(&one), objects(&two), "{what}");
        // Clients of this server list again, and so see the change.
        assert!(one.published.read().commits_since("pods/", seen).is_err());
        let next = commit(put("pods/a/m", Precondition::Any, "next")).await;
        assert!(seen < next && one.read_barrier().await);
        assert_eq!(objects(&one), objects(&two), "{what}");
        let expected = SyncStatistics { reloads_after_loss: 1, checks_failed: 1, ..Default::default() };
        assert_eq!(one.statistics(), expected);
        assert_eq!(two.statistics(), SyncStatistics { checks_passed: 1, ..Default::default() });
        assert_eq!(*one.failure.lock().unwrap(), None);
    }
}

/// Servers write all the time, and etcd is faulty, but no event is lost.
#[tokio::test(start_paused = true)]
async fn a_check_during_writes_finds_no_difference() {
    for seed in 0..2 {
        let etcd = FakeEtcd::new(seed, FAULTS);
        let mut servers = Vec::new();
        for name in ["one", "two"] {
            servers.push(Server::start(&etcd, name).await);
        }
        let writes = servers.iter().map(|server| async {
            let end = tokio::time::Instant::now() + Duration::from_secs(1800);
            while tokio::time::Instant::now() < end {
                let key = format!("pods/a/{}", etcd.random_below(100));
                let commit = match etcd.random_below(4) {
                    0 => delete(&key, Precondition::Any),
                    _ => put(&key, Precondition::Any, "x"),
                };
                let _ = server.commit(commit).await;
                tokio::time::sleep(Duration::from_millis(etcd.random_below(2_000))).await;
            }
        });
        futures::future::join_all(writes).await;
        for server in &servers {
            let statistics = server.statistics();
            let SyncStatistics { checks_passed, checks_with_error, .. } = statistics;
            let expected = SyncStatistics { checks_passed, checks_with_error, ..Default::default() };
            assert_eq!(statistics, expected, "seed {seed}");
            assert!(3 < checks_passed, "seed {seed}: {statistics:?}");
        }
    }
}

/// The server learns in another way of a loss while it compares the objects, and loads them again.
#[tokio::test(start_paused = true)]
async fn the_result_of_a_check_before_a_reload_is_ignored() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
    let commit = async |commit: Commit| two.commit(commit).await.unwrap().revision;
    // The check reads three pages.
    let writes = (0..4500).map(|it| put(&format!("pods/a/{it:04}"), Precondition::Absent, "x"));
    let written = futures::future::join_all(writes.map(|it| two.commit(it))).await;
    assert!(written.iter().all(Result::is_ok));
    etcd.lose_next_event(0);
    commit(put("pods/a/4400", Precondition::Any, "lost")).await;
    commit(put("pods/a/0000", Precondition::Any, "seen")).await;
    assert!(one.read_barrier().await);
    let before = etcd.ranges();
    while etcd.ranges() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    etcd.lose_next_event(0);
    commit(put("pods/a/new", Precondition::Absent, "lost")).await;
    commit(delete("pods/a/new", Precondition::Any)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(objects(&one), objects(&two));
    assert_eq!(one.statistics(), SyncStatistics { reloads_after_loss: 1, ..Default::default() });
}

#[tokio::test(start_paused = true)]
async fn a_check_that_etcd_does_not_answer_changes_nothing() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    server.commit(put("pods/a/a", Precondition::Absent, "1")).await.unwrap();
    etcd.set_faults(FaultRates { lost_request: 1000, ..FaultRates::default() });
    tokio::time::sleep(CHECK + Duration::from_secs(60)).await;
    let expected = SyncStatistics { checks_with_error: 1, ..Default::default() };
    assert_eq!(server.statistics(), expected);
    etcd.stop_faults();
    tokio::time::sleep(CHECK).await;
    assert_eq!(server.statistics(), SyncStatistics { checks_passed: 1, ..expected });
}

/// Pages whose values take too long to read are made smaller, so that a server starts on any cluster.
#[tokio::test(start_paused = true)]
async fn large_objects_are_listed_in_small_pages() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    let large = "x".repeat(20_000);
    for at in 0..300 {
        let value = if (100..120).contains(&at) { &*large } else { "x" };
        server.commit(put(&format!("pods/a/{at:03}"), Precondition::Absent, value)).await.unwrap();
    }
    etcd.compact_to_current();
    etcd.limit_range_bytes(100_000);
    let before = etcd.ranges();
    let other = Server::start(&etcd, "other").await;
    assert!(other.read_barrier().await);
    assert_eq!(objects(&other), objects(&server));
    let ranges = etcd.ranges() - before;
    assert!((20..60).contains(&ranges), "{ranges} requests");
}
