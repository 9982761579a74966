//! Callers that wait for events of the watch, and the answers to callers whose deadline is over.

use std::sync::atomic::AtomicUsize;

use muster_store::{CommitError, LogError, ReadBarrierError};
use tokio::time::Instant;

use super::read_barrier::BarrierCaller;
use super::transactions::LaneState;
use super::{Driver, answer};
use crate::api::EtcdApi;
use crate::batch::{QueuedCommit, written_keys};

/// Callers that wait until all events up to an etcd revision are published. Then they are answered. Exception: the
/// commit of [`WaitingCallers::Retry`] is queued again.
pub(super) enum WaitingCallers {
    /// The commits of an applied transaction, in the order of their operations. Some of them may have been answered
    /// already.
    Applied { commits: Vec<QueuedCommit> },
    /// A commit that etcd refused, because one of its preconditions does not hold.
    Refused { commit: Box<QueuedCommit>, error: CommitError },
    /// A commit that etcd refused because of a change that this server has not published yet. The commit does not
    /// depend on the changed state, so it is queued again when the change is published.
    Retry { commit: Box<QueuedCommit> },
    /// A caller of the read barrier.
    Barrier(BarrierCaller),
}

impl<A: EtcdApi> Driver<A> {
    /// Registers the callers to be answered when all events up to the etcd revision `revision` are published. Answers
    /// them at once if that is already the case.
    pub(super) fn wait_until_applied(&mut self, revision: i64, waiting: WaitingCallers) {
        self.waiting.entry(revision).or_default().push(waiting);
        self.answer_applied();
    }

    /// Answers the callers whose events are published now, and queues commits to retry again. Removes the events in
    /// `own_events` that no caller can need any more.
    pub(super) fn answer_applied(&mut self) {
        while let Some(entry) = self.waiting.first_entry().filter(|it| *it.key() <= self.applied) {
            let (revision, callers) = entry.remove_entry();
            for it in callers {
                match it {
                    WaitingCallers::Applied { commits } => self.answer_committed(revision, commits),
                    WaitingCallers::Refused { commit, error } => self.answer(*commit, Err(error)),
                    WaitingCallers::Retry { commit } => self.queue.push_front(*commit),
                    WaitingCallers::Barrier(caller) => {
                        // No object was written between the last write that the barrier read and its read.
                        self.published.skip_to_revision(caller.revision);
                        (caller.done)(Ok(()));
                    }
                }
            }
        }
        // The events of a transaction remain here if it had no response, or if its callers were answered at their
        // deadline.
        let waiting = self.waiting.first_key_value().map(|it| *it.0);
        let begun = self.lanes.iter().filter_map(|it| match it {
            LaneState::Busy { after, .. } => Some(after + 1),
            LaneState::Free(_) | LaneState::Blocked => None,
        });
        let oldest = begun.chain(waiting).min().unwrap_or(self.applied + 1);
        self.own_events = self.own_events.split_off(&oldest);
    }

    /// Answers the commits of a transaction that was applied at `revision`. If the published events of this revision
    /// are not those of the commits, the answer is [`CommitError::OutcomeUnknown`]. In that case also starts a reload,
    /// unless the events are missing because all objects were loaded at a later revision.
    pub(super) fn answer_committed(&mut self, revision: i64, commits: Vec<QueuedCommit>) {
        let events = self.own_events.remove(&revision).unwrap_or_default();
        let written = commits.iter().flat_map(|it| written_keys(&it.commit));
        if !written.eq(events.iter().map(|it| &*it.key)) {
            let why = "it was made, but all objects are loaded again".to_owned();
            self.answer_all(commits, &CommitError::OutcomeUnknown { why });
            // The events up to a reload are not known.
            if self.reloaded < revision {
                self.reload_after_loss(&format!(
                    "an own transaction at revision {revision} has other events"
                ));
            }
            return;
        }
        let mut events = events.into_iter();
        for queued in commits {
            let event = events.next().expect("a commit has an event");
            // The events of linked updates follow that of their commit.
            events.by_ref().take(queued.commit.linked.len()).for_each(drop);
            self.answer(queued, Ok(event));
        }
    }

    /// Answers the callers whose deadline is over, [`RESPONSE_TIMEOUT`] after they came. Returns whether one of them
    /// waited for events that the watch has not delivered.
    pub(super) fn fail_overdue(&mut self) -> bool {
        let now = Instant::now();
        let why = || "etcd did not respond in time: check etcd".to_owned();
        let (overdue, queue): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(|it| it.deadline <= now);
        self.queue = queue.into();
        self.answer_all(overdue, &CommitError::Unavailable { why: why() });
        // The callers of the read in progress may have waited for the read before it.
        for callers in self.barriers_in_progress.iter_mut().chain([&mut self.barriers]) {
            for it in callers.extract_if(.., |it| it.deadline <= now) {
                (it.done)(Err(ReadBarrierError { why: why() }));
            }
        }
        let mut lags = false;
        let waiting = std::mem::take(&mut self.waiting);
        for (revision, callers) in waiting {
            for it in callers {
                match it {
                    WaitingCallers::Barrier(caller) if caller.deadline <= now => {
                        lags = true;
                        let why = "the watch of etcd is behind: check etcd".to_owned();
                        (caller.done)(Err(ReadBarrierError { why }));
                    }
                    WaitingCallers::Applied { mut commits } => {
                        let why = "it was made, but the watch of etcd is behind".to_owned();
                        let error = CommitError::OutcomeUnknown { why };
                        lags |= answer_overdue(&mut commits, &self.queued, now, &error);
                        // The others need the events of all commits of the transaction.
                        if commits.iter().any(|it| it.done.is_some()) {
                            let waiting = WaitingCallers::Applied { commits };
                            self.waiting.entry(revision).or_default().push(waiting);
                        }
                    }
                    WaitingCallers::Refused { commit, error } if commit.deadline <= now => {
                        lags = true;
                        self.answer(*commit, Err(error));
                    }
                    WaitingCallers::Retry { commit } if commit.deadline <= now => {
                        lags = true;
                        let why = "the watch of etcd is behind".to_owned();
                        self.answer(*commit, Err(CommitError::Unavailable { why }));
                    }
                    it => self.waiting.entry(revision).or_default().push(it),
                }
            }
        }
        lags
    }

    /// Answers all callers with an error after the driver has ended. `failure` is the reason, or `None` if the backend
    /// was closed.
    pub(super) fn fail_all(&mut self, failure: Option<&LogError>) {
        let why = failure.map_or_else(|| "it was closed".to_owned(), ToString::to_string);
        let waiting = std::mem::take(&mut self.waiting).into_values().flatten();
        let mut commits: Vec<QueuedCommit> = std::mem::take(&mut self.queue).into();
        let mut barriers: Vec<BarrierCaller> = Vec::new();
        for it in std::mem::take(&mut self.lanes) {
            if let LaneState::Busy { commits: in_progress, .. } = it {
                commits.extend(in_progress);
            }
        }
        for it in waiting {
            match it {
                WaitingCallers::Applied { commits: applied } => commits.extend(applied),
                WaitingCallers::Refused { commit, .. } | WaitingCallers::Retry { commit } => {
                    commits.push(*commit);
                }
                WaitingCallers::Barrier(caller) => barriers.push(caller),
            }
        }
        barriers.append(&mut self.barriers);
        barriers.extend(self.barriers_in_progress.take().into_iter().flatten());
        self.answer_all(commits, &CommitError::Failed { why: why.clone() });
        for it in barriers {
            (it.done)(Err(ReadBarrierError { why: why.clone() }));
        }
    }
}

/// Answers the commits whose deadline is over with `error`, except those that were answered already. Returns whether it
/// has answered any.
pub(super) fn answer_overdue(
    commits: &mut [QueuedCommit],
    queued: &AtomicUsize,
    now: Instant,
    error: &CommitError,
) -> bool {
    let mut is_any = false;
    for commit in commits.iter_mut().filter(|it| it.done.is_some() && it.deadline <= now) {
        is_any = true;
        answer(commit, queued, Err(error.clone()));
    }
    is_any
}
