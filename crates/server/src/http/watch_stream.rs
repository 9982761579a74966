//! Watches: the changes of a kind as one long response.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use jiff::Timestamp;
use muster_store::{Change, Compacted, Event, Record, Revision, with_version};
use serde_json::json;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::negotiation::View;
use crate::auth::Reauthorization;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::registry::Registry;
use crate::selector::Selector;
use crate::storage::Subscription;
use crate::unstructured;

/// Interval of bookmarks on an idle watch, if the client asks for them.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// Time before the end of a watch at which a last bookmark is sent, so that the client can resume from there.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// Most events, and most bytes of events, that are encoded in one batch: a slow watch holds this much in
/// memory, plus one event.
const EVENTS_MAX: usize = 100;
const BYTES_MAX: usize = 64 << 10;

/// Options of a watch request.
#[derive(Debug)]
pub(crate) struct WatchOptions {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
    pub(crate) view: View,
    pub(crate) from: WatchStart,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
    /// Repeats the authorization while the watch lasts.
    pub(crate) reauthorization: Option<Reauthorization>,
}

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// All existing objects as `ADDED` events, then the changes. `sends_initial_events_end` adds the bookmark
    /// that marks the end of the initial events (WatchList).
    State {
        say_end: bool,
    },
    /// The changes after this revision.
    After(Revision),
    Now,
}

/// Returns the frames of a watch. The stream ends at the timeout, when the server stops, or when the watch has
/// fallen behind the history. Events are encoded as the client reads them, so that a slow client holds up
/// nobody; once the history no longer reaches back far enough, it gets a 410 and must list again.
pub(crate) fn stream(
    registry: Arc<Registry>,
    wanted: WatchOptions,
    stop: CancellationToken,
) -> impl Stream<Item = Bytes> {
    let watcher = Watcher::new(registry, wanted, stop);
    futures::stream::unfold(watcher, |mut watcher| async move { Some((watcher.next().await?, watcher)) })
}

struct Watcher {
    registry: Arc<Registry>,
    wanted: WatchOptions,
    prefix: String,
    subscription: Subscription,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    deadline: Instant,
    /// Time of the next bookmark, and of the last one before the end, if the client asks for bookmarks.
    bookmark_at: Option<Instant>,
    goodbye_at: Option<Instant>,
    reauthorize_at: Option<Instant>,
    /// Fires at the earliest of these times.
    timer: Pin<Box<Sleep>>,
    is_bookmark_due: bool,
    is_stopping: bool,
    has_told_columns: AtomicBool,
    progress: Progress,
}

enum Progress {
    Begin,
    /// The state at `revision` is being sent; records from the key `start` on are still to come.
    State {
        start: String,
        revision: Revision,
        say_end: bool,
    },
    /// Everything up to this revision has been sent.
    Seen(Revision),
    End,
}

impl Watcher {
    fn new(registry: Arc<Registry>, wanted: WatchOptions, stop: CancellationToken) -> Self {
        let now = Instant::now();
        let deadline = now + wanted.timeout;
        // A watch of one object reads the commits of no other object.
        let kind = wanted.kind;
        let namespace = wanted.namespace.as_deref().or_else(|| wanted.selector.exactly("metadata.namespace"));
        let key = match wanted.selector.exactly("metadata.name") {
            Some(name) if !kind.namespaced || namespace.is_some() => Some(kind.key(namespace, name)),
            _ => None,
        };
        Self {
            subscription: registry.storage.subscribe(kind, key.as_deref(), &wanted.selector),
            prefix: key.unwrap_or_else(|| kind.prefix(namespace)),
            deadline,
            bookmark_at: wanted.bookmarks.then_some(now + BOOKMARK_EVERY),
            goodbye_at: wanted
                .bookmarks
                .then(|| deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(deadline)),
            reauthorize_at: wanted.reauthorization.as_ref().map(|it| it.first(now)),
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            registry,
            wanted,
            stop: Box::pin(stop.cancelled_owned()),
            is_bookmark_due: false,
            is_stopping: false,
            has_told_columns: AtomicBool::new(false),
            progress: Progress::Begin,
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Checked before every batch: while events are pending, the timer below is never polled.
            if self.due_at() <= Instant::now()
                && let Some(end) = self.on_time(Instant::now())
            {
                self.progress = Progress::End;
                return end;
            }
            let seen = match &mut self.progress {
                Progress::End => return None,
                Progress::Seen(seen) => *seen,
                Progress::State { .. } => match self.tell_state() {
                    frames if frames.is_empty() => continue,
                    frames => return Some(frames),
                },
                Progress::Begin => {
                    self.begin();
                    continue;
                }
            };
            // The subscription is marked before the store is read, so that no commit in between is missed.
            self.subscription.mark_unchanged();
            let seen = self.subscription.skip(seen);
            match self.registry.storage.some_since(&self.prefix, seen, EVENTS_MAX) {
                Err(compacted) => {
                    self.progress = Progress::End;
                    return Some(expired(seen, &compacted));
                }
                Ok((events, revision)) => {
                    let (mut frames, last_sent) = self.frames_of(&events);
                    // A watch may start at a future revision, and must not fall back behind it.
                    let seen = last_sent.unwrap_or(revision).max(seen);
                    self.progress = Progress::Seen(seen);
                    match frames.len() {
                        0 if self.is_bookmark_due => {
                            self.is_bookmark_due = false;
                            return Some(self.bookmark(seen, false));
                        }
                        // The batch was full: there may be more events.
                        0 if events.len() == EVENTS_MAX => continue,
                        0 => {}
                        // A single frame needs no copy: all watches share its bytes.
                        1 => return frames.pop(),
                        _ => return Some(frames.concat().into()),
                    }
                }
            }
            if self.is_stopping {
                return None;
            }
            let due = self.due_at();
            if self.timer.deadline() != due {
                self.timer.as_mut().reset(due);
            }
            tokio::select! {
                changed = self.subscription.changed() => changed?,
                // Events before the stop are still sent.
                () = self.stop.as_mut() => self.is_stopping = true,
                // The loop starts with the timer checks.
                () = self.timer.as_mut() => {}
            }
        }
    }

    /// Returns the next time at which the timer must fire: bookmark, reauthorization or end.
    fn due_at(&self) -> Instant {
        let due = [self.bookmark_at, self.goodbye_at, self.reauthorize_at].into_iter().flatten();
        due.fold(self.deadline, Instant::min)
    }

    /// Handles the timers that have expired. Returns `Some` if the watch ends, with its last frame.
    fn on_time(&mut self, now: Instant) -> Option<Option<Bytes>> {
        if self.deadline <= now {
            return Some(None);
        }
        if self.reauthorize_at.is_some_and(|at| at <= now)
            && let Some(reauthorization) = &self.wanted.reauthorization
        {
            self.reauthorize_at = Some(reauthorization.next(now));
            if let Err(refusal) = reauthorization.check(&self.registry.access, Timestamp::now()) {
                return Some(Some(frame("ERROR", &unstructured::bytes(&refusal.status()))));
            }
        }
        if self.goodbye_at.is_some_and(|at| at <= now) {
            (self.goodbye_at, self.is_bookmark_due) = (None, true);
        }
        // A bookmark needs the current revision, which other kinds may have advanced without waking this watch.
        if self.bookmark_at.is_some_and(|at| at <= now) {
            (self.bookmark_at, self.is_bookmark_due) = (Some(now + BOOKMARK_EVERY), true);
        }
        None
    }

    fn begin(&mut self) {
        self.progress = match self.wanted.from {
            WatchStart::After(revision) => Progress::Seen(revision),
            WatchStart::Now => Progress::Seen(self.registry.storage.revision()),
            WatchStart::State { say_end } => {
                let revision = self.registry.storage.revision();
                Progress::State { start: self.prefix.clone(), revision, say_end }
            }
        };
    }

    /// Encodes the next batch of the initial state.
    fn tell_state(&mut self) -> Bytes {
        let begun = std::mem::replace(&mut self.progress, Progress::End);
        let Progress::State { start, revision, say_end } = begun else { return Bytes::new() };
        let (selector, max) = (&self.wanted.selector, (EVENTS_MAX, BYTES_MAX));
        let (records, next) =
            match self.registry.storage.some_at(revision, (&self.prefix, &start), selector, max) {
                Err(compacted) => return expired(revision, &compacted),
                Ok(found) => found,
            };
        let now = Timestamp::now();
        let mut frames: Vec<_> = records.iter().map(|it| self.show("ADDED", &it.value, now)).collect();
        self.progress = match next {
            Some(start) => Progress::State { start, revision, say_end },
            None => {
                if say_end {
                    frames.push(self.bookmark(revision, true));
                }
                Progress::Seen(revision)
            }
        };
        frames.concat().into()
    }

    /// Encodes these events. If they exceed the batch size, also returns the revision of the last encoded
    /// event.
    fn frames_of(&self, events: &[Arc<Event>]) -> (Vec<Bytes>, Option<Revision>) {
        let now = Timestamp::now();
        let (mut frames, mut bytes, mut handled) = (Vec::new(), 0, None);
        for event in events {
            if BYTES_MAX <= bytes {
                return (frames, handled);
            }
            handled = Some(event.revision);
            if let Some(frame) = self.frame_of(event, now) {
                bytes += frame.len();
                frames.push(frame);
            }
        }
        (frames, None)
    }

    /// Encodes one event. An object that begins to match the selector is `ADDED`; one that stops matching is
    /// `DELETED`.
    fn frame_of(&self, event: &Event, now: Timestamp) -> Option<Bytes> {
        let chosen = |record: &Record| self.wanted.selector.matches(record);
        match &event.change {
            Change::Put { now: it, before } => match (before.as_ref().filter(|it| chosen(it)), chosen(it)) {
                (None, true) if before.is_some() => Some(self.show("ADDED", &it.value, now)),
                (None, true) => Some(self.shared(event, "ADDED", now)),
                (Some(_), true) => Some(self.shared(event, "MODIFIED", now)),
                (Some(before), false) => {
                    Some(self.show("DELETED", &with_version(&before.value, event.revision), now))
                }
                (None, false) => None,
            },
            Change::Delete { before, .. } => chosen(before).then(|| self.shared(event, "DELETED", now)),
        }
    }

    /// Returns the frame of a commit that most watches share, encoded by the first of them. A table contains
    /// ages and is encoded each time.
    fn shared(&self, event: &Event, kind_of_event: &str, now: Timestamp) -> Bytes {
        let [whole, metadata] = &event.frames;
        let make = || self.show(kind_of_event, event.value(), now);
        match self.wanted.view {
            // A converted version has another encoding.
            _ if self.wanted.kind.conversion.is_some() => make(),
            View::Whole => whole.get_or_init(make).clone(),
            View::Metadata => metadata.get_or_init(make).clone(),
            View::Table { .. } => make(),
        }
    }

    fn show(&self, kind_of_event: &str, stored: &Bytes, now: Timestamp) -> Bytes {
        let WatchOptions { kind, view, .. } = &self.wanted;
        let tell_columns =
            matches!(view, View::Table { .. }) && !self.has_told_columns.swap(true, Ordering::Relaxed);
        frame(kind_of_event, &view.of_event(kind, stored, now, tell_columns))
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
        self.show("BOOKMARK", &unstructured::bytes(&object), Timestamp::now())
    }
}

/// The last event of a watch that has fallen behind the history (410): its client must list again.
fn expired(seen: Revision, compacted: &Compacted) -> Bytes {
    let message = format!("too old resource version: {seen} ({})", compacted.floor);
    frame("ERROR", &unstructured::bytes(&ApiError::expired(message).status()))
}

fn frame(kind_of_event: &str, object: &[u8]) -> Bytes {
    [br#"{"type":""#, kind_of_event.as_bytes(), br#"","object":"#, object, b"}\n"].concat().into()
}
