//! `muster up`: runs a whole cluster on this machine. The server, the controllers and the simulated nodes run in this
//! process. The containerd and the agent of each real node are separate processes. With `--servers`, the servers and a
//! trial etcd cluster are separate processes too, and a standby process continues if this process is killed.

/// The API servers of `--servers`.
mod api_servers;
/// The load balancer in front of the API servers.
mod balancer;
/// The processes of `--servers`: their logs, and how they are found and stopped.
mod child_process;
/// The standby process of `--servers`.
mod standby;
/// The trial etcd cluster of `--servers`.
mod trial_etcd;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{IsTerminal as _, stderr, stdout};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::CommandFactory as _;
use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use muster_agent::local_node::{self, LocalCluster};
use muster_agent::membership::ClusterMembership;
use muster_agent::node::host;
use muster_agent::sim;
use muster_api::well_known::{NAMESPACE_NODE_LEASE, NAMESPACE_SYSTEM, TAINT_NODE_NOT_READY};
use muster_control::{DaemonSetControllerReplica, ExplainQueries, Options};
use muster_server::BuiltinUser;

use self::api_servers::{ApiServers, ServersFlags};
pub(crate) use self::child_process::stop_leftover_processes;
use self::standby::{StandbyFlags, Takeover, supervise_standby};
use crate::check_flags::CheckFlags;
use crate::logging::{overwrite_terminal_line, print_ready_line, print_to_stderr};
use crate::real_nodes::{RealNodes, ServersForNodes};
use crate::serving_flags::{ServingFlags, ShutdownMode, loopback_kube_client};
use crate::sim_nodes::{SimFlags, UP_FLEET_NAME, supervise_fleet};
use crate::supervisor::Supervisor;

/// Number of simulated nodes if neither --nodes nor --sim-nodes is given, and this machine cannot run real nodes.
const DEFAULT_SIM_NODES: u16 = 3;

/// Interval of progress output on a terminal. Each output overwrites the previous line.
const TERMINAL_PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of progress output if standard output or standard error is not a terminal, and of output with reasons why
/// nodes are not Ready.
const LOG_PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Time after the start at which `muster up` begins to print why nodes are not Ready.
const NOT_READY_REASONS_DELAY: Duration = Duration::from_secs(5);
/// Maximum number of nodes for which a progress line says why they are not Ready.
const NOT_READY_REASONS_MAX: usize = 3;
/// Maximum length, in characters, of the reason why a node is not Ready.
const REASON_CHARS_MAX: usize = 300;

/// Run a cluster on this machine (API server, controllers and nodes), until Ctrl-C
///
/// Real nodes run containers, each with its own containerd and network namespace, and need root. Simulated nodes run no
/// containers. The cluster's state is stored in the data directory, and the next `muster up` continues with it. If `muster
/// up` is killed with SIGKILL, the containers keep running: the next `muster up` takes them over, and `muster down`
/// removes them. With --servers, a standby process takes them over immediately.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster up                                     one real node if possible, otherwise three simulated nodes
  muster up --nodes 2 --sim-nodes 50            two nodes that run containers, and fifty simulated nodes
  muster up --sim-nodes 3 --data-dir /tmp/m     with another data directory
  muster up --servers 3 --sim-nodes 3           three API servers and three etcd members")]
pub(crate) struct UpArgs {
    /// Number of real nodes, which run containers with containerd: at most 200. With 0, this machine has no real node,
    /// but other machines can join [default: 1 if --sim-nodes is not given and this machine can run real nodes,
    /// otherwise 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=i64::from(local_node::NODES_MAX)))]
    nodes: Option<u16>,
    /// Number of simulated nodes, which report pods as running without containers (see docs/simulated-nodes.md)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=i64::from(sim::NODES_MAX)))]
    sim_nodes: Option<u16>,
    /// Flag to pass to the agents of the real nodes, as in --agent-flag=--max-pods=50; repeatable
    #[arg(long = "agent-flag", value_name = "FLAG", allow_hyphen_values = true)]
    agent_flags: Vec<String>,
    #[command(flatten)]
    checks: CheckFlags,
    #[command(flatten)]
    sim: SimFlags,
    #[command(flatten)]
    servers: ServersFlags,
    #[command(flatten)]
    standby: StandbyFlags,
    #[command(flatten)]
    serving: ServingFlags,
}

/// Executes `muster up`.
pub(crate) async fn run(args: UpArgs) -> anyhow::Result<()> {
    let takeover = args.standby.wait_for_takeover().await?;
    let counts = NodeCounts::from_args(&args)?;
    let data_dir = args.serving.data_dir();
    let print_wait = async || {
        let pods = if counts.real == 0 { 0 } else { local_node::count_running_pods(data_dir).await };
        if 0 < pods {
            let grace = host::ShutdownGrace::default();
            let seconds = (grace.pods + grace.critical_pods).as_secs();
            let pods = if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") };
            print_to_stderr(format_args!(
                "muster: stopping {pods}, up to {seconds} s; press Ctrl-C again to kill them immediately"
            ));
        }
    };
    // If the start fails, or the server fails later, containers of an earlier `muster up` keep running. What this
    // process has created is removed only if there was nothing before and the start failed.
    let (was_bare, is_up) = (Cell::new(false), Cell::new(false));
    let start = async |supervisor: &mut Supervisor| {
        was_bare.set(local_node::find_leftovers(data_dir).is_ok_and(|it| it.0.is_empty()));
        start_cluster(&args, &counts, takeover, supervisor).await?;
        is_up.set(true);
        Ok(())
    };
    let finish = async |shutdown| match (counts.real, shutdown) {
        (0, _) => Ok(()),
        (_, ShutdownMode::AfterFailure) if is_up.get() || !was_bare.get() => Ok(()),
        (_, ShutdownMode::AfterFailure) => remove_real_nodes(data_dir, Duration::ZERO).await,
        (_, ShutdownMode::Orderly) => remove_real_nodes(data_dir, local_node::STOP_GRACE_MAX).await,
        (_, ShutdownMode::Immediate) => remove_real_nodes(data_dir, Duration::ZERO).await,
    };
    args.serving.run_until_signal(start, print_wait, finish).await
}

/// Numbers of real nodes and of simulated nodes.
struct NodeCounts {
    real: u16,
    simulated: u16,
}

impl NodeCounts {
    /// Returns the numbers of nodes that the flags specify. If neither flag is given, prints and returns the default:
    /// one real node if this machine can run real nodes, otherwise [`DEFAULT_SIM_NODES`]. Fails if the flags request
    /// real nodes that this machine cannot run.
    fn from_args(args: &UpArgs) -> anyhow::Result<Self> {
        let missing = local_node::find_missing_prerequisites();
        match (args.nodes, args.sim_nodes) {
            (None, None) => Ok(match missing {
                None => {
                    print_to_stderr(
                        "muster: neither --nodes nor --sim-nodes is given: starting one real node with containerd",
                    );
                    Self { real: 1, simulated: 0 }
                }
                Some(missing) => {
                    print_to_stderr(format_args!(
                        "muster: neither --nodes nor --sim-nodes is given: starting {DEFAULT_SIM_NODES} simulated nodes ({missing})"
                    ));
                    Self { real: 0, simulated: DEFAULT_SIM_NODES }
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

    fn total_nodes(&self) -> usize {
        usize::from(self.real) + usize::from(self.simulated)
    }

    /// Returns the names of all nodes.
    fn node_names(&self) -> BTreeSet<String> {
        let real = (1..=self.real).map(|it| format!("node-{it}"));
        real.chain((1..=self.simulated).map(|it| format!("sim-{it}"))).collect()
    }

    /// Formats the numbers of real and simulated nodes for the `ready:` line. `failing` is the number of simulated
    /// nodes with injected failures.
    fn ready_summary(&self, failing: usize) -> String {
        let failing = if failing == 0 { String::new() } else { format!(", {failing} of them set to fail") };
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

/// Removes the containers, processes, network namespaces and mounts of the real nodes from this machine. `grace` is the
/// time that pods get to stop. Fails if anything is left.
async fn remove_real_nodes(data_dir: &Path, grace: Duration) -> anyhow::Result<()> {
    local_node::clean_up(data_dir, grace).await?;
    let left = local_node::find_leftovers(data_dir)?;
    if !left.0.is_empty() {
        bail!("could not be removed: {}. `muster down` tries again", left.0.join(", "));
    }
    Ok(())
}

/// Starts the server, the controllers and the nodes, waits until the nodes are Ready, and prints the `ready:` line.
/// Does not wait for simulated nodes with injected failures. With `takeover`, waits for nothing and prints nothing, so
/// that a takeover does not fail because an API request fails.
async fn start_cluster(
    args: &UpArgs,
    counts: &NodeCounts,
    takeover: Option<Takeover>,
    supervisor: &mut Supervisor,
) -> anyhow::Result<()> {
    args.servers.check_data_dir(args.serving.data_dir())?;
    let machine = match counts.real {
        0 => None,
        _ => {
            let dir = args.serving.data_dir();
            let abandoned = local_node::clean_up_abandoned(dir).await?;
            for it in &abandoned.0 {
                print_to_stderr(format_args!(
                    "muster: removed a leftover of an earlier cluster in {}: {it}",
                    dir.display()
                ));
            }
            Some(LocalCluster::open_or_create(dir).await?)
        }
    };
    let is_takeover = takeover.is_some();
    let cluster = match args.servers.count() {
        None => start_server_in_process(args, machine.as_ref(), supervisor).await?,
        Some(count) => start_server_processes(args, count, machine.as_ref(), takeover, supervisor).await?,
    };
    let ClusterAccess { controller, simulated, administrator, .. } = cluster;

    supervise_fleet(
        supervisor,
        simulated,
        args.sim.fleet_options(UP_FLEET_NAME, counts.simulated, "sim"),
        None,
    );

    let checks = args.checks.check_options(NAMESPACE_SYSTEM.to_owned());
    let options = Options { checks, ..Options::default() };
    let stop = supervisor.stop_token();
    let explain_queries = cluster.explain_queries;
    supervisor.supervise("DaemonSet controller", move || {
        let controlling = DaemonSetControllerReplica::new(controller.clone(), options.clone());
        let controlling = controlling.with_explain_queries(explain_queries.clone()).run(stop.clone());
        async move { Ok(controlling.await?) }
    });

    let mut before = LeaseRenewTimes::new();
    let nodes = match &machine {
        Some(machine) => {
            if !is_takeover {
                before = read_lease_renew_times(&administrator).await?;
            }
            let dir = args.serving.data_dir();
            let mut flags = Vec::new();
            if !args.serving.allow_external_ips().is_empty() {
                flags.push(format!("--allow-external-ips={}", args.serving.allow_external_ips().join(",")));
            }
            flags.extend(args.agent_flags.iter().cloned());
            if args.serving.has_new_cluster_flag() {
                for index in 1..=counts.real {
                    let root = machine.node(index).agent_root();
                    ClusterMembership::remove_record(&root).with_context(|| {
                        format!("remove the identity of the old cluster in {}", root.display())
                    })?;
                }
            }
            Some(
                RealNodes::start(
                    machine,
                    counts.real,
                    &cluster.for_nodes,
                    dir,
                    &flags,
                    &administrator,
                    supervisor,
                )
                .await?,
            )
        }
        None => None,
    };
    let ready = if is_takeover {
        None
    } else {
        let failing = wait_until_nodes_ready(administrator.clone(), counts, args.serving.data_dir()).await?;
        if let Some(nodes) = nodes {
            wait_for_lease_renewals(&administrator, counts.real, &before, args.serving.data_dir()).await?;
            nodes.revoke_bootstrap_token(&administrator).await?;
        }
        Some(format!("ready: {}; {}", counts.ready_summary(failing), cluster.export))
    };
    if let Some(listener) = cluster.balancer {
        let data_dir = std::path::absolute(args.serving.data_dir())?;
        supervise_standby(data_dir, listener, cluster.for_nodes.addresses, supervisor);
    }
    if let Some(ready) = ready {
        print_ready_line(ready);
    }
    Ok(())
}

/// How the components of this process, the agents and the administrator reach the API.
struct ClusterAccess {
    controller: kube::Client,
    simulated: kube::Client,
    administrator: kube::Client,
    explain_queries: ExplainQueries,
    for_nodes: ServersForNodes,
    /// The listener of the load balancer. `None` if the server runs in this process.
    balancer: Option<OwnedFd>,
    /// The `export KUBECONFIG=…` line for the administrator's shell.
    export: String,
}

/// Starts the API server in this process.
async fn start_server_in_process(
    args: &UpArgs,
    machine: Option<&LocalCluster>,
    supervisor: &mut Supervisor,
) -> anyhow::Result<ClusterAccess> {
    args.serving.create_key_if_new()?;
    let settings = args.serving.cluster_settings(machine, 0)?;
    let mut server = args.serving.bind_server(machine, settings, None).await?;
    let port = server.listen_address().port();
    let explain_queries = ExplainQueries::default();
    let queries = explain_queries.clone();
    server.set_explain_provider(move |namespace, name| {
        let queries = queries.clone();
        async move { queries.query(&namespace, &name).await.map_err(|it| it.to_string()) }
    });
    let client = |user, name| loopback_kube_client(&server, user, name);
    let controller = client(BuiltinUser::Controller, "controller");
    let simulated = client(BuiltinUser::SimulatedNodes, "simulated-nodes");
    let administrator = client(BuiltinUser::Admin, "up");
    Ok(ClusterAccess {
        controller,
        simulated,
        administrator,
        explain_queries,
        for_nodes: ServersForNodes {
            addresses: machine.iter().map(|it| SocketAddr::new(it.address().into(), port)).collect(),
            ca_certificate: args.serving.data_dir().join("ca.crt"),
        },
        balancer: None,
        export: args.serving.start_server(server, &[], false, supervisor)?,
    })
}

/// Starts `count` API servers and a trial etcd cluster as processes, or continues with those of `takeover`.
async fn start_server_processes(
    args: &UpArgs,
    count: u8,
    machine: Option<&LocalCluster>,
    takeover: Option<Takeover>,
    supervisor: &mut Supervisor,
) -> anyhow::Result<ClusterAccess> {
    let matches = crate::Cli::command().get_matches();
    let (_, matches) = matches.subcommand().context("the command line has no subcommand")?;
    let flags = ServingFlags::flags_for_several_servers(matches);
    let servers =
        ApiServers::start(count, &args.servers, &args.serving, &flags, machine, takeover, supervisor).await?;
    Ok(ClusterAccess {
        controller: servers.client(BuiltinUser::Controller, "controller").await?,
        simulated: servers.client(BuiltinUser::SimulatedNodes, "simulated-nodes").await?,
        administrator: servers.client(BuiltinUser::Admin, "up").await?,
        explain_queries: ExplainQueries::default(),
        for_nodes: ServersForNodes { ca_certificate: servers.ca_certificate(), addresses: servers.addresses },
        balancer: Some(servers.listener),
        export: servers.export,
    })
}

/// Waits until all nodes are Ready and do not have the taint [`TAINT_NODE_NOT_READY`]. Does not wait for simulated nodes
/// with the annotation `sim.muster.dev/fail`, and returns their number.
async fn wait_until_nodes_ready(
    client: kube::Client,
    counts: &NodeCounts,
    data_dir: &Path,
) -> anyhow::Result<usize> {
    let names = counts.node_names();
    let mut progress = ReadyProgress::new(counts.total_nodes());
    let (mut ready, mut failing) = (HashSet::new(), HashSet::new());
    // The nodes that are not Ready yet, each with the reason.
    let mut waiting: BTreeMap<String, String> =
        names.iter().map(|it| (it.clone(), not_registered_text(it, data_dir))).collect();
    let mut nodes = pin!(watcher::watcher(Api::<Node>::all(client), watcher::Config::default()));
    while ready.len() + failing.len() < counts.total_nodes() {
        let event = tokio::select! {
            event = nodes.try_next() => event,
            () = tokio::time::sleep(TERMINAL_PROGRESS_INTERVAL) => {
                progress.print_progress(ready.len(), &waiting);
                continue;
            }
        };
        let Some(event) = event.context("watch the nodes")? else { bail!("the watch of nodes ended") };
        let (watcher::Event::Apply(node) | watcher::Event::InitApply(node)) = event else { continue };
        let name = node.name_any();
        if !names.contains(&name) {
            continue;
        }
        if node.annotations().contains_key(sim::FAULTS_ANNOTATION) {
            waiting.remove(&name);
            failing.insert(name);
        } else if is_node_ready(&node) {
            waiting.remove(&name);
            ready.insert(name);
        } else if let Some(why) = waiting.get_mut(&name) {
            *why = not_ready_reason(&node);
        }
        progress.print_progress(ready.len(), &waiting);
    }
    progress.clear_line();
    Ok(failing.len())
}

/// Returns the progress text of a node that is not registered yet. For a real node, it names the log of the agent.
fn not_registered_text(name: &str, data_dir: &Path) -> String {
    let log = data_dir.join("nodes").join(name).join("agent.log");
    match name.starts_with("node-") {
        true => format!("not registered yet; the agent's log is {}", log.display()),
        false => "not registered yet".to_owned(),
    }
}

/// Returns why a registered node does not count as Ready, from its Ready condition. If the condition is True, the taint
/// [`TAINT_NODE_NOT_READY`] is the reason.
fn not_ready_reason(node: &Node) -> String {
    let mut conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    match conditions.find(|it| it.type_ == "Ready") {
        Some(it) if it.status != "True" => {
            let message = it.message.as_deref().or(it.reason.as_deref()).unwrap_or("no reason given");
            message.chars().take(REASON_CHARS_MAX).collect()
        }
        Some(_) => format!("the taint {TAINT_NODE_NOT_READY} is not removed yet"),
        None => "no Ready condition yet".to_owned(),
    }
}

/// The renew time of each node's Lease, by node name.
type LeaseRenewTimes = BTreeMap<String, Option<MicroTime>>;

/// Reads the renew times of all node Leases.
async fn read_lease_renew_times(client: &kube::Client) -> anyhow::Result<LeaseRenewTimes> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE_NODE_LEASE);
    let leases = leases.list(&ListParams::default()).await.context("list the leases of nodes")?;
    Ok(leases.into_iter().map(|it| (it.name_any(), it.spec.and_then(|it| it.renew_time))).collect())
}

/// Waits until every agent has renewed its node's Lease. The Ready condition is not enough, because it may be from an
/// earlier `muster up` that was killed.
///
/// `before` has the renew times before the agents were started. Renew times are compared with `before` and not with the
/// clock, because the clock may be set back.
async fn wait_for_lease_renewals(
    client: &kube::Client,
    count: u16,
    before: &LeaseRenewTimes,
    data_dir: &Path,
) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE_NODE_LEASE);
    let mut progress = ReadyProgress::new(usize::from(count));
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
            progress.print_progress(usize::from(number - 1), &waiting);
            tokio::time::sleep(TERMINAL_PROGRESS_INTERVAL).await;
        }
    }
    progress.clear_line();
    Ok(())
}

/// Whether the Ready condition of a node is True and the node does not have the taint [`TAINT_NODE_NOT_READY`].
fn is_node_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let mut taints = node.spec.iter().flat_map(|it| it.taints.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
        && !taints.any(|it| it.key == TAINT_NODE_NOT_READY)
}

/// Prints how many nodes are Ready, and after [`NOT_READY_REASONS_DELAY`] also why the other nodes are not. On a
/// terminal, a line without reasons is overwritten by the next line, and is removed at the end.
struct ReadyProgress {
    /// Number of nodes to wait for.
    count: usize,
    is_terminal: bool,
    /// When the wait began.
    began: Instant,
    /// When progress was last printed.
    printed_at: Instant,
    /// Whether the terminal shows a progress line.
    has_line: bool,
}

impl ReadyProgress {
    fn new(count: usize) -> Self {
        let is_terminal = stdout().is_terminal() && stderr().is_terminal();
        Self { count, is_terminal, began: Instant::now(), printed_at: Instant::now(), has_line: false }
    }

    /// Prints progress if it is due. `waiting` has the reason of each node that is not Ready.
    fn print_progress(&mut self, ready: usize, waiting: &BTreeMap<String, String>) {
        // A line with reasons may be longer than the terminal is wide: it is not overwritten.
        let is_late = NOT_READY_REASONS_DELAY <= self.began.elapsed();
        let is_overwritten = self.is_terminal && !is_late;
        let every = if is_overwritten { TERMINAL_PROGRESS_INTERVAL } else { LOG_PROGRESS_INTERVAL };
        if self.printed_at.elapsed() < every {
            return;
        }
        self.printed_at = Instant::now();
        let why = if is_late { waiting_summary(waiting) } else { String::new() };
        let line = format!("muster: {ready} of {} nodes are Ready{why}", self.count);
        if is_overwritten {
            self.has_line = true;
            overwrite_terminal_line(line);
        } else {
            self.clear_line();
            self.has_line = false;
            print_to_stderr(line);
        }
    }

    /// Removes the progress line from the terminal.
    fn clear_line(&self) {
        if self.has_line {
            overwrite_terminal_line("");
        }
    }
}

/// Formats the first [`NOT_READY_REASONS_MAX`] nodes that are not Ready, each with the reason, and the number of the
/// others. `waiting` has the reason of each node that is not Ready. If it is empty, so is the text.
fn waiting_summary(waiting: &BTreeMap<String, String>) -> String {
    let named = waiting.iter().take(NOT_READY_REASONS_MAX).map(|(name, why)| format!("{name}: {why}"));
    let named = named.collect::<Vec<_>>().join("; ");
    match waiting.len().saturating_sub(NOT_READY_REASONS_MAX) {
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
            waiting_summary(&nodes.iter().map(|(name, why)| ((*name).to_owned(), why.clone())).collect())
        };
        let network = not_ready_reason(&node(condition("False", "container runtime network not ready")));
        let taint = not_ready_reason(&node(condition("True", "")));
        let none = not_ready_reason(&node(json!({})));
        let said = [
            waiting(&[]),
            waiting(&[
                ("node-1", network.clone()),
                ("node-2", not_registered_text("node-2", Path::new("d"))),
            ]),
            waiting(&[("a", taint), ("b", none), ("c", network.clone()), ("d", network)]),
        ];
        expect![[r#"

            ; waiting for node-1: container runtime network not ready; node-2: not registered yet; the agent's log is d/nodes/node-2/agent.log
            ; waiting for a: the taint node.kubernetes.io/not-ready is not removed yet; b: no Ready condition yet; c: container runtime network not ready; and 1 more"#]]
        .assert_eq(&said.join("\n"));
    }
}
