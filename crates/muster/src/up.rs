//! `muster up`: everything on this machine, in one process.

use anyhow::{Context as _, bail};
use muster_agent::sim;
use muster_control::{Binding, Controller, Options, Settings};
use muster_server::Who;

use crate::parts::Parts;
use crate::serving::{Serving, client};

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
    /// Simulated nodes: they run nothing, and answer as nodes do (an image named `non-existent` never starts)
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=i64::from(sim::NODES_MAX)))]
    sim_nodes: u16,
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

    let (stop, count) = (parts.stop(), args.sim_nodes);
    let nodes = simulated.clone();
    parts.keep("simulated nodes", move || {
        let (nodes, stop) = (nodes.clone(), stop.clone());
        async move {
            sim::register(nodes, count).await.context("register them")?.run(stop).await;
            Ok(())
        }
    });

    // There is no scheduler yet, so each pod is told its node by the controller itself.
    let settings = Settings { binding: Binding::Direct, ..Settings::default() };
    let options = Options { settings, ..Options::default() };
    let stop = parts.stop();
    parts.keep("DaemonSet controller", move || {
        let controlling = Controller::new(controller.clone(), options.clone()).run(stop.clone());
        async move { Ok(controlling.await?) }
    });
    println!("ready: {} simulated nodes; {export}", args.sim_nodes);
    Ok(())
}
