//! Runs a controller of the engine: lists and watches its kinds, sends its calls, records its events, and reconciles
//! keys that are due.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use kube::Client;
use muster_api::time::Time;
use muster_engine::controller::{
    CallError, Controller, Event, EventRecord, Measurement, MeasurementResult, Outcome, Reconcile,
    WatchEvent, WorkQueue,
};
use muster_events::clock::now;
use muster_events::{EventRecorder, EventSource};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::call::Caller;
use crate::check_client::CheckClient;
use crate::reflector::{Delivery, run_reflector};

/// Maximum number of watch events that are applied before keys are reconciled, so that a burst of events causes one
/// reconcile.
const WATCH_EVENTS_PER_RECONCILE_MAX: usize = 1024;

/// Maximum time that the runner sleeps, so that it notices a change of the wall clock after at most this time.
const RUNNER_SLEEP_MAX: Duration = Duration::from_secs(60);

/// Delay before a controller is restarted, after a panic or after the API server's store was replaced.
const CONTROLLER_RESTART_DELAY: Duration = Duration::from_secs(1);

/// Maximum time to write the queued Events when a controller with a drain timeout stops. Other controllers drop them.
const EVENT_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Configuration of the [`Runner`] of one controller.
#[derive(Clone)]
pub(crate) struct RunnerConfig {
    /// The name of the controller in logs, and the `source.component` of its Events.
    pub(crate) component: &'static str,
    /// Maximum number of calls in flight.
    pub(crate) calls_in_flight_max: usize,
    /// Maximum time to finish the plans that are being executed ([`Controller::is_executing`]) when the controller
    /// stops. Zero means that the runner stops at once.
    pub(crate) drain_timeout: Duration,
    /// Counter of the Kubernetes Events that were dropped, because the queue was full, because there were too many
    /// about one object, or because the write failed.
    pub(crate) events_dropped: Counter,
    /// The client that measures rollout checks. `None` for a controller that makes no measurements.
    pub(crate) checks: Option<CheckClient>,
}

impl RunnerConfig {
    /// Creates a configuration with a drain timeout of zero. A controller without plans needs no drain, because after a
    /// restart its lists show which calls were applied.
    pub(crate) fn new(component: &'static str, calls_in_flight_max: usize) -> Self {
        Self {
            component,
            calls_in_flight_max,
            drain_timeout: Duration::ZERO,
            events_dropped: Counter::default(),
            checks: None,
        }
    }
}

/// A controller whose types are `Send`, so that it can run on a multi-threaded runtime.
pub(crate) trait Runnable:
    Controller<DecodedObject: Send, Key: Send + Sync, Call: Send + Sync> + Send + 'static
{
}

impl<C: Controller<DecodedObject: Send, Key: Send + Sync, Call: Send + Sync> + Send + 'static> Runnable
    for C
{
}

/// Callbacks of the runner for metrics, logs, queries and test hooks. An observer does not influence the controller.
pub(crate) trait Observer<C: Controller>: Send {
    /// A query that the observer answers from the state of the controller.
    type Query: Send;

    /// Opens the channel from which the runner receives queries. `None` if the observer answers no queries.
    fn open_query_channel(&mut self) -> Option<mpsc::Receiver<Self::Query>> {
        None
    }

    /// Answers a query from the state of the work queue and its controller. By default the query is dropped.
    fn answer(&self, _queue: &WorkQueue<C>, _query: Self::Query) {}

    /// Called when the list or watch of a kind has delivered data, even if only a bookmark, or when the list was
    /// refused. `_kind` is the index of the kind in [`Controller::watches`].
    fn on_delivery(&mut self, _kind: usize) {}

    /// Called before a list or watch event is applied. Returns Kubernetes Events to record.
    fn before_apply(&mut self, _event: &Event<C::DecodedObject>) -> Vec<EventRecord> {
        Vec::new()
    }

    /// Called after a key was reconciled. `_waited` is the time that the key was in the queue.
    fn after_reconcile(&mut self, _queue: &WorkQueue<C>, _key: &C::Key, _waited: Duration, _now: Time) {}

    /// Called before a call is sent.
    fn before_call(&mut self, _call: &C::Call) {}

    /// Called when the outcome of a call is known, before the outcome is applied. `_took` is the duration of the call.
    fn after_call(&mut self, call: &C::Call, outcome: &Outcome, _took: Duration) {
        if let Outcome::Refused(error) = outcome {
            tracing::debug!(%call, %error, "call failed");
        }
    }

    /// Called after the outcome of a call was applied.
    fn after_outcome_applied(&mut self, _queue: &WorkQueue<C>, _call: &C::Call) {}

    /// Called when the result of a measurement is known, before it is passed to the controller.
    fn on_measured(&mut self, _measurement: &Measurement, _measured: &MeasurementResult) {}

    /// Called after the controller panicked while it reconciled this key, or while it applied the outcome of a call of
    /// this key.
    fn on_panic(&mut self, _key: &C::Key) {}

    /// Called when all due keys are reconciled and their calls are started, before the runner waits for the next event.
    fn on_idle(&mut self, _queue: &WorkQueue<C>) {}

    /// Called when a controller with a drain timeout stops. From then on, the runner only finishes plans that are being
    /// executed.
    fn on_drain(&mut self, _queue: &WorkQueue<C>) {}
}

/// An observer that ignores all callbacks.
pub(crate) struct NoObserver;

impl<C: Controller> Observer<C> for NoObserver {
    type Query = Infallible;
}

/// Runs a controller for all namespaces until `stop` is cancelled. If the controller panics, or if the API server's
/// store is replaced, starts a new controller with empty state.
pub(crate) async fn run<C: Runnable>(
    client: Client,
    config: RunnerConfig,
    new_controller: impl Fn() -> BoxFuture<'static, C>,
    stop: CancellationToken,
) {
    let caller = Caller { client, limits: None };
    run_in_namespace(caller, &config, None, new_controller, &stop).await;
}

/// Runs a controller until `stop` is cancelled, in one namespace, or in all namespaces if `namespace` is `None`. If the
/// controller panics, or if the API server's store is replaced, starts a new controller with empty state.
pub(crate) async fn run_in_namespace<C: Runnable>(
    caller: Caller,
    config: &RunnerConfig,
    namespace: Option<&str>,
    new_controller: impl Fn() -> BoxFuture<'static, C>,
    stop: &CancellationToken,
) {
    let restarting = async {
        loop {
            let controller = new_controller().await;
            let running = run_once(caller.clone(), config, controller, namespace, NoObserver, stop);
            let component = config.component;
            let ended = AssertUnwindSafe(running).catch_unwind().await;
            if stop.is_cancelled() {
                std::future::pending::<()>().await;
            }
            match ended {
                Ok(()) => tracing::warn!(component, "restarting the controller"),
                Err(_) => {
                    tracing::error!(component, "restarting the controller: it panicked, which is a bug")
                }
            }
            tokio::time::sleep(CONTROLLER_RESTART_DELAY).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        never = restarting => { let _: Infallible = never; }
    }
}

/// Runs a controller until `stop` is cancelled, in one namespace, or in all namespaces if `namespace` is `None`. Ends
/// earlier if the API server's store is replaced. Never restarts the controller. When `stop` is cancelled, a controller
/// with a drain timeout first finishes the plans that are being executed, for at most this timeout, and then writes its
/// queued Events, for at most [`EVENT_FLUSH_TIMEOUT`].
pub(crate) async fn run_once<C: Runnable>(
    caller: Caller,
    config: &RunnerConfig,
    controller: C,
    namespace: Option<&str>,
    observer: impl Observer<C>,
    stop: &CancellationToken,
) {
    let client = caller.client.clone();
    let watches = controller.watches();
    let (mut runner, recording) = Runner::new(caller, config, controller, observer);
    let (sender, deliveries) = mpsc::channel(WATCH_EVENTS_PER_RECONCILE_MAX);
    let reflectors = watches.into_iter().enumerate().map(|watch| {
        let relist = runner.relist.subscribe();
        run_reflector::<C>(client.clone(), watch, namespace, sender.clone(), relist).boxed()
    });
    let reflectors = futures::future::select_all(reflectors);
    let mut recording = std::pin::pin!(recording);
    tokio::select! {
        _ = reflectors => {}
        () = &mut recording => {}
        () = runner.run(deliveries, config.drain_timeout, stop) => {}
    }
    // Dropping the recorder ends the recording once the queue is written.
    drop(runner);
    let flushes = stop.is_cancelled() && !config.drain_timeout.is_zero();
    if flushes && tokio::time::timeout(EVENT_FLUSH_TIMEOUT, recording).await.is_err() {
        tracing::warn!("some events were not recorded in time");
    }
}

/// Drives one controller: applies what its watches deliver, reconciles keys, sends calls and applies their outcomes.
pub(crate) struct Runner<C: Controller, O> {
    /// The work queue, which owns the controller.
    pub(crate) queue: WorkQueue<C>,
    /// Receives callbacks for metrics, logs, queries and tests.
    observer: O,
    /// Sends the calls to the API server.
    caller: Caller,
    /// Records the controller's Kubernetes Events.
    recorder: EventRecorder,
    /// A counter that all reflectors watch. Each increment makes every reflector list again.
    relist: watch::Sender<u64>,
    /// The name of the controller in logs.
    component: &'static str,
    /// The calls in flight. Each resolves to the call, its outcome and its duration.
    calls: FuturesUnordered<BoxFuture<'static, (C::Call, Outcome, Duration)>>,
    /// The client that measures rollout checks. `None` for a controller that makes no measurements.
    checks: Option<CheckClient>,
    /// Background tasks of the measurements in flight. They are aborted when the runner is dropped.
    measurements: JoinSet<(Arc<Measurement>, MeasurementResult)>,
}

impl<C, O> Runner<C, O>
where
    C: Runnable,
    O: Observer<C>,
{
    /// Creates the runner, and the future that writes its Kubernetes Events.
    pub(crate) fn new(
        caller: Caller,
        config: &RunnerConfig,
        controller: C,
        observer: O,
    ) -> (Self, impl Future<Output = ()> + use<C, O>) {
        let (recorder, recording) = EventRecorder::new(
            caller.client.clone(),
            EventSource::for_component(config.component),
            config.events_dropped.clone(),
        );
        let runner = Self {
            queue: WorkQueue::new(controller, config.calls_in_flight_max),
            observer,
            caller,
            recorder,
            relist: watch::Sender::new(0),
            component: config.component,
            calls: FuturesUnordered::new(),
            checks: config.checks.clone(),
            measurements: JoinSet::new(),
        };
        (runner, recording)
    }

    /// Runs until `stop` is cancelled or the reflectors have ended. After `stop` is cancelled, finishes the plans that
    /// are being executed, for at most `drain_timeout`.
    async fn run(
        &mut self,
        mut deliveries: mpsc::Receiver<(usize, Delivery<C::DecodedObject>)>,
        drain_timeout: Duration,
        stop: &CancellationToken,
    ) {
        let mut received = Vec::new();
        let mut queries = self.observer.open_query_channel();
        loop {
            self.reconcile();
            let wake_at = self.start_calls();
            self.observer.on_idle(&self.queue);
            let sleep = wake_at.map_or(RUNNER_SLEEP_MAX, |at| at.since(now()).min(RUNNER_SLEEP_MAX));
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.drain(drain_timeout).await,
                Some((call, outcome, took)) = self.calls.next() => self.apply_outcome(&call, outcome, took),
                Some(Ok((measurement, measured))) = self.measurements.join_next() => {
                    self.observer.on_measured(&measurement, &measured);
                    self.queue.apply_measurement(&measurement, &measured, now());
                }
                Some(query) = next_query(&mut queries) => self.observer.answer(&self.queue, query),
                count = deliveries.recv_many(&mut received, WATCH_EVENTS_PER_RECONCILE_MAX) => {
                    if count == 0 {
                        return;
                    }
                    for (kind, delivery) in received.drain(..) {
                        self.apply(kind, delivery);
                    }
                }
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Applies a delivery of a reflector: a list, a watch event, or a refusal (status 403). `kind` is the index of the
    /// kind in [`Controller::watches`].
    pub(crate) fn apply(&mut self, kind: usize, delivery: Delivery<C::DecodedObject>) {
        self.observer.on_delivery(kind);
        let event = match delivery {
            Delivery::Listed { facts, resource_version } => Event::Listed { kind, facts, resource_version },
            Delivery::Watched(WatchEvent::Applied(fact)) => Event::Applied { kind, fact },
            Delivery::Watched(WatchEvent::Deleted(fact)) => Event::Deleted { kind, fact },
            Delivery::Watched(WatchEvent::Bookmark { resource_version, .. }) => {
                return self.queue.apply_bookmark(kind, resource_version, now());
            }
            Delivery::Watched(WatchEvent::Error { .. }) => return,
            Delivery::Forbidden => return self.queue.on_forbidden(kind, now()),
        };
        self.observer.before_apply(&event).into_iter().for_each(|it| self.recorder.record(it));
        self.queue.apply(event, now());
    }

    /// Reconciles all keys that are queued or due for their next reconcile.
    pub(crate) fn reconcile(&mut self) {
        self.queue.enqueue_due(now());
        while let Some((key, queued_at)) = self.queue.next_key(now()) {
            self.reconcile_key(&key, now().since(queued_at));
        }
    }

    /// Reconciles one key. `waited` is the time that the key was in the queue. If the controller panics, the runner
    /// recovers with [`Runner::recover`].
    fn reconcile_key(&mut self, key: &C::Key, waited: Duration) {
        let now = now();
        let reconciling = AssertUnwindSafe(|| self.queue.reconcile(key, now));
        if let Err(panic) = catch_unwind(reconciling) {
            self.recover(key, panic);
        }
        self.observer.after_reconcile(&self.queue, key, waited, now);
    }

    /// Starts the calls and measurements that the reconciles requested, records their events, and makes the reflectors
    /// list again if a reconcile requested it. Returns the time at which the next key must be reconciled, or `None` if
    /// no key waits for a time.
    fn start_calls(&mut self) -> Option<Time> {
        let Reconcile { calls, measurements, events, wake_at, relist } = self.queue.take_work();
        measurements.into_iter().for_each(|it| self.start_measurement(it));
        for call in calls {
            self.observer.before_call(&call);
            tracing::trace!(component = self.component, %call);
            let (caller, request) = (self.caller.clone(), C::encode(&call));
            self.calls.push(Box::pin(async move {
                let calling = AssertUnwindSafe(caller.call(request)).catch_unwind().await;
                let lost = (Outcome::Refused(CallError::NoAnswer), Duration::ZERO);
                let (outcome, took) = calling.unwrap_or(lost);
                (call, outcome, took)
            }));
        }
        events.into_iter().for_each(|it| self.recorder.record(it));
        if relist {
            tracing::warn!(
                component = self.component,
                "listing every kind again: the watches do not show the controller's own writes"
            );
            self.relist.send_modify(|count| *count += 1);
        }
        wake_at
    }

    /// Starts a measurement as a background task. If the task panics, the result is `Inconclusive`.
    fn start_measurement(&mut self, measurement: Arc<Measurement>) {
        let checks = self.checks.clone();
        self.measurements.spawn(async move {
            let measuring = async {
                match &checks {
                    Some(checks) => checks.measure(&measurement).await,
                    None => MeasurementResult::inconclusive("this controller measures no checks"),
                }
            };
            let measured = AssertUnwindSafe(measuring).catch_unwind().await;
            let bug = |_| MeasurementResult::inconclusive("the measurement panicked, which is a bug");
            let measured = measured.unwrap_or_else(bug);
            (measurement, measured)
        });
    }

    /// Applies the outcome of a call. `took` is the duration of the call. If the controller panics, the runner recovers
    /// with [`Runner::recover`]. If the call belongs to no key, the panic is propagated instead.
    fn apply_outcome(&mut self, call: &C::Call, outcome: Outcome, took: Duration) {
        self.observer.after_call(call, &outcome, took);
        let applying = AssertUnwindSafe(|| self.queue.apply_outcome(call, outcome, now()));
        if let Err(panic) = catch_unwind(applying) {
            match C::key_of(call) {
                Some(key) => self.recover(&key, panic),
                None => resume_unwind(panic),
            }
        }
        self.observer.after_outcome_applied(&self.queue, call);
    }

    /// Recovers from a panic that this key caused: the key is retried later, and other keys continue. Propagates the
    /// panic if the controller cannot recover.
    pub(crate) fn recover(&mut self, key: &C::Key, panic: Box<dyn std::any::Any + Send>) {
        self.observer.on_panic(key);
        if !self.queue.recover(key, now()) {
            resume_unwind(panic);
        }
    }

    /// Finishes the plans that are being executed, for at most `drain_timeout`. Reconciles only the keys of these
    /// plans.
    async fn drain(&mut self, drain_timeout: Duration) {
        if drain_timeout.is_zero() {
            return;
        }
        self.observer.on_drain(&self.queue);
        let finishing = async {
            while let Some((call, outcome, took)) = self.calls.next().await {
                self.apply_outcome(&call, outcome, took);
                if let Some(key) = C::key_of(&call).filter(|it| self.queue.controller().is_executing(it))
                    && self.queue.controller().may_reconcile(&key)
                {
                    self.reconcile_key(&key, Duration::ZERO);
                }
                self.start_calls();
            }
        };
        if tokio::time::timeout(drain_timeout, finishing).await.is_err() {
            tracing::warn!(
                component = self.component,
                calls = self.queue.calls_in_flight(),
                "stopping before all calls are done: the lists of the next leader show which were applied"
            );
        }
    }
}

/// Waits for the next query. Returns `None` at once if there is no channel, or if the channel is closed.
async fn next_query<Q>(queries: &mut Option<mpsc::Receiver<Q>>) -> Option<Q> {
    match queries {
        Some(queries) => queries.recv().await,
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use muster_api::interner::Interner;
    use muster_api::muster_v1alpha1::checks::WebhookCheck;
    use muster_api::object_key::ObjectKey;
    use muster_api::text::Text;
    use muster_engine::controller::{DecodedObject, Malformed, MeasurementRequest, Request, Requeue, Watch};

    use super::*;
    use crate::CheckOptions;

    /// Where [`PanickingController`] panics for the key `bad`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum PanicIn {
        Reconcile,
        Done,
    }

    /// Makes one call for each ConfigMap, named as its key, and panics for the key `bad`.
    struct PanickingController {
        panic_in: PanicIn,
        /// The result of `recover`.
        retry_at: Option<Time>,
        reconciled: Vec<Text>,
        done: Vec<Text>,
    }

    impl PanickingController {
        fn panic_if_bad(&self, at: PanicIn, key: &Text) {
            assert!(self.panic_in != at || **key != *"bad", "on purpose");
        }
    }

    struct ConfigMap(ObjectKey);

    impl DecodedObject for ConfigMap {
        fn key(&self) -> ObjectKey {
            self.0.clone()
        }

        fn resource_version(&self) -> u64 {
            1
        }
    }

    impl Controller for PanickingController {
        type DecodedObject = ConfigMap;
        type Key = Text;
        type Call = Text;

        fn watches(&self) -> Vec<Watch> {
            vec![Watch::whole_objects("", "v1", "ConfigMap", "configmaps", true)]
        }

        fn decode(_: &Watch, _: &[u8], _: &mut Interner) -> Result<ConfigMap, Malformed> {
            unreachable!("the test lists facts")
        }

        fn apply(&mut self, event: Event<ConfigMap>, _: Time) -> Vec<Text> {
            let Event::Listed { facts, .. } = event else { unreachable!("the test only lists") };
            facts.into_iter().map(|it| it.0.name).collect()
        }

        fn reconcile(&mut self, key: &Text, _: Time) -> Reconcile<Text> {
            self.panic_if_bad(PanicIn::Reconcile, key);
            self.reconciled.push(key.clone());
            Reconcile { calls: vec![key.clone()], ..Reconcile::default() }
        }

        fn request(_: &Text) -> Request {
            unreachable!("the test sends no calls")
        }

        fn apply_outcome(&mut self, call: &Text, _: Outcome, _: Time) -> Requeue<Text> {
            self.panic_if_bad(PanicIn::Done, call);
            self.done.push(call.clone());
            Requeue::default()
        }

        fn key_of(call: &Text) -> Option<Text> {
            Some(call.clone())
        }

        fn recover(&mut self, _: &Text, _: Time) -> Option<Time> {
            self.retry_at
        }
    }

    /// Records the keys for which the controller panicked.
    #[derive(Default)]
    struct PanicObserver(Vec<Text>);

    impl Observer<PanickingController> for PanicObserver {
        type Query = Infallible;

        fn on_panic(&mut self, key: &Text) {
            self.0.push(key.clone());
        }
    }

    /// A runner with the keys `a`, `bad` and `c` in its queue. Its client reaches no server.
    fn runner(panic_in: PanicIn, retry_at: Option<Time>) -> Runner<PanickingController, PanicObserver> {
        let client = crate::client(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let caller = Caller { client, limits: None };
        let controller = PanickingController { panic_in, retry_at, reconciled: Vec::new(), done: Vec::new() };
        let config = RunnerConfig::new("test", 10);
        let mut runner = Runner::new(caller, &config, controller, PanicObserver::default()).0;
        let facts = ["a", "bad", "c"].map(|name| ConfigMap(ObjectKey::new("default", name))).into();
        runner.apply(0, Delivery::Listed { facts, resource_version: 1 });
        runner
    }

    fn in_a_minute() -> Time {
        now() + Duration::from_secs(60)
    }

    /// Asserts that `bad` panicked once and is queued again at `retry_at`, not earlier.
    fn assert_is_retried(runner: &mut Runner<PanickingController, PanicObserver>, retry_at: Time) {
        let bad = Text::from("bad");
        assert_eq!(runner.observer.0, ["bad"].map(Text::from));
        assert_eq!(runner.queue.wake_at(&bad), Some(retry_at));
        runner.queue.enqueue_due(now());
        assert!(!runner.queue.is_queued(&bad));
        runner.queue.enqueue_due(retry_at);
        assert!(runner.queue.is_queued(&bad));
    }

    fn assert_panic_is_propagated(run: impl FnOnce()) {
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the panic is propagated");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    }

    #[tokio::test]
    async fn a_panic_in_reconcile_delays_only_its_key() {
        let retry_at = in_a_minute();
        let mut runner = runner(PanicIn::Reconcile, Some(retry_at));
        runner.reconcile();
        assert_eq!(runner.queue.controller().reconciled, ["a", "c"].map(Text::from));
        assert_is_retried(&mut runner, retry_at);
    }

    #[tokio::test]
    async fn a_panic_in_reconcile_is_propagated_without_recovery() {
        let mut runner = runner(PanicIn::Reconcile, None);
        assert_panic_is_propagated(|| runner.reconcile());
        assert_eq!(runner.observer.0, [Text::from("bad")]);
    }

    #[tokio::test]
    async fn a_panic_in_done_delays_only_its_key() {
        let retry_at = in_a_minute();
        let mut runner = runner(PanicIn::Done, Some(retry_at));
        runner.reconcile();
        let calls = runner.queue.take_work().calls;
        assert_eq!(calls, ["a", "bad", "c"].map(Text::from));
        for call in &calls {
            runner.apply_outcome(call, Outcome::Done(Vec::new()), Duration::ZERO);
        }
        assert_eq!(runner.queue.controller().done, ["a", "c"].map(Text::from));
        assert_eq!(runner.queue.calls_in_flight(), 0);
        assert_is_retried(&mut runner, retry_at);
    }

    #[tokio::test]
    async fn a_panic_in_done_is_propagated_without_recovery() {
        let mut runner = runner(PanicIn::Done, None);
        runner.reconcile();
        let call = Text::from("bad");
        assert_panic_is_propagated(|| runner.apply_outcome(&call, Outcome::Done(Vec::new()), Duration::ZERO));
        assert_eq!(runner.observer.0, [call]);
    }

    /// Requests one measurement for each ConfigMap, and stops the runner with the result.
    struct MeasuringController {
        stop: CancellationToken,
        measured: Vec<MeasurementResult>,
    }

    impl Controller for MeasuringController {
        type DecodedObject = ConfigMap;
        type Key = Text;
        type Call = Text;

        fn watches(&self) -> Vec<Watch> {
            vec![Watch::whole_objects("", "v1", "ConfigMap", "configmaps", true)]
        }

        fn decode(_: &Watch, _: &[u8], _: &mut Interner) -> Result<ConfigMap, Malformed> {
            unreachable!("the test lists facts")
        }

        fn apply(&mut self, event: Event<ConfigMap>, _: Time) -> Vec<Text> {
            let Event::Listed { facts, .. } = event else { unreachable!("the test only lists") };
            facts.into_iter().map(|it| it.0.name).collect()
        }

        fn reconcile(&mut self, key: &Text, now: Time) -> Reconcile<Text> {
            let webhook = WebhookCheck { url: "http://hook.example".to_owned(), ..WebhookCheck::default() };
            let measurement = Measurement {
                set: ObjectKey::new("default", key.clone()),
                uid: "u".into(),
                revision: "r".into(),
                attempt: 1,
                check: "smoke".into(),
                started: now,
                references_in: None,
                request: MeasurementRequest::Webhook { webhook, body: String::new() },
            };
            Reconcile { measurements: vec![Arc::new(measurement)], ..Reconcile::default() }
        }

        fn request(_: &Text) -> Request {
            unreachable!("the test sends no calls")
        }

        fn apply_outcome(&mut self, _: &Text, _: Outcome, _: Time) -> Requeue<Text> {
            unreachable!("the test sends no calls")
        }

        fn apply_measurement(
            &mut self,
            measurement: &Measurement,
            measured: &MeasurementResult,
            _: Time,
        ) -> Vec<Text> {
            assert_eq!(*measurement.set.name, *"a");
            self.measured.push(measured.clone());
            self.stop.cancel();
            Vec::new()
        }
    }

    /// Runs a [`MeasuringController`] until it has a result, and returns the result.
    async fn measured_by_runner(checks: Option<CheckOptions>) -> Vec<MeasurementResult> {
        let client = crate::client(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let caller = Caller { client, limits: None };
        let checks = checks.map(|it| CheckClient::new(caller.clone(), it));
        let config = RunnerConfig { checks, ..RunnerConfig::new("test", 10) };
        let stop = CancellationToken::new();
        let controller = MeasuringController { stop: stop.clone(), measured: Vec::new() };
        let mut runner = Runner::new(caller, &config, controller, NoObserver).0;
        let (_sender, deliveries) = mpsc::channel(1);
        let facts = vec![ConfigMap(ObjectKey::new("default", "a"))];
        runner.apply(0, Delivery::Listed { facts, resource_version: 1 });
        let running = runner.run(deliveries, Duration::ZERO, &stop);
        tokio::time::timeout(Duration::from_secs(60), running).await.expect("the result arrives");
        runner.queue.controller().measured.clone()
    }

    #[tokio::test]
    async fn a_measurement_runs_in_the_background_and_its_result_is_handed_back() {
        let refused = "the endpoint http://hook.example:80 is not allowed: add it to --check-endpoints";
        let measured = measured_by_runner(Some(CheckOptions::default())).await;
        assert_eq!(measured, [MeasurementResult::inconclusive(refused)]);
        let measured = measured_by_runner(None).await;
        assert_eq!(measured, [MeasurementResult::inconclusive("this controller measures no checks")]);
    }
}
