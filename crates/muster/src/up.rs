//! `muster up`: everything on this machine, in one process.

use anyhow::{Context as _, bail};
use muster_agent::sim;
use muster_control::{Controller, Options};
use muster_server::Who;

use crate::parts::Parts;
use crate::serving::{Serving, client};
use crate::sim_nodes::{FLEET_OF_UP, SimFlags};

/// Run an API server, the controllers and simulated nodes on this machine, until Ctrl-C
///
/// The cluster's state is kept in the data directory: the next `muster up` goes on where this one ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster up                                     a cluster of three simulated nodes
  muster up --sim-nodes 50 --data-dir /tmp/m    fifty of them, kept elsewhere")]
pub(crate) struct Args {
    /// Real nodes, on containerd (not there yet)
    #[arg(long, value_name = "N")]
    nodes: Option<u16>,
    /// Simulated nodes: they run nothing, and answer as nodes do (docs/simulated-nodes.md has what they can be told)
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=i64::from(sim::NODES_MAX)))]
    sim_nodes: u16,
    #[command(flatten)]
    sim: SimFlags,
    #[command(flatten)]
    serving: Serving,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    if args.nodes.is_some_and(|it| 0 < it) {
        bail!("real nodes are not there yet: leave --nodes away, and use --sim-nodes N");
    }
    args.serving.run(async |parts| start(&args, parts).await).await
}

async fn start(args: &Args, parts: &mut Parts) -> anyhow::Result<()> {
    let server = args.serving.bind().await?;
    let controller = client(&server, Who::Controller, "controller");
    let simulated = client(&server, Who::SimulatedNodes, "simulated-nodes");
    let export = args.serving.serve(server, &[], parts)?;

    let (stop, fleet) = (parts.stop(), args.sim.options(FLEET_OF_UP, args.sim_nodes, "sim"));
    let nodes = simulated.clone();
    parts.keep("simulated nodes", move || {
        let (nodes, fleet, stop) = (nodes.clone(), fleet.clone(), stop.clone());
        async move {
            sim::Fleet::register(nodes, fleet).await.context("register them")?.run(stop).await;
            Ok(())
        }
    });

    let options = Options::default();
    let stop = parts.stop();
    parts.keep("DaemonSet controller", move || {
        let controlling = Controller::new(controller.clone(), options.clone()).run(stop.clone());
        async move { Ok(controlling.await?) }
    });
    println!("ready: {} simulated nodes; {export}", args.sim_nodes);
    Ok(())
}
