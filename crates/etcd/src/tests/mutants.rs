//! Known bugs are put back one at a time. A test of the model must notice each of them, and must pass without it.
//!
//! A mutant changes what a server sends to etcd, or what it gets from etcd, as if the server had the bug. The code of
//! the backend contains none of them.

use std::panic::AssertUnwindSafe;

use futures::StreamExt as _;

use super::*;
use crate::api::{EtcdError, WatchStream};
use crate::proto::{
    CompactionRequest, RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreateRequest, request_op,
};

/// What is missing in a server with a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// A read barrier does not wait for the last write of all servers.
    Barrier,
    /// A transaction without a response is repeated without a lane, so an attempt may be applied late. The lane's key is
    /// still written, because a server recognizes its own events by it.
    Lane,
    /// A watch is opened without the header `hasleader`, so it is silent after its member has lost its leader.
    LeaderCheck,
    /// The resourceVersion does not contain the position of the object in its transaction.
    Position,
    /// A transaction does not compare the term of its leader.
    Fence,
    /// A transaction does not compare the pools from which it allocates.
    Pool,
    /// A transaction does not compare the namespaces of the objects that it creates.
    Within,
    /// A transaction that etcd answers with "no space" counts as not applied: the server does not see in its lane that
    /// it was.
    SpaceCheck,
}

/// The test that notices a bug.
#[derive(Debug, Clone, Copy)]
enum Check {
    /// `every_answer_is_true_under_faults`
    Answers,
    /// `a_refused_commit_is_not_made_by_a_late_request`
    LateRequest,
    /// `a_watch_moves_on_when_its_member_loses_its_leader`
    LeaderLoss,
    /// `a_leader_that_lost_its_lease_cannot_write`
    Fence,
    /// `two_servers_do_not_allocate_from_the_same_state`
    Pools,
    /// `a_commit_is_refused_after_another_server_has_changed_its_namespace`
    Within,
    /// `every_answer_is_true_when_etcd_has_no_space`
    AnswersWithoutSpace,
}

/// The mutants with the tests that notice them, and what these tests report.
const MUTANTS: [(Missing, Check, &str); 8] = [
    (Missing::Barrier, Check::Answers, "a stale read after the barrier"),
    (Missing::Lane, Check::LateRequest, "a refused commit was made later"),
    (Missing::LeaderCheck, Check::LeaderLoss, "the watch is silent"),
    (Missing::Position, Check::Answers, "no event was lost"),
    (Missing::Fence, Check::Fence, "it has not held the Lease"),
    (Missing::Pool, Check::Pools, "another server has allocated from this state"),
    (Missing::Within, Check::Within, "another server has changed its namespace"),
    (Missing::SpaceCheck, Check::AnswersWithoutSpace, "was refused and is written"),
];

/// Number of seeds with which [`Check::Answers`] looks for a bug.
const SEEDS: u64 = 20;

/// etcd as a server with a bug uses it.
#[derive(Clone)]
struct MutantEtcd {
    etcd: FakeEtcd,
    missing: Option<Missing>,
}

impl MutantEtcd {
    /// Returns whether the bug removes the comparison of a key.
    fn removes_compare(&self, key: &[u8]) -> bool {
        let prefix: &[u8] = match self.missing {
            Some(Missing::Lane) => b"/m/l/",
            Some(Missing::Fence) => b"/m/t/",
            Some(Missing::Pool) => b"/m/a/",
            Some(Missing::Within) => b"/m/o/namespaces/",
            _ => return false,
        };
        key.starts_with(prefix)
    }
}

impl EtcdApi for MutantEtcd {
    async fn check(&self) -> Result<(), EtcdError> {
        self.etcd.check().await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        let is_barrier = request.keys_only && request.key == "/m/l/";
        let is_lane = request.range_end.is_empty() && request.key.starts_with(b"/m/l/");
        let mut response = self.etcd.range(request).await?;
        if self.missing == Some(Missing::Barrier) && is_barrier {
            response.kvs.clear();
        }
        if self.missing == Some(Missing::SpaceCheck) && is_lane {
            response.kvs.iter_mut().for_each(|it| it.value.clear());
        }
        Ok(response)
    }

    async fn txn(&self, mut request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        request.compare.retain(|it| !self.removes_compare(&it.key));
        for operation in &mut request.success {
            if let Some(request_op::Request::RequestPut(put)) = &mut operation.request
                && self.missing == Some(Missing::Position)
                && put.key.starts_with(b"/m/o/")
            {
                // The position in the transaction, and that in the transaction that created the object.
                put.value = [&put.value[..1], &[0, 0], &put.value[3..]].concat().into();
            }
        }
        self.etcd.txn(request).await
    }

    async fn compact(&self, request: CompactionRequest) -> Result<(), EtcdError> {
        self.etcd.compact(request).await
    }

    async fn watch(&self, request: WatchCreateRequest) -> Result<WatchStream, EtcdError> {
        let stream = self.etcd.watch(request).await?;
        if self.missing != Some(Missing::LeaderCheck) {
            return Ok(stream);
        }
        // Instead of the error there is nothing.
        let until_error = stream.take_while(|it| futures::future::ready(it.is_ok()));
        Ok(Box::pin(until_error.chain(futures::stream::pending())))
    }
}

/// Runs a test on servers with a bug, or without one. Returns what it reports, or `None` if it passes.
fn run(check: Check, missing: Option<Missing>) -> Option<String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let checked = async {
        let mutant = |seed, faults| MutantEtcd { etcd: FakeEtcd::new(seed, faults), missing };
        match check {
            Check::Answers | Check::AnswersWithoutSpace => {
                let faults = if matches!(check, Check::Answers) { FAULTS } else { FULL };
                for seed in 0..SEEDS {
                    let mutant = mutant(seed, faults);
                    run_model_on(seed, &mutant.etcd, &mutant, faults, (3, 9, 25)).await;
                }
            }
            Check::LateRequest => {
                let mutant = mutant(1, FaultRates::default());
                check_late_request(&mutant.etcd, &mutant).await;
            }
            Check::LeaderLoss => {
                let mutant = mutant(1, FaultRates::default());
                check_leader_loss(&mutant.etcd, &mutant).await;
            }
            Check::Fence => check_fence(&mutant(1, FaultRates::default())).await,
            Check::Pools => check_pools(&mutant(1, FaultRates::default())).await,
            Check::Within => {
                let mutant = mutant(1, FaultRates::default());
                check_within(&mutant.etcd, &mutant).await;
            }
        }
    };
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(checked)));
    ended.err().map(|it| match it.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => other.downcast::<&str>().map_or_else(|_| "a panic".to_owned(), |it| (*it).to_owned()),
    })
}

#[test]
fn every_mutant_is_noticed() {
    for (missing, check, message) in MUTANTS {
        let reported = run(check, Some(missing));
        assert!(
            reported.as_ref().is_some_and(|it| it.contains(message)),
            "{check:?} without {missing:?}: {reported:?}"
        );
    }
    for check in [
        Check::Answers,
        Check::LateRequest,
        Check::LeaderLoss,
        Check::Fence,
        Check::Pools,
        Check::Within,
        Check::AnswersWithoutSpace,
    ] {
        assert_eq!(run(check, None), None, "{check:?} fails without a bug");
    }
}
