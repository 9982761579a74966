//! `muster explain`: explains why a DaemonSet has a pod on a node, or has none.

use anyhow::{Context as _, bail};
use kube::Client;

use crate::controller::KubeconfigFlags;
use crate::logging::print_to_stdout;

/// Explain for every node whether a DaemonSet's pod runs there, whether it should, and why not
///
/// Reads the DaemonSet, its pods and revisions, and all nodes, and applies the controller's own rules to them: which
/// taint, label, affinity term, port or resource keeps a pod away, and what a rollout is waiting for. Works with any
/// Kubernetes cluster, needs read access only, and changes nothing.
///
/// In-memory state of the running controller (backoff of failed pods, writes in flight, time of the next reconcile) is
/// queried through the API server of `muster up`, or at the URL of --controller. This state is omitted if neither is
/// available.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster explain ds/fluent-bit -n logging               a summary, and the nodes grouped by reason
  muster explain ds/fluent-bit -n logging --node n7     details about one node
  muster explain ds/fluent-bit -n logging -o wide       one line per node
  muster explain ds/fluent-bit -n logging -o json | jq '.nodes[] | select(.shouldRun and .state != \"upToDate\")'
  muster explain ds/fluent-bit -n logging --controller http://127.0.0.1:8080")]
pub(crate) struct ExplainArgs {
    /// DaemonSet to explain: ds/NAME, daemonset/NAME, or `ds NAME`
    #[arg(value_name = "ds/NAME", required = true, num_args = 1..=2)]
    set: Vec<String>,
    /// Namespace of the DaemonSet [default: that of the kubeconfig's context, or `default`]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// Show only this node, in detail
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Output format: table (nodes grouped by reason), wide (one line per node) or json
    #[arg(long, short, value_name = "FORMAT", default_value = "table", value_parser = ["table", "wide", "json"])]
    output: String,
    /// URL of the metrics address of `muster controller`, for example of a port-forward: http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    controller: Option<String>,
    #[command(flatten)]
    cluster: KubeconfigFlags,
}

/// Executes `muster explain`.
pub(crate) async fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let name = parse_daemonset_name(&args.set)?;
    let config = args.cluster.client_config().await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    for it in [&namespace, name] {
        if it.is_empty() || it.contains(|it: char| !it.is_ascii_alphanumeric() && !"-.".contains(it)) {
            bail!("{it:?} is not a name");
        }
    }
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config)?;
    let explained = muster_control::explain(&client, &namespace, name, args.controller.as_deref()).await;
    let explained = explained.with_context(|| format!("at {server}"))?;
    let node = args.node.as_deref();
    if let Some(node) =
        node.filter(|node| explained.nodes.iter().all(|it| it.explained.node.as_ref() != *node))
    {
        bail!("there is no node {node}, and no pod of {namespace}/{name} on it");
    }
    match (args.output.as_str(), node) {
        ("json", node) => print_to_stdout(format_args!("{:#}", explained.to_json(node))),
        (_, Some(node)) => print_to_stdout(explained.node_text(node).unwrap_or_default()),
        ("wide", None) => print_to_stdout(explained.to_wide_text()),
        _ => print_to_stdout(explained),
    }
    Ok(())
}

/// Parses the name of a DaemonSet from `ds/NAME`, `ds NAME` or `NAME`. Instead of `ds`, longer names such as
/// `daemonset` are accepted.
pub(crate) fn parse_daemonset_name(words: &[String]) -> anyhow::Result<&str> {
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
                .map(|it| parse_daemonset_name(it).map_or_else(|it| it.to_string(), ToOwned::to_owned))
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
