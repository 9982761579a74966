//! Periodic work: deletes expired objects and compacts the history.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future;
use jiff::Timestamp;
use muster_store::{HistoryWindow, Precondition, Revision, StoredObject};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::fence::LeaderFence;
use super::{ObjectCommit, ObjectStorage};
use crate::kinds::ServedKinds;
use crate::request::{RequestContext, RequestTarget};
use crate::subresource::Subresource;
use crate::unstructured::{self, str_at};

/// Maximum number and size of the commits in the history, from which a watch can resume. 5,000 nodes that renew their
/// Leases every ten seconds cause 500 small commits per second, so the history then contains the commits of about two
/// minutes. In a cluster with few commits, `HISTORY_AGE_MAX` limits the history first.
pub(crate) const HISTORY_WINDOW: HistoryWindow = HistoryWindow { events_max: 65_536, bytes_max: 64 << 20 };

/// Maximum age of the commits in the history. Older commits, except the last `HISTORY_COMMITS_MIN`, are compacted even
/// if the history is below the limits of `HISTORY_WINDOW`. A client that was disconnected for longer may have to list
/// again.
const HISTORY_AGE_MAX: Duration = Duration::from_secs(10 * 60);

/// Number of most recent commits that stay in the history even if they are older than `HISTORY_AGE_MAX`. In a cluster
/// with few commits, a watch can therefore resume after hours.
const HISTORY_COMMITS_MIN: usize = 1024;

/// Interval at which [`run_housekeeping`] compacts the history and deletes expired objects.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of expired objects that are deleted in one batch. Many Events may expire at the same time, an hour
/// after they were last written. Their deletion must not block other clients.
const EXPIRED_OBJECTS_BATCH_MAX: usize = 256;

/// Compacts old history and deletes expired objects periodically, until `stop` is cancelled.
pub(crate) async fn run_housekeeping(storage: Arc<ObjectStorage>, stop: CancellationToken) {
    let mut marks = VecDeque::new();
    let mut rounds = tokio::time::interval(HOUSEKEEPING_INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(rounds.tick()).await.is_some() {
        storage.compact_old_history(&mut marks, Instant::now());
        while storage.delete_expired(Timestamp::now()).await == EXPIRED_OBJECTS_BATCH_MAX
            && !stop.is_cancelled()
        {}
    }
}

impl ObjectStorage {
    /// Compacts the commits that are older than `HISTORY_AGE_MAX`, except for the last `HISTORY_COMMITS_MIN`. Commits
    /// contain no time, so `marks` records the current revision at the time of each call. Each call appends `now` and
    /// the current revision, and removes the entries older than `HISTORY_AGE_MAX`.
    fn compact_old_history(&self, marks: &mut VecDeque<(Instant, Revision)>, now: Instant) {
        let head = self.revision();
        marks.push_back((now, head));
        let mut compacted = None;
        while let Some((_, revision)) = marks.pop_front_if(|it| HISTORY_AGE_MAX < now - it.0) {
            compacted = Some(revision);
        }
        if let Some(compacted) = compacted {
            let compacted = compacted.min(self.read_store().max_compaction_revision(HISTORY_COMMITS_MIN));
            self.db.compact(compacted, LeaderFence::current());
        }
    }

    /// Deletes one batch of objects whose TTL has expired, and returns their number. Returns 0 if a delete failed, so
    /// that the caller waits for the next round.
    async fn delete_expired(&self, now: Timestamp) -> usize {
        let now_s = u64::try_from(now.as_second()).unwrap_or(0);
        let expired: Vec<(RequestTarget, Revision)> = {
            let (kinds, store) = (self.kinds.served(), self.read_store());
            let served = store
                .expired_objects(now_s)
                .filter_map(|it| Some((target_of_stored_object(&kinds, it)?, it.modified)));
            served.take(EXPIRED_OBJECTS_BATCH_MAX).collect()
        };
        let context = RequestContext::for_server("delete", now);
        // Concurrent deletes share one fsync. An object that was updated in the meantime stays.
        let all = expired.iter().map(|(target, modified)| {
            self.commit(&context, target, Precondition::At(*modified), ObjectCommit::Delete)
        });
        let refused = future::join_all(all).await.into_iter().filter(Result::is_err).count();
        if 0 < refused {
            tracing::warn!(refused, "cannot delete some expired objects");
        }
        // After a failure the next round tries again.
        if refused == 0 { expired.len() } else { 0 }
    }
}

/// Returns the request target of a stored object, or `None` if its kind is not served.
fn target_of_stored_object(kinds: &ServedKinds, record: &StoredObject) -> Option<RequestTarget> {
    let object = unstructured::parse_stored(&record.value);
    let resource = record.key.split('/').next()?;
    let kind = kinds.find_stored(resource)?;
    let namespace = kind.namespaced.then(|| str_at(&object, "metadata.namespace").to_owned());
    let name = str_at(&object, "metadata.name").to_owned();
    Some(RequestTarget { kind, namespace, name, subresource: Subresource::Whole })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Kind;
    use crate::registry::Registry;

    #[tokio::test]
    async fn events_live_for_an_hour_after_their_last_write() {
        let registry = Registry::new(100);
        let begin = registry.storage.revision();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let kind = Kind::builtin("", "v1", "events");
        crate::bootstrap::ensure_test_objects(&registry, at("2026-01-01T00:00:00Z")).await.unwrap();
        for name in ["a", "b"] {
            let context = RequestContext::for_server("create", at("2026-01-01T00:00:00Z"));
            let event = json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}});
            registry.create(&context, kind, Some("default"), event).await.unwrap();
        }
        let context = RequestContext::for_server("update", at("2026-01-01T00:30:00Z"));
        let again = RequestTarget {
            kind,
            namespace: Some("default".into()),
            name: "b".into(),
            subresource: Subresource::Whole,
        };
        let counted = |old: &serde_json::Value| {
            let mut new = old.clone();
            new["count"] = json!(2);
            Ok(new)
        };
        registry.update(&context, &again, counted).await.unwrap();
        let left = || {
            registry
                .storage
                .read_store()
                .list("events/")
                .map(|it| it.key.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };

        registry.storage.delete_expired(at("2026-01-01T00:59:59Z")).await;
        assert_eq!(left(), "events/default/a events/default/b");
        registry.storage.delete_expired(at("2026-01-01T01:00:00Z")).await;
        assert_eq!(left(), "events/default/b");
        // The event has the revision of the deletion.
        let head = registry.storage.revision();
        let (events, _) = registry.storage.events_since("events/", begin).unwrap();
        assert_eq!(
            unstructured::parse_stored(events.last().unwrap().latest_value())["metadata"]["resourceVersion"],
            head.to_string()
        );
        registry.storage.delete_expired(at("2026-01-01T01:30:00Z")).await;
        assert_eq!(left(), "");
    }

    #[tokio::test]
    async fn old_history_is_compacted_except_the_last_commits() {
        let registry = Registry::new(usize::MAX);
        let context = RequestContext::for_server("create", Timestamp::UNIX_EPOCH);
        let (mut marks, start) = (VecDeque::new(), Instant::now());
        // The last revision of each minute, after that of the empty store.
        let mut ends = vec![registry.storage.revision()];
        let mut compacted_revisions = Vec::new();
        for minute in 0..14 {
            for _ in 0..200 {
                let object = json!({"metadata": {"generateName": "n-"}});
                registry.create(&context, Kind::namespace_kind(), None, object).await.unwrap();
            }
            ends.push(registry.storage.revision());
            registry.storage.compact_old_history(&mut marks, start + Duration::from_secs(60 * minute));
            // A backend may compact later than it returns, but before a read barrier that follows.
            registry.storage.wait_until_fresh().await.unwrap();
            compacted_revisions.push(registry.storage.read_store().compacted_revision());
        }
        // After eleven minutes the commits of the first are too old, and those of the second after twelve.
        let begin = [ends[0]; 11];
        assert_eq!(compacted_revisions, [&begin[..], &ends[1..4]].concat());
    }
}
