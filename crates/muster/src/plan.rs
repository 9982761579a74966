//! `muster plan`: previews the rollout that applying a manifest would cause.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use kube::Client;
use muster_control::{ApplyMode, PlanError, PlannedSet, RolloutPreview};
use serde_json::{Value, json};

use crate::controller::KubeconfigFlags;
use crate::logging::print_to_stdout;

/// Preview what applying a manifest would do: which nodes gain or lose a pod, and the order of the rollout
///
/// Sends the manifest to the API server as a dry run, as `kubectl apply` would, so that defaulting and validation are
/// the cluster's own. Then runs the controller's rules in memory on a snapshot of the cluster with the resulting
/// DaemonSet. Works with any Kubernetes cluster; needs permission to read, and to create and patch DaemonSets. Changes
/// nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  muster plan -f fluent-bit.yaml                   what `kubectl apply -f fluent-bit.yaml` would do
  muster plan -f fluent-bit.yaml --server-side     what `kubectl apply --server-side` would do
  kustomize build . | muster plan -f -             from a pipe; other kinds are skipped
  muster plan -f fluent-bit.yaml -o json | jq '.plans[].rollout.batches'

Exit codes: 0 success, 1 the manifest is invalid or the API server rejected it, 2 invalid command line.")]
pub(crate) struct PlanArgs {
    /// YAML or JSON file with one or more documents; - reads standard input; repeatable
    #[arg(long = "filename", short, value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Namespace of objects without one [default: that of the kubeconfig's context, or `default`]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// Preview `kubectl apply --server-side` instead of `kubectl apply`
    #[arg(long)]
    server_side: bool,
    /// With --server-side: take ownership of fields that other managers own
    #[arg(long, requires = "server_side")]
    force_conflicts: bool,
    /// Output format: text or json
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    output: String,
    #[command(flatten)]
    cluster: KubeconfigFlags,
}

/// Size in bytes from which an input file is refused. It is several dozen times the maximum size of one object on an
/// API server.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Executes `muster plan`.
pub(crate) async fn run(args: &PlanArgs) -> anyhow::Result<()> {
    let config = args.cluster.client_config().await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let (mut sets, mut others) = (Vec::new(), Vec::new());
    for path in &args.files {
        for object in parse_objects(&read_input(path)?).with_context(|| format!("read {}", path.display()))? {
            let what = describe_object(&object);
            match PlannedSet::from_manifest(object, &namespace) {
                Ok(set) => sets.push(set),
                Err(PlanError::OtherKind { .. }) => others.push(what),
                Err(error) => return Err(error).with_context(|| format!("{}: {what}", path.display())),
            }
        }
    }
    if sets.is_empty() {
        bail!("no DaemonSet found{}", skipped_objects_note(&others));
    }
    let client = Client::try_from(config)?;
    let mode = if args.server_side {
        ApplyMode::ServerSide { force: args.force_conflicts }
    } else {
        ApplyMode::ClientSide
    };
    let mut previews: Vec<RolloutPreview> = Vec::new();
    for set in &sets {
        let preview = muster_control::plan(&client, set, mode).await;
        previews.push(preview.with_context(|| format!("DaemonSet {set}"))?);
    }
    if args.output == "json" {
        let plans: Vec<Value> = previews.iter().map(RolloutPreview::to_json).collect();
        print_to_stdout(format_args!("{:#}", json!({"plans": plans, "skipped": others})));
        return Ok(());
    }
    let texts: Vec<String> = previews.iter().map(ToString::to_string).collect();
    print_to_stdout(texts.join("\n"));
    if !others.is_empty() {
        print_to_stdout(format_args!("\nOnly DaemonSets are planned{}.", skipped_objects_note(&others)));
    }
    Ok(())
}

/// Returns a note that objects of kinds other than DaemonSet were skipped, or an empty string if `others` is empty.
fn skipped_objects_note(others: &[String]) -> String {
    if others.is_empty() { String::new() } else { format!("; skipped: {}", others.join(", ")) }
}

/// Reads a file, or standard input if the path is `-`.
fn read_input(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().take(INPUT_BYTES_MAX).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|it| it.take(INPUT_BYTES_MAX).read_to_string(&mut text))
    };
    let read = read.with_context(|| format!("read {}", path.display()))?;
    if u64::try_from(read).is_ok_and(|it| INPUT_BYTES_MAX <= it) {
        bail!("{} has {INPUT_BYTES_MAX} bytes or more, which is no manifest", path.display());
    }
    Ok(text)
}

/// Parses all objects of a YAML or JSON file. A List is split into its items, and empty documents are skipped.
fn parse_objects(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in serde_saphyr::from_multiple::<Value>(text)? {
        match document {
            Value::Null => {}
            mut list if list["kind"].as_str().is_some_and(|it| it.ends_with("List")) => {
                match list["items"].take() {
                    Value::Array(items) => objects.extend(items),
                    _ => bail!("a {} without items", list["kind"].as_str().unwrap_or_default()),
                }
            }
            object => objects.push(object),
        }
    }
    Ok(objects)
}

/// Formats kind and name of an object for messages.
fn describe_object(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("an object without a kind");
    match object["metadata"]["name"].as_str() {
        Some(name) => format!("{kind} {name}"),
        None => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_file() {
        let said = |text: &str| match parse_objects(text) {
            Ok(all) => all.iter().map(describe_object).collect::<Vec<_>>().join(", "),
            Err(error) => format!("refused: {}", error.to_string().lines().next().unwrap_or_default()),
        };
        let files = [
            "kind: DaemonSet\nmetadata: {name: a}\n---\n---\n# nothing\n---\nkind: Service\nmetadata: {name: b}\n",
            r#"{"kind": "List", "items": [{"kind": "DaemonSet", "metadata": {"name": "a"}}, {"kind": "Pod"}]}"#,
            "kind: List\n",
            "a: [",
            "",
        ];
        expect_test::expect![[r#"
            DaemonSet a, Service b
            DaemonSet a, Pod
            refused: a List without items
            refused: error: line 1 column 4: unclosed bracket '['
        "#]]
        .assert_eq(&files.map(said).join("\n"));
    }
}
