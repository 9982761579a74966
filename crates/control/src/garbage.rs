//! The garbage collector's shell: it watches every kind, asks the engine what to do, and makes the calls it says.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered, SelectAll};
use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ApiResource;
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use muster_engine::act::Refusal;
use muster_engine::facts::{Shared, Text};
use muster_engine::garbage::{self, Call, Event, Graph, Outcome, Raw, Resource};
use muster_engine::loops::Request;
use muster_engine::time::Time;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::call::{CALL_TIMEOUT, send};
use crate::daemonset::{SLEEP_MAX, now};
use crate::request::{METADATA, request};

/// Calls at once. Upstream: `concurrent-gc-syncs`.
const CALLS_MAX: usize = 20;

/// Kinds that are asked for again if the server could not say which it serves.
const DISCOVERY_RETRY: Duration = Duration::from_secs(1);

/// Collects what belongs to nobody any more, until `stop`.
pub async fn garbage(client: Client, stop: CancellationToken) {
    let collecting = async {
        let served = discover(&client).await;
        let watched = served.iter().filter(|(_, is_watched)| *is_watched).map(|(it, _)| it.clone());
        let watched: Vec<Arc<Resource>> = watched.collect();
        let events = stream::select_all(watched.iter().map(|it| watch(&client, it.clone())));
        let served = served.into_iter().map(|(it, _)| it).collect();
        let mut shell = Shell {
            client,
            graph: Graph::new(served, watched),
            shared: Shared::default(),
            queue: BTreeSet::new(),
            wakes: BTreeMap::new(),
            due: BTreeSet::new(),
            ready: Vec::new(),
            acting: FuturesUnordered::new(),
        };
        shell.run(events).await;
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = collecting => {}
    }
}

/// The kinds that the server serves, and whether each is watched: those that can be deleted. Events belong to nobody, and
/// what has two doors is watched through one.
async fn discover(client: &Client) -> Vec<(Arc<Resource>, bool)> {
    const SECOND_DOORS: [&str; 2] = ["events.k8s.io", "extensions"];
    let discovery = loop {
        match Discovery::new(client.clone()).run().await {
            Ok(discovery) => break discovery,
            Err(error) => tracing::warn!(%error, "ask which kinds there are; it is tried again"),
        }
        tokio::time::sleep(DISCOVERY_RETRY).await;
    };
    let mut resources = Vec::new();
    for (it, can) in discovery.groups_alphabetical().iter().flat_map(|it| it.recommended_resources()) {
        let is_needed =
            [verbs::LIST, verbs::WATCH, verbs::DELETE].iter().all(|it| can.supports_operation(it));
        let is_watched = is_needed && it.kind != "Event" && !SECOND_DOORS.contains(&it.group.as_str());
        if can.supports_operation(verbs::GET) {
            let resource = Resource {
                group: it.group.into(),
                version: it.version.into(),
                kind: it.kind.into(),
                plural: it.plural.into(),
                namespaced: can.scope == Scope::Namespaced,
            };
            resources.push((Arc::new(resource), is_watched));
        }
    }
    resources
}

/// What a watch brings, of one kind.
enum Brought {
    Listed(Arc<Resource>, Vec<Raw>),
    Put(Arc<Resource>, Raw),
    Gone(Arc<Resource>, Raw),
}

fn watch(client: &Client, resource: Arc<Resource>) -> BoxStream<'static, Brought> {
    let api_version = match &*resource.group {
        "" => resource.version.to_string(),
        group => format!("{group}/{}", resource.version),
    };
    let named = ApiResource {
        group: resource.group.to_string(),
        version: resource.version.to_string(),
        api_version,
        kind: resource.kind.to_string(),
        plural: resource.plural.to_string(),
    };
    match Raw::is_read_whole(&resource) {
        true => brought(Api::<Item<true>>::all_with(client.clone(), &named), resource),
        false => brought(Api::<Item<false>>::all_with(client.clone(), &named), resource),
    }
}

fn brought<const WHOLE: bool>(api: Api<Item<WHOLE>>, resource: Arc<Resource>) -> BoxStream<'static, Brought> {
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let mut listed = Vec::new();
    let brought = events.filter_map(move |event| {
        let resource = resource.clone();
        let brought = match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                None
            }
            Ok(watcher::Event::InitApply(it)) => {
                listed.push(it.raw);
                None
            }
            Ok(watcher::Event::InitDone) => Some(Brought::Listed(resource, std::mem::take(&mut listed))),
            Ok(watcher::Event::Apply(it)) => Some(Brought::Put(resource, it.raw)),
            Ok(watcher::Event::Delete(it)) => Some(Brought::Gone(resource, it.raw)),
            Err(error) => {
                tracing::warn!(kind = %resource.kind, %error, "the watch was lost; it begins anew");
                None
            }
        };
        std::future::ready(brought)
    });
    brought.boxed()
}

/// An object as the watcher wants it: of the metadata it reads the version alone, so nothing else is kept.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Raw")]
struct Item<const WHOLE: bool> {
    meta: ObjectMeta,
    raw: Raw,
}

impl<const WHOLE: bool> From<Raw> for Item<WHOLE> {
    fn from(raw: Raw) -> Self {
        let resource_version = Some(raw.resource_version().to_owned());
        Self { meta: ObjectMeta { resource_version, ..ObjectMeta::default() }, raw }
    }
}

impl<const WHOLE: bool> kube::Resource for Item<WHOLE> {
    type DynamicType = ApiResource;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(it: &ApiResource) -> Cow<'_, str> {
        it.kind.as_str().into()
    }

    fn group(it: &ApiResource) -> Cow<'_, str> {
        it.group.as_str().into()
    }

    fn version(it: &ApiResource) -> Cow<'_, str> {
        it.version.as_str().into()
    }

    fn plural(it: &ApiResource) -> Cow<'_, str> {
        it.plural.as_str().into()
    }

    fn metadata_api() -> bool {
        !WHOLE
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

struct Shell {
    client: Client,
    graph: Graph,
    shared: Shared,
    /// Objects to look at, by UID.
    queue: BTreeSet<Text>,
    /// Objects to look at later, whatever happens, by UID and by time.
    wakes: BTreeMap<Text, Time>,
    due: BTreeSet<(Time, Text)>,
    /// Calls that wait for their turn: at most one for each object, and one for each owner in doubt.
    ready: Vec<Call>,
    acting: FuturesUnordered<BoxFuture<'static, (Call, Outcome)>>,
}

impl Shell {
    async fn run(&mut self, mut events: SelectAll<BoxStream<'static, Brought>>) {
        loop {
            self.look();
            let sleep = self.due.first().map_or(SLEEP_MAX, |(at, _)| at.since(now()).min(SLEEP_MAX));
            tokio::select! {
                brought = events.next() => match brought {
                    Some(brought) => self.take(brought),
                    None => return,
                },
                Some((call, outcome)) = self.acting.next() => {
                    if let Outcome::Refused(refusal) = &outcome {
                        tracing::debug!(%call, %refusal);
                    }
                    self.queue.extend(self.graph.done(&call, outcome, now()));
                }
                () = tokio::time::sleep(sleep) => {
                    let now = now();
                    let due = self.due.iter().take_while(|(at, _)| *at <= now);
                    self.queue.extend(due.map(|(_, uid)| uid.clone()));
                }
            }
        }
    }

    fn take(&mut self, brought: Brought) {
        let shared = &mut self.shared;
        let event = match brought {
            Brought::Listed(resource, all) => {
                let objects = all.into_iter().map(|it| it.object(&resource, shared)).collect();
                Event::Listed { resource, objects }
            }
            Brought::Put(resource, raw) => Event::Put(raw.object(&resource, shared)),
            Brought::Gone(resource, raw) => Event::Gone { uid: raw.object(&resource, shared).uid },
        };
        self.queue.extend(self.graph.apply(event));
    }

    fn look(&mut self) {
        while let Some(uid) = self.queue.pop_first() {
            let look = self.graph.look(&uid, now());
            self.wake(uid, look.wake_at);
            self.ready.extend(look.calls);
        }
        while self.acting.len() < CALLS_MAX {
            let Some(call) = self.ready.pop() else { break };
            tracing::debug!(%call);
            self.acting.push(Box::pin(make(self.client.clone(), call)));
        }
    }

    /// Each look says anew when the next one is due.
    fn wake(&mut self, uid: Text, at: Option<Time>) {
        if let Some(before) = self.wakes.remove(&uid) {
            self.due.remove(&(before, uid.clone()));
        }
        if let Some(at) = at {
            self.due.insert((at, uid.clone()));
            self.wakes.insert(uid, at);
        }
    }
}

async fn make(client: Client, call: Call) -> (Call, Outcome) {
    let Request { verb, path, body, .. } = garbage::request(&call);
    let request = request(verb, path, METADATA, body.map(|it| it.to_string()).unwrap_or_default());
    let outcome = match tokio::time::timeout(CALL_TIMEOUT, send(&client, request)).await {
        Err(_) => Outcome::Refused(Refusal::NoAnswer),
        Ok(Err(refusal)) => Outcome::Refused(refusal),
        Ok(Ok(answer)) => match &call {
            Call::Read(identity) => match serde_json::from_slice::<Raw>(answer.as_ref()) {
                Ok(raw) => Outcome::Found(raw.object(&identity.resource, &mut Shared::default())),
                Err(_) => Outcome::Refused(Refusal::NoAnswer),
            },
            _ => Outcome::Done,
        },
    };
    (call, outcome)
}
