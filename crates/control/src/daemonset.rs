//! The DaemonSet controller.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use muster_api::meta::ObjectKey;
use muster_api::time::Time;
use muster_engine::controller::{EventRecord, ObjectReference};
use muster_engine::daemonset::cache::{Cache, Event};
use muster_engine::daemonset::execution::{Act, Call, Next, Outcome, Refusal, Report};
use muster_engine::daemonset::explain::Controller;
use muster_engine::daemonset::facts::{Kind, Set, Watched};
use muster_engine::daemonset::manifest;
use muster_engine::daemonset::plan::{self, Plan};
use muster_events::{EventRecorder, EventSource};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Context;
use crate::call::Caller;
use crate::conflict_detection::ConflictDetector;
use crate::explain_query::ExplainQuery;
use crate::monitor::{Load, Stage};
use crate::reflect::{Brought, OfSets, reflect};
use crate::request::collection;
use crate::test_hooks::Observation;

/// What events say who recorded them. As upstream's: dashboards filter by it.
const COMPONENT: &str = "daemonset-controller";

/// Calls of one plan under way at once: half of all that there may be, so that a large set leaves room for others.
const CALLS_MAX: usize = 32;

/// Events taken in before the sets they touched are looked at: a burst is looked at once.
const EVENTS_MAX: usize = 1024;

/// No timer runs longer than this, so that a clock that is set forward or back is noticed.
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Plans under way are carried out to their end when the controller stops, unless that takes longer: a plan has at most
/// some hundreds of calls.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// What events are left then are written down.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// A set that made the engine panic is left alone for this long; doubled each time, up to the longest.
const PANIC_RETRY_MIN: Duration = Duration::from_secs(1);
const PANIC_RETRY_MAX: Duration = Duration::from_secs(300);

/// Looks at every set, and again whenever something happens to it, until `stop`. Then no new plan is made, and those that
/// are being carried out are finished. It ends before that only when the API server shows another store than before:
/// nothing that was known holds then.
pub(crate) async fn run(context: Arc<Context>, stop: &CancellationToken) {
    // Each namespace has watches of its own, and so all that follows from them.
    let namespaces: BTreeSet<&String> = context.options.namespaces.iter().collect();
    context.monitor.begin(namespaces.len().max(1));
    if namespaces.is_empty() {
        return run_in(&context, None, stop).await;
    }
    let running = namespaces.into_iter().map(|it| run_in(&context, Some(it), stop));
    let mut running: FuturesUnordered<_> = running.collect();
    while running.next().await.is_some() && stop.is_cancelled() {}
}

async fn run_in(context: &Arc<Context>, namespace: Option<&str>, stop: &CancellationToken) {
    let (sender, brought) = mpsc::channel(EVENTS_MAX);
    let relist = watch::Sender::new(0);
    let client = &context.client;
    let reflecting = Kind::ALL.map(|kind| {
        let path = collection(kind, namespace);
        reflect(client.clone(), OfSets::new(kind), path, sender.clone(), relist.subscribe()).boxed()
    });
    let (recorder, recording) = EventRecorder::new(
        client.clone(),
        EventSource::component(COMPONENT),
        context.monitor.events_dropped.clone(),
    );
    let mut recording = std::pin::pin!(recording);
    let mut shell = Shell::new(context.clone(), recorder, relist);
    tokio::select! {
        _ = futures::future::select_all(reflecting) => {}
        () = &mut recording => {}
        () = shell.run(brought, stop) => {}
    }
    // Without a recorder the recording ends with what it has.
    drop(shell);
    if stop.is_cancelled() && tokio::time::timeout(FLUSH_MAX, recording).await.is_err() {
        tracing::warn!("some events were not recorded in time");
    }
}

struct Shell {
    context: Arc<Context>,
    recorder: EventRecorder,
    cache: Cache,
    conflicts: ConflictDetector,
    /// Sets to look at, whoever came first: a large one cannot keep the others waiting.
    queue: VecDeque<ObjectKey>,
    queued: BTreeMap<ObjectKey, Instant>,
    /// Sets to look at later, whatever happens.
    wakes: BTreeMap<ObjectKey, Wake>,
    /// Sets whose plan is being carried out: one plan at a time for each.
    busy: BTreeSet<ObjectKey>,
    acting: FuturesUnordered<BoxFuture<'static, (Arc<Set>, Option<Report>)>>,
    /// When a plan ended whose writes have not all been seen yet.
    unseen: BTreeMap<ObjectKey, Instant>,
    /// Sets that made the engine panic: how often, and until when they are left alone.
    panicked: BTreeMap<ObjectKey, (u32, Wake)>,
    /// Counts the times that everything had to be listed anew.
    relist: watch::Sender<u64>,
    /// What was last shown of all this.
    load: Load,
    is_synced: bool,
}

impl Shell {
    fn new(context: Arc<Context>, recorder: EventRecorder, relist: watch::Sender<u64>) -> Self {
        Self {
            recorder,
            cache: Cache::new(context.options.settings),
            conflicts: ConflictDetector::new(Instant::now()),
            queue: VecDeque::new(),
            queued: BTreeMap::new(),
            wakes: BTreeMap::new(),
            busy: BTreeSet::new(),
            acting: FuturesUnordered::new(),
            unseen: BTreeMap::new(),
            panicked: BTreeMap::new(),
            relist,
            load: Load::default(),
            is_synced: false,
            context,
        }
    }

    async fn run(&mut self, mut brought: mpsc::Receiver<(Kind, Brought<Watched>)>, stop: &CancellationToken) {
        let mut events = Vec::new();
        let mut questions = self.context.explain_queries.open();
        loop {
            self.look();
            self.show();
            let until = self.wakes.values().map(|it| it.due).min();
            let sleep =
                until.map_or(SLEEP_MAX, |at| at.saturating_duration_since(Instant::now()).min(SLEEP_MAX));
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.drain().await,
                Some((set, report)) = self.acting.next() => self.done(&set, report),
                Some(question) = questions.recv() => self.answer(question),
                taken = brought.recv_many(&mut events, EVENTS_MAX) => {
                    if taken == 0 {
                        return;
                    }
                    for (kind, event) in events.drain(..) {
                        self.take(kind, event);
                    }
                }
                () = tokio::time::sleep(sleep) => {
                    let now = Instant::now();
                    let due: Vec<ObjectKey> = self.wakes.extract_if(.., |_, it| it.due <= now).map(|(key, _)| key).collect();
                    self.enqueue(due);
                }
            }
        }
    }

    fn answer(&self, ExplainQuery { key, answer }: ExplainQuery) {
        let known = self.cache.remembered(&key).map(|remembered| Controller {
            remembered,
            acts: self.busy.contains(&key),
            queued: self.queued.contains_key(&key),
            wakes_at: self.wakes.get(&key).map(|it| it.at),
            left_alone_until: self.panicked.get(&key).map(|(_, until)| until.at),
        });
        // Whoever asked may have gone away.
        let _ = answer.send(known);
    }

    async fn drain(&mut self) {
        self.context.monitor.enter(Stage::Stopping);
        tracing::info!(plans = self.busy.len(), "stopping: no new plans, those under way are finished");
        let finishing = async {
            while let Some((set, report)) = self.acting.next().await {
                self.done(&set, report);
            }
        };
        if tokio::time::timeout(DRAIN_MAX, finishing).await.is_err() {
            tracing::warn!(
                plans = self.busy.len(),
                "some plans were not finished in time: the next start finds out"
            );
        }
    }

    fn show(&mut self) {
        let monitor = &self.context.monitor;
        monitor.turned();
        let count = |it: usize| it.try_into().unwrap_or(i64::MAX);
        let now = Load {
            queued: count(self.queue.len()),
            busy: count(self.busy.len()),
            objects: Kind::ALL.map(|kind| count(self.cache.count(kind))),
        };
        monitor.carries(&mut self.load, now);
        if !self.is_synced && self.cache.synced() {
            self.is_synced = true;
            tracing::info!(
                sets = self.cache.count(Kind::Sets),
                nodes = self.cache.count(Kind::Nodes),
                "all is listed"
            );
            monitor.synced();
        }
    }

    fn take(&mut self, kind: Kind, event: Brought<Watched>) {
        self.context.monitor.heard(kind);
        let keys = match event {
            Brought::Listed { items, resource_version } => {
                self.context.monitor.listed(kind);
                items.iter().for_each(|it| self.detect_conflicts(it));
                self.cache.apply(Event::Listed { kind, items, resource_version })
            }
            Brought::Watched(Watched::Bookmark { resource_version, .. }) => {
                self.cache.bookmark(kind, resource_version)
            }
            Brought::Watched(watched) => {
                self.detect_conflicts(&watched);
                self.cache.apply(Event::Watched(watched))
            }
        };
        self.enqueue(keys);
    }

    fn detect_conflicts(&mut self, watched: &Watched) {
        let set = match watched {
            Watched::Set(set) => set,
            Watched::Gone { kind: Kind::Sets, key, .. } => return self.conflicts.forget(key),
            _ => return,
        };
        let Some(conflict) = self.conflicts.check(set, Instant::now()) else { return };
        self.context.monitor.conflicting_writes.inc();
        if let Some(event) = conflict.event {
            tracing::warn!(set = %set.key, "{}", event.message);
            self.recorder.record(about(set, event));
        }
    }

    fn enqueue(&mut self, keys: Vec<ObjectKey>) {
        for key in keys {
            if !self.queued.contains_key(&key) {
                self.queued.insert(key.clone(), Instant::now());
                self.queue.push_back(key);
            }
        }
    }

    fn look(&mut self) {
        // Sets that are being acted on keep their place for later.
        let mut later = VecDeque::new();
        while self.busy.len() < self.context.options.workers.max(1)
            && let Some(key) = self.queue.pop_front()
        {
            if self.busy.contains(&key) {
                later.push_back(key);
                continue;
            }
            let waited = self.queued.remove(&key).map_or(Duration::ZERO, |since| since.elapsed());
            self.wakes.remove(&key);
            let now = now();
            match self.plan(&key, |cache, key| cache.look(key, now)) {
                Some(plan) => {
                    self.context.tell(Observation::Planned { cache: &self.cache, plan: &plan, now });
                    self.begin(key, plan, waited);
                }
                None => self.context.monitor.forget(&key),
            }
        }
        later.append(&mut self.queue);
        self.queue = later;
    }

    /// What to do for a set, if it is there. A set that makes the engine panic is a bug, but no reason to leave the others
    /// alone: it is told, and that set waits.
    fn plan(
        &mut self,
        key: &ObjectKey,
        look: impl FnOnce(&mut Cache, &ObjectKey) -> Option<Plan>,
    ) -> Option<Plan> {
        if let Some((_, until)) = self.panicked.get(key)
            && Instant::now() < until.due
        {
            self.wakes.insert(key.clone(), *until);
            return self.cache.set_of(key).map(|set| Plan::idle(set.clone()));
        }
        if let Ok(plan) = catch_unwind(AssertUnwindSafe(|| look(&mut self.cache, key))) {
            self.panicked.remove(key);
            return plan;
        }
        // What was half done to the cache is not trusted: all of it is worked out anew.
        self.cache = self.cache.from_scratch();
        let until = self.panic(key);
        self.wakes.insert(key.clone(), until);
        self.cache.set_of(key).map(|set| Plan::idle(set.clone()))
    }

    fn panic(&mut self, key: &ObjectKey) -> Wake {
        self.context.monitor.panics.inc();
        let times = self.panicked.get(key).map_or(0, |(times, _)| *times);
        let wait = PANIC_RETRY_MIN.saturating_mul(1 << times.min(16)).min(PANIC_RETRY_MAX);
        let until = Wake::at(now() + wait);
        tracing::error!(set = %key, until = ?until.at, "this set made the controller panic, which is a bug: it is left alone for a while");
        self.panicked.insert(key.clone(), (times.saturating_add(1), until));
        until
    }

    fn begin(&mut self, key: ObjectKey, plan: Plan, waited: Duration) {
        self.context.monitor.looked(waited, &plan);
        if plan.relist {
            tracing::warn!(set = %key, "the watches do not show our own writes: everything is listed anew");
            self.relist.send_modify(|times| *times += 1);
        }
        match &plan.waiting {
            Some(why) => tracing::debug!(set = %key, %why, "waiting"),
            None if !plan.confirm => {
                if let Some(since) = self.unseen.remove(&key) {
                    self.context.monitor.caught_up(since.elapsed());
                }
            }
            None => {}
        }
        if let Some(at) = plan.wake_at {
            self.wakes.insert(key.clone(), Wake::at(at));
        }
        if !plan.is_idle() {
            tracing::debug!(set = %key, "plan:\n{plan}");
            self.busy.insert(key);
            let set = plan.set.clone();
            let carrying = AssertUnwindSafe(carry_out(self.context.clone(), plan)).catch_unwind();
            self.acting.push(Box::pin(async { (set, carrying.await.ok()) }));
        }
    }

    /// No report: carrying the plan out ended in a panic.
    fn done(&mut self, set: &Arc<Set>, report: Option<Report>) {
        let report = report.unwrap_or_else(|| {
            self.panic(&set.key);
            Report::unknown(set)
        });
        for event in &report.events {
            self.recorder.record(about(set, event.clone()));
        }
        self.cache.done(&set.key, &report, now());
        self.busy.remove(&set.key);
        self.unseen.insert(set.key.clone(), Instant::now());
        self.enqueue(vec![set.key.clone()]);
    }
}

fn about(set: &Set, event: plan::Event) -> EventRecord {
    let about = ObjectReference {
        api_version: "apps/v1".into(),
        kind: "DaemonSet".into(),
        key: set.key.clone(),
        uid: set.uid.clone(),
        resource_version: set.resource_version,
    };
    EventRecord { about, event }
}

async fn carry_out(context: Arc<Context>, plan: Plan) -> Report {
    let caller = Caller::new(context.clone(), plan.set.clone());
    let mut act = Act::new(plan);
    let mut calls = FuturesUnordered::new();
    loop {
        while calls.len() < CALLS_MAX {
            match act.next() {
                Next::Call(call) => {
                    context.tell(Observation::Called { set: act.set(), call: &call });
                    calls.push(async {
                        let outcome = caller.make(&call).await;
                        (call, outcome)
                    });
                }
                Next::Wait => break,
                Next::Done => {
                    context.tell(Observation::Done { set: act.set() });
                    return act.finish();
                }
            }
        }
        let (call, outcome) = calls.next().await.expect("the engine waits only for calls under way");
        tell(act.set(), &call, &outcome);
        context.tell(Observation::Answered { set: act.set(), call: &call, outcome: &outcome });
        act.outcome(&call, outcome);
    }
}

/// One line for whatever was done to a pod, with the reason; what was refused is told too.
fn tell(set: &Set, call: &Call, outcome: &Outcome) {
    let what = |call| {
        let target = manifest::target(set, call);
        let name = target.name.as_deref().unwrap_or_default();
        format!("{} {} {name}", manifest::verb(call).as_str(), target.kind.plural())
    };
    let set = &set.key;
    match (call, outcome) {
        // Whoever deleted or changed it first, it is no longer as it was looked at.
        (_, Outcome::Refused(refusal @ (Refusal::NotFound | Refusal::Conflict))) => {
            tracing::info!(%set, call = %what(call), %refusal, "refused");
        }
        (_, Outcome::Refused(refusal)) => tracing::warn!(%set, call = %what(call), %refusal, "refused"),
        (Call::CreatePod { node, why, .. }, Outcome::Wrote { name, .. }) => {
            tracing::info!(%set, %node, pod = %name, %why, "created a pod");
        }
        (Call::DeletePod { pod, why }, _) => {
            let node = pod.target.as_deref().unwrap_or("-");
            tracing::info!(%set, %node, pod = %pod.key.name, %why, "deleted a pod");
        }
        (Call::PutStatus { .. } | Call::ReadSet | Call::ReadRevision { .. } | Call::ListPods, _) => {
            tracing::debug!(%set, call = %what(call));
        }
        _ => tracing::info!(%set, call = %what(call), "done"),
    }
}

/// When something is due: the time for people, and the moment by the monotonic clock, which goes on when the other is set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wake {
    at: Time,
    due: Instant,
}

impl Wake {
    fn at(at: Time) -> Self {
        let wait = at.since(now()).min(WAIT_MAX);
        Self { at, due: Instant::now() + wait }
    }
}

/// Longer than any wait that means something, and short enough to be added to any moment.
const WAIT_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

pub(crate) fn now() -> Time {
    Time::from_micros(Timestamp::now().as_microsecond())
}

#[cfg(test)]
mod tests {
    use muster_api::interner::Interner;
    use muster_engine::daemonset::facts;
    use serde_json::json;

    use super::*;
    use crate::ExplainQueries;
    use crate::lease::Term;
    use crate::rate_limit::RateLimiter;
    use crate::{Monitor, Options};

    fn set(name: &str) -> Watched {
        let set = json!({
            "metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": "1", "generation": 1},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c"}]}},
            },
        });
        Watched::Set(Arc::new(facts::set(set.to_string().as_bytes(), &mut Interner::default()).unwrap()))
    }

    /// A shell that knows two sets and nothing else, and a client that reaches nobody.
    fn shell() -> Shell {
        let client = crate::client(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let options = Options::default();
        let rate_limiter = RateLimiter::new(options.limits);
        let term = Term::unlimited(Duration::from_secs(1));
        let monitor = Arc::new(Monitor::default());
        let context = Arc::new(Context {
            client: client.clone(),
            options,
            rate_limiter,
            term,
            monitor,
            explain_queries: ExplainQueries::default(),
            witness: None,
        });
        let mut shell = Shell::new(
            context,
            EventRecorder::new(client, EventSource::component(COMPONENT), Default::default()).0,
            watch::Sender::new(0),
        );
        for kind in Kind::ALL {
            let items = if kind == Kind::Sets { vec![set("x"), set("y")] } else { Vec::new() };
            shell.take(kind, Brought::Listed { items, resource_version: 1 });
        }
        shell
    }

    #[tokio::test]
    async fn a_set_that_panics_waits_and_the_others_go_on() {
        let mut shell = shell();
        let [x, y] = ["x", "y"].map(|name| ObjectKey::new("a", name));
        let plan = shell.plan(&x, |_, _| panic!("on purpose")).expect("the set is there");
        assert!(plan.is_idle());
        assert_eq!(shell.panicked[&x].0, 1);
        assert_eq!(shell.wakes[&x], shell.panicked[&x].1);
        // Until its time has come it is not even looked at, whatever happens to it.
        assert!(shell.plan(&x, |_, _| panic!("too early")).expect("the set is there").is_idle());
        let plan = shell.plan(&y, |cache, key| cache.look(key, now())).expect("the set is there");
        assert!(!plan.is_idle());
        // Then it gets a chance, and when that goes well it is as any other.
        shell.panicked.insert(x.clone(), (1, Wake::at(now())));
        assert!(!shell.plan(&x, |cache, key| cache.look(key, now())).expect("the set is there").is_idle());
        assert!(shell.panicked.is_empty());
        assert!(shell.context.monitor.metrics("").1.contains("muster_panics_total 1\n"));
    }

    #[tokio::test]
    async fn a_plan_that_panics_is_found_out_about() {
        let mut shell = shell();
        let x = ObjectKey::new("a", "x");
        let set = shell.cache.set_of(&x).unwrap().clone();
        shell.busy.insert(x.clone());
        shell.done(&set, None);
        assert!(shell.busy.is_empty());
        // Once its time has come, the first question is what was done.
        shell.panicked.clear();
        let later = now() + Duration::from_secs(10);
        assert!(shell.cache.look(&x, later).unwrap().confirm);
    }
}
