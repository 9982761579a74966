//! Wakes watches after commits. A watch is woken only by commits that may concern it.
//!
//! A watch of one object, or of the pods of one node, is woken only by commits to that object or those pods. Each of
//! thousands of node agents has such watches. If every pod woke all of them, the cost of a rollout would grow with the
//! square of the cluster's size.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_store::{CommitEvent, KeyChange, Revision, StoredObject};
use tokio::sync::watch;

use crate::kinds::{Kind, KindRegistry};
use crate::selector::ObjectSelector;

/// The resource and field by which watches are sharded. Many clients watch this resource, each with a field selector
/// for one value of the field. The objects with one value are a shard.
const SHARDED_FIELD: (&str, &str) = ("pods", "spec.nodeName");

/// Maximum number of commits that a topic remembers. A watch that is further behind reads the history of its kind.
const TOPIC_COMMITS_MAX: usize = 16;

/// Wakes the watches of a kind, of an object or of a shard after a commit.
#[derive(Debug)]
pub(super) struct WatchNotifier {
    pub(super) last_revision: watch::Sender<Revision>,
    /// The revision of the last commit to each kind, by resource, which is the first segment of store keys.
    kinds: HashMap<String, watch::Sender<Revision>>,
    topics: Mutex<Topics>,
}

/// The watched topics: single objects and shards of a kind.
#[derive(Debug, Default)]
struct Topics {
    /// Topics by the key of an object, or by the name of a [`shard_topic`].
    by_name: HashMap<String, Topic>,
    /// Revision up to which all topics have been notified of commits.
    notified: Revision,
}

/// One object or one shard, with at least one watch.
#[derive(Debug)]
struct Topic {
    commits: watch::Sender<TopicCommits>,
    watchers: usize,
}

/// The revisions of the last commits to a topic: all commits after the revision `since`.
#[derive(Debug)]
struct TopicCommits {
    since: Revision,
    revisions: VecDeque<Revision>,
}

/// The subscription of a watch to the commits that may concern it.
#[derive(Debug)]
pub(crate) struct Subscription(SubscriptionSource);

/// Where the commits of a subscription come from: a whole kind, or a topic.
#[derive(Debug)]
enum SubscriptionSource {
    Kind(watch::Receiver<Revision>),
    Topic { notifier: Arc<WatchNotifier>, name: String, commits: watch::Receiver<TopicCommits> },
}

impl WatchNotifier {
    pub(super) fn new(kinds: &KindRegistry) -> Self {
        let sender = || watch::Sender::new(0);
        Self {
            last_revision: sender(),
            kinds: kinds.served_kinds().map(|it| (it.resource(), sender())).collect(),
            topics: Mutex::default(),
        }
    }

    /// Sets the revision that the store has when it is opened.
    pub(super) fn set_initial_revision(&self, revision: Revision) {
        self.lock_topics().notified = revision;
        self.last_revision.send_replace(revision);
    }

    pub(super) fn kind_sender(&self, kind: &Kind) -> &watch::Sender<Revision> {
        self.kinds.get(&kind.storage_kind().resource()).unwrap_or(&self.last_revision)
    }

    /// Subscribes a watch of this kind. `key` is set for a watch of one object.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        kind: &Kind,
        key: Option<&str>,
        selector: &ObjectSelector,
    ) -> Subscription {
        let resource = kind.storage_kind().resource();
        let shard_of = |value| (resource == SHARDED_FIELD.0).then(|| shard_topic(value));
        let Some(name) =
            key.map(str::to_owned).or_else(|| shard_of(selector.required_value(SHARDED_FIELD.1)?))
        else {
            return Subscription(SubscriptionSource::Kind(self.kind_sender(kind).subscribe()));
        };
        let mut topics = self.lock_topics();
        let since = topics.notified;
        let topic = topics.by_name.entry(name.clone()).or_insert_with(|| Topic {
            commits: watch::Sender::new(TopicCommits { since, revisions: VecDeque::new() }),
            watchers: 0,
        });
        topic.watchers += 1;
        let commits = topic.commits.subscribe();
        drop(topics);
        Subscription(SubscriptionSource::Topic { notifier: self.clone(), name, commits })
    }

    /// Notifies topics and kinds of a batch of commits. Each kind is woken once, with the last of its commits.
    pub(super) fn notify_commits(&self, batch: &[Arc<CommitEvent>]) {
        let Some(last) = batch.last() else { return };
        let mut topics = self.lock_topics();
        if !topics.by_name.is_empty() {
            batch.iter().for_each(|it| topics.notify_commit(it));
        }
        topics.notified = last.revision;
        drop(topics);

        let mut last_revisions: Vec<(&str, Revision)> = Vec::new();
        for event in batch {
            let resource = resource_of_event(event);
            match last_revisions.iter_mut().find(|it| it.0 == resource) {
                Some(it) => it.1 = event.revision,
                None => last_revisions.push((resource, event.revision)),
            }
        }
        for (resource, revision) in last_revisions {
            if let Some(kind) = self.kinds.get(resource) {
                kind.send_replace(revision);
            }
        }
        // Last, so that every topic has been notified of the revision that is published here.
        self.last_revision.send_replace(last.revision);
    }

    fn lock_topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Topics {
    fn notify_commit(&self, event: &CommitEvent) {
        let notify = |name: &str| {
            if let Some(topic) = self.by_name.get(name) {
                topic.commits.send_modify(|it| it.push(event.revision));
            }
        };
        notify(&event.key);
        if resource_of_event(event) == SHARDED_FIELD.0 {
            let shard_of =
                |it: &StoredObject| shard_topic(it.index.field(SHARDED_FIELD.1).unwrap_or_default());
            let before = event.previous_object().map(|it| shard_of(it));
            let now = match &event.change {
                KeyChange::Put { now, .. } => Some(shard_of(now)),
                KeyChange::Delete { .. } => None,
            };
            // An object that moves between shards concerns both.
            before.iter().for_each(|it| notify(it));
            now.iter().filter(|it| before.as_ref() != Some(it)).for_each(|it| notify(it));
        }
    }
}

impl TopicCommits {
    fn push(&mut self, revision: Revision) {
        if self.revisions.len() == TOPIC_COMMITS_MAX {
            self.since = self.revisions.pop_front().unwrap_or(self.since);
        }
        self.revisions.push_back(revision);
    }
}

impl Subscription {
    pub(crate) fn mark_unchanged(&mut self) {
        match &mut self.0 {
            SubscriptionSource::Kind(head) => head.mark_unchanged(),
            SubscriptionSource::Topic { commits, .. } => commits.mark_unchanged(),
        }
    }

    /// Waits for a commit. Returns `None` if the store is closed.
    pub(crate) async fn wait_for_commit(&mut self) -> Option<()> {
        match &mut self.0 {
            SubscriptionSource::Kind(head) => head.changed().await.ok(),
            SubscriptionSource::Topic { commits, .. } => commits.changed().await.ok(),
        }
    }

    /// Returns the revision up to which no commit after `seen` concerns the watch, so that the watch can skip these
    /// commits. `seen` is the revision up to which the watch has sent all changes.
    pub(crate) fn skip_unrelated(&self, seen: Revision) -> Revision {
        let SubscriptionSource::Topic { notifier, commits, .. } = &self.0 else { return seen };
        // Read first: topics have been notified of every commit up to this revision.
        let notified = *notifier.last_revision.borrow();
        let commits = commits.borrow();
        if seen < commits.since {
            return seen;
        }
        match commits.revisions.iter().find(|it| seen < **it) {
            Some(next) => next - 1,
            None => notified.max(seen),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let SubscriptionSource::Topic { notifier, name, .. } = &self.0 else { return };
        let mut topics = notifier.lock_topics();
        if let Some(topic) = topics.by_name.get_mut(name) {
            topic.watchers -= 1;
            if topic.watchers == 0 {
                topics.by_name.remove(name);
            }
        }
    }
}

fn resource_of_event(event: &CommitEvent) -> &str {
    event.key.split('/').next().unwrap_or_default()
}

/// Name of the topic of a shard. The name differs from all store keys, because no resource contains a question mark.
fn shard_topic(value: &str) -> String {
    format!("{}?{value}", SHARDED_FIELD.0)
}
