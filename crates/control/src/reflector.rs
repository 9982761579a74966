//! Lists and watches one kind without gaps, and feeds a controller.
//!
//! Each object is decoded into a fact as soon as its last byte is received; neither the object nor the text of a list is
//! kept. A list is a consistent read, not from the server's watch cache: no `resourceVersion` is given.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::pin::Pin;
use std::time::Duration;

use futures::io::AsyncBufRead;
use futures::{AsyncBufReadExt as _, FutureExt as _};
use kube::Client;
use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_engine::controller::{self, Controller, Fact, Malformed, Verb, Watch, WatchEvent};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::request::{JSON, METADATA, METADATA_LIST, request};

/// `timeoutSeconds` of a watch request.
const WATCH_TIMEOUT_S: u64 = 290;
/// Time without data after which a watch is reopened. The server sends at least a bookmark every minute, so a silent watch
/// has a dead connection or a server without bookmarks.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Time without data after which a streaming list is abandoned: a server that does not support it never ends it.
const LIST_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a whole streaming list.
const LIST_TIMEOUT: Duration = Duration::from_secs(120);

/// Number of objects in one page of a list: a megabyte or two of JSON.
const PAGE_SIZE: usize = 500;
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bounds of the exponential backoff after a failure.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Duration of a watch after which the backoff is reset.
const WATCH_HEALTHY_AFTER: Duration = Duration::from_secs(5);

/// Time for which lists may show an older state before the store counts as replaced. An API server that only lags behind
/// its store catches up sooner.
const STORE_REPLACED_AFTER: Duration = Duration::from_secs(60);

/// What a reflector sends to its controller: a whole list, or one watch event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery<F> {
    Listed { facts: Vec<F>, resource_version: u64 },
    Watched(WatchEvent<F>),
}

/// Lists and watches one kind and sends each delivery with the index of the kind. Lists again whenever `relist` changes.
/// Ends when the receiver is dropped, or when the API server's store was replaced.
pub(crate) async fn run_reflector<C: Controller<Fact: Send>>(
    client: Client,
    (kind, watch): (usize, Watch),
    namespace: Option<&str>,
    sender: mpsc::Sender<(usize, Delivery<C::Fact>)>,
    relist: watch::Receiver<u64>,
) {
    Reflector::<C>::new(client, (kind, watch), namespace, sender).run(relist).await;
}

/// Formats an error of a list or watch; for 401 and 403, with the missing permission.
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
        kube::Error::Api(status) => format!("{resource}: {} ({})", status.message, status.code),
        error => {
            let causes = std::iter::successors(Some(error as &dyn std::error::Error), |it| it.source());
            format!("{resource}: {}", causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
        }
    }
}

/// Lists and watches one kind. Upstream: `cache.Reflector`.
struct Reflector<C: Controller> {
    client: Client,
    kind: usize,
    watch: Watch,
    interner: Interner,
    path: String,
    sender: mpsc::Sender<(usize, Delivery<C::Fact>)>,
    /// Whether the server supports streaming lists (`sendInitialEvents`).
    supports_streaming_list: bool,
    idle_timeout: Duration,
    /// The highest resource version received.
    newest_resource_version: u64,
    /// The time since which lists have had a resource version below `newest_resource_version`.
    stale_since: Option<Instant>,
    /// Time after which the store counts as replaced: [`STORE_REPLACED_AFTER`], shorter in tests.
    store_replaced_after: Duration,
}

/// Why a reflector stopped to list and watch a kind.
enum ListWatchError {
    ReceiverDropped,
    Compacted,
    /// The server ended the watch with an error.
    WatchError {
        code: i64,
        message: String,
    },
    Failed(kube::Error),
    /// The server returned a lower resource version than before.
    StaleState {
        shown: u64,
    },
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
    C: Controller<Fact: Send>,
{
    fn new(
        client: Client,
        (kind, watch): (usize, Watch),
        namespace: Option<&str>,
        sender: mpsc::Sender<(usize, Delivery<C::Fact>)>,
    ) -> Self {
        Self {
            client,
            kind,
            path: watch.resource.collection(namespace),
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

    async fn run(mut self, mut relist: watch::Receiver<u64>) {
        let mut backoff = Backoff::default();
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
                ListWatchError::Failed(error) => {
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
            backoff.wait().await;
        }
    }

    async fn list_and_watch(&mut self, backoff: &mut Backoff) -> ListWatchError {
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
                Ok(()) => backoff.wait().await,
                Err(ended) => return ended,
            }
        }
    }

    /// Lists the kind and sends the list. A streaming list returns its open watch, which continues with changes.
    async fn list(&mut self) -> Result<Option<WatchLines>, ListWatchError> {
        if self.supports_streaming_list
            && let Some(lines) = self.streaming_list().await?
        {
            return Ok(Some(lines));
        }
        self.paged_list().await?;
        Ok(None)
    }

    /// Lists by a watch with `sendInitialEvents`. `None` if the server does not support it, or the stream ended early.
    async fn streaming_list(&mut self) -> Result<Option<WatchLines>, ListWatchError> {
        const OPTIONS: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let mut lines = match self.open_watch(OPTIONS).await {
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
        let mut facts: BTreeMap<ObjectKey, C::Fact> = BTreeMap::new();
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

    async fn paged_list(&mut self) -> Result<(), ListWatchError> {
        #[derive(Deserialize)]
        struct Page<'a> {
            metadata: ListMeta,
            #[serde(borrow, default)]
            items: Option<Vec<&'a RawValue>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListMeta {
            resource_version: String,
            #[serde(default)]
            r#continue: String,
        }
        let mut facts = Vec::new();
        let mut continue_token = String::new();
        loop {
            let path = format!("{}?{}", self.path, page_query(&continue_token));
            let accept = if self.watch.metadata_only { METADATA_LIST } else { JSON };
            let request = request(Verb::List, path, accept, String::new());
            let text = timeout(PAGE_TIMEOUT, self.client.request_text(request)).await;
            let text = text.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))?;
            let page: Page<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
            for item in page.items.into_iter().flatten() {
                let fact = C::decode(&self.watch, item.get().as_bytes(), &mut self.interner);
                facts.extend(skip_malformed(&self.path, fact).filter(Fact::is_relevant));
            }
            continue_token = page.metadata.r#continue;
            if continue_token.is_empty() {
                let resource_version = page.metadata.resource_version.parse().unwrap_or_default();
                return self.send_list(facts, resource_version).await;
            }
        }
    }

    async fn send_list(&mut self, facts: Vec<C::Fact>, resource_version: u64) -> Result<(), ListWatchError> {
        self.send(Delivery::Listed { facts, resource_version }).await?;
        let advanced = self.advance_to(resource_version);
        self.stale_since = advanced.is_err().then(|| self.stale_since.unwrap_or_else(Instant::now));
        advanced
    }

    /// Watches until the connection ends. The next watch resumes after the last event that was received completely.
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

    async fn open_watch(&self, options: &str) -> kube::Result<WatchLines> {
        let (path, common) =
            (&self.path, format!("allowWatchBookmarks=true&timeoutSeconds={WATCH_TIMEOUT_S}"));
        let path = format!("{path}?watch=true&{common}&{options}");
        let accept = if self.watch.metadata_only { METADATA } else { JSON };
        let opening = self.client.request_stream(request(Verb::List, path, accept, String::new()));
        // The server sends the headers at once, even without events.
        let stream = timeout(LIST_IDLE_TIMEOUT, opening).await;
        let stream = stream.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))?;
        Ok(WatchLines { stream: Box::pin(stream), line: Vec::new() })
    }

    /// Records a resource version. Those of one kind only increase, unless the store was replaced.
    fn advance_to(&mut self, resource_version: u64) -> Result<(), ListWatchError> {
        if resource_version < self.newest_resource_version {
            return Err(ListWatchError::StaleState { shown: resource_version });
        }
        self.newest_resource_version = resource_version;
        Ok(())
    }

    /// Decodes one line of a watch. An error event becomes an `Err`; a malformed object is skipped.
    fn decode_line(&mut self, line: &[u8]) -> Result<Option<WatchEvent<C::Fact>>, ListWatchError> {
        let watched = controller::decode_watch_event::<C>(&self.watch, line, &mut self.interner);
        match skip_malformed(&self.path, watched) {
            Some(WatchEvent::Error { code: 410, .. }) => Err(ListWatchError::Compacted),
            Some(WatchEvent::Error { code, message }) => Err(ListWatchError::WatchError { code, message }),
            watched => Ok(watched),
        }
    }

    async fn send(&self, delivery: Delivery<C::Fact>) -> Result<(), ListWatchError> {
        self.sender.send((self.kind, delivery)).await.map_err(|_| ListWatchError::ReceiverDropped)
    }
}

/// Logs an object that cannot be decoded, and returns `None` for it.
fn skip_malformed<I>(path: &str, item: Result<I, Malformed>) -> Option<I> {
    item.map_err(|error| tracing::error!(path, %error, "skipping an object that cannot be decoded")).ok()
}

fn page_query(continue_token: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(format!("limit={PAGE_SIZE}"));
    if !continue_token.is_empty() {
        query.append_pair("continue", continue_token);
    }
    query.finish()
}

/// Whether a status code is a transient error of the server, after which the same watch can resume.
fn is_transient(code: u16) -> bool {
    matches!(code, 429 | 500 | 502 | 503)
}

/// The response of a watch, read line by line.
struct WatchLines {
    stream: Pin<Box<dyn AsyncBufRead + Send>>,
    line: Vec<u8>,
}

/// The result of waiting for the next line.
enum NextLine<'a> {
    Line(&'a [u8]),
    End,
    Timeout,
}

impl WatchLines {
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

/// Exponential backoff with jitter.
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(BACKOFF_MIN)
    }
}

impl Backoff {
    fn reset(&mut self) {
        *self = Self::default();
    }

    async fn wait(&mut self) {
        // A hasher's key is the only source of randomness in the standard library.
        let random = RandomState::new().build_hasher().finish() as u32;
        tokio::time::sleep(self.0.mul_f64(0.5 + f64::from(random) / f64::from(u32::MAX))).await;
        self.0 = (self.0 * 2).min(BACKOFF_MAX);
    }
}

#[cfg(test)]
mod tests;
