//! `muster sim-node`: simulated nodes are made, told to fail, and taken away, while whoever plays them runs on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use muster_agent::sim::{self, FAIL, FLEET, New, Trouble};
use serde_json::{Value, json};

use crate::logging::print;
use crate::sim_nodes::{Cluster, FLEET_OF_UP};
use crate::span;

/// Between two tries to evict a pod that its budget protects. As kubectl.
const EVICT_AGAIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Make simulated nodes, tell them to fail, and take them away
///
/// They are told by annotations, so kubectl can do the same: `muster sim-node fail sim-1 --how silent` is
/// `kubectl annotate node sim-1 sim.muster.dev/fail=silent`. docs/simulated-nodes.md lists all of them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster sim-node list
  muster sim-node add --count 10 --label disk=ssd --taint gpu=yes:NoSchedule
  muster sim-node fail sim-2 --how not-ready
  muster sim-node recover sim-2
  muster sim-node drain sim-3
  muster sim-node remove sim-3")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the simulated nodes, and what they were told
    List,
    Add(Add),
    /// Delete nodes; their pods go with them
    Remove {
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
    Fail(Fail),
    /// Take back whatever nodes were told with `fail`, and let pods in again
    Recover {
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
    Drain(Drain),
}

/// Add nodes to a fleet that somebody plays
#[derive(Debug, clap::Args)]
struct Add {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "name")]
    count: u16,
    /// What the node is called [default: the next of its fleet]
    #[arg(long, value_name = "NODE")]
    name: Option<String>,
    /// A label beside those that every node has; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// A taint; may be given more than once
    #[arg(long = "taint", value_name = "KEY[=VALUE]:EFFECT", value_parser = taint)]
    taints: Vec<Value>,
    /// Whose they are: the --name-prefix of `muster sim-nodes`
    #[arg(long, value_name = "FLEET", default_value = FLEET_OF_UP)]
    fleet: String,
}

/// Tell nodes to fail, until they are told to recover
#[derive(Debug, clap::Args)]
#[command(after_help = "  not-ready             Ready is False, and it starts and stops nothing
  memory-pressure, disk-pressure, pid-pressure, network-unavailable
                        the condition of that name
  silent                no heartbeats and no reports: it is thought lost after a while
  vanish                its Node object is deleted; `add --name NODE` brings it back
  slow-start            containers take half a minute to start")]
struct Fail {
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// In which way; may be given more than once
    #[arg(long, value_name = "HOW", required = true, value_parser = Trouble::parse)]
    how: Vec<Trouble>,
}

/// Let no new pod in, and evict all but those of DaemonSets, as `kubectl drain --ignore-daemonsets` does
#[derive(Debug, clap::Args)]
struct Drain {
    #[arg(value_name = "NODE")]
    node: String,
    /// Give up after so long: 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let client = args.cluster.client().await?;
    match args.command {
        Command::List => list(&client).await,
        Command::Add(add) => self::add(&client, add).await,
        Command::Remove { nodes } => {
            for name in nodes {
                simulated(&client, &name).await?;
                let all: Api<Node> = Api::all(client.clone());
                let deleted = all.delete(&name, &DeleteParams::default()).await;
                deleted.with_context(|| format!("delete the node {name:?}"))?;
                print(format_args!("{name}: removed"));
            }
            Ok(())
        }
        Command::Fail(fail) => {
            let how = fail.how.iter().map(|it| it.name()).collect::<Vec<_>>().join(",");
            for name in fail.nodes {
                simulated(&client, &name).await?;
                patch(&client, &name, json!({"metadata": {"annotations": {FAIL: how}}})).await?;
                print(format_args!("{name}: {how}"));
            }
            Ok(())
        }
        Command::Recover { nodes } => {
            for name in nodes {
                simulated(&client, &name).await?;
                let recovered =
                    json!({"metadata": {"annotations": {FAIL: null}}, "spec": {"unschedulable": null}});
                patch(&client, &name, recovered).await?;
                print(format_args!("{name}: recovers"));
            }
            Ok(())
        }
        Command::Drain(drain) => self::drain(&client, &drain).await,
    }
}

async fn list(client: &Client) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default().labels(FLEET)).await.context("list the nodes")?;
    print(format_args!("{:<24} {:<12} {:<10} TOLD", "NODE", "FLEET", "READY"));
    for node in nodes {
        let conditions = node.status.as_ref().and_then(|it| it.conditions.as_deref()).unwrap_or_default();
        let ready = conditions.iter().find(|it| it.type_ == "Ready").map_or("Unknown", |it| &it.status);
        let fleet = node.labels().get(FLEET).map_or("", |it| it);
        let mut told = node.annotations().get(FAIL).cloned().unwrap_or_default();
        if node.spec.as_ref().and_then(|it| it.unschedulable).unwrap_or_default() {
            told = if told.is_empty() { "cordoned".into() } else { format!("{told}, cordoned") };
        }
        print(format_args!("{:<24} {fleet:<12} {ready:<10} {told}", node.name_any()));
    }
    Ok(())
}

async fn add(client: &Client, add: Add) -> anyhow::Result<()> {
    let mut numbers = sim::free(client).await.context("list the nodes")?;
    let prefix = if add.fleet == FLEET_OF_UP { "sim" } else { &add.fleet };
    let labels: BTreeMap<String, String> = add.labels.into_iter().collect();
    for _ in 0..add.count {
        loop {
            let Some(number) = numbers.next() else {
                bail!("there are no more than {} simulated nodes", sim::NODES_MAX)
            };
            let name = add.name.clone().unwrap_or_else(|| format!("{prefix}-{number}"));
            let (fleet, labels, taints) = (add.fleet.clone(), labels.clone(), add.taints.clone());
            match sim::add(client, &New { name: name.clone(), number, fleet, labels, taints }).await {
                // Somebody else's node has the name.
                Err(kube::Error::Api(refused)) if refused.code == 409 && add.name.is_none() => {}
                done => {
                    done.with_context(|| format!("create the node {name:?}"))?;
                    print(format_args!("{name}: added"));
                    break;
                }
            }
        }
    }
    Ok(())
}

/// The others would not hear.
async fn simulated(client: &Client, name: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    match nodes.get_opt(name).await.with_context(|| format!("read the node {name:?}"))? {
        Some(node) if node.labels().contains_key(FLEET) => Ok(()),
        Some(_) => bail!("the node {name:?} is not a simulated one: it has no label {FLEET}"),
        None => bail!(
            "there is no node {name:?}: `muster sim-node list` shows them all, and `muster sim-node add --name {name}` makes it"
        ),
    }
}

async fn patch(client: &Client, name: &str, patch: Value) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patched = nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).with_context(|| format!("change the node {name:?}"))
}

async fn drain(client: &Client, drain: &Drain) -> anyhow::Result<()> {
    let name = &drain.node;
    simulated(client, name).await?;
    patch(client, name, json!({"spec": {"unschedulable": true}})).await?;
    print(format_args!("{name}: cordoned"));
    let began = Instant::now();
    let pods: Api<Pod> = Api::all(client.clone());
    let here = ListParams::default().fields(&format!("spec.nodeName={name}"));
    let mut again_at = BTreeMap::new();
    loop {
        let pods = pods.list(&here).await.context("list the pods of the node")?;
        let left: Vec<&Pod> = pods.iter().filter(|it| goes(it)).collect();
        if left.is_empty() {
            print(format_args!("{name}: drained"));
            return Ok(());
        }
        for pod in &left {
            let due = again_at.get(&pod.uid()).is_none_or(|it: &Instant| *it <= Instant::now());
            if pod.metadata.deletion_timestamp.is_some() || !due {
                continue;
            }
            again_at.insert(pod.uid(), Instant::now() + EVICT_AGAIN);
            let (namespace, pod) = (pod.namespace().unwrap_or_default(), pod.name_any());
            let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            match api.evict(&pod, &EvictParams::default()).await {
                Ok(_) => print(format_args!("{namespace}/{pod}: evicted")),
                Err(kube::Error::Api(refused)) if refused.code == 404 => {}
                Err(kube::Error::Api(refused)) if refused.code == 429 => {
                    print(format_args!("{namespace}/{pod}: stays for now: {}", refused.message));
                }
                Err(error) => return Err(error).with_context(|| format!("evict the pod {namespace}/{pod}")),
            }
        }
        if drain.timeout.is_some_and(|it| it < began.elapsed()) {
            let left: Vec<_> = left.iter().map(|it| it.name_any()).collect();
            bail!("the node {name:?} is cordoned, but still has {}", left.join(", "));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// A DaemonSet would bring its pod back at once, and a mirror is nobody's to evict.
fn goes(pod: &Pod) -> bool {
    let of_daemons =
        pod.owner_references().iter().any(|it| it.controller == Some(true) && it.kind == "DaemonSet");
    !of_daemons && !pod.annotations().contains_key("kubernetes.io/config.mirror")
}

pub(crate) fn label(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => bail!("{text:?} is not KEY=VALUE"),
    }
}

pub(crate) fn taint(text: &str) -> anyhow::Result<Value> {
    let parts = text.rsplit_once(':').filter(|(key, _)| !key.is_empty());
    let Some((key, effect)) = parts else { bail!("{text:?} is not KEY=VALUE:EFFECT or KEY:EFFECT") };
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        bail!("the effect {effect:?} of the taint is none of NoSchedule, PreferNoSchedule and NoExecute");
    }
    let (key, value) = key.split_once('=').unwrap_or((key, ""));
    Ok(json!({"key": key, "value": value, "effect": effect}))
}
