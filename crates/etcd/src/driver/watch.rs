//! The watch of etcd: opens and replaces it, and publishes its events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use muster_store::{CommitEvent, KeyChange, LogError, StoredObject};
use tokio::time::Instant;

use super::Driver;
use crate::api::{EtcdApi, EtcdError, WatchStream};
use crate::cluster_state::{self, ObservedRevisions};
use crate::keyspace::{Keyspace, POSITION_MAX};
use crate::load::{self, LoadError, LoadedObjects};
use crate::proto::event::EventType;
use crate::proto::{Event, WatchCreateRequest, WatchResponse};

/// Delay after a failed attempt to open the watch. Also the delay before a watch that etcd has ended is opened again.
const WATCH_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Time without an event after which the watch is replaced by another one, if callers did not get their events before
/// their deadline. A watch that still delivers events is catching up, and is not replaced.
const WATCH_SILENCE_MAX: Duration = Duration::from_secs(2);

/// Where the driver gets events from.
pub(super) enum EventSource {
    /// The watch is being opened.
    Opening(BoxFuture<'static, Result<WatchStream, EtcdError>>),
    Watch(WatchStream),
    /// All objects are being loaded again, because the watch cannot continue from the published revision.
    Reload(BoxFuture<'static, Result<LoadedObjects, LoadError>>),
}

/// An output of an [`EventSource`].
pub(super) enum SourceOutput {
    Opened(Result<WatchStream, EtcdError>),
    /// The next response of the watch, or `None` if the watch has ended.
    Response(Option<Result<WatchResponse, EtcdError>>),
    Reloaded(Result<LoadedObjects, LoadError>),
}

/// Why events cannot be published.
pub(super) enum EventError {
    /// The published objects differ from those in etcd, because events were lost. All objects must be loaded again.
    Lost { why: String },
    /// This server can no longer follow etcd.
    Fatal(LogError),
}

impl<A: EtcdApi> Driver<A> {
    /// Opens the watch after the last published revision.
    pub(super) fn open_watch(&mut self) {
        self.fragments.clear();
        self.watch_active_at = Instant::now();
        self.source = open_watch(&self.api, &self.keys, self.applied, Duration::ZERO);
    }

    /// Opens the watch again after etcd has ended it. Waits for [`WATCH_RETRY_DELAY`] first, because a member without a
    /// leader ends every watch at once.
    pub(super) fn reopen_watch(&mut self) {
        self.open_watch();
        self.source = open_watch(&self.api, &self.keys, self.applied, WATCH_RETRY_DELAY);
    }

    /// Opens another watch if the current one has delivered nothing for [`WATCH_SILENCE_MAX`]. If another member of
    /// etcd is usable, the new watch is opened there, because that member may have the events. Does nothing during a
    /// reload.
    pub(super) fn replace_silent_watch(&mut self) {
        let is_reload = matches!(self.source, EventSource::Reload(_));
        if !is_reload && WATCH_SILENCE_MAX <= self.watch_active_at.elapsed() {
            self.open_watch();
        }
    }

    /// Handles an output of the event source. Fails if this server can no longer follow etcd.
    pub(super) fn handle_source(&mut self, output: SourceOutput) -> Result<(), LogError> {
        match output {
            SourceOutput::Opened(Ok(stream)) => {
                if std::mem::take(&mut self.is_watch_failing) {
                    tracing::info!("watching etcd again");
                }
                self.source = EventSource::Watch(stream);
            }
            SourceOutput::Opened(Err(EtcdError::Compacted))
            | SourceOutput::Response(Some(Err(EtcdError::Compacted))) => self.reload_after_compaction(),
            SourceOutput::Opened(Err(EtcdError::Foreign { why }))
            | SourceOutput::Response(Some(Err(EtcdError::Foreign { why }))) => {
                return Err(LogError::Remote { why });
            }
            SourceOutput::Opened(Err(error)) => {
                // An outage has one line in the log.
                if !std::mem::replace(&mut self.is_watch_failing, true) {
                    tracing::warn!(%error, "cannot watch etcd: retrying until a member responds");
                }
                self.open_watch();
            }
            SourceOutput::Response(Some(Ok(response))) => self.handle_watch_response(response)?,
            SourceOutput::Response(ended) => {
                if let Some(Err(error)) = ended {
                    tracing::warn!(%error, "the watch of etcd ended: opening it again");
                }
                self.reopen_watch();
            }
            SourceOutput::Reloaded(result) => self.handle_reload(result)?,
        }
        Ok(())
    }

    /// Publishes those events of a watch response whose transactions are complete, and keeps the other events until the
    /// next fragment arrives. Opens the watch again if etcd has ended it. Starts a reload if events are missing. Fails
    /// if this server can no longer follow etcd.
    pub(super) fn handle_watch_response(&mut self, response: WatchResponse) -> Result<(), LogError> {
        if response.compact_revision != 0 {
            self.reload_after_compaction();
            return Ok(());
        }
        if response.canceled {
            tracing::warn!(reason = response.cancel_reason, "etcd ended the watch: opening it again");
            self.reopen_watch();
            return Ok(());
        }
        self.fragments.extend(response.events);
        // The other events of the last revision may be in the next fragment.
        let complete = match self.fragments.last().filter(|_| response.fragment) {
            Some(last) => {
                let last = revision_of(last);
                self.fragments.partition_point(|it| revision_of(it) < last)
            }
            None => self.fragments.len(),
        };
        let events: Vec<Event> = self.fragments.drain(..complete).collect();
        match self.apply(&events) {
            Ok(()) => Ok(()),
            Err(EventError::Fatal(error)) => Err(error),
            Err(EventError::Lost { why }) => {
                self.reload_after_loss(&why);
                Ok(())
            }
        }
    }

    /// Returns the etcd revisions that this server has observed, to detect that etcd was restored or replaced.
    pub(super) fn observed_revisions(&self) -> ObservedRevisions {
        ObservedRevisions { source_revision: self.source_revision, revision: self.applied }
    }

    /// Publishes the events of a watch response, and answers the callers that waited for these events. Fails, and
    /// publishes none of them, for one of these reasons:
    /// - events were lost,
    /// - a value cannot be decoded,
    /// - this server may no longer use the cluster.
    pub(super) fn apply(&mut self, events: &[Event]) -> Result<(), EventError> {
        let mut published: Vec<Arc<CommitEvent>> = Vec::with_capacity(events.len());
        // The objects after the events of this response, which are not published yet.
        let mut changed: HashMap<Arc<str>, Option<Arc<StoredObject>>> = HashMap::new();
        // The position of the next event of this revision among the objects.
        let mut position = 0;
        let mut revision = self.applied;
        let mut last = self.published.read().revision();
        let mut own = Vec::new();
        for event in events {
            let Some(kv) = &event.kv else { continue };
            if kv.mod_revision <= self.applied {
                // A watch that was opened again may repeat events.
                continue;
            }
            if kv.mod_revision != revision {
                (revision, position) = (kv.mod_revision, 0);
            }
            if self.lane_keys.contains(&kv.key) {
                own.push(revision);
            }
            cluster_state::check_event(&self.keys, event).map_err(EventError::Fatal)?;
            let Some(key) = self.keys.store_key(&kv.key) else { continue };
            let before = match changed.get(key) {
                Some(changed) => changed.clone(),
                None => self.published.read().get(key).cloned(),
            };
            let committed = match event.r#type() {
                EventType::Put => {
                    let (_, object) = load::decode_stored_object(&self.keys, &self.codec, kv)
                        .map_err(|it| EventError::Fatal(LogError::Remote { why: it.to_string() }))?;
                    let StoredObject { value, index, expires_s, modified, .. } = object;
                    CommitEvent::put(modified, key, before, value, index, expires_s)
                }
                EventType::Delete => {
                    let Some(before) = before else {
                        let why = format!("etcd deleted {key}, which this server does not have");
                        return Err(EventError::Lost { why });
                    };
                    let Some(position) = u8::try_from(position).ok().filter(|it| *it <= POSITION_MAX) else {
                        let why =
                            format!("etcd deleted {key} together with more objects than a server deletes");
                        return Err(EventError::Lost { why });
                    };
                    CommitEvent::delete(self.keys.resource_version(revision, position), before)
                }
            };
            if committed.revision <= last {
                let why =
                    format!("the event of {key} has resourceVersion {}, after {last}", committed.revision);
                return Err(EventError::Lost { why });
            }
            last = committed.revision;
            position = u64::from(self.keys.position(last)) + 1;
            let now = match &committed.change {
                KeyChange::Put { now, .. } => Some(now.clone()),
                KeyChange::Delete { .. } => None,
            };
            changed.insert(committed.key.clone(), now);
            published.push(committed);
        }
        if !published.is_empty() {
            self.published.publish(&published, |_| ());
        }
        for own in own {
            let events = published.iter().filter(|it| self.keys.etcd_revision(it.revision) == own);
            self.own_events.insert(own, events.cloned().collect());
        }
        if self.applied < revision {
            self.applied = revision;
            self.watch_active_at = Instant::now();
        }
        self.answer_applied();
        Ok(())
    }
}

impl EventSource {
    /// Returns the next output. Must not be called again after it has returned [`SourceOutput::Opened`],
    /// [`SourceOutput::Reloaded`] or the end of the watch.
    pub(super) async fn next(&mut self) -> SourceOutput {
        match self {
            Self::Opening(opening) => SourceOutput::Opened(opening.await),
            Self::Watch(stream) => SourceOutput::Response(stream.next().await),
            Self::Reload(reload) => SourceOutput::Reloaded(reload.await),
        }
    }
}

/// Returns a source that waits for `delay`, and then opens a watch of all keys for the events after the etcd revision
/// `after`. If the attempt fails, the source returns the error [`WATCH_RETRY_DELAY`] later.
pub(super) fn open_watch<A: EtcdApi>(
    api: &Arc<A>,
    keys: &Keyspace,
    after: i64,
    delay: Duration,
) -> EventSource {
    let api = api.clone();
    let range = keys.all();
    let request = WatchCreateRequest {
        key: range.start,
        range_end: range.end,
        start_revision: after + 1,
        // Values may be larger in total than a message.
        fragment: true,
        ..WatchCreateRequest::default()
    };
    EventSource::Opening(Box::pin(async move {
        tokio::time::sleep(delay).await;
        let opened = api.watch(request).await;
        if opened.is_err() {
            tokio::time::sleep(WATCH_RETRY_DELAY).await;
        }
        opened
    }))
}

/// Returns the etcd revision of an event.
pub(super) fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |it| it.mod_revision)
}
