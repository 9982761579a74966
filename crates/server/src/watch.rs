//! Watches: the changes of a kind, as one long answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use jiff::Timestamp;
use muster_store::{Change, Event, Record, Revision};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::convert;
use crate::kinds::Kind;
use crate::object;
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::selector::Selector;
use crate::view::View;

/// How often a quiet watch tells how far it has come, if asked to.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
    pub(crate) view: View,
    pub(crate) from: From,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// What there is, as if just added, and then the changes. A `WatchList` also says where the one ends
    /// and the other begins.
    State {
        say_end: bool,
    },
    /// The changes after this revision.
    After(Revision),
    Now,
}

/// The answer ends at the timeout, when the server stops, or when the watcher has fallen too far behind.
pub(crate) fn stream(
    registry: Arc<Registry>,
    wanted: Wanted,
    stop: CancellationToken,
) -> impl Stream<Item = Bytes> {
    let watcher = Watcher::new(registry, wanted, stop);
    futures::stream::unfold(watcher, |mut watcher| async move { Some((watcher.next().await?, watcher)) })
}

struct Watcher {
    registry: Arc<Registry>,
    wanted: Wanted,
    prefix: String,
    heads: watch::Receiver<Revision>,
    stop: CancellationToken,
    deadline: Instant,
    bookmarks: tokio::time::Interval,
    is_bookmark_due: bool,
    progress: Progress,
}

#[derive(Debug, Clone, Copy)]
enum Progress {
    Begin,
    /// Everything up to this revision has been sent.
    Seen(Revision),
    End,
}

impl Watcher {
    fn new(registry: Arc<Registry>, wanted: Wanted, stop: CancellationToken) -> Self {
        let now = Instant::now();
        let mut bookmarks = tokio::time::interval_at(now + BOOKMARK_EVERY, BOOKMARK_EVERY);
        bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            prefix: wanted.kind.prefix(wanted.namespace.as_deref()),
            heads: registry.heads_of(wanted.kind),
            deadline: now + wanted.timeout,
            registry,
            wanted,
            stop,
            bookmarks,
            is_bookmark_due: false,
            progress: Progress::Begin,
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let mut seen = match self.progress {
                Progress::End => return None,
                Progress::Seen(seen) => seen,
                Progress::Begin => match self.begin() {
                    frames if frames.is_empty() => continue,
                    frames => return Some(frames),
                },
            };
            // Marked as seen before the store is read, so that no commit falls in between unseen.
            self.heads.mark_unchanged();
            match self.registry.since(&self.prefix, seen) {
                Err(compacted) => {
                    self.progress = Progress::End;
                    let message = format!("too old resource version: {seen} ({})", compacted.floor);
                    return Some(frame("ERROR", &Refusal::expired(message).status()));
                }
                Ok((events, revision)) => {
                    // A watch may begin in the future, and must not fall back behind its beginning.
                    seen = revision.max(seen);
                    self.progress = Progress::Seen(seen);
                    let now = Timestamp::now();
                    let mut frames: Vec<Bytes> =
                        events.iter().filter_map(|it| self.frame_of(it, now)).collect();
                    match frames.len() {
                        0 if self.is_bookmark_due => {
                            self.is_bookmark_due = false;
                            return Some(self.bookmark(seen, false));
                        }
                        0 => {}
                        // The bytes that all watchers share.
                        1 => return frames.pop(),
                        _ => return Some(frames.concat().into()),
                    }
                }
            }
            tokio::select! {
                // What was committed before the server stops is told.
                biased;
                changed = self.heads.changed() => changed.ok()?,
                () = self.stop.cancelled() => return None,
                () = tokio::time::sleep_until(self.deadline) => {
                    self.progress = Progress::End;
                    return self.wanted.bookmarks.then(|| self.bookmark(seen, false));
                }
                // Other kinds have moved on meanwhile, and nobody told us: the store is asked once more.
                _ = self.bookmarks.tick(), if self.wanted.bookmarks => self.is_bookmark_due = true,
            }
        }
    }

    fn begin(&mut self) -> Bytes {
        let (say_end, after) = match self.wanted.from {
            From::State { say_end } => (say_end, None),
            From::After(revision) => (false, Some(revision)),
            From::Now => (false, Some(self.registry.revision())),
        };
        if let Some(after) = after {
            self.progress = Progress::Seen(after);
            return Bytes::new();
        }
        let namespace = self.wanted.namespace.as_deref();
        let (objects, revision) = self.registry.list(self.wanted.kind, namespace, &self.wanted.selector);
        self.progress = Progress::Seen(revision);
        let now = Timestamp::now();
        let mut frames: Vec<u8> = objects.iter().flat_map(|it| self.show("ADDED", it, now)).collect();
        if say_end {
            frames.extend(self.bookmark(revision, true));
        }
        frames.into()
    }

    /// An object that enters the selector is added, and one that leaves it is deleted.
    fn frame_of(&self, event: &Event, now: Timestamp) -> Option<Bytes> {
        let chosen = |record: &Record| self.wanted.selector.matches(record);
        match &event.change {
            Change::Put { now: it, before } => match (before.as_ref().filter(|it| chosen(it)), chosen(it)) {
                (None, true) if before.is_some() => Some(self.show("ADDED", &it.value, now)),
                (None, true) => Some(self.shared(event, "ADDED", now)),
                (Some(_), true) => Some(self.shared(event, "MODIFIED", now)),
                (Some(before), false) => {
                    let mut left = object::parse(&before.value);
                    left["metadata"]["resourceVersion"] = json!(event.revision.to_string());
                    Some(self.show("DELETED", &object::bytes(&left), now))
                }
                (None, false) => None,
            },
            Change::Delete { before, .. } => chosen(before).then(|| self.shared(event, "DELETED", now)),
        }
    }

    /// What most watchers send of a commit, made by the first of them for all. A table tells ages, so it is made anew.
    fn shared(&self, event: &Event, kind_of_event: &str, now: Timestamp) -> Bytes {
        let [whole, metadata] = &event.frames;
        let make = || self.show(kind_of_event, event.value(), now);
        match self.wanted.view {
            View::Whole => whole.get_or_init(make).clone(),
            View::Metadata => metadata.get_or_init(make).clone(),
            View::Table(_) => make(),
        }
    }

    fn show(&self, kind_of_event: &str, value: &Bytes, now: Timestamp) -> Bytes {
        match self.wanted.view {
            View::Whole => {
                let value = convert::outward(self.wanted.kind, value.clone());
                [br#"{"type":""#, kind_of_event.as_bytes(), br#"","object":"#, &value, b"}\n"].concat().into()
            }
            view => frame(kind_of_event, &view.of_object(self.wanted.kind, object::parse(value), now)),
        }
    }

    fn bookmark(&self, revision: Revision, is_end_of_state: bool) -> Bytes {
        let kind = self.wanted.kind;
        let mut object = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "metadata": {"resourceVersion": revision.to_string(), "creationTimestamp": null},
        });
        if is_end_of_state {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        frame("BOOKMARK", &object)
    }
}

fn frame(kind_of_event: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind_of_event, "object": object})))
}
