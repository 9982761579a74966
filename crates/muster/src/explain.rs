//! `muster explain`: why a DaemonSet runs where it does.

use anyhow::{Context as _, bail};
use kube::Client;

use crate::controller::Cluster;
use crate::logging::print;

/// Say for every node whether a DaemonSet runs there, should, and why not
///
/// It reads the DaemonSet, its pods and revisions, and all nodes, and looks at them with the rules of the controller: which
/// taint, which label, which term of the affinity, which port or resource keeps a pod away, and what a rollout waits for. Any
/// Kubernetes cluster will do, and the right to read is enough. Nothing is changed.
///
/// What only the running controller knows (the waits after failed pods, its own writes under way, when it looks again) is asked
/// from it: through the API server of `muster up`, or where --controller says. Else it is not known from outside.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster explain ds/fluent-bit -n logging               a summary, and the nodes by reason
  muster explain ds/fluent-bit -n logging --node n7     all there is to say of one node
  muster explain ds/fluent-bit -n logging -o wide       every node in a line of its own
  muster explain ds/fluent-bit -n logging -o json | jq '.nodes[] | select(.shouldRun and .state != \"upToDate\")'
  muster explain ds/fluent-bit -n logging --controller http://127.0.0.1:8080")]
pub(crate) struct Args {
    /// The DaemonSet: ds/NAME, daemonset/NAME, or `ds NAME`
    #[arg(value_name = "ds/NAME", required = true, num_args = 1..=2)]
    set: Vec<String>,
    /// Its namespace [default: that of the kubeconfig's context, or `default`]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// Only this node, and all that can be said of it
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// table groups the nodes by reason, wide has a line for each, json is for programs
    #[arg(long, short, value_name = "FORMAT", default_value = "table", value_parser = ["table", "wide", "json"])]
    output: String,
    /// Where `muster controller` serves its metrics, such as http://127.0.0.1:8080; a port-forward will do
    #[arg(long, value_name = "URL")]
    controller: Option<String>,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let name = set_name(&args.set)?;
    let config = args.cluster.config().await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    for it in [&namespace, name] {
        if it.is_empty() || it.contains(|it: char| !it.is_ascii_alphanumeric() && !"-.".contains(it)) {
            bail!("{it:?} is not a name");
        }
    }
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config)?;
    let said = muster_control::explain(&client, &namespace, name, args.controller.as_deref()).await;
    let said = said.with_context(|| format!("at {server}"))?;
    let node = args.node.as_deref();
    if let Some(node) = node.filter(|node| said.nodes.iter().all(|it| it.is.node.as_ref() != *node)) {
        bail!("there is no node {node}, and no pod of {namespace}/{name} on it");
    }
    match (args.output.as_str(), node) {
        ("json", node) => print(format_args!("{:#}", said.to_json(node))),
        (_, Some(node)) => print(said.of_node(node).unwrap_or_default()),
        ("wide", None) => print(said.wide()),
        _ => print(said),
    }
    Ok(())
}

/// The name in `ds/NAME`, `ds NAME` or `NAME`.
pub(crate) fn set_name(words: &[String]) -> anyhow::Result<&str> {
    let (kind, name) = match words {
        [word] => word.split_once('/').map_or((None, word.as_str()), |(kind, name)| (Some(kind), name)),
        [kind, name] => (Some(kind.as_str()), name.as_str()),
        _ => bail!("one DaemonSet at a time: ds/NAME"),
    };
    match kind.map(str::to_ascii_lowercase).as_deref() {
        None | Some("ds" | "daemonset" | "daemonsets" | "daemonset.apps" | "daemonsets.apps") => Ok(name),
        Some(kind) => bail!("{kind} is not a DaemonSet: name one as ds/NAME"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_set_is_meant() {
        let said: Vec<String> =
            ["ds/web", "daemonset/web", "DaemonSets.apps/web", "ds web", "web", "deploy/web", "a b c"]
                .map(|it| it.split(' ').map(ToOwned::to_owned).collect::<Vec<_>>())
                .iter()
                .map(|it| set_name(it).map_or_else(|it| it.to_string(), ToOwned::to_owned))
                .collect();
        expect_test::expect![[r#"
            web
            web
            web
            web
            web
            deploy is not a DaemonSet: name one as ds/NAME
            one DaemonSet at a time: ds/NAME"#]]
        .assert_eq(&said.join("\n"));
    }
}
