//! Sums of the resource requests and limits of a pod, and whether its QoS class is BestEffort.

use muster_api::qos::QosClass;
use muster_api::resources::{ResourceQuantities, override_with_pod_level, quantities_from_json};
use serde_json::Value;

use crate::unstructured::str_at;
use crate::validation::resources::total_container_resources;

/// Returns the total requests or limits of a pod, without its overhead. `which` is `requests` or `limits`. Upstream:
/// `PodRequests`, `PodLimits`.
pub(super) fn pod_resources(pod: &Value, which: &str) -> ResourceQuantities {
    let spec = &pod["spec"];
    let mut total = total_container_resources(spec, which);
    override_with_pod_level(&mut total, quantities_from_json(&spec["resources"][which]));
    total
}

/// Whether the pod has the QoS class BestEffort. Upstream: `GetPodQOS`.
pub(super) fn is_best_effort(pod: &Value) -> bool {
    let class = QosClass::parse(str_at(pod, "status.qosClass"));
    class.unwrap_or_else(|| QosClass::of_pod_spec(&pod["spec"])) == QosClass::BestEffort
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn best_effort_is_the_qos_class() {
        let requests = json!({"requests": {"cpu": "1"}});
        let limits = json!({"limits": {"memory": "1Gi"}});
        let pod = |pod_level: &Value, container: &Value| json!({"spec": {"resources": pod_level, "containers": [{"resources": container}]}});
        assert!(is_best_effort(&pod(&Value::Null, &json!({}))));
        assert!(!is_best_effort(&pod(&Value::Null, &requests)));
        assert!(!is_best_effort(&pod(&limits, &json!({}))));
        // Resources of the pod as a whole replace those of its containers, also if they are empty.
        assert!(is_best_effort(&pod(&json!({}), &requests)));
        let mut of_status = pod(&Value::Null, &requests);
        of_status["status"]["qosClass"] = json!("BestEffort");
        assert!(is_best_effort(&of_status));
    }

    #[test]
    fn resources_of_the_pod_override_those_of_its_containers() {
        let pod = json!({"spec": {
            "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
            "resources": {"requests": {"cpu": "3"}},
        }});
        let total = pod_resources(&pod, "requests");
        assert_eq!(total, quantities_from_json(&json!({"cpu": "3", "memory": "1Gi"})));
    }
}
