use super::*;
use crate::api::{EtcdError, WatchStream};
use crate::proto::{
    CompactionRequest, RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreateRequest,
};

/// A commit that is submitted while the backend completes earlier ones is answered, and the driver ends.
#[tokio::test(start_paused = true)]
async fn a_commit_that_is_submitted_during_a_close_is_answered() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    etcd.delay_next_response(Duration::from_secs(1));
    let first = server.commit_if_running(put("pods/a/first", Precondition::Absent, "1"));
    let others = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.commands.send(Command::Close).map_err(drop).unwrap();
        let at_once = server.commit_if_running(put("pods/a/at-once", Precondition::Absent, "1"));
        let later = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            server.commit_if_running(put("pods/a/later", Precondition::Absent, "1")).await
        };
        tokio::join!(at_once, later)
    };
    let answers = async { tokio::join!(first, others) };
    let (first, (at_once, later)) =
        tokio::time::timeout(Duration::from_secs(5), answers).await.expect("every commit is answered");
    assert!(first.is_some_and(|it| it.is_ok()) && at_once.is_some_and(|it| it.is_ok()));
    // The channel is closed: the backend answers.
    assert!(later.is_none());
    server.commands.closed().await;
    assert_eq!(*server.failure.lock().unwrap(), None);
}

/// Callers of transactions in progress, of queued commits, of barriers, and those whose commands are not received yet.
#[tokio::test(start_paused = true)]
async fn when_the_driver_fails_every_caller_gets_an_answer() {
    for seed in 0..30 {
        let etcd = FakeEtcd::new(seed, FaultRates::default());
        let server = Server::start(&etcd, "s").await;
        for it in 0..3 {
            server.commit(put(&format!("pods/a/{it}"), Precondition::Absent, "x")).await.unwrap();
        }
        etcd.delay_next_response(Duration::from_secs(10));
        let calls = (0..60).map(|it| {
            let (server, etcd) = (&server, &etcd);
            async move {
                tokio::time::sleep(Duration::from_millis(it)).await;
                if it == 5 {
                    etcd.restore(2);
                }
                let key = format!("pods/a/{}", it % 4);
                if server.commands.is_closed() {
                    return;
                }
                if it % 5 == 0 {
                    server.read_barrier().await;
                } else {
                    let answer = server.commit_if_running(put(&key, Precondition::Any, "y")).await;
                    assert!(answer.is_some(), "seed {seed}: call {it} has no answer");
                }
            }
        });
        futures::future::join_all(calls).await;
        assert!(server.failure.lock().unwrap().is_some(), "seed {seed}");
    }
}

/// etcd with a client that panics.
#[derive(Clone)]
struct PanickingEtcd(FakeEtcd);

impl EtcdApi for PanickingEtcd {
    async fn check(&self) -> Result<(), EtcdError> {
        self.0.check().await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.0.range(request).await
    }

    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        assert!(request.compare.is_empty(), "a bug");
        self.0.txn(request).await
    }

    async fn compact(&self, request: CompactionRequest) -> Result<(), EtcdError> {
        self.0.compact(request).await
    }

    async fn watch(&self, request: WatchCreateRequest) -> Result<WatchStream, EtcdError> {
        self.0.watch(request).await
    }
}

/// A server whose driver panics must end, so that it is started again. It must not go on without its driver.
#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure() {
    let server = Server::start(&PanickingEtcd(FakeEtcd::new(1, FaultRates::default())), "s").await;
    let failed = server.commit(put("pods/a/a", Precondition::Absent, "x")).await.map(|it| line(&it));
    let why = "the storage backend panicked, see the log".to_owned();
    assert_eq!(server.failure.lock().unwrap().as_ref(), Some(&why));
    assert_eq!(failed, Err(CommitError::Failed { why }));
}
