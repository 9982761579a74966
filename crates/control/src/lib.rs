//! Runs the engine's controllers against an API server: lists and watches, calls the engine, and sends the requests
//! that the engine returns.
//!
//! `muster_engine` makes the decisions of the controllers: what to do next, in which order, with which request bodies,
//! and what follows from each outcome. The API server may be Muster's or any kube-apiserver.
//!
//! ```text
//! let client = muster_control::client(config)?;
//! DaemonSetControllerReplica::new(client, Options::default()).run(stop).await?;
//! ```

/// Sends the calls of controllers to the API server, and classifies the errors.
mod call;
/// HTTP client that measures the checks of progressive rollouts: it queries Prometheus and calls webhooks.
mod check_client;
/// Parses the URLs of rollout checks, and decides which URLs the checks may call.
mod check_endpoints;
/// Detects a second controller that writes the same DaemonSets.
mod conflict_detection;
/// Runs a controller of the engine: watches, reconciles, and sends its calls.
mod controller_runner;
/// Runs the DaemonSet controller.
mod daemonset;
/// Runs the disruption controller.
mod disruption;
/// Runs the controllers of Endpoints and EndpointSlices.
mod endpoints;
/// Implements the command `muster explain`.
mod explain;
/// Answers requests to `/debug/explain` from the state of the running controller.
mod explain_query;
/// Runs the garbage collector.
mod garbage_collector;
/// Leader election: acquires, renews and releases the Lease.
mod lease;
/// Metrics and health checks of the DaemonSet controller.
mod monitor;
/// Runs the node lifecycle controller.
mod node_lifecycle;
/// Lists objects page by page.
mod paged_list;
/// Implements the command `muster plan`.
mod plan;
/// Limits the calls in flight and the calls per second.
mod rate_limit;
/// Reads objects for `muster explain` and `muster plan`.
mod read;
/// Lists and watches one kind without gaps.
mod reflector;
/// Implements the command `muster controller release`.
mod release;
/// Builds HTTP requests to the API server.
mod request;
/// Runs the rollout policy controller, which writes the status of rollout policies.
mod rollout_policy;
/// Runs the scheduler.
mod scheduler;
/// Lets tests observe the DaemonSet controller.
mod test_hooks;

use std::fmt;
use std::sync::Arc;

use http::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;

use crate::call::CALL_TIMEOUT;
use crate::lease::{Elector, Term};
use crate::rate_limit::RateLimiter;

pub use crate::check_client::CheckOptions;
pub use crate::check_endpoints::{CheckEndpoint, InvalidEndpoint};
pub use crate::disruption::run_disruption_controller;
pub use crate::endpoints::run_endpoints_controller;
pub use crate::explain::{ExplainError, explain};
pub use crate::explain_query::{ExplainQueries, QueryError};
pub use crate::garbage_collector::run_garbage_collector;
pub use crate::lease::{ElectionCallbacks, LeaseConfig, run_while_leading};
pub use crate::monitor::Monitor;
pub use crate::node_lifecycle::run_node_lifecycle;
pub use crate::plan::{ApplyMode, PlanError, PlannedSet, plan};
pub use crate::rate_limit::RateLimits;
pub use crate::read::ReadError;
pub use crate::release::{ReleaseError, ReleaseSummary, release};
pub use crate::rollout_policy::run_rollout_policy_controller;
pub use crate::scheduler::run_scheduler;
pub use muster_engine::controller::lease::{LeaderElectionConfig, LostLease};
pub use muster_engine::daemonset::manifest::Binding;
pub use muster_engine::daemonset::plan::Settings;
pub use muster_engine::daemonset::{ControllerMode, NOT_ON_DELETE_MESSAGE};
pub use muster_engine::explain::Explanation;
pub use muster_engine::node_lifecycle::Config as NodeLifecycleConfig;
pub use muster_engine::preview::RolloutPreview;
pub use test_hooks::{PlanObserver, PlanProgress};

/// Name of the controllers in their user agent, from which the API server takes their field manager. Also the source of
/// the Events about leader election.
pub(crate) const CONTROLLER_NAME: &str = muster_engine::daemonset::manifest::CONTROLLER_FIELD_MANAGER;

/// Name of the controller in assist mode, that is, while it runs beside upstream's DaemonSet controller. It is the
/// default name of the Lease, and the `source.component` of the controller's Events.
pub const ASSIST_NAME: &str = muster_engine::daemonset::manifest::ASSIST_FIELD_MANAGER;

/// Options of the DaemonSet controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// Limits and features of the controller, such as the maximum number of creates in one plan.
    pub settings: Settings,
    /// Namespaces whose DaemonSets are reconciled. Empty means all namespaces.
    pub namespaces: Vec<String>,
    /// Maximum number of DaemonSets that are reconciled concurrently. It applies to each of `namespaces`, or to all
    /// namespaces together if `namespaces` is empty.
    pub workers: usize,
    /// Limits on the calls to the API server with which DaemonSets are reconciled. Watches and their lists, Lease
    /// renewals and Events are not limited.
    pub limits: RateLimits,
    /// Configuration of the leader election. `None` if the controller runs without leader election.
    pub lease: Option<LeaseConfig>,
    /// Whether the leader also runs the rollout policy controller, which writes the status of rollout policies. `false`
    /// if that controller is started separately, as beside Muster's own API server.
    pub writes_policy_status: bool,
    /// Options for measuring rollout checks: the allowed endpoints, and the namespace of Secrets and ConfigMaps.
    pub checks: CheckOptions,
}

/// Default of [`Options::workers`].
pub const DEFAULT_WORKERS: usize = 16;

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            namespaces: Vec::new(),
            workers: DEFAULT_WORKERS,
            limits: RateLimits::default(),
            lease: None,
            writes_policy_status: false,
            checks: CheckOptions::default(),
        }
    }
}

/// Why the controller ended before it was told to stop.
#[derive(Debug, thiserror::Error)]
pub enum ControllerExit {
    /// This replica is no longer the leader. The process exits to be restarted, because another replica may be the
    /// leader now, and the writes of both could conflict.
    #[error("no longer the leader: {0}")]
    LostLease(LostLease),
    /// The API server's store was replaced, for example by a restore, so that the controller's cache is invalid.
    #[error(
        "the API server's store was replaced (resourceVersion went back): restart to list everything again"
    )]
    StoreReplaced,
}

/// Creates a client with the controllers' user agent. It does not retry requests, because only the engine decides what
/// to do after a write without a response.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    let agent = format!("{CONTROLLER_NAME}/{}", env!("CARGO_PKG_VERSION"));
    config.default_retry = false;
    config.headers.retain(|(name, _)| name != USER_AGENT);
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_str(&agent).expect("a version is a valid header value")));
    Client::try_from(config)
}

/// A replica of the DaemonSet controller, ready to run. It takes part in leader election if the options have a Lease.
pub struct DaemonSetControllerReplica {
    client: Client,
    options: Options,
    monitor: Arc<Monitor>,
    /// Delivers the explain queries that the controller answers.
    explain_queries: ExplainQueries,
    /// Callback that a test has set to follow the plans. `None` outside of tests.
    plan_observer: Option<PlanObserver>,
}

impl fmt::Debug for DaemonSetControllerReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DaemonSetControllerReplica").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Values that all runners of one replica of the DaemonSet controller share, such as client, options, rate limiter and
/// lease term.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) rate_limiter: RateLimiter,
    /// The lease term: the period in which this replica may write.
    pub(crate) term: Term,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) explain_queries: ExplainQueries,
    /// Callback that a test has set to follow the plans. `None` outside of tests.
    plan_observer: Option<PlanObserver>,
}

impl Context {
    /// Passes a step of a plan to the callback that a test has set. Does nothing outside of tests.
    pub(crate) fn report_plan_progress(&self, progress: PlanProgress<'_>) {
        if let Some(plan_observer) = &self.plan_observer {
            plan_observer(progress);
        }
    }
}

impl DaemonSetControllerReplica {
    pub fn new(client: Client, options: Options) -> Self {
        Self {
            client,
            options,
            monitor: Arc::default(),
            explain_queries: ExplainQueries::default(),
            plan_observer: None,
        }
    }

    /// Sets the source of the explain queries that the controller answers from its in-memory state.
    pub fn with_explain_queries(self, explain_queries: ExplainQueries) -> Self {
        Self { explain_queries, ..self }
    }

    /// Sets a callback that the controller calls for each plan, call and response, and at the end of each plan. Only
    /// tests use it.
    pub fn with_plan_observer(self, plan_observer: PlanObserver) -> Self {
        Self { plan_observer: Some(plan_observer), ..self }
    }

    /// Returns the health and metrics of this controller.
    pub fn monitor(&self) -> Arc<Monitor> {
        self.monitor.clone()
    }

    /// Runs the controller until `stop` is cancelled. From then on the controller makes no new plan. It finishes the
    /// plans that are being executed, for at most the drain timeout, and then, with leader election, releases the
    /// lease. Returns an error if the controller ends earlier, because this replica is no longer the leader or the API
    /// server's store was replaced.
    ///
    /// With leader election, a standby replica watches only the Lease, because a new leader must list everything anyway
    /// to see the writes of the previous leader.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ControllerExit> {
        let Some(lease) = self.options.lease.clone() else {
            return self.run_as_leader(Term::unlimited(CALL_TIMEOUT), &stop).await;
        };
        let elector = Elector::new(self.client.clone(), lease, CALL_TIMEOUT);
        let monitor = self.monitor.clone();
        let on_follow = || monitor.enter_stage(monitor::Stage::Following);
        match elector.run_while_leading(&stop, on_follow, |term| self.run_as_leader(term, &stop)).await {
            None => Ok(()),
            Some(Ok(ended)) => ended,
            Some(Err(lost)) => Err(ControllerExit::LostLease(lost)),
        }
    }

    /// Runs the DaemonSet controller until `stop` is cancelled, together with the rollout policy controller if
    /// [`Options::writes_policy_status`] is set. Both write only within the lease term. Returns an error if the API
    /// server's store was replaced.
    async fn run_as_leader(self, term: Term, stop: &CancellationToken) -> Result<(), ControllerExit> {
        let Self { client, options, monitor, explain_queries, plan_observer } = self;
        let rate_limiter = RateLimiter::new(options.limits);
        let context = Arc::new(Context {
            client,
            options,
            rate_limiter,
            term,
            monitor,
            explain_queries,
            plan_observer,
        });
        let policies = async {
            if context.options.writes_policy_status {
                let caller = daemonset::new_caller(&context);
                rollout_policy::run_beside_daemonset_controller(&context, caller, stop).await;
            }
            // The DaemonSet controller may still finish its plans.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = daemonset::run(context.clone(), stop) => {}
            () = policies => {}
        }
        if stop.is_cancelled() { Ok(()) } else { Err(ControllerExit::StoreReplaced) }
    }
}
