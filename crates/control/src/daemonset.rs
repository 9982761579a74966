//! The DaemonSet controller.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::Client;
use muster_engine::act::{Act, Next, Report};
use muster_engine::cache::{Cache, Event};
use muster_engine::facts::{Key, Kind, Set, Watched};
use muster_engine::plan::Plan;
use muster_engine::time::Time;
use tokio::sync::{mpsc, watch};

use crate::Options;
use crate::call::Caller;
use crate::record::Recorder;
use crate::reflect::{self, Brought};

/// Calls of one plan under way at once: each takes a connection, and the API server has other clients.
const CALLS_MAX: usize = 32;

/// Events taken in before the sets they touched are looked at: a burst is looked at once.
const EVENTS_MAX: usize = 1024;

/// No timer runs longer than this, so that a clock that is set forward or back is noticed.
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Looks at every set, and again whenever something happens to it. Does not end by itself.
pub(crate) async fn run(client: Client, options: &Options) {
    let (sender, brought) = mpsc::channel(EVENTS_MAX);
    let relist = watch::Sender::new(0);
    let reflecting =
        Kind::ALL.map(|kind| reflect::reflect(client.clone(), kind, sender.clone(), relist.subscribe()));
    let (recorder, recording) = Recorder::new(client.clone());
    let mut shell = Shell {
        client,
        options,
        recorder,
        cache: Cache::new(options.settings),
        queue: VecDeque::new(),
        queued: BTreeSet::new(),
        wakes: BTreeMap::new(),
        busy: BTreeSet::new(),
        acting: FuturesUnordered::new(),
        relist,
    };
    tokio::select! {
        _ = futures::future::join_all(reflecting) => {}
        () = recording => {}
        () = shell.run(brought) => {}
    }
}

struct Shell<'a> {
    client: Client,
    options: &'a Options,
    recorder: Recorder,
    cache: Cache,
    /// Sets to look at, each once: whoever came first, so that a large one cannot keep the others waiting.
    queue: VecDeque<Key>,
    queued: BTreeSet<Key>,
    /// Sets to look at later, whatever happens.
    wakes: BTreeMap<Key, Time>,
    /// Sets whose plan is being carried out: one plan at a time for each.
    busy: BTreeSet<Key>,
    acting: FuturesUnordered<BoxFuture<'static, (Arc<Set>, Report)>>,
    /// Counts the times that everything had to be listed anew.
    relist: watch::Sender<u64>,
}

impl Shell<'_> {
    async fn run(&mut self, mut brought: mpsc::Receiver<(Kind, Brought)>) {
        let mut events = Vec::new();
        loop {
            self.look();
            let sleep = self.wakes.values().min().map_or(SLEEP_MAX, |at| at.since(now()).min(SLEEP_MAX));
            tokio::select! {
                taken = brought.recv_many(&mut events, EVENTS_MAX) => {
                    if taken == 0 {
                        return;
                    }
                    for (kind, event) in events.drain(..) {
                        self.take(kind, event);
                    }
                }
                Some((set, report)) = self.acting.next() => self.done(&set, &report),
                () = tokio::time::sleep(sleep) => {
                    let now = now();
                    let due = self.wakes.extract_if(.., |_, at| *at <= now);
                    let due: Vec<Key> = due.map(|(key, _)| key).collect();
                    self.enqueue(due);
                }
            }
        }
    }

    fn take(&mut self, kind: Kind, event: Brought) {
        let keys = match event {
            Brought::Listed { mut items, resource_version } => {
                items.retain(|it| self.elsewhere(it).is_none());
                self.cache.apply(Event::Listed { kind, items, resource_version })
            }
            Brought::Watched(Watched::Bookmark { resource_version }) => {
                self.cache.bookmark(kind, resource_version)
            }
            // How far the watch has come is news, whatever it is about.
            Brought::Watched(watched) => match self.elsewhere(&watched) {
                Some(resource_version) => self.cache.bookmark(kind, resource_version),
                None => self.cache.apply(Event::Watched(watched)),
            },
        };
        self.enqueue(keys);
    }

    /// The version of an object in a namespace that is none of ours.
    fn elsewhere(&self, watched: &Watched) -> Option<u64> {
        let (namespace, resource_version) = match watched {
            Watched::Set(it) => (&it.key.namespace, it.resource_version),
            Watched::Pod(it) => (&it.key.namespace, it.resource_version),
            Watched::Revision(it) => (&it.key.namespace, it.resource_version),
            Watched::Gone { key, resource_version, kind } if *kind != Kind::Nodes => {
                (&key.namespace, *resource_version)
            }
            _ => return None,
        };
        let ours = &self.options.namespaces;
        let is_ours = ours.is_empty() || ours.iter().any(|it| *it == **namespace);
        (!is_ours).then_some(resource_version)
    }

    fn enqueue(&mut self, keys: Vec<Key>) {
        for key in keys {
            if self.queued.insert(key.clone()) {
                self.queue.push_back(key);
            }
        }
    }

    fn look(&mut self) {
        // Sets that are being acted on keep their place for later.
        let mut later = VecDeque::new();
        while self.busy.len() < self.options.workers
            && let Some(key) = self.queue.pop_front()
        {
            if self.busy.contains(&key) {
                later.push_back(key);
                continue;
            }
            self.queued.remove(&key);
            self.wakes.remove(&key);
            let Some(plan) = self.cache.look(&key, now()) else { continue };
            if plan.relist {
                tracing::warn!(set = %key, "the watches do not show our own writes: everything is listed anew");
                self.relist.send_modify(|times| *times += 1);
            }
            if let Some(why) = &plan.waiting {
                tracing::debug!(set = %key, %why, "waiting");
            }
            if let Some(at) = plan.wake_at {
                self.wakes.insert(key.clone(), at);
            }
            if !plan.is_idle() {
                tracing::debug!(set = %key, "plan:\n{plan}");
                self.busy.insert(key);
                let caller =
                    Caller::new(self.client.clone(), plan.set.clone(), self.cache.settings().binding);
                self.acting.push(Box::pin(carry_out(caller, plan)));
            }
        }
        later.append(&mut self.queue);
        self.queue = later;
    }

    fn done(&mut self, set: &Arc<Set>, report: &Report) {
        for event in &report.events {
            self.recorder.record(set, event);
        }
        self.cache.done(&set.key, report, now());
        self.busy.remove(&set.key);
        self.enqueue(vec![set.key.clone()]);
    }
}

async fn carry_out(caller: Caller, plan: Plan) -> (Arc<Set>, Report) {
    let mut act = Act::new(plan);
    let mut calls = FuturesUnordered::new();
    loop {
        while calls.len() < CALLS_MAX {
            match act.next() {
                Next::Call(call) => calls.push(async {
                    let outcome = caller.make(&call).await;
                    (call, outcome)
                }),
                Next::Wait => break,
                Next::Done => return (act.set().clone(), act.finish()),
            }
        }
        let (call, outcome) = calls.next().await.expect("the engine waits only for calls under way");
        tracing::debug!(set = %act.key(), ?call, ?outcome);
        act.outcome(&call, outcome);
    }
}

pub(crate) fn now() -> Time {
    Time::from_micros(Timestamp::now().as_microsecond())
}
