//! `muster sim-node`: adds and removes simulated nodes, or makes them fail, while the process that simulates them runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use muster_agent::sim::{self, FAULTS_ANNOTATION, FLEET_LABEL, NewNode, NodeFault};
use muster_api::well_known::ANNOTATION_CONFIG_MIRROR;
use serde_json::{Value, json};

use crate::duration_flag;
use crate::logging::print_to_stdout;
use crate::sim_nodes::{SimClusterFlags, UP_FLEET_NAME};

/// Interval at which `drain` retries the eviction of a pod that a PodDisruptionBudget protects. It is kubectl's
/// interval.
const EVICTION_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which `drain` lists the remaining pods.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Add, fail, drain and remove simulated nodes
///
/// Failures are set by annotations, so kubectl can do the same: `muster sim-node fail sim-1 --how silent` is
/// `kubectl annotate node sim-1 sim.muster.dev/fail=silent`. docs/simulated-nodes.md lists all annotations.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster sim-node list
  muster sim-node add --count 10 --label disk=ssd --taint gpu=yes:NoSchedule
  muster sim-node fail sim-2 --how not-ready
  muster sim-node recover sim-2
  muster sim-node drain sim-3
  muster sim-node remove sim-3")]
pub(crate) struct SimNodeArgs {
    #[command(subcommand)]
    command: SimNodeCommand,
    #[command(flatten)]
    cluster: SimClusterFlags,
}

#[derive(Debug, clap::Subcommand)]
enum SimNodeCommand {
    /// List the simulated nodes and their injected failures
    List,
    Add(AddSimNodesArgs),
    /// Delete nodes together with their pods
    Remove {
        /// Nodes to delete
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
    Fail(FailSimNodesArgs),
    /// End the injected failures of nodes, and uncordon them
    Recover {
        /// Nodes to recover
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
    Drain(DrainSimNodeArgs),
}

/// Add nodes to a running fleet of simulated nodes
#[derive(Debug, clap::Args)]
struct AddSimNodesArgs {
    /// Number of nodes to add
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "name")]
    count: u16,
    /// Name of the node [default: the next free name of its fleet]
    #[arg(long, value_name = "NODE")]
    name: Option<String>,
    /// Label for the nodes, in addition to the well-known ones; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Taint for the nodes; repeatable
    #[arg(long = "taint", value_name = "KEY[=VALUE]:EFFECT", value_parser = parse_taint)]
    taints: Vec<Value>,
    /// Fleet to add to: the --name-prefix of `muster sim-nodes`, or `up` for `muster up`
    #[arg(long, value_name = "FLEET", default_value = UP_FLEET_NAME)]
    fleet: String,
}

/// Make nodes fail, until `muster sim-node recover`
#[derive(Debug, clap::Args)]
#[command(after_help = "Failures:
  not-ready             Ready is False, and the node starts and stops no containers
  memory-pressure, disk-pressure, pid-pressure, network-unavailable
                        the condition of that name is True
  silent                no heartbeats and no status updates: the node becomes Ready=Unknown
  vanish                the Node object is deleted; `add --name NODE` creates it again
  slow-start            containers take half a minute to start

Examples:
  muster sim-node fail sim-1 --how silent
  muster sim-node fail sim-1 sim-2 --how memory-pressure --how slow-start")]
struct FailSimNodesArgs {
    /// Nodes to fail
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// Kind of failure, see below; repeatable
    #[arg(long, value_name = "HOW", required = true, value_parser = NodeFault::parse)]
    how: Vec<NodeFault>,
}

/// Cordon a node and evict its pods, except those of DaemonSets, as `kubectl drain --ignore-daemonsets` does
#[derive(Debug, clap::Args)]
struct DrainSimNodeArgs {
    /// Node to drain
    #[arg(value_name = "NODE")]
    node: String,
    /// Time after which to give up, such as 30s or 5m [default: none]
    #[arg(long, value_name = "TIME", value_parser = duration_flag::parse_duration)]
    timeout: Option<Duration>,
}

/// Executes `muster sim-node`.
pub(crate) async fn run(args: SimNodeArgs) -> anyhow::Result<()> {
    let client = args.cluster.connect().await?;
    match args.command {
        SimNodeCommand::List => list_sim_nodes(&client).await,
        SimNodeCommand::Add(add) => self::add_sim_nodes(&client, add).await,
        SimNodeCommand::Remove { nodes } => {
            for name in nodes {
                ensure_simulated(&client, &name).await?;
                let all: Api<Node> = Api::all(client.clone());
                let deleted = all.delete(&name, &DeleteParams::default()).await;
                deleted.with_context(|| format!("delete the node {name:?}"))?;
                print_to_stdout(format_args!("{name}: removed"));
            }
            Ok(())
        }
        SimNodeCommand::Fail(fail) => {
            let how = fail.how.iter().map(|it| it.name()).collect::<Vec<_>>().join(",");
            for name in fail.nodes {
                ensure_simulated(&client, &name).await?;
                patch_node(&client, &name, json!({"metadata": {"annotations": {FAULTS_ANNOTATION: how}}}))
                    .await?;
                print_to_stdout(format_args!("{name}: {how}"));
            }
            Ok(())
        }
        SimNodeCommand::Recover { nodes } => {
            for name in nodes {
                ensure_simulated(&client, &name).await?;
                let recovered = json!({"metadata": {"annotations": {FAULTS_ANNOTATION: null}}, "spec": {"unschedulable": null}});
                patch_node(&client, &name, recovered).await?;
                print_to_stdout(format_args!("{name}: recovered"));
            }
            Ok(())
        }
        SimNodeCommand::Drain(drain) => self::drain_node(&client, &drain).await,
    }
}

/// Executes `muster sim-node list`.
async fn list_sim_nodes(client: &Client) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default().labels(FLEET_LABEL)).await.context("list the nodes")?;
    print_to_stdout(format_args!("{:<24} {:<12} {:<10} FAILURES", "NODE", "FLEET", "READY"));
    for node in nodes {
        let conditions = node.status.as_ref().and_then(|it| it.conditions.as_deref()).unwrap_or_default();
        let ready = conditions.iter().find(|it| it.type_ == "Ready").map_or("Unknown", |it| &it.status);
        let fleet = node.labels().get(FLEET_LABEL).map_or("", |it| it);
        let mut failures = node.annotations().get(FAULTS_ANNOTATION).cloned().unwrap_or_default();
        if node.spec.as_ref().and_then(|it| it.unschedulable).unwrap_or_default() {
            failures = if failures.is_empty() { "cordoned".into() } else { format!("{failures}, cordoned") };
        }
        print_to_stdout(format_args!("{:<24} {fleet:<12} {ready:<10} {failures}", node.name_any()));
    }
    Ok(())
}

/// Executes `muster sim-node add`.
async fn add_sim_nodes(client: &Client, add: AddSimNodesArgs) -> anyhow::Result<()> {
    let mut numbers = sim::free_node_numbers(client).await.context("list the nodes")?;
    let prefix = if add.fleet == UP_FLEET_NAME { "sim" } else { &add.fleet };
    let labels: BTreeMap<String, String> = add.labels.into_iter().collect();
    for _ in 0..add.count {
        loop {
            let Some(number) = numbers.next() else {
                bail!("a cluster can have at most {} simulated nodes", sim::NODES_MAX)
            };
            let name = add.name.clone().unwrap_or_else(|| format!("{prefix}-{number}"));
            let (fleet, labels, taints) = (add.fleet.clone(), labels.clone(), add.taints.clone());
            match sim::register_node(client, &NewNode { name: name.clone(), number, fleet, labels, taints })
                .await
            {
                // A node of another origin has this name: try the next number.
                Err(kube::Error::Api(refused)) if refused.code == 409 && add.name.is_none() => {}
                done => {
                    done.with_context(|| format!("create the node {name:?}"))?;
                    print_to_stdout(format_args!("{name}: added"));
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Returns an error unless the node exists and is simulated.
async fn ensure_simulated(client: &Client, name: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    match nodes.get_opt(name).await.with_context(|| format!("read the node {name:?}"))? {
        Some(node) if node.labels().contains_key(FLEET_LABEL) => Ok(()),
        Some(_) => bail!("the node {name:?} is not a simulated node: it has no label {FLEET_LABEL}"),
        None => bail!(
            "there is no node {name:?}: `muster sim-node list` lists all simulated nodes, and `muster sim-node add --name {name}` \
             creates it"
        ),
    }
}

/// Applies a JSON merge patch to a node.
async fn patch_node(client: &Client, name: &str, patch: Value) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patched = nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).with_context(|| format!("patch the node {name:?}"))
}

/// Cordons a node, evicts its pods except those of DaemonSets and mirror pods, and waits until the evicted pods are
/// gone.
async fn drain_node(client: &Client, drain: &DrainSimNodeArgs) -> anyhow::Result<()> {
    let name = &drain.node;
    ensure_simulated(client, name).await?;
    patch_node(client, name, json!({"spec": {"unschedulable": true}})).await?;
    print_to_stdout(format_args!("{name}: cordoned"));
    let began = Instant::now();
    let pods: Api<Pod> = Api::all(client.clone());
    let here = ListParams::default().fields(&format!("spec.nodeName={name}"));
    let mut retry_at = BTreeMap::new();
    loop {
        let pods = pods.list(&here).await.context("list the pods of the node")?;
        let remaining: Vec<&Pod> = pods.iter().filter(|it| is_evicted_by_drain(it)).collect();
        if remaining.is_empty() {
            print_to_stdout(format_args!("{name}: drained"));
            return Ok(());
        }
        for pod in &remaining {
            let is_due = retry_at.get(&pod.uid()).is_none_or(|it: &Instant| *it <= Instant::now());
            if pod.metadata.deletion_timestamp.is_some() || !is_due {
                continue;
            }
            retry_at.insert(pod.uid(), Instant::now() + EVICTION_RETRY_INTERVAL);
            let (namespace, pod) = (pod.namespace().unwrap_or_default(), pod.name_any());
            let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            match api.evict(&pod, &EvictParams::default()).await {
                Ok(_) => print_to_stdout(format_args!("{namespace}/{pod}: evicted")),
                Err(kube::Error::Api(refused)) if refused.code == 404 => {}
                Err(kube::Error::Api(refused)) if refused.code == 429 => {
                    print_to_stdout(format_args!("{namespace}/{pod}: not evicted yet: {}", refused.message));
                }
                Err(error) => return Err(error).with_context(|| format!("evict the pod {namespace}/{pod}")),
            }
        }
        if drain.timeout.is_some_and(|it| it < began.elapsed()) {
            let remaining: Vec<_> = remaining.iter().map(|it| it.name_any()).collect();
            bail!("the node {name:?} is cordoned, but still has {}", remaining.join(", "));
        }
        tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
    }
}

/// Whether `drain` evicts a pod. It evicts neither mirror pods nor pods of DaemonSets, because these would be created
/// again immediately.
fn is_evicted_by_drain(pod: &Pod) -> bool {
    let of_daemons =
        pod.owner_references().iter().any(|it| it.controller == Some(true) && it.kind == "DaemonSet");
    !of_daemons && !pod.annotations().contains_key(ANNOTATION_CONFIG_MIRROR)
}

/// Parses a label in the format `KEY=VALUE`.
pub(crate) fn parse_label(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => bail!("{text:?} is not KEY=VALUE"),
    }
}

/// Parses `KEY[=VALUE]:EFFECT` into a taint.
pub(crate) fn parse_taint(text: &str) -> anyhow::Result<Value> {
    let parts = text.rsplit_once(':').filter(|(key, _)| !key.is_empty());
    let Some((key, effect)) = parts else { bail!("{text:?} is not KEY=VALUE:EFFECT or KEY:EFFECT") };
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        bail!("the taint effect {effect:?} is not NoSchedule, PreferNoSchedule or NoExecute");
    }
    let (key, value) = key.split_once('=').unwrap_or((key, ""));
    Ok(json!({"key": key, "value": value, "effect": effect}))
}
