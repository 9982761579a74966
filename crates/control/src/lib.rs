//! Runs the engine's controllers against an API server: lists and watches, calls the engine, sends its requests.
//!
//! No decision is made here: `muster_engine` decides what to do next, in which order, with which request bodies, and what
//! each response means. The API server may be Muster's or any kube-apiserver.
//!
//! ```text
//! let client = muster_control::client(config)?;
//! Controller::new(client, Options::default()).run(stop).await?;
//! ```

mod call;
mod clock;
mod conflict_detection;
mod controller_runner;
mod daemonset;
mod disruption;
mod endpoints;
mod explain;
mod explain_query;
mod garbage_collector;
mod lease;
mod monitor;
mod node_lifecycle;
mod plan;
mod rate_limit;
mod read;
mod reflect;
mod release;
mod request;
mod scheduler;
mod test_hooks;

use std::fmt;
use std::sync::Arc;

use http::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::call::CALL_TIMEOUT;
use crate::lease::{Elector, Term};
use crate::rate_limit::RateLimiter;

pub use crate::disruption::disruption;
pub use crate::endpoints::endpoints;
pub use crate::explain::{ExplainError, explain};
pub use crate::explain_query::{ExplainQueries, QueryError};
pub use crate::garbage_collector::garbage_collector;
pub use crate::lease::Lease;
pub use crate::monitor::Monitor;
pub use crate::node_lifecycle::node_lifecycle;
pub use crate::plan::{ApplyMode, PlanError, PlannedSet, plan};
pub use crate::rate_limit::RateLimits;
pub use crate::read::ReadError;
pub use crate::release::{ReleaseError, Released, release};
pub use crate::scheduler::scheduler;
pub use muster_engine::controller::lease::{LostLease, Terms};
pub use muster_engine::daemonset::manifest::Binding;
pub use muster_engine::daemonset::plan::Settings;
pub use muster_engine::explain::Explanation;
pub use muster_engine::node_lifecycle::Config as NodeLifecycleConfig;
pub use muster_engine::preview::RolloutPreview;
pub use test_hooks::{Observation, PlanObserver};

/// User agent, field manager and event source of the controllers.
pub(crate) const NAME: &str = "muster-controller";

/// Options of the DaemonSet controller.
#[derive(Debug, Clone)]
pub struct Options {
    pub settings: Settings,
    /// Only DaemonSets in these namespaces are reconciled; empty means all namespaces.
    pub namespaces: Vec<String>,
    /// How many DaemonSets are reconciled concurrently.
    pub workers: usize,
    pub limits: RateLimits,
    /// `None`: no leader election; the controller starts at once.
    pub lease: Option<Lease>,
}

/// The plan of a settled DaemonSet takes milliseconds; any other plan has enough calls to keep the API server busy.
pub const WORKERS: usize = 16;

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            namespaces: Vec::new(),
            workers: WORKERS,
            limits: RateLimits::default(),
            lease: None,
        }
    }
}

/// Why the controller stopped without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ControllerExit {
    /// Further writes could undo what the new leader does, so the process exits and restarts.
    #[error("no longer the leader: {0}")]
    Lost(LostLease),
    /// The store was replaced, for example by a restore: nothing in the index is valid.
    #[error(
        "the API server's store was replaced (resourceVersion went back): restart to list everything again"
    )]
    OtherStore,
}

/// A client with the controllers' user agent and without automatic retries: only the engine knows what a write without
/// a response means.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    let agent = format!("{NAME}/{}", env!("CARGO_PKG_VERSION"));
    config.default_retry = false;
    config.headers.retain(|(name, _)| name != USER_AGENT);
    config.headers.push((USER_AGENT, HeaderValue::from_str(&agent).expect("a version is plain text")));
    Client::try_from(config)
}

/// The DaemonSet controller, with leader election if configured.
pub struct Controller {
    client: Client,
    options: Options,
    monitor: Arc<Monitor>,
    explain_queries: ExplainQueries,
    observer: Option<PlanObserver>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Shared by all calls of one replica.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) rate_limiter: RateLimiter,
    pub(crate) term: Term,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) explain_queries: ExplainQueries,
    observer: Option<PlanObserver>,
}

impl Context {
    pub(crate) fn observe(&self, observation: Observation<'_>) {
        if let Some(observer) = &self.observer {
            observer(observation);
        }
    }
}

impl Controller {
    pub fn new(client: Client, options: Options) -> Self {
        Self {
            client,
            options,
            monitor: Arc::default(),
            explain_queries: ExplainQueries::default(),
            observer: None,
        }
    }

    /// Answers `queries` from this controller's cache.
    pub fn answers(self, explain_queries: ExplainQueries) -> Self {
        Self { explain_queries, ..self }
    }

    /// Reports each plan and call to `observer`.
    pub fn observed_by(self, observer: PlanObserver) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Health and metrics of this controller.
    pub fn monitor(&self) -> Arc<Monitor> {
        self.monitor.clone()
    }

    /// Runs until `stop`; then makes no new plan, finishes the calls of plans in progress, and releases the lease.
    ///
    /// With leader election, a replica that waits to lead lists and watches nothing: a new leader must list everything
    /// anyway, to see what the last leader wrote.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ControllerExit> {
        let Some(lease) = self.options.lease.clone() else {
            return self.work(Term::unlimited(CALL_TIMEOUT), &stop).await;
        };
        let mut elector = Elector::new(self.client.clone(), lease, CALL_TIMEOUT);
        let monitor = self.monitor.clone();
        let asked = stop.cancelled();
        tokio::select! {
            () = asked => return Ok(()),
            () = elector.win(&monitor) => {}
        }
        let term = elector.term();
        // A separate task, so that slow work here never delays a renewal.
        let (mut holding, done) = (JoinSet::new(), CancellationToken::new());
        holding.spawn(elector.hold_until(done.clone()));
        tokio::select! {
            Some(lost) = holding.join_next() => match lost {
                Ok(Some(lost)) => Err(ControllerExit::Lost(lost)),
                _ => Err(ControllerExit::Lost(LostLease::RenewDeadlineExceeded)),
            },
            ended = self.work(term, &stop) => {
                done.cancel();
                holding.join_next().await;
                ended
            }
        }
    }

    async fn work(self, term: Term, stop: &CancellationToken) -> Result<(), ControllerExit> {
        let Self { client, options, monitor, explain_queries, observer } = self;
        let rate_limiter = RateLimiter::new(options.limits);
        let context =
            Arc::new(Context { client, options, rate_limiter, term, monitor, explain_queries, observer });
        daemonset::run(context, stop).await;
        if stop.is_cancelled() { Ok(()) } else { Err(ControllerExit::OtherStore) }
    }
}
