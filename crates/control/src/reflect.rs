//! Lists and watches of one kind, without a gap: what the cluster is, and every change of it.

use std::pin::pin;
use std::time::Duration;

use futures::AsyncBufReadExt as _;
use http::Request;
use kube::Client;
use muster_engine::facts::{self, Kind, Malformed, Shared, Watched};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};

/// The server ends a watch after this; a connection that died in silence is noticed soon after.
const WATCH_S: u64 = 290;
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_S + 15);

/// First wait after a failure, and the longest; doubled in between.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) enum Brought {
    Listed { items: Vec<Watched>, resource_version: u64 },
    Watched(Watched),
}

/// Sends all that is known of a kind, until nobody listens. Whenever `relist` changes it begins anew with a list.
pub(crate) async fn reflect(
    client: Client,
    kind: Kind,
    sender: mpsc::Sender<(Kind, Brought)>,
    mut relist: watch::Receiver<u64>,
) {
    let mut reflector = Reflector { client, kind, sender, shared: Shared::default() };
    let mut retry = RETRY_MIN;
    loop {
        relist.mark_unchanged();
        let began = tokio::time::Instant::now();
        let lost = tokio::select! {
            lost = reflector.list_and_watch() => lost,
            changed = relist.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        match lost {
            Lost::NobodyListens => return,
            Lost::Compacted => tracing::info!(?kind, "the history was compacted: list anew"),
            Lost::Failed(error) => tracing::warn!(?kind, %error, "the watch was lost: list anew"),
        }
        // Whatever held this long was no failure to begin with.
        if RETRY_MAX < began.elapsed() {
            retry = RETRY_MIN;
        }
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

pub(crate) fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Sets => "/apis/apps/v1/daemonsets",
        Kind::Nodes => "/api/v1/nodes",
        Kind::Pods => "/api/v1/pods",
        Kind::Revisions => "/apis/apps/v1/controllerrevisions",
    }
}

struct Reflector {
    client: Client,
    kind: Kind,
    sender: mpsc::Sender<(Kind, Brought)>,
    shared: Shared,
}

/// Why a list is due.
enum Lost {
    NobodyListens,
    Compacted,
    Failed(kube::Error),
}

impl From<kube::Error> for Lost {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 410 => Self::Compacted,
            _ => Self::Failed(error),
        }
    }
}

impl Reflector {
    async fn list_and_watch(&mut self) -> Lost {
        let mut after = match self.list().await {
            Ok(resource_version) => resource_version,
            Err(lost) => return lost,
        };
        loop {
            match self.watch(after).await {
                Ok(seen) => after = seen,
                Err(lost) => return lost,
            }
        }
    }

    /// Read from the store and not from a cache of the server's: no `resourceVersion` is given.
    async fn list(&mut self) -> Result<u64, Lost> {
        #[derive(Deserialize)]
        struct List<'a> {
            metadata: Head,
            #[serde(borrow)]
            items: Vec<&'a RawValue>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Head {
            resource_version: String,
        }
        let text = self.client.request_text(get(path(self.kind).to_owned())).await?;
        let list: List<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        let resource_version = list.metadata.resource_version.parse().unwrap_or_default();
        let mut items = Vec::with_capacity(list.items.len());
        for item in list.items {
            // As a line of a watch, so that one reader serves both.
            let line = format!(r#"{{"type":"ADDED","object":{item}}}"#);
            items.extend(self.read(line.as_bytes()));
        }
        self.send(Brought::Listed { items, resource_version }).await?;
        Ok(resource_version)
    }

    /// Watches until the server ends it, and says how far it came.
    async fn watch(&mut self, after: u64) -> Result<u64, Lost> {
        let options =
            format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={after}");
        let stream = self.client.request_stream(get(format!("{}?{options}", path(self.kind)))).await?;
        let mut stream = pin!(stream);
        let mut seen = after;
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = tokio::time::timeout(SILENCE_MAX, stream.read_until(b'\n', &mut line)).await;
            match read {
                // What was cut off is sent again by the next watch.
                Err(_) | Ok(Err(_) | Ok(0)) => return Ok(seen),
                Ok(Ok(_)) if !line.ends_with(b"\n") => return Ok(seen),
                Ok(Ok(_)) => {}
            }
            let Some(watched) = self.read(&line) else { continue };
            match &watched {
                Watched::Error { code: 410, .. } => return Err(Lost::Compacted),
                Watched::Error { code, message } => {
                    tracing::warn!(kind = ?self.kind, code, message, "the server ended the watch");
                    return Err(Lost::Compacted);
                }
                Watched::Set(it) => seen = it.resource_version,
                Watched::Node(it) => seen = it.resource_version,
                Watched::Pod(it) => seen = it.resource_version,
                Watched::Revision(it) => seen = it.resource_version,
                Watched::Gone { resource_version, .. } | Watched::Bookmark { resource_version } => {
                    seen = *resource_version;
                }
            }
            self.send(Brought::Watched(watched)).await?;
        }
    }

    /// An object that cannot be read is left out, and stops nothing else.
    fn read(&mut self, line: &[u8]) -> Option<Watched> {
        let complain =
            |error: Malformed| tracing::error!(kind = ?self.kind, %error, "an object was left out");
        facts::watched(self.kind, line, &mut self.shared).map_err(complain).ok()
    }

    async fn send(&self, brought: Brought) -> Result<(), Lost> {
        self.sender.send((self.kind, brought)).await.map_err(|_| Lost::NobodyListens)
    }
}

fn get(path: String) -> Request<Vec<u8>> {
    Request::get(path)
        .header(http::header::ACCEPT, "application/json")
        .body(Vec::new())
        .expect("a valid path")
}
