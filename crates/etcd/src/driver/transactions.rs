//! Builds transactions from the queued commits, and handles the outcomes of the transactions.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use muster_store::{CommitConflict, CommitError, Precondition};
use tokio::time::Instant;

use super::waiting_callers::WaitingCallers;
use super::{Completion, Driver};
use crate::api::{EtcdApi, EtcdError};
use crate::batch::{
    Batch, BatchBuilder, BatchUsage, QueuedCommit, check_preconditions, expected_revisions, fence_bound,
    needs_quota, written_keys,
};
use crate::lane::{self, Lane, LaneOutcome};
use crate::proto::TxnResponse;

/// Minimum time before the deadline of a commit at which its transaction may still start. A later start would more
/// often leave the outcome unknown, for this commit and for the other commits in the transaction.
const TRANSACTION_START_MARGIN: Duration = Duration::from_millis(500);

/// Number of refused transactions after which a commit gets a transaction of its own. etcd may have refused them
/// because of the other commits in them.
const OWN_TRANSACTION_AFTER_REFUSALS: u32 = 2;

/// The state of a [lane](crate::lane) of this server.
pub(super) enum LaneState {
    /// No transaction is in progress.
    Free(Lane),
    /// A transaction with these commits is in progress. If etcd applies it, its etcd revision is above `after`.
    Busy { commits: Vec<QueuedCommit>, after: i64 },
    /// The last transaction in this lane had no response, and may still be applied. The lane is being moved on: its key
    /// is written again ([`Lane::advance`]). After that, the transaction cannot be applied any more, and the lane is
    /// free.
    Blocked,
}

impl<A: EtcdApi> Driver<A> {
    /// Starts a transaction in every free lane, as long as there are commits that can be written now.
    pub(super) fn start_transactions(&mut self) {
        while !self.queue.is_empty()
            && let Some(number) = self.lanes.iter().position(|it| matches!(it, LaneState::Free(_)))
        {
            let Some(Batch { commits, pools, request }) = self.next_batch() else { return };
            let deadline = commits.iter().map(|it| it.deadline).min().expect("a batch has commits");
            self.pools.begin_transaction(&pools);
            self.keys_in_progress.extend(commits.iter().flat_map(|it| written_keys(&it.commit)).cloned());
            let busy = LaneState::Busy { commits, after: self.applied };
            let LaneState::Free(lane) = std::mem::replace(&mut self.lanes[number], busy) else {
                unreachable!("the lane is free");
            };
            let (api, lanes) = (self.api.clone(), self.keys.lanes());
            self.operations.push(Box::pin(async move {
                let (used, outcome) = lane.execute(&*api, &lanes, request, deadline).await;
                Completion::Transaction { number, used, pools, outcome }
            }));
        }
    }

    /// Takes commits from the queue and builds their transaction. Answers the commits that the published state already
    /// refuses. Returns `None` if no commit can be written now.
    ///
    /// Rule: commits to one key are written in order. A commit waits while a transaction in progress writes its key,
    /// its namespace or its [allocation pool](crate::allocation_pool), because etcd may apply the transactions of two
    /// lanes in any order. It also waits while an earlier commit to its key or its namespace is in this batch or waits.
    /// A commit also stays in the queue if it does not fit into the batch, if it needs a transaction of its own and the
    /// batch is not empty, or if less than [`TRANSACTION_START_MARGIN`] is left until its deadline.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        let published = self.published.clone();
        let store = published.read();
        let mut batch = BatchBuilder::default();
        let mut rest = VecDeque::new();
        let mut refused = Vec::new();
        // Keys of this batch, and of commits that must wait.
        let mut blocked = HashSet::new();
        let mut usage = BatchUsage { bytes: store.usage().total_bytes(), namespaces: HashMap::new() };
        while let Some(queued) = self.queue.pop_front() {
            let commit = &queued.commit;
            let is_blocked = |key: &str| self.keys_in_progress.contains(key) || blocked.contains(key);
            let waits = written_keys(commit).any(|it| is_blocked(it))
                || commit.within.as_ref().is_some_and(|(key, _)| is_blocked(key))
                || commit.allocation.as_ref().is_some_and(|it| self.pools.is_pool_being_written(it));
            let is_alone = OWN_TRANSACTION_AFTER_REFUSALS <= queued.refusals;
            let waits = waits || queued.deadline < Instant::now() + TRANSACTION_START_MARGIN;
            if waits || batch.is_full() || (is_alone && !batch.commits.is_empty()) {
                blocked.extend(written_keys(commit).cloned());
                rest.push_back(queued);
                continue;
            }
            let before = store.get(&commit.key);
            let checked =
                check_preconditions(commit, before, |key| store.get(key)).map_err(CommitError::from);
            let checked = checked.and_then(|()| usage.check(&self.limits, &store, commit, before));
            let bound = commit
                .allocation
                .as_ref()
                .map(|it| Ok((it.pool, self.pools.revision_bound(&self.keys, it)?)));
            let checked = checked.and_then(|()| bound.transpose().map_err(|it: CommitConflict| it.into()));
            let bound = match checked {
                Ok(bound) => bound,
                Err(error) => {
                    refused.push((queued, error));
                    continue;
                }
            };
            blocked.extend(written_keys(commit).cloned());
            if !batch.fits(&self.keys, commit) {
                rest.push_back(queued);
                continue;
            }
            if let Err(refusal) = batch.add(&self.keys, &self.codec, queued, |key| store.get(key)) {
                refused.push(*refusal);
                continue;
            }
            if let Some((pool, bound)) = bound {
                batch.add_pool_condition(pool, bound);
            }
            if is_alone {
                break;
            }
        }
        rest.append(&mut self.queue);
        self.queue = rest;
        drop(store);
        for (queued, error) in refused {
            self.answer(queued, Err(error));
        }
        batch.build(&self.keys, self.source_revision)
    }

    /// Frees the lane of a transaction. If the outcome is not known, the lane stays blocked until its key was written
    /// again ([`Lane::advance`]), so that the transaction can no longer be applied. Answers the commits of the
    /// transaction, makes them wait for their events, or queues them again.
    pub(super) fn handle_transaction_outcome(&mut self, number: usize, used: Lane, outcome: LaneOutcome) {
        let next = match &outcome {
            LaneOutcome::Applied { revision } => Some(*revision),
            LaneOutcome::Refused { lane_revision, .. } => Some(*lane_revision),
            LaneOutcome::Rejected { .. } => Some(used.revision),
            LaneOutcome::Unknown { .. } => None,
        };
        let LaneState::Busy { commits, .. } = std::mem::replace(&mut self.lanes[number], LaneState::Blocked)
        else {
            unreachable!("a transaction was in progress");
        };
        match next {
            Some(revision) => self.free_lane(number, used, revision),
            None => {
                let api = self.api.clone();
                self.operations.push(Box::pin(async move {
                    let revision = used.advance(&*api).await;
                    Completion::LaneFree { used, revision, number }
                }));
            }
        }
        for key in commits.iter().flat_map(|it| written_keys(&it.commit)) {
            self.keys_in_progress.remove(key);
        }
        match outcome {
            LaneOutcome::Applied { revision } => {
                self.wait_until_applied(revision, WaitingCallers::Applied { commits });
            }
            LaneOutcome::Refused { response, .. } => self.handle_refusal(commits, &response),
            LaneOutcome::Rejected { error: EtcdError::Rejected { .. } } if 1 < commits.len() => {
                // One of the commits may be the reason. They are written one by one.
                for it in commits.into_iter().rev() {
                    self.queue.push_front(QueuedCommit { refusals: OWN_TRANSACTION_AFTER_REFUSALS, ..it });
                }
            }
            LaneOutcome::Rejected { error: EtcdError::NoSpace } => self.handle_no_space(commits),
            // No member could execute the transaction. Those that have more time are sent again.
            LaneOutcome::Rejected { error } if !error.is_final() => {
                let now = Instant::now();
                for it in commits.into_iter().rev() {
                    match now < it.deadline {
                        true => self.queue.push_front(it),
                        false => self.answer(it, Err(CommitError::Unavailable { why: error.to_string() })),
                    }
                }
            }
            LaneOutcome::Rejected { error } => {
                self.answer_all(commits, &CommitError::Unavailable { why: error.to_string() });
            }
            LaneOutcome::Unknown { error } => {
                self.answer_all(commits, &CommitError::OutcomeUnknown { why: error.to_string() });
            }
        }
    }

    /// Makes the lane with the index `number` available for the next transaction. `used` is the lane as the last
    /// transaction compared it, and `revision` is the etcd revision of its key now.
    ///
    /// Rule: only this server writes its lanes, and a deleted lane key has revision 0. So if the key has an earlier
    /// revision than this server knows, etcd was restored from a snapshot, and all objects must be loaded again.
    /// Otherwise a server that was suspended during the restore would not notice it when the restored etcd has reached
    /// the revision of this server again. Exception: all objects were loaded since the server last wrote the lane.
    pub(super) fn free_lane(&mut self, number: usize, used: Lane, revision: i64) {
        let known = used.revision;
        self.lanes[number] = LaneState::Free(used.moved_to(revision));
        if 0 < revision && revision < known && self.reloaded < known {
            tracing::error!(
                known,
                revision,
                "a key that only this server writes has an earlier revision than before, so etcd was restored from a \
                 snapshot: loading all objects again"
            );
            self.reload(|it| it.reloads_after_loss += 1);
        }
    }

    /// Handles a transaction that etcd did not apply because it has no space. Answers the commits other than deletions
    /// with an error. Queues the deletions again, because etcd accepts a transaction that only deletes. Exception: if
    /// all commits are deletions, answers all with the error.
    pub(super) fn handle_no_space(&mut self, commits: Vec<QueuedCommit>) {
        let are_deletes = commits.iter().all(|it| !needs_quota(&it.commit));
        for mut it in commits.into_iter().rev() {
            if are_deletes || needs_quota(&it.commit) {
                let why = EtcdError::NoSpace.to_string();
                self.answer(it, Err(CommitError::StorageFull { why }));
                continue;
            }
            it.refusals = OWN_TRANSACTION_AFTER_REFUSALS;
            self.queue.push_front(it);
        }
    }

    /// Handles a transaction that etcd refused because a compare failed. Each commit is handled by the first case that
    /// applies to it:
    /// - Its fence no longer holds, or its preconditions hold but its allocation pool was written in the meantime:
    ///   answers the commit with this conflict.
    /// - Its preconditions hold: queues the commit again, because another commit was the reason. After a restore,
    ///   queues it only when the found changes are published.
    /// - A precondition failed and [`Commit::expect`](muster_store::Commit) is [`Precondition::Any`]: queues the commit
    ///   again when the changed state is published, because etcd would refuse it again before.
    /// - A precondition failed otherwise: answers the commit with this conflict.
    ///
    /// A commit with a conflict is answered only after the state that refused it is published.
    pub(super) fn handle_refusal(&mut self, commits: Vec<QueuedCommit>, response: &TxnResponse) {
        let found: HashMap<Bytes, i64> = (0..response.responses.len())
            .flat_map(|it| lane::found_keys(response, it))
            .map(|it| (it.key.clone(), it.mod_revision))
            .collect();
        let last_write = lane::last_write_revision(response);
        // A restore has begun or ended, or the settings were changed. This server ends when its watch says so.
        let is_restored = found.contains_key(&self.keys.restoring_key())
            || found.get(&self.keys.source_key()).copied().unwrap_or(0) != self.source_revision;
        let last_found = found.values().copied().max().unwrap_or(0);
        for mut it in commits.into_iter().rev() {
            let before = self.published.read().get(&it.commit.key).cloned();
            let conflict = expected_revisions(&self.keys, &it.commit, before.as_ref())
                .into_iter()
                .find(|(key, expected)| found.get(key).copied().unwrap_or(0) != *expected);
            let is_allocated = it.commit.allocation.as_ref().is_some_and(|allocation| {
                let written =
                    found.get(&self.keys.allocation_pool_key(allocation.pool)).copied().unwrap_or(0);
                self.pools.revision_bound(&self.keys, allocation).is_ok_and(|bound| bound < written)
            });
            let is_fenced = fence_bound(&self.keys, it.commit.fence.as_ref())
                .is_some_and(|(key, bound)| bound < found.get(&key).copied().unwrap_or(0));
            let refusal = match conflict {
                _ if is_fenced => Some(CommitConflict::Fenced),
                None if is_allocated => Some(CommitConflict::Allocated),
                _ => None,
            };
            if let Some(refusal) = refusal {
                let (commit, error) = (Box::new(it), refusal.into());
                self.wait_until_applied(last_write, WaitingCallers::Refused { commit, error });
                continue;
            }
            it.refusals += 1;
            match conflict {
                None if !is_restored => self.queue.push_front(it),
                None => self.wait_until_applied(last_found, WaitingCallers::Retry { commit: Box::new(it) }),
                Some(_) if it.commit.expect == Precondition::Any => {
                    self.wait_until_applied(last_found, WaitingCallers::Retry { commit: Box::new(it) });
                }
                // The caller is answered after it can read the state that refused its commit.
                Some((key, _)) => {
                    let error = match found.get(&key) {
                        None => CommitConflict::Missing,
                        Some(at) => {
                            let at = self.keys.resource_version(*at, 0);
                            match it.commit.expect {
                                Precondition::Absent if key == self.keys.object_key(&it.commit.key) => {
                                    CommitConflict::Exists { at }
                                }
                                _ => CommitConflict::Modified { at },
                            }
                        }
                    };
                    let (commit, error) = (Box::new(it), error.into());
                    self.wait_until_applied(last_write, WaitingCallers::Refused { commit, error });
                }
            }
        }
    }
}
