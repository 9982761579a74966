//! Reloads of all objects after the watch has lost events, and the consistency check that finds such losses.

use std::time::Duration;

use muster_store::{LogError, SyncStatistics};
use tokio::time::Instant;

use super::watch::EventSource;
use super::{Completion, Driver};
use crate::api::{EtcdApi, EtcdError};
use crate::consistency::{Differences, PublishedRevisions};
use crate::load::{self, LoadError, LoadedObjects};

/// Delay after a failed reload of all objects, before the next attempt.
const RELOAD_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Minimum time between two reloads. A reload reads the whole cluster, so a fault that recurs must not cause reloads
/// without a pause.
const RELOAD_INTERVAL_MIN: Duration = Duration::from_secs(10);

impl<A: EtcdApi> Driver<A> {
    /// Starts a reload because etcd has compacted events that this server has not seen.
    pub(super) fn reload_after_compaction(&mut self) {
        tracing::warn!(
            revision = self.applied,
            "etcd has compacted changes that this server has not seen, because it was stopped or cut off for too long: \
             loading all objects again"
        );
        self.reload(|it| it.reloads_after_compaction += 1);
    }

    /// Starts a reload because the watch has not delivered all events.
    pub(super) fn reload_after_loss(&mut self, why: &str) {
        tracing::error!(why, "the watch of etcd has lost events: loading all objects again");
        self.reload(|it| it.reloads_after_loss += 1);
    }

    /// Starts a reload, unless one is in progress. The reload begins to load when [`RELOAD_INTERVAL_MIN`] has passed
    /// since the last reload. No events are published until the reload ends. `count` increments the counter for the
    /// reason of the reload.
    pub(super) fn reload(&mut self, count: impl FnOnce(&mut SyncStatistics)) {
        if !matches!(self.source, EventSource::Reload(_)) {
            self.update_statistics(count);
            self.reload_at(self.reloaded_at.map(|it| it + RELOAD_INTERVAL_MIN));
        }
    }

    /// Starts to load all objects again at the time `begin`, or at once if it is `None`. Ends the watch. The published
    /// objects stay until the load ends.
    pub(super) fn reload_at(&mut self, begin: Option<Instant>) {
        self.fragments.clear();
        let (api, keys, codec) = (self.api.clone(), self.keys.clone(), self.codec.clone());
        let (window, followed, published) = (self.window, self.observed_revisions(), self.published.clone());
        self.source = EventSource::Reload(Box::pin(async move {
            if let Some(begin) = begin {
                tokio::time::sleep_until(begin).await;
            }
            load::load_again(&*api, keys, &codec, window, followed, &published).await
        }));
    }

    /// Publishes the objects that were loaded again, and opens the watch after their revision. If a call to etcd
    /// failed, loads again after a delay. Fails if this server can no longer follow etcd.
    ///
    /// Rule: the history begins with the reload, because the single changes before the reload are not known. Watches
    /// and paged lists that began before it get 410 Gone, and their clients list again.
    pub(super) fn handle_reload(&mut self, result: Result<LoadedObjects, LoadError>) -> Result<(), LogError> {
        let loaded = match result {
            Ok(loaded) => loaded,
            Err(LoadError::Etcd { source: EtcdError::Foreign { why } }) => {
                return Err(LogError::Remote { why });
            }
            Err(LoadError::Etcd { source: error }) => {
                tracing::warn!(%error, "cannot load all objects from etcd: retrying");
                self.reload_at(Some(Instant::now() + RELOAD_RETRY_DELAY));
                return Ok(());
            }
            Err(error) => return Err(LogError::Remote { why: error.to_string() }),
        };
        let changed = self.published.replace(loaded.store);
        (self.applied, self.reloaded) = (loaded.revision, loaded.revision);
        self.reloaded_at = Some(Instant::now());
        tracing::warn!(
            revision = loaded.revision,
            changed,
            "loaded all objects again: clients must list again"
        );
        self.open_watch();
        self.answer_applied();
        Ok(())
    }

    /// Starts a consistency check, which compares the published objects with those in etcd. Does nothing if a check or
    /// a reload is in progress.
    pub(super) fn start_check(&mut self) {
        if self.is_checking || matches!(self.source, EventSource::Reload(_)) {
            return;
        }
        self.is_checking = true;
        let published = PublishedRevisions::of(&self.published.read(), &self.keys, self.applied);
        let (api, keys, revision) = (self.api.clone(), self.keys.clone(), self.applied);
        self.operations.push(Box::pin(async move {
            Completion::Checked { revision, result: published.compare(&*api, &keys).await }
        }));
    }

    /// Counts the result of a consistency check, and starts a reload if objects differ. Ignores the result if all
    /// objects were loaded again since the check began. `revision` is the etcd revision of the compared objects.
    pub(super) fn handle_check(&mut self, revision: i64, result: Result<Differences, EtcdError>) {
        self.is_checking = false;
        match result {
            // The objects were loaded again during the check.
            _ if revision < self.reloaded => {}
            Ok(differences) if differences.count == 0 => {
                self.update_statistics(|it| it.checks_passed += 1);
            }
            Ok(Differences { count, keys }) => {
                self.update_statistics(|it| it.checks_failed += 1);
                let keys = keys.join(", ");
                self.reload_after_loss(&format!("{count} objects are different in etcd: {keys}"));
            }
            Err(error) => {
                self.update_statistics(|it| it.checks_with_error += 1);
                tracing::warn!(%error, "cannot compare the objects with those in etcd");
            }
        }
    }
}
