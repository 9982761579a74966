//! Runs the engine's DaemonSet controller, with metrics, logs, explain queries, and the detection of another controller
//! that writes the same DaemonSets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use muster_engine::controller::{
    CallError, Controller as _, Event, EventRecord, Measurement, MeasurementResult, Outcome, WorkQueue,
};
use muster_engine::daemonset::execution::{PlannedCall, Response};
use muster_engine::daemonset::facts::{Kind, Set, WatchedObject};
use muster_engine::daemonset::plan::Plan;
use muster_engine::daemonset::{DaemonSetCall, DaemonSetController, event_about, manifest};
use muster_engine::explain::ControllerState;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::{CallLimits, Caller, outcome_label};
use crate::check_client::CheckClient;
use crate::conflict_detection::ConflictDetector;
use crate::controller_runner::{Observer, RunnerConfig, run_once};
use crate::explain_query::ExplainQuery;
use crate::monitor::{CallKind, RunnerLoad, Stage};
use crate::test_hooks::PlanProgress;
use crate::{ASSIST_NAME, Context};

/// Name of the controller in logs, and the `source.component` of its Events. It is upstream's name, because dashboards
/// filter by it. In assist mode the controller has the name [`ASSIST_NAME`] instead.
const COMPONENT: &str = "daemonset-controller";

/// Maximum time to finish the plans that are being executed when the controller stops. A plan usually has at most some
/// hundreds of calls.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the DaemonSet controller until `stop` is cancelled. From then on it makes no new plan, and only finishes the
/// plans that are being executed. It ends earlier only if the API server's store is replaced, because this makes the
/// controller's whole cache invalid.
pub(crate) async fn run(context: Arc<Context>, stop: &CancellationToken) {
    // Each namespace has its own watches, index and queue.
    let namespaces: BTreeSet<&String> = context.options.namespaces.iter().collect();
    context.monitor.begin_listing(namespaces.len().max(1));
    if namespaces.is_empty() {
        return run_in_namespace(&context, None, stop).await;
    }
    let running = namespaces.into_iter().map(|it| run_in_namespace(&context, Some(it), stop));
    let mut running: FuturesUnordered<_> = running.collect();
    while running.next().await.is_some() && stop.is_cancelled() {}
}

/// Runs the DaemonSet controller in one namespace, or in all namespaces if `namespace` is `None`.
async fn run_in_namespace(context: &Arc<Context>, namespace: Option<&str>, stop: &CancellationToken) {
    let config = RunnerConfig {
        component: if context.options.settings.assist { ASSIST_NAME } else { COMPONENT },
        // The rate limiter limits the calls of all namespaces together.
        calls_in_flight_max: usize::MAX,
        drain_timeout: DRAIN_TIMEOUT,
        events_dropped: context.monitor.events_dropped.clone(),
        checks: Some(CheckClient::new(new_caller(context), context.options.checks.clone())),
    };
    let controller = DaemonSetController::new(context.options.settings, context.options.workers);
    let observer = DaemonSetObserver::new(context.clone());
    run_once(new_caller(context), &config, controller, namespace, observer, stop).await;
}

/// Creates the [`Caller`] for calls to the API server. It obeys the rate limit and the lease term of this replica.
pub(crate) fn new_caller(context: &Context) -> Caller {
    let limits = CallLimits { rate_limiter: context.rate_limiter.clone(), term: context.term.clone() };
    Caller { client: context.client.clone(), limits: Some(limits) }
}

/// Sends a single call about a DaemonSet outside of any plan, and returns the response.
pub(crate) async fn send_standalone_call(context: &Context, set: &Arc<Set>, call: PlannedCall) -> Response {
    let call = DaemonSetCall::standalone(set.clone(), call, context.options.settings.binding);
    let (outcome, took) = new_caller(context).call(DaemonSetController::encode(&call)).await;
    let response = Response::decode(&call.call, outcome);
    observe_call(context, &call, &response, took);
    response
}

/// Counts a call in the metrics, and records its duration.
fn observe_call(context: &Context, call: &DaemonSetCall, response: &Response, took: Duration) {
    let target = manifest::call_target(&call.set, &call.call);
    let resource = match (target.kind, target.subresource) {
        (Kind::Sets, None) => "daemonsets",
        (Kind::Sets, Some(_)) => "daemonsets/status",
        (Kind::Nodes, _) => "nodes",
        (Kind::Pods, Some(_)) => "pods/eviction",
        (Kind::Pods, None) => "pods",
        (Kind::Revisions, _) => "controllerrevisions",
        (Kind::Rollouts, Some(_)) => "daemonrollouts/status",
        (kind, _) => kind.plural(),
    };
    let kind = CallKind { verb: manifest::call_verb(&call.call).as_str(), resource };
    let error = match response {
        Response::Refused(error) => Some(error),
        _ => None,
    };
    context.monitor.observe_call(&kind, outcome_label(error), took);
}

/// Observer of the DaemonSet controller, for metrics, logs, the detection of a second controller, explain queries and
/// test hooks.
struct DaemonSetObserver {
    /// Client, options, rate limiter and other values that all runners of the replica share.
    context: Arc<Context>,
    /// Detects another controller that writes the same DaemonSets.
    conflicts: ConflictDetector,
    /// DaemonSets with writes that the watches have not delivered yet, each with the time at which its last plan ended.
    unconfirmed: BTreeMap<ObjectKey, Instant>,
    /// The value of `DaemonSetController::reconcile_count` when it was last read.
    reconciles: u64,
    /// The load of the runner that was last reported to the metrics.
    load: RunnerLoad,
    /// Whether all kinds have been listed.
    is_synced: bool,
}

impl DaemonSetObserver {
    fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            conflicts: ConflictDetector::new(Instant::now()),
            unconfirmed: BTreeMap::new(),
            reconciles: 0,
            load: RunnerLoad::default(),
            is_synced: false,
        }
    }

    /// Checks whether another controller has written the status of a DaemonSet, and counts such a write. Returns the
    /// event that reports the other controller. `None` if there is no such write, or if the last warning is too recent.
    ///
    /// Rule: in assist mode upstream's controller is meant to write the status, so nothing is reported.
    fn detect_conflict(&mut self, fact: &WatchedObject) -> Option<EventRecord> {
        if self.context.options.settings.assist {
            return None;
        }
        let set = match fact {
            WatchedObject::Set(set) => set,
            WatchedObject::Gone { kind: Kind::Sets, key, .. } => {
                self.conflicts.remove(key);
                return None;
            }
            _ => return None,
        };
        let conflict = self.conflicts.check(set, Instant::now())?;
        self.context.monitor.conflicting_writes.inc();
        let event = conflict.event?;
        tracing::warn!(set = %set.key, "{}", event.message);
        Some(event_about(set, event))
    }

    /// Records a new plan in metrics and logs.
    fn record_plan(&mut self, key: &ObjectKey, plan: &Plan, waited: Duration) {
        self.context.monitor.observe_reconcile(waited, plan);
        match &plan.waiting {
            Some(why) => tracing::debug!(set = %key, %why, "waiting"),
            None if !plan.confirm => {
                if let Some(since) = self.unconfirmed.remove(key) {
                    self.context.monitor.observe_watch_lag(since.elapsed());
                }
            }
            None => {}
        }
        if !plan.is_idle() {
            tracing::debug!(set = %key, "plan:\n{plan}");
        }
    }

    /// Records that the execution of a plan has ended.
    fn record_plan_end(&mut self, set: &Arc<Set>) {
        self.context.report_plan_progress(PlanProgress::Done { set });
        self.unconfirmed.insert(set.key.clone(), Instant::now());
    }
}

impl Observer<DaemonSetController> for DaemonSetObserver {
    type Query = ExplainQuery;

    fn open_query_channel(&mut self) -> Option<mpsc::Receiver<ExplainQuery>> {
        Some(self.context.explain_queries.subscribe())
    }

    fn answer(&self, queue: &WorkQueue<DaemonSetController>, query: ExplainQuery) {
        let ExplainQuery { key, answer } = query;
        let controller = queue.controller();
        let state = controller.planner().export_in_memory_state(&key).map(|memory| ControllerState {
            memory,
            is_executing: controller.is_executing(&key),
            queued: queue.is_queued(&key),
            wakes_at: queue.wake_at(&key),
            panic_backoff_until: controller.panic_backoff_until(&key),
        });
        // The client may have disconnected.
        let _ = answer.send(state);
    }

    fn on_delivery(&mut self, kind: usize) {
        self.context.monitor.record_watch_data(Kind::ALL[kind]);
    }

    fn before_apply(&mut self, event: &Event<WatchedObject>) -> Vec<EventRecord> {
        match event {
            Event::Listed { kind, facts, .. } => {
                self.context.monitor.count_completed_list(Kind::ALL[*kind]);
                facts.iter().filter_map(|it| self.detect_conflict(it)).collect()
            }
            Event::Applied { fact, .. } | Event::Deleted { fact, .. } => {
                self.detect_conflict(fact).into_iter().collect()
            }
        }
    }

    fn after_reconcile(
        &mut self,
        queue: &WorkQueue<DaemonSetController>,
        key: &ObjectKey,
        waited: Duration,
        now: Time,
    ) {
        let controller = queue.controller();
        if controller.reconcile_count() == self.reconciles {
            // The key was not planned again: further calls of its plan were started.
            return;
        }
        self.reconciles = controller.reconcile_count();
        let Some(plan) = controller.last_plan(key) else { return self.context.monitor.remove_daemonset(key) };
        self.context.report_plan_progress(PlanProgress::Planned { planner: controller.planner(), plan, now });
        self.record_plan(key, plan, waited);
        let rollout = controller.planner().rollout_record(key);
        self.context.monitor.record_rollout(key, rollout.map(|it| &it.status));
        if !plan.is_idle() && !controller.is_executing(key) {
            // The plan had no calls.
            self.record_plan_end(&plan.set);
        }
    }

    fn before_call(&mut self, call: &DaemonSetCall) {
        self.context.report_plan_progress(PlanProgress::Called { set: &call.set, call: &call.call });
    }

    fn after_call(&mut self, call: &DaemonSetCall, outcome: &Outcome, took: Duration) {
        let response = Response::decode(&call.call, outcome.clone());
        observe_call(&self.context, call, &response, took);
        log_call(call, &response);
        self.context.report_plan_progress(PlanProgress::Answered {
            set: &call.set,
            call: &call.call,
            outcome: &response,
        });
    }

    fn after_outcome_applied(&mut self, queue: &WorkQueue<DaemonSetController>, call: &DaemonSetCall) {
        if !queue.controller().is_executing(&call.set.key) {
            self.record_plan_end(&call.set);
        }
    }

    fn on_measured(&mut self, measurement: &Measurement, measured: &MeasurementResult) {
        self.context.monitor.count_check_result(&measurement.check, measured.as_str());
    }

    fn on_panic(&mut self, key: &ObjectKey) {
        self.context.monitor.panics.inc();
        tracing::error!(set = %key, "backing off: this DaemonSet made the controller panic, which is a bug");
    }

    fn on_idle(&mut self, queue: &WorkQueue<DaemonSetController>) {
        let (controller, monitor) = (queue.controller(), &self.context.monitor);
        let planner = controller.planner();
        monitor.record_heartbeat();
        let count = |it: usize| it.try_into().unwrap_or(i64::MAX);
        let now = RunnerLoad {
            queued: count(queue.len()),
            executing: count(controller.executing_plan_count()),
            objects: Kind::ALL.map(|kind| count(planner.count(kind))),
        };
        monitor.report_load(&mut self.load, now);
        if !self.is_synced && planner.is_synced() {
            self.is_synced = true;
            tracing::info!(
                sets = planner.count(Kind::Sets),
                nodes = planner.count(Kind::Nodes),
                "caches synced"
            );
            monitor.record_cache_synced();
        }
    }

    fn on_drain(&mut self, queue: &WorkQueue<DaemonSetController>) {
        self.context.monitor.enter_stage(Stage::Stopping);
        let plans = queue.controller().executing_plan_count();
        tracing::info!(plans, "stopping: finishing the plans that are being executed");
    }
}

/// Logs the outcome of a call at info level, with two exceptions. An unexpected failure is a warning. A successful
/// read, or a successful write of a DaemonSet's status, is logged at debug level.
fn log_call(call: &DaemonSetCall, response: &Response) {
    let set = &call.set.key;
    match (&call.call, response) {
        // Another client deleted or changed the object first, or a PodDisruptionBudget does its work.
        (
            _,
            Response::Refused(
                error @ (CallError::NotFound | CallError::Conflict | CallError::DisruptionBudget { .. }),
            ),
        ) => {
            tracing::info!(%set, %call, %error, "call failed");
        }
        (_, Response::Refused(error)) => tracing::warn!(%set, %call, %error, "call failed"),
        (PlannedCall::CreatePod { node, why, .. }, Response::Wrote { name, .. }) => {
            tracing::info!(%set, %node, pod = %name, %why, "created pod");
        }
        (PlannedCall::DeletePod { pod, why }, _) => {
            let node = pod.target.as_deref().unwrap_or("-");
            tracing::info!(%set, %node, pod = %pod.key.name, %why, "deleted pod");
        }
        (PlannedCall::EvictPod { pod, why }, _) => {
            let node = pod.target.as_deref().unwrap_or("-");
            tracing::info!(%set, %node, pod = %pod.key.name, %why, "evicted pod");
        }
        (
            PlannedCall::PutStatus { .. }
            | PlannedCall::ApplyConditions { .. }
            | PlannedCall::ReadSet
            | PlannedCall::ReadRevision { .. }
            | PlannedCall::ListPods,
            _,
        ) => {
            tracing::debug!(%set, %call, "call done");
        }
        _ => tracing::info!(%set, %call, "call done"),
    }
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use muster_api::interner::Interner;
    use muster_engine::daemonset::facts;
    use muster_events::clock::now;
    use prometheus_client::metrics::counter::Counter;
    use serde_json::json;

    use super::*;
    use crate::controller_runner::Runner;
    use crate::lease::Term;
    use crate::rate_limit::RateLimiter;
    use crate::reflector::Delivery;
    use crate::{ExplainQueries, Monitor, Options};

    fn set(name: &str) -> WatchedObject {
        let set = json!({
            "metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": "1", "generation": 1},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c"}]}},
            },
        });
        WatchedObject::Set(Arc::new(
            facts::decode_set(set.to_string().as_bytes(), &mut Interner::default()).unwrap(),
        ))
    }

    /// A context whose client reaches no server.
    fn context(options: Options) -> Arc<Context> {
        let client = crate::client(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        Arc::new(Context {
            client: Client::clone(&client),
            rate_limiter: RateLimiter::new(options.limits),
            options,
            term: Term::unlimited(Duration::from_secs(1)),
            monitor: Arc::new(Monitor::default()),
            explain_queries: ExplainQueries::default(),
            plan_observer: None,
        })
    }

    /// A runner whose cache holds two DaemonSets and no other object.
    fn runner() -> (Runner<DaemonSetController, DaemonSetObserver>, Arc<Monitor>) {
        let context = context(Options::default());
        let monitor = context.monitor.clone();
        let config = RunnerConfig {
            component: COMPONENT,
            calls_in_flight_max: usize::MAX,
            drain_timeout: DRAIN_TIMEOUT,
            events_dropped: Counter::default(),
            checks: None,
        };
        let controller = DaemonSetController::new(context.options.settings, context.options.workers);
        let observer = DaemonSetObserver::new(context.clone());
        let mut runner = Runner::new(new_caller(&context), &config, controller, observer).0;
        for kind in Kind::ALL {
            let facts = if kind == Kind::Sets { vec![set("x"), set("y")] } else { Vec::new() };
            runner.apply(kind.index(), Delivery::Listed { facts, resource_version: 1 });
        }
        (runner, monitor)
    }

    #[tokio::test]
    async fn a_daemonset_that_panics_backs_off_and_the_others_are_reconciled() {
        let (mut runner, monitor) = runner();
        let [x, y] = ["x", "y"].map(|name| ObjectKey::new("a", name));
        runner.recover(&x, Box::new("on purpose"));
        let until = runner.queue.controller().panic_backoff_until(&x).unwrap();
        assert_eq!(runner.queue.wake_at(&x), Some(until));
        // Until then x is not planned, although it is queued.
        runner.reconcile();
        assert!(runner.queue.controller().last_plan(&x).unwrap().is_idle());
        assert_eq!(runner.queue.wake_at(&x), Some(until));
        assert!(!runner.queue.controller().last_plan(&y).unwrap().is_idle());
        // After the delay x is planned; success clears its backoff.
        runner.queue.reconcile(&x, until);
        assert!(!runner.queue.controller().last_plan(&x).unwrap().is_idle());
        assert_eq!(runner.queue.controller().panic_backoff_until(&x), None);
        assert!(monitor.metrics("").1.contains("muster_panics_total 1\n"));
    }

    #[tokio::test]
    async fn in_assist_mode_a_status_write_of_upstreams_controller_is_no_conflict() {
        let written_at = |time: &str| {
            let counts = json!({"f:status": {"f:numberReady": {}}});
            let writer = json!({
                "manager": "kube-controller-manager", "subresource": "status", "time": time, "fieldsV1": counts,
            });
            let set = json!({
                "metadata": {"name": "x", "namespace": "a", "managedFields": [writer]},
                "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {}},
            });
            let set = facts::decode_set(set.to_string().as_bytes(), &mut Interner::default()).unwrap();
            Event::Applied { kind: Kind::Sets.index(), fact: WatchedObject::Set(Arc::new(set)) }
        };
        for (assist, warnings) in [(false, 1), (true, 0)] {
            let settings = crate::Settings { assist, ..crate::Settings::default() };
            let mut observer = DaemonSetObserver::new(context(Options { settings, ..Options::default() }));
            let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
            observer.conflicts = ConflictDetector::new(long_ago);
            assert_eq!(observer.before_apply(&written_at("1")).len(), 0);
            assert_eq!(observer.before_apply(&written_at("2")).len(), warnings);
        }
    }

    #[tokio::test]
    async fn after_a_panic_the_results_of_the_plan_are_listed() {
        let (mut runner, _) = runner();
        let x = ObjectKey::new("a", "x");
        runner.reconcile();
        assert!(runner.queue.controller().is_executing(&x));
        runner.recover(&x, Box::new("on purpose"));
        assert!(!runner.queue.controller().is_executing(&x));
        // After the delay, the next plan confirms the state of the cluster first.
        runner.queue.reconcile(&x, now() + Duration::from_secs(10));
        assert!(runner.queue.controller().last_plan(&x).unwrap().confirm);
    }
}
