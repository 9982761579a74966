//! `muster controller`: the controllers alone, beside anyone's API server.

mod probe;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_control::{Binding, Controller, ExplainQueries, Lease, Options, RateLimits, Settings, Terms};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::logging::{Format, print};
use crate::parts::Parts;
use crate::span;
use probe::Probe;

/// Run the DaemonSet controller beside any API server, until Ctrl-C or SIGTERM
///
/// It takes the place of the DaemonSet controller in kube-controller-manager, which must be off: start that one with
/// `--controllers=*,-daemonset-controller`. Two replicas or more share a Lease, and one of them acts.
///
/// The first signal ends it in order: no new plans, the calls under way finish, the lease is given back. The second one ends it
/// at once.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  muster controller                                in a pod, or as $KUBECONFIG or ~/.kube/config say
  muster controller --kubeconfig admin.conf --context prod
  muster controller --leader-elect=false           the only replica: it acts at once
  muster controller --namespace logging --namespace metrics
  muster controller --metrics-addr 0.0.0.0:8080 --log-format json
  muster controller release                        before upstream's controller takes over again"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Release(Release),
}

#[derive(Debug, clap::Args)]
struct Run {
    #[command(flatten)]
    cluster: Cluster,
    /// Only look after the DaemonSets in this namespace; may be given several times [default: all of them]
    #[arg(long = "namespace", value_name = "NAME")]
    namespaces: Vec<String>,
    /// Who tells a pod its node: the cluster's scheduler, or the controller itself
    #[arg(long, value_name = "WHO", default_value = "scheduler", value_parser = ["scheduler", "direct"])]
    binding: String,
    /// DaemonSets that are worked on side by side
    #[arg(long, value_name = "N", default_value_t = muster_control::WORKERS as u16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: u16,
    /// Most pods of a DaemonSet that are created, or deleted, before the next look at it
    #[arg(long, value_name = "N", default_value_t = Settings::default().burst as u16, value_parser = clap::value_parser!(u16).range(1..))]
    burst: u16,
    /// Write the conditions Available, Progressing and Degraded into the status
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    conditions: bool,
    /// Calls to the API server in a second, on average; 0 means as many as it takes
    #[arg(long, value_name = "N", default_value_t = RateLimits::QPS, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    kube_api_qps: u32,
    /// Calls that may be made at once after a quiet time
    #[arg(long, value_name = "N", default_value_t = RateLimits::default().burst, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    kube_api_burst: u32,
    /// Calls to the API server under way at once, over all DaemonSets
    #[arg(long, value_name = "N", default_value_t = RateLimits::default().calls as u16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrent_calls: u16,
    #[command(flatten)]
    lease: LeaseArgs,
    /// ApplyMode long a lease holds that nobody renews
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = span::parse)]
    leader_elect_lease_duration: Duration,
    /// ApplyMode long a leader acts that cannot renew
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span::parse)]
    leader_elect_renew_deadline: Duration,
    /// ApplyMode often the lease is renewed, or tried for
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = span::parse)]
    leader_elect_retry_period: Duration,
    /// Act only while holding a Lease; every other replica waits
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    leader_elect: bool,
    /// Where /metrics, /healthz, /readyz and, for `muster explain`, /debug/explain are served, in plain HTTP; port 0 takes any free one, and `off` serves none
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = metrics_addr)]
    metrics_addr: MetricsAddr,
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,
    /// error, warn, info, debug or trace; or by module, as in `warn,muster_control=debug`
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

/// Which API server, and as whom.
#[derive(Debug, clap::Args)]
pub(crate) struct Cluster {
    /// A kubeconfig [default: $KUBECONFIG, ~/.kube/config, or what a pod is given]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Which Lease.
#[derive(Debug, clap::Args)]
struct LeaseArgs {
    /// The name of the Lease
    #[arg(long, value_name = "NAME", default_value = "muster-controller")]
    leader_elect_resource_name: String,
    /// The namespace of the Lease [default: the pod's own; outside a pod kube-system, and any for `release`]
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_namespace: Option<String>,
}

/// Take the conditions that this controller wrote out of every DaemonSet's status
///
/// Upstream's controller writes none, and would leave them standing with what was true at the end. Nothing else is changed. To be
/// run once every replica of `muster controller` has ended, and before upstream's controller is started.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster controller release
  muster controller release --kubeconfig admin.conf")]
struct Release {
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    lease: LeaseArgs,
    /// Even while a replica still leads
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy)]
struct MetricsAddr(Option<SocketAddr>);

fn metrics_addr(text: &str) -> anyhow::Result<MetricsAddr> {
    match text {
        "off" => Ok(MetricsAddr(None)),
        _ => Ok(MetricsAddr(Some(
            text.parse().context("an address and a port, such as 0.0.0.0:8080, or `off`")?,
        ))),
    }
}

impl Args {
    /// ApplyMode and what it logs.
    pub(crate) fn logs(&self) -> (Format, &str) {
        match self.command {
            None => (self.run.log_format, &self.run.log_level),
            Some(Command::Release(_)) => (Format::Text, "warn"),
        }
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        None => args.run.run().await,
        Some(Command::Release(release)) => release.run().await,
    }
}

impl Run {
    async fn run(self) -> anyhow::Result<()> {
        // Asked for before anything is started, so that a Ctrl-C is never lost.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut asked = async || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        let config = self.cluster.config().await?;
        let options = self.options(&config)?;
        let inquiries = ExplainQueries::default();
        let controller = Controller::new(muster_control::client(config)?, options).answers(inquiries.clone());
        let mut parts = Parts::default();
        if let Some(at) = self.metrics_addr.0 {
            let probe = Arc::new(Probe::bind(at).await?);
            tracing::info!(addr = %probe.at()?, "metrics and health are served");
            let (monitor, stop) = (controller.monitor(), parts.stop());
            parts.keep("metrics server", move || {
                let (probe, monitor, inquiries, stop) =
                    (probe.clone(), monitor.clone(), inquiries.clone(), stop.clone());
                async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = probe.serve(monitor, inquiries) => {}
                    }
                    Ok(())
                }
            });
        }
        let stop = CancellationToken::new();
        let stopping = async {
            asked().await;
            tracing::info!("asked to stop");
            stop.cancel();
            asked().await;
        };
        let ended = tokio::select! {
            ended = controller.run(stop.clone()) => ended.map_err(anyhow::Error::from),
            () = stopping => bail!("asked to stop a second time: what was under way is left as it is"),
        };
        parts.end().await;
        ended
    }

    fn options(&self, config: &Config) -> anyhow::Result<Options> {
        let binding = if self.binding == "direct" { Binding::Direct } else { Binding::Scheduler };
        let settings = Settings { burst: usize::from(self.burst), conditions: self.conditions, binding };
        let limits = RateLimits {
            calls: usize::from(self.concurrent_calls),
            qps: (self.kube_api_qps != 0).then_some(self.kube_api_qps),
            burst: self.kube_api_burst,
        };
        let terms = Terms {
            duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
        };
        Ok(Options {
            settings,
            namespaces: self.namespaces.clone(),
            workers: usize::from(self.workers),
            limits,
            lease: if self.leader_elect { Some(self.lease.lease(config, terms)?) } else { None },
        })
    }
}

impl Release {
    async fn run(self) -> anyhow::Result<()> {
        let config = self.cluster.config().await?;
        let lease = self.lease.lease(&config, Terms::default())?;
        // From outside the cluster nobody knows in which namespace the replicas run.
        let namespace = self.lease.namespace(&config).map(|_| lease.namespace.as_str());
        let leases = (!self.force).then_some((namespace, lease.name.as_str()));
        let client = muster_control::client(config)?;
        let changed = |key: &_| print(format_args!("{key}: conditions removed"));
        let released = muster_control::release(client, leases, changed).await?;
        print(format_args!(
            "{} of {} DaemonSets had conditions of this controller",
            released.changed, released.sets
        ));
        Ok(())
    }
}

impl LeaseArgs {
    /// The one that was named, or the pod's own.
    fn namespace(&self, config: &Config) -> Option<String> {
        let in_a_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let own = || in_a_pod.then(|| config.default_namespace.clone());
        self.leader_elect_resource_namespace.clone().or_else(own)
    }

    fn lease(&self, config: &Config, terms: Terms) -> anyhow::Result<Lease> {
        let lease = Lease {
            namespace: self.namespace(config).unwrap_or_else(|| "kube-system".to_owned()),
            name: self.leader_elect_resource_name.clone(),
            identity: format!("{}_{}", hostname(), Uuid::new_v4()),
            terms,
        };
        match lease.problem() {
            Some(problem) => bail!(problem),
            None => Ok(lease),
        }
    }
}

/// The machine's name, or the pod's: for people, the random rest of an identity is what counts.
fn hostname() -> String {
    let named =
        std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    named.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

impl Cluster {
    pub(crate) async fn config(&self) -> anyhow::Result<Config> {
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
                .context("no cluster is named: give --kubeconfig, or set KUBECONFIG, or run in a pod"),
        }
    }
}
