use super::*;
use crate::api::{EtcdError, WatchStream};
use crate::member_pool::{EtcdMember, MemberPool};
use crate::proto::{
    CompactionRequest, CompactionResponse, RangeRequest, RangeResponse, ResponseHeader, StatusResponse,
    TxnRequest, TxnResponse, WatchCreateRequest,
};

/// A member of an etcd in memory. Clones share its state.
#[derive(Clone)]
struct FakeMember {
    url: &'static str,
    state: Arc<Mutex<FakeMemberState>>,
}

struct FakeMemberState {
    /// The cluster of the member. All members with clones of one etcd are in one cluster.
    etcd: FakeEtcd,
    condition: Condition,
    version: &'static str,
    /// Number of calls.
    calls: usize,
    /// Number of requests for the version.
    version_requests: usize,
    lost_connections: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Serving,
    /// The member is a learner. etcd 3.4 answers with the code `Unavailable`, and later versions with
    /// `FailedPrecondition`.
    Learner(tonic::Code),
    Dead,
}

impl FakeMember {
    fn new(url: &'static str, etcd: &FakeEtcd, condition: Condition) -> Self {
        let state = FakeMemberState {
            etcd: etcd.clone(),
            condition,
            version: "3.6.9",
            calls: 0,
            version_requests: 0,
            lost_connections: 0,
        };
        Self { url, state: Arc::new(Mutex::new(state)) }
    }

    /// Restarts the member with this version between two calls.
    fn restart(&self, version: &'static str) {
        let mut state = self.state.lock().unwrap();
        state.version = version;
        state.lost_connections += 1;
    }

    fn set(&self, condition: Condition) {
        self.state.lock().unwrap().condition = condition;
    }

    fn move_to(&self, etcd: &FakeEtcd) {
        self.state.lock().unwrap().etcd = etcd.clone();
    }

    fn calls(&self) -> usize {
        self.state.lock().unwrap().calls
    }

    /// Returns the cluster of the member if it can execute a call.
    async fn etcd(&self) -> Result<FakeEtcd, EtcdError> {
        let (etcd, condition) = {
            let mut state = self.state.lock().unwrap();
            state.calls += 1;
            (state.etcd.clone(), state.condition)
        };
        match condition {
            Condition::Serving => Ok(etcd),
            Condition::Learner(code) => {
                let status = tonic::Status::new(code, "etcdserver: rpc not supported for learner");
                Err(EtcdError::from_status(&status))
            }
            Condition::Dead => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Err(EtcdError::NoResponse { why: "dead".to_owned() })
            }
        }
    }
}

impl EtcdMember for FakeMember {
    fn url(&self) -> &str {
        self.url
    }

    fn lost_connections(&self) -> u64 {
        self.state.lock().unwrap().lost_connections
    }

    async fn status(&self) -> Result<StatusResponse, EtcdError> {
        let (etcd, condition, version) = {
            let mut state = self.state.lock().unwrap();
            state.version_requests += 1;
            (state.etcd.clone(), state.condition, state.version)
        };
        if condition == Condition::Dead {
            return Err(EtcdError::NoResponse { why: "dead".to_owned() });
        }
        let header = ResponseHeader { cluster_id: etcd.cluster_id(), ..ResponseHeader::default() };
        Ok(StatusResponse {
            header: Some(header),
            version: version.to_owned(),
            is_learner: matches!(condition, Condition::Learner(_)),
            ..StatusResponse::default()
        })
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.etcd().await?.range(request).await
    }

    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        self.etcd().await?.txn(request).await
    }

    async fn compact(&self, request: CompactionRequest) -> Result<CompactionResponse, EtcdError> {
        self.etcd().await?.compact(request).await.map(|()| CompactionResponse::default())
    }

    async fn watch(&self, request: WatchCreateRequest) -> Result<WatchStream, EtcdError> {
        self.etcd().await?.watch(request).await
    }
}

/// A learner has every object and answers no request about it.
#[tokio::test(start_paused = true)]
async fn a_learner_is_skipped() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    for code in [tonic::Code::FailedPrecondition, tonic::Code::Unavailable] {
        for is_checked in [true, false] {
            let member = |url, condition| FakeMember::new(url, &etcd, condition);
            let learners = ["l1", "l2"].map(|it| member(it, Condition::Learner(code)));
            let voter = member("v", Condition::Serving);
            let [first, last] = learners.clone();
            let pool = MemberPool::new([first, voter.clone(), last]);
            if is_checked {
                pool.check().await.unwrap();
            }
            let server = Server::start(&pool, if is_checked { "checked" } else { "not-checked" }).await;
            for it in 0..20 {
                let key = format!("nodes//{code:?}-{is_checked}-{it}");
                server.commit(put(&key, Precondition::Absent, "x")).await.unwrap();
                assert!(server.read_barrier().await);
            }
            let calls = learners.each_ref().map(FakeMember::calls);
            assert!(calls.iter().all(|it| *it <= if is_checked { 0 } else { 2 }), "{calls:?}");
            // A learner that was promoted replaces the others.
            learners[1].set(Condition::Serving);
            voter.set(Condition::Dead);
            tokio::time::sleep(Duration::from_secs(40)).await;
            server.commit(put("nodes//last", Precondition::Any, "x")).await.unwrap();
            assert!(server.read_barrier().await);
            assert_eq!(*server.failure.lock().unwrap(), None);
        }
    }
}

/// A commit that no member could execute was not made.
#[tokio::test(start_paused = true)]
async fn a_commit_that_only_learners_get_is_refused_in_time() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let members = ["a", "b"].map(|it| FakeMember::new(it, &etcd, Condition::Serving));
    let server = Server::start(&MemberPool::new(members.clone()), "s").await;
    server.commit(put("nodes//a", Precondition::Absent, "x")).await.unwrap();
    members.iter().for_each(|it| it.set(Condition::Learner(tonic::Code::FailedPrecondition)));
    let began = tokio::time::Instant::now();
    let refused = server.commit(put("nodes//b", Precondition::Absent, "x")).await.map(|it| line(&it));
    assert!(matches!(refused, Err(CommitError::Unavailable { .. })), "{refused:?}");
    assert!(began.elapsed() < Duration::from_millis(4_300), "{:?}", began.elapsed());
}

/// A member loses its data, and is set up again as a new cluster instead of a member of the old one.
#[tokio::test(start_paused = true)]
async fn a_member_of_another_cluster_is_not_used() {
    for foreign_writes in [0, 500] {
        let etcd = FakeEtcd::new(1, FaultRates::default());
        let foreign = FakeEtcd::new(2, FaultRates::default());
        foreign.set_cluster_id(8);
        // The revision of the new cluster may be lower or higher.
        (0..foreign_writes).for_each(|_| foreign.write("/other".into(), Default::default()));
        let members = ["http://a", "http://b"].map(|it| FakeMember::new(it, &etcd, Condition::Serving));
        let pool = MemberPool::new(members.clone());
        pool.check().await.unwrap();
        let (one, two) = (Server::start(&pool, "one").await, Server::start(&etcd, "two").await);
        // It has not written before, so it has no lanes yet.
        let three = Server::start(&MemberPool::new(members.clone()), "three").await;
        let update = async |server: &Server, value: usize| {
            server.commit(put("nodes//n", Precondition::Any, &value.to_string())).await.map(|it| it.revision)
        };
        update(&one, 0).await.unwrap();
        members[0].move_to(&foreign);
        three.commit(put("pods/a/first", Precondition::Absent, "x")).await.unwrap();
        for round in 1..30 {
            // The member of the right cluster has failures, so calls go to the other one again and again.
            members[1].set(if round % 3 == 0 { Condition::Dead } else { Condition::Serving });
            tokio::time::sleep(Duration::from_secs(7)).await;
            let written = update(&two, 2 * round).await.unwrap();
            if one.read_barrier().await {
                assert!(written <= one.published.read().revision(), "a stale read after the barrier");
            }
            // Also a commit that depends on nothing in etcd.
            let new = put(&format!("pods/a/{round}"), Precondition::Absent, "x");
            let created = one.commit(new).await.is_ok();
            assert_eq!(created, round % 3 != 0, "round {round}");
        }
        members[1].set(Condition::Serving);
        assert!(one.read_barrier().await);
        assert_eq!(objects(&one), objects(&two));
        assert_eq!(*one.failure.lock().unwrap(), None);
        let objects = foreign.keys().into_iter().filter(|it| it.key.starts_with(b"/m/o/")).count();
        assert_eq!(objects, 0, "the other cluster has accepted a write");
        // A server does not start on members of two clusters.
        let mixed = MemberPool::new(members.clone()).check().await.unwrap_err().to_string();
        expect_test::expect![
            "http://a and http://b are members of different etcd clusters: name the members of one cluster with --etcd"
        ]
        .assert_eq(&mixed);
    }
}

/// All members were replaced: what the server has in memory is not in etcd.
#[tokio::test(start_paused = true)]
async fn a_server_ends_when_all_members_belong_to_another_cluster() {
    let (etcd, foreign) = (FakeEtcd::new(1, FaultRates::default()), FakeEtcd::new(2, FaultRates::default()));
    foreign.set_cluster_id(8);
    let members = ["http://a", "http://b"].map(|it| FakeMember::new(it, &etcd, Condition::Serving));
    let server = Server::start(&MemberPool::new(members.clone()), "s").await;
    server.commit(put("nodes//n", Precondition::Absent, "x")).await.unwrap();
    members.iter().for_each(|it| it.move_to(&foreign));
    assert!(!server.read_barrier().await);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let failure = server.failure.lock().unwrap().clone().unwrap_or_default();
    assert!(failure.contains("etcd was replaced or restored. Restart the servers"), "{failure}");
    assert_eq!(server.published.read().list("").count(), 1);
}

/// A member was down when the server started, and comes back with a version that loses events.
#[tokio::test(start_paused = true)]
async fn a_member_that_comes_back_with_an_unsupported_version_is_not_used() {
    for accepts_any_version in [false, true] {
        let etcd = FakeEtcd::new(1, FaultRates::default());
        let members = ["http://a", "http://b"].map(|it| FakeMember::new(it, &etcd, Condition::Serving));
        members[1].set(Condition::Dead);
        members[1].state.lock().unwrap().version = "3.5.9";
        let pool = MemberPool::new(members.clone());
        let pool = if accepts_any_version { pool.accept_any_version() } else { pool };
        pool.check().await.unwrap();
        let server = Server::start(&pool, "s").await;
        server.commit(put("nodes//a", Precondition::Absent, "x")).await.unwrap();
        members[0].set(Condition::Dead);
        members[1].set(Condition::Serving);
        tokio::time::sleep(Duration::from_secs(40)).await;
        let committed = server.commit(put("nodes//b", Precondition::Absent, "x")).await;
        assert_eq!(committed.is_ok(), accepts_any_version, "{committed:?}");
        assert_eq!(members[1].calls() == 0, !accepts_any_version);
        members[0].set(Condition::Serving);
        tokio::time::sleep(Duration::from_secs(40)).await;
        server.commit(put("nodes//c", Precondition::Any, "x")).await.unwrap();
        assert_eq!(*server.failure.lock().unwrap(), None);
    }
}

/// A member that was in use is restarted with a version that loses events. No call to it fails because of the restart.
#[tokio::test(start_paused = true)]
async fn a_member_that_is_restarted_with_an_unsupported_version_is_no_longer_used() {
    for accepts_any_version in [false, true] {
        let etcd = FakeEtcd::new(1, FaultRates::default());
        let members = ["http://a", "http://b"].map(|it| FakeMember::new(it, &etcd, Condition::Serving));
        let pool = MemberPool::new(members.clone());
        let pool = if accepts_any_version { pool.accept_any_version() } else { pool };
        pool.check().await.unwrap();
        let server = Server::start(&pool, "s").await;
        let commit = async |value: &str| server.commit(put("nodes//n", Precondition::Any, value)).await;
        for value in ["1", "2", "3"] {
            commit(value).await.unwrap();
        }
        let counts =
            |of: fn(&FakeMemberState) -> usize| members.each_ref().map(|it| of(&it.state.lock().unwrap()));
        assert_eq!(counts(|it| it.version_requests), [1, 1], "the version is read once");
        let before = counts(|it| it.calls);
        members[0].restart("3.5.9");
        commit("4").await.unwrap();
        assert!(server.read_barrier().await);
        let after = counts(|it| it.calls);
        assert_eq!(before[0] < after[0], accepts_any_version);
        // The other member is also restarted, and then both with a supported version.
        members[1].restart("3.4.23");
        let committed = commit("5").await;
        assert_eq!(committed.is_ok(), accepts_any_version, "{committed:?}");
        assert_eq!(counts(|it| it.calls) == after, !accepts_any_version);
        members.iter().for_each(|it| it.restart("3.6.9"));
        tokio::time::sleep(Duration::from_secs(40)).await;
        commit("6").await.unwrap();
        assert_eq!(*server.failure.lock().unwrap(), None);
    }
}

/// Two members are killed and started again, and then the third one is cut off: calls go to the two members at once.
#[tokio::test(start_paused = true)]
async fn members_are_used_as_soon_as_they_respond_after_a_restart() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let members =
        ["http://a", "http://b", "http://c"].map(|it| FakeMember::new(it, &etcd, Condition::Serving));
    let pool = MemberPool::new(members.clone());
    pool.check().await.unwrap();
    let read = async || pool.range(RangeRequest::default()).await;
    let [first, second, third] = &members;
    for killed in [first, second] {
        killed.restart("3.6.9");
        killed.set(Condition::Dead);
    }
    read().await.expect("the third member serves");
    assert!(pool.watch(WatchCreateRequest::default()).await.is_err(), "the first member is dead");
    for started in [first, second] {
        started.set(Condition::Serving);
    }
    third.set(Condition::Dead);
    let since = tokio::time::Instant::now();
    read().await.expect("the first or the second member serves");
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let opened = futures::future::join_all((0..2).map(|_| pool.watch(WatchCreateRequest::default()))).await;
    assert!(opened.iter().any(Result::is_ok), "a watch is opened at the first or the second member");
}
