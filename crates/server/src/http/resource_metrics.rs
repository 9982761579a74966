//! `metrics.k8s.io`: CPU and memory usage of nodes and pods, read from the agents for each request. An agent is trusted
//! only for its node and the pods that are bound to that node. Anything else in the agent's stats summary is ignored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use http_body_util::Full;
use hyper::Request;
use jiff::Timestamp;
use muster_store::StoredObject;
use serde_json::{Value, json};

use super::Api;
use crate::agents;
use crate::error::ApiError;
use crate::kinds::{Kind, MeteredResource};
use crate::selector::ObjectSelector;
use crate::storage::{ListMeta, ListPage};
use crate::unstructured::{self, list_at};

/// Maximum number of agents that are queried concurrently. At 10 ms for each agent, 5,000 agents take a second.
const CONCURRENT_AGENTS_MAX: usize = 50;

/// Timeout for reading the stats summary of one node from its agent. A node whose agent does not respond within this
/// timeout is left out of the metrics.
const NODE_SUMMARY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size in bytes of a node's stats summary: enough for 250 pods with 16 containers each, at one kilobyte per
/// container.
const SUMMARY_BYTES_MAX: usize = 4 << 20;

impl Api {
    /// Returns the `NodeMetrics` or `PodMetrics` of the nodes or pods that the selector matches. A node whose agent
    /// does not respond is left out, and so are its pods. Nodes and pods whose usage the agent does not know are left
    /// out too.
    pub(super) async fn read_resource_metrics(
        &self,
        kind: &'static Kind,
        of: MeteredResource,
        namespace: Option<&str>,
        selector: &ObjectSelector,
    ) -> Result<ListPage, ApiError> {
        let plural = if of == MeteredResource::Nodes { "nodes" } else { "pods" };
        let source = Kind::builtin("", "v1", plural);
        let (records, revision) = self.registry.storage.list_records(source, namespace, selector);
        let mut by_node: BTreeMap<String, Vec<Arc<StoredObject>>> = BTreeMap::new();
        for record in records {
            let node = match of {
                MeteredResource::Nodes => record.key.rsplit('/').next(),
                MeteredResource::Pods => record.index.field("spec.nodeName"),
            };
            if let Some(node) = node.map(str::to_owned) {
                by_node.entry(node).or_default().push(record);
            }
        }
        let measured = stream::iter(by_node.into_iter().map(|(node, records)| async move {
            let summary = tokio::time::timeout(NODE_SUMMARY_TIMEOUT, self.read_stats_summary(&node))
                .await
                .ok()
                .flatten()?;
            let measured = records
                .iter()
                .filter_map(|it| metrics_object(kind, of, &unstructured::parse_stored(&it.value), &summary));
            Some(measured.collect::<Vec<_>>())
        }));
        let measured: Vec<_> = measured.buffer_unordered(CONCURRENT_AGENTS_MAX).collect().await;
        let mut objects: Vec<Value> = measured.into_iter().flatten().flatten().collect();
        let name = |it: &Value| ["namespace", "name"].map(|at| it["metadata"][at].to_string());
        objects.sort_by_cached_key(name);
        let meta = ListMeta { revision, continue_token: String::new(), remaining: None };
        Ok(ListPage { objects: objects.iter().map(unstructured::to_bytes).collect(), meta })
    }

    /// Reads the stats summary of a node from its agent. Returns `None` if the node has no agent address, the agent
    /// cannot be reached, or its response is invalid.
    async fn read_stats_summary(&self, node: &str) -> Option<Value> {
        let place = self.agent_address(node)?;
        let request = Request::get("/stats/summary").body(Full::new(Bytes::new())).ok()?;
        let summary = async {
            let answer = self.agents.as_ref()?.send(&place, request).await;
            let answer = answer
                .inspect_err(|error| tracing::debug!(node, %error, "cannot read the stats summary of a node"))
                .ok()?;
            if !answer.status().is_success() {
                return None;
            }
            let body = agents::read_body(answer.into_body(), SUMMARY_BYTES_MAX).await.ok()?;
            serde_json::from_slice(&body).ok()
        };
        summary.await
    }
}

/// Builds the `NodeMetrics` of a Node or the `PodMetrics` of a pod from the stats summary of the node. Returns `None`
/// if the summary does not contain the pod, or if the CPU or memory usage of the node or of a container of the pod is
/// missing. The CPU usage is missing until the agent has taken two samples.
fn metrics_object(kind: &Kind, of: MeteredResource, object: &Value, summary: &Value) -> Option<Value> {
    let meta = &object["metadata"];
    let mut metadata = json!({"name": meta["name"]});
    if unstructured::is_set(&meta["labels"]) {
        metadata["labels"] = meta["labels"].clone();
    }
    let mut measured = json!({"apiVersion": kind.api_version(), "kind": kind.kind});
    let time = match of {
        MeteredResource::Nodes => {
            measured["usage"] = usage_quantities(&summary["node"])?;
            &summary["node"]["cpu"]["time"]
        }
        MeteredResource::Pods => {
            metadata["namespace"] = meta["namespace"].clone();
            let is_same_pod =
                |it: &&Value| ["name", "namespace"].iter().all(|at| it["podRef"][at] == meta[at]);
            let pod = list_at(summary, "pods").iter().find(is_same_pod)?;
            let containers = list_at(pod, "containers");
            let container =
                |it: &Value| Some(json!({"name": it["name"].as_str()?, "usage": usage_quantities(it)?}));
            measured["containers"] = containers.iter().map(container).collect::<Option<Vec<_>>>()?.into();
            containers.first().map_or(&Value::Null, |it| &it["cpu"]["time"])
        }
    };
    let at = time.as_str().and_then(|it| it.parse::<Timestamp>().ok()).unwrap_or_else(Timestamp::now);
    metadata["creationTimestamp"] = json!(unstructured::format_time(at));
    measured["metadata"] = metadata;
    measured["timestamp"] = json!(unstructured::format_time(at));
    measured["window"] = json!(SAMPLING_WINDOW);
    Some(measured)
}

/// Value of the field `window` of the metrics: the agent's nominal sampling interval, over which CPU usage is measured.
const SAMPLING_WINDOW: &str = "10s";

/// Returns the usage of a node or container in the units of metrics-server: CPU in nanocores, memory in KiB. `of` is
/// the part of the stats summary about the node or container. Returns `None` if the CPU or memory usage is missing.
fn usage_quantities(of: &Value) -> Option<Value> {
    let cpu = of["cpu"]["usageNanoCores"].as_u64()?;
    let memory = of["memory"]["workingSetBytes"].as_u64()?;
    Some(json!({"cpu": format!("{cpu}n"), "memory": format!("{}Ki", memory / 1024)}))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::table_printer::total_usage;

    #[test]
    fn a_node_speaks_for_itself_and_for_its_pods() {
        let used = |cpu: u64, memory: u64| {
            json!({
                "name": "c",
                "cpu": {"time": "2026-01-02T03:04:05Z", "usageNanoCores": cpu},
                "memory": {"workingSetBytes": memory},
            })
        };
        let pod = |name: &str, uid: &str| json!({"metadata": {"name": name, "namespace": "a", "uid": uid}});
        let said = |name: &str, uid: &str, containers: Value| json!({"podRef": {"name": name, "namespace": "a", "uid": uid}, "containers": containers});
        let unknown = json!({"name": "c", "cpu": {}, "memory": {"workingSetBytes": 1}});
        let summary = json!({
            "node": used(1_500_000_000, 1 << 30),
            "pods": [
                said("p", "1", json!([used(7, 2048), used(1, 4096)])),
                said("q", "2", json!([unknown])),
            ],
        });
        let kind = |plural| Kind::builtin("metrics.k8s.io", "v1beta1", plural);
        let node = json!({"metadata": {"name": "n", "labels": {"l": "v"}}});
        let measured = [
            metrics_object(kind("nodes"), MeteredResource::Nodes, &node, &summary),
            metrics_object(kind("pods"), MeteredResource::Pods, &pod("p", "1"), &summary),
            // The node has no such pod, or does not know what it uses.
            metrics_object(kind("pods"), MeteredResource::Pods, &pod("r", "1"), &summary),
            metrics_object(kind("pods"), MeteredResource::Pods, &pod("q", "2"), &summary),
            metrics_object(
                kind("nodes"),
                MeteredResource::Nodes,
                &node,
                &json!({"node": "garbage", "pods": 5}),
            ),
        ];
        let lines =
            measured.iter().map(|it| it.as_ref().map_or("nothing".to_owned(), Value::to_string) + "\n");
        expect![[r#"
            {"apiVersion":"metrics.k8s.io/v1beta1","kind":"NodeMetrics","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"l":"v"},"name":"n"},"timestamp":"2026-01-02T03:04:05Z","usage":{"cpu":"1500000000n","memory":"1048576Ki"},"window":"10s"}
            {"apiVersion":"metrics.k8s.io/v1beta1","containers":[{"name":"c","usage":{"cpu":"7n","memory":"2Ki"}},{"name":"c","usage":{"cpu":"1n","memory":"4Ki"}}],"kind":"PodMetrics","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","name":"p","namespace":"a"},"timestamp":"2026-01-02T03:04:05Z","window":"10s"}
            nothing
            nothing
            nothing
        "#]]
        .assert_eq(&lines.collect::<String>());
        let sums = measured[..2]
            .iter()
            .flatten()
            .map(|it| ["cpu", "memory"].map(|of| total_usage(it, of).to_string()));
        assert_eq!(
            sums.collect::<Vec<_>>().concat().join(" "),
            "\"1500000000n\" \"1048576Ki\" \"8n\" \"6Ki\""
        );
    }
}
