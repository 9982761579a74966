//! Admission of pods on the node, before their volumes and sandboxes are prepared. `engine::kubelet` has the rules.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use muster_api::qos::QosClass;
use muster_api::taints::{Taint, TaintEffect, Toleration};
use muster_api::text::Text;
use muster_api::well_known::TAINT_NODE_MEMORY_PRESSURE;
use muster_engine::kubelet::eviction;
use muster_engine::kubelet::pod::PodTermination;
use muster_engine::kubelet::pod::admission::{Admission, admit, preemption, rejection};

use super::NodeAgent;
use super::pod_manager::PodEntry;
use crate::runtime::Runtime;

/// Maximum time that a pod waits for preempted pods to terminate before its admission is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout for a response of the API server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until the pod is admitted or rejected, and preempts other pods if the admission requires it. Returns the
/// rejection, or `None` if the pod is admitted. Also returns `None` for a pod that is deleted or terminated, and for an
/// orphan. Never returns for a new pod while the node is suspended.
pub(super) async fn admit_pod<R: Runtime>(
    node: &Arc<NodeAgent<R>>,
    entry: &Arc<PodEntry>,
) -> Option<PodTermination> {
    let object = entry.snapshot().object;
    let (Some(candidate), Some(spec)) = (&entry.candidate, &object.spec) else { return None };
    // A pod that was admitted before stays admitted; a pod that is being deleted is not checked.
    if candidate.was_admitted || object.metadata.deletion_timestamp.is_some() {
        entry.set_admitted();
        return None;
    }
    if node.state.is_shutting_down() {
        return Some(rejection("NodeShutdown".into(), "Pod was rejected as the node is shutting down."));
    }
    if node.state.is_suspended() {
        // The pod is admitted by the next agent.
        return std::future::pending().await;
    }
    let pressures = *node.state.watch_pressures().borrow();
    let is_best_effort = object.qos == QosClass::BestEffort;
    let tolerates = tolerates_memory_pressure(spec);
    if let Err(why) = eviction::admit(pressures, candidate.is_critical(), is_best_effort, tolerates) {
        return Some(rejection("Evicted".into(), &why));
    }
    let runtimes = runtime_classes(node, spec).await;
    loop {
        let verdict = node.pods.with_admitted_pods(|others| {
            let own = node.state.scheduler_node();
            // A node that is not registered yet admits its static pods.
            let verdict = own.map_or(Admission::Admitted, |own| admit(&own, others, candidate, &runtimes));
            if verdict == Admission::Admitted {
                entry.set_admitted();
            }
            verdict
        });
        match verdict {
            Admission::Admitted => return None,
            Admission::Rejected(ending) => return Some(ending),
            Admission::AfterOthers(uids) => {
                for uid in uids {
                    if let Some(other) = node.pods.get(&uid) {
                        other.terminate(preemption());
                    }
                }
            }
        }
        tokio::time::timeout(RETRY_INTERVAL, node.pods.wait_for_change()).await.ok();
        if entry.should_stop() {
            return None;
        }
    }
}

/// Returns a set with the name of the pod's RuntimeClass. The set is empty if the pod names none, if the RuntimeClass
/// does not exist, or if the API server refuses the request. If the API server does not respond, the RuntimeClass is
/// assumed to exist.
async fn runtime_classes<R: Runtime>(node: &NodeAgent<R>, spec: &PodSpec) -> BTreeSet<Text> {
    let Some(name) = spec.runtime_class_name.as_deref().filter(|it| !it.is_empty()) else {
        return BTreeSet::new();
    };
    let classes: Api<RuntimeClass> = Api::all(node.client.clone());
    match tokio::time::timeout(RESPONSE_TIMEOUT, classes.get_opt(name)).await {
        Ok(Ok(Some(_))) => [name.into()].into(),
        Ok(Ok(None) | Err(kube::Error::Api(_))) => BTreeSet::new(),
        // Without a response the class is assumed to exist.
        Ok(Err(_)) | Err(_) => [name.into()].into(),
    }
}

/// Whether the pod tolerates the taint `node.kubernetes.io/memory-pressure` with the effect NoSchedule.
fn tolerates_memory_pressure(spec: &PodSpec) -> bool {
    let taint = Taint {
        key: TAINT_NODE_MEMORY_PRESSURE.into(),
        value: Text::default(),
        effect: TaintEffect::NoSchedule,
    };
    spec.tolerations.iter().flatten().any(|it| {
        let text = |it: &Option<String>| Text::from(it.as_deref().unwrap_or_default());
        let operator = it.operator.as_deref().unwrap_or_default();
        let effect = it.effect.as_deref().unwrap_or_default();
        Toleration::new(text(&it.key), operator, || text(&it.value), effect).tolerates(&taint)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn memory_pressure_is_tolerated_as_any_taint_is() {
        for (toleration, tolerates) in [
            (json!({"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}), true),
            (json!({"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}), true),
            (json!({"key": "node.kubernetes.io/memory-pressure", "value": "x"}), false),
            (json!({"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}), false),
            (json!({"operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"operator": "Equal"}), true),
            (json!({"key": "node.kubernetes.io/memory-pressure", "operator": "Similar"}), false),
        ] {
            let spec = json!({"containers": [], "tolerations": [toleration]});
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(tolerates_memory_pressure(&spec), tolerates, "{toleration}");
        }
    }
}
