//! Supervises the tasks of one process: the API server, controllers and nodes. A task that ends unexpectedly is
//! restarted, except the API server: the process ends with it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use muster_api::backoff::BackoffPolicy;
use muster_api::text::panic_message;
use muster_control::NodeLifecycleConfig;
use muster_server::{ApiServer, BuiltinUser};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::duration_flag;

/// Time that the supervised tasks get to finish their work before the server is stopped, unless
/// [`Supervisor::extend_stop_timeout`] extends it.
const TASK_STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum time that the server gets to stop. The server waits at most five seconds for responses in flight.
const SERVER_STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// A controller that runs in the server's process.
pub(crate) struct BuiltInController {
    pub(crate) name: &'static str,
    /// Identity of the controller as a client of the server.
    pub(crate) user: BuiltinUser,
    /// Runs the controller until the token is cancelled.
    pub(crate) run: fn(kube::Client, &NodeLifecycleFlags, CancellationToken) -> ControllerFuture,
}

/// Flags of the node lifecycle controller.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct NodeLifecycleFlags {
    /// Time without a heartbeat after which a node is marked Ready=Unknown
    #[arg(long, value_name = "TIME", default_value = "50s", value_parser = duration_flag::parse_duration)]
    node_monitor_grace_period: Duration,
    /// Time after which a new node that has never sent a heartbeat is marked Ready=Unknown
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration_flag::parse_duration)]
    node_startup_grace_period: Duration,
}

impl NodeLifecycleFlags {
    /// Returns the configuration of the node lifecycle controller that the flags specify.
    fn node_lifecycle_config(self) -> NodeLifecycleConfig {
        NodeLifecycleConfig {
            node_monitor_grace_period: self.node_monitor_grace_period,
            node_startup_grace_period: self.node_startup_grace_period,
            ..NodeLifecycleConfig::default()
        }
    }
}

/// The future of a running built-in controller.
pub(crate) type ControllerFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All built-in controllers, in alphabetical order.
pub(crate) const BUILT_IN_CONTROLLERS: &[BuiltInController] = &[
    BuiltInController {
        name: "disruption",
        user: BuiltinUser::Disruption,
        run: |client, _, stop| Box::pin(muster_control::run_disruption_controller(client, stop)),
    },
    BuiltInController {
        name: "endpoints",
        user: BuiltinUser::Endpoints,
        run: |client, _, stop| Box::pin(muster_control::run_endpoints_controller(client, stop)),
    },
    BuiltInController {
        name: "garbage-collector",
        user: BuiltinUser::GarbageCollector,
        run: |client, _, stop| Box::pin(muster_control::run_garbage_collector(client, stop)),
    },
    BuiltInController {
        name: "node-lifecycle",
        user: BuiltinUser::NodeLifecycle,
        run: |client, it, stop| {
            Box::pin(muster_control::run_node_lifecycle(client, it.node_lifecycle_config(), stop))
        },
    },
    BuiltInController {
        name: "rollout-policy",
        user: BuiltinUser::RolloutPolicy,
        run: |client, _, stop| Box::pin(muster_control::run_rollout_policy_controller(client, stop)),
    },
    BuiltInController {
        name: "scheduler",
        user: BuiltinUser::Scheduler,
        run: |client, _, stop| Box::pin(muster_control::run_scheduler(client, stop)),
    },
];

/// Value of `--without` that disables all built-in controllers.
const ALL_CONTROLLERS: &str = "all";

/// Backoff of the restarts of a supervised task. It is reset after the task has run for longer than its maximum.
const RESTART_BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_millis(500), max: Duration::from_secs(60) };

/// Returns a command line parser that accepts the names of built-in controllers, and `all`.
pub(crate) fn controller_name_parser() -> PossibleValuesParser {
    BUILT_IN_CONTROLLERS.iter().map(|it| it.name).chain([ALL_CONTROLLERS]).collect::<Vec<_>>().into()
}

/// Returns the built-in controllers that are enabled. `without` is the value of `--without`.
pub(crate) fn enabled_controllers(without: &[String]) -> impl Iterator<Item = &'static BuiltInController> {
    BUILT_IN_CONTROLLERS
        .iter()
        .filter(|it| !without.iter().any(|out| out == it.name || out == ALL_CONTROLLERS))
}

/// Runs the tasks of the process, restarts all but the API server when they end, and stops them.
#[derive(Debug, Default)]
pub(crate) struct Supervisor {
    /// Cancelled when the tasks must finish their work and stop.
    stop: CancellationToken,
    /// Cancelled when the tasks must stop immediately, without finishing work in progress.
    abort: CancellationToken,
    /// Cancelled when the server must stop, after the tasks.
    server_stop: CancellationToken,
    /// The task of the API server, or of the processes of several servers.
    server: JoinSet<anyhow::Result<()>>,
    /// Maximum time that `server` gets to stop.
    server_stop_timeout: Duration,
    /// All other tasks.
    tasks: JoinSet<()>,
    /// Names of the tasks in `tasks`, for log messages.
    names: HashMap<Id, String>,
    /// Time to which [`Self::extend_stop_timeout`] extended the stop timeout of the tasks. Zero if it was not extended.
    /// The tasks get this time to finish their work, or [`TASK_STOP_TIMEOUT`] if that is longer.
    stop_timeout: Duration,
}

impl Supervisor {
    /// Returns the token that is cancelled when the supervised tasks must finish their work and stop.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Returns the token that is cancelled when the tasks must stop immediately, without finishing work in progress.
    pub(crate) fn abort_token(&self) -> CancellationToken {
        self.abort.clone()
    }

    /// Starts the API server. It is not restarted: the process ends when the server ends.
    pub(crate) fn spawn_server(&mut self, mut server: ApiServer, shutdown_delay: Duration) {
        server.set_shutdown_delay(shutdown_delay);
        let serving = server.serve(self.server_stop.clone());
        self.spawn_server_task(SERVER_STOP_TIMEOUT + shutdown_delay, async move { Ok(serving.await?) });
    }

    /// Starts the task that serves the API. It is not restarted: the process ends when the task ends. The task must end
    /// within `stop_timeout` after [`Self::server_stop_token`] is cancelled.
    pub(crate) fn spawn_server_task(
        &mut self,
        stop_timeout: Duration,
        serving: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.server_stop_timeout = stop_timeout;
        self.server.spawn(serving);
    }

    /// Returns the token that is cancelled when the server must stop, after all other tasks.
    pub(crate) fn server_stop_token(&self) -> CancellationToken {
        self.server_stop.clone()
    }

    /// Starts a supervised task, which is restarted whenever it ends, until the supervisor stops.
    pub(crate) fn supervise<F>(&mut self, name: impl Into<String>, start: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let (stop, name) = (self.stop_token(), name.into());
        let called = name.clone();
        let id = self.tasks.spawn(async move { restart_until_stopped(&called, start, &stop).await }).id();
        self.names.insert(id, name);
    }

    /// Extends the time that tasks get to finish their work to at least `timeout`.
    pub(crate) fn extend_stop_timeout(&mut self, timeout: Duration) {
        self.stop_timeout = self.stop_timeout.max(timeout);
    }

    /// Waits until the server ends, and returns the reason as an error.
    pub(crate) async fn wait_for_server_end(&mut self) -> anyhow::Error {
        match self.server.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => anyhow!("the server panicked: {}", join_error_message(error)),
            None | Some(Ok(Ok(()))) => anyhow!("the server ended"),
        }
    }

    /// Stops all tasks, and aborts those that do not stop in time. The server is stopped last, so that the other tasks
    /// can finish their requests.
    pub(crate) async fn stop_all(mut self) {
        self.stop.cancel();
        let tasks = async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                self.names.remove(&ended.map_or_else(|it| it.id(), |(id, ())| id));
            }
        };
        if tokio::time::timeout(TASK_STOP_TIMEOUT.max(self.stop_timeout), tasks).await.is_err() {
            let mut names: Vec<_> = self.names.into_values().collect();
            names.sort_unstable();
            tracing::warn!("tasks did not stop in time: {}", names.join(", "));
        }
        self.server_stop.cancel();
        let server = async { while self.server.join_next().await.is_some() {} };
        if tokio::time::timeout(self.server_stop_timeout, server).await.is_err() {
            tracing::warn!("the server did not stop in time");
        }
    }
}

/// Runs a task, and restarts it whenever it ends, until `stop` is cancelled.
///
/// Rule: a task that ends, fails or panics is restarted, and the reason is logged. This includes a panic while the task
/// is created.
pub(crate) async fn restart_until_stopped<F>(
    name: &str,
    mut start: impl FnMut() -> F,
    stop: &CancellationToken,
) where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut delay = None;
    loop {
        let began = Instant::now();
        // A separate Tokio task: a panic in it does not affect the others.
        let mut running = JoinSet::new();
        let ended = match catch_unwind(AssertUnwindSafe(&mut start)) {
            Ok(part) => {
                running.spawn(part);
                running.join_next().await
            }
            Err(panic) => {
                Some(Ok(Err(anyhow!("panicked: {}", panic_message(&*panic).unwrap_or(NO_PANIC_MESSAGE)))))
            }
        };
        if stop.is_cancelled() {
            return;
        }
        let why = match ended {
            None | Some(Ok(Ok(()))) => "ended".to_owned(),
            Some(Ok(Err(error))) => format!("failed: {error:#}"),
            Some(Err(error)) => format!("panicked: {}", join_error_message(error)),
        };
        if RESTART_BACKOFF.max < began.elapsed() {
            delay = None;
        }
        let after = RESTART_BACKOFF.next_delay(delay);
        delay = Some(after);
        tracing::error!("the {name} {why}; restarting it in {} ms", after.as_millis());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(after) => {}
        }
    }
}

/// Message of a panic without a message.
const NO_PANIC_MESSAGE: &str = "no message";

/// Returns the panic message of a task that panicked, or a message that the task was cancelled.
fn join_error_message(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "the task was cancelled".to_owned() };
    panic_message(&*panic).unwrap_or(NO_PANIC_MESSAGE).to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_part_that_ends_or_panics_is_restarted() {
        let mut supervisor = Supervisor::default();
        let (said, mut told) = tokio::sync::mpsc::unbounded_channel();
        let (stop, starts) = (supervisor.stop_token(), AtomicUsize::new(0));
        supervisor.supervise("loop", move || {
            let nth = starts.fetch_add(1, Ordering::Relaxed);
            let (said, stop) = (said.clone(), stop.clone());
            said.send(format!("start {nth}")).unwrap();
            assert_ne!(nth, 3, "before it runs");
            async move {
                match nth {
                    0 => panic!("of old age"),
                    1 => return Err(anyhow!("no mood")),
                    2 => return Ok(()),
                    _ => stop.cancelled().await,
                }
                said.send("told to stop".to_owned()).unwrap();
                Ok(())
            }
        });
        for nth in 0..5 {
            assert_eq!(told.recv().await, Some(format!("start {nth}")));
        }
        supervisor.stop_all().await;
        assert_eq!(told.recv().await.as_deref(), Some("told to stop"));
        assert_eq!(told.recv().await, None);
    }

    #[test]
    fn loops_are_left_out_by_name_or_all_at_once() {
        let left = |without: &[&str]| {
            let without: Vec<_> = without.iter().map(|it| (*it).to_owned()).collect();
            enabled_controllers(&without).map(|it| it.name).collect::<Vec<_>>()
        };
        let all: Vec<_> = BUILT_IN_CONTROLLERS.iter().map(|it| it.name).collect();
        assert_eq!(left(&[]), all);
        assert_eq!(left(&[all[0]]), all[1..]);
        assert_eq!(left(&["all"]), Vec::<&str>::new());
    }
}
