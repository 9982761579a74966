//! Watches: the changes to the objects of a kind, streamed as one long response.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use jiff::Timestamp;
use muster_api::well_known::ANNOTATION_INITIAL_EVENTS_END;
use muster_store::{CommitEvent, CompactedError, KeyChange, Revision, StoredObject, with_resource_version};
use serde_json::json;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::negotiation::Representation;
use crate::auth::Reauthorization;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::registry::Registry;
use crate::selector::ObjectSelector;
use crate::storage::Subscription;
use crate::unstructured;

/// Interval between the bookmarks of a watch, if the client requests bookmarks. A due bookmark is sent as soon as no
/// event is pending.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Time before the end of a watch at which the last bookmark is sent. The client can start its next watch from the
/// revision of this bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// Maximum number of watch events that are encoded in one batch.
const BATCH_EVENTS_MAX: usize = 100;

/// Number of encoded bytes after which no more watch events are added to a batch. A watch whose client reads slowly
/// holds at most this many bytes in memory, plus one event.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// Options of a watch request.
#[derive(Debug)]
pub(crate) struct WatchOptions {
    pub(crate) kind: &'static Kind,
    /// Namespace of the watched objects. `None` for all namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) selector: ObjectSelector,
    /// Representation in which the watch sends objects: whole, as metadata or as table rows.
    pub(crate) view: Representation,
    /// Where the watch starts.
    pub(crate) from: WatchStart,
    /// Whether the client requests bookmarks (`allowWatchBookmarks`).
    pub(crate) sends_bookmarks: bool,
    /// Duration after which the watch ends.
    pub(crate) timeout: Duration,
    /// The check whether the client is still authorized to watch, which the watch repeats at intervals. `None` if the
    /// authorization is not checked again.
    pub(crate) reauthorization: Option<Reauthorization>,
}

/// Where a watch starts, as the query parameters `resourceVersion` and `sendInitialEvents` determine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// The watch sends all existing objects as `ADDED` events, and then the changes. If `sends_initial_events_end` is
    /// set, the watch sends a bookmark with the annotation `k8s.io/initial-events-end` after the existing objects
    /// (WatchList).
    CurrentState { sends_initial_events_end: bool },
    /// The watch sends the changes after this revision.
    After(Revision),
    /// The watch sends the changes after the current revision.
    Now,
}

/// Returns the events of a watch as a stream. Each item of the stream contains one or more frames. A frame is one event
/// as a line of JSON.
///
/// The stream ends at the timeout, and when the server stops. It ends with an error event if the client is no longer
/// authorized. It ends with a 410 error event if the history no longer contains the next changes. After a 410 error,
/// the client must list again.
///
/// Events are encoded when the client reads them, so that a slow client does not delay other clients.
pub(crate) fn watch_frames(
    registry: Arc<Registry>,
    options: WatchOptions,
    stop: CancellationToken,
) -> impl Stream<Item = Bytes> {
    // On the heap, because `unfold` moves the watcher several times for each item.
    let watcher = Box::new(WatchStream::new(registry, options, stop));
    futures::stream::unfold(
        watcher,
        |mut watcher| async move { Some((watcher.next_frames().await?, watcher)) },
    )
}

/// One open watch: its options, its timers and its progress.
struct WatchStream {
    registry: Arc<Registry>,
    options: WatchOptions,
    /// Prefix of the store keys of the watched objects, or the whole key if the watch is for one object.
    prefix: String,
    /// Subscription that wakes the watch when a watched object may have changed.
    subscription: Subscription,
    /// Future that completes when the server stops.
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Time at which the watch ends.
    deadline: Instant,
    /// Time of the next periodic bookmark. `None` if the client requests no bookmarks.
    bookmark_at: Option<Instant>,
    /// Time of the last bookmark, shortly before the deadline. `None` after that bookmark, or if the client requests no
    /// bookmarks.
    final_bookmark_at: Option<Instant>,
    /// Time of the next reauthorization. `None` for a watch without reauthorization.
    reauthorize_at: Option<Instant>,
    /// Timer that fires at the deadline, at the next bookmark or at the next reauthorization, whichever is first.
    timer: Pin<Box<Sleep>>,
    /// Whether the watch must send a bookmark as soon as no event is pending.
    is_bookmark_due: bool,
    /// Whether the server is stopping. A watch on a stopping server ends after it has sent the changes that are already
    /// committed.
    is_stopping: bool,
    /// Whether the column definitions have been sent. Only the first table of a watch contains them.
    has_sent_columns: AtomicBool,
    progress: WatchProgress,
}

/// The progress of a watch: the object or revision up to which it has sent its events.
enum WatchProgress {
    /// No event has been sent.
    NotStarted,
    /// The initial state at `revision` is being sent. Objects from the key `start` on have not been sent yet.
    SendingInitialState { start: String, revision: Revision, sends_initial_events_end: bool },
    /// All changes up to this revision have been sent.
    SentUpTo(Revision),
    /// The last event has been sent, and the stream ends.
    Ended,
}

impl WatchStream {
    fn new(registry: Arc<Registry>, options: WatchOptions, stop: CancellationToken) -> Self {
        let now = Instant::now();
        let deadline = now + options.timeout;
        // A watch of one object reads the commits of no other object.
        let kind = options.kind;
        let namespace =
            options.namespace.as_deref().or_else(|| options.selector.required_value("metadata.namespace"));
        let key = match options.selector.required_value("metadata.name") {
            Some(name) if !kind.namespaced || namespace.is_some() => Some(kind.store_key(namespace, name)),
            _ => None,
        };
        Self {
            subscription: registry.storage.subscribe(kind, key.as_deref(), &options.selector),
            prefix: key.unwrap_or_else(|| kind.store_key_prefix(namespace)),
            deadline,
            bookmark_at: options.sends_bookmarks.then_some(now + BOOKMARK_INTERVAL),
            final_bookmark_at: options
                .sends_bookmarks
                .then(|| deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(deadline)),
            reauthorize_at: options.reauthorization.as_ref().map(|it| it.first_check_time(now)),
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            registry,
            options,
            stop: Box::pin(stop.cancelled_owned()),
            is_bookmark_due: false,
            is_stopping: false,
            has_sent_columns: AtomicBool::new(false),
            progress: WatchProgress::NotStarted,
        }
    }

    /// Waits for the next events and returns their frames. Returns `None` if the watch has ended.
    async fn next_frames(&mut self) -> Option<Bytes> {
        loop {
            // Checked before every batch: while events are pending, the timer below is never polled.
            if self.next_timer_time() <= Instant::now()
                && let Some(end) = self.handle_timers(Instant::now())
            {
                self.progress = WatchProgress::Ended;
                return end;
            }
            let seen = match &mut self.progress {
                WatchProgress::Ended => return None,
                WatchProgress::SentUpTo(seen) => *seen,
                WatchProgress::SendingInitialState { .. } => match self.next_initial_state_frames() {
                    frames if frames.is_empty() => {
                        // No object of this batch matches the selectors, and there may be many more.
                        if matches!(self.progress, WatchProgress::SendingInitialState { .. }) {
                            tokio::task::yield_now().await;
                        }
                        continue;
                    }
                    frames => return Some(frames),
                },
                WatchProgress::NotStarted => {
                    self.set_initial_progress();
                    continue;
                }
            };
            // The subscription is marked before the store is read, so that no commit in between is missed.
            self.subscription.mark_unchanged();
            let skippable = self.subscription.skippable_revision(seen);
            let storage = &self.registry.storage;
            match storage.bounded_events_since(&self.prefix, (seen, skippable), BATCH_EVENTS_MAX) {
                Err(compacted) => {
                    self.progress = WatchProgress::Ended;
                    return Some(expired_frame(seen, &compacted));
                }
                Ok((events, revision)) => {
                    let (mut frames, last_sent) = self.event_frames(&events);
                    // A watch may start at a future revision, and must not fall back behind it.
                    let seen = last_sent.unwrap_or(revision).max(skippable);
                    self.progress = WatchProgress::SentUpTo(seen);
                    match frames.len() {
                        0 if self.is_bookmark_due => {
                            self.is_bookmark_due = false;
                            return Some(self.bookmark_frame(seen, false));
                        }
                        // The batch was full: there may be more events.
                        0 if events.len() == BATCH_EVENTS_MAX => {
                            tokio::task::yield_now().await;
                            continue;
                        }
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
            let due = self.next_timer_time();
            if self.timer.deadline() != due {
                self.timer.as_mut().reset(due);
            }
            tokio::select! {
                changed = self.subscription.wait_for_commit() => changed?,
                // Events before the stop are still sent.
                () = self.stop.as_mut() => self.is_stopping = true,
                // The loop starts with the timer checks.
                () = self.timer.as_mut() => {}
            }
        }
    }

    /// Returns the time of the next bookmark, the next reauthorization or the deadline, whichever is first.
    fn next_timer_time(&self) -> Instant {
        let due = [self.bookmark_at, self.final_bookmark_at, self.reauthorize_at].into_iter().flatten();
        due.fold(self.deadline, Instant::min)
    }

    /// Handles the timers that are due at `now`. Checks the authorization of the client again, and sets
    /// `is_bookmark_due` if a bookmark is due. Returns `None` if the watch continues. Returns `Some` if the watch ends,
    /// with the last frame to send if there is one.
    fn handle_timers(&mut self, now: Instant) -> Option<Option<Bytes>> {
        if self.deadline <= now {
            return Some(None);
        }
        if self.reauthorize_at.is_some_and(|at| at <= now)
            && let Some(reauthorization) = &self.options.reauthorization
        {
            self.reauthorize_at = Some(reauthorization.next_check_time(now));
            if let Err(refusal) = reauthorization.check_access(&self.registry.access, Timestamp::now()) {
                return Some(Some(encode_frame("ERROR", &unstructured::to_bytes(&refusal.status()))));
            }
        }
        if self.final_bookmark_at.is_some_and(|at| at <= now) {
            (self.final_bookmark_at, self.is_bookmark_due) = (None, true);
        }
        // A bookmark needs the current revision, which other kinds may have advanced without waking this watch.
        if self.bookmark_at.is_some_and(|at| at <= now) {
            (self.bookmark_at, self.is_bookmark_due) = (Some(now + BOOKMARK_INTERVAL), true);
        }
        None
    }

    /// Sets the initial `progress` of the watch from `WatchOptions::from`.
    fn set_initial_progress(&mut self) {
        self.progress = match self.options.from {
            WatchStart::After(revision) => WatchProgress::SentUpTo(revision),
            WatchStart::Now => WatchProgress::SentUpTo(self.registry.storage.revision()),
            WatchStart::CurrentState { sends_initial_events_end } => {
                let revision = self.registry.storage.revision();
                WatchProgress::SendingInitialState {
                    start: self.prefix.clone(),
                    revision,
                    sends_initial_events_end,
                }
            }
        };
    }

    /// Advances `progress` by one batch of objects of the initial state, and returns their frames. If the history no
    /// longer contains the initial state, ends the watch and returns the frame of the 410 error.
    fn next_initial_state_frames(&mut self) -> Bytes {
        let begun = std::mem::replace(&mut self.progress, WatchProgress::Ended);
        let WatchProgress::SendingInitialState { start, revision, sends_initial_events_end } = begun else {
            return Bytes::new();
        };
        let (selector, max) = (&self.options.selector, (BATCH_EVENTS_MAX, BATCH_BYTES_MAX));
        let (records, next) =
            match self.registry.storage.records_page_at(revision, (&self.prefix, &start), selector, max) {
                Err(compacted) => return expired_frame(revision, &compacted),
                Ok(found) => found,
            };
        let now = Timestamp::now();
        let mut frames: Vec<_> =
            records.iter().map(|it| self.object_frame("ADDED", &it.value, now)).collect();
        self.progress = match next {
            Some(start) => WatchProgress::SendingInitialState { start, revision, sends_initial_events_end },
            None => {
                if sends_initial_events_end {
                    frames.push(self.bookmark_frame(revision, true));
                }
                WatchProgress::SentUpTo(revision)
            }
        };
        frames.concat().into()
    }

    /// Returns the frames of `events`, up to `BATCH_BYTES_MAX`. If that limit leaves events unprocessed, also returns
    /// the revision of the last processed event.
    fn event_frames(&self, events: &[Arc<CommitEvent>]) -> (Vec<Bytes>, Option<Revision>) {
        let (mut frames, mut bytes, mut handled) = (Vec::with_capacity(events.len()), 0, None);
        for event in events {
            if BATCH_BYTES_MAX <= bytes {
                return (frames, handled);
            }
            handled = Some(event.revision);
            if let Some(frame) = self.event_frame(event) {
                bytes += frame.len();
                frames.push(frame);
            }
        }
        (frames, None)
    }

    /// Returns the frame of one event, or `None` if the object matched the selector neither before nor after the
    /// commit. The event type is `ADDED` for an object that is created or begins to match, `DELETED` for an object that
    /// is deleted or no longer matches, and otherwise `MODIFIED`.
    fn event_frame(&self, event: &CommitEvent) -> Option<Bytes> {
        let unshared_frame =
            |event_type: &str, object: &Bytes| self.object_frame(event_type, object, Timestamp::now());
        let chosen = |record: &StoredObject| self.options.selector.matches(record);
        match &event.change {
            KeyChange::Put { now: it, before } => match (before.as_ref().filter(|it| chosen(it)), chosen(it))
            {
                (None, true) if before.is_some() => Some(unshared_frame("ADDED", &it.value)),
                (None, true) => Some(self.shared_frame(event, "ADDED")),
                (Some(_), true) => Some(self.shared_frame(event, "MODIFIED")),
                (Some(before), false) => {
                    Some(unshared_frame("DELETED", &with_resource_version(&before.value, event.revision)))
                }
                (None, false) => None,
            },
            KeyChange::Delete { before, .. } => chosen(before).then(|| self.shared_frame(event, "DELETED")),
        }
    }

    /// Returns the frame of a commit event. The first watch that needs the frame encodes it, and the other watches with
    /// the same representation share it. Exception: each watch encodes its own frame for a table, which contains ages,
    /// and for an object whose version must be converted. The clock is read only for a frame that is encoded.
    fn shared_frame(&self, event: &CommitEvent, event_type: &str) -> Bytes {
        let [whole, metadata] = &event.frames;
        let make = || self.object_frame(event_type, event.latest_value(), Timestamp::now());
        match self.options.view {
            // A converted version has another encoding.
            _ if self.options.kind.conversion().is_some() => make(),
            Representation::Whole => whole.get_or_init(make).clone(),
            Representation::Metadata => metadata.get_or_init(make).clone(),
            Representation::Table { .. } => make(),
        }
    }

    /// Returns the frame of an event with the type `event_type` (`ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`) and the
    /// object `stored`.
    fn object_frame(&self, event_type: &str, stored: &Bytes, now: Timestamp) -> Bytes {
        let WatchOptions { kind, view, .. } = &self.options;
        let with_columns = matches!(view, Representation::Table { .. })
            && !self.has_sent_columns.swap(true, Ordering::Relaxed);
        encode_frame(event_type, &view.encode_event_object(kind, stored, now, with_columns))
    }

    /// Returns the frame of a bookmark at `revision`. If `is_initial_events_end` is set, the bookmark has the
    /// annotation `k8s.io/initial-events-end`.
    fn bookmark_frame(&self, revision: Revision, is_initial_events_end: bool) -> Bytes {
        let kind = self.options.kind;
        let mut object = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "metadata": {"resourceVersion": revision.to_string(), "creationTimestamp": null},
        });
        if is_initial_events_end {
            object["metadata"]["annotations"] = json!({(ANNOTATION_INITIAL_EVENTS_END): "true"});
        }
        self.object_frame("BOOKMARK", &unstructured::to_bytes(&object), Timestamp::now())
    }
}

/// Returns the last frame of a watch whose next changes are no longer in the history: a 410 error. `seen` is the
/// revision up to which the watch has sent all changes.
fn expired_frame(seen: Revision, compacted: &CompactedError) -> Bytes {
    let message = format!("too old resource version: {seen} ({})", compacted.compacted_revision);
    encode_frame("ERROR", &unstructured::to_bytes(&ApiError::resource_expired(message).status()))
}

/// Encodes a watch event as a frame, which is one line of JSON. `object` is the JSON of the event's object.
fn encode_frame(event_type: &str, object: &[u8]) -> Bytes {
    [br#"{"type":""#, event_type.as_bytes(), br#"","object":"#, object, b"}\n"].concat().into()
}
