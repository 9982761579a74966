//! `muster controller`: the controllers alone, beside anyone's API server.

use std::path::PathBuf;

use anyhow::Context as _;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_control::{Binding, Controller, Options, Settings};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Run the DaemonSet controller beside any API server, until Ctrl-C or SIGTERM
///
/// It takes the place of the DaemonSet controller in kube-controller-manager, which must be off: start that one with
/// `--controllers=*,-daemonset-controller`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster controller                                in a pod, or as $KUBECONFIG or ~/.kube/config say
  muster controller --kubeconfig admin.conf --context prod
  muster controller --namespace logging --namespace metrics")]
pub(crate) struct Args {
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

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    // Asked for before anything is started, so that a Ctrl-C is never lost.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let client = args.cluster.client().await?;
    let running = Controller::new(client, args.options()).run(stop.clone());
    let asked = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
        std::future::pending().await
    };
    tokio::select! {
        ended = running => Ok(ended?),
        () = asked => Ok(()),
    }
}

impl Args {
    fn options(&self) -> Options {
        let binding = if self.binding == "direct" { Binding::Direct } else { Binding::Scheduler };
        let settings = Settings { burst: usize::from(self.burst), conditions: self.conditions, binding };
        Options { settings, namespaces: self.namespaces.clone(), workers: usize::from(self.workers) }
    }
}

impl Cluster {
    pub(crate) async fn client(&self) -> anyhow::Result<kube::Client> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match &self.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path)
                    .with_context(|| format!("read the kubeconfig {}", path.display()))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await?
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options).await?,
            None => Config::infer()
                .await
                .context("no cluster is named: give --kubeconfig, or set KUBECONFIG, or run in a pod")?,
        };
        Ok(muster_control::client(config)?)
    }
}
