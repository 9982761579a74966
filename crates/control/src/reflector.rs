//! Lists and watches one kind without gaps, and sends the objects to a controller.
//!
//! Each object is decoded into a fact (the fields that the controller reads) as soon as its watch event or its page of
//! the list is received. The JSON text is not kept. A list is a consistent read, because the request has no
//! `resourceVersion`.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::pin::Pin;
use std::time::Duration;

use futures::io::AsyncBufRead;
use futures::{AsyncBufReadExt as _, FutureExt as _};
use kube::Client;
use muster_api::backoff::{BackoffPolicy, RetryDelay};
use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::well_known::JSON_MEDIA_TYPE;
use muster_engine::controller::{self, Controller, DecodedObject, Malformed, Verb, Watch, WatchEvent};
use muster_events::error_chain::format_error_chain;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::paged_list::{Page, page_query};
use crate::request::{ACCEPT_METADATA, ACCEPT_METADATA_LIST, request};

/// `timeoutSeconds` of a watch request, after which the server ends the watch.
const WATCH_TIMEOUT_S: u64 = 290;
/// Time without data after which a watch is reopened. The server sends at least a bookmark every minute, so a watch
/// without data has a dead connection or a server that sends no bookmarks.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Time without data after which a streaming list is abandoned. A server that does not support streaming lists may
/// never end the list. Also the timeout for the headers of a watch response.
const LIST_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a whole streaming list.
const LIST_TIMEOUT: Duration = Duration::from_secs(120);

/// Timeout of the request for one page of a list.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Backoff after consecutive failures of a list or watch, before jitter.
const BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_millis(250), max: Duration::from_secs(30) };
/// Duration after which a watch counts as healthy, so that the backoff is reset.
const WATCH_HEALTHY_AFTER: Duration = Duration::from_secs(5);

/// The API server's store counts as replaced if all lists during this time return an older state than was received
/// before. An API server that only lags behind its store catches up sooner.
const STORE_REPLACED_AFTER: Duration = Duration::from_secs(60);

/// A message from a reflector to its controller: a whole list, one watch event, or a refused list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery<F> {
    /// All objects of the kind that the controller needs and that can be decoded. Empty if the API server does not
    /// serve an optional kind.
    Listed { facts: Vec<F>, resource_version: u64 },
    /// One event of the watch.
    Watched(WatchEvent<F>),
    /// The API server forbids the controller to list the kind (status 403). Sent only for optional kinds.
    Forbidden,
}

/// Lists and watches one kind, and sends each delivery together with `kind`, the index of the kind in
/// [`Controller::watches`]. Lists again whenever `relist` changes. Ends when the receiver is dropped, or when the API
/// server's store was replaced.
pub(crate) async fn run_reflector<C: Controller<DecodedObject: Send>>(
    client: Client,
    (kind, watch): (usize, Watch),
    namespace: Option<&str>,
    sender: mpsc::Sender<(usize, Delivery<C::DecodedObject>)>,
    relist: watch::Receiver<u64>,
) {
    Reflector::<C>::new(client, (kind, watch), namespace, sender).run(relist).await;
}

/// Formats an error of a list or watch. For status 401 and 403, the text says which credentials or permission are
/// missing.
fn describe_error(watch: &Watch, error: &kube::Error) -> String {
    let (group, resource) = (&*watch.resource.group, &*watch.resource.plural);
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            let group = match group {
                "" => "the core group".to_owned(),
                group => format!("the group {group}"),
            };
            format!(
                "the controller's role must grant it the verbs list and watch on {resource} of {group}: {}",
                status.message
            )
        }
        kube::Error::Api(status) if status.code == 401 => {
            format!("the API server does not accept the controller's credentials: {}", status.message)
        }
        error => format!("{resource}: {}", format_error_chain(error)),
    }
}

/// Lists and watches one kind. Upstream: `cache.Reflector`.
struct Reflector<C: Controller> {
    client: Client,
    /// Index of the kind in [`Controller::watches`].
    kind: usize,
    /// The kind to list and watch.
    watch: Watch,
    /// Strings that several facts have in common, stored once.
    interner: Interner,
    /// URL path of the objects of the kind.
    path: String,
    /// Channel to which the deliveries are sent.
    sender: mpsc::Sender<(usize, Delivery<C::DecodedObject>)>,
    /// Whether to try streaming lists (`sendInitialEvents`). False once the server has refused one or has not completed
    /// one in time.
    supports_streaming_list: bool,
    /// Time without data after which a streaming list is abandoned: [`LIST_IDLE_TIMEOUT`], or less in tests.
    idle_timeout: Duration,
    /// The highest resource version that was received.
    newest_resource_version: u64,
    /// Time since which every list has had a resource version below `newest_resource_version`. `None` if the resource
    /// version of the last list was not below it.
    stale_since: Option<Instant>,
    /// Time after which the store counts as replaced: [`STORE_REPLACED_AFTER`], or less in tests.
    store_replaced_after: Duration,
}

/// Why a list or a watch of a reflector ended.
enum ListWatchError {
    /// The controller no longer receives deliveries.
    ReceiverDropped,
    /// The history no longer reaches back to the resource version of the watch (status 410).
    Compacted,
    /// The server ended the watch with an error.
    WatchError { code: i64, message: String },
    /// A request failed.
    Failed(kube::Error),
    /// The server returned the resource version `shown`, which is lower than an earlier one: its state is old.
    StaleState { shown: u64 },
}

impl From<kube::Error> for ListWatchError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 410 => Self::Compacted,
            _ => Self::Failed(error),
        }
    }
}

impl<C> Reflector<C>
where
    C: Controller<DecodedObject: Send>,
{
    fn new(
        client: Client,
        (kind, watch): (usize, Watch),
        namespace: Option<&str>,
        sender: mpsc::Sender<(usize, Delivery<C::DecodedObject>)>,
    ) -> Self {
        Self {
            client,
            kind,
            path: watch.resource.collection_path(namespace),
            watch,
            interner: Interner::default(),
            sender,
            supports_streaming_list: true,
            idle_timeout: LIST_IDLE_TIMEOUT,
            newest_resource_version: 0,
            stale_since: None,
            store_replaced_after: STORE_REPLACED_AFTER,
        }
    }

    /// Lists and watches the kind, and lists again whenever `relist` changes. Ends when the receiver of the deliveries
    /// or the sender of `relist` is dropped, or when the API server's store was replaced.
    async fn run(mut self, mut relist: watch::Receiver<u64>) {
        let mut backoff = RetryDelay::new(BACKOFF);
        loop {
            relist.mark_unchanged();
            let ended = tokio::select! {
                ended = self.list_and_watch(&mut backoff) => ended,
                changed = relist.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            };
            let (path, seen) = (&self.path, self.newest_resource_version);
            match ended {
                ListWatchError::ReceiverDropped => return,
                ListWatchError::Compacted => tracing::info!(path, "listing again: the history was compacted"),
                ListWatchError::WatchError { code, message } => {
                    tracing::warn!(path, code, message, "listing again: the server ended the watch");
                }
                ListWatchError::Failed(kube::Error::Api(status))
                    if self.watch.is_optional && status.code == 404 =>
                {
                    // A kind that the API server does not serve has no objects, until its definition is installed.
                    tracing::debug!(path, "the API server does not serve this kind");
                    let absent = Delivery::Listed { facts: Vec::new(), resource_version: seen };
                    if self.send(absent).await.is_err() {
                        return;
                    }
                }
                ListWatchError::Failed(error) => {
                    let is_forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
                    if self.watch.is_optional && is_forbidden && self.send(Delivery::Forbidden).await.is_err()
                    {
                        return;
                    }
                    tracing::warn!(path, error = describe_error(&self.watch, &error), "listing again")
                }
                ListWatchError::StaleState { shown } => {
                    tracing::warn!(
                        path,
                        seen,
                        shown,
                        "the API server returned an older resourceVersion than before"
                    );
                    if self.stale_since.is_some_and(|it| self.store_replaced_after < it.elapsed()) {
                        tracing::error!(path, "the API server's store was restored or replaced");
                        return;
                    }
                }
            }
            wait(&mut backoff).await;
        }
    }

    /// Lists the kind once, then watches it. Returns why the list must be repeated.
    async fn list_and_watch(&mut self, backoff: &mut RetryDelay) -> ListWatchError {
        let mut lines = match self.list().await {
            Ok(lines) => lines,
            Err(ended) => return ended,
        };
        loop {
            let began = Instant::now();
            let watched = self.watch(lines.take()).await;
            let held = WATCH_HEALTHY_AFTER < began.elapsed();
            if held {
                backoff.reset();
            }
            match watched {
                Ok(()) if held => {}
                Ok(()) => wait(backoff).await,
                Err(ended) => return ended,
            }
        }
    }

    /// Lists the kind and sends the list to the controller. After a streaming list, returns its open watch, which then
    /// delivers the changes after the list. After a paged list, returns `None`.
    async fn list(&mut self) -> Result<Option<WatchLines>, ListWatchError> {
        if self.supports_streaming_list
            && let Some(lines) = self.stream_list().await?
        {
            return Ok(Some(lines));
        }
        self.list_pages().await?;
        Ok(None)
    }

    /// Lists the kind by a watch with `sendInitialEvents`, sends the list to the controller, and returns the open
    /// watch. Returns `None` if the server does not support streaming lists, if the list takes too long, or if the
    /// stream ends before the list is complete. In the first two cases, streaming lists are not tried again.
    async fn stream_list(&mut self) -> Result<Option<WatchLines>, ListWatchError> {
        /// Query parameters that request a streaming list.
        const STREAMING_LIST_OPTIONS: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let mut lines = match self.open_watch(STREAMING_LIST_OPTIONS).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
                tracing::debug!(
                    path = self.path,
                    status.message,
                    "listing by page: the server has no streaming lists"
                );
                self.supports_streaming_list = false;
                return Ok(None);
            }
            opened => opened?,
        };
        // By key: an object may be modified or deleted while the list is sent.
        let mut facts: BTreeMap<ObjectKey, C::DecodedObject> = BTreeMap::new();
        let deadline = Instant::now() + LIST_TIMEOUT;
        loop {
            let line = match timeout_at(deadline, lines.next(self.idle_timeout)).await {
                Ok(NextLine::Line(line)) => line,
                Ok(NextLine::End) => return Ok(None),
                Ok(NextLine::Timeout) | Err(_) => {
                    tracing::info!(path = self.path, "listing by page: a streaming list did not end");
                    self.supports_streaming_list = false;
                    return Ok(None);
                }
            };
            match self.decode_line(line)? {
                Some(WatchEvent::Bookmark { ends_list: true, resource_version }) => {
                    self.send_list(facts.into_values().collect(), resource_version).await?;
                    return Ok(Some(lines));
                }
                Some(WatchEvent::Applied(fact)) if fact.is_relevant() => {
                    facts.insert(fact.key(), fact);
                }
                Some(WatchEvent::Applied(fact) | WatchEvent::Deleted(fact)) => {
                    facts.remove(&fact.key());
                }
                _ => {}
            }
        }
    }

    /// Lists the kind page by page, and sends the list to the controller.
    async fn list_pages(&mut self) -> Result<(), ListWatchError> {
        let mut facts = Vec::new();
        let mut page_token: Option<String> = None;
        loop {
            let path = format!("{}?{}", self.path, page_query(None, page_token.as_deref()));
            let accept = if self.watch.metadata_only { ACCEPT_METADATA_LIST } else { JSON_MEDIA_TYPE };
            let request = request(Verb::List, path, accept, String::new());
            let text = timeout(PAGE_TIMEOUT, self.client.request_text(request)).await;
            let text = text.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))?;
            let page: Page<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
            for object in page.objects() {
                let fact = C::decode(&self.watch, object, &mut self.interner);
                facts.extend(skip_malformed(&self.path, fact).filter(DecodedObject::is_relevant));
            }
            let resource_version = page.resource_version();
            page_token = page.next_page_token();
            if page_token.is_none() {
                return self.send_list(facts, resource_version).await;
            }
        }
    }

    /// Sends a whole list to the controller. A list that is older than the state that was received before is sent too,
    /// but then [`ListWatchError::StaleState`] is returned.
    async fn send_list(
        &mut self,
        facts: Vec<C::DecodedObject>,
        resource_version: u64,
    ) -> Result<(), ListWatchError> {
        self.send(Delivery::Listed { facts, resource_version }).await?;
        let advanced = self.advance_to(resource_version);
        self.stale_since = advanced.is_err().then(|| self.stale_since.unwrap_or_else(Instant::now));
        advanced
    }

    /// Watches the kind until the connection ends or delivers nothing for [`WATCH_IDLE_TIMEOUT`]. `lines` is a watch
    /// that is already open, or `None` to open one. Returns `Ok` if the next watch can resume after the last event that
    /// was received completely, and an error if the kind must be listed again.
    async fn watch(&mut self, lines: Option<WatchLines>) -> Result<(), ListWatchError> {
        let mut lines = match lines {
            Some(lines) => lines,
            None => match self.open_watch(&format!("resourceVersion={}", self.newest_resource_version)).await
            {
                Ok(lines) => lines,
                // A transient error of the server or the network: the watch resumes where it ended.
                Err(error) if !matches!(&error, kube::Error::Api(status) if !is_transient(status.code)) => {
                    tracing::warn!(
                        path = self.path,
                        error = describe_error(&self.watch, &error),
                        "watching again"
                    );
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            },
        };
        loop {
            let NextLine::Line(line) = lines.next(WATCH_IDLE_TIMEOUT).await else { return Ok(()) };
            let Some(watched) = self.decode_line(line)? else { continue };
            match &watched {
                WatchEvent::Applied(fact) | WatchEvent::Deleted(fact) => {
                    self.advance_to(fact.resource_version())?
                }
                WatchEvent::Bookmark { resource_version, .. } => self.advance_to(*resource_version)?,
                WatchEvent::Error { .. } => {}
            }
            self.send(Delivery::Watched(watched)).await?;
        }
    }

    /// Opens a watch with these query parameters. Returns its response, to be read line by line.
    async fn open_watch(&self, options: &str) -> kube::Result<WatchLines> {
        let (path, common) =
            (&self.path, format!("allowWatchBookmarks=true&timeoutSeconds={WATCH_TIMEOUT_S}"));
        let path = format!("{path}?watch=true&{common}&{options}");
        let accept = if self.watch.metadata_only { ACCEPT_METADATA } else { JSON_MEDIA_TYPE };
        let opening = self.client.request_stream(request(Verb::List, path, accept, String::new()));
        // The server sends the headers at once, even without events.
        let stream = timeout(LIST_IDLE_TIMEOUT, opening).await;
        let stream = stream.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))?;
        Ok(WatchLines { stream: Box::pin(stream), line: Vec::new() })
    }

    /// Records a resource version that was received. Returns an error if it is lower than an earlier one. The resource
    /// versions of one kind only increase, unless the store was replaced.
    fn advance_to(&mut self, resource_version: u64) -> Result<(), ListWatchError> {
        if resource_version < self.newest_resource_version {
            return Err(ListWatchError::StaleState { shown: resource_version });
        }
        self.newest_resource_version = resource_version;
        Ok(())
    }

    /// Decodes one line of a watch. Returns `Err` for an error event, and `None` for a malformed object, which is
    /// skipped.
    fn decode_line(&mut self, line: &[u8]) -> Result<Option<WatchEvent<C::DecodedObject>>, ListWatchError> {
        let watched = controller::decode_watch_event::<C>(&self.watch, line, &mut self.interner);
        match skip_malformed(&self.path, watched) {
            Some(WatchEvent::Error { code: 410, .. }) => Err(ListWatchError::Compacted),
            Some(WatchEvent::Error { code, message }) => Err(ListWatchError::WatchError { code, message }),
            watched => Ok(watched),
        }
    }

    /// Sends a delivery to the controller.
    async fn send(&self, delivery: Delivery<C::DecodedObject>) -> Result<(), ListWatchError> {
        self.sender.send((self.kind, delivery)).await.map_err(|_| ListWatchError::ReceiverDropped)
    }
}

/// Returns the decoded item. If it cannot be decoded, logs the error and returns `None`.
fn skip_malformed<I>(path: &str, item: Result<I, Malformed>) -> Option<I> {
    item.map_err(|error| tracing::error!(path, %error, "skipping an object that cannot be decoded")).ok()
}

/// Whether a status code is a transient error of the server, after which the watch can resume where it ended.
fn is_transient(code: u16) -> bool {
    matches!(code, 429 | 500 | 502 | 503)
}

/// The response of a watch, read line by line.
struct WatchLines {
    /// The response body.
    stream: Pin<Box<dyn AsyncBufRead + Send>>,
    /// The line that was last read.
    line: Vec<u8>,
}

/// The result of waiting for the next line of a watch.
enum NextLine<'a> {
    /// A complete line, with its line break.
    Line(&'a [u8]),
    /// The response has ended, or failed.
    End,
    /// No complete line was received within the idle timeout.
    Timeout,
}

impl WatchLines {
    /// Reads the next line. `idle_timeout` is the maximum time to wait for it.
    async fn next(&mut self, idle_timeout: Duration) -> NextLine<'_> {
        self.line.clear();
        let mut reading = self.stream.read_until(b'\n', &mut self.line);
        // The next line is usually received already: no timer is needed.
        let read = match (&mut reading).now_or_never() {
            Some(read) => read,
            None => match timeout(idle_timeout, reading).await {
                Ok(read) => read,
                Err(_) => return NextLine::Timeout,
            },
        };
        match read {
            Ok(_) if self.line.ends_with(b"\n") => NextLine::Line(&self.line),
            Ok(_) | Err(_) => NextLine::End,
        }
    }
}

/// Waits for the next delay, with jitter.
async fn wait(backoff: &mut RetryDelay) {
    // A hasher's key is the only source of randomness in the standard library.
    let random = RandomState::new().build_hasher().finish() as u32;
    let jitter = 0.5 + f64::from(random) / f64::from(u32::MAX);
    tokio::time::sleep(backoff.next_delay().mul_f64(jitter)).await;
}

#[cfg(test)]
mod tests;
