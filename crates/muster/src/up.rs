//! `muster up`: everything on this machine, in one process.

use std::collections::HashSet;
use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use muster_agent::sim;
use muster_control::{Controller, Inquiries, Options};
use muster_server::Who;

use crate::parts::Parts;
use crate::serving::{Serving, client};
use crate::sim_nodes::{FLEET_OF_UP, SimFlags};

/// A node has this taint until it is seen to be ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Nodes there are if nobody says how many.
const SIM_NODES: u16 = 3;

/// How often it is told how many nodes are Ready: on a terminal, where it is one line that changes, and elsewhere.
const TOLD_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(5);

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
    /// [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=i64::from(sim::NODES_MAX)))]
    sim_nodes: Option<u16>,
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
    let count = match (args.sim_nodes, args.nodes) {
        (Some(count), _) => count,
        (None, Some(_)) => 0,
        (None, None) => {
            eprintln!(
                "muster: neither --nodes nor --sim-nodes is given: there will be {SIM_NODES} simulated nodes"
            );
            SIM_NODES
        }
    };
    let mut server = args.serving.bind().await?;
    let inquiries = Inquiries::default();
    let asked = inquiries.clone();
    server.explained_by(move |namespace, name| {
        let asked = asked.clone();
        async move { asked.ask(&namespace, &name).await.map_err(|it| it.to_string()) }
    });
    let controller = client(&server, Who::Controller, "controller");
    let simulated = client(&server, Who::SimulatedNodes, "simulated-nodes");
    let administrator = client(&server, Who::Admin, "up");
    let export = args.serving.serve(server, &[], parts)?;

    let (stop, fleet) = (parts.stop(), args.sim.options(FLEET_OF_UP, count, "sim"));
    parts.keep("simulated nodes", move || {
        let (client, stop, fleet) = (simulated.clone(), stop.clone(), fleet.clone());
        async move {
            let playing = async {
                sim::Fleet::register(client, fleet).await.context("register them")?.run(stop.clone()).await;
                Ok(())
            };
            tokio::select! {
                () = stop.cancelled() => Ok(()),
                played = playing => played,
            }
        }
    });

    let options = Options::default();
    let stop = parts.stop();
    parts.keep("DaemonSet controller", move || {
        let controlling = Controller::new(controller.clone(), options.clone());
        let controlling = controlling.answers(inquiries.clone()).run(stop.clone());
        async move { Ok(controlling.await?) }
    });

    let troubled = nodes_are_ready(administrator, count).await?;
    let but = if troubled == 0 { String::new() } else { format!(", {troubled} of them told to fail") };
    println!("ready: {count} simulated nodes{but}; {export}");
    Ok(())
}

/// Waits until each of the nodes is Ready and may be given pods, but for those that were told to fail when they last ran, and says how many these
/// are.
async fn nodes_are_ready(client: kube::Client, count: u16) -> anyhow::Result<usize> {
    let mut progress = Progress::new(count);
    let (mut ready, mut troubled) = (HashSet::new(), HashSet::new());
    let of_up = watcher::Config::default().labels(&format!("{}={FLEET_OF_UP}", sim::FLEET));
    let mut nodes = pin!(watcher::watcher(Api::<Node>::all(client), of_up));
    while ready.len() + troubled.len() < usize::from(count) {
        let Some(event) = nodes.try_next().await.context("watch the nodes")? else {
            bail!("nobody tells of the nodes")
        };
        let (watcher::Event::Apply(node) | watcher::Event::InitApply(node)) = event else { continue };
        let number = node.name_any().strip_prefix("sim-").and_then(|it| it.parse::<u16>().ok());
        let Some(number) = number.filter(|it| (1..=count).contains(it)) else { continue };
        if node.annotations().contains_key(sim::FAIL) {
            troubled.insert(number);
        } else if is_ready(&node) {
            ready.insert(number);
        }
        progress.tell(ready.len());
    }
    progress.end();
    Ok(troubled.len())
}

fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let mut taints = node.spec.iter().flat_map(|it| it.taints.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True") && !taints.any(|it| it.key == NOT_READY)
}

/// How many nodes are Ready, for whoever waits: on a terminal one line that changes and goes, else a line now and then.
struct Progress {
    count: u16,
    is_terminal: bool,
    told: Instant,
    has_line: bool,
}

impl Progress {
    fn new(count: u16) -> Self {
        let is_terminal = stdout().is_terminal() && stderr().is_terminal();
        Self { count, is_terminal, told: Instant::now(), has_line: false }
    }

    fn tell(&mut self, ready: usize) {
        let every = if self.is_terminal { TOLD_EVERY } else { LINE_EVERY };
        if self.told.elapsed() < every {
            return;
        }
        self.told = Instant::now();
        let line = format!("muster: {ready} of {} nodes are Ready", self.count);
        if self.is_terminal {
            self.has_line = true;
            eprint!("\r{line}\x1b[K");
            let _ = stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }

    fn end(&self) {
        if self.has_line {
            eprint!("\r\x1b[K");
        }
    }
}
