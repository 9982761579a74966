//! Finds pods that exceed their ephemeral storage limits. `engine::kubelet::eviction` has the rules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use kube::ResourceExt as _;
use muster_api::quantity::Quantity;
use muster_api::resources::spec_total_with_overhead;
use muster_engine::kubelet::eviction::{PodStorage, StorageLimit, StorageUsage, exceeded_limit};
use tokio::time::Instant;

use super::stats;
use crate::node::NodeAgent;
use crate::parsed_pod::ParsedPod;
use crate::runtime::{Runtime, RuntimeError};

const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Minimum interval between two measurements of a pod's disk usage, as a multiple of the time that the earlier one
/// took. With 100, measuring takes at most 1 % of a core for each pod.
const MEASURE_INTERVAL_FACTOR_MIN: u32 = 100;

/// Checks the disk usage of pods against their ephemeral storage limits. The map has the time of each pod's next
/// measurement, by pod UID.
#[derive(Debug, Default)]
pub(super) struct StorageLimitChecker(BTreeMap<String, Instant>);

impl StorageLimitChecker {
    /// Measures the pods whose next measurement is due, and returns those that exceed a limit, each with the limit and
    /// the eviction message. Pods without limits are not measured. `every` is the minimum interval between two
    /// measurements of a pod.
    pub(super) async fn pods_over_limit<R: Runtime>(
        &mut self,
        node: &NodeAgent<R>,
        pods: &[Arc<ParsedPod>],
        every: Duration,
    ) -> Vec<(Arc<ParsedPod>, StorageLimit, String)> {
        let mut over = Vec::new();
        let mut next = BTreeMap::new();
        for pod in pods {
            let Some(mut storage) = storage_limits(pod) else { continue };
            let uid = pod.uid().unwrap_or_default();
            let began = Instant::now();
            if let Some(at) = self.0.get(&uid).filter(|at| began < **at) {
                next.insert(uid, *at);
                continue;
            }
            match measure_storage(node, pod, &mut storage).await {
                Ok(()) => {
                    let excess = exceeded_limit(&storage);
                    over.extend(excess.map(|(limit, message)| (pod.clone(), limit, message)));
                }
                Err(error) => {
                    tracing::debug!(pod = pod.name_any(), %error, "cannot measure the pod's disk usage")
                }
            }
            next.insert(uid, began + every.max(began.elapsed() * MEASURE_INTERVAL_FACTOR_MIN));
        }
        self.0 = next;
        over
    }
}

/// Returns the ephemeral storage limits of a pod: those of its emptyDir volumes on disk, of each main container, and of
/// all containers together. Returns `None` if the pod has no limits. The usage in the result is not measured yet.
fn storage_limits(pod: &ParsedPod) -> Option<PodStorage> {
    let spec = pod.spec.as_ref()?;
    let limit = |name: &str, limit: Quantity| StorageUsage { name: name.into(), limit, used: 0 };
    let some = |it: &Quantity| !it.is_zero() && !it.is_negative();
    let of_volume = |it: &core::Volume| {
        let source =
            it.empty_dir.as_ref().filter(|it| it.medium.as_deref().unwrap_or_default().is_empty())?;
        let size = Quantity::parse(&source.size_limit.as_ref()?.0).ok().filter(some)?;
        Some(limit(&it.name, size))
    };
    let together = spec_total_with_overhead(&pod.json["spec"], "limits");
    let of_each = pod.main_containers().filter_map(|it| {
        let stated = it.limits().remove(EPHEMERAL_STORAGE).filter(some)?;
        Some(limit(&it.container.name, stated))
    });
    let storage = PodStorage {
        volumes: spec.volumes.iter().flatten().filter_map(of_volume).collect(),
        pod: together.get(EPHEMERAL_STORAGE).copied().filter(some).map(|it| limit("", it)),
        containers: of_each.collect(),
    };
    (storage != PodStorage::default()).then_some(storage)
}

/// Measures the disk usage of a pod, of its volumes and of its containers, and records it in `storage`. The usage of the
/// pod includes its directory, its logs, and the writable layers of its containers. If neither the pod nor a container
/// has a limit, only the volumes are measured.
async fn measure_storage<R: Runtime>(
    node: &NodeAgent<R>,
    pod: &core::Pod,
    storage: &mut PodStorage,
) -> Result<(), RuntimeError> {
    let (uid, name, namespace) =
        (pod.uid().unwrap_or_default(), pod.name_any(), pod.namespace().unwrap_or_default());
    for volume in &mut storage.volumes {
        if let Some(dir) = node.volumes.empty_dir_path(&uid, &volume.name) {
            volume.used = saturating_i64(stats::disk_usage(dir).await.0);
        }
    }
    let Some(whole) = &mut storage.pod else { return Ok(()) };
    // Of several instances of a container, only the largest layer counts.
    let mut layers: BTreeMap<String, u64> = BTreeMap::new();
    for stats in node.runtime.container_stats(Some(&uid)).await? {
        let name = stats::container_name(&stats).to_owned();
        let layer = stats.writable_layer.and_then(|it| it.used_bytes).map_or(0, |it| it.value);
        let largest = layers.entry(name).or_default();
        *largest = layer.max(*largest);
    }
    let mut all = stats::disk_usage(node.config.pod_dir(&uid)).await.0;
    let logs = node.config.log_dir(&namespace, &name, &uid);
    for (name, layer) in layers {
        let used_bytes = layer + stats::disk_usage(logs.join(&name)).await.0;
        all += used_bytes;
        if let Some(container) = storage.containers.iter_mut().find(|it| *it.name == *name) {
            container.used = saturating_i64(used_bytes);
        }
    }
    whole.used = saturating_i64(all);
    Ok(())
}

/// Converts a number to `i64`. A larger number becomes `i64::MAX`.
fn saturating_i64(it: u64) -> i64 {
    i64::try_from(it).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_limits_of_a_pod_are_read() {
        let storage = |spec: serde_json::Value| {
            let pod =
                ParsedPod::new(json!({"metadata": {"name": "web", "uid": "u1"}, "spec": spec})).unwrap();
            let Some(PodStorage { volumes, pod: whole, containers }) = storage_limits(&pod) else {
                return "none".to_owned();
            };
            let list = |of: Vec<StorageUsage>| {
                of.iter().map(|it| format!("{}={}", it.name, it.limit)).collect::<Vec<_>>().join(" ")
            };
            let whole = whole.map_or("-".to_owned(), |it| it.limit.to_string());
            format!("volumes [{}] whole {whole} containers [{}]", list(volumes), list(containers))
        };
        let limited = |name: &str, limit: &str| json!({"name": name, "resources": {"limits": {"ephemeral-storage": limit, "memory": "1Gi"}}});
        let said = [
            storage(json!({"containers": [{"name": "a"}], "volumes": [{"name": "v", "emptyDir": {}}]})),
            storage(json!({"containers": [{"name": "a"}], "volumes": [
                {"name": "disk", "emptyDir": {"sizeLimit": "1Mi"}},
                {"name": "memory", "emptyDir": {"sizeLimit": "1Mi", "medium": "Memory"}},
                {"name": "nothing", "emptyDir": {"sizeLimit": "0"}},
            ]})),
            storage(json!({
                "containers": [limited("a", "1Mi"), limited("b", "2Mi"), {"name": "c"}],
                "initContainers": [limited("i", "10Mi")],
            })),
            storage(json!({
                "containers": [limited("a", "1Mi")],
                "overhead": {"ephemeral-storage": "2Mi"},
            })),
        ];
        expect![[r#"
            none
            volumes [disk=1Mi] whole - containers []
            volumes [] whole 10Mi containers [a=1Mi b=2Mi]
            volumes [] whole 3Mi containers [a=1Mi]"#]]
        .assert_eq(&said.join("\n"));
    }
}
