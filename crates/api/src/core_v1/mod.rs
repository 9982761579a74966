//! `v1`, the core group: pods, nodes, Services and Endpoints.
//!
//! The structs have only the fields that Muster reads. All other fields are skipped. As in Go, a field that is `null`
//! is decoded like an absent field. The exceptions are the fields `metadata` whose type is not `Option`: they must not
//! be `null`.

/// API types of affinity and topology spread constraints.
mod affinity;
/// Enums of condition statuses and pod phases.
mod enums;
/// API types of nodes.
mod node;
/// API types of pods and pod templates.
mod pod;
/// API types of Services and Endpoints.
mod service;

pub use affinity::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinity,
    PodAffinityTerm, PreferredSchedulingTerm, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
pub use enums::{ConditionStatus, PodPhase};
pub use node::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Taint};
pub use pod::{
    Container, ContainerPort, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, Lifecycle, LifecycleHandler, Pod, PodCondition, PodIp, PodOs,
    PodReadinessGate, PodSecurityContext, PodSpec, PodStatus, PodTemplateSpec, PodWithoutContainerStatuses,
    PodWithoutContainers, Probe, ResourceList, ResourceRequirements, Sysctl, Toleration, VolumeMount,
    is_sidecar_policy,
};
pub use service::{
    ClientIpConfig, EndpointAddress, EndpointPort, EndpointSubset, Endpoints, LoadBalancerIngress,
    LoadBalancerStatus, ObjectReference, Service, ServicePort, ServiceSpec, ServiceStatus,
    SessionAffinityConfig,
};

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString as _;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::discovery_v1::EndpointSlice;

    fn decodes<'a, T: Deserialize<'a>>(json: &'a str) -> bool {
        serde_json::from_str::<T>(json).is_ok()
    }

    /// The fields of a pod, each with a value of its type.
    fn pod() -> Value {
        let probe = json!({"initialDelaySeconds": 1, "periodSeconds": 1, "failureThreshold": 1, "successThreshold": 1,
            "terminationGracePeriodSeconds": 1});
        json!({
            "metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {"a": "b"}, "generation": 1,
                "ownerReferences": [{"kind": "DaemonSet", "uid": "u", "controller": true}]},
            "spec": {
                "nodeName": "n", "nodeSelector": {"a": "b"}, "hostNetwork": true, "priority": 5, "hostname": "h",
                "affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]},
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}]}},
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "minDomains": 1}],
                "resources": {"requests": {"cpu": "1"}}, "overhead": {"cpu": "1"}, "schedulingGates": [{}],
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 1, "activeDeadlineSeconds": 1,
                "readinessGates": [{"conditionType": "c"}], "os": {"name": "linux"}, "runtimeClassName": "r",
                "securityContext": {"sysctls": [{"name": "s"}]}, "hostIPC": true,
                "containers": [{"resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always",
                    "ports": [{"name": "http", "containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
                    "name": "c", "image": "i", "imagePullPolicy": "Always",
                    "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true}],
                    "lifecycle": {"postStart": {}, "preStop": {}},
                    "startupProbe": probe, "livenessProbe": probe, "readinessProbe": probe}],
                "initContainers": [{"name": "i"}], "ephemeralContainers": [{"name": "e"}],
            },
            "status": {
                "phase": "Running", "reason": "r", "startTime": "t", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "r", "lastTransitionTime": "t"}],
                "containerStatuses": [{"name": "c", "ready": true, "restartCount": 1,
                    "state": {"waiting": {"reason": "r"}, "running": {}}, "lastState": {"terminated": {"exitCode": 1}}}],
            },
        })
    }

    /// Calls `check` with the pod in which one field after the other is replaced.
    fn replace_each_field(of: &Value, by: &Value, check: &mut dyn FnMut(Value, &str)) {
        let Value::Object(fields) = of else { return };
        for (name, field) in fields {
            let mut with = |value: Value, path: &str| {
                let mut changed = of.clone();
                changed[name] = value;
                check(changed, &format!("{name}.{path}"));
            };
            with(by.clone(), "");
            match field {
                Value::Array(items) => {
                    replace_each_field(&items[0], by, &mut |it, path| with(json!([it]), path));
                }
                field => replace_each_field(field, by, &mut with),
            }
        }
    }

    /// As in Go, except in metadata and in the entries of maps, which are not fields.
    #[test]
    fn null_is_an_absent_field() {
        assert!(decodes::<Pod<'_>>(&pod().to_string()));
        replace_each_field(&pod(), &Value::Null, &mut |pod, path| {
            let is_refused = path == "metadata."
                || ["labels.a", "annotations.a", "nodeSelector.a"].iter().any(|it| path.contains(it));
            assert_eq!(decodes::<Pod<'_>>(&pod.to_string()), !is_refused, "{path}");
        });
        assert!(decodes::<Node<'_>>(r#"{"metadata": {}, "spec": null, "status": null}"#));
        assert!(decodes::<Node<'_>>(
            r#"{"spec": {"taints": null}, "status": {"conditions": [{"type": null}]}}"#
        ));
        let service =
            r#"{"spec": {"ports": null, "clusterIPs": null, "sessionAffinityConfig": {"clientIP": null}}}"#;
        assert!(decodes::<Service<'_>>(service));
    }

    /// As in Go, where one field of the wrong type makes the whole object malformed.
    #[test]
    fn a_field_of_another_type_is_malformed() {
        replace_each_field(&pod(), &json!(1.5), &mut |pod, path| {
            // A quantity may be a number.
            assert_eq!(decodes::<Pod<'_>>(&pod.to_string()), path.contains("cpu"), "{path}");
        });
        assert!(!decodes::<Node<'_>>(r#"{"metadata": {"deletionTimestamp": 5}}"#));
        // Port numbers are decoded as 32-bit integers, even if they are not valid ports.
        assert!(decodes::<Service<'_>>(r#"{"spec": {"ports": [{"port": 70000, "nodePort": -1}]}}"#));
        assert!(!decodes::<Service<'_>>(r#"{"spec": {"ports": [{"port": 5000000000}]}}"#));
        assert!(decodes::<EndpointSlice<'_>>(r#"{"ports": [{"port": 70000}]}"#));
    }

    #[test]
    fn a_topology_hint_may_lack_a_name() {
        let slice = r#"{"endpoints": [{"hints": {"forZones": [{}], "forNodes": [{"name": null}]}}]}"#;
        assert!(decodes::<EndpointSlice<'_>>(slice));
    }

    #[test]
    fn containers_are_skipped_where_they_are_not_read() {
        let pod = r#"{"spec": {"containers": [{"ports": 5}]}, "status": {"containerStatuses": [5]}}"#;
        assert!(decodes::<PodWithoutContainers<'_>>(pod));
        assert!(!decodes::<Pod<'_>>(pod));
    }
}
