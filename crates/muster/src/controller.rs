//! `muster controller`: the DaemonSet controller for any Kubernetes API server.

/// Metrics, health checks and explain queries over HTTP.
mod metrics_endpoint;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_api::well_known::NAMESPACE_SYSTEM;
use muster_control::{
    ASSIST_NAME, Binding, DaemonSetControllerReplica, ExplainQueries, LeaderElectionConfig, LeaseConfig,
    Options, RateLimits, Settings,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::check_flags::CheckFlags;
use crate::duration_flag;
use crate::logging::{LogFormat, print_to_stdout};
use crate::signals::TerminationSignals;
use crate::supervisor::Supervisor;
use metrics_endpoint::MetricsEndpoint;

/// Run the DaemonSet controller against any Kubernetes API server, until Ctrl-C or SIGTERM
///
/// This controller replaces the DaemonSet controller of kube-controller-manager, which must be disabled: start
/// kube-controller-manager with `--controllers=*,-daemonset-controller`. With two or more replicas, leader election
/// selects the replica that acts.
///
/// With --assist the controller runs beside kube-controller-manager instead, as on a managed cluster. It then acts only
/// on DaemonSets that a RolloutPolicy or ClusterRolloutPolicy selects and that have the update strategy OnDelete: it
/// deletes their outdated pods step by step, and kube-controller-manager creates the new ones.
///
/// The first signal shuts the controller down gracefully: no new reconciles start, requests in flight finish, and the
/// Lease is released. The second signal ends the process immediately.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  muster controller                                in a pod, or with $KUBECONFIG or ~/.kube/config
  muster controller --kubeconfig admin.conf --context prod
  muster controller --leader-elect=false           a single replica, without leader election
  muster controller --namespace logging --namespace metrics
  muster controller --metrics-addr 0.0.0.0:8080 --log-format json
  muster controller --assist                       beside kube-controller-manager, for progressive rollouts only
  muster controller release                        before returning to kube-controller-manager"
)]
pub(crate) struct ControllerArgs {
    #[command(subcommand)]
    command: Option<ControllerCommand>,
    #[command(flatten)]
    run: RunControllerArgs,
}

#[derive(Debug, clap::Subcommand)]
enum ControllerCommand {
    Release(ReleaseArgs),
}

/// Flags of `muster controller` without a subcommand, which runs the DaemonSet controller.
#[derive(Debug, clap::Args)]
struct RunControllerArgs {
    #[command(flatten)]
    cluster: KubeconfigFlags,
    /// Run beside kube-controller-manager: only roll out DaemonSets with OnDelete that a policy selects
    #[arg(long, conflicts_with = "binding")]
    assist: bool,
    /// Reconcile only DaemonSets in this namespace; repeatable [default: all namespaces]
    #[arg(long = "namespace", value_name = "NAME")]
    namespaces: Vec<String>,
    /// How pods get their node: `scheduler` leaves the binding to the cluster's scheduler, `direct` sets spec.nodeName
    #[arg(long, value_name = "WHO", default_value = "scheduler", value_parser = ["scheduler", "direct"])]
    binding: String,
    /// Maximum number of DaemonSets that are reconciled concurrently
    #[arg(long, value_name = "N", default_value_t = muster_control::DEFAULT_WORKERS as u16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: u16,
    /// Maximum number of pods of one DaemonSet that are created, or deleted, in one reconcile
    #[arg(long, value_name = "N", default_value_t = Settings::default().burst as u16, value_parser = clap::value_parser!(u16).range(1..))]
    burst: u16,
    /// Write the conditions Available, Progressing and Degraded to the DaemonSet status
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    conditions: bool,
    /// Maximum average rate of the requests that reconcile DaemonSets, per second; 0: unlimited
    #[arg(long, value_name = "N", default_value_t = RateLimits::DEFAULT_QPS, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    kube_api_qps: u32,
    /// Maximum number of requests that reconcile DaemonSets and are sent at once after an idle period
    #[arg(long, value_name = "N", default_value_t = RateLimits::default().burst, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    kube_api_burst: u32,
    /// Maximum number of concurrent requests that reconcile DaemonSets. Watches and their lists, Lease renewals and
    /// Events are not limited
    #[arg(long, value_name = "N", default_value_t = RateLimits::default().calls as u16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrent_calls: u16,
    #[command(flatten)]
    checks: CheckFlags,
    #[command(flatten)]
    lease: LeaseFlags,
    /// Time after the last renewal of the Lease during which the Lease counts as held
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration_flag::parse_duration)]
    leader_elect_lease_duration: Duration,
    /// Time during which the leader continues to act without a renewal of the Lease
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration_flag::parse_duration)]
    leader_elect_renew_deadline: Duration,
    /// Interval at which the leader renews the Lease and the other replicas try to acquire it
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration_flag::parse_duration)]
    leader_elect_retry_period: Duration,
    /// Use leader election: act only while holding the Lease
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    leader_elect: bool,
    /// Listen address for /metrics, /healthz, /readyz and (for `muster explain`) /debug/explain, in plain HTTP; port 0
    /// selects a free port, `off` disables the endpoint
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = parse_metrics_addr)]
    metrics_addr: MetricsAddr,
    /// Format of log lines
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
    /// Log level: error, warn, info, debug or trace; or by module, as in `warn,muster_control=debug`
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

/// Flags that select the API server and the credentials.
#[derive(Debug, clap::Args)]
pub(crate) struct KubeconfigFlags {
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Flags that select the Lease for leader election.
#[derive(Debug, clap::Args)]
struct LeaseFlags {
    /// Name of the Lease for leader election [default: muster-controller, with --assist muster-assist; for `release`
    /// both]
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// Namespace of the Lease [default: that of the pod; outside a pod kube-system, for `release` all namespaces]
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_namespace: Option<String>,
}

/// Remove what this controller has added to DaemonSets, before returning to kube-controller-manager
///
/// The DaemonSet controller of kube-controller-manager writes no conditions and would leave stale conditions in the
/// status. This command removes the conditions, the DaemonRollouts, and the verdicts about revisions; no pod changes.
/// It fails if a progressive rollout is not complete, because kube-controller-manager would update all nodes. Run this
/// after all replicas of `muster controller` have stopped, and before kube-controller-manager's controller is started.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster controller release
  muster controller release --kubeconfig admin.conf")]
struct ReleaseArgs {
    #[command(flatten)]
    cluster: KubeconfigFlags,
    #[command(flatten)]
    lease: LeaseFlags,
    /// Run even if a replica still holds the Lease, or a progressive rollout is not complete
    #[arg(long)]
    force: bool,
}

/// Listen address of the metrics endpoint, or `None` if the endpoint is disabled.
#[derive(Debug, Clone, Copy)]
struct MetricsAddr(Option<SocketAddr>);

/// Parses `ADDR:PORT` or `off`.
fn parse_metrics_addr(text: &str) -> anyhow::Result<MetricsAddr> {
    match text {
        "off" => Ok(MetricsAddr(None)),
        _ => Ok(MetricsAddr(Some(
            text.parse().context("expected an address and a port, such as 0.0.0.0:8080, or `off`")?,
        ))),
    }
}

/// Default name of the Lease for leader election of a controller that does not run in assist mode.
const LEASE_NAME: &str = "muster-controller";

impl ControllerArgs {
    /// Returns the log format and the log level that the flags specify. `release` has no such flags, and logs warnings
    /// as text.
    pub(crate) fn log_settings(&self) -> (LogFormat, &str) {
        match self.command {
            None => (self.run.log_format, &self.run.log_level),
            Some(ControllerCommand::Release(_)) => (LogFormat::Text, "warn"),
        }
    }
}

/// Executes `muster controller` or `muster controller release`.
pub(crate) async fn run(args: ControllerArgs) -> anyhow::Result<()> {
    match args.command {
        None => args.run.run_controller().await,
        Some(ControllerCommand::Release(release)) => release.release().await,
    }
}

impl RunControllerArgs {
    /// Runs the DaemonSet controller until it fails or a signal stops it. A second signal ends it at once.
    async fn run_controller(self) -> anyhow::Result<()> {
        // Registered before anything is started, so that no signal is lost.
        let mut signals = TerminationSignals::register()?;
        let config = self.cluster.client_config().await?;
        let options = self.controller_options(&config)?;
        let queries = ExplainQueries::default();
        let controller = DaemonSetControllerReplica::new(muster_control::client(config)?, options)
            .with_explain_queries(queries.clone());
        let mut supervisor = Supervisor::default();
        if let Some(at) = self.metrics_addr.0 {
            let probe = Arc::new(MetricsEndpoint::bind(at).await?);
            tracing::info!(addr = %probe.local_addr()?, "serving metrics and health checks");
            let (monitor, stop) = (controller.monitor(), supervisor.stop_token());
            supervisor.supervise("metrics server", move || {
                let (probe, monitor, queries, stop) =
                    (probe.clone(), monitor.clone(), queries.clone(), stop.clone());
                async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = probe.serve(monitor, queries) => {}
                    }
                    Ok(())
                }
            });
        }
        let stop = CancellationToken::new();
        let stopping = async {
            signals.recv().await;
            tracing::info!("shutting down");
            stop.cancel();
            signals.recv().await;
        };
        let ended = tokio::select! {
            ended = controller.run(stop.clone()) => ended.map_err(anyhow::Error::from),
            () = stopping => bail!("second signal: exiting without waiting for requests in flight"),
        };
        supervisor.stop_all().await;
        ended
    }

    /// Builds the controller's options from the flags.
    fn controller_options(&self, config: &Config) -> anyhow::Result<Options> {
        let binding = if self.binding == "direct" { Binding::Direct } else { Binding::Scheduler };
        let settings = Settings {
            burst: usize::from(self.burst),
            conditions: self.conditions,
            binding,
            assist: self.assist,
        };
        let lease_name = if self.assist { ASSIST_NAME } else { LEASE_NAME };
        let limits = RateLimits {
            calls: usize::from(self.concurrent_calls),
            qps: (self.kube_api_qps != 0).then_some(self.kube_api_qps),
            burst: self.kube_api_burst,
        };
        let election = LeaderElectionConfig {
            duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
        };
        let namespace = self.lease.namespace_or_default(config);
        Ok(Options {
            settings,
            namespaces: self.namespaces.clone(),
            workers: usize::from(self.workers),
            limits,
            lease: if self.leader_elect {
                Some(self.lease.lease_config(config, lease_name, election)?)
            } else {
                None
            },
            writes_policy_status: true,
            checks: self.checks.check_options(namespace),
        })
    }
}

impl ReleaseArgs {
    /// Executes `muster controller release`: removes the conditions of `muster controller` from the status of every
    /// DaemonSet, all DaemonRollouts, and the verdicts about revisions. Prints what was removed.
    async fn release(self) -> anyhow::Result<()> {
        let config = self.cluster.client_config().await?;
        let mut names = Vec::new();
        for default_name in [LEASE_NAME, ASSIST_NAME] {
            names.push(self.lease.lease_config(&config, default_name, LeaderElectionConfig::default())?.name);
        }
        names.dedup();
        // Outside the cluster the namespace of the replicas is unknown: all namespaces are checked.
        let namespace = self.lease.lease_namespace(&config);
        let leases = (!self.force).then_some((namespace.as_deref(), names.as_slice()));
        let client = muster_control::client(config)?;
        let changed = |key: &_| print_to_stdout(format_args!("{key}: conditions removed"));
        let released = muster_control::release(client, leases, self.force, changed).await?;
        print_to_stdout(format_args!(
            "{} of {} DaemonSets had conditions of this controller",
            released.changed, released.sets
        ));
        if 0 < released.rollouts + released.verdicts {
            print_to_stdout(format_args!(
                "{} DaemonRollouts and {} verdicts about revisions removed",
                released.rollouts, released.verdicts
            ));
        }
        Ok(())
    }
}

impl LeaseFlags {
    /// Returns the namespace of the Lease: the value of the flag if it is given, otherwise the namespace of the pod in
    /// which this process runs. Returns `None` if the flag is not given and the process does not run in a pod.
    fn lease_namespace(&self, config: &Config) -> Option<String> {
        let in_a_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let own = || in_a_pod.then(|| config.default_namespace.clone());
        self.leader_elect_resource_namespace.clone().or_else(own)
    }

    /// Returns the namespace of the Lease, or `kube-system` if it is unknown. The result also counts as the namespace
    /// of the controller.
    fn namespace_or_default(&self, config: &Config) -> String {
        self.lease_namespace(config).unwrap_or_else(|| NAMESPACE_SYSTEM.to_owned())
    }

    /// Returns the settings of the Lease for leader election: its namespace and name, the timings `election`, and a new
    /// holder identity. Without the flag `--leader-elect-resource-name`, the Lease has the name `default_name`. The
    /// error says which setting is invalid.
    fn lease_config(
        &self,
        config: &Config,
        default_name: &str,
        election: LeaderElectionConfig,
    ) -> anyhow::Result<LeaseConfig> {
        let lease = LeaseConfig {
            namespace: self.namespace_or_default(config),
            name: self.leader_elect_resource_name.clone().unwrap_or_else(|| default_name.to_owned()),
            identity: format!("{}_{}", hostname(), Uuid::new_v4()),
            election,
        };
        match lease.validation_error() {
            Some(problem) => bail!(problem),
            None => Ok(lease),
        }
    }
}

/// Returns the hostname (in a pod, the pod's name), or `unknown` if it cannot be read. The holder identity of the Lease
/// begins with the hostname, so that users recognize the holder.
fn hostname() -> String {
    let named =
        std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    named.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

impl KubeconfigFlags {
    /// Loads the client configuration of the cluster that the flags select.
    pub(crate) async fn client_config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match &self.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path)
                    .with_context(|| format!("read the kubeconfig {}", path.display()))?;
                Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
            }
            None if self.context.is_some() => Ok(Config::from_kubeconfig(&options).await?),
            None => Config::infer()
                .await
                .context("no cluster is configured: give --kubeconfig, or set KUBECONFIG, or run in a pod"),
        }
    }
}
