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
use muster_engine::controller::{self, Controller, Fact, Malformed, Verb, Watch, Watched};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::request::{JSON, METADATA, METADATA_LIST, request};

/// The server ends a watch after this.
const WATCH_S: u64 = 290;
/// The server sends at least a bookmark every minute. A watch that receives nothing for longer has a dead connection, or
/// the server sends no bookmarks: in both cases a new watch costs little.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// A streaming list in which nothing is received for this long has no end: the server does not support it.
const LIST_SILENCE_MAX: Duration = Duration::from_secs(10);
/// … and so has one that takes this long, however much is received.
const LIST_MAX: Duration = Duration::from_secs(120);

/// Objects in one page of a list: a megabyte or two of text.
const PAGE: usize = 500;
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// First wait after a failure, and the longest; doubled in between.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// A watch that lasted this long did not fail.
const HELD: Duration = Duration::from_secs(5);

/// An API server that lags behind its store has caught up by then; otherwise its store was replaced.
const REPLACED_AFTER: Duration = Duration::from_secs(60);

/// What a list or a watch delivered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery<F> {
    Listed { facts: Vec<F>, resource_version: u64 },
    Watched(Watched<F>),
}

/// Lists and watches one kind and sends what it receives, with the index of the kind. Lists again whenever `relist`
/// changes. Ends when the receiver is dropped, or when the API server's store was replaced.
pub(crate) async fn reflect<C: Controller<Fact: Send>>(
    client: Client,
    (kind, watch): (usize, Watch),
    namespace: Option<&str>,
    sender: mpsc::Sender<(usize, Delivery<C::Fact>)>,
    relist: watch::Receiver<u64>,
) {
    Reflector::<C>::new(client, (kind, watch), namespace, sender).run(relist).await;
}

/// The error as text, with what the user can do about it.
fn in_words(watch: &Watch, error: &kube::Error) -> String {
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
    /// Whether the server supports streaming lists.
    streams: bool,
    silence_max: Duration,
    /// The newest resource version ever received.
    newest: u64,
    /// Since when lists are older than that.
    older_since: Option<Instant>,
    /// After this long, the store counts as replaced.
    replaced_after: Duration,
}

/// Why a new list is needed.
enum Lost {
    ReceiverDropped,
    Compacted,
    /// The server ended the watch with an error.
    WatchError {
        code: i64,
        message: String,
    },
    Failed(kube::Error),
    /// The server's state is older than before.
    Older {
        shown: u64,
    },
}

impl From<kube::Error> for Lost {
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
            streams: true,
            silence_max: LIST_SILENCE_MAX,
            newest: 0,
            older_since: None,
            replaced_after: REPLACED_AFTER,
        }
    }

    async fn run(mut self, mut relist: watch::Receiver<u64>) {
        let mut retry = Retry::default();
        loop {
            relist.mark_unchanged();
            let lost = tokio::select! {
                lost = self.list_and_watch(&mut retry) => lost,
                changed = relist.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            };
            let (path, seen) = (&self.path, self.newest);
            match lost {
                Lost::ReceiverDropped => return,
                Lost::Compacted => tracing::info!(path, "listing again: the history was compacted"),
                Lost::WatchError { code, message } => {
                    tracing::warn!(path, code, message, "listing again: the server ended the watch");
                }
                Lost::Failed(error) => {
                    tracing::warn!(path, error = in_words(&self.watch, &error), "listing again")
                }
                Lost::Older { shown } => {
                    tracing::warn!(path, seen, shown, "the API server shows an older state than before");
                    if self.older_since.is_some_and(|it| self.replaced_after < it.elapsed()) {
                        tracing::error!(path, "the API server's store was restored or replaced");
                        return;
                    }
                }
            }
            retry.wait().await;
        }
    }

    async fn list_and_watch(&mut self, retry: &mut Retry) -> Lost {
        let mut lines = match self.list().await {
            Ok(lines) => lines,
            Err(lost) => return lost,
        };
        loop {
            let began = Instant::now();
            let watched = self.watch(lines.take()).await;
            let held = HELD < began.elapsed();
            if held {
                retry.reset();
            }
            match watched {
                Ok(()) if held => {}
                Ok(()) => retry.wait().await,
                Err(lost) => return lost,
            }
        }
    }

    /// Sends a list. After a streaming list, the watch goes on with changes.
    async fn list(&mut self) -> Result<Option<Lines>, Lost> {
        if self.streams
            && let Some(lines) = self.list_as_watch().await?
        {
            return Ok(Some(lines));
        }
        self.list_by_page().await?;
        Ok(None)
    }

    /// `None` if the server does not support streaming lists, or not now.
    async fn list_as_watch(&mut self) -> Result<Option<Lines>, Lost> {
        const OPTIONS: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let mut lines = match self.open(OPTIONS).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
                tracing::debug!(
                    path = self.path,
                    status.message,
                    "listing by page: the server has no streaming lists"
                );
                self.streams = false;
                return Ok(None);
            }
            opened => opened?,
        };
        // By key: an object may be modified or deleted while the list is sent.
        let mut facts: BTreeMap<ObjectKey, C::Fact> = BTreeMap::new();
        let deadline = Instant::now() + LIST_MAX;
        loop {
            let line = match timeout_at(deadline, lines.next(self.silence_max)).await {
                Ok(Next::Line(line)) => line,
                Ok(Next::End) => return Ok(None),
                Ok(Next::Silence) | Err(_) => {
                    tracing::info!(path = self.path, "listing by page: a streaming list did not end");
                    self.streams = false;
                    return Ok(None);
                }
            };
            match self.read(line)? {
                Some(Watched::Bookmark { ends_list: true, resource_version }) => {
                    self.listed(facts.into_values().collect(), resource_version).await?;
                    return Ok(Some(lines));
                }
                Some(Watched::Applied(fact)) if fact.is_relevant() => {
                    facts.insert(fact.key(), fact);
                }
                Some(Watched::Applied(fact) | Watched::Deleted(fact)) => {
                    facts.remove(&fact.key());
                }
                _ => {}
            }
        }
    }

    async fn list_by_page(&mut self) -> Result<(), Lost> {
        #[derive(Deserialize)]
        struct Page<'a> {
            metadata: Head,
            #[serde(borrow, default)]
            items: Option<Vec<&'a RawValue>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Head {
            resource_version: String,
            #[serde(default)]
            r#continue: String,
        }
        let mut facts = Vec::new();
        let mut after = String::new();
        loop {
            let path = format!("{}?{}", self.path, page_query(&after));
            let accept = if self.watch.metadata_only { METADATA_LIST } else { JSON };
            let request = request(Verb::List, path, accept, String::new());
            let text = timeout(PAGE_TIMEOUT, self.client.request_text(request)).await;
            let text = text.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))?;
            let page: Page<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
            for item in page.items.into_iter().flatten() {
                let fact = C::decode(&self.watch, item.get().as_bytes(), &mut self.interner);
                facts.extend(well_formed(&self.path, fact).filter(Fact::is_relevant));
            }
            after = page.metadata.r#continue;
            if after.is_empty() {
                let resource_version = page.metadata.resource_version.parse().unwrap_or_default();
                return self.listed(facts, resource_version).await;
            }
        }
    }

    async fn listed(&mut self, facts: Vec<C::Fact>, resource_version: u64) -> Result<(), Lost> {
        self.send(Delivery::Listed { facts, resource_version }).await?;
        let came = self.advance_to(resource_version);
        self.older_since = came.is_err().then(|| self.older_since.unwrap_or_else(Instant::now));
        came
    }

    /// Watches until the connection ends. The next watch sends again what was cut off.
    async fn watch(&mut self, lines: Option<Lines>) -> Result<(), Lost> {
        let mut lines = match lines {
            Some(lines) => lines,
            None => match self.open(&format!("resourceVersion={}", self.newest)).await {
                Ok(lines) => lines,
                // A transient error of the server or the network: the watch resumes where it ended.
                Err(error) if !matches!(&error, kube::Error::Api(status) if !is_transient(status.code)) => {
                    tracing::warn!(path = self.path, error = in_words(&self.watch, &error), "watching again");
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            },
        };
        loop {
            let Next::Line(line) = lines.next(SILENCE_MAX).await else { return Ok(()) };
            let Some(watched) = self.read(line)? else { continue };
            match &watched {
                Watched::Applied(fact) | Watched::Deleted(fact) => {
                    self.advance_to(fact.resource_version())?
                }
                Watched::Bookmark { resource_version, .. } => self.advance_to(*resource_version)?,
                Watched::Error { .. } => {}
            }
            self.send(Delivery::Watched(watched)).await?;
        }
    }

    async fn open(&self, options: &str) -> kube::Result<Lines> {
        let (path, common) = (&self.path, format!("allowWatchBookmarks=true&timeoutSeconds={WATCH_S}"));
        let path = format!("{path}?watch=true&{common}&{options}");
        let accept = if self.watch.metadata_only { METADATA } else { JSON };
        let opening = self.client.request_stream(request(Verb::List, path, accept, String::new()));
        // The server sends the headers at once, even without events.
        let stream = timeout(LIST_SILENCE_MAX, opening).await;
        let stream = stream.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))?;
        Ok(Lines { stream: Box::pin(stream), line: Vec::new() })
    }

    /// The resource versions of one kind only increase, unless the store was replaced.
    fn advance_to(&mut self, resource_version: u64) -> Result<(), Lost> {
        if resource_version < self.newest {
            return Err(Lost::Older { shown: resource_version });
        }
        self.newest = resource_version;
        Ok(())
    }

    /// Decodes a line; an error event ends the watch.
    fn read(&mut self, line: &[u8]) -> Result<Option<Watched<C::Fact>>, Lost> {
        let watched = controller::watched::<C>(&self.watch, line, &mut self.interner);
        match well_formed(&self.path, watched) {
            Some(Watched::Error { code: 410, .. }) => Err(Lost::Compacted),
            Some(Watched::Error { code, message }) => Err(Lost::WatchError { code, message }),
            watched => Ok(watched),
        }
    }

    async fn send(&self, delivery: Delivery<C::Fact>) -> Result<(), Lost> {
        self.sender.send((self.kind, delivery)).await.map_err(|_| Lost::ReceiverDropped)
    }
}

/// Skips an object that cannot be decoded.
fn well_formed<I>(path: &str, item: Result<I, Malformed>) -> Option<I> {
    item.map_err(|error| tracing::error!(path, %error, "skipping an object that cannot be decoded")).ok()
}

fn page_query(after: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(format!("limit={PAGE}"));
    if !after.is_empty() {
        query.append_pair("continue", after);
    }
    query.finish()
}

/// Errors that do not depend on the request.
fn is_transient(code: u16) -> bool {
    matches!(code, 429 | 500 | 502 | 503)
}

/// The lines of a watch.
struct Lines {
    stream: Pin<Box<dyn AsyncBufRead + Send>>,
    line: Vec<u8>,
}

enum Next<'a> {
    Line(&'a [u8]),
    End,
    Silence,
}

impl Lines {
    async fn next(&mut self, silence_max: Duration) -> Next<'_> {
        self.line.clear();
        let mut reading = self.stream.read_until(b'\n', &mut self.line);
        // The next line is usually received already: no timer is needed.
        let read = match (&mut reading).now_or_never() {
            Some(read) => read,
            None => match timeout(silence_max, reading).await {
                Ok(read) => read,
                Err(_) => return Next::Silence,
            },
        };
        match read {
            Ok(_) if self.line.ends_with(b"\n") => Next::Line(&self.line),
            Ok(_) | Err(_) => Next::End,
        }
    }
}

/// Exponential backoff with jitter.
struct Retry(Duration);

impl Default for Retry {
    fn default() -> Self {
        Self(RETRY_MIN)
    }
}

impl Retry {
    fn reset(&mut self) {
        *self = Self::default();
    }

    async fn wait(&mut self) {
        // A hasher's key is the only source of randomness in the standard library.
        let random = RandomState::new().build_hasher().finish() as u32;
        tokio::time::sleep(self.0.mul_f64(0.5 + f64::from(random) / f64::from(u32::MAX))).await;
        self.0 = (self.0 * 2).min(RETRY_MAX);
    }
}

#[cfg(test)]
mod tests;
