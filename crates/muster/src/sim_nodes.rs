//! `muster sim-nodes`: runs simulated nodes against any Kubernetes API server.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_agent::sim::{self, ContainerTimings, Fleet, FleetOptions, NODES_MAX};

use crate::logging;
use crate::signals::TerminationSignals;
use crate::supervisor::Supervisor;

/// Name of the fleet of simulated nodes that `muster up` runs.
pub(crate) const UP_FLEET_NAME: &str = "up";

/// Flags for simulated nodes: the default timings of their containers, and the number of zones. Annotations on nodes
/// and pods override the timings.
#[derive(Debug, clap::Args)]
pub(crate) struct SimFlags {
    /// Time that a simulated container takes to start, such as 0, 300ms or 5s
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = sim::parse_duration)]
    sim_start_delay: Duration,
    /// Time that a simulated container takes to stop, at most the pod's termination grace period
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = sim::parse_duration)]
    sim_stop_delay: Duration,
    /// Number of zones over which new simulated nodes are spread (label topology.kubernetes.io/zone); 0: no label
    #[arg(long, value_name = "N", default_value_t = 0)]
    sim_zones: u16,
}

impl SimFlags {
    /// Returns the options of the fleet `fleet` with `count` nodes, whose names begin with `prefix`. The timings and
    /// zones come from the flags.
    pub(crate) fn fleet_options(&self, fleet: &str, count: u16, prefix: &str) -> FleetOptions {
        FleetOptions {
            fleet: fleet.to_owned(),
            count,
            prefix: prefix.to_owned(),
            timings: ContainerTimings { start: self.sim_start_delay, stop: self.sim_stop_delay },
            zones: self.sim_zones,
        }
    }
}

/// Run simulated nodes against any Kubernetes API server, until Ctrl-C
///
/// Simulated nodes register, send heartbeats and report pod status as a kubelet does, but run no containers.
/// `muster sim-node fail` makes them fail. Run again with the same --name-prefix to take over nodes left by --keep.
#[derive(Debug, clap::Args)]
#[command(after_help = "Required RBAC permissions (an administrator has them):
  nodes: create delete list patch watch      nodes/status, pods/status: patch
  pods: delete list watch                    leases.coordination.k8s.io: create patch

Examples:
  muster sim-nodes --kubeconfig admin.conf --count 100
  muster sim-nodes --count 5000 --name-prefix big --keep --sim-zones 3
  muster sim-node fail big-17 --how silent")]
pub(crate) struct SimNodesArgs {
    #[command(flatten)]
    cluster: SimClusterFlags,
    /// Number of nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=i64::from(NODES_MAX)))]
    count: u16,
    /// Prefix of the node names: PREFIX-1, PREFIX-2, …
    #[arg(long, value_name = "PREFIX", default_value = "sim", value_parser = parse_name_prefix)]
    name_prefix: String,
    /// Keep the Node objects on exit instead of deleting them
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    sim: SimFlags,
}

/// Executes `muster sim-nodes`.
pub(crate) async fn run(args: SimNodesArgs) -> anyhow::Result<()> {
    let mut signals = TerminationSignals::register()?;
    let client = args.cluster.connect().await?;
    let options = args.sim.fleet_options(&args.name_prefix, args.count, &args.name_prefix);
    let fleet = Fleet::register(client.clone(), options.clone()).await;
    let fleet = fleet.with_context(|| {
        format!(
            "register nodes (a node {}-N that is not simulated? choose another --name-prefix)",
            args.name_prefix
        )
    })?;
    logging::print_ready_line(format_args!("ready: {} simulated nodes", args.count));
    let mut supervisor = Supervisor::default();
    supervise_fleet(&mut supervisor, client.clone(), options, Some(fleet));
    signals.recv().await;
    supervisor.stop_all().await;
    if !args.keep {
        sim::remove_fleet(&client, &args.name_prefix).await.context("remove the nodes")?;
    }
    Ok(())
}

/// Runs a fleet as a supervised task. If the task ends or panics, the nodes of the fleet are registered again and run.
/// `registered` is the fleet of the first run, if it is already registered.
pub(crate) fn supervise_fleet(
    supervisor: &mut Supervisor,
    client: Client,
    options: FleetOptions,
    mut registered: Option<Fleet>,
) {
    let stop = supervisor.stop_token();
    supervisor.supervise("simulated nodes", move || {
        let (client, options, stop, registered) =
            (client.clone(), options.clone(), stop.clone(), registered.take());
        async move {
            let running = async {
                let fleet = match registered {
                    Some(fleet) => fleet,
                    None => Fleet::register(client, options).await.context("register the simulated nodes")?,
                };
                fleet.run(stop.clone()).await;
                Ok(())
            };
            tokio::select! {
                () = stop.cancelled() => Ok(()),
                ended = running => ended,
            }
        }
    });
}

/// Parses the prefix of node names, which must also be a valid label value.
fn parse_name_prefix(text: &str) -> anyhow::Result<String> {
    let is_word = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    if text.is_empty()
        || 50 < text.len()
        || text.starts_with('-')
        || text.ends_with('-')
        || !text.chars().all(is_word)
    {
        bail!("a prefix has 1 to 50 lower-case letters, digits and dashes, and no dash at either end");
    }
    Ok(text.to_owned())
}

/// Flags that select the cluster of the simulated nodes.
#[derive(Debug, clap::Args)]
pub(crate) struct SimClusterFlags {
    /// Kubeconfig of the cluster [default: $KUBECONFIG, or DIR/kubeconfig]
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// Data directory of `muster up`, if it runs on this machine
    #[arg(long, value_name = "DIR", default_value = ".muster", global = true)]
    data_dir: PathBuf,
}

impl SimClusterFlags {
    /// Connects to the cluster that the flags select.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let path = self.kubeconfig.clone().or_else(|| std::env::var_os("KUBECONFIG").map(PathBuf::from));
        let path = path.unwrap_or_else(|| self.data_dir.join("kubeconfig"));
        let kubeconfig = Kubeconfig::read_from(&path)
            .with_context(|| format!("read the kubeconfig {}: is the cluster running?", path.display()))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Ok(Client::try_from(config.with_context(|| format!("use the kubeconfig {}", path.display()))?)?)
    }
}
