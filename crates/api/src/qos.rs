//! The quality of service class of a pod.

use serde_json::Value;

use crate::quantity::Quantity;

/// QoS class of a pod, from the least to the most protected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QosClass {
    BestEffort,
    Burstable,
    Guaranteed,
}

/// CPU and memory requests and limits of a container or of a pod. Unset quantities are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct ComputeResources {
    requests: CpuAndMemory,
    limits: CpuAndMemory,
}

/// A CPU and a memory quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CpuAndMemory {
    cpu: Quantity,
    memory: Quantity,
}

impl Default for CpuAndMemory {
    fn default() -> Self {
        Self { cpu: Quantity::ZERO, memory: Quantity::ZERO }
    }
}

impl CpuAndMemory {
    /// Returns the sum of the two CPU quantities, and the sum of the two memory quantities. Negative quantities of
    /// `other` are ignored.
    fn plus(self, other: Self) -> Self {
        let sum = |a: Quantity, b: Quantity| if b.is_negative() { a } else { a.plus(b) };
        Self { cpu: sum(self.cpu, other.cpu), memory: sum(self.memory, other.memory) }
    }
}

impl QosClass {
    /// Returns the QoS class in the status of a pod. If the status has none, as for a static pod, computes the class
    /// from the spec. `pod` is the pod object in JSON.
    ///
    /// Rule: the QoS class of a pod is fixed when the API server creates the pod. Upstream: `GetPodQOS`.
    pub fn of_pod(pod: &Value) -> Self {
        let stored = pod["status"]["qosClass"].as_str().and_then(Self::parse);
        stored.unwrap_or_else(|| Self::of_pod_spec(&pod["spec"]))
    }

    /// Computes the QoS class of a pod from its `spec` in JSON. An invalid quantity counts as zero.
    pub fn of_pod_spec(spec: &Value) -> Self {
        let compute_resources = |resources: &Value| {
            let compute = |part: &str| CpuAndMemory {
                cpu: Quantity::from_json(&resources[part]["cpu"]),
                memory: Quantity::from_json(&resources[part]["memory"]),
            };
            ComputeResources { requests: compute("requests"), limits: compute("limits") }
        };
        let list = |key: &str| spec[key].as_array().into_iter().flatten();
        let pod = Some(&spec["resources"]).filter(|it| !it.is_null()).map(compute_resources);
        let containers = list("containers").chain(list("initContainers"));
        Self::compute(pod, containers.map(|it| compute_resources(&it["resources"])))
    }

    /// Computes the QoS class of a pod. `pod` are the pod-level resources, `None` if the pod has none. `containers` are
    /// the resources of all containers, including the init containers.
    ///
    /// Rule: a pod without any CPU or memory request or limit is `BestEffort`. A pod is `Guaranteed` if every container
    /// has a CPU limit and a memory limit, and if the sums of the limits equal the sums of the requests. Any other pod
    /// is `Burstable`. Pod-level resources, even empty ones, replace the resources of the containers. Upstream:
    /// `ComputePodQOS`.
    fn compute(pod: Option<ComputeResources>, containers: impl Iterator<Item = ComputeResources>) -> Self {
        let mut total = ComputeResources::default();
        let mut all_limited = true;
        let mut add = |it: ComputeResources| {
            total.requests = total.requests.plus(it.requests);
            total.limits = total.limits.plus(it.limits);
            all_limited &= Quantity::ZERO < it.limits.cpu && Quantity::ZERO < it.limits.memory;
        };
        match pod {
            Some(it) => add(it),
            None => containers.for_each(add),
        }
        if total == ComputeResources::default() {
            Self::BestEffort
        } else if all_limited && total.requests == total.limits {
            Self::Guaranteed
        } else {
            Self::Burstable
        }
    }

    /// Parses the name of a QoS class. Returns `None` for an unknown name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::BestEffort, Self::Burstable, Self::Guaranteed].into_iter().find(|it| it.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde_json::json;

    use super::*;

    /// `"cpu memory / cpu memory"`: requests, then limits; `-` is not set.
    fn resources(text: &str) -> ComputeResources {
        let amounts: Vec<Quantity> = text
            .split_whitespace()
            .filter(|it| *it != "/")
            .map(|it| if it == "-" { Quantity::ZERO } else { Quantity::parse(it).unwrap() })
            .collect();
        ComputeResources {
            requests: CpuAndMemory { cpu: amounts[0], memory: amounts[1] },
            limits: CpuAndMemory { cpu: amounts[2], memory: amounts[3] },
        }
    }

    fn check(pod: Option<&str>, containers: &[&str], class: QosClass) {
        let found = QosClass::compute(pod.map(resources), containers.iter().map(|it| resources(it)));
        assert_eq!(found, class, "{pod:?} {containers:?}");
        assert_eq!(QosClass::parse(class.as_str()), Some(class));
    }

    #[test]
    fn classes_as_upstream_computes_them() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        check(None, &[], BestEffort);
        check(None, &["- - / - -", "0 0 / 0 0"], BestEffort);
        check(None, &["1 1Gi / 1 1Gi"], Guaranteed);
        check(None, &["1000m 1024Mi / 1 1Gi", "2 2Gi / 2 2Gi"], Guaranteed);
        check(None, &["1 1Gi / 1 1Gi", "- - / - -"], Burstable);
        check(None, &["1 1Gi / 2 1Gi"], Burstable);
        check(None, &["1 - / 1 -"], Burstable);
        check(None, &["- - / 1 1Gi"], Burstable);
        check(None, &["1 - / - -"], Burstable);
    }

    #[test]
    fn resources_of_the_pod_are_used_in_place_of_those_of_containers() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        check(Some("1 1Gi / 1 1Gi"), &["- - / - -"], Guaranteed);
        check(Some("1 1Gi / - -"), &["1 1Gi / 1 1Gi"], Burstable);
        // `spec.resources: {}` is set, and sets nothing.
        check(Some("- - / - -"), &["1 1Gi / 1 1Gi"], BestEffort);
    }

    #[test]
    fn the_class_in_the_status_is_used() {
        let limits = json!({"cpu": "1", "memory": "1Gi"});
        let spec = json!({"resources": {"requests": limits, "limits": limits}, "containers": [{}]});
        let class = |status: &str| QosClass::of_pod(&json!({"spec": spec, "status": {"qosClass": status}}));
        assert_eq!(class("Burstable"), QosClass::Burstable);
        assert_eq!(class(""), QosClass::Guaranteed);
    }
}
