//! `muster up`: a whole cluster on this machine. The server, the controllers and the simulated nodes run in this
//! process. Each real node is a containerd and an agent, as separate processes.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{IsTerminal as _, stderr, stdout};
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use muster_agent::local_node::{self, LocalCluster};
use muster_agent::membership::Membership;
use muster_agent::node::host;
use muster_agent::sim;
use muster_control::{Controller, ExplainQueries, Options};
use muster_server::BuiltinUser;

use crate::logging::{announce, overwrite_error, print_error};
use crate::nodes::Nodes;
use crate::parts::Parts;
use crate::serving::{Pace, Serving, client};
use crate::sim_nodes::{FLEET_OF_UP, SimFlags, keep_fleet};

/// Taint that a node has until the node lifecycle controller sees it Ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Namespace of the node Leases.
const LEASES: &str = "kube-node-lease";

/// Number of simulated nodes if neither --nodes nor --sim-nodes is given and no real node can run.
const SIM_NODES: u16 = 3;

/// Interval of progress output on a terminal, where the line is overwritten.
const TOLD_EVERY: Duration = Duration::from_millis(100);
/// Interval of progress output if standard output or standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Time after which the reasons why nodes are not Ready are printed.
const WHY_AFTER: Duration = Duration::from_secs(5);
/// Maximum number of nodes whose reasons are printed in one line.
const WAITS_MAX: usize = 3;
/// Maximum length of one reason in characters.
const WHY_MAX: usize = 300;

/// Run a cluster on this machine (API server, controllers and nodes), until Ctrl-C
///
/// Real nodes run containers, each with its own containerd and network namespace, and need root. Simulated nodes run no
/// containers. The cluster's state is stored in the data directory, and the next `muster up` continues with it. After a
/// kill -9 the containers keep running: the next `muster up` takes them over, and `muster down` removes them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster up                                     one real node if possible, otherwise three simulated nodes
  muster up --nodes 2 --sim-nodes 50            two nodes that run containers, and fifty simulated nodes
  muster up --sim-nodes 3 --data-dir /tmp/m     with another data directory")]
pub(crate) struct Args {
    /// Number of real nodes, which run containers with containerd: at most 200; 0 if other machines are to join
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=i64::from(local_node::NODES_MAX)))]
    nodes: Option<u16>,
    /// Number of simulated nodes, which report pods as running without containers (see docs/simulated-nodes.md)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=i64::from(sim::NODES_MAX)))]
    sim_nodes: Option<u16>,
    /// Flag to pass to the agents of the real nodes, as in --agent-flag=--max-pods=50; repeatable
    #[arg(long = "agent-flag", value_name = "FLAG", allow_hyphen_values = true)]
    agent_flags: Vec<String>,
    #[command(flatten)]
    sim: SimFlags,
    #[command(flatten)]
    serving: Serving,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let counts = Counts::of(&args)?;
    let data_dir = args.serving.data_dir();
    let print_wait = async || {
        let pods = if counts.real == 0 { 0 } else { local_node::pods(data_dir).await };
        if 0 < pods {
            let grace = host::Grace::default();
            let seconds = (grace.of_pods + grace.of_critical_pods).as_secs();
            let pods = if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
            print_error(format_args!(
                "muster: stopping {pods}, up to {seconds} s; press Ctrl-C again to kill them immediately"
            ));
        }
    };
    // If the start fails, or the server fails later, containers of an earlier `muster up` keep running. What this
    // process has created is removed only if there was nothing before and the start failed.
    let (was_bare, is_up) = (Cell::new(false), Cell::new(false));
    let start = async |parts: &mut Parts| {
        was_bare.set(local_node::leftovers(data_dir).is_ok_and(|it| it.0.is_empty()));
        start(&args, &counts, parts).await?;
        is_up.set(true);
        Ok(())
    };
    let finish = async |pace| match (counts.real, pace) {
        (0, _) => Ok(()),
        (_, Pace::Failed) if is_up.get() || !was_bare.get() => Ok(()),
        (_, Pace::Failed) => clear(data_dir, Duration::ZERO).await,
        (_, Pace::Orderly) => clear(data_dir, local_node::GRACE).await,
        (_, Pace::AtOnce) => clear(data_dir, Duration::ZERO).await,
    };
    args.serving.run(start, print_wait, finish).await
}

/// Number of real and of simulated nodes.
struct Counts {
    real: u16,
    simulated: u16,
}

impl Counts {
    fn of(args: &Args) -> anyhow::Result<Self> {
        let missing = local_node::missing();
        match (args.nodes, args.sim_nodes) {
            (None, None) => Ok(match missing {
                None => {
                    print_error(
                        "muster: neither --nodes nor --sim-nodes is given: starting one real node with containerd",
                    );
                    Self { real: 1, simulated: 0 }
                }
                Some(missing) => {
                    print_error(format_args!(
                        "muster: neither --nodes nor --sim-nodes is given: starting {SIM_NODES} simulated nodes ({missing})"
                    ));
                    Self { real: 0, simulated: SIM_NODES }
                }
            }),
            (real, simulated) => {
                let (real, simulated) = (real.unwrap_or(0), simulated.unwrap_or(0));
                match missing {
                    Some(missing) if 0 < real => bail!("{missing}; --sim-nodes N has no such requirements"),
                    _ => Ok(Self { real, simulated }),
                }
            }
        }
    }

    fn all(&self) -> usize {
        usize::from(self.real) + usize::from(self.simulated)
    }

    /// The names of all nodes.
    fn names(&self) -> BTreeSet<String> {
        let real = (1..=self.real).map(|it| format!("node-{it}"));
        real.chain((1..=self.simulated).map(|it| format!("sim-{it}"))).collect()
    }

    /// The summary of the nodes for the `ready:` line.
    fn in_words(&self, troubled: usize) -> String {
        let failing = if troubled == 0 { String::new() } else { format!(", {troubled} of them set to fail") };
        let counted = |count, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let simulated = counted(self.simulated, "simulated node") + &failing;
        let real = counted(self.real, "node");
        match (self.real, self.simulated) {
            (0, 0) => "no nodes".to_owned(),
            (0, _) => simulated,
            (_, 0) => real,
            _ => format!("{real} and {simulated}"),
        }
    }
}

/// Removes the containers, processes, network namespaces and mounts of the real nodes from this machine.
async fn clear(data_dir: &Path, grace: Duration) -> anyhow::Result<()> {
    local_node::clear(data_dir, grace).await?;
    let left = local_node::leftovers(data_dir)?;
    if !left.0.is_empty() {
        bail!("could not be removed: {}. `muster down` tries again", left.0.join(", "));
    }
    Ok(())
}

async fn start(args: &Args, counts: &Counts, parts: &mut Parts) -> anyhow::Result<()> {
    args.serving.encrypt_if_new()?;
    let machine = match counts.real {
        0 => None,
        _ => {
            let dir = args.serving.data_dir();
            let abandoned = local_node::clear_abandoned(dir).await?;
            for it in &abandoned.0 {
                print_error(format_args!(
                    "muster: removed a leftover of an earlier cluster in {}: {it}",
                    dir.display()
                ));
            }
            Some(LocalCluster::open(dir).await?)
        }
    };
    let mut server = args.serving.bind(machine.as_ref()).await?;
    let port = server.listen_address().port();
    let explain_queries = ExplainQueries::default();
    let queries = explain_queries.clone();
    server.set_explain_provider(move |namespace, name| {
        let queries = queries.clone();
        async move { queries.ask(&namespace, &name).await.map_err(|it| it.to_string()) }
    });
    let controller = client(&server, BuiltinUser::Controller, "controller");
    let simulated = client(&server, BuiltinUser::SimulatedNodes, "simulated-nodes");
    let administrator = client(&server, BuiltinUser::Admin, "up");
    let export = args.serving.serve(server, &[], parts)?;

    keep_fleet(parts, simulated, args.sim.options(FLEET_OF_UP, counts.simulated, "sim"), None);

    let options = Options::default();
    let stop = parts.stop();
    parts.keep("DaemonSet controller", move || {
        let controlling = Controller::new(controller.clone(), options.clone());
        let controlling = controlling.answers(explain_queries.clone()).run(stop.clone());
        async move { Ok(controlling.await?) }
    });

    let mut before = Renewals::new();
    let nodes = match &machine {
        Some(machine) => {
            before = renewals(&administrator).await?;
            let dir = args.serving.data_dir();
            let mut flags = Vec::new();
            if !args.serving.allow_external_ips().is_empty() {
                flags.push(format!("--allow-external-ips={}", args.serving.allow_external_ips().join(",")));
            }
            flags.extend(args.agent_flags.iter().cloned());
            if args.serving.is_new_cluster() {
                for index in 1..=counts.real {
                    let root = machine.node(index).root();
                    Membership::forget(&root).with_context(|| {
                        format!("remove the identity of the old cluster in {}", root.display())
                    })?;
                }
            }
            Some(Nodes::start(machine, counts.real, port, dir, &flags, &administrator, parts).await?)
        }
        None => None,
    };
    let troubled = nodes_are_ready(administrator.clone(), counts, args.serving.data_dir()).await?;
    if let Some(nodes) = nodes {
        agents_are_heard(&administrator, counts.real, &before, args.serving.data_dir()).await?;
        nodes.have_joined(&administrator).await?;
    }
    announce(format_args!("ready: {}; {export}", counts.in_words(troubled)));
    Ok(())
}

/// Waits until all nodes are Ready and without the not-ready taint. Simulated nodes with the fail annotation are not
/// waited for; returns their number.
async fn nodes_are_ready(client: kube::Client, counts: &Counts, data_dir: &Path) -> anyhow::Result<usize> {
    let names = counts.names();
    let mut progress = Progress::new(counts.all());
    let (mut ready, mut troubled) = (HashSet::new(), HashSet::new());
    // The nodes that are not Ready yet, each with the reason.
    let mut waiting: BTreeMap<String, String> =
        names.iter().map(|it| (it.clone(), not_registered(it, data_dir))).collect();
    let mut nodes = pin!(watcher::watcher(Api::<Node>::all(client), watcher::Config::default()));
    while ready.len() + troubled.len() < counts.all() {
        let event = tokio::select! {
            event = nodes.try_next() => event,
            () = tokio::time::sleep(TOLD_EVERY) => {
                progress.tell(ready.len(), &waiting);
                continue;
            }
        };
        let Some(event) = event.context("watch the nodes")? else { bail!("the watch of nodes ended") };
        let (watcher::Event::Apply(node) | watcher::Event::InitApply(node)) = event else { continue };
        let name = node.name_any();
        if !names.contains(&name) {
            continue;
        }
        if node.annotations().contains_key(sim::FAIL) {
            waiting.remove(&name);
            troubled.insert(name);
        } else if is_ready(&node) {
            waiting.remove(&name);
            ready.insert(name);
        } else if let Some(why) = waiting.get_mut(&name) {
            *why = why_not_ready(&node);
        }
        progress.tell(ready.len(), &waiting);
    }
    progress.end();
    Ok(troubled.len())
}

fn not_registered(name: &str, data_dir: &Path) -> String {
    let log = data_dir.join("nodes").join(name).join("agent.log");
    match name.starts_with("node-") {
        true => format!("not registered yet; the agent's log is {}", log.display()),
        false => "not registered yet".to_owned(),
    }
}

fn why_not_ready(node: &Node) -> String {
    let mut conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    match conditions.find(|it| it.type_ == "Ready") {
        Some(it) if it.status != "True" => {
            let message = it.message.as_deref().or(it.reason.as_deref()).unwrap_or("no reason given");
            message.chars().take(WHY_MAX).collect()
        }
        Some(_) => format!("the taint {NOT_READY} is not removed yet"),
        None => "no Ready condition yet".to_owned(),
    }
}

/// The renew time of each node's Lease, by node name.
type Renewals = BTreeMap<String, Option<MicroTime>>;

async fn renewals(client: &kube::Client) -> anyhow::Result<Renewals> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let leases = leases.list(&ListParams::default()).await.context("list the leases of nodes")?;
    Ok(leases.into_iter().map(|it| (it.name_any(), it.spec.and_then(|it| it.renew_time))).collect())
}

/// Waits until every agent has renewed its node's Lease. Ready is not enough: a node may still be Ready from an earlier
/// `muster up` that was killed. Renew times are compared with `before`, read before the agents were started, and not
/// with the clock, which may be set back.
async fn agents_are_heard(
    client: &kube::Client,
    count: u16,
    before: &Renewals,
    data_dir: &Path,
) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let mut progress = Progress::new(usize::from(count));
    for number in 1..=count {
        let name = format!("node-{number}");
        let log = data_dir.join("nodes").join(&name).join("agent.log");
        let why = format!("its lease is not renewed yet; the agent's log is {}", log.display());
        let waiting = BTreeMap::from([(name.clone(), why)]);
        loop {
            let lease = leases.get_opt(&name).await.with_context(|| format!("read the lease of {name}"))?;
            let renewed = lease.and_then(|it| it.spec).and_then(|it| it.renew_time);
            if renewed.is_some() && before.get(&name) != Some(&renewed) {
                break;
            }
            progress.tell(usize::from(number - 1), &waiting);
            tokio::time::sleep(TOLD_EVERY).await;
        }
    }
    progress.end();
    Ok(())
}

fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let mut taints = node.spec.iter().flat_map(|it| it.taints.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True") && !taints.any(|it| it.key == NOT_READY)
}

/// Prints how many nodes are Ready, and after [`REASONS_DELAY`] also why the others are not. On a terminal the line is
/// overwritten in place, and removed at the end.
struct Progress {
    count: usize,
    is_terminal: bool,
    began: Instant,
    told: Instant,
    has_line: bool,
}

impl Progress {
    fn new(count: usize) -> Self {
        let is_terminal = stdout().is_terminal() && stderr().is_terminal();
        Self { count, is_terminal, began: Instant::now(), told: Instant::now(), has_line: false }
    }

    fn tell(&mut self, ready: usize, waiting: &BTreeMap<String, String>) {
        // A line with reasons may be longer than the terminal is wide: it is not overwritten.
        let is_late = WHY_AFTER <= self.began.elapsed();
        let is_overwritten = self.is_terminal && !is_late;
        let every = if is_overwritten { TOLD_EVERY } else { LINE_EVERY };
        if self.told.elapsed() < every {
            return;
        }
        self.told = Instant::now();
        let why = if is_late { waits(waiting) } else { String::new() };
        let line = format!("muster: {ready} of {} nodes are Ready{why}", self.count);
        if is_overwritten {
            self.has_line = true;
            overwrite_error(line);
        } else {
            self.end();
            self.has_line = false;
            print_error(line);
        }
    }

    fn end(&self) {
        if self.has_line {
            overwrite_error("");
        }
    }
}

/// The first nodes that are not Ready, each with the reason.
fn waits(waiting: &BTreeMap<String, String>) -> String {
    let named = waiting.iter().take(WAITS_MAX).map(|(name, why)| format!("{name}: {why}"));
    let named = named.collect::<Vec<_>>().join("; ");
    match waiting.len().saturating_sub(WAITS_MAX) {
        _ if waiting.is_empty() => String::new(),
        0 => format!("; waiting for {named}"),
        more => format!("; waiting for {named}; and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    fn node(status: serde_json::Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "node-1"}, "status": status})).unwrap()
    }

    #[test]
    fn what_is_waited_for_is_named_with_its_reason() {
        let condition = |status: &str, message: &str| json!({"conditions": [{"type": "Ready", "status": status, "message": message}]});
        let waiting = |nodes: &[(&str, String)]| {
            waits(&nodes.iter().map(|(name, why)| ((*name).to_owned(), why.clone())).collect())
        };
        let network = why_not_ready(&node(condition("False", "container runtime network not ready")));
        let taint = why_not_ready(&node(condition("True", "")));
        let none = why_not_ready(&node(json!({})));
        let said = [
            waiting(&[]),
            waiting(&[("node-1", network.clone()), ("node-2", not_registered("node-2", Path::new("d")))]),
            waiting(&[("a", taint), ("b", none), ("c", network.clone()), ("d", network)]),
        ];
        expect![[r#"

            ; waiting for node-1: container runtime network not ready; node-2: not registered yet; the agent's log is d/nodes/node-2/agent.log
            ; waiting for a: the taint node.kubernetes.io/not-ready is not removed yet; b: no Ready condition yet; c: container runtime network not ready; and 1 more"#]]
        .assert_eq(&said.join("\n"));
    }
}
