//! Wakes watches after commits. A watch is woken only by commits that may concern it.
//!
//! A watch of one object, or of the pods of one node, is woken only by commits to that object or those pods. Thousands
//! of agents have such watches. If every commit to a pod woke all of these watches, the cost of a rollout would grow
//! with the square of the cluster's size.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use muster_store::{CommitEvent, KeyChange, Revision, StoredObject};
use tokio::sync::watch;

use crate::kinds::Kind;
use crate::selector::ObjectSelector;

/// The resource whose objects are divided into shards, and the field whose value is the shard of an object: the pods of
/// one node are one shard. Many clients watch pods with a field selector for one node. Each of them is woken only by
/// commits to the pods of that node.
const SHARDED_FIELD: (&str, &str) = ("pods", "spec.nodeName");

/// Maximum number of commits whose revisions a [`Topic`] keeps. A watch that is behind by more commits cannot skip the
/// commits that do not concern it.
const TOPIC_COMMITS_MAX: usize = 16;

/// Wakes watches after a commit. A watch waits for commits to a kind, to one object or to a shard (the pods of one
/// node).
#[derive(Debug)]
pub(super) struct WatchNotifier {
    /// The revision of the last commit.
    pub(super) last_revision: watch::Sender<Revision>,
    /// The revision of the last commit to each kind since the server started, or 0. The key is the resource of the
    /// storage version, such as `daemonsets.apps`. A kind has an entry from its first commit or its first watch on, so
    /// that this map needs no list of the served kinds, which can change.
    kinds: RwLock<HashMap<String, watch::Sender<Revision>>>,
    /// The objects and shards that are watched.
    topics: Mutex<Topics>,
}

/// All topics. A topic is a single object or a shard (the pods of one node) with at least one watch.
#[derive(Debug, Default)]
struct Topics {
    /// Topics by name. The name is the store key of an object, or for a shard the result of [`shard_topic_name`].
    by_name: HashMap<String, Topic>,
    /// Revision of the last commit that the topics were notified of.
    notified: Revision,
}

/// One object, or one shard (the pods of one node), with at least one watch.
#[derive(Debug)]
struct Topic {
    /// Channel with the last commits to the object or shard.
    commits: watch::Sender<TopicCommits>,
    /// Number of subscriptions to the topic.
    watchers: usize,
}

/// The revisions of the last commits to a topic.
#[derive(Debug)]
struct TopicCommits {
    /// Revision after which `revisions` is complete: it contains every later commit to the topic.
    since: Revision,
    /// Revisions of the last commits to the topic, in order.
    revisions: VecDeque<Revision>,
}

/// The subscription of a watch to the commits that may concern it.
#[derive(Debug)]
pub(crate) struct Subscription(SubscriptionSource);

/// The commits that a subscription is notified of.
#[derive(Debug)]
enum SubscriptionSource {
    /// All commits to a kind. The value of the channel is the revision of the last one.
    Kind(watch::Receiver<Revision>),
    /// The commits to one object or shard. `name` is the name of its topic.
    Topic { notifier: Arc<WatchNotifier>, name: String, commits: watch::Receiver<TopicCommits> },
}

impl WatchNotifier {
    pub(super) fn new() -> Self {
        Self { last_revision: watch::Sender::new(0), kinds: RwLock::default(), topics: Mutex::default() }
    }

    /// Sets the revision that the store has when it is opened.
    pub(super) fn set_initial_revision(&self, revision: Revision) {
        self.lock_topics().notified = revision;
        self.last_revision.send_replace(revision);
    }

    /// Returns the revision of the last commit to a kind since the server started, or 0.
    pub(super) fn kind_revision(&self, kind: &Kind) -> Revision {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        kinds.get(&kind.storage_kind().group_resource()).map_or(0, |it| *it.borrow())
    }

    /// Returns a channel with the revision of the last commit to a kind since the server started.
    pub(super) fn watch_kind(&self, kind: &Kind) -> watch::Receiver<Revision> {
        self.watch_resource(kind.storage_kind().group_resource())
    }

    /// Returns a channel with the revision of the last commit to a resource, such as `daemonsets.apps`.
    fn watch_resource(&self, resource: String) -> watch::Receiver<Revision> {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = kinds.get(&resource) {
            return sender.subscribe();
        }
        drop(kinds);
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        kinds.entry(resource).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    /// Sets the revision of the last commit to a resource, such as `daemonsets.apps`.
    fn notify_resource(&self, resource: &str, revision: Revision) {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = kinds.get(resource) {
            sender.send_replace(revision);
            return;
        }
        drop(kinds);
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        kinds.entry(resource.to_owned()).or_insert_with(|| watch::Sender::new(0)).send_replace(revision);
    }

    /// Ends all subscriptions to a kind that is no longer served, and to its objects.
    pub(super) fn end_subscriptions(&self, kind: &Kind) {
        let resource = kind.storage_kind().group_resource();
        self.kinds.write().unwrap_or_else(PoisonError::into_inner).remove(&resource);
        let mut topics = self.lock_topics();
        let since = topics.notified;
        let is_of_kind = |name: &str| name.strip_prefix(&*resource).is_some_and(|it| it.starts_with('/'));
        // The topic itself stays, because each of its subscriptions counts down `watchers` when it is dropped.
        for (_, topic) in topics.by_name.iter_mut().filter(|it| is_of_kind(it.0)) {
            topic.commits = watch::Sender::new(TopicCommits { since, revisions: VecDeque::new() });
        }
    }

    /// Subscribes a watch of this kind. `key` is the store key of the object for a watch of one object, and otherwise
    /// `None`.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        kind: &Kind,
        key: Option<&str>,
        selector: &ObjectSelector,
    ) -> Subscription {
        let resource = kind.storage_kind().group_resource();
        let shard_of = |value| (resource == SHARDED_FIELD.0).then(|| shard_topic_name(value));
        let Some(name) =
            key.map(str::to_owned).or_else(|| shard_of(selector.required_value(SHARDED_FIELD.1)?))
        else {
            return Subscription(SubscriptionSource::Kind(self.watch_resource(resource)));
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

    /// Notifies the topics and the kinds that a batch of commits concerns. Each kind is notified once, with the
    /// revision of its last commit.
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
            self.notify_resource(resource, revision);
        }
        // Last, so that every topic has been notified of the revision that is published here.
        self.last_revision.send_replace(last.revision);
    }

    fn lock_topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Topics {
    /// Notifies the topics that a commit concerns: the changed object, and the shards to which it belonged before and
    /// after the commit.
    fn notify_commit(&self, event: &CommitEvent) {
        let notify = |name: &str| {
            if let Some(topic) = self.by_name.get(name) {
                topic.commits.send_modify(|it| it.push(event.revision));
            }
        };
        notify(&event.key);
        if resource_of_event(event) == SHARDED_FIELD.0 {
            let shard_of =
                |it: &StoredObject| shard_topic_name(it.index.field(SHARDED_FIELD.1).unwrap_or_default());
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
    /// Adds the revision of a commit. If there are already `TOPIC_COMMITS_MAX` revisions, removes the oldest one.
    fn push(&mut self, revision: Revision) {
        if self.revisions.len() == TOPIC_COMMITS_MAX {
            self.since = self.revisions.pop_front().unwrap_or(self.since);
        }
        self.revisions.push_back(revision);
    }
}

impl Subscription {
    /// Marks all commits so far as seen, so that [`Subscription::wait_for_commit`] waits for a later one. Like
    /// `mark_unchanged` of a tokio watch channel.
    pub(crate) fn mark_unchanged(&mut self) {
        match &mut self.0 {
            SubscriptionSource::Kind(head) => head.mark_unchanged(),
            SubscriptionSource::Topic { commits, .. } => commits.mark_unchanged(),
        }
    }

    /// Waits for the next commit that may concern the watch. Returns `None` if the kind is no longer served, or if the
    /// [`WatchNotifier`] was dropped.
    pub(crate) async fn wait_for_commit(&mut self) -> Option<()> {
        match &mut self.0 {
            SubscriptionSource::Kind(head) => head.changed().await.ok(),
            SubscriptionSource::Topic { commits, .. } => commits.changed().await.ok(),
        }
    }

    /// Returns the revision up to which the watch can skip commits: no commit after `seen` and up to this revision
    /// concerns the watch. Returns `seen` if no commit can be skipped. `seen` is the revision up to which the watch has
    /// sent all changes.
    pub(crate) fn skippable_revision(&self, seen: Revision) -> Revision {
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

/// Returns the resource of the changed object, such as `daemonsets.apps`: the first segment of its store key.
fn resource_of_event(event: &CommitEvent) -> &str {
    event.key.split('/').next().unwrap_or_default()
}

/// Returns the name of the topic of a shard, such as `pods?n1` for the pods of the node `n1`. It differs from all store
/// keys, because no resource name contains a question mark.
fn shard_topic_name(value: &str) -> String {
    format!("{}?{value}", SHARDED_FIELD.0)
}
