//! Lists and watches of one kind, without a gap: what the cluster is, and every change of it.
//!
//! Each object becomes a fact as soon as its last byte is there; neither it nor the text of a list is kept. A list is
//! always read from the store and not from a cache of the server's: no `resourceVersion` is given.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use futures::io::AsyncBufRead;
use futures::{AsyncBufReadExt as _, FutureExt as _};
use kube::Client;
use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_engine::controller::{self, Controller, Watch};
use muster_engine::daemonset::facts::{self, Kind, Malformed, Watched};
use muster_engine::daemonset::manifest::Verb;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::request::{JSON, METADATA, METADATA_LIST, request};

/// The server ends a watch after this.
const WATCH_S: u64 = 290;
/// A watch is told at least a bookmark every minute. One that is silent for longer hangs on a dead connection, or on a
/// server without bookmarks: either way it costs little to ask again.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// A list that comes as a watch and stands still for this long has no end: the server does not know what was asked.
const LIST_SILENCE_MAX: Duration = Duration::from_secs(10);
/// … and so has one that takes this long, however much it tells.
const LIST_MAX: Duration = Duration::from_secs(120);

/// Objects in one page of a list: a megabyte or two of text.
const PAGE: usize = 500;
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// First wait after a failure, and the longest; doubled in between.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// A watch that held this long did not fail.
const HELD: Duration = Duration::from_secs(5);

/// An API server that lags behind its store has caught up by then. One that has not shows another store.
const SET_BACK_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Brought<I> {
    Listed { items: Vec<I>, resource_version: u64 },
    Watched(I),
}

/// One kind, and what becomes of its objects.
pub(crate) trait Source: Send {
    /// Tells what is brought of one source from what is brought of another.
    type Tag: Copy + Send;
    type Item: Item;

    fn tag(&self) -> Self::Tag;
    /// Group and resource, as roles name them.
    fn name(&self) -> (&str, &str);
    fn metadata_only(&self) -> bool;
    fn listed(&mut self, object: &[u8]) -> Result<Self::Item, Malformed>;
    fn watched(&mut self, line: &[u8]) -> Result<Self::Item, Malformed>;
}

/// What a line of a watch has become.
pub(crate) trait Item: Send {
    fn sort(&self) -> Sort<'_>;
    /// `None` for what is about no object.
    fn key(&self) -> Option<ObjectKey>;
    /// How far the watch that brought it has come.
    fn resource_version(&self) -> Option<u64>;
}

pub(crate) enum Sort<'a> {
    Object,
    Gone,
    Bookmark { ends_list: bool },
    Error { code: i64, message: &'a str },
}

/// One of the kinds that the DaemonSet rules read.
pub(crate) struct OfSets {
    kind: Kind,
    shared: Interner,
}

impl OfSets {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, shared: Interner::default() }
    }
}

impl Source for OfSets {
    type Tag = Kind;
    type Item = Watched;

    fn tag(&self) -> Kind {
        self.kind
    }

    fn name(&self) -> (&str, &str) {
        (self.kind.group(), self.kind.plural())
    }

    fn metadata_only(&self) -> bool {
        false
    }

    fn listed(&mut self, object: &[u8]) -> Result<Watched, Malformed> {
        facts::listed(self.kind, object, &mut self.shared)
    }

    fn watched(&mut self, line: &[u8]) -> Result<Watched, Malformed> {
        facts::watched(self.kind, line, &mut self.shared)
    }
}

impl Item for Watched {
    fn sort(&self) -> Sort<'_> {
        match self {
            Self::Gone { .. } => Sort::Gone,
            Self::Bookmark { ends_list, .. } => Sort::Bookmark { ends_list: *ends_list },
            Self::Error { code, message } => Sort::Error { code: *code, message },
            Self::Set(_) | Self::Node(_) | Self::Pod(_) | Self::Revision(_) => Sort::Object,
        }
    }

    fn key(&self) -> Option<ObjectKey> {
        Watched::key(self)
    }

    fn resource_version(&self) -> Option<u64> {
        Watched::resource_version(self)
    }
}

/// One of the kinds that a loop watches.
pub(crate) struct OfLoop<L> {
    kind: usize,
    watch: Watch,
    shared: Interner,
    of: PhantomData<fn() -> L>,
}

impl<L> OfLoop<L> {
    pub(crate) fn new(kind: usize, watch: Watch) -> Self {
        Self { kind, watch, shared: Interner::default(), of: PhantomData }
    }
}

impl<L: Controller<Fact: Send>> Source for OfLoop<L> {
    type Tag = usize;
    type Item = controller::Watched<L::Fact>;

    fn tag(&self) -> usize {
        self.kind
    }

    fn name(&self) -> (&str, &str) {
        (&self.watch.resource.group, &self.watch.resource.plural)
    }

    fn metadata_only(&self) -> bool {
        self.watch.metadata_only
    }

    fn listed(&mut self, object: &[u8]) -> Result<Self::Item, Malformed> {
        L::decode(&self.watch, object, &mut self.shared).map(controller::Watched::Put)
    }

    fn watched(&mut self, line: &[u8]) -> Result<Self::Item, Malformed> {
        controller::watched::<L>(&self.watch, line, &mut self.shared)
    }
}

impl<F: controller::Fact + Send> Item for controller::Watched<F> {
    fn sort(&self) -> Sort<'_> {
        match self {
            Self::Put(_) => Sort::Object,
            Self::Gone(_) => Sort::Gone,
            Self::Bookmark { ends_list, .. } => Sort::Bookmark { ends_list: *ends_list },
            Self::Error { code, message } => Sort::Error { code: *code, message },
        }
    }

    fn key(&self) -> Option<ObjectKey> {
        match self {
            Self::Put(fact) | Self::Gone(fact) => Some(fact.key()),
            Self::Bookmark { .. } | Self::Error { .. } => None,
        }
    }

    fn resource_version(&self) -> Option<u64> {
        match self {
            Self::Put(fact) | Self::Gone(fact) => Some(fact.resource_version()),
            Self::Bookmark { resource_version, .. } => Some(*resource_version),
            Self::Error { .. } => None,
        }
    }
}

/// Sends all that is known of a kind, of one namespace or of all. Whenever `relist` changes it begins anew with a list.
/// Ends when nobody listens, or when what it told before is not the store's past any more: whoever listens begins anew.
pub(crate) async fn reflect<S: Source>(
    client: Client,
    source: S,
    path: String,
    sender: mpsc::Sender<(S::Tag, Brought<S::Item>)>,
    relist: watch::Receiver<u64>,
) {
    let reflector = Reflector {
        client,
        source,
        path,
        sender,
        streams: true,
        silence_max: LIST_SILENCE_MAX,
        newest: 0,
        led_back_since: None,
        set_back_after: SET_BACK_AFTER,
    };
    reflector.run(relist).await;
}

/// What went wrong, and what is to be done about it.
fn in_words((group, resource): (&str, &str), error: &kube::Error) -> String {
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

struct Reflector<S: Source> {
    client: Client,
    source: S,
    path: String,
    sender: mpsc::Sender<(S::Tag, Brought<S::Item>)>,
    /// Whether a list may be asked for as a watch.
    streams: bool,
    silence_max: Duration,
    /// How far it has ever come.
    newest: u64,
    /// Since when lists are older than that.
    led_back_since: Option<Instant>,
    set_back_after: Duration,
}

/// Why a list is due.
enum Lost {
    NobodyListens,
    Compacted,
    /// In the middle of a watch.
    ControllerExit {
        code: i64,
        message: String,
    },
    Failed(kube::Error),
    /// What is shown is older than what was shown before.
    LedBack {
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

impl<S: Source> Reflector<S> {
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
                Lost::NobodyListens => return,
                Lost::Compacted => tracing::info!(path, "the history was compacted: list anew"),
                Lost::ControllerExit { code, message } => {
                    tracing::warn!(path, code, message, "the server ended the watch: list anew");
                }
                Lost::Failed(error) => {
                    tracing::warn!(path, error = in_words(self.source.name(), &error), "list anew")
                }
                Lost::LedBack { shown } => {
                    tracing::warn!(path, seen, shown, "the API server shows an older state than before");
                    if self.led_back_since.is_some_and(|it| self.set_back_after < it.elapsed()) {
                        tracing::error!(path, "its store was restored or replaced: everything begins anew");
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

    /// Tells all there is; where that came as a watch, it goes on with changes.
    async fn list(&mut self) -> Result<Option<Lines>, Lost> {
        if self.streams
            && let Some(lines) = self.list_as_watch().await?
        {
            return Ok(Some(lines));
        }
        self.list_by_page().await?;
        Ok(None)
    }

    /// `None`: the server does not do so, or not now.
    async fn list_as_watch(&mut self) -> Result<Option<Lines>, Lost> {
        const OPTIONS: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let mut lines = match self.open(OPTIONS).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
                tracing::debug!(
                    path = self.path,
                    status.message,
                    "no streaming lists here: pages are asked for"
                );
                self.streams = false;
                return Ok(None);
            }
            opened => opened?,
        };
        // By key, for an object may change or go while the list is told.
        let mut items: BTreeMap<ObjectKey, S::Item> = BTreeMap::new();
        let deadline = Instant::now() + LIST_MAX;
        loop {
            let line = match timeout_at(deadline, lines.next(self.silence_max)).await {
                Ok(Next::Line(line)) => line,
                Ok(Next::End) => return Ok(None),
                Ok(Next::Silence) | Err(_) => {
                    tracing::info!(path = self.path, "a streaming list did not end: pages are asked for");
                    self.streams = false;
                    return Ok(None);
                }
            };
            let Some(item) = self.read(line)? else { continue };
            match item.sort() {
                Sort::Bookmark { ends_list: true } => {
                    let resource_version = item.resource_version().unwrap_or_default();
                    self.listed(items.into_values().collect(), resource_version).await?;
                    return Ok(Some(lines));
                }
                Sort::Gone => drop(item.key().and_then(|key| items.remove(&key))),
                _ => drop(item.key().and_then(|key| items.insert(key, item))),
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
        let mut items = Vec::new();
        let mut after = String::new();
        loop {
            let path = format!("{}?{}", self.path, page_query(&after));
            let accept = if self.source.metadata_only() { METADATA_LIST } else { JSON };
            let request = request(Verb::List, path, accept, String::new());
            let text = timeout(PAGE_TIMEOUT, self.client.request_text(request)).await;
            let text = text.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))?;
            let page: Page<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
            for item in page.items.into_iter().flatten() {
                let item = self.source.listed(item.get().as_bytes());
                items.extend(well_formed(&self.path, item).filter(|it| !matches!(it.sort(), Sort::Gone)));
            }
            after = page.metadata.r#continue;
            if after.is_empty() {
                let resource_version = page.metadata.resource_version.parse().unwrap_or_default();
                return self.listed(items, resource_version).await;
            }
        }
    }

    async fn listed(&mut self, items: Vec<S::Item>, resource_version: u64) -> Result<(), Lost> {
        self.send(Brought::Listed { items, resource_version }).await?;
        let came = self.come_to(resource_version);
        self.led_back_since = came.is_err().then(|| self.led_back_since.unwrap_or_else(Instant::now));
        came
    }

    /// Watches until the connection ends. What was cut off is sent again by the next watch.
    async fn watch(&mut self, lines: Option<Lines>) -> Result<(), Lost> {
        let mut lines = match lines {
            Some(lines) => lines,
            None => match self.open(&format!("resourceVersion={}", self.newest)).await {
                Ok(lines) => lines,
                // The server, or the way to it, is in trouble: the watch goes on from where it was.
                Err(error) if !matches!(&error, kube::Error::Api(status) if !is_passing(status.code)) => {
                    tracing::warn!(
                        path = self.path,
                        error = in_words(self.source.name(), &error),
                        "watch again"
                    );
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            },
        };
        loop {
            let Next::Line(line) = lines.next(SILENCE_MAX).await else { return Ok(()) };
            let Some(watched) = self.read(line)? else { continue };
            if let Some(resource_version) = watched.resource_version() {
                self.come_to(resource_version)?;
            }
            self.send(Brought::Watched(watched)).await?;
        }
    }

    async fn open(&self, options: &str) -> kube::Result<Lines> {
        let (path, common) = (&self.path, format!("allowWatchBookmarks=true&timeoutSeconds={WATCH_S}"));
        let path = format!("{path}?watch=true&{common}&{options}");
        let accept = if self.source.metadata_only() { METADATA } else { JSON };
        let opening = self.client.request_stream(request(Verb::List, path, accept, String::new()));
        // Headers come at once, whatever there is to tell.
        let stream = timeout(LIST_SILENCE_MAX, opening).await;
        let stream = stream.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))?;
        Ok(Lines { stream: Box::pin(stream), line: Vec::new() })
    }

    /// Versions of one kind only go up, unless another store is behind them.
    fn come_to(&mut self, resource_version: u64) -> Result<(), Lost> {
        if resource_version < self.newest {
            return Err(Lost::LedBack { shown: resource_version });
        }
        self.newest = resource_version;
        Ok(())
    }

    /// Reads a line, unless it says that the watch is over.
    fn read(&mut self, line: &[u8]) -> Result<Option<S::Item>, Lost> {
        let item = well_formed(&self.path, self.source.watched(line));
        match item.as_ref().map(Item::sort) {
            Some(Sort::Error { code: 410, .. }) => Err(Lost::Compacted),
            Some(Sort::Error { code, message }) => {
                Err(Lost::ControllerExit { code, message: message.to_owned() })
            }
            _ => Ok(item),
        }
    }

    async fn send(&self, brought: Brought<S::Item>) -> Result<(), Lost> {
        self.sender.send((self.source.tag(), brought)).await.map_err(|_| Lost::NobodyListens)
    }
}

/// An object that cannot be read is left out, and stops nothing else.
fn well_formed<I>(path: &str, item: Result<I, Malformed>) -> Option<I> {
    item.map_err(|error| tracing::error!(path, %error, "an object was left out")).ok()
}

fn page_query(after: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(format!("limit={PAGE}"));
    if !after.is_empty() {
        query.append_pair("continue", after);
    }
    query.finish()
}

/// Refusals that say nothing about what was asked for.
fn is_passing(code: u16) -> bool {
    matches!(code, 429 | 500 | 502 | 503)
}

/// A watch as it comes.
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
        // Mostly the next line is there already, and no timer is needed for it.
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

/// Waits longer each time, and never quite as long as another process does.
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
        // A hasher's key is the one source of chance in the standard library.
        let chance = RandomState::new().build_hasher().finish() as u32;
        tokio::time::sleep(self.0.mul_f64(0.5 + f64::from(chance) / f64::from(u32::MAX))).await;
        self.0 = (self.0 * 2).min(RETRY_MAX);
    }
}

#[cfg(test)]
mod tests;
